#!/usr/bin/env python3
"""The programs while calls of the system fail: tests/faults, preloaded, makes them.

Sweeps: the n-th call of each function fails once, for every n of a run and every way to fail; the
program goes on, or ends with a documented status and a message.  Storms: calls fail at random under
load; data stay right, and when the storm is over the programs serve, or they ended in order.
In make check a part, chosen by DXPU_SEED; with DXPU_ROUNDS (make check-long) all.

Prints `ok NAME` or `not ok NAME`.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import collections
import os
import random
import re
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "examples", "demo"), os.path.join(HERE, "faults")]
from cases import case, check, main  # noqa: E402
from pool import BOX, HOST, Manager, Robots, until  # noqa: E402
import lab  # noqa: E402
import schedule  # noqa: E402

V4 = "127.0.0.1:0"
ALL = "DXPU_ROUNDS" in os.environ
SEED = int(os.environ.get("DXPU_SEED", 1))
EACH = 12  # the first calls of a function; what comes later is a loop, and the storms' affair
PART = 40  # single faults of one sweep in make check
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
    """It ended in order: a status that its manual page has, with words when it is not 0."""
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


# ---- What is run ----

class HostRun:
    """dxpu-host, over a box that has no faults."""
    name = "dxpu-host"

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
    """dxpu-box with files, and a host that has no faults."""
    name, load = "dxpu-box", LOAD

    def __init__(self, l):
        self.lab = l

    def args(self):
        return "--listen", V4, "--state", self.lab.file("state"), "--record", self.lab.file(
            "b.pcap"), "--memory", "64K", "--slots", 1

    def go(self, faults, what):
        l = self.lab
        if os.path.exists(l.file("state")):
            os.unlink(l.file("state"))
        with faults.loaded():
            box = l.start("dxpu-box", *self.args())
        try:
            at = box.address()
        except RuntimeError:
            at = None
        if at:
            host = one_load(l, at, load=self.load)
            host.wait(LIMIT)
            check(host.result().get("mismatched", 0) == 0, what, host.output())
        judge(box, what, box.stop(LIMIT) if at else box.wait(LIMIT))
        return box.popen.returncode


class DiskRun(BoxRun):
    """A box of an NVMe disk in a file; the host looks at it."""
    load = "--replay", os.path.join(HERE, "data", "memory-mixed.pcap")

    def args(self):
        return "--listen", V4, "--device", "nvme", "--size", "1M", "--file", self.lab.file(
            "disk"), "--slots", 1


class ManagerRun:
    """dxpu-manager, with a lease for hosts and boxes made by hand."""
    name = "dxpu-manager"

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
        goes = manager and "start again" not in process.errors()
        judge(process, what, process.stop(LIMIT) if goes else process.wait(LIMIT))
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


# ---- Sweeps ----

def plan(counts):
    """Every single fault of a run whose calls were counted, or in make check a part of them."""
    found = [(name, nth, way) for name, calls in counts.items()
             for nth in range(1, min(calls, 10 * EACH if name in MEMORY else EACH) + 1)
             for way in range(len(schedule.FUNCTIONS[name]))]
    return found if ALL else sorted(random.Random(SEED).sample(found, min(PART, len(found))))


def sweep(kind):
    with lab.Lab(plain=True) as l:
        faults = schedule.Faults(l.file("faults"))
        run = kind(l)
        check(run.go(faults, "without faults") == 0, l.processes[-1].errors())
        check(faults.total() == 0, "a fault without a schedule", faults.faults())
        fired, ends, bad = 0, collections.Counter(), []
        for name, nth, way in plan(faults.calls()):
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


# ---- Storms ----

def storm(l, faults, functions, per_mille, seed, sealed_seconds):
    """A load while both ends have faults; then calm, and a second load that must be served.
    Who ends in it must end in order."""
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
                process.stop(LIMIT)
            judge(process, "storm, seed %d" % seed, process.wait(LIMIT))
            # what it kept can be read: it starts from it
            manager.start()
            check(manager.process.stop() == 0, manager.process.errors())
    check(sum(happened.values()) > 20, happened)


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
