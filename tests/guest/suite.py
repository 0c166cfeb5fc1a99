"""What the guest tests share: results and figures, programs that run in the guest, its pictures.

Standard library only."""
# SPDX-License-Identifier: MIT
import glob
import os
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import lab  # noqa: E402
import picture  # noqa: E402
from cases import known  # noqa: E402,F401

HANG = 90  # seconds after which something hangs that takes a few under a software-emulated CPU
# A BAR, and what a guest below a switch must be booted with to have it hot-added.
LARGE, LARGE_PARAMETER = "4G", "pci=hpmmioprefsize=8G"
# Modules of the virtio display adapter's driver, in the order in which they must be loaded.
DISPLAY = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "virtio_dma_buf", "drm", "drm_kms_helper", "drm_shmem_helper", "virtio-gpu")
failed = 0
prefix = ""  # of the names of checks: whose turn it is


def check(name, truth, *shown):
    global failed
    failed += not truth
    words = " ".join(str(s) for s in shown).replace("\n", " | ")[-1500:]
    print(("ok " if truth else "not ok ") + prefix + name +
          ("" if truth or not words else "  # " + words))
    sys.stdout.flush()
    return truth


def figure(text):
    print("# " + text)
    sys.stdout.flush()


def program(l, name):
    """Compile tests/guest/NAME.c, static; its path."""
    path = l.file(name)
    built = subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O2", "-static",
                            "-iquote", os.path.join(HERE, "..", "support"), "-iquote", lab.ROOT,
                            "-o", path, os.path.join(HERE, name + ".c")],
                           stderr=subprocess.PIPE, text=True)
    if built.returncode:
        raise guest.Missing("%s.c is not compiled: %s" % (name, built.stderr.strip()[:200]))
    return path


def box_with(l, name):
    """A dxpu-box of the programs' objects, but for one, which is tests/guest/NAME.c.  Its path."""
    path, build = l.file("dxpu-box-" + name), os.path.join(lab.ROOT, "build")
    archives = [a for where in ("examples/box.a", "examples/devices.a", "examples/common/*.a",
                                "bindings/*.a", "libdxpu.a")
                for a in sorted(glob.glob(os.path.join(build, where)))]
    optional = []  # as the Makefile has them
    for package, libraries in (("libdeflate", ["-ldeflate"]), ("libseccomp", ["-lseccomp"]),
                               ("libxdp libbpf", ["-lxdp", "-lbpf"])):
        if subprocess.run(["pkg-config", "--exists", *package.split()]).returncode == 0:
            optional += libraries
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-pthread", "-o", path,
                    *["-I" + os.path.join(lab.ROOT, room) for room in (
                        "build/include", "examples/box", "examples/devices",
                        "examples/common/base")],
                    os.path.join(HERE, name + ".c"), "-Wl,--start-group", *archives,
                    "-Wl,--end-group", "-levent", "-lsodium", "-lpng", "-lz", "-lm",
                    *optional], check=True)
    return path


def box_without_reset(l):
    """A dxpu-box whose memory device keeps what its users leave."""
    return box_with(l, "memory_no_reset")


def modules(tools, names):
    """{name: path}, in the order in which they must be loaded; what the kernel of another suite
    has built in is not among them.  The last one, the driver, must be there."""
    paths = {name: os.path.join(tools[1], "modules", name + ".ko") for name in names}
    if not os.path.exists(paths[names[-1]]):
        raise guest.Missing("the guest has no %s; remove %s to fetch it" % (paths[names[-1]],
                                                                            tools[1]))
    return {name: path for name, path in paths.items() if os.path.exists(path)}


# Longer than a busy machine stops a program: drivers hang whose device is lost while they use it.
HOLD = "--hold-ms", 2000
# Tasks that wait uninterruptibly, and where.
WAITING = ("for p in $(grep -l 'State:.D' /proc/[0-9]*/status 2>/dev/null); do "
           "cat ${p%status}comm ${p%status}stack 2>/dev/null; done; true")


