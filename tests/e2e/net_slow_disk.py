#!/usr/bin/env python3
"""A disk that takes 200 ms for each access, a tenant who does the worst with it, and a neighbour in
the same loop of the box: the neighbour's latency, its channel and the manager's connection.

The box runs under support/faults, which makes the disk slow.  Prints `ok NAME` or `not ok NAME` for
each case; with --figures a table of the neighbour's latency for each command (further arguments are
the box's: --disk-threads 0 is a box whose loop waits for its disk).  No case asserts a time: loaded
is compared with quiet in the same run."""
# SPDX-License-Identifier: MIT
import collections
import os
import re
import signal
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import fake_manager as fm  # noqa: E402
import lab  # noqa: E402
import nvme_client  # noqa: E402
import schedule  # noqa: E402

SLOW_S, HANGS_S, QUEUES, SIZE = 0.2, 2.5, 4, 512 << 20
LARGE, LIST_AT = 1 << 20, 4 << 20  # bytes of a large command; its list of pages
TENANT, NEIGHBOUR = 9, 8  # nodes
DEPTH = 16  # of the neighbour's reads
LENT = "slot 2: lent to"
TRIES = 4   # this machine's other work is no fault of the box
SLOTS, COMMANDS = 10, 200


# What the tenant asks for, of the i-th entry: I/O commands with 4 KB blocks.  Little data moves
# between it and the box: that would be the neighbour's network and cores, not the disk.
WORST = {
    "read": lambda i: dict(opcode=2, dw10=i),
    "write": lambda i: dict(opcode=1, dw10=i),
    "write, FUA": lambda i: dict(opcode=1, dw10=i, dw12=1 << 30),
    "flush": lambda i: dict(opcode=0),
    "compare": lambda i: dict(opcode=5, dw10=i),
    "verify 256 MB": lambda i: dict(opcode=0x0c, dw12=0xffff),
    "write zeroes 256 MB": lambda i: dict(opcode=8, dw12=0xffff),
    "deallocate": lambda i: dict(opcode=9, dw10=255, dw11=4),
}
ADMIN = {
    "format": lambda i: dict(opcode=0x80, dw10=1),
    "delete namespace": lambda i: dict(opcode=0x0d, dw10=1),
}


Reads = collections.namedtuple("Reads", "p99 count")  # us; in a second


