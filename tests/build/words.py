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
    r"(?:\w+-)*folders?": "directory",
    r"anew": "again, re-...",
    r"(?:closes?|closed|ends?|ended) (?:\w+ ){0,2}in order": "graceful shutdown, closes gracefully",
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
    # Not what is far, or was taken: a host, a box.
    r"(?:is|are|was|were|stays?|hosts?|box|boxes|while|or) away|away \(|[\"(]away[\")]":
        "disconnected, unreachable",
    r"(?<!there )(?:is|are|was) none(?! of| are)": "is not a ..., is invalid",
    r"(?<!there )(?<!here )(?:is|are) no (?:address|clone|device|director(?:y|ies)|disk|file|frame|"
    r"key|lease|list|message|number|record|socket|test|TLP)s?": "is not a ..., are not ...",
    r"(?:frame|datagram|message|packet|answer|heartbeat|open|completion|doorbell|reply|replie|"
    r"request|command|byte|credit|alarm|TLP)s? (?:that |which )?"
    r"(?:(?:has|have|may|can|could|will|would|not|still|only|never) )*(?:came|comes?)"
    r"(?! (?:back|from|first|up|in turn))|(?:came|comes?) again|comes? to an end":
        "arrive, be received, be repeated, end",
    r"takes (?:an?|no|one|two|its|all) (?:argument|input|option|value)s?": "accepts, assumes",
    r"who(?:ever)? (?:asked|asks|may)": "client, caller, authorized",
    r"(?:it|peer|one|box|host|proxy|they) lives?": "is reachable, is running",
}
PATTERN = {re.compile(r"(?<![\w.-])(?:%s)(?![\w-])" % bad, re.I): good
           for bad, good in WORDS.items()}
# Each match of a pattern has one of these in it: finding that costs a hundredth of trying it.
MARKS = ("tell", "told", "nobody", "folder", "anew", "in order", "may all", "wanted", "none",
         "alive", "whatever", "by turns", "welcome", "see to", "sees to", "what for", "stand",
         "so many", "so long", "away", "came", "come", "takes", "who", "live", " no ")
MARKED = {mark: [p for p in PATTERN if mark in p.pattern] for mark in MARKS}
# What people read: documents, configurations, sources.
READ = re.compile(r"(?:README\.md|\.github/.*\.(?:md|yml)|spec/[\w/]*\.(?:md|yaml)|Makefile|"
                  r"(?:bindings|examples|tests|fuzz)/.*README\.md|examples/.*\.(?:1|conf|service)|"
                  r"bindings/.*\.3|\.ci/run|tests/guest/init|fuzz/dict/.*|"
                  r"examples/cli/completion/.*|.*\.(?:c|cc|h|py|mk|sh))$")
# Strings of tests are data: of strings those of the product are read, and usage of fuzz targets.
SAYS = re.compile(r"(?:dxpu\.h|(?:bindings|examples)/.*\.[ch]|fuzz/fuzz_main\.c)$")
# Comments begin with #; what the first of these have between double quotes is printed.
PRINTS = re.compile(r"(?:.*\.sh|\.ci/run|tests/guest/init|examples/cli/completion/.*)$")
SHELL = re.compile(PRINTS.pattern + r"|(?:.*\.mk|Makefile|fuzz/dict/.*)$")
# A literal, a comment, anything else of C; /* in a string begins no comment.
C = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*|'
               r'[^"\'/\n]+|[^\n]', re.S)
# Names in a comment are not prose: `told`, "nobody", welcome().
NAMES = re.compile(r'`[^`\n]*`|"[^"\n]*"|\b\w+\(\)')
TEST = re.compile(r"\btest_\w+")
# Of Python: the name of a case, a string, a comment.
PYTHON = re.compile(r'^ *@case\b[^\n]*\n *def (\w+)|"""(?:\\.|[^\\])*?"""|'
                    r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|'
                    r"'(?:\\.|[^'\\\n])*'|#[^\n]*", re.S | re.M)
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
    def part(found):
        piece, case = found.group(0), found.group(1)
        lines = "\n" * piece.count("\n")
        if case:
            return lines + case.replace("_", " ") + " "
        begun = source[source.rfind("\n", 0, found.start()) + 1:found.start()]
        if piece[0] == "#" or piece.startswith('"""') and not begun.strip():
            return NAMES.sub(" ", piece.replace('"""', ""))
        return lines
    out, at = [], 0
    for found in PYTHON.finditer(source):
        out += ["\n" * source.count("\n", at, found.start()), part(found)]
        at = found.end()
    return "".join(out)


def prose_of_shell(name, source):
    """Comments, with the help of the Makefile; of scripts also what they print."""
    said = r'(?:^|(?<=\s))#.*' + (r'|"(?:\\.|[^"\\])*"' if PRINTS.match(name) else "")
    return "\n".join(" ".join(re.sub(r"`[^`]*`|\$\{?\w+\}?|\$\([^)]*\)", " ", part)
                              for part in re.findall(said, line))
                     for line in source.split("\n"))


def seen(text):
    """[(number of a line, what is in it, what to write)]"""
    lines, low, found = text.split("\n"), text.lower(), set()
    for mark, patterns in MARKED.items():
        at = low.find(mark)
        while at >= 0:
            number = low.count("\n", 0, at)
            found |= {(number + 1, match.group(0), PATTERN[p]) for p in patterns
                      for match in [p.search(lines[number])] if match}
            at = low.find(mark, at + 1)
    return sorted(found)


