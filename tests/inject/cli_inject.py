#!/usr/bin/env python3
# run.py: --timeout 900
"""libdxpu-inject.so, preloaded into small programs over a stand-in for the CUDA driver: every entry
found in every way, what is added and what is not, profiles, settings.  No GPU is needed; the clock
is the stand-in's."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "inject")
sys.path.insert(0, os.path.join(ROOT, "examples", "inject", "measure"))
from measure import added_ns  # noqa: E402
SOURCES = sorted(glob.glob(os.path.join(ROOT, "examples", "inject", "*.c")))
WARN = ("-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wvla -Wstrict-prototypes "
        "-Wmissing-prototypes -Wwrite-strings -Wformat=2 -Werror").split()
NM = ["--target=default"]  # else it loads all of LLVM, for objects of link-time optimisation
BUILT = os.path.join(ROOT, "build", "libdxpu-inject.so")
SANITIZE = ["-Og", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
WAYS = ("dlsym", "default", "next", "proc_v1", "proc_v2", "proc_of_proc")
RTT_US = 6.8
failed = 0


def check(name, truth, shown=""):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name)
    if not truth:
        print("\n".join("  " + line for line in str(shown).splitlines()[-30:]))


class Rig:
    """The library, the stand-in and the programs in one directory; of `programs`, another rig, only
    the library is compiled again.  The library that is neither sanitized nor by another compiler
    is the one that `make` builds."""

    def __init__(self, folder, compiler="gcc", flags=(), more=("scenes", "steps"), programs=None):
        self.folder = folder
        self.flags = list(flags)
        self.compiler = compiler
        self.preload = []
        self.natives = programs.natives if programs else {}
        if flags:
            self.preload = [subprocess.run([compiler, "-print-file-name=libasan.so"], text=True,
                                           stdout=subprocess.PIPE).stdout.strip()]
        self.problems = ""
        if flags or compiler != "gcc":
            self.problems += self.library("-fPIC", "-shared")
        else:
            os.symlink(BUILT, self.path("libdxpu-inject.so"))
        if programs:
            for name in ("libcuda.so.1", "ways", "ways_linked", *more):
                os.symlink(programs.path(name), self.path(name))
            return
        self.problems += self.compile("standin.o", "-fPIC", "-c", "-Wno-unused-parameter",
                                      os.path.join(HERE, "standin.c"))
        self.problems += self.driver("libcuda.so.1")
        link = ["-L" + folder, "-l:libcuda.so.1"]
        self.problems += self.compile("ways", "-DLINKED=0", os.path.join(HERE, "ways.c"))
        self.problems += self.compile("ways_linked", "-DLINKED=1", os.path.join(HERE, "ways.c"),
                                      *link)
        for name in more:
            self.problems += self.compile(name, os.path.join(HERE, name + ".c"), *link)

    def driver(self, path, *words):
        return self.compile(path, "-shared", "-Wl,-soname,libcuda.so.1", *words,
                            self.path("standin.o"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def compile(self, name, *words):
        include = ["-I" + os.path.join(ROOT, where) for where in (
            "", "bindings/model", "examples/inject", "tests/inject")]
        done = subprocess.run([self.compiler, "-std=c11", "-O1", "-pthread", *WARN,
                               *include, *self.flags, "-o", self.path(name), *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout if done.returncode else ""

    def library(self, *shared):
        """The address sanitizer looks its own functions up while it starts: the hook of dlsym can
        have the other sanitizer only."""
        early = [s for s in SOURCES if s.endswith("/lookup.c")]
        late = [s for s in SOURCES if s not in early]
        flags, self.flags = self.flags, [f.replace("address,", "") for f in self.flags]
        shipped = [] if flags else ["-O2"]
        problems = self.compile("lookup.o", *shipped, "-fPIC", "-c", *early)
        self.flags = flags
        return problems + self.compile("libdxpu-inject.so", *shipped, *shared, *late,
                                       self.path("lookup.o"), "-lm")

    def native(self, program, *words, **settings):
        """run() without the library; what it says is the same each time."""
        key = (program, words, tuple(sorted(settings.items())))
        if key not in self.natives:
            self.natives[key] = self.run(program, *words, preload=False, **settings)
        return self.natives[key]

    def run(self, program, *words, preload=True, before=(), drivers=None, **settings):
        """(status, output) of a program; settings are DXPU_INJECT_*, or whole names."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("DXPU_INJECT_")}
        env["LD_LIBRARY_PATH"] = drivers or self.folder
        for key, value in settings.items():
            env[key if key.startswith(("STANDIN_", "CUDA_")) else "DXPU_INJECT_" + key] = str(value)
        own = [self.path("libdxpu-inject.so")] if preload else []
        if not preload:  # looked for with the library: the stand-in's megabytes are read for it
            env["ASAN_OPTIONS"] = "detect_leaks=0"
        env["LD_PRELOAD"] = ":".join(self.preload + own + list(before))
        try:
            done = subprocess.run([self.path(program), *words], env=env, cwd=self.folder,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return None, "timed out"
        return done.returncode, done.stdout


# ---- every entry, in every way

def missing(lines):
    return [line for line in lines if line.endswith(" missing")]


def parse(line):
    """(name, round, extra, result, [(kind, stream, bytes, entry, whose)])"""
    name, number, extra, result, *records = line.split()
    return name, number, extra, result, [tuple(r.split(":")) for r in records]


def native_problems(out):
    """Each call reaches the driver as itself, and nothing else does."""
    bad = []
    for line in out.splitlines():
        name, _, _, result, records = parse(line)
        times = 3 if "Batch" in name else 1
        if result != "0" or [(r[3], r[4]) for r in records] != [(name, "own")] * times:
            bad.append(line)
    return bad


def injected_problems(out, native):
    """The same calls in the same streams, each behind what is to be added."""
    bad = []
    lines, before = out.splitlines(), native.splitlines()
    if len(lines) != len(before) or not lines:
        return ["%d lines, not %d" % (len(lines), len(before))]
    for line, was in zip(lines, before):
        name, _, extra, result, records = parse(line)
        _, _, _, native_result, native_records = parse(was)
        wanted = [] if extra == "-" else list(extra)
        added, kept = records[:len(wanted)], records[len(wanted):]
        if (result != native_result or kept != native_records
                or [r[0] for r in added] != wanted
                or any(r[4] != "other" or r[1] != kept[0][1] for r in added)):
            bad.append(line)
    return bad


def entries(rig):
    """Names that the library exports, and those the programs call."""
    status, out = rig.native("ways", "dlsym")
    called = {line.split()[0] for line in out.splitlines()}
    told = subprocess.run(["nm", *NM, "-D", "--defined-only", rig.path("libdxpu-inject.so")],
                          stdout=subprocess.PIPE, text=True).stdout
    exported = {line.split()[2] for line in told.splitlines()}
    others = {n for n in exported if re.match(r"cu(GetProcAddress|CtxDestroy|DevicePrimaryCtx)", n)}
    lookups = {"dlsym", "dlvsym"}
    check("every_entry_is_called", status == 0 and exported - others - lookups == called,
          (exported - others - lookups) ^ called)
    check("exports_nothing_else", len(others) == 8 and lookups <= exported, sorted(exported))


def ways(rig, kind):
    for way in ("linked",) + WAYS:
        program = "ways_linked" if way == "linked" else "ways"
        for inner in ((False, True) if way.startswith("proc") else (False,)):
            name = way + ("_inner" if inner else "") + kind
            told = {"STANDIN_INNER": 1} if inner else {}
            status, native = rig.native(program, way, **told)
            check("control_native_" + name, status == 0 and len(native.splitlines()) == 200
                  and not native_problems(native), native_problems(native) or native)
            status, out = rig.run(program, way, RTT_US=RTT_US, **told)
            bad = injected_problems(out, native)
            check("injected_" + name, status == 0 and not bad, "\n".join(bad) or out)
            status, out = rig.run(program, way, **told)
            check("off_" + name, status == 0 and out == native, out)
            check("control_off_is_seen_" + name, injected_problems(out, native))


def versions(rig):
    """dlvsym finds what has a version; the driver's functions have none, the stand-in's here do."""
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "map")
        with open(script, "w", encoding="utf-8") as file:
            file.write("STANDIN_1 { global: *; };\n")
        problem = rig.driver(os.path.join(folder, "libcuda.so.1"), "-Wl,--version-script=" + script)
        check("versioned_stand_in", not problem, problem)
        _, native = rig.run("ways", "dlvsym", preload=False, drivers=folder)
        _, out = rig.run("ways", "dlvsym", drivers=folder, RTT_US=RTT_US)
        check("control_native_dlvsym", len(native.splitlines()) == 200
              and not missing(native.splitlines()) and not native_problems(native), native)
        bad = injected_problems(out, native)
        check("injected_dlvsym", not bad, "\n".join(bad))
        _, native = rig.run("ways", "dlvsym", preload=False)
        _, out = rig.run("ways", "dlvsym", RTT_US=RTT_US)
        check("dlvsym_without_versions", out == native and len(missing(native.splitlines())) == 200)


