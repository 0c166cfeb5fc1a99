#!/usr/bin/env python3
"""Draws what build/tests/manager/sim_pool prints (needs gnuplot).

    tests/bench/pool_plot.py OUT.svg
"""
# SPDX-License-Identifier: MIT
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r"^(\d\.\d\d)  (.+?)  +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)")
PANELS = (("GPUs asked for and given, %", 1), ("requests for 8 GPUs accepted, %", 2))
SCRIPT = """set terminal svg size 900,360 font "sans,13" background "white"
set output "%(out)s"
set multiplot layout 1,2
set grid
set yrange [%(low)d:100]
set xlabel "GPUs asked for, %% of those there are"
set key bottom left
"""


def rows():
    done = subprocess.run([os.path.join(ROOT, "build", "tests", "manager", "sim_pool")], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sides = {}
    for line in done.stdout.splitlines():
        found = ROW.match(line)
        if found:
            load, side, *values = found.groups()
            sides.setdefault(side, []).append([100 * float(load)] + [float(v) for v in values])
    return sides


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sides = rows()
    low = min(row[3] for table in sides.values() for row in table) // 10 * 10
    with tempfile.TemporaryDirectory() as folder:
        script = SCRIPT % {"out": os.path.abspath(sys.argv[1]), "low": low}
        for number, (side, table) in enumerate(sides.items()):
            with open(os.path.join(folder, str(number)), "w") as file:
                file.writelines("%s\n" % " ".join(map(str, row)) for row in table)
        for label, column in PANELS:
            script += 'set ylabel "%s"\nplot %s\n' % (label, ", ".join(
                '"%s/%d" using 1:%d with linespoints linewidth 2 title "%s"'
                % (folder, number, column + 2, side) for number, side in enumerate(sides)))
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
    with open(sys.argv[1], "r+") as file:
        lines = [line.rstrip() + "\n" for line in file]
        file.seek(0)
        file.writelines(lines)
        file.truncate()


if __name__ == "__main__":
    main()
