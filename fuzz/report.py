#!/usr/bin/env python3
"""Add up what fuzz/run.py has recorded: a table of all runs of each target.

    fuzz/report.py [RECORD...]     [build/fuzz.tsv]; those of several machines or trees together

Executions, CPU seconds and findings are sums; edges are the most that a run has reached, which
compare between runs of one compiler.
"""
import argparse
import csv
import os
import sys

from run import RECORD


def main():
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("record", nargs="*", default=[RECORD])
    total = {}
    for name in words.parse_args().record:
        if not os.path.exists(name):
            sys.exit("report.py: %s is not there; make fuzz writes build/fuzz.tsv" % name)
        with open(name, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                one = total.setdefault(row["target"], [0, 0.0, 0, 0, 0])
                one[0] += int(row["executions"])
                one[1] += float(row["cpu_s"])
                one[2] = max(one[2], int(row["edges"]))
                one[3] += int(row["findings"])
                one[4] += 1
    print("| target | runs | executions | CPU, s | executions a CPU second | edges | findings |")
    print("|---|---|---|---|---|---|---|")
    for target, (executions, cpu, edges, found, runs) in sorted(total.items()):
        print("| `%s` | %d | %s | %s | %s | %s | %d |"
              % (target, runs, f"{executions:,}", f"{cpu:,.0f}",
                 f"{executions / cpu:,.0f}" if cpu else "-", f"{edges:,}", found))
    print("| all | %d | %s | %s | | | %d |"
          % (sum(t[4] for t in total.values()), f"{sum(t[0] for t in total.values()):,}",
             f"{sum(t[1] for t in total.values()):,.0f}", sum(t[3] for t in total.values())))


if __name__ == "__main__":
    main()
