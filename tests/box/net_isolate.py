#!/usr/bin/env python3
"""dxpu-box --isolate: what a model's process does touches no other slot, and none outlives the box.

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import base64
import glob
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import fake_manager as fm  # noqa: E402
import lab  # noqa: E402

LOAD = ("--load", "mixed", "--size", 256, "--depth", 8, "--span", "64K", "--json")


def devices(folder, slot=""):
    """The processes that serve a slot's device, or any."""
    found = []
    for file in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(file, "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(w.startswith("%s/%s" % (folder, slot)) for w in words):
            found.append(int(file.split("/")[2]))
    return found


class Box:
    def __init__(self, l, *more):
        self.lab = l
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2, "--isolate", "-v",
                           "--json", *more)
        self.to = self.box.address()
        self.folder = self.box.says(r"(/tmp/dxpu-box\.\w+)/1: .* is there").group(1)
        self.box.says(self.folder + "/2: .* is there")

    def devices(self, slot=""):
        return devices(self.folder, slot)

    def host(self, slot, epoch, *load):
        return self.lab.start("dxpu-host", "--box", self.to, "--slot", slot, "--epoch", epoch,
                              *LOAD, *load)

    def verified(self, host):
        status = host.wait(60)
        result = host.result()
        check(status == 0 and result["mismatched"] == result["unanswered"] == 0, status, result,
              host.errors(), self.box.errors())

    def times(self, slot):
        return self.box.errors().count("%s/%s: 1af4" % (self.folder, slot))


@case
def s243_crashes_are_contained():
    with lab.Lab() as l:
        b = Box(l)
        beside = b.host(2, 1, "--seconds", 3)
        b.box.says("slot 2: lent to")
        for turn in range(1, 4):
            before = b.devices(1)
            check(len(before) == 1, before)
            os.kill(before[0], signal.SIGKILL)
            until(lambda: b.times(1) == turn + 1, "the device again")
            check(b.devices(1) != before, before)
        b.verified(b.host(1, 2, "--count", 2000))
        b.verified(beside)
        check(b.times(2) == 1, b.box.errors())
        check(b.box.stop() == 0, b.box.errors())
        until(lambda: not b.devices(), "the end of the devices")
        check(not os.path.exists(b.folder), b.folder)


@case
def s243_a_model_that_never_returns():
    with lab.Lab() as l:
        b = Box(l)
        stuck = b.host(1, 1, "--seconds", 60, "--give-up-ms", 2000)
        b.box.says("slot 1: lent to")
        process = b.devices(1)[0]
        os.kill(process, signal.SIGSTOP)
        b.verified(b.host(2, 1, "--count", 5000))
        b.box.says("the server does not answer", 30)
        check(stuck.wait(30) not in (0, None), stuck.errors())
        b.verified(b.host(2, 2, "--count", 5000))
        os.kill(process, signal.SIGKILL)
        until(lambda: b.times(1) == 2, "the device again")
        b.verified(b.host(1, 3, "--count", 2000))
        check(b.box.stop() == 0, b.box.errors())


@case
def devices_end_with_a_box_that_is_killed():
    with lab.Lab() as l:
        b = Box(l)
        check(len(b.devices()) == 2, b.devices())  # the control
        os.kill(b.box.popen.pid, signal.SIGKILL)
        b.box.wait(10)
        until(lambda: not b.devices(), "the end of the devices")
        until(lambda: not os.path.exists(b.folder), "the end of their directory")


@case
def settings_reach_the_model():
    with lab.Lab() as l:
        disk = l.file("disk")
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2, "--isolate", "-v",
                      "--slot", "2=nvme,file=%s,size=2M,serial=s7" % disk)
        box.says("/2: 1af4:10f1 is there")
        check(os.path.getsize(disk) == 2 << 20)
        check(box.stop() == 0, box.errors())
        user = l.start("dxpu-box", "--isolate", "--user", "root")
        check(user.wait(10) == 2 and "--user" in user.errors(), user.errors())


