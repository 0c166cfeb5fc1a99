/* unit_model.c - the equations of bindings/model against the figures of the paper and by hand
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define DXPU_STATIC /* what is not called is not compiled */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#define DXPU_MODEL_IMPLEMENTATION
#include "dxpu_model.h"

#include "cursor.h"

static dxpu_model m;
static dxpu_model_work w;

static int begin(void **state)
{
    (void)state;
    dxpu_model_default(&m);
    dxpu_model_work_default(&w);
    return 0;
}

static void check_near(double got, double want, double within, int line)
{
    double off = got > want ? got - want : want - got;
    if (!(off <= within))
        fail_msg("line %d: %.6f is not within %.6f of %.6f", line, got, within, want);
}
#define NEAR(got, want, within) check_near((got), (want), (within), __LINE__)

static void test_equation_1(void **state)
{
    (void)state;
    NEAR(dxpu_model_equation1_gbs(140, 128, 6.8), 2.635, 0.001); /* 3.5.1: 2.64 */
    NEAR(dxpu_model_equation1_gbs(140, 128, 4.9), 3.657, 0.001); /* 3.5.1: 3.66 */
    NEAR(dxpu_model_equation1_tags(2.635, 128, 6.8), 140, 0.02);
    NEAR(dxpu_model_equation1_gbs(dxpu_model_equation1_tags(11, 512, 19), 512, 19), 11, 1e-9);
}

static void test_lanes(void **state)
{
    (void)state;
    NEAR(dxpu_model_lanes_gbs(3, 1) * 8, 7.8769, 0.0001); /* 3.1: about 7.87 Gbit/s */
    NEAR(dxpu_model_lanes_gbs(1, 16), 4.0, 1e-9);
    NEAR(dxpu_model_lanes_gbs(4, 16), 2 * dxpu_model_lanes_gbs(3, 16), 1e-9);
    NEAR(dxpu_model_lanes_gbs(5, 16), 4 * dxpu_model_lanes_gbs(3, 16), 1e-9);
    assert_true(dxpu_model_lanes_gbs(0, 16) <= 0 && dxpu_model_lanes_gbs(6, 16) <= 0);
    assert_true(dxpu_model_lanes_gbs(3, 33) <= 0);
}

/* Table 7 and 5.1; what was measured stands behind each. */
static void test_directions(void **state)
{
    (void)state;
    NEAR(dxpu_model_read_gbs(&m, false), 11.2, 0.3);
    NEAR(dxpu_model_write_gbs(&m, false), 12.5, 0.4);
    NEAR(dxpu_model_read_gbs(&m, true), 2.7, 0.1);
    NEAR(dxpu_model_write_gbs(&m, true), 11.6, 0.1);
    NEAR(dxpu_model_push_gbs(&m, true), 9.44, 0.3);
    NEAR(dxpu_model_read_gbs(&m, true) / 11.2, 0.24, 0.005);
    NEAR(dxpu_model_write_gbs(&m, true) / 12.5, 0.93, 0.005);
}

static void test_writes_do_not_depend_on_the_round_trip(void **state)
{
    double near_gbs = dxpu_model_write_gbs(&m, true), push_gbs = dxpu_model_push_gbs(&m, true);
    double read_gbs = dxpu_model_read_gbs(&m, true);
    (void)state;
    m.rtt_us = 100;
    NEAR(dxpu_model_write_gbs(&m, true), near_gbs, 0);
    NEAR(dxpu_model_push_gbs(&m, true), push_gbs, 0);
    NEAR(dxpu_model_read_gbs(&m, true), read_gbs * 6.8 / 100, 1e-9); /* the control */
}

