#!/usr/bin/env python3
"""Nothing that bindings/secure, bindings/sodium and bindings/portable do takes longer or looks
elsewhere because of a secret (S-113, S-190).

The C tests of keys run under valgrind's memcheck with all secrets marked as undefined
(ct/taint.c).  A branch or an address that depends on one is then reported with its line, and
fails when that line is in one of the three; libsodium and the tests may do as they like.  Controls:
tests/proof/ct/leak.c does it on purpose, and each of its ways must be seen.

`make check` runs all of unit_noise and unit_stream: the Noise handshakes and sealed streams.  Of
api_sodium it runs altered opens and resets (test_s3*), channels over a bad network, replays, the
old key, and key files; of unit_portable RFC 8439, Poly1305's corners, and X25519 of points of small
order.  With DXPU_ROUNDS (make check-long) it runs the rest of api_sodium, too (handshakes, cookies,
new keys, enrollment, random frames, a million lies), and X25519, BLAKE2b and the AEAD of portable
beside libsodium's; and every byte of a message, and every TLP over the bad network, where one of 23
is tried otherwise.
"""
# run.py: --timeout 900
# make: build/pic/dxpu_core.o
import argparse
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402

ROOT = rooms.ROOT
# Those that draw or agree on keys, with patterns of what of them runs.
PART = ["test_s3*", "test_s40_c*", "test_s42*", "test_s45*", "test_s6*"]
# The thousand agreements of a vector take a minute there, and find nothing that ten do not.
QUICK = ["test_s190_rfc8439", "test_s2_*", "test_s190_poly1305_*"]
LONG = "DXPU_ROUNDS" in os.environ
TESTS = {"unit_noise": ["*"], "unit_stream": ["*"],
         "unit_portable": QUICK + (["test_s190_*_as_libsodium"] if LONG else []),
         "api_sodium": ["*"] if LONG else PART}
# Of tests that try each byte, which all run the same instructions.
STEP = dict(os.environ) if LONG else dict(os.environ, DXPU_STEP="23")
PARTS = ("portable", "secure", "sodium")
KINDS = ("Conditional jump or move depends on uninitialised", "Use of uninitialised value")
failed = 0


def say(good, name, *why):
    global failed
    failed += not good
    print(("ok " if good else "not ok ") + name)
    for line in why if not good else ():
        print("  " + line)


def wrapped():
    with open(os.path.join(ROOT, "tests", "proof", "ct", "taint.c"), encoding="utf-8") as file:
        text = file.read()
    names = set(re.findall(r"^int __wrap_(\w+)\(", text, re.M))
    names |= set(re.findall(r"^void __wrap_(\w+)\(", text, re.M))
    for name in re.findall(r"^AEAD_COMBINED\((\w+)\)", text, re.M):
        names |= {name + "_encrypt", name + "_decrypt"}
    for name, after in re.findall(r"^AEAD_DETACHED\((\w+), (\w*)", text, re.M):
        names |= {name + "_encrypt_detached" + after, name + "_decrypt_detached" + after}
    return sorted(names)


def sources():
    return sorted(p for part in PARTS
                  for p in glob.glob(os.path.join(ROOT, "bindings", part, "*.c")))


FLAGS = ["-std=c11", "-O2", "-g", "-I" + ROOT,
         *["-I" + os.path.join(ROOT, "bindings", part) for part in PARTS],
         "-I" + os.path.join(rooms.TESTS, "support"), "-pthread"]
KNOWN = ["-include", os.path.join(ROOT, "tests/proof/ct/known.h")]


