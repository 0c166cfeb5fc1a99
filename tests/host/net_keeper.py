#!/usr/bin/env python3
"""What a guest sees when processes of its dxpu-host end: the worker, the keeper, the parent.

The guest is vfio_client.py, no virtual machine.  Prints `ok NAME` or `not ok NAME` for each
case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import BASE, DEVICE, ECAM, PORT, READ, WINDOW  # noqa: E402

ONES = 0xffffffff
READS = 24  # in flight: fewer than a slot lets wait
LONG = 30000  # ms of hold: an earlier answer was not waited for
V4 = "127.0.0.1:0"


def child(host, name):
    """The process of this name that `host` started."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        for found, pid in host.children():
            if found == name:
                return pid
        time.sleep(0.005)
    raise AssertionError("dxpu-host has no " + name)


def start(l, *options, attach=True):
    box = l.start("dxpu-box", "--listen", V4, "--device", "memory", "--json")
    path = l.file("vm%d" % len(l.processes))
    host = l.start("dxpu-host", "--vfio-user", path, "--slots", 2, "--topology", "root-ports",
                   "--json", *options,
                   *(("--attach", "1=%s/1" % box.address()) if attach else ()))
    host.says("waiting for a guest")
    return box, host, vfio_client.Client(path)


def ready(guest):
    guest.map_slot()
    guest.filled()
    guest.map_device(low=1, high=0)


def ask(guest, region, at):
    """A read whose answer is taken by answers()."""
    guest.send(READ, struct.pack("<QII", at, region, 4))
    return guest.number & 0xffff


def answers(guest, wanted, seconds=20.0):
    """{number: value} of reads: each once, no other, none late."""
    found, end = {}, time.monotonic() + seconds
    while set(found) != set(wanted):
        left = end - time.monotonic()
        check(left > 0 and select.select([guest.socket], [], [], left)[0],
              "unanswered:", sorted(set(wanted) - set(found)))
        number, command, size, flags, error = struct.unpack("<HHIII", guest.exactly(16))
        body = guest.exactly(size - 16)
        if command == vfio_client.DMA_WRITE and flags == vfio_client.NO_REPLY:
            continue
        check(flags & 0xf == 1 and not error, "flags", flags, "error", error)
        check(number in wanted and number not in found, "answered twice, or not asked:", number)
        found[number] = struct.unpack("<I", body[16:])[0]
    return found


def is_silent(guest, seconds=0.2):
    return not select.select([guest.socket], [], [], seconds)[0]


def closed_gracefully(guest):
    """None; or what the client is sent when bytes of it were not read."""
    try:
        guest.socket.settimeout(10)
        while guest.socket.recv(65536):
            pass
    except OSError as error:
        return error
    return None


def write_unread(guest, seconds=0.5):
    """Posted writes until the socket has taken none for that time: it is no longer read."""
    message = struct.pack("<HHIII", 1, vfio_client.WRITE, 16 + 16 + 64, vfio_client.NO_REPLY, 0)
    message += struct.pack("<QII", BASE, WINDOW, 64) + bytes(64)
    guest.socket.setblocking(False)
    rest, taken = b"", time.monotonic()
    while time.monotonic() < taken + seconds:
        try:
            rest = rest or message
            rest = rest[guest.socket.send(rest):]
            taken = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)


# ---- The worker ----

@case
def v30_requests_in_flight_are_answered_once_with_ones():
    with lab.Lab() as l:
        box, host, guest = start(l, "--hold-ms", LONG)
        ready(guest)
        identity = guest.read32(ECAM, DEVICE)
        check(identity != ONES)
        box.popen.send_signal(signal.SIGSTOP)
        asked = [ask(guest, ECAM, DEVICE) for _ in range(READS)]
        check(is_silent(guest), "the control: nobody answers while the box does not")
        os.kill(child(host, "dxpu-worker"), signal.SIGKILL)
        found = answers(guest, asked)
        check(set(found.values()) == {ONES}, found)
        check(not guest.read32(ECAM, PORT + 0x58) >> 22 & 1, "the slot is empty")
        check(guest.read32(ECAM, PORT) != ONES, "the port is there")
        box.popen.send_signal(signal.SIGCONT)
        guest.filled()
        check(is_silent(guest), "late answers")
        guest.map_device(low=1, high=0)
        check(guest.read32(ECAM, DEVICE) == identity, "the next worker has the device")
        check(host.stop() == 0, host.errors())
        there = host.result()
        check(there["workers"] == 2 and there["slot_1"]["contained"] >= READS, there)


