#!/usr/bin/env python3
"""Build checks of dxpu.h: every dialect, every option, alone, twice, freestanding; the programs in
README.md and in its first comment.

    tests/build/build.py          all of them; each dialect and both levels of sizes with
                                  DXPU_WHOLE=1, else four and one
    tests/build/build.py size     text size on a Cortex-M4
    tests/build/build.py ship     only dxpu.h, in an empty directory
"""
# run.py: --timeout 600
import functools
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FREE = os.path.join(ROOT, "tests", "build", "freestanding")
ARM = os.environ.get("ARM", "arm-none-eabi-")
WARN = ("-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wvla -Wwrite-strings -Wformat=2 "
        "-Werror").split()
WARN_C = ["-Wstrict-prototypes", "-Wmissing-prototypes"]
IMPLEMENTATION = '#define DXPU_IMPLEMENTATION\n#include "dxpu.h"\n'
MEM = {"memcpy", "memset", "memmove", "memcmp"}
# Where no target is named it loads all of LLVM, for objects of link-time optimisation.
NM = ["--target=default"]
COMMENT_PROGRAM_PRINTS = "MWr of 1 dwords to 0x95e7f000\n"
failed = 0


def check(name, truth, shown=""):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name)
    if not truth:
        print("\n".join(str(shown).splitlines()[:20]))


