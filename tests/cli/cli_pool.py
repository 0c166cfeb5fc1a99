#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/san/%) build/san/replay_fuzz_answers
"""dxpu pool, list, show, lease, drain, events, top and so on against a manager that is a fake: what
is asked of it, what is printed, and what comes of answers that no manager gives.

Prints `ok NAME` or `not ok NAME` for each case.  The program is $DXPU_BIN/dxpu, else build/dxpu."""
# SPDX-License-Identifier: MIT
# run.py: --timeout 600
import fcntl
import http.server
import json
import os
import pty
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, sanitized, until  # noqa: E402
import openapi  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def program():
    return os.path.join(os.environ.get("DXPU_BIN", os.path.join(ROOT, "build")), "dxpu")


PLAIN = program()  # starts sooner: see plain()
sanitized()
BIN = program()
DONE, REFUSED, USAGE, CONNECTION, UNCONFIRMED = 0, 1, 2, 3, 4
DOC = openapi.read()


# ---- The fake ----

class Raw:
    """An answer that is not a JSON document: the bytes behind the header, and the header."""

    def __init__(self, data, length=None, **headers):
        self.data, self.length, self.headers = data, length, headers


class Stream:
    """Server-sent events; then the connection ends (or stays, until the fake ends)."""

    def __init__(self, *parts, stays=False):
        self.parts, self.stays = parts, stays


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def answer(self):
        fake = self.server.fake
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        request = dict(method=self.command, path=path, query=dict(urllib.parse.parse_qsl(query)),
                       headers=self.headers, body=json.loads(body) if body else None,
                       bytes=len(body))
        wrong_ = path.startswith("/v1/") and wrong_request(request)
        with fake.lock:
            fake.requests.append(request)
            fake.wrong += ["%s %s: %s" % (self.command, self.path, wrong_)] if wrong_ else []
        route = fake.routes.get(self.command + " " + path)
        if route is None:
            self.reply(404, problem(404, "there is no %s here" % path))
            return
        found = route(request) if callable(route) else route
        status, found = found if isinstance(found, tuple) else (200, found)
        self.reply(status, found)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def reply(self, status, found):
        if isinstance(found, Stream):
            self.stream(found)
            return
        if isinstance(found, Raw):
            data, length, headers = found.data, found.length, found.headers
        else:
            data, length = json.dumps(found).encode(), None
            kind = "application/json" if status < 400 else "application/problem+json"
            headers = {"Content-Type": kind}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            self.close_connection = True
        if length is not None:
            self.close_connection = True

    def stream(self, found):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for part in found.parts:
            self.wfile.write(part)
            self.wfile.flush()
        if found.stays:
            self.server.fake.over.wait(60)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    peers = ()

    def get_request(self):
        pair = super().get_request()
        self.peers += (pair[0],)
        return pair

    def handle_error(self, *unused):
        pass  # a client that goes away


class Fake:
    def __init__(self, routes=None, port=0):
        self.routes, self.requests, self.lock = dict(routes or {}), [], threading.Lock()
        self.wrong = []  # requests that are not as spec/openapi.yaml says
        self.over = threading.Event()
        self.server = Server(("127.0.0.1", port), Handler)
        self.server.fake = self
        self.port = self.server.server_address[1]
        self.url = "http://127.0.0.1:%d" % self.port
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind=None, *unused):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        for peer in self.server.peers:  # those that live on would be answered further
            try:
                peer.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended before
        check(kind or not self.wrong, self.wrong)

    def asked(self, start=""):
        with self.lock:
            return [r for r in self.requests if (r["method"] + " " + r["path"]).startswith(start)]

    def one(self, start):
        found = self.asked(start)
        check(len(found) == 1, "asked", len(found), "times:", start,
              [r["method"] + r["path"] for r in self.requests])
        return found[0]


