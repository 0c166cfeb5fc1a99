#!/usr/bin/env python3
# make: $(PROGRAMS:%=build/san/%)
"""dxpu-manager's HTTP interface, with proxies made by hand: what spec/openapi.yaml says is so, who
may do what, what bad requests cost, events, waiting.

Prints `ok NAME` or `not ok NAME` for each case.  Programs come from $DXPU_BIN, else build/."""
# SPDX-License-Identifier: MIT
import http.client
import json
import os
import random
import re
import select
import signal
import socket
import sqlite3
import struct
import sys
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main, sanitized  # noqa: E402
sanitized()
from pool import (ASK, BIND, BOX, DRAIN, ERROR, HELD, HOST, KEPT, STATUS, UP,  # noqa: E402
                  UNBIND, UNWIPED, WIPED, WIPING, Fake, Manager, Robots, device, done, message,
                  confirmed, text, until)
import lab  # noqa: E402
import openapi  # noqa: E402

DOC = openapi.read()
TABLE = os.path.join(rooms.ROOT, "examples", "manager", "api", "api.c")
JSON, PROBLEM = "application/json", "application/problem+json"
TOKENS = {"read": "r" * 32, "tenant": "t" * 32, "other": "o" * 32, "operator": "p" * 32}
LINES = "# who may what\nread - %(read)s\ntenant physics %(tenant)s\n" \
        "tenant chemistry %(other)s\noperator - %(operator)s\n"
tried = set()  # operations that succeeded once, in all cases


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body
        self.type = fields.get("Content-Type", "")

    def json(self):
        return json.loads(self.body)

    def detail(self):
        return self.json()["detail"]

    def __str__(self):
        return "%d %s" % (self.status, self.body[:200])


def ask(m, method, target, body=None, token=None, **fields):
    """One request, confirmed if it erases data; its answer is as spec/openapi.yaml says."""
    if body is None or isinstance(body, dict):
        target = confirmed(method, target, body)
    fields = {name.replace("_", "-"): value for name, value in fields.items()}
    if body is not None:
        fields.setdefault("Content-Type", JSON)
        body = body if isinstance(body, (bytes, str)) else json.dumps(body)
    if token:
        fields["Authorization"] = "Bearer " + TOKENS.get(token, token)
    conn = http.client.HTTPConnection(m.http, timeout=60)
    try:
        conn.request(method, target, body, fields)
        got = conn.getresponse()
        answer = Answer(got.status, got.headers, got.read())
    finally:
        conn.close()
    if method not in ("HEAD", "OPTIONS") and answer.status != 501:  # libevent's, of any target
        wrong = openapi.wrong(DOC, method, target, answer.status, answer.type, answer.body)
        check(not wrong, wrong)
        operation = openapi.find(DOC, method, target)
        if operation and answer.status < 300:
            tried.add(operation["operationId"])
    return answer


def good(status, *args, **more):
    answer = ask(*args, **more)
    check(answer.status == status, args[1:], answer)
    return answer.json() if "json" in answer.type else answer.body


def name_tenants(m, names):
    """As if each was given a quota, and an event said so; into the store, which syncs each change
    that the manager makes."""
    check(m.process.stop() == 0)
    records = {}
    for n, name in enumerate(names):
        records["tenant/" + name] = {"quota": n}
        records["event/%020d" % (n + 1)] = {
            "at": 1700000000000, "type": "tenant.set", "node": 0, "slot": 0, "lease": 0,
            "tenant": name, "text": "%s: a quota of %d slots" % (name, n)}
    db = sqlite3.connect(m.store)
    db.executemany("INSERT INTO record VALUES (?, ?)",
                   ((key, json.dumps(value).encode()) for key, value in records.items()))
    db.commit()
    db.close()
    m.start()


def raw(m, data, end=True, seconds=10):
    """All that is answered to these bytes; end: nothing more comes from here."""
    host, port = m.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), seconds) as s:
        said = b""
        try:
            s.sendall(data)
            if end:
                s.shutdown(socket.SHUT_WR)
            while True:
                more = s.recv(65536)
                if not more:
                    return said
                said += more
        except (ConnectionError, socket.timeout):
            return said


def status_of(said):
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", said)  # libevent says 1.0 to 1.0
    return int(found.group(1)) if found else 0


def count_answers(said):
    return len(re.findall(rb"HTTP/1\.[01] \d{3} ", said))


def tokens_file(l, text=None, mode=0o600):
    path = l.file("tokens")
    with open(path, "w", encoding="ascii") as f:
        f.write(LINES % TOKENS if text is None else text)
    os.chmod(path, mode)
    return path


def lease(host, **more):
    return dict({"host": host, "model": "nvme"}, **more)


# ---- The description ----

def routes():
    """(method, path): (roles, body), of the table in C."""
    with open(TABLE, encoding="ascii") as f:
        found = re.findall(r'\{ EVHTTP_REQ_(\w+), "([^"]+)", ([A-Z_| ]+),\s+API_BODY_(\w+),',
                           f.read())
    names = {"API_READ": "read", "API_TENANT": "tenant", "API_OPERATOR": "operator"}
    out = {}
    for method, path, roles, body in found:
        words = roles.replace(" ", "").split("|")
        out[method, path] = (
            None if words == ["API_ANYBODY"] else set(names.values()) if words == ["API_ALL"]
            else {names[w] for w in words}, body)
    return out


def statuses(method, path, roles, body):
    """What every operation of this kind can answer, and what some of it can."""
    must = {"200", "400", "403", "406", "503"}
    must |= {"401"} if roles is not None else set()
    must |= {"429"} if method != "GET" and "tenant" in roles else set()
    must |= {"404"} if re.search(r"\{(node|slot|lease|model)\}", path) else set()
    must |= {"413", "415"} if body != "NONE" else set()
    named = path in ("/v1/leases", "/v1/erasures", "/v1/adopt")  # things, by members or parameters
    return must, must | {"201", "202", "409"} | ({"404"} if named else set())


def differences(table, doc):
    described = openapi.operations(doc)
    out = ["%s %s: not described" % key for key in table if key not in described]
    out += ["%s %s: no such route" % key for key in described if key not in table]
    for key in set(table) & set(described):
        roles, body = table[key]
        of = described[key]
        asked = {"NONE": None, "OPTIONAL": False, "JSON": True}[body]
        if (None if of.get("security") == [] else set(of["x-roles"])) != roles:
            out.append("%s %s: roles" % key)
        if ("requestBody" in of and of["requestBody"]["required"] or
                (False if "requestBody" in of else None)) != asked:
            out.append("%s %s: body" % key)
        must, may = statuses(*key, roles, body)
        if not must <= set(of["responses"]) <= may:
            out.append("%s %s: answers %s" % (*key, sorted(must ^ set(of["responses"]))))
    return out


@case
def description_and_routes_agree():
    table = routes()
    check(len(table) > 20, table)
    check(not differences(table, DOC), differences(table, DOC))
    less = json.loads(json.dumps(DOC))
    del less["paths"]["/v1/pool"]
    del less["paths"]["/v1/leases"]["post"]
    check(sorted(differences(table, less)) == ["GET /v1/pool: not described",
                                               "POST /v1/leases: not described"])
    less = json.loads(json.dumps(DOC))
    del less["paths"]["/v1/slots/{slot}"]["get"]["responses"]["404"]
    less["paths"]["/v1/pool"]["get"]["responses"]["415"] = {}
    check(sorted(d.split(" [")[0] for d in differences(table, less)) ==
          ["GET /v1/pool: answers", "GET /v1/slots/{slot}: answers"], differences(table, less))
    less = dict(table)
    del less["GET", "/v1/nodes"]
    less["GET", "/v1/pool"] = ({"read"}, "NONE")
    check(sorted(differences(less, DOC)) == ["GET /v1/nodes: no such route",
                                             "GET /v1/pool: roles"])


@case
def description_is_served_and_its_examples_fit():
    with lab.Lab(plain=True) as l, open(openapi.FILE, "rb") as f:
        m = Manager(l)
        check(good(200, m, "GET", "/v1/openapi.yaml") == f.read())
    examples = 0
    for name, schema in DOC["components"]["schemas"].items():
        if "example" in schema:
            examples += 1
            wrong = openapi.valid(DOC, schema, schema["example"], name)
            check(not wrong, wrong)
            wrong = openapi.valid(DOC, schema, dict(schema["example"], other=1), name)
            check(wrong, name, "takes anything")
    check(examples > 10, examples)


# ---- All operations ----

def lend_and_end(m, hosts):
    body = lease(hosts[0], count=2, tenant="physics", seconds=600, key="job-7", need="spread")
    answer = ask(m, "POST", "/v1/leases?wait=20", body)
    check(answer.status == 201, answer)
    one = answer.json()
    at = "/v1/leases/" + one["lease"]
    check(answer.fields["Location"] == at, answer)
    check(one["state"] == "active" and one["tenant"] == "physics", one)
    check([s["state"] for s in one["slots"]] == ["up", "up"] and one["expires_at"], one)
    check(good(200, m, "GET", at) == one)
    check(good(200, m, "PATCH", at, {"seconds": None})["expires_at"] is None)
    check(good(200, m, "GET", "/v1/leases?state=active&tenant=physics&host=%d" % hosts[0])
          ["leases"][0]["lease"] == one["lease"])
    end = good(200, m, "POST", at + "/park?wait=20")
    check(end["state"] == "parked" and {s["state"] for s in end["slots"]} == {"kept"}, end)
    parked = good(200, m, "GET", at)
    check(parked["state"] == "parked" and parked["host"] is None, parked)
    check(parked["slots"][0]["host_slot"] is None and parked["wiped_in_s"] is None, parked)
    check(good(409, m, "POST", at + "/park")["type"] == "/problems/state")
    m95_released_with_its_data(m, one["lease"], hosts[1])
    again = good(200, m, "POST", at + "/attach?wait=20", {"host": hosts[1]})
    check(again["host"] == hosts[1] and again["state"] == "active", again)
    slot = again["slots"][0]["slot"]
    check(good(200, m, "GET", "/v1/slots/" + slot)["lease"] == one["lease"])
    good(200, m, "POST", "/v1/slots/%s/reset" % slot)
    check(good(200, m, "POST", "/v1/slots/%s/replace" % slot, {})["lease"] is None)
    check(slot not in [s["slot"] for s in good(200, m, "GET", at)["slots"]])
    slots = [s["slot"] for s in good(200, m, "GET", at)["slots"]]
    check(good(200, m, "DELETE", at + "?wait=20") == {
        "lease": one["lease"], "state": "released",
        "slots": [{"slot": s, "state": "wiped", "reason": "none"} for s in slots]})
    check(good(404, m, "GET", at)["type"] == "/problems/unknown")
    free = good(200, m, "GET", "/v1/slots?state=free&model=nvme")["slots"]
    check(len(free) >= 7, free)


def m95_released_with_its_data(m, lease, host):
    """Of a parked lease with two slots: it ends, its slots are retained, and its tenant takes it
    back or gives it up."""
    at, week = "/v1/leases/" + lease, 7 * 86400
    counts = good(200, m, "GET", "/v1/pool")["slots"]
    end = good(200, m, "DELETE", at + "?data=keep&wait=20")
    check(end["state"] == "ended" and {s["state"] for s in end["slots"]} == {"kept"}, end)
    ended = good(200, m, "GET", at)
    check(ended["state"] == "ended" and ended["host"] is None, ended)
    check(week - 60 < ended["wiped_in_s"] <= week, ended)
    check([one["lease"] for one in good(200, m, "GET", "/v1/leases?state=ended")["leases"]] ==
          [lease])
    check(good(200, m, "GET", "/v1/leases?state=parked")["leases"] == [])
    pool = good(200, m, "GET", "/v1/pool")
    check((pool["leases"]["ended"], pool["slots"]["retained"]) == (1, counts["retained"] + 2), pool)
    check(pool["slots"]["leased"] == counts["leased"] - 2, pool, counts)
    check(b'dxpu_leases{state="ended"} 1' in good(200, m, "GET", "/metrics"))
    for one in ended["slots"]:
        slot = good(200, m, "GET", "/v1/slots/" + one["slot"])
        check((slot["state"], slot["retained_for"], slot["lease"]) == ("retained", lease, lease),
              slot)
        check(week - 60 < slot["retained_left_s"] <= week, slot)
    check({one["slot"] for one in good(200, m, "GET", "/v1/slots?state=retained")["slots"]} ==
          {one["slot"] for one in ended["slots"]})
    slot = ended["slots"][0]["slot"]
    for method, target, body in (
            ("DELETE", at + "?data=keep", None), ("POST", at + "/attach", {"host": host}),
            ("POST", at + "/recover", {"slot": slot}),  # all of it, or nothing
            ("POST", at + "/discard", {"slot": slot}), ("POST", at + "/park", None)):
        check(good(409, m, method, target, body)["type"] == "/problems/state", method, target)
    said = good(409, m, "POST", at + "/discard?erase=no")
    check(said["type"] == "/problems/erases" and said["total"] == 2, said)
    back = good(200, m, "POST", at + "/recover")
    check((back["state"], back["wiped_in_s"], back["expires_at"]) == ("parked", None, None), back)
    check(back["slots"] == ended["slots"], back, ended)
    check(good(200, m, "GET", "/v1/slots/" + slot)["retained_for"] is None)


