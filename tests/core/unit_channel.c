/* Section 13: one channel against a peer made by hand.  Rules of spec/deliver.md one by one, the
   state table row by row, every counter. */
#include <assert.h>
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define DXPU_ASSERT(x) assert(x)
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "channel_rig.h"

static rig r;

/* Of dxpu_channel_wants(): what waits for somebody, not what there is room for. */
enum { WAITS = DXPU_WANTS_SUBMIT_POSTED - 1 };

/* ---- a refused frame changes nothing but its counter ---- */

static void test_d43_malformed_data_proves_nothing(void **state)
{
    static const uint8_t bad[4] = { 0x7f, 0, 0, 0 };
    (void)state;
    rig_config(&r);
    rig_accepted(&r);
    assert_int_equal(rig_put(&r, DXPU_KIND_DATA, bad, sizeof bad), DXPU_E_RECORD);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_ACCEPTED);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK); /* control */
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    rig_free(&r);
}

/* Only the frame that stops the others counts: an earlier one may be sent again whole. */
static void test_d64_malformed_ahead(void **state)
{
    static const uint8_t bad[4] = { 0x7f, 0, 0, 0 };
    (void)state;
    rig_config(&r);
    rig_up(&r);
    for (unsigned i = 0; i < 40; i++) {
        r.say.sequence = RIG_PEER_SEQ + 1;
        assert_int_equal(rig_put(&r, DXPU_KIND_DATA, bad, sizeof bad), DXPU_E_RECORD);
    }
    r.say.sequence = RIG_PEER_SEQ;
    for (unsigned i = 1; i < 8; i++)
        assert_int_equal(rig_put(&r, DXPU_KIND_DATA, bad, sizeof bad), DXPU_E_RECORD);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    assert_int_equal(rig_put(&r, DXPU_KIND_DATA, bad, sizeof bad), DXPU_E_PROTO);
    rig_free(&r);
}

static void test_w11_ack_with_body_acknowledges_nothing(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    r.say.ack = RIG_SEQ + 1;
    assert_int_equal(rig_put(&r, DXPU_KIND_ACK, "abcd", 4), DXPU_E_RECORD);
    assert_int_equal(r.ch.count.rx_record, 1);
    assert_int_equal(r.ch.count.tx_tlps_acked, 0);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(r.ch.count.tx_tlps_acked, 1);
    rig_free(&r);
}

static void test_d9_frame_beyond_the_window_acknowledges_nothing(void **state)
{
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 4, 0));
    r.say.ack = RIG_SEQ + 1;
    r.say.sequence = RIG_PEER_SEQ + 64;
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_E_WINDOW);
    assert_int_equal(r.ch.count.rx_window, 1);
    assert_int_equal(r.ch.count.tx_tlps_acked, 0);
    r.say.sequence = RIG_PEER_SEQ + 63;
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    assert_int_equal(r.ch.count.tx_tlps_acked, 1);
    rig_free(&r);
}

static void test_d48_refused_frames_do_not_keep_alive(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    uint64_t until = RIG_START_NS + 1000 * (uint64_t)RIG_MS;
    r.now_ns += 500 * (uint64_t)RIG_MS;
    r.say.ack = RIG_SEQ + 9;
    uint64_t frames = r.ch.count.rx_frames;
    assert_int_equal(rig_put(&r, DXPU_KIND_ACK, NULL, 0), DXPU_E_ACK);
    assert_int_equal(rig_put(&r, DXPU_KIND_HANDSHAKE, NULL, 0), DXPU_E_STATE);
    assert_int_equal(r.ch.count.rx_frames, frames);
    r.now_ns = until - 1;
    while (rig_emit(&r) > 0)
        ;
    assert_int_equal(r.n, 0);
    r.now_ns = until;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_RESET);
    assert_int_equal(dxpu_channel_status(&r.ch).error, DXPU_E_DEAD);
    rig_free(&r);
}

static void test_d49_open_of_another_incarnation(void **state)
{
    (void)state;
    rig_config(&r);
    rig_accepted(&r);
    dxpu_frame mine = r.say;
    r.offer.channel = RIG_PEER_ID + 1;
    r.say.packet = 77;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_OPEN), DXPU_E_STATE);
    r.say = mine;
    r.say.packet = 77; /* its packet numbers are not ours */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(r.ch.count.rx_replay, 0);
    rig_free(&r);
}

static void test_w8_largest_packet_number(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    uint64_t seen = r.say.packet;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.packet = UINT64_MAX;
    rig_put_ack(&r, RIG_SEQ);
    r.say.packet = seen;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_REPLAY);
    rig_free(&r);
}

/* ---- handshake ---- */

static void test_d41_accept_again_after_a_refusal(void **state)
{
    (void)state;
    rig_config(&r);
    rig_init(&r);
    r.offer.epoch = 6;
    assert_int_equal(rig_accept_open(&r), DXPU_E_EPOCH);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_IDLE);
    r.offer.epoch = 7;
    r.say.packet = 0; /* another opener's first frame */
    assert_int_equal(rig_accept_open(&r), DXPU_OK);
    rig_free(&r);
}

static void test_d42_accept_that_is_not_ours(void **state)
{
    (void)state;
    rig_config(&r);
    rig_opening(&r);
    r.offer.epoch = 8;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_PROTO);
    assert_int_equal(dxpu_channel_status(&r.ch).last_error, DXPU_E_EPOCH);
    assert_int_equal(dxpu_channel_status(&r.ch).reason, DXPU_REASON_EPOCH);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_RESET);
    assert_int_equal(r.f.channel, RIG_PEER_ID);
    rig_free(&r);

    rig_config(&r);
    rig_opening(&r);
    r.offer.suites = 0x4000;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_PROTO);
    assert_int_equal(dxpu_channel_status(&r.ch).last_error, DXPU_E_VERSION);
    assert_int_equal(dxpu_channel_status(&r.ch).reason, DXPU_REASON_VERSION);
    rig_free(&r);
}

static void test_d13_probe_before_up(void **state)
{
    static const uint8_t probe[DXPU_PROBE_BYTES];
    (void)state;
    rig_config(&r);
    rig_opening(&r);
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, probe, sizeof probe), DXPU_E_STATE);
    assert_int_equal(rig_emit(&r), 0);
    rig_free(&r);
}

/* ---- timers ---- */

/* A configuration of days is legal, and sixteen doublings of it do not fit 64 bits. */
static void test_d12_long_times(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.hold_ms = (uint32_t)(((uint64_t)1 << 51) / 1000000);
    r.cfg.rto_min_ns = (uint64_t)1 << 47;
    r.offer.hold_ms = UINT32_MAX;
    memset(&r.offer.limits, 0, sizeof r.offer.limits);
    for (unsigned i = 0; i < 3; i++) {
        r.offer.limits.header[i] = 1;
        r.offer.limits.data[i] = 256;
    }
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK); /* no credit */
    for (unsigned i = 0; i < 40; i++) {
        unsigned kinds;
        assert_true(rig_drain(&r, &kinds) < 4);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
        assert_true(dxpu_channel_next_ns(&r.ch) > r.now_ns);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    assert_true(r.ch.count.tx_blocked > 16);
    rig_free(&r);
}

/* The peer's hold is the smaller one, less than four RTOs: the ceiling follows it. */
static void test_d12_ceiling_is_a_quarter_of_hold(void **state)
{
    unsigned sent = 0;
    (void)state;
    rig_config(&r);
    r.offer.hold_ms = 2;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    for (uint64_t end = r.now_ns + 2 * RIG_MS; r.now_ns < end;) {
        while (rig_emit(&r) > 0)
            sent += r.f.kind == DXPU_KIND_DATA;
        assert_true(dxpu_channel_next_ns(&r.ch) > r.now_ns);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    assert_int_equal(sent, 4); /* at 0, 0.5, 1 and 1.5 ms */
    rig_free(&r);
}

static void test_d2_ack_delay_never(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.ack_delay_ns = UINT64_MAX;
    assert_int_equal(dxpu_channel_bytes(&r.cfg), 0);
    r.cfg.ack_delay_ns = r.cfg.hold_ms * 1000000ull / 4;
    assert_true(dxpu_channel_bytes(&r.cfg) > 0);
}

/* ---- queues ---- */

static void test_w26_nonposted_larger_than_any_limit(void **state)
{
    uint8_t raw[12 + 132];
    dxpu_bytes tlp;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    tlp = rig_np(DXPU_TLP_SWAP, 0, 1, 8, 0);
    memset(raw, 0, sizeof raw);
    memcpy(raw, tlp.ptr, tlp.len);
    raw[3] = 33; /* dwords: nothing in PCIe, and more than a peer must ever have room for */
    tlp.ptr = raw;
    tlp.len = sizeof raw;
    assert_int_equal(rig_submit(&r, tlp), DXPU_E_TLP_LENGTH);
    raw[3] = 32;
    tlp.len -= 4;
    assert_int_equal(rig_submit(&r, tlp), DXPU_OK);
    rig_free(&r);
}

/* A frame whose events have no room goes on as soon as they do, without another RTO. */
static void test_d36_continues_when_taken(void **state)
{
    dxpu_event e;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_put_events(&r, 16, 0), DXPU_OK);
    rig_put_events(&r, 1, 16);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 1);
    for (uint32_t i = 0; i < 17; i++) {
        assert_true(dxpu_channel_peek_event(&r.ch, &e));
        assert_int_equal(e.value, i);
        assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_OK);
    }
    assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_E_NONE);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 2);
    assert_int_equal(rig_put_events(&r, 17, 0), DXPU_E_RECORD);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    rig_free(&r);
}

/* A frame held for want of event room is the one that counts: another body under its sequence,
   which would fit, is a duplicate, and nothing stays behind in the reorder buffer. */
static void test_d36_held_frame_is_not_replaced(void **state)
{
    dxpu_event e;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_put_events(&r, 15, 0), DXPU_OK);
    uint32_t sequence = r.say.sequence;
    assert_int_equal(rig_put_events(&r, 2, 15), DXPU_OK); /* held: room for one */
    r.say.sequence = sequence;
    assert_int_equal(rig_put_events(&r, 1, 99), DXPU_OK);
    assert_int_equal(r.ch.count.rx_duplicate, 1);
    for (uint32_t i = 0; i < 17; i++) {
        assert_true(dxpu_channel_peek_event(&r.ch, &e));
        assert_int_equal(e.value, i);
        assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_OK);
    }
    assert_false(dxpu_channel_peek_event(&r.ch, &e));
    assert_int_equal(r.ch.rx.early, 0);
    rig_free(&r);
}

/* A frame that waited for room may end the channel: the call that makes the room returns that. */
static void test_d36_fatal_when_taken(void **state)
{
    rig_body body;
    dxpu_event e;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_put_events(&r, 16, 0), DXPU_OK);
    rig_begin(&body);
    memset(dxpui_record_open(&body.b, DXPU_RECORD_PAYLOAD, 4), 0, 4); /* of no TLP: W-42 */
    rig_add_event(&body, DXPU_EVENT_INTX, 16);
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_E_PROTO);
    assert_int_equal(dxpu_channel_status(&r.ch).last_error, DXPU_E_RECORD);
    assert_false(dxpu_channel_peek_event(&r.ch, &e));
    assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_E_NONE);
    rig_free(&r);
}

/* ---- states, row by row ---- */

/* A channel in each state, by the ways of the table. */
static void in_state(unsigned state)
{
    unsigned kinds;
    rig_config(&r);
    if (state == DXPU_STATE_IDLE) {
        rig_init(&r);
    } else if (state == DXPU_STATE_OPENING) {
        rig_opening(&r); /* D-40 */
    } else if (state == DXPU_STATE_ACCEPTED) {
        rig_accepted(&r); /* D-41 */
    } else {
        rig_up(&r); /* D-42 */
        if (state == DXPU_STATE_DRAINING)
            assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
        if (state == DXPU_STATE_DRAINING || state == DXPU_STATE_CLOSING) {
            assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
            rig_drain(&r, &kinds);
        } else if (state == DXPU_STATE_CLOSED) {
            assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\1\0\0\0", 4), DXPU_OK);
            rig_drain(&r, &kinds);
        } else if (state == DXPU_STATE_FAILED) {
            dxpu_channel_reset(&r.ch, DXPU_REASON_SHUTDOWN);
            rig_drain(&r, &kinds);
        }
    }
    assert_int_equal(dxpu_channel_status(&r.ch).state, state);
}

enum { ALL_STATES = DXPU_STATE_FAILED + 1 };

static void test_d40_open(void **state)
{
    (void)state;
    for (unsigned s = 0; s < ALL_STATES; s++) {
        in_state(s);
        assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns),
                         s == DXPU_STATE_IDLE ? DXPU_OK : DXPU_E_ARG);
        assert_int_equal(dxpu_channel_status(&r.ch).state,
                         s == DXPU_STATE_IDLE ? DXPU_STATE_OPENING : s);
        rig_free(&r);
    }
    rig_config(
        &r); /* D-67: repeated with back-off, 4, 8, 16 ms ... at most hold / 16, until hold */
    rig_opening(&r);
    uint64_t due = RIG_START_NS, wait_us = 4000;
    for (unsigned i = 0; i < 18; i++) {
        due += wait_us * RIG_US;
        wait_us = wait_us < 32000 ? 2 * wait_us : 62500;
        assert_true(dxpu_channel_next_ns(&r.ch) == due);
        r.now_ns = due - 1;
        assert_int_equal(rig_emit(&r), 0);
        r.now_ns = due;
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_OPEN);
        assert_int_equal(r.f.channel, 0); /* W-7 */
        assert_true(r.f.packet == i + 1); /* W-8 */
    }
    r.now_ns = RIG_START_NS + 1000 * (uint64_t)RIG_MS; /* D-48 */
    assert_int_equal(rig_emit(&r), DXPU_E_NO_ANSWER);
    rig_free(&r);
}

static void test_d41_accept(void **state)
{
    (void)state;
    for (unsigned s = DXPU_STATE_OPENING; s < ALL_STATES; s++) {
        in_state(s);
        assert_int_equal(rig_accept_open(&r), DXPU_E_ARG);
        assert_int_equal(dxpu_channel_status(&r.ch).state, s);
        rig_free(&r);
    }
    in_state(DXPU_STATE_ACCEPTED);
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_OPEN), DXPU_OK); /* a repetition */
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_ACCEPT);
    assert_int_equal(rig_emit(&r), 0);
    r.now_ns = dxpu_channel_next_ns(&r.ch);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_ACCEPT);
    rig_free(&r);
    in_state(DXPU_STATE_UP);
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_OPEN), DXPU_E_STATE);
    rig_free(&r);
}

/* One open brings three accepts and no more; the opener's next open or probe brings others. */
static void test_d41_three_accepts(void **state)
{
    static const uint8_t probe[DXPU_PROBE_BYTES];
    unsigned accepts = 1; /* rig_accepted() has seen the first */
    (void)state;
    rig_config(&r);
    rig_accepted(&r);
    for (unsigned i = 0; i < 200; i++, r.now_ns += RIG_MS) {
        while (rig_emit(&r) > 0)
            accepts += r.f.kind == DXPU_KIND_ACCEPT;
    }
    assert_int_equal(accepts, 3);
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, probe, sizeof probe), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    for (accepts = r.f.kind == DXPU_KIND_ACCEPT; rig_emit(&r) > 0;)
        accepts += r.f.kind == DXPU_KIND_ACCEPT;
    assert_int_equal(accepts, 1);
    rig_free(&r);
}

