#!/usr/bin/env python3
"""The tables of figures in README.md and spec/performance.md are those of tests/data/bench.json,
and what bounds an aim has a paragraph."""
# SPDX-License-Identifier: MIT
import copy
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
import bench_aims  # noqa: E402
import bench_table  # noqa: E402

failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems:
        print("  " + problem)


def lacking(text):
    """The paragraphs of "What bounds what" that an aim names and that are not there."""
    return sorted({where for *_, where in bench_aims.AIMS
                   if not re.search(r"^- \*\*%s[.*]" % re.escape(where), text, re.M)})


def main():
    with open(bench_table.DATA, encoding="utf-8") as file:
        text = file.read()
    told = json.loads(text)
    check("tables_of_figures", ["%s: run tests/bench/bench.py --write --json tests/data/bench.json"
                                % name for name in bench_table.stale(told)])
    check("data_is_as_written", [] if bench_table.dump(told) == text else [bench_table.DATA])
    other = copy.deepcopy(told)
    for row in other["rows"]:
        row["value"] *= 1.5
    other["seconds"] += 1
    check("control_other_figures", [] if len(bench_table.stale(other)) == len(bench_table.TABLES)
          else ["other figures were not seen"])
    text = bench_table.read(bench_table.FULL)
    check("aims_have_a_paragraph", lacking(text))
    check("control_no_paragraph", [] if lacking(text.replace("- **Codec.**", "- **Codecs.**"))
          == ["Codec"] else ["a lacking paragraph was not seen"])
    short = bench_table.short(told).count("\n") - 1
    check("short_table_is_short", [] if short == 5 else ["%d rows" % short])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
