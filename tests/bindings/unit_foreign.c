/* bindings/foreign: datagrams of NetTLP and of RawUDP, byte for byte, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include "dxpu_foreign.h"

/* A write of one dword to 0xfee00000, and a read of one. */
static const uint8_t mwr[] = { 0x40, 0, 0, 1, 0, 0, 0, 15, 0xfe, 0xe0, 0, 0, 'd', 'x', 'p', 'u' };
static const uint8_t mrd[] = { 0, 0, 0, 1, 0, 0, 7, 15, 0xfe, 0xe0, 0, 0 };

static dxpu_bytes bytes_of(const void *at, size_t len)
{
    dxpu_bytes b = { at, len };
    return b;
}

/* ==== NetTLP ================================================================================== */

static void test_n1_nettlp_head(void **state)
{
    static const uint8_t want[] = { 0x12, 0x34, 0x89, 0xab, 0xcd, 0xef };
    uint8_t d[DXPU_NETTLP_DATAGRAM_MAX + 1];
    dxpu_nettlp n;
    (void)state;
    memset(d, 0, sizeof d);
    dxpu_nettlp_head(d, 0x1234, 0x89abcdef);
    assert_memory_equal(d, want, sizeof want);
    memcpy(d + sizeof want, mwr, sizeof mwr);
    assert_int_equal(dxpu_nettlp_decode(bytes_of(d, sizeof want + sizeof mwr), &n), DXPU_OK);
    assert_int_equal(n.sequence, 0x1234);
    assert_int_equal(n.stamp, 0x89abcdef);
    assert_int_equal(n.tlp.len, sizeof mwr);
    assert_memory_equal(n.tlp.ptr, mwr, sizeof mwr);
    for (size_t len = 0; len < 18; len++)
        assert_int_equal(dxpu_nettlp_decode(bytes_of(d, len), &n), DXPU_E_SHORT);
    assert_int_equal(dxpu_nettlp_decode(bytes_of(d, 18), &n), DXPU_OK);
    assert_int_equal(dxpu_nettlp_decode(bytes_of(d, sizeof d - 1), &n), DXPU_OK);
    assert_int_equal(dxpu_nettlp_decode(bytes_of(d, sizeof d), &n), DXPU_E_ARG);
}

static void test_n2_questions_in_either_order(void **state)
{
    static const uint8_t le[] = { 3, 0, 0, 0 }, be[] = { 0, 0, 0, 3 };
    uint8_t q[5] = { 0 };
    bool big;
    (void)state;
    dxpu_nettlp_question(q, DXPU_NETTLP_TABLE, false);
    assert_memory_equal(q, le, 4);
    assert_int_equal(dxpu_nettlp_question_decode(bytes_of(q, 4), &big), DXPU_NETTLP_TABLE);
    assert_false(big);
    dxpu_nettlp_question(q, DXPU_NETTLP_TABLE, true);
    assert_memory_equal(q, be, 4);
    assert_int_equal(dxpu_nettlp_question_decode(bytes_of(q, 4), &big), DXPU_NETTLP_TABLE);
    assert_true(big);
    for (size_t len = 0; len <= 5; len++) {
        if (len != 4)
            assert_int_equal(dxpu_nettlp_question_decode(bytes_of(q, len), &big), DXPU_E_ARG);
    }
    for (unsigned what = 0; what < 6; what++) {
        dxpu_nettlp_question(q, what, what & 1);
        assert_int_equal(dxpu_nettlp_question_decode(bytes_of(q, 4), &big),
                         what >= 1 && what <= 3 ? (int)what : DXPU_E_ARG);
    }
}

static void check_answer(unsigned what, bool big, size_t bytes)
{
    uint8_t out[DXPU_NETTLP_ANSWER_MAX + 1] = { 0 };
    dxpu_nettlp_answer a, back;
    memset(&a, 0, sizeof a);
    memset(&back, 0, sizeof back);
    a.what = what;
    if (what == DXPU_NETTLP_BAR4)
        a.bar4 = 0x123456789abcdef0u;
    if (what == DXPU_NETTLP_DEVICE)
        a.device = 0xb803;
    for (unsigned i = 0; what == DXPU_NETTLP_TABLE && i < DXPU_NETTLP_VECTORS; i++) {
        a.table[i].address = 0xfee00000u + i;
        a.table[i].data = 0x4020 + i;
    }
    assert_int_equal(dxpu_nettlp_answer_encode(out, &a, big), bytes);
    for (size_t len = 0; len < sizeof out; len++)
        assert_int_equal(dxpu_nettlp_answer_decode(bytes_of(out, len), what, big, &back),
                         len == bytes ? DXPU_OK : DXPU_E_ARG);
    assert_memory_equal(&a, &back, sizeof a);
}

