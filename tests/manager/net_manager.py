#!/usr/bin/env python3
"""dxpu-manager with real dxpu-box and dxpu-host: random requests, kill -9 of all three, and then no
slot has two owners, no acknowledged lease is lost, and what the store says is what proxies have.
Then figures: how long a broken box is felt, how many leases a second there can be.

DXPU_STEPS random steps (500), DXPU_SEED repeats a run.  Prints `ok NAME` or `not ok NAME`."""
# SPDX-License-Identifier: MIT
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from pool import BOX, HOST, Manager, Robots, until  # noqa: E402
import lab  # noqa: E402
import nvme_client  # noqa: E402

STEPS = int(os.environ.get("DXPU_STEPS", 500))
V4 = "127.0.0.1:0"
HOLD_MS, GRACE_MS = 300, 1500
STATUS_S = 0.1  # between questions that start dxpu for each proxy
NEEDS = ("any", "same_box", "spread")


class Proxy:
    """A dxpu-box or dxpu-host; after start() again it is the same one, as after a crash."""

    def __init__(self, world, role, number, slots):
        self.world, self.role, self.name = world, role, "%s%d" % (role, number)
        self.slots, self.cores = slots, 1 + number % 2
        self.listen, self.control = lab.address(count=2), lab.address(socket.SOCK_STREAM)
        self.blocks = role == "box" and number % 2 == 0 and world.disks
        self.start()

    def start(self):
        m, file = self.world.manager, self.world.lab.file
        args = ["--manager", m.listen, "--identity", file(self.name + ".id"), "--name", self.name,
                "--listen", self.listen, "--control", self.control, "--slots", self.slots,
                "--hold-ms", HOLD_MS, "--wait", "block"]
        if self.role == "box":
            args += ["--cores", self.cores, "--state", file(self.name + ".state"),
                     "--quiet", "--model", "memory"]
            args += (["--device", "nvme", "--size", "1M", "--file", file(self.name + ".blocks")]
                     if self.blocks else ["--memory", 4096])
        else:
            args += ["--vfio-user", file(self.name + ".vm")]
        self.process = self.world.lab.start("dxpu-" + self.role, *args)
        self.control = self.process.says(r"control port (\S+:\d+)\n").group(1)
        if self.role == "box":
            self.listen = self.process.address()

    def reached_at(self, slot):
        """M-73"""
        name, port = self.listen.rsplit(":", 1)
        return "%s:%d" % (name, int(port) + (slot - 1) % self.cores)

    def file_of(self, slot):
        return self.world.lab.file(self.name + ".blocks" + (".%d" % slot if slot > 1 else ""))

    def kill(self):
        self.process.kill()

    def status(self):
        """Its slots by their numbers, as the proxy itself reports them."""
        done = until(self.answers, self.name + " answers")
        return {s["slot"]: s for s in done.result()["slots"]}

    def answers(self):
        """Nothing for a second when its worker did not run for the hold time, and was replaced."""
        done = self.world.lab.run("dxpu", "status", "--json", self.control)
        return done if done.status == 0 else None


