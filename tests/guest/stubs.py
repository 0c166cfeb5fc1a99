#!/usr/bin/env python3
"""Make the guest's programs start soon: stubs in the place of libraries that no test has a use for.

    tests/guest/stubs.py ROOT

Debian's fio is linked with those of Ceph, RDMA and others, 60 MB in all, and binds each of their
symbols whenever it starts: a second of a software-emulated CPU.  nvme and lspci are linked, by
their libraries, with those for keys, D-Bus and packed modules, which are half of what the guest's
kernel unpacks.  A stub has the functions that are named and does nothing in them.  ROOT is a tree
as fetch.sh leaves it, a copy of it: what only those libraries needed goes too.  Without a C
compiler, or `nm`, nothing changes."""
# SPDX-License-Identifier: MIT
import os
import shlex
import shutil
import subprocess
import sys

USED = ("libc.", "libm.", "libz.", "libaio.", "libnuma.", "libpthread.", "libdl.", "librt.",
        "ld-linux")
UNUSED = ("libcrypto.", "libdbus-1.", "libzstd.", "liblzma.")  # whoever is linked with them


def symbols(path, *options):
    """(type, name, version) of what it defines for others, or wants of them."""
    listed = subprocess.run(["nm", "-D", *options, path], capture_output=True, text=True,
                            check=True).stdout
    for line in listed.splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.replace("@@", "@").partition("@")
        yield kind, name, version


def needed(path):
    """Names of the libraries that it is linked with."""
    listed = subprocess.run(["objdump", "-p", path], capture_output=True, text=True).stdout
    return [line.split()[1] for line in listed.splitlines() if line.split()[:1] == ["NEEDED"]]


def stub(library, wanted):
    """Write over it; False when what fio wants of it is more than functions."""
    found = [s for s in symbols(library, "--defined-only") if s[1:] in wanted]
    if any(kind not in "TWi" for kind, _, _ in found):
        return False
    versions = sorted({version for _, _, version in found} - {""})
    script = "".join("%s { global: %s };\n" % (v, " ".join(
        name + ";" for _, name, version in found if version == v)) for v in versions)
    source, versioned = library + ".c", library + ".map"
    with open(source, "w") as file:
        file.writelines("void %s(void) {}\n" % name for name in sorted({n for _, n, _ in found}))
    with open(versioned, "w") as file:
        file.write(script)
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-w", "-fno-builtin", "-shared",
                    "-fPIC", "-nostdlib", "-Wl,-soname," + os.path.basename(library), "-o",
                    library] + (["-Wl,--version-script," + versioned] if script else []) +
                   [source], check=True)
    os.remove(source)
    os.remove(versioned)
    return True


def all_needed(libraries, programs):
    """Names of the libraries that they load, those of libraries among them."""
    used, todo = set(), programs
    while todo:
        more = {name for path in todo for name in needed(path)} - used
        used |= more
        todo = [p for p in (os.path.join(libraries, name) for name in more) if os.path.exists(p)]
    return used


def main():
    root = sys.argv[1]
    if not all(map(shutil.which, (shlex.split(os.environ.get("CC", "cc"))[0], "nm", "objdump"))):
        return
    libraries, fio = os.path.join(root, "lib"), os.path.join(root, "usr/bin/fio")
    wanted = {s[1:] for s in symbols(fio, "--undefined-only")}
    for name in needed(fio):
        path = os.path.join(libraries, name)
        if not name.startswith(USED) and os.path.exists(path):
            stub(path, wanted)
    programs = [os.path.join(folder, name) for part in ("bin", "usr/bin", "usr/sbin")
                for folder, _, names in os.walk(os.path.join(root, part)) for name in names]
    links = {path: needed(path) for path in programs + [
        os.path.join(libraries, name) for name in all_needed(libraries, programs)]}
    for name in sorted(set(sum(links.values(), []))):
        path = os.path.join(libraries, name)
        if name.startswith(UNUSED) and os.path.exists(path):
            stub(path, {s[1:] for user, names in links.items() if name in names
                        for s in symbols(user, "--undefined-only")})
    for name in set(os.listdir(libraries)) - all_needed(libraries, programs):
        if ".so" in name and not name.startswith(("ld-linux", "libgcc_s")):  # the C library's own
            os.remove(os.path.join(libraries, name))


if __name__ == "__main__":
    main()
