#!/usr/bin/env python3
"""Prints spec/vectors/frames.txt, made by the encoder of dxpu_reader.py."""

import struct
import sys

import dxpu_reader as dx
import vectors

LIMITS = [64, 32, 64, 1024, 32, 2048]
HEAD = {"version": 1, "channel": 0x5EED0001, "packet": 7, "sequence": 1000, "ack": 2000, "sack": 0,
        "seen": 0, "delay": 0, "ecn_ce": 0, "limits": LIMITS}
CONTROL = {"version": 1, "channel": 0x5EED0001, "packet": 9}
OFFER = {"channel": 0xC0FFEE01, "version_min": 1, "version_max": 1, "suites": 1, "tlp_formats": 1,
         "window": 256, "flags": 0, "frame_limit": 9000, "hold_ms": 1000, "sequence": 0xFFFFFFF0,
         "limits": LIMITS, "epoch": 5, "source": 0x0000000A00000000,
         "destination": 0x0000000B0003FFFF}
LEAST = {"channel": 1, "version_min": 1, "version_max": 1, "suites": 1, "tlp_formats": 1,
         "window": 1, "frame_limit": 1232, "hold_ms": 1, "sequence": 0,
         "limits": [1, 1, 1, 256, 8, 256], "epoch": 1, "source": 0, "destination": 0}

MRD32 = bytes.fromhex("00000001 0100030f f800001c")
MRD64 = bytes.fromhex("20000001 0100040f 00000380 00000010")
MWR32 = bytes.fromhex("40000001 0000000f 95e7f000 01020304")
MWR64_MSI = bytes.fromhex("60000001 3100000f 00000001 fee00db8 21400000")
CPL = bytes.fromhex("0a000000 00190004 60000700")
CPLD = bytes.fromhex("4a000001 00190004 60000700 01080f16")
MWR_ECRC = bytes.fromhex("40008001 3100000f 00001000 deadbeef cf26ca7d")
MRD_ECRC = bytes.fromhex("00008001 0201090f 00002000 907e3d5b")
MSG = bytes.fromhex("30000000 04000018 00000000 00000000")
PREFIXED = bytes.fromhex("91012345 00000001 0200010f 00001000")
FOUR_PREFIXES = bytes.fromhex("9e000001 9f000002 91000003 9e000004 60000002 020000ff 00000001 "
                              "00001000 01080f16 1d242b32")
MWR_1K = bytes.fromhex("40000100 310007ff 40000000") + b"\xa5" * 1024
MWR_4K = bytes.fromhex("40000000 310007ff 40000000") + b"\xa5" * 2048 + b"\x5a" * 2048
CPLD_4K_ECRC = (bytes.fromhex("4a008000 00190000 60000900") + b"\x33" * 4096
                + bytes.fromhex("01234567"))

out = []
streams = {}


def note(text):
    out.append(f"# -- {text} --\n")


def accepted(name, frame, about="", after=None):
    """A frame that decodes; data frames also say what the stream makes of them."""
    data = dx.encode_frame(frame)
    decoded = dx.decode_frame(data)
    lines = {"note": about} if about else {}
    if after:
        lines["after"] = after
    lines.update(vectors.frame_to_fields(decoded))
    if decoded["kind"] == "data":
        stream = [*streams.get(after, ()), decoded]
        streams[name] = stream
        reader = dx.Stream()
        try:
            for part in stream[:-1]:
                reader.feed(part)
            lines["delivers"] = len(reader.feed(decoded))
        except dx.Reject as error:
            lines["stream"] = error.reason
    write(name, data, lines)


def loose(name, frame, offset, value, about):
    """An accepted frame with a byte set that is sent as 0 and ignored: no encoder makes it."""
    data = edited(frame, offset, bytes([value]))
    write(name, data, {"note": about, "loose": 1, **vectors.frame_to_fields(dx.decode_frame(data)),
                       **({"delivers": 1} if frame["kind"] == "data" else {})})


