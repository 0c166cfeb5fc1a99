/* dxpu_firmware.c - see dxpu_firmware.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Rings   2 Time   3 To the network   4 Channels   5 Opening   6 To the device
              7 From the device   8 Life of a slot   9 Node */
#include "dxpu_firmware.h"

enum { ECN_ECT0 = 2, RESET_FRAME_BYTES = 64 };
#define RESET_RETRY_NS 1000000u

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > DXPU_NEVER - b ? DXPU_NEVER : a + b;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ==== 1  Rings ================================================================================ */

int dxpu_fw_ring_init(dxpu_fw_ring *r, uint8_t *buffers, volatile uint32_t *lengths, uint32_t count,
                      uint32_t buffer_bytes)
{
    if (count < 2 || count > DXPU_FW_RING_MAX || (count & (count - 1)) || !buffer_bytes ||
        buffer_bytes % 4)
        return DXPU_E_ARG;
    r->buffers = buffers;
    r->lengths = lengths;
    r->count = count;
    r->buffer_bytes = buffer_bytes;
    r->put = r->taken = 0;
    return DXPU_OK;
}

static uint8_t *ring_buffer(const dxpu_fw_ring *r, uint32_t at)
{
    return r->buffers + (size_t)(at & (r->count - 1)) * r->buffer_bytes;
}

/* The length of a filled buffer, read once: who filled it may write it again. */
static uint32_t ring_length(const dxpu_fw_ring *r, uint32_t at)
{
    uint32_t bytes = r->lengths[at & (r->count - 1)];
    return bytes <= r->buffer_bytes ? bytes : 0;
}

uint32_t dxpu_fw_ring_used(const dxpu_fw_ring *r)
{
    return r->put - r->taken;
}

uint8_t *dxpu_fw_ring_room(const dxpu_fw_ring *r)
{
    uint32_t put = r->put;
    if (put - r->taken >= r->count)
        return NULL;
    DXPU_FW_BARRIER(); /* the consumer has read what stood there */
    return ring_buffer(r, put);
}

void dxpu_fw_ring_put(dxpu_fw_ring *r, uint32_t bytes)
{
    uint32_t put = r->put;
    r->lengths[put & (r->count - 1)] = bytes;
    DXPU_FW_BARRIER();
    r->put = put + 1;
}

uint8_t *dxpu_fw_ring_peek(const dxpu_fw_ring *r, uint32_t *bytes)
{
    uint32_t taken = r->taken, used = r->put - taken;
    if (!used || used > r->count)
        return NULL;
    DXPU_FW_BARRIER();
    *bytes = ring_length(r, taken);
    return ring_buffer(r, taken);
}

void dxpu_fw_ring_take(dxpu_fw_ring *r)
{
    DXPU_FW_BARRIER();
    r->taken = r->taken + 1;
}

void dxpu_fw_ring_drop(dxpu_fw_ring *r)
{
    r->taken = r->put;
}

/* True when the producer's count could not be; the ring is empty then. */
static bool ring_astray(dxpu_fw *fw, dxpu_fw_ring *r)
{
    if (dxpu_fw_ring_used(r) <= r->count)
        return false;
    dxpu_fw_ring_drop(r);
    fw->counters.rings_astray++;
    return true;
}

/* ==== 2  Time ================================================================================= */

void dxpu_fw_clock_begin(dxpu_fw_clock *c, uint64_t ns_per_tick, uint64_t ticks_per_ns,
                         unsigned bits, uint32_t counter)
{
    c->ns = 0;
    c->ns_per_tick = ns_per_tick;
    c->ticks_per_ns = ticks_per_ns;
    c->fraction = 0;
    c->mask = bits < 32 ? ((uint32_t)1 << bits) - 1 : UINT32_MAX;
    c->last = counter & c->mask;
}

uint64_t dxpu_fw_clock_ns(dxpu_fw_clock *c, uint32_t counter)
{
    uint64_t ticks = (counter - c->last) & c->mask;
    uint64_t parts = ticks * (uint32_t)c->ns_per_tick + c->fraction;
    c->ns += ticks * (c->ns_per_tick >> 32) + (parts >> 32);
    c->fraction = (uint32_t)parts;
    c->last = counter & c->mask;
    return c->ns;
}

uint32_t dxpu_fw_clock_ticks(const dxpu_fw_clock *c, uint64_t ns)
{
    uint32_t most = c->mask / 2, short_ns = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
    uint64_t ticks = (c->ticks_per_ns >> 32) * short_ns;
    ticks += ((c->ticks_per_ns & UINT32_MAX) * short_ns >> 32) + 1;
    return ticks < most ? (uint32_t)ticks : most;
}

/* ==== 3  To the network ======================================================================= */

static void send_frame(dxpu_fw *fw, const dxpu_fw_address *to, uint8_t *buffer, size_t bytes)
{
    unsigned ecn = fw->cfg.ecn ? ECN_ECT0 : 0u;
    uint32_t all = dxpu_fw_wire_build(&fw->cfg.own, to, ecn, buffer, (uint32_t)bytes);
    dxpu_fw_ring_put(fw->cfg.tx, all);
    fw->counters.tx_frames++;
}

/* Where an answer goes; NULL, and counted, when there is no room. */
static uint8_t *answer_room(dxpu_fw *fw)
{
    uint8_t *room = dxpu_fw_ring_room(fw->cfg.tx);
    fw->counters.tx_full += !room;
    return room;
}

static void refuse(dxpu_fw *fw, const dxpu_fw_address *to, uint32_t channel, uint8_t reason)
{
    uint8_t *room = answer_room(fw), frame[RESET_FRAME_BYTES];
    size_t bytes = dxpu_reset_encode(channel, reason, frame);
    fw->counters.opens_refused++;
    if (!room)
        return;
    memcpy(room + DXPU_FW_HEADERS_BYTES, frame, bytes);
    send_frame(fw, to, room, bytes);
}

