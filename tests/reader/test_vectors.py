#!/usr/bin/env python3
"""Runs dxpu_reader.py over spec/vectors: prints ok, not ok or skip for each, exits 1 on a failure."""

import pathlib
import sys

import dxpu_reader as dx
import vectors

ROOT = pathlib.Path(__file__).resolve().parents[2] / "spec" / "vectors"


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
    expect("decoded and encoded", dx.encode_frame(frame), data)
    expect("encoded from the stated fields", dx.encode_frame(stated), data)
    if frame["kind"] == "data":
        check_stream(vector, by_name)


# ---- All ----------------------------------------------------------------------------------------


def damaged(vector):
    """Copies of a vector that must fail: its last bit flipped, a byte added, its outcome changed."""
    tokens = vector["hex"].split()
    if tokens and "*" not in tokens[-1]:
        flipped = f"{int(tokens[-1], 16) ^ 1:0{len(tokens[-1])}x}"
        yield "bit", {**vector, "hex": " ".join(tokens[:-1] + [flipped])}
    yield "byte", {**vector, "hex": vector["hex"] + " 00"}


def controls(checker, vector, by_name):
    """A check that never fails shows nothing: damage what is accepted and see the check fail."""
    for what, copy in damaged(vector):
        try:
            checker(copy, by_name)
        except (Wrong, dx.Reject):
            continue
        raise Wrong(f"control: a damaged {what} was not seen")


def accepts(vector):
    return vector.get("strict") == "OK" or ("kind" in vector and "reject" not in vector)


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
              for vector in all_vectors if accepts(vector)]
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


def main():
    failures = run("frames.txt", check_frame)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
