#!/usr/bin/env python3
"""The command `dxpu pcap`: captures of TLPs, captures of frames, comparing two captures.

The captures are made here, by hand from the formats' descriptions; those that real hardware left
are used when they are there.  Environment: DXPU_BIN (default build/dxpu), DXPU_SHARED (default
../shared)."""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
SHARED = os.environ.get("DXPU_SHARED", os.path.join(ROOT, "..", "shared"))
failed = 0


def report(name, problem):
    global failed
    failed += bool(problem)
    print(("not ok " if problem else "ok ") + name + (" # " + str(problem) if problem else ""))


def run(*words, data=b""):
    p = subprocess.run([BIN, *words], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def pcap(*words):
    """Exit status, the objects of the packets, the summary."""
    status, out, _ = run("pcap", "--json", *words)
    objects = [json.loads(line) for line in out.splitlines()]
    return status, objects[:-1], objects[-1]["summary"] if objects else {}


def difference(got, want):
    for key, value in want.items():
        if got.get(key) != value:
            return "%s is %r, not %r" % (key, got.get(key), value)
    return None


# ---- making captures ----

def udp(payload, port, whole=None):
    """Ethernet, IPv4 and UDP around `payload`, of which there were `whole` bytes on the wire."""
    whole = len(payload) if whole is None else whole
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 28 + whole, 0, 0, 64, 17, 0, 0x0a000001, 0x0a000002)
    return b"\2" * 12 + b"\x08\0" + ip + struct.pack(">HHHH", port, port, 8 + whole, 0) + payload


def nettlp(tlp, whole=None):
    header = struct.pack(">HI", 7, 1234)
    return udp(header + tlp, 0x3000, None if whole is None else 6 + whole)


