#!/usr/bin/env python3
"""Compare what libdxpu-inject.so adds to copies, kernels and memsets on this machine's GPU with
what the performance model says that it should add.

    examples/inject/measure/measure.py [--rtt US]... [--tags N] [--mrs BYTES] [--library FILE]
                                       [--runs N]

Kernels of known length (in clock cycles), copies and memsets are timed by the GPU's events,
natively and injected, at each RTT (4.9, 6.8 and 19 us by default).  RdTP_ori is the rate of the
largest native copy.  Exit status 77, and a line that begins with `skip`: there is no GPU."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE_RTT_US = 1.2
NO_GPU = 77


def added_ns(name, size, rtt_us, in_flight, native_gbps):
    """The paper's model, section 3.4.1: a round trip and the data at the link's rate, or all of it
    at that of equation 1, where that takes longer; in_flight: bytes that tags allow."""
    delta = 1e3 * (rtt_us - NATIVE_RTT_US)
    if name.startswith("dtoh"):
        return delta / 2
    if not name.startswith("htod"):
        return delta
    pooled, native = (max(1e3 * rtt + size / native_gbps, size * 1e3 * rtt / in_flight)
                      for rtt in (rtt_us, NATIVE_RTT_US))
    return max(delta, pooled - native)


def run(program, args, rtt_us=None, native_gbps=None):
    """{name: (bytes, gpu ns, host ns)}, the median of the runs; None without a GPU."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("DXPU_INJECT_")}
    if rtt_us is not None:
        env.update(LD_PRELOAD=args.library, DXPU_INJECT_RTT_US=str(rtt_us),
                   DXPU_INJECT_NATIVE_RTT_US=str(NATIVE_RTT_US), DXPU_INJECT_TAGS=str(args.tags),
                   DXPU_INJECT_MRS=str(args.mrs), DXPU_INJECT_NATIVE_GBPS="%.3f" % native_gbps)
    seen = {}
    for _ in range(args.runs):
        done = subprocess.run([program], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
        if done.returncode == NO_GPU:
            print("skip no GPU here, nothing was measured (%s)" % done.stderr.strip())
            return None
        if done.returncode:
            sys.exit("measure.py: " + done.stderr.strip())
        for line in done.stdout.splitlines():
            name, size, _, gpu_ns, host_ns = line.split()
            seen.setdefault(name, []).append((int(size), float(gpu_ns), float(host_ns)))
    print(done.stderr, end="", file=sys.stderr)
    return {name: tuple(statistics.median(column) for column in zip(*rows))
            for name, rows in seen.items()}


def table(native, injected, rtt_us, args, native_gbps):
    print("\nRTT %g us, RTT_delta %.1f us\n%-14s %12s %12s %10s %12s %10s %12s" % (
        rtt_us, rtt_us - NATIVE_RTT_US, "", "native us", "injected us", "added us", "predicted us",
        "ratio", "host added"))
    for name, (size, gpu_ns, host_ns) in native.items():
        _, with_ns, with_host_ns = injected[name]
        wanted = added_ns(name, size, rtt_us, args.tags * args.mrs, native_gbps)
        print("%-14s %12.2f %12.2f %10.2f %12.2f %10.3f %12.2f" % (
            name, gpu_ns / 1e3, with_ns / 1e3, (with_ns - gpu_ns) / 1e3, wanted / 1e3,
            (with_ns - gpu_ns) / wanted, (with_host_ns - host_ns) / 1e3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rtt", type=float, action="append", help="RTT_DxPU, us")
    parser.add_argument("--tags", type=int, default=140, help="PCIe reads in flight")
    parser.add_argument("--mrs", type=int, default=128, help="bytes of one")
    parser.add_argument("--runs", type=int, default=5, help="of each, for the median")
    parser.add_argument("--library", default=os.path.join(
        HERE, "..", "..", "..", "build", "libdxpu-inject.so"))
    args = parser.parse_args()
    args.library = os.path.abspath(args.library)
    if not os.path.exists(args.library):
        sys.exit("measure.py: %s is not there: run make, or give --library" % args.library)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "measure")
        subprocess.run(["cc", "-std=c11", "-O2", "-I", os.path.dirname(HERE), "-o", program,
                        os.path.join(HERE, "measure.c"),
                        "-ldl"], check=True)
        native = run(program, args)
        if native is None:
            return NO_GPU
        size, gpu_ns, _ = native["htod_16m"]
        native_gbps = size / gpu_ns
        print("RdTP_ori %.2f GB/s" % native_gbps)
        for rtt_us in args.rtt or (4.9, 6.8, 19):
            injected = run(program, args, rtt_us, native_gbps)
            table(native, injected, rtt_us, args, native_gbps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
