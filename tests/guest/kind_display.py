"""A stock Linux guest's virtio_gpu driver draws on a display of a remote box.

The picture that the box has is compared with what was drawn, byte for byte; the guest removes the
display and finds it again, and draws through a path that loses 1 % of all datagrams."""
# SPDX-License-Identifier: MIT
import time

import suite
from suite import HANG, check, figure

MODULES, PROGRAMS, LOSS, BOX_SLOT = suite.DISPLAY, ("drawfb",), 10, 1
SCREEN = "screen.png"
WIDTH, HEIGHT = 1024, 768  # what the display's EDID prefers
RED = bytes((0xaa, 0, 0))  # colour 1 of the console
# Of virtio_gpu when it is removed: it resets the device without waiting for what it asked last.
LEFT_BEHIND = "Objects remaining in virtio-gpu-vbufs"


class World(suite.Display):
    def __init__(self, l, at, slot):
        self.lab, self.at, self.bdf = l, at, suite.below(slot)
        self.screen, self.bindings = l.file(SCREEN), 0

    def start(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "virtio-gpu",
                                  "--control", ":0", "--json", *suite.HOLD)
        self.control = self.box.says(r"control port (\S+:\d+)\n").group(1)

    def close(self):
        pass

    def bound(self):
        """Wait until the guest's console is on the display."""
        self.bindings += 1
        return self.guest.wait_for("{ [ -e /sys/class/graphics/fb0 ] && "  # without a process
                                   "[ $(dmesg | grep -c 'fb0: .*frame buffer device') -ge %d ]; }"
                                   % self.bindings, HANG)


def found(w):
    g = w.guest
    w.start()
    figure("box started to console on the display: %.2f s" % w.bound())
    driver = g.must("readlink /sys/bus/virtio/drivers/virtio_gpu/virtio*")
    check("driver_bound", w.bdf in driver, driver)
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
    before = w.shoot_until(lambda *now: now[2] != want)  # it comes after the line in the log
    check("control_no_pattern_before_" + name, before and before[2] != want)
    start = time.monotonic()
    w.draw()
    shot = w.shoot_until(lambda *now: now[2] == want)
    figure("mode set, 640 x 480 drawn and seen: %.2f s" % (time.monotonic() - start))
    wrong = sum(a != b for a, b in zip(shot[2], want)) if shot else None
    check("pattern_identical_" + name, shot == (640, 480, want), shot and shot[:2], "rows wrong:",
          wrong)
    w.stop_drawing()


def cursor(w):
    """Over the pattern; its position is that of its first pixel, whatever its hot spot."""
    left, top = 600, 30
    rows = [bytearray(row) for row in suite.pattern_rows()]
    for y in range(32):
        for x in range(640 - left):
            at = (left + x) * 3
            rows[top + y][at:at + 3] = bytes((x, y, 200))
    want = [bytes(row) for row in rows]
    w.draw(left, top)
    shot = w.shoot_until(lambda *now: now[2] == want)
    wrong = sum(a != b for a, b in zip(shot[2], want)) if shot else None
    check("cursor_is_over_the_picture", shot == (640, 480, want), "rows wrong:", wrong)
    w.stop_drawing()


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
    w.said = g.complaints()
    g.must("echo 0 >/sys/class/vtconsole/vtcon1/bind; echo 1 >%s/remove" % suite.device(w.bdf))
    g.wait_for("[ ! -e %s ]" % suite.device(w.bdf), HANG)
    check("dark_after_remove", w.shoot() is None)
    said = g.complaints()
    if not any(LEFT_BEHIND in line for line in said):
        w.said += said
    g.must("echo 1 >/sys/bus/pci/rescan")
    w.bound()


def end(w):
    w.said += w.guest.complaints()
    check("kernel_is_content", not w.said, *w.said)
    w.guest.must("echo 0 >/sys/class/vtconsole/vtcon1/bind; echo 1 >%s/remove"
                 % suite.device(w.bdf))
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    used = w.box.result()["slot_1"]["virtio-gpu"]
    check("nothing_refused", used["broken"] == used["unsupported"] == used["commands_failed"] == 0,
          used)
    check("nothing_is_left", used["resources"] == used["resource_bytes"] == 0, used)
    figure("commands %d, transfers %d of %d KB, reads of the guest's memory %d of %d KB" %
           (used["commands"], used["transfers"], used["transfer_bytes"] >> 10, used["dma_reads"],
            used["dma_read_bytes"] >> 10))


def drawn_again(w):
    console(w, "found_again")
    pattern(w, "found_again")


STORIES = (found, lambda w: pattern(w, "first"), cursor, lambda w: console(w, "first"),
           removed_and_found, drawn_again, end)
