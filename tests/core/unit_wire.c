/* Section 12: frames, offers, records, the builder.  Every refusal with its error. */
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

static uint8_t pkt[DXPU_FRAME_MAX_LIMIT_BYTES + 64];

static dxpu_bytes view(const void *p, size_t n)
{
    dxpu_bytes v = { (const uint8_t *)p, n };
    return v;
}

/* A frame with every field different and a body of `bytes`. */
static dxpu_frame full_frame(uint8_t kind)
{
    dxpu_frame f;
    memset(&f, 0, sizeof f);
    f.kind = kind;
    f.key_phase = 2;
    f.path = 9;
    f.channel = 0x01020304;
    f.packet = 0x1112131415161718u;
    f.sequence = 0x21222324;
    f.ack = 0x31323334;
    f.sack = 0x4142434445464748u;
    f.seen = 0x5152535455565758u;
    f.delay_ns = 0x61626364;
    f.ecn_ce = 0x71727374;
    for (unsigned i = 0; i < 3; i++) {
        f.limits.header[i] = 0x81000000u + i;
        f.limits.data[i] = 0x91000000u + i;
    }
    return f;
}

static size_t make(uint8_t kind, size_t body)
{
    dxpu_frame f = full_frame(kind);
    memset(pkt, 0x5a, sizeof pkt);
    return dxpu_frame_encode_header(&f, body, 4, pkt) + body + 4;
}

static int decode(size_t n)
{
    dxpu_frame f;
    return dxpu_frame_decode(view(pkt, n), 4, &f);
}

/* ---- bytes as numbers ---- */

static void test_numbers_of_bytes(void **state)
{
    static const uint8_t bytes[9] = { 0xee, 0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8 };
    const uint8_t *odd = bytes + 1; /* of no alignment */
    uint8_t out[10];
    (void)state;
    assert_int_equal(dxpu_get_be16(odd), 0x8192);
    assert_int_equal(dxpu_get_be32(odd), 0x8192a3b4);
    assert_int_equal(dxpu_get_be64(odd), 0x8192a3b4c5d6e7f8u);
    assert_int_equal(dxpu_get_le16(odd), 0x9281);
    assert_int_equal(dxpu_get_le32(odd), 0xb4a39281);
    assert_int_equal(dxpu_get_le64(odd), 0xf8e7d6c5b4a39281u);
    for (unsigned bytes_of = 2; bytes_of <= 8; bytes_of *= 2)
        for (unsigned little = 0; little < 2; little++) {
            memset(out, 0x55, sizeof out);
            if (bytes_of == 2)
                little ? dxpu_put_le16(out + 1, 0xffff9281) : dxpu_put_be16(out + 1, 0xffff8192);
            else if (bytes_of == 4)
                little ? dxpu_put_le32(out + 1, 0xb4a39281) : dxpu_put_be32(out + 1, 0x8192a3b4);
            else
                little ? dxpu_put_le64(out + 1, 0xf8e7d6c5b4a39281u)
                       : dxpu_put_be64(out + 1, 0x8192a3b4c5d6e7f8u);
            assert_memory_equal(out + 1, odd, bytes_of);
            assert_int_equal(out[0], 0x55);
            assert_int_equal(out[1 + bytes_of], 0x55);
        }
}

/* ---- frame header ---- */

static void test_w1_header_bytes(void **state)
{
    static const uint8_t head[DXPU_FRAME_FULL_BYTES] = {
        0x44, 0x58, 1,    1,    0,    83,   0x80, 9,    1,    2,    3,    4,    0x11,
        0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32,
        0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x51, 0x52, 0x53,
        0x54, 0x55, 0x56, 0x57, 0x58, 0x61, 0x62, 0x63, 0x64, 0x71, 0x72, 0x73, 0x74,
        0x81, 0,    0,    0,    0x81, 0,    0,    1,    0x81, 0,    0,    2,    0x91,
        0,    0,    0,    0x91, 0,    0,    1,    0x91, 0,    0,    2
    };
    dxpu_frame f, want = full_frame(DXPU_KIND_DATA);
    (void)state;
    size_t n = make(DXPU_KIND_DATA, 3);
    assert_int_equal(n, 83);
    assert_memory_equal(pkt, head, sizeof head);
    assert_int_equal(dxpu_frame_decode(view(pkt, n), 4, &f), DXPU_OK);
    assert_ptr_equal(f.body.ptr, pkt + DXPU_FRAME_FULL_BYTES);
    assert_int_equal(f.body.len, 3);
    want.body = f.body;
    assert_memory_equal(&f.sequence, &want.sequence,
                        offsetof(dxpu_frame, body) - offsetof(dxpu_frame, sequence));
    assert_int_equal(f.key_phase, 2);
    assert_int_equal(f.path, 9);
    assert_int_equal(f.channel, 0x01020304);
    assert_true(f.packet == want.packet);
}

