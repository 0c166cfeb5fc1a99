#!/usr/bin/env python3
"""A stock Linux guest's virtio_gpu driver draws with 3D of a remote box's display adapter.

A program in the guest talks to the DRM driver as Mesa would: capabilities, resources, a command
stream with a triangle and a query, transfers; every pixel is compared.  It goes through a path that
loses 1 % of all datagrams, and the renderer is killed while it draws.  Prints `ok NAME`,
`not ok NAME` or `skip NAME` for each check and `# ...` lines with figures.  Skipped, loudly, where
no QEMU or no guest can be had, or dxpu-render cannot render."""
# run.py: --timeout 600
# SPDX-License-Identifier: MIT
import os
import re
import signal
import subprocess
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
from cases import until  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, check, figure  # noqa: E402
from net_guest_virtio_gpu import BDF  # noqa: E402

NODE = "/dev/dri/renderD128"
FRAMES = 100
TAG = "DXPU_TEST_RENDERER=%d" % os.getpid()


def renderers():
    """Processes of dxpu-render that this test has caused."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid) as name, open("/proc/%s/environ" % pid) as words:
                if name.read() == "dxpu-render\n" and TAG in words.read().split("\0"):
                    found.append(int(pid))
        except OSError:
            pass  # it has ended, or is another user's
    return found


class World:
    def __init__(self, l):
        done = subprocess.run([os.path.join(lab.BIN, "dxpu-render"), "--check"],
                              stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise guest.Missing("dxpu-render: " + done.stderr.strip()[:300])
        os.environ.update([TAG.split("=")])
        tools = guest.tools()
        modules = suite.modules(tools, suite.DISPLAY)
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "virtio-gpu",
                           "--render", "--json")
        self.relay = l.start("dxpu-relay", "--to", self.box.address(), "--json", "--loss", 10)
        self.host, self.guest = suite.machine(l, tools, self.relay.address() + "/1", modules,
                                              [suite.program(l, "virgl")])


def draws(w, name, *more):
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
    g.must("virgl %s 0 >/tmp/draw 2>&1 & echo $! >/tmp/draw.pid" % NODE)
    g.wait_for("grep -q drawing /tmp/draw", HANG)
    os.kill(before[0], signal.SIGKILL)
    g.wait_for("grep -q 'FAILED frames' /tmp/draw", HANG)
    check("program_of_before_ends", True)
    draws(w, "after_a_kill")
    check("another_renderer", len(renderers()) == 1 and renderers() != before, renderers())


def end(w):
    check("kernel_is_content", not w.guest.complaints(), *w.guest.complaints())
    w.guest.must("echo 0 >/sys/class/vtconsole/vtcon1/bind; echo 1 >%s/remove"
                 % suite.device(BDF))
    w.guest.kill()
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


def run(w):
    found(w)
    draws(w, "first", FRAMES)
    killed(w)
    end(w)


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
