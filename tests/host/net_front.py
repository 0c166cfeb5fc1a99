#!/usr/bin/env python3
"""dxpu-host --card: a card in another machine's slot is the front of a box's device, over NetTLP
and RawUDP.

The machine, its processor, its memory and its card are support/card.py, in this process: no
hardware.  Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import os
import random
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import card  # noqa: E402
import lab  # noqa: E402

HOST, MACHINE = card.addresses(2)
BAR, ID = 0x90000000, 0x0300  # of the card, at 03:00.0
MEMORY, SIZE = 0x10000000, 1 << 20  # of the machine
ADMIN, DONE, DATA = MEMORY + 0x1000, MEMORY + 0x2000, MEMORY + 0x3000
OUTSIDE = MEMORY + SIZE // 2  # memory that the device may not reach
INTERRUPTS = 0xfee00000
TABLE = 0x2000  # of MSI-X, in BAR 0 of an NVMe controller


class Raw(card.RawTlp):
    """A card with RawUDP."""

    def __init__(self):
        super().__init__(MACHINE, size=SIZE, base=MEMORY)
        self.interrupts = []


class Net(card.Adapter):
    """One with NetTLP."""

    def __init__(self):
        super().__init__(MACHINE, HOST, BAR, ID, size=SIZE, base=MEMORY)
        self.interrupts = []

    def store(self, t):
        if t.address >> 20 == INTERRUPTS >> 20:
            with self.lock:
                self.interrupts.append((t.address, struct.unpack("<I", t.payload)[0]))
                self.lock.notify_all()
        else:
            super().store(t)


class World:
    """A box with a device, the host, and a machine with a card."""

    def __init__(self, l, machine, *device):
        self.machine, self.number = machine, 0
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", *device, "--json", "-v")
        kind = "rawtlp,bar=0x%x,id=03:00.0" % BAR if isinstance(machine, Raw) else "nettlp"
        text = "%s,peer=%s,local=%s,memory=0x%x+%d" % (kind, MACHINE, HOST, MEMORY, SIZE // 2)
        self.host = l.start("dxpu-host", "--box", self.box.address(), "--card", text, "--json",
                            "-v")
        self.host.says("is the front of the device")
        until(lambda: getattr(machine, "other", True), "the card to learn where the host is")

    def read(self, at, count):
        """Bytes of the BAR, as the processor reads them: ones where there is no answer."""
        self.number = (self.number + 1) % 16
        status, data = self.machine.read_host(BAR + at, count, tag=self.number,
                                              requester=0) or (1, b"")
        return data if status == 0 else b"\xff" * count

    def write(self, at, data):
        self.machine.write_host(BAR + at, data, requester=0)

    def read32(self, at):
        return struct.unpack("<I", self.read(at, 4))[0]

    def write32(self, at, value):
        self.write(at, struct.pack("<I", value))

    def memory(self, at, count):
        return bytes(self.machine.memory[at - MEMORY:at - MEMORY + count])

    def put(self, at, data):
        self.machine.memory[at - MEMORY:at - MEMORY + len(data)] = data

    def end(self):
        check(self.host.stop() == 0, self.host.errors())
        check(self.box.stop() == 0, self.box.errors())
        return self.host.result()


def accesses(machine):
    with lab.Lab() as l, machine:
        w = World(l, machine, "--memory", "64K")
        data = os.urandom(64)
        for at, count in ((0, 4), (8, 8), (0x101, 1), (0x102, 2), (0x203, 9), (0xffc0, 64)):
            w.write(at, data[:count])
            check(w.read(at, count) == data[:count], hex(at), count)
        for i in range(200):  # with each tag, more than there are ports
            w.write32(4 * i, i)
            until(lambda: w.read32(4 * i) == i, "the write, which went by another port")
        check(w.read(0xfffc, 4) == data[60:64], "the last one")
        check(w.read(0x10000, 4) == b"\xff" * 4, "outside of the device's BAR")
        check(w.read(0xffc0, 64) == data, "others are answered")
        result = w.end()
        check(result["card_refused"] == 1 and result["card_reads"] >= 200, result)


@case
def n20_accesses_nettlp():
    accesses(Net())


@case
def n20_accesses_rawtlp():
    accesses(Raw())


def enable_nvme(w):
    for register, value in ((0x24, 0x000f000f), (0x28, ADMIN), (0x2c, 0), (0x30, DONE), (0x34, 0),
                            (0x14, 0x00460001)):
        w.write32(register, value)
    until(lambda: w.read32(0x1c) & 1, "the controller is ready")


def identify(w, slot, to):
    """An Identify Controller command in a queue's slot; its status."""
    w.put(ADMIN + 64 * slot, struct.pack("<IIQQQQIIIIII", slot + 1 << 16 | 6, 0, 0, 0, to, 0, 1, 0,
                                         0, 0, 0, 0))
    w.write32(0x1000, slot + 1)
    entry = until(lambda: w.memory(DONE + 16 * slot, 16)[14] & 1 and w.memory(DONE + 16 * slot, 16),
                  "a completion entry")
    return struct.unpack("<H", entry[14:])[0] >> 1


