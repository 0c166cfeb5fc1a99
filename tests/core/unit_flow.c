/* Credits and tags: spec/flow.md.  SPDX-License-Identifier: MIT */
#define DXPU_STATIC /* what is not called is not compiled */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <cmocka.h>

/* ---- credits ---- */

static void test_f2_units(void **state)
{
    static const struct {
        uint32_t bytes, units;
    } rows[] = { { 0, 0 },   { 1, 1 },      { 4, 1 },      { 16, 1 },
                 { 17, 2 },  { 32, 2 },     { 33, 3 },     { 64, 4 },
                 { 128, 8 }, { 4096, 256 }, { 4095, 256 }, { UINT32_MAX, 0x10000000u } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dxpu_credit_units(rows[i].bytes), rows[i].units);
}

static dxpu_credits credits(uint32_t header, uint32_t data)
{
    dxpu_credits c;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        c.header[cls] = header;
        c.data[cls] = data;
    }
    return c;
}

static void test_f6_fits(void **state)
{
    static const struct {
        uint32_t limit_header, used_header, limit_data, used_data, units;
        bool fits;
    } rows[] = {
        /*  0 */ { 1, 0, 0, 0, 0, true },
        /*  1 */ { 0, 0, 0, 0, 0, false }, /* no header unit */
        /*  2 */ { 1, 1, 9, 0, 0, false }, /* used up */
        /*  3 */ { 2, 1, 4, 0, 4, true },  /* exactly */
        /*  4 */ { 2, 1, 4, 0, 5, false }, /* one data unit short */
        /*  5 */ { 2, 1, 4, 1, 4, false }, /* the same, some used */
        /*  6 */ { 1, 1, 4, 0, 4, false }, /* data but no header */
        /*  7 */ { 1, 0, 7, 9, 0, true },  /* no data wanted: an overdrawn ledger is no matter */
        /*  8 */ { 1, 0, 7, 9, 1, false }, /* ... but counts as none left */
        /*  9 */ { 1, 2, 9, 0, 0, false }, /* beyond the limit, not 2^32 - 1 left */
        /* 10 */ { 3, 0xffffffffu, 2, 0xfffffffeu, 4, true }, /* over the wrap */
        /* 11 */ { 3, 0xffffffffu, 2, 0xfffffffeu, 5, false },
        /* 12 */ { 0, 0xffffffffu, 0, 0, 0, true },
        /* 13 */ { 0x7fffffffu, 0, 0x7fffffffu, 0, 0x7fffffffu, true }, /* furthest ahead, F-4 */
        /* 14 */ { 0x80000000u, 0, 1, 0, 0, false },                    /* half the circle */
        /* 15 */ { 1, 0, 8, 0, UINT32_MAX, false },                     /* no overflow */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            dxpu_credits limit = credits(0, 0), used = credits(0, 0);
            limit.header[cls] = rows[i].limit_header;
            limit.data[cls] = rows[i].limit_data;
            used.header[cls] = rows[i].used_header;
            used.data[cls] = rows[i].used_data;
            if (dxpu_credit_fits(&limit, &used, cls, rows[i].units) != rows[i].fits)
                fail_msg("row %zu class %u", i, cls);
        }
    }
}

static void test_f3_add_wraps_in_one_class(void **state)
{
    (void)state;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        dxpu_credits c = credits(0xffffffffu, 0xfffffffeu);
        dxpu_credit_add(&c, cls, 5);
        for (unsigned other = 0; other < DXPU_CLASSES; other++) {
            assert_int_equal(c.header[other], other == cls ? 0 : 0xffffffffu);
            assert_int_equal(c.data[other], other == cls ? 3 : 0xfffffffeu);
        }
    }
}

static bool raised(dxpu_credits *limit, const dxpu_credits *offer)
{
    dxpu_credits before = *limit;
    dxpui_credits_raise(limit, offer);
    return memcmp(&before, limit, sizeof before) != 0;
}

static void test_f4_limits_only_rise(void **state)
{
    dxpu_credits limit = credits(10, 100), offer = credits(10, 100);
    (void)state;
    assert_false(raised(&limit, &offer)); /* equal */
    offer = credits(9, 99);
    assert_false(raised(&limit, &offer)); /* a late frame with older limits */
    assert_int_equal(limit.header[DXPU_POSTED], 10);
    assert_int_equal(limit.data[DXPU_POSTED], 100);
    for (unsigned field = 0; field < 2 * DXPU_CLASSES; field++) { /* each field by itself */
        dxpu_credits before = limit;
        offer = credits(0, 0);
        if (field < DXPU_CLASSES)
            offer.header[field] = limit.header[field] + 1;
        else
            offer.data[field - DXPU_CLASSES] = limit.data[field - DXPU_CLASSES] + 7;
        assert_true(raised(&limit, &offer));
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            assert_int_equal(limit.header[cls], before.header[cls] + (field == cls));
            assert_int_equal(limit.data[cls],
                             before.data[cls] + (field == DXPU_CLASSES + cls ? 7u : 0u));
        }
    }
    limit = credits(0xfffffff0u, 0xffffffffu);
    offer = credits(4, 0);
    assert_true(raised(&limit, &offer)); /* over the wrap */
    assert_memory_equal(&limit, &offer, sizeof limit);
    offer = credits(0xfffffff0u, 0xffffffffu);
    assert_false(raised(&limit, &offer)); /* and not back */
    offer = credits(4 + 0x80000000u, 0x80000000u);
    assert_false(raised(&limit, &offer)); /* half the circle is before, F-4 */
}

/* ---- tags ---- */

#define OWN     DXPU_BDF(1, 0, 0)
#define OTHER   DXPU_BDF(7, 3, 1)
#define TIMEOUT 1000u

static dxpu_tlp request(unsigned type, uint16_t requester, unsigned tag)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = (uint8_t)type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.requester = requester;
    t.tag = (uint16_t)tag;
    return t;
}

/* A read of `bytes` from byte address `address`; 0 bytes: zero-length. */
static dxpu_tlp read_of(uint16_t requester, unsigned tag, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, requester, tag);
    uint32_t lead = (uint32_t)(address & 3), last = (lead + bytes) & 3;
    t.address = address - lead;
    t.length_dw = (uint16_t)((lead + (bytes ? bytes : 1) + 3) / 4);
    t.first_be = (uint8_t)(0xf << lead & 0xf);
    t.last_be = (uint8_t)(last ? 0xf >> (4 - last) : 0xf);
    if (t.length_dw == 1) {
        t.first_be = bytes ? (uint8_t)(t.first_be & t.last_be) : 0;
        t.last_be = 0;
    }
    return t;
}

