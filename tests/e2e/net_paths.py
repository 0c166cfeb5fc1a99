#!/usr/bin/env python3
"""One channel over several paths: cut, back, spread, too narrow, moved; nothing is lost.

Prints `ok NAME`, `not ok NAME` or `skip NAME reason` for each case, and the longest gap between two
answers while a path was cut.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import ctypes
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402

LOAD = ("--load", "mixed", "--size", 512, "--depth", 8, "--seconds", 60, "--span", "64K", "--json")
SOME = ("--load", "mixed", "--size", 512, "--depth", 8, "--count", 1000, "--span", "64K", "--json")
FULL_BYTES, SMALL_BYTES = 1472, 1232  # frame limits: of 1,500 bytes of MTU over IPv4, the least
KIND, PATH, DATA, OPEN = 3, 7, 1, 4  # offsets in a frame, kinds


HOLD_MS = 10000  # of channels: on a busy machine a program may have no turn for a second


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, "waited in vain for", what)
        time.sleep(0.01)


class Line(threading.Thread):
    """A UDP relay in this process, each direction of which can be cut, marked or looked at."""

    def __init__(self, to):
        super().__init__(daemon=True)
        host, port = to.rsplit(":", 1)
        self.kind = socket.AF_INET6 if host[0] == "[" else socket.AF_INET
        self.to = (host.strip("[]"), int(port))
        self.front, self.back = self.socket(), self.socket()
        self.client = None
        self.cut = set()  # of "up", "down"
        self.ecn = 0  # of what leaves here
        self.tos, self.up, self.dropped = set(), [], 0
        self.to_hold, self.held = 0, []  # of those to the box
        self.answers = set()  # where they come from
        self.over = False
        self.start()

    def socket(self):
        s = socket.socket(self.kind, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
        s.bind(("::1" if self.kind == socket.AF_INET6 else "127.0.0.1", 0))
        return s

    def address(self):
        host, port = self.front.getsockname()[:2]
        return "%s:%d" % ("[%s]" % host if ":" in host else host, port)

    def move(self):
        """What is sent to the box comes from another port from now on."""
        self.back = self.socket()

    def pass_up(self):
        data, control, _, self.client = self.front.recvmsg(65536, 64)
        self.tos |= {value[0] for _, kind, value in control if kind == socket.IP_TOS}
        self.up = self.up[-99:] + [data]
        self.send("up", self.back, data, self.to)

    def send(self, way, by, data, to):
        if way in self.cut:
            self.dropped += 1
            return
        if way == "up" and self.to_hold:
            self.to_hold -= 1
            self.held.append(data)
            return
        by.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.ecn)
        by.sendto(data, to)

    def run(self):
        while not self.over:
            back = self.back
            for s in select.select([self.front, back], [], [], 0.05)[0]:
                if s is self.front:
                    self.pass_up()
                else:
                    data, by = back.recvfrom(65536)
                    self.answers.add(by[:2])
                    self.send("down", self.front, data, self.client)

    def stop(self):
        self.over = True
        self.join()


class Bench(lab.Lab):
    """A box with an address for each path, a relay in front of each, and a host."""

    def __init__(self, paths=2, relay="dxpu-relay", box=(), relay_args=(), hold_ms=HOLD_MS):
        super().__init__()
        self.hold = ("--hold-ms", hold_ms)
        self.made = (paths, relay, (*box, *self.hold), relay_args)
        self.lines = []

    def __enter__(self):
        paths, relay, box, relay_args = self.made
        at = ["127.0.0.2:0", "127.0.0.3:0", "[::1]:0"][:paths]
        self.box = self.start("dxpu-box", "--listen", ",".join(at), "--json", *box)
        found = self.box.says(r" at ((?:\S+:\d+, ){%d})" % paths).group(1)
        self.direct = found.rstrip(", ").split(", ")
        if relay == "dxpu-relay":
            self.relays = [self.start(relay, "--to", to, "--listen", re.sub(r"\d+$", "0", to),
                                      "--json", *relay_args) for to in self.direct]
        else:
            self.relays = self.lines = [relay(to) for to in self.direct]
        self.at = ",".join(r.address() for r in self.relays)
        return self

    def __exit__(self, *unused):
        for line in self.lines:
            line.stop()
        super().__exit__(*unused)

    def load(self, *args, at=None):
        self.host = self.start("dxpu-host", "--box", at or self.at, *LOAD, *self.hold, *args)
        self.host.says("attached")
        time.sleep(0.2)
        return self.host

    def statistics(self, process):
        """What SIGUSR1 prints, as nested dictionaries."""
        before = len(process.errors())
        process.popen.send_signal(signal.SIGUSR1)
        until(lambda: re.search(r"^  waits +\d", process.errors()[before:], re.M), "statistics")
        top = {}
        open_objects = [top]
        for line in process.errors()[before:].splitlines():
            depth = (len(line) - len(line.lstrip())) // 2
            words = line.split()
            if len(words) == 1 and depth < len(open_objects):
                del open_objects[depth + 1 :]
                open_objects.append(open_objects[depth].setdefault(words[0], {}))
            elif len(words) == 2 and depth < len(open_objects):
                del open_objects[depth + 1 :]
                open_objects[depth][words[0]] = words[1]
        return top

    def path(self, number, key):
        paths = self.statistics(self.host)["paths"]
        return float(paths["path_%d" % number][key])

    def carries_more(self, number):
        before = self.path(number, "tx_data_frames")
        until(lambda: self.path(number, "tx_data_frames") > before + 50, "data on the path")

    def finish(self, incarnations=1):
        """Everything that was asked for was done, once and right; results of host and box."""
        check(self.host.stop() == 0, self.host.errors())
        check(self.box.stop() == 0, self.box.errors())
        result, there = self.host.result(), self.box.result()
        for name in ("mismatched", "unsuccessful", "unanswered", "contained"):
            check(result[name] == 0, name, result)
        check(result["acked"] == result["submitted"] > 0, result)
        check(result["incarnations"] == incarnations, result)
        check(there["slot_1"]["malformed"] == 0, there)
        for line in self.lines:  # a path's answers come from where its frames go
            check(line.answers <= {line.to}, line.answers, line.to)
        return result, there


def say_gap(name, result):
    print("# %s: longest gap %.1f ms, round trip p50 %.0f us" % (
        name, result["longest_gap_us"] / 1000, result["rtt_us"]["p50"]), flush=True)


# ==== Cut and back ================================================================================


def cut_and_mend(name, cut, mend):
    with Bench() as b:
        b.load()
        b.carries_more(0)
        cut(b.relays[0])
        until(lambda: b.path(0, "usable") == 0, "the path to be left")
        b.carries_more(1)
        if mend:
            mend(b.relays[0])
            until(lambda: b.path(0, "usable") == 1, "the path to be good again")
            b.carries_more(0)
        result, _ = b.finish()
        channel = result["channel"]
        check(channel["path_down"] >= 1, channel)
        check(channel["path_up"] >= (2 if mend else 1), channel)  # one is path 1's, at the start
        say_gap(name, result)


@case
def path_is_stopped_and_goes_on():
    """What the relay had in its socket comes late, behind newer frames."""
    cut_and_mend("stopped", lambda r: r.popen.send_signal(signal.SIGSTOP),
                 lambda r: r.popen.send_signal(signal.SIGCONT))


@case
def path_is_cut_and_mended():
    cut_and_mend("cut", lambda r: r.popen.send_signal(signal.SIGUSR1),
                 lambda r: r.popen.send_signal(signal.SIGUSR2))


@case
def path_is_killed():
    cut_and_mend("killed", lambda r: r.kill(), None)


@case
def one_direction_is_cut():
    for way in ("up", "down"):
        with Bench(relay=Line) as b:
            b.load()
            b.relays[0].cut.add(way)
            until(lambda: b.path(0, "usable") == 0, "the host to leave the path")
            until(lambda: at_box(b)["path_0"]["usable"] == "0", "the box to leave it")
            b.carries_more(1)
            check(b.relays[0].dropped > 0)
            b.relays[0].cut.clear()
            until(lambda: b.path(0, "usable") == 1, "the path to be good again")
            result, there = b.finish()
            check(result["channel"]["path_down"] >= 1 and there["channel"]["path_down"] >= 1)
            say_gap("cut " + way, result)


def at_box(b):
    return b.statistics(b.box)["slot_1"]["paths"]


def frames_at_box(b):
    return int(at_box(b)["path_0"]["rx_frames"])


@case
def one_path_is_used_at_a_time():
    """The control of all the others.  When the machine stands still for some ms, that looks like a
    dead path; between two looks without a timeout all data goes on the first one."""
    def look():
        s = b.statistics(b.host)
        events = [s["channel"].get(name) for name in (
            "path_down", "path_up", "tx_tail_probes", "tx_timeouts")]
        first, second = (s["paths"]["path_%d" % i] for i in (0, 1))
        return (events, first["active"] == "1", int(first["tx_data_frames"]),
                int(second["tx_data_frames"]))

    with Bench() as b:
        b.load("--depth", 1)
        before, quiet = look(), False
        for _ in range(200):
            after = look()
            quiet = before[0] == after[0] and before[1] and after[2] >= before[2] + 10
            if quiet:
                break
            before = after
        b.finish()
        check(quiet, "no moment without a timeout", before, after)
        check(before[3] == after[3], before, after)


# ==== Spread ======================================================================================


@case
def spread_uses_all_paths():
    with Bench(paths=3, box=("--spread",)) as b:
        b.load("--spread")
        for i in range(3):
            b.carries_more(i)
        b.relays[1].popen.send_signal(signal.SIGSTOP)
        until(lambda: b.path(1, "usable") == 0, "the path to be left")
        for i in (0, 2):
            b.carries_more(i)
        b.relays[1].popen.send_signal(signal.SIGCONT)
        until(lambda: b.path(1, "usable") == 1, "the path to be good again")
        b.carries_more(1)
        b.relays[0].kill()
        until(lambda: b.path(0, "usable") == 0, "the path to be left")
        b.carries_more(2)
        result, there = b.finish()
        check(result["channel"]["path_down"] >= 2, result["channel"])
        for i in range(3):
            check(there["slot_1"]["paths"]["path_%d" % i]["tx_data_frames"] > 0, there["slot_1"])
        say_gap("spread", result)


# ==== All paths, and none =========================================================================


@case
def all_paths_are_cut():
    with Bench(hold_ms=3000) as b:
        b.load()
        for relay in b.relays:
            relay.popen.send_signal(signal.SIGUSR1)
        time.sleep(0.1)  # less than hold, on a busy machine too: only a delay
        for relay in b.relays:
            relay.popen.send_signal(signal.SIGUSR2)
        b.carries_more(0)
        check("channel lost" not in b.host.errors(), b.host.errors())
        for relay in b.relays:
            relay.popen.send_signal(signal.SIGUSR1)
        b.host.says("channel lost: no frame for 3000 ms")
        for relay in b.relays:
            relay.popen.send_signal(signal.SIGUSR2)
        b.host.says("attached.*\n(?:.*\n)*.*channel lost.*\n(?:.*\n)*.*attached")
        time.sleep(0.3)
        b.host.stop()
        b.box.stop()
        result = b.host.result()
        check(result["incarnations"] == 2 and result["mismatched"] == 0, result)
        check(result["unanswered"] == result["contained"], result)  # each was answered, as an error
        check(result["longest_gap_us"] >= 2000e3, result)  # less what was late before


@case
def first_path_is_dead_from_the_start():
    for ways in ({"up", "down"}, {"up"}, {"down"}):
        with Bench(relay=Line) as b:
            b.relays[0].cut |= ways
            b.load()
            b.carries_more(1)
            check(b.path(0, "usable") == 0, ways, b.host.errors())
            check(b.relays[0].dropped > 0)
            b.relays[0].cut.clear()
            until(lambda: b.path(0, "usable") == 1, "the path to be good")
            _, there = b.finish()
            check(there["proxy"]["opens_accepted"] == 1, there)


@case
def repeated_open_is_the_same_channel():
    """The answer is so late that the open is repeated, over the other path."""
    with Bench(relay_args=("--delay-us", 20000)) as b:
        b.load()
        result, there = b.finish()
        check(there["proxy"]["opens_repeated"] >= 1, there["proxy"])
        check(there["proxy"]["opens_accepted"] == 1, there["proxy"])


# ==== Addresses ===================================================================================


def moves(b):
    return [there["moves"] for _, there in sorted(b.box.result()["slot_1"]["paths"].items())]


class Stranger:
    """Somebody who sends to the box's first address what it has caught."""

    def __init__(self, b):
        host, port = b.direct[0].rsplit(":", 1)
        self.to = (host, int(port))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.2)

    def send(self, *frames):
        for frame in frames:
            self.socket.sendto(frame, self.to)

    def gets(self):
        """Bytes, until nothing has come for 200 ms."""
        got = 0
        try:
            while True:
                got += len(self.socket.recv(2000))
        except TimeoutError:
            return got

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.socket.close()


