/* fabric.c - see fabric.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* getrandom */
#endif
#include "fabric_internal.h"
#include "log.h"
#include "dxpu_zlib.h"
#include "sandbox.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>

enum { IP4_UDP_BYTES = 28, IP6_UDP_BYTES = 48 };

/* An open arrives padded to what its sender takes, which may be more than we do. */
enum { DATAGRAM_BYTES = 9216 };

/* Queues: TLPs for each frame of the window, up to a window of WINDOW_MAX; the least data units,
   for a TLP of 4 KB and more behind it; requests that wait for an answer. */
enum { TLPS_A_FRAME = 8, WINDOW_MAX = 256, UNITS_MIN = 1024, REQUESTS = 256 };
/* sessions whose open has not arrived */
enum { PENDING_MIN = 16, PENDING_MAX = 256 };
/* While any channel has turns, all have one this often, whatever is known of them. */
enum { ALL_NS = 5000000 };

/* ==== Memory and ids ========================================================================== */

uint32_t fabric_random(void)
{
    uint32_t v = 0;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v) {
        log_error("cannot get random numbers from the kernel: %s", strerror(errno));
        abort(); /* predictable ids would let an old incarnation's frames in */
    }
    return v;
}

/* A fresh id for the channel at this place. */
uint32_t fabric_id_at(uint32_t index)
{
    uint32_t id;
    do {
        id = (fabric_random() & ~(uint32_t)FABRIC_INDEX_MASK) | index;
    } while (!id);
    return id;
}

/* Take a place out of those that are free. */
void fabric_take_place(fabric *f, uint32_t index)
{
    unsigned n = 0;
    while (f->free_list[(f->free_head + n) % f->capacity] != index)
        n++;
    for (; n; n--) /* those before keep their order */
        f->free_list[(f->free_head + n) % f->capacity] =
            f->free_list[(f->free_head + n - 1) % f->capacity];
    f->free_head = (f->free_head + 1) % f->capacity;
    f->free_count--;
}

/* A channel of this configuration, which is completed, with this id; its place is free.  NULL when
   there is no memory. */
fabric_channel *fabric_channel_at(fabric *f, uint32_t id, dxpu_channel_config *cfg)
{
    fabric_channel *c;
    size_t bytes = dxpu_channel_bytes(cfg);
    if (!bytes)
        return NULL;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->mem = malloc(bytes);
    c->id = id;
    cfg->local_id = id;
    cfg->sequence = fabric_random();
    if (!c->mem || dxpu_channel_init(&c->ch, cfg, c->mem, bytes) != DXPU_OK) {
        free(c->mem);
        free(c);
        return NULL;
    }
    fabric_take_place(f, id & FABRIC_INDEX_MASK);
    f->channels[id & FABRIC_INDEX_MASK] = c;
    c->live_at = f->live_count;
    f->due_ns[f->live_count] = 0;
    f->live[f->live_count++] = c;
    return c;
}

/* One more, at the place that has been free for longest.  NULL when there is no room. */
static fabric_channel *channel_new(fabric *f, dxpu_channel_config *cfg)
{
    return f->free_count ? fabric_channel_at(f, fabric_id_at(f->free_list[f->free_head]), cfg)
                         : NULL;
}

void fabric_channel_free(fabric *f, fabric_channel *c)
{
    uint32_t index = c->id & FABRIC_INDEX_MASK;
    counters_add(&f->ended, &c->ch.count);
    f->channels[index] = NULL;
    f->live[c->live_at] = f->live[--f->live_count];
    f->due_ns[c->live_at] = f->due_ns[f->live_count];
    f->live[c->live_at]->live_at = c->live_at;
    f->free_list[(f->free_head + f->free_count++) % f->capacity] = index;
    f->up -= c->up && !c->ended;
    if (c->session)
        dxpu_sodium_end(c->session);
    free(c->mem);
    free(c);
}

fabric_channel *fabric_channel_by_id(const fabric *f, uint32_t id)
{
    uint32_t index = id & FABRIC_INDEX_MASK;
    fabric_channel *c = index < f->capacity ? f->channels[index] : NULL;
    return c && c->id == id ? c : NULL;
}

/* ==== Datagrams ===============================================================================
   All sending goes through send_frame() and send_segments(), so that --frames sees it. */

static void record_frame(fabric *f, const dxpu_udp_address *from, const dxpu_udp_address *to,
                         const uint8_t *frame, size_t len)
{
    dxpu_bytes bytes = { frame, len };
    recorder_frame(f->frames, &from->u.any, &to->u.any, bytes);
}

static void send_frame(fabric *f, const dxpu_udp_path *to, const uint8_t *frame, size_t len)
{
    if (f->frames->writer)
        record_frame(f, dxpu_udp_local(f->udp, to->socket), &to->remote, frame, len);
    dxpu_udp_commit(f->udp, to, len);
}

static void refuse(fabric *f, const dxpu_udp_path *to, uint32_t channel, uint8_t reason)
{
    uint8_t frame[64];
    size_t len = dxpu_reset_encode(channel, reason, frame);
    f->count.opens_refused++;
    memcpy(dxpu_udp_room(f->udp), frame, len);
    send_frame(f, to, frame, len);
}

/* ==== Opening ================================================================================= */

int fabric_route(const fabric *f, const dxpu_udp_address *box, unsigned count, dxpu_udp_path *out)
{
    unsigned sockets = dxpu_udp_sockets(f->udp);
    for (unsigned i = 0; i < count; i++) {
        unsigned s = i;
        if (s >= sockets || dxpu_udp_local(f->udp, s)->u.any.sa_family != box[i].u.any.sa_family) {
            for (s = 0; s < sockets; s++) {
                if (dxpu_udp_local(f->udp, s)->u.any.sa_family == box[i].u.any.sa_family)
                    break;
            }
        }
        if (s == sockets)
            return DXPU_E_NONE;
        out[i].socket = s;
        out[i].remote = box[i];
        for (unsigned j = 0; j < i; j++) {
            if (out[j].socket == s && dxpu_udp_same(&out[j].remote, &box[i]))
                return DXPU_E_ARG;
        }
    }
    return DXPU_OK;
}

