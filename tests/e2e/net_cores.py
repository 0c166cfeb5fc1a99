#!/usr/bin/env python3
"""dxpu-box with several cores, dxpu-host with several guests: each has a loop and port of its own.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import fake_manager as fm  # noqa: E402
from fake_manager import BOX, EMPTY, HELD, HOST, KEPT, UP, WIPED, WIPING  # noqa: E402
import lab  # noqa: E402
import net_control as by_hand  # noqa: E402
import net_manager_link as managed  # noqa: E402
import net_screenshot  # noqa: E402
import picture  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import BASE, WINDOW  # noqa: E402

V4, BOTH = "127.0.0.1:0", "127.0.0.1:0,[::1]:0"
SOME = ("--load", "mixed", "--size", 256, "--depth", 8, "--count", 1500, "--span", "32K")


class Box:
    """A box, and where its slots are."""

    def __init__(self, l, *args, slots=4, cores=2, listen=V4):
        self.cores = cores
        self.process = l.start("dxpu-box", "--listen", listen, "--slots", slots, "--cores", cores,
                               "--memory", "64K", "--json", *args)
        self.host, port = self.process.address().rsplit(":", 1)
        self.port = int(port)

    def at(self, slot):
        return "%s:%d" % (self.host, self.port + (slot - 1) % self.cores)

    def load(self, l, slot, *args, node=1):
        return l.start("dxpu-host", "--box", self.at(slot), "--slot", slot, "--node", node,
                       "--json", *args)

    def ends(self):
        check(self.process.stop() == 0, self.process.errors())
        return self.process.result()


def did_well(hosts):
    for host in hosts:
        check(host.wait(60) == 0, host.errors())
        result = host.result()
        check(result["mismatched"] == result["unanswered"] == 0 < result["reads"], result)


def udp(result, core):
    return result["core_%d" % core]["udp"]


def cores_of_threads(pid):
    threads = sorted(int(t) for t in os.listdir("/proc/%d/task" % pid))
    return [sorted(os.sched_getaffinity(t)) for t in threads]


# ---- Cases ----

@case
def loads_on_all_slots():
    with lab.Lab() as l:
        box = Box(l)
        did_well([box.load(l, slot, *SOME, node=1 + slot % 2) for slot in (1, 2, 3, 4)])
        there = box.ends()
        for slot in (1, 2, 3, 4):
            at = there["slot_%d" % slot]
            check(at["memory"]["writes"] > 0 and at["malformed"] == 0, at)
        check(there["delivered"] == sum(there["slot_%d" % slot][kind] for slot in (1, 2, 3, 4)
                                        for kind in ("posted", "nonposted", "completions")), there)
        for core in (1, 2):
            check(there["core_%d" % core]["proxy"]["opens_accepted"] == 2, there)


@case
def a_core_sees_its_own_slots_alone():
    for slots, busy, idle in (((1, 3), 1, 2), ((2, 4), 2, 1)):
        with lab.Lab() as l:
            box = Box(l)
            did_well([box.load(l, slot, *SOME, node=slot) for slot in slots])
            there = box.ends()
            check(udp(there, busy)["rx_datagrams"] > 100, there)
            check(udp(there, idle)["rx_datagrams"] == udp(there, idle)["tx_datagrams"] == 0, there)
            for slot in (1, 2, 3, 4):
                check((there["slot_%d" % slot]["posted"] > 0) == (slot in slots), there)


@case
def each_core_has_its_ports():
    with lab.Lab() as l:
        box = Box(l, "--control", ":0", slots=7, cores=3, listen=BOTH)
        said = [box.process.says(r"slots? %s at (\S+:\d+), (\S+:\d+)\n" % slots).groups()
                for slots in ("1, 4, 7", "2, 5", "3, 6")]
        for v4, v6 in said:
            check(v4.startswith("127.0.0.1:") and v6.startswith("[::1]:"), said)
        for kind in (0, 1):
            ports = [int(addresses[kind].rsplit(":", 1)[1]) for addresses in said]
            check(ports == list(range(ports[0], ports[0] + 3)), said)
        proxy = by_hand.Proxy(box.process)
        for slot in range(1, 8):
            check(by_hand.slot(l, proxy, slot)["note"] ==
                  "port %s" % said[(slot - 1) % 3][0].rsplit(":", 1)[1])
        for slot in (2, 7):
            for where in said[(slot - 1) % 3]:
                one = l.run("dxpu-host", "--box", where, "--slot", slot, "--json", *SOME)
                check(one.status == 0, one.errors())
            wrong = l.run("dxpu-host", "--box", said[slot % 3][0], "--slot", slot, "--json", *SOME)
            check(wrong.status == 4 and "no such slot" in wrong.errors(), wrong.errors())
        there = box.ends()
        # an open that is not answered in time is sent, and refused, again
        check(there["refused_slot"] >= 2 and there["refused_epoch"] == 0, there)


@case
def usage():
    with lab.Lab() as l:
        for args, word in ((("--slots", 2, "--cores", 3), "--slots"),
                           (("--slots", 200, "--cores", 65), "64"),
                           (("--slots", 4, "--cores", 0), "--cores"),
                           (("--slots", 4, "--cores", 2, "--listen", "*:65535"), "must be lower"),
                           (("--slots", 4, "--cores", 2, "--af-xdp", "lo"), "queue for each")):
            bad = l.run("dxpu-box", *args, seconds=10)
            check(bad.status == 2 and word in bad.errors(), args, bad.status, bad.errors())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            bad = l.run("dxpu-box", "--listen", "127.0.0.1:%d" % (port - 1), "--slots", 2,
                        "--cores", 2, seconds=10)
            check(bad.status == 3 and "in use" in bad.errors(), bad.errors())


@case
def a_thread_for_each_on_its_core():
    may = sorted(os.sched_getaffinity(0))
    with lab.Lab() as l:
        for cores in (1, 3):
            box = Box(l, cores=cores)
            box.process.says("CRC-32 by")
            did_well([box.load(l, cores, *SOME)])  # all run
            bound = cores_of_threads(box.process.popen.pid)
            check(bound[0] == may, bound)  # the last ones: a checker may have threads of its own
            check(bound[-cores:] == [[may[i % len(may)]] for i in range(cores)] if cores > 1
                  else all(b == may for b in bound), bound, may)
            box.ends()


@case
def captures_are_of_all_cores():
    with lab.Lab() as l:
        frames, tlps = l.file("frames.pcap"), l.file("tlps.pcap")
        box = Box(l, "--frames", frames, "--record", tlps, "--plain")  # sealed ones say nothing
        did_well([box.load(l, slot, *SOME, "--plain", node=slot) for slot in (1, 2, 3, 4)])
        there = box.ends()
        shown = l.run("dxpu", "pcap", "--json", frames)
        check(shown.status == 0, shown.errors()[:500])
        seen = [json.loads(line) for line in shown.output().splitlines()]
        check(sum("frame" in line for line in seen) ==
              sum(udp(there, core)[way + "_datagrams"] for core in (1, 2) for way in ("rx", "tx")))
        check(len(lab.read_tlps(tlps)) == there["delivered"], there["delivered"])


@case
def pictures_of_both_cores():
    with lab.Lab() as l:
        for slot in (1, 2):
            display, name = net_screenshot.Display(l, slot, cores=2), l.file("screen.png")
            want = display.draw(slot)
            by_hand.dxpu(l, "screenshot", display.box.control, slot, name)
            check(picture.read(name)[2] == want)
            dark = l.run("dxpu", "screenshot", display.box.control, 3 - slot, name)
            check(dark.status != 0 and "mode" in dark.errors(), dark.errors())
            by_hand.stops_well(display.box)


@case
def a_manager_reaches_both_cores():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = managed.start_box(l, m, "--slots", 4, "--cores", 2, "--memory", 4096)
        managed.start_host(l, m, "--slots", 4)
        b, h = m.link(BOX), m.link(HOST)
        check([b.slots[slot].port_offset for slot in (1, 2, 3, 4)] == [0, 1, 0, 1], b.slots)  # M-73
        check(b.paths == [box.process.address()], b.paths)
        for slot in (1, 2, 3, 4):
            there, _ = managed.lend(b, h, 10 + slot, slot, slot)
            check(there.epoch == 10 + slot, there)
        by_hand.until(lambda: {by_hand.slot(l, box, s)["state"] for s in (1, 2, 3, 4)} == {"up"},
                      "all up")
        managed.refused(managed.EPOCH, b.bind, 2, h.node, 2, 3)
        for slot in (1, 2):
            check(b.reset(slot, 10 + slot)[0] in (HELD, UP))
            by_hand.until(lambda: by_hand.slot(l, box, slot)["incarnations"] == 2, "again")
        b.drain(0, True)
        for slot in (1, 2, 3, 4):
            h.detach(slot)
            h.becomes(slot, EMPTY)
            keep = slot > 2
            check(b.unbind(slot, 10 + slot, keep)[0] in (WIPING, WIPED, KEPT))
            b.becomes(slot, KEPT if keep else WIPED)
            if not keep:
                managed.refused(managed.DRAINED, b.bind, slot, h.node, slot, 20 + slot)
        b.drain(2, False)
        check(b.bind(2, h.node, 2, 22) == (HELD, 22))
        managed.refused(managed.DRAINED, b.bind, 1, h.node, 1, 21)
        check(b.bind(4, h.node, 4, 24) == (HELD, 24))  # M-61: kept for it
        check(box.process.stop() == 0)
        with open(l.file("box.state")) as f:
            lines = [line.split() for line in f]
        check([(line[0], line[1], line[4]) for line in lines] ==
              [("1", "11", "wiped"), ("2", "22", "held"), ("3", "13", "kept"), ("4", "24", "held")],
              lines)


@case
def a_state_file_for_any_number_of_cores():
    with lab.Lab() as l:
        state = l.file("state")
        for cores, epoch in ((1, 5), (2, 6), (4, 7)):
            box = Box(l, "--state", state, cores=cores)
            for slot in (1, 2, 3, 4):
                for old in range(1, epoch - 4):
                    late = box.load(l, slot, *SOME, "--epoch", epoch - old, node=old + 1)
                    check(late.wait(20) == 4 and "--epoch" in late.errors(), late.errors())
            did_well([box.load(l, s, *SOME, "--epoch", epoch, node=1) for s in (1, 2, 3, 4)])
            box.ends()
            with open(state) as f:
                check([line.split()[:2] for line in f]
                      == [[str(s), str(epoch)] for s in range(1, 5)])


@case
def statistics_while_all_run():
    with lab.Lab() as l:
        box = Box(l, "--control", ":0", "--record", l.file("tlps.pcap"))
        hosts = [box.load(l, slot, *SOME[:-3], 10000, "--span", "32K") for slot in (1, 2, 3, 4)]
        proxy, n = by_hand.Proxy(box.process), 0
        while any(host.popen.poll() is None for host in hosts):
            box.process.popen.send_signal(signal.SIGUSR1)
            told = by_hand.dxpu(l, "status", proxy.control)["slots"]
            n += {s["slot"] for s in told} == {1, 2, 3, 4}
        did_well(hosts)
        check(n > 1 and box.process.errors().count("core_2") > 1, n)
        box.ends()


@case
def stops_gracefully():
    with lab.Lab() as l:
        box = Box(l, "--hold-ms", 20000)  # which it waits for its hosts, on a busy machine too
        hosts = [box.load(l, slot, "--load", "mixed", "--seconds", 60, "--span", "32K",
                          "--hold-ms", 20000, "--give-up-ms", 300) for slot in (1, 2, 3, 4)]
        for host in hosts:
            host.says("attached")
        by_hand.until(lambda: box.process.errors().count(" lent to ") == 4, "all are up")
        there = box.ends()
        for host in hosts:
            host.says("closed gracefully: .*shut")
            host.kill()
        for core in (1, 2):
            proxy = there["core_%d" % core]["proxy"]
            check(proxy["ended_close"] == 2 and proxy["ended_other"] == 0, there)


@case
def a_second_signal_reaches_all_cores():
    with lab.Lab() as l:
        box = Box(l, "--hold-ms", 60000)
        for slot in (1, 2):
            host = box.load(l, slot, "--load", "read", "--seconds", 60, "--hold-ms", 60000)
            host.says("attached")
            host.popen.send_signal(signal.SIGSTOP)  # it answers no close
        box.process.popen.send_signal(signal.SIGINT)
        time.sleep(0.3)
        check(box.process.popen.poll() is None, "it waits for the hosts")
        box.ends()


@case
def a_flood_of_one_port_does_not_reach_the_other():
    """The control: one core has both."""
    for cores in (1, 2):
        with lab.Lab() as l:
            box = Box(l, cores=cores)
            steady = box.load(l, 2, *SOME, "--hold-ms", 20000, node=2)
            sent, where = 0, (box.host, box.port)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                while steady.popen.poll() is None and sent < 10**7 or sent < 20000:
                    s.sendto(b"no frame of any version" + bytes(sent % 800), where)
                    sent += 1
            did_well([steady])
            there = box.ends()
            if cores == 1:
                check(there["proxy"]["not_frames"] > 1000 < there["udp"]["rx_datagrams"], there)
                check(there["proxy"]["opens_accepted"] == 1)
            else:
                check(there["core_1"]["proxy"]["not_frames"] > 1000, there)
                check(there["core_1"]["proxy"]["opens_accepted"] == 0, there)
                check(there["core_2"]["proxy"]["not_frames"] == 0, there)
                check(there["core_2"]["proxy"]["opens_accepted"] == 1, there)


@case
def a_loop_that_waits_does_not_stop_another():
    """It waits for its state file, which is not read, where it has no threads for that.  The
    control: with one core all wait."""
    for cores in (1, 2):
        with lab.Lab() as l:
            state = l.file("state")
            box = Box(l, "--state", state, "--hold-ms", 1000, "--disk-threads", 0, cores=cores)
            steady = box.load(l, 2, "--load", "mixed", "--span", "32K", "--seconds", 4, node=2)
            box.process.says("slot 2: lent to")  # and that is in the file
            os.mkfifo(state + ".new")  # a writer waits for a reader
            new = box.load(l, 1, *SOME, "--give-up-ms", 2500)
            if cores == 1:
                steady.says("channel lost: no frame")
            else:
                check(new.wait(30) == 4, new.errors())
                did_well([steady])
                check(steady.result()["incarnations"] == 1, steady.errors())
            check("lent to node 1" not in box.process.errors(), box.process.errors())
            reader = os.open(state + ".new", os.O_RDONLY | os.O_NONBLOCK)
            by_hand.until(lambda: "not granted" in box.process.errors(), "that it goes on")
            os.remove(state + ".new")
            os.close(reader)
            box.ends()


@case
def s165_loops_wait_for_no_state_file():
    """The file is not read: a host is not let in, of one loop or two, and neither waits for it."""
    for cores in (1, 2):
        with lab.Lab() as l:
            state = l.file("state")
            box = Box(l, "--state", state, "--hold-ms", 1000, cores=cores)
            steady = box.load(l, 2, "--load", "mixed", "--span", "32K", "--seconds", 4, node=2)
            box.process.says("slot 2: lent to")
            os.mkfifo(state + ".new")
            new = box.load(l, 1, *SOME, "--hold-ms", 60000)
            did_well([steady])
            check(steady.result()["incarnations"] == 1, steady.errors())
            check("lent to node 1" not in box.process.errors(), box.process.errors())
            reader = os.open(state + ".new", os.O_RDONLY | os.O_NONBLOCK)
            by_hand.until(lambda: "not granted" in box.process.errors(), "that it goes on")
            os.remove(state + ".new")
            os.close(reader)
            check(new.wait(30) == 4, new.errors())  # it is refused
            did_well([box.load(l, 1, *SOME)])  # the next one is let in
            box.ends()


# ---- Several guests of one host ----

def two_guests(l, *args, listen=V4):
    """A host, and the sockets of its guests."""
    paths = [l.file("vm1"), l.file("vm2")]
    host = l.start("dxpu-host", "--vfio-user", ",".join(paths), "--slots", 2, "--topology",
                   "root-ports", "--listen", listen, "--json", *args)
    for path in paths:
        host.says("waiting for a guest at " + path)
    return host, paths


def ports_of(host):
    """The control port of each guest."""
    return host.says(r"control port (\S+:\d+)\n(?:.*\n)*.*control port (\S+:\d+)\n").groups()


def connected(path):
    guest = vfio_client.Client(path)
    guest.map_slot()
    guest.filled()
    guest.map_device(low=1, high=0)
    return guest


def written_is_read(guest, seed, count=300):
    """Each guest its own words; what is wrong."""
    values = [(seed << 24 | i * 2654435761 & 0xffffff) for i in range(count)]
    for i, value in enumerate(values):
        guest.write(WINDOW, BASE + 4 * i, value.to_bytes(4, "little"), posted=True)
    return [i for i, value in enumerate(values) if guest.read32(WINDOW, BASE + 4 * i) != value]


@case
def guests_have_their_own_slots_and_loops():
    with lab.Lab() as l:
        box = Box(l, slots=2)
        host, paths = two_guests(l, "--attach", "1=%s/1;1=%s/2" % (box.at(1), box.at(2)))
        guests, wrong = [connected(path) for path in paths], [None, None]
        may = sorted(os.sched_getaffinity(0))
        worker = dict(host.children())["dxpu-worker"]
        check(cores_of_threads(worker)[-2:] == [[may[i % len(may)]] for i in (0, 1)])

        def use(n):
            wrong[n] = written_is_read(guests[n], n + 1)
        threads = [threading.Thread(target=use, args=(n,)) for n in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(wrong == [[], []], wrong)
        check([guest.read32(WINDOW, BASE) >> 24 for guest in guests] == [1, 2])
        guests[0].socket.close()  # one guest ends, the other one does not notice
        check(written_is_read(guests[1], 7) == [])
        check(host.stop() == 0, host.errors())
        there, boxes = host.result(), box.ends()
        check(set(there) == {"guest_1", "guest_2"}, there)
        for n in (1, 2):
            at = there["guest_%d" % n]
            check(at["memory_writes"] >= 300 and at["slot_1"]["up_tlps"] > 300, at)
            check(at["udp"]["rx_datagrams"] > 100, at)
            check(boxes["slot_%d" % n]["memory"]["writes"] > 0, boxes)
        check(there["guest_2"]["memory_writes"] > there["guest_1"]["memory_writes"] or
              there["guest_2"]["slot_1"]["down_tlps"] > there["guest_1"]["slot_1"]["down_tlps"])


def lingering():
    """A socket whose last close() waits for its other end, which is the second."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
    near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while near.send(bytes(65536)):
            pass
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    return near, far


