/* p2p_link.c - channels to the boxes of neighbors: spec/p2p.md, B-10 to B-15
   SPDX-License-Identifier: MIT

   CONTENTS   1 Authorized openers   2 Life   3 Out   4 In */
#include "p2p_internal.h"
#include "log.h"

#include <stdlib.h>

enum {
    RETRY_NS = 100000000, /* then twice as long each time, */
    RETRIES_MAX = 5,      /* so often */
    DIAL_GAP_NS = 200000000,
    TURN = 64
};
#define STABLE_NS 10000000000ull /* one that was up for this time has no retries */

/* ==== 1  Authorized openers =================================================================== */

/* Both slots are a box's, and the opener is a function of one: no host's open (B-10). */
static bool is_places(const dxpu_place *from, const dxpu_place *to)
{
    return from->slot != DXPU_SLOT_HOST && to->slot != DXPU_SLOT_HOST &&
           from->function != DXPU_FUNCTION_ALL;
}

bool p2p_is_offer(const dxpu_offer *o)
{
    return is_places(&o->source, &o->destination);
}

bool p2p_is_link(const fabric_channel *c)
{
    const dxpu_channel_config *cfg = &c->ch.cfg;
    return c->accepted ? is_places(&cfg->remote, &cfg->local)
                       : is_places(&cfg->local, &cfg->remote);
}

static bool is_key(const dxpu_p2p_place *p, const uint8_t *key)
{
    static const uint8_t none[DXPU_P2P_KEY_BYTES];
    return !memcmp(p->key, key ? key : none, sizeof none);
}

/* The place in a slot's list of the slot of another box that opens a channel to it. */
static const dxpu_p2p_place *opener(const slot *s, uint16_t box_slot, const uint8_t *key)
{
    for (unsigned i = 0; s->p2p && s->active && !s->indirect && i < s->p2p->list.places; i++) {
        const dxpu_p2p_place *p = &s->p2p->list.place[i];
        if (p->box_slot == box_slot && is_key(p, key) && p->slot < s->p2p->list.slot)
            return p;
    }
    return NULL;
}

/* Each takes a place for channels of the loop; neighbors beyond these are reached by the host. */
static bool has_place(const slot *s, unsigned neighbor)
{
    unsigned used = 0;
    for (unsigned n = 0; n < P2P_LINKS; n++)
        used += n + 1 != neighbor && s->p2p->link[n] && s->p2p->link[n]->c;
    return used < P2P_LINKS_EACH;
}

/* Is there more than the inbox has room for, since channels that ended left it there?  Further ones
   would, too. */
static bool is_overfull(const slot *s)
{
    return s->p2p->in[DXPU_POSTED].count > INBOX_TLPS;
}

uint8_t p2p_authorize(shard *sh, const dxpu_offer *o, const uint8_t *key)
{
    const box *b = sh->box;
    uint16_t number = o->destination.slot;
    const slot *s = number <= b->count ? &b->slots[number - 1] : NULL;
    const dxpu_p2p_place *p = b->p2p && s && s->shard == sh ? opener(s, o->source.slot, key) : NULL;
    if (!p)
        return DXPU_REASON_NO_SLOT;
    if (!has_place(s, p->slot) || is_overfull(s))
        return DXPU_REASON_BUSY;
    return s->active->ch.cfg.epoch == o->epoch ? DXPU_REASON_NONE : DXPU_REASON_EPOCH;
}

bool p2p_knows(const shard *sh, const uint8_t *key)
{
    const box *b = sh->box;
    for (unsigned i = sh->index; b->p2p && i < b->count; i += b->shard_count) {
        const slot *s = &b->slots[i];
        for (unsigned n = 0; s->p2p && s->active && n < s->p2p->list.places; n++) {
            if (is_key(&s->p2p->list.place[n], key))
                return true;
        }
    }
    return false;
}

/* ==== 2  Life ================================================================================= */

/* What the host has sent does not wait for this link. */
static void let_host(p2p_link *l)
{
    l->s->p2p->behind -= l->behind;
    if (l->behind && l->s->active)
        p2p_stir(l->s, l->s->active);
    l->behind = 0;
}

