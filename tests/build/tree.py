#!/usr/bin/env python3
"""The tree as a whole: top level, permitted includes, format, line and function lengths."""
import functools
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = {"dxpu.h", "Makefile", "README.md", "LICENSE", "bindings", "examples", "fuzz", "spec",
       "tests", ".ci", ".clang-format", ".editorconfig", ".gitattributes", ".github", ".gitignore"}
CORE_HEADERS = {"stdbool.h", "stddef.h", "stdint.h", "string.h"}
SYSTEM = re.compile(
    r"(assert|ctype|errno|float|inttypes|limits|locale|math|setjmp|signal|stdalign|stdarg|"
    r"stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|tgmath|threads|time|"
    r"fcntl|getopt|ifaddrs|netdb|poll|pthread|sched|semaphore|termios|unistd|endian|byteswap|"
    r"err|fnmatch|glob|libgen|dirent|immintrin|nmmintrin)\.h$|(sys|netinet|net|arpa|linux|asm)/")
LIBRARY = {"zlib": r"(zlib|zconf|libdeflate)\.h$", "libevent": r"event2/", "pcap": r"pcap(\.h|/)",
           "af_xdp": r"(xdp|bpf)/", "sodium": r"sodium\.h$"}
# Bindings that other bindings may use: no library, no operating system.
PURE = ("acceptor", "bytes", "control", "foreign", "vswitch", "model", "secure", "portable",
        "guard", "push")
EMBED = "examples/embed/"  # for others to copy: dxpu.h, bindings, nothing else of this tree
ALONE = tuple("examples/%s/" % room for room in ("embed", "firmware", "inject"))
BASE = "examples/common/base/"
SECOND_WAYS = (
    (re.compile(r"\b(?:v?fprintf|fputs|fputc|fwrite|v?dprintf)\s*\([^;]*\b(?:std|STD)(?:err|ERR)|"
                r"\bperror\s*\("), [BASE + "console.c"], "a message that is not log.h's"),
    (re.compile(r"\bgetopt|\bargv\[[^;]*\"-[-\w]"), [BASE + "options.c"],
     "an option that is not options.h's"),
    (re.compile(r'printf\s*\([^;]*\\"[\w%]+\\":'), [BASE + "json.c"], "JSON that is not json.h's"),
    # A picture on a client's disk may be lost: control_command.c.
    (re.compile(r"\b(?:rename(?:at2?)?|mko?stemps?)\s*\("),
     [BASE + "durable.c", "examples/cli/control/control_command.c"],
     "a file put in place that is not durable.h's"))
# Two bytes of an array joined, or a number cut into two, which dxpu_get_be16() and its like do:
# big-endian and little-endian.  Three bytes are a color.
BYTES = re.compile(
    r"\b([\w.>-]+)\[[^\]]*\] << 8 \|\s*(?:\(\w+\))?\1\[|"
    r"\] << 24 \||([\w.>-]+)\[[^\]]*\] \|\s*(?:\(\w+\))?\2\[[^\]]*\] << 8|"
    r"= \(uint8_t\)\(([^;]+?) >> 8\);\s*[^;=]*= \(uint8_t\)\3;|"
    r"= \(uint8_t\)\(?([\w.>-]+)\)?;\s*[^;=]*= \(uint8_t\)\(\4 >> 8\);|"
    r"[{,]\s*\(uint8_t\)\(?([\w.>-]+)\)?,\s*\(uint8_t\)\(\5 >> 8\)|"
    r"[{,]\s*\(uint8_t\)\(([\w.>-]+) >> 8\),\s*\(uint8_t\)\(?\6\b(?! >>)")
# EtherType of IPv6, or a carry of the Internet checksum.
HEADERS = re.compile(r"\b0x86dd\b|(\w+) & 0xffffu?\) \+ \(\1 >> 16\)")
MACHINE_PATH = re.compile(r"(?<![\w.>)\]}])/(?:home|root|work|Users)/\w")
FORMATTER = 14  # others break lines elsewhere
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems[:40]:
        print("  " + problem)


