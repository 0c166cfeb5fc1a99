#!/usr/bin/env python3
"""Runs dxpu_reader.py over spec/vectors: ok, not ok or skip for each; exits 1 on a failure."""

import contextlib
import io
import json
import pathlib
import sys

import dxpu_reader as dx
import make_frames
import vectors

ROOT = pathlib.Path(__file__).resolve().parents[3] / "spec" / "vectors"


class Wrong(Exception):
    """The reader and the vector disagree."""


def expect(what, got, stated):
    if got != stated:
        raise Wrong(f"{what}: got {got!r}, stated {stated!r}")


def outcome(decode, *arguments):
    """What decode returns and "OK", or None and the reason."""
    try:
        return decode(*arguments), "OK"
    except dx.Reject as error:
        return None, error.reason


# ---- frames.txt ---------------------------------------------------------------------------------


def chain(vector, by_name):
    """The data frames of a stream up to this vector."""
    before = chain(by_name[vector["after"]], by_name) if "after" in vector else []
    return before + [dx.decode_frame(vectors.from_hex(vector["hex"]))]


def check_stream(vector, by_name):
    frames, stream = chain(vector, by_name), dx.Stream()
    for number, frame in enumerate(frames[:-1]):
        stream.feed(frame)
        expect("sequence after", frames[number + 1]["sequence"], frame["sequence"] + 1)
    done, reason = outcome(stream.feed, frames[-1])
    expect("stream", reason, vector.get("stream", "OK"))
    if reason == "OK":
        expect("delivers", len(done), int(vector["delivers"]))


def check_frame(vector, by_name):
    data = vectors.from_hex(vector["hex"])
    frame, reason = outcome(dx.decode_frame, data, int(vector.get("limit", dx.FRAME_MAX)))
    expect("outcome", reason, vector.get("reject", "OK"))
    if reason != "OK":
        return
    stated = vectors.frame_from_fields(vector)
    expect("fields", frame, stated)
    if "loose" not in vector:
        expect("decoded and encoded", dx.encode_frame(frame), data)
        expect("encoded from the stated fields", dx.encode_frame(stated), data)
    if frame["kind"] == "data":
        check_stream(vector, by_name)


# ---- tlp.txt, aer.txt ---------------------------------------------------------------------------

# Absent in a vector that gives fields, these are 0 or empty.
BY_DEFAULT = ("tc", "attr", "th", "td", "ep", "at", "ph", "steering", "bcm", "prefixes")
NOT_FIELDS = ("name", "note", "source", "reported", "known", "hex", "header", "strict", "received",
              "receive", "ecrc", "lcrc", "lcrc_sequence")


def expect_fields(what, tlp, vector):
    stated = {key: text for key, text in vector.items() if key not in NOT_FIELDS}
    if not stated:
        return
    for key in BY_DEFAULT:
        stated.setdefault(key, "" if key in ("attr", "prefixes") else "0")
    for key, text in stated.items():
        if key == "digest" and key not in tlp:  # the header-only decoder has none
            continue
        expect(f"{what} {key}", str(tlp.get(key)), text)


def check_tlp(vector, _):
    data = vectors.from_hex(vector["hex"])
    tlp, reason = outcome(dx.decode_tlp_header, data)
    expect("header", reason, vector.get("header", "OK"))
    if reason == "OK":
        expect_fields("header", tlp, vector)
    if "strict" in vector:
        tlp, reason = outcome(dx.decode_tlp, data)
        expect("strict", reason, vector["strict"])
        if reason == "OK":
            expect_fields("strict", tlp, vector)
            expect("encoded", dx.encode_tlp(tlp), data)
        clean, reason = outcome(dx.receive_tlp, data)
        good = "received" in vector or vector["strict"] == "OK"
        expect("receive", reason, "OK" if good else vector.get("receive", vector["strict"]))
        if good:
            expect("received", clean, vectors.from_hex(vector.get("received", vector["hex"])))
    if "ecrc" in vector:
        expect("ecrc", tlp["digest"] == dx.ecrc(data), vector["ecrc"] == "good")
    if "lcrc" in vector:
        expect("lcrc", dx.lcrc(data, int(vector["lcrc_sequence"])).hex(), vector["lcrc"])


