#!/usr/bin/env python3
"""dxpu-host and a client of its vfio-user socket that is no virtual machine.

The client fills a slot's window with posted writes while the box keeps silent or dies.  Prints
`ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import signal
import socket
import struct
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "examples", "demo"))
import lab  # noqa: E402

HANG = 60  # seconds after which something hangs that takes one
VERSION, READ, WRITE, NO_REPLY = 1, 9, 10, 0x10
ECAM, WINDOW, CONFIG = 0, 4, 7  # regions
PORT = 1 << 15  # of the first slot's root port in the ECAM
BAR4 = 1 << 40
BASE = BAR4 + (1 << 20)
QUEUE = 512  # of a slot's TLPs that wait, from which on the host does not read the guest
WRITES = QUEUE + 128  # the channel takes 64 more, and the socket holds the rest
cases = []


def case(function):
    cases.append(function)
    return function


def check(truth, *shown):
    if not truth:
        raise AssertionError(" ".join(str(s) for s in shown) or "a check failed")


class Guest:
    """What QEMU says on behalf of a guest."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(HANG)
        self.socket.connect(path)
        self.number = 0
        self.send(VERSION, struct.pack("<HH", 0, 1) + b"{}\0")
        self.receive()

    def send(self, command, body, flags=0):
        self.number += 1
        self.socket.sendall(struct.pack("<HHIII", self.number & 0xffff, command, 16 + len(body),
                                        flags, 0) + body)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            check(more, "dxpu-host closed the connection")
            data += more
        return data

    def receive(self):
        number, _, size, flags, error = struct.unpack("<HHIII", self.exactly(16))
        body = self.exactly(size - 16)
        check(flags & 0xf == 1 and number == self.number & 0xffff and not error, flags, error)
        return body

    def write(self, region, at, data, posted=False):
        self.send(WRITE, struct.pack("<QII", at, region, len(data)) + data,
                  NO_REPLY if posted else 0)
        if not posted:
            self.receive()

    def write32(self, region, at, value):
        self.write(region, at, struct.pack("<I", value))

    def read32(self, region, at):
        self.send(READ, struct.pack("<QII", at, region, 4))
        return struct.unpack("<I", self.receive()[16:])[0]

    def map_slot(self):
        """Give the first slot's port its bus and a window of 1 MB at BASE, as a kernel does."""
        self.write32(CONFIG, 0x20, BAR4 & 0xffffffff)
        self.write32(CONFIG, 0x24, BAR4 >> 32)
        self.write32(ECAM, PORT + 0x18, 0x00010100)
        self.write32(ECAM, PORT + 0x24, (BASE >> 16 & 0xfff0) * 0x10001)
        self.write32(ECAM, PORT + 0x28, BASE >> 32)
        self.write32(ECAM, PORT + 0x2c, BASE >> 32)
        self.write32(ECAM, PORT + 0x04, 6)


def flood(l, end):
    """A guest writes on while its device's box says nothing any more, and then `end`(box)."""
    box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--json")
    path = l.file("vm")
    host = l.start("dxpu-host", "--vfio-user", path, "--slots", 2, "--topology", "root-ports",
                   "--attach", "1=%s/1" % box.address(), "--json")
    host.says("waiting for a guest")
    guest = Guest(path)
    guest.map_slot()
    host.says("slot 1: .* is attached")
    box.popen.send_signal(signal.SIGSTOP)
    for i in range(WRITES):
        guest.write(WINDOW, BASE - BAR4 + i * 64, bytes(64), posted=True)
    end(box)
    identity = guest.read32(ECAM, PORT)
    check(identity & 0xffff != 0xffff, "the port reads as", hex(identity))
    return box, host, guest


@case
def guest_is_read_again_after_its_device_is_lost():
    with lab.Lab() as l:
        _, host, guest = flood(l, lambda box: host_says_lost(l))
        check(guest.read32(ECAM, 1 << 20) == 0xffffffff, "the device is gone")
        for _ in range(WRITES):  # they go nowhere, and do no harm
            guest.write(WINDOW, BASE - BAR4, bytes(64), posted=True)
        check(guest.read32(ECAM, PORT) & 0xffff != 0xffff)
        check(host.stop() == 0, host.errors())
        check(host.result()["slot_1"]["dropped"] >= QUEUE, host.result()["slot_1"])


def host_says_lost(l):
    next(p for p in l.processes if p.name == "dxpu-host").says("channel lost", HANG)


@case
def guest_is_read_again_when_the_box_goes_on():
    with lab.Lab() as l:
        box, host, guest = flood(l, lambda box: box.popen.send_signal(signal.SIGCONT))
        check(guest.read32(ECAM, 1 << 20) != 0xffffffff, "the device answers behind the writes")
        check(host.stop() == 0, host.errors())
        there = host.result()["slot_1"]
        check(there["dropped"] == 0 and there["down_tlps"] >= WRITES, there)
        check(box.stop() == 0, box.errors())


def main():
    failed = 0
    for function in cases:
        if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
            continue
        try:
            function()
            print("ok " + function.__name__, flush=True)
        except Exception:
            failed += 1
            print("not ok " + function.__name__, flush=True)
            traceback.print_exc(file=sys.stdout)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
