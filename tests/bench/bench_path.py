"""Where the time of a read of 64 bytes goes, as far as it can be counted: instructions of each
stage at both proxies (callgrind), and system calls (strace), of one read more, beside those of
plain datagrams.  Counts do not depend on what else the machine does."""
# SPDX-License-Identifier: MIT
import os
import re
import shutil
import subprocess

import demo  # from where bench.py has it
import lab

# A stage has what its function and all below it take, less the stages within.
STAGES = {
    "dxpu-host": (
        ("the loop", "dxpu_libevent.c:dxpu_udp_loop",
         ("receiving", "matching and asking", "sending")),
        ("receiving", "dxpu_libevent.c:receive_all", ("frame in",)),
        ("frame in", "dxpu.h:dxpu_channel_ingest", ()),
        ("matching and asking", "link.c:on_work", ("submitting",)),
        ("submitting", "dxpu.h:dxpu_channel_submit", ()),
        ("sending", "fabric.c:emit", ("frame out",)),
        ("frame out", "dxpu.h:dxpu_channel_emit_many", ())),
    "dxpu-box": (
        ("the loop", "dxpu_libevent.c:dxpu_udp_loop",
         ("receiving", "taking and checking", "sending")),
        ("receiving", "dxpu_libevent.c:receive_all", ("frame in",)),
        ("frame in", "dxpu.h:dxpu_channel_ingest", ()),
        ("taking and checking", "slots.c:slots_work", ("the model",)),
        ("the model", "memory.c:memory_tlp", ("checking the answer",)),
        ("checking the answer", "slots.c:device_emits", ("submitting",)),
        ("submitting", "dxpu.h:dxpu_channel_submit", ()),
        ("sending", "fabric.c:emit", ("frame out",)),
        ("frame out", "dxpu.h:dxpu_channel_emit_many", ()))}
ALL = "all"
WAIT = ("--wait", "block", "--json", "--quiet")
PROXY = WAIT + ("--plain", "--no-sandbox", "--hold-ms", 60000)  # callgrind is slow, not the peer


def pairs(count):
    """What is counted: (listener, client) of the proxies, and of plain datagrams as large."""
    yield (("dxpu-box", "--listen", "127.0.0.1:0") + PROXY,
           ("dxpu-host", "--box", None, "--load", "read", "--span", "4K", "--count", count) + PROXY)
    yield (("dxpu-pingpong", "--listen", "127.0.0.1:0") + WAIT,
           ("dxpu-pingpong", "--to", None, "--count", count, "--size", 64, "--reply", 128) + WAIT)


def under(tool, listener, client):
    """The outputs of the tool for the two."""
    with lab.Lab() as l:
        files = [l.file(end) for end in ("listener", "client")]
        words = [tool(file) + (os.path.join(lab.BIN, end[0]),) + end[1:]
                 for file, end in zip(files, (listener, client))]
        demo.turn(l, words[0], words[1], 2)
        return [tool.read(file) for file in files]


class Callgrind:
    """Instructions of all, and of each function and what it calls."""

    def __init__(self, functions):
        self.functions = functions

    def __call__(self, file):
        return (shutil.which("valgrind"), "--tool=callgrind", "--callgrind-out-file=" + file)

    def read(self, file):
        with open(file) as f:
            taken = {ALL: int(re.search(r"^totals: (\d+)", f.read(), re.M).group(1))}
        if not self.functions:
            return taken
        done = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", file],
                              capture_output=True, text=True, check=True)
        for count, function in re.findall(r"^ *([\d,]+) \([^)]*\) +(?:\S*/)?(\S+:\w+)",
                                          done.stdout, re.M):
            taken[function] = max(taken.get(function, 0), int(count.replace(",", "")))
        return taken


class Strace:
    """System calls."""

    def __call__(self, file):
        return (shutil.which("strace"), "-I", "2", "-f", "-c", "-o", file)

    def read(self, file):
        with open(file) as f:
            rows = [line.split() for line in f]
        return {ALL: next(int(row[3]) for row in rows if row[-1:] == ["total"])}


def more(tool, size, which):
    """Of one round trip more: {what: how many} of the listener and of the client."""
    count = 500 // size.cut
    runs = [under(tool, *list(pairs(n))[which]) for n in (count, 2 * count)[size.cut > 1:]]
    none = [{}, {}]  # a trace of the work has one run, start and all
    few, many = runs if len(runs) > 1 else (none, runs[0])
    return [{name: (b[name] - a.get(name, 0)) / count for name in b} for a, b in zip(few, many)]


def stages(table, size):
    box, host = more(Callgrind(True), size, 0)
    echo, ping = more(Callgrind(False), size, 1)
    for program, taken, plain in (("dxpu-host", host, ping), ("dxpu-box", box, echo)):
        rows = STAGES[program]
        of = {name: taken[function] for name, function, _ in rows}
        table.add("path of a read, %s" % program, taken[ALL], plain[ALL], "instructions",
                  "dxpu-pingpong")
        for name, _, within in rows:
            table.add("path of a read, %s: %s" % (program, name),
                      of[name] - sum(of[inner] for inner in within), 0, "instructions", None)


def system_calls(table, size):
    box, host = more(Strace(), size, 0)
    echo, ping = more(Strace(), size, 1)
    for program, taken, plain in (("dxpu-host", host, ping), ("dxpu-box", box, echo)):
        table.add("path of a read, %s: system calls" % program, taken[ALL], plain[ALL], "calls",
                  "dxpu-pingpong")
