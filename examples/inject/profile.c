/* SPDX-License-Identifier: MIT
   What the program did, as JSON at exit: calls, bytes, the durations of its kernels. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"

enum {
    STEPS_PER_OCTAVE = 8,              /* of the histogram: bounds 9 % apart */
    FIRST_STEP = 8 * STEPS_PER_OCTAVE, /* all up to 256 ns, below what events resolve */
    STEPS = 45 * STEPS_PER_OCTAVE,     /* nine hours */
    STREAMS = 4096,
    GAP_NS = 1000000 /* from here on the host was busy with something else */
};

typedef _Atomic uint64_t counter;

static struct {
    counter count[ENTRY_COUNT], bytes[ENTRY_COUNT], ns[ENTRY_COUNT];
    counter htod[ENTRY_COUNT], dtoh[ENTRY_COUNT], htod_bytes[ENTRY_COUNT]; /* of these */
    /* Of these, behind kernels in their stream, and in their way. */
    counter ordered_htod[ENTRY_COUNT], ordered_dtoh[ENTRY_COUNT];
    counter ordered_htod_bytes[ENTRY_COUNT], ordered_dtoh_bytes[ENTRY_COUNT];
    counter kernels[STEPS + 1], untimed, captured;
    counter extra_ops, skipped_ops, extra_copies, extra_bytes, extra_kernels;
    counter gaps, gap_ns;     /* from launch to launch */
    counter streams[STREAMS]; /* in which kernels were launched, by hash */
} total;
static INJECT_TLS struct {
    uint64_t launch_ns, own_ns; /* start of the last launch, 0: none; this library's since */
    bool kernels;               /* were launched in the thread's own stream */
} thread;
static atomic_bool at_exit_set;
static bool is_child;

static void add(counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_release); /* behind those added before */
}

static uint64_t get(counter *c)
{
    return atomic_load_explicit(c, memory_order_acquire);
}

uint64_t inject_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns whether kernels were launched in the stream, by this call or before it. */
static bool has_kernels(CUstream stream, bool launch)
{
    uint64_t key = (uintptr_t)stream;
    if (stream == CU_STREAM_PER_THREAD) {
        return thread.kernels = thread.kernels || launch;
    }
    for (uint64_t i = 0; i < STREAMS; i++) {
        counter *at = &total.streams[(key / 16 + key + i) % STREAMS];
        uint64_t found = get(at);
        if (!found && (!launch || atomic_compare_exchange_strong(at, &found, key))) {
            return launch;
        }
        if (found == key) {
            return true;
        }
    }
    return false;
}

/* How fast the thread launches while nothing holds it up: not across a wait for the GPU. */
static void pace(bool launch, bool waits, uint64_t start_ns)
{
    if (launch) {
        uint64_t gap_ns = start_ns - thread.launch_ns - thread.own_ns;
        if (thread.launch_ns && gap_ns < GAP_NS) {
            add(&total.gaps, 1);
            add(&total.gap_ns, gap_ns);
        }
        thread.own_ns = 0;
    }
    thread.launch_ns = launch ? start_ns : waits ? 0 : thread.launch_ns;
}

void inject_count_own(uint64_t ns)
{
    thread.own_ns += ns;
}

void inject_count_call(enum entry e, const struct op *op, CUstream stream, CUresult result,
                       uint64_t start_ns, uint64_t end_ns)
{
    add(&total.count[e], 1);
    add(&total.ns[e], end_ns - start_ns);
    if (result != CUDA_SUCCESS) {
        return;
    }
    bool launch = op->kernel || op->graph;
    bool ordered = has_kernels(stream, launch);
    bool waits = op->waits || op->dtoh || (op->htod && !strstr(inject_name(e), "Async"));
    pace(launch, waits, start_ns);
    add(&total.bytes[e], op->bytes);
    add(&total.htod[e], op->htod);
    add(&total.dtoh[e], op->dtoh);
    add(&total.htod_bytes[e], op->htod_bytes);
    if (ordered && (op->htod || op->dtoh)) {
        add(&total.ordered_htod[e], op->htod);
        add(&total.ordered_dtoh[e], op->dtoh);
        add(&total.ordered_htod_bytes[e], op->htod_bytes);
        add(&total.ordered_dtoh_bytes[e], op->dtoh ? op->bytes - op->htod_bytes : 0);
    }
}

static uint64_t bound_ns(int step)
{
    return (uint64_t)ceil(exp2((double)step / STEPS_PER_OCTAVE));
}

void inject_count_kernel(double ns)
{
    int step = ns > 1 ? (int)fmin(ceil(log2(ns) * STEPS_PER_OCTAVE), STEPS) : 0;
    add(&total.kernels[step > FIRST_STEP ? step : FIRST_STEP], 1);
}

void inject_count_untimed(void)
{
    add(&total.untimed, 1);
}

void inject_count_extra(bool done, unsigned copies, uint64_t bytes, unsigned kernels)
{
    add(done ? &total.extra_ops : &total.skipped_ops, 1);
    add(&total.extra_copies, copies);
    add(&total.extra_bytes, bytes);
    add(&total.extra_kernels, kernels);
}

void inject_count_captured(void)
{
    add(&total.captured, 1);
    thread.launch_ns = 0; /* it builds a graph meanwhile */
}

/* ---- the file */