static dxpu_tlp completion(const dxpu_tlp *req, unsigned type, unsigned length_dw,
                           unsigned byte_count, unsigned lower_addr)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = (uint8_t)type;
    t.header_dw = 3;
    t.requester = req->requester;
    t.tag = req->tag;
    t.completer = DXPU_BDF(0, 0, 7); /* anybody: completer IDs are not matched */
    t.length_dw = (uint16_t)length_dw;
    t.byte_count = (uint16_t)byte_count;
    t.lower_addr = (uint8_t)lower_addr;
    return t;
}

/* What the reserve should be, summed from the entries. */
static void check_reserve(const dxpu_tags *t)
{
    uint32_t header = 0, data = 0, in_flight = 0;
    for (uint32_t i = 0; i < t->capacity; i++) {
        const dxpu_tag_entry *e = &t->entries[i];
        if (e->state != DXPUI_TAG_IN_FLIGHT)
            continue;
        in_flight++;
        if (e->kind == DXPU_TLP_MRD || e->kind == DXPU_TLP_MRDLK) {
            uint32_t first = e->lower_addr / 64u, last = (e->lower_addr + e->left_bytes - 1u) / 64u;
            header += last - first + 1;
            data += (last - first + 1) * 4;
        } else {
            header++;
            data += e->left_bytes ? 1 : 0;
        }
    }
    assert_int_equal(t->in_flight, in_flight);
    assert_int_equal(t->reserve_header, header);
    assert_int_equal(t->reserve_data, data);
}

static void test_f20_init(void **state)
{
    static dxpu_tag_entry e[32768];
    dxpu_tags t;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 0, OWN, 0, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 32769, OWN, 0, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 1, OWN, 0, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 1, OWN, 31, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 33, OWN, DXPU_TAGS_32, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 257, OWN, DXPU_TAGS_256, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 769, OWN, DXPU_TAGS_768, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_tags_init(&t, e, 32768, OWN, 0, 1), DXPU_OK);
    for (unsigned i = 0; i < 32768; i++) { /* the 16-bit links reach the last one */
        dxpu_tlp r = request(DXPU_TLP_MRD, (uint16_t)(i >> 10), i & 1023);
        assert_int_equal(dxpu_tags_track(&t, &r, 0, i), DXPU_OK);
    }
    dxpu_tlp r = request(DXPU_TLP_MRD, 99, 0);
    assert_int_equal(dxpu_tags_track(&t, &r, 0, 0), DXPU_E_NO_TAG);
    for (unsigned i = 0; i < 32768; i++) {
        dxpu_request q;
        assert_true(dxpu_tags_pop(&t, &q));
        assert_int_equal(q.user, i);
    }
    check_reserve(&t);
}

static void test_f27_alloc_modes(void **state)
{
    static const struct {
        unsigned mode, capacity, first;
    } rows[] = { { DXPU_TAGS_32, 32, 0 },
                 { DXPU_TAGS_256, 256, 0 },
                 { DXPU_TAGS_768, 768, 256 },
                 { DXPU_TAGS_768, 5, 256 },
                 { DXPU_TAGS_32, 1, 0 } };
    static dxpu_tag_entry e[768];
    dxpu_tags t;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(dxpu_tags_init(&t, e, rows[i].capacity, OWN, rows[i].mode, TIMEOUT), 0);
        for (unsigned tag = 0; tag < rows[i].capacity; tag++)
            assert_int_equal(dxpu_tags_alloc(&t), rows[i].first + tag);
        assert_int_equal(dxpu_tags_alloc(&t), DXPU_E_NO_TAG);
        assert_int_equal(t.in_flight, 0);
    }
    assert_int_equal(dxpu_tags_init(&t, e, 768, OWN, 0, TIMEOUT), 0);
    assert_int_equal(dxpu_tags_alloc(&t), DXPU_E_NO_TAG);
}

static void test_f28_oldest_freed_first(void **state)
{
    dxpu_tag_entry e[4];
    dxpu_tags t;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 4, OWN, DXPU_TAGS_32, TIMEOUT), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(dxpu_tags_alloc(&t), i);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 2), DXPU_OK);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 0), DXPU_OK);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 3), DXPU_OK);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 3), DXPU_E_NONE);
    assert_int_equal(dxpu_tags_alloc(&t), 2);
    assert_int_equal(dxpu_tags_alloc(&t), 0);
    assert_int_equal(dxpu_tags_alloc(&t), 3);
    assert_int_equal(dxpu_tags_alloc(&t), DXPU_E_NO_TAG);
}

static void test_f27_others_borrow_entries(void **state)
{
    dxpu_tag_entry e[3];
    dxpu_tags t;
    dxpu_tlp other = request(DXPU_TLP_MRD, OTHER, 900), own = request(DXPU_TLP_MRD, OWN, 1);
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 3, OWN, DXPU_TAGS_32, TIMEOUT), 0);
    assert_int_equal(dxpu_tags_track(&t, &other, 0, 1), DXPU_OK); /* takes entry 0, so tag 0 */
    assert_int_equal(dxpu_tags_alloc(&t), 1);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 1), DXPU_OK);      /* free: 2, 1 */
    assert_int_equal(dxpu_tags_track(&t, &own, 0, 2), DXPU_OK); /* own tag 1 in entry 2 */
    assert_int_equal(dxpu_tags_alloc(&t), DXPU_E_NO_TAG);       /* entry 1 is free, tag 1 is not */
    assert_int_equal(dxpu_tags_drop(&t, OTHER, 900), DXPU_OK);  /* free: 1, 0 */
    assert_int_equal(dxpu_tags_alloc(&t), 0);                   /* 1 passed over */
    assert_int_equal(dxpu_tags_drop(&t, OWN, 1), DXPU_OK);
    assert_int_equal(dxpu_tags_alloc(&t), 1);
}

