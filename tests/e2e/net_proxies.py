#!/usr/bin/env python3
"""dxpu-host and dxpu-box over UDP on loopback: loss, corruption, IPv4 and 6, restarts, leases.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import array
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402

OWN = os.path.join(rooms.TESTS, "data", "memory-mixed.pcap")
V4, V6 = "127.0.0.1:0", "[::1]:0"
GOOD = dict(altered=0, lost=0, doubled=0, reordered=0)


def fate_is_good(fate):
    return fate["sent"] == fate["delivered"] > 0 and all(fate[k] == 0 for k in GOOD)


def through(listen, faults, load, *box_args):
    """One verified load from host to box, by a relay when there are faults."""
    with lab.Lab() as l:
        sent, got = l.file("sent.pcap"), l.file("got.pcap")
        box = l.start("dxpu-box", "--listen", listen, "--record", got, "--json", *box_args)
        to = box.address()
        relay = None
        if faults:
            relay = l.start("dxpu-relay", "--listen", listen, "--to", to, "--json", *faults)
            to = relay.address()
        host = l.run("dxpu-host", "--box", to, "--record", sent, "--json", *load)
        box_status = box.stop()
        result, there = host.result(), box.result()
        check(host.status == 0, "host", host.status, host.errors())
        check(box_status == 0, "box", box_status, box.errors())
        check(result["mismatched"] == 0 and result["unanswered"] == 0, result)
        check(result["acked"] == result["submitted"], result)
        fate = lab.compare(sent, got)
        check(fate_is_good(fate), fate)
        check(there["slot_1"]["malformed"] == 0, there)
        check(there["proxy"]["unannounced"] == there["proxy"]["unseen"] == 0, there)
        done = relay.stop() if relay else 0
        check(done == 0, "relay", done)
        return result, relay.result() if relay else {}


MIXED = ("--load", "mixed", "--size", 256, "--depth", 16, "--count", 3000, "--span", "64K")
SOME = ("--load", "mixed", "--size", 512, "--depth", 8, "--count", 1000, "--span", "32K")


def bad_network(per_mille, seed):
    return ("--loss", per_mille, "--duplicate", per_mille, "--reorder", per_mille,
            "--corrupt", per_mille, "--seed", seed)


@case
def clean_v4():
    result, _ = through(V4, (), MIXED)
    check(result["incarnations"] == 1, result)
    check(result["rtt_us"]["count"] == result["reads"] > 0, result)


@case
def clean_v6():
    through(V6, (), MIXED)


@case
def bad_3_percent_v4():
    result, faults = through(V4, bad_network(30, 3), MIXED)
    check(result["retransmits"] > 0, result)
    for fault in ("lost", "duplicated", "reordered", "corrupted"):
        check(faults[fault] > 0, faults)
    check(result["channel"]["rx_crc"] + result["channel"]["rx_length"] +
          result["channel"]["rx_magic"] + result["proxy"]["not_frames"] > 0, result)


@case
def bad_3_percent_v6():
    result, faults = through(V6, bad_network(30, 4), SOME)
    check(result["retransmits"] > 0 and faults["lost"] > 0, result, faults)


@case
def bad_20_percent_v4():
    hold = ("--hold-ms", 5000)
    result, faults = through(V4, bad_network(200, 5), SOME + hold, *hold)
    check(result["retransmits"] > 0 and faults["corrupted"] > 0, result, faults)


@case
def long_reads_are_split():
    result, _ = through(V4, bad_network(10, 6), ("--load", "read", "--size", 4096, "--depth", 8,
                                                 "--count", 200, "--span", "64K", "--mps", 128))
    # 4 KB in completions of 128 bytes: 32 for each read of the run
    check(result["mps"] == 128 and result["completions"] >= 200 * 32, result)


@case
def writes_are_read_back():
    result, _ = through(V4, bad_network(20, 7), ("--load", "write", "--size", 1024, "--count", 500,
                                                 "--span", "64K"))
    check(result["writes"] == 500 and result["read_back"] > 0, result)


@case
def all_waiting_modes():
    for wait in ("adaptive", "block", "busy"):
        result, _ = through(V4, (), ("--load", "read", "--count", 300, "--span", "4K",
                                     "--wait", wait))
        check(result["reads"] == 300, wait, result)


@case
def small_window_and_mtu():
    through(V4, bad_network(30, 8), SOME + ("--window", 4, "--mtu", 1280))


@case
def jumbo_frames():
    through(V4, (), SOME + ("--mtu", 9000))


@case
def both_ip_versions_at_once():
    with lab.Lab() as l:
        box = l.start("dxpu-box", "--listen", "127.0.0.1:0,[::1]:0", "--slots", 2, "--json")
        both = box.says(r" at (\S+:\d+), (\S+:\d+),")
        for slot in (1, 2):
            host = l.run("dxpu-host", "--box", both.group(slot), "--slot", slot, "--json", *SOME)
            check(host.status == 0 and host.result()["mismatched"] == 0, host.errors())
        check(box.stop() == 0)


def lab_pair(l, *box_args):
    box = l.start("dxpu-box", "--listen", V4, "--json", *box_args)
    return box, box.address()


@case
def box_is_killed_and_comes_back():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        host = l.start("dxpu-host", "--box", at, "--load", "mixed", "--size", 64, "--depth", 4,
                       "--seconds", 60, "--span", "64K", "--hold-ms", 300, "--json")
        host.says("attached")
        time.sleep(0.3)
        box.kill()
        again = l.start("dxpu-box", "--listen", at, "--json")
        again.says("lent to", 30)
        host.says("attached.*\n(?:.*\n)*.*attached", 30)
        status = host.stop(30)
        result = host.result()
        check(result.get("incarnations", 0) >= 2, status, host.errors())
        check(result["mismatched"] == 0, result)
        # requests in flight when the box died are answered once, as an error: never forgotten
        check(result["unanswered"] == result["contained"], result)
        check(status == (1 if result["contained"] else 0), status, result)
        check(again.stop() == 0)


@case
def silence_below_hold_is_only_delay():
    with lab.Lab() as l:
        box, at = lab_pair(l, "--hold-ms", 5000)
        host = l.start("dxpu-host", "--box", at, "--load", "mixed", "--seconds", 2, "--span", "64K",
                       "--hold-ms", 5000, "--json")
        host.says("attached")
        box.popen.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # above the default
        box.popen.send_signal(signal.SIGCONT)
        status = host.wait(30)
        result = host.result()
        check(status == 0 and result["incarnations"] == 1, status, host.errors())
        check(result["contained"] == 0 and result["mismatched"] == 0, result)
        check(box.stop() == 0)


@case
def smaller_hold_of_both_ends_counts():
    with lab.Lab() as l:
        box, at = lab_pair(l, "--hold-ms", 300)
        host = endless(l, at, "--give-up-ms", 3000, "--hold-ms", 20000)
        box.popen.send_signal(signal.SIGSTOP)
        host.says("channel lost: no frame for 300 ms")
        check(host.wait(20) == 4)
        box.popen.send_signal(signal.SIGCONT)
        check(box.stop() == 0)


@case
def two_slots_at_once():
    with lab.Lab() as l:
        box, at = lab_pair(l, "--slots", 2, "--memory", "1M")
        hosts = [l.start("dxpu-host", "--box", at, "--slot", slot, "--node", slot, "--json", *SOME)
                 for slot in (1, 2)]
        for host in hosts:
            check(host.wait(30) == 0, host.errors())
            check(host.result()["mismatched"] == 0)
        check(box.stop() == 0)
        there = box.result()
        for slot in ("slot_1", "slot_2"):
            check(there[slot]["memory"]["writes"] > 0, there)


def one_read(l, at, *args):
    return l.run("dxpu-host", "--box", at, "--load", "read", "--count", 1, "--span", "4K",
                 "--give-up-ms", 1500, "--json", *args)


@case
def completions_wait_for_room():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        # 64 reads in flight bring 2,048 completions, more than the box's queue holds
        host = l.run("dxpu-host", "--box", at, "--load", "read", "--size", 4096, "--depth", 64,
                     "--count", 2000, "--mps", 128, "--json")
        check(host.status == 0 and host.result()["reads"] == 2000, host.errors())
        check(box.stop() == 0)
        slot = box.result()["slot_1"]
        check(slot["waited"] > 0 and slot["dropped"] == 0, slot)


@case
def frames_are_recorded():
    with lab.Lab() as l:
        box, at = lab_pair(l, "--plain")  # sealed ones say nothing
        capture = l.file("frames.pcap")
        host = l.run("dxpu-host", "--box", at, "--plain", "--frames", capture, "--json", *SOME)
        check(host.status == 0 and box.stop() == 0)
        counts = host.result()["udp"]
        size = counts["tx_datagrams"] + counts["rx_datagrams"]
        check(count_packets(capture) == size > 0, count_packets(capture), counts)
        shown = l.run("dxpu", "pcap", capture)
        check(shown.status == 0, shown.status, shown.errors()[:500])


def count_packets(path):
    with open(path, "rb") as f:
        data = f.read()
    at, packets = 24, 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        packets += 1
    return packets


@case
def stale_epoch_is_refused():
    with lab.Lab() as l:
        state = l.file("state")
        box, at = lab_pair(l, "--state", state)
        check(one_read(l, at, "--epoch", 5).status == 0)
        old = one_read(l, at, "--epoch", 4)
        check(old.status == 4 and "--epoch" in old.errors(), old.status, old.errors())
        check(one_read(l, at, "--epoch", 5).status == 0)  # the control: not refused for ever
        check(box.stop() == 0 and box.result()["refused_epoch"] == 1, box.result())
        again = l.start("dxpu-box", "--listen", at, "--state", state, "--json")
        again.address()
        check(one_read(l, at, "--epoch", 4).status == 4)  # a restart forgets nothing
        check(one_read(l, at, "--epoch", 5, "--node", 9).status == 4)
        check(one_read(l, at, "--epoch", 5).status == 0)
        check(again.stop() == 0)
        fresh, where = lab_pair(l)
        check(one_read(l, where, "--epoch", 4).status == 0)  # the control: without the file it does
        check(fresh.stop() == 0)


@case
def lease_that_cannot_be_kept_is_not_granted():
    with lab.Lab() as l:
        folder = l.file("leases")
        os.mkdir(folder)
        state = os.path.join(folder, "state")
        box, at = lab_pair(l, "--state", state)
        check(one_read(l, at, "--epoch", 5).status == 0)
        shutil.rmtree(folder)
        for _ in range(2):  # the second one must not find the epoch of the first
            host = one_read(l, at, "--epoch", 6)
            check(host.status == 4 and host.result()["reads"] == 0, host.status, host.errors())
        check("not granted" in box.errors() and "--state" in box.errors(), box.errors())
        check(one_read(l, at, "--epoch", 5).status == 0)  # what is on disk still holds
        os.mkdir(folder)
        check(one_read(l, at, "--epoch", 6).status == 0)
        check(box.stop() == 0)
        with open(state) as f:
            check(f.read().split()[:2] == ["1", "6"], "state")


@case
def state_file_is_tried_at_start():
    with lab.Lab() as l:
        lost = l.run("dxpu-box", "--listen", V4, "--state", l.file("none/state"), seconds=10)
        check(lost.status == 3 and "directory that exists" in lost.errors(), lost.errors())
        state = l.file("state")
        for text in ("1 2 3\n", "x\n", "1 5 1 65535\n0 5 1 65535\n", "1 -1 1 1\n", "1 1 1 1 1\n"):
            with open(state, "w") as f:
                f.write(text)
            bad = l.run("dxpu-box", "--listen", V4, "--state", state, seconds=10)
            wanted = "line %d is not" % text.count("\n")
            check(bad.status == 5 and wanted in bad.errors(), text, bad.status, bad.errors())
        with open(state, "w") as f:
            f.write("1 5 1 65535\n2 7 1 65535\n")
        box, at = lab_pair(l, "--state", state)  # fewer slots: the lease of the second stays
        check(one_read(l, at, "--epoch", 6).status == 0 and box.stop() == 0, box.errors())
        with open(state) as f:
            lines = f.read().splitlines()
        check([line.split()[:2] for line in lines] == [["1", "6"], ["2", "7"]], lines)


@case
def places_name_their_sender():
    """W-29: the source of an accept is the box."""
    with lab.Lab() as l:
        box, at = lab_pair(l, "--node", 77, "--plain")  # sealed frames do not say
        capture = l.file("frames.pcap")
        check(one_read(l, at, "--node", 9, "--plain", "--frames", capture).status == 0)
        check(box.stop() == 0)
        shown = l.run("dxpu", "pcap", "--json", capture)
        frames = [json.loads(line).get("frame", {}) for line in shown.output().splitlines()]
        places = {f["kind"]: (f["source"]["node"], f["destination"]["node"])
                  for f in frames if "source" in f}
        check(places == {"open": (9, 0), "accept": (77, 9)}, places)


def endless(l, at, *args):
    host = l.start("dxpu-host", "--box", at, "--load", "mixed", "--seconds", 60, "--span", "64K",
                   "--json", *args)
    host.says("attached")
    return host


@case
def slot_has_one_host():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        first = endless(l, at, "--node", 1)
        second = one_read(l, at, "--node", 9)
        check(second.status == 4, second.status, second.errors())
        check(first.stop() == 0, first.errors())
        check(first.result()["mismatched"] == 0 and first.result()["incarnations"] == 1)
        # an epoch names one lease of one host, also when it has been given back
        check(one_read(l, at, "--node", 9).status == 4)
        check(one_read(l, at, "--node", 1).status == 0)  # the control: the slot works
        check(one_read(l, at, "--node", 9, "--epoch", 2).status == 0)
        check(box.stop() == 0)


@case
def higher_epoch_takes_over():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        first = endless(l, at, "--node", 1, "--epoch", 1)
        second = one_read(l, at, "--node", 9, "--epoch", 2)
        check(second.status == 0, second.status, second.errors())
        check(first.wait(10) == 4 and "newer incarnation" in first.errors(), first.errors())
        check(box.stop() == 0)


@case
def wrong_slot_and_no_box():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        wrong = one_read(l, at, "--slot", 2)
        check(wrong.status == 4 and "--slot" in wrong.errors(), wrong.errors())
        check(box.stop() == 0)
        nobody = one_read(l, at, "--give-up-ms", 300)
        check(nobody.status == 4 and "no answer" in nobody.errors(), nobody.errors())


@case
def memory_is_reset_between_hosts():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        check(l.run("dxpu-host", "--box", at, "--json", *SOME).status == 0)
        check(one_read(l, at).status == 0)
        check(box.stop() == 0)
        # a reset when each came up and when each left
        check(box.result()["slot_1"]["memory"]["resets"] == 4, box.result())


@case
def ctrl_c_closes_gracefully():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        host = endless(l, at, "--depth", 8)
        host.popen.send_signal(signal.SIGUSR1)
        host.says("rtt_us")
        box.popen.send_signal(signal.SIGUSR1)
        box.says("slot_1")
        check(host.stop() == 0, host.errors())
        check(host.result()["contained"] == 0, host.result())
        check(box.stop() == 0 and box.result()["proxy"]["ended_close"] == 1, box.result())


@case
def box_shuts_down_first():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        host = endless(l, at, "--give-up-ms", 3000)
        check(box.stop() == 0, box.errors())
        check(host.wait(20) == 4, host.errors())


@case
def replay_refuses_what_is_cut():
    with lab.Lab() as l:
        with open(OWN, "rb") as f:
            data = bytearray(f.read())
        # shorten what the first write's UDP header says by one dword
        at = 24
        while True:
            length = int.from_bytes(data[at + 8 : at + 12], "little")
            tlp = data[at + 16 + 48 : at + 16 + length]
            if tlp[0] & 0xDF == 0x40:
                udp = at + 16 + 34 + 4
                value = int.from_bytes(data[udp : udp + 2], "big") - 4
                data[udp : udp + 2] = value.to_bytes(2, "big")
                break
            at += 16 + length
        cut = l.file("cut.pcap")
        with open(cut, "wb") as f:
            f.write(data)
        box, where = lab_pair(l)
        whole = l.run("dxpu-host", "--box", where, "--replay", OWN, "--json").result()
        short = l.run("dxpu-host", "--box", where, "--replay", cut, "--json").result()
        filled = l.run("dxpu-host", "--box", where, "--replay", cut, "--fill", "--json").result()
        check(box.stop() == 0)
        check(whole["refused"] == 0 and whole["unsuccessful"] == 0, whole)
        check(short["refused"] == 1 and short["refused_by_reason"] == {"E_TLP_SHORT": 1}, short)
        check(short["submitted"] == whole["submitted"] - 1, short)
        check(filled["refused"] == 0 and filled["filled"] == 1, filled)


@case
def interrupted_runs_have_times():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        host = endless(l, at)
        time.sleep(0.3)
        host.popen.send_signal(signal.SIGUSR1)
        check(float(host.says(r"\nseconds +([0-9.]+)").group(1)) > 0, host.errors())
        check(host.stop() == 0, host.errors())
        result = host.result()
        check(result["seconds"] > 0.2 and result["operations_per_second"] > 0, result)
        host = l.start("dxpu-host", "--box", at, "--replay", OWN, "--repeat", 10**9, "--json")
        host.says("attached")
        time.sleep(0.3)
        check(host.stop() == 0, host.errors())
        check(host.result()["seconds"] > 0.2 and host.result()["tlps_per_second"] > 0,
              host.result())
        host = endless(l, at, "--give-up-ms", 3000, "--hold-ms", 300)
        time.sleep(0.3)
        box.kill()
        check(host.wait(20) == 4, host.errors())
        check(host.result()["seconds"] > 0, host.result())


@case
def second_ctrl_c_counts_what_is_in_flight():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        host = endless(l, at, "--depth", 4, "--hold-ms", 20000)
        time.sleep(0.5)  # the memory is filled: it reads
        box.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        host.popen.send_signal(signal.SIGINT)
        time.sleep(0.3)
        status = host.stop()
        result = host.result()
        box.popen.send_signal(signal.SIGCONT)
        check(status == 1 and result["unanswered"] == result["contained"] == 4, status, result)
        check("4 requests got no answer" in host.errors(), host.errors())
        check("fatal:" not in host.errors())


class Piped:
    """A program whose standard error is a pipe that the test reads, or does not."""

    def __init__(self, l, name, *args):
        self.end, write = os.pipe()
        command = [os.path.join(lab.BIN, name)] + [str(a) for a in args + l.keys(name)]
        self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=write)
        os.close(write)
        l.processes.append(self)
        self.text = b""

    def says(self, pattern):
        while not re.search(pattern, self.text):
            part = os.read(self.end, 4096)
            check(part, self.text)
            self.text += part
        return re.search(pattern, self.text)

    def usr1(self, times):
        """Statistics that are not read: `times` signals, each handled before the next is sent."""
        for _ in range(times):
            self.popen.send_signal(signal.SIGUSR1)
            time.sleep(0.002)

    def is_busy(self):
        """Does a thread of it run, or wait for a processor?"""
        threads = "/proc/%d/task" % self.popen.pid
        for number in os.listdir(threads):
            with open(os.path.join(threads, number, "stat")) as f:
                if f.read().rpartition(") ")[2].startswith("R"):
                    return True
        return False

    def kill(self):
        self.popen.kill()
        self.popen.wait()


@case
def reader_of_stderr_goes_away():
    with lab.Lab() as l:
        box = Piped(l, "dxpu-box", "--listen", V4)
        at = box.says(rb" at (\S+:\d+),").group(1).decode()
        host = Piped(l, "dxpu-host", "--box", at, "--load", "mixed", "--seconds", 60)
        host.says(b"attached")
        for program in (box, host):
            os.close(program.end)
            program.usr1(3)
        host.popen.send_signal(signal.SIGINT)
        check(host.popen.wait(20) == 0, host.popen.returncode)
        check(one_read(l, at).status == 0)  # it still serves
        box.popen.send_signal(signal.SIGINT)
        check(box.popen.wait(20) == 0, box.popen.returncode)


@case
def reader_of_stderr_stalls():
    with lab.Lab() as l:
        box = Piped(l, "dxpu-box", "--listen", V4, "--slots", 64)
        at = box.says(rb" at (\S+:\d+),").group(1).decode()
        box.usr1(100)  # far more than a pipe takes
        until(lambda: not box.is_busy(), "the end of the box's reports")
        host = one_read(l, at)
        check(host.status == 0, host.status, host.errors())
        waiting = array.array("i", [0])
        fcntl.ioctl(box.end, termios.FIONREAD, waiting)
        check(waiting[0] > 65536 // 2, waiting[0])  # the control: it was much
        box.popen.send_signal(signal.SIGINT)
        while os.read(box.end, 65536):  # and the last words arrive once somebody reads
            pass
        check(box.popen.wait(20) == 0, box.popen.returncode)


def over_an_outage(l, *source):
    """A host whose box stands still for longer than hold while the source has much to send."""
    box, at = lab_pair(l, "--hold-ms", 200)
    host = l.start("dxpu-host", "--box", at, "--json", "--quiet", *source)
    box.says("lent to")
    box.popen.send_signal(signal.SIGSTOP)
    host.says("channel lost")
    box.popen.send_signal(signal.SIGCONT)
    status = host.wait(60)
    check(status in (0, 1), status, host.errors())  # 1: what was in flight stayed unanswered
    check(host.result()["incarnations"] >= 2, host.result())
    check(box.stop() == 0)
    return status, host.result()


@case
def replay_goes_on_after_an_outage():
    with lab.Lab() as l:
        repeat = 2000
        status, result = over_an_outage(l, "--replay", OWN, "--repeat", repeat)
        check(result["refused"] == 0, result)
        check(result["submitted"] == result["packets"] * repeat, result)
        check(status == (1 if result["unanswered"] else 0), status, result)


@case
def load_goes_on_after_an_outage():
    with lab.Lab() as l:
        count = 200000
        status, result = over_an_outage(l, "--load", "write", "--size", 64, "--count", count,
                                        "--span", "64K")
        check(result["writes"] == count, result)
        check(result["read_back"] > 0 and result["mismatched"] == 0, result)
        check(status == (1 if result["unanswered"] else 0), status, result)


@case
def messages_say_what_happens_next():
    with lab.Lab() as l:
        box, at = lab_pair(l, "--hold-ms", 300)
        host = endless(l, at, "--give-up-ms", 3000)
        box.popen.send_signal(signal.SIGSTOP)
        host.says("channel lost: no frame for 300 ms; dialing again")
        check(host.wait(20) == 4)
        box.popen.send_signal(signal.SIGCONT)
        box.says("lost node 1")
        endless(l, at).kill()
        box.says("epoch 1: no frame for 300 ms; kept for it, until a host brings a higher epoch")
        check("fatal:" not in box.errors() + host.errors(), box.errors(), host.errors())
        # without a channel there is nothing else to report
        none = l.run("dxpu-host", "--box", at, "--load", "read", "--slot", 2)
        check(none.status == 4 and none.output() == "", none.status, none.output())
        check(one_read(l, at, "--slot", 2).result()["incarnations"] == 0)
        check(box.stop() == 0)


@case
def exit_status_of_a_replay():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        frames, empty, refused = l.file("frames.pcap"), l.file("empty.pcap"), l.file("refused.pcap")
        with open(OWN, "rb") as f:
            head = f.read(24)
        with open(empty, "wb") as f:
            f.write(head)
        check(one_read(l, at, "--frames", frames).status == 0)
        for path, words in ((frames, "capture of dxpu frames"), (empty, "capture is empty")):
            host = l.run("dxpu-host", "--box", at, "--replay", path, "--json")
            check(host.status == 1 and words in host.errors(), host.status, host.errors())
            check(host.result()["source"] == "replay", host.output())
        # a write to memory with its payload cut, then one that the device does not support
        write = bytes.fromhex("60000001000000ff0000008000000000")
        config = bytes.fromhex("05000001000001000100000000")[:12]
        for tlp, status, words in ((write, 1, "try --fill"), (config, 0, "1 TLPs to send")):
            with open(refused, "wb") as f:
                f.write(head + packet_of(head, tlp))
            host = l.run("dxpu-host", "--box", at, "--replay", refused, "--json")
            check(host.status == status and words in host.errors(), host.status, host.errors())
        check(host.result()["unsuccessful"] == 1, host.result())
        check(box.stop() == 0)


@case
def malformed_tlps_cross_and_are_answered():
    with lab.Lab() as l:
        sent, got, capture = l.file("sent.pcap"), l.file("got.pcap"), l.file("broken.pcap")
        with open(OWN, "rb") as f:
            head = f.read(24)
        tlps = [bytes.fromhex(text) for text in (
            "000080010000010f00001000",      # its digest is missing: cut, so refused
            "000000010000010f0000100000000000",  # one dword too many: refused
            "000000010000020f00001003",      # address: reserved bits
            "000200010000030f00001000",      # header: reserved bit
            "000000020000040f00001000",      # two dwords, no byte enables for the last
            "00000002000005ff00000ffc",      # across 4 KB
            "400000010000060f0000100011223344",  # a posted one that is good
            "000000010000070f00001000",      # a good read of memory that is off: UR as well
            "440000010000080f0100001099887766",  # and a good configuration write
            "440200010000090f0100001099887766")]  # one with a reserved bit
        with open(capture, "wb") as f:
            f.write(head + b"".join(packet_of(head, tlp) for tlp in tlps))
        box, at = lab_pair(l, "--record", got)
        host = l.run("dxpu-host", "--box", at, "--replay", capture, "--record", sent, "--json",
                     "--timeout-ms", 3000)
        check(host.status == 0 and box.stop() == 0, host.status, host.errors())
        result = host.result()
        check(result["refused"] == 2 and result["submitted"] == 8, result)
        check(result["rule_breaking"] == 5 == sum(result["broken_by_rule"].values()), result)
        check(result["answered"] == 7 and result["unsuccessful"] == 5, result)
        check(result["unanswered"] == 0, result)
        # reserved bits are ignored (T-43): the two that PCIe calls malformed are left
        check(box.result()["slot_1"]["malformed"] == 2, box.result())
        check(lab.read_tlps(sent) == tlps[2:], lab.read_tlps(sent))
        check(fate_is_good(lab.compare(sent, got)), lab.read_tlps(got))


@case
def r24_vendor_messages_reach_the_device():
    """Messages of a vendor that none here knows, with bits set that PCIe reserves."""
    with lab.Lab() as l:
        sent, got, capture = l.file("sent.pcap"), l.file("got.pcap"), l.file("vendor.pcap")
        with open(OWN, "rb") as f:
            head = f.read(24)
        tlps = [bytes.fromhex("%02x733001010000%02x0100123400010203" % (0x70 | way, code)) +
                b"data" for way in (2, 3) for code in (0x7e, 0x7f)]  # by ID, broadcast
        with open(capture, "wb") as f:
            f.write(head + b"".join(packet_of(head, tlp) for tlp in tlps))
        box, at = lab_pair(l, "--record", got)
        host = l.run("dxpu-host", "--box", at, "--replay", capture, "--record", sent, "--json")
        check(host.status == 0 and box.stop() == 0, host.status, host.errors())
        check(host.result()["submitted"] == 4, host.result())
        check(lab.read_tlps(sent) == tlps == lab.read_tlps(got), lab.read_tlps(got))
        device = box.result()["slot_1"]
        check(device["memory"]["messages"] == 4 and device["malformed"] == 0, device)


def packet_of(head, tlp):
    """A record with one TLP in NetTLP's encapsulation, in the byte order of the file."""
    import struct
    order = "<" if head[:4] in (b"\x4d\x3c\xb2\xa1", b"\xd4\xc3\xb2\xa1") else ">"
    payload = struct.pack(">HI", 1, 0) + tlp
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0, 1, 2)
    packet = (b"\2" * 12 + b"\x08\0" + ip
              + struct.pack(">HHHH", 0x3000, 0x3000, 8 + len(payload), 0) + payload)
    return struct.pack(order + "IIII", 1, 0, len(packet), len(packet)) + packet


