/* bindings/acceptor: which datagrams are opens, which open repeats one, where a path's answers go
   and how much of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include "dxpu_acceptor.h"

enum { FRAME_BYTES = 100, LIMIT_BYTES = 1452 };

/* ==== Opens =================================================================================== */

static const dxpu_offer host_offers = {
    .channel = 7,
    .version_min = 1,
    .version_max = 1,
    .suites = DXPU_SUITE_CRC,
    .tlp_formats = 1,
    .window_frames = 16,
    .frame_limit_bytes = LIMIT_BYTES,
    .hold_ms = 1000,
    .limits = { { 64, 32, 80 }, { 512, 64, 384 } },
    .epoch = 9,
    .source = { 1, 2, 3 },
    .destination = { 4, 5, 6 },
};

/* A frame with the offer, of `bytes`, whose CRC is right. */
static dxpu_bytes open_of(const dxpu_offer *o, uint8_t kind, uint8_t path, size_t bytes)
{
    static uint8_t out[LIMIT_BYTES];
    dxpu_bytes frame = { out, bytes };
    dxpu_frame f;
    size_t used;
    memset(&f, 0, sizeof f);
    memset(out, 0, sizeof out);
    f.kind = kind;
    f.path = path;
    used = bytes - DXPU_FRAME_CRC_BYTES;
    (void)dxpu_frame_encode_header(&f, used - DXPU_FRAME_BASE_BYTES, DXPU_FRAME_CRC_BYTES, out);
    dxpu_offer_encode(o, out + DXPU_FRAME_BASE_BYTES);
    dxpu_frame_seal_crc(out, used);
    return frame;
}

static int opened(const dxpu_offer *o, uint8_t kind, uint8_t path, size_t bytes)
{
    dxpu_offer got;
    return dxpu_acceptor_open(open_of(o, kind, path, bytes), 2, &got);
}

static void test_what_is_an_open(void **state)
{
    dxpu_offer bad = host_offers, got;
    dxpu_bytes frame = open_of(&host_offers, DXPU_KIND_OPEN, 1, LIMIT_BYTES);
    (void)state;
    assert_int_equal(dxpu_acceptor_open(frame, 2, &got), DXPU_OK);
    assert_int_equal(got.epoch, host_offers.epoch);
    assert_int_equal(got.destination.slot, host_offers.destination.slot);
    ((uint8_t *)(uintptr_t)frame.ptr)[DXPU_FRAME_PATH] ^= 1;
    assert_int_equal(dxpu_acceptor_open(frame, 2, &got), DXPU_E_CRC);
    frame.len = 3;
    assert_int_equal(dxpu_acceptor_open(frame, 2, &got), DXPU_E_SHORT);
    assert_int_equal(opened(&host_offers, DXPU_KIND_ACCEPT, 0, LIMIT_BYTES), DXPU_E_STATE);
    assert_int_equal(opened(&host_offers, 99, 0, LIMIT_BYTES), DXPU_E_KIND);
    assert_int_equal(opened(&host_offers, DXPU_KIND_OPEN, 2, LIMIT_BYTES), DXPU_E_PATH);
    bad.epoch = 0;
    assert_int_equal(opened(&bad, DXPU_KIND_OPEN, 0, LIMIT_BYTES), DXPU_E_OFFER);
}

static void test_p3_an_open_shorter_than_its_limit(void **state)
{
    (void)state;
    assert_int_equal(opened(&host_offers, DXPU_KIND_OPEN, 0, LIMIT_BYTES - 1), DXPU_E_SHORT);
    assert_int_equal(opened(&host_offers, DXPU_KIND_OPEN, 0, LIMIT_BYTES), DXPU_OK);
}

