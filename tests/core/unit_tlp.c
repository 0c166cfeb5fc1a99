/* TLP codec and classifier, rule by rule (spec/tlp.md T-, spec/route.md R-20 ff.). */
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <string.h>
#define DXPU_STATIC /* what is not called is not compiled */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include <cmocka.h>

static uint8_t payload[4096];

/* A valid TLP of each type to begin with. */
static dxpu_tlp base(unsigned type)
{
    dxpu_tlp t = { 0 };
    unsigned kind = dxpui_tlp_kind(type);
    dxpui_zero(&t, sizeof t);
    t.type = (uint8_t)type;
    t.header_dw = kind == DXPUI_MSG ? 4 : 3;
    t.requester = DXPU_BDF(1, 2, 3);
    t.tag = 7;
    t.length_dw = dxpui_tlp_no_length(type) ? 0 : type == DXPU_TLP_CAS ? 2 : 1;
    if (kind == DXPUI_CPL) {
        t.completer = DXPU_BDF(4, 5, 6);
        t.byte_count = 4;
    } else if (kind == DXPUI_MSG) {
        t.message_code = type == DXPU_TLP_MSG ? 0x18 : 0x50;
        t.message_routing = type == DXPU_TLP_MSG ? DXPU_MSG_TO_ROOT : DXPU_MSG_LOCAL;
    } else if (kind == DXPUI_CFG) {
        t.target = DXPU_BDF(7, 8, 1);
        t.register_bytes = 0x104;
    } else {
        t.address = 0x1000;
    }
    if (kind == DXPUI_MEM || kind == DXPUI_IO || kind == DXPUI_CFG)
        t.first_be = 0xf;
    if (dxpui_tlp_rows[type].data) {
        t.payload.ptr = payload;
        t.payload.len = t.length_dw * 4u;
    }
    return t;
}

static dxpu_tlp memory(unsigned type, uint64_t address, uint16_t length_dw, uint8_t first,
                       uint8_t last)
{
    dxpu_tlp t = base(type);
    t.header_dw = address >> 32 ? 4 : 3;
    t.address = address;
    t.length_dw = length_dw;
    t.first_be = first;
    t.last_be = last;
    if (t.payload.ptr)
        t.payload.len = length_dw * 4u;
    return t;
}

static dxpu_tlp message(unsigned code, unsigned routing, unsigned length_dw)
{
    dxpu_tlp t = base(length_dw ? DXPU_TLP_MSGD : DXPU_TLP_MSG);
    t.message_code = (uint8_t)code;
    t.message_routing = (uint8_t)routing;
    t.length_dw = (uint16_t)length_dw;
    t.payload.len = length_dw * 4u;
    return t;
}

typedef struct bytes {
    uint8_t at[DXPU_TLP_MAX_BYTES + DXPU_PREFIXES_MAX * 4];
    size_t len;
} bytes;

static bytes encode(const dxpu_tlp *t)
{
    bytes b;
    assert_int_equal(dxpu_tlp_encode(t, b.at, sizeof b.at, &b.len), DXPU_OK);
    return b;
}

static dxpu_bytes view(const bytes *b)
{
    dxpu_bytes in;
    in.ptr = b->at;
    in.len = b->len;
    return in;
}

static int strict(const bytes *b)
{
    dxpu_tlp t = { 0 };
    return dxpu_tlp_decode(view(b), &t);
}

/* t is refused by the rules, and so by the encoder. */
static void refused(const dxpu_tlp *t, int error)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    size_t len = 12345;
    memset(out, 0x77, sizeof out);
    assert_string_equal(dxpu_error_name(dxpu_tlp_check(t)), dxpu_error_name(error));
    assert_int_equal(dxpu_tlp_encode(t, out, sizeof out, &len), error);
    assert_int_equal(len, 12345);
    assert_int_equal(out[0], 0x77);
}

static void accepted(const dxpu_tlp *t)
{
    assert_string_equal(dxpu_error_name(dxpu_tlp_check(t)), "OK");
}

/* Setting bits of one byte of a good TLP gives this error. */
static void refused_bits(const dxpu_tlp *t, unsigned byte, unsigned bits, int error)
{
    bytes b = encode(t);
    assert_int_equal(strict(&b), DXPU_OK);
    b.at[byte] = (uint8_t)(b.at[byte] | bits);
    assert_string_equal(dxpu_error_name(strict(&b)), dxpu_error_name(error));
}

/* Field by field: padding of a struct is not compared. */
static void same_fields(const dxpu_tlp *a, const dxpu_tlp *b)
{
#define SAME(field) assert_true(a->field == b->field)
    SAME(type), SAME(header_dw), SAME(tc), SAME(attr), SAME(at), SAME(ph), SAME(steering);
    SAME(th), SAME(td), SAME(ep), SAME(length_dw), SAME(requester), SAME(tag);
    SAME(first_be), SAME(last_be), SAME(address), SAME(completer), SAME(status), SAME(bcm);
    SAME(byte_count), SAME(lower_addr), SAME(target), SAME(register_bytes), SAME(message_code);
    SAME(message_routing), SAME(message_dw[0]), SAME(message_dw[1]), SAME(prefix_count);
    SAME(payload.len), SAME(digest);
#undef SAME
    assert_memory_equal(a->prefix, b->prefix, sizeof a->prefix);
}

static void test_t1_all_types_both_ways(void **state)
{
    unsigned type;
    (void)state;
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        dxpu_tlp t = base(type), back;
        bytes b = encode(&t);
        assert_int_equal(dxpu_tlp_decode(view(&b), &back), DXPU_OK);
        if (t.payload.len)
            assert_memory_equal(back.payload.ptr, t.payload.ptr, t.payload.len);
        same_fields(&back, &t);
    }
}

static void test_t2_order_of_checks(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MWR, 0x1000, 1, 0xf, 0);
    bytes b = encode(&t);
    (void)state;
    b.at[7] = 0x1f; /* a byte enable that is refused */
    b.len--;
    assert_int_equal(strict(&b), DXPU_E_TLP_SHORT);
    b.len += 2;
    assert_int_equal(strict(&b), DXPU_E_TLP_LONG);
    b.len--;
    b.at[1] |= 2; /* a reserved bit comes last */
    assert_int_equal(strict(&b), DXPU_E_TLP_BE);
    b.at[7] = 0x0f;
    assert_int_equal(strict(&b), DXPU_E_TLP_RSVD);
    b.at[1] = 0;
    assert_int_equal(strict(&b), DXPU_OK);
}

static void test_t2_encode_room_and_payload(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MWR, 0x1000, 2, 0xf, 0xf);
    uint8_t out[24];
    size_t len = 99;
    (void)state;
    t.td = true;
    t.digest = 0x11223344;
    memset(out, 0xee, sizeof out);
    assert_int_equal(dxpu_tlp_encode(&t, out, 23, &len), DXPU_E_ROOM);
    assert_int_equal(out[0], 0xee);
    assert_int_equal(len, 99);
    assert_int_equal(dxpu_tlp_encode(&t, out, 24, &len), DXPU_OK);
    assert_int_equal(len, 24);
    assert_int_equal(out[20], 0x44);
    t.payload.len = 7;
    assert_int_equal(dxpu_tlp_encode(&t, out, 24, &len), DXPU_E_TLP_SHORT);
    t.payload.len = 9;
    assert_int_equal(dxpu_tlp_encode(&t, out, 24, &len), DXPU_E_TLP_LONG);
}

/* Every first byte: what Fmt and Type it is, by a second reading of the table. */
static void test_t3_every_first_byte(void **state)
{
    static const char *const none = "?";
    unsigned byte0, known = 0;
    (void)state;
    for (byte0 = 0; byte0 < 256; byte0++) {
        uint8_t raw[16] = { 0, 0, 0, 1, 1 };
        const char *want = none;
        unsigned fmt = byte0 >> 5, code = byte0 & 31;
        dxpu_bytes in = { raw, sizeof raw };
        dxpu_tlp t = { 0 };
        int rc;
        if (fmt < 2 && code == 0)
            want = "MRd";
        if (fmt < 2 && code == 1)
            want = "MRdLk";
        if ((fmt == 2 || fmt == 3) && code == 0)
            want = "MWr";
        if (fmt == 0 && code == 2)
            want = "IORd";
        if (fmt == 2 && code == 2)
            want = "IOWr";
        if (fmt == 0 && (code == 4 || code == 5))
            want = code == 4 ? "CfgRd0" : "CfgRd1";
        if (fmt == 2 && (code == 4 || code == 5))
            want = code == 4 ? "CfgWr0" : "CfgWr1";
        if ((fmt == 1 || fmt == 3) && code >= 16 && code < 24)
            want = fmt == 1 ? "Msg" : "MsgD";
        if ((fmt == 0 || fmt == 2) && (code == 10 || code == 11))
            want = fmt ? code == 10 ? "CplD" : "CplDLk" : code == 10 ? "Cpl" : "CplLk";
        if ((fmt == 2 || fmt == 3) && code >= 12 && code <= 14)
            want = code == 12 ? "FetchAdd" : code == 13 ? "Swap" : "CAS";
        if ((fmt == 2 || fmt == 3) && code == 27)
            want = "DMWr";
        raw[0] = (uint8_t)byte0;
        rc = dxpu_tlp_decode_header(in, &t);
        if (fmt == 4)
            continue;
        if (want == none) {
            assert_int_equal(rc, DXPU_E_TLP_TYPE);
            continue;
        }
        known++;
        assert_int_equal(rc, DXPU_OK);
        assert_string_equal(dxpu_tlp_type_name(t.type), want);
        assert_int_equal(t.header_dw, fmt & 1 ? 4 : 3);
    }
    assert_int_equal(known, 2 * 3 + 2 + 4 + 16 + 4 + 8);
    assert_string_equal(dxpu_tlp_type_name(DXPU_TLP_TYPE_COUNT), "?");
    assert_string_equal(dxpu_tlp_type_name(DXPU_TLP_DMWR), "DMWr");
}

