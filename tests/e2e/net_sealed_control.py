#!/usr/bin/env python3
"""Who gets in where: control ports, the manager's port, and boxes whose slots a manager lends,
with wrong keys, stolen files, and somebody between the two ends who reads and alters.  Each refusal
stands beside the same by the right key.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402
from pool import Manager, until  # noqa: E402
import lab  # noqa: E402

V4 = "127.0.0.1:0"
GONE = 3  # exit status of the command: no connection
NOBODY = "it ends the handshake"


# ---- Programs ----

def new_key(l, name):
    """A key of no list; its public one."""
    return lab.keygen(l.file(name), name)


def write_peers(l, name, *lines):
    with open(l.file(name), "w") as f:
        f.writelines(line + "\n" for line in lines)
    return l.file(name)


def start_box(l, *args):
    box = l.start("dxpu-box", "--listen", V4, "--control", V4, "--memory", 4096, *args)
    box.control = box.says(r"control port (\S+:\d+)\n").group(1)
    return box


def start_host(l, *args):
    host = l.start("dxpu-host", "--vfio-user", l.file("vm%d" % len(l.processes)), "--listen", V4,
                   "--control", V4, *args)
    host.control = host.says(r"control port (\S+:\d+)\n").group(1)
    return host


def status(l, proxy, *keys):
    return l.run("dxpu", "status", "--json", proxy.control, *keys)


def refused(done, why=NOBODY):
    check(done.status == GONE and why in done.errors(), done.status, done.errors())


def of_manager(l, m, name):
    """Options of a proxy of this manager."""
    return ("--manager", m.listen, "--identity", l.file(name + ".id"), "--name", name) + (
        ("--state", l.file(name + ".state")) if name.startswith("box") else ())


def connected(m, name):
    return any(n["name"] == name and n["connected"] for n in m.get("/v1/nodes")["nodes"])


def node_of(m, name):
    return next(n for n in m.get("/v1/nodes")["nodes"] if n["name"] == name)


class Relay:
    """Passes the bytes of TCP connections on to an address, keeps them, and alters one of who
    connected, on demand."""

    def __init__(self, to):
        self.to, self.seen, self.alter, self.connections = to.rsplit(":", 1), b"", False, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                near = self.listener.accept()[0]
                far = socket.create_connection((self.to[0], int(self.to[1])), 10)
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    def carry(self, near, far):
        with near, far:
            while True:
                for side in select.select([near, far], [], [])[0]:
                    try:
                        data = side.recv(65536)
                        self.seen += data
                        if self.alter and data and side is near:
                            self.alter = False
                            data = data[:-1] + bytes((data[-1] ^ 1,))
                        (far if side is near else near).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.listener.close()


# ---- Control ports ----

@case
def control_port_knows_its_command():
    """S-72, S-74: of another key, none gets an answer."""
    with lab.Lab() as l:
        box = start_box(l)
        new_key(l, "stranger.key")
        right = "--peer", l.public("box")
        check(status(l, box).status == 0)  # the control
        refused(status(l, box, *right, "--key", l.file("stranger.key")))
        box.says(r"public key \S{44} is not authorized here.*may=control")
        refused(status(l, box, "--peer", l.public("manager"), "--key", l.file("command.key")))
        refused(status(l, box, "--plain"), "if it has keys")
        host, port = box.control.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 10) as by_hand:
            by_hand.sendall(b"DXCT" + bytes(12))
            try:
                check(by_hand.recv(100) == b"", "a plain greeting is answered")
            except ConnectionResetError:
                pass
        check(status(l, box).status == 0)
        ended = l.processes[0]
        check(ended.stop() == 0)


@case
def a_key_for_channels_is_refused_control():
    """S-91: what a line of --peers does not say, its key may not."""
    with lab.Lab() as l:
        box = start_box(l)
        check(status(l, box).status == 0)
        refused(status(l, box, "--key", l.file("host.key"), "--peer", l.public("box")))
        host = start_host(l)
        done = l.run("dxpu", "attach", "--wait", host.control, 1, box.address(), 1)
        check(done.status == 0, done.errors())  # the control: it may open channels


@case
def plain_and_sealed_do_not_meet():
    """S-71"""
    with lab.Lab() as l:
        plain = start_box(l, "--plain")
        check(status(l, plain).status == 0)  # the control
        l.public("command")
        refused(status(l, plain, "--key", l.file("command.key"), "--peer", l.public("box")))
        beyond = l.run("dxpu-box", "--plain", "--listen", V4, "--control", "0.0.0.0:0")
        check(beyond.status == 2 and "--plain-network" in beyond.errors(), beyond.errors())
        beyond = l.run("dxpu-host", "--plain", "--vfio-user", l.file("vm"), "--control", "*:0")
        check(beyond.status == 2 and "--plain-network" in beyond.errors(), beyond.errors())
        beyond = l.run("dxpu-box", "--plain", "--listen", V4, "--control", "nowhere")
        check(beyond.status == 3 and "--control" in beyond.errors(), beyond.errors())
        beyond = l.run("dxpu", "status", "--plain", "192.0.2.1:4459")
        check(beyond.status == 2 and "--plain-network" in beyond.errors(), beyond.errors())


@case
def a_key_that_is_taken_away_loses_its_control_connection():
    """S-96: while it waits for its answer."""
    with lab.Lab() as l:
        l.public("command")
        other = "%s may=control" % new_key(l, "other.key")
        mine = "%s may=control" % l.public("command")
        peers = write_peers(l, "list", "%s may=fabric" % l.public("box"), mine, other)
        host = start_host(l, "--key", l.file("host.key") if l.public("host") else "", "--peers",
                          peers)
        wait = [l.start("dxpu", "attach", "--wait", "--timeout", 60, "--key", l.file(name + ".key"),
                        "--peer", l.public("host"), host.control, slot, "127.0.0.1:9", slot)
                for name, slot in (("command", 1), ("other", 2))]
        until(lambda: len([s for s in status(l, host).result()["slots"]
                           if s["state"] == "dialing"]) == 2, "both wait")
        write_peers(l, "list", "%s may=fabric" % l.public("box"), other)
        host.popen.send_signal(signal.SIGHUP)
        check(wait[0].wait(20) == GONE, "it goes on", wait[0].errors())
        check(wait[1].popen.poll() is None, "the other one went, too")  # the control
        refused(status(l, host))
        check(status(l, host, "--key", l.file("other.key"), "--peer",
                     l.public("host")).status == 0)


@case
def the_command_says_what_is_missing():
    with lab.Lab() as l:
        l.public("command")
        box = start_box(l)
        nothing = dict(os.environ, XDG_CONFIG_HOME=l.folder)
        for name in ("DXPU_KEY", "DXPU_PEER"):
            nothing.pop(name, None)
        command = [os.path.join(lab.BIN, "dxpu"), "status", box.control]

        def run(*args, **environment):
            return subprocess.run(command + list(args), env=dict(nothing, **environment),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        done = run()
        check(done.returncode == 2 and "--peer KEY is required" in done.stderr, done.stderr)
        done = run("--peer", l.public("box"))
        check(done.returncode == 2 and "dxpu keygen" in done.stderr, done.stderr)
        done = run("--peer", "x", "--key", l.file("command.key"))
        check(done.returncode == 2 and "44 characters" in done.stderr, done.stderr)
        done = run("--peer", l.public("box"), "--key", l.file("none.key"))
        check(done.returncode == 2 and "none.key" in done.stderr, done.stderr)
        done = run("--plain", "--peer", l.public("box"))
        check(done.returncode == 2, done.stderr)
        given = dict(DXPU_PEER=l.public("box"), DXPU_KEY=l.file("command.key"))
        check(run(**given).returncode == 0)
        os.mkdir(l.file("dxpu"))
        shutil.copy(l.file("command.key"), l.file("dxpu/key"))
        check(run("--peer", l.public("box")).returncode == 0, "the usual key is not found")


class Crowd:
    """Connects from one address, as often as it can, and says nothing."""

    def __init__(self, to):
        host, port = to.rsplit(":", 1)
        self.to, self.ended, self.kept = (host, int(port)), False, []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ended:
            s = socket.socket()
            s.setblocking(False)
            s.bind(("127.0.0.2", 0))
            s.connect_ex(self.to)
            self.kept.append(s)
            if len(self.kept) > 300:
                self.kept.pop(0).close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.ended = True
        self.thread.join()
        for s in self.kept:
            s.close()


def is_served_beside_a_crowd():
    with lab.Lab() as l:
        box = start_box(l, "--json")
        check(status(l, box).status == 0)
        with Crowd(box.control):
            threading.Event().wait(4)  # until the crowd had all that it may have at once
            served = [status(l, box).status for _ in range(3)]
        check(box.stop() == 0)
        limited = box.result()["control"]["limited"]
        check(limited > 1000, limited)  # the control: it was one
        return served == [0, 0, 0]


@case
def a_crowd_from_one_address():
    """S-146: it does not keep others from a control port.  Of 256 groups of addresses theirs is
    one, at random for each start: once more, if that was this side's, too."""
    check(is_served_beside_a_crowd() or is_served_beside_a_crowd())


