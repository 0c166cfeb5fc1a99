#!/usr/bin/env python3
"""One stock Linux guest is lent a device of each kind in turn: its drivers run on remote devices.

Its slots are those of KINDS; kind_NAME.py says what happens to each.  Prints `ok NAME`, `not ok
NAME` or `skip NAME` for each check and `# ...` lines with figures.  Skipped, loudly, where no QEMU
or guest can be had; the network adapters where no tap can: they need root and ip.

    tests/guest/net_guest_kinds.py [--keep FILE.png] [KIND...]   the display's last picture"""
# run.py: --timeout 1200
# SPDX-License-Identifier: MIT
import argparse
import os
import shutil
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import guest  # noqa: E402
import kind_disk  # noqa: E402
import kind_display  # noqa: E402
import kind_lost  # noqa: E402
import kind_network  # noqa: E402
import kind_process  # noqa: E402
import lab  # noqa: E402
import suite  # noqa: E402
from suite import check, figure  # noqa: E402

# In this order: a driver of the last one hangs for good.
KINDS = {"disk": kind_disk, "network": kind_network, "display": kind_display,
         "process": kind_process, "lost": kind_lost}
TAPPED = (kind_network, kind_lost)


class Machine:
    """The guest and its dxpu-host.  Boxes start when it is their turn."""

    def __init__(self, l, kinds, space, why):
        self.kinds, self.space = {}, space
        tools, modules, programs, places = guest.tools(), {}, [], []
        for name, kind in kinds.items():
            try:
                modules.update(suite.modules(tools, kind.MODULES) if kind.MODULES else {})
                if kind in TAPPED and not space:
                    raise guest.Missing(why)
                programs += [suite.program(l, program) for program in kind.PROGRAMS]
            except guest.Missing as missing:
                print("skip %s %s" % (name, missing))
                continue
            at = lab.address()
            relay = kind.LOSS and l.start("dxpu-relay", "--to", at, "--json", "--loss", kind.LOSS)
            places.append("%s/%d" % (relay.address() if relay else at, kind.BOX_SLOT))
            self.kinds[name] = world = kind.World(l, at, len(places))
            if kind is kind_process:
                world.start()  # this one is there when the guest boots
        self.host, self.guest = suite.machine(l, tools, places, modules, programs, cpus=2,
                                              append=guest.APART, options=suite.HOLD)

    def turns(self):
        for name, world in self.kinds.items():
            suite.prefix = name + "_"
            self.guest.complaints()  # the display's driver has some when its device is removed
            world.guest, world.host, world.space = self.guest, self.host, self.space
            try:
                for story in KINDS[name].STORIES:
                    story(world)
            except Exception as why:
                traceback.print_exc()
                check("to_its_end", False, why, self.guest.log()[-1000:],
                      self.host.errors()[-500:])
            finally:
                world.close()

    def end(self):
        suite.prefix = ""
        self.guest.kill()
        check("host_stops", self.host.stop() == 0, self.host.errors()[-500:])
        slots = [self.host.result()["slot_%d" % n] for n in range(1, len(self.kinds) + 1)]
        # without the keeper's numbers where that is too slow
        check("nothing_refused", not any(slot.get("values_refused") or slot.get("refused")
                                         for slot in slots), slots)


def in_turn(args, kinds, space, why):
    with lab.Lab() as l:
        try:
            m = Machine(l, kinds, space, why)
            figure("Linux %s" % m.guest.version)
            m.turns()
            m.end()
        except guest.Missing as missing:
            print("skip net_guest_kinds %s" % missing)
        if args.keep and os.path.exists(l.file(kind_display.SCREEN)):
            shutil.copy(l.file(kind_display.SCREEN), args.keep)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", help="copy the last picture there at the end")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=" ".join(KINDS))
    args = parser.parse_args()
    suite.known(args.kinds, KINDS)
    kinds = {name: KINDS[name] for name in KINDS if name in (args.kinds or KINDS)}
    space = why = None
    try:
        if set(TAPPED) & set(kinds.values()):
            space = kind_network.Space()
    except guest.Missing as missing:
        why = missing
    try:
        in_turn(args, kinds, space, why)
    finally:
        if space:
            space.close()
    for kind in kinds.values() if os.environ.get("DXPU_WHOLE") else ():
        getattr(kind, "more", lambda: None)()
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