static void test_which_open_repeats_one(void **state)
{
    static dxpu_channel ch;
    (void)state;
    ch.cfg.epoch = host_offers.epoch;
    ch.cfg.local = host_offers.destination;
    ch.cfg.remote = host_offers.source;
    assert_true(dxpu_acceptor_repeats(&ch, 7, &host_offers));
    assert_false(dxpu_acceptor_repeats(&ch, 8, &host_offers));
    for (unsigned i = 0; i < 5; i++) {
        dxpu_offer o = host_offers;
        o.epoch += i == 0;
        o.destination.slot = (uint16_t)(o.destination.slot + (i == 1));
        o.source.node += i == 2;
        o.source.slot = (uint16_t)(o.source.slot + (i == 3));
        o.source.function = (uint16_t)(o.source.function + (i == 4));
        assert_false(dxpu_acceptor_repeats(&ch, 7, &o));
    }
}

static void test_reasons(void **state)
{
    (void)state;
    assert_int_equal(dxpu_acceptor_reason(DXPU_E_VERSION), DXPU_REASON_VERSION);
    assert_int_equal(dxpu_acceptor_reason(DXPU_E_EPOCH), DXPU_REASON_EPOCH);
    assert_int_equal(dxpu_acceptor_reason(DXPU_E_OFFER), DXPU_REASON_OFFER);
}

/* ==== Addresses =============================================================================== */

static dxpu_bytes frame_of(uint8_t kind, uint64_t packet, uint64_t seen)
{
    static uint8_t out[FRAME_BYTES];
    dxpu_frame f;
    dxpu_bytes frame = { out, sizeof out };
    memset(&f, 0, sizeof f);
    f.kind = kind;
    f.packet = packet;
    f.seen = seen;
    memset(out, 0, sizeof out);
    (void)dxpu_frame_encode_header(&f, 0, 0, out);
    return frame;
}

static dxpu_bytes probe_of(uint8_t flags, uint64_t cookie)
{
    dxpu_bytes frame = frame_of(DXPU_KIND_PROBE, 9, 0);
    uint8_t *body = (uint8_t *)(uintptr_t)frame.ptr + DXPU_FRAME_BASE_BYTES;
    body[0] = flags;
    dxpu_put_be64(body + 4, cookie);
    return frame;
}

/* The first frame from an address, or one of an address that the path moves to: not valid yet. */
static void first_from(dxpu_validation *v, uint64_t now_ns)
{
    assert_int_equal(
        dxpu_validation_arrived(v, frame_of(DXPU_KIND_OPEN, 1, 0), true, false, false, now_ns),
        DXPU_VALIDATION_MOVED);
    assert_true(v->known && !v->valid);
}

/* A further one. */
static unsigned then(dxpu_validation *v, dxpu_bytes frame)
{
    return dxpu_validation_arrived(v, frame, true, true, false, 1500);
}

static void test_p27_three_times_what_arrived(void **state)
{
    dxpu_validation v = { 0 };
    (void)state;
    assert_false(dxpu_validation_may_send(&v, frame_of(DXPU_KIND_DATA, 1, 0)));
    first_from(&v, 1000);
    assert_int_equal(then(&v, frame_of(DXPU_KIND_ACK, 2, 0)), 0);
    for (unsigned i = 0; i < 6; i++)
        assert_true(dxpu_validation_may_send(&v, frame_of(DXPU_KIND_DATA, 2 + i, 0)));
    assert_false(dxpu_validation_may_send(&v, frame_of(DXPU_KIND_DATA, 8, 0)));
    v.valid = true; /* the control */
    for (unsigned i = 0; i < 6; i++)
        assert_true(dxpu_validation_may_send(&v, frame_of(DXPU_KIND_DATA, 9 + i, 0)));
}

