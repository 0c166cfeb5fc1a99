#!/usr/bin/env python3
"""Keys between dxpu-host and dxpu-box: who is let in, what an attacker between the two can do,
floods, new keys under load, keys that are taken away.

Each absence has a control that shows that the same harness sees the thing.  The attacker is a relay
in this script: it sees every datagram, and alters, repeats, keeps back and invents them."""
# SPDX-License-Identifier: MIT
import hashlib
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402

V4 = "127.0.0.1:0"
DATA, RESET, HANDSHAKE = 1, 6, 8
KIND, VERSION, PATH, CHANNEL, BASE, FULL, CRC = 3, 2, 7, 8, 20, 76, 4
INITIATION, RESPONSE, COOKIE = 1, 2, 3
HEAD, MAC = 8, 16
MIXED = ("--load", "mixed", "--size", 256, "--depth", 8, "--count", 1500, "--span", "64K")
QUICK = ("--load", "read", "--count", 20, "--span", "4K", "--give-up-ms", 1200)
NO_CHANNEL, USAGE, SYSTEM = 4, 2, 3


# ---- Proxies ----

def new_key(l, name):
    """A key file, and its public key."""
    return l.file(name + ".key"), lab.keygen(l.file(name + ".key"), name)


class Pair:
    """A box, and the keys of it and of a host that it lets in."""

    def __init__(self, l, *box, peers=None):
        self.l = l
        self.box_key, self.box_public = new_key(l, "box")
        self.host_key, self.host_public = new_key(l, "host")
        self.peers = l.file("hosts")
        self.write_peers(peers or self.host_public)
        self.options = ("--key", self.box_key, "--peers", self.peers, "--json") + box
        self.box = l.start("dxpu-box", "--listen", lab.address(), *self.options)
        self.at = self.box.address()

    def write_peers(self, text):
        with open(self.peers, "w") as f:
            f.write(text + "\n")

    def host_options(self):
        return "--key", self.host_key, "--peer", self.box_public, "--json"

    def start(self, *load, to=None):
        return self.l.start("dxpu-host", "--box", to or self.at, *self.host_options(), *load)

    def host(self, *load, to=None, seconds=60):
        host = self.start(*load, to=to)
        host.status = host.wait(seconds)
        return host

    def ends(self):
        check(self.box.stop() == 0, self.box.errors())
        return self.box.result()


def went_well(host):
    found = host.result()
    check(host.status == 0, host.status, host.errors())
    check(found["mismatched"] == 0 and found["unanswered"] == 0, found)
    return found


# ---- The attacker ----

def crc_of(frame):
    return frame[:-CRC] + struct.pack(">I", zlib.crc32(frame[:-CRC]))


def is_kind(frame, kind):
    return len(frame) > BASE and frame[:2] == b"DX" and frame[KIND] == kind


class Wire(threading.Thread):
    """Between a host, which sends to `at`, and a box: hook(to_box, frame) says what goes on."""

    def __init__(self, box, hook=None):
        super().__init__(daemon=True)
        host, port = box.rsplit(":", 1)
        self.box = (host, int(port))
        self.hook = hook or (lambda to_box, frame: [frame])
        self.front, self.back = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "ab")
        for s in (self.front, self.back):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            s.bind(("127.0.0.1", 0))
        self.host = None
        self.over = False
        self.start()

    @property
    def at(self):
        return "%s:%d" % self.front.getsockname()

    def send(self, to_box, frame):
        try:
            if to_box:
                self.back.sendto(frame, self.box)
            elif self.host:
                self.front.sendto(frame, self.host)
        except OSError:
            pass  # whoever was there has ended

    def run(self):
        while not self.over:
            for s in select.select([self.front, self.back], [], [], 0.1)[0]:
                try:
                    frame, sender = s.recvfrom(65536)
                except OSError:
                    continue
                if s is self.front:
                    self.host = sender
                for out in self.hook(s is self.front, frame):
                    self.send(s is self.front, out)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.over = True
        self.join()
        self.front.close()
        self.back.close()


class Recorder:
    """A hook that keeps what passes."""

    def __init__(self):
        self.seen = {True: [], False: []}

    def __call__(self, to_box, frame):
        self.seen[to_box].append(frame)
        return [frame]


