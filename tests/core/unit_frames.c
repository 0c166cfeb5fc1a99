/* spec/vectors/frames.txt through the public interface and the builder: what is accepted decodes to
   the stated fields, is built from them again byte for byte, and does in a channel what the vector
   says; what is refused is refused for the stated reason and changes nothing else.
   Directory: argv[1], DXPU_VECTORS, or spec/vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include <cmocka.h>
#include "cursor.h"
#include "vector_file.h"

enum { VECTORS_MAX = 320, TLPS_MAX = 8, LOCAL_ID = 0x77, CHAIN_MAX = 8 };
enum { BYTES_MAX = sizeof((vector *)0)->bytes };
#define NOW_NS 1000000000u

static vector *all, read_now;
static unsigned count;

/* NULL: as stated; else what is not. */
#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return #condition;                                                                     \
    } while (0)
#define PASS(call)                                                                                 \
    do {                                                                                           \
        const char *why_ = (call);                                                                 \
        if (why_)                                                                                  \
            return why_;                                                                           \
    } while (0)

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

/* ---- What a vector states ---- */

static uint64_t number(const vector *v, const char *key)
{
    const char *text = vector_get(v, key);
    return text ? strtoull(text, NULL, 0) : 0;
}

static dxpu_credits credits(const vector *v, const char *key)
{
    const char *text = vector_get(v, key);
    uint32_t units[6] = { 0 };
    dxpu_credits c;
    for (unsigned i = 0; text && i < 6; i++) {
        char *end;
        units[i] = (uint32_t)strtoul(text, &end, 10);
        text = end;
    }
    memcpy(c.header, units, sizeof c.header);
    memcpy(c.data, units + 3, sizeof c.data);
    return c;
}

static dxpu_place place(const vector *v, const char *key)
{
    uint64_t n = number(v, key);
    dxpu_place p;
    p.node = (uint32_t)(n >> 32);
    p.slot = (uint16_t)(n >> 16);
    p.function = (uint16_t)n;
    return p;
}

static uint8_t kind_of(const vector *v)
{
    for (unsigned kind = 1; kind < DXPU_KIND_END; kind++)
        if (is(vector_get(v, "kind"), dxpu_kind_name(kind)))
            return (uint8_t)kind;
    return 0;
}

static dxpu_frame frame_of(const vector *v)
{
    dxpu_frame f;
    memset(&f, 0, sizeof f);
    f.kind = kind_of(v);
    f.key_phase = (uint8_t)number(v, "key_phase");
    f.path = (uint8_t)number(v, "path");
    f.channel = (uint32_t)number(v, "channel");
    f.packet = number(v, "packet");
    f.sequence = (uint32_t)number(v, "sequence");
    f.ack = (uint32_t)number(v, "ack");
    f.sack = number(v, "sack");
    f.seen = number(v, "seen");
    f.delay_ns = (uint32_t)number(v, "delay");
    f.ecn_ce = (uint32_t)number(v, "ecn_ce");
    f.limits = credits(v, "limits");
    return f;
}

static dxpu_offer offer_of(const vector *v)
{
    dxpu_offer o;
    memset(&o, 0, sizeof o);
    o.channel = (uint32_t)number(v, "offer.channel");
    o.version_min = (uint8_t)number(v, "offer.version_min");
    o.version_max = (uint8_t)number(v, "offer.version_max");
    o.suites = (uint16_t)number(v, "offer.suites");
    o.tlp_formats = (uint16_t)number(v, "offer.tlp_formats");
    o.window_frames = (uint16_t)number(v, "offer.window");
    o.completions_infinite = (number(v, "offer.flags") & 0x80) != 0;
    o.frame_limit_bytes = (uint32_t)number(v, "offer.frame_limit");
    o.hold_ms = (uint32_t)number(v, "offer.hold_ms");
    o.sequence = (uint32_t)number(v, "offer.sequence");
    o.limits = credits(v, "offer.limits");
    o.epoch = number(v, "offer.epoch");
    o.source = place(v, "offer.source");
    o.destination = place(v, "offer.destination");
    return o;
}

/* Key `name` of record n. */
static const char *record_key(const vector *v, unsigned n, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "r%u%s%s", n, *name ? "." : "", name);
    return vector_get(v, key);
}

static uint64_t record_number(const vector *v, unsigned n, const char *name)
{
    const char *text = record_key(v, n, name);
    return text ? strtoull(text, NULL, 0) : 0;
}

static size_t bytes_of(const char *text, uint8_t *out)
{
    size_t len = 0;
    vector_hex(text ? text : "", out, BYTES_MAX, &len);
    return len;
}

static uint8_t class_of(const char *text)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        if (is(text, dxpu_class_name(cls)))
            return (uint8_t)cls;
    return DXPU_CLASSES;
}

static unsigned event_of(const char *text)
{
    for (unsigned type = 1; type < DXPU_EVENT_END; type++)
        if (is(text, dxpu_event_name(type)))
            return type;
    return 0;
}