class World:
    """A manager, boxes and hosts, and what they have promised."""

    def __init__(self, l, boxes=4, hosts=4, slots=16, grace_ms=GRACE_MS, disks=False, options=()):
        self.lab, self.disks = l, disks  # disks: boxes of even numbers have files
        self.stamps = {}  # {lease: (times replaced, slots that it has written)}
        self.stamped = 0
        self.manager = Manager(l, "--grace-ms", grace_ms, "--heartbeat-ms", 200, "--retention", 2,
                               *options)
        self.boxes = [Proxy(self, "box", n, slots) for n in range(1, boxes + 1)]
        self.hosts = [Proxy(self, "host", n, slots) for n in range(1, hosts + 1)]
        self.leases = {}   # id: the lease, as it was acknowledged
        self.maybe = set()  # keys of requests that were never answered
        self.ending = set()  # ids of leases that end by themselves
        self.wait_connected()
        nodes = self.manager.get("/v1/nodes")["nodes"]
        self.number = {n["name"]: n["node"] for n in nodes}
        self.proxy = {self.number[p.name]: p for p in self.boxes + self.hosts}

    def wait_connected(self):
        want = len(self.boxes) + len(self.hosts)
        until(lambda: sum(n["connected"] for n in self.manager.get("/v1/nodes")["nodes"]) == want,
              "all proxies are connected", 30)

    def listed(self):
        """All leases that the manager knows, by id."""
        found, after = {}, ""
        while True:
            page = self.manager.get("/v1/leases?limit=100" + after)
            found.update((one["lease"], one) for one in page["leases"])
            if page.get("next") is None:
                return found
            after = "&after=%s" % page["next"]

    def promised(self, lease):
        self.leases[lease["lease"]] = lease
        if lease["expires_at"]:
            self.ending.add(lease["lease"])

    # ---- What must always be true ----

    def check_promises(self):
        listed = self.listed()
        for one in list(self.leases):
            if one not in listed and one in self.ending:
                del self.leases[one]
        lost = [one for one in self.leases if one not in listed]
        check(not lost, "acknowledged leases are lost:", lost)
        for one, lease in listed.items():
            if one not in self.leases:
                check(lease["key"] in self.maybe, "a lease that nobody asked for:", lease)
                self.promised(lease)
            mine = self.leases[one]
            if one in self.ending and lease["state"] == "ended":  # and its data are kept
                mine["host"] = None
            check(all(mine[k] == lease[k] for k in ("tenant", "model", "count", "host")), mine,
                  lease)
        slots = [s["slot"] for lease in listed.values() for s in lease["slots"]]
        check(len(slots) == len(set(slots)), "a slot is in two leases:", sorted(slots))

    def doubles(self):
        """Slots of boxes that two ports say they have now."""
        seen, twice = {}, []
        for host in self.hosts:
            for port in host.status().values():
                if port["state"] == "up":
                    place = (port["peer"], port["peer_slot"])
                    if place in seen:
                        twice.append((place, seen[place], (host.name, port["slot"])))
                    seen[place] = (host.name, port["slot"])
        return twice

    def at_rest(self):
        """The states of all hosts' slots, once each is up or empty: a machine that is held up
        longer than HOLD_MS ends channels, and they are opened again."""
        states = [[s["state"] for s in host.status().values()] for host in self.hosts]
        return all(s in ("up", "empty") for host in states for s in host) and states

    def agree(self, what, seconds=20.0):
        """It holds, at the latest after this time."""
        end = time.monotonic() + seconds
        while True:
            try:
                return what()
            except AssertionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def rest(self):
        """Everything runs; nothing is left to do."""
        self.wait_connected()

        def quiet():
            pool = self.manager.get("/v1/pool")
            listed = self.listed()
            return (pool["slots"]["wiping"] == 0 and not self.ending & set(listed) and
                    {lease["state"] for lease in listed.values()} <= {"active", "parked"})
        until(quiet, "nothing is left to do", 60)
        until(lambda: not self.doubles(), "no slot has two owners", pause=STATUS_S)

    def check_store(self):
        """What the store says is what the proxies have, slot by slot; the manager is stopped."""
        copy = self.lab.file("copy.db")
        shutil.copy(self.manager.store, copy)
        db = sqlite3.connect(copy)
        records = {key: json.loads(value) for key, value in db.execute("SELECT * FROM record")}
        db.close()
        leases = {key[6:]: r for key, r in records.items() if key.startswith("lease/")}
        check(set(leases) == set(self.leases), sorted(leases), sorted(self.leases))
        lent, ports = {}, {}
        for key, r in leases.items():
            for node, slot, port in r["slots"]:
                epoch = records["slot/%d.%d" % (node, slot)]["epoch"]
                lent[node, slot] = (epoch, r["host"], port)
                if r["host"]:
                    ports[r["host"], port] = (epoch, node, slot)
        for box in self.boxes:
            node = self.number[box.name]
            for number, s in box.status().items():
                want = lent.get((node, number))
                where = (box.name, number, s, want)
                if not want:
                    check(s["epoch"] == 0 and s["state"] in ("empty", "wiped"), where)
                elif not want[1]:
                    # parked; maybe before its box ever learned of it
                    check(s["state"] == "kept" or s["epoch_seen"] < want[0], where)
                else:
                    check((s["epoch"], s["peer_node"], s["peer_slot"]) == want, where)
                    check(s["state"] == "up", where)
        for host in self.hosts:
            node = self.number[host.name]
            for number, s in host.status().items():
                want = ports.get((node, number))
                if not want:
                    check(s["state"] == "empty" and s["epoch"] == 0, host.name, s)
                    continue
                check(s["state"] == "up" and s["epoch"] == want[0], host.name, s, want)
                check(s["peer_slot"] == want[2], s, want)
                check(s["peer"] == self.proxy[want[1]].reached_at(want[2]), s, want)

    def stamp(self, lease):
        """What its tenant writes, into the files of its slots that are up; before that it finds
        nothing of anybody else's, and what it wrote before."""
        if lease["expires_at"]:
            return  # it may end between the answer and the stamp
        mine = lease["lease"].encode().rjust(16, b"0") * 32
        count, seen = self.stamps.get(lease["lease"], (0, set()))
        if count != lease["replaced"]:
            seen = set()  # it gave one up, and may have the same one again
        self.stamps[lease["lease"]] = (lease["replaced"], seen)
        for s in lease["slots"]:
            node, number = (int(n) for n in s["slot"].split("."))
            box = self.proxy[node]
            if not box.blocks or s["state"] != "up":
                continue
            with open(box.file_of(number), "r+b") as f:
                f.seek(4096)
                found = f.read(len(mine))
                check(found in (mine, bytes(len(mine))), "data of another lease:", s["slot"],
                      lease["lease"], found[:16])
                check(found == mine or s["slot"] not in seen, "its data are gone:", s["slot"],
                      lease["lease"])
                f.seek(4096)
                f.write(mine)
            seen.add(s["slot"])
            self.stamped += 1

    def stamp_all(self):
        for lease in self.listed().values():
            self.stamp(lease)

    # ---- Steps ----

    def ask(self, *request):
        """A refusal just after a start (M-150) is one of those that it may give later."""
        status, answer = self.manager.ask(*request)
        early = status == 503 and answer["type"] == "/problems/starting"
        return 409 if early else status, answer

    def create(self, r, wait=""):
        body = {"host": self.number[r.choice(self.hosts).name], "model": "memory",
                "count": r.choice((1, 1, 1, 2, 3, 4)), "need": r.choice(NEEDS),
                "tenant": "t%d" % r.randrange(3), "key": "%x" % r.getrandbits(64)}
        if r.random() < 0.1:
            body["seconds"] = 1
        self.maybe.add(body["key"])
        status, lease = self.ask("POST", "/v1/leases" + wait, body)
        check(status in (200, 201, 409), status, lease)
        if status != 409:
            self.promised(lease)
            self.stamp(lease)
        if r.random() < 0.1:  # the same again is the same
            again, same = self.ask("POST", "/v1/leases", body)
            check(status == 409 or "seconds" in body or
                  (again == 200 and same["lease"] == lease["lease"]), again, same)
            if status == 409 and again == 201:
                self.promised(same)

    def any_lease(self, r):
        mine = [one for one in self.leases if one not in self.ending]
        return r.choice(mine) if mine else None

    def change(self, r, method, path, body=None, then=lambda lease: None):
        one = self.any_lease(r)
        if one:
            status, answer = self.ask(method, path % one, body)
            check(status in (200, 409), method, path, status, answer)
            if status == 200:
                then(one)

    def release(self, r):
        self.change(r, "DELETE", "/v1/leases/%s", then=self.leases.pop)

    def park(self, r):
        self.change(r, "POST", "/v1/leases/%s/park",
                    then=lambda one: self.leases[one].update(host=None))

    def attach(self, r):
        host = self.number[r.choice(self.hosts).name]
        self.change(r, "POST", "/v1/leases/%s/attach", {"host": host},
                    then=lambda one: self.leases[one].update(host=host))

    def extend(self, r):
        self.change(r, "PATCH", "/v1/leases/%s", {"seconds": r.choice((None, 3600))})

    def drain(self, r):
        node = self.number[r.choice(self.boxes).name]
        status, answer = self.manager.ask("PUT", "/v1/boxes/%d/drain" % node, {
            "on": r.random() < 0.3, "move": r.random() < 0.5})
        check(status == 200, status, answer)

    def kill_manager(self, r):
        """In the middle of a request: it was done, or not; if it was answered, it was."""
        def asking():
            try:
                self.create(random.Random(r.random()))
            except (OSError, EOFError):
                pass
            except Exception as error:  # half an answer is invalid
                check("http" in type(error).__module__ or isinstance(error, ValueError), error)
        thread = threading.Thread(target=asking)
        thread.start()
        time.sleep(r.random() * 0.01)
        self.manager.process.kill()
        thread.join()
        time.sleep(r.choice((0, 0, 0.5)))
        self.manager.start()
        if r.random() < 0.8:
            self.wait_connected()  # it leases nothing before

    def kill_proxies(self, r):
        chosen = r.sample(self.boxes + self.hosts, r.choice((1, 1, 2)))
        for p in chosen:
            p.kill()
        if r.random() < 0.3:  # and what is asked meanwhile
            for _ in range(5):
                r.choice((self.create, self.release, self.park, self.attach))(r)
            time.sleep(r.choice((0, GRACE_MS / 1000 + 1)))
        for p in chosen:
            p.start()

    def pause(self, r):
        """One of them is held up, as by a machine that swaps, or a network that is cut."""
        chosen = r.choice(self.boxes + self.hosts + [self.manager]).process
        chosen.signal(signal.SIGSTOP)
        time.sleep(r.choice((0.05, HOLD_MS / 1000 + 0.1, 1, GRACE_MS / 1000 + 1)))
        chosen.signal(signal.SIGCONT)

    def step(self, r):
        steps = ((self.create, 40), (self.release, 24), (self.park, 8), (self.attach, 12),
                 (self.extend, 4), (self.drain, 4), (self.kill_proxies, 4), (self.kill_manager, 3),
                 (self.pause, 2))
        what = r.choices([s[0] for s in steps], [s[1] for s in steps])[0]
        what(r)
        return what.__name__


