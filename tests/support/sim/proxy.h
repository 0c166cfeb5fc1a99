/* The two programs at the ends, as far as a simulation needs them: who opens, accepts, replaces,
   contains, and the applications that submit and take.  Part of tests/support/sim/sim.h. */
#ifndef SIM_PROXY_H
#define SIM_PROXY_H

/* ---- connections ---- */

static inline void sim_config(sim *s, const sim_conn *c, dxpu_channel_config *cfg)
{
    static const uint16_t headers[DXPU_CLASSES] = { 64, 64, 256 };
    static const uint16_t units[DXPU_CLASSES] = { 1024, 64, 1024 };
    const sim_options *o = &s->o;
    dxpu_channel_config_default(cfg);
    cfg->local_id = c->id;
    cfg->sequence = o->sequence[c->end];
    cfg->epoch = sim_end_of(c)->epoch;
    cfg->window_frames = o->window[c->end];
    cfg->frame_limit_bytes = o->frame_limit[c->end];
    cfg->suite = o->suite ? &sim_suite : NULL;
    cfg->hold_ms = o->hold_ms;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) { /* room for all that a run submits at once */
        cfg->rx.header[i] = cfg->tx.header[i] = o->header_credits ? o->header_credits : headers[i];
        cfg->rx.data[i] = cfg->tx.data[i] = o->header_credits ? o->data_credits : units[i];
    }
    if (cfg->rx.header[DXPU_COMPLETION] < 80) /* room for a 4 KB read in 64-byte pieces */
        cfg->rx.header[DXPU_COMPLETION] = 80;
    if (cfg->rx.data[DXPU_COMPLETION] < 320)
        cfg->rx.data[DXPU_COMPLETION] = 320;
    cfg->paths = o->paths;
    cfg->spread = o->spread;
    cfg->lossless = o->lossless;
}

/* A new incarnation at one end; NULL when there have been too many. */
static inline sim_conn *sim_new_conn(sim *s, sim_pair *p, uint8_t end)
{
    sim_end *e = &p->end[end];
    dxpu_channel_config cfg;
    if (e->conns == SIM_CONNS)
        return NULL;
    sim_conn *c = (sim_conn *)calloc(1, sizeof *c);
    if (!c)
        abort();
    c->pair = p;
    c->end = end;
    c->number = (uint8_t)e->conns;
    do
        c->id = (uint32_t)sim_next(&s->rng);
    while (c->id == 0 || sim_find(&p->end[0], c->id) || sim_find(&p->end[1], c->id));
    e->conn[e->conns++] = c;
    c->wake_ns = c->app_ns = DXPU_NEVER;
    c->active = SIM_PATHS;
    /* incarnations have requesters of their own: none can be taken for another's */
    c->rid = DXPU_BDF(2 * c->number + end, 0, 0);
    c->to_submit = s->o.bulk_bytes && end == SIM_BOX ? 0 : s->o.tlps;
    c->events_due = s->o.bulk_bytes ? 0 : s->o.tlps / 50;
    c->reads_due = end == SIM_HOST ? s->o.reads : 0;
    sim_config(s, c, &cfg);
    if (s->o.tags) {
        if (dxpu_tags_init(&c->tags, c->tag_entries, SIM_TAGS, c->rid, 0, DXPU_NEVER) != DXPU_OK)
            abort();
        cfg.tags = &c->tags;
    }
    size_t need = dxpu_channel_bytes(&cfg);
    c->mem = need ? malloc(need) : NULL;
    if (!c->mem || dxpu_channel_init(&c->ch, &cfg, c->mem, need) != DXPU_OK)
        abort();
    c->heard_ns = sim_clock(s, c);
    return c;
}

static inline void sim_free_conn(sim_conn *c)
{
    for (int cls = 0; cls < 4; cls++) {
        for (uint32_t k = 0; k < c->logged[cls]; k++)
            free(c->log[cls][k].bytes);
        free(c->log[cls]);
    }
    while (c->owed_head != c->owed_tail)
        free(c->owed[c->owed_head++].bytes);
    free(c->owed);
    free(c->answers);
    free(c->mem);
    free(c);
}

/* ---- the application: submits ---- */

