/* Fuzz target: any bytes through the decoders of frames, offers and records; and a channel against
   a peer, a clock and a caller that the input makes up, frame by frame, with CRCs made right.
   What is decoded encodes to the same bytes.  The channel asserts nothing, never spins, never
   sleeps with work to do, repeats a data frame byte for byte, keeps its limits and delivers only
   whole TLPs.  It takes no frame beyond its window nor an acknowledgement of what was not sent, and
   stores no more TLPs than it granted.
   libFuzzer: -max_len=1500 */
#include <stdlib.h>
#define DXPU_ASSERT(x) ((x) ? (void)0 : abort())
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#include "cursor.h"
#include "mutate.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- decoders ---- */

static void fuzz_records(dxpu_bytes body)
{
    dxpu_record r;
    while (dxpu_record_next(&body, &r) == DXPU_OK) {
        uint8_t bytes[64];
        dxpui_builder b;
        must(r.type >= DXPU_RECORD_TLP && r.type <= DXPU_RECORD_EVENT);
        if (r.type != DXPU_RECORD_EVENT || r.event.type == 0)
            continue;
        builder_start(&b, bytes, sizeof bytes);
        must(dxpui_builder_event(&b, &r.event) == DXPU_OK);
        dxpu_bytes again = { bytes, b.used };
        dxpu_record second;
        must(dxpu_record_next(&again, &second) == DXPU_OK && again.len == 0);
        must(memcmp(&r.event, &second.event, sizeof r.event) == 0);
    }
}

static void fuzz_decoders(input *in)
{
    uint8_t head[DXPU_FRAME_FULL_BYTES], offer[DXPU_OFFER_BYTES];
    size_t trailer = next(in) % (DXPU_FRAME_TAG_MAX_BYTES + 1);
    dxpu_bytes all = { in->at, in->left };
    dxpu_frame f;
    dxpu_offer o;
    dxpu_frame_check_crc(all);
    fuzz_records(all);
    if (dxpu_offer_decode(all, &o) == DXPU_OK) {
        dxpu_offer_encode(&o, offer);
        must(memcmp(offer, all.ptr, 12) == 0 && memcmp(offer + 14, all.ptr + 14, 58) == 0);
        must(offer[12] == (all.ptr[12] & 0x80));
    }
    if (dxpu_frame_decode(all, trailer, &f) != DXPU_OK)
        return;
    size_t n = dxpu_frame_encode_header(&f, f.body.len, trailer, head);
    must(n + f.body.len + trailer == all.len && f.body.ptr == all.ptr + n);
    must(memcmp(head, all.ptr, 6) == 0 && memcmp(head + 7, all.ptr + 7, n - 7) == 0);
    must(head[6] == (all.ptr[6] & 0xc0));
    fuzz_records(f.body);
}

/* ---- a channel and all around it ---- */

enum { WINDOW = 8, LIMIT = 1232, TAGS = 16, PEER_ID = 77, OUR_ID = 55 };

typedef struct world {
    input in;
    dxpu_channel ch;
    dxpu_tags tags;
    dxpu_tag_entry entries[TAGS];
    uint64_t now_ns;
    uint64_t packet;    /* the peer's next */
    uint32_t sequence;  /* the peer's next */
    uint32_t seen_next; /* one past the largest sequence we have seen leave */
    uint32_t acked;     /* by the peer */
    uint32_t body_crc[WINDOW], body_seq[WINDOW];
    dxpu_credits limits;
    bool data_seen;
    uint8_t pkt[LIMIT + 64];
} world;

static void look_at_data(world *w, const dxpu_frame *f)
{
    uint32_t slot = f->sequence % WINDOW, crc = dxpu_crc32(0, f->body.ptr, f->body.len);
    must(f->body.len > 0);
    if (dxpui_seq_cmp(f->sequence, w->seen_next) < 0) { /* D-16 */
        must(w->body_seq[slot] == f->sequence && w->body_crc[slot] == crc);
    } else {
        must(f->sequence == w->seen_next);
        w->seen_next++;
    }
    w->body_seq[slot] = f->sequence;
    w->body_crc[slot] = crc;
    must(w->seen_next - w->acked <= WINDOW); /* D-51 */
}

