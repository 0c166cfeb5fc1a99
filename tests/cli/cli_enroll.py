#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/san/%)
"""dxpu enroll: two ends that get to know each other's keys, with people who answer at terminals or
without, and what goes wrong: somebody between them, floods, lost datagrams, files, time.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, sanitized, until  # noqa: E402
sanitized()
import lab  # noqa: E402

DONE, REFUSED, USAGE, NOBODY = 0, 1, 2, 3
QUESTION = "the same at the other end? yes/no: "
WAITS = r"waiting at (\S+:\d+)\n"


class End:
    """One end, with a terminal where people answer, or without."""

    def __init__(self, world, name, *args, to=None, terminal=False, listen="127.0.0.1:0",
                 peers=True):
        self.master, words = None, ["--key", world.key_file(name)]
        self.peers = world.l.file(name + ".peers")
        if peers:
            words += "--peers", self.peers
        words += [to] if to else ["--listen", listen]
        base = world.l.file("%d-%s" % (len(world.ends), name))
        self.err_file, self.out_file = base + ".err", base + ".out"
        stdin = subprocess.DEVNULL
        if terminal:
            self.master, stdin = pty.openpty()
        with open(self.err_file, "wb") as err, open(self.out_file, "wb") as out:
            self.popen = subprocess.Popen(
                [os.path.join(lab.BIN, "dxpu"), "enroll", *words, *map(str, args)], stdin=stdin,
                stdout=out, stderr=err)
        if terminal:
            os.close(stdin)
        world.ends.append(self)

    def errors(self):
        with open(self.err_file) as f:
            return f.read()

    def output(self):
        with open(self.out_file) as f:
            return f.read()

    def says(self, pattern):
        def said():
            found = re.search(pattern, self.errors())
            check(found or self.popen.poll() is None or re.search(pattern, self.errors()),
                  "it ended:", self.errors())
            return found
        return until(said, pattern)

    def address(self):
        return self.says(WAITS).group(1)

    def code(self):
        return self.says(r"code +((?:[0-9a-f]{4} ?){8})\n").group(1)

    def key(self):
        return self.says(r"public key  (\S{44})\n").group(1)

    def asked(self):
        self.says(re.escape(QUESTION))
        return self

    def type(self, words):
        os.write(self.master, words.encode())

    def ends(self, status, said=""):
        found = self.popen.wait(150)
        check(found == status and re.search(said, self.errors()), found, self.errors())

    def lines(self):
        """The file that it adds to; None: it is not there."""
        if not os.path.exists(self.peers):
            return None
        with open(self.peers) as f:
            return f.read()

    def result(self):
        return lab.json.loads(self.output())

    def close(self):
        self.popen.kill()
        self.popen.wait()
        if self.master is not None:
            os.close(self.master)


class World:
    def __init__(self):
        self.l, self.public, self.ends = lab.Lab(), {}, []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for end in self.ends:
            end.close()
        self.l.__exit__()

    def key_file(self, name):
        file = self.l.file(name + ".key")
        if name not in self.public:
            self.public[name] = lab.keygen(file, name)
        return file

    def key(self, name):
        self.key_file(name)
        return self.public[name]

    def line(self, name, rest=" may=fabric"):
        return self.key(name) + rest + "\n"

    def pair(self, *, to=lambda address: address, a=(), b=(), terminal=False, **more):
        """End a waits, end b asks; without terminals each expects the other's key."""
        if not terminal:
            a, b = ("--expect", self.key("b"), *a), ("--expect", self.key("a"), *b)
        one = End(self, "a", *a, terminal=terminal, **more)
        return one, End(self, "b", *b, to=to(one.address()), terminal=terminal)

    def fingerprint(self, name):
        done = self.l.run("dxpu", "pubkey", "--json", self.key_file(name))
        return done.result()["fingerprint"]


# ---- Both ends ----