class Alters:
    """Beside each fifth frame of a channel, and before it, come altered ones: a bit flipped, cut,
    and an older one again; and they come in another order."""

    def __init__(self):
        self.random = random.Random(1)
        self.old, self.kept, self.count, self.attacks = {}, {}, 0, 0

    def __call__(self, to_box, frame):
        out = [frame]
        if is_kind(frame, HANDSHAKE) or len(frame) <= BASE:
            return out
        self.count += 1
        if self.count % 5 == 0:
            flipped = bytearray(frame)
            flipped[self.random.randrange(12, len(frame))] ^= 1 << self.random.randrange(8)
            cut = frame[:self.random.randrange(BASE + 1, len(frame))]
            cut = cut[:4] + struct.pack(">H", len(cut)) + cut[6:]  # its length is as it says
            out = [bytes(flipped), cut, self.old.get(to_box, b"")] + out
            self.attacks += 3
        if self.count % 7 == 0:
            self.old[to_box] = frame
        if self.count % 11 == 0 and not self.kept.get(to_box):
            self.kept[to_box] = out
            return []
        return out + self.kept.pop(to_box, [])


class Forges:
    """The same frames with what an attacker wants in them, and checksums that fit."""

    def __init__(self):
        self.count = self.attacks = 0

    def __call__(self, to_box, frame):
        if to_box and is_kind(frame, DATA) and len(frame) > FULL + 64:
            self.count += 1
            if self.count % 50 == 0:
                self.attacks += 1
                return [self.alter(frame)]
        return [frame]

    @staticmethod
    def alter(frame):
        """A bit of the last TLP's data is another; it does not help that the TLP has a CRC, too."""
        body = bytearray(frame[FULL:-CRC])
        for begin in range(len(body) - 8):
            if zlib.crc32(body[begin:-4]) == struct.unpack(">I", body[-4:])[0]:
                body[-5] ^= 0x40
                body[-4:] = struct.pack(">I", zlib.crc32(body[begin:-4]))
                break
        else:
            body[-5] ^= 0x40
        return crc_of(frame[:FULL] + bytes(body) + frame[-CRC:])


def altered(frame, at, value):
    out = bytearray(frame)
    out[at] = value
    return crc_of(bytes(out))


# ---- Who is let in ----

@case
def s92_the_right_key_through_a_bad_network():
    """The control of all that follows."""
    with lab.Lab() as l:
        p = Pair(l)
        relay = l.start("dxpu-relay", "--listen", V4, "--to", p.at, "--loss", 30, "--duplicate", 30,
                        "--reorder", 30, "--corrupt", 30, "--seed", 7, "--json")
        found = went_well(p.host(*MIXED, to=relay.address()))
        check(found["keys"]["keyed"] == 1 and found["retransmits"] > 0, found)
        there = p.ends()
        check(there["keys"]["responses_sent"] >= 1 and there["delivered"] > 0, there)
        check(relay.stop() == 0 and relay.result()["corrupted"] > 0)


def nothing_passed(p, host, **counted):
    """The host got no channel, and the box was not notified; the control is that it counted it."""
    check(host.status == NO_CHANNEL, host.status, host.errors())
    check("attached" not in host.errors(), host.errors())
    there = p.ends()
    check(there["delivered"] == 0 and there["proxy"]["opens_accepted"] == 0, there)
    for name, least in counted.items():
        check(there["keys"][name] >= least, name, there["keys"])
    return there


@case
def s92_wrong_keys_get_nothing():
    with lab.Lab() as l:
        p = Pair(l)
        other_key, other_public = new_key(l, "other")
        host = l.run("dxpu-host", "--box", p.at, "--key", other_key, "--peer", p.box_public, *QUICK)
        p.box.says(other_public[:20].replace("+", ".") + r".* is not known; to authorize it")
        check(host.status == NO_CHANNEL and "--peers" in host.errors(), host.errors())
        host = l.run("dxpu-host", "--box", p.at, "--key", p.host_key, "--peer", other_public,
                     *QUICK)
        p.box.says("another public key than this program's, which is")
        nothing_passed(p, host, stranger=1, bad_mac=1)
    with lab.Lab() as l:  # the control: that box, that way, with the right ones
        p = Pair(l)
        check(p.host(*QUICK).status == 0 and p.ends()["delivered"] > 0)