static void test_f21_states(void **state)
{
    dxpu_tag_entry e[2];
    dxpu_tags t;
    dxpu_request q;
    dxpu_tlp r = read_of(OWN, 0, 0x1000, 4), c = completion(&r, DXPU_TLP_CPLD, 1, 4, 0);
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 2, OWN, DXPU_TAGS_32, TIMEOUT), 0);
    /* free */
    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_E_CPL_UNEXPECTED);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 0), DXPU_E_NONE);
    assert_false(dxpu_tags_expire(&t, DXPU_NEVER, &q));
    assert_int_equal(dxpu_tags_alloc(&t), 0);
    /* allocated */
    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_E_CPL_UNEXPECTED);
    assert_false(dxpu_tags_expire(&t, DXPU_NEVER, &q));
    assert_false(dxpu_tags_pop(&t, &q));
    assert_int_equal(dxpu_tags_next_ns(&t), DXPU_NEVER);
    assert_int_equal(dxpu_tags_track(&t, &r, 50, 77), DXPU_OK);
    /* in flight */
    assert_int_equal(t.in_flight, 1);
    assert_int_equal(dxpu_tags_track(&t, &r, 50, 78), DXPU_E_TAG_BUSY);
    assert_int_equal(dxpu_tags_alloc(&t), 1);
    assert_int_equal(dxpu_tags_next_ns(&t), 50 + TIMEOUT);
    assert_false(dxpu_tags_expire(&t, 50 + TIMEOUT - 1, &q));
    assert_true(dxpu_tags_expire(&t, 50 + TIMEOUT, &q));
    assert_int_equal(q.user, 77);
    assert_int_equal(q.requester, OWN);
    assert_int_equal(q.tag, 0);
    assert_int_equal(q.left_bytes, 4);
    assert_true(q.done);
    /* resting */
    assert_int_equal(t.in_flight, 0);
    assert_int_equal(t.count_expired, 1);
    assert_int_equal(dxpu_tags_track(&t, &r, 60 + TIMEOUT, 79), DXPU_E_TAG_BUSY);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 0), DXPU_E_NONE);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 1), DXPU_OK);
    assert_int_equal(dxpu_tags_alloc(&t), 1); /* 0 rests */
    assert_int_equal(dxpu_tags_alloc(&t), DXPU_E_NO_TAG);
    assert_int_equal(t.count_unexpected, 2);
    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_E_CPL_UNEXPECTED);
    assert_int_equal(t.count_unexpected, 3);
    assert_int_equal(dxpu_tags_next_ns(&t), 50 + 2 * TIMEOUT);
    assert_false(dxpu_tags_expire(&t, 50 + 2 * TIMEOUT - 1, &q));
    assert_int_equal(dxpu_tags_alloc(&t), DXPU_E_NO_TAG);
    assert_false(dxpu_tags_expire(&t, 50 + 2 * TIMEOUT, &q));
    /* free */
    assert_int_equal(dxpu_tags_next_ns(&t), DXPU_NEVER);
    assert_int_equal(dxpu_tags_alloc(&t), 0);
    check_reserve(&t);
}

static void test_f31_track_ends_a_rest(void **state)
{
    dxpu_tag_entry e[1];
    dxpu_tags t;
    dxpu_request q;
    dxpu_tlp r = read_of(OTHER, 5, 0, 4);
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 1, OWN, 0, TIMEOUT), 0);
    assert_int_equal(dxpu_tags_track(&t, &r, 0, 1), DXPU_OK);
    assert_true(dxpu_tags_expire(&t, 1500, &q)); /* seen late: the rest begins now */
    assert_int_equal(dxpu_tags_track(&t, &r, 2499, 2), DXPU_E_TAG_BUSY);
    r.tag = 6;
    assert_int_equal(dxpu_tags_track(&t, &r, 2499, 2), DXPU_E_NO_TAG);
    r.tag = 5;
    assert_int_equal(dxpu_tags_track(&t, &r, 2500, 2), DXPU_OK);
}

static void test_f30_timeouts(void **state)
{
    dxpu_tag_entry e[3];
    dxpu_tags t;
    dxpu_request q;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 3, OWN, 0, TIMEOUT), 0);
    for (unsigned i = 0; i < 3; i++) {
        dxpu_tlp r = read_of(OTHER, i, 0, 4);
        assert_int_equal(dxpu_tags_track(&t, &r, i * 10, i), DXPU_OK);
    }
    assert_int_equal(dxpu_tags_drop(&t, OTHER, 1), DXPU_OK); /* from the middle of the list */
    assert_int_equal(dxpu_tags_next_ns(&t), TIMEOUT);
    for (unsigned i = 0; i < 3; i += 2) { /* in order of deadline */
        assert_true(dxpu_tags_expire(&t, 5000, &q));
        assert_int_equal(q.user, i);
    }
    assert_false(dxpu_tags_expire(&t, 5000, &q));
    /* no timeout at all, and one that would wrap */
    static const uint64_t timeouts[] = { DXPU_NEVER, DXPU_NEVER - 5 };
    for (unsigned i = 0; i < 2; i++) {
        dxpu_tlp r = read_of(OTHER, 0, 0, 4);
        assert_int_equal(dxpu_tags_init(&t, e, 3, OWN, 0, timeouts[i]), 0);
        assert_int_equal(dxpu_tags_track(&t, &r, 10, 0), DXPU_OK);
        assert_int_equal(dxpu_tags_next_ns(&t), DXPU_NEVER);
        assert_false(dxpu_tags_expire(&t, DXPU_NEVER, &q));
        assert_true(dxpu_tags_pop(&t, &q)); /* the control: it is there */
    }
}

static void test_f33_pop_empties(void **state)
{
    dxpu_tag_entry e[4];
    dxpu_tags t;
    dxpu_request q;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 4, OWN, DXPU_TAGS_32, TIMEOUT), 0);
    for (unsigned i = 0; i < 3; i++) {
        dxpu_tlp r = read_of(OTHER, i, 64, 256);
        assert_int_equal(dxpu_tags_track(&t, &r, i * 100, 40 + i), DXPU_OK);
    }
    assert_true(dxpu_tags_expire(&t, TIMEOUT, &q));
    assert_int_equal(dxpu_tags_alloc(&t), 3);
    for (unsigned i = 1; i < 3; i++) {
        assert_true(dxpu_tags_pop(&t, &q));
        assert_int_equal(q.user, 40 + i);
        assert_int_equal(q.requester, OTHER);
        assert_int_equal(q.tag, i);
        assert_int_equal(q.left_bytes, 256);
        assert_true(q.done);
    }
    assert_int_equal(dxpu_tags_next_ns(&t), TIMEOUT * 2); /* one still rests */
    assert_false(dxpu_tags_pop(&t, &q));
    assert_int_equal(dxpu_tags_next_ns(&t), DXPU_NEVER);
    check_reserve(&t);
    assert_int_equal(t.reserve_header, 0);
    assert_int_equal(dxpu_tags_drop(&t, OWN, 3), DXPU_OK); /* allocated tags are the caller's */
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(e[i].state, DXPUI_TAG_FREE);
}

