/* Proofs of sections 5, 7 and 12: frames, offers, records, the builder, serial numbers. */
#include "proof.h"

/* PROOF frame_decode
   claim    dxpu_frame_peek(), dxpu_frame_decode() and dxpu_frame_check_crc() of any bytes read
            only them and end; a refusal is an error of the peer band; an accepted body and its
            trailer lie within the bytes
   bounds   at most 120 bytes; trailers of 0 to 40 bytes
   stubs    CRC-32: any number, of bytes that are there
   open     longer frames (no loop runs over a body here)
   unwind   10
   control  - if (datagram.len < header || datagram.len - header < trailer_bytes)
            + if (datagram.len - header < trailer_bytes) */
void proof_frame_decode(void)
{
    dxpu_bytes in = any_bytes_alone(120);
    size_t trailer = nondet_size();
    uint8_t kind;
    uint32_t channel;
    dxpu_frame f;
    given(trailer <= 40);
    proof_crc = nondet_u32();
    int peeked = dxpu_frame_peek(in, &kind, &channel);
    int rc = dxpu_frame_decode(in, trailer, &f);
    must(rc <= DXPU_OK && (rc == DXPU_OK || (rc <= -48 && rc >= -79)));
    must(peeked == DXPU_OK || rc == peeked);
    if (rc == DXPU_OK) {
        must(f.kind >= DXPU_KIND_DATA && f.kind < DXPU_KIND_END && f.key_phase <= 3);
        must(f.kind == kind && f.channel == channel);
        must(f.body.ptr + f.body.len + trailer == in.ptr + in.len);
        must(f.body.ptr >= in.ptr + DXPU_FRAME_BASE_BYTES);
    }
    rc = dxpu_frame_check_crc(in);
    must(rc == DXPU_OK || rc == DXPU_E_CRC || (rc == DXPU_E_SHORT && in.len < 4));
}

static bool same_credits(const dxpu_credits *a, const dxpu_credits *b)
{
    unsigned i = nondet_u8();
    return i >= DXPU_CLASSES || (a->header[i] == b->header[i] && a->data[i] == b->data[i]);
}

/* PROOF frame_redecode
   claim    decode(encode(f)) = f for every frame of every kind, in the fields that the kind
            has; the header has the returned length, and what dxpu_frame_seal_crc() closes,
            check_crc() passes
   bounds   a body of at most 16 bytes, the CRC suite's trailer
   stubs    CRC-32: any number, the same for the same range of bytes, and others for others
   open     the CRC itself: proof crc
   unwind   10
   control  - out->seen = dxpu_get_be64(p + DXPU_FRAME_SEEN);
            + out->seen = dxpu_get_be64(p + DXPU_FRAME_SACK); */
void proof_frame_redecode(void)
{
    uint8_t out[DXPU_FRAME_FULL_BYTES + 16 + 4];
    dxpu_frame f, again;
    size_t body = nondet_size(), header;
    given(f.kind >= DXPU_KIND_DATA && f.kind < DXPU_KIND_END && f.key_phase <= 3 && body <= 16);
    proof_crc = nondet_u32();
    header = dxpu_frame_encode_header(&f, body, DXPU_FRAME_CRC_BYTES, out);
    dxpu_frame_seal_crc(out, header + body);
    dxpu_bytes in = dxpui_view(out, header + body + DXPU_FRAME_CRC_BYTES);
    must(dxpu_frame_check_crc(in) == DXPU_OK);
    must(dxpu_frame_decode(in, DXPU_FRAME_CRC_BYTES, &again) == DXPU_OK);
    must(again.kind == f.kind && again.key_phase == f.key_phase && again.path == f.path);
    must(again.channel == f.channel && again.packet == f.packet);
    must(again.body.ptr == out + header && again.body.len == body);
    if (f.kind > DXPU_KIND_BLOCKED)
        return;
    must(again.sequence == f.sequence && again.ack == f.ack && again.sack == f.sack);
    must(again.seen == f.seen && again.delay_ns == f.delay_ns && again.ecn_ce == f.ecn_ce);
    must(same_credits(&again.limits, &f.limits));
}

/* PROOF frame_reencode
   claim    encode(decode(b)) = b for the header of every b that decode accepts, but for the
            four ignorable flag bits, which go out as 0
   bounds   at most 120 bytes
   stubs    none
   open     nothing
   unwind   10
   control  - if (p[DXPU_FRAME_FLAGS] & 0x30)
            + if (p[DXPU_FRAME_FLAGS] & 0x10) */
