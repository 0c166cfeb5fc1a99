/* unit_paths.c - paths, congestion control, early loss detection, containment (sections 13 to 16)
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define DXPU_STATIC
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "channel_rig.h"

enum { LIMIT = 1452, BIG = 1024 }; /* the rig's frame limit; writes that fill frames of it */

static rig r;

/* The caller may change it: the channel looks at its timers again. */
static dxpui_path *path(unsigned i)
{
    r.ch.link.look_ns = 0;
    return &r.ch.paths.path[i];
}

static void up(unsigned paths, bool lossless)
{
    rig_config(&r);
    r.cfg.paths = (uint8_t)paths;
    r.cfg.lossless = lossless;
    r.cfg.tx.header[DXPU_POSTED] = 256;
    r.cfg.tx.data[DXPU_POSTED] = 32768;
    r.offer.limits.header[DXPU_POSTED] = 1 << 20;
    r.offer.limits.data[DXPU_POSTED] = 1 << 28;
    rig_up(&r);
}

static void submit_big(unsigned n)
{
    while (n--)
        assert_int_equal(rig_submit(&r, rig_mwr(1, BIG, 0)), DXPU_OK);
}

/* Emit what may leave now; how many data frames. */
static unsigned burst(void)
{
    unsigned n = 0;
    while (rig_emit(&r) > 0) {
        n += r.f.kind == DXPU_KIND_DATA;
        assert_true(n < 1000 && r.now_ns != DXPU_NEVER);
    }
    return n;
}

/* Acknowledge everything up to `ack`, a round trip of rtt after now. */
static void ack_after(uint32_t ack, uint64_t rtt_ns)
{
    r.now_ns += rtt_ns;
    r.say.seen = r.ch.link.packet - 1;
    assert_int_equal(rig_put_ack(&r, ack), DXPU_OK);
}

/* Answer the probe that waits on path i, as its other end does. */
static void answer_on(unsigned i)
{
    r.say.path = (uint8_t)i;
    rig_answer(&r);
    r.say.path = 0;
}

/* Let time pass until path i is probed; all other frames are thrown away. */
static void await_probe(unsigned i)
{
    for (unsigned steps = 0; steps < 1000; steps++) {
        r.probed = false;
        while (rig_emit(&r) > 0) {
            if (r.f.kind == DXPU_KIND_PROBE && r.f.path == i && r.probed)
                return;
            r.probed = false;
        }
        assert_true(dxpu_channel_next_ns(&r.ch) != DXPU_NEVER);
        if (dxpu_channel_next_ns(&r.ch) > r.now_ns)
            r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    fail_msg("path %u was never probed", i);
}

static void make_usable(unsigned i)
{
    await_probe(i);
    answer_on(i);
    assert_true(path(i)->usable);
}

/* ---- congestion control ---- */

static void test_p20_first_window(void **state)
{
    dxpu_path_info info = { 0 };
    (void)state;
    up(1, false);
    submit_big(30);
    assert_int_equal(burst(), 10);
    assert_int_equal(dxpu_channel_path(&r.ch, 0, &info), DXPU_OK);
    assert_int_equal(info.window_bytes, 10 * LIMIT);
    assert_in_range(info.in_flight_bytes, 10 * (LIMIT - 4), 10 * LIMIT);
    assert_true(info.known && info.usable && info.active);
    assert_int_equal(dxpu_channel_path(&r.ch, 1, &info), DXPU_E_NONE);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.ch.paths.path[0].timer_ns); /* nothing sooner */
    rig_free(&r);
    up(1, true); /* the control: a fabric that never drops */
    submit_big(30);
    assert_in_range(burst(), 22, 30);
    rig_free(&r);
}

static void test_p21_slow_start(void **state)
{
    (void)state;
    up(1, false);
    submit_big(40);
    unsigned first = burst();
    uint32_t flight = path(0)->in_flight, window = path(0)->window;
    ack_after(RIG_SEQ + first, 1000000);
    assert_int_equal(path(0)->in_flight, 0);
    assert_int_equal(path(0)->window, window + flight);
    assert_true(path(0)->timer_ns == DXPU_NEVER);
    rig_free(&r);
}

static void test_p22_growth(void **state)
{
    (void)state;
    up(1, false);
    for (unsigned i = 0; i < 20; i++) { /* one frame at a time says nothing of the network */
        submit_big(1);
        assert_int_equal(burst(), 1);
        ack_after(RIG_SEQ + i + 1, 1000000);
    }
    assert_int_equal(path(0)->window, 10 * LIMIT);
    path(0)->threshold = path(0)->window;
    uint32_t acked = 0;
    while (path(0)->window == 10 * LIMIT) { /* one frame for each window of bytes */
        submit_big(20);
        burst();
        acked += path(0)->in_flight;
        ack_after(r.ch.flight.next, 1000000);
    }
    assert_int_equal(path(0)->window, 11 * LIMIT);
    assert_in_range(acked, 10 * LIMIT, 20 * LIMIT);
    path(0)->window = 2 * 64 * LIMIT - 5;
    path(0)->threshold = UINT32_MAX;
    path(0)->limited_at = path(0)->index + 100;
    submit_big(10);
    burst();
    ack_after(r.ch.flight.next, 1000000);
    assert_int_equal(path(0)->window, 2 * 64 * LIMIT); /* never more */
    while (dxpu_channel_wants(&r.ch, r.now_ns) & DXPU_WANTS_ACK) {
        burst();
        ack_after(r.ch.flight.next, 1000000);
    }
    path(0)->window = 30 * LIMIT;
    path(0)->acked_bytes = 30 * LIMIT - 1;
    path(0)->threshold = 2 * LIMIT;
    path(0)->limited_at = path(0)->index + 100;
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(burst(), 1);
    ack_after(r.ch.flight.next, 1000000);
    assert_int_equal(path(0)->window, 31 * LIMIT); /* small ones count as well */
    rig_free(&r);
}

/* The least frame window is smaller than the first window: neither bound gives way (P-20, P-22). */
static void test_p22_never_beyond_the_frame_window(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.lossless = false;
    r.cfg.window_frames = 4;
    rig_up(&r);
    assert_int_equal(path(0)->window, 8 * LIMIT);
    for (unsigned i = 1; i < 12; i++) {
        path(0)->limited_at = path(0)->index + 100; /* as 2^31 transmissions later */
        submit_big(1);
        assert_int_equal(burst(), 1);
        ack_after(RIG_SEQ + i, 1000000);
        assert_int_equal(path(0)->window, 8 * LIMIT);
    }
    rig_free(&r);
}

static void test_p23_loss_halves_once(void **state)
{
    (void)state;
    up(1, false);
    submit_big(30);
    uint32_t sent = burst();
    r.say.sack = 0x1f0; /* the first five are lost */
    ack_after(RIG_SEQ, 1000000);
    assert_int_equal(path(0)->window, 5 * LIMIT);
    assert_int_equal(path(0)->threshold, 5 * LIMIT);
    assert_int_equal(r.ch.count.tx_congestion, 1);
    assert_int_equal(r.ch.count.tx_fast, 5);
    r.say.sack = 0;
    unsigned again = burst();
    assert_int_equal(again, 5);         /* what the halved window lets go */
    ack_after(RIG_SEQ + sent, 1000000); /* a flight of the halved window: one frame more */
    assert_in_range(path(0)->window, 5 * LIMIT + LIMIT / 2, 6 * LIMIT);
    assert_int_equal(r.ch.flight.lost, 0);
    path(0)->window = 3 * LIMIT;
    submit_big(8);
    burst();
    dxpui_congestion(&r.ch, path(0), path(0)->index);
    assert_int_equal(path(0)->window, 2 * LIMIT); /* the least */
    rig_free(&r);
}

/* A reduction is for all that left before it, also for what is found lost when later transmissions
   have been acknowledged: by overtaking, and by time. */
