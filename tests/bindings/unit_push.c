/* bindings/push: messages of push rules, what a host reads for a doorbell, what a box uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include "dxpu_push.h"

enum { ENTRY = 64, ENTRIES = 8, DOORBELL = 0x1008 };
#define BASE 0x123400000ull

static const dxpu_push_offer offer = { 4, 256 };

static dxpu_push_rule ring(void)
{
    dxpu_push_rule r;
    memset(&r, 0, sizeof r);
    r.mode = DXPU_PUSH_SINCE;
    r.width = 4;
    r.requester = DXPU_BDF(1, 0, 0);
    r.generation = 1;
    r.doorbell = DOORBELL;
    r.base = BASE;
    r.entries = ENTRIES;
    r.stride = ENTRY;
    r.bytes = 256;
    return r;
}

static dxpu_push_rule place(void)
{
    dxpu_push_rule r = ring();
    r.mode = DXPU_PUSH_AT;
    r.bytes = 32;
    return r;
}

/* A write of `bytes` bytes; the value in all of them, little-endian. */
static dxpu_tlp write_of(uint64_t address, uint32_t bytes, uint64_t value)
{
    static uint8_t payload[16];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    memset(payload, 0xee, sizeof payload);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.address = address & ~(uint64_t)3;
    assert_int_equal(dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw),
                     DXPU_OK);
    for (uint32_t i = 0; i < bytes; i++)
        payload[(address & 3) + i] = (uint8_t)(value >> 8 * i);
    t.payload.ptr = payload;
    t.payload.len = t.length_dw * 4u;
    return t;
}

/* Over the wire and back. */
static dxpu_tlp carried(const dxpu_tlp *t)
{
    static uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp out;
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    assert_int_equal(dxpu_tlp_receive(tlp, &out), DXPU_OK);
    assert_int_equal(dxpu_tlp_class(&out), DXPU_POSTED);
    return out;
}

/* ==== Messages ================================================================================ */

static void test_u1_offers(void **state)
{
    uint8_t payload[DXPU_PUSH_OFFER_BYTES];
    dxpu_push_offer got;
    dxpu_tlp t, other;
    (void)state;
    dxpu_push_offer_message(&offer, payload, &t);
    t = carried(&t);
    assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), DXPU_MSG_TERMINATE);
    assert_int_equal(dxpu_push_offer_decode(&t, &got), 1);
    assert_int_equal(got.rules, 4);
    assert_int_equal(got.bytes, 256);
    other = t;
    other.ep = true;
    assert_int_equal(dxpu_push_offer_decode(&other, &got), DXPU_E_ARG);
    other = t;
    other.payload.len = 4;
    assert_int_equal(dxpu_push_offer_decode(&other, &got), DXPU_E_ARG);
    assert_int_equal(got.rules, 0);
    other = t;
    other.message_dw[1]++;
    assert_int_equal(dxpu_push_offer_decode(&other, &got), 0);
    other = t;
    other.message_routing = DXPU_MSG_TO_ROOT;
    assert_int_equal(dxpu_push_offer_decode(&other, &got), 0);
}

static void test_u1_rules(void **state)
{
    uint8_t payload[DXPU_PUSH_RULE_BYTES];
    dxpu_push_rule r = ring(), got;
    dxpu_push_offer none;
    dxpu_tlp t;
    (void)state;
    r.rule = 3;
    r.start = 5;
    r.generation = 0x01020304;
    dxpu_push_rule_message(&r, payload, &t);
    t = carried(&t);
    assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_FORWARD);
    assert_int_equal(dxpu_push_rule_decode(&t, &got), 1);
    assert_true(got.rule == 3 && got.mode == DXPU_PUSH_SINCE && got.width == 4);
    assert_true(got.requester == r.requester && got.generation == r.generation);
    assert_true(got.doorbell == DOORBELL && got.base == BASE && got.entries == ENTRIES);
    assert_true(got.start == 5 && got.stride == ENTRY && got.bytes == 256);
    assert_int_equal(dxpu_push_offer_decode(&t, &none), 0);
    t.payload.len -= 4;
    assert_int_equal(dxpu_push_rule_decode(&t, &got), DXPU_E_ARG);
}