def environment(fake, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("DXPU_")}
    env.update(TERM="xterm", LC_ALL="C.UTF-8", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", ""))
    env.pop("NO_COLOR", None)
    if fake:
        env["DXPU_MANAGER"] = fake.url
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


class Done:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __repr__(self):
        return "status %d\n%s\n%s" % (self.status, self.out, self.err)

    def json(self):
        lines = self.out.splitlines()
        check(len(lines) == 1, "not one document:", self)
        return json.loads(lines[0])


wrong = set()


def dxpu(fake, *words, status=DONE, binary=None, **env):
    """What it does, sanitized unless another program is given.  A command line that is wrong ends
    as it is read: one of each command is read sanitized.  fuzz/fuzz_options.c tries values."""
    if not binary:
        command = words[:2 if words[0] in ("lease", "list", "show") else 1]
        binary = PLAIN if status == USAGE and command in wrong else BIN
        wrong.update([command] if status == USAGE else ())
    p = subprocess.run([binary] + [str(w) for w in words], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                       env=environment(fake, **env), check=False)
    done = Done(p.returncode, p.stdout.decode("utf-8", "replace"),
                p.stderr.decode("utf-8", "replace"))
    check(done.status == status, words, "not status", status, done)
    check(status == DONE or done.err, words, "says nothing", done)
    return done


def plain(fake, *words, **more):
    """The same without sanitizers, for what other commands run with them."""
    return dxpu(fake, *words, binary=PLAIN, **more)


# ---- What a manager says ----

def problem(status, detail, kind="about:blank"):
    return {"type": kind, "title": "No", "status": status, "detail": detail}


STATES = ("free", "spare", "leased", "wiping", "drained", "broken", "quarantined",
          "retained")


def pool(**more):
    model = dict(model="nvme", total=16, spares_wanted=1, room_box=5.5, room_group=0.0,
                 **{s: n for n, s in enumerate(STATES)})
    return dict(dict(store="ok", clock_held=False, direct=True, epoch=17,
                     boxes=dict(total=2, connected=1, draining=0),
                     hosts=dict(total=1, connected=1),
                     leases=dict(total=3, pending=1, active=2, degraded=0, parked=0, ended=0),
                     leases_of=None,
                     slots=dict(total=16, **{s: n for n, s in enumerate(STATES)}),
                     models=[model]), **more)


def node(number=10, role="box", **more):
    return dict(dict(node=number, role=role, name="%s%d" % (role, number), program="dxpu-x 0.1.0",
                     identity="00" * 16, key=None, connected=True, since="2026-01-02T03:04:05.678Z",
                     draining=False, addresses=["127.0.0.1:4458"], slots=16, free=9, leased=6,
                     broken=1, owner=None, direct=role == "box" or None, suspect=None,
                     unreached_by=[]), **more)


def slot(name="10.3", **more):
    return dict(dict(slot=name, node=10, number=3, model="nvme", attributes="size=64M",
                     device=None, function=None, functions=1, virtual_functions=0,
                     data="persistent", serial="S3", vendor_id="0x1b36", device_id="0x0010",
                     group=None, state="leased", reason="none", dirty=True,
                     epoch=17, lease="c3", health="good", box_state="up", connected=True,
                     retained_for=None, retained_left_s=None, **{"class": "0x010802"}), **more)


def lease(name="c3", state="active", phase="up", rates=(None, None), **more):
    return dict(dict(lease=name, tenant="t", key=None, host=12, model="nvme", attributes=None,
                     data="persistent", count=1, need="any",
                     device="any", exclusive=False, apart=False, peer=None, peers=[],
                     direct="allowed",
                     state=state, replace=True, replaced=0, created_at="2026-01-02T03:04:05.678Z",
                     expires_at=None, retained=[], wiped_in_s=None, moved_from=None,
                     moved_why=None,
                     slots=[dict(slot="10.3", device=None, box_connected=True, host_slot=1,
                                 epoch=17, state=phase, why=None,
                                 to_device_per_s=rates[0], from_device_per_s=rates[1])]), **more)


def event(number, **more):
    return dict(dict(event=number, at="2026-01-02T03:04:05.678Z", type="lease.up", node=10,
                     node_name="box10",
                     slot="10.3", lease="c3", tenant="t", text="text of event %d." % number),
                **more)


def events_route(events):
    """As the manager answers: after, limit, last, lease, type, node, slot."""
    def answer(request):
        q = request["query"]
        after = int(q.get("after", 0))
        found = [e for e in events if e["event"] > after
                 and all(str(e[name]) == q.get(name, str(e[name]))
                         for name in ("lease", "node", "slot"))
                 and e["type"].startswith(q.get("type", ""))]
        if "last" in q:
            last = int(q["last"])
            return dict(events=found[-last:] if last else [],
                        next=events[-1]["event"] if events else 0)
        found = found[:min(int(q.get("limit", 100)), 4)]
        return dict(events=found, next=found[-1]["event"] if found else after)
    return answer


def everything():
    return {
        "GET /v1/pool": pool(),
        "GET /v1/boxes": dict(nodes=[node()], next=None),
        "GET /v1/hosts": dict(nodes=[node(12, "host"), node(13, "host", name="twin"),
                                     node(14, "host", name="twin")], next=None),
        "GET /v1/nodes": dict(nodes=[node(), node(12, "host")], next=None),
        "GET /v1/nodes/10": node(),
        "GET /v1/nodes/12": node(12, "host"),
        "GET /v1/slots": dict(slots=[slot()], next=None),
        "GET /v1/slots/10.3": slot(),
        "GET /v1/leases": dict(leases=[lease()], next=None),
        "GET /v1/leases/c3": lease(),
        "GET /v1/erasures": dict(erases=[], total=0),
        "GET /v1/tenants": dict(tenants=[dict(tenant="t", quota=8, used=1, direct=True),
                                         dict(tenant="u", quota=None, used=0, direct=False)]),
        "GET /v1/events": events_route([event(n) for n in range(1, 31)]),
    }


# ---- Looking ----

@case
def overview():
    with Fake(everything()) as fake:
        out = dxpu(fake, "pool").out
        check(re.search(r"(?m)^boxes +2: 1 connected, 0 draining$", out), out)
        check(re.search(r"(?m)^leases +3: 1 pending, 2 active, 0 degraded, 0 parked, 0 ended$",
                        out), out)
        check(re.search(r"(?m)^nvme +16 +0 +1 +2 +3 +4 +5 +6 +7 +1 +5\.5 +0\.0$", out), out)
        check("\033" not in out, "colors without a terminal")
        r = fake.one("GET /v1/pool")
        check(r["headers"]["User-Agent"].startswith("dxpu/") and "Authorization" not in r["headers"]
              and "application/json" in r["headers"]["Accept"], r["headers"])
        check(dxpu(fake, "pool", "--json").json() == pool())
        check("store" not in out, out)
        fake.routes["GET /v1/pool"] = pool(store="m.db: no room to write", leases_of="physics")
        out = dxpu(fake, "pool").out
        check("store   m.db: no room to write\n" in out, "an operator sees it")
        check(re.search(r"(?m)^leases +3 of tenant physics: 1 pending", out), out)
        fake.routes["GET /v1/pool"] = pool(  # a standby's answer
            boxes=dict(total=2, connected=None, draining=1),
            leases=dict(total=3, pending=None, active=None, degraded=None, parked=1, ended=0))
        out = dxpu(fake, "pool").out
        check(re.search(r"(?m)^boxes +2: \? connected, 1 draining$", out), out)
        check(re.search(r"(?m)^leases +3: \? pending, \? active, \? degraded, 1 parked, 0 ended$",
                        out), out)


@case
def lists():
    with Fake(everything()) as fake:
        check(re.search(r"(?m)^ *10 +box10 +connected +16 +9 +6 +1 +2026-01-02 03:04:05Z +"
                        r"127\.0\.0\.1:4458", dxpu(fake, "list", "boxes").out))
        fake.routes["GET /v1/hosts"] = dict(nodes=[node(12, "host"), node(
            13, "host", owner="physics")], next=None)
        out = dxpu(fake, "list", "hosts").out
        check(re.search(r"(?m)^ *12 +host12 +connected +16 +9 +6 +- ", out), out)
        check(re.search(r"(?m)^ *13 +host13 +connected +16 +9 +6 +physics +2026", out), out)
        named = slot("11.3", node=11, node_name="shelf1")
        fake.routes["GET /v1/slots"] = dict(slots=[slot(), named], next=None)
        out = dxpu(fake, "list", "slots").out
        check(re.search(r"(?m)^10\.3 +nvme +leased +c3 +none +good +up +- +- +17 +S3 +size=64M$",
                        out), out)
        check(re.search(r"(?m)^11\.3 .* up +shelf1 +- ", out), out)
        check(re.search(r"(?m)^c3 +active +12 +nvme +10\.3 +t +- +any +- +persistent$",
                        dxpu(fake, "list", "leases").out))
        out = dxpu(fake, "list", "tenants").out
        check(re.search(r"(?m)^t +1 +8$", out) and re.search(r"(?m)^u +0 +none$", out), out)
        check(not fake.one("GET /v1/tenants")["query"], "that list has no pages")
        check(dxpu(fake, "list", "slots", "--json").json() ==
              dict(slots=[slot(), named], next=None))


@case
def leases_in_lists():
    """Slots in a row as one; a disconnected host, and a need that is not kept, are seen."""
    rows = ((["4.1"], "4.1"), (["4.1", "4.2"], "4.1-2"), (["4.9", "4.10", "4.11"], "4.9-11"),
            (["4.1", "4.3", "4.4", "5.5", "5.4", "5.5", "5.6"], "4.1 4.3-4 5.5 5.4-6"),
            (["4.%d" % n for n in range(1, 65)], "4.1-64"), (["4.1", "x", "4.2"], "4.1 x 4.2"),
            (["4.7", "5.8"], "4.7 5.8"), (["%d.60000" % n for n in range(1000000, 1000064)],
                                          "1000000.60000 1000001.60000"))
    found = [lease(host_name="web7")]
    for n, (slots, printed) in enumerate(rows):
        found.append(lease("d%d" % n, host_name="web", host_connected=False, need="spread",
                           need_kept=False))
        found[-1]["slots"] = [dict(found[-1]["slots"][0], slot=s) for s in slots]
    with Fake(everything()) as fake:
        fake.routes["GET /v1/leases"] = dict(leases=found, next=None)
        out, top = dxpu(fake, "list", "leases").out, dxpu(fake, "top").out
        for n, (slots, printed) in enumerate(rows):
            check(re.search(r"(?m)^d%d +active +12 web \(disconnected\) +nvme +%s( .*)? t +- +"
                            r"spread \(not met\) +- +persistent$" % (n, re.escape(printed)), out),
                  printed, out)
            row = re.search(r"(?m)^d%d .*$" % n, top)
            check(row and " %s " % printed in row[0].replace("~", " "), printed, top)
        check(re.search(r"(?m)^c3 +active +12 web7 +nvme", out), out)


@case
def host_by_name():
    """Whoever leases for web7 reads that name; a host without one has its number alone."""
    for named, text in ((dict(host_name="web7"), "web7 (12)"), (dict(host_name=None), "12")):
        with Fake(everything()) as fake:
            fake.routes["GET /v1/leases/c3"] = lease(**named)
            out = plain(fake, "show", "lease", "c3").out
            check("lease c3: slot 10.3 is slot 1 of host %s\n" % text in out, out)
            fake.routes["GET /v1/leases/c3"] = lease(state=None, phase=None, **named)
            out = dxpu(fake, "show", "lease", "c3").out  # a standby's answer
            check("lease c3: slot 10.3 for slot 1 of host %s: unknown\n" % text in out, out)


@case
def unknown_things_are_listed():
    """What is not there: the remedy lists things of that kind; with a ; the manager gives one."""
    with Fake(everything()) as fake:
        for words, path, remedy in (
                (("show", "slot", "9.9"), "GET /v1/slots/9.9", "'dxpu list slots' lists the slots"),
                (("show", "lease", "d4"), "GET /v1/leases/d4",
                 "'dxpu list leases' lists the leases"),
                (("show", "node", "77"), "GET /v1/nodes/77",
                 "'dxpu list boxes' and 'dxpu list hosts' list the nodes")):
            fake.routes[path] = (404, problem(404, "it is not there"))
            err = dxpu(fake, *words, status=REFUSED).err
            check("refused: it is not there; %s\n" % remedy in err, err)
            fake.routes[path] = (404, problem(404, "it is not there; look elsewhere"))
            err = plain(fake, *words, status=REFUSED).err
            check(err.endswith("look elsewhere\n"), err)


@case
def list_filters():
    with Fake(everything()) as fake:
        dxpu(fake, "list", "slots", "--state", "free", "--model=a b&c", "--node", 10,
             "--attributes", "a=1,b=&2")
        check(len(fake.wrong) == 1 and fake.wrong.pop(), "no model has such a name")
        query = fake.one("GET /v1/slots")["query"]
        check(query["attributes"] == "a=1,b=&2" and query["state"] == "free" and
              query["model"] == "a b&c" and query["node"] == "10", query)
        dxpu(fake, "list", "leases", "--attributes", "a=1", status=USAGE)
        fake.requests.clear()
        dxpu(fake, "list", "slots", "--device", "10.3")  # it has its device to itself
        check(fake.requests[-1]["query"]["device"] == "10.3")
        fake.routes["GET /v1/slots/10.3"] = slot(device="10.1", function=2, functions=3)
        fake.requests.clear()
        dxpu(fake, "list", "slots", "--device", "box10.3")
        check(fake.requests[-1]["query"]["device"] == "10.1")
        out = plain(fake, "show", "slot", "10.3").out
        check(re.search(r"(?m)^device +10.1$", out) and re.search(r"(?m)^function +2$", out), out)
        dxpu(fake, "list", "slots", "--device", "x", status=USAGE)
        fake.requests.clear()
        dxpu(fake, "list", "leases", "--tenant", "t", "--node", "host12")
        query = fake.one("GET /v1/leases")["query"]
        check(query["tenant"] == "t" and query["host"] == "12", query)
        doubt = dict(lent="last", why="its path", since="2026-01-02T03:04:05.678Z")
        fake.routes["GET /v1/boxes"] = dict(nodes=[
            node(), node(11, connected=False, broken=3), node(12, draining=True, suspect=doubt),
            node(13, suspect=doubt), node(14, draining=True),
            node(15, connected=None), node(16, connected=None, since=None)],  # a standby's answer
                                            next=None)
        for state, numbers in (("connected", [10, 12, 13, 14]), ("disconnected", [11])):
            found = dxpu(fake, "list", "boxes", "--state", state, "--json").json()["nodes"]
            check([n["node"] for n in found] == numbers, found)
        out = dxpu(fake, "list", "boxes").out
        for number, state in ((10, "connected"), (11, "disconnected"), (12, "suspect, draining"),
                              (13, "suspect"), (14, "draining"), (15, "unknown"),
                              (16, "unknown")):
            check(re.search(r"(?m)^ *%d +box%d +%s +16 +9 +6 +%d " %
                            (number, number, state, 3 if number == 11 else 1), out), out)
        fake.routes["GET /v1/boxes"] = dict(nodes=[node()], next=None)
        found = plain(fake, "list", "boxes", "--state", "disconnected", "--json").json()
        check(found["nodes"] == [], found)
        dxpu(fake, "list", "boxes", "--state", "free", status=USAGE)
        err = dxpu(fake, "list", "boxes", "--model", "nvme", status=USAGE).err
        check("boxes cannot be chosen by --model" in err, err)
        plain(fake, "list", "leases", "--node", "nobody", status=REFUSED)
        dxpu(fake, "list", "shoes", status=USAGE)
        fake.routes["GET /v1/hosts"] = (403, problem(403, "not for you"))
        err = dxpu(fake, "list", "leases", "--node", "host12", status=REFUSED).err
        check("by its number" in err, err)


@case
def pages():
    def page(request):
        after = request["query"].get("after", "10.0")
        first = int(after.split(".")[1]) + 1
        rows = [slot("10.%d" % n) for n in range(first, first + 3)]
        return dict(slots=rows, next="10.%d" % (first + 2) if first < 7 else None)

    def numbered(request):
        after = int(request["query"].get("after", 0))
        return dict(nodes=[node(after + 1)], next=after + 1 if after < 4 else None)
    with Fake({"GET /v1/slots": page, "GET /v1/boxes": numbered}) as fake:
        whole = dxpu(fake, "list", "slots", "--json", "--state", "free").json()
        check([s["slot"] for s in whole["slots"]] == ["10.%d" % n for n in range(1, 10)], whole)
        check(whole["next"] is None, whole["next"])
        asked = fake.asked("GET /v1/slots")
        check(len(asked) == 3 and all(r["query"]["state"] == "free" for r in asked), asked)
        check(len(dxpu(fake, "list", "slots").out.splitlines()) == 10)
        check(len(dxpu(fake, "list", "boxes").out.splitlines()) == 6)


@case
def pages_without_end():
    endless = {"GET /v1/slots": dict(slots=[], next="10.1"),
               "GET /v1/events": dict(events=[event(1)], next=1)}
    with Fake(endless) as fake:
        check("does not end" in dxpu(fake, "list", "slots", status=CONNECTION).err)
        check("malformed or endless" in dxpu(fake, "events", status=CONNECTION).err)
        check(len(fake.requests) < 5, len(fake.requests))


@case
def pages_of_more_than_was_asked_for():
    """Rows of a page and bytes of a list are bounded, and what is kept with them; how many pages,
    fuzz_answers sees."""
    def growing(rows, padding=0):
        count = [0]

        def page(_):
            count[0] += 1
            return Raw(json.dumps(dict(slots=[slot("10.1")] * rows, next="%d.1" % count[0]))
                       .encode() + b" " * padding)
        return page
    for rows, padding, most in ((501, 0, 1), (500, 15 << 20, 18)):
        with Fake({"GET /v1/slots": growing(rows, padding)}) as fake:
            binary = PLAIN if padding else BIN  # 18 pages of 15 MB
            err = dxpu(fake, "list", "slots", status=CONNECTION, binary=binary).err
            check("does not end" in err and len(fake.requests) <= most, err, len(fake.requests))
    with Fake({"GET /v1/slots": dict(slots=[slot("10.1")] * 500, next=None)}) as fake:
        check(len(dxpu(fake, "list", "slots").out.splitlines()) == 501)  # the control
    many = dict(events=[event(30)] * 501, next=31)
    with Fake({"GET /v1/events": many}) as fake:
        check("malformed or endless" in dxpu(fake, "events", "--last", 2000, status=CONNECTION).err)


@case
def show():
    with Fake(everything()) as fake:
        out = dxpu(fake, "show", "node", 10).out
        check("identity" in out and "10.3" in out and "text of event 30." in out, out)
        check("text of event 20." not in out and "text of event 21." in out, "not the last ten")
        out = dxpu(fake, "show", "node", "host12").out
        check(re.search(r"(?m)^c3 +active", out) and "text of event" not in out, out)
        fake.requests.clear()
        out = dxpu(fake, "show", "slot", "10.3").out
        query = fake.one("GET /v1/events")["query"]
        check(query == dict(last="10", slot="10.3"), "all events are fetched for ten", query)
        check(re.search(r"(?m)^vendor_id +0x1b36$", out) and "text of event 30." in out, out)
        out = dxpu(fake, "show", "lease", "c3").out
        check("lease c3: slot 10.3 is slot 1 of host 12\n" in out and "text of event 30." in out,
              out)
        check(re.search(r"(?m)^replace +yes$", out), out)
        check(dxpu(fake, "show", "slot", "10.3", "--json").json() == slot())
        check(dxpu(fake, "show", "slot", "box10.3", "--json").json() == slot())
        check("none of the boxes" in dxpu(fake, "show", "slot", "host12.3", status=REFUSED).err)
        check(plain(fake, "show", "lease", "c3", "--json").json() == lease())
        check(plain(fake, "show", "node", "box10", "--json").json() == node())
        err = plain(fake, "show", "lease", "c4", status=REFUSED).err
        check("no /v1/leases/c4 here" in err and "dxpu list" in err, err)
        for words in (("slot", "10"), ("slot", "10.x"), ("slot", "10.3/../4"), ("lease", "C3"),
                      ("lease", "xyz"), ("lease", "1" * 17), ("thing", "1"), ("slot",)):
            dxpu(fake, "show", *words, status=USAGE, binary=BIN)


# ---- Both sides of the interface ----

ALONE = [  # options and values that no other case asks for
    ("list", "leases", "--state", "active", "--tenant", "t", "--node", 12),
    ("lease", "create", "--host", 12, "--model", "nvme", "--count", 64, "--need", "spread",
     "--tenant", "t", "--for", "1w", "--key", "k", "--no-replace"),
    ("lease", "create", "--host", 12, "--model", "nvme", "--device", "whole", "--exclusive",
     "--apart"),
    ("break", "10.3", "--all"), ("replace", "10.3", "--force"), ("rekey", "host12"),
    ("spares", "nvme", 0), ("events", "--last", 5, "--node", 10),
]


def wrong_request(r):
    """What spec/openapi.yaml has against a request; None: nothing."""
    operation = openapi.find(DOC, r["method"], r["path"])
    if operation is None:
        return "no such operation"
    parameters = [openapi.resolve(DOC, p) for p in operation.get("parameters", [])]
    known = {p["name"]: p["schema"] for p in parameters if p["in"] == "query"}
    for name, value in r["query"].items():
        if name not in known:
            return "no such parameter: " + name
        kind = openapi.resolve(DOC, known[name])["type"]
        problem_ = openapi.valid(DOC, known[name], int(value) if kind == "integer" else value, name)
        if problem_:
            return problem_
    if r["body"] is None:
        return None
    body = openapi.resolve(DOC, operation["requestBody"])["content"]["application/json"]
    return openapi.valid(DOC, body["schema"], r["body"], "body")


@case
def requests_are_as_specified():
    """Those of all other cases as well: their fakes check them."""
    routes = dict(everything(), **{
        "POST /v1/leases": created(lease()), "DELETE /v1/nodes/12/key": node(12, "host"),
        "POST /v1/slots/10.3/break": slot(), "POST /v1/slots/10.3/replace": slot(),
        "PUT /v1/models/nvme/spares": dict(model="nvme", count=0)})
    with Fake(routes) as fake:
        for words in ALONE:
            dxpu(fake, *words)
        r = fake.requests[-1]
    check(wrong_request(dict(r, query={"strange": "1"})), "it sees no wrong query")
    check(wrong_request(dict(r, path="/v1/strange")), "it sees no wrong path")
    check(wrong_request(dict(r, method="POST", path="/v1/leases", query={},
                             body=dict(host="12"))), "it sees no wrong body")
    try:  # the control of all fakes
        with Fake() as fake, urllib.request.urlopen(fake.url + "/v1/strange", timeout=10):
            pass
    except urllib.error.HTTPError:
        pass
    check(len(fake.wrong) == 1 and fake.wrong[0].endswith("no such operation"), fake.wrong)
    try:
        fake.__exit__()
    except AssertionError:
        return
    raise AssertionError("a fake's end does not tell")


@case
def the_fake_answers_as_specified():
    doc = openapi.read()
    with Fake(everything()) as fake:
        for path in everything():
            target = path.split(" ")[1]
            with urllib.request.urlopen(fake.url + target, timeout=10) as answer:
                found = openapi.wrong(doc, "GET", target, answer.status,
                                      answer.headers["Content-Type"], answer.read())
            check(not found, path, found)


# ---- Changing ----

def created(found, **more):
    def answer(_):
        return 201, dict(found, **more)
    return answer


@case
def lease_create():
    with Fake(everything()) as fake:
        fake.routes["POST /v1/leases"] = created(lease())
        out = dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme").out
        check(out == "lease c3: slot 10.3 is slot 1 of host 12\n", out)
        r = fake.one("POST /v1/leases")
        check(r["body"] == dict(host=12, model="nvme", count=1, need="any"), r["body"])
        check(r["headers"]["Content-Type"] == "application/json" and not r["query"], r["headers"])
        fake.requests.clear()
        done = dxpu(fake, "lease", "create", "--host", "host12", "--model", "nvme", "--count", 2,
                    "--need", "same-group", "--tenant", "t", "--for", "2h", "--key", "job-7",
                    "--no-replace", "--attributes", "rack=7,render=none", "--json")
        check(done.json() == lease(), done)
        body = fake.one("POST /v1/leases")["body"]
        check(body == dict(host=12, model="nvme", count=2, need="same_group", tenant="t",
                           seconds=7200, replace=False, key="job-7",
                           attributes="rack=7,render=none"), body)
        fake.requests.clear()
        dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme", "--device", "function",
             "--exclusive", "--apart", "--peer", "c9")
        body = fake.one("POST /v1/leases")["body"]
        check(body == dict(host=12, model="nvme", count=1, need="any", device="function",
                           exclusive=True, apart=True, peer="c9"), body)
        dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme", "--peer", "10.3",
             status=USAGE)
        dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme", "--device", "half",
             status=USAGE)
        err = dxpu(fake, "lease", "create", "--host", "twin", "--model", "nvme",
                   status=REFUSED).err
        check("several of the hosts" in err, err)
        dxpu(fake, "lease", "create", "--host", "nobody", "--model", "nvme", status=REFUSED)
        for words in (("--host", 12), ("--model", "nvme"), (),
                      ("--host", 12, "--model", "nvme", "--need", "near"),
                      ("--host", 12, "--model", "nvme", "--count", 0),
                      ("--host", 12, "--model", "nvme", "--for", "2y"),
                      ("--host", 12, "--model", "nvme", "--for", "0s"),
                      ("--host", 12, "--model", "nvme", "--for", "99999999999999999999d"),
                      ("--host", 12, "--model", "nvme", "more"),
                      ("--host", 12, "--model", "nvme", "--keep")):
            dxpu(fake, "lease", "create", *words, status=USAGE, binary=BIN)
        check(len(fake.asked("POST")) == 1, "asked in spite of wrong usage")