@case
def full_disk_is_reported_when_it_happens():
    if not os.path.exists("/dev/full"):
        return "no /dev/full here"
    with lab.Lab() as l:
        box, at = lab_pair(l, "--record", "/dev/full", "--frames", "/dev/full")
        host = endless(l, at, "--record", "/dev/full")
        host.says("--record /dev/full: No space left on device")
        box.says("--record /dev/full: No space left on device")
        box.says("--frames /dev/full: No space left on device")
        check(host.stop() == 3 and box.stop() == 3, host.errors(), box.errors())
        check(host.errors().count("/dev/full") == 1, host.errors())
        check(box.errors().count("/dev/full") == 2, box.errors())
        lost = l.run("dxpu-box", "--listen", V4, "--record", l.file("none/x.pcap"), seconds=10)
        check(lost.status == 3 and lost.errors().count("x.pcap") == 1, lost.errors())


def names_in(value):
    """All keys of an object and the objects in it, but those that have a number in the name."""
    for key, inner in value.items():
        if not re.fullmatch(r"(slot|path)_\d+", key):
            yield key
        if isinstance(inner, dict):
            yield from names_in(inner)


@case
def statistics_are_documented():
    def missing(page, result):
        with open(os.path.join(rooms.ROOT, "examples", page)) as f:
            text = f.read().split(".SH STATISTICS")[1].split(".SH EXIT STATUS")[0]
        left = re.findall(r"(?m)^(.*)\tT\{$|^\.SS (.*)$", text)
        left = " ".join(a + " " + b for a, b in left)
        words = set(re.findall(r"[a-z0-9_]+(?:-[a-z0-9]+)*", left))
        return sorted(set(names_in(result)) - words)

    with lab.Lab() as l:
        for device in ("memory", "nvme", "virtio-blk"):
            box, at = lab_pair(l, "--device", device)
            for args in (("--load", "read", "--count", 5), ("--replay", OWN)):
                host = l.run("dxpu-host", "--box", at, "--json", *args)
                unknown = missing("host/dxpu-host.1", host.result())
                check(host.result()["submitted"] and not unknown, unknown)
            check(box.stop() == 0)
            unknown = missing("box/dxpu-box.1", box.result())
            check(box.result()["slot_1"][device] and not unknown, unknown)
        check(missing("box/dxpu-box.1", {"a": {"frobnicated": 1}}) == ["a", "frobnicated"])


