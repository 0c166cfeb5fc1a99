"""A root complex in a few hundred lines: what a virtual machine and its kernel do with the slots.

It connects to the vfio-user socket of dxpu-host (or dxpu-direct) as QEMU does, enumerates the
ports behind the function it finds, takes their hot-plug interrupts, and drives an NVMe controller
with queues in shared memory and MSI-X.  For machines on which no guest can be had.

Standard library only."""
# SPDX-License-Identifier: MIT
import collections
import hashlib
import mmap
import os
import random
import socket
import struct
import time

MEMORY, MEMORY_BYTES, PAGE = 0x40000000, 16 << 20, 4096
WINDOW, WINDOW_BYTES, SLOT_BYTES = 0xE0000000, 64 << 20, 2 << 20  # BAR2, 32-bit memory
HIGH_WINDOW = 0x2000000000  # BAR4
MSI_ADDRESS = 0xFEE00000
VERSION, DMA_MAP, REGION_READ, REGION_WRITE, DMA_WRITE = 1, 2, 9, 10, 12  # commands
REPLY, NO_REPLY, ERROR = 1, 0x10, 0x20  # flags
CONFIG = 7  # the region of the function's own configuration space
PORT_VECTOR = 0xFF  # interrupts carry slot << 8 | vector
READ, WRITE = 2, 1  # NVMe's opcodes
BLOCK = 4096  # bytes of every read and write here


class Gone(Exception):
    """The device is not there any more."""


class Late(Exception):
    """Something that must happen has not."""


# ==== 1  The vfio-user connection =================================================================

class Client:
    """One client of a vfio-user server, and the memory that it shares for DMA."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.number, self.rest = 0, b""
        self.interrupts = collections.Counter()
        fd = os.memfd_create("root")
        os.ftruncate(fd, MEMORY_BYTES)
        self.memory = mmap.mmap(fd, MEMORY_BYTES)
        self.ask(VERSION, struct.pack("<HH", 0, 1) + b'{"capabilities":{}}\0')
        self.ask(DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, MEMORY, MEMORY_BYTES), [fd])
        os.close(fd)

    def close(self):
        self.socket.close()

    def send(self, command, body, flags=0, fds=()):
        self.number = (self.number + 1) & 0xFFFF
        header = struct.pack("<HHIII", self.number, command, 16 + len(body), flags, 0)
        if fds:
            socket.send_fds(self.socket, [header + body], fds)
        else:
            self.socket.sendall(header + body)
        return self.number

    def receive(self, seconds):
        """One message; a message of the server's own is an interrupt.  (number, flags, body)"""
        self.socket.settimeout(max(seconds, 0.001))
        while len(self.rest) < 16 or len(self.rest) < struct.unpack_from("<I", self.rest, 4)[0]:
            try:
                got = self.socket.recv(65536)
            except socket.timeout:
                return None
            if not got:
                raise Gone("the proxy has closed the connection")
            self.rest += got
        number, command, size, flags, _ = struct.unpack_from("<HHIII", self.rest)
        body, self.rest = self.rest[16:size], self.rest[size:]
        if not flags & REPLY and command == DMA_WRITE:
            address, count = struct.unpack_from("<QQ", body)
            if address == MSI_ADDRESS and count == 4:
                self.interrupts[struct.unpack_from("<I", body, 16)[0]] += 1
        return number, flags, body

    def ask(self, command, body, fds=()):
        number = self.send(command, body, fds=fds)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            got = self.receive(end - time.monotonic())
            if got and got[1] & 0xF == REPLY and got[0] == number:
                if got[1] & ERROR:
                    raise Gone("the proxy refused command %d" % command)
                return got[2]
        raise Late("no answer to command %d in 10 s" % command)

    def read(self, region, offset, size=4):
        body = self.ask(REGION_READ, struct.pack("<QII", offset, region, size))
        return int.from_bytes(body[16:16 + size], "little")

    def write(self, region, offset, value, size=4):
        """Memory writes are posted, as on a bus; configuration writes are answered."""
        body = struct.pack("<QII", offset, region, size) + value.to_bytes(size, "little")
        if region in (0, CONFIG):
            self.ask(REGION_WRITE, body)
        else:
            self.send(REGION_WRITE, body, NO_REPLY)


# ==== 2  The root complex =========================================================================