@case
def random_requests_and_crashes():
    seed = int(os.environ.get("DXPU_SEED", random.randrange(1 << 32)))
    print("# DXPU_SEED=%d" % seed, flush=True)
    r, log = random.Random(seed), []
    with lab.Lab() as l:
        w = World(l, disks=True)
        try:
            for number in range(1, STEPS + 1):
                log.append(w.step(r))
                if number % 10 == 0:
                    w.stamp_all()
                if number % 25 == 0:
                    w.check_promises()
                if number % 100 == 0:
                    until(lambda: not w.doubles(), "no slot has two owners", pause=STATUS_S)
            for box in w.boxes:
                w.manager.ask("PUT", "/v1/boxes/%d/drain" % w.number[box.name], {"on": False})
            for _ in range(10):
                w.create(r)
            w.rest()
            w.check_promises()
            w.stamp_all()
            check(w.stamped >= STEPS / 10, "too few had data:", w.stamped)
            check(w.leases, "nothing was leased at the end")
            before = until(w.at_rest, "all that is attached is up", pause=STATUS_S)
            check(w.manager.process.stop() == 0, w.manager.process.errors())
            w.agree(w.check_store)
            until(lambda: w.at_rest() == before, "without the manager the same is up",
                  pause=STATUS_S)
        except Exception:
            print("# last steps: " + " ".join(log[-40:]))
            print("# " + "\n# ".join(w.manager.process.errors().splitlines()[-40:]))
            raise
        print("# %d leases at the end, %d stamps, %s" % (len(w.leases), w.stamped, ", ".join(
            "%d %s" % (log.count(name), name) for name in sorted(set(log)))))


def sees(what, *words):
    """This check fails when it should."""
    try:
        what()
    except AssertionError as seen:
        check(all(word in str(seen) for word in words), seen)
        return
    check(False, "it saw nothing")


@case
def control_of_these_checks():
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=2, slots=4)
        status, lease = w.manager.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory"})
        check(status == 201, lease)
        sees(w.check_promises, "nobody asked for")
        w.leases[lease["lease"]] = lease
        w.check_promises()
        w.leases["123"] = lease
        sees(w.check_promises, "lost", "123")
        del w.leases["123"]
        check(not w.doubles())
        one, two = w.hosts
        status_of_two, two.status = two.status, one.status
        check(len(w.doubles()) == 1, "two hosts with one slot")
        two.status = status_of_two
        check(w.manager.process.stop() == 0)
        w.check_store()
        one.status, mine = two.status, one.status
        sees(w.check_store, "host1", "'empty'")
        one.status = mine
        db = sqlite3.connect(w.manager.store)
        key = "slot/" + lease["slots"][0]["slot"]
        value = json.loads(db.execute("SELECT value FROM record WHERE key=?", (key,)).fetchone()[0])
        value["epoch"] += 1
        db.execute("UPDATE record SET value=? WHERE key=?", (json.dumps(value).encode(), key))
        db.commit()
        db.close()
        sees(w.check_store, "box1")
        w.leases.clear()
        sees(w.check_store, lease["lease"])