def m95_discarded(m, host):
    """A lease that ended with its data is given up: it is over, and wiped."""
    until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] > 3, "wiped")
    lease_ = good(201, m, "POST", "/v1/leases?wait=20", lease(host))["lease"]
    at = "/v1/leases/" + lease_
    check(good(200, m, "DELETE", at + "?data=keep&wait=20")["state"] == "ended")
    over = good(202, m, "POST", at + "/discard")
    check(over["state"] == "released" and len(over["slots"]) == 1, over)
    good(404, m, "GET", at)
    slot = over["slots"][0]["slot"]
    until(lambda: good(200, m, "GET", "/v1/slots/" + slot)["state"] == "free", "wiped")


def m103_what_erases_data_is_confirmed(m, lease, retained):
    """Of a lease with one slot and one that is retained; erase=no is what no word of it is."""
    at = "/v1/leases/" + lease
    slot = good(200, m, "GET", at)["slots"][0]["slot"]
    box = int(slot.split(".")[0])
    events = good(200, m, "GET", "/v1/events?limit=1000")["events"]
    for erased, method, target, body in (
            ([slot, retained], "DELETE", at, None), ([retained], "POST", at + "/discard", None),
            ([retained], "POST", at + "/discard", {"slot": retained}),
            ([slot], "POST", "/v1/slots/%s/replace" % slot, None)):
        for query in ("?erase=no", "?erase="):
            if query == "?erase=":
                good(400, m, method, target + query, body)
                continue
            said = good(409, m, method, target + query, body)
            check(said["type"] == "/problems/erases" and said["total"] == len(erased), said)
            check([e["slot"] for e in said["erases"]] == erased and
                  {(e["lease"], e["tenant"]) for e in said["erases"]} == {(lease, "default")}, said)
    drain = "/v1/boxes/%d/drain" % box
    said = good(409, m, "PUT", drain + "?erase=no", {"on": True, "move": True})
    check(slot in [e["slot"] for e in said["erases"]], said)
    after = good(200, m, "GET", at)
    check(after["slots"][0]["slot"] == slot and after["retained"] == [retained], after)
    check(not good(200, m, "GET", "/v1/nodes/%d" % box)["draining"], "it is drained")
    check(good(200, m, "GET", "/v1/events?limit=1000")["events"] == events, "something happened")
    good(200, m, "PUT", drain + "?erase=no", {"on": True})  # these erase nothing
    good(200, m, "PUT", drain + "?erase=no", {"on": False})
    good(200, m, "POST", "/v1/slots/%s/repair?erase=no" % retained)


def retained_and_taken_back(m, host):
    """A slot that is broken leaves its lease, and keeps the data until somebody decides."""
    until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] > 3, "wiped")
    one = good(201, m, "POST", "/v1/leases?wait=20", lease(host, replace=True))
    at, first = "/v1/leases/" + one["lease"], one["slots"][0]["slot"]
    check(good(409, m, "POST", at + "/recover")["type"] == "/problems/state", "nothing is retained")
    good(200, m, "POST", "/v1/slots/%s/break" % first)
    until(lambda: good(200, m, "GET", at)["retained"] == [first], "it is retained")
    old = good(200, m, "GET", "/v1/slots/" + first)
    check(old["retained_for"] == one["lease"] and old["lease"] is None, old)
    check(good(200, m, "GET", "/v1/erasures?request=release&lease=" + one["lease"])["total"] == 2)
    would = good(200, m, "GET", "/v1/erasures?request=discard&slot=" + first)
    check(would == {"total": 1, "erases": [{"slot": first, "lease": one["lease"],
                                            "tenant": "default"}]}, would)
    check(good(200, m, "GET", "/v1/erasures?request=drain&node=" + first.split(".")[0]))
    m103_what_erases_data_is_confirmed(m, one["lease"], first)
    check([s["slot"] for s in good(200, m, "GET", "/v1/slots?state=retained")["slots"]] == [first])
    second = good(200, m, "GET", at)["slots"][0]["slot"]
    back = good(200, m, "POST", at + "/recover")  # all that is retained, each once
    check([s["slot"] for s in back["slots"]] == [first] and back["retained"] == [second], back)
    until(lambda: good(200, m, "GET", at)["state"] == "active", "up")
    until(lambda: good(200, m, "GET", "/v1/slots/" + second)["box_state"] == "kept", "kept")
    back = good(200, m, "POST", at + "/recover", {"slot": second})
    check([s["slot"] for s in back["slots"]] == [second] and back["retained"] == [first], back)
    until(lambda: good(200, m, "GET", at)["state"] == "active", "up")
    for slot in back["retained"]:
        good(200, m, "POST", at + "/discard", {"slot": slot})
    check(good(200, m, "GET", at)["retained"] == [])
    good(200, m, "DELETE", at + "?wait=20")


def m93_all_or_none(m, host):
    """Of two slots that are retained one is broken: a recover of both changes nothing."""
    until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] > 3, "wiped")
    one = good(201, m, "POST", "/v1/leases?wait=20", lease(host, count=2, replace=True))
    at, slots = "/v1/leases/" + one["lease"], [s["slot"] for s in one["slots"]]
    for n, slot in enumerate(slots):
        good(200, m, "POST", "/v1/slots/%s/break" % slot)
        until(lambda: len(good(200, m, "GET", at)["retained"]) == n + 1, "it is retained")
        until(lambda: good(200, m, "GET", at)["state"] == "active", "replaced")
    good(200, m, "POST", "/v1/slots/%s/repair?erase=no" % slots[1])  # a recover begins with it
    until(lambda: good(200, m, "GET", "/v1/slots/" + slots[1])["box_state"] == "kept", "kept")
    before = good(200, m, "GET", at)
    no = good(409, m, "POST", at + "/recover")
    check(no["type"] == "/problems/state" and "slot %s: " % slots[0] in no["detail"], no)
    check(good(200, m, "GET", at) == before, "a part of it was done")
    good(200, m, "POST", "/v1/slots/%s/repair?erase=no" % slots[0])
    until(lambda: good(200, m, "GET", "/v1/slots/" + slots[0])["box_state"] == "kept", "kept")
    back = good(200, m, "POST", at + "/recover")
    check([s["slot"] for s in back["slots"]] == slots, back)
    check(set(back["retained"]) == {s["slot"] for s in before["slots"]}, back, before)
    good(200, m, "DELETE", at + "?wait=20")


def adoptions(m, host):
    """A box that comes with a lease of another store: its host does not have it."""
    nothing = good(200, m, "POST", "/v1/adopt")
    check(nothing == {"dry_run": False, "adopted": 0, "freed": 0, "left": 0, "more": False,
                      "slots": []}, nothing)
    with Fake(m, BOX, slots=2) as strange:
        node = strange.register(devices=[device(1, HELD, 1, 5, 5, host, 1),
                                         device(2, WIPED, 1, 0, 6)])[0]
        for query, left in (("?dry_run=yes", 1), ("?dry_run=yes&slot=%d.1" % node, 1),
                            ("?slot=%d.2" % node, 0), ("", 1)):
            found = good(200, m, "POST", "/v1/adopt" + query, {"tenant": "physics"})
            check(found["left"] == left and found["adopted"] == 0, query, found)
        check(found["slots"][0]["why"] == "it is lent, and its host does not report that lease")
        check(good(404, m, "POST", "/v1/adopt?slot=%d.3" % node)["type"] == "/problems/unknown")
        for query, body in (("?dry_run=1", {}), ("", {"tenant": ""}), ("?slot=1", {})):
            check(ask(m, "POST", "/v1/adopt" + query, body).status == 400, query, body)


@case
def m170_adopts_all_though_not_at_once():
    """Just after the start there are few numbers of leases yet: what has to wait is said,
    also when what needs no number (a free slot) comes behind it in the same request."""
    slots, free = 400, range(20, 401, 20)
    host_id, box_id = os.urandom(16), os.urandom(16)

    def register(fake, devices):
        for at in range(0, slots, 100):
            number = fake.register(first=at + 1, devices=devices[at:at + 100])[0]
        return number

    def tell(m, wiped):
        """A host and a box that agree on leases of all slots, but for those wiped since."""
        host, box = Fake(m, HOST, host_id, slots=slots), Fake(m, BOX, box_id, slots=slots)
        number = register(host, [device(n, UP, 1, n + 4, 0, 0, n) for n in range(1, slots + 1)])
        register(box, [device(n, WIPED, 1, 0, n + 4) if n in wiped else
                       device(n, HELD, 1, n + 4, n + 4, number, n) for n in range(1, slots + 1)])
        return host, box

    with lab.Lab(plain=True) as l:
        m = Manager(l)
        for fake in tell(m, ()):
            fake.close()
        m.process.stop()
        m.start()
        fakes = tell(m, free)
        adopted = freed = waited = 0
        more = True
        while more:
            answer = ask(m, "POST", "/v1/adopt", {"tenant": "default"})
            if answer.status == 503:
                check(answer.json()["type"] == "/problems/busy", answer)
                waited += 1
                time.sleep(0.1)
                continue
            check(answer.status == 200, answer)
            found = answer.json()
            adopted, freed, more = adopted + found["adopted"], freed + found["freed"], found["more"]
        check(adopted == slots - len(free) and freed == len(free), adopted, freed)
        print("# adopted after %d waits" % waited)  # none where to register took 2 s
        left = good(200, m, "POST", "/v1/adopt?dry_run=yes")
        check(not left["slots"], left)
        for fake in fakes:
            fake.close()


@case
def every_operation_answers_as_described():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        kinds = ((BOX, 4), (BOX, 4), (HOST, 4), (HOST, 4))
        with Robots(m, kinds) as robots:
            boxes, hosts = robots.nodes[:2], robots.nodes[2:]
            for path in ("/v1/health", "/v1/pool", "/v1/nodes", "/v1/nodes?role=box", "/v1/boxes",
                         "/v1/hosts", "/v1/slots", "/v1/events?last=5",
                         "/v1/nodes/%d" % boxes[0], "/v1/tenants",
                         "/v1/events", "/metrics", "/v1/openapi.yaml"):
                good(200, m, "GET", path)
            check(good(200, m, "PUT", "/v1/tenants/physics", {"quota": 6})["quota"] == 6)
            check(good(200, m, "PUT", "/v1/tenants/chemistry", {"quota": None})["quota"] is None)
            rates = {"failures_per_year": 0.05, "repair_days": 7, "risk": 0.001}
            # of 8 slots 0.0077 are under repair on average: two at once are rarer than the risk
            check(good(200, m, "PUT", "/v1/models/nvme/spares", rates)["count"] == 1)
            for body in ({}, dict(rates, count=1), {"risk": 0.1}, dict(rates, risk=2),
                         dict(rates, risk="1"), dict(rates, repair_days=-1)):
                answer = ask(m, "PUT", "/v1/models/nvme/spares", body)
                check(answer.status == 400, body, answer)
            good(200, m, "PUT", "/v1/models/nvme/spares", {"count": 1})
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 7, "wiped")
            good(200, m, "PUT", "/v1/models/nvme/spares", {"count": 0})
            lend_and_end(m, hosts)
            for on in (False, True):
                told = good(200, m, "PUT", "/v1/boxes/%d/direct" % boxes[0], {"on": on})
                check(told["direct"] is on, told)
            check(good(200, m, "PUT", "/v1/hosts/%d/owner" % hosts[0], {"owner": "physics"})
                  ["owner"] == "physics")
            retained_and_taken_back(m, hosts[0])
            m93_all_or_none(m, hosts[0])
            m95_discarded(m, hosts[0])
            check(good(409, m, "POST", "/v1/clock/confirm")["type"] == "/problems/state")
            slot = "%d.4" % boxes[1]
            check(good(200, m, "POST", "/v1/slots/%s/break" % slot)["state"] == "broken")
            good(200, m, "POST", "/v1/slots/%s/repair" % slot)
            drained = good(200, m, "PUT", "/v1/boxes/%d/drain" % boxes[0], {"on": True})
            check(drained == {"node": boxes[0], "draining": True, "left": 0}, drained)
            good(200, m, "PUT", "/v1/boxes/%d/drain" % boxes[0], {"on": False, "move": False})
            adoptions(m, hosts[0])
            copied = ask(m, "GET", "/v1/snapshot")
            check(copied.status == 200 and copied.body.startswith(b'{"dxpu-export":1}\n')
                  and b'"crc":' in copied.body.splitlines()[-1], copied)
        until(lambda: not good(200, m, "GET", "/v1/nodes/%d" % hosts[1])["connected"], "gone")
        check(good(200, m, "DELETE", "/v1/nodes/%d/key" % hosts[1])["key"] is None)
        check(good(200, m, "DELETE", "/v1/nodes/%d" % hosts[1])["forgotten"])
        check(good(404, m, "GET", "/v1/nodes/%d" % hosts[1])["type"] == "/problems/unknown")
        every = {o["operationId"] for o in openapi.operations(DOC).values()}
        every.discard("confirmClock")  # below
        check(tried - {"confirmClock"} == every, every - tried)