def write(name, data, lines):
    out.append(f"name = {name}")
    line = "hex ="
    for token in vectors.to_hex(data):
        if len(line) + 1 + len(token) > 96:
            out.append(line)
            line = "hex ="
        line += " " + token
    out.append(line if data else "hex = ")
    out.extend(f"{key} = {value}" for key, value in lines.items())
    out.append("")


def rejected(name, reason, data, about="", **keys):
    """Bytes that must be dropped for the reason given, which is not taken from the decoder."""
    lines = {"note": about} if about else {}
    lines.update(keys)
    lines["reject"] = reason
    write(name, data, lines)


def edited(frame, offset, replacement):
    """The frame with bytes replaced, and a trailer that fits it again."""
    data = bytearray(dx.encode_frame(frame)[:-4])
    data[offset:offset + len(replacement)] = replacement
    return resealed(bytes(data))


def resealed(head_and_body):
    """The trailer only: Length stays as it stands."""
    return head_and_body + struct.pack(">I", dx.crc32(head_and_body))


def data_frame(*parts, **fields):
    """A data frame of TLPs (bytes), records (dicts) and raw record bytes' worth of dicts."""
    records = []
    for part in parts:
        records += dx.tlp_records(part) if isinstance(part, bytes) else [part]
    return {**HEAD, **fields, "kind": "data", "records": records}


def raw_data_frame(body):
    """A data frame with any bytes as its body."""
    head = dx.encode_frame({**HEAD, "kind": "ack"})[:-4]
    return dx.seal(head[:3] + b"\x01" + head[4:] + body)


def record(rtype, content, flags=0, length=None):
    return struct.pack(">BBH", rtype, flags, len(content) if length is None else length) + content


def mwr(dwords):
    """A write of that many dwords."""
    return bytes([0x40, 0, dwords >> 8, dwords & 0xFF]) + MWR_1K[4:12] + b"\x77" * 4 * dwords


def payload(data):
    return {"record": "payload", "flags": 0, "data": data}


def event(name, event_flags=0, **fields):
    return {"record": "event", "flags": 0, "event": name, "event_flags": event_flags, **fields}


def ignorable(rtype, data=b"", flags=0):
    return {"record": "ignorable", "flags": flags, "type": rtype, "data": data}


def opening(kind, offer, rest=b"", **fields):
    channel = 0 if kind == "open" else 0xC0FFEE01
    return {**CONTROL, "packet": 0, "channel": channel, "kind": kind,
            "offer": {"flags": 0, **offer, "rest": rest}, **fields}


def accepted_control():
    note("open and accept")
    accepted("open", opening("open", OFFER), "whole device in slot 3 of node 11, for node 10")
    accepted("open-least", opening("open", LEAST), "the least of every field")
    accepted("open-most", opening("open", {
        "channel": 0xFFFFFFFF, "version_min": 1, "version_max": 255, "suites": 0xFFFF,
        "tlp_formats": 0xFFFF, "window": 0xFFFF, "flags": 0x8F, "frame_limit": 65507,
        "hold_ms": 0xFFFFFFFF, "sequence": 0xFFFFFFFF, "limits": [(1 << 30) - 1] * 6,
        "epoch": (1 << 64) - 1, "source": (1 << 64) - 1, "destination": (1 << 64) - 1},
        path=7), "the most of every field; suites, formats and flags of later versions")
    accepted("open-infinite-completions", opening("open", {
        **OFFER, "flags": 0x80, "limits": [64, 32, 0, 1024, 32, 0xFFFFFFFF]}),
        "W-27: the limits of completions mean nothing")
    accepted("open-longer", opening("open", OFFER, rest=bytes(range(12))),
             "W-20: bytes after the offer are ignored")
    accepted("open-repeated", opening("open", OFFER, packet=1), "D-40: another packet number")
    accepted("accept", opening("accept", {**OFFER, "channel": 0x5EED0001,
                                          "source": OFFER["destination"],
                                          "destination": OFFER["source"]}))

    note("reset, close, handshake, probe")
    for name, reason in (("reset-none", 0), ("reset-no-such-slot", 3), ("reset-version", 6),
                         ("reset-hold", 11)):
        accepted(name, {**CONTROL, "packet": 0, "kind": "reset", "reason": reason,
                        "version_min": 1, "version_max": 1})
    accepted("reset-unknown-reason", {**CONTROL, "kind": "reset", "reason": 200, "version_min": 1,
                                      "version_max": 3}, "a reason that is unknown means 0")
    accepted("reset-longer", {**CONTROL, "kind": "reset", "reason": 8, "version_min": 1,
                              "version_max": 1, "rest": b"more"}, "W-14")
    accepted("close", {**CONTROL, "kind": "close", "reason": 2, "flags": 0})
    accepted("close-answer", {**CONTROL, "kind": "close", "reason": 0, "flags": 1})
    accepted("close-longer", {**CONTROL, "kind": "close", "reason": 1, "flags": 0,
                              "rest": b"\0" * 8}, "W-14")
    accepted("handshake-empty", {**CONTROL, "kind": "handshake", "opaque": b""},
             "a receiver without a security suite drops it all the same (state)")
    accepted("handshake-most", {**CONTROL, "kind": "handshake", "opaque": b"\x42" * 1200})
    accepted("probe", {**CONTROL, "kind": "probe", "flags": 0, "cookie": 0x0123456789ABCDEF})
    accepted("probe-reply", {**CONTROL, "kind": "probe", "flags": 1, "cookie": 0x0123456789ABCDEF})
    accepted("probe-padded", {**CONTROL, "kind": "probe", "flags": 0, "cookie": (1 << 64) - 1,
                              "rest": b"\0" * (1232 - 36), "path": 1}, "1,232 bytes")