static void emit_all(world *w)
{
    uint8_t out[LIMIT], path;
    dxpu_frame f;
    int n;
    for (unsigned frames = 0;; frames++) {
        must(frames < 4 * WINDOW + 64);
        n = dxpu_channel_emit(&w->ch, w->now_ns, out, sizeof out, &path);
        if (n <= 0)
            break;
        dxpu_bytes d = { out, (size_t)n };
        must(n <= LIMIT && dxpu_frame_decode(d, DXPU_FRAME_CRC_BYTES, &f) == DXPU_OK);
        must(dxpu_frame_check_crc(d) == DXPU_OK);
        if (f.kind == DXPU_KIND_DATA)
            look_at_data(w, &f);
    }
    must(n == 0 || n == dxpu_channel_status(&w->ch).error);
    must(dxpu_channel_next_ns(&w->ch) > w->now_ns); /* no work left, no spinning */
    unsigned state = dxpu_channel_status(&w->ch).state;
    if (state != DXPU_STATE_IDLE && state != DXPU_STATE_CLOSED && state != DXPU_STATE_FAILED)
        must(dxpu_channel_next_ns(&w->ch) <= w->now_ns + w->ch.cfg.hold_ms * 1000000ull);
}

/* D-6, D-9: the frame's numbers, when it is one that has them. */
static void check_numbers(world *w, const dxpu_frame *f, uint32_t expected, int rc)
{
    uint32_t ahead = f->sequence - expected, behind = w->seen_next - f->ack;
    bool data = f->kind == DXPU_KIND_DATA, late = ahead > INT32_MAX;
    if (!data && f->kind != DXPU_KIND_ACK && f->kind != DXPU_KIND_BLOCKED)
        return;
    must(rc != DXPU_OK || behind <= INT32_MAX);
    must(rc != DXPU_OK || !data || late || ahead < WINDOW);
    must(rc != DXPU_E_WINDOW || (data && !late && ahead >= WINDOW));
    if (rc == DXPU_OK && f->ack - w->acked <= w->seen_next - w->acked)
        w->acked = f->ack;
}

/* F-5: what waits for the consumer was granted; and no more is under way than left. */
static void check_stores(const world *w)
{
    dxpu_path_info p;
    for (unsigned i = 0; i < DXPU_CLASSES; i++)
        must(w->ch.rx.queue[i].count <= w->ch.cfg.rx.header[i] &&
             w->ch.rx.queue[i].data_used <= w->ch.cfg.rx.data[i]);
    must(dxpu_channel_path(&w->ch, 0, &p) == DXPU_OK);
    must(p.in_flight_bytes <= WINDOW * LIMIT && w->ch.flight.next - w->ch.flight.una <= WINDOW);
}

static void put(world *w, dxpu_frame *f, const uint8_t *body, size_t bytes)
{
    uint32_t expected = w->ch.rx.next;
    unsigned state = dxpu_channel_status(&w->ch).state;
    f->packet = w->packet++;
    size_t head = dxpu_frame_encode_header(f, bytes, DXPU_FRAME_CRC_BYTES, w->pkt);
    if (bytes)
        memcpy(w->pkt + head, body, bytes);
    dxpu_frame_seal_crc(w->pkt, head + bytes);
    /* A frame that was never sent is not walked to: 2^31 steps. */
    must(w->seen_next - f->ack <= INT32_MAX || !dxpui_ack_valid(&w->ch.flight, f));
    int rc = dxpu_channel_ingest(&w->ch, w->now_ns, w->pkt, head + bytes + DXPU_FRAME_CRC_BYTES,
                                 next(&w->in) & 1);
    if (state != DXPU_STATE_OPENING) /* in which nothing is expected yet */
        check_numbers(w, f, expected, rc);
    check_stores(w);
}

static void header(world *w, dxpu_frame *f, uint8_t kind)
{
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->channel = kind == DXPU_KIND_OPEN ? 0 : OUR_ID;
    f->sequence = w->sequence;
    f->ack = w->acked;
    f->limits = w->limits;
}

static void put_far_ack(world *w)
{
    dxpu_frame f;
    uint32_t far = 0;
    for (unsigned i = 0; i < 4; i++)
        far = far << 8 | next(&w->in);
    header(w, &f, DXPU_KIND_ACK);
    f.ack = w->seen_next + far;
    f.sack = next(&w->in);
    put(w, &f, NULL, 0);
}