static void test_n2_answers(void **state)
{
    static const uint8_t le[] = { 0x03, 0xb8 };
    dxpu_nettlp_answer a;
    (void)state;
    for (int big = 0; big < 2; big++) {
        check_answer(DXPU_NETTLP_BAR4, big, 8);
        check_answer(DXPU_NETTLP_DEVICE, big, 2);
        check_answer(DXPU_NETTLP_TABLE, big, 192);
    }
    assert_int_equal(dxpu_nettlp_answer_decode(bytes_of(le, 2), DXPU_NETTLP_DEVICE, false, &a),
                     DXPU_OK);
    assert_int_equal(a.device, 0xb803);
    assert_int_equal(dxpu_nettlp_answer_decode(bytes_of(le, 0), 4, false, &a), DXPU_E_ARG);
}

/* ==== RawUDP ================================================================================== */

static void test_n3_to_the_card(void **state)
{
    static const uint8_t want[] = { 0x40, 0,    0,   1,   0,    0,    0,    0x77, 0, 0,   0,
                                    15,   0,    0,   0,   0x77, 0xfe, 0xe0, 0,    0, 0,   0,
                                    0,    0x77, 'd', 'x', 'p',  'u',  0,    0,    4, 0x77 };
    uint8_t out[DXPU_RAWTLP_SEND_MAX], tlp[DXPU_RAWTLP_TLP_MAX + 4] = { 0 };
    static const uint8_t greeting[] = { 0, 0, 0, 0, 0, 0, 2, 0x77 };
    (void)state;
    dxpu_rawtlp_greeting(out);
    assert_memory_equal(out, greeting, sizeof greeting);
    assert_int_equal(dxpu_rawtlp_encode(out, bytes_of(mwr, sizeof mwr)), sizeof want);
    assert_memory_equal(out, want, sizeof want);
    for (size_t len = 0; len <= sizeof tlp; len++)
        assert_int_equal(dxpu_rawtlp_encode(out, bytes_of(tlp, len)),
                         len % 4 || len < 12 || len > 144 ? 0 : len * 2);
}

/* Blocks, as a card sends them. */
typedef struct card {
    uint8_t d[4096];
    size_t bytes, status;
    unsigned used; /* dwords of the block */
} card;

static void card_dword(card *c, unsigned flags, const uint8_t *dword)
{
    if (c->used == 0 || c->used == 7) {
        c->status = c->bytes;
        dxpu_put_le32(c->d + c->bytes, 0xefffffffu); /* none of them is of a TLP */
        memset(c->d + c->bytes + 4, 0xaa, 28);
        c->bytes += 32;
        c->used = 0;
    }
    uint32_t status = dxpu_get_le32(c->d + c->status), shift = c->used * 4;
    dxpu_put_le32(c->d + c->status, (status & ~(0xfu << shift)) | flags << shift);
    memcpy(c->d + c->status + 4 + c->used++ * (size_t)4, dword, 4);
}

static void card_tlp(card *c, const uint8_t *tlp, size_t len)
{
    for (size_t at = 0; at < len; at += 4)
        card_dword(c, (at == 0 ? 8u : 0) | (at + 4 == len ? 4u : 0), tlp + at);
}

static void card_filler(card *c, uint32_t word)
{
    dxpu_put_le32(c->d + c->bytes, word);
    c->bytes += 4;
    c->used = 0;
}

static void expect(dxpu_rawtlp_reader *r, const uint8_t *tlp, size_t len)
{
    dxpu_bytes got;
    assert_true(dxpu_rawtlp_next(r, &got));
    assert_int_equal(got.len, len);
    assert_memory_equal(got.ptr, tlp, len);
}

static void expect_none(dxpu_rawtlp_reader *r)
{
    dxpu_bytes got;
    assert_false(dxpu_rawtlp_next(r, &got));
}

