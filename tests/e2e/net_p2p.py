#!/usr/bin/env python3
"""What two devices of one guest send each other (spec/p2p.md): inside their box, or from box to
box, with the host's wire silent, and through the host where the guest's switch or the host says so.
The devices are endpoint test functions, the driver is in this process.  Two boxes and the host are
in network namespaces of their own.  Prints `ok NAME` for each case.  With DXPU_WHOLE a hundred
thousand ping-pongs; with --figures only a table."""
# SPDX-License-Identifier: MIT
import json
import mmap
import os
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402
import net_paths  # noqa: E402
import pool  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import BAR2, BAR4, CONFIG, ECAM, LOW  # noqa: E402

A, B = 1, 2  # slots
MEMORY, BYTES = 1 << 20, 4096
WINDOW = 1 << 20  # of a slot
COMMAND, STATUS, SOURCE, DESTINATION, SIZE = 0x04, 0x08, 0x0c, 0x14, 0x1c
COPY, GOOD, BAD = 0x20, 0x10, 0x20
ACS_CONTROL, REDIRECT, COMPLETION_REDIRECT = 0x14c, 0x4, 0x8
PINGPONGS = 100000 if os.environ.get("DXPU_WHOLE") else 200
BIG, LARGE = 64 << 20, 512 << 10  # a slot's window for its large BAR; bytes of a copy there


class Machine:
    """A guest with two endpoint test functions in slots 1 and 2."""

    def __init__(self, path):
        self.guest = vfio_client.Client(path)
        self.fd = os.memfd_create("guest")
        os.posix_fallocate(self.fd, 0, MEMORY)
        self.memory = mmap.mmap(self.fd, MEMORY)
        self.guest.map_memory(0, MEMORY, self.fd)
        for register, value in ((0x18, BAR2), (0x20, BAR4 & 0xffffffff), (0x24, BAR4 >> 32)):
            self.guest.write32(CONFIG, register, value)
        for slot in (A, B):
            self.enumerate(slot)

    def enumerate(self, slot):
        port, device = slot << 15, slot << 20
        base = self.window(slot)
        self.config(port, 0x18, slot << 16 | slot << 8)
        self.config(port, 0x20, base | base >> 16)
        big = self.big(slot)
        self.config(port, 0x24, (big + BIG - 1 >> 16 & 0xfff0) << 16 | big >> 16 & 0xfff0)
        self.config(port, 0x28, big >> 32)
        self.config(port, 0x2c, big >> 32)
        self.config(port, 0x04, 6)
        until(lambda: self.guest.read32(ECAM, device) == 0xb500104c, "a device in the slot")
        for bar, offset in enumerate((0, 0x2000, 0x4000, 0x8000)):
            self.config(device, 0x10 + 4 * bar, base + offset)
        self.config(device, 0x20, big & 0xffffffff)
        self.config(device, 0x24, big >> 32)
        self.config(device, 0x04, 6)
        control = device + self.express(device) + 8
        payload = self.guest.read32(ECAM, port + self.express(port) + 8) & 0xe0
        self.guest.write32(ECAM, control,
                           self.guest.read32(ECAM, control) & 0xff1f | payload)
        self.guest.read32(ECAM, device)

    def config(self, function, register, value):
        self.guest.write32(ECAM, function + register, value)

    def express(self, function):
        at = self.guest.read32(ECAM, function + 0x34) & 0xfc
        while self.guest.read32(ECAM, function + at) & 0xff != 0x10:
            at = self.guest.read32(ECAM, function + at) >> 8 & 0xfc
        return at

    def acs(self, slot, bits):
        self.config(slot << 15, ACS_CONTROL, bits << 16)

    @staticmethod
    def window(slot):
        return BAR2 + slot * WINDOW

    def bar(self, slot):
        """The device's memory: 8 KB."""
        return self.window(slot) + 0x4000

    @staticmethod
    def big(slot):
        """The device's large BAR, in the prefetchable window."""
        return BAR4 + slot * BIG

    def put(self, slot, data, offset=0):
        for i in range(0, len(data), 8):
            self.guest.write(LOW, slot * WINDOW + 0x4000 + offset + i, data[i:i + 8])
        self.get(slot, 8)  # it is there: else another device may read what was there before

    def get(self, slot, size, offset=0):
        at = slot * WINDOW + 0x4000 + offset
        return b"".join(self.guest.read(LOW, at + i, 8) for i in range(0, size, 8))

    def start(self, slot, source, destination, size=BYTES):
        registers = slot * WINDOW
        self.guest.write_many(LOW, [
            (registers + SOURCE, struct.pack("<Q", source)),
            (registers + DESTINATION, struct.pack("<Q", destination)),
            (registers + SIZE, struct.pack("<I", size)), (registers + STATUS, bytes(4)),
            (registers + COMMAND, struct.pack("<I", COPY))])

    def copy(self, slot, source, destination, size=BYTES):
        """The slot's device copies; whether it says that all of it was."""
        self.start(slot, source, destination, size)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            status = self.guest.read32(LOW, slot * WINDOW + STATUS)
            if status & (GOOD | BAD):
                return status & (GOOD | BAD) == GOOD
        raise AssertionError("a copy does not end")

    def close(self):
        self.guest.close()
        self.memory.close()
        os.close(self.fd)


