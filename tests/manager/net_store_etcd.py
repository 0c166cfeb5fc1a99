#!/usr/bin/env python3
"""dxpu-manager with its store in etcd: leases outlive its kill and a member's, TLS with
certificates, a frozen etcd does not hang it, records go from SQLite to etcd and back.

Prints `ok NAME`, `not ok NAME` or `skip NAME REASON` for each case.  Programs come from $DXPU_BIN,
else build/."""
# SPDX-License-Identifier: MIT
import functools
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, until  # noqa: E402
from etcd import Cluster, Relay, certificates, coded, why_not  # noqa: E402
from pool import BOX, HOST, Fake, Manager, Refused, Robots  # noqa: E402
import lab  # noqa: E402

USAGE, STORE, DAMAGED = 2, 4, 5
POOL = ((BOX, 4), (HOST, 4))


def lend(m, pool, key, wait=10):
    """A lease that is up; its number."""
    def made():
        status, lease = m.ask("POST", "/v1/leases?wait=%d" % wait, {
            "host": pool.nodes[1], "model": "nvme", "count": 1, "key": key, "tenant": "t"})
        return lease if status in (200, 201) else check(status in (409, 503), status, lease)
    lease = until(made, "a lease")
    check(lease["state"] == "active", lease)
    return lease["lease"]


def leases(m):
    return sorted(one["lease"] for one in m.get("/v1/leases")["leases"])


def ended(process, status, *words):
    """It ends by itself, with this status, and says these words."""
    check(process.wait(30) == status, process.popen.returncode, process.errors())
    for word in words:
        check(word in process.errors(), word, process.errors())


def copy(l, *args):
    process = l.run("dxpu-manager", *args)
    return process.status, process.errors()


@case
def leases_outlive_kills_of_the_manager_and_of_a_member():
    with lab.Lab(plain=True) as l, Cluster(l, 3) as etcd:
        m = Manager(l, store=etcd.address())
        with Robots(m, POOL) as pool:
            first = lend(m, pool, "first")
            etcd.kill(etcd.leader())
            second = lend(m, pool, "second")  # over a new election
            check(leases(m) == sorted((first, second)), leases(m))
        m.process.kill()
        m.start()  # when its lease of etcd has ended
        check(leases(m) == sorted((first, second)), leases(m))
        check(m.process.stop() == 0, m.process.errors())
        began = time.monotonic()
        m.start()  # the lease was given back
        check(leases(m) == sorted((first, second)), leases(m), time.monotonic() - began)


@case
def one_manager_at_a_time():
    with lab.Lab(plain=True) as l, Cluster(l) as etcd:
        m = Manager(l, store=etcd.address())
        other = l.start("dxpu-manager", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                        "--store", etcd.address())
        Manager(l, store=etcd.address("/second")).process.stop()  # that is another pool
        ended(other, STORE, "is in use by", str(m.process.popen.pid))  # later than a lease ends
        check(m.process.popen.poll() is None, m.process.errors())
        with Fake(m) as box:
            etcd.ask("kv/deleterange", {"key": coded("/pool/leader")})
            try:
                box.register()
                check(False, "it was stored")
            except Refused as no:
                check("has ended" in no.words, no)
            except (EOFError, ConnectionError):
                pass  # it had looked at its key just then
        ended(m.process, STORE, "has ended")


@case
def standby_takes_over_from_a_frozen_and_a_killed_leader():
    with lab.Lab(plain=True) as l, Cluster(l) as etcd:
        m = Manager(l, "--standby", store=etcd.address())
        with Robots(m, POOL) as pool:
            first = lend(m, pool, "first")
        for number, ends in ((signal.SIGSTOP, True), (signal.SIGKILL, False)):
            second = l.start("dxpu-manager", "--listen", m.listen.rsplit(":", 1)[0] + ":0",
                             "--http", "127.0.0.1:0", "--store", etcd.address(), "--standby")
            second.says("standby: .* leads")
            m.process.signal(number)
            second.says(r"users at http://(\S+:\d+)\n")
            if ends:  # it finds out when it goes on
                m.process.signal(signal.SIGCONT)
                ended(m.process, STORE, "start again")
            m.process = second
            m.http = second.says(r"users at http://(\S+:\d+)\n").group(1)
            check(leases(m) == [first], leases(m))


