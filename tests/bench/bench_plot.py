#!/usr/bin/env python3
"""Draws what `make bench` measured, with gnuplot: bench.svg, and growth.svg with how the processor
time of a read grows.

    tests/bench/bench_plot.py BENCH.json DIRECTORY
"""
# SPDX-License-Identifier: MIT
import json
import os
import re
import subprocess
import sys
import tempfile

SCRIPT = """set terminal svg size 900,360 font "sans,13" background "white"
set output "%(out)s"
set multiplot layout 1,2
set grid y
set key top left
set yrange [0:*]
set logscale xy
set yrange [10:*]
set xlabel "payload, bytes"
set ylabel "one TLP into and out of a frame, ns"
plot "%(codec)s" using 1:2 with linespoints linewidth 2 title "dxpu", \\
     "%(codec)s" using 1:3 with linespoints linewidth 2 title "its copies and CRCs alone"
unset logscale
set yrange [0:*]
set xlabel "read of 64 bytes, proxies busy polling"
set ylabel "round trip, median, us"
set offsets 0, 0, 3, 0
set style data histograms
set style fill solid 0.6
set xtics nomirror
plot "%(trips)s" using 2:xtic(1) title "dxpu-host and dxpu-box", \\
     "%(trips)s" using 3 title "plain datagrams"
"""
# Pattern of the rows, what is counted, whose time it is.
PANELS = ((r"growth, host, (\d+) slots busy", "busy slots of a host", "host"),
          (r"growth, box of 512 leased slots, (\d+) busy", "busy slots of 512 leased ones", "box"),
          (r"growth, hosts at a box, (\d+)", "hosts at a box", "box"),
          (r"growth, cores of a box with 8 hosts, (\d+)", "cores of a box with 8 hosts", "box"))
GROWTH = """set terminal svg size 900,640 font "sans,13" background "white"
set output "%s"
set multiplot layout 2,2
set grid
set logscale x 2
set logscale y
set yrange [100:*]
set ylabel "processor time of a read, ns"
unset key
"""
PANEL = """set xlabel "%s"
set title "at the %s"
plot "%s" using 1:2 with linespoints linewidth 2 pointtype 7
"""


def rows(path, pattern):
    """[what the pattern's group holds, median, baseline] of each row that it matches."""
    with open(path) as file:
        named = [(re.fullmatch(pattern, row["name"]), row) for row in json.load(file)["rows"]]
    found = [(name.group(1), row["value"], row["baseline"]) for name, row in named if name]
    if not found:
        sys.exit("bench_plot.py: %s has no row '%s': measure it by `make bench`" % (path, pattern))
    return found


def floors(bench, directory):
    names = {"out": os.path.join(directory, "out")}
    for name, pattern in (("codec", r"codec (\d+) B"), ("trips", r"read 64 B, (\w+), p50")):
        names[name] = os.path.join(directory, name)
        with open(names[name], "w") as file:
            file.writelines("%s %g %g\n" % (what.replace("_", "-"), value, baseline)
                            for what, value, baseline in rows(bench, pattern) if what != "0")
    return SCRIPT % names


def growth(bench, directory):
    script = GROWTH % os.path.join(directory, "out")
    for number, (pattern, label, whose) in enumerate(PANELS):
        path = os.path.join(directory, str(number))
        with open(path, "w") as file:
            file.writelines("%s %g\n" % row[:2] for row in rows(bench, pattern))
        script += PANEL % (label, whose, path)
    return script


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bench, out = sys.argv[1:]
    for name, make in (("bench.svg", floors), ("growth.svg", growth)):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run(["gnuplot"], input=make(bench, directory), text=True, check=True)
            with open(os.path.join(directory, "out")) as drawn, \
                    open(os.path.join(out, name), "w") as file:
                file.writelines(line.rstrip() + "\n" for line in drawn)


if __name__ == "__main__":
    main()
