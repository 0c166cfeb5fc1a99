#!/usr/bin/env python3
"""What `make demo` runs, without a guest: the built-in root complex runs the story of a slot.

Prints `ok NAME` or `not ok NAME` for each check."""
# SPDX-License-Identifier: MIT
import contextlib
import errno
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402
FOLDER = os.path.join(rooms.ROOT, "examples", "demo")
import demo  # noqa: E402
from cases import case, check, main  # noqa: E402
import lab  # noqa: E402
import machines  # noqa: E402
import root  # noqa: E402

DEMO = [sys.executable, os.path.join(FOLDER, "demo.py"), "--fast", "--own"]
# The story alone: what is before it has been run, and takes as long.
STORY = [sys.executable, "-c", "import sys; sys.path.insert(0, %r); import demo; "
         "demo.PARTS = (demo.part_story,); sys.exit(demo.main())" % FOLDER] + DEMO[2:]
BOUND = 120  # seconds


def failures(output):
    """What did not hold, for the head of a long report."""
    return "\n".join(line for line in output.splitlines() if "FAILED" in line)


@case
def story_by_root_complex():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        done = subprocess.run(DEMO + ["--json", path], capture_output=True, text=True,
                              timeout=BOUND)
        check(done.returncode == 0, failures(done.stdout), done.stderr, done.stdout)
        with open(path) as file:
            figures = json.load(file)
    for word in ("no guest", "surprise removal", "All steps held.", "TLPs sent", "ratio",
                 "skip: OpenGL by Mesa"):
        check(word in done.stdout, word, done.stdout)
    told = figures["story"]
    check(figures["held"] and told["told_by"] == machines.BuiltIn.name, figures)
    check(told["verified_bytes"] > 0 and told["lossy_verified_bytes"] > 0, told)
    check(told["lost"] > 0 and told["resent_by_host"] + told["resent_by_box"] > 0, told)
    # A box is stopped for longer than its grace: its tenant reads the data again, whether another
    # device was free or not.
    check(told["recover_s"] > 0 and told["outlast_s"] > 0, told)
    check("retained, and taken back" in done.stdout, done.stdout)
    check("broken, and still the lease's: degraded" in done.stdout, done.stdout)
    check("no display adapter is lent: the built-in root complex" in done.stdout, done.stdout)
    for name in ("fabric_depth_1", "fabric_depth_32", "direct_depth_1", "direct_depth_32"):
        check(told[name]["iops"] > 0, told)
    check(all(figures["round_trip"][wait]["ratio"] > 0 for wait in ("busy", "block")), figures)


@case
def control_a_step_that_does_not_hold():
    """A relay that loses nothing: the story says so, and the exit status is 1."""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(lab.BIN):
            if name.startswith("dxpu") and os.access(os.path.join(lab.BIN, name), os.X_OK):
                os.symlink(os.path.join(lab.BIN, name), os.path.join(folder, name))
        relay = os.path.join(folder, "dxpu-relay")
        os.remove(relay)
        with open(relay, "w") as file:
            file.write('#!/bin/sh\nexec "%s" "$@" --loss 0\n' % os.path.join(lab.BIN, "dxpu-relay"))
        os.chmod(relay, stat.S_IRWXU)
        done = subprocess.run(STORY, capture_output=True, text=True, timeout=BOUND,
                              env=dict(os.environ, DXPU_BIN=folder))
    check(done.returncode == 1 and "FAILED: Failed: the relay lost nothing" in done.stdout
          and "All steps held." not in done.stdout, done.returncode, done.stdout, done.stderr)


@case
def load_that_saw_no_io_error():
    """Only errors of I/O show a removal: a fio that found no disk, or another file, does not."""
    def job(error, moved):
        return {"error": error, "read": {"io_bytes": moved}, "write": {"io_bytes": moved}}

    def refused(*ended):
        try:
            return not machines.io_end(*ended)
        except machines.Failed as failed:
            return "no I/O error" in str(failed)
    check("EIO" in machines.io_end(1, job(errno.EIO, 1 << 20)))
    check(refused(1, job(errno.EINVAL, 0)))  # opened after the removal
    check(refused(1, job(errno.EIO, 0)) and refused(1, job(0, 1 << 20)))


@case
def control_damage_is_seen():
    """A block that was changed behind the device's back is found by the root complex's check."""
    with lab.Lab() as l:
        disk = l.file("disk")
        direct = l.start("dxpu-direct", "--vfio-user", l.file("socket"), "--slots", 4, "--file",
                         disk, "--size", "4M")
        direct.says("waiting for a guest")
        complex_ = root.Root(l.file("socket"), 4)
        nvme = complex_.filled(1)
        nvme.fill(1, range(64))
        check(nvme.check(1, range(64)) == 0)
        with open(disk, "r+b") as file:
            file.seek(17 * root.BLOCK + 100)
            file.write(b"\0damage")
        check(nvme.check(1, range(64)) == 1, "the damage was not seen")
        check(not complex_.present(2), "an empty slot says that it is filled")
        complex_.close()
        check(direct.stop() == 0, direct.errors())


@case
def without_qemu():
    """The reason is printed, and the built-in root complex takes over."""
    told = io.StringIO()
    kept = os.environ.get("DXPU_QEMU")
    os.environ["DXPU_QEMU"] = "/bin/false"
    try:
        with contextlib.redirect_stdout(told):
            machine = demo.choose_machine(None, False)
    finally:
        os.environ.pop("DXPU_QEMU")
        if kept:
            os.environ["DXPU_QEMU"] = kept
    check(isinstance(machine, machines.BuiltIn) and "no QEMU" in told.getvalue()
          and "built-in root complex" in told.getvalue(), told.getvalue())


def session(leader):
    """What runs in a session."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as file:
                words = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(words[3]) == leader and words[0] != "Z":
            found.append(int(name))
    return found


@case
def interrupted():
    """Ctrl-C ends what was started."""
    child = subprocess.Popen(STORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)
    said = ""
    for line in child.stdout:
        said += line
        if "slot 1: " in line:
            break
    check(len(session(child.pid)) > 3, "nothing runs", said)  # control: it would be seen
    child.send_signal(signal.SIGINT)
    said += child.communicate(timeout=BOUND)[0]
    check(child.returncode == 130 and "interrupted" in said, child.returncode, said)
    check(not session(child.pid), "left over", session(child.pid))


@case
def usage():
    for args, status in ((["--help"], 0), (["--faster"], 2)):
        done = subprocess.run(DEMO + args, capture_output=True, text=True, timeout=BOUND)
        check(done.returncode == status and "--built-in" in done.stdout + done.stderr, done)


sys.exit(main())
