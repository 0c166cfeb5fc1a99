"""A stock guest's virtio_pci and virtio_blk run on a remote disk: file system, verified load, loss.

The disk is hot-added, gets a file system and files whose checksums hold after the guest has removed
the device and found it again, and after the box was started again.  With DXPU_WHOLE=1 another guest
has such a disk, one through a path that loses 1 %, and QEMU's own virtio-blk, and fio measures them
in turn."""
# SPDX-License-Identifier: MIT
import json
import statistics
import traceback

import guest
import lab
import suite
from suite import HANG, check, figure

# in the order in which they must be loaded
MODULES = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "virtio_blk", "crc16", "crc32c_generic", "mbcache", "jbd2", "ext4")
PROGRAMS, LOSS, BOX_SLOT = (), 10, 1
DISK = "/dev/vda"


class World:
    def __init__(self, l, at, slot):
        self.lab, self.at, self.bdf = l, at, suite.below(slot)

    def close(self):
        pass

    def start_box(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "virtio-blk",
                                  "--file", self.lab.file("disk"), "--size", "64M", "--serial",
                                  "vd7", "--json", *suite.HOLD)
        self.box.address()

    def there(self):
        return self.guest.wait_for("[ -b %s ]" % DISK, HANG)

    def gone(self):
        self.guest.wait_for("[ ! -e %s ]" % suite.device(self.bdf), HANG)


def hot_add(w):
    w.start_box()
    figure("box started to disk %.1f s" % w.there())
    g, block = w.guest, "/sys/block/vda/"
    size = g.must("blockdev --getsize64 " + DISK).strip()
    check("size", size == str(64 << 20), size)
    check("serial", g.must("cat %sserial" % block).strip() == "vd7")
    queues = g.must("ls %smq | wc -l" % block).strip()
    check("several_queues", queues == "2", queues)  # one for each processor
    cache = g.must("cat %squeue/write_cache" % block).strip()
    check("write_back", cache == "write back", cache)
    vectors = g.must("grep -c virtio /proc/interrupts").strip()
    check("msix", int(vectors) == 1 + 2, vectors)


def verified_load(w):
    for name, options in (  # each by another queue
            ("deep", "--rw=randwrite --bsrange=512-256k --iodepth=32 --size=8m --cpus_allowed=1"),
            ("single", "--rw=write --bs=4k --iodepth=1 --size=512k --cpus_allowed=0")):
        status, out = w.guest.run(
            "fio --name=j --filename=%s --direct=1 --ioengine=libaio --verify=xxhash "
            "--verify_fatal=1 --do_verify=1 %s" % (DISK, options), 2 * HANG)
        check("fio_%s_verifies" % name, status == 0, out)
    w.guest.must("dd if=/dev/urandom of=%s bs=512 count=1 seek=64 oflag=direct" % DISK)
    status, _ = w.guest.run("fio --name=j --filename=%s --direct=1 --verify=xxhash --rw=write "
                            "--bs=4k --size=512k --verify_only" % DISK, HANG)
    check("fio_control_sees_damage", status != 0)
    w.guest.must("blkdiscard " + DISK)
    left = w.guest.must("dd if=%s bs=1M count=8 iflag=direct 2>/dev/null | tr -d '\\0' | wc -c"
                        % DISK).strip()
    check("discarded_blocks_read_as_0", left == "0", left)


def file_system(w):
    w.guest.must("mke2fs -F -i 65536 %s && mkdir -p /tmp/m && mount -t ext4 %s /tmp/m"
                 % (DISK, DISK))
    w.guest.must("dd if=/dev/urandom of=/tmp/m/a bs=64k count=16 && "
                 "cp $(ls -d /modules/* | head -n 16) /tmp/m/")
    w.sums = w.guest.must("cd /tmp/m && find . -type f | sort | xargs md5sum")
    w.guest.must("umount /tmp/m")


def same_files(w, when):
    w.guest.must("mount -t ext4 -o ro %s /tmp/m" % DISK)
    sums = w.guest.must("cd /tmp/m && find . -type f | sort | xargs md5sum")
    check("files_after_" + when, sums == w.sums and sums.count("\n") > 10, sums[-300:])
    w.guest.must("umount /tmp/m")


