/* unit_workload.c - traces and profiles as workloads, and broken ones
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAD "Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Ctx,Strm,Name\n"

static char path[] = "/tmp/dxpu-workload-XXXXXX";
static perf_work w;
static dxpu_model m;

static int begin(void **state)
{
    int fd;
    (void)state;
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    fd = mkstemp(path);
    dxpu_model_default(&m);
    return fd < 0 || close(fd);
}

static int end(void **state)
{
    (void)state;
    perf_work_free(&w);
    return unlink(path);
}

static const char *read_bytes(const void *bytes, size_t len)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    perf_work_free(&w);
    return perf_work_read(path, &w);
}

static const char *read_text(const char *text)
{
    return read_bytes(text, strlen(text));
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-6 * fabs(want))
        fail_msg("%.9g is not %.9g", got, want);
}

static void test_fields_in_quotes(void **state)
{
    char line[] = "a,\"b,c\",\"say \"\"d\"\"\",,\"e", *field[PERF_FIELDS_MAX];
    (void)state;
    assert_int_equal(perf_split(line, field), 5);
    assert_string_equal(field[0], "a");
    assert_string_equal(field[1], "b,c");
    assert_string_equal(field[2], "say \"d\"");
    assert_string_equal(field[3], "");
    assert_string_equal(field[4], "e");
}

static void test_more_fields_than_there_is_room_for(void **state)
{
    char line[1000], *field[PERF_FIELDS_MAX];
    (void)state;
    memset(line, ',', sizeof line);
    line[sizeof line - 1] = 0;
    assert_int_equal(perf_split(line, field), PERF_FIELDS_MAX);
}

/* Even kernels in a trace keep what the same kernels keep as numbers. */
static void test_a_trace_and_its_means_agree(void **state)
{
    static char text[200000];
    size_t at = (size_t)snprintf(text, sizeof text, HEAD);
    perf_work numbers;
    (void)state;
    for (unsigned i = 0; i < 2000; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%u,8100,%u,,GPU,1,7,k\n", i * 13800, i);
    assert_null(read_text(text));
    assert_int_equal(w.ops, 2000);
    near(w.sum.kernel_us, 8.1);
    near(w.short_kernels, 1);
    memset(&numbers, 0, sizeof numbers);
    numbers.sum = w.sum;
    numbers.sum.queued = true;
    numbers.sum.launch_us = 13.8;
    assert_true(fabs(perf_performance(&m, &w, 1) - perf_performance(&m, &numbers, 1)) < 0.001);
    assert_true(fabs(perf_rtt_for(&m, &w, 0.9, 100) - perf_rtt_for(&m, &numbers, 0.9, 100)) < 0.02);
}

/* The order of rows is not the order of time; each stream has its own lateness. */
static void test_streams_are_late_alone(void **state)
{
    (void)state;
    assert_null(read_text(HEAD "20000,10000,1,,G,1,7,a\n0,10000,2,,G,1,7,b\n"
                               "0,100000,3,,G,1,8,c\nx,y,z\n"));
    assert_int_equal(w.streams, 2);
    assert_int_equal(w.lines_passed, 1);
    near(w.op[0].start_us, 0);
    near(perf_native_us(&m, &w, 1), 100);
    near(perf_extra_us(&m, &w, 1, PERF_ALL_KINDS), 8.4); /* the long one's own */
}

static void test_copies_shared_with_other_gpus(void **state)
{
    double alone, reads = dxpu_model_read_gbs(&m, true);
    (void)state;
    assert_null(read_text(HEAD "0,90000,1,1.0,G,1,7,[CUDA memcpy HtoD]\n"
                               "90000,10000,2,,G,1,7,k\n"));
    near(w.sum.shared_us, 90);
    near(w.sum.shared_to_device_gbs, 10);
    near(w.sum.shared_to_host_gbs + 1, 1);
    alone = perf_extra_us(&m, &w, 1, PERF_ALL_KINDS);
    m.gpus = 2;
    near(perf_extra_us(&m, &w, 1, PERF_ALL_KINDS), alone + 90 * reads / 25.0);
    near(perf_extra_us(&m, &w, 1, 1 << DXPU_MODEL_KERNEL), 8.4); /* no part of the kernels' */
}

static void test_changes_are_sorted_and_do_no_harm(void **state)
{
    perf_change c[PERF_CHANGES];
    double now;
    (void)state;
    assert_null(read_text(HEAD "0,90000,1,1.0,G,1,7,[CUDA memcpy HtoD]\n"
                               "90000,10000,2,,G,1,7,k\n"));
    now = perf_performance(&m, &w, 1);
    perf_changes(&m, &w, c);
    for (unsigned i = 0; i < 2; i++) { /* a copy that tags hold back */
        assert_true(strstr(c[i].what, "read requests") || strstr(c[i].what, "host write"));
        assert_true(c[i].performance > now + 0.3);
    }
    for (unsigned i = 0; i < PERF_CHANGES; i++) {
        assert_true(c[i].performance >= now - 1e-9);
        assert_true(i == 0 || c[i].performance <= c[i - 1].performance);
    }
}

/* A copy without a size would be a confident wrong answer: the line is named. */
static void test_bytes_that_cannot_be_read(void **state)
{
    static const char *const bad[] = { "", "x", "1,5", "-1", "nan", "1.0 MB" };
    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[400];
        const char *why;
        snprintf(text, sizeof text,
                 "note\n" HEAD "0,8000,1,,G,1,7,k\n9000,9000,2,\"%s\",G,1,7,[CUDA memcpy HtoD]\n",
                 bad[i]);
        why = read_text(text);
        assert_non_null(why);
        assert_non_null(strstr(why, "line 4"));
        assert_null(w.op);
    }
    assert_null(read_text(HEAD "0,8000,1,x,G,1,7,k\n9000,9000,2,1,G,1,7,[CUDA memcpy HtoD]\n"));
    assert_int_equal(w.ops, 2); /* the control; a kernel has no bytes */
    {
        const char *why =
            read_text("Start (ns),Duration (ns),Name\n0,1,k\n2,3,[CUDA memcpy DtoH]\n");
        assert_non_null(why);
        assert_non_null(strstr(why, "line 3"));
        assert_non_null(strstr(why, "Bytes"));
    }
}

