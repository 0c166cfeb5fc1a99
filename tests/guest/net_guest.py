#!/usr/bin/env python3
"""A stock Linux guest uses devices of remote boxes, end to end.

Three guests under QEMU, boxes, relays between them: enumeration, hot-plug, fio with verification,
surprise removal, loss, cuts of the network, reboot, who sees whose data, and a drive that all three
share, with reservations.
Prints `ok NAME`, `not ok NAME` or `skip NAME` for each check and `# ...` lines with figures.
Skipped, loudly, where no QEMU or no guest can be had.

    tests/guest/net_guest.py [--cycles N] [--cut SECONDS] [--keep DIR] [STORY...]

`make check` means 4 cycles of hot-plug, 1 crash of the worker (DXPU_CRASHES) and a cut of four
times the hold; `make check-long`, which sets DXPU_SEEDS above 1000, 50, a storm of 200 more, 20
crashes and a cut of 60 s."""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import argparse
import json
import mmap
import os
import random
import re
import shutil
import signal
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
from suite import check, figure  # noqa: E402

LONG = int(os.environ.get("DXPU_SEEDS", "0")) > 1000
STORM = 200
LOSS = 30  # in 1/1000, of guest b's first slot
CMB_MB = 4  # of the guest's second disk
HOLD = 1  # seconds: what the proxies have unless set otherwise
HANG = 150  # seconds; a driver waits 60 for an admin command of a device that died meanwhile
stories = []


def story(function):
    stories.append(function)
    return function


def count_of(process, pattern):
    return len(re.findall(pattern, process.errors()))


def wait_count(process, pattern, n, seconds=HANG):
    """Until it has said it for the n-th time."""
    end = time.monotonic() + seconds
    while count_of(process, pattern) < n:
        if time.monotonic() > end or process.popen.poll() is not None:
            raise guest.Stuck("%s did not say %r for the %d. time:\n%s" % (
                process.name, pattern, n, process.errors()[-2000:]))
        time.sleep(0.005)


class Box:
    """A dxpu-box at a fixed address, which can be ended and started again."""

    def __init__(self, l, node, *options, program="dxpu-box"):
        self.lab, self.options = l, ("--node", node) + options  # its disks are named after it
        self.program = program
        if program not in lab.PROXIES:
            self.options += l.keys("dxpu-box")
        self.at = lab.address()
        self.process = None

    def start(self):
        self.process = self.lab.start(self.program, "--listen", self.at, "--json", *self.options)
        self.process.address()

    def restart(self):
        self.process.kill()
        self.start()


class Machine:
    """A guest, its dxpu-host, and where the devices of its slots are."""

    def __init__(self, w, name, topology, attach, options=(), **more):
        self.name, self.topology = name, topology
        self.lab, self.socket = w.lab, w.lab.file(name + ".sock")
        self.control = lab.address(socket.SOCK_STREAM)
        self.host = w.lab.start("dxpu-host", "--vfio-user", self.socket, "--slots", 4, "--topology",
                                topology, "--attach", ",".join(attach), "--json", "--control",
                                self.control, *options)
        self.host.says("waiting for a guest")
        self.start_guest(w, name, **more)

    def start_guest(self, w, name, cpus=1, **more):
        self.cpus, self.jobs = cpus, 0
        self.guest = guest.Guest(w.lab, name, w.tools, w.initrd, self.socket, cpus=cpus,
                                 **more)
        self.run, self.must, self.wait_for = self.guest.run, self.guest.must, self.guest.wait_for
        took = self.guest.ready()
        figure("%s: Linux %s, topology %s, boot to the first command %.1f s"
               % (name, self.guest.version, self.topology, took))

    def device(self, slot):
        """The directory of a slot's device, in the guest's sysfs."""
        bus = slot if self.topology == "root-ports" else slot + 2
        return "/sys/bus/pci/devices/10000:%02x:00.0" % bus

    def filled(self, slot):
        """Wait until the guest's nvme driver runs the slot's device."""
        return self.wait_for("there %s/nvme/nvme*/nvme*n[0-9]*" % self.device(slot), HANG)

    def instance(self, slot):
        """The number of the directory of the device that the slot has: another device, or the same
        one added again, has another."""
        return self.must("stat -L -c %%i %s" % self.device(slot)).strip()

    def renewed(self, slot, instance):
        """filled(), by another instance: the guest may not have seen yet that this one is gone."""
        path = self.device(slot)
        there = "there %s/nvme/nvme*/nvme*n[0-9]*" % path
        return self.wait_for("{ %s && [ \"$(stat -L -c %%i %s)\" != %s ] && %s; }"
                             % (there, path, instance, there), HANG)

    def emptied(self, slot):
        return self.wait_for("[ ! -e %s ]" % self.device(slot), HANG)

    def controller(self, slot):
        return "/dev/" + self.must("ls %s/nvme" % self.device(slot)).strip()

    def disk(self, slot):
        """Named after its subsystem, which may be older than the controller; that of one path
        (nvme1c2n1) is not for users."""
        path = self.must("ls -d %s/nvme/nvme*/nvme*n[0-9]*" % self.device(slot)).strip()
        return "/dev/" + re.sub(r"c\d+", "", os.path.basename(path))

    def attach(self, slot, box, box_slot, epoch):
        done = self.lab.run("dxpu", "attach", "--wait", "--epoch", epoch, self.control, slot, box,
                            box_slot, seconds=HANG)
        if done.status:
            raise AssertionError("attach: %s" % done.errors())

    def detach(self, slot):
        done = self.lab.run("dxpu", "detach", self.control, slot, seconds=HANG)
        if done.status:
            raise AssertionError("detach: %s" % done.errors())

    def attached(self, slot):
        return count_of(self.host, r"slot %d: .* is attached" % slot)

    def fio(self, slot, *options, name="job"):
        """fio's command line for a slot's disk, report in /tmp/NAME.json; on each processor in
        turn."""
        self.jobs += 1
        words = ["fio", "--name=" + name, "--filename=" + self.disk(slot), "--direct=1",
                 "--ioengine=libaio", "--output-format=json", "--output=/tmp/%s.json" % name,
                 "--randrepeat=0", "--disk_util=0",
                 "--cpus_allowed=%s" % ("0-1" if LONG else self.jobs % self.cpus),
                 "--allow_file_create=0"]  # in the place of a disk that goes away
        return " ".join(words + list(options))

    def report(self, name="job"):
        text = self.must("cat /tmp/%s.json" % name)
        return json.loads(text[text.index("{"):])["jobs"][0]

    def background(self, command, name="job"):
        """Start it; ended() has its exit status."""
        self.must("rm -f /tmp/%s.done; ( (%s) >/tmp/%s.out 2>&1; echo $? >/tmp/%s.done) &"
                  % (name, command, name, name))

    def under_way(self, slot, *options, name="job", command=None):
        """fio, or a command of it, in the background, which has done some of its I/O: counted at
        the controller's path, since Linux 6.1 counts none of a shared namespace as a whole."""
        count = ("n=0; for stat in %s/nvme/nvme*/nvme*n[0-9]*/stat; do "  # without a process
                 "read -r reads a b c writes d <$stat && n=$((n + reads + writes)); done"
                 % self.device(slot))
        before = int(self.must(count + "; echo $n"))
        self.background(command or self.fio(slot, *options, name=name), name)
        self.wait_for("{ [ -s /tmp/%s.done ] || { %s; [ $n -ge %d ]; }; }"
                      % (name, count, before + 32), HANG)

    def ended(self, name="job", seconds=HANG):
        self.wait_for("[ -s /tmp/%s.done ]" % name, seconds)
        return int(self.must("cat /tmp/%s.done" % name)), self.must("cat /tmp/%s.out" % name)

    def verify(self, slot, what, *options, seconds=2 * HANG):
        """Write and verify with fio; a check of its own."""
        status, output = self.run(self.fio(slot, "--verify=xxhash", "--verify_fatal=1",
                                           "--do_verify=1", *options), seconds)
        good = status == 0
        if not good:
            output += self.run("head -c 3000 /tmp/job.json")[1]
        else:
            job = self.report()
            moved = job["read"]["io_bytes"] + job["write"]["io_bytes"]
            good = job["error"] == 0 and job["write"]["io_bytes"] > 0 < job["read"]["io_bytes"]
            output = "%d bytes, error %d" % (moved, job["error"])
        return check(what, good, output)