@case
def standby_obeys_signals_and_leads_with_the_peers_of_today():
    with lab.Lab() as l, Cluster(l) as etcd:
        peers = l.file("peers.now")
        with open(peers, "w", encoding="utf-8") as f:
            f.write("%s may=box\n" % l.public("box"))
        args = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--standby", "--peers", peers,
                "--audit")
        start = functools.partial(l.start, "dxpu-manager", "--store", etcd.address(), *args)
        first = start(l.file("audit0"))
        first.says("users at")
        second, third = (start(l.file("audit%d" % i)) for i in (1, 2))
        for process in (second, third):
            process.says("standby: .* leads")
        os.rename(l.file("audit1"), l.file("audit1.old"))
        with open(peers, "a", encoding="utf-8") as f:
            f.write("%s may=host\n" % l.public("host"))
        for number in (signal.SIGHUP, signal.SIGUSR1):
            second.signal(number)
        until(lambda: second.errors().count("leads") == 2, "who leads, once more")
        third.signal(signal.SIGTERM)
        ended(third, 0)
        check(second.popen.poll() is None, second.errors())
        first.signal(signal.SIGKILL)
        second.says("reloaded, 2 public keys")
        second.says("users at")
        check(os.path.exists(l.file("audit1")), "the audit log is a new file")
        check(second.stop() == 0, second.errors())


@case
def frozen_etcd_does_not_hang_the_manager():
    with lab.Lab(plain=True) as l, Cluster(l) as etcd:
        m = Manager(l, store=etcd.address())
        with Robots(m, POOL) as pool:
            first = lend(m, pool, "first")
        etcd.freeze(0)
        ended(m.process, STORE, "start again")
        etcd.freeze(0, False)
        m.start()
        check(leases(m) == [first], leases(m))


def next_renewal(relay):
    """When it was sent."""
    before = relay.renewed
    return until(lambda: relay.renewed if relay.renewed > before else 0, "the lease is renewed")


@case
def m147_a_change_that_took_as_long_as_the_lease_is_answered():
    """Answers of etcd come late, once its lease may have ended for the manager, not for etcd."""
    with lab.Lab(plain=True) as l, Cluster(l) as etcd:
        relay = Relay(etcd.clients[0])
        m = Manager(l, store="etcd://127.0.0.1:%d/pool" % relay.port)
        with Robots(m, POOL) as pool:
            lend(m, pool, "first")
            key = etcd.ask("kv/range", {"key": coded("/pool/leader")})["kvs"][0]

            def hold(until_s):
                relay.whole = False
                while time.monotonic() < until_s:
                    etcd.ask("lease/keepalive", {"ID": key["lease"]})
                    time.sleep(0.05)
                relay.whole = True
            for query in ("", "?wait=10"):
                renewed = next_renewal(relay)
                time.sleep(max(0, renewed + 0.8 - time.monotonic()))
                held = threading.Thread(target=hold, args=(renewed + 3.15,))
                held.start()
                status, lease = m.ask("POST", "/v1/leases" + query, {
                    "host": pool.nodes[1], "model": "nvme", "tenant": "t"})
                held.join()
                if status == 503 and "was made" not in lease["detail"]:
                    return "the lease was over before: a slow machine"
                check(status == 201, query, status, lease)
            check(len(leases(m)) == 3, leases(m))
    return None


@case
def tls_with_certificates():
    with lab.Lab(plain=True) as l:
        tls = certificates(l)
        if not tls:
            return "NO OPENSSL HERE"
        with Cluster(l, tls=tls) as etcd:
            mine = ("--etcd-cert", tls("client.pem"), "--etcd-key", tls("client.key"))
            m = Manager(l, "--etcd-ca", tls("ca.pem"), *mine, store=etcd.address())
            with Robots(m, POOL) as pool:
                first = lend(m, pool, "first")
            check(leases(m) == [first])
            check(m.process.stop() == 0, m.process.errors())
            # the controls: nothing is read or written without the right certificates
            refused = [l.start("dxpu-manager", "--store", etcd.address(), "--export", l.file("x"),
                               *args) for args in (("--etcd-ca", tls("other.pem"), *mine),
                                                   ("--etcd-ca", tls("ca.pem")), ())]
            for process in refused:
                ended(process, STORE, "cannot be reached" if process is refused[0] else "etcd://")
            check(not os.path.exists(l.file("x")))
            status, said = copy(l, "--store", etcd.address(), "--export", l.file("x"), "--etcd-ca",
                                tls("ca.pem"), *mine)
            check(status == 0 and first in open(l.file("x"), encoding="utf-8").read(), said)


