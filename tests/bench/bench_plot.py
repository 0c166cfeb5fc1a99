#!/usr/bin/env python3
"""Draws what `make bench` measured, with gnuplot: tests/bench/bench_plot.py BENCH.json OUT.svg"""
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


def rows(path, pattern):
    """[what the pattern's group holds, median, baseline] of each row that it matches."""
    with open(path) as file:
        for row in json.load(file)["rows"]:
            found = re.fullmatch(pattern, row["name"])
            if found:
                yield found.group(1), row["value"], row["baseline"]


def keep(drawn, out):
    """What gnuplot drew, without the blanks at the ends of its lines."""
    with open(drawn) as lines, open(out, "w") as file:
        file.writelines(line.rstrip() + "\n" for line in lines)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bench, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        names = {"out": os.path.join(folder, "out")}
        for name, pattern in (("codec", r"codec (\d+) B"), ("trips", r"read 64 B, (\w+), p50")):
            names[name] = os.path.join(folder, name)
            with open(names[name], "w") as file:
                file.writelines("%s %g %g\n" % (what.replace("_", "-"), value, baseline)
                                for what, value, baseline in rows(bench, pattern) if what != "0")
        subprocess.run(["gnuplot"], input=SCRIPT % names, text=True, check=True)
        keep(names["out"], out)


if __name__ == "__main__":
    main()