PROBE = """#define _GNU_SOURCE
#include <dlfcn.h>
int probe(void);
int probe(void)
{
#ifdef BASE
    return 42;
#else
    int (*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "probe");
    return next ? next() + 1 : -1;
#endif
}
"""
PROBE_MAIN = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int probe(void);
int main(void)
{
    printf("%d\\n", probe());
    int found = dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2") != NULL;
    printf("%d %s\\n", found, dlerror() ? "told" : "not told");
    return 0;
}
"""


def bystanders(rig):
    """Programs and other preloaded libraries that ask for other symbols, without a driver."""
    plain = Rig.__new__(Rig)
    plain.__dict__.update(rig.__dict__, flags=["-Wno-pedantic", "-Wno-error"])
    for name, text in (("probe.c", PROBE), ("main.c", PROBE_MAIN)):
        with open(rig.path(name), "w", encoding="utf-8") as file:
            file.write(text)
    shared = ["-fPIC", "-shared", rig.path("probe.c")]
    problems = plain.compile("libbase.so", "-DBASE", *shared)
    problems += plain.compile("libshim.so", *shared)
    problems += plain.compile("probe", rig.path("main.c"), "-L" + rig.folder, "-l:libbase.so")
    check("bystander_built", not problems, problems)
    shim = [rig.path("libshim.so")]
    native = rig.run("probe", preload=False, before=shim)
    check("control_next_through_a_shim", native == (0, "43\n0 told\n"), native)
    out = rig.run("probe", before=shim, RTT_US=RTT_US)
    check("next_is_the_callers_next", out == native, out)


# ---- what is added, and what never changes

def times(rig):
    sizes = {"htod": 4096, "htod_64k": 65536, "htod_1m": 1 << 20}
    _, out = rig.run("scenes", "time", preload=False)
    native = {line.split()[0]: float(line.split()[1]) for line in out.splitlines()}
    check("control_times_native", native.get("htod") == 1841 and native.get("kernel") == 11200, out)
    for rtt in (4.9, 6.8, 19):
        _, out = rig.run("scenes", "time", RTT_US=rtt)
        for line in out.splitlines():
            thing, ns = line.split()
            wanted = added_ns(thing, sizes.get(thing), rtt, 140 * 128, 11.2)
            # the size of a copy is found to half a percent
            off = abs(float(ns) - native[thing] - wanted)
            check("added_%s_rtt_%g" % (thing, rtt), off <= 0.01 * wanted + 2,
                  "%s ns natively, %s ns here, %.0f ns to add" % (native[thing], ns, wanted))
    _, out = rig.run("scenes", "time", RTT_US=6.8, GRAPH_RTTS=3)
    graph = [line.split()[1] for line in out.splitlines() if line.startswith("graph")]
    # three kernels of RTT_delta
    check("added_graph_rtts", graph and abs(float(graph[0]) - native["graph"] - 16800) < 200, out)


def delays(rig):
    """With METHOD=delay nothing is sent to the GPU; the time passes in the caller."""
    _, native = rig.run("scenes", "delay", preload=False)
    _, out = rig.run("scenes", "delay", RTT_US=6.8, METHOD="delay")
    waited = dict(line.split() for line in out.splitlines() if len(line.split()) == 2)
    for thing, size in (("htod", 4096), ("htod_1m", 1 << 20), ("dtoh", 0), ("kernel", 0)):
        wanted = added_ns(thing, size, 6.8, 140 * 128, 11.2)
        check("delay_" + thing, 0 <= int(waited[thing]) - wanted <= 40, waited)
    check("delay_inside", int(waited["inside"]) == 0, waited)
    own = [line for line in out.splitlines() if len(line.split()) == 4]
    check("delay_adds_no_operation", own and own == [
        line for line in native.splitlines() if len(line.split()) == 4], out)


def costs_nothing_when_off(rig):
    """Instructions of a copy and a launch, natively and with the library preloaded and off."""
    def steps(run=rig.run, **more):
        status, out = run("steps", STANDIN_INNER=1, **more)
        return status, {w: int(n) for w, n in (line.split() for line in out.splitlines()
                                               if len(line.split()) == 2)}

    status, native = steps(rig.native)
    if status == 77:
        print("skip off_costs_nothing a process may not watch its child here")
        return
    calls = 2 * 4  # CALLS of steps.c
    check("control_steps_are_counted", status == 0 and all(
        native[w] > native["nothing"] + calls * 30 for w in ("linked", "dlsym", "proc")), native)
    for name, settings in (("unset", {}), ("zero", {"RTT_US": 0}), ("native", {"RTT_US": 1.2})):
        _, native = steps(rig.native, **settings)  # the stand-in's getenv() sees it, too
        status, off = steps(**settings)
        check("off_costs_nothing_found_" + name, status == 0 and all(
            off[w] == native[w] for w in ("nothing", "dlsym", "proc")), (native, off))
        per_call = (off["linked"] - native["linked"]) / calls
        check("off_costs_a_jump_linked_" + name, 0 < per_call <= 16, per_call)
    for name, settings in (("profile", {"PROFILE": os.path.join(rig.folder, "steps.json")}),
                           ("delay", {"RTT_US": 1.3, "METHOD": "delay"})):
        status, on = steps(**settings)
        check("control_on_costs_" + name, status == 0 and all(
            on[w] > native[w] + calls * 100 for w in ("linked", "dlsym", "proc")), (native, on))


def same(rig, kind):
    for scene, control in (("order", "data whole"), ("errors", "1 1 1 400 1 1 400"),
                           ("capture_broken", "alloc 900 end 901"), ("threads", "done"),
                           ("contexts", "handle same misuses 0"), ("nested", "done"),
                           ("misuse", "launch 400 misuses 1")):
        native = rig.run("scenes", scene, preload=False)
        check("control_%s%s" % (scene, kind), native[0] == 0 and control in native[1], native[1])
        with tempfile.TemporaryDirectory() as folder:
            out = rig.run("scenes", scene, RTT_US=RTT_US, PROFILE=os.path.join(folder, "p"))
        check("same_%s%s" % (scene, kind), out == native, out[1])
    native = rig.run("scenes", "capture", preload=False)[1]
    out = rig.run("scenes", "capture", RTT_US=RTT_US)[1]
    check("capture%s" % kind, native == "end 0\nnodes 3 extra 0\n"
          and out == "end 0\nnodes 3 extra 1\n", native + out)


# ---- profiles

def profile(rig, scene, folder, **settings):
    name = os.path.join(folder, scene + ".json")
    status, out = rig.run("scenes", scene, PROFILE=name, **settings)
    try:
        with open(name, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        return {"error": "%s: %s %s" % (error, status, out)}


def counts(told):
    return {c["name"]: (c["count"], c["bytes"]) for c in told.get("calls", [])}


def profiles(rig, kind):
    with tempfile.TemporaryDirectory() as folder:
        for settings in ({}, {"RTT_US": RTT_US}):
            told = profile(rig, "kernels", folder, **settings)
            suffix = ("_injected" if settings else "") + kind
            check("profile_calls" + suffix, told.get("version") == 1 and counts(told) == {
                "cuLaunchKernel": (4, 0), "cuMemcpyHtoD_v2": (1, 4096),
                "cuMemcpyDtoH_v2": (2, 100), "cuCtxSynchronize": (1, 0)}, told)
            bins = [(b["le_ns"], b["count"]) for b in told.get("kernel_ns_histogram", [])]
            # 302200 (its stream was idle when it came), 2000, 2000 and 11200 ns; bounds are the
            # eighth roots of powers of two
            check("profile_kernels" + suffix, bins == [(2048, 2), (11586, 1), (311744, 1)], told)
            ways = {c["name"]: (c["htod"], c["dtoh"], c["htod_bytes"]) for c in told["calls"]}
            check("profile_directions" + suffix, ways == {
                "cuLaunchKernel": (0, 0, 0), "cuMemcpyHtoD_v2": (1, 0, 4096),
                "cuMemcpyDtoH_v2": (0, 1, 0),  # the other one fails
                "cuCtxSynchronize": (0, 0, 0)}, told)
            check("profile_keys" + suffix, set(told) - {"injected"} == {
                "version", "calls", "kernel_ns_histogram", "kernels_untimed", "captured",
                "launch_gaps", "launch_gap_ns"}
                  and ("injected" in told) == bool(settings), told)
            told = profile(rig, "streams", folder, **settings)
            ordered = {c["name"]: (c["htod"], c["ordered_htod"], c["ordered_htod_bytes"],
                                   c["dtoh"], c["ordered_dtoh"], c["ordered_dtoh_bytes"])
                       for c in told.get("calls", []) if c["htod"] or c["dtoh"]}
            check("profile_copies_behind_kernels" + suffix, ordered == {
                "cuMemcpyHtoDAsync_v2": (8, 3, 2011, 0, 0, 0),
                "cuMemcpyDtoHAsync_v2": (0, 0, 0, 3, 1, 30)}, told)
        # The clock of the scene goes on by 10 ns when it is read: 20 in each gap, 20 in the copy.
        # What the library adds, 5.6 us a call when it delays, is not the program's.
        for name, settings in (("", {}), ("_without_events", {"EVENTS": 0}),
                               ("_injected", {"RTT_US": RTT_US}),
                               ("_delayed", {"RTT_US": RTT_US, "METHOD": "delay"})):
            told = profile(rig, "pace", folder, **settings)
            check("profile_pace" + name + kind, told.get("launch_gaps") == 4
                  and told["launch_gap_ns"] == 5000 + 7000 + 20000 + 3000 + 5 * 20, told)
        # 1 us passes between the event and the kernel, in which the host launches it.
        for name, settings, le_ns in (("", {"STANDIN_CLOCK": 1}, 2048), ("_control", {}, 3159)):
            told = profile(rig, "idle", folder, **settings)
            check("profile_kernels_of_an_idle_gpu" + name + kind,
                  told.get("kernel_ns_histogram") == [{"le_ns": le_ns, "count": 4}], told)
        # Launches that return when their kernels have ended: 3 us each as in the control.
        for blocking, le_ns in (("1", 3159), ("0", 2048)):
            told = profile(rig, "idle", folder, STANDIN_CLOCK=1, CUDA_LAUNCH_BLOCKING=blocking)
            check("profile_kernels_of_blocking_launches_%s%s" % (blocking, kind),
                  told.get("kernel_ns_histogram") == [{"le_ns": le_ns, "count": 4}], told)
        # A clock that runs in the driver, too: kernels behind others keep their time.
        told = profile(rig, "kernels", folder, STANDIN_CLOCK=1)
        bins = [(b["le_ns"], b["count"]) for b in told.get("kernel_ns_histogram", [])]
        check("profile_kernels_of_a_busy_gpu" + kind,
              bins == [(2048, 2), (11586, 1), (311744, 1)], told)
        told = profile(rig, "kernels", folder, EVENTS=0)
        check("profile_without_events" + kind, counts(told).get("cuLaunchKernel") == (4, 0)
              and told.get("kernel_ns_histogram") == [], told)
        told = profile(rig, "threads", folder, RTT_US=RTT_US)
        check("profile_threads" + kind, counts(told) == {
            "cuMemcpyHtoDAsync_v2": (4000, 256000), "cuLaunchKernel": (4000, 0),
            "cuCtxSynchronize": (1, 0)}
              and told["injected"]["skipped"] == 0
              and told["injected"]["copies"] == 4000
              and told["injected"]["kernels"] == 4000, told)
        # 2,048 kernels can be under way, and their streams may run far behind
        timed = sum(b["count"] for b in told.get("kernel_ns_histogram", []))
        check("profile_threads_kernels" + kind, 2048 <= timed == 4000 - told["kernels_untimed"],
              told)
        # In one run of two, counts that go on while they are written would contradict each other.
        runs = [profile(rig, "ending", folder) for _ in range(12)]
        copies = [c for told in runs for c in told.get("calls", []) if c["htod"]]
        check("profile_of_threads_that_go_on" + kind, len(copies) == len(runs) and all(
            0 < c["ordered_htod"] <= c["htod"] <= c["count"]
            and c["ordered_htod_bytes"] <= c["htod_bytes"] <= c["bytes"] for c in copies), runs)
        told = profile(rig, "capture", folder, RTT_US=RTT_US)
        check("profile_capture" + kind, told.get("captured") == 3 and counts(told) == {
            "cuLaunchKernel": (2, 0), "cuGraphLaunch": (1, 0)}, told)
        # From the second kernel to the graph; the two kernels have captured calls between them.
        check("profile_pace_without_captures" + kind, told.get("launch_gaps") == 1, told)
        os.environ["STANDIN_NESTED"] = "1"
        told = profile(rig, "nested", folder, RTT_US=RTT_US)
        del os.environ["STANDIN_NESTED"]
        check("profile_not_the_drivers_own" + kind,
              counts(told) == {"cuMemcpyDtoD_v2": (5, 320)}, told)


def model_takes_profiles(rig):
    """What the library wrote, given to `dxpu model --trace`."""
    program = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
    if not os.access(program, os.X_OK):
        print("skip model_takes_profiles no " + program)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, scene, told, words in (("native", "kernels", {}, None),
                                         ("injected", "kernels", {"RTT_US": RTT_US}, "injected"),
                                         ("captured", "capture", {}, "graphs")):
            profile(rig, scene, folder, **told)
            done = subprocess.run([program, "model", "--json", "--trace",
                                   os.path.join(folder, scene + ".json")], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            answer = json.loads(done.stdout) if done.returncode == 0 else {"warnings": None}
            warned = answer["warnings"]
            check("model_takes_" + name, done.returncode == 0
                  and len(warned) == len(done.stderr.splitlines()) and bool(warned) == bool(words)
                  and (not words or words in warned[0]), done)
            if scene == "kernels":
                w = answer["workload"]
                check("model_counts_" + name, (w["kernels"], w["htod_copies"], w["dtoh_copies"],
                                               w["htod_bytes"]) == (4, 1, 1, 4096), w)


def forks(rig, kind):
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "p")
        native = rig.run("scenes", "fork", preload=False)
        out = rig.run("scenes", "fork", RTT_US=RTT_US, PROFILE=name)
        check("fork_same" + kind, out == native and "child 0 0\nchild 1 0" in out[1], out)
        found = sorted(os.listdir(folder))
        check("fork_files" + kind, len(found) == 2 and found[0] == "p", found)
        told = []
        for file_name in found:
            with open(os.path.join(folder, file_name), encoding="utf-8") as file:
                told.append(counts(json.load(file)))
        check("fork_counts" + kind, told == [{"cuMemcpyHtoD_v2": (4, 256)},
                                             {"cuMemcpyDtoH_v2": (1, 32)}], told)
        rig.run("scenes", "nested", PROFILE=os.path.join(folder, "of-%p.json"))
        check("profile_name_with_process" + kind, [n for n in os.listdir(folder)
                                                   if re.match(r"of-\d+\.json$", n)], found)
        status, out = rig.run("scenes", "nested", PROFILE=os.path.join(folder, "no", "such"))
        check("profile_lost_is_told" + kind, status == 0 and "the profile is lost" in out, out)


# ---- settings

def settings(rig):
    for key, value, words in (
            ("RTT_US", "abc", "give a number from 0 to 1e+06"), ("RTT_US", "", "give a number"),
            ("RTT_US", "-1", "give a number"), ("RTT_US", "nan", "give a number"),
            ("RTT_US", "6.8us", "give a number"), ("RTT_US", "1.1", "less than the native RTT"),
            ("NATIVE_RTT_US", "0", "give a number"), ("TAGS", "0", "give a number from 1 to 65536"),
            ("TAGS", "1.5", "give a whole number"), ("MRS", "64", "give a number from 128"),
            ("NATIVE_GBPS", "fast", "give a number"), ("METHOD", "gpu", "give device or delay"),
            ("GRAPH_RTTS", "-1", "give a number"), ("EVENTS", "2", "give a number from 0 to 1"),
            ("PROFILE", "", "give the name of a file"), ("RTT", "6.8", "no such setting")):
        status, out = rig.run("scenes", "own", **{key: value})
        check("refused_%s_%s" % (key, re.sub(r"\W", "_", value)), status == 2 and words in out
              and "DXPU_INJECT_%s=%s:" % (key, value) in out and "hook" not in out, out)
    check("control_settings", rig.run("scenes", "own", RTT_US=6.8, TAGS=256, MRS=512, EVENTS=0,
                                      NATIVE_GBPS=24.5, METHOD="delay") == (0, "hook\n"))
    for name, words in (("unset", {}), ("zero", {"RTT_US": 0}), ("native", {"RTT_US": 1.2}),
                        ("method_alone", {"METHOD": "delay"})):
        status, out = rig.run("scenes", "own", **words)
        check("off_gives_the_drivers_own_" + name, (status, out) == (0, "driver\n"), out)


def page():
    """Settings of settings.c and keys of the profile are in the manual."""
    with open(os.path.join(ROOT, "examples", "inject", "dxpu-inject.1"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(ROOT, "examples", "inject", "settings.c"), encoding="utf-8") as file:
        known = re.search(r"known\[\] = \{(.*?)\};", file.read(), re.S).group(1)
    names = set(re.findall(r'"(\w+)"', known))
    told = set(re.findall(r"(?m)^\.B DXPU_INJECT_(\w+)$", text))
    check("man_page_has_settings", len(names) == 9 and names <= told, names ^ told)
    keys = {"version", "calls", "kernel_ns_histogram", "kernels_untimed", "captured", "injected",
            "ordered_htod", "ordered_dtoh", "ordered_htod_bytes", "ordered_dtoh_bytes",
            "launch_gaps", "launch_gap_ns"}
    check("man_page_has_keys", keys <= set(re.findall(r"(?m)^\.B (\w+)$", text)), text)


# ---- on a GPU

def measure(rig):
    """measure.py over the stand-in finds what the model says; and here, if there is a GPU."""
    words = [sys.executable, os.path.join(ROOT, "examples", "inject", "measure", "measure.py"),
             "--library", rig.path("libdxpu-inject.so"), "--runs", "1"]
    env = dict(os.environ, LD_LIBRARY_PATH=rig.folder)
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    rows = re.findall(r"(?m)^(\w+)( +-?[\d.]+){4} +(-?[\d.]+) +-?[\d.]+$", done.stdout)
    ratios = [float(row[2]) for row in rows]
    check("measure_over_the_stand_in", done.returncode == 0 and len(ratios) == 30
          and all(0.99 < r < 1.01 for r in ratios), done.stdout)
    env.pop("LD_LIBRARY_PATH")
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode == 77:
        print("skip measured_on_a_gpu NO GPU HERE: WHAT IS ADDED WAS NOT MEASURED ON ONE")
    else:
        print(done.stdout)
        check("measured_on_a_gpu", done.returncode == 0, done.stdout)


# ---- CUDA's own header and library, where they are

DECLARED = """#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include "%s/examples/inject/entries.h"
#define AGAIN(base, suffix, version, per_thread, params, ...) CUresult base##suffix params;
#define AGAIN_PLAIN(base, suffix, version, params, args) CUresult base##suffix params;
ENTRIES(AGAIN)
LIFETIME(AGAIN_PLAIN)
"""
LAYOUT = """#include <stddef.h>
#include <stdio.h>
%s
#define AT(type, member) printf(#type "." #member " %%zu\\n", offsetof(type, member));
#define SIDES(type) AT(type, srcMemoryType) AT(type, srcDevice) AT(type, dstMemoryType) \\
    AT(type, dstHost) AT(type, dstDevice) AT(type, WidthInBytes) AT(type, Height)
