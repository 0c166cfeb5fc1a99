#!/usr/bin/env python3
"""Linux's pci_endpoint_test runs on remote devices; a BAR of 4 GB is hot-added.

The guest has two adapters, one with slots as root ports and one with the switch; below the switch
the large BAR is refused, with a remedy that net_guest_vga.py's guest is booted with, and one device
copies in another one's memory: through the host, then from box to box.  Prints
`ok NAME`, `not ok NAME` or `skip NAME` for each check.  Skipped, loudly, where no QEMU, guest or
kernel source can be had."""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import os
import re
import signal
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, LARGE, check, device, figure, large_bar, pcitest  # noqa: E402


class World:
    """The programs, and what all guests are started with.  Each box has a key of its own: of two
    with one key, each takes the other for itself."""

    def __init__(self, l, places):
        self.lab = l
        module = guest.ask(os.path.join(HERE, "module.sh"))[0]
        self.tools = guest.tools()
        self.initrd = guest.initramfs(l.file("initrd"), module, suite.program(l, "pcitest"))
        self.nodes = {at: 21 + n for n, at in enumerate(places)}
        _, self.host_key, _, _ = l.keys("dxpu-host")
        _, _, *self.box_peers = l.keys("dxpu-box")
        with open(l.file("boxes"), "w") as file:
            for at, node in self.nodes.items():
                made = l.run("dxpu", "keygen", self.key(node))
                file.write("%s may=fabric at=%s\n" % (made.output().strip(), at))

    def key(self, node):
        return self.lab.file("box%d.key" % node)

    def host(self, name, topology, slots, attach, *options):
        path = self.lab.file(name + ".sock")
        host = self.lab.start("dxpu-host", "--vfio-user", path, "--slots", slots, "--topology",
                              topology, "--attach", ",".join(attach), "--json", "--key",
                              self.host_key, "--peers", self.lab.file("boxes"), *options)
        host.says("waiting for a guest")
        host.socket = path
        return host

    def box(self, at, *options):
        box = self.lab.start("dxpu-box", "--listen", at, "--device", "eptest", "--node",
                             self.nodes[at], "--json", "--key", self.key(self.nodes[at]),
                             *self.box_peers, *options)
        box.address()
        return box


def test_driver(g, bdf):
    """The whole of pci_endpoint_test."""
    g.wait_for("[ -e %s ]" % device(bdf), HANG)
    g.must("insmod /modules/pci_endpoint_test.ko")
    g.wait_for("[ -c /dev/pci-endpoint-test.0 ]")
    lines = pcitest(g, "pci_endpoint_test", "drive", 240)
    for want in ("bar 4", "absence of bar 5", "vectors of msi-x 32", "msi 1", "msi-x 32",
                 "read with msi, bytes 1", "write with msi-x, bytes 1048576",
                 "copy with msi-x, bytes 1048576"):
        check("pci_endpoint_test did: " + want, "ok " + want in lines)
    g.must("rmmod pci_endpoint_test")


def test_refused(w, g, host, at):
    """A device that the slot's window cannot hold is not shown; its neighbours do not suffer."""
    found = host.says(r"slot 1: refused: .* 4 GB.*; remedy: .*(pci=\S+)", 30)
    check("switch, no parameter: refused, with the remedy", found.group(1), found.group(0))
    small = w.box(at)  # beside it
    g.wait_for("[ -e %s/resource4 ]" % device(PEERS[1]), HANG)
    pcitest(g, "switch, no parameter: a small device beside it", "far %s 4" % PEERS[1])
    presence = [re.search(r"SltSta:.*?PresDet([-+])",
                          g.must("lspci -vv -s 10001:02:0%d.0" % slot)).group(1)
                for slot in (0, 1)]
    check("switch, no parameter: presence was not raised", presence == ["-", "+"], presence)
    check("switch, no parameter: no device", g.run("[ -e %s ]" % device(PEERS[0]))[0] != 0)
    check("switch, no parameter: the remedy is right", found.group(1) == suite.LARGE_PARAMETER,
          found.group(0))
    return small


# ==== From device to device =======================================================================

PEERS = ("10001:03:00.0", "10001:04:00.0")  # below the switch
ACS_CONTROL, REDIRECT = "10001:02:00.0 ECAP_ACS+6.w", 4  # of the first one's port
COPIES, BYTES = 128, 4096


