#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/san/%)
"""The pool's commands of dxpu with a real dxpu-manager, dxpu-box and dxpu-host.

The hosts wait for virtual machines that do not come: their slots fill and empty all the same.
Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, sanitized, until  # noqa: E402
PLAIN = os.environ.get("DXPU_BIN", os.path.join(rooms.ROOT, "build"))
sanitized()
import lab  # noqa: E402

V4 = "127.0.0.1:0"
OP, BLUE, RED, EYES = ("of-%s-0123456789" % who for who in ("op", "blue", "red", "eyes"))
PROGRAMS = ("dxpu", "dxpu-manager", "dxpu-box", "dxpu-host")
ran = set()  # commands, with their exit status: each runs sanitized once, as all do in cli_pool.py


class Pool:
    """A manager, boxes a and b with 4 slots each, host h with 8; and the command."""

    def __init__(self, l, tokens=None, token=None, grace_ms=1000):
        self.lab, self.args, self.token = l, ["--tokens", tokens] if tokens else [], token
        self.listen, self.http = (lab.address(socket.SOCK_STREAM) for _ in "ab")
        self.grace_ms = grace_ms
        self.start_manager()
        self.boxes = {name: self.start_box(name) for name in "ab"}
        self.host = l.start("dxpu-host", "--manager", self.listen, "--identity", l.file("h.id"),
                            "--name", "h", "--vfio-user", l.file("h.vm"), "--listen", V4,
                            "--slots", 8)
        self.until_connected(3)

    def start_manager(self):
        self.manager = self.lab.start("dxpu-manager", "--listen", self.listen, "--http", self.http,
                                      "--store", self.lab.file("m.db"), "--heartbeat-ms", 200,
                                      "--grace-ms", self.grace_ms, "--status-ms", 300, *self.args)
        self.listen = self.manager.says(r"proxies at (\S+:\d+)\n").group(1)
        self.http = self.manager.says(r"users at http://(\S+:\d+)\n").group(1)

    def start_box(self, name, *more):
        return self.lab.start("dxpu-box", "--manager", self.listen, "--identity",
                              self.lab.file(name + ".id"), "--state",
                              self.lab.file(name + ".state"), "--name", name, "--listen", V4,
                              "--slots", 4, "--memory", 65536, *more)

    def until_connected(self, count):
        until(lambda: sum(n["connected"] for n in self.get("nodes")["nodes"]) == count,
              "the proxies register")
        nodes = self.json("list", "boxes")["nodes"] + self.json("list", "hosts")["nodes"]
        check(sum(n["connected"] for n in nodes) == count, nodes)

    def get(self, path):
        """What the manager answers: for what is asked until it is as wanted."""
        headers = {"Authorization": "Bearer " + self.token} if self.token else {}
        request = urllib.request.Request("http://%s/v1/%s" % (self.http, path), headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if k not in ("DXPU_TOKEN", "DXPU_MANAGER")}
        env.update(DXPU_MANAGER="http://" + self.http, **more)
        if self.token:
            env.setdefault("DXPU_TOKEN", self.token)
        return env

    def start(self, *words, folder=lab.BIN, **env):
        return subprocess.Popen([os.path.join(folder, "dxpu")] + [str(w) for w in words],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(**env), text=True)

    def run(self, *words, status=0, **env):
        """What it printed, on standard output and error."""
        command = words[:2 if words[0] in ("lease", "list", "show") else 1], status
        p = self.start(*words, folder=PLAIN if command in ran else lab.BIN, **env)
        ran.add(command)
        out, err = p.communicate(timeout=90)
        check(p.returncode == status, words, "ended with", p.returncode, out, err)
        return out, err

    def json(self, *words, **more):
        return json.loads(self.run(*words, "--json", **more)[0])

    def create(self, *words, host="h"):
        return self.json("lease", "create", "--host", host, "--model", "memory", "--wait", *words)


@case
def story():
    """A lease from its creation to its end, and what the lists say meanwhile."""
    with lab.Lab() as l:
        p = Pool(l)
        out, err = p.run("lease", "create", "--host", "h", "--model", "memory", "--count", 2,
                         "--need", "same-box", "--for", "1h", "--key", "job", "--wait")
        found = re.fullmatch(r"lease (\w+): slot (\S+) is slot (\d+) of host h \((\d+)\)\n"
                             r"lease \1: slot (\S+) is slot (\d+) of host h \(\4\)\n", out)
        check(found, out, err)
        lease, slots = found.group(1), [found.group(2), found.group(5)]
        again = p.create("--count", 2, "--need", "same-box", "--for", "1h", "--key", "job")
        check(again["lease"] == lease and again["state"] == "active", "another lease", again)
        listed = p.json("list", "leases", "--state", "active", "--node", "h")["leases"]
        check([one["lease"] for one in listed] == [lease], listed)
        leased = p.json("list", "slots", "--state", "leased")["slots"]
        check([s["slot"] for s in leased] == slots, leased, slots)
        check(all(s in p.run("show", "lease", lease)[0] for s in slots + ["lease.up"]))
        for what in (("node", slots[0].split(".")[0]), ("node", "h"), ("slot", slots[0])):
            check(lease in p.run("show", *what)[0], what)
        check("2 leased" in p.run("pool")[0] and lease in p.run("top")[0])
        p.run("lease", "extend", lease, "--no-end")
        check(p.json("show", "lease", lease)["expires_at"] is None)
        p.run("lease", "park", lease, "--wait")
        check(p.json("show", "lease", lease)["state"] == "parked")
        p.run("lease", "attach", lease, "--host", "h", "--wait")
        # memory has no data that would be kept
        check(p.run("lease", "release", lease, "--keep", "--wait")[0] ==
              "lease %s: released\n" % lease)
        states = {s["slot"]: s["state"] for s in p.json("list", "slots")["slots"]}
        check(len(states) == 8 and set(states.values()) == {"free"}, states)
        said = "".join(box.errors() for box in p.boxes.values())  # nothing was lost
        check(re.search(r"slot \d: closed the channel of node \d+ .*detached", said), said)
        check("lost the channel" not in said, said)
        check("no lease" in p.run("show", "lease", lease, status=1)[1])


@case
def m95_released_with_its_data():
    """What a tenant wrote is there after it released the lease with its data and took it back; when
    it discards it, it is gone."""
    with lab.Lab() as l:
        path, tag = l.file("disk"), b"what a tenant wrote"
        with open(path, "wb") as f:
            f.truncate(1 << 20)

        def written():
            with open(path, "rb") as f:
                return tag in f.read()
        p = Pool(l)
        l.start("dxpu-box", "--manager", p.listen, "--identity", l.file("d.id"), "--state",
                l.file("d.state"), "--name", "d", "--listen", V4, "--device", "nvme", "--file",
                path, "--quiet")
        p.until_connected(4)
        words = ("lease", "create", "--host", "h", "--model", "nvme", "--wait")
        until(lambda: p.get("slots?model=nvme")["slots"][0]["state"] in
              ("free", "quarantined"), "the disk is known")
        slot = p.json("list", "slots", "--model", "nvme")["slots"][0]
        if slot["state"] == "quarantined":  # its contents are unknown
            p.run("repair", slot["slot"], "--yes")
        until(lambda: p.get("slots/" + slot["slot"])["state"] == "free", "wiped")
        lease = p.json(*words)["lease"]
        with open(path, "r+b") as f:
            f.seek(4096)
            f.write(tag)
        out = p.run("lease", "release", lease, "--keep", "--wait")[0]
        check(out.startswith("lease %s: ended" % lease), out)
        check(lease in p.run("list", "slots", "--state", "retained")[0])
        check("retained, without a host" in p.run("show", "lease", lease)[0] and written())
        p.run(*words[:-1], status=1)  # it is lent to none
        p.run("lease", "recover", lease)
        p.run("lease", "attach", lease, "--host", "h", "--wait")
        check(written(), "its data are gone")
        p.run("lease", "release", lease, "--keep", "--wait")
        check("slot " + slot["slot"] in p.run("lease", "discard", lease, status=4)[1])
        check(written(), "nobody said yes")
        p.run("lease", "discard", lease, "--yes")
        until(lambda: p.get("slots/" + slot["slot"])["state"] == "free", "wiped")
        check(not written(), "it is still there")
        p.run("show", "lease", lease, status=1)


@case
def refusals():
    with lab.Lab() as l:
        p = Pool(l)
        words = ("lease", "create", "--host", "h", "--model")
        p.run(*words, "memory", "--count", 9, status=1)
        p.run(*words, "unicorn", status=1)
        p.run(*words, "memory", "--count", 5, "--need", "same-box", status=1)
        p.run("lease", "create", "--host", "nobody", "--model", "memory", status=1)
        p.run("tenant", "t", "--quota", 1)
        err = p.run(*words, "memory", "--tenant", "t", "--count", 2, status=1)[1]
        check("quota" in err, err)
        p.run("forget", "a", status=1)
        p.run("list", "slots", "--state", "strange", status=1)
        p.run("repair", "77.1", status=1)
        check(p.json("list", "leases")["leases"] == [])
        check(p.json("list", "tenants")["tenants"], "no tenants")
        for box in p.boxes.values():
            box.stop()
        p.manager.stop()
        said = p.run("pool", status=3)
        check("is dxpu-manager running?" in said[1], said)


@case
def drain_moves():
    """A box is emptied while its leases go on in the other one."""
    with lab.Lab() as l:
        p = Pool(l)
        lease = p.create("--count", 2, "--need", "same-box")
        box = lease["slots"][0]["slot"].split(".")[0]
        p.run("drain", box, "--move", "--wait", 30)
        rest = p.json("list", "slots", "--node", box)["slots"]
        check({(s["state"], s["box_state"]) for s in rest} <=
              {("drained", "wiped"), ("drained", "empty")}, "drained is said too early", rest)
        after = p.json("show", "lease", lease["lease"])
        check(all(s["slot"].split(".")[0] != box for s in after["slots"]), after)
        check([s["host_slot"] for s in after["slots"]] == [s["host_slot"] for s in lease["slots"]],
              "it has moved at its host", lease, after)
        check(p.json("show", "node", box)["draining"])
        p.run("drain", box, "--off")
        check(not p.json("show", "node", box)["draining"])


@case
def drain_leaves_data():
    """A lease made with --no-replace stays in the drained box, and the command ends and says so."""
    with lab.Lab() as l:
        p = Pool(l)
        lease = p.create("--no-replace")
        slot = lease["slots"][0]["slot"]
        box = slot.split(".")[0]
        err = p.run("drain", box, "--move", "--wait", status=1)[1]
        check("lease %s stays (slot %s): it was made with --no-replace" % (lease["lease"], slot)
              in err and "1 leased slots stay (%s leased)" % slot in err, err)
        after = p.json("show", "lease", lease["lease"])
        check(after["slots"][0]["slot"] == slot and after["slots"][0]["box_connected"], after)
        name = p.json("show", "node", box)["name"]  # the control: an operator moves it
        out = p.run("replace", "%s.%s" % (name, slot.split(".")[1]))[0]
        check("what its lease had there is wiped" in out, out)
        p.run("drain", box, "--move", "--wait", 30)


@case
def lease_in_a_silent_box():
    """Boxes that just disconnected lend nothing, and a caller with a slot there learns it."""
    with lab.Lab() as l:
        p = Pool(l, grace_ms=60000)
        lease = p.create()["lease"]
        check("box is disconnected" not in p.run("show", "lease", lease)[0])
        for box in p.boxes.values():
            box.stop()
        end = time.monotonic() + 20
        while p.get("pool")["boxes"]["connected"]:
            check(time.monotonic() < end, p.run("list", "boxes")[0])
            time.sleep(0.05)
        check(p.json("pool")["boxes"]["connected"] == 0)
        err = p.run("lease", "create", "--host", "h", "--model", "memory", status=1)[1]
        check(any("free slots, %s, has not reported" % name in err for name in p.boxes), err)
        out = p.run("show", "lease", lease)[0]
        check("(its box is disconnected)" in out, out)


@case
def broken_slots():
    """A slot that is declared broken is replaced; repaired, it is free again."""
    with lab.Lab() as l:
        p = Pool(l)
        lease = p.create()
        slot = lease["slots"][0]["slot"]
        out = p.run("break", slot)[0]
        check(out.startswith("slot %s: broken\n" % slot) and "lease %s: slot " % lease["lease"]
              in out, out)
        after = p.json("lease", "create", "--host", "h", "--model", "memory", "--key", "other")
        check(all(s["slot"] != slot for s in after["slots"]), "a broken slot is lent", after)
        check([s["slot"] for s in p.json("list", "slots", "--state", "broken")["slots"]] == [slot])
        p.run("repair", slot)
        end = time.monotonic() + 20
        while p.get("slots/" + slot)["state"] != "free":
            check(time.monotonic() < end, p.run("show", "slot", slot)[0])
            time.sleep(0.05)
        check(p.json("show", "slot", slot)["state"] == "free")
        now = p.json("show", "lease", lease["lease"])["slots"][0]["slot"]
        p.run("reset", now)
        p.run("replace", now)
        check(p.json("show", "lease", lease["lease"])["slots"][0]["slot"] != now)


@case
def m156_gpu_is_replaced_by_one_that_serves():
    """By itself, since it keeps no data, and by a spare, but never by one without the attributes
    that its lease requires; the disk of the same host stays the lease's."""
    with lab.Lab() as l:
        p = Pool(l)
        for name, rack in (("g7", 7), ("g8", 8), ("h7", 7)):
            p.boxes[name] = p.start_box(name, "--slots", 1, "--slot",
                                        "1=virtio-gpu,attribute=rack=%d" % rack)
        p.boxes["d"] = p.start_box("d", "--slots", 1, "--slot", "1=virtio-blk,size=1M")
        p.until_connected(7)
        out = p.run("list", "slots", "--model", "gpu", "--attributes", "rack=7,render=none")[0]
        check(out.count("render=none,rack=7") == 2 and "rack=8" not in out, out)
        gpu = p.json("lease", "create", "--host", "h", "--model", "gpu", "--wait", "--attributes",
                     "rack=7")
        disk = p.json("lease", "create", "--host", "h", "--model", "blk", "--wait")
        p.run("spares", "gpu", 1)
        check(gpu["data"] == "none" and gpu["replace"] and gpu["attributes"] == "rack=7", gpu)
        check(disk["data"] == "persistent" and not disk["replace"], disk)
        err = p.run("lease", "create", "--host", "h", "--model", "gpu", "--count", 2,
                    "--attributes", "rack=7", status=1)[1]
        check("of this model with rack=7 are free" in err, err)
        shown = p.run("show", "lease", gpu["lease"])[0]
        check(re.search("(?m)^data +none: nothing is kept over a reset$", shown), shown)

        def box_of(lease):
            node = p.get("leases/" + lease["lease"])["slots"][0]["slot"].split(".")[0]
            return p.get("nodes/" + node)["name"]
        before = box_of(gpu)
        p.boxes[before].kill()
        p.boxes["d"].kill()
        other = {"g7": "h7", "h7": "g7"}[before]
        until(lambda: box_of(gpu) == other, "the other GPU of the rack")
        until(lambda: p.get("leases/" + gpu["lease"])["state"] == "active", "it is up")
        p.boxes[other].kill()  # there is none left of the rack: the one of another stays free
        until(lambda: p.get("leases/" + gpu["lease"])["state"] == "degraded", "it is lost")
        check(p.json("show", "lease", gpu["lease"])["state"] == "degraded")
        time.sleep(2 * p.grace_ms / 1000)
        check(box_of(gpu) == other and box_of(disk) == "d", gpu, disk)
        left = p.json("list", "slots", "--model", "gpu", "--attributes", "rack=8")["slots"]
        check([s["state"] for s in left] == ["spare"], left)  # the control: it could be had