static void test_w1_magic(void **state)
{
    (void)state;
    size_t n = make(DXPU_KIND_ACK, 0);
    assert_int_equal(decode(n), DXPU_OK);
    pkt[1] ^= 1;
    assert_int_equal(decode(n), DXPU_E_MAGIC);
}

static void test_w2_version(void **state)
{
    (void)state;
    size_t n = make(DXPU_KIND_ACK, 0);
    pkt[DXPU_FRAME_VERSION] = 2;
    assert_int_equal(decode(n), DXPU_E_VERSION);
}

static void test_w3_kind(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 256; kind++) {
        size_t n = make((uint8_t)kind, 100);
        assert_int_equal(decode(n), kind >= 1 && kind <= 9 ? DXPU_OK : DXPU_E_KIND);
    }
    assert_string_equal(dxpu_kind_name(DXPU_KIND_DATA), "data");
    assert_string_equal(dxpu_kind_name(DXPU_KIND_PROBE), "probe");
    assert_string_equal(dxpu_kind_name(0), "?");
    assert_string_equal(dxpu_kind_name(10), "?");
}

static void test_w4_length(void **state)
{
    (void)state;
    size_t n = make(DXPU_KIND_ACK, 0);
    assert_int_equal(n, 80);
    assert_int_equal(decode(n - 1), DXPU_E_LENGTH);
    assert_int_equal(decode(n + 1), DXPU_E_LENGTH);
    for (size_t cut = 0; cut < n; cut++) { /* the length field is right */
        dxpu_put_be16(pkt + DXPU_FRAME_LENGTH, (uint16_t)cut);
        assert_int_equal(decode(cut), DXPU_E_SHORT);
    }
    n = make(DXPU_KIND_RESET, 0);
    assert_int_equal(n, 24);
    assert_int_equal(decode(n), DXPU_OK);
    dxpu_put_be16(pkt + DXPU_FRAME_LENGTH, 23);
    assert_int_equal(decode(23), DXPU_E_SHORT);
}

static void test_w5_flags(void **state)
{
    dxpu_frame f;
    (void)state;
    size_t n = make(DXPU_KIND_ACK, 0);
    for (unsigned bit = 0; bit < 8; bit++) {
        pkt[DXPU_FRAME_FLAGS] = (uint8_t)(1u << bit);
        assert_int_equal(dxpu_frame_decode(view(pkt, n), 4, &f),
                         bit == 4 || bit == 5 ? DXPU_E_RSVD : DXPU_OK);
    }
    pkt[DXPU_FRAME_FLAGS] = 0xcf; /* the ignorable ones do not show */
    assert_int_equal(dxpu_frame_decode(view(pkt, n), 4, &f), DXPU_OK);
    assert_int_equal(f.key_phase, 3);
}