@case
def control_of_the_stamps():
    with lab.Lab() as l:
        w = World(l, boxes=2, hosts=1, slots=2, disks=True)
        status, lease = w.manager.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory", "count": 2, "need": "spread"})
        check(status == 201 and lease["state"] == "active", lease)
        w.stamp(lease)
        w.stamp(lease)
        check(w.stamped == 2)  # of the one with a file, twice
        number = next(int(s["slot"].split(".")[1]) for s in lease["slots"]
                      if w.proxy[int(s["slot"].split(".")[0])].blocks)
        sees(lambda: w.stamp(dict(lease, lease="abc")), "another lease")
        with open(w.boxes[1].file_of(number), "r+b") as f:
            f.write(bytes(1 << 20))
        sees(lambda: w.stamp(lease), "are gone")


@case
def a_box_that_dies_is_replaced():
    with lab.Lab() as l:
        w = World(l, boxes=2, hosts=1, slots=4, grace_ms=500)
        m = w.manager
        status, _ = m.ask("PUT", "/v1/models/memory/spares", {"count": 2})
        check(status == 200)
        status, lease = m.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory", "count": 1})
        check(status == 201 and lease["state"] == "active", status, lease)
        old = lease["slots"][0]
        box = w.proxy[int(old["slot"].split(".")[0])]
        other = next(b for b in w.boxes if b is not box)
        begin = time.monotonic()
        box.kill()

        def up_elsewhere():
            s = w.hosts[0].status()[old["host_slot"]]
            return s["state"] == "up" and s["peer"] == other.reached_at(s["peer_slot"])
        until(up_elsewhere, "the host's port has another box's slot", 30, 0.05)
        took = time.monotonic() - begin
        print("# from a box's kill -9 until the host's port is up with a spare: %.2f s "
              "(grace 500 ms, hold %d ms)" % (took, HOLD_MS))
        now = until(lambda: [one for one in [m.get("/v1/leases/" + lease["lease"])]
                             if one["state"] == "active"], "the lease is active")[0]
        check(now["replaced"] == 1 and now["slots"][0]["host_slot"] == old["host_slot"], now)
        box.start()
        until(lambda: m.get("/v1/slots/" + old["slot"])["state"] in ("free", "spare"),
              "the box that is back is wiped and free")


class Absence:
    """One box with a disk, one host with a guest's driver, and nothing else to lend."""

    def __init__(self, l):
        self.lab, self.path = l, l.file("vm")
        self.manager = Manager(l, "--plain", "--grace-ms", 300, "--heartbeat-ms", 100)
        for role, args in (("box", ("--device", "nvme", "--size", "1M", "--file", l.file("disk"),
                                    "--slots", 1, "--state", l.file("box.state"), "--quiet")),
                           ("host", ("--vfio-user", self.path, "--slots", 1))):
            started = l.start("dxpu-" + role, "--plain", "--manager", self.manager.listen,
                              "--identity", l.file(role + ".id"), "--name", role, "--listen", V4,
                              "--hold-ms", HOLD_MS, *args)
            setattr(self, role, started)
        self.host.says("waiting for a guest")
        self.number = until(lambda: [n["node"] for n in self.manager.get("/v1/nodes")["nodes"]
                                     if n["role"] == "host" and n["connected"]], "the host")[0]

    def lease(self, **more):
        """A new one, up at the host."""
        body = dict({"host": self.number, "model": "nvme"}, **more)
        until(lambda: self.manager.get("/v1/pool")["slots"]["free"], "a free slot")
        status, lease = self.manager.ask("POST", "/v1/leases?wait=10", body)
        check(status == 201 and lease["state"] == "active", status, lease)
        return lease["lease"]

    def disk(self, write=None):
        """The first block, after the tenant's guest has written it, or as it is."""
        disk = nvme_client.Disk(self.path, 1)
        at = nvme_client.DATA_AT
        if write:
            disk.memory[at:at + 512] = write
            disk.must(1, q=1, dw12=1 << 30)  # durable
        disk.memory[at:at + 512] = b"?" * 512
        disk.must(2, q=1)
        found = bytes(disk.memory[at:at + 512])
        disk.close()
        return found

    def said(self, *types):
        return [e for e in self.manager.get("/v1/events")["events"] if e["type"] in types]

    def slot(self):
        return self.manager.get("/v1/slots")["slots"][0]


@case
def m94_a_lease_without_a_replacement_waits_for_its_box():
    """The box is stopped for longer than its grace, and no other is there: the tenant's data are,
    also where a replacement is allowed.  The control: a release wipes, and is seen to."""
    with lab.Lab(plain=True) as l:
        a = Absence(l)
        for more in ({}, {"replace": True}):
            lease, secret = a.lease(**more), os.urandom(512)
            check(a.disk(secret) == secret, "the tenant's own data")
            before = len(a.said("slot.wiped"))
            a.box.signal(signal.SIGSTOP)
            until(lambda: a.slot()["state"] == "broken", "the end of the grace")
            until(lambda: a.manager.get("/v1/leases/" + lease)["state"] != "active", "the absence")
            check(len(a.manager.get("/v1/leases/" + lease)["slots"]) == 1, "it has no slot")
            a.box.signal(signal.SIGCONT)
            until(lambda: a.manager.get("/v1/leases/" + lease)["state"] == "active", "the lease")
            check(a.disk() == secret, "the tenant's data are not there", more)
            check(len(a.said("slot.wiped")) == before and not a.said("slot.replaced"),
                  a.said("slot.wiped", "slot.replaced"))
            check(a.manager.ask("DELETE", "/v1/leases/" + lease)[0] in (200, 204))
            until(lambda: len(a.said("slot.wiped")) > before, "the wipe")
            last = a.lease()
            check(a.disk() == bytes(512), "a wipe is not seen")
            check(a.manager.ask("DELETE", "/v1/leases/" + last)[0] in (200, 204))
            until(lambda: a.slot()["state"] == "free", "a free slot")


