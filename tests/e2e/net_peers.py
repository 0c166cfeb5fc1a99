#!/usr/bin/env python3
"""One slot's device reads and writes another one's memory: two real boxes, and a QEMU without a
guest whose processor this script plays.  Skipped, loudly, where no QEMU with a vfio-user client can
be had."""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import lab  # noqa: E402
import net_vfio_qtest as qtest  # noqa: E402

BAR0, BAR2, BAR4 = 0xE0000000, 0xE4000000, 0xE8000000
RAM = 0x400000
BYTES = 4096
A, B = 1, 2  # slots
COMMAND, STATUS, SOURCE, DESTINATION, SIZE = 0x04, 0x08, 0x0C, 0x14, 0x1C
COPY, COPY_SUCCESS, COPY_FAIL = 0x20, 0x10, 0x20
ACS_CONTROL, REDIRECT = 0x14C, 0x4 << 16
check = qtest.check


def good(status):
    return status & (COPY_SUCCESS | COPY_FAIL) == COPY_SUCCESS


def bad(status):
    return status & (COPY_SUCCESS | COPY_FAIL) == COPY_FAIL


class Machine(qtest.Machine):
    def bars(self):
        for register, value in ((0x10, BAR0), (0x14, 0), (0x18, BAR2), (0x20, BAR4), (0x24, 0)):
            self.configure(register, value)
        self.configure(0x04, 0x06, "w")

    def function(self, bus, device, register):
        return BAR0 + (bus << 20 | device << 15 | register)

    def window(self, slot):
        return BAR2 + (slot << 20)

    def memory(self, slot):
        """BAR 2 of the device: 8 KB."""
        return self.window(slot) + 0x4000

    def enumerate(self, slot):
        port, base = self.function(0, slot, 0), self.window(slot)
        self.do("writel", port + 0x18, slot << 16 | slot << 8)
        self.do("writel", port + 0x20, base | base >> 16)
        self.do("writel", port + 0x04, 0x6)
        device = self.function(slot, 0, 0)
        end = time.monotonic() + qtest.DEADLINE
        while self.do("readl", device) == 0xFFFFFFFF and time.monotonic() < end:
            time.sleep(0.01)
        for bar, offset in enumerate((0, 0x2000, 0x4000, 0x8000)):
            self.do("writel", device + 0x10 + 4 * bar, base + offset)
        self.do("writel", device + 0x04, 0x6)
        control = self.express(device) + 8  # the port's Max_Payload_Size, as a kernel gives it
        payload = self.do("readl", self.express(port) + 8) & 0xE0
        self.do("writel", control, self.do("readl", control) & 0xFF1F | payload)
        return self.do("readl", device) == 0xB500104C

    def express(self, function):
        """Where its PCI Express capability stands."""
        at = self.do("readl", function + 0x34) & 0xFC
        while at and self.do("readl", function + at) & 0xFF != 0x10:
            at = self.do("readl", function + at) >> 8 & 0xFC
        return function + at

    def put(self, address, data):
        self.ask("write", address, len(data), "0x" + data.hex())

    def copy(self, slot, source, destination, size=BYTES):
        """The slot's device copies; its status when it is done."""
        registers = self.window(slot)
        for register, value in ((SOURCE, source), (SOURCE + 4, 0), (DESTINATION, destination),
                                (DESTINATION + 4, 0), (SIZE, size), (COMMAND, COPY)):
            self.do("writel", registers + register, value)
        return self.changes(registers + STATUS, 0)


def story(l, qemu):
    boxes = [l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "eptest", "--json")
             for _ in range(2)]
    at = [box.address() for box in boxes]
    path = l.file("s.sock")
    host = l.start("dxpu-host", "--vfio-user", path, "--slots", 2, "--bar2", "64M", "--bar4", "64M",
                   "--attach", "1=%s/1,2=%s/1" % tuple(at), "--json")
    host.says("waiting for a guest")
    m = Machine(qemu, path)
    m.bars()
    check("peers_enumerated", m.enumerate(A) and m.enumerate(B))
    one, two = bytes(i * 7 & 0xFF for i in range(BYTES)), bytes(i * 13 & 0xFF for i in range(BYTES))
    m.put(m.memory(A), one)
    m.put(m.memory(B), one)
    m.put(RAM, two)

    status = m.copy(A, RAM, RAM + BYTES)
    check("control_host_memory", good(status) and m.read(RAM + BYTES, BYTES) == two, status)
    status = m.copy(A, m.memory(B), RAM + 2 * BYTES)
    check("read_from_the_other", good(status) and m.read(RAM + 2 * BYTES, BYTES) == one,
          status)
    status = m.copy(A, RAM, m.memory(B) + BYTES)
    check("write_to_the_other", good(status) and m.read(m.memory(B) + BYTES, BYTES) == two,
          status)
    status = m.copy(B, m.memory(A), m.memory(A) + BYTES)
    check("both_ends_at_the_other", good(status) and
          m.read(m.memory(A) + BYTES, BYTES) == one, status)

    port = m.function(0, A, ACS_CONTROL)
    m.do("writel", port, REDIRECT)
    status = m.copy(A, m.memory(B), RAM)
    check("redirected_is_refused", bad(status), status)
    m.do("writel", port, 0)
    status = m.copy(A, m.memory(B), RAM)
    check("control_not_redirected", good(status), status)

    # S-100: neither memory nor a window; the device's own window; the end of what is granted
    for name, address in (("nowhere", 0x7F000000), ("its_own", m.memory(A)),
                          ("over_the_end", m.window(B) + (1 << 20) - BYTES // 2)):
        status = m.copy(A, address, RAM)
        check("s100_%s_is_refused" % name, bad(status), status)
    m.copy(A, RAM + BYTES, 0x7F000000)  # posted: the device gets no answer
    status = m.copy(A, RAM + BYTES, RAM)
    check("control_after_refusals", good(status) and m.read(RAM, BYTES) == two, status)

    boxes[1].kill()
    status = m.copy(A, m.memory(B), RAM)  # fails when the channel is found dead
    check("the_other_dies", bad(status), status)
    status = m.copy(A, RAM + BYTES, RAM)
    check("control_after_it_died", good(status) and m.read(RAM, BYTES) == two, status)
    m.quit()
    check("host_ends", host.stop() == 0, host.errors())
    slots = host.result()
    check("counted", slots["slot_1"]["peer_tlps"] > 0 < slots["slot_2"]["peer_tlps"], slots)
    check("box_ends", boxes[0].stop() == 0, boxes[0].errors())
    why = boxes[0].result()["slot_1"]["refused"]
    check("s108_counted_at_the_box", why["window"] >= 3 and sum(why.values()) == why["window"], why)
    check("s108_reported_once", boxes[0].errors().count("refused a TLP of its device") == 1,
          boxes[0].errors())


def main():
    found = subprocess.run(["sh", os.path.join(rooms.TESTS, "support", "qemu.sh")],
                           stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    if found.returncode:
        print("skip net_peers " + found.stderr.strip().replace("\n", "; "))
        return 0
    with lab.Lab() as l:
        try:
            story(l, found.stdout.splitlines())
        except (qtest.Gone, RuntimeError) as gone:
            check("peers_story_ends", False, gone)
    return 1 if qtest.failed else 0


if __name__ == "__main__":
    sys.exit(main())
