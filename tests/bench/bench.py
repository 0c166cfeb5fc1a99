#!/usr/bin/env python3
"""Measures what a TLP costs, each figure beside its floor, and prints a table.

Every round measures a figure and its baseline one after the other; the table has the medians over
the rounds, the median of the rounds' ratios, and their spread: half of the distance between the
quartiles, of the median.  A machine that others use as well shows in the spread."""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "examples", "demo"))
import demo  # noqa: E402
import bench_aims  # noqa: E402
import bench_guest  # noqa: E402
import bench_path  # noqa: E402
import bench_table  # noqa: E402
import lab  # noqa: E402

EPILOG = "exit status: 0 measured, 1 a part could not be measured, 2 usage, 130 interrupted"
BUSY = ("--wait", "busy", "--json")
PATIENT = ("--hold-ms", 10000)  # on a machine that others use, a proxy may not run for a second
# A datagram of the plain streams, by MTU: what the proxies' frames may have, too.
PLAIN_BYTES = {1500: 1452, 9000: 8952}

class Skipped(Exception):
    """A part that cannot be measured here, and why; no failure."""


class Row:
    """One figure and its baseline over the rounds."""

    def __init__(self, name, unit, baseline_name):
        self.name, self.unit, self.baseline_name = name, unit, baseline_name
        self.values, self.baselines = [], []

    def add(self, value, baseline):
        self.values.append(value)
        self.baselines.append(baseline)

    def figures(self):
        ratios = [v / b for v, b in zip(self.values, self.baselines) if b]
        of = ratios or self.values
        row = {"name": self.name, "unit": self.unit, "rounds": len(self.values),
               "value": statistics.median(self.values), "spread": spread(of),
               "baseline_name": self.baseline_name if ratios else None,
               "baseline": statistics.median(self.baselines) if ratios else None,
               "ratio": statistics.median(ratios) if ratios else None}
        row["aims"] = [{"of": of, "least": least, "most": most,
                        "met": bench_aims.met(row[of], least, most)}
                       for pattern, of, least, most, _ in bench_aims.AIMS
                       if re.fullmatch(pattern, self.name) and row[of] is not None]
        return row


def spread(values):
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    middle = statistics.median(values)
    return (high - low) / 2 / middle if middle else 0.0


class Table:
    def __init__(self):
        self.rows = {}
        self.lacks = {}  # rows that cannot be measured here, and why

    def add(self, name, value, baseline, unit, baseline_name):
        self.rows.setdefault(name, Row(name, unit, baseline_name)).add(value, baseline)


def program(name):
    return os.path.join(lab.BIN, "tests", "bench", name)


def c_rows(table, unit, baseline_name, name, *arguments):
    """Rows of a benchmark in C, as it prints them."""
    done = subprocess.run([program(name)] + [str(a) for a in arguments], capture_output=True,
                          text=True, timeout=300)
    if done.returncode:
        raise RuntimeError("%s: %s" % (name, done.stderr.strip()[-500:]))
    for line in done.stdout.splitlines():
        one = json.loads(line)
        table.add(one["row"], one["value"], one["baseline"],
                  unit if isinstance(unit, str) else unit(one["row"]), baseline_name)


# ==== In one process ==============================================================================

def part_codec(table, size):
    c_rows(table, "ns", "copies and CRCs alone", "bench_codec", size.rounds, 20000 // size.cut)


def instructions(size, payload, *floor):
    """Instructions a TLP: what twice as many TLPs cost more; a trace of it has one run, start and
    all."""
    count, seen = 1000 // size.cut, [0]
    for n in (count, 2 * count)[size.cut > 1:]:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["valgrind", "--tool=callgrind", "--callgrind-out-file=%s/out" % folder,
                 program("bench_codec"), "1", str(n), str(payload), *floor],
                capture_output=True, text=True, timeout=300)
        found = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode or not found:
            raise RuntimeError(done.stderr.strip()[-500:])
        seen.append(int(found.group(1)))
    return (seen[-1] - seen[-2]) / count