@case
def figures_of_real_proxies():
    took = []
    with lab.Lab() as l:
        w = World(l, boxes=2, hosts=2)
        for number in range(24):
            begin = time.monotonic()
            status, lease = w.manager.ask("POST", "/v1/leases?wait=10", {
                "host": w.number["host%d" % (1 + number % 2)], "model": "memory"})
            took.append(time.monotonic() - begin)
            check(status == 201 and lease["state"] == "active", status, lease)
    show("from a request until a real host has its channel", took)


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


@case
def a_box_that_comes_back_elsewhere():
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=4)
        status, lease = w.manager.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory", "count": 2})
        check(status == 201 and lease["state"] == "active", lease)
        box, host = w.boxes[0], w.hosts[0]
        for restart in (False, True):
            before = box.listen
            box.kill()
            if restart:
                w.manager.process.kill()
                w.manager.start()
            box.listen = V4
            box.start()
            check(box.listen != before)
            until(lambda: [(s["state"], s["peer"] == box.reached_at(s["peer_slot"]))
                           for s in host.status().values()
                           if s["state"] != "empty"] == [("up", True)] * 2,
                  "the host finds it there", pause=STATUS_S)


@case
def a_box_that_restarts_with_other_cores():
    """M-73: its address is the same, and the ports of its slots are others."""
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=4)
        status, lease = w.manager.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory", "count": 4})
        check(status == 201 and lease["state"] == "active", lease)
        box, host = w.boxes[0], w.hosts[0]
        for cores in (1, 2):
            before, places = box.listen, [box.reached_at(n) for n in range(1, 5)]
            box.kill()
            box.cores = cores
            box.start()
            check(box.listen == before)
            check(places != [box.reached_at(n) for n in range(1, 5)])
            until(lambda: [s["state"] == "up" and s["peer"] == box.reached_at(s["peer_slot"])
                           for s in host.status().values()] == [True] * 4,
                  "the host finds each slot at its port", pause=STATUS_S)


@case
def a_box_that_was_reinstalled():
    """Its record of leases is gone, and who knows whose disk it has: a slot that was free is lent
    is lent only after a decision, and then wiped; a lease that was up goes on."""
    planted = b"somebody's data " * 256
    with lab.Lab() as l:
        w = World(l, boxes=0, hosts=2, slots=2, disks=True)
        m, box = w.manager, Proxy(w, "box", 2, 2)
        w.boxes.append(box)
        w.wait_connected()
        node = until(lambda: m.get("/v1/boxes")["nodes"], "the box")[0]["node"]

        def slots():
            return [s["state"] for s in m.get("/v1/slots?node=%d" % node)["slots"]]

        def blocks(number):
            with open(box.file_of(number), "rb") as f:
                return f.read(len(planted))

        def write(number):
            with open(box.file_of(number), "r+b") as f:
                f.write(planted)

        def ask(tenant, host, wait=10):
            return m.ask("POST", "/v1/leases?wait=%d" % wait, {
                "host": w.number[host], "model": "memory", "tenant": tenant})

        def restart(*gone):
            box.kill()
            for name in gone:
                os.unlink(l.file(box.name + name))
            box.start()
            until(lambda: m.get("/v1/slots/%d.2" % node)["connected"], "the box is back")
        status, lease = ask("x", "host1")
        check(status == 201 and lease["state"] == "active", lease)
        mine = int(lease["slots"][0]["slot"].split(".")[1])
        other = 3 - mine
        write(mine)
        restart()  # the control: it knows what it had
        check(slots()[other - 1] == "free", slots())
        box.kill()
        write(other)
        box.start()
        restart(".state")
        until(lambda: slots()[other - 1] == "quarantined", "it is set aside")
        until(lambda: m.get("/v1/leases/" + lease["lease"])["state"] == "active", "x goes on")
        check(ask("y", "host2", 0)[0] == 409, "it is lent to another")
        check(blocks(mine) == blocks(other) == planted, "data are gone")
        # The manager's store may be an old copy: an operator says whose the data are (M-104).
        box.kill()
        check(m.process.stop() == 0)
        os.unlink(l.file(box.name + ".state"))
        m.start()
        box.start()
        until(lambda: slots()[mine - 1] == "quarantined", "its lease's slot is set aside")
        check(m.ask("POST", "/v1/slots/%d.%d/repair?data=keep" % (node, other))[0] == 409)
        check(blocks(mine) == blocks(other) == planted, "data are gone")
        done = l.run("dxpu", "repair", "%d.%d" % (node, mine), "--keep", "--manager", m.http)
        check(done.status == 0 and "leased" in done.output(), done.output(), done.errors())
        until(lambda: m.get("/v1/leases/" + lease["lease"])["state"] == "active", "x goes on")
        check(blocks(mine) == planted, "data are gone")
        status, slot = m.ask("POST", "/v1/slots/%d.%d/repair" % (node, other))
        check(status == 200, slot)
        until(lambda: slots()[other - 1] == "free", "wiped, then free")
        check(not any(blocks(other)) and blocks(mine) == planted)
        status, second = ask("y", "host2")
        check(status == 201 and second["state"] == "active", second)
        # Without its identity it is a new box, and none of its slots is lent.
        box.kill()
        os.unlink(l.file(box.name + ".state"))
        os.unlink(l.file(box.name + ".id"))
        box.start()
        new = until(lambda: [n for n in m.get("/v1/boxes")["nodes"] if n["node"] != node],
                    "a new box")[0]["node"]
        until(lambda: [s["state"] for s in m.get("/v1/slots?node=%d" % new)["slots"]] ==
              ["quarantined"] * 2, "its slots are set aside")
        check(blocks(mine) == planted)


