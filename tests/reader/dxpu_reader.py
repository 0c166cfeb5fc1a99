#!/usr/bin/env python3
"""A second implementation of the dxpu formats, written from spec/ alone.

It shares no code with dxpu.h, and serves two ends: it tells whether the specification says enough,
and it reads and makes frames and TLPs by hand:

    dxpu_reader.py frame HEX        decode one frame, print JSON
    dxpu_reader.py tlp HEX          decode one TLP, print JSON

As a module: decode_frame, encode_frame, Stream (TLPs across frames), decode_tlp, decode_tlp_header,
encode_tlp, ecrc, lcrc.  Comments name the rules: W- in spec/wire.md, T- in spec/tlp.md.
It has no state of a channel: what needs one (channel id, replay, ack, window) it does not judge.
"""

import json
import struct
import sys
import zlib


class Reject(Exception):
    """Bytes that are not to be used.  `reason` is a drop reason of wire.md or an error of tlp.md."""

    def __init__(self, reason, detail=""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


def check(condition, reason, detail=""):
    if not condition:
        raise Reject(reason, detail)


def crc32(data):
    """Section 6 of wire.md."""
    return zlib.crc32(data) & 0xFFFFFFFF


# ---- Frames (wire.md 1 to 3) --------------------------------------------------------------------

MAGIC = 0x4458
TRAILER = 4
FRAME_MIN, FRAME_MAX = 24, 65507
KINDS = {1: "data", 2: "ack", 3: "blocked", 4: "open", 5: "accept", 6: "reset", 7: "close",
         8: "handshake", 9: "probe"}
KIND_NUMBERS = {name: number for number, name in KINDS.items()}
SEQUENCED = ("data", "ack", "blocked")

# Each layout is a struct format and the names of its fields; `_` is a zero, `limits` takes six.
BASE = (">HBBHBBIQ", "magic version kind length flags path channel packet")
FULL = (">IIQQII6I", "sequence ack sack seen delay ecn_ce limits")
OFFER = (">IBBHHHBBHII6IQQQ",
         "channel version_min version_max suites tlp_formats window flags _ frame_limit hold_ms "
         "sequence limits epoch source destination")
RESET = (">BBBB", "reason version_min version_max _")
CLOSE = (">BBH", "reason flags _")
PROBE = (">B3xQ", "flags cookie")
CONTROL = {"open": OFFER, "accept": OFFER, "reset": RESET, "close": CLOSE, "probe": PROBE}


def size(layout):
    return struct.calcsize(layout[0])


def unpack(layout, data, reason):
    """The fields at the start of data; too few bytes are dropped for the reason given."""
    check(len(data) >= size(layout), reason, f"{len(data)} bytes of {size(layout)}")
    values = list(struct.unpack_from(layout[0], data))
    fields = {}
    for name in layout[1].split():
        fields[name] = [values.pop(0) for _ in range(6)] if name == "limits" else values.pop(0)
    fields.pop("_", None)
    return fields


def pack(layout, fields):
    values = []
    for name in layout[1].split():
        value = 0 if name == "_" else fields[name]
        values += value if name == "limits" else [value]
    return struct.pack(layout[0], *values)


def seal(head_and_body):
    """Set Length and append the trailer of the CRC suite (W-4, W-9)."""
    length = len(head_and_body) + TRAILER
    sealed = head_and_body[:4] + struct.pack(">H", length) + head_and_body[6:]
    return sealed + struct.pack(">I", crc32(sealed))


def decode_frame(data, limit=FRAME_MAX):
    """The fields of one frame, or Reject.  `limit` is the frame limit of the receiver's offer."""
    check(len(data) >= FRAME_MIN, "short", "no base header and trailer")
    frame = unpack(BASE, data, "short")
    check(frame.pop("magic") == MAGIC, "magic")  # W-1
    check(frame["version"] == 1, "version")  # W-2
    check(frame["kind"] in KINDS, "kind")  # W-3
    kind = frame["kind"] = KINDS[frame["kind"]]
    check(frame.pop("length") == len(data), "length", "not that of the datagram")  # W-4
    check(len(data) <= limit, "length", "more than the frame limit")  # W-10
    head = size(BASE) + (size(FULL) if kind in SEQUENCED else 0)
    check(len(data) >= head + TRAILER, "short", "no full header and trailer")  # W-4
    check(crc32(data[:-TRAILER]) == int.from_bytes(data[-TRAILER:], "big"), "crc")  # W-9
    check(kind != "open" or frame["channel"] == 0, "channel")  # W-7
    flags = frame.pop("flags")
    check(flags & 0x30 == 0, "rsvd")  # W-5
    frame["key_phase"], frame["ignorable"] = flags >> 6, flags & 0x0F
    if kind in SEQUENCED:
        frame.update(unpack(FULL, data[size(BASE):], "short"))
    frame.update(decode_body(kind, data[head:-TRAILER]))
    return frame


def decode_body(kind, body):
    if kind == "data":
        records = decode_records(body)
        check(records, "record", "a data frame without records")  # section 2
        return {"records": records}
    if kind in ("ack", "blocked"):
        check(not body, "record", "a body where none may be")  # W-11
        return {}
    if kind == "handshake":
        check(len(body) <= 1200, "length")
        return {"opaque": body}
    layout = CONTROL[kind]
    fields = unpack(layout, body, "short")  # W-14, W-20
    fields["rest"] = body[size(layout):]
    if layout is OFFER:
        check_offer(kind, fields)
        return {"offer": fields}
    return fields


def check_offer(kind, offer):
    def rule(tag, condition):
        check(condition, "offer", tag)

    headers, data = offer["limits"][:3], offer["limits"][3:]
    rule("W-21", offer["channel"] != 0)
    rule("W-22", 1 <= offer["version_min"] <= offer["version_max"])
    rule("W-22", kind == "open" or offer["version_min"] == offer["version_max"])
    rule("W-23", offer["suites"] != 0)
    rule("W-23", kind == "open" or offer["suites"] & (offer["suites"] - 1) == 0)
    rule("W-24", offer["tlp_formats"] & 1)
    rule("W-25", offer["window"] >= 1 and offer["hold_ms"] >= 1)
    rule("W-26", all(1 <= units < 1 << 30 for units in headers))
    rule("W-26", all(least <= units < 1 << 30 for least, units in zip((256, 8, 256), data)))
    rule("W-27", offer["flags"] & 0x70 == 0)
    rule("W-10", 1232 <= offer["frame_limit"] <= FRAME_MAX)
    rule("W-28", offer["epoch"] >= 1)


def encode_frame(frame):
    """The bytes of a frame that decode_frame would return as `frame`.  No rule is checked."""
    kind = frame["kind"]
    flags = frame.get("key_phase", 0) << 6 | frame.get("ignorable", 0)
    base = {"path": 0, **frame, "magic": MAGIC, "kind": KIND_NUMBERS[kind], "length": 0,
            "flags": flags}
    out = pack(BASE, base)
    if kind in SEQUENCED:
        out += pack(FULL, frame)
    if kind == "data":
        out += b"".join(encode_record(record) for record in frame["records"])
    elif kind == "handshake":
        out += frame["opaque"]
    elif kind in CONTROL:
        fields = frame.get("offer", frame)
        out += pack(CONTROL[kind], fields) + fields.get("rest", b"")
    return seal(out)


# ---- Records (wire.md 4) ------------------------------------------------------------------------

CLASSES = ("posted", "non-posted", "completion")
# Event number: its name and the layout of its body.
EVENTS = {
    1: ("HOT_RESET", (">", "")), 2: ("LINK", (">BBH", "speed width _")),
    3: ("SLOT_POWER", (">", "")), 4: ("POWER_LIMIT", (">I", "milliwatts")),
    5: ("DEVICE_READY", (">", "")), 6: ("CONTAIN", (">I", "reason")),
    7: ("DMA_GRANT", (">QQ", "base length")), 8: ("DMA_REVOKE", (">QQ", "base length")),
    9: ("QUIESCE", (">", "")), 10: ("DRAINED", (">", "")), 11: ("RESUME", (">", "")),
    12: ("INTX", (">I", "wires")),
}
EVENT_NUMBERS = {name: number for number, (name, _) in EVENTS.items()}


def decode_records(body):
    records = []
    left = None  # bytes the last TLP of this frame still lacks; None: the frame before knows
    while body:
        check(len(body) >= 4, "record", "a record header cut short")
        rtype, flags, length = struct.unpack_from(">BBH", body)
        check(4 + length <= len(body), "record", "W-30: ends beyond the body")
        check(flags & 0xF0 == 0, "record", "W-31: must-understand flag")
        content, body = body[4:4 + length], body[4 + length:]
        record = {"flags": flags}
        if rtype == 1:
            check(not left, "record", "W-43: a TLP inside another")
            record.update(decode_tlp_record(content))
            left = record["data_bytes"]
        elif rtype == 2:
            check(length >= 1, "record", "W-40")
            check(length % 4 == 0, "record", "W-41")  # payload and digest are whole dwords
            check(left is None or length <= left, "record", "W-42")
            left = None if left is None else left - length
            record.update(record="payload", data=content)
        elif rtype == 3:
            check(not left, "record", "W-43: a link event inside a TLP")
            record.update(decode_event(content))
            left = 0
        else:
            check(rtype >= 0x80, "record", "W-31: unknown type")
            record.update(record="ignorable", type=rtype, data=content)
        records.append(record)
    return records


def decode_tlp_record(content):
    check(len(content) >= 4, "record", "W-32")
    first, second, data_bytes = struct.unpack_from(">BBH", content)
    prefix_dw, header_dw = second >> 3 & 7, second & 7
    check(len(content) == 4 + 4 * (prefix_dw + header_dw) + 4, "record", "W-32")
    check(first & 0xFE == 0, "record", "W-34")
    check(prefix_dw <= 4 and header_dw in (3, 4), "record", "W-35")
    prefixes = dwords(content[4:4 + 4 * prefix_dw])
    header = content[4 + 4 * prefix_dw:-4]
    check(all(prefix >> 28 == 9 for prefix in prefixes), "record", "W-33: Fmt 100, Type 1xxxx")
    kind = tlp_kind(header[0])
    check(kind is not None, "record", "W-37")
    check(second >> 6 == CLASSES.index(kind.tlp_class), "record", "W-35: class")
    check(header_dw == kind.dw, "record", "W-35: header dwords")
    check(data_bytes == trailing_bytes(header), "record", "W-36")
    return {"record": "tlp", "class": kind.tlp_class, "data_bytes": data_bytes,
            "prefixes": prefixes, "header": header, "crc": int.from_bytes(content[-4:], "big")}


def decode_event(content):
    check(len(content) >= 4, "record", "W-51")
    number, event_flags, _ = struct.unpack_from(">BBH", content)
    if number not in EVENTS:  # W-52
        return {"record": "event", "event": number, "event_flags": event_flags,
                "data": content[4:]}
    name, layout = EVENTS[number]
    check(len(content) == 4 + size(layout), "record", "W-51")
    return {"record": "event", "event": name, "event_flags": event_flags,
            **unpack(layout, content[4:], "record")}


def encode_record(record):
    kind = record["record"]
    if kind == "tlp":
        rtype = 1
        words = b"".join(struct.pack(">I", prefix) for prefix in record["prefixes"])
        second = (CLASSES.index(record["class"]) << 6 | len(record["prefixes"]) << 3
                  | len(record["header"]) // 4)
        content = struct.pack(">BBH", 0, second, record["data_bytes"]) + words + record["header"]
        content += struct.pack(">I", record["crc"])
    elif kind == "payload":
        rtype, content = 2, record["data"]
    elif kind == "event":
        rtype, event = 3, record["event"]
        number = EVENT_NUMBERS.get(event, event)
        content = struct.pack(">BBH", number, record["event_flags"], 0)
        content += pack(EVENTS[number][1], record) if number in EVENTS else record["data"]
    else:
        rtype, content = record["type"], record["data"]
    return struct.pack(">BBH", rtype, record["flags"], len(content)) + content


def tlp_records(tlp, first_part=None):
    """The records of a TLP in one frame; with first_part, of its first payload bytes only."""
    prefixes, header, data = split_tlp(tlp)
    record = {"record": "tlp", "flags": 0, "class": tlp_kind(header[0]).tlp_class,
              "data_bytes": len(data), "prefixes": prefixes, "header": header, "crc": crc32(tlp)}
    part = data if first_part is None else data[:first_part]
    return [record] + ([{"record": "payload", "flags": 0, "data": part}] if part else [])


class Stream:
    """Puts TLPs together from data frames given in order of sequence.

    A Reject here is a breach inside valid frames: it ends the channel with reset reason 8.
    """

    def __init__(self):
        self.tlp, self.left, self.crc = None, 0, 0

    def feed(self, frame):
        """What the frame completes: TLPs as bytes, link events as records."""
        done = []
        for record in frame["records"]:
            if record["record"] == "ignorable":
                continue
            if record["record"] == "payload":
                check(len(record["data"]) <= self.left, "reset-8", "W-42")
                self.tlp += record["data"]
                self.left -= len(record["data"])
            else:
                check(self.left == 0, "reset-8", "W-43")
                if record["record"] == "event":
                    done.append(record)
                    continue
                self.tlp = b"".join(p.to_bytes(4, "big") for p in record["prefixes"])
                self.tlp += record["header"]
                self.left, self.crc = record["data_bytes"], record["crc"]
            if self.left == 0:
                check(crc32(self.tlp) == self.crc, "reset-8", "W-38")
                done.append(self.tlp)
        return done


# ---- TLPs: what Fmt and Type say ----------------------------------------------------------------


class Kind:
    """One Fmt and Type pair."""

    def __init__(self, name, tlp_class, fmt):
        self.name, self.tlp_class = name, tlp_class
        self.dw, self.has_data = 4 if fmt & 1 else 3, bool(fmt & 2)


def make_kinds():
    """First header byte to Kind: Fmt in bits 7:5, Type in bits 4:0."""
    posted, non_posted, completion = CLASSES
    table = [  # name, class, Fmts, Type
        ("MRd", non_posted, (0, 1), 0x00), ("MRdLk", non_posted, (0, 1), 0x01),
        ("MWr", posted, (2, 3), 0x00), ("DMWr", non_posted, (2, 3), 0x1B),
        ("IORd", non_posted, (0,), 0x02), ("IOWr", non_posted, (2,), 0x02),
        ("CfgRd0", non_posted, (0,), 0x04), ("CfgWr0", non_posted, (2,), 0x04),
        ("CfgRd1", non_posted, (0,), 0x05), ("CfgWr1", non_posted, (2,), 0x05),
        ("Cpl", completion, (0,), 0x0A), ("CplD", completion, (2,), 0x0A),
        ("CplLk", completion, (0,), 0x0B), ("CplDLk", completion, (2,), 0x0B),
        ("FetchAdd", non_posted, (2, 3), 0x0C), ("Swap", non_posted, (2, 3), 0x0D),
        ("CAS", non_posted, (2, 3), 0x0E),
    ]
    for routing in range(8):
        table += [("Msg", posted, (1,), 0x10 | routing), ("MsgD", posted, (3,), 0x10 | routing)]
    return {fmt << 5 | typ: Kind(name, tlp_class, fmt)
            for name, tlp_class, fmts, typ in table for fmt in fmts}


TLP_KINDS = make_kinds()


def tlp_kind(first_byte):
    return TLP_KINDS.get(first_byte)


def dwords(data):
    return [int.from_bytes(data[i:i + 4], "big") for i in range(0, len(data), 4)]


def length_field(header):
    return (int.from_bytes(header[2:4], "big") & 0x3FF) or 1024


def trailing_bytes(header):
    """Payload and digest that follow this header."""
    payload = 4 * length_field(header) if tlp_kind(header[0]).has_data else 0
    return payload + (4 if header[2] & 0x80 else 0)


def split_tlp(tlp):
    """Prefixes as numbers, header, and payload with digest."""
    start = 0
    while start < len(tlp) and tlp[start] >> 5 == 4:
        start += 4
    end = start + 4 * tlp_kind(tlp[start]).dw
    return dwords(tlp[:start]), tlp[start:end], tlp[end:]


# ---- Command line -------------------------------------------------------------------------------


def to_json(value):
    return json.dumps(value, indent=2, default=lambda data: data.hex())


def main(arguments):
    decoders = {"frame": decode_frame}
    if len(arguments) < 2 or arguments[0] not in decoders:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        data = bytes.fromhex("".join(arguments[1:]))
    except ValueError as error:
        print(f"dxpu_reader: {error}", file=sys.stderr)
        return 2
    try:
        print(to_json(decoders[arguments[0]](data)))
    except Reject as error:
        print(to_json({"reject": error.reason, "detail": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