@case
def lease_create_times():
    with Fake(everything()) as fake:
        fake.routes["POST /v1/leases"] = created(lease())
        for text, seconds in (("90", 90), ("90s", 90), ("30m", 1800), ("7d", 604800),
                              ("1w", 604800)):
            plain(fake, "lease", "create", "--host", 12, "--model", "nvme", "--for", text)
            check(fake.asked("POST")[-1]["body"]["seconds"] == seconds, text)


@case
def lease_create_wait():
    with Fake(everything()) as fake:
        phases = iter(["binding", "binding", "attaching"])

        def look(_):
            phase = next(phases, "up")
            return lease(state="active" if phase == "up" else "pending", phase=phase)
        fake.routes["POST /v1/leases"] = created(lease(state="pending", phase="binding"))
        fake.routes["GET /v1/leases/c3"] = look
        done = dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme", "--wait")
        check(done.out == "lease c3: slot 10.3 is slot 1 of host 12\n", done)
        check(done.err.replace("dxpu lease create: ", "").splitlines() ==
              ["lease c3: pending, slot 10.3 binding", "lease c3: pending, slot 10.3 attaching"],
              done)
        fake.routes["GET /v1/leases/c3"] = lease(state="pending", phase="binding")
        words = ("lease", "create", "--host", 12, "--model", "nvme")
        done = dxpu(fake, *words, "--wait", 1, status=REFUSED)
        fake.routes["GET /v1/leases/c3"] = lease(state="pending", host_connected=False,
                                                 need_kept=False)
        err = dxpu(fake, *words, "--wait", 0, status=REFUSED).err
        check("its host is disconnected" not in err, "only the last answer says it", err)
        err = dxpu(fake, *words, "--wait", 1, status=REFUSED).err
        check("its host is disconnected" in err, err)
        out = dxpu(fake, "show", "lease", "c3").out
        check("host disconnected" in out and "not met" in out, out)
        fake.routes["GET /v1/leases/c3"] = lease(state="pending", phase="binding")
        check("not up in time" in done.err and "dxpu show lease c3" in done.err, done)
        done = dxpu(fake, *words, "--wait=0", "--json", status=REFUSED)
        check(done.json()["state"] == "pending", done)
        done = dxpu(fake, *words)
        check(done.out == "lease c3: slot 10.3 for slot 1 of host 12: binding\n", done)