# ---- The manager's port ----

@case
def a_manager_with_another_key():
    """S-72: the proxy does not register, and says what to look at."""
    with lab.Lab() as l:
        m = Manager(l)
        new_key(l, "other.key")
        other = l.run("dxpu", "pubkey", l.file("other.key")).output().strip()
        wrong = start_box(l, *of_manager(l, m, "box1"), "--manager-key", other)
        wrong.says(NOBODY)
        wrong.says(r"--manager-key must be.*%s may=box" % re.escape(l.public("box")))
        start_box(l, *of_manager(l, m, "box2"))  # the control
        until(lambda: connected(m, "box2"), "the right key registers")
        check(not any(n["name"] == "box1" for n in m.get("/v1/nodes")["nodes"]))


@case
def a_manager_that_lost_its_key():
    """A new key for a store whose nodes know another: it says so, and once that they come."""
    with lab.Lab() as l:
        m = Manager(l)
        box = start_box(l, *of_manager(l, m, "box1"))
        until(lambda: connected(m, "box1"), "the box registers")

        def again():
            check(m.process.stop() == 0, m.process.errors())
            m.start()
            return m.process
        check("WARNING" not in again().errors(), m.process.errors())  # the control: the same key
        until(lambda: connected(m, "box1"), "the box is back")
        os.rename(l.file("manager.key"), l.file("kept.key"))
        again().says("this public key is new, and 1 node of the store knows another; was --key")
        m.process.says(r"expects another public key than this .*give it --manager-key \S{44}")
        box.says(NOBODY)
        os.remove(l.file("manager.key"))
        os.rename(l.file("kept.key"), l.file("manager.key"))
        again()
        until(lambda: connected(m, "box1"), "its key is back")
        check("another" not in m.process.errors(), m.process.errors())


