/* Fuzz target: one channel among liars.  The suite's callbacks seal and open, or do not, as the
   input says, and open() puts any bytes into a body that it calls authentic; frames are of every
   kind, on any path, of any key phase; the clock leaps, up to centuries; the caller closes, resets
   and contains when it likes.  The channel asserts nothing, never spins, never sleeps with work to
   do, shows only whole TLPs, and names each request once.  It takes no frame beyond its window nor
   an acknowledgement of what was not sent, and stores no more TLPs than it granted.
   libFuzzer: -max_len=512 */
#include <stdlib.h>
#define DXPU_ASSERT(x) ((x) ? (void)0 : abort())
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "cursor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WINDOW = 8, LIMIT = 1232, TAGS = 8, TAG_BYTES = 8, OUR_ID = 55, PEER_ID = 77, PATHS = 3 };
enum { BODY = 1100 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

static struct {
    const uint8_t *at;
    size_t left;
    dxpu_channel ch;
    dxpu_tags tags;
    dxpu_tag_entry entries[TAGS];
    uint64_t now_ns, packet;
    uint32_t sequence, sent;
    uint32_t requests, answered;
} w;

static uint8_t next(void)
{
    if (!w.left)
        return 0;
    w.left--;
    return *w.at++;
}

static bool seal(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                 size_t body_bytes)
{
    must(user == &w && key_phase <= 3 && nonce < UINT64_MAX && header.len >= 20);
    memset(body + body_bytes, 0x5a, TAG_BYTES);
    return next() != 0xff;
}

/* Answers as it likes, and decrypts to what it likes. */
static bool open_any(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                     uint8_t *body, size_t body_bytes)
{
    uint8_t how = next();
    (void)nonce;
    must(user == &w && key_phase <= 3 && header.len >= 20);
    for (size_t i = 0; i < body_bytes && (how & 0x80); i++)
        body[i] ^= next();
    return (how & 15) != 15;
}

static const dxpu_suite suite = { 2, TAG_BYTES, seal, open_any };

/* F-5: what waits for the consumer was granted; and no more is under way than left. */
static void check_stores(void)
{
    dxpu_path_info p;
    must(w.ch.flight.next - w.ch.flight.una <= WINDOW);
    for (unsigned i = 0; i < DXPU_CLASSES; i++)
        must(w.ch.rx.queue[i].count <= w.ch.cfg.rx.header[i] &&
             w.ch.rx.queue[i].data_used <= w.ch.cfg.rx.data[i]);
    for (unsigned i = 0; i < PATHS; i++)
        must(dxpu_channel_path(&w.ch, i, &p) == DXPU_OK && p.in_flight_bytes <= WINDOW * LIMIT);
}

static void emit_all(void)
{
    uint8_t out[LIMIT], path;
    dxpu_frame f;
    int n;
    for (unsigned frames = 0, failures = 0;; frames++) {
        must(frames < 1000);
        n = dxpu_channel_emit(&w.ch, w.now_ns, out, sizeof out, &path);
        if (n < 0 && dxpu_channel_next_ns(&w.ch) <= w.now_ns) { /* a reset, answers to probes */
            must(++failures <= PATHS + 1);
            continue;
        }
        if (n <= 0)
            break;
        dxpu_bytes d = { out, (size_t)n };
        must(n <= LIMIT && path < PATHS);
        must(dxpu_frame_decode(d, TAG_BYTES, &f) == DXPU_OK && f.path == path);
        if (f.kind == DXPU_KIND_DATA && dxpui_seq_cmp(f.sequence + 1, w.sent) > 0)
            w.sent = f.sequence + 1;
    }
    must(n == 0 || n == dxpu_channel_status(&w.ch).error);
    must(dxpu_channel_next_ns(&w.ch) > w.now_ns);
    check_stores();
}

/* D-6, D-9: what a frame of a channel that is up may say. */
static void ingest(const dxpu_frame *f, uint8_t *pkt, size_t bytes)
{
    uint32_t ahead = f->sequence - w.ch.rx.next, behind = w.ch.flight.next - f->ack;
    bool data = f->kind == DXPU_KIND_DATA, late = ahead > INT32_MAX;
    bool sent = behind <= INT32_MAX;
    int rc;
    must(sent || !dxpui_ack_valid(&w.ch.flight, f)); /* or it walks there: 2^31 steps */
    rc = dxpu_channel_ingest(&w.ch, w.now_ns, pkt, bytes, next() & 1);
    if (rc == DXPU_OK && (data || f->kind == DXPU_KIND_ACK || f->kind == DXPU_KIND_BLOCKED))
        must(sent && (!data || late || ahead < WINDOW));
    must(rc != DXPU_E_WINDOW || (data && !late && ahead >= WINDOW));
    check_stores();
}

static void put(dxpu_frame *f, const uint8_t *body, size_t bytes)
{
    uint8_t pkt[LIMIT + 64];
    f->packet = w.packet++;
    size_t head = dxpu_frame_encode_header(f, bytes, TAG_BYTES, pkt);
    if (bytes)
        memcpy(pkt + head, body, bytes);
    memset(pkt + head + bytes, 0x5a, TAG_BYTES);
    size_t total = head + bytes + TAG_BYTES;
    uint8_t *exact = (uint8_t *)malloc(total);
    must(exact != NULL);
    memcpy(exact, pkt, total);
    if (dxpu_channel_status(&w.ch).state == DXPU_STATE_IDLE)
        dxpu_channel_accept(&w.ch, w.now_ns, exact, total);
    else
        ingest(f, exact, total);
    free(exact);
}

static void header(dxpu_frame *f, uint8_t kind, uint8_t how)
{
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->channel = kind == DXPU_KIND_OPEN ? 0 : OUR_ID;
    f->key_phase = how & 3;
    f->path = how >> 2 & 3;
    f->sequence = w.sequence;
    f->ack = w.sent;
    f->seen = w.ch.link.packet ? w.ch.link.packet - 1 : 0;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        f->limits.header[i] = 64;
        f->limits.data[i] = 4096;
    }
}