def accepted_empty():
    note("ack and blocked")
    accepted("ack", {**HEAD, "kind": "ack"})
    accepted("ack-zero", {**HEAD, "kind": "ack", "channel": 1, "packet": 0, "sequence": 0,
                          "ack": 0, "limits": [0] * 6})
    accepted("ack-sack", {**HEAD, "kind": "ack", "sack": 0x8000000000000005, "seen": 1 << 40,
                          "delay": 25000, "ecn_ce": 3},
             "sequences 2001, 2003 and 2064 are stored beyond ack 2000")
    accepted("ack-most", {**HEAD, "kind": "ack", "path": 255, "ignorable": 15,
                          "channel": 0xFFFFFFFF, "packet": (1 << 64) - 2, "sequence": 0xFFFFFFFF,
                          "ack": 0xFFFFFFFF, "sack": (1 << 64) - 1, "seen": (1 << 64) - 1,
                          "delay": 0xFFFFFFFF, "ecn_ce": 0xFFFFFFFF, "limits": [0xFFFFFFFF] * 6},
             "every field at its most, ignorable flags set")
    accepted("ack-credits", {**HEAD, "kind": "ack", "limits": [1, 2, 3, 4, 5, 6]},
             "posted, non-posted, completion headers; then their data")
    accepted("ack-key-phase", {**HEAD, "kind": "ack", "key_phase": 3},
             "W-5: the CRC suite has no keys and ignores the phase")
    accepted("blocked", {**HEAD, "kind": "blocked", "ack": 0xFFFFFFFF})