static void test_reads_stop_at_the_link(void **state)
{
    double link;
    (void)state;
    link = dxpu_model_link_gbs(&m, true, 64, 12);
    m.tags = 65536;
    NEAR(dxpu_model_read_gbs(&m, true), link, 1e-9);
    m.generation = 4;
    NEAR(dxpu_model_read_gbs(&m, true), dxpu_model_network_gbs(&m, 64, 12), 1e-9);
    NEAR(dxpu_model_read_gbs(&m, true), 15.696, 0.001); /* of 25: the cables */
    m.network_gbit_s = 10;
    NEAR(dxpu_model_read_gbs(&m, true), 15.696 / 20, 0.001);
    NEAR(dxpu_model_read_gbs(&m, false), 22.08, 0.01); /* the control: a host has no network */
}

/* Real frames, filled by the builder up to a number of TLPs: their bytes on the cable are what
   the equation charges. */
static double bytes_on_the_cable(uint32_t payload, bool completion, unsigned count)
{
    static uint8_t data[4096], tlp[4200], body[65535];
    size_t cap = m.mtu_bytes - 28 - DXPU_FRAME_FULL_BYTES - DXPU_FRAME_CRC_BYTES;
    size_t len = 0, frames = 0;
    dxpu_tlp t;
    dxpui_builder b;
    memset(&t, 0, sizeof t);
    t.type = completion ? DXPU_TLP_CPLD : DXPU_TLP_MWR;
    t.header_dw = completion ? 3 : 4;
    t.address = completion ? 0 : (uint64_t)1 << 39;
    t.byte_count = (uint16_t)(completion ? payload : 0);
    t.length_dw = (uint16_t)(payload / 4);
    t.first_be = t.last_be = completion ? 0 : 0xf;
    t.payload.ptr = data;
    t.payload.len = payload;
    assert_int_equal(dxpu_tlp_encode(&t, tlp, sizeof tlp, &len), DXPU_OK);
    builder_start(&b, body, cap);
    for (unsigned i = 0; i < count; i++) {
        cursor c;
        dxpu_bytes in = { tlp, len };
        int rc = cursor_start(&c, in);
        assert_int_equal(rc, DXPU_OK);
        while ((rc = cursor_place(&b, &c)) != DXPU_OK) {
            assert_true(rc == DXPU_E_MORE || rc == DXPU_E_ROOM);
            builder_start(&b, body, cap);
            frames++;
        }
    }
    return (double)frames * (m.mtu_bytes + 38.0);
}

static void test_w30_w44_what_frames_cost(void **state)
{
    static const uint32_t payload[] = { 64, 128, 256, 1024, 4096 }, mtu[] = { 1280, 1500, 9000 };
    (void)state;
    for (unsigned i = 0; i < 30; i++) {
        uint32_t n = payload[i % 5];
        bool completion = i / 5 % 2;
        double cable, gbs;
        m.mtu_bytes = mtu[i / 10];
        cable = bytes_on_the_cable(n, completion, 20000);
        gbs = m.network_gbit_s / 8 * (20000.0 * n) / cable;
        NEAR(dxpu_model_network_gbs(&m, n, completion ? 12 : 16) / gbs, 1, 0.02);
    }
    /* the control: payload alone would be far less */
    m.mtu_bytes = 1500;
    assert_true(bytes_on_the_cable(64, true, 20000) > 1.5 * 20000 * 64);
}

static void test_times_of_copies(void **state)
{
    double few = dxpu_model_htod_us(&m, true, 4) - dxpu_model_htod_us(&m, false, 4);
    double native = dxpu_model_htod_us(&m, false, 32e6),
           pooled = dxpu_model_htod_us(&m, true, 32e6);
    (void)state;
    NEAR(dxpu_model_rtt_delta_us(&m), 5.6, 1e-9);
    NEAR(few, 5.6, 0.01); /* 3.4.1: RTT_delta, then the ratio of the throughputs */
    NEAR(pooled / native, dxpu_model_read_gbs(&m, false) / dxpu_model_read_gbs(&m, true), 0.01);
    few = dxpu_model_dtoh_us(&m, true, 4) - dxpu_model_dtoh_us(&m, false, 4);
    NEAR(few, 2.8, 0.01); /* 0.5 RTT_delta */
    few = dxpu_model_push_us(&m, true, 64) - dxpu_model_push_us(&m, false, 64);
    NEAR(few, 2.8, 0.01);
    assert_true(dxpu_model_push_us(&m, true, 32e6) < pooled / 3); /* 5.1: 2.7 to 9.44 GB/s */
}