static dxpu_event event_fields(const vector *v, unsigned n)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = (uint8_t)event_of(record_key(v, n, "event"));
    if (!e.type)
        return e;
    e.flags = (uint8_t)record_number(v, n, "event_flags");
    e.speed = (uint8_t)record_number(v, n, "speed");
    e.width = (uint8_t)record_number(v, n, "width");
    e.value = (uint32_t)(record_number(v, n, "milliwatts") | record_number(v, n, "reason") |
                         record_number(v, n, "wires"));
    e.base = record_number(v, n, "base");
    e.length = record_number(v, n, "length");
    return e;
}

/* Prefixes and header of a TLP record; *prefix_dw of them are prefixes. */
static size_t head_of(const vector *v, unsigned n, uint8_t *out, unsigned *prefix_dw)
{
    size_t len = bytes_of(record_key(v, n, "prefixes"), out);
    *prefix_dw = (unsigned)len / 4;
    vector_hex(record_key(v, n, "header"), out, BYTES_MAX, &len);
    return len;
}

/* ---- Decoding ---- */

static bool same_credits(const dxpu_credits *a, const dxpu_credits *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static const char *compare_header(const vector *v, const dxpu_frame *f)
{
    dxpu_frame s = frame_of(v);
    WANT(v->bytes[DXPU_FRAME_VERSION] == number(v, "version"));
    WANT((v->bytes[DXPU_FRAME_FLAGS] & 0x0fu) == number(v, "ignorable"));
    WANT(f->kind == s.kind && f->key_phase == s.key_phase && f->path == s.path);
    WANT(f->channel == s.channel);
    WANT(f->packet == s.packet);
    WANT(f->sequence == s.sequence);
    WANT(f->ack == s.ack && f->sack == s.sack);
    WANT(f->seen == s.seen && f->delay_ns == s.delay_ns && f->ecn_ce == s.ecn_ce);
    WANT(same_credits(&f->limits, &s.limits));
    return NULL;
}

static bool same_place(dxpu_place a, dxpu_place b)
{
    return a.node == b.node && a.slot == b.slot && a.function == b.function;
}

static const char *compare_offer(const vector *v, dxpu_bytes body)
{
    dxpu_offer o, s = offer_of(v);
    WANT(dxpu_offer_decode(body, &o) == DXPU_OK);
    WANT(o.channel == s.channel);
    WANT(o.version_min == s.version_min && o.version_max == s.version_max);
    WANT(o.suites == s.suites && o.tlp_formats == s.tlp_formats);
    WANT(o.window_frames == s.window_frames);
    WANT(o.completions_infinite == s.completions_infinite);
    WANT(o.frame_limit_bytes == s.frame_limit_bytes && o.hold_ms == s.hold_ms);
    WANT(o.sequence == s.sequence);
    WANT(same_credits(&o.limits, &s.limits));
    WANT(o.epoch == s.epoch);
    WANT(same_place(o.source, s.source) && same_place(o.destination, s.destination));
    return NULL;
}

static const char *compare_tlp(const vector *v, unsigned n, const dxpu_record *r)
{
    static uint8_t head[BYTES_MAX];
    unsigned prefix_dw;
    size_t len = head_of(v, n, head, &prefix_dw);
    WANT(r->type == DXPU_RECORD_TLP);
    WANT(r->cls == class_of(record_key(v, n, "class")));
    WANT(r->prefix_dw == prefix_dw && r->header_dw == len / 4 - prefix_dw);
    WANT(r->data_bytes == record_number(v, n, "data_bytes"));
    WANT(r->tlp_crc == record_number(v, n, "crc"));
    WANT(r->bytes.len == len && memcmp(r->bytes.ptr, head, len) == 0);
    return NULL;
}

static const char *compare_event(const vector *v, unsigned n, const dxpu_record *r)
{
    dxpu_event s = event_fields(v, n);
    const dxpu_event *e = &r->event;
    WANT(r->type == DXPU_RECORD_EVENT);
    WANT(e->type == s.type && e->flags == s.flags);
    WANT(e->speed == s.speed && e->width == s.width && e->value == s.value);
    WANT(e->base == s.base && e->length == s.length);
    return NULL;
}

static const char *compare_records(const vector *v, dxpu_bytes body)
{
    static uint8_t data[BYTES_MAX];
    dxpu_record r;
    const char *kind;
    for (unsigned n = 1; (kind = record_key(v, n, "")) != NULL; n++) {
        if (is(kind, "ignorable"))
            continue;
        WANT(dxpu_record_next(&body, &r) == DXPU_OK);
        if (is(kind, "tlp")) {
            PASS(compare_tlp(v, n, &r));
        } else if (is(kind, "event")) {
            PASS(compare_event(v, n, &r));
        } else {
            size_t len = bytes_of(record_key(v, n, "data"), data);
            WANT(is(kind, "payload") && r.type == DXPU_RECORD_PAYLOAD);
            WANT(r.bytes.len == len && memcmp(r.bytes.ptr, data, len) == 0);
        }
    }
    WANT(dxpu_record_next(&body, &r) == DXPU_E_NONE);
    return NULL;
}

static const char *compare(const vector *v, dxpu_bytes datagram)
{
    dxpu_frame f;
    WANT(dxpu_frame_decode(datagram, DXPU_FRAME_CRC_BYTES, &f) == DXPU_OK);
    WANT(dxpu_frame_check_crc(datagram) == DXPU_OK);
    PASS(compare_header(v, &f));
    if (f.kind == DXPU_KIND_OPEN || f.kind == DXPU_KIND_ACCEPT)
        return compare_offer(v, f.body);
    return f.kind == DXPU_KIND_DATA ? compare_records(v, f.body) : NULL;
}

/* ---- Building ---- */

/* The TLP that the builder is in, and those that the last frame completed. */
static struct {
    cursor c;
    bool active;
    uint8_t bytes[BYTES_MAX];
    unsigned tlps, events;
    uint8_t tlp[TLPS_MAX][BYTES_MAX];
    size_t tlp_bytes[TLPS_MAX];
} made;

/* A record that no function of the library makes. */
static void put_raw(dxpui_builder *b, unsigned type, const uint8_t *body, size_t len)
{
    uint8_t *p = b->out + b->used;
    p[0] = (uint8_t)type;
    p[1] = 0;
    dxpu_put_be16(p + 2, (uint32_t)len);
    memcpy(p + 4, body, len);
    b->used += 4 + len;
}

/* All of a TLP has arrived: a cursor started on the whole of it must say what the records said. */
static const char *complete(const vector *v)
{
    cursor c;
    made.active = false;
    if (vector_get(v, "stream"))
        return NULL;
    WANT(cursor_start(&c, made.c.tlp) == DXPU_OK);
    WANT(c.crc == made.c.crc && c.cls == made.c.cls);
    WANT(c.head_bytes == made.c.head_bytes && c.prefix_dw == made.c.prefix_dw);
    assert_true(made.tlps < TLPS_MAX);
    memcpy(made.tlp[made.tlps], made.bytes, made.c.tlp.len);
    made.tlp_bytes[made.tlps++] = made.c.tlp.len;
    return NULL;
}

static const char *put_tlp(const vector *v, unsigned n, dxpui_builder *b)
{
    cursor *c = &made.c;
    unsigned prefix_dw;
    size_t head = head_of(v, n, made.bytes, &prefix_dw);
    uint64_t data = record_number(v, n, "data_bytes");
    WANT(head + data <= sizeof made.bytes && (!made.active || vector_get(v, "stream")));
    c->tlp.ptr = made.bytes;
    c->tlp.len = head + (size_t)data;
    c->crc = (uint32_t)record_number(v, n, "crc");
    c->head_bytes = (uint16_t)head;
    c->at_bytes = 0;
    c->cls = class_of(record_key(v, n, "class"));
    c->prefix_dw = (uint8_t)prefix_dw;
    made.active = true;
    b->cap = b->used + 12 + head;
    WANT(cursor_place(b, c) == (data ? DXPU_E_MORE : DXPU_OK));
    return data ? NULL : complete(v);
}

static const char *put_payload(const vector *v, unsigned n, dxpui_builder *b)
{
    static uint8_t data[BYTES_MAX];
    cursor *c = &made.c;
    size_t len = bytes_of(record_key(v, n, "data"), data);
    size_t left = made.active ? c->tlp.len - c->at_bytes : 0;
    if (len > left) {
        put_raw(b, DXPU_RECORD_PAYLOAD, data, len);
        return NULL;
    }
    memcpy(made.bytes + c->at_bytes, data, len);
    if (len < left && len % 4) { /* W-41: our builder never cuts so */
        put_raw(b, DXPU_RECORD_PAYLOAD, data, len);
        c->at_bytes = (uint16_t)(c->at_bytes + len);
    } else {
        b->cap = b->used + 4 + len;
        WANT(cursor_place(b, c) == (len < left ? DXPU_E_MORE : DXPU_OK));
    }
    return len < left ? NULL : complete(v);
}

static const char *put_event(const vector *v, unsigned n, dxpui_builder *b)
{
    static uint8_t body[BYTES_MAX];
    dxpu_event e = event_fields(v, n);
    made.events++;
    if (e.type) {
        b->cap = BYTES_MAX;
        WANT(dxpui_builder_event(b, &e) == DXPU_OK);
        return NULL;
    }
    body[0] = (uint8_t)record_number(v, n, "event");
    body[1] = (uint8_t)record_number(v, n, "event_flags");
    body[2] = body[3] = 0;
    put_raw(b, DXPU_RECORD_EVENT, body, 4 + bytes_of(record_key(v, n, "data"), body + 4));
    return NULL;
}

static const char *put_records(const vector *v, dxpui_builder *b)
{
    static uint8_t data[BYTES_MAX];
    const char *kind;
    made.tlps = made.events = 0;
    for (unsigned n = 1; (kind = record_key(v, n, "")) != NULL; n++) {
        uint8_t *start = b->out + b->used;
        if (is(kind, "tlp"))
            PASS(put_tlp(v, n, b));
        else if (is(kind, "payload"))
            PASS(put_payload(v, n, b));
        else if (is(kind, "event"))
            PASS(put_event(v, n, b));
        else
            put_raw(b, (unsigned)record_number(v, n, "type"), data,
                    bytes_of(record_key(v, n, "data"), data));
        start[1] = (uint8_t)record_number(v, n, "flags");
    }
    return NULL;
}

static size_t put_control(const vector *v, uint8_t kind, uint8_t *out)
{
    dxpu_offer o = offer_of(v);
    uint64_t cookie = number(v, "cookie");
    switch (kind) {
    case DXPU_KIND_OPEN:
    case DXPU_KIND_ACCEPT:
        dxpu_offer_encode(&o, out);
        out[12] |= (uint8_t)(number(v, "offer.flags") & 0x7f);
        return DXPU_OFFER_BYTES;
    case DXPU_KIND_HANDSHAKE:
        return bytes_of(vector_get(v, "opaque"), out);
    case DXPU_KIND_PROBE:
        out[0] = (uint8_t)number(v, "flags");
        dxpu_put_be64(out + 4, cookie);
        return DXPU_PROBE_BYTES;
    case DXPU_KIND_RESET:
    case DXPU_KIND_CLOSE:
        out[0] = (uint8_t)number(v, "reason");
        out[1] = (uint8_t)number(v, kind == DXPU_KIND_RESET ? "version_min" : "flags");
        out[2] = (uint8_t)number(v, "version_max");
        return 4;
    default:
        return 0;
    }
}

/* The frame made from the stated fields alone. */
static const char *build(const vector *v)
{
    static uint8_t out[2 * BYTES_MAX], body[BYTES_MAX];
    dxpu_frame f = frame_of(v);
    dxpui_builder b;
    size_t header, len;
    memset(body, 0, sizeof body);
    builder_start(&b, body, sizeof body);
    PASS(put_records(v, &b));
    len = b.used ? b.used : put_control(v, f.kind, body);
    vector_hex(vector_get(v, "rest") ? vector_get(v, "rest") : "", body, sizeof body, &len);
    if (vector_get(v, "offer.rest"))
        vector_hex(vector_get(v, "offer.rest"), body, sizeof body, &len);
    header = dxpu_frame_encode_header(&f, len, DXPU_FRAME_CRC_BYTES, out);
    out[DXPU_FRAME_FLAGS] |= (uint8_t)(number(v, "ignorable") & 0x0f);
    memcpy(out + header, body, len);
    dxpu_frame_seal_crc(out, header + len);
    WANT(header + len + DXPU_FRAME_CRC_BYTES == v->len);
    if (vector_get(v, "loose")) { /* one byte is one that no encoder makes */
        unsigned other = 0;
        for (size_t i = 0; i < header + len; i++)
            other += out[i] != v->bytes[i];
        WANT(other == 1);
        return NULL;
    }
    WANT(memcmp(out, v->bytes, v->len) == 0);
    if (f.kind == DXPU_KIND_RESET && f.packet == 0) { /* what refuses an open: W-12 */
        uint8_t reset[64];
        WANT(dxpu_reset_encode(f.channel, body[0], reset) == v->len);
        WANT(memcmp(reset, v->bytes, v->len) == 0);
    }
    return NULL;
}

/* ---- A channel ---- */

static dxpu_channel ch;
static void *mem;

static void channel_init(uint32_t id, uint32_t sequence, uint64_t epoch, uint32_t limit,
                         uint32_t window)
{
    dxpu_channel_config cfg;
    size_t need;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = id;
    cfg.sequence = sequence;
    cfg.epoch = epoch;
    cfg.frame_limit_bytes = limit;
    cfg.window_frames = window;
    cfg.paths = DXPU_PATHS_MAX;
    cfg.tx.header[DXPU_POSTED] = 128;
    need = dxpu_channel_bytes(&cfg);
    free(mem);
    mem = malloc(need);
    assert_true(need && mem);
    assert_int_equal(dxpu_channel_init(&ch, &cfg, mem, need), DXPU_OK);
}

/* A copy of its own on the heap, so that a sanitizer sees a read past the end. */
static int with_copy(const uint8_t *bytes, size_t len,
                     int (*use)(dxpu_channel *, uint64_t, uint8_t *, size_t))
{
    uint8_t *copy = (uint8_t *)malloc(len ? len : 1);
    int rc;
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    rc = use(&ch, NOW_NS, copy, len);
    free(copy);
    return rc;
}

static int ingest_any(dxpu_channel *c, uint64_t now_ns, uint8_t *pkt, size_t len)
{
    return dxpu_channel_ingest(c, now_ns, pkt, len, 0);
}

static int ingest(const vector *v)
{
    return with_copy(v->bytes, v->len, ingest_any);
}

/* Emit all that is due; the frames, their kinds as bits, the last one's body in body[12]. */
static unsigned emit_all(unsigned *kinds, uint8_t body[12])
{
    static uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES];
    unsigned frames = 0;
    uint8_t path;
    int n;
    for (*kinds = 0; (n = dxpu_channel_emit(&ch, NOW_NS, out, sizeof out, &path)) > 0; frames++) {
        dxpu_bytes d;
        dxpu_frame f;
        d.ptr = out;
        d.len = (size_t)n;
        assert_int_equal(dxpu_frame_decode(d, DXPU_FRAME_CRC_BYTES, &f), DXPU_OK);
        *kinds |= 1u << f.kind;
        memcpy(body, f.body.ptr, f.body.len < 12 ? f.body.len : 12);
    }
    return frames;
}

