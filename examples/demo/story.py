"""The story of one slot: empty, filled, used over a bad network, lost with its box, back, emptied.

Told by a guest or by the built-in root complex (machines.py), step by step as it happens; it ends
with figures.  Beside it, the same NVMe model without a fabric (dxpu-direct) is measured by turns.
Standard library only."""
# SPDX-License-Identifier: MIT
import os
import re
import socket
import statistics
import time

from machines import DIRECT, DIRECT_SERIAL, Failed

LOSS = 15  # in 1/1000, each way
SLOTS = 4
DEPTHS = (1, 32)


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


class Story:
    def __init__(self, l, machine, step, tell, fast, wait):
        self.lab, self.machine, self.step, self.tell = l, machine, step, tell
        self.megabytes, self.rounds = (2, 3) if fast else (16, 5)
        self.seconds = 0.3 if fast else 1
        self.wait = ("--wait", wait)
        self.at = free_port(socket.SOCK_DGRAM)
        self.control = free_port(socket.SOCK_STREAM)
        self.figures = {"told_by": machine.name, "wait": wait,
                        "cores": len(os.sched_getaffinity(0))}
        self.host = self.box = None

    def hold(self, truth, what):
        if not truth:
            raise Failed(what)

    def did(self, text):
        self.tell("   " + text)

    # ==== The proxies =============================================================================

    def start_host(self):
        sockets = [self.lab.file(name) for name in ("host.sock", "direct.sock")]
        self.host = self.lab.start("dxpu-host", "--vfio-user", sockets[0], "--slots", SLOTS,
                                   "--control", self.control, "--json", *self.wait)
        self.direct = self.lab.start("dxpu-direct", "--vfio-user", sockets[1], "--slots", SLOTS,
                                     "--file", self.lab.file("direct-disk"), "--size", "64M",
                                     *self.wait)
        for process in (self.host, self.direct):
            process.says("waiting for a guest")
        return sockets

    def start_box(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "nvme", "--file",
                                  self.lab.file("disk"), "--size", "64M", "--node", 10, "--json",
                                  *self.wait)
        self.box.address()

    def order(self, *words):
        done = self.lab.run("dxpu", *words)
        self.hold(done.status == 0, "dxpu %s: %s" % (words[0], done.errors()))
        return done.output().strip()

    def attach(self, slot, box):
        """Fill a slot; how long until the driver runs the device."""
        begin = time.monotonic()
        self.order("attach", "--wait", self.control, slot, box, 1)
        self.did("$ dxpu attach --wait %s %d %s 1" % (self.control, slot, box))
        found = self.machine.filled(slot)
        took = time.monotonic() - begin
        self.did("slot %d: %s; %.2f s after the order" % (slot, found, took))
        return took

    def detach(self, slot):
        begin = time.monotonic()
        self.order("detach", "--wait", self.control, slot)
        self.did("$ dxpu detach --wait %s %d" % (self.control, slot))
        self.machine.emptied(slot)
        took = time.monotonic() - begin
        self.did("slot %d is empty for the machine %.2f s after the order" % (slot, took))
        return took

    # ==== The steps ===============================================================================

    def boot(self):
        self.step("%s starts and finds the virtual switch, its slots empty" % self.machine.name)
        self.did(self.machine.boot(self.start_host()))
        count, text = self.machine.ports()
        self.did("%d ports: %s" % (count, text))
        self.hold(count == SLOTS, "%d ports were found, not %d" % (count, SLOTS))
        for slot in range(1, SLOTS + 1):
            self.hold(self.machine.is_empty(slot), "slot %d is not empty" % slot)

    def fill(self):
        self.step("a box is started, its NVMe controller put into slot 1 of the running machine")
        self.start_box()
        self.figures["attach_s"] = self.attach(1, self.at)

    def use(self):
        self.step("%s writes through the fabric and verifies" % self.machine.name)
        done = self.machine.write_and_verify(1, self.megabytes)
        self.figures["verified_bytes"] = done
        self.did("%s: %d MB written, read back, no difference"
                 % (self.machine.disk_io, done >> 20))

    def lose(self):
        self.step("the same with slot 2, behind a relay that loses %.1f %% of the frames each way"
                  % (LOSS / 10))
        box = self.lab.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", "--size",
                             "64M", "--node", 11, "--json", *self.wait)
        relay = self.lab.start("dxpu-relay", "--to", box.address(), "--loss", LOSS, "--json")
        before = self.host.statistics().get("tx_retransmits", 0)
        self.attach(2, relay.address())
        done = self.machine.write_and_verify(2, self.megabytes)
        self.did("%s: %d MB written, read back, no difference"
                 % (self.machine.disk_io, done >> 20))
        lossy = self.machine.measure(2, 32, self.seconds)
        self.detach(2)
        host = self.host.statistics().get("tx_retransmits", 0) - before
        self.hold(box.stop() == 0 and relay.stop() == 0, "box or relay did not stop in order")
        faults, channel = relay.result(), box.result()["channel"]
        self.hold(faults["lost"] > 0, "the relay lost nothing")
        self.figures.update(lost=faults["lost"], relayed=faults["received"], resent_by_host=host,
                            resent_by_box=channel["tx_retransmits"], lossy_verified_bytes=done,
                            lossy_depth_32=lossy)
        self.did("the relay lost %d of %d frames; %d were sent again by the host, %d by the box"
                 % (faults["lost"], faults["received"], host, channel["tx_retransmits"]))

    def compare(self):
        self.step("4 KB random reads, by turns: slot 1, and the same model with no fabric")
        found = self.machine.filled(DIRECT)
        self.did("without a fabric: %s" % found)
        self.hold(found.endswith(DIRECT_SERIAL), "that is another device")
        taken = {(place, depth): [] for depth in DEPTHS for place in (1, DIRECT)}
        for _ in range(self.rounds):
            for place, depth in taken:
                taken[place, depth].append(self.machine.measure(place, depth, self.seconds))
        for (place, depth), rounds in taken.items():
            middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
            where = "fabric" if place else "direct"
            self.figures["%s_depth_%d" % (where, depth)] = middle
            self.did("depth %-2d %s %s" % (depth, "slot 1:   " if place else "no fabric:",
                                         speed(middle)))
        for depth in DEPTHS:  # of measurements that follow each other, since the load changes
            pairs = list(zip(taken[1, depth], taken[DIRECT, depth]))
            self.figures["ratio_depth_%d" % depth] = {
                key: statistics.median(fabric[key] / direct[key] for fabric, direct in pairs)
                for key in ("iops", "p50_us")}

    def kill(self):
        self.step("the box is killed (kill -9) under I/O: a surprise removal")
        machine, begin = self.machine, []
        machine.remember(1)

        def kill():
            begin.append(time.monotonic())
            self.box.kill()
        end = machine.load(1, kill)
        self.hold(end, "I/O to a killed box saw no error")
        self.did(end)
        machine.emptied(1)
        self.figures["removal_s"] = time.monotonic() - begin[0]
        self.did("the device is gone from the machine %.2f s after the kill"
                 % self.figures["removal_s"])
        self.hold(re.search("slot 1: .*channel lost", self.host.errors()),
                  "dxpu-host did not notice")
        machine.write_and_verify(DIRECT, 1)
        self.did("%s runs on, its other disk works" % machine.name)

    def back(self):
        self.step("the box is started again: the device is back, with its data")
        begin = time.monotonic()
        self.start_box()
        self.did("slot 1: %s" % self.machine.filled(1))
        self.figures["return_s"] = time.monotonic() - begin
        self.hold(self.machine.recall(1), "what was written before the kill is not there")
        self.did("%.2f s after the start; what was written before the kill is there"
                 % self.figures["return_s"])
        self.machine.write_and_verify(1, 1)

    def empty(self):
        self.step("slot 1 is emptied")
        self.figures["detach_s"] = self.detach(1)

    def end(self):
        self.step("everything stops in order")
        self.hold(self.machine.close(), "%s did not end in order" % self.machine.name)
        for process in (self.host, self.box, self.direct):
            self.hold(process.stop() == 0, "%s: %s" % (process.name, process.errors()[-500:]))
        refused = [self.host.result()["slot_%d" % n]["refused"] for n in (1, 2)]
        self.hold(refused == [0, 0], "the host refused %s TLPs" % refused)
        self.did("the machine, dxpu-host, dxpu-box, dxpu-direct: no error; no TLP was refused")

    def run(self):
        """All steps; raises Failed, or whatever else went wrong."""
        for one in (self.boot, self.fill, self.use, self.lose, self.compare, self.kill, self.back,
                    self.empty):
            one()
            bad = self.machine.complaints()
            self.hold(not bad, "the guest's kernel complains: %s" % bad)
        self.end()