@case
def m102_replace_keeps_a_lease_together():
    """Two boxes of two slots: only the other box has a slot for a lease of a whole one."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Robots(m, [(BOX, 2), (BOX, 2), (HOST, 4)]) as robots:
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 4, "wiped")
            one = good(201, m, "POST", "/v1/leases?wait=20",
                       lease(robots.nodes[2], count=2, need="same_box"))
            at, slots = "/v1/leases/" + one["lease"], [s["slot"] for s in one["slots"]]
            replace = "/v1/slots/%s/replace" % slots[0]
            for query in ("", "?force=no"):
                said = good(409, m, "POST", replace + query)
                check(said["type"] == "/problems/capacity" and "--force" in said["detail"], said)
            now = good(200, m, "GET", at)
            check([s["slot"] for s in now["slots"]] == slots and now["need_kept"], now)
            good(200, m, "POST", replace + "?force=yes")
            now = good(200, m, "GET", at)
            check(now["slots"][0]["slot"] not in slots and not now["need_kept"], now)


@case
def a_clock_that_made_a_step_is_confirmed():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        check(good(200, m, "GET", "/v1/pool")["clock_held"] is False)  # the control
        check(good(409, m, "POST", "/v1/clock/confirm")["type"] == "/problems/state")
        good(200, m, "PUT", "/v1/tenants/t", {"quota": 1})
        check(m.process.stop() == 0)
        db = sqlite3.connect(m.store)
        meta = json.loads(db.execute("SELECT value FROM record WHERE key = 'meta'").fetchone()[0])
        meta["time"] = int((time.time() + 86400) * 1000)  # it was a day later once
        db.execute("UPDATE record SET value = ? WHERE key = 'meta'", (json.dumps(meta).encode(),))
        db.commit()
        db.close()
        m.start()
        check(good(200, m, "GET", "/v1/pool")["clock_held"] is True)
        check(gauge(m, "dxpu_clock_held") == 1)
        check(good(200, m, "POST", "/v1/clock/confirm") == {"held": False})
        check(good(200, m, "GET", "/v1/pool")["clock_held"] is False)
        check(gauge(m, "dxpu_clock_held") == 0)


def in_pages(m, name, key, limit):
    """What a list has, page by page, and how many pages those are."""
    seen, pages, after = [], 0, ""
    while after is not None:
        page = good(200, m, "GET", "/v1/%s?limit=%d%s" % (name, limit, after))
        check(len(page[name]) <= limit, page)
        seen += [e[key] for e in page[name]]
        after = page["next"] and "&after=%s" % page["next"]
        pages += 1
    return seen, pages


@case
def lists_come_in_pages():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Robots(m, [(BOX, 5), (BOX, 3), (HOST, 8), (BOX, 4), (HOST, 2)]) as robots:
            host = robots.nodes[2]
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 12, "wiped")
            for _ in range(7):
                good(201, m, "POST", "/v1/leases", lease(host))
            for name, key in (("nodes", "node"), ("slots", "slot"), ("leases", "lease")):
                whole = [e[key] for e in good(200, m, "GET", "/v1/" + name)[name]]
                check(len(whole) == {"nodes": 5, "slots": 12, "leases": 7}[name], whole)
                for limit in (1, 2, 3, 100):
                    seen, pages = in_pages(m, name, key, limit)
                    check(seen == whole and pages == -(-len(whole) // limit), name, limit, seen)
            events = good(200, m, "GET", "/v1/events")["events"]
            numbers, after = [], 0
            while True:
                page = good(200, m, "GET", "/v1/events?limit=3&after=%d" % after)
                if not page["events"]:
                    break
                numbers += [e["event"] for e in page["events"]]
                after = page["next"]
            check(numbers[:len(events)] == [e["event"] for e in events], numbers)
            mine = good(200, m, "GET", "/v1/events?type=lease.cr")["events"]
            check(len(mine) == 7 and {e["type"] for e in mine} == {"lease.created"}, mine)
            check(good(200, m, "GET", "/v1/slots?node=%d" % robots.nodes[1])["slots"][2]["slot"] ==
                  "%d.3" % robots.nodes[1])


@case
def slots_of_a_box_that_registers_in_pieces_are_listed():
    """Another box registers meanwhile: the first one, with the lower number, gets its slots after
    that one's."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, BOX, slots=4) as slow, Fake(m, BOX, slots=3) as quick:
            first = slow.register(1, 2)[0]
            second = quick.register()[0]
            check(first < second, first, second)
            late = ["%d.%d" % (second, n) for n in (1, 2, 3)]
            check(in_pages(m, "slots", "slot", 1)[0] == late, "not all slots are reported yet")
            slow.register(3, 2)
            whole = ["%d.%d" % (first, n) for n in (1, 2, 3, 4)] + late
            for limit in (1, 2, 3, 7, 100):
                seen, pages = in_pages(m, "slots", "slot", limit)
                check(seen == whole and pages == -(-len(whole) // limit), limit, seen)


@case
def same_key_is_the_same_lease():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Robots(m, [(BOX, 4), (HOST, 4)]) as robots:
            body = lease(robots.nodes[1], key="job-7")
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 4, "wiped")
            one = good(201, m, "POST", "/v1/leases", body)
            check(good(200, m, "POST", "/v1/leases", body)["lease"] == one["lease"])
            check(good(201, m, "POST", "/v1/leases", dict(body, key="job-8"))["lease"] !=
                  one["lease"])
        m.process.kill()
        m.start()
        check(good(200, m, "POST", "/v1/leases", body)["lease"] == one["lease"])
        other = ask(m, "POST", "/v1/leases", dict(body, count=2))
        check(other.status == 409 and "key" in other.detail(), other)
        # A box that is not heard of lends nothing.
        other = ask(m, "POST", "/v1/leases", dict(body, key="job-9"))
        check(other.status == 503 and "not reported" in other.detail(), other)


@case
def conflicts_are_distinguished():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Robots(m, [(BOX, 4), (HOST, 8)]) as robots:
            box, host = robots.nodes
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 4, "wiped")
            good(200, m, "PUT", "/v1/tenants/physics", {"quota": 1})
            for body, status, kind in (
                    (lease(host, count=5), 409, "capacity"),
                    (lease(host, count=2, tenant="physics"), 409, "quota"),
                    (lease(host, model="gpu"), 404, "unknown"),
                    (lease(box), 404, "unknown"), (lease(77), 404, "unknown")):
                answer = good(status, m, "POST", "/v1/leases", body)
                check(answer["type"] == "/problems/" + kind, body, answer)
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(host, tenant="physics"))
            at = "/v1/leases/%s/attach" % one["lease"]
            check(good(409, m, "POST", at, {"host": host})["type"] == "/problems/state")
            check(good(409, m, "DELETE", "/v1/nodes/%d" % box)["type"] == "/problems/state")
            drain = "/v1/boxes/%d/drain" % box
            for on in (False, True):  # the control, and what an operator did
                good(200, m, "PUT", drain, {"on": on, "move": False})
                answer = good(409, m, "POST", "/v1/leases", lease(host, count=4))
                check(("3 are drained" in answer["detail"]) == on, answer)


# ---- Access ----

def example_target(path):
    return path.replace("{node}", "9").replace("{slot}", "9.9").replace("{lease}", "c9") \
        .replace("{tenant}", "x").replace("{model}", "x")


@case
def roles_may_what_the_description_says():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l))
        for (method, path), operation in openapi.operations(DOC).items():
            target = example_target(path)
            roles = operation.get("x-roles", ["read", "tenant", "operator"])
            open_to_all = operation.get("security") == []
            for token in (None, "x" * 32, TOKENS["read"][:-1], TOKENS["read"] + "r", ""):
                answer = ask(m, method, target, token=token)
                check((answer.status == 401) == (not open_to_all), method, target, token, answer)
            for role in ("read", "tenant", "operator"):
                answer = ask(m, method, target, token=role)
                check((answer.status == 403) == (role not in roles), method, target, role, answer)
                check(answer.status != 401, method, target, role)
        check(ask(m, "GET", "/v1/nope").status == 401)
        check(ask(m, "GET", "/v1/nope", token="read").status == 404)
        basic = ask(m, "GET", "/v1/pool", Authorization="Basic " + TOKENS["read"])
        check(basic.status == 401 and "Bearer" in basic.fields["WWW-Authenticate"], basic)


EXISTS = {"slot", "node", "number", "model", "attributes", "data", "vendor_id", "device_id",
          "class", "functions", "virtual_functions"}


@case
def health_without_a_token_says_up():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l))
        for token in (None, "x" * 32):  # S-154
            check(good(200, m, "GET", "/v1/health", token=token) == {"status": "up"}, token)
        told = good(200, m, "GET", "/v1/health", token="tenant")  # the control
        check(told["status"] == "up" and told["version"] and told["store"] == "ok", told)


@case
def expired_tokens_are_refused():
    """S-150, S-130: also of a stream that is open; the audit log has names and addresses."""
    with lab.Lab(plain=True) as l:
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 8))
        text = "read - %s name=watch expires=%s\noperator - %s name=ops\ntenant a %s\n" % (
            "r" * 32, soon, "o" * 32, "t" * 32)
        m = Manager(l, "--audit", l.file("audit"), "--tokens", tokens_file(l, text))
        good(200, m, "GET", "/v1/pool", token="r" * 32)
        stream = Stream(m, Authorization="Bearer " + "r" * 32)
        check(stream.status == 200)
        good(404, m, "DELETE", "/v1/nodes/7", token="o" * 32)
        good(404, m, "DELETE", "/v1/leases/7", token="t" * 32)
        refused = []
        until(lambda: refused.append(ask(m, "GET", "/v1/pool", token="r" * 32)) or
              refused[-1].status == 401, "it expires")
        check(refused[-1].json()["type"] == "/problems/expired", refused[-1])
        check("watch" in refused[-1].detail() and soon in refused[-1].detail(), refused[-1])
        try:
            stream.take(1)
            check(False, "the stream goes on")
        except (EOFError, http.client.HTTPException):
            pass
        good(200, m, "GET", "/v1/pool", token="o" * 32)
        with open(l.file("audit"), encoding="ascii") as log:
            told = [json.loads(line) for line in log if "api.request" in line]
        check([(t["role"], t["token"]) for t in told] ==
              [("operator", "ops"), ("tenant", "line-3"), ("anonymous", "watch")], told)
        check(all(t["from"].startswith("127.0.0.1:") for t in told), told)
        check("r" * 32 not in str(told) and "o" * 32 not in str(told))


