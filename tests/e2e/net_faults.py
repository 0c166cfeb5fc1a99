#!/usr/bin/env python3
"""The programs while calls of the system fail: tests/support/faults, preloaded, makes them.

Sweeps: the n-th call of each function fails once, for every n of a run and every way to fail; the
program goes on, or ends with a documented status and a message.  Storms: calls fail at random under
load; data stay right, and when the storm is over the programs serve, or they ended gracefully.
In make check a part, chosen by DXPU_SEED; with DXPU_ROUNDS (make check-long) all.

Prints `ok NAME` or `not ok NAME`.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import collections
import contextlib
import ctypes
import glob
import http.client
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from pool import BOX, HOST, Manager, Robots, until  # noqa: E402
import lab  # noqa: E402
import net_af_xdp  # noqa: E402
import schedule  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import DEVICE, ECAM, LOW  # noqa: E402

V4 = "127.0.0.1:0"
ALL = "DXPU_ROUNDS" in os.environ
SEED = int(os.environ.get("DXPU_SEED", 1))
EACH = 12  # the first calls of a function; what comes later is a loop, and the storms' affair
STATUS = {"dxpu-host": (0, 1, 3, 4), "dxpu-box": (0, 3), "dxpu-manager": (0, 3, 4)}
LIMIT = 30.0  # seconds; who is there longer hangs
# What is for one datagram or one turn of the loop: it recovers by itself.
PASSING = ("sendmsg", "sendmmsg", "recvmsg", "recvmmsg", "epoll_wait", "send", "recv", "readv",
           "writev", "accept4")
MEMORY = ("malloc", "calloc", "realloc")


LOAD = "--load", "mixed", "--size", 256, "--depth", 4, "--count", 60, "--span", "16K"


def one_load(l, at, *args, load=LOAD):
    return l.start("dxpu-host", "--box", at, *load, "--give-up-ms", 1500, "--hold-ms", 400,
                   "--timeout-ms", 1000, "--json", *args)


def judge(process, what, status):
    """It ended gracefully: a status that its manual page has, with words when it is not 0."""
    words = process.errors()
    check(status is not None, what, "hangs", words)
    check(status in STATUS[process.name], what, "ended with", status, words)
    # what may pass is no matter of the store, and the store's affair no matter of memory
    check(status != 4 or process.name != "dxpu-manager" or "out of memory" not in words or
          "start again" in words, what, words)
    check(status == 0 or re.search(r"\w", words), what, "ended with", status, "and says nothing")
    check("Sanitizer" not in words, what, words)
    if process.name == "dxpu-host" and status in (0, 1):
        check(process.result().get("mismatched", 0) == 0, what, process.output())


# ---- What is left ----

def without(*paths):
    for path in paths:
        for name in [path] + glob.glob(path + ".*"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def follower(process, what, ready=lab.Process.address):
    """One without faults, on the files that were left: it starts."""
    try:
        ready(process)
    except RuntimeError as error:
        raise AssertionError("%s: what it left cannot be used: %s" % (what, error)) from None
    check(process.stop(LIMIT) == 0, what, process.errors())


# ---- What is run ----

class HostRun:
    """dxpu-host, over a box that has no faults."""
    name = "dxpu-host"
    part = 30  # single faults in make check

    def __init__(self, l):
        self.lab = l
        self.at = l.start("dxpu-box", "--listen", V4, "--slots", 1, "--memory", "64K",
                          "--quiet").address()

    def go(self, faults, what):
        l = self.lab
        with faults.loaded():
            host = one_load(l, self.at, "--record", l.file("r.pcap"), "--epoch", self.epoch())
        judge(host, what, host.wait(LIMIT))
        return host.popen.returncode

    def epoch(self):
        self.lab.epochs = getattr(self.lab, "epochs", 0) + 1
        return self.lab.epochs


class BoxRun:
    """dxpu-box with files, and a host that has no faults.  The next box can use what it left."""
    name, load = "dxpu-box", LOAD
    part = 25  # single faults in make check

    def __init__(self, l):
        self.lab = l

    def start(self):
        l = self.lab
        return l.start("dxpu-box", "--listen", V4, "--state", l.file("state"), "--record",
                       l.file("b.pcap"), "--memory", "64K", "--slots", 1)

    def go(self, faults, what):
        l = self.lab
        without(l.file("state"))
        with faults.loaded():
            box = self.start()
        try:
            at = box.address()
        except RuntimeError:
            at = None
        if at:
            host = one_load(l, at, load=self.load)
            host.wait(LIMIT)
            check(host.result().get("mismatched", 0) == 0, what, host.output())
        judge(box, what, box.stop(LIMIT) if at else box.wait(LIMIT))
        status = box.popen.returncode
        follower(self.start(), what)
        return status


class DiskRun(BoxRun):
    """A box of an NVMe disk in a file; the host looks at it."""
    load = "--replay", os.path.join(rooms.TESTS, "data", "memory-mixed.pcap")

    def start(self):
        return self.lab.start("dxpu-box", "--listen", V4, "--device", "nvme", "--size", "1M",
                              "--file", self.lab.file("disk"), "--slots", 1)


class ManagerRun:
    """dxpu-manager, with a lease for hosts and boxes made by hand.  The next one can use its
    store."""
    name = "dxpu-manager"
    part = 15  # single faults in make check

    def __init__(self, l):
        self.lab = l

    def go(self, faults, what):
        l = self.lab
        store = l.file("%d.db" % len(l.processes))
        with faults.loaded():
            try:
                manager = Manager(l, "--plain", store=store)
            except RuntimeError:
                manager = None
        process = l.processes[-1]
        if manager:
            try:
                use(manager)
            except Exception as error:  # a connection was lost to a fault; without one none may be
                check(faults.total() > 0, what, repr(error))
        judge(process, what, process.stop(LIMIT) if manager else process.wait(LIMIT))
        again = Manager(l, "--plain", store=store)
        check(again.ask("GET", "/v1/pool")[0] == 200, what, again.process.errors())
        check(again.process.stop(LIMIT) == 0, what, again.process.errors())
        return process.popen.returncode


def use(manager):
    """One lease, made and given back."""
    with Robots(manager, [(HOST, 2), (BOX, 2)]) as robots:
        status, lease = manager.ask("POST", "/v1/leases", {
            "host": robots.nodes[0], "model": "nvme", "count": 1, "tenant": "t", "key": "k"})
        check(status in (201, 409, 500, 503), status, lease)
        if status == 201:
            manager.ask("DELETE", "/v1/leases/" + lease["lease"])
    check(manager.ask("GET", "/v1/pool")[0] in (200, 500, 503))


# ---- Files of keys, peers, identity, audit ----

def hang_up(process, wanted):
    """SIGHUP, and what follows is said, well or ill; False: the program ended."""
    process.popen.send_signal(signal.SIGHUP)
    until(lambda: process.popen.poll() is not None or re.search(wanted, process.errors()),
          "what comes of SIGHUP: " + process.errors())
    return process.popen.poll() is None


class KeysRun:
    """A box that makes its key, and reads its peers again; a host comes in with what it has then.
    The next box can use what it left."""
    name = "dxpu-box"
    part = 20  # single faults in make check

    def __init__(self, l):
        self.lab, self.key, self.peers = l, l.file("own.key"), l.file("own.peers")
        l.public("host")

    def start(self):
        return self.lab.start("dxpu-box", "--listen", V4, "--memory", "64K", "--key", self.key,
                              "--peers", self.peers)

    def go(self, faults, what):
        l = self.lab
        without(self.key)
        with open(self.peers, "w", encoding="ascii") as f:
            f.write("# none yet\n")
        with faults.loaded():
            box = self.start()
        with contextlib.suppress(RuntimeError):
            at, key = box.address(), box.says(r"public key (\S{44}),").group(1)
            with open(self.peers, "w", encoding="ascii") as f:
                f.write(l.public("host") + "\n")
            if hang_up(box, r"reloaded|are unchanged"):
                again = "reloaded" in box.errors()
                host = l.start("dxpu-host", "--box", at, "--key", l.file("host.key"), "--peer",
                               key, *LOAD, "--give-up-ms", 1500 if again else 100, "--json")
                status = host.wait(LIMIT)
                check(host.result().get("mismatched", 0) == 0, what, host.output())
                check(again or status == 4, what, "let in who is on no list", host.output())
        judge(box, what, box.stop(LIMIT))
        status = box.popen.returncode
        follower(self.start(), what)
        return status


class IdentityRun(KeysRun):
    """A box of a manager that is not there: it makes its identity and its file of leases."""

    def start(self):
        l = self.lab
        return l.start("dxpu-box", "--plain", "--listen", V4, "--memory", "64K", "--manager",
                       "127.0.0.1:9", "--identity", l.file("own.id"), "--state", l.file("leases"))

    def go(self, faults, what):
        l = self.lab
        without(l.file("own.id"), l.file("leases"))
        with faults.loaded():
            box = self.start()
        with contextlib.suppress(RuntimeError):
            box.address()
        judge(box, what, box.stop(LIMIT))
        status = box.popen.returncode
        follower(self.start(), what)
        return status


class AuditRun:
    """A manager with keys, tokens and an audit log, which is moved away; all is reloaded."""
    name = "dxpu-manager"
    part = 10  # single faults in make check

    def __init__(self, l):
        self.lab = l
        self.files = {n: l.file("m." + n) for n in ("key", "peers", "tokens", "audit", "store")}
        for name, mode, text in (("peers", 0o600, l.public("host") + " may=host\n"),
                                 ("tokens", 0o600, "operator - %s\n" % ("p" * 32))):
            with open(self.files[name], "w", encoding="ascii") as f:
                f.write(text)
            os.chmod(self.files[name], mode)

    def start(self):
        return self.lab.start("dxpu-manager", "--listen", V4, "--http", V4,
                              *(w for n, f in self.files.items() for w in ("--" + n, f)))

    def ask(self, process):
        """A change, which is written down; its status."""
        at = process.says(r"users at http://(\S+:\d+)\n").group(1)
        conn = http.client.HTTPConnection(at, timeout=10)
        try:
            conn.request("PUT", "/v1/tenants/t", json.dumps({"quota": 3}), {
                "Content-Type": "application/json", "Authorization": "Bearer " + "p" * 32})
            return conn.getresponse().status
        finally:
            conn.close()

    def go(self, faults, what):
        old = self.lab.file("moved.audit")
        without(old, *(self.files[n] for n in ("key", "audit", "store")))
        with faults.loaded():
            manager = self.start()
        try:
            check(self.ask(manager) in (200, 201, 500, 503), "the first change")
            os.rename(self.files["audit"], old)
            if hang_up(manager, r"(?s)token.*public key.*|token.*are unchanged"):
                check(self.ask(manager) in (200, 201, 500, 503), "the second change")
        except (RuntimeError, OSError, http.client.HTTPException, AssertionError) as error:
            check(faults.total() > 0, what, repr(error))
        up = "users at" in manager.errors()
        judge(manager, what, manager.stop(LIMIT) if up else manager.wait(LIMIT))
        status = manager.popen.returncode
        follower(self.start(), what, self.ask)
        for log in (old, self.files["audit"]):
            if os.path.exists(log):
                told = self.lab.run("dxpu", "audit", log)
                check(told.status == 0, what, told.errors(), told.output())
        return status


# ---- A guest's socket ----

class GuestRun:
    """dxpu-host and two clients of its vfio-user socket, one after the other, which map memory and
    give eventfds, have the box's device copy that memory and send an interrupt.  One may be lost to
    a fault; the next one is served, if the program goes on."""
    name = "dxpu-host"
    part = 15  # single faults in make check
    RAM, BYTES, MESSAGE = 1 << 20, 1 << 20, 0xfee01000
    SOURCE, TO, SIZE, KIND, NUMBER, COMMAND, STATE = 0x0c, 0x14, 0x1c, 0x24, 0x28, 4, 8

    def __init__(self, l):
        self.lab, self.epoch = l, 0
        self.at = l.start("dxpu-box", "--listen", V4, "--device", "eptest", "--quiet").address()

    def use(self, path):
        with contextlib.ExitStack() as stack:
            g = vfio_client.Client(path, 3)
            stack.callback(g.close)
            memory, event = os.memfd_create("guest"), os.eventfd(0, os.EFD_NONBLOCK)
            for descriptor in (memory, event):
                stack.callback(os.close, descriptor)
            os.truncate(memory, self.BYTES)
            ram = stack.enter_context(mmap.mmap(memory, self.BYTES))
            g.map_memory(self.RAM, self.BYTES, memory)
            g.interrupts(0, [event])
            g.map_slot()
            g.filled()
            g.map_device(low=0, high=4)
            self.enable(g)
            ram[:128] = os.urandom(128)  # a device without further setup
            for register, value in ((self.SOURCE, self.RAM), (self.TO, self.RAM + 0x1000),
                                    (self.SIZE, 128), (self.KIND, 2), (self.NUMBER, 1),
                                    (self.STATE, 0), (self.COMMAND, 0x20)):
                g.write32(LOW, register, value)
            until(lambda: g.read32(LOW, self.STATE) == 0x50 and g.messages, "the copy", 3)
            check(ram[0x1000:0x1080] == ram[:128], "other data")
            check(set(g.messages) == {(self.MESSAGE, bytes(4))}, g.messages)
            g.unmap_memory(self.RAM, self.BYTES)

    def enable(self, g):
        """MSI-X of the device, as a driver finds it, and its first vector."""
        at = g.read32(ECAM, DEVICE + 0x34) & 0xff
        while at and g.read32(ECAM, DEVICE + at) & 0xff != 0x11:
            at = g.read32(ECAM, DEVICE + at) >> 8 & 0xff
        check(at and g.read32(ECAM, DEVICE + at + 4) == 0x1000, "no table of vectors", at)
        g.write32(ECAM, DEVICE + at, g.read32(ECAM, DEVICE + at) | 1 << 31)
        for word, value in enumerate((self.MESSAGE, 0, 0, 0)):
            g.write32(LOW, 0x1000 + 4 * word, value)

    def go(self, faults, what):
        l = self.lab
        self.epoch += 1
        path = l.file("vm")
        without(path)
        with faults.loaded():
            host = l.start("dxpu-host", "--vfio-user", path, "--slots", 1, "--attach", "1=%s/1/%d"
                           % (self.at, self.epoch), "--hold-ms", 400, "--json")
        with contextlib.suppress(RuntimeError):
            host.says("waiting for a guest")
            lost = []
            for _ in range(2 + (faults.total() == 0)):  # the one behind the one that is lost
                try:
                    self.use(path)
                except (OSError, AssertionError) as error:
                    lost.append(repr(error))
                    if schedule.ended(host, 0.5) is not None:
                        break
            check(len(lost) < 2 and (not lost or faults.total() > 0), what, lost, host.errors())
        unasked = host.popen.poll() is not None
        judge(host, what, host.stop(LIMIT))
        check(not unasked or host.popen.returncode, what, "it ends, all being well", host.errors())
        return host.popen.returncode


# ---- AF_XDP ----

@contextlib.contextmanager
def inside(space):
    """What is started in it is in this network namespace."""
    libc, net = ctypes.CDLL(None, use_errno=True), 0x40000000  # CLONE_NEWNET
    with open("/proc/self/ns/net", "rb") as own, open("/run/netns/" + space, "rb") as other:
        check(libc.setns(other.fileno(), net) == 0, "setns", ctypes.get_errno())
        try:
            yield
        finally:
            check(libc.setns(own.fileno(), net) == 0, "setns", ctypes.get_errno())


class XdpRun:
    """dxpu-host past the kernel's stack, to a box with a socket."""
    name = "dxpu-host"
    part = 30  # single faults in make check

    def __init__(self, l):
        self.lab, self.epoch = l, 0
        self.at = net_af_xdp.at(net_af_xdp.V4[3], 4458)
        l.box("--listen", self.at, "--memory", "64K", "--quiet")

    def go(self, faults, what):
        l = self.lab
        self.epoch += 1
        with faults.loaded(), inside(l.space["host"]):
            host = one_load(l, self.at, "--af-xdp", net_af_xdp.H, "--epoch", self.epoch)
        judge(host, what, host.wait(LIMIT))
        if faults.total() == 0:
            check(host.result()["af_xdp"]["rx_datagrams"] > 20, host.output())
        return host.popen.returncode


