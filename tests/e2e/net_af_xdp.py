#!/usr/bin/env python3
"""dxpu-host and dxpu-box by AF_XDP and by UDP sockets, in network namespaces of their own.

Host and box stand on both sides of a router, joined by veth; the relay of bad networks runs on
the router.  Needs root, ip and a kernel with AF_XDP; else every case is skipped.
Prints `ok NAME`, `not ok NAME` or `skip NAME reason`.  Programs: $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402

IP = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
GOOD = dict(altered=0, lost=0, doubled=0, reordered=0)
MIXED = ("--load", "mixed", "--size", 256, "--depth", 16, "--count", 2000, "--span", "64K")
# host, router towards it, router towards the box, box
V4 = ("10.9.1.1", "10.9.1.2", "10.9.2.2", "10.9.2.1")
V6 = ("fd09:1::1", "fd09:1::2", "fd09:2::2", "fd09:2::1")
H, B = "h0,0-1", "b0,0-1"  # a sender that is a UDP socket uses either queue


def ip(*words, may_fail=False):
    done = subprocess.run([IP, *[str(w) for w in words]], capture_output=True, text=True)
    if done.returncode and not may_fail:
        raise RuntimeError("ip %s: %s" % (" ".join(map(str, words)), done.stderr.strip()))
    return done.stdout


def ip_batch(lines, *options, may_fail=False):
    """Commands of ip, one a line, by one process."""
    done = subprocess.run([IP, *options, "-batch", "-"], input="\n".join(lines) + "\n",
                          capture_output=True, text=True)
    if done.returncode and not may_fail:
        raise RuntimeError("ip %s %s: %s" % (" ".join(options), lines, done.stderr.strip()))


def at(address, port):
    return ("[%s]:%d" if ":" in address else "%s:%d") % (address, port)


class Net(lab.Lab):
    """Namespaces `host`, `router`, `box`; interfaces h0 - r0, r1 - b0."""

    def __init__(self):
        super().__init__()
        self.space = {n: "dxpu-%d-%s" % (os.getpid(), n) for n in ("host", "router", "box")}

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        queues = "numrxqueues 2 numtxqueues 2"
        ip_batch(["netns add " + name for name in self.space.values()] + [
            "link add %s %s netns %s type veth peer name %s %s netns %s" %
            (inner, queues, self.space[one], outer, queues, self.space["router"])
            for one, inner, outer in (("host", "h0", "r0"), ("box", "b0", "r1"))])
        for where, devices, router in (("router", (("r0", 1), ("r1", 2)), None),
                                       ("host", (("h0", 0),), 1), ("box", (("b0", 3),), 2)):
            lines = ["link set lo up"]
            for device, index in devices:
                # veth hands on what UDP segmentation left joined; a card does not
                lines += ["link set %s gso_max_segs 1 up" % device,
                          "addr add %s/24 dev %s" % (V4[index], device),
                          "addr add %s/64 dev %s nodad" % (V6[index], device)]
            if router:
                lines += ["route add default via " + of[router] for of in (V4, V6)]
            ip_batch(lines, "-n", self.space[where])
        self.inside("router", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward && "
                    "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")

    def __exit__(self, *unused):
        super().__exit__(*unused)
        ip_batch(["netns del " + name for name in self.space.values()], "-force", may_fail=True)

    def ip(self, where, *words):
        return ip("-n", self.space[where], *words)

    def inside(self, where, *words, data=None):
        """Run to its end; its output."""
        done = subprocess.run([IP, "netns", "exec", self.space[where], *words], input=data,
                              capture_output=True, timeout=60)
        check(done.returncode == 0, words, done.stderr.decode())
        return done.stdout.decode()

    def there(self, where, name, *args):
        """Start a program of ours in a namespace."""
        if name in lab.PROXIES:
            args += self.keys(name)
        return self.start(IP, "netns", "exec", self.space[where], os.path.join(lab.BIN, name),
                          *args)

    def box(self, *args):
        box = self.there("box", "dxpu-box", "--json", *args)
        box.says(r" slots? at ")
        return box

    def has_program(self):
        return "prog/xdp" in self.ip("box", "link", "show", "b0")


def through(address, host_xdp, box_xdp, *load, faults=(), listen="%s", host_args=()):
    """One verified load; results of host, box and relay."""
    with Net() as n:
        sent, got = n.file("sent.pcap"), n.file("got.pcap")
        box_at, to = at(address[3], 4458), at(address[3], 4458)
        box = n.box("--listen", listen % box_at, "--record", got,
                    *(("--af-xdp", box_xdp) if box_xdp else ()))
        relay = None
        if faults:
            to = at(address[1], 4459)
            relay = n.there("router", "dxpu-relay", "--listen", to, "--to", box_at, "--json",
                            *faults)
            relay.address()
        host = n.there("host", "dxpu-host", "--box", to, "--record", sent, "--json", *host_args,
                       *(load or MIXED), *(("--af-xdp", host_xdp) if host_xdp else ()))
        status = host.wait(60)
        box_status = box.stop()
        if relay:
            relay.stop()
        result, there = host.result(), box.result()
        check(status == 0, "host", status, host.errors(), box.errors())
        check(box_status == 0, "box", box_status, box.errors())
        check(result["mismatched"] == 0 and result["unanswered"] == 0, result)
        fate = lab.compare(sent, got)
        check(fate["sent"] == fate["delivered"] > 0 and all(not fate[k] for k in GOOD), fate)
        return result, there, relay.result() if relay else {}


def took_it_all(end, how="native, copy"):
    """The AF_XDP way was used both ways; only what waited for a neighbour went by the socket."""
    xdp, udp = end["af_xdp"], end["udp"]
    check(xdp["mode"] == how, xdp)
    check(xdp["rx_datagrams"] > 100 and udp["rx_datagrams"] == 0, xdp, udp)
    check(xdp["tx_datagrams"] > 100, xdp, udp)
    check(udp["tx_datagrams"] == xdp["tx_elsewhere"] + xdp["tx_refresh"] + xdp["tx_full"], xdp, udp)
    for drop in ("rx_not_ours", "rx_length", "rx_fragment", "rx_checksum", "rx_source",
                 "tx_errors"):
        check(xdp[drop] == 0, drop, xdp)


def both_ends(address):
    for host_xdp, box_xdp in ((H, B), (H, None), (None, B), (None, None)):
        host, box, _ = through(address, host_xdp, box_xdp)
        for end, used in ((host, host_xdp), (box, box_xdp)):
            if used:
                took_it_all(end)
            else:  # the control: the counters distinguish the ways
                check("af_xdp" not in end and end["udp"]["rx_datagrams"] > 100, end["udp"])


@case
def with_and_without_v4():
    both_ends(V4)


@case
def with_and_without_v6():
    both_ends(V6)


def bad_network(per_mille, seed):
    return ("--loss", per_mille, "--duplicate", per_mille, "--reorder", per_mille,
            "--corrupt", per_mille, "--seed", seed)


def bad(address, seed):
    host, box, faults = through(address, H, B, faults=bad_network(30, seed))
    took_it_all(host)
    took_it_all(box)
    check(host["retransmits"] > 0, host)
    for fault in ("lost", "duplicated", "reordered", "corrupted"):
        check(faults[fault] > 0, faults)


@case
def bad_3_percent_v4():
    bad(V4, 31)


@case
def bad_3_percent_v6():
    bad(V6, 32)


@case
def generic_mode():
    host, box, _ = through(V4, H + ",generic", B + ",generic")
    took_it_all(host, "generic, copy")
    took_it_all(box, "generic, copy")


@case
def waiting_modes():
    for wait in ("block", "busy"):
        host, _, _ = through(V4, H, B, "--load", "read", "--count", 400, "--span", "4K",
                             "--wait", wait)
        check(host["reads"] == 400, wait, host)
    through(V4, H + ",busy-poll", B + ",busy-poll", "--load", "read", "--count", 400)


@case
def wildcards_and_a_fixed_next_hop():
    with Net() as n:
        box = n.box("--listen", "0.0.0.0:4458,[::]:4458", "--af-xdp", B)
        mac = n.ip("router", "link", "show", "r0").split("link/ether ")[1].split()[0]
        for address in (V4, V6):
            host = n.there("host", "dxpu-host", "--box", at(address[3], 4458), "--json", *MIXED,
                           "--af-xdp", H + ",mac=" + mac, "--listen", at(address[0], 0))
            check(host.wait(60) == 0, host.errors())
            xdp = host.result()["af_xdp"]
            check(xdp["tx_elsewhere"] == 0 and xdp["lookups"] == 0, xdp)
            took_it_all(host.result())
        check(box.stop() == 0, box.errors())
        took_it_all(box.result())


@case
def queues():
    """What arrives on a queue that has no AF_XDP socket is the kernel's.  The router chooses the
    queue, so each is tried until both ways were seen."""
    by_xdp = by_socket = 0
    for attempt in range(40):
        if by_xdp > 100 and by_socket > 100:
            break
        _, box, _ = through(V4, None, "b0,%d" % (attempt % 2))
        by_xdp += box["af_xdp"]["rx_datagrams"]
        by_socket += box["udp"]["rx_datagrams"]
    check(by_xdp > 100 and by_socket > 100, by_xdp, by_socket)


@case
def two_cores_share_an_interface():
    """Each core has a port and a queue.  A queue's packets for the other core's port are the
    kernel's; the router chooses the queue, so it is tried until all four ways were seen."""
    seen = {(core, way): 0 for core in (1, 2) for way in ("af_xdp", "udp")}
    with Net() as n:
        for _ in range(20):
            box = n.box("--listen", at(V4[3], 4458), "--slots", 2, "--cores", 2, "--af-xdp", B)
            for slot in (1, 2):  # packets by AF_XDP spread over the router's queues
                host = n.there("host", "dxpu-host", "--box", at(V4[3], 4457 + slot), "--slot", slot,
                               "--node", slot, "--json", *MIXED, "--af-xdp", H)
                check(host.wait(60) == 0 and host.result()["mismatched"] == 0, host.errors())
            check(box.stop() == 0, box.errors())
            for core in (1, 2):
                told = box.result()["core_%d" % core]
                check(told["af_xdp"]["rx_not_ours"] == 0, told["af_xdp"])
                check(told["af_xdp"]["tx_datagrams"] > 100, told["af_xdp"])
                for way in ("af_xdp", "udp"):
                    seen[core, way] += told[way]["rx_datagrams"]
            if min(seen.values()) > 100:
                break
        check(min(seen.values()) > 100, seen)