@case
def s92_plain_and_sealed_exchange_nothing():
    """S-92, both ways."""
    with lab.Lab() as l:
        p = Pair(l)
        host = l.run("dxpu-host", "--box", p.at, "--plain", *QUICK)
        p.box.says("without keys and is refused")
        nothing_passed(p, host, plain_opens=1)
    with lab.Lab() as l:
        _, public = new_key(l, "box")
        box = l.start("dxpu-box", "--listen", V4, "--plain", "--json")
        at = box.address()
        host = l.run("dxpu-host", "--box", at, "--peer", public, *QUICK)
        check(host.status == NO_CHANNEL, host.errors())
        box.says("this program runs with --plain")
        again = l.run("dxpu-host", "--box", at, "--plain", *QUICK)  # the control
        check(again.status == 0 and box.stop() == 0, again.errors())
        check(box.result()["keys"]["plain_here"] >= 1, box.result())
        check(box.result()["proxy"]["opens_accepted"] == 1, box.result())


@case
def s92_a_host_reports_no_answer():
    """S-92: once, after the hold time, whoever is to blame; also when it is stopped."""
    def silent(l, at, *keys):
        host = l.start("dxpu-host", "--box", at, *keys, "--load", "read", "--hold-ms", 200)
        host.says("no answer from %s for .*the box's log says which" % at)
        host.popen.send_signal(signal.SIGUSR1)  # it goes on
        host.says("ups|incarnations")
        check(host.stop() == 0, host.errors())
        check(host.errors().count("no answer from") == 1, host.errors())
        return host.errors()

    with lab.Lab() as l:
        p = Pair(l)
        other_key, other_public = new_key(l, "other")
        for key, public in ((other_key, p.box_public), (p.host_key, other_public)):
            check("--peers" in silent(l, p.at, "--key", key, "--peer", public))
        check("requires keys" in silent(l, p.at, "--plain"))
        plain = l.start("dxpu-box", "--listen", V4, "--plain")
        check("--plain" in silent(l, plain.address(), "--peer", other_public))
        guest = l.start("dxpu-host", "--vfio-user", l.file("vm"), "--key", other_key, "--peer",
                        p.box_public, "--attach", "1=%s/1" % p.at, "--hold-ms", 200)
        guest.says("slot 1: no answer from %s for 200 ms: .*--peers" % p.at)
        host = l.start("dxpu-host", "--box", p.at, "--key", other_key, "--peer", p.box_public,
                       "--load", "read", "--hold-ms", 60000, "--give-up-ms", 60000)
        host.says("waiting for the box")  # by now it takes signals
        check("no answer" not in host.errors(), host.errors())
        check(host.stop() == 0 and "no answer from" in host.errors(), host.errors())
        host = p.start("--load", "read", "--seconds", 60, "--span", "4K")  # the control
        host.says("attached")
        check(host.stop() == 0 and "no answer" not in host.errors(), host.errors())


@case
def s94_the_box_must_be_known():
    with lab.Lab() as l:
        p = Pair(l)
        host = l.run("dxpu-host", "--box", p.at, "--key", p.host_key, *QUICK)
        check(host.status == NO_CHANNEL and "--peer KEY" in host.errors(), host.errors())
        _, other = new_key(l, "other")
        boxes = l.file("boxes")
        for text, status in (("%s\n%s\n" % (p.box_public, other), NO_CHANNEL),
                             ("%s at=%s\n%s at=127.0.0.9:1\n" % (p.box_public, p.at, other), 0),
                             ("%s may=control\n" % p.box_public, NO_CHANNEL)):
            with open(boxes, "w") as f:
                f.write(text)
            host = l.run("dxpu-host", "--box", p.at, "--key", p.host_key, "--peers", boxes, *QUICK)
            check(host.status == status, text, host.status, host.errors())
        check(p.ends()["proxy"]["opens_accepted"] == 1)


@case
def s95_slots_of_a_peer():
    """S-95"""
    with lab.Lab() as l:
        p = Pair(l, "--slots", 3)
        p.box.stop()
        p.write_peers("%s name=web7 slots=2-3" % p.host_public)
        p.box = l.start("dxpu-box", "--listen", p.at, *p.options)
        p.box.address()
        for slot, status in ((2, 0), (1, NO_CHANNEL), (3, 0)):
            host = p.host("--slot", slot, *QUICK)
            check(host.status == status, slot, host.status, host.errors())
        p.box.says("slot 1: web7 is not authorized")
        check("WARNING" not in p.box.errors(), p.box.errors())
        there = p.ends()
        check(there["refused_key"] >= 1 and there["proxy"]["opens_accepted"] == 2, there)