static void test_w9_crc(void **state)
{
    (void)state;
    size_t n = make(DXPU_KIND_DATA, 10);
    dxpu_frame_seal_crc(pkt, n - 4);
    assert_int_equal(dxpu_get_be32(pkt + n - 4), dxpu_crc32(0, pkt, n - 4));
    assert_int_equal(dxpu_frame_check_crc(view(pkt, n)), DXPU_OK);
    for (size_t bit = 0; bit < n * 8; bit++) {
        pkt[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(dxpu_frame_check_crc(view(pkt, n)), DXPU_E_CRC);
        pkt[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(dxpu_frame_check_crc(view(pkt, 3)), DXPU_E_SHORT);
}

static void test_w4_peek(void **state)
{
    uint8_t kind = 200;
    uint32_t channel = 200;
    (void)state;
    size_t n = make(DXPU_KIND_CLOSE, 4);
    assert_int_equal(dxpu_frame_peek(view(pkt, 5), &kind, &channel), DXPU_E_SHORT);
    assert_int_equal(dxpu_frame_peek(view(pkt, n - 1), &kind, &channel), DXPU_E_LENGTH);
    pkt[0] = 0;
    assert_int_equal(dxpu_frame_peek(view(pkt, n), &kind, &channel), DXPU_E_MAGIC);
    pkt[0] = 0x44;
    pkt[2] = 9;
    assert_int_equal(dxpu_frame_peek(view(pkt, n), &kind, &channel), DXPU_E_VERSION);
    assert_int_equal(kind, 200); /* written on success only */
    assert_int_equal(channel, 200);
    pkt[2] = 1;
    assert_int_equal(dxpu_frame_peek(view(pkt, n), &kind, &channel), DXPU_OK);
    assert_int_equal(kind, DXPU_KIND_CLOSE);
    assert_int_equal(channel, 0x01020304);
    dxpu_put_be16(pkt + DXPU_FRAME_LENGTH, 19);
    assert_int_equal(dxpu_frame_peek(view(pkt, 19), &kind, &channel), DXPU_E_SHORT);
}

static void test_w12_reset_that_refuses(void **state)
{
    dxpu_frame f;
    (void)state;
    size_t n = dxpu_reset_encode(0xabcdef01, DXPU_REASON_BUSY, pkt);
    assert_int_equal(n, 28);
    assert_int_equal(dxpu_frame_check_crc(view(pkt, n)), DXPU_OK);
    assert_int_equal(dxpu_frame_decode(view(pkt, n), 4, &f), DXPU_OK);
    assert_int_equal(f.kind, DXPU_KIND_RESET);
    assert_int_equal(f.channel, 0xabcdef01);
    assert_true(f.packet == 0);
    assert_memory_equal(f.body.ptr, "\x04\x01\x01\x00", 4);
    assert_string_equal(dxpu_reason_text(DXPU_REASON_BUSY), "the slot is lent to another host");
    assert_string_equal(dxpu_reason_text(DXPU_REASON_END), "unknown reason");
}

/* Every kind, reason and event has a text of its own. */
static void test_w3_names(void **state)
{
    (void)state;
#define NAMED(of, count, none)                                                                     \
    for (unsigned i = 0; i < (count); i++) {                                                       \
        for (unsigned k = 0; k < i; k++)                                                           \
            assert_string_not_equal(of(i), of(k));                                                 \
        assert_true(strcmp(of(i), of((count))) != 0 || strcmp(of(i), (none)) == 0);                \
    }
    NAMED(dxpu_kind_name, DXPU_KIND_END, "?")
    NAMED(dxpu_reason_text, DXPU_REASON_END, "")
    NAMED(dxpu_event_name, DXPU_EVENT_END, "?")
#undef NAMED
}

/* ---- offers ---- */

static dxpu_offer good_offer(void)
{
    dxpu_offer o;
    memset(&o, 0, sizeof o);
    o.channel = 0x01020304;
    o.version_min = 1;
    o.version_max = 2;
    o.suites = 0x8001;
    o.tlp_formats = 3;
    o.window_frames = 0x1112;
    o.frame_limit_bytes = 1232;
    o.hold_ms = 0x21222324;
    o.sequence = 0x31323334;
    o.completions_infinite = true;
    for (unsigned i = 0; i < 3; i++) {
        o.limits.header[i] = 1;
        o.limits.data[i] = i == DXPU_NONPOSTED ? 8 : 256;
    }
    o.epoch = 0x4142434445464748u;
    o.source.node = 0x51525354;
    o.source.slot = 0x5556;
    o.source.function = 0xffff;
    o.destination.node = 0x61626364;
    return o;
}

static int offer_rc(const dxpu_offer *o)
{
    uint8_t body[DXPU_OFFER_BYTES];
    dxpu_offer out;
    dxpu_offer_encode(o, body);
    return dxpu_offer_decode(view(body, sizeof body), &out);
}

static void test_w20_offer_bytes(void **state)
{
    static const uint8_t want[DXPU_OFFER_BYTES] = {
        1,    2,    3,    4,    1,    2,    0x80, 1,    0,    3,    0x11, 0x12, 0x80, 0,    4,
        0xd0, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0,    0,    0,    1,    0,    0,
        0,    1,    0,    0,    0,    1,    0,    0,    1,    0,    0,    0,    0,    8,    0,
        0,    1,    0,    0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x51, 0x52, 0x53, 0x54,
        0x55, 0x56, 0xff, 0xff, 0x61, 0x62, 0x63, 0x64, 0,    0,    0,    0
    };
    uint8_t body[DXPU_OFFER_BYTES + 5];
    dxpu_offer o = good_offer(), out;
    (void)state;
    memset(body, 0xee, sizeof body);
    dxpu_offer_encode(&o, body);
    assert_memory_equal(body, want, sizeof want);
    for (size_t n = 0; n < DXPU_OFFER_BYTES; n++)
        assert_int_equal(dxpu_offer_decode(view(body, n), &out), DXPU_E_SHORT);
    memset(&out, 0, sizeof out);
    assert_int_equal(dxpu_offer_decode(view(body, sizeof body), &out), DXPU_OK); /* more: ignored */
    dxpu_offer_encode(&out, pkt);
    assert_memory_equal(pkt, want, sizeof want);
    assert_true(out.completions_infinite && out.epoch == o.epoch);
    assert_int_equal(out.source.function, 0xffff);
    assert_int_equal(out.destination.node, 0x61626364);
}

#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        dxpu_offer o = good_offer();                                                               \
        o.field = (value);                                                                         \
        assert_int_equal(offer_rc(&o), DXPU_E_OFFER);                                              \
    } while (0)
#define TAKEN(field, value)                                                                        \
    do {                                                                                           \
        dxpu_offer o = good_offer();                                                               \
        o.field = (value);                                                                         \
        assert_int_equal(offer_rc(&o), DXPU_OK);                                                   \
    } while (0)

static void test_w21_to_w25_ranges(void **state)
{
    (void)state;
    REFUSED(channel, 0);
    REFUSED(version_min, 0);
    REFUSED(version_min, 3);
    TAKEN(version_min, 2);
    REFUSED(suites, 0);
    REFUSED(tlp_formats, 2);
    REFUSED(window_frames, 0);
    TAKEN(window_frames, 1);
    REFUSED(frame_limit_bytes, 1231);
    TAKEN(frame_limit_bytes, 65507);
    REFUSED(frame_limit_bytes, 65508);
    REFUSED(hold_ms, 0);
    TAKEN(hold_ms, 1);
    REFUSED(epoch, 0);
}

static void test_w26_first_limits(void **state)
{
    (void)state;
    REFUSED(limits.header[0], 0);
    REFUSED(limits.data[0], 255);
    REFUSED(limits.data[1], 7);
    TAKEN(limits.data[2], 0); /* infinite: they mean nothing */
    TAKEN(limits.header[0], 0x3fffffff);
    REFUSED(limits.header[0], 0x40000000);
    TAKEN(limits.data[1], 0x3fffffff);
    REFUSED(limits.data[1], 0x40000000);
    dxpu_offer o = good_offer();
    o.completions_infinite = false;
    assert_int_equal(offer_rc(&o), DXPU_OK);
    o.limits.data[2] = 255;
    assert_int_equal(offer_rc(&o), DXPU_E_OFFER);
}

static void test_w27_flags(void **state)
{
    uint8_t body[DXPU_OFFER_BYTES];
    dxpu_offer o = good_offer(), out;
    (void)state;
    for (unsigned bit = 0; bit < 8; bit++) {
        dxpu_offer_encode(&o, body);
        body[12] = (uint8_t)(1u << bit);
        bool must_understand = bit >= 4 && bit <= 6;
        assert_int_equal(dxpu_offer_decode(view(body, sizeof body), &out),
                         must_understand ? DXPU_E_RSVD : DXPU_OK);
        if (!must_understand)
            assert_int_equal(out.completions_infinite, bit == 7);
    }
}

/* ---- records ---- */

static uint8_t rec[256];

/* A TLP record of a 3-dword memory write of one dword, with its payload record. */
static size_t mwr_records(void)
{
    static const uint8_t mwr[] = { 1, 0, 0, 20, 0,    0x03, 0,    4,    0x40, 0, 0, 1, 0, 1, 0, 15,
                                   0, 2, 0, 0,  0xaa, 0xbb, 0xcc, 0xdd, 2,    0, 0, 4, 9, 8, 7, 6 };
    memcpy(rec, mwr, sizeof mwr);
    return sizeof mwr;
}

static int first_record(size_t n, dxpu_record *r)
{
    dxpu_bytes body = view(rec, n);
    return dxpu_record_next(&body, r);
}

static void test_w30_lengths(void **state)
{
    dxpu_record r;
    dxpu_bytes body;
    (void)state;
    size_t n = mwr_records();
    body = view(rec, n);
    assert_int_equal(dxpu_record_next(&body, &r), DXPU_OK);
    assert_int_equal(r.type, DXPU_RECORD_TLP);
    assert_int_equal(r.cls, DXPU_POSTED);
    assert_int_equal(r.header_dw, 3);
    assert_int_equal(r.data_bytes, 4);
    assert_int_equal(r.tlp_crc, 0xaabbccdd);
    assert_int_equal(r.bytes.len, 12);
    assert_int_equal(dxpu_record_next(&body, &r), DXPU_OK);
    assert_int_equal(r.type, DXPU_RECORD_PAYLOAD);
    assert_memory_equal(r.bytes.ptr, "\x09\x08\x07\x06", 4);
    assert_int_equal(dxpu_record_next(&body, &r), DXPU_E_NONE);
    for (size_t cut = 1; cut < 24; cut++)
        assert_int_equal(first_record(cut, &r), DXPU_E_RECORD);
    assert_int_equal(first_record(0, &r), DXPU_E_NONE);
}

static void test_w31_flags_and_types(void **state)
{
    dxpu_record r;
    dxpu_bytes body;
    (void)state;
    for (unsigned bit = 0; bit < 8; bit++) {
        size_t n = mwr_records();
        rec[1] = (uint8_t)(1u << bit);
        assert_int_equal(first_record(n, &r), bit >= 4 ? DXPU_E_RECORD : DXPU_OK);
    }
    for (unsigned type = 0; type < 256; type++) {
        size_t n = mwr_records();
        memmove(rec + 4, rec, n);
        memset(rec, 0, 4);
        rec[0] = (uint8_t)type; /* an empty record of this type, then a good one */
        body = view(rec, n + 4);
        int rc = dxpu_record_next(&body, &r);
        assert_int_equal(rc, type >= 0x80 ? DXPU_OK : DXPU_E_RECORD);
        if (rc == DXPU_OK)
            assert_int_equal(r.type, DXPU_RECORD_TLP); /* skipped */
    }
    rec[0] = 0x80; /* alone: nothing comes */
    assert_int_equal(first_record(4, &r), DXPU_E_NONE);
}

/* Byte `at` of the good TLP record as `value`. */
static int spoiled(size_t at, uint8_t value)
{
    dxpu_record r;
    size_t n = mwr_records();
    rec[at] = value;
    return first_record(n, &r);
}

static void test_w32_to_w36_tlp_record(void **state)
{
    (void)state;
    assert_int_equal(spoiled(3, 20), DXPU_OK);
    assert_int_equal(spoiled(3, 19), DXPU_E_RECORD); /* W-32 */
    assert_int_equal(spoiled(3, 21), DXPU_E_RECORD);
    assert_int_equal(spoiled(3, 24), DXPU_E_RECORD);
    assert_int_equal(spoiled(4, 0x10), DXPU_E_RECORD); /* W-34: format 1 */
    assert_int_equal(spoiled(4, 0x02), DXPU_E_RECORD); /* VC 1 */
    assert_int_equal(spoiled(4, 0x01), DXPU_E_RECORD);
    assert_int_equal(spoiled(5, 0xc3), DXPU_E_RECORD); /* W-35: class 3 */
    assert_int_equal(spoiled(5, 0x02), DXPU_E_RECORD); /* header of 2 dwords */
    assert_int_equal(spoiled(5, 0x05), DXPU_E_RECORD);
    assert_int_equal(spoiled(5, 0x04), DXPU_E_RECORD); /* of 4, in a record for 3 */
    assert_int_equal(spoiled(5, 0x0b), DXPU_E_RECORD); /* a prefix that is not there */
    assert_int_equal(spoiled(6, 0x10), DXPU_OK);       /* W-36: 4,100 */
    rec[7] = 5;
    dxpu_record r;
    assert_int_equal(first_record(24, &r), DXPU_E_RECORD);
    memset(rec, 0, sizeof rec); /* W-35: five prefixes */
    rec[0] = 1;
    rec[3] = 4 + 4 * 8 + 4;
    rec[5] = 5 << 3 | 3;
    assert_int_equal(first_record(4u + rec[3], &r), DXPU_E_RECORD);
    rec[3] = 4 + 4 * 7 + 4;
    rec[5] = 4 << 3 | 3;
    assert_int_equal(first_record(4u + rec[3], &r), DXPU_OK);
}

static void test_w40_empty_payload(void **state)
{
    dxpu_record r;
    (void)state;
    memset(rec, 0, 8);
    rec[0] = DXPU_RECORD_PAYLOAD;
    assert_int_equal(first_record(4, &r), DXPU_E_RECORD);
    rec[3] = 1;
    assert_int_equal(first_record(5, &r), DXPU_OK);
}

static void test_w50_events(void **state)
{
    static const uint8_t sizes[DXPU_EVENT_END] = { 0, 0, 4, 0, 4, 0, 4, 16, 16, 0, 0, 0, 4 };
    uint8_t bytes[64];
    (void)state;
    for (uint8_t type = 1; type < DXPU_EVENT_END; type++) {
        dxpu_event e;
        dxpu_record r;
        dxpui_builder b;
        memset(&e, 0, sizeof e);
        e.type = type;
        e.flags = DXPU_EVENT_ON | DXPU_EVENT_NOT_SUPPORTED;
        if (type == DXPU_EVENT_LINK) {
            e.speed = 5;
            e.width = 16;
        } else if (sizes[type] == 4) {
            e.value = 0x01020304;
        } else if (sizes[type] == 16) {
            e.base = 0x1112131415161718u;
            e.length = 0x2122232425262728u;
        }
        size_t need = 8u + sizes[type];
        builder_start(&b, bytes, need - 1);
        assert_int_equal(dxpui_builder_event(&b, &e), DXPU_E_ROOM);
        assert_int_equal(b.used, 0);
        b.cap = need;
        assert_int_equal(dxpui_builder_event(&b, &e), DXPU_OK);
        assert_int_equal(b.used, need);
        dxpu_bytes body = view(bytes, need);
        assert_int_equal(dxpu_record_next(&body, &r), DXPU_OK);
        assert_int_equal(r.type, DXPU_RECORD_EVENT);
        assert_memory_equal(&r.event, &e, sizeof e);
        bytes[3]++; /* W-51 */
        body = view(bytes, need + 1);
        assert_int_equal(dxpu_record_next(&body, &r), DXPU_E_RECORD);
        bytes[3] = 3; /* no room for the event's own header */
        body = view(bytes, 7);
        assert_int_equal(dxpu_record_next(&body, &r), DXPU_E_RECORD);
    }
    assert_string_equal(dxpu_event_name(DXPU_EVENT_INTX), "INTX");
    assert_string_equal(dxpu_event_name(0), "?");
}

static void test_w52_unknown_event(void **state)
{
    static const uint8_t unknown[][9] = { { 3, 0, 0, 5, 0, 0x80, 0, 0, 1 },
                                          { 3, 0, 0, 5, DXPU_EVENT_END, 0x80, 0, 0, 1 } };
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_record r;
        dxpu_bytes body = view(unknown[i], 9);
        assert_int_equal(dxpu_record_next(&body, &r), DXPU_OK);
        assert_int_equal(r.type, DXPU_RECORD_EVENT);
        assert_int_equal(r.event.type, 0);
        assert_int_equal(body.len, 0);
    }
}

/* ---- the builder ---- */

static void test_w32_cursor(void **state)
{
    uint8_t tlp[256];
    cursor c;
    dxpu_bytes mwr = rig_mwr(1, 64, 0);
    (void)state;
    assert_int_equal(cursor_start(&c, mwr), DXPU_OK);
    assert_int_equal(c.crc, dxpu_crc32(0, mwr.ptr, mwr.len)); /* W-38 */
    assert_int_equal(c.head_bytes, 12);
    assert_int_equal(cursor_start(&c, view(mwr.ptr, mwr.len - 1)), DXPU_E_TLP_SHORT);
    memcpy(tlp, mwr.ptr, mwr.len);
    assert_int_equal(cursor_start(&c, view(tlp, mwr.len + 1)), DXPU_E_TLP_LONG);
    tlp[0] = 0x5f;
    assert_int_equal(cursor_start(&c, view(tlp, mwr.len)), DXPU_E_TLP_TYPE);
}

static void test_w33_prefixes(void **state)
{
    uint8_t tlp[256];
    cursor c;
    dxpu_bytes mwr = rig_mwr(1, 64, 0);
    (void)state;
    memset(tlp, 0, sizeof tlp);
    for (unsigned i = 0; i < 5; i++)
        tlp[4 * i] = 0x91; /* PASID: end-end */
    memcpy(tlp + 16, mwr.ptr, mwr.len);
    assert_int_equal(cursor_start(&c, view(tlp, 16 + mwr.len)), DXPU_OK);
    assert_int_equal(c.prefix_dw, 4);
    tlp[16] = 0x91;
    memcpy(tlp + 20, mwr.ptr, mwr.len);
    assert_int_equal(cursor_start(&c, view(tlp, 20 + mwr.len)), DXPU_E_TLP_PREFIX_COUNT);
    tlp[12] = 0x8e; /* vendor defined, local */
    memcpy(tlp + 16, mwr.ptr, mwr.len);
    assert_int_equal(cursor_start(&c, view(tlp + 12, 4 + mwr.len)), DXPU_E_TLP_PREFIX);
}

/* Every capacity: what is placed reads back as the TLP, and nothing is begun that does not fit. */
static void test_w41_split_anywhere(void **state)
{
    uint8_t body[256], back[256];
    dxpu_bytes mwr = rig_mwr(1, 64, 0);
    (void)state;
    for (size_t cap = 0; cap < 130; cap++) {
        cursor c;
        size_t at = 0;
        unsigned frames = 0;
        assert_int_equal(cursor_start(&c, mwr), DXPU_OK);
        int rc = DXPU_E_MORE;
        while (rc == DXPU_E_MORE) {
            dxpui_builder b;
            dxpu_record r;
            builder_start(&b, body, cap);
            rc = cursor_place(&b, &c);
            assert_true(b.used <= cap && ++frames < 100);
            dxpu_bytes left = view(body, b.used);
            while (dxpu_record_next(&left, &r) == DXPU_OK) {
                assert_int_equal(r.type == DXPU_RECORD_TLP, at == 0);
                assert_int_equal(r.bytes.len % 4, 0);
                memcpy(back + at, r.bytes.ptr, r.bytes.len);
                at += r.bytes.len;
            }
            assert_int_equal(left.len, 0);
        }
        if (cap < 24) { /* 4 + 4 + 12 + 4 */
            assert_int_equal(rc, DXPU_E_ROOM);
            assert_int_equal(at, 0);
        } else {
            assert_int_equal(rc, DXPU_OK);
            assert_int_equal(at, mwr.len);
            assert_memory_equal(back, mwr.ptr, at);
            assert_int_equal(frames == 1, cap >= 24 + 4 + 64);
        }
    }
}

static void test_w41_no_room_to_continue(void **state)
{
    uint8_t body[64];
    dxpui_builder b;
    cursor c;
    (void)state;
    assert_int_equal(cursor_start(&c, rig_mwr(1, 64, 0)), DXPU_OK);
    builder_start(&b, body, 31); /* a header, and 7 bytes: no dword of payload */
    assert_int_equal(cursor_place(&b, &c), DXPU_E_MORE);
    assert_int_equal(b.used, 24);
    assert_int_equal(cursor_place(&b, &c), DXPU_E_ROOM);
    b.cap = 32;
    assert_int_equal(cursor_place(&b, &c), DXPU_E_MORE);
    assert_int_equal(b.used, 32);
}

static void test_w44_several_in_a_frame(void **state)
{
    uint8_t body[256];
    dxpui_builder b;
    cursor c;
    (void)state;
    builder_start(&b, body, 3 * 24 + 10);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(cursor_start(&c, rig_mrd((uint16_t)i, 64)), DXPU_OK);
        assert_int_equal(cursor_place(&b, &c), i < 3 ? DXPU_OK : DXPU_E_ROOM);
    }
    assert_int_equal(b.used, 72);
}