@case
def two_people_say_yes():
    """S-140, S-141, S-144: the code is one code, and what is written lets the other in."""
    with World() as w:
        box = w.l.start("dxpu-box", "--key", w.key_file("a"), "--listen", "127.0.0.1:0",
                        "--control", "127.0.0.1:0", "--memory", 4096)
        control = box.says(r"control port (\S+:\d+)\n").group(1)
        ask = ("status", "--key", w.key_file("b"), "--peer", w.key("a"))
        check(w.l.run("dxpu", *ask, control).status == 3)  # b is a stranger there
        box.stop()
        a, b = w.pair(terminal=True, a=("--may", "control", "--name", "shelf2"),
                      b=("--name", "web7"))
        check(a.asked().code() == b.asked().code(), a.errors(), b.errors())
        check(a.key() == w.key("b") and b.key() == w.key("a"))
        check(a.lines() is None and b.lines() is None, "written before yes")
        a.type("yes\n")
        b.type("yes\n")
        a.ends(DONE)
        b.ends(DONE)
        check(a.lines() == a.output() == w.line("b", " name=web7 may=control"), a.lines())
        check(b.lines() == b.output() == w.line("a", " name=shelf2 may=fabric"), b.lines())
        check(stat.S_IMODE(os.stat(a.peers).st_mode) == 0o644)
        box = w.l.start("dxpu-box", "--key", w.key_file("a"), "--peers", a.peers, "--listen",
                        "127.0.0.1:0", "--control", "127.0.0.1:0", "--memory", 4096)
        control = box.says(r"control port (\S+:\d+)\n").group(1)
        done = w.l.run("dxpu", *ask, control)
        check(done.status == 0, done.errors())


@case
def two_scripts_expect():
    """S-140: by the key, and by its fingerprint; the answer is an object."""
    with World() as w:
        a, b = w.pair(a=("--json",), b=("--json",))
        a.ends(DONE)
        b.ends(DONE)
        one, two = a.result(), b.result()
        check(one["result"] == "enrolled" and one["written"] and one["code"] == two["code"], one)
        check(one["public_key"] == w.key("b") and one["fingerprint"] == w.fingerprint("b"), one)
        check(one["line"] + "\n" == a.lines() == w.line("b"), one)
        check(one["counters"]["begun"] == 1 and one["counters"]["refused"] == 0, one)
        before = a.lines(), b.lines()
        a = End(w, "a", "--expect", w.fingerprint("b").upper())
        b = End(w, "b", "--expect", w.fingerprint("a").replace(" ", ""), to=a.address())
        a.ends(DONE, "stays as it is")  # never twice
        b.ends(DONE, "stays as it is")
        check(before == (a.lines(), b.lines()))


@case
def without_a_file_the_line_is_printed():
    with World() as w:
        a = End(w, "a", "--expect", w.key("b"), peers=False)
        b = End(w, "b", "--expect", w.key("a"), to=a.address())
        a.ends(DONE)
        b.ends(DONE)
        check(a.output() == w.line("b") and a.lines() is None and b.lines() == w.line("a"))


@case
def other_addresses():
    """IPv6, and an address of which all are meant."""
    with World() as w:
        if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):
            a, b = w.pair(listen="[::1]:0")
            a.ends(DONE)
            b.ends(DONE)
        a, b = w.pair(listen="*:0", to=lambda at: "127.0.0.1:" + at.rsplit(":", 1)[1])
        a.ends(DONE)
        b.ends(DONE)


# ---- What a person answers ----

@case
def only_yes_is_yes():
    """S-140: whoever does not say it in full, or said it before, has not said it."""
    with World() as w:
        a = End(w, "a", terminal=True)
        address = a.address()
        a.type("yes\n")  # before there is a question
        b = End(w, "b", to=address, terminal=True)
        a.asked()
        for word in ("y", "", "Yes", "yes yes", "yes" * 20, "maybe"):
            count = a.errors().count(QUESTION)
            a.type(word + "\n")
            until(lambda: a.errors().count(QUESTION) > count, "it asks again")
            check(a.popen.poll() is None and a.lines() is None, word)
        a.type("no\n")
        a.ends(REFUSED, "nothing was written")
        check(a.lines() is None)
        b.asked().type("yes\n")  # the control: the same question
        b.ends(DONE)
        check(b.lines() == w.line("a"))


