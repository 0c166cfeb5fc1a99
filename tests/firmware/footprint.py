#!/usr/bin/env python3
# make: firmware
"""What a box in firmware needs: stack, code, memory, instructions of a frame.

Stack comes from the call graph and the frames that gcc writes (-fcallgraph-info): the worst chain
of calls of each public function and of the whole image.  Recursion, a frame without bound, a call
through a pointer that is not listed here, and more than the budgets of spec/assurance.md fail;
controls show that each is seen.  Instructions are those that QEMU executes (-icount shift=0).

    tests/firmware/footprint.py              the tests, for every board under build/firmware
    tests/firmware/footprint.py --table      all the figures
"""
# SPDX-License-Identifier: MIT
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGES = os.path.join(ROOT, "build", "firmware")
BOARDS = {"mps2-an385": ("arm-none-eabi-", "start", "on_ethernet"),
          "riscv-virt": ("riscv64-unknown-elf-", "begin", None)}
QEMU = {"mps2-an385": ("qemu-system-arm", "-M", "mps2-an385", "-semihosting-config",
                       "enable=on,target=native", "-nic", "none"),
        "riscv-virt": ("qemu-system-riscv64", "-M", "virt", "-m", "16M", "-bios", "none")}
EXCEPTION_BYTES = 32  # what a Cortex-M puts on the stack before a handler
# What a call through a pointer may reach in the images, by the words before its parenthesis.
HOOKS = {"hooks->random": ["hook_random"], "hooks->reset": ["hook_reset"],
         "hooks->event": ["hook_event"], "hooks->keep": [],
         **{"security->" + hook: ["keys_" + hook] for hook in
            ("handshake", "open", "allowed", "work", "end", "tick")},
         "cfg.clock_ns": ["clock_ns"], "with->random": ["draw"],
         "suite->open": ["session_open"], "suite->seal": ["session_seal"]}
# The primitives of these images, and what bindings/secure asks of its caller.
PORTABLE = "bindings/portable/dxpu_portable.c:"
TABLE = {**{of + what: [PORTABLE + what] for of in ("with->", "primitives.") for what in
            ("public_key", "agree", "hash", "hchacha20", "equal", "wipe", "wipe_stack")},
         **{of + what: [PORTABLE + what] for of in ("aeads->", "aead->")
            for what in ("expand", "encrypt", "decrypt")},
         "cb.find": ["keys_find"], "cb.authorize": ["keys_authorize"], "cb.spare": ["keys_spare"],
         "cb.fresh": [], "w->resize": []}
IMAGE = {"memory_kind.create": ["memory_create"], "memory_kind.reset": ["memory_reset"],
         "memory_kind.event": ["memory_event"], "memory_kind.tlp": ["memory_tlp"],
         "memory_kind.report": ["memory_report"], "port->emit": ["device_emits"]}
# Bytes, of the public functions without their hooks, and of the image with its interrupt handler.
BUDGETS = {"mps2-an385": (5632, 6912), "riscv-virt": (7168, 8704)}
INSTRUCTIONS_MOST = 300000  # of one poll, whatever comes in one frame
TLPS_MEASURED = 69  # TLPs that the measurement gives to the device
failed = 0


class Bad(Exception):
    """What makes a bound impossible."""