def capture(folder, name, packets, wire=None):
    """A nanosecond capture; wire: how long the packets were before they were cut."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b23c4d, 2, 4, 0, 0, 65535, 1))
        for i, packet in enumerate(packets):
            was = max(len(packet), wire or 0)
            file.write(struct.pack("<IIII", 1000 + i, 500, len(packet), was))
            file.write(packet)
    return path


def frame(kind, body=b"", channel=0x11223344, packet=1, sequence=5, version=1):
    header = struct.pack(">HBBHBBIQ", 0x4458, version, kind, 0, 0, 0, channel, packet)
    if kind <= 3:
        header += struct.pack(">IIQQII6I", sequence, 2, 0, 9, 100, 0, 64, 64, 64, 512, 512, 512)
    length = len(header) + len(body) + 4
    data = header[:4] + struct.pack(">H", length) + header[6:] + body
    return data + struct.pack(">I", zlib.crc32(data))


def tlp_record(tlp, cls, header_dw, crc=None):
    crc = zlib.crc32(tlp) if crc is None else crc
    body = struct.pack(">BBH", 0, cls << 6 | header_dw, len(tlp) - 4 * header_dw)
    body += tlp[:4 * header_dw] + struct.pack(">I", crc)
    return struct.pack(">BBH", 1, 0, len(body)) + body


def payload_record(data):
    return struct.pack(">BBH", 2, 0, len(data)) + data


def event_record(kind, flags, body=b""):
    return struct.pack(">BBHBBH", 3, 0, 4 + len(body), kind, flags, 0) + body


def write(address, data):
    enables = 0xff if len(data) > 4 else 0x0f
    return struct.pack(">III", 0x40000000 | len(data) // 4, 0x01000000 | enables, address) + data


def read(address, tag):
    return struct.pack(">III", 0x00000001, 0x0100000f | tag << 8, address)


def answer(tag, data=b"\1\2\3\4"):
    return struct.pack(">III", 0x4a000001, 0x00000004, 0x01000000 | tag << 8) + data


# ---- TLPs ----

def check_tlps(folder):
    whole = write(0xfee00000, bytes(range(16)))
    good = [nettlp(whole), nettlp(read(0x1000, 3)), nettlp(answer(3)),
            nettlp(answer(4)[:12], len(answer(4)))]
    file = capture(folder, "tlps.pcap", good)
    status, packets, summary = pcap(file)
    report("tlps_summary", status or difference(summary, {
        "tlps": 4, "types": {"MWr": 1, "MRd": 1, "CplD": 2}, "truncated": 1, "refused": 0,
        "against_rule": 0, "frames": 0, "other": 0}))
    report("tlps_packets", [p["packet"] for p in packets] != [1, 2, 3, 4])
    report("tlps_time", packets[1]["time_ns"] != 1001 * 10 ** 9 + 500)
    report("tlps_fields", difference(packets[0]["tlp"], {
        "type": "MWr", "address": "0xfee00000", "payload": bytes(range(16)).hex()}))
    report("tlps_truncated", [p["truncated"] for p in packets] != [False, False, False, True])
    back = "\n".join(json.dumps(p["tlp"]) for p in packets[:3])
    _, out, _ = run("tlp", "encode", data=back.encode())
    report("tlps_encode_back", out.replace(" ", "").split()
           != [t.hex() for t in (whole, read(0x1000, 3), answer(3))])
    status, out, _ = run("pcap", file)
    lines = out.splitlines()
    report("tlps_for_people", status or len(lines) != 5 or "MWr32 4 dw" not in lines[0]
           or "[12 of 16 bytes]" not in lines[3]
           or lines[4] != "summary: 4 TLPs, 1 MRd, 1 MWr, 2 CplD; 1 truncated, 0 against a rule, "
                          "0 refused" and lines[4])
    status, packets, summary = pcap("--limit", "2", file)
    report("tlps_limit", status or len(packets) != 2 or difference(summary, {"tlps": 2}))
    with open(file, "rb") as content:
        status, out, _ = run("pcap", "-", data=content.read())
    report("tlps_standard_input", status or len(out.splitlines()) != 5)


def check_refused(folder):
    junk = [nettlp(b"\x5f" + bytes(15)), nettlp(b"\xff" * 16), nettlp(b"\0" * 16), nettlp(b"\x40")]
    strange = [nettlp(write(0xfee00ffc, bytes(8))), udp(b"hello", 53),
               nettlp(read(0x1000, 1) + b"junk")]
    status, packets, summary = pcap(capture(folder, "junk.pcap", junk + strange))
    report("refused_summary", status != 1 or difference(summary, {
        "tlps": 2, "refused": 4, "against_rule": 2, "other": 1, "truncated": 0}))
    report("refused_names", [p.get("error") for p in packets[:4]]
           != ["type", "all-ones", "all-zero", "short"])
    report("refused_rules", [p.get("breaks") for p in packets[4:]] != ["4k", None, "long"])
    status, _, summary = pcap(capture(folder, "cut.pcap", [nettlp(write(0x1000, b""))[:40]], 80))
    report("refused_cut_to_nothing", status != 1 or summary["tlps"])


# ---- frames ----

def check_frames(folder):
    small, split = write(0xfee00db8, b"\x21\0\0\0"), write(0x1000, bytes(range(64)))
    body = tlp_record(small, 0, 3) + payload_record(small[12:])
    body += event_record(2, 0x80, b"\3\x10\0\0")
    body += tlp_record(read(0x2000, 7), 1, 3)
    body += tlp_record(split, 0, 3) + payload_record(split[12:32])
    data = [frame(1, body), frame(1, payload_record(split[32:]), packet=2, sequence=6), frame(2),
            frame(3)]
    status, packets, summary = pcap(capture(folder, "frames.pcap", [udp(f, 4458) for f in data]))
    report("frames_summary", status or difference(summary, {
        "tlps": 3, "types": {"MRd": 1, "MWr": 2}, "frames": 4, "events": 1, "continued": 1,
        "kinds": {"data": 2, "ack": 1, "blocked": 1}, "frames_refused": 0, "truncated": 0,
        "refused": 0}))
    report("frames_header", difference(packets[0]["frame"], {
        "kind": "data", "channel": 0x11223344, "packet": 1, "sequence": 5, "ack": 2, "seen": 9,
        "delay_ns": 100, "header_limits": [64, 64, 64], "data_limits": [512, 512, 512]}))
    report("frames_crc", packets[0].get("crc_ok") is not True)
    records = packets[0]["records"]
    report("frames_records", [r["record"] for r in records] != ["tlp", "event", "tlp", "tlp"])
    report("frames_tlp", difference(records[0]["tlp"], {"type": "MWr", "address": "0xfee00db8",
                                                        "payload": "21000000"}))
    report("frames_event", difference(records[1], {"event": "LINK", "speed": 3, "width": 16}))
    report("frames_continues", [r.get("continues") for r in records] != [False, None, False, True])
    report("frames_payload", packets[1]["records"] != [{"record": "payload", "bytes": 44}])
    status, out, _ = run("pcap", os.path.join(folder, "frames.pcap"))
    report("frames_for_people", status or "frame data channel 11223344" not in out
           or "event LINK" not in out or "4 frames, 2 data, 1 ack, 1 blocked" not in out)


def check_offer(folder):
    offer = struct.pack(">IBBHHHBBHII6IQIHHIHH", 0xabcd, 1, 1, 1, 1, 64, 0x80, 0, 1452, 1000, 77,
                        64, 64, 64, 512, 512, 512, 9, 1, 0, 0xffff, 2, 3, 0xffff)
    reset, close = struct.pack(">BBBB", 5, 1, 1, 0), struct.pack(">BBBB", 1, 1, 0, 0)
    frames = [frame(4, offer.ljust(84, b"\0"), channel=0), frame(6, reset), frame(7, close),
              frame(9, bytes(16))]
    file = capture(folder, "kinds.pcap", [udp(f, 4458) for f in frames])
    status, out, _ = run("pcap", file)
    report("frames_offer", status or "epoch 9 node 1 slot 0 to node 2 slot 3" not in out and out)
    report("frames_reason", "reset channel 11223344 path 0 packet 1 (the lease epoch is old)"
           not in out or "(the device was detached)" not in out)
    status, packets, summary = pcap(file)
    report("frames_kinds", status or difference(summary, {
        "kinds": {"open": 1, "reset": 1, "close": 1, "probe": 1}, "frames_refused": 0}))
    report("frames_offer_fields", difference(packets[0]["frame"], {
        "id": 0xabcd, "epoch": 9, "hold_ms": 1000, "frame_limit_bytes": 1452,
        "destination": {"node": 2, "slot": 3, "function": 0xffff}}))
    report("frames_reason_field", difference(packets[1]["frame"],
                                             {"reason": "the lease epoch is old"}))
    bad = frame(4, b"\0" + offer[1:20].ljust(83, b"\0"))
    status, packets, _ = pcap(capture(folder, "offer.pcap", [udp(bad, 4458)]))
    report("frames_offer_refused", status != 1 or packets[0].get("error") != "e-offer")


def check_frames_refused(folder):
    small = write(0xfee00db8, b"\x21\0\0\0")
    good = frame(1, tlp_record(small, 0, 3) + payload_record(small[12:]))
    flipped = good[:-6] + bytes([good[-6] ^ 1]) + good[-5:]
    altered = frame(1, tlp_record(small, 0, 3, crc=1) + payload_record(small[12:]))
    frames = [good, flipped, altered, frame(1, version=9), frame(1, b"\x01\0\0\xff"), good[:-1],
              frame(77)]
    status, packets, summary = pcap(capture(folder, "bad.pcap", [udp(f, 4458) for f in frames]))
    report("frames_refused", status != 1 or difference(summary, {
        "tlps": 1, "frames": 4, "frames_refused": 5, "refused": 1}))
    errors = [p.get("error") for p in packets]
    report("frames_refused_names", errors != [None, "e-crc", None, "e-version", "e-record",
                                              "e-length", "e-kind"] and errors)
    report("frames_altered_tlp", packets[2]["records"][0].get("error") != "crc")
    file = capture(folder, "cutframe.pcap", [udp(good, 4458)[:80]], 150)
    status, packets, _ = pcap(file)
    report("frames_cut", status != 1 or packets[0].get("error") != "e-short")


def check_segments(folder):
    """A packet captured before it was cut into segments, or after they were joined."""
    small, split = write(0xfee00db8, b"\x21\0\0\0"), read(0x1000, 9)
    one = frame(1, tlp_record(small, 0, 3) + payload_record(small[12:]))
    two = frame(1, tlp_record(split, 1, 3), packet=2, sequence=6)
    ack = frame(2, packet=3, sequence=7)
    file = capture(folder, "segments.pcap", [udp(one + one + two, 4458), udp(ack, 4458)])
    status, packets, summary = pcap(file)
    report("segments_summary", status or difference(summary, {
        "tlps": 3, "types": {"MRd": 1, "MWr": 2}, "frames": 4, "frames_refused": 0}))
    report("segments_packets", [p["packet"] for p in packets] != [1, 1, 1, 2])
    status, packets, summary = pcap("--limit", "1", file)
    report("segments_limit", status or len(packets) != 3)
    # what follows is not another frame: the datagram is refused whole
    status, packets, summary = pcap(capture(folder, "tail.pcap", [udp(one + b"EX" + one, 4458)]))
    report("segments_control", status != 1 or [p.get("error") for p in packets] != ["e-length"])
    file = capture(folder, "cutsegments.pcap", [udp(one + two[:30], 4458, len(one) + len(two))])
    status, packets, summary = pcap(file)
    report("segments_cut", status != 1 or summary["tlps"] != 1
           or [p.get("error") for p in packets] != [None, "e-short"])


def check_ports(folder):
    """Frames on NetTLP's ports, and RTP on one of them."""
    small = write(0xfee00db8, b"\x21\0\0\0")
    one = frame(1, tlp_record(small, 0, 3) + payload_record(small[12:]))
    rtp = struct.pack(">BBHII", 0x80, 0x60, 17, 0x00004000, 0x00011234) + bytes(160)
    ports = (0x3000, 0x30ff, 0x4000, 0x400f)
    packets = [udp(one, port) for port in ports] + [udp(rtp, 16384)]
    tlp = struct.pack(">HI", 0x4458, 1234) + small  # a sequence number like the magic
    packets += [udp(tlp, 0x3005), udp(tlp, 0x4005)]
    status, seen, summary = pcap(capture(folder, "ports.pcap", packets))
    report("ports", status or difference(summary, {
        "tlps": 6, "frames": 4, "other": 1, "refused": 0, "frames_refused": 0}))
    report("ports_kinds", [p["kind"] for p in seen] != ["frame"] * 4 + ["other", "tlp", "tlp"])


