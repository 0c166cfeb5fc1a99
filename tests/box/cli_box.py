#!/usr/bin/env python3
"""What dxpu-box makes of the options for its disks, before any host comes.

Prints `ok NAME` or `not ok NAME` for each check."""
# SPDX-License-Identifier: MIT
import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import lab  # noqa: E402

failed = 0


def check(name, truth, *shown):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name + ("" if truth else "  # %s" % (shown,)))


def box(l, *options):
    return l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", *options)


def refused(l, name, status, says, *options):
    b = box(l, *options)
    got = b.wait(10)
    check(name, got == status and says in b.errors(), got, b.errors())


def files(l):
    """A file for each namespace of each slot, of the size that was asked for."""
    a, b = l.file("a.img"), l.file("b.img")
    running = box(l, "--file", a + "," + b, "--size", "1M", "--slots", 2)
    running.address()
    sizes = [os.path.getsize(f) if os.path.exists(f) else None
             for f in (a, b, a + ".2", b + ".2")]
    check("box_files_of_slots_and_namespaces", sizes == [1 << 20] * 4, sizes)
    refused(l, "box_file_in_use", 3, "in use", "--file", b)
    missing = l.file("slip.img")
    refused(l, "box_missing_file", 3, "--size", "--file", missing)
    refused(l, "box_missing_file_with_results", 3, "--size", "--file", missing, "--json",
            "--stats")
    check("box_missing_file_is_not_made", not os.path.exists(missing))
    check("box_ends_in_order", running.stop() == 0)
    again = box(l, "--file", b)
    again.address()
    check("box_file_is_free_again", again.stop() == 0)


def disks(l):
    """A disk that the system uses is not opened, and one that a box has is not the system's."""
    path = l.file("disk.img")
    with open(path, "wb") as f:
        f.truncate(1 << 20)
    made = subprocess.run(["losetup", "-f", "--show", path], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT) if shutil.which("losetup") else None
    if not made or made.returncode:
        print("skip box_disk_in_use # no loop devices")
        return
    disk = made.stdout.strip()
    try:
        claim = os.open(disk, os.O_RDWR | os.O_EXCL)  # as a mount does
        refused(l, "box_disk_in_use", 3, "mounted or otherwise in use", "--file", disk)
        os.close(claim)
        good = box(l, "--file", disk, "--size", "1M")
        good.address()
        try:
            os.close(os.open(disk, os.O_RDWR | os.O_EXCL))
            check("box_disk_is_claimed", False)
        except OSError as e:
            check("box_disk_is_claimed", e.errno == errno.EBUSY, e)
        check("box_control_disk", good.stop() == 0)
    finally:
        subprocess.run(["losetup", "-d", disk], check=True)


def resident(l, slots):
    b = box(l, "--device", "memory", "--memory", "4K", "--slots", slots)
    b.address()
    with open("/proc/%d/status" % b.popen.pid) as f:
        got = int(next(line for line in f if line.startswith("VmRSS")).split()[1])
    b.stop()
    return got


def memory(l):
    """Slots without a channel cost little: 512 took 35 MB more than one when each had its guard."""
    one, many = resident(l, 1), resident(l, 512)
    check("box_of_512_slots_takes_little_memory", many - one < 16 << 10, one, many)


def options(l):
    refused(l, "box_serial_too_long", 2, "--serial", "--serial", "x" * 17)
    refused(l, "box_serial_with_blank", 2, "--serial", "--serial", "a b")
    refused(l, "box_serial_empty", 2, "--serial", "--serial", "")
    refused(l, "box_namespaces_and_file", 2, "--namespaces", "--namespaces", 2, "--file",
            l.file("c"))
    refused(l, "box_read_only_memory", 2, "--read-only", "--device", "virtio-blk", "--read-only")
    refused(l, "box_read_only_nvme", 2, "--read-only", "--read-only", "--device", "nvme", "--file",
            l.file("disk"))
    refused(l, "box_virtio_blk_files", 2, "--file", "--device", "virtio-blk", "--file", "a,b")
    refused(l, "box_too_many_namespaces", 2, "--namespaces", "--namespaces", 33)
    good = box(l, "--serial", "x" * 16, "--namespaces", 32, "--size", "1M", "--slots", 2)
    good.address()
    check("box_control_good_options", good.stop() == 0)


def pipes(l):
    """Where a file is meant, one that would hold the box up is refused.  The control: a file."""
    pipe, file = l.file("pipe"), l.file("file")
    os.mkfifo(pipe)
    of_manager = "--manager", "127.0.0.1:9", "--manager-key", l.public("manager")
    for name, status, *given in (("state", 3), ("record", 3), ("frames", 3), ("file", 3),
                                 ("identity", 2, *of_manager, "--state", file)):
        refused(l, "box_pipe_as_" + name, status, "pipe", *given, "--" + name, pipe)
    refused(l, "box_stdout_as_record", 3, "pipe", "--record", "-")
    good = box(l, "--state", file, "--record", l.file("tlps"), "--frames", l.file("frames"))
    good.address()
    check("box_control_files", good.stop() == 0)


