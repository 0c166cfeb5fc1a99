#!/usr/bin/env python3
"""Boxes that answer the manager and serve no lease: one with its state on a full tmpfs, one that
says a wrong address, one whose path dies after it was up.  Each lease ends in another box, `dxpu
show lease` says why, and there is an alarm; the box comes back when it works.

Prints `ok NAME` or `skip NAME REASON`.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
from pool import Manager  # noqa: E402
import lab  # noqa: E402

ANY = "127.0.0.1:0"
REACH_MS, HOLD_MS = 600, 200


class World:
    """A manager, a host, a box with many slots, and one with a single slot, which is lent first."""

    def __init__(self, l, replace=False):
        self.lab, self.replace = l, replace
        self.manager = Manager(l, "--reach-ms", REACH_MS, "--heartbeat-ms", 100)
        self.box("good", 4)
        self.host = l.start("dxpu-host", "--manager", self.manager.listen, "--identity",
                            l.file("host.id"), "--listen", ANY, "--control", ANY, "--slots", 8,
                            "--name", "host", "--hold-ms", HOLD_MS, "--vfio-user", l.file("vm"))

    def box(self, name, slots, *more, script="dxpu-box", state=None, listen=ANY):
        args = ["--manager", self.manager.listen, "--identity", self.lab.file(name + ".id"),
                "--state", state or self.lab.file(name + ".state"), "--listen", listen, "--control",
                ANY, "--device", "memory", "--slots", slots, "--name", name, "--hold-ms", HOLD_MS,
                *more]
        return self.lab.start(script, "--plain", *args)

    def dxpu(self, *args):
        return self.lab.run("dxpu", *args, "--manager", self.manager.http)

    def has(self, *names):
        def there():
            nodes = self.manager.get("/v1/nodes")["nodes"]
            return {n["name"] for n in nodes if n["connected"]} >= set(names)
        until(there, "nodes " + " ".join(names))

    def lend(self):
        """The command's text, and its lease."""
        done = self.dxpu("lease", "create", "--host", "host", "--model", "memory", "--wait",
                         *(["--replace"] if self.replace else []))
        check(done.status == 0, done.errors())
        return done.output(), done.output().split()[1].rstrip(":")

    def node(self, name):
        return [n for n in self.manager.get("/v1/nodes")["nodes"] if n["name"] == name][0]

    def served_by(self, lease):
        slot = self.manager.get("/v1/leases/" + lease)["slots"][0]
        if slot["state"] != "up":  # not yet, or no more
            return None
        node = int(slot["slot"].split(".")[0])
        return [n["name"] for n in self.manager.get("/v1/nodes")["nodes"] if n["node"] == node][0]

    def alarms(self, words):
        events = self.manager.get("/v1/events?type=alarm")["events"]
        return [e for e in events if words in e["text"]]

    def metric(self, name, node):
        with urllib.request.urlopen("http://%s/metrics" % self.manager.http) as answer:
            text = answer.read().decode()
        return [line.split()[-1] for line in text.split("\n")
                if line.startswith(name) and 'name="%s"' % node in line][0]

    def moved(self, lease, name, why, alarm):
        """The lease is the good box's, and everything that people look at says why."""
        check(self.served_by(lease) == "good", self.served_by(lease))
        shown = self.dxpu("show", "lease", lease).output()
        check("was exchanged: " + why in shown and "alarm" not in shown.split("exchanged")[0],
              shown)
        check("slot.replaced" in shown and why in shown, shown)
        check(self.alarms(alarm), self.manager.get("/v1/events?type=alarm"))
        found = self.node(name)
        check(found["suspect"] and found["suspect"]["lent"] == "last", found)
        check([n["name"] for n in self.manager.get("/v1/health")["suspect"]] == [name])
        check(self.metric("dxpu_box_suspect", name) == "1", "metric")
        listed = self.dxpu("list", "boxes").output()
        check([line for line in listed.split("\n") if name in line and "suspect" in line], listed)
        check("it is lent last" in self.dxpu("show", "node", name).output(), "show node")
        _, other = self.lend()  # not by it, though it has the fewest free slots
        check(self.served_by(other) == "good", other)

    def works(self, name):
        until(lambda: self.node(name)["suspect"] is None, "the box is trusted again")
        check([e for e in self.manager.get("/v1/events?type=node.trusted")["events"]])
        until(lambda: self.node(name)["free"] == 1, "its slot is free")


@case
def m161_state_on_a_full_disk():
    with lab.Lab(plain=True) as l:
        os.mkdir(l.file("disk"))
        mount, script = l.file("mount"), l.file("start")
        with open(mount, "w", encoding="utf-8") as f:
            f.write('mount -t tmpfs -o size=64k none %s || exit 77\nexec "$@"\n' % l.file("disk"))
        begin = ["unshare", "--mount", "--map-root-user", "sh", mount]
        if not shutil.which("unshare") or subprocess.run(
                begin + ["true"], stderr=subprocess.DEVNULL, check=False).returncode:
            return "no mount namespaces"
        with open(script, "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\nexec %s %s "$@"\n' % (" ".join(begin),
                                                    os.path.join(lab.BIN, "dxpu-box")))
        os.chmod(script, 0o755)
        w = World(l)
        box = w.box("full", 1, script=script, state=l.file("disk/state"))
        w.has("good", "full", "host")
        inside = "/proc/%d/root%s" % (box.popen.pid, l.file("disk"))
        with open(inside + "/filler", "wb", buffering=0) as filler:
            try:
                while filler.write(b"\0" * 512):
                    pass
            except OSError:
                pass
        _, lease = w.lend()
        w.moved(lease, "full", "its box did not bind it", "refuses to bind: state")
        os.unlink(inside + "/filler")
        w.works("full")


@case
def m160_m162_wrong_address():
    with lab.Lab(plain=True) as l, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        w = World(l)
        box = w.box("wrong", 1, "--advertise", "127.0.0.1:%d" % deaf.getsockname()[1])
        w.has("good", "wrong", "host")
        told, lease = w.lend()
        w.moved(lease, "wrong", "its host did not reach its box", "has no answer from it")
        check("was exchanged" in told, told)
        check(w.node("wrong")["unreached_by"] == [w.node("host")["node"]], w.node("wrong"))
        check(w.metric("dxpu_box_unreached_hosts", "wrong") == "1", "metric")
        check(box.stop() == 0, box.errors())
        w.box("wrong", 1)  # with the right one
        w.works("wrong")
        _, lease = w.lend()
        check(w.served_by(lease) == "wrong", "it is lent")


@case
def m165_m167_path_dies_after_up():
    with lab.Lab(plain=True) as l:
        w = World(l, replace=True)
        to, at = lab.address(), lab.address()
        relay = l.start("dxpu-relay", "--listen", at, "--to", to)
        w.box("far", 1, "--advertise", at, listen=to)
        w.has("good", "far", "host")
        _, first = w.lend()
        check(w.served_by(first) == "far", w.served_by(first))
        relay.signal(signal.SIGSTOP)
        began = time.monotonic()
        until(lambda: w.manager.get("/v1/leases/" + first)["state"] == "active"
              and w.served_by(first) == "good", "another box serves it", 20)
        print("# served by another box %.1f s after the path died" % (time.monotonic() - began))
        w.moved(first, "far", "its host did not reach its box", "has no answer from it")
        relay.signal(signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main())