def check_sealed(folder):
    """Frames that end in a tag: of a channel none of whose frames has a right CRC."""
    head = frame(1, bytes(40), channel=0x77)[:-4]
    sealed = head[:4] + struct.pack(">H", len(head) + 16) + head[6:] + bytes(range(16))
    small = write(0xfee00db8, b"\x21\0\0\0")
    plain = frame(1, tlp_record(small, 0, 3) + payload_record(small[12:]))
    damaged = plain[:-1] + bytes([plain[-1] ^ 1])
    file = capture(folder, "sealed.pcap", [udp(f, 4458) for f in (frame(8, bytes(40)), sealed)])
    status, packets, summary = pcap(file)
    report("sealed", status or difference(summary, {
        "frames": 2, "kinds": {"data": 1, "handshake": 1}, "sealed": 1, "frames_refused": 0}))
    report("sealed_fields", [p["sealed"] for p in packets] != [False, True]
           or packets[1].get("error") or packets[1]["frame"]["channel"] != 0x77)
    _, out, err = run("pcap", file)
    report("sealed_for_people", " sealed\n" not in out or "refused" in out.split("summary")[0]
           or "sealed frames, 1 of them" not in err)
    file = capture(folder, "damaged.pcap", [udp(f, 4458) for f in (plain, damaged)])
    status, packets, summary = pcap(file)
    report("sealed_control", status != 1 or difference(summary, {"sealed": 0, "frames_refused": 1}))


