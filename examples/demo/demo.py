#!/usr/bin/env python3
"""Shows dxpu at work and judges what it sees.

First a capture goes through dxpu-host and dxpu-box over a bad network, every TLP is checked, and the
round trip on a good network is compared with plain UDP.  Then a stock Linux guest under QEMU, or the
built-in root complex where none can be had, uses an NVMe controller that stands in a box."""
# SPDX-License-Identifier: MIT
import argparse
import json
import os
import signal
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402
import machines  # noqa: E402
import story  # noqa: E402

OWN = os.path.join(lab.ROOT, "tests", "data", "memory-mixed.pcap")
FAULTS = ("--loss", 20, "--duplicate", 20, "--reorder", 20, "--seed", 1)  # in 1/1000


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
WAITING = (("busy polling, a core each", "busy", 2), ("blocking, both on one core", "block", 1))


def ratio(rounds, count):
    """The good network: a read of 64 bytes against plain datagrams of the same sizes, by turns."""
    figures = []
    with lab.Lab() as l:
        for name, wait, cores in WAITING:
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
            figures.append((name, "dxpu %.1f us, plain UDP %.1f us, ratio %.2f" % (a, b, a / b)))
    return figures


def table(title, rows):
    say("\n" + title)
    for name, value in rows:
        say("  %-46s %s" % (name, value))
    say("")


def choose_machine(l, built_in):
    if not built_in:
        say("   QEMU and a guest are looked for; what is missing is fetched once, 170 MB in all")
        os.environ.setdefault("DXPU_GUEST_FETCH", os.environ.get("DXPU_QEMU_FETCH", "yes"))
        try:
            return machines.Stock(l)
        except machines.Missing as missing:
            say("   %s" % missing)
    say("   no guest: the built-in root complex does what QEMU and a guest's kernel would")
    return machines.BuiltIn(l)


def tell_story(built_in, fast):
    """The slot's story.  Its figures, and whether all held."""
    with lab.Lab() as l:
        step("who will use the device?")
        machine = choose_machine(l, built_in)
        told = story.Story(l, machine, step, say, fast)
        try:
            told.run()
            return told.figures, True
        except Exception as error:  # whatever it is, the step did not hold
            say("   %s: %s" % (type(error).__name__, error))
            return told.figures, False


def interrupt(number, frame):
    raise KeyboardInterrupt


def run(args):
    figures = {}
    rows, good = replay(4 if args.fast else 20, args.own)
    table("Replay through 2 % loss, duplication and reordering", rows)
    say("All TLPs arrived unaltered, once and in order.\n" if good else "FAILED\n")
    figures["replay"] = dict(rows)
    step("without the relay: %d rounds of dxpu and plain UDP, by turns" % (3 if args.fast else 7))
    rows = ratio(3 if args.fast else 7, 500 if args.fast else 3000)
    table("Read of 64 bytes and datagrams of its sizes on loopback, p50, medians", rows)
    figures["round_trip"] = dict(rows)
    figures["story"], held = tell_story(args.built_in or args.fast, args.fast)
    if held:
        table("Told by %s, medians" % figures["story"]["told_by"],
              story.table(figures["story"]) + rows)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    say("All steps held." if good and held else "FAILED")
    return 0 if good and held else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG)
    parser.add_argument("--fast", action="store_true", help="fewer rounds, and no guest")
    parser.add_argument("--own", action="store_true", help="never the hardware captures")
    parser.add_argument("--built-in", action="store_true",
                        help="no guest, even where one can be had")
    parser.add_argument("--json", metavar="FILE", help="all figures, as one JSON object")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(args)
    except KeyboardInterrupt:
        say("\ninterrupted; what was started has been ended")
        return 130


if __name__ == "__main__":
    sys.exit(main())