static void test_t4_header_dw_of_type(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MSG);
    (void)state;
    t.header_dw = 3;
    refused(&t, DXPU_E_TLP_TYPE);
    t = base(DXPU_TLP_CPL);
    t.header_dw = 4;
    refused(&t, DXPU_E_TLP_TYPE);
    t.header_dw = 2;
    refused(&t, DXPU_E_TLP_TYPE);
    t.header_dw = 5;
    refused(&t, DXPU_E_TLP_TYPE);
    t.header_dw = 3;
    accepted(&t);
    t.type = DXPU_TLP_TYPE_COUNT;
    refused(&t, DXPU_E_TLP_TYPE);
}

static void test_t5_first_dword(void **state)
{
    static const uint8_t raw[12] = { 0x00, 0xfd, 0xf9, 0x23, 0x12, 0x34,
                                     0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf3 };
    dxpu_bytes in = { raw, sizeof raw };
    dxpu_tlp t = { 0 };
    (void)state;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
    assert_int_equal(t.tag, 0x356);
    assert_int_equal(t.tc, 7);
    assert_int_equal(t.attr, DXPU_ATTR_IDO | DXPU_ATTR_RO | DXPU_ATTR_NS);
    assert_true(t.th);
    assert_true(t.td);
    assert_true(t.ep);
    assert_int_equal(t.at, 2);
    assert_int_equal(t.length_dw, 0x123);
    assert_int_equal(t.requester, 0x1234);
    assert_int_equal(t.steering, 0x78);
    assert_int_equal(t.address, 0x9abcdef0u);
    assert_int_equal(t.ph, 3);
}

static void test_t6_reserved_bits(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD);
    (void)state;
    refused_bits(&t, 1, 0x02, DXPU_E_TLP_RSVD);
    refused_bits(&t, 11, 0x01, DXPU_E_TLP_RSVD);
    t = base(DXPU_TLP_CFGRD0);
    refused_bits(&t, 10, 0x10, DXPU_E_TLP_RSVD);
    refused_bits(&t, 11, 0x02, DXPU_E_TLP_RSVD);
    t = base(DXPU_TLP_CPL);
    refused_bits(&t, 11, 0x80, DXPU_E_TLP_RSVD);
    t = base(DXPU_TLP_SWAP);
    refused_bits(&t, 7, 0xf0, DXPU_E_TLP_RSVD);
}

static void test_t7_length(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1000, 1024, 0xf, 0xf), back;
    bytes b = encode(&t);
    (void)state;
    assert_int_equal(b.at[2] & 3, 0);
    assert_int_equal(b.at[3], 0);
    assert_int_equal(dxpu_tlp_decode(view(&b), &back), DXPU_OK);
    assert_int_equal(back.length_dw, 1024);
    t.length_dw = 0;
    refused(&t, DXPU_E_TLP_LENGTH);
    t.length_dw = 1025;
    refused(&t, DXPU_E_TLP_LENGTH);
    t = base(DXPU_TLP_MSG);
    refused_bits(&t, 3, 1, DXPU_E_TLP_RSVD);
    t.length_dw = 1;
    refused(&t, DXPU_E_TLP_LENGTH);
    t = base(DXPU_TLP_CPLLK);
    refused_bits(&t, 2, 1, DXPU_E_TLP_RSVD);
    t.length_dw = 1;
    refused(&t, DXPU_E_TLP_LENGTH);
}

static void test_t8_traffic_class_and_attributes(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MWR);
    (void)state;
    t.tc = 7;
    t.attr = 7;
    accepted(&t);
    t.tc = 8;
    refused(&t, DXPU_E_TLP_TC);
    t.tc = 0;
    t.attr = 8;
    refused(&t, DXPU_E_TLP_ATTR);
}

static void test_t9_tags(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD), back;
    bytes b;
    unsigned tag;
    (void)state;
    for (tag = 0; tag < 1024; tag++) {
        t.tag = (uint16_t)tag;
        b = encode(&t);
        assert_int_equal(b.at[1], (tag & 0x200 ? 0x80 : 0) | (tag & 0x100 ? 0x08 : 0));
        assert_int_equal(b.at[6], tag & 0xff);
        assert_int_equal(dxpu_tlp_decode(view(&b), &back), DXPU_OK);
        assert_int_equal(back.tag, tag);
    }
    t.tag = 1024;
    refused(&t, DXPU_E_TLP_TAG);
    t = base(DXPU_TLP_CPL);
    t.tag = 1023;
    b = encode(&t);
    assert_int_equal(b.at[10], 0xff);
    assert_int_equal(b.at[1], 0x88);
    t = base(DXPU_TLP_MWR);
    t.tag = 255;
    accepted(&t);
    refused_bits(&t, 1, 0x80, DXPU_E_TLP_RSVD);
    refused_bits(&t, 1, 0x08, DXPU_E_TLP_RSVD);
    t.tag = 256;
    refused(&t, DXPU_E_TLP_TAG);
    t = base(DXPU_TLP_MSG);
    t.tag = 256;
    refused(&t, DXPU_E_TLP_TAG);
}

static void test_t10_address(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0xfffffffc, 1, 0xf, 0);
    bytes b = encode(&t);
    (void)state;
    assert_int_equal(b.len, 12);
    t.header_dw = 4;
    refused(&t, DXPU_E_TLP_ADDR64);
    t.address = 0x100000000;
    b = encode(&t);
    assert_int_equal(b.len, 16);
    assert_int_equal(b.at[11], 1);
    t.header_dw = 3;
    refused(&t, DXPU_E_TLP_ADDR);
    t.address = 0x1002;
    refused(&t, DXPU_E_TLP_ADDR);
    t = base(DXPU_TLP_IORD);
    t.address = 0x100000000;
    refused(&t, DXPU_E_TLP_ADDR);
    t = base(DXPU_TLP_SWAP);
    t.address = 0x1001;
    refused(&t, DXPU_E_TLP_ADDR);
    t.header_dw = 4;
    t.address = 0x1000;
    refused(&t, DXPU_E_TLP_ADDR64);
}

static void test_t11_poison_only_with_data(void **state)
{
    unsigned type;
    (void)state;
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        dxpu_tlp t = base(type);
        t.ep = true;
        if (dxpui_tlp_rows[type].data) {
            bytes b = encode(&t);
            assert_int_equal(b.at[2] & 0xc0, 0x40);
        } else {
            refused(&t, DXPU_E_TLP_RSVD);
        }
    }
}

static void test_t11_digest(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD), back;
    bytes b;
    (void)state;
    t.td = true;
    t.digest = 0x12345678;
    b = encode(&t);
    assert_int_equal(b.len, 16);
    assert_int_equal(b.at[2] & 0xc0, 0x80);
    assert_int_equal(b.at[12], 0x78);
    assert_int_equal(b.at[15], 0x12);
    assert_int_equal(dxpu_tlp_decode(view(&b), &back), DXPU_OK);
    assert_true(back.digest == 0x12345678);
}

static void test_t12_hints(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1000, 4, 0xf, 0xf);
    bytes b;
    unsigned type;
    (void)state;
    t.th = true;
    t.steering = 0xa5;
    t.ph = 1;
    b = encode(&t);
    assert_int_equal(b.at[1] & 1, 1);
    assert_int_equal(b.at[7], 0xa5);
    assert_int_equal(b.at[6], 7);
    assert_int_equal(b.at[11], 1);
    t.first_be = 0xe;
    refused(&t, DXPU_E_TLP_BE);
    t.first_be = 0xf;
    t.last_be = 0x7;
    refused(&t, DXPU_E_TLP_BE);
    t = memory(DXPU_TLP_DMWR, 0x1000, 1, 0xf, 0);
    t.th = true;
    accepted(&t);
    t.first_be = 0x7;
    refused(&t, DXPU_E_TLP_BE);
    t = memory(DXPU_TLP_MWR, 0x1000, 1, 0x3, 0);
    t.th = true;
    t.tag = 0;
    t.steering = 0x5a;
    b = encode(&t);
    assert_int_equal(b.at[6], 0x5a);
    assert_int_equal(b.at[7], 0x03);
    t = base(DXPU_TLP_CAS);
    t.th = true;
    t.steering = 0xc3;
    b = encode(&t);
    assert_int_equal(b.at[7], 0xc3);
    t.type = DXPU_TLP_DMWR;
    t.first_be = 0xf;
    t.last_be = 0xf;
    b = encode(&t);
    assert_int_equal(b.at[7], 0xc3);
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        unsigned kind = dxpui_tlp_kind(type);
        dxpu_tlp back = { 0 };
        t = base(type);
        b = encode(&t);
        b.at[1] |= 1; /* what a header-only decoder makes of the bit */
        assert_int_equal(dxpu_tlp_decode_header(view(&b), &back), DXPU_OK);
        assert_true(back.th);
        if (type == DXPU_TLP_MWR)
            assert_int_equal(back.steering, 7); /* the tag's byte */
        if (type == DXPU_TLP_MRD)
            assert_int_equal(back.steering, 0x0f); /* the byte enables' */
        if (kind == DXPUI_MSG || kind == DXPUI_CPL || kind == DXPUI_CFG)
            assert_int_equal(back.steering, 0);
        t.th = true;
        if (kind == DXPUI_MEM || kind == DXPUI_ATOMIC)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_TH);
    }
}

