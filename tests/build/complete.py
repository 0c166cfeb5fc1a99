#!/usr/bin/env python3
"""Shell completion against the programs: bash, zsh and fish offer what --help-options lists, and
what that lists is in --help."""
import functools
import os
import re
import shlex
import shutil
import sys
import tempfile

import make
from make import ROOT, check, run

PLACE = os.path.join(ROOT, "examples", "cli", "completion")
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build"))
PROGRAMS = ("dxpu", "dxpu-host", "dxpu-box", "dxpu-manager", "dxpu-device",
            "dxpu-render")

# Each case in a process of its own, but of one shell, whose start takes longer than the rest.
BASH = """source %s/dxpu.bash
one() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dxpu; printf '%%s\\n' "${COMPREPLY[@]}"; }
"""
# zsh's own functions, as far as ours calls them; they would filter by the word.
ZSH = """_describe() {
  local i
  for i in ${(P)2}; do [[ ${i%%%%:*} != $word* ]] || print -r -- ${i%%%%:*}; done
}
_files() { print -rl -- $word*(N) }
compset() { word=${word#*=} }
f() { source %s/_dxpu }
one() { word=${@[-1]}; words=("$@"); CURRENT=$#; f }
"""
FISH = """source %s/dxpu.fish
function one; complete -C "$argv"; end
"""
END = "\x1e"


def each(shell, script, cases, line, function):
    """(status, output) of every case; `line` makes one line of the script of its words.  Of each
    program the first case starts it; `function` then stands for it, which says what it said."""
    text, seen = script % PLACE, set()
    for words in cases:
        text += line(" ".join(map(shlex.quote, words)))
        if words[0] not in seen:
            seen.add(words[0])
            text += function % (words[0], shlex.quote(listed(words[0])))
    status, out = run(*shell, "-c", text)
    found = re.findall(r"(?s)(.*?)%s(\d+)\n" % END, out)
    if status or len(found) != len(cases):
        return [(1, out)] * len(cases)
    return [(int(code), said) for said, code in found]


def in_subshell(words):
    return "(one %s); printf '%s%%d\\n' $?\n" % (words, END)


FUNCTION = "%s() { [ \"$*\" = --help-options ] && printf '%%s' %s; }\n"


def in_fish(words):
    return "one %s; printf '%s%%d\\n' $status\n" % (words, END)


def bash(cases):
    split = [[part for w in words for part in (re.split("(=)", w, maxsplit=1) if w[:2] == "--"
                                               else [w]) if part or w == ""] for words in cases]
    return each(("bash", "--norc"), BASH, split, in_subshell, FUNCTION)


def zsh(cases):
    return each(("zsh", "-f"), ZSH, cases, in_subshell, FUNCTION)


def fish(cases):
    found = []
    function = "function %s; test \"$argv\" = --help-options; and printf '%%s' %s; end\n"
    for status, out in each(("fish", "--no-config"), FISH, cases, in_fish, function):
        lines = [line.split("\t")[0] for line in out.splitlines()]
        found.append((status, "\n".join(re.sub("^--[^=]*=", "", line) for line in lines)))
    return found


@functools.lru_cache(maxsize=None)
def listed(program):
    status, out = run(os.path.join(BIN, program), "--help-options")
    return out if status == 0 else ""


def rows(program):
    return [line.split("\t") for line in listed(program).splitlines()]


def wanted(table, given, word):
    """What is to be offered behind the words `given`, computed another way."""
    verbs = [r[1] for r in table if r[0] == "verb" and r[1]]
    verb = next((" ".join(given[:n]) for n in (2, 1) if " ".join(given[:n]) in verbs), "")
    words = next((r[2].split() for r in table if r[0] == "verb" and r[1] == verb), None)
    if word.startswith("-"):
        found = [r[2] for r in table if r[0] == "option" and r[1] in (verb, "*")]
    elif verb and verb.split() == list(given) and words and "|" in words[0]:
        found = words[0].split("|")
    else:
        found = [v.split()[len(given)] for v in verbs
                 if v.split()[:len(given)] == list(given) and len(v.split()) > len(given)]
    return {f for f in found if f.startswith(word)}


def cases(program, table):
    """(words behind the program, what must be offered)"""
    verbs = sorted({r[1] for r in table if r[0] == "verb" and r[1]})
    given = [[]] + sorted({tuple(v.split()[:n]) for v in verbs for n in (1, 2)})
    for words in given:
        is_verb = " ".join(words) in verbs or not verbs
        chosen = any(r[0] == "verb" and r[1] == " ".join(words) and "|" in r[2].split(" ")[0]
                     for r in table)
        for word in ("--", "") if chosen else ("--",) if is_verb else ("",):
            yield [*words, word], wanted(table, list(words), word)
    if verbs:
        yield ["--"], wanted(table, [], "--")
    choice = next((r for r in table if r[0] == "option" and r[4] == "choice" and r[1] != "*"), None)
    if choice:
        values = set(choice[3].split("|"))
        yield [*choice[1].split(), choice[2], ""], values
        yield [*choice[1].split(), choice[2] + "="], values
    number = next(r for r in table if r[0] == "option" and r[4] == "number")
    yield [*number[1].split(), number[2], ""], set()  # nothing to be guessed


def shells(name, complete):
    if not shutil.which(name):
        print("skip complete_%s NO %s HERE" % (name, name.upper()))
        return
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PATH"] = BIN + ":" + os.environ["PATH"]
        file = os.path.join(directory, "capture.pcap")
        with open(file, "w", encoding="utf-8"):
            pass
        asked = [([program, *words], expected) for program in PROGRAMS
                 for words, expected in cases(program, rows(program))]
        asked += [(words, {file}) for words in (["dxpu", "pcap", directory + "/cap"],
                                                ["dxpu-box", "--file", directory + "/cap"])]
        if name == "bash":  # a word as it was typed, with the quote that it begins with
            asked.append((["dxpu", '"at'], wanted(rows("dxpu"), [], "at")))
        wrong = {}
        for (words, expected), (status, out) in zip(asked, complete([w for w, _ in asked])):
            name_of = ("" if expected != {file} else "file_") + words[0]
            wrong.setdefault(name_of, [])
            if status or set(out.split()) != expected:
                wrong[name_of].append((words, sorted(set(out.split()) ^ expected)))
        for name_of, seen in wrong.items():
            check("complete_%s_%s" % (name, name_of), not seen, "\n".join(map(str, seen)))


def agree(program, table):
    """--help-options and --help, of the program or of each verb."""
    verbs = sorted({r[1] for r in table if r[0] == "verb"})
    wrong = []
    for verb in verbs or [""]:
        told = run(os.path.join(BIN, program), *verb.split(), "--help")[1]
        shown = set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z][a-z0-9-]*)", told))
        listed = {r[2] for r in table if r[0] == "option" and r[1] in (verb, "*")}
        listed -= {"--help-options"}  # for scripts alone
        if shown != listed:
            wrong.append((verb, sorted(shown ^ listed)))
    check("complete_help_" + program, table and not wrong, "\n".join(map(str, wrong)))


def main():
    for program in PROGRAMS:
        agree(program, rows(program))
    for name, complete in (("bash", bash), ("zsh", zsh), ("fish", fish)):
        shells(name, complete)
    return 1 if make.failed else 0


if __name__ == "__main__":
    sys.exit(main())