static void forget(p2p_link *l)
{
    uint8_t bytes[REFUSAL_BYTES];
    uint64_t now = dxpu_udp_now_ns();
    dxpu_request r;
    if (l->ready && now - l->up_ns >= STABLE_NS)
        l->tries = 0;
    l->c = NULL;
    l->ready = l->said = l->wrote = false;
    l->life++;
    l->s->p2p->count.links_ended++;
    l->stuck_ns = l->early_ns[DXPU_POSTED] = l->early_ns[DXPU_NONPOSTED] = 0;
    l->owed = 0;
    let_host(l);
    memset(l->s->p2p->pass, 0, sizeof l->s->p2p->pass); /* compared again in the next turn */
    l->dial_ns = l->dials ? now + ((uint64_t)RETRY_NS << l->tries) : DXPU_NEVER;
    l->tries += l->tries < RETRIES_MAX;
    if (l->s->active)
        p2p_stir(l->s, l->s->active); /* what waited for it is tried again */
    while (dxpu_tags_pop(&l->asked, &r)) {
        if (l->s->active && !p2p_put(l->s, DXPU_COMPLETION, refusal_of_tracked(&r, bytes),
                                     P2P_LINK | l->neighbor, l->life))
            slots_no_memory(l->s);
    }
}

/* Has the device written what the other box has not acknowledged? */
static bool is_dirty(const p2p_link *l)
{
    return l->ready && l->wrote && l->c->ch.tx.queue[DXPU_POSTED].count;
}

/* Writes are lost, and no device learns it: the host must see that a device has failed (B-15). */
static void lose(const p2p_link *l, const char *which)
{
    const slot *s = l->s;
    if (!s->active)
        return;
    log_warning("slot %u: writes %s slot %u of another box are lost; its host's channel ends",
                slots_number(s), which, l->place.box_slot);
    fabric_reset(&s->shard->fabric, s->active, DXPU_REASON_HOLD);
}

static bool take_rest(p2p_link *l);

/* By this box.  NO_SLOT: one of the two devices is gone, or reset.  PROTOCOL: the other box
   announces what is lost of its slot. */
static void end(p2p_link *l, uint8_t reason)
{
    bool is_gone = reason == DXPU_REASON_NO_SLOT, to, from;
    if (!l->c)
        return;
    if (!is_gone && dxpu_channel_status(&l->c->ch).state == DXPU_STATE_FAILED) {
        p2p_down(l->s->shard, l->c); /* by the other box, which has said why */
        return;
    }
    from = take_rest(l) && !is_gone && reason != DXPU_REASON_PROTOCOL;
    to = is_dirty(l) && !is_gone;
    fabric_reset(&l->s->shard->fabric, l->c, reason);
    forget(l);
    if (to || from)
        lose(l, to ? "to" : "of");
}

static p2p_link *link_for(slot *s, unsigned neighbor)
{
    p2p_link *l;
    if (neighbor < 1 || neighbor > P2P_LINKS)
        return NULL;
    l = s->p2p->link[neighbor - 1];
    if (l)
        return l;
    l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->s = s;
    l->neighbor = (uint8_t)neighbor;
    l->dial_ns = DXPU_NEVER;
    (void)dxpu_tags_init(&l->asked, l->entries, INBOX_REQUESTS, 0, 0,
                         s->shard->fabric.base.hold_ms * 1000000ull);
    s->p2p->link[neighbor - 1] = l;
    s->p2p->links++;
    return l;
}

/* Is it a slot of this box?  Then there is nothing to dial. */
static bool is_here(const slot *s, const dxpu_p2p_place *p)
{
    const box *b = s->shard->box;
    const dxpu_noise_pair *own = keys_own(b->keys);
    const slot *other = p->box_slot <= b->count ? &b->slots[p->box_slot - 1] : NULL;
    if (own)
        return !memcmp(own->public_key, p->key, sizeof p->key);
    return other && other != s && other->shard == s->shard && other->p2p &&
           other->p2p->list.slot == p->slot &&
           !memcmp(other->p2p->list.domain, s->p2p->list.domain, DXPU_P2P_DOMAIN_BYTES);
}

