#!/usr/bin/env python3
"""Prove dxpu.h: CBMC runs each harness of tests/proof/, and on a broken copy, which must fail.

    tests/proof/prove.py              only that each head is whole and that its control fits, for
                                      `make check`
    tests/proof/prove.py --all        all proofs: `make prove`
    tests/proof/prove.py NAME...      these
    tests/proof/prove.py --list  what each claims, in the form of the table in spec/assurance.md

A harness is a function proof_NAME() below a comment `/* PROOF NAME` with the fields claim, bounds,
stubs, open (what is not proven), unwind (loops), flags (for cbmc), and the control: `- ` lines of
dxpu.h, which must stand there exactly once, and the `+ ` lines that take their place.  The control
fails unless CBMC finds the claim broken: a harness that proves nothing, or nothing about that
line, does not pass.
"""
# run.py: --timeout 900
import argparse
import concurrent.futures
import glob
import os
import re
import resource
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "build", "proof")
# Beyond what CBMC 6 checks unasked: memory, division, shifts, signed overflow, unwinding.
HANGS = 900  # CPU seconds of one run of cbmc, which no load of the machine changes
CHECKS = ["--pointer-overflow-check", "--enum-range-check", "--drop-unused-functions",
          "--object-bits", "12", "--verbosity", "4", "--stop-on-fail"]
FIELDS = ("claim", "bounds", "stubs", "open", "unwind", "flags", "control")


class Proof:
    def __init__(self, path, name, head):
        self.path, self.name, self.old, self.new = path, name, [], []
        field = None
        self.of = dict.fromkeys(FIELDS, "")
        for line in head.split("\n"):
            word = re.match(r" {3}(\w+) +(.*)$", line)
            if word and word.group(1) in FIELDS:
                field, line = word.group(1), word.group(2)
            if field == "control":
                # a line of dxpu.h without the blanks before it: clang-format moves nothing here
                side = re.match(r" *([-+]) ?(.*)$", line)
                if side:
                    (self.old if side.group(1) == "-" else self.new).append(side.group(2))
            elif field:
                self.of[field] = (self.of[field] + " " + line.strip()).strip()

    def problem(self):
        for field in ("claim", "bounds", "stubs", "open", "unwind"):
            if not self.of[field]:
                return "its head has no " + field
        return "" if self.old else "it has no control"


def read():
    proofs = []
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "proof", "*.c"))):
        with open(path, encoding="utf-8") as file:
            for name, head in re.findall(r"^/\* PROOF (\w+)\n(.*?)\*/", file.read(), re.M | re.S):
                proofs.append(Proof(path, name, head.rstrip(" ")))
    return proofs


def command():
    done = subprocess.run([os.path.join(ROOT, "tests", "proof", "cbmc.sh")], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else None, done.stderr.strip()


def cbmc(words, proof, folders):
    """(holds, how): None when CBMC said neither."""
    start = time.monotonic()
    line = [*words, proof.path, *["-I" + f for f in folders], "-I" + ROOT,
            "-I" + os.path.join(ROOT, "tests", "proof"), "--function", "proof_" + proof.name,
            "--unwind", proof.of["unwind"], *proof.of["flags"].split(), *CHECKS]
    with subprocess.Popen(line, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (HANGS, HANGS + 5))
        out = child.communicate()[0]
    if child.returncode == -signal.SIGXCPU:
        return None, "cbmc: not done after %d CPU seconds" % HANGS
    seconds = "%.0f s" % (time.monotonic() - start)
    if child.returncode == 0 and "VERIFICATION SUCCESSFUL" in out:
        return True, seconds
    broken = re.search(r"Violated property:\n.*\n +(.*)", out)
    if child.returncode == 10 and broken:
        return False, "%s, %s" % (broken.group(1).strip(), seconds)
    tail = [t for t in out.split("\n") if t.strip()][-3:]
    return None, "cbmc: exit status %d: %s" % (child.returncode, " | ".join(tail))


def broken_copy(proof, text):
    """A directory with dxpu.h that has the control's lines; None when they fit nowhere."""
    blanks = r"\n *"
    pattern = re.compile(blanks.join(re.escape(line) for line in proof.old))
    if len(pattern.findall(text)) != 1:
        return None
    folder = os.path.join(FOLDER, proof.name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "dxpu.h"), "w", encoding="utf-8") as file:
        file.write(pattern.sub(lambda found: "\n".join(proof.new), text))
    return folder


def head(proof, text):
    """(the directory of its broken copy, what is wrong with its head)"""
    problem, folder = proof.problem(), broken_copy(proof, text)
    if not problem and not folder:
        problem = "the text of its control does not stand once in dxpu.h"
    return folder, problem


def prove(words, proof, text):
    """[(good, name, how)] of a harness and of its control."""
    folder, problem = head(proof, text)
    if problem:
        return [(False, "proof_" + proof.name, problem)]
    holds, how = cbmc(words, proof, [])
    seen, why = cbmc(words, proof, [folder])
    unwound = "unwinding" in why and "termination" not in proof.of["claim"]
    return [(holds is True, "proof_" + proof.name, how),
            (seen is False and not unwound, "control_" + proof.name, why)]


def wishes(proofs):
    """What the command line asks for: (its words, the proofs)."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    known = [p.name for p in proofs]
    for name in asked.names:
        if name not in known:
            parser.error("no proof %s; there are: %s" % (name, " ".join(known)))
    return asked, [p for p in proofs if not asked.names or p.name in asked.names]


def heads(proofs, text):
    """How many are not as they should be."""
    bad = 0
    for proof in proofs:
        problem = head(proof, text)[1]
        print("%s head_of_%s %s" % ("not ok" if problem else "ok", proof.name, problem))
        bad += bool(problem)
    return bad


def main():
    asked, wanted = wishes(read())
    if asked.list:
        for p in wanted:
            print("| `%s` | %s | %s | %s | %s |" % (p.name, p.of["claim"], p.of["bounds"],
                                                   p.of["stubs"], p.of["open"]))
        return 0
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        text = file.read()
    if not asked.all and not asked.names:
        return 1 if heads(wanted, text) else 0
    words, why = command()
    if not words:
        for proof in wanted:
            print("skip proof_%s %s" % (proof.name, why))
        print("0 proven, 0 failed, %d skipped" % len(wanted))
        return 1
    tally = {True: 0, False: 0}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for lines in pool.map(lambda p: prove(words, p, text), wanted):
            for good, name, how in lines:
                print("%s %s %s" % ("ok" if good else "not ok", name, how), flush=True)
            tally[all(good for good, _, _ in lines)] += 1
    print("%d proven, %d failed" % (tally[True], tally[False]))
    return 1 if tally[False] else 0


if __name__ == "__main__":
    sys.exit(main())