/* Send what wants to leave; false when the channel is over and has said its last word. */
static bool link_emit(dxpu_fw *fw, dxpu_fw_link *l, uint64_t now)
{
    dxpu_fw_ring *tx = fw->cfg.tx;
    uint8_t *room, path = 0;
    dxpu_bytes frame;
    int n;
    while ((room = dxpu_fw_ring_room(tx)) != NULL) {
        n = dxpu_channel_emit(&l->ch, now, room + DXPU_FW_HEADERS_BYTES,
                              tx->buffer_bytes - (uint32_t)DXPU_FW_HEADERS_BYTES, &path);
        if (n <= 0)
            return n == 0;
        frame.ptr = room + DXPU_FW_HEADERS_BYTES;
        frame.len = (size_t)n;
        /* known always: a channel uses only paths that frames arrived on */
        if (l->path[path].validation.known &&
            dxpu_validation_may_send(&l->path[path].validation, frame))
            send_frame(fw, &l->path[path].at, room, (size_t)n);
    }
    return true;
}

/* ==== 4  Channels ============================================================================= */

static dxpu_fw_link *link_by_id(const dxpu_fw *fw, uint32_t id)
{
    unsigned i;
    for (i = 0; i < fw->count * (unsigned)DXPU_FW_LINKS; i++) {
        dxpu_fw_link *l = &fw->slots[i / DXPU_FW_LINKS].link[i % DXPU_FW_LINKS];
        if (l->state != DXPU_FW_LINK_FREE && l->ch.cfg.local_id == id)
            return l;
    }
    return NULL;
}

static void link_free(dxpu_fw *fw, dxpu_fw_link *l)
{
    if (l->ch.cfg.suite)
        fw->cfg.security->end(fw->cfg.security_user, l->ch.cfg.suite_user);
    l->state = DXPU_FW_LINK_FREE;
}

/* A link for a new channel.  When none is free the oldest that never came up, or is over, makes
   room: not the one in force. */
static dxpu_fw_link *link_room(dxpu_fw *fw, dxpu_fw_slot *s)
{
    dxpu_fw_link *oldest = NULL;
    unsigned i;
    for (i = 0; i < DXPU_FW_LINKS; i++) {
        dxpu_fw_link *l = &s->link[i];
        if (l->state == DXPU_FW_LINK_FREE)
            return l;
        if (l != s->active && (!oldest || l->born_ns < oldest->born_ns))
            oldest = l;
    }
    if (oldest)
        link_free(fw, oldest);
    return oldest;
}

static bool same_address(const dxpu_fw_address *a, const dxpu_fw_address *b)
{
    return !memcmp(a->ip, b->ip, sizeof a->ip) && a->port == b->port;
}

/* The newest valid frame of a path determines where its answers go (W-29, P-1), and by which next
   hop: there is no ARP client that would find another. */
static void learn_path(dxpu_fw_link *l, const dxpu_fw_datagram *d, uint64_t now)
{
    bool newest = dxpu_channel_status(&l->ch).newest;
    dxpu_fw_path *p;
    dxpu_bytes bytes;
    unsigned what;
    bytes.ptr = d->payload;
    bytes.len = d->payload_bytes;
    if (d->payload[DXPU_FRAME_PATH] >= l->ch.cfg.paths)
        return;
    p = &l->path[d->payload[DXPU_FRAME_PATH]];
    what = dxpu_validation_arrived(&p->validation, bytes, newest, same_address(&p->at, &d->from),
                                   same_address(&p->valid_at, &d->from), now);
    if (newest)
        p->at = d->from;
    if (what & DXPU_VALIDATION_VALID)
        p->valid_at = p->at;
}

static void link_ingest(dxpu_fw_link *l, const dxpu_fw_datagram *d, uint64_t now)
{
    if (dxpu_channel_ingest(&l->ch, now, d->payload, d->payload_bytes, d->flags) == DXPU_OK)
        learn_path(l, d, now);
}

/* ==== 5  Opening ============================================================================== */

static bool open_decode(const dxpu_fw *fw, dxpu_bytes frame, dxpu_fw_opening *o, uint64_t now)
{
    memset(o, 0, sizeof *o);
    if (fw->cfg.security)
        return fw->cfg.security->open(fw->cfg.security_user, now, frame, o);
    return dxpu_acceptor_open(frame, fw->cfg.channel.paths, &o->offer) == DXPU_OK;
}

/* The channel that an open repeated by the network or the opener belongs to. */
static dxpu_fw_link *link_of_open(const dxpu_fw *fw, const dxpu_offer *o)
{
    unsigned i;
    for (i = 0; i < fw->count * (unsigned)DXPU_FW_LINKS; i++) {
        dxpu_fw_link *l = &fw->slots[i / DXPU_FW_LINKS].link[i % DXPU_FW_LINKS];
        if (l->state != DXPU_FW_LINK_FREE && dxpu_acceptor_repeats(&l->ch, l->opener, o))
            return l;
    }
    return NULL;
}

static uint8_t bind_reason(int rc)
{
    return rc == DXPU_OK        ? DXPU_REASON_NONE
           : rc == DXPU_E_EPOCH ? DXPU_REASON_EPOCH
                                : DXPU_REASON_NO_SLOT;
}

static const uint8_t no_owner[DXPU_FW_OWNER_BYTES];

static bool same_owner(const uint8_t *a, const uint8_t *b)
{
    return !memcmp(a, b, DXPU_FW_OWNER_BYTES);
}

