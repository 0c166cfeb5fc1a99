#!/usr/bin/env python3
"""What make install puts where, and that it is of use: programs built with what pkg-config and
CMake say and nothing else, libraries that export what their headers declare, units that systemd
accepts; and that make uninstall removes all of it, and no more."""
# run.py: --timeout 600
import glob
import os
import re
import shutil
import sys
import tempfile

import make
from make import ROOT, check, run

PREFIX = "opt/x"
PROGRAMS = ("dxpu", "dxpu-box", "dxpu-host", "dxpu-manager", "dxpu-device",
            "dxpu-render")
# The headers of each binding that are for others, and headers and functions that are not.
PUBLIC = {"acceptor": "dxpu_acceptor", "af_xdp": "dxpu_af_xdp", "control": "dxpu_control",
          "firmware": "dxpu_firmware dxpu_firmware_keys dxpu_firmware_wire",
          "foreign": "dxpu_foreign",
          "guard": "dxpu_guard dxpu_windows dxpu_p2p", "libevent": "dxpu_libevent dxpu_tcp",
          "model": "dxpu_model", "pcap": "dxpu_pcap", "portable": "dxpu_portable",
          "push": "dxpu_push",
          "secure": "dxpu_noise dxpu_primitives dxpu_secure",
          "sodium": "dxpu_sodium dxpu_sodium_stream",
          "vfio_user": "dxpu_vfio_user dxpu_vfio_user_client",
          "vswitch": "dxpu_vswitch", "zlib": "dxpu_zlib"}
PRIVATE = ("dxpu_xdp_hops_open", "dxpu_seal_begin", "vfu_copy")
# With no target named it loads all of LLVM, for objects of link-time optimisation.
NM = ("nm", "--target=default")


def package(binding):
    return "dxpu-" + binding.replace("_", "-") if binding else "dxpu"


LIBRARIES = {package(""): ["dxpu"]}
# Headers of inline functions, which have no library, and these functions.
INLINE = {"acceptor": ["dxpu_acceptor_open", "dxpu_acceptor_reason", "dxpu_acceptor_repeats",
                       "dxpu_validation_arrived", "dxpu_validation_may_send"],
          "zlib": ["dxpu_zlib_crc32"]}