def files(root=ROOT):
    """Every file that version control knows; what else lies in the checkout is its owner's."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, check=True)
        names = [n for n in listed.stdout.decode().split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, plain in os.walk(root):
            folders[:] = [f for f in folders if f not in ("build", ".git", "__pycache__")]
            names += [os.path.relpath(os.path.join(folder, p), root) for p in plain]
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))


def git_works():
    try:
        return subprocess.run(["git", "--version"], stdout=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def known_files():
    """What files() finds where one file is known to git and one is not."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("known", "mine/notes.c"):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w", encoding="utf-8"):
                pass
        for words in (["init", "-q"], ["add", "known"]):
            subprocess.run(["git", *words], cwd=folder, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
        return files(folder)


def text(name):
    with open(os.path.join(ROOT, name), "rb") as file:
        data = file.read()
    return None if b"\0" in data[:8000] else data.decode("utf-8", "replace")


def bindings():
    folder = os.path.join(ROOT, "bindings")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


@functools.lru_cache
def room_folders():
    """Where the rooms of examples/ have headers."""
    return sorted({os.path.dirname(n) + "/" for n in files()
                   if n.startswith("examples/") and n.endswith(".h")})


def include_problems(name, source, exists=None):
    """Includes of one file that design's dependency rule forbids."""
    exists = exists or (lambda path: os.path.isfile(os.path.join(ROOT, path)))
    problems = []
    parts = name.split("/")
    searched = ["bindings/%s/" % b for b in bindings()] + room_folders()
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    for quote, what in re.findall(r'(?m)^\s*#\s*include\s*([<"])([^>"]+)[>"]', source):
        near = what
        if quote == '"':  # looked for beside the file, then in what the Makefile lists with -I
            beside = os.path.normpath(os.path.join(os.path.dirname(name), what))
            places = [beside, what] + [folder + what for folder in searched]
            near = next((place for place in places if exists(place)), what)
        bad = None
        if name == "dxpu.h":
            bad = what not in CORE_HEADERS
        elif near.startswith("examples/"):
            bad = parts[0] not in ("examples", "tests", "fuzz") or name.startswith(EMBED)
        elif parts[0] == "bindings":
            library = LIBRARY.get(parts[1], r"$^")
            own = near.startswith(tuple("bindings/%s/" % b for b in (parts[1], *PURE)))
            system = what in CORE_HEADERS if parts[1] in PURE else SYSTEM.match(what)
            bad = not (near == "dxpu.h" or own or (quote == "<" and (
                system or re.match(library, what))))
        elif near.startswith(("tests/", "fuzz/")):
            bad = parts[0] not in ("tests", "fuzz")
        if bad:
            problems.append("%s includes %s" % (name, what))
    return problems


def long_functions(name, source):
    """Functions of more than 60 lines; clang-format puts their braces in the first column."""
    problems, start = [], 0
    for number, line in enumerate(source.splitlines(), 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start + 1 > 60:
                problems.append("%s:%d: a function of %d lines" % (name, start, number - start + 1))
            start = 0
    return problems


def unpinned(name, source):
    """What a workflow runs that can change below it: actions by tag, images by tag."""
    found = re.findall(r"(?m)^\s*(?:- )?uses: *(\S+)", source)
    images = re.findall(r"\b((?:debian|ubuntu|alpine|fedora):[\w.-]+(?:@[\w:]+)?)", source)
    return (["%s uses %s" % (name, u) for u in found if not re.search(r"@[0-9a-f]{40}$", u)] +
            ["%s runs in %s" % (name, i) for i in images
             if not re.search(r"@sha256:[0-9a-f]{64}$", i)])


def second_ways(name, source):
    """What options.h, log.h and json.h do for all programs, done by hand.  Programs to copy, the
    library in other programs and the one without a system have no room of the product."""
    if not name.startswith("examples/") or name.startswith(ALONE):
        return []
    source = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), source, flags=re.S)
    return ["%s:%d: %s" % (name, source.count("\n", 0, found.start()) + 1, why)
            for pattern, homes, why in SECOND_WAYS if name not in homes
            for found in pattern.finditer(source)]


def copied_loads(name, source):
    """Byte loads and stores that are not those of dxpu.h."""
    source = COMMENT.sub(lambda m: "\n" * m.group(0).count("\n"), source)
    return ["%s:%d: bytes joined or cut by hand: dxpu_get_be16() and its like do it"
            % (name, source.count("\n", 0, found.start()) + 1)
            for found in BYTES.finditer(source) if name != "dxpu.h"
            and " 16" not in source[max(found.start() - 40, 0):found.start()]]