/* The peer acknowledges up to `some` frames more, and by sack what the next byte says. */
static void acknowledge(world *w, dxpu_frame *f, uint8_t some)
{
    uint32_t open = w->seen_next - w->acked;
    f->ack = w->acked + (open ? some % (open + 1) : 0);
    open = w->seen_next - f->ack;
    if (open > 1)
        f->sack = next(&w->in) & (((uint64_t)1 << (open - 1)) - 1);
    f->seen = w->ch.link.packet - 1;
}

static void put_any(world *w)
{
    uint8_t body[1100];
    dxpu_frame f;
    header(w, &f, (uint8_t)(next(&w->in) % 10));
    f.sequence += (uint32_t)(next(&w->in) % 16) - 4u;
    uint8_t how = next(&w->in);
    if (how & 1)
        acknowledge(w, &f, how >> 4);
    if (how & 2)
        f.ack += (uint32_t)next(&w->in) - 128u;
    if (how & 4)
        f.sack = (uint64_t)next(&w->in) << (how >> 3 & 31) << (how >> 4);
    if (how & 8)
        f.limits.header[next(&w->in) % 3] += (uint32_t)next(&w->in) << 24;
    size_t n = next(&w->in) * (size_t)4;
    if (n > w->in.left)
        n = w->in.left;
    for (size_t i = 0; i < n; i++)
        body[i] = next(&w->in);
    put(w, &f, body, n);
}

/* TLPs that measure; the tag and the length come from the input. */
static dxpu_bytes some_tlp(world *w, uint8_t *tlp)
{
    static const uint8_t heads[8][2] = { { 0x40, 3 }, { 0x60, 4 }, { 0x00, 3 }, { 0x44, 3 },
                                         { 0x4a, 3 }, { 0x0a, 3 }, { 0x34, 4 }, { 0x4e, 3 } };
    uint8_t pick = next(&w->in), shape = next(&w->in);
    const uint8_t *h = heads[pick & 7];
    dxpu_tlp_shape s;
    memset(tlp, 0, DXPU_TLP_MAX_BYTES);
    size_t at = 0;
    if (shape & 1) { /* a PASID prefix */
        tlp[0] = 0x91;
        at = 4;
    }
    tlp[at] = h[0];
    tlp[at + 1] = (uint8_t)((shape & 2) << 1);                    /* IDO */
    tlp[at + 2] = (uint8_t)((shape & 4) << 3 | (shape & 8) << 4); /* RO, digest */
    tlp[at + 2] |= (pick & 0x80) && (pick & 7) < 2 ? (uint8_t)(shape >> 6) : 0;
    tlp[at + 3] = (uint8_t)((shape >> 4) + 1);
    tlp[at + 5] = pick >> 3 & 3; /* requester or completer */
    tlp[at + 7] = 0xff;
    if (h[0] == 0x4a || h[0] == 0x0a) {
        uint32_t count = (uint32_t)next(&w->in) * 4u;
        tlp[at + 6] = (uint8_t)(count >> 8 & 0xf);
        tlp[at + 7] = (uint8_t)count;
        tlp[at + 10] = next(&w->in) % TAGS;
        tlp[at + 11] = next(&w->in) & 0x7c;
    } else if (h[0] == 0x00 || h[0] == 0x44 || h[0] == 0x4e) {
        tlp[at + 5] = 0;
        tlp[at + 6] = next(&w->in) % TAGS;
    }
    dxpu_bytes v = { tlp, at + h[1] * 4u };
    must(dxpu_tlp_measure(v, &s) == DXPU_OK);
    v.len = s.total_bytes;
    return v;
}

/* A data frame with TLPs and events, well made but for what the input spoils; a TLP that does not
   fit goes on in the next frame. */