int main(void)
{
    SIDES(CUDA_MEMCPY2D_v1) SIDES(CUDA_MEMCPY2D) SIDES(CUDA_MEMCPY3D_v1) SIDES(CUDA_MEMCPY3D)
    AT(CUDA_MEMCPY3D_v1, Depth) AT(CUDA_MEMCPY3D, Depth)
    AT(CUlaunchConfig, hStream) AT(CUDA_LAUNCH_PARAMS, hStream)
    printf("%%zu %%zu\\n", sizeof(CUresult), sizeof(CUdeviceptr));
    return 0;
}
"""


def cuda(rig):
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr"]
    include = next((os.path.join(h, "include") for h in homes
                    if h and os.path.exists(os.path.join(h, "include", "cuda.h"))), None)
    if not include:
        print("skip cuda_header no cuda.h here: prototypes are compared only where CUDA is")
        return
    homes = (os.path.dirname(include), "/usr/local/cuda*")
    stub = next((found for home in homes
                 for found in glob.glob(home + "/lib*/stubs/libcuda.so")), None)
    if stub:
        exported, known = (
            set(re.findall(r"(?m) (cu[A-Z]\w+)$", subprocess.run(
                ["nm", *NM, "-D", "--defined-only", path], stdout=subprocess.PIPE,
                text=True).stdout))
            for path in (rig.path("libdxpu-inject.so"), stub))
        check("cuda_exports_every_entry", len(exported) > 100 and exported <= known,
              exported - known)
    else:
        print("skip cuda_exports_every_entry no stub of libcuda.so here")
    declared = rig.path("declared.c")
    for name, text, good in (("cuda_declares_the_same", DECLARED % ROOT, True),
                             ("control_cuda_declares", DECLARED % ROOT
                              + "CUresult cuLaunchGrid(CUfunction f, int x);\n", False)):
        with open(declared, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run(["gcc", "-std=c11", "-fsyntax-only", "-I" + include, declared],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(name, (done.returncode == 0) == good, done.stdout)
    told = []
    for header in ('#define __CUDA_API_VERSION_INTERNAL 1\n#include <cuda.h>',
                   '#include "%s/examples/inject/driver_api.h"' % ROOT):
        with open(rig.path("layout.c"), "w", encoding="utf-8") as file:
            file.write(LAYOUT % header)
        done = subprocess.run(["gcc", "-std=c11", "-I" + include, "-o", rig.path("layout"),
                               rig.path("layout.c")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        told.append(done.stdout or subprocess.run([rig.path("layout")], stdout=subprocess.PIPE,
                                                  text=True).stdout)
    check("cuda_lays_out_the_same", told[0] == told[1] and len(told[0].splitlines()) > 30,
          "\n".join(told))


def by_clang(programs):
    if not shutil.which("clang"):
        print("skip clang not here")
        return
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(folder, "clang", more=(), programs=programs)
        check("built_clang", not rig.problems, rig.problems)
        ways(rig, "_clang")


def main():
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(folder)
        check("built", not rig.problems, rig.problems)
        if rig.problems:
            return 1
        entries(rig)
        ways(rig, "")
        versions(rig)
        bystanders(rig)
        times(rig)
        delays(rig)
        costs_nothing_when_off(rig)
        same(rig, "")
        profiles(rig, "")
        model_takes_profiles(rig)
        forks(rig, "")
        settings(rig)
        page()
        measure(rig)
        cuda(rig)
        by_clang(rig)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(folder, flags=SANITIZE, more=("scenes",))
        check("built_sanitized", not rig.problems, rig.problems)
        if not rig.problems:
            ways(rig, "_sanitized")
            same(rig, "_sanitized")
            profiles(rig, "_sanitized")
            forks(rig, "_sanitized")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