@case
def s95_a_lease_is_its_keys():
    """S-95: another host that may have the slot, too, does not get it by saying that it is the
    first one; that one itself does, from another process (the control)."""
    with lab.Lab() as l:
        p = Pair(l)
        other_key, other_public = new_key(l, "other")
        check("WARNING" not in p.box.errors(), p.box.errors())
        p.write_peers(p.host_public + "\n" + other_public)
        p.box.popen.send_signal(signal.SIGHUP)
        p.box.says("reloaded, 2 public keys")
        p.box.says("WARNING: several public keys may open slot 1,")  # S-176
        first = p.start("--load", "mixed", "--seconds", 60, "--span", "64K", "--node", 5)
        first.says("attached")
        rival = ("dxpu-host", "--box", p.at, "--key", other_key, "--peer", p.box_public, "--node",
                 5)
        host = l.run(*rival, *QUICK)
        check(host.status == NO_CHANNEL and "higher --epoch" in host.errors(), host.errors())
        check("channel lost" not in first.errors(), first.errors())
        check(p.host("--node", 5, *QUICK).status == 0)
        first.says("channel lost")
        check(first.wait(30) == NO_CHANNEL)
        host = l.run(*rival, *QUICK)  # given back: the epoch is still the first key's
        check(host.status == NO_CHANNEL and "higher --epoch" in host.errors(), host.errors())
        check(p.host("--node", 5, *QUICK).status == 0)
        check(l.run(*rival, "--epoch", 2, *QUICK).status == 0)  # a new lease is another matter
        check(p.ends()["refused_epoch"] == 2)


# ---- The attacker between the two ----

@case
def s40_altered_frames_are_refused():
    with lab.Lab() as l:
        p, sent, got = Pair(l, "--record", l.file("got")), l.file("sent"), l.file("got")
        attacker = Alters()
        with Wire(p.at, attacker) as wire:
            found = went_well(p.host(*MIXED, "--record", sent, to=wire.at))
        there = p.ends()
        check(attacker.attacks > 100, attacker.attacks)
        check(found["incarnations"] == 1, found)
        fate = lab.compare(sent, got)
        check(fate["sent"] == fate["delivered"] > 0 and not fate["altered"] + fate["lost"] +
              fate["doubled"] + fate["reordered"], fate)
        for side in (found["channel"], there["channel"]):
            check(side["rx_crc"] > 0 and side["rx_replay"] > 0, side)


@case
def s40_a_forger_needs_the_key():
    with lab.Lab() as l:
        p, attacker = Pair(l), Forges()
        with Wire(p.at, attacker) as wire:
            found = went_well(p.host("--load", "write", "--size", 512, "--count", 2000, "--span",
                                     "64K", to=wire.at))
        there = p.ends()
        check(attacker.attacks > 5 and found["incarnations"] == 1, attacker.attacks, found)
        check(there["channel"]["rx_crc"] >= attacker.attacks, there["channel"])
    with lab.Lab() as l:  # the control: without keys the same attacker's data arrive
        attacker = Forges()
        box = l.start("dxpu-box", "--listen", V4, "--plain", "--json")
        with Wire(box.address(), attacker) as wire:
            host = l.run("dxpu-host", "--box", wire.at, "--plain", "--json", "--load", "write",
                         "--size", 512, "--count", 2000, "--span", "64K")
        found = host.result()
        check(attacker.attacks > 5, attacker.attacks)
        check(found["mismatched"] > 0 or found["incarnations"] > 1, host.status, found)


@case
def s33_forged_resets():
    def attack(at, host, options):
        """A reset for the channel ids that the attacker sees, both ways; how the run ended."""
        sent = []

        def hook(to_box, frame):
            out = [frame]
            if is_kind(frame, DATA) and len(sent) < 40:
                body = bytes((8, frame[VERSION], frame[VERSION], 0))
                head = frame[:KIND] + bytes((RESET,)) + struct.pack(">H", BASE + 4 + CRC) + bytes(2)
                head += frame[CHANNEL:CHANNEL + 4] + bytes(8)
                sent.append(crc_of(head + body + bytes(CRC)))
                out.append(sent[-1])
            return out

        with Wire(at, hook) as wire:
            done = host("--box", wire.at, *options, "--json", *MIXED)
        check(len(sent) == 40, len(sent))
        return done.result()

    with lab.Lab() as l:
        p = Pair(l)
        found = attack(p.at, lambda *a: l.run("dxpu-host", *a), p.host_options())
        check(found["incarnations"] == 1 and found["mismatched"] == 0, found)
        check(p.ends()["proxy"]["opens_accepted"] == 1)
    with lab.Lab() as l:  # the control: a plain channel is ended by them
        box = l.start("dxpu-box", "--listen", V4, "--plain", "--json")
        found = attack(box.address(), lambda *a: l.run("dxpu-host", *a, "--give-up-ms", 2000),
                       ("--plain",))
        check(found["incarnations"] > 1, found)