static void test_d41_refused(void **state)
{
    uint8_t pkt[256];
    (void)state;
    in_state(DXPU_STATE_IDLE);
    r.say.kind = DXPU_KIND_ACK;
    size_t n = rig_seal(&r.say, NULL, 0, pkt);
    assert_int_equal(dxpu_channel_accept(&r.ch, r.now_ns, pkt, n), DXPU_E_STATE);
    pkt[20] ^= 1;
    assert_int_equal(dxpu_channel_accept(&r.ch, r.now_ns, pkt, n), DXPU_E_CRC);
    r.offer.hold_ms = 0;
    assert_int_equal(rig_accept_open(&r), DXPU_E_OFFER);
    r.offer.hold_ms = 1000;
    r.offer.version_min = r.offer.version_max = 2;
    assert_int_equal(rig_accept_open(&r), DXPU_E_VERSION);
    r.offer.version_min = 1;
    r.offer.suites = 2;
    assert_int_equal(rig_accept_open(&r), DXPU_E_VERSION);
    r.offer.suites = 3;
    assert_int_equal(rig_accept_open(&r), DXPU_OK);
    assert_int_equal(dxpu_channel_ingest(&r.ch, r.now_ns, pkt, 3, 0), DXPU_E_SHORT);
    rig_free(&r);
}

static void test_d42_accept_frame(void **state)
{
    (void)state;
    for (unsigned s = DXPU_STATE_OPENING; s < DXPU_STATE_FAILED; s++) {
        in_state(s);
        int rc = rig_put_offer(&r, DXPU_KIND_ACCEPT);
        if (s == DXPU_STATE_OPENING || s == DXPU_STATE_UP) {
            assert_int_equal(rc, DXPU_OK);
            assert_true(rig_emit(&r) > 0);
            assert_int_equal(r.f.kind, DXPU_KIND_ACK);
            assert_int_equal(r.f.ack, RIG_PEER_SEQ);
            assert_int_equal(r.f.sequence, RIG_SEQ);
            assert_int_equal(r.f.channel, RIG_PEER_ID);
            assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
        } else {
            assert_int_equal(rc, DXPU_E_STATE);
            assert_int_equal(dxpu_channel_status(&r.ch).state, s);
        }
        rig_free(&r);
    }
    rig_config(&r);
    rig_opening(&r);
    r.offer.tlp_formats = 2;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_OFFER);
    assert_int_equal(r.ch.count.rx_offer, 1);
    r.offer.tlp_formats = 1;
    r.offer.version_max = 2; /* W-22, W-23: it names one */
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_OFFER);
    r.offer.version_max = 1;
    r.offer.suites = 3;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_OFFER);
    assert_int_equal(rig_put(&r, DXPU_KIND_ACCEPT, "short", 5), DXPU_E_SHORT);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_OPENING);
    rig_free(&r);
}

static void test_d43_sequenced(void **state)
{
    static const uint8_t kinds[] = { DXPU_KIND_DATA, DXPU_KIND_ACK, DXPU_KIND_BLOCKED };
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        in_state(DXPU_STATE_ACCEPTED);
        int rc = kinds[i] == DXPU_KIND_DATA ? rig_put_tlp(&r, rig_mwr(1, 4, 0))
                                            : rig_put(&r, kinds[i], NULL, 0);
        assert_int_equal(rc, DXPU_OK);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
        rig_free(&r);
    }
    in_state(DXPU_STATE_OPENING);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_E_STATE);
    rig_free(&r);
    in_state(DXPU_STATE_CLOSED);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_STATE);
    assert_int_equal(r.ch.count.rx_state, 1);
    rig_free(&r);
}

static void test_d44_close(void **state)
{
    static const uint8_t to[ALL_STATES] = { DXPU_STATE_IDLE,     DXPU_STATE_OPENING,
                                            DXPU_STATE_ACCEPTED, DXPU_STATE_DRAINING,
                                            DXPU_STATE_DRAINING, DXPU_STATE_CLOSING,
                                            DXPU_STATE_CLOSED,   DXPU_STATE_FAILED };
    (void)state;
    for (unsigned s = 0; s < ALL_STATES; s++) {
        in_state(s);
        for (unsigned again = 0; again < 2; again++) {
            assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_SHUTDOWN),
                             s == DXPU_STATE_IDLE ? DXPU_E_ARG : DXPU_OK);
            assert_int_equal(dxpu_channel_status(&r.ch).state, to[s]);
        }
        rig_free(&r);
    }
}

/* D-65: a close before UP takes effect then, in the step that would lead to UP. */
static void test_d65_remembered_close(void **state)
{
    unsigned kinds;
    (void)state;
    for (unsigned s = DXPU_STATE_OPENING; s <= DXPU_STATE_ACCEPTED; s++) {
        in_state(s);
        assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
        assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
        assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_E_CLOSED);
        assert_int_equal(rig_emit(&r), 0); /* nothing of it leaves yet */
        if (s == DXPU_STATE_OPENING)
            assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_OK);
        else
            assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_DRAINING);
        rig_drain(&r, &kinds);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_CLOSING);
        assert_int_equal(dxpu_channel_status(&r.ch).reason, DXPU_REASON_SHUTDOWN);
        assert_true(kinds >> DXPU_KIND_CLOSE & 1);
        rig_free(&r);
    }
    in_state(DXPU_STATE_ACCEPTED); /* the peer's comes first */
    assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
    assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\2\0\0\0", 4), DXPU_OK);
    assert_int_equal(dxpu_channel_status(&r.ch).error, DXPU_E_PEER_CLOSED);
    assert_int_equal(dxpu_channel_status(&r.ch).reason, 2);
    rig_free(&r);
}

static void test_d44_draining_delivers_everything(void **state)
{
    dxpu_event e;
    (void)state;
    rig_config(&r);
    r.offer.limits.header[DXPU_POSTED] = 1;
    rig_up(&r);
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_QUIESCE;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
    assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_E_CLOSED);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_E_CLOSED);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_DATA);
        assert_int_equal(rig_emit(&r), 0);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_DRAINING);
        r.say.limits.header[DXPU_POSTED]++;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1 + i), DXPU_OK);
    }
    assert_int_equal(r.ch.count.tx_tlps_acked, 3);
    assert_true(rig_emit(&r) > 0); /* D-45 */
    assert_int_equal(r.f.kind, DXPU_KIND_CLOSE);
    assert_memory_equal(r.f.body.ptr, "\1\0\0\0", 4);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_CLOSING);
    assert_int_equal(rig_emit(&r), 0);
    r.now_ns = dxpu_channel_next_ns(&r.ch); /* repeated */
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_CLOSE);
    assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\1\1\0\0", 4), DXPU_OK);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_CLOSED);
    assert_int_equal(rig_emit(&r), DXPU_E_CLOSED); /* an answer is not answered */
    assert_true(dxpu_channel_next_ns(&r.ch) == DXPU_NEVER);
    rig_free(&r);
}

/* What has come is acknowledged before the close, also where the acknowledgement could wait. */
static void test_d44_acknowledges_first(void **state)
{
    (void)state;
    for (unsigned came = 0; came < 2; came++) {
        rig_config(&r);
        rig_up(&r);
        if (came)
            assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 64, 0)), DXPU_OK);
        assert_int_equal(rig_emit(&r), 0); /* not due yet */
        assert_int_equal(dxpu_channel_close(&r.ch, DXPU_REASON_DETACH), DXPU_OK);
        if (came) {
            assert_true(rig_emit(&r) > 0);
            assert_int_equal(r.f.kind, DXPU_KIND_ACK);
            assert_int_equal(r.f.ack, RIG_PEER_SEQ + 1);
        }
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_CLOSE);
        rig_free(&r);
    }
}

static void test_d46_close_frame(void **state)
{
    (void)state;
    for (unsigned s = DXPU_STATE_OPENING; s < DXPU_STATE_FAILED; s++) {
        in_state(s);
        assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\2\0\0", 3), DXPU_E_SHORT); /* W-14 */
        int rc = rig_put(&r, DXPU_KIND_CLOSE, "\2\0\0\0more", 8);
        if (s == DXPU_STATE_OPENING) {
            assert_int_equal(rc, DXPU_E_STATE);
            assert_int_equal(dxpu_channel_status(&r.ch).state, s);
            rig_free(&r);
            continue;
        }
        assert_int_equal(rc, DXPU_OK);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_CLOSED);
        bool stored = s == DXPU_STATE_CLOSING; /* all that was submitted */
        int error = stored ? DXPU_E_CLOSED : DXPU_E_PEER_CLOSED;
        assert_int_equal(dxpu_channel_status(&r.ch).error, error);
        assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), error);
        uint8_t mine =
            s == DXPU_STATE_DRAINING || s == DXPU_STATE_CLOSING || s == DXPU_STATE_CLOSED;
        assert_int_equal(dxpu_channel_status(&r.ch).reason, mine ? 1 : 2);
        uint64_t end_ns = r.now_ns + 1000 * (uint64_t)RIG_MS;
        for (unsigned again = 0; again < 2; again++) {
            assert_int_equal(dxpu_channel_next_ns(&r.ch), 0);
            assert_true(rig_emit(&r) > 0);
            assert_int_equal(r.f.kind, DXPU_KIND_CLOSE);
            assert_int_equal(r.f.body.ptr[1], DXPU_CLOSE_ANSWER);
            assert_int_equal(rig_emit(&r), 0);
            assert_true(dxpu_channel_next_ns(&r.ch) == end_ns);
            r.now_ns = again ? end_ns - 1 : r.now_ns + 9 * RIG_MS;
            assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\2\0\0\0", 4), DXPU_OK);
        }
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(rig_emit(&r), 0);
        r.now_ns = end_ns; /* D-66: an answer ends it at once, else hold does */
        assert_int_equal(rig_emit(&r), error);
        assert_true(dxpu_channel_next_ns(&r.ch) == DXPU_NEVER);
        assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\2\0\0\0", 4), DXPU_OK);
        assert_true(rig_emit(&r) > 0); /* late, and answered where a program still listens */
        assert_int_equal(rig_emit(&r), error);
        rig_free(&r);
    }
}

static void test_d46_closed_still_delivers(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_put(&r, DXPU_KIND_CLOSE, "\1\0\0\0", 4), DXPU_OK);
    assert_true(rig_has(&r, DXPU_POSTED));
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    rig_free(&r);
}

static void test_d47_reset_frame(void **state)
{
    (void)state;
    for (unsigned s = DXPU_STATE_OPENING; s < ALL_STATES; s++) {
        in_state(s);
        assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)) <= 0, 1);
        int before = dxpu_channel_status(&r.ch).error;
        uint64_t used = r.say.packet;
        if (s != DXPU_STATE_FAILED)
            assert_int_equal(rig_put(&r, DXPU_KIND_RESET, "\3\1\1", 3), DXPU_E_SHORT);
        r.say.packet = 0; /* W-12: seen before */
        int rc = rig_put(&r, DXPU_KIND_RESET, "\3\1\1\0", 4);
        r.say.packet = used;
        if (s == DXPU_STATE_CLOSED || s == DXPU_STATE_FAILED) {
            assert_int_equal(rc, before);
            assert_int_equal(dxpu_channel_status(&r.ch).state, s);
        } else {
            assert_int_equal(rc, DXPU_E_RESET);
            assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_FAILED);
            assert_int_equal(dxpu_channel_status(&r.ch).reason, DXPU_REASON_NO_SLOT);
            assert_int_equal(rig_emit(&r), DXPU_E_RESET); /* it is not answered */
            assert_false(rig_has(&r, DXPU_POSTED));
            assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_E_NONE);
            assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_E_RESET);
        }
        rig_free(&r);
    }
}

static void test_d47_own_reset_is_reported_once(void **state)
{
    (void)state;
    for (unsigned s = 0; s < ALL_STATES; s++) {
        in_state(s);
        dxpu_channel_reset(&r.ch, DXPU_REASON_DETACH);
        if (s == DXPU_STATE_CLOSED) {
            assert_int_equal(dxpu_channel_status(&r.ch).state, s);
        } else if (s != DXPU_STATE_FAILED) {
            assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_FAILED);
            if (s >= DXPU_STATE_ACCEPTED) {
                assert_true(rig_emit(&r) > 0);
                assert_int_equal(r.f.kind, DXPU_KIND_RESET);
                assert_memory_equal(r.f.body.ptr, "\1\1\1\0", 4);
            }
            assert_int_equal(rig_emit(&r), DXPU_E_RESET);
        }
        rig_free(&r);
    }
}

static void test_d48_hold(void **state)
{
    (void)state;
    for (unsigned s = DXPU_STATE_OPENING; s <= DXPU_STATE_CLOSING; s++) {
        in_state(s);
        uint64_t end = RIG_START_NS + 1000 * (uint64_t)RIG_MS;
        while (dxpu_channel_next_ns(&r.ch) < end) {
            r.now_ns = dxpu_channel_next_ns(&r.ch);
            while (rig_emit(&r) > 0)
                ;
            assert_int_equal(r.n, 0);
        }
        assert_true(dxpu_channel_next_ns(&r.ch) == end);
        r.now_ns = end - 1;
        assert_int_equal(rig_emit(&r), 0);
        r.now_ns = end;
        if (s != DXPU_STATE_OPENING) {
            assert_true(rig_emit(&r) > 0);
            assert_int_equal(r.f.kind, DXPU_KIND_RESET);
            assert_int_equal(r.f.body.ptr[0], DXPU_REASON_HOLD);
        }
        assert_int_equal(rig_emit(&r), s < DXPU_STATE_UP ? DXPU_E_NO_ANSWER : DXPU_E_DEAD);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_FAILED);
        rig_free(&r);
    }
    assert_string_equal(dxpu_state_name(DXPU_STATE_FAILED), "failed");
    assert_string_equal(dxpu_state_name(99), "?");
}

/* A late duplicate of an old open: the new channel never hears a sequenced frame and ends by hold;
   the living one has not noticed. */
static void test_d49_late_duplicate_of_an_open(void **state)
{
    static rig late;
    (void)state;
    rig_config(&r);
    rig_accepted(&r);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    rig_config(&late);
    late.cfg.local_id = RIG_ID + 1;
    late.offer.channel = RIG_PEER_ID - 1;
    rig_accepted(&late);
    late.say.channel = RIG_ID + 1;
    for (unsigned i = 0; i < 9; i++) {
        r.now_ns = late.now_ns += 125 * (uint64_t)RIG_MS;
        while (rig_emit(&late) > 0)
            assert_int_equal(late.f.channel, RIG_PEER_ID - 1);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
        while (rig_emit(&r) > 0)
            ;
    }
    assert_int_equal(dxpu_channel_status(&late.ch).error, DXPU_E_NO_ANSWER);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    rig_free(&r);
    rig_free(&late);
}

/* A proxy that lost its state has a new id: frames for the former one keep no channel up. */
static void test_d50_former_id(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    r.say.channel = RIG_ID + 1;
    r.now_ns += 900 * (uint64_t)RIG_MS;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_CHANNEL);
    r.now_ns += 100 * (uint64_t)RIG_MS;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(rig_emit(&r), DXPU_E_DEAD);
    rig_free(&r);
}