static void test_p23_until_all_is_decided(void **state)
{
    (void)state;
    up(1, false);
    submit_big(30);
    assert_int_equal(burst(), 10);
    r.say.sack = 0x7; /* the first is lost */
    ack_after(RIG_SEQ, 1000000);
    assert_int_equal(r.ch.count.tx_congestion, 1);
    r.say.sack = 0x3f;
    ack_after(RIG_SEQ, 1000);
    assert_int_equal(burst(), 2); /* again, and a new one */
    r.say.delay_ns = UINT32_MAX;  /* no sample */
    r.say.sack = 0x4;             /* both have come, the last three of the flight have not */
    ack_after(RIG_SEQ + 7, 49000);
    assert_int_equal(r.ch.count.tx_fast, 3);
    assert_int_equal(r.ch.count.tx_congestion, 1);
    r.now_ns = path(0)->loss_ns;
    assert_int_equal(burst(), 5);
    assert_int_equal(r.ch.count.tx_fast, 4);
    assert_int_equal(r.ch.count.tx_congestion, 1);
    assert_int_equal(path(0)->window, 5 * LIMIT);
    r.say.sack = 0x1f; /* the control: the first of these five is lost */
    ack_after(RIG_SEQ + 7, 1000000);
    assert_int_equal(r.ch.count.tx_congestion, 2);
    assert_false(path(0)->window > 5 * LIMIT / 2);
    rig_free(&r);
}

/* The acknowledgement of an earlier transmission, after a retransmission that was not needed, does
   not count for the window, and ends no recovery (D-19, P-22). */
static void test_d19_p22_not_the_newest(void **state)
{
    (void)state;
    for (int newest = 0; newest < 2; newest++) {
        up(1, false);
        submit_big(30);
        assert_int_equal(burst(), 10);
        uint64_t seen = r.ch.link.packet - 1;
        r.say.sack = 0x7;
        ack_after(RIG_SEQ, 1000000);
        r.say.sack = 0x1ff;
        ack_after(RIG_SEQ, 1000);
        assert_int_equal(burst(), 5); /* the first again, and new ones */
        r.say.seen = newest ? seen + 1 : seen;
        r.say.sack = 0;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 10), DXPU_OK);
        assert_int_equal(path(0)->recovering, !newest);
        assert_int_equal(path(0)->acked_bytes != 0, newest);
        rig_free(&r);
    }
}

/* Nor does that of a frame which was found lost, when recovery is over before it leaves again; and
   what counted on a path does not after it was left (P-20). */
static void test_p22_found_lost(void **state)
{
    (void)state;
    up(1, false);
    submit_big(30);
    assert_int_equal(burst(), 10);
    r.say.sack = 0x1fc;
    ack_after(RIG_SEQ, 1000000);
    assert_true(path(0)->recovering);
    assert_int_equal(r.ch.flight.lost, 3);
    path(0)->window = LIMIT;
    assert_int_equal(burst(), 1); /* the others wait to leave again */
    r.say.sack = 0xfe;
    ack_after(RIG_SEQ + 1, 1000);
    assert_false(path(0)->recovering);
    assert_int_equal(r.ch.flight.lost, 2);
    path(0)->window = path(0)->threshold; /* past slow start */
    r.say.sack = 0;
    ack_after(RIG_SEQ + 10, 1000);
    assert_int_equal(r.ch.flight.lost, 0);
    assert_int_equal(path(0)->in_flight, 0);
    assert_int_equal(path(0)->acked_bytes, 0);
    path(0)->limited_at = path(0)->index + 100;
    submit_big(1);
    assert_true(burst() > 0);
    ack_after(r.ch.flight.next, 1000); /* the control */
    assert_true(path(0)->acked_bytes > 0);
    dxpui_path_leave(&r.ch, 0, r.now_ns);
    assert_int_equal(path(0)->acked_bytes, 0);
    rig_free(&r);
}

static void test_p24_persistent_congestion(void **state)
{
    (void)state;
    for (int lossless = 0; lossless < 2; lossless++) {
        up(1, lossless);
        submit_big(30);
        burst();
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(path(0)->window, 10 * LIMIT); /* a timeout or two say nothing */
            r.now_ns = path(0)->timer_ns;
            assert_int_equal(burst(), 1); /* out of turn: the window is full */
        }
        r.now_ns = path(0)->timer_ns;
        burst();
        assert_int_equal(path(0)->window, 2 * LIMIT);
        assert_int_equal(r.ch.count.path_down, 0);
        assert_true(path(0)->usable);
        uint32_t threshold = path(0)->threshold;
        ack_after(RIG_SEQ + 1, 1000); /* an outage: the others of the flight are lost, too */
        assert_true(r.ch.flight.lost > 8);
        assert_int_equal(r.ch.count.tx_congestion, lossless ? 0 : 1);
        assert_int_equal(path(0)->threshold, threshold); /* slow start, up to half the window */
        rig_free(&r);
    }
}

static void test_p25_ecn(void **state)
{
    (void)state;
    for (int lossless = 0; lossless < 2; lossless++) {
        up(1, lossless);
        submit_big(30);
        burst();
        r.say.ecn_ce = 1;
        ack_after(RIG_SEQ + 2, 1000000);
        assert_int_equal(path(0)->window, lossless ? 10 * LIMIT + 2 * 1452 : 5 * LIMIT);
        r.say.ecn_ce = 3; /* of the same round trip */
        ack_after(RIG_SEQ + 3, 1000);
        assert_int_equal(r.ch.count.tx_congestion, lossless ? 0 : 1);
        r.say.ecn_ce = 2; /* a late acknowledgement */
        ack_after(RIG_SEQ + 3, 1000);
        assert_int_equal(r.ch.paths.ecn_reported, 3);
        if (!lossless)
            assert_int_equal(path(0)->window, 5 * LIMIT); /* the old flight: no growth */
        rig_free(&r);
    }
}

static void test_p26_pacing(void **state)
{
    (void)state;
    up(1, false);
    submit_big(120);
    unsigned n = burst();
    ack_after(RIG_SEQ + n, 10 * RIG_MS);
    unsigned second = burst(); /* the burst that pacing grants, not the whole window */
    assert_in_range(second, 10, 14);
    assert_true(path(0)->in_flight + LIMIT < path(0)->window);
    uint64_t next = dxpu_channel_next_ns(&r.ch);
    assert_true(next > r.now_ns && next == path(0)->pace_ns);
    r.now_ns = next - 1;
    assert_int_equal(burst(), 0);
    r.now_ns = next;
    assert_int_equal(burst(), 1);
    /* in slow start twice the window leaves in a round trip, later five quarters */
    uint64_t step = path(0)->pace_ns - next;
    uint64_t exact = 10 * RIG_MS * (uint64_t)LIMIT / (2 * (uint64_t)path(0)->window);
    assert_in_range(step, exact - exact / 256, exact);
    path(0)->threshold = path(0)->window;
    next = r.now_ns = path(0)->pace_ns;
    assert_int_equal(burst(), 1);
    exact = 10 * RIG_MS * (uint64_t)4 * LIMIT / (5 * (uint64_t)path(0)->window);
    assert_in_range(path(0)->pace_ns - next, exact - exact / 256, exact);
    rig_free(&r);
}

/* ---- loss found early ---- */

static void test_d17_tail_loss_probe(void **state)
{
    (void)state;
    up(1, false);
    submit_big(1);
    burst();
    ack_after(RIG_SEQ + 1, 100000); /* SRTT 100 us, RTTVAR 50 us */
    submit_big(3);
    assert_int_equal(burst(), 3);
    uint64_t tail = r.now_ns + 100000 + 200000 + 25000;
    assert_true(dxpu_channel_next_ns(&r.ch) == tail);
    r.now_ns = tail - 1;
    assert_int_equal(burst(), 0);
    r.now_ns = tail;
    assert_int_equal(burst(), 1);
    assert_int_equal(r.f.kind, 0);
    assert_int_equal(r.ch.count.tx_tail_probes, 1);
    assert_int_equal(r.ch.count.tx_timeouts, 0);
    assert_int_equal(r.ch.count.tx_congestion, 0);
    assert_true(path(0)->timer_ns == tail + RIG_MS); /* then RTO, with its floor */
    r.now_ns = path(0)->timer_ns;
    assert_int_equal(burst(), 1);
    assert_int_equal(r.ch.count.tx_timeouts, 1);
    /* the acknowledgement of the first reports the two behind it: they are older */
    ack_after(RIG_SEQ + 2, 100000);
    assert_int_equal(burst(), 2);
    assert_int_equal(r.ch.count.tx_fast, 2);
    ack_after(RIG_SEQ + 4, 100000);
    assert_int_equal(path(0)->timeouts, 0);
    rig_free(&r);
}