void p2p_links_list(slot *s)
{
    const dxpu_p2p_list *list = &s->p2p->list;
    for (unsigned n = 1; n <= P2P_LINKS; n++) {
        const dxpu_p2p_place *p = s->indirect ? NULL : dxpu_p2p_place_of(list, n);
        p2p_link *l = p && s->shard->box->p2p ? link_for(s, n) : s->p2p->link[n - 1];
        dxpu_p2p_place before;
        if (!l)
            continue;
        before = l->place;
        memset(&l->place, 0, sizeof l->place);
        if (p)
            l->place = *p;
        if (l->place.epoch != before.epoch || l->place.box_slot != before.box_slot ||
            memcmp(l->place.key, before.key, sizeof before.key) != 0)
            end(l, DXPU_REASON_NO_SLOT);
        l->dials = p && n > list->slot && !is_here(s, p);
        if (!l->dials || l->c)
            l->dial_ns = DXPU_NEVER;
        else if (l->dial_ns == DXPU_NEVER)
            l->dial_ns = 0;
        l->early_ns[DXPU_POSTED] = l->early_ns[DXPU_NONPOSTED] = 0; /* listed now? */
    }
}

void p2p_links_end(slot *s)
{
    for (unsigned n = 0; n < P2P_LINKS; n++) {
        if (s->p2p->link[n])
            end(s->p2p->link[n], DXPU_REASON_NO_SLOT);
    }
}

void p2p_links_free(slot *s)
{
    for (unsigned n = 0; n < P2P_LINKS; n++)
        free(s->p2p->link[n]);
}

static void dial(p2p_link *l, uint64_t now)
{
    const shard *sh = l->s->shard;
    dxpu_udp_address to = { .len = 0 };
    dxpu_channel_config cfg;
    dxpu_udp_path path;
    bool plain = keys_plain(sh->box->keys);
    memset(&to, 0, sizeof to);
    if (l->place.family == 4) {
        to.u.v4.sin_family = AF_INET;
        to.u.v4.sin_port = htons(l->place.port);
        memcpy(&to.u.v4.sin_addr, l->place.address, 4);
        to.len = sizeof to.u.v4;
    } else {
        to.u.v6.sin6_family = AF_INET6;
        to.u.v6.sin6_port = htons(l->place.port);
        memcpy(&to.u.v6.sin6_addr, l->place.address, 16);
        to.len = sizeof to.u.v6;
    }
    l->dial_ns = now + ((uint64_t)RETRY_NS << l->tries);
    l->s->p2p->dial_ns = now + DIAL_GAP_NS;
    if (sh->stopping || !has_place(l->s, l->neighbor) || is_overfull(l->s) ||
        !keys_allow_address(sh->box->keys, &to) || is_key(&l->place, NULL) != plain ||
        fabric_route(&sh->fabric, &to, 1, &path) != DXPU_OK)
        return;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = l->place.epoch;
    cfg.local.node = sh->node;
    cfg.local.slot = (uint16_t)slots_number(l->s);
    cfg.remote.slot = l->place.box_slot;
    l->c = fabric_dial(&l->s->shard->fabric, &cfg, plain ? NULL : l->place.key, &path, 1, now);
    if (l->c)
        l->dial_ns = DXPU_NEVER;
}

static p2p_link *link_of(const shard *sh, const fabric_channel *c)
{
    const box *b = sh->box;
    unsigned number = c->ch.cfg.local.slot;
    const slot *s = number >= 1 && number <= b->count ? &b->slots[number - 1] : NULL;
    for (unsigned n = 0; s && s->p2p && n < P2P_LINKS; n++) {
        if (s->p2p->link[n] && s->p2p->link[n]->c == c)
            return s->p2p->link[n];
    }
    return NULL;
}

static void say_hello(p2p_link *l, uint64_t now)
{
    uint8_t payload[DXPU_P2P_HELLO_BYTES], bytes[16 + DXPU_P2P_HELLO_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_p2p_hello h;
    dxpu_tlp t;
    memcpy(h.domain, l->s->p2p->list.domain, sizeof h.domain);
    h.from = l->s->p2p->list.slot;
    h.to = l->neighbor;
    dxpu_p2p_hello_message(&h, payload, &t);
    l->said = dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len) == DXPU_OK &&
              dxpu_channel_submit(&l->c->ch, tlp, now, 0) == DXPU_OK;
}