def speed(figures):
    return "%.0f IOPS, p50 %.0f us, p99 %.0f us" % (figures["iops"], figures["p50_us"],
                                                    figures["p99_us"])


def table(figures):
    """Rows of text for people."""
    rows = [("cores that all of it shares; how proxies wait",
             "%d; %s" % (figures["cores"], figures["wait"]))]
    for depth in DEPTHS:
        ratio = figures["ratio_depth_%d" % depth]
        rows += [
            ("4k random read, depth %d, through the fabric" % depth,
             speed(figures["fabric_depth_%d" % depth])),
            ("  the same model without a fabric", speed(figures["direct_depth_%d" % depth])),
            ("  ratio, with / without", "%.2f of the IOPS, %.2f times the p50" % (
                ratio["iops"], ratio["p50_us"]))]
    rows += [
        ("depth 32 with %.1f %% loss each way" % (LOSS / 10), speed(figures["lossy_depth_32"])),
        ("frames lost at the relay", "%d of %d" % (figures["lost"], figures["relayed"])),
        ("frames sent again by host / box",
         "%d / %d" % (figures["resent_by_host"], figures["resent_by_box"])),
        ("data verified through the fabric / with loss", "%d / %d MB" % (
            figures["verified_bytes"] >> 20, figures["lossy_verified_bytes"] >> 20)),
        ("attach: order to device in use", "%.2f s" % figures["attach_s"]),
        ("box killed to device gone", "%.2f s" % figures["removal_s"]),
        ("box started to device in use", "%.2f s" % figures["return_s"]),
        ("detach: order to slot empty", "%.2f s" % figures["detach_s"]),
    ]
    return rows