@case
def lease_wait_survives_the_manager():
    """The lease is durable: a manager that is killed and started again is asked again."""
    fake = Fake(everything())
    fake.routes["POST /v1/leases"] = created(lease(state="pending", phase="binding"))
    fake.routes["GET /v1/leases/c3"] = lease(state="pending", phase="binding")
    p = subprocess.Popen([BIN, "lease", "create", "--host", "12", "--model", "nvme", "--wait"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(fake))
    until(lambda: fake.asked("GET /v1/leases/c3"), "the lease is looked at")
    fake.__exit__()
    time.sleep(0.5)
    with Fake({"GET /v1/leases/c3": lease()}, port=fake.port):
        out, err = p.communicate(timeout=30)
    check(p.returncode == 0 and b"is slot 1 of host 12" in out, out, err)


@case
def a_wait_does_not_take_a_standby_for_the_leader():
    """What slots do at their boxes is null there: neither a failure, nor the end of a drain."""
    released, drained = dict(lease="c3", state="released", slots=[]), dict(node=10, left=0)
    for words, state, change, answer, listed in (
            (("lease", "release", "c3"), "wiping", "DELETE /v1/leases/c3", released,
             lambda one: ("GET /v1/slots/10.3", one)),
            (("drain", "10"), "quarantined", "PUT /v1/boxes/10/drain", drained,
             lambda one: ("GET /v1/slots", dict(slots=[one], next=None)))):
        with Fake(everything()) as leader, Fake(everything()) as standby:
            leader.routes.update({"GET /v1/health": dict(status="up", role="leader"),
                                  change: answer})
            standby.routes["GET /v1/health"] = dict(status="up", role="standby")
            path, seen = listed(slot(state=state, lease=None, box_state="wiping"))
            leader.routes[path] = seen
            standby.routes.update([listed(slot(state=state, lease=None, box_state=None,
                                               connected=None, health=None))])
            with subprocess.Popen([BIN, *words, "--wait", "--manager",
                                   leader.url + "," + standby.url], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=environment(None)) as p:
                until(lambda: leader.asked(path), "the slot is looked at")
                leader.routes["GET /v1/health"] = dict(status="up", role="standby")
                leader.routes[path] = (503, problem(503, "it may lead", "/problems/leader"))
                until(lambda: standby.asked(path), "no manager leads")
                time.sleep(0.5)
                check(p.poll() is None, words, "it waits no longer")
                standby.routes["GET /v1/health"] = dict(status="up", role="leader")
                standby.routes.update([listed(slot(state="free", lease=None, dirty=False,
                                                   box_state="wiped"))])
                out, err = p.communicate(timeout=30)
            check(p.returncode == DONE and b"no manager leads now" in err, words, out, err)


@case
def lease_release():
    with Fake(everything()) as fake:
        fake.routes["DELETE /v1/leases/c3"] = dict(lease="c3", state="released")
        done = dxpu(fake, "lease", "release", "c3")
        check(done.out == "lease c3: released\n", done)
        r = fake.one("DELETE")
        check(not r["query"] and r["body"] is None, r)
        fake.routes["DELETE /v1/leases/c3"] = dict(lease="c3", state="released", slots=[])
        states = iter(["wiping", "wiping"])
        fake.routes["GET /v1/slots/10.3"] = lambda _: slot(state=next(states, "free"), lease=None)
        done = dxpu(fake, "lease", "release", "c3", "--wait", 30, "--json")
        check(done.json() == dict(lease="c3", state="released", slots=[]), done)
        check("slot 10.3: wiping" in done.err and "slot 10.3: free" in done.err, done)
        fake.routes["GET /v1/slots/10.3"] = slot(state="wiping", lease=None)
        check("not done in time" in dxpu(fake, "lease", "release", "c3", "--wait", 0,
                                         status=REFUSED).err)
        fake.routes["GET /v1/slots/10.3"] = slot(state="quarantined", lease=None)
        err = dxpu(fake, "lease", "release", "c3", "--wait", status=REFUSED).err
        check("could not be wiped" in err and "dxpu repair 10.3" in err, err)
        hidden = {k: None for k in ("state", "reason", "dirty", "epoch", "lease", "health",
                                    "box_state", "connected", "node_name", "serial")}
        fake.routes["GET /v1/slots/10.3"] = slot(**hidden)
        err = dxpu(fake, "lease", "release", "c3", "--wait", status=REFUSED).err
        check("shown to operators" in err, err)
        # Broken, and its data as they were: no success, whoever declared it so.
        for reason in ("device", "operator"):
            fake.routes["GET /v1/slots/10.3"] = slot(state="broken", reason=reason, lease=None)
            done = dxpu(fake, "lease", "release", "c3", "--wait", status=REFUSED,
                        binary=BIN if reason == "device" else PLAIN)
            check("broken (%s)" % reason in done.err and "released" not in done.out, done)
        fake.routes["GET /v1/slots/10.3"] = slot(state="broken", reason="device", lease=None,
                                                 dirty=False)
        check(dxpu(fake, "lease", "release", "c3", "--wait").out == "lease c3: released\n")
        away = iter([dict(state="broken", reason="box", connected=False)] * 2)
        fake.routes["GET /v1/slots/10.3"] = lambda _: slot(lease=None, **next(
            away, dict(state="free", dirty=False)))
        done = dxpu(fake, "lease", "release", "c3", "--wait", 30)
        check("slot 10.3: broken (at its box: disconnected)" in done.err, done)
        fake.routes["GET /v1/slots/10.3"] = slot(state="broken", reason="box", connected=False,
                                                 lease=None)
        err = dxpu(fake, "lease", "release", "c3", "--wait", 0, status=REFUSED).err
        check("not done in time: its box is disconnected" in err, err)
        boxes = iter(["up", "up"])
        fake.requests.clear()
        fake.routes["GET /v1/slots/10.3"] = lambda _: slot(box_state=next(boxes, "kept"))
        fake.routes["DELETE /v1/leases/c3"] = dict(lease="c3", state="ended", slots=[])
        done = dxpu(fake, "lease", "release", "c3", "--keep", "--wait")
        check(done.out == "lease c3: ended; its data are retained: 'dxpu lease recover'\n", done)
        check(fake.one("DELETE")["query"] == dict(data="keep"))
        check(len(fake.asked("GET /v1/slots/10.3")) == 3)
        # a lease without data is over all the same: its slot is waited for until it is wiped
        states = iter(["wiping"])
        fake.requests.clear()
        fake.routes["DELETE /v1/leases/c3"] = dict(lease="c3", state="released", slots=[])
        fake.routes["GET /v1/slots/10.3"] = lambda _: slot(
            box_state="kept", lease=None, state=next(states, "free"))
        done = dxpu(fake, "lease", "release", "c3", "--keep", "--wait")
        check(done.out == "lease c3: released\n", done)
        check(len(fake.asked("GET /v1/slots/10.3")) == 2)


@case
def lease_park():
    with Fake(everything()) as fake:
        boxes = iter(["up"])
        fake.routes["GET /v1/slots/10.3"] = lambda _: slot(box_state=next(boxes, "kept"))
        fake.routes["POST /v1/leases/c3/park"] = dict(lease="c3", state="parked", slots=[])
        done = dxpu(fake, "lease", "park", "c3", "--wait")
        check(done.out == "lease c3: parked; it keeps its data: 'dxpu lease attach'\n", done)
        check(len(fake.asked("GET /v1/slots/10.3")) == 2)
        check(not fake.asked("GET /v1/erasures"))
        dxpu(fake, "lease", "park", "3c", status=REFUSED)
        dxpu(fake, "lease", "park", "C3", status=USAGE)


@case
def lease_extend_and_attach():
    with Fake(everything()) as fake:
        fake.routes["PATCH /v1/leases/c3"] = lease(expires_at="2026-01-02T05:04:05.678Z")
        out = dxpu(fake, "lease", "extend", "c3", "--for", "2h").out
        check(out == "lease c3: ends at 2026-01-02 05:04:05Z\n", out)
        check(fake.one("PATCH")["body"] == dict(seconds=7200), fake.one("PATCH"))
        fake.routes["PATCH /v1/leases/c3"] = lease()
        out = dxpu(fake, "lease", "extend", "c3", "--no-end").out
        check("when it is released" in out and
              fake.asked("PATCH")[-1]["body"] == dict(seconds=None), out)
        dxpu(fake, "lease", "extend", "c3", status=USAGE)
        dxpu(fake, "lease", "extend", "c3", "--for", "1h", "--no-end", status=USAGE)
        fake.routes["POST /v1/leases/c3/attach"] = lease()
        out = dxpu(fake, "lease", "attach", "c3", "--host", "host12").out
        check("is slot 1 of host 12" in out, out)
        check(fake.one("POST")["body"] == dict(host=12), fake.one("POST"))
        dxpu(fake, "lease", "attach", "c3", status=USAGE)
        dxpu(fake, "lease", "sell", "c3", status=USAGE)
        dxpu(fake, "lease", status=USAGE)


@case
def drain():
    with Fake(everything()) as fake:
        answer = dict(node=10, draining=True, left=2)
        fake.routes["PUT /v1/boxes/10/drain"] = answer
        out = dxpu(fake, "drain", "box10", "--move").out
        check("draining, 2 slots are leased" in out, out)
        check(fake.one("PUT")["body"] == dict(on=True, move=True), fake.one("PUT"))
        check("2 leased slots stay" in dxpu(fake, "drain", "box10", "--move").err)
        check("their data in this box are WIPED"
              in " ".join(plain(fake, "drain", "--help").out.split()))
        free = dict(state="free", lease=None)
        stages = iter([[slot()] * 2, [slot()], [slot()], [slot(state="broken")],
                       [slot(state="wiping", lease=None)], [slot(**free)],
                       [slot(box_state="held", **free)], [slot(box_state="closing", **free)],
                       [slot(box_state="wiping", **free)], [slot(box_state="kept", **free)]])
        idle = slot(box_state="wiped", **free)
        fake.routes["GET /v1/slots"] = lambda _: dict(slots=next(stages, []) + [idle], next=None)
        done = dxpu(fake, "drain", 10, "--wait", "--json")
        check(done.json() == answer and not list(stages), done)
        told = re.findall(r"(\d) slots leased, (\d) wiping, (\d) held", done.err)
        check(told == [("2", "0", "0"), ("1", "0", "0"), ("0", "1", "0"), ("0", "0", "1"),
                       ("0", "0", "0")], done)
        fake.routes["GET /v1/slots"] = dict(slots=[slot(), slot("10.4", connected=False)],
                                            next=None)
        err = dxpu(fake, "drain", 10, "--wait", 0, status=REFUSED).err
        check("(10.3 leased, 10.4 leased (its box is disconnected))" in err, err)
        fake.routes["GET /v1/slots"] = dict(slots=[idle], next=None)
        check("box 10: drained" in dxpu(fake, "drain", 10, "--wait").out)

        def page(request):  # the second one holds what is left
            if "after" not in request["query"]:
                return dict(slots=[idle], next="10.3")
            return dict(slots=[slot("10.4")], next=None)
        fake.routes["GET /v1/slots"] = page
        check("10.4 leased" in dxpu(fake, "drain", 10, "--wait", 0, status=REFUSED).err)
        fake.routes["GET /v1/slots"] = dict(slots=[], next="10.3")
        check("does not end" in dxpu(fake, "drain", 10, "--wait", status=CONNECTION).err)
        check("back in service" in dxpu(fake, "drain", 10, "--off").out)
        check(fake.asked("PUT")[-1]["body"] == dict(on=False, move=False))
        dxpu(fake, "drain", 10, "--off", "--move", status=USAGE)
        check("--wait" in dxpu(fake, "drain", "--wait", 10, status=USAGE).err)


@case
def drain_that_leaves_leases():
    """What --move leaves is reported, with the manager's reason, and not waited for."""
    with Fake(everything()) as fake:
        fake.routes["PUT /v1/boxes/10/drain"] = dict(node=10, draining=True, left=3)
        stay = [slot(), slot("10.4"), slot("10.5", lease="c4")]
        moved = dict(state="wiping", lease=None)
        stages = iter([stay, stay + [slot("10.6", **moved)]])
        fake.routes["GET /v1/slots"] = lambda _: dict(slots=next(stages, stay), next=None)
        fake.routes["GET /v1/events"] = events_route(
            [event(n, type="node.drain", slot=where, text=text) for n, (where, text) in enumerate((
                ("10.3", "its lease stays: an old reason"), ("10.3", "its lease stays: kept here"),
                ("10.5", "its lease stays: none is free")), 1)])
        done = dxpu(fake, "drain", 10, "--move", "--wait", status=REFUSED)
        check("lease c3 stays (slot 10.3): kept here\n" in done.err, done)
        check("lease c4 stays (slot 10.5): none is free\n" in done.err, done)
        check(done.err.count(" stays (slot") == 2, done)
        check("3 slots leased, 1 wiping" in done.err, "the wipe was not waited for", done)
        check("3 leased slots stay (10.3 leased, 10.4 leased, 10.5 leased)" in done.err, done)
        done = dxpu(fake, "drain", 10, "--move", "--wait", "--json", status=REFUSED)
        check(done.json()["left"] == 3, done)
        idle = slot(state="free", lease=None, box_state="wiped")  # they have ended meanwhile
        fake.routes["GET /v1/slots"] = dict(slots=[idle], next=None)
        check("box 10: drained" in dxpu(fake, "drain", 10, "--move", "--wait").out)


@case
def lease_in_a_disconnected_box():
    with Fake(everything()) as fake:
        create = ("lease", "create", "--host", 12, "--model", "nvme")
        found = lease(state="pending", phase="binding")
        fake.routes["POST /v1/leases"] = created(found)
        check("disconnected" not in plain(fake, *create).out, "the control")
        found["slots"][0]["box_connected"] = False
        fake.routes["POST /v1/leases"] = created(found)
        fake.routes["GET /v1/leases/c3"] = found
        out = dxpu(fake, *create).out
        check(out == "lease c3: slot 10.3 for slot 1 of host 12: "
              "binding (its box is disconnected)\n", out)
        check(plain(fake, *create, "--json").json()["slots"][0]["box_connected"] is False)
        err = dxpu(fake, *create, "--wait", 0, status=REFUSED).err
        check("slot 10.3 binding (its box is disconnected)" in err
              and "a box of it is disconnected" in err, err)


@case
def backup():
    kind = {"Content-Type": "text/plain"}
    text = b'{"dxpu-export":1}\n{"records":0,"crc":"1c291ca3"}\n'
    with tempfile.TemporaryDirectory() as folder, Fake({}) as fake:
        path = os.path.join(folder, "b")
        fake.routes["GET /v1/snapshot"] = Raw(text, **kind)
        check("%d bytes" % len(text) in dxpu(fake, "backup", path).out)
        with open(path, "rb") as f:
            check(f.read() == text)
        check(dxpu(fake, "backup", path, "--json").json() == dict(file=path, bytes=len(text)))
        for other in (b"", b"{}", b"no export"):  # the file stays
            fake.routes["GET /v1/snapshot"] = Raw(other, **kind)
            check("not a copy" in dxpu(fake, "backup", path, status=CONNECTION).err, other)
        with open(path, "rb") as f:
            check(f.read() == text)
        dxpu(fake, "backup", status=USAGE)


@case
def adoption():
    def adopted(dry, **more):
        rows = [dict(slot="10.3", what="lease", lease=None if dry else "c9", host=12, host_slot=1,
                     why=None),
                dict(slot="10.4", what="back", lease="c3", host=12, host_slot=2, why=None,
                     tenant="alice", epoch=7, known_epoch=5),
                dict(slot="10.5", what="free", lease=None, host=None, host_slot=None, why=None),
                dict(slot="10.6", what="left", lease=None, host=None, host_slot=None, why="so")]
        return dict(dict(dry_run=dry, adopted=2, freed=1, left=1, more=False, slots=rows), **more)
    with Fake({"POST /v1/adopt": adopted(True)}) as fake:
        out = dxpu(fake, "adopt", "--all", "--dry-run").out
        check(out == "slot 10.3: would be a new lease, slot 1 of host 12\n"
              "slot 10.4: would be back in lease c3 of alice, slot 2 of host 12, under epoch "
              "7 after 5\n"
              "slot 10.5: would be free: its box has wiped it\nslot 10.6: left: so\n"
              "2 leases, 1 free, 1 left; nothing was changed (--dry-run)\n", out)
        check(fake.one("POST")["query"] == dict(dry_run="yes"), fake.requests)
        check(fake.one("POST")["body"] == {})
        fake.requests.clear()
        answers = [adopted(False, more=True), adopted(False)]
        fake.routes["POST /v1/adopt"] = lambda r: answers.pop(0)
        out = dxpu(fake, "adopt", "--all", "--tenant", "physics").out
        check("slot 10.4: back in lease c3 of alice, slot 2 of host 12; its device is in use, and "
              "a release of that lease erases its data\n" in out, out)
        check(out.count("slot 10.3: new lease c9, slot 1") == 2 and out.count("left: so") == 1
              and out.endswith("\n4 leases, 2 free, 1 left\n"), out)
        check([r["body"] for r in fake.asked("POST")] == [dict(tenant="physics")] * 2)
        fake.requests.clear()
        fake.routes["POST /v1/adopt"] = adopted(False)
        dxpu(fake, "adopt", "10.3")
        check(fake.one("POST")["query"] == dict(dry_run="no", slot="10.3"))
        check(dxpu(fake, "adopt", "--all", "--json").json() == adopted(False))
        for words in ((), ("10.3", "--all"), ("10.3", "10.4"), ("--dry-run",)):
            dxpu(fake, "adopt", *words, status=USAGE)


@case
def boxes_that_serve_no_lease():
    with Fake(everything()) as fake:
        create = ("lease", "create", "--host", 12, "--model", "nvme")
        found = lease(state="pending", phase="binding")
        found["slots"][0]["why"] = "its box refuses to bind it: state (3 times)"
        fake.routes["POST /v1/leases"] = created(found)
        fake.routes["GET /v1/leases/c3"] = found
        out = dxpu(fake, *create).out
        check(out == "lease c3: slot 10.3 for slot 1 of host 12: "
              "binding: its box refuses to bind it: state (3 times)\n", out)
        err = dxpu(fake, *create, "--wait", 0, status=REFUSED).err
        check("in time: slot 10.3: its box refuses to bind it" in err, err)
        fake.routes["GET /v1/leases/c3"] = lease(moved_from="10.2",
                                                 moved_why="its box did not bind it")
        out = dxpu(fake, "show", "lease", "c3").out
        check("lease c3: slot 10.2 was exchanged: its box did not bind it\n" in out, out)
        check("connected" in plain(fake, "list", "boxes").out, "the control")
        for lent, words in (("last", "it is lent last"), ("no", "it is not lent")):
            bad = node(suspect=dict(lent=lent, why="it hangs", since="2026-01-02T03:04:05.678Z"),
                       unreached_by=[12, 13])
            fake.routes["GET /v1/boxes"] = dict(nodes=[bad], next=None)
            fake.routes["GET /v1/nodes/10"] = bad
            check(re.search(r"box10 +suspect", plain(fake, "list", "boxes").out))
            out = dxpu(fake, "show", "node", 10, binary=BIN if lent == "no" else PLAIN).out
            check(re.search(r"suspect +it hangs; " + words, out) and "host 13" in out, out)


@case
def slot_commands():
    with Fake(everything()) as fake:
        for verb in ("replace", "break", "repair", "reset"):
            fake.requests.clear()
            fake.routes["POST /v1/slots/10.3/" + verb] = slot(state="broken")
            out = dxpu(fake, verb, "10.3").out
            wiped = "; what its lease had there is wiped" if verb == "replace" else ""
            check(out == "slot 10.3: broken%s\nlease c3: slot 10.3 is slot 1 of host 12\n" % wiped,
                  out)
            r = fake.one("POST")
            check(r["path"] == "/v1/slots/10.3/" + verb and not r["bytes"], r)
            again = dxpu if verb == "replace" else plain
            check(again(fake, verb, "10.3", "--json").json() == slot(state="broken"))
            check(again(fake, verb, "box10.3").out == out, "by its box's name")
            again(fake, verb, "box11.3", status=REFUSED)
            check(len(fake.asked("POST")) == 3, fake.asked("POST"))
            dxpu(fake, verb, "10", status=USAGE)
            dxpu(fake, verb, status=USAGE)


@case
def settings():
    with Fake(everything()) as fake:
        fake.routes["PUT /v1/tenants/a%2Fb%3F"] = dict(tenant="a/b?", quota=8)
        fake.routes["PUT /v1/tenants/.."] = dict(tenant="..", quota=None)
        fake.routes["PUT /v1/models/nvme/spares"] = dict(model="nvme", count=2)
        fake.routes["DELETE /v1/nodes/10"] = (204, Raw(b""))
        check(dxpu(fake, "tenant", "a/b?", "--quota", 8).out == "tenant a/b?: quota 8\n")
        check(fake.one("PUT")["body"] == dict(quota=8))
        dxpu(fake, "tenant", "..", "--quota", "none")
        check(fake.asked("PUT")[-1]["body"] == dict(quota=None), "a dot segment was lost")
        check("2 spares" in dxpu(fake, "spares", "nvme", 2).out)
        check(fake.asked("PUT")[-1]["body"] == dict(count=2))
        dxpu(fake, "spares", "nvme", "--failures-per-year", "0.05", "--repair-days", 7)
        check(fake.asked("PUT")[-1]["body"] ==
              dict(failures_per_year=0.05, repair_days=7.0, risk=0.001))
        for words in (("--failures-per-year", "x", "--repair-days", 7),
                      ("--failures-per-year", 1), (2, "--failures-per-year", 1)):
            dxpu(fake, "spares", "nvme", *words, status=USAGE)
        fake.routes["PUT /v1/hosts/12/owner"] = lambda r: node(12, "host", **r["body"])
        check(dxpu(fake, "owner", "host12", "physics").out == "host 12: tenant physics\n")
        check(fake.asked("PUT")[-1]["body"] == dict(owner="physics"))
        check(dxpu(fake, "owner", 12, "--no-owner").out == "host 12: no owner\n")
        check(fake.asked("PUT")[-1]["body"] == dict(owner=None))
        for words in ((12,), (12, "physics", "--no-owner"), (), ("--no-owner",)):
            dxpu(fake, "owner", *words, status=USAGE)
        check(dxpu(fake, "forget", "box10").out == "node 10: forgotten\n")
        fake.one("DELETE /v1/nodes/10")
        fake.routes["DELETE /v1/nodes/10/key"] = lambda r: node(10)
        check(dxpu(fake, "rekey", "box10").out == "node 10: its next key is its key\n")
        fake.one("DELETE /v1/nodes/10/key")
        for words in (("tenant", "t"), ("tenant", "t", "--quota", "-1"), ("spares", "nvme"),
                      ("tenant", "", "--quota", 1), ("spares", "nvme", "x"), ("forget",),
                      ("rekey",)):
            dxpu(fake, *words, status=USAGE)


@case
def direct_requests():
    with Fake(everything()) as fake:
        fake.routes["PUT /v1/boxes/10/direct"] = node()
        fake.routes["PUT /v1/tenants/t"] = dict(tenant="t", quota=None, used=0, direct=False)
        for words, body, out in (
                (("direct", "box10", "--off"), dict(on=False),
                 "box 10: its devices reach others through their hosts alone\n"),
                (("direct", 10), dict(on=True),
                 "box 10: its devices may reach others directly\n"),
                (("tenant", "t", "--no-direct"), dict(direct=False),
                 "tenant t: its devices reach one another through hosts alone\n"),
                (("tenant", "t", "--direct", "--quota", 3), dict(direct=True, quota=3),
                 "tenant t: quota 3\ntenant t: its devices may reach one another directly\n")):
            fake.requests.clear()
            done = dxpu(fake, *words)
            check(done.out == out and fake.one("PUT ")["body"] == body, words, done)
        dxpu(fake, "tenant", "t", "--direct", "--no-direct", status=USAGE)
        dxpu(fake, "direct", status=USAGE)
        fake.routes["GET /v1/leases/c3"] = lease(
            peer="c4", peers=[dict(lease="c4", way="box"), dict(lease="c5", way="boxes"),
                              dict(lease="c6", way="host")], direct="ordered")
        out = dxpu(fake, "show", "lease", "c3").out
        check(re.search(r"(?m)^direct +ordered$", out) and "lease c4: inside one box" in out and
              "lease c5: from box to box" in out and "lease c6: through the host" in out, out)


@case
def refusals():
    with Fake(everything()) as fake:
        words = ("lease", "create", "--host", 12, "--model", "nvme")
        quota = problem(409, "the tenant's quota is used up; release a lease", "/problems/quota")
        fake.routes["POST /v1/leases"] = (409, quota)
        done = dxpu(fake, *words, status=REFUSED)
        check(done.err == "dxpu lease create: refused: the tenant's quota is used up; release a "
              "lease\n" and not done.out, done)
        check(dxpu(fake, *words, "--json", status=REFUSED).json() == quota)
        for status, remedy in ((401, "DXPU_TOKEN"), (403, "another token"), (503, "try again")):
            fake.routes["POST /v1/leases"] = (status, problem(status, "no"))
            check(remedy in plain(fake, *words, status=REFUSED).err, status)
        fake.routes["POST /v1/leases"] = (409, dict(title="Only a title", status=409))
        check("Only a title" in dxpu(fake, *words, status=REFUSED).err)
        for answer in (Raw(b"<html>", Content_Type="text/html"), Raw(b""), dict(detail=7), []):
            fake.routes["POST /v1/leases"] = (502, answer)
            check("not a dxpu-manager" in dxpu(fake, *words, status=CONNECTION).err, answer)


@case
def no_connection():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # no listener
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        at = ("--manager", url, "--retry", 0)
        done = dxpu(None, "pool", *at, status=CONNECTION)
        check("is dxpu-manager running?" in done.err and not done.out, done)
        check("tried last" not in done.err, done)
        both = url + "," + url
        done = dxpu(None, "pool", "--manager", both, "--retry", 0, status=CONNECTION)
        check("%s (tried last of %s): " % (url, both) in done.err, done)
        dxpu(None, "top", *at, status=CONNECTION)
        dxpu(None, "events", "--follow", *at, status=CONNECTION)
        check("is unknown" not in dxpu(None, "lease", "release", "c3", *at, "--yes",
                                       status=CONNECTION).err, "nothing can have been done")
    with socket.socket() as s:  # one that accepts and says nothing
        s.bind(("127.0.0.1", 0))
        s.listen()
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        done = dxpu(None, "lease", "release", "c3", "--manager", url, "--timeout", 1, "--yes",
                    status=CONNECTION)
        check("is unknown whether" in done.err, done)
    for url in ("ftp://127.0.0.1", "127.0.0.1:4456/x", "http://u:p@127.0.0.1", "http://",
                "http://127.0.0.1/?a=b", "http://127.0.0.1:99999", "x" * 600, "http://127.0.0.1#x"):
        dxpu(None, "pool", "--manager", url, status=USAGE, binary=BIN if "x" in url else PLAIN)


@case
def changes_are_asked_for_once():
    """A connection that breaks before the answer: its result is unknown, nothing is repeated."""
    def nothing(_):
        raise ConnectionError
    with Fake(everything()) as fake:
        for words, start in ((("lease", "create", "--host", "host12", "--model", "nvme"), "POST"),
                             (("drain", "box10"), "PUT"), (("lease", "release", "c3"), "DELETE"),
                             (("lease", "extend", "c3", "--no-end"), "PATCH")):
            path = {"POST": "/v1/leases", "PUT": "/v1/boxes/10/drain"}.get(start, "/v1/leases/c3")
            fake.routes["%s %s" % (start, path)] = nothing
            err = dxpu(fake, *words, status=CONNECTION).err
            check("it is unknown whether it was done" in err, err)
            fake.one(start)


def passing(status, found, times=2, problem_=None):
    """A route that refuses so often, and then answers."""
    left = [times]

    def answer(_):
        if not left[0]:
            return status, found
        left[0] -= 1
        if problem_ is None:
            raise ConnectionError
        return problem_["status"], Raw(json.dumps(problem_).encode(), Retry_After="1",
                                       Content_Type="application/problem+json")
    return answer


@case
def what_passes_is_tried_again():
    """Reads and leases with a key after anything that passes; other changes after a refusal that
    says that nothing was done.  The controls: --retry 0, and what does not pass."""
    busy, starting, store = (problem(503, "later", "/problems/" + kind)
                             for kind in ("busy", "starting", "store"))
    unkeyed = ("lease", "create", "--host", 12, "--model", "nvme")
    keyed = unkeyed + ("--key", "job-7")
    with Fake(everything()) as fake:
        def tried(words, method, path, refusal, status=DONE, *more, binary=PLAIN):
            good = fake.routes.get(method + " " + path) or lease()
            fake.routes[method + " " + path] = passing(201 if method == "POST" else 200, good, 2,
                                                       refusal)
            fake.requests.clear()
            done = dxpu(fake, *words, *more, status=status, binary=binary)
            fake.routes[method + " " + path] = good
            check("trying again" in done.err or status != DONE or more, done)
            return len(fake.asked(method + " " + path))

        check(tried(("pool",), "GET", "/v1/pool", None, binary=BIN) == 3)
        check(tried(("pool",), "GET", "/v1/pool", store) == 3)
        check(tried(keyed, "POST", "/v1/leases", None) == 3)
        check(tried(keyed, "POST", "/v1/leases", store, binary=BIN) == 3)
        check(tried(unkeyed, "POST", "/v1/leases", busy, binary=BIN) == 3)
        check(tried(unkeyed, "POST", "/v1/leases", starting) == 3)
        check(tried(unkeyed, "POST", "/v1/leases", problem(429, "rate", "/problems/rate")) == 3)
        check(tried(unkeyed, "POST", "/v1/leases", store, REFUSED) == 1, "it may have been done")
        check(tried(unkeyed, "POST", "/v1/leases", None, CONNECTION) == 1, "it may have been done")
        check(tried(keyed, "POST", "/v1/leases", busy, REFUSED, "--retry", 0) == 1)
        check(tried(("pool",), "GET", "/v1/pool", None, CONNECTION, "--retry", 0) == 1)
        quota = problem(409, "the quota is used up", "/problems/quota")
        check(tried(keyed, "POST", "/v1/leases", quota, REFUSED) == 1, "it does not pass")
        for refusal, status in ((busy, REFUSED), (None, CONNECTION)):
            fake.routes["GET /v1/pool"] = passing(200, {}, 1000, refusal)
            begin = time.monotonic()
            dxpu(fake, "pool", "--retry", 2, status=status)
            check(time.monotonic() - begin < 30, "it tries for ever")


@case
def a_wait_ends_in_time():
    """--wait bounds the pause that an answer asks for, too."""
    with Fake(everything()) as fake:
        fake.routes["POST /v1/leases"] = created(lease(state="pending", phase="binding"))
        fake.routes["GET /v1/leases/c3"] = (503, Raw(
            json.dumps(problem(503, "later", "/problems/busy")).encode(), Retry_After="600",
            Content_Type="application/problem+json"))
        begin = time.monotonic()
        dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme", "--wait", 2, status=REFUSED)
        check(fake.asked("GET /v1/leases/c3"), "it asked")
        check(time.monotonic() - begin < 30, "it sleeps as long as the answer says")


@case
def a_manager_that_is_started_again_is_found():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    p = subprocess.Popen([BIN, "pool", "--manager", "127.0.0.1:%d" % port], env=environment(None),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(b"trying again" in p.stderr.readline())
    with Fake(everything(), port) as fake:
        out, _ = p.communicate(timeout=30)
        check(p.returncode == DONE and out and len(fake.asked("GET /v1/pool")) == 1, p.returncode)


@case
def certificates():
    """An unsigned one is not trusted, and no token is sent there."""
    with tempfile.TemporaryDirectory() as folder:
        key, cert = os.path.join(folder, "key"), os.path.join(folder, "cert")
        try:
            made = subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost",
                 "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-keyout", key,
                 "-out", cert], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                check=False).returncode
        except OSError:
            made = 1
        if made:
            return "openssl makes no certificate"
        with Fake(everything()) as fake:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            fake.server.socket = context.wrap_socket(fake.server.socket, server_side=True)
            url = fake.url.replace("http", "https")
            done = dxpu(None, "pool", "--manager", url, "--insecure", DXPU_TOKEN="t",
                        status=CONNECTION)
            check("certificate" in done.err and not fake.requests, done)
            trust = ssl.create_default_context(cafile=cert)  # the control: one who trusts it
            with urllib.request.urlopen(url + "/v1/pool", context=trust, timeout=10) as answer:
                check(answer.status == 200 and fake.requests)
    return None


