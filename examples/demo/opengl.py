"""A second machine of the demo: stock Debian 13 without a VMD driver, to which GPUs are lent and
plugged in by QMP (dxpu-host --direct).  Stock Mesa draws on one until its box is killed, and then
on another.

Raises machines.Missing where the guest, Mesa or the renderer cannot be had.  Standard library
only."""
# SPDX-License-Identifier: MIT
import os
import re
import time

from machines import Failed, Missing
import desktop  # from where machines.py has guest.py

PORTS = 2
BOXES = {name: ("--listen", "127.0.0.1:0", "--slot", "1=virtio-gpu,render,attribute=rack=%d" % rack)
         for name, rack in (("gpu-1", 1), ("gpu-2", 2))}
FRAMES = 100
HANG = desktop.HANG


class Story:
    def __init__(self, l, step, tell):
        self.lab, self.step, self.tell = l, step, tell
        self.figures = {}
        desktop.can_render()
        self.tools, self.mesa = desktop.newest(self.did), desktop.Mesa(l)

    def did(self, text):
        self.tell("   " + text)

    def boot(self):
        self.step("a second machine: a stock guest with no parameter, no VMD driver, and Mesa")
        begin, qmp = time.monotonic(), self.lab.file("qmp")
        self.pool = desktop.Pool(self.lab, desktop.plugging(self.lab, qmp, PORTS), BOXES)
        self.guest = desktop.boot(self.lab, self.tools, self.mesa, qmp, PORTS)
        self.did("Linux %s, %d empty root ports, after %.1f s" % (self.guest.version, PORTS,
                                                               time.monotonic() - begin))

    def lend(self, rack):
        words = ("lease", "create", "--host", "vm", "--model", "gpu", "--attributes",
                 "rack=%d" % rack, "--no-replace", "--wait")
        begin = time.monotonic()
        lease = self.pool.ask(*words)
        self.place = desktop.arrived(self.guest)
        self.did("$ dxpu " + " ".join(words))
        self.did("lease %s: %s at %s, %.2f s after the order" % (
            lease["lease"], desktop.NODE, self.place, time.monotonic() - begin))

    def draw(self):
        """By gles.c; frames a second."""
        status, output = self.guest.run("gles %d" % FRAMES, HANG)
        named = re.search(r"^renderer (virgl.*)", output, re.M)
        good = re.findall(r"^ok (?!control_)(\w+)", output, re.M)
        speed = re.search(r"^frames \d+ (\S+)", output, re.M)
        if status or not named or not speed:
            raise Failed("gles: %s" % output[-800:])
        self.did("%s: %s" % (named.group(1), ", ".join(good)))
        self.did("%d frames, each pixel of each read back and right, %s a second" % (
            FRAMES, speed.group(1)))
        return float(speed.group(1))

    def use(self):
        self.step("a GPU is lent to it: Mesa knows it, and draws, computes and counts on it")
        self.lend(1)
        said = self.guest.run("%s -B -p surfaceless" % self.guest.must(
            "ls /usr/bin/eglinfo*").split()[0], HANG)[1]
        named = re.search(r"OpenGL ES profile renderer: (virgl.*)", said)
        if not named:
            raise Failed("eglinfo: %s" % said[-800:])
        self.did("eglinfo: %s" % named.group(1))
        self.figures["frames_per_second"] = self.draw()

    def lose(self):
        self.step("the box of that GPU is killed (kill -9) while it draws; another one is lent")
        desktop.drawing(self.guest, "gles 0")
        self.pool.boxes["gpu-1"].kill()
        self.pool.host.says("channel lost", HANG)
        waits, hung = desktop.let_go(self.guest, self.place)
        if waits or hung:
            raise Failed("a task of the guest waits for a GPU that is gone: %s%s" % (waits, hung))
        self.did("the guest let go of it; no task of it waits")
        self.lend(2)
        self.draw()

    def end(self):
        self.guest.kill()
        for process in (self.pool.boxes["gpu-2"], self.pool.host, self.pool.manager):
            if process.stop() != 0:
                raise Failed("%s: %s" % (process.name, process.errors()[-500:]))

    def run(self):
        for one in (self.boot, self.use, self.lose, self.end):
            one()


def tell_story(l, step, tell):
    """Its figures; leaves the environment as it was."""
    before = dict(os.environ)
    try:
        story = Story(l, step, tell)
        story.run()
        return story.figures
    finally:
        os.environ.clear()
        os.environ.update(before)


__all__ = ["Missing", "tell_story"]