@case
def tenants_change_and_fail_so_often():
    """S-152: one's flood is refused, another changes what it wants; the log has not all of it."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--audit", l.file("audit"), "--tokens", tokens_file(l))
        begin = time.monotonic()
        seen = [ask(m, "DELETE", "/v1/leases/7", token="tenant").status for _ in range(300)]
        bound = 100 + 10 * (time.monotonic() - begin) + 1  # however long 300 take here
        check(set(seen) <= {404, 429} and 90 < seen.count(404) <= bound, seen, bound)
        check(429 in seen or bound > 300, seen)
        check(ask(m, "DELETE", "/v1/leases/7", token="other").status == 404)
        check(all(ask(m, "DELETE", "/v1/leases/7", token="operator").status == 404
                  for _ in range(150)))
        with open(l.file("audit"), encoding="ascii") as log:
            told = [json.loads(line) for line in log if "api.request" in line]
        of = [sum(t["role"] == role and t["tenant"] == tenant for t in told)
              for role, tenant in (("tenant", "physics"), ("tenant", "chemistry"),
                                   ("operator", ""))]
        check(of == [60, 1, 150], of)


@case
def tenants_see_their_own():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l))
        m.get = lambda path: good(200, m, "GET", path, token="read")
        with Robots(m, [(BOX, 4), (HOST, 4), (HOST, 4)]) as robots:
            box, host, others = robots.nodes
            until(lambda: m.get("/v1/pool")["slots"]["free"] == 4, "wiped")
            for node, owner in ((host, "physics"), (others, "chemistry")):
                good(200, m, "PUT", "/v1/hosts/%d/owner" % node, {"owner": owner},
                     token="operator")
            mine = good(201, m, "POST", "/v1/leases", lease(host), token="tenant")
            theirs = good(201, m, "POST", "/v1/leases", lease(others, tenant="chemistry"),
                          token="other")
            check(mine["tenant"] == "physics" and theirs["tenant"] == "chemistry")
            body = lease(host, tenant="chemistry")
            no = ask(m, "POST", "/v1/leases", body, token="tenant")
            check(no.status == 403 and "tenant" in no.detail(), no)
            ours = good(201, m, "POST", "/v1/leases", body, token="operator")
            until(lambda: all(e["state"] == "active" for e in m.get("/v1/leases")["leases"]),
                  "up, before what is shown is compared")
            for wanted, count in (("made=here", 4), ("made=there", 0), ("made=here,rack=7", 0)):
                found = good(200, m, "GET", "/v1/slots?attributes=" +
                             urllib.parse.quote(wanted), token="tenant")
                check(len(found["slots"]) == count, wanted, found)  # M-156: what it may ask for
            none = ask(m, "POST", "/v1/leases", lease(host, attributes="made=there"),
                       token="tenant")
            check(none.status == 409 and "made=there are free: 0 of 0" in none.detail(), none)
            for token, sees in (("tenant", [mine]), ("other", [theirs, ours]),
                                ("read", [mine, theirs, ours])):
                ids = {e["lease"] for e in sees}
                found = good(200, m, "GET", "/v1/leases", token=token)["leases"]
                check({e["lease"] for e in found} == ids, token, found)
                slots = good(200, m, "GET", "/v1/slots", token=token)["slots"]
                check({s["lease"] for s in slots if s["lease"]} == ids, token, slots)
                check(sum(s["state"] == "leased" for s in slots) == len(ids), slots)
                check(len(slots) == 4 and sum(s["state"] == "free" for s in slots) == 1, slots)
                for s in slots:  # S-153
                    seen = {k for k, v in s.items() if v is not None}
                    if token == "read" or s["lease"] in ids:
                        check({"serial", "health", "connected"} <= seen, token, s)
                    else:
                        check(seen - {"state"} == EXISTS, token, s)
                    one = good(200, m, "GET", "/v1/slots/" + s["slot"], token=token)
                    check(one == s, token, one)
                for state in ("leased", "wiping"):
                    found = good(200, m, "GET", "/v1/slots?state=" + state, token=token)["slots"]
                    check(len(found) == (len(ids) if state == "leased" else 0), token, found)
                events = good(200, m, "GET", "/v1/events", token=token)["events"]
                check({e["lease"] for e in events if e["lease"]} == ids, token, events)
                tenants = good(200, m, "GET", "/v1/tenants", token=token)["tenants"]
                check(len(tenants) == (2 if token == "read" else 1), tenants)
                whole = good(200, m, "GET", "/v1/pool", token=token)
                check(whole["leases"]["total"] == len(ids), token, whole)
                check(whole["leases_of"] == {"tenant": "physics", "other": "chemistry"}.get(token))
                nodes = good(200, m, "GET", "/v1/hosts", token=token)["nodes"]
                check([n["node"] for n in nodes] ==
                      {"tenant": [host], "other": [others]}.get(token, [host, others]), nodes)
                check(all((n["identity"] is None) == (token != "read") for n in nodes), nodes)
            at = "/v1/leases/" + theirs["lease"]
            for method, target, body in (("GET", at, None), ("DELETE", at, None),
                                         ("PATCH", at, {"seconds": 5}),
                                         ("POST", at + "/attach", {"host": host})):
                check(ask(m, method, target, body, token="tenant").status == 404, method)
            check(good(200, m, "GET", at, token="other")["state"] != "parked")
            check(good(200, m, "PATCH", at, {"seconds": 500}, token="other")["expires_at"])
            check(good(200, m, "DELETE", at, token="other")["state"] == "released")
            given_up = "/v1/slots/" + theirs["slots"][0]["slot"]  # until it is lent again
            check(good(200, m, "GET", given_up, token="other")["epoch"])
            check(good(200, m, "GET", given_up, token="tenant")["epoch"] is None)


FUNCTIONS = {1: "function=0", 2: "function=1,of=1", 3: "functions=4", 4: "virtual-functions=8"}


@case
def functions_of_a_device():
    """M-157 to M-159, M-178: what slots say, the filter, whole devices and functions, exclusive
    leases, what is used; a refusal does not say whose lease is in the way."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l), "--shared-hosts")
        with Robots(m, [(BOX, 4), (HOST, 4), (HOST, 4)], FUNCTIONS) as robots:
            box, host, others = robots.nodes
            until(lambda: good(200, m, "GET", "/v1/pool", token="read")["slots"]["free"] == 4,
                  "wiped")
            slots = good(200, m, "GET", "/v1/slots", token="tenant")["slots"]
            first = "%d.1" % box
            check([(s["device"], s["function"], s["functions"], s["virtual_functions"])
                   for s in slots] ==
                  [(first, 0, 2, 0), (first, 1, 2, 0), (None, None, 4, 0), (None, None, 1, 8)],
                  slots)
            found = good(200, m, "GET", "/v1/slots?device=" + first, token="tenant")["slots"]
            check([s["number"] for s in found] == [1, 2], found)
            check(good(200, m, "GET", "/v1/slots?device=%d.3" % box, token="read")["slots"] == [])
            one = good(201, m, "POST", "/v1/leases", lease(host, device="function", exclusive=True),
                       token="tenant")
            check(one["device"] == "function" and one["exclusive"] and not one["apart"], one)
            check([s["device"] for s in one["slots"]] == [first], one)
            listed = good(200, m, "GET", "/v1/tenants", token="tenant")["tenants"]
            check([t["used"] for t in listed] == [2], listed)  # and the other function: M-178
            no = good(409, m, "POST", "/v1/leases", lease(others, device="function"), token="other")
            check(one["lease"] not in str(no) and "physics" not in str(no) and
                  "exclusive" not in str(no), no)
            seen = good(200, m, "GET", "/v1/slots", token="other")["slots"]
            check([s["state"] for s in seen] == [None, "free", "free", "free"], seen)
            whole = good(201, m, "POST", "/v1/leases", lease(others, device="whole"), token="other")
            check(whole["slots"][0]["slot"] == "%d.3" % box, whole)
            two = good(201, m, "POST", "/v1/leases", lease(host), token="tenant")
            check(two["slots"][0]["slot"] == "%d.2" % box, two)  # beside its own
        m.process.kill()
        m.start()
        stored = good(200, m, "GET", "/v1/leases/" + one["lease"], token="tenant")
        check(stored["exclusive"] and stored["device"] == "function", stored)


@case
def peers_are_a_tenants_own():
    """M-183: another tenant's lease is refused as one that does not exist is, and what is shown is
    one's own."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l), "--shared-hosts")
        with Robots(m, [(BOX, 4), (BOX, 4), (HOST, 8)]) as robots:
            host = robots.nodes[2]
            until(lambda: good(200, m, "GET", "/v1/pool", token="read")["slots"]["free"] == 8,
                  "wiped")
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(host), token="tenant")
            two = good(201, m, "POST", "/v1/leases?wait=20", lease(host, peer=one["lease"]),
                       token="tenant")
            check(two["peer"] == one["lease"] and two["direct"] == "allowed", two)
            check(two["peers"] == [{"lease": one["lease"], "way": "box"}], two)
            check(two["slots"][0]["slot"].split(".")[0] == one["slots"][0]["slot"].split(".")[0])
            one = good(200, m, "GET", "/v1/leases/" + one["lease"], token="tenant")
            check(one["peer"] is None and one["peers"] == [{"lease": two["lease"], "way": "box"}])
            theirs = good(404, m, "POST", "/v1/leases", lease(host, peer=one["lease"]),
                          token="other")
            absent = good(404, m, "POST", "/v1/leases", lease(host, peer="c00ffee"), token="other")
            check(theirs["detail"].replace(one["lease"], "") ==
                  absent["detail"].replace("c00ffee", ""), theirs, absent)
            good(404, m, "POST", "/v1/leases", lease(host, peer=one["lease"], tenant="chemistry"),
                 token="operator")
            for wrong in ("", "C9", "0c9", 5, None):
                good(400, m, "POST", "/v1/leases", lease(host, peer=wrong), token="tenant")


@case
def direct_requests_are_forbidden():
    """M-181, M-182: of a tenant, a box, the pool; boxes are ordered so, also when the manager
    starts."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Robots(m, [(BOX, 2), (HOST, 4)]) as robots:
            box, host = robots.nodes
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 2, "wiped")
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(host, tenant="t"))
            at, slot = "/v1/leases/" + one["lease"], one["slots"][0]["slot"]
            number = int(slot.split(".")[1])

            def is_direct():
                return good(200, m, "GET", at)["direct"]
            check(is_direct() == "allowed" and not robots.direct, robots.direct)
            for target, body, back in (("/v1/tenants/t", {"direct": False}, {"direct": True}),
                                       ("/v1/boxes/%d/direct" % box, {"on": False}, {"on": True})):
                check(good(200, m, "PUT", target, body)["direct"] is False, target)
                until(lambda: is_direct() == "forbidden", "it is carried out")
                check(robots.direct == {number: False}, robots.direct)
                no = good(409, m, "POST", "/v1/leases", lease(host, tenant="t", peer=one["lease"]))
                check("forbidden" in no["detail"], no)
                check(good(200, m, "PUT", target, back)["direct"] is True, target)
                until(lambda: robots.direct == {number: True} and is_direct() == "allowed", "back")
            told = good(200, m, "GET", "/v1/events?type=slot.direct")["events"]
            check([(e["slot"], e["lease"]) for e in told] == [(slot, one["lease"])] * 4, told)
            check(good(404, m, "PUT", "/v1/boxes/%d/direct" % host, {"on": False}))
            check(good(400, m, "PUT", "/v1/boxes/%d/direct" % box, {"on": 1}))
            check(good(400, m, "PUT", "/v1/tenants/t", {"direct": None}))
            tenant = good(200, m, "PUT", "/v1/tenants/t", {"direct": False, "quota": 5})
            check(tenant["quota"] == 5 and tenant["direct"] is False, tenant)
            check(good(200, m, "PUT", "/v1/tenants/t", {"quota": 6})["direct"] is False)
        m.process.kill()
        m.start()
        tenants = good(200, m, "GET", "/v1/tenants")["tenants"]
        check([(t["tenant"], t["quota"], t["direct"]) for t in tenants] == [("t", 6, False)],
              tenants)
        good(200, m, "PUT", "/v1/tenants/t", {"direct": True})
        check(good(200, m, "GET", "/v1/pool")["direct"] is True)
        check(m.process.stop() == 0)
        m.args += ("--no-direct",)
        m.start()
        check(good(200, m, "GET", "/v1/pool")["direct"] is False)
        check(is_direct() in ("ordered", "forbidden"))


