#!/usr/bin/env python3
"""Run test suites and add them up.

    tests/run.py [--jobs N] [--timeout SECONDS] [--again] [--long] SUITE...

A suite is a cmocka program, or a script that prints `ok NAME`, `not ok NAME` and `skip NAME
reason`, one a line.  A suite fails as a whole when it crashes, runs out of time, exits non-zero
without a failed test, or runs no test at all.  The last line is `N passed, N failed, N skipped`.

Network suites (NETWORK) wait more than they work: those that use only loopback run three at a time
beside all others.  Those with a guest (GUESTS) run one after the other, and two at a time when
there are no more network suites to begin.  What is left runs N at a time, and one more when there
is no guest any more: first what runs programs, compilers, other machines and valgrind (PROGRAMS),
which takes long; then the core suites, of dxpu.h and what is in C beside it.  It runs at a lower
priority, on what processor time the network suites leave: these would poll more often and fail,
where a case is about time, if they had to wait for a compiler.

Suites beside each other on few cores are slow, and some cases of network suites are about time.
With --again each network suite that failed is run once more, alone, when all others have ended: it
counts as its second run says, the first one's failure is printed all the same, and so is how many
passed only then.  With more than AGAIN_MAX of them something is wrong but the machine: none is run
again.

With --long the lines of scripts that begin with `# ` are printed, which have what they measured,
and scripts that say `# run.py: --alone` near their top run after all others, one after the other.
"""
import argparse
import collections
import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree


PROGRAMS = re.compile(r"cli_|(build|make|install|dist|complete|tree|cross|ct|footprint|prove|"
                      r"fuzz_replay|mutate|cov)\.py$")
NETWORK = re.compile(r"net_|cli_(embed|enroll|notify|pool|sandbox)\.py$|unit_store_etcd$")
GUESTS = re.compile(r"net_(soak_)?guest|net_demo")
AGAIN_MAX = 8
NICENESS = 10  # of what is no network suite, above this program's own
# The C library gives nothing back that a C suite frees: a simulation asks for it again at once, and
# page faults took a third of its time.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


class Result:
    def __init__(self, name):
        self.name = name
        self.passed = self.failed = self.skipped = 0
        self.notes = []  # what failed, and why
        self.output = ""
        self.seconds = self.cpu_seconds = 0.0

    def fail(self, note):
        self.failed += 1
        self.notes.append(note)


def command(suite):
    if suite.endswith(".py"):
        return [sys.executable, suite]
    if suite.endswith(".sh"):
        return ["bash", suite]
    return [os.path.join(".", suite) if os.sep not in suite else suite]


def add_xml(result, text):
    """One XML report of cmocka: <testsuites><testsuite><testcase>[<failure>|<skipped/>]."""
    try:
        # Bytes that XML does not allow may come from a failed test's message.
        root = ElementTree.fromstring(re.sub(r"[^\t\n\x20-\ud7ff]", "?", text))
    except ElementTree.ParseError as error:
        result.fail("unreadable report: %s" % error)
        return
    for case in root.iter("testcase"):
        trouble = [e for e in case if e.tag in ("failure", "error")]
        if trouble:
            words = " | ".join((e.text or "").strip() for e in trouble)
            result.fail("%s: %s" % (case.get("name"), words))
        elif case.find("skipped") is not None:
            result.skipped += 1
        else:
            result.passed += 1


def add_lines(result, text):
    for line in text.splitlines():
        if re.match(r"ok \S", line):
            result.passed += 1
        elif re.match(r"not ok \S", line):
            result.fail(line)
        elif re.match(r"skip \S", line):
            result.skipped += 1
            result.notes.append(line)


def says(suite, what):
    """The line `# run.py: WHAT` near the top of a script, if it has one."""
    if not suite.endswith((".py", ".sh")) or not os.path.exists(suite):
        return None
    with open(suite, errors="replace") as file:
        return re.search(r"^# run\.py: %s$" % what, file.read(4096), re.M)


def own_timeout(suite, timeout):
    """A script may say that it needs longer."""
    found = says(suite, r"--timeout (\d+)")
    return max(timeout, float(found.group(1))) if found else timeout


def finish(child, timeout):
    """Its output, its exit status, whether it ran out of time, and the processor's seconds."""
    late = threading.Event()

    def end():
        late.set()
        os.killpg(child.pid, signal.SIGKILL)  # the suite's own session, children too
    timer = threading.Timer(timeout, end)
    timer.start()
    with child.stdout:
        out = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return out, child.returncode, late.is_set(), used.ru_utime + used.ru_stime


def lower_priority(session):
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, session, niceness)
    # Linux shares the processor among sessions first, which have a niceness of their own: sched(7).
    # It takes one of them in 100 ms from who is not root.
    for _ in range(20):
        try:
            with open("/proc/%d/autogroup" % session, "w") as file:
                file.write(str(NICENESS))
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:
            return
        else:
            return