static void test_u1_data(void **state)
{
    uint8_t payload[DXPU_PUSH_PAYLOAD_MAX];
    dxpu_push_rule r = ring();
    dxpu_push_data d;
    dxpu_tlp t;
    (void)state;
    for (unsigned bytes = 1; bytes <= DXPU_PUSH_BYTES; bytes += bytes < 8 ? 1 : 127) {
        memset(payload, 0xab, sizeof payload);
        dxpu_push_data_message(&r, BASE + 64, (uint16_t)bytes, payload, &t);
        t = carried(&t);
        assert_int_equal(dxpu_push_data_decode(&t, &d), 1);
        assert_true(d.rule == 0 && d.generation == 1 && d.address == BASE + 64);
        assert_int_equal(d.data.len, bytes);
        assert_int_equal(d.data.ptr[bytes - 1], 0xab);
    }
    payload[2] = 0xff; /* more than there is */
    t.payload.ptr = payload;
    assert_int_equal(dxpu_push_data_decode(&t, &d), DXPU_E_ARG);
    payload[2] = payload[3] = 0; /* of no bytes */
    assert_int_equal(dxpu_push_data_decode(&t, &d), DXPU_E_ARG);
    assert_true(!d.data.len && !d.data.ptr);
}

/* spec/vectors/tlp.txt: msg-vendor1-push-rule and msg-vendor1-push-data */
static void test_u1_vectors(void **state)
{
    static const uint8_t rule[] = { 0x70, 0x00, 0x00, 0x09, 0x01, 0x00, 0x00, 0x7f, 0x00,
                                    0x00, 0xff, 0xff, 0x64, 0x78, 0x70, 0x75, 0x03, 0x01,
                                    0x04, 0x02, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00,
                                    0x00, 0xfe, 0x00, 0x10, 0x08, 0x00, 0x00, 0x00, 0x01,
                                    0x23, 0x45, 0x60, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00,
                                    0x00, 0x00, 0x05, 0x00, 0x40, 0x04, 0x00 };
    static const uint8_t data[] = { 0x74, 0x00, 0x00, 0x06, 0x00, 0x00, 0x00, 0x7f, 0x00, 0x00,
                                    0xff, 0xff, 0x64, 0x78, 0x70, 0x75, 0x04, 0x01, 0x00, 0x06,
                                    0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x01, 0x23, 0x45,
                                    0x61, 0x40, 0x70, 0x75, 0x73, 0x68, 0x65, 0x64, 0x00, 0x00 };
    const dxpu_bytes all[2] = { { rule, sizeof rule }, { data, sizeof data } };
    dxpu_push_rule r;
    dxpu_push_data d;
    dxpu_tlp t;
    (void)state;
    assert_int_equal(dxpu_tlp_receive(all[0], &t), DXPU_OK);
    assert_int_equal(dxpu_push_rule_decode(&t, &r), 1);
    assert_true(r.rule == 1 && r.mode == DXPU_PUSH_SINCE && r.width == 4 && r.generation == 7);
    assert_true(r.requester == 0x0100 && r.doorbell == 0xfe001008u && r.base == 0x123456000u);
    assert_true(r.entries == 1024 && r.start == 5 && r.stride == 64 && r.bytes == 1024);
    assert_int_equal(dxpu_tlp_receive(all[1], &t), DXPU_OK);
    assert_int_equal(dxpu_push_data_decode(&t, &d), 1);
    assert_true(d.rule == 1 && d.generation == 7 && d.address == r.base + 5u * 64);
    assert_int_equal(d.data.len, 6);
    assert_memory_equal(d.data.ptr, "pushed", 6);
}

/* ==== The host's table ======================================================================== */

static dxpu_push_table table;

static void begin_table(const dxpu_push_rule *r)
{
    dxpu_push_table_init(&table, &offer);
    assert_int_equal(dxpu_push_table_set(&table, r), DXPU_OK);
    assert_int_equal(table.count, 1);
}

static unsigned matched(uint32_t value, dxpu_push_part out[DXPU_PUSH_PARTS])
{
    const dxpu_push_rule *rule = NULL;
    dxpu_tlp t = write_of(DOORBELL, 4, value);
    unsigned n = dxpu_push_table_match(&table, &t, out, &rule);
    assert_true(n <= DXPU_PUSH_PARTS && (!n || rule == &table.entry[0].rule));
    return n;
}