class Graph:
    def __init__(self, files, pointers):
        self.frames, self.calls, self.pointers, self.known = {}, {}, pointers, {}
        for name in files:
            with open(name, encoding="utf-8") as file:
                self.read(file.read())

    def read(self, text):
        for title, label in re.findall(r'(?m)^node: \{ title: "([^"]+)" label: "([^"]*)" *\}$',
                                       text):
            found = re.search(r"(\d+) bytes \(([\w,]+)\)", label)
            self.frames[title] = (int(found.group(1)), found.group(2))
        for source, target, label in re.findall(
                r'(?m)^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"'
                r'(?: label: "([^"]*)")? *\}$', text):
            self.calls.setdefault(source, set()).add((target, label))

    def find(self, name):
        """A function by its bare name, static or not."""
        found = [f for f in self.frames if f == name or f.endswith(":" + name)]
        if len(found) != 1:
            raise Bad("%s is there %d times" % (name, len(found)))
        return found[0]

    def targets(self, call):
        target, place = call
        if target != "__indirect_call":
            return [target]
        path, line = place.rsplit(":", 2)[:2]
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read().splitlines()[int(line) - 1]
        for words in re.findall(r"(\w+(?:->|\.)\w+)\(", text):
            if words in self.pointers:
                return [self.find(t) for t in self.pointers[words]]
        raise Bad("a call through a pointer that is not listed: %s: %s" % (place, text.strip()))

    def worst(self, name, above=()):
        """(bytes, chain) of the deepest calls from a function."""
        if name in above:
            raise Bad("recursion: " + " -> ".join(above[above.index(name):] + (name,)))
        if name in self.known:
            return self.known[name]
        if name not in self.frames:
            raise Bad("a function of unknown stack: " + name)
        size, kind = self.frames[name]
        if kind not in ("static", "dynamic,bounded"):
            raise Bad("a frame without bound: %s (%s)" % (name, kind))
        deepest = (0, ())
        for call in sorted(self.calls.get(name, ())):
            for target in self.targets(call):
                deepest = max(deepest, self.worst(target, above + (name,)))
        self.known[name] = (size + deepest[0], (name.rsplit(":", 1)[-1],) + deepest[1])
        return self.known[name]


def files(board):
    """Call graphs of what box.elf is made of."""
    found = glob.glob(os.path.join(IMAGES, board, "**", "*.ci"), recursive=True)
    return sorted(f for f in found if os.path.basename(f) != "measure.ci")


def public(board):
    """{function: (bytes, chain)} of what dxpu.h and the binding export, without hooks."""
    graph = Graph(files(board), {words: [] for words in HOOKS} | TABLE | IMAGE)
    names = [f for f in graph.frames if re.fullmatch(r"dxpu_\w+", f)]
    return {name: graph.worst(name) for name in names}


def image(board):
    """Bytes of the whole image: its deepest chain, and the deepest of its interrupt handler."""
    _, start, handler = BOARDS[board]
    graph = Graph(files(board), HOOKS | TABLE | IMAGE)
    used, chain = graph.worst(graph.find(start))
    if handler:
        used += EXCEPTION_BYTES + graph.worst(graph.find(handler))[0]
    return used, chain


def check(name, truth, *shown):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name)
    if not truth:
        print("  " + " ".join(str(s) for s in shown))


CONTROL = """
int helper(int x);
int (*pointer)(int);
int leaf(int x);
int leaf(int x) { volatile char a[100]; a[x] = 1; return a[0]; }
int chain(int x);
int chain(int x) { volatile char a[50]; a[x] = 1; return leaf(x) + a[0]; }
int loops(int x);
int back(int x);
int loops(int x) { return x ? back(x - 1) + 1 : 0; }
int back(int x) { return x ? loops(x - 1) * 3 : 1; }
int grows(int x);
int grows(int x) { volatile char a[x]; a[0] = 1; return a[0]; }
int stranger(int x);
int stranger(int x) { return helper(x) + 1; }
int blind(int x);
int blind(int x) { return pointer(x) + 1; }
"""