/* ---- every reason of a refusal, once ---- */

static int put_bytes(uint8_t *pkt, size_t n)
{
    return dxpu_channel_ingest(&r.ch, r.now_ns, pkt, n, 0);
}

static size_t good_ack(uint8_t *pkt)
{
    r.say.kind = DXPU_KIND_ACK;
    size_t n = rig_seal(&r.say, NULL, 0, pkt);
    r.say.packet++;
    return n;
}

static size_t resealed(uint8_t *pkt, size_t n)
{
    dxpu_frame_seal_crc(pkt, n - 4);
    return n;
}

static void test_d47_refusals_are_counted(void **state)
{
    static uint8_t pkt[4096];
    size_t n;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    dxpu_counters *c = &r.ch.count;
    assert_int_equal(put_bytes(pkt, 3), DXPU_E_SHORT);
    assert_int_equal(c->rx_short, 1);
    n = good_ack(pkt);
    pkt[0] ^= 1;
    assert_int_equal(put_bytes(pkt, resealed(pkt, n)), DXPU_E_MAGIC);
    assert_int_equal(c->rx_magic, 1);
    n = good_ack(pkt);
    pkt[2] = 2;
    assert_int_equal(put_bytes(pkt, resealed(pkt, n)), DXPU_E_VERSION);
    assert_int_equal(c->rx_version, 1);
    n = good_ack(pkt);
    pkt[3] = 10;
    assert_int_equal(put_bytes(pkt, resealed(pkt, n)), DXPU_E_KIND);
    assert_int_equal(c->rx_kind, 1);
    n = good_ack(pkt);
    assert_int_equal(put_bytes(pkt, n + 1), DXPU_E_LENGTH);
    assert_int_equal(c->rx_length, 1);
    n = good_ack(pkt);
    pkt[6] = 0x10;
    assert_int_equal(put_bytes(pkt, resealed(pkt, n)), DXPU_E_RSVD);
    assert_int_equal(c->rx_rsvd, 1);
    n = good_ack(pkt);
    pkt[60] ^= 4;
    assert_int_equal(put_bytes(pkt, n), DXPU_E_CRC);
    assert_int_equal(c->rx_crc, 1);
    r.say.channel++;
    assert_int_equal(rig_put(&r, DXPU_KIND_ACK, NULL, 0), DXPU_E_CHANNEL);
    r.say.channel--;
    assert_int_equal(c->rx_channel, 1);
    n = good_ack(pkt);
    assert_int_equal(put_bytes(pkt, n), DXPU_OK);
    assert_int_equal(put_bytes(pkt, n), DXPU_E_REPLAY);
    assert_int_equal(c->rx_replay, 1);
    memset(pkt, 0, sizeof pkt);
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, pkt, 1453 - 24), DXPU_E_LENGTH); /* W-10 */
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, pkt, 1452 - 24), DXPU_OK);
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, pkt, 11), DXPU_E_SHORT);
    assert_int_equal(rig_put(&r, DXPU_KIND_DATA, NULL, 0), DXPU_E_RECORD);
    assert_int_equal(c->rx_record, 1);
    assert_int_equal(rig_put(&r, DXPU_KIND_HANDSHAKE, pkt, 8), DXPU_E_STATE); /* W-13 */
    assert_int_equal(c->rx_state, 1);
    r.offer.epoch = 0;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_OFFER);
    assert_int_equal(c->rx_offer, 1);
    assert_int_equal(c->rx_ack + c->rx_window, 0); /* tests of their own */
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    rig_free(&r);
}

static void test_w8_replay_window(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    r.say.packet = 1000;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.packet = 999; /* late, but new */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_REPLAY); /* 1000 */
    r.say.packet = 1001 - 256;                                 /* the oldest that it can say */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.packet = 1000 - 256;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_REPLAY);
    r.say.packet = 1000 + 256; /* another lap of the ring */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.packet = 5000; /* too old, although nothing came since that it could be taken for */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.packet = 4999 - 256;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_REPLAY);
    r.say.packet = 5001 - 256;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    rig_free(&r);
}

/* ---- acknowledgement ---- */

static void send_writes(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_DATA);
    }
}

static void test_d1_retransmission(void **state)
{
    uint8_t body[1500];
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4096, 0)), DXPU_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.sequence, RIG_SEQ + i);
        if (i == 1)
            memcpy(body, r.f.body.ptr, r.f.body.len);
    }
    size_t n = 1452 - 80;
    uint64_t packet = r.f.packet;
    r.say.sack = 2; /* 102 */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.sack = 0;
    r.say.ack = RIG_SEQ + 1;
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    r.now_ns += 4 * RIG_MS;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_DATA);
    assert_int_equal(r.f.sequence, RIG_SEQ + 1);
    assert_true(r.f.packet > packet);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 1); /* as of now */
    assert_int_equal(r.f.body.len, n);           /* D-16 */
    assert_memory_equal(r.f.body.ptr, body, n);
    assert_int_equal(r.ch.count.tx_retransmits, 1);
    rig_free(&r);
}

static void test_d2_when_to_acknowledge(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.window_frames = 16; /* more than two frames: at once */
    rig_up(&r);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 25 * RIG_US);
    r.now_ns += 25 * RIG_US;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_ACK);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 1);
    assert_int_equal(rig_emit(&r), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(rig_emit(&r), 0);
        assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    }
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 4);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK); /* with data that goes */
    send_writes(1);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 5);
    assert_int_equal(rig_put(&r, DXPU_KIND_BLOCKED, NULL, 0), DXPU_OK); /* F-13 */
    assert_int_equal(dxpu_channel_next_ns(&r.ch), 0);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_ACK);
    assert_int_equal(rig_emit(&r), 0);
    rig_free(&r);
}

static void test_d3_gaps_and_sack(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    static const uint8_t order[] = { 2, 4, 1, 4, 0, 3 };
    static const uint8_t ack[] = { 0, 0, 0, 0, 3, 5 };
    static const uint8_t sack[] = { 2, 10, 11, 11, 1, 0 };
    for (unsigned i = 0; i < sizeof order; i++) {
        r.say.sequence = RIG_PEER_SEQ + order[i];
        assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4 + 4 * (uint32_t)order[i], 0)), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.ack, RIG_PEER_SEQ + ack[i]);
        assert_int_equal(r.f.sack, sack[i]);
    }
    assert_int_equal(r.ch.count.rx_reordered, 3);
    assert_int_equal(r.ch.count.rx_duplicate, 1);
    r.say.sequence = RIG_PEER_SEQ + 2; /* D-8: below what is expected */
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(r.ch.count.rx_duplicate, 2);
    assert_true(rig_emit(&r) > 0);
    for (unsigned i = 0; i < 5; i++) { /* D-30 */
        assert_int_equal(dxpu_channel_peek(&r.ch, DXPU_POSTED).tlp.len, 12 + 4 + 4 * i);
        assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    }
    assert_false(rig_has(&r, DXPU_POSTED));
    rig_free(&r);
}

static void test_d4_seen_and_delay(void **state)
{
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 4, 0));
    r.say.packet = 40;
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    r.now_ns += 7000;
    send_writes(1);
    assert_true(r.f.seen == 40);
    assert_int_equal(r.f.delay_ns, 7000);
    r.say.packet = 30; /* an older packet does not count */
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK); /* 31: nor one that is not data */
    r.now_ns += (uint64_t)1 << 20;
    send_writes(1);
    assert_true(r.f.seen == 40);
    assert_int_equal(r.f.delay_ns, 7000 + (1 << 20));
    rig_free(&r);
    rig_config(&r);
    r.cfg.hold_ms = 100000;
    r.offer.hold_ms = 100000;
    rig_up(&r);
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    r.now_ns += 5000 * (uint64_t)RIG_MS; /* more than 32 bits say */
    send_writes(1);
    assert_int_equal(r.f.delay_ns, UINT32_MAX);
    rig_free(&r);
}

static void test_d5_ecn(void **state)
{
    rig_body body;
    uint8_t pkt[256];
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 4, 0));
    for (unsigned i = 0; i < 3; i++) {
        r.say.kind = DXPU_KIND_DATA;
        size_t n = rig_seal(&r.say, body.b.out, body.b.used, pkt);
        r.say.packet++;
        r.say.sequence++;
        unsigned mark = i == 1 ? 0 : DXPU_RX_ECN_CE;
        assert_int_equal(dxpu_channel_ingest(&r.ch, r.now_ns, pkt, n, mark), DXPU_OK);
    }
    send_writes(1);
    assert_int_equal(r.f.ecn_ce, 2);
    assert_int_equal(r.ch.count.rx_ecn_ce, 2);
    rig_free(&r);
}

static void test_d6_never_sent(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(3);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 4), DXPU_E_ACK);
    r.say.sack = 4; /* 103 */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_ACK);
    r.say.sack = 1;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 2), DXPU_E_ACK);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 3), DXPU_E_ACK);
    assert_int_equal(r.ch.count.rx_ack, 4);
    assert_int_equal(r.ch.count.tx_tlps_acked, 0);
    r.say.sack = 2;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 3), DXPU_OK);
    assert_int_equal(r.ch.count.tx_tlps_acked, 3);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK); /* an old one is not an error */
    rig_free(&r);
}

/* ---- loss ---- */

static void test_d10_d11_rtt_and_rto(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(1);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 4 * RIG_MS); /* before a sample */
    uint64_t packet = r.f.packet;
    r.now_ns += 3 * RIG_MS;
    r.say.seen = packet;
    r.say.delay_ns = RIG_MS; /* 2 ms: SRTT 2, RTTVAR 1, RTO 6 */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    send_writes(1);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 6 * RIG_MS + 25 * RIG_US);
    r.now_ns += RIG_MS; /* not the frame that was seen: no sample */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 2), DXPU_OK);
    send_writes(1);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 6 * RIG_MS + 25 * RIG_US);
    r.say.seen = r.f.packet;
    r.say.delay_ns = 0;
    r.now_ns += 2 * RIG_MS; /* again 2 ms: RTTVAR 0.75, RTO 5 */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 3), DXPU_OK);
    send_writes(1);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 5 * RIG_MS + 25 * RIG_US);
    r.say.seen = r.f.packet;
    r.say.delay_ns = 2000; /* a delay longer than it all: no sample */
    r.now_ns += 1000;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 4), DXPU_OK);
    for (unsigned i = 0; i < 40; i++) { /* down to the floor */
        send_writes(1);
        r.now_ns += 1000;
        r.say.seen = r.f.packet;
        r.say.delay_ns = 0;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 5 + i), DXPU_OK);
    }
    assert_true(r.ch.paths.path[0].rto_ns == RIG_MS);
    rig_free(&r);
}

static void test_d12_backoff(void **state)
{
    static const uint8_t wait_ms[] = { 4, 8, 16, 32, 64, 128, 250, 250 };
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(2);
    for (unsigned i = 0; i < sizeof wait_ms; i++) {
        assert_int_equal(rig_put(&r, DXPU_KIND_BLOCKED, NULL, 0), DXPU_OK); /* alive */
        r.now_ns += wait_ms[i] * (uint64_t)RIG_MS - 1;
        while (rig_emit(&r) > 0)
            assert_int_not_equal(r.f.kind, DXPU_KIND_DATA);
        r.now_ns++;
        assert_true(rig_emit(&r) > 0);
        while (r.f.kind == DXPU_KIND_PROBE)
            assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_DATA);
        assert_int_equal(r.f.sequence, RIG_SEQ); /* the oldest, D-15 */
        assert_int_equal(r.ch.count.tx_timeouts, i + 1);
        while (rig_emit(&r) > 0)
            assert_int_equal(r.f.kind, DXPU_KIND_PROBE); /* does the path still carry it? */
    }
    r.say.seen = r.ch.link.packet - 1; /* the newest transmission (D-19); no sample, by its delay */
    r.say.delay_ns = UINT32_MAX;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK); /* ends it */
    assert_true(rig_emit(&r) > 0); /* and shows that the second, older, is lost: D-14 */
    assert_int_equal(r.f.sequence, RIG_SEQ + 1);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 4 * RIG_MS);
    rig_free(&r);
}

static void test_d13_probes(void **state)
{
    static const uint16_t at_ms[] = { 250, 375, 500, 625 };
    static const uint8_t reply[DXPU_PROBE_BYTES] = { DXPU_PROBE_REPLY };
    static const uint8_t probe[DXPU_PROBE_BYTES] = { 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    (void)state;
    rig_config(&r);
    rig_up(&r);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(dxpu_channel_next_ns(&r.ch) == RIG_START_NS + at_ms[i] * (uint64_t)RIG_MS);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_PROBE);
        assert_int_equal(r.f.body.ptr[0], 0);
        assert_int_equal(rig_emit(&r), 0);
    }
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, reply, sizeof reply), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 250 * (uint64_t)RIG_MS);
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, probe, sizeof probe), DXPU_OK);
    assert_int_equal(dxpu_channel_next_ns(&r.ch), 0);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.kind, DXPU_KIND_PROBE);
    assert_int_equal(r.f.body.ptr[0], DXPU_PROBE_REPLY);
    assert_memory_equal(r.f.body.ptr + 4, probe + 4, 8);
    rig_free(&r);
}

static void test_d14_fast_retransmit(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(5);
    r.say.sack = 3; /* 101 and 102: two later ones */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    r.say.sack = 7;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(dxpu_channel_next_ns(&r.ch), 0);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    assert_int_equal(r.ch.count.tx_fast, 1);
    assert_int_equal(rig_emit(&r), 0); /* the same acknowledgement again changes nothing */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    send_writes(3); /* the retransmission is lost: three later transmissions find it */
    r.say.sack = 0x37;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ + 4); /* it left before all of these */
    assert_int_equal(rig_emit(&r), 0);
    r.say.sack = 0x77;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    assert_int_equal(r.ch.count.tx_fast, 3);
    assert_int_equal(r.ch.count.tx_timeouts, 0);
    rig_free(&r);
}

static void test_d15_oldest_even_if_sacked(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(3);
    r.say.sack = 1; /* 101 */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK); /* 101 has been taken back: D-3 */
    uint64_t due = dxpu_channel_next_ns(&r.ch);
    assert_true(due == r.now_ns + 4 * RIG_MS);
    r.now_ns = due;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ + 1);
    rig_free(&r);
}

static void test_d51_window(void **state)
{
    (void)state;
    for (unsigned whose = 0; whose < 2; whose++) {
        unsigned kinds;
        rig_config(&r);
        r.cfg.window_frames = whose ? 64 : 4;
        r.offer.window_frames = whose ? 3 : 64;
        unsigned window = whose ? 3 : 4;
        rig_up(&r);
        send_writes(window);
        assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
        assert_int_equal(rig_emit(&r), 0);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
        assert_int_equal(rig_drain(&r, &kinds), 1);
        rig_free(&r);
    }
}

/* ---- order ---- */