class World(lab.Lab):
    """A host, a guest, and its two slots in one box."""

    def __init__(self, offered=True, box=()):
        super().__init__()
        self.offered, self.options = offered, box

    def __enter__(self):
        super().__enter__()
        self.box = self.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "eptest",
                              "--slots", 2, "--bar", "1M", "--json", *self.options)
        at = self.box.address()
        path = self.file("vm")
        self.host = self.start("dxpu-host", "--vfio-user", path, "--slots", 2, "--bar2", "64M",
                               "--json", "--attach", "1=%s/1,2=%s/2" % (at, at),
                               *(["--p2p"] if self.offered else []))
        self.host.says("waiting for a guest")
        self.guest = Machine(path)
        return self

    def end(self):
        """What both counted."""
        self.guest.close()
        check(self.host.stop() == 0, self.host.errors())
        check(self.box.stop() == 0, self.box.errors())
        return self.host.result(), self.box.result()


def pattern(seed, size=BYTES):
    return bytes(i * seed & 0xff for i in range(size))


def moves(m):
    """Both directions, reads and writes; what they brought is right."""
    one, two = pattern(7), pattern(13)
    m.put(B, one)
    m.memory[0:BYTES] = two
    check(m.copy(A, m.bar(B), BYTES), "A reads B")
    check(m.memory[BYTES:2 * BYTES] == one, "what A has read of B")
    check(m.copy(A, 0, m.bar(B)), "A writes B")
    check(m.get(B, BYTES) == two, "what A has written to B")
    check(m.copy(B, m.bar(A), m.bar(A) + BYTES), "B copies in A")
    check(not m.copy(A, m.bar(A), 0), "its own window")


@case
def inside_the_box_the_host_is_silent():
    with World() as w:
        moves(w.guest)
        host, box = w.end()
        check(all(host["slot_%d" % s]["peer_tlps"] == 0 for s in (A, B)), host)
        for s in (A, B):
            p2p = box["slot_%d" % s]["p2p"]
            check(p2p["out"] > 8 and p2p["in"] > 8 and not p2p["refused"], p2p)


@case
def b9_without_the_option_all_passes_the_host():
    with World(offered=False) as w:
        moves(w.guest)
        host, box = w.end()
        check(all(host["slot_%d" % s]["peer_tlps"] > 8 for s in (A, B)), host)
        check(all(box["slot_%d" % s]["p2p"]["out"] == 0 for s in (A, B)), box)