static void test_f20_track_wants_nonposted(void **state)
{
    dxpu_tag_entry e[32];
    dxpu_tags t;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 32, OWN, 0, TIMEOUT), 0);
    for (unsigned type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        dxpu_tlp r = request(type, OWN, type);
        int want = dxpu_tlp_class(&r) == DXPU_NONPOSTED ? DXPU_OK : DXPU_E_ARG;
        assert_int_equal(dxpu_tags_track(&t, &r, 0, 0), want);
    }
    assert_int_equal(t.in_flight, 12);
    check_reserve(&t);
}

static void test_f22_matched_by_requester_and_tag(void **state)
{
    static const uint16_t tags[] = { 0, 31, 255, 256, 1023, 16383, 65535 };
    dxpu_tag_entry e[16];
    dxpu_tags t;
    dxpu_request q;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 16, OWN, 0, TIMEOUT), 0);
    for (unsigned i = 0; i < 7; i++) { /* the same tags of two requesters */
        dxpu_tlp a = request(DXPU_TLP_CFGRD0, OWN, tags[i]), b = a;
        b.requester = OTHER;
        assert_int_equal(dxpu_tags_track(&t, &a, 0, i), DXPU_OK);
        assert_int_equal(dxpu_tags_track(&t, &b, 0, 100 + i), DXPU_OK);
    }
    for (unsigned i = 0; i < 7; i++) {
        dxpu_tlp b = request(DXPU_TLP_CFGRD0, OTHER, tags[i]);
        dxpu_tlp c = completion(&b, DXPU_TLP_CPLD, 1, 4, 0);
        c.completer = (uint16_t)(i * 4099); /* F-22: whoever completes */
        assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
        assert_int_equal(q.user, 100 + i);
        assert_int_equal(q.requester, OTHER);
        assert_int_equal(q.tag, tags[i]);
        assert_true(q.done);
        assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_E_CPL_UNEXPECTED); /* once */
    }
    assert_int_equal(t.in_flight, 7);
    dxpu_tlp b = request(DXPU_TLP_CFGRD0, OTHER, 0);
    assert_int_equal(dxpu_tags_complete(&t, &b, &q), DXPU_E_ARG); /* a request */
    assert_int_equal(t.count_unexpected, 7);
}

static void test_f24_worst(void **state)
{
    static const struct {
        unsigned lower, bytes, header;
    } rows[] = { { 0, 64, 1 },    { 0, 65, 2 },  { 63, 1, 1 },  { 63, 2, 2 },    { 64, 64, 1 },
                 { 65, 64, 2 },   { 127, 1, 1 }, { 127, 2, 2 }, { 0, 4096, 64 }, { 4, 4092, 64 },
                 { 4, 4096, 65 }, { 0, 0, 1 },   { 63, 0, 1 },  { 0, 1, 1 } };
    uint32_t header, data;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_tags_worst((uint8_t)rows[i].lower, rows[i].bytes, &header, &data);
        assert_int_equal(header, rows[i].header);
        assert_int_equal(data, rows[i].header * 4);
    }
    dxpu_tags_worst(127, UINT32_MAX, &header, &data);
    assert_int_equal(header, 0x4000001u);
    for (unsigned lower = 0; lower < 128; lower++) { /* counted piece by piece */
        for (unsigned bytes = 1; bytes <= 300; bytes++) {
            unsigned pieces = 0;
            for (unsigned at = lower; at < lower + bytes; at = (at / 64 + 1) * 64)
                pieces++;
            dxpu_tags_worst((uint8_t)lower, bytes, &header, &data);
            assert_int_equal(header, pieces);
        }
    }
}

/* Every split of a read at 64-byte boundaries is counted down, and the reserve with it. */
static void complete_read(dxpu_tags *t, uint64_t address, uint32_t bytes, uint32_t (*dice)(void))
{
    dxpu_tlp r = read_of(OTHER, 1, address, bytes);
    uint64_t at = address, end = address + (bytes ? bytes : 1);
    dxpu_request q;
    assert_int_equal(dxpu_tags_track(t, &r, 0, 9), DXPU_OK);
    if (bytes == 0)
        at = address & ~(uint64_t)3, end = at + 1;
    while (at < end) {
        uint64_t stop = (at / 64 + 1 + dice() % 8) * 64;
        stop = stop < end ? stop : end;
        dxpu_tlp c = completion(&r, DXPU_TLP_CPLD, (unsigned)((stop + 3) / 4 - at / 4),
                                (unsigned)(end - at), (unsigned)(at & 127));
        assert_int_equal(dxpu_tags_complete(t, &c, &q), DXPU_OK);
        check_reserve(t);
        at = stop;
        assert_int_equal(q.left_bytes, end - at);
        assert_int_equal(q.done, at == end);
        assert_int_equal(q.user, 9);
    }
    assert_int_equal(t->in_flight, 0);
    assert_int_equal(t->reserve_header, 0);
}

static uint64_t dice_state = 1;
static uint32_t dice(void)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice_state >> 33);
}
static uint32_t dice_0(void)
{
    return 0;
}

static void test_f23_splits(void **state)
{
    dxpu_tag_entry e[2];
    dxpu_tags t;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 2, OWN, 0, TIMEOUT), 0);
    for (unsigned lower = 0; lower < 130; lower++)
        for (unsigned bytes = 1; bytes < 200; bytes += 1 + bytes / 30)
            complete_read(&t, 0xfffff000u + lower, bytes, dice);
    complete_read(&t, 0x1000, 4096, dice_0);
    complete_read(&t, 0x1001, 4095, dice_0);
    complete_read(&t, 0x1040, 0, dice_0);
    complete_read(&t, 0x107c, 0, dice_0);
    assert_int_equal(t.count_bytes + t.count_unexpected, 0);
}