static void test_u5_rules_are_checked(void **state)
{
    dxpu_push_rule bad[16], r = ring();
    unsigned n = 0;
    (void)state;
    for (unsigned i = 0; i < 16; i++)
        bad[i] = r;
    bad[n++].mode = 0;
    bad[n++].mode = 3;
    bad[n++].bytes = 257;
    bad[n++].width = 3;
    bad[n++].width = 0;
    bad[n++].doorbell = DOORBELL + 2;
    bad[n++].entries = 0;
    bad[n++].stride = 0;
    bad[n++].stride = 257;
    bad[n++].start = ENTRIES;
    bad[n++].base = UINT64_MAX - ENTRIES * ENTRY + 2; /* ends one byte beyond 2^64 */
    for (unsigned i = 0; i < n; i++) {
        begin_table(&r);
        assert_int_equal(dxpu_push_table_set(&table, &bad[i]), DXPU_E_ARG);
        assert_int_equal(table.count, 0); /* and the one before is withdrawn */
    }
    begin_table(&r);
    r.rule = 4; /* beyond the offer */
    assert_int_equal(dxpu_push_table_set(&table, &r), DXPU_E_ARG);
    assert_int_equal(table.count, 1);
    r = ring();
    r.base = UINT64_MAX - ENTRIES * ENTRY + 1; /* control: ends at 2^64 */
    begin_table(&r);
    r = place();
    r.stride = 0;
    begin_table(&r);
    r.bytes = 0;
    assert_int_equal(dxpu_push_table_set(&table, &r), DXPU_OK);
    assert_int_equal(table.count, 0);
}

static void test_u2_offer_is_cut(void **state)
{
    const dxpu_push_offer much = { 255, 65535 };
    (void)state;
    dxpu_push_table_init(&table, &much);
    assert_int_equal(table.offer.rules, DXPU_PUSH_RULES);
    assert_int_equal(table.offer.bytes, DXPU_PUSH_BYTES);
}

static void test_u6_what_is_a_doorbell(void **state)
{
    dxpu_push_part part[DXPU_PUSH_PARTS];
    const dxpu_push_rule *rule;
    dxpu_push_rule r = ring(), second = place();
    dxpu_tlp t;
    (void)state;
    begin_table(&r);
    for (unsigned bytes = 1; bytes <= 8; bytes++) {
        for (uint64_t at = DOORBELL - 8; at < DOORBELL + 8; at++) {
            t = write_of(at, bytes, 1);
            table.entry[0].next = 0;
            assert_int_equal(dxpu_push_table_match(&table, &t, part, &rule),
                             at == DOORBELL && bytes == 4);
        }
    }
    t = write_of(DOORBELL, 4, 1);
    table.entry[0].next = 0;
    t.first_be = 0x9; /* not all of it */
    assert_int_equal(dxpu_push_table_match(&table, &t, part, &rule), 0);
    t = write_of(DOORBELL, 4, 1);
    t.ep = true;
    assert_int_equal(dxpu_push_table_match(&table, &t, part, &rule), 0);
    t = write_of(DOORBELL, 4, 1);
    t.address += 0x100000000u;
    assert_int_equal(dxpu_push_table_match(&table, &t, part, &rule), 0);
    second.rule = 2; /* of the same doorbell: the lower number counts */
    assert_int_equal(dxpu_push_table_set(&table, &second), DXPU_OK);
    t = write_of(DOORBELL, 4, 1);
    assert_int_equal(dxpu_push_table_match(&table, &t, part, &rule), 1);
    assert_ptr_equal(rule, &table.entry[0].rule);
    assert_int_equal(part[0].bytes, ENTRY);
    for (unsigned width = 1; width <= 8; width *= 2) {
        r.width = (uint8_t)width;
        begin_table(&r);
        t = write_of(DOORBELL, width, 1);
        assert_int_equal(dxpu_push_table_match(&table, &t, part, &rule), 1);
    }
}

static void test_u6_since(void **state)
{
    dxpu_push_part part[DXPU_PUSH_PARTS];
    dxpu_push_rule r = ring();
    (void)state;
    r.start = 2;
    begin_table(&r);
    assert_int_equal(matched(3, part), 1);
    assert_true(part[0].address == BASE + 2 * ENTRY && part[0].bytes == ENTRY);
    assert_int_equal(matched(3, part), 0); /* nothing new */
    assert_int_equal(matched(ENTRIES, part), 0);
    assert_int_equal(table.entry[0].next, 3);
    assert_int_equal(matched(6, part), 1);
    assert_true(part[0].address == BASE + 3 * ENTRY && part[0].bytes == 3 * ENTRY);
    assert_int_equal(matched(1, part), 2); /* 6, 7, 0 */
    assert_true(part[0].address == BASE + 6 * ENTRY && part[0].bytes == 2 * ENTRY);
    assert_true(part[1].address == BASE && part[1].bytes == ENTRY);
    assert_int_equal(matched(0, part), 1); /* 1 to 7: no more than the rule's bytes */
    assert_true(part[0].address == BASE + ENTRY && part[0].bytes == 256);
}

