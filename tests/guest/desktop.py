"""A stock Debian 13 guest without a VMD driver that is lent GPUs, and what the tests of it share.

Its root ports are empty until dxpu-host --direct plugs a lent device in by QMP.  With Mesa, from
Debian's packages as well, it runs eglinfo, glmark2 and gles.c.  Standard library only."""
# SPDX-License-Identifier: MIT
import json
import os
import re
import shlex
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
from cases import until  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG  # noqa: E402

NODE = "/dev/dri/renderD128"
TAG = "DXPU_TEST_RENDERER=%d" % os.getpid()
MEMORY = 1024  # of a guest with Mesa in memory, MB
HUNG = re.compile(r"blocked for more than|\bhung\b")
PCI = "readlink -f /sys/class/drm/renderD128/device | " \
      "sed 's,.*/\\(0000:[^/]*\\)/virtio.*,\\1,;s,.*/,,'"


def renderers(box=""):
    """Processes of dxpu-render that this process has caused, with can_render(); of one box of
    Pool."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid) as name, open("/proc/%s/environ" % pid) as words:
                mine = {TAG, "DXPU_TEST_BOX=" + box} if box else {TAG}
                if name.read() == "dxpu-render\n" and mine <= set(words.read().split("\0")):
                    found.append(int(pid))
        except OSError:
            pass  # it has ended, or is another user's
    return found


def can_render():
    """Raises guest.Missing where dxpu-render cannot."""
    done = subprocess.run([os.path.join(lab.BIN, "dxpu-render"), "--check"],
                          stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise guest.Missing("dxpu-render: " + done.stderr.strip()[:300])
    os.environ.update([TAG.split("=")])


def newest(say=suite.figure):
    """guest.tools() of Debian 13, unless another suite is named."""
    if not os.environ.get("DXPU_GUEST_SUITE"):
        os.environ["DXPU_GUEST_SUITE"] = "trixie"
        try:
            return guest.tools()
        except guest.Missing as why:
            say("Debian 12: %s" % why)
            del os.environ["DXPU_GUEST_SUITE"]
    return guest.tools()


def modules(tools):
    """Of a display and a disk, in order."""
    found = suite.modules(tools, ("virtio_blk",) + suite.DISPLAY)
    found["virtio_blk"] = found.pop("virtio_blk", None)  # after what it needs
    return {name: path for name, path in found.items() if path}


def ports(qmp, count):
    """Words of QEMU's command."""
    words = ["-qmp", "unix:%s,server=on,wait=off" % qmp]
    for n in range(1, count + 1):
        words += ["-device", "pcie-root-port,id=rp%d,chassis=%d,slot=%d" % (n, n, n)]
    return words


class Mesa:
    """Programs for the guest: `files` for its initramfs, `tree` to be added to it."""

    def __init__(self, l):
        place, = guest.ask(os.path.join(HERE, "more.sh"), "mesa")
        self.tree = os.path.join(place, "root")
        self.files = [l.file("gles")]
        libraries = [os.path.join(self.tree, name) for name in (
            "usr/lib/x86_64-linux-gnu/libEGL.so.1", "usr/lib/x86_64-linux-gnu/libGLESv2.so.2",
            "lib/libc.so.6")]
        # with the guest's C library, which may be older than this machine's
        built = subprocess.run(
            [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O2", "-I",
             os.path.join(place, "include"), "-o", self.files[0], os.path.join(HERE, "gles.c"),
             "-nodefaultlibs", *libraries, "-Wl,--allow-shlib-undefined"],
            stderr=subprocess.PIPE, text=True)
        if built.returncode:
            raise guest.Missing("gles.c is not compiled: %s" % built.stderr.strip()[:300])


def plugging(l, qmp, count):
    """Options of a dxpu-host that plugs into such a guest."""
    return "--vfio-user", l.file("direct.sock"), "--direct", "--slots", count, "--qmp", qmp


def boot(l, tools, mesa, qmp, count, extra=(), display="none"):
    """A guest with `count` empty root ports, and Mesa."""
    loaded = modules(tools)
    initrd = guest.initramfs(l.file("desktop"), mesa.tree, *mesa.files, *loaded.values())
    g = guest.Guest(l, "desktop", tools, initrd, None, memory=MEMORY, cpus=2, display=display,
                    extra=[*ports(qmp, count), *extra])
    g.ready()
    for module in loaded:
        g.must("insmod /modules/%s.ko" % module)
    return g


def arrived(g):
    """A GPU that was lent is there.  It has no viewer, and the guest's console would wait for ever
    for one that is gone.  Its place."""
    g.wait_for("[ -e %s ] && [ -e /sys/class/vtconsole/vtcon1 ]" % NODE, HANG)
    g.must("echo 0 >/sys/class/vtconsole/vtcon1/bind")
    return g.must(PCI).strip()


def drawing(g, program):
    """Draw until it is killed, or fails; it is under way."""
    g.must("%s >/tmp/draw 2>&1 & echo $! >/tmp/draw.pid" % program)
    g.wait_for("grep -q drawing /tmp/draw", HANG)


def program_ends(g):
    """The one of drawing(), killed.  Tasks that wait then."""
    g.must("kill -9 $(cat /tmp/draw.pid)")
    g.wait_for("! kill -0 $(cat /tmp/draw.pid)", HANG)
    return g.must(suite.WAITING)


def let_go(g, place):
    """Of a GPU that is lost while a program draws: the program is killed, the guest removes the
    device.  Tasks that wait for it then, and what the kernel says of hung ones: two texts, both
    empty where all is well."""
    program_ends(g)
    g.start("echo 1 >%s/remove" % suite.device(place))
    g.finish(g.next_id, HANG)
    g.wait_for("[ ! -e %s ]" % NODE, HANG)
    hung = HUNG.search(g.log())
    return g.must(suite.WAITING), g.log()[hung.start():][:800] if hung else ""


class Pool:
    """A manager, a dxpu-host with these options, and boxes: {name: options of dxpu-box}."""

    def __init__(self, l, host, boxes, slots=0):
        self.lab = l
        self.api = "http://" + lab.address(socket.SOCK_STREAM)
        self.registry = lab.address(socket.SOCK_STREAM)
        self.manager = l.start("dxpu-manager", "--listen", self.registry, "--http",
                               self.api.split("//")[1], "--store", l.file("pool.db"))
        self.manager.says("users at")
        self.boxes = {}
        for name, words in boxes.items():
            os.environ["DXPU_TEST_BOX"] = name
            self.boxes[name] = self.start("dxpu-box", name, "--state", l.file(name + ".state"),
                                          *words)
        self.host = self.start("dxpu-host", "vm", *host)
        until(lambda: (self.ask("pool")["slots"]["free"], self.ask("pool")["hosts"]["connected"]) ==
              (slots or len(boxes), 1), "the pool is there")

    def start(self, program, name, *words):
        return self.lab.start(program, "--manager", self.registry, "--identity",
                              self.lab.file(name + ".id"), "--name", name, "--json", *words)

    def dxpu(self, *words):
        return self.lab.run("dxpu", *words, "--manager", self.api)

    def ask(self, *words):
        done = self.dxpu(*words, "--json")
        assert done.status == 0, done.errors()
        return json.loads(done.output())

    def lend(self, model, *words):
        return self.ask("lease", "create", "--host", "vm", "--model", model, "--wait", *words)