void p2p_up(shard *sh, fabric_channel *c, uint64_t now)
{
    const box *b = sh->box;
    p2p_link *l = link_of(sh, c);
    slot *s;
    const dxpu_p2p_place *p;
    if (l) {
        l->up_ns = now;
        say_hello(l, now);
        return;
    }
    s = &b->slots[c->ch.cfg.local.slot - 1];
    p = opener(s, c->ch.cfg.remote.slot, c->session ? dxpu_sodium_peer_key(c->session) : NULL);
    l = p && s->active->ch.cfg.epoch == c->ch.cfg.epoch ? link_for(s, p->slot) : NULL;
    /* others that were opened meanwhile may have come up, or ended */
    if (!l || !has_place(s, p->slot) || is_overfull(s)) {
        dxpu_channel_reset(&c->ch, l ? DXPU_REASON_BUSY : DXPU_REASON_NO_SLOT);
        return;
    }
    end(l, DXPU_REASON_REPLACED);
    l->c = c;
    l->up_ns = now;
}

/* What the other box says of its end: NO_SLOT, its device is gone or reset; PROTOCOL, it dropped
   what was not listed there.  Otherwise nothing is lost but what it has not acknowledged here, and
   what this end has acknowledged and cannot take any more. */
void p2p_down(shard *sh, fabric_channel *c)
{
    p2p_link *l = link_of(sh, c);
    dxpu_status st = dxpu_channel_status(&c->ch);
    bool is_reset = st.error == DXPU_E_RESET, to, from;
    if (!l)
        return;
    from = take_rest(l); /* of one that was closed gracefully */
    to = is_reset && st.reason == DXPU_REASON_PROTOCOL
             ? l->ready && l->wrote
             : is_dirty(l) && !(is_reset && st.reason == DXPU_REASON_NO_SLOT);
    from |= l->ready && c->ch.rx.queue[DXPU_POSTED].count;
    forget(l);
    if (to || from)
        lose(l, to ? "to" : "of");
}

