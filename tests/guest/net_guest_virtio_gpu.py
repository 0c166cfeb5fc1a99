#!/usr/bin/env python3
"""A stock Linux guest's virtio_gpu driver draws on a display of a remote box.

The picture that the box has is compared with what was drawn, byte for byte; the guest removes the
display and finds it again, and draws through a path that loses 1 % of all datagrams.  Prints
`ok NAME`, `not ok NAME` or `skip NAME` for each check and `# ...` lines with figures.  Skipped,
loudly, where no QEMU or no guest can be had.

    tests/guest/net_guest_virtio_gpu.py [--keep FILE.png]      FILE.png gets the last picture"""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import argparse
import os
import shutil
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, check, figure  # noqa: E402

# in the order in which they must be loaded
BDF = "10000:01:00.0"
WIDTH, HEIGHT = 1024, 768  # what the display's EDID prefers
RED = bytes((0xaa, 0, 0))  # colour 1 of the console


class World(suite.Display):
    def __init__(self, l):
        self.lab = l
        tools = guest.tools()
        modules = suite.modules(tools, suite.DISPLAY)
        self.screen = l.file("screen.png")
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "virtio-gpu",
                           "--control", ":0", "--json")
        self.relay = l.start("dxpu-relay", "--to", self.box.address(), "--json", "--loss", 10)
        self.control = self.box.says(r"control port (\S+:\d+)\n").group(1)
        self.host, self.guest = suite.machine(l, tools, self.relay.address() + "/1", modules,
                                              [suite.program(l, "drawfb")])
        self.bindings = 0

    def bound(self):
        """Wait until the guest's console is on the display."""
        self.bindings += 1
        return self.guest.wait_for("[ $(dmesg | grep -c 'fb0: .*frame buffer device') -ge %d ]"
                                   % self.bindings, HANG)


def found(w):
    g = w.guest
    figure("driver loaded to console on the display: %.2f s" % w.bound())
    driver = g.must("readlink /sys/bus/virtio/drivers/virtio_gpu/virtio*")
    check("driver_bound", BDF in driver, driver)
    modes = g.must("cat /sys/class/drm/card0-*/modes").split()
    check("edid_modes", modes[0] == "%dx%d" % (WIDTH, HEIGHT) and "640x480" in modes, modes)
    edid = g.must("od -An -v -tx1 /sys/class/drm/card0-*/edid").split()
    check("edid", len(edid) == 128 and sum(int(b, 16) for b in edid) % 256 == 0, edid[:8])
    said = g.must("dmesg | grep -i 'features:'")
    check("features", "-virgl" in said and "+edid" in said, said)
    vectors = g.must("grep -c virtio /proc/interrupts").strip()
    check("msix", vectors == "3", vectors)


def pattern(w, name):
    want = suite.pattern_rows()
    before = w.shoot()
    check("control_no_pattern_before_" + name, before and before[2] != want)
    start = time.monotonic()
    w.guest.must("drawfb /dev/dri/card0 >/tmp/draw 2>&1 & echo $! >/tmp/draw.pid")
    w.guest.wait_for("grep -q drawn /tmp/draw", HANG)
    shot = w.shoot_until(lambda *now: now[2] == want)
    figure("mode set, 640 x 480 drawn and seen: %.2f s" % (time.monotonic() - start))
    wrong = sum(a != b for a, b in zip(shot[2], want)) if shot else None
    check("pattern_identical_" + name, shot == (640, 480, want), shot and shot[:2], "rows wrong:",
          wrong)
    w.guest.must("kill $(cat /tmp/draw.pid)")


def cursor(w):
    """Over the pattern; its position is that of its first pixel, whatever its hot spot."""
    left, top = 600, 30
    rows = [bytearray(row) for row in suite.pattern_rows()]
    for y in range(32):
        for x in range(640 - left):
            at = (left + x) * 3
            rows[top + y][at:at + 3] = bytes((x, y, 200))
    want = [bytes(row) for row in rows]
    w.guest.must("drawfb /dev/dri/card0 %d %d >/tmp/draw 2>&1 & echo $! >/tmp/draw.pid"
                 % (left, top))
    w.guest.wait_for("grep -q drawn /tmp/draw", HANG)
    shot = w.shoot_until(lambda *now: now[2] == want)
    wrong = sum(a != b for a, b in zip(shot[2], want)) if shot else None
    check("cursor_is_over_the_picture", shot == (640, 480, want), "rows wrong:", wrong,
          w.guest.must("cat /tmp/draw"))
    w.guest.must("kill $(cat /tmp/draw.pid)")


def console(w, name):
    w.guest.must("printf '\\033[2J\\033[H\\033[41m\\033[K\\033[0m' >/dev/tty1")
    red = [RED * WIDTH] * 16  # a line of the console
    shot = w.shoot_until(lambda *now: now[2][:16] == red and not any(map(any, now[2][32:])))
    check("console_is_there_" + name, shot and shot[:2] == (WIDTH, HEIGHT), shot and shot[:2])
    check("console_line_is_red_" + name, shot and shot[2][:16] == red, shot and shot[2][0][:12])
    check("console_rest_is_black_" + name, shot and not any(map(any, shot[2][32:])))


def removed_and_found(w):
    """By the guest."""
    g = w.guest
    g.must("echo 0 >/sys/class/vtconsole/vtcon1/bind; echo 1 >%s/remove" % suite.device(BDF))
    g.wait_for("[ ! -e %s ]" % suite.device(BDF), HANG)
    check("dark_after_remove", w.shoot() is None)
    g.must("echo 1 >/sys/bus/pci/rescan")
    w.bound()


def end(w):
    check("kernel_is_content", not w.guest.complaints(), *w.guest.complaints())
    w.guest.must("echo 0 >/sys/class/vtconsole/vtcon1/bind; echo 1 >%s/remove"
                 % suite.device(BDF))
    w.guest.kill()
    check("host_stops", w.host.stop() == 0, w.host.errors()[-500:])
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    used = w.box.result()["slot_1"]["virtio-gpu"]
    check("nothing_refused", used["broken"] == used["unsupported"] == used["commands_failed"] == 0,
          used)
    check("nothing_is_left", used["resources"] == used["resource_bytes"] == 0, used)
    figure("commands %d, transfers %d of %d KB, reads of the guest's memory %d of %d KB" %
           (used["commands"], used["transfers"], used["transfer_bytes"] >> 10, used["dma_reads"],
            used["dma_read_bytes"] >> 10))


def run(w):
    found(w)
    pattern(w, "first")
    cursor(w)
    console(w, "first")
    removed_and_found(w)
    console(w, "found_again")
    pattern(w, "found_again")
    end(w)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", help="copy the last picture there at the end")
    args = parser.parse_args()
    with lab.Lab() as l:
        try:
            w = World(l)
        except guest.Missing as why:
            print("skip net_guest_virtio_gpu %s" % why)
            return 0
        try:
            run(w)
        except Exception as why:
            traceback.print_exc()
            check("net_guest_virtio_gpu to its end", False, why, w.guest.log()[-1500:])
        if args.keep and os.path.exists(w.screen):
            shutil.copy(w.screen, args.keep)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
