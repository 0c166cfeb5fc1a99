/* Fuzz target: two channels, and the input is the network between them, the clock and both
   applications: which frame arrives, is lost, doubled, altered or comes late, who takes and submits
   what, how time passes.  What comes out is what went in: each TLP once, unaltered, in the order of
   its class; and when the input ends and the network becomes good, everything arrives.  The last
   byte of the input says how many frames leave side by side.
   libFuzzer: -max_len=512 */
#include <stdlib.h>
#include "dxpu.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NET = 32, TAGS = 16, LOG = 1024, PATHS = 2, LIMIT = 1452, SEGMENTS = 8, MS = 1000000 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

typedef struct packet {
    uint8_t *bytes; /* exactly as long: the sanitizer sees one byte beyond */
    size_t len;
    uint8_t to;
} packet;

typedef struct side {
    dxpu_channel ch;
    void *mem;
    dxpu_tags tags;
    dxpu_tag_entry entries[TAGS];
    uint32_t crc[DXPU_CLASSES][LOG]; /* of what it submitted */
    unsigned sent[DXPU_CLASSES], seen[DXPU_CLASSES];
    unsigned events, events_seen;
    uint8_t answered[LOG];
} side;

static struct {
    const uint8_t *at;
    size_t left;
    side s[2];
    packet net[NET];
    unsigned packets;
    unsigned segments[2]; /* most frames of an end that leave side by side; 0: by emit() */
    uint64_t now_ns;
    uint8_t number;
} w;

static uint8_t next(void)
{
    if (!w.left)
        return 0;
    w.left--;
    return *w.at++;
}

static void send_one(unsigned end, const uint8_t *frame, size_t len)
{
    if (w.packets == NET)
        return;
    packet *p = &w.net[w.packets++];
    p->bytes = (uint8_t *)malloc(len);
    must(p->bytes != NULL);
    memcpy(p->bytes, frame, len);
    p->len = len;
    p->to = (uint8_t)(1 - end);
}

static int emit(unsigned end, uint8_t out[SEGMENTS * LIMIT], uint8_t *path, size_t *segment)
{
    dxpu_channel *ch = &w.s[end].ch;
    if (w.segments[end])
        return dxpu_channel_emit_many(ch, w.now_ns, out, w.segments[end] * LIMIT, path, segment);
    int n = dxpu_channel_emit(ch, w.now_ns, out, LIMIT, path);
    *segment = n > 0 ? (size_t)n : 0;
    return n;
}

static void emit_all(void)
{
    static uint8_t out[SEGMENTS * LIMIT];
    for (unsigned end = 0; end < 2; end++) {
        uint8_t path;
        size_t segment, len;
        int n;
        unsigned frames = 0;
        while ((n = emit(end, out, &path, &segment)) > 0) {
            must(segment > 0 && segment <= LIMIT && path < PATHS);
            for (size_t at = 0; at < (size_t)n; at += len) {
                len = (size_t)n - at < segment ? (size_t)n - at : segment;
                must(frames++ < 1000 && (at == 0 || at / segment < w.segments[end]));
                must(dxpu_get_be16(out + at + DXPU_FRAME_LENGTH) == len);
                must(out[at + DXPU_FRAME_PATH] == path);
                send_one(end, out + at, len);
            }
        }
        must(n == 0 || n == dxpu_channel_status(&w.s[end].ch).error);
        must(dxpu_channel_next_ns(&w.s[end].ch) > w.now_ns);
        must(dxpu_channel_status(&w.s[end].ch).error != DXPU_E_PROTO); /* both are honest */
    }
}

static packet pick(unsigned i)
{
    packet p = w.net[i];
    memmove(&w.net[i], &w.net[i + 1], (--w.packets - i) * sizeof w.net[0]);
    return p;
}

static void arrive(const packet *p)
{
    dxpu_channel *ch = &w.s[p->to].ch;
    uint8_t *copy = (uint8_t *)malloc(p->len);
    must(copy != NULL);
    memcpy(copy, p->bytes, p->len);
    if (dxpu_channel_status(ch).state == DXPU_STATE_IDLE)
        dxpu_channel_accept(ch, w.now_ns, copy, p->len);
    else
        dxpu_channel_ingest(ch, w.now_ns, copy, p->len, 0);
    free(copy);
}