@case
def s16_a_man_in_the_middle():
    """He has a key pair of his own, a box for the host and a host for the box."""
    with lab.Lab() as l:
        p = Pair(l)
        key, public = new_key(l, "attacker")
        fake = l.start("dxpu-box", "--listen", V4, "--key", key, "--peer", p.host_public, "--json")
        host = p.host(*QUICK, to=fake.address())
        check(host.status == NO_CHANNEL, host.errors())
        check(fake.stop() == 0 and fake.result()["delivered"] == 0, fake.result())
        check(fake.result()["keys"]["bad_mac"] > 0, fake.result()["keys"])
        mine = l.run("dxpu-host", "--box", p.at, "--key", key, "--peer", p.box_public, *QUICK)
        nothing_passed(p, mine, stranger=1)
        check(public != p.host_public)
    with lab.Lab() as l:  # the control: one who only hands on does no harm
        p = Pair(l)
        with Wire(p.at) as wire:
            went_well(p.host(*MIXED, to=wire.at))


@case
def s13_recorded_handshakes_and_frames():
    with lab.Lab() as l:
        p, seen = Pair(l), Recorder()
        with Wire(p.at, seen) as wire:
            delivered = went_well(p.host(*MIXED, to=wire.at))["submitted"]
            before = len(seen.seen[True])
            for frame in list(seen.seen[True]):  # all of it again, from the same address
                wire.send(True, frame)
                time.sleep(0.0002)
            check(before > 100)
            time.sleep(0.3)
        delivered += went_well(p.host(*MIXED))["submitted"]  # and it still serves
        there = p.ends()
        check(there["proxy"]["opens_accepted"] == 2, there["proxy"])
        check(there["keys"]["replayed"] >= 1 and there["keys"]["opens_unknown"] >= 1, there["keys"])
        dropped = there["channel"]["rx_replay"] + there["proxy"]["unknown_channel"]
        check(dropped > 100 and there["delivered"] == delivered, dropped, delivered, there)


@case
def s3_downgrades():
    """Versions altered on the way: the handshake fails; the control alters nothing, that way."""
    for value, works in ((None, True), (0, False), (255, False)):
        with lab.Lab() as l:
            p, changed = Pair(l), []

            def hook(to_box, frame):
                if is_kind(frame, HANDSHAKE) and frame[BASE] == INITIATION:
                    changed.append(frame)
                    at = BASE + 3
                    return [altered(frame, at, frame[at] if value is None else value)]
                return [frame]

            with Wire(p.at, hook) as wire:
                host = p.host(*QUICK, to=wire.at)
            check(changed)
            if works:
                check(host.status == 0, host.errors())
                p.ends()
            else:
                nothing_passed(p, host, bad_mac=1)


@case
def w28_an_old_epoch_gets_its_reason():
    with lab.Lab() as l:
        p = Pair(l)
        check(p.host("--epoch", 5, *QUICK).status == 0)
        old = p.host("--epoch", 4, *QUICK)
        check(old.status == NO_CHANNEL and "higher --epoch" in old.errors(), old.errors())
        there = p.ends()
        check(there["refused_epoch"] == 1 and there["keys"]["refused"] == 1, there)


# ---- Floods ----