# ---- Sweeps ----

def plan(counts, part):
    """Every single fault of a run whose calls were counted, or in make check a part of them."""
    found = [(name, nth, way) for name, calls in counts.items()
             for nth in range(1, min(calls, 10 * EACH if name in MEMORY else EACH) + 1)
             for way in range(len(schedule.FUNCTIONS[name]))]
    return found if ALL else sorted(random.Random(SEED).sample(found, min(part, len(found))))


def sweep(kind, new_lab=lambda: lab.Lab(plain=True)):
    with new_lab() as l:
        faults = schedule.Faults(l.file("faults"))
        run = kind(l)
        check(run.go(faults, "without faults") == 0, l.processes[-1].errors())
        check(faults.total() == 0, "a fault without a schedule", faults.faults())
        fired, ends, bad = 0, collections.Counter(), []
        for name, nth, way in plan(faults.calls(), run.part):
            faults.once(name, nth, way)
            what = "%s call %d: %s" % (name, nth, schedule.FUNCTIONS[name][way])
            try:
                ends[run.go(faults, what)] += 1
            except AssertionError as error:
                bad.append(str(error))
            fired += faults.faults()[name] > 0
            del l.processes[1:-1]
        print("# %s: %d faults, ends %s" % (kind.__name__, fired, dict(ends)), flush=True)
        check(fired > 0, "no fault happened")
        check(not bad, len(bad), "of", fired, "faults:\n" + "\n".join(bad))