@case
def v30_v31_any_moment_is_a_good_one():
    """Kills at random moments under a stream of reads and writes.  Each read has one answer: what
    was written, or ones."""
    seed = int(os.environ.get("DXPU_SEED", "1"))
    pick = random.Random(seed)
    with lab.Lab() as l:
        box, host, guest = start(l)
        ready(guest)
        for turn in range(4):
            value = pick.randrange(1, ONES)
            guest.write(WINDOW, BASE, struct.pack("<I", value))
            check(guest.read32(WINDOW, BASE) == value, "seed", seed, "turn", turn)
            worker, when, killed = child(host, "dxpu-worker"), pick.randrange(60), False
            asked = []
            for n in range(60):
                guest.write(WINDOW, BASE + 64 + 4 * n, bytes(4), posted=True)
                asked.append(ask(guest, WINDOW, BASE))
                if n == when:
                    os.kill(worker, signal.SIGKILL)
                    killed = True
                if len(asked) >= READS:
                    found = answers(guest, asked)
                    check(set(found.values()) <= {value, ONES}, "seed", seed, found)
                    asked = []
            check(set(answers(guest, asked).values()) <= {value, ONES}, "seed", seed)
            check(killed)
            host.says("(?s)" + "worker process was killed.*" * (turn + 1))
            guest.filled()
            guest.map_device(low=1, high=0)
        check(host.stop(20) == 0, host.errors())
        check(host.result()["workers"] == 5, host.result())
        check(box.stop() == 0, box.errors())


@case
def v34_worker_that_hangs_is_ended():
    with lab.Lab() as l:
        _, host, guest = start(l, "--hold-ms", 300)
        ready(guest)
        os.kill(child(host, "dxpu-worker"), signal.SIGSTOP)
        asked = [ask(guest, ECAM, DEVICE) for _ in range(READS)]
        check(set(answers(guest, asked).values()) == {ONES})
        host.says("reads nothing for the hold time")
        guest.filled()
        check(guest.read32(ECAM, DEVICE) != ONES)


@case
def v32_keeper_remembers_what_was_attached():
    """By the command, too; and not what was detached."""
    with lab.Lab() as l:
        box, host, guest = start(l, "--control", V4, attach=False)
        control = host.says(r"control port (\S+)").group(1)
        other = l.start("dxpu-box", "--listen", V4, "--device", "memory")

        def dxpu(*args):
            done = l.start("dxpu", *args)
            check(done.wait(20) == 0, args, done.errors())
            return done.output()
        dxpu("attach", "--wait", "--epoch", 7, control, 1, box.address(), 1)
        dxpu("attach", "--wait", control, 2, other.address(), 1)
        dxpu("detach", "--wait", control, 2)
        os.kill(child(host, "dxpu-worker"), signal.SIGKILL)
        host.says(r"(?s)worker process was killed.*slot 1: slot 1 of \S+ is attached, epoch 7")
        control = host.says(r"(?s)killed.*control port (\S+)").group(1)

        def remembered():  # a channel that the machine held up is dialled once more
            slots = json.loads(dxpu("status", "--json", control))["slots"]
            return {s["slot"]: s["state"] for s in slots} == {1: "up", 2: "empty"}
        until(remembered, "slot 1 up and slot 2 empty", pause=0.2)
        guest.close()


def alter(pid, old, new):
    """Replaces these bytes wherever the process has them in memory of its own; how often."""
    count = 0
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "r+b", 0) as mem:
        for line in maps:
            where, rights, _, _, inode = line.split()[:5]
            if not rights.startswith("rw-p") or "[v" in line:
                continue
            start, end = (int(x, 16) for x in where.split("-"))
            mem.seek(start)
            there = mem.read(end - start)
            at = there.find(old)
            while at >= 0:
                mem.seek(start + at)
                mem.write(new)
                count += 1
                at = there.find(old, at + 1)
    return count


