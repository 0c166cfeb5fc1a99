#!/usr/bin/env python3
"""Rule tags (W-6, T-3, ...) join the specification, the code and the tests.

A rule is defined in spec/*.md by its tag at the head of a line, a list item or a table row.  Every
tag that code or tests cite must be defined, once; every rule with a MUST must be cited by a test,
by its name (test_w6_...) or as W-6 in a file of tests/.

    tests/spec.py            check
    tests/spec.py --list     print each rule with what cites it
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAG = re.compile(r"\b([WTRFD])-(\d+)\b")
DEFINED = re.compile(r"^\s*(?:[-*]\s+|\|\s*|#+\s+)?(?:\*\*)?([WTRFD]-\d+)(?:\*\*)?(?=[\s.:|,]|$)")
failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems:
        print("  " + problem)


def read(pattern):
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, pattern), recursive=True)):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found[os.path.relpath(path, ROOT)] = file.read()
    return found


def rules(texts):
    """({tag: text of the rule}, [tags defined twice])."""
    found, twice = {}, []
    for name, text in texts.items():
        tag = None
        fenced = False
        for line in text.splitlines():
            fenced ^= line.startswith("```")
            head = None if fenced else DEFINED.match(line)
            if head:
                tag = head.group(1)
                if tag in found:
                    twice.append("%s: %s" % (name, tag))
                found[tag] = line
            elif line.startswith("#"):
                tag = None
            elif tag and not fenced:
                found[tag] += "\n" + line
    return found, twice


def cited(texts, names=False):
    """{tag: the files that cite it}; with names, also by test names such as test_w6_short."""
    found = {}
    for name, text in texts.items():
        tags = {"%s-%s" % m for m in TAG.findall(text)}
        if names:
            tags |= {"%s-%s" % (letter.upper(), number) for letter, number
                     in re.findall(r"\btest_([wtrfd])(\d+)_", text)}
        for tag in tags:
            found.setdefault(tag, []).append(name)
    return found


def missing(defined, tests, code):
    must = [t for t, text in defined.items() if re.search(r"\bMUST\b", text)]
    return (["%s has a MUST and no test" % t for t in must if t not in tests],
            ["%s, cited in %s, is no rule" % (t, ", ".join(where))
             for t, where in sorted({**code, **tests}.items()) if t not in defined])


def main():
    defined, twice = rules(read("spec/*.md"))
    tests = cited({n: t for pattern in ("tests/*", "tests/reader/**", "fuzz/*")
                   for n, t in read(pattern).items() if n != "tests/spec.py"}, names=True)
    code = cited({n: t for pattern in ("dxpu.h", "bindings/**/*.[ch]", "examples/**/*.[ch]",
                                       "spec/vectors/*")
                  for n, t in read(pattern).items()})
    if sys.argv[1:] == ["--list"]:
        for tag in sorted(defined, key=lambda t: (t[0], int(t[2:]))):
            print("%-6s code %d  tests %s" % (tag, len(code.get(tag, [])),
                                              ", ".join(tests.get(tag, [])) or "-"))
        return 0
    untested, unknown = missing(defined, tests, code)
    check("spec_has_rules", [] if defined else ["spec/*.md defines no rule"])
    check("spec_tags_unique", twice)
    check("spec_musts_tested", untested)
    check("spec_tags_exist", unknown)
    table = rules({"x": "W-1 MUST a\n- W-2 b\n| W-3 | MUST |\n**T-4** c,\n  MUST\n\n"
                        "Text W-5.\n"})[0]
    check("control_spec_parser", [] if sorted(table) == ["T-4", "W-1", "W-2", "W-3"] else
          [repr(table)])
    seen = missing(table, {"W-1": ["t"], "R-9": ["t"]}, {})
    check("control_spec_missing", [] if [len(s) for s in seen] == [2, 1] else [repr(seen)])
    twin = rules({"x": "W-1 a\n", "y": "W-1 b\n"})[1]
    check("control_spec_twice", [] if twin == ["y: W-1"] else [repr(twin)])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