def accepted_data():
    note("data: one TLP")
    for name, tlp, about in (
            ("data-mrd32", MRD32, "104 bytes"), ("data-mrd64", MRD64, "108 bytes"),
            ("data-mwr32", MWR32, ""), ("data-mwr64", MWR64_MSI, "an MSI"), ("data-cpl", CPL, ""),
            ("data-cpld", CPLD, ""), ("data-msg", MSG, ""),
            ("data-mwr-digest", MWR_ECRC, "payload and digest in one payload record"),
            ("data-mrd-digest", MRD_ECRC, "a digest and no payload"),
            ("data-prefix", PREFIXED, ""),
            ("data-four-prefixes", FOUR_PREFIXES, "eight dwords of prefixes and header"),
            ("data-mwr-1k", MWR_1K, "in the least frame limit")):
        accepted(name, data_frame(tlp), about)
    accepted("data-4k-digest", data_frame(CPLD_4K_ECRC), "4,100 bytes: the largest TLP")
    accepted("data-4k-digest-prefixes", data_frame(FOUR_PREFIXES[:16] + MWR_4K))

    note("data: several TLPs and parts")
    accepted("data-three", data_frame(MWR32, MRD64, CPLD), "one of each class")
    accepted("data-same-twice", data_frame(MWR32, MWR32))
    first, part = dx.tlp_records(MWR_1K)
    accepted("data-two-parts", data_frame(first, payload(part["data"][:4]),
                                          payload(part["data"][4:])),
             "W-41: parts in the same frame")
    accepted("data-parts-odd", data_frame(first, payload(part["data"][:3]),
                                          payload(part["data"][3:])),
             "W-41: no sender may cut so, a receiver takes it")
    accepted("data-ignorable", data_frame(ignorable(0x80), MRD32, ignorable(0xFF, b"abc", 15)),
             "W-31: unknown records that may be ignored")
    accepted("data-ignorable-between", data_frame(first, ignorable(0xA0, b"\0" * 5), part),
             "W-43: between the records of a TLP")
    accepted("data-ignorable-only", data_frame(ignorable(0x90, b"x")))
    accepted("data-record-flags", data_frame({**dx.tlp_records(MRD32)[0], "flags": 15}),
             "W-31: ignorable flags of a known record")
    accepted("data-sequence-wraps", data_frame(MRD32, sequence=0xFFFFFFFF, ack=0, path=3))
    accepted("data-event-between", data_frame(MWR32, event("HOT_RESET", 0x80), MRD32),
             "W-50: a barrier between two TLPs")


def accepted_streams():
    note("data: TLPs over several frames, in order by `after`")
    prefixes, header, data = dx.split_tlp(MWR_4K)
    del prefixes, header
    accepted("split-1", data_frame(*dx.tlp_records(MWR_4K, 1124)), "1,232 bytes; 4,096 to write")
    accepted("split-2", data_frame(payload(data[1124:2272]), sequence=1001, packet=8),
             after="split-1")
    accepted("split-3", data_frame(payload(data[2272:3420]), sequence=1002, packet=9),
             after="split-2")
    accepted("split-4", data_frame(payload(data[3420:]), MRD32, CPL, sequence=1003, packet=10),
             "the rest, then two more", after="split-3")
    accepted("split-header", data_frame(mwr(275), *dx.tlp_records(MWR32, 0)),
             "1,232 bytes: no room for any payload behind the header")
    accepted("split-header-payload", data_frame(ignorable(0x80), payload(MWR32[12:]), MWR32,
                                                sequence=1001, packet=8),
             "W-43: an ignorable record before it", after="split-header")
    accepted("split-digest", data_frame(mwr(273), *dx.tlp_records(MWR_ECRC, 4)),
             "1,232 bytes, cut before the digest")
    accepted("split-digest-rest", data_frame(payload(MWR_ECRC[16:]), sequence=1001, packet=8),
             after="split-digest")

    note("data: valid frames that break a rule together; the channel ends (reset, reason 8)")
    accepted("stream-too-much", data_frame(payload(b"\0" * 8), sequence=1001, packet=8),
             "W-42", after="split-header")
    accepted("stream-interleaved", data_frame(MRD32, sequence=1001, packet=8), "W-43",
             after="split-1")
    accepted("stream-event-inside", data_frame(event("RESUME"), sequence=1001, packet=8), "W-43",
             after="split-1")
    accepted("stream-no-tlp", data_frame(payload(b"\0" * 4)), "W-42: a payload of nothing")
    accepted("stream-payload-after", data_frame(payload(b"\0" * 4), sequence=1001, packet=8),
             "W-42: the TLP before was complete", after="data-three")
    damaged = dx.tlp_records(MWR32)
    damaged[0]["crc"] ^= 1
    accepted("stream-tlp-crc", data_frame(*damaged), "W-38: the trailer is good, the TLP's is not")
    damaged = dx.tlp_records(MRD32)
    damaged[0]["header"] = damaged[0]["header"][:-1] + b"\x18"
    accepted("stream-tlp-crc-header", data_frame(*damaged), "W-38: the header changed after")


