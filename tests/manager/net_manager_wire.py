#!/usr/bin/env python3
"""dxpu-manager's port for proxies, with proxies made by hand, good and bad, and its store when that
fails: what it says, how it ends, what stays.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import random
import resource
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from pool import (ALARM, ASK, ATTACH, BIND, BOX, DETACH, DONE, EMPTY, ERROR,  # noqa: E402
                  HEARTBEAT, HELD, HELLO, HOST, KEPT, MANAGER, NODE, REGISTER, STATUS, WIPED, Fake,
                  Manager, Refused, device, done, hello, message, text, until)
import lab  # noqa: E402

VERSION, TYPE, MALFORMED, MUST, ORDER, BUSY, ROLE = 1, 2, 3, 4, 5, 7, 12
FAST = ("--heartbeat-ms", 100)
USAGE, SYSTEM, STORE, DAMAGED = 2, 3, 4, 5  # exit statuses; no restart mends 2 and 5


def refused(code, fake, data, ends=True):
    """This is answered by an error; ends: and the connection is over."""
    fake.send(data)
    try:
        fake.answer(struct.unpack(">I", data[12:16])[0])
        check(False, "it was taken")
    except Refused as no:
        check(no.code == code and no.words, code, no)
    if ends:
        fake.ended()


# ---- Proxies ----

@case
def registers_and_is_a_node_when_all_slots_are_there():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, BOX, slots=9) as box, Fake(m, HOST, slots=2) as host:
            number, heartbeat_ms = box.register(1, 4)
            check(number >= 1 and heartbeat_ms == 1000, number, heartbeat_ms)
            check(box.register(5, 4) == (number, 1000))
            check(not m.get("/v1/nodes/%d" % number)["connected"], "before slot 9")
            check(box.register(9, 1) == (number, 1000))
            check(m.get("/v1/nodes/%d" % number)["connected"], "with slot 9")
            check(host.register()[0] != number)
            check(box.lives() and host.lives())
            node = m.get("/v1/nodes/%d" % number)
            check(node["program"] == "fake 1.0" and node["slots"] == 9, node)
            check(node["identity"] == box.identity.hex() and node["role"] == "box", node)
        until(lambda: not m.get("/v1/nodes/%d" % number)["connected"], "the box is gone")
        with Fake(m, BOX, box.identity, slots=9) as again:
            check(again.register()[0] == number, "the number stays")
        count = m.proxies()
        check(count["hellos"] == 3 and count["registers"] == 5 and count["heartbeats"] == 2, count)
        check(count["bad"] == count["registers_refused"] == 0, count)


@case
def same_number_after_a_restart_of_the_manager():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m) as one, Fake(m, HOST) as two:
            numbers = one.register()[0], two.register()[0]
        m.process.kill()
        m.start()
        with Fake(m, HOST, two.identity) as two, Fake(m, BOX, one.identity) as one:
            check((one.register()[0], two.register()[0]) == numbers)


@case
def hello_comes_first_and_once():  # M-70
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, greet=False) as f:
            refused(ORDER, f, f.register_message(count=1))
        with Fake(m, greet=False) as f:
            refused(ROLE, f, hello(MANAGER))
        with Fake(m, greet=False) as f:
            refused(VERSION, f, hello(BOX, 2, 3))
        with Fake(m) as f:
            refused(ORDER, f, hello(BOX))
        with Fake(m) as f:
            refused(ORDER, f, message(HEARTBEAT, struct.pack(">QI", 1, 0)))
        with Fake(m) as f:
            refused(ORDER, f, message(ALARM, struct.pack(">HBxQ", 0, 1, 0) + text("x")))
        with Fake(m) as f:
            check(f.register()[0] and f.lives())
            refused(ORDER, f, hello(BOX))
        with Fake(m, BOX) as f:
            refused(MALFORMED, f, f.register_message(role=HOST))
        check(m.proxies()["bad"] == 8)


@case
def three_heartbeats_missing_end_a_connection():  # M-71
    with lab.Lab(plain=True) as l:
        m = Manager(l, *FAST)
        with Fake(m) as silent, Fake(m) as control:
            number = silent.register()[0]
            control.register()
            silent.socket.setblocking(False)

            def gone():
                control.lives()
                try:
                    return silent.socket.recv(4096) == b""
                except BlockingIOError:
                    return False
            until(gone, "the silent one is dropped")
            until(lambda: not m.get("/v1/nodes/%d" % number)["connected"], "and is told so")
            check(control.lives())
        check(m.proxies()["silent"] == 1)


@case
def an_identity_is_one_proxy():  # M-72
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m) as first:
            number = first.register()[0]
            with Fake(m, identity=first.identity) as copy:
                try:
                    copy.register()
                    check(False, "a copy got in")
                except Refused as no:
                    check(no.code == BUSY and "identity" in no.words, no)
                copy.ended()
            check(first.lives(), "the first one stays")
            with Fake(m, identity=first.identity, instance=first.instance) as same:
                check(same.register()[0] == number)
                check(first.ended() is not None, "its old connection is over")
                check(same.lives() and m.get("/v1/nodes/%d" % number)["connected"])
        until(lambda: not m.get("/v1/nodes/%d" % number)["connected"], "it is gone")
        with Fake(m, identity=first.identity) as restarted:
            check(restarted.register()[0] == number and restarted.lives())
            refused(MALFORMED, restarted, restarted.register_message(identity=os.urandom(16)))
        count = m.proxies()
        check(count["doubles"] == 1 and count["replaced"] == 1, count)


@case
def bad_messages_cost_only_their_connection():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        good = Fake(m)
        good.register()
        with Fake(m, greet=False) as f:
            f.send(b"GET / HTTP/1.1\r\n\r\n")
            check(f.ended() == [])
        with Fake(m) as f:
            refused(VERSION, f, message(REGISTER, version=2))
        with Fake(m) as f:
            refused(MALFORMED, f, message(REGISTER, length=1 << 20))
        with Fake(m, greet=False) as f:  # room for a whole message follows hello
            refused(MALFORMED, f, message(REGISTER, length=60000))
        with Fake(m) as f:
            f.register()
            refused(TYPE, f, message(0x7000), ends=False)
            refused(MUST, f, message(HEARTBEAT, flags=0x10), ends=False)
            refused(MALFORMED, f, message(HEARTBEAT, b"\0" * 4), ends=False)
            refused(TYPE, f, message(BIND, struct.pack(">HHIQ", 1, 1, 1, 1)), ends=False)
            f.send(message(0xF000))
            f.send(done(1, 0, 0, 77))  # unexpected
            f.send(message(STATUS, struct.pack(">BxxxIHHHH", BOX, 1, 4, 1, 0, 168), 78))
            check(f.lives())
            refused(MALFORMED, f, message(HEARTBEAT, struct.pack(">QI", 1, 0)))
        with Fake(m) as f:
            f.register()
            f.send(message(DONE, b"\0"))
            check(all(kind != ERROR for kind, _, _ in f.ended()), "an answer that cannot be read")
        for _ in range(3):
            check(good.lives())
        good.close()
        count = m.proxies()
        check(count["ignored"] == 1 and count["unasked"] == 2, count)


@case
def random_messages():
    rounds = 300
    seed = int(os.environ.get("DXPU_SEED", random.randrange(1 << 32)))
    print("# DXPU_SEED=%d" % seed)
    r = random.Random(seed)
    with lab.Lab(plain=True) as l:
        m = Manager(l, *FAST)
        good = Fake(m)
        good.register()
        for _ in range(rounds):
            with Fake(m, r.choice((HOST, BOX))) as f:
                try:
                    data = f.register_message() + message(HEARTBEAT, struct.pack(
                        ">QI", f.instance, 0), 3) + message(
                            r.choice((ALARM, DONE, ERROR, STATUS, NODE, BIND, ASK, HELLO)),
                            r.randbytes(r.randrange(60)))
                    data = bytearray(data)
                    for _ in range(r.randrange(4)):
                        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
                    f.send(bytes(data[:r.randrange(len(data))] if r.random() < 0.3 else data))
                except ConnectionError:
                    pass
            check(good.lives())
        good.close()
        check(m.proxies()["heartbeats"] >= rounds)


@case
def too_many_alarms_are_not_events():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m) as f:
            f.register()
            for number in range(100):
                f.send(message(ALARM, struct.pack(">HBxQ", 1, 1, 0) + text("hot"), 1000 + number))
            for number in range(100):
                check(f.answer(1000 + number)[0] == DONE)
            check(f.lives())
        alarms = m.get("/v1/events?type=alarm")["events"]
        check(1 <= len(alarms) < 100, len(alarms))
        check(m.proxies()["alarms"] == 100)


@case
def an_order_without_an_answer_ends_a_connection():  # M-71
    with lab.Lab(plain=True) as l:
        m = Manager(l, *FAST)
        with Fake(m) as f, Fake(m) as control:
            f.secretive = False
            f.register()
            control.register()

            def gone():
                control.lives()
                try:
                    f.lives()
                except (EOFError, ConnectionError):
                    return True
            until(gone, "what does not answer is dropped")
            check([kind for kind, _, _ in f.later] == [ASK], f.later)
            check(control.lives())
        count = m.proxies()
        check(count["unanswered"] == 1 and count["silent"] == 0, count)


@case
def an_order_that_waits_for_a_disk_ends_none():  # M-71
    """Bind is answered when it is on disk, a counter at once: who withholds one of those, which was
    asked for later, is dropped; who withholds the bind is not, and is lent when it answers."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--heartbeat-ms", 200)
        with Fake(m, slots=1) as box, Fake(m, HOST, slots=1) as host, Fake(m) as control:
            box.register()
            number = host.register()[0]
            status, lease = m.ask("POST", "/v1/leases", {"host": number, "model": "nvme"})
            check(status == 201, status, lease)

            def all_live():
                check(box.lives() and host.lives())
                for kind, request, body in host.later:
                    if kind == DETACH:  # it has nothing else yet
                        host.send(done(struct.unpack(">H", body[:2])[0], EMPTY, 0, request))
                host.later = [order for order in host.later if order[0] != DETACH]

            def ordered():
                all_live()
                return box.later
            kind, request, body = until(ordered, "it is bound")[0]
            check(kind == BIND, kind)
            control.secretive = False
            control.register()

            def gone():
                all_live()
                try:
                    control.lives()
                except (EOFError, ConnectionError):
                    return True
            until(gone, "what does not answer is dropped")

            def reported():
                all_live()
                return [e for e in m.get("/v1/events?type=alarm")["events"]
                        if "not done bind" in e["text"] and e["lease"] == lease["lease"]]
            until(reported, "and operators learn that the box does not answer")
            for _ in range(10):
                check(len(reported()) == 1, reported())
                time.sleep(0.05)
            check(len(box.later) == 1, box.later)
            epoch = struct.unpack(">Q", body[8:16])[0]
            box.send(done(1, HELD, epoch, request))

            def attached():
                all_live()
                return [kind for kind, _, _ in host.later if kind == ATTACH]
            until(attached, "its host is to attach it")
        count = m.proxies()
        check(count["unanswered"] == 1 and count["silent"] == 0, count)