@case
def a_hostile_guest_harms_no_other():
    """S-171, S-172, behind the filter of system calls: descriptors whose close waits, and memory
    that is taken away while a device reads it."""
    source, target, size, command, state = 0x0c, 0x14, 0x1c, 4, 8  # of the endpoint-test device
    with lab.Lab() as l, contextlib.ExitStack() as stack:
        box = Box(l, "--device", "eptest", slots=2)
        host, paths = two_guests(l, "--attach", "1=%s/1;1=%s/2" % (box.at(1), box.at(2)))
        guests = [vfio_client.Client(path) for path in paths]
        memory = os.memfd_create("guest")
        stack.callback(os.close, memory)
        os.truncate(memory, 1 << 20)
        for guest in guests:
            guest.map_memory(1 << 20, 1 << 20, memory)
            guest.map_slot()
            guest.filled()
            guest.map_device(low=0, high=4)

        def copies(guest):
            for register, value in ((source, 1 << 20), (target, (1 << 20) + 4096), (size, 128),
                                    (state, 0), (command, 0x20)):
                guest.write32(vfio_client.LOW, register, value)
            by_hand.until(lambda: guest.read32(vfio_client.LOW, state), "the copy's end")
            return guest.read32(vfio_client.LOW, state) & 0x10 != 0
        check([copies(guest) for guest in guests] == [True, True])
        os.truncate(memory, 0)
        check([copies(guest) for guest in guests] == [False, False])
        os.truncate(memory, 1 << 20)
        for _ in range(40):  # reading stops after some of them
            near, far = lingering()
            stack.callback(far.close)
            message = struct.pack("<HHIII", 1, vfio_client.SET_IRQS, 16, 0, 0)
            socket.send_fds(guests[0].socket, [message[:1]], [near.fileno()])
            near.close()  # the host keeps it until the message is whole: its close is the last
            guests[0].socket.sendall(message[1:])
        check(copies(guests[1]))
        guests[0].socket.close()
        check(copies(guests[1]))
        check(host.stop() == 0, host.errors())
        for n in (1, 2):
            there = host.result()["guest_%d" % n]["vfio_user"]
            check(there["dma_faults"] >= 1, there)
        check(host.result()["guest_1"]["vfio_user"]["fds_closed"] == 16, host.result()["guest_1"])
        check(box.process.stop() == 0)


