#!/usr/bin/env python3
"""Long runs: sealed proxies and a bad network between them, under various troubles, and nothing
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
import resource
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from net_manager import World  # noqa: E402
from pool import until  # noqa: E402
import soak as long_run  # noqa: E402

V4 = "127.0.0.1:0"
BAD = "--loss", 20, "--duplicate", 20, "--reorder", 20
LOAD = "--load", "mixed", "--size", 256, "--depth", 8, "--span", "64K"


class Line:
    """A box that stays, a relay, and hosts through it."""

    def __init__(self, l, counts):
        self.lab, self.epoch, self.counts = l, 0, counts
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
        self.counts["tlps"] += result["acked"]
        self.counts["reads_compared"] += result["reads"] + result["read_back"]
        return result

    def kill(self, process):
        self.counts["kills"] += 1
        process.kill()


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
    line.kill(host)
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
    line.kill(box)
    box = l.start("dxpu-box", "--listen", at, *args)
    line.right(host, contained=True)
    check(host.result()["incarnations"] >= 2, host.result())
    check(box.stop() == 0, box.errors())


def disk_is_full(line, unused):
    """The capture cannot grow: it is reported once, the load goes on and its data are right."""
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
                     os.path.join(rooms.TESTS, "data", "memory-mixed.pcap"), "--json")
        check(host.status in (0, 1) and host.result()["acked"] > 0, host.status, host.errors())
    check(box.stop() == 0, box.errors())


def lease_of(world):
    status, made = world.manager.ask("POST", "/v1/leases?wait=10", {
        "host": world.number["host1"], "model": "memory", "count": 1, "tenant": "t",
        "key": os.urandom(8).hex()})
    check(status in (200, 201), status, made)
    return made["lease"], made["slots"][0]["epoch"]


def give_back(world, lease):
    status, _ = world.manager.ask("DELETE", "/v1/leases/" + lease)
    check(status == 200, status)


def is_empty(world):
    return world.manager.get("/v1/pool")["slots"]["wiping"] == 0 and not world.listed() and all(
        s["state"] == "empty" for s in world.hosts[0].status().values())


def manager_is_killed(line, world):
    """Leases come and go before, while it is down none are lost, and after."""
    kept, _ = lease_of(world)
    for _ in range(3):
        give_back(world, lease_of(world)[0])
    line.kill(world.manager.process)
    world.manager.start()
    world.wait_connected()
    check(kept in world.listed(), "a lease is lost")
    give_back(world, kept)
    until(lambda: is_empty(world), "everything is given back")


def days_of_proxies_jump(line, unused):
    """Channels that run do not notice, and a host that was there opens new ones at once, whatever
    its clock says.  One that restarts with a clock that went back is refused, and that is
    reported (S-13); once its clock has passed what it said before, it is."""
    l = line.lab
    host = line.load(3)
    for name in ("dxpu-host", "dxpu-box"):
        for jump in long_run.JUMPS:
            l.jump(name, jump)
            time.sleep(0.2)
    check(line.right(host)["incarnations"] == 1)
    l.jump("dxpu-box", -sum(long_run.JUMPS))
    l.jump("dxpu-host", -sum(long_run.JUMPS))
    host = line.load(2, hold=300)
    l.jump("dxpu-host", long_run.JUMPS[-1])
    line.relay.popen.send_signal(signal.SIGUSR1)
    time.sleep(0.7)
    line.relay.popen.send_signal(signal.SIGUSR2)
    check(line.right(host, contained=True)["incarnations"] >= 2, host.result())
    before = line.box.statistics()["replayed"]
    line.epoch += 1
    late = l.run("dxpu-host", "--box", line.at, "--epoch", line.epoch, *LOAD, "--seconds", 1,
                 "--give-up-ms", 500)
    check(late.status == 4 and late.errors(), late.status, late.errors())
    check(line.box.statistics()["replayed"] > before, line.box.errors())
    l.jump("dxpu-host", 3600 - long_run.JUMPS[-1])
    line.right(line.load(1))


def day_of_manager_jumps(line, world):
    """A lease and connections stay, epochs rise, also over its end; its reports can be read."""
    l = world.lab
    kept, epoch = lease_of(world)
    for jump in long_run.JUMPS + (0,):
        if jump:
            l.jump("dxpu-manager", jump)
        else:  # and once more, as it starts on the last of these days
            line.kill(world.manager.process)
            world.manager.start()
            world.wait_connected()
        time.sleep(0.3)  # of heartbeats
        lease, then = lease_of(world)
        check(then > epoch, "epochs", epoch, "and then", then)
        epoch = then
        give_back(world, lease)
        check(kept in world.listed() and all(
            n["connected"] for n in world.manager.get("/v1/nodes")["nodes"]), "on day", jump)
    port = world.hosts[0].status().values()
    check(sum(s["state"] == "up" for s in port) == 1, port)
    give_back(world, kept)
    until(lambda: is_empty(world), "everything is given back")
    l.jump("dxpu-manager", -sum(long_run.JUMPS))
    events = world.manager.get("/v1/events?last=100")["events"]
    for one in events:
        time.strptime(one["at"][:19], "%Y-%m-%dT%H:%M:%S")
    check([e["event"] for e in events] == sorted(e["event"] for e in events), events)
    # Control: the programs did see other days.
    with open(l.file("audit"), encoding="ascii") as file:
        days = [json.loads(text)["unix_ms"] for text in file]
    steps = [b - a for a, b in zip(days, days[1:])]
    check(min(steps) < -80000e3 and max(steps) > 3000e3, steps[-50:])
    audit = l.run("dxpu", "audit", l.file("audit"))
    check(audit.status == 0, audit.errors(), audit.output())


TROUBLES = (path_flaps, peer_is_slow, host_is_killed, box_is_killed, disk_is_full,
            memory_is_short, disks_come_and_go, manager_is_killed, days_of_proxies_jump,
            day_of_manager_jumps)


def calm(line, world):
    """All channels are closed; what the processes that stay have now."""
    line.right(line.load(1))
    box = line.box.statistics()
    check(box["rx_errors"] == 0 and box["tx_errors"] == 0, box)
    return {name: long_run.sizes(process.popen.pid) for name, process in (
        ("box", line.box), ("pool box", world.boxes[0].process),
        ("pool host", world.hosts[0].process), ("manager", world.manager.process))}


@case
def soak():
    with long_run.Lab() as l, long_run.Soak("proxies") as run:
        world = World(l, boxes=1, hosts=1, slots=4,  # few events: it keeps no more after an hour
                      options=("--audit", l.file("audit"), "--events", 200))
        line = Line(l, run.counts)
        run.flat(calm(line, world))
        while run.more():
            for trouble in TROUBLES:
                run.do(trouble, line, world)
            run.flat(calm(line, world))
            line.new_relay(run.rounds + 1)
        line.end_relay()
        check(line.box.stop() == 0, line.box.errors())


@case
def control_growth_is_seen():
    """A leak of descriptors and of memory, in numbers and in a process that has one."""
    flat = [{"kb": 9000 + n % 3 * 400, "descriptors": 12, "threads": 1} for n in range(8)]
    check(not long_run.grows(flat), long_run.grows(flat))
    for name, step in (("kb", 1024), ("descriptors", 1), ("threads", 4)):
        leaky = [dict(s, **{name: s[name] + step * n}) for n, s in enumerate(flat)]
        check([found[0] for found in long_run.grows(leaky)] == [name], name, long_run.grows(leaky))
    mine, held = [], []
    for _ in range(8):
        held.append((os.open(os.devnull, os.O_RDONLY), os.urandom(4 << 20)))
        mine.append(long_run.sizes(os.getpid()))
    check({found[0] for found in long_run.grows(mine)} >= {"kb", "descriptors"}, mine)
    for descriptor, _ in held:
        os.close(descriptor)


@case
def control_a_skip_fails_where_all_must_run():
    for must_run in (False, True):
        done = subprocess.run([sys.executable, "-c", "import sys\nimport cases\n@cases.case\n"
                               "def one():\n    return 'reason'\n"
                               "sys.exit(cases.main(must_run=%s))" % must_run],
                              cwd=os.path.join(rooms.TESTS, "support"),
                              stdout=subprocess.PIPE, text=True)
        text = "not ok one was not run: reason\n" if must_run else "skip one reason\n"
        check((done.returncode, done.stdout) == (int(must_run), text), done.stdout)


if __name__ == "__main__":
    sys.exit(main(must_run=bool(long_run.MINUTES)))