bool p2p_allowed(const shard *sh, const fabric_channel *c, const uint8_t *key)
{
    const p2p_link *l = link_of(sh, c);
    return l && is_key(&l->place, key);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Is one of the slot's dials on its way? */
static bool is_dialing(const slot *s)
{
    bool any = false;
    for (unsigned n = 0; n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        any |= l && l->c && !l->c->up;
    }
    return any;
}

uint64_t p2p_links_next_ns(const slot *s)
{
    uint64_t next = s->active && s->p2p->fence_ns ? s->p2p->fence_ns : DXPU_NEVER;
    bool dials = s->p2p->links && is_dialing(s);
    for (unsigned n = 0; s->active && s->p2p->links && n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        next = l ? sooner(next, dxpu_tags_next_ns(&l->asked)) : next;
        if (l && !l->c && l->dial_ns != DXPU_NEVER && !dials)
            next = sooner(next, l->dial_ns > s->p2p->dial_ns ? l->dial_ns : s->p2p->dial_ns);
        for (unsigned cls = 0; l && cls < 2; cls++)
            next = l->early_ns[cls] ? sooner(next, l->early_ns[cls]) : next;
    }
    return next;
}

unsigned p2p_links_up(const slot *s)
{
    unsigned up = 0;
    for (unsigned n = 0; n < P2P_LINKS; n++)
        up += s->p2p->link[n] && s->p2p->link[n]->ready;
    return up;
}

/* ==== 3  Out ================================================================================== */

p2p_link *p2p_link_of(const slot *s, unsigned neighbor, uint32_t life)
{
    p2p_link *l = neighbor >= 1 && neighbor <= P2P_LINKS ? s->p2p->link[neighbor - 1] : NULL;
    return l && l->ready && l->life == life ? l : NULL;
}

void p2p_link_send(p2p_link *l, dxpu_bytes tlp, uint64_t now)
{
    if (dxpu_channel_submit(&l->c->ch, tlp, now, 0) == DXPU_OK)
        p2p_stir(l->s, l->c);
    else
        end(l, DXPU_REASON_BUSY); /* p2p_link_may_ask() has looked: the channel is over */
}

bool p2p_link_may_ask(const p2p_link *l, unsigned completions)
{
    enum { UNITS = 4 }; /* of 16 bytes, in a completion, where each has as little as it may */
    const dxpui_queue *q = &l->c->ch.tx.queue[DXPU_COMPLETION];
    uint32_t most = l->owed + completions;
    return most <= q->header_max - q->count && most * UNITS <= q->data_max - q->data_used;
}

bool p2p_links_dirty(const slot *s, unsigned but)
{
    for (unsigned n = 0; s->p2p->links && n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        if (l && n + 1 != but && is_dirty(l))
            return true; /* a TLP stays there until it is acknowledged */
    }
    return false;
}

/* Nothing waits for longer than the hold time for a device that takes nothing (B-8). */
static int wait_for(p2p_link *l, uint64_t now)
{
    if (!l->stuck_ns)
        l->stuck_ns = now + l->s->shard->fabric.base.hold_ms * 1000000ull;
    if (now < l->stuck_ns)
        return DXPU_E_AGAIN;
    end(l, DXPU_REASON_HOLD);
    return P2P_HOST;
}

/* Writes pass completions.  One that waits until all writes are acknowledged (B-14) is passed by no
   further one, or it would wait for ever. */
static bool has_to_wait(const slot *s)
{
    const waiting_tlp *posted = s->queues[DXPU_POSTED].head, *cpl = s->queues[DXPU_COMPLETION].head;
    return cpl && !(posted && posted->order < cpl->order);
}

void p2p_links_break(slot *s, unsigned but)
{
    for (unsigned n = 0; n < P2P_LINKS; n++) {
        p2p_link *l = s->p2p->link[n];
        if (l && n + 1 != but && is_dirty(l))
            end(l, DXPU_REASON_HOLD);
    }
}

void p2p_links_revoke(slot *s)
{
    for (unsigned n = 0; n < P2P_LINKS; n++) {
        if (s->p2p->link[n])
            end(s->p2p->link[n], DXPU_REASON_HOLD);
    }
}

int p2p_link_request(slot *s, unsigned neighbor, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    p2p_link *l = neighbor <= P2P_LINKS ? s->p2p->link[neighbor - 1] : NULL;
    bool asks = dxpu_tlp_class(t) == DXPU_NONPOSTED;
    int rc;
    if (!l || !l->ready)
        return P2P_HOST;
    if (!asks && has_to_wait(s))
        return DXPU_E_AGAIN;
    rc = asks ? dxpu_tags_track(&l->asked, t, now, 0) : DXPU_OK;
    if (rc == DXPU_OK) {
        rc = dxpu_channel_submit(&l->c->ch, tlp, now, 0);
        if (rc != DXPU_OK && asks)
            (void)dxpu_tags_drop(&l->asked, t->requester, t->tag);
    }
    if (rc != DXPU_OK)
        return wait_for(l, now);
    l->stuck_ns = 0;
    p2p_stir(s, l->c);
    l->wrote |= !asks;
    s->p2p->count.links_out++;
    return DXPU_OK;
}

/* ==== 4  In =================================================================================== */

static bool is_hello(const p2p_link *l, const dxpu_tlp *t)
{
    dxpu_p2p_hello h;
    return dxpu_p2p_hello_decode(t, &h) == 1 && h.from == l->neighbor &&
           h.to == l->s->p2p->list.slot &&
           !memcmp(h.domain, l->s->p2p->list.domain, sizeof h.domain);
}

/* A request that a device of the neighbor may make (B-12). */
static bool is_request(const dxpu_tlp *t)
{
    bool memory = t->type == DXPU_TLP_MWR || t->type == DXPU_TLP_MRD || t->type == DXPU_TLP_DMWR ||
                  t->type == DXPU_TLP_FETCHADD || t->type == DXPU_TLP_SWAP ||
                  t->type == DXPU_TLP_CAS;
    return memory && !t->at && !dxpu_guard_pasid(t);
}

/* Its own, and for addresses of this slot that the host lets it reach: the other box is not
   trusted. */
static bool is_listed(const p2p_link *l, const dxpu_tlp *t)
{
    return l->place.bus && DXPU_BDF_BUS(t->requester) >= l->place.bus &&
           DXPU_BDF_BUS(t->requester) <= l->place.last_bus &&
           dxpu_p2p_opens(&l->s->p2p->list, l->neighbor, t);
}

enum { TAKEN, WAITS, BROKEN };

/* It is not listed.  The list of this slot may be on its way, since the two boxes have one each:
   what the host has sent, it among that, is not to wait for this one. */
static int wait_for_list(p2p_link *l, unsigned cls, uint64_t now)
{
    uint64_t *early = &l->early_ns[cls];
    if (cls == DXPU_POSTED)
        let_host(l);
    if (!*early)
        *early = now + l->s->shard->fabric.base.hold_ms * 1000000ull;
    return now < *early ? WAITS : BROKEN;
}

static void is_ready(p2p_link *l)
{
    uint64_t epoch = l->s->active->ch.cfg.epoch;
    l->ready = true;
    if (l->linked != epoch)
        log_info("slot %u: linked to slot %u of another box", slots_number(l->s),
                 l->place.box_slot);
    l->linked = epoch; /* however often it opens */
}

static void refuse(p2p_link *l)
{
    const slot *s = l->s;
    uint64_t epoch = s->active->ch.cfg.epoch;
    s->p2p->count.links_refused++;
    if (l->warned != epoch)
        log_warning("slot %u: invalid TLP from slot %u of another box; resetting the channel to "
                    "it; further ones are only counted",
                    slots_number(s), l->place.box_slot);
    l->warned = epoch;
    end(l, DXPU_REASON_PROTOCOL);
}

static int take_hello(p2p_link *l, const dxpu_tlp *t)
{
    if (l->dials || !is_hello(l, t))
        return BROKEN;
    is_ready(l);
    return TAKEN;
}

static int take_posted(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp, bool has_room, uint64_t now)
{
    p2p *p = l->s->p2p;
    if (!l->ready)
        return take_hello(l, t);
    if (!is_request(t))
        return BROKEN;
    if (!is_listed(l, t))
        return wait_for_list(l, DXPU_POSTED, now);
    l->early_ns[DXPU_POSTED] = 0;
    if (!has_room || !p2p_put(l->s, DXPU_POSTED, tlp, P2P_LINK | l->neighbor, l->life))
        return WAITS;
    if (l->behind) {
        l->behind--;
        p->behind--;
        p->mark = p->order;
    }
    return TAKEN;
}

static int take_request(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    if (!is_request(t))
        return BROKEN;
    if (!is_listed(l, t))
        return wait_for_list(l, DXPU_NONPOSTED, now);
    l->early_ns[DXPU_NONPOSTED] = 0;
    return p2p_asked_by(l, t, tlp, now) ? TAKEN : WAITS;
}

static int take_completion(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp)
{
    uint8_t bytes[REFUSAL_BYTES];
    unsigned most = p2p_payload_bytes(&l->s->p2p->list, l->neighbor);
    dxpu_request r;
    if (l->s->p2p->in[DXPU_COMPLETION].count >= INBOX_COMPLETIONS)
        return WAITS;
    if (dxpu_tags_complete(&l->asked, t, &r) != DXPU_OK) { /* late, or unexpected */
        l->s->p2p->count.links_refused++;
        return TAKEN;
    }
    if (most && t->payload.len > most) { /* than the device's port may pass (V-16) */
        if (!r.done)
            (void)dxpu_tags_drop(&l->asked, t->requester, t->tag);
        tlp = refusal_of_tracked(&r, bytes);
    }
    if (!p2p_put(l->s, DXPU_COMPLETION, tlp, P2P_LINK | l->neighbor, l->life))
        slots_no_memory(l->s);
    return TAKEN;
}

static int take(p2p_link *l, unsigned cls, uint64_t now)
{
    dxpu_bytes tlp = dxpu_channel_peek(&l->c->ch, cls).tlp;
    dxpu_tlp t;
    int rc;
    if (!tlp.len)
        return WAITS;
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK)
        rc = BROKEN;
    else if (cls == DXPU_POSTED)
        rc = take_posted(l, &t, tlp, l->s->p2p->in[DXPU_POSTED].count < INBOX_TLPS, now);
    else if (!l->ready)
        rc = BROKEN;
    else if (cls == DXPU_COMPLETION)
        rc = take_completion(l, &t, tlp);
    else
        rc = take_request(l, &t, tlp, now);
    if (rc == TAKEN) {
        (void)dxpu_channel_take(&l->c->ch, cls, now); /* peek() has just shown it */
        fabric_stir_channel(&l->s->shard->fabric, l->c);
        l->s->p2p->count.links_in++;
    }
    return rc;
}

