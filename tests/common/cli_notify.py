#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/san/%)
"""What the programs report to a service manager ($NOTIFY_SOCKET): READY=1 when all their sockets
answer, and never before; STOPPING=1 when they were asked to end."""
import os
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: F401  pylint: disable=unused-import
import cases
from cases import case, check

cases.sanitized()
from lab import Lab, address  # noqa: E402


class Manager:
    """The service manager's end."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0"))
        self.socket.settimeout(30)
        os.environ["NOTIFY_SOCKET"] = name

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        os.environ.pop("NOTIFY_SOCKET", None)
        self.socket.close()

    def hear(self):
        return self.socket.recv(4096).decode().split("\n")

    def rest(self):
        """All that has arrived."""
        self.socket.setblocking(False)
        lines = []
        try:
            while True:
                lines += self.hear()
        except BlockingIOError:
            return lines


def tcp(at):
    host, port = at.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5):
        return True


def taken(at, kind):
    """The port is bound: it cannot be had here."""
    with socket.socket(socket.AF_INET, kind) as mine:
        try:
            mine.bind((at.rsplit(":", 1)[0], int(at.rsplit(":", 1)[1])))
        except OSError:
            return True
    return False


def unix(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
        mine.connect(path)
        return True


def started(lab, name, manager_name, args, answers):
    """READY=1, all of `answers` at the first attempt, STOPPING=1, and status 0."""
    with Manager(manager_name) as manager:
        process = lab.start(name, *args)
        lines = manager.hear()
        found = [answer() for answer in answers]
        check(lines[0] == "READY=1" and lines[1].startswith("STATUS="), lines)
        check(all(found), found)
        check(process.popen.poll() is None, process.errors())
        process.popen.send_signal(signal.SIGTERM)
        check("STOPPING=1" in manager.hear())
        check(process.wait(20) == 0, process.errors())
        check("READY=1" not in manager.rest())


def box_args(lab, udp, control):
    return ["--listen", udp, "--control", control, "--slots", 2, "--state", lab.file("leases")]


@case
def ready_box():
    with Lab() as lab:
        udp, control = address(), address(socket.SOCK_STREAM)
        check(not taken(udp, socket.SOCK_DGRAM))  # the control of what is asked below
        for name in (lab.file("notify"), "@dxpu-test-%d" % os.getpid()):
            started(lab, "dxpu-box", name, box_args(lab, udp, control),
                    [lambda: taken(udp, socket.SOCK_DGRAM), lambda: tcp(control)])


@case
def ready_manager():
    with Lab() as lab:
        proxies, users = address(socket.SOCK_STREAM), address(socket.SOCK_STREAM)
        started(lab, "dxpu-manager", lab.file("notify"),
                ["--listen", proxies, "--http", users, "--store", lab.file("db")],
                [lambda: tcp(proxies), lambda: tcp(users)])


def host_args(lab, listen, control):
    return ["--vfio-user", lab.file("a") + "," + lab.file("b"), "--slots", 2, "--listen", listen,
            "--control", control]


@case
def ready_host():
    with Lab() as lab:
        listen, control = address(count=2), address(socket.SOCK_STREAM, 2)
        started(lab, "dxpu-host", lab.file("notify"), host_args(lab, listen, control),
                [lambda: unix(lab.file("a")), lambda: unix(lab.file("b")), lambda: tcp(control)])


@case
def ready_host_load():
    with Lab() as lab:
        udp = address()
        box = lab.start("dxpu-box", "--listen", udp)
        box.address()
        with Manager(lab.file("notify")) as manager:
            host = lab.run("dxpu-host", "--box", udp, "--load", "read", "--count", 10,
                           "--peer", lab.public("box"), "--key", lab.file("host.key"))
            check(host.status == 0, host.errors())
            check(manager.hear()[0] == "READY=1")


def refused(lab, name, *args):
    """It ends with a message, and was never ready."""
    with Manager(lab.file("notify")) as manager:
        process = lab.run(name, *args, seconds=30)
        check(process.status not in (0, None), process.status, process.errors())
        check("READY=1" not in manager.rest(), process.errors())
    os.unlink(lab.file("notify"))


class Held:
    """A port that another process has."""

    def __init__(self, kind):
        self.socket = socket.socket(socket.AF_INET, kind)
        self.socket.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            self.socket.listen()
        self.at = "127.0.0.1:%d" % self.socket.getsockname()[1]

    def __enter__(self):
        return self.at

    def __exit__(self, *unused):
        self.socket.close()


@case
def not_ready_box():
    with Lab() as lab:
        udp, control = address(), address(socket.SOCK_STREAM)
        with Held(socket.SOCK_DGRAM) as held:
            refused(lab, "dxpu-box", *box_args(lab, held, control))
        with Held(socket.SOCK_STREAM) as held:
            refused(lab, "dxpu-box", *box_args(lab, udp, held))
        for wrong in (["--record", "/nowhere/a"], ["--device", "nvme", "--file", "/nowhere/b"],
                      ["--state", lab.folder]):
            refused(lab, "dxpu-box", *box_args(lab, udp, control), *wrong)


@case
def not_ready_manager():
    with Lab() as lab:
        free = address(socket.SOCK_STREAM)
        damaged = lab.file("damaged")
        with open(damaged, "wb") as file:
            file.write(b"no store\n" * 1000)
        with Held(socket.SOCK_STREAM) as held:
            refused(lab, "dxpu-manager", "--listen", held, "--http", free, "--store",
                    lab.file("db"))
            refused(lab, "dxpu-manager", "--listen", free, "--http", held, "--store",
                    lab.file("db"))
        refused(lab, "dxpu-manager", "--listen", free, "--http", "127.0.0.1:0", "--store", damaged)


@case
def not_ready_host():
    with Lab() as lab:
        listen, control = address(count=2), address(socket.SOCK_STREAM, 2)
        args = host_args(lab, listen, control)
        for n in (1, 0):  # either guest's socket cannot be made, the other one's can
            both = ["/nowhere/vm", lab.file("a")]
            refused(lab, "dxpu-host", "--vfio-user", ",".join(both[::-1] if n else both), *args[2:])
        with Held(socket.SOCK_STREAM) as held:
            refused(lab, "dxpu-host", *args[:-1], held)
        with Held(socket.SOCK_DGRAM) as held:
            refused(lab, "dxpu-host", *args[:4], "--listen", held, *args[6:])


@case
def without_a_service_manager():
    """Nothing changes without the variable, or where it names no socket."""
    with Lab() as lab:
        for name in ("", "/nowhere/notify", "notify", "@", "/" + "x" * 200):
            os.environ["NOTIFY_SOCKET"] = name
            box = lab.start("dxpu-box", "--listen", "127.0.0.1:0")
            box.address()
            check(("NOTIFY_SOCKET" in box.errors()) == bool(name), name, box.errors())
            check(box.stop() == 0, box.errors())
        del os.environ["NOTIFY_SOCKET"]


@case
def gone_service_manager():
    """One that ends while the program runs does not end it."""
    with Lab() as lab:
        with Manager(lab.file("notify")) as manager:
            box = lab.start("dxpu-box", "--listen", "127.0.0.1:0")
            check(manager.hear()[0] == "READY=1")
        check(box.stop() == 0, box.errors())


@case
def children_hold_no_socket():
    """The processes that face a guest and the fabric have no way to the service manager."""
    with Lab() as lab:
        listen, control = address(count=2), address(socket.SOCK_STREAM, 2)
        with Manager(lab.file("notify")) as manager:
            host = lab.start("dxpu-host", *host_args(lab, listen, control))
            check(manager.hear()[0] == "READY=1")
            mine = own_unix(host.popen.pid)
            children = host.children()
            check(len(children) == 3, children)
            for _, pid in children:
                check(not mine & own_unix(pid), pid)
            check(mine, "the parent's is not seen")
            check(host.stop() == 0, host.errors())


def own_unix(pid):
    """Inodes of its datagram sockets."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
        datagram = {line.split()[6] for line in file.readlines()[1:] if line.split()[4] == "0002"}
    held = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            name = os.readlink("/proc/%d/fd/%s" % (pid, fd))
        except OSError:
            continue
        if name.startswith("socket:[") and name[8:-1] in datagram:
            held.add(name)
    return held


if __name__ == "__main__":
    sys.exit(cases.main())
