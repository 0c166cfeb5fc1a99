#!/usr/bin/env python3
"""A second implementation of the dxpu formats, written from spec/ alone.

It shares no code with dxpu.h, and serves two ends: it shows whether the specification says enough,
and it reads and makes frames and TLPs by hand:

    dxpu_reader.py frame HEX        decode one frame, print JSON
    dxpu_reader.py tlp HEX          decode one TLP, print JSON

As a module: decode_frame, encode_frame, Stream (TLPs across frames), decode_tlp, decode_tlp_header,
receive_tlp, encode_tlp, ecrc, lcrc.  Comments name the rules: W- in spec/wire.md, T- in
spec/tlp.md.  It has no state of a channel: what needs one (channel id, replay, ack, window) it does
not judge.
"""

import json
import struct
import sys
import zlib


class Reject(Exception):
    """Bytes not to be used.  `reason` is a drop reason of wire.md or an error of tlp.md."""

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
FRAME_MAX = 65507
PACKET_NEVER = (1 << 64) - 1
KINDS = {1: "data", 2: "ack", 3: "blocked", 4: "open", 5: "accept", 6: "reset", 7: "close",
         8: "handshake", 9: "probe"}
KIND_NUMBERS = {name: number for number, name in KINDS.items()}
SEQUENCED = ("data", "ack", "blocked")

# Each layout is a struct format and the names of its fields; `_` is a zero, `limits` takes six.
INVARIANT = (">HBBH", "magic version kind length")
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
    first = unpack(INVARIANT, data, "short")  # the order of these checks is W-15's
    check(first["magic"] == MAGIC, "magic")  # W-1
    check(first["length"] == len(data), "length", "not that of the datagram")  # W-4
    check(first["version"] == 1, "version")  # W-2
    frame = unpack(BASE, data, "short")
    for name in ("magic", "length"):
        del frame[name]
    check(frame["kind"] in KINDS, "kind")  # W-3
    kind = frame["kind"] = KINDS[frame["kind"]]
    flags = frame.pop("flags")
    check(flags & 0x30 == 0, "rsvd")  # W-5
    head = size(BASE) + (size(FULL) if kind in SEQUENCED else 0)
    check(len(data) >= head + TRAILER, "short", "no header and trailer")  # W-4
    check(kind != "open" or frame["channel"] == 0, "channel")  # W-7
    check(len(data) <= limit, "length", "more than the frame limit")  # W-10
    check(crc32(data[:-TRAILER]) == int.from_bytes(data[-TRAILER:], "big"), "crc")  # W-9
    check(kind == "reset" or frame["packet"] != PACKET_NEVER, "replay")  # W-8
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
        check(len(body) <= 1200, "state")  # W-13
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

    check(offer["flags"] & 0x70 == 0, "rsvd", "W-27")
    headers, data = offer["limits"][:3], offer["limits"][3:]
    rule("W-21", offer["channel"] != 0)
    rule("W-22", 1 <= offer["version_min"] <= offer["version_max"])
    rule("W-22", kind == "open" or offer["version_min"] == offer["version_max"])
    rule("W-23", offer["suites"] != 0)
    rule("W-23", kind == "open" or offer["suites"] & (offer["suites"] - 1) == 0)
    rule("W-24", offer["tlp_formats"] & 1)
    rule("W-25", offer["window"] >= 1 and offer["hold_ms"] >= 1)
    if offer["flags"] & 0x80:  # W-27: the limits of completions mean nothing
        headers, data = headers[:2], data[:2]
    rule("W-26", all(1 <= units < 1 << 30 for units in headers))
    rule("W-26", all(least <= units < 1 << 30 for least, units in zip((256, 8, 256), data)))
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
EVENTS_MAX = 16  # in a frame
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
    known = sum(record.get("event") in EVENT_NUMBERS for record in records)
    check(known <= EVENTS_MAX, "record", "D-36")
    return records


def decode_tlp_record(content):
    check(len(content) >= 4, "record", "W-32")
    first, second, data_bytes = struct.unpack_from(">BBH", content)
    prefix_dw, header_dw = second >> 3 & 7, second & 7
    check(len(content) == 4 + 4 * (prefix_dw + header_dw) + 4, "record", "W-32")
    check(first == 0, "record", "W-34")
    check(prefix_dw <= 4 and header_dw in (3, 4), "record", "W-35")
    prefixes = dwords(content[4:4 + 4 * prefix_dw])
    header = content[4 + 4 * prefix_dw:-4]
    check(all(p >> 28 == 9 and p >> 24 in PREFIX_TYPES for p in prefixes), "record", "W-33")
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


