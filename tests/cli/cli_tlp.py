#!/usr/bin/env python3
"""The command `dxpu tlp`: logs that real machines wrote, forms of input, errors, round trips.

Environment: DXPU_BIN (default build/dxpu), DXPU_SHARED (default ../shared)."""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
SHARED = os.environ.get("DXPU_SHARED", os.path.join(ROOT, "..", "shared"))
failed = 0


def report(name, problem):
    global failed
    failed += bool(problem)
    print(("not ok " if problem else "ok ") + name + (" # " + str(problem) if problem else ""))


def run(*words, text=""):
    data = text if isinstance(text, bytes) else text.encode()
    p = subprocess.run([BIN, *words], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def decode(*words, text=""):
    """Exit status, objects, complaints of `dxpu tlp decode --json`."""
    status, out, err = run("tlp", "decode", "--json", *words, text=text)
    return status, [json.loads(line) for line in out.splitlines()], err


def difference(got, want):
    """The first key of `want` that `got` has otherwise; None in `want`: the key must be absent."""
    for key, value in want.items():
        if got.get(key) != value or type(got.get(key)) is not type(value):
            return "%s is %r, not %r" % (key, got.get(key), value)
    return None


# ---- what is known of real logs: the notes of their sources, by hand ----

def memory_write(dw, requester, address, length_dw, **more):
    return dict(type="MWr", dw=dw, requester=requester, address=address, length_dw=length_dw,
                **{"class": "posted", "routing": "address", **more})


def config_read(target, register=0, **more):
    return dict(type="CfgRd0", dw=3, target=target, register=register, length_dw=1,
                **{"class": "non-posted", "routing": "id", **more})


def message(name, code, requester, routing="local", **more):
    return dict(type="Msg", dw=4, message=name, message_code=code, requester=requester,
                routing=routing, **{"class": "posted", **more})


def completion(kind, status, completer, requester, byte_count, **more):
    return dict(type=kind, dw=3, status=status, completer=completer, requester=requester,
                byte_count=byte_count, routing="id", **{"class": "completion", **more})


KNOWN = {
    "60000001 0100000f 000000ff ffffe000": memory_write(4, "01:00.0", "0xffffffe000", 1),
    "34000000 70000010 00000000 88468846": message("LTR", 0x10, "70:00.0",
                                                   message_dw=[0, 0x88468846]),
    "40000001 0000030f 90028090 00000000": memory_write(3, "00:00.0", "0x90028090", 1, tag=3),
    "4a000001 01000004 00000000 00000000": completion("CplD", "SC", "01:00.0", "00:00.0", 4,
                                                      length_dw=1, tag=0),
    "6000007a ab0000ff 00000001 629d4318": memory_write(4, "ab:00.0", "0x1629d4318", 122),
    "60000080 ab0000ff 00000001 d1fd0000": memory_write(4, "ab:00.0", "0x1d1fd0000", 128),
    "04000001 00200a03 05010000 00050100": config_read("05:00.1", requester="00:04.0", tag=0x0a,
                                                       first_be=3, last_be=0),
    "34000000 0a000052 00000000 00000000": message("PTM_Request", 0x52, "0a:00.0"),
    "34000000 08000052 00000000 00000000": message("PTM_Request", 0x52, "08:00.0"),
    "34000000 04001f10 00000000 88c888c8": message("LTR", 0x10, "04:00.0", tag=0x1f),
    "40000010 870000ff 27af9700 00000000": memory_write(3, "87:00.0", "0x27af9700", 16),
    "0a412800 00192080 60000004 00000004": completion("Cpl", "UR", "00:03.1", "60:00.0", 0x80,
                                                      tag=0, lower_addr=4, tc=4, length_dw=None),
    "00000001 0000000f 6006aabc 00000000": dict(type="MRd", dw=3, address="0x6006aabc",
                                                length_dw=1),
    "40000001 0000000c 8808000c 00000000": memory_write(3, "00:00.0", "0x8808000c", 1,
                                                        first_be=12),
    "40008001 00000a0f 96a121a0 00000000": memory_write(3, "00:00.0", "0x96a121a0", 1, td=True,
                                                        tag=0x0a),
    "40000001 0000000f 95e7f000 00000000": memory_write(3, "00:00.0", "0x95e7f000", 1, tag=0,
                                                        first_be=15, last_be=0),
    "40000001 0000000f 4b200024 1f001f00": memory_write(3, "00:00.0", "0x4b200024", 1,
                                                        payload=None),
    "ffffffff ffffffff ffffffff ffffffff": dict(error="all-ones", type=None),
    "04000001 0000220f 01070000 9eece789": config_read("01:00.7", tag=0x22, payload=None),
    "60009001 4000000f 00000280 4047605c": memory_write(4, "40:00.0", "0x2804047605c", 1, td=True,
                                                        attr=["NS"]),
    "04000001 0000200f 07070000 b8cdf5fd": config_read("07:00.7", tag=0x20),
    "40001001 0000000f 8020000c 8020000c": memory_write(3, "00:00.0", "0x8020000c", 1,
                                                        attr=["NS"]),
    "40008001 3100000f fee00db8 00000000": memory_write(3, "31:00.0", "0xfee00db8", 1, td=True),
    "4a000001 00000004 00000000 c3141579": completion("CplD", "SC", "00:00.0", "00:00.0", 4,
                                                      length_dw=1, payload=None),
    "4a000040 00130200 02000900 01000000": completion("CplD", "SC", "00:02.3", "02:00.0", 512,
                                                      length_dw=64, tag=9),
    "05000001 0000200f 4d08004d 00000000": dict(type="CfgRd1", target="4d:01.0", tag=0x20,
                                                register=0x4c),
    "00000001 0000030f f800001c 4397938e": dict(type="MRd", dw=3, address="0xf800001c", tag=3),
    "34000000 03000010 00000000 80008000": message("LTR", 0x10, "03:00.0",
                                                   message_dw=[0, 0x80008000]),
    "04000001 00000701 02010034 00000000": config_read("02:00.1", 0x34, tag=7, first_be=1),
    "40000001 0000000f fec30000 00000000": memory_write(3, "00:00.0", "0xfec30000", 1),
    "04000001 0000000f 03070000 9e40a1ac": config_read("03:00.7"),
    "04000001 0000000f 01010000 85a9d217": config_read("01:00.1"),
    "40001001 0000000f fd600010 00000000": memory_write(3, "00:00.0", "0xfd600010", 1,
                                                        attr=["NS"]),
    "33000000 00000019 00000000 00000000": message("PME_Turn_Off", 0x19, "00:00.0", "broadcast"),
    "4a000020 00000080 06000f00 00000000": completion("CplD", "SC", "00:00.0", "06:00.0", 0x80,
                                                      length_dw=32, tag=0x0f),
    "00000020 060099ff 00001c80 00000000": dict(type="MRd", requester="06:00.0", length_dw=32,
                                                tag=0x99, address="0x1c80", first_be=15,
                                                last_be=15),
}


def known(name, logs):
    for i, log in enumerate(logs, 1):
        if log not in KNOWN:
            report("%s_%02d" % (name, i), "nothing is known of " + log)
            continue
        status, objects, _ = decode(*log.split())
        problem = len(objects) != 1 or difference(objects[0], KNOWN[log])
        if not problem and status != (1 if "error" in KNOWN[log] else 0):
            problem = "exit status %d" % status
        report("%s_%02d" % (name, i), problem)


def vectors(file):
    """The vectors of one file as dictionaries; bytes under "bytes"."""
    found = []
    with open(os.path.join(ROOT, "spec", "vectors", file), encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            key, _, value = line.partition(" = ")
            key = key.rstrip(" =")
            if key == "name":
                found.append({"bytes": b""})
            if key == "hex":
                for token in value.split():
                    byte, star, count = token.partition("*")
                    found[-1]["bytes"] += bytes.fromhex(byte) * (int(count) if star else 1)
            else:
                found[-1][key] = value
    return found


def check_known():
    logs = [" ".join(v["bytes"].hex()[i:i + 8] for i in range(0, 32, 8))
            for v in vectors("aer.txt")]
    known("known_vector", logs)
    report("known_vectors_all_there", sorted(logs) != sorted(KNOWN))
    shared = os.path.join(SHARED, "aer_tlp.tsv")
    if not os.path.exists(shared):
        print("skip known_shared no aer_tlp.tsv in DXPU_SHARED or ../shared")
        return
    with open(shared, encoding="utf-8") as rows:
        known("known_shared", [" ".join(r.split("\t")[:4]) for r in rows if r[0] != "#"])
    # the control: a wrong fact is seen
    _, objects, _ = decode("40000001", "0000000f", "95e7f000", "00000000")
    report("known_control", not difference(objects[0], {"address": "0x95e7f004"}))


# ---- spec/vectors ----

NUMBERS = ("dw length_dw tc at ph steering tag first_be last_be byte_count lower_addr register "
           "message_code").split()
FLAGS = "th td ep bcm".split()


def expected(v):
    """The keys that a vector's fields lead to."""
    want = {}
    for key, value in v.items():
        if key in NUMBERS:
            want[key] = int(value)
        elif key in FLAGS:
            want[key] = value == "1"
        elif key == "attr":
            want[key] = value.split()
        elif key == "message_dw":
            want[key] = [int(value[:8], 16), int(value[8:], 16)]
        elif key in "type class routing status message requester completer target address".split():
            want[key] = value
    if want.get("length_dw") == 0:
        want["length_dw"] = None
    if want.get("th"):  # the steering tag is in their place
        for key in ("tag",) if v.get("type") == "MWr" else ("first_be", "last_be"):
            if key in want:
                want[key] = None
    return want


def kebab(error):
    return error.replace("E_TLP_", "").lower().replace("_", "-")


def compare_vector(v, outcome, got, whole):
    if outcome != "OK":
        return difference(got, {"error": kebab(outcome), "type": None})
    problem = difference(got, expected(v))
    prefixes = v.get("prefixes", "").split()
    if not problem and "type" in v and [p["hex"] for p in got["prefixes"]] != prefixes:
        problem = "prefixes are %r" % got["prefixes"]
    if not problem and whole and "digest" in v and got.get("digest") != int(v["digest"], 16):
        problem = "digest is %r" % got.get("digest")
    return problem


def check_vectors():
    usable = [v for v in vectors("tlp.txt") if len(v["bytes"]) >= 4]
    lines = "".join(v["bytes"].hex() + "\n" for v in usable)
    for mode, option in (("header", []), ("strict", ["--strict"])):
        _, objects, _ = decode(*option, text=lines)
        report("vectors_%s_count" % mode, len(objects) != len(usable))
        for v, got in zip(usable, objects):
            outcome = v.get(mode, "OK" if mode == "header" else None)
            if outcome == "OK" and mode == "strict" and v.get("ecrc") == "bad":
                outcome = "E_TLP_ECRC"
            if outcome:
                report("vector_%s_%s" % (mode, v["name"]),
                       compare_vector(v, outcome, got, mode == "strict"))


def check_identity():
    good = [v["bytes"].hex() for v in vectors("tlp.txt")
            if v.get("strict") == "OK" and v.get("ecrc") != "bad"]
    status, out, err = run("tlp", "decode", "--strict", "--json", text="\n".join(good))
    report("identity_decode", status or err)
    for form, option in (("dwords", []), ("bytes", ["--bytes"])):
        status, back, err = run("tlp", "encode", *option, text=out)
        back = [line.replace(" ", "") for line in back.splitlines()]
        wrong = [a for a, b in zip(good, back) if a != b]
        report("identity_" + form, status or err or wrong or len(back) != len(good))
    status, back, _ = run("tlp", "encode", text=out.replace('"tag":1,', '"tag":2,'))
    report("identity_control", back.replace(" ", "").split() == good)


# ---- forms of input ----

DWORDS = "04000001 0000220f 01070000 9eece789"
BYTES = "04 00 00 01 00 00 22 0f 01 07 00 00 9e ec e7 89"
CFG = dict(type="CfgRd0", target="01:00.7", tag=0x22)
ZERO = " 0x00000000"
FORMS = {
    "dwords": DWORDS,
    "upper_case": DWORDS.upper(),
    "hex_prefix": " ".join("0x" + d for d in DWORDS.split()),
    "hex_prefix_upper": " ".join("0X" + d.upper() for d in DWORDS.split()),
    "commas": DWORDS.replace(" ", ", "),
    "three_dwords": DWORDS[:26],
    "tabs": "\t" + DWORDS.replace(" ", "\t") + "\t",
    "bytes": BYTES,
    "bytes_upper": BYTES.upper(),
    "bytes_hex_prefix": ", ".join("0x" + b for b in BYTES.split()),
    "bytes_colons": BYTES.replace(" ", ":"),
    "bytes_dashes": BYTES.replace(" ", "-"),
    "bytes_12": BYTES[:35],
    "one_string": DWORDS.replace(" ", ""),
    "one_string_hex_prefix": "0x" + DWORDS.replace(" ", ""),
    "one_string_12": DWORDS.replace(" ", "")[:24],
    "words": "0400 0001 0000 220f 0107 0000 9eec e789",
    "xxd": "00000000: 0400 0001 0000 220f 0107 0000 9eec e789  ......\"......... ",
    "tcpdump": "\t0x0000:  0400 0001 0000 220f 0107 0000 9eec e789  ......\".........",
    "hexdump": "00000000  04 00 00 01 00 00 22 0f  01 07 00 00 9e ec e7 89  |......\".........|",
    "offset_4": "0000    04 00 00 01 00 00 22 0f  01 07 00 00   ......\".....",
    "kernel": "pcieport 0000:00:1c.5:   TLP Header: " + DWORDS,
    "kernel_time": "[12345.678901] pcieport 0000:00:1c.5: AER:   TLP Header: " + DWORDS,
    "kernel_host": "Aug 29 15:04:05 host-1 kernel: pcieport 0000:00:1c.5:   TLP Header: " + DWORDS,
    "kernel_new": "[    7.000001] nvme 0000:01:00.0:   TLP Header: 0x04000001 0x0000220f "
                  "0x01070000 0x9eece789",
    "cper": "{1}[Hardware Error]:   TLP Header: " + DWORDS,
    "trace": "aer_event: 0000:01:00.0 PCIe Bus Error: severity=Corrected, Bad TLP "
             "TLP Header={0x4000001,0x220f,0x1070000,0x9eece789}",
    "lspci": "\t\tHeaderLog: " + DWORDS,
    "header_label": "Header: " + DWORDS,
    "header_log_label": "  Header Log: " + DWORDS,
    "quoted_mail": "> > " + DWORDS,
    "fourteen_dwords": "TLP Header: 0x04000001 0x0000220f 0x01070000" + 11 * ZERO,
    "unused_prefixes": "TLP Header: " + DWORDS + " E-E Prefixes:" + 4 * ZERO,
    "carriage_return": DWORDS + "\r",
    "no_utf8": b"\xff\xfe " + DWORDS.encode(),
}

NOT_TLPS = {
    "empty": "",
    "words": "nothing here",
    "time_and_address": "[12345.678901] nvme 0000:01:00.0: BAR 0: 0xf8000000-0xf8003fff",
    "aer_status": "pcieport 0000:00:1c.5:   device [8086:a115] error status/mask=00100000/00010000",
    "config_dump": "10: 04 00 00 00 00 00 00 00 00 00 00 00 00 20 a1 00",
    "config_dump_first": "00: 86 80 10 a1 07 04 10 00 31 00 04 06 10 00 81 00",
    "later_row": "00000010: 0400 0001 0000 220f 0107 0000 9eec e789  ......\"......... ",
    "config_dump_ext": "100: 01 00 02 14 00 00 00 00 00 00 10 00 30 20 46 00",
    "oops_code": "Code: 48 8b 05 ff 00 00 00 4a 00 00 01 48 89 e5 5d c3 90 90 90",
    "stack_dump": "bfc0: c0008000 00000000 00000000 c0123456 00000010 60000013 00000000 00000001",
    "mac": "igb 0000:01:00.0: eth0: (PCIe:5.0Gb/s:Width x4) 00:1b:21:aa:bb:cc",
    "date": "2022-12-26 15:30:48",
    "ids": "01:00.0 Non-Volatile memory controller [0108]: Phison [1987:5016]",
    "other_text": "see " + DWORDS + " (from the report)",
    "eeh": "EEH: PCI-E AER 00: 18820001 00000000 00000000 00062030",
    "eeh_log": "[   98.765432] EEH: PCI-E 10: 40000001 0000000f 95e7f000 00000000",
    "megaraid": "megaraid_sas 0000:03:00.0: Frame addr :0x1234: 40000001 0000000f 95e7f000 "
                "00000000",
    "mlx5_cqe": "[12345.678901] 00000000 00008813 0a0002f8 0013c9d2",
    "mlx5_wc": "[12345.678901] 00000030: 00 00 00 00 00 00 88 13 08 00 0b 4d 00 8d a3 d2",
    "prefix_log": "TLP Prefix Log: 0x91000001 0x00000000 0x00000000 0x00000000",
}


def check_forms():
    for name, line in FORMS.items():
        status, objects, err = decode(text=line)
        problem = status or err or len(objects) != 1 or difference(objects[0], CFG)
        report("form_" + name, problem)
        if isinstance(line, str):
            status, objects, err = decode("--", line)
            problem = status or err or len(objects) != 1 or difference(objects[0], CFG)
            report("form_argument_" + name, problem)
    for name, line in NOT_TLPS.items():
        status, objects, err = decode(text=line + "\n" + DWORDS + "\n")
        report("not_a_tlp_" + name, status or len(objects) != 1 or difference(objects[0], CFG)
               or "1 lines without a TLP" not in err and "%r" % err)
    status, objects, _ = decode(text="TLP Header: 60000001 0100000f 000000ff ffffe000 "
                                     "E-E Prefixes: 0x91000001 0x00000000")
    report("form_prefixes", status or difference(objects[0], dict(
        type="MWr", address="0xffffffe000",
        prefixes=[{"name": "PASID", "hex": "91000001"}])))
    status, objects, _ = decode(text="TLP Header (Flit): 0x00000001 0x0000000f 0x6006aabc" + ZERO)
    report("form_flit", status != 1 or difference(objects[0], {"error": "flit"}))


def check_dumps():
    """Bare rows below a line that announces a dump, as dmesg -t shows them."""
    dump = "mlx5_0:dump_cqe:272:(pid 0): dump error cqe\n" + "00000000 " * 3 + "00000000\n"
    dump += "00000000 00008813 0a0002f8 0013c9d2\n"
    status, objects, err = decode(text=dump)
    report("dump_of_a_queue", status != 1 or objects or "no TLP in 3 lines" not in err)
    status, objects, _ = decode(text=dump + "nvme: timeout\n" + DWORDS + "\n")
    report("dump_ends_at_text", status or len(objects) != 1 or difference(objects[0], CFG))
    status, objects, _ = decode(text=dump.replace("dump", "show"))
    report("dump_control", status != 1 or len(objects) != 2)


def check_files(folder):
    """FILE arguments, and text of a file that a terminal must not obey."""
    names = [os.path.join(folder, name) for name in ("a.log", "b.log")]
    for name in names:
        with open(name, "w", encoding="utf-8") as file:
            file.write("text\n" + FORMS["kernel"] + "\n")
    status, objects, err = decode(*names)
    report("files", status or [o["line"] for o in objects] != [2, 2]
           or "2 lines without a TLP" not in err or difference(objects[0], CFG))
    status, _, err = decode(names[0], os.path.join(folder, "none.log"))
    report("files_missing", status != 2 or "none.log: No such file" not in err)
    status, _, err = decode(folder)
    report("files_directory", status != 2 or "Is a directory" not in err)
    status, _, err = decode(os.path.join(folder, "nothing"))
    report("files_neither", status != 2 or "no file of that name" not in err)
    wild = "\x1b]0;title\x07\x9b31m\u009b2J TLP Header: " + "ffffffff " * 4
    _, out, _ = run("tlp", "decode", text=wild)
    bad = [c for c in out if c != "\n" and (ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0)]
    report("controls_are_not_printed", bad or "refused (all-ones)" not in out)


LSPCI = """01:00.0 Ethernet controller: one
\tCapabilities: [100 v1] Advanced Error Reporting
\t\tHeaderLog: 00000000 00000000 00000000 00000000

02:00.0 Ethernet controller: two
\t\tHeaderLog: %s
[12345.678901] pcieport 10000:00:1c.5:   TLP Header: %s
Aug 29 15:04:05.123 TLP Header: %s
""" % ((DWORDS,) * 3)


def check_origin():
    """Which line and which device a TLP of a log came from."""
    status, objects, err = decode(text=LSPCI)
    report("origin_status", status or "nothing logged in 1 header log\n" not in err)
    for name, want in zip(("lspci", "kernel", "time"), (
            dict(line=6, device="02:00.0", input="\t\tHeaderLog: " + DWORDS),
            dict(line=7, device="10000:00:1c.5"), dict(line=8, device=None))):
        got = objects.pop(0)
        report("origin_" + name, difference(got, {**CFG, **want}))
    report("origin_no_more", objects)
    status, out, _ = run("tlp", "decode", text=LSPCI)
    report("origin_for_people", [line.split("CfgRd0")[0] for line in out.splitlines()]
           != ["02:00.0: ", "10000:00:1c.5: ", ""])
    status, objects, _ = decode(text="a\n0000:05:00.0: TLP Header: " + "ffffffff " * 4)
    report("origin_refused", status != 1 or difference(objects[0], dict(
        error="all-ones", line=2, device="0000:05:00.0")))
    healthy = "\t\tHeaderLog: 00000000 00000000 00000000 00000000\n" * 2
    status, objects, err = decode(text=healthy)
    report("unused_logs", status or objects or "nothing logged in 2 header logs\n" not in err)
    status, objects, _ = decode(text=healthy.replace("HeaderLog", "TLP Header"))
    report("control_unused_logs", status != 1 or len(objects) != 2)  # the kernel logs errors only
    for text in ("15:04:05.1 x", "a01:00.0", "01:00.8", "01:20.0", "01:00.0.1", "101:00.0",
                 "01:00.01", "c0:ff:ee.0"):
        _, objects, _ = decode(text=text + " TLP Header: " + DWORDS)
        report("no_device_" + re.sub(r"\W", "_", text), "device" in objects[0] and objects[0])


def check_arguments():
    for name, words in {"words": DWORDS.split(), "bytes": BYTES.split(),
                        "log_words": FORMS["kernel"].split(),
                        "colons": [FORMS["bytes_colons"]]}.items():
        status, objects, err = decode(*words)
        report("arguments_" + name, status or err or len(objects) != 1
               or difference(objects[0], CFG))
    other = "40000001 0000000f 95e7f000 00000000"
    status, objects, _ = decode(DWORDS, other)
    report("arguments_two_lines", [o.get("type") for o in objects] != ["CfgRd0", "MWr"])
    status, objects, _ = decode("-", text=DWORDS)
    report("arguments_dash", status or difference(objects[0], CFG))
    status, out, _ = run("tlp", "decode", *DWORDS.split())
    report("line_for_people", status or out != "CfgRd0 1 dw from 00:00.0 to 01:00.7 register 0x000 "
                                               "tag 0x22 be f/0\n" and repr(out))


# ---- keys, modes, exit statuses ----

COMMON = ["type", "dw", "class", "routing", "tc", "attr", "th", "td", "ep", "at", "requester",
          "prefixes"]
KEYS = {
    "MWr": (DWORDS.replace("04000001", "40000001"),
            ["length_dw", "tag", "first_be", "last_be", "address"]),
    "CfgRd0": (DWORDS, ["length_dw", "tag", "first_be", "last_be", "target", "register"]),
    "CplD": ("4a000001 01000004 00000000 00000000",
             ["length_dw", "tag", "completer", "status", "byte_count", "lower_addr", "bcm"]),
    "Cpl": ("0a000000 01002004 00000000",
            ["tag", "completer", "status", "byte_count", "lower_addr", "bcm"]),
    "Msg": ("34000000 70000010 00000000 88468846",
            ["tag", "message", "message_code", "message_dw"]),
    "FetchAdd": ("4c000001 01000500 f8000010 00000001", ["length_dw", "tag", "address"]),
}


def check_keys():
    for kind, (log, keys) in KEYS.items():
        _, objects, _ = decode(*log.split())
        report("keys_" + kind, sorted(objects[0]) != sorted(COMMON + keys) and sorted(objects[0]))
    for log, error in (("ffffffff " * 4, "all-ones"), ("00000000 " * 4, "all-zero"),
                       ("40000001 0000000f", "short"), ("5f000001 0000000f 00000000", "type")):
        status, objects, _ = decode(log.strip())
        problem = status != 1 or sorted(objects[0]) != ["error", "input", "reason"]
        report("refused_" + error, problem or difference(objects[0], {
            "error": error, "input": log.strip()}))
    status, out, _ = run("tlp", "decode", *["ffffffff"] * 4)
    report("refused_for_people", status != 1 or "refused (all-ones)" not in out)


def check_modes():
    whole = "4a000001 01000004 00000000 deadbeef"
    _, objects, _ = decode(whole)
    report("header_only_ignores_residue", "payload" in objects[0])
    _, objects, _ = decode("--strict", whole)
    report("strict_takes_payload", difference(objects[0], {"payload": "deadbeef"}))
    status, objects, _ = decode("--strict", DWORDS)
    report("strict_refuses_residue", status != 1 or difference(objects[0], {"error": "long"}))
    status, objects, _ = decode("40000004 0000000f 95e7f000 00000001 00000002")
    report("header_only_cut_payload", status
           or difference(objects[0], {"payload": "0000000100000002", "length_dw": 4}))
    bad = "40008001 0000000f 95e7f000 00000001 00000000"
    status, objects, _ = decode("--strict", bad)
    report("strict_checks_ecrc", status != 1 or difference(objects[0], {"error": "ecrc"}))
    status, objects, _ = decode(bad)
    report("header_only_ignores_ecrc", status or difference(objects[0], {"td": True}))


def check_statuses():
    for name, words, text, want in (
            ("all", ["tlp", "decode", DWORDS], "", 0),
            ("some_refused", ["tlp", "decode"], DWORDS + "\n" + "ffffffff " * 4, 1),
            ("nothing_found", ["tlp", "decode"], "one\ntwo\n", 1),
            ("no_tlp_argument", ["tlp", "decode", "zzz"], "", 2),
            ("unknown_option", ["tlp", "decode", "--yaml"], "", 2),
            ("encode_option", ["tlp", "encode", "--yaml"], "", 2),
            ("encode_no_file", ["tlp", "encode", os.path.join(ROOT, "no such file")], "", 2),
            ("encode_nothing", ["tlp", "encode"], "\n", 1),
            ("no_command", [], "", 2), ("no_tlp_command", ["tlp"], "", 2),
            ("unknown_command", ["frobnicate"], "", 2),
            ("unknown_tlp_command", ["tlp", "recode"], "", 2),
            ("help", ["--help"], "", 0), ("tlp_help", ["tlp", "--help"], "", 0),
            ("decode_help", ["tlp", "decode", "--help"], "", 0),
            ("version", ["--version"], "", 0)):
        status, out, err = run(*words, text=text)
        problem = status != want and "exit status %d" % status
        if not problem and want == 2 and (out or not err.strip()):
            problem = "a usage error belongs on standard error"
        if not problem and "help" in name and "usage:" not in out:
            problem = "no usage"
        report("status_" + name, problem)
    _, _, err = run("tlp", "decode", text="one\ntwo\n")
    report("nothing_found_is_said", "no TLP in 2 lines" not in err and err)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            p = subprocess.run([BIN, "tlp", "decode", DWORDS], stdout=full, stderr=subprocess.PIPE)
        report("full_disk", p.returncode != 2 or b"standard output" not in p.stderr)


# ---- encode ----

def encoded(**keys):
    status, out, err = run("tlp", "encode", text=json.dumps(keys))
    return status, out.strip(), err


def check_encode():
    status, out, err = encoded(type="MWr", requester="01:00.0", address="0xffffffe000",
                               payload="01020304")
    report("encode_defaults", status or out != "60000001 0100000f 000000ff ffffe000 01020304"
           and out + err)
    status, out, err = encoded(type="CfgRd0", requester="00:00.0", target="01:00.7", register=0,
                               tag=0x22)
    report("encode_config", status or out != "04000001 0000220f 01070000" and out + err)
    status, out, err = encoded(type="Msg", requester="70:00.0", message="LTR",
                               message_dw=[0, 0x88468846])
    report("encode_message", status or out != "34000000 70000010 00000000 88468846" and out + err)
    status, out, err = encoded(type="Cpl", requester="60:00.0", completer="0000:00:03.1",
                               status="UR", byte_count=128, lower_addr=4)
    report("encode_completion", status or out != "0a000000 00192080 60000004" and out + err)
    status, out, err = encoded(type="MRd", requester="01:00.0", address="0x1000", length_dw=8,
                               prefixes=["91000001"])
    report("encode_prefix", status or out != "91000001 00000008 010000ff 00001000" and out + err)
    write = dict(type="MWr", requester="31:00.0", address="0xfee00db8", td=True, payload="00000021")
    status, out, err = encoded(**write)
    again, objects, _ = decode("--strict", out)
    report("encode_makes_ecrc", status or again or difference(objects[0], {"td": True}))
    status, given, _ = encoded(digest=objects[0]["digest"] ^ 1, **write)
    again, objects, _ = decode("--strict", given)
    report("encode_keeps_digest", status or objects[0].get("error") != "ecrc")
    for form in ("argument", "file"):
        text = json.dumps(write)
        if form == "file":
            text = os.path.join(ROOT, "build", "cli_tlp_%d.json" % os.getpid())
            os.makedirs(os.path.dirname(text), exist_ok=True)
            with open(text, "w") as file:
                file.write(json.dumps(write) + "\n\n" + json.dumps(write) + "\n")
        status, back, err = run("tlp", "encode", text)
        report("encode_" + form, status or back.split("\n")[0] != out and back + err)
        if form == "file":
            os.unlink(text)


MRD = dict(type="MRd", requester="01:00.0", address="0x1000", length_dw=1)
CPLD = dict(type="CplD", requester="01:00.0", completer="00:00.0", status="SC", byte_count=4,
            payload="00000000")
ENCODE_ERRORS = {
    "type_missing": (dict(), "type", "one of"),
    "type_unknown": (dict(type="MRx"), "type", "one of"),
    "unknown_key": (dict(MRD, lenght_dw=1), "lenght_dw", "dxpu(1)"),
    "not_its_key": (dict(MRD, completer="00:00.0"), "completer", "leave the key out"),
    "number_range": (dict(MRD, tc=8), "tc", "from 0 to 7"),
    "number_type": (dict(MRD, tag="1"), "tag", "number"),
    "bool": (dict(MRD, ep=1), "ep", "true or false"),
    "bdf": (dict(MRD, requester="1:0"), "requester", "like"),
    "bdf_device": (dict(MRD, requester="01:20.0"), "requester", "like"),
    "address": (dict(MRD, address="-4"), "address", "like"),
    "address_number": (dict(MRD, address=4096), "address", "string"),
    "address_missing": (dict(type="MRd", requester="01:00.0", length_dw=1), "address", "give"),
    "requester_missing": (dict(type="MRd", address="0x1000", length_dw=1), "requester", "give"),
    "length_missing": (dict(type="MRd", requester="01:00.0", address="0x1000"), "length_dw",
                       "give"),
    "payload_missing": (dict(MRD, type="MWr"), "payload", "give"),
    "payload_odd": (dict(MRD, type="MWr", payload="123"), "payload", "hex digits"),
    "payload_length": (dict(MRD, type="MWr", payload="0" * 16), "payload", "change one"),
    "attr": (dict(MRD, attr=["XX"]), "attr", "RO"),
    "status": (dict(CPLD, status="OK"), "status", "one of"),
    "byte_count_missing": ({k: v for k, v in CPLD.items() if k != "byte_count"}, "byte_count",
                           "give"),
    "target_missing": (dict(type="CfgRd0", requester="00:00.0", register=0), "target", "give"),
    "message_unknown": (dict(type="Msg", requester="00:00.0", message="Hello"), "message",
                        "message_code"),
    "message_missing": (dict(type="Msg", requester="00:00.0"), "message", "give"),
    "message_conflict": (dict(type="Msg", requester="00:00.0", message="LTR", message_code=0),
                         "message", "leave one"),
    "class": (dict(MRD, **{"class": "posted"}), "class", "leave"),
    "routing": (dict(MRD, routing="id"), "routing", "leave"),
    "digest_without_td": (dict(MRD, digest=1), "digest", "td"),
    "dw": (dict(type="IORd", requester="00:00.0", address="0x10", dw=4), "dw", "3 dwords"),
    "prefixes": (dict(MRD, prefixes=[{"name": "PASID"}]), "prefixes", "hex"),
    "rule_be": (dict(MRD, first_be=15, last_be=1), "byte enables", "change first_be"),
    "rule_4k": (dict(MRD, address="0xffc", length_dw=2), "4 KB", "change address"),
    "rule_address": (dict(MRD, address="0x1001"), "address", "change address"),
    "refusal": (dict(error="type", reason="?", input=""), "error", "nothing to encode"),
}


def check_encode_errors():
    for name, (keys, key, remedy) in ENCODE_ERRORS.items():
        status, out, err = encoded(**keys)
        report("encode_error_" + name, status != 1 or out or key not in err or remedy not in err
               and err.strip())
    status, out, err = run("tlp", "encode", text='{"type": \n' + json.dumps(MRD))
    report("encode_error_line", status != 1 or len(out.splitlines()) != 1 or ":1: " not in err)
    status, out, err = run("tlp", "encode", text="[1]")
    report("encode_error_array", status != 1 or "not an object" not in err)
    status, out, err = run("tlp", "encode", text=json.dumps(MRD)[:-1] + ', "tc": 1, "tc": 2}')
    report("encode_error_twice", status != 1 or "uplicate" not in err)


def check_manual():
    """dxpu(1) names every key, error and message."""
    with open(os.path.join(ROOT, "examples", "cli", "dxpu.1"), encoding="utf-8") as file:
        page = file.read().replace("\\-", "-")
    words = set(re.split(r"[^\w-]+", page))
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        header = file.read()
    errors = {kebab(e) for e in re.findall(r"X\((E_TLP_\w+), -(?:\d|[1-3]\d|4[0-7]),", header)}
    messages = {m for m in re.findall(r'X\(0x\w\w, "(\w+)", [A-Z_]+, ', header)
                if not re.search("assert_INT[BC]", m, re.I)}
    keys = {k for _, own in KEYS.values() for k in own} | set(COMMON)
    for name, wanted in (("keys", keys), ("errors", errors), ("messages", messages)):
        report("manual_" + name, len(wanted) < 10 or sorted(wanted - words))


def main():
    if not os.access(BIN, os.X_OK):
        print("not ok cli_tlp # no program " + BIN)
        return 1
    check_known()
    check_vectors()
    check_identity()
    check_forms()
    check_dumps()
    with tempfile.TemporaryDirectory() as folder:
        check_files(folder)
    check_origin()
    check_arguments()
    check_keys()
    check_modes()
    check_statuses()
    check_encode()
    check_encode_errors()
    check_manual()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
