#!/usr/bin/env python3
"""Run libFuzzer targets for some minutes each, and keep a record of it: `make fuzz`.

    fuzz/run.py [--minutes N] [--jobs N] [TARGET...]     one after the other, or some at once

Targets are build/fuzz_TARGET [all that are there].  They start from the seeds (seeds.py) and from
build/corpus/TARGET, where what is new is kept; words are those of fuzz/dict/TARGET.dict, and
options what the target's source says behind `libFuzzer:`.  An input that ends a target is kept in
build/findings, and the target goes on without it.  Each run appends a line to build/fuzz.tsv, also
when it is interrupted; fuzz/report.py adds them up.  Exit status 1: something was found.
"""
import argparse
import concurrent.futures
import datetime
import glob
import os
import re
import signal
import subprocess
import sys
import threading
import time

import seeds

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD = os.path.join(ROOT, "build", "fuzz.tsv")
COLUMNS = ["target", "begun_utc", "commit", "compiler", "executions", "cpu_s", "wall_s", "edges",
           "features", "inputs", "findings"]
# An input of more than a minute is one that never ends.  Entropic schedules cost more than half of
# the time where one run has thousands of features, and a tenth of the quarantine sees as much.
ALWAYS = ["-print_final_stats=1", "-timeout=60", "-rss_limit_mb=2048", "-entropic=0"]
SANITIZER = "quarantine_size_mb=16:" + os.environ.get("ASAN_OPTIONS", "")
ENDS_MAX = 20  # of a target in a run: by then somebody should look
STATUS = re.compile(r"^#\d+\s+\w.* cov: (\d+) ft: (\d+) corp: (\d+)/", re.M)
EXECUTED = re.compile(r"^stat::number_of_executed_units: +(\d+)", re.M)
children, lock = set(), threading.Lock()
stopped = False


def output(words):
    try:
        return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False).stdout.strip()
    except OSError:
        return ""


def options(target):
    """What its source says: `libFuzzer: -max_len=512`."""
    with open(os.path.join(ROOT, "fuzz", "fuzz_%s.c" % target), encoding="utf-8") as file:
        found = re.search(r"libFuzzer: +((?:-\w+=\w+ ?)+)", file.read())
    words = found.group(1).split() if found else []
    dictionary = os.path.join(ROOT, "fuzz", "dict", target + ".dict")
    return words + (["-dict=" + dictionary] if os.path.exists(dictionary) else [])


def findings(target):
    return {f for f in glob.glob(os.path.join(ROOT, "build", "findings", target + "-*"))
            if not os.path.basename(f).startswith(target + "-slow-unit")}


def once(target, seconds, log):
    """Until it has found something or its time is over.  Its exit status, what it said, CPU."""
    places = [os.path.join(ROOT, "build", folder, target) for folder in ("corpus", "seeds")]
    for place in places + [os.path.join(ROOT, "build", "findings")]:
        os.makedirs(place, exist_ok=True)
    with open(log, "w", encoding="utf-8") as out:
        with lock:
            if stopped:
                return 0, "", 0
            child = subprocess.Popen(
                [os.path.join(ROOT, "build", "fuzz_" + target), *ALWAYS, *options(target),
                 "-max_total_time=%d" % max(1, seconds),
                 "-artifact_prefix=%s/build/findings/%s-" % (ROOT, target), *places],
                env=dict(os.environ, ASAN_OPTIONS=SANITIZER), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT)
            children.add(child)
        _, status, usage = os.wait4(child.pid, 0)
        with lock:
            children.discard(child)
        child.returncode = os.waitstatus_to_exitcode(status)
    with open(log, encoding="utf-8", errors="replace") as said:
        return child.returncode, said.read(), usage.ru_utime + usage.ru_stime


def run(target, minutes):
    """One line of the record."""
    seeds.unpack(os.path.join(ROOT, "build", "seeds"), [target])
    begun, start, before = datetime.datetime.utcnow(), time.monotonic(), findings(target)
    executions = edges = features = inputs = ends = 0
    cpu = 0.0
    while not stopped and ends < ENDS_MAX and time.monotonic() - start < minutes * 60:
        left = minutes * 60 - (time.monotonic() - start)
        rc, text, used = once(target, int(left) + 1,
                              os.path.join(ROOT, "build", "fuzz_%s.log" % target))
        executions += sum(int(n) for n in EXECUTED.findall(text))
        cpu += used
        for found in STATUS.finditer(text):
            edges, features, inputs = [int(found.group(i)) for i in (1, 2, 3)]
        if rc and not stopped:
            ends += 1
            where = re.findall(r"Test unit written to (\S+)", text)
            print("%s: ended with %d: %s" % (target, rc, where or text.strip().splitlines()[-1:]))
    return {"target": target, "begun_utc": begun.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "executions": executions, "cpu_s": "%.1f" % cpu,
            "wall_s": "%.1f" % (time.monotonic() - start), "edges": edges, "features": features,
            "inputs": inputs, "findings": max(len(findings(target) - before), ends)}


def keep(row):
    """Append, with the columns' names before the first."""
    with lock, open(RECORD, "a", encoding="utf-8") as file:
        if not file.tell():
            file.write("\t".join(COLUMNS) + "\n")
        file.write("\t".join(str(row[name]) for name in COLUMNS) + "\n")
    print("%(target)-10s %(executions)10s executions %(cpu_s)8s s CPU %(edges)6s edges "
          "%(findings)s findings" % row)
    sys.stdout.flush()


def stop(*_):
    """libFuzzer ends by itself, and says what it has done."""
    global stopped
    stopped = True
    for child in list(children):
        child.send_signal(signal.SIGINT)


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--minutes", type=float, default=1, help="for each target [1]")
    words.add_argument("--jobs", type=int, default=1, help="targets at once [1]")
    words.add_argument("target", nargs="*")
    given = words.parse_args()
    there = sorted(os.path.basename(f)[5:-2] for f in glob.glob(ROOT + "/fuzz/fuzz_*.c"))
    there = [t for t in there if os.access(os.path.join(ROOT, "build", "fuzz_" + t), os.X_OK)]
    missing = sorted(set(given.target) - set(there))
    if missing or not there:
        sys.exit("no such target is built: %s; make fuzz TARGETS=NAME" % " ".join(missing))
    about = {"commit": output(["git", "describe", "--always", "--dirty", "--abbrev=12"]) or "-",
             "compiler": output(["clang", "--version"]).split("\n")[0] or "-"}
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    found = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, given.jobs)) as pool:
        for row in [pool.submit(lambda t: keep_row(t, given.minutes, about), t)
                    for t in given.target or there]:
            found += row.result()
    sys.exit(1 if found else 0)


def keep_row(target, minutes, about):
    if stopped:
        return 0
    row = dict(run(target, minutes), **about)
    keep(row)
    return row["findings"]


if __name__ == "__main__":
    main()