# ---- TLPs: decoding (tlp.md) --------------------------------------------------------------------
#
# A decoded TLP is a dict with the keys of spec/vectors/README.md, plus `payload` (bytes).

PREFIX_TYPES = (0x80, 0x8E, 0x8F, 0x90, 0x91, 0x92, 0x9E, 0x9F)  # T-20
PREFIXES_MAX = 8
TPH_PREFIX = 0x90
PASID_PREFIX = 0x91
IDE_PREFIX = 0x92
ATTRS = {"NS": 1, "RO": 2, "IDO": 4}  # Attr[2:0]
STATUS = {0: "SC", 1: "UR", 2: "CRS", 4: "CA"}  # T-36
ROUTINGS = ("to-root", "address", "id", "broadcast", "local", "gathered", "local", "local")
MEMORY = ("MRd", "MRdLk", "MWr", "DMWr")
ATOMICS = ("FetchAdd", "Swap", "CAS")
VENDOR = (0x7E, 0x7F)


def make_messages():
    """R-22: code to name, Type[2:0], and whether it has data (None: either)."""
    table = {0x00: ("Unlock", 3, False), 0x01: ("Invalidate_Request", 2, True),
             0x02: ("Invalidate_Completion", 2, False), 0x04: ("Page_Request", 0, False),
             0x05: ("PRG_Response", 2, False), 0x10: ("LTR", 4, False), 0x12: ("OBFF", 4, False),
             0x14: ("PM_Active_State_Nak", 4, False), 0x18: ("PM_PME", 0, False),
             0x19: ("PME_Turn_Off", 3, False), 0x1B: ("PME_TO_Ack", 5, False),
             0x30: ("ERR_COR", 0, False), 0x31: ("ERR_NONFATAL", 0, False),
             0x33: ("ERR_FATAL", 0, False), 0x48: ("Attention_Button_Pressed", 4, False),
             0x50: ("Set_Slot_Power_Limit", 4, True), 0x52: ("PTM_Request", 4, False),
             0x53: ("PTM_Response", 4, None), 0x7E: ("Vendor_Defined_Type_0", None, None),
             0x7F: ("Vendor_Defined_Type_1", None, None)}
    for wire, letter in enumerate("ABCD"):
        table[0x20 + wire] = (f"Assert_INT{letter}", 4, False)
        table[0x24 + wire] = (f"Deassert_INT{letter}", 4, False)
    for base, name in ((0x40, "Attention"), (0x44, "Power")):
        for offset, what in ((0, "Off"), (1, "On"), (3, "Blink")):
            table[base + offset] = (f"{name}_Indicator_{what}", 4, False)
    return table


MESSAGES = make_messages()
MESSAGE_DATA_DW = {0x50: 1, 0x53: 1, 0x01: 2}  # T-33
ALL = 0xFFFFFFFF
# T-34: bits that are used in bytes 8..11 and 12..15; vendor and PTM messages are in message_bits.
MESSAGE_BITS = {0x01: (0xFFFF0000, 0), 0x02: (0xFFFF0007, ALL), 0x04: (ALL, ALL),
                0x05: (0xFFFFF1FF, 0), 0x10: (0, 0x9FFF9FFF), 0x12: (0, 0xF), 0x30: (ALL, ALL)}


def bdf(number):
    return f"{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"


def bdf_number(text):
    bus, device, function = int(text[:2], 16), int(text[3:5], 16), int(text[6:])
    return bus << 8 | device << 3 | function


def half(data, offset):
    return int.from_bytes(data[offset:offset + 2], "big")


def count_prefixes(data):
    """T-20 to T-22; how many prefixes stand before the header."""
    count = end_end = 0
    while 4 * count < len(data) and data[4 * count] >> 5 == 4:
        first = data[4 * count]
        check(first in PREFIX_TYPES, "E_TLP_PREFIX")
        check(first & 0x10 or not end_end, "E_TLP_PREFIX_ORDER")  # Type[4]: end-end
        end_end += first >> 4 & 1
        count += 1
        check(end_end <= 4 and count <= PREFIXES_MAX, "E_TLP_PREFIX_COUNT")
    return count