@case
def counters_are_asked_for():
    with lab.Lab(plain=True) as l:
        m = Manager(l, *FAST, "--status-ms", 100)
        with Fake(m, slots=3) as f:
            f.secretive = False
            f.register()

            def asked():
                f.lives()
                return [(number, body) for kind, number, body in f.later if kind == ASK]
            for first, count in ((1, 2), (3, 1), (1, 3)):
                f.later.clear()
                number, body = until(asked, "it asks")[0]
                check(struct.unpack(">HH", body) == (first, 0), first, body)
                f.send(message(STATUS, struct.pack(">BxxxIHHHH", BOX, 1, 3, first, count, 168)
                               + b"".join(struct.pack(">H166x", first + i) for i in range(count)),
                               number))
        check(m.proxies()["statuses"] == 3)


@case
def strangers_are_bounded():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--nodes", 3, "--slots", 20)
        with Fake(m, BOX) as box:
            number = box.register()[0]
            for role in (HOST, BOX):
                with Fake(m, role) as f:
                    f.register()
            for _ in range(3):
                with Fake(m, HOST) as f:
                    refused(BUSY, f, f.register_message())
            alarms = m.get("/v1/events?type=alarm")["events"]
            check(len(alarms) == 1 and "3 nodes" in alarms[0]["text"], alarms)
            check(box.lives())
            with Fake(m, BOX, identity=box.identity, instance=box.instance) as again:
                check(again.register()[0] == number, "who is known gets in")


