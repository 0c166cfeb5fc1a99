#!/usr/bin/env python3
"""The Makefile and its helpers: that help lists every target, and what happens when packages are
missing."""
import glob
import os
import re
import stat
import subprocess
import sys
import tempfile

import tree

ROOT = tree.ROOT
sys.path.insert(0, os.path.join(ROOT, "tests"))
import pick  # noqa: E402

FILTER = '\n    cmocka_set_test_filter(getenv("DXPU_TEST"));'
failed = 0


def check(name, truth, shown=""):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name)
    if not truth:
        print("\n".join(str(shown).splitlines()[-20:]))


def run(*words, **env):
    settings = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    settings.update(env)
    done = subprocess.run(words, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def targets():
    """Every phony target is in make help, and the other way round."""
    text = ""
    for name in ("Makefile", "bindings/install.mk"):
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text += file.read()
    phony = set(" ".join(re.findall(r"(?m)^\.PHONY:(.*)$", text)).split()) - {"FORCE"}
    listed = {line.split()[0] for line in run("make", "-s", "help")[1].splitlines() if line.split()}
    check("help_lists_targets", phony == listed, phony ^ listed)
    check("makefile_no_conditional_assignment", "?=" not in text)
    plan = ("make", "-n", "-W", "examples/cli/main.c", "build/examples/cli/main.o")
    short, whole = run(*plan)[1], run(*plan, "V=1")[1]
    check("makefile_says_little", "  CC examples/cli/main.c\n" in short and "-Wextra" in short,
          short)
    check("makefile_v1_says_all", "-Wextra" in whole and "  CC " not in whole, whole)
    built = run("make", "-n", "-B", "cov")[1]
    compiled = set(re.findall(r"(?m)^  CC (.*)", built))
    others = {n for n in compiled if n.startswith(("bindings/", "examples/"))}
    # The simulations have these two; the others see none but the header of zlib.
    check("coverage_compiles_what_it_runs", "tests/core/api_crc.c" in compiled
          and others == {"bindings/pcap/dxpu_pcap.c", "bindings/push/dxpu_push.c"}, compiled)
    check("makefile_no_recursion", "$(MAKE)" not in text and not re.search(r"\tmake ", text))


def undeclared(source):
    """Whether a script runs what `all` does not build, and has no line that says so."""
    needs = r'(?m)^sanitized\(\)|"build", "(?:san"|cov|firmware")|HERE, "bench\.py"'
    return bool(re.search(needs, source)
                and not re.search(r"(?m)^# make: \S", source))


def one_test():
    """`make test T=NAME` builds what that test runs, and no more."""
    problems = []
    for name in sorted(glob.glob(os.path.join(ROOT, "tests", "*", "*.py"))):
        with open(name, encoding="utf-8") as file:
            if "/support/" not in name and undeclared(file.read()):
                problems.append(name)
    check("test_declares_what_it_runs", not problems, "\n".join(problems))
    seen = undeclared("sanitized()\n") and undeclared('x("build", ' + '"san")\n')
    check("control_test_declares_what_it_runs",
          seen and not undeclared("# make: a\nsanitized()\n"))
    for name, linked, other in (("cli_pool", "build/san/dxpu-manager", "build/san/tests/"),
                                ("cli_lspci", "build/san/tests/bindings/unit_vswitch",
                                 "build/san/dxpu"),
                                ("cli_tlp", "build/dxpu", "build/san/"),
                                ("unit_tlp", "build/san/tests/core/unit_tlp", "build/dxpu")):
        plan = run("make", "-n", "-B", "test", "T=" + name)[1]
        check("test_builds_for_" + name, "  LD %s\n" % linked in plan
              and "  LD %s" % other not in plan, "\n".join(re.findall("  LD .*", plan)))


def twins(names):
    """Base names without suffix that several of the files have."""
    stems = [os.path.splitext(os.path.basename(name))[0] for name in names]
    return sorted({stem for stem in stems if stems.count(stem) > 1})


def picks_none(name, source):
    """Whether all cases of a test run whatever K is."""
    if name.endswith(".py"):
        return re.search(r"(?m)^@case\b", source) and not pick.CASES.search(source)
    return FILTER not in source[source.find("\nint main("):]


def names():
    """`make test T=NAME` finds each test by its name alone."""
    out = run("make", "-n", "test", "T=")[1]
    check("test_needs_a_name", "T= names no test: " in out, out)
    tests = run("make", "-s", "--eval=list: ; @echo $(C_TESTS) $(SCRIPTS)", "list")[1].split()
    check("test_names_are_unique", len(tests) > 180 and not twins(tests), twins(tests))
    check("control_test_names_are_unique", twins(["a/x.c", "b/x.py", "a/y.c"]) == ["x"])
    status, out = run("make", "-n", "test", "T=unit_tlp", "C_TESTS=tests/a/unit_tlp.c "
                       "tests/b/unit_tlp.c")
    check("test_refuses_two", status == 2 and
          "T=unit_tlp names tests/a/unit_tlp.c tests/b/unit_tlp.c: " in out, out)
    problems = [name for name in tests if picks_none(name, tree.text(name))]
    check("tests_pick_cases", not problems, "\n".join(problems))
    seen = [picks_none(*given) for given in (
        ("a.c", "int main(void)\n{\n    return cmocka_run_group_tests(tests, NULL, NULL);\n}\n"),
        ("a.c", 'FILTER(getenv("DXPU_TEST"));\nint main(void)\n{\n    return 0;\n}\n'
         .replace("FILTER", "cmocka_set_test_filter")),
        ("a.py", "from cases import case, check\n\n\n@case\ndef a():\n    pass\n"))]
    check("control_tests_pick_cases", all(seen), seen)
    for name in ("test_vectors", "bench_check", "unit_manager_wire"):
        status, out = run("make", "-n", "test", "T=" + name)
        check("test_finds_" + name, status == 0 and "/%s" % name in out, out)


def compilers():
    """CC may be of several words: "ccache gcc"."""
    one = re.compile(r"(?<!shlex\.split\()os\.environ(?:\.get\(|\[)[\"']CC\b")
    problems = []
    for name in sorted(glob.glob(os.path.join(ROOT, "tests", "**", "*.py"), recursive=True)):
        with open(name, encoding="utf-8") as file:
            problems += [name] if one.search(file.read()) else []
    check("compiler_of_several_words", not problems, "\n".join(problems))
    check("control_compiler_of_several_words",
          one.search("x([os.environ." + 'get("CC", "cc")])')
          and not one.search("x([*shlex.split(os.environ." + 'get("CC", "cc"))])'))


def packages(folder):
    """tests/packages.sh and the targets that use it, with none, or all, of the packages there."""
    def fake(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    path = folder + ":" + os.environ["PATH"]
    log = os.path.join(folder, "log")
    fake("dpkg-query", "exit 1\n")
    fake("id", "echo 1000\n")
    fake("apt-get", 'echo "$@" >> %s\n' % log)
    status, out = run("sh", "tests/packages.sh", "demo", PATH=path)
    line = re.search(r"apt-get install -y --no-install-recommends (.*)", out)
    demo = set(line.group(1).split()) if line else set()
    check("packages_line", status == 2 and {"gcc", "libevent-dev", "libpcap-dev", "python3"} <= demo
          and "clang" not in demo, out)
    status, out = run("sh", "tests/packages.sh", "check", PATH=path)
    check("packages_line_check", status == 2 and "gcc-arm-none-eabi" in out, out)
    status, out = run("sh", "tests/packages.sh", "cross", PATH=path)
    check("packages_line_cross", status == 2 and "clang-tidy" in out and "valgrind" in out, out)
    for target in ("demo", "check", "fuzz", "prove", "cross", "soak"):
        status, out = run("make", target, PATH=path)
        check("packages_stop_" + target, status == 2 and "apt-get install -y" in out
              and "run.py" not in out, out)
    check("packages_not_installed_by_user", not os.path.exists(log))
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    missing = [p for p in demo - {"libc6-dev"} if p not in readme]
    check("packages_in_readme", not missing, missing)
    fake("id", "echo 0\n")
    status, out = run("sh", "tests/packages.sh", "demo", PATH=path)
    with open(log, encoding="utf-8") as file:
        asked = file.read()
    check("packages_installed_by_root", status == 0 and "install" in asked and
          "libevent-dev" in asked, out + asked)
    os.unlink(log)
    fake("apt-get", 'echo "$@" >> %s; exit 1\n' % log)
    run("make", "-n", "prove", PATH=path)  # of `check` it would plan all that is built
    check("dry_run_installs_nothing", not os.path.exists(log))
    status, out = run("make", "prove", PATH=path)
    check("control_dry_run_installs_nothing", status == 2 and os.path.exists(log), out)
    status, out = run("sh", "tests/packages.sh", "demo", PATH=path)
    check("packages_failure_seen", status != 0, out)
    fake("dpkg-query", 'printf "ii  %s\\n" "$@"\n')
    status, out = run("sh", "tests/packages.sh", "check", PATH=path)
    check("packages_all_there", status == 0 and not out, out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        packages(folder)
    targets()
    one_test()
    names()
    compilers()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
