#!/usr/bin/env python3
"""The programs of examples/embed: built by the commands of their README beside a copy of dxpu.h
and bindings/, without warnings, run under loss."""
# make: build/pic/dxpu_core.o
import os
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402
from cases import case, check, main, until  # noqa: E402

ROOT = rooms.ROOT
EMBED = os.path.join(ROOT, "examples", "embed")
WARN = ("-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wvla -Wwrite-strings -Wformat=2 "
        "-Werror").split()
WARN_C = ["-Wstrict-prototypes", "-Wmissing-prototypes"]
SOURCES = sorted(n for n in os.listdir(EMBED) if n.endswith((".c", ".cc")))
LOOPBACK = "MWr to 0xfee00000: dxpu\n8 frames, 2 of them lost: closed\n"
folder = tempfile.TemporaryDirectory()
here = os.path.join(folder.name, "examples", "embed")
random.seed(19)


def text(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def run(*words, **more):
    done = subprocess.run(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def start(*words):
    return subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def end(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


class Relay(threading.Thread):
    """Loses datagrams each way, the first `closes` close frames from `to` among them, but no reset,
    which is sent only once (D-47).  Sends all opens that it has seen repeatedly."""

    def __init__(self, to, loss, closes=0):
        super().__init__(daemon=True)
        self.to, self.loss, self.closes = ("127.0.0.1", int(to)), loss, closes
        self.listen = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.listen.bind(("127.0.0.1", 0))
        self.port = str(self.listen.getsockname()[1])
        self.up, self.opens, self.lost, self.late, self.stop = {}, [], 0, 0, False
        self.running = set()  # ways on which a host has sent data: its channel is up
        self.repeat = True
        self.start()

    def run(self):
        again = time.monotonic()
        while not self.stop:
            ready = select.select([self.listen, *self.up.values()], [], [], 0.02)[0]
            for s in ready:
                data, source = s.recvfrom(65535)
                if s is self.listen:
                    if source not in self.up:
                        self.up[source] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    way, to = self.up[source], self.to
                    if data[3] == 4:
                        self.opens.append((way, data))
                else:
                    way, to = s, None
                if not to and self.closes and data[3] == 7:
                    self.closes -= 1
                elif data[3] != 6 and random.random() < self.loss:
                    self.lost += 1
                elif to:
                    way.sendto(data, to)
                    if data[3] == 1:
                        self.running.add(way)
                else:
                    self.listen.sendto(data, next(c for c, u in self.up.items() if u is s))
            if self.repeat and time.monotonic() > again + 0.1:
                again = time.monotonic()
                for way, data in self.opens[-20:]:
                    way.sendto(data, self.to)
                    self.late += 1
        for s in (self.listen, *self.up.values()):
            s.close()


@case
def test_readme_builds_each():
    os.makedirs(here)
    for name in SOURCES:
        shutil.copy(os.path.join(EMBED, name), here)
    os.symlink(os.path.join(ROOT, "dxpu.h"), os.path.join(folder.name, "dxpu.h"))
    os.symlink(os.path.join(ROOT, "bindings"), os.path.join(folder.name, "bindings"))
    readme = text("examples/embed/README.md")
    commands = re.findall(r"`(cc .*?)`", readme) + re.findall(r"(?m)^    (c.*)$", readme)
    for line in commands:
        # The warnings of the next case, too, of what takes longest to compile.
        done = run("sh", "-c", re.sub(r"^c\+\+ ", "c++ %s " % " ".join(WARN), line))
        check(done == (0, "", ""), line, done)
    for name in SOURCES:
        check(os.path.exists(os.path.join(here, os.path.splitext(name)[0])), name, "was not built")


@case
def test_no_warnings_150_lines():
    for name in SOURCES:
        plus = name.endswith(".cc")
        include = ["-I../.."] + ["-I../../bindings/" + binding for binding in
                                 (("secure", "sodium") if plus else ("acceptor",))]
        for compiler in ("clang++",) if plus else ("gcc", "clang"):
            done = run(compiler, "-std=c++17" if plus else "-std=c11", *WARN,
                       *([] if plus else WARN_C), *include, "-fsyntax-only", name)
            check(done[0] == 0, compiler, name, done[2])
        check(text("examples/embed/" + name).count("\n") <= 150, name, "is longer than 150 lines")


@case
def test_tlp_dump():
    status, out, err = run("./tlp_dump", input="40000001 0000000f fee00000 00000041\n\n"
                           "34000000 70000010 00000000 88468846\n4A000001 01000004 00000000\n"
                           "04000001 0000220f 01070000\nffffffff ffffffff ffffffff\n40000\n4 x\n")
    check(status == 1 and out.splitlines() == [
        "MWr 1 dw from 00:00.0 tag 0x00 to 0xfee00000 byte enables f/0: 00 00 00 41",
        "Msg 0 dw LTR from 70:00.0 routed local",
        "CplD 1 dw SC from 01:00.0 to 00:00.0 tag 0x00, 4 bytes left (tlp: fewer bytes than its "
        "header says)",
        "CfgRd0 1 dw from 00:00.0 tag 0x22 to 01:00.7 register 0x000 byte enables f/0"],
        status, out)
    check(re.findall(r"line (\d+)", err) == ["6", "7", "8"], err)


@case
def test_loopback_is_the_readmes_program():
    check(run("./loopback") == (0, LOOPBACK, ""), run("./loopback"))
    check("```c\n" + text("examples/embed/loopback.c") + "```\n" in text("README.md"))
    check("```text\n" + LOOPBACK + "```" in text("README.md"))
    command = re.search(r"`([^`]* -o [^`]*)` prints\n", text("README.md")).group(1)
    done = run("sh", "-c", "cd ../.. && " + command)
    check(done == (0, LOOPBACK, ""), command, done)
    check(not os.path.exists(os.path.join(folder.name, "a.out")), "it leaves a.out")


@case
def test_a_channel_may_be_moved():
    source = text("examples/embed/loopback.c")
    source = source.replace("static dxpu_channel ch[2];",
                            "static dxpu_channel room[2][2], *ch = room[0];")
    loop = "while (carry(HOST, BOX) == 0) {"
    check(loop in source and "room" in source)
    move = ("dxpu_channel *to = room[ch == room[0]]; if (!getenv(\"EMPTY\")) memcpy(to, ch, "
            "sizeof room[0]); memset(ch, 0xa5, sizeof room[0]); ch = to;")
    with open(os.path.join(here, "move.c"), "w", encoding="utf-8") as file:
        file.write("#include <stdlib.h>\n" + source.replace(loop, loop + move))
    check(run("cc", "-I../..", "-o", "move", "move.c") == (0, "", ""), "build")
    done = run("./move")
    check(done == (0, LOOPBACK, ""), done)
    done = run("./move", env=dict(os.environ, EMPTY="1"))  # control: moved without its contents
    check(done != (0, LOOPBACK, ""), done)


SIZES = """#include "dxpu.h"
#include <stdio.h>
int main(void)
{
    static const unsigned limits[] = { 1232, 1452, 8952, 1232 };
    for (int row = 0; row < 4; row++)
        for (unsigned window = 16; window <= 1024; window *= 4) {
            dxpu_channel_config c;
            dxpu_channel_config_default(&c);
            c.window_frames = window;
            c.frame_limit_bytes = limits[row];
            for (int i = 0; row == 3 && i < DXPU_CLASSES; i++) {
                c.rx.header[i] = c.tx.header[i] = 8;
                c.rx.data[i] = c.tx.data[i] = i == DXPU_NONPOSTED ? 8 : 256;
            }
            printf("%zu\\n", dxpu_channel_bytes(&c));
        }
    dxpu_channel_config c;
    dxpu_channel_config_default(&c);
    printf("%zu\\n%zu\\n", dxpu_channel_bytes(&c), dxpu_channel_bytes(&c) + sizeof(dxpu_channel));
    return 0;
}
"""


@case
def test_memory_table_of_the_header():
    table = re.search(r"window_frames     16 .*\n((?: +\w+ .*\n){4})", text("dxpu.h"))
    usual = re.search(r"By default (\d+), with sizeof\(dxpu_channel\) (\d+)",
                      text("dxpu.h")).groups()
    shown = re.findall(r"\b\d{5,}\b", table.group(1)) + list(usual)
    with open(os.path.join(here, "sizes.c"), "w", encoding="utf-8") as file:
        file.write(SIZES)
    check(run("cc", "-I../..", "-o", "sizes", "sizes.c",
              os.path.join(ROOT, "build", "pic", "dxpu_core.o")) == (0, "", ""), "build")
    if sys.maxsize <= 2 ** 32:
        return "the table is of 64-bit machines"
    check(len(shown) == 18 and run("./sizes")[1].split() == shown, shown, run("./sizes"))
    check(int(usual[1]) <= 128 << 10, usual)


@case
def test_udp_pair_ends_gracefully_under_loss():
    pairs = []
    relays = []
    # one word: the host closes at once after opening
    for loss, words in (("0", "1000"), ("5", "1000"), ("20", "1000"), ("20", "10"), ("5", "1"),
                        ("30", "1"), ("30", "1"), ("30", "200")):
        at = port()
        box = start("./udp_pair", "box", "127.0.0.1", at, loss)
        relays.append(Relay(at, 0, closes=3 if loss == "0" else 0))  # its answer must be repeated
        pairs.append((loss, words, box, start("./udp_pair", "host", "127.0.0.1", relays[-1].port,
                                              loss, words)))
    for loss, words, box, host in pairs:
        for who, process in (("host", host), ("box", box)):
            done = end(process)
            check(done == (0, "%s: %s words, closed: the proxy shuts down\n" % (who, words), ""),
                  loss, words, done)
    check(relays[0].closes == 0, "no answer was lost")
    for relay in relays:
        relay.stop = True
        relay.join()
    lonely = run("./udp_pair", "host", "127.0.0.1", port())  # control: no answer
    check(lonely[0] == 1 and "failed: fatal: no answer" in lonely[1], lonely)


@case
def test_udp_pair_ends_gracefully_each_time():
    """DXPU_WHOLE: 1,000 pairs at each loss; every second host closes at once after opening."""
    for loss in ("5", "30"):
        left = 1000 if os.environ.get("DXPU_WHOLE") else 16
        while left:
            pairs = []
            for n in range(min(left, 16)):
                at, words = port(), ("1", "50")[n % 2]
                way = ("127.0.0.1", at, loss)
                pairs.append((words, start("./udp_pair", "box", *way),
                              start("./udp_pair", "host", *way, words)))
            for words, box, host in pairs:
                for who, process in (("host", host), ("box", box)):
                    done = end(process)
                    check(done == (0, "%s: %s words, closed: the proxy shuts down\n" % (who, words),
                                   ""), loss, words, left, done)
            left -= len(pairs)


@case
def test_acceptor_serves_many_hosts():
    at = port()
    box = start("./acceptor", "127.0.0.1", at)
    relay = Relay(at, 0.1)

    def host(slot, node, epoch, words=1000):
        return start("./udp_pair", "host", "127.0.0.1", relay.port, "10", str(words), str(slot),
                     str(node), str(epoch))

    closed = (0, "host: 1000 words, closed: the proxy shuts down\n", "")
    try:
        long = host(4, 4, 1, 100000000)
        many = [host(slot, slot, 1) for slot in (1, 2, 3)]
        for process in many:
            done = end(process)
            check(done == closed, done)
        check(end(host(1, 1, 1)) == closed, "the same lease once more")
        until(lambda: relay.late > 3, "late copies of opens")
        check(long.poll() is None, "late opens of others ended a channel")
        relay.repeat = False  # a copy displaces a newcomer of the same slot that is not up yet
        long.kill()  # it starts again, while its first incarnation is still served
        long.communicate()
        check(end(host(4, 4, 1)) == closed, "a second incarnation")
        others = len(relay.opens)
        long = host(4, 4, 1, 100000000)
        until(lambda: any(way in relay.running for way, _ in relay.opens[others:]), "its data")
        check(end(host(4, 5, 2)) == closed, "a higher epoch")
        done = end(long)
        check(done[0] == 1 and "a newer incarnation took over" in done[1], done)
        done = end(host(4, 4, 1))
        check(done[0] == 1 and "the lease epoch is old" in done[1], done)
    finally:
        relay.stop = True
        relay.join()
        box.terminate()
        said = box.communicate()[1]
    check(relay.lost and relay.late, "no trouble", relay.lost, relay.late)
    check(len(re.findall(r"slot \d: node \d, 1000 words: the proxy shuts down", said)) == 6, said)
    check("slot 4: node 5, 1000 words" in said and "a newer incarnation took over" in said, said)


@case
def test_requests():
    for loss in ("0", "30"):
        done = run("./requests", loss)
        check(done == (0, "read 1: 200 bytes in 2 completions\n"
                       "read 2: no completion in 50 ms\n", ""), loss, done)
    check(run("./requests", "100")[0] == 1, "the control: no frame arrives")


@case
def test_sealed():
    for loss in ("0", "30"):
        done = run("./sealed", loss)
        check(done[0] == 0 and re.fullmatch(r"box: 16 bytes, (aes|aegis|chacha20)\S*\n"
                                            r"host: closed\n", done[1]), loss, done)


if __name__ == "__main__":
    sys.exit(main())
