/* Control messages: exact bytes, every range, every cut of the stream, hostile streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DXPU_CONTROL_IMPLEMENTATION
#include "dxpu_control.h"

enum { ROOM = DXPU_CONTROL_HEADER_BYTES + 4096, HEADER = DXPU_CONTROL_HEADER_BYTES };

static const uint8_t hello_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x0f, 0x00, 0x00, 0x00, 0x07,
    0x02, 0x01, 0x03, 0x00, 0x01, 0x02, 0x03, 0x04, 0x00, 0x08, 0x00, 0x00, 0x02, 'b',  'x',
};
static const uint8_t error_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x07,
    0xff, 0xff, 0xff, 0xff, 0x00, 0x07, 0x00, 0x03, 0x02, 'n',  'o',
};
static const uint8_t done_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00,
    0x00, 0x02, 0x01, 0x02, 0x04, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
};
static const uint8_t attach_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x03,
    0x00, 0x05, 0x00, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x04, 0x00, 0x11, 0x6a,
    0x0a, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};
static const uint8_t detach_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00,
    0x00, 0x04, 0x00, 0x05, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09,
};
static const uint8_t ask_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x12, 0x00, 0x00,
    0x00, 0x04, 0x00, 0x00, 0x00, 0x05, 0x00, 0x01, 0x01, 0x00,
};

static const uint8_t screenshot_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x08,
    0x00, 0x00, 0x00, 0x06, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x12, 0x34,
};
static const uint8_t picture_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x15, 0x00, 0x00, 0x00, 0x13,
    0x00, 0x00, 0x00, 0x07, 0x00, 0x05, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00,
    0x00, 0x00, 0x12, 0x34, 0x00, 0x00, 0x00, 0x03, 'p',  'n',  'g',
};

static const uint8_t node_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x21, 0x00, 0x00, 0x00, 0x08,
    0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x03, 0xe8,
};
static const uint8_t bind_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x22, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x09,
    0x00, 0x05, 0x00, 0x06, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0a,
};
static const uint8_t unbind_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x23, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00,
    0x00, 0x0a, 0x00, 0x05, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0a,
};
static const uint8_t drain_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x24, 0x00, 0x00,
    0x00, 0x04, 0x00, 0x00, 0x00, 0x0b, 0x00, 0x05, 0x01, 0x00,
};
static const uint8_t reset_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x25, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00,
    0x00, 0x0c, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0a,
};
static const uint8_t heartbeat_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x26, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00,
    0x00, 0x0d, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00, 0x00, 0x00, 0x03,
};
static const uint8_t register_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x28, 0x00, 0x00,
    0x00, 0x0e, 0x02, 0x00, 0x00, 0x09, 0x00, 0x0a, 0x00, 0x00, 0x00, 0x68, 0x00, 0x00,
    0x00, 0x00, 0x01, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f,
};

static const uint8_t alarm_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x27, 0x00, 0x00, 0x00, 0x0f, 0x00, 0x00, 0x00, 0x0f,
    0x00, 0x05, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0a, 0x02, 'i',  'o',
};

static const uint8_t plug_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x16, 0x00, 0x00, 0x00, 0x0b, 0x00, 0x00,
    0x00, 0x10, 0x00, 0x05, 0x03, 0x01, 0x06, 'm',  'e',  'm',  'o',  'r',  'y',
};

static const uint8_t direct_bytes[] = {
    0x44, 0x58, 0x43, 0x54, 0x01, 0x00, 0x00, 0x28, 0x00, 0x00,
    0x00, 0x04, 0x00, 0x00, 0x00, 0x11, 0x00, 0x05, 0x01, 0x00,
};

typedef struct example {
    const uint8_t *bytes;
    size_t len;
} example;
static const example examples[] = {
    { hello_bytes, sizeof hello_bytes },
    { error_bytes, sizeof error_bytes },
    { done_bytes, sizeof done_bytes },
    { attach_bytes, sizeof attach_bytes },
    { detach_bytes, sizeof detach_bytes },
    { ask_bytes, sizeof ask_bytes },
    { screenshot_bytes, sizeof screenshot_bytes },
    { picture_bytes, sizeof picture_bytes },
    { node_bytes, sizeof node_bytes },
    { bind_bytes, sizeof bind_bytes },
    { unbind_bytes, sizeof unbind_bytes },
    { drain_bytes, sizeof drain_bytes },
    { reset_bytes, sizeof reset_bytes },
    { heartbeat_bytes, sizeof heartbeat_bytes },
    { register_bytes, sizeof register_bytes },
    { alarm_bytes, sizeof alarm_bytes },
    { plug_bytes, sizeof plug_bytes },
    { direct_bytes, sizeof direct_bytes },
};
enum { EXAMPLES = sizeof examples / sizeof examples[0] };

static bool text_is(dxpu_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.ptr, text, b.len) == 0;
}

/* A stream that takes what a proxy takes, and the frame it made last. */
static uint8_t room[ROOM];
static dxpu_control_stream stream;
static dxpu_control_frame frame;

static void fresh(void)
{
    memset(room, 0xcc, sizeof room); /* nothing of an earlier stream helps */
    assert_int_equal(dxpu_control_stream_init(&stream, room, sizeof room), DXPU_OK);
}

static int take(const uint8_t *bytes, size_t len)
{
    dxpu_bytes in = { bytes, len };
    return dxpu_control_take(&stream, &in, &frame);
}

/* Decode a message whose bytes are changed: from a heap block of its exact size. */
static int decode(const uint8_t *bytes, size_t len, dxpu_control *out)
{
    uint8_t *exact = malloc(len);
    dxpu_control_frame f;
    int rc;
    assert_non_null(exact);
    memcpy(exact, bytes, len);
    memset(&f, 0, sizeof f);
    f.flags = exact[5];
    f.type = dxpu_get_be16(exact + 6);
    f.body.ptr = exact + HEADER;
    f.body.len = len - HEADER;
    rc = dxpu_control_decode(&f, out);
    free(exact); /* views are gone: callers look at numbers alone */
    return rc;
}

/* decode() of an example with one byte changed. */
static int changed(const example *e, size_t at, uint8_t value)
{
    uint8_t copy[128];
    dxpu_control m;
    memcpy(copy, e->bytes, e->len);
    copy[at] = value;
    return decode(copy, e->len, &m);
}

/* ---- Bytes ---- */

