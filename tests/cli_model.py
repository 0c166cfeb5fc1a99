#!/usr/bin/env python3
"""The command `dxpu model`: the paper's figures, traces, profiles, what it refuses.

Environment: DXPU_BIN (default build/dxpu)."""
# SPDX-License-Identifier: MIT
import json
import os
import random
import subprocess
import sys
import tempfile

from cases import case, check, main

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("DXPU_BIN", os.path.join(ROOT, "build", "dxpu"))
DATA = os.path.join(ROOT, "tests", "data", "model")
TRACE = os.path.join(DATA, "trace.csv")
PROFILE = os.path.join(DATA, "profile.json")


def run(*words):
    p = subprocess.run([BIN, "model", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=120)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


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
    near(found["Equation 1", "6.8 us, the paper's own arithmetic"]["model"], 2.64, 0.005)
    near(found["Equation 1", "4.9 us, the paper's own arithmetic"]["model"], 3.66, 0.005)
    check(round(found["Table 7", "host to GPU, of the measured native"]["model"]) == 24)
    check(round(found["Table 7", "GPU to host, of the measured native"]["model"]) == 93)
    near(found["Figure 4", "8 us"]["model"], 90, 1)
    near(found["Figure 4", "19 us"]["model"], 80, 1)
    near(found["Figure 4", "round trip that keeps 90 %"]["model"], 8, 1)
    near(found["Figure 4", "round trip that keeps 80 %"]["model"], 19, 1)


@case
def errors_are_small_and_all_told():
    found, errors = cells()
    check(len(found) == 81 and sum(c["calibrated"] for c in found.values()) == 8, len(found))
    check(errors["all"]["predicted"] + errors["all"]["calibrated"] == len(found))
    check(errors["all"]["mean_error"] < 0.05, errors["all"])
    for table, most in (("Equation 1", 0.07), ("Table 4", 0.04), ("Table 7", 0.03),
                        ("Section 5.1", 0.03), ("Table 9", 0.10), ("Table 11", 0.12),
                        ("Table 12", 0.16), ("Table 13", 0.11), ("Table 14", 0.03)):
        check(errors[table]["worst_error"] < most, errors[table])
    worst = max(abs(c["model"] / c["paper"] - 1) for c in found.values() if not c["calibrated"])
    near(errors["all"]["worst_error"], worst, 1e-4)


@case
def control_another_model_has_other_errors():
    near_errors, far_errors = cells()[1], cells("--waits", "4")[1]
    check(far_errors["Table 9"]["mean_error"] > 2 * near_errors["Table 9"]["mean_error"])
    check(far_errors["Equation 1"] == near_errors["Equation 1"])


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
                               (("--network", "50"), "write_gbs", False)):
        got = ask(*words)["throughput"][key]
        check((got > base["throughput"][key]) == better, words, got)
        check(got != base["throughput"][key], words)
    near(ask("--gpus", "8")["performance"], 0.824, 0.001)
    check(ask("--gpus", "8", "--proxies", "8")["performance"] == base["performance"])
    near(ask("--kernel", "8.1", "--launch", "13.8")["performance"], 0.8364, 0.002)
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
          (1000, 10, 5, 50, 0), w)
    near(w["kernel_us"], (0.6 * 8.192 + 0.4 * 262.144) / 1.044, 0.01)
    near(w["short_kernels"], 0.6, 1e-6)
    near(w["launch_us"], 4, 1e-6)
    near(w["htod_bytes"], 1e6, 1e-6)
    extra = 1000 * 1.5 * 5.6 + 50 * 5.6 + 10 * (1e6 / 2635.3 - 1.2 - 1e6 / 11042.5) + 5 * 2.8
    near(answer["performance"], answer["native_us"] / (answer["native_us"] + extra), 0.001)


@case
def what_is_no_workload_is_refused():
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
                  ("--link", "3x0"), ("--link", "x16"), ("--gpus", "0"), ("--network", "0"),
                  ("--kernel", "nan"), ("--launch", "-1"), ("--waits", "-1"), ("--what",),
                  ("file",), ("--paper", "--sweep"), ("--trace",),
                  ("--trace", TRACE, "--kernel", "5"), ("--simulate", "--gpus", "17")):
        status, out, err = run(*words)
        check(status == 2 and not out and "--help" in err, words, status, out, err)
    status, out, err = run("--help")
    check(status == 0 and out.startswith("usage: dxpu model") and not err)


@case
def the_simulation_agrees_with_the_equations():
    for words in ((), ("--gpus", "4"), ("--rtt", "19", "--tags", "256", "--mrs", "512")):
        rows = ask("--simulate", *words)["simulated"]
        check(len(rows) == 15)
        for row in rows:
            near(row["simulated"] / row["equation"], 1, 0.02)


@case
def a_sweep_can_be_drawn():
    points = ask("--sweep")["points"]
    series = {p["series"] for p in points}
    check("performance" in series and len([s for s in series if s.startswith("tags:")]) == 4)
    curve = [p["y"] for p in points if p["series"] == "performance"]
    check(curve == sorted(curve, reverse=True) and curve[0] > curve[-1] + 20)
    status, out, _ = run("--sweep")
    check(status == 0 and len(out.splitlines()) == len(points))


if __name__ == "__main__":
    sys.exit(main(None if os.access(BIN, os.X_OK) else "no " + BIN))