@case
def stats_are_printed_once():
    with lab.Lab() as l:
        box, at = lab_pair(l, "--mps", 512)
        host = l.run("dxpu-host", "--box", at, "--load", "read", "--count", 5, "--stats")
        check(host.status == 0 and "udp" in host.errors(), host.errors())
        check("rtt_us" not in host.errors() and "rtt_us" in host.output(), host.errors())
        large = l.run("dxpu-host", "--box", at, "--load", "write", "--size", 4096, "--mps", 4096,
                      "--count", 5)
        check("512 bytes at most, not --mps 4096" in large.errors(), large.errors())
        check(box.stop() == 0 and "1 slot at" in box.errors(), box.errors())


@case
def foreign_datagrams_change_nothing():
    with lab.Lab() as l:
        box, at = lab_pair(l)
        host = endless(l, at)
        address, port = at.rsplit(":", 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            for junk in (b"", b"x", b"hello" * 30, bytes(1400), b"DX" + bytes(30),
                         b"DX\x01\x01\x00\x50\x00\x00\x12\x34\x56\x78" + bytes(68)):
                s.sendto(junk, (address, int(port)))
        time.sleep(0.2)
        check(host.stop() == 0 and host.result()["mismatched"] == 0, host.errors())
        check(box.stop() == 0)
        counts = box.result()["proxy"]
        check(counts["not_frames"] == 5 and counts["unknown_channel"] == 1, counts)


@case
def hardware_captures_cross_unaltered():
    folder = lab.shared_captures()
    if not folder:
        return "no hardware captures here"
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names
             if name.endswith(".pcap")]
    check(files)
    for path in sorted(files):
        with lab.Lab() as l:
            sent, got = l.file("sent.pcap"), l.file("got.pcap")
            box = l.start("dxpu-box", "--listen", V4, "--record", got, "--quiet")
            host = l.run("dxpu-host", "--box", box.address(), "--replay", path, "--fill",
                         "--record", sent, "--json", "--quiet")
            check(host.status == 0 and box.stop() == 0, path, host.errors())
            result = host.result()
            check(result["packets"] == result["submitted"] + result["refused"] +
                  result["other_packets"], path, result)
            fate = lab.compare(sent, got)
            check(fate_is_good(fate), path, fate)
    return None