/* ==== Keys: who opens ========================================================================= */

enum { ASK_FIRST_NS = 50000000 }; /* then twice as long each time */

/* How long to wait for an answer to the nth initiation; a short hold has time for some, too. */
uint64_t fabric_ask_gap_ns(const fabric *f, unsigned n)
{
    uint64_t hold_ns = f->base.hold_ms * 1000000ull, gap_ns = hold_ns / 8;
    if (gap_ns > ASK_FIRST_NS)
        gap_ns = ASK_FIRST_NS;
    while (n-- && gap_ns < hold_ns / 4)
        gap_ns *= 2;
    return gap_ns;
}

/* The next initiation, if one is due; or, after silence for the hold time, the end. */
static void ask(fabric *f, fabric_channel *c, uint64_t now)
{
    uint8_t *room = dxpu_udp_room(f->udp), path = 0;
    int n;
    if (now - c->born_ns >= f->base.hold_ms * 1000000ull) {
        c->asking = false; /* as an unanswered open: no frame of it is left to send */
        (void)dxpu_channel_open(&c->ch, c->born_ns);
        (void)dxpu_channel_emit(&c->ch, now, room, f->base.frame_limit_bytes, &path);
        return;
    }
    if (now < c->ask_ns || dxpu_channel_status(&c->ch).state != DXPU_STATE_IDLE)
        return;
    n = dxpu_sodium_initiate(c->session, now, keys_wall_ns(f->keys), room,
                             f->base.frame_limit_bytes);
    if (n <= 0) { /* an invalid public key */
        dxpu_channel_reset(&c->ch, DXPU_REASON_PROTOCOL);
        return;
    }
    path = (uint8_t)(c->asked % c->ch.cfg.paths); /* in turn, as an open */
    send_frame(f, &c->paths.path[path].at, room, (size_t)n);
    c->ask_ns = now + fabric_ask_gap_ns(f, c->asked++);
}

/* A session for a channel that is to be opened; false when there is no room. */
static bool ask_for_keys(fabric *f, fabric_channel *c, const uint8_t *key, uint64_t now)
{
    dxpu_sodium_request r;
    memset(&r, 0, sizeof r);
    r.channel = c->id;
    r.version_min = r.version_max = DXPU_WIRE_VERSION;
    r.epoch = c->ch.cfg.epoch;
    r.source = c->ch.cfg.local;
    r.destination = c->ch.cfg.remote;
    c->session = dxpu_sodium_begin(f->sealing.end, key, &r);
    if (!c->session)
        return false;
    dxpu_sodium_set_user(c->session, c);
    c->asking = true;
    c->ask_ns = now;
    ask(f, c, now);
    return true;
}

/* The box has answered: open the channel with the keys, or end it with its reason. */
static void on_answer(fabric_channel *c, uint64_t now)
{
    dxpu_channel_config cfg = c->ch.cfg;
    if (!c->asking || dxpu_channel_status(&c->ch).state != DXPU_STATE_IDLE)
        return; /* it was ended meanwhile */
    c->asking = false;
    if (dxpu_sodium_state(c->session) != DXPU_SODIUM_KEYED) {
        dxpu_channel_reset(&c->ch, dxpu_sodium_reason(c->session));
        return;
    }
    cfg.suite = dxpu_sodium_suite(c->session);
    cfg.suite_user = c->session;
    /* a longer trailer needs no more memory */
    if (dxpu_channel_init(&c->ch, &cfg, c->mem, dxpu_channel_bytes(&cfg)) != DXPU_OK ||
        dxpu_channel_open(&c->ch, now) != DXPU_OK)
        dxpu_channel_reset(&c->ch, DXPU_REASON_OFFER);
}

fabric_channel *fabric_dial(fabric *f, const dxpu_channel_config *cfg, const uint8_t *key,
                            const dxpu_udp_path *path, unsigned count, uint64_t now_ns)
{
    dxpu_channel_config full = f->base;
    fabric_channel *c;
    bool sealed = f->sealing.end != NULL;
    full.paths = (uint8_t)count;
    full.epoch = cfg->epoch;
    full.local = cfg->local;
    full.remote = cfg->remote;
    full.tags = cfg->tags;
    c = channel_new(f, &full);
    if (!c)
        return NULL;
    c->born_ns = now_ns;
    for (unsigned i = 0; i < count; i++) {
        c->paths.path[i].known = true;
        c->paths.path[i].at = path[i];
    }
    f->count.opens_sent++;
    if (sealed ? !key || !ask_for_keys(f, c, key, now_ns)
               : dxpu_channel_open(&c->ch, now_ns) != DXPU_OK) {
        fabric_channel_free(f, c);
        return NULL;
    }
    return c;
}

/* ==== Opens =================================================================================== */

/* The channel that an open repeated by the network or the opener belongs to.  It may come from
   anywhere: the opener tries its paths in turn. */
static fabric_channel *channel_of_open(const fabric *f, const dxpu_offer *o)
{
    for (unsigned i = 0; i < f->live_count; i++) {
        fabric_channel *c = f->live[i];
        if (c->accepted && dxpu_acceptor_repeats(&c->ch, c->remote_id, o))
            return c;
    }
    return NULL;
}