/* What the table says of `later` behind a posted write of requester 0:02.0, at both ends. */
static void order_row(dxpu_bytes later, unsigned cls, bool passes)
{
    dxpu_bytes first = rig_mwr(DXPU_BDF(0, 2, 0), 64, 0);
    uint8_t keep[DXPU_TLP_MAX_BYTES];
    dxpu_bytes again = { keep, later.len };
    memcpy(keep, later.ptr, later.len);
    rig_config(&r);
    r.offer.limits.data[DXPU_POSTED] = 256;
    r.offer.limits.header[DXPU_POSTED] = 1;
    rig_up(&r);
    assert_int_equal(rig_put_tlp(&r, first), DXPU_OK); /* the receiver */
    assert_int_equal(rig_put_tlp(&r, again), DXPU_OK);
    assert_int_equal(rig_has(&r, cls), passes);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    assert_true(rig_has(&r, cls));
    send_writes(1); /* the sender: the only posted credit is gone */
    assert_int_equal(rig_submit(&r, first), DXPU_OK);
    assert_int_equal(rig_submit(&r, again), DXPU_OK);
    unsigned kinds;
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_tlps, passes ? 2 : 1);
    rig_free(&r);
}

static void test_d33_d34_passing_posted(void **state)
{
    const uint16_t same = DXPU_BDF(0, 2, 0), other = DXPU_BDF(0, 3, 0);
    const uint8_t ro = DXPU_ATTR_RO, ido = DXPU_ATTR_IDO;
    (void)state;
    order_row(rig_np(DXPU_TLP_MRD, other, 1, 64, 0), DXPU_NONPOSTED, false);
    order_row(rig_np(DXPU_TLP_MRD, other, 1, 64, ro), DXPU_NONPOSTED, false);
    order_row(rig_np(DXPU_TLP_MRD, other, 1, 64, ido), DXPU_NONPOSTED, true);
    order_row(rig_np(DXPU_TLP_MRD, same, 1, 64, ido), DXPU_NONPOSTED, false);
    order_row(rig_np(DXPU_TLP_SWAP, other, 1, 8, 0), DXPU_NONPOSTED, false);
    order_row(rig_np(DXPU_TLP_SWAP, other, 1, 8, ro), DXPU_NONPOSTED, true);
    order_row(rig_np(DXPU_TLP_SWAP, other, 1, 8, ido), DXPU_NONPOSTED, true);
    order_row(rig_np(DXPU_TLP_SWAP, same, 1, 8, ido), DXPU_NONPOSTED, false);
    order_row(rig_cpl(1, 64, 64, 0), DXPU_COMPLETION, false);
    order_row(rig_cpl(1, 64, 64, ro), DXPU_COMPLETION, true);
    order_row(rig_cpl(1, 64, 64, ido), DXPU_COMPLETION, true); /* completer 3:00.0 */
    order_row(rig_cpl(1, 0, 0, 0), DXPU_COMPLETION, false);
}

/* ID-based Ordering with several posted ones: only when none of them has its requester. */
static void test_d34_every_posted_that_waits(void **state)
{
    static const uint8_t devices[][2] = { { 2, 3 }, { 3, 2 }, { 2, 2 } };
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        rig_config(&r);
        rig_up(&r);
        for (unsigned k = 0; k < 2; k++)
            assert_int_equal(rig_put_tlp(&r, rig_mwr(DXPU_BDF(0, devices[i][k], 0), 4, 0)),
                             DXPU_OK);
        assert_int_equal(
            rig_put_tlp(&r, rig_np(DXPU_TLP_MRD, DXPU_BDF(0, 3, 0), 1, 4, DXPU_ATTR_IDO)), DXPU_OK);
        assert_int_equal(rig_has(&r, DXPU_NONPOSTED), i == 2);
        assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
        assert_int_equal(rig_has(&r, DXPU_NONPOSTED), i >= 1);
        assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
        assert_true(rig_has(&r, DXPU_NONPOSTED));
        rig_free(&r);
    }
}

/* Posted and completions go before a request that is not taken, or that has no credit. */
static void test_d31_request_not_taken_holds_up_nothing(void **state)
{
    (void)state;
    rig_config(&r);
    r.offer.limits.header[DXPU_NONPOSTED] = 1;
    rig_up(&r);
    assert_int_equal(rig_put_tlp(&r, rig_mrd(1, 64)), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 64, 64, DXPU_ATTR_RO)), DXPU_OK);
    assert_true(rig_has(&r, DXPU_NONPOSTED));
    assert_true(rig_has(&r, DXPU_COMPLETION));
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    assert_true(rig_has(&r, DXPU_NONPOSTED));
    rig_free(&r);
}

static void test_d32_request_without_credit_holds_up_nothing(void **state)
{
    unsigned kinds;
    (void)state;
    rig_config(&r);
    r.offer.limits.header[DXPU_NONPOSTED] = 1;
    rig_up(&r);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(rig_submit(&r, rig_mrd((uint16_t)i, 64)), DXPU_OK);
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_tlps, 1);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_cpl(1, 64, 64, 0)), DXPU_OK);
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_tlps, 3);
    rig_free(&r);
}

static void test_d35_event_is_a_barrier(void **state)
{
    rig_body body;
    dxpu_event e;
    dxpu_record rec;
    static const uint8_t want[] = { DXPU_RECORD_TLP, DXPU_RECORD_EVENT, DXPU_RECORD_TLP };
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, rig_mrd(1, 64));
    rig_add_event(&body, DXPU_EVENT_POWER_LIMIT, 5);
    rig_add(&body, rig_cpl(1, 64, 64, DXPU_ATTR_RO));
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & WAITS, DXPU_WANTS_TAKE_NONPOSTED);
    assert_false(dxpu_channel_peek_event(&r.ch, &e));
    assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_E_NONE);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_E_NONE);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_NONPOSTED, r.now_ns), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & WAITS, DXPU_WANTS_TAKE_EVENT);
    assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & WAITS, DXPU_WANTS_TAKE_COMPLETION);
    rig_free(&r);

    rig_config(&r); /* the sender: behind a request without credit */
    r.offer.limits.header[DXPU_NONPOSTED] = 1;
    rig_up(&r);
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_RESUME;
    unsigned kinds;
    assert_int_equal(rig_submit(&r, rig_mrd(1, 64)), DXPU_OK);
    rig_drain(&r, &kinds);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mrd(2, 64)), DXPU_OK);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & WAITS, DXPU_WANTS_ACK);
    r.say.limits.header[DXPU_NONPOSTED]++;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    dxpu_bytes left = r.f.body;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(dxpu_record_next(&left, &rec), DXPU_OK);
        assert_int_equal(rec.type, want[i]);
    }
    rig_free(&r);
}

static void test_d36_events_in_flight(void **state)
{
    dxpu_event e;
    unsigned kinds;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    memset(&e, 0, sizeof e);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_E_ARG);
    e.type = DXPU_EVENT_END;
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_E_ARG);
    e.type = DXPU_EVENT_QUIESCE;
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_E_AGAIN);
    rig_drain(&r, &kinds);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_E_AGAIN);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
    rig_free(&r);
}

static void test_w52_events_ignored(void **state)
{
    static const uint8_t unknown[] = { 3, 0, 0, 4, 99, 0, 0, 0 };
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    for (unsigned i = 0; i < 20; i++) { /* no barrier, and no place among the sixteen */
        memcpy(body.bytes + body.b.used, unknown, sizeof unknown);
        body.b.used += sizeof unknown;
    }
    rig_add(&body, rig_mwr(1, 4, 0));
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    assert_int_equal(r.ch.count.rx_events_ignored, 20);
    assert_true(rig_has(&r, DXPU_POSTED));
    rig_free(&r);
}

/* ---- TLP records inside valid frames ---- */

static void fails_with(int rc, int last, uint8_t reason)
{
    unsigned kinds;
    assert_int_equal(rc, DXPU_E_PROTO);
    assert_int_equal(dxpu_channel_status(&r.ch).last_error, last);
    assert_int_equal(dxpu_channel_status(&r.ch).reason, reason);
    assert_int_equal(rig_drain(&r, &kinds), 1);
    assert_int_equal(kinds, 1u << DXPU_KIND_RESET);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_PROTO);
    rig_free(&r);
}

static void test_w38_tlp_crc(void **state)
{
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 64, 0));
    body.bytes[body.b.used - 1] ^= 1;
    int rc = rig_put_data(&r, &body.b);
    assert_int_equal(r.ch.count.rx_tlp_crc, 1);
    assert_int_equal(r.ch.count.rx_tlps, 0);
    fails_with(rc, DXPU_E_TLP_CRC, DXPU_REASON_PROTOCOL);
}

/* One record of a frame spoiled: byte `at` becomes `value`. */
static void refused_record(dxpu_bytes tlp, size_t at, uint8_t value)
{
    rig_body body;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, tlp);
    assert_int_not_equal(body.bytes[at], value);
    body.bytes[at] = value;
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_E_RECORD);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    rig_free(&r);
}

static void test_w35_header_against_record(void **state)
{
    (void)state;
    refused_record(rig_mrd(1, 64), 5, 0x03);     /* class posted */
    refused_record(rig_mrd(1, 64), 8, 0x20);     /* a 4-dword header in 3 */
    refused_record(rig_mrd(1, 64), 8, 0x80);     /* a prefix in place of the header */
    refused_record(rig_mrd(1, 64), 8, 0x1f);     /* W-37 */
    refused_record(rig_mrd(1, 64), 7, 4);        /* W-36: data that a read has not */
    refused_record(rig_mwr(1, 64, 0), 7, 60);    /* W-36 */
    refused_record(rig_mwr(1, 64, 0), 10, 0x80); /* a digest that is not there */
    refused_record(rig_mwr(1, 64, 0), 24, 0x7f); /* W-31 */
    refused_record(rig_mwr(1, 64, 0), 27, 68);   /* W-30 */
}

static void test_w42_payload_within_a_frame(void **state)
{
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 8, 0));
    memcpy(body.bytes + body.b.used, "\2\0\0\4abcd", 8); /* more than is left */
    body.b.used += 8;
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_E_RECORD);
    r.say.sequence--;
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 8, 0));
    body.b.used -= 12; /* its payload is missing, another record stands there */
    rig_add_event(&body, DXPU_EVENT_QUIESCE, 0);
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_E_RECORD);
    assert_int_equal(r.ch.count.rx_record, 2);
    rig_free(&r);
}

/* A frame with only the header record of a write of 8 bytes. */
static void put_header_only(void)
{
    rig_body body;
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 8, 0));
    body.b.used -= 12;
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    assert_false(rig_has(&r, DXPU_POSTED));
}

static void test_w43_payload_across_frames(void **state)
{
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    int rc = rig_put(&r, DXPU_KIND_DATA, "\2\0\0\4abcd", 8); /* to no TLP */
    fails_with(rc, DXPU_E_RECORD, DXPU_REASON_PROTOCOL);

    rig_config(&r);
    rig_up(&r);
    put_header_only();
    rc = rig_put(&r, DXPU_KIND_DATA, "\2\0\0\14abcdefghijkl", 16); /* too much */
    fails_with(rc, DXPU_E_RECORD, DXPU_REASON_PROTOCOL);

    rig_config(&r);
    rig_up(&r);
    put_header_only();
    rig_begin(&body);
    rig_add(&body, rig_mrd(1, 4)); /* another TLP in between */
    fails_with(rig_put_data(&r, &body.b), DXPU_E_RECORD, DXPU_REASON_PROTOCOL);
}

static void test_w33_local_prefixes_end_here(void **state)
{
    uint8_t tlp[64];
    dxpu_record rec;
    dxpu_bytes mwr = rig_mwr(1, 4, 0), all = { tlp, 8 + mwr.len };
    (void)state;
    rig_config(&r);
    rig_up(&r);
    memcpy(tlp, "\x8e\1\2\3\x91\4\5\6", 8); /* vendor defined local, PASID */
    memcpy(tlp + 8, mwr.ptr, mwr.len);
    assert_int_equal(rig_submit(&r, all), DXPU_OK);
    assert_int_equal(r.ch.count.tx_local_prefixes, 1);
    assert_true(rig_emit(&r) > 0);
    dxpu_bytes body = r.f.body;
    assert_int_equal(dxpu_record_next(&body, &rec), DXPU_OK);
    assert_int_equal(rec.prefix_dw, 1);
    assert_memory_equal(rec.bytes.ptr, tlp + 4, 16);
    assert_int_equal(rec.tlp_crc, dxpu_crc32(0, tlp + 4, all.len - 4));
    all.len--;
    assert_int_equal(rig_submit(&r, all), DXPU_E_TLP_SHORT);
    all.len += 2;
    assert_int_equal(rig_submit(&r, all), DXPU_E_TLP_LONG);
    tlp[8] = 0x1f;
    assert_int_equal(rig_submit(&r, all), DXPU_E_TLP_TYPE);
    memset(tlp, 0, 20);
    for (unsigned i = 0; i < 5; i++)
        tlp[4 * i] = 0x91;
    memcpy(tlp + 20, mwr.ptr, mwr.len);
    all.len = 20 + mwr.len;
    assert_int_equal(rig_submit(&r, all), DXPU_E_TLP_PREFIX_COUNT);
    rig_free(&r);
}

/* ---- credits ---- */

static void test_f5_overrun(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.rx.header[DXPU_POSTED] = 2;
    rig_up(&r);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK); /* exactly met */
    fails_with(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_E_CREDIT, DXPU_REASON_CREDIT);

    rig_config(&r); /* data units */
    r.cfg.rx.data[DXPU_NONPOSTED] = 8;
    rig_up(&r);
    for (uint16_t i = 0; i < 8; i++)
        assert_int_equal(rig_put_tlp(&r, rig_np(DXPU_TLP_SWAP, 1, i, 8, 0)), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_mrd(9, 64)), DXPU_OK); /* costs none */
    fails_with(rig_put_tlp(&r, rig_np(DXPU_TLP_SWAP, 1, 9, 8, 0)), DXPU_E_CREDIT,
               DXPU_REASON_CREDIT);
}

static void test_f6_f7_exactly_the_limit(void **state)
{
    unsigned kinds;
    (void)state;
    rig_config(&r);
    r.offer.limits.header[DXPU_POSTED] = 100;
    r.offer.limits.data[DXPU_POSTED] = 256;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4080, 0)), DXPU_OK); /* 255 units */
    assert_int_equal(rig_submit(&r, rig_mwr(1, 20, 0)), DXPU_OK);   /* 2 */
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_tlps, 1);
    r.now_ns += 4 * RIG_MS; /* a retransmission uses nothing */
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_retransmits, 1);
    r.say.limits.data[DXPU_POSTED] = 257;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_tlps, 2);
    rig_free(&r);
}

static void test_f8_credit_comes_back_when_taken(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.rx.header[DXPU_POSTED] = 4;
    rig_up(&r);
    dxpu_credits first = r.cfg.rx;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 20, 0)), DXPU_OK);
    r.now_ns += RIG_MS;
    assert_true(rig_emit(&r) > 0);
    assert_memory_equal(&r.f.limits, &first, sizeof first);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0); /* a quarter: with the next frame, or after the delay */
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    assert_true(rig_emit(&r) > 0); /* half: at once */
    assert_int_equal(r.f.limits.header[DXPU_POSTED], 6);
    assert_int_equal(r.f.limits.data[DXPU_POSTED], first.data[DXPU_POSTED] + 4);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    r.now_ns += 25 * RIG_US;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.limits.header[DXPU_POSTED], 7);
    for (unsigned i = 0; i < 8; i++) /* half of the data units, of another class */
        assert_int_equal(rig_put_tlp(&r, rig_cpl((uint16_t)i, 1024, 1024, 0)), DXPU_OK);
    r.now_ns += RIG_MS;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(rig_emit(&r), 0);
        assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    }
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(dxpu_channel_take(&r.ch, 3, r.now_ns), DXPU_E_NONE);
    assert_int_equal(dxpu_channel_peek(&r.ch, 3).tlp.len, 0);
    rig_free(&r);
}

