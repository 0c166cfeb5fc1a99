#!/usr/bin/env python3
"""The vfio-user server under a real QEMU without a guest: qtest plays the processor.

vfio_scratch.c is the device.  Skipped, loudly, where no QEMU with a vfio-user client can be
had (qemu.sh says why).  VFIO_SCRATCH names a built vfio_scratch; otherwise it is looked for
under build/, or compiled.
"""
import glob
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
DEADLINE = 30  # seconds until something that must happen has not
RAM = 64 << 20
BAR0, BAR2, BAR4 = 0xE0000000, 0x800000000, 0xE0100000
SLOT = 5
E_NONE = 0xFFFFFFFF - 100 + 1
failed = 0


def check(name, truth, shown=""):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name + ("" if truth else "  # %s" % (shown,)))
    sys.stdout.flush()


class Gone(Exception):
    """The process at the other end has ended or does not answer."""


class Lines:
    """Lines of a pipe, with a deadline."""

    def __init__(self, file):
        self.fd = file.fileno()
        self.rest = b""

    def next(self):
        end = time.monotonic() + DEADLINE
        while b"\n" not in self.rest:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise Gone("no line in %d s" % DEADLINE)
            got = os.read(self.fd, 65536)
            if not got:
                raise Gone("end of output")
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


class Server:
    def __init__(self, program, path):
        self.child = subprocess.Popen([program, path], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)
        self.lines = Lines(self.child.stdout)
        self.expect("ready")

    def expect(self, start):
        line = self.lines.next()
        while not line.startswith(start):
            line = self.lines.next()
        return line

    def ask(self, word):
        self.child.stdin.write(word.encode() + b"\n")
        self.child.stdin.flush()
        lines = []
        while True:
            line = self.lines.next()
            if not line:
                return lines
            lines.append(line)

    def count(self):
        lines = [line.split() for line in self.ask("count")]
        return {words[0]: int(words[1]) for words in lines if len(words) == 2}

    def memory(self):
        lines = [line.split(None, 2) for line in self.ask("memory")]
        return [(int(w[0], 16), int(w[1], 16), w[2]) for w in lines]

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.child.pid))

    def stop(self):
        self.child.stdin.close()
        try:
            return self.child.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return "hung"