@case
def guests_are_hosts_of_their_own_to_a_manager():
    with lab.Lab(plain=True) as l, fm.Manager() as m:
        box = managed.start_box(l, m, "--slots", 4, "--cores", 2, "--memory", 4096)
        host, _ = two_guests(l, "--control", ":0", "--manager", m.address, "--identity",
                             l.file("host.id"), "--name", "host")
        b = m.link(BOX)
        m.until(lambda: sum(k.role == HOST and k.registered for k in m.links) == 2, "two hosts")
        one, two = (k for k in m.links if k.role == HOST)
        links = {link.name: link for link in (one, two)}
        check(set(links) == {"host", "host-2"}, links)
        check(one.identity != two.identity and one.node != two.node and b.node != one.node)
        with open(l.file("host.id.2")) as f:
            check(bytes.fromhex(f.read()) == links["host-2"].identity)
        for slot, name in ((1, "host"), (2, "host-2"), (3, "host-2"), (4, "host")):
            managed.lend(b, links[name], 10 + slot, slot, 1 + slot % 2)
        for control, name, slots in zip(ports_of(host), ("host", "host-2"), ((4, 1), (2, 3))):
            there = by_hand.dxpu(l, "status", control)
            check(there["node"] == links[name].node and
                  [s["peer_slot"] for s in there["slots"]] == list(slots), there)
        links["host"].detach(1)
        links["host"].becomes(1, EMPTY)
        b.becomes(4, HELD)
        check(b.slots[2].state == b.slots[3].state == UP, b.slots)
        check(host.stop() == 0 and box.process.stop() == 0, host.errors())