void proof_frame_reencode(void)
{
    uint8_t bytes[120], out[DXPU_FRAME_FULL_BYTES];
    dxpu_bytes in = dxpui_view(bytes, nondet_size());
    dxpu_frame f;
    size_t i = nondet_size();
    given(in.len <= sizeof bytes);
    if (dxpu_frame_decode(in, 4, &f) != DXPU_OK)
        return;
    size_t header = dxpu_frame_encode_header(&f, f.body.len, 4, out);
    must(header == (size_t)(f.body.ptr - bytes));
    must(i >= header || out[i] == (i == DXPU_FRAME_FLAGS ? bytes[i] & 0xf0 : bytes[i]));
}

/* The ranges of W-21 to W-26 and W-28, as spec/wire.md has them. */
static bool offer_within(const dxpu_offer *o)
{
    static const uint32_t largest[DXPU_CLASSES] = { 256, 8, 256 };
    bool within = o->channel && o->version_min >= 1 && o->version_min <= o->version_max &&
                  o->suites && (o->tlp_formats & 1) && o->window_frames && o->hold_ms && o->epoch &&
                  o->frame_limit_bytes >= 1232 && o->frame_limit_bytes <= 65507;
    for (unsigned i = 0; i < DXPU_CLASSES; i++)
        if (i != DXPU_COMPLETION || !o->completions_infinite)
            within = within && o->limits.header[i] >= 1 && o->limits.header[i] < 1u << 30 &&
                     o->limits.data[i] >= largest[i] && o->limits.data[i] < 1u << 30;
    return within;
}

/* PROOF offer_decode
   claim    dxpu_offer_decode() of any bytes reads only them; what it accepts is within the
            ranges of W-21 to W-26 and W-28, in every field, class and bound; encode() of it
            gives the same bytes, but for ignorable and reserved ones
   bounds   at most 80 bytes
   stubs    none
   open     the arithmetic of the channel on what was accepted
   unwind   80
   control  - if (body.len < DXPU_OFFER_BYTES)
            + if (body.len < DXPU_OFFER_BYTES - 1) */
void proof_offer_decode(void)
{
    dxpu_bytes in = any_bytes_alone(80);
    uint8_t out[DXPU_OFFER_BYTES];
    dxpu_offer o;
    size_t i = nondet_size();
    int rc = dxpu_offer_decode(in, &o);
    must(rc == DXPU_OK || rc == DXPU_E_SHORT || rc == DXPU_E_RSVD || rc == DXPU_E_OFFER);
    if (rc != DXPU_OK)
        return;
    must(offer_within(&o));
    dxpu_offer_encode(&o, out);
    must(i >= sizeof out || i == 12 || i == 13 || out[i] == in.ptr[i]);
    must(out[12] == (in.ptr[12] & 0x80) && out[13] == 0);
}

/* PROOF offer_redecode
   claim    decode(encode(o)) = o for every offer within the ranges of W-21 to W-26 and W-28
   bounds   none
   stubs    none
   open     nothing
   unwind   80
   control  - dxpu_put_be32(out + DXPUI_OFFER_SEQUENCE, o->sequence);
            + dxpu_put_be16(out + DXPUI_OFFER_SEQUENCE, (uint16_t)o->sequence); */
void proof_offer_redecode(void)
{
    uint8_t out[DXPU_OFFER_BYTES];
    dxpu_offer o, a;
    o.completions_infinite = (nondet_u8() & 1) != 0;
    given(offer_within(&o));
    dxpu_offer_encode(&o, out);
    must(dxpu_offer_decode(dxpui_view(out, sizeof out), &a) == DXPU_OK);
    must(a.channel == o.channel && a.version_min == o.version_min);
    must(a.version_max == o.version_max && a.suites == o.suites);
    must(a.tlp_formats == o.tlp_formats && a.window_frames == o.window_frames);
    must(a.frame_limit_bytes == o.frame_limit_bytes && a.hold_ms == o.hold_ms);
    must(a.sequence == o.sequence && a.completions_infinite == o.completions_infinite);
    must(same_credits(&a.limits, &o.limits) && a.epoch == o.epoch);
    must(a.source.node == o.source.node && a.source.slot == o.source.slot);
    must(a.source.function == o.source.function && a.destination.node == o.destination.node);
    must(a.destination.slot == o.destination.slot);
    must(a.destination.function == o.destination.function);
}

/* PROOF record_next
   claim    dxpu_record_next() of any bytes reads only them and ends; each record takes
            something off the body, so that a loop over it ends too; what it shows lies within
            the bytes, and its class, prefixes, header and data are within their ranges
   bounds   at most 48 bytes, the first record not one to skip
   stubs    none
   open     longer bodies; records to skip: proof record_skip; a read before the bytes, unless
            there are 48
   unwind   2
   control  - if (inner.len > body->len - DXPUI_RECORD_HEADER || (body->ptr[1] & 0xf0))
            + if (inner.len > body->len || (body->ptr[1] & 0xf0)) */
