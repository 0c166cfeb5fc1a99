"""A PNG of 8 bits a colour without an alpha channel, as rows of red, green, blue.  Standard library
only."""
# SPDX-License-Identifier: MIT
import struct
import zlib


def paeth(a, b, c):
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def unfilter(kind, line, before):
    """One row in place (PNG specification, 9.2)."""
    if kind == 2:
        line[:] = bytes((x + b) & 255 for x, b in zip(line, before))
    elif kind:
        for i, x in enumerate(line):
            a = line[i - 3] if i >= 3 else 0
            if kind == 1:
                x += a
            elif kind == 3:
                x += (a + before[i]) // 2
            else:
                x += paeth(a, before[i], before[i - 3] if i >= 3 else 0)
            line[i] = x & 255


def chunks(data):
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG")
    at = 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        crc = struct.unpack_from(">I", data, at + 8 + length)[0]
        if crc != zlib.crc32(kind + body):
            raise ValueError("damaged chunk")
        yield kind, body
        at += 12 + length


def read(path):
    """Width, height, rows."""
    with open(path, "rb") as file:
        parts = list(chunks(file.read()))
    width, height, depth, colour, _, _, laced = struct.unpack(">IIBBBBB", parts[0][1])
    if (depth, colour, laced) != (8, 2, 0):
        raise ValueError("not the kind of PNG that is expected")
    raw = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    rows, size = [], width * 3
    before = bytes(size)
    for y in range(height):
        line = bytearray(raw[y * (size + 1) + 1 : (y + 1) * (size + 1)])
        unfilter(raw[y * (size + 1)], line, before)
        rows.append(bytes(line))
        before = line
    return width, height, rows
