#!/usr/bin/env python3
"""Three dxpu-manager over three members of etcd, with a real box and host: the leader is killed,
frozen, cut off from etcd, and another one takes its place, with all leases; proxies and the command
find it in their lists.

Prints `ok NAME` or `skip NAME REASON`, and how long each take-over took.  Programs come from
$DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
from etcd import Cluster, Relay, coded, why_not  # noqa: E402
import lab  # noqa: E402

ANY = "127.0.0.1:0"


class Managers:
    """Three standbys, of which one leads."""

    def __init__(self, l, etcd):
        self.lab = l
        self.relays = [Relay(port) for port in etcd.clients]  # of each manager to a member
        self.listen = [lab.address(socket.SOCK_STREAM) for _ in range(3)]
        self.http = [lab.address(socket.SOCK_STREAM) for _ in range(3)]
        self.ports = [Relay(int(at.rsplit(":", 1)[1])) for at in self.listen]  # for proxies
        self.process = [None] * 3
        for i in range(3):
            self.start(i)

    def start(self, i, *more):
        self.process[i] = self.lab.start(
            "dxpu-manager", "--standby", "--store",
            "etcd://127.0.0.1:%d/pool" % self.relays[i].port, "--listen", self.listen[i], "--http",
            self.http[i], "--audit", self.lab.file("audit%d" % i), *more)

    def leader(self):
        """Its index, once a manager serves users."""
        def found():
            serving = [i for i in range(3) if self.process[i].popen.poll() is None
                       and "users at" in self.process[i].errors()
                       and not getattr(self.process[i], "frozen", False)]
            return [i for i in serving if Cluster.listens(int(self.http[i].rsplit(":", 1)[1]))]
        return until(found, "a leader")[-1]


def dxpu(m, *args):
    """The command, with all three addresses."""
    return m.lab.run("dxpu", *args, "--json", "--manager", ",".join(m.http), "--retry", "20")


def pool(l, m):
    """A box and a host that register with whoever leads; the host's control port."""
    managers = ",".join("127.0.0.1:%d" % port.port for port in m.ports)
    l.start("dxpu-box", "--manager", managers, "--identity", l.file("box.id"), "--state",
            l.file("box.state"), "--listen", ANY, "--control", ANY, "--device", "memory",
            "--slots", 8, "--name", "box")
    host = l.start("dxpu-host", "--manager", managers, "--identity", l.file("host.id"), "--listen",
                   ANY, "--control", ANY, "--slots", 8, "--name", "host", "--vfio-user",
                   l.file("vm"))
    return host.says(r"control port (\S+:\d+)\n").group(1)


def ports(l, control):
    done = l.run("dxpu", "status", "--json", control)
    check(done.status == 0, done.errors())
    return [(s["slot"], s["epoch"]) for s in done.result()["slots"] if s["state"] == "up"]


def lend(m, key):
    """A lease that is up: its number."""
    def made():
        done = dxpu(m, "lease", "create", "--host", "host", "--model", "memory", "--key", key,
                    "--wait")
        return done.result().get("lease") if done.status == 0 else None
    return until(made, "lease " + key, 40)


def leases(m):
    done = dxpu(m, "list", "leases")
    check(done.status == 0, done.errors())
    return sorted(one["lease"] for one in done.result()["leases"])


def take_over(l, m, control, made, how):
    """Something befalls the leader, by its index: the leases stay, devices run on, and there are
    new ones."""
    up = ports(l, control)
    check(len(up) == len(made), up, made)
    old = m.leader()
    began = time.monotonic()
    how(old)
    made.append(lend(m, "k%d" % len(made)))
    print("# a new lease after %.1f s" % (time.monotonic() - began))
    check(leases(m) == sorted(made), leases(m), made)
    check(ports(l, control)[:len(up)] == up, up, ports(l, control))  # the same epochs
    new = m.leader()
    check(new != old, "another one leads")
    return old


