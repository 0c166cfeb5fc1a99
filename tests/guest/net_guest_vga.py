#!/usr/bin/env python3
"""A stock Linux guest draws on a display adapter in a remote box, and the box shows the picture.

The adapter is hot-plugged; the kernel's own bochs driver runs it.  The guest's slots are root ports
and, of a second dxpu-host, below a switch: there a BAR of 4 GB is hot-added, with the kernel
parameter that net_guest_eptest.py finds recommended.  Prints `ok NAME`, `not ok NAME` or `skip
NAME` for each check and `# ...` lines with figures.  Skipped, loudly, where no QEMU or no guest can
be had.

    tests/guest/net_guest_vga.py [--keep DIR]      DIR gets the pictures and logs"""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import argparse
import os
import re
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
from suite import HANG, LARGE, check, figure  # noqa: E402

# in the order in which they must be loaded
MODULES = ("drm", "drm_kms_helper", "ttm", "drm_ttm_helper", "drm_vram_helper", "bochs")
DEVICE = "/sys/bus/pci/devices/10000:01:00.0"
WIDTH, HEIGHT = 1024, 768  # what the adapter's EDID prefers
# The console is smaller, and so is what QEMU and the keeper pass on each time it is drawn.
CONSOLE = 800, 600
SMALLER = "video=800x600 vt.global_cursor_default=0"
RED = bytes((0xaa, 0, 0))  # colour 1 of the console
STORIES = ("commands", "hot_add", "pattern", "console", "below_a_switch", "surprise", "next_user",
           "end")


def prepare(l):
    """QEMU and guest, the root file system; raises Missing."""
    tools = guest.tools()
    modules = [os.path.join(tools[1], "modules", m + ".ko") for m in MODULES]
    absent = [m for m in modules if not os.path.exists(m)]
    if absent:
        raise guest.Missing("the guest has no %s; remove %s to fetch it" % (absent[0], tools[1]))
    return tools, guest.initramfs(l.file("initrd"), suite.program(l, "drawfb"),
                                  suite.program(l, "pcitest"), *modules)


class World(suite.Display):
    seconds = 30

    def __init__(self, l):
        self.lab = l
        tools, initrd = prepare(l)
        self.screen = l.file("screen.png")
        self.at, self.large_at = (lab.address() for _ in range(2))
        self.host = self.start_host("root-ports", self.at)
        self.switch = self.start_host("switch", self.large_at)
        self.guest = guest.Guest(l, "a", tools, initrd, l.file("root-ports.sock"),
                                 append=suite.LARGE_PARAMETER + " " + SMALLER,
                                 extra=["-device", guest.adapter(l.file("switch.sock"))])
        self.box = None
        self.bindings = 0
        self.guest.ready()
        for module in MODULES:
            self.guest.must("insmod /modules/%s.ko" % module)

    def start_host(self, topology, box):
        host = self.lab.start("dxpu-host", "--vfio-user", self.lab.file(topology + ".sock"),
                              "--slots", 2, "--topology", topology, "--attach", "1=%s/1" % box,
                              "--json")
        host.says("waiting for a guest")
        return host

    def start_box(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "vga", "--control",
                                  ":0", "--json")
        self.box.address()
        self.control = self.box.says(r"control port (\S+:\d+)\n").group(1)

    def bound(self):
        """Wait until the guest's console is on the display.  (A program that takes the display
        before that leaves the console of kernel 6.1 dark.)"""
        self.bindings += 1
        self.guest.wait_for("[ -e %s/driver ] && [ -e /sys/class/graphics/fb0 ] && "
                            "[ $(dmesg | grep -c 'fb0: .*frame buffer device') -ge %d ]"
                            % (DEVICE, self.bindings), HANG)


# ==== Stories =====================================================================================

def commands(w):
    """The way commands reach the guest: the end of a background process must not cost a character.
    (tests/guest/init says how it could.)"""
    w.guest.must("for d in 1 2 3 4 5 6 7 8 9; do sleep 0.0$d & sleep 0.1$d & done")
    word = "x" * 400
    good = sum(w.guest.must("echo " + word).strip() == word for _ in range(6))
    check("commands_arrive_whole", good == 6, good)


def hot_add(w):
    check("slot_is_empty", w.guest.run("[ -e %s ]" % DEVICE)[0] == 1)
    w.start_box()
    w.host.says("slot 1: .* is attached", HANG)
    check("no_picture_before_a_mode", w.shoot() is None)
    start = time.monotonic()
    w.bound()
    figure("slot filled to console on the display: %.2f s" % (time.monotonic() - start))
    driver = w.guest.must("readlink %s/driver" % DEVICE).strip()
    check("driver_bound", driver.endswith("/bochs-drm"), driver)
    bars = w.guest.must("cat %s/resource" % DEVICE).split("\n")
    sizes = [int(b.split()[1], 16) - int(b.split()[0], 16) + 1 for b in (bars[0], bars[2])]
    check("bars", sizes == [16 << 20, 4096], bars[:3])
    modes = w.guest.must("cat /sys/class/drm/card0-*/modes").split()
    check("edid_modes", modes[0] == "%dx%d" % (WIDTH, HEIGHT) and "640x480" in modes, modes)
    edid = w.guest.must("od -An -v -tx1 /sys/class/drm/card0-*/edid").split()
    check("edid", len(edid) == 128 and sum(int(b, 16) for b in edid) % 256 == 0, edid[:8])