static void test_m1_examples_decode(void **state)
{
    static dxpu_control m[EXAMPLES];
    (void)state;
    for (unsigned i = 0; i < EXAMPLES; i++) {
        fresh();
        assert_int_equal(take(examples[i].bytes, examples[i].len), DXPU_OK);
        assert_int_equal(dxpu_control_decode(&frame, &m[i]), DXPU_OK);
        if (i == 0)
            assert_true(text_is(m[0].u.hello.name, "bx"));
        if (i == 1)
            assert_true(text_is(m[1].u.error.text, "no"));
        if (i == 7)
            assert_true(text_is(m[7].u.picture.png, "png"));
        if (i == 15)
            assert_true(text_is(m[15].u.alarm.text, "io"));
        if (i == 16)
            assert_true(text_is(m[16].u.plug.device, "memory"));
    }
    assert_int_equal(m[0].type, DXPU_CONTROL_HELLO);
    assert_int_equal(m[0].request, 7);
    assert_int_equal(m[0].u.hello.role, DXPU_CONTROL_ROLE_BOX);
    assert_int_equal(m[0].u.hello.version_min, 1);
    assert_int_equal(m[0].u.hello.version_max, 3);
    assert_int_equal(m[0].u.hello.node, 0x01020304);
    assert_int_equal(m[0].u.hello.slots, 8);
    assert_int_equal(m[1].u.error.code, DXPU_CONTROL_CODE_BUSY);
    assert_int_equal(m[1].u.error.slot, 3);
    assert_int_equal(m[2].u.done.slot, 0x0102);
    assert_int_equal(m[2].u.done.state, DXPU_CONTROL_SLOT_HELD);
    assert_true(m[2].u.done.epoch == 0x1122334455667788u);
    assert_int_equal(m[3].u.attach.slot, 5);
    assert_int_equal(m[3].u.attach.box_slot, 6);
    assert_int_equal(m[3].u.attach.epoch, 9);
    assert_int_equal(m[3].u.attach.box.family, 4);
    assert_int_equal(m[3].u.attach.box.port, 4458);
    assert_memory_equal(m[3].u.attach.box.ip, "\x0a\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_int_equal(m[4].u.detach.slot, 5);
    assert_int_equal(m[4].u.detach.reason, DXPU_REASON_DETACH);
    assert_int_equal(m[4].u.detach.epoch, 9);
    assert_int_equal(m[5].u.ask.first, 1);
    assert_int_equal(m[5].u.ask.count, 256);
    assert_int_equal(m[6].u.screenshot.slot, 5);
    assert_int_equal(m[6].u.screenshot.offset, 0x1234);
    assert_int_equal(m[7].u.picture.slot, 5);
    assert_int_equal(m[7].u.picture.total, 0x10000);
    assert_int_equal(m[7].u.picture.offset, 0x1234);
    assert_int_equal(m[8].u.node.node, 0x102);
    assert_int_equal(m[8].u.node.heartbeat_ms, 1000);
    assert_int_equal(m[9].u.bind.slot, 5);
    assert_int_equal(m[9].u.bind.host_slot, 6);
    assert_int_equal(m[9].u.bind.host_node, 7);
    assert_int_equal(m[9].u.bind.epoch, 10);
    assert_int_equal(m[10].u.unbind.slot, 5);
    assert_true(m[10].u.unbind.keep);
    assert_int_equal(m[10].u.unbind.epoch, 10);
    assert_int_equal(m[11].u.drain.slot, 5);
    assert_true(m[11].u.drain.on);
    assert_int_equal(m[12].u.reset.slot, 5);
    assert_int_equal(m[12].u.reset.epoch, 10);
    assert_true(m[13].u.heartbeat.instance == 0x1122334455667788u);
    assert_int_equal(m[13].u.heartbeat.changes, 3);
    assert_int_equal(m[14].u.reg.role, DXPU_CONTROL_ROLE_BOX);
    assert_int_equal(m[14].u.reg.total, 9);
    assert_int_equal(m[14].u.reg.first, 10);
    assert_int_equal(m[14].u.reg.count, 0);
    assert_int_equal(m[14].u.reg.node, 0x102);
    assert_true(m[14].u.reg.instance == 0x1122334455667788u);
    assert_int_equal(m[14].u.reg.identity[15], 15);
    assert_int_equal(m[14].u.reg.paths, 0); /* as it was before there were any */
    assert_int_equal(m[14].u.reg.name.len, 0);
    assert_int_equal(m[15].u.alarm.slot, 5);
    assert_int_equal(m[15].u.alarm.kind, DXPU_CONTROL_ALARM_STORAGE);
    assert_int_equal(m[15].u.alarm.epoch, 10);
    assert_int_equal(m[16].u.plug.slot, 5);
    assert_int_equal(m[16].u.plug.how, DXPU_CONTROL_REPLACE);
    assert_true(m[16].u.plug.force);
}

static void test_m9_encode_is_decode_backwards(void **state)
{
    uint8_t out[256];
    (void)state;
    for (unsigned i = 0; i < EXAMPLES; i++) {
        dxpu_control m;
        size_t len = 0;
        fresh();
        assert_int_equal(take(examples[i].bytes, examples[i].len), DXPU_OK);
        assert_int_equal(dxpu_control_decode(&frame, &m), DXPU_OK);
        for (size_t cap = 0; cap < examples[i].len; cap++)
            assert_int_equal(dxpu_control_encode(&m, out, cap, &len), DXPU_E_ROOM);
        assert_int_equal(len, 0);
        memset(out, 0xee, sizeof out);
        assert_int_equal(dxpu_control_encode(&m, out, examples[i].len, &len), DXPU_OK);
        assert_int_equal(len, examples[i].len);
        assert_memory_equal(out, examples[i].bytes, len);
        assert_int_equal(out[len], 0xee);
    }
}

static void test_m12_addresses(void **state)
{
    uint8_t bytes[sizeof attach_bytes], out[sizeof attach_bytes];
    dxpu_control m;
    size_t len;
    (void)state;
    memcpy(bytes, attach_bytes, sizeof bytes);
    bytes[28] = 6;
    for (unsigned i = 0; i < 16; i++)
        bytes[32 + i] = (uint8_t)(0xf0 + i);
    assert_int_equal(decode(bytes, sizeof bytes, &m), DXPU_OK);
    assert_int_equal(m.u.attach.box.ip[15], 0xff);
    m.request = 3;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
    assert_memory_equal(out, bytes, sizeof bytes);
    bytes[28] = 4; /* what is behind an IPv4 address does not count */
    assert_int_equal(decode(bytes, sizeof bytes, &m), DXPU_OK);
    assert_memory_equal(m.u.attach.box.ip, "\xf0\xf1\xf2\xf3\0\0\0\0\0\0\0\0\0\0\0\0", 16);
}

/* ---- Streams ---- */

static void test_m2_magic_early(void **state)
{
    uint8_t bytes[HEADER];
    (void)state;
    for (unsigned at = 0; at < 4; at++) {
        memcpy(bytes, ask_bytes, HEADER);
        bytes[at] ^= 0x20;
        fresh();
        if (at)
            assert_int_equal(take(bytes, at), DXPU_E_AGAIN); /* good so far */
        assert_int_equal(take(bytes + at, 1), DXPU_E_MAGIC);
        assert_int_equal(take(ask_bytes, sizeof ask_bytes), DXPU_E_MAGIC); /* for ever */
    }
    fresh();
    assert_int_equal(take((const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18), DXPU_E_MAGIC);
}

static void test_m3_version(void **state)
{
    uint8_t bytes[sizeof ask_bytes];
    (void)state;
    for (unsigned v = 0; v < 256; v++) {
        memcpy(bytes, ask_bytes, sizeof bytes);
        bytes[4] = (uint8_t)v;
        fresh();
        assert_int_equal(take(bytes, sizeof bytes), v == 1 ? DXPU_OK : DXPU_E_VERSION);
        assert_int_equal(frame.version, v);
        assert_int_equal(frame.request, 5); /* so that it can be answered */
        assert_int_equal(frame.body.len, v == 1 ? 4 : 0);
    }
    assert_int_equal(take(ask_bytes, sizeof ask_bytes), DXPU_E_VERSION);
}

static void test_m4_length(void **state)
{
    static const struct {
        uint32_t length;
        int want;
    } rows[] = { { 0, DXPU_OK },
                 { 4096, DXPU_E_AGAIN },
                 { 4097, DXPU_E_LENGTH },
                 { 65536, DXPU_E_LENGTH },
                 { 65537, DXPU_E_LENGTH },
                 { 0x80000000u, DXPU_E_LENGTH },
                 { 0xfffffff0u, DXPU_E_LENGTH },
                 { UINT32_MAX, DXPU_E_LENGTH } };
    static uint8_t large[HEADER + DXPU_CONTROL_BODY_MAX + 64];
    uint8_t bytes[HEADER];
    dxpu_bytes in = { bytes, sizeof bytes };
    (void)state;
    memcpy(bytes, ask_bytes, HEADER);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_put_be32(bytes + 8, rows[i].length);
        fresh();
        assert_int_equal(take(bytes, sizeof bytes), rows[i].want);
    }
    dxpu_put_be32(bytes + 8, DXPU_CONTROL_BODY_MAX + 1); /* however much room there is */
    assert_int_equal(dxpu_control_stream_init(&stream, large, sizeof large), DXPU_OK);
    assert_int_equal(dxpu_control_take(&stream, &in, &frame), DXPU_E_LENGTH);
    assert_int_equal(dxpu_control_stream_init(&stream, room, HEADER - 1), DXPU_E_ARG);
    assert_int_equal(dxpu_control_stream_init(&stream, room, HEADER), DXPU_OK);
    assert_int_equal(take(ask_bytes, sizeof ask_bytes), DXPU_E_LENGTH);
}

/* All examples in a row, twice. */
static size_t train(uint8_t *out)
{
    size_t len = 0;
    for (unsigned i = 0; i < 2 * EXAMPLES; i++) {
        memcpy(out + len, examples[i % EXAMPLES].bytes, examples[i % EXAMPLES].len);
        len += examples[i % EXAMPLES].len;
    }
    return len;
}

/* Feed a part; *seen counts messages, each of which must be the next example. */
static void feed(const uint8_t *bytes, size_t len, unsigned *seen)
{
    uint8_t *exact = malloc(len ? len : 1);
    dxpu_bytes in;
    assert_non_null(exact);
    memcpy(exact, bytes, len);
    in.ptr = exact;
    in.len = len;
    for (;;) {
        const example *e = &examples[*seen % EXAMPLES];
        int rc = dxpu_control_take(&stream, &in, &frame);
        if (rc == DXPU_E_AGAIN)
            break;
        assert_int_equal(rc, DXPU_OK);
        assert_int_equal(frame.body.len, e->len - HEADER);
        assert_memory_equal(frame.body.ptr, e->bytes + HEADER, frame.body.len);
        assert_int_equal(frame.type, dxpu_get_be16(e->bytes + 6));
        ++*seen;
    }
    assert_int_equal(in.len, 0);
    free(exact);
}

static void test_m1_cut_at_every_byte(void **state)
{
    uint8_t bytes[2048];
    size_t len = train(bytes);
    (void)state;
    for (size_t cut = 0; cut <= len; cut++) {
        unsigned seen = 0;
        fresh();
        feed(bytes, cut, &seen);
        feed(bytes + cut, len - cut, &seen);
        assert_int_equal(seen, 2 * EXAMPLES);
    }
    for (size_t step = 1; step < 40; step++) {
        unsigned seen = 0;
        fresh();
        for (size_t at = 0; at < len; at += step)
            feed(bytes + at, step < len - at ? step : len - at, &seen);
        assert_int_equal(seen, 2 * EXAMPLES);
    }
}

/* ---- Ranges ---- */

static void test_m5_flags(void **state)
{
    (void)state;
    for (unsigned i = 0; i < EXAMPLES; i++) {
        for (unsigned bit = 0; bit < 8; bit++)
            assert_int_equal(changed(&examples[i], 5, (uint8_t)(1u << bit)),
                             bit < 4 ? DXPU_OK : DXPU_E_RSVD);
    }
}

static void test_m6_short_and_long(void **state)
{
    (void)state;
    for (unsigned i = 0; i < EXAMPLES; i++) {
        uint8_t longer[256];
        dxpu_control m;
        memset(&m, 0x5a, sizeof m);
        for (size_t len = HEADER; len < examples[i].len; len++)
            assert_int_equal(decode(examples[i].bytes, len, &m), DXPU_E_SHORT);
        assert_int_equal(m.type, 0x5a5a); /* nothing was written */
        memset(longer, 0xff, sizeof longer);
        memcpy(longer, examples[i].bytes, examples[i].len);
        if (examples[i].bytes == attach_bytes || examples[i].bytes == register_bytes)
            memset(longer + examples[i].len, 0, 5); /* paths: none; no name */
        assert_int_equal(decode(longer, sizeof longer, &m), DXPU_OK);
        assert_int_equal(decode(longer, examples[i].len + 1, &m), DXPU_OK);
    }
}

static void test_m7_text_length(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 256; n++) {
        assert_int_equal(changed(&examples[0], 28, (uint8_t)n), n <= 2 ? DXPU_OK : DXPU_E_SHORT);
        assert_int_equal(changed(&examples[1], 20, (uint8_t)n), n <= 2 ? DXPU_OK : DXPU_E_SHORT);
    }
}