@case
def idle_leader_outlives_each_member():
    """No proxy wakes it: it renews its lease by itself, also over a new TLS connection."""
    with lab.Lab(plain=True) as l:
        tls = certificates(l)
        if not tls:
            return "NO OPENSSL HERE"
        with Cluster(l, 3, tls=tls) as etcd:
            m = Manager(l, "--etcd-ca", tls("ca.pem"), "--etcd-cert", tls("client.pem"),
                        "--etcd-key", tls("client.key"), "--heartbeat-ms", "60000",
                        store=etcd.address())
            for i in range(3):  # it is connected to one of them
                etcd.kill(i)
                time.sleep(5)  # longer than a lease
                check(m.process.popen.poll() is None, i, m.process.errors())
                etcd.start(i)
                until(lambda: etcd.listens(etcd.clients[i]), "etcd listens")
                time.sleep(1)
            check(m.get("/v1/leases")["leases"] == [])
            check(m.process.stop() == 0, m.process.errors())


@case
def records_go_to_etcd_and_back():
    with lab.Lab(plain=True) as l, Cluster(l) as etcd:
        m = Manager(l)
        with Robots(m, POOL) as pool:
            first = lend(m, pool, "first")
            status, said = copy(l, "--store", m.store, "--export", l.file("a"))
            check(status == STORE and "in use" in said, status, said)  # a manager runs
        check(m.process.stop() == 0)
        for source, target, file in ((m.store, etcd.address(), "a"),
                                     (etcd.address(), l.file("back.db"), "b")):
            status, said = copy(l, "--store", source, "--export", l.file(file))
            check(status == 0 and "records written" in said, status, said)
            status, said = copy(l, "--store", target, "--import", l.file(file))
            check(status == 0 and "records read" in said, status, said)
        with open(l.file("a"), "rb") as a, open(l.file("b"), "rb") as b:
            went, back = [file.read().splitlines()[:-1] for file in (a, b)]
            held = [one.replace(b'held\\":false', b'held\\":true') for one in went]
            check(held == back and held != went, "what came back is what went, and held (M-96)")
        status, said = copy(l, "--store", etcd.address(), "--import", l.file("a"))
        check(status == USAGE and "records" in said, status, said)
        for store in (etcd.address(), l.file("back.db")):
            m = Manager(l, store=store)
            check(leases(m) == [first], store, leases(m))
            status, said = copy(l, "--store", store, "--export", l.file("c"))
            if store == etcd.address():  # also while a manager leads, which goes on
                with open(l.file("c"), encoding="utf-8") as f:
                    check(status == 0 and "lease/" + first in f.read(), status, said)
            else:
                check(status == STORE, status, said)
            check(m.process.stop() == 0)
        status, said = copy(l, "--store", etcd.address("/none"), "--export", l.file("d"))
        check(status == STORE and "no records" in said, status, said)
        status, said = copy(l, "--store", l.file("none.db"), "--export", l.file("d"))
        check(status == STORE and "none.db: No such file" in said, status, said)
        check(not os.path.exists(l.file("none.db")) and not os.path.exists(l.file("d")))


@case
def usage():
    with lab.Lab(plain=True) as l:
        for args, word in ((("--store", "etcd://10.0.0.1", "--export", "x"), "--etcd-ca"),
                           (("--store", "etcd://127.0.0.1:x", "--export", "x"), "etcd://"),
                           (("--store", "etcd:///pool"), "HOST"),
                           (("--store", l.file("a"), "--etcd-ca", "x"), "--store etcd://"),
                           (("--export", "x", "--import", "y"), "used together")):
            status, said = copy(l, *args)
            check(status == USAGE and word in said, args, status, said)
        check(not os.path.exists(l.file("a")), "a file was made")


if __name__ == "__main__":
    sys.exit(main(why_not()))
