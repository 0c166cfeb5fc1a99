#!/usr/bin/env python3
"""A slot whose device another process serves by vfio-user: dxpu-device, and servers that are gone,
silent or hostile.

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import os
import socket
import struct
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402

LOAD = ("--load", "mixed", "--size", 256, "--depth", 8, "--span", "64K", "--json")


def start_box(l, path, *more):
    box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 3, "--slot",
                  "2=vfio-user,socket=" + path, "--json", "-v", *more)
    return box, box.address()


def start_device(l, path, *more):
    device = l.start("dxpu-device", "memory", "--socket", path, *more)
    device.says("memory at")
    return device


def verified(l, to, slot, count, *more):
    """A host gets an answer, and the right one, to each of `count` requests."""
    host = l.run("dxpu-host", "--box", to, "--slot", slot, *LOAD, "--count", count, *more)
    result = host.result()
    check(host.status == 0 and result["mismatched"] == result["unanswered"] == 0, result,
          host.errors())


@case
def verified_load_beside_another_kind():
    with lab.Lab() as l:
        path = l.file("m.sock")
        device = start_device(l, path)
        box, to = start_box(l, path, "--slot", "3=memory,memory=64K")
        box.says("is there")
        for slot in (2, 3):
            verified(l, to, slot, 3000)
        check(device.stop() == 0, device.errors())
        check(box.stop() == 0, box.errors())
        slots = box.result()
        check(slots["slot_2"]["device"] == "vfio-user" and slots["slot_3"]["device"] == "memory"
              and slots["slot_1"]["device"] == "memory")
        check(slots["slot_2"]["vfio-user"]["reads"] > 1000, slots["slot_2"])


@case
def bars_of_4_gb_and_more():
    """Their lower dword has no bit that software can set."""
    with lab.Lab() as l:
        memory, eptest = l.file("m.sock"), l.file("e.sock")
        start_device(l, memory, "--memory", "4G")
        l.start("dxpu-device", "eptest", "--socket", eptest, "--bar", "16G").says("eptest at")
        box, to = start_box(l, memory, "--slot", "3=vfio-user,socket=" + eptest)
        box.says("m.sock: 1af4:10f0 is there")
        box.says("e.sock: .* is there")
        verified(l, to, 2, 1000)
        check(box.stop() == 0, box.errors())


@case
def s242_killed_under_load_and_back():
    with lab.Lab() as l:
        path = l.file("m.sock")
        device = start_device(l, path)
        box, to = start_box(l, path)
        for turn in range(1, 4):
            until(lambda: box.errors().count("is there") == turn, "the device")
            host = l.start("dxpu-host", "--box", to, "--slot", 2, "--epoch", turn, *LOAD,
                           "--seconds", 30, "--give-up-ms", 2000)
            until(lambda: box.errors().count("lent to") == turn, "its host")
            device.kill()
            check(host.wait(30) not in (0, None), host.errors())
            check("no device in it" in host.errors(), host.errors())
            device = start_device(l, path)
        until(lambda: box.errors().count("is there") == 4, "the device")
        verified(l, to, 2, 2000, "--epoch", 9)
        check(box.stop() == 0, box.errors())
        check(box.result()["slot_2"]["vfio-user"]["lost"] == 3, box.result()["slot_2"])


@case
def without_a_server_the_slot_is_empty():
    with lab.Lab() as l:
        path = l.file("none.sock")
        box, to = start_box(l, path)
        box.says("no server listens there")
        host = l.run("dxpu-host", "--box", to, "--slot", 2, *LOAD, "--count", 10,
                     "--give-up-ms", 2000)
        check(host.status == 4 and "no device in it" in host.errors(), host.status, host.errors())
        verified(l, to, 1, 10)  # control
        start_device(l, path)
        box.says("is there")
        verified(l, to, 2, 10, "--epoch", 2)
        check(box.stop() == 0, box.errors())


class Server:
    """A server of this script's own: one 64-bit BAR of 64 KB.  `attack(sock)` is called when a
    client has read its configuration space."""

    def __init__(self, path, attack=None, config=None, info=3, deaf=(), keeps_reads=False):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.attack, self.info, self.deaf = attack, info, deaf
        self.keeps_reads = keeps_reads  # of its BAR, unanswered
        self.config = bytearray(config or b"\0" * 256)
        if not config:
            self.config[0:4] = b"\xf4\x1a\xf0\x10"
            self.config[0x10] = 0x0c
        self.answers, self.clients = [], 0
        self.memory = bytearray(65536)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            self.clients += 1
            try:
                while self.one(client):
                    pass
            except OSError:
                pass
            client.close()

    def take(self, client, count):
        data = b""
        while len(data) < count:
            piece = client.recv(count - len(data))
            if not piece:
                raise OSError("gone")
            data += piece
        return data

    def one(self, client):
        number, command, size, flags, _ = struct.unpack("<HHIII", self.take(client, 16))
        body = self.take(client, size - 16)
        if flags & 15:  # a reply
            self.answers.append((command, flags, body))
            return True
        if command in self.deaf or (self.keeps_reads and command == 9 and
                                    struct.unpack_from("<QI", body)[1] == 0):
            return True
        out = self.answer(command, body)
        if not flags & 16:
            client.sendall(struct.pack("<HHIII", number, command, 16 + len(out), 1, 0) + out)
        if command == 9 and struct.unpack_from("<QI", body)[1] == 7 and self.attack:
            self.attack(client)
        return True

    def answer(self, command, body):
        if command == 1:
            return struct.pack("<HH", 0, 1) + b'{"capabilities":{"max_data_xfer_size":65536}}\0'
        if command == 4:
            return struct.pack("<IIII", 16, self.info, 9, 5)
        if command == 5:
            index = struct.unpack_from("<I", body, 8)[0]
            size = {0: 65536, 7: 256}.get(index, 0)
            return struct.pack("<IIIIQQ", 32, 3, index, 0, size, 0)
        if command == 7:
            return struct.pack("<IIII", 16, 1, struct.unpack_from("<I", body, 8)[0], 0)
        if command in (9, 10):
            at, region, count = struct.unpack_from("<QII", body)
            store = self.config if region == 7 else self.memory
            if command == 10:
                if region == 0:
                    store[at:at + count] = body[16:]
                return body[:16]
            return body[:16] + bytes(store[at:at + count])
        return b""


def dma(client, command, address, count, flags=0, data=b""):
    client.sendall(struct.pack("<HHIIIQQ", 7, command, 32 + len(data), flags, 0, address, count) +
                   data)


@case
def a_foreign_server_is_served():
    """The control of the next ones: the script's own server carries a verified load."""
    with lab.Lab() as l:
        path = l.file("s.sock")
        server = Server(path)
        box, to = start_box(l, path)
        box.says("1af4:10f0 is there")
        verified(l, to, 2, 500)
        check(box.stop() == 0, box.errors())
        check(server.clients == 1, server.clients)