static void test_m8_characters(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        int want = c >= 0x20 && c <= 0x7e ? DXPU_OK : DXPU_E_RECORD;
        assert_int_equal(changed(&examples[0], 30, (uint8_t)c), want);
        assert_int_equal(changed(&examples[1], 21, (uint8_t)c), want);
    }
}

static void test_m10_types(void **state)
{
    uint8_t bytes[sizeof ask_bytes];
    unsigned known = 0;
    (void)state;
    memcpy(bytes, ask_bytes, sizeof bytes);
    for (unsigned type = 0; type <= 0xffff; type++) {
        dxpu_control m;
        dxpu_put_be16(bytes + 6, type);
        if (decode(bytes, sizeof bytes, &m) != DXPU_E_KIND)
            known++;
        else
            assert_string_equal(dxpu_control_type_name(type), "unknown");
    }
    assert_int_equal(known, 19);
    fresh(); /* the stream goes on behind an unknown one: type is ffffh now */
    assert_int_equal(take(bytes, sizeof bytes), DXPU_OK);
    assert_true(frame.type & DXPU_CONTROL_IGNORABLE);
    assert_int_equal(take(ask_bytes, sizeof ask_bytes), DXPU_OK);
    assert_int_equal(frame.type, DXPU_CONTROL_ASK);
}

static void test_m11_hello_versions(void **state)
{
    (void)state;
    assert_int_equal(changed(&examples[0], 17, 0), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[0], 17, 3), DXPU_OK);
    assert_int_equal(changed(&examples[0], 17, 4), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[0], 18, 0), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[0], 16, 0xff), DXPU_OK); /* roles may come */
}

static void test_m13_attach_zeros(void **state)
{
    uint8_t bytes[sizeof attach_bytes];
    dxpu_control m;
    (void)state;
    assert_int_equal(changed(&examples[3], 17, 0), DXPU_E_RECORD); /* slot */
    assert_int_equal(changed(&examples[3], 19, 0), DXPU_E_RECORD); /* box's */
    assert_int_equal(changed(&examples[3], 27, 0), DXPU_E_RECORD); /* epoch */
    memcpy(bytes, attach_bytes, sizeof bytes);
    bytes[30] = bytes[31] = 0; /* port */
    assert_int_equal(decode(bytes, sizeof bytes, &m), DXPU_E_RECORD);
    for (unsigned family = 0; family < 256; family++)
        assert_int_equal(changed(&examples[3], 28, (uint8_t)family),
                         family == 4 || family == 6 ? DXPU_OK : DXPU_E_RECORD);
    assert_int_equal(changed(&examples[3], 20, 0x80), DXPU_OK); /* epochs have 64 bits */
}

/* M-13 holds for the further addresses of a box, too. */
static void test_m13_attach_paths(void **state)
{
    enum { MORE = DXPU_CONTROL_PATHS_MAX - 1, FIRST = sizeof attach_bytes + 4, EACH = 20 };
    uint8_t bytes[FIRST + MORE * EACH + 1], out[sizeof bytes];
    dxpu_control m, back;
    size_t len = 0;
    (void)state;
    assert_int_equal(decode(attach_bytes, sizeof attach_bytes, &m), DXPU_OK);
    assert_int_equal(m.u.attach.more, 0); /* as it was before there were paths */
    m.u.attach.more = MORE;
    for (unsigned i = 0; i < MORE; i++) {
        m.u.attach.path[i].family = i % 2 ? 4 : 6;
        m.u.attach.path[i].port = (uint16_t)(100 + i);
        m.u.attach.path[i].ip[3] = (uint8_t)(1 + i);
    }
    assert_int_equal(dxpu_control_encode(&m, bytes, FIRST + MORE * EACH - 1, &len), DXPU_E_ROOM);
    assert_int_equal(dxpu_control_encode(&m, bytes, sizeof bytes, &len), DXPU_OK);
    assert_int_equal(len, FIRST + MORE * EACH);
    assert_int_equal(decode(bytes, len, &back), DXPU_OK);
    assert_int_equal(back.u.attach.more, MORE);
    assert_memory_equal(back.u.attach.path, m.u.attach.path, sizeof back.u.attach.path);
    for (size_t cut = FIRST; cut < len; cut++)
        assert_int_equal(decode(bytes, cut, &back), DXPU_E_SHORT);
    memcpy(out, bytes, len);
    out[FIRST + EACH] = 5; /* an invalid family */
    assert_int_equal(decode(out, len, &back), DXPU_E_RECORD);
    memcpy(out, bytes, len);
    out[FIRST + 3] = 0; /* port 0 */
    assert_int_equal(decode(out, len, &back), DXPU_E_RECORD);
    memcpy(out, bytes, len);
    out[sizeof attach_bytes] = MORE + 1;
    assert_int_equal(decode(out, len, &back), DXPU_E_RECORD);
    m.u.attach.more = MORE + 1;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
}

/* A key behind `fixed` bytes of a message: there, cut, of zeros; control: none. */
static void check_key(const dxpu_control *keyed, size_t fixed, bool *has, const uint8_t *key)
{
    uint8_t bytes[HEADER + 512], want[DXPU_CONTROL_KEY_BYTES];
    dxpu_control m = *keyed;
    size_t len = 0;
    memcpy(want, key, sizeof want);
    assert_int_equal(dxpu_control_encode(keyed, bytes, sizeof bytes, &len), DXPU_OK);
    assert_int_equal(len, fixed + sizeof want);
    assert_memory_equal(bytes + fixed, want, sizeof want);
    assert_int_equal(dxpu_control_encode(keyed, bytes, len - 1, &len), DXPU_E_ROOM);
    assert_int_equal(dxpu_control_encode(keyed, bytes, sizeof bytes, &len), DXPU_OK);
    for (size_t cut = fixed; cut <= len; cut++) {
        assert_int_equal(decode(bytes, cut, &m), DXPU_OK);
        assert_int_equal(m.type == DXPU_CONTROL_BIND ? m.u.bind.keyed : m.u.attach.keyed,
                         cut == len);
    }
    assert_memory_equal(m.type == DXPU_CONTROL_BIND ? m.u.bind.key : m.u.attach.key, want,
                        sizeof want);
    memset(bytes + fixed, 0, sizeof want - 1);
    assert_int_equal(decode(bytes, len, &m), DXPU_OK); /* control: one byte is not 0 */
    bytes[len - 1] = 0;
    assert_int_equal(decode(bytes, len, &m), DXPU_E_RECORD);
    memset((uint8_t *)(uintptr_t)key, 0, sizeof want);
    assert_int_equal(dxpu_control_encode(keyed, bytes, sizeof bytes, &len), DXPU_E_ARG);
    *has = false;
    assert_int_equal(dxpu_control_encode(keyed, bytes, sizeof bytes, &len), DXPU_OK);
    assert_true(len < fixed + sizeof want);
}

