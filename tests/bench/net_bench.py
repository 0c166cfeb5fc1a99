#!/usr/bin/env python3
# make: $(BENCHES:%.c=build/%)
"""What `make bench` runs, with a trace of its work: every part measures something and every figure
is in the JSON.  No figure is judged here.

Prints `ok NAME` or `not ok NAME` for each check."""
# SPDX-License-Identifier: MIT
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "examples", "demo"))
import bench_guest  # noqa: E402
import bench_path  # noqa: E402

BENCH = [sys.executable, os.path.join(HERE, "bench.py"), "--smoke"]
PAYLOADS = (0, 64, 128, 256, 512, 4096)
ENTRIES = (8, 64, 512, 4096, 65534)
failed = 0


def check(name, truth, *shown):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name, flush=True)
    if not truth:
        print("  " + " ".join(str(s) for s in shown))


def expected():
    """The rows of each part."""
    trips = {where: ["read %d B, %s, %s" % (n, where, p) for n in (64, 256)
                     for p in ("p50", "p99", "p99.9")] for where in ("loopback", "veth", "AF_XDP")}
    streams = ["write stream %d B%s" % (n, how) for n in (256, 512) for how in ("", ", lossless")]
    streams += ["write stream 256 B, lossless, window 256"]
    streams += ["read stream %d B, %d tags" % (n, tags) for n in (256, 512)
                for tags in (32, 140, 256)] + ["read stream 4096 B, 256 tags"]
    jumbo = ["write stream %d B, lossless, MTU 9000" % n for n in (256, 512)]
    jumbo += ["read stream 4096 B, 256 tags, MTU 9000"]
    return {
        "codec": ["codec %d B" % n for n in PAYLOADS] + ["tlp %d B" % n for n in PAYLOADS]
        + ["codec 8 x %d B" % n for n in PAYLOADS[:-1]],
        "route": ["route %s %d" % (what, n) for n in ENTRIES
                  for what in ("channel", "slot", "bdf", "address", "classify+route")
                  if what != "channel" or n <= 4096],
        "seal": ["seal %s %d B" % (suite, n) for suite in ("chacha20-poly1305", "crc")
                 for n in (104, 364, 1436, 4208, 8956)]
        + ["handshake, both ends", "initiation without a cookie"],
        "equation": ["equation1 %d x %d B / %.1f us" % (tags, n, rtt) for rtt in (4.9, 6.8)
                     for tags, n in ((32, 128), (32, 256), (140, 128), (140, 256), (256, 512))]
        + ["window %d frames, %d us" % (w, rtt) for w in (16, 256) for rtt in (7, 100)]
        + ["pushed, not pulled by 140 x 128 B / %g us" % rtt
           for rtt in (4.9, 6.8, 20, 100, 1000)],
        "nvme": ["nvme %s of 4 KB%s, %s" % (what, how, row) for what in ("read", "write")
                 for how in ("", " pushed")
                 for row in ("requests", "20 us round trip", "100 us round trip",
                             "1000 us round trip")]
        + ["nvme write of 4 KB, data in the buffer, requests"],
        "memory": ["memory sizeof(dxpu_channel)", "memory channel by default",
                   "memory box of 512 slots", "memory box of 512 nvme slots",
                   "start-up of a box", "start-up, 512 slots"]
        + ["memory %s of %d frames" % (what, w) for what in ("channel", "state")
           for w in (16, 64, 256)],
        "path": ["path of a read, %s%s" % (program, what)
                 for program, stages in bench_path.STAGES.items()
                 for what in [""] + [": " + stage[0] for stage in stages]],
        "calls": ["path of a read, %s: system calls" % program for program in bench_path.STAGES],
        "round-trip": trips["loopback"],
        "round-trip-veth": trips["veth"],
        "round-trip-xdp": trips["AF_XDP"],
        "frames": ["frames a second, AF_XDP beside UDP", "processor a frame, AF_XDP beside UDP"],
        "jumbo": ["plain stream of 8952 B, messages"]
        + ["%s beside %s" % (name, floor) for name in jumbo for floor in ("messages", "segments")],
        "both": ["both directions at once, %d B" % n for n in (512, 4096)],
        "streams": ["plain stream, messages"]
        + ["%s beside %s" % (name, floor) for name in streams
           for floor in ("messages", "segments")]
        + ["%s of %d B, processor, beside %s" % (*which, floor)
           for which in (("write", 256), ("write", 512), ("read", 256))
           for floor in ("messages", "segments")],
        "sealed": ["read %d B sealed" % n for n in (64, 256)]
        + ["write stream %d B sealed" % n for n in (256, 512)],
        "devices": ["devices %d" % n for n in (1, 2, 4, 8)]
        + ["devices %d, %s share" % (n, which) for n in (2, 4, 8)
           for which in ("least", "largest")],
        "cores": ["2 devices, 2 cores"],
        "growth": ["growth, " + row for row in (
            ["host, %d slots busy" % n for n in (1, 8, 28)]
            + ["box of 512 leased slots, %d busy" % n for n in (1, 64, 512)]
            + ["hosts at a box, %d" % n for n in (1, 8, 64)]
            + ["cores of a box with 8 hosts, %d" % n for n in (1, 2, 4)])],
        "idle": ["idle, 512 slots without a host"]
        + ["idle, 512 slots of a silent host, " + what for what in ("processor a frame",
                                                                    "wake-ups a frame")],
        "instructions": ["instructions codec %d B" % n for n in PAYLOADS],
        "guest": bench_guest.rows(),
    }


def measured(*words, **settings):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.json")
        done = subprocess.run(BENCH + ["--json", path, *words], capture_output=True, text=True,
                              timeout=280, env=dict(os.environ, **settings))
        with open(path) as file:
            return done, json.load(file)


def main():
    done, told = measured()
    check("status", done.returncode == 0 and not told["broken"], told["broken"], done.stderr)
    for part, names in expected().items():
        if part in told["skipped"]:
            print("skip rows_of_%s %s" % (part, told["skipped"][part]))
            continue
        rows = {row["name"]: row for row in told["rows"] if row["part"] == part}
        optional = {name for name in rows if name.startswith("seal ae")}  # by AES in hardware
        check("rows_of_" + part, set(rows) - optional == set(names), set(rows) ^ set(names))
        check("figures_of_" + part, rows and all(
            row["value"] > 0 for name, row in rows.items()
            if "least" not in name and not name.startswith("idle")
            and not name.endswith("requests")), rows)
    aims = [aim for row in told["rows"] for aim in row["aims"]]
    missed = sum(not aim["met"] for aim in aims)
    check("missed_aims_are_told", aims and done.stdout.count("MISSED") >= (missed > 0)
          and "%d aims missed" % missed in done.stdout, done.stdout)
    check("table_has_all_rows", all(row["name"] in done.stdout for row in told["rows"]))
    with tempfile.TemporaryDirectory() as empty:
        done, told = measured("--only", "codec", "--only", "round-trip", DXPU_BIN=empty)
    check("control_missing_programs", done.returncode == 1 and not told["rows"]
          and sorted(told["broken"]) == ["codec", "round-trip"], done.returncode, told)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
