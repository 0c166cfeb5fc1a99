#!/usr/bin/env python3
"""The command `dxpu xml`: well-formed, and QEMU's options in it are those that are meant.

Environment: DXPU_BIN (default build/dxpu)."""
# SPDX-License-Identifier: MIT
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as tree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
BIN = os.path.join(BIN, "dxpu") if os.path.isdir(BIN) else BIN
QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
failed = 0


def report(name, problem):
    global failed
    failed += bool(problem)
    print(("not ok " if problem else "ok ") + name + (" # " + str(problem) if problem else ""))


def run(*words):
    return subprocess.run([BIN, "xml", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)


def domain(*words):
    """The element, QEMU's options, the names of its root ports."""
    top = tree.fromstring(run(*words).stdout)
    arguments = [a.get("value") for a in top.iter(QEMU + "arg")]
    return top, arguments, [a.get("name") for a in top.iter("alias")]


def one_function():
    top, arguments, ports = domain("/run/a.sock")
    device = json.loads(arguments[-1])
    return not (top.find("memoryBacking/access").get("mode") == "shared" and not ports and
                arguments[0] == "-global" and arguments[-2] == "-device" and
                device == {"driver": "vfio-user-pci",
                           "socket": {"type": "unix", "path": "/run/a.sock"}}) and arguments


def functions_of_their_own():
    _, arguments, ports = domain("--direct", "--slots", "3", "/run/a.sock")
    devices = [json.loads(a) for a in arguments if a != "-device"]
    return not (ports == ["ua-rp1", "ua-rp2", "ua-rp3"] and
                [d["bus"] for d in devices] == ports and
                [d["socket"]["path"] for d in devices] ==
                ["/run/a.sock.%d" % n for n in (1, 2, 3)]) and (arguments, ports)


def plugged_by_qmp():
    top, arguments, ports = domain("--direct", "--slots", "2", "--qmp", "/run/q,1", "--reserve",
                                   "8G", "/run/a.sock")
    room = [(d.get("alias"), d.find("*/" + QEMU + "property").get("value"))
            for d in top.iter(QEMU + "device")]
    return not (arguments == ["-qmp", "unix:/run/q,,1,server=on,wait=off"] and
                room == [(p, str(8 << 30)) for p in ports] and len(ports) == 2) and (arguments,
                                                                                     room)


def names_are_escaped():
    name = "/run/<a> & 'b' \"c\" \\d"
    _, arguments, _ = domain(name)
    return json.loads(arguments[-1])["socket"]["path"] != name and arguments


def wrong_usage():
    wrong = [[], ["a.sock"], ["/" + "a" * 108], ["--qmp", "/q", "/a"], ["--slots", "2", "/a"],
             ["--direct", "--qmp", "q", "/a"], ["--direct", "--slots", "29", "/a"],
             ["--reserve", "8G", "/a"], ["/a", "/b"]]
    return [words for words in wrong if run(*words).returncode != 2]


for case in (one_function, functions_of_their_own, plugged_by_qmp, names_are_escaped, wrong_usage):
    report(case.__name__, case())
sys.exit(1 if failed else 0)