/* Under this epoch the lease is another one's, whatever node he says he is (S-95). */
static bool has_other_owner(const dxpu_fw *fw, uint16_t number, uint64_t epoch,
                            const uint8_t *owner)
{
    const uint8_t *present = fw->slots[number - 1].owner;
    return epoch == dxpu_box_slot(&fw->table, number)->epoch_seen &&
           !same_owner(present, no_owner) && !same_owner(present, owner);
}

/* The table is as before: only a channel that comes up, which needs an answer to a random number,
   changes a lease. */
uint8_t dxpu_fw_authorize(const dxpu_fw *fw, const dxpu_place *host, uint16_t slot, uint64_t epoch,
                          const uint8_t *owner)
{
    dxpu_box_table table = fw->table;
    dxpu_box_entry *e = dxpu_box_slot(&table, slot), before;
    int rc;
    if (!owner)
        owner = no_owner;
    if (!e ||
        (fw->cfg.security && (same_owner(owner, no_owner) ||
                              !fw->cfg.security->allowed(fw->cfg.security_user, slot, owner))))
        return DXPU_REASON_NO_SLOT; /* a caller without a right to them learns no more */
    before = *e;
    rc = has_other_owner(fw, slot, epoch, owner)
             ? DXPU_E_EPOCH
             : dxpu_box_bind(&table, slot, host->node, host->slot, 0, epoch);
    *e = before;
    return bind_reason(rc);
}

/* A channel for an authorized open.  DXPU_REASON_NONE, or why not. */
static uint8_t link_accept(dxpu_fw *fw, dxpu_fw_slot *s, const dxpu_fw_opening *o,
                           const dxpu_fw_datagram *d, uint64_t now)
{
    dxpu_channel_config cfg = fw->cfg.channel;
    dxpu_fw_link *l;
    void *memory;
    int rc;
    cfg.local_id = o->suite ? o->local_id : fw->cfg.hooks->random(fw->cfg.user);
    if (!cfg.local_id || link_by_id(fw, cfg.local_id))
        return DXPU_REASON_BUSY; /* the host asks again */
    cfg.sequence = fw->cfg.hooks->random(fw->cfg.user);
    cfg.epoch = o->offer.epoch;
    cfg.local = o->offer.destination;
    cfg.local.node = fw->cfg.node;
    cfg.remote = o->offer.source;
    cfg.suite = o->suite;
    cfg.suite_user = o->suite_user;
    l = link_room(fw, s);
    memory = l->memory;
    memset(l, 0, sizeof *l);
    l->memory = memory;
    l->opener = o->offer.channel;
    memcpy(l->owner, o->owner, sizeof l->owner);
    l->born_ns = now;
    rc = dxpu_channel_init(&l->ch, &cfg, memory, fw->link_bytes);
    if (rc == DXPU_OK)
        rc = dxpu_channel_accept(&l->ch, now, d->payload, d->payload_bytes);
    if (rc != DXPU_OK)
        return dxpu_acceptor_reason(rc);
    l->state = DXPU_FW_LINK_OPENING;
    learn_path(l, d, now);
    return DXPU_REASON_NONE;
}

static uint8_t try_open(dxpu_fw *fw, const dxpu_fw_opening *o, const dxpu_fw_datagram *d,
                        uint64_t now)
{
    dxpu_fw_link *l = o->suite ? link_by_id(fw, o->local_id) : link_of_open(fw, &o->offer);
    uint8_t reason;
    if (fw->cfg.security && !o->suite)
        return DXPU_REASON_VERSION; /* not by a mistake of its open() without keys, either */
    if (l) {
        fw->counters.opens_repeated++;
        link_ingest(l, d, now);
        return DXPU_REASON_NONE;
    }
    reason = dxpu_fw_authorize(fw, &o->offer.source, o->offer.destination.slot, o->offer.epoch,
                               o->owner);
    if (reason == DXPU_REASON_NONE)
        reason = link_accept(fw, &fw->slots[o->offer.destination.slot - 1], o, d, now);
    fw->counters.opens += reason == DXPU_REASON_NONE;
    return reason;
}

static void on_open(dxpu_fw *fw, const dxpu_fw_datagram *d, uint64_t now)
{
    dxpu_bytes frame;
    uint8_t reason;
    dxpu_fw_opening o;
    frame.ptr = d->payload;
    frame.len = d->payload_bytes;
    if (!open_decode(fw, frame, &o, now)) {
        fw->counters.opens_bad++;
        return;
    }
    if (frame.len < o.offer.frame_limit_bytes) { /* P-3: a forged one would bring more than it is */
        fw->counters.opens_bad++;
        if (fw->cfg.security && !link_by_id(fw, o.local_id))
            fw->cfg.security->end(fw->cfg.security_user, o.suite_user);
        return;
    }
    reason = try_open(fw, &o, d, now);
    if (reason == DXPU_REASON_NONE)
        return;
    if (!fw->cfg.security) {
        refuse(fw, &d->from, o.offer.channel, reason);
        return;
    }
    fw->counters.opens_unauthorized++; /* S-33: a refusal without keys says nothing to it */
    fw->cfg.security->end(fw->cfg.security_user, o.suite_user);
}

static void on_handshake(dxpu_fw *fw, const dxpu_fw_datagram *d, uint64_t now)
{
    uint8_t *room = fw->cfg.security ? answer_room(fw) : NULL;
    dxpu_bytes frame;
    size_t bytes;
    frame.ptr = d->payload;
    frame.len = d->payload_bytes;
    fw->counters.rx_handshakes++;
    if (!room)
        return;
    bytes = fw->cfg.security->handshake(fw->cfg.security_user, now, frame, &d->from,
                                        room + DXPU_FW_HEADERS_BYTES,
                                        fw->cfg.tx->buffer_bytes - (uint32_t)DXPU_FW_HEADERS_BYTES);
    if (bytes)
        send_frame(fw, &d->from, room, bytes);
}

