#!/usr/bin/env python3
"""Slots whose device takes TLPs over UDP, as NetTLP's software and as a card with RawUDP: a host's
accesses, the device's own, what is lost on the way, and devices that are silent or hostile.

The devices are support/card.py, in this process: no hardware.  Prints `ok NAME` or `not ok NAME`
for each case."""
# SPDX-License-Identifier: MIT
import os
import random
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "host"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import card  # noqa: E402
import lab  # noqa: E402
import net_direct  # noqa: E402
from vfio_client import CONFIG, MSIX  # noqa: E402

BOX, DEVICE, OTHER = card.addresses(3)
LOAD = ("--load", "mixed", "--size", 128, "--depth", 8, "--span", "64K", "--json")
PATIENT = ",answer-ms=5000"  # where nothing is lost
NETTLP = "1=nettlp,peer=%s,local=%s,stateless" % (DEVICE, BOX)
RAWTLP = "1=rawtlp,peer=%s,local=%s,stateless" % (DEVICE, BOX)
MASTER, MEMORY_ON = 4, 2


def start_box(l, slot, *more):
    box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slot", slot, "--json", "-v", *more)
    return box, box.address()


def device_of(raw):
    return card.RawTlp(DEVICE) if raw else card.NetTlp(DEVICE, BOX)


class World:
    """A box with a device, and a driver of it."""

    def __init__(self, l, device, more=""):
        raw = isinstance(device, card.RawTlp)
        self.device = device
        self.box, self.at = start_box(l, (RAWTLP if raw else NETTLP) + more, "--hold-ms", 2000)
        self.box.says("is there")
        path = l.file("vm")
        self.host = l.start("dxpu-host", "--vfio-user", path, "--direct", "--interrupts", "msix",
                            "--attach", "1=%s/1" % self.at, "--slots", 1, "--hold-ms", 2000,
                            "--json")
        self.host.says("waiting for a guest")
        self.driver = net_direct.Function(path + ".1")

    def may(self, *bits):
        self.driver.write16(4, sum(bits))
        self.driver.read16(4)

    def count(self):
        check(self.box.stop() == 0, self.box.errors())
        result = self.box.result()["slot_1"]
        return result[result["device"]]


def verified_load(raw):
    with lab.Lab() as l, device_of(raw) as device:
        box, to = start_box(l, (RAWTLP if raw else NETTLP) + PATIENT)
        box.says("is there")
        host = l.run("dxpu-host", "--box", to, *LOAD, "--count", 2000)
        result = host.result()
        check(host.status == 0 and result["mismatched"] == result["unanswered"] == 0, result,
              host.errors())
        check(any(device.memory), "it was the device's memory")
        check(box.stop() == 0, box.errors())
        slot = box.result()["slot_1"]
        mine = slot["rawtlp" if raw else "nettlp"]
        check(mine["reads"] > 500 and mine["read_timeouts"] == 0, mine)


@case
def n10_verified_load_nettlp():
    verified_load(False)


@case
def n10_verified_load_rawtlp():
    verified_load(True)


def lost_answers(raw):
    """The host gets Completer Abort, in time, and goes on."""
    with lab.Lab() as l, device_of(raw) as device:
        w = World(l, device)
        w.may(MEMORY_ON)
        w.driver.write32(0, 0x100, 0x12345678)
        check(w.driver.read32(0, 0x100) == 0x12345678)
        w.device.lose = lambda t: t.enabled()[1] > 0 and t.address & 0xfff == 0x100
        begin = time.monotonic()
        check(w.driver.read32(0, 0x100) == 0xffffffff, "a lost answer reads as ones")
        check(time.monotonic() - begin < 5, "in time")
        check(w.driver.read32(0, 0x104) == 0, "others are answered")
        w.device.lose = lambda t: False
        check(w.driver.read32(0, 0x100) == 0x12345678, "and so is it later")
        mine = w.count()
        check(mine["read_timeouts"] == 1 and mine["lost"] == 0, mine)


@case
def n12_lost_answer_nettlp():
    lost_answers(False)


@case
def n12_lost_answer_rawtlp():
    lost_answers(True)