@case
def s184_a_keeper_that_was_taken_over_attaches_nothing():
    """It has the next worker attach a box of its choice, with this host's key."""
    if os.geteuid():
        return "only root may write to the memory of another process"
    with lab.Lab() as l:
        box, host, guest = start(l)
        other = l.start("dxpu-box", "--listen", V4, "--device", "memory")
        address = [struct.pack("=H", socket.AF_INET) + struct.pack(">H", int(b.address().split(
            ":")[1])) + socket.inet_aton("127.0.0.1") for b in (box, other)]
        check(alter(child(host, "dxpu-keeper"), *address))
        os.kill(child(host, "dxpu-worker"), signal.SIGKILL)
        host.says("(?s)worker process was killed.*slot 1: keeper process of .* that no worker made")
        guest.close()
        host.stop()
        check(host.result()["attachments_forged"] == 1, host.result())
        check("lent to" not in other.errors(), other.errors())


@case
def v31_several_guests_go_on():
    with lab.Lab() as l:
        boxes = [l.start("dxpu-box", "--listen", V4, "--device", "memory") for _ in (1, 2)]
        paths = [l.file("a"), l.file("b")]
        host = l.start("dxpu-host", "--vfio-user", ",".join(paths), "--slots", 2, "--topology",
                       "root-ports", "--json", "--attach",
                       ";".join("1=%s/1" % b.address() for b in boxes))
        guests = []
        for path in paths:
            host.says("waiting for a guest at " + path)
            guests.append(vfio_client.Client(path))
            ready(guests[-1])
        os.kill(child(host, "dxpu-worker"), signal.SIGKILL)
        host.says("(?s)worker process was killed.*is attached.*is attached")
        for guest in guests:
            guest.filled()
            check(guest.read32(ECAM, DEVICE) != ONES)
        keepers = [pid for name, pid in host.children() if name == "dxpu-keeper"]
        os.kill(keepers[0], signal.SIGKILL)
        check(closed_gracefully(guests[0]) is None)
        host.says("its guest's connection is shut down")
        check(guests[1].read32(ECAM, DEVICE) != ONES, "the other guest does not notice")
        check(host.stop() == 3, "one guest was lost")
        check(host.result()["guest_2"]["slot_1"]["incarnations"] == 1, host.result())


# ---- The connection ----

def congested(l):
    """A guest whose last writes are in the socket: its host does not read while a slot has too
    much that waits."""
    box, host, guest = start(l, "--hold-ms", LONG)
    ready(guest)
    box.popen.send_signal(signal.SIGSTOP)
    write_unread(guest)
    return host, guest


@case
def v33_interrupt_ends_the_connection_gracefully():
    with lab.Lab() as l:
        host, guest = congested(l)
        host.popen.send_signal(signal.SIGINT)
        host.popen.send_signal(signal.SIGINT)
        error = closed_gracefully(guest)
        check(error is None, error)
        check(host.wait(10) == 0, host.errors())


@case
def v34_worker_that_does_not_end_is_killed():
    """It takes no question; the guest's connection ends gracefully for all that."""
    with lab.Lab() as l:
        _, host, guest = start(l, "--hold-ms", 300)
        ready(guest)
        worker = child(host, "dxpu-worker")
        os.kill(worker, signal.SIGSTOP)
        begun = time.monotonic()
        host.popen.send_signal(signal.SIGTERM)
        check(closed_gracefully(guest) is None)
        check(host.wait(20) == 3, host.errors())
        check(3 < time.monotonic() - begun and "does not end: killed" in host.errors())


@case
def v33_either_process_may_be_killed():
    for name in ("dxpu-keeper", "parent"):
        with lab.Lab() as l:
            host, guest = congested(l)
            keeper = child(host, "dxpu-keeper")
            os.kill(host.popen.pid if name == "parent" else keeper, signal.SIGKILL)
            error = closed_gracefully(guest)
            check(error is None, name, error)
            if name == "dxpu-keeper":
                check(host.wait(40) == 3, host.errors())


