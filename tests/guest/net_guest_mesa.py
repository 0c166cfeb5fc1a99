#!/usr/bin/env python3
"""Stock programs draw on GPUs that a pool lends to a Debian 13 guest without a VMD driver: Mesa.

eglinfo names virgl; gles.c draws a triangle, samples a texture, computes and asks a query, and
checks every pixel; glmark2 runs to its end.  The first GPU is reached through a relay that loses
1 %.  While a program draws, one after the other the renderer is killed, the path does nothing for
less than the hold time and then is cut, a box, the worker and the parent of dxpu-host are killed:
the guest goes on, no task hangs, and but for the last time another GPU draws.  Before, a lent GPU
and QEMU's own virtio-gpu-gl draw in turn in one guest.

Prints `ok NAME`, `not ok NAME` or `skip NAME` for each check and `# ...` lines with figures.
Skipped, loudly, where no QEMU, guest or Mesa can be had, or dxpu-render cannot render.  It is for
`make check-long`."""
# run.py: --timeout 900
# SPDX-License-Identifier: MIT
import os
import re
import signal
import statistics
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import until  # noqa: E402
import desktop  # noqa: E402
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, check, figure  # noqa: E402

GPUS = 5  # each has a root port of its own, since a lost one stays
FRAMES = 100
CHECKS = 8  # of gles
SCENES = ("build:use-vbo=true", "texture:texture-filter=linear", "shading:shading=phong",
          "effect2d:kernel=1,1,1;1,1,1;1,1,1;", "loop:fragment-uniform=true")
COUNTED = ("dma_reads", "dma_read_bytes", "dma_writes", "dma_write_bytes", "render_requests")


class World:
    def __init__(self, l):
        desktop.can_render()
        self.lab, self.qmp = l, l.file("qmp")
        tools = desktop.newest()
        mesa = desktop.Mesa(l)
        at = lab.address()
        self.relay = l.start("dxpu-relay", "--to", at, "--json", "--loss", 10)
        boxes = {"gpu%d" % n: ("--listen", "127.0.0.1:0", "--slot",
                               "1=virtio-gpu,render,attribute=rack=%d" % n)
                 for n in range(2, GPUS + 1)}
        boxes["gpu1"] = ("--listen", at, "--advertise", self.relay.address(), "--slot",
                         "1=virtio-gpu,render,attribute=rack=1")
        self.pool = desktop.Pool(l, desktop.plugging(l, self.qmp, GPUS), boxes)
        start = time.monotonic()
        self.guest = desktop.boot(l, tools, mesa, self.qmp, GPUS)
        figure("Linux %s with Mesa: %.1f s to its drivers" % (self.guest.version,
                                                             time.monotonic() - start))
        self.lent = 0

    def lend(self):
        """The next GPU; its box."""
        self.lent += 1
        self.pool.lend("gpu", "--attributes", "rack=%d" % self.lent, "--no-replace")
        self.place = desktop.arrived(self.guest)
        return self.pool.boxes["gpu%d" % self.lent]


def draws(w, name, frames=FRAMES):
    """gles, to its end; what its box counted."""
    box = w.pool.boxes["gpu%d" % w.lent]
    before = counted(box)
    status, output = w.guest.run("gles %d" % frames, HANG)
    lines = output.splitlines()
    good = [line for line in lines if line.startswith("ok ")]
    check("draws_%s: %d checks" % (name, len(good)), status == 0 and len(good) >= CHECKS and
          any(line.startswith("renderer virgl") for line in lines), status, lines)
    speed = re.search(r"frames \d+ (\S+)", output)
    after = counted(box)
    return float(speed.group(1)) if speed else 0, {n: after[n] - before[n] for n in COUNTED}


def printed(box, name):
    return re.findall(r"^ +%s +(\d+)$" % name, box.errors(), re.M)


def counted(box):
    """What the box prints of its slot, which it does behind the lines of its channels."""
    before = len(printed(box, COUNTED[-1]))
    box.statistics()
    until(lambda: len(printed(box, COUNTED[-1])) > before and
          len({len(printed(box, name)) for name in COUNTED}) == 1, "the box's statistics")
    return {name: int(printed(box, name)[-1]) for name in COUNTED}