@case
def copies_of_a_host_never_share_a_slot():
    """A host is held up, and its copy started, as when a virtual machine is cloned; both run."""
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=2)
        m, first = w.manager, w.hosts[0]
        status, lease = m.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory"})
        check(status == 201 and lease["state"] == "active", lease)
        port = lease["slots"][0]["host_slot"]
        check(first.status()[port]["state"] == "up")  # the control: one alone has it
        first.process.signal(signal.SIGSTOP)
        until(lambda: not m.get("/v1/nodes/%d" % w.number["host1"])["connected"], "it is away")
        shutil.copy(l.file("host1.id"), l.file("host9.id"))
        copy = Proxy(w, "host", 9, 2)
        until(lambda: copy.status()[port]["state"] == "up", "the copy has the lease",
              pause=3 * STATUS_S)
        first.process.signal(signal.SIGCONT)
        until(lambda: "not its lease" in str(m.get("/v1/events?type=alarm")), "the box tells of it")
        begun = copy.status()[port]["incarnations"]
        for _ in range(20):
            time.sleep(0.1)
            one, other = first.status(), copy.status()
            check(one[port]["state"] != "up" and other[port]["state"] == "up", one, other)
        check(copy.status()[port]["incarnations"] == begun, "they take it in turns", begun)
        until(lambda: "this identity" in str(m.get("/v1/events?type=alarm")), "people are told")
        # When the copy ends, the first one has it again, under an epoch of its own.
        copy.kill()
        until(lambda: first.status()[port]["state"] == "up", "the first one has the lease again",
              pause=3 * STATUS_S)


@case
def a_fresh_store_wipes_nothing():
    """Two boxes with blocks in files and a lease of each in use; the store is lost."""
    planted = b"a tenant's data " * 256
    with lab.Lab() as l:
        m = Manager(l, "--heartbeat-ms", 200)
        boxes = []
        for name in ("one", "two"):
            boxes.append(l.start("dxpu-box", "--manager", m.listen, "--identity",
                                 l.file(name + ".id"), "--state", l.file(name + ".state"),
                                 "--listen", V4, "--control", V4, "--device", "nvme", "--file",
                                 l.file(name + ".blocks"), "--size", "1M", "--name", name,
                                 "--quiet"))
        host = l.start("dxpu-host", "--manager", m.listen, "--identity", l.file("host.id"),
                       "--listen", V4, "--control", V4, "--slots", 4, "--name", "host",
                       "--vfio-user", l.file("vm"), "--wait", "block")
        control = host.says(r"control port (\S+:\d+)\n").group(1)

        def ports():
            done = l.run("dxpu", "status", "--json", control)
            check(done.status == 0, done.errors())
            return [(s["state"], s["epoch"]) for s in done.result()["slots"]]

        def blocks(name):
            with open(l.file(name + ".blocks"), "rb") as f:
                return f.read(len(planted) * 16)

        def connected(total=3):
            nodes = m.get("/v1/nodes")["nodes"]
            return sum(n["connected"] for n in nodes) == total and nodes
        number = next(n["node"] for n in until(connected, "all are there") if n["role"] == "host")
        for _ in boxes:
            status, lease = m.ask("POST", "/v1/leases?wait=10", {"host": number, "model": "nvme"})
            check(status == 201 and lease["state"] == "active", status, lease)
        before = ports()
        check([s for s, _ in before] == ["up", "up", "empty", "empty"], before)
        for name in ("one", "two"):
            with open(l.file(name + ".blocks"), "r+b") as f:
                f.write(planted * 16)
        m.process.kill()
        m.store = l.file("fresh.db")
        m.start()
        until(connected, "all are there again")
        slots = until(lambda: [s for s in m.get("/v1/slots")["slots"]
                               if s["state"] == "quarantined" and s["reason"] == "foreign"][1:] and
                      m.get("/v1/slots")["slots"], "both are set aside")
        until(lambda: len(m.get("/v1/events?type=port.foreign")["events"]) == 2, "the host's too")
        check(len(m.get("/v1/events?type=slot.quarantined")["events"]) == 2)
        host_node = next(n for n in m.get("/v1/hosts")["nodes"])
        check(host_node["free"] == 2 and host_node["leased"] == 0, host_node)
        check(m.ask("POST", "/v1/leases", {"host": host_node["node"], "model": "nvme"})[0] == 409)
        time.sleep(2.5)  # longer than a box waits for a host to yield
        check(ports() == before, ports(), before)
        check(blocks("one") == blocks("two") == planted * 16, "data are gone")
        # The control: when an operator says so, that slot is wiped, and that one alone.
        status, slot = m.ask("POST", "/v1/slots/%s/repair" % slots[0]["slot"])
        check(status == 200, status, slot)
        until(lambda: m.get("/v1/slots/" + slots[0]["slot"])["state"] == "free", "wiped")
        left = [blocks(name) == planted * 16 for name in ("one", "two")]
        check(sorted(left) == [False, True], left)
        until(lambda: sorted(s for s, _ in ports()) == ["empty"] * 3 + ["up"], "it gave one up")


