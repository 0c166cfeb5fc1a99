#!/usr/bin/env python3
"""Linux's pci_endpoint_test runs on remote devices; a BAR of 4 GB is hot-added.

One guest has two adapters, one with slots as root ports and one with the switch; a second guest
has the switch and the kernel parameter that dxpu-host printed.  Prints `ok NAME`, `not ok NAME` or
`skip NAME` for each check.  Skipped, loudly, where no QEMU, guest or kernel source can be had."""
# run.py: --timeout 600
# SPDX-License-Identifier: MIT
import os
import re
import socket
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "guest"), os.path.join(HERE, "..", "examples", "demo")]
import guest  # noqa: E402
import lab  # noqa: E402

HANG = 90  # seconds after which something hangs that takes a few under a software-emulated CPU
LARGE = "4G"
failed = 0


def check(name, truth, *shown):
    global failed
    failed += not truth
    words = " ".join(str(s) for s in shown).replace("\n", " | ")[-1500:]
    print(("ok " if truth else "not ok ") + name + ("" if truth or not words else "  # " + words))
    sys.stdout.flush()
    return truth


def figure(text):
    print("# " + text)
    sys.stdout.flush()


def free_ports(count):
    """Ports that nobody uses at the moment."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def adapter(path):
    return '{"driver":"vfio-user-pci","socket":{"path":"%s","type":"unix"}}' % path


def device(bdf):
    return "/sys/bus/pci/devices/" + bdf


class World:
    """The programs, and what all guests are started with."""

    def __init__(self, l):
        self.lab = l
        module = guest.ask(os.path.join(HERE, "guest", "module.sh"))[0]
        self.tools = guest.tools()
        program = l.file("pcitest")
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-static", "-o", program,
                        os.path.join(HERE, "guest", "pcitest.c")], check=True)
        self.initrd = guest.initramfs(l.file("initrd"), module, program)

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


def pcitest(g, name, command, seconds=HANG):
    """Run the guest's program; each of its lines is a test."""
    start = time.monotonic()
    status, output = g.run("pcitest " + command, seconds)
    lines = output.splitlines()
    bad = [line for line in lines if line.startswith("FAILED")]
    good = sum(line.startswith("ok ") for line in lines)
    check("%s: %d tests" % (name, good), status == 0 and not bad and good > 0,
          status, bad or lines[-5:])
    figure("%s: %.1f s" % (name, time.monotonic() - start))
    return lines


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


def test_large(g, name, bdf):
    """Hot-added, written and read from end to end."""
    took = g.wait_for("[ -e %s/resource4 ]" % device(bdf), HANG)
    figure("%s: there after %.1f s" % (name, took))
    lines = pcitest(g, name, "far %s 4" % bdf)
    check(name + ": its BAR has 4 GB", "bar 4 has %d bytes" % (4 << 30) in lines, lines[:3])


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
    return found.group(1)


def first_guest(w, places):
    root = w.host("root-ports", "root-ports", 4, "1=%s/1" % places[0], "2=%s/1" % places[1])
    switch = w.host("switch", "switch", 2, "1=%s/1" % places[2], "2=%s/1" % places[3])
    # One processor: with two, the driver's interrupt handler can still be writing the status
    # register while the next test, on the other one, has begun and set it.
    g = guest.Guest(w.lab, "first", w.tools, w.initrd, root.socket, cpus=1,
                    extra=["-device", adapter(switch.socket)])
    figure("boot to the first command %.1f s" % g.ready())
    w.box(places[0], 21)
    test_driver(g, "10000:01:00.0")
    w.box(places[1], 22, "--bar", LARGE)
    test_large(g, "root-ports, no parameter: 4 GB", "10000:02:00.0")
    large = w.box(places[2], 23, "--bar", LARGE)
    parameter = test_refused(w, g, switch, places[3])
    check("the first guest's kernel has no complaint", not g.complaints(), g.complaints())
    g.kill()
    large.kill()
    for host in (root, switch):
        check("%s ends in order" % host.name, host.stop() == 0, host.errors()[-300:])
    return parameter


def second_guest(w, places, parameter):
    switch = w.host("parameter", "switch", 2, "1=%s/1" % places[2])
    g = guest.Guest(w.lab, "second", w.tools, w.initrd, switch.socket, append=parameter)
    figure("boot with %s %.1f s" % (parameter, g.ready()))
    w.box(places[2], 23, "--bar", LARGE)
    test_large(g, "switch, %s: 4 GB" % parameter, "10000:03:00.0")
    check("the second guest's kernel has no complaint", not g.complaints(), g.complaints())
    check("nothing was refused", "refused" not in switch.errors(), switch.errors()[-500:])


def main():
    with lab.Lab() as l:
        try:
            w = World(l)
        except guest.Missing as why:
            print("skip net_guest_eptest %s" % why)
            return 0
        places = ["127.0.0.1:%d" % port for port in free_ports(4)]
        try:
            second_guest(w, places, first_guest(w, places))
        except (guest.Stuck, AssertionError, RuntimeError) as why:
            traceback.print_exc()
            check("net_guest_eptest to its end", False, why)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
