"""dxpu-manager for tests: started, asked over HTTP, and talked to by proxies made by hand."""
# SPDX-License-Identifier: MIT
import collections
import http.client
import json
import os
import select
import socket
import struct
import sys
import threading
import time

import rooms  # noqa: E402,F401
import lab  # noqa: E402
from cases import check, until  # noqa: E402, F401 (until: for who imports this)
from control_stream import Stream  # noqa: E402

(HELLO, ERROR, DONE, ATTACH, DETACH, ASK, STATUS) = (1, 2, 3, 16, 17, 18, 19)
(REGISTER, NODE, BIND, UNBIND, DRAIN, RESET, HEARTBEAT, ALARM, DIRECT) = range(0x20, 0x29)
HOST, BOX, MANAGER = 1, 2, 3
EMPTY, DIALING, UP, CLOSING, HELD, WIPING, WIPED, KEPT, UNWIPED = range(9)


# ---- The program ----

def confirmed(method, target, body=None):
    """The target of a request, which says that it may erase data if it is one that does (M-103)."""
    path, _, query = target.partition("?")
    verb = path.rsplit("/", 1)[-1]
    erases = (verb in ("replace", "repair", "discard") if method == "POST" else
              method == "PUT" and verb == "drain" and body and body.get("move") or
              method == "DELETE" and path.startswith("/v1/leases/") and "data=keep" not in query)
    if not erases or "erase=" in query:
        return target
    return path + "?" + "&".join(q for q in (query, "erase=yes") if q)


class Manager:
    """dxpu-manager in a lab; after start() again it has the same ports and the same store."""

    def __init__(self, l, *args, store=None, starts=None):
        self.lab, self.args = l, args
        self.starts = starts or l.start  # of a program's name and its arguments
        self.store = store or l.file("pool.db")
        self.listen, self.http = (lab.address(socket.SOCK_STREAM) for _ in "ab")
        self.start()

    def start(self):
        self.process = self.starts("dxpu-manager", "--listen", self.listen, "--http", self.http,
                                   "--store", self.store, "--json", *self.args)
        self.listen = self.process.says(r"proxies at (\S+:\d+)\n").group(1)
        self.http = self.process.says(r"users at http://(\S+:\d+)\n").group(1)
        return self

    def ask(self, method, path, body=None):
        """The status, and the object of the answer."""
        conn = http.client.HTTPConnection(self.http, timeout=30)
        target = confirmed(method, path, body)
        try:
            headers = {}
            if body is not None:
                body, headers = json.dumps(body), {"Content-Type": "application/json"}
            conn.request(method, target, body, headers)
            answer = conn.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else {}
        finally:
            conn.close()

    def get(self, path):
        status, found = self.ask("GET", path)
        check(status == 200, "GET", path, status, found)
        return found

    def proxies(self):
        """What it counted of its proxies, after it stopped in order."""
        check(self.process.stop() == 0, self.process.errors())
        return self.process.result()["proxies"]


# ---- Messages by hand ----

def message(kind, body=b"", request=1, version=1, flags=0, length=None, magic=b"DXCT"):
    length = len(body) if length is None else length
    return magic + struct.pack(">BBHII", version, flags, kind, length, request) + body


def text(words):
    return struct.pack(">B", len(words)) + words.encode()


def hello(role, low=1, high=1, name="fake 1.0"):
    return message(HELLO, struct.pack(">BBBxIHxx", role, low, high, 0, 0) + text(name), 9)


DEVICE_BYTES = 180


def device(number, state=WIPED, health=1, epoch=0, seen=0, node=0, slot=0, serial="",
           attributes="made=here"):
    return struct.pack(">HBBHHIIQQIHH32s32sHBxQ64s", number, state, health, 0x1b36, 0x0010,
                       0x010802, 0, epoch, seen, node, slot, 0, b"nvme", serial.encode(), 0, 0, 0,
                       attributes.encode())


def address(port):
    return struct.pack(">BxH16s", 4, port, bytes((127, 0, 0, 1)))


def done(slot, state, epoch, request):
    return message(DONE, struct.pack(">HBxQ", slot, state, epoch), request)


class Refused(Exception):
    """An error message; code and words."""

    def __init__(self, body):
        self.code, self.words = struct.unpack(">H", body[:2])[0], body[5:].decode()
        super().__init__("%d %s" % (self.code, self.words))