static void test_m80_keys(void **state)
{
    dxpu_control m;
    (void)state;
    assert_int_equal(decode(attach_bytes, sizeof attach_bytes, &m), DXPU_OK);
    assert_false(m.u.attach.keyed); /* as it was before there were keys */
    m.u.attach.keyed = true;
    memset(m.u.attach.key, 0x5a, sizeof m.u.attach.key);
    check_key(&m, sizeof attach_bytes + 4, &m.u.attach.keyed, m.u.attach.key);
    m.u.attach.keyed = true;
    memset(m.u.attach.key, 0xa5, sizeof m.u.attach.key);
    m.u.attach.more = 2;
    m.u.attach.path[0] = m.u.attach.path[1] = m.u.attach.box;
    check_key(&m, sizeof attach_bytes + 4 + 40, &m.u.attach.keyed, m.u.attach.key);
    assert_int_equal(decode(bind_bytes, sizeof bind_bytes, &m), DXPU_OK);
    assert_false(m.u.bind.keyed);
    m.u.bind.keyed = true;
    memset(m.u.bind.key, 0x5a, sizeof m.u.bind.key);
    check_key(&m, sizeof bind_bytes, &m.u.bind.keyed, m.u.bind.key);
}

static void test_m14_detach_slot_zero(void **state)
{
    (void)state;
    assert_int_equal(changed(&examples[4], 17, 0), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[4], 27, 0), DXPU_OK); /* any lease */
}

static void test_m15_ask_slot_zero(void **state)
{
    (void)state;
    assert_int_equal(changed(&examples[5], 17, 0), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[5], 18, 0), DXPU_OK); /* as many as go in */
}

static void test_m22_screenshot_ranges(void **state)
{
    uint8_t bytes[sizeof screenshot_bytes];
    dxpu_control m;
    (void)state;
    assert_int_equal(changed(&examples[6], 17, 0), DXPU_E_RECORD); /* slot */
    memcpy(bytes, screenshot_bytes, sizeof bytes);
    dxpu_put_be32(bytes + 20, DXPU_CONTROL_PICTURE_MAX - 1);
    assert_int_equal(decode(bytes, sizeof bytes, &m), DXPU_OK);
    dxpu_put_be32(bytes + 20, DXPU_CONTROL_PICTURE_MAX);
    assert_int_equal(decode(bytes, sizeof bytes, &m), DXPU_E_RECORD);
}

static void test_m24_plug_ranges(void **state)
{
    (void)state;
    assert_int_equal(changed(&examples[16], 17, 0), DXPU_E_RECORD); /* slot */
    assert_int_equal(changed(&examples[16], 18, DXPU_CONTROL_INSERT), DXPU_OK);
    assert_int_equal(changed(&examples[16], 18, DXPU_CONTROL_REMOVE), DXPU_E_RECORD); /* of what? */
    assert_int_equal(changed(&examples[16], 18, 0), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[16], 18, 4), DXPU_E_RECORD);
    assert_int_equal(changed(&examples[16], 19, 0), DXPU_OK);
    assert_int_equal(changed(&examples[16], 19, 2), DXPU_E_RECORD); /* force */
    assert_int_equal(changed(&examples[16], 20, 0), DXPU_E_RECORD); /* no device */
    assert_int_equal(changed(&examples[16], 20, 7), DXPU_E_SHORT);
    assert_int_equal(changed(&examples[16], 21, 7), DXPU_E_RECORD); /* not printable */
}

static void test_m23_picture_ranges(void **state)
{
    static const struct {
        uint32_t total, offset, bytes;
        int want;
    } rows[] = {
        { 3, 0, 3, DXPU_OK },
        { 3, 1, 3, DXPU_E_RECORD },
        { 3, 3, 0, DXPU_E_RECORD },
        { 3, 0, 0, DXPU_E_RECORD },
        { 3, 0, 4, DXPU_E_RECORD },
        { 4, 0, 4, DXPU_E_SHORT }, /* within the picture, beyond the body */
        { 4, 0, 2, DXPU_OK },
        { 0, 0, 3, DXPU_E_RECORD },
        { UINT32_MAX, 0, 3, DXPU_E_RECORD },
        { DXPU_CONTROL_PICTURE_MAX, 0, 3, DXPU_OK },
        { DXPU_CONTROL_PICTURE_MAX + 1, 0, 3, DXPU_E_RECORD },
        { DXPU_CONTROL_PICTURE_MAX, DXPU_CONTROL_PICTURE_MAX - 3, 3, DXPU_OK },
        { DXPU_CONTROL_PICTURE_MAX, UINT32_MAX - 1, 3, DXPU_E_RECORD }, /* the sum wraps */
        { DXPU_CONTROL_PICTURE_MAX, 2, UINT32_MAX, DXPU_E_RECORD },
    };
    uint8_t bytes[sizeof picture_bytes];
    dxpu_control m;
    (void)state;
    assert_int_equal(changed(&examples[7], 17, 0), DXPU_E_RECORD); /* slot */
    memcpy(bytes, picture_bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_put_be32(bytes + 20, rows[i].total);
        dxpu_put_be32(bytes + 24, rows[i].offset);
        dxpu_put_be32(bytes + 28, rows[i].bytes);
        assert_int_equal(decode(bytes, sizeof bytes, &m), rows[i].want);
        if (rows[i].want == DXPU_OK)
            assert_int_equal(m.u.picture.png.len, rows[i].bytes);
    }
}

/* The largest piece fills a body exactly; a larger one is not made. */
static void test_m23_largest_piece(void **state)
{
    static uint8_t png[DXPU_CONTROL_PIECE_MAX + 1], out[HEADER + DXPU_CONTROL_BODY_MAX];
    dxpu_control m;
    size_t len = 0;
    (void)state;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_PICTURE;
    m.u.picture.slot = 1;
    m.u.picture.total = sizeof png;
    m.u.picture.png.ptr = png;
    m.u.picture.png.len = sizeof png;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
    m.u.picture.png.len--;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
    assert_int_equal(len, sizeof out);
}

/* ---- Status ---- */

static dxpu_control_slot full_slot(unsigned number)
{
    dxpu_control_slot s;
    memset(&s, 0, sizeof s);
    s.number = (uint16_t)number;
    s.state = DXPU_CONTROL_SLOT_UP;
    s.reason = DXPU_REASON_HOLD;
    s.error = DXPU_E_DEAD;
    s.code = DXPU_CONTROL_CODE_NO_ROOM;
    s.peer_slot = 0x0203;
    s.peer_node = 0x04050607;
    s.peer.family = 6;
    s.peer.port = 0x0809;
    memset(s.peer.ip, 0xa5, sizeof s.peer.ip);
    s.epoch = 0x1011121314151617u;
    s.epoch_seen = 0x1819202122232425u;
    s.attempts = 0x26272829;
    s.incarnations = 0x30313233;
    s.to_device = 0x3435363738394041u;
    s.from_device = 0x4243444546474849u;
    s.msis_refused = 0x60616263u;
    s.dropped = 0x5051525354555657u;
    memcpy(s.device, "memory", 6);
    memcpy(s.note, "needs pci=hpmmioprefsize=8G", 27);
    return s;
}

static void test_m20_slot_bytes(void **state)
{
    static const uint8_t want[88] = {
        0x00, 0x01, 0x02, 0x0b, 0x00, 0x71, 0x00, 0x0f, 0x02, 0x03, 0x00, 0x00, 0x04, 0x05, 0x06,
        0x07, 0x06, 0x00, 0x08, 0x09, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5,
        0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0x60, 0x61, 0x62, 0x63, 0x10, 0x11, 0x12, 0x13, 0x14,
        0x15, 0x16, 0x17, 0x18, 0x19, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29,
        0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x40, 0x41, 0x42, 0x43, 0x44,
        0x45, 0x46, 0x47, 0x48, 0x49, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57,
    };
    dxpu_control_slot s = full_slot(1), back;
    uint8_t out[DXPU_CONTROL_SLOT_BYTES];
    dxpu_control_status st;
    dxpu_bytes entries = { out, sizeof out };
    (void)state;
    dxpu_control_slot_encode(&s, out);
    assert_memory_equal(out, want, sizeof want);
    assert_string_equal((const char *)out + 88, "memory");
    assert_string_equal((const char *)out + 104, "needs pci=hpmmioprefsize=8G");
    memset(&st, 0, sizeof st);
    st.entry_bytes = DXPU_CONTROL_SLOT_BYTES;
    assert_true(dxpu_control_slot_next(&st, &entries, &back));
    assert_memory_equal(&back, &s, sizeof s);
    assert_false(dxpu_control_slot_next(&st, &entries, &back));
}

