#!/usr/bin/env python3
"""dxpu-host --qmp: functions are plugged into a virtual machine, and out of it.

The virtual machine is a QMP server in this process, whose device_add connects vfio_client.py to the
function as QEMU does.  Prints `ok NAME` or `not ok NAME` for each case.  Programs come from
$DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import json
import os
import signal
import socket
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
import lab  # noqa: E402
import vfio_client  # noqa: E402
from vfio_client import CONFIG  # noqa: E402

ID = 0xb500104c  # of the endpoint test function
ONES = 0xffffffff


class Machine:
    """What of QEMU is needed: lets go of a device when `lets_go`, at once."""

    def __init__(self, path):
        self.commands, self.functions, self.lets_go = [], {}, True
        self.stream, self.path, self.migration = None, path, "none"
        self.listen()

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def serve(self, listener):
        self.stream = listener.accept()[0]
        self.say({"QMP": {"version": {"qemu": {"major": 11, "minor": 1, "micro": 3}},
                          "capabilities": []}})
        for line in self.stream.makefile("r"):
            message = json.loads(line)
            self.say({**self.answer(message), "id": message["id"]})
            if message["execute"] == "device_del" and self.lets_go:
                self.remove(message["arguments"]["id"])

    def say(self, message):
        self.stream.sendall(json.dumps(message).encode() + b"\r\n")

    def answer(self, message):
        try:
            return {"return": self.do(message["execute"], message.get("arguments", {}))}
        except (OSError, AssertionError) as why:  # dxpu-host closed the connection: it asks again
            return {"error": {"class": "GenericError", "desc": str(why)}}

    def do(self, name, arguments):
        self.commands.append((name, arguments))
        if name == "device_add":
            self.functions[arguments["id"]] = vfio_client.Client(arguments["socket"]["path"])
        return ([{"name": n} for n in self.functions] if name == "qom-list" else
                {"status": "running"} if name == "query-status" else
                {"status": self.migration} if name == "query-migrate" else {})

    def remove(self, name):
        self.functions.pop(name).close()
        self.say({"event": "DEVICE_DELETED", "data": {"device": name, "path": "/x"}})

    def listen_again(self):
        self.listener.close()
        os.unlink(self.path)
        self.listen()

    def end(self):
        self.listener.close()
        os.unlink(self.path)
        if self.stream:
            self.stream.shutdown(socket.SHUT_RDWR)

    def count(self, name):
        return sum(command == name for command, _ in self.commands)

    def function(self, name="dxpu-rp1"):
        until(lambda: name in self.functions, "it is plugged in")
        return self.functions[name]


class World:
    def __init__(self, l, *options):
        self.lab, self.at, self.qmp = l, lab.address(), l.file("qmp")
        self.machine = Machine(self.qmp)
        self.start_box()
        self.path = l.file("vm")
        self.start_host(*options)

    def start_host(self, *options):
        self.host = self.lab.start("dxpu-host", "--vfio-user", self.path, "--direct", "--slots", 2,
                                   "--attach", "1=%s/1" % self.at, "--qmp", self.qmp, "--control",
                                   "127.0.0.1:0", "--json", *options)
        self.control = self.host.says(r"control port (\S+:\d+)\n").group(1)

    def start_box(self):
        self.box = self.lab.start("dxpu-box", "--listen", self.at, "--device", "eptest", "--json")
        self.box.address()

    def dxpu(self, *words):
        done = self.lab.run("dxpu", *words)
        check(done.status == 0, words, done.errors())
        return done

    def slot(self):
        return json.loads(self.dxpu("status", "--json", self.control).output())["slots"][0]

    def detach(self):
        self.dxpu("detach", "--wait", self.control, 1)


@case
def v47_device_is_plugged_in_and_out():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        check(m.function().read32(CONFIG, 0) == ID)
        add = next(a for name, a in m.commands if name == "device_add")
        check(add["bus"] == "rp1" and add["socket"]["path"] == w.path + ".1", add)
        w.detach()
        check(m.count("device_del") == 1 and not m.functions, m.commands)
        w.dxpu("attach", "--wait", w.control, 1, w.at, 1)
        check(m.function().read32(CONFIG, 0) == ID)
        check(w.host.stop() == 0, w.host.errors())


@case
def v47_device_stays_until_the_guest_lets_go():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        m.lets_go = False
        f = m.function()
        w.dxpu("detach", w.control, 1)
        until(lambda: m.count("device_del"), "the guest is asked")
        check(f.read32(CONFIG, 0) == ID, "its driver still works with it")
        m.remove("dxpu-rp1")
        w.host.says("unplugged")
        until(lambda: w.slot()["state"] == "empty", "it is detached")


@case
def v47_lost_device_is_unplugged_and_returns():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        m.function()
        w.box.kill()
        until(lambda: m.count("device_del"), "it is unplugged")
        until(lambda: not m.functions, "it is gone")
        w.start_box()
        check(m.function().read32(CONFIG, 0) == ID)


@case
def v47_what_others_remove_stays_out():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        m.function()
        w.host.says("plugged in")
        m.remove("dxpu-rp1")
        w.host.says("removed from the virtual machine by others")
        again = vfio_client.Client(w.path + ".1")
        check(again.read32(CONFIG, 0) == ID, "it is set up again")
        again.close()
        w.detach()
        check(m.count("device_add") == 1 and m.count("device_del") == 0, m.commands)
        w.dxpu("attach", "--wait", w.control, 1, w.at, 1)
        check(m.function().read32(CONFIG, 0) == ID)


@case
def v47_the_machine_may_start_later_and_again():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        m.function()
        m.end()
        m.functions.pop("dxpu-rp1").close()
        m.listen()
        check(m.function().read32(CONFIG, 0) == ID)
        check(m.count("device_add") == 2 and m.count("device_del") == 0, m.commands)


@case
def each_of_several_machines_has_its_own():
    """The first one is plugged by others."""
    with lab.Lab() as l:
        at, m = lab.address(), Machine(l.file("qmp"))
        l.start("dxpu-box", "--listen", at, "--device", "eptest", "--json").address()
        paths = l.file("a"), l.file("b")
        host = l.start("dxpu-host", "--vfio-user", ",".join(paths), "--direct", "--slots", 2,
                       "--attach", ";2=%s/1" % at, "--qmp", ";%s,bus=port%%u" % m.path, "--json")
        check(m.function("dxpu-port2").read32(CONFIG, 0) == ID)
        add = next(a for name, a in m.commands if name == "device_add")
        check(add["bus"] == "port2" and add["socket"]["path"] == paths[1] + ".2", add)
        check([name for name, _ in host.children()].count("dxpu-plugger") == 1)
        check(host.stop() == 0, host.errors())
        for wrong in ("q;q;q", "q,bus=rp", ",x"):
            done = l.run("dxpu-host", "--vfio-user", ",".join(paths), "--direct", "--qmp", wrong)
            check(done.status == 2 and "--qmp" in done.errors(), done.errors())
        done = l.run("dxpu-host", "--vfio-user", paths[0], "--qmp", "q")
        check(done.status == 2 and "--direct" in done.errors(), done.errors())


@case
def path_that_qemu_cannot_connect_to_is_refused():
    """Relative: the socket can be made, but QEMU needs the whole path."""
    before = os.getcwd()
    with lab.Lab() as l:
        deep = l.file("d" * 120)
        os.mkdir(deep)
        try:
            os.chdir(deep)
            done = l.run("dxpu-host", "--vfio-user", "vm", "--direct", "--qmp", l.file("qmp"))
        finally:
            os.chdir(before)
        check(done.status == 2 and "too long" in done.errors(), done.status, done.errors())


@case
def v48_process_that_speaks_qmp_starts_again():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        f = m.function()
        m.listen_again()
        pid = next(pid for name, pid in w.host.children() if name == "dxpu-plugger")
        os.kill(pid, signal.SIGKILL)
        w.host.says("the process that speaks QMP")
        until(lambda: m.count("qom-list") == 2, "the next one asks", 15)
        check(f.read32(CONFIG, 0) == ID and m.count("device_add") == 1, "nothing has changed")
        w.detach()
        check(m.count("device_del") == 1, m.commands)
        check(w.host.stop() == 0, w.host.errors())


@case
def v48_function_with_msix_is_never_unplugged():
    with lab.Lab() as l:
        w = World(l, "--interrupts", "msix")
        m = w.machine
        f = m.function("dxpu-rp1x")
        w.detach()
        w.host.says("stays in the virtual machine")
        check(m.count("device_del") == 0 and f.read32(CONFIG, 0) == ONES, m.commands)


@case
def v48_function_with_msix_outlives_dxpu_host():
    with lab.Lab() as l:
        w = World(l, "--interrupts", "msix")
        m = w.machine
        m.function("dxpu-rp1x")
        m.listen_again()
        check(w.host.stop() == 0, w.host.errors())
        w.start_host("--interrupts", "msi")
        w.host.says("stays in the virtual machine")
        check(m.count("device_del") == 0 and m.count("device_add") == 1, m.commands)
        m.remove("dxpu-rp1x")  # by the machine's own means
        w.detach()
        w.dxpu("attach", "--wait", w.control, 1, w.at, 1)
        check(m.function("dxpu-rp1").read32(CONFIG, 0) == ID)


@case
def v48_migration_is_cancelled():
    with lab.Lab() as l:
        m = World(l).machine
        m.function()
        until(lambda: m.count("query-migrate"), "it is ready")
        m.say({"event": "MIGRATION", "data": {"status": "setup"}})
        until(lambda: m.count("migrate_cancel"), "it is cancelled")


@case
def v48_migration_under_way_is_cancelled():
    with lab.Lab() as l:
        w = World(l)
        m = w.machine
        m.function()
        w.host.says("plugged in")
        m.migration = "active"
        m.listen_again()
        m.stream.shutdown(socket.SHUT_RDWR)  # that of QMP alone
        until(lambda: m.count("migrate_cancel"), "it is cancelled")


if __name__ == "__main__":
    sys.exit(main())