@case
def both_killed_at_once_reset_the_connection():
    """What the man page says of it: bytes were unread, so the guest's end is an error, without a
    reader left.  The worker ends by itself, and the next dxpu-host takes the socket."""
    with lab.Lab() as l:
        host, guest = congested(l)
        keeper, worker = child(host, "dxpu-keeper"), child(host, "dxpu-worker")
        for pid in (host.popen.pid, keeper):  # none of them sees the other's end
            os.kill(pid, signal.SIGSTOP)
        for pid in (host.popen.pid, keeper):
            os.kill(pid, signal.SIGKILL)
        check(isinstance(closed_gracefully(guest), ConnectionResetError))
        host.popen.wait(10)
        end = time.monotonic() + 10
        while os.path.exists("/proc/%d/maps" % worker) and memory_of(worker):
            check(time.monotonic() < end, "the worker goes on")
            time.sleep(0.01)
        path = guest.socket.getpeername()
        guest.close()
        again = l.start("dxpu-host", "--vfio-user", path, "--slots", 2)
        again.says("waiting for a guest")
        vfio_client.Client(path).close()


@case
def control_a_socket_that_is_closed_unread_is_an_error():
    """As the one process of dxpu-direct is: it has no keeper."""
    with lab.Lab() as l:
        path = l.file("vm")
        direct = l.start("dxpu-direct", "--vfio-user", path)
        direct.says("waiting for a guest")
        guest = vfio_client.Client(path)
        direct.popen.send_signal(signal.SIGSTOP)
        guest.write(WINDOW, BASE, bytes(64), posted=True)
        direct.popen.kill()
        direct.wait(10)
        check(isinstance(closed_gracefully(guest), ConnectionResetError))


# ---- What each process has ----

def memory_of(pid):
    with open("/proc/%d/maps" % pid) as f:
        return f.read()


def descriptors(pid):
    found = []
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            found.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            pass
    return found


@case
def s180_keeper_has_no_network_and_worker_no_guest_memory():
    if os.geteuid():
        return "only root looks into other processes"
    with lab.Lab() as l:
        _, host, guest = start(l)
        memory = os.memfd_create("memory-of-the-guest", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, 1 << 20)
        guest.map_memory(0, 1 << 20, memory)
        ready(guest)
        keeper, worker = child(host, "dxpu-keeper"), child(host, "dxpu-worker")
        check("memory-of-the-guest" in memory_of(keeper), "the control")
        check("dxpu-crossing" in memory_of(keeper) and "dxpu-crossing" in memory_of(worker))
        for pid in (worker, host.popen.pid):
            check("memory-of-the-guest" not in memory_of(pid))
            check(not any("memory-of-the-guest" in d for d in descriptors(pid)))
        sandbox = l.start("dxpu-host", "--version")
        sandbox.wait(10)
        for pid in (keeper, worker, host.popen.pid):
            with open("/proc/%d/status" % pid) as f:
                status = f.read()
            check("CapEff:\t%016x" % 0 in status, status)
            check("Seccomp:\t2" in status or "seccomp" not in sandbox.output(), status)
        with open("/proc/net/udp") as f:
            udp = {line.split()[9] for line in f.readlines()[1:]}

        def ports(pid):
            return [d for d in descriptors(pid) if d.startswith("socket:[") and d[8:-1] in udp]
        check(ports(worker), "the control")
        check(not ports(keeper) and not ports(host.popen.pid))
        with open("/proc/net/unix") as f:
            unix = {line.split()[6]: line for line in f.readlines()[1:]}
        connections = [line.split()[6] for line in unix.values() if l.file("") in line]
        has = [d for d in descriptors(worker) if d[8:-1] in connections]
        check(not has, "the worker has the guest's connection", has)
        guest.close()


@case
def s201_parent_removes_the_socket():
    """A keeper cannot; whoever listens there meanwhile keeps his."""
    for way in ("stop", "keeper killed", "another listens"):
        with lab.Lab() as l:
            _, host, guest = start(l)
            path = guest.socket.getpeername()
            check(os.path.exists(path))
            guest.close()
            if way == "another listens":
                os.unlink(path)
                other = socket.socket(socket.AF_UNIX)
                other.bind(path)
                other.listen()
            if way == "stop":
                check(host.stop() == 0, host.errors())
            else:
                os.kill(child(host, "dxpu-keeper"), signal.SIGKILL)
                check(host.wait(20) == 3, host.errors())
            check(os.path.exists(path) == (way == "another listens"), way)


if __name__ == "__main__":
    sys.exit(main())