LIBRARIES.update((package(b), names.split()) for b, names in PUBLIC.items() if b not in INLINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def version():
    return re.search(r'DXPU_VERSION +"([^"]+)"', read(os.path.join(ROOT, "dxpu.h"))).group(1)


def soname():
    """Before 1.0 the minor version is in the name, too (spec/versions.md)."""
    return re.match(r"0\.\d+|\d+", version()).group(0)


def all_files(directory):
    return sorted(os.path.relpath(os.path.join(where, name), directory)
                  for where, _, names in os.walk(directory) for name in names)


def wanted_files(there):
    pages, configs, units = (sorted(n for n in there if n.endswith(end))
                             for end in (".1", ".conf", ".service"))
    names = ["include/%s.h" % h for headers in LIBRARIES.values() for h in headers]
    names += ["lib/libdxpu-inject.so", *("include/dxpu_%s.h" % b for b in INLINE)]
    for library in LIBRARIES:
        names += ["lib/lib%s%s" % (library, end) for end in (
            ".a", ".so", ".so." + soname(), ".so." + version())]
    names += ["lib/pkgconfig/%s.pc" % p for p in [*LIBRARIES, *map(package, INLINE)]]
    names += ["lib/cmake/dxpu/dxpu-config%s.cmake" % end for end in ("", "-version")]
    names += ["bin/" + p for p in PROGRAMS]
    names += ["share/bash-completion/completions/" + p for p in PROGRAMS]
    names += ["share/fish/vendor_completions.d/%s.fish" % p for p in PROGRAMS]
    names += ["share/zsh/site-functions/_dxpu"]
    names += ["share/man/man1/" + p for p in pages]
    names += ["share/man/man3/%s.3" % p for p in ["dxpu.h", *("dxpu_" + b for b in PUBLIC)]]
    names += ["share/doc/dxpu/LICENSE"]
    names += ["share/doc/dxpu/spec/" + os.path.basename(p)
              for end in ("md", "yaml") for p in glob.glob(os.path.join(ROOT, "spec/*." + end))]
    names += ["share/doc/dxpu/examples/" + p for p in configs]
    names += ["share/doc/dxpu/examples/embed/" + os.path.basename(p)
              for p in glob.glob(os.path.join(ROOT, "examples/embed/*.c*"))]
    names += ["lib/systemd/system/" + p for p in units]
    return sorted(PREFIX + "/" + n for n in names), pages


def install(directory):
    """Into an empty DESTDIR."""
    status, out = run("make", "install", "DESTDIR=" + directory, "PREFIX=/" + PREFIX)
    check("install", status == 0, out)
    found = all_files(directory)
    wanted, pages = wanted_files([name for where, _, names in os.walk(
        os.path.join(ROOT, "examples")) for name in names])
    check("install_files", found == wanted, set(found) ^ set(wanted))
    check("install_man_pages", set(pages) == {p + ".1" for p in PROGRAMS}
          | {"dxpu-inject.1"}, pages)
    for page in pages:
        check_page(directory, page)


def check_page(directory, page):
    text = read(os.path.join(directory, PREFIX, "share/man/man1", page))
    check("man_page_" + page, re.search(r"(?m)^\.TH ", text) and ".SH NAME" in text, text[:200])
    if page == "dxpu-inject.1":  # a library: tests/inject/cli_inject.py compares its settings
        return
    _, told = run(os.path.join(directory, PREFIX, "bin", page[:-2]), "--help-options")
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", told))
    unknown = sorted(o for o in options if o.replace("-", "\\-") not in text)
    check("man_page_has_options_" + page, options and not unknown, unknown)


def flags(directory, *words):
    status, out = run("pkg-config", *words, PKG_CONFIG_SYSROOT_DIR=directory,
                      PKG_CONFIG_PATH=os.path.join(directory, PREFIX, "lib/pkgconfig"))
    return out.split() if status == 0 else []


def header_alone(directory):
    """A program with an implementation of its own needs the header's place, and no library."""
    got = flags(directory, "--cflags", "dxpu")
    check("install_pkg_config", got == ["-I%s/%s/include" % (directory, PREFIX)], got)
    check("install_version", flags(directory, "--modversion", "dxpu") == [version()])
    program = os.path.join(directory, "user")
    write(program + ".c", "#define DXPU_IMPLEMENTATION\n#include <dxpu.h>\nint main(void)\n{\n"
          "    return (int)dxpu_crc32(0, NULL, 0);\n}\n")
    status, out = run("cc", *got, "-o", program, program + ".c")
    check("install_usable", status == 0 and run(program)[0] == 0, out)
    with_zlib = flags(directory, "--cflags", "--libs", "dxpu-zlib")
    write(program + ".c", "#include <dxpu_zlib.h>\n" + read(program + ".c"))
    status, out = run("cc", "-o", program, program + ".c", *with_zlib)
    check("install_zlib_usable", status == 0 and run(program)[0] == 0, out)


def exported(path):
    status, out = run(*NM, "--defined-only", *(["-gD"] if ".so" in path else ["-g"]), path)
    names = re.findall(r"(?m)^\w+ ([A-Z]) (\w+)(?:@\S+)?$", out)
    return {name for kind, name in names if kind != "A"} if status == 0 else set()


def symbols(directory):
    """Each library exports what its public headers declare; both kinds the same."""
    where = os.path.join(directory, PREFIX, "lib", "lib")
    own = {}
    for library, headers in LIBRARIES.items():
        text = "".join(read(os.path.join(directory, PREFIX, "include", h + ".h")) for h in headers)
        shared, static = exported(where + library + ".so"), exported(where + library + ".a")
        own[library] = sorted(shared)
        stray = {s for s in shared if not re.search(r"\bdxpu_\w+", s)
                 or not re.search(r"\b%s\b" % s, text)}
        check("exports_" + library, shared and not stray, stray)
        check("exports_alike_" + library, shared == static, shared ^ static)
        status, out = run("readelf", "-d", where + library + ".so")
        check("soname_" + library, status == 0 and
              "soname: [lib%s.so.%s]" % (library, soname()) in out, out)
    there = run(*NM, *glob.glob(os.path.join(ROOT, "build/pic/bindings/*/*.o")))[1]
    every = {s for names in own.values() for s in names}
    check("private_not_exported", not every & set(PRIVATE), every & set(PRIVATE))
    check("control_private_exists", all(" T %s\n" % p in there for p in PRIVATE))
    return own


def user(headers, names):
    """A program that needs every one of these."""
    return ("".join("#include <%s.h>\n" % h for h in headers) + "#include <stdio.h>\n"
            "static const void *const all[] = {\n" +
            "".join("    (const void *)&%s,\n" % n for n in names) +
            "};\nint main(void)\n{\n    size_t i, n = 0;\n"
            "    for (i = 0; i < sizeof all / sizeof *all; i++)\n        n += all[i] != NULL;\n"
            '    printf("%u\\n", (unsigned)n);\n    return 0;\n}\n')


# What the static ones need beside their own.
BELOW = {"dxpu-sodium": "-lsodium", "dxpu-libevent": "-levent", "dxpu-pcap": "-lpcap"}


def by_pkg_config(directory, own):
    lib = os.path.join(directory, PREFIX, "lib")
    program = os.path.join(directory, "user")
    for library, names in own.items():
        source = write(os.path.join(directory, library + ".c"), user(LIBRARIES[library], names))
        status, out = run("cc", "-std=c11", source, "-o", program,
                          *flags(directory, "--cflags", "--libs", library))
        ran = run(program, LD_LIBRARY_PATH=lib) if status == 0 else (status, out)
        check("pkg_config_" + library, ran == (0, "%d\n" % len(names)), ran)
        check("pkg_config_shared_" + library, run(program)[0] != 0)  # it asks for the library
        status, out = run("c++", "-std=c++11", "-fsyntax-only", "-x", "c++", source,
                          *flags(directory, "--cflags", library))
        check("pkg_config_cxx_" + library, status == 0, out)
    for library, below in BELOW.items():
        check("pkg_config_below_" + library,
              below in flags(directory, "--static", "--libs", library) and
              below not in flags(directory, "--libs", library))


def rendered(path):
    """What groff finds wrong with a page."""
    status, out = run("groff", "-t", "-man", "-Tutf8", "-ww", "-z", "-rLL=100n", path)
    return out if out or not status else "exit status %d" % status


def manual(directory, page, names):
    """A page names each function of its library, and its example builds as the page says."""
    path = os.path.join(directory, PREFIX, "share/man", "man" + page[-1], page)
    text = read(path)
    plain = text.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
    check("manual_version_" + page, '"dxpu %s"' % version() in text, text[:80])
    if shutil.which("groff"):
        wrong = rendered(path)
        check("manual_renders_" + page, not wrong, wrong)
    else:
        print("skip manual_renders_%s NO GROFF HERE" % page)
    if page.endswith(".1"):
        return
    missing = [n for n in names if not re.search(r"\b%s\b" % n, plain)]
    check("manual_has_functions_" + page, not missing, missing)
    line = re.search(r"(?m)^cc example\.c \$\(pkg-config --cflags --libs (\S+)\)$", plain)
    found = re.search(r"(?s)\.SH EXAMPLE\n\.nf\n(.*?)\.fi", plain)
    check("manual_has_example_" + page, line and found and ".SH ERRORS" in text)
    place = tempfile.mkdtemp(dir=directory)
    source = write(os.path.join(place, "example.c"), found.group(1).replace("\n\\&", "\n"))
    status, out = run("cc", "-std=c11", "-Wall", "-Wextra", "-D_DEFAULT_SOURCE", source, "-o",
                      source[:-2], *flags(directory, "--cflags", "--libs", line.group(1)))
    ran = run("sh", "-c", "cd %s && ./example" % place, LD_LIBRARY_PATH=os.path.join(
        directory, PREFIX, "lib")) if status == 0 else (status, out)
    check("manual_example_" + page, ran[0] == 0 and "arning" not in out and
          (ran[1] or page == "dxpu_vfio_user.3"), (out, ran))


def manuals(directory, own):
    for page in sorted(os.listdir(os.path.join(directory, PREFIX, "share/man/man1"))):
        manual(directory, page, [])
    manual(directory, "dxpu.h.3", own["dxpu"])
    for binding in PUBLIC:
        manual(directory, "dxpu_%s.3" % binding, own.get(package(binding), INLINE.get(binding)))
    if shutil.which("groff"):
        bad = write(os.path.join(directory, "bad.1"), ".TH X 1\n.SH NAME\n.XX y\n")
        check("control_manual_renders", "XX" in rendered(bad))


CMAKE = """cmake_minimum_required(VERSION 3.13)
project(user %s)
set_property(GLOBAL PROPERTY RULE_MESSAGES OFF) # each is a process of cmake
set_property(GLOBAL PROPERTY TARGET_MESSAGES OFF)
find_package(dxpu %s REQUIRED COMPONENTS %s)
foreach(l %s)
  add_library(${l}-object OBJECT ../dxpu-${l}.c)
  target_link_libraries(${l}-object dxpu::${l})
  foreach(kind "" -static)
    add_executable(${l}${kind} $<TARGET_OBJECTS:${l}-object>)
    target_link_libraries(${l}${kind} dxpu::${l}${kind})
  endforeach()
endforeach()
"""
ALONE = """add_executable(header ../user.c)
target_link_libraries(header dxpu::zlib)
"""


def configure(directory, place, *asked):
    write(os.path.join(place, "CMakeLists.txt"), CMAKE % asked + (ALONE if asked[-1] else ""))
    # By make it starts several processes for each file.
    kind = ["-G", "Ninja"] if shutil.which("ninja") else []
    return run("cmake", *kind, "-S", place, "-B", os.path.join(place, "build", asked[0] + asked[1]),
               "-DCMAKE_PREFIX_PATH=" + os.path.join(directory, PREFIX))


def without(directory, binding):
    """What cmake says where the package file does not have that binding."""
    parts = os.path.join(PREFIX, "lib/cmake/dxpu")
    other = tempfile.mkdtemp(dir=directory)
    shutil.copytree(os.path.join(directory, parts), os.path.join(other, parts))
    file = os.path.join(other, parts, "dxpu-config.cmake")
    write(file, re.sub(r".*_dxpu_inline\(%s .*\n" % binding, "", read(file)))
    return configure(other, other, "NONE", version(), binding, "")


def by_cmake(directory, own):
    if not shutil.which("cmake"):
        print("skip cmake NO CMAKE HERE: the package file is not tested")
        return
    shutil.copy(os.path.join(directory, "dxpu.c"), os.path.join(directory, "dxpu-dxpu.c"))
    own = dict(own, **{package(binding): names for binding, names in INLINE.items()})
    for binding, functions in INLINE.items():
        write(os.path.join(directory, package(binding) + ".c"),
              user(["dxpu_" + binding], functions))
    names = [library.replace("dxpu-", "", 1) for library in own]
    place = os.path.join(directory, "cmake")
    os.mkdir(place)
    for asked, parts, found in (("9.9", "", False), ("0.0.1", "", False), (version(), "x", False),
                                (version(), "sodium", True)):
        status, out = configure(directory, place, "NONE", asked, parts, "")
        check("%scmake_%s%s" % ("" if found else "control_", asked, parts),
              (status == 0) == found and (found or "dxpu" in out), out)
    status, out = without(directory, "acceptor")
    check("control_cmake_without_acceptor",
          status != 0 and "dxpu has no binding acceptor" in out, out)
    status, out = configure(directory, place, "C", version(), " ".join(names), " ".join(names))
    check("cmake_finds", status == 0, out)
    build = os.path.join(place, "build", "C" + version())
    status, out = run("cmake", "--build", build, "--parallel", "2")
    check("cmake_builds", status == 0, out)
    for library, name in zip(own, names):
        for kind, where in (("", os.path.join(directory, PREFIX, "lib")), ("-static", "")):
            ran = run(os.path.join(build, name + kind), LD_LIBRARY_PATH=where)
            check("cmake_" + name + kind, ran == (0, "%d\n" % len(own[library])), ran)
    check("cmake_header", run(os.path.join(build, "header"))[0] == 0)


def uninstall(directory):
    """Everything, and nothing that others have put beside it."""
    foreign = [os.path.join(directory, PREFIX, n)
               for n in ("lib/libother.so", "include/dxpu_own.h")]
    for name in foreign:
        write(name, "")
    status, out = run("make", "uninstall", "DESTDIR=" + directory, "PREFIX=/" + PREFIX)
    left = [os.path.join(directory, n) for n in all_files(directory) if n.startswith(PREFIX)]
    check("uninstall", status == 0 and sorted(left) == sorted(foreign), left)
    own = [n for n in ("lib/cmake/dxpu", "share/doc/dxpu")
           if os.path.exists(os.path.join(directory, PREFIX, n))]
    check("uninstall_directories", not own, own)


def verify(directory, name, text):
    """What systemd finds wrong with a unit's text; its programs are those of `directory`."""
    unit = os.path.join(directory, name.replace("@", "@1"))
    write(unit, text.replace("/opt/x/", directory + "/opt/x/"))
    status, out = run("systemd-analyze", "verify", "--man=no", unit)
    os.unlink(unit)
    return out if out or not status else "exit status %d" % status


def check_units(directory):
    """The units that install has put there: hardened, and calling programs as these are."""
    place = os.path.join(directory, "opt/x/lib/systemd/system")
    names = sorted(os.listdir(place))
    check("units", names == ["dxpu-box@.service", "dxpu-host@.service", "dxpu-manager.service"],
          names)
    check_socket(os.path.join(place, "dxpu-host@.service"))
    for name in names:
        text = read(os.path.join(place, name))
        start = re.search(r"(?m)^ExecStart=/opt/x/bin/(dxpu-\w+) (.*)$", text)
        program = os.path.join(directory, "opt/x/bin", start.group(1)) if start else ""
        told = run(program, "--help")[1] if start else ""
        options = re.findall(r"--[a-z-]+", start.group(2)) if start else []
        check("unit_starts_" + name, options and all(o + " " in told for o in options), text)
        wanted = ("DynamicUser=yes", "ProtectSystem=strict", "Restart=on-failure",
                  "StateDirectory=", "Type=notify\n")
        check("unit_hardened_" + name, all("\n" + w in text for w in wanted), text)
        check("unit_bounded_" + name, re.search(r"(?m)^MemoryMax=\d+[%G]$", text)
              and re.search(r"(?m)^TasksMax=\d+$", text), text)
        # What the program calls lasting is left for people, and nothing else.
        check("unit_leaves_to_people_" + name, "\nRestartPreventExitStatus=2 5\n" in text, text)
        if not shutil.which("systemd-analyze"):
            print("skip unit_verified_%s no systemd-analyze" % name)
            continue
        wrong = verify(directory, name, text)
        check("unit_verified_" + name, not wrong, wrong)
        check("control_unit_verified_" + name,
              "Unknown key" in verify(directory, name, text.replace("UMask=", "UMasks=")))
        check_drop_in(directory, name, text)


def check_socket(unit):
    """The group of dxpu-host's unit reaches its socket; cli_sandbox.py tries these modes."""
    text = read(unit)
    start = re.search(r"(?m)^ExecStart=.* --vfio-user %t/(\S+)/vm --socket-mode 660$", text)
    check("unit_socket", start and re.search(r"(?m)^Group=\w+$", text) and
          "\nRuntimeDirectory=%s\nRuntimeDirectoryMode=0750\n" % start.group(1) in text, text)


def check_drop_in(directory, name, text):
    """What the man page adds to a unit, behind the unit's text as systemd reads it."""
    page = re.split("[@.]", name)[0] + ".1"
    found = re.search(r"(?ms)^\.nf\n(\[Service\]\n.*?)^\.fi",
                      read(os.path.join(directory, "opt/x/share/man/man1", page)))
    check("unit_drop_in_" + name, found, page)
    added = found.group(1).replace("\\-", "-").replace("\\e", "\\").replace("/usr/local", "/opt/x")
    wrong = verify(directory, name, text + added)
    check("unit_drop_in_verified_" + name, not wrong, wrong)


def main():
    with tempfile.TemporaryDirectory() as directory:
        install(directory)
        check_units(directory)
        header_alone(directory)
        own = symbols(directory)
        manuals(directory, own)
        by_pkg_config(directory, own)
        by_cmake(directory, own)
        uninstall(directory)
    return 1 if make.failed else 0


if __name__ == "__main__":
    sys.exit(main())