static void test_d18_time_threshold(void **state)
{
    (void)state;
    up(1, false);
    submit_big(1);
    burst();
    ack_after(RIG_SEQ + 1, 800000);
    submit_big(2);
    assert_int_equal(burst(), 2);
    uint64_t sent = r.now_ns;
    r.say.sack = 1; /* the second, 0.6 ms later: the first may still come */
    r.now_ns += 600000;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(burst(), 0);
    assert_true(dxpu_channel_next_ns(&r.ch) == sent + 900000); /* 9/8 of 0.8 ms */
    r.now_ns = sent + 899999;
    assert_int_equal(burst(), 0);
    r.now_ns++;
    assert_int_equal(burst(), 1);
    assert_int_equal(r.ch.count.tx_fast, 1);
    assert_true(path(0)->loss_ns == DXPU_NEVER);
    rig_free(&r);
}

/* A tail-loss probe that was not needed: the acknowledgement of the first transmission says nothing
   of what left between them (D-19). */
static void test_d19_which_transmission(void **state)
{
    (void)state;
    for (int newest = 0; newest < 2; newest++) {
        up(1, false);
        submit_big(1);
        burst();
        ack_after(RIG_SEQ + 1, 100000);
        submit_big(8);
        unsigned sent = burst();
        uint64_t seen = r.ch.link.packet - 1;
        r.now_ns = path(0)->timer_ns;
        assert_int_equal(burst(), 1); /* the probe, of the oldest */
        r.say.seen = newest ? r.ch.link.packet - 1 : seen;
        r.say.delay_ns = UINT32_MAX;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 2), DXPU_OK);
        assert_int_equal(r.ch.count.tx_fast, newest ? sent - 1 : 0);
        assert_int_equal(path(0)->timeouts, newest ? 0 : 1);
        rig_free(&r);
    }
}

/* Frames that no sack can name are not judged (D-14). */
static void test_d14_beyond_the_sack(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.window_frames = 128;
    r.cfg.tx.header[DXPU_POSTED] = 256;
    r.offer.window_frames = 128;
    r.offer.limits.header[DXPU_POSTED] = 256;
    rig_up(&r);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
    }
    r.say.sack = UINT64_MAX; /* the first is lost, 1 to 64 have come, the others are unknown */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.flight.lost, 1);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    r.say.sack = 0;
    r.say.seen = r.ch.link.packet - 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 97), DXPU_OK); /* 97 is lost, 98 and 99 unknown */
    assert_int_equal(r.ch.flight.lost, 1);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ + 97);
    rig_free(&r);
}

/* A transmission that left before the newest acknowledged one is not judged either while its frame
   is too far from the oldest. */
static void test_d14_far_from_the_oldest(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.window_frames = 128;
    r.cfg.tx.header[DXPU_POSTED] = 256;
    r.offer.window_frames = 128;
    r.offer.limits.header[DXPU_POSTED] = 256;
    rig_up(&r);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
    }
    r.say.sack = UINT64_MAX - 1; /* the first two are lost */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(burst(), 2);
    r.say.sack = UINT64_MAX; /* the second has come, 65 to 99 left before it */
    r.say.seen = r.ch.link.packet - 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.flight.lost, 0);
    assert_int_equal(r.ch.count.tx_fast, 2);
    assert_true(path(0)->loss_ns == DXPU_NEVER);
    r.say.sack = 0x3fffffffe; /* the control: near the oldest they are lost */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 65), DXPU_OK);
    assert_int_equal(r.ch.flight.lost, 2);
    rig_free(&r);
}

/* The oldest frame on path 0, 80 more on path 1, of which a sack names the first 64. */
static void far_ahead_on_path_1(void)
{
    rig_config(&r);
    r.cfg.window_frames = r.offer.window_frames = 128;
    r.cfg.paths = 2;
    r.cfg.lossless = false;
    r.cfg.tx.header[DXPU_POSTED] = 256;
    r.offer.limits.header[DXPU_POSTED] = 256;
    rig_up(&r);
    make_usable(1);
    path(0)->window = path(1)->window = 1 << 20;
    path(0)->srtt_ns = path(1)->srtt_ns = 1; /* no pacing */
    for (unsigned i = 0; i < 81; i++) {
        path(0)->timeouts = i != 0;
        assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
        assert_int_equal(burst(), 1);
        assert_int_equal(dxpui_frame_of(&r.ch.flight, RIG_SEQ + i)->path, i != 0);
    }
    path(0)->timeouts = 0;
    r.say.sack = UINT64_MAX;
    r.say.seen = r.ch.link.packet - 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    path(0)->timer_ns = path(0)->loss_ns = r.now_ns + 100 * RIG_MS; /* the slow path */
    r.now_ns = path(1)->timer_ns;
    assert_true(r.now_ns < path(0)->timer_ns);
}

/* What no sack can name yet is not overdue: its path is not to blame, and its timer comes back. */
static void test_d14_timer_beyond_the_sack(void **state)
{
    (void)state;
    far_ahead_on_path_1();
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(burst(), 0);
        assert_int_equal(path(1)->timeouts, 0);
        assert_true(path(1)->timer_ns == DXPU_NEVER && path(1)->usable);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
        assert_true(path(1)->timer_ns != DXPU_NEVER);
        r.now_ns = path(1)->timer_ns;
    }
    assert_int_equal(r.ch.count.tx_tail_probes + r.ch.count.tx_timeouts, 0);
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 70), DXPU_OK);
    r.now_ns = path(1)->timer_ns; /* the control: now they are within its reach */
    assert_int_equal(burst(), 1);
    assert_int_equal(r.ch.count.tx_tail_probes, 1);
    rig_free(&r);
}

/* The frame that they wait for was lost, and the window is full of them: it goes all the same. */
static void test_d14_loss_behind_a_full_window(void **state)
{
    (void)state;
    far_ahead_on_path_1();
    dxpui_mark_lost(&r.ch, RIG_SEQ);
    path(0)->usable = false;
    path(1)->window = 1;
    path(1)->timer_ns++;
    assert_int_equal(burst(), 0);
    r.now_ns = path(1)->timer_ns;
    assert_int_equal(burst(), 1);
    assert_int_equal(dxpui_frame_of(&r.ch.flight, RIG_SEQ)->path, 1);
    assert_int_equal(r.ch.count.tx_tail_probes + r.ch.count.tx_timeouts, 0);
    assert_true(path(1)->timer_ns != DXPU_NEVER);
    rig_free(&r);
}

/* A peer that has no room for link events says by seen that their frame arrived.  It is repeated,
   less and less often; no path is left for it, no window gets smaller. */
static void test_d62_no_room_for_events(void **state)
{
    dxpu_event e = { .type = DXPU_EVENT_HOT_RESET };
    (void)state;
    for (int seen = 1; seen >= 0; seen--) {
        uint64_t gap_ns = 0;
        up(2, false);
        make_usable(1);
        uint32_t window = path(0)->window;
        assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
        assert_int_equal(burst(), 1);
        for (unsigned i = 0; i < 5; i++) {
            uint64_t sent_ns = r.now_ns;
            r.say.seen = seen ? dxpui_frame_of(&r.ch.flight, RIG_SEQ)->packet_lo : 0;
            assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
            r.now_ns = dxpui_min64(path(0)->timer_ns, path(1)->timer_ns);
            assert_true(!seen || r.now_ns - sent_ns >= gap_ns);
            gap_ns = r.now_ns - sent_ns;
            assert_true(burst() > 0);
        }
        assert_int_equal(r.ch.count.path_down != 0, !seen); /* the control: not heard of at all */
        assert_int_equal(r.ch.count.tx_tail_probes + r.ch.count.tx_timeouts != 0, !seen);
        if (seen) {
            assert_int_equal(path(0)->timeouts, 0);
            assert_int_equal(path(0)->window, window);
            assert_true(gap_ns > 100 * RIG_MS && gap_ns <= 250 * RIG_MS);
            r.say.seen = r.ch.link.packet - 1;
            assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
            assert_int_equal(r.ch.flight.unstored, 0);
        }
        rig_free(&r);
    }
}

/* What came before its predecessor, or is about to be sent again, is not held. */
static void test_d62_not_the_oldest_then(void **state)
{
    (void)state;
    up(1, true);
    submit_big(2);
    assert_int_equal(burst(), 2);
    r.say.sack = 1; /* the second has come, the first has not */
    r.say.seen = dxpui_frame_of(&r.ch.flight, RIG_SEQ + 1)->packet_lo;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.flight.unstored, 0);
    r.ch.flight.una++; /* as if a later acknowledgement had overtaken the next one */
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.flight.unstored, 0);
    dxpui_mark_lost(&r.ch, RIG_SEQ + 1);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(r.ch.flight.unstored, 0);
    rig_free(&r);
}