class Unredirected(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def ask(http, path, method="GET"):
    """Status, fields and JSON of an answer."""
    body = b"{}" if method == "POST" else None
    request = urllib.request.Request("http://" + http + path, body, method=method,
                                     headers={"Content-Type": "application/json"})
    try:
        answer = urllib.request.build_opener(Unredirected).open(request, timeout=5)
    except urllib.error.HTTPError as refused:
        answer = refused
    with answer:
        return answer.status, answer.headers, json.loads(answer.read())


def standbys_answer(l, m, made):
    """M-146: reads, of a revision that grows; the rest is the leader's."""
    leader = m.leader()
    one = (leader + 1) % 3
    http = m.http[one]
    until(lambda: Cluster.listens(int(http.rsplit(":", 1)[1])), "the standby's port")

    def seen():
        status, fields, body = ask(http, "/v1/leases")
        check(status == 200 and int(fields["Dxpu-Revision"]) > 0, status, fields)
        return int(fields["Dxpu-Revision"]), [one["lease"] for one in body["leases"]]
    until(lambda: seen()[1] == made, "the lease")
    before = seen()[0]
    check(ask(m.http[leader], "/v1/leases")[1]["Dxpu-Revision"] is None)
    check(ask(http, "/v1/health")[2]["role"] == "standby")
    check(ask(m.http[leader], "/v1/health")[2]["role"] == "leader")
    node = ask(http, "/v1/nodes")[2]["nodes"][0]
    check(not [node[key] for key in ("connected", "since", "suspect", "unreached_by")
               if node[key] is not None], node)
    slot = ask(http, "/v1/slots?state=leased")[2]["slots"][0]
    check(slot["health"] is None and slot["box_state"] is None, slot)
    one = ask(http, "/v1/leases")[2]["leases"][0]
    check(one["state"] is None and one["slots"][0]["state"] is None, one)
    counts = ask(http, "/v1/pool")[2]["leases"]
    check(counts["total"] == 1 and counts["active"] is None and counts["parked"] == 0, counts)
    for method, path in (("POST", "/v1/leases?wait=5"), ("DELETE", "/v1/leases/" + made[0]),
                         ("GET", "/v1/snapshot"), ("GET", "/metrics"), ("GET", "/v1/events"),
                         ("GET", "/v1/leases?state=degraded")):
        status, fields, body = ask(http, path, method)
        check(status == 503 and body["type"] == "/problems/leader", method, path, status, body)
        check("ask the leader, %s." % socket.gethostname()[:20] in body["detail"], body)
        check("(http://%s)" % m.http[m.leader()] in body["detail"], body)
        check(fields["Location"] is None, fields)
    check(leases(m) == made)  # nothing was done
    alone = l.run("dxpu", "lease", "release", made[0], "--yes", "--manager", http, "--retry", 0)
    check(alone.status == 1 and "is a standby" in alone.errors(), alone.errors())
    made.append(lend(m, "seen"))  # the list of all has the leader
    until(lambda: sorted(seen()[1]) == sorted(made), "the new lease")
    check(seen()[0] > before)


@case
def lists_of_managers():
    with lab.Lab() as l:
        more = ("--identity", l.file("id"), "--manager-key", l.public("manager"), "--state",
                l.file("state"), "--device", "memory")
        for managers in ("127.0.0.1,,127.0.0.2", "127.0.0.1:1,127.0.0.1:x", "127.0.0.1,",
                         ",".join(["127.0.0.1"] * 10)):
            box = l.run("dxpu-box", "--manager", managers, *more)
            check(box.status == 2 and "--manager" in box.errors(), managers, box.errors())
        for managers, left in (("no.invalid,127.0.0.1:1", True), ("127.0.0.1:1,no.invalid:9", True),
                               ("no.invalid,not.invalid", False)):
            box = l.start("dxpu-box", "--manager", managers, *more, "--listen", ANY, "--control",
                          ANY)
            if left:  # it dials the other one
                box.says("--manager no.invalid.*: .*no such host.*left out")
                box.says("manager 127.0.0.1:1: .*dialing again")
                check(box.stop() == 0, managers, box.errors())
            else:
                check(box.wait(20) == 3 and "no such host" in box.errors(), box.errors())
        http = lab.address(socket.SOCK_STREAM)
        l.start("dxpu-manager", "--listen", ANY, "--http", http, "--store", l.file("db")).says(
            "users at")
        for managers, status in (("127.0.0.1:1," + http, 0), (http + ",127.0.0.1:1", 0),
                                 ("127.0.0.1:1,127.0.0.1:2", 3)):
            done = l.run("dxpu", "pool", "--manager", managers, "--retry", "0")
            check(bool(done.status) == bool(status), managers, done.status, done.errors())


def pages(http, query):
    """All slots of a list, and how many answers they took."""
    slots, after, answers = [], "", 0
    while after is not None:
        body = ask(http, "/v1/slots?limit=500" + query + ("&after=" + after if after else ""))[2]
        slots += [one["slot"] for one in body["slots"]]
        after, answers = body["next"], answers + 1
    return slots, answers


@case
def a_box_of_1024_slots():
    """It registers, also after a restart of either, is listed by pages, and lends its last slot."""
    with lab.Lab() as l:
        listen, http = (lab.address(socket.SOCK_STREAM) for _ in range(2))
        names = (("box", "dxpu-box", 1024, ("--device", "memory", "--state", l.file("state"))),
                 ("host", "dxpu-host", 16, ("--vfio-user", l.file("vm"))))

        def start_manager():
            m = l.start("dxpu-manager", "--store", l.file("db"), "--listen", listen, "--http", http)
            m.says("users at")
            return m

        def start_proxy(name, program, slots, more):
            return l.start(program, "--manager", listen, "--identity",
                           l.file(name + ".id"), "--listen", ANY, "--control", ANY, "--slots",
                           slots, "--name", name, *more)

        def connected():
            return sum(bool(n["connected"]) for n in ask(http, "/v1/nodes")[2]["nodes"]) == 2
        manager = start_manager()
        box, _ = (start_proxy(*one) for one in names)
        until(connected, "both")
        slots, answers = pages(http, "&state=free")
        check(len(set(slots)) == 1024 and answers == 3, len(slots), answers)
        for _ in range(4):
            done = l.run("dxpu", "lease", "create", "--manager", http, "--host", "host", "--model",
                         "memory", "--count", 4, "--need", "same-box", "--wait", "--retry", 10)
            check(done.status == 0, done.errors())
        lent = pages(http, "&state=leased")[0]
        check(len(lent) == 16 and len(pages(http, "&state=free")[0]) == 1008, lent)
        check(manager.stop() == 0, manager.errors())
        manager = start_manager()
        until(connected, "both again")
        check(box.stop() == 0, box.errors())
        start_proxy(*names[0])
        until(lambda: all(one["state"] == "active" for one in ask(http, "/v1/leases")[2]["leases"]),
              "all leases again")
        check(pages(http, "&state=leased")[0] == lent)


@case
def a_shipped_store_takes_the_place_of_one_in_sqlite():
    """What was shipped is there; what was not is in doubt, and adopted."""
    with lab.Lab() as l:
        listen, http = ([lab.address(socket.SOCK_STREAM) for _ in range(2)] for _ in range(2))

        def start_manager(i):
            m = l.start("dxpu-manager", "--store", l.file("db%d" % i), "--listen", listen[i],
                        "--http", http[i])
            m.says("users at")
            return m

        def run(*args):
            done = l.run("dxpu", *args, "--json", "--manager", ",".join(http), "--retry", "20")
            check(done.status == 0, args, done.errors())
            return done.result()

        def lent():
            return {one["lease"]: (one["state"], [s["epoch"] for s in one["slots"]])
                    for one in run("list", "leases")["leases"]}

        def create():
            return run("lease", "create", "--host", "host", "--model", "memory", "--wait")["lease"]
        first = start_manager(0)
        for name, more in (("box", ("--device", "memory", "--state", l.file("state"))),
                           ("host", ("--vfio-user", l.file("vm")))):
            l.start("dxpu-" + name, "--manager", ",".join(listen), "--identity", l.file(name),
                    "--listen", ANY, "--control", ANY, "--slots", 4, "--name", name, *more)
        until(lambda: len(ask(http[0], "/v1/nodes")[2]["nodes"]) == 2, "both")
        shipped = create()
        ship = l.start("dxpu", "backup", l.file("shipped"), "--every", 1, "--manager", http[0])
        until(lambda: ship.output().count("bytes") > 1, "two copies")
        with open(l.file("shipped"), encoding="utf-8") as file:
            check("lease/" + shipped in file.read())
        ship.signal(signal.SIGSTOP)
        late = create()
        before = lent()
        first.signal(signal.SIGKILL)
        first.wait(10)
        ship.signal(signal.SIGCONT)  # and it goes on, without a manager
        done = l.run("dxpu-manager", "--store", l.file("db1"), "--import", l.file("shipped"))
        check(done.status == 0 and "s ago" in done.errors(), done.errors())
        start_manager(1)
        until(lambda: lent().get(shipped) == before[shipped], "what was shipped is up")
        check(late not in lent())
        until(lambda: run("adopt", "--all", "--dry-run")["adopted"] == 1, "the other one is found")
        check(run("adopt", "--all")["adopted"] == 1)
        until(lambda: sorted(lent().values()) == sorted(before.values()), "both are up")
        check(ship.popen.poll() is None, ship.errors())


@case
def standbys_end_when_etcd_has_other_data():
    """A standby waits for an unreachable etcd, and says why; one that finds other data there than
    before ends with status 4, so that its unit starts it again: by another name of the cluster, and
    where the name is the same and the revisions are older."""
    with lab.Lab() as l, Cluster(l) as etcd:
        def start_manager(http):
            return l.start("dxpu-manager", "--standby", "--store", etcd.address(), "--listen", ANY,
                           "--http", http)
        for token in ("etcd-cluster", "another"):
            leader = start_manager(ANY)
            leader.says("users at")
            standby = start_manager(ANY)
            standby.says("standby: .* leads")
            etcd.kill(0)
            standby.says(r"standby: etcd://\S+ cannot be reached \(127.0.0.1:\d+: .*trying again")
            check(leader.wait(20) == 4, leader.errors())
            etcd.start(0)
            standby.says("users at")  # with its data: it leads
            second = start_manager(ANY)
            second.says("standby: .* leads")
            standby.signal(signal.SIGKILL)
            standby.wait(10)
            second.signal(signal.SIGSTOP)
            etcd.replace(token)
            second.signal(signal.SIGCONT)
            check(second.wait(20) == 4, second.errors())
            check("is not the store that it was" in second.errors(), second.errors())


def connect(http):
    host, port = http.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 5)


