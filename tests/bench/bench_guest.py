"""fio in a stock guest: a slot of a box, the same model without a fabric, and what else a user
could take: QEMU's own nvme and virtio-blk, and disks of an NBD server and of an iSCSI target, both
on loopback with QEMU's block drivers as their clients, all at once in one guest.  Every disk is a
file of 64 MB, and the guest is the demo's."""
# SPDX-License-Identifier: MIT
import json
import os
import socket
import subprocess
import time

import lab  # from where bench.py has it
import machines
import story

sys_guest, suite = machines.guest, machines.suite
MODULES = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "virtio_blk")
BYTES = 64 << 20
SLOT, DIRECT = 1, machines.DIRECT
# Other disks by the serial numbers that the guest sees.
OWN_NVME, OWN_VIRTIO, NBD, ISCSI = "ownnvme", "ownvirtio", "nbdvirtio", "iscsivirtio"
BESIDE = ((OWN_NVME, "QEMU's nvme"), (OWN_VIRTIO, "QEMU's virtio-blk"), (NBD, "NBD"),
          (ISCSI, "iSCSI"))
NETWORK = ((NBD, "NBD"), (ISCSI, "iSCSI"))
# Row, fio's options, what it shows.
JOBS = (("fio depth 1", ("--rw=randread", "--bs=4k", "--iodepth=1"), "iops"),
        ("fio depth 32", ("--rw=randread", "--bs=4k", "--iodepth=32"), "iops"),
        ("fio writes depth 1", ("--rw=randwrite", "--bs=4k", "--iodepth=1"), "iops"),
        ("fio writes depth 32", ("--rw=randwrite", "--bs=4k", "--iodepth=32"), "iops"),
        ("fio 128 KB sequential reads", ("--rw=read", "--bs=128k", "--iodepth=4"), "mb"),
        ("fio 128 KB sequential writes", ("--rw=write", "--bs=128k", "--iodepth=4"), "mb"))
ENDS = (machines.Failed, sys_guest.Stuck, AssertionError)  # how a guest does not do it
UNITS = {"iops": "IOPS", "mb": "MB/s"}


def rows():
    """The names of all rows."""
    names = []
    for name, _, shows in JOBS:
        names += [name] + ["%s beside %s" % (name, other) for _, other in BESIDE]
        if shows == "iops":
            names.append(name + ", p50")
            names += ["%s, %s beside %s" % (name, what, other) for _, other in NETWORK
                      for what in ("p99", "processor")]
    return names


def processor_ns(pids):
    """What the threads of these processes took, without the guest's processors."""
    taken = 0
    for pid in pids:
        for thread in os.listdir("/proc/%d/task" % pid):
            at = "/proc/%d/task/%s/" % (pid, thread)
            with open(at + "comm") as comm, open(at + "schedstat") as spent:
                if not comm.read().startswith("CPU "):
                    taken += int(spent.read().split()[0])
    return taken


class Server:
    """A program that lends a file as a disk; the lab ends it."""

    def __init__(self, l, name, words, **how):
        self.name = name
        self.popen = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      text=True, **how)
        l.processes.append(self)

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def errors(self):
        return ""


def disk_file(l, name):
    path = l.file(name)
    with open(path, "wb") as file:
        file.truncate(BYTES)
    return path


def free_port():
    return lab.address(socket.SOCK_STREAM).rsplit(":", 1)[1]


class NbdServer(Server):
    """QEMU's."""

    def __init__(self, l, qemu):
        port = free_port()
        super().__init__(
            l, "the NBD server",
            qemu + ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio",
                    "-drive", "if=none,id=disk,format=raw,file=" + disk_file(l, NBD)],
            stdin=subprocess.PIPE)
        self.popen.stdin.write("nbd_server_start 127.0.0.1:%s\nnbd_server_add -w disk\n" % port)
        self.popen.stdin.flush()
        self.drive = {"driver": "nbd", "export": "disk",
                      "server": {"type": "inet", "host": "127.0.0.1", "port": port}}


