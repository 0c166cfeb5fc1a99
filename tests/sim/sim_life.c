/* Long lives: counters that wrap, keys that change, years of virtual time, and 2,000 channels in
   one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dxpu.h"
#include "sim.h"

#define YEAR_NS (365ull * 86400 * 1000000000)

enum { PAIRS = 1000, WRITES = 20000 };

static sim one;

static void finish(void)
{
    while (sim_step(&one))
        ;
    if (one.why[0])
        print_error("%s\n", one.why);
    assert_string_equal(one.why, "");
}

static dxpu_channel *channel(int end)
{
    assert_non_null(one.pair->end[end].live);
    return &one.pair->end[end].live->ch;
}

/* Where it hurts: just before a number wraps.  The first open is sent with packet number 0, so the
   jump comes when both ends are up; `seen` and the replay window follow it. */
static void jump_ahead(void)
{
    while (one.pair->end[0].live == NULL || one.pair->end[1].live == NULL ||
           !sim_is_up(one.pair->end[0].live) || !sim_is_up(one.pair->end[1].live))
        assert_true(sim_step(&one));
    for (int end = 0; end < 2; end++)
        channel(end)->link.packet = 0xffffff80u; /* a sent frame keeps the low 32 bits */
}

/* D-7, W-8: 20,000 writes across the wrap of frame sequence and of 32 bits of the packet number,
   over a network that loses and reorders. */
static void test_d7_wraps(void **state)
{
    sim_options o;
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        sim_options_default(&o);
        o.seed = seed;
        o.eager = o.tags = true;
        o.bulk_bytes = 256;
        o.tlps = WRITES;
        o.reads = 50;
        o.suite = seed & 1;
        for (unsigned i = 0; i < 2; i++) {
            o.sequence[i] = 0u - 300u;
            o.link[i][0].loss = 20;
            o.link[i][0].dup = 20;
            o.link[i][0].jitter_ns = 5000;
        }
        sim_start(&one, &o);
        jump_ahead();
        finish();
        assert_true(channel(0)->flight.next < 0x80000000u &&
                    channel(0)->link.packet > 0x100000000u);
        assert_true(channel(0)->count.tx_retransmits > 0 && channel(1)->count.rx_replay > 0);
        sim_teardown(&one);
    }
}

/* W-5: keys change under load, in the middle of losses; nothing is lost by it. */
static void test_w5_key_phases(void **state)
{
    sim_options o;
    unsigned changes = 0;
    (void)state;
    sim_options_default(&o);
    o.suite = o.tags = true;
    o.tlps = 2000;
    for (unsigned i = 0; i < 2; i++) {
        o.link[i][0].loss = 30;
        o.link[i][0].dup = 30;
        o.link[i][0].jitter_ns = 3000;
    }
    sim_start(&one, &o);
    for (uint64_t n = 1; sim_step(&one); n++) {
        sim_conn *c = one.pair->end[n / 200 & 1].live;
        if (n % 200 == 0 && c) {
            dxpu_channel_set_key_phase(&c->ch, (uint8_t)(++changes / 2));
        }
    }
    assert_string_equal(one.why, "");
    assert_true(changes > 20);
    assert_int_equal(channel(0)->count.rx_crc + channel(1)->count.rx_crc, 0);
    assert_true(channel(0)->count.rx_replay > 0);
    sim_teardown(&one);
}

