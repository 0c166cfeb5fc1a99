#!/usr/bin/env python3
"""Push rules (spec/push.md) between the programs, with an NVMe driver in this process: which
requests cross the fabric for a command, with and without them, and what the disk then holds.
Prints `ok NAME` or `not ok NAME` for each case; with --figures only a table of latencies through
relays."""
# SPDX-License-Identifier: MIT
import functools
import os
import re
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402
import nvme_client  # noqa: E402

COMMANDS, BLOCK, PAGE = 100, 512, 4096
READ, WRITE = 2, 1


class World:
    """A box with a disk, a host, and a driver at the host's socket."""

    def __init__(self, l, offered, box=(), relay=()):
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", "--memory",
                           "16M", *box)
        self.at = self.box.address()
        if relay:
            self.relay = l.start("dxpu-relay", "--to", self.at, "--json", *relay)
            self.at = self.relay.address()
        path = l.file("vm%d" % len(l.processes))
        self.host = l.start("dxpu-host", "--vfio-user", path, "--attach", "1=%s/1" % self.at,
                            "--slots", 1, *(["--push"] if offered else []))
        self.host.says("waiting for a guest")
        self.disk = nvme_client.Disk(path, 1)

    def move(self, opcode, block, data=None):
        """One command of 4 KB."""
        memory, at = self.disk.memory, nvme_client.DATA_AT
        memory[at:at + PAGE] = data if data else bytes(PAGE)
        status = self.disk.do(opcode, q=1, dw10=block * (PAGE // BLOCK), dw12=PAGE // BLOCK - 1)
        check(status == 0, status)
        return memory[at:at + PAGE]

    def count(self, name):
        """A counter of the device, now."""
        self.box.statistics()
        last = self.box.errors().rsplit("\nslot_1\n", 1)[-1]
        return int(re.search(r"^ +%s +(\d+)$" % name, last, re.M).group(1))

    def requests(self, opcode):
        """Non-posted requests on the fabric for each of COMMANDS commands: the device's reads, all
        others being the driver's, which makes none."""
        before = self.count("dma_reads")
        for i in range(COMMANDS):
            self.move(opcode, i, bytes([i]) * PAGE)
        return (self.count("dma_reads") - before) / COMMANDS

    def close(self):
        self.disk.close()
        self.host.stop()
        self.box.stop()


def in_lab(function):
    @functools.wraps(function)
    def wrapped():
        with lab.Lab() as l:
            function(l)
    return wrapped


def data(i):
    return (b"%08d" % i) * (PAGE // 8)


@case
@in_lab
def u7_no_request_for_a_read(l):
    w = World(l, True, ["--mrrs", PAGE])
    check(w.requests(READ) == 0)
    writes = w.requests(WRITE)
    check(1 <= writes <= 8 + 1, writes)  # their data, in requests as large as the driver lets it
    pushes = w.count("pushes")
    check(pushes >= 2 * COMMANDS and w.count("pushes_dropped") == 0, pushes)
    w.close()
    w = World(l, True, ["--no-push"])  # controls
    check(w.requests(READ) == 1)
    check(w.requests(WRITE) == writes + 1)
    w.close()
    w = World(l, True, ["--slot", "1=nvme,push=no"])
    check(w.requests(READ) == 1)
    w.close()
    w = World(l, False)
    check(w.requests(READ) == 1)
    check(w.count("push_rules") == 0)
    w.close()


@case
@in_lab
def u2_a_device_that_does_not_know(l):
    """A model in a process of its own gets no messages: it works as ever."""
    w = World(l, True, ["--isolate"])
    for i in range(8):
        w.move(WRITE, i, data(i))
        check(w.move(READ, i) == data(i), i)
    w.host.popen.send_signal(signal.SIGUSR1)
    said = w.host.says(r"push_rules +(\d+)\n(?:.*\n)*? +pushes +(\d+)\n")
    check(said.groups() == ("0", "0"), said.groups())
    w.close()


@case
@in_lab
def u13_what_is_written_is_read(l):
    """Through loss, with entries that go round their ring and several at a doorbell."""
    w = World(l, True, relay=["--loss", 30, "--reorder", 30])
    for i in range(0, 300, 3):
        w.move(WRITE, i, data(i))
    for i in range(0, 300, 3):
        check(w.move(READ, i) == data(i), i)
    for n in (2, 5, 17, 40):  # up to more than one push has
        at = nvme_client.DATA_AT
        cids = [w.disk.put(1, READ, prp=at + k * PAGE, dw10=3 * k * (PAGE // BLOCK),
                           dw12=PAGE // BLOCK - 1) for k in range(n)]
        w.disk.ring(1)
        check([w.disk.wait(1, cid) for cid in cids] == [0] * n, n)
        check(all(w.disk.memory[at + k * PAGE:at + (k + 1) * PAGE] == data(3 * k)
                  for k in range(n)), n)
    check(w.count("pushes") > 200)
    w.close()


@case
@in_lab
def u14_controller_reset(l):
    w = World(l, True)
    for _ in range(3):
        w.move(WRITE, 5, data(5))
        w.disk.disable()
        w.disk.enable()
        check(w.move(READ, 5) == data(5))
    check(w.requests(READ) == 0)
    w.close()


def figures():
    """Latency of a 4 KB read and write by one driver, in us, the least and the median, and requests
    of each."""
    nvme_client.Disk.pause_s = 0
    print("%-8s %-8s %8s %8s %8s %8s %8s %8s" % ("RTT us", "entries", "read", "p50", "write", "p50",
                                                 "requests", "requests"))
    with lab.Lab() as l:
        for rtt in (20, 100, 1000):
            for name, offered in (("read", False), ("pushed", True)):
                w = World(l, offered, ["--mrrs", PAGE], ["--delay-us", rtt // 2])
                row = []
                for opcode in (READ, WRITE):
                    took = []
                    for i in range(COMMANDS):
                        begin = time.monotonic()
                        w.move(opcode, i)
                        took.append((time.monotonic() - begin) * 1e6)
                    row += [min(took), statistics.median(took)]
                row += [w.requests(READ), w.requests(WRITE)]
                print("%-8d %-8s %8.0f %8.0f %8.0f %8.0f %8.2f %8.2f" % (rtt, name, *row))
                w.close()


if __name__ == "__main__":
    if "--figures" in sys.argv:
        figures()
    else:
        sys.exit(main())