/* The channel took a frame on a path: where that path is, see fabric.h. */
static void learn_path(fabric_channel *c, const uint8_t *frame, size_t len,
                       const dxpu_udp_path *from, uint64_t now)
{
    dxpu_bytes bytes = { frame, len };
    bool newest = dxpu_channel_status(&c->ch).newest;
    fabric_path *p;
    unsigned what;
    if (frame[DXPU_FRAME_PATH] >= c->ch.cfg.paths)
        return;
    p = &c->paths.path[frame[DXPU_FRAME_PATH]];
    p->rx_frames++;
    if (!c->accepted)
        return;
    what = dxpu_validation_arrived(&p->validation, bytes, newest,
                                   dxpu_udp_same(&p->at.remote, &from->remote),
                                   dxpu_udp_same(&p->valid_at, &from->remote), now);
    p->moves += (what & DXPU_VALIDATION_MOVED) && p->known;
    p->known = p->validation.known;
    if (newest)
        p->at = *from;
    if (what & DXPU_VALIDATION_VALID)
        p->valid_at = p->at.remote;
}

/* P-27: who forwards a frame of the opener from another's address brings that one three times as
   much, and no more. */
static bool may_send(const fabric_channel *c, fabric_path *p, const uint8_t *frame, size_t len)
{
    dxpu_bytes bytes = { frame, len };
    bool may = !c->accepted || dxpu_validation_may_send(&p->validation, bytes);
    p->held_back += !may;
    return may;
}

/* May a channel make room for one that is opened here?  Those that the program dials are its own:
   it refers to them from fabric_dial() until down(), which they reach within the hold time. */
static bool is_replaceable(const fabric_channel *c)
{
    return c->ended || (c->accepted && !c->up);
}

/* When the table is full, the oldest open that never came up makes room. */
static void make_room(fabric *f)
{
    fabric_channel *oldest = NULL;
    if (f->free_count)
        return;
    for (unsigned i = 0; i < f->live_count; i++) {
        fabric_channel *c = f->live[i];
        if (is_replaceable(c) && (!oldest || c->born_ns < oldest->born_ns))
            oldest = c;
    }
    if (oldest)
        fabric_channel_free(f, oldest);
}

/* The channel that an open begins; NULL: there is none, or it was refused. */
static void accept_open(fabric *f, fabric_channel *c, const dxpu_offer *offer, uint8_t *buf,
                        size_t len, const dxpu_udp_path *from, uint64_t now)
{
    int rc;
    c->accepted = true;
    c->remote_id = offer->channel;
    c->slot = offer->destination.slot;
    c->born_ns = now;
    rc = dxpu_channel_accept(&c->ch, now, buf, len);
    if (rc != DXPU_OK) {
        if (!c->session)
            refuse(f, from, offer->channel, dxpu_acceptor_reason(rc));
        fabric_channel_free(f, c);
        return;
    }
    learn_path(c, buf, len, from, now);
    f->count.opens_accepted++;
}

/* What a channel is to be whose open says this. */
static dxpu_channel_config config_of(const fabric *f, const dxpu_offer *offer)
{
    dxpu_channel_config cfg = f->base;
    cfg.paths = DXPU_PATHS_MAX;
    cfg.epoch = offer->epoch;
    cfg.local = offer->destination;
    cfg.remote = offer->source;
    return cfg;
}

static void repeated_open(fabric *f, fabric_channel *c, uint8_t *buf, size_t len,
                          const dxpu_udp_path *from, uint64_t now)
{
    f->count.opens_repeated++;
    if (dxpu_channel_ingest(&c->ch, now, buf, len, 0) == DXPU_OK)
        learn_path(c, buf, len, from, now);
}

/* With --plain. */
static void on_plain_open(fabric *f, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                          uint64_t now)
{
    dxpu_bytes datagram = { buf, len };
    dxpu_channel_config cfg;
    dxpu_offer offer;
    fabric_channel *c;
    uint8_t reason;
    if (!f->cb.authorize || dxpu_acceptor_open(datagram, DXPU_PATHS_MAX, &offer) != DXPU_OK) {
        f->count.bad_opens++;
        return;
    }
    c = channel_of_open(f, &offer);
    if (c) {
        repeated_open(f, c, buf, len, from, now);
        return;
    }
    cfg = config_of(f, &offer);
    reason = f->cb.authorize(f->cb.user, &offer, NULL, &cfg);
    if (reason == DXPU_REASON_NONE) {
        make_room(f);
        c = channel_new(f, &cfg);
        if (!c)
            reason = DXPU_REASON_BUSY;
    }
    if (reason != DXPU_REASON_NONE)
        refuse(f, from, offer.channel, reason);
    else
        accept_open(f, c, &offer, buf, len, from, now);
}

/* ==== Keys: who is asked ====================================================================== */

/* A place for a channel that may come; nothing is done for it yet (S-14).  Free ones go first, then
   those of incarnations that are over, then of those that never came up; and before all that, those
   that were not promised lately: as many handshakes as are pending get a place each. */
static bool promise_place(fabric *f, uint32_t *index)
{
    unsigned best = UINT_MAX, age = 0;
    for (unsigned i = 0; i < f->capacity; i++) {
        const fabric_channel *c = f->channels[i];
        unsigned since = f->promised - f->promise[i], rank = 0;
        if (c && !is_replaceable(c))
            continue;
        if (c)
            rank = c->ended ? 1 : 2;
        if (f->promise[i] && since < f->pending)
            rank += 3;
        if (rank > best || (rank == best && since <= age))
            continue;
        best = rank;
        age = since;
        *index = i;
    }
    if (best == UINT_MAX)
        return false;
    f->promise[*index] = ++f->promised;
    return true;
}

/* sealing_callbacks.authorize */
static uint8_t on_request(void *user, const uint8_t *key, const dxpu_sodium_request *request,
                          uint32_t *channel)
{
    fabric *f = user;
    dxpu_channel_config cfg;
    dxpu_offer offer;
    uint32_t index = 0;
    uint8_t reason;
    memset(&offer, 0, sizeof offer);
    offer.channel = request->channel;
    offer.epoch = request->epoch;
    offer.source = request->source;
    offer.destination = request->destination;
    cfg = config_of(f, &offer);
    reason = f->cb.authorize(f->cb.user, &offer, key, &cfg);
    if (reason == DXPU_REASON_NONE && !promise_place(f, &index))
        reason = DXPU_REASON_BUSY;
    if (reason == DXPU_REASON_NONE)
        *channel = fabric_id_at(index);
    else
        f->count.opens_refused++;
    return reason;
}