static void test_f23_agrees_with_the_completer(void **state)
{
    static const uint32_t rcbs[] = { 64, 128 };
    dxpu_tag_entry e[2];
    dxpu_tags t;
    dxpu_request q;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 2, OWN, 0, TIMEOUT), 0);
    for (unsigned i = 0; i < 3000; i++) {
        uint32_t bytes = dice() % 4097, room;
        uint64_t address = (uint64_t)dice() << 12 | (dice() & 0xfff), address_dw;
        room = 4096 - (uint32_t)(address & 0xfff);
        dxpu_tlp r = read_of(OTHER, 1, address, bytes < room ? bytes : room);
        dxpu_tlp c = completion(&r, DXPU_TLP_CPLD, 1, 1, 0);
        dxpu_cpl_split s;
        assert_int_equal(dxpu_cpl_split_start(&s, &r, rcbs[i & 1], 128u << (i % 6)), DXPU_OK);
        assert_int_equal(dxpu_tags_track(&t, &r, 0, i), DXPU_OK);
        bool done = false;
        while (dxpu_cpl_split_next(&s, &c, &address_dw)) {
            assert_false(done);
            assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
            done = q.done;
        }
        assert_true(done);
    }
}

/* One wrong field at a time: refused, counted, nothing changed; then the right one is taken. */
static void test_f26_wrong_bytes(void **state)
{
    static const struct {
        uint32_t address, bytes;
        unsigned type, length_dw, byte_count, lower;
    } rows[] = {
        /*  0 */ { 0x1004, 124, DXPU_TLP_CPLD, 31, 123, 4 },  /* Byte Count below */
        /*  1 */ { 0x1004, 124, DXPU_TLP_CPLD, 31, 125, 4 },  /* above */
        /*  2 */ { 0x1004, 124, DXPU_TLP_CPLD, 31, 124, 0 },  /* Lower Address */
        /*  3 */ { 0x1004, 124, DXPU_TLP_CPLD, 31, 124, 68 }, /* ... its bit 6 */
        /*  4 */ { 0x1004, 124, DXPU_TLP_CPLD, 32, 124, 4 },  /* too much */
        /*  5 */ { 0x1004, 124, DXPU_TLP_CPLD, 30, 124, 4 },  /* a part off the boundary */
        /*  6 */ { 0x1004, 124, DXPU_TLP_CPLD, 16, 124, 4 },  /* a part of 64 bytes, off it */
        /*  7 */ { 0x1004, 124, DXPU_TLP_CPLD, 0, 124, 4 },   /* no data */
        /*  8 */ { 0x1000, 128, DXPU_TLP_CPLD, 0, 128, 0 },   /* no data, on a boundary */
        /*  9 */ { 0x1004, 124, DXPU_TLP_CPLDLK, 31, 124, 4 },
        /* 10 */ { 0x1004, 124, DXPU_TLP_CPL, 0, 124, 4 }, /* success without data */
        /* 11 */ { 0x1004, 124, DXPU_TLP_CPLLK, 0, 124, 4 },
        /* 12 */ { 0x1003, 2, DXPU_TLP_CPLD, 1, 2, 3 }, /* bytes 3 and 4 need two dwords */
        /* 13 */ { 0x1003, 2, DXPU_TLP_CPLD, 3, 2, 3 },
        /* 14 */ { 0x1040, 0, DXPU_TLP_CPLD, 1, 0, 64 }, /* zero-length says 1 */
        /* 15 */ { 0x1040, 0, DXPU_TLP_CPLD, 1, 4, 64 },
        /* 16 */ { 0x1040, 0, DXPU_TLP_CPLD, 2, 1, 64 },
        /* 17 */ { 0x1000, 4096, DXPU_TLP_CPLD, 1023, 4096, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_tag_entry e[2], before[2];
        dxpu_tags t, t_before;
        dxpu_request q, q_before;
        memset(&q, 0x5a, sizeof q);
        dxpu_tlp r = read_of(OTHER, 1, rows[i].address, rows[i].bytes);
        assert_int_equal(dxpu_tags_init(&t, e, 2, OWN, 0, TIMEOUT), 0);
        assert_int_equal(dxpu_tags_track(&t, &r, 0, 1), DXPU_OK);
        dxpu_tlp c =
            completion(&r, rows[i].type, rows[i].length_dw, rows[i].byte_count, rows[i].lower);
        t_before = t;
        q_before = q;
        memcpy(before, e, sizeof e);
        if (dxpu_tags_complete(&t, &c, &q) != DXPU_E_CPL_BYTES)
            fail_msg("row %zu", i);
        assert_int_equal(t.count_bytes, 1);
        t.count_bytes = 0;
        assert_memory_equal(&t, &t_before, sizeof t);
        assert_memory_equal(&q, &q_before, sizeof q);
        assert_memory_equal(e, before, sizeof e);
        uint32_t bytes = rows[i].bytes ? rows[i].bytes : 1; /* the control */
        uint32_t lower = rows[i].address & 127;
        c = completion(&r, DXPU_TLP_CPLD, ((lower & 3) + bytes + 3) / 4, bytes, lower);
        assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
        assert_true(q.done);
    }
}

/* What each kind of request is completed by: type, length, byte count; and what not. */
static void test_f26_kinds(void **state)
{
    enum { CPL = DXPU_TLP_CPL, CPLD = DXPU_TLP_CPLD, LK = DXPU_TLP_CPLLK, DLK = DXPU_TLP_CPLDLK };
    static const struct {
        unsigned type, request_dw, cpl, length_dw, byte_count;
        bool ok;
    } rows[] = {
        { DXPU_TLP_MRDLK, 1, DLK, 1, 4, true },      { DXPU_TLP_MRDLK, 1, CPLD, 1, 4, false },
        { DXPU_TLP_MRDLK, 1, LK, 0, 4, false },      { DXPU_TLP_MRDLK, 1, CPL, 0, 4, false },
        { DXPU_TLP_IORD, 1, CPLD, 1, 4, true },      { DXPU_TLP_IORD, 1, CPLD, 1, 1, false },
        { DXPU_TLP_IORD, 1, CPLD, 2, 4, false },     { DXPU_TLP_IORD, 1, CPLD, 0, 4, false },
        { DXPU_TLP_IORD, 1, CPL, 0, 4, false },      { DXPU_TLP_IORD, 1, DLK, 1, 4, false },
        { DXPU_TLP_CFGRD0, 1, CPLD, 1, 4, true },    { DXPU_TLP_CFGRD0, 1, CPLD, 2, 8, false },
        { DXPU_TLP_CFGRD1, 1, CPLD, 1, 4, true },    { DXPU_TLP_CFGRD1, 1, CPL, 0, 4, false },
        { DXPU_TLP_IOWR, 1, CPL, 0, 4, true },       { DXPU_TLP_IOWR, 1, CPLD, 1, 4, false },
        { DXPU_TLP_IOWR, 1, CPLD, 0, 0, false },     { DXPU_TLP_CFGWR0, 1, CPL, 0, 4, true },
        { DXPU_TLP_CFGWR0, 1, LK, 0, 4, false },     { DXPU_TLP_CFGWR1, 1, CPL, 0, 4, true },
        { DXPU_TLP_CFGWR1, 1, CPLD, 1, 4, false },   { DXPU_TLP_DMWR, 32, CPL, 0, 4, true },
        { DXPU_TLP_DMWR, 32, CPL, 0, 77, true }, /* not judged without data */
        { DXPU_TLP_DMWR, 32, CPLD, 32, 128, false }, { DXPU_TLP_FETCHADD, 1, CPLD, 1, 4, true },
        { DXPU_TLP_FETCHADD, 2, CPLD, 2, 8, true },  { DXPU_TLP_FETCHADD, 2, CPLD, 1, 8, false },
        { DXPU_TLP_FETCHADD, 2, CPLD, 2, 4, false }, { DXPU_TLP_SWAP, 1, CPLD, 1, 4, true },
        { DXPU_TLP_SWAP, 2, CPLD, 2, 8, true },      { DXPU_TLP_SWAP, 2, CPL, 0, 8, false },
        { DXPU_TLP_CAS, 2, CPLD, 1, 4, true },       { DXPU_TLP_CAS, 4, CPLD, 2, 8, true },
        { DXPU_TLP_CAS, 8, CPLD, 4, 16, true },      { DXPU_TLP_CAS, 8, CPLD, 8, 32, false },
        { DXPU_TLP_CAS, 4, CPLD, 1, 4, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_tag_entry e[1];
        dxpu_tags t;
        dxpu_request q;
        dxpu_tlp r = request(rows[i].type, OTHER, 3);
        r.length_dw = (uint16_t)rows[i].request_dw;
        r.address = 0xfe10;
        assert_int_equal(dxpu_tags_init(&t, e, 1, OWN, 0, TIMEOUT), 0);
        assert_int_equal(dxpu_tags_track(&t, &r, 0, 1), DXPU_OK);
        check_reserve(&t);
        dxpu_tlp c = completion(&r, rows[i].cpl, rows[i].length_dw, rows[i].byte_count,
                                rows[i].type == DXPU_TLP_MRDLK ? 0x10 : 0);
        int rc = dxpu_tags_complete(&t, &c, &q);
        if (rc != (rows[i].ok ? DXPU_OK : DXPU_E_CPL_BYTES))
            fail_msg("row %zu: %d", i, rc);
        check_reserve(&t);
        if (rows[i].ok) {
            assert_true(q.done);
            assert_int_equal(q.left_bytes, 0);
        }
        assert_int_equal(t.in_flight, rows[i].ok ? 0 : 1);
    }
}

static void test_f26_errors_end_any_request(void **state)
{
    static const uint8_t statuses[] = { DXPU_CPL_UR, DXPU_CPL_CRS, DXPU_CPL_CA };
    dxpu_tag_entry e[1];
    dxpu_tags t;
    dxpu_request q;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 1, OWN, 0, TIMEOUT), 0);
    for (unsigned type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        dxpu_tlp r = request(type, OTHER, 3);
        if (dxpu_tlp_class(&r) != DXPU_NONPOSTED)
            continue;
        for (unsigned i = 0; i < 3; i++) {
            for (unsigned locked = 0; locked < 2; locked++) {
                assert_int_equal(dxpu_tags_track(&t, &r, 0, 1), DXPU_OK);
                dxpu_tlp c = completion(&r, DXPU_TLP_CPLD, 1, 4, 0);
                c.status = statuses[i]; /* not with data */
                assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_E_CPL_BYTES);
                c.type = locked ? DXPU_TLP_CPLLK : DXPU_TLP_CPL;
                c.length_dw = 0;
                c.byte_count = 99; /* not judged */
                if (locked && type != DXPU_TLP_MRDLK) {
                    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_E_CPL_BYTES);
                    c.type = DXPU_TLP_CPL;
                }
                assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
                assert_true(q.done);
                check_reserve(&t);
            }
        }
    }
    /* in the middle of a read */
    dxpu_tlp r = read_of(OTHER, 3, 0x1000, 256);
    assert_int_equal(dxpu_tags_track(&t, &r, 0, 1), DXPU_OK);
    dxpu_tlp c = completion(&r, DXPU_TLP_CPLD, 16, 256, 0);
    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
    assert_false(q.done);
    c = completion(&r, DXPU_TLP_CPL, 0, 192, 0);
    c.status = DXPU_CPL_UR;
    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
    assert_true(q.done);
    assert_int_equal(q.left_bytes, 192);
    assert_int_equal(t.reserve_header, 0);
    assert_int_equal(t.reserve_data, 0);
}