@case
def address_is_learnt_from_authentic_frames_only():
    with Bench(relay=Line) as b, Stranger(b) as stranger:
        b.load()
        for frame in list(b.relays[0].up):
            for at in (PATH, 19, len(frame) - 1):  # another path, packet number, trailer
                forged = bytearray(frame)
                forged[at] ^= 1
                stranger.send(forged)
            stranger.send(frame)  # the frame itself, once more
        check(not stranger.gets(), "the box answers")
        b.carries_more(0)
        _, there = b.finish()
        channel = there["channel"]
        check(channel["rx_crc"] >= 300 and channel["rx_replay"] > 0, channel)
        check(moves(b) == [0, 0], moves(b))


@case
def late_frame_draws_no_path_away():
    """A frame that the box has not seen, and takes, but newer ones came before it."""
    with Bench(relay=Line) as b, Stranger(b) as stranger:
        line = b.relays[0]
        b.load()
        line.to_hold = 3
        until(lambda: len(line.held) == 3, "frames to hold")
        before = frames_at_box(b)
        until(lambda: frames_at_box(b) > before + 100, "newer ones to arrive")
        stranger.send(*line.held)
        check(not stranger.gets(), "the box answers")
        b.carries_more(0)
        check([p["moves"] for p in at_box(b).values()] == ["0", "0"], at_box(b))
        # the control: with nothing newer, the box follows
        b.relays[1].cut.add("up")
        line.held.clear()
        line.to_hold = 10000
        until(lambda: line.held, "a frame to hold")
        time.sleep(0.02)
        frame = max(reversed(line.held), key=len)  # an older one may be late
        stranger.send(frame)
        got = stranger.gets()
        check(got, "the box does not answer")
        check(got <= 3 * len(frame), "P-27:", got, "for", len(frame))
        line.to_hold = 0
        b.relays[1].cut.clear()
        b.carries_more(0)
        b.finish()
        check(moves(b)[0] == 2, moves(b))  # and back
        check(b.box.result()["slot_1"]["paths"]["path_0"]["held_back"] > 0)


