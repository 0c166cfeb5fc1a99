"""Who uses the devices in the story: a stock Linux guest under QEMU, or the built-in root complex.

Both are asked the same things.  A place is the number of a slot behind dxpu-host, or DIRECT: the
same NVMe model behind dxpu-direct, with no fabric.  Standard library only."""
# SPDX-License-Identifier: MIT
import errno
import json
import os
import sys
import time

import lab
import root

sys.path.append(os.path.join(lab.ROOT, "tests", "guest"))
import guest  # noqa: E402
import suite  # noqa: E402

DIRECT = 0
DIRECT_SERIAL = "d1ec7"  # ends with it
SECONDS = 150  # until something that must happen has not; drivers wait 60 for a dead device
UNDER_WAY = 100  # requests that a disk completed: the load reaches it
LOST = (errno.EIO, errno.ENXIO, errno.ENODEV)  # what I/O to a removed disk ends with
Missing = guest.Missing


class Failed(Exception):
    """A step of the story did not hold."""


def io_end(status, job):
    """How fio ended, by its exit status and its JSON: with errors of I/O, not of the opening."""
    moved = job["read"]["io_bytes"] + job["write"]["io_bytes"]
    if job["error"] not in LOST or not moved:
        raise Failed("fio: exit status %d, but no I/O error: error %d after %d bytes"
                     % (status, job["error"], moved))
    return "fio ended with I/O errors (%s) after %d MB" % (
        errno.errorcode[job["error"]], moved >> 20)


class Stock:
    """Debian's kernel with its own drivers, and fio."""

    name, disk_io = "a stock Debian guest", "fio"
    caution = "; under TCG: compare the two, not with hardware"

    def __init__(self, l):
        self.tools = guest.tools()
        self.modules, files, self.no_display = {}, [], None
        try:
            self.modules = suite.modules(self.tools, suite.DISPLAY)
            files = [suite.program(l, "shade")]
        except Missing as why:  # all else works without
            self.no_display = str(why)
        self.initrd = guest.initramfs(l.file("initrd"), *files, *self.modules.values())
        self.lab, self.guest = l, None

    def boot(self, sockets):
        fabric, direct = sockets
        self.guest = guest.Guest(self.lab, "guest", self.tools, self.initrd, fabric,
                                 extra=("-device", guest.adapter(direct)))
        took = self.guest.ready(SECONDS)
        self.must, self.run = self.guest.must, self.guest.run
        return "Linux %s under TCG, boot to the first command %.1f s" % (self.guest.version, took)

    def ports(self):
        found = self.must("for p in /sys/bus/pci/devices/10000:00:*; do "
                          "basename $(readlink $p/driver); done").split()
        slots = self.must("grep -l ^10000: /sys/bus/pci/slots/*/address | wc -l").strip()
        return found.count("pcieport"), "driver pcieport on each, %s hot-plug slots" % slots

    def device(self, place):
        return "/sys/bus/pci/devices/%s:00.0" % ("10001:01" if place == DIRECT
                                                 else "10000:%02x" % place)

    def disk(self, place):
        return "/dev/%sn1" % self.must("ls %s/nvme" % self.device(place)).strip()

    def is_empty(self, slot):
        return self.run("[ -e %s ]" % self.device(slot))[0] == 1

    def filled(self, place):
        self.guest.wait_for("there %s/nvme/nvme*/nvme*n1" % self.device(place), SECONDS)
        driver = self.must("basename $(readlink %s/driver)" % self.device(place)).strip()
        serial = self.must("cat %s/nvme/nvme*/serial" % self.device(place)).strip()
        size = int(self.must("blockdev --getsize64 %s" % self.disk(place)))
        return "driver %s, %s, %d MB, serial %s" % (driver, self.disk(place), size >> 20, serial)

    def emptied(self, slot):
        self.guest.wait_for("[ ! -e %s ]" % self.device(slot), SECONDS)

    def fio(self, place, *options):
        # A file of fio's in /dev would keep a disk that returns from its name.
        return " ".join(("fio", "--name=job", "--filename=" + self.disk(place), "--direct=1",
                         "--allow_file_create=0", "--ioengine=libaio", "--output-format=json",
                         "--output=/tmp/job.json", "--randrepeat=0", *options))

    def job(self):
        text = self.must("cat /tmp/job.json")
        return json.loads(text[text.index("{"):])["jobs"][0]

    def write_and_verify(self, place, megabytes):
        """The bytes that were written and found as written."""
        status, output = self.run(self.fio(
            place, "--rw=randwrite", "--bsrange=512-128k", "--iodepth=16", "--size=%dm" % megabytes,
            "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"), SECONDS)
        if status:
            raise Failed("fio: exit status %d: %s" % (status, output[-500:]))
        job = self.job()
        if job["error"] or job["read"]["io_bytes"] < job["write"]["io_bytes"]:
            raise Failed("fio: error %d, %d bytes written, %d read" % (
                job["error"], job["write"]["io_bytes"], job["read"]["io_bytes"]))
        return job["write"]["io_bytes"]

    def measure(self, place, depth, seconds):
        """Random reads of 4 KB."""
        self.must(self.fio(place, "--rw=randread", "--bs=4k", "--iodepth=%d" % depth, "--size=32m",
                           "--time_based", "--runtime=%dms" % (1000 * seconds)), SECONDS)
        read = self.job()["read"]
        return {"iops": read["iops"], "mean_us": read["lat_ns"]["mean"] / 1e3,
                "p50_us": read["clat_ns"]["percentile"]["50.000000"] / 1e3,
                "p99_us": read["clat_ns"]["percentile"]["99.000000"] / 1e3}

    def remember(self, place):
        """Write 1 MB of noise that recall() will know again."""
        self.must("dd if=/dev/urandom of=/tmp/noise bs=64k count=16; "
                  "dd if=/tmp/noise of=%s bs=64k seek=512 oflag=direct" % self.disk(place))

    def recall(self, place):
        return self.run("dd if=%s bs=64k skip=512 count=16 iflag=direct 2>/dev/null | "
                        "cmp - /tmp/noise" % self.disk(place))[0] == 0

    def load(self, place, action):
        """Do something under I/O; how the I/O ended, or None when it saw no error."""
        job = self.fio(place, "--rw=randrw", "--bsrange=4k-64k", "--iodepth=16", "--size=24m",
                       "--time_based", "--runtime=%d" % SECONDS)
        done = "awk '{print $1 + $5}' /sys/block/%s/stat" % os.path.basename(self.disk(place))
        before = int(self.must(done))
        self.must("rm -f /tmp/ended /tmp/job.json; "
                  "(%s >/tmp/job.out 2>&1; echo $? >/tmp/ended) &" % job)
        self.guest.wait_for('[ -e /tmp/ended ] || [ "$(%s)" -ge %d ]'
                            % (done, before + UNDER_WAY), SECONDS)
        if self.run("[ -e /tmp/ended ]")[0] == 0:
            raise Failed("fio ended by itself: %s" % self.must("cat /tmp/job.out")[-500:])
        action()
        self.guest.wait_for("[ -s /tmp/ended ]", SECONDS)
        status = int(self.must("cat /tmp/ended"))
        return io_end(status, self.job()) if status else None

    def draws(self, slot):
        """On the display adapter there; its driver, and how it drew: "2d" or "3d"."""
        for module in self.modules:
            self.must("insmod /modules/%s.ko" % module)
        self.guest.wait_for("there /dev/fb0", SECONDS)  # the console is there, and leaves
        self.must("shade /dev/dri/card0 >/tmp/shade 2>&1 & echo $! >/tmp/shade.pid")
        self.guest.wait_for("grep -q drawn /tmp/shade || ! kill -0 $(cat /tmp/shade.pid)", SECONDS)
        said = self.must("cat /tmp/shade")
        if "drawn" not in said:
            raise Failed("shade: " + said)
        driver = self.must("basename $(readlink %s/virtio*/driver)" % self.device(slot)).strip()
        return driver, said.split("drawn ")[1].strip()

    def complaints(self):
        return self.guest.complaints()

    def close(self):
        self.guest.start("poweroff -f")
        try:
            return self.guest.popen.wait(60) == 0
        finally:
            self.guest.kill()