/* Each path has its own window of packet numbers: one is late by thousands of another's. */
static void test_d63_replay_by_path(void **state)
{
    static const struct {
        unsigned path, packet;
        int rc;
        bool newest; /* of what was received on that path, and of no other: W-29, P-1 */
    } rows[] = { { 0, 10000, DXPU_OK, true },        { 1, 1000, DXPU_OK, true },
                 { 1, 1000, DXPU_E_REPLAY, true },   { 0, 9999, DXPU_OK, false },
                 { 0, 10000, DXPU_E_REPLAY, false }, { 1, 999, DXPU_OK, false },
                 { 0, 9000, DXPU_E_REPLAY, false },  { 1, 700, DXPU_E_REPLAY, false },
                 { 1, 1001, DXPU_OK, true },         { 9, 10001, DXPU_OK, false },
                 { 9, 10001, DXPU_E_REPLAY, false } };
    (void)state;
    up(2, true);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        r.say.path = (uint8_t)rows[i].path;
        r.say.packet = rows[i].packet;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), rows[i].rc);
        assert_int_equal(dxpu_channel_status(&r.ch).newest, rows[i].newest);
        if (rows[i].rc == DXPU_OK && rows[i].path < 2)
            assert_int_equal(dxpu_channel_status(&r.ch).path, rows[i].path);
    }
    r.say.path = 0;
    rig_free(&r);
}

/* After half the numbers without a full window, transmissions do not begin to count for it. */
static void test_p22_limited_long_ago(void **state)
{
    (void)state;
    up(1, false);
    dxpui_path *p = path(0);
    p->limited_at = p->index - 0x40000000u;
    p->threshold = p->window; /* past slow start */
    for (unsigned i = 0; i < 10; i++) {
        submit_big(1);
        assert_int_equal(burst(), 1);
        assert_true(p->index - p->limited_at <= 0x40000001u);
        ack_after(RIG_SEQ + 1 + i, RIG_MS);
    }
    assert_int_equal(p->acked_bytes, 0);
    rig_free(&r);
}

/* A transmission whose frame left again over another path is not judged on the old one. */
static void test_d14_moved_to_another_path(void **state)
{
    (void)state;
    for (int moved = 0; moved < 2; moved++) {
        up(2, false);
        make_usable(1);
        submit_big(5);
        assert_int_equal(burst(), 4);
        if (moved) {
            dxpui_mark_lost(&r.ch, RIG_SEQ);
            path(0)->usable = false;
            assert_int_equal(burst(), 1);
            assert_int_equal(dxpui_frame_of(&r.ch.flight, RIG_SEQ)->path, 1);
        }
        r.say.sack = 0x6; /* three left after it, the last of them has come */
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
        assert_int_equal(r.ch.flight.lost, moved ? 0 : 1);
        rig_free(&r);
    }
}

/* The back-off ends somewhere. */
static void test_d12_many_timeouts(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.rto_min_ns = 1000;
    rig_up(&r);
    submit_big(1);
    assert_int_equal(burst(), 1);
    for (unsigned i = 0; i < 20; i++) {
        r.now_ns = path(0)->timer_ns;
        assert_int_equal(burst(), 1);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK); /* it is reachable */
    }
    assert_int_equal(path(0)->timeouts, DXPUI_BACKOFF_MAX);
    rig_free(&r);
}

/* The timer runs out while something found lost waits to leave: that goes, nothing else. */
static void test_d15_other_losses_first(void **state)
{
    (void)state;
    up(1, false);
    submit_big(20);
    burst();
    r.say.sack = 0x0f8;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.flight.lost, 4);
    path(0)->window = LIMIT; /* no room for any of them */
    assert_int_equal(burst(), 0);
    r.now_ns = path(0)->timer_ns;
    assert_int_equal(burst(), 1);
    assert_int_equal(r.ch.flight.lost, 3);
    rig_free(&r);
}

/* Lost frames wait for the window, and a class for credit: no blocked frame, they ask for more. */
static void test_f12_not_while_losses_wait(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.lossless = false;
    r.offer.limits.header[DXPU_NONPOSTED] = 1;
    r.say.limits.header[DXPU_NONPOSTED] = 1;
    rig_up(&r);
    path(0)->window = 20 * LIMIT;
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(rig_submit(&r, rig_mwr(1, BIG, 0)), DXPU_OK);
        assert_in_range(burst(), 0, 2);
    }
    for (uint16_t tag = 1; tag <= 2; tag++) {
        assert_int_equal(rig_submit(&r, rig_mrd(tag, 64)), DXPU_OK);
        burst();
    }
    assert_int_equal(r.ch.tx.used.header[DXPU_NONPOSTED], 1); /* the second waits for credit */
    r.say.sack = 0x0f8;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_true(r.ch.flight.lost >= 4 && path(0)->in_flight > 0);
    path(0)->window = LIMIT;
    assert_int_equal(burst(), 0);
    uint64_t since = r.ch.count.tx_blocked;
    for (unsigned i = 0; i < 50; i++) {
        path(0)->window = 1;
        path(0)->timer_ns = path(0)->loss_ns = DXPU_NEVER;
        r.now_ns += RIG_MS;
        burst();
    }
    assert_true(r.ch.flight.lost >= 4);
    assert_int_equal(r.ch.count.tx_blocked, since);
    rig_free(&r);
}

/* The oldest frame was acknowledged selectively, but its link events have no room yet (D-36): some
   path asks for it again, in case the word that it is stored is lost. */
static void test_d15_oldest_was_sacked(void **state)
{
    (void)state;
    for (int leave = 0; leave < 2; leave++) {
        up(2, false);
        make_usable(1);
        submit_big(1);
        assert_int_equal(burst(), 1);
        path(0)->usable = leave; /* the second frame goes over the path that is left, or over 1 */
        submit_big(1);
        assert_int_equal(burst(), 1);
        path(0)->usable = true;
        r.say.sack = 1;
        ack_after(RIG_SEQ, 100000);
        r.say.sack = 0;
        uint32_t lost = r.ch.flight.lost;
        ack_after(RIG_SEQ + 1, 100000);
        assert_int_equal(lost, 0);
        assert_int_equal(r.ch.flight.una, RIG_SEQ + 1);
        if (leave) {
            dxpui_path_leave(&r.ch, 0, r.now_ns);
            dxpui_path_leave(&r.ch, 0, r.now_ns); /* again: it is marked already */
        } else {
            assert_true(path(1)->timer_ns != DXPU_NEVER);
            r.now_ns = path(1)->timer_ns;
        }
        uint64_t again = r.ch.count.tx_retransmits;
        burst();
        assert_int_equal(r.ch.count.tx_retransmits, again + 1);
        ack_after(RIG_SEQ + 2, 100000);
        assert_int_equal(r.ch.flight.una, r.ch.flight.next);
        rig_free(&r);
    }
}

/* A timer sends the oldest frame of its own path that is not acknowledged. */
static void test_d15_oldest_of_the_path(void **state)
{
    (void)state;
    up(2, false);
    make_usable(1);
    submit_big(1);
    assert_int_equal(burst(), 1);
    path(0)->usable = false;
    submit_big(2);
    assert_int_equal(burst(), 2);
    path(0)->usable = true;
    r.say.sack = 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.sack = 0;
    dxpui_path_timeout(&r.ch, 1, r.now_ns);
    assert_int_equal(r.ch.flight.lost, 1);
    assert_int_equal(r.ch.flight.lost_from, RIG_SEQ + 2);
    rig_free(&r);
}

/* ---- knowing paths ---- */

static void test_p1_configured_and_known(void **state)
{
    dxpu_path_info info = { 0 };
    (void)state;
    rig_config(&r);
    r.cfg.paths = 0;
    assert_int_equal(dxpu_channel_bytes(&r.cfg), 0);
    r.cfg.paths = DXPU_PATHS_MAX + 1;
    assert_int_equal(dxpu_channel_bytes(&r.cfg), 0);
    r.cfg.paths = DXPU_PATHS_MAX;
    assert_true(dxpu_channel_bytes(&r.cfg) > 0);
    up(3, false);
    make_usable(1);
    assert_int_equal(dxpu_channel_path(&r.ch, 1, &info), DXPU_OK);
    assert_true(info.known && info.usable && !info.active);
    assert_int_equal(dxpui_path_after(&r.ch.paths, 0), 1);
    path(1)->known = false;
    assert_int_equal(dxpui_path_after(&r.ch.paths, 0), 2);
    path(2)->known = false;
    assert_int_equal(dxpui_path_after(&r.ch.paths, 0), 0);
    path(0)->awaiting = true; /* P-14 asks nothing of an unknown path */
    path(0)->awaited_ns = r.now_ns;
    assert_true(dxpui_all_silent_ns(&r.ch) == r.now_ns + r.ch.link.hold_ns);
    path(1)->known = true;
    assert_true(dxpui_all_silent_ns(&r.ch) == DXPU_NEVER);
    rig_free(&r);
}

