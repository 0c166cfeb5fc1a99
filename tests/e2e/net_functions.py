#!/usr/bin/env python3
"""Functions of one NVMe device in slots of their own, each lent to a dxpu-host with a driver
(nvme_client.py): what a reset of one changes for another, what they share, and how fairly.

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import os
import re
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402
import nvme_client  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import DEVICE, ECAM, PORT  # noqa: E402

V4 = "127.0.0.1:0"
DEPTH, BLOCK = 4, 4096
MEMORY = 9 << 20
WRITE, READ = 1, 2
FLR, HOT_RESET = 0x8000, 1 << 22  # of Device Control, of a port's Bridge Control
DEVICE_CONTROL = nvme_client.DEVICE_CONTROL


class Load:
    """A driver's verified load on a function: DEPTH commands at once, each writes a block or reads
    one back."""

    def __init__(self, n, disk, data_at=nvme_client.DATA_AT):
        self.n, self.disk, self.data_at = n, disk, data_at
        self.left, self.ended, self.written = {}, 0, {}

    def pattern(self, block, count):
        return struct.pack("<IIQ", self.n, block, count) * (BLOCK // 16)

    def begin(self, place):
        at = self.data_at + place * BLOCK
        block = place * 8 + self.ended % 8
        if block in self.written and self.ended % 3:
            self.disk.memory[at:at + BLOCK] = bytes(BLOCK)
            opcode = READ
        else:
            self.written[block] = self.ended
            self.disk.memory[at:at + BLOCK] = self.pattern(block, self.ended)
            opcode = WRITE
        self.left[self.disk.put(1, opcode, prp=at, dw10=block)] = (opcode, place, block)

    def load(self):
        for place in range(DEPTH):
            self.begin(place)
        self.disk.ring(1)
        return self

    def work(self):
        """What is over, verified, and as many further ones; how many."""
        self.disk.reap(1)
        over = [cid for cid in self.left if cid in self.disk.done]
        for cid in over:
            opcode, place, block = self.left.pop(cid)
            check(self.disk.done.pop(cid) == 0, "host", self.n, opcode)
            at = self.data_at + place * BLOCK
            if opcode == READ:
                check(self.disk.memory[at:at + BLOCK] == self.pattern(block, self.written[block]))
            self.ended += 1
            self.begin(place)
        if over:
            self.disk.ring(1)
        return len(over)

    def goes_on(self, count=20):
        """As many more commands are over, and right."""
        to = self.ended + count
        until(lambda: self.work() >= 0 and self.ended >= to, "host %d goes on" % self.n)

    def stands_still(self):
        """What was over before the reset is, and nothing since: half a second, in which others do
        hundreds."""
        self.work()
        end, before = time.monotonic() + 0.5, self.ended
        while time.monotonic() < end:
            time.sleep(0.01)  # others have the processor
            self.work()
        return self.ended == before and len(self.left) == DEPTH

    def config(self, register, value=None):
        return self.disk.config(register, value)

    def drive(self):
        """Set the function up again, as its driver does after a reset."""
        self.disk.place()
        self.left, self.written = {}, {}  # writes that were under way may not have happened
        self.disk.enable()
        return self.load()

    def identify(self, cns, nsid=0):
        at = self.data_at + DEPTH * BLOCK
        self.disk.must(0x06, nsid=nsid, prp=at, dw10=cns)
        return bytes(self.disk.memory[at:at + 4096])


class Host(Load):
    """Number n: its function is in slot n of the box, and its driver runs."""

    def __init__(self, l, box, n):
        path = l.file("vm%d" % n)
        self.process = l.start("dxpu-host", "--vfio-user", path, "--node", 100 + n, "--slots", 1,
                               "--attach", "1=%s/%d" % (box, n))
        self.process.says("waiting for a guest")
        super().__init__(n, nvme_client.Disk(path, 1, MEMORY))


def start(l, functions, *more):
    """A box with one device of `functions` functions, one in each slot."""
    options = ["--slot", "1=nvme,block=4096,size=16M,file=" + l.file("image1")]
    for n in range(2, functions + 1):
        options += ["--slot", "%d=function,of=1,block=4096,size=16M,file=%s" %
                    (n, l.file("image%d" % n))]
    box = l.start("dxpu-box", "--listen", V4, "--slots", functions, *options, *more)
    return box, box.address()


def counter(box, slot, name):
    box.statistics()
    last = box.errors().rsplit("\nslot_%d\n" % slot, 1)[-1]
    return int(re.search(r"^ +%s +(\d+)$" % name, last, re.M).group(1))


SRIOV, VF_BAR, VF_BYTES = 0x160, 0x80000, 0x4000
CONTROL, TOTAL, NUMBER, STRIDE, VF_DEVICE, VF_BAR0 = (SRIOV + n for n in
                                                      (0x08, 0x0c, 0x10, 0x14, 0x18, 0x24))
VF_ENABLE, VF_MEMORY, VF_ARI = 1, 8, 16
ARI_FORWARDING = 0x20  # of a port's Device Control 2


def extended(load):
    at, found = 0x100, []
    while at:
        head = load.config(at)
        found.append(head & 0xffff)
        at = head >> 20
    return found


@case
def s250_functions_of_one_device_are_reset_apart():
    """A function level reset and a hot reset of one, while the other's host has I/O under way, in
    both directions; each is seen to take what is under way at its own."""
    with lab.Lab() as l:
        box, to = start(l, 2)
        hosts = [Host(l, to, n).load() for n in (1, 2)]
        resets = {n: counter(box, n, "function_resets") for n in (1, 2)}
        for reset in ("flr", "hot"):
            for one, other in (hosts, hosts[::-1]):
                for host in hosts:
                    host.goes_on()
                if reset == "flr":
                    one.config(0x68, DEVICE_CONTROL | FLR)
                else:
                    control = one.disk.guest.read32(ECAM, PORT + 0x3c)
                    one.disk.guest.write32(ECAM, PORT + 0x3c, control | HOT_RESET)
                    other.goes_on()
                    one.disk.guest.write32(ECAM, PORT + 0x3c, control)
                other.goes_on(100)
                check(one.stands_still(), "control: a reset is seen where it is made")
                other.goes_on()
                check(other.disk.get(0x1c) == 1 and other.config(0x04) & 6 == 6)
                check(other.config(0x68) & 0xffff == DEVICE_CONTROL)
                check(counter(box, other.n, "function_resets") == resets[other.n])
                check(counter(box, one.n, "function_resets") > resets[one.n])
                one.drive().goes_on()
                resets = {n: counter(box, n, "function_resets") for n in (1, 2)}
        check(box.stop() == 0, box.errors())


@case
def s250_what_functions_share_and_what_not():
    """One NVM subsystem with a controller each; no namespace, no block and no register of
    another."""
    with lab.Lab() as l:
        box, to = start(l, 3)
        hosts = [Host(l, to, n) for n in (1, 2, 3)]
        pages = [host.identify(1) for host in hosts]
        check(len({page[4:24] for page in pages}) == 1, "serial number")
        check(len({page[768:1024] for page in pages}) == 1, "NQN")
        check([struct.unpack("<H", page[78:80])[0] for page in pages] == [1, 2, 3], "CNTLID")
        check(all(page[76] == 2 for page in pages), "CMIC")
        check(all(struct.unpack("<H", page[256:258])[0] == 2 for page in pages), "OACS")
        check(len({host.identify(3, nsid=1)[:20] for host in hosts}) == 3, "UUIDs of namespaces")
        for host in hosts:
            check(struct.unpack("<II", host.identify(2)[:8]) == (1, 0), "one namespace each")
            check(host.disk.do(0x0d, nsid=0) == 1 and host.disk.do(0x15, nsid=1) == 1)
            at = nvme_client.DATA_AT
            host.disk.memory[at:at + BLOCK] = host.pattern(7, host.n)
            check(host.disk.do(WRITE, q=1, dw10=7) == 0)
        for host in hosts:
            at = nvme_client.DATA_AT
            check(host.disk.do(READ, q=1, dw10=7) == 0)
            check(host.disk.memory[at:at + BLOCK] == host.pattern(7, host.n))
            # an ordinary endpoint: function 0 alone, no SR-IOV, no ARI; its BARs are its own
            check(host.config(0x0c) >> 16 & 0xff == 0, "multi-function")
            check(host.config(0x1000) == 0xffffffff, "a function 1")
            check(extended(host) == [0x0001, 0x0003], extended(host))
        check(box.stop() == 0, box.errors())


@case
def s250_a_function_is_the_same_without_another():
    """Its controller and its namespace are those of its slot, also at a start that leaves another
    function out."""
    with lab.Lab() as l:
        found = []
        for two in ("function,of=1,block=4096,size=16M,file=" + l.file("image2"), "none"):
            one = "1=nvme,serial=same,block=4096,size=16M,file=" + l.file("image1")
            box = l.start("dxpu-box", "--listen", V4, "--slots", 3, "--slot", one, "--slot",
                          "2=" + two, "--slot",
                          "3=function,of=1,block=4096,size=16M,file=" + l.file("image3"))
            host = Host(l, box.address(), 3)
            page = host.identify(1)
            found.append((page[4:24], page[768:1024], page[78:80], host.identify(3, nsid=1)[:20]))
            check(host.process.stop() == 0 and box.stop() == 0, box.errors())
        check(found[0] == found[1], found)


def emitted(box, count):
    """TLPs of each slot's device until now."""
    box.statistics()
    shown = box.errors()
    return [int(re.search(r"^  emitted +(\d+)$", shown.rsplit("\nslot_%d\n" % n, 1)[-1],
                          re.M).group(1)) for n in range(1, count + 1)]