class Root:
    """Enumerates the hierarchy; its functions are named by their place in the ECAM of BAR0."""

    def __init__(self, path, slots):
        self.client, self.slots = Client(path), slots
        self.used = 0  # of memory
        for register, value in ((0x10, 0xC0000000), (0x14, 0), (0x18, WINDOW), (0x1C, 0),
                                (0x20, HIGH_WINDOW & 0xFFFFFFFF), (0x24, HIGH_WINDOW >> 32),
                                (0x04, 0x0006)):
            self.client.write(CONFIG, register, value)
        self.ports = {n: self.open_port(n) for n in range(1, slots + 1)}
        self.devices = {}

    def close(self):
        self.client.close()

    def allocate(self, size):
        """The guest address of zeroed pages.  They are never given back: a device that is added
        again takes new ones."""
        at = self.used
        self.used += (size + PAGE - 1) // PAGE * PAGE
        if self.used > MEMORY_BYTES:
            raise MemoryError("%d MB are used up" % (MEMORY_BYTES >> 20))
        return MEMORY + at

    def config(self, function, register, size=4):
        return self.client.read(0, function + register, size)

    def configure(self, function, register, value, size=4):
        self.client.write(0, function + register, value, size)

    def capability(self, function, wanted):
        at = self.config(function, 0x34, 1)
        while at:
            if self.config(function, at, 1) == wanted:
                return at
            at = self.config(function, at + 1, 1)
        raise Gone("no capability %d" % wanted)

    def open_port(self, slot):
        """A root port: its bus, its window, its hot-plug interrupt.  (function, slot registers)"""
        port = slot << 15
        if self.config(port, 0) in (0, 0xFFFFFFFF):
            raise Gone("there is no port of slot %d" % slot)
        base = WINDOW + (slot - 1) * SLOT_BYTES
        limit = base + SLOT_BYTES - 1
        self.configure(port, 0x18, slot << 16 | slot << 8)  # secondary and subordinate bus
        self.configure(port, 0x20, (limit & 0xFFF00000) | base >> 16)
        self.configure(port, 0x24, 0x0000FFF0)  # no prefetchable window
        self.configure(port, 0x04, 0x0006, 2)
        msi = self.capability(port, 5)
        wide = self.config(port, msi + 2, 2) & 0x80
        self.configure(port, msi + 4, MSI_ADDRESS)
        self.configure(port, msi + (12 if wide else 8), slot << 8 | PORT_VECTOR, 2)
        self.configure(port, msi + 2, 1, 2)
        express = self.capability(port, 16)
        self.configure(port, express + 0x18, 0x1028, 2)  # presence, hot-plug interrupt, link state
        return port, express

    def present(self, slot):
        """What the slot's registers say; the change bits are cleared."""
        port, express = self.ports[slot]
        status = self.config(port, express + 0x1A, 2)
        self.configure(port, express + 0x1A, status & 0x11F, 2)
        return bool(status & 0x40 and self.config(port, express + 0x12, 2) & 0x2000)

    def wait_present(self, slot, wanted, seconds=30):
        """Sleep until the slot's hot-plug interrupts have reported it."""
        end = time.monotonic() + seconds
        while self.present(slot) != wanted:
            if time.monotonic() > end:
                raise Late("slot %d is not %s in %g s" % (slot, "filled" if wanted else "empty",
                                                          seconds))
            seen = self.client.interrupts[slot << 8 | PORT_VECTOR]
            while self.client.interrupts[slot << 8 | PORT_VECTOR] == seen:
                if not self.client.receive(min(1, end - time.monotonic())):
                    break

    def filled(self, slot):
        """Wait for a device, and start it."""
        self.wait_present(slot, True)
        self.devices[slot] = Nvme(self, slot)
        return self.devices[slot]

    def emptied(self, slot):
        self.wait_present(slot, False)
        self.devices.pop(slot, None)


# ==== 3  An NVMe driver ===========================================================================

