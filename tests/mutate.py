#!/usr/bin/env python3
"""Break dxpu.h on purpose and see the simulation notice: each mutation of spec/mutations.md.

    tests/mutate.py             all
    tests/mutate.py NAME...     these

A mutation whose text does not stand in dxpu.h exactly once is a failure, so that the table stays
true.  The unbroken copy is the control: the same programs find nothing wrong with it.
"""
# run.py: --timeout 1200
import concurrent.futures
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "spec", "mutations.md")
FOLDER = os.path.join(ROOT, "build", "mutants")
HANGS = 240  # seconds of one program, after which it is taken for hanging
FLAGS = ["-std=c11", "-O0", "-pthread"]
failed = 0


class Mutation:
    def __init__(self, name):
        self.name, self.program, self.test, self.seeds = name, "sim_channel", "*", 0
        self.old, self.new = [], []


def read_table():
    """`### name`, a line `Caught by PROGRAM[, TEST][, N seeds].`, then the lines - and +."""
    found = []
    with open(TABLE, encoding="utf-8") as file:
        for line in file.read().split("\n"):
            head = re.match(r"### (\S+)$", line)
            by = re.match(r"Caught by `(\w+)`(?:, `(\w+)`)?(?:, (\d+) seeds?)?\.", line)
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
    more = [os.path.join(pcap, "dxpu_pcap.c"), "-lpcap"] if program.startswith("sim_") else []
    subprocess.run([os.environ.get("CC", "cc"), *FLAGS, "-I" + folder, "-I" + ROOT, "-I" + pcap,
                    "-o", out, os.path.join(ROOT, "tests", program + ".c"),
                    *more, "-lcmocka"], check=True, cwd=ROOT)
    return out


def run(program, test, seeds):
    """(caught, how)"""
    env = dict(os.environ, DXPU_TEST=test, DXPU_DEPTH="6")
    for name in ("CMOCKA_MESSAGE_OUTPUT", "DXPU_SEEDS", "DXPU_TRACE", "DXPU_PCAP", "DXPU_UPDATE"):
        env.pop(name, None)
    if seeds:
        env["DXPU_SEEDS"] = str(seeds)
    try:
        done = subprocess.run([program], env=env, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=HANGS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
    except subprocess.TimeoutExpired:
        return True, "never ends"
    seed = re.search(r"^seed \d+: .*$", done.stdout, re.M)
    claim = re.search(r"Assertion `.*' failed|^.*--- .*$|no way on.*", done.stdout, re.M)
    how = (seed or claim).group(0) if seed or claim else "exit status %d" % done.returncode
    return done.returncode != 0, how


def try_one(mutation, text):
    old, new = "\n".join(mutation.old), "\n".join(mutation.new)
    if not old or text.count(old) != 1:
        return False, "its text stands %d times in dxpu.h: %s" % (text.count(old), old)
    program = build(mutation.name, text.replace(old, new), mutation.program)
    return run(program, mutation.test, mutation.seeds)


def main():
    global failed
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        text = file.read()
    table = read_table()
    wanted = [m for m in table if m.name in sys.argv[1:] or len(sys.argv) == 1]
    if not wanted:
        print("not ok mutations none of that name")
        return 1
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        tried = [(m, pool.submit(try_one, m, text)) for m in wanted]
        for mutation, future in tried:
            caught, how = future.result()
            failed += not caught
            print("%s mutation_%s %s" % ("ok" if caught else "not ok", mutation.name, how))
            sys.stdout.flush()
    if len(sys.argv) == 1:
        for name in sorted({m.program for m in table}):
            seeds = max(m.seeds for m in table if m.program == name)
            tests = {m.test for m in table if m.program == name}
            test = tests.pop() if len(tests) == 1 else "*"
            bad, how = run(build("none", text, name), test, seeds)
            failed += bad
            print("%s mutation_none_%s %s" % ("not ok" if bad else "ok", name, how if bad else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