@case
def manager_addresses():
    with Fake(everything()) as fake:
        for text in (fake.url, fake.url + "/", "127.0.0.1:%d" % fake.port,
                     "localhost:%d" % fake.port):
            dxpu(None, "pool", "--manager", text, binary=PLAIN if "http" in text else BIN)
            plain(None, "pool", DXPU_MANAGER=text)
        check(len(fake.requests) == 8)
        fake.routes["GET /prefix/v1/pool"] = pool()
        dxpu(None, "pool", "--manager", fake.url + "/prefix/")


# ---- Tokens ----

def token_file(folder, text, mode=0o600):
    path = os.path.join(folder, "token")
    with open(path, "wb") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


@case
def tokens():
    with Fake(everything()) as fake, tempfile.TemporaryDirectory() as folder:
        dxpu(fake, "pool", DXPU_TOKEN="secret-1")
        path = token_file(folder, b"secret-2\n")
        dxpu(fake, "pool", "--token-file", path, DXPU_TOKEN="secret-1")
        sent = [r["headers"]["Authorization"] for r in fake.requests]
        check(sent == ["Bearer secret-1", "Bearer secret-2"], sent)
        fake.requests.clear()
        for mode in (0o640, 0o604, 0o660, 0o644):
            os.chmod(path, mode)
            err = dxpu(fake, "pool", "--token-file", path, status=USAGE).err
            check("chmod 600" in err, err)
        for text in (b"", b"\n", b"two words\n", b"tab\there\n", b"\xc3\xa4\n", b"a\x00b\x01\n",
                     b"x\x1by\n"):
            os.remove(path)
            done = dxpu(fake, "pool", "--token-file", token_file(folder, text),
                        status=DONE if text.startswith(b"a\0") else USAGE, binary=BIN)
            check("\033" not in done.err, text)
        dxpu(fake, "pool", "--token-file", folder, status=USAGE)
        dxpu(fake, "pool", "--token-file", os.path.join(folder, "none"), status=USAGE)
        dxpu(fake, "pool", DXPU_TOKEN="a\r\nX: y", status=USAGE)
        dxpu(fake, "pool", DXPU_TOKEN="x" * 600, status=USAGE, binary=BIN)
        check(all(len(r["headers"].get_all("Authorization")) == 1 for r in fake.requests))