/* Opening, then up: the peer accepts under packet number `packet`, its first frame `sequence`. */
static void channel_up(uint32_t id, uint64_t packet, uint32_t sequence, uint32_t window)
{
    uint8_t out[256], body[12];
    unsigned kinds;
    dxpu_offer o;
    dxpu_frame f;
    size_t header;
    assert_int_equal(dxpu_channel_open(&ch, NOW_NS), DXPU_OK);
    assert_int_equal(emit_all(&kinds, body), 1);
    assert_int_equal(kinds, 1u << DXPU_KIND_OPEN);
    memset(&f, 0, sizeof f);
    memset(&o, 0, sizeof o);
    f.kind = DXPU_KIND_ACCEPT;
    f.channel = id;
    f.packet = packet ? packet - 1 : 1;
    o.channel = 0x2000;
    o.version_min = o.version_max = DXPU_WIRE_VERSION;
    o.suites = DXPU_SUITE_CRC;
    o.tlp_formats = 1;
    o.window_frames = (uint16_t)window;
    o.frame_limit_bytes = DXPU_FRAME_MAX_LIMIT_BYTES;
    o.hold_ms = 1000;
    o.epoch = 5;
    o.sequence = sequence;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        o.limits.header[i] = 128;
        o.limits.data[i] = 1024;
    }
    header = dxpu_frame_encode_header(&f, DXPU_OFFER_BYTES, DXPU_FRAME_CRC_BYTES, out);
    dxpu_offer_encode(&o, out + header);
    dxpu_frame_seal_crc(out, header + DXPU_OFFER_BYTES);
    assert_int_equal(with_copy(out, header + DXPU_OFFER_BYTES + DXPU_FRAME_CRC_BYTES, ingest_any),
                     DXPU_OK);
    assert_int_equal(dxpu_channel_status(&ch).state, DXPU_STATE_UP);
    emit_all(&kinds, body);
}