static sealing_known known(void *user, const uint8_t *key)
{
    const fabric *f = user;
    return f->cb.known ? f->cb.known(f->cb.user, key) : SEALING_STRANGER;
}

/* A channel for the session whose open has arrived, at the place that was promised.  NULL: somebody
   has it meanwhile, or the slot. */
static fabric_channel *sealed_channel(fabric *f, dxpu_sodium_session *x, const dxpu_offer *offer)
{
    uint32_t id = dxpu_sodium_local_id(x);
    fabric_channel *there = f->channels[id & FABRIC_INDEX_MASK];
    dxpu_channel_config cfg = config_of(f, offer);
    if (f->cb.authorize(f->cb.user, offer, dxpu_sodium_peer_key(x), &cfg) != DXPU_REASON_NONE ||
        (there && !is_replaceable(there)))
        return NULL;
    if (there)
        fabric_channel_free(f, there);
    cfg.suite = dxpu_sodium_suite(x);
    cfg.suite_user = x;
    return fabric_channel_at(f, id, &cfg);
}

static void on_sealed_open(fabric *f, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                           uint64_t now)
{
    dxpu_bytes datagram = { buf, len };
    dxpu_sodium_session *x = NULL;
    fabric_channel *c;
    dxpu_offer offer;
    if (f->cb.authorize)
        x = sealing_opener(&f->sealing, now, datagram, &from->remote, f->up != 0, &offer);
    if (!x)
        return;
    c = dxpu_sodium_user(x);
    if (c) {
        repeated_open(f, c, buf, len, from, now);
        return;
    }
    c = len < offer.frame_limit_bytes || buf[DXPU_FRAME_PATH] >= DXPU_PATHS_MAX
            ? NULL
            : sealed_channel(f, x, &offer);
    if (!c) {
        f->count.opens_refused++; /* the next handshake says why */
        dxpu_sodium_end(x);
        return;
    }
    c->session = x;
    dxpu_sodium_set_user(x, c);
    accept_open(f, c, &offer, buf, len, from, now);
}

static void on_handshake(fabric *f, dxpu_bytes datagram, const dxpu_udp_path *from, uint64_t now)
{
    uint8_t answer[DXPU_SODIUM_FRAME_BYTES];
    dxpu_sodium_session *x = NULL;
    size_t bytes = 0;
    if (!f->sealing.end) {
        sealing_plain_here(&f->sealing, &from->remote);
        return;
    }
    (void)sealing_ingest(&f->sealing, now, datagram, &from->remote, f->up != 0, answer,
                         sizeof answer, &bytes, &x); /* it has counted what is wrong */
    if (bytes) {
        memcpy(dxpu_udp_room(f->udp), answer, bytes);
        send_frame(f, from, answer, bytes);
    }
    if (x)
        on_answer(dxpu_sodium_user(x), now);
}

static bool may_go_on(const fabric *f, const fabric_channel *c)
{
    const uint8_t *key = dxpu_sodium_peer_key(c->session);
    return f->cb.allowed ? f->cb.allowed(f->cb.user, c, key)
                         : keys_allow(f->keys, key, KEYS_FABRIC, 0);
}

void fabric_stir_channel(const fabric *f, fabric_channel *c)
{
    if (c != f->serving) /* that one is looked at after its turn */
        f->due_ns[c->live_at] = 0;
}

void fabric_stir(fabric *f)
{
    memset(f->due_ns, 0, f->live_count * sizeof *f->due_ns);
}

void fabric_reset(const fabric *f, fabric_channel *c, uint8_t reason)
{
    fabric_stir_channel(f, c);
    dxpu_channel_reset(&c->ch, reason);
}

void fabric_keys_changed(fabric *f)
{
    fabric_stir(f);
    for (unsigned i = 0; i < f->live_count; i++) {
        fabric_channel *c = f->live[i];
        if (c->ended || !c->session || may_go_on(f, c))
            continue;
        f->sealing.count.revoked++;
        fabric_reset(f, c, DXPU_REASON_DETACH);
    }
}

/* ==== Life of a channel ======================================================================= */

static void check_up(fabric *f, fabric_channel *c, uint64_t now)
{
    unsigned state = dxpu_channel_status(&c->ch).state;
    if (c->up || state < DXPU_STATE_UP || state == DXPU_STATE_FAILED)
        return;
    c->up = true;
    f->up++;
    if (c->session)
        dxpu_sodium_settle(c->session);
    fabric_stir(f); /* it may end another one */
    f->cb.up(f->cb.user, c, now);
}

void fabric_on_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags)
{
    fabric *f = user;
    dxpu_bytes datagram = { buf, len };
    uint64_t now = dxpu_udp_now_ns();
    uint8_t kind = 0;
    uint32_t id = 0;
    fabric_channel *c;
    f->heard = true;
    if (f->frames->writer && len)
        record_frame(f, &from->remote, dxpu_udp_local(f->udp, from->socket), buf, len);
    if (dxpu_frame_peek(datagram, &kind, &id) != DXPU_OK) {
        f->count.not_frames++;
        return;
    }
    if (kind == DXPU_KIND_HANDSHAKE || kind == DXPU_KIND_OPEN)
        fabric_stir(f); /* whichever channel it is for, or makes room */
    if (kind == DXPU_KIND_HANDSHAKE) {
        on_handshake(f, datagram, from, now);
        return;
    }
    if (kind == DXPU_KIND_OPEN) {
        if (f->sealing.end)
            on_sealed_open(f, buf, len, from, now);
        else
            on_plain_open(f, buf, len, from, now);
        return;
    }
    c = fabric_channel_by_id(f, id);
    if (!c || c->asking) {
        f->count.unknown_channel++;
        return;
    }
    fabric_stir_channel(f, c);
    if (dxpu_channel_ingest(&c->ch, now, buf, len, flags) == DXPU_OK)
        learn_path(c, buf, len, from, now);
    check_up(f, c, now);
}