static void test_m21_unknown_in_a_slot(void **state)
{
    dxpu_control_slot s = full_slot(1), back;
    uint8_t out[DXPU_CONTROL_SLOT_BYTES];
    dxpu_control_status st;
    dxpu_bytes entries = { out, sizeof out };
    (void)state;
    memset(&st, 0, sizeof st);
    st.entry_bytes = DXPU_CONTROL_SLOT_BYTES;
    dxpu_control_slot_encode(&s, out);
    memset(out + 88, 'x', 80); /* no zero in either word */
    out[2] = 0xee;
    out[4] = 0xff;
    out[16] = 9; /* family */
    out[90] = 0x1b;
    assert_true(dxpu_control_slot_next(&st, &entries, &back));
    assert_string_equal(dxpu_control_state_name(back.state), "unknown");
    assert_int_equal(back.error, 0);
    assert_int_equal(back.peer.family, 0);
    assert_int_equal(back.peer.port, 0);
    assert_string_equal(back.device, "xx?xxxxxxxxxxxx");
    assert_int_equal(strlen(back.note), sizeof back.note - 1);
    st.entry_bytes--; /* never decoded; nothing may be read */
    entries.len = DXPU_CONTROL_SLOT_BYTES;
    assert_false(dxpu_control_slot_next(&st, &entries, &back));
}

/* A status of `count` slots whose entries have `extra` bytes more than this version's. */
static size_t make_status(uint8_t *out, unsigned count, unsigned extra)
{
    static uint8_t entries[8 * 256];
    dxpu_control m;
    size_t len = 0;
    unsigned each = DXPU_CONTROL_SLOT_BYTES + extra;
    for (unsigned i = 0; i < count; i++) {
        dxpu_control_slot s = full_slot(i + 3);
        memset(entries + i * each, 0xff, each);
        dxpu_control_slot_encode(&s, entries + i * each);
    }
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_STATUS;
    m.u.status.role = DXPU_CONTROL_ROLE_HOST;
    m.u.status.node = 77;
    m.u.status.total = 10;
    m.u.status.first = 3;
    m.u.status.count = (uint16_t)count;
    m.u.status.entry_bytes = (uint16_t)each;
    m.u.status.entries.ptr = entries;
    m.u.status.entries.len = (size_t)count * each;
    assert_int_equal(dxpu_control_encode(&m, out, 4096, &len), DXPU_OK);
    assert_int_equal(len, HEADER + 16 + count * each);
    return len;
}

static void test_m16_status(void **state)
{
    static uint8_t bytes[4096], tail[4096];
    (void)state;
    for (unsigned extra = 0; extra <= 8; extra += 8) {
        dxpu_control m;
        dxpu_control_slot s;
        size_t len = make_status(bytes, 4, extra);
        unsigned n = 0;
        fresh();
        assert_int_equal(take(bytes, len), DXPU_OK);
        assert_int_equal(dxpu_control_decode(&frame, &m), DXPU_OK);
        assert_int_equal(m.u.status.total, 10);
        assert_int_equal(m.u.status.node, 77);
        for (dxpu_bytes e = m.u.status.entries; dxpu_control_slot_next(&m.u.status, &e, &s); n++) {
            dxpu_control_slot want = full_slot(n + 3);
            assert_memory_equal(&s, &want, sizeof s);
        }
        assert_int_equal(n, 4);
        for (size_t cut = HEADER; cut < len; cut++)
            assert_int_equal(decode(bytes, cut, &m), DXPU_E_SHORT);
        memcpy(tail, bytes, len);
        assert_int_equal(decode(tail, len + 100, &m), DXPU_OK); /* M-6 */
        assert_int_equal(m.u.status.entries.len, 4 * (DXPU_CONTROL_SLOT_BYTES + extra));
    }
}

static void test_m16_status_ranges(void **state)
{
    static const struct {
        uint16_t total, first, count, entry_bytes;
        int want;
    } rows[] = {
        { 10, 3, 4, 168, DXPU_OK },        { 6, 3, 4, 168, DXPU_OK },
        { 5, 3, 4, 168, DXPU_E_RECORD },   { 10, 0, 4, 168, DXPU_E_RECORD },
        { 10, 7, 4, 168, DXPU_OK },        { 10, 8, 4, 168, DXPU_E_RECORD },
        { 10, 11, 0, 168, DXPU_OK },       { 10, 12, 0, 168, DXPU_E_RECORD },
        { 0, 1, 0, 168, DXPU_OK },         { 65535, 1, 65535, 65535, DXPU_E_SHORT },
        { 10, 3, 4, 167, DXPU_E_RECORD },  { 10, 3, 4, 0, DXPU_E_RECORD },
        { 10, 3, 4, 169, DXPU_E_SHORT },   { 10, 3, 5, 168, DXPU_E_SHORT },
        { 65535, 65535, 1, 168, DXPU_OK }, { 65535, 65535, 2, 168, DXPU_E_RECORD },
    };
    static uint8_t bytes[4096];
    size_t len = make_status(bytes, 4, 0);
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_control m;
        dxpu_put_be16(bytes + HEADER + 8, rows[i].total);
        dxpu_put_be16(bytes + HEADER + 10, rows[i].first);
        dxpu_put_be16(bytes + HEADER + 12, rows[i].count);
        dxpu_put_be16(bytes + HEADER + 14, rows[i].entry_bytes);
        assert_int_equal(decode(bytes, len, &m), rows[i].want);
    }
}

/* ---- What encode refuses ---- */

static void test_encode_refuses(void **state)
{
    static uint8_t out[1024], text[256];
    dxpu_control m;
    size_t len = 99;
    (void)state;
    memset(text, 'a', sizeof text);
    memset(&m, 0, sizeof m);
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG); /* no type */
    m.type = DXPU_CONTROL_DETACH;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG); /* slot 0 */
    m.type = DXPU_CONTROL_ERROR;
    m.u.error.text.ptr = text;
    m.u.error.text.len = 256;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
    m.u.error.text.len = 255;
    text[254] = '\n';
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
    assert_int_equal(len, 99);
    text[254] = 'a';
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
    assert_int_equal(len, HEADER + 5 + 255);
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_STATUS;
    m.u.status.total = m.u.status.count = m.u.status.first = 1;
    m.u.status.entry_bytes = DXPU_CONTROL_SLOT_BYTES;
    m.u.status.entries.ptr = out;
    m.u.status.entries.len = DXPU_CONTROL_SLOT_BYTES + 1; /* not what count says */
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
    m.u.status.total = m.u.status.count = 400; /* more than a body holds */
    m.u.status.entries.len = 400 * DXPU_CONTROL_SLOT_BYTES;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
}

/* ---- Of a manager ---- */

enum { NODE = 8, BIND, UNBIND, DRAIN, RESET, HEARTBEAT, REGISTER, ALARM, PLUG, DIRECT };

/* M-42, M-44, M-45, M-46, M-47 */
static void test_m44_ranges(void **state)
{
    static const struct {
        unsigned example, at;
        uint8_t value;
        int want;
    } rows[] = {
        { BIND, 17, 0, DXPU_E_RECORD },     { BIND, 19, 0, DXPU_E_RECORD },
        { BIND, 23, 0, DXPU_E_RECORD },     { BIND, 31, 0, DXPU_E_RECORD },
        { UNBIND, 17, 0, DXPU_E_RECORD },   { UNBIND, 27, 0, DXPU_E_RECORD },
        { UNBIND, 18, 0, DXPU_OK },         { UNBIND, 18, 2, DXPU_E_RECORD },
        { UNBIND, 18, 255, DXPU_E_RECORD }, { DRAIN, 17, 0, DXPU_OK },
        { DRAIN, 18, 0, DXPU_OK },          { DRAIN, 18, 2, DXPU_E_RECORD },
        { RESET, 17, 0, DXPU_E_RECORD },    { RESET, 27, 0, DXPU_OK },
        { DIRECT, 17, 0, DXPU_E_RECORD },   { DIRECT, 18, 0, DXPU_OK },
        { DIRECT, 18, 2, DXPU_E_RECORD },   { DIRECT, 19, 9, DXPU_OK },
    };
    uint8_t zero[sizeof heartbeat_bytes];
    dxpu_control m;
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(changed(&examples[rows[i].example], rows[i].at, rows[i].value),
                         rows[i].want);
    memcpy(zero, heartbeat_bytes, sizeof zero); /* M-47 */
    memset(zero + HEADER, 0, 8);
    assert_int_equal(decode(zero, sizeof zero, &m), DXPU_E_RECORD);
    memcpy(zero, node_bytes, sizeof node_bytes); /* M-42 */
    memset(zero + HEADER, 0, 4);
    assert_int_equal(decode(zero, sizeof node_bytes, &m), DXPU_E_RECORD);
    memcpy(zero, node_bytes, sizeof node_bytes);
    memset(zero + HEADER + 4, 0, 4);
    assert_int_equal(decode(zero, sizeof node_bytes, &m), DXPU_E_RECORD);
    assert_int_equal(decode(unbind_bytes, sizeof unbind_bytes, &m), DXPU_OK); /* M-44 */
    assert_true(m.u.unbind.keep);
}

