#!/usr/bin/env python3
"""A stock Linux guest's virtio_gpu driver draws with 3D of a remote box's display adapter.

A program in the guest talks to the DRM driver as Mesa would: capabilities, resources, a command
stream with a triangle and a query, transfers; every pixel is compared.  It goes through a path that
loses 1 % of all datagrams, and the renderer is killed while it draws.

Then the guest has no VMD driver any more: with direct attach `dxpu lease create` lends it a GPU and
a disk, plugged in by QMP.  The box of the GPU is killed while it draws: no task hangs, the disk
works on, and the guest is lent another GPU.  It is Debian 13, or, where that cannot be fetched, 12.
Prints `ok NAME`, `not ok NAME` or `skip NAME` for each check and `# ...` lines with figures.
Skipped, loudly, where no QEMU or no guest can be had, or dxpu-render cannot render."""
# run.py: --timeout 600
# SPDX-License-Identifier: MIT
import os
import re
import signal
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
from cases import until  # noqa: E402
import desktop  # noqa: E402
from desktop import NODE, renderers  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, check, figure  # noqa: E402

BDF = "10000:01:00.0"
SLOTS = 3  # of the second dxpu-host
FRAMES = 100
BOXES = {name: ("--listen", "127.0.0.1:0", "--slot", "1=" + slot) for name, slot in (
    ("gpu1", "virtio-gpu,render,attribute=rack=1"), ("gpu2", "virtio-gpu,render,attribute=rack=2"),
    ("disk", "virtio-blk,size=16M,attribute=rack=2"))}


class World:
    def __init__(self, l):
        desktop.can_render()
        self.lab, self.qmp = l, l.file("qmp")
        tools = desktop.newest()
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "virtio-gpu",
                           "--render", "--json")
        self.relay = l.start("dxpu-relay", "--to", self.box.address(), "--json", "--loss", 10)
        self.host, self.guest = suite.machine(
            l, tools, [self.relay.address() + "/1"], desktop.modules(tools),
            [suite.program(l, "virgl")], desktop.ports(self.qmp, SLOTS))
        figure("Linux %s" % self.guest.version)


def draws(w, name, *more):
    w.guest.wait_for("[ -e %s ]" % NODE, HANG)
    status, output = w.guest.run(" ".join(("virgl", NODE, *map(str, more))), HANG)
    lines = output.splitlines()
    good = [line for line in lines if line.startswith("ok ")]
    check("draws_%s: %d checks" % (name, len(good)), status == 0 and len(good) >= 7, status, lines)
    for line in lines:
        found = re.match(r"frames (\d+) (\S+)", line)
        if found:
            figure("%s frames of 64 x 64, each read back: %s a second" % found.groups())


def found(w):
    w.guest.wait_for("[ -e %s ]" % NODE, HANG)
    said = w.guest.must("dmesg | grep -i 'features:'")
    check("features", "+virgl" in said and "+edid" in said, said)


def killed(w):
    """While it draws: the program finds an error or a wrong picture, the next one draws."""
    g = w.guest
    before = renderers()
    check("one_renderer", len(before) == 1, before)
    desktop.drawing(g, "virgl %s 0" % NODE)
    os.kill(before[0], signal.SIGKILL)
    g.wait_for("grep -q 'FAILED frames' /tmp/draw", HANG)
    check("program_of_before_ends", True)
    draws(w, "after_a_kill")
    check("another_renderer", len(renderers()) == 1 and renderers() != before, renderers())


def put_away(w):
    """What is behind VMD, and its driver."""
    said = w.guest.complaints()
    check("kernel_is_content", not said, *said)
    w.guest.must("echo 0 >/sys/class/vtconsole/vtcon1/bind; echo 1 >%s/remove"
                 % suite.device(BDF))
    w.guest.must("rmmod vmd", HANG)
    check("host_stops", w.host.stop() == 0, w.host.errors()[-500:])
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    # its launcher ends it, which a machine under load may do after the box has ended
    until(lambda: not renderers(), "the renderer's end")
    check("no_renderer_is_left", not renderers(), renderers())
    used = w.box.result()["slot_1"]["virtio-gpu"]
    check("nothing_is_left", used["resources"] == used["contexts"] == 0, used)
    check("renderers_counted", used["renderer_ends"] == 1, used)
    figure("streams %d of %d KB, moves %d of %d KB, reads of the guest's memory %d of %d KB, "
           "writes %d of %d KB" % (used["streams"], used["stream_bytes"] >> 10, used["moves"],
                                   used["move_bytes"] >> 10, used["dma_reads"],
                                   used["dma_read_bytes"] >> 10, used["dma_writes"],
                                   used["dma_write_bytes"] >> 10))