def part_instructions(table, size):
    if not shutil.which("valgrind"):
        raise Skipped("valgrind is not there")
    floor = None  # a trace has one for all: callgrind takes a second to start
    for payload in (0, 64, 128, 256, 512, 4096):
        if size.cut == 1 or floor is None:
            floor = instructions(size, payload, "floor")
        table.add("instructions codec %d B" % payload, instructions(size, payload), floor,
                  "instructions", "copies and CRCs alone")


def part_path(table, size):
    if not shutil.which("valgrind"):
        raise Skipped("valgrind is not there")
    bench_path.stages(table, size)


def part_calls(table, size):
    if not shutil.which("strace"):
        raise Skipped("strace is not there")
    bench_path.system_calls(table, size)


def part_route(table, size):
    c_rows(table, "ns", "8 entries", "bench_route", size.rounds, 20000 // size.cut)


def part_seal(table, size):
    c_rows(table, "ns", "two copies; one Diffie-Hellman", "bench_seal", size.rounds,
           20000 // size.cut)
    for suite, needs in (("aes-256-gcm", "a processor with AES"),
                         ("aegis-128l", "that and libsodium 1.0.19")):
        if not any(suite in name for name in table.rows):
            table.lacks["seal " + suite] = "there is none here: it needs " + needs


def part_equation(table, size):
    c_rows(table, "MB/s", "tags or window / round trip; of what is pushed, the same bytes pulled",
           "bench_tags", 1, 200 // size.cut)


def part_nvme(table, _):
    c_rows(table, lambda row: "requests" if row.endswith("requests") else "us",
           "the submission queue in host memory", "bench_nvme", 1, 1)


def part_memory(table, size):
    c_rows(table, "B", "6 KB + 24 B a frame", "bench_memory")
    for _ in range(size.rounds):
        one, many = box_start(1), box_start(512)
        disks = box_start(512, "--device", "nvme", "--size", "1M")
        floor = start("dxpu-pingpong", "--listen", "127.0.0.1:0")
        table.add("memory box of 512 slots", many[1], one[1], "B", "box of 1 slot")
        table.add("memory box of 512 nvme slots", disks[1], one[1], "B", "box of 1 slot")
        table.add("start-up of a box", one[0], floor[0], "ms", "a program with one UDP socket")
        table.add("start-up, 512 slots", many[0], floor[0], "ms", "a program with one UDP socket")


def box_start(slots, *words):
    return start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", slots, *words)


def start(name, *words):
    """Milliseconds until it says where it listens, and its resident bytes then."""
    begin = time.monotonic()
    popen = subprocess.Popen([os.path.join(lab.BIN, name)] + [str(w) for w in words],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
    try:
        said = "unread"
        while said and " at " not in said:  # before that it says which key it has
            said = popen.stderr.readline()
        took = (time.monotonic() - begin) * 1e3
        with open("/proc/%d/status" % popen.pid) as file:
            resident = int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1)) << 10
        if " at " not in said:
            raise RuntimeError("%s: %s" % (name, said))
        return took, resident
    finally:
        popen.kill()
        popen.wait()
        popen.stderr.close()


# ==== Through the proxies =========================================================================

class Loopback:
    """Both ends on this machine's loopback."""

    name, floor = "loopback", "plain datagrams of these sizes"
    plain = ("--plain",)  # what keys cost, part_sealed() shows

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        pass

    def listen(self):
        return "127.0.0.1:0"

    def box(self, name, *arguments):
        return (name,) + arguments + (self.plain if name in lab.PROXIES else ())

    host = box


class Veth(Loopback):
    """Each end in a network namespace, a pair of veth between them."""

    name = "veth"
    plain = ("--plain", "--plain-network")
    box_words, host_words = (), ()  # options that choose this transport

    def __enter__(self):
        if os.geteuid():
            raise Skipped("network namespaces need root")
        self.spaces = ["dxpu-bench-%d-%s" % (os.getpid(), end) for end in ("box", "host")]
        try:
            for space in self.spaces:
                self.ip("netns", "add", space)
            self.ip("-n", self.spaces[0], "link", "add", "wire1", "type", "veth", "peer", "name",
                    "wire2", "netns", self.spaces[1])
            for space, link, at in zip(self.spaces, ("wire1", "wire2"), "12"):
                self.ip("-n", space, "address", "add", "10.79.0.%s/24" % at, "dev", link)
                self.ip("-n", space, "link", "set", link, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)

    def ip(self, *words):
        done = subprocess.run(("ip",) + words, capture_output=True, text=True)
        if done.returncode:
            raise Skipped("no network namespaces here: " + done.stderr.strip())

    def listen(self):
        return "10.79.0.1:0"

    def inside(self, space, name, *arguments):
        arguments += self.plain if name in lab.PROXIES else ()
        return (shutil.which("ip"), "netns", "exec", space, os.path.join(lab.BIN, name)) + arguments

    def box(self, name, *arguments):
        return self.inside(self.spaces[0], name, *arguments, *self.box_words)

    def host(self, name, *arguments):
        return self.inside(self.spaces[1], name, *arguments, *self.host_words)


class Xdp(Veth):
    """The same, past the kernel's sockets."""

    name, floor = "AF_XDP", "plain AF_XDP datagrams of these sizes"
    box_words, host_words = ("--af-xdp", "wire1"), ("--af-xdp", "wire2")

    def __enter__(self):
        version = subprocess.run([os.path.join(lab.BIN, "dxpu-box"), "--version"],
                                 capture_output=True, text=True).stdout
        if "AF_XDP by none" in version:
            raise Skipped("built without libxdp")
        return super().__enter__()


def round_trips(table, size, transport):
    with transport() as t, lab.Lab() as l:
        box = t.box("dxpu-box", "--listen", t.listen(), *BUSY)
        echo = t.box("dxpu-pingpong", "--listen", t.listen(), *BUSY)
        for _ in range(size.rounds):
            for read in (64, 256):
                host = t.host("dxpu-host", "--box", None, "--load", "read", "--size", read,
                              "--count", 5000 // size.cut, "--span", "4K", "--quiet", *BUSY)
                ours = demo.turn(l, box, host, 2)
                ping = t.host("dxpu-pingpong", "--to", None, "--count", 5000 // size.cut, "--size",
                              ours["tx_frame_bytes"], "--reply", ours["rx_frame_bytes"], *BUSY)
                plain = demo.turn(l, echo, ping, 2)
                for percentile in ("p50", "p99", "p99_9"):
                    table.add("read %d B, %s, %s" % (read, t.name, percentile.replace("_", ".")),
                              ours["rtt_us"][percentile], plain["rtt_us"][percentile], "us",
                              t.floor)


def part_round_trip(table, size):
    round_trips(table, size, Loopback)


def part_round_trip_veth(table, size):
    round_trips(table, size, Veth)


def part_round_trip_xdp(table, size):
    round_trips(table, size, Xdp)


def part_frames(table, size):
    """Frames a second of a write stream, and what one costs both proxies, the two ways over veth in
    turn."""
    length = ("--count", 2000) if size.cut > 1 else ("--seconds", 1)
    for number in range(size.some):
        rates, costs = [], []
        for transport in (Xdp, Veth):
            with transport() as t, lab.Lab() as l:
                def run(wait, *length):
                    words = ("--wait", wait, "--json", "--lossless") + PATIENT
                    ours = demo.turn(
                        l, t.box("dxpu-box", "--listen", t.listen(), *words),
                        t.host("dxpu-host", "--box", None, "--quiet", "--load", "write", "--size",
                               512, *length, *words), 2)
                    return ours["channel"]["tx_frames"], ours["seconds"]
                frames, seconds = run("busy", *length)
                rates.append(frames / seconds)
                if number < size.few:
                    costs.append(more_costs(lambda count: run("block", "--count", count), size))
        table.add("frames a second, AF_XDP beside UDP", rates[0], rates[1], "frames/s", "UDP, veth")
        if costs:
            table.add("processor a frame, AF_XDP beside UDP", costs[0], costs[1], "ns", "UDP, veth")


def more_costs(run, size):
    """Processor time of a frame: what more of them cost more, so without starting and filling."""
    seen = []
    for count in (10000 // size.cut, 100000 // size.cut):
        begin = processor_ns()
        frames = run(count)[0]
        seen.append((processor_ns() - begin, frames))
    (few_ns, few), (many_ns, many) = seen
    return (many_ns - few_ns) / (many - few)


def plain_stream(size, mtu=1500):
    """Of plain messages, and of segments (GSO): megabytes a second, and processor time in ns of
    sending and receiving one datagram."""
    done = subprocess.run([program("bench_udp"), "1", str(400 // size.cut), str(PLAIN_BYTES[mtu])],
                          capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError("bench_udp: " + done.stderr)
    return [(one["value"], one["baseline"]) for one in map(json.loads, done.stdout.splitlines())]


def processor_ns():
    """What all children that have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e9


def stream_cost(l, count, kind, payload, depth):
    """Processor time in ns of both proxies, TLPs submitted, and frames with data, of one run; they
    block, since looking in vain costs time, too."""
    words = ("--wait", "block", "--json", "--lossless", "--plain") + PATIENT
    begin = processor_ns()
    ours = demo.turn(l, ("dxpu-box", "--listen", "127.0.0.1:0") + words,
                     ("dxpu-host", "--box", None, "--quiet", "--load", kind, "--size", payload,
                      "--depth", depth, "--count", count) + words, 2)
    way = "tx_frames" if kind == "write" else "rx_frames"
    return processor_ns() - begin, ours["submitted"], ours["channel"][way]


def stream_costs(table, l, size, plain):
    """Processor time of a TLP at both proxies together, which other load does not change much:
    what more of them cost more, so without starting, filling, and reading back."""
    for kind, payload, depth in (("write", 256, 32), ("write", 512, 32), ("read", 256, 140)):
        few = stream_cost(l, 20000 // size.cut, kind, payload, depth)
        many = stream_cost(l, 200000 // size.cut, kind, payload, depth)
        ns, tlps, frames = (b - a for a, b in zip(few, many))
        for name, cost in zip(("messages", "segments"), plain):
            table.add("%s of %d B, processor, beside %s" % (kind, payload, name), ns / tlps,
                      cost * frames / tlps, "ns a TLP", "plain %s for so many TLPs" % name)


def stream(l, size, words, *both):
    """Megabytes a second of a generated load; `both`: options of either end."""
    length = ("--count", 2000) if size.cut > 1 else ("--seconds", 1)
    both += ("--plain",) + PATIENT + BUSY
    return demo.turn(l, ("dxpu-box", "--listen", "127.0.0.1:0") + both,
                     ("dxpu-host", "--box", None, "--quiet") + words + length + both,
                     2)["megabytes_per_second"]


def beside_plain(table, name, ours, messages, segments):
    table.add(name + " beside messages", ours, messages, "MB/s", "plain messages")
    table.add(name + " beside segments", ours, segments, "MB/s", "plain segments")


def part_streams(table, size):
    kinds = [("write stream %d B%s" % (n, name), ("--load", "write", "--size", n), both)
             for n in (256, 512) for name, both in (("", ()), (", lossless", ("--lossless",)))]
    kinds += [("write stream 256 B, lossless, window 256", ("--load", "write", "--size", 256),
               ("--lossless", "--window", 256))]
    kinds += [("read stream %d B, %d tags" % (n, tags),
               ("--load", "read", "--size", n, "--depth", tags), ())
              for n, tags in ((256, 32), (256, 140), (256, 256), (512, 32), (512, 140), (512, 256),
                              (4096, 256))]
    with lab.Lab() as l:
        for _ in range(size.some):
            (messages, segments), costs = plain_stream(size)
            stream_costs(table, l, size, costs)
            table.add("plain stream, messages", messages, segments, "MB/s", "segments")
            for name, words, both in kinds:
                beside_plain(table, name, stream(l, size, words, *both), messages, segments)


def part_jumbo(table, size):
    """Streams in frames for an MTU of 9000, beside plain datagrams as large."""
    kinds = [("write stream %d B, lossless, MTU 9000" % n,
              ("--load", "write", "--size", n), ("--lossless",)) for n in (256, 512)]
    kinds += [("read stream 4096 B, 256 tags, MTU 9000",
               ("--load", "read", "--size", 4096, "--depth", 256), ())]
    with lab.Lab() as l:
        for _ in range(size.some):
            (messages, segments), _ = plain_stream(size, 9000)
            table.add("plain stream of 8952 B, messages", messages, segments, "MB/s", "segments")
            for name, words, both in kinds:
                ours = stream(l, size, words, *both, "--mtu", 9000)
                beside_plain(table, name, ours, messages, segments)


def part_both(table, size):
    """Reads and writes together, whose data go opposite ways, beside the sum of each alone."""
    with lab.Lab() as l:
        for _ in range(size.few):
            for n in (512, 4096):
                alone, together = [], ("--size", n, "--depth", 256, "--mps", n)
                for load in ("mixed", "read", "write"):
                    alone.append(stream(l, size, ("--load", load) + together, "--lossless"))
                ours = alone.pop(0)
                table.add("both directions at once, %d B" % n, ours, sum(alone), "MB/s",
                          "one direction alone, and the other")


def part_sealed(table, size):
    """With keys, and the same without, in turn."""
    length = ("--count", 2000) if size.cut > 1 else ("--seconds", 1)
    box = ("dxpu-box", "--listen", "127.0.0.1:0") + PATIENT + BUSY
    kinds = [("read %d B sealed" % n, "us",
              ("--load", "read", "--size", n, "--count", 5000 // size.cut, "--span", "4K"))
             for n in (64, 256)]
    kinds += [("write stream %d B sealed" % n, "MB/s", ("--load", "write", "--size", n) + length)
              for n in (256, 512)]
    with lab.Lab() as l:
        for _ in range(size.some):
            for name, unit, words in kinds:
                host, both = ("dxpu-host", "--box", None, "--quiet") + words + PATIENT + BUSY, []
                for plain in ((), ("--plain",)):
                    ours = demo.turn(l, box + plain, host + plain, 2)
                    both.append(ours["rtt_us"]["p50"] if unit == "us"
                                else ours["megabytes_per_second"])
                table.add(name, both[0], both[1], unit, "unsealed")


def part_devices(table, size):
    with lab.Lab() as l:
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 8, "--memory", "1M",
                      "--quiet", "--plain", *BUSY)
        box.keep_to(0)
        where, own = box.address(), os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {sorted(own)[-1]})  # what is started from here inherits it
            c_rows(table, "MB/s", "one device, or the fair share", "bench_slots", size.rounds,
                   max(500 // size.cut, 100), where, 1)
        finally:
            os.sched_setaffinity(0, own)
        box.stop()
    for name, row in table.rows.items():
        if name.startswith("devices") and name.endswith("share"):
            row.unit = "of fair"


def two_hosts(l, size, cores):
    box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", 2, "--cores", cores, "--quiet")
    name, port = box.address().rsplit(":", 1)
    length = ("--count", 2000) if size.cut > 1 else ("--seconds", 1)
    hosts = [l.start("dxpu-host", "--box", "%s:%d" % (name, int(port) + i % cores), "--slot", i + 1,
                     "--node", i + 1, "--quiet", "--json", "--load", "read", "--size", 256,
                     "--depth", 32, *length) for i in (0, 1)]
    if any([host.wait(60) for host in hosts]) or box.stop():
        raise RuntimeError("a host: " + hosts[0].errors() + hosts[1].errors())
    return sum(host.result()["megabytes_per_second"] for host in hosts)


def part_cores(table, size):
    with lab.Lab() as l:
        for _ in range(size.some):
            one, two = two_hosts(l, size, 1), two_hosts(l, size, 2)
            table.add("2 devices, 2 cores", two, one, "MB/s", "the same with one core")


class GrowingBox:
    """A box of memory devices whose processor time counts, so it blocks."""

    def __init__(self, l, size, slots, *words):
        self.box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--slots", slots, "--memory",
                           "64K", "--quiet", "--plain", "--wait", "block", *words)
        self.at, self.cores = self.box.address(), 1
        if "--cores" in words:
            self.cores = words[words.index("--cores") + 1]
        self.milliseconds, self.epoch = max(500 // size.cut, 50), 1

    def work(self, hosts, slots, busy=512, reads=4, milliseconds=None):
        """What bench_slots counts of these hosts, each with slots, and reads in each busy one."""
        words = (1, milliseconds or self.milliseconds, self.at, self.epoch, self.box.popen.pid,
                 hosts, slots, self.cores, reads, busy)
        done = subprocess.run([program("bench_slots")] + [str(w) for w in words],
                              capture_output=True, text=True, timeout=120)
        self.epoch += 1  # the next ones are other leases
        if done.returncode:
            raise RuntimeError("bench_slots: " + done.stderr.strip()[-500:])
        return {one["row"]: one["value"] for one in map(json.loads, done.stdout.splitlines())}

    def read_ns(self, whose, *words):
        """Processor time of a read at the box, or at its hosts."""
        done = self.work(*words)
        return done[whose + " ns"] / max(done["reads"], 1)


# What grows: the row, whose processor time of a read it is, and hosts, slots of each and busy ones
# of these; the first one is what it grows from.
GROWTH = (("host, %d slots busy", "hosts", [(1, n, n) for n in (1, 8, 28)]),
          ("box of 512 leased slots, %d busy", "box",
           [(1, 1, 1)] + [(1, 512, n) for n in (1, 64, 512)]),
          ("hosts at a box, %d", "box", [(n, 1, 1) for n in (1, 8, 64)]))
CORES = (1, 2, 4)


def grown(size, whose, words, *options):
    """Of a box of its own, in which no channel lingers."""
    with lab.Lab() as l:
        return GrowingBox(l, size, 512, *options, *PATIENT).read_ns(whose, *words)


def part_growth(table, size):
    """Processor time of a read as what there is grows, beside that of one."""
    for _ in range(size.few):
        for name, whose, sizes in GROWTH:
            costs = [grown(size, whose, words) for words in sizes]
            shown = list(zip(sizes, costs))[len(sizes) > 3:]
            for (hosts, _, busy), cost in shown:
                table.add("growth, " + name % (hosts * busy), cost, costs[0], "ns a read",
                          "one slot leased at all")
        costs = [grown(size, "box", (8, 1), "--cores", n) for n in CORES]
        for n, cost in zip(CORES, costs):
            table.add("growth, cores of a box with 8 hosts, %d" % n, cost, costs[0], "ns a read",
                      "one core")


def part_idle(table, size):
    """What slots cost that have no host, and what those cost whose host is silent."""
    milliseconds = 2000 if size.cut == 1 else 1200
    for _ in range(size.few):
        with lab.Lab() as l:  # a box in which no channel of the round before lingers
            box = GrowingBox(l, size, 512, "--hold-ms", 4000)
            alone = box.work(0, 1, reads=0, milliseconds=milliseconds)
            table.add("idle, 512 slots without a host", alone["box ns"] / milliseconds * 1e3, 0,
                      "ns/s", None)
            silent = box.work(1, 512, reads=0, milliseconds=milliseconds)
            for what, row, unit in (("processor", "box ns", "ns"),
                                    ("wake-ups", "box waits", "wake-ups")):
                table.add("idle, 512 slots of a silent host, %s a frame" % what,
                          silent[row] / max(silent["frames"], 1), 0, unit, None)


def part_guest(table, size):
    """Disks in a guest, in turn."""
    if size.cut > 1:
        raise Skipped("a guest takes minutes")
    try:
        bench_guest.measure(table, 3, 500)
    except bench_guest.machines.Missing as why:
        raise Skipped(str(why)) from why
    except bench_guest.ENDS as why:
        raise RuntimeError(str(why)) from why


PARTS = {"codec": part_codec, "route": part_route, "seal": part_seal,
         "equation": part_equation, "nvme": part_nvme,
         "memory": part_memory, "round-trip": part_round_trip,
         "round-trip-veth": part_round_trip_veth, "round-trip-xdp": part_round_trip_xdp,
         "frames": part_frames, "streams": part_streams, "jumbo": part_jumbo,
         "both": part_both, "devices": part_devices,
         "sealed": part_sealed, "cores": part_cores, "growth": part_growth, "idle": part_idle,
         "instructions": part_instructions, "path": part_path,
         "calls": part_calls, "guest": part_guest}


# ==== The table ===================================================================================

def number(value):
    if value is None:
        return "-"
    return "%.0f" % value if abs(value) >= 1000 else "%.4g" % value


def aim_text(aims):
    words = []
    for aim in aims:
        limits = [sign + "%g" % aim[key] for key, sign in (("least", ">= "), ("most", "<= "))
                  if aim[key] is not None]
        words.append("%s %s %s" % (aim["of"], " and ".join(limits),
                                   "met" if aim["met"] else "MISSED"))
    return ", ".join(words)


def print_table(rows):
    line = "%-44s %9s %-12s %9s %7s %7s  %s"
    print(line % ("figure", "median", "unit", "baseline", "ratio", "spread", "aim"))
    for row in rows:
        print(line % (row["name"], number(row["value"]), row["unit"], number(row["baseline"]),
                      "-" if row["ratio"] is None else "%.2f" % row["ratio"],
                      "%.0f %%" % (100 * row["spread"]), aim_text(row["aims"])), flush=True)


class Size:
    """How much is measured: all of it, or a trace of everything.  What takes a second or more a
    round has fewer of them, so that all is done in ten minutes."""

    def __init__(self, smoke):
        self.rounds, self.some, self.few, self.cut = (1, 1, 1, 20) if smoke else (7, 5, 3, 1)


def run(args):
    rows, skipped, broken, begin = [], {}, {}, time.monotonic()
    for name in args.only or PARTS:
        table, started = Table(), time.monotonic()
        try:
            PARTS[name](table, Size(args.smoke))
        except Skipped as why:
            skipped[name] = str(why)
        except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as why:
            broken[name] = "%s: %s" % (type(why).__name__, why)
        figures = [row.figures() for row in table.rows.values()]
        print("\n%s, %.0f s" % (name, time.monotonic() - started))
        print_table(figures)
        skipped.update(table.lacks)
        said = [("skipped", skipped.get(name)), ("BROKEN", broken.get(name))]
        for what, why in said + [("skipped: " + row, why) for row, why in table.lacks.items()]:
            if why:
                print("%s: %s" % (what, why), flush=True)
        rows += [dict(part=name, **row) for row in figures]
    seconds = time.monotonic() - begin
    print("\n%d figures, %d aims missed, %.0f s" % (
        len(rows), sum(not aim["met"] for row in rows for aim in row["aims"]), seconds))
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"machine": platform.machine(), "cores": len(os.sched_getaffinity(0)),
                       "kernel": platform.release(), "seconds": seconds, "rows": rows,
                       "skipped": skipped, "broken": broken}, file, indent=1)
            file.write("\n")
    return 1 if broken else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG)
    parser.add_argument("--json", metavar="FILE", help="all figures, as one JSON object")
    parser.add_argument("--smoke", action="store_true", help="a trace of everything: no figures")
    parser.add_argument("--only", action="append", choices=sorted(PARTS),
                        help="this part alone; again for more")
    parser.add_argument("--write", action="store_true", help="measure nothing: make what "
                        "build/bench.json, or --json, tells tests/data/bench.json and the tables "
                        "of README.md and spec/performance.md")
    args = parser.parse_args()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, demo.interrupt)
    if args.write:
        with open(args.json or os.path.join(ROOT, "build", "bench.json")) as file:
            bench_table.write(json.load(file))
        return 0
    try:
        return run(args)
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