def copied_headers(name, source):
    """Headers of IP that a binding makes or reads by itself.  Tests have their own."""
    if not name.startswith(("bindings/", "examples/")) or name.startswith("bindings/bytes/"):
        return []
    source = COMMENT.sub(lambda m: "\n" * m.group(0).count("\n"), source)
    return ["%s:%d: headers of IP: bindings/bytes does it" % (
        name, source.count("\n", 0, found.start()) + 1) for found in HEADERS.finditer(source)]


def clang_format_version():
    try:
        told = subprocess.run(["clang-format", "--version"], stdout=subprocess.PIPE, text=True)
    except OSError:
        return None
    found = re.search(r"version (\d+)", told.stdout)
    return int(found.group(1)) if found else None


COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
NOT_LINKED = re.compile(r"[Nn]ot linked:((?:[^.*]|\.h)*)")


QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def bare(source):
    """The code alone, without comments, texts and includes."""
    return QUOTED.sub('""', re.sub(r"(?m)^\s*#\s*include\s.*", "", COMMENT.sub(" ", source)))


def replaced(source, headers):
    """Patterns of the names that the macros of a test, and of its own headers, replace."""
    text = COMMENT.sub(" ", source)
    text = "\n".join([headers.get(os.path.basename(n), "") for n in
                      re.findall(r'(?m)^\s*#\s*include\s+"([^"]+\.h)"', text)] + [text])
    left = set(re.findall(r"(?m)^\s*#\s*undef\s+(\w+)", text))
    return [r"(?<![\w.>])%s\b%s" % (n, r"\s*\(" if call else "") for n, call in
            re.findall(r"(?m)^\s*#\s*define\s+(\w*[a-z]\w*)(\(?)", text) if n not in left]


def own_names(body):
    """Patterns of the names that only the source itself has: its statics, structs and constants."""
    calls = re.findall(r"(?m)^static\b[^;={(]*?\b(\w+)\(", body)
    values = re.findall(r"(?m)^(?:static\b[^;={(]*?|\} )\b(\w+)(?:\[[^\]]*\])*(?: =|;)", body)
    values += re.findall(r"(?m)^(?:typedef )?(?:struct|union) (\w+)\s*\{", body)
    values += [n for braces in re.findall(r"\benum\b[^{;]*(\{[^}]*\})", body)
               for n in re.findall(r"\b([A-Z][A-Z0-9_]+)\b", braces)]
    return [r"(?<![\w.>])%s\(|[(,=&]\s*%s\s*[,)};]" % (n, n) for n in calls] + \
        [r"(?<![\w.>])%s\b" % n for n in values]


def needless(source, before, bodies, headers):
    """No version of an included source uses a name that is replaced before it, or has a name of its
    own that the test uses."""
    return bool(bodies) and not any(
        any(re.search(p, body) for p in replaced(before, headers)) or
        any(re.search(p, bare(source)) for p in own_names(body)) for body in map(bare, bodies))


def unity_problems(name, source, bodies, headers):
    """Sources that a test includes, without a true reason beside them why it does not link them.
    bodies: texts of all sources by the last part of their name; headers: of those of tests."""
    problems = []
    code = re.sub(r'(?m)^\s*#\s*include\s.*\.c".*', "", COMMENT.sub(" ", source))
    masked = COMMENT.sub(lambda m: "\n".join("#" + part for part in m.group(0).split("\n")), source)
    raw, lines = source.split("\n"), masked.split("\n")
    for i, line in enumerate(raw):
        what = re.match(r'\s*#\s*include\s+"([^"]*\.c)"', line)
        if not what:
            continue
        first = i
        while first and re.match(r"\s*(#|$)|.*\\$", lines[first - 1]):
            first -= 1
        why = NOT_LINKED.search("\n".join(raw[first:i + 1]))
        named = [(clause, "".join(n)) for clause, rest in re.findall(
            r"(reaches|replaces)((?:(?!reaches|replaces).)*)", why.group(1) if why else "", re.S)
                 for n in re.findall(r"(\w+)\(\)|struct (\w+)|(\w+\.h)|\b([A-Z][A-Z_]+)\b", rest)]
        form = {"reaches": r"\b%s\b", "replaces": r"#\s*define\s+%s\b"}
        if not name.startswith(("tests/", "fuzz/")) or not named or not all(
                re.search((r'"%s"' if n.endswith(".h") else form[clause]) % re.escape(n), code)
                for clause, n in named):
            problems.append("%s: %s is not linked, and beside it is no true reason"
                            % (name, what.group(1)))
        elif needless(source, "\n".join(raw[:i]), bodies.get(os.path.basename(what.group(1))),
                      headers):
            problems.append("%s: %s could be linked: it uses no replaced name, and none of its own"
                            " is reached" % (name, what.group(1)))
    return problems