def lent(w, p):
    """A GPU and a disk, each with its own fate: two leases."""
    refused = p.dxpu("lease", "create", "--host", "vm", "--model", "gpu", "--attributes", "rack=3")
    check("control_no_such_gpu", refused.status and "rack=3" in refused.errors(), refused.errors())
    gpu = p.lend("gpu", "--attributes", "render=software,rack=1", "--no-replace")
    disk = p.lend("blk", "--attributes", "size=16M")
    check("gpu_keeps_nothing_and_disk_does", (gpu["data"], disk["data"]) == ("none", "persistent"),
          gpu, disk)
    g = w.guest
    g.wait_for("[ -b /dev/vda ]", HANG)
    g.must("dd if=/dev/urandom of=/tmp/noise bs=64k count=64; "
           "dd if=/tmp/noise of=/dev/vda bs=64k oflag=direct")
    desktop.arrived(g)
    where = g.must("readlink -f /sys/class/drm/renderD128/device")
    check("gpu_is_in_the_domain_of_the_machine", "/pci0000:00/" in where, where)
    draws(w, "on_a_lent_gpu", FRAMES)
    return gpu, disk


def lost(w, p, gpu):
    """Its box is killed while it draws; the guest lets go of it."""
    g = w.guest
    place = g.must(desktop.PCI).strip()
    desktop.drawing(g, "virgl %s 0" % NODE)
    p.boxes["gpu1"].kill()
    p.host.says("channel lost", HANG)
    tasks, hung = desktop.let_go(g, place)
    check("no_task_waits_for_the_lost_gpu", not tasks, tasks)
    check("no_task_hung", not hung, hung)
    figure("the driver said of its removal: %s" % "; ".join(g.complaints())[:200])
    check("disk_is_as_it_was", g.run("dd if=/dev/vda bs=64k count=64 iflag=direct 2>/dev/null | "
                                     "cmp - /tmp/noise")[0] == 0)


def another(w, p, old, disk):
    new = p.lend("gpu", "--attributes", "render=software")
    check("another_slot_and_box", new["slots"][0]["host_slot"] != old["slots"][0]["host_slot"] and
          new["slots"][0]["slot"] != old["slots"][0]["slot"], old, new)
    draws(w, "on_another_gpu", FRAMES)
    w.guest.kill()
    for lease in (old, new):  # nothing is to be confirmed, as nothing is erased
        done = p.dxpu("lease", "release", lease["lease"])
        check("gpu_is_given_back_without_a_question", done.status == 0, done.errors())
    asks = p.dxpu("lease", "release", disk["lease"])
    check("control_disk_is_not", asks.status and "--yes" in asks.errors(), asks.errors())
    done = p.dxpu("lease", "release", disk["lease"], "--wait", "--yes")
    check("disk_is_wiped", done.status == 0, done.errors())


def end(w, p):
    for name in ("gpu2", "disk"):
        check(name + "_stops", p.boxes[name].stop() == 0, p.boxes[name].errors()[-500:])
    check("direct_host_stops", p.host.stop() == 0, p.host.errors()[-500:])
    check("manager_stops", p.manager.stop() == 0, p.manager.errors()[-500:])
    until(lambda: not renderers(), "the renderers' end")


def run(w):
    found(w)
    draws(w, "first", FRAMES)
    killed(w)
    put_away(w)
    p = desktop.Pool(w.lab, desktop.plugging(w.lab, w.qmp, SLOTS), BOXES)
    gpu, disk = lent(w, p)
    lost(w, p, gpu)
    another(w, p, gpu, disk)
    end(w, p)


def main():
    with lab.Lab() as l:
        try:
            w = World(l)
        except guest.Missing as why:
            print("skip net_guest_virgl %s" % why)
            return 0
        try:
            run(w)
        except Exception as why:
            traceback.print_exc()
            check("net_guest_virgl to its end", False, why, w.guest.log()[-1500:])
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