def compiler(*words):
    """What is wrong, or ""."""
    done = subprocess.run(["cc", *FLAGS, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return done.stdout[-2000:] if done.returncode else ""


def compiled(folder, files):
    """({source: object}, what is wrong): what several programs are linked with.  dxpu.h and all but
    one of the bindings are as `make` builds them; that one marks for memcheck what may be known."""
    objects, why = {}, ""
    for file in files:
        name = os.path.relpath(file, ROOT)[:-2]
        objects[file] = os.path.join(ROOT, "build", name + ".o")
        if not name.startswith(("bindings/secure/", "bindings/sodium/")):
            objects[file] = os.path.join(folder, os.path.basename(file) + ".o")
            why = why or compiler(*KNOWN, "-c", "-o", objects[file], file)
        with open(objects[file], "rb") as made:  # by which memcheck knows whose code it is
            why = why or ("" if b"debug_line" in made.read() else objects[file] + " has no lines")
    return objects, why


def build(folder, name, files, known=True):
    """The path of a program, built as it is shipped but for the wrappers; or why there is none."""
    program = os.path.join(folder, name)
    why = compiler(*(KNOWN if known else []), "-o", program, *files,
                   *["-Wl,--wrap=" + name for name in wrapped()], "-lcmocka", "-lsodium")
    return (None, why) if why else (program, None)


def leaks(program, parts=()):
    """What memcheck reports, [(text, function, file, line)] by the innermost frame; the status."""
    log = program + ".log"
    done = subprocess.run(["valgrind", "--tool=memcheck", "--leak-check=no", "--num-callers=12",
                           "--error-limit=no", "--log-file=" + log, program],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=1500,
                          env=dict(STEP, CT_TESTS=" ".join(parts)))
    found = []
    with open(log, encoding="utf-8", errors="replace") as file:
        blocks = re.split(r"==\d+== \n", file.read())
    for block in blocks:
        lines = [re.sub(r"^==\d+== ?", "", line).strip() for line in block.splitlines()]
        kind = next((line for line in lines if line.startswith(KINDS)), None)
        frames = [re.match(r"(?:at|by) 0x[0-9A-F]+: (\S+) \((?:in )?([^:)]*):?(\d*)\)", line)
                  for line in lines]
        frames = [f.groups() for f in frames if f]
        # valgrind's own memcmp and strlen stand for the caller's
        frames = [f for f in frames if "vg_replace" not in f[1] and "vgpreload" not in f[1]]
        if kind and frames:
            found.append((kind, *frames[0]))
    return found, done


def run_test(name, program, ours):
    found, done = leaks(program, TESTS[name])
    seen = sorted({"%s: %s (%s:%s)" % f for f in found if f[2] in ours})
    passed = re.findall(r"(?m)^\[       OK \] (\w+)", done.stdout)
    for part in TESTS[name]:
        good = not seen and fnmatch.filter(passed, part) and done.returncode == 0
        say(good, "ct_" + name + (" " + part if part != "*" else ""), *seen,
            *(["it failed, or no test ran", done.stdout[-800:]] if not seen else []))


def main():
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not shutil.which("valgrind") or not os.path.exists("/usr/include/valgrind/memcheck.h"):
        print("skip ct valgrind is not installed")
        return 0
    ours = {os.path.basename(path) for part in PARTS
            for path in glob.glob(os.path.join(ROOT, "bindings", part, "*.[ch]"))}
    with tempfile.TemporaryDirectory() as folder:
        taint = os.path.join(ROOT, "tests/proof/ct/taint.c")
        objects, why = compiled(folder, [taint, *sources()])
        say(not why, "ct_objects_build", why)
        program, why = (None, why) if why else build(
            folder, "leak", [os.path.join(ROOT, "tests/proof/ct/leak.c"), objects[taint]])
        say(program, "ct_control_builds", why or "")
        found, done = leaks(program) if program else ([], None)
        for way in ("branch", "address", "compare", "none") if program else ():
            seen = [f for f in found if f[1:3] == (way, "leak.c")]
            say(done.returncode == 0 and bool(seen) == (way != "none"), "ct_sees_" + way,
                str(found), done.stdout[-500:])
        shared = [objects[taint], os.path.join(ROOT, "build", "pic", "dxpu_core.o")]
        others = [objects[p] for p in sources() if "portable" not in p]
        program, why = (None, why) if why else build(
            folder, "unmarked", [rooms.c_test("unit_portable"), *shared, *others], known=False)
        found = leaks(program, ["test_s190_aead_*"])[0] if program else []
        say(any(f[2] == "dxpu_portable.c" for f in found), "ct_sees_portable", why or str(found))
        for name in TESTS if program else ():
            source = rooms.c_test(name)
            with open(source, encoding="utf-8") as file:
                text = file.read()
            parts = shared[:1] if "DXPU_IMPLEMENTATION" in text else shared[:]
            parts += [objects[p] for p in sources()
                      if not re.search(r'#include "[^"]*%s"' % os.path.basename(p), text)]
            program, why = build(folder, name, [source, *parts])
            if not program:
                say(False, "ct_" + name, why)
                continue
            run_test(name, program, ours)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