static void test_f25_reserve(void **state)
{
    dxpu_tag_entry e[8];
    dxpu_tags t;
    dxpu_request q;
    (void)state;
    assert_int_equal(dxpu_tags_init(&t, e, 8, OWN, 0, TIMEOUT), 0);
    dxpu_tlp r = read_of(OTHER, 0, 0x1020, 512); /* nine pieces */
    assert_int_equal(dxpu_tags_track(&t, &r, 0, 1), DXPU_OK);
    assert_int_equal(t.reserve_header, 9);
    assert_int_equal(t.reserve_data, 36);
    dxpu_tlp w = request(DXPU_TLP_CFGWR0, OTHER, 1), a = request(DXPU_TLP_CAS, OTHER, 2);
    a.length_dw = 8;
    assert_int_equal(dxpu_tags_track(&t, &w, 0, 1), DXPU_OK);
    assert_int_equal(t.reserve_header, 10);
    assert_int_equal(t.reserve_data, 36);
    assert_int_equal(dxpu_tags_track(&t, &a, 0, 1), DXPU_OK);
    assert_int_equal(t.reserve_header, 11);
    assert_int_equal(t.reserve_data, 37);
    dxpu_tlp c = completion(&r, DXPU_TLP_CPLD, 24, 512, 0x20); /* 96 bytes: two pieces */
    assert_int_equal(dxpu_tags_complete(&t, &c, &q), DXPU_OK);
    assert_int_equal(t.reserve_header, 9);
    assert_int_equal(t.reserve_data, 29);
    assert_int_equal(dxpu_tags_drop(&t, OTHER, 2), DXPU_OK);
    assert_int_equal(t.reserve_header, 8);
    assert_int_equal(t.reserve_data, 28);
    assert_true(dxpu_tags_expire(&t, TIMEOUT, &q));
    assert_int_equal(q.left_bytes, 416);
    assert_int_equal(t.reserve_header, 1);
    assert_int_equal(t.reserve_data, 0);
    assert_true(dxpu_tags_pop(&t, &q));
    assert_int_equal(t.reserve_header, 0);
}

