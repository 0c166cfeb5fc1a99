"""A stock Linux guest under QEMU, for tests: start it, run commands in it, see what it logs.

Standard library only.  Proxies and relays are started by examples/demo/lab.py's Lab."""
# SPDX-License-Identifier: MIT
import ctypes
import json
import lzma
import os
import re
import struct
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
# What a healthy kernel never prints.
COMPLAINTS = re.compile(r"\bBUG\b|\bWARNING\b|Call Trace|\bhung\b|blocked for more than|"
                        r"soft lockup|hard LOCKUP|rcu.*stall|\bOops\b|general protection|"
                        r"Kernel panic|UBSAN|refcount_t:|workqueue lockup|nobody cared|cut here|"
                        r"AER: .*[Ee]rror|can't be assigned|failed to assign|no space for")


# What a kernel does at its start is not tested: tests of its ciphers, measures against attacks,
# which cost a software-emulated CPU most, clocks measured on a machine that others use as well.
# A console's cursor is not shown: with each blink of it virtio_gpu sends the whole picture.
QUICK = "cryptomgr.notests mitigations=off nokaslr tsc=reliable lpj=4000000 no_timer_check " \
        "vt.global_cursor_default=0"
# For a guest of two processors: nothing runs on the second one unless it must.  A task that
# wanders between emulated processors takes half as long again, or twice; drivers have queues for
# both all the same.
APART = "isolcpus=1"
# On such a machine a processor of the guest may not run for half a minute: its kernel complains
# later.  No device may stop it for as long as that, which the tests' own limits are for.
PATIENT = "watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=60 workqueue.watchdog_thresh=60"


class Missing(Exception):
    """QEMU, or the guest's kernel and programs, cannot be had here."""


class Stuck(Exception):
    """The guest did not do in time what it was asked."""


def ask(script, *words):
    done = subprocess.run([script, *words], capture_output=True, text=True)
    if done.returncode:
        raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else script)
    return done.stdout.splitlines()


def tools(*which):
    """QEMU's command line, the directory of the kernel; raises Missing.  "gl": of a QEMU with its
    own virtio-gpu-gl."""
    return (ask(os.path.join(TESTS, "support", "qemu.sh"), *which),
            ask(os.path.join(HERE, "fetch.sh"))[0])


def unpacked(image):
    """What is packed in a bzImage, by what its header says (Documentation/arch/x86/boot.rst)."""
    at, length = struct.unpack_from("<II", image, 0x248)
    start = (image[0x1f1] + 1) * 512 + at
    data = image[start:start + length]  # with its size when unpacked behind it
    if data[:4] != b"\x28\xb5\x2f\xfd":
        return lzma.LZMADecompressor().decompress(data)
    zstd, size = ctypes.CDLL("libzstd.so.1"), struct.unpack("<I", data[-4:])[0]  # dpkg's library
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    plain = ctypes.create_string_buffer(size)
    got = zstd.ZSTD_decompress(plain, ctypes.c_size_t(size), data, ctypes.c_size_t(length - 4))
    if got != size:
        raise OSError("zstd")
    return plain.raw


def kernel(folder):
    """The kernel unpacked, once: packed, half of the time to a guest's first command is for
    that."""
    packed, plain = os.path.join(folder, "vmlinuz"), os.path.join(folder, "vmlinux")
    if os.path.exists(plain) and os.path.getmtime(plain) >= os.path.getmtime(packed):
        return plain
    with open(packed, "rb") as file:
        image = file.read()
    try:
        own = "%s.%d" % (plain, os.getpid())
        with open(own, "wb") as file:
            file.write(unpacked(image))
        os.replace(own, plain)  # another test may do the same
    except (lzma.LZMAError, OSError):  # of another kind, or in a directory of others
        return packed
    return plain


def accelerators():
    """QEMU's -accel, emulation unless DXPU_ACCEL says another: KVM is not asked for because it is
    there, since what a cloud's machine has under that name may start no guest."""
    return ["-accel", os.environ.get("DXPU_ACCEL", "tcg,thread=multi")]


def initramfs(path, *files):
    subprocess.run([os.path.join(HERE, "initramfs.sh"), path, *files], check=True)
    return path


def adapter(path, **more):
    """Value of QEMU's -device: the function that dxpu-host serves at a socket."""
    return json.dumps({"driver": "vfio-user-pci", "socket": {"path": path, "type": "unix"}, **more})


