/* Properties of the TLP codec over seeded random input.  DXPU_SEED repeats a run, DXPU_ROUNDS sets
   its length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define DXPU_STATIC /* what is not called is not compiled */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include <cmocka.h>

static uint64_t seed = 1, rounds = 30000, state_word;
static uint8_t payload[4096];

static uint32_t draw(uint32_t below)
{
    state_word ^= state_word << 13;
    state_word ^= state_word >> 7;
    state_word ^= state_word << 17;
    return (uint32_t)(state_word >> 32) % below;
}

static bool chance(uint32_t one_in)
{
    return draw(one_in) == 0;
}

static int begin(void **state)
{
    (void)state;
    state_word = seed * 0x9e3779b97f4a7c15u + 1;
    return 0;
}

/* -- A random TLP that keeps every rule -- */

static void draw_prefixes(dxpu_tlp *t)
{
    static const uint8_t local[] = { 0x80, 0x8e, 0x8f }, end_end[] = { 0x90, 0x91, 0x9e, 0x9f };
    unsigned locals = draw(3), all = locals + draw(5), i;
    unsigned kind = dxpui_tlp_kind(t->type);
    bool memory = kind == DXPUI_MEM || kind == DXPUI_ATOMIC, pasid = false;
    if (!chance(4))
        return;
    for (i = 0; i < all; i++) {
        unsigned first = i < locals ? local[draw(3)] : end_end[draw(4)];
        t->prefix[i] = (uint32_t)first << 24 | draw(1 << 24);
        if (first == 0x90) /* T-25 */
            t->prefix[i] &= t->at == 2 ? 0xfffff000 : 0xffff1000;
        if (first == 0x90 && memory && !t->th)
            t->prefix[i] |= 0x1000;
        if (first == 0x91) /* T-24 */
            t->prefix[i] &= 0xff3fffff;
        if ((first == 0x91 && (pasid || !(memory || (t->message_code && t->message_code < 6)))) ||
            (first == 0x90 && !memory))
            t->prefix[i] |= 0x0e000000; /* a vendor's instead */
        pasid = pasid || t->prefix[i] >> 24 == 0x91;
    }
    t->prefix_count = (uint8_t)all;
}

static void draw_address(dxpu_tlp *t)
{
    t->address = (uint64_t)draw(0xffffffff) & ~(uint64_t)3;
    if (t->header_dw == 4)
        t->address |= (uint64_t)(chance(4) ? 0xffffffff : 1 + draw(0xffffffff)) << 32;
    if (chance(8)) /* near the top */
        t->address |= 0xffffe000u;
}

static void draw_byte_enables(dxpu_tlp *t)
{
    static const uint8_t first[] = { 0xf, 0xe, 0xc, 0x8 }, last[] = { 0xf, 0x7, 0x3, 0x1 };
    if (t->length_dw == 1) {
        t->first_be = (uint8_t)draw(16);
    } else if (t->length_dw == 2 && !(t->address & 7)) {
        t->first_be = (uint8_t)(1 + draw(15));
        t->last_be = (uint8_t)(1 + draw(15));
    } else {
        t->first_be = first[draw(4)];
        t->last_be = last[draw(4)];
    }
}

static void draw_memory(dxpu_tlp *t)
{
    unsigned most = t->type == DXPU_TLP_DMWR ? 32 : 1024;
    draw_address(t);
    t->at = chance(8) ? 2 : 0;
    t->length_dw = (uint16_t)(1 + (chance(3) ? draw(most) : draw(4)));
    if ((t->address & 0xfff) + t->length_dw * 4u > 4096)
        t->address &= ~(uint64_t)0xfff;
    draw_byte_enables(t);
    t->th = chance(4);
    if (t->th) {
        t->ph = (uint8_t)draw(4);
        t->steering = (uint8_t)draw(256);
        if (t->type == DXPU_TLP_MWR) {
            t->tag = 0;
        } else {
            t->first_be = 0xf;
            t->last_be = t->length_dw > 1 ? 0xf : 0;
        }
    } else if (t->type == DXPU_TLP_MRD && chance(8)) { /* translation request */
        t->at = 1;
        t->ph = (uint8_t)draw(2);
        t->attr &= DXPU_ATTR_RO;
        t->length_dw = (uint16_t)(2 + draw(15) * 2);
        t->last_be = t->first_be = 0xf;
    }
}

