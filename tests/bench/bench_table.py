"""The tables of what was measured, as spec/performance.md and README.md have them: between two
markers, made from tests/data/bench.json by `tests/bench/bench.py --write`.  The table of aims has
tests/data/bench_before.json beside it, the figures of before most of what is aimed at was begun."""
# SPDX-License-Identifier: MIT
import json
import os
import re

import bench_aims

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data", "bench.json")
BEFORE = os.path.join(ROOT, "tests", "data", "bench_before.json")
FULL, SHORT = os.path.join(ROOT, "spec", "performance.md"), os.path.join(ROOT, "README.md")
# The markers of a table, by its name.
BEGIN, END = "<!-- %s: made by tests/bench/bench.py --write -->", "<!-- %s: end -->"

GROWTH = "![Cost of a read as slots, hosts and cores grow](../tests/data/growth.svg)"

# What the short table has, of what is there.
CHOSEN = ("codec 256 B", "read 64 B, loopback, p50",
          "write stream 256 B, lossless beside messages",
          "read stream 256 B, 140 tags beside messages", "fio depth 32")


def figure(value):
    """Three digits, and no exponent."""
    if value is None:
        return ""
    return "%.0f" % value if abs(value) >= 1000 else "%.3g" % value


def ratio(row):
    return "" if row["ratio"] is None else "%.2f" % row["ratio"]


def aims(row):
    words = []
    for aim in row["aims"]:
        limits = [sign + "%g" % aim[key] for key, sign in (("least", ">= "), ("most", "<= "))
                  if aim[key] is not None]
        words.append("%s %s: %s" % (aim["of"], " and ".join(limits),
                                    "met" if aim["met"] else "**missed**"))
    return ", ".join(words)


def where(result):
    return "Kernel %s, %s, %d cores; %d figures in %.0f s." % (
        result["kernel"], result["machine"], result["cores"], len(result["rows"]),
        result["seconds"])


def full(result):
    lines = [where(result), "", "| figure | median | unit | baseline | ratio | spread | aim |",
             "|---|---|---|---|---|---|---|"]
    lines += ["| %s | %s | %s | %s | %s | %.0f %% | %s |" % (
        row["name"], figure(row["value"]), row["unit"], figure(row["baseline"]), ratio(row),
        100 * row["spread"], aims(row)) for row in result["rows"]]
    if any(row["part"] == "growth" for row in result["rows"]):
        lines += ["", GROWTH]
    for what, parts in (("Not measured", result["skipped"]), ("**Broken**", result["broken"])):
        lines += ["", "%s: %s." % (what, "; ".join("%s (%s)" % one for one in parts.items()))
                  ] if parts else []
    return "\n".join(lines)


def short(result):
    rows = {row["name"]: row for row in result["rows"]}
    lines = ["| figure | value | baseline | ratio | the baseline is |", "|---|---|---|---|---|"]
    lines += ["| %s | %s %s | %s | %s | %s |" % (
        row["name"], figure(row["value"]), row["unit"], figure(row["baseline"]), ratio(row),
        row["baseline_name"] or "") for row in (rows[n] for n in CHOSEN if n in rows)]
    return "\n".join(lines)


def all_aims(result):
    return "\n".join(bench_aims.table(result, json.loads(read(BEFORE))))


# Each table: its file, its name there, what makes it.
TABLES = ((FULL, "bench", full), (FULL, "aims", all_aims), (SHORT, "bench", short))


def between(text, name):
    """(what stands between the markers, the text with room for another), or None without them."""
    found = re.fullmatch("(.*%s\n)(.*)(\n%s.*)" % (re.escape(BEGIN % name), re.escape(END % name)),
                         text, re.S)
    return found and (found.group(2), lambda table: found.group(1) + table + found.group(3))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def stale(result):
    """The tables that are not those of the figures."""
    wrong = []
    for path, name, make in TABLES:
        now = between(read(path), name)
        if not now or now[0] != make(result):
            wrong.append("%s, %s" % (os.path.relpath(path, ROOT), name))
    return wrong


def dump(result):
    """As JSON, a row a line."""
    head = {key: value for key, value in result.items() if key != "rows"}
    rows = ",\n".join(" " + json.dumps(row) for row in result["rows"])
    return json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n' + rows + "\n]}\n"


def write(result):
    with open(DATA, "w", encoding="utf-8") as file:
        file.write(dump(result))
    for path, name, make in TABLES:
        now = between(read(path), name)
        if not now:
            raise ValueError("%s has no markers of %s" % (os.path.relpath(path, ROOT), name))
        with open(path, "w", encoding="utf-8") as file:
            file.write(now[1](make(result)))