@case
def b2_acs_of_the_guest_decides():
    """Request Redirect forbids it, at the box as at the host; Completion Redirect at the other
    port, or ports of different sizes, send it through the host."""
    with World() as w:
        m = w.guest
        check(m.copy(A, m.bar(B), 0), "inside")
        m.acs(A, REDIRECT)
        check(not m.copy(A, m.bar(B), 0), "redirected to the root, which has no such memory")
        m.acs(A, 0)
        m.acs(B, COMPLETION_REDIRECT)
        check(m.copy(A, m.bar(B), 0), "through the host")
        m.acs(B, 0)
        control = (A << 15) + m.express(A << 15) + 8
        m.guest.write32(ECAM, control, m.guest.read32(ECAM, control) & 0xff1f)  # 128 bytes
        check(m.copy(A, 0, m.bar(B)), "ports of different sizes")
        check(m.get(B, BYTES) == m.memory[0:BYTES], "and that was written")
        host, box = w.end()
        reads, writes = BYTES // 512, 1
        check(host["slot_1"]["peer_tlps"] == reads + writes, host["slot_1"])
        check(box["slot_1"]["p2p"]["out"] == reads, box["slot_1"]["p2p"])


# ==== Two boxes ===================================================================================

class Wires(net_paths.Network):
    """Namespaces host, x and y, with a wire between each two of them."""

    def __enter__(self):
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.names = ["dxpu-%d-%s" % (os.getpid(), end) for end in ("host", "x", "y")]
        for name in self.names:
            self.ip("netns", "add", name)
        host, x, y = self.names
        self.wire(host, "10.78.1.1/24", x, "10.78.1.2/24", "hx")
        self.wire(host, "10.78.2.1/24", y, "10.78.2.2/24", "hy")
        self.wire(x, "10.78.3.1/24", y, "10.78.3.2/24", "xy")
        self.ip("-n", x, "route", "add", "10.78.2.0/24", "via", "10.78.3.2")
        self.ip("-n", y, "route", "add", "10.78.1.0/24", "via", "10.78.3.1")
        return self

    def bytes(self):
        """That have passed each wire, both ways."""
        counts = {}
        for at, device in ((0, "hx0"), (0, "hy0"), (1, "xy0")):
            name = self.names[at]
            shown = subprocess.run(["ip", "-n", name, "-s", "-j", "link", "show", device],
                                   capture_output=True, check=True)
            s = json.loads(shown.stdout)[0]["stats64"]
            counts[device] = s["rx"]["bytes"] + s["tx"]["bytes"]
        return counts


class Pair(lab.Lab):
    """A host, a guest, and its slots in box x and in box y, each with a key of its own."""

    def __init__(self, wires, links=True):
        super().__init__()
        self.wires, self.links = wires, links

    def key(self, name):
        return self.file(name + ".key"), self.public(name)

    def box(self, at, name, *args):
        return self.wires.inside(self.wires.names[at], lambda: self.start(
            "dxpu-box", "--listen", "10.78.%d.2:4458" % at, "--device", "eptest", "--json",
            "--bar", "1M",
            "--key", self.key(name)[0], "--peer", self.key("host")[1],
            *(["--p2p"] if self.links else []), *args))

    def __enter__(self):
        super().__enter__()
        self.boxes = [self.box(1, "x"), self.box(2, "y")]
        for box in self.boxes:
            box.address()
        peers = self.file("boxes")
        with open(peers, "w") as f:
            for at, name in ((1, "x"), (2, "y")):
                f.write("%s may=fabric at=10.78.%d.2:4458\n" % (self.key(name)[1], at))
        path = self.file("vm")
        self.host = self.wires.inside(self.wires.names[0], lambda: self.start(
            "dxpu-host", "--vfio-user", path, "--slots", 2, "--bar2", "64M", "--json", "--key",
            self.key("host")[0], "--peers", peers, "--attach",
            "1=10.78.1.2:4458/1,2=10.78.2.2:4458/1", "--p2p"))
        self.host.says("waiting for a guest")
        self.guest = Machine(path)
        if self.links:
            for box in self.boxes:
                box.says("linked to slot")
        return self

    def results(self):
        self.guest.close()
        check(self.host.stop() == 0, self.host.errors())
        for box in self.boxes:
            check(box.stop() == 0, box.errors())
        return self.host.result(), [box.result() for box in self.boxes]


