"""A stock guest's NVMe driver on a controller that another process serves to the box by vfio-user.

The controller is there when the guest boots, carries verified loads, and its process is killed
under load: the guest sees a surprise removal, and a controller that is reset and hot-added when the
process is back."""
# SPDX-License-Identifier: MIT
import suite
from suite import HANG, check, figure

MODULES, PROGRAMS, LOSS, BOX_SLOT = (), (), 0, 2
DISK, READS = "/dev/nvme0n1", "/sys/block/nvme0n1/stat"  # the first number there
FIO = ("fio --name=j --filename=%s --direct=1 --ioengine=libaio --verify=xxhash --verify_fatal=1 "
       "--do_verify=1 %s")


class World:
    def __init__(self, l, at, slot):
        self.lab, self.at, self.bdf = l, at, suite.below(slot)
        self.socket = l.file("nvme.sock")

    def start(self):
        self.start_device()
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--slots", 2, "--slot",
                                  "2=vfio-user,socket=" + self.socket, "--json", "-v",
                                  *suite.HOLD)
        self.box.address()

    def close(self):
        pass

    def start_device(self):
        self.device = self.lab.start("dxpu-device", "nvme", "--socket", self.socket, "--file",
                                     self.lab.file("process.disk"), "--size", "64M", "--serial",
                                     "vu7", "--stats")
        self.device.says("nvme at")

    def there(self):
        return self.guest.wait_for("[ -b %s ]" % DISK, HANG)


def found(w):
    w.there()
    size = w.guest.must("blockdev --getsize64 " + DISK).strip()
    check("size", size == str(64 << 20), size)
    check("serial", w.guest.must("cat /sys/block/nvme0n1/device/serial").strip() == "vu7")


def verified_load(w, name):
    for kind, options in (("deep", "--rw=randwrite --bsrange=512-128k --iodepth=32 --size=4m"),
                          ("single", "--rw=write --bs=4k --iodepth=1 --size=512k")):
        status, out = w.guest.run(FIO % (DISK, options), 2 * HANG)
        check("fio_%s_%s" % (kind, name), status == 0, out)


def killed_under_load(w):
    g = w.guest
    g.must("dd if=/dev/urandom of=%s bs=64k count=16 oflag=direct" % DISK)
    before = g.must("dd if=%s bs=64k count=16 iflag=direct 2>/dev/null | md5sum" % DISK)
    g.must("(fio --name=k --filename=%s --direct=1 --rw=randread --bs=4k --time_based "
           "--runtime=60 >/tmp/k 2>&1; echo over >>/tmp/k) &" % DISK)
    g.wait_for("[ -e /tmp/k ] && [ -e %s ]" % READS, HANG)
    reads = int(g.must("read -r n more <%s; echo $n" % READS))
    g.wait_for("{ read -r n more <%s && [ $n -gt %d ]; }" % (READS, reads + 50), HANG)
    w.device.kill()
    g.wait_for("[ ! -e %s ]" % DISK, HANG)
    check("removed_under_load", True)
    g.wait_for("grep -q over /tmp/k", HANG)
    w.start_device()
    figure("process back to disk %.1f s" % w.there())
    after = g.must("dd if=%s bs=64k count=16 iflag=direct 2>/dev/null | md5sum" % DISK)
    check("data_are_there_again", before == after, before, after)


def end(w):
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    w.guest.wait_for("[ ! -e %s ]" % suite.device(w.bdf), HANG)
    slot = w.box.result()["slot_2"]
    used = slot["vfio-user"]
    check("dma_by_message", used["dma_reads"] > 100 and used["dma_writes"] > 100, used)
    check("nothing_refused", sum(slot["refused"].values()) == 0 and used["maps_refused"] == 0, slot)
    check("lost_once", used["lost"] == 1, used)


STORIES = (found, lambda w: verified_load(w, "first"), killed_under_load,
           lambda w: verified_load(w, "after_return"), end)
