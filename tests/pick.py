#!/usr/bin/env python3
"""One test: a program of cmocka, or a script, all of it or the cases that K names.

    tests/pick.py TEST [K]

K is a pattern of names of a program's tests, or names of a script's cases.  When no test matches,
or the script has no cases, that is an error: nothing would have been tested.  Without K the
test takes the place of this process."""
import os
import re
import subprocess
import sys

RUNNING = re.compile(rb"\[=+\] (?:.*: )?Running (\d+) test")
CASES = re.compile(r'from cases import .*\bmain\b|\bcases\.main\(|nargs="\*"')


def script(path, wanted):
    with open(path, encoding="utf-8") as file:
        if wanted and not CASES.search(file.read()):
            sys.exit("%s has no cases to choose from: run it without K" % path)
    os.execv(sys.executable, [sys.executable, path, *wanted])


def program(path, pattern):
    if not pattern:
        os.execve(path, [path], dict(os.environ, DXPU_TEST="*"))
    groups = []  # how many of its tests run in each
    with subprocess.Popen([path], env=dict(os.environ, DXPU_TEST=pattern), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as child:
        for line in child.stdout:
            groups += [int(n) for n in RUNNING.findall(line)]
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    if groups and not sum(groups):
        sys.exit("%s: no test matches %s" % (path, pattern))
    return child.returncode


def main():
    path, wanted = sys.argv[1], " ".join(sys.argv[2:])
    return script(path, wanted.split()) if path.endswith(".py") else program(path, wanted)


if __name__ == "__main__":
    sys.exit(main())