static void put_data(world *w)
{
    uint8_t body[1100], tlp[DXPU_TLP_MAX_BYTES];
    dxpu_frame f;
    dxpui_builder b;
    cursor c;
    uint8_t how = next(&w->in);
    int rc = DXPU_OK;
    builder_start(&b, body, how & 1 ? 200 : sizeof body);
    for (unsigned n = (how >> 1 & 3) + 1u; n; n--) {
        if (how & 8) {
            dxpu_event e;
            memset(&e, 0, sizeof e);
            e.type = (uint8_t)(next(&w->in) % (DXPU_EVENT_END - 1) + 1);
            dxpui_builder_event(&b, &e);
        } else {
            must(cursor_start(&c, some_tlp(w, tlp)) == DXPU_OK);
            c.crc ^= (how & 0xf0) == 0xf0;
            rc = cursor_place(&b, &c);
            if (rc == DXPU_E_MORE)
                break;
        }
    }
    if ((how & 0xe0) == 0xe0 && b.used)
        body[next(&w->in) % b.used] ^= (uint8_t)(1u << (how & 7));
    header(w, &f, DXPU_KIND_DATA);
    acknowledge(w, &f, next(&w->in));
    uint32_t ahead = (how & 0x70) == 0x70 ? next(&w->in) % 32u : 0;
    f.sequence += ahead < 16 ? ahead : ahead - 32; /* before the window, to behind it */
    put(w, &f, body, b.used);
    w->sequence += ahead == 0;
    if (rc == DXPU_E_MORE && !(how & 0x10)) {
        builder_start(&b, body, sizeof body);
        cursor_place(&b, &c);
        f.sequence++;
        put(w, &f, body, b.used);
        w->sequence += ahead == 0;
    }
}

static void consume(world *w, uint8_t how)
{
    dxpu_event e;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        dxpu_tlp_shape s;
        dxpu_delivery d = dxpu_channel_peek(&w->ch, cls);
        bool wanted = (dxpu_channel_wants(&w->ch, w->now_ns) & 2u << cls) != 0;
        must(wanted == (d.tlp.len != 0));
        if (!(how >> cls & 1))
            continue;
        int rc = dxpu_channel_take(&w->ch, cls, w->now_ns);
        must(rc == (d.tlp.len ? DXPU_OK : DXPU_E_NONE));
        if (d.tlp.len) {
            must(dxpu_tlp_measure(d.tlp, &s) == DXPU_OK);
            must(s.total_bytes == d.tlp.len && s.cls == cls && s.local_dw == 0);
        }
    }
    if (how & 8) {
        bool shown = dxpu_channel_peek_event(&w->ch, &e);
        must((dxpu_channel_take_event(&w->ch) != DXPU_E_NONE) == shown);
    }
}

static void submit(world *w)
{
    uint8_t tlp[DXPU_TLP_MAX_BYTES];
    dxpu_bytes v = some_tlp(w, tlp);
    int rc = dxpu_channel_submit(&w->ch, v, w->now_ns, 1);
    must(rc <= DXPU_OK);
    if (w->ch.cfg.tags) /* F-10 */
        must(w->tags.reserve_header <= w->ch.cfg.rx.header[DXPU_COMPLETION] &&
             w->tags.reserve_data <= w->ch.cfg.rx.data[DXPU_COMPLETION]);
}

static void step(world *w)
{
    dxpu_frame f;
    uint8_t op = next(&w->in);
    switch (op & 15) {
    case 0:
    case 1:
        put_data(w);
        break;
    case 2:
        put_any(w);
        break;
    case 3: /* a good acknowledgement with credit */
        header(w, &f, op & 0x80 ? DXPU_KIND_BLOCKED : DXPU_KIND_ACK);
        w->limits.header[op >> 4 & 1]++;
        w->limits.data[op >> 4 & 1] += 64;
        f.limits = w->limits;
        acknowledge(w, &f, next(&w->in));
        put(w, &f, NULL, 0);
        break;
    case 4:
        w->now_ns += (uint64_t)1 << (op >> 4 & 15) << (next(&w->in) & 15);
        break;
    case 5: /* to the next deadline */
        if (dxpu_channel_next_ns(&w->ch) != DXPU_NEVER && dxpu_channel_next_ns(&w->ch) > w->now_ns)
            w->now_ns = dxpu_channel_next_ns(&w->ch);
        break;
    case 6:
    case 7:
        consume(w, op >> 4);
        break;
    case 8:
    case 9:
        submit(w);
        break;
    case 10: {
        dxpu_event e;
        memset(&e, 0, sizeof e);
        e.type = op >> 4;
        dxpu_channel_submit_event(&w->ch, &e);
        break;
    }
    case 11: /* the last frame again */
        dxpu_channel_ingest(&w->ch, w->now_ns, w->pkt, 100, 0);
        break;
    case 12: { /* a raw datagram */
        size_t n = (size_t)(op >> 4) * 8;
        n = n < w->in.left ? n : w->in.left;
        for (size_t i = 0; i < n; i++)
            w->pkt[i] = next(&w->in);
        dxpu_channel_ingest(&w->ch, w->now_ns, w->pkt, n, 0);
        break;
    }
    case 13:
        if (op == 0x1d)
            dxpu_channel_close(&w->ch, 1);
        else if (op == 0x2d)
            dxpu_channel_reset(&w->ch, 1);
        else if (op == 0x3d)
            put_far_ack(w);
        break;
    default:
        emit_all(w);
        break;
    }
}