static void put_offer(uint8_t kind, uint8_t how)
{
    uint8_t body[DXPU_OFFER_BYTES];
    dxpu_frame f;
    dxpu_offer o;
    memset(&o, 0, sizeof o);
    o.channel = PEER_ID;
    o.version_min = o.version_max = DXPU_WIRE_VERSION;
    o.suites = 2;
    o.tlp_formats = 1;
    o.window_frames = 8;
    o.frame_limit_bytes = LIMIT;
    o.hold_ms = 100;
    o.sequence = 100;
    o.epoch = 7;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        o.limits.header[i] = 64;
        o.limits.data[i] = 4096;
    }
    header(&f, kind, how);
    dxpu_offer_encode(&o, body);
    put(&f, body, sizeof body);
}

static void put_any(uint8_t how)
{
    uint8_t body[BODY];
    dxpu_frame f;
    header(&f, (uint8_t)(next() % 10), how);
    if (how & 0x10)
        f.ack -= next() % 9u;
    if (how & 0x20)
        f.sack = next();
    if (how & 0x40)
        f.sequence += next() % 4u;
    if (how & 0x80)
        f.ecn_ce = next();
    size_t n = next();
    for (size_t i = 0; i < n; i++)
        body[i] = next();
    put(&f, body, n);
}

/* The body of a data frame: one write, or the completion of a request in flight.  Its bytes. */
static size_t some_body(uint8_t how, uint8_t body[BODY])
{
    uint8_t tlp[64];
    dxpui_builder b;
    cursor c;
    memset(tlp, 0, sizeof tlp);
    tlp[0] = how & 0x10 ? 0x4a : 0x40;
    tlp[3] = 1;
    tlp[7] = how & 0x10 ? 4 : 0x0f;
    if (how & 0x10)
        tlp[10] = next() % 16;
    dxpu_bytes v = { tlp, 16 };
    builder_start(&b, body, BODY);
    must(cursor_start(&c, v) == DXPU_OK && cursor_place(&b, &c) == DXPU_OK);
    return b.used;
}

static void put_data(uint8_t how)
{
    uint8_t body[BODY];
    dxpu_frame f;
    size_t bytes = some_body(how, body);
    header(&f, DXPU_KIND_DATA, how);
    put(&f, body, bytes);
    w.sequence++;
}

/* As it should be, but for its numbers: any acknowledgement, and a sequence around the window. */
static void put_far(uint8_t how)
{
    uint8_t body[BODY];
    dxpu_frame f;
    uint32_t far = 0;
    size_t bytes = 0;
    header(&f, how & 0x80 ? DXPU_KIND_DATA : DXPU_KIND_ACK, how);
    for (unsigned i = 0; i < 4; i++)
        far = far << 8 | next();
    f.ack = w.ch.flight.next + far;
    f.sack = next();
    if (how & 0x80) {
        f.sequence += next() % 32u - 16u;
        bytes = some_body(how, body);
    }
    put(&f, body, bytes);
}