/* ==== 6  To the device ======================================================================== */

/* Unsupported Request for a request, in `bytes`; empty where it is no request. */
static dxpu_bytes unsupported(dxpu_bytes tlp, uint8_t bytes[DXPU_TLP_HEADER_MAX_BYTES])
{
    dxpu_bytes answer;
    dxpu_tlp t, cpl;
    answer.ptr = bytes;
    answer.len = 0;
    if (dxpu_tlp_decode_header(tlp, &t) == DXPU_OK && dxpu_tlp_class(&t) == DXPU_NONPOSTED) {
        dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
        (void)dxpu_tlp_encode(&cpl, bytes, DXPU_TLP_HEADER_MAX_BYTES, &answer.len); /* it fits */
    }
    return answer;
}

/* The device sees only TLPs that a receiver accepts (T-43); the requester of another is answered
   here.  False: there is no room for the answer yet. */
static bool refuse_tlp(dxpu_fw *fw, dxpu_channel *ch, dxpu_bytes tlp, uint64_t now)
{
    uint8_t bytes[DXPU_TLP_HEADER_MAX_BYTES];
    dxpu_bytes answer = unsupported(tlp, bytes);
    if (answer.len && dxpu_channel_submit(ch, answer, now, 0) == DXPU_E_AGAIN)
        return false;
    fw->counters.host_malformed++;
    return true;
}

/* Does the device take another request now? */
static bool takes(const dxpu_fw_slot *s, unsigned cls)
{
    uint32_t room = s->nonposted_limit - s->nonposted;
    return cls != DXPU_NONPOSTED || !s->counts_nonposted || (room && room < 0x80000000u);
}

/* Give the next TLP of a class to the device; false when there is none, or it cannot. */
static bool give_one(dxpu_fw *fw, dxpu_fw_slot *s, unsigned cls, uint64_t now)
{
    dxpu_channel *ch = &s->active->ch;
    dxpu_delivery d = dxpu_channel_peek(ch, cls);
    uint8_t *room = dxpu_fw_ring_room(s->to_device);
    dxpu_tlp t;
    if (!d.tlp.len || !room || !takes(s, cls))
        return false;
    if (d.tlp.len > s->to_device->buffer_bytes || dxpu_tlp_receive(d.tlp, &t) != DXPU_OK) {
        if (!refuse_tlp(fw, ch, d.tlp, now))
            return false;
    } else {
        memcpy(room, d.tlp.ptr, d.tlp.len);
        dxpu_fw_ring_put(s->to_device, (uint32_t)d.tlp.len);
        s->nonposted += cls == DXPU_NONPOSTED;
        if (s->guard)
            dxpu_guard_down(s->guard, &t);
    }
    (void)dxpu_channel_take(ch, cls, now); /* peek() has just shown it */
    return true;
}

static void forget_sent(dxpu_fw *fw, dxpu_fw_slot *s);

/* A link event is a barrier: what came before it must have reached the device. */
static bool give_event(dxpu_fw *fw, dxpu_fw_slot *s, uint16_t number)
{
    dxpu_event e;
    if (dxpu_fw_ring_used(s->to_device) || !dxpu_channel_peek_event(&s->active->ch, &e))
        return false;
    if (e.type && !(s->guard && dxpu_guard_event(s->guard, &e)) && fw->cfg.hooks->event)
        fw->cfg.hooks->event(fw->cfg.user, number, &e);
    if (e.type == DXPU_EVENT_HOT_RESET || e.type == DXPU_EVENT_SLOT_POWER)
        forget_sent(fw, s);
    (void)dxpu_channel_take_event(&s->active->ch);
    return true;
}

static void give(dxpu_fw *fw, dxpu_fw_slot *s, uint16_t number, uint64_t now)
{
    unsigned n;
    bool any = true;
    for (n = 0; any && n < fw->cfg.turn; n++) {
        any = give_event(fw, s, number);
        any |= give_one(fw, s, DXPU_POSTED, now);
        any |= give_one(fw, s, DXPU_NONPOSTED, now);
        any |= give_one(fw, s, DXPU_COMPLETION, now);
    }
    fw->more |= any;
}

/* ==== 7  From the device ======================================================================
   Ordering is PCIe's (Base Spec 2.4.1): each class keeps its own order, nothing passes an older
   posted TLP, and posted TLPs and completions pass requests for which there is no room.  So the
   ring is looked through up to the first posted TLP that has to wait. */

static bool is_done(const dxpu_fw_slot *s, uint32_t at)
{
    uint32_t i = at & (s->from_device->count - 1);
    return s->done[i / 32] >> i % 32 & 1u;
}

static void set_done(dxpu_fw_slot *s, uint32_t at, bool done)
{
    uint32_t i = at & (s->from_device->count - 1), bit = (uint32_t)1 << i % 32;
    if (done)
        s->done[i / 32] |= bit;
    else
        s->done[i / 32] &= ~bit;
}

/* What a device sent before its reset does not leave after it (S-175).  The host's questions are:
   completions stay, and so does what take_one() counts as malformed. */
static void forget_sent(dxpu_fw *fw, dxpu_fw_slot *s)
{
    const dxpu_fw_ring *r = s->from_device;
    uint32_t at, put = r->put;
    dxpu_tlp_shape shape;
    dxpu_bytes tlp;
    if (put - r->taken > r->count)
        return;        /* slot_look() ends the channel for it */
    DXPU_FW_BARRIER(); /* the buffers' bytes up to `put` are written */
    for (at = r->taken; at != put; at++) {
        tlp.ptr = ring_buffer(r, at);
        tlp.len = ring_length(r, at);
        if (is_done(s, at) || dxpu_tlp_measure(tlp, &shape) != DXPU_OK ||
            shape.cls == DXPU_COMPLETION)
            continue;
        set_done(s, at, true);
        fw->counters.device_dropped++;
    }
}