/* Put enough data frames on the wire that a selective acknowledgement names only those. */
static void send_frames(uint64_t sack)
{
    static const uint8_t write[] = { 0x40, 0, 0, 1, 0, 0, 0, 0xf, 0, 1, 0, 0, 1, 2, 3, 4 };
    uint8_t body[12];
    unsigned kinds, frames = 0;
    dxpu_bytes tlp;
    tlp.ptr = write;
    tlp.len = sizeof write;
    for (frames = sack ? 1 : 0; sack; sack >>= 1)
        frames++;
    for (; frames; frames--) {
        assert_int_equal(dxpu_channel_submit(&ch, tlp, NOW_NS, 0), DXPU_OK);
        assert_int_equal(emit_all(&kinds, body), 1);
        assert_int_equal(kinds, 1u << DXPU_KIND_DATA);
    }
}

/* ---- Accepted: in a channel ---- */

static const vector *find(const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (is(name, all[i].name))
            return &all[i];
    return NULL;
}

/* Take everything; how many TLPs and events, and whether each TLP is one that was made. */
static const char *take_all(unsigned *taken)
{
    dxpu_event e;
    bool more = true, used[TLPS_MAX] = { false };
    for (*taken = 0; more;) {
        more = dxpu_channel_take_event(&ch) == DXPU_OK;
        *taken += more;
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            dxpu_delivery d = dxpu_channel_peek(&ch, cls);
            unsigned i = 0;
            if (!d.tlp.len)
                continue;
            while (i < made.tlps && (used[i] || made.tlp_bytes[i] != d.tlp.len ||
                                     memcmp(made.tlp[i], d.tlp.ptr, d.tlp.len) != 0))
                i++;
            WANT(i < made.tlps);
            used[i] = more = true;
            WANT(dxpu_channel_take(&ch, cls, NOW_NS) == DXPU_OK);
            ++*taken;
        }
    }
    WANT(!dxpu_channel_peek_event(&ch, &e));
    return NULL;
}