/* One frame of those under way: which, and what becomes of it. */
static void network(uint8_t how)
{
    if (!w.packets)
        return;
    packet p = pick(how >> 4 & 1 ? next() % w.packets : 0);
    uint8_t what = how >> 5;
    if (what == 1) { /* altered; the CRC sees one bit, or any within 32 */
        p.bytes[next() % p.len] ^= (uint8_t)(1u << (how & 7));
        arrive(&p);
    } else if (what != 2) { /* 2: lost */
        arrive(&p);
        if (what == 3)
            arrive(&p);
    }
    if (what == 4) { /* it comes once more, later */
        w.net[w.packets++] = p;
        return;
    }
    free(p.bytes);
}

static bool submit(side *s, dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES], payload[1024];
    dxpu_bytes v = { bytes, 0 };
    unsigned cls = dxpu_tlp_class(t);
    memset(payload, w.number++, sizeof payload);
    if (t->payload.len)
        t->payload.ptr = payload;
    must(dxpu_tlp_encode(t, bytes, sizeof bytes, &v.len) == DXPU_OK);
    if (s->sent[cls] == LOG ||
        dxpu_channel_submit(&s->ch, v, w.now_ns, s->sent[DXPU_NONPOSTED]) != DXPU_OK)
        return false;
    s->crc[cls][s->sent[cls]++] = dxpu_crc32(0, bytes, v.len);
    return true;
}

static void submit_some(side *s, uint8_t how)
{
    dxpu_tlp t;
    dxpu_event e;
    memset(&t, 0, sizeof t);
    t.header_dw = 3;
    t.requester = (uint16_t)(how & 1);
    t.length_dw = (uint16_t)(1u << (how >> 5));
    t.address = 0x1000;
    t.first_be = 0xf;
    t.last_be = t.length_dw > 1 ? 0xf : 0;
    if (how & 8) {
        memset(&e, 0, sizeof e);
        e.type = DXPU_EVENT_POWER_LIMIT;
        e.value = s->events;
        s->events += dxpu_channel_submit_event(&s->ch, &e) == DXPU_OK;
    } else if (how & 4) {
        t.type = DXPU_TLP_MRD;
        t.tag = (uint16_t)(s->sent[DXPU_NONPOSTED] % 1024);
        submit(s, &t);
    } else {
        t.type = DXPU_TLP_MWR;
        t.payload.len = t.length_dw * 4u;
        submit(s, &t);
    }
}

/* The completions that this side owes: whole, in the order of the reads. */
static void answer(side *s, const dxpu_tlp *req, uint16_t completer)
{
    dxpu_tlp cpl;
    dxpu_tlp_completion(req, completer, DXPU_CPL_SC, &cpl);
    cpl.payload.len = cpl.length_dw * 4u;
    must(submit(s, &cpl)); /* its queue holds more than there are requests */
}

static void take(unsigned end, unsigned cls)
{
    side *s = &w.s[end], *from = &w.s[1 - end];
    dxpu_delivery d = dxpu_channel_peek(&s->ch, cls);
    dxpu_tlp t;
    if (!d.tlp.len)
        return;
    must(from->seen[cls] < from->sent[cls]);
    must(from->crc[cls][from->seen[cls]++] == dxpu_crc32(0, d.tlp.ptr, d.tlp.len));
    must(dxpu_tlp_receive(d.tlp, &t) == DXPU_OK);
    if (cls == DXPU_COMPLETION) {
        must(d.user < s->sent[DXPU_NONPOSTED] && d.last);
        must(s->answered[d.user]++ == 0);
    }
    if (cls == DXPU_NONPOSTED && s->ch.link.state == DXPU_STATE_UP)
        answer(s, &t, (uint16_t)(8 + end));
    must(dxpu_channel_take(&s->ch, cls, w.now_ns) == DXPU_OK);
}

static void take_event(unsigned end)
{
    dxpu_event e;
    if (!dxpu_channel_peek_event(&w.s[end].ch, &e))
        return;
    must(e.value == w.s[1 - end].events_seen++);
    must(dxpu_channel_take_event(&w.s[end].ch) == DXPU_OK);
}

static void to_next_timer(unsigned end)
{
    uint64_t at = dxpu_channel_next_ns(&w.s[end].ch);
    if (at != DXPU_NEVER && at > w.now_ns)
        w.now_ns = at;
}