def counts(host):
    """TLPs that passed the host from one slot to the other, and bytes of all its channels."""
    before, end = len(host.errors()), time.monotonic() + HANG
    host.popen.send_signal(signal.SIGUSR1)
    while time.monotonic() < end:
        text = host.errors()[before:]
        tlps = re.findall(r"^ +peer_tlps +(\d+)\n", text, re.M)
        total = re.findall(r"^channel\n.*?^ +tx_bytes +(\d+)\n.*?^ +rx_bytes +(\d+)\n", text,
                           re.M | re.S)
        if len(tlps) == 2 and total:
            return sum(map(int, tlps)), sum(map(int, total[0]))
        time.sleep(0.01)
    raise guest.Stuck("no statistics of the host")


def copies(g, count):
    """Exit status and output: the first device copies in the second one's memory."""
    return g.run("pcitest peer %s %s %d" % (*PEERS, count), HANG)


def test_copies(g, host, way):
    """TLPs from slot to slot and bytes of the host's wire of each copy, both ways: without what its
    program does before the first one and after the last one."""
    spent = []
    copies(g, 1)
    for count in (1, 1 + COPIES):
        before = counts(host)
        status, output = copies(g, count)
        check("device to device, %s: %d copies" % (way, count), status == 0, output)
        spent.append([x - y for x, y in zip(counts(host), before)])
    found = [(x - y) / COPIES for x, y in zip(spent[1], spent[0])]
    figure("device to device, %s: a copy of %d bytes is %.2f TLPs from slot to slot and %.0f bytes "
           "of the host's wire" % (way, BYTES, *found))
    return found


def test_peers(w, g, host, boxes, places):
    """The guest has no IOMMU: its kernel leaves requests unredirected (ACS)."""
    found = {}
    for way, options in (("through the host", ()), ("from box to box", ("--p2p",))):
        for box in boxes:
            box.kill()
        for bdf in PEERS:
            g.wait_for("[ ! -e %s ]" % device(bdf), HANG)
        boxes = [w.box(at, *options) for at in places]
        for bdf in PEERS:
            g.wait_for("[ -e %s/resource2 ]" % device(bdf), HANG)
        for box in boxes if options else ():
            box.says("linked to slot", HANG)
        found[way] = test_copies(g, host, way)
    tlps, wire = found["through the host"]
    check("device to device: the host has all", tlps >= 2 and wire > 4 * BYTES, found)
    tlps, wire = found["from box to box"]
    check("device to device: the host has none of it", tlps == 0 and wire < BYTES, found)
    g.must("setpci -s %s=%d" % (ACS_CONTROL, REDIRECT))
    status, output = copies(g, 1)
    check("device to device: redirected by ACS, it does not get there",
          status != 0 and "FAILED copy 0" in output, status, output)
    g.must("setpci -s %s=0" % ACS_CONTROL)
    status, output = copies(g, 1)
    check("device to device: and again without", status == 0, output)


def run(w, places):
    root = w.host("root-ports", "root-ports", 4, ["%d=%s/1" % (n + 1, places[n]) for n in (0, 1)])
    switch = w.host("switch", "switch", 2, ["%d=%s/1" % (n - 1, places[n]) for n in (2, 3)],
                    "--p2p")
    # One processor: with two, the driver's interrupt handler can still be writing the status
    # register while the next test, on the other one, has begun and set it.
    g = guest.Guest(w.lab, "a", w.tools, w.initrd, root.socket, cpus=1,
                    extra=["-device", guest.adapter(switch.socket)])
    figure("boot to the first command %.1f s" % g.ready())
    w.box(places[0])
    test_driver(g, "10000:01:00.0")
    w.box(places[1], "--bar", LARGE)
    large_bar(g, "root-ports, no parameter: 4 GB", "10000:02:00.0")
    large = w.box(places[2], "--bar", LARGE)
    small = test_refused(w, g, switch, places[3])
    test_peers(w, g, switch, [large, small], places[2:])
    said = g.complaints()
    check("the guest's kernel has no complaint", not said, said)
    g.kill()
    for host in (root, switch):
        check("%s ends in order" % host.name, host.stop() == 0, host.errors()[-300:])


def main():
    with lab.Lab() as l:
        places = [lab.address() for _ in range(4)]
        try:
            w = World(l, places)
        except guest.Missing as why:
            print("skip net_guest_eptest %s" % why)
            return 0
        try:
            run(w, places)
        except (guest.Stuck, AssertionError, RuntimeError) as why:
            traceback.print_exc()
            check("net_guest_eptest to its end", False, why)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