@case
def s92_a_host_without_keys_gets_the_reason():
    """S-92, both ways: each end says it once, with a remedy, however often the proxy dials."""
    with lab.Lab() as l:
        m = Manager(l)
        plain = Manager(l, "--plain", store=l.file("plain.db"))
        wrong = start_box(l, *of_manager(l, m, "box1"), "--plain")
        wrong.says("requires keys, start this one with --key and --manager-key")
        m.process.says(r"connects without keys and is refused; "
                       r"start it with --key and --manager-key")
        sealed = start_box(l, *of_manager(l, plain, "box2"))
        sealed.says(NOBODY)
        plain.process.says("requires keys, and this program runs with --plain")
        start_box(l, *of_manager(l, m, "box3"))  # the control
        until(lambda: connected(m, "box3"), "who has keys registers")
        until(lambda: m_count(m, "plain") >= 3, "it dials again")
        said = m.process.errors()
        check(said.count("connects without keys") == 1, said)
        check(wrong.errors().count("dialing again") == 1, wrong.errors())
        said = plain.process.errors()
        check(said.count("requires keys, and") == 1, said)


def m_count(m, name):
    """What the manager has counted, by what SIGUSR1 prints."""
    m.process.popen.send_signal(signal.SIGUSR1)
    threading.Event().wait(0.2)
    found = re.findall(r"\b%s\W+(\d+)" % name, m.process.errors())
    return max(int(n) for n in found or ["0"])