class Managed(Pair):
    """The same, of a manager, all on loopback: it names boxes, epochs and keys to the host."""

    def __init__(self):
        super().__init__(None)

    def __enter__(self):
        lab.Lab.__enter__(self)
        for name, may in (("x", "box"), ("y", "box"), ("vm", "host")):
            with open(self.file("proxies"), "a") as f:
                f.write("%s may=%s\n" % (self.key(name)[1], may))
        self.manager = pool.Manager(self, "--key", self.key("manager")[0], "--peers",
                                    self.file("proxies"))
        self.boxes = [self.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "eptest",
                                 "--state", self.file(name + ".state"), *self.options_of(name))
                      for name in ("x", "y")]
        path = self.file("vm.sock")
        self.host = self.start("dxpu-host", "--vfio-user", path, "--slots", 2, "--bar2", "64M",
                               *self.options_of("vm"))
        self.host.says("waiting for a guest")
        return self

    def options_of(self, name):
        return ("--key", self.key(name)[0], "--peer", self.key("manager")[1], "--manager",
                self.manager.listen, "--manager-key", self.key("manager")[1], "--identity",
                self.file(name + ".id"), "--name", name, "--json", "--p2p")


def lend(w):
    def ask():
        hosts = [n for n in w.manager.get("/v1/nodes")["nodes"] if n["role"] == "host"]
        status, found = w.manager.ask("POST", "/v1/leases", {
            "host": hosts[0]["node"] if hosts else 1,
            "model": "eptest", "count": 2, "need": "spread"})
        return status == 201 and found
    return until(ask, "a lease of both slots")


@case
def b16_an_operator_forbids_it():
    """Linked boxes that get the order end their channel, and the host carries the rest."""
    with Managed() as w:
        at = "/v1/leases/" + lend(w)["lease"]
        m = Machine(w.file("vm.sock"))
        for box in w.boxes:
            box.says("linked to slot")
        moves(m)
        for direct, then in ((False, "forbidden"), (True, "allowed")):
            status, _ = w.manager.ask("PUT", "/v1/tenants/default", {"direct": direct})
            check(status == 200, status)
            until(lambda: w.manager.get(at)["direct"] == then, then)
            moves(m)
        m.close()
        check(w.host.stop() == 0, w.host.errors())
        for box in w.boxes:
            check(box.stop() == 0, box.errors())
        host, boxes = w.host.result(), [box.result() for box in w.boxes]
        check(sum(host["slot_%d" % s]["peer_tlps"] for s in (A, B)) > 8, host)
        check(all(b["slot_1"]["p2p"]["links_ended"] >= 1 and b["slot_1"]["p2p"]["direct"] == 1
                  for b in boxes), boxes)


@case
def b11_a_managers_leases():
    """What the manager names at attach is what the boxes link by; the end of a lease is the end."""
    with Managed() as w:
        lease = lend(w)
        m = Machine(w.file("vm.sock"))
        for box in w.boxes:
            box.says("linked to slot")
        moves(m)
        status, _ = w.manager.ask("DELETE", "/v1/leases/%s" % lease["lease"])
        check(status in (200, 202, 204), status)
        m.close()
        check(w.host.stop() == 0, w.host.errors())
        for box in w.boxes:
            check(box.stop() == 0, box.errors())
        host, boxes = w.host.result(), [box.result() for box in w.boxes]
        check(all(host["slot_%d" % s]["peer_tlps"] == 0 for s in (A, B)), host)
        check(all(b["slot_1"]["p2p"]["links_out"] > 8 for b in boxes), boxes)


def volley(m, rounds):
    """Each device in turn moves 8 bytes on in the other one's memory; they stay what they were."""
    balls = {A: b"ball one", B: b"ball two"}
    places = BYTES // 8
    for slot, ball in balls.items():
        m.put(slot, bytes(BYTES))
        m.put(slot, ball)
    for n in range(rounds):
        one, next_one = n % places * 8, (n + 1) % places * 8
        check(m.copy(B, m.bar(A) + one, m.bar(A) + next_one, 8), "ping", n)
        check(m.copy(A, m.bar(B) + one, m.bar(B) + next_one, 8), "pong", n)
    for slot, ball in balls.items():
        check(m.get(slot, 8, rounds % places * 8) == ball, "what has arrived")