def masters(machine):
    """A disk's commands and data in the machine's memory, and no more than was named of it."""
    with lab.Lab() as l, machine:
        w = World(l, machine, "--device", "nvme", "--memory", "16M", "--serial", "front")
        enable_nvme(w)
        check(identify(w, 0, DATA) == 0)
        check(w.memory(DATA, 4096)[4:9] == b"front", w.memory(DATA, 64))
        w.put(OUTSIDE, b"mine" * 1024)
        identify(w, 1, OUTSIDE)
        check(w.memory(OUTSIDE, 4096) == b"mine" * 1024, "memory that was not named")
        check(identify(w, 2, OUTSIDE - 4096) == 0, "the last page that was")  # control
        check(w.memory(OUTSIDE - 4096, 4096)[4:9] == b"front")
        result = w.end()
        check(result["device_reads"] >= 3 and result["device_writes"] >= 16, result)


@case
def n22_device_masters_nettlp():
    masters(Net())


@case
def n22_device_masters_rawtlp():
    masters(Raw())


@case
def n23_interrupts():
    """The card's table is the device's: also when the machine's driver changes it."""
    machine = Net()
    with lab.Lab() as l, machine:
        machine.vectors[0] = (INTERRUPTS, 0x41)
        w = World(l, machine, "--device", "nvme", "--memory", "16M")
        until(lambda: w.read32(TABLE) == INTERRUPTS, "the vector in the device's table")
        enable_nvme(w)
        check(identify(w, 0, DATA) == 0)
        machine.wait_for(lambda: machine.interrupts == [(INTERRUPTS, 0x41)], "an interrupt")
        machine.vectors[0] = (INTERRUPTS + 0x1000, 0x42)
        until(lambda: w.read32(TABLE) == INTERRUPTS + 0x1000, "the other one there")
        check(identify(w, 1, DATA) == 0)
        machine.wait_for(lambda: machine.interrupts[1:] == [(INTERRUPTS + 0x1000, 0x42)], "another")
        check(w.end()["vectors_written"] >= 2)


def lost(machine):
    """What the card's machine does not answer ends with an error; what comes late is nothing."""
    with lab.Lab() as l, machine:
        w = World(l, machine, "--device", "nvme", "--memory", "16M")
        enable_nvme(w)
        kept, real = [], machine.answer
        machine.answer = lambda t, to: kept.append((t, to))
        w.put(ADMIN, struct.pack("<IIQQQQIIIIII", 1 << 16 | 6, 0, 0, 0, DATA, 0, 1, 0, 0, 0, 0, 0))
        w.write32(0x1000, 1)
        until(lambda: kept, "the controller's read")
        csts = until(lambda: w.read32(0x1c) & 2 and w.read32(0x1c), "a fatal status")
        check(csts & 2, csts)
        machine.answer = real
        for t, to in kept:
            real(t, to)
        w.write32(0x14, 0)
        until(lambda: not w.read32(0x1c) & 1, "the reset")
        w.put(DONE, bytes(64))
        enable_nvme(w)
        check(identify(w, 0, DATA) == 0, "and it works")
        result = w.end()
        check(result["read_timeouts"] >= 1 and result["completions_unexpected"] >= 1, result)


@case
def n22_lost_answer_nettlp():
    lost(Net())


@case
def n22_lost_answer_rawtlp():
    lost(Raw())


@case
def n23_card_without_a_bar():
    """Its driver may not be there yet: it is asked each second, not all the time."""
    machine = Net()
    machine.bar, real = 0, machine.bar
    with lab.Lab() as l, machine:
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--memory", "64K")
        host = l.start("dxpu-host", "--box", box.address(), "--card", "nettlp,peer=%s,local=%s"
                       % (MACHINE, HOST), "-v")
        until(lambda: machine.asked, "a question")
        time.sleep(1.5)
        check(machine.asked < 12, machine.asked)
        machine.bar = real
        host.says("is the front of the device")
        check(host.stop() == 0 and box.stop() == 0, host.errors())