def resident_kb(process):
    with open("/proc/%d/status" % process.popen.pid) as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def cpu_seconds(process):
    with open("/proc/%d/stat" % process.popen.pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def blake(data, key=b"", size=32):
    return hashlib.blake2b(data, key=key, digest_size=size).digest()


def initiation(public, n):
    """What somebody writes who knows the box's public key, and has none of his own."""
    import base64
    body = bytes((INITIATION, 1, 1, 1)) + struct.pack(">I", n + 1) + os.urandom(96 + 36)
    body += blake(body, blake(b"dxpu mac 1" + base64.b64decode(public)), MAC) + bytes(MAC)
    head = b"DX" + bytes((1, HANDSHAKE)) + struct.pack(">HBBIQ", BASE + len(body) + CRC, 0, 0, 0, 0)
    return crc_of(head + body + bytes(CRC))


@case
def s17_flood_of_unproven_initiations():
    with lab.Lab() as l:
        p = Pair(l)
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(16)]
        to = (p.at.rsplit(":", 1)[0], int(p.at.rsplit(":", 1)[1]))
        frames = [initiation(p.box_public, n) for n in range(64)]
        went_well(p.host(*QUICK))
        before, cpu = resident_kb(p.box), cpu_seconds(p.box)
        host = p.start(*MIXED)
        sent = 0
        while host.popen.poll() is None or sent < 20000:
            for s in sockets:
                s.sendto(frames[sent % 64], to)
                sent += 1
            if sent % 32 == 0:
                time.sleep(0.001)
            check(sent < 3000000, "the load does not end")
        host.status = host.wait(60)
        went_well(host)
        after, used = resident_kb(p.box) - before, cpu_seconds(p.box) - cpu
        answers = 0
        for s in sockets:
            s.setblocking(False)
            try:
                while True:
                    check(len(s.recv(2048)) <= len(frames[0]))  # S-19
                    answers += 1
            except BlockingIOError:
                s.close()
        there = p.ends()["keys"]
        print("# %d initiations, %d cookies seen, %d late, %.2f s of the box's time, %d KB more" % (
            sent, answers, there["late"], used, after))
        check(there["cookies_sent"] > 1000 and answers > 100, there, answers)
        check(there["responses_sent"] <= 3, there)  # no other was answered
        check(after < 4096, after)


@case
def s98_flood_of_proven_initiations():
    """One who repeats an initiation with its cookie, from the address that it was made for, costs
    two Diffie-Hellmans each time: some of an address are looked at, and the load goes on."""
    with lab.Lab() as l:
        p, seen = Pair(l), Recorder()
        with Wire(p.at, seen) as wire:
            went_well(p.host(*QUICK, to=wire.at))
            proven = [f for f in seen.seen[True] if is_kind(f, HANDSHAKE) and
                      any(f[-CRC - MAC:-CRC])]
            check(proven, "no initiation with a cookie")
            before, cpu = resident_kb(p.box), cpu_seconds(p.box)
            host = p.start(*MIXED)
            host.says("attached")
            sent = 0
            while host.popen.poll() is None or sent < 20000:
                for _ in range(8):
                    wire.send(True, proven[0])
                    sent += 1
                time.sleep(0.001)
                check(sent < 3000000, "the load does not end")
            host.status = host.wait(60)
        found = went_well(host)
        after, used = resident_kb(p.box) - before, cpu_seconds(p.box) - cpu
        there = p.ends()["keys"]
        print("# %d initiations, %d looked at, %d more than its part, %d late, "
              "%.2f s of the box's time, %d KB more" % (
                  sent, there["replayed"], there["limited"], there["late"], used, after))
        check(found["incarnations"] == 1, found)
        check(there["replayed"] > 0 and there["limited"] > there["replayed"], there)
        check(after < 4096, after)


# ---- Keys that change ----

@case
def s44_new_keys_under_load():
    with lab.Lab() as l:
        p = Pair(l, "--rekey-s", 1)
        found = went_well(p.host("--load", "mixed", "--size", 256, "--depth", 16, "--seconds", 6,
                                 "--span", "64K", "--rekey-s", 1))
        there = p.ends()
        check(found["incarnations"] == 1, found)
        for side in (found["keys"], there["keys"]):
            check(side["rekeys"] >= 3 and side["rekeys_seen"] >= 3 and not side["unsealed"], side)


