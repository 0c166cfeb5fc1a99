#!/usr/bin/env python3
"""Words that readers of the documents stumbled over, and what to write in their place."""
import io
import os
import re
import sys
import tokenize

import tree

# Pattern: the field's word.
WORDS = {
    r"tells?|told": "report, notify, say",
    r"nobody|nobody's": "none, unassigned, unauthenticated",
    r"folders?": "directory",
    r"anew": "again, re-...",
    r"(?:closes?|closed|ends?|ended) in order": "graceful shutdown, closes gracefully",
    r"may all": "has full access",
    r"is wanted": "is required, must be",
    r"is none of": "is not a",
    r"(?:is|stays|are) alive": "is reachable, is connected",
    r"whatever it was": "unchanged",
    r"by turns": "interleaved, alternating",
    r"welcomes?|welcomed": "authorize",
    r"sees to|see to": "handles",
    r"what for": "purpose",
    r"stands? in": "is in, is stored in",
    r"so many|so long": "the given number, the given time",
}
PATTERN = {re.compile(r"(?<![\w.-])(?:%s)(?![\w-])" % bad, re.I): good
           for bad, good in WORDS.items()}
ANY = re.compile("|".join(pattern.pattern for pattern in PATTERN), re.I)
# What people read: documents, configurations, sources; spec/changes.md is history.
READ = re.compile(r"(?:README\.md|\.github/.*\.md|(?:bindings|examples|tests|fuzz)/.*README\.md|"
                  r"spec/[\w/]*\.(?:md|yaml)|examples/.*\.(?:1|conf)|bindings/.*\.3|"
                  r".*\.(?:c|cc|h|py))$")
# Strings of tests are data: of strings those of the product are read.
SAYS = re.compile(r"(?:dxpu\.h|(?:bindings|examples)/.*\.[ch])$")
# A literal, a comment, anything else of C; /* in a string begins no comment.
C = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*|'
               r'[^"\'/\n]+|[^\n]', re.S)
# Names in a comment are not prose: `told`, "nobody", welcome().
NAMES = re.compile(r'`[^`\n]*`|"[^"\n]*"|\b\w+\(\)')
TEST = re.compile(r"\btest_\w+")
failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems[:60]:
        print("  " + problem)


def prose_of_c(name, source):
    """Comments, strings of the product and names of tests, each in its line."""
    def part(found):
        piece = found.group(0)
        if piece.startswith(("/*", "//")):
            return NAMES.sub(" ", piece)
        return piece if SAYS.match(name) and piece[0] == '"' else " "
    tests = [" ".join(TEST.findall(line)).replace("_", " ") for line in source.split("\n")]
    lines = C.sub(part, source).split("\n")
    return "\n".join(line + " " + names for line, names in zip(lines, tests))


def prose_of_python(source):
    """Comments, docstrings and names of cases, each in its line."""
    lines = [""] * (source.count("\n") + 2)
    before, case = None, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = ""
        if token.type == tokenize.COMMENT or (
                token.type == tokenize.STRING and token.string.startswith('"""')
                and token.line.lstrip().startswith('"""')):
            text = NAMES.sub(" ", token.string.replace('"""', ""))
        elif token.type == tokenize.NAME and before == "@":
            case = token.string == "case"
        elif token.type == tokenize.NAME and before == "def":
            text = token.string.replace("_", " ") if case else ""
            case = False
        for i, line in enumerate(text.split("\n")):
            lines[token.start[0] - 1 + i] += " " + line
        before = token.string
    return "\n".join(lines)


def stumbles(name, text):
    """Code is no prose."""
    if not ANY.search(text.replace("_", " ")):
        return []
    if name.endswith(".py"):
        text = prose_of_python(text)
    elif name.endswith((".c", ".cc", ".h")):
        text = prose_of_c(name, text)
    return ["%s:%d: %r; write: %s" % (name, number, found.group(0), good)
            for number, line in enumerate(text.split("\n"), 1)
            for pattern, good in PATTERN.items() for found in [pattern.search(line)] if found]


def main():
    names = [n for n in tree.files() if READ.match(n) and n != "spec/changes.md"]
    check("words_files", [] if len(names) > 600 else names)
    problems = []
    for name in names:
        with open(os.path.join(tree.ROOT, name), encoding="utf-8") as file:
            problems += stumbles(name, file.read())
    check("words", problems)
    seen = [bad for bad in ("it tells the box", "Nobody answers", "in the folder", "stands in it",
                            "ends in order", "so many slots") if not stumbles("x.md", bad)]
    check("control_words", seen + stumbles("x.md", "It reports the foretold number of subfolders."))
    clean = {"tests/x.h": "int tell; /* reports `told`, \"nobody\", welcome() */\n",
             "tests/x.c": 'puts("nobody /* told */");\ntell();\n',
             "examples/x.py": '"""Reports."""\ntell("nobody", folder)  # reports\n'
                              'def told():\n    pass\n'}
    check("control_words_of_code", [p for name in clean for p in stumbles(name, clean[name])])
    dirty = {"x.h": "int f; /* it reports\n   what it tells */\n",
             "fuzz/x.c": "f(); // nobody\n", "examples/x.c": 'puts("nobody");\n',
             "bindings/x.c": "f('\"'); /* nobody */\n",
             "tests/x.c": "static void test_s1_nobody_answers(void **state)\n",
             "tests/x.py": "@case\ndef s1_nobody_answers():\n    pass\n",
             "tests/y.py": 'def f():\n    """Nobody\n    answers."""\n',
             "tests/z.py": "f()  # nobody\n"}
    check("control_words_in_code", [name for name in dirty if not stumbles(name, dirty[name])])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