@case
def n21_box_that_is_gone():
    """The processor gets an answer, and soon, while there is no device."""
    machine = Net()
    with lab.Lab() as l, machine:
        w = World(l, machine, "--memory", "64K")
        w.write32(0, 7)
        check(w.read32(0) == 7)
        w.box.kill()
        begin = time.monotonic()
        check(w.read32(0) == 0xffffffff)
        check(time.monotonic() - begin < 15, time.monotonic() - begin)
        w.host.says("channel lost")
        begin = time.monotonic()
        check(w.read32(0) == 0xffffffff and time.monotonic() - begin < 2)
        check(w.host.stop() == 0, w.host.errors())


@case
def n21_box_that_is_gone_under_load():
    """Nor does a write that waited for the channel hold up what comes behind it."""
    machine = Net()
    with lab.Lab() as l, machine:
        w = World(l, machine, "--memory", "64K")
        w.write32(0, 7)
        check(w.read32(0) == 7)
        w.box.kill()
        for i in range(6000):
            w.write(4 * (i % 4096), bytes(128))
            if i % 100 == 0:
                time.sleep(0.002)
        w.host.says("channel lost")
        time.sleep(0.5)
        begin = time.monotonic()
        check(w.read32(0) == 0xffffffff and time.monotonic() - begin < 2)
        check(machine.completions[-1].status == 1, "it was answered")
        check(w.host.stop() == 0, w.host.errors())
        check(w.host.result()["card_refused"] >= 2, w.host.result())


def storm(machine):
    """Noise of the card: the host goes on, and so does the device."""
    with lab.Lab() as l, machine:
        w = World(l, machine, "--device", "nvme", "--memory", "16M")
        enable_nvme(w)
        chance = random.Random(42)
        for slot in range(8):
            machine.storm(chance, 200)
            time.sleep(0.02)
        w.write32(0x14, 0)
        until(lambda: not w.read32(0x1c) & 1, "the reset")
        w.put(DONE, bytes(64))
        enable_nvme(w)
        check(identify(w, 0, DATA) == 0)
        result = w.end()
        noise = sum(result.get(n, 0) for n in ("datagrams_malformed", "torn", "blocks_cut"))
        check(noise > 100 and result["card_refused"] > 100, result)


@case
def n24_storm_nettlp():
    storm(Net())


@case
def n24_storm_rawtlp():
    storm(Raw())


@case
def n20_both_ends():
    """A host, a box with a device behind NetTLP, a host that is this device's software, and a box
    with its memory: verified load goes through all of them."""
    with lab.Lab() as l:
        far = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--memory", "64K", "--json")
        near = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slot",
                       "1=nettlp,peer=%s,local=%s,answer-ms=5000" % (HOST, MACHINE), "--json", "-v")
        to = near.address()
        front = l.start("dxpu-host", "--box", far.address(), "--card",
                        "nettlp,peer=%s,local=%s" % (MACHINE, HOST), "--json", "-v")
        front.says("is the front of the device")
        near.says("is there")
        host = l.run("dxpu-host", "--box", to, "--load", "mixed", "--size", 128, "--depth", 8,
                     "--span", "64K", "--json", "--count", 3000)
        result = host.result()
        check(host.status == 0 and result["mismatched"] == result["unanswered"] == 0, result,
              host.errors())
        check(front.stop() == 0 and near.stop() == 0 and far.stop() == 0, front.errors())
        check(front.result()["card_reads"] > 1000, front.result())


@case
def options_of_cards():
    for says, text in (("must begin with", "tlp"), ("peer=ADDR is required", "nettlp"),
                       ("rawtlp needs bar", "rawtlp,peer=127.0.0.1"),
                       ("invalid value: 'peer'", "nettlp,peer=host"),
                       ("invalid value: 'bar'", "nettlp,peer=127.0.0.1,bar=0x1000"),
                       ("invalid value: 'bar'", "rawtlp,peer=127.0.0.1,bar=0x10"),
                       ("invalid value: 'memory'", "nettlp,peer=127.0.0.1,memory=4096"),
                       ("invalid value: 'memory'", "nettlp,peer=127.0.0.1,memory=0x1+0"),
                       ("invalid value: 'memory'", "nettlp,peer=::1,memory=0xfffffffffffff000+8K"),
                       ("invalid value: 'bar'", "rawtlp,peer=127.0.0.1,bar=0x0"),
                       ("invalid value: 'mps'", "nettlp,peer=127.0.0.1,mps=192"),
                       ("invalid value: 'mps'", "rawtlp,peer=127.0.0.1,mps=256"),
                       ("invalid value: 'tags'", "nettlp,peer=127.0.0.1,tags=257")):
        with lab.Lab() as l:
            host = l.run("dxpu-host", "--box", "127.0.0.1:1", "--card", text)
            check(host.status == 2 and says in host.errors(), text, host.errors())


if __name__ == "__main__":
    sys.exit(main())