static const char *run_stream(const vector *v)
{
    const vector *chain[CHAIN_MAX] = { v };
    unsigned n = 1, taken = 0;
    uint64_t ignored;
    for (; vector_get(chain[n - 1], "after"); n++) {
        assert_true(n < CHAIN_MAX);
        chain[n] = find(vector_get(chain[n - 1], "after"));
        WANT(chain[n]);
    }
    dxpu_frame first = frame_of(chain[n - 1]);
    channel_init(first.channel, first.ack, 5, DXPU_FRAME_MAX_LIMIT_BYTES, 8);
    channel_up(first.channel, first.packet, first.sequence, 8);
    made.active = false;
    while (n-- > 1) {
        PASS(build(chain[n]));
        WANT(ingest(chain[n]) == DXPU_OK);
        PASS(take_all(&taken));
    }
    PASS(build(v));
    ignored = ch.count.rx_events_ignored;
    if (vector_get(v, "stream")) {
        WANT(is(vector_get(v, "stream"), "reset-8"));
        WANT(ingest(v) == DXPU_E_PROTO);
        WANT(dxpu_channel_status(&ch).state == DXPU_STATE_FAILED);
        WANT(dxpu_channel_status(&ch).reason == 8);
        return NULL;
    }
    WANT(ingest(v) == DXPU_OK);
    PASS(take_all(&taken));
    WANT(taken + ch.count.rx_events_ignored - ignored == number(v, "delivers"));
    WANT(made.tlps + made.events == number(v, "delivers"));
    WANT(dxpu_channel_status(&ch).state == DXPU_STATE_UP);
    return NULL;
}

