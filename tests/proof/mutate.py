#!/usr/bin/env python3
"""Break dxpu.h on purpose and see the simulation notice: each mutation of spec/mutations.md.

    tests/proof/mutate.py             only that the table is true, for `make check`: the text of
                                      each is in dxpu.h exactly once; with DXPU_WHOLE=1, as in
                                      `make check-long`, all are tried
    tests/proof/mutate.py NAME...     these

A mutation whose test its program does not have, and one without a line "Caught by", is a failure,
too.  The unbroken copy is the control: the same tests find nothing wrong with it, and their CPU
time, which no load of the machine changes, is the measure of what never ends.
"""
# run.py: --timeout 1200
import argparse
import concurrent.futures
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402

ROOT = rooms.ROOT
TABLE = os.path.join(ROOT, "spec", "mutations.md")
FOLDER = os.path.join(ROOT, "build", "mutants")
# Over both this many CPU seconds and this many times those of the unbroken copy: it hangs.
HANGS, HANGS_TIMES = 15, 20
CAUGHT, PASSED, NOT_RUN = "caught", "passed", "not run"
FLAGS = ["-std=c11", "-O0", "-pthread"]
failed = 0


class Mutation:
    def __init__(self, name):
        self.name, self.program, self.test, self.seeds = name, None, "*", 0
        self.old, self.new = [], []


def read_table():
    """`### name`, a line `Caught by PROGRAM[, TEST][, N seeds].`, then the lines - and +."""
    found = []
    with open(TABLE, encoding="utf-8") as file:
        for line in file.read().split("\n"):
            head = re.match(r"### (\S+)$", line)
            by = re.match(r"Caught by `(\w+)`(?:, `(\w+)`)?(?:, (\d+) seeds?)?\.$", line)
            if head:
                found.append(Mutation(head.group(1)))
            elif by and found:
                found[-1].program = by.group(1)
                found[-1].test = by.group(2) or "*"
                found[-1].seeds = int(by.group(3) or 0)
            elif line.startswith("    - "):
                found[-1].old.append(line[6:])
            elif line.startswith("    + "):
                found[-1].new.append(line[6:])
    return found


def build(name, text, program):
    """dxpu.h with this text, and a program that includes it; the program's path."""
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "dxpu.h"), "w", encoding="utf-8") as file:
        file.write(text)
    out = os.path.join(folder, program)
    pcap = os.path.join(ROOT, "bindings", "pcap")
    more = [os.path.join(pcap, "dxpu_pcap.c"), os.path.join(rooms.TESTS, "sim", "library.c"),
            "-lpcap", "-lz"] if program.startswith("sim_") else []
    if program.startswith("api_"):
        more.append("-DDXPU_IMPLEMENTATION")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), *FLAGS, "-I" + folder, "-I" + ROOT,
                    "-I" + os.path.join(rooms.TESTS, "support"),
                    "-I" + os.path.join(rooms.TESTS, "support", "sim"), "-I" + pcap,
                    *("-I" + os.path.join(ROOT, "bindings", n) for n in ("bytes", "zlib")),
                    "-o", out, rooms.c_test(program),
                    *more, "-lcmocka"], check=True, cwd=ROOT)
    return out


def run(program, test, seeds, limit=0):
    """(outcome, how, CPU seconds) of the test in a program; without a limit they have no end."""
    env = dict(os.environ, DXPU_TEST=test, DXPU_DEPTH="6")
    for name in ("CMOCKA_MESSAGE_OUTPUT", "DXPU_SEEDS", "DXPU_TRACE", "DXPU_PCAP", "DXPU_UPDATE"):
        env.pop(name, None)
    if seeds:
        env["DXPU_SEEDS"] = str(seeds)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        child = subprocess.Popen([program], env=env, cwd=ROOT, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=subprocess.STDOUT)
        if limit:
            resource.prlimit(child.pid, resource.RLIMIT_CPU, (limit, limit + 5))
        status, used = os.wait4(child.pid, 0)[1:]
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    seconds = used.ru_utime + used.ru_stime
    if not re.search(r"^\[ RUN +\] %s$" % test.replace("*", r"\w+"), text, re.M):
        return NOT_RUN, "runs no " + test, seconds
    if child.returncode == -signal.SIGXCPU:
        return CAUGHT, "never ends: %.0f s" % seconds, seconds
    seed = re.search(r"^seed \d+: .*$", text, re.M)
    claim = re.search(r"Assertion `.*' failed|^.*--- .*$|no way on.*", text, re.M)
    how = (seed or claim).group(0) if seed or claim else "exit status %d" % child.returncode
    return (CAUGHT if child.returncode else PASSED), how, seconds


def stands_once(mutation, text):
    """(does it, what is wrong)"""
    old = "\n".join(mutation.old)
    return bool(old) and text.count(old) == 1, \
        "its text stands %d times in dxpu.h: %s" % (text.count(old), old)


def try_one(mutation, text, limit):
    """(caught, how)"""
    old, new = "\n".join(mutation.old), "\n".join(mutation.new)
    good, why = stands_once(mutation, text)
    if not good:
        return False, why
    program = build(mutation.name, text.replace(old, new), mutation.program)
    outcome, how, _ = run(program, mutation.test, mutation.seeds, limit)
    return outcome == CAUGHT, how


def unbroken(pool, text, wanted):
    """The CPU seconds that each run of those wanted may take: it is done with dxpu.h as it is."""
    runs = sorted({(m.program, m.test, m.seeds) for m in wanted})
    programs = {name: build("none", text, name) for name in sorted({r[0] for r in runs})}
    limits = {}
    tried = pool.map(lambda r: run(programs[r[0]], *r[1:]), runs)
    for (name, test, seeds), (outcome, how, seconds) in zip(runs, tried):
        say(outcome == PASSED, "mutation_none_%s_%s_%d" % (name, test, seeds),
            how if outcome != PASSED else "%.1f s" % seconds)
        limits[name, test, seeds] = int(max(HANGS, HANGS_TIMES * seconds))
    for name, program in programs.items():
        say(run(program, "test_of_no_such_name", 1)[0] == NOT_RUN, "control_no_such_test_" + name)
    return limits


def say(good, name, how=""):
    global failed
    failed += not good
    print("%s %s %s" % ("ok" if good else "not ok", name, how))
    sys.stdout.flush()


def main():
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        text = file.read()
    table = read_table()
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", metavar="NAME", help="of a mutation; none: all")
    names = words.parse_args().names
    strange = set(names) - {m.name for m in table}
    if strange or not table:
        words.error("spec/mutations.md has no mutation %s" % " ".join(sorted(strange)))
    by_none = [m.name for m in table if not m.program]
    if by_none:
        words.error("spec/mutations.md does not say what catches %s" % " ".join(by_none))
    wanted = [m for m in table if m.name in names] or \
        (table if "DXPU_WHOLE" in os.environ else [])
    for mutation in table if not names else ():
        if mutation not in wanted:
            good, why = stands_once(mutation, text)
            say(good, "text_of_mutation_" + mutation.name, "" if good else why)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        limits = unbroken(pool, text, wanted)
        tried = [(m, pool.submit(try_one, m, text, limits[m.program, m.test, m.seeds]))
                 for m in wanted]
        for mutation, future in tried:
            say(future.result()[0], "mutation_" + mutation.name, future.result()[1])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
