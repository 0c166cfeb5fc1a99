"""Devices that are reached by NetTLP and by PCILeech's RawUDP, for tests: memory behind a BAR, and
requests of their own.  Written from spec/foreign.md alone, N-1 to N-5; nothing is shared with the
programs.  Standard library only."""
# SPDX-License-Identifier: MIT
import random
import select
import socket
import struct
import threading
import time

MRD, MWR, CPL, CPLD = 0x00, 0x40, 0x0a, 0x4a
HANG = 20
CLAIM = 28473  # a UDP port that neither wire uses
claims = []


def addresses(count):
    """Loopback addresses of this process: their ports are fixed, and another check may run on this
    machine.  Who has port CLAIM of the first one has them all."""
    for _ in range(100):
        network = "127.%d.%d." % (random.randrange(4, 250), random.randrange(256))
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((network + "1", CLAIM))
        except OSError:
            claim.close()
            continue
        claims.append(claim)
        return [network + str(n + 1) for n in range(count)]
    raise AssertionError("no loopback addresses are free")


def memory_request(kind, address, first, last, length, requester, tag, data=b""):
    """A memory request; those above 4 GB have a header of four dwords."""
    wide = address >> 32 != 0
    head = struct.pack(">BBHHBB", kind | (0x20 if wide else 0), 0, length & 0x3ff, requester, tag,
                       last << 4 | first)
    return head + struct.pack(">Q" if wide else ">I", address & ~3) + data


def enables(address, count):
    """(first, last, dwords) of `count` bytes."""
    skip, end = address & 3, (address & 3) + count
    dwords = (end + 3) // 4
    first, last = 0xf << skip & 0xf, 0xf >> (-end & 3)
    return (first & last, 0, 1) if dwords == 1 else (first, last, dwords)


