#!/usr/bin/env python3
"""dxpu-host --direct: each slot a function of its own, which is the remote device.

The guest is vfio_client.py, no virtual machine; the device is the PCI endpoint test function.
Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import mmap
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402
import net_vfio_user  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import CONFIG, HANG, MSI, MSIX  # noqa: E402

ID = 0xb500104c  # of the endpoint test function
SLOW_ID = 0x10f01af4  # of net_vfio_user.Server
MEMORY, SOURCE, TARGET = 1 << 20, 0x1000, 0x9000
# registers in BAR 0, and what is done by writing to the first of them
COMMAND, STATUS, FROM, TO, SIZE, CHECKSUM, IRQ_TYPE, IRQ_NUMBER = 4, 8, 12, 20, 28, 32, 36, 40
RAISE_MSI, RAISE_MSIX, COPY = 2, 4, 0x20
COPIED = 0x10
BUS_MASTER, MEMORY_ON = 4, 2
WRITES = 5000  # more than slot, keeper and channel hold together


class World:
    """A box, and a host of two slots or more that has attached as many as the box has."""

    def __init__(self, l, *options, device="eptest", slots=1):
        self.lab, self.device, self.slots = l, device, slots
        self.at = lab.address()
        self.box = self.start_box()
        self.path = l.file("vm")
        self.host = l.start("dxpu-host", "--vfio-user", self.path, "--direct", "--slots",
                            max(slots, 2), "--attach", ",".join("%d=%s/%d" % (n, self.at, n)
                                                 for n in range(1, slots + 1)),
                            "--json", *options)
        self.host.says("waiting for a guest")

    def start_box(self):
        box = self.lab.start("dxpu-box", "--listen", self.at, "--device", self.device, "--slots",
                             self.slots, "--json")
        box.address()
        return box

    def client(self, n=1):
        return Function("%s.%u" % (self.path, n))


class Function(vfio_client.Client):
    """The function, its memory shared; capabilities by their identifiers."""

    def __init__(self, path):
        super().__init__(path)
        self.fd = os.memfd_create("guest")
        os.ftruncate(self.fd, MEMORY)
        self.memory = mmap.mmap(self.fd, MEMORY)
        self.map_memory(0, MEMORY, self.fd)
        self.space = self.read(CONFIG, 0, 4096)
        self.capability, at = {}, self.space[0x34]
        while at:
            self.capability[self.space[at]] = at
            at = self.space[at + 1]

    def close(self):
        super().close()
        self.memory.close()
        os.close(self.fd)

    def write16(self, at, value):
        self.write(CONFIG, at, struct.pack("<H", value))

    def read16(self, at):
        return struct.unpack("<H", self.read(CONFIG, at, 2))[0]

    def fill(self, bar, count, step, turn):
        for first in range(0, count, step):
            self.write_many(bar, [(8 * i, struct.pack("<II", i, turn))
                                  for i in range(first, min(first + step, count))])

    def copy(self, data, to=TARGET):
        """By the device, in guest memory; its status."""
        self.memory[SOURCE:SOURCE + len(data)] = data
        self.memory[to:to + len(data)] = bytes(len(data))
        for register, value in ((FROM, SOURCE), (FROM + 4, 0), (TO, to), (TO + 4, 0),
                                (SIZE, len(data)), (STATUS, 0), (COMMAND, COPY)):
            self.write32(0, register, value)
        return until(lambda: self.read32(0, STATUS), "the copy ends")


def eventfds(count):
    return [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(count)]


def raised(fd, seconds=HANG):
    return bool(select.select([fd], [], [], seconds)[0]) and os.eventfd_read(fd) > 0


@case
def options_that_would_be_ignored_are_refused():
    with lab.Lab() as l:
        for options in (["--interrupts", "msi"], ["--direct", "--topology", "switch"],
                        ["--direct", "--bar2", "64M"], ["--direct", "--bar4", "64G"]):
            done = l.run("dxpu-host", "--vfio-user", l.file("vm"), *options)
            check(done.status == 2 and "--direct" in done.errors(), options, done.errors())


@case
def v42_configuration_is_the_devices():
    with lab.Lab() as l:
        w = World(l)
        f = w.client()
        check(f.read32(CONFIG, 0) == ID and struct.unpack("<I", f.space[:4])[0] == ID)
        check(f.region_bytes(CONFIG) == 4096)
        check(f.read(CONFIG, 0x02, 2) == f.space[2:4] and f.read(CONFIG, 0x09, 3) == f.space[9:12])
        for bar in (0, 1, 2, 3):
            size = f.region_bytes(bar)
            f.write32(CONFIG, 0x10 + 4 * bar, 0xffffffff)
            sized = f.read32(CONFIG, 0x10 + 4 * bar)
            check(size and (~sized & 0xffffffff) + 1 == size, bar, hex(sized), size)
        check(f.region_bytes(5) == 0 and f.read32(CONFIG, 0x20) & 0xf == 0xc, "BAR 4 has 64 bits")
        f.write32(CONFIG, 0x10, 0xfebf0000)  # where the device never learns of
        f.write32(0, SIZE, 0x1234)
        check(f.read32(0, SIZE) == 0x1234, "it is reached before memory is decoded")
        check(f.read16(4) & MEMORY_ON == 0)
        f.write16(4, MEMORY_ON | BUS_MASTER)
        check(f.read16(4) & 7 == MEMORY_ON | BUS_MASTER)
        f.write16(4, 0)
        f.write32(0, SIZE, 0x4321)
        check(f.read32(0, SIZE) == 0x4321)


@case
def v42_extended_configuration_is_there():
    with lab.Lab() as l:
        f = World(l, device="nvme").client()
        check(f.read32(CONFIG, 0x100) & 0xffff == 1, "advanced error reporting")
        at = f.read32(CONFIG, 0x100) >> 20
        check(f.read32(CONFIG, at) & 0xffff == 3, "serial number")
        check(f.space[at:at + 12] == f.read(CONFIG, at, 12))
        severity = f.read32(CONFIG, 0x10c)
        f.write32(CONFIG, 0x10c, severity ^ 0x1000)
        check(f.read32(CONFIG, 0x10c) == severity ^ 0x1000)


@case
def bars_are_read_and_written():
    with lab.Lab() as l:
        f = World(l).client()
        for bar in (1, 2, 3, 4):
            size = f.region_bytes(bar)
            for at, data in ((0, b"\x11"), (8, b"\x22" * 8), (size - 4, b"\x33" * 4),
                             (0x201, b"\x44\x45\x46"), (0x40, bytes(range(64)))):
                f.write(bar, at, data)
                check(f.read(bar, at, len(data)) == data, bar, at)
        for i in range(256):  # prefetchable: combined, and nothing is lost
            f.write(4, 0x1000 + i, bytes([i]), posted=True)
        check(f.read(4, 0x1000, 64) + f.read(4, 0x1080, 64) ==
              bytes(range(64)) + bytes(range(128, 192)))


@case
def v17_gathered_writes_wait_for_a_slow_box():
    """More than all queues hold: QEMU gathers posted writes when it cannot send them."""
    with lab.Lab() as l:
        w = World(l)
        f = w.client()
        check(not f.space[0x14] & 8, "BAR 1 is not combined")
        count, step = f.region_bytes(1) // 8, 200
        w.box.popen.send_signal(signal.SIGSTOP)
        go_on = threading.Timer(0.4, w.box.popen.send_signal, [signal.SIGCONT])
        go_on.start()
        for turn in range(WRITES // count + 1):
            f.fill(1, count, step, turn)
        go_on.join()
        for i in range(0, count, 8):
            check(f.read(1, 8 * i, 64) ==
                  b"".join(struct.pack("<II", i + n, turn) for n in range(8)), i)
        check(w.host.stop() == 0, w.host.errors())
        slot = w.host.result()["slot_1"]
        check(slot["dropped"] == 0 and slot["down_tlps"] > WRITES, slot)


@case
def busy_slots_beside_many_idle_ones():
    """More than a turn of the host's loop serves all of: no channel waits for what is not known to
    the loop, and what waits for room in the keeper goes on."""
    with lab.Lab() as l:
        w = World(l, slots=12)
        for n in range(1, 13):
            w.host.says("slot %d: slot %d of .* is attached" % (n, n))
        data = os.urandom(MEMORY // 2 - SOURCE)  # more writes than the keeper has room for
        for n in (1, 12):
            f = w.client(n)
            f.write16(4, MEMORY_ON | BUS_MASTER)
            count = f.region_bytes(1) // 8
            f.fill(1, count, 200, n)
            check(f.read(1, 8 * count - 8, 8) == struct.pack("<II", count - 1, n), n)
            for _ in range(3):
                check(f.copy(data, MEMORY // 2) & COPIED)
                check(f.memory[MEMORY // 2:MEMORY - SOURCE] == data)
            f.close()
        check(w.host.stop() == 0, w.host.errors())
        counts = w.host.result()["proxy"]
        check(counts["unannounced"] == counts["unseen"] == 0, counts)
        check(counts["ended_close"] == 12, counts)


@case
def device_masters_when_it_may():
    with lab.Lab() as l:
        f = World(l).client()
        data = os.urandom(3000)
        check(f.copy(data) & COPIED == 0, "without Bus Master Enable")
        f.write16(4, MEMORY_ON | BUS_MASTER)
        check(f.copy(data) & COPIED and f.memory[TARGET:TARGET + len(data)] == data)
        express = f.capability[0x10]
        f.write16(express + 8, f.read16(express + 8) & ~0xe0 | 0x40)  # payloads of 512 bytes
        check(f.copy(data) & COPIED and f.memory[TARGET:TARGET + len(data)] == data)
        f.unmap_memory(0, MEMORY)
        f.write32(0, STATUS, 0)
        f.write32(0, COMMAND, COPY)
        check(until(lambda: f.read32(0, STATUS), "the copy fails") & COPIED == 0, "no memory")


@case
def v43_msix_becomes_eventfds():
    with lab.Lab() as l:
        w = World(l, "--interrupts", "msix")
        f = w.client()
        at = f.capability[0x11]
        count = f.vectors(MSIX)
        check(count == (f.read16(at + 2) & 0x7ff) + 1 and count > 3, count)
        fds = eventfds(count)
        f.interrupts(0, fds)
        f.write16(4, MEMORY_ON | BUS_MASTER)
        f.write32(0, IRQ_TYPE, 2)
        f.write16(at + 2, 0x8000)
        table = struct.unpack("<I", f.space[at + 4:at + 8])[0] & ~7
        for entry in range(count):  # the table is the host's: this goes nowhere
            f.write(0, table + 16 * entry, struct.pack("<QII", 0xfee00000, 0x5a, 1))
        for n in (0, 1, count - 1):
            f.write32(0, IRQ_NUMBER, n + 1)
            f.write32(0, COMMAND, RAISE_MSIX)
            check(raised(fds[n]), "vector", n)
        check(not any(raised(fd, 0) for fd in fds), "one each")
        f.write16(at + 2, 0)
        f.write32(0, COMMAND, RAISE_MSIX)
        check(f.read32(0, COMMAND) == 0 and not raised(fds[-1], 0), "disabled")
        check(w.host.stop() == 0, w.host.errors())
        slot = w.host.result()["slot_1"]
        check(slot["msis"] == 3 and slot["msis_refused"] == 0, slot)


@case
def v43_msi_stands_for_msix():
    """The default: MSI, which QEMU 11.1 unplugs, is what a device with both kinds shows."""
    with lab.Lab() as l:
        f = World(l).client()
        check(5 in f.capability and 0x11 not in f.capability, f.capability)
        check(f.vectors(MSIX) == 0 and f.vectors(MSI) == 32, f.vectors(MSI))
        at, fds = f.capability[5], eventfds(32)
        f.interrupts(0, fds, MSI)
        f.write16(4, MEMORY_ON | BUS_MASTER)
        f.write32(CONFIG, at + 4, 0xfee0f00c)  # the virtual machine's own, which the device
        f.write16(at + 12, 0x4141)  # never learns of
        f.write16(at + 2, f.read16(at + 2) | 0x51)  # 32 messages
        check(f.read32(CONFIG, at + 4) == 0xfee0f00c and f.read16(at + 12) == 0x4141)
        f.write32(0, IRQ_TYPE, 1)
        for n in (0, 5, 31):
            f.write32(0, IRQ_NUMBER, n + 1)
            f.write32(0, COMMAND, RAISE_MSI)
            check(raised(fds[n]), "message", n)
        check(not any(raised(fd, 0) for fd in fds), "one each")


def set_up(f):
    """Interrupts and a register, to be seen again or not after a reset."""
    fds = eventfds(32)
    f.interrupts(0, fds, MSI)
    f.write16(4, MEMORY_ON | BUS_MASTER)
    at = f.capability[5]
    f.write16(at + 2, f.read16(at + 2) | 0x51)
    f.write32(0, SIZE, 77)
    return fds


def works(f, fds):
    f.write32(0, IRQ_TYPE, 1)
    f.write32(0, IRQ_NUMBER, 3)
    f.write32(0, COMMAND, RAISE_MSI)
    check(raised(fds[2]))
    data = os.urandom(500)
    check(f.copy(data) & COPIED and f.memory[TARGET:TARGET + len(data)] == data)


@case
def v44_resets_leave_a_function_that_works():
    with lab.Lab() as l:
        f = World(l).client()
        express = f.capability[0x10]
        for reset in (f.reset, lambda: f.write16(express + 8, 0x8000)):
            works(f, set_up(f))
            check(f.read32(0, SIZE) == 500)
            reset()
            check(f.read16(4) & 7 == 0 and f.read16(f.capability[5] + 2) & 1 == 0)
            check(f.read32(CONFIG, 0x10) & ~0xf == 0 and f.read32(0, SIZE) == 0)
        works(f, set_up(f))


class Slow(net_vfio_user.Server):
    """A device of another process, which needs longer for a reset than an access may wait."""

    RESET, SECONDS = 13, 3.0

    def __init__(self, path):
        self.slow = False
        super().__init__(path)

    def answer(self, command, body):
        if command == self.RESET and self.slow:
            time.sleep(self.SECONDS)
        return super().answer(command, body)


@case
def v44_device_that_is_slow_after_a_reset():
    with lab.Lab() as l:
        server, at = Slow(l.file("device")), lab.address()
        l.start("dxpu-box", "--listen", at, "--slot", "1=vfio-user,socket=" + l.file("device"),
                "--json").says("is there")
        path = l.file("vm")
        host = l.start("dxpu-host", "--vfio-user", path, "--direct", "--slots", 1, "--attach",
                       "1=%s/1" % at, "--json")
        host.says("waiting for a guest")
        f = Function(path + ".1")
        check(f.read32(CONFIG, 0) == SLOW_ID)
        f.write32(0, 64, 7)
        server.slow = True
        f.reset()
        check(f.read32(CONFIG, 0) == 0xffffffff, "not yet")
        until(lambda: f.read32(CONFIG, 0) == SLOW_ID, "it is ready", HANG)
        f.write32(0, 64, 8)
        check(f.read32(0, 64) == 8)
        server.slow = False
        f.close()
        f = Function(path + ".1")
        check(f.read32(CONFIG, 0) == SLOW_ID)
        check(host.stop() == 0, host.errors())
        function = host.result()["function_1"]
        check(function["setups_failed"] > 0 and function["timeouts"] == 0, function)


@case
def v44_next_client_finds_it_reset():
    with lab.Lab() as l:
        w = World(l)
        f = w.client()
        works(f, set_up(f))
        f.close()
        f = w.client()
        check(f.read32(0, SIZE) == 0 and f.read16(4) & 7 == 0)
        works(f, set_up(f))


class Two(World):
    """Both slots of the host."""

    def __init__(self, l):
        super().__init__(l, slots=2)
        self.clients = [self.client(n) for n in (1, 2)]

    def process(self, name):
        return until(lambda: next((pid for found, pid in self.host.children() if found == name),
                                  None), name)


@case
def v33_each_connection_ends_gracefully():
    """Also with bytes unread, on which QEMU would end: the keeper is killed."""
    with lab.Lab() as l:
        w = Two(l)
        keeper = w.process("dxpu-keeper")
        os.kill(keeper, signal.SIGSTOP)
        for f in w.clients:
            f.send(vfio_client.READ, struct.pack("<QII", 0, CONFIG, 4))
        os.kill(keeper, signal.SIGKILL)
        for f in w.clients:
            check(f.socket.recv(1) == b"", "the end of the stream")
        check(w.host.wait(20) == 3, w.host.errors())


@case
def v30_lost_worker_is_a_loss_of_each_device():
    with lab.Lab() as l:
        w = Two(l)
        for f in w.clients:
            works(f, set_up(f))
        os.kill(w.process("dxpu-worker"), signal.SIGKILL)
        for f in w.clients:
            until(lambda f=f: f.read32(CONFIG, 0) == 0xffffffff, "it is gone", HANG)
        w.host.says(r"(?s)(is attached.*){4}", HANG)
        for n, f in enumerate(w.clients, 1):
            check(f.read32(CONFIG, 0) == 0xffffffff, "the client's device does not come back")
            f.close()
            f = w.client(n)
            works(f, set_up(f))
            f.close()
        check(w.host.stop() == 0, w.host.errors())


@case
def v45_empty_slot_has_clients_wait():
    with lab.Lab() as l:
        w = World(l)
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(0.3)
        s.connect(w.path + ".2")
        s.sendall(struct.pack("<HHIII", 1, 1, 23, 0, 0) + struct.pack("<HH", 0, 1) + b"{}\0")
        try:
            check(False, "an empty slot answers", s.recv(1))
        except socket.timeout:
            pass
        w.client()  # control


@case
def v45_lost_device_reads_ones_and_returns_to_the_next_client():
    with lab.Lab() as l:
        w = World(l)
        f = w.client()
        works(f, set_up(f))
        w.box.kill()
        until(lambda: f.read32(CONFIG, 0) == 0xffffffff, "it is gone", HANG)
        check(f.read32(0, SIZE) == 0xffffffff and f.read(CONFIG, 0, 4096) == b"\xff" * 4096)
        f.write32(0, SIZE, 1)  # they do no harm
        f.write16(4, MEMORY_ON | BUS_MASTER)
        f.reset()
        w.box = w.start_box()
        w.host.says(r"(?s)is attached.*is attached", HANG)
        check(f.read32(CONFIG, 0) == 0xffffffff, "the client's device does not come back")
        f.close()
        f = w.client()
        check(f.read32(CONFIG, 0) == ID and f.read32(0, SIZE) == 0, "written while it was lost")
        works(f, set_up(f))
        check(w.host.stop() == 0, w.host.errors())


if __name__ == "__main__":
    sys.exit(main())
