#!/usr/bin/env python3
# make: firmware
"""A box without an operating system: images of two boards under QEMU, lent to dxpu-host over
emulated Ethernet, also through a bad network; with keys, and a guard of what its device sends.

QEMU's network port is a tap in a namespace of its own, so that the image talks to the machine's own
ARP, IP and UDP.  Needs root, ip, /dev/net/tun and QEMU; else every case is skipped.
Prints `ok NAME`, `not ok NAME` or `skip NAME reason`.  Programs: $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import base64
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
import footprint  # noqa: E402
import lab  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import BAR4, BASE, DEVICE, ECAM, WINDOW  # noqa: E402

IMAGES = os.path.join(lab.ROOT, "build", "firmware")
IP = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
HOST, BOX = "10.9.3.1", "10.9.3.2"
BOARDS = {
    "mps2-an385": ("qemu-system-arm", "-M", "mps2-an385", "-semihosting-config",
                   "enable=on,target=native", "-nic", "tap,ifname=t0,script=no,downscript=no"),
    "riscv-virt": ("qemu-system-riscv64", "-M", "virt", "-m", "16M", "-bios", "none",
                   "-semihosting-config", "enable=on,target=native", "-global",
                   "virtio-mmio.force-legacy=off", "-netdev",
                   "tap,id=n0,ifname=t0,script=no,downscript=no", "-device",
                   "virtio-net-device,netdev=n0"),
}
MEMORY = 1 << 20  # of the guest, from 0
BAD = ("--loss", 30, "--duplicate", 20, "--reorder", 20, "--corrupt", 20)


def ip(*words, may_fail=False):
    done = subprocess.run([IP, *words], capture_output=True, text=True)
    if done.returncode and not may_fail:
        raise RuntimeError("ip %s: %s" % (" ".join(words), done.stderr.strip()))
    return done.stdout


class Net(lab.Lab):
    """A namespace with a tap, and an image at its other end."""

    def __init__(self, board, keyed=False, guarded=True):
        super().__init__()
        self.board, self.space = board, "dxpu-%d-fw" % os.getpid()
        self.keyed, self.guarded = keyed, guarded

    def __enter__(self):
        try:
            ip("netns", "add", self.space)
            ip("-n", self.space, "link", "set", "lo", "up")
            ip("-n", self.space, "tuntap", "add", "dev", "t0", "mode", "tap")
            ip("-n", self.space, "addr", "add", HOST + "/24", "dev", "t0")
            ip("-n", self.space, "link", "set", "t0", "up")
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        super().__exit__(*unused)
        ip("netns", "del", self.space, may_fail=True)

    def there(self, name, *args):
        """Start a program in the namespace."""
        return self.start(IP, "netns", "exec", self.space, name, *args)

    def ours(self, name, *args):
        return self.there(os.path.join(lab.BIN, name), *args)

    def secrets(self):
        """What the image is given: keys in hexadecimal, and what its random numbers come from."""
        host, box = self.public("host"), self.public("box")
        with open(self.file("box.key")) as f:
            secret = f.read().split()[-1]
        check(len(box) == len(host) == len(secret) == 44)
        return ["%s=%s" % (word, base64.b64decode(key).hex()) for word, key in
                (("secret", secret), ("peer", host), ("seed", base64.b64encode(os.urandom(32))))]

    def boot(self):
        said = (self.secrets() if self.keyed else []) + ([] if self.guarded else ["guard=off"])
        words = [w + "".join(",arg=" + s for s in said) if w.startswith("enable=on") else w
                 for w in BOARDS[self.board]]
        self.box = self.there(words[0], *words[1:], "-display", "none", "-monitor", "none",
                              "-serial", "file:" + self.file("console"), "-kernel",
                              os.path.join(IMAGES, self.board, "box.elf"))
        self.console(r"slot 1 at")

    def console(self, pattern, seconds=20.0):
        """What the image printed, once it has printed this."""
        end, text = time.monotonic() + seconds, ""
        while time.monotonic() < end and self.box.popen.poll() is None:
            if os.path.exists(self.file("console")):
                with open(self.file("console"), errors="replace") as f:
                    text = f.read()
                if re.search(pattern, text):
                    return text
            time.sleep(0.01)
        raise RuntimeError("the image did not print %r:\n%s%s" % (pattern, text, self.box.errors()))

    def over(self, channels):
        """The counters that the image prints after that many channels."""
        told = self.console(r"(?ms)(a channel is over\n.*?^\.\n.*){%d}" % channels)
        return {name: int(value) for name, value in
                re.findall(r"(?m)^  (\w+) (\d+)$", told.rsplit("is over\n", 1)[1])}

    def host(self, to, *args):
        """dxpu-host, with the keys of the lab when the image has some."""
        keys = self.keys("dxpu-host") if self.keyed else ("--plain", "--plain-network")
        return self.ours("dxpu-host", *keys, "--box", to, *args)

    def load(self, to, *args):
        """One load whose data dxpu-host compares; its result."""
        host = self.host(to, "--json", *args)
        status = host.wait(120)
        result = host.result()
        check(status == 0, "host", status, host.errors())
        check(result["mismatched"] == result["unanswered"] == result["unsuccessful"] == 0, result)
        return result


def unusable(board):
    program = BOARDS[board][0]
    if not shutil.which(program):
        return program + " is not here"
    return None


def clean(board):
    """Two hosts in turn; what the first wrote is not there for the second."""
    if unusable(board):
        return unusable(board)
    with Net(board) as n:
        to = BOX + ":4458"
        first = n.load(to, "--load", "mixed", "--size", 512, "--depth", 8, "--count", 2000,
                       "--span", "64K", "--epoch", 1)
        told = n.over(1)
        check(told["ups"] == told["closed"] == 1 and told["failed"] == 0, told)
        check(told["reads"] >= first["reads"] + first["read_back"] and told["writes"] > 0, told,
              first)
        most = footprint.image(board)[0]  # as computed from the code
        check(most / 4 < told["stack_used"] <= most, "stack", told["stack_used"], most)
        check(told["rx_arp"] >= 1, told)  # the machine asked who has the address
        for drop in ("rx_length", "rx_fragment", "rx_checksum", "rx_source", "rings_astray",
                     "device_lengths", "device_malformed", "host_malformed"):
            check(told[drop] == 0, drop, told)
        n.load(to, "--load", "read", "--size", 4, "--count", 100, "--span", "4K", "--epoch", 2)
        again = n.over(2)
        check(again["ups"] == again["closed"] == 2 and again["resets"] == told["resets"] + 1, again)
    return None


def bad(board):
    """Loss, duplication, reordering, altered frames; all data compared."""
    if unusable(board):
        return unusable(board)
    with Net(board) as n:
        relay = n.ours("dxpu-relay", "--listen", HOST + ":4459", "--to", BOX + ":4458", "--json",
                       "--seed", 7, *BAD)
        relay.address()
        result = n.load(HOST + ":4459", "--load", "mixed", "--size", 1024, "--depth", 8, "--count",
                        1000, "--span", "64K")
        told = n.over(1)
        relay.stop()
        faults = relay.result()
        check(faults["lost"] > 0 and faults["corrupted"] > 0, faults)
        check(result["retransmits"] > 0, result)
        check(told["ups"] == 1 and told["closed"] == 1, told)
    return None


def taken_over(board):
    """A host that is killed loses its slot to one with a higher epoch, not to one with a lower."""
    if unusable(board):
        return unusable(board)
    with Net(board) as n:
        to = BOX + ":4458"
        killed = n.host(to, "--load", "write", "--size", 256, "--seconds", 60,
                        "--span", "4K", "--epoch", 5)
        killed.says("slot")
        killed.kill()
        told = n.over(1)  # by hold
        check(told["failed"] == 1, told)
        low = n.host(to, "--load", "read", "--count", 1, "--epoch", 4)
        check(low.wait(60) != 0 and "epoch" in low.errors(), low.errors())
        sealed = n.ours("dxpu-host", *n.keys("dxpu-host"), "--box", to, "--load", "read", "--count",
                        1, "--epoch", 6, "--give-up-ms", 300)
        check(sealed.wait(60) == 4, sealed.errors())  # the image does not agree on keys
        n.load(to, "--load", "read", "--size", 64, "--count", 50, "--span", "4K", "--epoch", 6)
        told = n.over(2)
        check(told["opens_refused"] >= 1 and told["rx_handshakes"] >= 1, told)
        check(told["ups"] == 2 and told["closed"] == 1, told)
    return None


def sealed(board):
    """A host with its key, on a bad network; one without keys, and one whose key is not known."""
    if unusable(board):
        return unusable(board)
    with Net(board, keyed=True) as n:
        to = BOX + ":4458"
        relay = n.ours("dxpu-relay", "--listen", HOST + ":4459", "--to", to, "--seed", 7, *BAD)
        relay.address()
        result = n.load(HOST + ":4459", "--load", "mixed", "--size", 512, "--depth", 8, "--count",
                        500, "--span", "64K", "--epoch", 1)
        check(result["retransmits"] > 0, result)
        relay.stop()
        told = n.over(1)
        check(told["ups"] == told["closed"] == 1 and told["rx_handshakes"] >= 2, told)
        check(told["responses_sent"] >= 1 and told["cookies_sent"] >= 1, told)
        most = footprint.image(board)[0]
        check(most / 4 < told["stack_used"] <= most, "stack", told["stack_used"], most)
        plain = n.ours("dxpu-host", "--plain", "--plain-network", "--box", to, "--load", "read",
                       "--count", 1, "--epoch", 2, "--give-up-ms", 300)
        check(plain.wait(60) == 4, plain.errors())
        n.run("dxpu", "keygen", n.file("other.key"))
        other = n.ours("dxpu-host", "--key", n.file("other.key"), "--peer", n.public("box"),
                       "--box", to, "--load", "read", "--count", 1, "--epoch", 2,
                       "--give-up-ms", 300)
        check(other.wait(60) == 4, other.errors())
        n.load(to, "--load", "read", "--size", 64, "--seconds", 2, "--span", "4K", "--epoch", 2,
               "--rekey-s", 1)
        told = n.over(2)
        check(told["rekeys_seen"] >= 1, told)
        check(told["ups"] == 2 and told["strangers"] >= 1 and told["opens_refused"] == 0, told)
    return None


def masters(n, epoch):
    """The device writes to its host: before it may, where it may, and where it may not.  The first
    and the last reach no host; what the host refused of them."""
    path = n.file("vm")
    host = n.ours("dxpu-host", *n.keys("dxpu-host"), "--vfio-user", path, "--slots", 2,
                  "--topology", "root-ports", "--attach", "1=%s:4458/1" % BOX, "--epoch", epoch,
                  "--json")
    host.says("waiting for a guest")
    memory = os.memfd_create("guest")
    try:
        os.ftruncate(memory, MEMORY)
        guest = vfio_client.Client(path)
        guest.map_memory(0, MEMORY, memory)
        guest.map_slot()
        guest.filled()
        guest.write32(ECAM, DEVICE + 0x10, (BAR4 + BASE) & 0xffffffff)
        guest.write32(ECAM, DEVICE + 0x14, (BAR4 + BASE) >> 32)
        for command, value, address in ((2, b"none", 0x2000), (6, b"good", 0x1000),
                                        (6, b"wild", 1 << 40)):
            guest.write32(ECAM, DEVICE + 0x04, command)
            guest.read32(ECAM, DEVICE + 0x04)
            guest.write(WINDOW, BASE, b"DMA!" + value + address.to_bytes(8, "little"))
            guest.read32(WINDOW, BASE)  # behind the write, and what the device made of it
        end = time.monotonic() + 5
        while os.pread(memory, 4, 0x1000) != b"good" and time.monotonic() < end:
            guest.read32(WINDOW, BASE)
        check(os.pread(memory, 4, 0x1000) == b"good" and os.pread(memory, 4, 0x2000) == bytes(4))
        guest.close()
    finally:
        os.close(memory)
    check(host.stop() == 0, host.errors())
    return host.result()["slot_1"]["refused"]


def guarded(board):
    """S-100: what the host did not grant does not leave the box; without the guard it does, and the
    host refuses it."""
    if unusable(board):
        return unusable(board)
    for guard in (True, False):
        with Net(board, keyed=True, guarded=guard) as n:
            refused = masters(n, 1)
            told = n.over(1)
            check(told["device_refused"] == (2 if guard else 0), told, refused)
            check(refused == (0 if guard else 2), told, refused)
    return None


for name in BOARDS:
    for story in (clean, bad, taken_over, sealed, guarded):
        def one(story=story, name=name):
            return story(name)
        one.__name__ = "%s_%s" % (story.__name__, name.replace("-", "_"))
        case(one)


def why_not():
    if os.geteuid() != 0 or not IP:
        return "needs root and ip"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun"
    probe = "dxpu-%d-probe" % os.getpid()
    try:
        ip("netns", "add", probe)
        ip("-n", probe, "tuntap", "add", "dev", "t0", "mode", "tap")
    except RuntimeError as error:
        return str(error)
    finally:
        ip("netns", "del", probe, may_fail=True)
    return None


if __name__ == "__main__":
    sys.exit(main(why_not()))
