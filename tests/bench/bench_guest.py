"""fio in a stock guest: a slot of a box, the same model without a fabric, and what else a user
could take: QEMU's own nvme and virtio-blk, and an NBD server's disk, all at once in one guest.
Every disk is a file of 64 MB, and the guest is the demo's."""
# SPDX-License-Identifier: MIT
import os
import socket
import subprocess

import lab  # from where bench.py has it
import machines
import story

sys_guest, suite = machines.guest, machines.suite
MODULES = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "virtio_blk")
BYTES = 64 << 20
SLOT, DIRECT = 1, machines.DIRECT
# Other disks by the serial numbers that the guest sees.
OWN_NVME, OWN_VIRTIO, NBD = "ownnvme", "ownvirtio", "nbdvirtio"
BESIDE = ((OWN_NVME, "QEMU's nvme"), (OWN_VIRTIO, "QEMU's virtio-blk"), (NBD, "NBD"))
PLACES = (SLOT, DIRECT) + tuple(place for place, _ in BESIDE)
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
            names += ["%s, p50" % name, "%s, p99 beside NBD" % name,
                      "%s, processor beside NBD" % name]
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
    """QEMU's NBD server, with a file."""

    def __init__(self, l, tools):
        self.port = lab.address(socket.SOCK_STREAM).rsplit(":", 1)[1]
        path = l.file("nbd")
        with open(path, "wb") as file:
            file.truncate(BYTES)
        self.popen = subprocess.Popen(
            tools[0] + ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio",
                        "-drive", "if=none,id=disk,format=raw,file=" + path],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        self.popen.stdin.write("nbd_server_start 127.0.0.1:%s\nnbd_server_add -w disk\n"
                               % self.port)
        self.popen.stdin.flush()
        self.name = "the NBD server"
        l.processes.append(self)  # which ends it

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def errors(self):
        return ""


class Machine(machines.Stock):
    """The demo's guest with more disks, and no display."""

    no_display = "this guest has none"
    SERIALS = "/sys/block/vd*/serial /sys/block/nvme*/device/serial"

    def __init__(self, l):
        self.tools = sys_guest.tools()
        self.modules = suite.modules(self.tools, MODULES)
        self.initrd = sys_guest.initramfs(l.file("initrd"), *self.modules.values())
        self.lab, self.guest = l, None
        self.server = Server(l, self.tools)

    def disks(self):
        """Words of QEMU's command."""
        for serial, driver in ((OWN_NVME, "nvme"), (OWN_VIRTIO, "virtio-blk-pci")):
            path = self.lab.file(serial)
            with open(path, "wb") as file:
                file.truncate(BYTES)
            yield from ("-blockdev", "driver=file,filename=%s,node-name=%s" % (path, serial),
                        "-device", "%s,drive=%s,serial=%s" % (driver, serial, serial))
        yield from ("-blockdev", "driver=nbd,server.type=inet,server.host=127.0.0.1,server.port=%s,"
                    "export=disk,node-name=nbd" % self.server.port,
                    "-device", "virtio-blk-pci,drive=nbd,serial=%s" % NBD)

    def boot(self, sockets):
        fabric, direct = sockets
        extra = ("-name", "guest,debug-threads=on", "-device", sys_guest.adapter(direct))
        self.guest = sys_guest.Guest(self.lab, "guest", self.tools, self.initrd, fabric,
                                     extra=(*extra, *self.disks()))
        self.guest.ready(machines.SECONDS)
        self.must, self.run = self.guest.must, self.guest.run
        for module in self.modules:
            self.must("insmod /modules/%s.ko" % module)
        for serial, _ in BESIDE:
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
        taken = {place: machine.take(place, options, milliseconds, pids[place])
                 for place in PLACES}
        ours, direct, nbd = taken[SLOT], taken[DIRECT], taken[NBD]
        unit = UNITS[shows]
        table.add(name, ours[shows], direct[shows], unit, "attached directly")
        for place, other in BESIDE:
            table.add("%s beside %s" % (name, other), ours[shows], taken[place][shows], unit, other)
        if shows == "iops":
            table.add(name + ", p50", ours["p50_us"], direct["p50_us"], "us", "attached directly")
            table.add(name + ", p99 beside NBD", ours["p99_us"], nbd["p99_us"], "us", "NBD")
            table.add(name + ", processor beside NBD", ours["processor"], nbd["processor"],
                      "us an operation", "NBD")


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
        machine = Machine(l)
        demo = story.Story(l, machine, quiet, quiet, False, "adaptive")
        demo.boot()
        demo.fill()
        machine.filled(DIRECT)
        box = demo.boxes[demo.box_of(SLOT)].popen.pid
        qemu = machine.guest.popen.pid
        pids = {SLOT: (qemu, demo.host.popen.pid, box), DIRECT: (qemu, demo.direct.popen.pid),
                OWN_NVME: (qemu,), OWN_VIRTIO: (qemu,), NBD: (qemu, machine.server.popen.pid)}
        for _ in range(rounds):
            measure_round(table, machine, pids, milliseconds)
        bad = machine.complaints()
        if bad:
            raise RuntimeError("the guest's kernel complains: %s" % bad)
        end(demo)