static inline bool sim_submit(sim *s, sim_conn *c, const uint8_t *bytes, size_t len)
{
    dxpu_bytes tlp = { bytes, len }, queued = tlp;
    dxpu_tlp_shape shape;
    dxpu_tlp t;
    if ((len & 4) && dxpu_tlp_measure(tlp, &shape) == DXPU_OK) { /* written in its place */
        uint8_t *place = dxpu_channel_reserve(&c->ch, shape.cls, len);
        if (place)
            queued.ptr = (const uint8_t *)memcpy(place, bytes, len);
    }
    int rc = dxpu_channel_submit(&c->ch, queued, sim_clock(s, c), c->requests);
    if (rc == DXPU_E_AGAIN || rc == DXPU_E_NO_TAG || rc == DXPU_E_TAG_BUSY)
        return false;
    if (rc != DXPU_OK) {
        sim_fail(s, dxpu_error_text(rc), 0, 0);
        return false;
    }
    if (s->o.bulk_bytes && c->reads_due == 0 && c->end == SIM_HOST)
        return true;
    rc = dxpu_tlp_decode(tlp, &t);
    if (rc != DXPU_OK)
        sim_fail(s, "submitted an invalid TLP", (uint32_t)-rc, 0);
    unsigned cls = dxpu_tlp_class(&t);
    sim_log(c, cls, bytes, len, &t);
    if (cls == DXPU_NONPOSTED) {
        sim_log_request(c);
        c->next_tag = (uint16_t)((c->next_tag + 1) % 1024);
    }
    return true;
}

static inline void sim_submit_bulk(sim *s, sim_conn *c)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    while (c->to_submit && s->now_ns >= c->bulk_due_ns) {
        size_t len = sim_numbered_write(c->rid, s->o.bulk_bytes, c->bulk_next, bytes);
        if (!sim_submit(s, c, bytes, len))
            return;
        c->bulk_next++;
        if (s->o.bulk_every_ns)
            c->bulk_due_ns = max64(c->bulk_due_ns, s->now_ns) + s->o.bulk_every_ns;
        if (c->to_submit != UINT32_MAX)
            c->to_submit--;
    }
}

static inline void sim_submit_reads(sim *s, sim_conn *c)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_tlp t;
    size_t len;
    while (c->reads_due) {
        memset(&t, 0, sizeof t);
        t.type = DXPU_TLP_MRD;
        t.header_dw = 3;
        t.requester = c->rid;
        t.tag = c->next_tag;
        t.length_dw = 16;
        t.first_be = t.last_be = 0xf;
        t.address = 0x20000;
        if (dxpu_tlp_encode(&t, bytes, sizeof bytes, &len) != DXPU_OK)
            abort();
        if (!sim_submit(s, c, bytes, len))
            return;
        c->reads_due--;
    }
}

static inline void sim_submit_event(sim *s, sim_conn *c)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_POWER_LIMIT;
    e.value = c->logged[SIM_CLASS_EVENT];
    if (dxpu_channel_submit_event(&c->ch, &e) == DXPU_OK) {
        sim_log(c, SIM_CLASS_EVENT, NULL, 0, NULL);
        c->events_due--;
    }
    (void)s;
}

/* A request waits in `draft` until it is taken, as a driver's would. */
static inline void sim_submit_random(sim *s, sim_conn *c)
{
    uint8_t payload[4096];
    for (uint32_t n = sim_below(&s->rng, 8); n && c->to_submit; n--) {
        dxpu_tlp t;
        if (!c->draft_len) {
            sim_random_tlp(&s->rng, c->rid, c->next_tag, &t, payload);
            int rc = dxpu_tlp_encode(&t, c->draft, sizeof c->draft, &c->draft_len);
            if (rc != DXPU_OK) {
                sim_fail(s, dxpu_error_text(rc), t.type, 0);
                return;
            }
        }
        c->blocked = !sim_submit(s, c, c->draft, c->draft_len);
        if (c->blocked)
            return;
        c->draft_len = 0;
        c->to_submit--;
    }
}