@case
def tenants_name_their_own_hosts():
    """Another's host, an unassigned host, a box and what there is not are answered alike; whose a
    host is outlives the manager."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l))
        with Robots(m, [(BOX, 8), (HOST, 4), (HOST, 4), (HOST, 4)]) as robots:
            box, mine, theirs, nobodys = robots.nodes
            until(lambda: good(200, m, "GET", "/v1/pool", token="read")["slots"]["free"] == 8,
                  "wiped")

            def own(node, owner, status=200):
                return good(status, m, "PUT", "/v1/hosts/%d/owner" % node, {"owner": owner},
                            token="operator")
            own(mine, "physics")
            own(theirs, "chemistry")
            own(box, "physics", 404)
            own(77, "physics", 404)
            for wrong in ("", "a b", "x" * 65, 5):
                own(mine, wrong, 400)
            for node in (theirs, nobodys, box, 77):
                no = good(403, m, "POST", "/v1/leases", lease(node), token="tenant")
                check(no["type"] == "/problems/host" and str(node) in no["detail"], no)
            check(good(200, m, "GET", "/v1/leases", token="read")["leases"] == [])
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(mine), token="tenant")
            at = "/v1/leases/" + one["lease"]
            check(good(200, m, "POST", at + "/park?wait=20", token="tenant")["state"] == "parked")
            for node in (theirs, nobodys, box, 77):
                no = good(403, m, "POST", at + "/attach", {"host": node}, token="tenant")
                check(no["type"] == "/problems/host", no)
            good(200, m, "POST", at + "/attach", {"host": mine}, token="tenant")
            good(201, m, "POST", "/v1/leases", lease(nobodys, tenant="physics"), token="operator")
            told = good(200, m, "GET", "/v1/events?type=node.owner", token="tenant")["events"]
            check([e["node"] for e in told] == [mine], told)
        m.process.kill()
        m.start()
        owners = {n["node"]: n["owner"] for n in
                  good(200, m, "GET", "/v1/nodes", token="read")["nodes"]}
        check(owners == {box: None, mine: "physics", theirs: "chemistry", nobodys: None}, owners)
        own(mine, None)
        no = good(403, m, "POST", "/v1/leases", lease(mine), token="tenant")
        check(no["type"] == "/problems/host", no)
        check(m.process.stop() == 0)
        m.args += ("--shared-hosts",)
        m.start()
        for node, status in ((mine, 503), (nobodys, 503), (theirs, 403), (box, 403)):
            # 503: the box has not registered yet
            good(status, m, "POST", "/v1/leases", lease(node), token="tenant")
        seen = good(200, m, "GET", "/v1/hosts", token="tenant")["nodes"]
        check([n["node"] for n in seen] == [mine, nobodys], seen)


def refuses(l, words, *args):
    """The manager does not start, and says these words: no restart would mend that."""
    p = l.run("dxpu-manager", "--listen", "127.0.0.1:0", "--store", l.file("pool.db"), *args)
    check(p.status == 2, p.status, p.errors())
    check(all(w in p.errors() for w in words), words, p.errors())


@case
def tokens_are_read_with_care():
    with lab.Lab(plain=True) as l:
        here = ("--http", "127.0.0.1:0", "--tokens")
        refuses(l, ["chmod 600"], *here, tokens_file(l, mode=0o644))
        refuses(l, ["--tokens"], *here, l.file("none"))
        refuses(l, ["is not a file"], *here, l.folder)
        refuses(l, ["no token"], *here, tokens_file(l, ""))
        refuses(l, ["twice"], *here, tokens_file(l, 2 * ("read - %s\n" % ("x" * 32))))
        for at in ("0.0.0.0:0", "[::]:0"):
            refuses(l, ["--tokens"], "--http", at)
        Manager(l, "--http", "0.0.0.0:0", "--tokens", tokens_file(l), "--store",
                l.file("open.db")).process.says("tokens go in clear text")
        m = Manager(l, "--tokens", tokens_file(l))
        good(200, m, "GET", "/v1/pool", token="read")
        check("is not in" in good(401, m, "GET", "/v1/pool", token="w" * 32)["detail"])
        check("give Authorization" in good(401, m, "GET", "/v1/pool")["detail"])
        stream = Stream(m, Authorization="Bearer " + TOKENS["read"])
        check(stream.status == 200)
        tokens_file(l, "read - %s\n" % ("n" * 32))
        m.process.popen.send_signal(signal.SIGHUP)
        ended = False
        try:
            stream.take(1)
        except (EOFError, http.client.HTTPException):
            ended = True
        check(ended, "a stream goes on without its token")
        until(lambda: ask(m, "GET", "/v1/pool", token="n" * 32).status == 200, "the new one")
        check(ask(m, "GET", "/v1/pool", token="read").status == 401)
        tokens_file(l, "nonsense\n")
        m.process.popen.send_signal(signal.SIGHUP)
        m.process.says("dxpu-manager: --tokens .*write ROLE TENANT TOKEN")
        m.process.says("dxpu-manager: the tokens are unchanged")
        for count, (line, words) in enumerate((
                ("", "no token"), ("# x\n", "no token"), ("read -\n", "ROLE TENANT"),
                ("root - %s\n" % ("x" * 32), "role"), ("tenant - x\n", "token"),
                ("read - short\n", "16"), ("tenant a/b %s\n" % ("x" * 32), "tenant"),
                ("read me %s\n" % ("x" * 32), "tenant"), ("read - %s\n" % ("x" * 600), "too long"),
                (2 * ("read - %s\n" % ("x" * 32)), "twice")), 2):
            tokens_file(l, line)
            m.process.popen.send_signal(signal.SIGHUP)
            until(lambda: m.process.errors().count("were refused\n") == count, line)
            why, end = m.process.errors().splitlines()[-2:]
            check("dxpu-manager: --tokens" in why and words in why.split("tokens: ", 1)[-1], line,
                  why, end)
        good(200, m, "GET", "/v1/pool", token="n" * 32)


@case
def web_pages_are_kept_out():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        port = m.http.rsplit(":", 1)[1]
        good_hosts = ("localhost", "localhost:" + port, "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80",
                      "[::1]:" + port, "[::1]")
        bad_hosts = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1",
                     "localhost:80:80", "[::2]", "[::1", "", "127.0.0.1:x", "0.0.0.0", "::1")
        for host in good_hosts:
            good(200, m, "GET", "/v1/pool", Host=host)
        for host in bad_hosts:
            check(ask(m, "GET", "/v1/pool", Host=host).status == 403, host)
        for fields in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                       {"Origin": "http://127.0.0.1"}, {"Sec_Fetch_Site": "cross-site"},
                       {"Sec_Fetch_Site": "same-site"}):
            for method, target in (("GET", "/v1/health"), ("POST", "/v1/leases"),
                                   ("GET", "/v1/events"), ("DELETE", "/v1/leases/c9")):
                answer = good(403, m, method, target, **fields)
                check(answer["type"] == "/problems/browser", answer)
            check(ask(m, "OPTIONS", "/v1/leases", **fields).status == 403)
        good(200, m, "GET", "/v1/pool", Sec_Fetch_Site="none")
        line = "GET http://%s/v1/pool HTTP/1.1\r\nHost: localhost\r\n\r\n"
        check(status_of(raw(m, (line % "localhost:1").encode())) == 200)
        check(status_of(raw(m, (line % "evil.example").encode())) == 403)
        plain = ask(m, "POST", "/v1/leases", json.dumps(lease(1)), Content_Type="text/plain")
        check(plain.status == 415, plain)
        m = Manager(l, "--tokens", tokens_file(l), store=l.file("other.db"))
        good(200, m, "GET", "/v1/pool", token="read", Host="pool.example", Origin="http://a.b")


# ---- HTTP ----

@case
def methods_and_media_types():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        for path in ("/v1/pool", "/metrics", "/v1/openapi.yaml", "/v1/events"):
            head, get = ask(m, "HEAD", path), ask(m, "GET", path)
            check(head.status == get.status == 200 and head.body == b"", path)
            check(head.type == get.type, head.type)
            check(path == "/metrics" or head.fields["Content-Length"] ==
                  get.fields["Content-Length"] == str(len(get.body)), path)
        allowed = {"/v1/leases": "GET, HEAD, POST, OPTIONS",
                   "/v1/leases/c9": "GET, HEAD, PATCH, DELETE, OPTIONS",
                   "/v1/tenants/x": "PUT, OPTIONS"}
        for path, methods in allowed.items():
            answer = ask(m, "OPTIONS", path)
            check(answer.status == 204 and answer.fields["Allow"] == methods, path, answer)
            check("Access-Control-Allow-Origin" not in answer.fields)
            for method in ("GET", "PUT", "PATCH", "DELETE", "POST"):
                answer = ask(m, method, path)
                check((answer.status == 405) == (method not in methods), method, path, answer)
                if answer.status == 405:
                    check(answer.fields["Allow"] == methods, answer.fields)
        check(ask(m, "OPTIONS", "*").status == 204 and ask(m, "OPTIONS", "/v1/no").status == 404)
        for method in ("BREW", "TRACE", "get"):
            check(ask(m, method, "/v1/pool").status == 501, method)
        for accept, status in (("*/*", 200), ("application/*", 200), ("text/html, */*;q=0.1", 200),
                               ("application/json;q=0.5", 200), ("text/html", 406),
                               ("application/json;q=0", 406), ("application/xml, text/plain", 406)):
            check(ask(m, "GET", "/v1/pool", Accept=accept).status == status, accept)
        check(ask(m, "GET", "/metrics", Accept="text/plain").status == 200)
        check(ask(m, "GET", "/metrics", Accept=JSON).status == 406)
        quota = json.dumps({"quota": 1})
        for kind, status in ((JSON, 200), (JSON + "; charset=utf-8", 200), ("text/json", 415),
                             ("application/x-www-form-urlencoded", 415), ("", 415)):
            answer = ask(m, "PUT", "/v1/tenants/x", quota, Content_Type=kind)
            check(answer.status == status, kind, answer)
        check(ask(m, "GET", "/v1/pool", "{}").status == 400, "a body where there is none")


@case
def bodies_are_read_strictly():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        bad = ["", "{", "[]", "null", "17", '"x"', "{} {}", '{"quota":1}x', '{"quota":1,}',
               '{"quota":1,"quota":2}', '{"quota":1,"other":2}', '{"Quota":1}', '{"quota":"1"}',
               '{"quota":-1}', '{"quota":1.5}', '{"quota":1e3}', '{"quota":true}', '{"quota":[1]}',
               '{"quota":4294967295}', '{"quota":99999999999999999999999999}',
               '{"quota":' + "[" * 5000, '{"a":' * 3000, '{"quota":1,"\\u0000":1}',
               '{"quota":1,"\xff":1}', "\0", '{"quota":1}\0', '{"quota":01}', "\ufeff{}",
               '{"quota":NaN}', "{'quota':1}", '{"quota":"\\ud800"}', '{"":1}']
        for body in bad:
            answer = ask(m, "PUT", "/v1/tenants/x", body.encode("latin-1", "replace"))
            check(answer.status == 400, body[:60], answer)
        for body, member in (('{"quota":-1}', "quota"), ('{"quota":1,"other":2}', "other"),
                             ("{}", "quota: is missing")):
            check(member in ask(m, "PUT", "/v1/tenants/x", body).detail(), body)
        check(ask(m, "PUT", "/v1/tenants/x", " " * 65537).status == 413)
        check(good(200, m, "GET", "/v1/tenants")["tenants"] == [], "nothing came of it")
        good(200, m, "PUT", "/v1/tenants/x", '{"quota":1}' + " " * 65500)
        check(good(200, m, "GET", "/v1/tenants")["tenants"][0]["quota"] == 1)
        whole = {"host": 1, "model": "nvme", "count": 1, "need": "any", "tenant": "t",
                 "seconds": 5, "replace": True, "key": "k"}
        check(good(404, m, "POST", "/v1/leases", whole)["type"] == "/problems/unknown")
        for name, values in {
                "host": (0, -1, 4294967296, "1", None, 1.0),
                "model": ("", "x" * 33, "a b", 1, None), "count": (0, 65, "1", None),
                "need": ("", "Any", 0, None), "replace": (1, "yes", None),
                "tenant": ("", "a b", "a/b", "x" * 65, "\u00e9", None),
                "key": ("", "x" * 65, "a b", 5), "attributes": ("", "x" * 65, "a b", 5),
                "device": ("", "Any", 0, None), "exclusive": (0, "yes", None),
                "apart": (1, "no", None),
                "seconds": (0, -5, (1 << 30) + 1, "5")}.items():
            for value in values:
                answer = ask(m, "POST", "/v1/leases", dict(whole, **{name: value}))
                check(answer.status == 400 and answer.detail().startswith(name + ":"), name, value,
                      answer)


@case
def targets_are_read_strictly():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        for target, status in (
                ("/v1/pool", 200), ("/v1/%70ool", 200), ("/v1/slots?state=fr%65e", 200),
                ("/v1/pool?", 200), ("/v1/pool?x=1", 400), ("/v1/slots?limit=1&limit=2", 400),
                ("/v1/slots?limit=1&", 200), ("/v1/slots?&limit=1", 400), ("/v1/slots?limit", 400),
                ("/v1/slots?limit=01", 400), ("/v1/slots?limit=1001", 400),
                ("/v1/slots?limit=+1", 400),
                ("/v1/slots?limit=0x10", 400), ("/v1/slots?limit=1%00", 400),
                ("/v1/slots?limit=99999999999999999999999", 400), ("/v1/slots?after=1", 400),
                ("/v1/slots?after=1.65536", 400), ("/v1/slots?after=1.1", 200),
                ("/v1/slots?state=none", 400), ("/v1/leases?after=C9", 400),
                ("/v1/leases?after=0c9", 400), ("/v1/leases?after=c9", 200), ("/v1/%", 400),
                ("/v1/%zz", 400), ("/v1/%7", 400), ("/v1/pool%00", 400), ("/v1/pool%0a", 400),
                ("/v1/pool%ff", 400), ("/v1/pool/", 404), ("//v1/pool", 404), ("/v1/./pool", 404),
                ("/v1/../v1/pool", 404), ("/", 404), ("/v1/leases/c9/attach/x/y/z/w", 404),
                ("/v1/leases/0", 404), ("/v1/leases/C9", 404), ("/v1/leases/" + "f" * 17, 404),
                ("/v1/slots/1", 404), ("/v1/slots/1.2.3", 404), ("/v1/slots/01.2", 404),
                ("/v1/nodes/4294967296", 404), ("/v1/nodes/-1", 404),
                ("/v1/nodes/" + "9" * 40, 404),
                ("/v1/pool#x", 400), ("/v1/" + "x" * 2100, 414)):
            said = raw(m, ("GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" %
                           target).encode("latin-1"))
            check(status_of(said) == status, target[:60], said[:300])
            check(status == 200 or b"application/problem+json" in said, target[:60])


HEAD = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"PUT /v1/tenants/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"quota":1}'


CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"quo\r\n6\r\nta\":1}\r\n0\r\nX: y\r\n\r\n"


@case
def http_is_read_with_care():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        for data in (HEAD + b"\r\n", HEAD + b"X: y\r\n\r\n", HEAD + b"X: \xc3\xa9\r\n\r\n",
                     b"GET /v1/health HTTP/1.0\r\n\r\n", HEAD.replace(b"\r\n", b"\n") + b"\n",
                     HEAD + b"X: y\r\n" * 63 + b"\r\n", POST + CHUNKS,
                     POST + b"Content-Length: 11\r\n\r\n" + BODY):
            check(status_of(raw(m, data)) == 200, data)
        for data, status in (  # what libevent refuses by itself, with a page
                (b"\r\n" + HEAD + b"\r\n", 400), (b"GET /v1/health HTTP/2.0\r\n\r\n", 400),
                (b"GET /v1/health\r\n\r\n", 400), (HEAD + b"X\r\n\r\n", 400),
                (HEAD + b"X: a\rb\r\n\r\n", 400), (HEAD + b"X: " + b"y" * 17000 + b"\r\n\r\n", 400),
                (b"GET /" + b"y" * 17000, 400), (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\r\n", 400),
                (b"get /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
                (POST + b"Content-Length: 1x\r\n\r\n" + BODY, 400),
                (POST + b"Content-Length: -1\r\n\r\n" + BODY, 400),
                (POST + b"Content-Length:\r\n\r\n" + BODY, 400),
                (POST + b"Content-Length: 70000\r\n\r\n" + b" " * 70000, 413),
                (POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", 413),
                (POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", 413),
                (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 413),
                (POST + b"Transfer-Encoding: chunked\r\n\r\n10001\r\n", 413),
                (POST + b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\n", 413),
                (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n", 413),
                (POST + b"Expect: tea\r\nContent-Length: 11\r\n\r\n" + BODY, 417)):
            said = raw(m, data, end=False)
            check(status_of(said) == status and count_answers(said) == 1, data[:200], said)
            check(b"text/html" in said and b"Connection: close" in said, data[:200], said)
        for data, status in (  # what it lets through, and we do not
                (b"GET /v1/health HTTP/1.1\r\n\r\n", 400), (HEAD + b": y\r\n\r\n", 400),
                (b"GET  /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                (HEAD.replace(b"1.1", b"1.2") + b"\r\n", 505),
                (HEAD.replace(b"1.1", b"0.9") + b"\r\n", 505),
                (HEAD + b"X : y\r\n\r\n", 400), (HEAD + b"X: \x01\r\n\r\n", 400),
                (HEAD + b" folded\r\n\r\n", 400), (HEAD + b"Host: localhost\r\n\r\n", 400),
                (HEAD + b"X: y\r\n" * 64 + b"\r\n", 431)):
            said = raw(m, data, end=False)
            check(status_of(said) == status and count_answers(said) == 1, data[:200], said)
            check(b"application/problem+json" in said and b"Connection: close" in said, said)


@case
def no_request_hides_in_another():
    """What a proxy in front may read as one request is not two here."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        hidden = b"PUT /v1/tenants/hidden HTTP/1.1\r\nHost: localhost\r\nContent-Type: " \
            b"application/json\r\nContent-Length: 11\r\n\r\n" + BODY
        length = b"Content-Length: %d\r\n" % len(hidden)
        for data in (POST + length + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     POST + b"Transfer-Encoding: chunked\r\n" + length + b"\r\n0\r\n\r\n",
                     POST + length + b"Content-Length: 0\r\n\r\n",
                     POST + b"Content-Length: 0\r\n" + length + b"\r\n",
                     POST + b"Content-Length: +0\r\n\r\n",
                     POST + length.replace(b":", b" :") + b"\r\n",
                     POST + b"Transfer-Encoding : chunked\r\n\r\n",
                     POST + b"Transfer-Encoding: gzip\r\n\r\n",
                     POST + b"Transfer-Encoding: xchunked\r\n\r\n",
                     POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
                     POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                     POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
                     (POST + CHUNKS).replace(b"HTTP/1.1", b"HTTP/1.0"),
                     HEAD.replace(b"GET", b"HEAD") + length + b"\r\n",
                     HEAD.replace(b"GET", b"HEAD") + b"Transfer-Encoding: chunked\r\n\r\n",
                     HEAD.replace(b"GET", b"TRACE") + length + b"\r\n",
                     POST + b"Content-Length: 70000\r\n\r\n" + b" " * 69000):
            said = raw(m, data + hidden + b" " * 1000, end=False)
            check(status_of(said) in (400, 413, 501), data[:300], said)
            check(count_answers(said) == 1, data[:300], said)
            check(b"Connection: close" in said, said)
        check(good(200, m, "GET", "/v1/tenants")["tenants"] == [], "it was not seen")
        raw(m, POST + b"Content-Length: 11\r\n\r\n" + BODY + hidden + HEAD +
            b"Connection: close\r\n\r\n", end=False)
        check(len(good(200, m, "GET", "/v1/tenants")["tenants"]) == 2, "it would have been")