ECHO = """
import select, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
tcp = socket.socket(family, socket.SOCK_STREAM)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
tcp.bind((sys.argv[1], 4458))
tcp.listen()
udp = socket.socket(family, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 4457))
print("waiting", file=sys.stderr, flush=True)
while tcp not in select.select([tcp, udp], [], [])[0]:
    data, where = udp.recvfrom(65536)
    udp.sendto(data, where)
there, _ = tcp.accept()
there.sendall(there.recv(65536))
there.close()
"""
ASK = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
udp = socket.socket(family, socket.SOCK_DGRAM)
udp.settimeout(0.3)
for _ in range(100):  # full queues may lose it
    udp.sendto(b"u" * int(sys.argv[2]), (sys.argv[1], 4457))
    try:
        print(len(udp.recv(65536)))
        break
    except TimeoutError:
        pass
tcp = socket.create_connection((sys.argv[1], 4458), 10)
tcp.sendall(b"tcp")
print(tcp.recv(10).decode())
"""


@case
def other_traffic_passes():
    """UDP to another port, in fragments too, and TCP to the same port, while the box is busy."""
    with Net() as n:
        box = n.box("--listen", ",".join(at(a[3], 4458) for a in (V4, V6)), "--af-xdp", B)
        host = n.there("host", "dxpu-host", "--box", at(V4[3], 4458), "--load", "mixed",
                       "--seconds", 30, "--af-xdp", H, "--json")
        host.says("attached")
        for address in (V4, V6):
            for size in (100, 5000):
                echo = n.start(IP, "netns", "exec", n.space["box"], sys.executable, "-c", ECHO,
                               address[3])
                echo.says("^waiting")
                said = n.inside("host", sys.executable, "-c", ASK, address[3], str(size))
                check(said.split() == [str(size), "tcp"], said)
                check(echo.wait(10) == 0, echo.errors())
        check(host.stop() == 0 and host.result()["mismatched"] == 0, host.errors())
        check(box.stop() == 0)
        took_it_all(box.result())


def checksum(data):
    total = sum(struct.unpack("!%dH" % ((len(data) + 1) // 2), data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(source, destination, payload, fragment=0x4000, udp_len=None, damage=0):
    """An IPv4 packet to port 4458."""
    a, b = socket.inet_aton(source), socket.inet_aton(destination)
    length = 8 + len(payload)
    udp = struct.pack("!HHHH", 999, 4458, length if udp_len is None else udp_len, 0)
    right = checksum(a + b + struct.pack("!BBH", 0, 17, length) + udp + payload)
    udp = udp[:6] + struct.pack("!H", right ^ damage)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, fragment, 64, 17, 0) + a + b
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp + payload


SEND = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("r1", 0))
for line in sys.stdin:
    s.send(bytes.fromhex(line))
"""


