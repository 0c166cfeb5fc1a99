"""Processes, captures and comparisons for the demonstration and the network tests.

Standard library only.  Programs are looked for in $DXPU_BIN, else in build/ of the project."""
# SPDX-License-Identifier: MIT
import collections
import contextlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build"))
PATIENCE = 30.0  # seconds, for what takes a tenth of one on a machine that does nothing else
CLASSES = ("posted", "non-posted", "completion")
PROXIES = ("dxpu-box", "dxpu-host")
KINDS = {"dxpu-box": "box", "dxpu-host": "host", "dxpu-manager": "manager"}
KEY_OPTIONS = ("--key", "--peer", "--peers", "--plain", "--help", "--version")
CONTROL_COMMANDS = ("attach", "detach", "plug", "unplug", "status", "screenshot")
# Who is on whose list, and what each may there.
PEERS = {"box": {"host": "fabric", "command": "control"},
         "host": {"box": "fabric", "command": "control"},
         "manager": {"box": "box", "host": "host"}}


reserved = []  # sockets whose names show other processes our ports


def address(kind=socket.SOCK_DGRAM, count=1):
    """Of loopback, for a program that may start later, or again: with the next `count` ports, none
    that the kernel gives to sockets which ask for any, nor another process's that asks here, until
    ours ends."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        low, high = (int(word) for word in f.read().split())
    fixed = [p for p in range(10000, 65536 - count) if p + count <= low or p > high]
    for port in random.sample(fixed, len(fixed)):
        marks = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        try:
            for n, mark in enumerate(marks):
                mark.bind("\0dxpu-port-%d" % (port + n))
                with socket.socket(socket.AF_INET, kind) as s:
                    s.bind(("127.0.0.1", port + n))
        except OSError:
            for mark in marks:
                mark.close()
            continue
        reserved.extend(marks)
        return "127.0.0.1:%d" % port
    raise RuntimeError("no port from 10000 up is free outside net.ipv4.ip_local_port_range")


class Process:
    """A program with its output in files; ended by its own pid only."""

    def __init__(self, lab, name, args):
        base = os.path.join(lab.folder, "%02d-%s" % (len(lab.processes), os.path.basename(name)))
        self.sealed = "--plain" not in args
        self.name, self.err_file, self.out_file = name, base + ".err", base + ".out"
        with open(self.err_file, "wb") as err, open(self.out_file, "wb") as out:
            command = [os.path.join(BIN, name)] + [str(a) for a in args]
            self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def keep_to(self, n):
        """Run on one core from now on, the n-th of those that this machine gives us."""
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(self.popen.pid, {cores[n % len(cores)]})

    def errors(self):
        with open(self.err_file, errors="replace") as f:
            return f.read()

    def output(self):
        with open(self.out_file, errors="replace") as f:
            return f.read()

    def address(self, seconds=PATIENCE):
        """The address it says it listens at."""
        return self.says(r" at (\S+:\d+)(?:,|\n)", seconds).group(1)

    def says(self, pattern, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.errors())
            if found:
                return found
            if self.popen.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError("%s did not say %r:\n%s" % (self.name, pattern, self.errors()))

    def statistics(self):
        """What SIGUSR1 makes a proxy print, as {name: number}: of equal names the last."""
        def printed():
            return len(re.findall(r"^  waits ", self.errors(), re.M))  # the last line of each
        before, end = printed(), time.monotonic() + PATIENCE
        self.popen.send_signal(signal.SIGUSR1)
        while printed() == before:
            if time.monotonic() > end:
                raise RuntimeError("%s prints no statistics" % self.name)
            time.sleep(0.01)
        last = self.errors().rsplit("\nchannel\n", 1)[-1]
        return {name: int(value) for name, value in re.findall(r"^  (\w+) +(\d+)$", last, re.M)}

    def wait(self, seconds):
        """Exit status; None when it had to be killed."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            return None

    def stop(self, seconds=PATIENCE):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGINT)
        return self.wait(seconds)

    def children(self):
        """The processes that it started: [(name, pid)]."""
        found = []
        try:
            with open("/proc/%d/task/%d/children" % ((self.popen.pid,) * 2)) as f:
                for pid in f.read().split():
                    with open("/proc/%s/comm" % pid) as name:
                        found.append((name.read().strip(), int(pid)))
        except OSError:
            pass  # one of them has just ended
        return found

    def signal(self, number):
        """To it and all that it started, which it may end itself then."""
        children = self.children()
        self.popen.send_signal(number)
        for _, pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self):
        """End it as a machine without power does: with all that it started."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGSTOP)
            for _, pid in self.children():
                os.kill(pid, signal.SIGKILL)
            self.popen.kill()
        self.popen.wait()

    def result(self):
        """The JSON object it printed; {} when there is none."""
        try:
            return json.loads(self.output())
        except ValueError:
            return {}


made = {}  # keys that this process has, by name: what is in the file, and the public key


def keygen(path, name):
    """Write a secret key into a new file, and return its public key.  Made once for each name: labs
    of one process have the same keys, and start fewer programs."""
    if name in made:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(made[name][0])
    else:
        public = subprocess.run([os.path.join(BIN, "dxpu"), "keygen", path], check=True,
                                stdout=subprocess.PIPE).stdout.decode().strip()
        with open(path, "rb") as f:
            made[name] = f.read(), public
    return made[name][1]


class Lab:
    """A directory for files, and all processes started in it.  plain: without keys, for tests that
    speak to a port themselves."""

    def __init__(self, plain=False):
        self.plain = plain
        self.temporary = tempfile.TemporaryDirectory(prefix="dxpu-")
        self.folder = self.temporary.name
        self.processes = []
        self.known = {}  # public keys by kind

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.processes:
            process.kill()
        self.temporary.cleanup()

    def file(self, name):
        return os.path.join(self.folder, name)

    def public(self, kind):
        """The public key of this lab's boxes, hosts, manager or command; its secret one is in
        KIND.key."""
        if kind not in self.known:
            self.known[kind] = keygen(self.file(kind + ".key"), kind)
        return self.known[kind]

    def keys(self, name):
        """Options that let only programs of this lab into each other."""
        kind = KINDS[name]
        self.public(kind)
        peers = self.file(kind + ".peers")
        if not os.path.exists(peers):
            with open(peers, "w") as f:
                f.writelines("%s may=%s\n" % (self.public(other), may)
                             for other, may in PEERS[kind].items())
        return "--key", self.file(kind + ".key"), "--peers", peers

    def command_keys(self, args):
        """Options of the command for the proxy whose control port it names: --plain unless that one
        is of this lab and has keys."""
        for p in self.processes:
            kind = KINDS.get(os.path.basename(p.name))
            if kind in ("box", "host") and p.sealed and any(
                    a in args for a in re.findall(r"control port (\S+)", p.errors())):
                self.public("command")
                return "--key", self.file("command.key"), "--peer", self.public(kind)
        return ("--plain",)

    def start(self, name, *args):
        """Programs that say nothing of keys get those of the lab."""
        said = set(KEY_OPTIONS) & {str(a).split("=")[0] for a in args}
        if name in KINDS and not said:
            args += ("--plain",) if self.plain else self.keys(name)
        if name in PROXIES and "--manager" in args and "--plain" not in args and (
                "--manager-key" not in args):
            args += "--manager-key", self.public("manager")
        if name == "dxpu" and args[:1] and args[0] in CONTROL_COMMANDS and not said:
            args += self.command_keys([str(a) for a in args])
        process = Process(self, name, args)
        self.processes.append(process)
        return process

    def run(self, name, *args, seconds=60):
        process = self.start(name, *args)
        process.status = process.wait(seconds)
        return process


def read_tlps(path):
    """The TLPs of a capture in NetTLP's encapsulation, as its UDP lengths say."""
    with open(path, "rb") as f:
        data = f.read()
    order = "<" if data[:4] in (b"\x4d\x3c\xb2\xa1", b"\xd4\xc3\xb2\xa1") else ">"
    tlps, at = [], 24
    while at + 16 <= len(data):
        _, _, captured, _ = struct.unpack_from(order + "IIII", data, at)
        packet = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        ip = 14
        while packet[ip - 2 : ip] == b"\x81\x00":
            ip += 4
        udp = ip + (packet[ip] & 15) * 4
        length = struct.unpack_from(">H", packet, udp + 4)[0]
        tlps.append(packet[udp + 14 : udp + length])
    return tlps


