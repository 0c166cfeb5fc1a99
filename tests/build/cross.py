#!/usr/bin/env python3
"""The tests of dxpu.h on other machines and by other compilers.

    tests/build/cross.py        a part on a big-endian machine (s390x), for `make check`
    tests/build/cross.py --all  all of it there, 32-bit (i686), aarch64 and riscv64, every
                                optimisation, clang, link-time optimisation, musl, strict alignment,
                                what is read before it was written, valgrind, and what static
                                analysers say: `make cross`

Programs for other machines are built static and run under qemu-user; cross.sh fetches their
compilers, musl.sh that for musl.  MemorySanitizer sees all of a test, since cmocka is built
with it, too; the C library's calls it knows.  Controls: each machine prints its byte order and
pointer size; a copy of dxpu.h that takes the machine's byte order for granted must fail on the
big-endian one (at the CRC by eight tables another), one that leaves memory as it was under
MemorySanitizer, one that loads 32 bits at once where alignment is strict; valgrind must see a
program that reads beyond what it has and one that loses it; and the program with musl says that it
is without glibc.

api_crc compares with a CRC made bit by bit, and with zlib; other machines have no zlib, and here
dxpu.h's own replaces it (tests of this machine compare with the true one).
"""
# run.py: --timeout 1200
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402

ROOT = rooms.ROOT
FOLDER = os.path.join(ROOT, "build", "other")
TESTS = ["unit_tlp", "unit_route", "unit_flow", "unit_wire", "unit_channel", "unit_paths",
         "prop_tlp", "api_crc", "api_vectors", "api_contract", "unit_frames", "api_captures",
         "api_names"]
FAST = {"s390x": ["unit_tlp", "unit_route", "unit_wire", "api_vectors"]}
# Those that run with the large table of the CRC, too.
EIGHT_TABLES, FAST_EIGHT = ["api_crc", "unit_wire"], {"s390x": ["api_crc"]}
MACHINES = {"s390x": ("big", 8), "i686": ("little", 4), "aarch64": ("little", 8),
            "riscv64": ("little", 8)}
QEMU = {"i686": "i386"}
KIND = """#include <stdio.h>
int main(void)
{
    unsigned one = 1;
    printf("%s %d", *(unsigned char *)&one ? "little" : "big", (int)sizeof(void *));
    return 0;
}
"""
# Of both orders: (high) is 0 in big-endian loads.
HIGH = "        return (uint32_t)dxpu_get_##order##16(p + 2 * (high)) << 16 |"
LOAD32 = HIGH.ljust(99) + "\\\n               dxpu_get_##order##16(p + 2 * (low));"
NATIVE = "uint32_t v; memcpy(&v, p, 4); return (high) ? v : __builtin_bswap32(v);"
AT_ONCE = ("uint32_t v = *(const uint32_t *)(const void *)p; "
           "return (high) ? v : __builtin_bswap32(v);")
ZEROED = "        dxpui_zero(base, (size_t)a.used);"
FOUR_BYTES = "crc ^= dxpu_get_le32(p);"
AS_THEY_STAND = "uint32_t v; memcpy(&v, p, 4); crc ^= v;"
ZLIB = """#include "dxpu.h"
#define ZLIB_VERSION "is not here: dxpu.h's own"
#define crc32_z(crc, p, len) dxpu_crc32((uint32_t)(crc), (p), (len))
"""
FAULTS = """#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    char *volatile lost = malloc(16);
    int seen = argc > 1 && *argv[1] == 'r' ? lost[16] : argc;
    if (argc > 1 && *argv[1] == 'l')
        lost = NULL;
    free(lost);
    return seen == -1000;
}
"""
LIBC = """#include <stdio.h>
int main(void)
{
#ifdef __GLIBC__
    printf("glibc");
#else
    printf("another");
#endif
    return 0;
}
"""
WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef", "-Werror"]
# What analysers say that is not a fault, and why; everything else they say is a failure.
QUIET = [
    # arguments of one type are in the order of the wire, and units are in their names
    "bugprone-easily-swappable-parameters",
    # a macro's text is an initialiser, which takes no parentheses
    "bugprone-macro-parentheses",
    # small numbers: dwords of a header, classes, frames of a window (16,384 at most), 4 bytes each
    "bugprone-implicit-widening-of-multiplication-result",
    # a result that only an assert looks at, which is compiled out here
    "clang-analyzer-deadcode.DeadStores",
    # fields of dxpu_channel stand by what they are for; there is one of it an attachment
    "clang-analyzer-optin.performance.Padding",
    # wants Annex K's memcpy_s, which no C library here has
    "clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling"]