static void test_p1_p2_acceptor_learns(void **state)
{
    dxpu_path_info info = { 0 };
    (void)state;
    rig_config(&r);
    r.cfg.paths = 3;
    rig_accepted(&r);
    r.say.path = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.link.state, DXPU_STATE_UP);
    assert_int_equal(dxpu_channel_path(&r.ch, 1, &info), DXPU_OK);
    assert_false(info.known);
    for (unsigned i = 0; i < 40; i++) { /* nothing is sent to an unknown address */
        while (rig_emit(&r) > 0) {
            assert_int_equal(r.f.path, 0);
            rig_answer(&r);
        }
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    r.say.path = 2;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(dxpu_channel_path(&r.ch, 2, &info), DXPU_OK);
    assert_true(info.known && !info.usable && !info.active);
    make_usable(2);
    assert_int_equal(r.ch.count.path_up, 1);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.path, 0); /* the lowest stays the active one */
    rig_free(&r);
}

static void test_p3_padding(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.paths = 2;
    r.cfg.frame_limit_bytes = 8952;
    rig_init(&r);
    assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
    static const uint8_t way[8] = { 0, 1, 0, 1, 1, 0, 1, 0 };
    for (unsigned i = 0; i < 8; i++) {
        dxpu_offer o;
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_OPEN);
        assert_int_equal(r.n, i % 4 == 3 ? 1232 : 8952);
        assert_int_equal(r.path, way[i]); /* P-6: in turn, the small ones too */
        assert_int_equal(dxpu_offer_decode(r.f.body, &o), DXPU_OK);
        assert_int_equal(o.frame_limit_bytes, r.n);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    rig_free(&r);
    for (unsigned i = 0; i < 24; i++) { /* for long, with small ones among them */
        if (i == 0) {
            rig_config(&r);
            r.cfg.hold_ms = 1 << 20;
            r.offer.hold_ms = 1 << 20;
            rig_init(&r);
            assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
        }
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.n, i % 4 == 3 ? 1232 : 1452);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    rig_free(&r);
}

/* P-4, P-6: of however many paths there are each has its turn, before any has another. */
static void test_p4_opens_take_turns(void **state)
{
    (void)state;
    for (unsigned paths = 1; paths <= DXPU_PATHS_MAX; paths++) {
        unsigned turns[DXPU_PATHS_MAX] = { 0 }, small[DXPU_PATHS_MAX] = { 0 };
        rig_config(&r);
        r.cfg.paths = (uint8_t)paths;
        r.cfg.hold_ms = 1 << 20;
        r.cfg.frame_limit_bytes = 8952;
        rig_init(&r);
        assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
        for (unsigned i = 0; i < 16; i++) {
            assert_true(rig_emit(&r) > 0);
            small[r.path] += r.n == 1232;
            assert_true(turns[r.path]++ == 0 || i >= paths);
            r.now_ns = dxpu_channel_next_ns(&r.ch);
        }
        for (unsigned i = 0; i < paths; i++) { /* nor is it always a small one, or never again */
            assert_true(small[i] < turns[i]);
            assert_in_range(turns[i], 16 / paths - 1, 16 / paths + 2);
        }
        rig_free(&r);
    }
}

/* The acceptor takes an open longer than it takes frames, and goes down with the opener. */
static void test_p3_acceptor_goes_down(void **state)
{
    uint8_t body[8000], pkt[9000];
    dxpu_frame f;
    (void)state;
    rig_config(&r);
    rig_init(&r);
    r.offer.frame_limit_bytes = 8000;
    memset(body, 0, sizeof body);
    dxpu_offer_encode(&r.offer, body);
    f = r.say;
    f.kind = DXPU_KIND_OPEN;
    f.channel = 0;
    size_t n = rig_seal(&f, body, 8000 - 24, pkt);
    assert_int_equal(n, 8000);
    assert_int_equal(dxpu_channel_accept(&r.ch, r.now_ns, pkt, n), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.n, 1452);
    r.say.packet = 1;
    static const uint16_t limits[3] = { 8000, 1300, 1452 };
    for (unsigned i = 0; i < 3; i++) {
        r.offer.frame_limit_bytes = limits[i];
        assert_int_equal(rig_put_offer(&r, DXPU_KIND_OPEN), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_ACCEPT);
        assert_int_equal(r.n, i ? 1300 : 1452); /* never up again */
    }
    assert_int_equal(path(0)->window, 13000);
    rig_free(&r);
}

/* An open over a path that cannot be answered is refused; an accept is not (W-6). */
static void test_p4_opens(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.paths = 2;
    rig_init(&r);
    r.say.path = 2;
    assert_int_equal(rig_accept_open(&r), DXPU_E_PATH);
    assert_int_equal(r.ch.link.state, DXPU_STATE_IDLE);
    r.say.path = 1;
    assert_int_equal(rig_accept_open(&r), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.path, 1);
    r.say.path = 2;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_OPEN), DXPU_E_PATH);
    assert_int_equal(r.ch.count.rx_path, 1);
    rig_free(&r);
    rig_config(&r);
    rig_opening(&r);
    r.say.path = 3;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_OK);
    assert_int_equal(r.ch.paths.latest, 0);
    rig_free(&r);
}

static void test_p4_p5_probes(void **state)
{
    static const uint8_t probe[100] = { 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    (void)state;
    up(2, true);
    r.say.path = 2;
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, probe, sizeof probe), DXPU_E_PATH);
    assert_int_equal(r.ch.count.rx_path, 1);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK); /* W-6: other frames are used */
    r.say.path = 1;
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, probe, sizeof probe), DXPU_OK);
    assert_true(dxpu_channel_next_ns(&r.ch) == 0);
    do
        assert_true(rig_emit(&r) > 0);
    while (r.f.kind != DXPU_KIND_PROBE || r.f.body.ptr[0] == 0);
    assert_int_equal(r.path, 1); /* where it came from, and as long */
    assert_int_equal(r.f.body.len, sizeof probe);
    assert_memory_equal(r.f.body.ptr + 4, probe + 4, 8);
    rig_free(&r);
}

static void test_p5_answers(void **state)
{
    (void)state;
    up(2, true);
    r.say.path = 1;
    memset(r.probe, 0xff, sizeof r.probe); /* an answer to no probe: from the future */
    r.probe[0] = DXPU_PROBE_REPLY;
    await_probe(1);
    uint8_t good[DXPU_PROBE_BYTES];
    memcpy(good, r.probe, sizeof good);
    memset(r.probe + 4, 0xff, 8);
    answer_on(1);
    assert_false(path(1)->usable);
    memcpy(r.probe, good, sizeof good);
    r.probed = true;
    r.now_ns += 3000;
    answer_on(1);
    assert_true(path(1)->usable);
    assert_int_equal(path(1)->srtt_ns, 3000);
    r.probed = true; /* again: it is not awaited */
    r.now_ns += 1000000;
    answer_on(1);
    assert_int_equal(path(1)->srtt_ns, 3000);
    rig_free(&r);
}

static void test_p6_acknowledgements_go_back(void **state)
{
    (void)state;
    up(2, true);
    r.say.path = 1;
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    r.now_ns += RIG_MS;
    do
        assert_true(rig_emit(&r) > 0);
    while (r.f.kind != DXPU_KIND_ACK);
    assert_int_equal(r.path, 0); /* path 1 is not known to work */
    make_usable(1);
    r.say.path = 1;
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    r.now_ns += RIG_MS;
    do
        assert_true(rig_emit(&r) > 0);
    while (r.f.kind != DXPU_KIND_ACK);
    assert_int_equal(r.path, 1);
    rig_free(&r);
}

/* ---- leaving, and coming back ---- */