def decode_tlp_header(data):
    """T-40: what is known of a TLP from its first bytes, also when rules are broken."""
    check(len(data) >= 12, "E_TLP_SHORT")
    check(data[:12] != b"\xff" * 12, "E_TLP_ALL_ONES")  # T-41
    check(data[:12] != b"\0" * 12, "E_TLP_ALL_ZERO")
    start = 4 * count_prefixes(data)
    check(len(data) > start, "E_TLP_SHORT")
    kind = tlp_kind(data[start])
    check(kind is not None, "E_TLP_TYPE")
    check(len(data) >= start + 4 * kind.dw, "E_TLP_SHORT")
    header = data[start:start + 4 * kind.dw]
    attr = header[1] >> 2 & 1, header[2] >> 4 & 3
    tlp = {
        "type": kind.name, "dw": kind.dw, "class": kind.tlp_class, "routing": routing_of(header),
        "length_dw": length_field(header) if has_length(kind) else 0,
        "tc": header[1] >> 4 & 7, "attr": attr_names(attr[0] << 2 | attr[1]),
        "th": header[1] & 1, "td": header[2] >> 7, "ep": header[2] >> 6 & 1,
        "at": header[2] >> 2 & 3, "ph": 0, "steering": 0, "bcm": 0,
        "prefixes": " ".join(f"{prefix:08x}" for prefix in dwords(data[:start])),
    }
    if kind.tlp_class == "completion":
        tlp.update(completion_fields(header))
    elif kind.name in ("Msg", "MsgD"):
        tlp.update(message_fields(header))
    elif kind.name.startswith("Cfg"):
        tlp.update(requester_fields(header), **byte_enables(header), target=bdf(half(header, 8)),
                   register=half(header, 10) & 0xFFC)
    else:
        tlp.update(requester_fields(header), **address_fields(kind, header))
    size_now = 4 * tlp["length_dw"] if kind.has_data else 0
    tlp["payload"] = data[start + 4 * kind.dw:][:size_now]
    return tlp


def has_length(kind):
    """T-7: Length is reserved in these."""
    return kind.name not in ("Msg", "Cpl", "CplLk")


def routing_of(header):
    name = tlp_kind(header[0]).name
    if name in ("Msg", "MsgD"):
        return ROUTINGS[header[0] & 7]
    return "id" if name.startswith(("Cfg", "Cpl")) else "address"


def attr_names(attr):
    return " ".join(name for name, bit in ATTRS.items() if attr & bit)


def full_tag(header, low):
    return (header[1] & 0x80) << 2 | (header[1] & 0x08) << 5 | low


def requester_fields(header):
    posted = tlp_kind(header[0]).tlp_class == "posted"  # T-9
    return {"requester": bdf(half(header, 4)),
            "tag": header[6] if posted else full_tag(header, header[6])}


def byte_enables(header):
    return {"first_be": header[7] & 15, "last_be": header[7] >> 4}


def address_fields(kind, header):
    address = int.from_bytes(header[8:], "big")
    fields = {"address": hex(address & ~3)}
    hint = header[1] & 1 and kind.name in MEMORY + ATOMICS
    if hint or is_translation(kind, header):  # T-13
        fields["ph"] = address & 3 if hint else address & 1
    if hint and kind.name == "MWr":  # T-12
        fields.update(steering=header[6], tag=0, **byte_enables(header))
    elif hint:
        fields["steering"] = header[7]
        if kind.name not in ATOMICS:
            fields.update(first_be=15, last_be=0 if length_field(header) == 1 else 15)
    elif kind.name not in ATOMICS:
        fields.update(byte_enables(header))
    return fields


def is_translation(kind, header):
    return kind.name == "MRd" and header[2] >> 2 & 3 == 1  # T-14


def message_fields(header):
    fields = {**requester_fields(header), "message_code": header[7],
              "message_dw": header[8:16].hex()}
    if header[7] in MESSAGES:
        fields["message"] = MESSAGES[header[7]][0]
    if header[0] & 7 == 2:  # T-35
        fields["target"] = bdf(half(header, 8))
    if header[0] & 7 == 1:  # T-40
        fields["address"] = hex(int.from_bytes(header[8:], "big") & ~3)
    return fields


def completion_fields(header):
    status = header[6] >> 5
    return {"completer": bdf(half(header, 4)), "requester": bdf(half(header, 8)),
            "tag": full_tag(header, header[10]), "status": STATUS.get(status, "?"),
            "bcm": header[6] >> 4 & 1, "byte_count": (half(header, 6) & 0xFFF) or 4096,
            "lower_addr": header[11] & 0x7F}


