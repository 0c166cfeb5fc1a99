"""A manager in Python, for tests of proxies: it takes their connections, numbers them by their
identity, and asks what a test wants asked.  Nothing of a pool."""
# SPDX-License-Identifier: MIT
import collections
import socket
import struct
import threading
import time

HELLO, ERROR, DONE, ATTACH, DETACH, ASK, STATUS = 1, 2, 3, 16, 17, 18, 19
REGISTER, NODE, BIND, UNBIND, DRAIN, RESET, HEARTBEAT, ALARM, DIRECT = range(0x20, 0x29)
EMPTY, DIALING, UP, CLOSING, HELD, WIPING, WIPED, KEPT, UNWIPED = range(9)
HOST, BOX = 1, 2
DEVICE_BYTES = 196

Device = collections.namedtuple("Device", "number state health vendor device cls group epoch seen "
                                          "peer_node peer_slot code model serial port_offset data "
                                          "medium attributes lease tenant")


def message(kind, body=b"", request=1, version=1, flags=0, length=None, magic=b"DXCT"):
    length = len(body) if length is None else length
    return magic + struct.pack(">BBHII", version, flags, kind, length, request) + body


def text(raw):
    return raw[1:1 + raw[0]].decode("ascii")


def address(raw):
    family, port = struct.unpack(">BxH", raw[:4])
    size = {4: 4, 6: 16}[family]
    return "%s:%d" % (socket.inet_ntop(socket.AF_INET if family == 4 else socket.AF_INET6,
                                       raw[4:4 + size]), port)


def pack_address(where):
    host, port = where.rsplit(":", 1)
    return struct.pack(">BxH", 4, int(port)) + socket.inet_aton(host) + bytes(12)


def device(raw):
    fields = struct.unpack(">HBBHHIIQQIHH32s32sHBxQ64sQQ", raw)
    words = [fields[n].split(b"\0")[0].decode("ascii") for n in (12, 13, 17)]
    return Device(*fields[:12], *words[:2], *fields[14:17], words[2], *fields[18:])


class Refused(Exception):
    """An error message; args: the code, its text."""


