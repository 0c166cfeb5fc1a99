#!/usr/bin/env python3
# make: $(FUZZERS:fuzz/%.c=build/san/replay_%)
"""Each fuzz target over its seeds (fuzz/seeds.py), built with the sanitizers and
fuzz_main.c instead of libFuzzer; then over every seed cut short and with one bit changed: more of
them with DXPU_WHOLE=1.  And what fuzz/oss_fuzz.sh makes of dxpu.h has its assertions."""
# run.py: --timeout 900
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "fuzz"))
import seeds as corpus  # noqa: E402
CHANGED_PER_SEED = 20 if os.environ.get("DXPU_WHOLE") else 2
failed = 0

# A compiler of dxpu.h alone: all other objects and programs are empty.
DXPU_ALONE = """#!/bin/sh
for word; do
    [ "$word" != dxpu.h ] || exec cc "$@"
done
while [ "$1" != -o ]; do
    shift
done
: >"$2"
"""


def has_assertions(**more):
    """The dxpu.h of targets that oss_fuzz.sh builds."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = os.path.join(folder, "compiler")
        with open(compiler, "w", encoding="utf-8") as file:
            file.write(DXPU_ALONE)
        os.chmod(compiler, 0o700)
        done = subprocess.run(["fuzz/oss_fuzz.sh", "frame"], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env=dict(os.environ, CC=compiler, CFLAGS="-O0", OUT=folder, **more))
        if done.returncode:
            print(done.stdout[-4000:])
            return None
        with open(os.path.join(folder, "objects", "dxpu.o"), "rb") as file:
            return b"__assert_fail" in file.read()


def replay(program, files):
    return subprocess.run([program, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")


def replay_both(program, plain, changed):
    """Both in one process; by themselves only to see which fails, as starting one takes longer than
    most."""
    both = replay(program, plain + changed)
    if not both.returncode:
        return ("seeds", both), ("changed", both)
    seeds, after = replay(program, plain), replay(program, changed)
    return ("seeds", seeds), ("changed", after if seeds.returncode or after.returncode else both)


def main():
    global failed
    fuzz = os.path.join(ROOT, "fuzz")
    targets = sorted(n[5:-2] for n in (os.listdir(fuzz) if os.path.isdir(fuzz) else [])
                     if n.startswith("fuzz_") and n.endswith(".c") and n != "fuzz_main.c")
    if not targets:
        print("skip fuzz_replay no fuzz targets")
    for target in targets:
        program = os.path.join(ROOT, "build", "san", "replay_fuzz_" + target)
        seeds = corpus.seeds(target)
        words = os.path.join(fuzz, "dict", target + ".dict")  # fuzz/oss_fuzz.sh stops without it
        lacks = [what for what, there in (("seeds", seeds), ("program", os.path.exists(program)),
                                          ("words", os.path.exists(words))) if not there]
        if lacks:
            failed += 1
            print("not ok fuzz_%s_has_%s" % (target, lacks[0]))
            continue
        with tempfile.TemporaryDirectory() as folder:
            chance = random.Random(1)
            plain, changed = [], []
            for seed, data in seeds.items():
                plain.append(os.path.join(folder, seed))
                with open(plain[-1], "wb") as file:
                    file.write(data)
                for i in range(CHANGED_PER_SEED if data else 0):
                    other = bytearray(data[:chance.randint(1, len(data))] if i % 2 else data)
                    other[chance.randrange(len(other))] ^= 1 << chance.randrange(8)
                    changed.append(os.path.join(folder, "%s.%d" % (seed, i)))
                    with open(changed[-1], "wb") as file:
                        file.write(other)
            for name, done in replay_both(program, plain, changed):
                failed += done.returncode != 0
                print("%s fuzz_%s_%s" % ("not ok" if done.returncode else "ok", target, name))
                if done.returncode:
                    print(done.stdout[-4000:])
    for name, more, wanted in (("oss_fuzz_has_assertions", {}, True),
                               ("control_without_assertions", {"CONFIG": ""}, False)):
        good = not targets or has_assertions(**more) is wanted
        failed += not good
        print("%s %s" % ("ok" if good else "not ok", name))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
