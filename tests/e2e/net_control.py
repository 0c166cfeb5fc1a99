#!/usr/bin/env python3
"""dxpu attach, detach and status against dxpu-host and dxpu-box that run, and bytes from no friend.

The host waits for a virtual machine that does not come: slots are filled and emptied all the same.
Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import functools
import os
import random
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
import cases  # noqa: E402
from cases import case, check, main  # noqa: E402
from control_stream import Stream  # noqa: E402
import lab  # noqa: E402

V4 = "127.0.0.1:0"
HELLO, ERROR, DONE, ATTACH, DETACH, ASK, STATUS = 1, 2, 3, 16, 17, 18, 19
VERSION, TYPE, MALFORMED, MUST, ORDER, NO_SLOT = 1, 2, 3, 4, 5, 6
ROLE = 12
SLOT_BYTES = 168


until = functools.partial(cases.until, seconds=15.0, pause=0.06)  # most start the command


# ---- Programs ----

class Proxy:
    def __init__(self, process):
        self.process = process
        self.control = process.says(r"control port (\S+:\d+)\n").group(1)


def start_box(l, *args):
    box = Proxy(l.start("dxpu-box", "--listen", V4, "--control", ":0", "--slots", 3, "--memory",
                        4096, "--json", *args))
    box.address = box.process.address()
    return box


def start_host(l, *args):
    socket_name = l.file("vm%d" % len(l.processes))
    return Proxy(l.start("dxpu-host", "--vfio-user", socket_name, "--control", "127.0.0.1:0",
                         "--listen", V4, "--json", *args))


def dxpu(l, *args, status=0):
    """The object that the command prints; it must end with this status."""
    done = l.run("dxpu", args[0], "--json", *args[1:])
    check(done.status == status, args, "ended with", done.status, done.output(), done.errors())
    return done.result()


def slot(l, proxy, number):
    found = dxpu(l, "status", proxy.control, number)["slots"]
    check(len(found) == 1 and found[0]["slot"] == number, found)
    return found[0]


def state_is(l, proxy, number, state):
    return until(lambda: slot(l, proxy, number)["state"] == state, "%s slot %d %s"
                 % (proxy.process.name, number, state))


def stops_well(*proxies):
    for proxy in proxies:
        check(proxy.process.stop() == 0, proxy.process.name, proxy.process.errors())


# ---- The protocol by hand ----

def message(kind, body=b"", request=1, version=1, flags=0, length=None, magic=b"DXCT"):
    length = len(body) if length is None else length
    return magic + struct.pack(">BBHII", version, flags, kind, length, request) + body


def hello(low=1, high=1):
    return message(HELLO, struct.pack(">BBBxIHxx", 4, low, high, 0, 0) + b"\x04test", 9)


def ask(first=1, count=0, request=1, **more):
    return message(ASK, struct.pack(">HH", first, count), request, **more)


class Client(Stream):
    def __init__(self, proxy, greet=True):
        host, port = proxy.control.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        if greet:
            self.send(hello())
            kind, request, _ = self.receive()
            check(kind == HELLO and request == 9, kind, request)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.socket.close()

    def refused(self, code, request=1):
        kind, answered, body = self.receive()
        check(kind == ERROR and answered == request, kind, answered)
        check(struct.unpack(">H", body[:2])[0] == code, body)
        check(len(body) == 5 + body[4] and body[5:].decode("ascii").isprintable(), body)

    def ended(self):
        """The proxy has closed; nothing more was said."""
        try:
            rest = self.socket.recv(1)
        except ConnectionResetError:
            rest = b""
        check(rest == b"", "more was said")

    def works(self):
        self.send(ask(1, 1, 77))
        kind, request, body = self.receive()
        check(kind == STATUS and request == 77 and len(body) == 16 + SLOT_BYTES, kind, request)


# ---- Cases ----

@case
def attach_status_detach_attach_again():
    with lab.Lab() as l:
        box, host = start_box(l), start_host(l, "--node", 41)
        check(slot(l, host, 1)["state"] == "empty")
        check(slot(l, box, 2)["state"] == "empty" and slot(l, box, 2)["device"] == "memory")
        for turn in (1, 2, 3):
            done = dxpu(l, "attach", "--wait", host.control, 1, box.address, 2)
            check(done["done"] is True and done["state"] == "up" and done["epoch"] == 1, done)
            check(done["peer"] == box.address and done["peer_slot"] == 2, done)
            there = slot(l, box, 2)
            check(there["state"] == "up" and there["peer_node"] == 41, there)
            check(there["epoch"] == there["epoch_seen"] == 1, there)
            check(there["incarnations"] == done["incarnations"] == turn, there, done)
            check(slot(l, box, 1)["state"] == "empty")
            gone = dxpu(l, "detach", "--wait", host.control, 1)
            check(gone["state"] == "empty" and gone["epoch"] == 0, gone)
            state_is(l, box, 2, "empty")
            check(slot(l, box, 2)["last_reason"] == "the device was detached", slot(l, box, 2))
        stops_well(host, box)
        check(box.process.result()["control"]["requests"] > 0)


@case
def several_slots_and_boxes():
    with lab.Lab() as l:
        one, two, host = start_box(l), start_box(l), start_host(l)
        for number, box, there in ((1, one, 1), (2, one, 3), (8, two, 1)):
            dxpu(l, "attach", "--wait", host.control, number, box.address, there)
        dxpu(l, "detach", "--wait", host.control, 2)
        states = [s["state"] for s in dxpu(l, "status", host.control)["slots"]]
        check(states == ["up"] + ["empty"] * 6 + ["up"], states)
        check([s["state"] for s in dxpu(l, "status", one.control)["slots"]] ==
              ["up", "empty", "empty"])
        stops_well(host, one, two)


@case
def refusals_of_the_host():
    with lab.Lab() as l:
        box, host = start_box(l), start_host(l)

        def no(word, *args):
            answer = dxpu(l, *args, status=1)
            check(answer["done"] is False and answer["error"] == word, answer)
            check(len(answer["reason"]) > 10, answer)

        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        dxpu(l, "attach", host.control, 1, box.address, 1)  # M-31: the same again
        check(slot(l, host, 1)["incarnations"] == 1)
        no("busy", "attach", host.control, 1, box.address, 2)
        no("busy", "attach", "--epoch", 2, host.control, 1, box.address, 1)
        no("twice", "attach", host.control, 2, box.address, 1)  # M-32
        no("no-such-slot", "attach", host.control, 9, box.address, 1)
        no("no-such-slot", "detach", host.control, 9)
        no("no-such-slot", "status", host.control, 9)
        no("empty", "detach", host.control, 2)
        no("epoch", "detach", "--epoch", 2, host.control, 1)
        no("address", "attach", host.control, 2, "[::1]:4458", 1)
        no("role", "attach", box.control, 1, box.address, 1)
        no("role", "detach", box.control, 1)
        check(slot(l, host, 1)["state"] == "up" and slot(l, host, 2)["state"] == "empty")
        dxpu(l, "detach", "--epoch", 1, host.control, 1)
        stops_well(host, box)


@case
def refusals_of_the_box():
    with lab.Lab() as l:
        box, host, other = start_box(l), start_host(l), start_host(l, "--node", 3)

        def no(word, *args):
            answer = dxpu(l, "attach", "--wait", *args, status=1)
            check(answer["error"] == word and "empty again" in answer["reason"], answer)
            return answer

        no("no-such-slot", host.control, 1, box.address, 4)
        check(slot(l, host, 1)["state"] == "empty")
        dxpu(l, "attach", "--wait", "--epoch", 5, host.control, 1, box.address, 1)
        no("epoch", "--epoch", 5, other.control, 1, box.address, 1)
        answer = no("epoch", "--epoch", 4, other.control, 1, box.address, 1)
        check("--epoch" in answer["reason"], answer)
        check(slot(l, host, 1)["state"] == "up" and slot(l, host, 1)["incarnations"] == 1)
        dxpu(l, "detach", "--wait", host.control, 1)
        no("epoch", "--epoch", 5, other.control, 1, box.address, 1)  # an epoch is one host's
        dxpu(l, "attach", "--wait", "--epoch", 6, other.control, 1, box.address, 1)
        check(slot(l, box, 1)["peer_node"] == 3 and slot(l, box, 1)["epoch_seen"] == 6)
        stops_well(other, host, box)


@case
def m24_devices_come_and_go():
    with lab.Lab() as l:
        box, host = start_box(l, "--hot-plug", "--slot", "3=none"), start_host(l)

        def no(word, *args):
            answer = dxpu(l, *args, status=1)
            check(answer["error"] == word and len(answer["reason"]) > 20, answer)

        check([slot(l, box, n)["device"] for n in (1, 2, 3)] == ["memory", "memory", "none"])
        answer = dxpu(l, "attach", "--wait", host.control, 1, box.address, 3, status=1)
        check(answer["error"] == "no-such-slot", answer)
        no("empty", "unplug", box.control, 3)
        no("busy", "plug", box.control, 1, "vga")
        no("no-such-slot", "unplug", box.control, 4)
        for wrong in ("nothing", "memory,size=x", "nvme,file=" + l.file("missing.img"), "none",
                      "vfio-user,socket=/x", "nettlp,peer=127.0.0.2", "virtio-net,fd=3",
                      "virtio-gpu,render"):
            no("device", "plug", box.control, 3, wrong)
        check(slot(l, box, 3)["device"] == "none")
        no("role", "unplug", host.control, 1)
        image = l.file("a.img")
        plugged = dxpu(l, "plug", box.control, 3, "nvme,size=1M,file=" + image)
        check(plugged["device"] == "nvme" and plugged["done"], plugged)
        no("device", "plug", "--replace", box.control, 2, "nvme,file=" + image)  # it is in use
        check(slot(l, box, 2)["device"] == "none")
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 3)
        no("lent", "unplug", box.control, 3)
        no("lent", "plug", "--replace", box.control, 3, "vga")
        check(slot(l, host, 1)["state"] == "up")
        dxpu(l, "unplug", "--force", box.control, 3)
        lost = until(lambda: (lambda s: s if s["state"] == "dialing" and s["attempts"] else None)
                     (slot(l, host, 1)), "the host loses it")
        check("no device in it" in lost["last_reason"], lost)
        dxpu(l, "plug", box.control, 2, "nvme,file=" + image)  # the disk is free again
        dxpu(l, "plug", box.control, 3, "memory,memory=8192")
        state_is(l, host, 1, "up")
        check(slot(l, host, 1)["incarnations"] == 2 and slot(l, box, 3)["device"] == "memory")
        dxpu(l, "plug", "--replace", "--force", box.control, 3, "eptest")
        until(lambda: slot(l, host, 1)["incarnations"] == 3, "another device")
        dxpu(l, "detach", "--wait", host.control, 1)
        state_is(l, box, 3, "empty")
        dxpu(l, "unplug", box.control, 3)  # given back: nothing stands against it
        stops_well(host, box)
        check(box.process.result()["slot_3"]["device"] == "none")


@case
def s248_only_with_the_option():
    with lab.Lab() as l:
        box = start_box(l)
        answer = dxpu(l, "unplug", box.control, 1, status=1)
        check(answer["error"] == "fixed" and "--hot-plug" in answer["reason"], answer)
        check(slot(l, box, 1)["device"] == "memory")
        stops_well(box)
        for wrong in (("--hot-plug",), ("--hot-plug", "--isolate", "--control", ":0")):
            done = l.run("dxpu-box", "--listen", V4, *wrong)
            check(done.status == 2 and "--hot-plug" in done.errors(), done.errors())


@case
def higher_epoch_takes_over():
    with lab.Lab() as l:
        box, host, other = start_box(l), start_host(l), start_host(l, "--node", 3)
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        dxpu(l, "attach", "--wait", "--epoch", 2, other.control, 4, box.address, 1)
        loser = until(lambda: (lambda s: s if s["state"] == "dialing" and s["attempts"] else None)
                      (slot(l, host, 1)), "the loser dials in vain")
        check("epoch" in loser["last_reason"], loser)
        check(slot(l, other, 4)["state"] == "up")
        dxpu(l, "detach", "--wait", host.control, 1)
        check(slot(l, other, 4)["incarnations"] == 1)
        stops_well(host, other, box)


@case
def no_answer_in_time():
    with lab.Lab() as l, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        there = "127.0.0.1:%d" % silent.getsockname()[1]
        host = start_host(l)
        answer = dxpu(l, "attach", "--wait", "--timeout", 1, host.control, 1, there, 1, status=1)
        check(answer["error"] == "no-answer", answer)
        check(slot(l, host, 1)["state"] == "empty")
        dxpu(l, "attach", host.control, 1, there, 1)  # without --wait it stays
        until(lambda: slot(l, host, 1)["attempts"] >= 1, "an attempt that failed")
        check(slot(l, host, 1)["state"] == "dialing")
        stops_well(host)


def datagrams(udp, seconds):
    """How many come in this time."""
    count, end = 0, time.monotonic() + seconds
    while select.select([udp], [], [], max(0, end - time.monotonic()))[0]:
        udp.recv(65536)
        count += 1
    return count


@case
def detach_ends_the_dialing():
    """M-34: at once, also before keys are agreed on, however long an end may be awaited."""
    for plain in (True, False):
        with lab.Lab(plain=plain) as l, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            there = "127.0.0.1:%d" % silent.getsockname()[1]
            host = start_host(l, "--hold-ms", 60000)
            dxpu(l, "attach", host.control, 1, there, 1)
            check(datagrams(silent, 2) > 1, "it does not dial")  # the control
            dxpu(l, "detach", "--wait", "--timeout", 5, host.control, 1)
            check(slot(l, host, 1)["state"] == "empty")
            datagrams(silent, 0.1)
            check(datagrams(silent, 2) == 0, "it still dials")
            stops_well(host)


@case
def box_comes_later_and_again():
    with lab.Lab() as l:
        host, box = start_host(l), start_box(l)
        stops_well(box)
        dxpu(l, "attach", host.control, 1, box.address, 1)
        check(slot(l, host, 1)["state"] == "dialing")
        box = start_box(l, "--listen", box.address)
        state_is(l, host, 1, "up")
        box.process.kill()
        state_is(l, host, 1, "dialing")
        box = start_box(l, "--listen", box.address)
        state_is(l, host, 1, "up")
        check(slot(l, host, 1)["incarnations"] == 2, slot(l, host, 1))
        stops_well(host, box)


@case
def detached_slot_is_closing_until_its_channel_is_over():
    with lab.Lab() as l:
        box, host = start_box(l), start_host(l, "--hold-ms", 20000)
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        box.process.popen.send_signal(signal.SIGSTOP)
        try:
            check(dxpu(l, "detach", host.control, 1)["state"] == "closing")
            for args in (("attach", host.control, 1, box.address, 1), ("detach", host.control, 1)):
                check(dxpu(l, *args, status=1)["error"] == "closing")  # M-33
            slow = dxpu(l, "attach", host.control, 2, box.address, 1, status=1)
            check(slow["error"] == "twice", slow)
        finally:
            box.process.popen.send_signal(signal.SIGCONT)
        state_is(l, host, 1, "empty")
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        stops_well(host, box)


@case
def status_of_many_slots():
    with lab.Lab() as l:
        box = start_box(l, "--slots", 1000)
        found = dxpu(l, "status", box.control)
        check(found["total"] == 1000 and found["role"] == "box", found["total"])
        check([s["slot"] for s in found["slots"]] == list(range(1, 1001)))
        check(slot(l, box, 1000)["state"] == "empty")
        stops_well(box)


@case
def output_for_people():
    with lab.Lab() as l:
        box, host = start_box(l), start_host(l)
        done = l.run("dxpu", "attach", "--wait", host.control, 2, box.address, 3)
        check(done.status == 0 and done.output() == "slot 2: up, %s/3, epoch 1\n" % box.address,
              done.output())
        lines = l.run("dxpu", "status", host.control).output().splitlines()
        check(len(lines) == 10 and lines[0].endswith("host, node 1, 8 slots"), lines)
        check(lines[3].split()[:4] == ["2", "up", box.address + "/3", "1"], lines)
        refused = l.run("dxpu", "detach", host.control, 1)
        check(refused.status == 1 and refused.output() == "", refused.output())
        check("the slot is empty" in refused.errors(), refused.errors())
        for command in ("attach", "detach", "status"):
            shown = l.run("dxpu", command, "--help")
            check(shown.status == 0 and "usage: dxpu " + command in shown.output())
        stops_well(host, box)


@case
def exit_status_of_wrong_usage():
    with lab.Lab() as l:
        for args in (("attach",), ("attach", "127.0.0.1", 1, "127.0.0.1"), ("detach", "127.0.0.1"),
                     ("attach", "127.0.0.1", 0, "127.0.0.1", 1), ("status",),
                     ("attach", "127.0.0.1", 65536, "127.0.0.1", 1),
                     ("attach", "127.0.0.1", 1, "127.0.0.1", "x"),
                     ("attach", "127.0.0.1", 1, ":4458", 1),
                     ("attach", "127.0.0.1", 1, "127.0.0.1:0", 1),
                     ("attach", "127.0.0.1:x", 1, "127.0.0.1", 1),
                     ("attach", "--epoch", 0, "127.0.0.1", 1, "127.0.0.1", 1),
                     ("attach", "--epoch", 1 << 64, "127.0.0.1", 1, "127.0.0.1", 1),
                     ("status", "--wait", "127.0.0.1"), ("status", "--timeout", 0, "127.0.0.1"),
                     ("detach", "127.0.0.1", 1, 2), ("status", "a", "b", "c", "d", "e")):
            done = l.run("dxpu", *args)
            check(done.status == 2 and "--help" in done.errors(), args, done.status, done.errors())
        alone = l.run("dxpu-host", "--box", "127.0.0.1", "--load", "read", "--control", ":0")
        check(alone.status == 2 and "--vfio-user" in alone.errors(), alone.errors())
        taken = l.start("dxpu-box", "--listen", V4, "--control", ":0")
        port = taken.says(r"control port (\S+:\d+)\n").group(1)
        second = l.run("dxpu-box", "--listen", V4, "--control", port)
        check(second.status == 3 and "in use" in second.errors(), second.errors())
        check(port.startswith("127.0.0.1:"), port)  # loopback, for nothing else was said


def serve_once(answer):
    """A port where one client gets these bytes after it has spoken, and then silence."""
    server = socket.create_server(("127.0.0.1", 0))

    def run():
        with server:
            client, _ = server.accept()
            with client:
                client.recv(1000)
                client.sendall(answer)
                while client.recv(1000):
                    pass

    threading.Thread(target=run, daemon=True).start()
    return "127.0.0.1:%d" % server.getsockname()[1]


@case
def exit_status_without_a_connection():
    with lab.Lab() as l:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            closed = "127.0.0.1:%d" % unused.getsockname()[1]
            answer = dxpu(l, "status", closed, status=3)
            check(answer["error"] == "connection" and "no answer" in answer["reason"], answer)
        greeting = message(HELLO, struct.pack(">BBBxIHxx", 1, 1, 1, 0, 8) + b"\x00", 1)
        for bytes_, why in ((b"", "does not answer"),
                            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a proxy"),
                            (message(HELLO, b"", 1, version=2), "another version"),
                            (message(STATUS, bytes(16), 1), "not a proxy"),
                            (message(HELLO, b"\1", 1), "not a proxy"),
                            (message(ERROR, b"\0\1\0\0\0", 1), "no common version"),
                            (message(0x20, b"", 1), "not a proxy"),
                            (message(HELLO, b"", 1, length=1 << 31), "not a proxy"),
                            (greeting, "does not answer"),
                            (greeting + message(DONE, bytes(12), 2), "does not fit"),
                            (message(0x8020, b"", 1) + greeting, "does not answer")):
            answer = dxpu(l, "status", "--timeout", 1, serve_once(bytes_), 1, status=3)
            check(why in answer["reason"], bytes_, answer)


@case
def protocol_by_hand():
    with lab.Lab(plain=True) as l:
        host = start_host(l)
        for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"DXCU"):
            with Client(host, greet=False) as c:  # M-2: no answer
                c.send(bytes_)
                c.ended()
        for bytes_, code, request in ((message(HELLO, version=2, request=5), VERSION, 5),  # M-3
                                      (ask(request=6), ORDER, 6),  # M-11
                                      (hello(2, 3), VERSION, 9), (hello(0, 1), MALFORMED, 9),
                                      (message(HELLO, length=1025), MALFORMED, 1),  # M-4
                                      (message(HELLO, bytes(1024)), MALFORMED, 1),
                                      (message(0x55), TYPE, 1)):
            with Client(host, greet=False) as c:
                c.send(bytes_)
                c.refused(code, request)
                c.ended()
        with Client(host) as c:
            for bytes_, code in ((ask(flags=0x80), MUST), (ask(flags=0x10), MUST),  # M-5
                                 (message(ASK, b"\0\1\0"), MALFORMED),  # M-6
                                 (ask(0), MALFORMED), (ask(9), NO_SLOT), (ask(65535), NO_SLOT),
                                 (message(0x0055, b"x" * 1024), TYPE),  # M-10
                                 (message(0x0022, struct.pack(">HHIQ", 1, 1, 1, 1)), ROLE),  # M-51
                                 (message(0x7fff), TYPE), (message(STATUS, struct.pack(
                                     ">BxxxIHHHH", 1, 1, 0, 1, 0, SLOT_BYTES)), TYPE)):
                c.send(bytes_)
                c.refused(code)
                c.works()
            c.send(message(0x8000, b"?") + message(0xffff) + ask(flags=0x0f) + ask(request=2) +
                   message(ASK, struct.pack(">HH", 8, 9) + b"later", 3))
            found = [c.receive() for _ in range(3)]  # M-9, M-17: in order, none for the ignorable
            check([(k, r, len(b)) for k, r, b in found] ==
                  [(STATUS, 1, 16 + 8 * SLOT_BYTES), (STATUS, 2, 16 + 8 * SLOT_BYTES),
                   (STATUS, 3, 16 + SLOT_BYTES)], [(k, r, len(b)) for k, r, b in found])
            c.works()
            c.send(hello())
            c.refused(ORDER, 9)
            c.ended()
        with Client(host) as c:  # one byte at a time
            for byte in ask(1, 1, 5):
                c.send(bytes([byte]))
                time.sleep(0.001)
            check(c.receive()[:2] == (STATUS, 5))
        with Client(host) as c:  # asks, and says no more: the answer still arrives
            c.send(ask(1, 1, 6))
            c.socket.shutdown(socket.SHUT_WR)
            check(c.receive()[:2] == (STATUS, 6))
            c.ended()
        stops_well(host)
        count = host.process.result()["control"]
        check(count["ignored"] == 2 and count["bad"] >= 10 and count["refused"] >= 15, count)


@case
def hostile_bytes():
    chance = random.Random(5)
    with lab.Lab(plain=True) as l:
        box, host = start_box(l), start_host(l)
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        good = hello() + ask() + message(DETACH, struct.pack(">HBxQ", 7, 1, 0)) + ask(9) * 20
        for proxy in (host, box):
            for _ in range(300):
                data = bytearray(good)
                for _ in range(chance.randrange(12)):
                    data[chance.randrange(len(data))] = chance.randrange(256)
                if chance.random() < 0.1:
                    data = bytearray(chance.randbytes(400))
                with Client(proxy, greet=False) as c:
                    try:
                        c.send(data[:chance.randrange(len(data))])
                        if chance.random() < 0.5:
                            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                struct.pack("ii", 1, 0))  # reset, not close
                    except (BrokenPipeError, ConnectionResetError):
                        pass
        check(slot(l, host, 1)["state"] == "up" and slot(l, host, 1)["incarnations"] == 1)
        stops_well(host, box)


@case
def many_connections():
    with lab.Lab(plain=True) as l:
        host = start_host(l)
        descriptors = "/proc/%d/fd" % host.process.popen.pid
        with Client(host) as known:
            silent = [Client(host, greet=False) for _ in range(200)]
            known.works()  # M-18: those without hello go first
            check(dxpu(l, "status", host.control)["total"] == 8)
            check(len(os.listdir(descriptors)) < 64 + 32, len(os.listdir(descriptors)))
            for c in silent:
                c.socket.close()
            greeted = [Client(host) for _ in range(150)]
            greeted[-1].works()
            check(dxpu(l, "status", host.control)["total"] == 8)
            for c in greeted:
                c.socket.close()
        with Client(host) as c:
            c.works()
        stops_well(host)
        count = host.process.result()["control"]
        check(count["connections"] > 350 and count["displaced"] > 200, count)


def resident_kb(process):
    with open("/proc/%d/status" % process.popen.pid) as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


@case
def client_that_takes_no_answers():
    with lab.Lab(plain=True) as l:
        box = start_box(l, "--slots", 300)
        before = resident_kb(box.process)
        clients = [Client(box) for _ in range(8)]
        ended = 0
        for c in clients:
            c.socket.settimeout(2)
            try:
                for _ in range(1000):  # 2.5 GB of answers, and none is taken
                    c.send(ask() * 50)
                    time.sleep(0.002)
            except (BrokenPipeError, ConnectionResetError):
                ended += 1
            except socket.timeout:
                pass
        check(ended == len(clients), ended)
        check(resident_kb(box.process) - before < 32 * 1024, before, resident_kb(box.process))
        with Client(box) as other:
            other.works()
        for c in clients:
            c.socket.close()
        stops_well(box)


@case
def data_go_on_under_control_load():
    with lab.Lab(plain=True) as l:
        box = start_box(l, "--memory", "1M")
        stop = threading.Event()
        asked = [0]

        def bother():
            while not stop.is_set():
                with Client(box) as c:
                    for _ in range(20):
                        c.works()
                        asked[0] += 1

        thread = threading.Thread(target=bother)
        thread.start()
        try:
            load = l.run("dxpu-host", "--box", box.address, "--load", "mixed", "--size", 256,
                         "--depth", 8, "--count", 6000, "--span", "64K", "--json")
        finally:
            stop.set()
            thread.join()
        result = load.result()
        check(load.status == 0 and result["mismatched"] == 0 == result["unanswered"], result)
        check(asked[0] > 20, asked)
        there = slot(l, box, 1)
        check(there["to_device"] > 6000 and there["from_device"] > 0, there)
        stops_well(box)


@case
def stopping_gives_leases_back():
    with lab.Lab() as l:
        box, host = start_box(l), start_host(l)
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        stops_well(host)
        state_is(l, box, 1, "empty")
        host = start_host(l)
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        host.process.kill()
        state_is(l, box, 1, "held")  # only its host gives a lease back
        held = slot(l, box, 1)
        check(held["peer_node"] == 1 and held["epoch"] == 1 and "peer" not in held, held)
        host = start_host(l)
        dxpu(l, "attach", "--wait", host.control, 1, box.address, 1)
        stops_well(host, box)


if __name__ == "__main__":
    sys.exit(main())
