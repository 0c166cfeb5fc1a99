"""A stock Linux guest's virtio_net driver runs on a network adapter of a remote box.

Its frames go to a tap interface in a network namespace, where a server checks what the guest sends
and sends it data back, through a path of the fabric that loses 1 % of all datagrams."""
# SPDX-License-Identifier: MIT
import hashlib
import os
import shutil
import subprocess
import sys
import time

import guest
import suite
from suite import HANG, check, figure

# in the order in which they must be loaded
MODULES = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "failover", "net_failover", "virtio_net")
PROGRAMS, LOSS, BOX_SLOT = (), 10, 1
SERVER, CLIENT, MEGABYTES = "10.99.0.1", "10.99.0.2", 8

# Port 5000 sends what port 5001 got; both in the namespace.
SERVE = """
import hashlib, socket
take, give = (socket.create_server(("%s", port)) for port in (5001, 5000))
while True:
    data, c = bytearray(), take.accept()[0]
    while (part := c.recv(1 << 20)):
        data += part
    c.close()
    print("got", len(data), hashlib.md5(data).hexdigest(), flush=True)
    c = give.accept()[0]
    c.sendall(data)
    c.close()
""" % SERVER


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode:
        raise guest.Missing("ip %s: %s" % (" ".join(map(str, words)), done.stderr.strip()[:200]))


class Space:
    """A tap, and a network namespace that it is moved to once the box has it."""

    def __init__(self):
        if os.geteuid() or not shutil.which("ip") or not os.path.exists("/dev/net/tun"):
            raise guest.Missing("needs root, ip and /dev/net/tun")
        self.tap, self.name = "dxt%d" % os.getpid(), "dxpu-net-%d" % os.getpid()
        ip("tuntap", "add", "dev", self.tap, "mode", "tap", "multi_queue")
        ip("netns", "add", self.name)

    def move(self):
        ip("link", "set", self.tap, "netns", self.name)
        ip("-n", self.name, "addr", "add", SERVER + "/24", "dev", self.tap)
        ip("-n", self.name, "link", "set", self.tap, "up")

    def back(self):
        """For another box."""
        ip("-n", self.name, "link", "set", self.tap, "netns", str(os.getpid()))

    def close(self):
        for words in (("link", "del", self.tap), ("netns", "del", self.name)):
            subprocess.run(["ip", *words], stderr=subprocess.DEVNULL)


class World:
    def __init__(self, l, at, slot):
        self.lab, self.at, self.bdf, self.server = l, at, suite.below(slot), None
        self.box, self.ended = None, False

    def start(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "virtio-net",
                                  "--tap", self.space.tap, "--json", *suite.HOLD)
        self.box.address()
        self.space.move()
        self.server = subprocess.Popen(["ip", "netns", "exec", self.space.name, sys.executable,
                                        "-c", SERVE], stdout=subprocess.PIPE, text=True)

    def close(self):
        if self.server:
            self.server.kill()
            self.server.wait()
        if self.box and not self.ended:  # the next kind wants the tap
            self.box.kill()
            self.space.back()

    def up(self):
        self.guest.wait_for("[ -e /sys/class/net/eth0 ]", HANG)
        self.guest.must("ip link set eth0 up; ip addr add %s/24 dev eth0" % CLIENT)

    def ping(self, name):
        status, said = self.guest.run("ping -c 5 -i 0.2 -W 5 " + SERVER, HANG)
        check("ping_" + name, status == 0 and " 0% packet loss" in said, said[-300:])
        times = [line for line in said.splitlines() if "min/avg/max" in line]
        if times:
            figure("%s, ms: %s" % (name, times[0].strip()))


def found(w):
    w.start()
    w.up()
    g, net = w.guest, "/sys/class/net/eth0/"
    check("address", g.must("cat %saddress" % net).startswith("02:"))
    check("carrier", g.must("cat %scarrier" % net).strip() == "1")
    queues = g.must("ls %squeues" % net).split()
    check("two_pairs", sorted(queues) == ["rx-0", "rx-1", "tx-0", "tx-1"], queues)
    vectors = g.must("grep -c virtio /proc/interrupts").strip()
    check("msix", vectors == "5", vectors)
    w.ping("first")
    status, said = g.run("ping -c 3 -s 20000 -W 5 " + SERVER, HANG)
    check("ping_in_fragments", status == 0 and " 0% packet loss" in said, said[-300:])


def both_ways(w):
    """Data go to the server and come back the same."""
    g = w.guest
    g.must("dd if=/dev/urandom of=/tmp/a bs=1M count=%d" % MEGABYTES, HANG)
    start = time.monotonic()
    g.must("taskset 2 nc %s 5001 </tmp/a" % SERVER, 2 * HANG)  # by the second pair
    got = w.server.stdout.readline().split()
    up = time.monotonic() - start
    want = g.must("md5sum </tmp/a", HANG).split()[0]
    check("sent_data_arrive", got[1:] == [str(MEGABYTES << 20), want], got)
    start = time.monotonic()
    g.must("nc %s 5000 </dev/null >/tmp/b" % SERVER, 2 * HANG)
    down = time.monotonic() - start
    back = g.must("md5sum </tmp/b", HANG).split()[0]
    check("received_data_are_the_same", back == want and want != hashlib.md5().hexdigest(), back)
    figure("through 1 %% loss: sent %.1f MB/s, received %.1f MB/s" % (MEGABYTES / up,
                                                                      MEGABYTES / down))


def address_changes(w):
    g = w.guest
    g.must("ip link set eth0 down; ip link set eth0 address 02:00:00:00:12:34; ip link set eth0 up")
    w.ping("after_another_address")


def removed_and_found(w):
    """By the guest."""
    g = w.guest
    g.must("echo 1 >%s/remove" % suite.device(w.bdf))
    g.wait_for("[ ! -e /sys/class/net/eth0 ]", HANG)
    g.must("echo 1 >/sys/bus/pci/rescan")
    w.up()
    check("own_address_again", "12:34" not in g.must("cat /sys/class/net/eth0/address"))
    w.ping("found_again")


def end(w):
    said = w.guest.complaints()
    check("kernel_is_content", not said, *said)
    w.guest.must("echo 1 >%s/remove" % suite.device(w.bdf))
    check("box_stops", w.box.stop() == 0, w.box.errors()[-500:])
    w.space.back()
    w.ended = True
    used = w.box.result()["slot_1"]["virtio-net"]
    check("nothing_refused", used["broken"] == used["unsupported"] == used["control_refused"] == 0,
          used)
    mean = used["bytes_sent"] / used["frames_sent"]
    check("segmentation_is_left_to_the_tap", mean > 2000, mean)
    mean = used["bytes_received"] / used["frames_received"]
    check("segments_arrive_merged", mean > 2000, mean)
    figure("frames sent %d, received %d; requests %d, looks %d, interrupts %d" %
           (used["frames_sent"], used["frames_received"], used["requests"], used["looks"],
            used["interrupts"]))


STORIES = (found, both_ways, address_changes, removed_and_found, end)