/* ---- the table against a naive model ---- */

#define SLOTS 12
typedef struct model_slot {
    int state;
    dxpu_tlp req;
    uint64_t at, end, deadline, user;
} model_slot;
typedef struct model {
    model_slot slot[SLOTS];
    int list[4][SLOTS], count[4]; /* free, -, live, resting; in order */
    uint64_t expired, unexpected, bytes;
} model;

static int model_find(const model *m, uint16_t requester, uint16_t tag)
{
    for (int i = 0; i < SLOTS; i++) {
        const model_slot *s = &m->slot[i];
        if (s->state != DXPUI_TAG_FREE && s->req.requester == requester && s->req.tag == tag)
            return i;
    }
    return -1;
}

static void model_move(model *m, int i, int to)
{
    int from = m->slot[i].state, kept = 0;
    for (int k = 0; k < m->count[from]; k++)
        if (m->list[from][k] != i)
            m->list[from][kept++] = m->list[from][k];
    m->count[from] = kept;
    m->list[to][m->count[to]++] = i;
    m->slot[i].state = to;
}

static void model_wake(model *m, uint64_t now)
{
    while (m->count[3] && m->slot[m->list[3][0]].deadline <= now)
        model_move(m, m->list[3][0], DXPUI_TAG_FREE);
}

static int model_alloc(model *m)
{
    for (int k = 0; k < m->count[0]; k++) {
        int i = m->list[0][k];
        if (model_find(m, OWN, (uint16_t)(256 + i)) >= 0)
            continue;
        m->slot[i].req = request(DXPU_TLP_MRD, OWN, 256u + (unsigned)i);
        model_move(m, i, DXPUI_TAG_ALLOCATED);
        return 256 + i;
    }
    return DXPU_E_NO_TAG;
}

static int model_track(model *m, const dxpu_tlp *r, uint64_t now, uint64_t user)
{
    int i = model_find(m, r->requester, r->tag);
    if (i >= 0 && m->slot[i].state != DXPUI_TAG_ALLOCATED)
        return DXPU_E_TAG_BUSY;
    if (i < 0 && m->count[0] == 0)
        return DXPU_E_NO_TAG;
    i = i < 0 ? m->list[0][0] : i;
    model_slot *s = &m->slot[i];
    model_move(m, i, DXPUI_TAG_IN_FLIGHT);
    s->req = *r;
    s->user = user;
    s->deadline = now + TIMEOUT;
    s->at = s->end = 0;
    if (r->type == DXPU_TLP_MRD) {
        unsigned lead = 0, trail = 0;
        unsigned last = r->length_dw > 1 ? r->last_be : r->first_be;
        while (lead < 3 && r->first_be && !(r->first_be >> lead & 1))
            lead++;
        while (trail < 3 && last && !(last >> (3 - trail) & 1))
            trail++;
        s->at = r->address + lead;
        s->end = r->first_be ? r->address + r->length_dw * 4u - trail : s->at + 1;
    } else if (r->type == DXPU_TLP_CFGRD0) {
        s->end = 4;
    }
    return DXPU_OK;
}

static int model_complete(model *m, const dxpu_tlp *c, model_slot *told, bool *done)
{
    int i = model_find(m, c->requester, c->tag);
    if (i < 0 || m->slot[i].state != DXPUI_TAG_IN_FLIGHT) {
        m->unexpected++;
        return DXPU_E_CPL_UNEXPECTED;
    }
    model_slot *s = &m->slot[i];
    uint64_t stop = s->at;
    bool ok = c->type == DXPU_TLP_CPL && (c->status || s->end == s->at);
    *done = ok;
    if (c->type == DXPU_TLP_CPLD && !c->status && s->end > s->at) {
        stop = (s->at & ~(uint64_t)3) + c->length_dw * 4u;
        ok = c->byte_count == s->end - s->at;
        if (s->req.type == DXPU_TLP_MRD)
            ok = ok && c->lower_addr == (s->at & 127);
        if (stop >= s->end) {
            ok = ok && stop < s->end + 4;
            stop = s->end;
        } else {
            ok = ok && s->req.type == DXPU_TLP_MRD && stop % 64 == 0 && stop > s->at;
        }
        *done = stop == s->end;
    }
    if (!ok) {
        m->bytes++;
        return DXPU_E_CPL_BYTES;
    }
    s->at = stop;
    *told = *s;
    if (*done)
        model_move(m, i, DXPUI_TAG_FREE);
    return DXPU_OK;
}

static bool model_expire(model *m, uint64_t now, model_slot *told)
{
    model_wake(m, now);
    if (!m->count[2] || m->slot[m->list[2][0]].deadline > now)
        return false;
    int i = m->list[2][0];
    *told = m->slot[i];
    model_move(m, i, DXPUI_TAG_RESTING);
    m->slot[i].deadline = now + TIMEOUT;
    m->expired++;
    return true;
}

static bool model_pop(model *m, model_slot *told)
{
    if (m->count[2]) {
        *told = m->slot[m->list[2][0]];
        model_move(m, m->list[2][0], DXPUI_TAG_FREE);
        return true;
    }
    while (m->count[3])
        model_move(m, m->list[3][0], DXPUI_TAG_FREE);
    return false;
}

static int model_drop(model *m, uint16_t requester, uint16_t tag)
{
    int i = model_find(m, requester, tag);
    if (i < 0 || m->slot[i].state == DXPUI_TAG_RESTING)
        return DXPU_E_NONE;
    model_move(m, i, DXPUI_TAG_FREE);
    return DXPU_OK;
}

static void model_agrees(const model *m, const dxpu_tags *t)
{
    uint64_t next = DXPU_NEVER;
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(t->entries[i].state, m->slot[i].state);
        if (m->slot[i].state == DXPUI_TAG_IN_FLIGHT || m->slot[i].state == DXPUI_TAG_RESTING)
            next = m->slot[i].deadline < next ? m->slot[i].deadline : next;
    }
    assert_int_equal(dxpu_tags_next_ns(t), next);
    assert_int_equal(t->count_expired, m->expired);
    assert_int_equal(t->count_unexpected, m->unexpected);
    assert_int_equal(t->count_bytes, m->bytes);
    check_reserve(t);
}