static void test_p10_timeouts_leave_a_path(void **state)
{
    (void)state;
    up(2, false);
    make_usable(1);
    submit_big(5);
    path(0)->srtt_ns = 1000;
    unsigned sent = burst();
    assert_int_equal(rig_put(&r, DXPU_KIND_BLOCKED, NULL, 0), DXPU_OK); /* alive otherwise */
    r.now_ns = path(0)->timer_ns;
    assert_int_equal(burst(), 1); /* the first timeout: the oldest goes the other way, */
    assert_true(path(0)->usable && path(0)->suspect);
    uint32_t before = path(1)->in_flight;
    assert_true(before > 0);
    submit_big(1); /* and so does what is new */
    assert_int_equal(burst(), 1);
    assert_true(path(1)->in_flight > before);
    r.now_ns = path(0)->timer_ns; /* the second: it is left */
    assert_true(burst() >= sent - 1);
    sent++;
    assert_false(path(0)->usable);
    assert_int_equal(r.ch.count.path_down, 1);
    assert_int_equal(path(0)->in_flight, 0);
    assert_int_equal(r.ch.flight.lost, 0); /* all of it has left on the other one */
    ack_after(RIG_SEQ + sent, 100000);
    assert_int_equal(path(1)->in_flight, 0);
    /* P-13: three answers in a row, and it is the active one again */
    for (unsigned i = 0; i < 3; i++) {
        assert_false(path(0)->usable);
        await_probe(0);
        if (i == 1) { /* one that is not answered restarts the count */
            await_probe(0);
            assert_int_equal(path(0)->answers, 0);
            i = 0;
            answer_on(0);
            assert_int_equal(path(0)->answers, 1);
            await_probe(0);
            i = 1;
        }
        answer_on(0);
    }
    assert_true(path(0)->usable);
    assert_int_equal(r.ch.count.path_up, 2);
    submit_big(1);
    do
        assert_true(rig_emit(&r) > 0);
    while (r.f.kind != DXPU_KIND_DATA);
    assert_int_equal(r.path, 0);
    rig_free(&r);
}

static void test_p11_unanswered_probes(void **state)
{
    (void)state;
    up(2, true);
    make_usable(1);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(path(0)->usable);
        await_probe(0);
        if (i == 1) { /* a frame is an answer as well */
            assert_int_equal(path(0)->missed, 1);
            assert_int_equal(rig_put(&r, DXPU_KIND_BLOCKED, NULL, 0), DXPU_OK);
            assert_int_equal(path(0)->missed, 0);
            await_probe(0);
        }
        r.say.path = 1;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK); /* the other one is reachable */
        r.say.path = 0;
    }
    assert_false(path(0)->usable);
    assert_int_equal(r.ch.count.path_down, 1);
    rig_free(&r);
}

/* Small frames pass, large ones no longer: found by probes of the limit (P-12). */
/* A path in doubt is not left before an answer could have arrived: 100 ms here, three times
   hold / 64 being 47.  Without any answer it is left all the same. */
static void test_p11_long_round_trip(void **state)
{
    (void)state;
    for (unsigned answers = 0; answers < 2; answers++) {
        up(2, true);
        make_usable(1);
        for (unsigned i = 0; i < 50; i++)
            dxpui_rtt_sample(&r.ch, path(0), 100 * RIG_MS);
        path(0)->suspect = true;
        uint64_t first_ns = r.now_ns, end_ns = r.now_ns + 900 * RIG_MS;
        while (r.now_ns < end_ns && path(0)->usable && path(0)->suspect) {
            r.probed = false;
            while (rig_emit(&r) > 0) {
                if (r.f.kind == DXPU_KIND_PROBE && r.f.path == 1)
                    answer_on(1);
            }
            r.now_ns += RIG_MS;
            if (answers && r.now_ns == first_ns + 100 * RIG_MS) {
                dxpu_put_be64(r.probe + 4, first_ns);
                r.probed = true;
                answer_on(0);
            }
        }
        assert_int_equal(path(0)->usable, answers);
        assert_false(path(0)->suspect);
        assert_int_equal(r.ch.count.path_down, !answers);
        rig_free(&r);
    }
}

/* P-11: also where nothing is in doubt an answer has an RTO to come. */
static void test_p11_long_round_trip_of_an_idle_path(void **state)
{
    (void)state;
    up(2, true);
    make_usable(1);
    path(1)->heard_ns = path(1)->probe_ns = r.now_ns;
    assert_true(dxpui_probe_due(&r.ch, path(1)) ==
                r.now_ns + r.ch.link.hold_ns / 4); /* the control */
    for (unsigned i = 0; i < 50; i++)
        dxpui_rtt_sample(&r.ch, path(1), 240 * RIG_MS);
    path(1)->heard_ns -= r.ch.link.hold_ns / 4;
    assert_true(dxpui_probe_due(&r.ch, path(1)) >= r.now_ns + 240 * RIG_MS);
    rig_free(&r);
}

/* A clock may begin at 0. */
static void test_p1_first_probe_at_time_zero(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.paths = 2;
    r.now_ns = 0;
    rig_up(&r); /* sees one frame a path, and then none */
    assert_true(dxpu_channel_next_ns(&r.ch) == r.ch.link.hold_ns / 64);
    rig_free(&r);
}

static void test_p12_p14_shrunk_mtu(void **state)
{
    (void)state;
    for (unsigned paths = 1; paths <= 2; paths++) {
        up(paths, false);
        if (paths == 2)
            make_usable(1);
        submit_big(1);
        uint64_t start = r.now_ns;
        while (r.ch.link.state == DXPU_STATE_UP && path(0)->usable &&
               r.now_ns < start + 3000 * (uint64_t)RIG_MS) {
            assert_int_equal(rig_put(&r, DXPU_KIND_BLOCKED, NULL, 0), DXPU_OK);
            burst();
            uint64_t next = dxpu_channel_next_ns(&r.ch);
            r.now_ns = next > r.now_ns ? next : r.now_ns;
        }
        assert_int_equal(r.ch.link.state, paths == 1 ? DXPU_STATE_FAILED : DXPU_STATE_UP);
        if (paths == 1) {
            assert_int_equal(dxpu_channel_status(&r.ch).error, DXPU_E_DEAD);
            assert_true(r.now_ns - start > 1000 * (uint64_t)RIG_MS);
        } else {
            assert_true(r.now_ns - start < 100 * (uint64_t)RIG_MS);
        }
        rig_free(&r);
    }
}

/* No path is usable: the known ones are tried in turn, and the first that works is used. */
static void test_p10_all_paths_in_turn(void **state)
{
    unsigned seen = 0;
    (void)state;
    rig_config(&r);
    r.cfg.paths = 3;
    r.cfg.hold_ms = r.offer.hold_ms = 10000;
    rig_up(&r);
    submit_big(1);
    for (unsigned i = 0; i < 400 && seen != 7; i++) {
        while (rig_emit(&r) > 0)
            seen |= r.f.kind == DXPU_KIND_DATA ? 1u << r.path : 0;
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    assert_int_equal(seen, 7);
    assert_int_equal(r.ch.count.path_down, 1); /* the others were never up */
    rig_free(&r);
}

static void test_p10_spread(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.paths = 3;
    r.cfg.spread = true;
    r.cfg.lossless = false;
    r.cfg.tx.header[DXPU_POSTED] = 256;
    r.cfg.tx.data[DXPU_POSTED] = 32768;
    r.offer.limits.header[DXPU_POSTED] = 1 << 20;
    r.offer.limits.data[DXPU_POSTED] = 1 << 28;
    rig_up(&r);
    make_usable(1);
    burst();
    path(0)->srtt_ns = 2000000;
    path(1)->srtt_ns = 1000000;
    submit_big(1);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.path, 1); /* both are empty: the nearer */
    submit_big(30);
    unsigned n[3] = { 0, 1, 0 };
    while (rig_emit(&r) > 0) {
        if (r.f.kind == DXPU_KIND_DATA)
            n[r.path]++;
    }
    assert_true(n[0] >= 10 && n[1] >= 10 && n[2] == 0);
    /* each path's losses are its own: what came over 1 says nothing of 0 */
    uint64_t sack = 0;
    for (uint32_t seq = RIG_SEQ; seq != r.ch.flight.next; seq++)
        sack |= dxpui_frame_of(&r.ch.flight, seq)->path == 1 && seq > RIG_SEQ
                    ? (uint64_t)1 << (seq - RIG_SEQ - 1)
                    : 0;
    r.say.sack = sack;
    r.now_ns += 100;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_E_ACK);
    r.say.sack = sack >> 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(r.ch.flight.lost, 0);
    assert_int_equal(path(1)->in_flight, 0);
    assert_int_equal(path(0)->in_flight, n[0] * LIMIT);
    rig_free(&r);
}