static void test_u6_since_to_the_end(void **state)
{
    dxpu_push_part part[DXPU_PUSH_PARTS];
    dxpu_push_rule r = ring();
    (void)state;
    r.start = 6;
    begin_table(&r);
    assert_int_equal(matched(0, part), 1);
    assert_true(part[0].address == BASE + 6 * ENTRY && part[0].bytes == 2 * ENTRY);
    assert_int_equal(matched(7, part), 1);
    assert_true(part[0].address == BASE && part[0].bytes == 256);
}

static void test_u6_at(void **state)
{
    dxpu_push_part part[DXPU_PUSH_PARTS];
    dxpu_push_rule r = place();
    (void)state;
    begin_table(&r);
    assert_int_equal(matched(ENTRIES + 3, part), 1);
    assert_true(part[0].address == BASE + 3 * ENTRY && part[0].bytes == 32);
    assert_int_equal(matched(ENTRIES + 3, part), 1);
    r.stride = 0;
    begin_table(&r);
    assert_int_equal(matched(5, part), 1);
    assert_true(part[0].address == BASE && part[0].bytes == 32);
}

/* ==== The box's store ========================================================================= */

static dxpu_push_store store;

static void begin_store(dxpu_push_rule *r)
{
    dxpu_push_store_init(&store);
    dxpu_push_store_offer(&store, &offer);
    assert_int_equal(dxpu_push_store_add(&store, r), 0);
}

static bool pushed(const dxpu_push_rule *r, unsigned first, unsigned bytes, uint8_t fill)
{
    static uint8_t data[DXPU_PUSH_BYTES];
    dxpu_push_data d = {
        r->rule, r->generation, r->base + (uint64_t)first * r->stride, { data, bytes }
    };
    memset(data, fill, sizeof data);
    return dxpu_push_store_arrived(&store, &d);
}

static void rang(uint32_t value)
{
    dxpu_tlp t = write_of(DOORBELL, 4, value);
    dxpu_push_store_rang(&store, &t);
}

/* What the device gets for an entry: the byte that fills it, or -1 where it has to read. */
static int taken(unsigned index, uint32_t bytes)
{
    uint8_t data[256];
    uint32_t n = dxpu_push_store_take(&store, BASE + (uint64_t)index * ENTRY, bytes, data);
    assert_true(n == 0 || n == bytes);
    for (uint32_t i = 1; i < n; i++)
        assert_int_equal(data[i], data[0]);
    return n ? data[0] : -1;
}

static void test_u2_nothing_without_an_offer(void **state)
{
    const dxpu_push_offer none = { 0, 0 };
    dxpu_push_rule r = ring();
    (void)state;
    dxpu_push_store_init(&store);
    assert_int_equal(dxpu_push_store_add(&store, &r), DXPU_E_ARG);
    begin_store(&r);
    assert_true(pushed(&r, 0, ENTRY, 1));
    rang(1);
    dxpu_push_store_offer(&store, &none); /* withdrawn */
    assert_int_equal(taken(0, ENTRY), -1);
    assert_int_equal(dxpu_push_store_add(&store, &r), DXPU_E_ARG);
}

static void test_u13_taken_once(void **state)
{
    dxpu_push_rule r = ring();
    (void)state;
    begin_store(&r);
    assert_true(pushed(&r, 0, 2 * ENTRY, 7));
    rang(2);
    assert_int_equal(taken(0, ENTRY), 7);
    assert_int_equal(taken(0, ENTRY), -1);
    assert_int_equal(taken(1, ENTRY), 7);
    assert_int_equal(store.held, 0);
    assert_int_equal(store.count.taken, 2 * ENTRY);
}

static void test_u13_touched(void **state)
{
    dxpu_push_rule r = ring();
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        begin_store(&r);
        assert_false(pushed(&r, 0, 0, 1));
        assert_true(pushed(&r, 0, ENTRY, 7));
        rang(1);
        switch (i) {
        case 0:
            dxpu_push_store_touch(&store, BASE - 1, 1);
            dxpu_push_store_touch(&store, BASE + ENTRY, 64);
            assert_int_equal(taken(0, ENTRY), 7);
            break;
        case 1:
            dxpu_push_store_touch(&store, BASE - 1, 2);
            assert_int_equal(taken(0, ENTRY), -1);
            break;
        case 2:
            dxpu_push_store_touch(&store, BASE + ENTRY - 1, 1);
            assert_int_equal(taken(0, ENTRY), -1);
            break;
        default:
            dxpu_push_store_touch(&store, 0, UINT32_MAX);
            assert_int_equal(taken(0, ENTRY), 7);
        }
    }
}