@case
def box_follows_a_host_that_moves():
    """The control of the one above: frames that are authentic and new draw the path along."""
    with Bench(relay=Line) as b:
        b.load()
        for _ in range(3):
            b.relays[0].move()
            b.carries_more(0)
        b.finish()
        check(moves(b) == [3, 0], moves(b))


# ==== Congestion marks ============================================================================


def mark(b):
    """Congestion Experienced on all that passes, until both ends have seen some."""
    for line in b.relays:
        line.ecn = 3
    for end in (b.host, b.box):
        until(lambda: b.statistics(end)["channel"].get("rx_ecn_ce"), "marks to come")
    b.carries_more(0)


@case
def marks_are_sent_and_heeded():
    with Bench(relay=Line) as b:
        b.load()
        check(b.relays[0].tos == {2}, b.relays[0].tos)  # ECT(0)
        check(b.statistics(b.host)["channel"].get("rx_ecn_ce") is None, b.host.errors())
        mark(b)
        for end in b.finish():
            check(end["channel"]["rx_ecn_ce"] > 0, end["channel"])
            check(end["channel"]["tx_congestion"] > 0, end["channel"])


@case
def lossless_is_not_ecn_capable():
    with Bench(relay=Line, box=("--lossless",)) as b:
        b.load("--lossless")
        check(b.relays[0].tos == {0}, b.relays[0].tos)
        mark(b)
        result, _ = b.finish()
        check(result["channel"]["rx_ecn_ce"] > 0, result["channel"])  # the control: they arrive
        check(result["channel"]["tx_congestion"] == 0, result["channel"])


