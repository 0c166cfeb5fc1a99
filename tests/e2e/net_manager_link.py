#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/san/%)
"""dxpu-box and dxpu-host with a manager: a fake one (fake_manager.py) asks, and looks at what they
report.  The host waits for a virtual machine that does not come; channels carry TLPs all the same.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, sanitized  # noqa: E402
PLAIN = os.environ.get("DXPU_BIN", os.path.join(rooms.ROOT, "build"))
sanitized()
import fake_manager as fm  # noqa: E402
from fake_manager import (BOX, CLOSING, DIALING, EMPTY, HELD, HOST, KEPT, UNWIPED, UP,  # noqa: E402
                          WIPED, WIPING)
import lab  # noqa: E402
import net_control as by_hand  # noqa: E402

V4 = "127.0.0.1:0"
BUSY, NO_DEVICE, EPOCH, ROLE, DRAINED, STATE = 7, 9, 10, 12, 21, 22
GOOD, BROKEN = 1, 2
STORAGE, FENCED = 2, 3
MIB = 1 << 20


def program(name, again):
    """again: without sanitizers, which starts sooner, for what others of its kind do with them."""
    return (os.path.join(PLAIN, name), "--plain") if again else (name,)


def start_box(l, manager, *args, name="box", listen=V4, again=False):
    process = l.start(*program("dxpu-box", again), "--listen", listen, "--control", ":0", "--json",
                      "--manager", manager.address, "--identity", l.file(name + ".id"), "--state",
                      l.file(name + ".state"), "--name", name, *args)
    return by_hand.Proxy(process)


def start_host(l, manager, *args, name="host"):
    process = l.start("dxpu-host", "--vfio-user", l.file("vm%d" % len(l.processes)), "--listen", V4,
                      "--control", ":0", "--json", "--manager", manager.address, "--identity",
                      l.file(name + ".id"), "--name", name, *args)
    return by_hand.Proxy(process)


def dxpu(l, verb, *args, status=0):
    """The object that the command prints; sanitized once for each verb and exit status."""
    again = (verb, status) in ordered
    ordered.add((verb, status))
    done = l.run(program("dxpu", again)[0], verb, "--json", "--plain", *args)
    check(done.status == status, verb, args, "ended with", done.status, done.output(),
          done.errors())
    return done.result()


ordered = set()


def reported(l, proxy, slot):
    """What `dxpu status` shows of it."""
    return dxpu(l, "status", proxy.control, slot)["slots"][0]


def refused(code, ask, *args):
    try:
        ask(*args)
    except fm.Refused as why:
        check(why.args[0] == code and len(why.args[1]) > 10, why)
        return
    raise AssertionError("was not refused")


def lend(box, host, epoch, slot=1, port=1):
    """Bind and attach, until both ends say that the channel is up."""
    check(box.bind(slot, host.node, port, epoch) == (HELD, epoch))
    host.attach(port, box, slot, epoch)
    there, here = box.becomes(slot, UP), host.becomes(port, UP)
    check(there.epoch == here.epoch == epoch, there, here)
    check((there.peer_node, there.peer_slot) == (host.node, port), there)
    return there, here


def disk(l, name, bytes_):
    with open(l.file(name), "wb") as f:
        f.truncate(bytes_)
    return l.file(name)


def plant(path, at, data=b"a tenant's secret"):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def has(path, data=b"a tenant's secret"):
    with open(path, "rb") as f:
        while True:
            part = f.read(MIB)
            if not part:
                return False
            if data in part:
                return True


# ---- Cases ----

@case
def registration_and_node_numbers():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = start_box(l, m, "--slots", 5, "--group-slots", 2, "--model", "small disk", "--device",
                        "nvme", "--memory", "1M")
        b = m.link(BOX)
        check(b.program.startswith("dxpu-box ") and b.name == "box" and b.total == 5, b.program)
        check(b.registers[0] == 5 and b.said_node == 0 and b.instance, b.registers)
        check(b.paths == [box.process.address()], b.paths)  # M-48
        check([d.group for d in b.slots.values()] == [1, 1, 2, 2, 3], b.slots)
        check({(d.vendor, d.device, d.cls, d.model, d.state, d.health, d.epoch, d.seen)
               for d in b.slots.values()} ==
              {(0x1af4, 0x10f1, 0x010802, "small disk", WIPED, GOOD, 0, 0)}, b.slots)
        serials = [d.serial for d in b.slots.values()]
        check(len(set(serials)) == 5 and all(s.startswith("DXPU") for s in serials), serials)
        start_host(l, m, "--slots", 3)
        h = m.link(HOST)
        check(h.program.startswith("dxpu-host ") and h.total == 3 and h.paths == [], h.program)
        check([d.state for d in h.slots.values()] == [EMPTY] * 3 and h.node == b.node + 1)
        with open(l.file("box.id")) as f:
            line = f.read()
        check(bytes.fromhex(line) == b.identity and len(line) == 33, line)
        check(stat.S_IMODE(os.stat(l.file("box.id")).st_mode) == 0o600)
        box.process.kill()  # M-68: another process, and the same proxy
        box = start_box(l, m, "--slots", 5, "--device", "nvme", "--memory", "1M")
        again = m.link(BOX, b)
        check(again.identity == b.identity and again.instance != b.instance, again.identity)
        check(again.node == b.node and again.slots[1].model == "nvme")
        check([d.serial for d in again.slots.values()] == serials)
        m.until(lambda: b"node %d of" % b.node in box.process.errors().encode(), "the number")
        check(dxpu(l, "status", box.control)["node"] == b.node)
        box.process.stop()
        other = start_box(l, m, name="other")
        o = m.link(BOX, again)
        check(o.node == h.node + 1 and o.slots[1].serial not in serials)
        check(other.process.stop() == 0)


@case
def addresses_for_hosts():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--advertise", "192.0.2.1:4458,[2001:db8::1]:4458", name="one")
        one = m.link(BOX)
        check(one.paths == ["192.0.2.1:4458", "2001:db8::1:4458"], one.paths)
        start_box(l, m, "--plain", "--plain-network", name="two", listen="0.0.0.0:0")
        two = m.link(BOX, one)
        check(len(two.paths) == 1 and two.paths[0].startswith("127.0.0.1:"), two.paths)
        check(not two.paths[0].endswith(":0"), two.paths)


@case
def many_slots_take_several_registers():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--slots", 700, "--memory", 4096)
        b = m.link(BOX)
        check(sorted(b.slots) == list(range(1, 701)) and len(b.registers) > 1, b.registers)
        check(sum(b.registers) == 700, b.registers)


@case
def bind_attach_detach_unbind():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--slots", 2, "--memory", 4096)
        b = m.link(BOX)
        start_host(l, m)
        h = m.link(HOST)
        before = b.registers[:]
        lend(b, h, 5)
        check(b.bind(1, h.node, 1, 5) == (UP, 5))  # M-54
        check(h.attach(1, b, 1, 5)[1] == 5)
        check(all(n == 1 for n in b.registers[len(before):]), b.registers)  # M-53
        m.until(lambda: b.changes >= 2, "changes in heartbeats")
        check(h.slots[1].peer_slot == 1 and h.slots[1].code == 0, h.slots[1])
        check(b.slots[2].state == WIPED)
        check(h.detach(1, 5)[0] in (CLOSING, EMPTY))
        h.becomes(1, EMPTY)
        held = b.becomes(1, HELD)  # M-55: only the manager ends a lease
        check(held.epoch == held.seen == 5 and held.peer_node == h.node, held)
        h.attach(1, b, 1, 5)
        h.becomes(1, UP)
        check(b.unbind(1, 5)[0] in (WIPING, WIPED))
        wiped = b.becomes(1, WIPED)
        check(wiped.epoch == 0 and wiped.seen == 5, wiped)
        h.becomes(1, DIALING)  # its lease is over
        h.detach(1)
        for ask in ((1, h.node, 1, 5), (1, h.node, 1, 4)):
            refused(EPOCH, b.bind, *ask)  # M-60
        check(b.unbind(1, 5) == (WIPED, 0))  # M-54
        check(b.unbind(1, 6)[0] in (WIPING, WIPED))  # it never learned of it
        m.until(lambda: (b.slots[1].seen, b.slots[1].state) == (6, WIPED), "that it knows it now")
        check(b.unbind(1, 6) == (WIPED, 0))
        refused(EPOCH, b.unbind, 1, 5)  # M-63
        lend(b, h, 7)
        check(b.unbind(1, 9)[0] in (WIPING, WIPED))  # M-63: nor of that one, which is above
        h.becomes(1, DIALING)
        m.until(lambda: b.slots[1].seen == 9, "that it is over")
        h.detach(1)
        refused(EPOCH, b.bind, 1, h.node, 1, 8)


@case
def no_other_host_gets_in():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--memory", 4096)
        b = m.link(BOX)
        start_host(l, m)
        h = m.link(HOST)
        lend(b, h, 8)
        # M-55: an old epoch, the epoch with another node, a higher epoch that was never given
        for node, epoch in ((h.node, 7), (h.node + 50, 8), (h.node, 9)):
            other = l.run("dxpu-host", "--box", b.paths[0], "--node", node, "--epoch", epoch,
                          "--load", "read", "--count", 1, "--give-up-ms", 1000)
            check(other.status == 4 and "epoch is old" in other.errors(), other.errors())
            m.until(lambda: b.alarms and b.alarms[-1][:3] == (1, FENCED, 8) and
                    "node %d " % node in b.alarms[-1][3] and
                    "epoch %d," % epoch in b.alarms[-1][3], "an alarm")  # M-69
        check(len(b.alarms) == 3, b.alarms)  # though each asked several times
        check(b.slots[1].state == UP and h.slots[1].state == UP)
        h.detach(1)
        h.becomes(1, EMPTY)
        good = l.run("dxpu-host", "--box", b.paths[0], "--node", h.node, "--epoch", 8,
                     "--load", "read", "--count", 1)
        check(good.status == 0, good.errors())  # the same way in, with the lease


@case
def higher_bind_ends_the_older_lease():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--memory", 4096)
        b = m.link(BOX)
        start_host(l, m, name="one")
        one = m.link(HOST)
        start_host(l, m, name="two")
        two = m.link(HOST, one)
        lend(b, one, 3)
        check(b.bind(1, two.node, 2, 4) == (HELD, 4))  # M-60
        two.attach(2, b, 1, 4)
        two.becomes(2, UP)
        one.becomes(1, DIALING)
        check(b.becomes(1, UP).peer_node == two.node)


@case
def unbind_wipes_or_keeps():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        disks = [disk(l, "disk" + end, 24 * MIB + 4096) for end in ("", ".2")]
        start_box(l, m, "--slots", 2, "--device", "nvme", "--file", disks[0])
        b = m.link(BOX)
        start_host(l, m)
        h = m.link(HOST)
        for slot in (1, 2):
            lend(b, h, 20 + slot, slot, slot)
        for path in disks:
            for at in (0, 9 * MIB - 5, 24 * MIB + 4000):
                plant(path, at)
            check(has(path))
        check(b.unbind(1, 21)[0] == WIPING)
        check(b.unbind(2, 22, keep=True) == (KEPT, 0))  # the control: what was not to be wiped
        b.becomes(1, WIPED)
        check(not has(disks[0]) and os.path.getsize(disks[0]) == 24 * MIB + 4096)  # M-65
        check(has(disks[1]))
        check(b.unbind(2, 22, keep=True) == (KEPT, 0))  # M-54
        check(b.bind(2, h.node, 2, 23) == (HELD, 23) and has(disks[1]))  # a parked lease is back
        check(b.unbind(2, 23)[0] == WIPING)
        b.becomes(2, WIPED)
        check(not has(disks[1]))
        check(b.unbind(2, 23, keep=True) == (WIPED, 0))  # M-64: nothing is left to keep


@case
def wipe_that_does_not_verify():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", 8 * MIB)
        start_box(l, m, "--device", "nvme", "--file", path)
        b = m.link(BOX)
        b.bind(1, 77, 1, 4)
        os.truncate(path, 3 * MIB)  # blocks are gone: reading them back fails
        b.unbind(1, 4)
        bad = b.becomes(1, UNWIPED)  # M-65
        check(bad.health == BROKEN and bad.epoch == 0, bad)
        m.until(lambda: {a[1] for a in b.alarms} == {STORAGE}, "alarms")
        refused(BUSY, b.bind, 1, 77, 1, 5)  # M-62
        os.truncate(path, 8 * MIB)
        check(b.unbind(1, 4)[0] == WIPING)  # again
        check(b.becomes(1, WIPED).health == GOOD, b.slots[1])
        b.bind(1, 77, 1, 5)


@case
def wipe_survives_a_kill():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", 256 * MIB)
        plant(path, 256 * MIB - 100)
        box = start_box(l, m, "--device", "nvme", "--file", path)
        b = m.link(BOX)
        b.bind(1, 77, 1, 4)
        check(b.unbind(1, 4)[0] == WIPING)
        refused(BUSY, b.bind, 1, 77, 1, 5)  # M-62
        refused(BUSY, b.reset, 1, 0)
        box.process.kill()
        check(b.history[-1] == (1, WIPING), b.history)
        with open(l.file("box.state")) as f:
            check(re.fullmatch("1 4 77 1 wiping [0-9a-f]{16}\n", f.read()))
        box = start_box(l, m, "--device", "nvme", "--file", path)
        again = m.link(BOX, b)
        check(again.history[0] == (1, WIPING), again.history)
        refused(BUSY, again.reset, 1, 0)
        check(again.unbind(1, 4, keep=True) == (WIPING, 0))  # M-64
        check(again.unbind(1, 4)[0] == WIPING)  # M-105
        again.becomes(1, WIPED)
        with open(path, "rb") as f:
            f.seek(256 * MIB - 100)
            check(f.read() == bytes(100))
        check(box.process.stop() == 0)


@case
def old_copy_of_the_state_file_wipes_nothing():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", 64 * MIB)
        box = start_box(l, m, "--device", "nvme", "--file", path)
        b = m.link(BOX)
        b.bind(1, 77, 1, 4)
        check(b.unbind(1, 4, keep=True) == (KEPT, 0))
        with open(l.file("box.state")) as f:
            copy = f.read().replace("kept", "wiping")
        for last in ("bind", "keep", "wipe"):
            box.process.kill()
            plant(path, 4096)  # of a later lease, of which that copy does not know
            with open(l.file("box.state"), "w") as f:
                f.write(copy)
            box = start_box(l, m, "--device", "nvme", "--file", path, again=last != "bind")
            b = m.link(BOX, b)
            check(b.slots[1].state == WIPING and b.slots[1].seen == 4, b.slots)
            if last == "bind":  # M-105
                refused(EPOCH, b.bind, 1, 77, 1, 4)
                check(b.bind(1, 77, 1, 9) == (HELD, 9))
                check(b.unbind(1, 9, keep=True) == (KEPT, 0) and has(path))
            elif last == "keep":
                check(b.unbind(1, 9, keep=True) == (WIPING, 0) and has(path))  # M-64
            else:
                check(b.unbind(1, 9)[0] == WIPING)  # the control: who orders it
                b.becomes(1, WIPED)
                check(not has(path))


def swapped(l, m, b, box, *args, again=False):
    """The box once more, with other arguments; what it registers."""
    box.process.kill()
    box = start_box(l, m, "--device", "nvme", *args, again=again)
    return m.link(BOX, b), box


@case
def slot_without_a_record_is_wiped_only_when_it_can_have_no_data():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        old = disk(l, "old", MIB)
        plant(old, 4096)
        box = start_box(l, m, "--device", "nvme", "--file", old)
        b = m.link(BOX)
        check(b.slots[1].state == EMPTY and b.slots[1].health == GOOD, b.slots)  # M-67
        b.bind(1, 77, 1, 4)
        box.process.kill()
        os.unlink(l.file("box.state"))  # the box is installed again
        box = start_box(l, m, "--device", "nvme", "--file", old)
        b = m.link(BOX, b)
        check(b.slots[1].state == EMPTY and has(old), b.slots)
        check(b.unbind(1, 5)[0] == WIPING)  # what repair asks for
        b.becomes(1, WIPED)
        check(not has(old))
        # The controls: files of this start, a file of nothing, memory, the other kinds, a file that
        # no host can write.
        image = disk(l, "image", MIB)
        plant(image, 4096)
        open(l.file("none"), "w").close()
        for number, args in enumerate((
                ("nvme", "--file", l.file("new"), "--size", "1M", "--slots", 2),
                ("nvme", "--file", l.file("none"), "--size", "1M"),
                ("nvme", "--memory", "1M"), ("memory", "--memory", 4096), ("vga",), ("eptest",),
                ("virtio-gpu",),
                ("virtio-blk", "--file", l.file("vd"), "--size", "1M"),
                ("virtio-blk", "--file", image, "--read-only"))):
            one = start_box(l, m, "--device", *args, name="box%d" % number)
            b = m.link(BOX, b)
            check({d.state for d in b.slots.values()} == {WIPED}, args, b.slots)
            if number == 0:  # and the same ones are wiped at the next start as well
                one.process.kill()
                one = start_box(l, m, "--device", *args, name="box0", again=True)
                b = m.link(BOX, b)
                check({d.state for d in b.slots.values()} == {WIPED}, args, b.slots)
        two = l.file("new") + "," + old  # one of two namespaces has something in it
        os.unlink(l.file("new"))
        for process in l.processes:
            if process.popen.poll() is None:
                process.kill()
        start_box(l, m, "--device", "nvme", "--file", two, "--size", "1M", name="two")
        check(m.link(BOX, b).slots[1].state == EMPTY)


@case
def m155_models_and_attributes_of_each_kind():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--slots", 6, "--slot", "1=virtio-gpu,attribute=rack=7,attribute=row=b",
                  "--slot", "2=virtio-blk,size=1536K,block=4096", "--slot",
                  "3=nvme,size=1M,namespaces=2,model=disk", "--slot", "4=memory", "--slot",
                  "5=virtio-blk,size=1M,model=virtio-blk", "--isolate")
        apart = {n: (d.model, d.attributes) for n, d in m.link(BOX).slots.items()}
        check(apart == {1: ("gpu", "rack=7,row=b"), 2: ("blk", ""), 3: ("disk", ""),
                        4: ("memory", ""), 5: ("virtio-blk", ""), 6: ("memory", "")}, apart)
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--slots", 5, "--slot", "1=virtio-gpu,attribute=rack=7,attribute=row=b",
                  "--slot", "2=virtio-blk,size=1536K,block=4096", "--slot",
                  "3=nvme,size=1M,namespaces=2,model=disk", "--slot", "4=memory", "--slot",
                  "5=virtio-blk,size=4097K")
        found = {n: (d.model, d.attributes, d.data) for n, d in m.link(BOX).slots.items()}
        check(found == {1: ("gpu", "render=none,rack=7,row=b", 1),
                        2: ("blk", "size=1536K,block=4096", 2), 3: ("disk", "size=2M", 2),
                        4: ("memory", "", 1), 5: ("blk", "size=4097K,block=512", 2)}, found)


@case
def another_file_is_not_what_was_wiped_or_lent():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        one, two = disk(l, "one", 2 * MIB), disk(l, "two", 2 * MIB)
        for path in (one, two):
            plant(path, 4096)
        box = start_box(l, m, "--device", "nvme", "--file", one)
        b = m.link(BOX)
        b.unbind(1, 3)
        b.becomes(1, WIPED)
        b, box = swapped(l, m, b, box, "--file", one, again=True)
        check(b.slots[1].state == WIPED)  # the control: the same one
        b, box = swapped(l, m, b, box, "--file", two)
        check((b.slots[1].state, b.slots[1].health) == (EMPTY, GOOD) and has(two), b.slots)  # M-67
        check("was wiped" in box.process.errors())
        b, box = swapped(l, m, b, box, "--file", one, "--size", "3M")  # more than what was wiped
        check(b.slots[1].state == EMPTY, b.slots)
        b.bind(1, 77, 1, 5)
        with open(l.file("box.state")) as f:
            lines = {HELD: f.read()}
        for state in (HELD, KEPT, WIPING):
            if state == KEPT:
                check(b.unbind(1, 5, keep=True) == (KEPT, 0))
            elif state == WIPING:
                box.process.kill()
                with open(l.file("box.state")) as f:
                    line = f.read().replace("kept", "wiping")
                with open(l.file("box.state"), "w") as f:
                    f.write(line)
            with open(l.file("box.state")) as f:
                lines[state] = f.read()
            for again in (False, True):  # the file goes on to say whose it is
                b, box = swapped(l, m, b, box, "--file", two, again=again)
                check((b.slots[1].state, b.slots[1].health, b.slots[1].epoch) ==
                      (EMPTY, BROKEN, 0), state, b.slots)
                m.until(lambda: b.alarms and b.alarms[0][:2] == (1, STORAGE), "an alarm")
                check("dxpu repair" in box.process.errors() and has(two))
                with open(l.file("box.state")) as f:
                    check(f.read() == lines[state], state)
            b, box = swapped(l, m, b, box, "--file", one, "--size", "3M", again=True)  # the control
            check(b.slots[1].health == GOOD, b.slots)
            if state == WIPING:
                check(b.unbind(1, 5)[0] == WIPING)
                b.becomes(1, WIPED)
            else:
                check(b.slots[1].state == state, b.slots)
        b, box = swapped(l, m, b, box, "--file", two, again=True)
        check(b.slots[1].state == EMPTY)
        check(b.unbind(1, 5)[0] == WIPING)
        check(b.becomes(1, WIPED).health == GOOD and not has(two))


@case
def m25_leases_and_media_of_devices_that_come_and_go():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        one, two = disk(l, "one", MIB), disk(l, "two", MIB)
        for path in (one, two):
            plant(path, 4096)
        box = start_box(l, m, "--device", "nvme", "--file", one, "--hot-plug")
        b = m.link(BOX)

        def plug(path, *how):
            dxpu(l, "plug", *how, box.control, 1, "nvme,model=x,file=" + path)

        def unplug(*how, status=0):
            dxpu(l, "unplug", *how, box.control, 1, status=status)

        def health(want):
            m.until(lambda: b.slots[1].health == want, "health %d" % want)
            return b.slots[1]

        b.unbind(1, 3)
        b.becomes(1, WIPED)
        refused(ROLE, b.request, 0x16, struct.pack(">HBBB", 1, 2, 1, 0))  # S-248
        unplug()
        check(health(0).model == "none")
        refused(NO_DEVICE, b.bind, 1, 77, 1, 4)
        plug(two)
        check(health(GOOD).state == EMPTY and b.slots[1].model == "x" and has(two), b.slots)
        plug(one, "--replace")  # the record is of the other one by now: nothing says it was wiped
        check(b.becomes(1, EMPTY).health == GOOD)
        b.unbind(1, 5)
        b.becomes(1, WIPED)
        b.bind(1, 77, 1, 6)
        plant(one, 4096)
        unplug(status=1)  # it is lent
        for phase in (HELD, KEPT):
            unplug("--force")
            check(health(0).state == phase, b.slots)
            plug(two)
            check((health(BROKEN).state, b.slots[1].epoch) == (EMPTY, 0), b.slots)
            refused(BUSY, b.unbind, 1, 6, True)  # what is here is not what is to be kept
            unplug()
            plug(one)  # the control: the lease's own
            check(health(GOOD).state == phase, b.slots)
            check(b.unbind(1, 6, keep=True) == (KEPT, 0))
        unplug("--force")
        health(0)
        check(b.unbind(1, 6)[0] == WIPING)  # of what is not there
        b.becomes(1, UNWIPED)
        check(has(one))
        plug(two)
        check(health(BROKEN).state == EMPTY and has(two))
        b.unbind(1, 7)  # a wipe that waits for its manager after a restart, on another medium
        b.becomes(1, WIPED)
        box.process.kill()
        with open(l.file("box.state")) as f:
            line = f.read().replace("wiped", "wiping")
        with open(l.file("box.state"), "w") as f:
            f.write(line)
        plant(two, 4096)
        box = start_box(l, m, "--device", "nvme", "--file", one, "--hot-plug")
        b = m.link(BOX, b)
        check(b.slots[1].health == BROKEN, b.slots)
        unplug()
        health(0)
        plug(two)
        check(b.becomes(1, WIPING).health == GOOD and has(two))
        unplug(status=1)
        b.unbind(1, 7)
        b.becomes(1, WIPED)
        check(not has(two))
        box.process.kill()
        box = start_box(l, m, "--device", "nvme", "--file", one)  # which is not taken for wiped
        check(m.link(BOX, b).slots[1].state == EMPTY and has(one))


@case
def m25_a_medium_that_is_out_is_not_taken_for_wiped():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        one = disk(l, "one", MIB)
        where = ("--slots", 2, "--slot", "1=none", "--slot", "2=none", "--hot-plug")
        box = start_box(l, m, *where)
        b = m.link(BOX)

        def plug(slot, status=0):
            return dxpu(l, "plug", box.control, slot, "nvme,file=" + one, status=status)

        def unplug(slot, *how, status=0):
            return dxpu(l, "unplug", *how, box.control, slot, status=status)

        def restart():
            box.process.kill()
            return start_box(l, m, *where), m.link(BOX, b)

        def wiped(slot, epoch):
            b.unbind(slot, epoch)
            b.becomes(slot, WIPED)

        plug(1)
        wiped(1, 3)
        b.bind(1, 77, 1, 4)
        plant(one, 4096)
        for phase in (HELD, KEPT):  # a restart: no configuration names what was plugged in
            box, b = restart()
            check((b.slots[1].state, b.slots[1].data) == (phase, 2), b.slots)  # M-103
            check(b.unbind(1, 4, keep=True) == (KEPT, 0))
        answer = plug(2, status=1)  # its data are slot 1's tenant's
        check(answer["error"] == "busy" and "another slot" in box.process.errors(), answer)
        check(b.slots[2].model == "none")
        check(b.unbind(1, 4)[0] == WIPING)
        b.becomes(1, UNWIPED)
        check(has(one))
        box, b = restart()
        check(b.slots[1].state == UNWIPED, b.slots)
        plug(2, status=1)
        plug(1)
        refused(BUSY, b.bind, 1, 77, 1, 5)
        wiped(1, 5)
        check(not has(one))
        unplug(1)  # nothing says any more what becomes of it
        check(b.becomes(1, EMPTY).model == "none")
        with open(l.file("box.state")) as f:
            check(" wiped" not in f.read().splitlines()[0])
        plug(2)
        wiped(2, 6)
        b.bind(2, 78, 1, 7)
        plant(one, 4096)
        unplug(2, "--force")
        plug(1, status=1)
        check(b.unbind(2, 7)[0] == WIPING)
        b.becomes(2, UNWIPED)
        plug(2)
        wiped(2, 8)
        # a record that cannot be written: the device stays, and one that comes is not served
        state = l.file("box.state")
        os.mkdir(state + ".new")
        check(unplug(2, status=1)["error"] == "state")
        check(b.slots[2].state == WIPED and b.slots[2].model != "none", b.slots)
        os.rmdir(state + ".new")
        unplug(2)
        b.becomes(2, EMPTY)
        os.mkdir(state + ".new")
        check(plug(1, status=1)["error"] == "state")
        os.rmdir(state + ".new")
        m.until(lambda: b.slots[1].model == "none", "it is out again")
        plant(one, 4096)  # its owner's
        plug(1)
        check(b.becomes(1, EMPTY).health == GOOD and has(one))


@case
def m25_a_disk_with_data_of_a_tenant_is_shown_to_no_other():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        writer = "virtio-blk,file=" + disk(l, "one", MIB)
        reader = writer + ",read-only"

        def start(first, second, *args, again=False):
            box = start_box(l, m, "--slots", 2, "--slot", "1=" + first, "--slot", "2=" + second,
                            *args, again=again)
            return box, m.link(BOX, b)

        b = None
        box, b = start(writer, "none", "--hot-plug")
        b.unbind(1, 1)
        b.becomes(1, WIPED)
        b.bind(1, 77, 1, 2)
        plant(l.file("one"), 4096)
        dxpu(l, "unplug", "--force", box.control, 1)
        check(dxpu(l, "plug", box.control, 2, reader, status=1)["error"] == "busy")
        for args in ((), ("--isolate",)):
            box.process.kill()
            box, b = start("memory", reader, *args)
            check(b.slots[2].state == EMPTY, b.slots)
            refused(BUSY, b.bind, 2, 78, 1, 2)
            check("another slot's tenant" in box.process.errors())
            box.process.kill()
            box, b = start(reader, "memory", *args)  # its tenant's own
            check((b.slots[1].state, b.slots[1].epoch) == (HELD, 2), b.slots)
        check(b.unbind(1, 2)[0] == WIPING)
        b.becomes(1, UNWIPED)
        for again in (False, True):  # a start without the file does not forget whose data it has
            box.process.kill()
            box, b = start("memory", reader, again=again)
            check([b.slots[n].state for n in (1, 2)] == [EMPTY, EMPTY], b.slots)
            refused(BUSY, b.bind, 2, 78, 1, 2)
        box.process.kill()
        box, b = start(writer, "memory")
        check(b.unbind(1, 2)[0] == WIPING)
        b.becomes(1, WIPED)
        check(not has(l.file("one")))
        box.process.kill()
        box, b = start("memory", reader, again=True)
        check(b.slots[2].state == WIPED, b.slots)


@case
def s249_data_of_a_subsystem_are_erased_with_its_last_lease():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        image = disk(l, "image", MIB)
        slots = [x for n in (1, 2, 3)
                 for x in ("--slot", "%d=nvme,subsystem=a,file=%s" % (n, image))]
        box, host = start_box(l, m, "--slots", 3, *slots), start_host(l, m)
        b, h = m.link(BOX), m.link(HOST)
        check({(d.state, d.medium) for d in b.slots.values()} == {(EMPTY, b.slots[1].medium)} and
              "subsystem=a" in b.slots[3].attributes, b.slots)
        for n in (1, 2, 3):  # whose data these are is not known: repair erases them
            b.unbind(n, 1)
            b.becomes(n, WIPED)
        plant(image, 4096)
        lend(b, h, 10, 1, 1)
        lend(b, h, 11, 2, 2)
        h.detach(1)
        b.unbind(1, 10)
        b.becomes(1, WIPED)
        check(has(image) and b.slots[2].state == UP, b.slots)  # the other lease goes on
        lend(b, h, 12, 3, 3)
        h.detach(2)
        check(b.unbind(2, 11, keep=True)[0] == KEPT)
        h.detach(3)
        b.unbind(3, 12)
        b.becomes(3, WIPED)
        check(has(image))  # its data are kept
        check(b.unbind(2, 11)[0] == WIPING)
        b.becomes(2, WIPED)
        check(not has(image))  # it was the last
        # a wipe that a start finds undone leaves its data to a lease that goes on meanwhile (M-77)
        lend(b, h, 20, 1, 1)
        h.detach(1)
        box.process.kill()
        with open(l.file("box.state")) as f:
            line = f.read().replace("held", "unwiped")
        with open(l.file("box.state"), "w") as f:
            f.write(line)
        box = start_box(l, m, "--slots", 3, *slots)
        b = m.link(BOX, b)
        check(b.slots[1].state == UNWIPED, b.slots)
        plant(image, 4096)
        check(b.bind(2, 77, 1, 21) == (HELD, 21))
        check(b.unbind(1, 20)[0] == WIPING)
        b.becomes(1, WIPED)
        check(has(image))


@case
def s250_the_end_of_a_lease_erases_its_function_alone():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        images = [disk(l, "image%d" % n, MIB) for n in (1, 2, 3)]
        slots = ["--slot", "1=nvme,file=" + images[0]]
        for n in (2, 3):
            slots += ["--slot", "%d=function,of=1,file=%s" % (n, images[n - 1])]
        box, host = start_box(l, m, "--slots", 3, *slots), start_host(l, m)
        b, h = m.link(BOX), m.link(HOST)
        check([d.attributes for d in b.slots.values()] ==
              ["size=1M,function=0", "size=1M,function=1,of=1", "size=1M,function=2,of=1"], b.slots)
        check(len({d.serial for d in b.slots.values()}) == 1)  # one device,
        check(len({d.medium for d in b.slots.values()}) == 3)  # with a medium for each function
        for n in (1, 2, 3):
            b.unbind(n, 1)
            b.becomes(n, WIPED)
        for n in (1, 2, 3):
            plant(images[n - 1], 4096)
            lend(b, h, 10 + n, n, n)
        for n, left in ((2, (1, 3)), (1, (3,)), (3, ())):  # function 0 goes before another one
            h.detach(n)
            b.unbind(n, 10 + n)
            b.becomes(n, WIPED)
            check(not has(images[n - 1]) and all(has(images[k - 1]) for k in left), n)
            check(all(b.slots[k].state == UP for k in left), b.slots)
        lend(b, h, 20, 2, 2)
        check(box.process.stop() == 0, box.process.errors())


@case
def s251_the_end_of_a_lease_erases_all_functions_of_its_device():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        images = [disk(l, "image%d" % n, MIB) for n in range(4)]
        files = ",".join("file=" + image for image in images)
        box, host = start_box(l, m, "--slot", "1=nvme,functions=2," + files), start_host(l, m)
        b, h = m.link(BOX), m.link(HOST)
        check(b.slots[1].attributes == "functions=2,size=2M" and b.slots[1].model == "nvme" and
              b.slots[1].data == 2 and b.slots[1].state == EMPTY, b.slots)
        b.unbind(1, 1)
        b.becomes(1, WIPED)
        lend(b, h, 10)
        for image in images:
            plant(image, MIB - 4096)
        h.detach(1)
        check(b.unbind(1, 10, keep=True)[0] == KEPT and all(has(image) for image in images))
        check(b.unbind(1, 10)[0] == WIPING)
        b.becomes(1, WIPED)
        check(not any(has(image) for image in images))
        check(box.process.stop() == 0, box.process.errors())


@case
def s249_data_of_a_subsystem_whose_controllers_go():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        image, other = disk(l, "image", MIB), disk(l, "other", MIB)
        shared = "nvme,subsystem=a,file=" + image

        def start(*devices):
            slots = ["%d=%s" % (n, device) for n, device in enumerate(devices, 1)]
            return start_box(l, m, "--slots", 3, "--hot-plug",
                             *[x for each in slots for x in ("--slot", each)])

        box = start(shared, shared, shared)
        b = m.link(BOX)

        def unplug(slot):
            dxpu(l, "unplug", "--force", box.control, slot)

        def wiped(slot, epoch):
            check(b.unbind(slot, epoch)[0] == WIPING)
            b.becomes(slot, WIPED)

        def restart(*devices):
            box.process.kill()
            return start(*devices), m.link(BOX, b)

        for n in (1, 2, 3):
            wiped(n, 1)
        b.bind(1, 77, 1, 2)
        b.bind(2, 78, 1, 2)
        plant(image, 4096)
        wiped(2, 2)  # left, for slot 1 is lent: it may be lent again meanwhile
        b.bind(2, 78, 1, 3)
        unplug(1)
        wiped(2, 3)
        check(has(image))  # slot 1's lease goes on
        b.bind(2, 78, 1, 4)
        wiped(2, 4)
        check(b.unbind(1, 2)[0] == WIPING)
        b.becomes(1, UNWIPED)
        for n in (2, 3):
            refused(BUSY, b.bind, n, 78, 1, 5)
        answer = dxpu(l, "plug", box.control, 1, "nvme,file=" + other, status=1)
        check(answer["error"] == "busy", answer)  # it would be forgotten
        box, b = restart("none", shared, shared)
        check([b.slots[n].state for n in (1, 2, 3)] == [UNWIPED, EMPTY, EMPTY], b.slots)
        check(b.bind(3, 78, 1, 5) == (HELD, 5))  # for a lease that goes on alone (M-77)
        wiped(3, 5)  # by way of another slot
        check(not has(image))
        b.bind(2, 78, 1, 5)
        wiped(1, 5)  # which has erased that one's, too
        b.bind(2, 78, 1, 6)
        # what was left is not wiped for a start at which no other lease is there
        b.bind(3, 79, 1, 6)
        plant(image, 4096)
        wiped(2, 6)
        box, b = restart("none", shared, "none")
        check([b.slots[n].state for n in (2, 3)] == [EMPTY, HELD], b.slots)
        wiped(2, 7)
        check(has(image))  # slot 3's lease waits
        check(b.unbind(3, 6, keep=True)[0] == KEPT)
        box, b = restart("none", shared, "nvme,file=" + other)
        check(b.slots[3].health == BROKEN, b.slots)
        wiped(2, 8)
        check(has(image))  # it is elsewhere


@case
def s249_data_of_a_subsystem_whose_only_lease_is_out():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        image, other = disk(l, "image", MIB), disk(l, "other", MIB)
        shared, plain = "nvme,subsystem=a,file=" + image, "nvme,file=" + other

        def start(*devices):
            slots = ["%d=%s" % (n, device) for n, device in enumerate(devices, 1)]
            return start_box(l, m, "--slots", len(devices), "--hot-plug",
                             *[x for each in slots for x in ("--slot", each)])

        def plug(status=0):
            return dxpu(l, "plug", box.control, 1, plain, status=status)

        def unplug(slot):
            dxpu(l, "unplug", "--force", box.control, slot)

        box = start(shared, shared)
        b = m.link(BOX)
        for n in (1, 2):
            b.unbind(n, 1)
            b.becomes(n, WIPED)
        b.bind(1, 77, 1, 2)
        plant(image, 4096)
        unplug(1)
        check(plug(status=1)["error"] == "busy")  # slot 2 would count as wiped
        box.process.kill()
        box = start(plain, shared)
        b = m.link(BOX, b)
        check([b.slots[n].state for n in (1, 2)] == [EMPTY, EMPTY], b.slots)
        check(b.unbind(1, 2)[0] == WIPING)
        b.becomes(1, WIPED)
        check(has(image))
        box.process.kill()  # control: a drive whose controllers are all out can be replaced
        box = start(shared, shared)
        b = m.link(BOX, b)
        for n in (1, 2):
            b.unbind(n, 3)
            b.becomes(n, WIPED)
            b.bind(n, 77, n, 4)
        for n in (1, 2):
            unplug(n)
            check(b.unbind(n, 4)[0] == WIPING)
            b.becomes(n, UNWIPED)
        plug()
        b.becomes(1, EMPTY)
        check(b.unbind(1, 4)[0] == WIPING)
        b.becomes(1, WIPED)


@case
def s249_data_of_a_slot_in_another_thread():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        one = disk(l, "one", MIB)
        disks = ("nvme,file=" + one, "none")

        def start(first, second):
            return start_box(l, m, "--slots", 2, "--cores", 2, "--hot-plug", "--slot", "1=" + first,
                             "--slot", "2=" + second)

        def restart(*devices):
            box.process.kill()
            return start(*devices), m.link(BOX, b)

        box = start(*disks)
        b = m.link(BOX)
        b.unbind(1, 3)
        b.becomes(1, WIPED)
        b.bind(1, 77, 1, 4)
        plant(one, 4096)
        box, b = restart(*reversed(disks))
        check([b.slots[n].state for n in (1, 2)] == [HELD, EMPTY], b.slots)
        state = b.unbind(2, 5)[0]
        check(state in (WIPING, EMPTY), state)  # it may be over before the answer leaves
        b.becomes(2, EMPTY)  # left: slot 1's lease waits
        check(has(one))
        refused(BUSY, b.bind, 2, 78, 1, 6)
        box, b = restart(*disks)
        check((b.slots[1].state, b.slots[1].health) == (HELD, GOOD) and has(one), b.slots)
        box, b = restart(*reversed(disks))
        check(b.unbind(1, 4)[0] == WIPING)
        b.becomes(1, UNWIPED)
        check(b.unbind(2, 6)[0] == WIPING)
        b.becomes(2, WIPED)
        check(not has(one))
        check(b.bind(2, 78, 1, 7) == (HELD, 7))  # the control: that lease is over


@case
def state_file_without_media():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", MIB)
        b = box = None
        for word, want in (("wiped", EMPTY), ("kept", KEPT), ("held", HELD), ("unwiped", UNWIPED)):
            if box:
                box.process.kill()
            with open(l.file("box.state"), "w") as f:
                f.write("1 9 3 1 %s\n" % word)
            box = start_box(l, m, "--device", "nvme", "--file", path)
            b = m.link(BOX, b)
            check(b.slots[1].state == want, word, b.slots)  # M-67
        box.process.kill()
        with open(l.file("box.state"), "w") as f:
            f.write("1 9 3 1 unwiped 0123456789abcdef\n")  # another one could not be wiped
        box = start_box(l, m, "--device", "nvme", "--file", path)
        b = m.link(BOX, b)
        check((b.slots[1].state, b.slots[1].health) == (EMPTY, BROKEN), b.slots)
        with open(l.file("box.state")) as f:
            check(f.read() == "1 9 3 1 unwiped 0123456789abcdef\n")
        box.process.kill()
        plant(path, 4096)  # whose data are to be wiped the file does not say
        with open(l.file("box.state"), "w") as f:
            f.write("1 9 3 1 wiping\n")
        box = start_box(l, m, "--device", "nvme", "--file", path)
        b = m.link(BOX, b)
        check((b.slots[1].state, b.slots[1].health) == (EMPTY, BROKEN) and has(path), b.slots)


@case
def lease_in_memory_is_not_served_from_a_disk():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", MIB)
        plant(path, 4096)
        box = start_box(l, m, "--device", "nvme", "--memory", "1M")
        b = m.link(BOX)
        for state in (HELD, KEPT):
            if state == HELD:
                b.bind(1, 77, 1, 4)
            else:
                check(b.unbind(1, 4, keep=True) == (KEPT, 0))
            b, box = swapped(l, m, b, box, "--memory", "1M", again=True)
            check(b.slots[1].state == state, b.slots)  # the control: it goes on
            b, box = swapped(l, m, b, box, "--file", path)
            check((b.slots[1].state, b.slots[1].health, b.slots[1].epoch) == (EMPTY, BROKEN, 0),
                  b.slots)  # M-67
            check(has(path))
            b, box = swapped(l, m, b, box, "--memory", "1M", again=True)
        check(b.slots[1].state == KEPT, b.slots)


@case
def lease_that_a_restored_state_does_not_know_is_wiped():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", MIB)
        box = start_box(l, m, "--device", "nvme", "--file", path)
        b = m.link(BOX)
        b.unbind(1, 3)
        b.becomes(1, WIPED)
        shutil.copy(l.file("box.state"), l.file("backup"))
        for epoch, keep in ((5, False), (7, True)):
            b.bind(1, 77, 1, epoch)
            plant(path, 4096)
            box.process.kill()
            shutil.copy(l.file("backup"), l.file("box.state"))
            b, box = swapped(l, m, b, box, "--file", path)
            check(b.slots[1].state == WIPED and b.slots[1].seen == 3, b.slots)
            if keep:  # its tenant's data may be there
                check(b.unbind(1, epoch, keep=True) == (KEPT, 0) and has(path))
                continue
            check(b.unbind(1, 3) == (WIPED, 0) and has(path))  # the control: what it knows
            check(b.unbind(1, epoch)[0] == WIPING)  # M-64
            b.becomes(1, WIPED)
            check(not has(path))


@case
def other_slots_go_on_while_one_is_wiped():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        files = [disk(l, "disk" + end, 128 * MIB) for end in ("", ".2")]
        box = start_box(l, m, "--slots", 2, "--device", "nvme", "--file", files[0])
        host = start_host(l, m)
        b, h = m.link(BOX), m.link(HOST)
        lend(b, h, 5)
        b.bind(2, 77, 1, 6)
        b.unbind(2, 6)
        with by_hand.Client(box) as c:
            answers = 0  # M-65
            while b.slots[2].state == WIPING:
                c.works()
                answers += b.slots[2].state == WIPING
                time.sleep(0.002)
        check(answers > 10 and b.slots[2].state == WIPED, answers, b.slots[2])
        check(reported(l, host, 1)["state"] == "up")
        check(reported(l, host, 1)["incarnations"] == 1)


@case
def box_serves_its_lease_without_a_manager():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = start_box(l, m, "--slots", 2, "--memory", 4096)
        b = m.link(BOX)
        start_host(l, m)
        h = m.link(HOST)
        lend(b, h, 5, slot=2)
        m.close()
        box.process.kill()
        box = start_box(l, m, "--slots", 2, "--memory", 4096, listen=b.paths[0])
        by_hand.until(lambda: reported(l, box, 2)["state"] == "up", "M-58: the lease goes on")
        there = reported(l, box, 2)
        check(there["epoch"] == 5 and there["peer_node"] == h.node, there)
        check(reported(l, box, 1)["state"] == "wiped")
        other = l.run("dxpu-host", "--box", b.paths[0], "--slot", 1, "--epoch", 6, "--load", "read",
                      "--count", 1, "--give-up-ms", 500)
        check(other.status == 4, other.errors())  # nor does anybody else get in now
        with fm.Manager(nodes=m.nodes, port=m.port) as late:
            told = late.link(BOX).slots[2]
            check((told.state, told.epoch, told.peer_node) == (UP, 5, h.node), told)


@case
def host_dials_once_it_has_a_number():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = by_hand.start_box(l, "--state", l.file("plain"))  # no manager's: anybody gets in
        m.close()
        host = start_host(l, m)
        dxpu(l, "attach", host.control, 1, box.address, 2)
        host.process.says("no answer; dialing again")
        here = reported(l, host, 1)
        check(here["state"] == "dialing" and here["attempts"] == 0, here)  # M-56
        check(reported(l, box, 2)["state"] == "empty")
        with fm.Manager(nodes={b"another": 10}, port=m.port) as late:
            late.link(HOST).becomes(1, UP)
            check(reported(l, box, 2)["peer_node"] == late.link(HOST).node == 11)


@case
def manager_restarts():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box, host = start_box(l, m, "--memory", 4096), start_host(l, m)
        b, h = m.link(BOX), m.link(HOST)
        lend(b, h, 5)
        for _ in range(3):
            m.close()
            with fm.Manager(nodes=m.nodes, port=m.port) as new:
                check(new.link(BOX).slots[1].state == UP and new.link(HOST).slots[1].state == UP)
                check(new.link(HOST).node == h.node and new.link(HOST).said_node == h.node)  # M-68
            m = new
        check(reported(l, host, 1)["incarnations"] == 1)  # M-58
        check(reported(l, box, 1)["incarnations"] == 1)
        with fm.Manager(nodes=m.nodes, port=m.port) as new:  # the control: a channel that breaks
            h = new.link(HOST)
            box.process.kill()
            h.becomes(1, DIALING)
            start_box(l, new, "--memory", 4096, listen=b.paths[0])
            h.becomes(1, UP)
            check(reported(l, host, 1)["incarnations"] == 2)


@case
def lost_answers():
    """M-54: who does not get an answer asks again, on another connection."""
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        path = disk(l, "disk", 8 * MIB)
        start_box(l, m, "--device", "nvme", "--file", path)
        start_host(l, m)

        def twice(role, ask):
            """Ask, hang up, ask again where it registers next: the answer to that."""
            link = m.link(role)
            ask(link)
            link.socket.shutdown(socket.SHUT_RDWR)
            link = m.link(role, link)
            return struct.unpack(">HBxQ", link.answer(ask(link))[1])[1:]

        node = m.link(HOST).node
        for epoch in (4, 5):
            check(twice(BOX, lambda k: k.ask_for(fm.BIND, struct.pack(">HHIQ", 1, 1, node, epoch)))
                  == (HELD, epoch))
            where = fm.pack_address(m.link(BOX).paths[0])
            state, got = twice(HOST, lambda k: k.ask_for(fm.ATTACH, struct.pack(
                ">HHQ", 1, 1, epoch) + where))
            check(state in (DIALING, UP) and got == epoch, state)
            m.link(HOST).becomes(1, UP)
            plant(path, 5 * MIB)
            m.link(HOST).detach(1)
            m.link(HOST).becomes(1, EMPTY)
            state, got = twice(BOX, lambda k: k.ask_for(fm.UNBIND, struct.pack(">HBxQ", 1, 0,
                                                                               epoch)))
            check(state in (WIPING, WIPED) and got == 0, state)
            m.link(BOX).becomes(1, WIPED)
            check(not has(path))


@case
def hostile_managers():
    chance = random.Random(6)
    good = fm.message(fm.HELLO, struct.pack(">BBBxIHxx", 3, 1, 1, 0, 0) + b"\0", 1 << 28)
    node = fm.message(fm.NODE, struct.pack(">II", 7, 50), 2 << 28 | 1)
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        b = start_box(l, m, "--memory", 4096)
        h = start_host(l, m)
        lend(m.link(BOX), m.link(HOST), 5)
        m.close()
        scripts = [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100), good + good, node,  # M-50
                   good + node + node * 3, good + fm.message(fm.HEARTBEAT, bytes(12), 3 << 28),
                   good + fm.message(fm.DONE, bytes(12), 4 << 28),
                   good + fm.message(fm.NODE, bytes(8), 2 << 28 | 1),  # M-42
                   good + fm.message(fm.ERROR, struct.pack(">HH", 65535, 9) + b"\0", 2 << 28 | 1),
                   fm.message(fm.HELLO, struct.pack(">BBBxIHxx", 2, 1, 1, 0, 0) + b"\0", 1 << 28),
                   fm.message(fm.HELLO, struct.pack(">BBBxIHxx", 3, 2, 9, 0, 0) + b"\0", 1 << 28),
                   good + fm.message(fm.BIND, bytes(65536), 9),
                   good + fm.message(fm.UNBIND, struct.pack(">HBxQ", 1, 2, 5), 9)]
        every = good + node + fm.message(fm.RESET, struct.pack(">HxxQ", 9, 1), 8) + fm.message(
            fm.DRAIN, struct.pack(">HBx", 9, 1), 9) + fm.message(0x55, b"x") * 3

        def hostile(sock):
            with m2.news:
                turn = m2.accepted
            data = bytearray(scripts[turn % len(scripts)] if turn % 2 else every)
            if turn > 2 * len(scripts):
                for _ in range(chance.randrange(1, 10)):
                    data[chance.randrange(len(data))] = chance.randrange(256)
            try:
                sock.sendall(data)
                sock.settimeout(0.05)
                while sock.recv(4096):
                    pass
            except OSError:
                pass
            sock.close()

        for _ in range(2):  # back-off grows: few connections in a time, so two rounds of them
            with fm.Manager(port=m.port, hostile=hostile) as m2:
                m2.until(lambda: m2.accepted >= 12, "connections", 60)
        check(reported(l, b, 1)["incarnations"] == reported(l, h, 1)["incarnations"] == 1)
        with fm.Manager(nodes=m.nodes, port=m.port) as new:
            check(new.link(BOX).slots[1].state == UP and new.link(HOST).slots[1].state == UP)
        check(b.process.stop() == 0 and h.process.stop() == 0)


@case
def answers_to_nothing():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--memory", 4096)
        b = m.link(BOX)
        hello = fm.message(fm.HELLO, struct.pack(">BBBxIHxx", 3, 1, 1, 0, 0) + b"\0", 1 << 28)
        for bad in (hello, fm.message(fm.NODE, struct.pack(">II", 9, 100), 2 << 28),
                    fm.message(fm.HEARTBEAT, struct.pack(">QI", b.instance, 0), 5),
                    fm.message(fm.DONE, bytes(12), 4 << 28),
                    fm.message(fm.ERROR, struct.pack(">HH", 7, 0) + b"\0", 2 << 28)):
            b.send(fm.message(0x8000, b"?") + fm.message(0x0055))  # the control: nothing to end for
            check(b.bind(1, 77, 1, 5) == (HELD, 5) and b.alive)
            b.send(bad)
            m.until(lambda: not b.alive, "M-50: it closes")
            b = m.link(BOX, b)
            check(b.node == 10, b.node)


def former_leader_is_refused(term):
    """Two managers; the box has seen the term of one, and takes no orders of the other one with a
    lower term, until the higher one has been silent for 20 heartbeats."""
    with lab.Lab(plain=True) as l, fm.Manager(heartbeat_ms=200) as new, fm.Manager(
            nodes=new.nodes, heartbeat_ms=200) as old:
        new.term, old.term = 5, term
        box = l.start("dxpu-box", "--plain", "--manager", new.address + "," + old.address,
                      "--identity", l.file("id"), "--state", l.file("state"), "--listen", V4,
                      "--device", "memory")
        link = new.link(BOX)
        check(link.bind(1, 77, 1, 10) == (HELD, 10))
        began = time.monotonic()
        new.close()
        box.says("another manager leads the pool since")
        old.until(lambda: [k for k in old.links if k.registered and not k.alive], "it leaves")
        check(time.monotonic() - began < 3, "it is refused while the other one counts")

        def taken():
            known = [k for k in old.links if k.alive and k.registered and k.heartbeats]
            return known[-1] if known else None
        link = old.until(taken, "it is the only one there is")
        check(time.monotonic() - began > 3, "20 heartbeats", time.monotonic() - began)
        check(link.slots[1].epoch == 10 and link.bind(1, 77, 1, 11) == (HELD, 11))


@case
def m144_a_former_leader_is_refused():
    former_leader_is_refused(4)


@case
def m144_a_former_leader_without_a_term_is_refused():
    former_leader_is_refused(0)


@case
def silent_manager_is_left():
    with lab.Lab(plain=True) as l, fm.Manager(heartbeat_ms=500) as m:
        start_box(l, m, "--memory", 4096)
        b = m.link(BOX)
        m.until(lambda: b.heartbeats >= 6, "heartbeats that are answered")  # twice what it misses
        check(b.alive and m.accepted == 1)  # the control
        m.silent = True
        m.until(lambda: not b.alive, "M-52: it leaves")
        m.silent = False
        again = m.link(BOX, b)
        m.until(lambda: again.heartbeats >= 2, "and is back")


@case
def two_proxies_with_one_identity():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        m.one_each = True
        start_box(l, m, "--memory", 4096)
        b = m.link(BOX)
        second = l.run("dxpu-box", "--listen", V4, "--manager", m.address, "--identity",
                       l.file("box.id"), "--state", l.file("second.state"))
        check(second.status == 3 and "another proxy uses it" in second.errors(), second.errors())
        shutil.copy(l.file("box.id"), l.file("copy.id"))
        copy = start_box(l, m, "--memory", 4096, name="copy")
        copy.process.says(r"refuses: busy")
        m.until(lambda: m.accepted >= 4, "it tries again")
        check(b.alive and len([k for k in m.links if k.registered]) == 1)
        m.one_each = False  # the control: it is the refusal that keeps it out
        m.link(BOX, b)


@case
def two_boxes_with_one_state():
    with lab.Lab(plain=True) as l:
        def box(*more):
            return ("dxpu-box", "--listen", V4, "--memory", 4096, "--state", l.file("state"), *more)
        first = l.start(*box())
        first.says("slot at")
        second = l.run(*box())
        check(second.status == 3 and "another box uses it" in second.errors(), second.errors())
        first.kill()
        l.start(*box()).says("slot at")  # the control: a lock that ends with its process


@case
def wrong_identity_files():
    """Reported as damaged, and unchanged; an empty one, as a full disk leaves it, is not damage."""
    with lab.Lab(plain=True) as l:
        for name, more in (("dxpu-box", ("--listen", V4, "--state", l.file("state"))),
                           ("dxpu-host", ("--vfio-user", l.file("vm")))):
            for content in ("0" * 32 + "\n", "12" * 16, "12" * 15 + "\n", "12" * 17 + "\n",
                            "1" * 31 + "G\n", ""):
                with open(l.file("id"), "w") as f:
                    f.write(content)
                again = content and name != "dxpu-box"  # they read it by the same code
                process = l.start(*program(name, again), "--manager", "127.0.0.1:1", "--identity",
                                  l.file("id"), *more)
                if content:
                    status = process.wait(10)
                    check(status == 5 and "hexadecimal" in process.errors(), content, status)
                    with open(l.file("id")) as f:
                        check(f.read() == content)
                else:
                    process.says("slot at|waiting for a guest")
                    check(process.stop() == 0 and os.path.getsize(l.file("id")) == 33)


@case
def drained_box_takes_no_lease():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--slots", 3, "--memory", 4096)
        b = m.link(BOX)
        b.bind(1, 77, 1, 4)
        check(b.drain(0, True) == (0, 0))
        refused(DRAINED, b.bind, 2, 77, 1, 5)  # M-61
        check(b.bind(1, 77, 1, 4) == (HELD, 4))  # leases that are there stay
        refused(DRAINED, b.bind, 1, 78, 1, 5)  # and are not another's
        refused(DRAINED, b.bind, 1, 77, 2, 5)
        check(b.bind(1, 77, 1, 5) == (HELD, 5))  # but go on when their host was started again
        check(b.drain(3, False)[0] == WIPED)
        refused(DRAINED, b.bind, 2, 77, 1, 6)
        check(b.bind(3, 77, 2, 6) == (HELD, 6))
        check(b.unbind(1, 5, keep=True) == (KEPT, 0))
        check(b.bind(1, 78, 1, 7) == (HELD, 7))  # a parked lease comes back to its data
        b.unbind(1, 7)
        b.becomes(1, WIPED)
        refused(DRAINED, b.bind, 1, 77, 1, 8)
        check(b.drain(0, False) == (0, 0) and b.bind(2, 77, 1, 5) == (HELD, 5))


@case
def reset_of_a_device():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--slots", 2, "--memory", 4096)
        host = start_host(l, m)
        b, h = m.link(BOX), m.link(HOST)
        lend(b, h, 5)
        for epoch in (0, 4, 6):
            refused(EPOCH, b.reset, 1, epoch)  # M-66
        check(reported(l, host, 1)["incarnations"] == 1)
        b.reset(1, 5)
        by_hand.until(lambda: reported(l, host, 1)["incarnations"] == 2, "another incarnation")
        h.becomes(1, UP)
        refused(EPOCH, b.reset, 2, 5)
        check(b.reset(2, 0) == (WIPED, 0))


@case
def lease_that_cannot_be_kept():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        folder = l.file("state")
        os.mkdir(folder)
        start_box(l, m, "--memory", 4096, "--state", os.path.join(folder, "box"))
        b = m.link(BOX)
        b.bind(1, 77, 1, 4)
        with open(os.path.join(folder, "box")) as f:
            check(f.read() == "1 4 77 1 held 0000000000000001\n")  # M-57: before it was answered
        os.rename(folder, folder + ".away")
        refused(STATE, b.bind, 1, 77, 1, 5)
        refused(STATE, b.unbind, 1, 4)
        os.rename(folder + ".away", folder)
        check(b.bind(1, 77, 1, 4) == (HELD, 4))  # all is as it was
        check(b.bind(1, 77, 1, 5) == (HELD, 5))


@case
def state_files_of_before():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        with open(l.file("box.state"), "w") as f:
            f.write("1 9 3 0\n2 4 3 0 kept\n7 2 3 1 wiped\n8 2 3 1 kept\n")
        box = start_box(l, m, "--slots", 2, "--memory", 4096)
        b = m.link(BOX)
        check([(d.state, d.epoch, d.seen) for d in b.slots.values()] ==
              [(WIPED, 0, 9), (KEPT, 0, 4)], b.slots)
        refused(EPOCH, b.bind, 1, 3, 1, 9)
        check(box.process.stop() == 0)
        with open(l.file("box.state")) as f:
            memory = " %016x\n" % 1  # M-67
            check(f.read() == "1 9 3 0 wiped" + memory + "2 4 3 0 kept" + memory +
                  "7 2 3 1\n8 2 3 1 kept\n")  # M-25
        for word in ("up", "empty", "kep", "wiped wiped", "-", "wiped 12", "wiped " + 16 * "0",
                     "wiped " + 17 * "1", "wiped " + 15 * "1" + "G", "0123456789abcdef"):
            with open(l.file("bad.state"), "w") as f:
                f.write("1 9 3 0 %s\n" % word)
            bad = l.run(*program("dxpu-box", word in ("up", "empty", "kep", "-")), "--listen", V4,
                        "--manager", m.address, "--identity", l.file("bad.id"), "--state",
                        l.file("bad.state"))
            check(bad.status == 5 and "correct the line" in bad.errors(), word, bad.errors())
        alone = l.run("dxpu-box", "--listen", V4, "--slots", 2, "--state", l.file("box.state"))
        check(alone.status == 2 and "give --manager" in alone.errors(), alone.errors())


@case
def s165_an_order_is_answered_when_it_is_on_disk():
    """The file is not read: nothing is answered or reported before, and all else goes on."""
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = start_box(l, m, "--slots", 2, "--memory", 4096)
        b, new = m.link(BOX), l.file("box.state.new")
        b.bind(1, 77, 1, 4)
        os.mkfifo(new)
        first = b.ask_for(fm.BIND, struct.pack(">HHIQ", 1, 1, 78, 5))
        refused(BUSY, b.unbind, 1, 5)  # another order for the slot
        refused(BUSY, b.bind, 1, 79, 1, 6)
        refused(EPOCH, b.unbind, 1, 3)  # M-63, all the same
        check(first not in b.answers and b.slots[1].epoch == 4, b.slots[1])
        again = b.ask_for(fm.BIND, struct.pack(">HHIQ", 1, 1, 78, 5))  # M-54
        refused(BUSY, b.answer, first)  # one answer: to the last client
        b.reset(1, 4)  # its present lease goes on
        check(b.reset(2, 0)[1] == 0 and again not in b.answers)
        reader = os.open(new, os.O_RDONLY | os.O_NONBLOCK)  # a pipe cannot be synced
        refused(STATE, b.answer, again)
        check(b.bind(1, 77, 1, 4) == (HELD, 4))  # nothing has changed
        os.remove(new)
        os.close(reader)
        check(b.bind(1, 78, 1, 5) == (HELD, 5))
        # The connection that asked ends: the one that asks again is answered.
        os.mkfifo(new)
        b.ask_for(fm.BIND, struct.pack(">HHIQ", 1, 1, 79, 6))
        refused(BUSY, b.unbind, 1, 6)  # it is under way
        b.socket.shutdown(socket.SHUT_RDWR)
        b = m.link(BOX, b)
        check(b.slots[1].epoch == 5, b.slots[1])
        again = b.ask_for(fm.BIND, struct.pack(">HHIQ", 1, 1, 79, 6))
        refused(BUSY, b.unbind, 1, 6)
        reader = os.open(new, os.O_RDONLY | os.O_NONBLOCK)
        refused(STATE, b.answer, again)
        os.remove(new)
        os.close(reader)
        # A graceful end: what is under way is written.
        os.mkfifo(new)
        b.ask_for(fm.UNBIND, struct.pack(">HBxQ", 1, 1, 5))
        refused(BUSY, b.bind, 1, 79, 1, 6)  # it is under way
        box.process.popen.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        check(box.process.popen.poll() is None, "it waits for the write")
        reader = os.open(new, os.O_RDONLY | os.O_NONBLOCK)
        os.remove(new)
        check(box.process.wait(10) == 0, box.process.errors())
        os.close(reader)
        b = m.link(BOX, b) if start_box(l, m, "--slots", 2, "--memory", 4096) else None
        check(b.slots[1].epoch == 5, b.slots[1])  # it could not be written, after all


@case
def asked_again_while_it_is_written_that_a_slot_is_wiped():  # M-54
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        start_box(l, m, "--device", "nvme", "--file", disk(l, "disk", 64 * MIB))
        b, new = m.link(BOX), l.file("box.state.new")
        b.bind(1, 77, 1, 4)
        check(b.unbind(1, 4) == (WIPING, 0))
        os.mkfifo(new)  # the file is not read: what comes now waits
        end = time.monotonic() + 2
        while time.monotonic() < end:
            check(b.unbind(1, 4)[0] in (WIPING, WIPED))
            time.sleep(0.002)
        check(b.unbind(1, 4) == (WIPING, 0), "the wipe was over before")  # the control
        reader = os.open(new, os.O_RDONLY | os.O_NONBLOCK)
        os.remove(new)
        b.becomes(1, WIPED)
        os.close(reader)


@case
def only_its_manager_binds():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = start_box(l, m, "--memory", 4096)
        b = m.link(BOX)
        with by_hand.Client(box) as c:  # M-51
            for kind, body in ((fm.BIND, struct.pack(">HHIQ", 1, 1, 77, 5)),
                               (fm.UNBIND, struct.pack(">HBxQ", 1, 0, 5)),
                               (fm.RESET, struct.pack(">HxxQ", 1, 0)),
                               (fm.DRAIN, struct.pack(">HBx", 1, 1)),
                               (fm.DIRECT, struct.pack(">HBx", 1, 1))):
                c.send(fm.message(kind, body))
                c.refused(ROLE)
                c.works()
        check(b.bind(1, 77, 1, 5) == (HELD, 5))
        refused(6, b.bind, 2, 77, 1, 6)  # no such slot


def directs(box):
    """Of each slot, at the end."""
    check(box.process.stop() == 0, box.process.errors())
    found = box.process.result()
    return [found["slot_%d" % n]["p2p"]["direct"] for n in (1, 2, 3)]


@case
def m180_nothing_is_direct_before_the_manager_says_so():
    """A manager that does not order it, or an earlier one; one that does; a manager that is not
    there; orders of before outlive a connection, and not the box."""
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        def start(name):
            last = m.links[-1] if m.links else None
            box = start_box(l, m, "--memory", 4096, "--slots", 3, name=name)
            return box, m.link(BOX, last)
        box, b = start("one")
        refused(6, b.direct, 4, True)  # no such slot; and node has come before it
        check(directs(box) == [1, 1, 1])
        m.directs = True
        box, b = start("two")
        b.direct(2, True)
        b.direct(3, True)
        b.direct(3, False)
        b.socket.shutdown(socket.SHUT_RDWR)
        refused(6, m.link(BOX, b).direct, 4, True)
        check(directs(box) == [0, 1, 0])
        m.directs = False
        box, b = start("two")  # without an order of this manager
        refused(6, b.direct, 4, True)
        check(directs(box) == [1, 1, 1])
    with lab.Lab(plain=True) as l:
        alone = l.start("dxpu-box", "--listen", V4, "--json", "--memory", 4096, "--slots", 3,
                         "--manager", "127.0.0.1:9", "--identity", l.file("id"), "--state",
                         l.file("state"), "--control", ":0")
        alone.says(r"3 slots at ")  # before, a signal ends it as any program
        check(directs(by_hand.Proxy(alone)) == [0, 0, 0])


@case
def statistics_are_documented():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        proxies = {"box": start_box(l, m, "--memory", 4096), "host": start_host(l, m)}
        lend(m.link(BOX), m.link(HOST), 5)
        for kind, proxy in proxies.items():
            check(proxy.process.stop() == 0)
            found = proxy.process.result()
            check(found["manager"]["registered"] == 1 and found["manager"]["changes"] > 0, found)
            page = os.path.join(rooms.ROOT, "examples", kind, "dxpu-%s.1" % kind)
            with open(page) as f:
                words = set(re.findall(r"\w+", f.read().split(".SH STATISTICS")[1]))
            for part in ("manager", "control"):
                check(set(found[part]) | {part} <= words, set(found[part]) - words)


@case
def usage_of_the_options():
    with lab.Lab(plain=True) as l:
        box = ("dxpu-box", "--listen", V4)
        host = ("dxpu-host", "--vfio-user", l.file("vm"))
        seen = set()  # one of each is read sanitized
        some = ("--manager", "127.0.0.1", "--identity", l.file("id"))
        for args in ((*box, "--manager", "127.0.0.1"), (*box, *some),
                     (*box, "--advertise", "127.0.0.1:1"),
                     (*box, *some, "--state", "s", "--model", ""),
                     (*box, *some, "--state", "s", "--advertise", "127.0.0.1:1,"),
                     (*box, *some, "--state", "s", "--name", "x" * 65),
                     (*host, "--manager", "127.0.0.1"), (*host, *some, "--attach", "1=127.0.0.1/1"),
                     (*host, "--manager", "127.0.0.1:x", "--identity", "i"),
                     ("dxpu-host", "--box", "127.0.0.1", "--load", "read", *some)):
            done = l.run(*program(args[0], args[0] in seen), *args[1:])
            seen.add(args[0])
            check(done.status == 2 and "--help" in done.errors(), args, done.status, done.errors())


if __name__ == "__main__":
    sys.exit(main())