def through_relay(seed, count=150):
    """What of `count` numbered datagrams leaves the relay, in order."""
    with lab.Lab() as l, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(0.5)  # of silence: then all is through
        relay = l.start("dxpu-relay", "--to", "127.0.0.1:%d" % sink.getsockname()[1], "--json",
                        "--loss", 100, "--duplicate", 100, "--corrupt", 100, "--seed", seed)
        address, port = relay.address().rsplit(":", 1)
        for i in range(count):
            s.sendto(b"%08d" % i, (address, int(port)))
        got = []
        try:
            while True:
                got.append(sink.recv(100))
        except TimeoutError:
            pass
        check(relay.stop() == 0)
        counts = relay.result()
        check(len(got) == counts["sent"], len(got), counts)
        check(counts["received"] == count, counts)
        check(counts["sent"] == count - counts["lost"] + counts["duplicated"], counts)
        check(counts["lost"] > 0 and counts["corrupted"] > 0, counts)
        return got


@case
def relay_repeats_itself():
    first = through_relay(7)
    check(first == through_relay(7), "the same seed, other faults")
    check(first != through_relay(8), "another seed, the same faults")


@case
def comparison_sees_faults():
    """The control of every `altered 0`."""
    with lab.Lab() as l:
        with open(OWN, "rb") as f:
            data = f.read()
        spans, at = [], 24
        while at < len(data):
            size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
            spans.append(data[at : at + size])
            at += size
        posted = [i for i, s in enumerate(spans) if lab.tlp_class(s[16 + 48 :]) == "posted"]
        first, second = posted[0], posted[1]

        def variant(records):
            path = l.file("variant.pcap")
            with open(path, "wb") as f:
                f.write(data[:24] + b"".join(records))
            return lab.compare(OWN, path)

        changed = spans[first][:-1] + bytes([spans[first][-1] ^ 1])
        swapped = list(spans)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        check(fate_is_good(variant(spans)))
        check(variant(spans[:first] + [changed] + spans[first + 1 :])["altered"] == 1)
        check(variant(spans[:first] + spans[first + 1 :])["lost"] == 1)
        check(variant(spans[: first + 1] + spans[first:])["doubled"] == 1)
        check(variant(swapped)["reordered"] == 2)