def status(first, count, total):
    return struct.pack(">BxxxIHHHH", BOX, 1, total, first, count, 168) + b"".join(
        struct.pack(">H166x", n) for n in range(first, first + count))


@case
def a_status_without_end():
    """A proxy that repeats a slot, or adds ever more of them, is asked no more."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--status-ms", 3600000)

        def asked(answer):
            """First slots that the manager asks for, until it is content."""
            found = []
            with Fake(m, BOX, slots=4) as f:
                f.secretive = False
                f.register()
                number = None
                while number is None:  # until the manager looks at it for the first time
                    kind, number, body = f.receive()
                    number = number if kind == ASK else None
                while number is not None and len(found) < 40:
                    found.append(struct.unpack(">H", body[:2])[0])
                    f.send(message(STATUS, answer(found[-1]), number))
                    f.heartbeat()  # its answer follows what is asked because of this
                    number = None
                    while True:
                        kind, request, said = f.receive()
                        if kind == ASK:
                            number, body = request, said
                        if kind == HEARTBEAT:
                            break
            return found
        check(asked(lambda first: status(first, 1, 4)) == [1, 2, 3, 4])  # the control
        check(asked(lambda first: status(1, 1, 65535)) == [1, 2])
        check(asked(lambda first: status(first, 1, first + 1)) == [1, 2])


@case
def a_proxy_that_changes_all_the_time():
    """Another device, then another state, in each register: the others are heard, and the store is
    written for few of them."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--quiet")
        with Fake(m, BOX, slots=4) as bad, Fake(m, HOST, slots=4) as good:
            bad.register()
            good.register()

            def flood(*each):
                for n in range(2000):
                    bad.send(bad.register_message(1, devices=[each[n % len(each)]], request=77))
                    if n % 100 == 99:
                        good.lives()
                        bad.heartbeat(request=78)
                        while bad.receive()[:2] != (HEARTBEAT, 78):
                            pass
            seconds = time.monotonic()
            flood(device(1, serial="a"), device(1, serial="b"))
            flood(device(2, KEPT), device(2, WIPED))
            seconds = time.monotonic() - seconds
            good.lives()
            events = m.get("/v1/events?limit=1000")["events"]
            check(len(events) < (64 + 4) * 2 * (seconds + 2), len(events), seconds)
            check(any(e["type"] == "slot.changed" for e in events), "nothing was heard at all")