static void draw_atomic(dxpu_tlp *t)
{
    unsigned operand = 4u << draw(t->type == DXPU_TLP_CAS ? 3 : 2);
    draw_address(t);
    t->address &= ~(uint64_t)(operand - 1);
    t->length_dw = (uint16_t)(operand / (t->type == DXPU_TLP_CAS ? 2 : 4));
    t->at = chance(4) ? 2 : 0;
    t->th = chance(4);
    t->ph = t->th ? (uint8_t)draw(4) : 0;
    t->steering = t->th ? (uint8_t)draw(256) : 0;
}

static void draw_single(dxpu_tlp *t)
{
    t->tc = 0;
    t->attr = 0;
    t->length_dw = 1;
    t->first_be = (uint8_t)draw(16);
    if (dxpui_tlp_kind(t->type) == DXPUI_IO) {
        draw_address(t);
        return;
    }
    t->target = (uint16_t)draw(65536);
    t->register_bytes = (uint16_t)(draw(1024) * 4);
}

static void draw_message(dxpu_tlp *t)
{
    static const uint8_t vendor[] = { DXPU_MSG_TO_ROOT, DXPU_MSG_BY_ID, DXPU_MSG_BROADCAST,
                                      DXPU_MSG_LOCAL };
    const dxpui_message_row *m;
    uint64_t bits;
    do
        m = &dxpui_message_rows[draw(DXPUI_MESSAGE_COUNT)];
    while (m->data != 2 && m->data != (t->type == DXPU_TLP_MSGD));
    t->message_code = m->code;
    t->message_routing = m->code >= 0x7e ? vendor[draw(4)] : m->routing;
    if (m->code < 0x7e)
        t->attr &= DXPU_ATTR_IDO;
    if (m->code < 0x7e && (m->code == 0 || m->code >= 0x10))
        t->tc = 0;
    if (t->type == DXPU_TLP_MSGD) {
        unsigned fixed = dxpui_message_length(m->code);
        t->length_dw = (uint16_t)(fixed ? fixed : 1 + draw(64));
    }
    bits = ((uint64_t)draw(0xffffffff) << 32 | draw(0xffffffff)) & dxpui_message_bits(t);
    t->message_dw[0] = (uint32_t)(bits >> 32);
    t->message_dw[1] = (uint32_t)bits;
    if (t->message_routing == DXPU_MSG_BY_ID)
        t->target = (uint16_t)(bits >> 48);
}

static void draw_completion(dxpu_tlp *t)
{
    static const uint8_t failed[] = { DXPU_CPL_SC, DXPU_CPL_UR, DXPU_CPL_CRS, DXPU_CPL_CA };
    unsigned need;
    t->completer = (uint16_t)draw(65536);
    t->bcm = chance(8);
    t->byte_count = (uint16_t)(1 + draw(4096));
    t->lower_addr = (uint8_t)draw(128);
    if (!dxpui_tlp_rows[t->type].data) {
        t->status = failed[draw(4)];
        return;
    }
    need = ((t->lower_addr & 3u) + t->byte_count + 3u) / 4;
    if (need > 1024) {
        t->lower_addr &= 0x7c;
        need = 1024;
    }
    t->length_dw = (uint16_t)need;
    if (chance(2)) { /* not the last one */
        unsigned to_boundary = 16 - (t->lower_addr / 4 & 15);
        if (to_boundary < need)
            t->length_dw = (uint16_t)(to_boundary + draw((need - to_boundary) / 16 + 1) * 16);
    }
}

/* A locked read or its data outside TC0: only the analyser refuses it (T-44). */
static bool locked_elsewhere(const dxpu_tlp *t)
{
    return t->tc && (t->type == DXPU_TLP_MRDLK || t->type == DXPU_TLP_CPLDLK);
}

static dxpu_tlp draw_tlp(void)
{
    dxpu_tlp t;
    dxpui_zero(&t, sizeof t);
    t.type = (uint8_t)draw(DXPU_TLP_TYPE_COUNT);
    t.header_dw = t.type == DXPU_TLP_MSG || t.type == DXPU_TLP_MSGD ? 4
                  : dxpui_tlp_rows[t.type].dw4 && chance(2)         ? 4
                                                                    : 3;
    t.tc = (uint8_t)draw(8);
    if (locked_elsewhere(&t))
        t.tc = 0;
    t.attr = (uint8_t)draw(8);
    t.requester = (uint16_t)draw(65536);
    t.tag = (uint16_t)draw(dxpui_tlp_rows[t.type].cls == DXPU_POSTED ? 256 : 1024);
    t.td = chance(4);
    t.digest = t.td ? draw(0xffffffff) : 0;
    t.ep = dxpui_tlp_rows[t.type].data && chance(8);
    switch (dxpui_tlp_kind(t.type)) {
    case DXPUI_MEM:
        draw_memory(&t);
        break;
    case DXPUI_ATOMIC:
        draw_atomic(&t);
        break;
    case DXPUI_MSG:
        draw_message(&t);
        break;
    case DXPUI_CPL:
        draw_completion(&t);
        break;
    default:
        draw_single(&t);
        break;
    }
    draw_prefixes(&t);
    if (dxpui_tlp_rows[t.type].data) {
        t.payload.ptr = payload;
        t.payload.len = t.length_dw * 4u;
    }
    return t;
}