@case
def sweep_of_host():
    sweep(HostRun)


@case
def sweep_of_box():
    sweep(BoxRun)


@case
def sweep_of_disk():
    sweep(DiskRun)


@case
def sweep_of_manager():
    sweep(ManagerRun)


@case
def sweep_of_keys():
    sweep(KeysRun)


@case
def sweep_of_identity():
    sweep(IdentityRun)


@case
def sweep_of_audit():
    sweep(AuditRun)


@case
def sweep_of_vfio_user():
    sweep(GuestRun)


@case
def sweep_of_af_xdp():
    reason = net_af_xdp.why_not()
    if not reason:
        sweep(XdpRun, net_af_xdp.Net)
    return reason


# ---- Storms ----

def storm(l, faults, functions, per_mille, seed, sealed_seconds):
    """A load while both ends have faults; then calm, and a second load that must be served.
    One that ends in it ends gracefully."""
    with faults.loaded():
        box = l.start("dxpu-box", "--listen", V4, "--memory", "64K", "--hold-ms", 5000)
        at = box.address()
        host = l.start("dxpu-host", "--box", at, "--load", "mixed", "--size", 256, "--depth", 8,
                       "--seconds", sealed_seconds, "--span", "64K", "--hold-ms", 5000,
                       "--give-up-ms", 5000, "--json")
    host.says("attached")
    faults.at_random(per_mille, functions, seed)
    status = host.wait(LIMIT)
    faults.put(schedule.RATE, 0)
    judge(host, "storm", status)
    check(faults.total() > 20, "hardly a fault", faults.faults())
    check(schedule.ended(box, 0) is None, "the box ended", box.errors())
    after = l.run("dxpu-host", "--box", at, "--epoch", 2, "--load", "mixed", "--count", 200,
                  "--span", "64K", "--json", seconds=LIMIT)
    check(after.status == 0 and after.result()["mismatched"] == 0, after.errors())
    check(box.stop(LIMIT) == 0, box.errors())
    return status, host