# ==== Narrow paths ================================================================================

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """Host and box in namespaces of their own, two ways between them; the second one narrow, and
    that not at either end."""

    NARROW = 1400

    def __enter__(self):
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.names = ["dxpu-%d-%s" % (os.getpid(), end) for end in ("host", "box", "hop")]
        for name in self.names:
            self.ip("netns", "add", name)
        host, box, hop = self.names
        self.wire(host, "10.77.0.1/24", box, "10.77.0.2/24", "w")
        self.wire(host, "10.77.1.1/24", hop, "10.77.1.9/24", "n")
        self.wire(hop, "10.77.2.9/24", box, "10.77.2.2/24", "m", self.NARROW)
        self.ip("-n", host, "route", "add", "10.77.2.0/24", "via", "10.77.1.9")
        self.ip("-n", box, "route", "add", "10.77.1.0/24", "via", "10.77.2.9")
        self.inside(hop, lambda: open("/proc/sys/net/ipv4/ip_forward", "w").write("1"))
        return self

    def __exit__(self, *unused):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        os.close(self.own)

    def ip(self, *words):
        done = subprocess.run(("ip",) + words, capture_output=True, text=True)
        check(done.returncode == 0, words, done.stderr)

    def wire(self, one, one_at, other, other_at, name, mtu=1500):
        ends = (name + "0", name + "1")
        self.ip("-n", one, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1],
                "netns", other)
        for where, end, at in ((one, ends[0], one_at), (other, ends[1], other_at)):
            self.ip("-n", where, "address", "add", at, "dev", end)
            self.ip("-n", where, "link", "set", end, "mtu", str(mtu), "up")

    def inside(self, name, action):
        """Do something in a namespace; a process started there stays in it."""
        fd = os.open("/run/netns/" + name, os.O_RDONLY)
        try:
            check(libc.setns(fd, CLONE_NEWNET) == 0, "setns", ctypes.get_errno())
            return action()
        finally:
            check(libc.setns(self.own, CLONE_NEWNET) == 0, "setns back")
            os.close(fd)


