#!/usr/bin/env python3
"""Draws what guest_trace.py recorded: the threads of one read of a guest, when each runs, waits for
a processor and is woken by which, without the fabric and through it.

    tests/bench/guest_plot.py FILE.json OUT.svg
"""
# SPDX-License-Identifier: MIT
import json
import sys

LEFT, RIGHT, WIDTH, LANE, TOP = 130, 20, 1000, 30, 50
RUNS, WAITS, WAKES, LATER = "#4878a8", "#e8b060", "#b03030", "#b8c8d8"
TITLES = {"direct": "attached directly", "fabric": "through the fabric",
          "pushed": "through the fabric, its entry pushed"}


class Page:
    def __init__(self):
        self.items, self.at = [], 0

    def add(self, text, *values):
        self.items.append(text % values)

    def text(self, x, y, words, anchor="start", more=""):
        self.add('<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>', x, y, anchor, more, words)

    def bar(self, x, y, width, height, color):
        self.add('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>', x, y,
                 max(width, 0.6), height, color)

    def line(self, x1, y1, x2, y2, color, more=""):
        self.add('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>', x1, y1, x2, y2,
                 color, more)

    def write(self, path):
        with open(path, "w") as file:
            file.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
                       'font-family="sans-serif" font-size="12">\n'
                       '<defs><marker id="tip" markerWidth="7" markerHeight="6" refX="6" refY="3" '
                       'orient="auto"><path d="M0,0 L7,3 L0,6 z" fill="%s"/></marker></defs>\n'
                       '<rect width="100%%" height="100%%" fill="white"/>\n' %
                       (WIDTH, self.at, WAKES))
            file.writelines(item + "\n" for item in self.items)
            file.write("</svg>\n")


def waits(runs, wakes, end):
    """[thread, from, to] of those that were woken and had no processor yet."""
    found = []
    for wake in wakes:
        starts = [r["at"] for r in runs if r["thread"] == wake["thread"] and r["at"] >= wake["at"]]
        on = any(r["thread"] == wake["thread"] and r["at"] <= wake["at"] < r["end"] for r in runs)
        if not on:
            found.append((wake["thread"], wake["at"], min(starts, default=end)))
    return found


def panel(page, one, title, scale):
    top, lanes = page.at + TOP, one["threads"]
    where = {name: top + n * LANE for n, name in enumerate(lanes)}
    page.text(LEFT, page.at + 22, "A read of 4 KB %s: %.0f us from the doorbell to the driver's "
              "next, the quickest of %d" % (title, one["answered"], one["requests"]),
              more=' font-weight="bold"')
    for name, y in where.items():
        page.text(LEFT - 8, y + 14, name, "end")
        page.line(LEFT, y + 10, LEFT + one["end"] * scale, y + 10, "#dddddd")
    for thread, begin, end in waits(one["runs"], one["wakes"], one["end"]):
        if thread in where:
            page.bar(LEFT + begin * scale, where[thread] + 6, (end - begin) * scale, 8, WAITS)
    for run in one["runs"]:
        if run["thread"] not in where:
            continue
        inside = min(run["end"], one["answered"]) - run["at"]
        y = where[run["thread"]]
        if inside > 0:
            page.bar(LEFT + run["at"] * scale, y, inside * scale, 20, RUNS)
        if run["end"] > one["answered"]:
            begin = max(run["at"], one["answered"])
            page.bar(LEFT + begin * scale, y, (run["end"] - begin) * scale, 20, LATER)
    for wake in one["wakes"]:
        if wake["by"] in where and wake["thread"] in where and wake["by"] != wake["thread"]:
            x, down = LEFT + wake["at"] * scale, where[wake["by"]] < where[wake["thread"]]
            page.line(x, where[wake["by"]] + (20 if down else 0), x,
                      where[wake["thread"]] + (0 if down else 20), WAKES,
                      ' marker-end="url(#tip)"')
    bottom = top + len(lanes) * LANE
    page.line(LEFT + one["answered"] * scale, top - 6, LEFT + one["answered"] * scale, bottom,
              "black", ' stroke-dasharray="4,3"')
    for at in range(0, int(one["end"]) + 1, 50):
        page.line(LEFT + at * scale, bottom, LEFT + at * scale, bottom + 4, "black")
        if at % 100 == 0:
            page.text(LEFT + at * scale, bottom + 16, "%d us" % at, "middle")
    page.at = bottom + 24


def legend(page):
    y, x = page.at + 14, LEFT
    for color, words in ((RUNS, "runs"), (WAITS, "woken, has no processor yet"),
                         (LATER, "runs, the driver has its answer"), (WAKES, "wakes")):
        page.bar(x, y - 9, 16, 9, color)
        page.text(x + 22, y, words)
        x += 60 + 7 * len(words)
    page.at += 26


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        kept = json.load(file)
    page = Page()
    scale = (WIDTH - LEFT - RIGHT) / max(one["end"] for one in kept.values())
    for place, one in kept.items():
        panel(page, one, TITLES[place], scale)
    legend(page)
    page.write(sys.argv[2])


if __name__ == "__main__":
    main()