static void test_t13_processing_hint_bits(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD);
    (void)state;
    t.ph = 1;
    refused(&t, DXPU_E_TLP_TH);
    t.th = true;
    accepted(&t);
    t.ph = 4;
    refused(&t, DXPU_E_TLP_TH);
    t = base(DXPU_TLP_CFGRD0);
    t.ph = 1;
    refused(&t, DXPU_E_TLP_TH);
}

static void test_t14_address_type(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1ffc, 2, 0xf, 0xf);
    unsigned type;
    (void)state;
    refused(&t, DXPU_E_TLP_4K);
    t.at = 1; /* the address names a page */
    accepted(&t);
    t.ph = 1;
    accepted(&t);
    t.ph = 2;
    refused(&t, DXPU_E_TLP_TH);
    t.ph = 0;
    t.length_dw = 3;
    refused(&t, DXPU_E_TLP_LENGTH);
    t.length_dw = 2;
    t.attr = DXPU_ATTR_RO;
    accepted(&t);
    t.attr = DXPU_ATTR_IDO;
    refused(&t, DXPU_E_TLP_ATTR);
    t.attr = DXPU_ATTR_NS;
    refused(&t, DXPU_E_TLP_ATTR);
    t.attr = 0;
    t.th = true;
    refused(&t, DXPU_E_TLP_TH);
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        unsigned kind = dxpui_tlp_kind(type);
        t = base(type);
        t.at = 2;
        if (kind == DXPUI_MEM || kind == DXPUI_ATOMIC)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_AT);
        t.at = 3;
        refused(&t, DXPU_E_TLP_AT);
        if (type != DXPU_TLP_MRD) {
            t.at = 1;
            refused(&t, DXPU_E_TLP_AT);
        }
    }
}

static void test_t7_deferrable_write_length(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_DMWR, 0x1000, 32, 0xf, 0xf);
    (void)state;
    accepted(&t);
    t.length_dw = 33;
    refused(&t, DXPU_E_TLP_LENGTH);
    t.type = DXPU_TLP_MWR;
    t.payload.len = 33 * 4;
    accepted(&t);
}

static void test_t15_page(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1ff8, 2, 0xf, 0xf);
    (void)state;
    accepted(&t);
    t.address = 0x1ffc;
    refused(&t, DXPU_E_TLP_4K);
    t = memory(DXPU_TLP_MWR, 0x1000, 1024, 0xf, 0xf);
    accepted(&t);
    t.address = 0x1004;
    refused(&t, DXPU_E_TLP_4K);
    assert_false(dxpui_crosses_4k(0xfff, 1));
    assert_true(dxpui_crosses_4k(0xfff, 2));
    assert_false(dxpui_crosses_4k(0x2000, 4096));
    assert_true(dxpui_crosses_4k(0x2001, 4096));
    assert_false(dxpui_crosses_4k(0xfff, 0));
    assert_true(dxpui_crosses_4k(0xffffffffffffffff, 0xffffffff));
}

/* All pairs of byte enables against the bits one by one. */
static void test_t16_byte_enables(void **state)
{
    unsigned length, aligned, first, last, i;
    (void)state;
    for (length = 1; length <= 3; length++)
        for (aligned = 0; aligned < 2; aligned++)
            for (first = 0; first < 16; first++)
                for (last = 0; last < 16; last++) {
                    dxpu_tlp t = memory(DXPU_TLP_MRD, aligned ? 0x1008 : 0x1004, (uint16_t)length,
                                        (uint8_t)first, (uint8_t)last);
                    bool ok = length == 1 ? last == 0 : first && last;
                    for (i = 0; i < 3 && length > 1 && !(length == 2 && aligned); i++)
                        if ((first >> i & 1 && !(first >> (i + 1) & 1)) ||
                            (last >> (i + 1) & 1 && !(last >> i & 1)))
                            ok = false;
                    if (ok)
                        accepted(&t);
                    else
                        refused(&t, DXPU_E_TLP_BE);
                }
    {
        dxpu_tlp t = memory(DXPU_TLP_MWR, 0x1000, 1, 0x1f, 0);
        refused(&t, DXPU_E_TLP_BE);
        t = memory(DXPU_TLP_MWR, 0x1000, 2, 0xf, 0x1f);
        refused(&t, DXPU_E_TLP_BE);
    }
}

static void test_t17_zero_length(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1044, 1, 0, 0), cpl;
    dxpu_cpl_split s;
    uint64_t at;
    (void)state;
    accepted(&t);
    dxpui_zero(&s, sizeof s);
    assert_int_equal(dxpu_cpl_split_start(&s, &t, 64, 128), DXPU_OK);
    assert_true(s.zero_length);
    dxpui_zero(&cpl, sizeof cpl);
    assert_true(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_int_equal(cpl.byte_count, 1);
    assert_int_equal(cpl.lower_addr, 0x44);
    assert_int_equal(cpl.length_dw, 1);
    assert_int_equal(at, 0x1044);
    assert_false(dxpu_cpl_split_next(&s, &cpl, &at));
}

static void test_t18_operands(void **state)
{
    unsigned type, length, offset;
    (void)state;
    for (type = DXPU_TLP_FETCHADD; type <= DXPU_TLP_CAS; type++)
        for (length = 1; length <= 1024; length++)
            for (offset = 0; offset < 32; offset += 4) {
                dxpu_tlp t = memory(type, 0x1000 + offset, (uint16_t)length, 0, 0);
                unsigned operand = type == DXPU_TLP_CAS ? length * 2 : length * 4;
                bool sized =
                    operand == 4 || operand == 8 || (operand == 16 && type == DXPU_TLP_CAS);
                if (sized && offset % operand == 0)
                    accepted(&t);
                else
                    assert_int_equal(dxpu_tlp_check(&t), DXPU_E_TLP_OPERAND);
            }
}

static void test_t19_io_and_configuration(void **state)
{
    static const uint8_t types[] = { DXPU_TLP_IORD,   DXPU_TLP_IOWR,   DXPU_TLP_CFGRD0,
                                     DXPU_TLP_CFGWR0, DXPU_TLP_CFGRD1, DXPU_TLP_CFGWR1 };
    unsigned i;
    dxpu_tlp t = { 0 };
    bytes b;
    (void)state;
    for (i = 0; i < sizeof types; i++) {
        t = base(types[i]);
        t.first_be = 0; /* no byte enabled is allowed */
        accepted(&t);
        t.tc = 1;
        refused(&t, DXPU_E_TLP_TC);
        t = base(types[i]);
        t.attr = DXPU_ATTR_IDO;
        refused(&t, DXPU_E_TLP_ATTR);
        t = base(types[i]);
        t.length_dw = 2;
        refused(&t, DXPU_E_TLP_LENGTH);
        t = base(types[i]);
        t.last_be = 1;
        refused(&t, DXPU_E_TLP_BE);
        t = base(types[i]);
        t.first_be = 0x10;
        refused(&t, DXPU_E_TLP_BE);
    }
    t = base(DXPU_TLP_CFGWR0);
    t.register_bytes = 4092;
    b = encode(&t);
    assert_int_equal(b.at[10], 0x0f);
    assert_int_equal(b.at[11], 0xfc);
    t.register_bytes = 4096;
    refused(&t, DXPU_E_TLP_REGISTER);
    t.register_bytes = 2;
    refused(&t, DXPU_E_TLP_REGISTER);
}

static void set_prefixes(dxpu_tlp *t, unsigned count, uint32_t a, uint32_t b)
{
    unsigned i;
    t->prefix_count = (uint8_t)count;
    for (i = 0; i < count && i < DXPU_PREFIXES_MAX; i++)
        t->prefix[i] = i ? b : a;
}

static void test_t20_prefix_names(void **state)
{
    unsigned byte0, known = 0;
    bool local = false;
    (void)state;
    for (byte0 = 0; byte0 < 256; byte0++)
        known += dxpu_tlp_prefix_name((uint32_t)byte0 << 24 | 0x123456, NULL) != NULL;
    assert_int_equal(known, 8);
    assert_string_equal(dxpu_tlp_prefix_name(0x80000000, &local), "MR-IOV");
    assert_true(local);
    assert_string_equal(dxpu_tlp_prefix_name(0x8e000000, NULL), "VendPrefixL0");
    assert_string_equal(dxpu_tlp_prefix_name(0x8f000000, NULL), "VendPrefixL1");
    assert_string_equal(dxpu_tlp_prefix_name(0x90000000, &local), "TPH");
    assert_false(local);
    assert_string_equal(dxpu_tlp_prefix_name(0x91ffffff, NULL), "PASID");
    assert_string_equal(dxpu_tlp_prefix_name(0x92000000, NULL), "IDE");
    assert_string_equal(dxpu_tlp_prefix_name(0x9e000000, NULL), "VendPrefixE0");
    assert_string_equal(dxpu_tlp_prefix_name(0x9f000000, NULL), "VendPrefixE1");
    {
        dxpu_tlp t = base(DXPU_TLP_MRD);
        set_prefixes(&t, 1, 0x8d000000, 0);
        refused(&t, DXPU_E_TLP_PREFIX);
        set_prefixes(&t, 1, 0x00000000, 0);
        refused(&t, DXPU_E_TLP_PREFIX);
    }
}