def no_namespaces():
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = subprocess.run(["ip", "netns", "add", "dxpu-%d-probe" % os.getpid()],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        return "no network namespaces here: " + probe.stderr.strip().replace("\n", " ")
    subprocess.run(["ip", "netns", "delete", "dxpu-%d-probe" % os.getpid()])
    return None


def data_sizes(capture):
    """Largest data frame, and largest open, of a --frames capture."""
    with open(capture, "rb") as f:
        data = f.read()
    at, sizes = 24, {}
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        frame = data[at + 16 + 42 : at + 16 + length]  # Ethernet, IPv4, UDP
        sizes[frame[KIND]] = max(sizes.get(frame[KIND], 0), len(frame))
        at += 16 + length
    return sizes.get(DATA, 0), sizes.get(OPEN, 0)


def over_network(l, network, at):
    host, box, _ = network.names
    there = network.inside(box, lambda: l.start(
        "dxpu-box", "--listen", "10.77.0.2:4458,10.77.2.2:4458", "--json"))
    there.says(" at ")
    frames = l.file("frames.pcap")
    here = network.inside(host, lambda: l.start(
        "dxpu-host", "--box", at, "--frames", frames, "--load", "mixed", "--size", 4096, "--depth",
        8, "--count", 500, "--json"))
    check(here.wait(30) == 0, here.errors())
    check(there.stop() == 0, there.errors())
    result = here.result()
    check(result["mismatched"] == 0 and result["incarnations"] == 1, result)
    return result, data_sizes(frames)


@case
def narrow_path_is_not_used():
    missing = no_namespaces()
    if missing:
        return missing
    with Network() as network, lab.Lab() as l:
        result, (largest, _) = over_network(l, network, "10.77.2.2,10.77.0.2")
        narrow, wide = (result["paths"]["path_%d" % i] for i in (0, 1))
        check(narrow["usable"] == 0 and narrow["tx_data_frames"] == 0, narrow)
        check(narrow["tx_frames"] > 0, narrow)  # it was tried, by probes
        check(wide["usable"] == 1 and wide["tx_data_frames"] > 0, wide)
        check(largest == FULL_BYTES, largest)
    return None


@case
def narrow_path_alone_opens_smaller():
    missing = no_namespaces()
    if missing:
        return missing
    with Network() as network, lab.Lab() as l:
        result, (largest, tried) = over_network(l, network, "10.77.2.2")
        check(tried == FULL_BYTES and largest == SMALL_BYTES, tried, largest)
        check(result["paths"]["path_0"]["usable"] == 1, result["paths"])
    return None


# ==== Control, options, waiting ===================================================================


@case
def attach_names_paths():
    def order(*words, status=0):
        done = b.run("dxpu", *words)
        check(done.status == status, words, done.errors())
        return done.output() + done.errors()

    with Bench() as b:
        host = b.start("dxpu-host", "--vfio-user", b.file("sock"), "--control", "127.0.0.1:0",
                       "--json")
        at = host.says(r"control port (\S+)\n").group(1)
        host.says("waiting for a guest")
        order("attach", "--wait", at, 1, b.at, 1)
        order("attach", at, 1, b.at, 1)  # the same again
        check("another device" in order("attach", at, 1, b.at.split(",")[0], 1, status=1))
        check("another slot" in order("attach", at, 2, b.at.split(",")[1], 1, status=1))
        twice = ",".join([b.at.split(",")[0]] * 2)
        check("out of range" in order("attach", at, 2, twice, 2, status=1))
        until(lambda: "2 of 2 paths usable, path 0 active" in order("status", at), "both paths")
        b.relays[0].kill()
        until(lambda: "1 of 2 paths usable, path 1 active" in order("status", at), "the cut")
        order("detach", "--wait", at, 1)
        check(host.stop() == 0 and b.box.stop() == 0, host.errors())


@case
def lists_of_paths_are_read():
    with Bench() as b:
        host = b.start("dxpu-host", "--vfio-user", b.file("sock"), "--attach",
                       "1=%s/1,2=%s/7" % (b.at, b.direct[0]), "--json")
        host.says("slot 1: slot 1 of %s is attached" % re.escape(b.at))
        check(host.stop() == 0)
        for args, words in ((("--box", "127.0.0.1:1,127.0.0.1:1"), "named twice"),
                            (("--box", ",".join(["127.0.0.1"] * 9)), "too many"),
                            (("--box", "127.0.0.1:1,"), "empty"),
                            (("--box", "127.0.0.1,[::1]", "--listen", "0.0.0.0:0"), "this kind")):
            wrong = b.run("dxpu-host", *args, "--load", "read", seconds=10)
            check(wrong.status in (2, 3) and words in wrong.errors(), args, wrong.errors())
        for word in ("127.0.0.1:1,127.0.0.1:1/1", "127.0.0.1:1,/1", "127.0.0.1:1,2=127.0.0.1/1"):
            wrong = b.run("dxpu-host", "--vfio-user", b.file("sock"), "--attach", "1=" + word,
                          seconds=10)
            check(wrong.status == 2 and "--attach" in wrong.errors(), word, wrong.errors())


def ticks(process):
    """Of processor time that it and the processes that it started have used."""
    used = 0
    for pid in [process.popen.pid] + [pid for _, pid in process.children()]:
        with open("/proc/%d/stat" % pid) as f:
            used += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return used


@case
def idle_channel_does_not_spin():
    """Nor does one that probes a dead path: against one that is made to, in as much time as that
    one needs for 30 ticks, which is long on a busy machine."""
    used, seconds = {}, 0
    for wait in ("busy", "adaptive", "block"):
        with Bench(relay=Line) as b:
            b.relays[1].cut |= {"up", "down"}
            host = b.start("dxpu-host", "--vfio-user", b.file("sock"), "--wait", wait, "--attach",
                           "1=%s/1" % b.at, "--json")
            host.says("is attached")
            time.sleep(0.3)
            before, begin = ticks(host), time.monotonic()
            while wait == "busy" and ticks(host) < before + 30 and time.monotonic() < begin + 60:
                time.sleep(0.02)
            seconds = seconds or time.monotonic() - begin
            time.sleep(max(0, begin + seconds - time.monotonic()))
            used[wait] = ticks(host) - before
            check(host.stop() == 0, host.errors())
    check(used["adaptive"] * 2 < used["busy"] > used["block"] * 2, used)


if __name__ == "__main__":
    sys.exit(main())