/* A frame under the phase of another key is refused, and an earlier frame as well. */
static void test_w5_w8_cross_phase_and_replay(void **state)
{
    uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES], copy[DXPU_FRAME_MAX_LIMIT_BYTES], path;
    sim_options o;
    (void)state;
    sim_options_default(&o);
    o.suite = o.eager = true;
    o.bulk_bytes = 64;
    o.tlps = 1;
    sim_start(&one, &o);
    finish();
    dxpu_channel *host = channel(0), *box = channel(1);
    uint8_t tlp[DXPU_TLP_MAX_BYTES];
    dxpu_bytes v = { tlp, sim_numbered_write(1, 64, 1, tlp) };
    dxpu_channel_set_key_phase(host, 2);
    assert_int_equal(dxpu_channel_submit(host, v, one.now_ns, 0), DXPU_OK);
    int n = dxpu_channel_emit(host, one.now_ns, out, sizeof out, &path);
    assert_true(n > 0);
    assert_int_equal(out[DXPU_FRAME_FLAGS] >> 6, 2);
    for (unsigned phase = 0; phase < 4; phase++) {
        if (phase == 2)
            continue;
        memcpy(copy, out, (size_t)n);
        copy[DXPU_FRAME_FLAGS] = (uint8_t)((copy[DXPU_FRAME_FLAGS] & 0x3f) | phase << 6);
        assert_int_equal(dxpu_channel_ingest(box, one.now_ns, copy, (size_t)n, 0), DXPU_E_CRC);
    }
    memcpy(copy, out, (size_t)n);
    assert_int_equal(dxpu_channel_ingest(box, one.now_ns, copy, (size_t)n, 0), DXPU_OK);
    memcpy(copy, out, (size_t)n);
    assert_int_equal(dxpu_channel_ingest(box, one.now_ns, copy, (size_t)n, 0), DXPU_E_REPLAY);
    sim_teardown(&one);
}

/* Ten years, one write an hour; and ten years of silence, kept alive by probes alone, seen from
   ends whose clocks are centuries apart. */
static void test_years(void **state)
{
    sim_options o;
    (void)state;
    for (unsigned busy = 0; busy < 2; busy++) {
        sim_options_default(&o);
        o.eager = true;
        o.hold_ms = busy ? 1000000000 : 2000000000; /* 12 and 23 days */
        o.bulk_bytes = 64;
        o.tlps = busy ? 10 * 365 * 24 : 1;
        o.bulk_every_ns = 3600ull * 1000000000;
        o.until_ns = 10 * YEAR_NS;
        sim_start(&one, &o);
        one.give_up_ns = 11 * YEAR_NS;
        one.pair->end[SIM_BOX].skew_ns = UINT64_MAX / 2 + 12345;
        finish();
        assert_true(one.now_ns >= (busy ? 9 : 10) * YEAR_NS);
        assert_int_equal(one.count.incarnations, 1);
        assert_int_equal(channel(0)->count.tx_timeouts + channel(1)->count.tx_timeouts, 0);
        print_message("  %.1f years, %s: %llu frames sent, %llu writes\n",
                      (double)one.now_ns / (double)YEAR_NS, busy ? "a write an hour" : "idle",
                      (unsigned long long)(channel(0)->count.tx_frames),
                      (unsigned long long)channel(0)->count.tx_tlps);
        sim_teardown(&one);
    }
}

/* A thousand pairs side by side: none takes anything of another's. */
static void test_two_thousand_channels(void **state)
{
    sim_options o;
    uint64_t frames = 0;
    const char *wanted = getenv("DXPU_SEEDS");
    (void)state;
    sim_options_default(&o);
    o.pairs = wanted && strtoul(wanted, NULL, 10) < PAIRS ? 100 : PAIRS;
    o.tags = o.close = true;
    o.tlps = 15;
    o.header_credits = 4;
    o.data_credits = 256;
    for (unsigned i = 0; i < 2; i++) {
        o.window[i] = 4;
        o.frame_limit[i] = 1232;
        o.link[i][0].loss = 20;
        o.link[i][0].jitter_ns = 20000;
    }
    sim_start(&one, &o);
    finish();
    for (uint32_t i = 0; i < o.pairs; i++) {
        for (unsigned end = 0; end < 2; end++)
            frames += one.pair[i].end[end].conn[0]->ch.count.tx_frames;
    }
    print_message("  %u channels, %llu frames, %llu TLPs\n", 2 * o.pairs,
                  (unsigned long long)frames, (unsigned long long)one.count.tlps);
    assert_int_equal(one.count.incarnations, o.pairs);
    sim_teardown(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d7_wraps),
        cmocka_unit_test(test_w5_key_phases),
        cmocka_unit_test(test_w5_w8_cross_phase_and_replay),
        cmocka_unit_test(test_years),
        cmocka_unit_test(test_two_thousand_channels),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