static void test_t21_prefix_order(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD);
    dxpu_tlp_shape s = { 0 };
    bytes b;
    (void)state;
    set_prefixes(&t, 2, 0x91000001, 0x8e000001);
    refused(&t, DXPU_E_TLP_PREFIX_ORDER);
    set_prefixes(&t, 2, 0x8e000001, 0x91000001);
    b = encode(&t);
    assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_OK);
    assert_int_equal(s.local_dw, 1);
    assert_int_equal(s.prefix_dw, 2);
    assert_int_equal(s.head_bytes, 20);
}

static void test_t22_prefix_count(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD);
    (void)state;
    set_prefixes(&t, 4, 0x91000001, 0x9e000001);
    accepted(&t);
    set_prefixes(&t, 5, 0x91000001, 0x9e000001);
    refused(&t, DXPU_E_TLP_PREFIX_COUNT);
    set_prefixes(&t, 5, 0x8f000001, 0x9e000001);
    accepted(&t);
    set_prefixes(&t, DXPU_PREFIXES_MAX, 0x8f000001, 0x8e000001);
    accepted(&t);
    set_prefixes(&t, DXPU_PREFIXES_MAX + 1, 0x8f000001, 0x8e000001);
    refused(&t, DXPU_E_TLP_PREFIX_COUNT);
    {
        bytes b;
        dxpu_tlp_shape s = { 0 };
        memset(b.at, 0x8e, sizeof b.at);
        b.len = (DXPU_PREFIXES_MAX + 1) * 4;
        assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_E_TLP_PREFIX_COUNT);
        b.len -= 4;
        assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_E_TLP_SHORT);
    }
}

static void test_t23_ide(void **state)
{
    static const uint8_t raw[16] = { 0x92, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0xf, 0, 0, 0x10, 0 };
    dxpu_bytes in = { raw, sizeof raw };
    dxpu_tlp t = { 0 };
    (void)state;
    assert_int_equal(dxpu_tlp_decode(in, &t), DXPU_E_TLP_IDE);
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
    assert_int_equal(t.prefix_count, 1);
    refused(&t, DXPU_E_TLP_IDE);
}

static void test_t24_pasid(void **state)
{
    unsigned type, code;
    (void)state;
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        unsigned kind = dxpui_tlp_kind(type);
        dxpu_tlp t = base(type);
        accepted(&t);
        set_prefixes(&t, 1, 0x913fffff, 0);
        if (kind == DXPUI_MEM || kind == DXPUI_ATOMIC)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_PREFIX);
    }
    for (code = 0; code < 256; code++) {
        const dxpui_message_row *m = dxpui_message_find(code);
        dxpu_tlp t = base(DXPU_TLP_MSG);
        if (!m || m->data == 1)
            continue;
        t.message_code = (uint8_t)code;
        t.message_routing = code >= 0x7e ? DXPU_MSG_TO_ROOT : m->routing;
        t.message_dw[0] = t.message_dw[1] = 0;
        t.target = 0;
        accepted(&t);
        set_prefixes(&t, 1, 0x91000000, 0);
        if (code >= 1 && code <= 5)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_PREFIX);
    }
    {
        dxpu_tlp t = base(DXPU_TLP_MRD);
        set_prefixes(&t, 1, 0x91800000, 0);
        refused(&t, DXPU_E_TLP_RSVD);
        set_prefixes(&t, 1, 0x91400000, 0);
        refused(&t, DXPU_E_TLP_RSVD);
        set_prefixes(&t, 2, 0x91000001, 0x91000001);
        refused(&t, DXPU_E_TLP_PREFIX_COUNT);
        set_prefixes(&t, 3, 0x8e000001, 0x91000001);
        refused(&t, DXPU_E_TLP_PREFIX_COUNT);
        set_prefixes(&t, 2, 0x91000001, 0x9e000001);
        accepted(&t);
        t.at = 2;
        accepted(&t);
        t = base(DXPU_TLP_CFGRD0); /* an IDE TLP is named as one where it comes first */
        set_prefixes(&t, 2, 0x92000000, 0x91000000);
        refused(&t, DXPU_E_TLP_IDE);
    }
}

static void test_t25_tph(void **state)
{
    unsigned type, bit;
    (void)state;
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        unsigned kind = dxpui_tlp_kind(type);
        dxpu_tlp t = base(type);
        set_prefixes(&t, 1, 0x90ab1000, 0); /* AV is in the place of TH */
        if (kind == DXPUI_MEM || kind == DXPUI_ATOMIC)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_TH);
    }
    for (bit = 0; bit < 24; bit++) { /* ST[15:8], AMA with AT 2, AV; the others are reserved */
        dxpu_tlp t = base(DXPU_TLP_MRD);
        set_prefixes(&t, 1, 0x90000000 | 1u << bit, 0);
        if (bit != 12)
            refused(&t, DXPU_E_TLP_TH);
        t.th = true;
        if (bit >= 16 || bit == 12)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_RSVD);
        t.at = 2;
        if (bit >= 12)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_RSVD);
    }
    {
        dxpu_tlp t = base(DXPU_TLP_MRD);
        t.th = true;
        set_prefixes(&t, 2, 0x90120000, 0x90340000); /* no rule found against it */
        accepted(&t);
    }
}

static void test_t30_message_codes(void **state)
{
    unsigned code, known = 0;
    (void)state;
    for (code = 0; code < 256; code++) {
        const dxpui_message_row *m = dxpui_message_find(code);
        dxpu_tlp t = message(code, m ? m->routing : DXPU_MSG_LOCAL, m && m->data == 1 ? 1 : 0);
        if (m && m->data == 1 && code == 1) {
            t.length_dw = 2;
            t.payload.len = 8;
        }
        if (m)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_MSG_CODE);
        known += m != NULL;
    }
    assert_int_equal(known, DXPUI_MESSAGE_COUNT);
}

static void test_t31_message_routing(void **state)
{
    unsigned code, routing;
    dxpu_tlp t = { 0 };
    (void)state;
    for (code = 0; code < 256; code++) {
        const dxpui_message_row *m = dxpui_message_find(code);
        if (!m)
            continue;
        for (routing = 0; routing < 8; routing++) {
            bool ok = code >= 0x7e ? routing == 0 || routing == 2 || routing == 3 || routing == 4
                                   : routing == m->routing;
            t = message(code, routing, m->data == 1 ? code == 1 ? 2 : 1 : 0);
            if (ok)
                accepted(&t);
            else
                refused(&t, DXPU_E_TLP_MSG_ROUTE);
        }
    }
    t = message(0x18, DXPU_MSG_TO_ROOT, 1);
    refused(&t, DXPU_E_TLP_MSG_ROUTE);
    t = message(0x50, DXPU_MSG_LOCAL, 0);
    refused(&t, DXPU_E_TLP_MSG_ROUTE);
}

static void test_t32_message_tc_and_attributes(void **state)
{
    unsigned i;
    (void)state;
    for (i = 0; i < DXPUI_MESSAGE_COUNT; i++) {
        const dxpui_message_row *m = &dxpui_message_rows[i];
        dxpu_tlp t = message(m->code, m->routing, m->data == 1 ? m->code == 1 ? 2 : 1 : 0);
        bool any_tc =
            m->code == 1 || m->code == 2 || m->code == 4 || m->code == 5 || m->code >= 0x7e;
        t.tc = 5;
        if (any_tc)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_TC);
        t.tc = 0;
        t.attr = DXPU_ATTR_IDO;
        accepted(&t);
        t.attr = DXPU_ATTR_RO;
        if (m->code >= 0x7e)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_ATTR);
    }
}

static void test_t33_message_length(void **state)
{
    dxpu_tlp t = message(0x50, DXPU_MSG_LOCAL, 2);
    (void)state;
    refused(&t, DXPU_E_TLP_LENGTH);
    t = message(0x01, DXPU_MSG_BY_ID, 1);
    refused(&t, DXPU_E_TLP_LENGTH);
    t = message(0x53, DXPU_MSG_LOCAL, 2);
    refused(&t, DXPU_E_TLP_LENGTH);
    t = message(0x53, DXPU_MSG_LOCAL, 1);
    accepted(&t);
    t = message(0x7e, DXPU_MSG_LOCAL, 1024);
    accepted(&t);
}

