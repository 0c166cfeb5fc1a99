#!/usr/bin/env python3
"""Hosts that share one NVMe drive: controllers of one subsystem in a box's slots, each lent to a
dxpu-host of its own with a driver (nvme_client.py).

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import os
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402
import net_functions  # noqa: E402
import nvme_client  # noqa: E402

V4 = "127.0.0.1:0"
HOSTS, DEPTH, BLOCK = 30, 4, 4096
WHOLE = bool(os.environ.get("DXPU_WHOLE"))
ROUNDS = 400 if WHOLE else 40  # commands of each host, on average
MEMORY = 9 << 20
WRITE, READ, REGISTER, ACQUIRE, RELEASE = 0x01, 0x02, 0x0d, 0x11, 0x15
CONFLICT = 0x83
KEYS_AT = nvme_client.DATA_AT + 64 * 1024


class Host:
    """Number n of a drive's hosts: a dxpu-host, and the driver of its guest."""

    def __init__(self, l, box, n, epoch=1):
        path = l.file("vm%d-%d" % (n, epoch))
        self.n, self.left = n, {}
        self.process = l.start("dxpu-host", "--vfio-user", path, "--node", 100 + n, "--slots", 1,
                               "--attach", "1=%s/%d/%d" % (box, n, epoch))
        self.path, self.ended = path, 0
        self.written = {}

    def boot(self):
        self.process.says("waiting for a guest")
        self.disk = nvme_client.Disk(self.path, 1, MEMORY)
        self.disk.memory[nvme_client.DATA_AT:nvme_client.DATA_AT + 16] = struct.pack(
            "<QQ", 0xd0 + self.n, 0)
        self.disk.must(0x09, nsid=0, dw10=0x81)  # the host's identifier
        return self

    def reserve(self, opcode, dw10, key, other=0):
        self.disk.memory[KEYS_AT:KEYS_AT + 16] = struct.pack("<QQ", key, other)
        return self.disk.do(opcode, q=1, prp=KEYS_AT, dw10=dw10)

    def register(self):
        check(self.reserve(REGISTER, 0, 0, self.n) == 0)

    def move(self, opcode, block, where=0):
        """Status of one block's command."""
        return self.disk.do(opcode, q=1, prp=nvme_client.DATA_AT + where * BLOCK, dw10=block)

    # -- Verified load: DEPTH commands at once, each writes a block or reads one back --

    def pattern(self, block, count):
        return struct.pack("<IIQ", self.n, block, count) * (BLOCK // 16)

    def begin(self, place):
        at = nvme_client.DATA_AT + place * BLOCK
        block = self.n * 64 + place * 8 + self.ended % 8
        if block in self.written and self.ended % 3:
            self.disk.memory[at:at + BLOCK] = bytes(BLOCK)
            opcode = READ
        else:
            self.written[block] = self.ended
            self.disk.memory[at:at + BLOCK] = self.pattern(block, self.ended)
            opcode = WRITE
        self.left[self.disk.put(1, opcode, prp=at, dw10=block)] = (opcode, place, block)

    def work(self):
        """What is over, verified, and as many further ones; how many."""
        self.disk.reap(1)
        over = [cid for cid in self.left if cid in self.disk.done]
        for cid in over:
            opcode, place, block = self.left.pop(cid)
            check(self.disk.done.pop(cid) == 0, "host", self.n, opcode)
            at = nvme_client.DATA_AT + place * BLOCK
            if opcode == READ:
                check(self.disk.memory[at:at + BLOCK] == self.pattern(block, self.written[block]))
            self.ended += 1
            self.begin(place)
        if over:
            self.disk.ring(1)
        return len(over)


def start(l, slots, *more):
    image = l.file("image")
    options = [x for n in range(1, slots + 1) for x in
               ("--slot", "%d=nvme,subsystem=a,block=4096,size=16M,file=%s" % (n, image))]
    box = l.start("dxpu-box", "--listen", V4, "--slots", slots, "--json", *options, *more)
    return box, box.address()


@case
def thirty_hosts_of_one_drive():
    """Each reads what it has written, then what another one has; none starves."""
    with lab.Lab() as l:
        box, to = start(l, HOSTS)
        hosts = [Host(l, to, n) for n in range(1, HOSTS + 1)]
        for host in hosts:
            host.boot()
        for host in hosts:
            for place in range(DEPTH):
                host.begin(place)
            host.disk.ring(1)
        total, end = 0, time.monotonic() + 120
        while total < HOSTS * ROUNDS:
            total += sum(host.work() for host in hosts)
            check(time.monotonic() < end, "only", total)
        slowest = min(host.ended for host in hosts)
        print("# %d commands, the slowest host %d" % (total, slowest))
        check(slowest * 2 * HOSTS >= total, [host.ended for host in hosts])
        for host in hosts:
            while host.left:
                host.disk.reap(1)
                host.left = {c: x for c, x in host.left.items() if c not in host.disk.done}
        for host, other in zip(hosts, hosts[1:] + hosts[:1]):
            block, count = next(iter(other.written.items()))
            check(host.move(READ, block) == 0)
            at = nvme_client.DATA_AT
            check(host.disk.memory[at:at + BLOCK] == other.pattern(block, other.written[block]),
                  host.n, block, count)
        check(box.stop() == 0, box.errors())
        counts = box.result()["proxy"]  # only the slots with work have turns
        check(counts["unannounced"] == 0 and 10 * counts["unseen"] < total, counts)


def shares(box, hosts, kib):
    """TLPs that the drive has sent each host when half of all are sent: the hosts have full queues
    of reads there, and their drivers do nothing more.  If all are sent, it is too late to see any
    shares."""
    count = len(hosts)
    begun = net_functions.emitted(box, count)

    def half():
        now = [x - y for x, y in zip(net_functions.emitted(box, count), begun)]
        return sum(now) * 2 >= count * 62 * (kib << 10) // 512 and now
    for host in hosts:
        net_functions.queue_reads(host, kib)
    for host in hosts:
        host.disk.ring(1)
    now = until(half, "half is sent", 120)
    for host in hosts:
        until(lambda: host.disk.reap(1) or len(host.disk.done) == 62, "all are over", 120)
        check(not any(host.disk.done.values()), host.n, host.disk.done)
        host.disk.done.clear()
    return now


@case
def full_queues_of_all_hosts():
    """When more waits at the drive than it does at once, each host has half of an equal share or
    more, by the box's count.  All data are right."""
    count, kib = (HOSTS, 256) if WHOLE else (8, 128)
    with lab.Lab() as l:
        data = os.urandom(kib << 10)
        with open(l.file("image"), "wb") as file:
            file.write(data)
            file.truncate(16 << 20)
        box, to = start(l, count)
        hosts = [Host(l, to, n).boot() for n in range(1, count + 1)]
        total, best = count * 62 * (kib << 10) // 512, 0
        for _ in range(5):  # a busy machine may keep a host's process from its turn
            now = shares(box, hosts, kib)
            share = min(now) * count / sum(now) if sum(now) < total else 0
            print("# of %d TLPs %d, the slowest host %.2f of an equal share" %
                  (total, sum(now), share))
            best = max(best, share)
            if best >= 0.5:
                break
        check(best >= 0.5, "of an equal share", best)
        at = nvme_client.DATA_AT
        for host in hosts:
            check(host.disk.memory[at:at + len(data)] == data, host.n)
        check(box.stop() == 0, box.errors())


@case
def s249_a_holder_is_killed_and_fenced():
    """Its reservation stays; another host takes it, is informed, and so are all; the box's loss of
    power changes nothing."""
    with lab.Lab() as l:
        box, to = start(l, 4, "--state", l.file("state"))
        hosts = [Host(l, to, n) for n in range(1, 5)]
        for host in hosts:
            host.boot()
        holder, second, third, stranger = hosts
        for host in hosts[:3]:
            host.register()
            host.event = host.disk.put(0, 0x0c, nsid=0)
            host.disk.ring(0)
        check(holder.reserve(ACQUIRE, 1 << 8, holder.n) == 0)  # write exclusive
        check(holder.move(WRITE, 1) == 0 and second.move(WRITE, 1) == CONFLICT)
        check(stranger.move(READ, 1) == 0)
        holder.process.kill()
        for host in (second, stranger):
            check(host.move(WRITE, 1) == CONFLICT, "the holder is lost, what it holds is not")
        check(stranger.reserve(ACQUIRE, 3 << 8 | 1, stranger.n, holder.n) == CONFLICT)
        check(second.reserve(ACQUIRE, 3 << 8 | 2, second.n, holder.n) == 0)  # preempt and abort
        check(second.move(WRITE, 1) == 0 and third.move(WRITE, 1) == 0)  # registrants only
        check(stranger.move(WRITE, 1) == CONFLICT)
        again = Host(l, to, 1, epoch=2).boot()
        check(again.move(WRITE, 1) == CONFLICT)  # the host is back, and fenced
        check(second.reserve(RELEASE, 3 << 8, second.n) == 0)
        check(third.disk.wait(0, third.event) == 0)  # it had access by that
        # kept over the loss of the box's power: CPTPL
        check(second.reserve(REGISTER, 3 << 30 | 2, second.n, second.n) == 0)
        check(second.reserve(ACQUIRE, 2 << 8, second.n) == 0)
        box.kill()
        for process in [host.process for host in hosts[1:]] + [again.process]:
            process.kill()
        box, to = start(l, 4, "--state", l.file("state"))
        second, stranger = Host(l, to, 2, epoch=3).boot(), Host(l, to, 4, epoch=3).boot()
        check(stranger.move(READ, 1) == CONFLICT and stranger.move(WRITE, 1) == CONFLICT)
        check(second.move(READ, 1) == 0 and second.move(WRITE, 1) == 0)
        check(box.stop() == 0, box.errors())


@case
def usage_of_subsystems():
    with lab.Lab() as l:
        one = "1=nvme,subsystem=a,size=1M,file=" + l.file("x")
        for wrong, status, says in (
                (("--slot", "1=memory,subsystem=a"), 2, "is for nvme"),
                (("--slot", one, "--slot", "2=nvme,subsystem=a,size=1M,file=" + l.file("y")), 3,
                 "the same files"),
                (("--slot", one, "--slot", "2" + one[1:] + ",block=4096"), 3,
                 "the same block size"),
                (("--slot", one, "--isolate"), 3, "cannot be used with --isolate"),
                (("--slot", one, "--slot", "2" + one[1:], "--cores", 2), 2, "2 apart")):
            done = l.run("dxpu-box", "--listen", V4, "--slots", 3, *wrong)
            check(done.status == status and says in done.errors(), done.status, done.errors())
        fits = l.start("dxpu-box", "--listen", V4, "--slots", 3, "--slot", one, "--slot",
                       "3" + one[1:], "--cores", 2)
        fits.address()
        check(fits.stop() == 0, fits.errors())


if __name__ == "__main__":
    sys.exit(main())