static void offer_of(uint8_t how, dxpu_offer *o)
{
    memset(o, 0, sizeof *o);
    o->channel = PEER_ID;
    o->version_min = o->version_max = DXPU_WIRE_VERSION;
    o->suites = DXPU_SUITE_CRC;
    o->tlp_formats = 1;
    o->window_frames = how & 0x20 ? 1 : 64;
    o->frame_limit_bytes = LIMIT;
    o->hold_ms = 100;
    o->sequence = 0xfffffffc;
    o->completions_infinite = (how & 0x40) != 0;
    o->epoch = 7;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        o->limits.header[i] = 2;
        o->limits.data[i] = 256;
    }
}

static void fuzz_channel(input *in, uint8_t how)
{
    static world w;
    dxpu_channel_config cfg;
    dxpu_offer o;
    dxpu_frame f;
    uint8_t body[DXPU_OFFER_BYTES];
    memset(&w, 0, sizeof w);
    w.in = *in;
    w.now_ns = 1000000000;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = OUR_ID;
    cfg.sequence = w.acked = w.seen_next = 0xfffffff8;
    cfg.epoch = 7;
    cfg.window_frames = WINDOW;
    cfg.frame_limit_bytes = LIMIT;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        cfg.rx.header[i] = cfg.tx.header[i] = how & 0x10 ? 3 : 24;
        cfg.rx.data[i] = cfg.tx.data[i] = 256;
    }
    if (how & 8) {
        must(dxpu_tags_init(&w.tags, w.entries, TAGS, 0, 0, 50000000) == DXPU_OK);
        cfg.tags = &w.tags;
    }
    size_t need = dxpu_channel_bytes(&cfg);
    void *mem = malloc(need); /* exactly: the sanitizer sees one byte beyond */
    must(need && mem && dxpu_channel_init(&w.ch, &cfg, mem, need) == DXPU_OK);
    offer_of(how, &o);
    w.limits = o.limits;
    w.sequence = o.sequence;
    dxpu_offer_encode(&o, body);
    if (how & 4) {
        must(dxpu_channel_open(&w.ch, w.now_ns) == DXPU_OK);
        emit_all(&w);
        header(&w, &f, DXPU_KIND_ACCEPT);
        if (!(how & 0x80))
            put(&w, &f, body, sizeof body);
    } else {
        header(&w, &f, DXPU_KIND_OPEN);
        f.packet = w.packet++;
        size_t head = dxpu_frame_encode_header(&f, sizeof body, DXPU_FRAME_CRC_BYTES, w.pkt);
        memcpy(w.pkt + head, body, sizeof body);
        dxpu_frame_seal_crc(w.pkt, head + sizeof body);
        must(dxpu_channel_accept(&w.ch, w.now_ns, w.pkt,
                                 head + sizeof body + DXPU_FRAME_CRC_BYTES) == DXPU_OK);
        emit_all(&w);
        header(&w, &f, DXPU_KIND_ACK);
        if (!(how & 0x80))
            put(&w, &f, NULL, 0);
    }
    while (w.in.left)
        step(&w);
    emit_all(&w);
    must(w.ch.count.tx_tlps_acked <= w.ch.count.tx_tlps);
    free(mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    uint8_t how = next(&in);
    if ((how & 3) == 0)
        fuzz_decoders(&in);
    else
        fuzz_channel(&in, how);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    bool frame = size > 2 && (data[0] & 3) == 0 && mutate_chance(&seed) % 2;
    return frame ? 2 + mutate_frame(data + 2, size - 2, max_size - 2, &seed)
                 : mutate_bytes(data, size, max_size, &seed);
}