@case
def a_proxy_that_is_on_no_list():
    """S-74, and M-81: a box's key registers no host."""
    with lab.Lab() as l:
        m = Manager(l)
        stranger = new_key(l, "stranger.key")
        box = start_box(l, *of_manager(l, m, "box1"), "--key", l.file("stranger.key"))
        box.says(NOBODY)
        m.process.says("public key %s is not authorized here" % re.escape(stranger))
        l.keys("dxpu-box")
        host = start_host(l, *of_manager(l, m, "host1"), "--key", l.file("box.key"))
        host.says(r"refuses: key \(.*may=host")
        until(lambda: m_count(m, "keys_refused") >= 3, "it dials again")
        check(host.errors().count("refuses: key") == 1, host.errors())
        start_box(l, *of_manager(l, m, "box2"))  # the controls
        start_host(l, *of_manager(l, m, "host2"))
        until(lambda: connected(m, "box2") and connected(m, "host2"), "who may registers")
        check(len(m.get("/v1/nodes")["nodes"]) == 2)


@case
def a_stolen_identity_file():
    """M-81: one identity has one key, until an operator lets it go."""
    with lab.Lab() as l:
        thief = new_key(l, "thief.key")
        l.keys("dxpu-manager")
        with open(l.file("manager.peers"), "a") as f:
            f.write(thief + " may=box\n")
        m = Manager(l)
        box = start_box(l, *of_manager(l, m, "box1"))
        until(lambda: connected(m, "box1"), "the box registers")
        mine = node_of(m, "box1")
        check(mine["key"] == l.public("box"), mine)
        check(m.ask("DELETE", "/v1/nodes/%d/key" % mine["node"])[0] == 409)  # it is connected
        check(box.stop() == 0)
        until(lambda: not connected(m, "box1"), "it is gone")
        copy = start_box(l, *of_manager(l, m, "box1"), "--key", l.file("thief.key"))
        copy.says(r"refuses: key \(.*dxpu rekey %d" % mine["node"])
        events = m.get("/v1/events?type=node.key")["events"]
        check(len(events) == 1 and thief in events[0]["text"], events)
        check(not connected(m, "box1"))
        copy.stop()
        box = start_box(l, *of_manager(l, m, "box1"))  # the control: its own key
        until(lambda: connected(m, "box1"), "the box is back")
        check(box.stop() == 0)
        m.process.stop()
        m.start()  # the key is kept
        copy = start_box(l, *of_manager(l, m, "box1"), "--key", l.file("thief.key"))
        copy.says("refuses: key")
        done = l.run("dxpu", "rekey", "box1", "--manager", "http://" + m.http)
        check(done.status == 0, done.errors())
        until(lambda: connected(m, "box1"), "the other key, once it is let go")
        check(node_of(m, "box1")["key"] == thief)