static void test_a_longer_copy_never_takes_less(void **state)
{
    double last = 0;
    (void)state;
    for (double bytes = 1; bytes < 1e9; bytes *= 1.5) {
        double us = dxpu_model_htod_us(&m, true, bytes);
        assert_true(us > last);
        assert_true(us > dxpu_model_htod_us(&m, false, bytes));
        last = us;
    }
}

/* 8.1 us kernels that the host launches every 13.8 us keep 84 %, not the 59 % of a naive sum. */
static void test_the_launch_queue_hides_round_trips(void **state)
{
    (void)state;
    w.kernels = 1000;
    w.kernel_us = 8.1;
    w.launch_us = 13.8;
    NEAR(dxpu_model_performance(&m, &w), 0.8364, 0.005); /* Table 11, batch size 64 */
    w.launch_us = 0;
    m.reads_per_kernel = 1;
    NEAR(dxpu_model_performance(&m, &w), 8.1 / 13.7, 1e-9); /* 59 % */
    w.launch_us = 13.7;
    NEAR(dxpu_model_performance(&m, &w), 1, 1e-9);
    w.queued = false;
    NEAR(dxpu_model_performance(&m, &w), (8.1 + 13.7) / (13.7 + 13.7), 1e-9);
}

static void test_performance_falls_with_the_round_trip(void **state)
{
    double last = 1, knee;
    (void)state;
    assert_true(dxpu_model_performance(&m, &w) >= 1); /* no work, nothing lost */
    w.kernels = 1;
    w.kernel_us = 102.3;
    NEAR(dxpu_model_performance(&m, &w), 0.927, 0.004); /* Table 9 */
    knee = dxpu_model_rtt_for(&m, &w, 0.9, 100);
    for (m.rtt_us = 1.3; m.rtt_us < 30; m.rtt_us += 0.1) {
        double now = dxpu_model_performance(&m, &w);
        assert_true(now < last);
        assert_int_equal(now >= 0.9, m.rtt_us <= knee + 1e-3);
        last = now;
    }
    m.rtt_us = 8; /* Figure 4 */
    NEAR(dxpu_model_performance(&m, &w), 0.9, 0.01);
    m.rtt_us = 19;
    NEAR(dxpu_model_performance(&m, &w), 0.8, 0.01);
    NEAR(dxpu_model_rtt_for(&m, &w, 0.999999, 100), 1.2, 0.01);
    NEAR(dxpu_model_rtt_for(&m, &w, 0.1, 100), 100, 0);
    NEAR(dxpu_model_rtt_for(&m, &w, 0.1, 1), 1, 0);        /* all that was searched */
    NEAR(dxpu_model_rtt_for(&m, &w, 1.000001, 100), 0, 0); /* nowhere */
}

/* Data copied ahead cost a round trip a copy, until there are more than the step has time for. */
static void test_data_copied_ahead(void **state)
{
    (void)state;
    w.kernels = 1000;
    w.kernel_us = 100;
    w.hidden_copies = 10;
    w.hidden_bytes = 40e6; /* 4.3.2: ImageNet, a step */
    NEAR(dxpu_model_work_us(&m, &w, true), 1000 * (100 + 1.5 * 5.6) + 10 * 5.6, 1e-6);
    NEAR(dxpu_model_work_us(&m, &w, false), 1e5, 1e-6);
    w.hidden_bytes = 400e6;
    NEAR(dxpu_model_work_us(&m, &w, true), 400e6 / (dxpu_model_read_gbs(&m, true) * 1e3), 1e-6);
    NEAR(dxpu_model_work_us(&m, &w, false), 1e5, 1e-6);
}