def behind_a_silent_name_server(l):
    """The words before a program whose name server at 127.0.0.153 has no answer, and its socket;
    None where that cannot be had."""
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    settings = l.file("resolv.conf")
    with open(settings, "w", encoding="ascii") as f:
        f.write("nameserver 127.0.0.153\noptions timeout:2 attempts:1\n")
    mount = (shutil.which("unshare") or "unshare", "-m", "sh", "-c",
             'mount --bind "$0" /etc/resolv.conf && exec "$@"', settings)
    try:
        silent.bind(("127.0.0.153", 53))
        subprocess.run([*mount, "true"], check=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        silent.close()
        return None, None
    return mount, silent


@case
def s96_a_silent_name_server_ends_no_channel():
    """A name in --peers that is looked up for 2 s after SIGHUP; the hold time is 1 s."""
    with lab.Lab() as l:
        before, silent = behind_a_silent_name_server(l)
        if not before:
            return "needs root, unshare and port 53 of 127.0.0.153"
        p = Pair(l)
        p.box.stop()
        p.box = l.start(*before, os.path.join(lab.BIN, "dxpu-box"), "--listen", p.at, *p.options)
        p.box.address()
        host = p.start("--load", "read", "--seconds", 60, "--span", "4K")
        host.says("attached")
        p.write_peers(p.host_public + " at=box.example")
        p.box.popen.send_signal(signal.SIGHUP)
        p.box.says("the public keys are unchanged")
        check(silent.recv(512), "the name was not looked up")
        silent.close()
        check(host.stop() == 0 and "channel lost" not in host.errors(), host.errors())
        check(p.ends()["proxy"]["opens_accepted"] == 1)


@case
def s96_a_key_is_taken_off_at_the_box():
    with lab.Lab() as l:
        p = Pair(l)
        host = p.start("--load", "mixed", "--seconds", 60, "--span", "64K", "--give-up-ms", 1500)
        host.says("attached")
        p.box.popen.send_signal(signal.SIGHUP)
        p.box.says("reloaded, 1 public key")
        time.sleep(0.5)
        check("channel lost" not in host.errors(), host.errors())  # the control: it may stay
        p.write_peers("# nobody")
        begin = time.monotonic()
        p.box.popen.send_signal(signal.SIGHUP)
        p.box.says("slot 1: lost node")
        print("# ended after %.0f ms" % ((time.monotonic() - begin) * 1000))
        host.says("channel lost")
        check(host.wait(30) == NO_CHANNEL, host.errors())
        p.write_peers("nonsense")
        p.box.popen.send_signal(signal.SIGHUP)
        p.box.says("hosts:1: ")
        p.write_peers(p.host_public)
        p.box.popen.send_signal(signal.SIGHUP)
        while p.box.errors().count("reloaded, 1 public key") < 2:
            time.sleep(0.01)
        check(p.host("--epoch", 2, *QUICK).status == 0)  # back again
        there = p.ends()["keys"]
        check(there["revoked"] == 1 and there["stranger"] >= 1, there)


@case
def s96_a_key_is_taken_off_at_the_host():
    with lab.Lab() as l:
        p, boxes = Pair(l), l.file("boxes")
        with open(boxes, "w") as f:
            f.write(p.box_public + "\n")
        host = l.start("dxpu-host", "--box", p.at, "--key", p.host_key, "--peers", boxes, "--json",
                       "--load", "mixed", "--seconds", 60, "--span", "64K")
        host.says("attached")
        with open(boxes, "w") as f:
            f.write("# nobody\n")
        host.popen.send_signal(signal.SIGHUP)
        check(host.wait(30) == NO_CHANNEL and "channel lost" in host.errors(), host.errors())
        check("public key is not known" in host.errors(), host.errors())
        check(host.result()["keys"]["revoked"] == 1, host.result())
        p.ends()


# ---- Options and files ----

@case
def s97_plain_stays_on_this_machine():
    with lab.Lab() as l:
        for args in (("dxpu-box", "--plain", "--listen", "0.0.0.0:0"),
                     ("dxpu-box", "--plain", "--listen", "127.0.0.1:0,[::]:0"),
                     ("dxpu-host", "--plain", "--box", "192.0.2.1:4458") + QUICK,
                     ("dxpu-host", "--plain", "--box", "127.0.0.1:1", "--listen", ":0") + QUICK):
            wrong = l.run(*args, seconds=10)
            check(wrong.status == USAGE and "--plain-network" in wrong.errors(), args,
                  wrong.status, wrong.errors())
        for args in (("--plain", "--key", "x"), ("--plain", "--peer", "x"), ("--plain-network",)):
            wrong = l.run("dxpu-box", "--listen", V4, *args, seconds=10)
            check(wrong.status == (USAGE), args, wrong.errors())
        box = l.start("dxpu-box", "--plain", "--plain-network", "--listen", "0.0.0.0:0")
        box.says("WARNING: --plain: no keys")  # the control: it does listen there
        check(box.address().startswith("0.0.0.0:") and box.stop() == 0)


@case
def s97_a_name_that_changes():
    """A name server says this machine's address when it is asked first, and another one then; or
    the other way round.  Whichever is used is what is looked at."""
    if not shutil.which("cc"):
        return "no compiler"
    wild, far = "0.0.0.0", "192.0.2.1"  # the latter is unassigned (RFC 5737)
    with lab.Lab() as l:
        library = l.file("twice.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library,
                        os.path.join(rooms.TESTS, "support", "faults", "twice.c"), "-ldl"],
                       check=True)
        link = ("--manager", "twice.invalid:1", "--identity", l.file("identity"), "--state",
                l.file("state"))
        listen, box = ("--listen", "twice.invalid:0"), ("--box", "twice.invalid:1")
        manager = ("--http", V4, "--store", l.file("pool"))
        for at, args in ((wild, ("dxpu-box", *listen)),
                         (wild, ("dxpu-box", "--listen", V4, "--control", "twice.invalid:0")),
                         (far, ("dxpu-box", "--listen", V4, *link)),
                         (far, ("dxpu-host", *box) + QUICK),
                         (wild, ("dxpu-manager", *listen, *manager))):
            for which in ("1", "2", "never"):
                os.environ.update(LD_PRELOAD=library, DXPU_FAR=which, DXPU_FAR_AT=at)
                try:
                    program = l.start(args[0], "--plain", *args[1:])
                finally:
                    for name in ("LD_PRELOAD", "DXPU_FAR", "DXPU_FAR_AT"):
                        del os.environ[name]
                if which == "never" or (which == "2" and args[0] == "dxpu-host"):
                    program.says("WARNING: --plain: no keys")  # the control; it asks once
                    program.stop()
                    check("--plain-network" not in program.errors(), which, args)
                    continue
                check(program.wait(10) in (USAGE, SYSTEM) and
                      "--plain-network" in program.errors(), which, args, program.errors())
    return None