# ---- two captures ----

def same(folder, sent, delivered):
    a = capture(folder, "sent.pcap", [nettlp(t) for t in sent])
    b = capture(folder, "delivered.pcap", [nettlp(t) for t in delivered])
    status, out, _ = run("pcap", "--same", "--json", a, b)
    return status, json.loads(out)


def counts(sent, delivered, **more):
    return dict(dict(sent=sent, delivered=delivered, missing=0, doubled=0, altered=0, reordered=0,
                     foreign=0), **more)


def check_same(folder):
    w = [write(0x1000 + 4 * i, struct.pack(">I", i)) for i in range(5)]
    r = [read(0x2000, i) for i in range(3)]
    changed = w[2][:-1] + b"\xff"
    cases = {
        "identical": (w + r, w + r, 0, counts(5, 5)),
        "other_class_order": ([w[0], r[0], w[1], r[1]], [r[0], r[1], w[0], w[1]], 0, counts(2, 2)),
        "equal_tlps": ([w[0]] * 3, [w[0]] * 3, 0, counts(3, 3)),
        "missing": (w, w[:2] + w[3:], 1, counts(5, 4, missing=1)),
        "all_missing": (w, r, 1, counts(5, 0, missing=5)),
        "doubled": (w, w[:2] + [w[1]] + w[2:], 1, counts(5, 6, doubled=1)),
        "equal_doubled": ([w[0]] * 2, [w[0]] * 3, 1, counts(2, 3, doubled=1)),
        "altered": (w, w[:2] + [changed] + w[3:], 1, counts(5, 5, altered=1)),
        "foreign": (w, w + [changed], 1, counts(5, 6, foreign=1)),
        "reordered": (w, [w[0], w[2], w[1]] + w[3:], 1, counts(5, 5, reordered=1)),
        "several": (w, [w[1], w[1], changed], 1, counts(5, 3, missing=3, doubled=1, altered=1)),
    }
    for name, (sent, delivered, want, posted) in cases.items():
        status, got = same(folder, sent, delivered)
        report("same_" + name, status != want and "exit status %d" % status
               or got["same"] != (want == 0) or difference(got["posted"], posted))
    _, got = same(folder, w + r, w + r[:2])
    report("same_classes", difference(got["non-posted"], counts(3, 2, missing=1))
           or difference(got["completion"], counts(0, 0)))
    cut = capture(folder, "cut.pcap", [nettlp(w[0]), nettlp(w[1][:12], 16), nettlp(b"\xff" * 12),
                                       udp(b"x", 53)])
    whole = capture(folder, "whole.pcap", [nettlp(w[0])])
    status, out, _ = run("pcap", "--same", cut, whole)
    report("same_left_out", status
           or "left out of sent: 1 truncated, 1 refused, 1 packets" not in out and out)
    report("same_says_so", not out.endswith("identical\n"))
    status, out, _ = run("pcap", "--same", whole, capture(folder, "none.pcap", []))
    report("same_empty", status != 1 or not out.endswith("different\n"))
    none = capture(folder, "none.pcap", [])
    cut_only = capture(folder, "cut_only.pcap", [nettlp(w[1][:12], 16)])
    for name, other in (("same_nothing", none), ("same_nothing_complete", cut_only)):
        status, out, err = run("pcap", "--same", none, other)
        report(name, status != 1 or not out.endswith("nothing to compare\n")
               or "nothing to compare" not in err)
    status, out, _ = run("pcap", "--same", "--json", none, none)
    report("same_nothing_json", status != 1 or json.loads(out)["same"])
    for name, bad in (("missing", os.path.join(folder, "no such file")),
                      ("text", os.path.abspath(__file__))):
        for words in (["pcap", bad], ["pcap", "--same", whole, bad]):
            status, _, err = run(*words)
            report("file_named_once_" + name + "_%d" % len(words),
                   (status != 2 or err.count(bad) != 1) and err)