class World:
    """Everything that the stories share."""

    def __init__(self, l, cycles, cut_seconds, crashes):
        self.lab, self.cycles, self.cut_seconds, self.crashes = l, cycles, cut_seconds, crashes
        self.tools = guest.tools()
        self.initrd = guest.initramfs(l.file("initrd"))
        self.machines = []
        self.disk = Box(l, 10, "--device", "nvme", "--file", l.file("disk"), "--size", "64M",
                        "--slots", 2, "--mrrs", 4096)
        self.other = Box(l, 11, "--device", "nvme", "--size", "64M", "--cmb", "%dM" % CMB_MB,
                         "--mrrs", 4096, "--no-push")
        self.plain = Box(l, 12, "--device", "memory", "--memory", "1M")
        self.leaky = Box(l, 14, "--device", "memory", "--memory", "1M",
                         program=suite.box_without_reset(l))
        self.lossy_disk = Box(l, 13, "--device", "nvme", "--size", "64M")
        self.shared_control = lab.address(socket.SOCK_STREAM)
        slots = [x for n in (1, 2, 7) for x in (
            "--slot", "%d=nvme,subsystem=s,size=16M,file=%s" % (n, l.file("shared")))]
        for n, kind in ((3, "nvme"), (4, "function,of=3")):
            slots += ["--slot", "%d=%s,size=16M,file=%s" % (n, kind, l.file("function%d" % n))]
        slots += ["--slot", "5=nvme,functions=2,size=16M,file=%s,file=%s" %
                  (l.file("whole0"), l.file("whole1"))]
        slots += ["--slot", "6=nvme,virtual-functions=3,size=16M"]
        self.shared = Box(l, 16, "--slots", 7, "--control", self.shared_control, "--hot-plug",
                          *slots)
        self.ends = Box(l, 15, "--device", "memory", "--memory", "1M", "--slots", len(ENDS))
        for box in (self.other, self.plain, self.lossy_disk, self.ends):
            box.start()
        self.line = l.start("dxpu-relay", "--to", self.disk.at, "--json")
        self.lossy = l.start("dxpu-relay", "--to", self.lossy_disk.at, "--json", "--loss", LOSS)

    def boot(self, name, *args, **more):
        machine = Machine(self, name, *args, **more)
        self.machines.append(machine)
        setattr(self, name, machine)
        return machine

    def cut(self, cut):
        word, sign = ("cut", signal.SIGUSR1) if cut else ("mended", signal.SIGUSR2)
        n = count_of(self.line, word) + 1
        self.line.popen.send_signal(sign)
        wait_count(self.line, word, n)
        return int(re.findall(r"(\d+) datagrams lost", self.line.errors())[-1])


# ==== The tree ====================================================================================

@story
def boot_and_enumerate(w):
    a = w.boot("a", "root-ports", ["1=%s/1" % w.line.address(), "2=%s/1" % w.other.at],
               ["--push"], reboots=True, extra=local_disk(w.lab), cpus=2,
               append="" if LONG else guest.APART)
    ports = a.must("ls -d /sys/bus/pci/devices/10000:00:*/driver | wc -l").strip()
    check("enumerate_root_ports", ports == "4", ports)
    for n in range(1, 5):
        driver = a.must("readlink /sys/bus/pci/devices/10000:00:%02x.0/driver" % n)
        check("enumerate_port_%d_driver" % n, driver.strip().endswith("/pcieport"), driver)
    slots = sorted(a.must("cat /sys/bus/pci/slots/*/address").split())
    check("enumerate_hotplug_slots", slots == ["10000:%02x:00" % n for n in range(1, 5)], slots)
    a.filled(2)
    check("cold_plugged_device", "nvme" in a.controller(2))
    check("slot_without_box_is_empty", a.run("[ -e %s ]" % a.device(1))[0] == 1)


def lspci(m, what):
    text = m.must("lspci -D -vvv -s 10000:: 2>/tmp/lspci.err")
    errors = [line for line in m.must("cat /tmp/lspci.err").splitlines()
              if line and "libkmod" not in line]  # the guest has no index of modules
    check("lspci_%s_says_no_error" % what, not errors, errors)
    bad = re.findall(r".*(?:!!!|chain broken|access denied|[Uu]nknown header|rev ff|"
                     r"virtual\]|disabled\]|Chain looped|\?\?).*", text)
    check("lspci_%s_no_complaint" % what, not bad, bad)
    return text


@story
def hot_add(w):
    a = w.a
    start = time.monotonic()
    w.disk.start()
    wait_count(a.host, r"slot 1: .* is attached", 1)
    attached = time.monotonic()
    a.filled(1)
    bound = time.monotonic()
    figure("hot-add: box started to slot filled %.2f s, to driver bound %.2f s later"
           % (attached - start, bound - attached))
    driver = a.must("readlink %s/driver" % a.device(1)).strip()
    check("hot_add_driver_bound", driver.endswith("/nvme"), driver)
    size = a.must("blockdev --getsize64 %s" % a.disk(1)).strip()
    check("hot_add_size", size == str(64 << 20), size)
    text = lspci(a, "root_ports")
    sizes = re.search(r"10000:01:00.0 .*?(MaxPayload \d+ bytes, MaxReadReq \d+ bytes)", text, re.S)
    check("largest_payload_and_read_request", sizes and re.findall(r"\d+", sizes.group(1)) == [
        "4096", "4096"], sizes and sizes.group(1))
    check("lspci_shows_device", "10000:01:00.0" in text and "Kernel driver in use: nvme" in text)


# ==== Data ========================================================================================

MIXED, LARGE = "--bsrange=512-1m", "32m" if LONG else "8m"
# Of a device that works again: as many requests, smaller ones.
AGAIN = (MIXED, "--size=8m") if LONG else ("--bsrange=512-256k", "--size=2m")


@story
def fio_verify(w):
    for name, options in (
            ("sequential_depth_1", ("--rw=write", MIXED, "--iodepth=1", "--size=" + LARGE)),
            ("sequential_depth_8", ("--rw=write", MIXED, "--iodepth=8", "--size=" + LARGE)),
            ("random_depth_32", ("--rw=randwrite", MIXED, "--iodepth=32", "--size=" + LARGE)),
            ("random_mixed_depth_16", ("--rw=randrw", MIXED, "--iodepth=16", "--size=" + LARGE)),
            ("small_random_depth_32", ("--rw=randwrite", "--bs=512", "--iodepth=32",
                                       "--size=1m"))):
        w.a.verify(1, "fio_" + name, *options)
    # Control: verification does see a block that was changed behind its back.
    job = w.a.fio(1, "--rw=write", "--bs=4k", "--size=64k", "--verify=xxhash", "--verify_fatal=1")
    w.a.must(job + " --do_verify=0")
    w.a.must("dd if=/dev/urandom of=%s bs=512 count=1 seek=64 oflag=direct" % w.a.disk(1))
    status, _ = w.a.run(job + " --verify_only", HANG)
    check("fio_control_sees_damage", status != 0, status)


@story
def data_reaches_the_file(w):
    a = w.a
    a.must("echo fabric | dd of=%s bs=512 count=1 seek=999 conv=sync,fsync oflag=direct"
           % a.disk(1))
    with open(w.lab.file("disk"), "rb") as file:
        file.seek(999 * 512)
        got = file.read(8)
    check("flushed_data_is_in_the_file", got.startswith(b"fabric"), got)


