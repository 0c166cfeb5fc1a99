#!/usr/bin/env python3
"""A large pool over real sockets: boxes and hosts that a process of this script plays, a manager
that is stopped and killed and started again, leases at a rate, lists by pages.  Times are printed,
not judged; what is judged is that all is there, and how many commits a lease costs.

2,000 boxes, 100,000 slots and 10,000 leases with DXPU_WHOLE (`make check-long`), else a twentieth.
Prints `ok NAME`.  Then the same over etcd, with DXPU_WHOLE.  Programs come from $DXPU_BIN, else
build/."""
# SPDX-License-Identifier: MIT
# run.py: --alone
# run.py: --timeout 7200
import contextlib
import http.client
import json
import os
import re
import resource
import selectors
import signal
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
from etcd import Cluster, why_not  # noqa: E402
from pool import (ASK, ATTACH, BIND, BOX, DETACH, DEVICE_BYTES, DRAIN, EMPTY,  # noqa: E402
                  ERROR, HEARTBEAT, HELD, HELLO, HOST, KEPT, NODE, REGISTER, UNBIND, UP, WIPED,
                  device, done, hello, message, text)
import lab  # noqa: E402

WHOLE = bool(os.environ.get("DXPU_WHOLE"))
BOXES, HOSTS, LEASES = (2000, 200, 10000) if WHOLE else (100, 10, 500)
BOX_SLOTS, HOST_SLOTS, AT_ONCE, RATE = 50, 64, 250, 100


# ---- Proxies, in a process of their own ----