static void test_m43_bind_zeros(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(changed(&examples[BIND], HEADER + i, 0),
                         i == 1 || i == 3 || i == 7 || i == 15 ? DXPU_E_RECORD : DXPU_OK);
}

static dxpu_control_device full_device(unsigned number)
{
    dxpu_control_device d;
    memset(&d, 0, sizeof d);
    d.number = (uint16_t)number;
    d.state = DXPU_CONTROL_SLOT_HELD;
    d.health = DXPU_CONTROL_HEALTH_GOOD;
    d.vendor = 0x10de;
    d.device = 0x20b0;
    d.class_code = 0x030200;
    d.group = 0x01020304;
    d.epoch = 0x1122334455667788u;
    d.epoch_seen = 0x1122334455667789u;
    d.peer_node = 0x0a0b0c0d;
    d.peer_slot = 0x0506;
    d.code = DXPU_CONTROL_CODE_NO_ROOM;
    memcpy(d.model, "A100-SXM4", 10);
    memcpy(d.serial, "0123456789012345678901234567890", 32);
    d.port_offset = 0x0203;
    d.data = DXPU_CONTROL_DATA_PERSISTENT;
    d.medium = 0x2122232425262728u;
    memcpy(d.attributes, "render=renderD128,rack=7", 25);
    d.lease = 0x3132333435363738u;
    d.tenant = 0x0102030405060708u;
    return d;
}

/* `count` slots from the third of ten on, each `extra` bytes longer than known. */
static size_t make_register(uint8_t *out, unsigned count, unsigned extra)
{
    static uint8_t entries[4096];
    unsigned each = DXPU_CONTROL_DEVICE_BYTES + extra;
    dxpu_control m;
    size_t len = 0;
    memset(entries, 0xee, sizeof entries);
    for (unsigned i = 0; i < count; i++) {
        dxpu_control_device d = full_device(i + 3);
        dxpu_control_device_encode(&d, entries + i * each);
    }
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_REGISTER;
    m.u.reg.role = DXPU_CONTROL_ROLE_BOX;
    m.u.reg.total = 10;
    m.u.reg.first = 3;
    m.u.reg.count = (uint16_t)count;
    m.u.reg.entry_bytes = (uint16_t)each;
    m.u.reg.instance = 1;
    m.u.reg.identity[3] = 1;
    m.u.reg.entries.ptr = entries;
    m.u.reg.entries.len = (size_t)count * each;
    assert_int_equal(dxpu_control_encode(&m, out, 4096, &len), DXPU_OK);
    assert_int_equal(len, HEADER + 40 + count * each);
    m.u.reg.entries.len++; /* not what count says */
    size_t none = 0;
    assert_int_equal(dxpu_control_encode(&m, out + len, 4096 - len, &none), DXPU_E_ARG);
    return len;
}

static void test_m40_register(void **state)
{
    static uint8_t bytes[8192];
    (void)state;
    for (unsigned extra = 0; extra <= 8; extra += 8) {
        dxpu_control m;
        dxpu_control_device d;
        size_t len = make_register(bytes, 4, extra);
        unsigned n = 0;
        fresh();
        assert_int_equal(take(bytes, len), DXPU_OK);
        assert_int_equal(dxpu_control_decode(&frame, &m), DXPU_OK);
        for (dxpu_bytes e = m.u.reg.entries; dxpu_control_device_next(&m.u.reg, &e, &d); n++) {
            dxpu_control_device want = full_device(n + 3);
            assert_memory_equal(&d, &want, sizeof d);
        }
        assert_int_equal(n, 4);
        for (size_t cut = HEADER; cut < len; cut++)
            assert_int_equal(decode(bytes, cut, &m), DXPU_E_SHORT);
        memset(bytes + len, 0, 100); /* no paths, no name, and what is not known here */
        assert_int_equal(decode(bytes, len + 100, &m), DXPU_OK); /* M-6 */
        assert_int_equal(m.u.reg.entries.len, 4 * (DXPU_CONTROL_DEVICE_BYTES + extra));
    }
}

static void test_m40_register_ranges(void **state)
{
    static const struct {
        uint16_t total, first, count, entry_bytes;
        int want;
    } rows[] = {
        { 10, 3, 4, 196, DXPU_OK },       { 6, 3, 4, 196, DXPU_OK },
        { 5, 3, 4, 196, DXPU_E_RECORD },  { 10, 0, 4, 196, DXPU_E_RECORD },
        { 10, 11, 0, 196, DXPU_OK },      { 10, 12, 0, 196, DXPU_E_RECORD },
        { 10, 3, 4, 103, DXPU_E_RECORD }, { 10, 3, 4, 197, DXPU_E_SHORT },
        { 10, 3, 5, 196, DXPU_E_SHORT },  { 65535, 1, 65535, 65535, DXPU_E_SHORT },
    };
    static uint8_t bytes[8192];
    size_t len = make_register(bytes, 4, 0);
    dxpu_control m;
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_put_be16(bytes + HEADER + 2, rows[i].total);
        dxpu_put_be16(bytes + HEADER + 4, rows[i].first);
        dxpu_put_be16(bytes + HEADER + 6, rows[i].count);
        dxpu_put_be16(bytes + HEADER + 8, rows[i].entry_bytes);
        /* without slots nothing stands behind the fields */
        assert_int_equal(decode(bytes, rows[i].count ? len : HEADER + 40, &m), rows[i].want);
    }
    (void)make_register(bytes, 4, 0);
    dxpu_put_be16(bytes + HEADER + 8, 104);
    assert_int_equal(decode(bytes, HEADER + 40 + 4 * 104, &m), DXPU_OK);
    for (unsigned role = 0; role < 256; role++)
        assert_int_equal(changed(&examples[REGISTER], HEADER, (uint8_t)role),
                         role == 1 || role == 2 ? DXPU_OK : DXPU_E_RECORD);
    assert_int_equal(changed(&examples[REGISTER], HEADER + 39, 0), DXPU_E_RECORD); /* identity */
    len = make_register(bytes, 4, 0);
    memset(bytes + HEADER + 16, 0, 8); /* instance */
    assert_int_equal(decode(bytes, len, &m), DXPU_E_RECORD);
}

static void test_m41_unknown_in_a_device(void **state)
{
    static uint8_t bytes[4096];
    size_t len = make_register(bytes, 1, 0);
    uint8_t *entry = bytes + HEADER + 40;
    dxpu_control m;
    dxpu_control_device d;
    (void)state;
    entry[2] = entry[3] = 0xff;
    memset(entry + 40, 0xff, 32); /* a word that nothing ends */
    fresh();
    assert_int_equal(take(bytes, len), DXPU_OK);
    assert_int_equal(dxpu_control_decode(&frame, &m), DXPU_OK);
    dxpu_bytes e = m.u.reg.entries;
    assert_true(dxpu_control_device_next(&m.u.reg, &e, &d));
    assert_string_equal(dxpu_control_state_name(d.state), "unknown");
    assert_string_equal(d.model, "???????????????????????????????");
    assert_false(dxpu_control_device_next(&m.u.reg, &e, &d));
}