/* Copies among kernels hold those up; while the host is the slower one, nothing. */
static void test_copies_in_order_with_kernels(void **state)
{
    double in = dxpu_model_htod_us(&m, true, 1e6), out = dxpu_model_dtoh_us(&m, true, 1e3);
    (void)state;
    w.kernels = 100;
    w.kernel_us = 50;
    w.ordered_htod_copies = 2;
    w.ordered_htod_bytes = 1e6;
    w.ordered_dtoh_copies = 3;
    w.ordered_dtoh_bytes = 1e3;
    NEAR(dxpu_model_work_us(&m, &w, true), 100 * (50 + 1.5 * 5.6) + 2 * in + 3 * out, 1e-6);
    w.launch_us = 58.4 + (2 * in + 3 * out) / 100 + 1;
    NEAR(dxpu_model_work_us(&m, &w, true), 100 * w.launch_us, 1e-6);
    w.queued = false;
    NEAR(dxpu_model_work_us(&m, &w, true), 200 * w.launch_us - 100, 1e-6);
    w.ordered_htod_copies = w.ordered_dtoh_copies = 0; /* the control */
    NEAR(dxpu_model_work_us(&m, &w, true), 100 * (58.4 + w.launch_us), 1e-6);
}

static void test_gpus_share_proxies(void **state)
{
    (void)state;
    NEAR(dxpu_model_crowding(&m, 1.5, 0.8), 1, 0);
    NEAR(dxpu_model_all_gbs(&m, 2.64), 2.64, 0);
    m.gpus = 4;
    NEAR(dxpu_model_all_gbs(&m, 2.64), 4 * 2.64, 0.5); /* 4.3.2: about linear up to four */
    m.gpus = 8;
    NEAR(dxpu_model_all_gbs(&m, 2.64), dxpu_model_link_gbs(&m, true, 64, 12), 1e-9);
    NEAR(8 * 1.5 / dxpu_model_crowding(&m, 1.5, 0.8), 8.4, 1.2); /* Table 12 */
    w.kernels = 1;
    w.kernel_us = 102.3;
    w.shared_us = 20;
    w.shared_to_device_gbs = 1.5;
    w.shared_to_host_gbs = 0.8;
    {
        double crowded = dxpu_model_performance(&m, &w);
        m.proxies = 8;
        NEAR(dxpu_model_crowding(&m, 1.5, 0.8), 1, 0);
        assert_true(dxpu_model_performance(&m, &w) > crowded);
    }
}

/* Links alone slow nothing until one of them is full; the line that was fitted slows more before,
   and never less than they do. */
static void test_links_and_the_fitted_line(void **state)
{
    double slot = dxpu_model_link_gbs(&m, true, 64, 12), up = dxpu_model_write_gbs(&m, true);
    (void)state;
    for (m.gpus = 1; m.gpus <= 64; m.gpus++) {
        double links = dxpu_model_sharing(&m, 1.5, 0.8), most = m.gpus * 1.5 / slot;
        NEAR(links, most > 1 ? most : 1, 1e-9);
        assert_true(dxpu_model_crowding(&m, 1.5, 0.8) >= links);
        NEAR(dxpu_model_sharing(&m, 0, 3), m.gpus * 3 > up ? m.gpus * 3 / up : 1, 1e-9);
    }
    m.gpus = 2;
    NEAR(dxpu_model_crowding(&m, 1.5, 0.8), 1 + 2.3 / 25, 1e-9);
    NEAR(dxpu_model_crowding(&m, 0, 11), 2 * 11 / up, 1e-9); /* here the line would have 1.44 */
    NEAR(dxpu_model_sharing(&m, 100, 0), 1, 0); /* one GPU reads no faster than its tags allow */
}

static void test_a_trace_of_even_kernels_is_a_period(void **state)
{
    static const double launch_us[] = { 8.1, 13.8, 40 }; /* none late, some, none */
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        dxpu_model_replay r;
        double native, pooled;
        dxpu_model_replay_init(&r);
        for (unsigned k = 0; k < 10000; k++)
            dxpu_model_replay_add(&m, &r, DXPU_MODEL_KERNEL, k * launch_us[i], 8.1, 0);
        native = r.end_us;
        pooled = r.end_us + r.late_us;
        NEAR(native / pooled,
             launch_us[i] /
                 dxpu_model_period_us(8.1 + dxpu_model_kernel_delta_us(&m), launch_us[i], true),
             0.001);
    }
}