def programs_refuse(l, word, status, *args):
    """Each of them, with what is wrong with keys: usage, or a file that is not to be had."""
    for name, *others in (("dxpu-box", "--listen", V4),
                          ("dxpu-host", "--box", V4, "--load", "read", "--json"),
                          ("dxpu-manager", "--listen", V4, "--http", V4, "--store", l.file("db"))):
        done = l.run(name, *others, *args)
        check(done.status == status and word in done.errors(), name, done.status, done.errors())


@case
def s90_keys_of_programs():
    with lab.Lab() as l:
        key = l.file("new.key")
        box = l.start("dxpu-box", "--listen", V4, "--key", key, "--peer",
                      new_key(l, "host")[1])
        public = box.says(r"public key (\S{44}), new, in ").group(1)
        box.address()
        check(box.stop() == 0 and os.stat(key).st_mode & 0o777 == 0o600)
        shown = l.run("dxpu", "pubkey", "--json", key)
        found = json.loads(shown.output())
        check(found["public_key"] == public and len(found["fingerprint"].split()) == 8, found)
        check(l.run("dxpu", "pubkey", key).output() == public + "\n")
        again = l.run("dxpu", "keygen", key)
        check(again.status == USAGE and "must not exist" in again.errors(), again.errors())
        check(l.run("dxpu", "pubkey", key).output() == public + "\n")  # it is the old one
        for args in ((), ("a", "b"), ("--what",)):
            check(l.run("dxpu", "pubkey", *args).status == USAGE, args)
        new = l.file("one/two/new.key")  # keygen makes directories, and says which it cannot
        made = l.run("dxpu", "keygen", new)
        check(made.status == 0 and l.run("dxpu", "pubkey", new).output() == made.output())
        check(os.stat(l.file("one/two")).st_mode & 0o777 == 0o700)
        under = l.run("dxpu", "keygen", os.path.join(key, "under.key"))
        check(under.status == USAGE and "must not exist" not in under.errors(), under.errors())
        os.chmod(key, 0o640)
        programs_refuse(l, "chmod 600", USAGE, "--key", key, "--peer", public)
        os.chmod(key, 0o600)
        programs_refuse(l, "directory", SYSTEM, "--key", l.file("none/box.key"), "--peer", public)
        programs_refuse(l, "must be public keys", USAGE, "--key", key, "--peer", "short")
        with open(l.file("bad"), "w") as f:
            f.write("%s may=everything\n" % public)
        programs_refuse(l, "may=", USAGE, "--key", key, "--peers", l.file("bad"))
        programs_refuse(l, "No such file", SYSTEM, "--key", key, "--peers", l.file("none"))
        alone = l.start("dxpu-box", "--listen", V4, "--key", l.file("alone.key"))
        alone.says("no host is authorized")
        check(alone.stop() == 0)
        alone = l.start("dxpu-manager", "--key", l.file("alone.key"), "--listen", V4,
                        "--http", V4, "--store", l.file("db"))
        alone.says("no key is authorized")
        check(alone.stop() == 0)


if __name__ == "__main__":
    sys.exit(main())