@case
def a_proxy_that_is_taken_off_the_list():
    """S-96: it loses its connection at once, and goes on as it is."""
    with lab.Lab() as l:
        m = Manager(l)
        box = start_box(l, *of_manager(l, m, "box1"))
        start_host(l, *of_manager(l, m, "host1"))
        until(lambda: connected(m, "box1") and connected(m, "host1"), "both register")
        write_peers(l, "manager.peers", "%s may=host" % l.public("host"))
        m.process.popen.send_signal(signal.SIGHUP)
        until(lambda: not connected(m, "box1"), "it is sent away")
        box.says(NOBODY)
        check(connected(m, "host1"))  # the control
        check(status(l, box).status == 0 and box.popen.poll() is None)


def called(l, m, key, name, identity=None):
    """A box with that key and name."""
    at = l.file(identity or key + "-" + name)
    return start_box(l, "--manager", m.listen, "--identity", at + ".id", "--state", at + ".state",
                     "--name", name, "--key", l.file(key + ".key"))


@case
def a_name_is_its_keys():
    """M-86: what a line gives to a key is that key's, and its only name; of others it is who had it
    first.  Each refusal stands beside the same under a name that is free."""
    with lab.Lab() as l:
        keys = {name: new_key(l, name + ".key") for name in ("listed", "first", "second")}
        may = ["%s may=box" % keys[name] for name in ("first", "second")]
        l.keys("dxpu-manager")
        write_peers(l, "manager.peers", "%s may=box name=shelf1" % keys["listed"], *may)
        m = Manager(l, "--audit", l.file("log"))
        called(l, m, "first", "shelf1").says(r"refuses: key \(the name 'shelf1'.*another --name")
        called(l, m, "first", "shelf1-2").says(r"refuses: key \(the name 'shelf1-2'")
        called(l, m, "listed", "shelf9").says(r"refuses: key \(.*name=shelf1; start it with --name "
                                              "shelf1")
        called(l, m, "listed", "shelf1")
        mine = called(l, m, "first", "shelf2")
        until(lambda: connected(m, "shelf1") and connected(m, "shelf2"), "names that may be")
        number = node_of(m, "shelf2")["node"]
        thief = called(l, m, "second", "shelf2")
        thief.says(r"refuses: key \(node %d, with another key.*name= in its line" % number)
        called(l, m, "second", "shelf3")
        until(lambda: connected(m, "shelf3"), "another name")
        check(len(m.get("/v1/nodes")["nodes"]) == 3)
        events = m.get("/v1/events?type=node.name")["events"]
        check(sorted(e["text"].split()[2] for e in events) == sorted(keys.values()), events)
        write_peers(l, "manager.peers", "%s may=box name=shelf1" % keys["listed"], may[0],
                    may[1] + " name=shelf2")
        m.process.popen.send_signal(signal.SIGHUP)
        until(lambda: node_of(m, "shelf2")["node"] != number and connected(m, "shelf2"),
              "the one that the list names has it")
        mine.says(r"refuses: key \(the name 'shelf2'")
        check(connected(m, "shelf1") and not connected(m, "shelf3"))
        check(not connected(m, str(number)))  # it is there, by its number
        check(m.proxies()["names_refused"] >= 5)
        with open(l.file("log")) as f:
            check(sum('"node.name"' in line for line in f) == 4)
        check(l.run("dxpu", "audit", l.file("log")).status == 0)


@case
def an_address_is_its_boxs():
    """M-87: a box that names where another key's box is reached is refused.  The control: the same
    box where it is itself."""
    with lab.Lab() as l:
        thief = new_key(l, "thief.key")
        l.keys("dxpu-manager")
        with open(l.file("manager.peers"), "a") as f:
            f.write(thief + " may=box\n")
        m = Manager(l, "--audit", l.file("log"))
        good = start_box(l, *of_manager(l, m, "box1"))
        until(lambda: connected(m, "box1"), "the box registers")

        def claims(*more):
            return l.start("dxpu-box", "--listen", V4, "--memory", 4096, "--key",
                           l.file("thief.key"), "--peer", l.public("host"), "--manager", m.listen,
                           "--manager-key", l.public("manager"), "--identity",
                           l.file("thief.id"), "--state", l.file("thief.state"), "--name",
                           "thief", *more)
        liar = claims("--advertise", good.address())
        liar.says(r"refuses: key \(node %d, a box with another key.*--advertise"
                  % node_of(m, "box1")["node"])
        events = m.get("/v1/events?type=node.path")["events"]
        check(len(events) == 1 and thief in events[0]["text"], events)
        check(connected(m, "box1"))
        check(not any(n["name"] == "thief" for n in m.get("/v1/nodes")["nodes"]))
        liar.stop()
        claims()
        until(lambda: connected(m, "thief"), "the control")
        check(m.proxies()["paths_refused"] >= 1)
        with open(l.file("log")) as f:
            check(sum('"node.path"' in line for line in f) == 1)


