/* What must hold.  Each incarnation remembers what it submitted; what the other end takes is
   compared with that, and at rest the books of both ends are.  Only this file and its last
   function look into dxpu_channel.  Part of tests/support/sim/sim.h. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

/* ---- what was submitted ---- */

/* `t` is NULL for a link event. */
static inline void sim_log(sim_conn *c, unsigned cls, const uint8_t *bytes, size_t len,
                           const dxpu_tlp *t)
{
    if (c->logged[cls] == c->log_room[cls]) {
        c->log_room[cls] = 2 * c->log_room[cls] + 64;
        c->log[cls] = (sim_sent *)sim_grow(c->log[cls], c->log_room[cls] * sizeof *c->log[cls]);
    }
    sim_sent *e = &c->log[cls][c->logged[cls]++];
    memset(e, 0, sizeof *e);
    e->order = c->order++;
    e->len = (uint16_t)len;
    if (!t)
        return;
    e->id = cls == DXPU_COMPLETION ? t->completer : t->requester;
    e->may_pass = (t->attr & DXPU_ATTR_RO) &&
                  (cls == DXPU_COMPLETION || (cls == DXPU_NONPOSTED && t->payload.len));
    e->by_id = (t->attr & DXPU_ATTR_IDO) != 0;
    e->bytes = (uint8_t *)sim_grow(NULL, len);
    memcpy(e->bytes, bytes, len);
}

/* A request was submitted: it must be answered once.  Its number is its `user`. */
static inline void sim_log_request(sim_conn *c)
{
    if (c->requests == c->answers_room) {
        c->answers_room = 2 * c->answers_room + 64;
        c->answers = (uint8_t *)sim_grow(c->answers, c->answers_room);
    }
    c->answers[c->requests++] = 0;
}

/* ---- what comes out ---- */

/* D-34: the posted ones that were submitted before `e` and have not come. */
static inline void sim_check_passed(sim *s, sim_conn *from, unsigned cls, const sim_sent *e)
{
    const sim_sent *posted = from->log[DXPU_POSTED];
    uint32_t i = from->seen[DXPU_POSTED];
    bool passed = i < from->logged[DXPU_POSTED] && posted[i].order < e->order;
    for (; i < from->logged[DXPU_POSTED] && posted[i].order < e->order; i++) {
        if (!e->by_id || posted[i].id == e->id)
            sim_fail(s, "passed a posted TLP, class", cls, i);
    }
    s->count.by_id += passed;
}

/* Compare one delivery with what the other side submitted, and its place among the posted. */
static inline void sim_check(sim *s, sim_conn *from, unsigned cls, dxpu_bytes tlp)
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

/* True when the next two of a class can be distinguished. */
static inline bool sim_differ(const sim_conn *from, unsigned cls)
{
    const sim_sent *e = &from->log[cls][from->seen[cls]];
    return from->seen[cls] + 1 < from->logged[cls] &&
           (e[0].len != e[1].len || memcmp(e[0].bytes, e[1].bytes, e[0].len) != 0);
}

/* A delivery, through the hands of the control. */
static inline void sim_look(sim *s, sim_conn *from, unsigned cls, dxpu_bytes tlp)
{
    uint8_t copy[DXPU_TLP_MAX_BYTES];
    dxpu_bytes view = { copy, tlp.len };
    memcpy(copy, tlp.ptr, tlp.len);
    s->count.tlps++;
    if (from->seen[cls] >= from->logged[cls]) {
        sim_fail(s, "delivered more than was sent, class", cls, from->seen[cls]);
        return;
    }
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
    if (from->seen[cls] >= from->logged[cls]) { /* the control has doubled the last */
        sim_check(s, from, cls, view);
        return;
    }
    uint32_t posted = from->seen[DXPU_POSTED];
    const sim_sent *e = &from->log[cls][from->seen[cls]];
    if (cls != DXPU_POSTED && !e->may_pass && e->order && posted < from->logged[DXPU_POSTED] &&
        sim_sabotage_due(s, e->by_id ? SIM_OWN : SIM_PASS)) {
        from->log[DXPU_POSTED][posted].order = 0; /* as if it had been sent first of all */
        if (e->by_id)
            from->log[DXPU_POSTED][posted].id = e->id;
    }
    const sim_conn *old = from->number ? sim_end_of(from)->conn[from->number - 1] : NULL;
    if (old && old->logged[cls] > from->seen[cls] && sim_sabotage_due(s, SIM_OLD)) {
        view.ptr = old->log[cls][from->seen[cls]].bytes;
        view.len = old->log[cls][from->seen[cls]].len;
    }
    sim_check(s, from, cls, view);
}