/* True when each frame of the channel may be sent whatever it brings: P-27 is satisfied. */
static bool all_valid(const fabric_channel *c)
{
    for (unsigned i = 0; c->accepted && i < c->ch.cfg.paths; i++) {
        if (c->paths.path[i].known && !c->paths.path[i].validation.valid)
            return false;
    }
    return true;
}

/* Frames for one path, of `segment` bytes each but for the last. */
static void send_segments(fabric *f, fabric_path *p, const uint8_t *frames, size_t len,
                          size_t segment)
{
    for (size_t at = 0, bytes; at < len; at += bytes) {
        bytes = len - at < segment ? len - at : segment;
        p->tx_frames++;
        p->tx_data_frames += frames[at + DXPU_FRAME_KIND] == DXPU_KIND_DATA;
        if (f->frames->writer)
            record_frame(f, dxpu_udp_local(f->udp, p->at.socket), &p->at.remote, frames + at,
                         bytes);
    }
    dxpu_udp_commit_many(f->udp, &p->at, len, segment);
}

/* Send what wants to leave; false when the channel is over. */
static bool emit(fabric *f, fabric_channel *c, uint64_t now)
{
    bool many = all_valid(c);
    for (;;) {
        unsigned datagrams = 1;
        uint8_t *room = many ? dxpu_udp_room_many(f->udp, &datagrams) : dxpu_udp_room(f->udp);
        uint8_t path = 0;
        size_t segment;
        fabric_path *p;
        int n;
        if (!room) /* a socket is full: the loop runs again when it may have some */
            return true;
        n = dxpu_channel_emit_many(&c->ch, now, room, datagrams * f->base.frame_limit_bytes, &path,
                                   &segment);
        p = &c->paths.path[path];
        if (n <= 0)
            return n == 0;
        if (!p->known) /* never: the channel uses only paths that frames arrived on */
            continue;
        if (many || may_send(c, p, room, (size_t)n))
            send_segments(f, p, room, (size_t)n, segment);
    }
}

/* False: it was freed. */
static bool service(fabric *f, fabric_channel *c, uint64_t now)
{
    unsigned state;
    bool alive, scarce;
    if (c->asking)
        ask(f, c, now);
    if (c->up && !c->ended)
        c->more = f->cb.work(f->cb.user, c, now);
    alive = c->asking ? dxpu_channel_status(&c->ch).state == DXPU_STATE_IDLE : emit(f, c, now);
    if (c->session && c->up && !c->ended)
        dxpu_sodium_work(c->session, &c->ch, now);
    state = dxpu_channel_status(&c->ch).state;
    /* what came before the close is still there to be taken, in turns as before it */
    if (!c->ended && !c->waits && state >= DXPU_STATE_CLOSED &&
        (!c->more || ++c->closed_turns >= FABRIC_CLOSED_TURNS)) {
        c->ended = true;
        c->asking = false;
        c->more = false;
        f->up -= c->up;
        if (state == DXPU_STATE_CLOSED)
            f->count.ended_close++;
        else
            f->count.ended_other++;
        f->cb.down(f->cb.user, c, now);
    }
    /* An opener does not wait for the end of the closing period (D-66) with its last place. */
    scarce = !c->accepted && f->free_count <= 1 && state == DXPU_STATE_CLOSED;
    if (!c->ended || (alive && !scarce))
        return true;
    fabric_channel_free(f, c);
    return false;
}

static uint64_t channel_next_ns(const fabric_channel *c)
{
    uint64_t next = dxpu_channel_next_ns(&c->ch), end_ns, keys_ns;
    unsigned state = dxpu_channel_status(&c->ch).state;
    if (c->more || (!c->ended && !c->waits && state >= DXPU_STATE_CLOSED))
        return 0;
    if (c->asking) {
        end_ns = c->born_ns + c->ch.cfg.hold_ms * 1000000ull;
        return c->ask_ns < end_ns ? c->ask_ns : end_ns;
    }
    if (c->session && c->up && state <= DXPU_STATE_CLOSING) {
        keys_ns = dxpu_sodium_next_ns(c->session);
        next = keys_ns < next ? keys_ns : next;
    }
    return next;
}

/* Compares due_ns with what it would be; an earlier time should have been announced. */
static void look(fabric *f, const fabric_channel *c)
{
    uint64_t next = channel_next_ns(c), *due = &f->due_ns[c->live_at];
    f->count.unannounced += next < *due;
    *due = next < *due ? next : *due;
}

static bool is_sparing(const fabric *f)
{
    return f->few && f->live_count > f->few;
}

/* Which channels have a turn: those that have work; all; or all, and those which should have been
   announced are counted. */
enum { SERVE_DUE, SERVE_ALL, SERVE_SEARCH };

/* Each channel is the first in turn: the first one finds the batch empty and the peer idle.
   A freed one is replaced by the last of the list; one that misses its turn by that has the next
   one, and its work is still known.  How many had work. */
static unsigned serve_round(fabric *f, uint64_t now, unsigned which)
{
    unsigned at = f->first, had_work = 0;
    for (unsigned left = f->live_count; left && f->live_count; left--) {
        bool known;
        uint64_t tlps;
        fabric_channel *c;
        at = at < f->live_count ? at : 0;
        c = f->live[at];
        known = f->due_ns[at] <= now;
        had_work += known;
        if (!known && which == SERVE_DUE) {
            at++;
            continue;
        }
        if (!known && f->few)
            look(f, c);
        tlps = c->ch.count.tx_tlps;
        f->serving = c;
        if (service(f, c, now)) {
            f->count.unseen +=
                !known && which == SERVE_SEARCH && (c->more || c->ch.count.tx_tlps != tlps);
            f->due_ns[at] = is_sparing(f) ? channel_next_ns(c) : 0;
            at++;
        }
        f->serving = NULL;
    }
    return had_work;
}

