/* One channel against a peer made by hand: every field of every frame is the test's choice.
   Included by suites of section 13 after the implementation and cmocka. */
#ifndef CHANNEL_RIG_H
#define CHANNEL_RIG_H

#include <stdlib.h>

#include "cursor.h"

enum { RIG_ID = 0x1000, RIG_PEER_ID = 0x2000, RIG_SEQ = 100, RIG_PEER_SEQ = 5000 };
enum { RIG_US = 1000, RIG_MS = 1000000 };
#define RIG_START_NS 1000000000u

typedef struct rig {
    dxpu_channel ch;
    dxpu_channel_config cfg;
    dxpu_tags tags;
    dxpu_tag_entry entries[64];
    void *mem;
    uint64_t now_ns;
    /* the peer: what its next frame says */
    dxpu_offer offer;
    dxpu_frame say;
    /* the channel's last frame */
    uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES], path;
    int n;
    dxpu_frame f;
    uint8_t probe[DXPU_PROBE_BYTES]; /* the reply to its last probe, if it waits for one */
    bool probed;
} rig;

static inline void rig_config(rig *r)
{
    static const uint16_t headers[DXPU_CLASSES] = { 64, 64, 256 };
    static const uint16_t units[DXPU_CLASSES] = { 1024, 64, 1024 };
    memset(r, 0, sizeof *r);
    dxpu_channel_config_default(&r->cfg);
    r->cfg.window_frames = 64; /* the tests count on these; the defaults are for users */
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        r->cfg.rx.header[i] = r->cfg.tx.header[i] = headers[i];
        r->cfg.rx.data[i] = r->cfg.tx.data[i] = units[i];
    }
    r->cfg.local_id = RIG_ID;
    r->cfg.sequence = RIG_SEQ;
    r->cfg.epoch = 7;
    r->cfg.lossless = true; /* tests of congestion control say otherwise */
    r->now_ns = RIG_START_NS;
    r->offer.channel = RIG_PEER_ID;
    r->offer.version_min = r->offer.version_max = DXPU_WIRE_VERSION;
    r->offer.suites = DXPU_SUITE_CRC;
    r->offer.tlp_formats = 1;
    r->offer.window_frames = 64;
    r->offer.frame_limit_bytes = 1452;
    r->offer.hold_ms = 1000;
    r->offer.sequence = RIG_PEER_SEQ;
    r->offer.epoch = 7;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        r->offer.limits.header[i] = 64;
        r->offer.limits.data[i] = 1024;
    }
    r->say.channel = RIG_ID;
    r->say.sequence = RIG_PEER_SEQ;
    r->say.ack = RIG_SEQ;
}

static inline void rig_tags(rig *r)
{
    assert_int_equal(dxpu_tags_init(&r->tags, r->entries, 64, DXPU_BDF(0, 0, 0), 0, DXPU_NEVER),
                     DXPU_OK);
    r->cfg.tags = &r->tags;
}

static inline void rig_init(rig *r)
{
    size_t need = dxpu_channel_bytes(&r->cfg);
    assert_true(need > 0);
    r->mem = malloc(need);
    assert_non_null(r->mem);
    assert_int_equal(dxpu_channel_init(&r->ch, &r->cfg, r->mem, need), DXPU_OK);
    r->say.limits = r->offer.limits;
}

static inline void rig_free(rig *r)
{
    free(r->mem);
}

/* The next frame of the channel into r->f; its bytes, 0 or an error. */
static inline int rig_emit(rig *r)
{
    dxpu_bytes d;
    memset(&r->f, 0, sizeof r->f);
    r->n = dxpu_channel_emit(&r->ch, r->now_ns, r->out, sizeof r->out, &r->path);
    if (r->n > 0) {
        d.ptr = r->out;
        d.len = (size_t)r->n;
        assert_int_equal(dxpu_frame_decode(d, r->ch.link.trailer, &r->f), DXPU_OK);
        if (!r->cfg.suite)
            assert_int_equal(dxpu_frame_check_crc(d), DXPU_OK);
        if (r->f.kind == DXPU_KIND_PROBE && r->f.body.ptr[0] == 0) {
            memcpy(r->probe, r->f.body.ptr, sizeof r->probe);
            r->probe[0] = DXPU_PROBE_REPLY;
            r->probed = true;
        }
    }
    return r->n;
}