@case
def hostile_packets_are_counted():
    with Net() as n:
        box = n.box("--listen", at(V4[3], 4458), "--af-xdp", B)
        mac = [n.ip(w, "link", "show", d).split("link/ether ")[1].split()[0].replace(":", "")
               for w, d in (("box", "b0"), ("router", "r1"))]
        ethernet = bytes.fromhex("".join(mac) + "0800")
        us = V4[3]
        packets = ([packet(V4[2], us, b"no frame")] + [packet(V4[2], us, b"x", damage=1)] * 2 +
                   [packet(V4[2], us, b"x", udp_len=2000)] * 3 +
                   [packet("224.0.0.1", us, b"x")] * 4 +
                   [packet(V4[2], us, b"x" * 64, fragment=0x2000)] * 5 +
                   [packet(V4[2], "10.9.2.77", b"x")] * 6)
        lines = "".join((ethernet + p).hex() + "\n" for p in packets)
        n.inside("router", sys.executable, "-c", SEND, data=lines.encode())
        host = n.there("host", "dxpu-host", "--box", at(us, 4458), "--json", *MIXED)
        check(host.wait(60) == 0 and host.result()["mismatched"] == 0, host.errors())
        check(box.stop() == 0)
        there = box.result()
        xdp = there["af_xdp"]
        check(there["proxy"]["not_frames"] == 1, there["proxy"])
        check((xdp["rx_checksum"], xdp["rx_length"], xdp["rx_source"]) == (2, 3, 4), xdp)
        # fragments and other addresses are left to the kernel
        check(xdp["rx_fragment"] == 0 and xdp["rx_not_ours"] == 0, xdp)