/* The loop gives a turn after datagrams, at a time that fabric_next_ns() names, and after events.
   Not later than ALL_NS after any of these all channels have a turn: whoever forgets to call
   fabric_stir() costs no more than that.  Few have all of them: that costs nothing. */
void fabric_turn(void *user, uint64_t now)
{
    fabric *f = user;
    bool spares = is_sparing(f);
    bool is_timer = spares && f->cb.next_ns && f->cb.next_ns(f->cb.user) <= now;
    bool has_reason = f->heard || is_timer;
    unsigned which = SERVE_DUE;
    if (!spares || is_timer) /* the timer may be of any */
        which = SERVE_ALL;
    else if (f->again && now >= f->all_ns)
        which = SERVE_SEARCH;
    f->first++;
    has_reason |= serve_round(f, now, which) > 0;
    if (which == SERVE_DUE && !has_reason && now >= f->all_ns) {
        which = SERVE_SEARCH;
        (void)serve_round(f, now, which);
    }
    if (which != SERVE_DUE || (has_reason && !f->again))
        f->all_ns = now + ALL_NS;
    f->again = which == SERVE_DUE || has_reason; /* what tick() does now, say, may be forgotten */
    f->heard = false;
    f->first = f->first < f->live_count ? f->first : 0;
    sealing_work(&f->sealing, now);
    if (f->cb.tick)
        f->cb.tick(f->cb.user, now);
}

uint64_t fabric_next_ns(void *user)
{
    fabric *f = user;
    uint64_t next = f->cb.next_ns ? f->cb.next_ns(f->cb.user) : DXPU_NEVER;
    uint64_t keys_ns = sealing_next_ns(&f->sealing);
    bool spares = is_sparing(f);
    next = keys_ns < next ? keys_ns : next;
    for (unsigned i = 0; i < f->live_count; i++) {
        if (!spares)
            f->due_ns[i] = channel_next_ns(f->live[i]);
        if (f->due_ns[i] < next)
            next = f->due_ns[i];
    }
    return spares && f->again && f->all_ns < next ? f->all_ns : next;
}

const char *fabric_end_text(const fabric_channel *c, char out[FABRIC_END_BYTES])
{
    const char *reason = dxpu_reason_text(dxpu_channel_status(&c->ch).reason);
    int error = dxpu_channel_status(&c->ch).error;
    switch (error) {
    case DXPU_E_DEAD:
    case DXPU_E_NO_ANSWER:
        snprintf(out, FABRIC_END_BYTES, "no %s for %llu ms",
                 error == DXPU_E_DEAD ? "frame" : "answer",
                 (unsigned long long)(dxpu_channel_status(&c->ch).hold_ns / 1000000u));
        break;
    case DXPU_E_CLOSED:
    case DXPU_E_PEER_CLOSED:
        snprintf(out, FABRIC_END_BYTES, "closed gracefully: %s", reason);
        break;
    case DXPU_E_RESET:
        snprintf(out, FABRIC_END_BYTES, "ended by a reset: %s", reason);
        break;
    default:
        snprintf(out, FABRIC_END_BYTES, "ended here: %s", reason);
        break;
    }
    return out;
}

bool fabric_busy(const fabric *f)
{
    for (unsigned i = 0; i < f->live_count; i++) {
        if (!f->live[i]->ended)
            return true;
    }
    return false;
}

void fabric_close_all(fabric *f, uint8_t reason)
{
    fabric_stir(f);
    for (unsigned i = 0; i < f->live_count; i++) {
        fabric_channel *c = f->live[i];
        if (c->ended)
            continue;
        if (c->up)
            (void)dxpu_channel_close(&c->ch, reason); /* already closing: nothing to do */
        else
            dxpu_channel_reset(&c->ch, reason);
    }
}

int fabric_run(fabric *f)
{
    dxpu_udp_callbacks cb;
    int rc;
    cb.user = f;
    cb.on_datagram = fabric_on_datagram;
    cb.next_ns = fabric_next_ns;
    cb.run = fabric_turn;
    rc = dxpu_udp_loop(f->udp, &cb);
    for (unsigned i = 0; i < f->live_count; i++) { /* the last word of channels that are cut off */
        if (!f->live[i]->asking)
            (void)emit(f, f->live[i], dxpu_udp_now_ns());
    }
    dxpu_udp_flush(f->udp);
    return rc;
}

void fabric_stop(fabric *f)
{
    dxpu_udp_stop(f->udp);
}

/* ==== Opening and closing the port ============================================================ */

/* "ADDR:PORT,ADDR:PORT": one socket each.  NULL, or what is wrong. */
static const char *parse_listen(const char *text, dxpu_udp_config *cfg)
{
    return dxpu_udp_parse_list(text, cfg->local, DXPU_UDP_SOCKETS_MAX, &cfg->sockets);
}

static uint16_t *port_of(dxpu_udp_address *a) /* as it is in a packet */
{
    return a->u.any.sa_family == AF_INET6 ? &a->u.v6.sin6_port : &a->u.v4.sin_port;
}

bool fabric_port_further(dxpu_udp_address *a, unsigned ports)
{
    unsigned port = ntohs(*port_of(a)), last = port ? port + ports : 0;
    *port_of(a) = htons((uint16_t)last);
    return last <= 0xffffu;
}

/* What several ports in a row need; NULL, or what is wrong. */
static const char *check_shards(const fabric_settings *s, const dxpu_udp_config *cfg)
{
    for (unsigned i = 0; i < cfg->sockets; i++) {
        dxpu_udp_address last = cfg->local[i];
        if (!fabric_port_further(&last, (unsigned)s->shards - 1))
            return "--listen: the port must be lower; each core, or guest, uses the next one";
    }
    return NULL;
}

