/* unit_trace.c - DXPU_TRACE(): what a channel reports of itself, and that it is what it counts
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define DXPU_TRACE(ch, event, number) seen((ch), (event), (long long)(number))
struct dxpu_channel;
static void seen(const struct dxpu_channel *ch, unsigned event, long long number);

#define DXPU_STATIC
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "channel_rig.h"

enum { EVENTS = DXPU_TRACE_WINDOW + 1, KEPT = 64 };

static rig r;
static uint64_t count[EVENTS];
static long long last[EVENTS];
static unsigned order[KEPT], kept;

static void seen(const struct dxpu_channel *ch, unsigned event, long long number)
{
    assert_ptr_equal(ch, &r.ch);
    assert_true(event < EVENTS);
    count[event]++;
    last[event] = number;
    if (kept < KEPT)
        order[kept++] = event;
}

static void begin(bool lossless)
{
    memset(count, 0, sizeof count);
    kept = 0;
    rig_config(&r);
    r.cfg.lossless = lossless;
    rig_up(&r);
}

static void test_life_and_refusals(void **state)
{
    (void)state;
    begin(true);
    assert_int_equal(order[0], DXPU_TRACE_STATE); /* opening */
    assert_int_equal(order[1], DXPU_TRACE_SENT);
    assert_int_equal(order[2], DXPU_TRACE_STATE); /* up, by the accept, which then counts */
    assert_int_equal(order[3], DXPU_TRACE_RECEIVED);
    assert_int_equal(last[DXPU_TRACE_STATE], DXPU_STATE_UP);
    assert_int_equal(rig_put(&r, DXPU_KIND_ACK, "abcd", 4), DXPU_E_RECORD);
    assert_int_equal(count[DXPU_TRACE_DROPPED], 1);
    assert_int_equal(last[DXPU_TRACE_DROPPED], DXPU_E_RECORD);
    dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
    assert_int_equal(last[DXPU_TRACE_STATE], DXPU_STATE_FAILED);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(count[DXPU_TRACE_SENT], r.ch.count.tx_frames);
    assert_int_equal((uint64_t)last[DXPU_TRACE_SENT] + 1, r.ch.link.packet);
    assert_int_equal(count[DXPU_TRACE_RECEIVED], r.ch.count.rx_frames);
    rig_free(&r);
    rig_config(&r);
    memset(count, 0, sizeof count);
    rig_accepted(&r);
    assert_int_equal(count[DXPU_TRACE_RECEIVED], 1);
    rig_free(&r);
}

/* A state is reported when it changes, a frame whenever it is refused. */
static void test_what_changes_nothing_and_what_is_dropped(void **state)
{
    uint8_t open[64] = { 0 };
    (void)state;
    begin(true);
    dxpu_channel_close(&r.ch, DXPU_REASON_DETACH);
    assert_true(rig_emit(&r) > 0);
    memset(count, 0, sizeof count);
    dxpu_channel_close(&r.ch, DXPU_REASON_DETACH);
    assert_int_equal(count[DXPU_TRACE_STATE], 0);
    dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
    dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
    assert_int_equal(count[DXPU_TRACE_STATE], 1);
    assert_true(rig_put(&r, DXPU_KIND_ACK, NULL, 0) < 0);
    assert_int_equal(count[DXPU_TRACE_DROPPED], 1);
    assert_int_equal(last[DXPU_TRACE_DROPPED], r.ch.link.error);
    rig_free(&r);
    rig_config(&r);
    rig_init(&r);
    assert_int_equal(dxpu_channel_accept(&r.ch, r.now_ns, open, sizeof open), DXPU_E_MAGIC);
    assert_int_equal(count[DXPU_TRACE_DROPPED], 2);
    assert_int_equal(last[DXPU_TRACE_DROPPED], DXPU_E_MAGIC);
    rig_free(&r);
}

/* Eight frames, the first is lost: found by acknowledgements of later ones, then by the timer. */
static void test_loss(void **state)
{
    (void)state;
    begin(false);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(rig_submit(&r, rig_mwr(1, 1024, 0)), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
    }
    r.say.sack = 0x7f;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(count[DXPU_TRACE_LOST], 1);
    assert_int_equal(last[DXPU_TRACE_LOST], RIG_SEQ);
    assert_int_equal(count[DXPU_TRACE_LOST], r.ch.count.tx_fast);
    assert_int_equal(count[DXPU_TRACE_WINDOW], r.ch.count.tx_congestion);
    assert_int_equal(last[DXPU_TRACE_WINDOW], r.ch.paths.path[0].window);
    assert_int_equal(count[DXPU_TRACE_ACKED], 0);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    r.now_ns = dxpu_channel_next_ns(&r.ch);
    assert_true(rig_emit(&r) > 0); /* lost again: the timer's turn */
    assert_int_equal(count[DXPU_TRACE_TIMER], 1);
    assert_int_equal(last[DXPU_TRACE_TIMER], 0);
    assert_int_equal(count[DXPU_TRACE_LOST], 2);
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 8), DXPU_OK);
    assert_int_equal(count[DXPU_TRACE_ACKED], 1);
    assert_int_equal(last[DXPU_TRACE_ACKED], RIG_SEQ + 8);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life_and_refusals),
        cmocka_unit_test(test_what_changes_nothing_and_what_is_dropped),
        cmocka_unit_test(test_loss),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