static void test_m41_device_bytes(void **state)
{
    static const uint8_t head[40] = {
        0x00, 0x03, 0x04, 0x01, 0x10, 0xde, 0x20, 0xb0, 0x00, 0x03, 0x02, 0x00, 0x01, 0x02,
        0x03, 0x04, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x11, 0x22, 0x33, 0x44,
        0x55, 0x66, 0x77, 0x89, 0x0a, 0x0b, 0x0c, 0x0d, 0x05, 0x06, 0x00, 0x0f,
    };
    uint8_t out[DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control_device d = full_device(3);
    (void)state;
    dxpu_control_device_encode(&d, out);
    assert_memory_equal(out, head, sizeof head);
    assert_memory_equal(out + 40, "A100-SXM4\0\0", 11);
    assert_memory_equal(out + 72, "0123456789012345678901234567890", 32);
    assert_memory_equal(out + 104, "\2\3\2\0\x21\x22\x23\x24\x25\x26\x27\x28", 12);
    assert_memory_equal(out + 116, "render=renderD128,rack=7\0", 26);
    assert_memory_equal(out + 180, "\x31\x32\x33\x34\x35\x36\x37\x38\1\2\3\4\5\6\7\x08", 16);
}

/* An entry that ends before its port offset, its medium (M-104), its attributes (M-155), or its
   lease (M-174), has none. */
static void test_m73_port_offset_may_be_missing(void **state)
{
    uint8_t out[DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control_device d = full_device(3), back;
    dxpu_control_register r;
    (void)state;
    dxpu_control_device_encode(&d, out);
    memset(&r, 0, sizeof r);
    for (unsigned bytes = 104; bytes <= DXPU_CONTROL_DEVICE_BYTES; bytes++) {
        dxpu_bytes e = { out, bytes };
        r.entry_bytes = (uint16_t)bytes;
        assert_true(dxpu_control_device_next(&r, &e, &back));
        assert_int_equal(back.port_offset, bytes < 108 ? 0 : 0x0203);
        assert_int_equal(back.medium, bytes < 116 ? 0 : 0x2122232425262728u);
        assert_string_equal(back.attributes, bytes < 180 ? "" : "render=renderD128,rack=7");
        assert_int_equal(back.lease, bytes < 196 ? 0 : 0x3132333435363738u);
        assert_int_equal(back.tenant, bytes < 196 ? 0 : 0x0102030405060708u);
        d.lease = back.lease;
        d.tenant = back.tenant;
        memcpy(d.attributes, back.attributes, sizeof d.attributes);
        d.port_offset = back.port_offset;
        d.medium = back.medium;
        d.data = bytes < 108 ? DXPU_CONTROL_DATA_UNKNOWN : DXPU_CONTROL_DATA_PERSISTENT; /* M-90 */
        assert_memory_equal(&back, &d, sizeof d);
    }
}

/* A lease behind the key of a bind, or behind its epoch without one. */
static void test_m174_lease(void **state)
{
    uint8_t bytes[HEADER + 128];
    dxpu_control m, back;
    size_t len;
    (void)state;
    for (unsigned keyed = 0; keyed < 2; keyed++) {
        size_t fixed = sizeof bind_bytes + (keyed ? DXPU_CONTROL_KEY_BYTES : 0);
        assert_int_equal(decode(bind_bytes, sizeof bind_bytes, &m), DXPU_OK);
        assert_int_equal(m.u.bind.lease, 0); /* as it was before */
        m.u.bind.keyed = keyed;
        memset(m.u.bind.key, 0x5a, sizeof m.u.bind.key);
        m.u.bind.lease = 0x3132333435363738u;
        m.u.bind.tenant = 0x0102030405060708u;
        assert_int_equal(dxpu_control_encode(&m, bytes, sizeof bytes, &len), DXPU_OK);
        assert_int_equal(len, fixed + 16);
        assert_memory_equal(bytes + fixed, "\x31\x32\x33\x34\x35\x36\x37\x38\1\2\3\4\5\6\7\x08",
                            16);
        for (size_t cut = fixed; cut <= len; cut++) {
            assert_int_equal(decode(bytes, cut, &back), DXPU_OK);
            assert_int_equal(back.u.bind.keyed, keyed);
            assert_int_equal(back.u.bind.lease, cut == len ? m.u.bind.lease : 0);
            assert_int_equal(back.u.bind.tenant, cut == len ? m.u.bind.tenant : 0);
        }
        memset(bytes + fixed, 0, 8); /* no number: none */
        assert_int_equal(decode(bytes, len, &back), DXPU_OK);
        assert_true(!back.u.bind.lease && !back.u.bind.tenant);
    }
}

static dxpu_control node_message(void)
{
    dxpu_control m = { .type = DXPU_CONTROL_NODE };
    m.u.node.node = 7;
    m.u.node.heartbeat_ms = 1000;
    return m;
}

/* A body that ends before the term has none. */
static void test_m144_term(void **state)
{
    uint8_t out[DXPU_CONTROL_HEADER_BYTES + 16];
    dxpu_control m = node_message(), back;
    size_t len;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_control_frame f = { 1, 0, DXPU_CONTROL_NODE, 0, { out + sizeof out - 16, 0 } };
        m.u.node.term = i ? 0x0102030405060708u : 0;
        assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
        assert_int_equal(len, DXPU_CONTROL_HEADER_BYTES + (i ? 16 : 8));
        f.body.len = len - DXPU_CONTROL_HEADER_BYTES;
        assert_int_equal(dxpu_control_decode(&f, &back), DXPU_OK);
        assert_int_equal(back.u.node.term, m.u.node.term);
        f.body.len = 15;
        assert_int_equal(i ? dxpu_control_decode(&f, &back) : DXPU_OK, DXPU_OK);
        assert_int_equal(i ? back.u.node.term : 0, 0);
    }
}

/* The byte behind the term: a body that ends before it has none, of others bit 0 counts. */
static void test_m180_directs(void **state)
{
    uint8_t out[DXPU_CONTROL_HEADER_BYTES + 17];
    dxpu_control_frame f = { 1, 0, DXPU_CONTROL_NODE, 0, { out + DXPU_CONTROL_HEADER_BYTES, 17 } };
    dxpu_control m = node_message(), back;
    size_t len;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        m.u.node.directs = true;
        m.u.node.term = i ? 0x0102030405060708u : 0;
        assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
        assert_int_equal(len, sizeof out);
        assert_int_equal(dxpu_control_decode(&f, &back), DXPU_OK);
        assert_true(back.u.node.directs && back.u.node.term == m.u.node.term);
    }
    out[sizeof out - 1] = 0xfe;
    assert_int_equal(dxpu_control_decode(&f, &back), DXPU_OK);
    assert_false(back.u.node.directs);
    out[sizeof out - 1] = 1;
    f.body.len = 16;
    assert_int_equal(dxpu_control_decode(&f, &back), DXPU_OK);
    assert_false(back.u.node.directs);
}

/* What a host has of a box it dials; unknown where it is another number, or missing. */
static void test_m160_reach(void **state)
{
    uint8_t out[DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control_device d = full_device(3), back;
    dxpu_control_register r;
    (void)state;
    memset(&r, 0, sizeof r);
    for (unsigned reach = 0; reach <= 255; reach++) {
        d.reach = (uint8_t)reach;
        dxpu_control_device_encode(&d, out);
        assert_int_equal(out[107], reach);
        for (unsigned bytes = 104; bytes <= sizeof out; bytes += 4) {
            dxpu_bytes e = { out, bytes };
            r.entry_bytes = (uint16_t)bytes;
            assert_true(dxpu_control_device_next(&r, &e, &back));
            assert_int_equal(back.reach, bytes < 108 || reach > DXPU_CONTROL_REACH_UP
                                             ? DXPU_CONTROL_REACH_UNKNOWN
                                             : reach);
        }
    }
}

/* Where hosts reach a box, and its name: behind the slots, however long those are. */
static void test_m48_register_paths_and_name(void **state)
{
    enum { EACH = 20, SLOTS = 3, NAME = 5, FIELDS = HEADER + 40 };
    static uint8_t bytes[4096], out[4096], text[256];
    (void)state;
    for (unsigned extra = 0; extra <= 8; extra += 8) {
        size_t slots = SLOTS * (DXPU_CONTROL_DEVICE_BYTES + (size_t)extra), len = 0, cut;
        size_t from = FIELDS + slots;
        dxpu_control m, back;
        assert_int_equal(decode(bytes, make_register(bytes, SLOTS, extra), &m), DXPU_OK);
        m.u.reg.entries.ptr = bytes + FIELDS;
        m.u.reg.paths = DXPU_CONTROL_PATHS_MAX;
        for (unsigned i = 0; i < DXPU_CONTROL_PATHS_MAX; i++) {
            m.u.reg.path[i].family = i % 2 ? 4 : 6;
            m.u.reg.path[i].port = (uint16_t)(200 + i);
            m.u.reg.path[i].ip[3] = (uint8_t)(1 + i);
        }
        m.u.reg.name.ptr = (const uint8_t *)"box-7";
        m.u.reg.name.len = NAME;
        assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
        assert_int_equal(len, from + 4 + DXPU_CONTROL_PATHS_MAX * EACH + 1 + NAME);
        fresh();
        assert_int_equal(take(out, len), DXPU_OK);
        assert_int_equal(dxpu_control_decode(&frame, &back), DXPU_OK);
        assert_int_equal(back.u.reg.count, SLOTS);
        assert_int_equal(back.u.reg.paths, DXPU_CONTROL_PATHS_MAX);
        assert_memory_equal(back.u.reg.path, m.u.reg.path, sizeof back.u.reg.path);
        assert_true(text_is(back.u.reg.name, "box-7"));
        for (cut = from; cut < len; cut++)
            assert_int_equal(decode(out, cut, &back), cut < from + 4 ? DXPU_OK : DXPU_E_SHORT);
        for (unsigned n = 0; n < 256; n++) { /* how many paths, with room for eight */
            out[from] = (uint8_t)n;
            if (n > DXPU_CONTROL_PATHS_MAX)
                assert_int_equal(decode(out, len, &back), DXPU_E_RECORD);
        }
        out[from] = DXPU_CONTROL_PATHS_MAX;
        out[from + 4 + EACH] = 5; /* an invalid family */
        assert_int_equal(decode(out, len, &back), DXPU_E_RECORD);
        out[from + 4 + EACH] = 4;
        out[from + 4 + EACH + 3] = 0; /* port 0 */
        assert_int_equal(decode(out, len, &back), DXPU_E_RECORD);
        out[from + 4 + EACH + 3] = 1;
        assert_int_equal(decode(out, len, &back), DXPU_OK); /* it was these */
        out[len - 1] = 0x1b;
        assert_int_equal(decode(out, len, &back), DXPU_E_RECORD); /* M-8 */
        m.u.reg.paths++;
        assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
        m.u.reg.paths = 0;
        memset(text, 'a', sizeof text);
        m.u.reg.name.ptr = text;
        m.u.reg.name.len = sizeof text;
        assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
        m.u.reg.name.len--;
        assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
        assert_int_equal(len, from + 4 + 1 + 255);
    }
}

/* The slots of a register and what is behind them have a body's room together. */
static void test_m48_fills_a_body(void **state)
{
    enum { SLOTS = (DXPU_CONTROL_BODY_MAX - 40) / DXPU_CONTROL_DEVICE_BYTES };
    static uint8_t entries[SLOTS * DXPU_CONTROL_DEVICE_BYTES];
    static uint8_t out[HEADER + DXPU_CONTROL_BODY_MAX + 256], text[256];
    enum { LEFT = DXPU_CONTROL_BODY_MAX - 40 - sizeof entries };
    dxpu_control m;
    size_t len = 0;
    (void)state;
    assert_true(LEFT > 5 && LEFT < sizeof text);
    memset(text, 'a', sizeof text);
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_REGISTER;
    m.u.reg.role = DXPU_CONTROL_ROLE_BOX;
    m.u.reg.total = m.u.reg.count = SLOTS;
    m.u.reg.first = 1;
    m.u.reg.entry_bytes = DXPU_CONTROL_DEVICE_BYTES;
    m.u.reg.instance = m.u.reg.identity[0] = 1;
    m.u.reg.entries.ptr = entries;
    m.u.reg.entries.len = sizeof entries;
    m.u.reg.name.ptr = text;
    m.u.reg.name.len = LEFT - 5 + 1;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_E_ARG);
    m.u.reg.name.len--;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
    assert_int_equal(len, HEADER + DXPU_CONTROL_BODY_MAX);
}