def tlp_class(tlp):
    at = 0
    while tlp[at] >> 5 == 4:  # prefixes
        at += 4
    has_data, kind = tlp[at] >> 6 & 1, tlp[at] & 0x1F
    if kind & 0x1E == 0x0A:
        return "completion"
    if kind & 0x18 == 0x10 or (kind == 0 and has_data):
        return "posted"
    return "non-posted"


def compare(sent_file, got_file):
    """What became of the TLPs, class by class and in order."""
    by_class = [{c: [] for c in CLASSES} for _ in range(2)]
    for index, path in enumerate((sent_file, got_file)):
        for tlp in read_tlps(path):
            by_class[index][tlp_class(tlp)].append(tlp)
    out = dict(sent=0, delivered=0, altered=0, lost=0, doubled=0, reordered=0)
    for cls in CLASSES:
        sent, got = by_class[0][cls], by_class[1][cls]
        missing = sum((collections.Counter(sent) - collections.Counter(got)).values())
        extra = sum((collections.Counter(got) - collections.Counter(sent)).values())
        altered = min(missing, extra)
        out["sent"] += len(sent)
        out["delivered"] += len(got)
        out["altered"] += altered
        out["lost"] += missing - altered
        out["doubled"] += extra - altered
        if not missing and not extra and sent != got:
            out["reordered"] += sum(a != b for a, b in zip(sent, got))
    return out


def shared_captures():
    """The directory of hardware captures, or None."""
    for base in (os.environ.get("DXPU_SHARED"), os.path.join(ROOT, "..", "shared")):
        path = base and os.path.join(base, "captures")
        if path and os.path.isdir(path):
            return path
    return None