class Queue:
    """A submission queue, its completion queue and the interrupt of that."""

    def __init__(self, nvme, number, entries):
        self.nvme, self.number, self.entries = nvme, number, entries
        self.memory = nvme.root.client.memory
        self.sq, self.cq = (nvme.root.allocate(entries * size) for size in (64, 16))
        self.tail = self.head = 0
        self.phase = 1

    def put(self, words):
        """Sixteen dwords; bell() notifies the controller."""
        struct.pack_into("<16I", self.memory, self.sq - MEMORY + self.tail * 64, *words)
        self.tail = (self.tail + 1) % self.entries

    def bell(self):
        self.nvme.write(0x1000 + 8 * self.number, self.tail)

    def take(self):
        """Completions that have arrived: (command's number, status, result)."""
        found = []
        while True:
            result, _, _, last = struct.unpack_from("<4I", self.memory,
                                                    self.cq - MEMORY + self.head * 16)
            if last >> 16 & 1 != self.phase:
                break
            found.append((last & 0xFFFF, last >> 17, result))
            self.head = (self.head + 1) % self.entries
            self.phase ^= not self.head
        if found:
            self.nvme.write(0x1004 + 8 * self.number, self.head)
        return found

    def wait(self, seconds=10):
        """Completions; sleeps until the interrupt."""
        vector = self.nvme.slot << 8 | self.number
        port = self.nvme.slot << 8 | PORT_VECTOR
        client = self.nvme.root.client
        plugged = client.interrupts[port]
        end = time.monotonic() + seconds
        while True:
            seen = client.interrupts[vector]
            found = self.take()
            if found:
                return found
            while client.interrupts[vector] == seen:
                if client.interrupts[port] != plugged:
                    plugged = client.interrupts[port]
                    if not self.nvme.root.present(self.nvme.slot):
                        raise Gone("slot %d is empty" % self.nvme.slot)
                if time.monotonic() > end:
                    raise Late("no completion in %g s" % seconds)
                client.receive(end - time.monotonic())


