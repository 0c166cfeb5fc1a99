#!/usr/bin/env python3
"""A long run of a stock guest: NVMe disks of two boxes through networks that lose, double and
reorder, under various troubles, and nothing that grows.

Each round has all the troubles below once, fio with verification running in all of them; after it
both disks have what was written to them at its begin, the guest's kernel has not complained, and
memory, descriptors and threads of host and boxes are what they were after the first rounds.  One
round with shorter loads, or rounds for DXPU_SOAK_MINUTES (make soak).

Prints `ok NAME`, `not ok NAME` or `skip NAME`; a long run that cannot be done has failed.  Programs
come from $DXPU_BIN, else build/."""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import errno
import hashlib
import os
import resource
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from net_guest import HANG, Box, Machine, wait_count  # noqa: E402
import guest  # noqa: E402
import soak as long_run  # noqa: E402

HOLD = "--hold-ms", 3000  # longer than any stop below, on a busy machine too
BAD = "--loss", 10, "--duplicate", 10, "--reorder", 10
DIES, STAYS = 1, 2  # slots: whose box is killed, and whose never
SECONDS = 2  # of fio; a load is one after the other, until there is enough
MARKED_MB, SIZE_MB = 2, 32  # what is compared after a round, of the whole disk


class World:
    """A guest; behind a relay each a box with its disk in a file, whose second slot another host
    has, and one with it in memory."""

    def __init__(self, l, counts):
        self.lab, self.counts, self.epoch = l, counts, 0
        self.tools = guest.tools()
        self.initrd = guest.initramfs(l.file("initrd"))
        disk = "--device", "nvme", "--size", "%dM" % SIZE_MB, "--quiet", *HOLD
        self.box = {DIES: Box(l, 10, *disk, "--file", l.file("disk"), "--slots", 2, "--state",
                              l.file("state")),
                    STAYS: Box(l, 11, *disk)}
        self.relay = {}
        for slot, box in self.box.items():
            box.start()
            self.relay[slot] = l.start("dxpu-relay", "--to", box.at, "--json", "--seed", slot, *BAD)
        attach = ["%d=%s/1" % (n, r.address()) for n, r in self.relay.items()]
        self.a = Machine(self, "a", "root-ports", attach, options=HOLD)
        for slot in self.box:
            self.a.filled(slot)

    def load(self, slot):
        """fio writes and verifies, all the time, behind what is compared; it is under way."""
        name = "job%d" % slot
        job = self.a.fio(
            slot, "--rw=randwrite", "--bsrange=512-64k", "--iodepth=8", "--offset=8m",
            "--size=8m", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=32",
            "--time_based", "--runtime=%d" % SECONDS, name=name)
        self.a.must("rm -f /tmp/enough%d" % slot)
        self.a.under_way(slot, name=name,
                         command="until [ -e /tmp/enough%d ]; do %s || exit 1; done" % (slot, job))

    def enough(self, slot):
        self.a.must(": >/tmp/enough%d" % slot)

    def ends_well(self, *slots):
        """No error; and all were still running a moment ago."""
        for slot in slots:
            check(self.a.run("[ -s /tmp/job%d.done ]" % slot)[0] != 0, "a load was over too early")
        for slot in slots:
            self.enough(slot)
        for slot in slots:
            name = "job%d" % slot
            status, output = self.a.ended(name, 2 * HANG)
            check(status == 0, output, self.a.run("head -c 3000 /tmp/%s.json" % name)[1])
            job = self.a.report(name)
            check(job["error"] == 0 and job["read"]["io_bytes"] > 0, job["error"])
            self.counts["bytes_verified"] += job["read"]["io_bytes"]

    def fails(self, slot):
        """The device went while it ran: it is reported, and the slot is empty."""
        check(self.a.ended("job%d" % slot, 2 * HANG)[0] != 0, "fio did not notice")
        self.a.emptied(slot)

    def back(self, slot, ups):
        wait_count(self.a.host, r"slot %d: .* is attached" % slot, ups + 1)
        self.a.filled(slot)

    def mark(self, slot):
        """Write what is compared at the end of the round; its hash."""
        self.a.must("dd if=/dev/urandom of=/tmp/mark%d bs=1M count=%d 2>/dev/null && "
                    "dd if=/tmp/mark%d of=%s bs=64k oflag=direct conv=fsync"
                    % (slot, MARKED_MB, slot, self.a.disk(slot)), HANG)
        return self.a.must("sha256sum /tmp/mark%d" % slot).split()[0]

    def marked(self, slot):
        self.counts["bytes_verified"] += MARKED_MB << 20
        return self.a.must("dd if=%s bs=64k count=%d iflag=direct 2>/dev/null | sha256sum"
                           % (self.a.disk(slot), MARKED_MB << 4), HANG).split()[0]


# ---- Troubles: each with loads running ----

def path_flaps(w):
    """The relay, the guest's only way there, does nothing for half a second, three times."""
    w.load(DIES)
    w.load(STAYS)
    time.sleep(0.5)
    for _ in range(3):
        w.relay[STAYS].popen.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        w.relay[STAYS].popen.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    w.ends_well(STAYS, DIES)


def peer_is_slow(w):
    """The host stands still for a second, then the box."""
    w.load(STAYS)
    time.sleep(0.5)
    for process in (w.a.host, w.box[STAYS].process):
        process.popen.send_signal(signal.SIGSTOP)
        time.sleep(1)
        process.popen.send_signal(signal.SIGCONT)
    w.ends_well(STAYS)