/* Emit until nothing is due; counts the frames, with their kinds as bits. */
static inline unsigned rig_drain(rig *r, unsigned *kinds)
{
    unsigned frames = 0;
    *kinds = 0;
    while (rig_emit(r) > 0) {
        *kinds |= 1u << r->f.kind;
        assert_true(++frames < 10000);
    }
    return frames;
}

static inline size_t rig_seal(const dxpu_frame *f, const void *body, size_t bytes, uint8_t *out)
{
    size_t head = dxpu_frame_encode_header(f, bytes, DXPU_FRAME_CRC_BYTES, out);
    if (bytes)
        memcpy(out + head, body, bytes);
    dxpu_frame_seal_crc(out, head + bytes);
    return head + bytes + DXPU_FRAME_CRC_BYTES;
}

/* One frame of the peer: r->say with this kind and body, under the next packet number. */
static inline int rig_put(rig *r, uint8_t kind, const void *body, size_t bytes)
{
    uint8_t pkt[DXPU_FRAME_MAX_LIMIT_BYTES];
    r->say.kind = kind;
    size_t n = rig_seal(&r->say, body, bytes, pkt);
    r->say.packet++;
    return dxpu_channel_ingest(&r->ch, r->now_ns, pkt, n, 0);
}

/* Answer its last probe, if there was one. */
static inline void rig_answer(rig *r)
{
    if (r->probed)
        assert_int_equal(rig_put(r, DXPU_KIND_PROBE, r->probe, sizeof r->probe), DXPU_OK);
    r->probed = false;
}

static inline int rig_put_offer(rig *r, uint8_t kind)
{
    uint8_t body[DXPU_OFFER_BYTES];
    dxpu_offer_encode(&r->offer, body);
    uint32_t channel = r->say.channel;
    r->say.channel = kind == DXPU_KIND_OPEN ? 0 : channel;
    int rc = rig_put(r, kind, body, sizeof body);
    r->say.channel = channel;
    return rc;
}

/* A data frame of the peer with the sequence in r->say, which then rises. */
static inline int rig_put_data(rig *r, const dxpui_builder *b)
{
    int rc = rig_put(r, DXPU_KIND_DATA, b->out, b->used);
    r->say.sequence++;
    return rc;
}

static inline int rig_put_ack(rig *r, uint32_t ack)
{
    r->say.ack = ack;
    return rig_put(r, DXPU_KIND_ACK, NULL, 0);
}

static inline void rig_opening(rig *r)
{
    rig_init(r);
    assert_int_equal(dxpu_channel_open(&r->ch, r->now_ns), DXPU_OK);
    assert_true(rig_emit(r) > 0);
    assert_int_equal(r->f.kind, DXPU_KIND_OPEN);
    assert_int_equal(rig_emit(r), 0);
}

static inline void rig_up(rig *r)
{
    unsigned kinds;
    rig_opening(r);
    assert_int_equal(rig_put_offer(r, DXPU_KIND_ACCEPT), DXPU_OK);
    assert_int_equal(dxpu_channel_status(&r->ch).state, DXPU_STATE_UP);
    unsigned frames = rig_drain(r, &kinds); /* an ack (D-42), and a probe of each other path */
    assert_int_equal(frames, r->cfg.paths);
    assert_int_equal(kinds & ~(1u << DXPU_KIND_PROBE), 1u << DXPU_KIND_ACK);
    assert_int_equal(kinds >> DXPU_KIND_PROBE, r->cfg.paths > 1);
}

static inline int rig_accept_open(rig *r)
{
    uint8_t body[DXPU_OFFER_BYTES], pkt[256];
    dxpu_frame f = r->say;
    f.kind = DXPU_KIND_OPEN;
    f.channel = 0;
    dxpu_offer_encode(&r->offer, body);
    size_t n = rig_seal(&f, body, sizeof body, pkt);
    r->say.packet++;
    return dxpu_channel_accept(&r->ch, r->now_ns, pkt, n);
}

static inline void rig_accepted(rig *r)
{
    rig_init(r);
    assert_int_equal(rig_accept_open(r), DXPU_OK);
    assert_true(rig_emit(r) > 0);
    assert_int_equal(r->f.kind, DXPU_KIND_ACCEPT);
    assert_int_equal(rig_emit(r), 0);
}

/* -- TLPs; the view is good until the next one -- */

