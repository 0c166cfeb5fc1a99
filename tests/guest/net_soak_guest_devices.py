#!/usr/bin/env python3
"""A long run of a stock guest with a display adapter, a network adapter and a disk of three boxes,
each through a network that loses, doubles and reorders: under various troubles all three are used
at once, what they do is verified, and nothing grows.

The guest draws 3D without Mesa and compares each pixel, sends data to a server and compares what
comes back, and runs fio with verification.  In each round every path does nothing for a while, the
renderer is killed, and so are the boxes of disk and network adapter; what is not concerned has no
error.  One round, or rounds for DXPU_SOAK_MINUTES (make soak).

Prints `ok NAME`, `not ok NAME` or `skip NAME`; a long run that cannot be done has failed.  Programs
come from $DXPU_BIN, else build/."""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import desktop  # noqa: E402
import guest  # noqa: E402
import lab  # noqa: E402
import kind_network as net  # noqa: E402
import soak as long_run  # noqa: E402
import suite  # noqa: E402
from suite import HANG  # noqa: E402

HOLD = "--hold-ms", 3000  # longer than any stop below, on a busy machine too
BAD = "--loss", 10, "--duplicate", 10, "--reorder", 10
GPU, NIC, DISK = 1, 2, 3  # slots
NAMES = {GPU: "gpu", NIC: "nic", DISK: "disk"}
KILOBYTES = 256  # of a transfer
FIO = ("fio --name=j --filename=%s --direct=1 --ioengine=libaio --allow_file_create=0 "
       "--rw=randwrite --bsrange=512-64k --iodepth=8 --size=4m --verify=crc32c --verify_fatal=1 "
       "--verify_backlog=32 --randrepeat=0")
# One turn of each load; it is repeated until /tmp/enough is there, or fails.
TURNS = {GPU: "virgl %s 10" % desktop.NODE,
         NIC: "nc -w 60 {0} 5001 </tmp/a && nc -w 60 {0} 5000 </dev/null >/tmp/b && "
              "cmp /tmp/a /tmp/b".format(net.SERVER),
         DISK: None}


class World:
    def __init__(self, l, counts, space):
        desktop.can_render()
        self.lab, self.counts, self.space = l, counts, space
        tools = desktop.newest()
        modules = desktop.modules(tools)
        modules.update({n: p for n, p in suite.modules(tools, net.MODULES).items()
                        if n not in modules})
        self.options = {GPU: ("virtio-gpu", "--render"), NIC: ("virtio-net", "--tap", space.tap),
                        DISK: ("nvme", "--size", "32M", "--file", l.file("disk"))}
        self.at = {slot: lab.address() for slot in NAMES}
        self.relay = {slot: l.start("dxpu-relay", "--to", at, "--json", "--seed", slot, *BAD)
                      for slot, at in self.at.items()}
        self.box, self.server = {}, None
        for slot in NAMES:
            self.start_box(slot)
        path = l.file("host.sock")
        self.host = l.start("dxpu-host", "--vfio-user", path, "--slots", 3, "--topology",
                            "root-ports", "--attach", ",".join(
                                "%d=%s/1" % (slot, r.address()) for slot, r in self.relay.items()),
                            "--json", *HOLD)
        self.host.says("waiting for a guest")
        initrd = guest.initramfs(l.file("initrd"), suite.program(l, "virgl"), *modules.values())
        self.guest = guest.Guest(l, "a", tools, initrd, path, cpus=2)
        self.guest.ready()
        for module in modules:
            self.guest.must("insmod /modules/%s.ko" % module)
        desktop.arrived(self.guest)
        self.guest.must("dd if=/dev/urandom of=/tmp/a bs=1k count=%d 2>/dev/null" % KILOBYTES)
        for slot in (NIC, DISK):
            self.there(slot)

    def start_box(self, slot):
        os.environ["DXPU_TEST_BOX"] = NAMES[slot]
        self.box[slot] = self.lab.start("dxpu-box", "--listen", self.at[slot], "--device",
                                        *self.options[slot], "--json", *HOLD)
        self.box[slot].address()
        if slot == NIC:
            self.space.move()
            self.server = subprocess.Popen(
                ["ip", "netns", "exec", self.space.name, sys.executable, "-c", net.SERVE],
                stdout=subprocess.DEVNULL)

    def kill_box(self, slot):
        self.counts["kills"] += 1
        self.box[slot].kill()
        if slot == NIC:
            self.end_server()
            self.space.back()

    def end_server(self):
        self.server.kill()
        self.server.wait()

    def there(self, slot):
        g = self.guest
        if slot == NIC:
            g.wait_for("[ -e /sys/class/net/eth0 ]", HANG)
            # without IPv6, whose groups are commands that a driver waits for without a limit
            g.must("echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; ip link set eth0 up; "
                   "ip addr add %s/24 dev eth0" % net.CLIENT)
        else:
            g.wait_for("ls /dev/nvme*n1", HANG)
            self.disk = g.must("ls /dev/nvme*n1").split()[0]

    def load(self, *slots):
        """Each is under way: a turn of it is over."""
        g = self.guest
        g.must("rm -f /tmp/enough")
        for slot in slots:
            name = NAMES[slot]
            turn = TURNS[slot] or FIO % self.disk
            g.must("rm -f /tmp/%s.*; (until [ -e /tmp/enough ]; do (%s) >/tmp/%s.said 2>&1 || "
                   "break; echo >>/tmp/%s.turns; done; echo >/tmp/%s.over) >/dev/null 2>&1 &" % (
                       name, turn, name, name, name))
        for slot in slots:
            g.wait_for("[ -s /tmp/%s.turns ] || [ -e /tmp/%s.over ]" % ((NAMES[slot],) * 2), HANG)

    def is_over(self, slot):
        return self.guest.run("[ -e /tmp/%s.over ]" % NAMES[slot])[0] == 0

    def ends_well(self, *slots):
        """All still run, and end without an error."""
        for slot in slots:
            check(not self.is_over(slot), NAMES[slot],
                  self.guest.run("tail -c 2000 /tmp/%s.said" % NAMES[slot])[1])
        self.guest.must(": >/tmp/enough")
        for slot in slots:
            name = NAMES[slot]
            self.guest.wait_for("[ -e /tmp/%s.over ]" % name, 2 * HANG)
            said = self.guest.run("tail -c 2000 /tmp/%s.said" % name)[1]
            check("FAILED" not in said and "differ" not in said and "error" not in said, said)
            self.counts[name + "_turns"] += int(self.guest.must("wc -l </tmp/%s.turns" % name))

    def fails(self, slot):
        self.guest.wait_for("[ -e /tmp/%s.over ]" % NAMES[slot], 2 * HANG)