class Street:
    """A box with a slow and a good disk, a manager, a tenant at the slow one."""

    def __init__(self, l, manager, *options):
        self.lab, self.manager = l, manager
        self.faults = schedule.Faults(l.file("faults"))
        self.slow_file = l.file("disk")
        with self.faults.loaded():
            self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", "--block",
                               4096, "--slots", 2, "--file", self.slow_file, "--size", SIZE,
                               "--manager", manager.address, "--identity", l.file("box.id"),
                               "--state", l.file("box.state"), "--json", *options)
        self.link = manager.link(fm.BOX)
        for slot, node in ((1, TENANT), (2, NEIGHBOUR)):
            self.link.bind(slot, node, 1, 10 + slot)
        path = l.file("vm")
        host = l.start("dxpu-host", "--vfio-user", path, "--node", TENANT, "--attach",
                       "1=%s/1/11" % self.box.address(), "--slots", 1)
        host.says("waiting for a guest")
        self.disk = nvme_client.Disk(path, QUEUES)

    def be_slow(self, seconds):
        self.faults.slow(self.slow_file, seconds)

    def neighbour(self, worst=lambda: None):
        """A quiet tenant's Reads, or None when its channel ended.  worst() is what the other tenant
        does once that channel is up."""
        before = self.box.errors().count(LENT)
        host = self.lab.start("dxpu-host", "--box", self.box.address(), "--slot", 2, "--node",
                              NEIGHBOUR, "--epoch", 12, "--load", "read", "--size", 4, "--span",
                              "4K", "--seconds", 1, "--depth", DEPTH, "--json", "--quiet",
                              "--give-up-ms", 5000)
        self.manager.until(lambda: self.box.errors().count(LENT) > before, "a lease")
        worst()
        host.wait(30)
        result = host.result()  # of registers, which do not read as memory would
        lost = result.get("unanswered", 1) or self.box.errors().count(LENT) > before + 1
        rtt = result["rtt_us"]
        return None if lost or not rtt["count"] else Reads(rtt["p99"], rtt["count"])

    def fill(self, entry, queues):
        """As many as fit, in every queue."""
        memory, at = self.disk.memory, nvme_client.DATA_AT
        for i in range(256):  # ranges of a deallocation: all blocks, each
            struct.pack_into("<IIQ", memory, at + 16 * i, 0, SIZE // 4096, 0)
        for q in queues:
            for i in range(nvme_client.DEPTH - 1 if q else 8):
                self.disk.put(q, **entry(i))
            self.disk.ring(q)

    def read_much(self):
        """1 MB with each command, as many as fit, in every queue."""
        pages = range(nvme_client.DATA_AT + 4096, nvme_client.DATA_AT + LARGE, 4096)
        self.disk.memory[LIST_AT:LIST_AT + 8 * len(pages)] = struct.pack("<%dQ" % len(pages),
                                                                         *pages)
        self.fill(lambda i: dict(opcode=2, dw10=i * LARGE // 4096, dw12=LARGE // 4096 - 1,
                                 prp2=LIST_AT), range(1, QUEUES + 1))

    def do(self, name):
        if name in ADMIN:
            self.fill(ADMIN[name], (0,))
        elif name == "controller resets":
            for _ in range(3):
                self.fill(WORST["read"], (1,))
                self.disk.disable()
                self.disk.enable()
        elif name == "all at once":
            kinds = list(WORST.values())
            self.fill(lambda i: kinds[i % len(kinds)](i), range(1, QUEUES + 1))
        elif name == "wipe":  # the manager takes the tenant's lease back
            self.link.unbind(1, 11)
        else:
            self.fill(WORST[name], range(1, QUEUES + 1))

    def load(self, name):
        """The neighbour's Reads while the tenant does this; the controller is reset behind it."""
        found = self.neighbour(lambda: self.do(name))
        if name != "wipe":
            self.disk.disable()
            self.disk.enable()
        return found

    def is_whole(self, lent=True):
        """No channel of the tenant, which has its lease, and no connection to the manager has
        ended."""
        errors = self.box.errors()
        return (self.link.alive and self.manager.accepted == 1 and
                not (lent and re.search("(lost|closed) the channel of node %d" % TENANT, errors)))


def close_to(quiet, loaded):
    """A loop that stands still now and then is not seen in the p99, but in the count."""
    return loaded and loaded.p99 < 3 * quiet.p99 and 3 * loaded.count > quiet.count


def tries(attempt, good):
    """What attempts found, up to the first that is good."""
    seen = [attempt()]
    while len(seen) < TRIES and not good(*seen[-1]):
        seen.append(attempt())
    return seen


ONCE = ("delete namespace", "wipe")  # nothing is left to do it with again
NAMES = list(WORST) + ["controller resets", "format", *ONCE]


@case
def s160_a_slow_disk_delays_no_neighbour():
    schedule.build()
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        street = Street(l, m)
        street.be_slow(SLOW_S)
        for name in ("all at once", "controller resets", "format"):
            seen = tries(lambda: (street.neighbour(), street.load(name)), close_to)
            check(close_to(*seen[-1]), name, seen)
            check(street.is_whole(), name, street.box.errors())
        check(street.faults.get(schedule.SLOW_INODE), "nothing was slow")
        street.be_slow(0)
        street.disk.close()


@case
def s160_nor_do_a_deletion_and_a_wipe():
    def attempt(name):
        with lab.Lab(plain=True) as l, fm.Manager() as m:
            street = Street(l, m)
            quiet = street.neighbour()
            street.be_slow(SLOW_S)
            loaded = street.load(name)
            check(street.is_whole(name != "wipe"), name, street.box.errors())
            check(street.faults.get(schedule.SLOW_INODE), "nothing was slow")
            check(name != "wipe" or street.link.slots[1].state == fm.WIPING, "it is over")
            street.be_slow(0)
            street.disk.close()
            return quiet, loaded

    schedule.build()
    for name in ONCE:
        seen = tries(lambda: attempt(name), close_to)
        check(close_to(*seen[-1]), name, seen)


@case
def s248_nor_does_a_device_that_is_unplugged_or_plugged_in():
    schedule.build()
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        street = Street(l, m, "--hot-plug", "--control", ":0")
        control = street.box.says(r"control port (\S+:\d+)\n").group(1)
        running = []

        def begin(*command):
            running.append(l.start("dxpu", command[0], "--timeout", 120, "--force", control, 1,
                                   *command[1:]))

        def unplug():
            street.do("all at once")
            time.sleep(0.1)  # until some of it is under way
            begin("unplug")

        quiet = street.neighbour()
        street.be_slow(HANGS_S)
        loaded = street.neighbour(unplug)
        check(running[0].popen.poll() is None, "nothing of the disk was under way")
        street.be_slow(0)
        check(running[0].wait(60) == 0, running[0].errors())
        street.be_slow(HANGS_S)
        other = street.neighbour(lambda: begin("plug", "nvme,block=4096,file=" + street.slow_file))
        street.be_slow(0)
        check(running[1].wait(60) == 0, running[1].errors())
        m.until(lambda: street.link.slots[1].health == 1, "the device")
        for found in (loaded, other):  # how long they take is for the others to say
            check(found and 20 * found.count > quiet.count, quiet, loaded, other)
        check(street.link.alive and m.accepted == 1, street.box.errors())


@case
def s111_a_limit_bounds_what_large_commands_cost_a_neighbour():
    schedule.build()
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        street = Street(l, m, "--limit-bytes", "4M")

        def attempt():
            found = street.neighbour(), street.neighbour(street.read_much)
            street.disk.disable()
            street.disk.enable()
            return found

        seen = tries(attempt, close_to)
        check(close_to(*seen[-1]), seen)
        check(street.is_whole(), street.box.errors())
        street.disk.close()


@case
def control_a_loop_that_waits_is_noticed():
    schedule.build()
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        street = Street(l, m, "--disk-threads", 0)
        quiet = street.neighbour()
        check(quiet)
        street.be_slow(SLOW_S)
        loaded = street.neighbour(lambda: street.do("all at once"))
        check(not close_to(quiet, loaded), quiet, loaded)
        street.be_slow(0)
        m.until(lambda: not street.is_whole(), "the tenant's channel, or the manager's")


@case
def what_a_thread_has_done_is_announced():
    """Among more channels than a turn of the box serves all of, the end of each command gives its
    slot a turn.  A look at all of them, each 5 ms, finds what became ready in that moment alone."""
    with lab.Lab(plain=True) as l:
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", "--slots", SLOTS,
                      "--file", l.file("disk"), "--size", 1 << 20, "--json")
        at = box.address()
        idle = l.start("dxpu-host", "--vfio-user", l.file("idle"), "--slots", SLOTS - 1, "--attach",
                       ",".join("%d=%s/%d" % (n, at, n) for n in range(1, SLOTS)))
        for n in range(1, SLOTS):
            idle.says("slot %d: slot %d of .* is attached" % (n, n))
        host = l.start("dxpu-host", "--vfio-user", l.file("vm"), "--slots", 1, "--node", 2,
                       "--attach", "1=%s/%d" % (at, SLOTS))
        host.says("waiting for a guest")
        disk = nvme_client.Disk(l.file("vm"), 1)
        for _ in range(COMMANDS):
            disk.must(0, q=1)  # a flush
        disk.close()
        check(host.stop() == 0 and idle.stop() == 0 and box.stop() == 0, box.errors())
        counts = box.result()["proxy"]
        check(counts["unannounced"] == 0 and 10 * counts["unseen"] < COMMANDS, counts)


