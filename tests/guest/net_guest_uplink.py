#!/usr/bin/env python3
"""iperf3 in a stock guest through network adapters of the pool, beside QEMU's own.

The guest has QEMU's virtio-net and leases two adapters of one box and one of another, behind a
relay that loses 1 %.  The taps of all four are in one bridge, with an uplink to a network
namespace where the servers are.  Data go both ways and come back the same; iperf3 measures in
turn.  Then the uplink is made slow, and the two adapters of one box share it: one sends by UDP four
times what it carries, the other has a TCP stream.  The control is a queue without classes, where
the first gets nearly all.

Prints `ok NAME`, `not ok NAME` or `skip NAME` for each check and `# ...` lines with figures.
Skipped, loudly, where no QEMU, guest, iperf3, tap or HTB can be had: it needs root, ip and tc.  It
is for `make check-long`."""
# run.py: --timeout 600
# SPDX-License-Identifier: MIT
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import desktop  # noqa: E402
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
import kind_network as net  # noqa: E402
from kind_network import ip  # noqa: E402
from suite import HANG, check, figure  # noqa: E402

OWN, NEAR, FAR, OTHER = 1, 2, 3, 4  # also the third part of addresses
NAMES = {OWN: "QEMU's own", NEAR: "lent", FAR: "lent, through 1 % loss"}
ROUNDS, SECONDS, MEGABYTES = 3, 2, 8
MBIT = 12  # of the slow uplink
OFFERED = {NEAR: ("-u", "-l", 1400, "-b", "%dM" % (4 * MBIT)), OTHER: ("-O", 2)}
FAIR = 0.75  # the smaller share of a fair uplink, of the larger
QUEUE = 60  # frames of a class
SHARED = 6  # seconds

# Port 5000 of an address sends what port 5001 got.
SERVE = """
import hashlib, socket, threading
def serve(host):
    take, give = (socket.create_server((host, port)) for port in (5001, 5000))
    while True:
        data, c = bytearray(), take.accept()[0]
        while (part := c.recv(1 << 20)):
            data += part
        c.close()
        print(host, len(data), hashlib.md5(data).hexdigest(), flush=True)
        c = give.accept()[0]
        c.sendall(data)
        c.close()
for n in (1, 2, 3, 4):
    threading.Thread(target=serve, args=("10.99.%d.1" % n,)).start()
"""