@case
def an_old_store_ends_no_lease_that_it_does_not_know():
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=4)
        m, box = w.manager, w.boxes[0]

        def lend():
            status, lease = m.ask("POST", "/v1/leases?wait=10", {
                "host": w.number["host1"], "model": "memory"})
            check(status == 201 and lease["state"] == "active", lease)
            return lease["slots"][0]["slot"]
        known = lend()
        check(m.process.stop() == 0)
        shutil.copy(m.store, l.file("backup.db"))
        m.start()
        w.wait_connected()
        unknown = lend()
        check(m.process.stop() == 0)
        shutil.copy(l.file("backup.db"), m.store)
        m.start()
        w.wait_connected()
        until(lambda: m.get("/v1/slots/" + unknown)["state"] == "quarantined", "it is set aside")
        check(m.get("/v1/slots/" + known)["state"] == "leased")
        number = int(unknown.split(".")[1])
        check(box.status()[number]["epoch"] != 0, "the box was told to end it", box.status())
        check(m.get("/v1/events?type=slot.quarantined")["events"])
        status, slot = m.ask("POST", "/v1/slots/%s/repair" % unknown)
        check(status == 200, status, slot)
        until(lambda: m.get("/v1/slots/" + unknown)["state"] == "free", "wiped, then free")
        check(box.status()[number]["state"] == "wiped")


@case
def m176_m177_a_parked_lease_outlives_an_old_store():
    """Attached and parked since the copy, its slot is quarantined; the box says, over a restart of
    its own, whose data it keeps, and the slot is that lease's again once it is named."""
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=2)
        m, box = w.manager, w.boxes[0]
        status, lease = m.ask("POST", "/v1/leases?wait=10", {
            "host": w.number["host1"], "model": "memory"})
        check(status == 201 and lease["state"] == "active", lease)
        path, slot = "/v1/leases/" + lease["lease"], lease["slots"][0]["slot"]

        def park():
            check(m.ask("POST", path + "/park?wait=10")[0] == 200)
            until(lambda: box.status()[int(slot.split(".")[1])]["state"] == "kept", "kept")

        def attach():
            return m.ask("POST", path + "/attach?wait=10", {"host": w.number["host1"]})

        def adopt(*more):
            done = l.run("dxpu", "adopt", *more, "--manager", m.http)
            check(done.status == 0, done.errors())
            return done.output()
        park()
        done = l.run("dxpu", "backup", l.file("backup"), "--manager", m.http)
        check(done.status == 0, done.errors())
        check(attach()[0] == 200)
        park()
        check(m.process.stop() == 0)
        os.unlink(m.store)
        done = l.run("dxpu-manager", "--store", m.store, "--import", l.file("backup"))
        check(done.status == 0, done.errors())
        box.kill()
        box.start()
        m.start()
        w.wait_connected()
        until(lambda: m.get("/v1/slots/" + slot)["state"] == "quarantined", "it is in doubt")
        check(attach()[0] == 409)
        told = adopt("--all")
        check("left: " in told and "name the slot" in told and "0 leases, 0 free" in told, told)
        told = adopt(slot, "--dry-run")
        check("would be back in lease %s of default, whose data its box keeps" % lease["lease"]
              in told and "nothing was changed" in told, told)
        check("1 lease, 0 free, 0 left" in adopt(slot), "adopted")
        check(m.get(path)["state"] == "parked" and m.get("/v1/slots/" + slot)["state"] == "leased")
        status, lease = attach()
        check(status == 200 and lease["state"] == "active" and lease["slots"][0]["slot"] == slot,
              status, lease)


@case
def m170_m172_m173_a_backup_is_adopted():
    """An old store is put back: what runs and is not in it goes on as a lease, what is wiped is
    free, what a box keeps is left; no device sees anything."""
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=4)
        m, box, host = w.manager, w.boxes[0], w.hosts[0]

        def lend():
            status, lease = m.ask("POST", "/v1/leases?wait=10", {
                "host": w.number["host1"], "model": "memory"})
            check(status == 201 and lease["state"] == "active", lease)
            return lease["lease"], lease["slots"][0]["slot"]

        def adopt(*more):
            done = l.run("dxpu", "adopt", *more, "--manager", m.http)
            check(done.status == 0, done.errors())
            return done.output()
        known = lend()
        done = l.run("dxpu", "backup", l.file("backup"), "--manager", m.http)
        check(done.status == 0 and "bytes; dxpu-manager --import" in done.output(), done.errors())
        check(os.stat(l.file("backup")).st_mode & 0o777 == 0o600)
        done = l.run("dxpu", "backup", l.file("no/backup"), "--manager", m.http)
        check(done.status == 1 and "No such file" in done.errors(), done.errors())
        runs, over, kept = lend(), lend(), lend()
        check(m.ask("DELETE", "/v1/leases/%s?wait=10" % over[0])[0] == 200)
        check(m.ask("POST", "/v1/leases/%s/park?wait=10" % kept[0])[0] == 200)
        check(m.process.stop() == 0)
        before = host.status()
        os.unlink(m.store)
        done = l.run("dxpu-manager", "--store", m.store, "--import", l.file("backup"))
        check(done.status == 0, done.errors())
        m.start()
        w.wait_connected()

        def states():
            return [m.get("/v1/slots/" + one[1])["state"] for one in (known, runs, over, kept)]
        until(lambda: states() == ["leased"] + ["quarantined"] * 3, "what it does not know")
        told = adopt("--all", "--dry-run")
        # of its tenant, as its box says: without that it would be left (M-174)
        check("slot %s: would be a new lease of default, slot 2 of host" % runs[1] in told
              and "slot %s: would be free" % over[1] in told
              and "slot %s: left: its box keeps data" % kept[1] in told
              and "1 lease, 1 free, 1 left; nothing was changed" in told, told)
        check(states() == ["leased"] + ["quarantined"] * 3, "it changed something")
        told = adopt("--all")
        check("slot %s: new lease " % runs[1] in told and "1 lease, 1 free, 1 left" in told, told)
        check(states() == ["leased", "leased", "free", "quarantined"], states())
        check("0 leases, 0 free, 1 left" in adopt("--all"), "once")
        lease = m.get("/v1/slots/" + runs[1])["lease"]
        check(lease not in (None, runs[0]) and m.get("/v1/leases/" + lease)["state"] == "active")
        check(m.get("/v1/events?type=lease.adopted")["events"])
        check(host.status() == before, "no device was touched", before, host.status())
        check(box.status()[int(kept[1].split(".")[1])]["state"] == "kept")
        check(m.ask("DELETE", "/v1/leases/%s?wait=10" % lease)[0] == 200)
        check(l.run("dxpu", "adopt", "--manager", m.http).status == 2, "neither a slot nor --all")
        check(l.run("dxpu", "adopt", "9.9", "--manager", m.http).status == 1, "no such slot")