# ---- The file of leases ----

class Leases:
    """A box whose --state alone is on a slow disk, and a manager that lends slot 1 repeatedly
    for as long as the neighbour, of slot 2, is there."""

    def __init__(self, l, manager, *options):
        self.lab = l
        self.faults = schedule.Faults(l.file("faults"))
        self.directory = l.file("leases")
        os.mkdir(self.directory)
        with self.faults.loaded():
            self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2, "--manager",
                               manager.address, "--identity", l.file("box.id"), "--state",
                               os.path.join(self.directory, "state"), "--json", *options)
        self.link = manager.link(fm.BOX)
        self.link.bind(2, NEIGHBOUR, 1, 12)
        self.epoch = 100
        self.leases = 0

    def neighbour(self, slow_s):
        """Reads of a quiet tenant in a second; None when its channel ended.  A loop that stands
        still for most of it is not seen in its p99."""
        self.faults.slow(self.directory, slow_s)
        host = self.lab.start("dxpu-host", "--box", self.box.address(), "--slot", 2, "--node",
                              NEIGHBOUR, "--epoch", 12, "--load", "read", "--size", 4, "--span",
                              "4K", "--seconds", 1, "--depth", DEPTH, "--json", "--quiet",
                              "--give-up-ms", 5000)
        self.leases = 0
        while host.popen.poll() is None:
            self.epoch += 1
            self.link.bind(1, TENANT, 1, self.epoch)
            self.leases += 1
        result = host.result()
        lost = result.get("unanswered", 1) or result["incarnations"] != 1
        return None if lost else result["rtt_us"]["count"]

    def compare(self):
        """As many reads as with a fast disk, or nearly?"""
        quiet, loaded = self.neighbour(0), self.neighbour(SLOW_S)
        check(quiet and self.leases, quiet, self.leases)
        self.faults.slow(self.directory, 0)
        return loaded is not None and 3 * loaded > quiet, (quiet, loaded)


