#!/usr/bin/env python3
# make: build/lib/libdxpu-pcap.a
"""Libraries that the programs load when they call them first: libcurl, libpcap (late.h).

Prints `ok NAME` or `not ok NAME` for each case."""
# SPDX-License-Identifier: MIT
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rooms import ROOT  # noqa: E402
from cases import case, check, main  # noqa: E402

BUILD = os.path.join(ROOT, "build")
PROGRAMS = ("dxpu", "dxpu-host", "dxpu-box", "dxpu-manager", "dxpu-device", "dxpu-render")
CAPTURE = os.path.join(ROOT, "tests", "data", "memory-mixed.pcap")
NO_MANAGER = {"DXPU_MANAGER": "http://127.0.0.1:9"}  # the port of discard
OTHERS = {"libcurl.so.4": "libcurl-gnutls.so.4", "libpcap.so.0.8": "libpcap.so.1"}
COMMANDS = {"libcurl.so.4": (("dxpu", "list", "boxes"), "libcurl4"),
            "libpcap.so.0.8": (("dxpu", "pcap", CAPTURE), "libpcap0.8")}


def needed(file):
    text = subprocess.run(["readelf", "-d", file], stdout=subprocess.PIPE, check=True,
                          text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(lib\w+)", text))


def run(words, **env):
    env = {k: v for k, v in os.environ.items() if not k.startswith("DXPU_")} | NO_MANAGER | env
    done = subprocess.run([os.path.join(BUILD, words[0]), *words[1:]], env=env, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout, done.stderr


@case
def no_program_needs_them_to_start():
    for program in PROGRAMS:
        found = needed(os.path.join(BUILD, program))
        check("libc" in found and not found & {"libcurl", "libpcap"}, program, found)


@case
def control_a_library_needs_it():
    found = glob.glob(os.path.join(BUILD, "lib", "libdxpu-pcap.so.*"))
    check(found and all("libpcap" in needed(library) for library in found), "not seen in", found)


def with_a_library(name, make):
    """Runs the command that uses the library, and one that does not, with what make(PATH) makes in
    the library's place, under each of its names."""
    with tempfile.TemporaryDirectory() as directory:
        for one in (name, OTHERS[name]):
            make(os.path.join(directory, one))
        return run(COMMANDS[name][0], LD_LIBRARY_PATH=directory), \
            run(("dxpu", "--version"), LD_LIBRARY_PATH=directory)


def damaged(path):
    with open(path, "w", encoding="ascii") as file:
        file.write("no library\n" * 1000)


def without_functions(path):
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-o", path, "-x",
                    "c", os.devnull], check=True)


def failing(name, make, said):
    (status, out, err), (other, _, _) = with_a_library(name, make)
    check(status == 3 and out == "" and len(err.splitlines()) == 1, status, out, err)
    check(all(word in err for word in ("dxpu ", name, *said)), err)
    check(other == 0, "a command without it fails, too")


@case
def without_libcurl():
    failing("libcurl.so.4", damaged, ["install libcurl4"])


@case
def without_libpcap():
    failing("libpcap.so.0.8", damaged, ["install libpcap0.8"])


@case
def another_libcurl():
    failing("libcurl.so.4", without_functions, ["curl_global_init", "a newer version is required"])


@case
def control_with_them():
    status, _, err = run(COMMANDS["libcurl.so.4"][0])
    check(status == 3 and ("Failed to connect" in err or "refused" in err), status, err)
    status, out, err = run(COMMANDS["libpcap.so.0.8"][0])
    check(status == 0 and "TLP" in out, status, out, err)


if __name__ == "__main__":
    sys.exit(main())