def accepted_loose():
    note("accepted, though a part is not 0 that should be: it is ignored")
    reset = {**CONTROL, "kind": "reset", "reason": 1, "version_min": 1, "version_max": 1}
    close = {**CONTROL, "kind": "close", "reason": 1, "flags": 1}
    probe = {**CONTROL, "kind": "probe", "flags": 0, "cookie": 1}
    loose("loose-offer", opening("open", OFFER), 33, 0xFF, "Reserved")
    loose("loose-reset", reset, 23, 0xFF, "after version_max")
    loose("loose-close", close, 22, 0xFF, "after the flags")
    loose("loose-probe", probe, 21, 0xFF, "after the flags")
    loose("loose-event", data_frame(event("QUIESCE")), 83, 0xFF, "after the flags")
    loose("loose-link", data_frame(event("LINK", 0x80, speed=3, width=4)), 87, 0xFF,
          "after the width")
    accepted("flags-close", {**close, "flags": 0xFF}, "flags without a meaning are ignored")
    accepted("flags-probe", {**probe, "flags": 0xFE})
    accepted("flags-event", data_frame(event("SLOT_POWER", 0x9E)))
    accepted("intx-more", data_frame(event("INTX", 0, wires=0xFFFFFFF2)), "only bits 3:0 count")


def accepted_events():
    note("data: link events")
    on = 0x80
    for name, record_ in (
            ("hot-reset-on", event("HOT_RESET", on)), ("hot-reset-off", event("HOT_RESET")),
            ("link-up", event("LINK", on, speed=4, width=16)),
            ("link-down", event("LINK", 0, speed=0, width=0)),
            ("power-on", event("SLOT_POWER", on)), ("power-off", event("SLOT_POWER")),
            ("power-limit", event("POWER_LIMIT", 0, milliwatts=75000)),
            ("device-ready", event("DEVICE_READY", on)),
            ("device-not-ready", event("DEVICE_READY")),
            ("contain", event("CONTAIN", on, reason=0x01020304)),
            ("grant-read", event("DMA_GRANT", 0x40, base=0x100000000, length=0x1000)),
            ("grant-write", event("DMA_GRANT", 0x20, base=0, length=(1 << 64) - 1)),
            ("grant-both", event("DMA_GRANT", 0x60, base=0xFFFFFFFFFFFFF000, length=0x1000)),
            ("revoke", event("DMA_REVOKE", 0x60, base=0x100000000, length=0x1000)),
            ("quiesce", event("QUIESCE")), ("drained", event("DRAINED")),
            ("drained-not-supported", event("DRAINED", 1)), ("resume", event("RESUME")),
            ("intx-none", event("INTX", 0, wires=0)), ("intx-all", event("INTX", 0, wires=15))):
        accepted(f"event-{name}", data_frame(record_))
    accepted("event-unknown", data_frame(event(13, 0, data=b""), event(255, on, data=b"12345")),
             "W-52: ignored and counted")
    accepted("event-16", data_frame(event(13, 0, data=b""), *[event("RESUME")] * 16),
             "D-36: as many as a frame may carry, and one that does not count")