def send(http, path, token=None, method="GET", body="", link=None):
    """A request is on its way, whether it is read or not; what reads the answer: head and body."""
    s = link or connect(http)
    s.sendall(("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s\r\n%s" % (
        method, path, "Authorization: Bearer %s\r\n" % token if token else "",
        "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body) if body else "",
        body)).encode())

    def read():
        with s:
            s.settimeout(10)
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
        if not answer:
            return 0, "", ""
        head, body = answer.split("\r\n\r\n", 1)
        return int(head.split()[1]), head, body
    return read


def put_tenant(http, token, name):
    request = urllib.request.Request(
        "http://%s/v1/tenants/%s" % (http, name), b'{"quota": 7}', method="PUT", headers={
            "Content-Type": "application/json", "Authorization": "Bearer " + token})
    urllib.request.urlopen(request, timeout=5).close()


def lines(path, status):
    """How many requests with this answer the audit log has."""
    with open(path, encoding="utf-8") as file:
        return sum(json.loads(line).get("status") == status for line in file)


def child_of(process):
    return until(process.children, "a child")[0][1]


@case
def m146_s130_where_a_standby_sends_users_and_what_it_logs():
    with lab.Lab() as l, Cluster(l) as etcd:
        token, audit = "operator-" + "x" * 32, l.file("audit")
        with open(l.file("tokens"), "w", encoding="utf-8") as file:
            os.chmod(file.name, 0o600)
            file.write("operator - %s\n" % token)
        http = [lab.address(socket.SOCK_STREAM) for _ in range(2)]
        args = ("--standby", "--store", "etcd://127.0.0.1:%d/pool" % etcd.clients[0], "--listen",
                ANY, "--tokens", l.file("tokens"))
        leader = l.start("dxpu-manager", *args, "--http", http[0], "--users-at",
                         "https://pool-a.example:443")
        leader.says("users at")
        inherited = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as some who start programs do
        standby = l.start("dxpu-manager", *args, "--http", http[1], "--audit", audit)
        signal.signal(signal.SIGCHLD, inherited)
        until(lambda: Cluster.listens(int(http[1].rsplit(":", 1)[1])), "the standby's port")
        status, head, _ = send(http[1], "/v1/leases?wait=5", token, "DELETE")()
        check(status == 405, status)
        status, head, _ = send(http[1], "/v1/leases/c00000001?keep=no", token, "DELETE")()
        check(status == 307 and "Location: https://pool-a.example:443/v1/leases/c00000001?keep=no"
              in head, head)
        status, head, body = send(http[1], "/metrics", token)()
        check(status == 503 and "Location" not in head and "ask the leader" in body, head, body)
        check(send(http[1], "/v1/leases?state=active", token)()[0] == 307)
        check(send(http[1], "/v1/leases?state=parked", token)()[0] == 200)

        key, before = coded("/pool/leader"), lines(audit, 503)
        was = etcd.ask("kv/range", {"key": key})["kvs"][0]["value"]
        for users in ("127.0.0.1:4456", "http://127.0.0.1:4456", "pool-a.example:443", ""):
            value = coded(json.dumps({"name": "another", "users": users}))
            etcd.ask("kv/put", {"key": key, "value": value, "ignore_lease": True})
            time.sleep(0.5)  # longer than between two looks of the standby
            status, head, body = send(http[1], "/v1/leases/c00000001", token, "DELETE")()
            check(status == 503 and "Location" not in head and "another" in body, users, head)
        etcd.ask("kv/put", {"key": key, "value": was, "ignore_lease": True})
        until(lambda: lines(audit, 503) == before + 4, "their lines")

        check(send(http[1], "/v1/leases", "guess")()[0] == 401)
        until(lambda: lines(audit, 401) == 1 and lines(audit, 307) == 1, "lines in the audit log")
        os.rename(audit, audit + ".1")
        standby.signal(signal.SIGHUP)
        until(lambda: os.path.exists(audit), "a new file")

        def serves():
            try:
                return send(http[1], "/v1/tenants", token)()[0] == 200
            except OSError:
                return False
        until(serves, "a child again")
        check(send(http[1], "/v1/leases", "guess")()[0] == 401)
        until(lambda: lines(audit, 401) == 1, "in the new one")

        child, link = child_of(standby), connect(http[1])
        check(send(http[1], "/v1/tenants", token)()[0] == 200)  # so that link is accepted
        os.kill(child, signal.SIGSTOP)
        put_tenant(http[0], token, "late")
        time.sleep(3)
        read = send(http[1], "/v1/tenants", token, link=link)
        os.kill(child, signal.SIGCONT)
        status, _, body = read()
        check(status == 503 or '"late"' in body, status, body)  # and never as of before
        until(lambda: '"late"' in send(http[1], "/v1/tenants", token)()[2], "it reads again")

        os.kill(child, signal.SIGKILL)
        until(lambda: child not in [pid for _, pid in standby.children()], "its end")
        until(serves, "the next child")
        check(leader.stop() == 0, leader.errors())
        standby.says("users at")
        put_tenant(http[1], token, "more")
        check(standby.stop() == 0, standby.errors())
        for file in (audit + ".1", audit):
            done = l.run("dxpu", "audit", file)
            check(done.status == 0, done.output(), done.errors())
        for wrong in ("http://127.0.0.1:4456", "pool-a.example:443", "https://" + "a" * 200):
            done = l.run("dxpu-manager", *args, "--http", http[0], "--users-at", wrong)
            check(done.status == 2 and "--users-at" in done.errors(), wrong, done.errors())


