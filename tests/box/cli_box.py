#!/usr/bin/env python3
"""What dxpu-box makes of the options for its disks, before any host comes.

Prints `ok NAME` or `not ok NAME` for each check."""
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import rooms  # noqa: E402,F401
import lab  # noqa: E402

failed = 0


def check(name, truth, *shown):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name + ("" if truth else "  # %s" % (shown,)))


def box(l, *options):
    return l.start("dxpu-box", "--listen", "127.0.0.1:0", "--device", "nvme", *options)


def refused(l, name, status, says, *options):
    b = box(l, *options)
    got = b.wait(10)
    check(name, got == status and says in b.errors(), got, b.errors())


def files(l):
    """A file for each namespace of each slot, of the size that was asked for."""
    a, b = l.file("a.img"), l.file("b.img")
    running = box(l, "--file", a + "," + b, "--size", "1M", "--slots", 2)
    running.address()
    sizes = [os.path.getsize(f) if os.path.exists(f) else None
             for f in (a, b, a + ".2", b + ".2")]
    check("box_files_of_slots_and_namespaces", sizes == [1 << 20] * 4, sizes)
    refused(l, "box_file_in_use", 3, "in use", "--file", b)
    missing = l.file("slip.img")
    refused(l, "box_missing_file", 3, "--size", "--file", missing)
    refused(l, "box_missing_file_with_results", 3, "--size", "--file", missing, "--json",
            "--stats")
    check("box_missing_file_is_not_made", not os.path.exists(missing))
    check("box_ends_in_order", running.stop() == 0)
    again = box(l, "--file", b)
    again.address()
    check("box_file_is_free_again", again.stop() == 0)


def options(l):
    refused(l, "box_serial_too_long", 2, "--serial", "--serial", "x" * 17)
    refused(l, "box_serial_with_blank", 2, "--serial", "--serial", "a b")
    refused(l, "box_serial_empty", 2, "--serial", "--serial", "")
    refused(l, "box_namespaces_and_file", 2, "--namespaces", "--namespaces", 2, "--file",
            l.file("c"))
    refused(l, "box_read_only_memory", 2, "--read-only", "--device", "virtio-blk", "--read-only")
    refused(l, "box_read_only_nvme", 2, "--read-only", "--read-only", "--device", "nvme", "--file",
            l.file("disk"))
    refused(l, "box_virtio_blk_files", 2, "--file", "--device", "virtio-blk", "--file", "a,b")
    refused(l, "box_too_many_namespaces", 2, "--namespaces", "--namespaces", 33)
    good = box(l, "--serial", "x" * 16, "--namespaces", 32, "--size", "1M", "--slots", 2)
    good.address()
    check("box_control_good_options", good.stop() == 0)


def pipes(l):
    """Where a file is meant, one that would hold the box up is refused.  The control: a file."""
    pipe, file = l.file("pipe"), l.file("file")
    os.mkfifo(pipe)
    of_manager = "--manager", "127.0.0.1:9", "--manager-key", l.public("manager")
    for name, status, *given in (("state", 3), ("record", 3), ("frames", 3), ("file", 3),
                                 ("identity", 2, *of_manager, "--state", file)):
        refused(l, "box_pipe_as_" + name, status, "pipe", *given, "--" + name, pipe)
    refused(l, "box_stdout_as_record", 3, "pipe", "--record", "-")
    good = box(l, "--state", file, "--record", l.file("tlps"), "--frames", l.file("frames"))
    good.address()
    check("box_control_files", good.stop() == 0)


def reads_and_writes(l):
    """A configuration that cannot be read to its end, and results that are not read."""
    refused(l, "box_config_is_a_folder", 2, "cannot read", "--config", l.folder)
    for name, to, status in (("control_json", os.devnull, 0),
                             ("json_to_a_full_disk", "/dev/full", 3)):
        with open(to, "wb") as out, tempfile.TemporaryFile("w+") as errors:
            b = subprocess.Popen([os.path.join(lab.BIN, "dxpu-box"), "--plain", "--listen",
                                  "127.0.0.1:0", "--memory", "64K", "--json"],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
            end = time.monotonic() + 10
            while "slot at" not in said(errors) and time.monotonic() < end:
                time.sleep(0.02)
            b.terminate()
            got = b.wait(10)
            check("box_" + name, got == status and
                  (not status or "standard output" in said(errors)), got, said(errors))


def said(file):
    file.seek(0)
    return file.read()


with lab.Lab() as the_lab:
    files(the_lab)
    pipes(the_lab)
    options(the_lab)
    reads_and_writes(the_lab)
sys.exit(1 if failed else 0)