/* Which path is active when timeouts speak against some, and when none is usable. */
static void test_p10_active_path(void **state)
{
    uint64_t when_ns;
    (void)state;
    up(3, false);
    make_usable(1);
    r.ch.cfg.spread = true;
    path(0)->srtt_ns = 2;
    path(1)->srtt_ns = 1;
    assert_int_equal(dxpui_path_pick(&r.ch, &when_ns), 1); /* the control */
    path(1)->timeouts = 1;
    assert_int_equal(dxpui_path_pick(&r.ch, &when_ns), 0);
    path(0)->usable = false;
    assert_int_equal(dxpui_active(&r.ch.paths), 1); /* better than one that is not usable */
    path(0)->usable = true;
    submit_big(1);
    assert_int_equal(burst(), 1);
    path(0)->usable = path(1)->usable = false;
    r.ch.paths.fallback = 2;
    for (unsigned i = 0; i < 2; i++) { /* the known ones in turn: not left before four timeouts */
        r.now_ns = path(0)->timer_ns;
        dxpui_path_timeout(&r.ch, 0, r.now_ns);
        assert_true(path(0)->timer_ns > r.now_ns && path(0)->timer_ns != DXPU_NEVER);
        assert_false(path(0)->suspect);
        r.ch.flight.lost--;
        dxpui_frame_of(&r.ch.flight, RIG_SEQ)->state = 0;
    }
    assert_int_equal(r.ch.paths.fallback, 2);
    rig_free(&r);
}

/* ---- the end ---- */

/* A closed channel has nothing to repeat. */
static void test_d46_closed_is_quiet(void **state)
{
    static const uint8_t answer[4] = { DXPU_REASON_DETACH, DXPU_CLOSE_ANSWER };
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
    for (unsigned i = 0; i < 2; i++) { /* repeated until it is answered */
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_CLOSE);
        assert_int_equal(rig_emit(&r), 0);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, answer, sizeof answer), DXPU_OK);
    assert_int_equal(r.ch.link.state, DXPU_STATE_CLOSED);
    assert_true(dxpu_channel_next_ns(&r.ch) == 0); /* the end is due, once */
    assert_int_equal(rig_emit(&r), DXPU_E_CLOSED);
    assert_true(dxpu_channel_next_ns(&r.ch) == DXPU_NEVER);
    r.now_ns += 10000 * (uint64_t)RIG_MS;
    assert_int_equal(rig_emit(&r), DXPU_E_CLOSED);
    rig_free(&r);
}

/* The next close that leaves, and over which path; probes are thrown away. */
static unsigned await_close(void)
{
    for (unsigned steps = 0; steps < 1000; steps++) {
        int n = rig_emit(&r);
        assert_true(n >= 0);
        if (n > 0 && r.f.kind == DXPU_KIND_CLOSE)
            return r.f.path;
        if (n == 0)
            r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    fail_msg("no close");
    return 0;
}

/* A path that is dead, or dead one way, does not hold up a close. */
static void test_p6_closes_take_turns(void **state)
{
    static const uint8_t close[4] = { DXPU_REASON_DETACH };
    (void)state;
    up(3, false);
    make_usable(1);
    assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
    r.say.path = 1;
    for (unsigned i = 0; i < 6; i++) { /* the peer is heard, whatever becomes of what we send */
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
        assert_int_equal(await_close(), (1 + i) % 3);
        r.say.path = (uint8_t)(i % 3); /* anywhere */
    }
    rig_free(&r);

    rig_config(&r); /* nothing may go where the acceptor has not heard the other (P-1) */
    r.cfg.paths = 3;
    rig_accepted(&r);
    r.say.path = 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
    for (unsigned i = 0, last = 2; i < 6; i++) { /* these two take turns */
        unsigned now = await_close();
        assert_in_range(now, 0, 1);
        assert_int_not_equal(now, last);
        last = now;
    }
    rig_free(&r);

    for (unsigned over = 0; over < 3; over++) { /* the last: none of ours (W-6) */
        up(2, false);
        r.say.path = (uint8_t)over;
        assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, close, sizeof close), DXPU_OK);
        r.say.path = 0; /* something older that comes late, another way */
        assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, r.probe, sizeof r.probe), DXPU_OK);
        assert_int_equal(await_close(), over % 2);
        assert_int_equal(r.f.body.ptr[1], DXPU_CLOSE_ANSWER);
        assert_int_equal(path(1)->usable, false); /* only small frames are known to pass */
        rig_free(&r);
    }
}

/* Probes that come, and are answered, do not make up for a close that is not. */
static void test_d48_unanswered_close(void **state)
{
    (void)state;
    up(1, false);
    submit_big(1);
    assert_int_equal(burst(), 1);
    r.now_ns += r.ch.link.hold_ns / 2;
    ack_after(RIG_SEQ + 1, 0);
    r.now_ns += r.ch.link.hold_ns / 4 * 3; /* silent for that long, and yet hold for the close */
    assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
    assert_int_equal(await_close(), 0);
    uint64_t over_ns = r.now_ns + r.ch.link.hold_ns;
    while (r.now_ns < over_ns) {
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_CLOSING);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
        rig_answer(&r);
        while (rig_emit(&r) > 0)
            continue;
        r.now_ns += r.ch.link.hold_ns / 8;
    }
    while (rig_emit(&r) > 0)
        continue;
    assert_int_equal(dxpu_channel_status(&r.ch).error, DXPU_E_DEAD);
    assert_int_equal(dxpu_channel_status(&r.ch).reason, DXPU_REASON_HOLD);
    rig_free(&r);
}

static void test_d60_containment(void **state)
{
    dxpu_request q;
    dxpu_event e;
    (void)state;
    rig_config(&r);
    rig_tags(&r);
    rig_up(&r);
    for (uint16_t tag = 1; tag <= 4; tag++)
        assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(tag, 64), r.now_ns, 100u + tag),
                         DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    unsigned kinds;
    rig_drain(&r, &kinds);
    r.say.ack = RIG_SEQ;
    assert_int_equal(rig_put_tlp(&r, rig_cpl(2, 64, 64, 0)), DXPU_OK); /* came, was not taken */
    assert_int_equal(rig_put_tlp(&r, rig_cpl(3, 64, 64, 0)), DXPU_OK); /* came, and was taken */
    assert_int_equal(dxpu_channel_peek(&r.ch, DXPU_COMPLETION).user, 102);
    assert_false(dxpu_channel_contain(&r.ch, &q)); /* it is reachable */
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(4, 64, 64, 0)), DXPU_OK); /* behind the one of 3 */
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
    static const uint16_t tags[3] = { 3, 4, 1 };
    for (unsigned i = 0; i < 3; i++) {
        memset(&q, 0x55, sizeof q);
        assert_true(dxpu_channel_contain(&r.ch, &q));
        assert_int_equal(q.tag, tags[i]);
        assert_int_equal(q.bytes, 0);
        assert_int_equal(q.requester, 0);
        assert_int_equal(q.user, 100u + tags[i]);
        assert_int_equal(q.done, true);
    }
    assert_false(dxpu_channel_contain(&r.ch, &q));
    assert_int_equal(r.ch.count.contained, 3);
    assert_int_equal(r.ch.count.contain_dropped, 8); /* 2, 5 queued, 1 posted received */
    assert_int_equal(r.tags.in_flight, 0);
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        assert_int_equal(r.ch.tx.queue[cls].count + r.ch.rx.queue[cls].count, 0);
    rig_free(&r);
    rig_config(&r); /* without tags, and closed */
    rig_up(&r);
    static const uint8_t close[4] = { DXPU_REASON_SHUTDOWN };
    assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 64, 64, 0)), DXPU_OK);
    assert_int_equal(rig_put_events(&r, 2, 0), DXPU_OK);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    assert_true(dxpu_channel_peek_event(&r.ch, &e));
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 64, 64, 0)), DXPU_OK);
    assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, close, sizeof close), DXPU_OK);
    assert_int_equal(r.ch.link.state, DXPU_STATE_CLOSED);
    assert_true(dxpu_channel_peek_event(&r.ch, &e)); /* what had come may still be taken */
    assert_false(dxpu_channel_contain(&r.ch, &q));
    assert_false(dxpu_channel_peek_event(&r.ch, &e));
    assert_int_equal(r.ch.count.contain_dropped, 4); /* a completion, two events, one of ours */
    assert_false(dxpu_channel_contain(&r.ch, &q));
    assert_int_equal(r.ch.count.contain_dropped, 4);
    rig_free(&r);
}

