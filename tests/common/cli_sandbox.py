#!/usr/bin/env python3
"""What the programs give up: capabilities, the user root, system calls (sandbox.h);
and the log that they keep (audit.h).

Each system call that must fail is tried without the filter, too: there it must not fail so."""
# SPDX-License-Identifier: MIT
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import rooms  # noqa: E402,F401
import lab  # noqa: E402
from cases import case, check, main, until  # noqa: E402

BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build"))
PROBE = os.path.join(ROOT, "build", "sandbox_probe")
DOMAIN = PROBE + "_domain"  # without a filter of system calls: Landlock alone
LOG = ["examples/common/base/%s.c" % name for name in ("log", "json", "text")]
KILLED, GONE = -signal.SIGSYS, "ENOSYS"
NOBODY = 65534
# what is tried, and how it ends behind the filter
PROBES = {"exec": KILLED, "fork": KILLED, "ptrace": KILLED, "setuid": KILLED, "uring": KILLED,
          "type": KILLED, "peek": KILLED, "bpf": KILLED, "copy": KILLED, "xdp": GONE,
          "clone3": GONE, "packet": GONE, "swap": GONE,
          "kill_other": GONE, "limit": GONE, "code": GONE, "type64": KILLED, "console": KILLED,
          "leader": GONE, "packet64": GONE, "unix": GONE, "unix64": GONE, "pair_datagrams": GONE,
          "owner": GONE, "owner64": GONE, "owner_ex": GONE, "owner_signal": GONE,
          "owner_file": GONE, "owner_group": GONE}
# what a renderer cannot do, and others can
UNCOUNTED = ("hidden_file", "longer", "filled", "locked", "locked2", "shared", "shared_checked",
             "shared_code", "growing", "growing_shared")
OTHERS = ("cores", "queue", "message", "messages", "named", "connected", "listening", "accepting",
          "pipe", "unix", "udp", "pair", "kill_other", "limit")
FILES = ("key", "key_at", "folder", "remove", "move", "shorten")  # by their names
HARMLESS = ("udp", "memory", "thread", "file", "pair", "owner_none")


def build():
    for program, more in ((PROBE, ["-DDXPU_SECCOMP=1", "-lseccomp"]), (DOMAIN, [])):
        subprocess.run(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread",
                        "-Iexamples/common/guard", "-iquote", "examples/common/base", "-o", program,
                        "tests/common/sandbox_probe.c",
                        "examples/common/guard/sandbox.c", *LOG, *more], cwd=ROOT, check=True)


def probe(*words, program=PROBE, **how):
    """The signal that ended it, or what it printed."""
    done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, check=False, **how)
    check(done.returncode <= 0, words, done)
    return done.returncode or done.stdout.decode().strip()


@case
def s122_filter():
    """Every forbidden call, in the thread that made the filter and in one that was there before."""
    for what, end in PROBES.items():
        check(probe("free", what) != end, what, "is no control: without a filter it ends so too")
        for where in ((), ("early",)):
            found = probe("caged", what, *where)
            check(found == end, what, where, "ended", found, "not", end)


@case
def s122_what_a_proxy_does():
    for what in HARMLESS:
        for cage in ("free", "caged"):
            found = probe(cage, what)
            check(found == "fine", cage, what, found)


@case
def s122_modes():
    """No file that others run as its owner is made; others are, in each process of a program."""
    with tempfile.TemporaryDirectory() as folder:
        for how in ("chmod", "fchmod", "fchmodat", "create", "createat", "unnamed"):
            for mode in ("4755", "2755", "6000", "7777", "600", "1777"):
                free = probe("free", how + "_" + mode, cwd=folder)
                check(free in ("fine", "EOPNOTSUPP" if how == "unnamed" else ""), how, mode, free)
                want = KILLED if int(mode, 8) & 0o6000 else free
                for cage in ("caged", "parent"):
                    found = probe(cage, how + "_" + mode, cwd=folder)
                    check(found == want, cage, how, mode, "ended", found)
        for cage in ("caged", "parent"):
            check(probe(cage, "open_6755", cwd=folder) == "fine", cage, "nothing is made by it")
            check(probe(cage, "newer_4755", cwd=folder) == GONE, cage)


@case
def s180_parent():
    """What ends a process ends the parent of a host's processes, too, but that it makes some."""
    for what, end in PROBES.items():
        if end != KILLED or what == "fork":
            continue
        for where in ((), ("early",)):
            found = probe("parent", what, *where)
            check(found == KILLED, what, where, "ended", found)
    for what in (*HARMLESS, "fork"):
        found = probe("parent", what)
        check(found == "fine", what, found)