@case
def killed_process_leaves_no_program():
    with Net() as n:
        where = ("--listen", at(V4[3], 4458), "--af-xdp", "b0,0")
        box = n.box(*where)
        check(n.has_program())  # the control
        second = n.there("box", "dxpu-box", "--listen", at(V4[3], 4470), "--af-xdp", "b0,1")
        check(second.wait(20) == 3 and "another XDP program" in second.errors(), second.errors())
        third = n.there("box", "dxpu-box", "--listen", at(V4[3], 4471), "--af-xdp", "b0,0")
        check(third.wait(20) == 3 and "another AF_XDP socket" in third.errors(), third.errors())
        check(n.has_program())
        box.kill()
        end = time.monotonic() + 10
        while n.has_program() and time.monotonic() < end:
            time.sleep(0.05)
        check(not n.has_program())
        again = n.box(*where)  # at once: the queue may not be free yet
        check(again.stop() == 0, again.errors())
        check(not n.has_program())


def held(pid):
    """Capabilities that any thread of a process has, permitted or effective, as one number; and the
    number of its threads."""
    held = 0
    tasks = os.listdir("/proc/%d/task" % pid)
    for task in tasks:
        with open("/proc/%d/task/%s/status" % (pid, task), encoding="ascii") as file:
            for value in re.findall(r"^Cap(?:Prm|Eff):\s+(\w+)$", file.read(), re.M):
                held |= int(value, 16)
    return held, len(tasks)


