"""The story of a pool: slots are leased to a running machine, used over a bad network, lost with
their box, back, replaced by a spare, given back and wiped, while the manager dies and returns; and
a GPU is leased, on which the machine draws.

Run by a guest or by the built-in root complex (machines.py), step by step as it happens; it ends
with figures.  Beside it, the same NVMe model without a fabric (dxpu-direct) is measured in turn.
Standard library only."""
# SPDX-License-Identifier: MIT
import json
import os
import re
import socket
import signal
import statistics
import time

from lab import address
from machines import DIRECT, DIRECT_SERIAL, Failed
import picture  # from where machines.py has it

LOSS = 15  # in 1/1000, each way
SLOTS = 4
MRRS_BYTES = 4096  # as dxpu-direct has it
GRACE_MS = 2000  # how long the manager waits for a box that is gone
DEPTHS = (1, 32)


class Story:
    def __init__(self, l, machine, step, tell, fast, wait, rounds=None, screen=None):
        self.screen = screen or l.file("screen.png")
        self.lab, self.machine, self.step, self.tell = l, machine, step, tell
        self.megabytes, self.rounds = (2, rounds or 3) if fast else (16, rounds or 5)
        self.seconds = 0.3 if fast else 1
        self.wait = ("--wait", wait)
        self.registry = address(socket.SOCK_STREAM)  # where proxies find the manager
        self.api = "http://" + address(socket.SOCK_STREAM)
        self.figures = {"told_by": machine.name, "wait": wait,
                        "cores": len(os.sched_getaffinity(0))}
        self.manager = self.host = None
        self.boxes, self.leases = {}, {}

    def hold(self, truth, what):
        if not truth:
            raise Failed(what)

    def did(self, text):
        self.tell("   " + text)

    # ==== The programs ============================================================================

    def start_manager(self):
        self.manager = self.lab.start(
            "dxpu-manager", "--listen", self.registry, "--http", self.api.split("//")[1], "--store",
            self.lab.file("manager.db"), "--grace-ms", GRACE_MS)
        self.manager.says("users at")

    def joins(self, name):
        """Options of a proxy that is the pool's."""
        return ("--manager", self.registry, "--identity", self.lab.file(name + ".id"), "--name",
                name, "--json") + self.wait

    def start_host(self):
        sockets = [self.lab.file(name) for name in ("host.sock", "direct.sock")]
        self.host = self.lab.start("dxpu-host", "--vfio-user", sockets[0], "--slots", SLOTS,
                                   "--push", *self.joins("machine"))
        self.direct = self.lab.start("dxpu-direct", "--vfio-user", sockets[1], "--slots", SLOTS,
                                     "--file", self.lab.file("direct-disk"), "--size", "64M",
                                     *self.wait)
        for process in (self.host, self.direct):
            process.says("waiting for a guest")
        return sockets

    def start_box(self, name, *more):
        """A box with one NVMe controller of 64 MB; the same name again has the same disk."""
        listen = self.boxes[name].address() if name in self.boxes else "127.0.0.1:0"
        self.boxes[name] = self.lab.start(
            "dxpu-box", "--listen", listen, "--device", "nvme", "--file",
            self.lab.file(name + ".disk"), "--size", "64M", "--state",
            self.lab.file(name + ".state"), "--mrrs", MRRS_BYTES, *self.joins(name), *more)
        return self.boxes[name].address()

    def dxpu(self, *words):
        done = self.lab.run("dxpu", *words, "--manager", self.api)
        self.hold(done.status == 0, "dxpu %s: %s" % (" ".join(words[:2]), done.errors()))
        return done.output()

    def ask(self, *words):
        return json.loads(self.dxpu(*words, "--json"))

    def show_pool(self):
        self.did("$ dxpu pool")
        for line in self.dxpu("pool").splitlines():
            self.tell("     " + line)

    def until(self, truth, what, seconds=30):
        end = time.monotonic() + seconds
        while not truth():
            self.hold(time.monotonic() < end, what)
            time.sleep(0.05)

    def slots(self, **wanted):
        """Slots of the pool with these values."""
        return [s for s in self.ask("list", "slots")["slots"]
                if all(s[key] == value for key, value in wanted.items())]

    def lease(self, slot, model, *more, filled=None):
        """Lease a device into the machine's next slot; how long until its driver runs it."""
        filled = filled or self.machine.filled
        words = ("lease", "create", "--host", "machine", "--model", model, "--wait") + more
        begin = time.monotonic()
        lease = self.ask(*words)
        self.did("$ dxpu " + " ".join(words))
        self.hold([s["host_slot"] for s in lease["slots"]] == [slot], "it is another slot: %s"
                  % lease["slots"])
        self.leases[slot] = lease["lease"]
        found = filled(slot)
        took = time.monotonic() - begin
        self.did("lease %s, slot %d: %s; %.2f s after the order" % (lease["lease"], slot, found,
                                                                    took))
        return took

    def release(self, slot):
        """Give it back; how long until the machine's slot is empty, and until the data are gone."""
        words = ("lease", "release", self.leases[slot], "--wait", "--yes")
        place = self.ask("show", "lease", self.leases[slot])["slots"][0]["slot"]
        begin = time.monotonic()
        self.dxpu(*words)
        self.did("$ dxpu " + " ".join(words))
        self.machine.emptied(slot)
        took = time.monotonic() - begin
        states = [s["state"] for s in self.slots(slot=place)]
        self.hold(states in (["free"], ["spare"]), "slot %s of the pool is %s" % (place, states))
        self.did("slot %d is empty for the machine, slot %s of the pool wiped, after %.2f s"
                 % (slot, place, took))
        return took

    # ==== The steps ===============================================================================

    def boot(self):
        self.step("a manager starts; %s finds the virtual switch, its slots empty"
                  % self.machine.name)
        self.start_manager()
        self.did(self.machine.boot(self.start_host()))
        count, text = self.machine.ports()
        self.did("%d ports: %s" % (count, text))
        self.hold(count == SLOTS, "%d ports were found, not %d" % (count, SLOTS))
        for slot in range(1, SLOTS + 1):
            self.hold(self.machine.is_empty(slot), "slot %d is not empty" % slot)

    def fill(self):
        self.step("two boxes join the pool, and a controller is leased to the running machine")
        self.start_box("box-1")
        self.start_box("box-2")
        self.until(lambda: len(self.slots(connected=True, state="free")) == 2,
                   "the boxes' slots are not in the pool")
        self.until(lambda: self.ask("pool")["hosts"]["connected"] == 1, "the host is not")
        self.show_pool()
        self.figures["lease_s"] = self.lease(1, "nvme", "--no-replace")

    def use(self):
        self.step("%s writes through the fabric and verifies" % self.machine.name)
        done = self.machine.write_and_verify(1, self.megabytes)
        self.figures["verified_bytes"] = done
        self.did("%s: %d MB written, read back, no difference"
                 % (self.machine.disk_io, done >> 20))

    def lose(self):
        self.step("the same with slot 2, behind a relay that loses %.1f %% of the frames each way"
                  % (LOSS / 10))
        at = address()
        relay = self.lab.start("dxpu-relay", "--to", at, "--loss", LOSS, "--json")
        self.boxes["far"] = self.lab.start(
            "dxpu-box", "--listen", at, "--advertise", relay.address(), "--device", "nvme",
            "--model", "far", "--size", "64M", "--state", self.lab.file("far.state"),
            *self.joins("far"))
        box = self.boxes["far"]
        self.until(lambda: self.slots(model="far", connected=True), "it is not in the pool")
        before = self.host.statistics().get("tx_retransmits", 0)
        self.lease(2, "far")
        done = self.machine.write_and_verify(2, self.megabytes)
        self.did("%s: %d MB written, read back, no difference"
                 % (self.machine.disk_io, done >> 20))
        lossy = self.machine.measure(2, 32, self.seconds)
        self.release(2)
        host = self.host.statistics().get("tx_retransmits", 0) - before
        self.hold(box.stop() == 0 and relay.stop() == 0, "box or relay did not stop gracefully")
        faults, channel = relay.result(), box.result()["channel"]
        self.hold(faults["lost"] > 0, "the relay lost nothing")
        self.figures.update(lost=faults["lost"], relayed=faults["received"], resent_by_host=host,
                            resent_by_box=channel["tx_retransmits"], lossy_verified_bytes=done,
                            lossy_depth_32=lossy)
        self.did("the relay lost %d of %d frames; %d were sent again by the host, %d by the box"
                 % (faults["lost"], faults["received"], host, channel["tx_retransmits"]))

    def compare(self):
        self.step("4 KB random reads, in turn: slot 1, and the same model with no fabric%s"
                  % self.machine.caution)
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
            self.boxes[self.box_of(1)].kill()
        end = machine.load(1, kill)
        self.hold(end, "I/O to a killed box saw no error")
        self.did(end)
        machine.emptied(1)
        self.figures["removal_s"] = time.monotonic() - begin[0]
        self.did("the device is gone from the machine %.2f s after the kill"
                 % self.figures["removal_s"])
        self.hold(re.search("slot 1 .*channel lost", self.host.errors()),
                  "dxpu-host did not notice")
        machine.write_and_verify(DIRECT, 1)
        self.did("%s runs on, its other disk works" % machine.name)

    def box_of(self, slot):
        """The name of the box whose device is in the machine's slot."""
        place = self.ask("show", "lease", self.leases[slot])["slots"][0]["slot"]
        node = self.ask("show", "node", place.split(".")[0])
        return node["name"]

    def back(self):
        self.step("the box is started again: the device is back, with its data")
        begin = time.monotonic()
        self.start_box(self.box_of(1))
        self.did("slot 1: %s" % self.machine.filled(1))
        self.figures["return_s"] = time.monotonic() - begin
        self.hold(self.machine.recall(1), "what was written before the kill is not there")
        self.did("%.2f s after the start; what was written before the kill is there"
                 % self.figures["return_s"])
        self.machine.write_and_verify(1, 1)

    def orphan(self):
        self.step("the manager is killed (kill -9): the machine does not notice")
        self.manager.kill()
        self.machine.write_and_verify(1, self.megabytes)
        self.did("%s wrote and verified %d MB meanwhile" % (self.machine.name, self.megabytes))
        before = self.leases[1]
        self.start_manager()
        self.until(lambda: self.lease_state(1) == "active", "the lease is not active")
        self.did("the manager is back, and lease %s with it" % before)

    def replace(self):
        self.step("slot 1 is leased as a device that may be replaced; its box is stopped (kill "
                  "-STOP) for longer than its grace")
        self.release(1)
        self.lease(1, "nvme", "--replace")
        self.machine.remember(1)
        self.until(lambda: len(self.slots(model="nvme", state="free", connected=True)) == 1,
                   "there is no other device")
        silent, place = self.box_of(1), self.place_of(1)
        serial = self.machine.filled(1)
        begin = time.monotonic()
        self.boxes[silent].popen.send_signal(signal.SIGSTOP)
        self.machine.emptied(1)
        self.figures["replace_removal_s"] = time.monotonic() - begin
        found = self.machine.filled(1)
        self.figures["replace_s"] = time.monotonic() - begin
        self.hold(found.split("serial ")[1] != serial.split("serial ")[1], "it is the same device")
        self.did("removed after %.2f s; %.2f s after it stopped slot 1 has another: %s" % (
            self.figures["replace_removal_s"], self.figures["replace_s"], found))
        self.machine.write_and_verify(1, 1)
        why = [e for e in self.ask("events", "--type", "slot.replaced")["events"]]
        self.hold(why, "no event says why")
        self.did("the manager: %s" % why[-1]["text"])
        self.show_pool()
        self.recover(silent, place)

    def place_of(self, slot):
        """The slot of the pool behind the machine's slot."""
        return self.ask("show", "lease", self.leases[slot])["slots"][0]["slot"]

    def recover(self, box, place):
        self.step("the box goes on: what was written there is retained, and taken back")
        self.boxes[box].popen.send_signal(signal.SIGCONT)
        self.until(lambda: [s["state"] for s in self.slots(slot=place, connected=True)] ==
                   ["retained"], "slot %s is not retained" % place)
        words = ("lease", "recover", self.leases[1], "--wait")
        begin = time.monotonic()
        self.dxpu(*words)
        self.did("$ dxpu " + " ".join(words))
        self.hold(self.place_of(1) == place, "the lease has %s" % self.place_of(1))
        self.did("slot 1: %s" % self.machine.filled(1))
        self.figures["recover_s"] = time.monotonic() - begin
        self.hold(self.machine.recall(1), "what was written before the box stopped is not there")
        self.did("%.2f s after the order slot 1 has its device again, with its data"
                 % self.figures["recover_s"])
        self.dxpu("lease", "discard", self.leases[1], "--yes")

    def outlast(self):
        self.step("the same when no other device is free: the lease waits for its box")
        self.until(lambda: len(self.slots(model="nvme", state="free")) == 1,
                   "what was discarded is not wiped")
        self.lease(2, "nvme")
        self.hold(not self.slots(model="nvme", state="free"), "a device is free")
        self.machine.remember(1)
        silent, place = self.box_of(1), self.place_of(1)
        begin = time.monotonic()
        self.boxes[silent].popen.send_signal(signal.SIGSTOP)
        self.machine.emptied(1)
        self.until(lambda: self.slots(slot=place)[0]["state"] == "broken",
                   "slot %s is not given up" % place)
        self.did("%.2f s after it stopped slot %s is broken, and still the lease's: %s"
                 % (time.monotonic() - begin, place, self.lease_state(1)))
        self.hold(self.lease_state(1) == "degraded", "the lease is %s" % self.lease_state(1))
        self.boxes[silent].popen.send_signal(signal.SIGCONT)
        begin = time.monotonic()
        found = self.machine.filled(1)
        self.figures["outlast_s"] = time.monotonic() - begin
        self.hold(self.place_of(1) == place, "the lease has %s" % self.place_of(1))
        self.hold(self.machine.recall(1), "what was written before the box stopped is not there")
        self.did("slot 1, %.2f s after the box went on: %s; its data are there"
                 % (self.figures["outlast_s"], found))
        self.until(lambda: self.lease_state(1) == "active", "the lease is not active")
        self.release(2)

    def lease_state(self, slot):
        return self.ask("show", "lease", self.leases[slot])["state"]

    def empty(self):
        self.step("the lease is given back; what the tenant wrote is wiped, and that verified")
        self.figures["release_s"] = self.release(1)
        self.show_pool()

    def draw(self):
        if self.machine.no_display:
            self.did("no display adapter is lent: %s" % self.machine.no_display)
            return
        self.step("a third box has a GPU: it is lent, and the guest draws on it through the fabric")
        check = self.lab.run("dxpu-render", "--check")
        how = "software" if check.status == 0 else "none"
        if check.status:
            self.did("2D alone: %s" % check.errors().strip()[-200:])
        box = self.boxes["box-3"] = self.lab.start(
            "dxpu-box", "--listen", "127.0.0.1:0", "--device", "virtio-gpu", "--state",
            self.lab.file("box-3.state"), "--control", ":0", *self.joins("box-3"),
            *(("--render",) if how == "software" else ()))
        control = box.says(r"control port (\S+:\d+)\n").group(1)
        self.until(lambda: self.slots(model="gpu", connected=True), "it is not in the pool")
        self.lease(1, "gpu", "--attributes", "render=" + how, filled=self.drawn)
        took = self.shot(control)
        self.figures["drawn"] = self.drew
        self.did("%.2f s later each of the %d pixels was seen at the box, and right"
                 % (took, 640 * 480))
        self.did("look at it: %s" % self.screen)

    def drawn(self, slot):
        driver, self.drew = self.machine.draws(slot)
        return "driver %s, %s" % (driver, {"2d": "drawn by the guest's processor",
                                           "3d": "drawn at the box, by 3D commands of the guest"}
                                  [self.drew])

    def shot(self, control):
        """Until the picture at the box is what the guest has drawn; how long."""
        begin = time.monotonic()
        while True:
            done = self.lab.run("dxpu", "screenshot", control, 1, self.screen)
            wrong = picture.wrong_shades(*picture.read(self.screen)) if not done.status else None
            if wrong == 0:
                return time.monotonic() - begin
            self.hold(time.monotonic() < begin + 30, "the picture: %s pixels are wrong; %s"
                      % (wrong, done.errors()))
            time.sleep(0.2)

    def end(self):
        self.step("everything shuts down")
        self.hold(self.machine.close(), "%s did not end gracefully" % self.machine.name)
        if "drawn" in self.figures:  # a GPU keeps nothing: there is nothing to confirm
            self.hold(self.ask("show", "lease", self.leases[1])["data"] == "none", "it has data")
            self.dxpu("lease", "release", self.leases[1], "--wait")
        running = [box for box in self.boxes.values() if box.popen.poll() is None]
        for process in [self.host, self.direct, self.manager] + running:
            self.hold(process.stop() == 0, "%s: %s" % (process.name, process.errors()[-500:]))
        refused = [self.host.result()["slot_%d" % n]["refused"] for n in (1, 2)]
        self.hold(refused == [0, 0], "the host refused %s TLPs" % refused)
        self.did("the machine and all programs: no error; no TLP was refused")

    def run(self):
        """All steps; raises Failed, or whatever else went wrong."""
        for one in (self.boot, self.fill, self.use, self.lose, self.compare, self.kill, self.back,
                    self.orphan, self.replace, self.outlast, self.empty, self.draw):
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
            ("  with / without, median of the rounds' ratios",
             "%.2f of the IOPS, %.2f times the p50" % (ratio["iops"], ratio["p50_us"]))]
    rows += [
        ("depth 32 with %.1f %% loss each way" % (LOSS / 10), speed(figures["lossy_depth_32"])),
        ("frames lost at the relay", "%d of %d" % (figures["lost"], figures["relayed"])),
        ("frames sent again by host / box",
         "%d / %d" % (figures["resent_by_host"], figures["resent_by_box"])),
        ("data verified through the fabric / with loss", "%d / %d MB" % (
            figures["verified_bytes"] >> 20, figures["lossy_verified_bytes"] >> 20)),
        ("lease: order to device in use", "%.2f s" % figures["lease_s"]),
        ("box killed to device gone", "%.2f s" % figures["removal_s"]),
        ("box started to device in use", "%.2f s" % figures["return_s"]),
        ("box stopped to another device in use (%.1f s of them its grace period)"
         % (GRACE_MS / 1e3), "%.2f s" % figures["replace_s"]),
        ("box back, no other device free: to device in use", "%.2f s" % figures["outlast_s"]),
        ("release: order to slot empty and wiped", "%.2f s" % figures["release_s"]),
    ]
    return rows