def reads_and_writes(l):
    """A configuration that cannot be read to its end, and results that are not read."""
    refused(l, "box_config_is_a_folder", 2, "cannot read", "--config", l.folder)
    for name, to, status in (("control_json", os.devnull, 0),
                             ("json_to_a_full_disk", "/dev/full", 3)):
        with open(to, "wb") as out, tempfile.TemporaryFile("w+") as errors:
            b = subprocess.Popen([os.path.join(lab.BIN, "dxpu-box"), "--plain", "--listen",
                                  "127.0.0.1:0", "--memory", "64K", "--json"],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
            end = time.monotonic() + 10
            while "slot at" not in said(errors) and time.monotonic() < end:
                time.sleep(0.02)
            b.terminate()
            got = b.wait(10)
            check("box_" + name, got == status and
                  (not status or "standard output" in said(errors)), got, said(errors))


def renderers(l):
    """3D of a display adapter."""
    gpu = "--device", "virtio-gpu"
    refused(l, "box_3d_of_memory", 2, "require --device virtio-gpu", "--render")
    refused(l, "box_slot_of_memory_with_3d", 2, "for virtio-gpu", "--slot", "1=memory,render")
    refused(l, "box_slot_of_memory_with_a_node", 2, "for virtio-gpu", "--slot",
            "1=memory,render-node=/dev/dri/renderD128")
    refused(l, "box_3d_as_another_user", 2, "cannot be used with --user", *gpu, "--render",
            "--user", "daemon")
    refused(l, "box_node_that_is_not_there", 3, "/no/such/node: No such file", *gpu,
            "--render-node", "/no/such/node")
    refused(l, "box_slot_with_a_node_that_is_not_there", 3, "without --render virtio-gpu has no 3D",
            "--slot", "1=virtio-gpu,render-node=/no/such/node")


def attributes(l):
    """What an operator says of a slot's device."""
    for word in ("rack", "=7", "rack=", "rack=a b"):
        refused(l, "box_attribute_%s" % word.replace(" ", "_"), 2, "attribute", "--slot",
                "1=memory,attribute=" + word)
    refused(l, "box_attributes_too_long", 2, "too many: 'attributes'", "--slot",
            "1=memory,attribute=a=%s,attribute=b=%s" % ("x" * 30, "y" * 30))
    refused(l, "box_attributes_too_long_with_the_device", 3, "more than 63 characters", "--slot",
            "1=nvme,size=1M,attribute=a=%s" % ("x" * 58))
    good = box(l, "--slot", "1=nvme,size=1M,attribute=a=%s" % ("x" * 53))  # 8 and a comma beside
    good.address()
    check("box_attributes_of_63_characters", good.stop() == 0, good.errors())


def adapters(l):
    """Where the frames of a network adapter go."""
    net = "--device", "virtio-net"
    refused(l, "box_adapter_without_a_tap", 2, "--tap NAME or --net-fd N", *net)
    refused(l, "box_adapter_with_both", 2, "--tap NAME or --net-fd N", *net, "--tap", "a",
            "--net-fd", 5)
    refused(l, "box_tap_of_a_disk", 2, "virtio-net", "--tap", "a")
    refused(l, "box_descriptor_of_two_slots", 2, "one slot", *net, "--net-fd", 5, "--slots", 2)
    refused(l, "box_slot_without_a_tap", 2, "tap=NAME or fd=N", "--slot", "1=virtio-net")
    refused(l, "box_slot_of_memory_with_a_tap", 2, "for virtio-net", "--slot", "1=memory,tap=a")
    for name, options in (
            ("box_two_slots_of_a_tap",
             ("--slots", 2, "--slot", "1=virtio-net,tap=a", "--slot", "2=virtio-net,tap=a")),
            ("box_two_slots_of_a_descriptor",
             ("--slots", 2, "--slot", "1=virtio-net,fd=9", "--slot", "2=virtio-net,fd=9")),
            ("box_slot_at_the_tap_of_another",
             (*net, "--tap", "a", "--slots", 2, "--slot", "2=virtio-net,tap=a")),
            ("box_slot_at_a_further_tap",
             (*net, "--tap", "a", "--slots", 3, "--slot", "1=virtio-net,tap=a.3"))):
        refused(l, name, 2, "give each one of its own", *options)
    refused(l, "box_tap_that_is_not_there", 3, "ip tuntap add dev no-such-tap", *net, "--tap",
            "no-such-tap")
    refused(l, "box_descriptor_that_is_not_open", 3, "descriptor 99", "--slot",
            "1=virtio-net,fd=99")
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    os.set_inheritable(other.fileno(), True)
    b = subprocess.Popen([os.path.join(lab.BIN, "dxpu-box"), "--plain", "--listen", "127.0.0.1:0",
                          *net, "--net-fd", str(other.fileno())], stdin=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, close_fds=False)
    lines = [b.stderr.readline(), b.stderr.readline()]
    check("box_adapter_with_a_descriptor", " at 127.0.0.1:" in lines[1], lines)
    b.terminate()
    check("box_adapter_ends", b.wait(10) == 0)
    b.stderr.close()
    one.close()
    other.close()


def limits(l):
    """The limit of open files is raised for the slots, as far as it may be; the control: for few
    slots what there is does."""
    for slots, most in ((1, 400), (4, 512), (9, 600)):
        limited = ["sh", "-c", 'ulimit -Sn 400 && ulimit -Hn 600 && exec "$@"', "sh"]
        b = subprocess.Popen([*limited, os.path.join(lab.BIN, "dxpu-box"), "--plain", "--listen",
                              "127.0.0.1:0", "--slots", str(slots), "--memory", "64K"],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines = []
        while not any(" at 127.0.0.1:" in line for line in lines) and b.poll() is None:
            lines.append(b.stderr.readline())
        with open("/proc/%d/limits" % b.pid) as file:
            now = [line.split()[3] for line in file if line.startswith("Max open files")]
        check("box_limit_of_open_files_%d_slots" % slots, now == [str(most)], now)
        check("box_limit_of_open_files_%d_slots_said" % slots,
              any("are more than allowed" in line for line in lines) == (slots == 9), lines)
        b.terminate()
        check("box_with_%d_slots_ends" % slots, b.wait(10) == 0)
        b.stderr.close()


def sections(l):
    """A section of the configuration file for a slot is as a line of --slot."""
    a, conf = l.file("s.img"), l.file("box.conf")

    def run(text, *more):
        with open(conf, "w") as f:
            f.write(text)
        return l.start("dxpu-box", "--listen", "127.0.0.1:0", "--config", conf, *more)

    b = run("slots = 3\nslot = 1=eptest\n[slot 2]\n# a disk\ndevice = nvme\nsize = 1M\n"
            "file = %s\nfile = %s.b\n[slot 3]\ndevice = memory\nmemory = 64K\n" % (a, a))
    b.address()
    sizes = [os.path.getsize(f) if os.path.exists(f) else None for f in (a, a + ".b")]
    check("box_sections_of_slots", sizes == [1 << 20] * 2 and b.stop() == 0, sizes, b.errors())
    b = run("[slot 1]\ndevice = virtio-blk\nread-only = yes\nfile = %s\n" % a)
    b.address()
    check("box_section_with_a_flag", b.stop() == 0, b.errors())
    for name, says, text in (
            ("twice", "given twice: '1'", "slot = 1=eptest\n[slot 1]\ndevice = nvme\n"),
            ("beyond_slots", "at most --slots", "[slot 2]\ndevice = nvme\n"),
            ("of_no_kind", "no such device model: 'x'", "[slot 1]\ndevice = x\n"),
            ("without_a_device", "line 1: slot: `device = ...` is missing",
             "[slot 1]\nmemory = 64K\n"),
            ("with_an_unknown_key", "unknown key or invalid value: 'listen'",
             "[slot 1]\ndevice = memory\nlisten = x\n"),
            ("with_no_flag", "must be yes or no: 'read-only'",
             "[slot 1]\ndevice = virtio-blk\nread-only = 2\n"),
            ("with_push_of_no_flag", "must be yes or no: 'push'",
             "[slot 1]\ndevice = nvme\npush = maybe\n")):
        b = run(text)
        got = b.wait(10)
        check("box_section_%s_is_refused" % name, got == 2 and says in b.errors(), got, b.errors())


def said(file):
    file.seek(0)
    return file.read()


def idle_slots(l):
    """Memory of a box whose slots no host has had: what a driver needs is there from then on."""
    for kind, most in (("memory", 10), ("nvme", 40), ("virtio-blk", 44)):
        size = [] if kind == "memory" else ["--size", "1M"]
        b = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", kind, *size, "--slots", 512)
        b.address()
        with open("/proc/%d/status" % b.popen.pid, encoding="ascii") as file:
            used = dict(line.split(":", 1) for line in file)["VmRSS"].split()
        check("box_of_512_idle_%s" % kind, used[1] == "kB" and int(used[0]) <= most << 10, used,
              most)
        check("box_of_512_idle_%s_ends" % kind, b.stop() == 0)


with lab.Lab() as the_lab:
    files(the_lab)
    disks(the_lab)
    pipes(the_lab)
    memory(the_lab)
    options(the_lab)
    reads_and_writes(the_lab)
    adapters(the_lab)
    limits(the_lab)
    sections(the_lab)
    renderers(the_lab)
    idle_slots(the_lab)
    attributes(the_lab)
sys.exit(1 if failed else 0)
