#!/usr/bin/env python3
"""dxpu-box --isolate: what a model's process does touches no other slot, and none outlives the box.

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import glob
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402

LOAD = ("--load", "mixed", "--size", 256, "--depth", 8, "--span", "64K", "--json")


class Box:
    def __init__(self, l, *more):
        self.lab = l
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2, "--isolate", "-v",
                           "--json", *more)
        self.to = self.box.address()
        self.folder = self.box.says(r"(/tmp/dxpu-box\.\w+)/1: .* is there").group(1)
        self.box.says(self.folder + "/2: .* is there")

    def devices(self, slot=""):
        """The processes that serve a slot's device, or any."""
        found = []
        for file in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(file, "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(w.startswith("%s/%s" % (self.folder, slot)) for w in words):
                found.append(int(file.split("/")[2]))
        return found

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
        stuck = b.host(1, 1, "--seconds", 60, "--give-up-ms", 500)
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


if __name__ == "__main__":
    sys.exit(main())