# ---- All ----------------------------------------------------------------------------------------


def damaged(vector):
    """Copies of a vector that must fail, and what was done to each."""
    for key in ("reject", "header", "strict", "receive"):
        if key in vector:
            yield key, {**vector, key: vector[key] + "X"}
    if "received" in vector:
        yield "received", {**vector, "received": vector["received"][:-1] + "f"}
    if "strict" not in vector and "kind" not in vector:
        return
    if vector.get("strict", "OK") != "OK":
        return
    yield "byte added", {**vector, "hex": vector["hex"] + " 00"}
    first = int(vector["hex"][:2], 16) ^ 0x40  # the magic, or Fmt
    yield "first byte", {**vector, "hex": f"{first:02x}" + vector["hex"][2:]}
    last = vector["hex"].split()[-1]
    if "kind" in vector:
        flipped = f"{int(last, 16) ^ 1:0{len(last)}x}"
        yield "last bit", {**vector, "hex": vector["hex"][:-len(last)] + flipped}
    field = list(vector)[-1]
    if field not in NOT_FIELDS:
        yield field, {**vector, field: vector[field] + "1"}


def controls(checker, vector, by_name):
    """A check that never fails shows nothing: damage the vector and see the check fail."""
    for what, copy in damaged(vector):
        try:
            checker(copy, by_name)
        except (Wrong, dx.Reject, ValueError):
            continue
        raise Wrong(f"damage was not seen: {what}")


def run(file, checker):
    """Failures in one file."""
    path = ROOT / file
    if not path.exists():
        print(f"skip {file} no such file")
        return 0
    failures = 0
    all_vectors = vectors.read(path)
    by_name = {vector["name"]: vector for vector in all_vectors}
    tests = [(vector["name"], checker, vector) for vector in all_vectors]
    tests += [("control " + vector["name"], lambda v, names: controls(checker, v, names), vector)
              for vector in all_vectors]
    if len(by_name) != len(all_vectors) or not all_vectors:
        print(f"not ok {file}: no vectors, or a name twice")
        failures += 1
    for name, test, vector in tests:
        try:
            test(vector, by_name)
            print(f"ok {file}: {name}")
        except (Wrong, dx.Reject, KeyError, ValueError) as error:
            print(f"not ok {file}: {name}: {type(error).__name__} {error}")
            failures += 1
    return failures


def check_made():
    """frames.txt is what make_frames.py makes."""
    if (ROOT / "frames.txt").read_text(encoding="utf-8") == make_frames.text():
        print("ok frames.txt is what make_frames.py makes")
        return 0
    print("not ok frames.txt is what make_frames.py makes")
    return 1


def check_command(what, text, key, value, status):
    """The command line prints JSON with this key, and exits with this status."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        got = dx.main([what, *text.split()])
    right = got == status and json.loads(printed.getvalue()).get(key) == value
    print("ok" if right else "not ok", "command line:", what, text)
    return 0 if right else 1


def main():
    failures = check_made() + run("frames.txt", check_frame)
    failures += run("tlp.txt", check_tlp)
    failures += run("aer.txt", check_tlp)
    failures += check_command("tlp", "00000001 0100030f f800001c", "address", "0xf800001c", 0)
    failures += check_command("tlp", "00000001 0100030f", "reject", "E_TLP_SHORT", 1)
    ack = dx.encode_frame({**make_frames.HEAD, "kind": "ack"}).hex()
    failures += check_command("frame", ack, "sequence", make_frames.HEAD["sequence"], 0)
    failures += check_command("frame", ack[:-2] + "00", "reject", "crc", 1)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