@case
def m174_a_slot_that_was_lent_again_is_not_the_first_tenants():
    """An old store is put back that has a lease for the same slots of box and host as another
    tenant's lease that runs: that one's data never come to the first tenant, and nothing is
    wiped."""
    with lab.Lab() as l:
        w = World(l, boxes=1, hosts=1, slots=2)
        m, host = w.manager, w.hosts[0]

        def lend(tenant):
            status, lease = m.ask("POST", "/v1/leases?wait=10", {
                "host": w.number["host1"], "model": "memory", "tenant": tenant})
            check(status == 201 and lease["state"] == "active", lease)
            return lease["lease"], lease["slots"][0]["slot"]

        def adopt(query="", **body):
            return m.ask("POST", "/v1/adopt?" + query, body)[1]["slots"][0]
        lend("green")  # the other slot
        first, slot = lend("red")
        check(l.run("dxpu", "backup", l.file("backup"), "--manager", m.http).status == 0)
        check(m.ask("DELETE", "/v1/leases/%s?wait=10" % first)[0] == 200)
        check(lend("blue")[1] == slot)
        check(m.process.stop() == 0)
        before = host.status()
        os.unlink(m.store)
        check(l.run("dxpu-manager", "--store", m.store, "--import", l.file("backup")).status == 0)
        m.start()
        w.wait_connected()
        until(lambda: m.get("/v1/slots/" + slot)["state"] == "quarantined", "it is set aside")
        for query in ("", "slot=" + slot):
            for body in ({}, {"tenant": "red"}, {"tenant": "blue"}):
                left = adopt(query, **body)
                check(left["what"] == "left" and left["tenant"] == "red" and left["lease"] == first
                      and left["epoch"] > left["known_epoch"] > 0, left)
                check("ended or moved since" in left["why"], left)
        done = m.ask("DELETE", "/v1/leases/%s" % first)
        check(done[0] in (200, 202), done)
        check(m.get("/v1/slots/" + slot)["state"] == "quarantined")
        check("another tenant's than red" in adopt("slot=" + slot, tenant="red")["why"])
        check(adopt(tenant="blue")["what"] == "lease")
        check({one["tenant"] for one in m.get("/v1/leases")["leases"]} == {"green", "blue"})
        check(host.status() == before, "no device was touched", before, host.status())


def show(name, seconds):
    print("# %s: p50 %.2f ms, p99 %.2f ms, %.0f/s by one client" % (
        name, percentile(seconds, 50) * 1e3, percentile(seconds, 99) * 1e3,
        len(seconds) / sum(seconds)))


def disk_seconds(path):
    """What one durable write costs here, often enough for a percentile."""
    took = []
    with open(path, "wb", buffering=0) as f:
        for _ in range(200):
            begin = time.monotonic()
            f.write(b"x" * 4096)
            os.fdatasync(f.fileno())
            took.append(time.monotonic() - begin)
    return took


@case
def figures_of_512_slots():
    """Proxies by hand, so that the manager is what is measured; its store is on a disk."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--quiet")
        with Robots(m, [(BOX, 16)] * 32 + [(HOST, 512)]) as robots:
            host = robots.nodes[-1]
            until(lambda: m.get("/v1/pool")["slots"]["total"] == 512, "512 slots", 60)
            acknowledged, active, ids = [], [], []
            refused = 0  # numbers of leases begin with the manager, 256 a second (M-101)
            while len(ids) < 512:
                begin = time.monotonic()
                status, lease = m.ask("POST", "/v1/leases", {"host": host, "model": "nvme"})
                if status == 503 and refused < 100:
                    refused += 1
                    time.sleep(0.1)
                    continue
                acknowledged.append(time.monotonic() - begin)
                check(status == 201, len(ids), status, lease)
                ids.append(lease["lease"])
            until(lambda: m.get("/v1/pool")["leases"]["active"] == 512, "all are active", 60)
            check(m.ask("POST", "/v1/leases", {"host": host, "model": "nvme"})[0] == 409)
            for one in ids:
                check(m.ask("DELETE", "/v1/leases/" + one)[0] == 200)
            until(lambda: m.get("/v1/pool")["slots"]["free"] == 512, "all are free again", 60)
            for number in range(64):
                begin = time.monotonic()
                status, lease = m.ask("POST", "/v1/leases?wait=10", {"host": host, "model": "nvme"})
                active.append(time.monotonic() - begin)
                check(status == 201 and lease["state"] == "active", status, lease)
        for name, values in (("a durable write of 4 KB", disk_seconds(l.file("disk"))),
                             ("a lease acknowledged", acknowledged),
                             ("a lease up at its host", active)):
            show(name, values)


if __name__ == "__main__":
    sys.exit(main())
