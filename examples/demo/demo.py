#!/usr/bin/env python3
"""Shows dxpu at work and judges what it sees.

First a capture goes through dxpu-host and dxpu-box over a bad network, every TLP is checked, and
the round trip on a good network is compared with plain UDP.  Then a stock Linux guest under QEMU,
or the built-in root complex where none can be had, uses a box's NVMe controller, and a second guest
draws by Mesa on GPUs that are lent to it."""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
import machines  # noqa: E402
import opengl  # noqa: E402
import paths  # noqa: E402
import story  # noqa: E402

OWN = os.path.join(lab.ROOT, "tests", "data", "memory-mixed.pcap")
FAULTS = ("--loss", 20, "--duplicate", 20, "--reorder", 20, "--seed", 1)  # in 1/1000


SCREEN = os.path.join(lab.ROOT, "build", "demo-gpu.png")  # what the guest drew
EPILOG = "exit status: 0 all steps held, 1 one did not, 2 usage, 130 interrupted"
steps = 0


def say(text):
    print(text, flush=True)


def step(text):
    global steps
    steps += 1
    say("%d. %s" % (steps, text))


def choose_capture(own):
    shared = None if own else lab.shared_captures()
    path = shared and os.path.join(shared, "x520", "x520-1500B-32pkt.pcap")
    if path and os.path.isfile(path):
        return path, "DMA of an Intel X520 network card"
    return OWN, "the project's own capture of a driver's first steps, writes and reads"


def replay(repeat, own):
    """The bad network.  Rows for the table, and whether all is well."""
    capture, what = choose_capture(own)
    with lab.Lab() as l:
        step("dxpu-box: a slot with 16 MB of memory; it records every TLP that arrives")
        got, sent = l.file("arrived.pcap"), l.file("submitted.pcap")
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0", "--record", got, "--json")
        step("dxpu-relay: 2 % loss, 2 % duplication, 2 % reordering, in both directions")
        relay = l.start("dxpu-relay", "--to", box.address(), "--json", *FAULTS)
        step("dxpu-host replays %s, %d times:\n   %s" % (os.path.basename(capture), repeat, what))
        host = l.run("dxpu-host", "--box", relay.address(), "--replay", capture, "--fill",
                     "--repeat", repeat, "--record", sent, "--json", seconds=120)
        box_status = box.stop()
        relay.stop()
        for line in host.errors().splitlines():
            say("   " + line)
        if host.status is None or box_status != 0 or not host.result():
            say(box.errors())
            return [], False
        step("what was submitted and what arrived are compared, byte for byte")
        fate, result, faults = lab.compare(sent, got), host.result(), relay.result()
    rtt = result["rtt_us"]
    rows = [
        ("TLPs sent", fate["sent"]),
        ("TLPs delivered", fate["delivered"]),
        ("frames retransmitted", result["retransmits"]),
        ("TLPs refused", result["refused"]),
        ("altered", fate["altered"]),
        ("lost", fate["lost"]),
        ("doubled", fate["doubled"]),
        ("out of order in their class", fate["reordered"]),
        ("requests without answer", result["unanswered"]),
        ("round trip p50 / p90 / p99",
         "%.0f / %.0f / %.0f us" % (rtt["p50"], rtt["p90"], rtt["p99"])),
        ("throughput", "%.0f TLPs/s" % result["tlps_per_second"]),
        ("relay lost / doubled / reordered",
         "%d / %d / %d datagrams" % (faults["lost"], faults["duplicated"], faults["reordered"])),
    ]
    bad = sum(fate[k] for k in ("altered", "lost", "doubled", "reordered")) + result["unanswered"]
    good = host.status == 0 and bad == 0 and fate["sent"] == result["submitted"] > 0
    return rows, good


def turn(l, listener, client, cores):
    """One measurement: start the side that answers, run the other, stop the first; the result.
    Nothing else of the demo runs meanwhile, since busy polling takes a core for each side."""
    name, *words = listener
    answering = l.start(name, *words)
    answering.keep_to(0)
    name, *words = [w or answering.address() for w in client]
    asking = l.start(name, *words)
    asking.keep_to(cores - 1)
    status = asking.wait(60)
    answering.stop()
    if status != 0:
        raise RuntimeError("%s: %s" % (name, asking.errors()))
    return asking.result()


# How all programs wait, and on how many cores a pair runs: blocking on two would measure how fast
# the machine wakes an idle core, and that varies from one run to the next.
WAITING = (("busy", 2, "busy polling, a core each"), ("block", 1, "blocking, both on one core"))


def ratio(rounds, count):
    """The good network: a read of 64 bytes alternating with plain datagrams of the same sizes."""
    figures = {}
    with lab.Lab() as l:
        for wait, cores, _ in WAITING:
            mode = ("--wait", wait, "--json")
            box = ("dxpu-box", "--listen", "127.0.0.1:0") + mode
            host = ("dxpu-host", "--box", None, "--load", "read", "--count", count, "--span", "4K",
                    "--quiet") + mode
            echo = ("dxpu-pingpong", "--listen", "127.0.0.1:0") + mode
            ours, plain = [], []
            for _ in range(rounds):
                result = turn(l, box, host, cores)
                ours.append(result["rtt_us"]["p50"])
                sizes = ("--size", result["tx_frame_bytes"], "--reply", result["rx_frame_bytes"])
                ping = ("dxpu-pingpong", "--to", None, "--count", count) + sizes + mode
                plain.append(turn(l, echo, ping, cores)["rtt_us"]["p50"])
            a, b = statistics.median(ours), statistics.median(plain)
            figures[wait] = {"dxpu_us": a, "plain_us": b, "ratio": a / b}
    return figures