class Managed:
    """A box whose first slot is a disk, at a fake manager; after start() it is the same one."""

    def __init__(self, l, *more):
        self.lab, self.more = l, more
        self.manager, self.link = fm.Manager(), None
        self.start()

    def start(self, *more):
        file = self.lab.file
        self.box = self.lab.start("dxpu-box", "--listen", "127.0.0.1:0", "--manager",
                                  self.manager.address, "--identity", file("box.id"), "--state",
                                  file("box.state"), "-v", *self.more, *more)
        self.link = self.manager.link(fm.BOX, after=self.link)

    def disks(self):
        """Lines of a slot's device that is there."""
        return self.box.errors().count("/1: 1af4:10f1 is there")


@case
def s243_a_managed_disk_is_the_same_over_crashes_and_restarts():
    """What a manager hears of a slot, and of the medium, is that of a box without --isolate, when a
    model ends and when the box does."""
    def told():
        d = m.link.slots[1]
        return d.vendor, d.device, d.cls, d.health, d.data, d.medium, d.model, d.serial
    with lab.Lab(plain=True) as l:
        disk = ("--slot", "1=nvme,file=%s,size=1M" % l.file("disk"))
        m = Managed(l, *disk)
        first = m.link.slots[1]
        check((first.state, first.health) == (fm.WIPED, 1), first)  # made now: lent at once
        was = told()
        m.box.kill()
        m.start("--isolate")
        check(told() == was and m.link.slots[1].state == fm.WIPED, told(), was)
        until(lambda: m.disks() == 1, "the device")
        check(told() == was, told(), was)
        m.link.bind(1, 77, 1, 5)
        folder = m.box.says(r"(/tmp/dxpu-box\.\w+)/1: ").group(1)
        os.kill(devices(folder, 1)[0], signal.SIGKILL)
        until(lambda: m.disks() == 2, "the device again")
        check(told() == was and m.link.slots[1].state == fm.HELD, told(), was)
        check(not [d for d in m.link.alarms if d[0] == 1], m.link.alarms)
        m.box.kill()
        m.start("--isolate")
        check(told() == was, told(), was)
        d = m.link.becomes(1, fm.HELD)
        check((d.epoch, d.peer_node) == (5, 77), d)
        until(lambda: m.disks() == 1, "the device")
        check(m.link.unbind(1, 5) is not None)
        m.link.becomes(1, fm.UNWIPED)  # which the box says, and what to do
        check("without --isolate" in m.box.errors(), m.box.errors())
        check(m.box.stop() == 0, m.box.errors())
        m.manager.close()


@case
def what_keeps_no_data_says_so():
    with lab.Lab(plain=True) as l:
        device = l.start("dxpu-device", "memory", "--socket", l.file("m.sock"))
        device.says("memory at")
        m = Managed(l, "--slots", 5, "--isolate", "--slot", "1=nvme,file=%s,size=1M" %
                    l.file("disk"), "--slot", "3=eptest", "--slot",
                    "4=vfio-user,socket=%s,stateless" % l.file("m.sock"), "--slot",
                    "5=vfio-user,socket=" + l.file("none.sock"))
        slots = m.link.slots
        check([slots[n].data for n in range(1, 6)] == [2, 1, 1, 1, 2], slots)
        check([slots[n].state for n in range(1, 6)] == 4 * [fm.WIPED] + [fm.EMPTY], slots)
        check(slots[5].health == 0 and slots[5].vendor == 0, slots[5])  # not known yet
        check(all(slots[n].health == 1 for n in (1, 2, 3)), slots)
        m.manager.until(lambda: slots[4].health == 1 and slots[4].vendor == 0x1af4, "slot 4")
        m.link.bind(2, 77, 1, 5)
        m.link.unbind(2, 5)
        m.link.becomes(2, fm.WIPED)
        check(m.box.stop() == 0, m.box.errors())
        m.manager.close()


@case
def a_disk_that_does_not_fit_is_not_served():
    """As without --isolate; no process is started for it."""
    with lab.Lab(plain=True) as l:
        disk = "1=nvme,file=%s,size=1M" % l.file("disk")
        m = Managed(l, "--isolate", "--slot", disk)
        until(lambda: m.disks() == 1, "the device")
        m.box.kill()
        with open(l.file("disk.layout"), "a", encoding="ascii") as f:
            f.write("x")
        m.start()
        d = m.link.slots[1]
        check((d.state, d.health) == (fm.EMPTY, 2), d)
        m.manager.until(lambda: [a for a in m.link.alarms if "layout" in a[3]], "an alarm")
        folder = m.box.says(r"(/tmp/dxpu-box\.\w+)/1: no server").group(1)
        check(not devices(folder, 1), m.box.errors())
        check(m.box.stop() == 0, m.box.errors())
        m.manager.close()