# ---- Troubles: each with loads running ----

def paths_flap(w):
    w.load(GPU, NIC, DISK)
    for relay in w.relay.values():
        relay.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        relay.popen.send_signal(signal.SIGCONT)
    w.ends_well(GPU, NIC, DISK)


def boxes_are_slow(w):
    w.load(GPU, NIC, DISK)
    for box in w.box.values():
        box.popen.send_signal(signal.SIGSTOP)
    time.sleep(1)
    for box in w.box.values():
        box.popen.send_signal(signal.SIGCONT)
    w.ends_well(GPU, NIC, DISK)


def renderer_is_killed(w):
    w.load(GPU, NIC, DISK)
    before = desktop.renderers(NAMES[GPU])
    check(len(before) == 1, before)
    os.kill(before[0], signal.SIGKILL)
    w.counts["renderers_killed"] += 1
    w.fails(GPU)
    w.ends_well(NIC, DISK)
    w.load(GPU)  # with another
    w.ends_well(GPU)


def disk_is_lost(w):
    w.load(GPU, NIC, DISK)
    w.kill_box(DISK)
    w.fails(DISK)
    w.guest.wait_for("[ ! -e %s ]" % w.disk, HANG)
    w.ends_well(GPU, NIC)
    w.start_box(DISK)
    w.there(DISK)


def adapter_is_lost(w):
    w.load(GPU, NIC, DISK)
    w.kill_box(NIC)
    w.guest.wait_for("[ ! -e /sys/class/net/eth0 ]", HANG)
    w.guest.run("killall nc")
    w.fails(NIC)
    w.ends_well(GPU, DISK)
    w.start_box(NIC)
    w.there(NIC)


TROUBLES = paths_flap, boxes_are_slow, renderer_is_killed, disk_is_lost, adapter_is_lost


def calm(w):
    """No load; what the processes that stay have now."""
    w.load(GPU, NIC, DISK)
    w.ends_well(GPU, NIC, DISK)
    time.sleep(0.5)
    waiting = w.guest.must(suite.WAITING)
    check(not waiting, "tasks wait:", waiting)
    return {"host": long_run.sizes_of_all(w.host.popen.pid),
            "gpu's box": long_run.sizes(w.box[GPU].popen.pid)}


def one_round(w, run):
    for trouble in TROUBLES:
        start = time.monotonic()
        run.do(trouble, w)
        bad = w.guest.complaints()
        check(not bad, trouble.__name__, "the guest's kernel:", *bad)
        if os.environ.get("DXPU_TIMES"):
            print("# %s: %.1f s" % (trouble.__name__, time.monotonic() - start), flush=True)


def end(w):
    for relay in w.relay.values():
        check(relay.stop() == 0, relay.errors())
        check(relay.result()["lost"] > 0, relay.result())
    w.guest.kill()
    check(w.host.stop() == 0, w.host.errors()[-1000:])
    for box in w.box.values():
        check(box.stop() == 0, box.errors()[-1000:])
    until(lambda: not desktop.renderers(), "the renderers' end")


@case
def soak_of_three_devices():
    space = None
    try:
        with long_run.Lab() as l, long_run.Soak("guest_devices") as run:
            w = None
            try:
                space = net.Space()
                w = World(l, run.counts, space)
                run.flat(calm(w))
                while run.more():
                    one_round(w, run)
                    run.flat(calm(w))
                end(w)
            finally:
                if w and w.server:
                    w.end_server()
    except guest.Missing as missing:
        return str(missing)
    finally:
        if space:
            space.close()
    return None


if __name__ == "__main__":
    sys.exit(main(must_run=bool(long_run.MINUTES)))