@case
def storm_of_datagrams():
    """What concerns one datagram or turn: the channel recovers it, nothing is unanswered."""
    for seed in range(SEED, SEED + (20 if ALL else 2)):
        with lab.Lab() as l:
            faults = schedule.Faults(l.file("faults"))
            status, host = storm(l, faults, PASSING, 30, seed, 1)
            result = host.result()
            check(status == 0 and result["unanswered"] == 0, seed, status, host.errors())


@case
def storm_of_memory():
    for seed in range(SEED, SEED + (20 if ALL else 2)):
        with lab.Lab() as l:
            faults = schedule.Faults(l.file("faults"))
            storm(l, faults, PASSING + MEMORY, 20, seed, 1)


@case
def storm_of_manager():
    """Requests of users and messages of proxies, while files and connections fail."""
    disk = ("pread", "pwrite", "fsync", "fdatasync", "open", "ftruncate")
    happened = collections.Counter()
    for seed in range(SEED, SEED + (20 if ALL else 4)):
        names = PASSING + (MEMORY if seed % 4 > 1 else disk if seed % 4 else ())
        with lab.Lab(plain=True) as l:
            faults = schedule.Faults(l.file("faults"))
            with faults.loaded():
                manager = Manager(l, "--plain")
            process = manager.process
            faults.at_random(20, names, seed)
            end = time.monotonic() + 2
            while time.monotonic() < end and process.popen.poll() is None:
                try:
                    use(manager)
                except Exception:  # a connection, or an answer, that a fault took
                    pass
            faults.put(schedule.RATE, 0)
            happened.update(faults.faults())
            if process.popen.poll() is None and "start again" not in process.errors():
                until(lambda: manager.ask("GET", "/v1/pool")[0] == 200, "it serves again")
            judge(process, "storm, seed %d" % seed, process.stop(LIMIT))
            # what it kept can be read: it starts from it
            manager.start()
            check(manager.process.stop() == 0, manager.process.errors())
    check(sum(happened.values()) > 20, happened)