def decode_tlp(data):
    """T-2: exactly one whole TLP that keeps every rule."""
    tlp = check_tlp(data)
    check(tlp["tc"] == 0 or tlp["type"] not in ("MRdLk", "CplDLk"), "E_TLP_TC")  # T-44
    header = split_tlp(data)[1]
    used = used_bits(tlp_kind(header[0]), tlp, header)
    check(all(byte & ~mask == 0 for byte, mask in zip(header, used)), "E_TLP_RSVD")
    return tlp


def receive_tlp(data):
    """T-43: the TLP that a receiver reads, as it would be sent: reserved bits are 0."""
    tlp = decode_tlp_header(data)
    prefixes, header, rest = split_tlp(data)
    kind = tlp_kind(header[0])
    check(len(rest) >= trailing_bytes(header), "E_TLP_SHORT")
    check(len(rest) <= trailing_bytes(header), "E_TLP_LONG")
    addressed = kind.name in MEMORY + ATOMICS
    message = kind.name in ("Msg", "MsgD")
    used = used_bits(kind, tlp, header)
    if not addressed:
        used[1] &= ~0x01
        used[2] &= ~0x0C
    if not kind.has_data:
        used[2] &= ~0x40
    if kind.name.startswith(("Cfg", "IO")):
        used[1] &= ~0x04
    if message and header[7] not in VENDOR:
        used[2] &= ~0x30
    clean = bytearray(byte & mask for byte, mask in zip(header, used))
    if kind.tlp_class == "completion" and header[6] >> 5 not in STATUS:
        clean[6] = clean[6] & 0x1F | 1 << 5
    if addressed and kind.dw == 4 and not any(header[8:12]):
        del clean[8:12]
        clean[0] &= ~0x20
    bits = [prefix & ~reserved_in_prefix(prefix, tlp) for prefix in prefixes]
    clean = b"".join(prefix.to_bytes(4, "big") for prefix in bits) + bytes(clean) + rest
    check_tlp(clean)
    return clean


def check_tlp(data):
    """One whole TLP that keeps the rules but those of T-6 and T-44."""
    tlp = decode_tlp_header(data)
    prefixes, header, rest = split_tlp(data)
    kind = tlp_kind(header[0])
    check(len(rest) >= trailing_bytes(header), "E_TLP_SHORT")
    check(len(rest) <= trailing_bytes(header), "E_TLP_LONG")
    check_prefixes(kind, tlp, prefixes)
    check_common(kind, tlp)
    if kind.tlp_class == "completion":
        check_completion(kind, tlp)
    elif kind.name in ("Msg", "MsgD"):
        check_message(kind, tlp, header)
    elif kind.name.startswith(("Cfg", "IO")):
        check_simple(tlp)
    else:
        check_address(kind, tlp, header)
    if tlp["td"]:
        tlp["digest"] = f"{int.from_bytes(rest[-4:], 'little'):08x}"  # T-60
    return tlp


def check_prefixes(kind, tlp, prefixes):
    """T-23 to T-25, prefix by prefix."""
    addressed = kind.name in MEMORY + ATOMICS
    pasids = 0
    for prefix in prefixes:
        name = prefix >> 24
        check(name != IDE_PREFIX, "E_TLP_IDE")
        if name == PASID_PREFIX:
            pasids += 1
            check(pasids == 1, "E_TLP_PREFIX_COUNT")
            check(addressed or tlp.get("message_code", 0) in range(1, 6), "E_TLP_PREFIX")
        elif name == TPH_PREFIX:
            check(addressed and (tlp["th"] or prefix & 0x1000), "E_TLP_TH")
        check(prefix & reserved_in_prefix(prefix, tlp) == 0, "E_TLP_RSVD")


def reserved_in_prefix(prefix, tlp):
    """T-24, T-25."""
    if prefix >> 24 == TPH_PREFIX:
        return 0x0FFF if tlp["at"] == 2 else 0xEFFF
    return 0x00C00000 if prefix >> 24 == PASID_PREFIX else 0


def check_common(kind, tlp):
    addressed = kind.name in MEMORY + ATOMICS
    check(not tlp["th"] or addressed, "E_TLP_TH")  # T-12
    check(tlp["at"] == 0 or (addressed and tlp["at"] != 3), "E_TLP_AT")  # T-14
    check(kind.has_data or not tlp["ep"], "E_TLP_RSVD")  # T-11


def check_simple(tlp):
    """I/O and configuration: T-7, T-19."""
    check(tlp["tc"] == 0, "E_TLP_TC")
    check(not tlp["attr"], "E_TLP_ATTR")
    check(tlp["length_dw"] == 1, "E_TLP_LENGTH")
    check(tlp["last_be"] == 0, "E_TLP_BE")