static void test_f12_blocked(void **state)
{
    static const uint8_t wait_ms[] = { 4, 8, 16, 32, 64, 128, 250, 250 };
    unsigned kinds;
    (void)state;
    rig_config(&r);
    r.offer.limits.header[DXPU_POSTED] = 1;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    rig_drain(&r, &kinds);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(dxpu_channel_next_ns(&r.ch), 0); /* emit() must look at it */
    assert_int_equal(rig_emit(&r), 0);
    for (unsigned i = 0; i < sizeof wait_ms; i++) {
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK); /* alive, no credit */
        uint64_t due = r.now_ns + wait_ms[i] * (uint64_t)RIG_MS;
        assert_true(dxpu_channel_next_ns(&r.ch) == due);
        r.now_ns = due - 1;
        assert_int_equal(rig_emit(&r), 0);
        r.now_ns = due;
        do /* a probe may be due as well */
            assert_true(rig_emit(&r) > 0);
        while (r.f.kind == DXPU_KIND_PROBE);
        assert_int_equal(r.f.kind, DXPU_KIND_BLOCKED);
        assert_int_equal(r.f.sequence, RIG_SEQ + 1);
        assert_int_equal(r.f.body.len, 0);
        assert_int_equal(rig_emit(&r), 0);
    }
    assert_int_equal(r.ch.count.tx_blocked, sizeof wait_ms);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    for (unsigned i = 0; i < 2; i++) { /* credit for one of two: the other begins again */
        r.say.limits.header[DXPU_POSTED] = 2 + i;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1 + i), DXPU_OK);
        assert_true(rig_emit(&r) > 0);
        assert_int_equal(r.f.kind, DXPU_KIND_DATA);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 2 + i), DXPU_OK);
        assert_int_equal(rig_emit(&r), 0);
        assert_true(i || dxpu_channel_next_ns(&r.ch) == r.now_ns + 4 * RIG_MS);
    }
    r.now_ns += 100 * (uint64_t)RIG_MS;
    assert_int_equal(rig_emit(&r), 0); /* nothing waits */
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 4 * RIG_MS); /* again */
    rig_free(&r);
}

static void test_f11_completions_infinite(void **state)
{
    unsigned kinds;
    (void)state;
    rig_config(&r);
    r.offer.completions_infinite = true;
    memset(&r.offer.limits.header[DXPU_COMPLETION], 0, sizeof(uint32_t));
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_cpl(1, 64, 64, 0)), DXPU_OK);
    rig_drain(&r, &kinds);
    assert_int_equal(r.ch.count.tx_tlps, 1);
    rig_free(&r);
}

/* ---- queues ---- */

static void test_d52_queue_limits(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.tx.header[DXPU_POSTED] = 3;
    r.cfg.tx.data[DXPU_POSTED] = 257;
    rig_init(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_E_ARG); /* before it is opened */
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_RESUME;
    assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_E_ARG);
    assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4096, 0)), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 20, 0)), DXPU_E_AGAIN);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 16, 0)), DXPU_OK);
    rig_free(&r);

    rig_config(&r);
    r.cfg.tx.header[DXPU_POSTED] = 3;
    rig_init(&r);
    assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_E_AGAIN);
    rig_free(&r);
}

static const dxpui_item *youngest(const dxpui_queue *f)
{
    return &f->items[f->tail ? f->tail - 1 : f->header_max - 1];
}

/* What is written where reserve() says is queued without a copy; what is not there is copied. */
static void test_d52_reserved_place(void **state)
{
    const dxpui_queue *f = &r.ch.tx.queue[DXPU_POSTED];
    uint8_t bytes[80], *p;
    (void)state;
    rig_config(&r);
    r.cfg.tx.header[DXPU_POSTED] = 3;
    rig_init(&r);
    assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
    assert_null(dxpu_channel_reserve(&r.ch, DXPU_CLASSES, 12));
    assert_null(dxpu_channel_reserve(&r.ch, DXPU_POSTED, DXPU_TLP_MAX_BYTES + 1));
    assert_null(dxpu_channel_reserve(&r.ch, DXPU_NONPOSTED, DXPU_TLP_MAX_BYTES)); /* no such */
    dxpu_bytes tlp = rig_mwr(1, 64, 0), there;
    p = dxpu_channel_reserve(&r.ch, DXPU_POSTED, DXPU_TLP_MAX_BYTES);
    assert_non_null(p);
    memcpy(p, tlp.ptr, tlp.len);
    there.ptr = p;
    there.len = tlp.len;
    assert_int_equal(rig_submit(&r, there), DXPU_OK);
    assert_ptr_equal(f->mem + youngest(f)->pos, p);
    assert_int_equal(youngest(f)->crc, dxpu_crc32(0, tlp.ptr, tlp.len));
    /* with a local prefix it is moved over that; elsewhere it is copied */
    dxpu_put_be32(bytes, 0x8e000000u);
    memcpy(bytes + 4, tlp.ptr, tlp.len);
    for (unsigned i = 0; i < 2; i++) {
        p = dxpu_channel_reserve(&r.ch, DXPU_POSTED, sizeof bytes);
        assert_non_null(p);
        there.ptr = i ? bytes : (const uint8_t *)memcpy(p, bytes, sizeof bytes);
        there.len = sizeof bytes;
        assert_int_equal(rig_submit(&r, there), DXPU_OK);
        assert_ptr_equal(f->mem + youngest(f)->pos, p);
        assert_memory_equal(p, tlp.ptr, tlp.len);
        assert_int_equal(youngest(f)->crc, dxpu_crc32(0, tlp.ptr, tlp.len));
    }
    assert_null(dxpu_channel_reserve(&r.ch, DXPU_POSTED, 12)); /* E_AGAIN */
    rig_free(&r);
}

/* All of a reserved place, which may be larger than the TLP, is free: each TLP is as submitted. */
static void scribble(uint32_t at, uint32_t len)
{
    const dxpui_queue *f = &r.ch.tx.queue[DXPU_POSTED];
    size_t more = len < 4000 ? at % 3 * 40 : 0, place = 12u + len + more;
    uint8_t *p = dxpu_channel_reserve(&r.ch, DXPU_POSTED, place);
    if (p)
        memset(p, 0xa5, place);
    for (uint32_t i = 0, k = f->head; i < f->count; i++, k = (k + 1) % f->header_max)
        assert_int_equal(dxpu_crc32(0, f->mem + f->items[k].pos, f->items[k].bytes),
                         f->items[k].crc);
}

/* Any sizes within the credits fit the ring, wherever it wraps; memory is exact, so that the
   sanitizer sees a byte beyond.  Both ends: each frame is echoed to a second channel. */
static void test_d52_ring(void **state)
{
    static const uint16_t sizes[] = { 4096, 4, 16, 20, 4080, 1000, 8, 2048, 64, 3000, 12, 256 };
    uint32_t at = 1;
    (void)state;
    for (uint32_t headers = 1; headers < 7; headers++) {
        rig_config(&r);
        r.cfg.rx.header[DXPU_POSTED] = r.cfg.tx.header[DXPU_POSTED] = headers;
        r.cfg.rx.data[DXPU_POSTED] = r.cfg.tx.data[DXPU_POSTED] = 256 + headers;
        r.cfg.frame_limit_bytes = r.offer.frame_limit_bytes = 8000;
        r.offer.limits.header[DXPU_POSTED] = r.offer.limits.data[DXPU_POSTED] = 1000000;
        rig_up(&r);
        uint32_t sent = 0, taken = 0, frames = 0;
        uint16_t lens[8];
        for (unsigned step = 0; step < 3000; step++) {
            at = at * 1103515245u + 12345u;
            uint16_t len = sizes[(at >> 16) % 12];
            scribble(at >> 24, len);
            int rc = rig_submit(&r, rig_mwr(1, len, 0));
            if (rc == DXPU_OK) {
                assert_true(rig_emit(&r) > 0);
                frames++;
                rig_body body; /* the same goes in at the other side */
                memcpy(body.bytes, r.f.body.ptr, r.f.body.len);
                builder_start(&body.b, body.bytes, sizeof body.bytes);
                body.b.used = r.f.body.len;
                assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
                lens[sent++ % 8] = len;
                continue;
            }
            assert_int_equal(rc, DXPU_E_AGAIN);
            assert_true(sent > taken);
            assert_int_equal(dxpu_channel_peek(&r.ch, DXPU_POSTED).tlp.len, 12u + lens[taken % 8]);
            assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
            taken++;
            assert_int_equal(rig_put_ack(&r, RIG_SEQ + taken), DXPU_OK);
        }
        assert_true(frames > 500);
        rig_free(&r);
    }
}

static void test_d7_sequence_wrap(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.sequence = 0xfffffffe;
    r.offer.sequence = r.say.sequence = 0xfffffffd;
    r.say.ack = 0xfffffffe;
    rig_up(&r);
    send_writes(5);
    assert_int_equal(r.f.sequence, 2);
    assert_int_equal(rig_put_ack(&r, 4), DXPU_E_ACK);
    assert_int_equal(rig_put_ack(&r, 1), DXPU_OK);
    assert_int_equal(r.ch.count.tx_tlps_acked, 3);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    r.now_ns += RIG_MS;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.ack, 3);
    rig_free(&r);
}

/* ---- requests and their completions ---- */

static void test_f10_reserve(void **state)
{
    (void)state;
    rig_config(&r);
    rig_tags(&r);
    r.cfg.rx.header[DXPU_COMPLETION] = 3;
    r.cfg.rx.data[DXPU_COMPLETION] = 256;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mrd(0, 256)), DXPU_E_ARG); /* never: 4 completions */
    assert_int_equal(rig_submit(&r, rig_mrd(1, 128)), DXPU_OK);    /* 2 */
    assert_int_equal(rig_submit(&r, rig_mrd(1, 64)), DXPU_E_TAG_BUSY);
    assert_int_equal(rig_submit(&r, rig_mrd(2, 128)), DXPU_E_AGAIN);
    assert_int_equal(rig_submit(&r, rig_mrd(3, 64)), DXPU_OK); /* exactly met */
    assert_int_equal(rig_submit(&r, rig_mrd(4, 64)), DXPU_E_AGAIN);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(3, 64, 64, 0)), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mrd(4, 64)), DXPU_E_AGAIN); /* stored, not taken */
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mrd(4, 64)), DXPU_OK);
    rig_free(&r);

    rig_config(&r); /* the data units count as well */
    rig_tags(&r);
    r.cfg.rx.header[DXPU_COMPLETION] = 100;
    r.cfg.rx.data[DXPU_COMPLETION] = 256;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mrd(1, 4032)), DXPU_OK);
    assert_int_equal(rig_submit(&r, rig_mrd(2, 128)), DXPU_E_AGAIN);
    assert_int_equal(rig_submit(&r, rig_mrd(3, 64)), DXPU_OK);
    rig_free(&r);
}

static void test_f22_completions_are_matched(void **state)
{
    dxpu_delivery d;
    (void)state;
    rig_config(&r);
    rig_tags(&r);
    rig_up(&r);
    assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(5, 128), r.now_ns, 4711), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(6, 64, 64, 0)), DXPU_OK); /* not asked for */
    assert_int_equal(rig_put_tlp(&r, rig_cpl(5, 64, 64, 0)), DXPU_OK); /* other bytes */
    assert_int_equal(r.ch.count.rx_cpl_refused, 2);
    assert_false(rig_has(&r, DXPU_COMPLETION));
    assert_int_equal(rig_put_tlp(&r, rig_cpl(5, 64, 128, 0)), DXPU_OK);
    d = dxpu_channel_peek(&r.ch, DXPU_COMPLETION);
    assert_true(d.tlp.len == 76 && d.user == 4711 && !d.last);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    dxpu_bytes second = rig_cpl(5, 64, 64, 0);
    ((uint8_t *)(uintptr_t)second.ptr)[11] = 64; /* Lower Address */
    assert_int_equal(rig_put_tlp(&r, second), DXPU_OK);
    d = dxpu_channel_peek(&r.ch, DXPU_COMPLETION);
    assert_true(d.tlp.len == 76 && d.user == 4711 && d.last);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, second), DXPU_OK); /* late: once more */
    assert_int_equal(r.ch.count.rx_cpl_refused, 3);
    r.now_ns += RIG_MS; /* infinite: no credits are sent */
    assert_true(rig_emit(&r) > 0);
    rig_free(&r);
}

/* The peer guesses the tag of a request that waits for credit.  It is answered and does not leave,
   nor does the one behind it, which was dropped; what has its tag now is sent, and once. */
static void test_f34_answered_in_the_queue(void **state)
{
    unsigned kinds;
    (void)state;
    for (unsigned guess = 0; guess < 2; guess++) {
        rig_config(&r);
        rig_tags(&r);
        r.offer.limits.header[DXPU_NONPOSTED] = 1;
        rig_up(&r);
        for (uint16_t tag = 1; tag <= 3; tag++)
            assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(tag, 64), r.now_ns, tag), DXPU_OK);
        rig_drain(&r, &kinds);
        assert_int_equal(r.ch.count.tx_tlps, 1);
        if (guess) {
            assert_int_equal(rig_put_tlp(&r, rig_cpl(2, 64, 64, 0)), DXPU_OK);
            assert_int_equal(dxpu_channel_peek(&r.ch, DXPU_COMPLETION).user, 2);
        }
        assert_int_equal(r.tags.unsent, guess);
        assert_int_equal(dxpu_tags_drop(&r.tags, r.entries[2].requester, 3), DXPU_OK);
        assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(3, 64), r.now_ns, 4), DXPU_OK);
        r.say.limits.header[DXPU_NONPOSTED] = 8;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
        rig_drain(&r, &kinds);
        assert_int_equal(r.ch.count.tx_tlps, 3 - guess);
        assert_int_equal(r.tags.unsent, 0);
        rig_free(&r);
    }
}

/* What does not fit was not asked for: passed over, with its payload, and the channel goes on. */
static void test_f11_flood_of_completions(void **state)
{
    unsigned refused = 0;
    (void)state;
    rig_config(&r);
    rig_tags(&r);
    r.cfg.rx.header[DXPU_COMPLETION] = 1;
    r.cfg.rx.data[DXPU_COMPLETION] = 256;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mrd(1, 64)), DXPU_OK);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 64, 64, 0)), DXPU_OK);
    for (unsigned i = 0; i < 50; i++) { /* the queue is full */
        assert_int_equal(rig_put_tlp(&r, rig_cpl(2, i % 2 ? 0 : 1024, 1024, 0)), DXPU_OK);
        assert_int_equal(r.ch.count.rx_cpl_refused, ++refused);
    }
    assert_int_equal(dxpu_channel_peek(&r.ch, DXPU_COMPLETION).tlp.len, 76);
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_true(rig_has(&r, DXPU_POSTED));
    rig_free(&r);
}

/* ---- suites ---- */

/* A toy: XOR with the nonce, the tag is a CRC of header, text and nonce. */
static bool toy_broken;

static uint32_t toy_tag(uint64_t nonce, dxpu_bytes header, const uint8_t *body, size_t bytes)
{
    uint32_t crc = dxpu_crc32((uint32_t)nonce ^ 0x5eed, header.ptr, header.len);
    return dxpu_crc32(crc, body, bytes);
}

