#!/usr/bin/env python3
"""Follows a guest's reads of 4 KB at depth 1: which thread runs when, which wakes which, with which
system calls.  Records three disks with perf, the model without a fabric and a slot without and with
push rules, and keeps of each one request, and the counts of all.

    tests/bench/guest_trace.py FILE.json

Needs root, for the kernel's tracepoints.  guest_plot.py draws the file."""
# SPDX-License-Identifier: MIT
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
for room in ("examples/demo", "tests/guest", "tests/support"):
    sys.path.append(os.path.join(HERE, "..", "..", room))
import lab  # noqa: E402
import guest  # noqa: E402

SECONDS = 150  # until something that must happen has not
WARM, LOOK = 1, 6  # s: before the trace, and its length
BEHIND = 200  # us that are shown behind the answer
CALLS = {0: "read", 1: "write", 7: "poll", 24: "sched_yield", 44: "sendto", 45: "recvfrom",
         46: "sendmsg", 47: "recvmsg", 202: "futex", 232: "epoll_wait", 271: "ppoll",
         281: "epoll_pwait", 286: "timerfd_settime", 299: "recvmmsg", 307: "sendmmsg",
         327: "preadv2"}
VCPU, MAIN, READER = "vCPU", "QEMU main", "QEMU vfio-user"
KEEPER, WORKER, BOX, DIRECT = "dxpu-keeper", "dxpu-worker", "dxpu-box", "dxpu-direct"
FABRIC = (VCPU, MAIN, READER, KEEPER, WORKER, BOX)
# Its threads, and options of dxpu-host.
PLACES = {"direct": ((VCPU, MAIN, READER, DIRECT), None), "fabric": (FABRIC, ()),
          "pushed": (FABRIC, ("--push",))}
LINE = re.compile(r"^ *(.*?) +(\d+) +\[(\d+)\] +(\d+\.\d+): +\w+:(\w+): (.*)$")


class Rig:
    """A guest with all disks, and fio on one of them."""

    def __init__(self, l):
        self.programs = {place: self.start(l, place, options)
                         for place, (_, options) in PLACES.items()}
        extra = [word for place in PLACES for word in ("-device", guest.adapter(l.file(place)))]
        self.guest = guest.Guest(l, "guest", guest.tools(), guest.initramfs(l.file("initrd")), None,
                                 extra=("-name", "guest,debug-threads=on", *extra))
        self.guest.ready(SECONDS)
        self.disks = {}
        for domain, place in enumerate(PLACES):
            there = "/sys/bus/pci/devices/%d:*/nvme/nvme*" % (10000 + domain)
            self.guest.wait_for("ls %s/nvme*n1" % there, SECONDS)
            self.disks[place] = "/dev/%sn1" % os.path.basename(
                self.guest.must("ls -d " + there).strip())

    def start(self, l, place, options):
        """Who serves the guest, and the box."""
        disk = ("--file", l.file("disk-" + place), "--size", "64M")
        if options is None:
            host = l.start("dxpu-direct", "--vfio-user", l.file(place), "--slots", 1, *disk)
            box = None
        else:
            box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", *disk)
            host = l.start("dxpu-host", "--vfio-user", l.file(place), "--slots", 1, "--attach",
                           "1=%s/1" % box.address(), *options)
        host.says("waiting for a guest")
        return host, box

    def threads(self, place):
        """{thread's number: what it is} of those that a request may concern."""
        host, box = self.programs[place]
        whole = [(self.guest.popen.pid, MAIN)]
        if box:
            whole += [(box.popen.pid, BOX)]
            whole += [(pid, name) for name, pid in host.children() if name in (KEEPER, WORKER)]
        else:
            whole += [(host.popen.pid, DIRECT)]
        found = {}
        for pid, name in whole:
            for tid in map(int, os.listdir("/proc/%d/task" % pid)):
                with open("/proc/%d/task/%d/comm" % (pid, tid)) as file:
                    comm = file.read().strip()
                found[tid] = name if tid == pid else VCPU if comm.startswith("CPU ") else \
                    READER if comm.startswith("IO ") else "%s: %s" % (name, comm)
        return found

    def load(self, place):
        job = " ".join(("fio", "--name=job", "--filename=" + self.disks[place], "--direct=1",
                        "--allow_file_create=0", "--ioengine=libaio", "--rw=randread", "--bs=4k",
                        "--iodepth=1", "--size=32m", "--time_based", "--runtime=%d"
                        % (WARM + LOOK + 2)))
        return self.guest.start(job)


def one_of(field, tids):
    return " || ".join("%s == %d" % (field, tid) for tid in tids)


def record(path, tids):
    """What the kernel saw of these threads, as text.  Tracepoints are read in a name space of our
    own, so that nothing stays mounted."""
    words = ["perf", "record", "-q", "-a", "-m", "16M", "-o", path]
    for event, names in (("sched:sched_switch", ("prev_pid", "next_pid")),
                         ("sched:sched_waking", ("pid",)),
                         ("raw_syscalls:sys_enter", ("common_pid",)),
                         ("raw_syscalls:sys_exit", ("common_pid",))):
        words += ["-e", event, "--filter", " || ".join(one_of(name, tids) for name in names)]
    words += ["--", "sleep", str(LOOK)]
    mount = "mount -t tracefs trace /sys/kernel/tracing 2>/dev/null; "
    subprocess.run(["unshare", "-m", "sh", "-c", mount + 'exec "$@"', "sh", *words], check=True)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount + 'exec "$@"', "sh", "perf", "script", "--ns", "-i",
         path, "-F", "comm,tid,cpu,time,event,trace"], check=True, capture_output=True, text=True)
    return done.stdout