class Nvme:
    """The controller in a slot: identified, placed, and ready for reads and writes."""

    DEPTH = 32

    def __init__(self, root, slot):
        self.root, self.slot, self.function = root, slot, slot << 20
        self.bar = (slot - 1) * SLOT_BYTES  # in the window
        self.id = root.config(self.function, 0)
        self.device_class = root.config(self.function, 8) >> 8
        if self.id in (0, 0xFFFFFFFF) or self.device_class != 0x010802:
            raise Gone("slot %d has no NVMe controller, but %08x" % (slot, self.id))
        self.place()
        self.enable()
        self.identify()
        self.open_queue()

    def write(self, register, value):
        self.root.client.write(2, self.bar + register, value)

    def register(self, register):
        value = self.root.client.read(2, self.bar + register)
        if value == 0xFFFFFFFF:
            raise Gone("slot %d reads as all ones" % self.slot)
        return value

    def place(self):
        root, function = self.root, self.function
        root.configure(function, 0x10, 0xFFFFFFFF)
        self.bar_bytes = -(root.config(function, 0x10) & ~0xF) & 0xFFFFFFFF
        root.configure(function, 0x10, WINDOW + self.bar)
        root.configure(function, 0x14, 0)
        root.configure(function, 0x04, 0x0006, 2)
        port, above = root.ports[self.slot]  # its Max_Payload_Size, as a kernel gives it
        payload = root.config(port, above + 8, 2) & 0xE0
        express = root.capability(function, 16)
        control = root.config(function, express + 8, 2)
        root.configure(function, express + 8, (control & ~0xE0) | payload, 2)
        msix = root.capability(function, 17)
        control = root.config(function, msix + 2, 2)
        table = root.config(function, msix + 4) & ~7
        for vector in range(2):
            for at, value in enumerate((MSI_ADDRESS, 0, self.slot << 8 | vector, 0)):
                self.write(table + 16 * vector + 4 * at, value)
        root.configure(function, msix + 2, control | 0x8000, 2)

    def enable(self):
        self.write(0x14, 0)
        self.until_ready(0)
        self.admin = Queue(self, 0, 16)
        self.write(0x24, 15 << 16 | 15)
        for at, address in ((0x28, self.admin.sq), (0x30, self.admin.cq)):
            self.write(at, address)
            self.write(at + 4, 0)
        self.write(0x14, 4 << 20 | 6 << 16 | 1)  # sizes of the entries, enable
        self.until_ready(1)

    def until_ready(self, wanted):
        end = time.monotonic() + 10
        while self.register(0x1C) & 1 != wanted:
            if time.monotonic() > end:
                raise Late("the controller does not change to ready=%d" % wanted)

    def command(self, opcode, namespace=0, data=0, words=()):
        """One admin command; its result."""
        words = tuple(words) + (0,) * (6 - len(words))
        self.admin.put((opcode, namespace, 0, 0, 0, 0, data, 0, 0, 0) + words)
        self.admin.bell()
        _, status, result = self.admin.wait()[0]
        if status:
            raise Gone("admin command %#x: status %#x" % (opcode, status))
        return result

    def identify(self):
        page = self.root.allocate(PAGE)
        at, memory = page - MEMORY, self.root.client.memory
        self.command(6, 0, page, (1,))
        self.model = memory[at + 24:at + 64].decode("ascii", "replace").strip()
        self.serial = memory[at + 4:at + 24].decode("ascii", "replace").strip()
        self.command(6, 1, page, (0,))
        blocks, = struct.unpack_from("<Q", memory, at)
        form = memory[at + 26] & 0xF
        self.lba_bytes = 1 << memory[at + 128 + 4 * form + 2]
        self.bytes = blocks * self.lba_bytes

    def open_queue(self):
        self.io = Queue(self, 1, 2 * self.DEPTH)
        self.command(9, 0, 0, (7, 0))  # one queue pair
        size = (self.io.entries - 1) << 16 | 1
        self.command(5, 0, self.io.cq, (size, 1 << 16 | 3))  # vector 1, interrupts, contiguous
        self.command(1, 0, self.io.sq, (size, 1 << 16 | 1))
        self.pages = [self.root.allocate(BLOCK) for _ in range(self.DEPTH)]

    # ==== 4  Reads and writes =====================================================================

    def start(self, number, opcode, block):
        lba = block * (BLOCK // self.lba_bytes)
        self.io.put((number << 16 | opcode, 1, 0, 0, 0, 0, self.pages[number], 0, 0, 0,
                     lba & 0xFFFFFFFF, lba >> 32, BLOCK // self.lba_bytes - 1, 0, 0, 0))

    def page(self, number):
        at = self.pages[number] - MEMORY
        return slice(at, at + BLOCK)

    def run(self, opcode, blocks, depth, before=None, after=None):
        """Read or write all blocks, `depth` at a time; the latencies in ns.  before(number, block)
        fills a page, after(number, block) looks at it."""
        blocks, free, doing, taken = iter(blocks), list(range(depth)), {}, []
        while True:
            fresh = False
            while free:
                block = next(blocks, None)
                if block is None:
                    break
                number, fresh = free.pop(), True
                if before:
                    before(number, block)
                doing[number] = block, time.monotonic_ns()
                self.start(number, opcode, block)
            if fresh:
                self.io.bell()
            if not doing:
                return taken
            for number, status, _ in self.io.wait():
                block, since = doing.pop(number)
                taken.append(time.monotonic_ns() - since)
                if status:
                    raise Gone("block %d: status %#x" % (block, status))
                if after:
                    after(number, block)
                free.append(number)

    def pattern(self, seed, block):
        return hashlib.sha256(b"%d %d" % (seed, block)).digest() * (BLOCK // 32)

    def fill(self, seed, blocks, depth=8):
        memory = self.root.client.memory

        def before(number, block):
            memory[self.page(number)] = self.pattern(seed, block)
        self.run(WRITE, blocks, depth, before=before)

    def check(self, seed, blocks, depth=8):
        """How many blocks do not hold what fill() wrote."""
        memory, bad = self.root.client.memory, []

        def before(number, _):
            memory[self.page(number)] = bytes(BLOCK)

        def after(number, block):
            if memory[self.page(number)] != self.pattern(seed, block):
                bad.append(block)
        self.run(READ, blocks, depth, before, after)
        return len(bad)

    def random_blocks(self, seconds):
        dice, end, count = random.Random(1), time.monotonic() + seconds, self.bytes // BLOCK
        while time.monotonic() < end:
            yield dice.randrange(count)

    def measure(self, depth, seconds):
        """Random reads: a second's number, and latencies."""
        begin = time.monotonic()
        taken = sorted(self.run(READ, self.random_blocks(seconds), depth))
        return {"iops": len(taken) / (time.monotonic() - begin),
                "mean_us": sum(taken) / len(taken) / 1e3,
                "p50_us": taken[len(taken) // 2] / 1e3,
                "p99_us": taken[len(taken) * 99 // 100] / 1e3}