class BuiltIn:
    """root.py, where no guest can be had."""

    name, disk_io = "the built-in root complex", "its NVMe driver"
    caution = ""
    no_display = "the built-in root complex has no driver for one"

    def __init__(self):
        self.roots = {}
        self.nvme = {}
        self.noise = int(time.time())

    def boot(self, sockets):
        for which, path in zip(("fabric", "direct"), sockets):
            self.roots[which] = root.Root(path, 4)
        return "not a guest: a program that does what QEMU and a kernel would"

    def root_of(self, place):
        return self.roots["direct" if place == DIRECT else "fabric"]

    def ports(self):
        return len(self.roots["fabric"].ports), "buses, windows and hot-plug interrupts set up"

    def is_empty(self, slot):
        return not self.roots["fabric"].present(slot)

    def filled(self, place):
        nvme = self.nvme[place] = self.root_of(place).filled(place or 1)
        return "%04x:%04x, class %06x, BAR0 %d KB, %s, %d MB, serial %s" % (
            nvme.id & 0xFFFF, nvme.id >> 16, nvme.device_class, nvme.bar_bytes >> 10, nvme.model,
            nvme.bytes >> 20, nvme.serial)

    def emptied(self, slot):
        self.roots["fabric"].emptied(slot)

    def write_and_verify(self, place, megabytes):
        blocks = range(megabytes * 256)
        self.nvme[place].fill(1, blocks, 16)
        bad = self.nvme[place].check(1, blocks, 16)
        if bad:
            raise Failed("%d blocks of 4 KB are not as written" % bad)
        return len(blocks) * root.BLOCK

    def measure(self, place, depth, seconds):
        return self.nvme[place].measure(depth, seconds)

    def remember(self, place):
        self.nvme[place].fill(self.noise, range(8192, 8192 + 256))

    def recall(self, place):
        return self.nvme[place].check(self.noise, range(8192, 8192 + 256)) == 0

    def load(self, place, action):
        def blocks():
            for n, block in enumerate(self.nvme[place].random_blocks(30)):
                if n == 500:
                    action()
                yield block
        try:
            self.nvme[place].run(root.READ, blocks(), 16)
        except root.Gone as gone:
            return "I/O ended: %s" % gone
        return None

    def complaints(self):
        return []

    def close(self):
        for one in self.roots.values():
            one.close()
        return True