def controls(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "c.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(CONTROL)
        subprocess.run([compiler, "-Os", "-fno-inline", "-fno-optimize-sibling-calls",
                        "-ffreestanding", "-fcallgraph-info=su", "-c", source, "-o",
                        os.path.join(folder, "c.o")], check=True)
        graph = Graph([os.path.join(folder, "c.ci")], {})
        size, chain = graph.worst("chain")
        check("control_stack_adds_up", 150 <= size < 260 and chain == ("chain", "leaf"), size,
              chain)
        for name, why in (("loops", "recursion: loops -> back -> loops"),
                          ("grows", "a frame without bound: grows (dynamic)"),
                          ("stranger", "a function of unknown stack: helper"),
                          ("blind", "a call through a pointer that is not listed")):
            try:
                graph.worst(name)
                check("control_stack_" + name, False, "nothing seen")
            except Bad as bad:
                check("control_stack_" + name, str(bad).startswith(why), bad)


def size(board):
    """(code, data and bss) of the image, and code of dxpu.h and of the binding in it."""
    tool = BOARDS[board][0] + "size"
    elf = os.path.join(IMAGES, board, "box.elf")
    told = subprocess.run([tool, elf], stdout=subprocess.PIPE, text=True, check=True).stdout
    text, data, bss = (int(n) for n in told.splitlines()[1].split()[:3])
    parts = {}
    told = subprocess.run([BOARDS[board][0] + "nm", "--print-size", "-l", elf],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    for length, kind, name, place in re.findall(r"(?m)^\w+ (\w+) ([tTrR]) (\S+)\s+(\S*)", told):
        part = "dxpu.h" if "/dxpu.h:" in place else "bindings/firmware" \
            if "bindings/firmware/" in place else "the rest"
        parts[part] = parts.get(part, 0) + int(length, 16)
    return text, data + bss, parts


def measured(board):
    """{what: number} that the measuring image prints; None without QEMU."""
    words = QEMU[board]
    if not shutil.which(words[0]):
        return None
    done = subprocess.run([*words, "-icount", "shift=0", "-display", "none", "-monitor", "none",
                           "-serial", "stdio", "-kernel",
                           os.path.join(IMAGES, board, "measure.elf")], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    found = {name: int(n) for name, n in re.findall(r"(?m)^  (\w+) (\d+)\s*$", done.stdout)}
    return found if done.returncode == 0 and "\n.\n" in done.stdout.replace("\r", "") else {}


def check_measured(board, tag):
    found = measured(board)
    if found is None:
        print("skip instructions_%s %s is not here" % (tag, QEMU[board][0]))
        return
    check("measured_it_all_" + tag, found.get("given_to_the_device") == TLPS_MEASURED, found)
    costs = {name: n for name, n in found.items()
             if re.match("arrives|leaves|refused|fills|idle", name)}
    check("instructions_" + tag, len(costs) == 12 and
          0 < costs["idle"] < costs["leaves_1_write_of_4"] < costs["leaves_1_write_of_1024"] and
          max(costs.values()) < INSTRUCTIONS_MOST, costs)


def table(board):
    """False when there are figures missing."""
    text, memory, parts = size(board)
    print("%s: code and tables %d bytes (%s), data %d" %
          (board, text, ", ".join("%s %d" % p for p in sorted(parts.items())), memory))
    for name, (used, chain) in sorted(public(board).items(), key=lambda row: -row[1][0]):
        print("%6d  %s" % (used, " ".join(chain)))
    used, chain = image(board)
    print("%6d  image with interrupt handler: %s" % (used, " ".join(chain)))
    found = measured(board)
    if not found:
        print("no figures of instructions and memory: %s" %
              ("measure.elf failed" if found is not None else QEMU[board][0] + " is not here"))
        return False
    for name, number in found.items():
        print("%9d  %s" % (number, name))
    return True


def tables(boards):
    missing = [b for b in BOARDS if b not in boards]
    if missing:
        print("no images of %s: make firmware" % ", ".join(missing))
    return 0 if all([table(b) for b in boards]) and not missing else 1


def main():
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--table", action="store_true")
    boards = [b for b in BOARDS if files(b)]
    if words.parse_args().table:
        return tables(boards)
    check("stack_images_there", boards == list(BOARDS), "make firmware")
    controls(BOARDS["mps2-an385"][0] + "gcc")
    for board in boards:
        tag = board.replace("-", "_")
        try:
            found, (whole, chain) = public(board), image(board)
        except Bad as bad:
            check("stack_bounded_" + tag, False, bad)
            continue
        deepest = max(found.values())
        check("stack_bounded_" + tag, len(found) > 60 and "dxpu_fw_poll" in found, len(found))
        check("stack_functions_" + tag, deepest[0] <= BUDGETS[board][0], deepest)
        check("stack_image_" + tag, found["dxpu_fw_poll"][0] < whole <= BUDGETS[board][1], whole,
              chain)
        check_measured(board, tag)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