def stumbles(name, text):
    """Code is no prose."""
    if not seen(text.replace("_", " ")):
        return []
    if name.endswith(".py"):
        text = prose_of_python(text)
    elif name.endswith((".c", ".cc", ".h")):
        text = prose_of_c(name, text)
    elif SHELL.match(name):
        text = prose_of_shell(name, text)
    elif name == "spec/changes.md":  # it names what was renamed
        text = re.sub(r"`[^`\n]*`", " ", text)
    return ["%s:%d: %r; write: %s" % (name, *found) for found in seen(text)]


# A line whose words alternate between two fonts: groff joins them.
FONTS = re.compile(r"\.(?:BR|RB|BI|IB|IR|RI) +(.*)")


def run_together(name, text):
    """Lines of a man page that print words without the spaces between them: a sentence goes on
    behind what is in parentheses."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        fonts = FONTS.match(line)
        words = re.findall(r'"((?:[^"]|"")*)"|(\S+)', fonts.group(1)) if fonts else []
        words = [quoted or bare for quoted, bare in words]
        found += ["%s:%d: prints %r" % (name, number, before + after)
                  for before, after in zip(words, words[1:])
                  if re.search(r"\)[.,;:]?$", before) and re.match(r"\(?[A-Za-z]", after)]
    return found


def man_pages(names):
    problems = []
    for name in names:
        with open(os.path.join(tree.ROOT, name), encoding="utf-8") as file:
            problems += run_together(name, file.read())
    check("man_pages_spaces", problems)
    joined = ('.RB ( "dxpu lease extend" ). Only the tenant', ".BR dxpu (1), which")
    apart = (".BR dxpu (1),", '.RB ( a ", " b ).', '.BR a (1) ", " b (1)', ".BI N ,KEY",
             "(a). Only")
    check("control_man_pages_spaces", [bad for bad in joined if not run_together("x.1", bad)]
          + [p for good in apart for p in run_together("x.1", good)])


def main():
    names = [n for n in tree.files() if READ.match(n)]
    man_pages([n for n in tree.files() if re.search(r"\.[13]$", n)])
    check("words_files", [] if len(names) > 600 else names)
    problems = []
    for name in names:
        with open(os.path.join(tree.ROOT, name), encoding="utf-8") as file:
            problems += stumbles(name, file.read())
    check("words", problems)
    stumbled = ("it tells the box", "Nobody answers", "in the folder", "sent anew", "he may all",
                "ends all in order", "a key is wanted", "it is none of ours", "they are alive",
                "whatever it was", "sent by turns", "a welcome guest", "it sees to it", "what for",
                "stands in it", "so many slots", "the box is away", "host (away)", "port 0 is none",
                "a frame came", "it comes again", "it takes an argument", "whoever asks",
                "the peer lives", "a line is no record", "slots that are no devices",
                "the file-or-folder", "completions that may still come", "whose open has not come",
                "it takes its inputs as given", "whoever may use it", "the table of who may act")
    check("control_words", ["not seen: " + bad for bad in stumbled if not stumbles("x.md", bad)]
          + ["without a control: " + pattern.pattern for pattern in PATTERN
             if not any(pattern.search(bad) and stumbles("x.md", bad) for bad in stumbled)])
    plain = ("It reports the foretold number of subfolders.", "far away; it was taken away",
             "there is none", "a channel comes up", "clients that may use it", "a live view",
             "there is no file", "here is no socket", "it is no longer a device", "data come back",
             "a frame that comes from a box", "it takes its time",
             "it ends, then in order of arrival")
    check("control_plain_words", [p for good in plain for p in stumbles("x.md", good)])
    clean = {"x.mk": "folder = a  # a directory\n", "x.sh": 'cd "$folder" # `tell`\ntell "$1"\n',
             "spec/changes.md": "`welcome` is `authorize`\n",
             "tests/x.h": "int tell; /* reports `told`, \"nobody\", welcome() */\n",
             "tests/x.c": 'puts("nobody /* told */");\ntell();\n',
             "fuzz/x.c": 'puts("nobody");\n', "fuzz/dict/x.dict": 'told="nobody"\n',
             "examples/cli/completion/x": "tell nobody  # reports\n",
             "examples/x.py": '"""Reports."""\ntell("nobody", folder)  # reports\n'
                              'def told():\n    pass\n'}
    check("control_words_of_code", [p for name in clean for p in stumbles(name, clean[name])])
    dirty = {"Makefile": "## all        an empty folder\n", "x.mk": "# one folder\n",
             "x.sh": 'echo "it tells"\n', "y.sh": "# it tells\n",
             "examples/x.service": "# it tells\n", "spec/changes.md": "it tells `x`\n",
             "x.h": "int f; /* it reports\n   what it tells */\n",
             "fuzz/x.c": "f(); // nobody\n", "fuzz/fuzz_main.c": 'puts("FILE-OR-FOLDER");\n',
             "fuzz/dict/x.dict": "# it tells\n", ".ci/run": "# it tells\n",
             "tests/guest/init": 'echo "it tells"\n',
             "examples/cli/completion/x": "# it tells\n", "examples/x.c": 'puts("nobody");\n',
             "bindings/x.c": "f('\"'); /* nobody */\n",
             "tests/x.c": "static void test_s1_nobody_answers(void **state)\n",
             "tests/x.py": "@case\ndef s1_nobody_answers():\n    pass\n",
             "tests/y.py": 'def f():\n    """Nobody\n    answers."""\n',
             "tests/z.py": "f()  # nobody\n"}
    check("control_words_in_code", [name for name in dirty
                                    if not READ.match(name) or not stumbles(name, dirty[name])])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