static void test_rows_left_out_are_reported(void **state)
{
    (void)state;
    assert_null(read_text(HEAD "0,8000,1,,G,1,7,k\n\nx,y,z\n9000,1,2,,G,1,7,k\n,,\n"));
    assert_int_equal(w.lines_passed, 2);
    assert_int_equal(w.warnings, 1);
    assert_non_null(strstr(w.warning[0], "name: 2,"));
    assert_non_null(strstr(w.warning[0], "line 4"));
    assert_null(read_text(HEAD "0,8000,1,,G,1,7,k\n9000,9,2,4,G,1,7,[CUDA memcpy Peer-to-Peer]\n"));
    assert_int_equal(w.warnings, 1);
    assert_non_null(strstr(w.warning[0], "line 3"));
    assert_null(read_text(HEAD "0,8000,1,,G,1,7,k\n9000,9,2,4,G,1,7,[CUDA memset]\n"
                               "9100,9,2,4,G,1,7,[CUDA memcpy Device-to-Device]\n"));
    assert_int_equal(w.warnings, 0); /* the control */
}

#define PROFILE(calls, more)                                                                       \
    "{\"version\":1,\"calls\":[{\"name\":\"cuLaunchKernel\",\"count\":100,\"bytes\":0,\"ns\":"     \
    "5}" calls "],\"kernel_ns_histogram\":[{\"le_ns\":8192,\"count\":100}]" PACE more "}"
#define PACE ",\"launch_gaps\":50,\"launch_gap_ns\":150000"
#define ORDER(in, out, in_bytes, out_bytes)                                                        \
    ",\"ordered_htod\":" #in ",\"ordered_dtoh\":" #out ",\"ordered_htod_bytes\":" #in_bytes        \
    ",\"ordered_dtoh_bytes\":" #out_bytes
#define CALL(name, more) ",{\"name\":\"" name "\",\"count\":4,\"bytes\":4000,\"ns\":9" more "}"

static void warned(const char *text, const char *words)
{
    assert_null(read_text(text));
    assert_int_equal(w.warnings, words ? 1 : 0);
    if (words)
        assert_non_null(strstr(w.warning[0], words));
}

static void test_profiles_that_are_not_native_runs(void **state)
{
    (void)state;
    warned(PROFILE("", ""), NULL);
    warned(PROFILE("", ",\"captured\":0,\"kernels_untimed\":1"), NULL); /* 1 % */
    warned(PROFILE("", ",\"kernels_untimed\":2"), "2 of 100 kernels");
    warned(PROFILE("", ",\"captured\":7"), "7 calls went into graphs");
    warned(PROFILE(CALL("cuGraphLaunch", ""), ""), "launched 4 times");
    warned(PROFILE("", ",\"injected\":{\"rtt_us\":6.8}"), "DXPU_INJECT_RTT_US=6.8");
    warned(PROFILE(CALL("cuMemcpyAsync", ORDER(0, 0, 0, 0)), ""), "4 copies");
    warned(PROFILE(CALL("cuMemcpyDtoDAsync_v2", ORDER(0, 0, 0, 0)), ""), NULL);
    assert_non_null(read_text(PROFILE("", ",\"captured\":\"x\"")));
    assert_non_null(read_text(PROFILE(CALL("cuMemcpy", ",\"htod\":1,\"htod_bytes\":4001"), "")));
}