@case
def waits_over_a_crash():
    """The manager is killed while a lease is waited for, and while events are followed: the lease
    comes up, and no event is missed or doubled."""
    with lab.Lab() as l:
        p = Pool(l)
        follower = p.start("events", "--follow", "--json", "--after", 0)
        told = [json.loads(follower.stdout.readline())]  # it is there
        for box in p.boxes.values():  # the lease cannot come up yet
            os.kill(box.popen.pid, signal.SIGSTOP)
        try:
            waiter = p.start("lease", "create", "--host", "h", "--model", "memory", "--wait", 60)
            check("pending" in waiter.stderr.readline())
            p.manager.kill()
            time.sleep(0.3)
            p.start_manager()
        finally:
            for box in p.boxes.values():
                os.kill(box.popen.pid, signal.SIGCONT)
        out, err = waiter.communicate(timeout=60)
        check(waiter.returncode == 0 and " is slot 1 of host " in out, out, err)
        wanted = p.json("events")["events"]
        told += [json.loads(follower.stdout.readline()) for _ in wanted[1:]]
        check(told == wanted, [e["event"] for e in told], [e["event"] for e in wanted])
        follower.send_signal(signal.SIGINT)
        rest, err = follower.communicate(timeout=20)
        check(follower.returncode == 0, err)
        late = [json.loads(line)["event"] for line in rest.splitlines()]
        check(all(n > told[-1]["event"] for n in late), late)