/* -- Properties -- */

static uint8_t wire[DXPU_TLP_MAX_BYTES + DXPU_PREFIXES_MAX * 4];
static size_t wire_len;

static dxpu_bytes wire_view(void)
{
    dxpu_bytes b;
    b.ptr = wire;
    b.len = wire_len;
    return b;
}

static void encode_drawn(const dxpu_tlp *t)
{
    int rc = dxpu_tlp_encode(t, wire, sizeof wire, &wire_len);
    if (rc != DXPU_OK)
        fail_msg("DXPU_SEED=%llu: a drawn %s is refused: %s", (unsigned long long)seed,
                 dxpu_tlp_type_name(t->type), dxpu_error_name(rc));
}

static void test_t1_decode_of_encode(void **state)
{
    unsigned seen[DXPU_TLP_TYPE_COUNT];
    uint64_t i;
    (void)state;
    memset(seen, 0, sizeof seen);
    for (i = 0; i < rounds; i++) {
        dxpu_tlp t = draw_tlp(), strict, header;
        dxpu_tlp_shape s = { 0 };
        encode_drawn(&t);
        seen[t.type]++;
        assert_int_equal(dxpu_tlp_decode(wire_view(), &strict), DXPU_OK);
        assert_int_equal(dxpu_tlp_decode_header(wire_view(), &header), DXPU_OK);
        assert_int_equal(dxpu_tlp_measure(wire_view(), &s), DXPU_OK);
        assert_int_equal(s.total_bytes, wire_len);
        assert_int_equal(s.cls, dxpu_tlp_class(&t));
        if (t.payload.len) {
            assert_ptr_equal(strict.payload.ptr, wire + s.head_bytes);
            assert_memory_equal(strict.payload.ptr, payload, t.payload.len);
        }
        header.digest = strict.digest; /* the only field that header-only leaves out */
        assert_memory_equal(&header, &strict, sizeof strict);
        strict.payload.ptr = t.payload.ptr;
        if (memcmp(&strict, &t, sizeof t) != 0)
            fail_msg("DXPU_SEED=%llu: round %llu, %s differs", (unsigned long long)seed,
                     (unsigned long long)i, dxpu_tlp_type_name(t.type));
    }
    for (i = 0; i < DXPU_TLP_TYPE_COUNT; i++)
        assert_true(seen[i] > 0);
}

/* Bits flipped, bytes drawn at random, ends cut: what is accepted encodes to the same bytes. */
static void test_t1_encode_of_decode(void **state)
{
    static uint8_t again[sizeof wire];
    uint64_t i, accepted = 0, refused = 0;
    (void)state;
    for (i = 0; i < rounds * 4; i++) {
        dxpu_tlp t = draw_tlp(), header;
        size_t again_len = 0;
        unsigned flips = draw(4);
        int rc;
        encode_drawn(&t);
        while (flips--)
            wire[draw(chance(2) ? 4 : 16)] ^= (uint8_t)(1u << draw(8));
        if (chance(16))
            wire_len = draw((uint32_t)wire_len + 1);
        rc = dxpu_tlp_decode(wire_view(), &t);
        if (rc != DXPU_OK) {
            refused++;
            continue;
        }
        accepted++;
        assert_int_equal(dxpu_tlp_decode_header(wire_view(), &header), DXPU_OK);
        assert_int_equal(dxpu_tlp_encode(&t, again, sizeof again, &again_len), DXPU_OK);
        assert_int_equal(again_len, wire_len);
        assert_memory_equal(again, wire, wire_len);
    }
    assert_true(accepted > rounds / 2);
    assert_true(refused > rounds / 2);
}