def landlock():
    """What the kernel has, as the programs say."""
    done = subprocess.run([os.path.join(BIN, "dxpu-box"), "--version"], stdout=subprocess.PIPE,
                          check=True)
    return "Landlock" in done.stdout.decode()


@case
def s124_memory_of_another_process():
    if not landlock():
        return "this kernel has no Landlock"
    for where in ((), ("early",)):
        check(probe("free", "other_memory", *where) == "fine", "no control")
        found = probe("caged", "other_memory", *where)
        check(found == "EACCES", where, found)
    return None


@case
def s245_renderer():
    """Nothing that RLIMIT_DATA does not count, and nothing that reaches others."""
    for part in ("renderer", "gpu"):
        for what in (*UNCOUNTED, *OTHERS, *FILES):
            for where in ((), ("early",)):
                check(probe("free", what, *where) != GONE, "no control:", what)
                found = probe(part, what, *where)
                check(found == GONE, part, what, where, found)
        for what, end in PROBES.items():
            if end == KILLED:
                check(probe(part, what) == KILLED, part, what)
        for what in ("pages", "memory", "code", "sent", "size"):
            check(probe(part, what) == probe("free", what) == "fine", part, what)
        check(probe(part, "mapped") == probe("free", "mapped") == "ENODEV", part)
    check(probe("renderer", "thread") == "EAGAIN" and probe("gpu", "thread") == "fine")
    check(probe("renderer", "driver") == GONE and probe("gpu", "driver") == "ENOTTY")


@case
def s201_a_keeper_reaches_no_file():
    """Neither the filter nor, where there is none, the domain lets it; a worker may."""
    for what in FILES:
        for where in ((), ("early",)):
            check(probe("caged", what, *where) == "fine", "no control:", what)
            found = probe("keeper", what, *where)
            check(found == GONE, what, where, found)
    for what in ("size", "memory", "thread", "fd_name"):
        found = probe("keeper", what)
        check(found == "fine", what, found)
    if not landlock():
        return "this kernel has no Landlock"
    for what, ends in (("key", "EACCES"), ("folder", "EACCES"), ("file", "EACCES"),
                       ("size", "fine")):
        check(probe("caged", what, program=DOMAIN) == "fine", "no control:", what)
        found = probe("keeper", what, program=DOMAIN)
        check(found == ends, what, found)
    return None


@case
def v48_who_speaks_qmp_connects_and_no_more():
    """A UNIX socket is all that it may have: no file, no network."""
    for where in ((), ("early",)):
        check(probe("caged", "unix", *where) == GONE and probe("keeper", "unix", *where) == GONE)
        check(probe("monitor", "unix", *where) == "fine", where)
        check(probe("caged", "udp", *where) == "fine", "no control", where)
        for what in (*FILES, "udp", "packet"):
            found = probe("monitor", what, *where)
            check(found == GONE, what, where, found)
    for what in ("size", "memory", "thread", "fd_name"):
        check(probe("monitor", what) == "fine", what)
    for what, end in PROBES.items():
        if end == KILLED:
            check(probe("monitor", what) == KILLED, what)


@case
def s125_own_code():
    """Not even by /proc/self/mem; who stays root may, as spec/security.md says."""
    who = {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(PROBE, folder)
        for where in ((), ("early",)):
            found = probe("free", "own_memory", *where, program=program, **who)
            check(found == "fine", "no control:", found)
            found = probe("caged", "own_memory", *where, program=program, **who)
            check(found == "EACCES", where, found)
            found = probe("caged", "fd_name", *where, program=program, **who)
            check(found == "fine", "its descriptors must stay readable to it:", found)


def status(pid):
    """The fields of /proc/PID/task/*/status that matter, each a set over the threads."""
    found = {}
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task), encoding="ascii") as file:
            for name, value in re.findall(r"^(\w+):[ \t]*(.*?)[ \t]*$", file.read(), re.M):
                found.setdefault(name, set()).add(value)
    return found