# ---- errors ----

def check_errors(folder):
    good = capture(folder, "good.pcap", [nettlp(read(0x1000, 1))])
    with open(good, "rb") as file:
        content = file.read()
    short, text = os.path.join(folder, "short.pcap"), os.path.join(folder, "text.pcap")
    with open(short, "wb") as file:
        file.write(content[:-5])
    with open(text, "wb") as file:
        file.write(b"no capture at all, only text that is long enough")
    nothing = capture(folder, "nothing.pcap", [udp(b"x", 53)])
    missing = os.path.join(folder, "missing.pcap")
    for name, words, want in (
            ("good", [good], 0), ("nothing", [nothing], 1), ("no_file", [missing], 2),
            ("damaged", [short], 2), ("no_capture", [text], 2), ("no_name", [], 2),
            ("two_names", [good, good], 2), ("unknown_option", ["--yaml", good], 2),
            ("limit_0", ["--limit", "0", good], 2), ("limit_text", ["--limit", "x", good], 2),
            ("limit_nothing", [good, "--limit"], 2), ("same_one", ["--same", good], 2),
            ("same_limit", ["--same", "--limit", "1", good, good], 2),
            ("same_no_file", ["--same", good, missing], 2), ("help", ["--help"], 0)):
        status, out, err = run("pcap", *words)
        problem = status != want and "exit status %d" % status
        if not problem and want and not err.strip():
            problem = "nothing on standard error"
        report("status_" + name, problem or (name == "help" and "usage:" not in out))