ANALYSERS = {
    "clang_tidy": ["clang-tidy", "--quiet", "--header-filter=dxpu.h", "--warnings-as-errors=*",
                   "-checks=-*,clang-analyzer-*,bugprone-*," + ",".join("-" + q for q in QUIET),
                   "FILE", "--", "-x", "c", "-std=c99", "-I."],
    "cppcheck": ["cppcheck", "--quiet", "--error-exitcode=1", "--std=c99", "--language=c",
                 "--enable=warning,portability", "-UDXPU_CONFIG_HEADER", "-UDXPU_CRC32", "-I.",
                 "FILE"],
    "gcc_analyzer": ["gcc", "-std=c99", "-O1", "-fanalyzer", *WARN, "-I.", "-c", "-o",
                     "/dev/null", "FILE"],
}
failed = 0


def say(good, name, text=""):
    global failed
    failed += not good
    lines = text.strip().splitlines()
    print("%s %s %s" % ("ok" if good else "not ok", name, lines[0] if lines and good else ""))
    for line in ([] if good else lines[-20:]):
        print("  " + line)
    sys.stdout.flush()


def run(words, timeout=600, **more):
    try:
        done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=timeout, check=False, **more)
        return done.returncode, done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)


class Machine:
    """A compiler with its flags, and how what it builds is run."""

    def __init__(self, name, compiler, flags, runner, links):
        self.name, self.compiler, self.flags = name, compiler, flags
        self.runner, self.links = runner, links
        self.made, self.lock = None, threading.Lock()

    def build(self, source, out, first=()):
        os.makedirs(os.path.dirname(out), exist_ok=True)
        return run([*self.compiler, "-std=c11", *self.flags, *first, "-I.", "-Ibindings/zlib",
                    "-Itests/support",
                    "-I" + os.path.join(FOLDER, "zlib"), "-pthread", "-o", out, source,
                    *self.library(source, first), *self.links])

    def library(self, source, first):
        """The implementation, for tests that see public symbols only: compiled once for all of
        them, but not where a test has a dxpu.h of its own."""
        with open(os.path.join(ROOT, source), encoding="utf-8") as file:
            own = "DXPU_IMPLEMENTATION" in file.read()
        if own or "tests/" not in source:
            return []
        text = os.path.join(FOLDER, "library.c")
        if first:
            return [text]
        with self.lock:
            made = os.path.join(FOLDER, self.name, "library.o")
            if not self.made:
                rc, said = run([*self.compiler, "-std=c11", *self.flags, "-I.", "-c", "-o", made,
                                text])
                self.made = made if rc == 0 else text  # which then says what is wrong
                say(rc == 0, "library_for_" + self.name, said)
        return [self.made]

    def test(self, test, first=(), folder=""):
        out = os.path.join(FOLDER, self.name + folder, test)
        rc, text = self.build(os.path.relpath(rooms.c_test(test), ROOT), out, first)
        if rc:
            return rc, text
        env = dict(os.environ, DXPU_SEEDS="20")
        env.pop("CMOCKA_MESSAGE_OUTPUT", None)
        rc, text = run([*self.runner, out], env=env)
        passed = re.search(r"\[  PASSED  \] (\d+ test)", text)
        return rc, ("%s(s)" % passed.group(1) if passed and rc == 0 else text)


