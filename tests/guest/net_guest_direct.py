#!/usr/bin/env python3
"""A stock guest with a remote disk as a function of its own: no VMD, no driver but nvme.

QEMU has the function from its start.  The guest finds the disk in its own domain, writes and
verifies, resets and removes it, finds it again, and sees it go with its box.  DXPU_WHOLE=1: the
guest is restarted as well, and all is done again with MSI.  Prints `ok NAME`, `not ok NAME` or
`skip NAME` for each check.  Skipped, loudly, where no QEMU or guest can be had."""
# run.py: --timeout 300
# SPDX-License-Identifier: MIT
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, check, figure  # noqa: E402

DISK = "/dev/nvme0n1"
# how a function is put into a root port
PORT = "pcie-root-port,id=rp0,chassis=1,slot=1"
FUNCTION = '{"driver":"vfio-user-pci","bus":"rp0","socket":{"path":"%s","type":"unix"}}'


class World:
    def __init__(self, l, interrupts):
        self.lab = l
        self.at = lab.address()
        self.relay = l.start("dxpu-relay", "--to", self.at, "--json", "--loss", 10)
        self.path = l.file("host.sock")
        self.start_box()
        self.host = l.start("dxpu-host", "--vfio-user", self.path, "--direct", "--slots", 1,
                            "--interrupts", interrupts, "--attach", "1=%s/1" % self.relay.address(),
                            "--json")
        self.host.says("waiting for a guest")
        self.guest = guest.Guest(l, "direct", guest.tools(), guest.initramfs(l.file("initrd")),
                                 None, extra=["-device", PORT, "-device",
                                              FUNCTION % (self.path + ".1")], reboots=True)
        figure("%s: boot to the first command %.1f s" % (interrupts, self.guest.ready()))

    def start_box(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "nvme", "--size",
                                  "64M", "--json")
        self.box.address()


def vectors(g):
    """Those of the disk that have been used, and what they are."""
    lines = [line for line in g.must("cat /proc/interrupts").splitlines() if "nvme" in line]
    used = [line for line in lines if any(int(n) for n in line.split()[1:3])]
    return len(used), " ".join(lines)


def verified_load(w, kind):
    g = w.guest
    g.wait_for("[ -b %s ]" % DISK, HANG)
    check(kind + "_no_vmd_domain", "10000:" not in g.must("ls /sys/bus/pci/devices"))
    status, out = g.run("fio --name=j --filename=%s --direct=1 --ioengine=libaio --iodepth=32 "
                        "--rw=randwrite --bsrange=512-256k --size=16m --verify=crc32c "
                        "--verify_fatal=1 --do_verify=1" % DISK, 2 * HANG)
    check(kind + "_fio_verifies", status == 0, out)
    g.must("dd if=/dev/urandom of=%s bs=512 count=1 seek=64 oflag=direct" % DISK)
    status, _ = g.run("fio --name=j --filename=%s --direct=1 --verify=crc32c --rw=randwrite "
                      "--bsrange=512-256k --size=16m --verify_only" % DISK, HANG)
    check(kind + "_fio_control_sees_damage", status != 0)
    count, lines = vectors(g)
    # MSI-X: one for commands of the administrator, one for each processor
    check(kind + "_interrupts", count >= (3 if kind == "msix" else 1), lines)
    check(kind + "_no_complaints", not g.complaints(), g.complaints())


def removed_and_found(w, kind):
    g = w.guest
    bdf = g.must("basename $(readlink -f /sys/block/nvme0n1/device/device)").strip()
    g.must("dd if=/dev/urandom of=%s bs=64k count=16 oflag=direct 2>/dev/null" % DISK)
    before = g.must("dd if=%s bs=64k count=16 iflag=direct 2>/dev/null | md5sum" % DISK)
    g.must("echo 1 > /sys/bus/pci/devices/%s/reset" % bdf, HANG)
    g.wait_for("dd if=%s bs=4k count=1 iflag=direct" % DISK, HANG)
    g.must("echo 1 > /sys/bus/pci/devices/%s/remove" % bdf, HANG)
    g.wait_for("[ ! -e %s ]" % DISK, HANG)
    g.must("echo 1 > /sys/bus/pci/rescan", HANG)
    g.wait_for("[ -b %s ]" % DISK, HANG)
    after = g.must("dd if=%s bs=64k count=16 iflag=direct 2>/dev/null | md5sum" % DISK)
    check(kind + "_same_data_after_reset_and_rescan", before == after, before, after)


def restarted(w, kind):
    g = w.guest
    g.start("reboot -f")
    g.ready()
    g.wait_for("[ -b %s ]" % DISK, HANG)
    count, lines = vectors(g)
    check(kind + "_there_after_a_restart", count > 0, lines)


def lost(w, kind):
    """Without a monitor to unplug it, what the guest does is its driver's."""
    g = w.guest
    w.box.kill()
    w.host.says("channel lost", HANG)
    g.run("dd if=%s of=/dev/null bs=4k count=1 iflag=direct" % DISK, 2 * HANG)
    check(kind + "_guest_lives_on", g.must("echo alive").strip() == "alive")
    bdf = g.must("ls /sys/bus/pci/drivers/nvme | grep : || true").split()
    check(kind + "_driver_lets_go_of_it", not bdf, bdf)
    bad = g.complaints()
    check(kind + "_no_complaints_at_the_end", not bad, bad)
    check(kind + "_qemu_lives_on", g.popen.poll() is None, g.errors())


def main():
    try:
        guest.tools()
    except guest.Missing as why:
        print("skip net_guest_direct " + str(why))
        return 0
    whole = os.environ.get("DXPU_WHOLE")
    for kind, stories in ([("msix", [removed_and_found, restarted, lost]), ("msi", [lost])]
                          if whole else [("msix", [removed_and_found, lost])]):
        with lab.Lab() as l:
            try:
                w = World(l, kind)
                verified_load(w, kind)
                for story in stories:
                    story(w, kind)
            except Exception as why:
                traceback.print_exc()
                check("net_guest_direct to its end", False, why)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