class Net:
    """Taps and a bridge with an uplink in one namespace, its other end in another."""

    def __init__(self):
        if os.geteuid() or not all(map(shutil.which, ("ip", "tc"))):
            raise guest.Missing("needs root, ip and tc")
        if not os.path.exists("/dev/net/tun"):
            raise guest.Missing("needs /dev/net/tun")
        pid = os.getpid()
        self.bridge, self.far = "dxpu-br-%d" % pid, "dxpu-far-%d" % pid
        self.taps = {n: "dx%d-%d" % (n, pid) for n in (OWN, NEAR, FAR, OTHER)}
        for space in (self.bridge, self.far):
            ip("netns", "add", space)
        for tap in self.taps.values():
            ip("tuntap", "add", "dev", tap, "mode", "tap", "multi_queue")
        ip("-n", self.bridge, "link", "add", "dev", "uplink", "type", "veth", "peer", "name", "far",
           "netns", self.far)
        ip("-n", self.bridge, "link", "add", "dev", "br", "type", "bridge")
        for n in self.taps:
            ip("-n", self.far, "addr", "add", "10.99.%d.1/24" % n, "dev", "far")
        ip("-n", self.far, "link", "set", "dev", "far", "up")

    def move(self):
        """The taps, once their users have opened them."""
        for tap in self.taps.values():
            ip("link", "set", tap, "netns", self.bridge)
        for port in [*self.taps.values(), "uplink"]:
            ip("-n", self.bridge, "link", "set", "dev", port, "master", "br", "up")
        ip("-n", self.bridge, "link", "set", "dev", "br", "up")

    def tc(self, *words):
        done = subprocess.run(["tc", "-n", self.bridge, *map(str, words)], capture_output=True,
                              text=True)
        if done.returncode:
            raise guest.Missing("tc %s: %s" % (" ".join(map(str, words)), done.stderr.strip()))

    def slow(self, addresses):
        """The uplink, as examples/box/README.md says: a class for each of these, which share it;
        none: the first one has all."""
        root, whole = ("qdisc", "replace", "dev", "uplink", "root", "handle"), "%dmbit" % MBIT
        subprocess.run(["tc", "-n", self.bridge, "qdisc", "del", "dev", "uplink", "root"],
                       stderr=subprocess.DEVNULL)
        self.tc(*root, "1:", "htb", "default", 10)
        self.tc("class", "add", "dev", "uplink", "parent", "1:", "classid", "1:1", "htb", "rate",
                whole)
        for n in range(len(addresses) + 1):
            self.tc("class", "add", "dev", "uplink", "parent", "1:1", "classid", "1:%d" % (10 + n),
                    "htb", "rate", "%dkbit" % (MBIT * 1000 // (len(addresses) + 1)), "ceil", whole,
                    "quantum", 3000)
            self.tc("qdisc", "add", "dev", "uplink", "parent", "1:%d" % (10 + n), "pfifo", "limit",
                    QUEUE)
        for n, address in enumerate(addresses):
            high, low = address.replace(":", "")[:8], address.replace(":", "")[8:]
            self.tc("filter", "add", "dev", "uplink", "parent", "1:", "protocol", "all", "u32",
                    "match", "u32", "0x" + high, "0xffffffff", "at", -8, "match", "u16", "0x" + low,
                    "0xffff", "at", -4, "flowid", "1:%d" % (11 + n))

    def start(self, command, **more):
        return subprocess.Popen(["ip", "netns", "exec", self.far, *command], text=True, **more)

    def close(self):
        for tap in self.taps.values():
            subprocess.run(["ip", "link", "del", tap], stderr=subprocess.DEVNULL)
        for space in (self.bridge, self.far):
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


class World:
    def __init__(self, l, space):
        self.lab, self.net = l, space
        tools = guest.tools()
        place, = guest.ask(os.path.join(HERE, "more.sh"), "iperf")
        root = os.path.join(place, "root")
        modules = suite.modules(tools, net.MODULES)
        at, path = lab.address(), l.file("host.sock")
        self.relay = l.start("dxpu-relay", "--to", at, "--json", "--loss", 10)
        slot = "virtio-net,tap=%s"
        boxes = {"near": ("--listen", "127.0.0.1:0", "--slots", 2, "--slot",
                          "1=" + slot % space.taps[NEAR],
                          "--slot", "2=" + slot % space.taps[OTHER]),
                 "far": ("--listen", at, "--advertise", self.relay.address(), "--slot",
                         "1=" + slot % space.taps[FAR])}
        self.pool = desktop.Pool(l, ("--vfio-user", path, "--slots", 3, "--topology",
                                     "root-ports"), boxes, 3)
        tree = l.file("tree")
        shutil.copytree(os.path.join(root, "lib"), os.path.join(tree, "iperf"))
        initrd = guest.initramfs(l.file("initrd"), os.path.join(root, "usr/bin/iperf3"), tree,
                                 *modules.values())
        self.guest = guest.Guest(l, "a", tools, initrd, path, cpus=2, extra=[
            "-netdev", "tap,id=own,ifname=%s,script=no,downscript=no,queues=2" % space.taps[OWN],
            "-device", "virtio-net-pci,netdev=own,mq=on,romfile="])
        figure("boot to the first command %.1f s" % self.guest.ready())
        for module in modules:
            self.guest.must("insmod /modules/%s.ko" % module)
        space.move()
        loader = [os.path.join(root, "lib64/ld-linux-x86-64.so.2"), "--library-path",
                  os.path.join(root, "lib"), os.path.join(root, "usr/bin/iperf3")]
        self.processes = [space.start([sys.executable, "-c", SERVE], stdout=subprocess.PIPE)] + [
            space.start([*loader, "-s", "-B", server(n)], stdout=subprocess.DEVNULL)
            for n in space.taps]
        self.interfaces = {}

    def up(self, n):
        """The interface that has come."""
        g = self.guest
        name = "eth%d" % len(self.interfaces)
        g.wait_for("[ -e /sys/class/net/%s ]" % name, HANG)
        g.must("cd /proc/sys/net/ipv4/conf/%s; echo 1 >arp_ignore; echo 2 >arp_announce; "
               "ip link set %s up; ip addr add 10.99.%d.2/24 dev %s" % (name, name, n, name))
        g.wait_for("ping -c 1 -W 1 %s" % server(n), HANG)
        self.interfaces[n] = name

    def iperf(self, n, *words):
        return ("LD_LIBRARY_PATH=/iperf:/lib iperf3 -J -c %s -B 10.99.%d.2 " % (server(n), n) +
                " ".join(map(str, words)))


def server(n):
    return "10.99.%d.1" % n


def lent(w):
    w.up(OWN)
    for n in (NEAR, FAR, OTHER):
        lease = w.pool.lend("nic", "--attributes", "uplink=" + w.net.taps[n])
        check("lease_of_a_nic_%d" % n, lease["data"] == "none", lease)
        w.up(n)
    where = w.guest.must("for i in /sys/class/net/eth*/device; do readlink -f $i; done")
    check("own_and_lent", where.count("/virtio") == 4 and where.count("/pci10000:") == 3, where)


def verified(w):
    g = w.guest
    g.must("dd if=/dev/urandom of=/tmp/a bs=1M count=%d 2>/dev/null" % MEGABYTES, HANG)
    want = g.must("md5sum </tmp/a").split()[0]
    for n in NAMES:
        g.must("nc %s 5001 </tmp/a" % server(n), HANG)
        got = w.processes[0].stdout.readline().split()
        g.must("nc %s 5000 </dev/null >/tmp/b" % server(n), HANG)
        back = g.must("md5sum </tmp/b").split()[0]
        check("data_both_ways_are_the_same, %s" % NAMES[n],
              got == [server(n), str(MEGABYTES << 20), want] and back == want, got, back)


def run_iperf(w, n, *words):
    """Bits a second that arrived, and segments sent again."""
    status, said = w.guest.run(w.iperf(n, *words), HANG)
    if status:
        raise AssertionError("iperf3 %s: %s" % (NAMES[n], said[-500:]))
    end = json.loads(said)["end"]
    return end["sum_received"]["bits_per_second"], end["sum_sent"].get("retransmits", 0)


def measured(w):
    for name, words in (("sent", ()), ("received", ("-R",))):
        taken = {n: [] for n in NAMES}
        for _ in range(ROUNDS):
            for n in NAMES:
                taken[n].append(run_iperf(w, n, "-t", SECONDS, *words)[0])
        check("iperf3_%s" % name, all(min(t) > 0 for t in taken.values()), taken)
        middle = {n: statistics.median(t) / 1e6 for n, t in taken.items()}
        figure("iperf3, %s, Mbit/s: %s; ratios %s" % (
            name, ", ".join("%s %.0f" % (NAMES[n], middle[n]) for n in NAMES),
            ", ".join("%.2f" % (middle[n] / middle[OWN]) for n in (NEAR, FAR))))


def shares(w):
    """Of the slow uplink: what each of the two adapters gets, Mbit/s."""
    g = w.guest
    for n, words in OFFERED.items():
        g.must("(%s >/tmp/shares%d 2>&1; echo $? >/tmp/shared%d) &" % (
            w.iperf(n, "-t", SHARED + 2 * (n == NEAR), *words), n, n))
    found = []
    for n in OFFERED:
        g.wait_for("[ -s /tmp/shared%d ]" % n, HANG)
        said = g.must("cat /tmp/shares%d; rm /tmp/shared%d" % (n, n))
        found.append(json.loads(said)["end"]["sum_received"]["bits_per_second"] / 1e6)
    return tuple(found)


def fair(w):
    w.net.slow([])
    much, less = shares(w)
    figure("uplink of %d Mbit/s, %d offered by one adapter, a stream of the other: in one queue "
           "%.1f and %.1f Mbit/s" % (MBIT, 4 * MBIT, much, less))
    check("control_one_queue_is_unfair", less < much / 3, much, less)
    w.net.slow([w.guest.must("cat /sys/class/net/%s/address" % w.interfaces[n]).strip()
                for n in OFFERED])
    much, less = shares(w)
    ratio = min(much, less) / max(much, less)
    figure("with a class for each adapter %.1f and %.1f Mbit/s: ratio %.2f" % (much, less, ratio))
    check("two_adapters_share_an_uplink_fairly", ratio >= FAIR, much, less)


def end(w):
    said = w.guest.complaints()
    check("kernel_is_content", not said, *said)
    w.guest.kill()
    lost = w.relay.stop() == 0 and w.relay.result()["lost"]
    check("control_the_relay_lost", lost, lost)
    for name, box in w.pool.boxes.items():
        check(name + "_stops", box.stop() == 0, box.errors()[-500:])
        for key, slot in box.result().items():
            used = slot.get("virtio-net") if isinstance(slot, dict) else None
            if used:
                check("%s_%s_refused_nothing" % (name, key), used["broken"] == 0 and
                      used["unsupported"] == 0 and used["control_refused"] == 0, used)
    check("manager_stops", w.pool.manager.stop() == 0, w.pool.manager.errors()[-500:])


def run(space):
    with lab.Lab() as l:
        w = None
        try:
            w = World(l, space)
            for story in (lent, verified, measured, fair, end):
                start = time.monotonic()
                story(w)
                figure("%s: %.1f s" % (story.__name__, time.monotonic() - start))
        except guest.Missing:
            raise
        except Exception as why:
            traceback.print_exc()
            check("net_guest_uplink to its end", False, why, w and w.guest.log()[-1000:],
                  *[process.errors()[-300:] for process in l.processes])
        finally:
            for process in w.processes if w else ():
                process.kill()
                process.wait()


def main():
    space = None
    try:
        space = Net()
        run(space)
    except guest.Missing as why:
        print("skip net_guest_uplink %s" % why)
    finally:
        if space:
            space.close()
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