/* What the guard says of a TLP. */
enum { LOOK_PASSES, LOOK_DONE, LOOK_WAITS };

/* A request waits for room for its refusal, a completion for the one that is held: a completion is
   looked at once, since it is what was asked only once. */
static unsigned guard_look(dxpu_fw *fw, dxpu_fw_slot *s, dxpu_bytes tlp, unsigned cls)
{
    uint8_t *room = dxpu_fw_ring_room(s->to_device), bytes[DXPU_TLP_HEADER_MAX_BYTES];
    dxpu_bytes answer;
    unsigned verdict;
    if ((cls == DXPU_COMPLETION && s->held_bytes) || (cls == DXPU_NONPOSTED && !room))
        return LOOK_WAITS;
    verdict = dxpu_guard_up(s->guard, tlp);
    if (verdict == DXPU_GUARD_PASS)
        return LOOK_PASSES;
    if (verdict == DXPU_GUARD_ENDS)
        return LOOK_DONE;
    fw->counters.device_refused++;
    answer = unsupported(tlp, bytes); /* S-108 */
    if (answer.len) {
        memcpy(room, answer.ptr, answer.len);
        dxpu_fw_ring_put(s->to_device, (uint32_t)answer.len);
    }
    return LOOK_DONE;
}

/* Submit a TLP: true when it is gone, or was for nothing. */
static bool take_submit(dxpu_fw *fw, dxpu_fw_slot *s, dxpu_bytes tlp, uint64_t now)
{
    int rc = dxpu_channel_submit(&s->active->ch, tlp, now, 0);
    if (rc == DXPU_E_AGAIN)
        return false;
    if (rc <= DXPU_E_CLOSED)
        fw->counters.device_dropped++; /* the channel is over */
    else if (rc != DXPU_OK)
        fw->counters.device_malformed++;
    return true;
}

/* The completion that the guard let pass before there was credit for it. */
static void take_held(dxpu_fw *fw, dxpu_fw_slot *s, uint64_t now)
{
    dxpu_bytes tlp;
    tlp.ptr = s->guard_room + s->from_device->buffer_bytes;
    tlp.len = s->held_bytes;
    if (tlp.len && take_submit(fw, s, tlp, now))
        s->held_bytes = 0;
}

/* Take the TLP of a buffer: true when it is done with.  blocked: classes that have to wait. */
static bool take_one(dxpu_fw *fw, dxpu_fw_slot *s, uint32_t at, unsigned *blocked, uint64_t now)
{
    dxpu_tlp_shape shape;
    dxpu_bytes tlp;
    unsigned look = LOOK_PASSES;
    tlp.ptr = ring_buffer(s->from_device, at);
    tlp.len = ring_length(s->from_device, at);
    if (s->guard) { /* what was looked at is what leaves: the device may write to its own buffer */
        memcpy(s->guard_room, tlp.ptr, tlp.len);
        tlp.ptr = s->guard_room;
    }
    if (!tlp.len || dxpu_tlp_measure(tlp, &shape) != DXPU_OK) {
        if (tlp.len)
            fw->counters.device_malformed++;
        else
            fw->counters.device_lengths++;
        return true;
    }
    if (*blocked >> shape.cls & 1u)
        return false;
    if (s->guard)
        look = guard_look(fw, s, tlp, shape.cls);
    if (look == LOOK_DONE || (look == LOOK_PASSES && take_submit(fw, s, tlp, now)))
        return true;
    if (s->guard && look == LOOK_PASSES && shape.cls == DXPU_COMPLETION) {
        memcpy(s->guard_room + s->from_device->buffer_bytes, tlp.ptr, tlp.len);
        s->held_bytes = (uint32_t)tlp.len;
        return true;
    }
    *blocked |= 1u << shape.cls;
    return false;
}

static void take_all(dxpu_fw *fw, dxpu_fw_slot *s, uint64_t now)
{
    dxpu_fw_ring *r = s->from_device;
    uint32_t at, put = s->seen_put;
    unsigned blocked = 0;
    DXPU_FW_BARRIER(); /* the buffers' bytes up to `put` are written */
    if (s->held_bytes)
        take_held(fw, s, now);
    for (at = r->taken; at != put && !(blocked >> DXPU_POSTED & 1u); at++) {
        if (!is_done(s, at) && take_one(fw, s, at, &blocked, now))
            set_done(s, at, true);
    }
    while (r->taken != put && is_done(s, r->taken)) {
        set_done(s, r->taken, false);
        dxpu_fw_ring_take(r);
    }
}

/* ==== 8  Life of a slot ======================================================================= */

/* The slot is unassigned; its device is as at power-up before it is assigned again (D-49). */
static void slot_reset(dxpu_fw_slot *s, uint64_t now)
{
    s->active = NULL;
    s->resetting = !s->untouched;
    s->retry_ns = now;
}

/* Go on with a reset.  When it is done nothing of the last host is left in the rings. */
static void slot_resetting(dxpu_fw *fw, dxpu_fw_slot *s, uint16_t number, uint64_t now)
{
    if (!fw->cfg.hooks->reset(fw->cfg.user, number)) {
        s->retry_ns = later(now, RESET_RETRY_NS);
        return;
    }
    s->resetting = false;
    s->untouched = true;
    s->nonposted = 0;
    s->held_bytes = 0;
    if (s->guard)
        dxpu_guard_clear(s->guard); /* S-112 */
    memset(s->done, 0, sizeof s->done);
    dxpu_fw_ring_drop(s->from_device);
    s->seen_put = s->from_device->taken;
}