def pattern(w):
    want = suite.pattern_rows()
    before = w.shoot()
    check("control_no_pattern_before", before and before[2] != want)
    start = time.monotonic()
    w.draw()
    figure("mode set and 640 x 480 drawn: %.2f s" % (time.monotonic() - start))
    shot = w.shoot_until(lambda *now: now[2] == want)
    wrong = sum(a != b for a, b in zip(shot[2], want)) if shot else None
    check("pattern_identical", shot == (640, 480, want), shot and shot[:2], "rows wrong:", wrong)
    shutil.copy(w.screen, w.lab.file("pattern.png"))
    w.stop_drawing()


SHOW = ("printf '\\033[2J\\033[H\\033[32m# uname -srm\\033[0m\\n'; uname -srm; "
        "printf '\\033[32m# lspci -D\\033[0m\\n'; lspci -D; "
        "printf '\\033[32m# lspci -s 10000:01:00.0 -v\\033[0m\\n'; lspci -D -s 10000:01:00.0 -v; "
        "printf '\\033[32m# dmesg | grep bochs\\033[0m\\n'; dmesg | grep bochs")


def console(w):
    w.guest.must("printf '\\033[2J\\033[H\\033[41m\\033[K\\033[0m' >/dev/tty1")
    red = [RED * CONSOLE[0]] * 16  # a line of the console
    shot = w.shoot_until(lambda *now: now[2][:16] == red and not any(now[2][400]))
    check("console_is_back", shot and shot[:2] == CONSOLE, shot and shot[:2])
    check("console_line_is_red", shot and shot[2][:16] == red, shot and shot[2][0][:12])
    check("console_rest_is_black", shot and not any(map(any, shot[2][32:])))
    w.guest.must("(%s) >/dev/tty1 2>/dev/null" % SHOW)
    time.sleep(2)
    shot = w.shoot()
    lit = sum(any(row) for row in shot[2])
    check("console_shows_text", lit > 100 and shot[2][:16] != red, lit)
    shutil.copy(w.screen, w.lab.file("console.png"))


def below_a_switch(w):
    large = w.lab.start("dxpu-box", "--listen", w.large_at, "--device", "eptest", "--node", 23,
                        "--bar", LARGE)
    suite.large_bar(w.guest, "below_a_switch", "10001:03:00.0")
    check("below_a_switch_nothing_refused", "refused" not in w.switch.errors(),
          w.switch.errors()[-500:])
    large.kill()
    w.guest.wait_for("[ ! -e %s ]" % suite.device("10001:03:00.0"), HANG)


def surprise(w):
    w.guest.must("(while :; do cat /proc/interrupts >/dev/tty1; done) 2>/dev/null & echo $! "
                 ">/tmp/noise.pid")
    time.sleep(1)
    w.box.kill()
    w.guest.wait_for("[ ! -e %s ]" % DEVICE, HANG)
    w.guest.run("kill $(cat /tmp/noise.pid)")
    check("surprise_removal", True)
    check("no_display_left", w.guest.run("[ -e /sys/class/drm/card0 ]")[0] == 1)


def next_user(w):
    w.start_box()
    w.bound()
    w.guest.must("printf '\\033[2J\\033[H\\033[41m\\033[K\\033[0m' >/dev/tty1")
    shot = w.shoot_until(lambda *now: now[2][0] == RED * CONSOLE[0])
    check("drawn_after_hot_add", shot and shot[2][0] == RED * CONSOLE[0], shot and shot[2][0][:12])


def end(w):
    w.guest.start("poweroff -f")
    check("guest_powers_off", w.guest.popen.wait(HANG) == 0, w.guest.errors()[-500:])
    check("no_access_timed_out", "timed out" not in w.guest.errors(), w.guest.errors()[-500:])
    for name, host in (("root_ports", w.host), ("switch", w.switch)):
        check("host_of_%s_stops" % name, host.stop() == 0, host.errors()[-500:])
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    result, sent = w.box.result().get("slot_1", {}).get("vga", {}), w.host.result()
    check("writes_reached_the_frame", result.get("frame_writes", 0) > 0, result)
    check("nothing_unsupported", result.get("unsupported") == 0, result)
    check("writes_are_combined", sent.get("memory_writes_combined", 0) > 0, sent)
    figure("the guest's writes %d, combined into an earlier one %d"
           % (sent.get("memory_writes", 0), sent.get("memory_writes_combined", 0)))


# ==== Running =====================================================================================

def run(w):
    for name in STORIES:
        start = time.monotonic()
        try:
            globals()[name](w)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[1].lineno
            check(name, False, "line %d:" % line, repr(error)[:300], str(error)[-1000:])
        bad = w.guest.complaints()
        check("%s_kernel_is_content" % name, not bad, *bad)
        figure("story %s: %.1f s" % (name, time.monotonic() - start))
        if w.guest.popen.poll() is not None and name != "end":
            check("guest_lives", False, w.guest.errors())
            return


def keep(l, folder):
    if folder:
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(l.folder):
            if re.search(r"\.(err|out|console|qemu|png)$", name):
                shutil.copy(l.file(name), folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", help="copy pictures and logs there at the end")
    args = parser.parse_args()
    start = time.monotonic()
    with lab.Lab() as l:
        try:
            w = World(l)
        except guest.Missing as missing:
            for name in STORIES:
                print("skip %s %s" % (name, missing))
            return 0
        figure("start: %.1f s" % (time.monotonic() - start))
        try:
            run(w)
        finally:
            keep(l, args.keep)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