static inline void sim_submit_some(sim *s, sim_conn *c)
{
    c->blocked = false;
    while (c->owed_head != c->owed_tail) {
        sim_owed *o = &c->owed[c->owed_head];
        c->blocked = !sim_submit(s, c, o->bytes, o->len);
        if (c->blocked)
            break;
        free(o->bytes);
        c->owed_head++;
    }
    if (s->o.bulk_bytes) {
        sim_submit_reads(s, c);
        sim_submit_bulk(s, c);
        return;
    }
    sim_submit_random(s, c);
    if (c->events_due && (!c->to_submit || sim_chance(&s->rng, 100)))
        sim_submit_event(s, c);
}

/* ---- the application: takes ---- */

static inline void sim_owe(sim_conn *c, const dxpu_tlp *cpl)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    size_t len;
    if (dxpu_tlp_encode(cpl, bytes, sizeof bytes, &len) != DXPU_OK)
        abort();
    if (c->owed_tail == c->owed_room) {
        c->owed_room = 2 * c->owed_room + 64;
        c->owed = (sim_owed *)sim_grow(c->owed, c->owed_room * sizeof *c->owed);
    }
    sim_owed *o = &c->owed[c->owed_tail++];
    o->bytes = (uint8_t *)sim_grow(NULL, len);
    o->len = len;
    memcpy(o->bytes, bytes, len);
}

/* Answer a request as a completer does: reads in several completions. */
static inline void sim_answer(sim *s, sim_conn *c, dxpu_bytes tlp)
{
    dxpu_tlp req, cpl;
    uint8_t data[4096];
    uint64_t at;
    if (dxpu_tlp_decode(tlp, &req) != DXPU_OK) {
        sim_fail(s, "request does not decode", 0, 0);
        return;
    }
    uint16_t completer = (uint16_t)(c->rid + sim_below(&s->rng, 2));
    dxpu_tlp_completion(&req, completer, DXPU_CPL_SC, &cpl);
    sim_fill(&s->rng, data, cpl.length_dw * 4u);
    cpl.payload.ptr = data;
    if (req.type == DXPU_TLP_MRD) {
        dxpu_cpl_split split;
        uint32_t mps = 128u << sim_below(&s->rng, 3);
        sim_fill(&s->rng, data, req.length_dw * 4u);
        if (dxpu_cpl_split_start(&split, &req, 64, mps) != DXPU_OK)
            abort();
        while (dxpu_cpl_split_next(&split, &cpl, &at)) {
            cpl.payload.len = cpl.length_dw * 4u;
            sim_owe(c, &cpl);
        }
    } else {
        cpl.payload.len = cpl.length_dw * 4u;
        sim_owe(c, &cpl);
    }
}

/* Numbered writes come each once, in order, whole. */
static inline void sim_look_bulk(sim *s, sim_conn *c, dxpu_bytes tlp)
{
    uint64_t number = 0;
    memcpy(&number, tlp.ptr + 12, s->o.bulk_bytes < 8 ? s->o.bulk_bytes : 8);
    if (tlp.len != 12 + s->o.bulk_bytes || number != c->bulk_expected)
        sim_fail(s, "a numbered write lost, doubled or out of order", number, c->bulk_expected);
    c->bulk_expected++;
    c->bulk_taken_bytes += s->o.bulk_bytes;
    s->count.tlps++;
}

static inline void sim_take(sim *s, sim_conn *c, sim_conn *from, unsigned cls,
                            const dxpu_delivery *d)
{
    if (s->o.bulk_bytes && cls == DXPU_POSTED)
        sim_look_bulk(s, c, d->tlp);
    else
        sim_look(s, from, cls, d->tlp);
    dxpu_tlp_shape shape;
    if (dxpu_tlp_measure(d->tlp, &shape) != DXPU_OK || d->data.len != shape.payload_bytes ||
        d->data.ptr != d->tlp.ptr + shape.head_bytes)
        sim_fail(s, "a delivery whose data is not its payload", cls, d->data.len);
    if (s->trace && s->trace->text_wanted) {
        dxpu_tlp t;
        if (dxpu_tlp_decode_header(d->tlp, &t) == DXPU_OK)
            sim_say(s, sim_end_names[c->end], "takes %s", dxpu_tlp_type_name(t.type));
    }
    if (cls == DXPU_NONPOSTED)
        sim_answer(s, c, d->tlp);
    if (cls == DXPU_COMPLETION && s->o.tags && d->last)
        sim_check_answer(s, c, d->user);
    if (dxpu_channel_take(&c->ch, cls, sim_clock(s, c)) != DXPU_OK)
        sim_fail(s, "take refused what peek showed", cls, 0);
    if (sim_sabotage_due(s, SIM_LEDGER))
        c->ch.rx.granted.header[DXPU_POSTED]--;
}