class Running:
    """A program that serves, in a directory of its own."""

    def __init__(self, name, *more):
        self.folder = tempfile.mkdtemp(prefix="dxpu-sandbox-")
        os.chmod(self.folder, 0o777)
        here = {"dxpu-box": ("--listen", lab.address(count=2), "--slots", "2", "--cores", "2"),
                "dxpu-host": ("--vfio-user", os.path.join(self.folder, "vm.sock"), "--listen",
                              lab.address()),
                "dxpu-manager": ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store",
                                 os.path.join(self.folder, "pool.db"))}[name]
        self.errors = open(os.path.join(self.folder, "stderr"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([os.path.join(BIN, name), *here, *more],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=self.errors)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.errors.close()
            shutil.rmtree(self.folder)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def settled(self, truth):
        """Its status, when truth(status) holds."""
        def look():
            check(self.process.poll() is None, "it ended:", self.process.returncode, self.said())
            found = status(self.process.pid)
            return found if truth(found) else None
        return until(look, "its state")


def caged(found):
    return found["Seccomp"] == {"2"} and found["NoNewPrivs"] == {"1"}


@case
def s121_s122_programs():
    """Each of them, all its threads; and it still ends gracefully when asked."""
    for name in ("dxpu-box", "dxpu-host", "dxpu-manager"):
        with Running(name) as program:
            found = program.settled(caged)
            check(all(set(c) == {"0"} for c in found["CapEff"] | found["CapPrm"]), name, found)
            program.process.send_signal(signal.SIGTERM)
            check(program.process.wait(20) == 0, name, program.said())


@case
def control_without_a_sandbox():
    with Running("dxpu-box", "--no-sandbox") as program:
        program.settled(lambda found: os.path.exists("/proc/%d" % program.process.pid)
                        and "slots" in program.said())
        found = status(program.process.pid)
        check(found["Seccomp"] == {"0"}, found)
        check(found["NoNewPrivs"] == {"0"}, found)
        if not os.geteuid():
            check(any(set(c) != {"0"} for c in found["CapEff"]), found)


@case
def s120_user():
    if os.geteuid():
        return "only root can change to another user"
    nobody = pwd.getpwnam("nobody")
    for name in ("dxpu-box", "dxpu-host", "dxpu-manager"):
        with Running(name, "--user", "nobody") as program:
            found = program.settled(caged)
            check(all(set(u.split()) == {str(nobody.pw_uid)} for u in found["Uid"]), found)
            check(all(set(g.split()) == {str(nobody.pw_gid)} for g in found["Gid"]), found)
            check(found["Groups"] == {""}, found)
    return None


@case
def s120_user_without_a_sandbox():
    """Debugging is no reason to keep what was root's.  control_without_a_sandbox() keeps it."""
    if os.geteuid():
        return "only root can change to another user"
    nobody = pwd.getpwnam("nobody")
    for name in ("dxpu-box", "dxpu-host", "dxpu-manager"):
        with Running(name, "--user", "nobody", "--no-sandbox") as program:
            found = program.settled(lambda found: found["Seccomp"] == {"0"} and re.search(
                r"slots|virtual machine|users at", program.said()) and found)
            check(all(set(u.split()) == {str(nobody.pw_uid)} for u in found["Uid"]), found)
            check(all(set(c) == {"0"} for c in found["CapEff"] | found["CapPrm"]), name, found)
    return None


def connects(user, group, path):
    """May this user connect to a UNIX socket?"""
    child = os.fork()
    if not child:
        status = 2
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            socket.socket(socket.AF_UNIX).connect(path)
            status = 0
        except PermissionError:
            status = 1
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(status in (0, 1), status)
    return status == 0


@case
def socket_for_a_group():
    """Who runs the virtual machine is another user than dxpu-host's, in its group."""
    if os.geteuid():
        return "only root can change to another user"
    user, group, other = NOBODY, 60101, 60102  # of no account, but for the first
    for more, group_may in ((("--socket-mode", "660"), True), ((), False)):
        with Running("dxpu-host", "--user", "%d:%d" % (user, group), *more) as program:
            until(lambda: "waiting for a guest" in program.said(), "its socket")
            path = os.path.join(program.folder, "vm.sock")
            os.chown(program.folder, user, group)
            os.chmod(program.folder, 0o750)  # as RuntimeDirectoryMode= of its unit
            check(connects(user, group, path), more)
            check(connects(other, group, path) == group_may, more)
            check(not connects(other, other, path), more)
    return None


@case
def s120_wrong_users():
    for user in ("", ":", "no-such-user-here", "nobody:no-such-group-here", "12345x"):
        for name in ("dxpu-box", "dxpu-host", "dxpu-manager"):
            with Running(name, "--user", user) as program:
                check(program.process.wait(20) == 2, name, user, program.said())
                check("--user" in program.said() and "useradd" in program.said(), program.said())


@case
def s120_before_names_are_looked_up():
    """What a name server says is a byte from outside."""
    def said(name, status, *more):
        with Running(name, "--manager", "no-such-host.invalid:1", "--plain", "--identity", "own",
                     *(("--state", "leases") if name == "dxpu-box" else ()), *more) as program:
            check(program.process.wait(60) == status, name, program.said())
            return program.said()
    for name in ("dxpu-box", "dxpu-host"):
        check("no such host" in said(name, 3), name)  # the control
        found = said(name, 2, "--user", "no-such-user-here")
        check("useradd" in found and "no such host" not in found, name, found)


def elf(path):
    """What readelf prints of a program that matters here."""
    def ask(option):
        return subprocess.run(["readelf", "-W", option, path], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
    symbols = ask("--dyn-syms")
    return {"pie": "DYN" in ask("-h"), "relro": "GNU_RELRO" in ask("-l"),
            "now": "BIND_NOW" in ask("-d"), "stack": "__stack_chk_fail" in symbols,
            "fortify": "_chk@" in symbols.replace("__stack_chk_fail", ""),
            "data": not re.search(r"GNU_STACK.* RWE ", ask("-l"))}


@case
def s123_hardened():
    for name in ("dxpu", "dxpu-host", "dxpu-box", "dxpu-manager"):
        found = elf(os.path.join(BIN, name))
        check(all(found.values()), name, found)
    with tempfile.TemporaryDirectory() as folder:  # the control: nothing of it
        plain = os.path.join(folder, "plain")
        subprocess.run(["cc", "-O0", "-no-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
                        "-Wl,-z,norelro,-z,lazy,-z,execstack", "-x", "c", "-o", plain, "-"],
                       input=b"int main(void) { return 0; }", check=True)
        found = elf(plain)
        check(not any(found.values()), found)


@case
def s130_audit_log():
    """dxpu-manager's log: what was asked, by whom, what came of it; and dxpu audit over it."""
    with tempfile.TemporaryDirectory() as folder:
        log, moved = os.path.join(folder, "audit"), os.path.join(folder, "audit.1")
        with Running("dxpu-manager", "--audit", log) as program:
            url = until(lambda: re.search(r"users at (http://\S+)", program.said()), "an address")
            dxpu = [os.path.join(BIN, "dxpu")]

            def ask(*words):
                return subprocess.run(dxpu + [*words, "--manager", url.group(1)], check=False,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE).returncode
            check(ask("tenant", "acme", "--quota", "3") == 0)
            check(ask("lease", "release", "c00000009") != 0)
            conn = http.client.HTTPConnection(url.group(1)[7:].rstrip("/"), timeout=10)
            for _ in range(40):  # who is not known fills no log: some page, on this machine
                conn.request("PUT", "/v1/tenants/evil", "{}", {"Origin": "http://elsewhere"})
                check(conn.getresponse().read() is not None)
            os.rename(log, moved)
            program.process.send_signal(signal.SIGHUP)
            until(lambda: os.path.exists(log), "a new file")
            check(ask("tenant", "acme", "--quota", "4") == 0)
        lines = [json.loads(line) for name in (moved, log)
                 for line in open(name, encoding="ascii")]
        asked = [(x["role"], x["method"], x["target"], x["status"]) for x in lines
                 if x["what"] == "api.request"]
        check(asked[0] == ("operator", "PUT", "/v1/tenants/acme", 200), asked)
        check(asked[1][1:3] == ("DELETE", "/v1/leases/c00000009") and asked[1][3] >= 400, asked)
        nobody = [x for x in asked if x[0] == "anonymous"]
        check(len(nobody) == 30 and {x[3] for x in nobody} == {403}, nobody)
        check(len(asked) == 33, asked)
        check(not subprocess.run(dxpu + ["audit", moved, log], check=False,
                                 stdout=subprocess.PIPE).returncode)
        check(subprocess.run(dxpu + ["audit", log, moved], check=False,
                             stdout=subprocess.PIPE).returncode == 1)

        def audit(*words):
            return subprocess.run(dxpu + ["audit", *words], check=False,
                                  stdout=subprocess.PIPE).stdout.decode()
        with open(log, encoding="ascii") as file:
            first = json.loads(file.readline())
        behind = "begins with line %d, which follows %s" % (first["n"], first["before"])
        check(behind in audit(log), audit(log))
        check("begins" not in audit(moved, log), "it stands behind the one before it")
        begins = json.loads(audit("--json", log))["begins"]
        check(begins == first["n"] > 1 == json.loads(audit("--json", moved))["begins"], begins)
        check("empty" in audit("/dev/null") and "empty" not in audit(log))
        with open(moved, encoding="ascii") as file:
            text = file.read()
        with open(moved, "w", encoding="ascii") as file:
            file.write(text.replace("acme", "evil", 1))
        done = subprocess.run(dxpu + ["audit", "--json", moved], check=False,
                              stdout=subprocess.PIPE)
        found = json.loads(done.stdout)
        check(done.returncode == 1 and not found["good"], found)


def why_not():
    if not shutil.which("cc") or not shutil.which("readelf"):
        return "no compiler or readelf"
    if subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False).returncode:
        return "libseccomp is not installed"
    build()
    return None


if __name__ == "__main__":
    sys.exit(main(why_not()))