static bool take_event(p2p_link *l)
{
    dxpu_event e;
    if (!dxpu_channel_peek_event(&l->c->ch, &e))
        return false;
    (void)dxpu_channel_take_event(&l->c->ch); /* none means anything here */
    fabric_stir_channel(&l->s->shard->fabric, l->c);
    return true;
}

/* True: it is a write whose list has not come, and is dropped. */
static bool take_last(p2p_link *l, dxpu_bytes tlp, uint64_t now)
{
    dxpu_tlp t;
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK || !is_request(&t))
        return false;
    if (!is_listed(l, &t))
        return true;
    if (take_posted(l, &t, tlp, true, now) != TAKEN)
        slots_no_memory(l->s);
    return false;
}

/* What has come is acknowledged: it reaches the device whatever waits there, as much as the
   channel stores.  True: a write is lost. */
static bool take_rest(p2p_link *l)
{
    uint64_t now = dxpu_udp_now_ns();
    bool lost = false;
    while (l->ready && l->s->active) {
        dxpu_bytes tlp = dxpu_channel_peek(&l->c->ch, DXPU_POSTED).tlp;
        if (!tlp.len && !take_event(l))
            break;
        if (!tlp.len)
            continue;
        lost |= take_last(l, tlp, now);
        (void)dxpu_channel_take(&l->c->ch, DXPU_POSTED, now);
    }
    return lost;
}

