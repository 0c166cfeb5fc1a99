#!/usr/bin/env python3
"""Words that readers of the documents stumbled over, and what to write in their place."""
import os
import re
import sys

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
# What users and readers of headers meet, messages of the programs among it; spec/changes.md is
# history.
READ = re.compile(r"(?:README\.md|\.github/.*\.md|(?:bindings|examples|tests|fuzz)/.*README\.md|"
                  r"spec/[\w/]*\.(?:md|yaml)|examples/.*\.(?:1|conf|c)|dxpu\.h|"
                  r"bindings/.*\.[3h])$")
failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems[:60]:
        print("  " + problem)


def stumbles(name, text):
    """Code of C is no prose: of headers only the comments are read, of sources only strings."""
    if name.endswith(".c"):
        text = re.sub(r'"(?:\\.|[^"\\\n])*"|[^\n]', lambda m: m.group(0)
                      if m.group(0)[0] == '"' and len(m.group(0)) > 1 else " ",
                      re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text,
                             flags=re.S))
    if name.endswith(".h"):
        text = re.sub(r"/\*.*?\*/|[^\n]", lambda m: m.group(0) if len(m.group(0)) > 1 else " ",
                      text, flags=re.S)
    return ["%s:%d: %r; write: %s" % (name, number, found.group(0), good)
            for number, line in enumerate(text.split("\n"), 1)
            for pattern, good in PATTERN.items() for found in [pattern.search(line)] if found]


def main():
    names = [n for n in tree.files() if READ.match(n) and n != "spec/changes.md"]
    check("words_files", [] if len(names) > 60 else names)
    problems = []
    for name in names:
        with open(os.path.join(tree.ROOT, name), encoding="utf-8") as file:
            problems += stumbles(name, file.read())
    check("words", problems)
    seen = [bad for bad in ("it tells the box", "Nobody answers", "in the folder", "stands in it",
                            "ends in order", "so many slots") if not stumbles("x.md", bad)]
    check("control_words", seen + stumbles("x.md", "It reports the foretold number of subfolders."))
    check("control_words_of_code", stumbles("x.h", "int tell; /* reports */\n")
          + stumbles("x.c", 'tell(); /* nobody */\n')
          + ([] if stumbles("x.h", "int f; /* it tells */\n") else ["a comment is not read"])
          + ([] if stumbles("x.c", 'puts("nobody");\n') else ["a string is not read"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