/* A completion of several parts: the request is named once, by its tag. */
static void test_d60_part_of_a_completion(void **state)
{
    dxpu_request q;
    (void)state;
    rig_config(&r);
    rig_tags(&r);
    rig_up(&r);
    assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(1, 128), r.now_ns, 9), DXPU_OK);
    unsigned kinds;
    rig_drain(&r, &kinds);
    r.say.ack = RIG_SEQ;
    assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 64, 128, 0)), DXPU_OK);
    dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
    assert_true(dxpu_channel_contain(&r.ch, &q));
    assert_int_equal(q.user, 9);
    assert_false(dxpu_channel_contain(&r.ch, &q));
    rig_free(&r);
}

/* A part that waits behind a posted TLP outlives the deadline of its request; what is left at the
   end is dropped, and nothing is named a second time. */
static void test_f30_stored_part_comes_after_the_timeout(void **state)
{
    dxpu_request q;
    (void)state;
    for (unsigned contained = 0; contained < 2; contained++) {
        rig_config(&r);
        rig_tags(&r);
        r.tags.timeout_ns = 50 * RIG_MS;
        rig_up(&r);
        assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(1, 128), r.now_ns, 9), DXPU_OK);
        burst();
        assert_int_equal(rig_put_tlp(&r, rig_mwr(7, 64, 0)), DXPU_OK);
        assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 64, 128, 0)), DXPU_OK);
        assert_false(rig_has(&r, DXPU_COMPLETION));
        r.now_ns += 50 * RIG_MS;
        assert_true(dxpu_tags_expire(&r.tags, r.now_ns, &q));
        assert_true(q.user == 9 && q.left_bytes == 64 && q.done);
        assert_false(dxpu_tags_expire(&r.tags, r.now_ns, &q));
        if (contained) {
            dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
            assert_false(dxpu_channel_contain(&r.ch, &q));
        } else {
            assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
            dxpu_delivery d = dxpu_channel_peek(&r.ch, DXPU_COMPLETION);
            assert_true(d.tlp.len != 0 && d.user == 9 && !d.last);
        }
        rig_free(&r);
    }
}

/* The write that starts a function-level reset is known, and the function's requests go (D-61). */
static void test_d61_function_level_reset(void **state)
{
    static const uint8_t flr[4] = { 0x10, 0x28 | 0x80, 0, 0 }, other[4] = { 0x10, 0x28, 0, 0x80 };
    dxpu_tlp t;
    (void)state;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_CFGWR0;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.register_bytes = 0x78;
    t.payload.ptr = flr;
    t.payload.len = 4;
    assert_true(dxpu_tlp_is_flr(&t, 0x70));
    t.first_be = 2;
    t.type = DXPU_TLP_CFGWR1;
    assert_true(dxpu_tlp_is_flr(&t, 0x70));
    assert_false(dxpu_tlp_is_flr(&t, 0x80)); /* another register */
    t.first_be = 0xd;
    assert_false(dxpu_tlp_is_flr(&t, 0x70)); /* that byte is not written */
    t.first_be = 0xf;
    t.payload.ptr = other;
    assert_false(dxpu_tlp_is_flr(&t, 0x70));
    t.payload.ptr = NULL;
    t.payload.len = 0; /* a header alone */
    assert_false(dxpu_tlp_is_flr(&t, 0x70));
    t.type = DXPU_TLP_CFGRD0;
    assert_false(dxpu_tlp_is_flr(&t, 0x70));
    rig_config(&r);
    rig_tags(&r);
    rig_up(&r);
    for (uint16_t tag = 1; tag <= 5; tag++)
        assert_int_equal(rig_submit(&r, rig_np(DXPU_TLP_MRD, tag & 1 ? 0x300 : 0x301, tag, 4, 0)),
                         DXPU_OK);
    assert_int_equal(dxpu_tags_reset(&r.tags, 0x300), 3);
    assert_int_equal(dxpu_tags_reset(&r.tags, 0x300), 0);
    assert_int_equal(r.tags.in_flight, 2);
    rig_free(&r);
}

static bool phase_seal(void *user, uint8_t phase, uint64_t nonce, dxpu_bytes head, uint8_t *body,
                       size_t bytes)
{
    (void)nonce;
    (void)head;
    *(uint8_t *)user = phase;
    memset(body + bytes, phase, 16);
    return true;
}

static bool phase_open(void *user, uint8_t phase, uint64_t nonce, dxpu_bytes head, uint8_t *body,
                       size_t bytes)
{
    (void)user;
    (void)nonce;
    (void)head;
    return body[bytes] == phase;
}

static void test_w5_key_phase(void **state)
{
    static const dxpu_suite suite = { 2, 16, phase_seal, phase_open };
    uint8_t sealed = 9;
    (void)state;
    rig_config(&r);
    r.cfg.suite = &suite;
    r.cfg.suite_user = &sealed;
    rig_init(&r);
    assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
    for (unsigned i = 0; i < 6; i++) {
        dxpu_channel_set_key_phase(&r.ch, (uint8_t)i);
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(sealed, i & 3);
        assert_int_equal(r.f.key_phase, i & 3);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p20_first_window),
        cmocka_unit_test(test_p21_slow_start),
        cmocka_unit_test(test_p22_growth),
        cmocka_unit_test(test_p22_never_beyond_the_frame_window),
        cmocka_unit_test(test_p23_loss_halves_once),
        cmocka_unit_test(test_p23_until_all_is_decided),
        cmocka_unit_test(test_d19_p22_not_the_newest),
        cmocka_unit_test(test_p22_found_lost),
        cmocka_unit_test(test_p24_persistent_congestion),
        cmocka_unit_test(test_p25_ecn),
        cmocka_unit_test(test_p26_pacing),
        cmocka_unit_test(test_d17_tail_loss_probe),
        cmocka_unit_test(test_d18_time_threshold),
        cmocka_unit_test(test_d19_which_transmission),
        cmocka_unit_test(test_d14_beyond_the_sack),
        cmocka_unit_test(test_d14_far_from_the_oldest),
        cmocka_unit_test(test_d14_moved_to_another_path),
        cmocka_unit_test(test_d14_timer_beyond_the_sack),
        cmocka_unit_test(test_d14_loss_behind_a_full_window),
        cmocka_unit_test(test_d62_no_room_for_events),
        cmocka_unit_test(test_d62_not_the_oldest_then),
        cmocka_unit_test(test_d63_replay_by_path),
        cmocka_unit_test(test_p22_limited_long_ago),
        cmocka_unit_test(test_d12_many_timeouts),
        cmocka_unit_test(test_d15_other_losses_first),
        cmocka_unit_test(test_f12_not_while_losses_wait),
        cmocka_unit_test(test_d15_oldest_was_sacked),
        cmocka_unit_test(test_d15_oldest_of_the_path),
        cmocka_unit_test(test_p1_configured_and_known),
        cmocka_unit_test(test_p1_first_probe_at_time_zero),
        cmocka_unit_test(test_p1_p2_acceptor_learns),
        cmocka_unit_test(test_p3_padding),
        cmocka_unit_test(test_p4_opens_take_turns),
        cmocka_unit_test(test_p3_acceptor_goes_down),
        cmocka_unit_test(test_p4_opens),
        cmocka_unit_test(test_p4_p5_probes),
        cmocka_unit_test(test_p5_answers),
        cmocka_unit_test(test_p6_acknowledgements_go_back),
        cmocka_unit_test(test_p10_timeouts_leave_a_path),
        cmocka_unit_test(test_p11_unanswered_probes),
        cmocka_unit_test(test_p11_long_round_trip),
        cmocka_unit_test(test_p11_long_round_trip_of_an_idle_path),
        cmocka_unit_test(test_p12_p14_shrunk_mtu),
        cmocka_unit_test(test_p10_all_paths_in_turn),
        cmocka_unit_test(test_p10_spread),
        cmocka_unit_test(test_p10_active_path),
        cmocka_unit_test(test_d46_closed_is_quiet),
        cmocka_unit_test(test_p6_closes_take_turns),
        cmocka_unit_test(test_d48_unanswered_close),
        cmocka_unit_test(test_d60_containment),
        cmocka_unit_test(test_d60_part_of_a_completion),
        cmocka_unit_test(test_f30_stored_part_comes_after_the_timeout),
        cmocka_unit_test(test_d61_function_level_reset),
        cmocka_unit_test(test_w5_key_phase),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
