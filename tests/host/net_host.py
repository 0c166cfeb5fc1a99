#!/usr/bin/env python3
"""dxpu-host and a guest that writes on while its device is lost.

The guest is vfio_client.py, no virtual machine: it fills a slot's window with posted writes
while the box keeps silent or dies.  Prints `ok NAME` or `not ok NAME` for each case.  Programs come
from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import BASE, DEVICE, ECAM, HANG, PORT, WINDOW  # noqa: E402

QUEUE = 512  # of a slot's TLPs that wait, from which on the host does not read the guest
CHANNEL = 512  # posted TLPs that the channel takes besides: eight for each frame of its window
CROSSING = 512  # those between the keeper and the worker
WRITES = QUEUE + CROSSING + CHANNEL + 64  # the socket holds the rest


def flood(l, end):
    """A guest writes on while its device's box says nothing any more, and then `end`(box)."""
    box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--json")
    path = l.file("vm")
    host = l.start("dxpu-host", "--vfio-user", path, "--slots", 2, "--topology", "root-ports",
                   "--attach", "1=%s/1" % box.address(), "--json")
    host.says("waiting for a guest")
    guest = vfio_client.Client(path)
    guest.map_slot()
    guest.filled()
    box.popen.send_signal(signal.SIGSTOP)
    for i in range(WRITES):
        guest.write(WINDOW, BASE + i * 64, bytes(64), posted=True)
    end(box)
    identity = guest.read32(ECAM, PORT)
    check(identity & 0xffff != 0xffff, "the port reads as", hex(identity))
    return box, host, guest


@case
def guest_is_read_again_after_its_device_is_lost():
    with lab.Lab() as l:
        _, host, guest = flood(l, lambda box: host_says_lost(l))
        check(guest.read32(ECAM, DEVICE) == 0xffffffff, "the device is gone")
        for _ in range(WRITES):  # they go nowhere, and do no harm
            guest.write(WINDOW, BASE, bytes(64), posted=True)
        check(guest.read32(ECAM, PORT) & 0xffff != 0xffff)
        check(host.stop() == 0, host.errors())
        slot = host.result()["slot_1"]  # some waited at the keeper, others at its worker
        check(slot["dropped"] + slot["too_late"] >= QUEUE, slot)


def host_says_lost(l):
    next(p for p in l.processes if p.name == "dxpu-host").says("channel lost", HANG)


@case
def guest_is_read_again_when_the_box_goes_on():
    with lab.Lab() as l:
        box, host, guest = flood(l, lambda box: box.popen.send_signal(signal.SIGCONT))
        check(guest.read32(ECAM, DEVICE) != 0xffffffff, "the device answers behind the writes")
        check(host.stop() == 0, host.errors())
        there = host.result()["slot_1"]
        check(there["dropped"] == 0 and there["down_tlps"] >= WRITES, there)
        check(box.stop() == 0, box.errors())


@case
def statistics_when_asked_for():
    """250 lines of a guest are printed with --stats or --json alone, not after a failed start."""
    with lab.Lab() as l:
        for options, printed, shown in (((), False, False), (("--stats",), False, True),
                                        (("--json",), True, False)):
            host = l.start("dxpu-host", "--vfio-user", l.file("vm"), "--slots", 1, *options)
            host.says("waiting for a guest")
            check(host.stop() == 0, host.errors())
            check(bool(host.output()) == printed, options, host.output())
            check(("\n  waits " in host.errors()) == shown, options, host.errors())
        wrong = l.run("dxpu-host", "--vfio-user", l.file("none/vm"))
        check(wrong.status != 0 and not wrong.output(), wrong.output())


@case
def loss_is_said_with_both_slots():
    """The guest's slot and the box's have a number each."""
    with lab.Lab() as l:
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2)
        host = l.start("dxpu-host", "--vfio-user", l.file("vm"), "--slots", 1, "--attach",
                       "1=%s/2" % box.address())
        host.says("is attached")
        box.kill()
        host.says(r"slot 1 \(box %s, slot 2\): channel lost" % re.escape(box.address()))
        host.stop()


if __name__ == "__main__":
    sys.exit(main())