def rejected_heads():
    note("refused: header and trailer")
    ack = {**HEAD, "kind": "ack"}
    whole = dx.encode_frame(ack)
    rejected("short-empty", "short", b"", "an empty datagram")
    rejected("short-5", "short", whole[:5], "W-4: less than version, kind and length need")
    rejected("short-19", "short", whole[:4] + b"\0\x13" + whole[6:19], "W-4: no base header")
    rejected("short-23", "short", dx.seal(whole[:19]), "a byte less than base header and trailer")
    rejected("short-ack", "short", dx.seal(whole[:75]), "a byte less than full header and trailer")
    rejected("short-data", "short", dx.seal(edited(ack, 3, b"\x01")[:40]))
    rejected("magic", "magic", edited(ack, 0, b"XD"))
    rejected("version-0", "version", edited(ack, 2, b"\0"))
    rejected("version-2", "version", edited(ack, 2, b"\x02"))
    rejected("kind-0", "kind", edited(ack, 3, b"\0"))
    rejected("kind-10", "kind", edited(ack, 3, b"\x0a"))
    rejected("kind-255", "kind", edited(ack, 3, b"\xff"))
    rejected("length-more", "length", edited(ack, 4, b"\0\x51"), "Length is 1 more")
    rejected("length-less", "length", edited(ack, 4, b"\0\x4f"), "Length is 1 less")
    rejected("length-zero", "length", edited(ack, 4, b"\0\0"))
    rejected("length-cut", "length", dx.encode_frame(data_frame(MWR32))[:-1], "a byte is missing")
    rejected("length-limit", "length",
             dx.encode_frame(data_frame(MWR_1K, ignorable(0x80, b"\0" * 97))),
             "W-10: a byte more than the receiver's offer of 1,232", limit=1232)
    rejected("rsvd-10", "rsvd", edited(ack, 6, b"\x10"))
    rejected("rsvd-20", "rsvd", edited(ack, 6, b"\x20"))
    for bit in (0x10, 0x20, 0x40):
        for kind in ("open", "accept"):
            rejected(f"rsvd-{kind}-{bit:02x}", "rsvd",
                     dx.encode_frame(opening(kind, {**OFFER, "flags": bit})), "W-27")
    rejected("rsvd-open", "rsvd", edited(opening("open", OFFER), 6, b"\x20"))
    rejected("crc-trailer", "crc", whole[:-1] + bytes([whole[-1] ^ 1]), "last bit of the trailer")
    rejected("crc-order", "crc", whole[:-4] + whole[:-5:-1], "least significant byte first")
    rejected("crc-header", "crc", whole[:24] + bytes([whole[24] ^ 0x80]) + whole[25:])
    wire = dx.encode_frame(data_frame(MWR32))
    rejected("crc-body", "crc", wire[:-5] + bytes([wire[-5] ^ 0x10]) + wire[-4:])
    rejected("crc-open", "crc", dx.encode_frame(opening("open", OFFER))[:-4] + b"\0" * 4)
    rejected("replay-last", "replay", edited(ack, 12, b"\xff" * 8), "W-8: no frame has this number")
    rejected("state-handshake-1201", "state",
             dx.encode_frame({**CONTROL, "kind": "handshake", "opaque": b"\0" * 1201}), "W-13")
    rejected("channel-open", "channel", edited(opening("open", OFFER), 8, b"\0\0\0\x01"),
             "W-7: the channel of an open is 0")


def rejected_in_order():
    note("refused: two rules are broken, the first of W-15 counts")
    ack = {**HEAD, "kind": "ack"}
    whole = dx.encode_frame(ack)
    rejected("order-short-magic", "short", b"XD\1\2\0")
    rejected("order-magic-length", "magic", b"XD" + whole[2:-1])
    rejected("order-length-version", "length", whole[:2] + b"\x02" + whole[3:-1])
    rejected("order-version-short", "version", whole[:2] + b"\x02\x02\0\x0c" + whole[6:12])
    rejected("order-short-kind", "short", whole[:3] + b"\0\0\x0c" + whole[6:12])
    rejected("order-kind-rsvd", "kind", edited(ack, 3, b"\x0a\0\x50\x30"))
    rejected("order-kind-crc", "kind", whole[:3] + b"\x0a" + whole[4:])
    rejected("order-rsvd-short", "rsvd", dx.seal(edited(ack, 6, b"\x10")[:40]))
    rejected("order-channel-crc", "channel",
             edited(opening("open", OFFER), 8, b"\0\0\0\x01")[:-1] + b"\0")
    rejected("order-length-crc", "length",
             dx.encode_frame(data_frame(MWR_1K, ignorable(0x80, b"\0" * 97)))[:-4] + b"\0" * 4,
             limit=1232)
    rejected("order-crc-replay", "crc", edited(ack, 12, b"\xff" * 8)[:-4] + b"\0" * 4)
    rejected("order-crc-record", "crc", raw_data_frame(b"\0" * 4)[:-4] + b"\0" * 4)
    rejected("order-replay-record", "replay",
             resealed(raw_data_frame(b"")[:12] + b"\xff" * 8 + raw_data_frame(b"")[20:-4]))
    rejected("order-rsvd-offer", "rsvd",
             dx.encode_frame(opening("accept", {**OFFER, "flags": 0x10, "window": 0})))