@case
def s165_a_slow_state_file_delays_no_neighbour():
    schedule.build()
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        leases = Leases(l, m)
        seen = tries(leases.compare, lambda same, _: same)
        check(seen[-1][0], seen)
        check(leases.link.alive and m.accepted == 1, leases.box.errors())


@case
def control_a_loop_that_waits_for_its_state_file_is_noticed():
    schedule.build()
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        leases = Leases(l, m, "--disk-threads", 0)
        seen = tries(leases.compare, lambda same, _: not same)
        check(not seen[-1][0], seen)


# ---- The layout ----

# Calls that write the layout's file, and which one of those to come the program does not survive.
STEPS = (("open", 1), ("write", 1), ("fsync", 1), ("rename", 1), ("open", 2), ("fsync", 2))


def start_disk_box(l):
    return l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", "--file",
                   l.file("disk"), "--size", "4M")


def killed_while_it_formats(l, step):
    """A box with a disk of 4 KB blocks that ends, at this step, when it is formatted to 512 bytes;
    without a step it does not end.  The blocks that the next box finds."""
    faults = schedule.Faults(l.file("faults"))
    with faults.loaded():
        box = start_disk_box(l)
    path = l.file("vm%d" % len(l.processes))
    host = l.start("dxpu-host", "--vfio-user", path, "--attach", "1=%s/1" % box.address(),
                   "--slots", 1)
    host.says("waiting for a guest")
    disk = nvme_client.Disk(path, 0)
    disk.must(0x80, dw10=1)
    if step:
        faults.put(schedule.CHOSEN, schedule.NAMES.index(step[0]) + 1)
        faults.put(schedule.WAY, schedule.KILL)
        faults.put(schedule.NTH, faults.calls()[step[0]] + step[1])
        disk.put(0, 0x80, dw10=0)
        disk.ring(0)
        check(box.wait(10) == -signal.SIGKILL, step)
    else:
        before = faults.calls()
        disk.must(0x80, dw10=0)
        made = [(name, n + 1) for name in {name for name, _ in STEPS}
                for n in range(faults.calls()[name] - before[name])]
        check(sorted(made) == sorted(STEPS), made)  # none is left out
        box.kill()
    disk.close()
    host.kill()
    again = start_disk_box(l)
    again.address()
    check("not served" not in again.errors(), step, again.errors())
    again.kill()
    with open(l.file("disk.layout")) as f:
        return int(f.read().split("\n")[1].split()[3])