/* The opener knows that it was let in: its hello is acknowledged, or something has come. */
static void look_for_ready(p2p_link *l)
{
    bool any = !l->c->ch.tx.queue[DXPU_POSTED].count;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        any |= dxpu_channel_peek(&l->c->ch, cls).tlp.len != 0;
    if (l->said && !l->ready && any)
        is_ready(l);
}

/* True: there may be more. */
static bool work(p2p_link *l, uint64_t now)
{
    bool any = true;
    look_for_ready(l);
    for (unsigned n = 0; any && n < TURN; n++) {
        any = take_event(l);
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            int rc = take(l, cls, now);
            any |= rc == TAKEN;
            if (rc != BROKEN)
                continue;
            refuse(l);
            return false;
        }
    }
    return any;
}

/* One of a slot's links at a time, each in turn: what a host lists makes a box send as little as a
   host that dials (security.md). */
static void dial_one(slot *s, uint64_t now)
{
    p2p *p = s->p2p;
    if (!s->active || !p->links || now < p->dial_ns || is_dialing(s))
        return;
    for (unsigned i = 1; i <= P2P_LINKS; i++) {
        unsigned n = (p->dialed + i) % P2P_LINKS;
        p2p_link *l = p->link[n];
        if (!l || l->c || now < l->dial_ns)
            continue;
        p->dialed = n;
        dial(l, now);
        return;
    }
}

void p2p_links_work(slot *s, uint64_t now)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_request r;
    for (unsigned n = 0; s->active && s->p2p->links && n < P2P_LINKS; n++) {
        p2p_link *l = s->p2p->link[n];
        if (!l)
            continue;
        if (l->c && l->c->up && work(l, now))
            s->p2p->again = true;
        while (dxpu_tags_expire(&l->asked, now, &r)) {
            if (!p2p_put(s, DXPU_COMPLETION, refusal_of_tracked(&r, bytes), P2P_LINK | l->neighbor,
                         l->life))
                slots_no_memory(s);
        }
    }
    dial_one(s, now);
}

static bool has_unread(const p2p_link *l)
{
    bool any = false;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        any |= l->c->ch.rx.queue[cls].count;
    return any;
}

void p2p_links_wake(const slot *s)
{
    for (unsigned n = 0; s->p2p->links && n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        if (l && l->c && l->c->up && has_unread(l))
            p2p_stir(s, l->c);
    }
}

void p2p_links_compare(slot *s)
{
    p2p *p = s->p2p;
    p->behind = 0;
    for (unsigned n = 0; p->links && n < P2P_LINKS; n++) {
        p2p_link *l = p->link[n];
        if (!l)
            continue;
        l->behind =
            l->ready && !l->early_ns[DXPU_POSTED] ? l->c->ch.rx.queue[DXPU_POSTED].count : 0;
        p->behind += l->behind;
    }
}

/* Before anything is acknowledged that has just come: what is in the inbox survives the channel. */
bool p2p_serve(shard *sh, const fabric_channel *c)
{
    p2p_link *l = link_of(sh, c);
    slot *s = l ? l->s : NULL;
    bool more;
    if (!s || !s->active)
        return false;
    more = work(l, dxpu_udp_now_ns());
    if (s->p2p->fence_ns && !p2p_links_dirty(s, 0)) {
        s->p2p->fence_ns = 0;
        p2p_stir(s, s->active);
    }
    return more;
}