@case
def options_and_files():
    with lab.Lab() as l:
        check(l.run("dxpu-host", "--help").status == 0)
        check("dxpu-box" in l.run("dxpu-box", "--version").output())
        for args in ((), ("--box", "1.2.3.4.5"), ("--bax", "y"),
                     ("--box", "127.0.0.1", "--load", "some"),
                     ("--box", "127.0.0.1", "--load", "read", "--size", "3"), ("box",),
                     ("--box", "127.0.0.1:99999", "--load", "read"),
                     ("--box", "127.0.0.1", "--load", "read", "--window", "63"),
                     ("--box", "127.0.0.1", "--load", "read", "--listen", "1:2:3")):
            wrong = l.run("dxpu-host", *args)
            check(wrong.status == 2 and "--help" in wrong.errors(), args, wrong.status)
        for attach, words in (("1=nowhere", "slot is required"), ("1=127.0.0.1:1:1/1", "--attach"),
                              ("9=127.0.0.1:4458/1", "--slots"), ("1=127.0.0.1/0", "BOX-SLOT"),
                              ("1=127.0.0.1/1/0", "EPOCH"), ("1=127.0.0.1/1/2x", "EPOCH"),
                              ("1=127.0.0.1/1,1=127.0.0.1/2", "twice"), ("", "--attach"),
                              ("1=127.0.0.1/1/-1", "EPOCH"),
                              ("1=127.0.0.1/1/99999999999999999999", "EPOCH"),
                              ("1=[::1]:4458/1", "--listen")):
            wrong = l.run("dxpu-host", "--vfio-user", l.file("s"), "--attach", attach, seconds=10)
            check(wrong.status == 2 and words in wrong.errors() and "--help" in wrong.errors(),
                  attach, wrong.status, wrong.errors())
        there = l.start("dxpu-host", "--vfio-user", l.file("s"), "--attach",
                        "1=127.0.0.1:1/1,2=[::1]:1/1/7", "--listen", "127.0.0.1:0,[::1]:0")
        there.says("waiting for a guest")  # the control
        check(there.stop() == 0)
        for args, words in ((("--window", "63"), "power of two"),
                            (("--listen", "127.0.0.1:99999"), "0 to 65535")):
            wrong = l.run("dxpu-box", *args, seconds=10)
            check(wrong.status == 2 and "--help" in wrong.errors() and words in wrong.errors(),
                  args, wrong.status, wrong.errors())
        config = l.file("box.conf")
        with open(config, "w") as f:
            f.write("# a comment\nlisten = 127.0.0.1:0\nslots = 3\nmemory = 64K\n")
        box = l.start("dxpu-box", "--config", config, "--slots", 2, "--json")
        check(box.says(r"(\d) slots? at 127").group(1) == "2", "the command line goes first")
        check(box.stop() == 0)
        with open(config, "a") as f:
            f.write("slats = 3\n")
        wrong = l.run("dxpu-box", "--config", config)
        check(wrong.status == 2 and "line 5" in wrong.errors(), wrong.errors())


