#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/%)
"""Statistics on standard error (--stats, SIGUSR1) have the format of the messages (--log).

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from lab import PATIENCE, Lab  # noqa: E402

FIGURE = {"json": r'"statistics"', "journal": r"\n<6> *\w+ +\d", "text": r"\n *\w+ +\d"}
BOX = ("dxpu-box", "--listen", "127.0.0.1:0")


def catches(process, number):
    """Before it does, the signal ends it."""
    with open("/proc/%d/status" % process.popen.pid, encoding="ascii") as file:
        mask = next(line.split()[1] for line in file if line.startswith("SigCgt"))
    return int(mask, 16) >> (number - 1) & 1


def printed(form, name, *args):
    """The lines of a program that was sent SIGUSR1, then stopped.  -qqq keeps messages away, and
    not statistics."""
    with Lab(plain=True) as lab:
        args = [lab.file(arg[1:]) if arg.startswith("@") else arg for arg in args]
        process = lab.start(name, *args, "-qqq", "--stats", "--log", form)
        end = time.monotonic() + PATIENCE
        while not catches(process, signal.SIGUSR1) and time.monotonic() < end:
            time.sleep(0.01)
        process.popen.send_signal(signal.SIGUSR1)
        process.says(FIGURE[form])
        check(process.stop() == 0, process.errors())
        check(not process.output(), process.output())
        return process.errors().splitlines()


def objects(lines):
    """Those that are a message of --log json."""
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and {"time", "level", "program", "text"} <= set(value):
            found.append(value)
    return found


@case
def json_lines():
    for args in (BOX, ("dxpu-host", "--vfio-user", "@vm", "--slots", "1"),
                 ("dxpu-manager", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store",
                  "@db"), ("dxpu-device", "memory", "--socket", "@s")):
        lines = printed("json", *args)
        found = objects(lines)
        check(len(found) == len(lines) == 2, lines)  # the signal's and --stats'
        for value in found:
            check(value["level"] == "info" and value["text"] == "statistics", value)
            check(value["program"].startswith(args[0]) and value["statistics"], value)


@case
def journal_priority():
    lines = printed("journal", *BOX)
    check(all(line.startswith("<6>") for line in lines), lines)


@case
def control_text():
    lines = printed("text", *BOX)
    check(not objects(lines) and not any(line.startswith("<") for line in lines), lines)


if __name__ == "__main__":
    sys.exit(main())