static void test_u12_what_is_expected(void **state)
{
    dxpu_push_rule r = ring(), old;
    (void)state;
    r.start = 2;
    begin_store(&r);
    assert_false(pushed(&r, 1, ENTRY, 1));
    assert_false(pushed(&r, 3, ENTRY, 1));
    assert_false(pushed(&r, 2, ENTRY - 4, 1));
    assert_false(pushed(&r, 2, 5 * ENTRY, 1)); /* more than the rule's bytes */
    assert_true(pushed(&r, 2, ENTRY, 1));
    assert_true(pushed(&r, 3, 3 * ENTRY, 2));
    assert_false(pushed(&r, 6, ENTRY, 1)); /* all for this doorbell */
    rang(6);
    assert_false(pushed(&r, 5, ENTRY, 1));
    assert_false(pushed(&r, 6, 3 * ENTRY, 3)); /* beyond the ring's end */
    assert_true(pushed(&r, 6, 2 * ENTRY, 3));
    assert_true(pushed(&r, 0, ENTRY, 4));
    rang(1);
    rang(4); /* without a push: the host did not see it, or had no room */
    assert_false(pushed(&r, 1, ENTRY, 5));
    assert_int_equal(taken(2, ENTRY), 1);
    assert_int_equal(taken(3, 3 * ENTRY), 2);
    assert_true(pushed(&r, 4, ENTRY, 5));
    old = r;
    old.generation--;
    rang(5);
    assert_false(pushed(&old, 5, ENTRY, 6));
    old = r;
    old.rule = 1;
    assert_false(pushed(&old, 5, ENTRY, 6));
    old.rule = 200;
    assert_false(pushed(&old, 5, ENTRY, 6));
    assert_int_equal(taken(6, 2 * ENTRY), 3);
    assert_int_equal(taken(0, ENTRY), 4);
    assert_int_equal(taken(4, ENTRY), 5);
    assert_int_equal(store.held, 0);
}

/* What the device makes of such writes is not known here. */
static void test_u12_other_writes_to_the_doorbell(void **state)
{
    const struct {
        uint64_t at;
        uint32_t bytes, value;
        bool expected; /* a push of entry 1 is */
    } w[] = { { DOORBELL, 4, 1, true },      { DOORBELL, 2, 1, false },
              { DOORBELL + 3, 1, 1, false }, { DOORBELL - 4, 8, 1, false },
              { DOORBELL, 8, 1, false },     { DOORBELL, 4, ENTRIES, false },
              { DOORBELL - 4, 4, 1, true },  { DOORBELL + 4, 4, 1, true } };
    dxpu_push_rule r = ring();
    (void)state;
    for (unsigned i = 0; i < sizeof w / sizeof w[0]; i++) {
        dxpu_tlp t;
        begin_store(&r);
        rang(1);
        t = write_of(w[i].at, w[i].bytes, w[i].value);
        dxpu_push_store_rang(&store, &t);
        assert_int_equal(pushed(&r, 1, ENTRY, 1), w[i].expected);
        rang(1); /* then it is known again */
        assert_int_equal(pushed(&r, 1, ENTRY, 2), true);
        rang(2);
        assert_int_equal(taken(1, ENTRY), 2);
        assert_int_equal(store.held, 0);
    }
    r = place();
    begin_store(&r);
    assert_true(pushed(&r, 1, 32, 1));
    rang(1);
    dxpu_tlp t = write_of(DOORBELL, 2, 1);
    dxpu_push_store_rang(&store, &t);
    assert_int_equal(taken(1, 32), -1);
}

/* Doorbells that were on their way when the rule was made: what the host pushes first begins before
   what the device has seen by then, and would be read long ago. */
static void test_u12_rule_made_late(void **state)
{
    dxpu_push_part part[DXPU_PUSH_PARTS];
    dxpu_push_rule r = ring();
    (void)state;
    begin_store(&r);
    rang(1); /* and the device reads entry 0 */
    begin_table(&r);
    assert_int_equal(matched(2, part), 1);
    assert_true(part[0].address == BASE && part[0].bytes == 2 * ENTRY);
    assert_false(pushed(&r, 0, 2 * ENTRY, 1));
    rang(2);
    assert_int_equal(matched(3, part), 1);
    assert_true(pushed(&r, 2, ENTRY, 2)); /* then they agree */
}