@case
def token_in_the_clear():
    for url in ("http://192.0.2.1:4456", "http://example.invalid", "http://127.0.0.1.invalid",
                "http://[::ffff:192.0.2.1]:4456", "192.0.2.1"):
        err = dxpu(None, "pool", "--manager", url, DXPU_TOKEN="t", status=USAGE, binary=BIN).err
        check("in the clear" in err, url, err)
    # controls: without a token, or when it is allowed, it is not the token that is in the way
    for words, env in (((), {}), (("--insecure",), dict(DXPU_TOKEN="t"))):
        done = plain(None, "pool", "--manager", "http://dxpu.invalid:4456", "--timeout", 5, *words,
                     status=CONNECTION, **env)
        check("in the clear" not in done.err, done)
    done = dxpu(None, "pool", "--manager", "https://127.0.0.1:1", DXPU_TOKEN="t",
                status=CONNECTION)
    check("in the clear" not in done.err, done)


@case
def redirects_are_not_followed():
    with Fake(everything()) as fake, Fake(everything()) as other:
        for status in (301, 302, 307, 308):
            fake.routes["GET /v1/pool"] = (status, Raw(b"", Location=other.url + "/v1/pool"))
            err = dxpu(fake, "pool", DXPU_TOKEN="secret", status=CONNECTION,
                       binary=BIN if status == 301 else PLAIN).err
            check("redirects to " + other.url in err, err)
        check(not other.requests, "it was followed")
        plain(other, "pool", DXPU_TOKEN="secret")
        check(other.requests, "the other one cannot see requests at all")
        fake.routes["GET /v1/pool"] = (302, Raw(b"", Location="http://x/\x1b]0;a\x07"))
        check("\033" not in dxpu(fake, "pool", status=CONNECTION).err)


@case
def proxies_of_the_environment_are_not_used():
    with Fake(everything()) as fake, Fake(everything()) as other:
        dxpu(fake, "pool", DXPU_TOKEN="secret", http_proxy=other.url, ALL_PROXY=other.url,
             all_proxy=other.url)
        check(fake.requests and not other.requests)


# ---- Answers that no manager gives ----

@case
def hostile_bytes():
    chunk = b'{"models":[' + b" " * (1 << 20)
    answers = {
        "text": Raw(b"hello"), "empty": Raw(b""), "array": [], "number": 7, "null": Raw(b"null"),
        "cut": Raw(b'{"models":[]', 400), "cut json": Raw(b'{"models":['),
        "twice": Raw(b'{"models":[],"models":[]}'), "nul": Raw(b'{"models":[],"a":"\\u0000"}'),
        "not utf-8": Raw(b'{"models":[],"a":"\xff\xfe"}'),
        "deep": Raw(b'{"models":' + b"[" * 100000), "huge": Raw(chunk * 17),
        "huge number": Raw(b'{"models":[],"epoch":' + b"9" * 400 + b"}"),
        "behind": Raw(b'{"models":[]} {}'),
    }
    with Fake() as fake:
        for n, (name, answer) in enumerate(answers.items()):
            fake.routes["GET /v1/pool"] = answer  # they read it by the same code, sanitized once
            for k, words in enumerate((("pool",), ("pool", "--json"), ("top",))):
                done = dxpu(fake, *words, status=CONNECTION, binary=PLAIN if (n + k) % 3 else BIN)
                check(len(done.err) < 2000 and not done.out, name, done)
        fake.routes["GET /v1/pool"] = dict(models=[])
        dxpu(fake, "pool")  # the control