def late_answers(raw):
    """An answer to a read that is over is no answer to the next one."""
    with lab.Lab() as l, device_of(raw) as device:
        w = World(l, device)
        w.may(MEMORY_ON)
        kept = []
        real = w.device.answer
        w.device.answer = lambda t, to: kept.append((t, to)) \
            if t.address & 0xfff == 0x200 else real(t, to)
        w.device.memory[0x200:0x204] = b"old!"
        check(w.driver.read32(0, 0x200) == 0xffffffff)
        for t, to in kept * 2:
            real(t, to)
        w.device.answer = real
        w.device.memory[0x200:0x204] = b"new!"
        for _ in range(40):  # more than there are tags
            check(w.driver.read(0, 0x200, 4) == b"new!")
        w.device.memory[0x200:0x204] = b"last"
        check(w.driver.read(0, 0x200, 4) == b"last")
        mine = w.count()
        check(mine["completions_unexpected"] == 2 and mine["read_timeouts"] == 1, mine)


@case
def n12_late_answer_nettlp():
    late_answers(False)


@case
def n12_late_answer_rawtlp():
    late_answers(True)


def device_masters(raw):
    """Its reads and writes of the host's memory, at any bytes; only as the driver lets it."""
    with lab.Lab() as l, device_of(raw) as device:
        w = World(l, device)
        memory = w.driver.memory
        w.may(MEMORY_ON)
        data = bytes(range(256)) * 4
        memory[0x2000:0x2000 + len(data)] = data
        w.device.write_host(0x3000, b"none")
        check(w.device.read_host(0x2000, 64)[0] == 1, "Unsupported Request without mastering")
        w.may(MEMORY_ON, MASTER)
        for at, count in ((0x2000, 4), (0x2000, 64), (0x2001, 1), (0x2003, 2), (0x2002, 6),
                          (0x2005, 123), (0x2000, 1024), (0x2040, 700)):
            got = w.device.read_host(at, count)
            check(got == (0, data[at - 0x2000:at - 0x2000 + count]), hex(at), count, got)
        for at, count in ((0x3000, 4), (0x3005, 2), (0x3009, 1), (0x3011, 6), (0x3021, 95)):
            w.device.write_host(at, data[:count])
        check(w.device.read_host(0x3021, 95) == (0, data[:95]), "behind the writes")
        check(memory[0x3000:0x3021] == data[:4] + b"\0" + data[:2] + b"\0\0" + data[:1] +
              bytes(7) + data[:6] + bytes(10), bytes(memory[0x3000:0x3021]))
        check(w.device.read_host(0x10000000, 64)[0] == 1, "no memory of the lease")
        w.device.write_host(0x10000000, b"none")
        mine = w.count()
        check(mine["requests_refused"] >= 3 and mine["card_reads"] >= 9, mine)


@case
def n14_device_masters_nettlp():
    device_masters(False)


@case
def n14_device_masters_rawtlp():
    device_masters(True)


@case
def n1_reads_pass_no_writes():
    """Whichever ports the two go by."""
    with lab.Lab() as l, device_of(False) as device:
        w = World(l, device)
        w.may(MEMORY_ON, MASTER)
        for i in range(300):
            device.write_host(0x3000, struct.pack("<I", i), tag=i % 16)
            got = device.read_host(0x3000, 4, tag=(i * 5 + 3) % 16)
            check(got == (0, struct.pack("<I", i)), i, got)


@case
def n15_questions_and_interrupts():
    with lab.Lab() as l, device_of(False) as device:
        w = World(l, device)
        check(struct.unpack("=Q", w.device.ask(1)) == (1 << 32,), w.device.ask(1))
        fds = net_direct.eventfds(16)
        w.driver.interrupts(0, fds)
        w.may(MEMORY_ON, MASTER)
        at = w.driver.capability[0x11]
        w.driver.write16(at + 2, 0x8000)
        check(w.driver.read16(at + 2) & 0x8000)
        for n in range(16):
            w.driver.write(2, 16 * n, struct.pack("<QII", 0xfee00000, 0x5a, 0))
        table = until(lambda: [e for e in w.device.table() if e[0]], "a table")
        check(len(table) == 16, table)
        for n in (0, 3, 15):
            address, data = table[n]
            w.device.write_host(address, struct.pack("<I", data), tag=n)
            check(net_direct.raised(fds[n]), n)
        check(not any(net_direct.raised(fd, 0) for fd in fds), "one each")
        mine = w.count()
        check(mine["interrupts_signaled"] == 3, mine)
        check(mine["questions"] >= 3 and mine["questions_refused"] == 0, mine)


