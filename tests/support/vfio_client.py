"""A client of dxpu-host's vfio-user socket that is not a virtual machine: accesses as QEMU makes
them for a guest, with slots as root ports.  Standard library only."""
# SPDX-License-Identifier: MIT
import socket
import struct
import time

HANG = 60  # seconds after which something hangs that takes one
VERSION, DMA_MAP, DMA_UNMAP, REGION_INFO, IRQ_INFO, SET_IRQS = 1, 2, 3, 5, 7, 8
READ, WRITE, DMA_WRITE, RESET, WRITE_MULTI = 9, 10, 12, 13, 15
NO_REPLY = 0x10
MSI, MSIX = 1, 2  # kinds of interrupts
EVENTFDS = 1 << 2 | 1 << 5  # flags of SET_IRQS
FDS = 8  # descriptors of a message
ECAM, LOW, WINDOW, CONFIG = 0, 2, 4, 7  # regions
PORT, DEVICE = 1 << 15, 1 << 20  # of the first slot, in the ECAM
BAR2, BAR4 = 0xe0000000, 1 << 40
BASE = 16 << 20  # of the slot's prefetchable window, in BAR4; as long as that


class Client:
    def __init__(self, path, seconds=HANG):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(seconds)
        self.socket.connect(path)
        self.number = 0
        self.messages = []  # what came unasked: interrupts of devices, as (address, data)
        self.send(VERSION, struct.pack("<HH", 0, 1) + b"{}\0")
        self.receive()

    def send(self, command, body, flags=0, descriptors=()):
        self.number += 1
        data = struct.pack("<HHIII", self.number & 0xffff, command, 16 + len(body), flags, 0) + body
        sent = socket.send_fds(self.socket, [data], list(descriptors)) if descriptors else 0
        self.socket.sendall(data[sent:])

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise AssertionError("dxpu-host closed the connection")
            data += more
        return data

    def receive(self):
        while True:
            number, command, size, flags, error = struct.unpack("<HHIII", self.exactly(16))
            body = self.exactly(size - 16)
            if command != DMA_WRITE or flags != NO_REPLY:
                break
            self.messages.append((struct.unpack("<Q", body[:8])[0], body[16:]))
        if flags & 0xf != 1 or number != self.number & 0xffff or error:
            raise AssertionError("flags %#x, error %d" % (flags, error))
        return body

    def close(self):
        self.socket.close()

    def map_memory(self, at, size, descriptor):
        """Guest memory, read and written by whoever has the descriptor."""
        self.send(DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, at, size), descriptors=[descriptor])
        self.receive()

    def unmap_memory(self, at, size):
        self.send(DMA_UNMAP, struct.pack("<IIQQ", 24, 0, at, size))
        self.receive()

    def interrupts(self, first, descriptors, kind=MSIX):
        """Vectors of the function, an eventfd each."""
        for i in range(0, len(descriptors), FDS):
            some = descriptors[i:i + FDS]
            self.send(SET_IRQS, struct.pack("<IIIII", 20, EVENTFDS, kind, first + i, len(some)),
                      descriptors=some)
            self.receive()

    def region_bytes(self, region):
        self.send(REGION_INFO, struct.pack("<IIIIQQ", 32, 0, region, 0, 0, 0))
        return struct.unpack("<Q", self.receive()[16:24])[0]

    def vectors(self, kind):
        self.send(IRQ_INFO, struct.pack("<IIII", 16, 0, kind, 0))
        return struct.unpack("<I", self.receive()[12:16])[0]

    def reset(self):
        self.send(RESET, b"")
        self.receive()

    def read(self, region, at, count):
        self.send(READ, struct.pack("<QII", at, region, count))
        return self.receive()[16:]

    def write(self, region, at, data, posted=False):
        self.send(WRITE, struct.pack("<QII", at, region, len(data)) + data,
                  NO_REPLY if posted else 0)
        if not posted:
            self.receive()

    def write_many(self, region, writes):
        """Writes of at most 8 bytes each, as (offset, bytes), gathered in one posted message."""
        body = struct.pack("<Q", len(writes))
        for at, data in writes:
            body += struct.pack("<QII", at, region, len(data)) + data.ljust(8, b"\0")
        self.send(WRITE_MULTI, body, NO_REPLY)

    def write32(self, region, at, value):
        self.write(region, at, struct.pack("<I", value))

    def read32(self, region, at):
        return struct.unpack("<I", self.read(region, at, 4))[0]

    def map_slot(self):
        """Give the first slot's port its bus and windows, as a kernel does."""
        start, last = BAR4 + BASE, BAR4 + 2 * BASE - 1
        self.write32(CONFIG, 0x18, BAR2)
        self.write32(CONFIG, 0x20, BAR4 & 0xffffffff)
        self.write32(CONFIG, 0x24, BAR4 >> 32)
        self.write32(ECAM, PORT + 0x18, 0x00010100)
        self.write32(ECAM, PORT + 0x20, (BAR2 >> 16) * 0x10001)
        self.write32(ECAM, PORT + 0x24, (last >> 16 & 0xfff0) << 16 | (start >> 16 & 0xfff0))
        self.write32(ECAM, PORT + 0x28, start >> 32)
        self.write32(ECAM, PORT + 0x2c, last >> 32)
        self.write32(ECAM, PORT + 0x04, 6)

    def filled(self):
        """Wait until the slot shows its device: the host has sized its BARs before."""
        end = time.monotonic() + HANG
        while not self.read32(ECAM, PORT + 0x58) >> 22 & 1:  # Presence Detect State
            if time.monotonic() > end:
                raise AssertionError("the slot stays empty")

    def map_device(self, low, high):
        """Place the device's BARs: low, of 32 bits, and high, of 64, at the starts of the windows.
        They are named by their numbers."""
        self.write32(ECAM, DEVICE + 0x10 + 4 * low, BAR2)
        self.write32(ECAM, DEVICE + 0x10 + 4 * high, (BAR4 + BASE) & 0xffffffff)
        self.write32(ECAM, DEVICE + 0x14 + 4 * high, (BAR4 + BASE) >> 32)
        self.write32(ECAM, DEVICE + 0x04, 6)
        self.read32(ECAM, DEVICE + 0x04)  # what is posted may pass configuration writes