@case
def hostile_server():
    """No HTTP, or not quite."""
    answers = [b"", b"\0" * 100, b"HTTP/1.1 200 OK\r\n", b"SSH-2.0-x\r\n", b"{}",
               b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
               b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2000000 + b"\r\n\r\n{}",
               b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
               b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 999 \x1b[2J\r\n\r\n",
               b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}"]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        for answer in answers:
            def serve(data=answer):
                peer = s.accept()[0]
                with peer:
                    peer.recv(65536)
                    try:
                        peer.sendall(data)
                    except OSError:
                        pass  # it had enough
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            done = dxpu(None, "pool", "--manager", url, "--retry", 0, status=CONNECTION)
            check("\033" not in done.err and len(done.err) < 2000, done)
            thread.join(10)


WRONG = [None, True, -1, 2 ** 62, 1.5, "text", "", [], [1], [None], [[]], {}, {"a": {}}]


def replay(inputs):
    """Command lines and answers, through fuzz/fuzz_answers.c: the same commands in one process."""
    with open(os.path.join(ROOT, "fuzz", "fuzz_answers.c"), encoding="utf-8") as f:
        text = f.read().split("static const char *const commands[] = {")[1].split("};")[0]
    commands = re.findall(r'"(.*)",', text)
    with tempfile.TemporaryDirectory() as folder:
        for n, (words, answers) in enumerate(inputs):
            with open(os.path.join(folder, "%d" % n), "wb") as f:
                f.write(bytes([commands.index(words), 0]) + b"".join(
                    b"d" + json.dumps(a).encode() + b"\xff" for a in answers))
        return subprocess.run([os.path.join(ROOT, "build", "san", "replay_fuzz_answers"), folder],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env=environment(None), timeout=300)


@case
def hostile_types():
    """Each member of each answer is once of each other type: nothing crashes.  Rows of lists are
    so in one list, and each is printed; of other answers one in 15 comes over HTTP, and all of
    them to the same code without it."""
    paths = {"GET /v1/pool": (("pool",), ("top",)), "GET /v1/boxes": (("list", "boxes"),),
             "GET /v1/nodes/10": (("show", "node", 10),),
             "GET /v1/slots": (("list", "slots"), ("drain", 10, "--wait", 0)),
             "GET /v1/slots/10.3": (("show", "slot", "10.3"),),
             "GET /v1/leases": (("list", "leases"),),
             "GET /v1/leases/c3": (("show", "lease", "c3"),),
             "GET /v1/events": (("events", "--after", 29),)}
    good = everything()
    good["PUT /v1/boxes/10/drain"] = dict(left=0)
    runs, inputs = 0, []

    def run(fake, words, path, broken, binary=BIN):
        fake.routes[path] = broken if path != "GET /v1/events" else lambda r: (
            broken if r["query"].get("after") == "29" else dict(events=[], next=30))
        p = subprocess.run([binary] + [str(w) for w in words], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                           env=environment(fake), check=False)
        check(p.returncode in (DONE, REFUSED, CONNECTION), words, broken, p)
        check(p.returncode == DONE or p.stderr, words, broken)
        return p
    good["GET /v1/events"] = lambda r: dict(
        events=[event(30)] if r["query"].get("after") == "29" else [], next=30)
    for path, commands in paths.items():
        with Fake(good) as fake:
            document = good[path] if not callable(good[path]) else dict(events=[event(30)], next=30)
            rows = [k for k, v in document.items() if isinstance(v, list) and path != "GET /v1/pool"
                    and len(document) == 2]
            for key in rows:
                many = list(mutations(document[key][0]))
                runs += len(many)
                for words in commands:
                    p = run(fake, words, path, dict(document, **{key: many}))
                    check(len(p.stdout.splitlines()) == len(many) + 1 or words[0] == "drain" and
                          b" %d slots leased" % len(many) in p.stderr, words, p)
            asked = []
            for words in commands:
                fake.routes[path] = good[path]
                fake.requests.clear()
                plain(fake, *words, status=REFUSED if words[0] == "drain" else DONE)
                asked.append([(r, r["method"] + " " + r["path"]) for r in fake.requests])
            for n, broken in enumerate(mutations(document, rows=not rows)):
                runs += 1
                words = commands[n % len(commands)]
                if rows or n % 15 == 0:
                    run(fake, words, path, broken, BIN if rows else PLAIN)
                if not rows:
                    inputs.append((" ".join(str(w) for w in words), [
                        broken if at == path else good[at](r) if callable(good[at]) else good[at]
                        for r, at in asked[n % len(commands)]]))
    check(runs > 400, runs)
    p = replay(inputs)
    check(p.returncode == 0 and b"%d inputs" % len(inputs) in p.stdout, len(inputs), p)


def mutations(document, depth=0, rows=True):
    """The document with one member of another type, or without it; rows: those of lists, too."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield {k: v for k, v in document.items() if k != key}
            step = len(str(key)) + depth  # another wrong type for each member
            yield dict(document, **{key: WRONG[step % len(WRONG)]})
            for inner in mutations(value, depth + 1, rows):
                yield dict(document, **{key: inner})
    elif isinstance(document, list) and document and rows:
        for inner in mutations(document[0], depth + 1):
            yield [inner] + document[1:]


EVIL = "a\x1b[31mb\x07c\x9bd\x7fe\nf\u202eg\u200bh\r"


@case
def control_characters():
    """None reaches a terminal or a pipe; --json escapes them or, into a pipe, passes them on."""
    routes = everything()
    routes["GET /v1/pool"] = pool(models=[dict(pool()["models"][0], model=EVIL)])
    routes["GET /v1/boxes"] = dict(nodes=[node(name=EVIL, addresses=[EVIL])], next=None)
    routes["GET /v1/slots"] = dict(slots=[slot(serial=EVIL, model=EVIL)], next=None)
    routes["GET /v1/leases"] = dict(leases=[lease(key=EVIL, tenant=EVIL)], next=None)
    routes["GET /v1/leases/c3"] = lease(key=EVIL, tenant=EVIL, state=EVIL, **{EVIL: EVIL})
    routes["GET /v1/events"] = events_route([event(1, text=EVIL, type=EVIL)])
    routes["POST /v1/slots/10.3/reset"] = (409, problem(409, EVIL))
    shown = "a?[31mb?c?d?e?f?g?h?"
    with Fake(routes) as fake:
        for words, status in ((("pool",), 0), (("list", "boxes"), 0), (("list", "slots"), 0),
                              (("list", "leases"), 0), (("show", "lease", "c3"), 0),
                              (("events",), 0), (("top",), 0), (("reset", "10.3"), 1)):
            done = dxpu(fake, *words, status=status)
            check(shown in done.out + done.err, words, done)
            check(not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u202e\u200b]", done.out + done.err),
                  words, repr(done.out + done.err))
        check(dxpu(fake, "list", "slots", "--json").json()["slots"][0]["serial"] == EVIL)
        text = in_terminal(fake, "list", "slots", "--json")[1]
        check("d\\u007fe" in text, repr(text))
        check(not re.search("[\0-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", text), repr(text))


# ---- Terminals ----

class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, fake, *words, rows=24, columns=80, binary=BIN, **env):
        self.text = ""
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.popen = subprocess.Popen(
            [binary] + [str(w) for w in words], stdin=self.slave, stdout=self.slave,
            stderr=self.slave, env=environment(fake, **env), start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        os.close(self.slave)
        os.close(self.master)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.05):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                self.text += os.read(self.master, 65536).decode("utf-8", "replace")
            except OSError:
                return

    def says(self, pattern, seconds=20.0, start=0):
        def look():
            self.read()
            return re.search(pattern, self.text[start:])
        return until(look, "%r in %r" % (pattern, self.text[-300:]), seconds)

    def wait(self, seconds=20.0):
        end = time.monotonic() + seconds
        while self.popen.poll() is None and time.monotonic() < end:
            self.read()
        self.read()
        return self.popen.poll()


def in_terminal(fake, *words, **more):
    with Terminal(fake, *words, **more) as t:
        return t.wait(), t.text


def visible(text):
    return re.sub("\033\\[[0-9;?]*[a-zA-Z]", "", text)


@case
def tables_fit_the_terminal():
    routes = everything()
    routes["GET /v1/leases"] = dict(leases=[lease(key="k" * 60, tenant="t" * 60),
                                            lease("63cf4bfa3c00a", tenant="\u4e16\u754c" * 9)],
                                    next=None)
    wide = {"\u4e16": 2, "\u754c": 2}
    with Fake(routes) as fake:
        whole = dxpu(fake, "list", "leases").out
        check("k" * 60 in whole and "t" * 60 in whole, "cut without a terminal")
        for columns in (200, 100, 80, 60, 40, 20, 8):
            text = visible(in_terminal(fake, "list", "leases", columns=columns,
                                       binary=BIN if columns in (80, 8) else PLAIN)[1])
            for line in text.splitlines():
                width = sum(wide.get(c, 1) for c in line)
                check(width <= columns or columns == 8, columns, width, line)
            check("c3" in text and "63cf4bfa3c00a" in text, columns, text)
            check("~" in text or columns != 80, text)


ERASING = [("DELETE", "lease", "release", "c3"), ("POST", "replace", "10.3"),
           ("POST", "repair", "10.3"), ("PUT", "drain", "10", "--move"),
           ("POST", "lease", "discard", "c3", "10.3")]


@case
def asks_before_data_are_erased():
    routes = everything()
    routes["GET /v1/erasures"] = dict(erases=[dict(slot="10.3", lease="c3", tenant="physics")],
                                      total=1)
    for verb in ("replace", "repair"):
        routes["POST /v1/slots/10.3/" + verb] = slot()
    routes["DELETE /v1/leases/c3"] = dict(lease="c3", state="released", slots=[])
    routes["PUT /v1/boxes/10/drain"] = dict(node=10, draining=True, left=0)
    routes["POST /v1/leases/c3/discard"] = lease()
    with Fake(routes) as fake:
        for method, *words in ERASING:
            done = dxpu(fake, *words, status=UNCONFIRMED)
            check("10.3: lease c3, tenant physics" in done.err and "--yes" in done.err, done)
            check(not fake.asked(method), words)
            asked = len(fake.asked("GET /v1/erasures"))
            plain(fake, *words, "--yes")
            check(len(fake.asked("GET /v1/erasures")) == asked, words)
            check(len(fake.asked(method)) == 1, words)
            check(fake.one(method)["query"] == dict(erase="yes"), words)
            fake.requests.clear()
        dxpu(fake, "lease", "release", "c3", "--keep")  # erases nothing
        check(not fake.asked("GET /v1/erasures"))
        for answer, status in ((b"n\n", UNCONFIRMED), (b"\n", UNCONFIRMED), (b"y\n", DONE)):
            fake.requests.clear()
            with Terminal(fake, "replace", "10.3") as t:
                t.says(r"\[y/N\]")
                os.write(t.master, answer)
                check(t.wait() == status, answer, t.text)
            check([r["query"] for r in fake.asked("POST")] ==
                  [dict(erase="yes")] * (status == DONE), answer)
        fake.routes["GET /v1/erasures"] = dict(erases=[], total=0)
        fake.requests.clear()
        dxpu(fake, "replace", "10.3")  # nothing is erased: nothing is asked, and nothing confirmed
        check(fake.one("POST")["query"] == {}, fake.requests)


@case
def retained_data():
    routes = everything()
    routes["GET /v1/leases/c3"] = lease(retained=["10.4", "10.5"], wiped_in_s=None)
    routes["POST /v1/leases/c3/recover"] = lease()
    routes["POST /v1/leases/c3/discard"] = lease()
    routes["POST /v1/clock/confirm"] = dict(held=False)
    routes["GET /v1/slots"] = dict(slots=[slot("10.4", state="retained", lease=None,
                                               retained_for="c3", retained_left_s=5)], next=None)
    with Fake(routes) as fake:
        shown = dxpu(fake, "show", "lease", "c3").out
        check("slot 10.4 keeps its data" in shown and "slot 10.5" in shown, shown)
        check(re.search(r"10\.4 +nvme +retained +c3", dxpu(fake, "list", "slots").out))
        dxpu(fake, "lease", "recover", "c3", "10.4")
        check(fake.one("POST")["body"] == {"slot": "10.4"})
        fake.requests.clear()
        dxpu(fake, "lease", "recover", "c3")
        check(fake.one("POST")["body"] == {})
        fake.requests.clear()
        out = dxpu(fake, "lease", "discard", "c3").out
        check(out == "lease c3: what was retained is discarded\n", out)
        check([r["query"]["slot"] for r in fake.asked("GET /v1/erasures")] == ["10.4", "10.5"])
        # of a lease that has ended, all that is kept is recovered, and nothing is waited for; or
        # given up
        fake.routes["GET /v1/leases/c3"] = lease(state="ended", host=None, wiped_in_s=5)
        check("is retained, without a host" in dxpu(fake, "show", "lease", "c3").out)
        fake.routes["POST /v1/leases/c3/recover"] = lease(state="parked", host=None)
        done = dxpu(fake, "lease", "recover", "c3", "--wait")
        check(done.out == "lease c3: slot 10.3 is kept, without a host\n", done)
        fake.requests.clear()
        fake.routes["POST /v1/leases/c3/discard"] = dict(lease="c3", state="released", slots=[])
        dxpu(fake, "lease", "discard", "c3")
        check([r["query"] for r in fake.asked("GET /v1/erasures")] ==
              [dict(request="release", lease="c3")])
        check("confirmed" in dxpu(fake, "clock", "confirm").out)
        fake.routes["GET /v1/pool"] = pool(clock_held=True)
        check("dxpu clock confirm" in plain(fake, "pool").out)
        fake.requests.clear()
        fake.routes["POST /v1/leases"] = created(lease())
        for option, value in (("--replace", True), ("--no-replace", False)):
            plain(fake, "lease", "create", "--host", 12, "--model", "nvme", option)
            check(fake.asked("POST")[-1]["body"]["replace"] is value, option)
        plain(fake, "lease", "create", "--host", 12, "--model", "nvme")
        check("replace" not in fake.asked("POST")[-1]["body"])
        dxpu(fake, "lease", "create", "--host", 12, "--model", "nvme", "--replace",
             "--no-replace", status=USAGE)


@case
def colors():
    with Fake(everything()) as fake:
        check("\033[32mactive\033[0m" in in_terminal(fake, "list", "leases")[1])
        check("\033" not in in_terminal(fake, "list", "leases", NO_COLOR="1", binary=PLAIN)[1])
        check("\033" not in in_terminal(fake, "list", "leases", TERM="dumb", binary=PLAIN)[1])
        check("\033" not in plain(fake, "list", "leases").out)


# ---- Events ----

def sse(e, end="\n", **fields):
    lines = ["id: %d" % e["event"], "event: %s" % e["type"], "data: " + json.dumps(e)]
    lines += ["%s: %s" % pair for pair in fields.items()]
    return (end.join(lines) + end + end).encode()


@case
def events():
    with Fake(everything()) as fake:
        out = dxpu(fake, "events").out
        check(re.findall(r"text of event (\d+)\.", out) == [str(n) for n in range(1, 31)], out)
        out = dxpu(fake, "events", "--after", 28).out
        check(re.findall(r"text of event (\d+)\.", out) == ["29", "30"], out)
        fake.requests.clear()
        dxpu(fake, "events", "--lease", "c3", "--type", "lease.")
        query = fake.asked("GET /v1/events")[0]["query"]
        check(query["lease"] == "c3" and query["type"] == "lease.", query)
        document = dxpu(fake, "events", "--json", "--after", 28).json()
        check(document == dict(events=[event(29), event(30)], next=30), document)
        out = dxpu(fake, "events", "--last", 3).out
        check(re.findall(r"text of event (\d+)\.", out) == ["28", "29", "30"], out)
        check("text of event 30." in dxpu(fake, "events", "--node", "box10").out)
        check("text of event" not in plain(fake, "events", "--node", 12).out)
        check("text of event" not in plain(fake, "events", "--last", 0).out)
        out = plain(fake, "events", "--last", 2, "--after", 5).out
        check(re.findall(r"text of event (\d+)\.", out) == ["29", "30"], out)
        dxpu(fake, "events", "--lease", "/x", status=USAGE)
        dxpu(fake, "events", "--after", "x", status=USAGE)


class Follower:
    def __init__(self, fake, *words):
        self.popen = subprocess.Popen([BIN, "events", "--follow"] + list(words),
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, env=environment(fake))
        self.lines, self.errors = [], []
        self.threads = [threading.Thread(target=self.read, args=pair, daemon=True) for pair in
                        ((self.popen.stdout, self.lines), (self.popen.stderr, self.errors))]
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.popen.kill()
        self.popen.wait()

    @staticmethod
    def read(pipe, lines):
        for line in pipe:
            lines.append(line.decode("utf-8", "replace").rstrip("\n"))

    def numbers(self):
        return [int(n) for n in re.findall(r"text of event (\d+)\.", "\n".join(self.lines))]

    def end(self, number=signal.SIGINT):
        self.popen.send_signal(number)
        status = self.popen.wait(20)
        for thread in self.threads:
            thread.join(10)
        return status


def streaming(fake, *streams):
    """The list as it was, then one stream after the other; their requests."""
    rest, known = list(streams), fake.routes["GET /v1/events"]

    def answer(request):
        if request["headers"]["Accept"] != "text/event-stream":
            return known(request)
        return rest.pop(0) if rest else Stream(stays=True)
    fake.routes["GET /v1/events"] = answer
    return lambda: [r for r in fake.asked("GET /v1/events")
                    if r["headers"]["Accept"] == "text/event-stream"]


@case
def follow():
    with Fake(everything()) as fake:
        asked = streaming(
            fake, Stream(b": hello\n\n", sse(event(31)), sse(event(32), "\r\n")),
            Stream(sse(event(33), "\r")[:30]),  # cut
            Stream(b"\xef\xbb\xbfretry: 1\n\n", sse(event(33), "\r"), b"data\n\n", stays=True))
        with Follower(fake) as f:
            until(lambda: 33 in f.numbers(), "event 33")
            check(f.end() == 0, f.errors)
            check(f.numbers() == list(range(21, 34)), f.numbers())
            check(sum("trying again" in line for line in f.errors) >= 1, f.errors)
        ids = [r["headers"]["Last-Event-ID"] for r in asked()]
        check(ids == ["30", "32", "32"], ids)
        check([r["query"]["after"] for r in asked()] == ids)


@case
def follow_from_the_end():
    """Nothing of what was before, and not a page of it is fetched."""
    with Fake(everything()) as fake:
        asked = streaming(fake, Stream(sse(event(31)), stays=True))
        with Follower(fake, "--last", "0", "--node", "10") as f:
            until(lambda: 31 in f.numbers(), "event 31")
            check(f.end() == 0 and f.numbers() == [31], f.numbers())
        check(asked()[0]["query"] == dict(after="30", node="10"), asked()[0]["query"])
        lists = [r for r in fake.asked("GET /v1/events")
                 if r["headers"]["Accept"] != "text/event-stream"]
        check([r["query"]["last"] for r in lists] == ["0"], lists)


@case
def follow_filters_and_json():
    with Fake(everything()) as fake:
        asked = streaming(fake, Stream(sse(event(31)), stays=True))
        with Follower(fake, "--json", "--after", "29", "--lease", "c3", "--type", "le") as f:
            until(lambda: len(f.lines) == 2, "two events")
            check(f.end(signal.SIGTERM) == 0, f.errors)
            check([json.loads(line) for line in f.lines] == [event(30), event(31)], f.lines)
        query = asked()[0]["query"]
        check(query["lease"] == "c3" and query["type"] == "le", query)


@case
def follow_a_manager_that_goes():
    fake = Fake(everything())
    streaming(fake, Stream(sse(event(31)), stays=True))
    with Follower(fake) as f:
        until(lambda: 31 in f.numbers(), "event 31")
        fake.__exit__()
        until(lambda: any("trying again" in line for line in f.errors), "it notices")
        time.sleep(0.5)
        again = Fake(everything(), port=fake.port)
        with again:
            streaming(again, Stream(sse(event(32)), stays=True))
            until(lambda: 32 in f.numbers(), "event 32")
            check(f.end() == 0)
            check(f.numbers() == list(range(21, 33)), f.numbers())
        check(sum("trying again" in line for line in f.errors) <= 2, "too much is said", f.errors)


@case
def follow_refused():
    with Fake(everything()) as fake:
        for status, expected in ((401, REFUSED), (403, REFUSED), (404, REFUSED)):
            known = everything()["GET /v1/events"]
            fake.routes["GET /v1/events"] = lambda r, s=status: (
                (s, problem(s, "not you")) if r["headers"]["Accept"] == "text/event-stream"
                else known(r))
            check("not you" in dxpu(fake, "events", "--follow", status=expected,
                                    binary=BIN if status == 401 else PLAIN).err)


@case
def follow_hostile():
    """What is not an event is left out; what is too long ends the connection; it dials again."""
    bad = [b"data: nothing\n\n", b"data: []\n\n", b"data: {\n\n", b"data: \xff\n\n", b"id: x\n\n",
           b"data: " + b"x" * 200000 + b"\n\n", b"data: 1\n" * 50000, b"y" * 200000,
           sse(event(31, text=EVIL)), sse(event(32, type=7, at=[], lease={}, slot=-1))]
    for part in bad:
        with Fake(everything()) as fake:
            asked = streaming(fake, Stream(part), Stream(sse(event(40)), stays=True))
            with Follower(fake) as f:
                until(lambda: 40 in f.numbers(), "event 40 behind %r" % part[:40])
                check(f.end() == 0)
                check("\033" not in "".join(f.lines + f.errors), f.lines)
            check(len(asked()) == 2, len(asked()))


@case
def follow_into_a_closed_pipe():
    with Fake(everything()) as fake:
        streaming(fake, *[Stream(sse(event(n))) for n in range(31, 60)])
        with Follower(fake) as f:
            until(lambda: 21 in f.numbers(), "event 21")
        p = subprocess.Popen([BIN, "events", "--follow"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, env=environment(fake))
        p.stdout.readline()
        p.stdout.close()
        check(p.wait(20) != 0, "nobody reads, and it goes on")


# ---- top ----

ENTER, LEAVE = "\033[?1049h", "\033[?1049l"


@case
def top_once():
    with Fake(everything()) as fake:
        out = dxpu(fake, "top").out
        check("nvme" in out and re.search(r"(?m)^c3 +active", out), out)
        check(re.findall(r"text of event (\d+)\.", out) == [str(n) for n in range(21, 31)], out)
        check("\033" not in out)
        document = dxpu(fake, "top", "--json").json()
        check(document["pool"] == pool() and document["leases"] == [lease()] and
              document["events"][-1] == event(30), document)


@case
def top_restores_the_screen():
    with Fake(everything()) as fake:
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, "q", "\x03"):
            with Terminal(fake, "top") as t:
                t.says(r"text of event 30\.")
                keys = termios.tcgetattr(t.slave)[3]
                check(not keys & (termios.ECHO | termios.ICANON), "keys need Enter, or show")
                if end == "\x03":
                    os.killpg(t.popen.pid, signal.SIGINT)  # as the terminal's driver does
                elif isinstance(end, str):
                    os.write(t.master, end.encode())
                else:
                    t.popen.send_signal(end)
                check(t.wait() == 0, end, t.popen.poll())
                check(t.text.startswith(ENTER) and t.text.endswith("\033[?25h" + LEAVE), end,
                      repr(t.text[-60:]))
                check(t.text.count(ENTER) == t.text.count(LEAVE) == 1, end)
                check(termios.tcgetattr(t.slave) == t.before, "the terminal is not as it was", end)


@case
def top_that_cannot_begin():
    with Fake() as fake:
        for code, expected in ((401, REFUSED), (200, CONNECTION)):
            fake.routes["GET /v1/pool"] = (code, problem(code, "who?"))
            status, text = in_terminal(fake, "top")
            check(status == expected and ENTER not in text and "dxpu top:" in text, status, text)


@case
def top_follows_the_window():
    routes = everything()
    routes["GET /v1/leases"] = dict(leases=[lease("c%x" % n) for n in range(200)], next=None)
    routes["GET /v1/pool"] = pool(leases=dict(total=200))
    with Fake(routes) as fake, Terminal(fake, "top", rows=24, columns=100) as t:
        t.says(r"text of event 30\.")
        for rows, columns in ((12, 40), (50, 150), (5, 20), (24, 80)):
            start = len(t.text)
            t.resize(rows, columns)
            t.popen.send_signal(signal.SIGWINCH)  # a terminal that is not its own sends none
            t.says("\033\\[J", start=start)
            t.says("\033\\[J", start=len(t.text))
            picture = t.text[start:].split("\033[H")[-1]
            t.read()
            lines = re.split("\r*\n", visible(picture))
            check(len(lines) <= rows, rows, len(lines))
            check(max(len(line) for line in lines) <= columns, columns, lines)
        check(t.popen.poll() is None)
        t.popen.send_signal(signal.SIGTERM)
        check(t.wait() == 0)


@case
def top_shows_rates():
    """Those of the lease's slots together, as the manager says; what it does not know is -."""
    with Fake(everything()) as fake:
        row = r"(?m)^%s +active +12 +nvme +10\.3 +%s +%s "
        rates = (("d1", (None, None), ("-", "-")), ("d2", (52040.4, None), ("52040", "-")),
                 ("d3", (0.0, 3.25), ("0", "3\\.2")))
        two = lease(rates=(100.0, 7.5))
        two["slots"] *= 2
        two["slots"].append(lease()["slots"][0])
        strange = lease("d4", slots=[7, dict(to_device_per_s="x", from_device_per_s=[])])
        fake.routes["GET /v1/leases"] = dict(leases=[two, strange] + [
            lease(name, rates=pair) for name, pair, _ in rates], next=None)
        out = dxpu(fake, "top").out
        for name, _, printed in rates:
            check(re.search(row % (name, *printed), out), printed, out)
        check(re.search(r"(?m)^c3 .* 200 +15 ", out), out)
        check(re.search(r"(?m)^d4 .* - +- ", out), out)
        check(not fake.asked("GET /metrics"), "a page of thousands of lines for some numbers")


@case
def top_without_its_manager():
    fake = Fake(everything())
    with Terminal(fake, "top", columns=200) as t:
        t.says(r"text of event 30\.")
        fake.__exit__()
        t.says("is dxpu-manager running")
        start = len(t.text)
        t.says(r"text of event 30\.", start=start)  # the last that is known stays
        with Fake(dict(everything(), **{"GET /v1/events": events_route([event(31)])}),
                  port=fake.port):
            t.says(r"text of event 31\.")
            t.says(r"event 31\.[^\033]*\033\[K[^\n]*\033\[J", start=len(t.text))
            check("manager there" not in t.text.split("\033[H")[-1], "the trouble is over")
            t.popen.send_signal(signal.SIGINT)
            check(t.wait() == 0)


@case
def top_stops_and_goes_on():
    with Fake(everything()) as fake, Terminal(fake, "top") as t:
        t.says(r"text of event 30\.")
        t.popen.send_signal(signal.SIGTSTP)
        t.says(re.escape(LEAVE))
        check(termios.tcgetattr(t.slave) == t.before, "the shell gets a strange terminal")
        start = len(t.text)
        until(lambda: open("/proc/%d/stat" % t.popen.pid, encoding="ascii", errors="replace")
              .read().split(") ")[1][0] == "T", "it is stopped")
        t.popen.send_signal(signal.SIGCONT)
        t.says(re.escape(ENTER), start=start)
        t.says(r"text of event 30\.", start=start)
        t.popen.send_signal(signal.SIGINT)
        check(t.wait() == 0 and t.text.endswith(LEAVE))


# ---- Help ----

COMMANDS = ("pool", "list", "show", "lease create", "lease release", "lease extend",
            "lease attach", "drain", "replace", "break", "repair", "reset", "forget", "rekey",
            "owner", "tenant", "spares", "events", "top")


@case
def help_and_man_page():
    with open(os.path.join(ROOT, "examples", "cli", "dxpu.1"), encoding="utf-8") as f:
        page = f.read().replace("\\-", "-")
    main_help = dxpu(None, "--help").out
    for name in COMMANDS:
        text = plain(None, *name.split(), "--help").out
        check(text.startswith("usage: dxpu " + name), name, text)
        check(re.search(r"\b%s\b" % name.split()[-1], main_help), name, "is not in dxpu --help")
        check("dxpu " + name in page, name, "is not in the man page")
        for option in set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)):
            check(re.search(re.escape(option) + r"(?![\w-])", page), name, option,
                  "is not in the man page")
        check(max(len(line) for line in text.splitlines()) <= 100, name)
    check("lease release" in dxpu(None, "lease", "--help").out)  # sanitized, as the first one
    check(max(len(line) for line in main_help.splitlines()) <= 100)


@case
def wrong_usage():
    with Fake(everything()) as fake:
        for words in (("pool", "more"), ("pool", "--state", "free"), ("pool", "--frob"),
                      ("list",), ("list", "slots", "--state"), ("list", "slots", "--state", ""),
                      ("pool", "--json=1"), ("pool", "--timeout", "0"), ("pool", "--timeout", "x"),
                      ("pools",), ("top", "x"), ("lease", "create", "--wait=x")):
            done = dxpu(fake, *words, status=USAGE)
            check("--help" in done.err, done)
        check(not fake.requests)


if __name__ == "__main__":
    sys.exit(main())