const char *fabric_check(const fabric_settings *s, const keys_settings *k)
{
    static char text[200];
    dxpu_udp_config cfg;
    dxpu_xdp_config xdp;
    const char *why;
    if (s->window_frames & (s->window_frames - 1))
        return "--window: must be a power of two";
    dxpu_udp_config_default(&cfg);
    why = parse_listen(s->listen, &cfg);
    if (!why)
        why = keys_check_addresses(k, cfg.local, cfg.sockets);
    if (why) {
        snprintf(text, sizeof text, "--listen: %s", why);
        return text;
    }
    why = check_shards(s, &cfg);
    if (why || !s->af_xdp)
        return why;
    if (s->mtu > DXPU_XDP_PACKET_MAX) {
        snprintf(text, sizeof text, "--mtu: at most %d with --af-xdp", DXPU_XDP_PACKET_MAX);
        return text;
    }
    dxpu_xdp_config_default(&xdp);
    why = dxpu_xdp_parse_option(s->af_xdp, &xdp);
    if (!why && xdp.queues < s->shards)
        why = "must name a queue for each core, or guest: IFNAME,FIRST-LAST";
    if (!why)
        return NULL;
    snprintf(text, sizeof text, "--af-xdp: %s", why);
    return text;
}

/* Where to listen: as said, or next to another fabric.  False: there is no such port. */
static bool place_ports(const fabric_settings *s, dxpu_udp_config *cfg)
{
    bool good = true;
    for (unsigned i = 0; s->beside && i < cfg->sockets; i++) {
        if (!*port_of(&cfg->local[i]) && !s->in_a_row)
            continue;
        cfg->local[i] = *dxpu_udp_local(s->beside->udp, i);
        good &= fabric_port_further(&cfg->local[i], s->shard);
    }
    return good;
}

/* Did the system choose a port that the one here depends on? */
static bool follows_any(const fabric_settings *s, dxpu_udp_config *cfg)
{
    bool any = false;
    for (unsigned i = 0; i < cfg->sockets; i++)
        any |= !*port_of(&cfg->local[i]);
    return any && s->beside && s->in_a_row;
}

static int open_port(fabric *f, const fabric_settings *s)
{
    dxpu_udp_config cfg;
    const char *why;
    unsigned headers = IP4_UDP_BYTES;
    bool chosen;
    dxpu_udp_config_default(&cfg);
    why = parse_listen(s->listen, &cfg);
    for (unsigned i = 0; !why && i < cfg.sockets; i++)
        why = keys_allow_address(s->keys, &cfg.local[i]) ? NULL : keys_plain_address;
    if (why) {
        log_error("--listen %s: %s", s->listen, why);
        return -1;
    }
    chosen = follows_any(s, &cfg);
    if (!place_ports(s, &cfg))
        return FABRIC_TAKEN; /* only one that was chosen: fabric_check() looked at the others */
    for (unsigned i = 0; i < cfg.sockets; i++) {
        if (cfg.local[i].u.any.sa_family == AF_INET6)
            headers = IP6_UDP_BYTES;
    }
    f->base.frame_limit_bytes = (uint32_t)s->mtu - headers;
    cfg.wait = s->wait;
    cfg.datagram_bytes = DATAGRAM_BYTES;
    cfg.ecn_capable = !s->lossless; /* without congestion control marks are ignored */
    f->udp = dxpu_udp_open(&cfg, &why);
    if (!f->udp && chosen && errno == EADDRINUSE)
        return FABRIC_TAKEN;
    if (!f->udp) {
        log_error("--listen %s: %s%s (%s)", s->listen, why, sandbox_hint(errno), strerror(errno));
        return -1;
    }
    if (s->af_xdp) {
        f->xdp = bypass_open(f->udp, s->af_xdp, cfg.ecn_capable, s->shard, (unsigned)s->shards,
                             s->beside ? s->beside->xdp : NULL);
        return f->xdp ? 0 : -1;
    }
    return 0;
}

static int open_tables(fabric *f, unsigned capacity)
{
    f->capacity = capacity < FABRIC_CHANNELS_MAX ? capacity : FABRIC_CHANNELS_MAX;
    f->channels = calloc(f->capacity, sizeof *f->channels);
    f->live = calloc(f->capacity, sizeof *f->live);
    f->due_ns = calloc(f->capacity, sizeof *f->due_ns);
    f->free_list = calloc(f->capacity, sizeof *f->free_list);
    f->promise = calloc(f->capacity, sizeof *f->promise);
    if (!f->channels || !f->live || !f->due_ns || !f->free_list || !f->promise)
        return -1;
    for (unsigned i = 0; i < f->capacity; i++)
        f->free_list[i] = i;
    f->free_count = f->capacity;
    return 0;
}

/* The window is to be what bounds a stream, so the queues at both ends hold what a window does. */
static void set_queues(dxpu_channel_config *c)
{
    uint32_t window = c->window_frames < WINDOW_MAX ? c->window_frames : WINDOW_MAX;
    uint32_t units = window * (c->frame_limit_bytes / 16u);
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (cls == DXPU_NONPOSTED)
            continue;
        c->rx.header[cls] = c->tx.header[cls] = window * TLPS_A_FRAME;
        c->rx.data[cls] = c->tx.data[cls] = units > UNITS_MIN ? units : UNITS_MIN;
    }
    c->rx.header[DXPU_NONPOSTED] = c->tx.header[DXPU_NONPOSTED] = REQUESTS;
}

/* A session for each channel, and for those whose open has not arrived: one for each slot, as they
   may be dialed at once (S-14). */
static int open_sealing(fabric *f, const fabric_settings *s)
{
    sealing_callbacks cb = { f, known, f->cb.authorize ? on_request : NULL };
    unsigned slots = f->capacity / 4;
    f->pending = slots < PENDING_MIN ? PENDING_MIN : slots < PENDING_MAX ? slots : PENDING_MAX;
    return sealing_open(&f->sealing, s->keys, f->capacity + f->pending, f->pending,
                        s->rekey_s * 1000000000ull, &cb);
}