def without_rights(n, *how):
    """A box of two cores that has served a load, after no thread of it was seen with a capability.
    With --no-sandbox alone they must have some: the control."""
    keeps = how == ("--no-sandbox",)

    def there(where, name, *args):  # without keys: their files are for one user
        return n.start(IP, "netns", "exec", n.space[where], os.path.join(lab.BIN, name),
                       "--plain", "--plain-network", "--json", *how, *args)
    box = there("box", "dxpu-box", "--listen", at(V4[3], 4458), "--slots", 2, "--cores", 2,
                "--af-xdp", B)
    box.says(r" slots? at ")
    host = there("host", "dxpu-host", "--box", at(V4[3], 4458), *MIXED, "--af-xdp", H)
    check(host.wait(60) == 0 and host.result()["mismatched"] == 0, how, host.errors())
    found, threads = held(box.popen.pid)
    check(threads >= 3 and bool(found) == keeps, how, hex(found), threads)
    check(n.has_program(), how)
    return box


@case
def s200_no_rights_after_the_start():
    """However it ends, the XDP program is detached, which needs no right."""
    with Net() as n:
        for how in ((), ("--user", "nobody"), ("--user", "nobody", "--no-sandbox"),
                    ("--no-sandbox",)):
            box = without_rights(n, *how)
            check(box.stop() == 0, how, box.errors())
            check(not n.has_program(), how)
            check(box.result()["core_1"]["af_xdp"]["tx_datagrams"] > 100, how, box.result())
        box = without_rights(n)
        box.kill()
        end = time.monotonic() + 10
        while n.has_program() and time.monotonic() < end:
            time.sleep(0.05)
        check(not n.has_program())


@case
def s200_a_guests_processes():
    """The worker, which is made late, opens AF_XDP and gives up its rights; so does the keeper.
    The parent, which makes the next worker, keeps them: the control."""
    with Net() as n:
        host = n.there("host", "dxpu-host", "--vfio-user", n.file("vm.sock"), "--listen",
                       at(V4[0], 0), "--af-xdp", H)
        host.says(r"AF_XDP on h0")
        host.says(r"waiting for a guest")
        parent = host.popen.pid
        with open("/proc/%d/task/%d/children" % (parent, parent), encoding="ascii") as file:
            children = [int(pid) for pid in file.read().split()]
        check(len(children) == 2 and held(parent)[0], children)
        end = time.monotonic() + 10
        while any(held(pid)[0] for pid in children) and time.monotonic() < end:
            time.sleep(0.05)
        check(not any(held(pid)[0] for pid in children), [hex(held(p)[0]) for p in children])
        check(host.stop() == 0, host.errors())
        check("prog/xdp" not in n.ip("host", "link", "show", "h0"))


