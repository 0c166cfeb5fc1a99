#!/usr/bin/env python3
"""Linux's pci_endpoint_test runs on remote devices; a BAR of 4 GB is hot-added.

The guest has two adapters, one with slots as root ports and one with the switch; below the switch
the large BAR is refused, with a remedy that net_guest_vga.py's guest is booted with.  Prints
`ok NAME`, `not ok NAME` or `skip NAME` for each check.  Skipped, loudly, where no QEMU, guest or
kernel source can be had."""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import os
import re
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import HANG, LARGE, check, device, figure, large_bar, pcitest  # noqa: E402


class World:
    """The programs, and what all guests are started with."""

    def __init__(self, l):
        self.lab = l
        module = guest.ask(os.path.join(HERE, "module.sh"))[0]
        self.tools = guest.tools()
        self.initrd = guest.initramfs(l.file("initrd"), module, suite.program(l, "pcitest"))

    def host(self, name, topology, slots, *attach):
        path = self.lab.file(name + ".sock")
        host = self.lab.start("dxpu-host", "--vfio-user", path, "--slots", slots, "--topology",
                              topology, "--attach", ",".join(attach), "--json")
        host.says("waiting for a guest")
        host.socket = path
        return host

    def box(self, at, node, *options):
        box = self.lab.start("dxpu-box", "--listen", at, "--device", "eptest", "--node", node,
                             "--json", *options)
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
    w.box(at, 24)  # a small one beside it
    g.wait_for("[ -e %s/resource4 ]" % device("10001:04:00.0"), HANG)
    pcitest(g, "switch, no parameter: a small device beside it", "far 10001:04:00.0 4")
    presence = [re.search(r"SltSta:.*?PresDet([-+])",
                          g.must("lspci -vv -s 10001:02:0%d.0" % slot)).group(1)
                for slot in (0, 1)]
    check("switch, no parameter: presence was not raised", presence == ["-", "+"], presence)
    check("switch, no parameter: no device", g.run("[ -e %s ]" % device("10001:03:00.0"))[0] != 0)
    check("switch, no parameter: the remedy is right", found.group(1) == suite.LARGE_PARAMETER,
          found.group(0))


def run(w, places):
    root = w.host("root-ports", "root-ports", 4, "1=%s/1" % places[0], "2=%s/1" % places[1])
    switch = w.host("switch", "switch", 2, "1=%s/1" % places[2], "2=%s/1" % places[3])
    # One processor: with two, the driver's interrupt handler can still be writing the status
    # register while the next test, on the other one, has begun and set it.
    g = guest.Guest(w.lab, "a", w.tools, w.initrd, root.socket, cpus=1,
                    extra=["-device", guest.adapter(switch.socket)])
    figure("boot to the first command %.1f s" % g.ready())
    w.box(places[0], 21)
    test_driver(g, "10000:01:00.0")
    w.box(places[1], 22, "--bar", LARGE)
    large_bar(g, "root-ports, no parameter: 4 GB", "10000:02:00.0")
    large = w.box(places[2], 23, "--bar", LARGE)
    test_refused(w, g, switch, places[3])
    check("the guest's kernel has no complaint", not g.complaints(), g.complaints())
    g.kill()
    large.kill()
    for host in (root, switch):
        check("%s ends in order" % host.name, host.stop() == 0, host.errors()[-300:])


def main():
    with lab.Lab() as l:
        try:
            w = World(l)
        except guest.Missing as why:
            print("skip net_guest_eptest %s" % why)
            return 0
        try:
            run(w, [lab.address() for _ in range(4)])
        except (guest.Stuck, AssertionError, RuntimeError) as why:
            traceback.print_exc()
            check("net_guest_eptest to its end", False, why)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