int fabric_open(fabric *f, const fabric_settings *s, unsigned capacity, const fabric_callbacks *cb)
{
    int rc;
    memset(f, 0, sizeof *f);
    f->cb = *cb;
    f->frames = s->beside ? s->beside->frames : &f->own_frames;
    dxpu_channel_config_default(&f->base);
    f->base.window_frames = (uint32_t)s->window_frames;
    f->base.hold_ms = (uint32_t)s->hold_ms;
    f->base.spread = s->spread;
    f->base.lossless = s->lossless;
    f->keys = s->keys;
    if (!f->keys || open_tables(f, capacity)) {
        log_error("%s", f->keys ? "out of memory" : "a port needs keys, or --plain");
        return -1;
    }
    rc = open_port(f, s);
    if (!rc)
        rc = open_sealing(f, s);
    if (rc)
        return rc;
    set_queues(&f->base);
    return s->beside ? 0 : recorder_open(f->frames, "--frames", s->frames);
}

int fabric_close(fabric *f)
{
    int rc;
    while (f->live_count)
        fabric_channel_free(f, f->live[0]);
    sealing_close(&f->sealing);
    free(f->channels);
    free(f->live);
    free(f->due_ns);
    free(f->free_list);
    free(f->promise);
    dxpu_udp_close(f->udp);
    dxpu_xdp_close(f->xdp);
    rc = recorder_close(&f->own_frames);
    memset(f, 0, sizeof *f);
    return rc;
}

/* ==== Statistics ============================================================================== */

void fabric_totals(const fabric *f, dxpu_counters *out)
{
    *out = f->ended;
    for (unsigned i = 0; i < f->live_count; i++)
        counters_add(out, &f->live[i]->ch.count);
}

void fabric_report(const fabric *f, report *r)
{
    dxpu_counters total;
    const char *name;
    fabric_totals(f, &total);
    report_counters(r, "channel", &total);
    report_open(r, "proxy");
#define FABRIC_PRINT(field, text) report_number(r, #field, f->count.field);
    FABRIC_COUNTERS(FABRIC_PRINT)
#undef FABRIC_PRINT
    report_close(r);
    sealing_report(&f->sealing, r);
    if (f->xdp)
        bypass_report(f->xdp, r);
    report_open(r, "udp");
    for (unsigned i = 0; (name = dxpu_udp_counter_name(i)) != NULL; i++)
        report_number(r, name, dxpu_udp_counter_value(f->udp, i));
    report_close(r);
}

dxpu_path_info fabric_path_info(const fabric_channel *c, unsigned path)
{
    dxpu_path_info info;
    memset(&info, 0, sizeof info);
    (void)dxpu_channel_path(&c->ch, path, &info); /* an invalid number: all zero */
    return info;
}

const dxpu_udp_address *fabric_peer(const fabric_channel *c)
{
    return &c->paths.path[dxpu_channel_status(&c->ch).path].at.remote;
}

static void add_path(fabric_path *sum, const fabric_path *p)
{
    sum->known |= p->known;
    if (p->known)
        sum->at = p->at;
    sum->tx_frames += p->tx_frames;
    sum->tx_data_frames += p->tx_data_frames;
    sum->rx_frames += p->rx_frames;
    sum->moves += p->moves;
    sum->held_back += p->held_back;
}

void fabric_paths_keep(fabric_paths *sum, const fabric_channel *c)
{
    for (unsigned i = 0; i < DXPU_PATHS_MAX; i++) {
        add_path(&sum->path[i], &c->paths.path[i]);
        sum->path[i].info = fabric_path_info(c, i);
    }
}

static void report_path(report *r, unsigned number, const fabric_path *p)
{
    char text[DXPU_UDP_TEXT_BYTES];
    snprintf(text, sizeof text, "path_%u", number);
    report_open(r, text);
    report_text(r, "peer", dxpu_udp_print(&p->at.remote, text));
    report_number(r, "usable", p->info.usable);
    report_number(r, "active", p->info.active);
    report_real(r, "srtt_us", (double)p->info.srtt_ns / 1000.0);
    report_real(r, "rto_us", (double)p->info.rto_ns / 1000.0);
    report_number(r, "window_bytes", p->info.window_bytes);
    report_number(r, "in_flight_bytes", p->info.in_flight_bytes);
    report_number(r, "tx_frames", p->tx_frames);
    report_number(r, "tx_data_frames", p->tx_data_frames);
    report_number(r, "rx_frames", p->rx_frames);
    report_number(r, "moves", p->moves);
    report_number(r, "held_back", p->held_back);
    report_close(r);
}

void fabric_report_paths(const fabric_paths *past, const fabric_channel *c, report *r)
{
    report_open(r, "paths");
    for (unsigned i = 0; i < DXPU_PATHS_MAX; i++) {
        fabric_path p = past->path[i];
        if (c) {
            add_path(&p, &c->paths.path[i]);
            p.info = fabric_path_info(c, i);
        }
        if (p.known)
            report_path(r, i, &p);
    }
    report_close(r);
}

const char *fabric_paths_text(const fabric_channel *c, char out[FABRIC_PATHS_TEXT_BYTES])
{
    unsigned known = 0, usable = 0, active = 0;
    for (unsigned i = 0; i < c->ch.cfg.paths; i++) {
        dxpu_path_info info = fabric_path_info(c, i);
        known += info.known;
        usable += info.usable;
        if (info.active)
            active = i;
    }
    *out = '\0';
    if (known > 1)
        snprintf(out, FABRIC_PATHS_TEXT_BYTES, "%u of %u paths usable, path %u active", usable,
                 known, active);
    return out;
}

const char *fabric_crc_name(void)
{
    return dxpu_zlib_name();
}