def per_frame(w, name):
    """Of two runs that differ in their frames alone.  Whenever the GPU's last user ends, Linux
    draws its console: so there is another one meanwhile."""
    w.guest.must("sleep 600 <%s & echo $! >/tmp/user.pid" % desktop.NODE)
    draws(w, name + "_first", 1)
    speed, few = draws(w, name + "_few", FRAMES)
    faster, many = draws(w, name + "_many", 3 * FRAMES)
    w.guest.must("kill $(cat /tmp/user.pid)")
    each = {n: (many[n] - few[n]) / (2 * FRAMES) for n in COUNTED}
    figure("gles %s: %.1f and %.1f frames a second, each of 128 x 128 read back; a frame has %.1f "
           "reads of the guest's memory (%.0f bytes), %.1f writes (%.0f bytes), %.1f requests to "
           "the renderer" % (name, speed, faster, each["dma_reads"], each["dma_read_bytes"],
                             each["dma_writes"], each["dma_write_bytes"], each["render_requests"]))


def named(w):
    g = w.guest
    program = g.must("ls /usr/bin/eglinfo*").split()[0]
    said = g.run("%s -B -p surfaceless" % program, HANG)[1]
    names = re.findall(r"OpenGL ES profile renderer: (.*)", said)
    check("eglinfo_names_virgl", names and names[0].startswith("virgl"), said[-600:])
    figure("eglinfo: %s" % ", ".join(names))


def benchmark(w, name):
    box = w.pool.boxes["gpu%d" % w.lent]
    before = counted(box)
    status, said = w.guest.run("glmark2-es2-drm --off-screen -s 320x240 %s" % " ".join(
        "-b '%s:duration=2'" % scene for scene in SCENES), 2 * HANG)
    speeds = re.findall(r"^\[(\w+)\].*FPS: (\d+)", said, re.M)
    score = re.search(r"glmark2 Score: (\d+)", said)
    check("glmark2_%s_runs_to_its_end" % name, status == 0 and len(speeds) == len(SCENES) and score
          and "virgl" in said, status, said[-800:])
    if not score:
        return
    after = counted(box)
    figure("glmark2 %s: score %s; frames a second: %s; %d reads of the guest's memory, %d KB" % (
        name, score.group(1), ", ".join("%s %s" % s for s in speeds),
        after["dma_reads"] - before["dma_reads"],
        (after["dma_read_bytes"] - before["dma_read_bytes"]) >> 10))


def still_draws(w):
    return w.guest.run("kill -0 $(cat /tmp/draw.pid) && ! grep FAILED /tmp/draw")


def through_loss(w):
    w.lend()
    named(w)
    per_frame(w, "through 1 % loss")
    benchmark(w, "through 1 % loss")


def renderer_killed(w):
    desktop.drawing(w.guest, "gles 0")
    before = desktop.renderers("gpu1")
    check("one_renderer", len(before) == 1, before)
    os.kill(before[0], signal.SIGKILL)
    w.guest.wait_for("grep -q FAILED /tmp/draw || ! kill -0 $(cat /tmp/draw.pid)", HANG)
    check("program_notices_the_renderers_end", True)
    w.guest.run("kill -9 $(cat /tmp/draw.pid)")
    draws(w, "after_the_renderers_end", 1)


def path_stops(w):
    """For less than the hold time: a delay."""
    desktop.drawing(w.guest, "gles 0")
    for _ in range(3):
        w.relay.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        w.relay.popen.send_signal(signal.SIGCONT)
        time.sleep(0.4)
    status, said = still_draws(w)
    check("a_silent_path_is_a_delay", status == 0, said)


def lost(w, name):
    """What was drawn on is gone; the guest lets go of it."""
    w.pool.host.says("slot %d .*channel lost" % w.lent, HANG)
    tasks, hung = desktop.let_go(w.guest, w.place)
    check("%s: no task waits" % name, not tasks, tasks)
    check("%s: no task hung" % name, not hung, hung)


def path_cut(w):
    w.relay.kill()
    lost(w, "path cut")


def without_loss(w):
    w.lend()
    per_frame(w, "without loss")
    benchmark(w, "without loss")


def box_killed(w):
    desktop.drawing(w.guest, "gles 0")
    w.pool.boxes["gpu%d" % w.lent].kill()
    lost(w, "box killed")


def of_host(w, name):
    return [pid for comm, pid in w.pool.host.children() if comm.startswith(name)]