def until_the_end(s, size=65536):
    said = b""
    while True:
        more = s.recv(size)
        if not more:
            return said
        said += more


def connected(m, small=False):
    host, port = m.http.rsplit(":", 1)
    s = socket.socket()
    s.settimeout(60)
    if small:  # or kernels hold it all
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    s.connect((host, int(port)))
    return s


@case
def requests_follow_one_another():
    last = HEAD + b"Connection: close\r\n\r\n"
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        whole = POST + b"Content-Length: 11\r\n\r\n" + BODY
        said = raw(m, (HEAD + b"\r\n" + whole) * 20 + last, end=False)
        check(len(re.findall(rb"HTTP/1.1 200 OK", said)) == 41, said[-300:])
        said = raw(m, last + HEAD + b"\r\n", end=False)
        check(count_answers(said) == 1 and b"Connection: close" in said, said)
        # a refusal of what is asked, and not how: the connection stays
        said = raw(m, HEAD.replace(b"health", b"nope") + b"\r\n" + last, end=False)
        check(status_of(said) == 404 and said.count(b"HTTP/1.1 200 OK") == 1, said)
        # answers that are not taken hold up the requests behind them
        with connected(m, small=True) as s:
            s.sendall((HEAD.replace(b"GET", b"HEAD") + b"\r\n") * 1900 + last)
            time.sleep(0.5)  # it would run ahead now
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            said = until_the_end(s)
            check(said.count(b"HTTP/1.1 200 OK") == 1901, len(said))
        with connected(m) as s:
            for byte in whole + HEAD + b"\r\n":
                s.send(bytes((byte,)))
            said = b""
            while said.count(b"HTTP/1.1 200") < 2 or b"uptime" not in said:
                said += s.recv(4096)
            s.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 11\r\n\r\n")
            check(s.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n")
            s.sendall(BODY)
            check(status_of(s.recv(4096)) == 200)


@case
def who_sends_ahead_is_held_up():
    """Bytes behind a request that streams, or waits, stay with their sender."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, HOST) as host, Fake(m, BOX) as box, connected(m) as s, connected(m) as w:
            at = host.register()[0]
            box.register()
            s.sendall(HEAD.replace(b"health", b"events?after=0") +
                      b"Accept: text/event-stream\r\n\r\n")
            check(status_of(s.recv(4096)) == 200)
            body = json.dumps(lease(at)).encode()
            w.sendall(POST.replace(b"PUT /v1/tenants/x", b"POST /v1/leases?wait=200") +
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            until(lambda: gauge(m, "dxpu_http_waiting") == 1, "it waits")
            for of in (s, w):
                of.settimeout(1)
                sent = 0
                try:
                    while sent < 64 << 20:
                        sent += of.send((HEAD + b"\r\n") * 1000)
                except socket.timeout:
                    pass
                check(sent < 64 << 20, "it takes all")
                good(200, m, "GET", "/v1/health")
            check(gauge(m, "dxpu_http_waiting") == 1, "it still waits")
            rss = int(re.search(r"VmRSS:\s+(\d+)", open(
                "/proc/%d/status" % m.process.popen.pid, encoding="ascii").read()).group(1))
            print("# VmRSS %d KiB" % rss)
        until(lambda: gauge(m, "dxpu_http_streams") == 0, "the stream is over")


@case
def long_answers_arrive_whole():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        name_tenants(m, ["tenant-%057d" % n for n in range(1500)])
        with connected(m, small=True) as s:
            s.sendall(HEAD.replace(b"health", b"events?limit=1000") + b"Connection: close\r\n\r\n")
            said = until_the_end(s, 1000)
        events = json.loads(said.split(b"\r\n\r\n", 1)[1])["events"]
        check(len(said) > 150000 and len(events) == 1000, len(said))
        check(len(good(200, m, "GET", "/v1/tenants")["tenants"]) == 1500)


# ---- Events and waiting ----

class Stream:
    """Server-sent events."""

    def __init__(self, m, target="/v1/events", **fields):
        self.conn = http.client.HTTPConnection(m.http, timeout=30)
        fields = {name.replace("_", "-"): str(value) for name, value in fields.items()}
        self.conn.request("GET", target, headers=dict(fields, Accept="text/event-stream"))
        self.answer = self.conn.getresponse()
        self.status, self.type = self.answer.status, self.answer.headers["Content-Type"]

    def take(self, count):
        out = []
        while len(out) < count:
            fields = {}
            while True:
                line = self.answer.readline().decode()
                if not line.endswith("\n"):
                    raise EOFError(out)
                if line == "\n":
                    break
                name, value = line.rstrip("\n").split(":", 1)
                fields[name] = value.strip()  # a comment has no name
            if "data" in fields:
                data = json.loads(fields["data"])
                wrong = openapi.valid(DOC, DOC["components"]["schemas"]["event"], data)
                check(not wrong, wrong)
                check(fields["id"] == str(data["event"]), fields)
                check(fields["event"] == data["type"], fields)
                out.append(data)
        return out

    def close(self):
        self.conn.close()


@case
def streams_of_events_go_on_where_they_ended():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        for n in range(10):
            good(200, m, "PUT", "/v1/tenants/old%d" % n, {"quota": n})
        now, all_of_them = Stream(m), Stream(m, "/v1/events?after=0")
        check(now.status == 200 and now.type == "text/event-stream", now.type)
        for n in range(10):
            good(200, m, "PUT", "/v1/tenants/new%d" % n, {"quota": n})
        whole = [e["event"] for e in good(200, m, "GET", "/v1/events?limit=1000")["events"]]
        check(len(whole) == 20, whole)
        check([e["event"] for e in all_of_them.take(20)] == whole)
        check([e["event"] for e in now.take(10)] == whole[10:])
        now.close()
        again = Stream(m, "/v1/events?after=0", Last_Event_ID=whole[12])
        check([e["event"] for e in again.take(7)] == whole[13:], "Last-Event-ID goes before after")
        m.process.kill()
        try:
            again.take(1)
            check(False, "a stream without a manager")
        except (EOFError, ConnectionError):
            pass
        m.start()
        again = Stream(m, Last_Event_ID=whole[-1])
        good(200, m, "PUT", "/v1/tenants/later", {"quota": 5})
        check(again.take(1)[0]["event"] == whole[-1] + 1)
        chosen = Stream(m, "/v1/events?after=0&type=lease")
        other = Stream(m, Last_Event_ID=1 << 60)
        with Robots(m, [(BOX, 2), (HOST, 2)]) as robots:
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 2, "wiped")
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(robots.nodes[1]))
            types = [e["type"] for e in chosen.take(2)]
            check(types == ["lease.created", "lease.up"], types)
            check(other.take(1)[0]["event"] > whole[-1] + 1, "a number of another store")
            mine = Stream(m, "/v1/events?after=0&lease=" + one["lease"])
            check(mine.take(2)[0]["lease"] == one["lease"])
        check(ask(m, "GET", "/v1/events", Accept="text/event-stream, text/html;q=0.5",
                  Last_Event_ID="x").status == 400)


def gauge(m, name, **more):
    said = good(200, m, "GET", "/metrics", **more).decode()
    return int(re.search(r"^%s (\d+)$" % name, said, re.M).group(1))


@case
def a_slow_reader_is_dropped_and_others_stay():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        name_tenants(m, ["tenant-%057d" % (n % 300) for n in range(1500)])
        with connected(m, small=True) as slow:
            slow.sendall(HEAD.replace(b"health", b"events?after=0") +
                         b"Accept: text/event-stream\r\n\r\n")
            reader = Stream(m, "/v1/events?after=0")
            check(reader.take(1500)[-1]["event"] == 1500)
            check(gauge(m, "dxpu_http_streams") == 2)
            until(lambda: gauge(m, "dxpu_http_streams") == 1, "the slow one is dropped", 60)
            good(200, m, "PUT", "/v1/tenants/last", {"quota": 1})
            check(reader.take(1)[0]["event"] == 1501, "the other one goes on")


@case
def places_for_streams_and_waits_are_bounded():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--audit", l.file("audit"), "--http-waiting", 32, "--http-streams", 16)
        with Fake(m, HOST) as host, Fake(m, BOX) as box:
            at = host.register()[0]
            box.register()
            streams = [Stream(m) for _ in range(16)]
            check(all(s.status == 200 for s in streams))
            full = ask(m, "GET", "/v1/events", Accept="text/event-stream")
            check(full.status == 503 and full.fields["Retry-After"] == "1", full)
            good(200, m, "GET", "/v1/events")
            streams.pop().close()
            until(lambda: gauge(m, "dxpu_http_streams") == 15, "one went")
            Stream(m)
            body = json.dumps(lease(at, key="one")).encode()
            post = (b"POST /v1/leases?wait=200 HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                    b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
            web, port = m.http.rsplit(":", 1)
            waits = []
            for n in range(32):
                waits.append(socket.create_connection((web, int(port)), 10))
                waits[-1].sendall(post)
                until(lambda: gauge(m, "dxpu_http_waiting") == n + 1, "it waits")
            full = ask(m, "POST", "/v1/leases?wait=200", lease(at, key="two"))
            check(full.status == 503 and full.json()["type"] == "/problems/busy", full)
            check(len(good(200, m, "GET", "/v1/leases")["leases"]) == 1, "and changes nothing")
            good(201, m, "POST", "/v1/leases", lease(at, key="two"))
            before = posts(l)
            waits.pop().close()
            until(lambda: gauge(m, "dxpu_http_waiting") == 31, "who hangs up, waits no more")
            check(posts(l) == before + 1, "S-130: what was asked for was done")
            check(m.process.stop() == 0, "it stops while they wait", m.process.errors())
            check(posts(l) == before + 32)
            for s in waits:
                check(s.recv(1) == b"")
                s.close()


def posts(l):
    """How many the audit log has."""
    with open(l.file("audit"), encoding="ascii") as log:
        return sum('"api.request"' in line and '"POST"' in line for line in log)


@case
def waiting_does_not_keep_others_waiting():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        robots = Robots(m, [(BOX, 4), (HOST, 4)])  # they do nothing yet
        answers = []
        waits = threading.Thread(target=lambda: answers.append(
            ask(m, "POST", "/v1/leases?wait=100", lease(robots.nodes[1]))))
        waits.start()
        until(lambda: gauge(m, "dxpu_http_waiting") == 1, "it waits")
        found = good(200, m, "GET", "/v1/leases")["leases"]
        check(found[0]["state"] == "pending" and not answers, found)
        short = ask(m, "POST", "/v1/leases?wait=1", lease(robots.nodes[1], key="x"))
        check(short.status == 201 and short.json()["state"] == "pending", short)
        with robots:
            waits.join()
            check(answers[0].status == 201 and answers[0].json()["state"] == "active", answers[0])
        gone = []
        one = good(200, m, "GET", "/v1/leases?limit=1")["leases"][0]
        at = "/v1/leases/" + one["lease"]
        waits = threading.Thread(target=lambda: gone.append(ask(m, "DELETE", at + "?wait=3")))
        waits.start()
        until(lambda: gauge(m, "dxpu_http_waiting") == 1 or gone, "nobody wipes")
        check(ask(m, "GET", at).status == 404 and not gone, "released, and not wiped yet")
        waits.join()
        check(gone[0].status == 202 and gone[0].json()["state"] == "wiping", gone[0])
        check([s["state"] for s in gone[0].json()["slots"]] == ["wiping"], gone[0])


class Box:
    """A box by hand in a thread, whose wipes end as is said; and its host."""

    def __init__(self, m, becomes):
        self.m, self.becomes = m, becomes
        self.ended, self.away = threading.Event(), threading.Event()
        self.fake, self.host = Fake(m, BOX, slots=1), Fake(m, HOST, slots=1)
        self.box, self.at = self.fake.register()[0], self.host.register()[0]
        self.fake.socket.settimeout(0.1)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.ended.set()
        self.thread.join()
        self.fake.close()
        self.host.close()

    def now(self, state, epoch=0):
        self.fake.send(self.fake.register_message(
            devices=[device(1, state, 1, epoch, self.seen, self.at if epoch else 0, 1)]))

    def run(self):
        self.seen = 0
        while not self.ended.is_set():
            if self.away.is_set():
                self.fake.close()
                try:
                    self.host.heartbeat()
                except OSError:
                    return  # it answers no orders, and was dropped for that
                time.sleep(0.05)
                continue
            try:
                kind, request, body = self.fake.receive()
            except TimeoutError:
                self.fake.heartbeat()
                self.host.heartbeat()
                continue
            if kind == BIND:
                self.seen = struct.unpack(">Q", body[8:16])[0]
                self.fake.send(done(1, HELD, self.seen, request))
                self.now(HELD, self.seen)
            elif kind == UNBIND:
                self.fake.send(done(1, WIPING, 0, request))
                self.now(self.becomes)
            elif kind == DRAIN:
                self.fake.send(done(0, 0, 0, request))
            elif kind == ASK:
                self.fake.send(message(ERROR, struct.pack(">HH", 1, 0) + text("none"), request))


def lent(m, host):
    until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 1, "wiped")
    one = good(201, m, "POST", "/v1/leases", lease(host))
    until(lambda: good(200, m, "GET", "/v1/slots")["slots"][0]["box_state"] == "held", "bound")
    return "/v1/leases/" + one["lease"]


@case
def the_end_of_a_lease_is_reported_as_it_is():
    """Wiped, not yet, or not at all: a wait distinguishes them, and without one the slots do."""
    for becomes, status, state in ((WIPED, 200, "free"), (UNWIPED, 409, "quarantined"),
                                   (WIPING, 202, "wiping")):
        with lab.Lab(plain=True) as l:
            m = Manager(l)
            with Box(m, becomes) as b:
                answer = ask(m, "DELETE", lent(m, b.at) + "?wait=%d" % (2 if becomes == WIPING
                                                                       else 20))
                check(answer.status == status, becomes, answer)
                slot = good(200, m, "GET", "/v1/slots")["slots"][0]
                check(slot["state"] == state, slot)
                if status == 409:
                    check(answer.json()["type"] == "/problems/wipe" and
                          slot["slot"] + " quarantined (wipe)" in answer.detail(), answer)
                else:
                    end = answer.json()
                    word, why = ("wiped", "none") if status == 200 else ("wiping", "release")
                    check(end["state"] == ("released" if status == 200 else "wiping") and
                          end["slots"] == [dict(slot=slot["slot"], state=word,
                                               reason=why)], end)
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Box(m, WIPING) as b:
            end = good(200, m, "DELETE", lent(m, b.at))
            check(end["state"] == "released" and end["slots"][0]["state"] == "wiping", end)


@case
def a_wait_for_a_disconnected_box_is_no_success():
    """Its slot is broken, and wiped when it is back: neither wiped nor failed."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--heartbeat-ms", 100, "--grace-ms", 300)
        with Box(m, WIPED) as b:
            at = lent(m, b.at)
            b.away.set()
            until(lambda: good(200, m, "GET", "/v1/slots")["slots"][0]["state"] == "broken", "away")
            end = good(202, m, "DELETE", at + "?wait=1")
            check(end["state"] == "wiping" and end["slots"][0]["state"] == "broken" and
                  end["slots"][0]["reason"] == "box", end)
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Box(m, WIPED) as b:
            at = lent(m, b.at)
            slot = good(200, m, "GET", "/v1/slots")["slots"][0]["slot"]
            good(200, m, "POST", "/v1/slots/%s/break" % slot)
            answer = good(409, m, "DELETE", at + "?wait=20")
            check("broken (operator)" in answer["detail"], answer)