/* What a receiver reads is a TLP that keeps every rule, and reads the same once it is encoded. */
static void test_t43_received_is_legal(void **state)
{
    static uint8_t again[sizeof wire];
    uint64_t i, cleaned = 0, refused = 0;
    (void)state;
    for (i = 0; i < rounds * 4; i++) {
        dxpu_tlp t = draw_tlp(), strict, back;
        dxpu_bytes in;
        unsigned flips = draw(4);
        int rs, rr;
        encode_drawn(&t);
        while (flips--)
            wire[draw(chance(2) ? 4 : 16)] ^= (uint8_t)(1u << draw(8));
        rs = dxpu_tlp_decode(wire_view(), &strict);
        rr = dxpu_tlp_receive(wire_view(), &t);
        if (rr != DXPU_OK) {
            assert_int_not_equal(rs, DXPU_OK);
            refused++;
            continue;
        }
        if (rs == DXPU_OK)
            assert_memory_equal(&t, &strict, sizeof t);
        cleaned += rs != DXPU_OK;
        in.ptr = again;
        assert_int_equal(dxpu_tlp_encode(&t, again, sizeof again, &in.len), DXPU_OK);
        assert_int_equal(dxpu_tlp_decode(in, &strict),
                         locked_elsewhere(&t) ? DXPU_E_TLP_TC : DXPU_OK);
        assert_int_equal(dxpu_tlp_receive(in, &back), DXPU_OK);
        back.payload.ptr = t.payload.ptr;
        assert_memory_equal(&back, &t, sizeof t);
    }
    assert_true(cleaned > rounds / 20);
    assert_true(refused > rounds / 2);
}

static void test_t40_noise(void **state)
{
    uint64_t i;
    (void)state;
    for (i = 0; i < rounds; i++) {
        size_t len = draw(64), k;
        uint8_t *noise = (uint8_t *)malloc(len ? len : 1);
        dxpu_bytes in;
        dxpu_tlp t;
        dxpu_tlp_shape s = { 0 };
        assert_non_null(noise);
        for (k = 0; k < len; k++)
            noise[k] = (uint8_t)draw(256);
        in.ptr = noise;
        in.len = len;
        if (dxpu_tlp_decode_header(in, &t) == DXPU_OK) {
            assert_int_equal(dxpu_tlp_measure(in, &s), DXPU_OK);
            assert_true(s.head_bytes <= len);
            assert_true(t.payload.len <= len - s.head_bytes);
        }
        (void)dxpu_tlp_decode(in, &t);
        (void)dxpu_tlp_ecrc(in);
        free(noise);
    }
}

static void test_t50_byte_enables_inverse(void **state)
{
    uint32_t offset, bytes, offset_back, span;
    (void)state;
    for (offset = 0; offset < 4; offset++)
        for (bytes = 0; bytes <= 4096 - offset; bytes++) {
            uint64_t address = (uint64_t)draw(0xfffff) << 12 | offset;
            uint8_t first = 0, last = 0;
            uint16_t length = 0;
            dxpu_tlp t;
            assert_int_equal(dxpu_be_from_range(address, bytes, &first, &last, &length), DXPU_OK);
            dxpu_be_to_range(first, last, length, &offset_back, &span);
            assert_int_equal(span, bytes);
            assert_int_equal(offset_back, bytes ? offset : 0);
            dxpui_zero(&t, sizeof t);
            t.type = DXPU_TLP_MRD;
            t.header_dw = 3;
            t.address = address & 0xfffffffcu;
            t.length_dw = length;
            t.first_be = first;
            t.last_be = last;
            assert_int_equal(dxpu_tlp_check(&t), DXPU_OK);
        }
}

static void test_t51_requests_cover(void **state)
{
    uint64_t i;
    (void)state;
    for (i = 0; i < rounds; i++) {
        uint64_t address = draw(0xffffffff), end;
        uint32_t left = 1 + draw(20000), most = 4u << draw(11);
        end = address + left;
        while (left) {
            uint32_t n = dxpu_request_next(address, left, most);
            uint8_t first = 0, last = 0;
            uint16_t length = 0;
            assert_true(n > 0 && n <= left);
            assert_int_equal(dxpu_be_from_range(address, n, &first, &last, &length), DXPU_OK);
            assert_true(length * 4u <= most);
            /* no shorter than it must be */
            assert_true(n == left || length * 4u == most || ((address + n) & 0xfff) == 0);
            address += n;
            left -= n;
        }
        assert_true(address == end);
    }
}

