#!/usr/bin/env python3
# make: build/san/tests/bindings/unit_vswitch
"""lspci's view of the virtual switch: configuration dumps of every port, made by the unit test
after it enumerated, decoded by pciutils.  Environment: DXPU_VSWITCH (default
build/san/tests/bindings/unit_vswitch)."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("DXPU_VSWITCH", os.path.join(ROOT, "build", "san", "tests",
                                                      "bindings", "unit_vswitch"))
BAD = re.compile(r"<\?>|!!!|<access denied>|<chain|<unreadable>|[Uu]nknown|overdriven|"
                 r"\bID [0-9a-f]+ v|Unable|[Bb]roken")
CAPABILITIES = ["[40] Express (v2)", "[80] MSI", "[90] Power Management version 3",
                "[100 v2] Advanced Error Reporting", "[148 v1] Access Control Services"]
failed = 0


def report(name, problems):
    global failed
    failed += bool(problems)
    print(("not ok " if problems else "ok ") + name)
    for problem in problems[:20]:
        print("  " + problem)


def lspci(path, *words):
    done = subprocess.run(["lspci", "-F", path, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace")
    said = [line for line in done.stderr.splitlines() if "libkmod" not in line]
    return done.stdout, said + (["exit status %d" % done.returncode] if done.returncode else [])


def complaints(text):
    return [line.strip() for line in text.splitlines() if BAD.search(line)]


def want_of(topology, slots):
    """{address: (kind, its slot)} of every port."""
    if topology == "root-ports":
        return {"00:%02x.0" % s: ("Root Port", s) for s in range(1, slots + 1)}
    want = {"00:01.0": ("Root Port", 0), "01:00.0": ("Upstream Port", 0)}
    want.update({"02:%02x.0" % s: ("Downstream Port", s + 1) for s in range(slots)})
    return want


def port_problems(text, kind, slot, power):
    # the last line of a port's own text; an upstream port has no ACS
    caps = CAPABILITIES if kind != "Upstream Port" else CAPABILITIES[:-1]
    lines = [re.sub(r"^\s*Capabilities: ", "", line) for line in text.splitlines()
             if "Capabilities: [" in line]
    problems = ["capabilities are %r" % lines] if len(lines) != len(caps) or not all(
        line.startswith(cap) for line, cap in zip(lines, caps)) else []
    need = ["prog-if 00 [Normal decode]", "Express (v2) " + kind, "Maskable- 64bit+",
            "Prefetchable memory behind bridge: 00000020"]
    if kind == "Root Port":
        need += ["RootCap: CRSVisible+", "RootCmd:"]
    if kind != "Upstream Port":
        need += ["LLActRep+ BwNot+", "ARIFwd+", "(Slot%s)" % ("+" if slot else "-")]
    if slot:
        # (the dump has a device in slot 2; a power controller keeps its link off)
        need += ["Slot #%d, PowerLimit 75W; Interlock- NoCompl%s" % (slot, "-" if power else "+"),
                 "HotPlug+ Surprise+", "PresDet%s Interlock-" % ("+" if slot == 2 else "-"),
                 "DLActive%s" % ("+" if slot == 2 and not power else "-"),
                 "AttnBtn%s PwrCtrl%s MRL-" % (("+", "+") if power else ("-", "-"))]
    return problems + ["no %r" % n for n in need if n not in text]


def tree_problems(tree, topology, slots):
    if topology == "root-ports":
        want = ["%02x.0-[%02x]--" % (s, s) for s in range(1, slots + 1)]
    else:
        want = ["[0000:00]---01.0-[01-%02x]----00.0-[02-%02x]--" % (slots + 2, slots + 2)]
        want += ["%02x.0-[%02x]--" % (s, s + 3) for s in range(slots)]
    problems = ["no %r in the tree" % w for w in want if w not in tree]
    if len(tree.strip().splitlines()) != slots:
        problems.append("%d lines in the tree" % len(tree.strip().splitlines()))
    return problems


def check(folder, topology, slots, power):
    name = "lspci_%s_%d%s" % (topology.replace("-", "_"), slots, "_power" if power else "")
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        made = subprocess.run([PROGRAM, "--dump", topology, str(slots), str(int(power))],
                              stdout=file)
    text, said = lspci(path, "-vvv")
    problems = said + complaints(text) + (["dump failed"] if made.returncode else [])
    ports = {part.split(" ", 1)[0]: part for part in text.strip().split("\n\n") if part}
    want = want_of(topology, slots)
    if sorted(ports) != sorted(want):
        problems.append("ports are %s" % " ".join(sorted(ports)))
    for address, (kind, slot) in want.items():
        problems += [address + ": " + p for p in port_problems(ports.get(address, ""), kind, slot,
                                                               power)]
    report(name, problems)
    tree, said = lspci(path, "-t")
    report(name + "_tree", said + tree_problems(tree, topology, slots))
    return path


def controls(folder, path):
    """A dump with an unknown capability, and one with a chain that leads nowhere, are seen."""
    with open(path, encoding="ascii") as file:
        text = file.read()
    for name, old, new in (("capability", "\n80: 05 90", "\n80: 1f 90"),
                           ("chain", "\n80: 05 90", "\n80: 05 80"),
                           ("extended", "\n100: 01 00", "\n100: fe 0f")):
        broken = os.path.join(folder, name)
        with open(broken, "w", encoding="ascii") as file:
            file.write(text.replace(old, new))
        seen = lspci(broken, "-vvv")
        report("control_lspci_" + name, [] if old in text and (complaints(seen[0]) or port_problems(
            seen[0].split("\n\n")[0], "Root Port", 1, False)) else ["not seen"])
    report("control_lspci_tree", [] if tree_problems(lspci(path, "-t")[0], "root-ports", 9) else
           ["not seen"])


def main():
    if not shutil.which("lspci"):
        print("skip lspci pciutils is not installed")
        return 0
    if not os.path.exists(PROGRAM):
        print("skip lspci no " + os.path.basename(PROGRAM) + ", build it first")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = ""
        for topology in ("switch", "root-ports"):
            for slots in (1, 8, 28):
                for power in (False, True):
                    made = check(folder, topology, slots, power)
                    if slots == 8 and not power:
                        path = made
        controls(folder, path)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