def removed_and_found(w):
    """By the guest; and without a driver, the box is ended and started again."""
    g = w.guest
    g.must("echo 1 >%s/remove" % suite.device(w.bdf))
    w.gone()
    g.must("echo 1 >/sys/bus/pci/rescan")
    w.there()
    same_files(w, "remove_and_rescan")
    g.must("echo %s >/sys/bus/pci/drivers/virtio-pci/unbind" % w.bdf)
    w.box.kill()
    w.gone()
    w.start_box()
    w.there()
    same_files(w, "a_new_box")


def end(w):
    w.guest.must("echo 1 >%s/remove" % suite.device(w.bdf))
    said = w.guest.complaints()
    check("the guest's kernel has no complaint", not said, said)
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    used = w.box.result()["slot_1"]["virtio-blk"]
    check("nothing_refused", used["broken"] == used["unsupported"] == used["store_errors"] == 0,
          used)
    check("indirect_descriptors", used["indirect_requests"] > 0, used)
    figure("requests %d, looks %d, reads of the guest's memory %d" %
           (used["requests"], used["looks"], used["dma_reads"]))


STORIES = (hot_add, verified_load, file_system, removed_and_found, end)


def fio(g, disk, *options):
    g.must("fio --name=j --filename=%s --direct=1 --ioengine=libaio --allow_file_create=0 "
           "--output-format=json --output=/tmp/j %s" % (disk, " ".join(options)), 3 * HANG)
    text = g.must("cat /tmp/j")
    return json.loads(text[text.index("{"):])["jobs"][0]


def beside_qemu(l):
    """Figures, of interleaved rounds; all three are verified first."""
    tools = guest.tools()
    boxes = [l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "virtio-blk", "--file",
                     l.file("disk%d" % n), "--size", "64M", "--serial", serial, "--json")
             for n, serial in enumerate(("direct", "lossy"))]
    relay = l.start("dxpu-relay", "--to", boxes[1].address(), "--json", "--loss", 10)
    own = l.file("own")
    with open(own, "wb") as file:
        file.truncate(64 << 20)
    host, g = suite.machine(
        l, tools, [place.address() + "/1" for place in (boxes[0], relay)],
        suite.modules(tools, MODULES), cpus=2,
        extra=["-blockdev", "driver=file,filename=%s,node-name=own" % own, "-device",
               "virtio-blk-pci,drive=own,serial=qemu,num-queues=2"])
    disks = {}
    for serial in ("qemu", "direct", "lossy"):
        g.wait_for("cat /sys/block/vd*/serial | grep -q %s" % serial, HANG)
        disks[serial] = "/dev/" + g.must("grep -l %s /sys/block/vd*/serial" % serial).split("/")[3]
    for serial, disk in disks.items():
        job = fio(g, disk, "--rw=randwrite --bsrange=512-128k --iodepth=16 --size=16m "
                  "--verify=xxhash --verify_fatal=1 --do_verify=1")
        check("fio_verifies_" + serial, not job["error"] and
              job["read"]["io_bytes"] >= job["write"]["io_bytes"] > 0, job["error"])
    for depth in (1, 32):
        taken = {serial: [] for serial in disks}
        for _ in range(5):
            for serial, disk in disks.items():
                taken[serial].append(fio(g, disk, "--rw=randread --bs=4k --iodepth=%d --size=32m "
                                         "--time_based --runtime=1" % depth)["read"]["iops"])
        iops = {serial: statistics.median(rounds) for serial, rounds in taken.items()}
        figure("4 KB random reads, depth %d: %.0f IOPS, through 1 %% loss %.0f, QEMU's own %.0f: "
               "ratios %.2f and %.2f" % (depth, iops["direct"], iops["lossy"], iops["qemu"],
                                         iops["direct"] / iops["qemu"],
                                         iops["lossy"] / iops["qemu"]))
    said = g.complaints()
    check("no_complaint_beside_qemu", not said, said)
    g.kill()
    lost = relay.stop() == 0 and relay.result()["lost"]
    check("control_the_relay_lost", lost, lost)
    check("host_stops_beside_qemu", host.stop() == 0, host.errors()[-500:])


def more():
    with lab.Lab() as l:
        try:
            beside_qemu(l)
        except guest.Missing as why:
            print("skip beside_qemu %s" % why)
        except Exception as why:
            traceback.print_exc()
            check("beside_qemu to its end", False, why)