/* Make the lease of l the slot's.  DXPU_REASON_NONE, or why not (another came up meanwhile). */
static uint8_t slot_bind(dxpu_fw *fw, const dxpu_fw_link *l, uint16_t number)
{
    const dxpu_channel_config *cfg = &l->ch.cfg;
    uint8_t reason = dxpu_fw_authorize(fw, &cfg->remote, number, cfg->epoch, l->owner);
    uint8_t *owner = fw->slots[number - 1].owner;
    dxpu_fw_kept lease;
    if (reason != DXPU_REASON_NONE)
        return reason;
    lease.epoch = cfg->epoch;
    lease.host_node = cfg->remote.node;
    lease.host_slot = cfg->remote.slot;
    memcpy(lease.owner, l->owner, sizeof lease.owner);
    if (fw->cfg.hooks->keep &&
        (cfg->epoch != dxpu_box_slot(&fw->table, number)->epoch_seen ||
         !same_owner(owner, l->owner)) &&
        !fw->cfg.hooks->keep(fw->cfg.user, number, &lease))
        return DXPU_REASON_NO_SLOT; /* a lease that could be forgotten is not granted */
    (void)dxpu_box_bind(&fw->table, number, lease.host_node, lease.host_slot, 0, lease.epoch);
    memcpy(owner, l->owner, sizeof lease.owner);
    return DXPU_REASON_NONE;
}

/* A channel came up: from its first TLP on the slot is this host's (D-49). */
static void link_up(dxpu_fw *fw, dxpu_fw_slot *s, dxpu_fw_link *l, uint16_t number, uint64_t now)
{
    uint8_t reason = slot_bind(fw, l, number);
    l->state = DXPU_FW_LINK_UP;
    if (reason != DXPU_REASON_NONE) {
        dxpu_channel_reset(&l->ch, reason);
        return;
    }
    if (s->active)
        dxpu_channel_reset(&s->active->ch, DXPU_REASON_REPLACED);
    slot_reset(s, now);
    s->active = l;
    fw->counters.ups++;
}

static void link_over(dxpu_fw *fw, dxpu_fw_slot *s, dxpu_fw_link *l, uint16_t number, uint64_t now)
{
    bool closed = dxpu_channel_status(&l->ch).state == DXPU_STATE_CLOSED;
    l->state = DXPU_FW_LINK_OVER;
    fw->counters.closed += closed;
    fw->counters.failed += !closed;
    if (s->active != l)
        return;
    slot_reset(s, now);
    /* Only the host gives a lease back.  After silence the slot stays assigned: another with
       the same epoch could otherwise open it while the host still runs. */
    if (closed)
        (void)dxpu_box_release(&fw->table, number);
}

static void link_run(dxpu_fw *fw, dxpu_fw_slot *s, dxpu_fw_link *l, uint16_t number, uint64_t now)
{
    unsigned state = dxpu_channel_status(&l->ch).state;
    bool alive;
    if (l->state == DXPU_FW_LINK_OPENING && state >= DXPU_STATE_UP && state != DXPU_STATE_FAILED)
        link_up(fw, s, l, number, now);
    alive = link_emit(fw, l, now);
    if (l->ch.cfg.suite)
        l->work_ns =
            fw->cfg.security->work(fw->cfg.security_user, l->ch.cfg.suite_user, &l->ch, now);
    state = dxpu_channel_status(&l->ch).state;
    if (l->state != DXPU_FW_LINK_OVER && state >= DXPU_STATE_CLOSED)
        link_over(fw, s, l, number, now);
    if (l->state == DXPU_FW_LINK_OVER && !alive)
        link_free(fw, l);
}

/* The rings as they stand; a device whose count of TLPs cannot be has lost some. */
static void slot_look(dxpu_fw *fw, dxpu_fw_slot *s)
{
    bool lost = ring_astray(fw, s->from_device);
    s->seen_put = s->from_device->put;
    s->seen_taken = s->to_device->taken;
    s->seen_limit = s->nonposted_limit;
    if (s->seen_put - s->from_device->taken > s->from_device->count)
        s->seen_put = s->from_device->taken; /* between the two looks: the next one sees it */
    if (lost && s->active)
        dxpu_channel_reset(&s->active->ch, DXPU_REASON_PROTOCOL);
}

static void slot_run(dxpu_fw *fw, uint16_t number, uint64_t now)
{
    dxpu_fw_slot *s = &fw->slots[number - 1];
    unsigned i;
    slot_look(fw, s);
    if (s->resetting && now >= s->retry_ns)
        slot_resetting(fw, s, number, now);
    if (s->active && !s->resetting) {
        s->untouched = false;
        take_all(fw, s, now);
        give(fw, s, number, now);
    } else if (!s->resetting && s->seen_put != s->from_device->taken) {
        s->untouched = false; /* it may wait for an answer */
        fw->counters.device_dropped += s->seen_put - s->from_device->taken;
        s->from_device->taken = s->seen_put;
    }
    for (i = 0; i < DXPU_FW_LINKS; i++) {
        if (s->link[i].state != DXPU_FW_LINK_FREE)
            link_run(fw, s, &s->link[i], number, now);
    }
}

/* ==== 9  Node ================================================================================= */

void dxpu_fw_config_default(dxpu_fw_config *cfg)
{
    unsigned i;
    memset(cfg, 0, sizeof *cfg);
    cfg->own.port = 4458;
    cfg->turn = 16;
    dxpu_channel_config_default(&cfg->channel);
    cfg->channel.window_frames = 16;
    cfg->channel.paths = DXPU_PATHS_MAX;
    for (i = 0; i < DXPU_CLASSES; i++) {
        uint32_t units = i == DXPU_NONPOSTED ? 8 : 256; /* W-26: one TLP of any size */
        cfg->channel.rx.header[i] = cfg->channel.tx.header[i] = 16;
        cfg->channel.rx.data[i] = cfg->channel.tx.data[i] = units;
    }
}