/* Which of header bytes 8..15 each message may set, bit by bit. */
static void test_t34_message_bytes(void **state)
{
    static const struct {
        uint8_t code, length_dw, routing;
        uint32_t dw2, dw3;
    } rows[] = {
        { 0x00, 0, DXPU_MSG_BROADCAST, 0, 0 },
        { 0x01, 2, DXPU_MSG_BY_ID, 0xffff0000, 0 },
        { 0x02, 0, DXPU_MSG_BY_ID, 0xffff0007, 0xffffffff },
        { 0x04, 0, DXPU_MSG_TO_ROOT, 0xffffffff, 0xffffffff },
        { 0x05, 0, DXPU_MSG_BY_ID, 0xfffff1ff, 0 },
        { 0x10, 0, DXPU_MSG_LOCAL, 0, 0x9fff9fff },
        { 0x12, 0, DXPU_MSG_LOCAL, 0, 0xf },
        { 0x18, 0, DXPU_MSG_TO_ROOT, 0, 0 },
        { 0x20, 0, DXPU_MSG_LOCAL, 0, 0 },
        { 0x30, 0, DXPU_MSG_TO_ROOT, 0xffffffff, 0xffffffff },
        { 0x31, 0, DXPU_MSG_TO_ROOT, 0, 0 },
        { 0x50, 1, DXPU_MSG_LOCAL, 0, 0 },
        { 0x53, 0, DXPU_MSG_LOCAL, 0, 0 },
        { 0x53, 1, DXPU_MSG_LOCAL, 0xffffffff, 0xffffffff },
        { 0x7e, 0, DXPU_MSG_LOCAL, 0x0000ffff, 0xffffffff },
        { 0x7f, 0, DXPU_MSG_BY_ID, 0xffffffff, 0xffffffff },
    };
    unsigned i, bit;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (bit = 0; bit < 64; bit++) {
            dxpu_tlp t = message(rows[i].code, rows[i].routing, rows[i].length_dw);
            uint32_t mask = bit < 32 ? rows[i].dw3 : rows[i].dw2;
            t.message_dw[bit < 32] = 1u << bit % 32;
            if (mask >> bit % 32 & 1)
                accepted(&t);
            else
                refused(&t, DXPU_E_TLP_RSVD);
        }
}

static void test_t35_message_by_id(void **state)
{
    dxpu_tlp t = message(0x7f, DXPU_MSG_BY_ID, 0), back;
    bytes b;
    (void)state;
    t.target = 0x1234;
    t.message_dw[0] = 0xffff5678;
    b = encode(&t);
    assert_int_equal(dxpu_get_be32(b.at + 8), 0x12345678);
    assert_int_equal(dxpu_tlp_decode(view(&b), &back), DXPU_OK);
    assert_int_equal(back.target, 0x1234);
    assert_int_equal(back.message_dw[0], 0x12345678);
    /* by address: no message that passes, but a log may hold one */
    b.at[0] = 0x31;
    assert_int_equal(strict(&b), DXPU_E_TLP_MSG_ROUTE);
    assert_int_equal(dxpu_tlp_decode_header(view(&b), &back), DXPU_OK);
    assert_int_equal(back.target, 0);
    assert_true(back.address == 0x1234567800000000);
}

static void test_t36_status(void **state)
{
    unsigned status;
    (void)state;
    for (status = 0; status < 256; status++) {
        dxpu_tlp t = base(DXPU_TLP_CPL);
        t.status = (uint8_t)status;
        if (status == 0 || status == 1 || status == 2 || status == 4)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_STATUS);
        t = base(DXPU_TLP_CPLDLK);
        t.status = (uint8_t)status;
        if (status == 0)
            accepted(&t);
        else
            refused(&t, DXPU_E_TLP_STATUS);
    }
}

static void test_t37_byte_count(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_CPL), back;
    bytes b;
    (void)state;
    t.byte_count = 4096;
    b = encode(&t);
    assert_int_equal(b.at[6] & 0xf, 0);
    assert_int_equal(b.at[7], 0);
    assert_int_equal(dxpu_tlp_decode(view(&b), &back), DXPU_OK);
    assert_int_equal(back.byte_count, 4096);
    t.byte_count = 4097;
    refused(&t, DXPU_E_TLP_BYTE_COUNT);
    t.byte_count = 0;
    refused(&t, DXPU_E_TLP_BYTE_COUNT);
    t.byte_count = 4;
    t.lower_addr = 128;
    refused(&t, DXPU_E_TLP_BYTE_COUNT);
    t = base(DXPU_TLP_CPLD);
    t.length_dw = 2;
    refused(&t, DXPU_E_TLP_BYTE_COUNT);
    t.byte_count = 5;
    accepted(&t);
    t.length_dw = 1024;
    t.byte_count = 4096;
    accepted(&t);
    t.lower_addr = 1;
    refused(&t, DXPU_E_TLP_BYTE_COUNT);
    t.byte_count = 4095;
    accepted(&t);
    t = base(DXPU_TLP_CPLD);
    t.bcm = true;
    b = encode(&t);
    assert_int_equal(b.at[6] & 0x10, 0x10);
}

static void test_t38_read_completion_boundary(void **state)
{
    unsigned lower, length;
    (void)state;
    for (lower = 0; lower < 128; lower++)
        for (length = 1; length <= 64; length++) {
            dxpu_tlp t = base(DXPU_TLP_CPLD);
            t.byte_count = 1024;
            t.lower_addr = (uint8_t)lower;
            t.length_dw = (uint16_t)length;
            if (((lower & ~3u) + length * 4) % 64 == 0)
                accepted(&t);
            else
                refused(&t, DXPU_E_TLP_RCB);
        }
}

static void test_t40_header_only(void **state)
{
    static const uint8_t log[16] = { 0x40, 0, 0, 2, 0,    0,    0,    0x0f,
                                     0x95, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef };
    dxpu_bytes in = { log, 12 };
    dxpu_tlp t = { 0 };
    (void)state;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
    assert_null(t.payload.ptr);
    assert_int_equal(t.payload.len, 0);
    in.len = 14;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
    assert_ptr_equal(t.payload.ptr, log + 12);
    assert_int_equal(t.payload.len, 2);
    in.len = 11;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_E_TLP_SHORT);
    in.len = 0;
    in.ptr = NULL;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_E_TLP_SHORT);
    {
        /* more than the payload is there: residue */
        uint8_t more[32] = { 0x40, 0, 0x80, 1, 0, 0, 0, 0x0f };
        in.ptr = more;
        in.len = sizeof more;
        assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
        assert_int_equal(t.payload.len, 4);
        assert_true(t.td);
        assert_int_equal(t.digest, 0);
    }
}

/* Setting bits of one byte, which the analyser refuses, changes nothing for a receiver. */
static void ignored_bits(const dxpu_tlp *t, unsigned byte, unsigned bits, int error)
{
    bytes good = encode(t), b = good;
    dxpu_tlp first, back;
    assert_int_equal(dxpu_tlp_receive(view(&good), &first), DXPU_OK);
    b.at[byte] = (uint8_t)(b.at[byte] | bits);
    assert_string_equal(dxpu_error_name(strict(&b)), dxpu_error_name(error));
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_OK);
    same_fields(&back, &first);
    b = encode(&back);
    assert_int_equal(b.len, good.len);
    assert_memory_equal(b.at, good.at, good.len);
}

static void test_t43_reserved_bits_are_ignored(void **state)
{
    dxpu_tlp t = base(DXPU_TLP_MRD);
    (void)state;
    ignored_bits(&t, 1, 0x02, DXPU_E_TLP_RSVD); /* LN */
    ignored_bits(&t, 11, 0x03, DXPU_E_TLP_RSVD);
    ignored_bits(&t, 2, 0x40, DXPU_E_TLP_RSVD); /* EP without data */
    t = base(DXPU_TLP_MWR);
    ignored_bits(&t, 1, 0x88, DXPU_E_TLP_RSVD); /* T9, T8 */
    t = base(DXPU_TLP_CFGRD0);
    ignored_bits(&t, 10, 0xf0, DXPU_E_TLP_RSVD);
    ignored_bits(&t, 11, 0x03, DXPU_E_TLP_RSVD);
    ignored_bits(&t, 1, 0x04, DXPU_E_TLP_ATTR); /* IDO */
    ignored_bits(&t, 2, 0x0c, DXPU_E_TLP_AT);
    t = base(DXPU_TLP_IOWR);
    ignored_bits(&t, 1, 0x05, DXPU_E_TLP_TH); /* IDO, TH */
    ignored_bits(&t, 1, 0x04, DXPU_E_TLP_ATTR);
    t = base(DXPU_TLP_SWAP);
    ignored_bits(&t, 7, 0xff, DXPU_E_TLP_RSVD);
    t = base(DXPU_TLP_CPL);
    ignored_bits(&t, 3, 0xff, DXPU_E_TLP_RSVD); /* Length */
    ignored_bits(&t, 11, 0x80, DXPU_E_TLP_RSVD);
    ignored_bits(&t, 1, 0x01, DXPU_E_TLP_TH);
    ignored_bits(&t, 2, 0x04, DXPU_E_TLP_AT);
}