class Trace:
    """Events of named threads, times in us."""

    def __init__(self, text, names):
        self.names = names
        self.runs, self.wakes, self.calls = [], [], []
        self.since, self.inside = {}, {}
        for line in text.splitlines():
            found = LINE.match(line)
            if found:
                _, tid, _, at, event, more = found.groups()
                self.take(int(tid), float(at) * 1e6, event, more)
        self.calls.sort(key=lambda call: call["at"])

    def take(self, tid, at, event, more):
        if event == "sched_switch":
            gone = int(re.search(r"prev_pid=(\d+)", more).group(1))
            come = int(re.search(r"next_pid=(\d+)", more).group(1))
            if gone in self.since:
                self.runs.append({"thread": self.names[gone], "at": self.since.pop(gone),
                                  "end": at})
            if come in self.names:
                self.since[come] = at
        elif event == "sched_waking":
            woken = self.names[int(re.search(r" pid=(\d+)", more).group(1))]
            self.wakes.append({"at": at, "by": self.names.get(tid, "a timer"), "thread": woken})
        elif event == "sys_enter":
            number, first = re.match(r"NR (\d+) \((\w+)", more).groups()
            self.inside[tid] = (at, int(number), int(first, 16))
        elif tid in self.inside:
            begin, number, first = self.inside.pop(tid)
            self.calls.append({"thread": self.names[tid], "at": begin, "end": at, "fd": first,
                               "name": CALLS.get(number, "call %d" % number)})

    def answers(self, server):
        """When the server had interrupts sent."""
        return [c["at"] for c in self.calls if c["thread"] == server and c["name"] == "sendmsg"]

    def requests(self, server):
        """[doorbell, next doorbell behind the answer, the request's end] of each whole request.
        The driver rings twice: for the entry, and from its interrupt for the completion."""
        rings = [c for c in self.calls if c["thread"] == VCPU and c["name"] == "sendmsg"]
        fd = collections.Counter(c["fd"] for c in rings).most_common(1)[0][0]
        rings = [c["at"] for c in rings if c["fd"] == fd]
        answers = self.answers(server)
        answered = [any(a < t < b for t in answers) for a, b in zip(rings, rings[1:])]
        return [(rings[i], rings[i + 1], rings[i + 2]) for i in range(len(rings) - 2)
                if answered[i] and not answered[i + 1]]

    def between(self, begin, end):
        """What happened then, times from its beginning on."""
        def cut(items):
            return [{key: round(value - begin, 1) if key in ("at", "end") else value
                     for key, value in item.items() if key != "fd"} for item in items]
        return {"runs": cut([dict(r, at=max(r["at"], begin), end=min(r["end"], end))
                             for r in self.runs if r["end"] > begin and r["at"] < end]),
                "wakes": cut([w for w in self.wakes if begin <= w["at"] <= end]),
                "calls": cut([c for c in self.calls if begin <= c["at"] <= end])}

    def count(self, requests, server):
        """Of one request, from doorbell to doorbell, on average over all."""
        first, last = requests[0][0], requests[-1][2]
        n = sum(first <= at < last for at in self.answers(server))
        waked = collections.Counter("%s wakes %s" % (w["by"], w["thread"]) for w in self.wakes
                                    if first <= w["at"] < last)
        called = collections.Counter("%s: %s" % (c["thread"], c["name"]) for c in self.calls
                                     if first <= c["at"] < last)
        ran = collections.Counter()
        for r in self.runs:
            if first <= r["at"] < last:
                ran[r["thread"]] += r["end"] - r["at"]
        return {"requests": n, "wakes_each": {k: round(v / n, 2) for k, v in waked.most_common()},
                "calls_each": {k: round(v / n, 2) for k, v in called.most_common()},
                "ran_us_each": {k: round(v / n, 1) for k, v in ran.most_common()}}


def one_of_all(trace, place):
    """The quickest request, for slower ones show what else the machine did, and what all have in
    common."""
    server = KEEPER if KEEPER in PLACES[place][0] else DIRECT  # who has QEMU's connection
    requests = sorted(trace.requests(server), key=lambda r: r[1] - r[0])
    begin, answered, end = requests[0]
    end = min(end, answered + BEHIND)
    kept = trace.between(begin, end)
    kept.update(threads=list(PLACES[place][0]), answered=round(answered - begin, 1),
                end=round(end - begin, 1), median_us=round(statistics.median(
                    r[1] - r[0] for r in requests), 1))
    kept.update(trace.count(sorted(requests), server))
    return kept


def as_text(kept):
    """JSON, an event a line."""
    text = json.dumps(kept, indent=1)
    return re.sub(r"\{\s+((?:\"\w+\": [^{}\[\]\n]+\s+)+)\}",
                  lambda m: "{%s}" % re.sub(r"\s*\n\s*", " ", m.group(1)).strip(), text) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    kept = {}
    with lab.Lab() as l, tempfile.TemporaryDirectory() as directory:
        rig = Rig(l)
        for place in PLACES:
            names = rig.threads(place)
            number = rig.load(place)
            subprocess.run(["sleep", str(WARM)], check=True)
            text = record(os.path.join(directory, place), names)
            rig.guest.finish(number, SECONDS)
            kept[place] = one_of_all(Trace(text, names), place)
    with open(sys.argv[1], "w") as file:
        file.write(as_text(kept))


if __name__ == "__main__":
    main()