def check_address(kind, tlp, header):
    """Memory requests and atomics."""
    address, length = int(tlp["address"], 16), tlp["length_dw"]
    translation = is_translation(kind, header)
    check(kind.dw == 3 or address >> 32, "E_TLP_ADDR64")  # T-10
    check(kind.name != "DMWr" or length <= 32, "E_TLP_LENGTH")  # T-7
    if kind.name not in ATOMICS:
        check_byte_enables(tlp["first_be"], tlp["last_be"], length, address)
    check(tlp["at"] != 1 or translation, "E_TLP_AT")  # T-14
    if translation:
        check(not tlp["th"], "E_TLP_TH")
        check(tlp["attr"] in ("", "RO"), "E_TLP_ATTR")
        check(length % 2 == 0, "E_TLP_LENGTH")
    if kind.name in ATOMICS:  # T-18
        operand = 2 * length if kind.name == "CAS" else 4 * length
        check(operand in (4, 8) or (kind.name == "CAS" and operand == 16), "E_TLP_OPERAND")
        check(address % operand == 0, "E_TLP_OPERAND")
    elif not translation:
        check(address % 4096 + 4 * length <= 4096, "E_TLP_4K")  # T-15


def check_byte_enables(first, last, length, address):
    """T-16."""
    if length == 1:
        check(last == 0, "E_TLP_BE")
        return
    check(first and last, "E_TLP_BE")
    if length > 2 or address % 8:
        check(first in (15, 14, 12, 8) and last in (15, 7, 3, 1), "E_TLP_BE")


def check_message(kind, tlp, header):
    code, routing = tlp["message_code"], header[0] & 7
    check(code in MESSAGES, "E_TLP_MSG_CODE")  # T-30
    _, wanted, data = MESSAGES[code]
    vendor = code in VENDOR
    check(routing in (0, 2, 3, 4) if vendor else routing == wanted, "E_TLP_MSG_ROUTE")  # T-31
    check(data is None or data == kind.has_data, "E_TLP_MSG_ROUTE")
    if kind.has_data and code in MESSAGE_DATA_DW:  # T-33
        check(tlp["length_dw"] == MESSAGE_DATA_DW[code], "E_TLP_LENGTH")
    check(tlp["tc"] == 0 or vendor or 1 <= code <= 5, "E_TLP_TC")  # T-32
    check(vendor or tlp["attr"] in ("", "IDO"), "E_TLP_ATTR")


def check_completion(kind, tlp):
    check(tlp["status"] in STATUS.values(), "E_TLP_STATUS")  # T-36
    if not kind.has_data:
        return
    check(tlp["status"] == "SC", "E_TLP_STATUS")
    offset, length = tlp["lower_addr"] % 4, tlp["length_dw"]
    need = (offset + tlp["byte_count"] + 3) // 4  # T-37
    check(need <= 1024 and length <= need, "E_TLP_BYTE_COUNT")
    end = tlp["lower_addr"] - offset + 4 * length
    check(length == need or end % 64 == 0, "E_TLP_RCB")  # T-38


def message_bits(kind, header):
    """T-34: the bits of bytes 8..11 and 12..15 that are used."""
    code = header[7]
    if code in VENDOR:
        return (ALL if header[0] & 7 == 2 else 0x0000FFFF), ALL
    if code == 0x53 and kind.has_data:
        return ALL, ALL
    return MESSAGE_BITS.get(code, (0, 0))


def used_bits(kind, tlp, header):
    """The bits of a header that T-6 and what it gathers (T-7, T-9, T-13, T-34) do not reserve."""
    used = bytearray(b"\xff" * len(header))
    used[1] &= ~0x02
    if kind.tlp_class == "posted":
        used[1] &= ~0x88
    if not has_length(kind):
        used[2] &= ~0x03
        used[3] = 0
    if kind.tlp_class == "completion":
        used[11] = 0x7F
    elif kind.name in ("Msg", "MsgD"):
        used[8:] = b"".join(bits.to_bytes(4, "big") for bits in message_bits(kind, header))
    elif kind.name.startswith("Cfg"):
        used[10:12] = b"\x0f\xfc"
    else:
        if kind.name in ATOMICS and not tlp["th"]:
            used[7] = 0
        used[-1] &= 0xFF if tlp["th"] else 0xFD if is_translation(kind, header) else 0xFC
    return used