@case
def signals_while_the_manager_ends():
    """Its store has failed, it ends itself: it is asked to repeatedly and exits with 4."""
    for _ in range(20 if ALL else 5):
        with lab.Lab(plain=True) as l:
            faults = schedule.Faults(l.file("faults"))
            with faults.loaded():
                manager = Manager(l, "--plain")
            process = manager.process
            faults.at_random(1000, ("pwrite", "fsync", "fdatasync"), SEED)
            with contextlib.suppress(OSError, http.client.HTTPException):
                manager.ask("PUT", "/v1/tenants/t", {"quota": 3})
            process.says("start again")
            while process.popen.poll() is None:
                process.popen.send_signal(signal.SIGINT)
            check(process.popen.returncode == 4, process.popen.returncode, process.errors())


@case
def m151_a_port_that_stayed_shut_is_opened_later():
    """It was shut for clients without a word, 16 of 64 connections, and one call of the loop, also
    that which opens it again, fails."""
    with lab.Lab(plain=True) as l:
        faults = schedule.Faults(l.file("faults"))
        with faults.loaded():
            manager = Manager(l, "--http-connections", 64, "--plain")
        host, port = manager.http.rsplit(":", 1)
        for nth in range(1, 5):
            crowd = [socket.create_connection((host, int(port)), 10) for _ in range(20)]
            until(lambda: faults.calls()["epoll_ctl"] > 16, "its places are taken")
            faults.once("epoll_ctl", nth, 0)
            check(manager.ask("GET", "/v1/pool")[0] == 200, nth)
            check(faults.faults()["epoll_ctl"] == 1, nth)
            for s in crowd:
                s.close()
        check(manager.process.stop() == 0, manager.process.errors())


