#!/usr/bin/env python3
"""A stock guest with remote disks as functions of its own: no VMD, no driver but nvme.

QEMU has one function from its start.  The guest finds the disk in its own domain, writes and
verifies, resets and removes it, finds it again, and sees it go with its box.  Another disk is
plugged in and out by QMP: attached, detached when the guest has let go of it, lost, returned; a
migration is cancelled.  DXPU_WHOLE=1: the guest is restarted as well, and all is done again with
MSI.  DXPU_GUEST_KERNEL=cloud: with Debian's cloud kernel.  Prints `ok NAME`, `not ok NAME` or
`skip NAME` for each check.  Skipped, loudly, where no QEMU or guest can be had."""
# run.py: --timeout 450
# SPDX-License-Identifier: MIT
import json
import os
import re
import socket
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, check, figure  # noqa: E402

DISK = "/dev/nvme0n1"
PORT = "pcie-root-port,id=rp0,chassis=1,slot=1"
PLUGGED, PLUGGED_PORT = "/dev/nvme1n1", "pcie-root-port,id=rp1,chassis=2,slot=2"
IO_ERRORS = re.compile(r"I/O error|Removing after probe failure|controller is down|timeout")


class World:
    def __init__(self, l, interrupts):
        self.lab = l
        self.at = lab.address()
        self.relay = l.start("dxpu-relay", "--to", self.at, "--json", "--loss", 10)
        self.path = l.file("host.sock")
        self.start_box()
        self.host = l.start("dxpu-host", "--vfio-user", self.path, "--direct", "--slots", 1,
                            "--interrupts", interrupts, "--attach", "1=%s/1" % self.relay.address(),
                            "--json", "--push")
        self.host.says("waiting for a guest")
        self.qmp, self.plugged = [l.file(name) for name in ("qmp", "qmp2")], lab.address()
        self.start_plugged()
        self.start_plugger()
        monitors = [word for path in self.qmp
                    for word in ("-qmp", "unix:%s,server=on,wait=off" % path)]
        self.guest = guest.Guest(l, "direct", guest.tools(), guest.initramfs(l.file("initrd")),
                                 None, extra=["-device", PORT, "-device",
                                              guest.adapter(self.path + ".1", bus="rp0"),
                                              "-device", PLUGGED_PORT, *monitors],
                                 cpus=2, append=guest.APART, reboots=True)
        figure("%s: boot to the first command %.1f s" % (interrupts, self.guest.ready()))

    def start_box(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "nvme", "--size",
                                  "64M", "--json")
        self.box.address()

    def start_plugged(self):
        self.plugged_box = self.lab.start("dxpu-box", "--listen", self.plugged, "--device", "nvme",
                                          "--size", "64M", "--json")
        self.plugged_box.address()

    def start_plugger(self, *options):
        self.plugger = self.lab.start("dxpu-host", "--vfio-user", self.lab.file("plugged.sock"),
                                      "--direct", "--slots", 1, "--qmp", self.qmp[0], "--control",
                                      "127.0.0.1:0", "--json", *options)
        self.control = self.plugger.says(r"control port (\S+:\d+)\n").group(1)

    def dxpu(self, *words):
        start = time.monotonic()
        done = self.lab.run("dxpu", *words)
        assert done.status == 0, done.errors()
        return time.monotonic() - start