static size_t link_bytes(const dxpu_fw_config *cfg)
{
    return (dxpu_channel_bytes(&cfg->channel) + 7u) & ~(size_t)7u;
}

static size_t table_bytes(uint16_t slots)
{
    return (slots * sizeof(dxpu_box_entry) + 7u) & ~(size_t)7u;
}

size_t dxpu_fw_bytes(const dxpu_fw_config *cfg, uint16_t slots)
{
    size_t each = link_bytes(cfg);
    return each ? table_bytes(slots) + (size_t)slots * DXPU_FW_LINKS * each : 0;
}

static bool config_valid(const dxpu_fw_config *cfg, const dxpu_fw_slot *slots, uint16_t count)
{
    uint32_t frame = cfg->channel.frame_limit_bytes + (uint32_t)DXPU_FW_HEADERS_BYTES;
    uint16_t i;
    const dxpu_fw_security *s = cfg->security;
    if (!count || !cfg->turn || !cfg->own.port || !cfg->hooks || !cfg->hooks->random ||
        !cfg->hooks->reset || cfg->tx->buffer_bytes < frame || cfg->rx->buffer_bytes < frame)
        return false;
    if (s && (!s->handshake || !s->open || !s->allowed || !s->work || !s->end))
        return false;
    for (i = 0; i < count; i++) { /* the smallest payload that PCIe lets a device be limited to */
        if (slots[i].to_device->buffer_bytes < 128 + 16 + 16 + 4 ||
            (slots[i].guard && !slots[i].guard_room))
            return false;
    }
    return true;
}

static void slot_init(dxpu_fw *fw, uint16_t number, uint8_t *at)
{
    dxpu_fw_slot *s = &fw->slots[number - 1];
    unsigned n;
    dxpu_box_slot(&fw->table, number)->valid = true;
    memset(s->link, 0, sizeof s->link);
    memset(s->done, 0, sizeof s->done);
    memset(s->owner, 0, sizeof s->owner);
    s->nonposted = 0;
    s->held_bytes = 0;
    s->untouched = false;
    slot_reset(s, 0);
    slot_look(fw, s);
    for (n = 0; n < DXPU_FW_LINKS; n++, at += fw->link_bytes)
        s->link[n].memory = at;
}

/* Was dxpu.h's implementation compiled with our options?  It says so of a channel; of a TLP it
   shows where it puts the payload.  Both in the memory of the first channel, which is larger. */
static bool layouts_agree(dxpu_fw *fw, void *memory)
{
    static const uint8_t bytes[16] = { 0x40, 0, 0, 1, 0, 0, 0, 0x0f }; /* MWr, 4 bytes */
    dxpu_channel_config *cfg = &fw->cfg.channel;
    dxpu_tlp *tlp = (dxpu_tlp *)memory;
    dxpu_bytes whole;
    whole.ptr = bytes;
    whole.len = sizeof bytes;
    memset(tlp, 0, sizeof *tlp);
    cfg->local_id = 1; /* link_accept() sets others */
    cfg->epoch = 1;
    return dxpu_tlp_receive(whole, tlp) == DXPU_OK && tlp->payload.len == 4 &&
           dxpu_channel_init(&fw->slots[0].link[0].ch, cfg, memory, fw->link_bytes) == DXPU_OK;
}

int dxpu_fw_init_sized(dxpu_fw *fw, size_t fw_bytes, const dxpu_fw_config *cfg, dxpu_fw_slot *slots,
                       size_t slot_bytes, uint16_t count, void *memory, size_t memory_bytes)
{
    size_t need = dxpu_fw_bytes(cfg, count);
    uint8_t *at = (uint8_t *)memory + table_bytes(count);
    uint16_t i;
    if (fw_bytes != sizeof *fw + sizeof(dxpu_tlp) || slot_bytes != sizeof *slots || !need ||
        ((uintptr_t)memory & 7u) || !config_valid(cfg, slots, count))
        return DXPU_E_ARG;
    if (memory_bytes < need)
        return DXPU_E_ROOM;
    memset(fw, 0, sizeof *fw);
    fw->cfg = *cfg;
    fw->slots = slots;
    fw->count = count;
    fw->link_bytes = link_bytes(cfg);
    fw->security_ns = DXPU_NEVER;
    if (!layouts_agree(fw, at))
        return DXPU_E_ARG;
    (void)dxpu_box_init(&fw->table, (dxpu_box_entry *)memory, count);
    for (i = 1; i <= count; i++, at += DXPU_FW_LINKS * fw->link_bytes)
        slot_init(fw, i, at);
    return DXPU_OK;
}

int dxpu_fw_restore(dxpu_fw *fw, uint16_t slot, const dxpu_fw_kept *lease)
{
    dxpu_box_entry *e = dxpu_box_slot(&fw->table, slot);
    if (!e)
        return DXPU_E_ARG;
    e->epoch_seen = lease->epoch;
    e->host_node = lease->host_node;
    e->host_slot = lease->host_slot;
    memcpy(fw->slots[slot - 1].owner, lease->owner, sizeof lease->owner);
    return DXPU_OK;
}

dxpu_box_entry *dxpu_fw_lease(dxpu_fw *fw, uint16_t slot)
{
    return dxpu_box_slot(&fw->table, slot);
}

static void on_datagram(dxpu_fw *fw, const dxpu_fw_datagram *d, uint64_t now)
{
    dxpu_bytes frame;
    dxpu_fw_link *l;
    uint8_t kind = 0;
    uint32_t id = 0;
    frame.ptr = d->payload;
    frame.len = d->payload_bytes;
    if (dxpu_frame_peek(frame, &kind, &id) != DXPU_OK) {
        fw->counters.rx_not_frames++;
        return;
    }
    l = link_by_id(fw, id);
    if (kind == DXPU_KIND_OPEN)
        on_open(fw, d, now);
    else if (kind == DXPU_KIND_HANDSHAKE)
        on_handshake(fw, d, now);
    else if (l)
        link_ingest(l, d, now);
    else
        fw->counters.rx_unknown++;
}