@case
def s163_a_kill_at_any_step_leaves_one_layout():
    schedule.build()
    with lab.Lab(plain=True) as l:
        found = [killed_while_it_formats(l, step) for step in STEPS + (None,)]
        check(set(found[:3]) == {4096}, found)       # before the file is replaced
        check(set(found[3:]) <= {512, 4096}, found)  # then it is the one or the other
        check(found[-1] == 512, found)               # the control


# ---- A medium that fails ----

def host_of(l, box):
    """A host of its own at the box's first slot, and a driver of that disk."""
    path = l.file("vm%d" % len(l.processes))
    host = l.start("dxpu-host", "--vfio-user", path, "--attach", "1=%s/1" % box.address(),
                   "--slots", 1)
    host.says("waiting for a guest")
    return host, nvme_client.Disk(path, 1)


def fail_next(faults, call, nth=1):
    faults.put(schedule.CHOSEN, schedule.NAMES.index(call) + 1)
    faults.put(schedule.WAY, 0)
    faults.put(schedule.NTH, faults.calls()[call] + nth)


@case
def s164_a_flush_that_failed_fails_until_the_box_starts_again():
    write, flush, fua = dict(opcode=1), dict(opcode=0), dict(opcode=1, dw12=1 << 30)
    schedule.build()
    with lab.Lab(plain=True) as l:
        faults = schedule.Faults(l.file("faults"))
        with faults.loaded():
            box = start_disk_box(l)
        host, disk = host_of(l, box)
        check([disk.do(q=1, **c) for c in (write, fua, flush)] == [0, 0, 0], "the control")
        fail_next(faults, "fdatasync")
        seen = [disk.do(q=1, **c) for c in (write, flush, flush, fua, flush)]
        check(seen == [0, 0x280, 0x280, 0x280, 0x280], [hex(s) for s in seen])
        check(faults.faults()["fdatasync"] == 1, faults.faults())  # the system said so once
        check(box.errors().count("may be lost") == 1, box.errors())
        disk.close()
        host.kill()
        box.kill()
        host, disk = host_of(l, start_disk_box(l))
        check(disk.do(q=1, **flush) == 0, "the medium was opened again")
        disk.close()


@case
def s163_a_refused_format_is_not_found_after_a_crash():
    """The layout's file is replaced, and its directory cannot be synced."""
    schedule.build()
    with lab.Lab(plain=True) as l:
        faults = schedule.Faults(l.file("faults"))
        with faults.loaded():
            box = start_disk_box(l)
        _, disk = host_of(l, box)
        disk.must(0x80, dw10=1)
        fail_next(faults, "fsync", 2)  # the file is the first
        check(disk.do(0x80, dw10=0) == 6, "the format")  # Internal Error
        check(faults.faults()["fsync"] == 1, faults.faults())
        disk.close()
        box.kill()
        with open(l.file("disk.layout")) as f:
            check(f.read().split("\n")[1].split()[3] == "4096", "what the host was left with")


def figures(options):
    """The table, of the programs in $DXPU_BIN: a box of its own for each command."""
    schedule.build()
    for name in NAMES:
        with lab.Lab(plain=True) as l, fm.Manager() as m:
            street = Street(l, m, *options)
            quiet = street.neighbour()
            street.be_slow(SLOW_S)
            try:
                loaded = street.load(name)
            except (AssertionError, OSError):
                loaded = None
            print("%-22s quiet %8.1f us   loaded %12s   all connected: %s" %
                  (name, quiet.p99, "channel ended" if loaded is None else "%.1f us" % loaded.p99,
                   street.is_whole(name != "wipe")), flush=True)
            street.be_slow(0)


if __name__ == "__main__":
    if "--figures" in sys.argv:
        figures([a for a in sys.argv[1:] if a != "--figures"])
    else:
        sys.exit(main())