class IscsiTarget(Server):
    """tgtd, where it and QEMU's client for it can be had; else raises Missing."""

    NAME, THREADS = "iqn.2026-01.dxpu:disk", 4

    def __init__(self, l, qemu):
        self.home = sys_guest.ask(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                               "iscsi.sh"))[0]
        self.settings = dict(os.environ, TGT_IPC_SOCKET=l.file("tgtd"))
        portal = "127.0.0.1:" + free_port()
        super().__init__(l, "the iSCSI target",
                         self.words("tgtd", "-f", "-C", "0", "-t", str(self.THREADS), "--iscsi",
                                    "portal=" + portal), env=self.settings)
        path = disk_file(l, ISCSI)
        self.admin("new", "target", "-T", self.NAME, patience=machines.SECONDS)
        self.admin("new", "logicalunit", "--lun", "1", "-b", path)
        self.admin("bind", "target", "-I", "127.0.0.1")
        self.drive = {"driver": "iscsi", "transport": "tcp", "portal": portal, "target": self.NAME,
                      "lun": 1}
        self.qemu = self.with_client(l, qemu)

    def words(self, program, *more):
        root = os.path.join(self.home, "root")
        return [os.path.join(root, "lib64", "ld-linux-x86-64.so.2"), "--library-path",
                os.path.join(root, "lib"), os.path.join(root, "usr", "sbin", program), *more]

    def admin(self, what, of, *more, patience=0):
        """A request to tgtd, again while it is not ready for any."""
        end = time.monotonic() + patience
        while True:
            done = subprocess.run(self.words("tgtadm", "-C", "0", "--lld", "iscsi", "--op", what,
                                             "--mode", of, "--tid", "1", *more),
                                  capture_output=True, text=True, env=self.settings)
            if not done.returncode:
                return
            if self.popen.poll() is not None or time.monotonic() > end:
                raise machines.Missing("tgtadm: " + done.stderr.strip()[-300:])
            time.sleep(0.1)

    def with_client(self, l, qemu):
        """QEMU's command, with the client beside the fetched one's other modules, if it can use
        it."""
        client, modules = os.path.join(self.home, "qemu"), l.file("modules")
        words = list(qemu)
        for i, word in enumerate(words):
            if word.startswith("QEMU_MODULE_DIR="):
                os.mkdir(modules)
                own = word.split("=", 1)[1]
                for path in [os.path.join(own, name) for name in os.listdir(own)] + [
                        os.path.join(client, "block-iscsi.so")]:
                    os.symlink(path, os.path.join(modules, os.path.basename(path)))
                words[i] = "QEMU_MODULE_DIR=" + modules
            elif word == "--library-path":
                words[i + 1] += ":" + os.path.join(client, "lib")
        tried = subprocess.run(
            words + ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio",
                     "-blockdev", json.dumps(dict(self.drive, **{"node-name": "disk"}))],
            input="quit\n", capture_output=True, text=True, timeout=machines.SECONDS)
        if tried.returncode:
            raise machines.Missing("this QEMU does not attach an iSCSI disk; remove its directory "
                                   "(%s) and %s to fetch both again, of one version: %s"
                                   % (words[-1], self.home, tried.stderr.strip()[-300:]))
        return words