static void test_u13_at_ends_with_the_next_doorbell(void **state)
{
    dxpu_push_rule r = place();
    (void)state;
    begin_store(&r);
    assert_false(pushed(&r, 8, 32, 1)); /* beyond the ring */
    assert_false(pushed(&r, 0, 28, 1));
    assert_true(pushed(&r, 3, 32, 1));
    rang(3);
    assert_int_equal(taken(3, 32), 1);
    assert_true(pushed(&r, 3, 32, 2));
    rang(3);
    rang(3); /* without a push: what there was is old */
    assert_int_equal(taken(3, 32), -1);
    assert_true(pushed(&r, 3, 32, 3));
    rang(4); /* of another place */
    assert_int_equal(taken(3, 32), -1);
    assert_true(pushed(&r, 2, 32, 4));
    rang(2);
    assert_true(pushed(&r, 2, 32, 5)); /* takes the place of the one before */
    rang(2);
    assert_int_equal(taken(2, 32), 5);
    assert_int_equal(taken(2, 32), -1);
}

static void test_u14_withdrawn(void **state)
{
    dxpu_push_rule r = ring(), next = ring(), out;
    (void)state;
    begin_store(&r);
    assert_true(pushed(&r, 0, ENTRY, 1));
    rang(1);
    assert_true(dxpu_push_store_remove(&store, 0, &out));
    assert_true(out.rule == 0 && out.bytes == 0 && out.generation == r.generation);
    assert_false(dxpu_push_store_remove(&store, 0, &out));
    assert_false(dxpu_push_store_remove(&store, 64, &out));
    assert_int_equal(taken(0, ENTRY), -1);
    assert_int_equal(dxpu_push_store_add(&store, &next), 0);
    assert_true(next.generation != r.generation);
    assert_false(pushed(&r, 0, ENTRY, 1)); /* on its way when the rule was replaced */
    assert_true(pushed(&next, 0, ENTRY, 2));
    dxpu_push_store_clear(&store); /* a reset */
    assert_int_equal(taken(0, ENTRY), -1);
    assert_false(pushed(&next, 0, ENTRY, 2));
    assert_int_equal(store.count.stale, 2 * ENTRY);
}

static void test_u15_bounded(void **state)
{
    dxpu_push_rule r = ring();
    unsigned kept = 0;
    (void)state;
    r.entries = 4096;
    begin_store(&r);
    for (unsigned i = 0; i < 1024; i++) {
        kept += pushed(&r, i, ENTRY, (uint8_t)(i % 200));
        rang(i + 1);
    }
    assert_int_equal(kept, DXPU_PUSH_CHUNKS * DXPU_PUSH_BYTES / ENTRY);
    for (unsigned i = 0; i < 1024; i++)
        assert_int_equal(taken(i, ENTRY), i < kept ? (int)(i % 200) : -1);
    assert_true(pushed(&r, 1024, ENTRY, 9)); /* and it goes on */
    for (unsigned i = 1; i < 4; i++) {
        dxpu_push_rule more = place();
        assert_int_equal(dxpu_push_store_add(&store, &more), (int)i);
    }
    r = place();
    assert_int_equal(dxpu_push_store_add(&store, &r), DXPU_E_ARG); /* as many as were offered */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u1_offers),
        cmocka_unit_test(test_u1_rules),
        cmocka_unit_test(test_u1_data),
        cmocka_unit_test(test_u1_vectors),
        cmocka_unit_test(test_u5_rules_are_checked),
        cmocka_unit_test(test_u2_offer_is_cut),
        cmocka_unit_test(test_u6_what_is_a_doorbell),
        cmocka_unit_test(test_u6_since),
        cmocka_unit_test(test_u6_since_to_the_end),
        cmocka_unit_test(test_u6_at),
        cmocka_unit_test(test_u2_nothing_without_an_offer),
        cmocka_unit_test(test_u13_taken_once),
        cmocka_unit_test(test_u13_touched),
        cmocka_unit_test(test_u12_what_is_expected),
        cmocka_unit_test(test_u12_other_writes_to_the_doorbell),
        cmocka_unit_test(test_u12_rule_made_late),
        cmocka_unit_test(test_u13_at_ends_with_the_next_doorbell),
        cmocka_unit_test(test_u14_withdrawn),
        cmocka_unit_test(test_u15_bounded),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
