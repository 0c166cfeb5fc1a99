"""The schedule of faults.c, and the counts that it keeps: a file that test and program both map."""
# SPDX-License-Identifier: MIT
import contextlib
import mmap
import os
import re
import struct
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
LIBRARY = os.path.join(ROOT, "build", "faults.so")
RATE, MASK, STATE, CHOSEN, NTH, WAY, LIBRARIES, AHEAD, COUNTS = range(9)
WORDS = 128
SLOW_NS, SLOW_INODE = 126, 127
KILL = 99  # a way: the program ends before the call

with open(os.path.join(HERE, "faults.c"), encoding="utf-8") as source:
    FUNCTIONS = {m.group(1): m.group(2).split(", ") for m in
                 re.finditer(r"^    X\((\w+), (.*?)\)", source.read(), re.M)}
NAMES = list(FUNCTIONS)
MEMORY = ("malloc", "calloc", "realloc", "mmap")


def build():
    """Compiles the library; again only when its source is newer."""
    file = os.path.join(HERE, "faults.c")
    if not os.path.exists(LIBRARY) or os.path.getmtime(LIBRARY) < os.path.getmtime(file):
        os.makedirs(os.path.dirname(LIBRARY), exist_ok=True)
        new = "%s.%d" % (LIBRARY, os.getpid())  # suites may run side by side
        subprocess.run(["cc", "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Wshadow", "-Werror",
                        "-fPIC", "-shared", "-o", new, file, "-ldl"], check=True)
        os.rename(new, LIBRARY)


class Faults:
    """One file of words; several programs may have it one after the other, counts then go on."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(8 * WORDS))
        with open(path, "r+b") as file:
            self.words = mmap.mmap(file.fileno(), 8 * WORDS)

    def put(self, word, value):
        struct.pack_into("=Q", self.words, 8 * word, value)

    def get(self, word):
        return struct.unpack_from("=Q", self.words, 8 * word)[0]

    def clear(self):
        self.words[:] = bytes(8 * WORDS)

    def once(self, name, nth, way):
        """The nth call of this function fails, once."""
        self.clear()
        for word, value in ((CHOSEN, NAMES.index(name) + 1), (NTH, nth), (WAY, way)):
            self.put(word, value)

    def at_random(self, per_mille, names, seed):
        self.put(MASK, sum(1 << NAMES.index(n) for n in names))
        self.put(STATE, seed)
        self.put(RATE, per_mille)

    def day(self, seconds):
        """The time of day is so far ahead of the machine's."""
        self.put(AHEAD, int(seconds * 1e9) % (1 << 64))

    def slow(self, path, seconds):
        """Each access of this file's data, or each fsync of this directory, takes that time."""
        self.put(SLOW_NS, int(seconds * 1e9))
        self.put(SLOW_INODE, os.stat(path).st_ino if seconds else 0)

    def calls(self):
        return {n: self.get(COUNTS + 2 * i) for i, n in enumerate(NAMES)}

    def faults(self):
        return {n: self.get(COUNTS + 2 * i + 1) for i, n in enumerate(NAMES)}

    def total(self):
        return sum(self.faults().values())

    @contextlib.contextmanager
    def loaded(self):
        """Programs that are started in it are under this schedule."""
        os.environ.update(LD_PRELOAD=LIBRARY, DXPU_FAULTS=self.path)
        try:
            yield self
        finally:
            del os.environ["LD_PRELOAD"], os.environ["DXPU_FAULTS"]


def ended(process, seconds):
    """Exit status of one that ends by itself, or None when it is still there."""
    end = time.monotonic() + seconds
    while process.popen.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    return process.popen.poll()