static bool toy_seal(void *user, uint8_t phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                     size_t bytes)
{
    assert_ptr_equal(user, &toy_broken);
    assert_int_equal(phase, 0);
    for (size_t i = 0; i < bytes; i++)
        body[i] ^= (uint8_t)(nonce * 31 + i);
    memset(body + bytes, 0x77, 16);
    dxpu_put_be32(body + bytes, toy_tag(nonce, header, body, bytes));
    return !toy_broken;
}

static bool toy_open(void *user, uint8_t phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                     size_t bytes)
{
    (void)user;
    (void)phase;
    if (dxpu_get_be32(body + bytes) != toy_tag(nonce, header, body, bytes))
        return false;
    for (size_t i = 0; i < bytes; i++)
        body[i] ^= (uint8_t)(nonce * 31 + i);
    return true;
}

static const dxpu_suite toy = { 2, 16, toy_seal, toy_open };

static void suite_config(rig *x)
{
    rig_config(x);
    x->cfg.suite = &toy;
    x->cfg.suite_user = &toy_broken;
    toy_broken = false;
}

static void test_w9_suite(void **state)
{
    static rig box;
    (void)state;
    suite_config(&r);
    suite_config(&box);
    box.cfg.local_id = RIG_PEER_ID;
    rig_init(&r);
    rig_init(&box);
    assert_int_equal(dxpu_channel_open(&r.ch, r.now_ns), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(dxpu_channel_accept(&box.ch, box.now_ns, r.out, (size_t)r.n), DXPU_OK);
    assert_true(rig_emit(&box) > 0);
    box.out[30] ^= 1; /* tampering: body, header, tag */
    assert_int_equal(put_bytes(box.out, (size_t)box.n), DXPU_E_CRC);
    box.out[30] ^= 1;
    box.out[19] ^= 1;
    assert_int_equal(put_bytes(box.out, (size_t)box.n), DXPU_E_CRC);
    box.out[19] ^= 1;
    assert_int_equal(put_bytes(box.out, (size_t)box.n), DXPU_OK);
    assert_int_equal(r.ch.count.rx_crc, 2);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    dxpu_bytes mwr = rig_mwr(1, 4096, 0);
    assert_int_equal(rig_submit(&r, mwr), DXPU_OK);
    while (rig_emit(&r) > 0) {
        assert_true(r.n <= 1452);
        assert_int_equal(dxpu_channel_ingest(&box.ch, box.now_ns, r.out, (size_t)r.n, 0), DXPU_OK);
    }
    dxpu_delivery d = dxpu_channel_peek(&box.ch, DXPU_POSTED);
    assert_int_equal(d.tlp.len, mwr.len);
    assert_memory_equal(d.tlp.ptr, mwr.ptr, mwr.len);
    toy_broken = true; /* a key is lost */
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(rig_emit(&r), DXPU_E_PROTO);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_FAILED);
    rig_free(&r);
    rig_free(&box);
}

/* ---- configuration ---- */

static void test_d52_configuration(void **state)
{
    dxpu_channel_config good;
    static const dxpu_suite none = { 2, 0, toy_seal, toy_open };
    static const dxpu_suite large = { 2, DXPU_FRAME_TAG_MAX_BYTES + 1, toy_seal, toy_open };
    static const dxpu_suite nameless = { 0, 16, toy_seal, toy_open };
    (void)state;
    rig_config(&r);
    good = r.cfg;
    assert_true(dxpu_channel_bytes(&good) > 0);
#define BAD(field, value)                                                                          \
    do {                                                                                           \
        dxpu_channel_config c = good;                                                              \
        const char *why = NULL;                                                                    \
        c.field = (value);                                                                         \
        assert_int_equal(dxpu_channel_bytes(&c), 0);                                               \
        assert_int_equal(dxpu_channel_check(&c, &why), DXPU_E_ARG);                                \
        assert_true(strstr(why, ": ") && memcmp(why, #field, 2) == 0);                             \
    } while (0)
    BAD(window_frames, 2);
    BAD(window_frames, 65);
    BAD(window_frames, 32768);
    BAD(frame_limit_bytes, 1231);
    BAD(frame_limit_bytes, 65508);
    BAD(tx.header[0], 40000);
    BAD(tx.header[0], 0);
    BAD(tx.data[0], 255);
    BAD(rx.data[1], 7);
    BAD(rx.data[2], 0x4000000);
    BAD(rx.header[0], 0);
    BAD(ack_delay_ns, 250000001);
    BAD(tx.data[2], 0x4000000);
    BAD(rx.header[1], 0xffffffff);
    BAD(hold_ms, 0);
    BAD(rto_min_ns, 0);
    BAD(rto_min_ns, 250000001);
    BAD(suite, &none);
    BAD(suite, &large);
    BAD(suite, &nameless);
#undef BAD
    size_t need = dxpu_channel_bytes(&good);
    uint64_t *mem = (uint64_t *)malloc(need + 8);
    assert_int_equal(dxpu_channel_init(&r.ch, &good, mem, need - 1), DXPU_E_ARG);
    assert_int_equal(dxpu_channel_init(&r.ch, &good, (uint8_t *)mem + 4, need), DXPU_E_ARG);
    good.window_frames = 3;
    assert_int_equal(dxpu_channel_init(&r.ch, &good, mem, need), DXPU_E_ARG);
    good.window_frames = 64;
    assert_int_equal(dxpu_channel_init_sized(&r.ch, sizeof r.ch - 8, &good, mem, need), DXPU_E_ARG);
    good.epoch = 0;
    const char *why = NULL;
    assert_int_equal(dxpu_channel_check(&good, &why), DXPU_E_ARG);
    assert_string_equal(why, "epoch: from 1");
    assert_int_equal(dxpu_channel_init(&r.ch, &good, mem, need), DXPU_E_ARG);
    good.epoch = 1;
    good.local_id = 0;
    assert_int_equal(dxpu_channel_check(&good, &why), DXPU_E_ARG);
    assert_string_equal(why, "local_id: not 0");
    assert_int_equal(dxpu_channel_init(&r.ch, &good, mem, need), DXPU_E_ARG);
    good.local_id = 1;
    assert_int_equal(dxpu_channel_check(&good, &why), DXPU_OK);
    assert_null(why);
    assert_int_equal(dxpu_channel_init(&r.ch, &good, mem, need), DXPU_OK);
    assert_true(dxpu_channel_next_ns(&r.ch) == DXPU_NEVER);
    assert_int_equal(rig_put_ack(&r, 0), DXPU_E_ARG); /* idle */
    assert_int_equal(rig_emit(&r), 0);
    uint8_t out[64];
    assert_int_equal(dxpu_channel_emit(&r.ch, r.now_ns, out, sizeof out, &r.path), DXPU_E_ROOM);
    free(mem);
}

/* A member of a zeroed struct, as of a slot that was never lent: nothing to send, nothing due. */
static void test_d40_zeroed(void **state)
{
    static dxpu_channel none;
    uint8_t out[64], path;
    (void)state;
    assert_int_equal(dxpu_channel_status(&none).state, DXPU_STATE_IDLE);
    assert_int_equal(dxpu_channel_emit(&none, RIG_START_NS, out, sizeof out, &path), 0);
    assert_int_equal(dxpu_channel_ingest(&none, RIG_START_NS, out, sizeof out, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_channel_peek(&none, DXPU_POSTED).tlp.len, 0);
    assert_int_equal(dxpu_channel_wants(&none, RIG_START_NS) & DXPU_WANTS_ACK, 0);
}

/* ---- several frames in one buffer ---- */

/* A write of 76 bytes takes 104: 13 of them, and 20 bytes are left in which none begins. */
enum { MANY = 8, MANY_LIMIT = 1452, MANY_WRITE = 76, MANY_LEFT = 20 };
static uint8_t many[MANY * MANY_LIMIT];

static int emit_many(unsigned frames, size_t *segment)
{
    return dxpu_channel_emit_many(&r.ch, r.now_ns, many, frames * MANY_LIMIT, &r.path, segment);
}

/* The padding of a frame's body, in bytes: the last record, which has no other after it. */
static size_t padding_of(const uint8_t *frame, size_t bytes)
{
    dxpu_bytes d = { frame, bytes };
    dxpu_frame f;
    assert_int_equal(dxpu_frame_check_crc(d), DXPU_OK);
    assert_int_equal(dxpu_frame_decode(d, DXPU_FRAME_CRC_BYTES, &f), DXPU_OK);
    assert_int_equal(f.kind, DXPU_KIND_DATA);
    for (size_t at = 0, len; at < f.body.len; at += len) {
        len = 4 + (size_t)dxpu_get_be16(f.body.ptr + at + 2);
        if (f.body.ptr[at] == DXPU_RECORD_PADDING) {
            assert_int_equal(at + len, f.body.len);
            for (size_t i = 1; i < len; i++)
                assert_int_equal(f.body.ptr[at + i], i == 3 ? len - 4 : 0);
            return len;
        }
    }
    return 0;
}

static void up_to_emit_many(unsigned count)
{
    rig_config(&r);
    r.offer.limits.header[DXPU_POSTED] = r.offer.limits.data[DXPU_POSTED] = 1 << 20;
    rig_up(&r);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(rig_submit(&r, rig_mwr(1, MANY_WRITE, 0)), DXPU_OK);
}

static void test_w45_segments_of_one_length(void **state)
{
    size_t segment = 0;
    unsigned frames = 0;
    (void)state;
    up_to_emit_many(40);
    int all = emit_many(MANY, &segment);
    assert_int_equal(segment, MANY_LIMIT);
    assert_int_equal(all / MANY_LIMIT, 3);
    assert_true(all % MANY_LIMIT > 0); /* the last one is shorter */
    for (int at = 0; at < all; at += MANY_LIMIT) {
        size_t bytes = (size_t)(all - at < MANY_LIMIT ? all - at : MANY_LIMIT);
        assert_int_equal(dxpu_get_be16(many + at + DXPU_FRAME_LENGTH), bytes);
        assert_int_equal(padding_of(many + at, bytes), bytes == MANY_LIMIT ? MANY_LEFT : 0);
    }
    assert_int_equal(emit_many(MANY, &segment), 0);
    assert_int_equal(segment, 0);
    rig_free(&r);
    up_to_emit_many(40);
    for (; rig_emit(&r) > 0; frames++) { /* the control */
        assert_int_equal(padding_of(r.out, (size_t)r.n), 0);
        assert_int_equal(r.n == MANY_LIMIT - MANY_LEFT, frames < 3);
    }
    assert_int_equal(frames, 4);
    rig_free(&r);
}

/* The same frames in the same order whether they leave one by one or not, but for the padding; and
   with room for one frame alone there is none. */
static void test_w45_room_for_one(void **state)
{
    size_t segment;
    (void)state;
    for (unsigned room = 1; room < 3; room++) {
        size_t padded = 0;
        int n;
        up_to_emit_many(40);
        while ((n = emit_many(room, &segment)) > 0) {
            assert_true((size_t)n <= room * MANY_LIMIT);
            padded += padding_of(many, segment);
        }
        assert_int_equal(r.ch.flight.next - r.ch.flight.una, 4);
        assert_int_equal(padded != 0, room == 2);
        rig_free(&r);
    }
    up_to_emit_many(1);
    assert_int_equal(
        dxpu_channel_emit_many(&r.ch, r.now_ns, many, MANY_LIMIT - 1, &r.path, &segment),
        DXPU_E_ROOM);
    assert_int_equal(segment, 0);
    rig_free(&r);
}

static void test_d16_padded_frames_again(void **state)
{
    static uint8_t before[sizeof many];
    size_t segment, head = DXPU_FRAME_FULL_BYTES;
    (void)state;
    up_to_emit_many(60);
    int all = emit_many(3, &segment);
    assert_int_equal(all, 3 * MANY_LIMIT);
    assert_int_equal(padding_of(many, MANY_LIMIT), MANY_LEFT);
    memcpy(before, many, sizeof many);
    for (uint32_t seq = RIG_SEQ; seq != r.ch.flight.next; seq++)
        dxpui_mark_lost(&r.ch, seq);
    memset(many, 0xaa, sizeof many);
    assert_true(emit_many(MANY, &segment) > 4 * MANY_LIMIT); /* and what is new behind them */
    assert_int_equal(r.ch.count.tx_retransmits, 3);
    for (size_t at = head; at < sizeof many && at < 3u * MANY_LIMIT; at += MANY_LIMIT)
        assert_memory_equal(many + at, before + at, MANY_LIMIT - head - DXPU_FRAME_CRC_BYTES);
    assert_int_equal(r.ch.flight.lost, 0);
    rig_free(&r);
}

/* A lost frame that is longer than the first stays for the next message, as does a new one behind
   a short one; a shorter one ends the message. */
static void test_w45_what_does_not_follow(void **state)
{
    size_t segment;
    (void)state;
    up_to_emit_many(1);
    int small = emit_many(MANY, &segment);
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(rig_submit(&r, rig_mwr(1, MANY_WRITE, 0)), DXPU_OK);
    assert_int_equal(emit_many(1, &segment), MANY_LIMIT - MANY_LEFT); /* alone: no padding */
    dxpui_mark_lost(&r.ch, RIG_SEQ);
    dxpui_mark_lost(&r.ch, RIG_SEQ + 1);
    assert_int_equal(emit_many(MANY, &segment), small);
    assert_int_equal(emit_many(MANY, &segment), MANY_LIMIT - MANY_LEFT);
    int rest = emit_many(MANY, &segment); /* new */
    assert_true(rest > MANY_LIMIT && segment == MANY_LIMIT);
    dxpui_mark_lost(&r.ch, RIG_SEQ);
    assert_int_equal(rig_submit(&r, rig_mwr(1, MANY_WRITE, 0)), DXPU_OK);
    assert_int_equal(emit_many(MANY, &segment), small); /* a new one would fit, if it were small */
    assert_int_equal(emit_many(MANY, &segment), small);
    for (unsigned again = 0; again < 2; again++) {
        dxpui_mark_lost(&r.ch, RIG_SEQ + 2);
        dxpui_mark_lost(&r.ch, RIG_SEQ + 3);
        dxpui_frame_of(&r.ch.flight, RIG_SEQ + 2)->tries = again ? 1 : 100;
        int all = emit_many(MANY, &segment);
        assert_int_equal(segment, MANY_LIMIT);
        if (again) { /* the control */
            assert_true(all > MANY_LIMIT);
            continue;
        }
        assert_int_equal(all, MANY_LIMIT); /* a probe comes first: P-12 */
        assert_int_equal(emit_many(MANY, &segment), MANY_LIMIT);
        assert_int_equal(many[DXPU_FRAME_KIND], DXPU_KIND_PROBE);
        assert_true(emit_many(MANY, &segment) > 0);
        r.ch.paths.path[0].suspect = false;
    }
    rig_free(&r);
}

/* A header with four prefixes needs more room than padding may take. */
static void test_w45_not_before_a_long_header(void **state)
{
    uint8_t tlp[16 + 16 + 4];
    dxpu_bytes v = { tlp, sizeof tlp };
    size_t segment;
    (void)state;
    for (unsigned prefixes = 0; prefixes < 2; prefixes++) {
        up_to_emit_many(0);
        assert_int_equal(rig_submit(&r, rig_mwr(1, 1024, 0)), DXPU_OK);
        assert_int_equal(rig_submit(&r, rig_mwr(1, 256, 0)), DXPU_OK);
        memset(tlp, 0, sizeof tlp);
        for (unsigned i = 0; i < 4; i++)
            tlp[4 * i] = 0x9e;
        tlp[16] = 0x60;
        tlp[19] = 1;
        tlp[23] = 0xf;
        tlp[27] = 1; /* above 4 GB */
        assert_int_equal(rig_submit(&r, prefixes ? v : rig_mwr(1, 64, 0)), DXPU_OK);
        int all = emit_many(MANY, &segment);
        assert_int_equal(padding_of(many, segment), 0);
        assert_int_equal(all == MANY_LIMIT - 36, prefixes);
        rig_free(&r);
    }
}

/* Frames of a message are for one path. */
static void test_p1_segments_of_one_path(void **state)
{
    size_t segment;
    (void)state;
    rig_config(&r);
    r.cfg.paths = 2;
    r.offer.limits.header[DXPU_POSTED] = r.offer.limits.data[DXPU_POSTED] = 1 << 20;
    rig_up(&r);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(rig_submit(&r, rig_mwr(1, 64, 0)), DXPU_OK);
    r.ch.cfg.spread = true;
    r.ch.cfg.lossless = false;
    r.ch.paths.path[1].usable = true;
    r.ch.paths.path[0].srtt_ns = 1000;
    r.ch.paths.path[1].srtt_ns = 2000;
    r.ch.paths.path[0].window = MANY_LIMIT; /* full after one frame */
    r.ch.paths.path[0].pace_ns = r.ch.paths.path[1].pace_ns = 0;
    assert_int_equal(emit_many(MANY, &segment), MANY_LIMIT);
    assert_int_equal(r.path, 0);
    assert_true(emit_many(MANY, &segment) > MANY_LIMIT);
    assert_int_equal(r.path, 1);
    assert_int_equal(many[segment + DXPU_FRAME_PATH], 1);
    rig_free(&r);
}

/* ---- what the consumer and the submitter see ---- */

static void test_f26_delivery_of_a_split_read(void **state)
{
    dxpu_tag_entry entries[4];
    dxpu_tags tags;
    rig_body body;
    dxpu_delivery d;
    (void)state;
    assert_int_equal(dxpu_tags_init(&tags, entries, 4, 0, 0, DXPU_NEVER), DXPU_OK);
    rig_config(&r);
    r.cfg.tags = &tags;
    rig_up(&r);
    assert_int_equal(dxpu_channel_submit(&r.ch, rig_mrd(1, 256), r.now_ns, 77), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 64, 0));
    rig_add(&body, rig_cpl(1, 128, 256, 0));
    rig_add(&body, rig_cpl(1, 128, 128, 0));
    assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    d = dxpu_channel_peek(&r.ch, DXPU_POSTED); /* control: no completion */
    assert_int_equal(d.data.len, 64);
    assert_ptr_equal(d.data.ptr, d.tlp.ptr + d.tlp.len - 64);
    assert_true(d.offset_bytes == 0 && d.user == 0 && !d.last);
    assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
    for (unsigned i = 0; i < 2; i++) {
        d = dxpu_channel_peek(&r.ch, DXPU_COMPLETION);
        assert_int_equal(d.data.len, 128);
        assert_ptr_equal(d.data.ptr, d.tlp.ptr + 12);
        assert_int_equal(d.offset_bytes, 128 * i);
        assert_true(d.user == 77 && d.last == (i == 1));
        assert_int_equal(dxpu_channel_take(&r.ch, DXPU_COMPLETION, r.now_ns), DXPU_OK);
    }
    d = dxpu_channel_peek(&r.ch, DXPU_COMPLETION);
    assert_true(d.tlp.len == 0 && d.data.len == 0);
    rig_free(&r);
}

/* A read of bytes 61 to 66: what its completions bring beside them is not shown. */
static void test_peek_shows_the_bytes_asked_for(void **state)
{
    static const struct {
        uint8_t first_be, last_be;
        uint32_t dw, asked, skip;
    } rows[] = { { 8, 3, 2, 3, 3 }, { 6, 0, 1, 2, 1 }, { 0, 0, 1, 1, 0 }, { 15, 15, 2, 8, 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_tag_entry entries[4];
        dxpu_tags tags;
        rig_body body;
        dxpu_delivery d;
        dxpu_tlp t = { 0 };
        uint8_t bytes[64];
        size_t len;
        assert_int_equal(dxpu_tags_init(&tags, entries, 4, 0, 0, DXPU_NEVER), DXPU_OK);
        rig_config(&r);
        r.cfg.tags = &tags;
        rig_up(&r);
        t.type = DXPU_TLP_MRD;
        t.header_dw = 3;
        t.address = 0x1000;
        t.tag = 1;
        t.length_dw = (uint16_t)rows[i].dw;
        t.first_be = rows[i].first_be;
        t.last_be = rows[i].last_be;
        assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &len), DXPU_OK);
        assert_int_equal(dxpu_channel_submit(&r.ch, (dxpu_bytes){ bytes, len }, r.now_ns, 77),
                         DXPU_OK);
        assert_true(rig_emit(&r) > 0);
        rig_begin(&body);
        t.type = DXPU_TLP_CPLD;
        t.byte_count = (uint16_t)rows[i].asked; /* 1 of a read of none */
        t.lower_addr = (uint8_t)rows[i].skip;
        t.payload.ptr = bytes;
        t.payload.len = rows[i].dw * 4;
        t.first_be = t.last_be = 0;
        uint8_t answer[64];
        assert_int_equal(dxpu_tlp_encode(&t, answer, sizeof answer, &len), DXPU_OK);
        rig_add(&body, (dxpu_bytes){ answer, len });
        assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
        d = dxpu_channel_peek(&r.ch, DXPU_COMPLETION);
        assert_int_equal(d.data.len, rows[i].asked);
        assert_ptr_equal(d.data.ptr, d.tlp.ptr + 12 + rows[i].skip);
        assert_true(d.offset_bytes == 0 && d.last);
        rig_free(&r);
    }
}

static void test_d52_room_of_each_class(void **state)
{
    enum {
        ALL = DXPU_WANTS_SUBMIT_POSTED | DXPU_WANTS_SUBMIT_NONPOSTED | DXPU_WANTS_SUBMIT_COMPLETION
    };
    (void)state;
    rig_config(&r);
    r.cfg.tx.header[DXPU_NONPOSTED] = 1;
    rig_up(&r);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & ~(unsigned)WAITS, ALL);
    assert_int_equal(rig_submit(&r, rig_mrd(1, 64)), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & ~(unsigned)WAITS,
                     ALL & ~(unsigned)DXPU_WANTS_SUBMIT_NONPOSTED);
    assert_int_equal(rig_submit(&r, rig_mrd(2, 64)), DXPU_E_AGAIN);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & ~(unsigned)WAITS, ALL);
    assert_int_equal(dxpu_channel_close(&r.ch, 0), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & ~(unsigned)WAITS, 0);
    rig_free(&r);
}

