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


# What tests/guest/shade.c draws: corners by what is left and above of them; the ground.
SHADED = 640, 480
CORNERS, GROUND = ((320, 40), (600, 440), (40, 440)), bytes((0x18, 0x20, 0x30))


def weights(x, y):
    """How much of each corner is in a point; one is below 0: it is outside."""
    a, b, c = CORNERS
    whole = (b[1] - c[1]) * (a[0] - c[0]) + (c[0] - b[0]) * (a[1] - c[1])
    first = ((b[1] - c[1]) * (x - c[0]) + (c[0] - b[0]) * (y - c[1])) / whole
    second = ((c[1] - a[1]) * (x - c[0]) + (a[0] - c[0]) * (y - c[1])) / whole
    return first, second, 1 - first - second


def wrong_shades(width, height, rows):
    """How many pixels are not as shade.c draws them; those on an edge may be either.  A colour may
    be rounded either way."""
    if (width, height) != SHADED:
        return width * height or 1
    wrong = 0
    for y, row in enumerate(rows):
        for x in range(width):
            got, parts = row[x * 3:x * 3 + 3], weights(x + 0.5, y + 0.5)
            if min(map(abs, parts)) < 0.004:
                continue
            if min(parts) < 0:
                wrong += got != GROUND
            else:
                wrong += any(abs(a - 255 * b) > 2 for a, b in zip(got, parts))
    return wrong