class Monitor:
    """Another one's QMP."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(HANG)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r")
        self.lines.readline()
        self.do("qmp_capabilities")

    def do(self, name, **arguments):
        self.socket.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        while True:
            answer = json.loads(self.lines.readline())
            if "return" in answer or "error" in answer:
                return answer.get("return")


def vectors(g):
    """Those of the disk that have been used, and what they are."""
    lines = [line for line in g.must("cat /proc/interrupts").splitlines() if "nvme" in line]
    used = [line for line in lines if any(int(n) for n in line.split()[1:3])]
    return len(used), " ".join(lines)


def verified_load(w, kind):
    g = w.guest
    g.wait_for("[ -b %s ]" % DISK, HANG)
    where = g.must("readlink -f /sys/block/%s/device/device" % os.path.basename(DISK)).strip()
    check(kind + "_disk_is_in_the_domain_of_the_machine",
          re.fullmatch(r"/sys/devices/pci0000:00/0000:00:\S+/0000:\S+", where), where)
    status, out = g.run("fio --name=j --filename=%s --direct=1 --ioengine=libaio --iodepth=32 "
                        "--rw=randwrite --bsrange=512-256k --size=16m --verify=xxhash "
                        "--verify_fatal=1 --do_verify=1 --cpus_allowed=1" % DISK, 2 * HANG)
    check(kind + "_fio_verifies", status == 0, out)
    g.must("dd if=/dev/urandom of=%s bs=512 count=1 seek=64 oflag=direct" % DISK)
    status, _ = g.run("fio --name=j --filename=%s --direct=1 --verify=xxhash --rw=randwrite "
                      "--bsrange=512-256k --size=16m --verify_only" % DISK, HANG)
    check(kind + "_fio_control_sees_damage", status != 0)
    count, lines = vectors(g)
    # MSI-X: one for commands of the administrator, one for each processor
    check(kind + "_interrupts", count >= (3 if kind == "msix" else 1), lines)
    said = g.complaints()
    check(kind + "_no_complaints", not said, said)
    w.box.statistics()  # of which the last slot's lines are
    pushes = int(re.findall(r"^ +pushes +(\d+)$", w.box.errors(), re.M)[-1])
    check(kind + "_entries_are_pushed", pushes > 100, pushes)  # to a disk in no VMD domain, too


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
    w.dxpu("detach", "--wait", w.control, 1)  # which disk is found first is not known
    g.start("reboot -f")
    g.ready()
    g.wait_for("[ -b %s ]" % DISK, HANG)
    count, lines = vectors(g)
    check(kind + "_there_after_a_restart", count > 0, lines)


def attach(w):
    w.dxpu("attach", "--wait", w.control, 1, w.plugged, 1)
    return w.guest.wait_for("[ -b %s ]" % PLUGGED, HANG)


def plugged_in_and_out(w, kind):
    """By dxpu-host, which speaks QMP."""
    g = w.guest
    figure("%s: plugged in after %.1f s" % (kind, attach(w)))
    status, out = g.run("fio --name=j --filename=%s --direct=1 --rw=randwrite --bs=4k --size=1m "
                        "--verify=xxhash --verify_fatal=1 --do_verify=1" % PLUGGED, HANG)
    check(kind + "_plugged_in_disk_verifies", status == 0, out)
    migration_is_cancelled(w, kind)
    before = len(g.log())
    figure("%s: unplugged after %.1f s" % (kind, w.dxpu("detach", "--wait", w.control, 1)))
    check(kind + "_guest_let_go_before_the_device_was_taken",
          g.run("[ ! -e %s ]" % PLUGGED)[0] == 0 and not IO_ERRORS.search(g.log()[before:]),
          g.log()[before:])
    w.plugger.says(r"slot 1: unplugged")
    attach(w)
    check(kind + "_plugged_in_again",
          g.run("dd if=%s of=/dev/null bs=4k count=1" % PLUGGED)[0] == 0)
    g.start("dd if=%s of=/dev/null bs=64k iflag=direct" % PLUGGED)
    w.plugged_box.kill()
    w.plugger.says(r"(?s)unplugged.*channel lost.*unplugged", HANG)
    g.finish(g.next_id, HANG)
    check(kind + "_lost_disk_is_unplugged", g.run("[ ! -e %s ]" % PLUGGED)[0] == 0)
    w.start_plugged()
    g.wait_for("[ -b %s ]" % PLUGGED, HANG)
    check(kind + "_returns_after_the_loss", w.plugger.stop() == 0, w.plugger.errors())
    w.start_plugger("--attach", "1=%s/1/9" % w.plugged)
    w.plugger.says(r"(?s)unplugged.*plugged in", HANG)  # what the other one left was dead
    g.wait_for("[ -b %s ]" % PLUGGED, HANG)
    check(kind + "_another_dxpu_host_replaces_the_function",
          g.run("dd if=%s of=/dev/null bs=4k count=1 iflag=direct" % PLUGGED)[0] == 0)
    said = g.complaints()
    check(kind + "_no_complaints_when_plugged", not said, said)
    check(kind + "_qemu_goes_on", g.popen.poll() is None, g.errors())


def migration_is_cancelled(w, kind):
    m = Monitor(w.qmp[1])
    m.do("migrate-set-parameters", **{"max-bandwidth": 1 << 20})
    m.do("migrate", uri="exec:cat >/dev/null")
    end = time.monotonic() + HANG
    while time.monotonic() < end:
        status = m.do("query-migrate").get("status")
        if status in ("cancelled", "completed", "failed"):
            break
        time.sleep(0.1)
    check(kind + "_migration_is_cancelled", status == "cancelled", status)


def lost(w, kind):
    """Without a monitor to unplug it, what the guest does is its driver's."""
    g = w.guest
    bound = "cat /sys/bus/pci/drivers/nvme/0000:01:00.0/vendor"
    check(kind + "_driver_has_it", g.run(bound)[0] == 0)  # control
    w.box.kill()
    w.host.says("channel lost", HANG)
    g.run("dd if=%s of=/dev/null bs=4k count=1 iflag=direct" % DISK, 2 * HANG)
    check(kind + "_guest_lives_on", g.must("echo alive").strip() == "alive")
    check(kind + "_driver_lets_go_of_it", g.run(bound)[0] != 0)
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
    for kind, stories in ([("msix", [removed_and_found, plugged_in_and_out, restarted, lost]),
                           ("msi", [lost])]
                          if whole else [("msix", [removed_and_found, plugged_in_and_out, lost])]):
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