@case
def a_wait_finds_its_slots_again():
    """The tables were rebuilt meanwhile: a node before the slot's was forgotten."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, BOX, slots=3) as other:
            first = other.register()[0]
        with Box(m, WIPING) as b:
            until(lambda: not good(200, m, "GET", "/v1/nodes/%d" % first)["connected"], "gone")
            until(lambda: any(s["slot"] == "%d.1" % b.box and s["state"] == "free"
                              for s in good(200, m, "GET", "/v1/slots")["slots"]), "wiped")
            one = good(201, m, "POST", "/v1/leases", lease(b.at))
            check(one["slots"][0]["slot"] == "%d.1" % b.box, one)
            until(lambda: good(200, m, "GET", "/v1/slots/%d.1" % b.box)["box_state"] == "held",
                  "bound")
            gone = []
            waits = threading.Thread(target=lambda: gone.append(
                ask(m, "DELETE", "/v1/leases/%s?wait=4" % one["lease"])))
            waits.start()
            until(lambda: gauge(m, "dxpu_http_waiting") == 1, "it waits")
            good(200, m, "DELETE", "/v1/nodes/%d" % first)
            waits.join()
            check(gone[0].status == 202, gone[0])
            check([(s["slot"], s["state"]) for s in gone[0].json()["slots"]] ==
                  [("%d.1" % b.box, "wiping")], gone[0])


@case
def parked_is_reported_when_the_box_has_it_back():
    """Without its box it is unknown whether the data are out of the host's reach."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Box(m, KEPT) as b:
            end = good(200, m, "DELETE", lent(m, b.at) + "?data=keep&wait=20")
            check(end["state"] == "ended" and end["slots"][0]["state"] == "kept", end)
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--heartbeat-ms", 100)
        with Box(m, KEPT) as b:
            at = lent(m, b.at)
        until(lambda: not good(200, m, "GET", "/v1/nodes/%d" % b.box)["connected"], "away")
        end = good(202, m, "POST", at + "/park?wait=1")
        check(end["state"] == "closing" and end["slots"][0]["state"] == "held", end)


# ---- Hostile ones ----

@case
def connections_are_bounded_and_known_ones_stay():
    """M-151: strangers, silent and refused, displace one another, and no known client, idle or
    not."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l), "--http-connections", 64)
        host, port = m.http.rsplit(":", 1)
        idle = crowd_with(m, "tenant", 3)
        kept = crowd_with(m, "read", 1, b"/v1/events", STREAM)
        crowd = []
        for _ in range(100):
            crowd.append(socket.create_connection((host, int(port)), 10))
        for _ in range(100):
            crowd.append(socket.create_connection((host, int(port)), 10))
            crowd[-1].sendall(HEAD + b"\r\n")
        until(lambda: gauge(m, "dxpu_http_connections_displaced_total", token="read") >= 100,
              "some had to go")
        good(200, m, "PUT", "/v1/tenants/x", {"quota": 1}, token="operator")
        said = b""
        while b"event: tenant.set" not in said:
            more = kept[0].recv(65536)
            check(more, "the stream of one who is known was closed")
            said += more
        check(still_open(idle) == 3, "connections of a known client were closed")
        check(m.process.errors().count("was closed to make room") == 1, m.process.errors())
        for s in crowd + idle + kept:
            s.close()


def burst(m, count, token):
    """The answers to `count` requests at once, each on a connection of its own that stays open."""
    answers, errors, gate = [], [], threading.Barrier(count)

    def one():
        conn = http.client.HTTPConnection(m.http, timeout=60)
        gate.wait()
        try:
            conn.request("GET", "/v1/pool", headers={"Authorization": "Bearer " + TOKENS[token]})
            got = conn.getresponse()
            answers.append((got.status, got.getheader("Retry-After"), got.read(), conn))
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not errors, "of %d clients %d got no answer:" % (count, len(errors)), errors[:3])
    return answers


def hang_up(answers):
    for *_, conn in answers:
        conn.close()


@case
def a_burst_of_clients_is_served():
    """M-151: 200 at once, with one token or two: each is answered, also with a quarter of the
    places, and with strangers about.  A client that gets no place learns when to come back."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l))
        host, port = m.http.rsplit(":", 1)
        for token in ("tenant", "operator"):
            answers = burst(m, 200, token)
            check(all(a[0] == 200 for a in answers), [a[:3] for a in answers if a[0] != 200][:3])
            hang_up(answers)
        strangers = [socket.create_connection((host, int(port)), 10) for _ in range(150)]
        answers = burst(m, 200, "tenant")
        check(all(a[0] == 200 for a in answers), [a[:3] for a in answers if a[0] != 200][:3])
        hang_up(answers)
        for s in strangers:
            s.close()
        check(m.process.stop() == 0)
        m.args += ("--http-connections", 16, "--http-waiting", 8)
        m.start()
        streams = crowd_with(m, "tenant", 4, b"/v1/events", STREAM)  # all places of this tenant
        check(all(s.recv(65536) for s in streams))
        answers = burst(m, 200, "tenant")
        check(len(answers) == 200 and all(a[:2] == (503, "1") for a in answers), answers[0][:3])
        check(json.loads(answers[0][2])["type"] == "/problems/busy", answers[0][2])
        hang_up(answers)
        good(200, m, "GET", "/v1/pool", token="other")
        streams.pop().close()
        until(lambda: ask(m, "GET", "/v1/pool", token="tenant").status == 200, "there is a place")
        for s in streams:
            s.close()


@case
def a_restart_refuses_for_the_time_being():
    """M-150: until its boxes are back the manager does not say that there is no slot (409): the
    client is to come back.  The control: once all have registered it does."""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, HOST) as host, Fake(m, BOX) as box:
            at = host.register()[0]
            box.register()
            good(201, m, "POST", "/v1/leases", lease(at))
            m.process.kill()
            m.start()
            early = ask(m, "POST", "/v1/leases", lease(at, key="k"))
            check(early.status == 503 and early.fields["Retry-After"] == "1", early)
            check(early.json()["type"] == "/problems/starting", early)
            with Fake(m, HOST, host.identity) as host, Fake(m, BOX, box.identity) as box:
                host.register()
                box.register()
                until(lambda: ask(m, "POST", "/v1/leases", lease(at, key="k")).status in (200, 201),
                      "it lends again")
                until(lambda: ask(m, "POST", "/v1/leases", lease(at, count=4)).status == 409,
                      "then a refusal is one")


@case
def a_quota_refusal_has_its_numbers():
    """M-152"""
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Fake(m, HOST) as host, Fake(m, BOX) as box:
            at = host.register()[0]
            box.register()
            good(200, m, "PUT", "/v1/tenants/physics", {"quota": 3})
            good(201, m, "POST", "/v1/leases", lease(at, tenant="physics", count=2))
            no = ask(m, "POST", "/v1/leases", lease(at, tenant="physics", count=2))
            check(no.status == 409, no)
            found = no.json()
            check([found[k] for k in ("type", "used", "limit", "asked")] ==
                  ["/problems/quota", 2, 3, 2], found)
            check("physics uses 2 of 3 slots and asks for 2" in found["detail"], found)


def crowd_with(m, token, count, target=b"/v1/pool", fields=b""):
    """Connections of its owner, each with a request that is answered, or waits."""
    host, port = m.http.rsplit(":", 1)
    crowd = []
    for _ in range(count):
        crowd.append(socket.create_connection((host, int(port)), 10))
        crowd[-1].sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
                          b"Bearer " + TOKENS[token].encode() + b"\r\n" + fields + b"\r\n")
        crowd[-1].recv(12)
    return crowd


def still_open(s):
    """How many of these were not closed, once all were silent for a while."""
    left = set(s)
    while left:
        ready = select.select(left, [], [], 0.5)[0]
        if not ready:
            break
        for one in ready:
            try:
                if not one.recv(65536):
                    left.remove(one)
            except OSError:
                left.remove(one)
    return len(left)


STREAM = b"Accept: text/event-stream\r\n"