def queue_reads(host, kib):
    """A full queue of long reads, for one ring of its doorbell: its driver does nothing more."""
    at, pages = nvme_client.DATA_AT, nvme_client.DATA_AT + (512 << 10)
    host.disk.memory[pages:pages + 512] = b"".join(struct.pack("<Q", at + BLOCK * n)
                                                   for n in range(1, 65))
    for _ in range(62):
        host.disk.put(1, READ, prp=at, prp2=pages if kib > 8 else at + BLOCK, dw12=kib // 4 - 1)


@case
def s250_much_that_waits_for_one_keeps_no_other():
    """A full queue of long reads of one function, and behind it, a full queue of short ones of each
    other: these are over long before those are, by what the box counts.  No driver does anything
    meanwhile."""
    count, tlps = 4, (62 * (256 << 10) // 512, 62 * (8 << 10) // 512)
    with lab.Lab() as l:
        box, to = start(l, count)
        hosts = [Host(l, to, n) for n in range(1, count + 1)]
        begun = emitted(box, count)
        for host in hosts:
            queue_reads(host, 256 if host is hosts[0] else 8)
        for host in hosts:
            host.disk.ring(1)
        now, end = [0] * count, time.monotonic() + 60
        while min(now[1:]) < tlps[1]:
            time.sleep(0.01)
            now = [after - before for after, before in zip(emitted(box, count), begun)]
            check(time.monotonic() < end, "only", now)
        print("# %s TLPs of %d and %d" % (now, *tlps))
        check(now[0] < tlps[0] / 2, now)
        until(lambda: emitted(box, count)[0] - begun[0] >= tlps[0], "the long ones are over, too")
        check(box.stop() == 0, box.errors())


@case
def s250_as_many_functions_as_there_can_be():
    """33, whose drivers are served one after the other here: each gets as many commands done."""
    with lab.Lab() as l:
        box, to = start(l, 33)
        hosts = [Host(l, to, n) for n in range(1, 34)]
        for host in hosts:
            host.load()
        total, end = 0, time.monotonic() + 120
        while total < 33 * 60:
            total += sum(host.work() for host in hosts)
            check(time.monotonic() < end, "only", total)
        least, most = min(h.ended for h in hosts), max(h.ended for h in hosts)
        print("# %d commands, %d to %d of a function" % (total, least, most))
        check(least * 33 >= 0.9 * total and most * 33 <= 1.1 * total, [h.ended for h in hosts])
        check(box.stop() == 0, box.errors())


@case
def s251_a_device_lent_whole_keeps_its_functions():
    """Three functions in one slot: each has its numbers, its BAR, its requests and its reset."""
    with lab.Lab() as l:
        files = ",".join("file=" + l.file("part%d" % n) for n in range(3))
        box = l.start("dxpu-box", "--listen", V4, "--json", "--slot",
                      "1=nvme,functions=3,block=4096,size=16M," + files)
        first = Host(l, box.address(), 1)
        loads = [first] + [Load(n + 1, nvme_client.Function(first.disk, n),
                                nvme_client.DATA_AT + n * (64 << 10)) for n in (1, 2)]
        check([load.config(0x0c) >> 16 & 0xff for load in loads] == [0x80] * 3, "multi-function")
        check(first.disk.guest.read32(ECAM, DEVICE + (3 << 12)) == 0xffffffff, "no function 3")
        pages = [load.identify(1) for load in loads]
        check([struct.unpack("<H", page[78:80])[0] for page in pages] == [1, 2, 3], "CNTLID")
        check(len({page[4:24] for page in pages}) == 1 and
              len({load.identify(3, nsid=1)[:20] for load in loads}) == 3)
        for load in loads:
            load.load()
        for one in loads[1:] + loads[:1]:
            others = [load for load in loads if load is not one]
            for load in loads:
                load.goes_on()
            one.config(0x68, DEVICE_CONTROL | FLR)
            for load in others:
                load.goes_on(50)
            check(one.stands_still(), "control: a reset is seen where it is made")
            for load in others:
                check(load.disk.get(0x1c) == 1 and load.config(0x04) & 6 == 6)
                load.goes_on()
            one.drive().goes_on()
        # without Bus Master Enable a function asks for nothing, and each other one goes on
        loads[1].config(0x04, 2)
        loads[1].config(0x04)
        check(loads[1].stands_still())
        for load in (loads[0], loads[2]):
            load.goes_on()
        loads[1].config(0x68, DEVICE_CONTROL | FLR)
        loads[1].drive().goes_on()
        # a hot reset of the slot is one of all
        control = first.disk.guest.read32(ECAM, PORT + 0x3c)
        first.disk.guest.write32(ECAM, PORT + 0x3c, control | HOT_RESET)
        first.disk.guest.write32(ECAM, PORT + 0x3c, control)
        check(all(load.stands_still() for load in loads))
        for load in loads:
            load.drive().goes_on()
        for n, load in enumerate(loads):
            with open(l.file("part%d" % n), "rb") as file:
                check(struct.unpack("<I", file.read(4))[0] == load.n, "whose blocks these are")
        check(box.stop() == 0, box.errors())


@case
def s252_virtual_functions_of_a_device_lent_whole():
    """Nine, of which the last two need ARI: made, used, reset one by one and with the physical
    function, and gone."""
    with lab.Lab() as l:
        box = l.start("dxpu-box", "--listen", V4, "--json", "--slot",
                      "1=nvme,virtual-functions=9,block=4096,size=16M," +
                      ",".join("file=" + l.file("part%d" % n) for n in range(10)))
        pf = Host(l, box.address(), 1)
        guest = pf.disk.guest
        check(pf.config(0x0c) >> 16 & 0xff == 0 and extended(pf) == [1, 3, 0xe, 0x10], extended(pf))
        check(pf.config(TOTAL) == 9 << 16 | 9 and pf.config(STRIDE) == 1 << 16 | 1)
        check(pf.config(VF_DEVICE) >> 16 == pf.config(0) >> 16)
        pf.config(VF_BAR0, 0xffffffff)
        check(pf.config(VF_BAR0) == 0x100000000 - VF_BYTES | 4, hex(pf.config(VF_BAR0)))
        guest.write32(ECAM, PORT + 0x68, guest.read32(ECAM, PORT + 0x68) | ARI_FORWARDING)

        def vendor(n):
            return guest.read32(ECAM, DEVICE + (n << 12) + 0x2c)

        def make(count):
            pf.config(NUMBER, count)
            pf.config(VF_BAR0, vfio_client.BAR2 + VF_BAR)
            pf.config(VF_BAR0 + 4, 0)
            pf.config(CONTROL, VF_ENABLE | VF_MEMORY | VF_ARI)
            pf.config(NUMBER, 1)  # which stays as long as they are there
            check(pf.config(NUMBER) == count)

        def driven(n):
            return Load(n + 1, nvme_client.Function(pf.disk, n, bar=VF_BAR + (n - 1) * VF_BYTES),
                        nvme_client.DATA_AT + n * (64 << 10))

        check(all(vendor(n) == 0xffffffff for n in range(1, 11)), "before there are any")
        make(9)
        check(all(vendor(n) == vendor(0) for n in range(1, 10)) and vendor(10) == 0xffffffff)
        loads = [pf] + [driven(n) for n in (1, 9)]
        for vf in loads[1:]:
            check(vf.config(0) == 0xffffffff and vf.config(0x08) == pf.config(0x08))
            check(vf.config(0x10) == 0 and vf.config(0x04) & 0xffff == 4, "BAR, Command")
            check(vf.config(0x68) & 0xffff == 0 and extended(vf) == [1, 0xe], "Device Control")
        check([(struct.unpack("<H", page[78:80])[0], page[76]) for page in
               (load.identify(1) for load in loads)] == [(1, 2), (2, 6), (10, 6)], "CNTLID, CMIC")
        for load in loads:
            load.load()
        for one in loads[1:]:
            one.goes_on()
            one.config(0x68, FLR)
            for load in loads:
                if load is not one:
                    load.goes_on(50)
            check(one.stands_still(), "control: a reset is seen where it is made")
            one.drive().goes_on()
        pf.config(CONTROL, VF_ENABLE | VF_ARI)  # their memory is off
        check(all(vf.disk.get(0x1c) == 0xffffffff for vf in loads[1:]) and pf.disk.get(0x1c) == 1)
        pf.goes_on()
        pf.config(CONTROL, 0)
        check(all(vendor(n) == 0xffffffff for n in range(1, 10)))
        make(2)
        check(vendor(2) == vendor(0) and vendor(3) == 0xffffffff)
        check(guest.read32(ECAM, DEVICE + (1 << 12) + 0x04) & 4 == 0, "nothing of before is left")
        again = driven(1).load()
        again.goes_on()
        pf.goes_on()
        pf.config(0x68, DEVICE_CONTROL | FLR)  # of the physical function: there is no other then
        check(vendor(1) == 0xffffffff and pf.config(CONTROL) == 0 and again.stands_still())
        pf.drive().goes_on()
        check(box.stop() == 0, box.errors())


@case
def functions_that_are_plugged():
    """A device of several functions can come into a slot; a single one cannot, and one that is
    pulled out leaves the others.  Function 0 is itself again with its own files alone."""
    with lab.Lab() as l:
        control = lab.address(socket.SOCK_STREAM)
        box, to = start(l, 3, "--control", control, "--hot-plug")
        hosts = [Host(l, to, n).load() for n in (2, 3)]
        first = Host(l, to, 1)
        before = (first.identify(1), first.identify(3, nsid=1))
        check(first.process.stop() == 0, first.process.errors())
        done = l.run("dxpu", "unplug", control, 1)
        check(done.status == 0, done.errors())
        done = l.run("dxpu", "unplug", "--force", control, 3)
        check(done.status == 0, done.errors())
        hosts[0].goes_on(50)
        check(hosts[1].stands_still(), "control: it is gone")
        refused = l.run("dxpu", "plug", control, 3, "function,of=1,size=16M")
        check(refused.status == 1 and "are for --slot alone" in box.errors(), refused.errors())
        begun = time.monotonic()
        half = l.run("dxpu", "plug", control, 1, "nvme,functions=2,size=16M,file=%s,file=%s" %
                     (l.file("half"), l.file("none/half")))
        check(half.status == 1 and time.monotonic() - begun < 10, half.errors())
        again = l.run("dxpu", "plug", control, 1,
                      "nvme,block=4096,size=16M,file=" + l.file("image1"))
        check(again.status == 0, again.errors())
        first = Host(l, to, 1)
        check((first.identify(1), first.identify(3, nsid=1)) == before, "as at the start")
        check(first.process.stop() == 0, first.process.errors())
        for other in ("serial=other,file=" + l.file("image1"), "file=" + l.file("image9")):
            alone = l.run("dxpu", "plug", "--replace", "--force", control, 1,
                          "nvme,block=4096,size=16M," + other)
            check(alone.status == 0, alone.errors())
            first = Host(l, to, 1)
            old, new = hosts[0].identify(1), first.identify(1)
            check(old[4:24] != new[4:24] and old[768:1024] != new[768:1024], "it is another device")
            check(new[76] == 0 and struct.unpack("<H", new[256:258])[0] & 8, "and alone")
            check(first.process.stop() == 0, first.process.errors())
        done = l.run("dxpu", "unplug", "--force", control, 1)
        check(done.status == 0, done.errors())
        whole = l.run("dxpu", "plug", control, 1, "nvme,functions=2,block=4096,size=16M")
        check(whole.status == 0, whole.errors())
        first = Host(l, to, 1)
        for load in (first, Load(4, nvme_client.Function(first.disk, 1),
                                 nvme_client.DATA_AT + (64 << 10))):
            load.load().goes_on()
        hosts[0].goes_on()
        check(box.stop() == 0, box.errors())


@case
def usage_of_functions():
    with lab.Lab() as l:
        one, two = "1=nvme,size=1M", "2=function,of=1,size=1M"
        many = [x for n in range(2, 35) for x in ("--slot", "%d=function,of=1" % n)]
        for wrong, status, says in (
                (("--slot", "1=function,size=1M"), 2, "requires of=N"),
                (("--slot", "1=nvme,of=2"), 2, "requires of=N"),
                (("--slot", "1=nvme,of=x"), 2, "the number of a slot"),
                (("--slot", "1=memory", "--slot", two), 2, "a lower number"),
                (("--slot", "1=nvme,subsystem=a", "--slot", two), 2, "a lower number"),
                (("--slot", two), 2, "a lower number"),
                (("--slot", "1=function,of=1"), 2, "a lower number"),
                (("--slot", one, "--slot", two, "--slot", "3=function,of=2"), 2, "a lower number"),
                (("--slot", one, "--slot", two + ",serial=x"), 2, "the device's"),
                (("--slot", one, *many), 2, "at most 32"),
                (("--slot", "1=nvme,functions=2", "--slot", two), 2, "a lower number"),
                (("--slot", "1=memory,functions=2"), 2, "are for nvme"),
                (("--slot", one + ",functions=9"), 2, "invalid value"),
                (("--slot", one + ",functions=1"), 2, "invalid value"),
                (("--slot", one + ",functions=2,file=%s" % l.file("x")), 3, "1 files for 2"),
                (("--slot", one + ",functions=2", "--isolate"), 3, "cannot be used with --isolate"),
                (("--slot", one, "--slot", two, "--isolate"), 3, "cannot be used with --isolate")):
            done = l.run("dxpu-box", "--listen", V4, "--slots", 34, *wrong)
            check(done.status == status and says in done.errors(), wrong, done.status,
                  done.errors())
        fits = l.start("dxpu-box", "--listen", V4, "--slots", 3, "--slot", one, "--slot", two,
                       "--cores", 2)
        fits.address()
        check(fits.stop() == 0, fits.errors())


if __name__ == "__main__":
    sys.exit(main())
