#!/usr/bin/env python3
"""What make dist makes: archives with the same bytes wherever they are made, which build by
themselves, and one file per binding, which compiles alone, all of them in one program.
DXPU_WHOLE=1 builds all of the archive, a program of each file alone, and as C++."""
# run.py: --timeout 900
import os
import re
import subprocess
import sys
import tarfile
import tempfile

import make
from make import ROOT, check, run

WHOLE = bool(os.environ.get("DXPU_WHOLE"))
# Their functions compile as C++; build.py compiles them so before they are one file.
PLUS_TOO = ("control", "model", "vswitch", "zlib") if WHOLE else ()
# Together in one program: not the firmware, nor two libraries that define the same struct.
TOGETHER = [{"firmware", "af-xdp"}, {"firmware", "pcap"}]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def read(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def made(tree, umask=0o022):
    """{name: bytes} of make dist in a tree."""
    before = os.umask(umask)
    try:
        status, out = run("make", "-C", tree, "dist", "LEVEL=1")  # the best takes longest
    finally:
        os.umask(before)
    check("dist_%s" % (os.path.basename(tree) if tree != ROOT else "here"), status == 0, out)
    place = os.path.join(tree, "build", "dist")
    return {n: read(os.path.join(place, n), "rb") for n in sorted(os.listdir(place))
            if os.path.isfile(os.path.join(place, n))}


def archive(directory, name, data):
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(data)
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        tar.extractall(directory)
    os.unlink(path)
    owners = {(m.uid, m.gid) for m in members}
    times = {m.mtime for m in members}
    last = int(run("git", "log", "-1", "--format=%ct")[1])
    check("dist_owner_and_time_" + name, owners == {(0, 0)} and times == {last}, (owners, times))
    names = [m.name for m in members if not m.isdir()]
    return names


def whole(directory, name):
    """The sources, by themselves: nothing beside them is needed, and no git."""
    place = os.path.join(directory, name)
    status, out = run("make", "-C", place, "-n", "all")
    check("dist_plans_all", status == 0 and "dxpu-manager" in out, out)
    status, out = run("make", "-C", place, "-j2",
                      *(["all"] if WHOLE else ["CFLAGS=-O0 -w", "build/bindings/sodium.linked"]))
    check("dist_builds", status == 0, out)
    if WHOLE:
        status, out = run(os.path.join(place, "build", "dxpu"), "--version")
        check("dist_program_runs", status == 0 and name.replace("-", " ") in out, out)


def compiled(directory, name, text, compiler="cc", std="-std=c11", more=()):
    source = os.path.join(directory, "user." + ("cc" if "++" in compiler else "c"))
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    return run(compiler, std, *STRICT, "-I", os.path.join(directory, name), source, "-o",
               source + ".out", *more)


def libraries(header):
    """What the file's first comment says that it is linked with."""
    found = re.search(r"Libraries: (.*?)\. \*/", header, re.S)
    return [] if not found or found.group(1) == "none" else found.group(1).split()


USE = "#define DXPU_IMPLEMENTATION\n%sint main(void)\n{\n    return (int)dxpu_crc32(0, 0, 0);\n}\n"


def single(directory, name):
    parts = sorted(n[5:-2] for n in os.listdir(os.path.join(directory, name)))
    rooms = [n.replace("_", "-") for n in os.listdir(os.path.join(ROOT, "bindings"))
             if os.path.exists(os.path.join(ROOT, "bindings", n, "room.mk"))
             and n != "bytes"]  # which others have within them
    check("single_files", parts == sorted(rooms), parts)
    below = {}
    for part in parts:
        line = '#include "dxpu-%s.h"\n' % part
        below[part] = libraries(read(os.path.join(directory, name, "dxpu-%s.h" % part)))
        more = ["-DDXPU_AF_XDP=1", *below[part]] if "-lxdp" in below[part] else below[part]
        more = more if WHOLE else [*more, "-fsyntax-only"]
        status, out = compiled(directory, name, USE % line, more=more)
        check("single_%s" % part, status == 0, out)
        status, out = compiled(directory, name, "%sint main()\n{\n}\n" % line, "c++", "-std=c++11",
                               ["-fsyntax-only"])
        check("single_%s_declares_cxx" % part, status == 0, out)
        if part in PLUS_TOO:
            status, out = compiled(directory, name, USE % line, "c++", "-std=c++11", more)
            check("single_%s_cxx" % part, status == 0, out)
    for number, without in enumerate(TOGETHER if WHOLE else TOGETHER[:1]):
        chosen = ["zlib"] + [p for p in parts if p not in without and p != "zlib"]
        lines = "".join('#include "dxpu-%s.h"\n' % p for p in chosen)
        status, out = compiled(directory, name, USE % lines,
                               more=[w for p in chosen for w in below[p]])
        check("single_together_%d" % number, status == 0, out)


def main():
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode:
        print("skip dist this tree is not a clone")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        here = made(ROOT)
        clone = os.path.join(directory, "clone")
        status, out = run("git", "-c", "safe.directory=*", "clone", "-q", ROOT, clone)
        check("dist_clone", status == 0, out)
        there = made(clone, 0o077)
        check("dist_same_bytes", here == there, [n for n in here if here[n] != there.get(n)])
        check("dist_files", len(here) == 3 and "SHA256SUMS" in here, sorted(here))
        archives = sorted((n for n in here if n.endswith(".gz")), key=len)
        tracked = run("git", "ls-tree", "-r", "--name-only", "HEAD")[1].split()
        names = archive(directory, archives[0], here[archives[0]])
        base = archives[0][:-len(".tar.gz")]
        check("dist_all_files", sorted(names) == sorted(base + "/" + n for n in tracked))
        archive(directory, archives[1], here[archives[1]])
        whole(directory, base)
        single(directory, base + "-single")
    return 1 if make.failed else 0


if __name__ == "__main__":
    sys.exit(main())