def box_is_killed(w):
    """Contained, and the device comes back; the other slot has no error."""
    ups = w.a.attached(DIES)
    w.load(STAYS)
    w.load(DIES)
    time.sleep(1)
    w.counts["kills"] += 1
    w.box[DIES].process.kill()
    w.ends_well(STAYS)
    w.fails(DIES)
    w.box[DIES].start()
    w.back(DIES, ups)


def neighbour_is_killed(w):
    """Another host at the same box."""
    w.load(DIES)
    for _ in range(2):
        w.epoch += 1
        other = w.lab.start("dxpu-host", "--box", w.box[DIES].at, "--slot", 2, "--epoch", w.epoch,
                            "--replay", os.path.join(rooms.TESTS, "data", "memory-mixed.pcap"),
                            "--repeat", 1000000, "--quiet")
        time.sleep(0.5)
        check(other.popen.poll() is None, other.errors())
        w.counts["kills"] += 1
        other.kill()
    w.ends_well(DIES)


def leaves_and_comes(w):
    """Taken out under load by the control port, and put in again."""
    w.load(DIES)
    time.sleep(0.5)
    w.a.detach(DIES)
    w.fails(DIES)
    w.epoch += 1
    w.a.attach(DIES, w.relay[DIES].address(), 1, w.epoch)
    w.a.filled(DIES)


def days_jump(w):
    """Of host and boxes, forth and back; the host's goes on by an hour in all, since what starts
    later has its key, too (S-13)."""
    w.load(STAYS)
    for name in ("dxpu-box", "dxpu-host"):
        for jump in long_run.JUMPS:
            w.lab.jump(name, jump)
            time.sleep(0.2)
        w.lab.jump(name, -sum(long_run.JUMPS) + 3600)
    w.ends_well(STAYS)


def disk_is_full(w):
    """Writes fail where the file would have to grow, and only there; with room again all is
    well."""
    pid, whole = w.box[DIES].process.popen.pid, SIZE_MB << 20
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (whole // 2, resource.RLIM_INFINITY))

    def write(at):
        return w.a.run("dd if=/dev/zero of=%s bs=64k count=4 seek=%d oflag=direct; s=$?; "
                       "dmesg | tail -n 3; exit $s" % (w.a.disk(DIES), at), HANG)
    w.load(STAYS)
    status, output = write(400)
    check(status != 0, "a write beyond the limit went well", output)
    status, output = write(200)
    check(status == 0, "a write below the limit failed", output)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    status, output = write(400)
    check(status == 0, "it does not recover", output)
    w.ends_well(STAYS)


def memory_is_short(w):
    """No more address space than host and box have: a command for which there is no memory fails,
    and what was read is never wrong; with room again the round's end reads both disks."""
    pids = [w.a.host.popen.pid, w.box[STAYS].process.popen.pid]
    w.load(STAYS)
    time.sleep(0.5)
    for pid in pids:
        with open("/proc/%d/statm" % pid, encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (now, resource.RLIM_INFINITY))
    w.enough(STAYS)
    w.a.ended("job%d" % STAYS, 2 * HANG)
    error = w.a.report("job%d" % STAYS)["error"]
    check(error in (0, errno.EIO), "error", error)
    w.counts["loads_without_memory_failed"] += error != 0
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)


TROUBLES = (path_flaps, peer_is_slow, box_is_killed, neighbour_is_killed, leaves_and_comes,
            days_jump, disk_is_full, memory_is_short)
NEVER = "rx_errors", "tx_errors", "msis_refused", "rx_fatal"


def calm(w):
    """No load; what must never happen has not, and what the processes that stay have now."""
    time.sleep(0.5)
    for process in (w.a.host, w.box[STAYS].process):
        counted = process.statistics()
        bad = {name: counted[name] for name in NEVER if counted.get(name)}
        check(not bad, process.name, bad)
    return {"host": long_run.sizes_of_all(w.a.host.popen.pid),
            "box": long_run.sizes(w.box[STAYS].process.popen.pid),
            "box killed": long_run.sizes(w.box[DIES].process.popen.pid)}


def one_round(w, run):
    marks = {slot: w.mark(slot) for slot in w.box}
    for trouble in TROUBLES:
        start = time.monotonic()
        run.do(trouble, w)
        bad = w.a.guest.complaints()
        check(not bad, trouble.__name__, "the guest's kernel:", *bad)
        if os.environ.get("DXPU_TIMES"):
            print("# %s: %.1f s" % (trouble.__name__, time.monotonic() - start), flush=True)
    for slot, mark in marks.items():
        check(w.marked(slot) == mark, "slot", slot, "has other data")
    with open(w.lab.file("disk"), "rb") as file:
        check(hashlib.sha256(file.read(MARKED_MB << 20)).hexdigest() == marks[DIES],
              "the box's file has other data")


@case
def soak_of_a_guest():
    with long_run.Lab() as l, long_run.Soak("guest") as run:
        try:
            w = World(l, run.counts)
        except guest.Missing as missing:
            return str(missing)
        check(w.a.attached(STAYS) == 1)
        for slot in w.box:  # every page of a disk in memory that is ever written, every buffer
            w.mark(slot)
            w.load(slot)
        w.ends_well(*w.box)
        run.flat(calm(w))
        while run.more():
            one_round(w, run)
            run.flat(calm(w))
        check(w.a.attached(STAYS) == 1, "the box that stays was away", w.a.host.errors()[-1000:])
        for relay in w.relay.values():
            check(relay.stop() == 0, relay.errors())
            check(relay.result()["lost"] > 0, relay.result())
        w.a.guest.start("poweroff -f")
        check(w.a.guest.popen.wait(HANG) == 0)
        check(w.a.host.stop() == 0, w.a.host.errors()[-1000:])
        return None


if __name__ == "__main__":
    sys.exit(main(must_run=bool(long_run.MINUTES)))