class Tlp:
    """What arrived: a memory request or a completion."""

    def __init__(self, data):
        kind, _, length, = struct.unpack(">BBH", data[:4])
        self.kind, self.length = kind, (length & 0x3ff) or 1024
        if kind in (CPL, CPLD):
            self.status = data[6] >> 5
            self.byte_count = (struct.unpack(">H", data[6:8])[0] & 0xfff) or 4096
            self.requester, self.tag, self.lower = struct.unpack(">HBB", data[8:12])
            self.payload = data[12:]
            return
        self.requester, self.tag, be = struct.unpack(">HBB", data[4:8])
        self.first, self.last = be & 0xf, be >> 4
        wide = kind & 0x20
        self.address = struct.unpack(">Q" if wide else ">I", data[8:16 if wide else 12])[0] & ~3
        self.payload = data[16 if wide else 12:]
        self.kind &= ~0x20

    def enabled(self):
        """Bytes from the address on that are asked for, as (at, count); count 0: none."""
        all_of = [i for i in range(self.length * 4)
                  if (self.first if i < 4 else self.last if i // 4 == self.length - 1 else 0xf)
                  >> i % 4 & 1]
        return (all_of[0], all_of[-1] + 1 - all_of[0]) if all_of else (0, 0)


class Device:
    """Memory of `size` bytes at `base`, as the other end names it.  A thread answers."""

    def __init__(self, size=65536, base=1 << 32, payload=256):
        self.memory, self.base, self.payload = bytearray(size), base, payload
        self.requests, self.completions = [], []
        self.lose = lambda tlp: False  # whether an answer is lost
        self.silent = False
        self.none_is_four = False  # as libtlp's psmem: a read of no byte is one of four
        self.nap = 0  # seconds that each TLP takes
        self.lock = threading.Condition()
        self.stopping = False
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopping = True
        self.thread.join(HANG)
        self.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()

    def send(self, tlp, back_to):
        raise NotImplementedError

    def serve(self):
        raise NotImplementedError

    def close(self):
        raise NotImplementedError

    def took(self, data, back_to):
        """A TLP arrived; back_to is where its answer goes."""
        time.sleep(self.nap)
        if self.silent:
            return
        t = Tlp(data)
        with self.lock:
            (self.completions if t.kind in (CPL, CPLD) else self.requests).append(t)
            self.lock.notify_all()
        if t.kind == MRD:
            self.answer(t, back_to)
        elif t.kind == MWR:
            self.store(t)

    def store(self, t):
        at = t.address - self.base
        for i, byte in enumerate(t.payload):
            be = t.first if i < 4 else t.last if i // 4 == t.length - 1 else 0xf
            if be >> i % 4 & 1:
                self.memory[at + i] = byte

    def answer(self, t, back_to):
        """Completions of a read, cut where the payload limit and 64 bytes say."""
        if self.lose(t):
            return
        skip, left = t.enabled()
        at = t.address + skip
        if not left:  # a read of no byte
            self.send(struct.pack(">BBHHHHBB", CPLD, 0, 1, 0x0100,
                                  4 if self.none_is_four else 1, t.requester, t.tag,
                                  at & 0x7f) + bytes(4), back_to)
            return
        while left:
            part = min(left, self.payload - at % self.payload)
            first, dwords = at & ~3, (at % 4 + part + 3) // 4
            data = bytes(self.memory[first - self.base:first - self.base + dwords * 4])
            self.send(struct.pack(">BBHHHHBB", CPLD, 0, dwords & 0x3ff, 0x0100, left & 0xfff,
                                  t.requester, t.tag, at & 0x7f) + data, back_to)
            at, left = at + part, left - part

    def storm(self, chance, count):
        """Datagrams: noise, and answers and requests that are not quite right, or are."""
        for _ in range(count):
            kind = chance.randrange(6)
            tlp = bytes(chance.randrange(256) for _ in range(4 * chance.randrange(8)))
            if kind == 0 and self.requests:  # an answer to what was or is asked, somehow wrong
                t = chance.choice(self.requests[-20:])
                tlp = struct.pack(">BBHHHHBB", chance.choice((CPL, CPLD, CPLD, 0x4b)), 0,
                                  chance.randrange(5), 1, chance.randrange(4096), t.requester,
                                  t.tag, chance.randrange(128)) + tlp
            elif kind == 1:
                tlp = memory_request(chance.choice((MRD, MWR, 0x05, 0x4c, 0x30)),
                                     chance.getrandbits(chance.choice((24, 32, 64))),
                                     chance.randrange(16), chance.randrange(16),
                                     chance.randrange(1024), chance.getrandbits(16),
                                     chance.randrange(256), tlp)
            elif kind == 2:
                tlp = b""
            elif kind > 3:  # a whole one, of some address
                data = bytes(chance.randrange(1, 9) * 4)
                dwords = len(data) // 4
                write = chance.randrange(2)
                tlp = memory_request(MWR if write else MRD,
                                     chance.getrandbits(chance.choice((24, 32, 64))) & ~63, 0xf,
                                     0xf if dwords > 1 else 0, dwords, chance.getrandbits(16),
                                     chance.randrange(256), data if write else b"")
            self.throw(tlp + bytes(chance.randrange(256) for _ in range(chance.choice((0, 0, 3)))),
                       chance)

    def throw(self, data, chance):
        raise NotImplementedError

    def wait_for(self, test, what, seconds=HANG):
        end = time.monotonic() + seconds
        with self.lock:
            while True:
                found = test()
                if found:
                    return found
                if not self.lock.wait(end - time.monotonic()):
                    raise AssertionError("not seen: " + what)

    def write_host(self, address, data, tag=0, requester=0x0100):
        """One write to the host's memory: data in whole dwords but for its ends."""
        first, last, dwords = enables(address, len(data))
        body = bytes(address & 3) + data
        self.request(memory_request(MWR, address, first, last, dwords, requester, tag,
                                    body.ljust(dwords * 4, b"\0")), tag)

    def read_host(self, address, count, tag=0, requester=0x0100, seconds=HANG):
        """(status, bytes) of one read of the host's memory; None: no answer."""
        first, last, dwords = enables(address, count)
        with self.lock:
            self.completions.clear()
        self.request(memory_request(MRD, address, first, last, dwords, requester, tag), tag)

        def over():
            mine = [c for c in self.completions if (c.requester, c.tag) == (requester, tag)]
            got = b"".join(c.payload[c.lower & 3:][:c.byte_count] for c in mine)
            return mine and (mine[-1].status or len(got) >= count) and (mine[-1].status, got)
        try:
            return self.wait_for(over, "completions", seconds)
        except AssertionError:
            return None

    def request(self, tlp, tag):
        raise NotImplementedError


class NetTlp(Device):
    """Software on libtlp, or a device that behaves so, at `here`; the adapter is at `there`."""
    port = 0x3000  # of what this end requests

    def __init__(self, here, there, tags=16, **more):
        super().__init__(**more)
        self.here, self.there, self.sequence = here, there, 0
        self.sockets = {}
        for port in [0x4000 + i for i in range(16)] + [0x3000 + i for i in range(tags)]:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((here, port))
            self.sockets[port] = s

    def send(self, tlp, back_to):
        self.sequence = self.sequence + 1 & 0xffff
        self.sockets[back_to].sendto(
            struct.pack(">HI", self.sequence, time.monotonic_ns() & 0xffffffff) + tlp,
            (self.there, back_to))

    def request(self, tlp, tag):
        self.send(tlp, self.port + tag)

    def serve(self):
        while not self.stopping:
            for s in select.select(list(self.sockets.values()), [], [], 0.05)[0]:
                data, _ = s.recvfrom(65536)
                self.took(data[6:], s.getsockname()[1])

    def throw(self, data, chance):
        port = chance.choice(list(self.sockets))
        self.sockets[port].sendto(data if len(data) % 4 else bytes(6) + data, (self.there, port))

    def ask(self, what, seconds=5):
        """The answer's bytes to a question at the adapter's machine; None: none came."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind((self.here, 0))
            s.settimeout(seconds)
            s.sendto(struct.pack("=I", what), (self.there, 0x2fff))
            try:
                return s.recv(65536)
            except socket.timeout:
                return None

    def table(self):
        data = self.ask(3)
        return [struct.unpack("=QI", data[12 * i:12 * i + 12]) for i in range(16)]

    def close(self):
        for s in self.sockets.values():
            s.close()


class Adapter(NetTlp):
    """NetTLP's adapter in a machine at `here`, whose memory is that of the class; its software is
    at `there`."""
    port = 0x4000

    def __init__(self, here, there, bar, ids, **more):
        super().__init__(here, there, **more)
        self.bar, self.id, self.vectors = bar, ids, [(0, 0)] * 16
        self.asked = 0  # questions
        self.questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.questions.bind((here, 0x2fff))
        self.sockets[0x2fff] = self.questions

    def serve(self):
        while not self.stopping:
            for s in select.select(list(self.sockets.values()), [], [], 0.05)[0]:
                data, back = s.recvfrom(65536)
                if s is not self.questions:
                    self.took(data[6:], s.getsockname()[1])
                elif not self.silent:
                    self.asked += 1
                    what = struct.unpack("=I", data)[0]
                    s.sendto(struct.pack("=Q", self.bar) if what == 1 else
                             struct.pack("=H", self.id) if what == 2 else
                             b"".join(struct.pack("=QI", *v) for v in self.vectors), back)


class RawTlp(Device):
    """A card with RawUDP at `here`: it answers whoever sent to it last."""

    def __init__(self, here, **more):
        super().__init__(**more)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((here, 28474))
        self.other, self.part = None, b""
        self.cut = None  # how many bytes of a datagram arrive: the rest is lost

    def blocks(self, tlp):
        dwords = [tlp[i:i + 4] for i in range(0, len(tlp), 4)]
        flags = [(8 if i == 0 else 0) | (4 if i == len(dwords) - 1 else 0)
                 for i in range(len(dwords))]
        out = struct.pack("<I", 0x55556666)
        for i in range(0, len(dwords), 7):
            status, body = 0, b""
            for k in range(7):
                there = i + k < len(dwords)
                status |= (flags[i + k] if there else 3) << 4 * k
                body += dwords[i + k] if there else b"\xee" * 4
            out += struct.pack("<I", 0xe0000000 | status) + body
        return out

    def send(self, tlp, back_to):
        if self.other:
            data = self.blocks(tlp)
            self.socket.sendto(data if self.cut is None else data[:self.cut], self.other)

    def request(self, tlp, tag):
        self.send(tlp, None)

    def throw(self, data, chance):
        if not self.other:
            return
        out = self.blocks(data)
        if chance.randrange(3) == 0:
            out = out[:chance.randrange(len(out))]
        elif chance.randrange(3) == 0:
            at = chance.randrange(len(out))
            out = out[:at] + bytes([chance.randrange(256)]) + out[at + 1:]
        self.socket.sendto(out, self.other)

    def serve(self):
        while not self.stopping:
            if not select.select([self.socket], [], [], 0.05)[0]:
                continue
            data, self.other = self.socket.recvfrom(65536)
            for i in range(0, len(data) - 7, 8):
                word = struct.unpack("<I", data[i + 4:i + 8])[0]
                if word in (0x77000000, 0x77040000):
                    self.part += data[i:i + 4]
                if word == 0x77040000:
                    tlp, self.part = self.part, b""
                    self.took(tlp, None)

    def close(self):
        self.socket.close()