/* The library knows which way a copy went; its name need not say. */
static void test_copies_by_direction(void **state)
{
    (void)state;
    warned(PROFILE(CALL("cuMemcpy", ",\"htod\":3,\"dtoh\":1,\"htod_bytes\":3000"), ""), NULL);
    near(w.sum.htod_copies, 3);
    near(w.sum.htod_bytes, 1000);
    near(w.sum.dtoh_copies, 1);
    near(w.sum.dtoh_bytes, 1000);
    warned(PROFILE(CALL("cuMemcpyAsync",
                        ",\"htod\":4,\"dtoh\":0,\"htod_bytes\":4000" ORDER(0, 0, 0, 0)),
                   ""),
           NULL);
    near(w.sum.hidden_copies, 4);
    near(w.sum.hidden_bytes, 4000);
    warned(PROFILE(CALL("cuMemcpyAsync", ",\"htod\":0,\"dtoh\":0,\"htod_bytes\":0"), ""), NULL);
    assert_true(w.sum.hidden_copies <= 0); /* inside the GPU */
}

/* Copies in the kernels' streams hold those up, others overlap; synchronous ones are waited for. */
static void test_copies_in_order_with_kernels(void **state)
{
    static const char both[] = ",\"htod\":3,\"dtoh\":1,\"htod_bytes\":3000";
    char call[600], text[900];
    double alone;
    (void)state;
    assert_null(read_text(PROFILE("", "")));
    alone = perf_extra_us(&m, &w, 1, PERF_ALL_KINDS);
    snprintf(call, sizeof call, CALL("cuMemcpyBatchAsync", "%s" ORDER(2, 1, 2000, 500)), both);
    snprintf(text, sizeof text, PROFILE("%s", ""), call);
    warned(text, NULL);
    near(w.sum.ordered_htod_copies, 2);
    near(w.sum.ordered_htod_bytes, 1000);
    near(w.sum.ordered_dtoh_copies, 1);
    near(w.sum.ordered_dtoh_bytes, 500);
    near(w.sum.hidden_copies, 1);
    near(w.sum.hidden_bytes, 1000);
    near(perf_extra_us(&m, &w, 1, PERF_ALL_KINDS),
         alone + 5.6 +
             2 * (dxpu_model_htod_us(&m, true, 1000) - dxpu_model_htod_us(&m, false, 1000)) +
             dxpu_model_dtoh_us(&m, true, 500) - dxpu_model_dtoh_us(&m, false, 500));
    near(perf_extra_us(&m, &w, 1, 1 << DXPU_MODEL_KERNEL), alone + 5.6);
    snprintf(call, sizeof call, CALL("cuMemcpy", "%s" ORDER(3, 1, 3000, 1000)), both);
    snprintf(text, sizeof text, PROFILE("%s", ""), call);
    warned(text, NULL); /* the control: synchronous */
    near(w.sum.htod_copies, 3);
    assert_true(w.sum.ordered_htod_copies <= 0);
    for (unsigned i = 0; i < 4; i++) { /* more than there are */
        snprintf(call, sizeof call, CALL("cuMemcpyAsync", "%s,\"%s\":3500"), both,
                 ((const char *const[]){ "ordered_htod", "ordered_dtoh", "ordered_htod_bytes",
                                         "ordered_dtoh_bytes" })[i]);
        snprintf(text, sizeof text, PROFILE("%s", ""), call);
        assert_non_null(read_text(text));
    }
}

/* The host's pace is from launch to launch, not the time of a launch in the driver. */
static void test_the_pace_of_the_host(void **state)
{
    static const char old[] =
        "{\"version\":1,\"calls\":[{\"name\":\"cuLaunchKernel\",\"count\":100,\"bytes\":0,"
        "\"ns\":500000}],\"kernel_ns_histogram\":[{\"le_ns\":8192,\"count\":100}]%s}";
    char text[400];
    (void)state;
    snprintf(text, sizeof text, old, ",\"launch_gaps\":50,\"launch_gap_ns\":1000000");
    warned(text, NULL);
    near(w.sum.launch_us, 20);
    near(perf_performance(&m, &w, 1), 1); /* 8.2 us and 8.4 are less */
    snprintf(text, sizeof text, old, ",\"launch_gaps\":0,\"launch_gap_ns\":0");
    warned(text, NULL);
    near(w.sum.launch_us, 5);
    snprintf(text, sizeof text, old, "");
    warned(text, "older libdxpu-inject");
    near(w.sum.launch_us, 5);
    warned(PROFILE(CALL("cuMemcpyHtoDAsync_v2", ""), ""), "older libdxpu-inject");
    near(w.sum.hidden_copies, 4);
    warned(PROFILE(CALL("cuMemcpyHtoD_v2", ""), ""), NULL); /* the control: no order to know */
    snprintf(text, sizeof text, old, ",\"launch_gaps\":-1");
    assert_non_null(read_text(text));
}