def rejected_bodies():
    note("refused: control bodies")
    for kind, body in (("open", 71), ("accept", 71), ("open", 0), ("reset", 3), ("close", 3),
                       ("probe", 11)):
        number = bytes([dx.KIND_NUMBERS[kind]])
        head = dx.encode_frame({**CONTROL, "kind": "handshake", "opaque": b"",
                                **({"channel": 0} if kind == "open" else {})})[:20]
        rejected(f"short-{kind}-{body}", "short",
                 dx.seal(head[:3] + number + head[4:] + b"\x01" * body), "W-14 or W-20")
    for kind, body in (("ack", b"\0" * 4), ("blocked", record(0x80, b""))):
        empty = dx.encode_frame({**HEAD, "kind": kind})[:-4]
        rejected(f"{kind}-body", "record", dx.seal(empty + body), "W-11")

    note("refused: offers")
    for name, change, about in (
            ("channel", {"channel": 0}, "W-21"), ("version-min", {"version_min": 0}, "W-22"),
            ("version-order", {"version_min": 3, "version_max": 2}, "W-22"),
            ("suites", {"suites": 0}, "W-23"), ("formats", {"tlp_formats": 2}, "W-24"),
            ("window", {"window": 0}, "W-25"), ("hold", {"hold_ms": 0}, "W-25"),
            ("frame-limit-low", {"frame_limit": 1231}, "W-10"),
            ("frame-limit-high", {"frame_limit": 65508}, "W-10"),
            ("epoch", {"epoch": 0}, "W-28")):
        rejected(f"offer-{name}", "offer",
                 dx.encode_frame(opening("open", {**OFFER, **change})), about)
    for index, least in enumerate((1, 1, 1, 256, 8, 256)):
        limits = LIMITS[:index] + [least - 1] + LIMITS[index + 1:]
        rejected(f"offer-limit-{index + 1}-low", "offer",
                 dx.encode_frame(opening("open", {**OFFER, "limits": limits})), "W-26")
        limits = LIMITS[:index] + [1 << 30] + LIMITS[index + 1:]
        rejected(f"offer-limit-{index + 1}-high", "offer",
                 dx.encode_frame(opening("open", {**OFFER, "limits": limits})), "W-26")
    rejected("offer-accept-versions", "offer",
             dx.encode_frame(opening("accept", {**OFFER, "version_max": 2})), "W-22: one version")
    rejected("offer-accept-suites", "offer",
             dx.encode_frame(opening("accept", {**OFFER, "suites": 3})), "W-23: one suite")