@case
def a_crowd_does_not_drive_out_a_proxy():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--connections", 20)
        with Fake(m) as good:
            good.register()
            crowd = [Fake(m, greet=False) for _ in range(60)]
            with Fake(m) as late:
                check(late.register()[0] and good.lives() and late.lives())
            for f in crowd:
                f.close()
            check(good.lives())
        check(m.proxies()["displaced"] >= 40)


@case
def thousands_of_connections():
    want = 4096
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < want + 200:
        return "only %d open files are allowed" % hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want + 200), hard))
    try:
        with lab.Lab(plain=True) as l:
            m = Manager(l, "--connections", want)
            host, port = m.listen.rsplit(":", 1)
            greeting = hello(HOST)
            with Fake(m) as good:
                good.register()
                others = []
                for number in range(want - 1):
                    if number % 256 == 0:
                        good.heartbeat()
                    others.append(socket.create_connection((host, int(port)), 20))
                    others[-1].sendall(greeting)
                for s in others[::97] + others[-1:]:
                    good.heartbeat()  # the number let in a second is limited
                    s.settimeout(20)
                    check(s.recv(16)[:4] == b"DXCT")
                check(good.lives())
                for s in others:
                    s.close()
                check(good.lives())
            count = m.proxies()
            check(count["connections"] == want and count["displaced"] == 0, count)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- Starting ----

