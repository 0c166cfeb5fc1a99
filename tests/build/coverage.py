#!/usr/bin/env python3
"""tests/build/coverage.py FILE DIR...: lines and branches of FILE that the counts gcov left
under the directories cover, merged over all programs and option sets, and the lines that miss some.
Fails when one is missed; the asserts of FILE must be off, for nothing can take their other
branch."""
import glob
import json
import os
import subprocess
import sys


def counts(folder, wanted):
    """(line, count, branch counts) for every line of the file in every object under a directory."""
    for data in glob.glob(os.path.join(folder, "**", "*.gcda"), recursive=True):
        done = subprocess.run(["gcov", "--json-format", "--stdout", "-b", os.path.abspath(data)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                              cwd=folder)
        for document in done.stdout.splitlines():
            for file in json.loads(document).get("files", []):
                if os.path.basename(file["file"]) == wanted:
                    for line in file["lines"]:
                        yield (line["line_number"], line["count"],
                               [b["count"] for b in line["branches"] if not b.get("throw")])


def main():
    path, folders = sys.argv[1], sys.argv[2:]
    lines, branches = {}, {}
    for folder in folders:
        for number, count, taken in counts(folder, os.path.basename(path)):
            lines[number] = lines.get(number, 0) + count
            for index, times in enumerate(taken):
                key = number, index
                branches[key] = branches.get(key, 0) + times
    if not lines:
        print("no counts: run the tests first")
        return 1
    with open(path, encoding="utf-8") as file:
        source = file.read().split("\n")
    for number in sorted(lines):
        missed = [i for (n, i), times in branches.items() if n == number and not times]
        if not lines[number]:
            print("%s:%d: never run: %s" % (path, number, source[number - 1].strip()))
        elif missed:
            print("%s:%d: %d of %d branches not taken: %s"
                  % (path, number, len(missed), sum(n == number for n, _ in branches),
                     source[number - 1].strip()))
    failed = 0
    for what, table in (("lines", lines), ("branches", branches)):
        hit = sum(1 for times in table.values() if times)
        share = 100.0 * hit / max(1, len(table))
        print("%s: %s: %d of %d, %.2f %%%s" % (
            path, what, hit, len(table), share,
            ", %d missing" % (len(table) - hit) if hit < len(table) else ""))
        failed |= hit < len(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
