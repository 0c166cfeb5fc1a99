#!/usr/bin/env python3
"""dxpu screenshot: what a display shows, from a box that runs, and from one that is not a friend.

A client of dxpu-host draws (vfio_client.py), no virtual machine.  Prints `ok NAME` or `not ok
NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import random
import socket
import stat
import struct
import sys
import threading
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402
import net_control as control  # noqa: E402
import picture  # noqa: E402
import vfio_client  # noqa: E402
from net_control import Client, dxpu, message  # noqa: E402

SCREENSHOT, PICTURE = 0x14, 0x15
MALFORMED, NO_SLOT, ROLE, NO_SCREEN, DARK, GONE = 3, 6, 12, 17, 18, 19
PIECE = 65520
WIDTH, HEIGHT = 320, 200  # 192,000 bytes of random pixels: several pieces


class Display:
    """A display adapter, and the guest that draws on it."""

    def __init__(self, l, slot=1, cores=1):
        self.box = control.start_box(l, "--device", "vga", "--cores", cores)
        name, port = self.box.address.rsplit(":", 1)
        at = "%s:%d" % (name, int(port) + (slot - 1) % cores)
        path = l.file("vm%d" % slot)
        host = l.start("dxpu-host", "--vfio-user", path, "--topology", "root-ports", "--slots", 2,
                       "--attach", "1=%s/%d" % (at, slot))
        host.says("waiting for a guest")
        self.guest = vfio_client.Client(path)
        self.guest.map_slot()
        self.guest.filled()
        self.guest.map_device(low=2, high=0)

    def mode(self, width, height):
        for at, value in ((1, width), (2, height), (3, 32), (4, 1)):
            self.guest.write(vfio_client.LOW, 0x500 + 2 * at, struct.pack("<H", value))
        self.guest.read32(vfio_client.LOW, 0x500)  # behind the writes

    def draw(self, seed):
        """Random pixels; the rows that the picture must have."""
        chance = random.Random(seed)
        frame = chance.randbytes(WIDTH * HEIGHT * 4)
        self.mode(WIDTH, HEIGHT)
        for at in range(0, len(frame), 64):
            self.guest.write(vfio_client.WINDOW, vfio_client.BASE + at, frame[at:at + 64],
                             posted=at % 4096)
        self.guest.read32(vfio_client.WINDOW, vfio_client.BASE)  # behind all writes
        pixels = [frame[i + 2:i + 3] + frame[i + 1:i + 2] + frame[i:i + 1]
                  for i in range(0, len(frame), 4)]
        return [b"".join(pixels[y * WIDTH:(y + 1) * WIDTH]) for y in range(HEIGHT)]


def ask(slot, offset, request=1):
    return message(SCREENSHOT, struct.pack(">HxxI", slot, offset), request)


def piece(c, slot, offset):
    """Ask and take one piece: total, bytes."""
    c.send(ask(slot, offset, 5))
    kind, request, body = c.receive()
    check(kind == PICTURE and request == 5, kind, request)
    there, total, at, count = struct.unpack(">HxxIII", body[:16])
    check(there == slot and at == offset and count == len(body) - 16, there, at, count)
    return total, body[16:]


@case
def picture_is_what_was_drawn():
    with lab.Lab() as l:
        display, name = Display(l), l.file("screen.png")
        for seed in (1, 2):  # the second replaces the file
            want = display.draw(seed)
            done = dxpu(l, "screenshot", display.box.control, 1, name)
            check(done == {"slot": 1, "width": WIDTH, "height": HEIGHT, "done": True,
                           "bytes": os.path.getsize(name)}, done)
            check(done["bytes"] > 2 * PIECE, done)
            check(picture.read(name) == (WIDTH, HEIGHT, want))
        done = l.run("dxpu", "screenshot", display.box.control, 1, name)
        check(done.output() == "slot 1: %d x %d, %s\n" % (WIDTH, HEIGHT, name), done.output())
        mask = os.umask(0)
        os.umask(mask)
        check(stat.S_IMODE(os.stat(name).st_mode) == 0o666 & ~mask)
        check([f for f in os.listdir(l.folder) if "png" in f] == ["screen.png"])
        control.stops_well(display.box)


@case
def refusals():
    with lab.Lab() as l:
        display, plain, host = Display(l), control.start_box(l), control.start_host(l)
        name = l.file("screen.png")

        def no(word, proxy, slot):
            answer = dxpu(l, "screenshot", proxy.control, slot, name, status=1)
            check(answer["done"] is False and answer["error"] == word, answer)
            check(len(answer["reason"]) > 10 and not os.path.exists(name), answer)

        no("dark", display.box, 1)
        display.mode(WIDTH, HEIGHT)
        dxpu(l, "screenshot", display.box.control, 1, name)  # the control
        os.unlink(name)
        display.mode(10, 10)
        no("dark", display.box, 1)
        no("dark", display.box, 2)
        no("no-such-slot", display.box, 4)
        no("no-screen", plain, 1)
        no("role", host, 1)
        control.stops_well(display.box, plain, host)


@case
def wrong_usage():
    with lab.Lab() as l:
        for args in ((), ("127.0.0.1",), ("127.0.0.1", 1), ("127.0.0.1", 0, "f"),
                     ("127.0.0.1", 65536, "f"), ("127.0.0.1", "x", "f"), ("127.0.0.1:x", 1, "f"),
                     ("127.0.0.1", 1, "f", "g"), ("--wait", "127.0.0.1", 1, "f"),
                     ("--epoch", 1, "127.0.0.1", 1, "f"), ("--timeout", 0, "127.0.0.1", 1, "f")):
            done = l.run("dxpu", "screenshot", *args)
            check(done.status == 2 and "--help" in done.errors(), args, done.errors())
        shown = l.run("dxpu", "screenshot", "--help")
        check(shown.status == 0 and "usage: dxpu screenshot" in shown.output())


@case
def file_that_cannot_be_written():
    with lab.Lab() as l:
        display = Display(l)
        display.mode(WIDTH, HEIGHT)
        os.mkdir(l.file("folder"))
        os.symlink("/dev/null", l.file("null"))
        for name in (l.file("nowhere/screen.png"), l.file("folder"), l.file("null"),
                     "x" * 4200):
            answer = dxpu(l, "screenshot", display.box.control, 1, name, status=2)
            check(answer["error"] == "file", answer)
        check(os.readlink(l.file("null")) == "/dev/null")
        check(not [f for f in os.listdir(l.folder) if f.startswith(("folder.", "null."))])
        control.stops_well(display.box)


@case
def protocol_by_hand():  # M-22, M-23
    with lab.Lab(plain=True) as l:
        display = Display(l)
        display.draw(3)
        with Client(display.box) as c, Client(display.box) as other:
            for bytes_, code in ((ask(0, 0), MALFORMED), (ask(1, 1 << 26), MALFORMED),
                                 (ask(9, 0), NO_SLOT), (ask(9, 1), NO_SLOT), (ask(2, 0), DARK),
                                 (ask(1, 1), GONE), (message(SCREENSHOT, bytes(7)), MALFORMED)):
                c.send(bytes_)
                c.refused(code)
            total, first = piece(c, 1, 0)
            check(len(first) == PIECE < total, len(first), total)
            for bytes_, code in ((ask(1, total), MALFORMED), (ask(2, PIECE), GONE)):
                c.send(bytes_)
                c.refused(code)
            check(piece(c, 1, 7)[1] == first[7:] + piece(c, 1, PIECE)[1][:7])
            other.send(ask(1, PIECE))
            other.refused(GONE)  # a picture is for its client
            data = b""
            while len(data) < total:
                data += piece(c, 1, len(data))[1]
            with open(l.file("hand.png"), "wb") as file:
                file.write(data)
            check(picture.read(l.file("hand.png"))[:2] == (WIDTH, HEIGHT))
            c.send(ask(1, PIECE))
            c.refused(GONE)  # it was sent to its end
            piece(c, 1, 0)
            piece(other, 1, 0)
            c.send(ask(1, PIECE))
            c.refused(GONE)  # another one began
            piece(other, 1, PIECE)
        with Client(display.box) as c:
            c.send(ask(1, 2 * PIECE))
            c.refused(GONE)  # the other one's went with its connection
            c.works()
        control.stops_well(display.box)


@case
def asks_and_takes_nothing():
    """Many pictures are asked for, none is read: the box ends that connection, and lives."""
    with lab.Lab(plain=True) as l:
        display = Display(l)
        display.draw(4)
        with Client(display.box) as c:
            c.socket.settimeout(5)
            try:
                while True:
                    c.send(ask(1, 0) * 20)
            except (BrokenPipeError, ConnectionResetError):
                pass
        with Client(display.box) as c:
            c.works()
        check(control.slot(l, display.box, 1)["state"] == "up")
        control.stops_well(display.box)


# ---- Boxes that are not friends ----

def png(width=2, height=1):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(
            ">I", zlib.crc32(kind + body))
    rows = (b"\0" + bytes(3 * width)) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0,
                                                              0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def answer(total, offset, data, slot=1, count=None, kind=PICTURE):
    count = len(data) if count is None else count
    return kind, struct.pack(">HxxIII", slot, total, offset, count) + data


def serve(answers, cut=None):
    """A control port that greets, and gives each request the next of the answers."""
    server = socket.create_server(("127.0.0.1", 0))

    def run():
        with server:
            client, _ = server.accept()
            with client:
                greeting = struct.pack(">BBBxIHxx", 2, 1, 1, 0, 8) + b"\0"
                client.recv(1000)
                client.sendall(message(control.HELLO, greeting, 1))
                for number, (kind, body) in enumerate(answers):
                    if not client.recv(1000):
                        return
                    client.sendall(message(kind, body, number + 2)[:cut])
                while not cut and client.recv(1000):
                    pass

    threading.Thread(target=run, daemon=True).start()
    return "127.0.0.1:%d" % server.getsockname()[1]


@case
def hostile_answers():
    good = png()
    n = len(good)
    with lab.Lab() as l:
        name = l.file("screen.png")
        with open(name, "wb") as file:
            file.write(b"old")

        def no(why, answers, cut=None):
            done = dxpu(l, "screenshot", "--timeout", 1, serve(answers, cut), 1, name, status=3)
            check(done["error"] == "connection" and why in done["reason"], why, done)

        no("does not fit", [answer(n, 0, good, slot=2)])
        no("does not fit", [answer(n + 9, 9, good)])
        no("does not fit", [answer(n, 0, good[:9]), answer(n, 0, good)])
        no("does not fit", [answer(n, 0, good[:9]), answer(n, 10, good[10:])])
        no("does not fit", [answer(n, 0, good[:9]), answer(n + 1, 9, good[9:])])
        no("does not fit", [(control.DONE, bytes(12))])
        for bad in (answer(n, 0, good, count=n + 1), answer(n - 1, 0, good), answer(n, 0, b""),
                    answer(0, 0, b""), answer((1 << 26) + 1, 0, good), answer(n, n, good),
                    (PICTURE, b"\0\1")):
            no("not a proxy", [bad])
        no("not a proxy", [answer(n, 0, good[:9]), answer(n, 0xffffffff, good)])
        no("not a PNG", [answer(9, 0, b"GIF89a...")])
        no("not a PNG", [answer(n, 0, b"\0" + good[1:])])
        no("not a PNG", [answer(n, 0, good[:-1] + b"\0")])
        no("not a PNG", [answer(8, 0, good[:8])])
        no("does not answer", [])
        no("does not answer", [answer(n, 0, good[:9])])
        no("closed", [answer(n, 0, good)], cut=-1)
        no("closed", [answer(n, 0, good)], cut=10)
        many = [answer(1 << 26, i, b"x") for i in range(100000)]
        no("is incomplete", many)  # a byte at a time, for ever
        refused = dxpu(l, "screenshot", serve([(control.ERROR, b"\xff\xff\0\1\0")]), 1, name,
                       status=1)
        check(refused["error"] == "unknown", refused)
        with open(name, "rb") as file:
            check(file.read() == b"old")
        done = dxpu(l, "screenshot", serve([answer(n, 0, good[:9]), answer(n, 9, good[9:])]), 1,
                    name)  # the control: so it is right
        check((done["width"], done["height"]) == (2, 1), done)
        with open(name, "rb") as file:
            check(file.read() == good)


if __name__ == "__main__":
    sys.exit(main())