def run(suite, timeout):
    name = os.path.basename(suite)
    if os.path.dirname(suite).startswith("build/tests"):
        name += " (plain)"
    result = Result(name)
    script = suite.endswith((".py", ".sh"))
    timeout = own_timeout(suite, timeout)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ)
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        if not script:
            env["CMOCKA_MESSAGE_OUTPUT"] = "XML"
            env["CMOCKA_XML_FILE"] = os.path.join(folder, "%g.xml")
            env.update(KEEP_MEMORY)
        status, timed_out = None, False
        try:
            child = subprocess.Popen(command(suite), env=env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     start_new_session=True)
            if not is_network(suite):
                lower_priority(child.pid)
            out, status, timed_out, result.cpu_seconds = finish(child, timeout)
        except OSError as error:
            out = str(error).encode()
        result.output = out.decode("utf-8", "replace")
        if script:
            add_lines(result, result.output)
        else:
            reports = result.output  # there when a report file could not be opened
            for report in sorted(os.listdir(folder)):
                with open(os.path.join(folder, report), encoding="utf-8",
                          errors="replace") as file:
                    reports += file.read()
            # several groups of one name follow each other in one file
            for text in re.findall(r"<testsuites>.*?</testsuites>", reports, re.S):
                add_xml(result, text)
    result.seconds = time.monotonic() - start
    if timed_out:
        result.fail("timed out after %g s" % timeout)
    elif status is None:
        result.fail("could not be started")
    elif status < 0:
        result.fail("crashed: %s" % signal.Signals(-status).name)
    elif status > 0 and not result.failed:
        result.fail("exit status %d although no test failed" % status)
    elif status == 0 and not (result.passed or result.failed or result.skipped):
        result.fail("ran no test")
    elif status == 0 and result.failed:
        result.notes.append("exit status 0 although a test failed")
    return result


def show(result, long=False):
    print("%-4s %-28s %5d passed %3d failed %3d skipped %8.2f s %8.2f s of CPU"
          % ("FAIL" if result.failed else "ok", result.name, result.passed, result.failed,
             result.skipped, result.seconds, result.cpu_seconds))
    for note in result.notes:
        print("     " + note)
    for line in result.output.splitlines() if long else ():
        if line.startswith("# "):
            print("     " + line)
    if result.failed and result.output.strip():
        for line in result.output.splitlines()[-200:]:
            print("   | " + line)
    sys.stdout.flush()


def lanes(jobs):
    """What each of the threads runs: one suite after the other of the first kind that has any."""
    others = ("program", "core")
    return [others] * jobs + [("guest", *others), ("network", "guest")] + [("network",)] * 2


class Waiting:
    """Suites that have not begun, by their kind."""

    def __init__(self, suites):
        self.lock = threading.Lock()
        self.of = {kind: collections.deque() for kind in ("program", "core", "network", "guest")}
        for suite in suites:
            name = os.path.basename(suite)
            self.of["guest" if GUESTS.match(name) else "network" if is_network(suite) else
                    "program" if PROGRAMS.match(name) else "core"].append(suite)

    def take(self, kinds):
        """The next one of the first kind that has any, with its kind."""
        with self.lock:
            return next(((kind, self.of[kind].popleft()) for kind in kinds if self.of[kind]), None)

    def clear(self):
        with self.lock:
            for members in self.of.values():
                members.clear()


def run_lane(kinds, waiting, timeout, done):
    """Puts (kind, suite, result) into `done`; at last None, or what went wrong."""
    try:
        while True:
            taken = waiting.take(kinds)
            done.put(taken and (*taken, run(taken[1], timeout)))
            if not taken:
                return
    except BaseException as error:
        done.put(error)


def run_all(suites, jobs, timeout, long):
    """Yield (suite, result) as they end; then print when each kind of suite did."""
    alone = [s for s in suites if long and says(s, "--alone")]
    waiting, done = Waiting(s for s in suites if s not in alone), queue.SimpleQueue()
    count = {kind: len(members) for kind, members in waiting.of.items()}
    start = time.monotonic()
    ends = dict.fromkeys(count, start)
    running = lanes(jobs)
    for kinds in running:
        threading.Thread(target=run_lane, args=(kinds, waiting, timeout, done)).start()
    try:
        while running:
            ended = done.get()
            if isinstance(ended, BaseException):
                raise ended
            if ended is None:
                running.pop()
                continue
            kind, suite, result = ended
            ends[kind] = time.monotonic()
            yield suite, result
    finally:
        waiting.clear()  # after an interrupt none begins
    print(", ".join("%d %s suites after %.1f s" % (count[kind], kind, ends[kind] - start)
                    for kind in count))
    for suite in alone:
        yield suite, run(suite, timeout)


def is_network(suite):
    return NETWORK.match(os.path.basename(suite))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("suites", nargs="*")
    args = parser.parse_args()
    results = []
    for suite, result in run_all(args.suites, args.jobs, args.timeout, args.long):
        show(result, args.long)
        results.append((suite, result))
    if args.again:
        results = run_again(results, args.timeout)
    total = Result("total")
    for _, result in results:
        add(total, result)
    if not args.suites:
        total.fail("no suites")
        print("no suites")
    print("%d passed, %d failed, %d skipped" % (total.passed, total.failed, total.skipped))
    return 1 if total.failed else 0


def run_again(results, timeout):
    """The same, but with a second result, of a run alone, for each network suite that failed."""
    failed = [suite for suite, result in results if is_network(suite) and result.failed]
    if len(failed) > AGAIN_MAX:
        print("%d network suites failed: too many to be the slow machine, none is run again"
              % len(failed))
        return results
    again = {suite: run(suite, timeout) for suite in failed}
    for result in again.values():
        show(result)
    of = [(suite, result, again.get(suite, result)) for suite, result in results]
    chosen = [(suite, second if ran_as_much(first, second) else first)
              for suite, first, second in of]
    passed = [result.name for suite, result in chosen if suite in again and not result.failed]
    if passed:
        print("passed only when run again, alone: %s" % ", ".join(passed))
    return chosen


def ran_as_much(first, second):
    """A second run that skips what the first one ran says nothing of it."""
    return second.skipped <= first.skipped and \
        second.passed + second.failed >= first.passed


def add(total, result):
    total.passed += result.passed
    total.failed += result.failed
    total.skipped += result.skipped


if __name__ == "__main__":
    sys.exit(main())
