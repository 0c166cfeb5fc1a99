#!/usr/bin/env python3
"""Draws what `dxpu model --sweep` prints, as SVG and PNG (needs gnuplot and build/dxpu):

    tests/bench/model_plot.py DIR [OPTION...]

Without options: the paper's workloads beside its figures, the
README's pictures.  With options of `dxpu model` that give a system and a workload: model-yours."""
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
TERMINALS = (("svg", 'svg size 900,360 font "sans,13" background "white"'),
             ("png", 'png size 1200,480 font "sans,13"'))
WORKLOADS = (("ResNet-50, batch size 32", ("--kernel", "56")),
             ("ResNet-50, batch size 64", ("--kernel", "102.3")),
             ("ResNet-50, batch size 128", ("--kernel", "193")))
# of ResNet-50, batch size 64: Figure 4, then what was measured (Tables 4 and 9)
POINTS = 'points pointsize 1.2 pointtype %d linecolor "black"'
PAPER = (("the paper's model", ((8, 90), (19, 80), (4.9, 92.56), (6.8, 91.40)), 6),
         ("measured", ((4.9, 91.50), (6.8, 89.56), (6.8, 92.7)), 7))


def sweep(*words):
    done = subprocess.run([BIN, "model", "--sweep", *words], check=True, stdout=subprocess.PIPE,
                          text=True)
    series = {}
    for line in done.stdout.splitlines():
        name, x, y = line.rsplit(",", 2)
        series.setdefault(name, []).append((float(x), float(y)))
    return series


class Page:
    """The commands of one picture, and the files with its points."""

    def __init__(self, folder):
        self.folder, self.text, self.files = folder, "", 0

    def curve(self, points, title, style="lines linewidth 2"):
        self.files += 1
        path = os.path.join(self.folder, str(self.files))
        with open(path, "w") as file:
            file.writelines("%g %g\n" % point for point in points)
        return '"%s" with %s title "%s"' % (path, style, title)

    def panel(self, x, y, curves, more=""):
        self.text += 'set xlabel "%s"\nset ylabel "%s"\n%splot %s\n' % (x, y, more,
                                                                    ", ".join(curves))

    def draw(self, out):
        for ending, terminal in TERMINALS:
            script = 'set terminal %s\nset output "%s.%s"\nset multiplot layout 1,2\nset grid\n%s' \
                % (terminal, out, ending, self.text)
            subprocess.run(["gnuplot"], input=script, text=True, check=True)
        with open(out + ".svg", encoding="utf-8") as file:  # gnuplot leaves blanks at line ends
            lines = [line.rstrip() + "\n" for line in file]
        with open(out + ".svg", "w", encoding="utf-8") as file:
            file.writelines(lines)


def performance(folder, out):
    page = Page(folder)
    curves = [page.curve(sweep(*words)["performance"], title) for title, words in WORKLOADS]
    curves += [page.curve(points, title, POINTS % kind)
               for title, points, kind in PAPER]
    page.panel("round trip of a read, us", "performance, % of native", curves,
               "set yrange [40:100]\nset xrange [0:25]\nset key bottom left\n"
               "set arrow from 8,66 to 8,100 nohead linecolor \"gray\"\n"
               "set arrow from 19,66 to 19,100 nohead linecolor \"gray\"\n")
    shares = sweep("--kernel", "8.1", "--launch", "13.8")["performance"]
    naive = sweep("--kernel", "8.1", "--waits", "1")["performance"]
    curves = [page.curve(shares, "launches every 13.8 us"),
              page.curve(naive, "durations and round trips added up"),
              page.curve([(6.8, 83.64)], "measured", POINTS % 7)]
    page.panel("round trip of a read, us", "kernels of 8.1 us, % of native", curves,
               "unset arrow\nset yrange [0:100]\n")
    page.draw(out)


def reads(folder, out):
    page = Page(folder)
    series = sweep()
    for kind, x, more in (
            ("tags", "tags", "set yrange [0:14]\nset xrange [0:768]\nset key top left\n"),
            ("round trip", "round trip of a read, us",
             "set yrange [0:14]\nset xrange [0:20]\n"
             "set key top right\n")):
        curves = [page.curve(points, name.split(": ")[1]) for name, points in series.items()
                  if name.startswith(kind + ":")]
        measured = ([(140, 2.7), (140, 3.9)] if kind == "tags" else
                    [(4.9, 3.9), (6.8, 2.7)])
        curves.append(page.curve(measured, "measured", POINTS % 7))
        page.panel(x, "copies to the device, GB/s", curves, more)
    page.draw(out)


def yours(folder, out, words):
    page = Page(folder)
    series = sweep(*words)
    page.panel("round trip of a read, us", "performance, % of native",
               [page.curve(series["performance"], "yours")],
               "set yrange [0:100]\nset key bottom left\n")
    page.panel("tags", "copies to the device, GB/s",
               [page.curve(points, name.split(": ")[1]) for name, points in series.items()
                if name.startswith("tags:")], "set yrange [0:*]\nset key top left\n")
    page.draw(out)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory() as folder:
            yours(folder, os.path.join(os.path.abspath(sys.argv[1]), "model-yours"), sys.argv[2:])
        return
    with tempfile.TemporaryDirectory() as folder:
        performance(folder, os.path.join(os.path.abspath(sys.argv[1]), "model-performance"))
    with tempfile.TemporaryDirectory() as folder:
        reads(folder, os.path.join(os.path.abspath(sys.argv[1]), "model-reads"))


if __name__ == "__main__":
    main()
