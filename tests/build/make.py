#!/usr/bin/env python3
"""The Makefile and its helpers: what install puts where, that help lists every target, and what
happens when packages are missing."""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
failed = 0


def check(name, truth, shown=""):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name)
    if not truth:
        print("\n".join(str(shown).splitlines()[-20:]))


def run(*words, **env):
    settings = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    settings.update(env)
    done = subprocess.run(words, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def install(folder):
    """make install into an empty DESTDIR, then a program that finds the header by pkg-config."""
    status, out = run("make", "install", "DESTDIR=" + folder, "PREFIX=/opt/x")
    check("install", status == 0, out)
    found = sorted(os.path.relpath(os.path.join(where, name), folder)
                   for where, _, names in os.walk(folder) for name in names)
    programs = ("dxpu", "dxpu-box", "dxpu-host", "dxpu-manager")
    there = [name for where, _, names in os.walk(os.path.join(ROOT, "examples")) for name in names]
    pages, configs, units = ([name for name in there if name.endswith(end)]
                             for end in (".1", ".conf", ".service"))
    wanted = sorted(["opt/x/include/dxpu.h", "opt/x/lib/pkgconfig/dxpu.pc",
                     "opt/x/lib/libdxpu-inject.so"]
                    + ["opt/x/bin/" + p for p in programs]
                    + ["opt/x/share/man/man1/" + p for p in pages]
                    + ["opt/x/share/doc/dxpu/examples/" + p for p in configs]
                    + ["opt/x/lib/systemd/system/" + p for p in units])
    check("install_files", found == wanted, found)
    check("install_man_pages", set(pages) == {p + ".1" for p in programs}
          | {"dxpu-inject.1"}, pages)
    for page in sorted(pages):
        path = os.path.join(folder, "opt/x/share/man/man1", page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        check("man_page_" + page, re.search(r"(?m)^\.TH ", text) and ".SH NAME" in text, text[:200])
        if page == "dxpu-inject.1":  # a library: tests/inject/cli_inject.py compares its settings
            continue
        _, told = run(os.path.join(folder, "opt/x/bin", page[:-2]), "--help")
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", told))
        unknown = sorted(o for o in options if o.replace("-", "\\-") not in text)
        check("man_page_has_options_" + page, options and not unknown, unknown)
    check_units(folder)
    where = {"PKG_CONFIG_PATH": os.path.join(folder, "opt/x/lib/pkgconfig"),
             "PKG_CONFIG_SYSROOT_DIR": folder}
    status, flags = run("pkg-config", "--cflags", "dxpu", **where)
    check("install_pkg_config", flags.strip() == "-I%s/opt/x/include" % folder, flags)
    with open(os.path.join(ROOT, "dxpu.h"), encoding="utf-8") as file:
        version = re.search(r'DXPU_VERSION +"([^"]+)"', file.read()).group(1)
    status, out = run("pkg-config", "--modversion", "dxpu", **where)
    check("install_version", out.strip() == version, out)
    program = os.path.join(folder, "user")
    with open(program + ".c", "w", encoding="utf-8") as file:
        file.write("#define DXPU_IMPLEMENTATION\n#include <dxpu.h>\nint main(void)\n{\n"
                   "    return (int)dxpu_crc32(0, NULL, 0);\n}\n")
    status, out = run("cc", *flags.split(), "-o", program, program + ".c")
    check("install_usable", status == 0 and run(program)[0] == 0, out)


def verify(folder, name, text):
    """What systemd finds wrong with a unit's text; its programs are those of `folder`."""
    unit = os.path.join(folder, name.replace("@", "@1"))
    with open(unit, "w", encoding="utf-8") as file:
        file.write(text.replace("/opt/x/", folder + "/opt/x/"))
    status, out = run("systemd-analyze", "verify", "--man=no", unit)
    os.unlink(unit)
    return out if out or not status else "exit status %d" % status


def check_units(folder):
    """The units that install has put there: hardened, and calling programs as these are."""
    place = os.path.join(folder, "opt/x/lib/systemd/system")
    names = sorted(os.listdir(place))
    check("units", names == ["dxpu-box@.service", "dxpu-host@.service", "dxpu-manager.service"],
          names)
    check_socket(os.path.join(place, "dxpu-host@.service"))
    for name in names:
        with open(os.path.join(place, name), encoding="utf-8") as file:
            text = file.read()
        start = re.search(r"(?m)^ExecStart=/opt/x/bin/(dxpu-\w+) (.*)$", text)
        told = run(os.path.join(folder, "opt/x/bin", start.group(1)), "--help")[1] if start else ""
        options = re.findall(r"--[a-z-]+", start.group(2)) if start else []
        check("unit_starts_" + name, options and all(o + " " in told for o in options), text)
        wanted = ("DynamicUser=yes", "ProtectSystem=strict", "Restart=on-failure",
                  "StateDirectory=")
        check("unit_hardened_" + name, all("\n" + w in text for w in wanted), text)
        check("unit_bounded_" + name, re.search(r"(?m)^MemoryMax=\d+[%G]$", text)
              and re.search(r"(?m)^TasksMax=\d+$", text), text)
        # What the program calls lasting is left for people, and nothing else.
        check("unit_leaves_to_people_" + name, "\nRestartPreventExitStatus=2 5\n" in text, text)
        if not shutil.which("systemd-analyze"):
            print("skip unit_verified_%s no systemd-analyze" % name)
            continue
        wrong = verify(folder, name, text)
        check("unit_verified_" + name, not wrong, wrong)
        check("control_unit_verified_" + name,
              "Unknown key" in verify(folder, name, text.replace("UMask=", "UMasks=")))
        check_drop_in(folder, name, text)


def check_socket(unit):
    """The group of dxpu-host's unit reaches its socket; cli_sandbox.py tries these modes."""
    with open(unit, encoding="utf-8") as file:
        text = file.read()
    start = re.search(r"(?m)^ExecStart=.* --vfio-user %t/(\S+)/vm --socket-mode 660$", text)
    check("unit_socket", start and re.search(r"(?m)^Group=\w+$", text) and
          "\nRuntimeDirectory=%s\nRuntimeDirectoryMode=0750\n" % start.group(1) in text, text)


def check_drop_in(folder, name, text):
    """What the man page adds to a unit, behind the unit's text as systemd reads it."""
    page = re.split("[@.]", name)[0] + ".1"
    with open(os.path.join(folder, "opt/x/share/man/man1", page), encoding="utf-8") as file:
        found = re.search(r"(?ms)^\.nf\n(\[Service\]\n.*?)^\.fi", file.read())
    check("unit_drop_in_" + name, found, page)
    added = found.group(1).replace("\\-", "-").replace("\\e", "\\").replace("/usr/local", "/opt/x")
    wrong = verify(folder, name, text + added)
    check("unit_drop_in_verified_" + name, not wrong, wrong)


def targets():
    """Every phony target stands in make help, and the other way round."""
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
        text = file.read()
    phony = set(" ".join(re.findall(r"(?m)^\.PHONY:(.*)$", text)).split())
    listed = {line.split()[0] for line in run("make", "-s", "help")[1].splitlines() if line.split()}
    check("help_lists_targets", phony == listed, phony ^ listed)
    check("makefile_no_conditional_assignment", "?=" not in text)
    plan = ("make", "-n", "-W", "examples/cli/main.c", "build/examples/cli/main.o")
    short, whole = run(*plan)[1], run(*plan, "V=1")[1]
    check("makefile_says_little", "' CC examples/cli/main.c;" in short and "-Wextra" in short,
          short)
    check("makefile_v1_says_all", "-Wextra" in whole and "printf" not in whole, whole)
    check("makefile_no_recursion", "$(MAKE)" not in text and not re.search(r"\tmake ", text))


def packages(folder):
    """tests/packages.sh and the targets that use it, with none, or all, of the packages there."""
    def fake(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    path = folder + ":" + os.environ["PATH"]
    log = os.path.join(folder, "log")
    fake("dpkg-query", "exit 1\n")
    fake("id", "echo 1000\n")
    fake("apt-get", 'echo "$@" >> %s\n' % log)
    status, out = run("sh", "tests/packages.sh", "demo", PATH=path)
    line = re.search(r"apt-get install -y --no-install-recommends (.*)", out)
    demo = set(line.group(1).split()) if line else set()
    check("packages_line", status == 2 and {"gcc", "libevent-dev", "libpcap-dev", "python3"} <= demo
          and "clang" not in demo, out)
    status, out = run("sh", "tests/packages.sh", "check", PATH=path)
    check("packages_line_check", status == 2 and "gcc-arm-none-eabi" in out, out)
    status, out = run("sh", "tests/packages.sh", "cross", PATH=path)
    check("packages_line_cross", status == 2 and "clang-tidy" in out and "valgrind" in out, out)
    for target in ("demo", "check", "fuzz", "prove", "cross", "soak"):
        status, out = run("make", target, PATH=path)
        check("packages_stop_" + target, status == 2 and "apt-get install -y" in out
              and "run.py" not in out, out)
    check("packages_not_installed_by_user", not os.path.exists(log))
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    missing = [p for p in demo - {"libc6-dev"} if p not in readme]
    check("packages_in_readme", not missing, missing)
    fake("id", "echo 0\n")
    status, out = run("sh", "tests/packages.sh", "demo", PATH=path)
    with open(log, encoding="utf-8") as file:
        asked = file.read()
    check("packages_installed_by_root", status == 0 and "install" in asked and
          "libevent-dev" in asked, out + asked)
    fake("apt-get", "exit 1\n")
    status, out = run("sh", "tests/packages.sh", "demo", PATH=path)
    check("packages_failure_seen", status != 0, out)
    fake("dpkg-query", "echo 'ii '\n")
    status, out = run("sh", "tests/packages.sh", "check", PATH=path)
    check("packages_all_there", status == 0 and not out, out)


def main():
    for group in (install, packages):
        with tempfile.TemporaryDirectory() as folder:
            group(folder)
    targets()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