def ratio_rows(figures):
    return [("64-byte read, " + name, "dxpu %.1f us, plain UDP %.1f us, ratio %.2f" % (
        figures[wait]["dxpu_us"], figures[wait]["plain_us"], figures[wait]["ratio"]))
            for wait, _, name in WAITING]


def table(title, rows):
    say("\n" + title)
    for name, value in rows:
        say("  %-46s %s" % (name, value))


def choose_machine(l, built_in):
    step("a guest for the device: QEMU and a Debian guest are looked for")
    if not built_in:
        say("   what is missing is fetched once, 170 MB in all")
        os.environ.setdefault("DXPU_GUEST_FETCH", os.environ.get("DXPU_QEMU_FETCH", "yes"))
        try:
            return machines.Stock(l)
        except machines.Missing as missing:
            say("   %s" % missing)
    say("   no guest: the built-in root complex does what QEMU and a guest's kernel would")
    return machines.BuiltIn()


def failure(error):
    return "   FAILED: %s: %s" % (type(error).__name__, error)


# Each part adds its figures, and returns whether all held.

def part_replay(args, figures):
    rows, good = replay(4 if args.fast else 20, args.own)
    figures["replay"] = dict(rows)
    table("Replay through 2 % loss, duplication and reordering", rows)
    say("All TLPs arrived unaltered, once and in order." if good else "FAILED")
    return good


def part_ratio(args, figures):
    rounds, count = (3, 500) if args.fast else (7, 3000)
    step("without the relay: %d rounds of dxpu and plain UDP datagrams of its sizes, in turn"
         % rounds)
    figures["round_trip"] = ratio(rounds, count)
    table("Round trip on loopback, p50, medians", ratio_rows(figures["round_trip"]))
    return True


def part_paths(args, figures):
    cuts = 4 if args.fast else paths.CUTS
    step("two paths between host and box; %d times the one in use is cut under load" % cuts)
    with lab.Lab() as l:
        figures["paths"] = paths.story(l, cuts)
    table("A path is cut under load", paths.table(figures["paths"]))
    return True


def part_story(args, figures):
    with lab.Lab() as l:
        machine = choose_machine(l, args.built_in or args.fast)
        told = story.Story(l, machine, step, say, args.fast, args.wait, screen=SCREEN)
        figures["story"] = told.figures
        try:
            told.run()
        except Exception as error:
            say(failure(error))
            for process in l.processes:
                lines = process.errors().splitlines()[-5:]
                if lines:
                    say("   the last words of %s:" % process.name)
                    say("".join("      %s\n" % line for line in lines))
            return False
    rows = story.table(told.figures)
    if "round_trip" in figures:
        rows += ratio_rows(figures["round_trip"])
    table("Run by %s, medians" % told.machine.name, rows)
    return True


def part_opengl(args, figures):
    if args.fast or args.built_in:
        say("   skip: OpenGL by Mesa needs a guest")
        return True
    with lab.Lab() as l:
        begin = time.monotonic()
        try:
            figures["opengl"] = opengl.tell_story(l, step, say)
        except machines.Missing as missing:
            say("   skip: OpenGL by Mesa: %s" % missing)
            return True
        figures["opengl"]["seconds"] = time.monotonic() - begin
    return True


PARTS = (part_replay, part_ratio, part_paths, part_story, part_opengl)


def run(args):
    figures, held, begin = {}, True, time.monotonic()
    for part in PARTS:
        try:
            held &= part(args, figures)
        except Exception as error:  # whatever it is, the next part is another one
            held = False
            say(failure(error))
        say("")
    figures["seconds"] = time.monotonic() - begin
    figures["held"] = held
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    say("%s  (%.0f s)" % ("All steps held." if held else "FAILED", figures["seconds"]))
    return 0 if held else 1


def interrupt(number, frame):
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # what was started is being ended
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG)
    parser.add_argument("--fast", action="store_true", help="fewer rounds, and no guest")
    parser.add_argument("--own", action="store_true", help="never the hardware captures")
    parser.add_argument("--built-in", action="store_true",
                        help="no guest, even where one can be had")
    parser.add_argument("--wait", choices=("adaptive", "block"), default="adaptive",
                        help="how the proxies of the story wait (adaptive, their default)")
    parser.add_argument("--json", metavar="FILE", help="all figures, as one JSON object")
    args = parser.parse_args()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, interrupt)
    try:
        return run(args)
    except KeyboardInterrupt:
        say("\ninterrupted; what was started has been ended")
        return 130


if __name__ == "__main__":
    sys.exit(main())