class Link:
    """One connection of a proxy."""

    def __init__(self, manager, sock):
        self.manager, self.socket = manager, sock
        self.alive, self.registered = True, False
        self.role = self.node = self.name = self.program = self.identity = self.instance = None
        self.total, self.slots, self.paths = 0, {}, []
        self.history = []    # (slot, state) as they were registered
        self.registers = []  # count of each
        self.alarms, self.answers, self.heartbeats, self.changes = [], {}, 0, 0
        self.said_node = None
        self.requests = 100

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self):
        head = self.exactly(16)
        assert head[:6] == b"DXCT\x01\x00", head
        kind, length, request = struct.unpack(">HII", head[6:])
        return kind, request, self.exactly(length)

    def send(self, data):
        self.socket.sendall(data)

    def run(self):
        try:
            while True:
                self.take(*self.receive())
        except (EOFError, OSError):
            pass
        with self.manager.news:
            self.alive = False
            self.manager.news.notify_all()
        self.socket.close()

    def take(self, kind, request, body):
        m = self.manager
        with m.news:
            if kind == HELLO:
                self.role, self.program = body[0], text(body[12:])
                answer = message(HELLO, struct.pack(">BBBxIHxx", m.role, 1, 1, 0, 0) + b"\x04fake",
                                 request)
            elif kind == REGISTER:
                answer = self.take_register(request, body)
            elif kind == HEARTBEAT:
                self.heartbeats += 1
                assert struct.unpack(">Q", body[:8])[0] == self.instance
                self.changes = struct.unpack(">I", body[8:12])[0]
                answer = None if m.silent else message(HEARTBEAT, body, request)
            elif kind == ALARM:
                slot, what, epoch = struct.unpack(">HBxQ", body[:12])
                self.alarms.append((slot, what, epoch, text(body[12:])))
                answer = message(DONE, struct.pack(">HBxQ", slot, 0, 0), request)
            else:
                self.answers[request] = (kind, body)
                self.take_answer(kind, body)
                answer = None
            m.news.notify_all()
        if answer:
            self.send(answer)

    def take_answer(self, kind, body):
        """What done says is the slot's state until a register says another: so becomes() cannot
        take one from before the request for the one after it."""
        if kind == DONE and len(body) >= 12:
            slot, state = struct.unpack(">HB", body[:3])
            if slot in self.slots:
                self.slots[slot] = self.slots[slot]._replace(state=state)

    def take_register(self, request, body):
        m = self.manager
        role, total, first, count, each, node, instance = struct.unpack(">BxHHHHxxIQ", body[:24])
        identity, rest = body[24:40], body[40:]
        assert role == self.role and each == DEVICE_BYTES and len(rest) >= count * each
        other = [k for k in m.links if k is not self and k.alive and k.identity == identity]
        if m.one_each and other:
            return message(ERROR, struct.pack(">HH", 7, 0) + b"\x05twice", request)
        self.identity, self.instance, self.total = identity, instance, total
        self.said_node = node
        self.registers.append(count)
        for i in range(count):
            d = device(rest[i * each:][:each])
            assert d.number == first + i
            self.slots[d.number] = d
            self.history.append((d.number, d.state))
        rest = rest[count * each:]
        self.paths = [address(rest[4 + 20 * i:][:20]) for i in range(rest[0])]
        self.name = text(rest[4 + 20 * rest[0]:])
        self.node = m.nodes.setdefault(identity, 10 + len(m.nodes))
        self.registered = len(self.slots) == total
        term = b"" if m.term is None else struct.pack(">Q", m.term)
        if m.directs:
            term = struct.pack(">QB", m.term or 0, 1)
        return message(NODE, struct.pack(">II", self.node, m.heartbeat_ms) + term, request)

    # ---- What a test asks ----

    def ask_for(self, kind, body):
        """Send a request; its number."""
        with self.manager.news:
            self.requests += 1
            request = self.requests
        self.send(message(kind, body, request))
        return request

    def answer(self, request):
        self.manager.until(lambda: request in self.answers or not self.alive, "an answer")
        kind, body = self.answers[request]
        if kind == ERROR:
            raise Refused(struct.unpack(">H", body[:2])[0], text(body[4:]))
        return kind, body

    def request(self, kind, body):
        """(state, epoch) of done; Refused."""
        kind, body = self.answer(self.ask_for(kind, body))
        assert kind == DONE, kind
        return struct.unpack(">HBxQ", body)[1:]

    def bind(self, slot, host, host_slot, epoch):
        return self.request(BIND, struct.pack(">HHIQ", slot, host_slot, host, epoch))

    def unbind(self, slot, epoch, keep=False):
        return self.request(UNBIND, struct.pack(">HBxQ", slot, keep, epoch))

    def drain(self, slot, on):
        return self.request(DRAIN, struct.pack(">HBx", slot, on))

    def direct(self, slot, on):
        return self.request(DIRECT, struct.pack(">HBx", slot, on))

    def reset(self, slot, epoch):
        return self.request(RESET, struct.pack(">HxxQ", slot, epoch))

    def attach(self, slot, box, box_slot, epoch):
        return self.request(ATTACH, struct.pack(">HHQ", slot, box_slot, epoch) +
                            pack_address(box.reaches(box_slot)))

    def reaches(self, slot):
        """Where a host reaches a slot of this box (M-73)."""
        host, port = self.paths[0].rsplit(":", 1)
        return "%s:%d" % (host, int(port) + self.slots[slot].port_offset)

    def detach(self, slot, epoch=0):
        return self.request(DETACH, struct.pack(">HBxQ", slot, 1, epoch))

    def becomes(self, slot, state):
        self.manager.until(lambda: self.slots[slot].state == state, "%s: slot %d is %d, not %d" % (
            self.program, slot, self.slots[slot].state, state))
        return self.slots[slot]


class Manager:
    """nodes: the numbers it has given, to go on after another one; port: 0, any.  A proxy leaves
    when three heartbeats were not answered: heartbeat_ms is long enough for a thread of Python that
    waits for its turn on a loaded machine."""

    def __init__(self, nodes=None, port=0, heartbeat_ms=1000, role=3, hostile=None):
        self.nodes = {} if nodes is None else nodes
        self.heartbeat_ms, self.role, self.hostile = heartbeat_ms, role, hostile
        self.silent, self.one_each, self.term, self.directs = False, False, None, False
        self.links, self.accepted = [], 0
        self.news = threading.Condition(threading.RLock())
        self.server = socket.create_server(("127.0.0.1", port))
        self.port = self.server.getsockname()[1]
        self.address = "127.0.0.1:%d" % self.port
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def run(self):
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.news:
                self.accepted += 1
            if self.hostile:
                threading.Thread(target=self.hostile, args=(sock,), daemon=True).start()
                continue
            link = Link(self, sock)
            with self.news:
                self.links.append(link)
            threading.Thread(target=link.run, daemon=True).start()

    def close(self):
        """As when it is killed: the port and all connections are gone."""
        for sock in [self.server] + [link.socket for link in self.links]:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed before
        self.server.close()

    def until(self, truth, what, seconds=60.0):
        end = time.monotonic() + seconds
        with self.news:
            while True:
                found = truth()
                if found:
                    return found
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError("in vain: " + what)
                self.news.wait(min(left, 0.1))

    def link(self, role, after=None):
        """The newest registered connection of a proxy of this role; not `after`."""
        def newest():
            found = [k for k in self.links if k.alive and k.registered and k.role == role]
            return found[-1] if found and found[-1] is not after else None
        return self.until(newest, "a proxy that registers")