static inline void sim_consume(sim *s, sim_conn *c)
{
    sim_conn *from = sim_peer(c);
    dxpu_event e;
    if (!from) {
        sim_fail(s, "up without a peer", c->id, c->ch.link.remote_id);
        return;
    }
    for (unsigned n = 0, idle = 0; idle < 3 && !s->why[0]; n++) {
        unsigned cls = n % 3;
        dxpu_delivery d = dxpu_channel_peek(&c->ch, cls);
        idle++;
        if (d.tlp.len == 0 || (cls == c->refused && s->now_ns < c->refuse_until_ns))
            continue;
        idle = 0;
        sim_take(s, c, from, cls, &d);
    }
    while (!s->why[0] && dxpu_channel_peek_event(&c->ch, &e)) {
        sim_check_event(s, from, &e);
        sim_say(s, sim_end_names[c->end], "takes %s", dxpu_event_name(e.type));
        dxpu_channel_take_event(&c->ch);
    }
}

/* ---- life and death ---- */

/* After the end of a channel every request that was not answered is named once. */
static inline void sim_contain(sim *s, sim_conn *c)
{
    dxpu_request r;
    while (dxpu_channel_contain(&c->ch, &r)) {
        if (sim_sabotage_due(s, SIM_FORGET))
            continue;
        sim_check_answer(s, c, r.user);
        if (sim_sabotage_due(s, SIM_AGAIN))
            sim_check_answer(s, c, r.user);
        s->count.contained++;
        sim_say(s, sim_end_names[c->end], "answers tag %u with Unsupported Request", r.tag);
    }
    if (s->o.tags && c->answered != c->requests)
        sim_fail(s, "containment left requests unanswered", c->requests, c->answered);
}

/* A channel may end by hold only when nothing valid came for that time, or no answer to its probes
   or to its close did, although both ends were up and the other one tried. */
static inline void sim_check_hold(sim *s, sim_conn *c, unsigned state)
{
    sim_conn *peer = sim_peer(c);
    bool up = state >= DXPU_STATE_UP && peer && peer->state >= DXPU_STATE_UP && !peer->over;
    s->count.deaths++;
    uint64_t now_ns = sim_clock(s, c), hold_ns = c->ch.link.hold_ns;
    if (now_ns - c->heard_ns < hold_ns && (!c->asked_ns || now_ns - c->asked_ns < hold_ns) &&
        (!c->closing_ns || now_ns - c->closing_ns < hold_ns))
        sim_fail(s, "ended by hold though frames came", now_ns - c->heard_ns, c->end);
    up = up && !peer->gone && now_ns - c->heard_ns >= hold_ns;
    if (up && !c->pair->clock_jumped && peer->sent - c->peer_sent < 3)
        sim_fail(s, "ended by hold though the other end hardly sent", peer->sent - c->peer_sent,
                 c->end);
}

static inline void sim_check_end(sim *s, sim_conn *c, unsigned was)
{
    int error = dxpu_channel_status(&c->ch).error;
    if (error == (was < DXPU_STATE_UP ? DXPU_E_NO_ANSWER : DXPU_E_DEAD))
        sim_check_hold(s, c, was);
    else if (error == DXPU_E_RESET && c->pair->reset_sent)
        s->count.resets++;
    else if ((error == DXPU_E_CLOSED || error == DXPU_E_PEER_CLOSED) && c->pair->closing)
        return;
    else
        sim_fail(s, dxpu_error_name(error), (uint64_t)-dxpu_channel_status(&c->ch).last_error,
                 c->end);
}