# ---- A full file system ----

class Room:
    """A file system of a quarter of a megabyte, which the programs that are started here see, and
    we through its keeper."""

    def __init__(self, l):
        self.lab, self.folder = l, l.file("room")
        os.mkdir(self.folder)
        self.keeper = l.start(shutil.which("unshare"), "-m", "sh", "-c", "mount -t tmpfs -o "
                              "size=256k none %s && echo ready >&2 && exec sleep 600" % self.folder)
        self.keeper.says("ready")
        self.seen = "/proc/%d/root%s" % (self.keeper.popen.pid, self.folder)

    def file(self, name):
        return os.path.join(self.folder, name)

    def start(self, name, *args):
        process = self.lab.start(shutil.which("nsenter"), "-t", self.keeper.popen.pid, "-m",
                                 os.path.join(lab.BIN, name), *args)
        process.name = name
        return process

    def fill(self):
        """To the last byte; what of it is no whole page was there."""
        with open(self.seen + "/rest", "ab", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(bytes(4096)):
                pass

    def free(self):
        os.unlink(self.seen + "/rest")


def full(function):
    """A case of a lab and a Room; skipped where no file system can be mounted."""
    def run():
        with lab.Lab(plain=True) as l:
            if os.geteuid() or not shutil.which("unshare") or not shutil.which("nsenter"):
                return "needs root, unshare and nsenter, for a file system of its own"
            try:
                room = Room(l)
            except RuntimeError as error:
                return "no file system can be mounted here: %s" % str(error).replace("\n", " ")
            function(l, room)
            return None
    run.__name__, run.__module__ = function.__name__, function.__module__
    return case(run)


@full
def full_disk_of_leases(l, room):
    """No box without room for its leases; none is lent that cannot be written down."""
    args = "--plain", "--listen", V4, "--memory", "64K", "--state", room.file("leases")

    def load(at, epoch):
        host = one_load(l, at, "--epoch", epoch)
        return host.wait(LIMIT)
    room.fill()
    judge_full(room.start("dxpu-box", *args), "with room on its disk")
    room.free()
    box = room.start("dxpu-box", *args)
    at = box.address()
    check(load(at, 4) == 0, box.errors())
    room.fill()
    check(load(at, 5) == 4, "lent, and not written down")
    check("--state" in box.errors(), box.errors())
    room.free()
    check(load(at, 6) == 0, box.errors())
    box.kill()
    box = room.start("dxpu-box", *args)  # it knows the last one
    check(load(box.address(), 5) == 4 and load(box.address(), 7) == 0, box.errors())
    check(box.stop() == 0, box.errors())


def judge_full(process, *words):
    status = process.wait(LIMIT)
    check(status == 3 and all(w in process.errors() for w in words), status, process.errors())


@full
def full_disk_of_keys(l, room):
    """A key or an identity is made whole or not at all."""
    key = "--listen", V4, "--key", room.file("key")
    identity = ("--plain", "--listen", V4, "--manager", "127.0.0.1:9", "--identity",
                room.file("id"), "--state", l.file("leases"))
    room.fill()
    judge_full(room.start("dxpu-box", *key), "--key")
    judge_full(room.start("dxpu-box", *identity), "--identity", "with room on its disk")
    room.free()
    for args in (key, identity):
        box = room.start("dxpu-box", *args)
        box.address()
        check(box.stop() == 0, box.errors())


@full
def full_disk_of_captures(l, room):
    """Reported once; data are right, what was written can be read to where it ends, and the status
    shows it."""
    box = room.start("dxpu-box", "--plain", "--listen", V4, "--memory", "64K", "--record",
                     room.file("box.pcap"))
    host = room.start("dxpu-host", "--plain", "--box", box.address(), "--load", "mixed", "--size",
                      256, "--span", "16K", "--count", 4000, "--json", "--record",
                      room.file("host.pcap"))
    check(host.wait(LIMIT) == 3, host.errors())
    result = host.result()
    check(result["mismatched"] == 0 and result["unanswered"] == 0, result)
    check(box.stop() == 3, box.errors())
    for process, name in ((host, "host.pcap"), (box, "box.pcap")):
        check(process.errors().count(name) == 1, process.errors())
        read = room.start("dxpu", "pcap", room.file(name))
        status = read.wait(LIMIT)
        cut = status == 2 and "truncated" in read.errors()
        check(status == 0 or cut, status, read.errors())
        check(read.output().count("MWr") > 10, read.output()[:500])


@full
def full_disk_of_audit(l, room):
    """The manager goes on, lost lines are reported once and noted when there is room again."""
    manager = Manager(l, "--plain", "--audit", room.file("audit"), starts=room.start)

    def change(quota, wanted=(200, 201)):
        status, said = manager.ask("PUT", "/v1/tenants/t", {"quota": quota})
        check(status in wanted, status, said)
    change(1)
    room.fill()
    for quota in range(2, 90):  # a page holds some lines more
        change(quota)
    check(manager.process.errors().count("lines are lost") == 1, manager.process.errors())
    room.free()
    change(90)
    check(manager.process.stop() == 0, manager.process.errors())
    read = room.start("dxpu", "audit", room.file("audit"))
    check(read.wait(LIMIT) == 0, read.errors(), read.output())
    with open(room.seen + "/audit", encoding="ascii") as f:
        lost = [one for one in map(json.loads, f) if one["what"] == "audit.lost"]
    check(len(lost) == 1 and lost[0]["lines"] > 10, lost)


@full
def full_disk_of_store(l, room):
    """Changes are refused while there is no room, and nothing that was said is forgotten."""
    manager = Manager(l, "--plain", store=room.file("store"), starts=room.start)

    def change(quota):
        return manager.ask("PUT", "/v1/tenants/t%d" % quota, {"quota": quota})[0]
    check(change(1) in (200, 201))
    room.fill()
    made = [q for q in range(2, 300) if change(q) in (200, 201)]
    check(len(made) < 290 and manager.ask("GET", "/v1/pool")[0] == 200, made)
    check("no room" in manager.process.errors(), manager.process.errors())
    room.free()
    until(lambda: change(300) in (200, 201), "it can be written again")
    manager.process.kill()
    manager.start()
    kept = {t["tenant"] for t in manager.get("/v1/tenants")["tenants"]}
    check(kept == {"t%d" % q for q in [1, 300] + made}, kept)
    check(manager.process.stop() == 0, manager.process.errors())


@case
def control_library_fails_calls():
    """The same storm without rate has no fault; and a program that cannot bear a fault is seen."""
    with lab.Lab(plain=True) as l:
        faults = schedule.Faults(l.file("faults"))
        run = HostRun(l)
        faults.at_random(0, schedule.NAMES, SEED)
        check(run.go(faults, "rate 0") == 0 and faults.total() == 0, faults.faults())
        check(faults.calls()["recvmmsg"] > 0 and faults.calls()["calloc"] > 0, faults.calls())
        faults.once("socket", 1, 0)
        check(run.go(faults, "no socket") == 3 and faults.faults()["socket"] == 1)
        for status, words in ((-11, "died"), (None, "there"), (3, ""), (7, "strange")):
            try:
                judge(Ended(status, words), "control", status)
            except AssertionError:
                continue
            raise AssertionError("the judge takes %s %r" % (status, words))


class Ended:
    """A program that is said to have ended so."""
    name = "dxpu-host"

    def __init__(self, status, words):
        self.status, self.words = status, words

    def errors(self):
        return self.words

    def result(self):
        return {}

    output = errors


if __name__ == "__main__":
    threading.excepthook = lambda unused: None  # proxies by hand whose connection a fault took
    schedule.build()
    sys.exit(main())