static void on_frame(dxpu_fw *fw, uint8_t *frame, uint32_t bytes, uint64_t now)
{
    dxpu_fw_datagram d;
    uint8_t *room;
    switch (dxpu_fw_wire_parse(&fw->cfg.own, frame, bytes, &d, &fw->counters)) {
    case DXPU_FW_DATAGRAM:
        on_datagram(fw, &d, now);
        break;
    case DXPU_FW_ARP:
        room = answer_room(fw);
        if (!room)
            break;
        dxpu_fw_ring_put(fw->cfg.tx, dxpu_fw_wire_arp(&fw->cfg.own, frame, room));
        fw->counters.tx_frames++;
        break;
    default:
        break;
    }
}

void dxpu_fw_poll(dxpu_fw *fw, uint64_t now_ns)
{
    dxpu_fw_ring *rx = fw->cfg.rx;
    uint32_t bytes = 0;
    uint8_t *frame;
    unsigned n;
    uint16_t i;
    fw->more = false;
    (void)ring_astray(fw, rx); /* what is lost is sent again */
    for (n = 0; n < fw->cfg.turn && (frame = dxpu_fw_ring_peek(rx, &bytes)) != NULL; n++) {
        if (bytes)
            on_frame(fw, frame, bytes, now_ns);
        else
            fw->counters.device_lengths++;
        dxpu_fw_ring_take(rx);
    }
    for (i = 1; i <= fw->count; i++)
        slot_run(fw, i, now_ns);
    if (fw->cfg.security && fw->cfg.security->tick)
        fw->security_ns = fw->cfg.security->tick(fw->cfg.security_user, now_ns);
}

static uint64_t slot_next_ns(const dxpu_fw_slot *s, bool room)
{
    uint64_t next = s->resetting ? s->retry_ns : DXPU_NEVER;
    unsigned i;
    if (!s->resetting &&
        (s->from_device->put != s->seen_put || s->to_device->taken != s->seen_taken ||
         s->nonposted_limit != s->seen_limit))
        return 0;
    for (i = 0; i < DXPU_FW_LINKS; i++) {
        const dxpu_fw_link *l = &s->link[i];
        if (l->state == DXPU_FW_LINK_FREE)
            continue;
        if (l->state != DXPU_FW_LINK_OVER && l->ch.cfg.suite)
            next = earlier(next, l->work_ns);
        if (room) /* else its end of the ring wakes us */
            next = earlier(next, dxpu_channel_next_ns(&l->ch));
    }
    return next;
}

uint64_t dxpu_fw_next_ns(const dxpu_fw *fw)
{
    bool room = dxpu_fw_ring_room(fw->cfg.tx) != NULL;
    uint64_t next = fw->security_ns;
    uint16_t i;
    if (fw->more || dxpu_fw_ring_used(fw->cfg.rx))
        return 0;
    for (i = 0; i < fw->count; i++)
        next = earlier(next, slot_next_ns(&fw->slots[i], room));
    return next;
}

void dxpu_fw_close(dxpu_fw *fw, uint8_t reason)
{
    unsigned i;
    for (i = 0; i < fw->count * (unsigned)DXPU_FW_LINKS; i++) {
        dxpu_fw_link *l = &fw->slots[i / DXPU_FW_LINKS].link[i % DXPU_FW_LINKS];
        if (l->state == DXPU_FW_LINK_UP)
            (void)dxpu_channel_close(&l->ch, reason); /* already closing: nothing to do */
        else if (l->state == DXPU_FW_LINK_OPENING)
            dxpu_channel_reset(&l->ch, reason);
    }
}

void dxpu_fw_recheck(dxpu_fw *fw)
{
    unsigned i;
    for (i = 0; fw->cfg.security && i < fw->count * (unsigned)DXPU_FW_LINKS; i++) {
        dxpu_fw_link *l = &fw->slots[i / DXPU_FW_LINKS].link[i % DXPU_FW_LINKS];
        uint16_t number = (uint16_t)(i / DXPU_FW_LINKS + 1);
        if ((l->state != DXPU_FW_LINK_OPENING && l->state != DXPU_FW_LINK_UP) ||
            fw->cfg.security->allowed(fw->cfg.security_user, number, l->owner))
            continue;
        fw->counters.revoked++;
        dxpu_channel_reset(&l->ch, DXPU_REASON_DETACH);
    }
}

bool dxpu_fw_idle(const dxpu_fw *fw)
{
    uint16_t i;
    unsigned n;
    for (i = 0; i < fw->count; i++) {
        for (n = 0; n < DXPU_FW_LINKS; n++) {
            if (fw->slots[i].link[n].state == DXPU_FW_LINK_OPENING ||
                fw->slots[i].link[n].state == DXPU_FW_LINK_UP)
                return false;
        }
    }
    return true;
}

#define DXPU_FW_COUNTER_NAME(name, text) #name,
static const char *const counter_names[] = { DXPU_FW_COUNTERS(DXPU_FW_COUNTER_NAME) };
#undef DXPU_FW_COUNTER_NAME

const char *dxpu_fw_counter_name(unsigned index)
{
    return index < sizeof counter_names / sizeof counter_names[0] ? counter_names[index] : NULL;
}

uint64_t dxpu_fw_counter_value(const dxpu_fw_counters *c, unsigned index)
{
    uint64_t value = 0;
    if (dxpu_fw_counter_name(index))
        memcpy(&value, (const uint8_t *)c + index * sizeof value, sizeof value);
    return value;
}