@story
def nvme_cli(w):
    a, dev = w.a, w.a.controller(1)
    ctrl = json.loads(a.must("nvme id-ctrl %s -o json" % dev))
    check("nvme_id_ctrl", ctrl["ver"] >= 0x10400 and ctrl["nn"] >= 1 and ctrl["sn"].strip(), ctrl)
    ns = json.loads(a.must("nvme id-ns %sn1 -o json" % dev))
    check("nvme_id_ns", ns["nsze"] == (64 << 20) // 512 and ns["ncap"] == ns["nsze"], ns)
    first = json.loads(a.must("nvme smart-log %s -o json" % dev))
    a.must("dd if=%sn1 of=/dev/null bs=1M count=4 iflag=direct" % dev)
    then = json.loads(a.must("nvme smart-log %s -o json" % dev))
    reads = int(then["host_read_commands"]) - int(first["host_read_commands"])
    check("nvme_smart_log_counts_reads", reads >= 4 and int(then["media_errors"]) == 0, reads, then)
    check("nvme_bad_command_is_refused", a.run("nvme get-feature %s -f 0x7f" % dev)[0] != 0)
    log = json.loads(a.must("nvme error-log %s -o json" % dev))
    check("nvme_error_log_has_it", any(e["error_count"] for e in log["errors"]), log)
    queues = a.must("nvme get-feature %s -f 7" % dev)
    check("nvme_get_feature_queues", re.search(r"0x0*[0-9a-f]+", queues.split("value")[-1]), queues)
    a.must("nvme flush %s -n 1" % dev)


def box_count(box, name, slot=1):
    """A counter of the device in a slot of the box, now."""
    before = len(box.process.errors())
    box.process.popen.send_signal(signal.SIGUSR1)
    end = time.monotonic() + HANG
    while time.monotonic() < end:
        found = re.search(r"\nslot_%d\n.*?\n +%s +(\d+)\n" % (slot, name),
                          box.process.errors()[before:], re.S)
        if found:
            return int(found.group(1))
        time.sleep(0.01)
    raise guest.Stuck("no %s in the box's statistics" % name)


@story
def submission_queues_without_a_request(w):
    """How many requests of the controller 32 reads and 32 writes of 4 KB need, with entries that
    the host pushes, with a controller memory buffer, where a driver puts its queues by itself, and
    with neither (control: where the driver does not)."""
    a, count = w.a, 32
    # Of Debian's kernels 7.2 has CONFIG_PCI_P2PDMA, 6.1 and 6.12 do not; without it the driver
    # leaves the buffer alone
    image, name = guest.kernel(w.tools[1]), "pci_p2pdma_add_resource"
    if image.endswith("vmlinux"):  # soon, while the guest's own list takes it a second
        with open(image, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            able = text.find(name.encode()) >= 0
    else:
        able = a.run("grep -q %s /proc/kallsyms" % name)[0] == 0
    found = a.run("cd %s/p2pmem && cat size available" % a.device(2))[1].split()
    if able:
        size = CMB_MB << 20
        check("cmb_is_found", found[:1] == [str(size)], found)
        check("cmb_has_the_queues", int(found[1]) <= size - 4096, found)
    else:
        check("cmb_is_left_alone", not any(word.isdigit() for word in found), found)
        print("skip cmb_has_the_queues the guest's kernel has no CONFIG_PCI_P2PDMA")
    for slot, box, what in ((1, w.disk, "pushed"), (2, w.other, "cmb" if able else "neither")):
        reads = {}
        for rw in ("read", "write"):
            before = box_count(box, "dma_reads")
            a.must(a.fio(slot, "--rw=rand" + rw, "--bs=4k", "--iodepth=1", "--io_size=%dk" % (
                4 * count), "--size=16m"), HANG)
            reads[rw] = (box_count(box, "dma_reads") - before) / count
        figure("%s: requests of the controller for a read of 4 KB %.2f, for a write %.2f"
               % (what, reads["read"], reads["write"]))
        entry = int(what == "neither")  # of the submission queue; fio adds a few commands
        check(what + "_requests_of_a_read", entry <= reads["read"] < entry + 0.5, reads)
        # the data: one request, of 4,096 bytes
        check(what + "_requests_of_a_write", 1 + entry <= reads["write"] < 1.5 + entry, reads)
    pushes = box_count(w.disk, "pushes")
    check("pushes_are_counted", pushes >= 2 * count and not box_count(w.other, "pushes"), pushes)
    # The driver writes CMBMSC once, and has its queues at the same addresses after any reset.
    a.must("nvme reset %s" % a.controller(2))
    for method in a.must("cat %s/reset_method" % a.device(2)).split():
        a.must("cd %s && echo %s > reset_method && echo 1 > reset" % (a.device(2), method))
        a.verify(2, "cmb_reset_%s_fio" % method, "--rw=randrw", "--iodepth=8", *AGAIN)
    before = box_count(w.other, "cmb_writes")
    a.must("dd if=%s of=/dev/null bs=4k count=32 iflag=direct" % a.disk(2))
    written = box_count(w.other, "cmb_writes") - before
    check("cmb_is_used_after_resets", able == (written >= 32), written)


def measure(m, slot, what):
    """Figures for people, who find those of `make check-long` only."""
    if not LONG:
        return
    for depth in (1, 32):
        for rw in ("randread", "randwrite"):
            m.must(m.fio(slot, "--rw=" + rw, "--bs=4k", "--iodepth=%d" % depth, "--size=32m",
                         "--time_based", "--runtime=2s"), HANG)
            side = m.report()[rw[4:]]
            figure("fio %s 4k depth %d %s: %.0f IOPS, latency mean %.0f us, 99 %% %.0f us"
                   % (rw, depth, what, side["iops"], side["lat_ns"]["mean"] / 1e3,
                      side["clat_ns"]["percentile"]["99.000000"] / 1e3))


@story
def figures(w):
    measure(w.a, 2, "through the fabric")


# ==== Coming and going ============================================================================

WAYS = ("box killed", "box stopped", "detach")


def leave(w, way):
    if way == "box killed":
        w.disk.process.kill()
    elif way == "box stopped":
        w.disk.process.stop()
    else:
        w.a.detach(1)


def come(w, way):
    if way == "detach":
        w.a.attach(1, w.line.address(), 1, 1)
    else:
        w.disk.start()


@story
def cycles(w):
    a, pattern = w.a, "dxpu was here"
    a.must("echo %s | dd of=%s bs=512 count=1 conv=sync oflag=direct" % (pattern, a.disk(1)))
    bound, removed, good = [], {way: [] for way in WAYS}, 0
    for n in range(w.cycles):
        way = WAYS[n % 3]
        start = time.monotonic()
        leave(w, way)
        a.emptied(1)
        removed[way].append(time.monotonic() - start)
        before = a.attached(1)
        come(w, way)
        wait_count(a.host, r"slot 1: .* is attached", before + 1)
        start = time.monotonic()
        a.filled(1)
        bound.append(time.monotonic() - start)
        text = a.must("dd if=%s bs=512 count=1 iflag=direct 2>/dev/null | head -n 1" % a.disk(1))
        good += text.strip() == pattern
    check("cycles_%d_of_attach_and_detach" % w.cycles, good == w.cycles, good)
    middle = lambda values: sorted(values)[len(values) // 2]  # noqa: E731
    figure("slot filled to driver bound: median %.2f s, longest %.2f s"
           % (middle(bound), max(bound)))
    for way, times in removed.items():
        if times:
            figure("%s to device gone from the guest: median %.2f s, longest %.2f s"
                   % (way, middle(times), max(times)))


def storm(w):
    """Slots are filled and emptied at random, sooner than the guest follows: in the end it has what
    is there, and another slot's job goes on."""
    a, chance, filled, epoch = w.a, random.Random(STORM), set(), 0
    box = Box(w.lab, 16, "--device", "nvme", "--size", "16M", "--slots", 2)
    box.start()
    a.background(a.fio(1, "--rw=randrw", "--bs=4k", "--iodepth=4", "--size=8m",
                       "--verify=xxhash", "--verify_fatal=1", "--do_verify=1"))
    for _ in range(STORM):
        slot = chance.choice((3, 4))
        if slot in filled:
            a.detach(slot)
            filled.remove(slot)
        else:
            epoch += 1
            if not w.lab.run("dxpu", "attach", "--epoch", epoch, a.control, slot, box.at, slot - 2,
                             seconds=HANG).status:
                filled.add(slot)
        time.sleep(chance.random() / 4)
    start = time.monotonic()
    for slot in sorted(filled):
        a.detach(slot)
    for slot in (3, 4):
        a.emptied(slot)
        a.attach(slot, box.at, slot - 2, epoch + 1)
        a.filled(slot)
    figure("storm of %d: %.1f s later both slots are filled" % (STORM, time.monotonic() - start))
    status, output = a.ended(seconds=2 * HANG)
    check("storm_other_slot_no_error", status == 0, output)
    for slot in (3, 4):
        a.verify(slot, "storm_slot_%d_fio_after" % slot, "--rw=randrw", "--iodepth=8",
                 *AGAIN)
        a.detach(slot)
        a.emptied(slot)
    box.process.kill()


if LONG:
    story(storm)

LOAD = ("--rw=randrw", "--bsrange=4k-64k", "--iodepth=16", "--size=48m", "--time_based",
        "--runtime=120")


@story
def removal_under_load(w):
    a = w.a
    for way in WAYS:
        what = way.replace(" ", "_")
        a.under_way(1, *LOAD)
        leave(w, way)
        status, _ = a.ended()
        check(what + "_fio_gets_errors", status != 0, status)
        a.emptied(1)
        check(what + "_other_slot_works", a.run("dd if=%s of=/dev/null bs=4k count=64 iflag=direct"
                                                % a.disk(2))[0] == 0)
        come(w, way)
        a.filled(1)
        a.verify(1, what + "_fio_after", "--rw=randwrite", "--iodepth=16", *AGAIN)


# ==== A mirror ====================================================================================

LOCAL, MIRROR = "beside-the-guest", "/sys/block/md_pair/md"
MIRROR_KB = 8192 if LONG else 4096


def local_disk(l):
    """Options of QEMU for a disk of its own, which no process of dxpu has to do with."""
    path = l.file("local")
    with open(path, "wb") as file:
        file.truncate(16 << 20)
    return ["-drive", "if=none,id=local,format=raw,cache=unsafe,file=" + path,
            "-device", "nvme,drive=local,serial=" + LOCAL]


def add_half(m, disk):
    """One more for the mirror; its directory there."""
    name = os.path.basename(disk)
    m.must("cat /sys/block/%s/dev >%s/new_dev" % (name, MIRROR))
    m.must("echo %d >%s/dev-%s/size" % (MIRROR_KB, MIRROR, name))
    return "%s/dev-%s" % (MIRROR, name)


def build_mirror(m, slot):
    """/dev/md_pair, a RAID1 of a slot's disk and the local one, which are taken as equal."""
    serial = m.must("grep -l %s /sys/class/nvme/*/serial" % LOCAL).strip()
    local = "/dev/" + m.must("cd %s; ls -d nvme*n1" % os.path.dirname(serial)).strip()
    m.must("cd /modules; for m in md-mod raid1; do [ ! -e $m.ko ] || insmod $m.ko || exit; done")
    m.must("echo md_pair >/sys/module/md_mod/parameters/new_array; cd %s; echo raid1 >level; "
           "echo none >metadata_version; echo 2 >raid_disks; echo %d >component_size"
           % (MIRROR, MIRROR_KB))
    for number, disk in enumerate((local, m.disk(slot))):
        m.must("echo %d >%s/slot" % (number, add_half(m, disk)))
    m.must("cd %s; echo none >resync_start; echo active >array_state; "
           "echo 200000 >/proc/sys/dev/raid/speed_limit_min" % MIRROR)
    return local


def mend_mirror(m, slot):
    """The half of the slot is faulty; what stands there now takes its place."""
    degraded = "{ read -r n <%s/degraded && [ $n = %%d ]; }" % MIRROR
    m.wait_for(degraded % 1, HANG)
    m.wait_for("{ for s in %s/dev-*/state; do ! grep -q faulty $s || echo remove >$s; done; "
               "! grep -q faulty %s/dev-*/state; }" % (MIRROR, MIRROR), HANG)
    add_half(m, m.disk(slot))
    m.wait_for("{ echo recover >%s/sync_action; %s; }" % (MIRROR, degraded % 0), HANG)


def sum_of(m, disk):
    return m.must("dd if=%s bs=1M count=%d iflag=direct 2>/dev/null | md5sum"
                  % (disk, MIRROR_KB >> 10)).split()[0]


def crash(w, n):
    """The worker under load; how long until the mirror is whole again."""
    a, start = w.a, time.monotonic()
    before = {slot: (a.attached(slot), a.instance(slot)) for slot in (1, 2)}
    a.wait_for("{ read -r reads writes </sys/block/%s/inflight && [ $reads$writes != 00 ]; }"
               % os.path.basename(a.disk(1)), HANG)
    time.sleep(n % 4 * 0.1)
    os.kill(dict(a.host.children())["dxpu-worker"], signal.SIGKILL)
    for slot, (ups, instance) in before.items():
        wait_count(a.host, r"slot %d: .* is attached" % slot, ups + 1)
        a.renewed(slot, instance)
    mend_mirror(a, 1)
    return time.monotonic() - start


@story
def worker_killed(w):
    """Again and again under load: fio writes and verifies on a mirror, one half of which is the
    slot's disk, and sees no error.  What was written beside it before is there at the end."""
    a, slow = w.a, 0
    beside = ("--rw=randwrite", "--offset=48m", "--size=4m", "--bs=4k", "--iodepth=16",
              "--verify=xxhash", "--verify_fatal=1", "--randseed=7")
    a.must(a.fio(1, "--do_verify=0", "--end_fsync=1", *beside))
    local = build_mirror(a, 1)
    a.background("until [ -e /tmp/enough ]; do fio --name=steady --filename=/dev/md_pair --size=%dk"
                 " --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=8 --randrepeat=0 "
                 "--verify=xxhash --verify_fatal=1 --do_verify=1 || exit 1; echo round; done"
                 % MIRROR_KB, "steady")
    for n in range(w.crashes):
        slow = max(slow, crash(w, n))
    a.must(": >/tmp/enough")
    status, output = a.ended("steady")
    figure("%d crashes of the worker, the longest until its disk was in the mirror again: %.1f s; "
           "fio went round %d times" % (w.crashes, slow, output.count("round")))
    check("worker_killed_%d_times_fio_on_a_mirror_has_no_error" % w.crashes,
          status == 0 and output.count("round") > 0, output)
    a.must("echo clear >%s/array_state" % MIRROR)
    halves = [sum_of(a, disk) for disk in (local, a.disk(1))]
    check("worker_killed_halves_are_equal", halves[0] == halves[1], halves)
    a.must("echo damage | dd of=%s bs=512 count=1 seek=9 conv=sync oflag=direct" % local)
    check("worker_killed_control_halves_differ", sum_of(a, local) != halves[1])
    status, output = a.run(a.fio(1, "--verify_only", *beside), HANG)
    check("worker_killed_data_are_there", status == 0, output)
    for slot in (1, 2):
        a.verify(slot, "worker_killed_slot_%d_is_whole" % slot, "--rw=randwrite",
                 "--iodepth=16", *AGAIN)


@story
def worker_is_asked_to_end(w):
    """SIGINT and SIGTERM are the parent's: a worker that gets them goes on."""
    a, ups = w.a, w.a.attached(1)
    worker = dict(a.host.children())["dxpu-worker"]
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker, number)
        a.must("dd if=%s of=/dev/null bs=4k count=64 iflag=direct" % a.disk(1))
    check("worker_goes_on", dict(a.host.children()).get("dxpu-worker") == worker
          and a.attached(1) == ups, a.host.errors()[-500:])


def cut_shortly(w):
    """Three times under load: fio's end, datagrams lost, and the time that the longest cut took."""
    w.a.under_way(1, "--rw=randwrite", "--bsrange=512-64k", "--iodepth=8", "--size=24m",
                  "--verify=xxhash", "--verify_fatal=1", "--do_verify=1")
    lost, longest = 0, 0
    for _ in range(3):
        start = time.monotonic()
        before = w.cut(True)
        time.sleep(0.2)
        lost += w.cut(False) - before
        longest = max(longest, time.monotonic() - start)
        time.sleep(0.5)
    return w.a.ended(seconds=2 * HANG), lost, longest


@story
def short_cut(w):
    a = w.a
    for _ in range(3):
        name, ups = a.controller(1), a.attached(1)
        (status, output), lost, longest = cut_shortly(w)
        if longest < HOLD / 2:
            break
        a.filled(1)  # a loaded machine: it was no short one, perhaps
    check("cut_200_ms_lost_something", lost > 0, lost)
    check("cut_200_ms_no_error", status == 0, longest, output)
    check("cut_200_ms_no_removal", a.attached(1) == ups and a.controller(1) == name, longest)


@story
def long_cut(w):
    """One stall, surprise removal, nothing more while the network is down, hot-add after it."""
    a, ups = w.a, w.a.attached(1)
    a.under_way(1, *LOAD)
    a.under_way(2, "--rw=randrw", "--bs=4k", "--iodepth=4", "--size=16m", "--time_based",
                "--runtime=%d" % (w.cut_seconds + 5), "--rate_iops=20", name="job2")
    name, device = os.path.basename(a.device(1)), a.device(1)
    w.cut(True)
    start = time.monotonic()
    identity = a.must("setpci -s %s 0.l" % name, HANG).strip()
    figure("cut: the guest's next access waited %.2f s" % (time.monotonic() - start))
    check("long_cut_reads_all_ones", identity == "ffffffff", identity)
    status, _ = a.ended()
    check("long_cut_fio_gets_errors", status != 0, status)
    a.emptied(1)
    time.sleep(max(0, start + w.cut_seconds - time.monotonic()))
    check("long_cut_stays_away", a.run("[ -e %s ]" % device)[0] == 1)
    lost = w.cut(False)
    figure("cut of %.0f s: %d datagrams lost" % (time.monotonic() - start, lost))
    status, output = a.ended("job2", 2 * HANG)
    check("long_cut_other_slot_no_error", status == 0, output)
    job = a.report("job2")
    longest = max(job["read"]["lat_ns"]["max"], job["write"]["lat_ns"]["max"]) / 1e9
    figure("longest I/O of the other slot meanwhile: %.2f s" % longest)
    check("long_cut_other_slot_bounded_delay", longest < 10, longest)
    a.filled(1)
    check("long_cut_one_removal", a.attached(1) == ups + 1, a.host.errors()[-500:])
    a.verify(1, "long_cut_fio_after", "--rw=randwrite", "--iodepth=16", *AGAIN)


@story
def guest_reboot(w):
    a = w.a
    a.under_way(1, *LOAD)
    a.guest.start("reboot -f")
    a.guest.started = time.monotonic()
    took = a.guest.ready()
    figure("a: reboot %.1f s" % took)
    a.filled(1)
    a.filled(2)
    a.verify(1, "reboot_fio", "--rw=randrw", "--iodepth=8", *AGAIN)
    a.verify(2, "reboot_fio_other_slot", "--rw=randrw", "--iodepth=8", *AGAIN)


@story
def flapping(w):
    """The box dies at any moment of the guest's bringing up its device."""
    a = w.a
    for n in range(8):
        w.disk.process.kill()
        before = a.attached(1)
        w.disk.start()
        wait_count(a.host, r"slot 1: .* is attached", before + 1)
        time.sleep(0.04 * n)
    time.sleep(1)
    before = a.attached(1)
    w.disk.process.kill()
    a.emptied(1)
    w.disk.start()
    wait_count(a.host, r"slot 1: .* is attached", before + 1)
    a.filled(1)
    a.verify(1, "flapping_fio_after", "--rw=randwrite", "--iodepth=16", *AGAIN)


@story
def guest_resets(w):
    """What a guest's administrator may do to a device, and the device works again."""
    a = w.a
    name = os.path.basename(a.device(1))
    a.must("nvme reset %s" % a.controller(1))
    a.verify(1, "controller_reset_fio", "--rw=randrw", "--iodepth=8", *AGAIN)
    for method in a.must("cat %s/reset_method" % a.device(1)).split():
        a.must("echo %s > /sys/bus/pci/drivers/nvme/unbind" % name)
        a.must("echo %s > %s/reset_method; echo 1 > %s/reset" % (method, a.device(1), a.device(1)))
        a.must("echo %s > /sys/bus/pci/drivers/nvme/bind" % name)
        a.filled(1)
        a.verify(1, "reset_%s_fio" % method, "--rw=randrw", "--iodepth=8", *AGAIN)
    a.must("echo 1 > %s/remove" % a.device(1))
    a.emptied(1)
    a.must("echo 1 > /sys/bus/pci/rescan")
    a.filled(1)
    a.verify(1, "rescan_fio", "--rw=randrw", "--iodepth=8", *AGAIN)


@story
def guest_killed(w):
    """QEMU dies under I/O; another one connects to the same dxpu-host."""
    a = w.a
    a.under_way(1, *LOAD)
    gone = count_of(a.host, "the guest is gone")
    a.guest.kill()
    wait_count(a.host, "the guest is gone", gone + 1)
    a.start_guest(w, "a2")
    a.filled(1)
    a.filled(2)
    a.verify(1, "guest_killed_fio", "--rw=randrw", "--iodepth=8", *AGAIN)


# ==== Two guests ==================================================================================

@story
def loss(w):
    # its ports sleep when nothing is below them; Linux leaves hot-plug ports awake by itself
    b = w.boot("b", "switch", ["1=%s/1" % w.lossy.address(), "3=%s/2" % w.disk.at],
               append="pcie_port_pm=force", extra=other_hosts(w),
               cpus=2 if LONG else 1)
    b.filled(1)
    b.filled(3)
    text = lspci(b, "switch")
    check("enumerate_switch", text.count("Downstream Port") == 4 and
          text.count("Upstream Port") == 1 and text.count("Root Port") == 1, text[-1000:])
    b.verify(1, "loss_fio_sequential", "--rw=write", MIXED, "--iodepth=4", "--size=" + LARGE)
    b.verify(1, "loss_fio_random", "--rw=randrw", MIXED, "--iodepth=32", "--size=" + LARGE)
    measure(b, 1, "with %g %% loss" % (LOSS / 10))
    check("loss_no_removal", b.attached(1) == 1, b.host.errors()[-500:])


@story
def switch_hot_plug(w):
    """The same below a switch."""
    b = w.b
    for way in ("detach", "killed", "stopped"):
        if way == "detach":
            b.detach(1)
        else:
            getattr(w.lossy_disk.process, {"killed": "kill", "stopped": "stop"}[way])()
        b.emptied(1)
        check("switch_%s_other_slot_works" % way,
              b.run("dd if=%s of=/dev/null bs=4k count=64 iflag=direct" % b.disk(3))[0] == 0)
        if way == "detach":
            b.wait_for("grep -q D3hot /sys/bus/pci/devices/10000:02:00.0/power_state")
            b.attach(1, w.lossy.address(), 1, 1)  # V-40: the port wakes the guest
        else:
            w.lossy_disk.start()
        b.filled(1)
        b.verify(1, "switch_%s_fio_after" % way, "--rw=randrw", "--iodepth=8", *AGAIN)


@story
def two_guests(w):
    a, b = w.a, w.b
    job = ("--rw=randwrite", "--bsrange=512-128k", "--iodepth=8", "--size=16m", "--verify=xxhash",
           "--verify_fatal=1", "--do_verify=1")
    jobs = ((a, 1), (b, 1), (b, 3))
    for m, slot in jobs:
        m.under_way(slot, *job, name="job%d" % slot)
    a.under_way(2, *LOAD, name="job2")
    w.other.process.kill()  # the second slot of guest a, under load
    for m, slot in jobs:
        status, output = m.ended("job%d" % slot, 2 * HANG)
        check("two_guests_%s_slot_%d" % (m.name, slot), status == 0, output)
    check("two_guests_killed_box_is_seen", a.ended("job2")[0] != 0)
    a.emptied(2)
    w.other.start()
    a.filled(2)


@story
def dead_slot(w):
    """A box that says nothing any more delays the other slots by one hold at most."""
    a = w.a
    a.under_way(2, *LOAD, name="job2")
    a.under_way(1, "--rw=randrw", "--bs=4k", "--iodepth=4", "--size=16m", "--time_based",
                "--runtime=6", "--rate_iops=25", name="job1")
    w.other.process.popen.send_signal(signal.SIGSTOP)
    # A processor that asks the dead device waits, and QEMU lets no other one out meanwhile.
    identity = a.must("setpci -s %s 0.l" % os.path.basename(a.device(2)), HANG).strip()
    check("dead_slot_reads_all_ones", identity == "ffffffff", identity)
    status, output = a.ended("job1")
    w.other.process.popen.send_signal(signal.SIGCONT)
    check("dead_slot_other_slot_no_error", status == 0, output)
    job = a.report("job1")
    longest = max(job["read"]["lat_ns"]["max"], job["write"]["lat_ns"]["max"]) / 1e9
    figure("longest I/O of a slot while another one's box died: %.2f s" % longest)
    check("dead_slot_bounded_delay", longest < 10, longest)
    check("dead_slot_is_emptied", a.ended("job2")[0] != 0)
    w.other.restart()
    a.filled(2)


def bar(m, slot):
    m.wait_for("[ -e %s/resource ]" % m.device(slot), HANG)
    m.must("setpci -s %s COMMAND=0006" % os.path.basename(m.device(slot)))
    return int(m.must("head -n 1 %s/resource" % m.device(slot)).split()[0], 16)


PATTERN, PLACES = "0x5EC2E75A", (0, 0x1000, 0xFFFFC)


def look(m, slot):
    base = bar(m, slot)
    words = [m.must("devmem 0x%x 32" % (base + at)).strip() for at in PLACES]
    name = os.path.basename(m.device(slot))
    return words + [m.must("setpci -s %s CACHE_LINE_SIZE" % name).strip()]


def plant(m, slot):
    base = bar(m, slot)
    for at in PLACES:
        m.must("devmem 0x%x 32 %s" % (base + at, PATTERN))
    m.must("setpci -s %s CACHE_LINE_SIZE=5a" % os.path.basename(m.device(slot)))
    seen = look(m, slot)
    check("pattern_is_there_for_%s" % m.name, seen == [PATTERN] * 3 + ["5a"], seen)


def clean(seen):
    return seen[:3] == ["0x00000000"] * 3 and seen[3] != "5a"


@story
def next_user_sees_nothing(w):
    a, b = w.a, w.b
    a.attach(3, w.plain.at, 1, 1)
    plant(a, 3)
    b.attach(2, w.plain.at, 1, 2)  # a newer lease takes the device over
    seen = look(b, 2)
    check("pattern_is_gone_after_takeover", clean(seen), seen)
    a.emptied(3)
    check("owner_has_lost_it", a.attached(3) == 1, a.host.errors()[-300:])
    plant(b, 2)
    b.detach(2)
    b.emptied(2)
    a.detach(3)  # it had gone on to dial with its old lease
    a.attach(3, w.plain.at, 1, 3)
    seen = look(a, 3)
    check("pattern_is_gone_after_detach", clean(seen), seen)


@story
def next_user_control(w):
    """A device that is not reset shows the next guest what the last one left: all that the story
    above looks at would be seen."""
    a, b = w.a, w.b
    w.leaky.start()
    a.attach(4, w.leaky.at, 1, 1)
    plant(a, 4)
    b.attach(2, w.leaky.at, 1, 2)
    seen = look(b, 2)
    check("control_pattern_is_seen_without_reset", seen == [PATTERN] * 3 + ["5a"], seen)
    a.emptied(4)
    a.detach(4)
    b.detach(2)
    b.emptied(2)


@story
def shared_drive(w):
    """Both guests have one drive, with the stock driver, and keep apart by reservations: the write
    that one is not allowed fails there, and the guest goes on."""
    a, b = w.a, w.b
    w.shared.start()
    a.attach(4, w.shared.at, 1, 1)
    b.attach(2, w.shared.at, 2, 1)
    a.filled(4)
    b.filled(2)
    disks = {a: a.disk(4), b: b.disk(2)}
    seen = [m.must("nvme id-ctrl %s | grep -E '^(cntlid|cmic)'" % m.controller(slot)).split()
            for m, slot in ((a, 4), (b, 2))]
    check("shared_drive_has_two_controllers", seen == [["cmic", ":", "0x2", "cntlid", ":", n]
                                                       for n in ("0x1", "0x2")], seen)

    def write(m):
        return m.run("dd if=/dev/urandom of=%s bs=4k count=4 oflag=direct conv=fsync" % disks[m])[0]

    def sums():
        return [m.must("dd if=%s bs=4k count=4 iflag=direct 2>/dev/null | md5sum" % disks[m])
                for m in (a, b)]

    def reserve(m, what):
        return m.run("nvme resv-%s" % what.replace("DISK", disks[m]))

    before = sums()
    check("shared_drive_is_written", write(a) == 0 and before[0] == before[1])
    after = sums()
    check("shared_drive_is_read_by_both", after[0] == after[1] != before[0], before, after)
    for m, key in ((a, 0x11), (b, 0x22)):
        status, output = reserve(m, "register DISK --nrkey=%d --rrega=0" % key)
        check("shared_drive_%s_registers" % m.name, status == 0, output)
    status, output = reserve(a, "acquire DISK --crkey=17 --rtype=1 --racqa=0")
    check("shared_drive_is_acquired", status == 0, output)
    check("shared_drive_only_the_holder_writes", write(a) == 0 and write(b) != 0)
    now = sums()
    check("shared_drive_others_read", now[0] == now[1], now)
    status, output = reserve(b, "report DISK")
    check("shared_drive_report", status == 0 and re.search(r"regctl\s*: 2", output), output)
    status, output = reserve(b, "acquire DISK --crkey=34 --prkey=17 --rtype=1 --racqa=2")
    check("shared_drive_is_preempted", status == 0, output)
    check("shared_drive_the_former_holder_is_fenced", write(a) != 0 and write(b) == 0)
    status, output = reserve(b, "release DISK --crkey=34 --rtype=1 --rrela=0")
    check("shared_drive_is_released", status == 0 and write(a) == 0, output)
    status, output = reserve(b, "register DISK --crkey=34 --rrega=1")
    check("shared_drive_registration_ends", status == 0, output)


# What a registrant that is not the holder may do under each type of reservation, and what a host
# that is not registered may (NVMe 1.4, 8.8): read, write.
TYPES = {1: ("r", "r"), 2: ("", ""), 3: ("rw", "r"), 4: ("rw", ""), 5: ("rw", "r"), 6: ("rw", "")}
ALL_HOLD = (5, 6)


class Sharer:
    """A guest as one of the hosts of the shared drive; its key, which is the first and the last
    byte of its identifier, too."""

    def __init__(self, m, slot, key):
        self.m, self.key, self.who = m, key, "%x%x" % (key, key)
        self.disk, self.controller = m.disk(slot), m.controller(slot)

    def identify(self, form="\\%o" + "\\0" * 14 + "\\%o", wide=1):
        """Linux sets no host identifier: without one a registration ends with the first reset of
        the controller, such as the end of the guest.  It has 128 bits: where a drive may have
        those, nvme-cli 2.12 and later can report no others."""
        self.m.must("printf '%s' >/tmp/host; nvme set-feature %s -f 0x81 --value=%d -l %d "
                    "-d /tmp/host" % (form.replace("%o", "%o" % self.key), self.controller, wide,
                                      16 if wide else 8))

    def reserve(self, command, **options):
        """Exit status and output of `nvme resv-COMMAND`."""
        return self.m.run(" ".join(["nvme", "resv-" + command, self.disk] + [
            "--%s=%d" % option for option in options.items()]))

    def registers(self):
        return self.reserve("register", nrkey=self.key, rrega=0)

    def acquires(self, kind):
        return self.reserve("acquire", crkey=self.key, rtype=kind, racqa=0)

    def preempts(self, other, kind):
        """Its registration and what it holds, and aborts its commands."""
        return self.reserve("acquire", crkey=self.key, prkey=other.key, rtype=kind, racqa=2)

    def releases(self, kind):
        return self.reserve("release", crkey=self.key, rtype=kind, rrela=0)

    def report(self):
        """Type of the reservation, and {key: (identifier, holds)} of the registrants, without
        the identifier's zeros: how many of them nvme-cli prints depends on its version."""
        text = self.m.must("nvme resv-report --eds " + self.disk)
        rows = re.findall(r"rcsts\s*: (\w+)\s+rkey\s*: (\w+)\s+hostid\s*: (\w+)", text)
        return (int(re.search(r"^rtype\s*: (\d+)", text, re.M).group(1)),
                {int(key, 16): (host.replace("0", ""), int(status, 16) & 1)
                 for status, key, host in rows})

    def may(self):
        """Which of reading and writing a block succeeds.  What does not must be a conflict: another
        error is shown."""
        output = self.m.must(
            "dd if=%s of=/dev/null bs=4k count=1 iflag=direct 2>&1 && echo IS_READ; "
            "dd if=/dev/zero of=%s bs=4k count=1 seek=%d oflag=direct 2>&1 && echo IS_WRITTEN; true"
            % (self.disk, self.disk, 3840 + self.key % 16))
        done = [word for word in ("IS_READ", "IS_WRITTEN") if word in output]
        if output.count("Invalid exchange") != 2 - len(done):  # EBADE, of a reservation alone
            return output
        return "".join({"IS_READ": "r", "IS_WRITTEN": "w"}[word] for word in done)

    def write(self, place):
        """512 KB of random data; their sum."""
        return self.m.must(
            "dd if=/dev/urandom of=/tmp/data bs=64k count=8 2>/dev/null; dd if=/tmp/data of=%s "
            "bs=64k count=8 seek=%d oflag=direct 2>/dev/null && md5sum </tmp/data"
            % (self.disk, 8 * place)).split()[0]

    def sum_at(self, place):
        return self.m.must("dd if=%s bs=64k count=8 skip=%d iflag=direct 2>/dev/null | md5sum"
                           % (self.disk, 8 * place)).split()[0]


@story
def three_guests_share_a_drive(w):
    """Each reads what the others have written.  Then one holds a reservation of each type, one is
    registered, and one is not."""
    w.boot("c", "root-ports", ["1=%s/7" % w.shared.at], memory=256).filled(1)
    sharers = w.sharers = [Sharer(m, slot, key) for m, slot, key in
                           ((w.a, 4, 0xa1), (w.b, 2, 0xb2), (w.c, 1, 0xc3))]
    a, b, c = sharers
    w.sums = [sharer.write(place) for place, sharer in enumerate(sharers)]
    found = [[sharer.sum_at(place) for place in range(3)] for sharer in sharers]
    check("three_guests_read_what_each_wrote", found == [w.sums] * 3 and len(set(w.sums)) == 3,
          found, w.sums)
    check("three_guests_write_without_a_reservation", [s.may() for s in sharers] == ["rw"] * 3)
    b.identify("\\%o" + "\\0" * 7, wide=0)
    status, output = b.m.run("nvme resv-report --eds " + b.disk)
    check("three_guests_64_bits_are_not_reported_as_128", status != 0 and
          "Host Identifier" in output, output)
    b.identify("\\0" * 8, wide=0)
    for sharer in sharers:
        sharer.identify()
    for sharer in (a, c):
        status, output = sharer.registers()
        check("three_guests_%s_registers" % sharer.m.name, status == 0, output)
    status, output = b.acquires(1)
    check("three_guests_who_is_not_registered_acquires_nothing", status != 0, output)
    for kind, (registrant, other) in TYPES.items():
        status, output = c.acquires(kind)
        check("three_guests_type_%d_is_acquired" % kind, status == 0, output)
        found = b.report()
        holds = int(kind in ALL_HOLD)
        check("three_guests_type_%d_report" % kind,
              found == (kind, {a.key: (a.who, holds), c.key: (c.who, 1)}), found)
        found = [s.may() for s in (c, a, b)]
        check("three_guests_type_%d_access" % kind, found == ["rw", registrant, other], found)
        status, output = (a if holds else c).releases(kind)  # else the next type conflicts
        check("three_guests_type_%d_is_released" % kind, status == 0, output)
    found = a.report()[0], [s.may() for s in sharers]
    check("three_guests_write_when_it_is_released", found == (0, ["rw"] * 3), found)
    status, output = a.m.run("nvme detach-ns %s -n 1 -c 7" % a.controller)
    check("three_guests_namespace_is_detached_from_one", status == 0, output)
    c.m.wait_for("! there %s/nvme/nvme*/nvme*n[0-9]*" % c.m.device(1), HANG)
    check("three_guests_the_others_keep_it", [s.may() for s in (a, b)] == ["rw"] * 2)
    status, output = a.m.run("nvme attach-ns %s -n 1 -c 7" % a.controller)
    c.m.filled(1)
    c.disk = c.m.disk(1)
    check("three_guests_namespace_is_attached_again", status == 0 and c.may() == "rw", output)


@story
def holder_is_killed(w):
    """Its QEMU, while it writes.  What it held stays, until another guest preempts it."""
    a, b, c = w.sharers
    status, output = c.acquires(1)
    check("holder_acquires", status == 0, output)
    c.m.under_way(1, "--rw=randwrite", "--bs=4k", "--iodepth=8", "--offset=8m", "--size=4m",
                  "--time_based", "--runtime=120")
    check("holder_writes", c.m.run("[ -s /tmp/job.done ]")[0] != 0, c.m.run("cat /tmp/job.out"))
    w.machines.remove(c.m)
    c.m.guest.kill()
    wait_count(c.m.host, "the guest is gone", 1)
    found = [s.may() for s in (a, b)]
    check("holder_killed_others_do_not_write", found == ["r", "r"], found)
    found = a.report()
    check("holder_killed_it_still_holds", found == (1, {a.key: (a.who, 0), c.key: (c.who, 1)}),
          found)
    status, output = b.preempts(c, 1)
    check("holder_killed_who_is_not_registered_does_not_preempt", status != 0, output)
    status, output = a.preempts(c, 1)
    check("holder_killed_another_preempts_it", status == 0, output)
    found = a.report(), [s.may() for s in (a, b)]
    check("holder_killed_another_holds", found == ((1, {a.key: (a.who, 1)}), ["rw", "r"]), found)
    found = [[s.sum_at(place) for place in range(3)] for s in (a, b)]
    check("holder_killed_data_are_there", found == [w.sums] * 2, found)
    if LONG:
        c.m.start_guest(w, "c2", memory=256)
        c.m.filled(1)
        c.identify()
        check("holder_killed_it_is_fenced_when_it_is_back", c.may() == "r", c.may())
        c.m.guest.kill()
    status, output = a.releases(1)
    found = [s.may() for s in (a, b)]
    check("holder_killed_others_write_after_a_release", status == 0 and found == ["rw"] * 2, output,
          found)
    check("holder_killed_host_stops", c.m.host.stop() == 0, c.m.host.errors()[-500:])
    a.m.detach(4)
    a.m.emptied(4)


@story
def another_device_is_plugged_in(w):
    """At the box: the guest sees the one go, by surprise, and the other come."""
    b = w.b
    pulled = w.lab.run("dxpu", "unplug", "--force", w.shared_control, 2, seconds=HANG)
    check("unplugged_at_the_box", pulled.status == 0, pulled.errors())
    b.emptied(2)
    plugged = w.lab.run("dxpu", "plug", w.shared_control, 2, "nvme,size=8M,file=" +
                        w.lab.file("plugged"), seconds=HANG)
    check("plugged_in_at_the_box", plugged.status == 0, plugged.errors())
    b.filled(2)
    size = b.must("cat /sys/block/%s/size" % os.path.basename(b.disk(2))).strip()
    check("plugged_in_is_the_new_one", size == str(8 << 11), size)
    b.verify(2, "plugged_in_fio", "--rw=randrw", "--iodepth=8", *AGAIN)
    b.detach(2)
    b.emptied(2)


@story
def functions_are_reset_apart(w):
    """Two functions of one device, one in each guest; each guest resets its own while both have
    I/O under way."""
    guests = {w.a: (4, 3), w.b: (2, 4)}  # the guest's slot, the box's
    for m, (slot, box_slot) in guests.items():
        m.attach(slot, w.shared.at, box_slot, 1)
    for m, (slot, _) in guests.items():
        m.filled(slot)
    seen = [m.must("nvme id-ctrl %s | grep -E '^(sn|cntlid)'" % m.controller(slot)).split()
            for m, (slot, _) in guests.items()]
    check("functions_are_of_one_device", seen[0][:3] == seen[1][:3] and
          [s[-1] for s in seen] == ["0x1", "0x2"], seen)
    for m, (slot, _) in guests.items():
        m.under_way(slot, "--rw=randwrite", MIXED, "--iodepth=8", "--size=8m", "--loops=100",
                    "--time_based", "--runtime=3", "--verify=xxhash", "--verify_fatal=1",
                    "--do_verify=1")
    for m in guests:
        other = w.b if m is w.a else w.a
        count = {g: box_count(w.shared, "function_resets", guests[g][1]) for g in guests}
        lines = {g: int(g.must("dmesg | grep -c nvme")) for g in guests}
        # the driver stops, the function is reset, the driver goes on
        m.must("echo flr > %s/reset_method; echo 1 > %s/reset" % ((m.device(guests[m][0]),) * 2))
        now = {g: box_count(w.shared, "function_resets", guests[g][1]) for g in guests}
        check("functions_%s_is_reset" % m.name, now[m] > count[m], count, now)
        check("functions_other_of_%s_is_not" % m.name, now[other] == count[other], count, now)
        m.wait_for("[ \"$(dmesg | grep -c nvme)\" -gt %d ]" % lines[m], HANG)  # a control
        check("functions_other_of_%s_notices_nothing" % m.name,
              int(other.must("dmesg | grep -c nvme")) == lines[other])
    for m, (slot, _) in guests.items():
        status, output = m.ended()
        check("functions_%s_data" % m.name, status == 0, output)
        m.detach(slot)
        m.emptied(slot)


@story
def device_of_two_functions(w):
    """Lent whole: the guest has both, and resets the second one while the first one works."""
    if not LONG:
        return  # net_functions.py does the same without a guest
    a = w.a
    a.attach(4, w.shared.at, 5, 1)
    a.filled(4)
    second = a.device(4)[:-1] + "1"
    a.wait_for("there %s/nvme/nvme*/nvme*n[0-9]*" % second, HANG)
    lspci(a, "two_functions")
    ids = [a.must("cat %s/nvme/nvme*/cntlid %s/nvme/nvme*/serial" % (path, path)).split()
           for path in (a.device(4), second)]
    check("two_functions_of_one_device", [i[0] for i in ids] == ["1", "2"] and
          ids[0][1] == ids[1][1], ids)
    disk = "/dev/" + re.sub(r"c\d+", "", os.path.basename(
        a.must("ls -d %s/nvme/nvme*/nvme*n[0-9]*" % second).strip()))
    a.under_way(4, "--rw=randwrite", MIXED, "--iodepth=8", "--size=8m", "--loops=100",
                "--time_based", "--runtime=4", "--verify=xxhash", "--verify_fatal=1",
                "--do_verify=1")
    a.must("echo second | dd of=%s bs=512 seek=9 conv=sync,fsync oflag=direct" % disk)
    a.must("echo flr > %s/reset_method; echo 1 > %s/reset" % (second, second))
    got = a.must("dd if=%s bs=512 skip=9 count=1 iflag=direct 2>/dev/null | head -c 6" % disk)
    check("two_functions_second_goes_on", got.strip() == "second", got)
    status, output = a.ended()
    check("two_functions_first_notices_nothing", status == 0, output)
    with open(w.lab.file("whole1"), "rb") as file:
        file.seek(9 * 512)
        check("two_functions_have_files_of_their_own", file.read(6) == b"second")
    a.detach(4)
    a.emptied(4)


@story
def virtual_functions(w):
    """The guest makes two by SR-IOV and has disks in them; resets one, and lets go of both, while
    the physical function works."""
    a = w.a
    a.attach(4, w.shared.at, 6, 1)
    a.filled(4)
    pf = a.device(4)
    total = a.must("cat %s/sriov_totalvfs" % pf).strip()
    check("virtual_functions_can_be_made", total == "3", total)
    a.under_way(4, "--rw=randwrite", MIXED, "--iodepth=8", "--size=8m", "--loops=100",
                "--time_based", "--runtime=4", "--verify=xxhash", "--verify_fatal=1",
                "--do_verify=1")
    status, output = a.run("echo 2 > %s/sriov_numvfs" % pf)
    check("virtual_functions_are_made", status == 0, output, a.must("dmesg | tail -n 5"))
    for n in (0, 1):
        vf = "%s/virtfn%d/" % (pf, n)
        a.wait_for("there %snvme/nvme*/nvme*n[0-9]*" % vf, HANG)
        disk = "/dev/" + re.sub(r"c\d+", "", os.path.basename(
            a.must("ls -d %snvme/nvme*/nvme*n[0-9]*" % vf).strip()))
        a.must("echo virtual%d | dd of=%s bs=512 seek=9 conv=sync,fsync oflag=direct" % (n, disk))
        a.must("echo flr > %sreset_method; echo 1 > %sreset" % (vf, vf))
        got = a.must("dd if=%s bs=512 skip=9 count=1 iflag=direct 2>/dev/null | head -c 8" % disk)
        check("virtual_function_%d_has_a_disk" % n, got.strip() == "virtual%d" % n, got)
    text = a.must("lspci -D -vvv -s %s" % os.path.basename(pf))
    check("lspci_shows_virtual_functions", re.search(r"Total VFs: 3, Number of VFs: 2", text), text)
    check("virtual_functions_are_let_go", a.run("echo 0 > %s/sriov_numvfs" % pf)[0] == 0 and
          a.run("[ -e %s/virtfn0 ]" % pf)[0] == 1)
    status, output = a.ended()
    check("virtual_functions_physical_one_notices_nothing", status == 0, output)
    a.detach(4)
    a.emptied(4)


@story
def host_killed(w):
    """The box takes the slot back; the next host has it.  Guest b does not notice."""
    a, b = w.a, w.b
    a.under_way(1, *LOAD)
    b.under_way(3, "--rw=randwrite", "--bs=4k", "--iodepth=4", "--size=4m", "--verify=xxhash",
                "--verify_fatal=1", "--do_verify=1")
    a.guest.seen = len(a.guest.log())
    a.host.kill()
    a.guest.kill()
    w.machines.remove(a)
    status, output = b.ended()
    check("host_killed_other_guest", status == 0, output)
    after = w.lab.start("dxpu-host", "--vfio-user", w.lab.file("c.sock"), "--attach",
                        "1=%s/1/2" % w.disk.at)
    wait_count(after, "slot 1: .* is attached", 1)
    check("host_killed_slot_is_free_again", True)
    after.stop()


# ==== Ends of dxpu-host's processes ===============================================================

# who gets which signal, and the exit status of the parent that is documented; None: it is killed
ENDS = (("dxpu-keeper", signal.SIGKILL, 3), ("parent", signal.SIGKILL, None),
        ("parent", signal.SIGTERM, 0))


def other_hosts(w):
    """Options of QEMU for further dxpu-hosts, one for each end."""
    options = []
    w.hosts = []
    for number, _ in enumerate(ENDS):
        path = w.lab.file("end%d.sock" % number)
        host = w.lab.start("dxpu-host", "--vfio-user", path, "--slots", 1, "--topology",
                           "root-ports", "--attach", "1=%s/%d" % (w.ends.at, number + 1))
        host.says("waiting for a guest")
        w.hosts.append(host)
        # for how long QEMU waits for an answer: less than its 5 s, which show nothing more
        options += ["-device", guest.adapter(path, **{"x-msg-timeout": 2000})]
    return options


def has_ended(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def until_ended(pid, seconds=20):
    end = time.monotonic() + seconds
    while not has_ended(pid):
        if time.monotonic() > end:
            raise AssertionError("process %d goes on" % pid)
        time.sleep(0.01)


@story
def processes_end(w):
    """Each while QEMU waits for an answer to what the keeper has not read.  QEMU aborts when such a
    socket is merely closed; here it goes on, the guest reads all ones, and its other slots work."""
    b = w.b
    for number, (who, sign, expected) in enumerate(ENDS):
        host, port = w.hosts[number], "%x:00:01.0" % (0x10001 + number)
        what = "%s_%s" % (who.replace("dxpu-", ""), sign.name)
        first = b.must("setpci -s %s 0.l" % port).strip()
        check(what + "_control_port_is_there", first != "ffffffff", first)
        children = dict(host.children())
        keeper, worker = children["dxpu-keeper"], children["dxpu-worker"]
        os.kill(keeper, signal.SIGSTOP)
        asked = b.guest.start("setpci -s %s 0.l" % port)
        time.sleep(0.5)
        os.kill(keeper if who == "dxpu-keeper" else host.popen.pid, sign)
        if who == "parent":
            until_ended(worker)
        if sign == signal.SIGTERM:
            time.sleep(0.1)  # the parent has said to the keeper what there is to say
        if who == "parent":
            os.kill(keeper, signal.SIGCONT)
        status, output = b.guest.finish(asked, HANG)
        check(what + "_reads_all_ones", status == 0 and output.strip() == "ffffffff", output)
        check(what + "_other_slot_works",
              b.run("dd if=%s of=/dev/null bs=4k count=64 iflag=direct" % b.disk(3))[0] == 0)
        until_ended(keeper)
        until_ended(worker)  # no guest is left
        found = host.wait(20)
        check(what + "_exit_status", found == (-sign if expected is None else expected), found,
              host.errors()[-500:])


@story
def end(w):
    """Everything stops in order, and says what it did."""
    b = w.b
    b.must("echo 4000 >/sys/block/%s/queue/io_timeout" % os.path.basename(b.disk(3)))  # not 30 s
    if not LONG:  # at power-off Linux wakes a port that sleeps; for a minute, if that is gone
        b.must("for p in /sys/bus/pci/devices/10000:*; do echo on >$p/power/control; done")
    b.under_way(3, *LOAD)
    check("host_stops_under_load", b.host.stop() == 0, b.host.errors()[-500:])
    check("host_stops_fio_gets_errors", b.ended()[0] != 0)
    check("host_stops_guest_goes_on", b.must("echo $((6 * 7))").strip() == "42")
    b.guest.start("poweroff -f")
    try:
        status = b.guest.popen.wait(HANG)
    except Exception:  # it is killed with the others
        status = None
    check("guest_powers_off", status == 0, status)
    result = b.host.result()
    check("host_refused_nothing", all(
        result["slot_%d" % n]["refused"] == 0 for n in (1, 3)), result)
    check("only_programmed_interrupts_came", all(
        result["slot_%d" % n]["msis_refused"] == 0 for n in (1, 3)) and
        result["slot_1"]["msis"] + result["slot_3"]["msis"] > 0, result)
    for name in ("disk", "other", "plain", "leaky", "lossy_disk", "shared", "ends"):
        box = getattr(w, name).process
        check("box_%s_stops" % name, box.stop() == 0, box.errors()[-500:])
    lost = w.lossy.stop() == 0 and w.lossy.result()["lost"]
    check("loss_lost_something", lost > 100, lost)


# ==== Running =====================================================================================

def run(w, wanted):
    for function in stories:
        if wanted and function.__name__ not in wanted:
            continue
        start = time.monotonic()
        try:
            function(w)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[1].lineno
            check(function.__name__, False, "line %d:" % line, error)
        for m in w.machines:
            bad = m.guest.complaints()
            check("%s_kernel_of_%s_is_content" % (function.__name__, m.name), not bad, *bad)
        figure("story %s: %.1f s" % (function.__name__, time.monotonic() - start))
        if any(m.guest.popen.poll() is not None for m in w.machines if function is not end):
            check("guest_lives", False, [m.guest.errors() for m in w.machines])
            return


def keep(l, folder):
    if folder:
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(l.folder):
            if re.search(r"\.(err|out|console|qemu)$", name):
                shutil.copy(l.file(name), folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=50 if LONG else 4)
    parser.add_argument("--cut", type=int, default=60 if LONG else 4 * HOLD,
                        help="seconds without network")
    parser.add_argument("--crashes", type=int,
                        default=int(os.environ.get("DXPU_CRASHES", 20 if LONG else 1)),
                        help="of the worker process")
    parser.add_argument("--keep", help="copy all logs there at the end")
    parser.add_argument("stories", nargs="*")
    args = parser.parse_args()
    suite.known(args.stories, [story.__name__ for story in stories])
    start = time.monotonic()
    with lab.Lab() as l:
        try:
            w = World(l, args.cycles, args.cut, args.crashes)
        except guest.Missing as missing:
            for function in stories:
                print("skip %s %s" % (function.__name__, missing))
            return 0
        figure("start: %.1f s" % (time.monotonic() - start))
        try:
            run(w, args.stories)
        finally:
            keep(l, args.keep)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