/* Data 10..12 go there, 13 elsewhere, then 14: of these only 14 went there alone since. */
static void test_p27_data_that_was_seen(void **state)
{
    static const struct {
        uint64_t seen;
        bool valid;
    } say[] = { { 0, false },  { 9, false },  { 10, true }, { 12, true },
                { 13, false }, { 14, false }, { 15, false } };
    dxpu_validation v;
    (void)state;
    for (unsigned gap = 0; gap < 2; gap++) {
        for (unsigned i = 0; i < sizeof say / sizeof say[0]; i++) {
            memset(&v, 0, sizeof v);
            first_from(&v, 1000);
            assert_int_equal(then(&v, frame_of(DXPU_KIND_DATA, 1, 9)), 0); /* seen before */
            for (uint64_t packet = 10; packet <= 12; packet++)
                (void)dxpu_validation_may_send(&v, frame_of(DXPU_KIND_DATA, packet, 0));
            if (gap)
                (void)dxpu_validation_may_send(&v, frame_of(DXPU_KIND_DATA, 14, 0));
            (void)then(&v, frame_of(DXPU_KIND_ACK, 2, say[i].seen));
            assert_int_equal(v.valid, gap ? say[i].seen == 14 : say[i].valid);
        }
    }
    memset(&v, 0, sizeof v);
    first_from(&v, 1000); /* an accept, packet 0: its opener has seen no data yet */
    (void)dxpu_validation_may_send(&v, frame_of(DXPU_KIND_ACCEPT, 0, 0));
    assert_int_equal(then(&v, frame_of(DXPU_KIND_ACK, 2, 0)), 0);
    assert_false(v.valid);
}

static void test_p27_probes_that_were_answered(void **state)
{
    dxpu_validation v = { 0 };
    (void)state;
    first_from(&v, 1000);
    assert_int_equal(then(&v, probe_of(0, 1001)), 0);                /* its own */
    assert_int_equal(then(&v, probe_of(DXPU_PROBE_REPLY, 1000)), 0); /* sent to the one before */
    assert_int_equal(then(&v, probe_of(DXPU_PROBE_REPLY, 1001)), DXPU_VALIDATION_VALID);
    assert_true(v.valid);
    assert_int_equal(then(&v, frame_of(DXPU_KIND_ACK, 3, 0)), 0); /* and stays so */
    assert_true(v.valid);
    first_from(&v, 2000); /* until it moves */
    assert_int_equal(then(&v, probe_of(DXPU_PROBE_REPLY, 1001)), 0);
    assert_false(v.valid);
}

/* Only the newest frame moves an address, and only frames from it count for it. */
static void test_w29_what_is_late_moves_nothing(void **state)
{
    dxpu_validation v = { 0 };
    dxpu_bytes answer = probe_of(DXPU_PROBE_REPLY, 1001);
    uint64_t allowed;
    (void)state;
    assert_int_equal(dxpu_validation_arrived(&v, answer, false, true, true, 900), 0);
    assert_false(v.known || v.valid);
    first_from(&v, 1000);
    allowed = v.allowed_bytes;
    answer = probe_of(DXPU_PROBE_REPLY, 1001);
    assert_int_equal(dxpu_validation_arrived(&v, answer, false, false, false, 1500), 0);
    assert_true(v.allowed_bytes == allowed && !v.valid && v.since_ns == 1000);
    assert_int_equal(dxpu_validation_arrived(&v, answer, false, true, false, 1500),
                     DXPU_VALIDATION_VALID); /* the control: late, but from there */
}

/* The last address that was valid is so at once when the path returns to it; no other one is. */
static void test_p27_back_to_an_address_that_answered(void **state)
{
    dxpu_bytes ack = frame_of(DXPU_KIND_ACK, 3, 0);
    (void)state;
    for (unsigned answered = 0; answered < 2; answered++) {
        dxpu_validation v = { 0 };
        first_from(&v, 1000);
        if (answered)
            (void)then(&v, probe_of(DXPU_PROBE_REPLY, 1001));
        assert_int_equal(v.valid, answered);
        first_from(&v, 2000); /* elsewhere */
        assert_int_equal(dxpu_validation_arrived(&v, ack, true, false, true, 3000),
                         DXPU_VALIDATION_MOVED);
        assert_int_equal(v.valid, answered);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_an_open),
        cmocka_unit_test(test_p3_an_open_shorter_than_its_limit),
        cmocka_unit_test(test_which_open_repeats_one),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_p27_three_times_what_arrived),
        cmocka_unit_test(test_p27_data_that_was_seen),
        cmocka_unit_test(test_p27_probes_that_were_answered),
        cmocka_unit_test(test_w29_what_is_late_moves_nothing),
        cmocka_unit_test(test_p27_back_to_an_address_that_answered),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