static void submit(uint8_t how)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    static uint8_t payload[512];
    dxpu_bytes v = { bytes, 0 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.header_dw = 3;
    t.length_dw = (uint16_t)(how & 0x10 ? 128 : 1);
    t.address = 0x1000;
    t.first_be = 0xf;
    t.last_be = t.length_dw > 1 ? 0xf : 0;
    t.type = how & 1 ? DXPU_TLP_MRD : DXPU_TLP_MWR;
    t.tag = how >> 1 & 15;
    if (t.type == DXPU_TLP_MWR) {
        t.payload.ptr = payload;
        t.payload.len = t.length_dw * 4u;
    }
    must(dxpu_tlp_encode(&t, bytes, sizeof bytes, &v.len) == DXPU_OK);
    int rc = dxpu_channel_submit(&w.ch, v, w.now_ns, w.requests);
    w.requests += rc == DXPU_OK && t.type == DXPU_TLP_MRD;
}

static void consume(void)
{
    dxpu_event e;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        dxpu_delivery d = dxpu_channel_peek(&w.ch, cls);
        dxpu_tlp_shape s;
        if (!d.tlp.len)
            continue;
        must(dxpu_tlp_measure(d.tlp, &s) == DXPU_OK && s.total_bytes == d.tlp.len && s.cls == cls);
        w.answered += cls == DXPU_COMPLETION && d.last;
        must(dxpu_channel_take(&w.ch, cls, w.now_ns) == DXPU_OK);
    }
    if (dxpu_channel_peek_event(&w.ch, &e)) {
        int rc = dxpu_channel_take_event(&w.ch); /* may let in what ends the channel */
        must(rc == DXPU_OK || rc == dxpu_channel_status(&w.ch).error);
    }
}

static void contain(void)
{
    dxpu_request r;
    unsigned state = dxpu_channel_status(&w.ch).state;
    bool over = state == DXPU_STATE_FAILED || state == DXPU_STATE_CLOSED;
    while (dxpu_channel_contain(&w.ch, &r)) {
        must(over);
        w.answered++;
    }
    if (over)
        must(w.answered == w.requests && w.tags.in_flight == 0);
}

static void step(void)
{
    uint8_t op = next(), how = next();
    switch (op & 15) {
    case 0:
    case 1:
        put_data(how);
        break;
    case 2:
    case 3:
        put_any(how);
        break;
    case 4:
        put_offer(how & 0x10 ? DXPU_KIND_OPEN : DXPU_KIND_ACCEPT, how);
        break;
    case 5:
    case 6:
        submit(how);
        break;
    case 7:
        consume();
        break;
    case 8: /* up to 2^61 ns at once, 73 years */
        if (w.now_ns < UINT64_MAX / 4)
            w.now_ns += (uint64_t)how << (op >> 4) * 3 % 54;
        break;
    case 9:
        if (dxpu_channel_next_ns(&w.ch) != DXPU_NEVER && dxpu_channel_next_ns(&w.ch) > w.now_ns)
            w.now_ns = dxpu_channel_next_ns(&w.ch);
        break;
    case 10:
        dxpu_channel_set_key_phase(&w.ch, how);
        break;
    case 11:
        if (how == 1)
            dxpu_channel_close(&w.ch, 1);
        else if (how == 2)
            dxpu_channel_reset(&w.ch, 1);
        break;
    case 12:
        if (op == 0x1c)
            put_far(how);
        else
            contain();
        break;
    default:
        emit_all();
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dxpu_channel_config cfg;
    memset(&w, 0, sizeof w);
    w.at = data;
    w.left = size < 8192 ? size : 8192;
    w.now_ns = 1000000000;
    uint8_t how = next();
    dxpu_channel_config_default(&cfg);
    cfg.local_id = OUR_ID;
    cfg.epoch = 7;
    cfg.sequence = w.sent = 0xfffffffc;
    w.sequence = 100;
    cfg.window_frames = WINDOW;
    cfg.frame_limit_bytes = LIMIT;
    cfg.hold_ms = 100;
    cfg.paths = PATHS;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) { /* small: all of it is zeroed for each input */
        cfg.rx.header[i] = cfg.tx.header[i] = 16;
        cfg.rx.data[i] = cfg.tx.data[i] = 256;
    }
    cfg.spread = how & 1;
    cfg.lossless = (how & 2) != 0;
    cfg.suite = &suite;
    cfg.suite_user = &w;
    must(dxpu_tags_init(&w.tags, w.entries, TAGS, 0, 0, DXPU_NEVER) == DXPU_OK);
    cfg.tags = &w.tags;
    size_t need = dxpu_channel_bytes(&cfg);
    void *mem = malloc(need);
    must(mem && dxpu_channel_init(&w.ch, &cfg, mem, need) == DXPU_OK);
    if (how & 4)
        must(dxpu_channel_open(&w.ch, w.now_ns) == DXPU_OK);
    put_offer(how & 4 ? DXPU_KIND_ACCEPT : DXPU_KIND_OPEN, how >> 4);
    while (w.left)
        step();
    emit_all();
    contain();
    free(mem);
    return 0;
}