def worker_killed(w):
    w.lend()
    draws(w, "before_a_worker_is_killed", 1)
    desktop.drawing(w.guest, "gles 0")
    before = of_host(w, "dxpu-worker")
    check("one_worker", len(before) == 1, before)
    os.kill(before[0], signal.SIGKILL)
    until(lambda: of_host(w, "dxpu-worker") not in ([], before), "another worker")
    tasks, hung = desktop.let_go(w.guest, w.place)
    check("worker killed: no task waits or hung", not tasks and not hung, tasks, hung)
    w.lend()
    draws(w, "after_another_worker", 1)


def parent_killed(w):
    """None answers for the device any more, so its driver is left as it is: it would wait."""
    desktop.drawing(w.guest, "gles 0")
    os.kill(w.pool.host.popen.pid, signal.SIGKILL)
    w.pool.host.popen.wait()
    tasks = desktop.program_ends(w.guest)
    check("dxpu-host killed: no task waits", not tasks, tasks)
    check("machine_goes_on", w.guest.popen.poll() is None and
          w.guest.must("echo here").strip() == "here", w.guest.errors()[-500:])


def beside_qemu(l):
    """Frames a second, of interleaved rounds.  A program draws on the first GPU that it finds: the
    other one's nodes are elsewhere meanwhile."""
    desktop.can_render()
    desktop.newest()
    tools, mesa, qmp = guest.tools("gl"), desktop.Mesa(l), l.file("qmp")
    pool = desktop.Pool(l, desktop.plugging(l, qmp, 1), {"gpu": (
        "--listen", "127.0.0.1:0", "--slot", "1=virtio-gpu,render")})
    g = desktop.boot(l, tools, mesa, qmp, 1, ["-device", "virtio-gpu-gl-pci,bus=pcie.0,romfile="],
                     "sdl,gl=on")
    away, speeds, names = "mkdir -p /dev/%s; mv /dev/dri/* /dev/%s; ", {}, {}
    g.wait_for("[ -e %s ]" % desktop.NODE, HANG)
    g.must(away % ("own", "own"))
    pool.lend("gpu", "--no-replace")
    g.wait_for("[ -e /dev/dri/renderD129 ]", HANG)
    g.must(away % ("lent", "lent"))
    for frames in (FRAMES, 3 * FRAMES, 3 * FRAMES, 3 * FRAMES):  # the first compiles shaders
        for which in ("own", "lent"):
            output = g.must("mv /dev/%s/* /dev/dri; gles %d; s=$?; mv /dev/dri/* /dev/%s; exit $s"
                            % (which, frames, which), HANG)
            names[which] = re.search(r"^renderer (.*)", output, re.M).group(1)
            speeds.setdefault(which, []).append(float(
                re.search(r"^frames \d+ (\S+)", output, re.M).group(1)))
    check("both_are_virgl", all(name.startswith("virgl") for name in names.values()), names)
    own, lent = (statistics.median(speeds[which][1:]) for which in ("own", "lent"))
    figure("gles beside QEMU's own virtio-gpu-gl (%s): lent (%s) %.1f frames a second, QEMU's %.1f:"
           " ratio %.2f" % (names["own"], names["lent"], lent, own, lent / own))
    g.kill()
    for process in (pool.boxes["gpu"], pool.host, pool.manager):
        check("stops_beside_qemu: " + process.name, process.stop() == 0, process.errors()[-500:])


def end(w):
    w.guest.kill()
    for name, box in w.pool.boxes.items():
        if box.popen.poll() is None:
            check(name + "_stops", box.stop() == 0, box.errors()[-500:])
    check("manager_stops", w.pool.manager.stop() == 0, w.pool.manager.errors()[-500:])
    until(lambda: not desktop.renderers(), "the renderers' end")


STORIES = (through_loss, renderer_killed, path_stops, path_cut, without_loss, box_killed,
           worker_killed, parent_killed, end)


def main():
    with lab.Lab() as l:
        try:
            beside_qemu(l)
        except guest.Missing as why:
            print("skip net_guest_mesa: beside QEMU's own: %s" % why)
        except Exception as why:
            traceback.print_exc()
            check("beside_qemu to its end", False, why, *[p.errors()[-300:] for p in l.processes])
    with lab.Lab() as l:
        try:
            w = World(l)
        except guest.Missing as why:
            print("skip net_guest_mesa %s" % why)
            return 0
        try:
            for story in STORIES:
                start = time.monotonic()
                story(w)
                figure("%s: %.1f s" % (story.__name__, time.monotonic() - start))
        except Exception as why:
            traceback.print_exc()
            check("net_guest_mesa to its end", False, why, w.guest.log()[-1500:],
                  w.pool.host.errors()[-1500:])
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