/* Copies for which the host's launches leave time cost nothing, alone as little as together. */
static void test_single_losses_are_no_more_than_the_whole(void **state)
{
    static const char profile[] =
        "{\"version\":1,\"calls\":[{\"name\":\"cuLaunchKernel\",\"count\":1000,\"bytes\":0,"
        "\"ns\":4000000},{\"name\":\"cuMemcpyHtoDAsync_v2\",\"count\":50,\"bytes\":50000,"
        "\"ns\":9,\"htod\":50,\"dtoh\":0,\"htod_bytes\":50000" ORDER(
            50, 0, 50000,
            0) "}],"
               "\"kernel_ns_histogram\":[{\"le_ns\":5220,\"count\":1000}],\"launch_gaps\":1000,"
               "\"launch_gap_ns\":%u}";
    char text[600];
    (void)state;
    for (unsigned us = 0; us <= 14; us += 2) {
        double whole, sum = 0;
        snprintf(text, sizeof text, profile, us * 1000000);
        warned(text, NULL);
        whole = perf_extra_us(&m, &w, 1, PERF_ALL_KINDS);
        for (unsigned kind = 0; kind < DXPU_MODEL_KINDS; kind++)
            sum += perf_extra_us(&m, &w, 1, 1u << kind);
        assert_true(sum <= whole + 1e-6);
        assert_true(us < 14 ? sum > 0 : sum <= 0); /* the control; 14 us hide 5 + 8.4 and all */
        if (us == 0)
            near(sum, whole); /* and where nothing hides, all is named */
    }
}

/* Whatever bytes there are, a workload that is taken has a sensible performance. */
static void test_broken_files(void **state)
{
    static const char *const whole[] = {
        "note\n" HEAD "0,90000,1,1.0,\"G (0)\",1,7,[CUDA memcpy HtoD]\n90000,8000,2,,G,1,7,\"k\"\n",
        "{\"version\":1,\"calls\":[{\"name\":\"cuLaunchKernel\",\"count\":9,\"bytes\":0,\"ns\":5}],"
        "\"kernel_ns_histogram\":[{\"le_ns\":8192,\"count\":9}]}",
    };
    uint64_t s = 1;
    unsigned taken = 0, refused = 0;
    (void)state;
    for (unsigned i = 0; i < 4000; i++) {
        char text[400];
        size_t len = strlen(whole[i & 1]);
        memcpy(text, whole[i & 1], len);
        for (unsigned k = 0; k < i % 5; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            text[(s >> 33) % len] = "\",\n{}[]0e9-.:\0\xff"[(s >> 20) % 15];
        }
        len = i % 7 ? len : (size_t)(s >> 40) % len;
        if (read_bytes(text, len)) {
            refused++;
            assert_null(w.op);
        } else {
            double p = perf_performance(&m, &w, 1);
            assert_true(p >= 0 && p <= 1.0001);
            taken++;
        }
    }
    assert_true(taken > 500 && refused > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_in_quotes),
        cmocka_unit_test(test_more_fields_than_there_is_room_for),
        cmocka_unit_test_setup_teardown(test_a_trace_and_its_means_agree, begin, end),
        cmocka_unit_test_setup_teardown(test_streams_are_late_alone, begin, end),
        cmocka_unit_test_setup_teardown(test_copies_shared_with_other_gpus, begin, end),
        cmocka_unit_test_setup_teardown(test_changes_are_sorted_and_do_no_harm, begin, end),
        cmocka_unit_test_setup_teardown(test_bytes_that_cannot_be_read, begin, end),
        cmocka_unit_test_setup_teardown(test_rows_left_out_are_reported, begin, end),
        cmocka_unit_test_setup_teardown(test_profiles_that_are_not_native_runs, begin, end),
        cmocka_unit_test_setup_teardown(test_copies_by_direction, begin, end),
        cmocka_unit_test_setup_teardown(test_copies_in_order_with_kernels, begin, end),
        cmocka_unit_test_setup_teardown(test_the_pace_of_the_host, begin, end),
        cmocka_unit_test_setup_teardown(test_single_losses_are_no_more_than_the_whole, begin, end),
        cmocka_unit_test_setup_teardown(test_broken_files, begin, end),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