def other(folder, name, level):
    tool = QEMU.get(name, name)
    qemu = shutil.which("qemu-" + tool) or os.path.join(folder, "bin", "qemu-" + tool)
    return Machine("%s_%s" % (name, level), [os.path.join(folder, "bin", name + "-linux-gnu-gcc")],
                   ["-" + level, "-static", "-I" + os.path.join(folder, "include")], [qemu],
                   [os.path.join(folder, name + "-linux-gnu", "libcmocka.a")])


def with_cmocka(name, compiler, flags, folder):
    """A compiler for which cmocka is built from its source."""
    made = os.path.join(FOLDER, name, "cmocka.o")
    include = os.path.join(folder, "include")
    os.makedirs(os.path.dirname(made), exist_ok=True)
    rc, text = run([*compiler, "-std=gnu11", *flags, "-w", "-DHAVE_CONFIG_H", "-I" + include, "-c",
                    "-o", made, os.path.join(include, "cmocka.c")])
    if rc:
        say(False, "cmocka_for_" + name, text)
    return Machine(name, compiler, [*flags, "-I" + include], [], [made])


def memory(folder):
    return with_cmocka("msan", ["clang"], ["-O1", "-g", "-fsanitize=memory"], folder)


def strict():
    return Machine("strict_alignment", ["gcc"], ["-O1", "-g", "-Wcast-align=strict", "-Werror",
                                                 "-fsanitize=alignment",
                                                 "-fno-sanitize-recover=alignment"],
                   [], ["-lcmocka"])


def musl(folder):
    rc, text = run([os.path.join(ROOT, "tests", "build", "musl.sh")])
    if rc:
        say(False, "machine_musl", text)
        return None
    machine = with_cmocka("musl", [text.strip()], ["-O2", "-g", "-static"], folder)
    out = os.path.join(FOLDER, "musl", "libc")
    rc, text = machine.build(os.path.join(FOLDER, "libc.c"), out)
    rc, text = (rc, text) if rc else run([out])
    say(rc == 0 and text == "another", "control_musl_is_no_glibc", text)
    return machine