def readme_problems(names, readmes):
    """Sources of bindings/ and examples/ that the README of their room does not name: `x.c`,
    `x.{h,c}`, or as a whole `libc/`."""
    problems = []
    for name in names:
        found = re.match(r"(?:bindings|examples)/.*\.(c|h|cc|py|sh)$", name)
        room = os.path.dirname(name)
        while room and room not in readmes:
            room = os.path.dirname(room)
        if not found or not room:
            continue
        inside = os.path.relpath(name, room)
        stem = os.path.splitext(os.path.basename(name))[0]
        forms = [r"\b%s\b" % re.escape(os.path.basename(name)),
                 r"\b%s\.\{[^}]*\b%s\b" % (re.escape(stem), found.group(1))]
        forms += [r"`%s/`" % re.escape(os.path.dirname(inside))] if "/" in inside else []
        if not any(re.search(form, readmes[room]) for form in forms):
            problems.append("%s/README.md does not name %s" % (room, inside))
    return problems


def main():
    names = files()
    texts = {n: t for n in names for t in [text(n)] if t is not None}
    code = [n for n in texts if n.endswith((".c", ".h", ".cc"))]

    check("top_level", ["unexpected: " + n for n in sorted({n.split("/")[0] for n in names} - TOP)]
          + ["missing: " + n for n in ("dxpu.h", "Makefile", "README.md", "LICENSE")
             if n not in names])

    seen = known_files() if git_works() else ["known"]
    check("control_untracked_files", [] if seen == ["known"] else seen)

    check("dependency_rule", [p for n in code for p in include_problems(n, texts[n])])
    there = {"tests/t.h", "bindings/secure/s.h", "bindings/zlib/z.h",
             "bindings/a/a.h", "bindings/b/b.h", "examples/x/x.h", "dxpu.h"}
    for name, line, bad in (
            ("dxpu.h", "#include <stdio.h>", True), ("dxpu.h", "#include <string.h>", False),
            ("bindings/a/a.c", '#include "../b/b.h"', True),
            ("bindings/a/a.c", '#include "bindings/b/b.h"', True),
            ("bindings/a/a.c", '#include "a.h"', False),
            ("bindings/pcap/p.c", '#include "z.h"', True),
            ("bindings/pcap/p.c", '#include "s.h"', False),
            ("bindings/secure/s.c", '#include "z.h"', True),
            ("bindings/secure/s.c", "#include <sodium.h>", True),
            ("bindings/secure/s.c", "#include <unistd.h>", True),
            ("bindings/a/a.c", "#include <zlib.h>", True),
            ("bindings/zlib/z.c", "# include <zlib.h>", False),
            ("bindings/zlib/z.c", "#include <sys/uio.h>", False),
            ("bindings/a/a.c", '#include "examples/x/x.h"', True),
            ("spec/t.c", '#include "examples/x/x.h"', True),
            ("tests/t.c", '#include "examples/x/x.h"', False),
            ("examples/y/y.c", '#include "../x/x.h"', False),
            (EMBED + "e.c", '#include "../x/x.h"', True),
            (EMBED + "e.c", '#include "examples/x/x.h"', True),
            (EMBED + "e.c", '#include "tests/t.h"', True),
            (EMBED + "e.c", '#include "a.h"', False),
            (EMBED + "e.c", '#include "dxpu.h"', False),
            ("examples/y/y.c", '#include "bindings/a/a.h"', False)):
        seen = include_problems(name, line + "\n", there.__contains__)
        check("control_dependency_%s_%s" % (re.sub(r"\W+", "_", name),
                                            re.sub(r"\W+", "_", line[8:].strip())),
              [] if bool(seen) == bad else [line])

    bodies, headers = {}, {}
    for n in code:
        if n.endswith(".c"):
            bodies.setdefault(os.path.basename(n), []).append(texts[n])
        elif n.startswith(("tests/", "fuzz/")):
            headers[os.path.basename(n)] = texts[n]
    check("sources_included",
          [p for n in code for p in unity_problems(n, texts[n], bodies, headers)])
    some = {"calls.c": ["void *g(void) { return malloc(1); }\n"],
            "plain.c": ["static int width(int v) /* malloc() */\n{ return t.malloc(\"\"); }\n"]}
    for case, name, source, bad in (
            ("reached", "tests/t.c", '#include "x.c" /* not linked: reaches f() */\nf();\n', False),
            ("replaced", "tests/t.c", "/* Not linked: replaces malloc(). */\n"
             '#define malloc f\n#include "x.c"\n', False),
            ("by_a_header", "fuzz/t.c", '/* Not linked: replaces calls by s.h. */\n#include "s.h"\n'
             '#include "x.c"\n#include "y.c"\n', False),
            ("no_reason", "tests/t.c", '#include "x.c"\nf();\n', True),
            ("far_away", "tests/t.c", '/* not linked: reaches f() */\nf();\n#include "x.c"\n',
             True),
            ("not_reached", "tests/t.c", '#include "x.c" /* not linked: reaches f() */\n', True),
            ("not_replaced", "tests/t.c", "/* Not linked: replaces malloc(). */\n"
             '#include "x.c"\nmalloc();\n', True),
            ("used", "tests/t.c", "/* Not linked: replaces malloc(). */\n#define malloc(n) f(n)\n"
             '#include "calls.c"\n', False),
            ("unused", "tests/t.c", "/* Not linked: replaces malloc(). */\n#define malloc(n) f(n)\n"
             '#include "calls.c"\n#include "plain.c"\nint malloc_it;\n', True),
            ("used_no_longer", "tests/t.c", "#define malloc f\n#undef malloc\n"
             "/* Not linked: replaces malloc(). */\n" '#include "calls.c"\n', True),
            ("used_by_a_header", "fuzz/t.c", '/* Not linked: replaces calls by s.h. */\n'
             '#include "s.h"\n#include "calls.c"\n', False),
            ("unused_by_a_header", "fuzz/t.c", '/* Not linked: replaces calls by s.h. */\n'
             '#include "s.h"\n#include "plain.c"\nint width = t.width;\n', True),
            ("static", "tests/t.c", '#include "plain.c" /* not linked: reaches width() */\n'
             "width(1);\n", False),
            ("product", "examples/t.c", '#include "x.c" /* not linked: reaches f() */\nf();\n',
             True)):
        seen = unity_problems(name, source, some, {"s.h": "#define malloc(n) f(n)\n"})
        check("control_sources_included_" + case, [] if bool(seen) == bad else [source, *seen])

    readmes = {os.path.dirname(n): texts[n] for n in texts if n.endswith("/README.md")}
    check("readmes_name_files", readme_problems(names, readmes))
    rooms = {"bindings/a": "`a.{h,c}`, `libc/`", "examples": "`a/a.py`"}
    check("control_readmes_name_files", [] if len(readme_problems(
        ["bindings/a/a.h", "bindings/a/a.c", "bindings/a/b.c", "bindings/a/libc/x.h",
         "bindings/a/a.cc", "bindings/a/libd/x.h", "examples/a/a.py", "spec/x.c"], rooms)) == 3
          else readme_problems(["bindings/a/b.c"], rooms))
    check("line_length", ["%s:%d: %d columns" % (n, i, len(line)) for n in texts
                          if n.endswith((".c", ".h", ".cc", ".py", ".sh")) or n == "Makefile"
                          for i, line in enumerate(texts[n].split("\n"), 1) if len(line) > 100])
    check("function_length", [p for n in code if not n.startswith(("tests/", "fuzz/"))
                              for p in long_functions(n, texts[n])])
    check("control_function_length", [] if long_functions("x", "{\n" + "\n" * 60 + "}\n") else [""])
    check("one_way", [p for n in code for p in second_ways(n, texts[n])])
    for line, bad in (('fprintf(stderr, "x");', True), ('fputs("x",\n      stderr);', True),
                      ('perror("x");', True), ('report_begin(&r, stderr, false);', False),
                      ('if (!strcmp(argv[i], "--json"))', True), ('argv[i] = word;', False),
                      ('while (getopt(argc, argv, "v") > 0)', True),
                      ("rename(part, path);", True), ("durable_rename(part, path);", False),
                      ("fd = mkstemp(part);", True),
                      ('printf("{\\"%s\\":%d}", n, v);', True), ('puts("\\"x\\"");', False)):
        seen = [second_ways(n, line) for n in ("examples/box/x.c", "examples/embed/x.c")]
        check("control_one_way_" + re.sub(r"\W+", "_", line),
              [] if bool(seen[0]) == bad and not seen[1] else [line])
    check("headers_one_way", [p for n in code for p in copied_headers(n, texts[n])])
    for line, bad in (("enum { TYPE_IP6 = 0x86dd };", True), ("if (type == 0x8100)", False),
                      ("sum = (sum & 0xffffu) + (sum >> 16);", True),
                      ("id = (key & 0xffff) + (bus << 16);", False)):
        check("control_headers_one_way_" + re.sub(r"\W+", "_", line),
              [] if bool(copied_headers("bindings/x.c", line)) == bad else [line])
    check("bytes_one_way", [p for n in code for p in copied_loads(n, texts[n])])
    for line, bad in (("v = (unsigned)p[0] << 8 | p[1];", True),
                      ("v = p[i] | p[i + 1] << 8;", True), ("(uint32_t)b->at[0] << 24 | x", True),
                      ("c = p[0] << 16 | p[1] << 8 | p[2];", False),
                      ("p[0] = (uint8_t)(v >> 8);\n    p[1] = (uint8_t)v;", True),
                      ("p[0] = (uint8_t)v;\n    p[1] = (uint8_t)(v >> 8);", True),
                      ("b[] = { (uint8_t)v, (uint8_t)(v >> 8) };", True),
                      ("b[] = { 1, (uint8_t)(v->n >> 8), (uint8_t)v->n };", True),
                      ("b[] = { (uint8_t)v, (uint8_t)w, (uint8_t)(v >> 8) };", False),
                      ("p[0] = (uint8_t)(v >> 8); /* p[0] << 8 | p[1] */", False)):
        check("control_bytes_one_way_" + re.sub(r"\W+", "_", line),
              [] if bool(copied_loads("x", line)) == bad else [line])
    check("file_budgets", ["%s has %d lines, more than %d" % (n, texts[n].count("\n"), most)
                           for n, most in (("dxpu.h", 6000), ("Makefile", 240),
                                           ("README.md", 130), (".github/CONTRIBUTING.md", 60),
                                           (".clang-format", 17))
                           if n in texts and texts[n].count("\n") > most])
    check("no_machine_path", ["%s: %s" % (n, m.group(0)) for n in texts
                              for m in [MACHINE_PATH.search(texts[n])] if m])
    check("control_machine_path", [] if MACHINE_PATH.search("see /" "home/x") else [""])
    unnamed = re.compile(r"fuzz/corpus/\w+/(?:found-|[0-9a-f]{12,}$)")
    check("seeds_named_or_packed", ["%s: run fuzz/seeds.py pack" % n for n in names
                                    if unnamed.match(n)])
    check("control_seeds_named", [] if unnamed.match("fuzz/corpus/tlp/found-0a1b") else [""])
    workflows = [n for n in texts if n.startswith(".github/workflows/")]
    check("workflows_pinned", [p for n in workflows for p in unpinned(n, texts[n])]
          if workflows else ["no workflows"])
    check("control_workflows_pinned", [] if len(unpinned("x", (
        "  - uses: a/b@v4\n    container: debian:12\n  image: [\"debian:13\"]\n  - uses: a/b@%s\n"
        "    image: debian:12@sha256:%s\n" % ("0" * 40, "0" * 64)))) == 3 else [""])
    check("nothing_unfinished", ["%s: %s" % (n, m.group(0)) for n in texts
                                 for m in [UNFINISHED.search(texts[n])] if m])
    prose = [n for n in texts if not n.startswith(("spec/vectors/", "fuzz/corpus/"))]
    check("text_ends_with_newline", [n for n in prose if texts[n] and texts[n][-1] != "\n"])
    check("no_trailing_blanks", ["%s:%d" % (n, i) for n in prose
                                 for i, line in enumerate(texts[n].split("\n"), 1)
                                 if line.endswith((" ", "\t"))])
    if clang_format_version() != FORMATTER:
        print("skip clang_format the tree is formatted by version %d" % FORMATTER)
    else:
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", *code], cwd=ROOT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check("clang_format", done.stdout.splitlines()[:40] if done.returncode else [])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
