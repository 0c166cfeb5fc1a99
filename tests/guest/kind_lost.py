"""A busy virtio network adapter is lost with its box, and a stock guest's driver lets go of it.

The driver resets the device that is gone and waits without limit until its status reads 0: the host
answers as the device declared (V-51).  Another box follows in the same slot, and the guest uses its
adapter; twice, with DXPU_WHOLE=1 20 times, and once in a guest with direct attach.  The control is
a box that declares nothing: its driver never ends."""
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import time
import traceback

import guest
import lab
import suite
import kind_network as net
from suite import HANG, check, figure

MODULES, PROGRAMS, LOSS, BOX_SLOT = net.MODULES, (), 0, 1
TRIES = 20 if os.environ.get("DXPU_WHOLE") else 2
STAYS = 4  # seconds after which the control's driver must still wait
# What is received is dropped; in the namespace.
SINK = """
import socket, threading
s = socket.create_server(("%s", 5001), backlog=64)
print("listening", flush=True)
def drop(c):
    try:
        while c.recv(1 << 20):
            pass
    except OSError:
        pass
while True:
    threading.Thread(target=drop, args=(s.accept()[0],), daemon=True).start()
""" % net.SERVER
SENT = "/sys/class/net/eth0/statistics/tx_bytes"


class World:
    def __init__(self, l, at, slot):
        self.lab, self.at, self.bdf = l, at, suite.below(slot)
        self.box = self.sink = None

    def close(self):
        if self.sink:
            self.sink.kill()
            self.sink.wait()

    def start_box(self, program="dxpu-box"):
        keys = () if program == "dxpu-box" else self.lab.keys("dxpu-box")
        self.box = self.lab.start(program, "--listen", self.at, "--device", "virtio-net", "--tap",
                                  self.space.tap, "--json", *suite.HOLD, *keys)
        self.box.address()
        self.space.move()
        self.sink = subprocess.Popen(["ip", "netns", "exec", self.space.name, sys.executable,
                                      "-c", SINK], stdout=subprocess.PIPE)
        self.sink.stdout.readline()  # a stream that comes sooner is refused, and ends

    def end_box(self):
        self.box.kill()
        self.sink.kill()
        self.sink.wait()
        self.space.back()

    def up(self):
        """Without IPv6, which joins groups a second later, with commands on the control queue: the
        driver (6.1) waits for these in a loop of its own, for ever where the adapter is gone."""
        self.guest.wait_for("[ -e /sys/class/net/eth0 ]", HANG)
        self.guest.must("echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6")
        self.guest.must("ip link set eth0 up; ip addr add %s/24 dev eth0" % net.CLIENT)

    def busy(self):
        """Four streams, which end with the adapter."""
        self.guest.must("for i in 1 2 3 4; do nc %s 5001 </dev/zero >/dev/null 2>&1 & done"
                        % net.SERVER)
        self.guest.wait_for("{ read -r n <%s && [ $n -gt 1000000 ]; }" % SENT, HANG)

    def waiting(self):
        return self.guest.must(suite.WAITING)


class Direct(World):
    """The adapter is a function in the machine's own domain.  None says that it is lost: the guest
    removes it."""

    def __init__(self, l, space):
        super().__init__(l, lab.address(), 0)
        self.bdf, self.space = "0000:01:00.0", space
        tools = guest.tools()
        modules = suite.modules(tools, net.MODULES)
        self.start_box()
        path = self.lab.file("direct.sock")
        self.host = self.lab.start("dxpu-host", "--vfio-user", path, "--direct", "--slots", 1,
                                   "--attach", "1=%s/1" % self.at, "--json")
        self.host.says("waiting for a guest")
        initrd = guest.initramfs(self.lab.file("initrd"), *modules.values())
        self.guest = guest.Guest(self.lab, "direct", tools, initrd, None, extra=[
            "-device", "pcie-root-port,id=rp0,chassis=1,slot=1",
            "-device", guest.adapter(path + ".1", bus="rp0")])
        self.guest.ready()
        for module in modules:
            self.guest.must("insmod /modules/%s.ko" % module)

    def end_box(self):
        super().end_box()
        if self.host.popen.poll() is None:
            self.host.says("channel lost", HANG)
            self.guest.start("echo 1 >%s/remove" % suite.device(self.bdf))
            self.guest.finish(self.guest.next_id, HANG)


def lost(w, n):
    g = w.guest
    w.up()
    w.busy()
    w.end_box()
    took = g.wait_for("[ ! -e %s ]" % suite.device(w.bdf), HANG)
    tasks = w.waiting()
    bad = g.complaints()
    g.run("killall nc")
    return check("busy_adapter_is_let_go_of_%s" % n, not tasks and not bad, tasks, bad), took


def losses(w):
    good, took = 0, []
    w.start_box()
    for n in range(1, TRIES + 1):
        held, seconds = lost(w, n)
        good += held
        took.append(seconds)
        w.start_box()
    w.up()
    status, said = w.guest.run("ping -c 2 -i 0.2 -W 5 " + net.SERVER, HANG)
    check("adapter_of_the_last_box_works", status == 0 and " 0% packet loss" in said, said[-300:])
    figure("%d of %d losses without a task that hangs; seconds until the device was gone: "
           "%.1f to %.1f" % (good, TRIES, min(took), max(took)))


def control(w):
    """All ones, as any device reads that is gone."""
    g = w.guest
    w.end_box()
    g.wait_for("[ ! -e %s ]" % suite.device(w.bdf), HANG)
    w.start_box(suite.box_with(w.lab, "undeclared"))
    w.up()
    w.end_box()
    g.wait_for("[ ! -e /sys/class/net/eth0 ]", HANG)
    time.sleep(STAYS)
    g.wait_for("cat /proc/[0-9]*/stack | grep -q vp_reset", HANG)  # it sleeps for 1 ms each time
    check("control_without_the_declaration_the_driver_hangs",
          g.run("[ -e %s ]" % suite.device(w.bdf))[0] == 0, w.waiting())


STORIES = (losses, control)


def more():
    """In a guest of its own."""
    space = None
    try:
        space = net.Space()
        with lab.Lab() as l:
            w = Direct(l, space)
            try:
                lost(w, "directly")
                w.guest.kill()
                check("host_stops", w.host.stop() == 0, w.host.errors()[-500:])
                slot = w.host.result()["slot_1"]
                check("nothing_refused", not slot.get("values_refused") and
                      not slot.get("refused"), slot)
            except Exception as why:
                traceback.print_exc()
                check("lost_directly to its end", False, why, w.guest.log()[-1000:])
            finally:
                w.close()
    except guest.Missing as why:
        print("skip lost_directly %s" % why)
    finally:
        if space:
            space.close()