void proof_record_next(void)
{
    dxpu_bytes in = any_bytes(48), left = in;
    dxpu_record r;
    given(in.len == 0 || !(in.ptr[0] & 0x80));
    int rc = dxpu_record_next(&left, &r);
    must(rc == DXPU_OK || rc == DXPU_E_NONE || rc == DXPU_E_RECORD);
    must(left.len <= in.len && left.ptr + left.len == in.ptr + in.len);
    if (rc != DXPU_OK)
        return;
    must(left.len + 4 <= in.len);
    must(r.bytes.len == 0 || (r.bytes.ptr >= in.ptr && r.bytes.ptr + r.bytes.len <= left.ptr));
    must(r.type == DXPU_RECORD_TLP || r.type == DXPU_RECORD_PAYLOAD || r.type == DXPU_RECORD_EVENT);
    if (r.type == DXPU_RECORD_TLP) {
        must(r.cls < DXPU_CLASSES && r.prefix_dw <= 4 && (r.header_dw == 3 || r.header_dw == 4));
        must(r.bytes.len == 4u * (r.prefix_dw + r.header_dw) && r.data_bytes <= 4100);
    }
    must(r.type != DXPU_RECORD_EVENT || r.event.type < DXPU_EVENT_END);
}

/* PROOF record_skip
   claim    dxpu_record_next() skips any records that may be ignored, reads only the bytes, and
            ends
   bounds   at most 12 bytes, up to 3 records
   stubs    none
   open     longer bodies; a read before the bytes, unless there are 12
   unwind   5
   control  - body->len -= DXPUI_RECORD_HEADER + inner.len;
            + body->len -= inner.len; */
void proof_record_skip(void)
{
    dxpu_bytes in = any_bytes(12), left = in;
    dxpu_record r;
    if (dxpu_record_next(&left, &r) == DXPU_OK)
        must(left.len + 4 <= in.len);
    must(left.len <= in.len && left.ptr + left.len == in.ptr + in.len);
}

/* PROOF event_redecode
   claim    dxpu_record_next() of what dxpui_builder_event() wrote is the event, for every type;
            an event is written whole or not at all
   bounds   a frame of at most 32 bytes
   stubs    none
   open     fields that the type does not have
   unwind   14
   flags    --unwindset dxpui_record_next.0:2
   control  - dxpu_put_be64(p + 8, e->length);
            + dxpu_put_be64(p + 8, e->base); */
void proof_event_redecode(void)
{
    size_t cap = nondet_size();
    uint8_t room[32], *out;
    dxpui_builder b;
    dxpu_event e;
    dxpu_record r;
    given(cap <= sizeof room);
    out = room + (sizeof room - cap);
    given(e.type >= 1 && e.type < DXPU_EVENT_END);
    b.out = out;
    b.cap = cap;
    b.used = 0;
    int rc = dxpui_builder_event(&b, &e);
    must((rc == DXPU_OK) == (b.used != 0) && b.used <= cap);
    if (rc != DXPU_OK)
        return;
    dxpu_bytes body = dxpui_view(out, b.used);
    must(dxpu_record_next(&body, &r) == DXPU_OK && r.type == DXPU_RECORD_EVENT && body.len == 0);
    unsigned bytes = dxpui_event_bytes[e.type - 1];
    bool link = e.type == DXPU_EVENT_LINK;
    must(r.event.type == e.type && r.event.flags == e.flags);
    must(!link || (r.event.speed == e.speed && r.event.width == e.width));
    must(bytes != 4 || link || r.event.value == e.value);
    must(bytes != 16 || (r.event.base == e.base && r.event.length == e.length));
}

/* PROOF serial
   claim    serial numbers: a is before b exactly when b - a is 1 .. 2^31 - 1 modulo 2^32;
            before and after are opposites but at 2^31; one within a window of 2^30 stays in
            order when both move on; later() never wraps
   bounds   none: all numbers
   stubs    none
   open     nothing
   unwind   2
   control  - memcpy(&order, &distance, sizeof order);
            + order = a < b ? -1 : a > b; */
void proof_serial(void)
{
    uint32_t a = nondet_u32(), b = nondet_u32(), on = nondet_u32();
    uint64_t t = nondet_u64(), wait = nondet_u64();
    bool before = b - a >= 1 && b - a <= 0x7fffffffu;
    must((dxpui_seq_cmp(a, b) == 0) == (a == b));
    must(!before || (dxpui_seq_cmp(a, b) < 0 && dxpui_seq_cmp(b, a) > 0));
    must(before || a == b || b - a == 0x80000000u || dxpui_seq_cmp(a, b) > 0);
    must(!before || dxpui_seq_cmp(a + on, b + on) < 0);
    must(dxpui_later(t, wait) >= t && dxpui_later(t, wait) >= wait);
    must(dxpui_later(t, wait) == DXPU_NEVER || dxpui_later(t, wait) - t == wait);
}