/* ---- what a channel sends: section 5 of the specification, exactly ---- */

static rig r;

/* Bytes of the frames that one TLP becomes. */
static unsigned frames_of(dxpu_bytes tlp, size_t *first)
{
    unsigned frames = 0;
    assert_int_equal(rig_submit(&r, tlp), DXPU_OK);
    while (rig_emit(&r) > 0) {
        if (frames++ == 0)
            *first = (size_t)r.n;
        assert_int_equal(r.f.kind, DXPU_KIND_DATA);
    }
    return frames;
}

static void test_w10_frame_sizes(void **state)
{
    size_t bytes = 0;
    (void)state;
    rig_config(&r);
    r.cfg.frame_limit_bytes = 1452;
    r.offer.frame_limit_bytes = 1232; /* the smaller one counts */
    rig_up(&r);
    assert_int_equal(frames_of(rig_mwr(1, 1024, 0), &bytes), 1);
    assert_int_equal(bytes, 76 + 24 + 4 + 1024 + 4);
    assert_int_equal(frames_of(rig_mrd(1, 64), &bytes), 1);
    assert_int_equal(bytes, 104);
    assert_int_equal(frames_of(rig_mwr(1, 4096, 0), &bytes), 4);
    assert_int_equal(bytes, 1232);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_bytes),
        cmocka_unit_test(test_w1_header_bytes),
        cmocka_unit_test(test_w1_magic),
        cmocka_unit_test(test_w2_version),
        cmocka_unit_test(test_w3_kind),
        cmocka_unit_test(test_w4_length),
        cmocka_unit_test(test_w5_flags),
        cmocka_unit_test(test_w9_crc),
        cmocka_unit_test(test_w4_peek),
        cmocka_unit_test(test_w12_reset_that_refuses),
        cmocka_unit_test(test_w3_names),
        cmocka_unit_test(test_w20_offer_bytes),
        cmocka_unit_test(test_w21_to_w25_ranges),
        cmocka_unit_test(test_w26_first_limits),
        cmocka_unit_test(test_w27_flags),
        cmocka_unit_test(test_w30_lengths),
        cmocka_unit_test(test_w31_flags_and_types),
        cmocka_unit_test(test_w32_to_w36_tlp_record),
        cmocka_unit_test(test_w40_empty_payload),
        cmocka_unit_test(test_w50_events),
        cmocka_unit_test(test_w52_unknown_event),
        cmocka_unit_test(test_w32_cursor),
        cmocka_unit_test(test_w33_prefixes),
        cmocka_unit_test(test_w41_split_anywhere),
        cmocka_unit_test(test_w41_no_room_to_continue),
        cmocka_unit_test(test_w44_several_in_a_frame),
        cmocka_unit_test(test_w10_frame_sizes),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