static inline void sim_over(sim *s, sim_conn *c, unsigned was)
{
    sim_check_end(s, c, was);
    sim_contain(s, c);
    c->over = true;
    sim_end *e = sim_end_of(c);
    if (e->live != c)
        return;
    e->live = NULL;
    if (c->end == SIM_HOST && !c->pair->closing)
        sim_schedule(s, SIM_EV_OPEN, s->now_ns + sim_below(&s->rng, 2000000), c->pair);
}

/* The application looks soon after something happened, or when a mood of it ends. */
static inline void sim_arm_app(sim *s, sim_conn *c, uint64_t in_ns)
{
    if (c->app_ns <= s->now_ns + in_ns)
        return;
    c->app_ns = s->now_ns + in_ns;
    sim_schedule(s, SIM_EV_APP, c->app_ns, c);
}

static inline void sim_service(sim *s, sim_conn *c);

/* D-49: the box lets the old one go when the new one has proved itself. */
static inline void sim_came_up(sim *s, sim_conn *c)
{
    sim_end *e = sim_end_of(c);
    for (uint32_t i = 0; i < e->conns; i++) {
        sim_conn *old = e->conn[i];
        if (old == c || old->gone || old->over || old->state < DXPU_STATE_UP)
            continue;
        s->count.replaced++;
        c->pair->reset_sent = true;
        dxpu_channel_reset(&old->ch, DXPU_REASON_REPLACED);
        sim_service(s, old);
    }
    e->live = c;
    sim_arm_app(s, c, 0);
}

static inline void sim_watch_state(sim *s, sim_conn *c)
{
    unsigned was = c->state;
    c->state = dxpu_channel_status(&c->ch).state;
    if (c->state == was)
        return;
    sim_say(s, sim_end_names[c->end], "is %s", dxpu_state_name(c->state));
    if (c->state == DXPU_STATE_UP)
        sim_came_up(s, c);
    if ((c->state == DXPU_STATE_CLOSED || c->state == DXPU_STATE_FAILED) && !c->over)
        sim_over(s, c, was);
}

static inline void sim_watch_paths(sim *s, sim_conn *c)
{
    unsigned active = SIM_PATHS;
    dxpu_path_info info;
    for (unsigned i = 0; dxpu_channel_path(&c->ch, i, &info) == DXPU_OK; i++) {
        if (info.active)
            active = i;
    }
    if (active == c->active || c->state != DXPU_STATE_UP)
        return;
    if (active == SIM_PATHS)
        sim_say(s, sim_end_names[c->end], "has no usable path");
    else if (s->o.paths > 1)
        sim_say(s, sim_end_names[c->end], "sends on path %u", active);
    if (c->active < SIM_PATHS && active < SIM_PATHS)
        *(active > c->active ? &c->left_ns : &c->returned_ns) = s->now_ns;
    c->active = active;
}

/* ---- frames ---- */

static inline void sim_transmit(sim *s, sim_conn *c, const uint8_t *bytes, size_t len, uint8_t path)
{
    sim_pair *p = c->pair;
    if (path >= s->o.paths) {
        sim_fail(s, "a frame for a path that is none", path, c->end);
        return;
    }
    if (c->end == SIM_HOST && c->state == DXPU_STATE_UP && sim_sabotage_due(s, SIM_STALL))
        c->mute = true;
    if (c->mute)
        return;
    sim_link *l = &p->link[1 - c->end][path];
    sim_event e;
    memset(&e, 0, sizeof e);
    e.what = p;
    e.to = (uint8_t)(1 - c->end);
    e.len = (uint32_t)len;
    c->sent++;
    if (bytes[DXPU_FRAME_KIND] == DXPU_KIND_RESET)
        p->reset_sent = true;
    const char *lost = sim_link_loses(l, &s->rng, bytes, len, &s->net);
    if (!lost && !sim_link_carry(l, &s->events, &s->rng, s->now_ns, e, bytes, &s->net))
        lost = "no room in the queue";
    sim_trace_sent(s, c, bytes, len, path, lost);
    sim_trace_capture(s, c, bytes, len, path);
    if (lost) {
        s->net.lost++;
        return;
    }
    p->under_way++;
    if (l->dup && sim_chance(&s->rng, l->dup) &&
        sim_link_carry(l, &s->events, &s->rng, s->now_ns, e, bytes, &s->net)) {
        s->net.doubled++;
        p->under_way++;
    }
}