@case
def a_tenant_has_a_share_of_the_places():
    """Its crowd is answered, and keeps half of its share while it says nothing; others' stay.  The
    control: an operator's crowd keeps more."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l), "--http-connections", 64)
        idle = crowd_with(m, "other", 3)
        ours = crowd_with(m, "operator", 1, b"/v1/events", STREAM)
        crowd = crowd_with(m, "tenant", 70)
        check(still_open(crowd) == 8, "half of a quarter")
        check(still_open(idle) == 3 and still_open(ours) == 1, "others' stay")
        operators = crowd_with(m, "operator", 70)
        check(still_open(operators) > 25, "the control")
        check(still_open(ours) == 1 and still_open(idle) == 3, "who is known stays")
        for s in idle + ours + crowd + operators:
            s.close()


@case
def a_tenant_has_a_share_of_the_streams():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--tokens", tokens_file(l), "--http-connections", 64, "--http-streams",
                    16)
        kept = []
        for token, may in (("tenant", 4), ("other", 4), ("read", 4), ("operator", 4)):
            crowd = crowd_with(m, token, may + 30, b"/v1/events", STREAM)
            until(lambda: gauge(m, "dxpu_http_streams", token="operator") == len(kept) + may, token)
            check(still_open(crowd[:may]) == may, token)
            kept += crowd[:may]
            for s in crowd[may:]:
                s.close()
        check(still_open(kept) == 16)
        kept.pop(0).close()  # its place is another's
        until(lambda: gauge(m, "dxpu_http_streams", token="operator") == 15, "one went")
        kept += crowd_with(m, "tenant", 1, b"/v1/events", STREAM)
        check(still_open(kept) == 16)
        check(gauge(m, "dxpu_http_streams", token="operator") == 16)


@case
def a_request_ends_in_time():
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with connected(m) as s:
            good(200, m, "GET", "/v1/health")
            quiet = Stream(m)
            s.sendall(HEAD)
            said = b""
            ended = threading.Event()

            def drip():
                try:
                    while not ended.wait(0.5):
                        s.sendall(b"X: y\r\n")
                except OSError:
                    pass
            thread = threading.Thread(target=drip)
            thread.start()
            try:
                said = until_the_end(s)  # for ever, if it does not end it
            except ConnectionError:
                pass
            ended.set()
            thread.join()
            check(not said, said)
        lines = [quiet.answer.readline() for _ in range(3)]
        check(lines == [b"retry: 1000\n", b"\n", b":\n"], "a comment meanwhile", lines)
        good(200, m, "PUT", "/v1/tenants/x", {"quota": 1})
        check(quiet.take(1)[0]["type"] == "tenant.set")


SEEDS = (HEAD + b"\r\n", POST + b"Content-Length: 11\r\n\r\n" + BODY,
         POST + b"Transfer-Encoding: chunked\r\n\r\nb\r\n" + BODY + b"\r\n0\r\n\r\n",
         b"GET /v1/slots?state=free&limit=3&after=1.2 HTTP/1.1\r\nHost: [::1]:80\r\n"
         b"Accept: */*\r\n\r\n",
         b"GET /v1/events?after=0&type=node HTTP/1.1\r\nHost: localhost\r\n"
         b"Last-Event-ID: 3\r\n\r\n",
         b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b'Content-Length: 63\r\n\r\n{"host":1,"model":"nvme","count":1,'
         b'"need":"any","key":"\\u0041b"}',
         b"PATCH /v1/leases/c00000001 HTTP/1.0\r\nContent-Type: application/json\r\n"
         b'Content-Length: 13\r\n\r\n{"seconds":5}',
         b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")


def spoilt(r, data):
    data = bytearray(data)
    for _ in range(r.randrange(1, 6)):
        at = r.randrange(len(data))
        what = r.randrange(6)
        if what == 0:
            data[at] ^= 1 << r.randrange(8)
        elif what == 1:
            data[at] = r.choice(b'\0\r\n %"{}[],:;\xff09')
        elif what == 2:
            del data[at:at + r.randrange(1, 9)]
        elif what == 3:
            data[at:at] = data[at:at + r.randrange(1, 40)]
        elif what == 4:
            data[at:at] = r.choice(SEEDS)[:r.randrange(60)]
        else:
            data[at:at] = r.choice((b"9" * 30, b"%00", b"\\u0000", b"[" * 50, b"Host: x\r\n",
                                    b"Content-Length: 5\r\n", b"-1", b"\r\n\r\n", b"Expect: x\r\n"))
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


@case
def random_bytes_do_no_harm():
    rounds = int(os.environ.get("DXPU_ROUNDS", 2000))
    seed = int(os.environ.get("DXPU_SEED", random.randrange(1 << 32)))
    print("# DXPU_SEED=%d" % seed)
    r = random.Random(seed)
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        host, port = m.http.rsplit(":", 1)
        statuses = set()
        for n in range(min(rounds, 20000)):
            with socket.create_connection((host, int(port)), 10) as s:
                data = r.randbytes(r.randrange(1, 300)) if r.random() < 0.1 \
                    else spoilt(r, r.choice(SEEDS))
                try:
                    s.sendall(data)
                    if r.random() < 0.7:
                        s.shutdown(socket.SHUT_WR)
                        while True:
                            more = s.recv(65536)
                            if not more:
                                break
                            statuses.add(status_of(more))
                except OSError:
                    pass
            if n % 100 == 0:
                good(200, m, "GET", "/v1/health")
        check(m.process.popen.poll() is None and {200, 400} <= statuses, statuses)
        check(m.process.stop() == 0, m.process.errors())


# ---- Metrics ----

@case
def metrics_are_well_formed_and_true():
    name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
    label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(r"^(%s)(\{%s(?:,%s)*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$" %
                        (name, label, label))
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--status-ms", 100)
        with Robots(m, [(BOX, 4), (HOST, 4)]) as robots:
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 4, "wiped")
            good(201, m, "POST", "/v1/leases?wait=20", lease(robots.nodes[1], count=2))
            ask(m, "GET", "/v1/nodes/77")
            answer = ask(m, "GET", "/metrics")
        check(answer.type == "text/plain; version=0.0.4; charset=utf-8", answer.type)
        typed, seen = {}, {}
        for line in answer.body.decode("ascii").rstrip("\n").split("\n"):
            if line.startswith("#"):
                word, metric, rest = line[2:].split(" ", 2)
                check(word in ("HELP", "TYPE") and re.fullmatch(name, metric), line)
                if word == "TYPE":
                    check(metric not in typed and rest in ("counter", "gauge"), line)
                    typed[metric] = rest
                continue
            found = sample.match(line)
            check(found and found.group(1) in typed, line)
            key = found.group(1) + (found.group(2) or "")
            check(key not in seen, "twice: " + key)
            seen[key] = float(found.group(3))
        check(all(k.endswith("_total") or t == "gauge" or k == "dxpu_pool_epoch"
                  for k, t in typed.items()), typed)
        for key, value in (
                ('dxpu_nodes{role="box",connected="true"}', 1), ("dxpu_store_ok", 1),
                ('dxpu_slots{model="nvme",state="leased"}', 2), ('dxpu_leases{state="active"}', 1),
                ('dxpu_slots{model="nvme",state="free"}', 2), ("dxpu_orders_refused_total", 0),
                ('dxpu_events_total{type="lease.up"}', 1),
                ('dxpu_http_requests_total{method="POST",route="/v1/leases",status="201"}', 1),
                ('dxpu_http_requests_total{method="GET",route="/v1/nodes/{node}",status="404"}',
                 1)):
            check(seen.get(key) == value, key, seen.get(key))


def samples(m, metric):
    """Its lines: labels, a dict unescaped, and the value."""
    out = []
    for line in good(200, m, "GET", "/metrics").decode("ascii").splitlines():
        found = re.fullmatch(metric + r"(?:\{(.*)\})? (\S+)", line)
        if found:
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found.group(1) or "")
            out.append(({k: re.sub(r"\\(.)", r"\1", v) for k, v in pairs},
                        float(found.group(2))))
    return out


@case
def metrics_name_boxes_hosts_and_tenants():
    name = 'r"a\\ck} 9'
    with lab.Lab(plain=True) as l:
        m = Manager(l)
        with Robots(m, [(BOX, 4), (BOX, 2), (HOST, 8)]) as robots:
            box, other, host = robots.nodes
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 6, "wiped")
            good(200, m, "PUT", "/v1/tenants/physics", {"quota": 7})
            good(201, m, "POST", "/v1/leases?wait=20",
                 lease(host, count=3, need="same_box", tenant="physics"))
            good(201, m, "POST", "/v1/leases?wait=20", lease(host, tenant="chemistry"))
            good(200, m, "POST", "/v1/slots/%d.2/break" % other)
            nodes = {n["node"]: n for n in good(200, m, "GET", "/v1/nodes")["nodes"]}
            check([nodes[n]["broken"] for n in (box, other, host)] == [0, 1, 0], nodes)
            of = {(int(k["node"]), k["state"]): v for k, v in samples(m, "dxpu_box_slots")}
            for node in (box, other):
                slots = good(200, m, "GET", "/v1/slots?node=%d" % node)["slots"]
                for state in ("free", "spare", "leased", "wiping", "drained", "broken",
                              "quarantined", "retained"):
                    check(of[node, state] == sum(s["state"] == state for s in slots), of)
            check(len(of) == 16 and sum(of.values()) == 6, of)
            check({k["state"]: v for k, v in samples(m, "dxpu_host_slots")} ==
                  {"leased": 4, "free": 4})
            check({k["tenant"]: v for k, v in samples(m, "dxpu_tenant_slots")} ==
                  {"physics": 3, "chemistry": 1})
            check({k["tenant"]: v for k, v in samples(m, "dxpu_tenant_quota_slots")} ==
                  {"physics": 7})
        with Fake(m, HOST, slots=0) as f:
            f.name = name
            f.register()
            seen = {(k["name"], k["role"]): v for k, v in samples(m, "dxpu_node_connected")}
            check(seen.get((name, "host")) == 1, seen)


@case
def metrics_are_bounded():
    """Who registers ever new proxies, or names ever new tenants, gets no lines for ever."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--quiet")
        name_tenants(m, ["t%d" % n for n in range(2003)])
        named = samples(m, "dxpu_tenant_slots")
        check(len(named) == 2001 and named[-1] == ({}, 0), len(named), named[-1])
        check(len(samples(m, "dxpu_tenant_quota_slots")) == 2000)


def traffic(slot, count):
    return struct.pack(">H58xIQQQ80x", slot, 2, count, count + 1, count + 2)


@case
def leases_have_their_rates():
    """Between two reports of the host, by the time between them; a tenant sees its own."""
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--status-ms", 500)
        with Robots(m, [(BOX, 2), (HOST, 2)]) as robots:
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 2, "wiped")
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(robots.nodes[1]))
            slot = one["slots"][0]
            check(slot["to_device_per_s"] is None and slot["from_device_per_s"] is None, slot)
            robots.counts = {slot["host_slot"]: 1000}
            at = "/v1/leases/" + one["lease"]

            def rates():
                s = good(200, m, "GET", at)["slots"][0]
                return s["to_device_per_s"] is not None and s
            s = until(rates, "a rate")
            check(s["to_device_per_s"] > 0, s)
            check(s["from_device_per_s"] == 0, s)
            robots.counts = {}
            until(lambda: rates()["to_device_per_s"] == 0, "nothing more comes")
        until(lambda: not good(200, m, "GET", "/v1/hosts")["nodes"][0]["connected"], "away")
        check(not rates(), "a rate of a host that is away")


@case
def events_from_the_end():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--events", 100)
        check(good(200, m, "GET", "/v1/events?last=5") == {"events": [], "next": 0})
        with Robots(m, [(BOX, 2), (HOST, 2)]) as robots:
            box, host = robots.nodes
            until(lambda: good(200, m, "GET", "/v1/pool")["slots"]["free"] == 2, "wiped")
            one = good(201, m, "POST", "/v1/leases?wait=20", lease(host))
            slot = one["slots"][0]["slot"]
            good(200, m, "POST", "/v1/slots/%s/reset" % slot)
            for n in range(40):
                good(200, m, "PUT", "/v1/tenants/t%d" % n, {"quota": n})
            every = good(200, m, "GET", "/v1/events?limit=1000")["events"]
            end = every[-1]["event"]
            for query, wanted in (
                    ("", lambda e: True), ("type=lease&", lambda e: e["type"][:5] == "lease"),
                    ("node=%d&" % box, lambda e: e["node"] == box),
                    ("node=%d&" % host, lambda e: e["node"] == host),
                    ("slot=%s&" % slot, lambda e: e["slot"] == slot),
                    ("lease=%s&" % one["lease"], lambda e: e["lease"] == one["lease"]),
                    ("type=nothing&", lambda e: False)):
                matching = [e for e in every if wanted(e)]
                check(matching or query == "type=nothing&", query)
                for count in (0, 1, 2, 31, 32, 33, 64, 1000):
                    found = good(200, m, "GET", "/v1/events?%slast=%d" % (query, count))
                    check(found["events"] == matching[-count:][:count], query, count, found)
                    check(found["next"] == end, found)
                check(good(200, m, "GET", "/v1/events?%slimit=1000" % query)["events"] ==
                      matching, query)
            stream = Stream(m, "/v1/events?after=0&slot=%s" % slot)
            check(stream.take(1)[0]["slot"] == slot)
            stream.close()
        for n in range(200):  # the first ones are no longer kept
            good(200, m, "PUT", "/v1/tenants/t%d" % n, {"quota": n})
        kept = good(200, m, "GET", "/v1/events?limit=1000")["events"]
        check(len(kept) == 100 and
              good(200, m, "GET", "/v1/events?last=1000")["events"] == kept)
        check(good(200, m, "GET", "/v1/events?last=1000&type=lease")["events"] == [])
        for query in ("last=1001", "last=-1", "last=1&after=3", "slot=3", "node=0"):
            good(400, m, "GET", "/v1/events?" + query)
        good(400, m, "GET", "/v1/events?last=3", Accept="text/event-stream")


@case
def metrics_have_the_slots_counters():
    with lab.Lab(plain=True) as l:
        m = Manager(l, "--status-ms", 100)
        with Fake(m, slots=3) as f:
            node = f.register()[0]
            if hasattr(f, "secretive"):
                f.secretive = False
            check(b"dxpu_slot_tlps_total{" not in good(200, m, "GET", "/metrics"))

            def asked():
                f.lives()
                return [number for kind, number, _ in f.later if kind == ASK]
            number = until(asked, "it asks")[0]
            f.send(message(STATUS, struct.pack(">BxxxIHHHH", BOX, node, 3, 1, 3, 168) +
                           traffic(1, 10) + traffic(2, 20) + traffic(9, 30), number))
            check(f.lives())
            text = good(200, m, "GET", "/metrics").decode()
            at = 'node="%d",slot="%%d"' % node
            for line in ('tlps_total{%s,direction="to_device"} 10' % (at % 1),
                         'tlps_total{%s,direction="from_device"} 21' % (at % 2),
                         'tlps_dropped_total{%s} 22' % (at % 2),
                         'incarnations_total{%s} 2' % (at % 1),
                         'tlps_dropped_total{%s} 0' % (at % 3)):
                check("dxpu_slot_" + line + "\n" in text, line, text)
            check('slot="9"' not in text, "a slot that there is not")
        until(lambda: not good(200, m, "GET", "/v1/nodes/%d" % node)["connected"], "gone")
        good(200, m, "DELETE", "/v1/nodes/%d" % node)
        check(b"dxpu_slot_tlps_total{" not in good(200, m, "GET", "/metrics"))


if __name__ == "__main__":
    sys.exit(main())