@case
def name_that_does_not_resolve_may_later():
    """It ends as what a restart may mend; a wrong address, the control, as what none does."""
    with lab.Lab(plain=True) as l:
        guest = ("dxpu-host", "--vfio-user", l.file("sock"))
        peers = l.file("peers")
        pool = ("--state", l.file("state"), "--identity", l.file("id"))
        for name, status in (("no-such-host.invalid", 3), ("1.2.3.4.5", 2)):
            at = name + ":4458"
            for words in (("dxpu-box", "--listen", at),
                          ("dxpu-host", "--load", "read", "--box", at),
                          ("dxpu-host", "--load", "read", "--box", V4, "--listen", at),
                          (*guest, "--attach", "1=%s/1" % at), (*guest, "--control", at),
                          ("dxpu-box", *pool, "--manager", at),
                          ("dxpu-box", *pool, "--manager", V4, "--advertise", at)):
                wrong = l.run(*words, seconds=20)
                check(wrong.status == status, words, wrong.status, wrong.errors())
                check(("no such host" in wrong.errors()) == (status == 3), wrong.errors())
                check(("--help" in wrong.errors()) == (status == 2), wrong.errors())
            with open(peers, "w") as f:
                f.write("%s= at=%s\n" % ("A" * 43, at))
            wrong = l.run("dxpu-box", "--peers", peers, "--listen", V4, seconds=20)
            check(wrong.status == status and "at=" in wrong.errors(), wrong.errors())