static void test_n4_from_the_card(void **state)
{
    dxpu_rawtlp_reader r;
    card c = { { 0 }, 0, 0, 0 };
    (void)state;
    dxpu_rawtlp_reader_init(&r, false);
    card_filler(&c, 0x55556666);
    card_filler(&c, 0xeffffff3);
    card_filler(&c, 0xdeceffff);
    card_tlp(&c, mwr, sizeof mwr);
    card_dword(&c, 1, mwr); /* not of a TLP */
    card_tlp(&c, mrd, sizeof mrd);
    card_tlp(&c, mwr, sizeof mwr); /* over the end of the block */
    dxpu_rawtlp_arrived(&r, bytes_of(c.d, c.bytes));
    expect(&r, mwr, sizeof mwr);
    expect(&r, mrd, sizeof mrd);
    expect(&r, mwr, sizeof mwr);
    expect_none(&r);
    assert_int_equal(r.count.tlps, 3);
    assert_int_equal(r.count.torn, 0);
}

/* What a lost datagram leaves is not a TLP, in whichever of its halves. */
static void test_n5_torn(void **state)
{
    dxpu_rawtlp_reader r;
    card head = { { 0 }, 0, 0, 0 }, tail = { { 0 }, 0, 0, 0 };
    (void)state;
    card_dword(&head, 8, mwr);
    card_dword(&head, 0, mwr + 4);
    card_dword(&tail, 0, mwr + 8);
    card_dword(&tail, 4, mwr + 12);
    card_tlp(&tail, mrd, sizeof mrd);
    dxpu_rawtlp_reader_init(&r, false);
    dxpu_rawtlp_arrived(&r, bytes_of(head.d, head.bytes));
    expect_none(&r);
    dxpu_rawtlp_arrived(&r, bytes_of(tail.d, tail.bytes));
    expect(&r, mrd, sizeof mrd);
    expect_none(&r);
    assert_int_equal(r.count.torn, 2);

    dxpu_rawtlp_reader_init(&r, true); /* control: with spans they belong together */
    dxpu_rawtlp_arrived(&r, bytes_of(head.d, head.bytes));
    expect_none(&r);
    dxpu_rawtlp_arrived(&r, bytes_of(tail.d, tail.bytes));
    expect(&r, mwr, sizeof mwr);
    expect(&r, mrd, sizeof mrd);
    assert_int_equal(r.count.torn, 0);
}

static void test_n5_lengths_that_do_not_fit(void **state)
{
    dxpu_rawtlp_reader r;
    card c = { { 0 }, 0, 0, 0 };
    (void)state;
    dxpu_rawtlp_reader_init(&r, false);
    card_tlp(&c, mwr, sizeof mwr - 4); /* its payload lacks */
    card_tlp(&c, mrd, 8);
    card_tlp(&c, mrd, sizeof mrd);
    dxpu_rawtlp_arrived(&r, bytes_of(c.d, c.bytes));
    expect(&r, mrd, sizeof mrd);
    expect_none(&r);
    assert_int_equal(r.count.torn, 2);

    memset(&c, 0, sizeof c); /* a block without its end */
    card_tlp(&c, mrd, sizeof mrd);
    dxpu_rawtlp_arrived(&r, bytes_of(c.d, c.bytes - 4));
    expect_none(&r);
    assert_int_equal(r.count.blocks_cut, 1);
}

static void test_n5_endless(void **state)
{
    dxpu_rawtlp_reader r;
    (void)state;
    dxpu_rawtlp_reader_init(&r, true);
    for (unsigned i = 0; i < 700; i++) { /* 4,900 dwords, and no last one */
        card c = { { 0 }, 0, 0, 0 };
        for (unsigned k = 0; k < 7; k++)
            card_dword(&c, i + k == 0 ? 8 : 0, mwr);
        dxpu_rawtlp_arrived(&r, bytes_of(c.d, c.bytes));
        expect_none(&r);
    }
    assert_int_equal(r.count.torn, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_n1_nettlp_head),
        cmocka_unit_test(test_n2_questions_in_either_order),
        cmocka_unit_test(test_n2_answers),
        cmocka_unit_test(test_n3_to_the_card),
        cmocka_unit_test(test_n4_from_the_card),
        cmocka_unit_test(test_n5_torn),
        cmocka_unit_test(test_n5_lengths_that_do_not_fit),
        cmocka_unit_test(test_n5_endless),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests_name("unit_foreign", tests, NULL, NULL);
}