static void step(void)
{
    uint8_t op = next(), how = next();
    switch (op & 7) {
    case 0:
    case 1:
    case 2:
        network(how);
        break;
    case 3:
        submit_some(&w.s[op >> 3 & 1], how);
        break;
    case 4:
        take(op >> 3 & 1, how % 3);
        break;
    case 5:
        take_event(op >> 3 & 1);
        break;
    case 6:
        to_next_timer(op >> 3 & 1);
        break;
    default:
        w.now_ns += (uint64_t)how << (op >> 3 & 15);
        break;
    }
    emit_all();
}

static void setup(uint8_t how)
{
    memset(&w.s, 0, sizeof w.s);
    w.packets = 0;
    w.number = 0;
    w.now_ns = 1000000000;
    for (unsigned end = 0; end < 2; end++) {
        dxpu_channel_config cfg;
        side *s = &w.s[end];
        dxpu_channel_config_default(&cfg);
        cfg.local_id = 5 + end;
        cfg.epoch = 7;
        cfg.sequence = 0u - (how & 15);
        cfg.window_frames = how & 0x10 ? 4 : 16;
        cfg.frame_limit_bytes = how & 0x20 ? LIMIT : DXPU_FRAME_MIN_LIMIT_BYTES;
        cfg.paths = PATHS;
        cfg.spread = (how & 0x40) != 0;
        cfg.lossless = (how & 0x80) != 0;
        for (unsigned i = 0; i < DXPU_CLASSES; i++) { /* small: zeroed for each input */
            cfg.rx.header[i] = cfg.tx.header[i] = 32;
            cfg.rx.data[i] = cfg.tx.data[i] = 256;
        }
        cfg.tx.data[DXPU_COMPLETION] = 32 * TAGS; /* all that can be owed */
        cfg.rx.header[DXPU_POSTED] = 3;
        cfg.rx.header[DXPU_NONPOSTED] = 2;
        must(dxpu_tags_init(&s->tags, s->entries, TAGS, 0, 0, DXPU_NEVER) == DXPU_OK);
        cfg.tags = &s->tags;
        size_t need = dxpu_channel_bytes(&cfg);
        s->mem = malloc(need);
        must(s->mem && dxpu_channel_init(&s->ch, &cfg, s->mem, need) == DXPU_OK);
    }
    must(dxpu_channel_open(&w.s[0].ch, w.now_ns) == DXPU_OK);
}

static bool at_rest(void)
{
    for (unsigned end = 0; end < 2; end++) {
        const side *s = &w.s[end];
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            if (s->seen[cls] != s->sent[cls])
                return false;
        }
        if (s->events != s->events_seen || s->tags.in_flight ||
            (dxpu_channel_wants(&s->ch, w.now_ns) & DXPU_WANTS_ACK))
            return false;
    }
    return true;
}

/* From here on nothing is lost: it comes to rest, unless silence has ended it before. */
static void finish(void)
{
    for (unsigned n = 0; n < 4000; n++) {
        while (w.packets) {
            packet p = pick(0);
            arrive(&p);
            free(p.bytes);
            emit_all();
        }
        for (unsigned i = 0; i < 2 * DXPU_CLASSES; i++)
            take(i & 1, i / 2);
        take_event(0);
        take_event(1);
        emit_all();
        if (dxpu_channel_status(&w.s[0].ch).error || dxpu_channel_status(&w.s[1].ch).error)
            return;
        if (!w.packets && at_rest())
            return;
        if (!w.packets) {
            bool second = dxpu_channel_next_ns(&w.s[1].ch) < dxpu_channel_next_ns(&w.s[0].ch);
            to_next_timer(second);
            emit_all();
        }
    }
    must(false);
}

/* After the end every request is answered, once. */
static void contain(side *s)
{
    dxpu_request r;
    if (!dxpu_channel_status(&s->ch).error)
        return;
    while (dxpu_channel_contain(&s->ch, &r)) {
        must(r.user < s->sent[DXPU_NONPOSTED]);
        must(s->answered[r.user]++ == 0);
    }
    for (unsigned i = 0; i < s->sent[DXPU_NONPOSTED]; i++)
        must(s->answered[i] == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    w.at = data;
    w.left = size < 16384 ? size : 16384;
    w.segments[0] = size ? data[size - 1] % (SEGMENTS + 1) : 0;
    w.segments[1] = size ? data[size - 1] / 16 % (SEGMENTS + 1) : 0;
    setup(next());
    emit_all();
    while (w.left)
        step();
    finish();
    for (unsigned end = 0; end < 2; end++) {
        contain(&w.s[end]);
        free(w.s[end].mem);
    }
    while (w.packets)
        free(w.net[--w.packets].bytes);
    return 0;
}
