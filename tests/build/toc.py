#!/usr/bin/env python3
"""CONTENTS of dxpu.h against its section banners: every section is listed and there, in order; an
implementation section stands for a section of the same number and calls no public function that a
later one defines."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems:
        print("  " + problem)


def contents(text):
    """{number: name} of the two columns under CONTENTS."""
    block = re.search(r"\n   CONTENTS.*?\n(.*?)\*/", text, re.S)
    found = {}
    for line in (block.group(1) if block else "").splitlines():
        for number, name in re.findall(r"(\d+)  (\S.*?)(?=\s{3,}|\s*$)", line):
            found[int(number)] = name
    return found


def banners(text):
    """[(number, twin, name, line)] of the section banners."""
    return [(int(m.group(1)), bool(m.group(2)), m.group(3).strip(),
             text.count("\n", 0, m.start()) + 1)
            for m in re.finditer(r"(?m)^/\* ==== (\d+)('?)  (.*?)(?: =.*)?$", text)]


def compare(text):
    """Problems of one header."""
    listed, found = contents(text), banners(text)
    public = [(n, name) for n, twin, name, _ in found if not twin]
    problems = []
    if not listed:
        problems.append("no CONTENTS")
    for number, name in listed.items():
        if (number, name) not in public:
            problems.append("CONTENTS lists %d  %s, which no banner has" % (number, name))
    for number, name in public:
        if listed.get(number) != name:
            problems.append("section %d  %s is not in CONTENTS" % (number, name))
    for kind in (False, True):
        numbers = [n for n, twin, _, _ in found if twin == kind]
        if numbers != sorted(set(numbers)):
            problems.append("out of order: %s" % numbers)
    for number, twin, name, _ in found:
        if twin and number not in listed:
            problems.append("%d'  %s has no section %d" % (number, name, number))
    return problems


def upward_calls(text):
    """Calls from an implementation section to a public function of a later one."""
    code = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
    lines = code.split("\n")
    twins = [(n, line) for n, twin, _, line in banners(text) if twin]
    bounds = [(n, start, end) for (n, start), (_, end)
              in zip(twins, twins[1:] + [(0, len(lines) + 1)])]
    home = {}
    bodies = {n: "\n".join(lines[start - 1:end - 1]) for n, start, end in bounds}
    for number, body in bodies.items():
        for name in re.findall(r"\b(dxpu_\w+)\([^;{}]*\)\s*\n\{", body):
            home[name] = number
    return ["section %d' calls %s of section %d'" % (number, name, home[name])
            for number, body in bodies.items()
            for name in sorted(set(re.findall(r"\b(dxpu_\w+)\(", body)))
            if home.get(name, 0) > number]


def main():
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        text = file.read()
    check("toc_contents", compare(text))
    check("toc_calls_downwards", upward_calls(text))
    wrong = text.replace("/* ==== 9  Classifier", "/* ==== 9  Sorter", 1)
    check("control_toc_name", [] if compare(wrong) else ["a renamed section was not seen"])
    first, second = "/* ==== 7'  ", "/* ==== 8'  "
    swapped = text.replace(first, "\0").replace(second, first).replace("\0", second)
    check("control_toc_order", [] if compare(swapped) else ["swapped sections were not seen"])
    calls = text.replace("/* ==== 7'  ", "int f(void)\n{\n    return dxpu_crc32(0, 0, 0);\n}\n"
                         "/* ==== 7'  ", 1)
    check("control_toc_calls", [] if upward_calls(calls) else ["an upward call was not seen"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