@case
def a_guest_takes_the_next_port():
    with lab.Lab() as l:
        two = Box(l, slots=2)  # two ports in a row that are free
        port = two.port
        two.ends()
        box = Box(l, slots=2)
        host, paths = two_guests(l, "--attach", "1=%s/1;1=%s/2" % (box.at(1), box.at(2)),
                                 "--frames", l.file("frames.pcap"), listen="127.0.0.1:%d" % port)
        guests = [connected(path) for path in paths]
        check([written_is_read(guest, 3, 20) for guest in guests] == [[], []])
        for n in (1, 2):
            box.process.says("slot %d: lent to node %d at 127.0.0.1:%d," % (n, n, port + n - 1))
        check(host.stop() == 0, host.errors())
        shown = l.run("dxpu", "pcap", "--json", l.file("frames.pcap"))
        seen = [json.loads(line) for line in shown.output().splitlines()]
        there = host.result()
        check(sum("frame" in line for line in seen) ==
              sum(there["guest_%d" % n]["udp"][way + "_datagrams"] for n in (1, 2)
                  for way in ("rx", "tx")), shown.errors()[:300])


@case
def usage_of_several_guests():
    with lab.Lab() as l:
        two = ("--vfio-user", "%s,%s" % (l.file("a"), l.file("b")), "--slots", 2)
        for args, word in ((("--vfio-user", l.file("a") + ",", "--slots", 2), "an empty name"),
                           (two + ("--attach", "1=[::1]:1/1;1=127.0.0.1:1/2;"), "more lists"),
                           (two + ("--attach", ";3=127.0.0.1:1/2"), "--attach"),
                           (two + ("--control", "65535"), "port must be lower"),
                           (two + ("--listen", "*:65535"), "port must be lower"),
                           (two + ("--node", 2**32 - 1), "32 bits"),
                           (("--vfio-user", ",".join(map(str, range(65)))), "64 guests")):
            bad = l.run("dxpu-host", *args, seconds=10)
            check(bad.status == 2 and word in bad.errors(), args, bad.status, bad.errors())


if __name__ == "__main__":
    sys.exit(main())
