"""An NVMe driver over dxpu-host's vfio-user socket (vfio_client.py), for tests: queues in
memory that both share, polled.  Standard library only."""
# SPDX-License-Identifier: MIT
import mmap
import os
import struct
import time

import vfio_client

DEPTH, PAGE, MEMORY = 64, 4096, 64 << 20
QUEUES_AT, DATA_AT = 1 << 20, 8 << 20
DEVICE_CONTROL = 0x2140  # payloads and read requests of 512 bytes, all tags
BAR_STEP, QUEUES_STEP = 0x10000, 64 << 10  # from a function to the next one
HANG = 30  # seconds


class Disk:
    """The first slot's NVMe controller, enabled, with `count` pairs of queues of 64 entries."""

    pause_s = 50e-6  # between looks at a queue: the programs have the processor then

    def __init__(self, path, count, memory=MEMORY):
        self.guest = vfio_client.Client(path)
        self.fd = os.memfd_create("guest")
        os.ftruncate(self.fd, memory)
        self.memory = mmap.mmap(self.fd, memory)
        self.guest.map_memory(0, memory, self.fd)
        self.guest.map_slot()
        self.guest.filled()
        self.drive(0, count)

    def drive(self, number, count, bar=None):
        """Be the driver of a function, whose BAR is that far in the window."""
        self.number, self.count, self.cid, self.done = number, count, 0, {}
        self.bar = number * BAR_STEP if bar is None else bar
        self.place()
        self.enable()

    def config(self, register, value=None):
        """A register of the function's configuration space; with a value it is written."""
        at = vfio_client.DEVICE + (self.number << 12) + register
        if value is None:
            return self.guest.read32(vfio_client.ECAM, at)
        self.guest.write32(vfio_client.ECAM, at, value)
        return None

    def place(self):
        """Its BAR, memory, bus mastering, sizes."""
        for register, value in ((0x10, vfio_client.BAR2 + self.bar), (0x14, 0),
                                (0x68, DEVICE_CONTROL), (0x04, 6)):
            self.config(register, value)
        self.config(0x04)

    def close(self):
        self.guest.close()
        self.memory.close()
        os.close(self.fd)

    def set(self, register, value):
        self.guest.write32(vfio_client.LOW, self.bar + register, value)

    def get(self, register):
        return self.guest.read32(vfio_client.LOW, self.bar + register)

    def ready(self, value):
        end = time.monotonic() + HANG
        while self.get(0x1c) & 1 != value:
            if time.monotonic() > end:
                raise AssertionError("the controller does not become %d" % value)

    def sq(self, q):
        return QUEUES_AT + self.number * QUEUES_STEP + q * 2 * PAGE

    def disable(self):
        """The seconds that the reset of the controller took."""
        begin = time.monotonic()
        self.set(0x14, 0)
        self.ready(0)
        return time.monotonic() - begin

    def enable(self):
        size = 2 * PAGE * (self.count + 1)
        self.memory[self.sq(0):self.sq(0) + size] = bytes(size)
        self.tail, self.head = [0] * (self.count + 1), [0] * (self.count + 1)
        self.phase = [1] * (self.count + 1)
        self.done = {}
        for register, value in ((0x24, (DEPTH - 1) * 0x10001), (0x28, self.sq(0)), (0x2c, 0),
                                (0x30, self.sq(0) + PAGE), (0x34, 0), (0x14, 0x460001)):
            self.set(register, value)
        self.ready(1)
        for q in range(1, self.count + 1):
            self.must(0x05, prp=self.sq(q) + PAGE, dw10=(DEPTH - 1) << 16 | q, dw11=1)
            self.must(0x01, prp=self.sq(q), dw10=(DEPTH - 1) << 16 | q, dw11=q << 16 | 1)

    def put(self, q, opcode, nsid=1, prp=DATA_AT, dw10=0, dw11=0, dw12=0, prp2=0):
        """An entry, for ring() to submit; its number."""
        self.cid = self.cid % 0xffff + 1
        at = self.sq(q) + 64 * self.tail[q]
        self.memory[at:at + 64] = struct.pack("<IIQQQQIIIIII", self.cid << 16 | opcode, nsid, 0, 0,
                                              prp, prp2, dw10, dw11, dw12, 0, 0, 0)
        self.tail[q] = (self.tail[q] + 1) % DEPTH
        return self.cid

    def ring(self, q):
        self.set(0x1000 + 8 * q, self.tail[q])

    def reap(self, q):
        """Statuses of the commands that are over, by number, into done."""
        before = self.head[q]
        while True:
            at = self.sq(q) + PAGE + 16 * self.head[q]
            _, _, _, cid, status = struct.unpack("<IIIHH", self.memory[at:at + 16])
            if status & 1 != self.phase[q]:
                break
            self.done[cid] = status >> 1 & 0x7ff
            self.head[q] = (self.head[q] + 1) % DEPTH
            self.phase[q] ^= not self.head[q]
        if self.head[q] != before:
            self.set(0x1004 + 8 * q, self.head[q])

    def wait(self, q, cid):
        end = time.monotonic() + HANG
        while cid not in self.done:
            self.reap(q)
            if time.monotonic() > end:
                raise AssertionError("a command does not end")
            if self.pause_s and cid not in self.done:
                time.sleep(self.pause_s)
        return self.done.pop(cid)

    def do(self, opcode, q=0, **fields):
        cid = self.put(q, opcode, **fields)
        self.ring(q)
        return self.wait(q, cid)

    def must(self, opcode, **fields):
        status = self.do(opcode, **fields)
        if status:
            raise AssertionError("opcode %#x: status %#x" % (opcode, status))


class Function(Disk):
    """A further function of a disk's device, driven by the same guest."""

    def __init__(self, first, number, count=1, bar=None):
        self.guest, self.memory = first.guest, first.memory
        self.drive(number, count, bar)