static void test_t43_reserved_fields_of_messages_and_prefixes(void **state)
{
    dxpu_tlp t = message(0x18, DXPU_MSG_TO_ROOT, 0); /* PM_PME */
    (void)state;
    ignored_bits(&t, 1, 0x89, DXPU_E_TLP_TH);
    ignored_bits(&t, 2, 0x30, DXPU_E_TLP_ATTR);
    for (unsigned byte = 8; byte < 16; byte++)
        ignored_bits(&t, byte, 0xff, DXPU_E_TLP_RSVD);
    t = message(0x05, DXPU_MSG_BY_ID, 0); /* PRG_Response */
    t.target = DXPU_BDF(9, 8, 7);
    ignored_bits(&t, 10, 0x0e, DXPU_E_TLP_RSVD);
    t = message(0x7f, DXPU_MSG_LOCAL, 1); /* a vendor's attributes and bytes are its own */
    t.attr = DXPU_ATTR_NS | DXPU_ATTR_RO;
    t.message_dw[0] = 0x1234;
    t.message_dw[1] = 0x56789abc;
    ignored_bits(&t, 8, 0xff, DXPU_E_TLP_RSVD);
    t = memory(DXPU_TLP_MRD, 0x1000, 1, 0xf, 0);
    t.th = true;
    t.prefix_count = 2;
    t.prefix[0] = 0x91012345;
    t.prefix[1] = 0x90120000;
    ignored_bits(&t, 1, 0xc0, DXPU_E_TLP_RSVD);
    ignored_bits(&t, 6, 0xef, DXPU_E_TLP_RSVD);
    ignored_bits(&t, 7, 0xff, DXPU_E_TLP_RSVD);
}

static void test_t43_reserved_status_is_unsupported_request(void **state)
{
    static const uint8_t statuses[] = { 3, 5, 6, 7 };
    dxpu_tlp t = base(DXPU_TLP_CPL), back;
    bytes b;
    (void)state;
    for (unsigned i = 0; i < sizeof statuses; i++) {
        t.status = DXPU_CPL_SC;
        b = encode(&t);
        b.at[6] = (uint8_t)(b.at[6] | statuses[i] << 5);
        assert_int_equal(strict(&b), DXPU_E_TLP_STATUS);
        assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_OK);
        assert_int_equal(back.status, DXPU_CPL_UR);
    }
    t.status = DXPU_CPL_CRS;
    b = encode(&t);
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_OK);
    assert_int_equal(back.status, DXPU_CPL_CRS);
    t = base(DXPU_TLP_CPLD); /* no status but SC has data */
    b = encode(&t);
    b.at[6] |= 0x60;
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_STATUS);
}

/* Base Spec 2.2.4.1 leaves open what a receiver does with such a header. */
static void test_t43_long_header_below_4_gb(void **state)
{
    static const uint8_t long_form[] = { 0x60, 0, 0,    1, 1,    2,    3, 0x0f, 0, 0,
                                         0,    0, 0x12, 0, 0x00, 0x10, 1, 2,    3, 4 };
    dxpu_bytes in = dxpui_view(long_form, sizeof long_form);
    dxpu_tlp t;
    (void)state;
    assert_int_equal(dxpu_tlp_decode(in, &t), DXPU_E_TLP_ADDR64);
    assert_int_equal(dxpu_tlp_receive(in, &t), DXPU_OK);
    assert_int_equal(t.header_dw, 3);
    assert_int_equal(t.address, 0x12000010);
    assert_ptr_equal(t.payload.ptr, long_form + 16);
    bytes b = encode(&t);
    assert_int_equal(b.len, sizeof long_form - 4);
    assert_int_equal(strict(&b), DXPU_OK);
    t.address = 0x100000000;
    t.header_dw = 4;
    b = encode(&t);
    assert_int_equal(dxpu_tlp_receive(view(&b), &t), DXPU_OK);
    assert_int_equal(t.header_dw, 4);
}

/* What PCIe calls malformed, or has no meaning, is refused by both; nothing is written. */
static void test_t43_malformed_is_refused(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1ff8, 2, 0xf, 0xf), back, before;
    bytes b = encode(&t);
    (void)state;
    memset(&back, 0xa5, sizeof back);
    before = back;
    b.at[3] = 3;
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_4K);
    b.at[3] = 2;
    b.at[7] = 0x0f;
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_BE);
    b.at[7] = 0xff;
    b.at[2] = 0x0c;
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_AT);
    b.at[2] = 0;
    b.len--;
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_SHORT);
    t = message(0x18, DXPU_MSG_TO_ROOT, 0);
    b = encode(&t);
    b.at[1] = 0x10;
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_TC);
    t = base(DXPU_TLP_CPL);
    t.prefix_count = 1;
    t.prefix[0] = 0x8e000000;
    b = encode(&t);
    b.at[0] = 0x91; /* a PASID on a completion */
    assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_E_TLP_PREFIX);
    assert_memory_equal(&back, &before, sizeof back);
}

static void test_t44_locked_reads_use_tc0(void **state)
{
    static const uint8_t types[] = { DXPU_TLP_MRDLK, DXPU_TLP_CPLDLK, DXPU_TLP_CPLLK,
                                     DXPU_TLP_MRD };
    (void)state;
    for (unsigned i = 0; i < sizeof types; i++) {
        dxpu_tlp t = base(types[i]), back;
        bytes b = encode(&t);
        assert_int_equal(strict(&b), DXPU_OK);
        t.tc = 3;
        b = encode(&t);
        assert_int_equal(strict(&b), i < 2 ? DXPU_E_TLP_TC : DXPU_OK);
        assert_int_equal(dxpu_tlp_receive(view(&b), &back), DXPU_OK);
        same_fields(&back, &t);
    }
}

static void test_t41_empty_logs(void **state)
{
    uint8_t log[16];
    dxpu_bytes in = { log, sizeof log };
    dxpu_tlp t = { 0 };
    (void)state;
    memset(log, 0xff, sizeof log);
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_E_TLP_ALL_ONES);
    assert_int_equal(dxpu_tlp_decode(in, &t), DXPU_E_TLP_ALL_ONES);
    log[11] = 0xfe;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_E_TLP_TYPE);
    memset(log, 0, sizeof log);
    log[15] = 1; /* residue */
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_E_TLP_ALL_ZERO);
    assert_int_equal(dxpu_tlp_decode(in, &t), DXPU_E_TLP_ALL_ZERO);
    log[11] = 4;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
}

static void test_t42_measure(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MWR, 0x100000000, 1024, 0xf, 0xf);
    dxpu_tlp_shape s = { 0 };
    bytes b;
    (void)state;
    set_prefixes(&t, 5, 0x8e000001, 0x9e000001);
    t.td = true;
    b = encode(&t);
    assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_OK);
    assert_int_equal(s.type, DXPU_TLP_MWR);
    assert_int_equal(s.cls, DXPU_POSTED);
    assert_int_equal(s.local_dw, 1);
    assert_int_equal(s.prefix_dw, 5);
    assert_int_equal(s.header_dw, 4);
    assert_int_equal(s.digest_bytes, 4);
    assert_int_equal(s.head_bytes, 36);
    assert_int_equal(s.payload_bytes, 4096);
    assert_int_equal(s.total_bytes, 36 + 4096 + 4);
    b.len = 36;
    assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_OK);
    b.len = 35;
    assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_E_TLP_SHORT);
    b.len = 22;
    assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_E_TLP_SHORT);
    b.at[20] = 0x1f;
    b.len = 24;
    assert_int_equal(dxpu_tlp_measure(view(&b), &s), DXPU_E_TLP_TYPE);
}

static void test_t50_byte_enables_from_range(void **state)
{
    uint8_t first = 0, last = 0;
    uint16_t length = 0;
    uint32_t offset, span;
    (void)state;
    assert_int_equal(dxpu_be_from_range(0x1003, 2, &first, &last, &length), DXPU_OK);
    assert_int_equal(first, 8);
    assert_int_equal(last, 1);
    assert_int_equal(length, 2);
    assert_int_equal(dxpu_be_from_range(0x1001, 2, &first, &last, &length), DXPU_OK);
    assert_int_equal(first, 6);
    assert_int_equal(last, 0);
    assert_int_equal(length, 1);
    assert_int_equal(dxpu_be_from_range(0x1000, 4096, &first, &last, &length), DXPU_OK);
    assert_int_equal(first, 0xf);
    assert_int_equal(last, 0xf);
    assert_int_equal(length, 1024);
    assert_int_equal(dxpu_be_from_range(0x1fff, 0, &first, &last, &length), DXPU_OK);
    assert_int_equal(first, 0);
    assert_int_equal(last, 0);
    assert_int_equal(length, 1);
    assert_int_equal(dxpu_be_from_range(0x1fff, 2, &first, &last, &length), DXPU_E_ARG);
    assert_int_equal(dxpu_be_from_range(0x1000, 4097, &first, &last, &length), DXPU_E_ARG);
    assert_int_equal(length, 1); /* untouched */
    dxpu_be_to_range(0xa, 0x5, 2, &offset, &span);
    assert_int_equal(offset, 1);
    assert_int_equal(span, 6);
    dxpu_be_to_range(0x8, 0x7, 3, &offset, &span);
    assert_int_equal(offset, 3);
    assert_int_equal(span, 8);
    dxpu_be_to_range(0x9, 0, 1, &offset, &span);
    assert_int_equal(offset, 0);
    assert_int_equal(span, 4);
    dxpu_be_to_range(0, 0, 1, &offset, &span);
    assert_int_equal(offset, 0);
    assert_int_equal(span, 0);
}

static void test_t51_requests_of_a_transfer(void **state)
{
    (void)state;
    assert_int_equal(dxpu_request_next(0x1000, 10000, 512), 512);
    assert_int_equal(dxpu_request_next(0x1001, 10000, 512), 511);
    assert_int_equal(dxpu_request_next(0x1ff0, 10000, 512), 16);
    assert_int_equal(dxpu_request_next(0x1fff, 10000, 4), 1);
    assert_int_equal(dxpu_request_next(0x1000, 3, 4096), 3);
    assert_int_equal(dxpu_request_next(0x1000, 5000, 4096), 4096);
}