/* What was added last is read first: while other threads go on no part exceeds its whole. */
static void write_call(FILE *out, enum entry e)
{
    uint64_t out_bytes = get(&total.ordered_dtoh_bytes[e]);
    uint64_t in_bytes = get(&total.ordered_htod_bytes[e]);
    uint64_t ordered_out = get(&total.ordered_dtoh[e]), ordered_in = get(&total.ordered_htod[e]);
    uint64_t htod_bytes = get(&total.htod_bytes[e]);
    uint64_t dtoh = get(&total.dtoh[e]), htod = get(&total.htod[e]);
    uint64_t bytes = get(&total.bytes[e]), ns = get(&total.ns[e]), count = get(&total.count[e]);
    fprintf(out,
            "\n  {\"name\":\"%s\",\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"htod\":%" PRIu64
            ",\"dtoh\":%" PRIu64 ",\"htod_bytes\":%" PRIu64 ",\"ns\":%" PRIu64
            ",\"ordered_htod\":%" PRIu64 ",\"ordered_dtoh\":%" PRIu64
            ",\"ordered_htod_bytes\":%" PRIu64 ",\"ordered_dtoh_bytes\":%" PRIu64 "}",
            inject_name(e), count, bytes, htod, dtoh, htod_bytes, ns, ordered_in, ordered_out,
            in_bytes, out_bytes);
}

static void write_calls(FILE *out)
{
    const char *comma = "";
    fprintf(out, "{\"version\":1,\n \"calls\":[");
    for (int e = 0; e < ENTRY_COUNT; e++) {
        if (get(&total.count[e])) {
            fputs(comma, out);
            write_call(out, (enum entry)e);
            comma = ",";
        }
    }
    fprintf(out, "]");
}

static void write_rest(FILE *out)
{
    const struct settings *s = &inject_settings;
    const char *comma = "";
    fprintf(out, ",\n \"kernel_ns_histogram\":[");
    for (int step = FIRST_STEP; step <= STEPS; step++) {
        if (get(&total.kernels[step])) {
            fprintf(out, "%s\n  {\"le_ns\":%" PRIu64 ",\"count\":%" PRIu64 "}", comma,
                    bound_ns(step), get(&total.kernels[step]));
            comma = ",";
        }
    }
    fprintf(out,
            "],\n \"kernels_untimed\":%" PRIu64 ",\n \"captured\":%" PRIu64
            ",\n \"launch_gaps\":%" PRIu64 ",\n \"launch_gap_ns\":%" PRIu64,
            get(&total.untimed), get(&total.captured), get(&total.gaps), get(&total.gap_ns));
    if (s->inject) {
        fprintf(out,
                ",\n \"injected\":{\"rtt_us\":%g,\"native_rtt_us\":%g,\"method\":\"%s\",\"calls\":"
                "%" PRIu64 ",\"skipped\":%" PRIu64 ",\"copies\":%" PRIu64 ",\"bytes\":%" PRIu64
                ",\"kernels\":%" PRIu64 "}",
                s->rtt_ns / 1e3, s->native_rtt_ns / 1e3,
                s->method == METHOD_DELAY ? "delay" : "device", get(&total.extra_ops),
                get(&total.skipped_ops), get(&total.extra_copies), get(&total.extra_bytes),
                get(&total.extra_kernels));
    }
    fprintf(out, "}\n");
}

/* The name given, with the process's number for %p; a forked child has its own file anyway. */
static void file_name(char *name, size_t size)
{
    const char *given = inject_settings.profile, *mark = strstr(given, "%p");
    if (mark) {
        snprintf(name, size, "%.*s%ld%s", (int)(mark - given), given, (long)getpid(), mark + 2);
    } else if (is_child) {
        snprintf(name, size, "%s.%ld", given, (long)getpid());
    } else {
        snprintf(name, size, "%s", given);
    }
}

static bool write_file(const char *name)
{
    FILE *out = fopen(name, "w");
    if (!out) {
        return false;
    }
    write_calls(out);
    write_rest(out);
    bool whole = !ferror(out);
    return fclose(out) == 0 && whole;
}

static bool idle(void)
{
    uint64_t calls = 0;
    for (int e = 0; e < ENTRY_COUNT; e++) {
        calls += get(&total.count[e]);
    }
    return calls == 0;
}

static void write_profile(void)
{
    char name[8224], fresh[8256];
    if (idle()) {
        return; /* a child that only inherited the handler */
    }
    inject_depth++;
    inject_time_harvest();
    file_name(name, sizeof name);
    snprintf(fresh, sizeof fresh, "%s.%ld~", name, (long)getpid());
    if (!write_file(fresh) || rename(fresh, name) != 0) {
        inject_say("%s: %s: the profile is lost", name, strerror(errno));
        unlink(fresh);
    }
    inject_depth--;
}

/* Set at the first call, so that it runs before the driver's own handlers, which are older. */
void inject_profile_at_exit(void)
{
    if (inject_settings.profile && !atomic_load_explicit(&at_exit_set, memory_order_relaxed) &&
        !atomic_exchange(&at_exit_set, true)) {
        atexit(write_profile);
    }
}

void inject_profile_forked(void)
{
    memset(&total, 0, sizeof total);
    memset(&thread, 0, sizeof thread);
    is_child = true;
}
