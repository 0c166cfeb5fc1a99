#!/usr/bin/env python3
"""Two paths between a host and a box: the one in use is cut repeatedly under load, and what is
seen is how long no answer arrived.  The data is checked; nothing may be lost."""
# SPDX-License-Identifier: MIT
import argparse
import os
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402

CUTS = 20
LOAD = ("--load", "mixed", "--size", 256, "--depth", 8, "--seconds", 60, "--span", "64K", "--json")
STEADY_S = 0.15  # before the cut, and after it


class Failed(Exception):
    pass


def one_run(l, boxes, cut):
    """A host's results under load; with `cut` the line of its first path is cut meanwhile."""
    lines = [l.start("dxpu-relay", "--to", box, "--json") for box in boxes]
    host = l.start("dxpu-host", "--box", ",".join(line.address() for line in lines), *LOAD)
    host.says("attached")
    time.sleep(STEADY_S)
    if cut:
        lines[0].popen.send_signal(signal.SIGUSR1)
    time.sleep(STEADY_S)
    ended = [process.stop() for process in [host] + lines]
    result = host.result()
    wrong = [name for name in ("mismatched", "unsuccessful", "unanswered", "contained")
             if result.get(name) != 0]
    if ended != [0, 0, 0] or wrong or result["incarnations"] != 1 or not result["reads"]:
        raise Failed("dxpu-host, relays: %s, %s %s" % (ended, wrong, host.errors()))
    if cut and not (result["channel"]["path_down"] and lines[0].result()["lost"]):
        raise Failed("the path was cut, and not left")
    return result


def story(l, cuts=CUTS):
    """Returns figures; raises Failed or any other error.  The two lines are cut alternately, and
    after each run with a cut comes one without."""
    box = l.start("dxpu-box", "--listen", "127.0.0.2:0,127.0.0.3:0", "--json")
    found = box.says(r" at (\S+:\d+), (\S+:\d+),")
    whole, cut = [], []
    for n in range(cuts):
        boxes = [found.group(1 + n % 2), found.group(2 - n % 2)]
        cut.append(one_run(l, boxes, True))
        whole.append(one_run(l, boxes, False))
    if box.stop() != 0:
        raise Failed("dxpu-box: " + box.errors())
    gaps = [result["longest_gap_us"] for result in cut]
    return {
        "cuts": cuts,
        "gap_median_us": statistics.median(gaps),
        "gap_largest_us": max(gaps),
        "uncut_gap_median_us": statistics.median(r["longest_gap_us"] for r in whole),
        "uncut_gap_largest_us": max(r["longest_gap_us"] for r in whole),
        "round_trip_us": statistics.median(r["rtt_us"]["p50"] for r in whole),
        "reads": sum(r["reads"] for r in whole + cut),
        "operations": sum(r["reads"] + r["writes"] for r in whole + cut),
        "sent_again": sum(r["retransmits"] for r in cut),
    }


def table(figures):
    """Rows of text for people."""
    return [
        ("cuts of the path in use, under load", "%d" % figures["cuts"]),
        ("longest time without an answer, median", "%.1f ms" % (figures["gap_median_us"] / 1000)),
        ("  the largest", "%.1f ms" % (figures["gap_largest_us"] / 1000)),
        ("  without a cut, median / largest", "%.1f / %.1f ms" % (
            figures["uncut_gap_median_us"] / 1000, figures["uncut_gap_largest_us"] / 1000)),
        ("round trip of a read, p50", "%.2f ms" % (figures["round_trip_us"] / 1000)),
        ("frames sent again", "%d" % figures["sent_again"]),
        ("operations, data lost or altered", "%d, none" % figures["operations"]),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=CUTS, help="how many (%d)" % CUTS)
    arguments = parser.parse_args()
    try:
        with lab.Lab() as l:
            figures = story(l, arguments.cuts)
    except (Failed, RuntimeError) as error:
        print("FAILED: %s" % error, file=sys.stderr)
        return 1
    print("Two paths, the one in use is cut")
    for name, value in table(figures):
        print("  %-46s %s" % (name, value))
    return 0


if __name__ == "__main__":
    sys.exit(main())
