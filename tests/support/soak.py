"""What long runs share: sizes of processes and what of them grows, times of day that jump, and the
summary, which goes to build/soak.json too when a run is long.

Standard library only."""
# SPDX-License-Identifier: MIT
import collections
import fcntl
import json
import os
import re
import sys
import time

import rooms  # noqa: E402,F401
from cases import check  # noqa: E402
import lab  # noqa: E402
import schedule  # noqa: E402

MINUTES = float(os.environ.get("DXPU_SOAK_MINUTES", 0))
RESULTS = os.path.join(lab.ROOT, "build", "soak.json")
WARM_ROUNDS = 1  # after these memory is what it will be
# Of resident memory: an allocator's own affairs; of threads: a box starts those of its disks when
# there is work for them (JOBS_SPARES in examples/common/base/jobs.h).
SLACK = {"kb": 2048, "threads": 12}
JUMPS = -3600, 3600, -86400  # seconds, one after the other


def sizes(pid):
    """Resident kilobytes of its own (a guest's memory that it maps is the guest's), descriptors and
    threads of a process."""
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        text = file.read()
    return {"kb": int(re.search(r"RssAnon:\s+(\d+)", text).group(1)),
            "descriptors": len(os.listdir("/proc/%d/fd" % pid)),
            "threads": int(re.search(r"Threads:\s+(\d+)", text).group(1))}


def sizes_of_all(pid):
    """The same of a process and those that it has started, added up."""
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        children = [int(word) for word in file.read().split()]
    total = collections.Counter(sizes(pid))
    for child in children:
        total.update(sizes_of_all(child))
    return dict(total)


def grows(samples):
    """What of samples, one after each round, is not flat: the medians of the first and the last
    third differ.  What was before the first rounds does not count, and of memory two samples say
    nothing: the first is of a program that has hardly begun."""
    late = samples[WARM_ROUNDS if len(samples) > 2 else 0:]
    if len(samples) <= 2:
        late = [{name: s[name] for name in s if name != "kb"} for s in late]
    third = (len(late) + 2) // 3
    found = []
    for name in late[0] if len(late) > 1 else ():
        values = [s[name] for s in late]
        first, last = (sorted(part)[third // 2] for part in (values[:third], values[-third:]))
        if last > first + SLACK.get(name, 0):
            found.append((name, values))
    return found


class Lab(lab.Lab):
    """Its hosts, its boxes and its manager have a time of day each, which jump() moves."""

    def __init__(self):
        super().__init__()
        schedule.build()
        self.days = {n: schedule.Faults(self.file("day-of-" + n)) for n in sorted(lab.KINDS)}
        self.ahead = collections.Counter()

    def start(self, name, *args):
        if name not in self.days:
            return super().start(name, *args)
        with self.days[name].loaded():
            return super().start(name, *args)

    def jump(self, name, seconds):
        self.ahead[name] += seconds
        self.days[name].day(self.ahead[name])


class Soak:
    """One run: rounds for DXPU_SOAK_MINUTES, one when there are none."""

    def __init__(self, name):
        self.name, self.rounds = name, 0
        self.counts = collections.Counter()
        self.samples = []  # of each round {process: sizes}
        self.begin = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, unused):
        first, last = ((self.samples[n] if self.samples else {}) for n in (0, -1))
        summary = {"rounds": self.rounds, "seconds": round(time.monotonic() - self.begin, 1),
                   **self.counts, "first": first, "last": last,
                   "most_kb": {name: max(s[name]["kb"] for s in self.samples) for name in first},
                   "failed": repr(error)[:2000] if error else None}
        print("# %s: %s" % (self.name, json.dumps(summary)), flush=True)
        if MINUTES:
            self.keep(summary)

    def keep(self, summary):
        """Beside those of other runs."""
        os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
        with open(RESULTS, "a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            kept = json.loads(text) if text else {}
            kept[self.name] = summary
            file.truncate(0)
            json.dump(kept, file, indent=1)
            file.write("\n")

    def more(self):
        return not self.rounds or time.monotonic() < self.begin + 60 * MINUTES

    def do(self, trouble, *args):
        try:
            trouble(*args)
        except Exception:
            print("# round %d: %s" % (self.rounds + 1, trouble.__name__), flush=True)
            raise

    def flat(self, now):
        """A round is over, or the first is about to begin; now: {process: sizes}."""
        if self.samples:
            self.rounds += 1
        self.samples.append(now)
        for name in now:
            found = grows([s[name] for s in self.samples])
            check(not found, name, "grows:", found)
        if MINUTES:
            print("# %s, round %d, %.0f s: %s %s" % (
                self.name, self.rounds, time.monotonic() - self.begin,
                json.dumps(self.counts), json.dumps(now)), flush=True)