def rejected_records():
    note("refused: records")
    read = dx.encode_record(dx.tlp_records(MRD32)[0])
    write_, part = (dx.encode_record(r) for r in dx.tlp_records(MWR32))
    ready = dx.encode_record(event("DEVICE_READY", 0x80))

    def tlp_edit(raw, offset, *values):
        """A TLP record with bytes of its content replaced."""
        content = bytearray(raw[4:])
        content[offset:offset + len(values)] = bytes(values)
        return record(1, bytes(content))

    for name, body, about in (
            ("none", b"", "a data frame without records"),
            ("header-cut", read + b"\x80\0\0", "three bytes of a record header"),
            ("beyond", read[:-1], "W-30"), ("beyond-4", record(0x80, b"", length=1), "W-30"),
            ("flags", record(1, read[4:], flags=0x10), "W-31: must-understand"),
            ("flags-ignorable", read + record(0x80, b"", flags=0x80), "W-31: must-understand"),
            ("type-0", read + record(0, b""), "W-31"), ("type-4", read + record(4, b""), "W-31"),
            ("type-7f", read + record(0x7F, b""), "W-31"),
            ("tlp-empty", record(1, b""), "W-32"), ("tlp-3", record(1, b"\0\x43\0"), "W-32"),
            ("tlp-shorter", record(1, read[4:-4]), "W-32"),
            ("tlp-longer", record(1, read[4:] + b"\0" * 4), "W-32"),
            ("tlp-prefix-local", tlp_edit(dx.encode_record(dx.tlp_records(PREFIXED)[0]), 4, 0x8E),
             "W-33: a local prefix"),
            ("tlp-prefix-unknown", tlp_edit(dx.encode_record(dx.tlp_records(PREFIXED)[0]), 4, 0x93),
             "W-33: an end-end prefix that is not in T-20"),
            ("tlp-prefix-none", tlp_edit(dx.encode_record(dx.tlp_records(PREFIXED)[0]), 4, 0),
             "W-33: no prefix"),
            ("tlp-format", tlp_edit(read, 0, 0x10), "W-34"),
            ("tlp-vc", tlp_edit(read, 0, 0x02), "W-34"),
            ("tlp-bit", tlp_edit(read, 0, 0x01), "W-34: the bit below VC"),
            ("tlp-class", tlp_edit(read, 1, 0x03), "W-35: a read is not posted"),
            ("tlp-class-3", tlp_edit(read, 1, 0xC3), "W-35"),
            ("tlp-header-2", record(1, read[4:5] + b"\x42" + read[6:16] + read[-4:]), "W-35"),
            ("tlp-header-4", record(1, read[4:5] + b"\x44" + read[6:20] + b"\0" * 4 + read[-4:]),
             "W-35: Fmt says 3"),
            ("tlp-prefixes-5", record(1, b"\0\x6b\0\0" + b"\x9e\0\0\0" * 5 + read[8:]), "W-35"),
            ("tlp-data-read", tlp_edit(read, 2, 0, 4), "W-36: a read has none"),
            ("tlp-data-less", tlp_edit(write_, 2, 0, 0), "W-36"),
            ("tlp-data-more", tlp_edit(write_, 2, 0, 8) + record(2, b"\0" * 8), "W-36"),
            ("tlp-type", tlp_edit(read, 4, 0x03), "W-37: Type 3"),
            ("tlp-type-fmt", tlp_edit(read, 4, 0x0C), "W-37: FetchAdd without data"),
            ("payload-empty", write_ + record(2, b"") + part, "W-40"),
            ("payload-more", write_ + record(2, part[4:] + b"\0" * 4), "W-42"),
            ("payload-again", write_ + part + part, "W-42"),
            ("payload-after-read", read + part, "W-42"),
            ("payload-after-event", ready + part, "W-42"),
            ("tlp-inside", write_ + read + part, "W-43"),
            ("event-inside", write_ + ready + part, "W-43"),
            ("event-inside-unknown", write_ + record(3, b"\x0d\0\0\0") + part,
             "W-43: an unknown event is no ignorable record"),
            ("event-17", ready * 17, "D-36"),
            ("event-short", record(3, b"\x05\x80\0"), "W-51"),
            ("event-unknown-short", record(3, b"\x0d\x80\0"), "W-51"),
            ("event-long", record(3, b"\x05\x80\0\0" + b"\0" * 4), "W-51"),
            ("event-link-short", record(3, b"\x02\x80\0\0"), "W-51"),
            ("event-grant-short", record(3, b"\x07\x60\0\0" + b"\0" * 12), "W-51"),
            ("event-intx-long", record(3, b"\x0c\0\0\0" + b"\0" * 8), "W-51")):
        rejected(f"record-{name}", "record", raw_data_frame(body), about)


def text():
    """The whole file."""
    out.clear()
    accepted_control()
    accepted_empty()
    accepted_data()
    accepted_streams()
    accepted_events()
    accepted_loose()
    rejected_heads()
    rejected_in_order()
    rejected_bodies()
    rejected_records()
    return "\n".join([
        "# Frames, byte-exact: what a receiver must accept, then what it must drop, by reason.",
        "# The format is described in README.md; W- rules are in ../wire.md.\n", *out])


if __name__ == "__main__":
    sys.stdout.write(text())