static void test_t52_completion_split(void **state)
{
    dxpu_tlp read = memory(DXPU_TLP_MRD, 0x1004, 128, 0xf, 0xf), cpl;
    dxpu_cpl_split s;
    uint64_t at;
    (void)state;
    dxpui_zero(&cpl, sizeof cpl);
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 64, 256), DXPU_OK);
    assert_true(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_int_equal(cpl.byte_count, 512);
    assert_int_equal(cpl.lower_addr, 4);
    assert_int_equal(cpl.length_dw, 63);
    assert_int_equal(at, 0x1004);
    assert_true(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_int_equal(cpl.byte_count, 260);
    assert_int_equal(cpl.lower_addr, 0);
    assert_int_equal(cpl.length_dw, 64);
    assert_int_equal(at, 0x1100);
    assert_true(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_int_equal(cpl.byte_count, 4);
    assert_int_equal(cpl.length_dw, 1);
    assert_int_equal(at, 0x1200);
    assert_false(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 32, 256), DXPU_E_ARG);
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 128, 64), DXPU_E_ARG);
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 128, 8192), DXPU_E_ARG);
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 128, 384), DXPU_E_ARG);
    read.type = DXPU_TLP_MRDLK;
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 128, 4096), DXPU_OK);
    read.type = DXPU_TLP_MWR;
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 128, 4096), DXPU_E_ARG);
}

static void test_t52_split_at_the_top_of_memory(void **state)
{
    dxpu_tlp read = memory(DXPU_TLP_MRD, 0xfffffffffffffff0u - 0x80, 36, 0xf, 0xf), cpl = { 0 };
    dxpu_cpl_split s;
    uint64_t at = 0;
    (void)state;
    accepted(&read);
    assert_int_equal(dxpu_cpl_split_start(&s, &read, 64, 128), DXPU_OK);
    assert_true(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_int_equal(cpl.byte_count, 144);
    assert_int_equal(cpl.length_dw, 20);
    assert_true(dxpu_cpl_split_next(&s, &cpl, &at));
    assert_true(at == 0xffffffffffffffc0u);
    assert_int_equal(cpl.byte_count, 64);
    assert_int_equal(cpl.length_dw, 16);
    assert_false(dxpu_cpl_split_next(&s, &cpl, &at));
}

static void completes(const dxpu_tlp *req, uint8_t status, unsigned type, unsigned count,
                      unsigned lower, unsigned length)
{
    dxpu_tlp c;
    dxpu_tlp_completion(req, 0x0bad, status, &c);
    assert_int_equal(c.type, type);
    assert_int_equal(c.byte_count, count);
    assert_int_equal(c.lower_addr, lower);
    assert_int_equal(c.length_dw, length);
    assert_int_equal(c.completer, 0x0bad);
    assert_int_equal(c.requester, req->requester);
    assert_int_equal(c.tag, req->tag);
    assert_int_equal(c.tc, req->tc);
    assert_int_equal(c.attr, req->attr);
    assert_int_equal(c.status, status);
    accepted(&c);
}

static void test_t53_completion_of_a_request(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1040, 3, 0xc, 0x7);
    (void)state;
    t.tag = 999;
    t.tc = 3;
    t.attr = 7;
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 9, 0x42, 3);
    completes(&t, DXPU_CPL_UR, DXPU_TLP_CPL, 9, 0x42, 0);
    t = memory(DXPU_TLP_MRD, 0x107c, 1, 0, 0);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 1, 0x7c, 1);
    t = memory(DXPU_TLP_MRDLK, 0x1000, 1, 0xf, 0);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLDLK, 4, 0, 1);
    completes(&t, DXPU_CPL_CA, DXPU_TLP_CPLLK, 4, 0, 0);
    t = base(DXPU_TLP_CFGRD1);
    t.first_be = 2;
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 4, 0, 1);
    completes(&t, DXPU_CPL_CRS, DXPU_TLP_CPL, 4, 0, 0);
    t = base(DXPU_TLP_CFGWR0);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPL, 4, 0, 0);
    t = base(DXPU_TLP_IORD);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 4, 0, 1);
    t = base(DXPU_TLP_IOWR);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPL, 4, 0, 0);
    t = memory(DXPU_TLP_DMWR, 0x1000, 32, 0xf, 0xf);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPL, 4, 0, 0);
    t = memory(DXPU_TLP_FETCHADD, 0x1008, 2, 0, 0);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 8, 0, 2);
    completes(&t, DXPU_CPL_UR, DXPU_TLP_CPL, 8, 0, 0);
    t = memory(DXPU_TLP_CAS, 0x1010, 8, 0, 0);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 16, 0, 4);
    t = memory(DXPU_TLP_CAS, 0x1010, 2, 0, 0);
    completes(&t, DXPU_CPL_SC, DXPU_TLP_CPLD, 4, 0, 1);
}

static void test_t60_ecrc(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MWR, 0x1000, 2, 0xf, 0xf);
    bytes b;
    uint32_t crc, by_hand;
    (void)state;
    t.td = true;
    b = encode(&t);
    crc = dxpu_tlp_ecrc(view(&b));
    b.at[0] |= 1;
    b.at[2] |= 0x40;
    by_hand = dxpu_crc32(0, b.at, 20);
    b.at[0] &= 0xfe;
    assert_true(crc == by_hand);
    assert_true(dxpu_tlp_ecrc(view(&b)) == crc); /* poisoned: the same */
    dxpu_put_le32(b.at + 20, crc);
    assert_int_equal(dxpu_tlp_ecrc_check(view(&b)), DXPU_OK);
    b.len = 20; /* without its digest the value is the same */
    assert_true(dxpu_tlp_ecrc(view(&b)) == crc);
    assert_int_equal(dxpu_tlp_ecrc_check(view(&b)), DXPU_E_TLP_SHORT);
    b.len = 19;
    assert_true(dxpu_tlp_ecrc(view(&b)) == 0);
    b.len = 3;
    assert_true(dxpu_tlp_ecrc(view(&b)) == 0);
    assert_int_equal(dxpu_tlp_ecrc_check(view(&b)), DXPU_E_TLP_SHORT);
    b.len = 24;
    b.at[12] ^= 1;
    assert_int_equal(dxpu_tlp_ecrc_check(view(&b)), DXPU_E_TLP_ECRC);
    b.at[2] &= 0x7f; /* without TD there is nothing to check */
    assert_int_equal(dxpu_tlp_ecrc_check(view(&b)), DXPU_OK);
}

static void test_t61_ecrc_leaves_local_prefixes_out(void **state)
{
    dxpu_tlp t = memory(DXPU_TLP_MRD, 0x1000, 2, 0xf, 0xf);
    bytes a, b;
    (void)state;
    set_prefixes(&t, 1, 0x91000007, 0);
    a = encode(&t);
    set_prefixes(&t, 2, 0x8e123456, 0x91000007);
    b = encode(&t);
    assert_true(dxpu_tlp_ecrc(view(&a)) == dxpu_tlp_ecrc(view(&b)));
    set_prefixes(&t, 1, 0x91000006, 0);
    b = encode(&t);
    assert_true(dxpu_tlp_ecrc(view(&a)) != dxpu_tlp_ecrc(view(&b)));
}

/* As the data link layer makes it (Base Spec 3.6.2), of what dxpu_crc32() gives. */
static uint32_t lcrc(uint16_t sequence, dxpu_bytes tlp)
{
    uint8_t number[2];
    dxpu_put_be16(number, sequence & 0xfffu);
    return dxpu_crc32(dxpu_crc32(0, number, 2), tlp.ptr, tlp.len);
}

static void test_t62_lcrc(void **state)
{
    dxpu_tlp t = message(0x19, DXPU_MSG_BROADCAST, 0);
    uint8_t crc[4];
    bytes b;
    (void)state;
    t.requester = 0;
    t.tag = 0;
    b = encode(&t);
    dxpu_put_le32(crc, lcrc(5, view(&b)));
    assert_int_equal(crc[0], 0xfa);
    assert_int_equal(crc[1], 0x26);
    assert_int_equal(crc[2], 0x06);
    assert_int_equal(crc[3], 0x4b);
    assert_true(dxpu_get_le32(crc) == 0x4b0626fa);
    /* twelve bits of sequence number */
    assert_true(lcrc(0xf005, view(&b)) == 0x4b0626fa);
    assert_true(lcrc(6, view(&b)) != 0x4b0626fa);
}

static void test_r20_class_and_routing(void **state)
{
    static const char *const routing[] = { "to-root", "address",  "id",    "broadcast",
                                           "local",   "gathered", "local", "local" };
    unsigned type, r;
    (void)state;
    for (type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        dxpu_tlp t = base(type);
        unsigned kind = dxpui_tlp_kind(type);
        unsigned cls = kind == DXPUI_CPL                           ? DXPU_COMPLETION
                       : kind == DXPUI_MSG || type == DXPU_TLP_MWR ? DXPU_POSTED
                                                                   : DXPU_NONPOSTED;
        assert_int_equal(dxpu_tlp_class(&t), cls);
        if (kind == DXPUI_CPL || kind == DXPUI_CFG)
            assert_int_equal(dxpu_tlp_routing(&t), DXPU_ROUTE_ID);
        else if (kind != DXPUI_MSG)
            assert_int_equal(dxpu_tlp_routing(&t), DXPU_ROUTE_ADDRESS);
    }
    for (r = 0; r < 8; r++) {
        dxpu_tlp t = message(0x7f, r, 0);
        assert_string_equal(dxpu_routing_name(dxpu_tlp_routing(&t)), routing[r]);
    }
}

