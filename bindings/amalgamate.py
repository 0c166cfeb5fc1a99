#!/usr/bin/env python3
"""dxpu.h and one binding as one file, for a project that copies its dependencies.

    bindings/amalgamate.py DIRECTORY      writes DIRECTORY/dxpu-NAME.h for each binding

A file that includes dxpu-NAME.h has the declarations; one that defines DXPU_IMPLEMENTATION before
has all functions, too.  What a binding uses is in its file, so that a program needs one of them,
and the one library of the binding.  A program with several bindings includes their files in that
one source file, one behind the other, that of zlib first.  Not together: firmware and what has an
operating system, and pcap and af_xdp, whose libraries both define struct bpf_insn.
"""
import collections
import functools
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
INCLUDE = re.compile(r'(?m)^#include "(dxpu_\w+\.h|dxpu\.h)"[^\n]*\n')
HEAD = """/* {file} - dxpu.h {version} and bindings/{name}{others} in one file
   SPDX-License-Identifier: MIT          (text at the end of dxpu.h, below)

   Made by bindings/amalgamate.py; names that several sources have got the source's in front.
   In exactly one source file, which is {language}:
       #define DXPU_IMPLEMENTATION
       #include "{file}"
   and behind it other files of this kind, where a program has several bindings.  Everywhere
   else, in C and C++, the second line alone.  Libraries: {libraries}. */
"""


@functools.lru_cache(maxsize=None)
def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def fragment(name, variable):
    """Words of a variable in the room's fragment; of a condition those without it."""
    found = re.search(r"(?m)^%s/bindings/%s :?= (.*)$" % (variable, name),
                      read(os.path.join(HERE, name, "room.mk")))
    return re.sub(r"\$\(if [^ ]*,([^)]*)\)", r"\1", found.group(1)).split() if found else []


def has_public_header(name):
    return any(n.endswith(".h") and n not in fragment(name, "private")
               for n in os.listdir(os.path.join(HERE, name)))


def used(name):
    """The bindings below one, lowest first."""
    out = []
    for other in sorted(fragment(name, "uses") + fragment(name, "see")):
        for below in used(other.split("/")[1]) + [other.split("/")[1]]:
            out += [] if below in out else [below]
    return out


def in_order(names, paths):
    """Headers, each behind those that it includes."""
    out = []

    def add(name):
        for below in INCLUDE.findall(read(paths[name])):
            if below in names and below not in out:
                add(below)
        out.extend([] if name in out else [name])

    for name in sorted(names):
        add(name)
    return out


def body(path, names=()):
    """A file without its includes of others; `names` get the file's own in front, where they are no
    members, nor in strings and comments."""
    own = re.sub(r"^dxpu_|\.\w+$", "", os.path.basename(path))
    text = INCLUDE.sub("", read(path))
    if names:
        text = TOKEN.sub(lambda m: "%s_%s" % (own, m.group(0)) if m.group(0) in names
                         else m.group(0), text)
    macros = sorted(set(re.findall(r"(?m)^#define ([A-Z]\w*)", text)))
    macros = [m for m in macros if path.endswith(".c")]
    return "\n/* ---- %s ---- */\n%s%s" % (os.path.relpath(path, ROOT), text, "".join(
        "#undef %s\n" % m for m in macros))


TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|(?:\.|->)\s*\w+|\b[A-Za-z_]\w*', re.S)
# What is at file scope begins in the first column.
STATIC = re.compile(r"(?m)^static [^;={}]*?(\w+)\s*(?:\(|\[|=|;)")
ENUM = re.compile(r"(?ms)^(?:typedef )?enum(?: \w+)? \{(.*?)\}")
TYPE = re.compile(r"(?m)^(?:typedef )?(?:struct|union) (\w+) \{|^\} (\w+);")


@functools.lru_cache(maxsize=None)
def file_scope(path):
    text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
    names = set(STATIC.findall(text))
    for inside in ENUM.findall(text):
        names |= {m.group(1) for m in re.finditer(r"(?:^|,)\s*(\w+)", inside)}
    for pair in TYPE.findall(text):
        names |= {n for n in pair if n}
    return {n for n in names if not n.startswith("dxpu_")}


def every_source():
    return sorted(glob.glob(os.path.join(HERE, "*", "*.c")))


@functools.lru_cache(maxsize=None)
def shared_names():
    """Those of more than one source, of whichever bindings: a program may use several."""
    count = collections.Counter(n for p in every_source() for n in file_scope(p))
    return {n for n in count if count[n] > 1}


def implementation(sources, headers):
    out = "\n#ifdef DXPU_IMPLEMENTATION\n" + "".join(body(p) for p in headers)
    for path in sources:
        guard = "DXPUI_HAS_" + os.path.basename(path)[:-2].upper()
        out += "\n#ifndef %s\n#define %s%s#endif\n" % (guard, guard, body(
            path, shared_names() & file_scope(path)))
    return out + "#endif /* DXPU_IMPLEMENTATION */\n" if sources else ""


def amalgamated(name):
    rooms = used(name) + [name]
    paths = {n: os.path.join(HERE, r, n) for r in rooms for n in os.listdir(os.path.join(HERE, r))
             if n.endswith(".h")}
    private = {n for r in rooms for n in fragment(r, "private")}
    sources = [os.path.join(HERE, r, n) for r in rooms
               for n in sorted(os.listdir(os.path.join(HERE, r))) if n.endswith(".c")]
    ordered = in_order(set(paths), paths)
    core = os.path.join(ROOT, "dxpu.h")
    others = ", ".join(used(name))
    text = HEAD.format(
        file="dxpu-%s.h" % name.replace("_", "-"), name=name,
        version=re.search(r'DXPU_VERSION +"([^"]+)"', read(core)).group(1),
        others=" with what it uses (%s)" % others if others else "",
        language="C11" if sources else "C99 or C++11",
        libraries=" ".join(fragment(name, "libs")) or "none")
    # What the sources ask of the C library, or of a file behind this one, before its first header.
    text += ("#if defined(DXPU_IMPLEMENTATION) && !defined(_GNU_SOURCE)\n"
             "#define _GNU_SOURCE\n#endif\n")
    for macro in fragment(name, "pure"):
        text += "#ifdef DXPU_IMPLEMENTATION\n#define %s_IMPLEMENTATION\n#endif\n" % macro
    parts = [core] + [paths[n] for n in ordered if n not in private]
    if name == "zlib":  # which dxpu.h is to find
        parts = parts[::-1]
    return text + "".join(body(p) for p in parts) + implementation(
        sources, [paths[n] for n in ordered if n in private])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for room in sorted(glob.glob(os.path.join(HERE, "*", "room.mk"))):
        name = os.path.basename(os.path.dirname(room))
        if has_public_header(name):
            path = os.path.join(sys.argv[1], "dxpu-%s.h" % name.replace("_", "-"))
            with open(path, "w", encoding="utf-8") as file:
                file.write(amalgamated(name))


if __name__ == "__main__":
    main()