/* ---- corners ---- */

static void test_d49_open_cut_short(void **state)
{
    (void)state;
    rig_config(&r);
    rig_accepted(&r);
    r.say.channel = 0;
    assert_int_equal(rig_put(&r, DXPU_KIND_OPEN, "abcd", 4), DXPU_E_STATE);
    r.say.channel = RIG_ID;
    rig_free(&r);
    rig_config(&r);
    rig_up(&r);
    r.offer.channel++;
    assert_int_equal(rig_put_offer(&r, DXPU_KIND_ACCEPT), DXPU_E_STATE);
    rig_free(&r);
}

static void test_f10_requests_that_cannot_be_tracked(void **state)
{
    uint8_t tlp[12] = { 0 };
    dxpu_bytes v = { tlp, sizeof tlp };
    (void)state;
    rig_config(&r);
    rig_tags(&r);
    r.cfg.rx.header[DXPU_COMPLETION] = 100;
    r.cfg.rx.data[DXPU_COMPLETION] = 256;
    rig_up(&r);
    assert_int_equal(rig_submit(&r, v), DXPU_E_TLP_ALL_ZERO);
    tlp[7] = 0xff; /* 1,024 dwords from 0x20: 65 pieces, 260 data units */
    tlp[11] = 0x20;
    assert_int_equal(rig_submit(&r, v), DXPU_E_ARG);
    tlp[11] = 0;
    assert_int_equal(rig_submit(&r, v), DXPU_OK);
    rig_free(&r);
}

static void test_d36_in_a_small_window(void **state)
{
    dxpu_event e;
    (void)state;
    rig_config(&r);
    r.cfg.window_frames = 4;
    rig_up(&r);
    assert_int_equal(rig_put_events(&r, 16, 0), DXPU_OK);
    r.say.sequence++; /* ahead; its turn comes while there is no room */
    assert_int_equal(rig_put_events(&r, 1, 16), DXPU_OK);
    r.say.sequence = RIG_PEER_SEQ + 1;
    assert_int_equal(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.ack, RIG_PEER_SEQ + 2);
    assert_int_equal(r.f.sack, 0);
    r.say.sequence = RIG_PEER_SEQ + 2; /* it is repeated, and counts as a duplicate */
    assert_int_equal(rig_put_events(&r, 1, 16), DXPU_OK);
    assert_int_equal(r.ch.count.rx_duplicate, 1);
    for (uint32_t i = 0; i < 17; i++) {
        if (i == 16)
            assert_int_equal(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns), DXPU_OK);
        assert_true(dxpu_channel_peek_event(&r.ch, &e));
        assert_int_equal(e.value, i);
        assert_int_equal(dxpu_channel_take_event(&r.ch), DXPU_OK);
    }
    rig_free(&r);
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_put_events(&r, 1, 0), DXPU_OK);
    dxpu_channel_reset(&r.ch, 0);
    assert_int_equal(dxpu_channel_next_ns(&r.ch), 0); /* the reset */
    assert_false(dxpu_channel_peek_event(&r.ch, &e));
    rig_free(&r);
}

static void test_d14_found_lost_twice_or_not_at_all(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(5);
    r.say.sack = 7;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.now_ns += 4 * RIG_MS; /* the timeout finds it marked */
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    assert_int_equal(rig_emit(&r), 0);
    assert_int_equal(r.ch.count.tx_retransmits, 1);
    rig_free(&r);
    rig_config(&r);
    rig_up(&r);
    send_writes(5);
    r.say.sack = 7;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 4), DXPU_OK); /* it had only been late */
    assert_int_equal(rig_emit(&r), 0);
    assert_int_equal(r.ch.count.tx_retransmits, 0);
    rig_free(&r);
}

/* A transmission is looked for as long as the log of 2 windows holds it: 101 to 103 leave once, 100
   repeatedly. */
static void test_d14_found_after_many_retransmissions(void **state)
{
    static const uint8_t again[] = { 3, 4, 6 }, found[] = { 3, 3, 2 };
    (void)state;
    for (unsigned row = 0; row < sizeof again; row++) {
        rig_config(&r);
        r.cfg.window_frames = r.offer.window_frames = 4;
        r.cfg.hold_ms = r.offer.hold_ms = 100000;
        rig_up(&r);
        send_writes(4);
        for (unsigned i = 0; i < again[row]; i++) {
            do { /* past probes: does the path still carry it? */
                if (dxpu_channel_next_ns(&r.ch) > r.now_ns)
                    r.now_ns = dxpu_channel_next_ns(&r.ch);
                assert_true(rig_emit(&r) > 0);
            } while (r.f.kind == DXPU_KIND_PROBE);
            assert_int_equal(r.f.sequence, RIG_SEQ);
        }
        assert_int_equal(r.ch.count.tx_fast, 0);
        r.say.seen = r.ch.link.packet - 1; /* D-19 */
        r.say.delay_ns = UINT32_MAX;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK);
        assert_int_equal(r.ch.count.tx_fast, found[row]);
        for (unsigned i = 4 - found[row]; i < 4; i++) {
            do
                assert_true(rig_emit(&r) > 0);
            while (r.f.kind == DXPU_KIND_PROBE);
            assert_int_equal(r.f.sequence, RIG_SEQ + i);
        }
        while (rig_emit(&r) > 0)
            assert_int_equal(r.f.kind, DXPU_KIND_PROBE);
        rig_free(&r);
    }
}

/* Two frames are lost, far apart.  While the first, sent again, fills the path, each emit() would
   look for the second: once is enough. */
static void test_d14_where_the_next_lost_is_found(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.lossless = false;
    rig_up(&r);
    for (unsigned i = 0; i < 40; i++) {
        r.ch.paths.path[0].window = UINT32_MAX;
        r.now_ns += RIG_MS / 10;
        send_writes(1);
    }
    static const unsigned lost[] = { 0, 35 };
    for (unsigned i = 0; i < 2; i++) {
        dxpui_frame_of(&r.ch.flight, RIG_SEQ + lost[i])->state = DXPUI_LOST;
        r.ch.flight.lost++;
    }
    r.ch.flight.lost_from = RIG_SEQ;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    assert_int_equal(r.ch.flight.lost_from, RIG_SEQ + 1);
    r.ch.paths.path[0].window = 1;
    assert_int_equal(rig_emit(&r), 0);
    assert_int_equal(r.ch.flight.lost_from, RIG_SEQ + 35);
    r.ch.paths.path[0].window = UINT32_MAX;
    r.now_ns += RIG_MS;
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ + 35);
    rig_free(&r);
}

/* An old ack frame arrives late; frame 105 stands where 101, which its sack names, once stood. */
static void test_d3_late_sack_of_a_slot_used_again(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        rig_config(&r);
        r.cfg.window_frames = r.offer.window_frames = 4;
        rig_up(&r);
        send_writes(4);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 2), DXPU_OK);
        send_writes(2);
        r.say.sack = late ? 1 : 4;
        assert_int_equal(rig_put_ack(&r, late ? RIG_SEQ : RIG_SEQ + 2), DXPU_OK);
        assert_int_equal(r.ch.count.tx_fast, !late); /* the control: 105 itself, and 102 is lost */
        r.say.sack = 0;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 6), DXPU_OK);
        assert_int_equal(r.ch.count.tx_tlps_acked, 6);
        rig_free(&r);
    }
}

/* The last bit of a sack names the 64th frame after ack: of 64 in flight it was never sent. */
/* An ack half-way round the numbers is before no frame: taken for one it names 2^31 of them. */
static void test_d6_d7_half_way(void **state)
{
    static const struct {
        uint32_t from_next;
        bool old;
    } rows[] = { { 1, false },          { 0x40000000, false },   { INT32_MAX, false },
                 { 0x80000000, false }, { 0x80000001, true },    { 0xc0000000, true },
                 { UINT32_MAX, true },  { UINT32_MAX - 3, true } };
    (void)state;
    for (unsigned sent = 0; sent < 4; sent += 3) {
        for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            rig_config(&r);
            rig_up(&r);
            send_writes(sent);
            uint32_t in_flight = r.ch.paths.path[0].in_flight,
                     ack = RIG_SEQ + sent + rows[i].from_next;
            assert_int_equal(rig_put_ack(&r, ack), rows[i].old ? DXPU_OK : DXPU_E_ACK);
            assert_int_equal(r.ch.count.rx_ack, !rows[i].old);
            assert_in_range(r.ch.paths.path[0].in_flight, 0, in_flight);
            assert_in_range(r.ch.flight.next - r.ch.flight.una, 0, sent);
            rig_free(&r);
        }
    }
}

