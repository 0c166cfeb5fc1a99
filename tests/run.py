#!/usr/bin/env python3
"""Run test suites and add them up.

    tests/run.py [--jobs N] [--timeout SECONDS] SUITE...

A suite is a cmocka program, or a script that prints `ok NAME`, `not ok NAME` and `skip NAME
reason`, one a line.  A suite fails as a whole when it crashes, runs out of time, exits non-zero
without a failed test, or runs no test at all.  The last line is `N passed, N failed, N skipped`.

Suites whose name begins with net_ wait more than they work: they run beside the others, those with
a guest (GUESTS) one at a time, and those that use only loopback one at a time beside them.  Of the
others N run at a time: first those that run programs, compilers, other machines and valgrind
(PROGRAMS), which take long; then the core suites, of dxpu.h and what is in C beside it, so that no
core is idle at the end.
"""
import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree


PROGRAMS = re.compile(r"cli_|(build|make|install|dist|complete|tree|bench|cross|ct|footprint|prove|"
                      r"fuzz_replay|mutate|cov)\.py$")
GUESTS = re.compile(r"net_(soak_)?guest|net_demo")


class Result:
    def __init__(self, name):
        self.name = name
        self.passed = self.failed = self.skipped = 0
        self.notes = []  # what failed, and why
        self.output = ""
        self.seconds = 0.0

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


def own_timeout(suite, timeout):
    """A script may say near its top that it needs longer: `# run.py: --timeout SECONDS`."""
    with open(suite, errors="replace") as file:
        found = re.search(r"^# run\.py: --timeout (\d+)$", file.read(4096), re.M)
    return max(timeout, float(found.group(1))) if found else timeout


def run(suite, timeout):
    name = os.path.basename(suite)
    if os.path.dirname(suite).startswith("build/tests"):
        name += " (plain)"
    result = Result(name)
    script = suite.endswith((".py", ".sh"))
    if script and os.path.exists(suite):
        timeout = own_timeout(suite, timeout)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ)
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        if not script:
            env["CMOCKA_MESSAGE_OUTPUT"] = "XML"
            env["CMOCKA_XML_FILE"] = os.path.join(folder, "%g.xml")
        status, timed_out = None, False
        try:
            child = subprocess.Popen(command(suite), env=env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     start_new_session=True)
            try:
                out, _ = child.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
                os.killpg(child.pid, signal.SIGKILL)  # the suite's own session, children too
                out, _ = child.communicate()
            status = child.returncode
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


def show(result):
    print("%-4s %-28s %5d passed %3d failed %3d skipped %8.2f s"
          % ("FAIL" if result.failed else "ok", result.name, result.passed, result.failed,
             result.skipped, result.seconds))
    for note in result.notes:
        print("     " + note)
    if result.failed and result.output.strip():
        for line in result.output.splitlines()[-200:]:
            print("   | " + line)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("suites", nargs="*")
    args = parser.parse_args()
    guests = [s for s in args.suites if GUESTS.match(os.path.basename(s))]
    loopback = [s for s in args.suites if os.path.basename(s).startswith("net_")
                and s not in guests]
    programs = [s for s in args.suites if PROGRAMS.match(os.path.basename(s))]
    core = [s for s in args.suites if s not in guests + loopback + programs]
    total = Result("total")
    start = time.monotonic()
    ends = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool, \
            concurrent.futures.ThreadPoolExecutor(1) as lane, \
            concurrent.futures.ThreadPoolExecutor(1) as guest_lane:
        kinds = (("program", programs, pool), ("core", core, pool), ("network", loopback, lane),
                 ("guest", guests, guest_lane))
        kind = {}
        for name, suites, where in kinds:
            ends[name] = start
            kind.update({where.submit(run, suite, args.timeout): name for suite in suites})
        for future in concurrent.futures.as_completed(kind):
            add(total, future.result())
            ends[kind[future]] = time.monotonic()
    print(", ".join("%d %s suites after %.1f s" % (len(suites), name, ends[name] - start)
                    for name, suites, _ in kinds))
    if not args.suites:
        total.fail("no suites")
        print("no suites")
    print("%d passed, %d failed, %d skipped" % (total.passed, total.failed, total.skipped))
    return 1 if total.failed else 0


def add(total, result):
    show(result)
    total.passed += result.passed
    total.failed += result.failed
    total.skipped += result.skipped


if __name__ == "__main__":
    sys.exit(main())