@case
def s163_the_layout_of_a_block_device_outlives_a_process():
    with lab.Lab() as l:
        with open(l.file("disk"), "wb") as f:
            f.truncate(4 << 20)
        try:
            made = subprocess.run(["losetup", "-f", "--show", l.file("disk")], capture_output=True,
                                  text=True, check=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return "no loop device can be made"
        loop = made.stdout.strip()
        try:
            for state in ((), ("--state", l.file("state"))):
                box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--isolate", "--device",
                              "nvme", "--file", loop, "-v", *state)
                folder = box.says(r"(/tmp/dxpu-box\.\w+)/1: 1af4:10f1 is there").group(1)
                layout = l.file("state.slot1.layout") if state else folder + "/1.layout"
                with open(layout, "rb") as f:
                    was = f.read()
                check(was.startswith(b"dxpu nvme layout"), was)
                os.kill(devices(folder, 1)[0], signal.SIGKILL)
                until(lambda: box.errors().count("is there") == 2, "the device again")
                with open("/proc/%d/cmdline" % devices(folder, 1)[0], "rb") as f:
                    words = f.read().decode().split("\0")
                check(words[words.index("--layout") + 1] == layout, words)
                with open(layout, "rb") as f:
                    check(f.read() == was)
                check(box.stop() == 0, box.errors())
                check(not os.path.exists(folder), os.listdir(os.path.dirname(folder)))
        finally:
            subprocess.run(["losetup", "-d", loop], check=False, timeout=10)
    return None


def helpers(box):
    """The box's own processes beside it: those that connect and start."""
    exe = os.readlink("/proc/%d/exe" % box.popen.pid)
    with open("/proc/%d/cmdline" % box.popen.pid, "rb") as f:
        line = f.read()
    found = []
    for entry in glob.glob("/proc/[0-9]*"):
        try:
            with open(entry + "/cmdline", "rb") as f:
                same = f.read() == line and os.readlink(entry + "/exe") == exe
        except OSError:
            continue
        if same and int(entry[6:]) != box.popen.pid:
            found.append(int(entry[6:]))
    return found


def remembers(pid, secret):
    """Is it anywhere in the memory that the process may write?"""
    with open("/proc/%d/maps" % pid, encoding="ascii") as maps, \
            open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in maps:
            where, rights = line.split()[:2]
            first, last = (int(x, 16) for x in where.split("-"))
            if not rights.startswith("rw") or last - first > 64 << 20:
                continue
            try:
                memory.seek(first)
                if secret in memory.read(last - first):
                    return True
            except OSError:
                continue  # a guard
    return False


@case
def s243_signals_for_the_box_end_none_of_its_processes():
    """As `pkill dxpu-box` and its like send them to all of that name."""
    with lab.Lab() as l:
        b = Box(l)
        own = helpers(b.box)
        check(len(own) == 3, own)  # one that starts, two that connect
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT,
                       signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            for pid in own:
                os.kill(pid, number)
        os.kill(b.devices(1)[0], signal.SIGKILL)
        until(lambda: b.times(1) == 2, "the device again")
        check(helpers(b.box) == own, own)
        with open("/proc/%d/stat" % b.devices(1)[0], encoding="ascii") as f:
            starter = int(f.read().rsplit(")", 1)[1].split()[1])
        check(starter in own, starter, own)
        os.kill(starter, signal.SIGKILL)
        b.box.says("process that starts devices is gone")
        check(b.box.stop() == 0, b.box.errors())


@case
def s122_no_secret_is_in_processes_that_connect():
    if os.getuid():
        return "reads memory of other processes: for root"
    with lab.Lab() as l:
        b = Box(l)
        with open(l.file("box.key"), encoding="ascii") as f:
            text = [word for word in f.read().split() if len(word) == 44][0]
        secret = base64.b64decode(text)
        check(remembers(b.box.popen.pid, secret), "the control: the box has its key")
        for pid in helpers(b.box):
            check(not remembers(pid, secret) and not remembers(pid, text.encode()), pid)
        check(b.box.stop() == 0, b.box.errors())
    return None


if __name__ == "__main__":
    sys.exit(main())
