"""An etcd cluster on loopback for tests, in the directory of a lab."""
# SPDX-License-Identifier: MIT
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from cases import check, until


def why_not():
    """A reason to skip the tests that need it, or None."""
    return None if shutil.which("etcd") else "NO ETCD HERE (Debian: etcd-server)"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    """Members that elect within a few tenths of a second.  tls: a function of the certificates'
    names (certificates(), below)."""

    def __init__(self, l, members=1, tls=None):
        self.lab, self.tls, self.token = l, tls, "etcd-cluster"
        ports = free_ports(2 * members)
        self.clients, self.peers = ports[:members], ports[members:]
        self.members = [None] * members
        for i in range(members):
            self.start(i)
        until(lambda: all(self.listens(p) for p in self.clients), "etcd listens")
        if not tls:
            until(self.serves, "etcd serves")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for i in range(len(self.members)):
            self.kill(i)

    def start(self, i):
        scheme = "https" if self.tls else "http"
        client, peer = ("%s://127.0.0.1:%d" % (s, p) for s, p in
                        ((scheme, self.clients[i]), ("http", self.peers[i])))
        cluster = ",".join("m%d=http://127.0.0.1:%d" % m for m in enumerate(self.peers))
        more = self.tls and ("--client-cert-auth", "--trusted-ca-file", self.tls("ca.pem"),
                             "--cert-file", self.tls("server.pem"),
                             "--key-file", self.tls("server.key")) or ()
        with open(self.lab.file("etcd%d.log" % i), "ab") as log:
            self.members[i] = subprocess.Popen(
                ["etcd", "--name", "m%d" % i, "--data-dir", self.lab.file("etcd%d" % i),
                 "--unsafe-no-fsync", "--heartbeat-interval", "50", "--election-timeout", "500",
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", "http://127.0.0.1:%d" % self.peers[i],
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
                 "--initial-cluster-token", self.token, *more],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self, i):
        self.members[i].kill()
        self.members[i].wait()

    def replace(self, token):
        """All members lose their data, and are a cluster of this name afterwards."""
        self.token = token
        for i in range(len(self.members)):
            self.kill(i)
            shutil.rmtree(self.lab.file("etcd%d" % i))
        for i in range(len(self.members)):
            self.start(i)
        until(self.serves, "etcd serves")

    def freeze(self, i, on=True):
        self.members[i].send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    @staticmethod
    def listens(port):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    def address(self, prefix="/pool"):
        """For --store."""
        return "etcd://%s%s" % (",".join("127.0.0.1:%d" % p for p in self.clients), prefix)

    def ask(self, path, body, member=0):
        request = urllib.request.Request("http://127.0.0.1:%d/v3/%s" % (
            self.clients[member], path), json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=2) as answer:
            return json.load(answer)

    def serves(self):
        try:
            return self.ask("kv/range", {"key": coded("x")})
        except (OSError, ValueError):
            return None

    def leader(self):
        """Index of the member that leads."""
        status = self.ask("maintenance/status", {})
        for i in range(len(self.members)):
            mine = self.ask("maintenance/status", {}, i)["header"]["member_id"]
            if mine == status["leader"]:
                return i
        check(False, "no leader", status)
        return None


class Relay:
    """A port whose connections go on to another one, until it is cut: then no byte passes."""

    def __init__(self, to):
        self.to, self.whole = to, True
        self.renewed = 0  # when a lease of etcd was last to be renewed
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    def pump(self, source, sink):
        try:
            while True:
                data = source.recv(65536)
                if b"/lease/keepalive" in data:
                    self.renewed = time.monotonic()
                while not self.whole:
                    time.sleep(0.01)
                if not data:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def coded(text):
    return base64.b64encode(text.encode()).decode()


def certificates(l):
    """A function that gives the path of ca.pem, server.pem, server.key, client.pem and client.key,
    made by openssl; other.pem is an authority that signed none of them.  None: no openssl."""
    if not shutil.which("openssl"):
        return None

    def run(*words):
        subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    for name in ("ca", "other"):
        run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", l.file(name + ".key"), "-out", l.file(name + ".pem"), "-subj",
            "/CN=" + name, "-days", "2")
    for name in ("server", "client"):
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", l.file(name + ".key"), "-out", l.file(name + ".csr"), "-subj",
            "/CN=" + name)
        with open(l.file(name + ".ext"), "w", encoding="utf-8") as f:
            f.write("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        run("x509", "-req", "-in", l.file(name + ".csr"), "-CA", l.file("ca.pem"), "-CAkey",
            l.file("ca.key"), "-CAcreateserial", "-out", l.file(name + ".pem"), "-days", "2",
            "-extfile", l.file(name + ".ext"))
    os.chmod(l.file("client.key"), 0o600)
    return l.file