/* A probe frame, readable or opened, with these flags. */
static inline bool sim_is_probe(const uint8_t *bytes, uint8_t flags)
{
    return bytes[DXPU_FRAME_KIND] == DXPU_KIND_PROBE && bytes[DXPU_FRAME_BASE_BYTES] == flags;
}

enum { SIM_SEGMENTS = 8 };

/* One frame, or several of one path and length side by side, of which the last may be shorter. */
static inline int sim_emit(sim *s, sim_conn *c, uint8_t *out, uint8_t *path, size_t *segment)
{
    size_t limit = c->ch.cfg.frame_limit_bytes;
    if (s->o.many)
        return dxpu_channel_emit_many(&c->ch, sim_clock(s, c), out, SIM_SEGMENTS * limit, path,
                                      segment);
    int n = dxpu_channel_emit(&c->ch, sim_clock(s, c), out, limit, path);
    *segment = n > 0 ? (size_t)n : 0;
    return n;
}

/* Send one of them. */
static inline void sim_send_segment(sim *s, sim_conn *c, const uint8_t *frame, size_t bytes,
                                    uint8_t path, bool first)
{
    if (dxpu_get_be16(frame + DXPU_FRAME_LENGTH) != bytes || frame[DXPU_FRAME_PATH] != path ||
        (!first && frame[DXPU_FRAME_KIND] != DXPU_KIND_DATA))
        sim_fail(s, "segments are not alike", bytes, path);
    s->count.segments += !first;
    if (!c->asked_ns && frame[DXPU_FRAME_KIND] == DXPU_KIND_PROBE)
        c->asked_ns = sim_clock(s, c);
    sim_transmit(s, c, frame, bytes, path);
}

/* Send what is due, see what became of the channel, arm its next timer. */
static inline void sim_service(sim *s, sim_conn *c)
{
    static uint8_t out[SIM_SEGMENTS * DXPU_FRAME_MAX_LIMIT_BYTES];
    uint8_t path;
    size_t segment, all;
    int n = 0;
    if (c->gone)
        return;
    for (unsigned frames = 0; (n = sim_emit(s, c, out, &path, &segment)) > 0; frames++) {
        all = (size_t)n;
        if (!c->closing_ns && dxpu_channel_status(&c->ch).state == DXPU_STATE_CLOSING)
            c->closing_ns = sim_clock(s, c);
        for (size_t at = 0, bytes; at < all; at += bytes) {
            bytes = all - at < segment ? all - at : segment;
            sim_send_segment(s, c, out + at, bytes, path, at == 0);
        }
        if (frames > 100000) {
            sim_fail(s, "emits without end", c->end, c->state);
            break;
        }
    }
    sim_watch_state(s, c);
    sim_watch_paths(s, c);
    uint64_t next = dxpu_channel_next_ns(&c->ch), skew = sim_end_of(c)->skew_ns;
    if (next == DXPU_NEVER || s->why[0])
        return;
    if (next <= sim_clock(s, c) && !s->why[0]) {
        sim_fail(s, "something is due though emit gave nothing", c->end, c->state);
        return;
    }
    next -= skew;
    if (next < c->wake_ns) {
        c->wake_ns = next;
        sim_schedule(s, SIM_EV_WAKE, next, c);
    }
}

static inline void sim_open(sim *s, sim_pair *p)
{
    sim_end *host = &p->end[SIM_HOST];
    if (host->live || p->closing)
        return;
    if (host->conns && sim_chance(&s->rng, 500))
        host->epoch++;
    sim_conn *c = sim_new_conn(s, p, SIM_HOST);
    if (!c || dxpu_channel_open(&c->ch, sim_clock(s, c)) != DXPU_OK) {
        sim_fail(s, "too many incarnations", host->conns, p->end[SIM_BOX].conns);
        return;
    }
    s->count.incarnations++;
    host->live = c;
    sim_service(s, c);
}