class Player:
    """One box or host: a connection that comes back, and what its slots have."""

    def __init__(self, number, role, slots):
        self.number, self.role, self.slots = number, role, slots
        self.identity = struct.pack(">QQ", role, number + 1)
        self.instance = number * 2 + role
        self.table = {}
        self.socket, self.buffer, self.again = None, b"", 0.0

    def devices(self, first, count):
        empty = EMPTY if self.role == HOST else WIPED
        out = b""
        for n in range(first, first + count):
            state, epoch, seen, node, slot = self.table.get(n, (empty, 0, 0, 0, 0))
            out += device(n, state, 1, epoch, seen, node, slot)
        return out

    def register(self, first, count):
        path = struct.pack(">B3x", self.role == BOX)
        if self.role == BOX:
            path += struct.pack(">BxH16s", 4, 4458, struct.pack(">I", 0x0a000000 + self.number))
        return message(REGISTER, struct.pack(
            ">BxHHHHxxIQ16s", self.role, self.slots, first, count, DEVICE_BYTES, 0, self.instance,
            self.identity) + self.devices(first, count) + path + text(
                "%s%d" % ("box" if self.role == BOX else "host", self.number)), 2)

    def dial(self, address):
        self.buffer = b""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex(address)

    def obey(self, kind, request, body):
        if kind == ASK:
            return message(ERROR, struct.pack(">HH", 1, 0) + text("none"), request)
        if kind == DRAIN:
            return done(0, EMPTY, 0, request)
        if kind not in (BIND, UNBIND, ATTACH, DETACH):
            return b""
        n = struct.unpack(">H", body[:2])[0]
        seen = self.table.get(n, (0, 0, 0))[2]
        if kind == BIND:
            slot, node, epoch = struct.unpack(">HIQ", body[2:16])
            now = (HELD, epoch, epoch, node, slot)
        elif kind == ATTACH:
            slot, epoch = struct.unpack(">HQ", body[2:12])
            now = (UP, epoch, epoch, 0, slot)
        else:
            now = ((KEPT if body[2] else WIPED) if kind == UNBIND else EMPTY, 0, seen, 0, 0)
        self.table[n] = now
        return done(n, now[0], now[1], request) + self.register(n, 1)

    def take(self):
        """Answers to what came; raises when the connection is over."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError
        self.buffer += data
        out = b""
        while len(self.buffer) >= 16:
            _, _, _, kind, length, request = struct.unpack(">4sBBHII", self.buffer[:16])
            if len(self.buffer) < 16 + length:
                break
            body, self.buffer = self.buffer[16:16 + length], self.buffer[16 + length:]
            if kind == HELLO:
                out += b"".join(self.register(first, min(100, self.slots + 1 - first))
                                for first in range(1, self.slots + 1, 100))
            elif kind == ERROR:
                raise ConnectionError
            elif kind not in (NODE, HEARTBEAT):
                out += self.obey(kind, request, body)
        return out


def play(address):
    """All proxies, for ever."""
    where = (address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1]))
    players = [Player(i, BOX, BOX_SLOTS) for i in range(BOXES)]
    players += [Player(i, HOST, HOST_SLOTS) for i in range(HOSTS)]
    some, beat, turn = selectors.DefaultSelector(), time.monotonic(), 0
    groups = 50  # heartbeats are spread over the second, as those of real proxies

    def lose(p):
        with contextlib.suppress(KeyError):
            some.unregister(p.socket)
        p.socket.close()
        p.socket, p.again = None, time.monotonic() + 0.2
    while True:
        now = time.monotonic()
        dialing = sum(p.socket is not None and p.socket.fileno() >= 0 and not p.buffer and
                      p.again < 0 for p in players)
        for p in players:
            if p.socket is None and now >= p.again and dialing < AT_ONCE:
                p.dial(where)
                p.again, dialing = -1.0, dialing + 1
                some.register(p.socket, selectors.EVENT_WRITE, p)
        for key, events in some.select(0.02):
            p = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    p.socket.send(hello(p.role))
                    some.modify(p.socket, selectors.EVENT_READ, p)
                if events & selectors.EVENT_READ:
                    out = p.take()
                    p.again = 0.0
                    if out:
                        p.socket.setblocking(True)
                        p.socket.sendall(out)
                        p.socket.setblocking(False)
            except OSError:
                lose(p)
        if now - beat > 1 / groups:
            beat, turn = now, (turn + 1) % groups
            for p in players[turn::groups]:
                if p.socket is not None and p.again == 0:
                    try:
                        p.socket.send(message(HEARTBEAT, struct.pack(">QI", p.instance, 0), 3))
                    except OSError:
                        lose(p)


# ---- What users do ----

class Users:
    def __init__(self, address):
        self.address, self.link = address, None

    def ask(self, method, path, body=None):
        """Status, JSON and milliseconds, on one connection."""
        host, port = self.address.rsplit(":", 1)
        if self.link is None:
            self.link = http.client.HTTPConnection(host, int(port), timeout=60)
        start = time.monotonic()
        try:
            self.link.request(method, path, json.dumps(body) if body else None,
                              {"Content-Type": "application/json"} if body else {})
            got = self.link.getresponse()
            return got.status, json.loads(got.read()), (time.monotonic() - start) * 1000
        except (OSError, http.client.HTTPException):
            self.link.close()
            self.link = None
            return 0, {}, 0.0


def spread(ms):
    ms = sorted(ms)
    return "p50 %.1f, p99 %.1f, most %.1f ms" % (ms[len(ms) // 2], ms[len(ms) * 99 // 100], ms[-1])


def memory_mb(process, line="VmHWM"):
    with open("/proc/%d/status" % process.popen.pid, encoding="ascii") as file:
        return [int(row.split()[1]) / 1024 for row in file if row.startswith(line)][0]


def cpu_s(process):
    """Of the program, since it was started: also on a machine with other work."""
    with open("/proc/%d/stat" % process.popen.pid, encoding="ascii") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def waited_s(process):
    """How long it was to run, and others had the processors."""
    with open("/proc/%d/schedstat" % process.popen.pid, encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


def statistics(process):
    """Printed on SIGUSR1: {"store": {"commits": ...}, "loop": {"turn_us max": ...}}."""
    before = process.errors().count("\nuptime_s ")
    process.signal(signal.SIGUSR1)

    def printed():
        parts = process.errors().split("\nuptime_s ")
        return len(parts) > before + 1 and re.match(r".*\nloop\n.*?\n +max [^\n]*\n", parts[-1],
                                                   re.S)
    found, group, within = {}, {}, ""
    for line in until(printed, "statistics").group(0).splitlines()[1:]:
        words = line.split()
        if len(words) == 1 and line[0] != " ":
            group = found[words[0]] = {}
        depth = len(line) - len(line.lstrip())
        if len(words) == 1 and depth:
            within = words[0] + " "
        elif len(words) == 2:
            group[(within if depth > 2 else "") + words[0]] = float(words[1])
    return found


def say_store(name, before, after, per):
    """What something cost the store in commits, and for each of `per` of them."""
    commits, changes = (after["store"][n] - before["store"].get(n, 0)
                        for n in ("commits", "changes"))
    ms = {n: after["store"]["commit_us " + n] / 1000 for n in ("p50", "p99")}
    print("# %s: %d commits, %.2f each; %d changes; a commit takes %.1f ms, p99 %.1f" % (
        name, commits, commits / per, changes, ms["p50"], ms["p99"]))
    return commits


def say_turns(counts):
    print("# turns of its loop since then: processor p50 %.2f, p99 %.1f, most %.1f ms" % tuple(
        counts["loop"]["turn_us " + n] / 1000 for n in ("p50", "p99", "max")))


def all_there(users):
    time.sleep(0.2)  # it counts all slots
    status, pool, _ = users.ask("GET", "/v1/pool")
    return status == 200 and (pool["boxes"]["connected"], pool["hosts"]["connected"]) == (BOXES,
                                                                                         HOSTS)


def lend(users, rate):
    """All leases, at this rate: milliseconds of each answer."""
    took, began, first = [], time.monotonic(), LEASES // HOSTS
    for i in range(LEASES):
        time.sleep(max(0, began + i / rate - time.monotonic()))
        body = {"host": HOST_NODES[i // first % HOSTS], "model": "nvme", "count": 1,
                "key": "k%d" % i}
        while True:
            status, answer, ms = users.ask("POST", "/v1/leases", body)
            if status in (200, 201):
                break
            check(status in (0, 503), status, answer)
            time.sleep(0.05)
        took.append(ms)
    return took, LEASES / (time.monotonic() - began)


HOST_NODES = []


def pages(users, path, name):
    """All rows of a list, and milliseconds of each page."""
    rows, took, after = 0, [], None
    while True:
        status, body, ms = users.ask("GET", path + ("&after=%s" % after if after else ""))
        check(status == 200, status, body)
        took.append(ms)
        rows, after = rows + len(body[name]), body["next"]
        if after is None:
            return rows, took


def nodes_of_hosts(users):
    found, after = [], 0
    while after is not None:
        page = users.ask("GET", "/v1/hosts?limit=1000&after=%d" % after)[1]
        found += [n["node"] for n in page["nodes"]]
        after = page["next"]
    return found


def run(l, store):
    listen, http_at = (lab.address(socket.SOCK_STREAM) for _ in range(2))

    def start():
        return l.start("dxpu-manager", "--store", store, "--listen", listen, "--http", http_at,
                       "--connections", 4096, "--default-quota", 1000000)
    def recovered(what):
        manager.says("users at", 60)
        loaded = time.monotonic() - began
        until(lambda: all_there(users), "all register again", 600)
        body = {"host": HOST_NODES[-1], "model": "nvme", "count": 1, "key": what}
        until(lambda: users.ask("POST", "/v1/leases?wait=10", body)[0] in (200, 201), "a lease")
        print("# after it was %s: loaded in %.1f s, all registered and a lease up after %.1f s, "
              "processor %.1f s, %.1f s waiting for one, memory %.0f MB" % (
                  what, loaded, time.monotonic() - began, cpu_s(manager), waited_s(manager),
                  memory_mb(manager)))
        counts = statistics(manager)
        say_turns(counts)
        say_store("proxies that are back", {"store": {}}, counts, BOXES + HOSTS)
        return counts

    manager, users = start(), Users(http_at)
    manager.says("users at", 30)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            play(listen)
        finally:
            os._exit(1)
    try:
        until(lambda: all_there(users), "all register", 600)
        print("# %d boxes of %d slots and %d hosts register for the first time in %.1f s, "
              "processor %.1f s" % (BOXES, BOX_SLOTS, HOSTS, time.monotonic() - began,
                                    cpu_s(manager)))
        say_store("new proxies", {"store": {}}, statistics(manager), BOXES + HOSTS)
        HOST_NODES[:] = nodes_of_hosts(users)
        check(manager.stop() == 0, manager.errors())
        began = time.monotonic()
        manager = start()
        before = recovered("stopped")
        processor, waited, began = cpu_s(manager), waited_s(manager), time.monotonic()
        took, rate = lend(users, RATE)
        seconds = time.monotonic() - began
        print("# %d leases at %.0f a second: %s; processor %.2f ms each with all else, and %.0f %% "
              "of the time the manager waited for one" % (
                  LEASES, rate, spread(took), (cpu_s(manager) - processor) * 1000 / LEASES,
                  (waited_s(manager) - waited) * 100 / seconds))
        until(lambda: users.ask("GET", "/v1/pool")[1]["leases"]["active"] == LEASES + 1, "all up",
              60)
        after = statistics(manager)
        commits = say_store("leases", before, after, LEASES)
        check(commits < 3.5 * LEASES, "commits of a lease:", commits / LEASES)
        print("# commits: %.0f a second" % (commits / seconds))
        say_turns(after)
        for path, name in (("/v1/slots?limit=1000", "slots"),
                           ("/v1/slots?limit=1000&state=leased", "slots"),
                           ("/v1/leases?limit=1000", "leases"), ("/v1/nodes?limit=1000", "nodes")):
            rows, ms = pages(users, path, name)
            print("# %s: %d rows in %d pages, each %s" % (path, rows, len(ms), spread(ms)))
            check(rows in (BOXES * BOX_SLOTS, LEASES + 1, BOXES + HOSTS), rows)
        say_turns(statistics(manager))
        print("# memory: %.0f MB" % memory_mb(manager))
        manager.signal(signal.SIGKILL)
        manager.wait(10)
        began = time.monotonic()
        manager = start()
        recovered("killed")
        active = users.ask("GET", "/v1/pool")[1]["leases"]["active"]
        check(active == LEASES + 2, active)
        check(manager.stop() == 0, manager.errors())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@case
def a_large_pool_in_sqlite():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with lab.Lab(plain=True) as l:
        run(l, l.file("db"))


@case
def a_large_pool_in_etcd():
    if not WHOLE or why_not():
        return why_not() or "only with DXPU_WHOLE"
    with lab.Lab(plain=True) as l, Cluster(l, 3) as etcd:
        run(l, etcd.address())
    return None


if __name__ == "__main__":
    sys.exit(main())