def resident_kb(process):
    """Memory of its own: no file, no library."""
    with open("/proc/%d/status" % process.popen.pid) as f:
        return int(re.search(r"RssAnon:\s+(\d+) kB", f.read()).group(1))


@case
def busy_slot_beside_many_idle_ones():
    """More than a turn of the box's loop serves all of: no channel waits for what is not known to
    the loop, and none is lost."""
    with lab.Lab() as l:
        box = l.start("dxpu-box", "--listen", V4, "--slots", 13, "--json")
        at = box.address()
        idle = l.start("dxpu-host", "--vfio-user", l.file("sock"), "--slots", 12, "--attach",
                       ",".join("%d=%s/%d" % (n, at, n) for n in range(1, 13)))
        for n in range(1, 13):
            idle.says("slot %d: slot %d of .* is attached" % (n, n))
        busy = l.run("dxpu-host", "--box", at, "--slot", 13, "--node", 2, "--json", *MIXED)
        check(busy.status == 0 and busy.result()["mismatched"] == 0, busy.errors())
        check(idle.stop() == 0 and box.stop() == 0, idle.errors(), box.errors())
        counts = box.result()["proxy"]
        check(counts["unannounced"] == counts["unseen"] == 0, counts)
        check(counts["ended_close"] == 13, counts)


@case
def idle_slot_takes_little_memory():
    """What a slot needs for a channel is there while it has one."""
    with lab.Lab() as l:
        one, many = (l.start("dxpu-box", "--listen", V4, "--slots", n, "--json")
                     for n in (1, 512))
        at = one.address(), many.address()
        idle = resident_kb(many)
        check((idle - resident_kb(one)) / 511 < 32, idle, resident_kb(one))
        host = l.start("dxpu-host", "--vfio-user", l.file("sock"), "--attach",
                       ",".join("%d=%s/%d" % (n, at[1], n) for n in range(1, 9)), "--json")
        for n in range(1, 9):
            host.says("slot %d: slot %d of .* is attached" % (n, n))
        # the control: a channel is seen, whose buffers take memory when they are used
        until(lambda: (resident_kb(many) - idle) / 8 > 16, "more for each channel")
        check(host.stop() == 0 and one.stop() == 0 and many.stop() == 0, many.errors())


sys.exit(main())