/* What an open frame offers; false when it cannot be read. */
static inline bool sim_read_open(const sim *s, const uint8_t *bytes, size_t len, dxpu_offer *o)
{
    uint8_t copy[DXPU_FRAME_MAX_LIMIT_BYTES];
    dxpu_bytes datagram = { copy, len };
    dxpu_frame f;
    memcpy(copy, bytes, len);
    size_t trailer = s->o.suite ? (size_t)SIM_TAG_BYTES : (size_t)DXPU_FRAME_CRC_BYTES;
    if (dxpu_frame_decode(datagram, trailer, &f) != DXPU_OK || f.kind != DXPU_KIND_OPEN)
        return false;
    if (s->o.suite) {
        dxpu_bytes head = { copy, (size_t)(f.body.ptr - copy) };
        if (!sim_suite_open(NULL, f.key_phase, f.packet, head, copy + head.len, f.body.len))
            return false;
    } else if (dxpu_frame_check_crc(datagram) != DXPU_OK) {
        return false;
    }
    return dxpu_offer_decode(f.body, o) == DXPU_OK;
}

/* An open frame at the box: for one that it has, or for a new one.  NULL: refused. */
static inline sim_conn *sim_authorize(sim *s, sim_pair *p, uint8_t *bytes, size_t len)
{
    sim_end *box = &p->end[SIM_BOX];
    dxpu_offer o;
    if (!sim_read_open(s, bytes, len, &o))
        return NULL;
    for (uint32_t i = 0; i < box->conns; i++) {
        if (box->conn[i]->ch.link.remote_id == o.channel && !box->conn[i]->gone &&
            !box->conn[i]->over)
            return box->conn[i];
    }
    if (o.epoch < box->epoch)
        return NULL; /* fenced: its opener ends by hold, if it runs at all */
    sim_conn *opener = sim_find(&p->end[SIM_HOST], o.channel);
    s->count.late_opens += !opener || opener->over || opener->gone;
    box->epoch = o.epoch;
    sim_say(s, "box", "< OPEN of %zu bytes", len);
    sim_conn *c = sim_new_conn(s, p, SIM_BOX);
    if (c && dxpu_channel_accept(&c->ch, sim_clock(s, c), bytes, len) != DXPU_OK)
        sim_fail(s, "an authorized open was not accepted", c->id, o.channel);
    if (c) {
        c->heard_ns = sim_clock(s, c);
        sim_service(s, c);
    }
    return NULL; /* accept() has used the frame */
}

static inline void sim_arrive(sim *s, sim_event *e)
{
    sim_pair *p = (sim_pair *)e->what;
    dxpu_bytes datagram = { e->bytes, e->len };
    uint8_t kind = 0;
    uint32_t id = 0;
    sim_conn *c = NULL;
    p->under_way--;
    if (dxpu_frame_peek(datagram, &kind, &id) == DXPU_OK)
        c = kind != DXPU_KIND_OPEN ? sim_find(&p->end[e->to], id)
            : e->to == SIM_BOX     ? sim_authorize(s, p, e->bytes, e->len)
                                   : NULL;
    if (c && (c->gone || c->over) && kind != DXPU_KIND_OPEN)
        s->count.old_frames++;
    if (c && !c->gone) {
        dxpu_counters before = c->ch.count;
        int rc = dxpu_channel_ingest(&c->ch, sim_clock(s, c), e->bytes, e->len,
                                     e->ecn ? DXPU_RX_ECN_CE : 0);
        sim_trace_arrived(s, c, e->bytes, e->len, rc, &before);
        if (rc == DXPU_OK) {
            const sim_conn *peer = sim_peer(c);
            c->heard_ns = sim_clock(s, c);
            if (sim_is_probe(e->bytes, DXPU_PROBE_REPLY))
                c->asked_ns = 0;
            c->peer_sent = peer ? peer->sent : 0;
        }
        if (c->state == DXPU_STATE_UP && sim_sabotage_due(s, SIM_GIVE_UP)) {
            c->ch.link.heard_ns -= c->ch.link.hold_ns;
            c->ch.link.look_ns = 0;
        }
        sim_service(s, c);
    }
    free(e->bytes);
    e->bytes = NULL;
    if (sim_is_up(c))
        sim_arm_app(s, c, s->o.eager ? 0 : 1000 + sim_below(&s->rng, 20000));
}

#endif