class Guest:
    """One virtual machine.  It belongs to `lab`, which ends it in any case."""

    # one processor: a second one, emulated, takes half as much again for the same work; see APART
    def __init__(self, lab, name, tools, initrd, socket, append="", memory=512, cpus=1,
                 reboots=False, extra=(), display="none"):
        qemu, folder = tools
        self.lab, self.name = lab, name
        self.log_file = lab.file(name + ".console")
        self.err_file = lab.file(name + ".qemu")
        self.text, self.part = "", b""
        self.next_id = 0
        self.seen = 0  # of the kernel's log that healthy() has read
        self.more = threading.Condition()
        command = qemu + [
            # without what no test uses and firmware and kernel look for
            "-machine", "q35,memory-backend=m,smm=off,vmport=off,i8042=off,sata=off,smbus=off",
            *accelerators(),
            # not `rep movsb`, which an emulated CPU does byte by byte
            "-cpu", "max,phys-bits=46,-erms,-fsrm", "-smp", str(cpus), "-m", str(memory),
            "-object", "memory-backend-memfd,id=m,size=%dM,share=on" % memory,
            "-nodefaults", "-display", display, "-monitor", "none",
            "-serial", "file:" + self.log_file, "-serial", "stdio",
            "-kernel", kernel(folder), "-initrd", initrd,
            "-append", "console=ttyS0 loglevel=6 panic=-1 %s %s %s" % (
                QUICK, PATIENT, append),
            "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
        if socket:
            command += ["-device", adapter(socket)]
        command += extra
        if not reboots:
            command.append("-no-reboot")
        with open(self.err_file, "wb") as err:
            self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=err, start_new_session=True)
        self.started = time.monotonic()
        lab.processes.append(self)
        threading.Thread(target=self.read, daemon=True).start()

    # What the lab asks of a process.
    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def read(self):
        """Whole lines: QEMU writes a character at a time."""
        while True:
            got = os.read(self.popen.stdout.fileno(), 65536)
            whole, end, part = (self.part + got).rpartition(b"\n")
            with self.more:
                self.text += (whole + end).decode("utf-8", "replace")
                self.part = part
                if end or not got:
                    self.more.notify_all()
            if not got:
                return
            time.sleep(0.002)

    def expect(self, pattern, seconds, mark=""):
        """Wait until the second serial port has said it, a line's end at its own end; what follows
        stays for the next.  It has `mark` in it, which is looked for first."""
        end = time.monotonic() + seconds
        with self.more:
            while True:
                found = mark in self.text and re.search(pattern, self.text, re.S | re.M)
                if found:
                    self.text = self.text[found.end():]
                    return found
                left = end - time.monotonic()
                if left <= 0 or self.popen.poll() is not None:
                    raise Stuck("%s: no %r in %g s; last: %s%s\nconsole: %s\nqemu: %s" % (
                        self.name, pattern, seconds, self.text[-500:], self.part[-500:],
                        self.log()[-2000:], self.errors()[-500:]))
                self.more.wait(min(left, 1))

    def ready(self, seconds=120):
        """Wait for the init; how long it took since the start or the last restart."""
        version = self.expect(r"^ready (\S+)\r?\n", seconds).group(1)
        took = time.monotonic() - self.started
        self.version = version
        return took

    def start(self, command):
        self.next_id += 1
        self.popen.stdin.write(("%d %s\n" % (self.next_id, command.replace("\n", "; "))).encode())
        self.popen.stdin.flush()
        return self.next_id

    def finish(self, number, seconds=60):
        found = self.expect(r"^<%d\r?\n(.*?)\r?\n?^>%d (\d+)\r?\n" % (number, number), seconds,
                            "\n>%d " % number)
        return int(found.group(2)), found.group(1).replace("\r\n", "\n")

    def run(self, command, seconds=60):
        """Exit status and output of a shell command."""
        return self.finish(self.start(command), seconds)

    def must(self, command, seconds=60):
        status, output = self.run(command, seconds)
        if status:
            raise AssertionError("%s: %s: exit status %d: %s" % (self.name, command, status,
                                                                 output[-3000:]))
        return output

    def wait_for(self, command, seconds=30):
        """Run it in the guest until it succeeds; the seconds that took.  `there PATTERN` is one
        that, like `[`, starts no process: one that does, 20 times a second, takes a third of a
        processor, so after a second it is run less often."""
        start = time.monotonic()
        loop = "there() { [ -e \"$1\" ]; }; w=0.05; i=0; until %s >/dev/null 2>&1; do " \
               "read -t $w never <>/dev/never; i=$((i+1)); [ $i -ne 20 ] || w=0.15; " \
               "[ $i -lt %d ] || exit 1; done" % (command, seconds * 7 + 13)
        status, _ = self.run(loop, seconds * 3 + 30)
        if status:
            raise Stuck("%s: not in %g s: %s\n%s" % (self.name, seconds, command,
                                                     self.log()[-2000:]))
        return time.monotonic() - start

    def log(self):
        if not os.path.exists(self.log_file):  # QEMU has not come to it
            return ""
        with open(self.log_file, errors="replace") as file:
            return file.read()

    def errors(self):
        with open(self.err_file, errors="replace") as file:
            return file.read()

    def complaints(self):
        """What the kernel should not have said since the last call."""
        log = self.log()
        fresh, self.seen = log[self.seen:], len(log)
        return [line for line in fresh.splitlines()
                if COMPLAINTS.search(line) and PATIENT not in line]  # its command line