class Folder:
    """An empty directory to compile in; include is where dxpu.h is looked for."""

    def __init__(self, include=ROOT):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = self.temporary.name
        self.include = include or self.path

    def write(self, name, text):
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def run(self, *words):
        try:
            done = subprocess.run(words, cwd=self.path, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        except FileNotFoundError as error:
            return 127, str(error)
        return done.returncode, done.stdout

    def compile(self, compiler, std, source, *more):
        plus = "++" in compiler
        return self.run(compiler, "-std=" + std, *WARN, *([] if plus else WARN_C),
                        "-I" + self.include, *more, source)

    def together(self, compiler, std, sources, *more):
        """{source: what compile() gives} of -fsyntax-only: by one command, and by one each only if
        that fails.  clang's takes all of them in one process: to start one takes longer than most.
        Of its options these are the same within and without: -D, -I, -ffreestanding."""
        if "clang" in compiler:
            done = self.run(*inner_clang(compiler, std, self.include), *more, *sources)
        else:
            done = self.compile(compiler, std, sources[0], *more, "-fsyntax-only", *sources[1:])
        return {s: (0, "") if done[0] == 0 else
                self.compile(compiler, std, s, *more, "-fsyntax-only") for s in sources}

    def symbols(self, tool, which, name):
        status, out = self.run(tool + "nm", *NM, which, name)
        assert status == 0, out
        return [(line.split()[-2], line.split()[-1]) for line in out.splitlines() if line.split()]

    def undefined(self, tool, names):
        """What each of several objects calls, by its name."""
        status, out = self.run(tool + "nm", *NM, "-A", "-u", *names)
        assert status == 0, out
        found = {name: set() for name in names}
        for name, symbol in re.findall(r"(?m)^(.*?):.* (\S+)$", out):
            found[name].add(symbol)
        return found


def without_source(shown):
    """The command that clang's driver would start, from what it shows for -### and one source, but
    for that one's name: others can follow."""
    words = [w for w in shlex.split(shown.splitlines()[-1]) if w != "-fcolor-diagnostics"]
    at = words.index("-main-file-name")
    return words[:at] + words[at + 2:-1]


@functools.lru_cache(maxsize=None)
def inner_clang(compiler, std, include):
    """That command for -fsyntax-only."""
    f = Folder(include)
    source = f.write("any" + extension(compiler), "")
    return without_source(f.compile(compiler, std, source, "-fsyntax-only", "-###")[1])


# Of each compiler one of the oldest and the newest of C and of C++; those between are no news.
DIALECTS = [("gcc", "c99"), ("g++", "c++20"), ("clang", "c17"), ("clang++", "c++11")]
# Those whose object others need, too, and those that each option is tried by.
ALONE = [("gcc", "c99"), ("g++", "c++20")]
OPTIONS_BY = [("gcc", "c99"), ("clang++", "c++11")]
# Those that whole programs are built by.
LINKERS = [("gcc", "c99"), ("g++", "c++11")]
LEVELS = ["-Os"]  # for which sizes are compared
if os.environ.get("DXPU_WHOLE"):
    DIALECTS += [("gcc", "c11"), ("gcc", "c17"), ("g++", "c++11"), ("clang", "c99"),
                 ("clang++", "c++17")]
    LINKERS += [("clang", "c11")]
    LEVELS += ["-O2"]


def extension(compiler):
    return ".cc" if "++" in compiler else ".c"


def label(*words):
    return re.sub(r"\W+", "_", "_".join(words).replace("+", "x"))


HEAD = ('#include "dxpu.h"\nint user(void);\nint user(void)\n{\n    return DXPU_OK;\n}\n')
STRAY = ('int stray(void);\nint kept;\nint puts(const char *);\n'
         'int stray(void)\n{\n    return puts("") + kept;\n}\n')
OWN_CRC = ("#include <stddef.h>\n#include <stdint.h>\n"
           "static inline uint32_t own(uint32_t crc, const void *p, size_t n)\n"
           "{\n    (void)p;\n    return crc ^ (uint32_t)n;\n}\n"
           "#define DXPU_CRC32(crc, p, n) own((crc), (p), (n))\n" + IMPLEMENTATION)
OPTIONS = ("DXPU_CRC_TABLES=1", "DXPU_CRC_TABLES=8", "DXPU_PREFIXES_MAX=4", "DXPU_STATIC=1",
           "DXPU_CHANNEL=0", "DXPU_TABLES=0")
REFUSED = ("DXPU_CRC_TABLES=0", "DXPU_CRC_TABLES=2", "DXPU_PREFIXES_MAX=3")


@functools.lru_cache(maxsize=None)
def alone(compiler, std):
    """dxpu.h as one object: what the compiler says, and the directory with body.o."""
    f = Folder()
    # gcc gives some warnings only when it optimises, some only at -O1; at -O2 as C the build is
    level = {"g++": "-O2", "gcc": "-O1"}.get(compiler, "-O0")
    return (*f.compile(compiler, std, f.write("body" + extension(compiler), IMPLEMENTATION), level,
                       "-c", "-o", "body.o"), f)


def dialects(f):
    """dxpu.h alone under every dialect, each option value, hosted and freestanding."""
    for compiler, std in DIALECTS:
        e = extension(compiler)
        texts = {"declarations": HEAD, "alone": IMPLEMENTATION}
        if (compiler, std) in ALONE:
            status, out, _ = alone(compiler, std)
            check("alone_" + label(compiler, std), status == 0, out)
            texts.pop("alone")
        if (compiler, std) in OPTIONS_BY:
            texts.update(("option_" + label(option), "#define %s\n" % option.replace("=", " ") +
                          IMPLEMENTATION) for option in OPTIONS)
            texts["option_own_crc"] = OWN_CRC
        done = f.together(compiler, std, [f.write(n + e, text) for n, text in texts.items()])
        for name in texts:
            status, out = done[name + e]
            with_std = [] if "option" in name else [std]
            check(name + "_" + label(compiler, *with_std), status == 0, out)
    for compiler, std in OPTIONS_BY:
        body = f.write("body" + extension(compiler), IMPLEMENTATION)
        for option in REFUSED:
            status, out = f.compile(compiler, std, body, "-D" + option, "-E", "-o", "refused.i")
            check("option_refused_" + label(option, compiler), status != 0 and "#error" in out, out)
    f.write("body.c", IMPLEMENTATION)
    for compiler in ("gcc", "clang"):
        status, out = f.compile(compiler, "c99", "body.c", "-m32", "-ffreestanding", "-I" + FREE,
                                "-fsyntax-only")
        check("m32_" + compiler, status == 0, out)
    sources = [f.write(n + ".cc", text) for n, text in (
        ("first", HEAD), ("wrong", "int wrong(unsigned);\nint wrong(unsigned n)\n{\n"
                                   "    return n;\n}\n"), ("last", HEAD))]
    done = f.together("clang++", "c++11", sources)
    check("control_together", [status != 0 for status, _ in done.values()] == [False, True, False],
          done)


@functools.lru_cache(maxsize=None)
def whole(level):
    """All of dxpu.h as one object: what the compiler says, and the directory with body.o."""
    f = Folder()
    f.write("body.c", IMPLEMENTATION)
    return (*f.compile("gcc", "c99", "body.c", level, "-fno-pic", "-c", "-o", "body.o"), f)


def switches(f):
    """What DXPU_CHANNEL and DXPU_TABLES leave out is about as large as section 2 says."""
    def built(level, *options):
        status, out, made = whole(level)
        if options:
            source, made = f.write("body.c", IMPLEMENTATION), f
            status, out = f.compile("gcc", "c99", source, level, "-fno-pic", *options, "-c", "-o",
                                    "body.o")
        names = [name for _, name in made.symbols("", "-g", "body.o")] if status == 0 else []
        status, size = made.run("size", "body.o") if status == 0 else (status, "")
        return out, names, int(size.split("\n")[1].split()[0]) / 1000 if status == 0 else 0
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        text = file.read()
    wholes = {level: built(level) for level in LEVELS}
    for switch, prefixes in (("DXPU_CHANNEL", ("dxpu_channel_",)),
                             ("DXPU_TABLES", ("dxpu_host_", "dxpu_box_"))):
        stated = re.search(r"#ifndef %s .*?, (\d+) KB less \((\d+) KB\)" % switch, text)
        for level, kb in zip(("-Os", "-O2"), reversed(stated.groups())):
            if level not in LEVELS:
                continue
            every, rest = wholes[level], built(level, "-D%s=0" % switch)
            left = [n for n in rest[1] if n.startswith(prefixes)]
            check("switch_%s_%s" % (switch.lower(), level[1:].lower()),
                  every[1] and rest[1] and not left and
                  abs(every[2] - rest[2] - int(kb)) <= max(1, int(kb) / 8),
                  "%s%s %s: %.1f KB less, not %s" % (every[0], rest[0], left,
                                                     every[2] - rest[2], kb))
            check("switch_%s_%s_control" % (switch.lower(), level[1:].lower()),
                  any(n.startswith(prefixes) for n in every[1]), "no such name in the whole")


def codec_alone(f):
    """A program of the codec decodes the same with the channel and the tables left out."""
    embed = os.path.join(ROOT, "examples", "embed")
    lines = "40000001 0000000f fee00000 00000041\n4a000001 00000004 00000000 deadbeef\nx\n"

    def shown(name, *options):
        status, out = f.run("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror",
                            "-I" + f.include, *options, "-o", "codec",
                            os.path.join(embed, name))
        if status != 0:
            return None, out
        done = subprocess.run([os.path.join(f.path, "codec")], input=lines, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout
    whole = shown("tlp_dump.c")
    check("codec_control", whole[0] == 1 and "mwr" in whole[1].lower() and "line 3" in whole[1],
          whole[1])
    for options in (["-DDXPU_CHANNEL=0"], ["-DDXPU_TABLES=0"],
                    ["-DDXPU_CHANNEL=0", "-DDXPU_TABLES=0"]):
        alone = shown("tlp_dump.c", *options)
        check("codec" + label(*options), alone == whole, alone[1])
    used = shown("loopback.c", "-DDXPU_CHANNEL=0")
    check("codec_control_channel", used[0] is None and "dxpu_channel" in used[1], used[1])


PURE = {"vswitch": "DXPU_VSWITCH", "control": "DXPU_CONTROL", "model": "DXPU_MODEL"}


def pure_bindings(f):
    """The bindings that are headers as dxpu.h is: all of them under every dialect, behind dxpu.h,
    which so is compiled freestanding, too; each by itself; and with functions that are static."""
    def text(names, before=""):
        macros = before + "".join("#define %s_IMPLEMENTATION\n" % PURE[name] for name in names)
        # declared before it is implemented, as in a file that includes a header of its own first
        first = ('#include "dxpu.h"\n' + IMPLEMENTATION if len(names) > 1 else
                 IMPLEMENTATION.splitlines()[0] + "\n")
        return macros + first + "".join(
            '#include "bindings/%s/dxpu_%s.h"\n' % (name, name) * 2 for name in names)
    free = ["-ffreestanding", "-I" + FREE]
    for compiler, std in DIALECTS:
        texts = {"all": text(PURE), "all_static": text(PURE, "#define DXPU_STATIC 1\n")}
        if (compiler, std) in (("gcc", "c99"), ("clang++", "c++11")):
            texts.update((name, text([name])) for name in PURE)
        sources = {n: f.write(n + extension(compiler), words) for n, words in texts.items()}
        made = {}
        if (compiler, std) == ("gcc", "c99"):
            # what is called without optimisation is all that can be, but for what is in MEM
            made["all"] = f.compile(compiler, std, sources["all"], *free, "-c", "-o", "all.o")
        done = f.together(compiler, std, [s for n, s in sources.items() if n not in made], *free)
        for name, source in sources.items():
            status, out = made.get(name) or done[source]
            if name.startswith("all"):
                check("pure_all_%s%s" % (label(compiler, std), name[3:]), status == 0, out)
            else:
                check("pure_%s_%s" % (name, label(compiler, std)), status == 0, out)
            if name == "all":
                check("freestanding_" + label(compiler, std), status == 0, out)
        if made:
            undefined = {s for kind, s in f.symbols("", "-u", "all.o") if kind == "U"}
            check("pure_needs_" + label(compiler, std), undefined <= MEM, undefined)


# Bindings of .c files that need neither a library nor an operating system, and their C.
FREESTANDING = {"firmware": "c99", "foreign": "c99", "guard": "c99", "portable": "c11",
                "push": "c99", "secure": "c11"}
FREE_INCLUDES = [*["-I" + os.path.join(ROOT, "bindings", n)
                   for n in ("acceptor", "bytes", *FREESTANDING)], "-ffreestanding", "-I" + FREE]
# What gcc calls for arithmetic that a processor has no instruction for.
ARITHMETIC = re.compile(r"__aeabi_\w+")


def freestanding_bindings(f):
    for name, std in FREESTANDING.items():
        freestanding_binding(f, name, std, with_control=name == "guard")
    sources = {name: f.write(name + ".cc", '#include "dxpu_%s.h"\n' % name)
               for name in FREESTANDING}
    for compiler, std in (("g++", "c++11"), ("clang++", "c++17")):
        done = f.together(compiler, std, list(sources.values()), *FREE_INCLUDES)
        for name, source in sources.items():
            status, out = done[source]
            check("%s_header_%s" % (name, label(compiler, std)), status == 0, out)


def freestanding_binding(f, name, std, with_control):
    """A binding without a C library, calling nothing but mem* and dxpu.h.  The control calls
    something else."""
    folder = os.path.join(ROOT, "bindings", name)
    sources = sorted(n for n in os.listdir(folder) if n.endswith(".c"))
    sources = [os.path.join(folder, n) for n in sources]
    if with_control:
        sources.append(f.write("stray.c", STRAY))
    for compiler, tool, flags in (("gcc", "", ["-O2"]), ("clang", "", ["-O2"]),
                                  (ARM + "gcc", ARM, ["-Os", "-mcpu=cortex-m4", "-mthumb"])):
        for source in sources:
            made = os.path.basename(source) + ".o"
            status, out = f.compile(compiler, std, source, *FREE_INCLUDES, *flags, "-c", "-o", made)
            check("%s_%s" % (name, label(compiler, made[:-2])), status == 0, out)
        found = f.undefined(tool, [os.path.basename(source) + ".o" for source in sources])
        called = {made[:-2]: {s for s in names if not s.startswith("dxpu_") and
                              not ARITHMETIC.match(s)} - MEM for made, names in found.items()}
        if with_control:
            check("control_%s_calls_%s" % (name, label(compiler)),
                  called.pop("stray.c") == {"puts"}, called)
        check("%s_calls_%s" % (name, label(compiler)), not any(called.values()), called)


FIRMWARE_PORT = """#include "dxpu_firmware.h"
enum { BUFFERS = 2, BYTES = 1520 };
static uint8_t bytes[4][BUFFERS * BYTES];
static volatile uint32_t lengths[4][BUFFERS];
static uint64_t memory[65536];
static dxpu_fw fw;
static dxpu_fw_slot slots[1];
static uint32_t chance(void *user)
{
    (void)user;
    return 1;
}
static bool reset(void *user, uint16_t slot)
{
    (void)user;
    return slot == 1;
}
int main(void)
{
    static const dxpu_fw_hooks hooks = { chance, reset, NULL, NULL };
    dxpu_fw_ring r[4];
    dxpu_fw_config cfg;
    for (unsigned i = 0; i < 4; i++)
        (void)dxpu_fw_ring_init(&r[i], bytes[i], lengths[i], BUFFERS, BYTES);
    dxpu_fw_config_default(&cfg);
    cfg.rx = &r[0];
    cfg.tx = &r[1];
    slots[0].to_device = &r[2];
    slots[0].from_device = &r[3];
    cfg.hooks = &hooks;
    cfg.channel.paths = 1;
    int rc = dxpu_fw_init(&fw, &cfg, slots, 1, memory, sizeof memory);
    return rc == DXPU_OK ? 0 : rc == DXPU_E_ARG ? 1 : 2;
}
"""


def firmware_options(f):
    """dxpu_fw_init() of a port, the binding and dxpu.h compiled with options that differ."""
    folder, guard, *others = (os.path.join(ROOT, "bindings", name)
                              for name in ("firmware", "guard", "acceptor", "bytes"))
    sources = {"port": f.write("port.c", FIRMWARE_PORT), "library": f.write("l.c", IMPLEMENTATION),
               "binding": os.path.join(folder, "dxpu_firmware.c"),
               "wire": os.path.join(folder, "dxpu_firmware_wire.c"),
               "guard": os.path.join(guard, "dxpu_guard.c"),
               "windows": os.path.join(guard, "dxpu_windows.c")}
    for option, value in (("", 0), ("DXPU_PATHS_MAX", 2), ("DXPU_PREFIXES_MAX", 4)):
        # those whose options are to be found out
        parts = ("port", "binding") + (() if option == "DXPU_PATHS_MAX" else ("library",))
        for part, source in sources.items():
            name = part + option + ".o"
            more = ["-D%s=%d" % (option, value)] if option else []
            work = ["-c", "-o", name] if part in parts or not option else ["-fsyntax-only"]
            status, out = f.compile("gcc", "c99", source, "-I" + folder, "-I" + guard,
                                    *("-I" + o for o in others), *more, *work)
            check("firmware_part_" + label(name), status == 0, out)
        for odd in parts if option else ("all",):
            objects = [p + (option if p == odd else "") + ".o" for p in sources]
            status, out = f.run("gcc", *objects, "-o", "port")
            check("firmware_options_" + label(odd, option), status == 0 and
                  f.run("./port")[0] == bool(option), out)


CXX_HEADERS = {"acceptor/dxpu_acceptor.h": None,  # its functions are static, as zlib's
               "secure/dxpu_noise.h": "dxpu_noise_write",
               "secure/dxpu_secure.h": "dxpu_secure_work",
               "sodium/dxpu_sodium.h": "dxpu_sodium_create",
               "sodium/dxpu_sodium_stream.h": "dxpu_sodium_stream_up",
               "libevent/dxpu_libevent.h": "dxpu_udp_use", "libevent/dxpu_tcp.h": "dxpu_tcp_drop",
               "pcap/dxpu_pcap.h": "dxpu_pcap_write_tlp", "af_xdp/dxpu_af_xdp.h": "dxpu_xdp_room",
               "vfio_user/dxpu_vfio_user.h": "dxpu_vfu_unanswered",
               "vfio_user/dxpu_vfio_user_client.h": "dxpu_vfuc_unanswered",
               "zlib/dxpu_zlib.h": None}


def cxx_headers(f):
    """The headers of the other bindings as C++; the functions have C's names, which a second
    declaration with another linkage would not."""
    secure = "-I" + os.path.join(ROOT, "bindings", "secure")
    include = {name: '#include "bindings/%s"\n' % name for name in CXX_HEADERS}
    again = {name: 'extern "%%s" decltype(%s) %s;\n' % (function, function)
             for name, function in CXX_HEADERS.items() if function}
    sources = {name: f.write(label(name) + ".cc", text + (again[name] % "C" if name in again
                                                          else ""))
               for name, text in include.items()}
    done = f.together("g++", "c++11", list(sources.values()), secure)
    for name, source in sources.items():
        status, out = done[source]
        check("cxx_" + label(name), status == 0, out)
    wrong = f.write("wrong.cc", "".join(include[n] + again[n] % "C++" for n in again))
    out = f.compile("g++", "c++11", wrong, "-fsyntax-only", secure)[1]
    seen = "".join(re.findall(r"(?m)^.*error: conflicting declaration of .* linkage$", out))
    for name in again:
        check("control_cxx_" + label(name), re.search(r"\b%s\(" % CXX_HEADERS[name], seen), out)


def linking(f):
    """One implementation with many users; several private copies in one program."""
    user = '#include "dxpu.h"\nuint32_t %s(void);\nuint32_t %s(void)\n{\n    %s}\n'
    crc = 'return dxpu_crc32(0, "123456789", 9);\n'
    main = ('#include "dxpu.h"\nuint32_t one(void);\nuint32_t two(void);\nint main(void)\n{\n'
            '    return one() == 0xcbf43926u && two() == one() ? 0 : 1;\n}\n')
    for compiler, std in LINKERS:
        e = extension(compiler)
        parts = [f.write(n + e, text) for n, text in (("main", main), ("one", user % (
            "one", "one", crc)), ("two", user % ("two", "two", crc)))]
        status, out = f.compile(compiler, std, parts[0], "-c", *parts[1:])
        parts = ["main.o", "one.o", "two.o"]
        if status == 0:
            status, out, body = alone(compiler, dict(ALONE).get(compiler, std))
        status, out = (status, out) if status else f.run(
            compiler, *parts, os.path.join(body.path, "body.o"), "-o", "whole")
        ran = f.run("./whole")[0] if status == 0 else None
        check("one_implementation_" + label(compiler), ran == 0, out)
        status, out = f.run(compiler, *parts, "-o", "whole")
        check("control_without_implementation_" + label(compiler),
              status != 0 and "dxpu_crc32" in out, out)
        # One object under two names: a second private copy need not be compiled.
        f.write("one" + e, "#define DXPU_STATIC\n#define DXPU_IMPLEMENTATION\n" +
                user % ("one", "one", 'return dxpu_crc32(0, "123456789", 9);\n'))
        status, out = f.compile(compiler, std, "one" + e, "-c", "-o", "one.o")
        names = [s for _, s in f.symbols("", "-g", "one.o")] if status == 0 else []
        other = {n: n.replace("one", "two") for n in names if "one" in n.split("dxpu")[0]}
        status, out = (status, out) if status else f.run(
            "objcopy", *("--redefine-sym=%s=%s" % pair for pair in other.items()),
            "one.o", "two.o")
        status, out = (status, out) if status else f.compile(
            compiler, std, "main.o", "one.o", "two.o", "-o", "whole")
        ran = f.run("./whole")[0] if status == 0 else None
        check("static_twice_" + label(compiler), len(other) == 1 and ran == 0, out or names)


def symbols(f):
    """What the object exports, asks for and keeps; each with a control that is seen."""
    f.write("body.c", IMPLEMENTATION)
    f.write("stray.c", STRAY)
    for name, tool, flags in (
            ("gcc", "", ["gcc", "-Os", "-fno-pic"]),
            ("cortex_m4", ARM, [ARM + "gcc", "-Os", "-mcpu=cortex-m4", "-mthumb",
                                "-ffreestanding", "-I" + FREE])):
        found, made = {}, None
        for source in ("body", "stray"):
            if (source, tool) == ("body", ""):
                status, out, made = whole("-Os")
            else:
                body, made = os.path.join(made.path if made else "", "body.o"), f
                status, out = f.compile(flags[0], "c99", source + ".c", *flags[1:], "-c",
                                        "-o", source + ".o")
            if source == "stray" and status == 0:  # behind all of the body
                status, out = f.run(flags[0], *flags[1:], "-r", "-nostdlib", body, "stray.o", "-o",
                                    "both.o")
            if source == "stray" and status == 0:
                os.replace(os.path.join(f.path, "both.o"), os.path.join(f.path, "stray.o"))
            check("object_%s_%s" % (source, name), status == 0, out)
            if status:
                return
            undefined = {s for _, s in made.symbols(tool, "-u", source + ".o")} - MEM
            exported = {s for _, s in made.symbols(tool, "-g", source + ".o")} - undefined - MEM
            kept = {s for t, s in made.symbols(tool, "-a", source + ".o") if t in "BbDdCcGgSs"
                    and not s.startswith(".")}
            found[source] = undefined, {s for s in exported if not s.startswith("dxpu_")}, kept
            if source == "body":
                check("exports_something_" + name, "dxpu_crc32" in exported, exported)
        check("nothing_undefined_but_mem_" + name, not found["body"][0], found["body"][0])
        check("only_dxpu_exported_" + name, not found["body"][1], found["body"][1])
        check("no_writable_data_" + name, not found["body"][2], found["body"][2])
        check("control_stray_seen_" + name,
              found["stray"] == ({"puts"}, {"stray", "kept"}, {"kept"}), found["stray"])


def comment_program():
    """The program in the first comment of dxpu.h."""
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        comment = file.read().split("*/", 1)[0]
    found = re.search(r"\n       #define DXPU_IMPLEMENTATION\n.*?\n       }\n", comment, re.S)
    return re.sub(r"(?m)^       ", "", found.group(0)) if found else ""


# What the loop in the manual of dxpu.h leaves to its reader.
LOOP_HARNESS = """#include "dxpu.h"
uint64_t clock_ns(void);
void tx(uint8_t path, const uint8_t *frame, size_t len);
void use(dxpu_bytes tlp);
void handle(const dxpu_event *event);
bool wait_rx(uint64_t until_ns, uint8_t *pkt, size_t *len);
int loop(dxpu_channel *ch);
int loop(dxpu_channel *ch)
{
    static uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES], pkt[DXPU_FRAME_MAX_LIMIT_BYTES];
    uint8_t path;
    size_t len;
    unsigned cls;
    dxpu_delivery d;
    dxpu_event event;
    int n;
%s    return n;
}
"""


def manual_loop():
    """The loop of a proxy in the manual of dxpu.h, its section 1."""
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        found = re.search(r"\n   THE LOOP of .*\n\n((?:       .*\n)+)", file.read())
    return re.sub(r"(?m)^   ", "", found.group(1)) if found else ""


def blocks(path):
    """Fenced blocks of a text: (language, text, language and text of the block that follows)."""
    with open(path, encoding="utf-8") as file:
        found = re.findall(r"(?m)^```(\w*)\n(.*?)^```$", file.read(), re.S)
    return [block + (found[i + 1] if i + 1 < len(found) else ("", ""))
            for i, block in enumerate(found)]


def readme_program(path="README.md"):
    for language, text, after, output in blocks(os.path.join(ROOT, path)):
        if language == "c" and "int main(" in text:
            return text, output if after == "text" else None
    return "", None


def programs(f):
    """Programs that a reader will copy must compile, run and print what is said."""
    for name, text, expected in (("comment", comment_program(), COMMENT_PROGRAM_PRINTS),
                                 ("readme", *readme_program())):
        check("program_%s_there" % name, bool(text) and expected is not None)
        for compiler, std in LINKERS:
            source = f.write(name + extension(compiler), text)
            status, out = f.compile(compiler, std, source, "-o", name)
            ran = f.run("./" + name) if status == 0 else (status, out)
            check("program_%s_%s" % (name, label(compiler)), ran == (0, expected), ran)
    sodium, secure = (os.path.join(ROOT, "bindings", name) for name in ("sodium", "secure"))
    text, expected = readme_program("bindings/sodium/README.md")
    check("program_sodium_there", bool(text) and expected is not None)
    libraries = [os.path.join(ROOT, "build", "bindings", n) for n in ("sodium.a", "secure.a")]
    status, out = f.run("gcc", "-std=c11", *WARN, *WARN_C, "-I" + ROOT, "-I" + sodium,
                        "-I" + secure, "-o", "sealed", f.write("sealed.c", text), *libraries,
                        "-lsodium")
    ran = f.run("./sealed") if status == 0 else (status, out)
    check("program_sodium_gcc", ran == (0, expected), ran)
    loop = manual_loop()
    check("manual_loop_there", loop.count("dxpu_channel_") > 5, loop)
    for name, text, works in (("manual_loop", loop, True),
                              ("control_manual_loop", loop.replace("_take(ch, ", "_take("), False)):
        for compiler, std in (("gcc", "c99"), ("clang", "c11"), ("g++", "c++11")):
            source = f.write("loop" + extension(compiler), LOOP_HARNESS % text)
            status, out = f.compile(compiler, std, source, "-fsyntax-only")
            check("%s_%s" % (name, label(compiler)), (status == 0) == works, out)
    number = 0
    for path in ("README.md", "spec/README.md"):
        for language, text, _, _ in blocks(os.path.join(ROOT, path)):
            if language == "c" and "int main(" not in text:
                number += 1
                source = f.write("block.c", text)
                status, out = f.compile("gcc", "c11", source, "-I" + ROOT, "-fsyntax-only")
                check("block_%s_%d" % (label(path), number), status == 0, out)


FAULTS = {"overflow": ("heap-buffer-overflow",
                       "char *volatile p = malloc(4); return p[argc + 2];"),
          "leak": ("LeakSanitizer", "return !malloc((size_t)argc + 2);"),
          "signed": ("signed integer overflow", "int i = 2147483646; return i + argc;"),
          "nothing": ("", "return argc - 2;")}


def sanitizers(f):
    """The flags of the sanitizer build (SAN) make faults seen, and nothing else."""
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
        text = file.read()
    flags = re.search(r"(?m)^SAN +=((?:.*\\\n)*.*)$", text).group(1)
    flags = [w for w in flags.replace("\\\n", " ").split() if "CONFIG_HEADER" not in w]
    linked = re.findall(r"-static-lib\w+", re.search(r"(?m)^FLAGS/san = (.*)$", text).group(1))
    check("sanitizers_are_linked_as_in_the_makefile", len(linked) == 2, linked)
    flags += linked
    source = f.write("faults.c", "#include <stdlib.h>\nint main(int argc, char **argv)\n{\n"
                     "    switch (*argv[1]) {\n%s    }\n    return 2;\n}\n" % "".join(
                         "    case '%s': {\n        %s\n    }\n" % (name[0], body)
                         for name, (_, body) in FAULTS.items()))
    status, out = f.run("gcc", *flags, "-o", "faults", source)
    for name, (seen, _) in FAULTS.items():
        ran = f.run("./faults", name) if status == 0 else (status, out)
        check("sanitizers_see_" + name, (ran[0] != 0) == bool(seen) and seen in ran[1], ran)


def clang_sources(f):
    """What clang says of what `make fuzz` compiles, by the commands of the Makefile: dxpu.h, the
    bindings and three rooms, in one process, as starting one takes longer than most."""
    targets = ["build/fuzz/dxpu.o", "build/fuzz/fuzz/fuzz_tlp.o"]
    out = f.run("make", "-C", ROOT, "-s", "-n", "-B", "V=1", *targets)[1].replace("\\\n", " ")

    def plan(target):
        words = shlex.split("".join(re.findall(r"(?m)^clang .* -o %s .*" % target, out)))
        return ["env", "-C", ROOT, *(w for w in words if w not in ("-MMD", "-MP")), "-fsyntax-only"]
    header = plan(targets[0])
    check("clang_header_itself", f.run(*header) == (0, ""), header)
    at = len(header) - header[::-1].index("-include")
    said = f.run(*header[:at - 1], *header[at + 1:])[1]
    check("control_clang_header_itself", "-Wunused-function" in said, said)
    words = without_source(f.run(*plan(targets[1]), "-###")[1])
    sources = [n for room in ("bindings", "examples/common", "examples/manager", "examples/render")
               for n in glob.glob(os.path.join(ROOT, room, "**", "*.c"), recursive=True)]
    stray = f.write("stray.c", "unsigned u(int);\nunsigned u(int n)\n{\n    return n;\n}\n")
    said = f.run("env", "-C", ROOT, *words, *sources, os.path.join(f.path, stray))[1]
    errors = re.findall(r"(?m)^(\S+?):.* error: .*\[(.*)\]$", said)
    check("clang_sources", len(sources) > 80 and errors == [
        (os.path.join(f.path, stray), "-Werror,-Wsign-conversion")], said)


def commands():
    """Commands that a README shows with their output (`    $ build/...`) print just that."""
    with open(os.path.join(ROOT, "examples/cli/README.md"), encoding="utf-8") as file:
        shown = re.findall(r"(?m)^    \$ (build/.*)\n((?:    [^$ ].*\n)*)", file.read())
    check("readme_shows_commands", bool(shown))
    for number, (line, expected) in enumerate(shown, 1):
        done = subprocess.run(["sh", "-c", line], cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check("readme_command_%d" % number, done.stdout == re.sub(r"(?m)^    ", "", expected),
              "$ %s\n%s" % (line, done.stdout))


def size():
    """Print the text size for a Cortex-M4 and fail on anything undefined but mem*."""
    f = Folder()
    f.write("body.c", IMPLEMENTATION)
    for option in ("-DDXPU_CRC_TABLES=1", "-DDXPU_CRC_TABLES=8"):
        status, out = f.run(ARM + "gcc", "-std=c99", "-mcpu=cortex-m4", "-mthumb", "-Os",
                            "-ffreestanding", "-I" + FREE, "-I" + ROOT, option, "-c",
                            "-o", "body.o", "body.c")
        if status:
            print(out)
            return 1
        undefined = {s for _, s in f.symbols(ARM, "-u", "body.o")} - MEM
        text, data, bss = f.run(ARM + "size", "body.o")[1].splitlines()[1].split()[:3]
        print("%s: text %s, data %s, bss %s bytes; undefined but mem*: %s"
              % (option[2:], text, data, bss, ", ".join(sorted(undefined)) or "nothing"))
        if undefined:
            return 1
    return 0


def ship():
    """dxpu.h and nothing else in an empty directory, used in the ways the README names."""
    f = Folder(include="")
    shutil.copy(os.path.join(ROOT, "dxpu.h"), f.path)
    text, expected = readme_program()
    for compiler, std in (("cc", "c99"), ("c++", "c++11")):
        source = f.write("main" + extension(compiler), text)
        status, out = f.compile(compiler, std, source, "-o", "main")
        check("ship_" + label(std), status == 0 and f.run("./main") == (0, expected), out)
    f.write("body.c", IMPLEMENTATION)
    status, out = f.compile(ARM + "gcc", "c99", "body.c", "-mcpu=cortex-m4", "-mthumb", "-Os",
                            "-ffreestanding", "-I" + FREE, "-c", "-o", "body.o")
    check("ship_cortex_m4", status == 0, out)
    f.write("main.c", "#define DXPU_STATIC\nint other(void);\n" +
            text.replace("int main(void)\n{\n", "int main(void)\n{\n    (void)other();\n", 1))
    f.write("other.c", "#define DXPU_STATIC\n" + IMPLEMENTATION + "int other(void);\n"
            "int other(void)\n{\n    return DXPU_VERSION_NUM;\n}\n")
    status, out = f.compile("cc", "c99", "main.c", "other.c", "-o", "main")
    check("ship_static_twice", status == 0 and f.run("./main") == (0, expected), out)


def main():
    if sys.argv[1:] == ["size"]:
        return size()
    if sys.argv[1:] == ["ship"]:
        ship()
    else:
        for group in (dialects, switches, codec_alone, pure_bindings, freestanding_bindings,
                      firmware_options, cxx_headers, linking, symbols, programs, sanitizers,
                      clang_sources):
            group(Folder())
        commands()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