static const char *run_control(const vector *v, const dxpu_frame *f)
{
    uint8_t body[12] = { 0 };
    unsigned kinds;
    int rc = ingest(v);
    emit_all(&kinds, body);
    if (f->kind == DXPU_KIND_RESET) {
        WANT(rc == DXPU_E_RESET && dxpu_channel_status(&ch).state == DXPU_STATE_FAILED);
        WANT(dxpu_channel_status(&ch).reason == number(v, "reason"));
    } else if (f->kind == DXPU_KIND_CLOSE) {
        WANT(rc == DXPU_OK && dxpu_channel_status(&ch).state == DXPU_STATE_CLOSED);
        WANT(dxpu_channel_status(&ch).reason == number(v, "reason"));
        WANT(kinds == (number(v, "flags") & 1 ? 0 : 1u << DXPU_KIND_CLOSE)); /* D-46 */
    } else if (f->kind == DXPU_KIND_HANDSHAKE) {
        WANT(rc == DXPU_E_STATE && ch.count.rx_state == 1); /* W-13 */
    } else {                                                /* probe */
        bool reply = !(number(v, "flags") & 1);
        WANT(rc == DXPU_OK && kinds == (reply ? 1u << DXPU_KIND_PROBE : 0));
        WANT(!reply || (body[0] == 1 && memcmp(body + 4, v->bytes + 24, 8) == 0));
    }
    return NULL;
}

static const char *run_accepted(const vector *v)
{
    dxpu_frame f = frame_of(v);
    unsigned window = f.sack ? 128 : 8;
    made.active = false;
    if (f.kind == DXPU_KIND_DATA)
        return run_stream(v);
    PASS(build(v));
    if (f.kind == DXPU_KIND_OPEN) {
        channel_init(LOCAL_ID, 0, number(v, "offer.epoch"), 1452, window);
        WANT(with_copy(v->bytes, v->len, dxpu_channel_accept) == DXPU_OK);
        WANT(dxpu_channel_status(&ch).state == DXPU_STATE_ACCEPTED);
        return NULL;
    }
    channel_init(f.channel, f.ack, 5, DXPU_FRAME_MIN_LIMIT_BYTES, window);
    if (f.kind == DXPU_KIND_ACCEPT) {
        assert_int_equal(dxpu_channel_open(&ch, NOW_NS), DXPU_OK);
        WANT(ingest(v) == DXPU_OK && dxpu_channel_status(&ch).state == DXPU_STATE_UP);
        return NULL;
    }
    channel_up(f.channel, f.packet, f.sequence, window);
    if (f.kind > DXPU_KIND_BLOCKED)
        return run_control(v, &f);
    send_frames(f.sack);
    WANT(ingest(v) == DXPU_OK && ch.count.rx_frames == 2);
    return NULL;
}

/* ---- Refused ---- */

static uint32_t load32(const vector *v, unsigned at, uint32_t otherwise)
{
    const uint8_t *p = v->bytes + at;
    return v->len < at + 4u ? otherwise : dxpu_get_be32(p);
}

/* One counter rises by one, that of the reason, and nothing else changes. */
static const char *only_counted(const dxpu_counters *before, const char *reason)
{
    char want[32];
    unsigned seen = 0;
    snprintf(want, sizeof want, "rx_%s", reason);
    for (unsigned i = 0; dxpu_counter_name(i); i++) {
        bool its = is(want, dxpu_counter_name(i));
        seen += its;
        WANT(dxpu_counter_value(&ch.count, i) == dxpu_counter_value(before, i) + its);
    }
    WANT(seen == 1);
    return NULL;
}