@case
def a_terminal_that_goes_says_no():
    with World() as w:
        a, b = w.pair(terminal=True)
        a.asked()
        b.asked()
        os.close(a.master)
        a.master = None
        a.ends(REFUSED, "nothing was written|interrupted")
        check(a.lines() is None)


@case
def no_question_without_a_terminal():
    with World() as w:
        for more in ({}, {"to": "127.0.0.1:9"}):
            a = End(w, "a", **more)
            a.ends(USAGE, "no terminal.*--expect")
            check(a.lines() is None)


@case
def interrupted():
    """S-142"""
    with World() as w:
        a = End(w, "a", terminal=True)
        a.address()
        a.popen.send_signal(signal.SIGINT)
        a.ends(REFUSED, "interrupted; nothing was written")
        a, b = w.pair(terminal=True, a=("--json",))
        a.asked()
        a.popen.send_signal(signal.SIGTERM)
        a.ends(REFUSED, "interrupted; nothing was written")
        check(a.result()["result"] == "interrupted" and a.lines() is None)
        b.asked().type("yes\n")  # the other end was none of it
        b.ends(DONE)


@case
def no_peer_in_time():
    """S-142: no peer there, none connects, none answers."""
    with World() as w:
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.bind(("127.0.0.1", 0))
        with other:
            a = End(w, "a", "--timeout", 1, "--expect", w.key("b"))
            b = End(w, "b", "--timeout", 1, "--expect", w.key("a"), "--json",
                    to="127.0.0.1:%d" % other.getsockname()[1])
            a.ends(NOBODY, "no peer connected")
            b.ends(NOBODY, "no answer;")
            check(b.result()["result"] == "no-peer" and a.lines() is None and b.lines() is None)
        there = lab.address()
        b = End(w, "b", "--expect", w.key("a"), to=there)
        b.says("asking")
        a = End(w, "a", "--timeout", 5, terminal=True, listen=there)
        a.asked()
        a.ends(REFUSED, "no answer in time")
        check(a.lines() is None)
        b.ends(DONE)  # the control: it was the answer that was missing


# ---- Somebody else ----

@case
def somebody_in_the_middle():
    """S-50, S-141: each end learns his key, and their codes differ; control: alone they agree."""
    with World() as w:
        b = End(w, "b", terminal=True)
        toward_b = End(w, "m", to=b.address(), terminal=True)
        toward_a = End(w, "m", terminal=True)
        a = End(w, "a", to=toward_a.address(), terminal=True)
        check(a.asked().code() != b.asked().code())
        check(a.key() == b.key() == w.key("m"))
        check(a.code() == toward_a.asked().code() and b.code() == toward_b.asked().code())
        for end in (a, b):
            end.type("no\n")
            end.ends(REFUSED, "attacker in between")
            check(end.lines() is None)
        b, a = w.pair(terminal=True)
        check(a.asked().code() == b.asked().code())


@case
def a_key_that_was_not_expected():
    """S-140, S-143: the client ends, the server goes on until the right one connects."""
    with World() as w:
        a = End(w, "a", "--expect", w.key("b"), "--json")
        stranger = End(w, "m", "--expect", w.key("b"), to=a.address())
        stranger.ends(REFUSED, "another key than --expect;")
        check(stranger.lines() is None)
        stranger = End(w, "m", "--expect", w.key("a"), to=a.address())  # it believes in a
        stranger.ends(DONE)
        a.says("has another key, " + re.escape(w.key("m")))
        check(a.lines() is None)
        b = End(w, "b", "--expect", w.key("a"), to=a.address())
        b.ends(DONE)
        a.ends(DONE)
        check(a.lines() == w.line("b") and a.result()["counters"]["others"] >= 1, a.lines())


