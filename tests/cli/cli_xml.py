#!/usr/bin/env python3
"""The command `dxpu xml`: well-formed, and QEMU's options in it are those that are meant.

Environment: DXPU_BIN (default build/dxpu)."""
# SPDX-License-Identifier: MIT
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
BIN = os.path.join(BIN, "dxpu") if os.path.isdir(BIN) else BIN
QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"


def run(*words):
    return subprocess.run([BIN, "xml", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)


def domain(*words):
    """The element, QEMU's options, the names of its root ports."""
    top = tree.fromstring(run(*words).stdout)
    arguments = [a.get("value") for a in top.iter(QEMU + "arg")]
    return top, arguments, [a.get("name") for a in top.iter("alias")]


@case
def one_function():
    top, arguments, ports = domain("/run/a.sock")
    device = json.loads(arguments[-1])
    check(top.find("memoryBacking/access").get("mode") == "shared" and not ports, ports)
    check(arguments[0] == "-global" and arguments[-2] == "-device", arguments)
    check(device == {"driver": "vfio-user-pci",
                     "socket": {"type": "unix", "path": "/run/a.sock"}}, device)


@case
def functions_of_their_own():
    _, arguments, ports = domain("--direct", "--slots", "3", "/run/a.sock")
    devices = [json.loads(a) for a in arguments if a != "-device"]
    check(ports == ["ua-rp1", "ua-rp2", "ua-rp3"], ports)
    check([d["bus"] for d in devices] == ports, arguments)
    check([d["socket"]["path"] for d in devices] == ["/run/a.sock.%d" % n for n in (1, 2, 3)],
          arguments)


@case
def plugged_by_qmp():
    top, arguments, ports = domain("--direct", "--slots", "2", "--qmp", "/run/q,1", "--reserve",
                                   "8G", "/run/a.sock")
    room = [(d.get("alias"), d.find("*/" + QEMU + "property").get("value"))
            for d in top.iter(QEMU + "device")]
    check(arguments == ["-qmp", "unix:/run/q,,1,server=on,wait=off"], arguments)
    check(room == [(p, str(8 << 30)) for p in ports] and len(ports) == 2, room)


@case
def names_are_escaped():
    name = "/run/<a> & 'b' \"c\" \\d"
    _, arguments, _ = domain(name)
    check(json.loads(arguments[-1])["socket"]["path"] == name, arguments)


@case
def wrong_usage():
    wrong = [[], ["a.sock"], ["/" + "a" * 108], ["--qmp", "/q", "/a"], ["--slots", "2", "/a"],
             ["--direct", "--qmp", "q", "/a"], ["--direct", "--slots", "29", "/a"],
             ["--reserve", "8G", "/a"], ["/a", "/b"]]
    for words in wrong:
        check(run(*words).returncode == 2, words)


if __name__ == "__main__":
    sys.exit(main())