def silence(raw):
    with lab.Lab() as l, device_of(raw) as device:
        box, to = start_box(l, RAWTLP if raw else NETTLP)
        box.says("is there")
        device.silent = True
        box.says("answers nothing")
        host = l.run("dxpu-host", "--box", to, *LOAD, "--count", 10, "--give-up-ms", 1500)
        check(host.status == 4, host.status, host.errors())
        device.silent = False
        until(lambda: box.errors().count("is there") == 2, "the device")
        host = l.run("dxpu-host", "--box", to, *LOAD, "--count", 10, "--epoch", 2)
        check("is attached" in host.errors(), host.errors())
        check(box.stop() == 0, box.errors())


@case
def n13_silent_device_is_absent_nettlp():
    silence(False)


@case
def n13_silent_device_is_absent_rawtlp():
    silence(True)


def reset(raw):
    """What was under way ends with the reset, and the device may not master behind it."""
    with lab.Lab() as l, device_of(raw) as device:
        w = World(l, device)
        w.may(MEMORY_ON, MASTER)
        w.driver.memory[0x2000:0x2004] = b"data"
        check(w.device.read_host(0x2000, 4) == (0, b"data"))
        w.driver.reset()
        check(w.driver.read16(4) & (MASTER | MEMORY_ON) == 0)
        w.device.write_host(0x2000, b"late")
        check(w.device.read_host(0x2000, 4)[0] == 1, "refused")
        w.may(MEMORY_ON, MASTER)
        check(w.device.read_host(0x2000, 4) == (0, b"data"), "and so was the write")
        w.device.write_host(0x2000, b"new!")  # control
        check(w.device.read_host(0x2000, 4) == (0, b"new!"))
        w.driver.write32(0, 0x10, 7)
        check(w.driver.read32(0, 0x10) == 7)


@case
def n16_reset_nettlp():
    reset(False)


@case
def n16_reset_rawtlp():
    reset(True)


