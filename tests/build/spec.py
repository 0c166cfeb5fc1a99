#!/usr/bin/env python3
"""Rule tags (W-6, T-3, ...) join the specification, the code and the tests.

A rule is defined by its tag at the head of a paragraph (`W-9. The trailer ...`), of a list item or
of a table row, once, in the file of its letter: W wire.md, T tlp.md, R route.md, F flow.md, D
deliver.md, P paths.md, V vswitch.md, M control.md, S security.md, U push.md, B p2p.md,
N foreign.md.  A tag at the head of a later cell defines too, when nothing else does.
Anywhere else a tag is a citation.  Every tag that code or tests cite must be defined; every rule
with a MUST must be cited by a test in C, or in a script that runs what was built from C, by its
name (test_w6_...) or as W-6.  Tests of other things (the reader in Python) do not count: they test
no dxpu.h.

The proofs, too: spec/assurance.md has the row that tests/proof/prove.py --list prints of each.
And events: dxpu-manager(1) has each type of CORE_EVENTS.

    tests/build/spec.py            check; rules without a test are printed, as a skipped test
    tests/build/spec.py --strict   the same, and they fail
    tests/build/spec.py --list     print each rule with what cites it
"""
import argparse
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAG = re.compile(r"\b([WTRFDPVMSUBN])-(\d+)\b")
HOME = {"wire.md": "W", "tlp.md": "T", "route.md": "R", "flow.md": "F", "deliver.md": "D",
        "paths.md": "P", "vswitch.md": "V", "control.md": "M", "security.md": "S",
        "push.md": "U", "p2p.md": "B", "foreign.md": "N"}
PARAGRAPH = re.compile(r"(?:[-*] )?((?:\*{0,2}[WTRFDPVMSUBN]-\d+\*{0,2}(?:, | and )?)+)[.:]")
CELL = re.compile(r"\*{0,2}([WTRFDPVMSUBN]-\d+)\*{0,2}(?=[ .:]|$)")
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