static inline dxpu_bytes rig_encode(dxpu_tlp *t)
{
    static uint8_t bytes[4][DXPU_TLP_MAX_BYTES];
    static uint8_t payload[4096];
    static unsigned at;
    dxpu_bytes v;
    uint8_t *to = bytes[at++ & 3];
    for (unsigned i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 7 + at);
    if (t->payload.len)
        t->payload.ptr = payload;
    assert_int_equal(dxpu_tlp_encode(t, to, DXPU_TLP_MAX_BYTES, &v.len), DXPU_OK);
    v.ptr = to;
    return v;
}

static inline dxpu_bytes rig_mwr(uint16_t requester, uint32_t bytes, uint8_t attr)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.requester = requester;
    t.attr = attr;
    t.length_dw = (uint16_t)(bytes / 4);
    t.first_be = 0xf;
    t.last_be = bytes > 4 ? 0xf : 0;
    t.address = 0x10000;
    t.payload.len = bytes;
    return rig_encode(&t);
}

static inline dxpu_bytes rig_np(uint8_t type, uint16_t requester, uint16_t tag, uint32_t bytes,
                                uint8_t attr)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.requester = requester;
    t.tag = tag;
    t.attr = attr;
    t.length_dw = (uint16_t)(bytes / 4);
    if (type == DXPU_TLP_MRD) {
        t.first_be = 0xf;
        t.last_be = bytes > 4 ? 0xf : 0;
        t.address = 0x20000;
    } else if (type == DXPU_TLP_SWAP) {
        t.address = 0x20000;
        t.payload.len = bytes;
    } else { /* configuration write of one dword */
        t.first_be = 0xf;
        t.target = DXPU_BDF(3, 0, 0);
        t.register_bytes = 0x10;
        t.payload.len = 4;
        t.length_dw = 1;
    }
    return rig_encode(&t);
}

static inline dxpu_bytes rig_mrd(uint16_t tag, uint32_t bytes)
{
    return rig_np(DXPU_TLP_MRD, DXPU_BDF(0, 0, 0), tag, bytes, 0);
}

/* `bytes` of a read completion, `left` still to come with it; 0 bytes: one without data. */
static inline dxpu_bytes rig_cpl(uint16_t tag, uint32_t bytes, uint32_t left, uint8_t attr)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = bytes ? DXPU_TLP_CPLD : DXPU_TLP_CPL;
    t.header_dw = 3;
    t.completer = DXPU_BDF(3, 0, 0);
    t.requester = DXPU_BDF(0, 0, 0);
    t.tag = tag;
    t.attr = attr;
    t.length_dw = (uint16_t)(bytes / 4);
    t.byte_count = (uint16_t)(bytes ? left : 4);
    t.payload.len = bytes;
    return rig_encode(&t);
}

static inline int rig_submit(rig *r, dxpu_bytes tlp)
{
    return dxpu_channel_submit(&r->ch, tlp, r->now_ns, 0);
}

/* -- bodies -- */

typedef struct rig_body {
    uint8_t bytes[DXPU_FRAME_MAX_LIMIT_BYTES];
    dxpui_builder b;
} rig_body;

static inline void rig_begin(rig_body *body)
{
    builder_start(&body->b, body->bytes, 1452 - DXPU_FRAME_FULL_BYTES - DXPU_FRAME_CRC_BYTES);
}

static inline void rig_add(rig_body *body, dxpu_bytes tlp)
{
    cursor c = { 0 }; /* gcc does not see that an assertion ends it */
    assert_int_equal(cursor_start(&c, tlp), DXPU_OK);
    assert_int_equal(cursor_place(&body->b, &c), DXPU_OK);
}

static inline void rig_add_event(rig_body *body, uint8_t type, uint32_t value)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = type;
    e.value = value;
    assert_int_equal(dxpui_builder_event(&body->b, &e), DXPU_OK);
}

/* A data frame with one TLP. */
static inline int rig_put_tlp(rig *r, dxpu_bytes tlp)
{
    rig_body body;
    rig_begin(&body);
    rig_add(&body, tlp);
    return rig_put_data(r, &body.b);
}

static inline int rig_put_events(rig *r, unsigned n, uint32_t first)
{
    rig_body body;
    rig_begin(&body);
    for (unsigned i = 0; i < n; i++)
        rig_add_event(&body, DXPU_EVENT_POWER_LIMIT, first + i);
    return rig_put_data(r, &body.b);
}

static inline bool rig_has(rig *r, unsigned cls)
{
    return dxpu_channel_peek(&r->ch, cls).tlp.len != 0;
}

#endif