static const char *reason_of(int rc, char text[32])
{
    const char *name = dxpu_error_name(rc);
    unsigned i = 0;
    for (name += strncmp(name, "E_", 2) == 0 ? 2 : 0; name[i] && i < 31; i++)
        text[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    text[i] = 0;
    return text;
}

static const char *run_refused(const vector *v)
{
    const char *reject = vector_get(v, "reject");
    uint8_t kind = v->len > 3 ? v->bytes[3] : 0, body[12];
    uint32_t limit = vector_get(v, "limit") ? (uint32_t)number(v, "limit") : 65507;
    uint32_t id = kind == DXPU_KIND_OPEN ? LOCAL_ID : load32(v, 8, LOCAL_ID);
    char reason[32];
    unsigned kinds;
    int rc;
    channel_init(id, load32(v, DXPU_FRAME_ACK, 0), 5, limit, 8);
    if (kind == DXPU_KIND_OPEN) {
        rc = with_copy(v->bytes, v->len, dxpu_channel_accept);
        WANT(dxpu_channel_status(&ch).state == DXPU_STATE_IDLE);
        WANT(is(reason_of(rc, reason), reject));
        return NULL;
    }
    if (kind == DXPU_KIND_ACCEPT) {
        assert_int_equal(dxpu_channel_open(&ch, NOW_NS), DXPU_OK);
        emit_all(&kinds, body);
    } else {
        channel_up(id, load32(v, 16, 9), load32(v, DXPU_FRAME_SEQUENCE, 0), 8);
    }
    dxpu_counters before = ch.count;
    unsigned state = dxpu_channel_status(&ch).state;
    rc = ingest(v);
    WANT(is(reason_of(rc, reason), reject));
    PASS(only_counted(&before, reject));
    WANT(dxpu_channel_status(&ch).state == state && dxpu_channel_status(&ch).error == 0);
    WANT(emit_all(&kinds, body) == 0);
    return NULL;
}

static const char *run(const vector *v)
{
    uint8_t *copy;
    dxpu_bytes d;
    const char *why;
    if (vector_get(v, "reject"))
        return run_refused(v);
    copy = (uint8_t *)malloc(v->len ? v->len : 1);
    assert_non_null(copy);
    memcpy(copy, v->bytes, v->len);
    d.ptr = copy;
    d.len = v->len;
    why = compare(v, d);
    free(copy);
    return why ? why : run_accepted(v);
}

/* ---- Tests ---- */

static void check_all(bool (*wanted)(const vector *, const void *), const void *what)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++) {
        const char *why;
        if (!wanted(&all[i], what))
            continue;
        n++;
        why = run(&all[i]);
        if (why)
            fail_msg("%s: not so: %s", all[i].name, why);
    }
    assert_true(n > 0);
}

static bool has_reason(const vector *v, const void *reason)
{
    return is(vector_get(v, "reject"), (const char *)reason);
}

static bool has_kinds(const vector *v, const void *kinds)
{
    return !vector_get(v, "reject") && (*(const unsigned *)kinds >> kind_of(v) & 1) &&
           !vector_get(v, "stream") && !vector_get(v, "after");
}

static bool has_key(const vector *v, const void *key)
{
    return vector_get(v, (const char *)key) != NULL;
}

#define REFUSED(name, reason)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        check_all(has_reason, reason);                                                             \
    }
REFUSED(test_w1_magic, "magic")
REFUSED(test_w2_version, "version")
REFUSED(test_w3_kind, "kind")
REFUSED(test_w4_length, "length") /* and W-10 */
REFUSED(test_w4_short, "short")   /* and W-14 W-20 */
REFUSED(test_w5_rsvd, "rsvd")     /* and W-27 */
REFUSED(test_w7_channel, "channel")
REFUSED(test_w8_last_packet_number, "replay")
REFUSED(test_w9_crc, "crc")
REFUSED(test_w13_handshake, "state")
REFUSED(test_w20_offers, "offer") /* and W-21 W-22 W-23 W-24 W-25 W-26 W-28 */
REFUSED(test_w30_records,
        "record") /* and W-11 W-31 W-32 W-33 W-34 W-35 W-36 W-37 W-40 W-42 W-43 W-51 */

#define TAKEN(name, kinds)                                                                         \
    static void name(void **state)                                                                 \
    {                                                                                              \
        unsigned set = (kinds);                                                                    \
        (void)state;                                                                               \
        check_all(has_kinds, &set);                                                                \
    }
TAKEN(test_w21_offers_taken, 1u << DXPU_KIND_OPEN | 1u << DXPU_KIND_ACCEPT)
TAKEN(test_w14_control_taken, 1u << DXPU_KIND_RESET | 1u << DXPU_KIND_CLOSE |
                                  1u << DXPU_KIND_HANDSHAKE | 1u << DXPU_KIND_PROBE)
TAKEN(test_d1_empty_frames_taken, 1u << DXPU_KIND_ACK | 1u << DXPU_KIND_BLOCKED)
TAKEN(test_w32_records_taken, 1u << DXPU_KIND_DATA)