def natives():
    for compiler in ("gcc", "clang"):
        for level in ("O0", "O1", "O2", "O3"):
            yield Machine("%s_%s" % (compiler, level), [compiler], ["-" + level], [], ["-lcmocka"])
    yield Machine("gcc_lto", ["gcc"], ["-O3", "-flto"], [], ["-lcmocka"])
    yield Machine("valgrind", ["gcc"], ["-O1", "-g"],
                  ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full"], ["-lcmocka"])


def control_copy(machine, folder, test, sign, first=()):
    """The test must fail, by this sign, with the copy of dxpu.h in that directory."""
    rc, text = machine.test(test, ["-I" + os.path.join(FOLDER, folder), *first], "_" + folder)
    say(rc != 0 and sign in text, "control_%s_fails_on_%s" % (folder, machine.name), text)


def eight_tables(machine):
    return Machine(machine.name + "_crc8", machine.compiler,
                   [*machine.flags, "-DDXPU_CRC_TABLES=8"], machine.runner, machine.links)


def valgrind_controls(machine):
    out = os.path.join(FOLDER, machine.name, "faults")
    rc, text = machine.build(os.path.join(FOLDER, "faults.c"), out)
    say(rc == 0, "control_valgrind_builds", text)
    for way, sign in (("reads", "Invalid read of size 1"), ("leaks", "definitely lost"),
                      ("none", None)):
        rc, text = run([*machine.runner, out, way])
        good = rc == 9 and sign in text if sign else (rc, text) == (0, "")
        say(good, "control_valgrind_sees_" + way, "" if good else text)


def controls(machine, name, every):
    source, out = os.path.join(FOLDER, "kind.c"), os.path.join(FOLDER, machine.name, "kind")
    rc, text = machine.build(source, out)
    rc, text = (rc, text) if rc else run([*machine.runner, out])
    say(rc == 0 and text == "%s %d" % MACHINES[name], "control_machine_" + machine.name, text)
    if name == "s390x":
        control_copy(machine, "native_order", "unit_wire", "FAILED TEST")
    if name == "s390x" and every:
        control_copy(eight_tables(machine), "native_crc", "api_crc", "FAILED TEST")


def analyse():
    for name, words in ANALYSERS.items():
        if not shutil.which(words[0]):
            say(False, "analyser_" + name, words[0] + " is not installed")
            continue
        for file in ("library.c", "broken.c"):
            rc, text = run([os.path.join(FOLDER, file) if w == "FILE" else w for w in words])
            if file == "library.c":
                say(rc == 0, "analyser_" + name, text)
            else:
                say(rc != 0, "control_analyser_%s_sees_a_fault" % name)


def prepare():
    for copy in ("native_order", "native_crc", "not_zeroed", "loads_at_once", "zlib"):
        os.makedirs(os.path.join(FOLDER, copy), exist_ok=True)
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        text = file.read()
    say(all(text.count(t) == 1 for t in (LOAD32, ZEROED, FOUR_BYTES)), "control_text_stands_once")
    for path, words in (
            ("kind.c", KIND), ("libc.c", LIBC), ("zlib/zlib.h", ZLIB), ("faults.c", FAULTS),
            ("native_crc/dxpu.h", text.replace(FOUR_BYTES, AS_THEY_STAND)),
            ("native_order/dxpu.h", text.replace(LOAD32, NATIVE)),
            ("not_zeroed/dxpu.h", text.replace(ZEROED, "        (void)base;")),
            ("loads_at_once/dxpu.h", text.replace(LOAD32, AT_ONCE)),
            ("library.c", '#define DXPU_IMPLEMENTATION\n#include "dxpu.h"\n'),
            ("broken.c", "int at(int i);\nint at(int i)\n{\n    int *none = 0, a[2] = { 1, 2 };\n"
                         "    return i ? a[i > 1 ? 1 : 0] : *none;\n}\n"
                         "int use(void);\nint use(void)\n{\n    return at(0);\n}\n")):
        with open(os.path.join(FOLDER, path), "w", encoding="utf-8") as file:
            file.write(words)


def checked(folder):
    """Tests that look at what the program does, not where it runs."""
    watched, careful, small = memory(folder), strict(), musl(folder)
    control_copy(watched, "not_zeroed", "unit_channel", "use-of-uninitialized-value")
    control_copy(careful, "loads_at_once", "unit_wire", "misaligned address", ["-w"])
    return [(machine, test) for machine in (watched, careful, small) if machine for test in TESTS]


def main():
    global failed
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--all", action="store_true")
    every = words.parse_args().all
    prepare()
    names = list(MACHINES if every else FAST)
    rc, text = run([os.path.join(ROOT, "tests", "build", "cross.sh"), *names])
    jobs = []
    for name in names:
        if rc:
            print("skip machine_%s %s" % (name, text.strip()))
            failed += every  # `make cross` wants them
            continue
        for level in ("O0", "O3") if every else ("O0",):
            machine = other(text.strip(), name, level)
            controls(machine, name, every)
            jobs += [(machine, test) for test in (TESTS if every else FAST[name])]
            jobs += [(eight_tables(machine), test)
                     for test in (EIGHT_TABLES if every else FAST_EIGHT[name])]
    jobs += checked(text.strip()) if every and rc == 0 else []
    for machine in natives() if every else ():
        jobs += [(machine, test) for test in TESTS]
        if machine.name == "valgrind":
            valgrind_controls(machine)
    with concurrent.futures.ThreadPoolExecutor(2 if every else 1) as pool:
        for (machine, test), (rc, text) in zip(jobs, pool.map(lambda j: j[0].test(j[1]), jobs)):
            say(rc == 0, "%s_on_%s" % (test, machine.name), text)
    if every:
        analyse()
        print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
