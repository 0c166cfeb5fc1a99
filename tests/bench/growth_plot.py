#!/usr/bin/env python3
"""Draws how the cost of a read grows, with gnuplot: tests/bench/growth_plot.py BENCH.json OUT.svg"""
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import tempfile

import bench_plot

# Pattern of the rows, what is counted, whose time it is.
PANELS = ((r"growth, host, (\d+) slots busy", "busy slots of a host", "host"),
          (r"growth, box of 512 slots, (\d+) busy", "busy slots of a box with 512", "box"),
          (r"growth, hosts at a box, (\d+)", "hosts at a box", "box"),
          (r"growth, cores of a box with 8 hosts, (\d+)", "cores of a box with 8 hosts", "box"))
SCRIPT = """set terminal svg size 900,640 font "sans,13" background "white"
set output "%s"
set multiplot layout 2,2
set grid
set logscale x 2
set yrange [0:*]
set ylabel "processor time of a read, ns"
unset key
"""
PANEL = """set xlabel "%s"
set title "the %s's"
plot "%s" using 1:2 with linespoints linewidth 2 pointtype 7
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bench, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        drawn = os.path.join(folder, "out")
        script = SCRIPT % drawn
        for number, (pattern, label, whose) in enumerate(PANELS):
            path = os.path.join(folder, str(number))
            with open(path, "w") as file:
                file.writelines("%s %g\n" % (n, value)
                                for n, value, _ in bench_plot.rows(bench, pattern))
            script += PANEL % (label, whose, path)
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
        bench_plot.keep(drawn, out)


if __name__ == "__main__":
    main()