@case
def s240_dma_of_a_hostile_server_goes_nowhere():
    """No host has let the function master the bus: every access is refused, none leaves."""
    def attack(client):
        for address in (0, 0xfee00000, 0x40000000, 2 ** 64 - 4096):
            dma(client, 11, address, 64)
            dma(client, 12, address, 64, 0, b"x" * 64)
            dma(client, 12, address, 64, 16, b"x" * 64)
        dma(client, 11, 2 ** 64 - 1, 64)
        dma(client, 12, 0, 2 ** 40, 0, b"x")
        dma(client, 2, 0, 64)
    with lab.Lab() as l:
        path = l.file("s.sock")
        server = Server(path, attack)
        box, to = start_box(l, path)
        box.says("is there")
        until(lambda: len(server.answers) == 11, "the answers")
        check(all(flags == 0x21 and not body for _, flags, body in server.answers), server.answers)
        verified(l, to, 2, 200)
        check(box.stop() == 0, box.errors())
        slot = box.result()["slot_2"]
        check(slot["vfio-user"]["dma_refused"] == 12, slot["vfio-user"])
        check(slot["vfio-user"]["dma_reads"] == slot["vfio-user"]["dma_writes"] == 0, slot)


@case
def servers_that_describe_no_device():
    bridge = bytearray(256)
    bridge[0:4], bridge[0x0e] = b"\xf4\x1a\xf0\x10", 1
    for name, what, says in (("no_reset", dict(info=2), "cannot be reset"),
                             ("no_pci", dict(info=1), "has no PCI device"),
                             ("bridge", dict(config=bridge), "not of an endpoint"),
                             ("all_ones", dict(config=b"\xff" * 256), "not of an endpoint")):
        with lab.Lab() as l:
            path = l.file("s.sock")
            server = Server(path, **what)
            box, to = start_box(l, path)
            box.says(says)
            host = l.run("dxpu-host", "--box", to, "--slot", 2, *LOAD, "--count", 10,
                         "--give-up-ms", 2000)
            check(host.status == 4, name, host.status, host.errors())
            until(lambda: server.clients > 1, "another attempt")
            check(box.errors().count(says) == 1, name, box.errors())  # said once
            check(box.stop() == 0, box.errors())


