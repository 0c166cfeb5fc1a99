#!/usr/bin/env python3
"""Two decoders, the C one and dxpu_reader.py, over what the fuzzers start from (fuzz/corpus/tlp and
frame), and over copies with a bit changed: the same verdict, and the same fields."""
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

import dxpu_reader as dx

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "fuzz"))
import seeds  # noqa: E402
CHANGED = 30  # copies of each seed


def decode_by_c(lines):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "decode")
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O1",
                        "-I", str(ROOT), "-o", program,
                        str(ROOT / "tests/core/reader/decode.c")], check=True)
        done = subprocess.run([program], input="\n".join(lines) + "\n", stdout=subprocess.PIPE,
                              text=True, check=True)
    return [dict(part.split("=", 1) for part in line.split()) for line in done.stdout.splitlines()]


def verdict(decode, data):
    """What decode makes of it, and "OK" or the name of the error as C writes it."""
    try:
        return decode(data), "OK"
    except dx.Reject as error:
        reason = error.reason
        return None, reason if reason.startswith("E_") else "E_" + reason.upper()


def tlp_fields(tlp):
    out = {"dw": tlp["dw"], "class": dx.CLASSES.index(tlp["class"]), "payload": len(tlp["payload"])}
    for name in ("tc", "th", "td", "ep", "at", "tag", "byte_count", "lower_addr", "bcm"):
        if name in tlp and (name != "bcm" or tlp["class"] == "completion"):
            out[name] = tlp[name]
    for name in ("requester", "completer"):
        if name in tlp:
            out[name] = dx.bdf_number(tlp[name])
    return out


def by_reader(what, data):
    if what == "tlp":
        _, strict = verdict(dx.decode_tlp, data)
        clean, receive = verdict(dx.receive_tlp, data)
        tlp, header = verdict(dx.decode_tlp_header, data)
        out = {"strict": strict, "header": header, "receive": receive}
        if clean is not None:
            out["clean"] = f"{dx.crc32(clean):08x}"
        return {**out, **(tlp_fields(tlp) if tlp else {})}
    frame, reason = verdict(dx.decode_frame, data)
    out = {"frame": reason}
    if frame:
        out.update(channel=frame["channel"], packet=frame["packet"])
        if frame["kind"] in dx.SEQUENCED:
            out.update(sequence=frame["sequence"], ack=frame["ack"], sack=frame["sack"])
    return out


def inputs():
    """Kind and bytes of every seed, and of its copies; the CRC of frames is made right."""
    chance = random.Random(1)
    for what in ("tlp", "frame"):
        for data in seeds.seeds(what).values():
            if what == "frame":  # the first two bytes are the fuzz target's
                if len(data) < 3 or data[0] & 3 or data[1] % 33 != dx.TRAILER:
                    continue
                data = data[2:]
            yield what, data
            for _ in range(CHANGED if len(data) > dx.TRAILER else 0):
                other = bytearray(data)
                other[chance.randrange(len(other))] ^= 1 << chance.randrange(8)
                if what == "frame":
                    other[-4:] = dx.crc32(bytes(other[:-4])).to_bytes(4, "big")
                yield what, bytes(other)


def differences(tests, answers):
    """What the two say differently, as lines."""
    for (what, data), answer in zip(tests, answers):
        for name, value in by_reader(what, data).items():
            if answer.get(name) != str(value):
                yield f"{what} {data.hex()}: {name}: C {answer.get(name)}, reader {value}"


def main():
    tests = list(inputs())
    answers = decode_by_c([f"{what} {data.hex()}" for what, data in tests])
    wrong = list(differences(tests, answers))
    good = sum("OK" in answer.values() for answer in answers)
    print(f"  {len(tests)} inputs, {good} of them good")
    print("\n".join(wrong[:20]))
    enough = len(answers) == len(tests) and good > 100 and len(tests) - good > 100
    print("ok" if enough and not wrong else "not ok", "corpora_two_decoders_agree")
    answers[0] = {name: value + "1" for name, value in answers[0].items()}
    control = len(list(differences(tests, answers))) > len(wrong)
    print("ok" if control else "not ok", "corpora_control")
    return 0 if enough and not wrong and control else 1


if __name__ == "__main__":
    sys.exit(main())