def many_writes(raw):
    """More than the device's sockets hold, and none is lost."""
    with lab.Lab() as l, device_of(raw) as device:
        w = World(l, device, PATIENT)
        w.may(MEMORY_ON)
        device.nap = 0.0002
        w.driver.fill(0, 4000, 500, 7)
        got = w.driver.read(0, 8 * 3999, 8)
        check(got == struct.pack("<II", 3999, 7), got, w.box.errors(), w.host.errors())
        check(bytes(device.memory[:32000]) ==
              b"".join(struct.pack("<II", i, 7) for i in range(4000)))
        mine = w.count()
        check(mine["writes"] >= 400 and mine["probes"] >= mine["writes"] // 64, mine)


@case
def n17_writes_wait_nettlp():
    many_writes(False)


@case
def n17_writes_wait_rawtlp():
    many_writes(True)


@case
def n13_device_as_libtlp():
    """Its answer to a read of no byte says four: it is there all the same, and confirms writes."""
    with lab.Lab() as l, device_of(False) as device:
        device.none_is_four = True
        w = World(l, device, PATIENT)
        w.may(MEMORY_ON)
        begin = time.monotonic()
        w.driver.fill(0, 1000, 500, 7)
        check(w.driver.read(0, 8 * 999, 8) == struct.pack("<II", 999, 7))
        check(time.monotonic() - begin < 4, time.monotonic() - begin)
        mine = w.count()
        check(mine["probes"] >= 2 and mine["completions_unexpected"] == 0, mine)


@case
def n12_answers_of_before_a_restart():
    """They are answers to nothing, also where the new box has asked as often."""
    with lab.Lab() as l, device_of(False) as device:
        asked = []
        for _ in range(2):
            box, to = start_box(l, NETTLP)
            box.says("is there")
            check(box.stop() == 0, box.errors())
            time.sleep(0.2)
            asked.append({(t.requester, t.tag) for t in device.requests})
            device.requests.clear()
        check(not asked[0] & asked[1], asked)


@case
def n12_flood_holds_up_no_end_of_reads():
    """A device that asks for more than there is room for, and answers nothing."""
    with lab.Lab() as l, device_of(False) as device:
        w = World(l, device)
        w.may(MEMORY_ON, MASTER)
        w.driver.write32(0, 0, 7)
        check(w.driver.read32(0, 0) == 7)
        device.lose = lambda t: True
        ask = card.memory_request(card.MRD, 0x2000, 0xf, 0xf, 256, 1, 3)
        stop = threading.Event()

        def flood():
            while not stop.is_set():
                for _ in range(64):
                    device.request(ask, 3)
                time.sleep(0.005)
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            begin = time.monotonic()
            check(w.driver.read32(0, 0) == 0xffffffff)
            for i in range(100):
                w.driver.write32(0, 4 * i, i)
            w.may(MEMORY_ON)
            check(w.driver.read16(4) & MASTER == 0, "configuration space is reached")
            check(time.monotonic() - begin < 8, time.monotonic() - begin)
        finally:
            stop.set()
            thread.join()


@case
def n14_many_reads_in_one_datagram():
    """More than the box has room for at a time: those behind wait."""
    with lab.Lab() as l, device_of(True) as device:
        w = World(l, device)
        w.may(MEMORY_ON, MASTER)
        data = os.urandom(200 * 4)
        w.driver.memory[0x2000:0x2000 + len(data)] = data
        device.completions.clear()
        device.socket.sendto(b"".join(
            device.blocks(card.memory_request(card.MRD, 0x2000 + 4 * i, 0xf, 0, 1, 1, i))
            for i in range(200)), device.other)

        def all_there():
            mine = [c for c in device.completions if c.requester == 1]
            return len(mine) == 200 and mine
        got = device.wait_for(all_there, "200 answers")
        check(all(c.status == 0 and c.payload == data[4 * c.tag:4 * c.tag + 4] for c in got))


def storm(raw):
    """Noise of the device itself: its host's memory is what it was, and the box goes on."""
    with lab.Lab() as l, device_of(raw) as device:
        w = World(l, device)
        w.may(MEMORY_ON, MASTER)
        w.driver.memory[:] = b"keep" * (len(w.driver.memory) // 4)
        w.driver.unmap_memory(0, net_direct.MEMORY)
        device.lose = lambda t: t.enabled()[1] > 0
        chance = random.Random(23)
        for i in range(40):
            w.driver.write32(0, 4 * i, i)
            device.storm(chance, 50)
            w.driver.read32(0, 4 * i)
        check(w.driver.memory[:] == b"keep" * (len(w.driver.memory) // 4))
        device.lose = lambda t: False
        time.sleep(0.3)
        w.driver.write32(0, 0x40, 0x12345678)
        check(w.driver.read32(0, 0x40) == 0x12345678)
        mine = w.count()
        check(mine["requests_refused"] + mine["card_reads"] + mine["card_writes"] > 20, mine)
        noise = sum(mine.get(n, 0) for n in ("datagrams_malformed", "torn", "blocks_cut"))
        check(noise > 100 and mine["completions_unexpected"] + noise > 110, mine)


@case
def n10_storm_nettlp():
    storm(False)


@case
def n10_storm_rawtlp():
    storm(True)


@case
def n10_others_are_not_heard():
    """What is not at the device's address changes nothing; the device itself is the control."""
    with lab.Lab() as l:
        box, _ = start_box(l, NETTLP)
        with card.NetTlp(OTHER, BOX) as stranger:
            for tag in range(16):
                stranger.write_host(0x1000, b"here", tag=tag)
            check(stranger.ask(1, 0.5) is None)
            time.sleep(0.5)
            check("is there" not in box.errors(), box.errors())
        with device_of(False):
            box.says("is there")
        check(box.stop() == 0, box.errors())
        mine = box.result()["slot_1"]["nettlp"]
        check(mine["questions_refused"] == 1, mine)


@case
def options_of_cards():
    for says, text in (("need peer=ADDR", "1=nettlp"), ("need peer=ADDR", "1=rawtlp,local=::1"),
                       ("are for nettlp and rawtlp", "1=memory,peer=127.0.0.2"),
                       ("tags is for nettlp", "1=rawtlp,peer=127.0.0.2,tags=4"),
                       ("spans is for rawtlp", "1=nettlp,peer=127.0.0.2,spans"),
                       ("invalid value of 'id'", "1=nettlp,peer=127.0.0.2,id=12345678"),
                       ("invalid value of 'class'", "1=nettlp,peer=127.0.0.2,class=1"),
                       ("invalid value of 'class'", "1=nettlp,peer=127.0.0.2,class=000000"),
                       ("invalid value of 'peer'", "1=nettlp,peer=box7"),
                       ("have no file=", "1=nettlp,peer=127.0.0.2,file=x")):
        with lab.Lab() as l:
            box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slot", text)
            check(box.wait(10) == 2 and says in box.errors(), text, box.errors())
    with lab.Lab() as l:  # control
        box, _ = start_box(l, NETTLP + ",id=1234:5678,class=020000,tags=256,answer-ms=50,bar=1M",
                           "--isolate")
        check(box.stop() == 0, box.errors())


if __name__ == "__main__":
    sys.exit(main())