# ---- Leases ----

@case
def a_box_is_known_by_its_key():
    """M-32, M-88: an attachment to the address of a box by another key does not keep it from its
    slot.  The control: the box's own key, twice."""
    with lab.Lab() as l:
        box = start_box(l)
        host = start_host(l, "--slots", 3)

        def attach(slot, key, *more):
            return l.run("dxpu", "attach", "--timeout", 10, "--box-key", key, *more, host.control,
                         slot, box.address(), 1)
        check(attach(1, new_key(l, "other.key")).status == 0)
        done = attach(2, l.public("box"), "--wait")
        check(done.status == 0, done.errors())
        done = attach(3, l.public("box"))
        check(done.status == 1 and "another slot of this host" in done.errors(), done.errors())


@case
def a_host_dials_the_key_that_it_was_given():
    """M-85, M-83, M-31: not that of its list; and without keys it takes none."""
    with lab.Lab() as l:
        box = start_box(l)
        l.public("command")
        peers = write_peers(l, "other.peers", "%s may=control" % l.public("command"))
        host = start_host(l, "--key", l.file("host.key"), "--peers", peers)

        def attach(*more, at=host):
            return l.run("dxpu", "attach", "--wait", "--timeout", 2, *more, at.control, 1,
                         box.address(), 1)
        done = attach()
        check(done.status == 1 and "public key" in done.errors(), done.errors())
        done = attach("--box-key", l.public("manager"))
        check(done.status == 1 and "no channel" in done.errors(), done.errors())
        done = attach("--box-key", l.public("box"))
        check(done.status == 0, done.errors())  # the control
        check(attach("--box-key", l.public("box")).status == 0)
        done = attach("--box-key", l.public("manager"))
        check(done.status == 1 and "another device" in done.errors(), done.errors())
        check(attach("--box-key", "x").status == 2)
        plain = start_host(l, "--plain")
        done = attach("--box-key", l.public("box"), at=plain)
        check(done.status == 1 and "public key" in done.errors(), done.errors())


def lend(l, m, box, host):
    """A lease of the box's slot for the host's; its epoch, once both ends are up."""
    until(lambda: connected(m, box.name_) and connected(m, host.name_), "both register")
    code, lease = m.ask("POST", "/v1/leases", {"host": node_of(m, host.name_)["node"],
                                               "model": "memory", "tenant": "t"})
    check(code == 201, code, lease)
    return until(lambda: next((s["epoch"] for s in status(l, host).result()["slots"]
                               if s["state"] == "up"), 0), "the slot is up")


def of_lease(l, m):
    box, host = start_box(l, *of_manager(l, m, "box1"), "--hold-ms", 300), start_host(
        l, *of_manager(l, m, "host1"), "--hold-ms", 300)
    box.name_, host.name_ = "box1", "host1"
    return box, host, lend(l, m, box, host)


def claim(l, box, node, epoch, *keys):
    """Somebody who says to be that host, under that epoch."""
    return l.run("dxpu-host", "--box", box.address(), "--node", node, "--epoch", epoch, "--load",
                 "read", "--count", 1, "--give-up-ms", 3000, "--timeout-ms", 1000, "--peer",
                 l.public("box"), *keys)