class Fake(Stream):
    """A proxy by hand: it says what the test gives it."""

    def __init__(self, manager, role=BOX, identity=None, instance=None, slots=4, greet=True):
        self.role, self.total, self.name = role, slots, "fake"
        self.identity = identity or os.urandom(16)
        self.instance = instance or int.from_bytes(os.urandom(7), "big") + 1
        host, port = manager.listen.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.secretive = True  # it reports no counters
        self.later = []  # requests of the manager that came while an answer was waited for
        if greet:
            self.greet()

    def greet(self):
        self.send(hello(self.role))
        kind, request, body = self.receive()
        check(kind == HELLO and request == 9 and body[0] == MANAGER, kind, request, body)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.socket.close()

    def answer(self, request):
        """The answer to a request of ours: its type and body."""
        while True:
            kind, got, body = self.receive()
            if got == request and kind in (ERROR, DONE, NODE, HEARTBEAT):
                if kind == ERROR:
                    raise Refused(body)
                return kind, body
            if kind == DRAIN:
                self.send(done(struct.unpack(">H", body[:2])[0], EMPTY, 0, got))
            elif kind == ASK and self.secretive:
                self.send(message(ERROR, struct.pack(">HH", 1, 0) + text("none"), got))
            else:
                self.later.append((kind, got, body))

    def register_message(self, first=1, count=None, devices=None, request=2, **other):
        count = self.total if count is None else count
        devices = devices or [device(n) for n in range(first, first + count)]
        values = dict(role=self.role, total=self.total, instance=self.instance,
                      identity=self.identity)
        values.update(other)
        paths = struct.pack(">B3x", 1) + address(9) if self.role == BOX else struct.pack(">B3x", 0)
        return message(REGISTER, struct.pack(
            ">BxHHHHxxIQ16s", values["role"], values["total"], first, len(devices), DEVICE_BYTES, 0,
            values["instance"], values["identity"]) + b"".join(devices) + paths + text(self.name),
            request)

    def register(self, *args, **more):
        """Its node number and the heartbeat interval in milliseconds."""
        self.send(self.register_message(*args, **more))
        kind, body = self.answer(2)
        check(kind == NODE, kind)
        return struct.unpack(">II", body[:8])

    def heartbeat(self, instance=None, request=3):
        self.send(message(HEARTBEAT, struct.pack(">QI", instance or self.instance, 0), request))

    def lives(self):
        """The manager answers a heartbeat."""
        self.heartbeat()
        kind, body = self.answer(3)
        check(kind == HEARTBEAT and struct.unpack(">Q", body[:8])[0] == self.instance, kind, body)
        return True

    def ended(self, seconds=20.0):
        """The manager closes; what it said before."""
        self.socket.settimeout(seconds)
        said = []
        try:
            while True:
                said.append(self.receive())
        except (EOFError, ConnectionError):
            return said


# ---- Proxies that do as ordered ----

REGISTER_MAX = 256  # slots in one message


class Robots:
    """Boxes and hosts by hand, in a thread: each order is done at once and registered."""

    def __init__(self, manager, kinds, attributes=None):
        """attributes: of slots of boxes, by number."""
        self.attributes = attributes or {}
        self.fakes, self.nodes, self.tables = [], [], {}
        for role, slots in kinds:
            fake = Fake(manager, role, slots=slots)
            for first in range(1, slots + 1, REGISTER_MAX):
                end = min(first + REGISTER_MAX, slots + 1)
                node = fake.register(first, devices=[self.device(fake, n) for n in
                                                     range(first, end)])[0]
            self.nodes.append(node)
            self.fakes.append(fake)
            self.tables[fake] = {n: (EMPTY if role == HOST else WIPED, 0, 0, 0, 0)
                                 for n in range(1, slots + 1)}
        self.counts = None  # by slot of hosts: TLPs to the device, more with each report
        self.told = collections.Counter()
        self.direct = {}  # by slot of boxes, as ordered last
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def device(self, fake, number, *state):
        more = {"attributes": self.attributes[number]} if (
            fake.role == BOX and number in self.attributes) else {}
        return device(number, *state, **more)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.ended.set()
        self.thread.join()
        for fake in self.fakes:
            fake.close()

    def order(self, fake, kind, body):
        """What the slot is after it: number, and (state, epoch, highest, node, slot)."""
        number, table = struct.unpack(">H", body[:2])[0], self.tables[fake]
        seen = table[number][2] if number else 0
        if kind == ATTACH:
            box_slot, epoch = struct.unpack(">HQ", body[2:12])
            return number, (UP, epoch, max(seen, epoch), 0, box_slot)
        if kind == BIND:
            host_slot, node, epoch = struct.unpack(">HIQ", body[2:16])
            return number, (UP, epoch, max(seen, epoch), node, host_slot)
        if kind == UNBIND:
            return number, (KEPT if body[2] else WIPED, 0, seen, 0, 0)
        if kind == DETACH:
            return number, (EMPTY, 0, seen, 0, 0)
        return number, table[number] if number else None

    def serve(self, fake):
        kind, request, body = fake.receive()
        if kind == ASK and fake.role == HOST and self.counts is not None:
            self.told.update(self.counts)
            entries = [struct.pack(">H58xIQQQ80x", n, 1, self.told[n], 7, 0)
                       for n in sorted(self.tables[fake])]
            fake.send(message(STATUS, struct.pack(
                ">BxxxIHHHH", HOST, 1, fake.total, 1, fake.total, 168) + b"".join(entries),
                request))
        elif kind == ASK:
            fake.send(message(ERROR, struct.pack(">HH", 1, 0) + text("none"), request))
        if kind == DIRECT:
            self.direct[struct.unpack(">H", body[:2])[0]] = bool(body[2])
        if kind not in (ATTACH, DETACH, BIND, UNBIND, DRAIN, RESET, DIRECT):
            return
        number, now = self.order(fake, kind, body)
        if now:
            self.tables[fake][number] = now
            state, epoch, seen, node, slot = now
            fake.send(done(number, state, epoch, request) + fake.register_message(
                number, devices=[self.device(fake, number, state, 1, epoch, seen, node, slot)]))
        else:
            fake.send(done(0, EMPTY, 0, request))

    def run(self):
        beat = 0.0
        while not self.ended.is_set():
            ready, _, _ = select.select([f.socket for f in self.fakes], [], [], 0.05)
            for fake in self.fakes:
                if fake.socket in ready:
                    self.serve(fake)
            if time.monotonic() - beat > 0.3:
                beat = time.monotonic()
                for fake in self.fakes:
                    fake.heartbeat()