@case
def m143_m145_m146_another_manager_takes_over():
    with lab.Lab() as l, Cluster(l, 3) as etcd:
        m = Managers(l, etcd)
        m.leader()
        control = pool(l, m)
        made = [lend(m, "first")]
        standbys_answer(l, m, made)

        old = take_over(l, m, control, made, lambda i: m.process[i].signal(signal.SIGKILL))
        m.process[old].wait(10)
        m.start(old)

        host, waits = l.processes[-1], []

        def freeze(i):
            host.signal(signal.SIGSTOP)  # so that a request waits, until after its end
            node = [n["node"] for n in ask(m.http[i], "/v1/nodes")[2]["nodes"]
                    if n["role"] == "host"][0]
            waits.append(send(m.http[i], "/v1/leases?wait=3", method="POST", body=json.dumps(
                {"host": node, "model": "memory", "key": "waits"})))
            made.append(until(lambda: [one["lease"] for one in ask(m.http[i], "/v1/leases")[2][
                "leases"] if one["key"] == "waits"], "the lease of the request that waits")[0])
            m.process[i].signal(signal.SIGSTOP)
            m.process[i].frozen = True
            host.signal(signal.SIGCONT)
        old = take_over(l, m, control, made, freeze)
        m.process[old].signal(signal.SIGCONT)  # it orders nothing any more, and ends
        status, _, body = waits[0]()
        check(status in (0, 503), status, body)  # M-147
        check(m.process[old].wait(20) == 4, m.process[old].errors())
        check("start again" in m.process[old].errors(), m.process[old].errors())
        check(leases(m) == sorted(made), leases(m), made)
        until(lambda: len(ports(l, control)) == len(made), "all are up")
        m.start(old)

        def cut_off(i):  # from etcd, not from proxies and users
            m.relays[i].whole = False
        old = take_over(l, m, control, made, cut_off)
        check(m.process[old].wait(20) == 4, m.process[old].errors())
        m.relays[old].whole = True
        m.start(old)

        def alone(i):  # from proxies, not from etcd
            m.ports[i].whole = False
        old = take_over(l, m, control, made, alone)
        check(m.process[old].wait(20) == 4, m.process[old].errors())
        check("fell silent" in m.process[old].errors(), m.process[old].errors())


if __name__ == "__main__":
    sys.exit(main(why_not()))