static void test_a_wait_of_the_host_hides_nothing(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        dxpu_model_replay r;
        dxpu_model_replay_init(&r);
        for (unsigned k = 0; k < 100; k++) {
            dxpu_model_replay_add(&m, &r, DXPU_MODEL_KERNEL, k * 100, 10, 0);
            if (waits)
                dxpu_model_replay_add(&m, &r, DXPU_MODEL_DTOH, k * 100 + 10, 1, 4);
        }
        if (waits)
            NEAR(r.late_us, 100 * (1.5 * 5.6 + 2.8), 0.1);
        else
            NEAR(r.late_us, 1.5 * 5.6, 1e-9);
    }
}

static void test_values_out_of_range(void **state)
{
    static const struct {
        double rtt_native_us, rtt_us, dllp_share, network_gbit_s, reads;
    } bad[] = {
        { 0, 6.8, 0.08, 200, 1 },      { 1.2, 1.1, 0.08, 200, 1 }, { 1.2, 1e10, 0.08, 200, 1 },
        { 1.2, 6.8, 1, 200, 1 },       { 1.2, 6.8, -0.1, 200, 1 }, { 1.2, 6.8, 0.08, 0, 1 },
        { 1.2, 6.8, 0.08, 200, -0.1 },
    };
    (void)state;
    assert_int_equal(dxpu_model_check(&m), DXPU_OK);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        m.rtt_native_us = bad[i].rtt_native_us;
        m.rtt_us = bad[i].rtt_us;
        m.dllp_share = bad[i].dllp_share;
        m.network_gbit_s = bad[i].network_gbit_s;
        m.reads_per_kernel = bad[i].reads;
        assert_int_equal(dxpu_model_check(&m), DXPU_E_ARG);
    }
    for (unsigned i = 0; i < 10; i++) {
        uint32_t *field[] = { &m.tags,       &m.mrs_bytes,  &m.mps_bytes, &m.completion_bytes,
                              &m.push_bytes, &m.generation, &m.lanes,     &m.gpus,
                              &m.proxies,    &m.mtu_bytes };
        dxpu_model_default(&m);
        *field[i] = 0;
        assert_int_equal(dxpu_model_check(&m), DXPU_E_ARG);
        *field[i] = 65537;
        assert_int_equal(dxpu_model_check(&m), DXPU_E_ARG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_equation_1, begin),
        cmocka_unit_test_setup(test_lanes, begin),
        cmocka_unit_test_setup(test_directions, begin),
        cmocka_unit_test_setup(test_writes_do_not_depend_on_the_round_trip, begin),
        cmocka_unit_test_setup(test_reads_stop_at_the_link, begin),
        cmocka_unit_test_setup(test_w30_w44_what_frames_cost, begin),
        cmocka_unit_test_setup(test_times_of_copies, begin),
        cmocka_unit_test_setup(test_a_longer_copy_never_takes_less, begin),
        cmocka_unit_test_setup(test_the_launch_queue_hides_round_trips, begin),
        cmocka_unit_test_setup(test_performance_falls_with_the_round_trip, begin),
        cmocka_unit_test_setup(test_data_copied_ahead, begin),
        cmocka_unit_test_setup(test_copies_in_order_with_kernels, begin),
        cmocka_unit_test_setup(test_gpus_share_proxies, begin),
        cmocka_unit_test_setup(test_links_and_the_fitted_line, begin),
        cmocka_unit_test_setup(test_a_trace_of_even_kernels_is_a_period, begin),
        cmocka_unit_test_setup(test_a_wait_of_the_host_hides_nothing, begin),
        cmocka_unit_test_setup(test_values_out_of_range, begin),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