static inline void sim_check_event(sim *s, sim_conn *from, const dxpu_event *e)
{
    uint32_t i = from->seen[SIM_CLASS_EVENT]++;
    if (i >= from->logged[SIM_CLASS_EVENT] || e->value != i) {
        sim_fail(s, "link event lost, doubled or out of order", i, e->value);
        return;
    }
    uint32_t order = from->log[SIM_CLASS_EVENT][i].order;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (from->seen[cls] < from->logged[cls] && from->log[cls][from->seen[cls]].order < order)
            sim_fail(s, "link event passed a TLP, class", cls, i);
    }
}

/* One answer to request `user`: its last completion, or Unsupported Request by containment. */
static inline void sim_check_answer(sim *s, sim_conn *c, uint64_t user)
{
    if (user >= c->requests)
        sim_fail(s, "an answer to what was not asked", user, c->requests);
    else if (c->answers[user]++)
        sim_fail(s, "a request was answered twice", user, c->end);
    else
        c->answered++;
}

/* ---- the books ---- */

/* In one direction: what `a` used is what `b` granted, and nothing is under way. */
static inline void sim_check_direction(sim *s, const sim_conn *from, const sim_conn *to)
{
    const dxpu_channel *a = &from->ch, *b = &to->ch;
    for (unsigned c = 0; c < DXPU_CLASSES; c++) {
        if (a->tx.queue[c].count || a->tx.queue[c].data_used || a->rx.queue[c].count ||
            a->rx.queue[c].data_used)
            sim_fail(s, "a queue is not empty, class", c, from->end);
        if (s->o.tags && c == DXPU_COMPLETION)
            continue;
        if (a->tx.used.header[c] + b->cfg.rx.header[c] != b->rx.granted.header[c] ||
            a->tx.used.data[c] + b->cfg.rx.data[c] != b->rx.granted.data[c])
            sim_fail(s, "credit ledgers differ, class", c, from->end);
        /* the frame with the last limits may have been lost: then they are lower */
        if (ahead32(a->tx.limits.header[c], b->rx.granted.header[c]) ||
            ahead32(a->tx.limits.data[c], b->rx.granted.data[c]))
            sim_fail(s, "credit that was never given, class", c, from->end);
    }
    if (a->flight.lost || a->flight.una != a->flight.next || a->rx.early ||
        a->rx.next != b->flight.next)
        sim_fail(s, "a frame is still under way", from->end, a->flight.lost);
    for (unsigned p = 0; p < s->o.paths; p++) {
        dxpu_path_info info;
        if (dxpu_channel_path(a, p, &info) == DXPU_OK && info.in_flight_bytes)
            sim_fail(s, "bytes in flight on a quiet path", p, info.in_flight_bytes);
    }
}

static inline void sim_check_books(sim *s, sim_pair *p)
{
    for (int i = 0; i < 2; i++) {
        const sim_conn *c = p->end[i].live;
        sim_check_direction(s, c, p->end[1 - i].live);
        const dxpu_tags *t = &c->tags;
        if (s->o.tags && (t->in_flight || t->reserve_header || t->reserve_data))
            sim_fail(s, "tags or room still reserved", t->in_flight, t->reserve_data);
        if (s->o.tags && c->answered != c->requests)
            sim_fail(s, "requests without their completions", c->requests, c->answered);
    }
}

/* Nothing waits to be acknowledged, reported or taken. */
enum { SIM_WAITS = DXPU_WANTS_SUBMIT_POSTED - DXPU_WANTS_TAKE_POSTED };
static inline bool sim_quiet(const sim *s, const sim_conn *c)
{
    return !(dxpu_channel_wants(&c->ch, sim_clock(s, c)) & SIM_WAITS) && !c->ch.rx.ack_now &&
           c->ch.rx.ack_at_ns == DXPU_NEVER;
}

#endif