static void test_t52_completions_cover(void **state)
{
    uint64_t i;
    (void)state;
    for (i = 0; i < rounds; i++) {
        dxpu_tlp read, cpl;
        dxpu_cpl_split s;
        uint32_t offset, span, rcb = chance(2) ? 64 : 128, mps = 128u << draw(6);
        uint64_t at, next;
        do {
            read = draw_tlp();
        } while (read.type != DXPU_TLP_MRD || read.at == 1);
        dxpu_be_to_range(read.first_be, read.last_be, read.length_dw, &offset, &span);
        dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &cpl);
        next = read.address + offset;
        dxpui_zero(&s, sizeof s);
        assert_int_equal(dxpu_cpl_split_start(&s, &read, rcb, mps), DXPU_OK);
        assert_int_equal(s.zero_length, span == 0);
        span = span ? span : 1;
        assert_int_equal(cpl.byte_count, span);
        assert_int_equal(cpl.lower_addr, next & 0x7f);
        while (dxpu_cpl_split_next(&s, &cpl, &at)) {
            uint64_t end = at + cpl.length_dw * 4u;
            assert_int_equal(cpl.byte_count, span);
            assert_int_equal(cpl.lower_addr, next & 0x7f);
            assert_true(at == (next & ~(uint64_t)3));
            assert_true(cpl.length_dw * 4u <= mps);
            assert_int_equal(dxpu_tlp_check(&cpl), DXPU_OK);
            if (end - next < span) {
                assert_int_equal(end % rcb, 0);
                /* no shorter than the payload limit makes it */
                assert_true(cpl.length_dw * 4u + rcb > mps);
                span -= (uint32_t)(end - next);
                next = end;
            } else {
                assert_true(end - next < span + 4);
                span = 0;
            }
        }
        assert_int_equal(span, 0);
    }
}

/* Each bit of the header: EP and Type[0] are outside the ECRC, all others are in it. */
static void test_t60_ecrc_invariants(void **state)
{
    uint64_t i;
    (void)state;
    for (i = 0; i < rounds / 10; i++) {
        dxpu_tlp t = draw_tlp();
        uint32_t crc;
        size_t bit, local = 0;
        uint8_t *h;
        encode_drawn(&t);
        crc = dxpu_tlp_ecrc(wire_view());
        while (local < t.prefix_count && t.prefix[local] >> 28 == 8)
            local++;
        h = wire + t.prefix_count * 4;
        for (bit = 32; bit < t.header_dw * 32u; bit++) {
            h[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_true(dxpu_tlp_ecrc(wire_view()) != crc);
            h[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        h[2] ^= 0x40;
        assert_true(dxpu_tlp_ecrc(wire_view()) == crc);
        h[1] ^= 0x10;
        assert_true(dxpu_tlp_ecrc(wire_view()) != crc);
        h[1] ^= 0x10;
        h[2] ^= 0x40;
        if (t.type == DXPU_TLP_MRD || t.type == DXPU_TLP_CFGRD0 || t.type == DXPU_TLP_CPLD) {
            h[0] ^= 1; /* MRdLk, CfgRd1, CplDLk */
            assert_true(dxpu_tlp_ecrc(wire_view()) == crc);
            h[0] ^= 1;
        }
        for (bit = 8; bit < t.prefix_count * 32u; bit++) {
            if (bit % 32 < 8)
                continue;
            wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (bit / 32 < local)
                assert_true(dxpu_tlp_ecrc(wire_view()) == crc);
            else
                assert_true(dxpu_tlp_ecrc(wire_view()) != crc);
            wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_t1_decode_of_encode, begin),
        cmocka_unit_test_setup(test_t1_encode_of_decode, begin),
        cmocka_unit_test_setup(test_t43_received_is_legal, begin),
        cmocka_unit_test_setup(test_t40_noise, begin),
        cmocka_unit_test_setup(test_t50_byte_enables_inverse, begin),
        cmocka_unit_test_setup(test_t51_requests_cover, begin),
        cmocka_unit_test_setup(test_t52_completions_cover, begin),
        cmocka_unit_test_setup(test_t60_ecrc_invariants, begin),
    };
    unsigned i;
    if (getenv("DXPU_SEED"))
        seed = strtoull(getenv("DXPU_SEED"), NULL, 10);
    if (getenv("DXPU_ROUNDS"))
        rounds = strtoull(getenv("DXPU_ROUNDS"), NULL, 10);
    for (i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 31 + 7);
    printf("DXPU_SEED=%llu DXPU_ROUNDS=%llu\n", (unsigned long long)seed,
           (unsigned long long)rounds);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
