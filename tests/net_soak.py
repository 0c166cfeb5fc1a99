#!/usr/bin/env python3
"""Long runs: sealed proxies and a bad network between them, under trouble by turns, and nothing
that grows.

A box with memory stays, hosts come to it through dxpu-relay with loads that check their data;
beside them a manager with a box and a host of its own, and boxes that come and go.
Each round has all the troubles below once; after it the data were right, and memory, descriptors
and threads are what they were after the first ones.  One round, or rounds for
DXPU_SOAK_MINUTES (make soak).

Prints `ok NAME` or `not ok NAME`.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import json
import os
import re
import resource
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "examples", "demo"))
from cases import case, check, main  # noqa: E402
from net_manager import World  # noqa: E402
from pool import until  # noqa: E402
import lab  # noqa: E402

MINUTES = float(os.environ.get("DXPU_SOAK_MINUTES", 0))
V4 = "127.0.0.1:0"
WARM_ROUNDS = 1  # after these memory is what it will be
SLACK_KB = 2048  # of resident memory: an allocator's own affairs
BAD = "--loss", 20, "--duplicate", 20, "--reorder", 20
LOAD = "--load", "mixed", "--size", 256, "--depth", 8, "--span", "64K"


def sizes(pid):
    """Resident kilobytes, descriptors and threads of a process."""
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        text = file.read()
    return {"kb": int(re.search(r"VmRSS:\s+(\d+)", text).group(1)),
            "descriptors": len(os.listdir("/proc/%d/fd" % pid)),
            "threads": int(re.search(r"Threads:\s+(\d+)", text).group(1))}


def grows(samples):
    """What of samples, one after each round, is not flat: the medians of the first and the last
    third differ.  What was before the first rounds does not count."""
    late = samples[WARM_ROUNDS if len(samples) > 3 else 0:]
    third = (len(late) + 2) // 3
    found = []
    for name in late[0] if len(late) > 1 else ():
        values = [s[name] for s in late]
        first, last = (sorted(part)[third // 2] for part in (values[:third], values[-third:]))
        if last > first + (SLACK_KB if name == "kb" else 0):
            found.append((name, values))
    return found


class Line:
    """A box that stays, a relay, and hosts through it."""

    def __init__(self, l):
        self.lab, self.epoch = l, 0
        self.box = l.start("dxpu-box", "--listen", V4, "--memory", "64K", "--state",
                           l.file("leases"), "--hold-ms", 5000, "--quiet")
        self.relay = None
        self.new_relay(1)

    def new_relay(self, seed):
        """One for each round: it has a socket for every client that it ever had."""
        self.end_relay()
        self.relay = self.lab.start("dxpu-relay", "--listen", V4, "--to", self.box.address(),
                                    "--json", "--seed", seed, *BAD)
        self.at = self.relay.address()

    def end_relay(self):
        if self.relay:
            check(self.relay.stop() == 0, self.relay.errors())
            done = self.relay.result()
            faults = [done[k] for k in ("lost", "duplicated", "reordered")]
            check(all(faults) or not done["received"], done)
            check(done["overflowed"] == 0, done)

    def load(self, seconds, *args, hold=5000):
        self.epoch += 1
        host = self.lab.start("dxpu-host", "--box", self.at, "--epoch", self.epoch, *LOAD,
                              "--seconds", seconds, "--hold-ms", hold, "--give-up-ms", 20000,
                              "--json", *args)
        host.says("attached", 20)
        return host

    def right(self, host, contained=False):
        """It ended with right data; with requests cut off only where the box itself was killed."""
        status = host.wait(60)
        result = host.result()
        check(result and result["mismatched"] == 0, status, host.errors())
        check(status == 0 or contained and status == 1, status, host.errors())
        check(contained or result["unanswered"] == 0, result)
        check(result["reads"] > 0 and result["acked"] <= result["submitted"], result)
        return result


# ---- Troubles: each has a load running meanwhile, and ends with right data ----

def path_flaps(line, unused):
    host = line.load(2)
    for _ in range(2):
        line.relay.popen.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        line.relay.popen.send_signal(signal.SIGUSR2)
        time.sleep(0.3)
    check(line.right(host)["incarnations"] == 1)


def peer_is_slow(line, unused):
    """Either end is stopped for less than the hold time."""
    host = line.load(2)
    for process in (line.box, host):
        process.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        process.popen.send_signal(signal.SIGCONT)
    check(line.right(host)["incarnations"] == 1)


def host_is_killed(line, unused):
    host = line.load(10)
    time.sleep(0.2)
    host.kill()
    line.right(line.load(1))


def box_is_killed(line, unused):
    """A box of its own, with a file of leases: it comes back with them."""
    l = line.lab
    args = "--memory", "64K", "--state", l.file("other"), "--hold-ms", 300, "--quiet"
    box = l.start("dxpu-box", "--listen", V4, *args)
    at = box.address()
    line.epoch += 1
    host = l.start("dxpu-host", "--box", at, "--epoch", line.epoch, *LOAD, "--seconds", 2,
                   "--hold-ms", 300, "--json")
    host.says("attached")
    time.sleep(0.3)
    box.kill()
    box = l.start("dxpu-box", "--listen", at, *args)
    line.right(host, contained=True)
    check(host.result()["incarnations"] >= 2, host.result())
    check(box.stop() == 0, box.errors())


def disk_is_full(line, unused):
    """The capture cannot grow: it is told once, the load goes on and its data are right."""
    host = line.load(2, "--record", line.lab.file("full.pcap"))
    resource.prlimit(host.popen.pid, resource.RLIMIT_FSIZE, (65536, 65536))
    status = host.wait(60)
    result = host.result()
    check(status == 3 and "--record" in host.errors(), status, host.errors())
    check(host.errors().count("full.pcap") == 1, host.errors())
    check(result["mismatched"] == 0 and result["unanswered"] == 0, result)


def memory_is_short(line, unused):
    """No more address space than it has: a channel that is up needs none."""
    host = line.load(2)
    with open("/proc/%d/statm" % host.popen.pid, encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.prlimit(host.popen.pid, resource.RLIMIT_AS, (now, now))
    line.right(host)


def disks_come_and_go(line, unused):
    """An NVMe disk under TLPs of a capture, which it has to bear: most are none of its own."""
    l = line.lab
    box = l.start("dxpu-box", "--listen", V4, "--device", "nvme", "--size", "1M", "--quiet")
    for _ in range(3):
        line.epoch += 1
        host = l.run("dxpu-host", "--box", box.address(), "--epoch", line.epoch, "--replay",
                     os.path.join(HERE, "data", "memory-mixed.pcap"), "--json")
        check(host.status in (0, 1) and host.result()["acked"] > 0, host.status, host.errors())
    check(box.stop() == 0, box.errors())


def manager_is_killed(unused, world):
    """Leases come and go before, while it is away none are lost, and after."""
    def lease():
        status, made = world.manager.ask("POST", "/v1/leases?wait=10", {
            "host": world.number["host1"], "model": "memory", "count": 1, "tenant": "t",
            "key": os.urandom(8).hex()})
        check(status in (200, 201), status, made)
        return made["lease"]
    kept = lease()
    for _ in range(3):
        status, _ = world.manager.ask("DELETE", "/v1/leases/" + lease())
        check(status == 200, status)
    world.manager.process.kill()
    world.manager.start()
    world.wait_connected()
    check(kept in world.listed(), "a lease is lost")
    check(world.manager.ask("DELETE", "/v1/leases/" + kept)[0] == 200)
    until(lambda: world.manager.get("/v1/pool")["slots"]["wiping"] == 0 and not world.listed() and
          all(s["state"] == "empty" for s in world.hosts[0].status().values()),
          "everything is given back")


TROUBLES = (path_flaps, peer_is_slow, host_is_killed, box_is_killed, disk_is_full,
            memory_is_short, disks_come_and_go, manager_is_killed)


def calm(line, world):
    """All channels are closed; what the processes that stay have now."""
    line.right(line.load(1))
    box = line.box.statistics()
    check(box["rx_errors"] == 0 and box["tx_errors"] == 0, box)
    return {"box": sizes(line.box.popen.pid),
            "pool box": sizes(world.boxes[0].process.popen.pid),
            "pool host": sizes(world.hosts[0].process.popen.pid)}


@case
def soak():
    end = time.monotonic() + 60 * MINUTES
    with lab.Lab() as l:
        world, samples, rounds = World(l, boxes=1, hosts=1, slots=4), [], 0
        line = Line(l)
        samples.append(calm(line, world))
        while rounds < 1 or time.monotonic() < end:
            for trouble in TROUBLES:
                try:
                    trouble(line, world)
                except Exception:
                    print("# round %d: %s" % (rounds + 1, trouble.__name__), flush=True)
                    raise
            samples.append(calm(line, world))
            rounds += 1
            line.new_relay(rounds + 1)
            for name in samples[0]:
                flat = grows([s[name] for s in samples])
                check(not flat, name, "grows:", flat)
            if MINUTES:
                print("# round %d: %s" % (rounds, json.dumps(samples[-1])), flush=True)
        line.end_relay()
        check(line.box.stop() == 0, line.box.errors())
        print("# %d rounds of %d troubles" % (rounds, len(TROUBLES)), flush=True)


@case
def control_growth_is_seen():
    """A leak of descriptors and of memory, in numbers and in a process that has one."""
    flat = [{"kb": 9000 + n % 3 * 400, "descriptors": 12, "threads": 1} for n in range(8)]
    check(not grows(flat), grows(flat))
    for name, step in (("kb", 1024), ("descriptors", 1), ("threads", 1)):
        leaky = [dict(s, **{name: s[name] + step * n}) for n, s in enumerate(flat)]
        check([found[0] for found in grows(leaky)] == [name], name, grows(leaky))
    mine, held = [], []
    for _ in range(8):
        held.append((os.open(os.devnull, os.O_RDONLY), os.urandom(4 << 20)))
        mine.append(sizes(os.getpid()))
    check({found[0] for found in grows(mine)} >= {"kb", "descriptors"}, mine)
    for descriptor, _ in held:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
