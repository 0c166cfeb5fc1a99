"""The text form of the vector files (spec/vectors/README.md) and of frames in it."""

HEX_NUMBERS = ("channel", "packet", "sack", "epoch", "source", "destination", "cookie", "base",
               "length", "suites", "tlp_formats", "event_flags", "crc", "type")
BYTES = ("data", "header", "opaque", "rest")


def read(path):
    """The vectors of a file, each a dict of text; hex lines are joined."""
    vectors = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            key, separator, value = line.partition(" = ")
            if not separator:
                raise ValueError(f"{path}: not 'key = value': {line}")
            if key == "name":
                vectors.append({})
            vector = vectors[-1]
            if key == "hex" and key in vector:
                vector[key] += " " + value
            elif key in vector:
                raise ValueError(f"{path}: {vector['name']}: {key} twice")
            else:
                vector[key] = value
    return vectors


def from_hex(text):
    """Bytes of blank-separated tokens: hexadecimal digits, or xx*N."""
    out = b""
    for token in text.split():
        digits, star, count = token.partition("*")
        out += bytes.fromhex(digits) * (int(count) if star else 1)
    return out


def to_hex(data):
    """Tokens of a dword each; four or more dwords of one byte become xx*N."""
    tokens, start = [], 0
    while start < len(data):
        end = start
        while data[end:end + 4] == data[start:start + 1] * 4:
            end += 4
        run = end - start >= 16
        tokens.append(f"{data[start]:02x}*{end - start}" if run else data[start:start + 4].hex())
        start = end if run else start + 4
    return tokens


def value_to_text(name, value):
    if isinstance(value, bytes):
        return " ".join(to_hex(value))
    if name == "limits":
        return " ".join(str(units) for units in value)
    if name == "prefixes":
        return " ".join(f"{prefix:08x}" for prefix in value)
    if name in HEX_NUMBERS and isinstance(value, int):
        return hex(value)
    return str(value)


def value_from_text(name, text):
    if name in BYTES:
        return from_hex(text)
    if name == "limits":
        return [int(units) for units in text.split()]
    if name == "prefixes":
        return [int(prefix, 16) for prefix in text.split()]
    return int(text, 0) if text[:1].isdigit() else text


# Left out of the text when 0 or empty.
BY_DEFAULT = ("flags", "rest", "prefixes", "key_phase", "ignorable", "path")


def frame_to_fields(frame):
    """Key and text of everything in a decoded frame; what is 0 or empty by default is left out."""
    fields = {}

    def put(prefix, values):
        for name, value in values.items():
            if value or name not in BY_DEFAULT:
                fields[prefix + name] = value_to_text(name, value)

    put("", {name: value for name, value in frame.items() if name not in ("offer", "records")})
    put("offer.", frame.get("offer", {}))
    for number, record in enumerate(frame.get("records", ()), 1):
        fields[f"r{number}"] = record["record"]
        put(f"r{number}.", {k: v for k, v in record.items() if k != "record"})
    return fields


def frame_from_fields(fields):
    """The frame a vector states: what decode_frame must return, and encode_frame may take."""
    frame = {"version": 1, "path": 0, "key_phase": 0, "ignorable": 0}
    kind = fields["kind"]
    if kind in ("open", "accept"):
        frame["offer"] = {"flags": 0, "rest": b""}
    elif kind in ("reset", "close", "probe"):
        frame["rest"] = b""
        frame.update({} if kind == "reset" else {"flags": 0})
    elif kind == "data":
        frame["records"] = []
    for key, text in fields.items():
        group, dot, name = key.partition(".")
        if key in ABOUT:
            continue
        if dot and group == "offer":
            frame["offer"][name] = value_from_text(name, text)
        elif dot:
            frame["records"][int(group[1:]) - 1][name] = value_from_text(name, text)
        elif group[0] == "r" and group[1:].isdigit():
            record = {"record": text, "flags": 0}
            record.update({"prefixes": []} if text == "tlp" else {})
            frame["records"].append(record)
        else:
            frame[key] = value_from_text(key, text)
    return frame


# Keys of a vector that are no fields of its frame.
ABOUT = ("name", "note", "hex", "reject", "limit", "after", "delivers", "stream", "loose")