@case
def tokens():
    with lab.Lab() as l:
        path, mine = l.file("tokens"), l.file("mine")
        lines = "operator - %s\ntenant blue %s\ntenant red %s\nread - %s\n" % (OP, BLUE, RED, EYES)
        for name, text in ((path, lines), (mine, BLUE + "\n")):
            with open(name, "w", encoding="ascii") as f:
                f.write(text)
            os.chmod(name, 0o600)
        p = Pool(l, path, OP)
        words = ("lease", "create", "--model", "memory", "--token-file", mine, "--host")
        number = p.json("list", "hosts")["nodes"][0]["node"]
        for host in ("h", number):  # it is unassigned yet
            p.run(*words, host, status=1)
        check("not a host of tenant blue" in p.run(*words, number, status=1)[1])
        p.run("owner", "h", "blue", status=1, DXPU_TOKEN=BLUE)
        check(p.run("owner", "h", "blue")[0] == "host %d: tenant blue\n" % number)
        lease = p.create("--token-file", mine)
        check(lease["tenant"] == "blue" and lease["host"] == number, lease)
        check("not a host of tenant red" in p.run("lease", "create", "--model", "memory", "--host",
                                               number, status=1, DXPU_TOKEN=RED)[1])
        for token, own, total in ((BLUE, 1, "1 of tenant blue"), (RED, 0, "0 of tenant red"),
                                  (EYES, 1, "1:"), (OP, 1, "1:")):
            out = p.run("top", DXPU_TOKEN=token)[0]
            check(re.search(r"(?m)^leases +%s" % total, out) and "and " not in out, out)
            check((lease["lease"] in out) == bool(own), out)
            hosts = p.json("list", "hosts", DXPU_TOKEN=token)["nodes"]
            check(len(hosts) == own, hosts)
        check(len(p.json("list", "leases", DXPU_TOKEN=BLUE)["leases"]) == 1)
        check(not p.json("list", "leases", DXPU_TOKEN=RED)["leases"])
        p.run("lease", "release", lease["lease"], status=1, DXPU_TOKEN=RED)
        p.run("lease", "release", lease["lease"], status=1, DXPU_TOKEN=EYES)
        check(lease["lease"] in p.run("top", DXPU_TOKEN=EYES)[0])
        p.run("drain", "a", status=1, DXPU_TOKEN=BLUE)
        check("DXPU_TOKEN" in p.run("pool", status=1, DXPU_TOKEN="wrong")[1])
        check("DXPU_TOKEN" in p.run("events", "--follow", status=1, DXPU_TOKEN="wrong")[1])
        p.run("lease", "release", lease["lease"], "--wait", DXPU_TOKEN=BLUE)
        check(p.run("owner", "h", "--no-owner")[0] == "host %d: no owner\n" % number)
        p.run(*words, "h", status=1)


if __name__ == "__main__":
    missing = [name for name in PROGRAMS if not os.path.exists(os.path.join(lab.BIN, name))]
    sys.exit(main("%s is not built" % missing[0] if missing else None))