class Machine(machines.Stock):
    """The demo's guest with more disks, and no display."""

    no_display = "this guest has none"
    SERIALS = "/sys/block/vd*/serial /sys/block/nvme*/device/serial"

    def __init__(self, l, lacks):
        self.tools = sys_guest.tools()
        self.modules = suite.modules(self.tools, MODULES)
        self.initrd = sys_guest.initramfs(l.file("initrd"), *self.modules.values())
        self.lab, self.guest = l, None
        self.servers = {NBD: NbdServer(l, self.tools[0])}
        try:
            self.servers[ISCSI] = target = IscsiTarget(l, self.tools[0])
            self.tools = (target.qemu, self.tools[1])
        except machines.Missing as why:  # all else is measured
            lacks["fio beside iSCSI"] = str(why)
        self.beside = [one for one in BESIDE if one[0] != ISCSI or ISCSI in self.servers]
        self.network = [one for one in NETWORK if one[0] in self.servers]

    def disks(self):
        """Words of QEMU's command."""
        drives = [(serial, driver, {"driver": "file", "filename": disk_file(self.lab, serial)})
                  for serial, driver in ((OWN_NVME, "nvme"), (OWN_VIRTIO, "virtio-blk-pci"))]
        drives += [(serial, "virtio-blk-pci", server.drive)
                   for serial, server in self.servers.items()]
        for serial, driver, drive in drives:
            yield from ("-blockdev", json.dumps(dict(drive, **{"node-name": serial})),
                        "-device", "%s,drive=%s,serial=%s" % (driver, serial, serial))

    def boot(self, sockets):
        fabric, direct = sockets
        extra = ("-name", "guest,debug-threads=on", "-device", sys_guest.adapter(direct))
        self.guest = sys_guest.Guest(self.lab, "guest", self.tools, self.initrd, fabric,
                                     extra=(*extra, *self.disks()))
        self.guest.ready(machines.SECONDS)
        self.must, self.run = self.guest.must, self.guest.run
        for module in self.modules:
            self.must("insmod /modules/%s.ko" % module)
        for serial, _ in self.beside:
            self.guest.wait_for("grep -q %s %s" % (serial, self.SERIALS), machines.SECONDS)
        return "booted"

    def disk(self, place):
        if isinstance(place, int):
            return super().disk(place)
        return "/dev/" + self.must("grep -l %s %s" % (place, self.SERIALS)).split("/")[3]

    def take(self, place, options, milliseconds, pids):
        before = processor_ns(pids)
        self.must(self.fio(place, *options, "--size=32m", "--time_based",
                           "--runtime=%dms" % milliseconds), machines.SECONDS)
        job = self.job()
        done = job["read" if "read" in options[0] else "write"]
        return {"iops": done["iops"], "mb": done["bw_bytes"] / 1e6,
                "p50_us": done["clat_ns"]["percentile"]["50.000000"] / 1e3,
                "p99_us": done["clat_ns"]["percentile"]["99.000000"] / 1e3,
                "processor": (processor_ns(pids) - before) / 1e3 / done["total_ios"]}


def measure_round(table, machine, pids, milliseconds):
    for name, options, shows in JOBS:
        taken = {place: machine.take(place, options, milliseconds, pids[place]) for place in pids}
        ours, direct = taken[SLOT], taken[DIRECT]
        unit = UNITS[shows]
        table.add(name, ours[shows], direct[shows], unit, "attached directly")
        for place, other in machine.beside:
            table.add("%s beside %s" % (name, other), ours[shows], taken[place][shows], unit, other)
        if shows != "iops":
            continue
        table.add(name + ", p50", ours["p50_us"], direct["p50_us"], "us", "attached directly")
        for place, other in machine.network:
            table.add("%s, p99 beside %s" % (name, other), ours["p99_us"], taken[place]["p99_us"],
                      "us", other)
            table.add("%s, processor beside %s" % (name, other), ours["processor"],
                      taken[place]["processor"], "us an operation", other)


def quiet(_):
    """The story's steps are not printed."""


def end(demo):
    demo.hold(demo.machine.close(), "the guest did not end gracefully")
    for process in (demo.host, demo.direct, demo.manager, *demo.boxes.values()):
        demo.hold(process.stop() == 0, "%s: %s" % (process.name, process.errors()[-500:]))
    demo.hold(demo.host.result()["slot_1"]["refused"] == 0, "the host refused TLPs")


def measure(table, rounds, milliseconds):
    """Raises Missing where there is no guest."""
    os.environ.setdefault("DXPU_GUEST_FETCH", os.environ.get("DXPU_QEMU_FETCH", "yes"))
    with lab.Lab() as l:
        machine = Machine(l, table.lacks)
        demo = story.Story(l, machine, quiet, quiet, False, "adaptive")
        demo.boot()
        demo.fill()
        machine.filled(DIRECT)
        box = demo.boxes[demo.box_of(SLOT)].popen.pid
        qemu = machine.guest.popen.pid
        pids = {SLOT: (qemu, demo.host.popen.pid, box), DIRECT: (qemu, demo.direct.popen.pid),
                OWN_NVME: (qemu,), OWN_VIRTIO: (qemu,)}
        pids.update((place, (qemu, server.popen.pid)) for place, server in machine.servers.items())
        for _ in range(rounds):
            measure_round(table, machine, pids, milliseconds)
        bad = machine.complaints()
        if bad:
            raise RuntimeError("the guest's kernel complains: %s" % bad)
        end(demo)