class Machine:
    """A QEMU whose processor is this script."""

    def __init__(self, qemu, path, memory="memory-backend-memfd,id=m,size=64M,share=on", more=""):
        device = {"driver": "vfio-user-pci", "addr": "0x%x" % SLOT,
                  "socket": {"path": path, "type": "unix"}}
        if more:
            device.update(json.loads(more))
        self.child = subprocess.Popen(
            qemu + ["-machine", "q35,memory-backend=m", "-m", "64", "-object", memory,
                    "-accel", "tcg", "-S", "-display", "none", "-nodefaults", "-monitor", "none",
                    "-qtest", "stdio", "-qtest-log", "none", "-device", json.dumps(device)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = Lines(self.child.stdout)

    def read(self, address, size):
        return bytes.fromhex(self.ask("read", address, size)[2:])

    def do(self, *words):
        word = self.ask(*words)
        return None if word is None else int(word, 0)

    def ask(self, *words):
        self.child.stdin.write(" ".join(hex(w) if isinstance(w, int) else w
                                        for w in words).encode() + b"\n")
        self.child.stdin.flush()
        line = self.lines.next()
        while not line.startswith("OK"):
            if line.startswith(("FAIL", "ERR")):
                raise Gone(line)
            line = self.lines.next()
        parts = line.split()
        return parts[1] if len(parts) > 1 else None

    def config(self, register, width="l"):
        self.do("outl", 0xCF8, 0x80000000 | SLOT << 11 | (register & 0xFC))
        return self.do("in" + width, 0xCFC + (register & 3))

    def configure(self, register, value, width="l"):
        self.do("outl", 0xCF8, 0x80000000 | SLOT << 11 | (register & 0xFC))
        self.do("out" + width, 0xCFC + (register & 3), value)

    def bars(self):
        self.configure(0x10, BAR0)
        self.configure(0x18, BAR2 & 0xFFFFFFFF)
        self.configure(0x1C, BAR2 >> 32)
        self.configure(0x20, BAR4)
        self.configure(0x04, 0x06, "w")

    def doorbell(self, what, source=0, target=0, size=0):
        """Ring and return the result register."""
        self.do("writeq", BAR2, source)
        self.do("writeq", BAR2 + 8, target)
        self.do("writel", BAR2 + 0x10, size)
        self.do("writel", BAR2 + 0x14, what)
        return self.do("readl", BAR2 + 0x18)

    def until(self, address, value):
        """Has a value arrived at an address in time?"""
        end = time.monotonic() + DEADLINE
        while self.do("readl", address) != value:
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def changes(self, address, old):
        """The first value other than `old`; `old` when none comes in time."""
        end = time.monotonic() + DEADLINE
        while self.do("readl", address) == old and time.monotonic() < end:
            time.sleep(0.005)
        return self.do("readl", address)

    def quit(self, how=signal.SIGTERM):
        self.child.send_signal(how)
        self.child.communicate(timeout=DEADLINE)


def enumeration(m):
    check("qtest_config_id", m.config(0) == 0xD0C51234, hex(m.config(0)))
    check("qtest_config_bytes", m.config(0x0B, "b") == 0xFF and m.config(0x2E, "w") == 0xD0C5)
    sizes = []
    for register in (0x10, 0x18, 0x1C, 0x20):
        m.configure(register, 0xFFFFFFFF)
        sizes.append(m.config(register))
    check("qtest_bar_sizes", sizes == [0xFFFF0000, 0xFFFFF00C, 0xFFFFFFFF, 0xFFFFF000],
          [hex(s) for s in sizes])
    m.bars()
    check("qtest_bars_programmed", m.config(0x10) == BAR0 and m.config(0x1C) == BAR2 >> 32)
    check("qtest_config_write_reaches_device", m.config(0x3C, "b") == 0)
    m.configure(0x3C, 0x2A, "b")
    check("qtest_config_write_reads_back", m.config(0x3C, "b") == 0x2A)


def accesses(m):
    check("qtest_bar_reset_value", m.do("readl", BAR0) == 0)
    m.do("writel", BAR0, 0x11223344)
    m.do("writeb", BAR0 + 2, 0x99)
    m.do("writew", BAR0 + 0xFFFE, 0xBEEF)
    m.do("writeq", BAR0 + 8, 0x0102030405060708)
    check("qtest_bar_widths", m.do("readl", BAR0) == 0x11993344 and
          m.do("readw", BAR0 + 0xFFFE) == 0xBEEF and m.do("readb", BAR0 + 1) == 0x33 and
          m.do("readq", BAR0 + 8) == 0x0102030405060708)
    for i in range(200):
        m.do("writel", BAR0 + 0x100 + 4 * i, i * 0x01010101 & 0xFFFFFFFF)
    check("qtest_writes_in_order_before_read",
          [m.do("readl", BAR0 + 0x100 + 4 * i) for i in range(200)] ==
          [i * 0x01010101 & 0xFFFFFFFF for i in range(200)])
    block = bytes(i * 7 & 0xFF for i in range(8192))
    m.do("write", BAR0 + 0x4000, len(block), "0x" + block.hex())
    check("qtest_burst_of_writes", m.read(BAR0 + 0x4000, len(block)) == block)
    m.do("writeq", BAR2 + 0x48, 0xCAFEF00D)
    before = [m.do("readl", BAR2 + at) for at in (0x20, 0x24)]
    late = m.do("readl", BAR2 + 0x40)
    after = [m.do("readl", BAR2 + at) for at in (0x20, 0x24)]
    check("qtest_read_answered_later", late == 0xCAFEF00D and before == [0, 0] and after == [1, 1],
          (hex(late), before, after))


def dma(m, name, direct):
    for i in range(16):
        m.do("writeq", 0x200000 + 8 * i, 0x1111111111111111 * i)
    result = m.doorbell(1, 0x200000, 0x300004, 128)
    if direct:
        check(name + "_dma_copy", result == 0 and
              [m.do("readq", 0x300004 + 8 * i) for i in range(16)] ==
              [0x1111111111111111 * i for i in range(16)], hex(result))
        check(name + "_dma_into_hole", m.doorbell(1, 0x200000, 0x7000000000, 8) == E_NONE)
        check(name + "_dma_across_end", m.doorbell(1, 0x200000, RAM - 4, 8) == E_NONE and
              m.doorbell(1, 0x200000, RAM - 8, 8) == 0)
    else:
        check(name + "_no_direct_dma", result == E_NONE, hex(result))
    m.do("writel", 0x400000, 0xABCD1234)
    m.doorbell(4, 0x400000)
    check(name + "_dma_read_by_message", m.until(BAR2 + 0x18, 0x101) and
          m.do("readl", BAR2 + 0x48) == 0xABCD1234)
    m.doorbell(5, 0, 0x400010)
    check(name + "_dma_write_by_message", m.until(BAR2 + 0x18, 0x102) and
          m.do("readl", 0x400010) == 0xABCD1234)
    m.do("writel", 0x400020, 0)
    m.configure(0x04, 0x02, "w")
    m.doorbell(2, 0, 0x400020, 0x5A5A0000)
    m.doorbell(4, 0x400000)  # its answer follows the other's
    error = m.changes(BAR2 + 0x18, 0)
    check(name + "_messages_need_bus_master", 0 < error < 0x100 and m.do("readl", 0x400020) == 0,
          hex(error))
    m.configure(0x04, 0x06, "w")
    result = m.doorbell(2, 0, 0x400020, 0x5A5A0001)
    check(name + "_msi_by_message", result == 0 and m.until(0x400020, 0x5A5A0001), hex(result))


def interrupts(m):
    """The vector's address is in RAM, so that the interrupt can be seen as a write."""
    check("qtest_irq_without_eventfd", m.doorbell(3, 0, 0, 2) == E_NONE)
    entry = BAR4 + 2 * 16
    m.do("writel", 0x500000, 0)
    m.do("writel", entry, 0x500000)
    m.do("writel", entry + 4, 0)
    m.do("writel", entry + 8, 0x77)
    m.configure(0x42, 0x8000, "w")
    m.do("writel", entry + 12, 0)
    check("qtest_irq_by_eventfd", m.doorbell(3, 0, 0, 2) == 0 and m.until(0x500000, 0x77))
    m.configure(0x42, 0, "w")
    check("qtest_irq_off_again", m.doorbell(3, 0, 0, 2) == E_NONE)


def reset(m):
    m.do("writel", BAR0 + 0x80, 0x600D600D)
    before = m.do("readl", BAR2 + 0x1C)
    m.do("outb", 0xCF9, 6)
    end = time.monotonic() + DEADLINE
    while m.config(4, "w") & 6 and time.monotonic() < end:
        time.sleep(0.005)
    m.bars()
    check("qtest_reset", m.do("readl", BAR2 + 0x1C) > before and m.do("readl", BAR0 + 0x80) == 0)


def story(qemu, program, folder):
    path = os.path.join(folder, "s.sock")
    server = Server(program, path)
    idle = server.fds()

    m = Machine(qemu, path)
    server.expect("connected")
    enumeration(m)
    accesses(m)
    dma(m, "qtest_memfd", True)
    interrupts(m)
    regions = server.memory()
    check("qtest_memory_known", any(a == 0 and how == "rw" for a, _, how in regions) and
          all(regions[i][0] + regions[i][1] <= regions[i + 1][0]
              for i in range(len(regions) - 1)), regions)
    check("qtest_rom_by_message", any(how == "ro by message" for _, _, how in regions), regions)
    reset(m)
    dma(m, "qtest_after_reset", True)

    second = Machine(qemu, path)
    second.child.wait(DEADLINE)
    check("qtest_second_client_refused", second.child.returncode != 0)
    check("qtest_first_client_unharmed", m.config(0) == 0xD0C51234)

    m.quit()
    server.expect("disconnected")
    check("qtest_all_given_back", server.memory() == [] and server.fds() == idle,
          (server.memory(), server.fds(), idle))
    m = Machine(qemu, path)
    server.expect("connected")
    m.bars()
    check("qtest_reconnect", m.do("readl", BAR0 + 0x80) == 0 and m.doorbell(1, 0, 4096, 8) == 0)
    m.quit(signal.SIGKILL)
    server.expect("disconnected")
    check("qtest_killed_all_given_back", server.memory() == [] and server.fds() == idle)

    m = Machine(qemu, path, more='{"x-send-queued": true}')
    server.expect("connected")
    m.bars()
    accesses(m)
    m.quit()
    server.expect("disconnected")

    shm = tempfile.mkdtemp(dir="/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    try:
        if shm:
            m = Machine(qemu, path, "memory-backend-file,id=m,size=64M,share=on,mem-path=" + shm)
            server.expect("connected")
            m.bars()
            dma(m, "qtest_file", True)
            m.quit()
            server.expect("disconnected")
        else:
            print("skip qtest_file /dev/shm cannot be written to")
    finally:
        if shm:
            shutil.rmtree(shm)
    m = Machine(qemu, path, "memory-backend-ram,id=m,size=64M")
    server.expect("connected")
    m.bars()
    dma(m, "qtest_private", False)
    m.quit()
    server.expect("disconnected")

    count = server.count()
    check("qtest_counts_clean", not any(count[c] for c in (
        "errors_silent", "unknown", "clients_broken", "reply_refused", "reply_unexpected",
        "fds_lost", "dma_faults", "irqs_failed")), count)
    # four times a message and a read were sent with Bus Master Enable off
    check("qtest_dma_errors_counted", count["dma_errors"] == 8, count)
    # one each: QEMU asks for the error interrupt, which this function does not have
    check("qtest_one_error_a_client", count["errors"] == count["clients"], count)
    check("qtest_counts_work", count["clients"] >= 5 and count["reads"] > 500 and
          count["writes_posted"] > 0 and count["clients_refused"] == 1, count)
    check("qtest_server_ends_well", server.stop() == 0 and not os.path.exists(path))


def find_program(folder):
    for name in (os.environ.get("VFIO_SCRATCH"),
                 os.path.join(TOP, "build/san/tests/host/vfio_scratch"),
                 os.path.join(TOP, "build/tests/host/vfio_scratch")):
        if name and os.access(name, os.X_OK):
            return name
    name = os.path.join(folder, "vfio_scratch")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O1", "-g", "-I" + TOP,
                    "-I" + os.path.join(TOP, "bindings/vfio_user"),
                    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-o", name,
                    os.path.join(HERE, "vfio_scratch.c"),
                    *glob.glob(os.path.join(TOP, "bindings/vfio_user/*.c")), "-pthread"],
                   check=True)
    return name


def main():
    found = subprocess.run(["sh", os.path.join(TOP, "tests", "support", "qemu.sh")],
                           stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    if found.returncode:
        print("skip qtest_all " + found.stderr.strip().replace("\n", "; "))
        return 0
    folder = tempfile.mkdtemp()
    try:
        story(found.stdout.splitlines(), find_program(folder), folder)
    except Gone as gone:
        check("qtest_story_ends", False, gone)
    finally:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
