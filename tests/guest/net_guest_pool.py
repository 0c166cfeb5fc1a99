#!/usr/bin/env python3
"""A lease of the manager's pool in a stock guest: the story of `make demo`, short, in a guest.

The device is hot-plugged, survives loss, a kill of its box and one of the manager, is replaced by
a spare, given back and wiped; then a GPU is lent, on which the guest draws, and every pixel is
compared.  Prints `ok NAME`, `not ok NAME` or `skip NAME REASON`; skipped, loudly, where no QEMU or
guest can be had."""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402
import machines  # noqa: E402
import story  # noqa: E402


def say(text):
    print("# " + text, flush=True)


@case
def story_of_a_lease():
    with lab.Lab() as l:
        try:
            machine = machines.Stock(l)
        except machines.Missing as why:
            return str(why)
        told = story.Story(l, machine, say, say, fast=True, wait="adaptive", rounds=1)
        try:
            told.run()
        except Exception:
            for process in l.processes:
                say("%s: %s" % (process.name, process.errors()[-800:]))
            raise
        for name, text in story.table(told.figures):
            say("%s: %s" % (name, text))
        check(told.figures["verified_bytes"] > 0 and told.figures["lost"] > 0, told.figures)
        check(told.figures.get("drawn") or machine.no_display, told.figures)


if __name__ == "__main__":
    sys.exit(main())