@case
def a_stolen_binding():
    """M-84: the right slot, host and epoch, by another key; and that lease's key opens nothing
    else."""
    with lab.Lab() as l:
        m = Manager(l)
        box, host, epoch = of_lease(l, m)
        number = node_of(m, "host1")["node"]
        thief = new_key(l, "thief.key")
        with open(l.file("box.peers"), "a") as f:
            f.write(thief + " may=fabric\n")
        box.popen.send_signal(signal.SIGHUP)
        box.says("reloaded")
        done = claim(l, box, number, epoch, "--key", l.file("thief.key"))
        check(done.status == 4, "a stranger has the slot", done.errors())
        check(any(s["state"] == "up" for s in status(l, host).result()["slots"]))
        host.kill()
        done = claim(l, box, number, epoch, "--key", l.file("thief.key"))
        check(done.status == 4, "a stranger has the slot", done.errors())
        done = claim(l, box, number, epoch, "--key", l.file("host.key"))
        check(done.status == 0, done.errors())  # the control: the lease's key


@case
def the_key_of_a_lease_outlives_the_box():
    """M-57, M-83: without its manager the box knows whom to let in."""
    with lab.Lab() as l:
        m = Manager(l)
        box, host, epoch = of_lease(l, m)
        number, address = node_of(m, "host1")["node"], box.address()
        with open(l.file("box1.state")) as f:
            check(" key=" + l.public("host") in f.read())
        new_key(l, "thief.key")
        host.kill()
        box.kill()
        m.process.kill()
        box = l.start("dxpu-box", "--listen", address, "--memory", 4096,
                      *of_manager(l, m, "box1"))
        box.address()
        done = claim(l, box, number, epoch, "--key", l.file("thief.key"))
        check(done.status == 4, "a stranger has the slot", done.errors())
        done = claim(l, box, number, epoch, "--key", l.file("host.key"))
        check(done.status == 0, done.errors())
        box.kill()
        bad = open(l.file("box1.state")).read().replace(" key=", " key=?")
        with open(l.file("box1.state"), "w") as f:
            f.write(bad)
        done = l.run("dxpu-box", "--listen", V4, "--memory", 4096, *of_manager(l, m, "box1"))
        check(done.status == 5 and "line 1" in done.errors(), done.errors())


# ---- Between the two ----

@case
def a_reader_on_the_way_learns_nothing():
    """S-75: what is in the clear when there are no keys cannot be found."""
    with lab.Lab() as l:
        words = [b"DXCT", b"box1", b"dxpu-manager"]
        for keys in (True, False):
            more = () if keys else ("--plain",)
            m = Manager(l, *more, store=l.file("pool-%s.db" % keys))
            with Relay(m.listen) as relay:
                m.listen, there = relay.address, m.listen
                box = start_box(l, *of_manager(l, m, "box1"), *more)
                m.listen = there
                until(lambda: connected(m, "box1"), "it registers")
                found = [w for w in words if w in relay.seen]
                check(found == ([] if keys else words), keys, found)
                check(box.stop() == 0 and m.process.stop() == 0)
            os.unlink(l.file("box1.id"))


@case
def an_altered_byte_ends_the_connection():
    """S-77: nothing of it is heard, and the proxy dials again."""
    with lab.Lab() as l:
        m = Manager(l, "--heartbeat-ms", 100)
        with Relay(m.listen) as relay:
            m.listen, there = relay.address, m.listen
            start_box(l, *of_manager(l, m, "box1"))
            m.listen = there
            until(lambda: connected(m, "box1"), "it registers")
            check(relay.connections == 1)
            relay.alter = True
            until(lambda: relay.connections == 2, "the connection ends")
            until(lambda: connected(m, "box1"), "it is back")
            check(m.process.stop() == 0)
            ends = m.process.result()["proxies"]["streams_ended"]
            check(ends["forged"] == 1 and sum(ends.values()) == 1, ends)


if __name__ == "__main__":
    sys.exit(main())