static void told_agrees(const model_slot *s, bool done, const dxpu_request *q)
{
    assert_int_equal(q->user, s->user);
    assert_int_equal(q->requester, s->req.requester);
    assert_int_equal(q->tag, s->req.tag);
    assert_int_equal(q->left_bytes, s->end - s->at);
    assert_int_equal(q->done, done);
}

/* A completion that mostly fits some request in flight. */
static dxpu_tlp model_completion(const model *m)
{
    dxpu_tlp none = request(DXPU_TLP_MRD, dice() % 2 ? OWN : OTHER, 256 + dice() % 16);
    if (!m->count[2] || dice() % 8 == 0)
        return completion(&none, DXPU_TLP_CPLD, 1, 4, 0);
    const model_slot *s = &m->slot[m->list[2][dice() % (unsigned)m->count[2]]];
    uint64_t stop = (s->at / 64 + 1 + dice() % 4) * 64;
    stop = stop < s->end ? stop : s->end;
    bool data = s->end > s->at;
    dxpu_tlp c = completion(&s->req, data ? DXPU_TLP_CPLD : DXPU_TLP_CPL,
                            data ? (unsigned)((stop + 3) / 4 - s->at / 4) : 0,
                            (unsigned)(s->end - s->at), (unsigned)(s->at & 127));
    switch (dice() % 16) {
    case 0:
        c.length_dw = (uint16_t)(c.length_dw + 1 + dice() % 16);
        break;
    case 1:
        c.length_dw = (uint16_t)(c.length_dw ? c.length_dw - 1 : 0);
        break;
    case 2:
        c.byte_count ^= (uint16_t)(1u << dice() % 12);
        break;
    case 3:
        c.lower_addr ^= (uint8_t)(1u << dice() % 7);
        break;
    case 4:
        c.type = c.type == DXPU_TLP_CPL ? DXPU_TLP_CPLD : DXPU_TLP_CPL;
        break;
    case 5:
        c.type = DXPU_TLP_CPL;
        c.status = DXPU_CPL_UR;
        break;
    default:
        break;
    }
    return c;
}

static dxpu_tlp model_request(void)
{
    static const uint8_t types[] = { DXPU_TLP_MRD, DXPU_TLP_MRD, DXPU_TLP_CFGRD0, DXPU_TLP_CFGWR0 };
    unsigned type = types[dice() % 4], tag = 256 + dice() % 16;
    uint16_t requester = dice() % 2 ? OWN : OTHER;
    if (type != DXPU_TLP_MRD)
        return request(type, requester, tag);
    return read_of(requester, tag, dice() % 4096, dice() % 600);
}

static void model_step(model *m, dxpu_tags *t, uint64_t now, uint64_t user)
{
    dxpu_request q;
    model_slot told;
    dxpu_tlp tlp;
    bool done = true, got;
    int want;
    switch (dice() % 16) {
    case 0:
    case 1:
    case 2:
        assert_int_equal(dxpu_tags_alloc(t), model_alloc(m));
        break;
    case 3:
        tlp = request(DXPU_TLP_MRD, dice() % 2 ? OWN : OTHER, 256 + dice() % 16);
        assert_int_equal(dxpu_tags_drop(t, tlp.requester, tlp.tag),
                         model_drop(m, tlp.requester, tlp.tag));
        break;
    case 4:
        got = model_expire(m, now, &told);
        assert_int_equal(dxpu_tags_expire(t, now, &q), got);
        if (got)
            told_agrees(&told, true, &q);
        break;
    case 5:
        got = dice() % 8 == 0;
        if (!got)
            break;
        got = model_pop(m, &told);
        assert_int_equal(dxpu_tags_pop(t, &q), got);
        if (got)
            told_agrees(&told, true, &q);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        tlp = model_request();
        model_wake(m, now);
        assert_int_equal(dxpu_tags_track(t, &tlp, now, user), model_track(m, &tlp, now, user));
        break;
    default:
        tlp = model_completion(m);
        want = model_complete(m, &tlp, &told, &done);
        assert_int_equal(dxpu_tags_complete(t, &tlp, &q), want);
        if (want == DXPU_OK)
            told_agrees(&told, done, &q);
        break;
    }
}

static void test_f21_model(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 8; seed++) {
        dxpu_tag_entry e[SLOTS];
        dxpu_tags t;
        model m;
        uint64_t now = 0;
        dice_state = seed;
        memset(&m, 0, sizeof m);
        for (int i = 0; i < SLOTS; i++)
            m.list[0][m.count[0]++] = i;
        assert_int_equal(dxpu_tags_init(&t, e, SLOTS, OWN, DXPU_TAGS_768, TIMEOUT), 0);
        for (unsigned step = 0; step < 4000; step++) {
            now += dice() % 60;
            model_step(&m, &t, now, step);
            model_agrees(&m, &t);
        }
        assert_true(m.expired > 20 && m.unexpected > 20 && m.bytes > 20); /* it went everywhere */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f2_units),
        cmocka_unit_test(test_f6_fits),
        cmocka_unit_test(test_f3_add_wraps_in_one_class),
        cmocka_unit_test(test_f4_limits_only_rise),
        cmocka_unit_test(test_f20_init),
        cmocka_unit_test(test_f20_track_wants_nonposted),
        cmocka_unit_test(test_f21_states),
        cmocka_unit_test(test_f22_matched_by_requester_and_tag),
        cmocka_unit_test(test_f23_splits),
        cmocka_unit_test(test_f23_agrees_with_the_completer),
        cmocka_unit_test(test_f24_worst),
        cmocka_unit_test(test_f25_reserve),
        cmocka_unit_test(test_f26_wrong_bytes),
        cmocka_unit_test(test_f26_kinds),
        cmocka_unit_test(test_f26_errors_end_any_request),
        cmocka_unit_test(test_f27_alloc_modes),
        cmocka_unit_test(test_f27_others_borrow_entries),
        cmocka_unit_test(test_f28_oldest_freed_first),
        cmocka_unit_test(test_f30_timeouts),
        cmocka_unit_test(test_f31_track_ends_a_rest),
        cmocka_unit_test(test_f33_pop_empties),
        cmocka_unit_test(test_f21_model),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