@case
def ping_pongs_inside_the_box():
    with World() as w:
        volley(w.guest, PINGPONGS)
        host, box = w.end()
        check(all(host["slot_%d" % s]["peer_tlps"] == 0 for s in (A, B)), host)
        check(box["slot_1"]["p2p"]["out"] >= 3 * PINGPONGS, box["slot_1"]["p2p"])


@case
def ping_pongs_from_box_to_box():
    why = net_paths.no_namespaces()
    if why:
        return why
    with Wires() as wires, Pair(wires) as w:
        volley(w.guest, PINGPONGS)
        host, boxes = w.results()
        check(all(host["slot_%d" % s]["peer_tlps"] == 0 for s in (A, B)), host)
        check(all(b["slot_1"]["p2p"]["links_out"] >= 3 * PINGPONGS for b in boxes), boxes)


MOVES = 16


@case
def b10_from_box_to_box():
    """Each wire carries what is its own: a copy that B makes in A's memory passes none of the
    host's."""
    why = net_paths.no_namespaces()
    if why:
        return why
    with Wires() as wires, Pair(wires) as w:
        m = w.guest
        moves(m)
        before = wires.bytes()
        for _ in range(MOVES):
            check(m.copy(B, m.bar(A), m.bar(A) + BYTES), "B copies in A")
        after = wires.bytes()
        grown = {name: after[name] - before[name] for name in after}
        check(grown["xy0"] > 2 * MOVES * BYTES, grown)
        check(grown["hx0"] < MOVES * BYTES / 8, grown)
        host, boxes = w.results()
        check(all(host["slot_%d" % s]["peer_tlps"] == 0 for s in (A, B)), host)
        check(all(b["slot_1"]["p2p"]["links_out"] > 8 for b in boxes), boxes)


@case
def b10_without_its_option_a_box_links_to_none():
    why = net_paths.no_namespaces()
    if why:
        return why
    with Wires() as wires, Pair(wires, links=False) as w:
        m = w.guest
        moves(m)
        before = wires.bytes()
        for _ in range(MOVES):
            check(m.copy(B, m.bar(A), m.bar(A) + BYTES), "B copies in A")
        after = wires.bytes()
        check(after["xy0"] - before["xy0"] < 1000, before, after)
        check(after["hx0"] - before["hx0"] > 2 * MOVES * BYTES, before, after)
        host, boxes = w.results()
        check(all(host["slot_%d" % s]["peer_tlps"] > 8 for s in (A, B)), host)


def figures():
    """One device's copies in the other's memory: time of 8 bytes, and bytes a second of large ones,
    each byte read and written.  The paper's Figure 7 has 74 % between two proxies of what there is
    under one bridge."""
    def measure(m):
        small, large = [], []
        for _ in range(300):
            begin = time.monotonic()
            m.copy(A, m.bar(B), m.bar(B) + 8, 8)
            small.append(time.monotonic() - begin)
        for _ in range(7):
            begin = time.monotonic()
            check(m.copy(A, m.big(B), m.big(B) + LARGE, LARGE), "a large copy")
            large.append(LARGE / (time.monotonic() - begin) / 1e6)
        return sorted(small)[150] * 1e6, sorted(large)[3]

    rows = []
    with World(offered=False) as w:
        rows.append(("one box, through the host", measure(w.guest)))
    with World() as w:
        rows.append(("one box, inside", measure(w.guest)))
    with Wires() as wires, Pair(wires, links=False) as w:
        rows.append(("two boxes, through the host", measure(w.guest)))
    with Wires() as wires, Pair(wires) as w:
        rows.append(("two boxes, linked", measure(w.guest)))
    for name, (small, large) in rows:
        print("%-28s 8 bytes %7.0f us   512 KB %7.1f MB/s" % (name, small, large))


if __name__ == "__main__":
    if sys.argv[1:] == ["--figures"]:
        sys.exit(figures())
    sys.exit(main())