# ---- TLPs: encoding and CRCs --------------------------------------------------------------------


def encode_tlp(tlp):
    """T-1, T-2: the bytes of a decoded TLP, or Reject where a strict decoder would."""
    kind_byte = first_byte(tlp)
    kind = tlp_kind(kind_byte)
    header = bytearray(4 * kind.dw)
    attr = sum(ATTRS[name] for name in tlp.get("attr", "").split())
    tag = tlp.get("tag", 0)
    check(tag < (256 if kind.tlp_class == "posted" else 1024), "E_TLP_TAG")  # T-9
    header[0] = kind_byte
    header[1] = (tag >> 9 << 7 | tlp.get("tc", 0) << 4 | (tag >> 8 & 1) << 3 | attr >> 2 << 2
                 | tlp.get("th", 0))
    length = tlp["length_dw"] & 0x3FF
    header[2] = (tlp.get("td", 0) << 7 | tlp.get("ep", 0) << 6 | (attr & 3) << 4
                 | tlp.get("at", 0) << 2 | length >> 8)
    header[3] = length & 0xFF
    if kind.tlp_class == "completion":
        put_completion(header, tlp)
    else:
        put_request(kind, header, tlp)
    data = bytes.fromhex(tlp.get("prefixes", "")) + bytes(header) + tlp.get("payload", b"")
    if tlp.get("td"):
        data += int(tlp["digest"], 16).to_bytes(4, "little")
    check_tlp(data)
    return data


def first_byte(tlp):
    for byte, kind in TLP_KINDS.items():
        if (kind.name, kind.dw) == (tlp["type"], tlp["dw"]):
            if kind.name not in ("Msg", "MsgD"):
                return byte
            if ROUTINGS[byte & 7] == tlp["routing"]:
                return byte
    raise Reject("E_TLP_TYPE")


def put_completion(header, tlp):
    status = {name: number for number, name in STATUS.items()}[tlp["status"]]
    header[4:6] = bdf_number(tlp["completer"]).to_bytes(2, "big")
    count = status << 13 | tlp.get("bcm", 0) << 12 | tlp["byte_count"] & 0xFFF
    header[6:8] = count.to_bytes(2, "big")
    header[8:10] = bdf_number(tlp["requester"]).to_bytes(2, "big")
    header[10], header[11] = tlp["tag"] & 0xFF, tlp["lower_addr"]


def put_request(kind, header, tlp):
    header[4:6] = bdf_number(tlp["requester"]).to_bytes(2, "big")
    header[6] = tlp.get("tag", 0) & 0xFF
    header[7] = tlp.get("last_be", 0) << 4 | tlp.get("first_be", 0)
    if kind.name in ("Msg", "MsgD"):
        header[7] = tlp["message_code"]
        header[8:] = bytes.fromhex(tlp["message_dw"])
    elif kind.name.startswith("Cfg"):
        check(tlp["register"] % 4 == 0 and tlp["register"] <= 4092, "E_TLP_REGISTER")  # T-19
        header[8:10] = bdf_number(tlp["target"]).to_bytes(2, "big")
        header[10:12] = tlp["register"].to_bytes(2, "big")
    else:
        address = int(tlp["address"], 16)
        check(address % 4 == 0, "E_TLP_ADDR")  # T-10
        check(kind.dw == 4 or address < 1 << 32, "E_TLP_ADDR64")
        header[8:] = (address | tlp.get("ph", 0)).to_bytes(len(header) - 8, "big")
        if tlp.get("th"):
            header[6 if kind.name == "MWr" else 7] = tlp.get("steering", 0)


def ecrc(data):
    """T-60, T-61: the digest that a TLP should have; its own, if there is one, is left out."""
    prefixes, header, rest = split_tlp(data)
    local = sum(4 for prefix in prefixes if prefix >> 28 == 8)
    header = bytearray(header)
    if header[2] & 0x80:
        rest = rest[:-4]
    header[0] |= 0x01
    header[2] |= 0x40
    end_end = data[local:4 * len(prefixes)]
    return f"{crc32(end_end + bytes(header) + rest):08x}"


def lcrc(data, sequence):
    """T-62: the four bytes as sent."""
    return crc32(sequence.to_bytes(2, "big") + data).to_bytes(4, "little")


# ---- Command line -------------------------------------------------------------------------------


def to_json(value):
    return json.dumps(value, indent=2, default=lambda data: data.hex())


def main(arguments):
    decoders = {"frame": decode_frame, "tlp": decode_tlp}
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