@case
def its_own_key():
    """S-144: two programs with one key do not know each other."""
    with World() as w:
        there = lab.address()
        twin = End(w, "a", "--expect", w.key("a"), to=there)
        twin.says("asking")
        a = End(w, "a", "--timeout", 5, "--expect", w.key("a"), listen=there)
        twin.ends(REFUSED, "the key of this end")
        a.ends(NOBODY, "no peer with the expected key connected")
        check(a.lines() is None)


def first_message(w):
    """What somebody says who begins."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        s.settimeout(20)
        End(w, "other", "--timeout", 1, "--expect", w.key("a"),
            to="127.0.0.1:%d" % s.getsockname()[1])
        return s.recv(2048)


class Flood:
    """Sends to an address: noise, frames cut and altered, and first messages of a crowd."""

    def __init__(self, address, message):
        host, port = address.rsplit(":", 1)
        self.at, self.message, self.ended = (host, int(port)), message, False
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(300)]
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        n, m = 0, self.message
        while not self.ended:
            for s in self.sockets:
                bad = bytearray(m)
                bad[n % len(m)] ^= 1 << n % 8
                for data in (os.urandom(n % 1400), m[:n % len(m)], bytes(bad), m)[n % 4:]:
                    try:
                        s.sendto(data, self.at)
                    except OSError:
                        pass
                n += 1
            threading.Event().wait(0.05)  # loopback loses what is not read in time

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.ended = True
        self.thread.join()
        for s in self.sockets:
            s.close()


@case
def a_flood():
    """S-143: datagrams that do not belong to it are counted, and the two still enroll."""
    with World() as w:
        message = first_message(w)
        a = End(w, "a", "--expect", w.key("b"), "--json")
        with Flood(a.address(), message):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # it is not answered twice
                s.settimeout(20)
                host, port = a.address().rsplit(":", 1)
                s.connect((host, int(port)))
                until(lambda: s.send(message) and answered(s), "one of the crowd is answered")
                check(not answered(s), "more answers than questions")
            b = End(w, "b", "--expect", w.key("a"), to=a.address())
            b.ends(DONE)
            a.ends(DONE, "did not belong to the enrollment")
        counts = a.result()["counters"]
        check(counts["refused"] > 1000 and counts["begun"] > 1 and counts["limited"] > 0, counts)
        check(a.lines() == w.line("b") and b.lines() == w.line("a"))


def answered(s):
    s.settimeout(0.3)
    try:
        return len(s.recv(2048)) > 0
    except OSError:
        return False


@case
def a_bad_network():
    """S-145: lost, doubled, altered and late datagrams; control: the relay did all that."""
    with World() as w:
        for seed in range(3):
            a = End(w, "a", "--expect", w.key("b"), "--json")
            relay = w.l.start("dxpu-relay", "--to", a.address(), "--loss", 300, "--duplicate", 300,
                              "--reorder", 300, "--corrupt", 100, "--seed", seed, "--json")
            b = End(w, "b", "--expect", w.key("a"), "--json", to=relay.address())
            b.ends(DONE)
            a.ends(DONE)
            check(a.result()["code"] == b.result()["code"])
            check(relay.stop() == 0 and relay.result()["lost"] > 0, relay.output())
            check(a.lines() == w.line("b") and b.lines() == w.line("a"))
            os.unlink(a.peers)


# ---- Files ----

@case
def a_file_that_cannot_be_written():
    """S-144: seen before anybody is asked, and once more after yes; what was there is there."""
    with World() as w:
        a = End(w, "a", "--expect", w.key("b"), "--peers", "/nonexistent/peers", peers=False)
        a.ends(USAGE, "/nonexistent/peers: cannot be written: No such file")
        a = End(w, "a", "--expect", w.key("b"), "--peers", w.l.folder, peers=False)
        a.ends(USAGE, "not a regular file")
        file = w.l.file("a.peers")
        for content, mode, why in (("# x\n", 0o666, "chmod go-w"), ("x\n", 0o644, "a.peers:1: ")):
            with open(file, "w") as f:
                f.write(content)
            os.chmod(file, mode)
            a = End(w, "a", "--expect", w.key("b"))
            a.ends(USAGE, why)
            check(a.lines() == content)
        os.unlink(file)
        a, b = w.pair(terminal=True, a=("--json",))
        a.asked()
        with open(file, "w") as f:
            f.write("# others write here\n")
        os.chmod(file, 0o666)
        a.type("yes\n")
        a.ends(USAGE, "chmod go-w")
        check(a.lines() == "# others write here\n" and a.result()["result"] == "file")
        check(not a.result()["written"])
        check([n for n in os.listdir(w.l.folder) if n.startswith("a.peers")] == ["a.peers"])
        b.asked().type("yes\n")
        b.ends(DONE)


@case
def what_was_in_the_file():
    """S-144, S-91: other lines, their order, mode and owner stay; a name is given once."""
    with World() as w:
        file = w.l.file("a.peers")
        before = "# ours\n%s may=host name=web7" % w.key("c")
        with open(file, "w") as f:
            f.write(before)
        os.chmod(file, 0o640)
        a, b = w.pair(b=("--name", "web7"))
        a.ends(USAGE, "name=web7 is given to two keys")
        check(a.lines() == before)
        b.ends(DONE)
        a, b = w.pair(a=("--as", "web8", "--may", "host,box"), b=("--name", "web7"))
        a.ends(DONE)
        b.ends(DONE)
        check(a.lines() == before + "\n" + w.line("b", " name=web8 may=host,box"), a.lines())
        check(stat.S_IMODE(os.stat(file).st_mode) == 0o640)


@case
def two_add_to_one_file():
    """S-144: neither line is lost."""
    with World() as w:
        ends = []
        for n in range(8):
            name = "x%d" % n
            one = End(w, "a", "--expect", w.key(name))
            ends += [one, End(w, name, "--expect", w.key("a"), to=one.address())]
        for end in ends:
            end.ends(DONE)
        check(sorted(ends[0].lines().splitlines(True)) == sorted(
            w.line("x%d" % n) for n in range(8)), ends[0].lines())


@case
def usage():
    with World() as w:
        key = ("--key", w.key_file("a"))
        expect = ("--expect", w.key("b"))
        for words, why in ((expect + ("127.0.0.1",), "--key FILE is required"),
                           (key + expect, "either --listen"),
                           (key + expect + ("--listen", ":0", "127.0.0.1"), "either --listen"),
                           (key + expect + ("::1:x:",), "address"),
                           (key + ("127.0.0.1", "--expect", "x"), "--expect: a public key"),
                           (key + expect + ("127.0.0.1", "--may", "all"), "fabric control"),
                           (key + expect + ("127.0.0.1", "--name", "a b"), "no blanks"),
                           (key + expect + ("127.0.0.1", "--name", "x" * 32), "31"),
                           (key + expect + ("127.0.0.1", "--as", "a#b"), "no #"),
                           (key + expect + ("127.0.0.1", "--timeout", "0"), "1 to 86400"),
                           (key + expect + ("127.0.0.1", "--timeout", "5x"), "1 to 86400"),
                           (key + expect + ("127.0.0.1", "--peers"), "requires a value"),
                           (("--key", w.l.file("none")) + key + expect, "either --listen"),
                           (key + expect + ("127.0.0.1", "::1"), "one argument too many"),
                           (key + expect + ("127.0.0.1", "--pears", "x"),
                            "unknown option --pears: did you mean --peers?"),
                           (("--key", w.l.file("none")) + expect + ("127.0.0.1",), "cannot be o")):
            done = w.l.run("dxpu", "enroll", *words, seconds=20)
            check(done.status == USAGE and why in done.errors(), words, done.errors())
        done = w.l.run("dxpu", "enroll", "--help")
        check(done.status == DONE and "--expect KEY" in done.output())
        a = End(w, "a", *expect)  # a port that is taken
        End(w, "a", *expect, listen=a.address()).ends(USAGE, "in use")


if __name__ == "__main__":
    sys.exit(main())
