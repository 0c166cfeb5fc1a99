#!/usr/bin/env python3
"""A pool is upgraded while it runs, and goes back: managers, boxes and hosts of the previous
release and of this one together, over SQLite and over etcd.

The previous release is the last tag v* before this commit, built from the history, in `make
check-long`; or DXPU_PREVIOUS names the directory of its programs.  Without either it is skipped.
Prints `ok NAME` or `skip NAME REASON`.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import contextlib
import os
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402
from cases import case, check, main, until  # noqa: E402
from etcd import Cluster, why_not as no_etcd  # noqa: E402
import lab  # noqa: E402

ANY = "127.0.0.1:0"
DAMAGED = 5
PROGRAMS = ("dxpu-manager", "dxpu-box", "dxpu-host", "dxpu")


def git(*args):
    done = subprocess.run(["git", "-C", rooms.ROOT, *args], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def build(tag):
    """Its programs, in build/previous."""
    to = os.path.join(rooms.ROOT, "build", "previous", tag)
    if not os.path.exists(os.path.join(to, "build", "dxpu-manager")):
        os.makedirs(to, exist_ok=True)
        with subprocess.Popen(["git", "-C", rooms.ROOT, "archive", tag],
                              stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "x", "-C", to], stdin=archive.stdout, check=True)
        subprocess.run(["make", "-C", to] + ["build/" + p for p in PROGRAMS], check=True,
                       stdout=subprocess.DEVNULL)
    return os.path.join(to, "build")


def previous():
    """The directory of its programs, and None; or None and why there is none."""
    if "DXPU_PREVIOUS" in os.environ:
        return os.environ["DXPU_PREVIOUS"], None
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    if not tag:
        return None, "NO PREVIOUS RELEASE: THE HISTORY HAS NO TAG v* BEFORE THIS COMMIT"
    if not os.environ.get("DXPU_WHOLE"):
        return None, "only with DXPU_WHOLE, as it builds " + tag
    return build(tag), None


OLD, WHY_NOT = previous()
NEW = lab.BIN


@contextlib.contextmanager
def programs(where):
    lab.BIN = where
    try:
        yield
    finally:
        lab.BIN = NEW


class Pool:
    def __init__(self, l, store):
        self.lab, self.store = l, store
        self.listen, self.http = ([lab.address(socket.SOCK_STREAM) for _ in range(2)]
                                  for _ in range(2))
        self.proxies = {}

    def manager(self, where, i=0, *more):
        with programs(where):
            return self.lab.start("dxpu-manager", "--store", self.store, "--listen",
                                  self.listen[i], "--http", self.http[i], *more)

    def proxy(self, where, name):
        """It, in place of the one that there was."""
        if name in self.proxies:
            check(self.proxies[name].stop() is not None, name)
        more = {"dxpu-box": ("--device", "memory", "--state", self.lab.file("state")),
                "dxpu-host": ("--vfio-user", self.lab.file("vm"))}[name]
        with programs(where):
            self.proxies[name] = self.lab.start(
                name, "--manager", ",".join(self.listen), "--identity", self.lab.file(name),
                "--listen", ANY, "--control", ANY, "--slots", 4, "--name", name[5:], *more)

    def command(self, where, *args):
        with programs(where):
            return self.lab.run("dxpu", *args, "--json", "--manager", ",".join(self.http),
                                "--retry", "20")

    def lend(self, where, key):
        def made():
            done = self.command(where, "lease", "create", "--host", "host", "--model", "memory",
                                "--key", key, "--wait")
            return done.status == 0 and done.result()["lease"]
        return until(made, key, 60)

    def active(self, where, leases):
        """All of them are up, and there are no others."""
        def seen():
            done = self.command(where, "list", "leases")
            return done.status == 0 and sorted(
                (one["lease"], one["state"]) for one in done.result()["leases"]) == sorted(
                    (one, "active") for one in leases)
        return until(seen, "all leases are up", 60)


@case
def upgraded_and_back_in_sqlite():
    if WHY_NOT:
        return WHY_NOT
    with lab.Lab() as l:
        pool = Pool(l, l.file("db"))
        manager = pool.manager(OLD)
        manager.says("users at")
        for name in ("dxpu-box", "dxpu-host"):
            pool.proxy(OLD, name)
        leases = [pool.lend(OLD, "old")]
        check(manager.stop() == 0)
        manager = pool.manager(NEW)
        manager.says("users at")
        leases.append(pool.lend(OLD, "manager"))
        for name in ("dxpu-box", "dxpu-host"):
            pool.proxy(NEW, name)
            pool.active(NEW, leases)
        leases.append(pool.lend(NEW, "all"))
        check(manager.stop() == 0)
        manager = pool.manager(OLD)  # and back, or it says which program reads the store
        until(lambda: "users at" in manager.errors() or manager.popen.poll() is not None, "starts")
        if manager.popen.poll() is not None:
            check(manager.wait(5) == DAMAGED and "run the version that wrote" in manager.errors(),
                  manager.errors())
            print("# the previous manager refuses the store")
            manager = pool.manager(NEW)
            manager.says("users at")
        else:
            print("# the previous manager takes the store")
        pool.active(NEW, leases)
        pool.proxy(OLD, "dxpu-box")
        pool.active(OLD, leases)
        check(manager.stop() == 0)
    return None


@case
def managers_of_both_take_turns_in_etcd():
    if WHY_NOT or no_etcd():
        return WHY_NOT or no_etcd()
    with lab.Lab() as l, Cluster(l, 3) as etcd:
        pool = Pool(l, etcd.address())
        first = pool.manager(OLD, 0, "--standby")
        first.says("users at")
        pool.proxy(OLD, "dxpu-box")
        pool.proxy(NEW, "dxpu-host")
        leases = [pool.lend(NEW, "old")]
        second = pool.manager(NEW, 1, "--standby")
        second.says("standby")
        first.signal(signal.SIGKILL)
        second.says("users at")
        leases.append(pool.lend(OLD, "new"))
        first = pool.manager(OLD, 0, "--standby")
        first.says("standby")
        second.signal(signal.SIGKILL)
        first.says("users at")
        leases.append(pool.lend(NEW, "old-again"))
        pool.active(NEW, leases)
    return None


if __name__ == "__main__":
    sys.exit(main())