def fails(l, status, *words, store=None, start=(), more=()):
    """The manager ends with this status and says these words."""
    done_ = subprocess.run([*start, os.path.join(lab.BIN, "dxpu-manager"), "--listen",
                            "127.0.0.1:0", "--http", "127.0.0.1:0", "--store",
                            store or l.file("pool.db"), *more],
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
    check(done_.returncode == status, status, done_.returncode, done_.stderr)
    check(all(w in done_.stderr for w in words), words, done_.stderr)


@case
def too_few_open_files():
    with lab.Lab(plain=True) as l:
        limit = ("prlimit", "--nofile=300:300")
        if not shutil.which("prlimit"):
            return "no prlimit"
        fails(l, SYSTEM, "--connections 4096", "300 are allowed", "LimitNOFILE", start=limit)
        m = Manager(l, "--connections", "100")
        check(m.process.stop() == 0)


@case
def ports_in_use():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        fails(l, SYSTEM, "--listen", "in use", store=l.file("b.db"), more=("--listen", m.listen))
        fails(l, SYSTEM, m.http, "in use", store=l.file("b.db"), more=("--http", m.http))
        fails(l, USAGE, "--help", more=("--heartbeat-ms", "1"))


@case
def configuration_from_a_file():
    with lab.Lab(plain=True) as l:
        with open(l.file("m.conf"), "w", encoding="utf-8") as f:
            f.write("heartbeat-ms = 321\nlisten = 127.0.0.9:1\n")
        m = Manager(l, "--config", l.file("m.conf"))  # the command line goes first
        with Fake(m) as f:
            check(f.register()[1] == 321)
        check(m.process.stop() == 0)
    with lab.Lab(plain=True) as l:
        # A text of the file that another one goes before is not kept: leaks end the sanitized
        # program with another status.
        with open(l.file("m.conf"), "w", encoding="utf-8") as f:
            f.write("store = %s\nstore = %s\n" % (l.file("a/b"), l.file("c/d")))
        fails(l, STORE, l.file("e/f"), store=l.file("e/f"), more=("--config", l.file("m.conf")))
    with lab.Lab() as l:  # the example names a file of peers
        m = Manager(l, "--config", os.path.join(lab.ROOT, "examples/manager/manager.conf"))
        check(m.get("/v1/health")["status"] == "up")


@case
def statistics_on_a_signal():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        m.process.popen.send_signal(10)
        m.process.says(r"\nproxies\n(.*\n)*  answer_us\n")
        check(m.process.stop() == 0)
        found = m.process.result()
        check(found["pool"]["slots"] == 0 and found["proxies"]["connected"] == 0, found)


# ---- The store ----

@case
def store_is_one_managers():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        fails(l, STORE, m.store, "another")
        with Fake(m) as f:
            check(f.register() and f.lives(), "the first one goes on")


@case
def invalid_store():
    with lab.Lab(plain=True) as l:
        for name, content in (("text", b"no database\n" * 1000), ("short", b"SQLite format 3")):
            with open(l.file(name), "wb") as f:
                f.write(content)
            fails(l, DAMAGED, l.file(name), store=l.file(name))
            with open(l.file(name), "rb") as f:
                check(f.read() == content, "it was changed")
        other = sqlite3.connect(l.file("other"))
        other.execute("CREATE TABLE music (title TEXT)")
        other.commit()
        other.close()
        fails(l, DAMAGED, l.file("other"), store=l.file("other"))
        fails(l, STORE, "nowhere", store=l.file("nowhere/pool.db"))


def stopped_store(l):
    """A store with a node, of a manager that has stopped."""
    m = Manager(l)
    with Fake(m) as f:
        f.register()
    check(m.process.stop() == 0)
    return m


@case
def store_of_a_newer_version():
    with lab.Lab(plain=True) as l:
        m = stopped_store(l)
        db = sqlite3.connect(m.store)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        db.execute("PRAGMA user_version = %d" % (version + 1))
        db.commit()
        db.close()
        fails(l, DAMAGED, m.store, "run the version that wrote it")
        db = sqlite3.connect(m.store)
        db.execute("PRAGMA user_version = %d" % version)
        db.commit()
        db.close()
        check(m.start().get("/v1/nodes")["nodes"], "nothing was lost")


@case
def store_that_is_damaged():
    with lab.Lab(plain=True) as l:
        m = stopped_store(l)
        size = os.path.getsize(m.store)
        with open(m.store, "r+b") as f:
            f.seek(100)
            f.write(os.urandom(size - 100))
        with open(m.store, "rb") as f:
            before = f.read()
        fails(l, DAMAGED, m.store)
        with open(m.store, "rb") as f:
            check(f.read() == before, "it was changed")


@case
def records_that_cannot_be_loaded():
    """The database is sound, and what is in it is not."""
    for change in ("UPDATE record SET value = '{' WHERE key = 'node/1'",
                   "UPDATE record SET value = replace(value, '\"format\":2', '\"format\":3') "
                   "WHERE key = 'meta'", "DELETE FROM record WHERE key = 'slot/1.1'"):
        with lab.Lab(plain=True) as l:
            m = stopped_store(l)
            check(m.start().get("/v1/slots")["slots"] and m.process.stop() == 0, "it is sound")
            db = sqlite3.connect(m.store)
            check(db.execute(change).rowcount == 1, change)
            db.commit()
            db.close()
            fails(l, DAMAGED, "store", store=m.store)


@case
def invalid_addresses():
    with lab.Lab(plain=True) as l:
        for option in ("--listen", "--http"):
            fails(l, SYSTEM, "nonsense", more=(option, "nonsense"))  # it may be resolved later
            for text in ("127.0.0.1:99999", "127.0.0.1:0x1", "[::1", "300.1.1.1:1", "[::z]:1"):
                fails(l, USAGE, option + ": address", more=(option, text))
        fails(l, USAGE, "--tokens", more=("--http", "0.0.0.0:0"))
        fails(l, USAGE, "--plain-network", more=("--plain", "--listen", "0.0.0.0:0"))
        fails(l, SYSTEM, "192.0.2.1", more=("--http", "127.0.0.1:0", "--listen", "192.0.2.1:0"))


@case
def store_that_is_removed():
    """While the manager runs; whether it has something to write then, or not."""
    for asked in (True, False):
        with lab.Lab(plain=True) as l:
            m = Manager(l)
            with Fake(m, BOX) as box, Fake(m, HOST) as host:
                box.register()
                want = {"host": host.register()[0], "model": "nvme"}
                first = m.ask("POST", "/v1/leases", want)
                check(first[0] == 201, first)
                os.unlink(m.store)
                if asked:
                    try:
                        check(m.ask("POST", "/v1/leases", want)[0] == 503, "it was acknowledged")
                    except ConnectionError:
                        pass  # it has ended already
                check(m.process.wait(20) == STORE, m.process.errors())
                check(m.store + "-saved" in m.process.errors(), m.process.errors())
            fails(l, STORE, "-saved")
            os.rename(m.store + "-saved", m.store)
            m.start()
            leases = [lease["lease"] for lease in m.get("/v1/leases")["leases"]]
            check(first[1]["lease"] in leases, leases)


@case
def store_on_a_full_disk():
    with lab.Lab(plain=True) as l:
        os.mkdir(l.file("disk"))
        script = l.file("mount")
        with open(script, "w", encoding="utf-8") as f:
            f.write('mount -t tmpfs -o size=512k none %s || exit 77\nexec "$@"\n' % l.file("disk"))
        begin = ["unshare", "--mount", "--map-root-user", "sh", script]
        if not shutil.which("unshare") or subprocess.run(
                begin + ["true"], stderr=subprocess.DEVNULL).returncode:
            return "no mount namespaces"
        m = Wrapped(l, begin, l.file("disk/pool.db"))
        inside = "/proc/%d/root%s" % (m.process.popen.pid, l.file("disk"))
        with Fake(m, BOX) as box, Fake(m, HOST) as host:
            box.register()
            number = host.register()[0]
            want = {"host": number, "model": "nvme", "key": "a"}
            with open(inside + "/filler", "wb", buffering=0) as filler:
                try:
                    while filler.write(b"\0" * 512):
                        pass
                except OSError:
                    pass
            status, answer = m.ask("POST", "/v1/leases", want)
            check(status == 503, "the disk is not full", status, answer)
            m.process.says("full|room")
            now = m.get("/v1/pool")
            check(now["slots"]["leased"] == now["leases"]["total"] == 0, "half done", now)
            check(host.lives() and box.lives())
            os.unlink(inside + "/filler")
            until(lambda: m.ask("POST", "/v1/leases", want)[0] == 201, "it goes on with room")
            m.process.says("can be written again")
            check(m.get("/v1/pool")["leases"]["total"] == 1)


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    usleep(getenv("DISK_US") ? (unsigned)atoi(getenv("DISK_US")) : 0);
    if (getenv("DISK_ERROR") && access(getenv("DISK_ERROR"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}
int fsync(int fd)
{
    return fdatasync(fd);
}
"""


def disk(l, *settings):
    """The command before a program that gives it such a disk."""
    with open(l.file("shim.c"), "w", encoding="utf-8") as f:
        f.write(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", l.file("shim.so"), l.file("shim.c"), "-ldl"],
                   check=True)
    return ["env", "LD_PRELOAD=" + l.file("shim.so"), *settings]


@case
def a_crowd_on_a_slow_disk_delays_no_other():
    many = 60
    with lab.Lab(plain=True) as l:
        m = Wrapped(l, disk(l, "DISK_US=10000"))
        with Fake(m) as good:
            good.register()
            crowd = [Fake(m, HOST, slots=1) for _ in range(many)]
            for f in crowd:
                f.send(f.register_message() + message(HEARTBEAT, struct.pack(">QI", f.instance, 0),
                                                      3))
            check(good.lives())
            numbers = {struct.unpack(">I", f.answer(2)[1][:4])[0] for f in crowd}
            check(len(numbers) == many, "each is a node")
            for f in crowd:
                check(f.answer(3)[0] == HEARTBEAT, "what came after register was kept")
                f.close()
        check(m.proxies()["registers"] == many + 1)
        commits = m.process.result()["store"]["commits"]
        check(commits < 2 * many, "each costs one when it is lost, and one when it registers:",
              commits)


@case
def store_on_a_disk_with_errors():
    with lab.Lab(plain=True) as l:
        m = Wrapped(l, disk(l, "DISK_ERROR=" + l.file("error")))
        with Fake(m, BOX) as box, Fake(m, HOST) as host:
            box.register()
            want = {"host": host.register()[0], "model": "nvme"}
            first = m.ask("POST", "/v1/leases", want)
            check(first[0] == 201, first)
            with open(l.file("error"), "w", encoding="utf-8"):
                pass
            status, answer = m.ask("POST", "/v1/leases", want)
            check(status == 503, status, answer)
            check(m.process.wait(20) == STORE, m.process.errors())
            check("start again" in m.process.errors(), m.process.errors())
        os.unlink(l.file("error"))
        m.start()
        leases = [lease["lease"] for lease in m.get("/v1/leases")["leases"]]
        check(first[1]["lease"] in leases and len(leases) <= 2, leases)


class Wrapped(Manager):
    """Started by another command: with faults."""

    def __init__(self, l, begin, store=None):
        self.script = l.file("start")
        with open(self.script, "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\nexec %s %s "$@"\n' % (" ".join(begin), os.path.join(
                lab.BIN, "dxpu-manager")))
        os.chmod(self.script, 0o755)
        super().__init__(l, "--plain", store=store,
                         starts=lambda name, *args: l.start(self.script, *args))


if __name__ == "__main__":
    sys.exit(main())