# ---- captures of real hardware ----

def captured(file):
    """The TLPs of a capture as far as they are there; a reader of its own."""
    with open(file, "rb") as f:
        data = f.read()
    order = "<" if data[:4] in (b"\x4d\x3c\xb2\xa1", b"\xd4\xc3\xb2\xa1") else ">"
    at, found = 24, []
    while at + 16 <= len(data):
        cap = struct.unpack(order + "IIII", data[at:at + 16])[2]
        packet = data[at + 16:at + 16 + cap]
        at += 16 + cap
        if packet[12:14] == b"\x81\x00":  # VLAN
            packet = packet[:12] + packet[16:]
        length = struct.unpack(">H", packet[38:40])[0]
        found.append(packet[48:34 + length])
    return found


def needed(tlp):
    """Bytes that the header says, for the few types of these captures."""
    dw = struct.unpack(">I", tlp[:4])[0]
    header = 16 if dw >> 29 & 1 else 12
    return header + ((dw & 0x3ff or 1024) * 4 if dw >> 30 & 1 else 0)


def check_hardware(folder):
    files = sorted(glob.glob(os.path.join(SHARED, "captures", "*", "*.pcap")))
    if not files:
        print("skip hardware no captures in DXPU_SHARED or ../shared")
        return
    names = {0x00: "MRd", 0x20: "MRd", 0x40: "MWr", 0x60: "MWr", 0x4a: "CplD", 0x0a: "Cpl"}
    for file in files:
        name = os.path.basename(file)[:-5].replace("-", "_")
        tlps, types = captured(file), {}
        for tlp in tlps:
            types[names[tlp[0]]] = types.get(names[tlp[0]], 0) + 1
        status, _, summary = pcap(file)
        report("hardware_" + name, status or difference(summary, {
            "tlps": len(tlps), "types": types, "refused": 0,
            "truncated": sum(len(t) < needed(t) for t in tlps)}))
        whole = [t for t in tlps if len(t) == needed(t)]
        status, got = same(folder, tlps, whole)
        report("hardware_same_" + name, status != (0 if whole else 1)
               or sum(got[c]["delivered"] for c in ("posted", "non-posted", "completion"))
               != len(whole))
        if whole:
            status, got = same(folder, tlps, whole[:-1] + [whole[-1][:-1]
                                                           + bytes([whole[-1][-1] ^ 0x10])])
            report("hardware_control_" + name, status != 1 or got["same"])


def main():
    if not os.access(BIN, os.X_OK):
        print("not ok cli_pcap # no program " + BIN)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        check_tlps(folder)
        check_refused(folder)
        check_frames(folder)
        check_offer(folder)
        check_frames_refused(folder)
        check_segments(folder)
        check_ports(folder)
        check_sealed(folder)
        check_same(folder)
        check_errors(folder)
        check_hardware(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
