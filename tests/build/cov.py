#!/usr/bin/env python3
# run.py: --timeout 600
# make: $(COV_ALL)
"""Coverage of dxpu.h by its own C tests, built for coverage with asserts off (build/cov1; those of
the CRC once more with other options, build/cov8; `make cov` and `make check` build them) and run
with few seeds: every line and every branch, as gcc -O0 --coverage and gcov -b count them, must have
been taken.
A control shows that a line that never runs is seen.

    tests/build/cov.py [TEST...]      names of tests (unit_wire); all that are built without
"""
import concurrent.futures
import glob
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# With few of them each line is harder to reach than with many.
FEW = {"DXPU_SEEDS": "50", "DXPU_ROUNDS": "1000"}


def say(good, name, text=""):
    print("%s %s %s" % ("ok" if good else "not ok", name, text.splitlines()[0] if text else ""),
          flush=True)
    for line in ([] if good else text.splitlines()[:40]):
        print("  " + line)
    return good


def run(test):
    done = subprocess.run([test], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, **FEW), text=True, errors="replace")
    return test, done.returncode, done.stdout


def left_over(test):
    """Built before the library it would count for, by a Makefile that named other tests."""
    library = os.path.join(os.path.dirname(test), "..", "..", "libdxpu.a")
    return os.path.getmtime(test) < os.path.getmtime(library)


def judge(path, folders):
    judge_py = os.path.join(ROOT, "tests", "build", "coverage.py")
    return subprocess.run([sys.executable, judge_py, path] + folders, cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def control():
    """A file of two functions, one of which is never called."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "two.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int f(int a) { return a ? 1 : 2; }\nint g(int a)\n{\n    return a;\n}\n"
                       "int main(void) { return f(1) + f(0) != 3; }\n")
        for command in (["gcc", "-O0", "--coverage", "-c", "two.c"],
                        ["gcc", "--coverage", "two.o", "-o", "two"], ["./two"]):
            subprocess.run(command, cwd=folder, check=True)
        result = judge(source, [folder])
    return result.returncode == 1 and "never run: int g" in result.stdout, result.stdout


def main():
    folders = sorted(glob.glob(os.path.join(ROOT, "build", "cov[0-9]*")))
    built = os.path.join(ROOT, "build", "cov[0-9]*", "tests", "*", "*")
    tests = [t for t in sorted(glob.glob(built))
             if "." not in os.path.basename(t) and os.access(t, os.X_OK) and os.path.isfile(t)
             and not left_over(t)]
    if sys.argv[1:]:
        tests = [t for t in tests if os.path.basename(t) in sys.argv[1:]]
    if not tests:
        return 0 if say(False, "coverage_built", "nothing in build/cov*: run `make cov`") else 1
    for folder in folders:
        for old in glob.glob(os.path.join(folder, "**", "*.gcda"), recursive=True):
            os.unlink(old)
    good = True
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for test, status, output in pool.map(run, tests):
            if status:
                good = say(False, "coverage_runs_" + os.path.basename(test), output[-2000:])
    result = judge("dxpu.h", [os.path.relpath(f, ROOT) for f in folders])
    good &= say(result.returncode == 0, "coverage_of_dxpu_h",
                " ".join(result.stdout.splitlines()[-2:]) if result.returncode == 0
                else result.stdout)
    seen, text = control()
    return 0 if good & say(seen, "coverage_sees_what_never_runs", "" if seen else text) else 1


sys.exit(main())
