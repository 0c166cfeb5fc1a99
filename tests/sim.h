/* A pair of channels, a bad network between them and a virtual clock: everything from one seed.
   Included by the simulation suites after the implementation. */
#ifndef SIM_H
#define SIM_H

#include <stdio.h>
#include <stdlib.h>

typedef struct sim_rng {
    uint64_t s;
} sim_rng;

static inline uint64_t sim_next(sim_rng *r) /* splitmix64 */
{
    uint64_t z = r->s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint32_t sim_below(sim_rng *r, uint32_t n)
{
    return (uint32_t)(sim_next(r) % n);
}

static inline bool sim_chance(sim_rng *r, uint32_t per_mille)
{
    return sim_below(r, 1000) < per_mille;
}

/* What a run is made of; all of it follows from the seed unless a test sets it. */
typedef struct sim_options {
    uint64_t seed;
    uint32_t tlps;                /* requests and writes submitted by each side */
    uint32_t loss, dup, corrupt;  /* per mille */
    uint32_t delay_ns, jitter_ns; /* one way */
    uint32_t window[2], frame_limit[2];
    uint32_t sequence[2];           /* first frame sequence of each side */
    uint64_t dark_from_ns, dark_ns; /* nothing gets through meanwhile */
    bool tags;                      /* requests are tracked, completion credits infinite */
    bool refuse;                    /* consumers leave one class alone for a while */
    bool stop;                      /* ... or everything, for long */
    bool suite;                     /* frames are sealed by a toy cipher */
    int sabotage;                   /* SIM_*: what a control breaks */
    uint32_t hold_ms;
} sim_options;

enum { /* controls: the checker must see each of these */
       SIM_HONEST,
       SIM_DROP,    /* a delivered TLP is not looked at */
       SIM_DOUBLE,  /* one is looked at twice */
       SIM_ALTER,   /* one byte of one is changed */
       SIM_REORDER, /* two of one class change places */
       SIM_PASS,    /* a request is taken though a posted one before it waits */
       SIM_OWN,     /* one with IDO passes a posted one of its own requester */
       SIM_LEDGER   /* one credit is not given back */
};

typedef struct sim_packet {
    uint64_t at_ns;
    uint64_t serial;
    int to;
    size_t len;
    uint8_t *bytes;
} sim_packet;

typedef struct sim_sent { /* what was submitted, to compare with what comes out */
    uint32_t order;
    uint16_t len;
    uint16_t id;   /* requester; completer of a completion */
    bool may_pass; /* by RO */
    bool by_id;    /* by IDO, what has another id */
    uint8_t *bytes;
} sim_sent;

enum { SIM_TAGS = 64, SIM_LOG = 8192, SIM_CLASS_EVENT = 3 };

typedef struct sim_side {
    dxpu_channel ch;
    void *mem;
    dxpu_tags tags;
    dxpu_tag_entry tag_entries[SIM_TAGS];
    sim_sent *log[4]; /* by class, the fourth is link events (len 0) */
    uint32_t logged[4], seen[4];
    uint32_t order;
    uint32_t to_submit;
    uint8_t *owed[SIM_LOG]; /* completions that wait for room */
    uint16_t owed_len[SIM_LOG];
    uint32_t owed_head, owed_tail;
    uint32_t requests, answered;
    uint64_t next_app_ns;
    uint64_t refuse_until_ns, stop_until_ns;
    unsigned refused;
    uint16_t rid; /* of two requesters: this one and the next */
    uint16_t next_tag;
    uint32_t events_due;
} sim_side;

typedef struct sim {
    sim_options o;
    sim_rng rng;
    uint64_t now_ns;
    uint64_t serial;
    sim_packet *heap;
    size_t heap_len, heap_cap;
    sim_side side[2];
    uint64_t dropped, doubled, corrupted, carried, passed_by_id;
    uint32_t sabotage_in; /* deliveries until the control acts */
    bool sabotaged;
    char why[256]; /* the first broken property, "" when all hold */
} sim;

static void sim_fail(sim *s, const char *what, uint32_t a, uint32_t b)
{
    if (!s->why[0])
        snprintf(s->why, sizeof s->why, "%s (%u, %u) at %llu ns", what, (unsigned)a, (unsigned)b,
                 (unsigned long long)s->now_ns);
}

/* ---- the network ---- */

static bool sim_earlier(const sim_packet *a, const sim_packet *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->serial < b->serial;
}

static void sim_push(sim *s, sim_packet p)
{
    if (s->heap_len == s->heap_cap) {
        s->heap_cap = s->heap_cap ? 2 * s->heap_cap : 64;
        s->heap = (sim_packet *)realloc(s->heap, s->heap_cap * sizeof *s->heap);
        if (!s->heap)
            abort();
    }
    size_t i = s->heap_len++;
    for (; i && sim_earlier(&p, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = p;
}

static sim_packet sim_pop(sim *s)
{
    sim_packet top = s->heap[0], last = s->heap[--s->heap_len];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= s->heap_len)
            break;
        if (c + 1 < s->heap_len && sim_earlier(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (!sim_earlier(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    s->heap[i] = last;
    return top;
}

static void sim_carry(sim *s, int to, const uint8_t *bytes, size_t len)
{
    sim_packet p;
    p.at_ns = s->now_ns + s->o.delay_ns + sim_below(&s->rng, s->o.jitter_ns + 1);
    p.serial = s->serial++;
    p.to = to;
    p.len = len;
    p.bytes = (uint8_t *)malloc(len);
    if (!p.bytes)
        abort();
    memcpy(p.bytes, bytes, len);
    if (sim_chance(&s->rng, s->o.corrupt)) {
        uint32_t at = sim_below(&s->rng, (uint32_t)len);
        p.bytes[at] ^= (uint8_t)(1u << sim_below(&s->rng, 8));
        if (sim_chance(&s->rng, 200))
            p.len = sim_below(&s->rng, (uint32_t)len); /* truncated instead */
        s->corrupted++;
    }
    s->carried++;
    sim_push(s, p);
}

static bool sim_dark(const sim *s)
{
    return s->now_ns - s->o.dark_from_ns < s->o.dark_ns;
}

static void sim_network(sim *s, int to, const uint8_t *bytes, size_t len)
{
    if (sim_chance(&s->rng, s->o.loss) || sim_dark(s)) {
        s->dropped++;
        return;
    }
    sim_carry(s, to, bytes, len);
    if (sim_chance(&s->rng, s->o.dup)) {
        s->doubled++;
        sim_carry(s, to, bytes, len);
    }
}

/* ---- what is submitted ---- */

/* `t` is NULL for a link event. */
static void sim_log(sim_side *me, unsigned cls, const uint8_t *bytes, size_t len, const dxpu_tlp *t)
{
    if (me->logged[cls] == SIM_LOG)
        abort();
    sim_sent *e = &me->log[cls][me->logged[cls]++];
    memset(e, 0, sizeof *e);
    e->order = me->order++;
    e->len = (uint16_t)len;
    if (t) {
        e->id = cls == DXPU_COMPLETION ? t->completer : t->requester;
        e->may_pass = (t->attr & DXPU_ATTR_RO) &&
                      (cls == DXPU_COMPLETION || (cls == DXPU_NONPOSTED && t->payload.len));
        e->by_id = (t->attr & DXPU_ATTR_IDO) != 0;
    }
    e->bytes = (uint8_t *)malloc(len + 1);
    if (!e->bytes)
        abort();
    memcpy(e->bytes, bytes, len);
}

static void sim_payload(sim *s, uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)sim_next(&s->rng);
}

/* Random requests: writes and reads of all sizes, configuration, messages, atomics. */
static void sim_random_tlp(sim *s, sim_side *me, dxpu_tlp *t, uint8_t *payload)
{
    static const uint16_t sizes[] = { 1, 1, 2, 4, 16, 32, 64, 128, 512, 1024 };
    sim_rng *r = &s->rng;
    memset(t, 0, sizeof *t);
    t->header_dw = sim_chance(r, 500) ? 4 : 3;
    t->requester = (uint16_t)(me->rid + sim_below(r, 2));
    t->attr = (uint8_t)(sim_chance(r, 200) ? DXPU_ATTR_RO : 0);
    t->attr |= (uint8_t)(sim_chance(r, 400) ? DXPU_ATTR_IDO : 0);
    t->length_dw = sizes[sim_below(r, sizeof sizes / sizeof sizes[0])];
    t->first_be = 0xf;
    t->last_be = t->length_dw > 1 ? 0xf : 0;
    t->address = (sim_next(r) & 0x7ffff000u) | (t->header_dw == 4 ? 0x500000000u : 0);
    switch (sim_below(r, 8)) {
    case 0:
    case 1:
    case 2:
        t->type = DXPU_TLP_MWR;
        break;
    case 3:
    case 4:
        t->type = DXPU_TLP_MRD;
        break;
    case 5:
        t->type = DXPU_TLP_CFGWR0;
        t->header_dw = 3;
        t->length_dw = 1;
        t->last_be = 0;
        t->address = 0;
        t->attr = 0;
        t->target = DXPU_BDF(3, 0, 0);
        t->register_bytes = 0x10;
        break;
    case 6:
        t->type = DXPU_TLP_FETCHADD;
        t->length_dw = 2;
        t->first_be = t->last_be = 0;
        break;
    default:
        t->type = DXPU_TLP_MSG;
        t->header_dw = 4;
        t->length_dw = 0;
        t->first_be = t->last_be = 0;
        t->address = 0;
        t->attr = 0;
        t->message_code = 0x7e;
        t->message_routing = DXPU_MSG_BY_ID;
        t->target = DXPU_BDF(3, 0, 0);
        break;
    }
    if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
        t->tag = me->next_tag;
    if (t->type == DXPU_TLP_MWR || t->type == DXPU_TLP_CFGWR0 || t->type == DXPU_TLP_FETCHADD) {
        t->payload.ptr = payload;
        t->payload.len = t->length_dw * 4u;
        sim_payload(s, payload, t->payload.len);
    }
}

static bool sim_submit(sim *s, sim_side *me, const uint8_t *bytes, size_t len)
{
    dxpu_bytes tlp = { bytes, len };
    dxpu_tlp t;
    int rc = dxpu_channel_submit(&me->ch, tlp, s->now_ns, me->order);
    if (rc == DXPU_E_AGAIN || rc == DXPU_E_NO_TAG || rc == DXPU_E_TAG_BUSY)
        return false;
    if (rc != DXPU_OK) {
        sim_fail(s, dxpu_error_text(rc), 0, 0);
        return false;
    }
    rc = dxpu_tlp_decode(tlp, &t);
    if (rc != DXPU_OK)
        sim_fail(s, "submitted an invalid TLP", (uint32_t)-rc, 0);
    unsigned cls = dxpu_tlp_class(&t);
    sim_log(me, cls, bytes, len, &t);
    if (cls == DXPU_NONPOSTED) {
        me->requests++;
        me->next_tag = (uint16_t)((me->next_tag + 1) % 1024);
    }
    return true;
}

static void sim_submit_some(sim *s, sim_side *me)
{
    uint8_t payload[4096], bytes[DXPU_TLP_MAX_BYTES];
    size_t len;
    while (me->owed_head != me->owed_tail) {
        uint32_t i = me->owed_head % SIM_LOG;
        if (!sim_submit(s, me, me->owed[i], me->owed_len[i]))
            break;
        free(me->owed[i]);
        me->owed_head++;
    }
    for (uint32_t n = sim_below(&s->rng, 8); n && me->to_submit; n--) {
        dxpu_tlp t;
        sim_random_tlp(s, me, &t, payload);
        int rc = dxpu_tlp_encode(&t, bytes, sizeof bytes, &len);
        if (rc != DXPU_OK) {
            sim_fail(s, dxpu_error_text(rc), t.type, 0);
            return;
        }
        if (!sim_submit(s, me, bytes, len))
            break;
        me->to_submit--;
    }
    if (me->events_due && sim_chance(&s->rng, 100)) {
        dxpu_event e;
        memset(&e, 0, sizeof e);
        e.type = DXPU_EVENT_POWER_LIMIT;
        e.value = me->logged[SIM_CLASS_EVENT];
        if (dxpu_channel_submit_event(&me->ch, &e) == DXPU_OK) {
            sim_log(me, SIM_CLASS_EVENT, bytes, 0, NULL);
            me->events_due--;
        }
    }
}

/* ---- what comes out ---- */

static void sim_owe(sim_side *me, const dxpu_tlp *cpl)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    size_t len;
    uint32_t i = me->owed_tail % SIM_LOG;
    if (dxpu_tlp_encode(cpl, bytes, sizeof bytes, &len) != DXPU_OK ||
        me->owed_tail - me->owed_head == SIM_LOG)
        abort();
    me->owed[i] = (uint8_t *)malloc(len);
    if (!me->owed[i])
        abort();
    memcpy(me->owed[i], bytes, len);
    me->owed_len[i] = (uint16_t)len;
    me->owed_tail++;
}

/* Answer a request as a completer does: reads in several completions. */
static void sim_answer(sim *s, sim_side *me, dxpu_bytes tlp)
{
    dxpu_tlp req, cpl;
    uint8_t data[4096];
    uint64_t at;
    if (dxpu_tlp_decode(tlp, &req) != DXPU_OK) {
        sim_fail(s, "request does not decode", 0, 0);
        return;
    }
    uint16_t completer = (uint16_t)(me->rid + sim_below(&s->rng, 2));
    dxpu_tlp_completion(&req, completer, DXPU_CPL_SC, &cpl);
    sim_payload(s, data, sizeof data);
    cpl.payload.ptr = data;
    if (req.type == DXPU_TLP_MRD) {
        dxpu_cpl_split split;
        uint32_t mps = 128u << sim_below(&s->rng, 3);
        if (dxpu_cpl_split_start(&split, &req, 64, mps) != DXPU_OK)
            abort();
        while (dxpu_cpl_split_next(&split, &cpl, &at)) {
            cpl.payload.len = cpl.length_dw * 4u;
            sim_owe(me, &cpl);
        }
    } else {
        cpl.payload.len = cpl.length_dw * 4u;
        sim_owe(me, &cpl);
    }
}

/* D-34: the posted ones that were submitted before `e` and have not come. */
static void sim_check_passed(sim *s, sim_side *from, unsigned cls, const sim_sent *e)
{
    const sim_sent *posted = from->log[DXPU_POSTED];
    uint32_t i = from->seen[DXPU_POSTED];
    bool passed = i < from->logged[DXPU_POSTED] && posted[i].order < e->order;
    for (; i < from->logged[DXPU_POSTED] && posted[i].order < e->order; i++) {
        if (!e->by_id || posted[i].id == e->id)
            sim_fail(s, "passed a posted TLP, class", cls, i);
    }
    s->passed_by_id += passed;
}

/* Compare one delivery with what the other side submitted, and its place among the posted. */
static void sim_check(sim *s, sim_side *from, unsigned cls, dxpu_bytes tlp)
{
    uint32_t i = from->seen[cls];
    if (i >= from->logged[cls]) {
        sim_fail(s, "delivered more than was sent, class", cls, i);
        return;
    }
    const sim_sent *e = &from->log[cls][i];
    from->seen[cls]++;
    if (e->len != tlp.len || memcmp(e->bytes, tlp.ptr, tlp.len) != 0)
        sim_fail(s, "altered, lost or out of order, class", cls, i);
    if (cls != DXPU_POSTED && !e->may_pass)
        sim_check_passed(s, from, cls, e);
    uint32_t event = from->seen[SIM_CLASS_EVENT];
    if (event < from->logged[SIM_CLASS_EVENT] && from->log[SIM_CLASS_EVENT][event].order < e->order)
        sim_fail(s, "passed a link event, class", cls, i);
}

static bool sim_sabotage_due(sim *s, int kind)
{
    if (s->o.sabotage != kind || s->sabotaged || s->sabotage_in-- > 0)
        return false;
    s->sabotage_in = 0;
    return s->sabotaged = true;
}

/* True when the next two of a class can be told apart. */
static bool sim_differ(const sim_side *from, unsigned cls)
{
    const sim_sent *e = &from->log[cls][from->seen[cls]];
    return from->seen[cls] + 1 < from->logged[cls] &&
           (e[0].len != e[1].len || memcmp(e[0].bytes, e[1].bytes, e[0].len) != 0);
}

static void sim_look(sim *s, sim_side *from, unsigned cls, dxpu_bytes tlp)
{
    uint8_t copy[DXPU_TLP_MAX_BYTES];
    memcpy(copy, tlp.ptr, tlp.len);
    if (sim_sabotage_due(s, SIM_DROP))
        return;
    if (sim_sabotage_due(s, SIM_DOUBLE))
        sim_check(s, from, cls, tlp);
    if (sim_sabotage_due(s, SIM_ALTER))
        copy[tlp.len - 1] ^= 1;
    if (cls == DXPU_POSTED && sim_differ(from, cls) && sim_sabotage_due(s, SIM_REORDER)) {
        sim_sent *a = &from->log[cls][from->seen[cls]], b = a[0];
        a[0] = a[1];
        a[1] = b;
    }
    uint32_t posted = from->seen[DXPU_POSTED];
    const sim_sent *e = &from->log[cls][from->seen[cls]];
    if (cls != DXPU_POSTED && !e->may_pass && e->order && posted < from->logged[DXPU_POSTED] &&
        sim_sabotage_due(s, e->by_id ? SIM_OWN : SIM_PASS)) {
        from->log[DXPU_POSTED][posted].order = 0; /* as if it had been sent first of all */
        if (e->by_id)
            from->log[DXPU_POSTED][posted].id = e->id;
    }
    dxpu_bytes view = { copy, tlp.len };
    sim_check(s, from, cls, view);
}

static void sim_consume(sim *s, int side)
{
    sim_side *me = &s->side[side], *from = &s->side[1 - side];
    for (unsigned n = 0, idle = 0; idle < 3; n++) {
        unsigned cls = n % 3;
        dxpu_delivery d = dxpu_channel_peek(&me->ch, cls);
        idle++;
        if (d.tlp.len == 0 || (cls == me->refused && s->now_ns < me->refuse_until_ns))
            continue;
        idle = 0;
        sim_look(s, from, cls, d.tlp);
        if (cls == DXPU_NONPOSTED)
            sim_answer(s, me, d.tlp);
        if (cls == DXPU_COMPLETION) {
            if (s->o.tags)
                me->answered += d.last;
            else
                me->answered = me->requests;
        }
        if (dxpu_channel_take(&me->ch, cls, s->now_ns) != DXPU_OK)
            sim_fail(s, "take refused what peek showed", cls, 0);
        if (sim_sabotage_due(s, SIM_LEDGER))
            me->ch.granted.header[DXPU_POSTED]--;
    }
    dxpu_event e;
    while (dxpu_channel_peek_event(&me->ch, &e)) {
        uint32_t i = from->seen[SIM_CLASS_EVENT]++;
        if (i >= from->logged[SIM_CLASS_EVENT] || e.value != i)
            sim_fail(s, "link event lost, doubled or out of order", i, e.value);
        uint32_t order = from->log[SIM_CLASS_EVENT][i].order;
        for (unsigned c = 0; c < 3; c++) {
            if (from->seen[c] < from->logged[c] && from->log[c][from->seen[c]].order < order)
                sim_fail(s, "link event passed a TLP, class", c, i);
        }
        dxpu_channel_take_event(&me->ch);
    }
}

/* ---- the run ---- */

static void sim_emit(sim *s, int side)
{
    uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES], path;
    int n;
    while ((n = dxpu_channel_emit(&s->side[side].ch, s->now_ns, out, sizeof out, &path)) > 0)
        sim_network(s, 1 - side, out, (size_t)n);
    if (n < 0 && n != DXPU_E_CLOSED)
        sim_fail(s, dxpu_error_text(n), (uint32_t)side,
                 (uint32_t)-dxpu_channel_last_error(&s->side[side].ch));
}

static void sim_arrive(sim *s, sim_packet *p)
{
    sim_side *me = &s->side[p->to];
    uint8_t kind = 0;
    uint32_t channel;
    dxpu_bytes datagram = { p->bytes, p->len };
    if (dxpu_channel_state(&me->ch) == DXPU_STATE_IDLE) {
        if (dxpu_frame_peek(datagram, &kind, &channel) == DXPU_OK && kind == DXPU_KIND_OPEN)
            dxpu_channel_accept(&me->ch, s->now_ns, p->bytes, p->len);
    } else {
        dxpu_channel_ingest(&me->ch, s->now_ns, p->bytes, p->len, 0);
    }
    free(p->bytes);
}

static void sim_app(sim *s, int side)
{
    sim_side *me = &s->side[side];
    if (s->now_ns >= me->stop_until_ns)
        sim_consume(s, side);
    sim_submit_some(s, me);
    bool idle = sim_dark(s) || s->now_ns < me->stop_until_ns; /* nothing to do: look seldom */
    me->next_app_ns = s->now_ns + 1000 + sim_below(&s->rng, idle ? 2000000 : 20000);
    if (s->o.refuse && sim_chance(&s->rng, 10)) {
        me->refused = sim_below(&s->rng, 3);
        me->refuse_until_ns = s->now_ns + sim_below(&s->rng, 20000000);
    }
    if (s->o.stop && sim_chance(&s->rng, 5))
        me->stop_until_ns = s->now_ns + sim_below(&s->rng, 300000000);
}

/* All that was submitted has come out, and nothing is under way. */
static bool sim_done(const sim *s)
{
    for (int i = 0; i < 2; i++) {
        const sim_side *me = &s->side[i];
        if (me->to_submit || me->events_due || me->owed_head != me->owed_tail)
            return false;
        for (unsigned c = 0; c < 4; c++) {
            if (me->seen[c] < me->logged[c])
                return false;
        }
        if ((dxpu_channel_wants(&me->ch, s->now_ns) & ~(unsigned)DXPU_WANTS_EMIT) ||
            me->ch.ack_now || me->ch.ack_at_ns != DXPU_NEVER)
            return false;
    }
    return s->heap_len == 0;
}

static void sim_check_ledgers(sim *s)
{
    for (int i = 0; i < 2; i++) {
        const dxpu_channel *a = &s->side[i].ch, *b = &s->side[1 - i].ch;
        for (unsigned c = 0; c < 3; c++) {
            if (a->tx[c].count || a->tx[c].header_used || a->tx[c].data_used || a->rx[c].count ||
                a->rx[c].header_used || a->rx[c].data_used)
                sim_fail(s, "a queue is not empty, class", c, (uint32_t)i);
            if (s->o.tags && c == DXPU_COMPLETION)
                continue;
            if (a->used.header[c] + b->cfg.rx.header[c] != b->granted.header[c] ||
                a->used.data[c] + b->cfg.rx.data[c] != b->granted.data[c])
                sim_fail(s, "credit ledgers differ, class", c, (uint32_t)i);
            /* the frame that told the last limits may have been lost: then they are lower */
            if (dxpui_seq_cmp(a->limits.header[c], b->granted.header[c]) > 0 ||
                dxpui_seq_cmp(a->limits.data[c], b->granted.data[c]) > 0)
                sim_fail(s, "credit that was never given, class", c, (uint32_t)i);
        }
        if (a->lost || a->una != a->nxt || a->rx_held || a->rx_next != b->nxt)
            sim_fail(s, "a frame is still under way", (uint32_t)i, a->lost);
        const dxpu_tags *t = &s->side[i].tags;
        if (s->o.tags && (t->in_flight || t->reserve_header || t->reserve_data ||
                          s->side[i].answered != s->side[i].requests))
            sim_fail(s, "requests without their completions", t->in_flight,
                     s->side[i].requests - s->side[i].answered);
    }
}

/* A toy cipher: XOR with the packet number, and a CRC for the tag. */
static uint32_t sim_suite_tag(uint64_t nonce, dxpu_bytes header, const uint8_t *body, size_t bytes)
{
    return dxpu_crc32(dxpu_crc32((uint32_t)nonce, header.ptr, header.len), body, bytes);
}

static void sim_suite_xor(uint64_t nonce, uint8_t *body, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        body[i] ^= (uint8_t)(nonce * 151 + i * 3 + 1);
}

static bool sim_suite_seal(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                           uint8_t *body, size_t bytes)
{
    (void)user;
    (void)key_phase;
    sim_suite_xor(nonce, body, bytes);
    memset(body + bytes, 0, 16);
    dxpui_store32(body + bytes + 12, sim_suite_tag(nonce, header, body, bytes));
    return true;
}

static bool sim_suite_open(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                           uint8_t *body, size_t bytes)
{
    (void)user;
    (void)key_phase;
    for (unsigned i = 0; i < 12; i++) {
        if (body[bytes + i])
            return false;
    }
    if (dxpui_load32(body + bytes + 12) != sim_suite_tag(nonce, header, body, bytes))
        return false;
    sim_suite_xor(nonce, body, bytes);
    return true;
}

static const dxpu_suite sim_suite = { 2, 16, sim_suite_seal, sim_suite_open };

static void sim_setup_side(sim *s, int side)
{
    sim_side *me = &s->side[side];
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = 0x1000u + (uint32_t)side;
    cfg.sequence = s->o.sequence[side];
    cfg.epoch = 7;
    cfg.window_frames = s->o.window[side];
    cfg.frame_limit_bytes = s->o.frame_limit[side];
    cfg.suite = s->o.suite ? &sim_suite : NULL;
    cfg.hold_ms = s->o.hold_ms;
    if (sim_chance(&s->rng, 500)) { /* tight credits */
        for (unsigned c = 0; c < 3; c++) {
            cfg.rx.header[c] = cfg.tx.header[c] = 2 + sim_below(&s->rng, 6);
            cfg.rx.data[c] = cfg.tx.data[c] = 256 + sim_below(&s->rng, 64);
        }
        cfg.rx.header[DXPU_COMPLETION] = 80; /* room for a 4 KB read in 64-byte pieces */
        cfg.rx.data[DXPU_COMPLETION] = 320;
    }
    me->rid = DXPU_BDF(side, 0, 0);
    if (s->o.tags) {
        if (dxpu_tags_init(&me->tags, me->tag_entries, SIM_TAGS, me->rid, 0, DXPU_NEVER) != DXPU_OK)
            abort();
        cfg.tags = &me->tags;
    }
    size_t need = dxpu_channel_bytes(&cfg);
    me->mem = malloc(need);
    if (!me->mem || dxpu_channel_init(&me->ch, &cfg, me->mem, need) != DXPU_OK)
        abort();
    for (int c = 0; c < 4; c++) {
        me->log[c] = (sim_sent *)calloc(SIM_LOG, sizeof *me->log[c]);
        if (!me->log[c])
            abort();
    }
    me->to_submit = s->o.tlps;
    me->events_due = s->o.tlps / 50;
}

static void sim_teardown(sim *s)
{
    while (s->heap_len) {
        sim_packet p = sim_pop(s);
        free(p.bytes);
    }
    free(s->heap);
    for (int i = 0; i < 2; i++) {
        sim_side *me = &s->side[i];
        for (int c = 0; c < 4; c++) {
            for (uint32_t k = 0; k < me->logged[c]; k++)
                free(me->log[c][k].bytes);
            free(me->log[c]);
        }
        while (me->owed_head != me->owed_tail)
            free(me->owed[me->owed_head++ % SIM_LOG]);
        free(me->mem);
    }
}

/* The options that a seed stands for. */
static void sim_from_seed(sim_options *o, uint64_t seed)
{
    static const uint32_t windows[] = { 4, 16, 64, 256 };
    static const uint32_t limits[] = { 1232, 1233, 1235, 1452, 4096, 8972, 65507 };
    sim_rng r = { seed * 0x2545f4914f6cdd1du + 1 };
    memset(o, 0, sizeof *o);
    o->seed = seed;
    o->tlps = 150;
    o->loss = sim_chance(&r, 750) ? sim_below(&r, 150) : 0;
    o->dup = sim_chance(&r, 500) ? sim_below(&r, 100) : 0;
    o->corrupt = sim_chance(&r, 500) ? sim_below(&r, 50) : 0;
    o->delay_ns = 1000 + sim_below(&r, 50000);
    o->jitter_ns = sim_chance(&r, 500) ? sim_below(&r, 100000) : 0;
    bool alike = sim_chance(&r, 700);
    for (int i = 0; i < 2; i++) {
        o->window[i] = i && alike ? o->window[0] : windows[sim_below(&r, 4)];
        o->frame_limit[i] = i && alike ? o->frame_limit[0] : limits[sim_below(&r, 7)];
        if (o->frame_limit[i] > 10000 && o->window[i] > 16)
            o->window[i] = 16; /* 1 MB of reorder buffer is enough */
    }
    for (int i = 0; i < 2; i++)
        o->sequence[i] = sim_chance(&r, 500) ? 0u - sim_below(&r, 40) : (uint32_t)sim_next(&r);
    o->tags = sim_chance(&r, 700);
    o->refuse = sim_chance(&r, 500);
    o->hold_ms = sim_chance(&r, 500) ? 10000 : 1000;
    o->stop = sim_chance(&r, 200);
    o->suite = sim_chance(&r, 300);
    if (sim_chance(&r, 300)) { /* less than hold, with time for a retransmission after it */
        o->dark_from_ns = 1000000 + sim_below(&r, 3000000);
        o->dark_ns = sim_below(&r, (uint32_t)(o->hold_ms * 1000000ull / 20 * 9));
    }
}

/* Run to the end; s->why tells the first broken property.  Call sim_teardown() after. */
static void sim_run(sim *s, const sim_options *o)
{
    memset(s, 0, sizeof *s);
    s->o = *o;
    s->rng.s = o->seed;
    s->now_ns = 1000000;
    s->sabotage_in = o->sabotage == SIM_OWN ? 0 : 20 + sim_below(&s->rng, 20);
    sim_setup_side(s, 0);
    sim_setup_side(s, 1);
    if (dxpu_channel_open(&s->side[0].ch, s->now_ns) != DXPU_OK)
        abort();
    uint64_t give_up_ns = s->now_ns + 100000000000u;
    while (!s->why[0] && !sim_done(s)) {
        uint64_t t = s->heap_len ? s->heap[0].at_ns : DXPU_NEVER;
        for (int i = 0; i < 2; i++) {
            if (dxpu_channel_state(&s->side[i].ch) == DXPU_STATE_UP)
                t = dxpui_min64(t, s->side[i].next_app_ns);
            t = dxpui_min64(t, dxpu_channel_next_ns(&s->side[i].ch));
        }
        if (t == DXPU_NEVER || s->now_ns > give_up_ns) {
            sim_fail(s, "no progress", s->side[0].ch.state, s->side[1].ch.state);
            break;
        }
        s->now_ns = dxpui_max64(s->now_ns, t);
        while (s->heap_len && s->heap[0].at_ns <= s->now_ns) {
            sim_packet p = sim_pop(s);
            sim_arrive(s, &p);
        }
        for (int i = 0; i < 2; i++) {
            if (dxpu_channel_state(&s->side[i].ch) == DXPU_STATE_UP &&
                s->now_ns >= s->side[i].next_app_ns)
                sim_app(s, i);
            sim_emit(s, i);
        }
    }
    if (!s->why[0])
        sim_check_ledgers(s);
}

#endif