static void test_w41_tlps_over_frames(void **state)
{
    (void)state;
    check_all(has_key, "after");
}

/* W-42 and W-43 across frames, W-38: reset, reason 8 */
static void test_w38_streams_that_end(void **state)
{
    (void)state;
    check_all(has_key, "stream");
}

/* The copy of a vector under another path, sealed again. */
static void change_path(vector *copy)
{
    size_t used = copy->len - DXPU_FRAME_CRC_BYTES;
    unsigned k = 0;
    copy->bytes[DXPU_FRAME_PATH] = (uint8_t)((copy->bytes[DXPU_FRAME_PATH] + 3u) % DXPU_PATHS_MAX);
    dxpu_frame_seal_crc(copy->bytes, used);
    while (k < copy->keys && !is(copy->key[k], "path"))
        k++;
    if (k == copy->keys)
        copy->keys++;
    strcpy(copy->key[k], "path");
    snprintf(copy->value[k], sizeof copy->value[k], "%u", copy->bytes[DXPU_FRAME_PATH]);
}

/* The path says nothing about the sender: a frame does the same on any. */
static void test_w6_any_path(void **state)
{
    unsigned n = 0;
    (void)state;
    for (unsigned i = 0; i < count; i++) {
        const char *why;
        if (vector_get(&all[i], "reject") || number(&all[i], "packet") == 0)
            continue; /* packet 0: dxpu_reset_encode() writes path 0 */
        n++;
        read_now = all[i];
        change_path(&read_now);
        why = run(&read_now);
        if (why)
            fail_msg("%s on another path: %s", all[i].name, why);
    }
    assert_true(n > 50);
}

/* Keys that no check reads: notes, and what says where the vector stands. */
static bool is_about(const char *key)
{
    return is(key, "note") || is(key, "after") || is(key, "loose") || is(key, "limit");
}

/* Damage one key of a copy: another last character. */
static void damage(vector *copy, unsigned key)
{
    char *text = copy->value[key];
    size_t len = strlen(text);
    if (len == 0)
        strcpy(text, "01");
    else
        text[len - 1] = text[len - 1] == '1' ? '2' : '1';
}

static void test_control_every_key_is_compared(void **state)
{
    unsigned n = 0;
    (void)state;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < all[i].keys; k++) {
            if (is_about(all[i].key[k]))
                continue;
            n++;
            read_now = all[i];
            damage(&read_now, k);
            if (!run(&read_now))
                fail_msg("%s: other %s, not seen", all[i].name, all[i].key[k]);
        }
    assert_true(n > 1000);
}

static void test_control_damaged_bytes_are_seen(void **state)
{
    (void)state;
    for (unsigned i = 0; i < count; i++) {
        size_t len = all[i].len;
        read_now = all[i];
        if (vector_get(&read_now, "reject")) { /* a good frame in its place */
            read_now.len = find("ack")->len;
            memcpy(read_now.bytes, find("ack")->bytes, read_now.len);
        } else {
            read_now.bytes[len / 2] ^= 0x10;
        }
        if (!run(&read_now))
            fail_msg("%s: damage not seen", all[i].name);
        read_now = all[i];
        read_now.len = len ? len - 1 : 1;
        if (!vector_get(&read_now, "reject") && !run(&read_now))
            fail_msg("%s: cut, not seen", all[i].name);
    }
}

static void keep(void)
{
    assert_true(count < VECTORS_MAX);
    all[count++] = read_now;
}

static int read_all(void **state)
{
    (void)state;
    all = (vector *)calloc(VECTORS_MAX, sizeof *all);
    return !all || vector_run("frames.txt", &read_now, keep) != count;
}

static int free_all(void **state)
{
    (void)state;
    free(all);
    free(mem);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_w1_magic),
        cmocka_unit_test(test_w2_version),
        cmocka_unit_test(test_w3_kind),
        cmocka_unit_test(test_w4_length),
        cmocka_unit_test(test_w4_short),
        cmocka_unit_test(test_w5_rsvd),
        cmocka_unit_test(test_w6_any_path),
        cmocka_unit_test(test_w7_channel),
        cmocka_unit_test(test_w8_last_packet_number),
        cmocka_unit_test(test_w9_crc),
        cmocka_unit_test(test_w13_handshake),
        cmocka_unit_test(test_w20_offers),
        cmocka_unit_test(test_w30_records),
        cmocka_unit_test(test_w21_offers_taken),
        cmocka_unit_test(test_w14_control_taken),
        cmocka_unit_test(test_d1_empty_frames_taken),
        cmocka_unit_test(test_w32_records_taken),
        cmocka_unit_test(test_w41_tlps_over_frames),
        cmocka_unit_test(test_w38_streams_that_end),
        cmocka_unit_test(test_control_every_key_is_compared),
        cmocka_unit_test(test_control_damaged_bytes_are_seen),
    };
    vector_find_folder(argc, argv);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, read_all, free_all);
}