def heads(line):
    """[(tag, text, sure)] of the rules a line defines; not sure: in a later cell of a table row."""
    if line.startswith("|"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        tags = [(CELL.match(cell), cell) for cell in cells]
        if tags[0][0]:
            return [(tags[0][0].group(1), line, True)]
        return [(tag.group(1), cell, False) for tag, cell in tags if tag and cell != tag.group(0)]
    head = PARAGRAPH.match(line)
    return [("%s-%s" % tag, line, True) for tag in TAG.findall(head.group(1))] if head else []


def rules(texts):
    """({tag: text of the rule}, [tags defined twice])."""
    sure, later, twice = {}, {}, []
    for name, text in texts.items():
        letter = HOME.get(os.path.basename(name))
        tags, fenced = [], False
        for line in text.splitlines():
            fenced ^= line.startswith("```")
            new = [] if fenced else [h for h in heads(line) if h[0][0] == letter]
            if new or not line.strip() or line.startswith(("#", "|", "```")):
                tags = []
            for tag, words, certain in new:
                if not certain:
                    later[tag] = later.get(tag, "") + words + "\n"
                    continue
                if tag in sure:
                    twice.append("%s: %s" % (name, tag))
                sure[tag] = sure.get(tag, "") + words + "\n"
                tags.append(tag)
            for tag in tags if not new and not fenced else []:
                sure[tag] += line + "\n"
    return {**later, **sure}, twice


def cited(texts, names=False):
    """{tag: the files that cite it}; with names, also by test names such as test_w6_short."""
    found = {}
    for name, text in texts.items():
        tags = {"%s-%s" % m for m in TAG.findall(text)}
        if names:
            tags |= {"%s-%s" % (letter.upper(), number)
                     for rules in re.findall(r"\b(?:test_|def )((?:[wtrfdpvmsubn]\d+_)+)", text)
                     for letter, number in re.findall(r"([a-z])(\d+)_", rules)}
        for tag in tags:
            found.setdefault(tag, []).append(name)
    return found


def of_c(path):
    """A file whose tests run C: its own, or that of a program under build/."""
    return path.endswith((".c", ".h")) or os.path.basename(path).startswith(("cli_", "net_"))


def missing(defined, tests, code):
    must = [t for t, text in defined.items() if re.search(r"\bMUST\b", text)]
    return (["%s has a MUST and no test" % t for t in must if not any(map(of_c, tests.get(t, ())))],
            ["%s, cited in %s, is no rule" % (t, ", ".join(where))
             for t, where in sorted({**code, **tests}.items()) if t not in defined])


def spec_messages(text):
    """{code: (name, routing, data, down, up)} of the table of R-22, its short rows written out."""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not (line.startswith("| 0x") and len(cells) == 7):
            continue
        ends = [int(c, 16) for c in re.findall("0x[0-9a-f]+", cells[0])]
        codes = range(ends[0], ends[1] + 1) if ".." in cells[0] else ends
        first, *rest = re.split(r", |(?=\.\.)", cells[1])
        names = [first] + [first.rsplit("_", 1)[0] + r for r in rest if r.startswith("_")]
        if rest and rest[0].startswith(".."):
            names = [first[:-1] + chr(c) for c in range(ord(first[-1]), ord(rest[0][-1]) + 1)]
        for code, name in zip(codes, names):
            table[code] = (name, *cells[2:6])
        if len(codes) != len(names):
            table[codes[0]] = (cells[1],)
    return table


def code_messages(text):
    """The same of DXPU_MESSAGES; a vendor message goes by its routing (R-24)."""
    routing = {"BY_ID": "id", "TO_ROOT": "to-root", "BROADCAST": "broadcast", "LOCAL": "local",
               "GATHERED": "gathered"}
    table = {}
    for code, name, way, data, down, up in re.findall(
            r'X\((0x[0-9a-f]+), "(\w+)", (\w+), (\d), (\w+), (\w+)\)', text):
        row = (name, routing.get(way, way), ("no", "yes", "either")[int(data)], down.lower(),
               up.lower())
        if name.startswith("Vendor_") and row[1:] == ("id", "either", "forward", "forward"):
            row = (name, "R-24", "either", "R-24", "R-24")
        table[int(code, 16)] = row
    return table


def message_problems(spec, code):
    return ["0x%02x: %s in spec/route.md, %s in dxpu.h" % (n, spec.get(n), code.get(n))
            for n in sorted({**spec, **code}) if spec.get(n) != code.get(n)]


def check_messages():
    with open(os.path.join(ROOT, "spec", "route.md"), encoding="utf-8") as file:
        spec = file.read()
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        code = file.read()
    check("spec_messages", message_problems(spec_messages(spec), code_messages(code)) or
          ([] if len(spec_messages(spec)) == 34 else ["%d messages" % len(spec_messages(spec))]))
    for name, old, new in (("renamed", '"PM_PME"', '"PM_PMF"'),
                           ("series", '"Assert_INTC"', '"Assert_INT3"'),
                           ("action", '"LTR", LOCAL, 0, REFUSE, TERMINATE',
                            '"LTR", LOCAL, 0, REFUSE, FORWARD'),
                           ("lost", 'X(0x12, "OBFF"', 'Y(0x12, "OBFF"'),
                           ("vendor", '"Vendor_Defined_Type_1", BY_ID',
                            '"Vendor_Defined_Type_1", LOCAL')):
        seen = old in code and message_problems(spec_messages(spec),
                                                code_messages(code.replace(old, new)))
        check("control_spec_messages_" + name, [] if seen else ["not seen"])


def proof_problems(listed, text):
    table = text.split("| proof | claim |")[1].split("\n\n")[0].splitlines()[2:]
    problems = ["without its row: " + row[:40] for row in listed if row not in table]
    problems += ["not one of prove.py: " + row[:40] for row in table if row not in listed]
    if "%d proofs and their controls" % len(listed) not in text:
        problems.append("the results do not say %d proofs" % len(listed))
    return problems


def check_proofs():
    """spec/assurance.md has the row that prove.py prints of each proof, no other; and the sum."""
    script = os.path.join(ROOT, "tests", "proof", "prove.py")
    listed = subprocess.run([sys.executable, script, "--list"], stdout=subprocess.PIPE, text=True,
                            check=True).stdout.splitlines()
    with open(os.path.join(ROOT, "spec", "assurance.md"), encoding="utf-8") as file:
        text = file.read()
    check("proofs_are_listed", proof_problems(listed, text))
    seen = [proof_problems(listed[1:], text), proof_problems(listed + ["| `other` |"], text)]
    check("control_proofs_are_listed", [] if [len(s) for s in seen] == [2, 2] else [repr(seen)])


def event_problems(header, page):
    types = re.findall(r'^    X\(\w+, "([a-z.]+)"\)', header, re.M)
    section = page.split(".SH EVENTS")[1].split(".SH ")[0]
    listed = re.findall(r"\b[a-z]+\.[a-z]+\b|\balarm\b", section)
    return ["without its row: " + t for t in types if t not in listed] + \
        ["no event: " + t for t in listed if t not in types]


def check_events():
    texts = read("examples/manager/**")
    header = texts["examples/manager/core/core.h"]
    page = texts["examples/manager/dxpu-manager.1"]
    check("events_are_listed", event_problems(header, page))
    seen = [event_problems(header.replace('"node.lost"', '"node.gone"'), page),
            event_problems(header, page.replace("lease.up", "lease"))]
    check("control_events_are_listed", [] if [len(s) for s in seen] == [2, 1] else [repr(seen)])


def main():
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--strict", action="store_true")
    words.add_argument("--list", action="store_true")
    options = words.parse_args()
    check_messages()
    check_proofs()
    check_events()
    defined, twice = rules(read("spec/*.md"))
    tests = cited({n: t for pattern in ("tests/**", "fuzz/*")
                   for n, t in read(pattern).items() if n != "tests/build/spec.py"
                   and not n.startswith("tests/data/")}, names=True)
    code = cited({n: t for pattern in ("dxpu.h", "bindings/**/*.[ch]", "examples/**/*.[ch]",
                                       "spec/vectors/*")
                  for n, t in read(pattern).items()})
    if options.list:
        for tag in sorted(defined, key=lambda t: (t[0], int(t[2:]))):
            print("%-6s code %d  tests %s" % (tag, len(code.get(tag, [])),
                                              ", ".join(tests.get(tag, [])) or "-"))
        return 0
    untested, unknown = missing(defined, tests, code)
    check("spec_has_rules", [] if defined else ["spec/*.md defines no rule"])
    check("spec_tags_unique", twice)
    if untested and not options.strict:
        print("skip spec_musts_tested %d rules with a MUST have no test: %s"
              % (len(untested), " ".join(line.split()[0] for line in untested)))
    else:
        check("spec_musts_tested", untested)
    check("spec_tags_exist", unknown)
    table = rules({"wire.md": "W-1. MUST a\n- W-2: b\n| W-3 | MUST |\n| x | W-4 c | W-4 d |\n"
                              "| x | W-3 |\nW-5, W-6. e\nMUST\n\nMUST W-7.\n| D-8 |\n"
                              "| y | W-9 |\n"})[0]
    found = "".join(sorted(t[2:] + "!" * ("MUST" in text) for t, text in table.items()))
    check("control_spec_parser", [] if found == "1!23!45!6!" else [found])
    seen = missing(table, {"W-1": ["tests/t.c"], "W-3": ["tests/t.py"], "R-9": ["t"]}, {})
    check("control_spec_missing", [] if [len(s) for s in seen] == [3, 1] else [repr(seen)])
    twin = rules({"wire.md": "W-1. a\n\nW-1. b\n"})[1]
    check("control_spec_twice", [] if twin == ["wire.md: W-1"] else [repr(twin)])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
