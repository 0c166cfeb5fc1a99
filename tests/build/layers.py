#!/usr/bin/env python3
"""Permitted uses: the rooms' fragments (room.mk) against the table below, and what a forbidden
include and a forbidden call come to."""
import os
import re
import subprocess
import sys
import tempfile

import tree

ROOT = tree.ROOT
PURE = ["bindings/" + b for b in tree.PURE]
# Each of these may use those before it.
COMMON = ["examples/common/" + c for c in ("base", "guard", "fabric", "control", "program")]
PROGRAMS = ["examples/" + p for p in ("host", "box", "manager", "cli", "device", "render")]
DEVICES, DEMO = "examples/devices", "examples/demo"
failed = 0


def check(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems:
        print("  " + problem)


def may_use(room, other):
    """Whether files of a room may include and call those of another."""
    binding = other.startswith("bindings/")
    if room.startswith("bindings/"):
        return other in PURE
    if room in COMMON:
        return binding or other in COMMON[:COMMON.index(room)]
    if room == DEVICES:
        return other in (COMMON[0], "bindings/push")
    if room in PROGRAMS:
        return binding or other in COMMON or other == DEVICES
    if room == "examples/inject":
        return other == "bindings/model"
    if room == DEMO:
        return binding or other in COMMON or other in (DEVICES, "examples/host")
    if room in ("fuzz", "tests/bench"):
        return not other.startswith("tests/") and other != DEMO
    tested = {"tests/sim": [], "tests/core": [], "tests/bindings": []}
    own = "examples/" + room[len("tests/"):]
    if room == "tests/common":
        return binding or other in COMMON
    if not room.startswith("tests/"):
        return False
    mine = tested.get(room, [own])
    return binding or other in mine or any(may_use(m, other) for m in mine)


def fragments():
    """{room: {uses, inc, archives, libs: words}} as the Makefile has them."""
    told = subprocess.run(["make", "-s", "rooms"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          check=True, env={k: v for k, v in os.environ.items()
                                           if k not in ("MAKEFLAGS", "MAKELEVEL")}).stdout
    rooms = {}
    for line in told.splitlines():
        room, *fields = line.split("|")
        rooms[room.strip()] = dict(zip(("uses", "inc", "archives", "libs"),
                                       (f.split() for f in fields)))
    return rooms


def upward(rooms):
    return ["%s/room.mk: %s may not use %s" % (room, room, other)
            for room, has in rooms.items() for other in has["uses"] if not may_use(room, other)]


def by_path(names, read):
    """Includes that name a directory, and so would not ask the list of rooms."""
    return ["%s includes %s" % (name, what) for name in names for what in
            re.findall(r'(?m)^\s*#\s*include\s*"([^"]*/[^"]*)"',
                       re.sub(r"/\*.*?\*/", "", read(name), flags=re.S))]


def sources():
    return [n for n in tree.files() if n.endswith((".c", ".h", ".cc"))
            and n.startswith(("bindings/", "examples/", "tests/", "fuzz/"))]


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def attempts(rooms, folder):
    """Can a file of a room include identity_file.h, and call what is in identity_file.c?"""
    def cc(*words):
        return subprocess.run(["cc", "-std=c11", "-o", os.path.join(folder, "out"), *words],
                              cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                              ).returncode == 0

    source = os.path.join(folder, "a.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include "identity_file.h"\n')
    for room, can in (("examples/common/base", False), ("examples/devices", False),
                      ("bindings/sodium", False), ("examples/common/control", True)):
        check("include_%s_%s" % ("passes" if can else "stopped", os.path.basename(room)),
              [] if cc("-fsyntax-only", *rooms[room]["inc"], source) == can else [room])
    with open(source, "w", encoding="utf-8") as file:
        file.write("int identity_file_open();\nint main(void) { return identity_file_open(); }\n")
    for room, can in (("examples/common/base", False), ("examples/devices", False),
                      ("examples/common/guard", False), ("examples/common/control", True)):
        check("call_%s_%s" % ("passes" if can else "stopped", os.path.basename(room)),
              [] if cc(source, "-Wl,--start-group", *rooms[room]["archives"], "-Wl,--end-group",
                       *rooms[room]["libs"]) == can else [room])


def main():
    rooms = fragments()
    check("rooms_known", [r for r in rooms if not (may_use(r, "bindings/model") or r == DEVICES)]
          + [r for r in COMMON + PROGRAMS + [DEVICES, DEMO, "fuzz"] if r not in rooms])
    check("rooms_use_what_they_may", upward(rooms))
    seen = upward({"examples/common/base": {"uses": ["examples/common/fabric"]},
                   "examples/devices": {"uses": ["examples/box"]},
                   "examples/host": {"uses": ["examples/box"]},
                   "bindings/sodium": {"uses": ["bindings/libevent"]},
                   "bindings/guard": {"uses": ["examples/common/base"]}})
    check("control_rooms_use_what_they_may", [] if len(seen) == 5 else seen)
    check("includes_by_name", by_path(sources(), read))
    check("control_includes_by_name",
          [] if by_path(["x"], lambda _: '#include "../host/guest.h"\n') else [""])
    with tempfile.TemporaryDirectory() as folder:
        attempts(rooms, folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
