#!/usr/bin/env python3
"""The command `dxpu model`: the paper's figures, traces, profiles, what it refuses.

Environment: DXPU_BIN (default build/dxpu)."""
# SPDX-License-Identifier: MIT
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rooms  # noqa: E402,F401
from cases import case, check, main  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
DATA = os.path.join(ROOT, "tests", "data", "model")
TRACE = os.path.join(DATA, "trace.csv")
PROFILE = os.path.join(DATA, "profile.json")


# A simulation that keeps what it frees spends a tenth of the time in page faults, not a third.
KEEPS = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
ran = {}


def run(*words):
    """The same words have the same answer, so they run once; but for files, which change."""
    if words in ran:
        return ran[words]
    p = subprocess.run([BIN, "model", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=120, env=dict(os.environ, **KEEPS))
    answer = p.returncode, p.stdout.decode(), p.stderr.decode()
    if "--trace" not in words:
        ran[words] = answer
    return answer


def ask(*words):
    status, out, err = run("--json", *words)
    check(status == 0 and not err, status, err)
    return json.loads(out)


def near(got, want, within):
    check(abs(got - want) <= within, got, "is not", want)


def cells(*words):
    answer = ask("--paper", *words)
    return {(c["table"], c["cell"]): c for c in answer["cells"]}, \
        {e["table"]: e for e in answer["errors"]}


@case
def the_figures_of_the_paper():
    found, _ = cells()
    near(found["Equation 1", "6.8 us, by the paper's equation"]["model"], 2.64, 0.005)
    near(found["Equation 1", "4.9 us, by the paper's equation"]["model"], 3.66, 0.005)
    check(round(found["Table 7", "host to GPU, of the measured native"]["model"]) == 24)
    check(round(found["Table 7", "GPU to host, of the measured native"]["model"]) == 93)
    near(found["Figure 4", "8 us"]["model"], 90, 1)
    near(found["Figure 4", "19 us"]["model"], 80, 1)
    near(found["Figure 4", "round trip that keeps 90 %"]["model"], 8, 1)
    near(found["Figure 4", "round trip that keeps 80 %"]["model"], 19, 1)


def error(c):
    return abs(c["model"] / c["paper"] - 1)


@case
def errors_are_small_and_all_reported():
    """Errors are those of cells that were measured and that nothing was calibrated by."""
    found, errors = cells()
    groups = {"predicted": [], "calibration": [], "unmeasured": []}
    for c in found.values():
        groups["calibration" if c["calibrated"] else "predicted" if c["origin"] == "measured"
               else "unmeasured"].append(c)
    check([len(groups[g]) for g in ("predicted", "calibration", "unmeasured")] == [69, 8, 4])
    for group, members in groups.items():
        told = errors["all"][group]
        check(told["cells"] == len(members) == sum(e[group]["cells"] for t, e in errors.items()
                                                   if t != "all"), group, told)
        near(told["mean_error"], sum(error(c) for c in members) / len(members), 1e-4)
        near(told["worst_error"], max(error(c) for c in members), 1e-4)
    check(errors["all"]["predicted"]["mean_error"] < 0.05, errors["all"])
    for table, most in (("Equation 1", 0.07), ("Table 4", 0.04), ("Table 7", 0.03),
                        ("Section 5.1", 0.03), ("Table 9", 0.10), ("Table 11", 0.12),
                        ("Table 12", 0.16), ("Table 13", 0.11), ("Table 14", 0.03)):
        check(errors[table]["predicted"]["worst_error"] < most, errors[table])


@case
def every_figure_says_where_it_is_from():
    found, _ = cells()
    origins = [c["origin"] for c in found.values()]
    check({o: origins.count(o) for o in set(origins)} == {
        "measured": 73, "paper's model": 2, "computed": 2, "figure": 4}, origins)
    check(found["Equation 1", "6.8 us, bandwidthTest"]["origin"] == "measured")
    check(found["Equation 1", "6.8 us, by the paper's equation"]["origin"] == "computed")
    check(found["Figure 4", "8 us"]["origin"] == "figure")
    lines = run("--paper")[1].splitlines()
    for (table, what), c in found.items():
        row = [line for line in lines if line.startswith("%-12s %-40s " % (table, what))]
        wanted = c["origin"] + (", calibrated by" if c["calibrated"] else "")
        check(len(row) == 1 and row[0].endswith("%  " + wanted), row, wanted)


@case
def the_specification_has_these_errors():
    """The table in spec/model.md is what the program says."""
    _, errors = cells()
    with open(os.path.join(ROOT, "spec", "model.md"), encoding="utf-8") as file:
        rows = [[f.strip() for f in line.strip("| \n").split("|")] for line in file
                if line.startswith("|")]
    told = {row[0].split(",")[0]: row for row in rows if len(row) == 6}
    for table, e in errors.items():
        check(table in told, table)
        row, group = told[table], e["predicted"]
        check(row[1] == str(group["cells"]), row, group)
        for at, key, form in ((2, "mean_error", "%.1f %%"), (3, "mean_signed_error", "%+.1f %%"),
                              (4, "worst_error", "%.1f %%")):
            check(row[at] == (form % (100 * group[key]) if group["cells"] else ""), row, group)


@case
def control_another_model_has_other_errors():
    near_errors, far_errors = cells()[1], cells("--waits", "4")[1]
    check(far_errors["Table 9"]["predicted"]["mean_error"]
          > 2 * near_errors["Table 9"]["predicted"]["mean_error"])
    check(far_errors["Equation 1"] == near_errors["Equation 1"])


@case
def what_the_paper_takes_no_part_in_is_refused():
    for words in (("--rtt", "4.9"), ("--gpus", "8"), ("--kernel", "5"), ("--trace", TRACE),
                  ("--link", "4x16"), ("--native-rtt", "1.2")):
        status, out, err = run("--paper", *words)
        check(status == 2 and not out and "omit %s" % words[0] in err, words, err)
    check(run("--paper", "--waits", "1.5") == run("--paper"))  # the control
    status, _, err = run("--simulate", "--proxies", "2")
    check(status == 2 and "omit --proxies" in err, err)
    check(run("--simulate", "--proxies", "1") == run("--simulate"))


def defaults():
    """Options with a value, and the values that the help gives as those taken without them."""
    listed = subprocess.run([BIN, "--help-options"], stdout=subprocess.PIPE, check=True, text=True)
    told = dict(re.findall(r"(?m)^option\tmodel\t(--[\w-]+)\t([A-Zx].*)$", listed.stdout))
    return told, {option: found.group(1) for option, text in told.items()
                  for found in [re.search(r"\((\S+?)[):]", text)] if found}


@case
def saying_a_default_changes_nothing():
    options, told = defaults()
    check(told == {"--rtt": "6.8", "--native-rtt": "1.2", "--tags": "140", "--mrs": "128",
                   "--mps": "128", "--link": "3x16", "--network": "200", "--mtu": "1500",
                   "--gpus": "1", "--proxies": "1", "--waits": "1.5", "--kernel": "102.3",
                   "--launch": "0"}, told)
    check(set(options) == set(told) | {"--trace"}, options)
    other = {"--gpus": "8", "--rtt": "19", "--kernel": "8.1"}
    for mode in ((), ("--json",), ("--sweep",)):
        for more in [()] + list(other.items()):
            plain = run(*mode, *more)
            check(plain[0] == 0, mode, more, plain)
            rest = [pair for pair in told.items() if pair[0] not in more]
            for words in [[w for pair in rest for w in pair]] if more else rest:
                check(run(*mode, *more, *words) == plain, mode, more, words)
    # a simulation takes seconds: all of them at once
    every = [word for pair in told.items() for word in pair if pair[0] != "--waits"]
    check(run("--json", "--simulate", *every) == run("--json", "--simulate"))
    check(run("--json", "--simulate", *every, "--tags", "64") != run("--json", "--simulate"))
    for option, value in (("--kernel", "102.4"), ("--launch", "120"), ("--mtu", "9000"),
                          ("--waits", "1.6"), ("--network", "50")):  # the control
        check(run("--json", "--gpus", "8", option, value) != run("--json", "--gpus", "8"), option)


@case
def thresholds_beyond_what_was_searched():
    def found(*words):
        answer = ask(*words)
        check(answer["rtt_us_searched"] == [1.2, 1000], answer["rtt_us_searched"])
        return [(t["performance"], t["found"], t["rtt_us"]) for t in answer["thresholds"]]

    within = found()
    check([t[:2] for t in within] == [(0.9, "within"), (0.8, "within")], within)
    near(within[0][2], 8.8, 0.05)
    check(found("--kernel", "1e6") == [(0.9, "everywhere", None), (0.8, "everywhere", None)])
    check(found("--trace", TRACE, "--network", "10")
          == [(0.9, "nowhere", None), (0.8, "nowhere", None)])
    out = run("--kernel", "1e6")[1]
    check(out.count("kept everywhere within the searched range of 1.2 to 1000 us") == 2, out)
    out = run("--trace", TRACE, "--network", "10")[1]
    check(out.count("kept nowhere within the searched range of 1.2 to 1000 us") == 2, out)
    out = run()[1]
    check("90 % is kept up to a round trip of 8.8 us" in out and "range" not in out, out)


@case
def what_is_fitted_says_so():
    """Several GPUs: beside the line fitted to the paper's table stands what links alone do."""
    answer = ask("--gpus", "8")
    near(answer["sharing"]["fitted"], 1 + 7 * 2.3 / 25, 1e-3)
    near(answer["sharing"]["links"], 8 * 1.5 / 10.0825, 1e-3)
    check(answer["performance"] + 0.05 < answer["sharing"]["performance_by_links"]
          < ask()["performance"], answer["sharing"])
    out = run("--gpus", "8")[1]
    check("fitted to Table 12" in out and "links alone" in out, out)
    check("fitted" not in run()[1])  # the control: one GPU shares nothing
    check("fitted" in run("--help")[1] and "fitted" in run("--simulate")[1])
    rows = {r["what"]: r for r in ask("--simulate")["simulated"]}
    for gpus, gbs in ((2, 3.01), (4, 6.02), (8, 10.08)):
        row = rows["%d GPUs that want 1.5 GB/s each" % gpus]
        near(row["simulated"], gbs, 0.1)
        near(row["fitted"], gpus * 1.5 / ask("--gpus", str(gpus))["sharing"]["fitted"], 1e-3)
        check(row["fitted"] < row["simulated"], row)


@case
def text_and_json_say_the_same():
    status, out, _ = run()
    answer = ask()
    check(status == 0 and "%.1f %% of native" % (100 * answer["performance"]) in out, out)
    check("%7.2f" % answer["throughput"]["read_gbs"] in out)
    status, out, _ = run("--paper")
    check(status == 0 and "calibrated" in out and "missing" in out and "assumed" in out)


@case
def options_reach_the_model():
    base = ask()
    for words, key, better in ((("--rtt", "4.9"), "read_gbs", True),
                               (("--tags", "256"), "read_gbs", True),
                               (("--mrs", "512"), "read_gbs", True),
                               (("--mps", "256"), "write_gbs", True),
                               (("--link", "4x16"), "write_gbs", True),
                               (("--link", "3x8"), "write_gbs", False),
                               (("--network", "50"), "write_gbs", False),
                               (("--network", "50", "--mtu", "9000"), "write_gbs", False)):
        got = ask(*words)["throughput"][key]
        check((got > base["throughput"][key]) == better, words, got)
        check(got != base["throughput"][key], words)
    near(ask("--gpus", "8")["performance"], 0.824, 0.001)
    check(ask("--gpus", "8", "--proxies", "8")["performance"] == base["performance"])
    near(ask("--kernel", "8.1", "--launch", "13.8")["performance"], 0.8364, 0.002)
    slow = [ask("--network", "50", *w)["throughput"]["write_gbs"] for w in ((), ("--mtu", "9000"))]
    check(slow[0] < 0.95 * slow[1], slow)  # longer frames, less between them
    near(ask("--kernel", "8.1", "--waits", "1")["performance"], 0.59, 0.005)


@case
def a_trace_of_nsight_systems():
    answer = ask("--trace", TRACE)
    w = answer["workload"]
    check((w["kernels"], w["htod_copies"], w["dtoh_copies"], w["streams"]) == (6, 1, 1, 2), w)
    near(w["kernel_us"], (1.2 + 8 + 102 + 9 + 40 + 100) / 6, 0.01)
    near(w["short_kernels"], 0.5, 1e-6)
    near(w["htod_bytes"], 1e6, 1)
    near(answer["native_us"], 340, 1e-6)
    check(w["lines_passed"] == 0, w)
    check(0.4 < answer["performance"] < 0.6, answer["performance"])
    check(answer["changes"][0]["change"].startswith("let the host write"), answer["changes"])
    lost = {item["to"]: item["us"] for item in answer["lost"]}
    gaps = 5 + 3.8 + 2 + 2 + 2  # in which the GPU waited for the host
    near(max(lost.values()), 1e6 / 2635.3 - 1.2 - 1e6 / 11042.5 - gaps, 0.1)  # equation 1
    check(ask("--trace", TRACE, "--rtt", "1.2")["performance"] > 0.95)


@case
def the_same_trace_in_other_units_and_words():
    with open(TRACE, encoding="utf-8") as file:
        text = file.read()
    head, _, rows = text.partition("Strm,Name\n")
    rows = "".join("%g,%g,%s\n" % (float(a) / 1e3, float(b) / 1e3, rest) for a, b, rest in
                   (row.split(",", 2) for row in rows.splitlines()))
    text = head.replace("(ns)", "(us)") + "Strm,Name\n" + rows
    text = text.replace("Host-to-Device", "HtoD").replace("Device-to-Host", "DtoH")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(text.replace("\n", "\r\n"))
        file.flush()
        near(ask("--trace", file.name)["performance"], ask("--trace", TRACE)["performance"], 1e-6)


@case
def a_profile_of_the_preloaded_library():
    answer = ask("--trace", PROFILE)
    w = answer["workload"]
    check((w["kernels"], w["htod_copies"], w["dtoh_copies"], w["hidden_copies"], w["streams"]) ==
          (1000, 10, 5, 46, 0), w)
    check((w["ordered_htod_copies"], w["ordered_htod_bytes"], w["ordered_dtoh_copies"]) ==
          (4, 3e5, 0), w)
    near(w["kernel_us"], (0.6 * 8.192 + 0.4 * 262.144) / 1.044, 0.01)
    near(w["short_kernels"], 0.6, 1e-6)
    near(w["launch_us"], 12, 1e-6)
    near(w["htod_bytes"], 1e6, 1e-6)
    extra = 1000 * 1.5 * 5.6 + 46 * 5.6 + 5 * 2.8
    extra += 10 * (1e6 / 2635.3 - 1.2 - 1e6 / 11042.5) + 4 * (3e5 / 2635.3 - 1.2 - 3e5 / 11042.5)
    near(answer["performance"], answer["native_us"] / (answer["native_us"] + extra), 0.001)


@case
def an_old_profile_is_warned_about():
    """Without the order of copies and the host's pace: copies overlap kernels, L is as it was."""
    with open(PROFILE, encoding="utf-8") as file:
        text = file.read()
    old = re.sub(r',\s*"(?:ordered|launch_gap)\w*":\d+', "", text)
    status, out, err = with_text(old, "--json")
    answer = json.loads(out)
    check(status == 0 and "older libdxpu-inject" in err and len(answer["warnings"]) == 1, err)
    w = answer["workload"]
    check((w["hidden_copies"], w["ordered_htod_copies"], w["launch_us"]) == (50, 0, 4), w)
    check(answer["performance"] > ask("--trace", PROFILE)["performance"] + 1e-3)


@case
def what_is_not_a_workload_is_refused():
    texts = ("", "{", "{}", "[]", '{"version":2,"calls":[],"kernel_ns_histogram":[]}',
             '{"version":1,"calls":[],"kernel_ns_histogram":[]}',
             '{"version":1,"calls":[{"name":"cuLaunch","count":-1,"bytes":0,"ns":0}],'
             '"kernel_ns_histogram":[]}',
             '{"version":1,"calls":[],"kernel_ns_histogram":[{"le_ns":1e999,"count":1}]}',
             "Start (ns),Duration (ns),Name\n", "Start,Duration,Name\n1,2,x\n",
             "Start (ns),Duration (ns),Name\n-1,2,x\nnan,2,x\n1,inf,x\n1\n,,\n")
    for text in texts:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            status, out, err = run("--trace", file.name)
            check(status == 2 and not out and "--help" in err, text, status, err)
    status, _, err = run("--trace", os.path.join(DATA, "none"))
    check(status == 2 and "cannot be opened" in err, err)
    check(run("--trace", PROFILE)[0] == 0)  # the control


@case
def broken_files_end_in_words():
    rng = random.Random(7)
    for path in (TRACE, PROFILE):
        with open(path, "rb") as file:
            whole = file.read()
        for _ in range(60):
            data = bytearray(whole[:rng.randrange(1, len(whole) + 1)])
            for _ in range(rng.randrange(8)):
                data[rng.randrange(len(data))] = rng.choice(b'"\n,{}[]0e9-\0\xff')
            with tempfile.NamedTemporaryFile("wb") as file:
                file.write(data)
                file.flush()
                status, out, err = run("--json", "--trace", file.name)
            check(status in (0, 2), status, data)
            if status == 0:
                check(0 < json.loads(out)["performance"] <= 1.0001, out)


@case
def wrong_usage():
    for words in (("--rtt",), ("--rtt", "0"), ("--rtt", "x"), ("--rtt", "1.1"), ("--tags", "0"),
                  ("--tags", "1.5"), ("--mrs", "100"), ("--mps", "8192"), ("--link", "6x16"),
                  ("--link", "3x0"), ("--link", "4x3"), ("--trace", ""),
                  ("--link", "x16"), ("--gpus", "0"), ("--network", "0"),
                  ("--kernel", "nan"), ("--launch", "-1"), ("--waits", "-1"), ("--what",),
                  ("file",), ("--paper", "--sweep"), ("--trace",),
                  ("--trace", TRACE, "--kernel", "5"), ("--trace", TRACE, "--launch", "0"),
                  ("--simulate", "--kernel", "1"), ("--mtu", "1279"), ("--mtu", "65536"),
                  ("--simulate", "--gpus", "17")):
        status, out, err = run(*words)
        check(status == 2 and not out and "--help" in err, words, status, out, err)
    status, out, err = run("--help")
    check(status == 0 and out.startswith("usage: dxpu model") and not err)


@case
def the_simulation_agrees_with_the_equations():
    scenes = [(), ("--network", "25"), ("--gpus", "4"),
              ("--rtt", "19", "--tags", "256", "--mrs", "512"),
              ("--network", "100", "--mtu", "9000", "--tags", "256")]
    for words in scenes if "DXPU_WHOLE" in os.environ else scenes[:2]:
        rows = ask("--simulate", *words)["simulated"]
        check(len(rows) == 18)
        for row in rows:
            if row["simulated"] is None:  # a read of 4 KB is longer than the round trip
                check(row["what"].startswith("link in use") and "--network" in words, row)
            else:
                near(row["simulated"] / row["equation"], 1, 0.02)


def with_text(text, *words):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        return run("--trace", file.name, *words)


@case
def a_copy_without_its_size_is_refused():
    with open(TRACE, encoding="utf-8") as file:
        text = file.read()
    number = 1 + text[:text.index("1.000,11111.0")].count("\n")
    check(with_text(text)[0] == 0)  # the control
    for size in ("", "abc", "1.0.0", "-1"):
        status, out, err = with_text(text.replace("1.000,11111.0", size + ",11111.0"))
        check(status == 2 and not out and "line %d:" % number in err, size, err)
    status, out, err = with_text(text.replace("Bytes (MB)", "Bytes"))
    check(status == 2 and not out and "no column" in err, err)
    status, out, err = with_text(text.replace("1225000,2000", "soon,2000"), "--json")
    check(status == 0 and "WARNING" in err and "name: 1," in err, err)
    check(json.loads(out)["workload"]["lines_passed"] == 1 and json.loads(out)["warnings"], out)


@case
def a_profile_that_is_not_a_native_run_is_warned_about():
    with open(PROFILE, encoding="utf-8") as file:
        text = file.read()
    check(ask("--trace", PROFILE)["warnings"] == [])  # the control
    for more, words in ((',"injected":{"rtt_us":6.8}', "INJECT_RTT_US=6.8"),
                        (',"captured":900', "900 calls went into graphs")):
        changed = text.rstrip().rstrip("}") + more + "}"
        for json_too in ((), ("--json",)):
            status, out, err = with_text(changed, *json_too)
            check(status == 0 and "WARNING" in err and words in err, err)
        check(len(json.loads(out)["warnings"]) == 1 and words in json.loads(out)["warnings"][0])
    status, out, err = with_text(text.replace('untimed":0', 'untimed":500'))
    check(status == 0 and "500 of 1000 kernels" in err, err)


@case
def plots_are_drawn_as_svg_and_png():
    if not shutil.which("gnuplot"):
        return "no gnuplot here"
    plot = [sys.executable, os.path.join(ROOT, "tests", "bench", "model_plot.py")]
    with tempfile.TemporaryDirectory() as folder:
        for words in ((), ("--kernel", "20", "--rtt", "4.9")):
            done = subprocess.run([*plot, folder, *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=dict(os.environ, DXPU_BIN=BIN))
            check(done.returncode == 0, done.stdout)
        names = sorted(os.listdir(folder))
        check(names == sorted("model-%s.%s" % (n, e) for n in ("performance", "reads", "yours")
                              for e in ("png", "svg")), names)
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            check(len(data) > 5000 and (data[:8] == b"\x89PNG\r\n\x1a\n" if name.endswith("png")
                                        else b"<svg" in data[:400] and b"</svg>" in data), name)


@case
def a_sweep_can_be_drawn():
    points = ask("--sweep")["points"]
    series = {p["series"] for p in points}
    check("performance" in series and len([s for s in series if s.startswith("tags:")]) == 4)
    curve = [p["y"] for p in points if p["series"] == "performance"]
    check(curve == sorted(curve, reverse=True) and curve[0] > curve[-1] + 20)
    status, out, _ = run("--sweep")
    check(status == 0 and len(out.splitlines()) == len(points))
    series = {p["series"] for p in ask("--sweep", "--rtt", "12", "--mrs", "1024")["points"]}
    check({"tags: 12 us", "round trip: 1024 B", "tags: 6.8 us"} <= series, series)


if __name__ == "__main__":
    sys.exit(main(None if os.access(BIN, os.X_OK) else "no " + BIN))