static void test_r21_names(void **state)
{
    (void)state;
    assert_string_equal(dxpu_class_name(DXPU_POSTED), "posted");
    assert_string_equal(dxpu_class_name(DXPU_NONPOSTED), "non-posted");
    assert_string_equal(dxpu_class_name(DXPU_COMPLETION), "completion");
    assert_string_equal(dxpu_class_name(3), "?");
    assert_string_equal(dxpu_routing_name(6), "?");
    assert_string_equal(dxpu_status_name(DXPU_CPL_SC), "SC");
    assert_string_equal(dxpu_status_name(DXPU_CPL_UR), "UR");
    assert_string_equal(dxpu_status_name(DXPU_CPL_CRS), "CRS");
    assert_string_equal(dxpu_status_name(DXPU_CPL_CA), "CA");
    assert_string_equal(dxpu_status_name(3), "?");
    assert_string_equal(dxpu_status_name(5), "?");
    assert_string_equal(dxpu_message_name(0x19), "PME_Turn_Off");
    assert_null(dxpu_message_name(0x03));
    assert_int_equal(dxpu_message_code("PME_Turn_Off"), 0x19);
    assert_int_equal(dxpu_message_code("PME_Turn_Of"), DXPU_E_NONE);
    assert_int_equal(dxpu_message_code("PME_Turn_Offf"), DXPU_E_NONE);
    assert_int_equal(dxpu_message_code(""), DXPU_E_NONE);
}

/* The actions that matter most, by name; the rest must have a legal one in each direction. */
static void test_r22_message_actions(void **state)
{
    static const struct {
        const char *name;
        uint8_t down, up;
    } want[] = {
        { "Unlock", DXPU_MSG_FORWARD, DXPU_MSG_REFUSE },
        { "PME_Turn_Off", DXPU_MSG_FORWARD, DXPU_MSG_REFUSE },
        { "PME_TO_Ack", DXPU_MSG_REFUSE, DXPU_MSG_GATHER },
        { "PM_PME", DXPU_MSG_REFUSE, DXPU_MSG_FORWARD },
        { "ERR_FATAL", DXPU_MSG_REFUSE, DXPU_MSG_FORWARD },
        { "Assert_INTA", DXPU_MSG_REFUSE, DXPU_MSG_EVENT },
        { "Deassert_INTD", DXPU_MSG_REFUSE, DXPU_MSG_EVENT },
        { "Set_Slot_Power_Limit", DXPU_MSG_EVENT, DXPU_MSG_REFUSE },
        { "LTR", DXPU_MSG_REFUSE, DXPU_MSG_TERMINATE },
        { "OBFF", DXPU_MSG_TERMINATE, DXPU_MSG_REFUSE },
        { "PTM_Request", DXPU_MSG_REFUSE, DXPU_MSG_TERMINATE },
        { "Page_Request", DXPU_MSG_REFUSE, DXPU_MSG_FORWARD },
        { "Invalidate_Request", DXPU_MSG_FORWARD, DXPU_MSG_REFUSE },
    };
    unsigned i;
    (void)state;
    for (i = 0; i < sizeof want / sizeof want[0]; i++) {
        int code = dxpu_message_code(want[i].name);
        dxpu_tlp t = { 0 };
        assert_true(code >= 0);
        t = message((unsigned)code, dxpui_message_find((unsigned)code)->routing, 0);
        assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), want[i].down);
        assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), want[i].up);
    }
    for (i = 0; i < DXPUI_MESSAGE_COUNT; i++) {
        const dxpui_message_row *m = &dxpui_message_rows[i];
        dxpu_tlp t = message(m->code, m->routing, 0);
        assert_int_equal(dxpu_message_code(m->name), m->code);
        assert_true(m->code >= 0x7e || dxpu_message_action(&t, DXPU_DOWNSTREAM) == m->down);
        assert_true(m->down == DXPU_MSG_REFUSE || m->up == DXPU_MSG_REFUSE || m->code >= 0x7e);
    }
}

static void test_r23_unknown_messages(void **state)
{
    dxpu_tlp t = message(0x11, DXPU_MSG_LOCAL, 0);
    (void)state;
    assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), DXPU_MSG_REFUSE);
    assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_REFUSE);
    t = message(0x18, DXPU_MSG_BROADCAST, 0); /* PM_PME under another routing */
    assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_REFUSE);
    t.message_routing = DXPU_MSG_TO_ROOT;
    assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_FORWARD);
}

static void test_r24_vendor_messages(void **state)
{
    unsigned code;
    (void)state;
    for (code = 0x7e; code <= 0x7f; code++) {
        dxpu_tlp t = message(code, DXPU_MSG_LOCAL, 0);
        assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), DXPU_MSG_TERMINATE);
        assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_TERMINATE);
        t.message_routing = DXPU_MSG_BY_ID;
        assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), DXPU_MSG_FORWARD);
        assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_FORWARD);
        t.message_routing = DXPU_MSG_TO_ROOT;
        assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), DXPU_MSG_REFUSE);
        assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_FORWARD);
        t.message_routing = DXPU_MSG_BROADCAST;
        assert_int_equal(dxpu_message_action(&t, DXPU_DOWNSTREAM), DXPU_MSG_FORWARD);
        assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_REFUSE);
        t.message_routing = DXPU_MSG_GATHERED;
        assert_int_equal(dxpu_message_action(&t, DXPU_UPSTREAM), DXPU_MSG_REFUSE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t1_all_types_both_ways),
        cmocka_unit_test(test_t2_order_of_checks),
        cmocka_unit_test(test_t2_encode_room_and_payload),
        cmocka_unit_test(test_t3_every_first_byte),
        cmocka_unit_test(test_t4_header_dw_of_type),
        cmocka_unit_test(test_t5_first_dword),
        cmocka_unit_test(test_t6_reserved_bits),
        cmocka_unit_test(test_t7_length),
        cmocka_unit_test(test_t8_traffic_class_and_attributes),
        cmocka_unit_test(test_t9_tags),
        cmocka_unit_test(test_t10_address),
        cmocka_unit_test(test_t11_poison_only_with_data),
        cmocka_unit_test(test_t11_digest),
        cmocka_unit_test(test_t12_hints),
        cmocka_unit_test(test_t13_processing_hint_bits),
        cmocka_unit_test(test_t14_address_type),
        cmocka_unit_test(test_t7_deferrable_write_length),
        cmocka_unit_test(test_t15_page),
        cmocka_unit_test(test_t16_byte_enables),
        cmocka_unit_test(test_t17_zero_length),
        cmocka_unit_test(test_t18_operands),
        cmocka_unit_test(test_t19_io_and_configuration),
        cmocka_unit_test(test_t20_prefix_names),
        cmocka_unit_test(test_t21_prefix_order),
        cmocka_unit_test(test_t22_prefix_count),
        cmocka_unit_test(test_t23_ide),
        cmocka_unit_test(test_t24_pasid),
        cmocka_unit_test(test_t25_tph),
        cmocka_unit_test(test_t30_message_codes),
        cmocka_unit_test(test_t31_message_routing),
        cmocka_unit_test(test_t32_message_tc_and_attributes),
        cmocka_unit_test(test_t33_message_length),
        cmocka_unit_test(test_t34_message_bytes),
        cmocka_unit_test(test_t35_message_by_id),
        cmocka_unit_test(test_t36_status),
        cmocka_unit_test(test_t37_byte_count),
        cmocka_unit_test(test_t38_read_completion_boundary),
        cmocka_unit_test(test_t40_header_only),
        cmocka_unit_test(test_t43_reserved_bits_are_ignored),
        cmocka_unit_test(test_t43_reserved_fields_of_messages_and_prefixes),
        cmocka_unit_test(test_t43_reserved_status_is_unsupported_request),
        cmocka_unit_test(test_t43_long_header_below_4_gb),
        cmocka_unit_test(test_t43_malformed_is_refused),
        cmocka_unit_test(test_t44_locked_reads_use_tc0),
        cmocka_unit_test(test_t41_empty_logs),
        cmocka_unit_test(test_t42_measure),
        cmocka_unit_test(test_t50_byte_enables_from_range),
        cmocka_unit_test(test_t51_requests_of_a_transfer),
        cmocka_unit_test(test_t52_completion_split),
        cmocka_unit_test(test_t52_split_at_the_top_of_memory),
        cmocka_unit_test(test_t53_completion_of_a_request),
        cmocka_unit_test(test_t60_ecrc),
        cmocka_unit_test(test_t61_ecrc_leaves_local_prefixes_out),
        cmocka_unit_test(test_t62_lcrc),
        cmocka_unit_test(test_r20_class_and_routing),
        cmocka_unit_test(test_r21_names),
        cmocka_unit_test(test_r22_message_actions),
        cmocka_unit_test(test_r23_unknown_messages),
        cmocka_unit_test(test_r24_vendor_messages),
    };
    unsigned i;
    for (i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 31 + 7);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