@case
def capabilities_that_loop():
    config = bytearray(256)
    config[0:4], config[6], config[0x10], config[0x34] = b"\xf4\x1a\xf0\x10", 0x10, 0x0c, 0x40
    config[0x40:0x43] = bytes((9, 0x40, 255))  # vendor-specific, its own successor, too long
    with lab.Lab() as l:
        path = l.file("s.sock")
        Server(path, config=config)
        box, to = start_box(l, path)
        box.says("is there")
        verified(l, to, 2, 200)
        check(box.stop() == 0, box.errors())


@case
def s242_unanswered_reads_end_the_channel():
    """A server that does not answer reads of its BAR: the host's reads have an end, as the device's
    removal; the slot beside it goes on."""
    with lab.Lab() as l:
        path = l.file("s.sock")
        server = Server(path, keeps_reads=True)
        box, to = start_box(l, path)
        box.says("is there")
        host = l.start("dxpu-host", "--box", to, "--slot", 2, *LOAD, "--count", 10,
                       "--give-up-ms", 2000)
        box.says("slot 2: lent to")
        verified(l, to, 1, 1000)
        box.says("the server does not answer", 20)
        check(host.wait(30) not in (0, None), host.errors())
        until(lambda: server.clients == 2, "another attempt")
        check(box.stop() == 0, box.errors())


@case
def silent_server_is_given_up():
    """One that does not even answer what it is."""
    with lab.Lab() as l:
        path = l.file("s.sock")
        server = Server(path, deaf=(1,))
        box, to = start_box(l, path)
        until(lambda: server.clients == 1, "a client")
        box.says("the server does not answer", 20)
        verified(l, to, 1, 100)
        check(box.stop() == 0, box.errors())


@case
def options_of_slots():
    def refused(says, *given):
        with lab.Lab() as l:
            box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2, *given)
            check(box.wait(10) == 2 and says in box.errors(), given, box.errors())
    for says, text in (("must be N=KIND", "3=memory"), ("must be N=KIND", "0=memory"),
                       ("must be N=KIND", "memory"), ("must be N=KIND", "=memory"),
                       ("no such device model: 'disk'; must be one of memory|nvme|", "1=disk"),
                       ("virtio-net|vfio-user|nettlp|rawtlp|none|function", "1=disk"),
                       ("no such device model: ''", "1="),
                       ("socket=PATH", "1=vfio-user"), ("unknown key", "1=memory,colour=red"),
                       ("missing value", "1=memory,colour"), ("is for vfio-user",
                                                              "1=memory,socket=/x"),
                       ("invalid value of 'memory'", "1=memory,memory=3000"),
                       ("invalid value", "1=vfio-user,socket=" + "x" * 108),
                       ("read-only requires", "1=nvme,read-only"),
                       ("one file", "1=virtio-blk,file=a,file=b")):
        refused(says, "--slot", text)
    refused("given twice", "--slot", "1=memory", "--slot", "1=vga")
    with lab.Lab() as l:  # control, from a file and behind it
        with open(l.file("box.conf"), "w", encoding="ascii") as f:
            f.write("slot = 1=nvme,file=%s,file=%s,size=1M,model=disk\nmemory = 64K\n" %
                    (l.file("a"), l.file("b")))
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 3, "--config",
                      l.file("box.conf"), "--slot", "3=eptest,bar=128K", "--json")
        box.address()
        check(box.stop() == 0, box.errors())
        kinds = [box.result()["slot_%d" % n]["device"] for n in (1, 2, 3)]
        check(kinds == ["nvme", "memory", "eptest"], kinds)
        check(os.path.getsize(l.file("a")) == os.path.getsize(l.file("b")) == 1 << 20)
    with lab.Lab() as l:  # as many files as a controller has namespaces
        files = "".join(",file=" + l.file("n%d" % n) for n in range(32))
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slot",
                      "1=nvme,serial=s,model=m,size=1M" + files)
        box.address()
        check(box.stop() == 0, box.errors())
        check(os.path.getsize(l.file("n31")) == 1 << 20)


if __name__ == "__main__":
    sys.exit(main())