def machine(l, tools, places, modules={}, files=(), extra=(), options=(), **more):
    """A dxpu-host with a root port for each of these places, ADDRESS/SLOT of a box, and a guest
    that has loaded these modules; files go to /bin of the guest, `extra` to QEMU's command,
    `options` to dxpu-host's."""
    path = l.file("host.sock")
    host = l.start("dxpu-host", "--vfio-user", path, "--slots", len(places), "--topology",
                   "root-ports", "--attach", ",".join("%d=%s" % (n + 1, place)
                                                      for n, place in enumerate(places)), "--json",
                   *options)
    host.says("waiting for a guest")
    initrd = guest.initramfs(l.file("initrd"), *files, *modules.values())
    g = guest.Guest(l, "a", tools, initrd, path, extra=extra, **more)
    figure("boot to the first command %.1f s" % g.ready())
    for module in modules:
        g.must("insmod /modules/%s.ko" % module)
    return host, g


def pattern_rows():
    """What tests/guest/drawfb.c draws."""
    return [b"".join(bytes((x * 255 // 639, y * 255 // 479, (x ^ y) & 255)) for x in range(640))
            for y in range(480)]


class Display:
    """Of a World whose box has a display in slot 1: its pictures.  The World has lab, control,
    screen and guest."""

    seconds = HANG  # until the console must have been drawn

    def draw(self, *cursor_at):
        """Returns when drawfb has drawn; it stays until stop_drawing()."""
        self.guest.must("drawfb /dev/dri/card0 %s >/tmp/draw 2>&1 & echo $! >/tmp/draw.pid"
                        % " ".join(map(str, cursor_at)))
        self.guest.wait_for("grep -q drawn /tmp/draw || ! kill -0 $(cat /tmp/draw.pid)", HANG)
        said = self.guest.must("cat /tmp/draw")
        if "drawn" not in said.split():
            raise guest.Stuck("drawfb: " + said)

    def stop_drawing(self):
        """A display has one master: the next one fails as long as this one is there."""
        self.guest.must("kill $(cat /tmp/draw.pid)")
        self.guest.wait_for("! kill -0 $(cat /tmp/draw.pid)", HANG)

    def shoot(self):
        """The picture that the box has now; None when it says that there is none."""
        done = self.lab.run("dxpu", "screenshot", "--json", self.control, 1, self.screen,
                            seconds=HANG)
        if done.result().get("error") == "dark":
            return None
        if done.status:
            raise guest.Stuck("no screenshot: " + done.errors()[-500:])
        return picture.read(self.screen)

    def shoot_until(self, good):
        """The console is drawn some time after it is written to."""
        end = time.monotonic() + self.seconds
        while True:
            shot = self.shoot()
            if (shot and good(*shot)) or time.monotonic() > end:
                return shot
            time.sleep(0.2)


def below(slot):
    """Where the device of a slot that is a root port is found."""
    return "10000:%02x:00.0" % slot


def device(bdf):
    return "/sys/bus/pci/devices/" + bdf


def pcitest(g, name, command, seconds=HANG):
    """Run tests/guest/pcitest.c; each of its lines is a test."""
    start = time.monotonic()
    status, output = g.run("pcitest " + command, seconds)
    lines = output.splitlines()
    bad = [line for line in lines if line.startswith("FAILED")]
    good = sum(line.startswith("ok ") for line in lines)
    check("%s: %d tests" % (name, good), status == 0 and not bad and good > 0,
          status, bad or lines[-5:])
    figure("%s: %.1f s" % (name, time.monotonic() - start))
    return lines


def large_bar(g, name, bdf):
    """Hot-added, written and read from end to end."""
    took = g.wait_for("[ -e %s/resource4 ]" % device(bdf), HANG)
    figure("%s: there after %.1f s" % (name, took))
    lines = pcitest(g, name, "far %s 4" % bdf)
    check(name + ": its BAR has 4 GB", "bar 4 has %d bytes" % (4 << 30) in lines, lines[:3])