static void test_d6_last_bit_of_the_sack(void **state)
{
    (void)state;
    for (unsigned sent = 64; sent <= 65; sent++) {
        rig_config(&r);
        r.cfg.window_frames = r.offer.window_frames = 128;
        r.cfg.tx.header[DXPU_POSTED] = r.offer.limits.header[DXPU_POSTED] = 128;
        rig_up(&r);
        send_writes(sent);
        r.say.sack = (uint64_t)1 << 63;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), sent == 64 ? DXPU_E_ACK : DXPU_OK);
        assert_int_equal(r.ch.count.rx_ack, sent == 64);
        rig_free(&r);
    }
}

/* More frames in flight than a sack can name. */
static void test_d3_beyond_the_sack(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.window_frames = 256;
    r.cfg.tx.header[DXPU_POSTED] = 128;
    r.offer.window_frames = 256;
    r.offer.limits.header[DXPU_POSTED] = 128;
    r.offer.limits.data[DXPU_POSTED] = 1024;
    rig_up(&r);
    send_writes(80);
    r.say.sack = UINT64_MAX;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    assert_true(rig_emit(&r) > 0);
    assert_int_equal(r.f.sequence, RIG_SEQ);
    assert_int_equal(rig_emit(&r), 0);
    for (uint32_t i = 1; i < 80; i++) { /* and the other way: 79 held, 64 reported */
        r.say.sequence = RIG_PEER_SEQ + i;
        if (i <= 63)
            assert_int_equal(rig_put_tlp(&r, rig_mrd((uint16_t)i, 4)), DXPU_OK);
        else
            assert_int_equal(rig_put_events(&r, 1, i), DXPU_OK);
    }
    assert_true(rig_emit(&r) > 0);
    assert_true(r.f.sack == UINT64_MAX);
    rig_free(&r);
}

static void test_d12_for_ever(void **state)
{
    unsigned kinds;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
    assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & DXPU_WANTS_EMIT, DXPU_WANTS_EMIT);
    for (unsigned i = 0; i < 3000; i++) {
        assert_true(rig_drain(&r, &kinds) < 4);
        rig_answer(&r);
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
        r.now_ns = dxpu_channel_next_ns(&r.ch);
    }
    assert_true(r.now_ns > RIG_START_NS + 5000 * (uint64_t)RIG_MS);
    assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_UP);
    rig_free(&r);
}

static void test_d45_what_keeps_it_draining(void **state)
{
    static const uint8_t rows = 5;
    (void)state;
    for (uint8_t row = 0; row < rows; row++) {
        dxpu_event e;
        unsigned kinds;
        rig_config(&r);
        r.offer.window_frames = 1;
        rig_up(&r);
        memset(&e, 0, sizeof e);
        e.type = DXPU_EVENT_RESUME;
        assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & DXPU_WANTS_ACK, 0);
        if (row == 0)
            assert_int_equal(rig_submit(&r, rig_mwr(1, 4, 0)), DXPU_OK);
        else if (row == 1)
            assert_int_equal(rig_submit(&r, rig_mrd(1, 4)), DXPU_OK);
        else if (row == 2)
            assert_int_equal(rig_submit(&r, rig_cpl(1, 4, 4, 0)), DXPU_OK);
        else if (row == 3)
            assert_int_equal(dxpu_channel_submit_event(&r.ch, &e), DXPU_OK);
        else /* the first half of one is acknowledged */
            assert_int_equal(rig_submit(&r, rig_mwr(1, 2048, 0)), DXPU_OK);
        uint32_t acked = RIG_SEQ;
        if (row == 4) {
            assert_int_equal(rig_drain(&r, &kinds), 1);
            assert_int_equal(rig_put_ack(&r, ++acked), DXPU_OK);
        }
        assert_int_equal(dxpu_channel_wants(&r.ch, r.now_ns) & DXPU_WANTS_ACK, DXPU_WANTS_ACK);
        assert_int_equal(dxpu_channel_close(&r.ch, 0), DXPU_OK);
        assert_int_equal(dxpu_channel_next_ns(&r.ch), 0);
        assert_int_equal(rig_drain(&r, &kinds), 1);
        assert_int_equal(dxpu_channel_status(&r.ch).state, DXPU_STATE_DRAINING);
        assert_int_equal(rig_put_ack(&r, ++acked), DXPU_OK);
        assert_int_equal(dxpu_channel_next_ns(&r.ch), 0);
        assert_int_equal(rig_drain(&r, &kinds), 1);
        assert_int_equal(kinds, 1u << DXPU_KIND_CLOSE);
        rig_free(&r);
    }
}

static void test_w35_shapes_that_differ(void **state)
{
    static const uint8_t rows[][24] = {
        /* a 3-dword header in 4 */
        { 1, 0, 0, 24, 0, 0x44, 0, 0, 0x00, 0, 0, 1, 0, 1, 0, 15, 0, 2 },
        /* a 4-dword header as prefix and 3 */
        { 1, 0, 0, 24, 0, 0x4b, 0, 0, 0x20, 0, 0, 1, 0, 1, 0, 15, 0, 2 },
        /* a local prefix */
        { 1, 0, 0, 24, 0, 0x4b, 0, 0, 0x8e, 0, 0, 0, 0x00, 0, 0, 1, 0, 1, 0, 15, 0, 2 },
    };
    uint8_t body[28];
    (void)state;
    rig_config(&r);
    rig_up(&r);
    for (unsigned i = 0; i < 3; i++) {
        memset(body, 0, sizeof body);
        memcpy(body, rows[i], sizeof rows[i]);
        assert_int_equal(rig_put(&r, DXPU_KIND_DATA, body, sizeof body), DXPU_E_RECORD);
    }
    rig_free(&r);
}

static void test_f5_completions_without_tags(void **state)
{
    (void)state;
    rig_config(&r);
    r.cfg.rx.header[DXPU_COMPLETION] = 1;
    rig_up(&r);
    assert_int_equal(rig_put_tlp(&r, rig_cpl(1, 4, 4, 0)), DXPU_OK);
    fails_with(rig_put_tlp(&r, rig_cpl(1, 4, 4, 0)), DXPU_E_CREDIT, DXPU_REASON_CREDIT);
}

static void test_w38_in_a_held_frame(void **state)
{
    rig_body body;
    (void)state;
    rig_config(&r);
    rig_up(&r);
    rig_begin(&body);
    rig_add(&body, rig_mwr(1, 64, 0));
    body.bytes[body.b.used - 1] ^= 1;
    for (uint32_t i = 2; i; i--) { /* two wait; the first of them ends it */
        r.say.sequence = RIG_PEER_SEQ + i;
        assert_int_equal(rig_put_data(&r, &body.b), DXPU_OK);
    }
    r.say.sequence = RIG_PEER_SEQ;
    fails_with(rig_put_tlp(&r, rig_mwr(1, 4, 0)), DXPU_E_TLP_CRC, DXPU_REASON_PROTOCOL);
}

static void test_d11_gains(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    for (uint32_t i = 0; i < 2; i++) {
        send_writes(1);
        r.now_ns += (i ? 3u : 2u) * RIG_MS;
        r.say.seen = r.f.packet;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1 + i), DXPU_OK);
    }
    send_writes(1); /* SRTT 2.125, RTTVAR 0.75 + 0.25 */
    assert_true(dxpu_channel_next_ns(&r.ch) == r.now_ns + 6150 * RIG_US);
    rig_free(&r);
}

/* The oldest, sacked before, times out; its acknowledgement comes before it has been sent again. */
static void test_d15_acknowledged_in_between(void **state)
{
    static const uint8_t probe[DXPU_PROBE_BYTES];
    (void)state;
    rig_config(&r);
    rig_up(&r);
    send_writes(2);
    r.say.sack = 1; /* 101 */
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    r.say.sack = 0;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 1), DXPU_OK); /* 101 was taken back */
    assert_int_equal(rig_put(&r, DXPU_KIND_PROBE, probe, sizeof probe), DXPU_OK);
    r.now_ns += 4 * RIG_MS;
    assert_true(rig_emit(&r) > 0); /* the reply goes first */
    assert_int_equal(r.f.kind, DXPU_KIND_PROBE);
    assert_int_equal(r.ch.count.tx_timeouts, 1);
    assert_int_equal(rig_put_ack(&r, RIG_SEQ + 2), DXPU_OK);
    assert_int_equal(rig_emit(&r), 0);
    assert_int_equal(r.ch.count.tx_retransmits, 0);
    rig_free(&r);
}

/* The path a frame says it came on decides nothing. */
static void test_w6_any_path(void **state)
{
    (void)state;
    rig_config(&r);
    rig_up(&r);
    for (unsigned path = 0; path < 256; path++) {
        r.say.path = (uint8_t)path;
        assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_OK);
    }
    r.say.channel++;
    assert_int_equal(rig_put_ack(&r, RIG_SEQ), DXPU_E_CHANNEL);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d43_malformed_data_proves_nothing),
        cmocka_unit_test(test_d64_malformed_ahead),
        cmocka_unit_test(test_w11_ack_with_body_acknowledges_nothing),
        cmocka_unit_test(test_d9_frame_beyond_the_window_acknowledges_nothing),
        cmocka_unit_test(test_d48_refused_frames_do_not_keep_alive),
        cmocka_unit_test(test_d49_open_of_another_incarnation),
        cmocka_unit_test(test_w8_largest_packet_number),
        cmocka_unit_test(test_d41_accept_again_after_a_refusal),
        cmocka_unit_test(test_d42_accept_that_is_not_ours),
        cmocka_unit_test(test_d13_probe_before_up),
        cmocka_unit_test(test_d12_long_times),
        cmocka_unit_test(test_d12_ceiling_is_a_quarter_of_hold),
        cmocka_unit_test(test_d2_ack_delay_never),
        cmocka_unit_test(test_w26_nonposted_larger_than_any_limit),
        cmocka_unit_test(test_d36_continues_when_taken),
        cmocka_unit_test(test_d36_held_frame_is_not_replaced),
        cmocka_unit_test(test_d36_fatal_when_taken),
        cmocka_unit_test(test_d40_open),
        cmocka_unit_test(test_d41_accept),
        cmocka_unit_test(test_d41_refused),
        cmocka_unit_test(test_d41_three_accepts),
        cmocka_unit_test(test_d42_accept_frame),
        cmocka_unit_test(test_d43_sequenced),
        cmocka_unit_test(test_d44_close),
        cmocka_unit_test(test_d65_remembered_close),
        cmocka_unit_test(test_d44_draining_delivers_everything),
        cmocka_unit_test(test_d44_acknowledges_first),
        cmocka_unit_test(test_d46_close_frame),
        cmocka_unit_test(test_d46_closed_still_delivers),
        cmocka_unit_test(test_d47_reset_frame),
        cmocka_unit_test(test_d47_own_reset_is_reported_once),
        cmocka_unit_test(test_d48_hold),
        cmocka_unit_test(test_d49_late_duplicate_of_an_open),
        cmocka_unit_test(test_d50_former_id),
        cmocka_unit_test(test_d47_refusals_are_counted),
        cmocka_unit_test(test_w8_replay_window),
        cmocka_unit_test(test_d1_retransmission),
        cmocka_unit_test(test_d2_when_to_acknowledge),
        cmocka_unit_test(test_d3_gaps_and_sack),
        cmocka_unit_test(test_d4_seen_and_delay),
        cmocka_unit_test(test_d5_ecn),
        cmocka_unit_test(test_d6_never_sent),
        cmocka_unit_test(test_d10_d11_rtt_and_rto),
        cmocka_unit_test(test_d12_backoff),
        cmocka_unit_test(test_d13_probes),
        cmocka_unit_test(test_d14_fast_retransmit),
        cmocka_unit_test(test_d15_oldest_even_if_sacked),
        cmocka_unit_test(test_d51_window),
        cmocka_unit_test(test_d33_d34_passing_posted),
        cmocka_unit_test(test_d34_every_posted_that_waits),
        cmocka_unit_test(test_d31_request_not_taken_holds_up_nothing),
        cmocka_unit_test(test_d32_request_without_credit_holds_up_nothing),
        cmocka_unit_test(test_d35_event_is_a_barrier),
        cmocka_unit_test(test_d36_events_in_flight),
        cmocka_unit_test(test_w52_events_ignored),
        cmocka_unit_test(test_w38_tlp_crc),
        cmocka_unit_test(test_w35_header_against_record),
        cmocka_unit_test(test_w42_payload_within_a_frame),
        cmocka_unit_test(test_w43_payload_across_frames),
        cmocka_unit_test(test_w33_local_prefixes_end_here),
        cmocka_unit_test(test_f5_overrun),
        cmocka_unit_test(test_f6_f7_exactly_the_limit),
        cmocka_unit_test(test_f8_credit_comes_back_when_taken),
        cmocka_unit_test(test_f12_blocked),
        cmocka_unit_test(test_f11_completions_infinite),
        cmocka_unit_test(test_d52_queue_limits),
        cmocka_unit_test(test_d52_reserved_place),
        cmocka_unit_test(test_d52_ring),
        cmocka_unit_test(test_d7_sequence_wrap),
        cmocka_unit_test(test_f10_reserve),
        cmocka_unit_test(test_f22_completions_are_matched),
        cmocka_unit_test(test_f34_answered_in_the_queue),
        cmocka_unit_test(test_f11_flood_of_completions),
        cmocka_unit_test(test_w9_suite),
        cmocka_unit_test(test_d52_configuration),
        cmocka_unit_test(test_d40_zeroed),
        cmocka_unit_test(test_w45_segments_of_one_length),
        cmocka_unit_test(test_w45_room_for_one),
        cmocka_unit_test(test_d16_padded_frames_again),
        cmocka_unit_test(test_w45_what_does_not_follow),
        cmocka_unit_test(test_w45_not_before_a_long_header),
        cmocka_unit_test(test_p1_segments_of_one_path),
        cmocka_unit_test(test_f26_delivery_of_a_split_read),
        cmocka_unit_test(test_peek_shows_the_bytes_asked_for),
        cmocka_unit_test(test_d52_room_of_each_class),
        cmocka_unit_test(test_d49_open_cut_short),
        cmocka_unit_test(test_f10_requests_that_cannot_be_tracked),
        cmocka_unit_test(test_d36_in_a_small_window),
        cmocka_unit_test(test_d14_found_lost_twice_or_not_at_all),
        cmocka_unit_test(test_d14_found_after_many_retransmissions),
        cmocka_unit_test(test_d14_where_the_next_lost_is_found),
        cmocka_unit_test(test_d3_late_sack_of_a_slot_used_again),
        cmocka_unit_test(test_d6_d7_half_way),
        cmocka_unit_test(test_d6_last_bit_of_the_sack),
        cmocka_unit_test(test_d3_beyond_the_sack),
        cmocka_unit_test(test_d12_for_ever),
        cmocka_unit_test(test_d45_what_keeps_it_draining),
        cmocka_unit_test(test_w35_shapes_that_differ),
        cmocka_unit_test(test_f5_completions_without_tags),
        cmocka_unit_test(test_w38_in_a_held_frame),
        cmocka_unit_test(test_d11_gains),
        cmocka_unit_test(test_w6_any_path),
        cmocka_unit_test(test_d15_acknowledged_in_between),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