@case
def old_neighbour_is_asked_again():
    """The kernel's entry goes stale, since AF_XDP's sending does not use it; a datagram by the
    socket makes the kernel confirm it."""
    with Net() as n:
        box = n.box("--listen", at(V4[3], 4458))
        host = n.there("host", "dxpu-host", "--box", at(V4[3], 4458), "--load", "mixed",
                       "--seconds", 60, "--af-xdp", H, "--json")
        host.says("attached")
        before = host.statistics()["tx_refresh"]
        mac = n.ip("router", "link", "show", "r0").split("link/ether ")[1].split()[0]
        n.ip("host", "neigh", "replace", V4[1], "lladdr", mac, "dev", "h0", "nud", "stale")
        check("STALE" in n.ip("host", "neigh", "show", V4[1]))
        end = time.monotonic() + 15
        while "STALE" in n.ip("host", "neigh", "show", V4[1]) and time.monotonic() < end:
            time.sleep(0.1)
        check("STALE" not in n.ip("host", "neigh", "show", V4[1]))
        check(host.statistics()["tx_refresh"] > before)
        check(host.stop() == 0 and host.result()["mismatched"] == 0, host.errors())
        check(box.stop() == 0)


@case
def what_is_missing_is_said():
    with Net() as n:
        good = ("--listen", at(V4[3], 4458))
        drop = shutil.which("setpriv")
        for status, words, args in (
                (3, "no such network interface", (*good, "--af-xdp", "b7")),
                (3, "veth", ("--af-xdp", "lo")),
                (3, "ip address", ("--listen", "127.0.0.1:4458", "--af-xdp", B)),
                (3, "no such queue", (*good, "--af-xdp", "b0,9")),
                (2, "behind the interface", (*good, "--af-xdp", "b0,quick")),
                (2, "queue for each", (*good, "--slots", 2, "--cores", 2, "--af-xdp", "b0,1")),
                (2, "3826", (*good, "--af-xdp", "b0", "--mtu", 9000))):
            wrong = n.there("box", "dxpu-box", *args)
            check(wrong.wait(20) == status and words in wrong.errors(), words, wrong.errors())
        if drop:
            def with_rights(rights):
                return n.start(IP, "netns", "exec", n.space["box"], drop, "--inh-caps=-all",
                               "--bounding-set=-all" + rights, os.path.join(lab.BIN, "dxpu-box"),
                               *good, "--af-xdp", "b0")

            for rights in ("", ",+net_raw,+net_admin", ",+net_raw,+bpf", ",+net_admin,+bpf"):
                wrong = with_rights(rights)
                check(wrong.wait(20) == 3 and "CAP_NET_RAW" in wrong.errors(), wrong.errors())
            right = with_rights(",+net_raw,+net_admin,+bpf")  # the control: what is named is enough
            right.says(" slots? at ")
            check(right.stop() == 0, right.errors())
        check(n.box(*good, "--af-xdp", B).stop() == 0)  # the control


@case
def ping_pong():
    with Net() as n:
        for address in (V4, V6):
            to = at(address[3], 4460)
            echo = n.there("box", "dxpu-pingpong", "--listen", to, "--af-xdp", B)
            echo.address()
            ping = n.there("host", "dxpu-pingpong", "--to", to, "--af-xdp", H, "--count", 500,
                           "--json")
            check(ping.wait(60) == 0, ping.errors())
            check(ping.result()["rtt_us"]["count"] + ping.result()["lost"] == 500, ping.output())
            check(echo.stop() == 0, echo.errors())


def why_not():
    """What is missing here, or None."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces and AF_XDP"
    if not IP:
        return "needs ip, Debian package iproute2"
    version = subprocess.run([os.path.join(lab.BIN, "dxpu-host"), "--version"],
                             capture_output=True, text=True).stdout
    if "AF_XDP by none" in version:
        return "built without libxdp; install libxdp-dev and libbpf-dev"
    try:
        with Net():
            pass
    except RuntimeError as error:
        return "no network namespaces with veth here: %s" % error
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
    except OSError as error:
        return "no AF_XDP in this kernel: %s" % error
    return None


if __name__ == "__main__":
    sys.exit(main(why_not()))