static void test_m49_alarm(void **state)
{
    (void)state;
    assert_int_equal(changed(&examples[ALARM], 17, 0), DXPU_OK);          /* about no slot */
    assert_int_equal(changed(&examples[ALARM], 18, 0), DXPU_E_RECORD);    /* kind */
    assert_int_equal(changed(&examples[ALARM], 18, 255), DXPU_OK);        /* others may come */
    assert_int_equal(changed(&examples[ALARM], 27, 0), DXPU_OK);          /* no lease */
    assert_int_equal(changed(&examples[ALARM], 28, 3), DXPU_E_SHORT);     /* M-7 */
    assert_int_equal(changed(&examples[ALARM], 29, '\n'), DXPU_E_RECORD); /* M-8 */
    for (unsigned i = 1; i < DXPU_CONTROL_ALARM_END; i++)
        assert_string_not_equal(dxpu_control_alarm_name(i), "unknown");
    assert_string_equal(dxpu_control_alarm_name(DXPU_CONTROL_ALARM_END), "unknown");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(dxpu_control_type_name(DXPU_CONTROL_ATTACH), "attach");
    assert_string_equal(dxpu_control_type_name(DXPU_CONTROL_ALARM), "alarm");
    assert_string_equal(dxpu_control_type_name(DXPU_CONTROL_DIRECT), "direct");
    for (unsigned i = 0; i < DXPU_CONTROL_CODE_END; i++) {
        const char *text = dxpu_control_code_text(i);
        assert_string_not_equal(dxpu_control_code_name(i), "unknown");
        assert_true(strlen(text) <= DXPU_CONTROL_TEXT_MAX);
        assert_true(dxpui_ctl_printable((const uint8_t *)text, strlen(text))); /* it is sent */
    }
    assert_string_equal(dxpu_control_code_name(DXPU_CONTROL_CODE_END), "unknown");
    assert_non_null(strstr(dxpu_control_code_text(DXPU_CONTROL_CODE_END), "does not know"));
    for (unsigned i = 0; i < DXPU_CONTROL_SLOT_END; i++)
        assert_string_not_equal(dxpu_control_state_name(i), "unknown");
    for (unsigned i = 1; i <= 4; i++)
        assert_string_not_equal(dxpu_control_role_name(i), "unknown");
    assert_string_equal(dxpu_control_role_name(0), "unknown");
}

/* ---- Hostile streams ---- */

static uint64_t chance = 1;
static unsigned roll(unsigned below)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(chance >> 33) % below;
}

/* What is accepted comes out of encode as it went in, but for what is ignored. */
static void check_accepted(unsigned *accepted)
{
    uint8_t out[ROOM], again[ROOM];
    dxpu_control m, back;
    dxpu_control_frame f = frame;
    size_t len = 0, len2 = 0;
    if (dxpu_control_decode(&frame, &m) != DXPU_OK)
        return;
    ++*accepted;
    assert_int_equal(dxpu_control_encode(&m, out, sizeof out, &len), DXPU_OK);
    assert_true(len <= HEADER + frame.body.len);
    f.body.ptr = out + HEADER;
    f.body.len = len - HEADER;
    f.flags = 0;
    assert_int_equal(dxpu_control_decode(&f, &back), DXPU_OK);
    assert_int_equal(dxpu_control_encode(&back, again, sizeof again, &len2), DXPU_OK);
    assert_int_equal(len, len2);
    assert_memory_equal(out, again, len);
}

static void test_hostile_streams(void **state)
{
    static uint8_t bytes[2048];
    unsigned accepted = 0, ended = 0;
    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        size_t len = round % 8 ? train(bytes) : make_status(bytes, 4, round % 16);
        unsigned changes = roll(6);
        dxpu_bytes in;
        int rc = DXPU_OK;
        for (unsigned i = 0; i < changes; i++)
            bytes[roll((unsigned)len)] = (uint8_t)roll(256);
        len -= roll(8);
        fresh();
        for (size_t at = 0; at < len && (rc == DXPU_OK || rc == DXPU_E_AGAIN);) {
            size_t part = 1 + roll(200);
            in.ptr = bytes + at;
            in.len = part < len - at ? part : len - at;
            at += in.len;
            while ((rc = dxpu_control_take(&stream, &in, &frame)) == DXPU_OK)
                check_accepted(&accepted);
        }
        ended += rc != DXPU_E_AGAIN;
    }
    assert_true(accepted > 20000);
    assert_true(ended > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_m1_examples_decode),
        cmocka_unit_test(test_m1_cut_at_every_byte),
        cmocka_unit_test(test_m2_magic_early),
        cmocka_unit_test(test_m3_version),
        cmocka_unit_test(test_m4_length),
        cmocka_unit_test(test_m5_flags),
        cmocka_unit_test(test_m6_short_and_long),
        cmocka_unit_test(test_m7_text_length),
        cmocka_unit_test(test_m8_characters),
        cmocka_unit_test(test_m9_encode_is_decode_backwards),
        cmocka_unit_test(test_m10_types),
        cmocka_unit_test(test_m11_hello_versions),
        cmocka_unit_test(test_m12_addresses),
        cmocka_unit_test(test_m13_attach_zeros),
        cmocka_unit_test(test_m13_attach_paths),
        cmocka_unit_test(test_m80_keys),
        cmocka_unit_test(test_m14_detach_slot_zero),
        cmocka_unit_test(test_m15_ask_slot_zero),
        cmocka_unit_test(test_m16_status),
        cmocka_unit_test(test_m16_status_ranges),
        cmocka_unit_test(test_m20_slot_bytes),
        cmocka_unit_test(test_m22_screenshot_ranges),
        cmocka_unit_test(test_m24_plug_ranges),
        cmocka_unit_test(test_m23_picture_ranges),
        cmocka_unit_test(test_m23_largest_piece),
        cmocka_unit_test(test_m21_unknown_in_a_slot),
        cmocka_unit_test(test_encode_refuses),
        cmocka_unit_test(test_m40_register),
        cmocka_unit_test(test_m40_register_ranges),
        cmocka_unit_test(test_m41_device_bytes),
        cmocka_unit_test(test_m73_port_offset_may_be_missing),
        cmocka_unit_test(test_m160_reach),
        cmocka_unit_test(test_m174_lease),
        cmocka_unit_test(test_m144_term),
        cmocka_unit_test(test_m180_directs),
        cmocka_unit_test(test_m48_register_paths_and_name),
        cmocka_unit_test(test_m48_fills_a_body),
        cmocka_unit_test(test_m49_alarm),
        cmocka_unit_test(test_m41_unknown_in_a_device),
        cmocka_unit_test(test_m44_ranges),
        cmocka_unit_test(test_m43_bind_zeros),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hostile_streams),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
