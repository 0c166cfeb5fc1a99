/* p2p_link.c - channels to the boxes of neighbors: spec/p2p.md, B-10 to B-15
   SPDX-License-Identifier: MIT

   CONTENTS   1 Who may open   2 Life   3 Out   4 In */
#include "p2p_internal.h"
#include "log.h"

#include <stdlib.h>

enum {
    RETRY_NS = 100000000, /* then twice as long each time, */
    RETRIES_MAX = 5,      /* so often */
    TURN = 64
};

/* ==== 1  Who may open ========================================================================= */

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
    for (unsigned i = 0; s->p2p && s->active && i < s->p2p->list.places; i++) {
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

uint8_t p2p_authorize(shard *sh, const dxpu_offer *o, const uint8_t *key)
{
    const box *b = sh->box;
    uint16_t number = o->destination.slot;
    const slot *s = number <= b->count ? &b->slots[number - 1] : NULL;
    const dxpu_p2p_place *p = b->p2p && s && s->shard == sh ? opener(s, o->source.slot, key) : NULL;
    if (!p)
        return DXPU_REASON_NO_SLOT;
    if (!has_place(s, p->slot))
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

static void forget(p2p_link *l)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_request r;
    l->c = NULL;
    l->ready = false;
    l->life++;
    l->s->p2p->count.links_ended++;
    l->stuck_ns = 0;
    l->s->p2p->behind = 0; /* counted again in the next turn */
    l->s->p2p->pass = 0;
    l->dial_ns = l->dials ? dxpu_udp_now_ns() + ((uint64_t)RETRY_NS << l->tries) : DXPU_NEVER;
    l->tries += l->tries < RETRIES_MAX;
    if (l->s->active)
        l->s->active->more = true; /* what waited for it is tried again */
    while (dxpu_tags_pop(&l->asked, &r)) {
        if (l->s->active && !p2p_put(l->s, DXPU_COMPLETION, p2p_refusal(&r, bytes),
                                     P2P_LINK | l->neighbor, l->life))
            slots_no_memory(l->s);
    }
}

static void end(p2p_link *l, uint8_t reason)
{
    if (!l->c)
        return;
    dxpu_channel_reset(&l->c->ch, reason);
    forget(l);
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
        const dxpu_p2p_place *p = dxpu_p2p_place_of(list, n);
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
        l->tries = 0;
        l->dial_ns = l->dials && !l->c ? 0 : DXPU_NEVER;
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
    if (sh->stopping || !has_place(l->s, l->neighbor) || !keys_allow_address(sh->box->keys, &to) ||
        is_key(&l->place, NULL) != plain || fabric_route(&sh->fabric, &to, 1, &path) != DXPU_OK)
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
    l->ready = dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len) == DXPU_OK &&
               dxpu_channel_submit(&l->c->ch, tlp, now, 0) == DXPU_OK;
}

void p2p_up(shard *sh, fabric_channel *c, uint64_t now)
{
    const box *b = sh->box;
    p2p_link *l = link_of(sh, c);
    slot *s;
    const dxpu_p2p_place *p;
    if (l) {
        l->tries = 0;
        say_hello(l, now);
        log_info("slot %u: linked to slot %u of another box", slots_number(l->s),
                 l->place.box_slot);
        return;
    }
    s = &b->slots[c->ch.cfg.local.slot - 1];
    p = opener(s, c->ch.cfg.remote.slot, c->session ? dxpu_sodium_peer_key(c->session) : NULL);
    l = p && s->active->ch.cfg.epoch == c->ch.cfg.epoch ? link_for(s, p->slot) : NULL;
    if (!l || !has_place(s, p->slot)) { /* others that were opened meanwhile may have come up */
        dxpu_channel_reset(&c->ch, l ? DXPU_REASON_BUSY : DXPU_REASON_NO_SLOT);
        return;
    }
    end(l, DXPU_REASON_REPLACED);
    l->c = c;
}

/* Writes that the other box has not acknowledged are lost, and no device hears of it: the host is
   to see that its device has failed (B-15).  Where the other box has ended the channel, its device
   is gone. */
void p2p_down(shard *sh, fabric_channel *c)
{
    p2p_link *l = link_of(sh, c);
    slot *s;
    bool lost;
    if (!l)
        return;
    s = l->s;
    lost = l->ready && c->ch.tx.queue[DXPU_POSTED].count &&
           dxpu_channel_status(&c->ch).error != DXPU_E_RESET;
    forget(l);
    if (!lost || !s->active)
        return;
    log_warning("slot %u: writes to slot %u of another box are lost; its host's channel ends",
                slots_number(s), l->place.box_slot);
    dxpu_channel_reset(&s->active->ch, DXPU_REASON_HOLD);
}

bool p2p_allowed(const shard *sh, const fabric_channel *c, const uint8_t *key)
{
    const p2p_link *l = link_of(sh, c);
    return l && is_key(&l->place, key);
}

uint64_t p2p_links_next_ns(const slot *s)
{
    uint64_t next = DXPU_NEVER;
    for (unsigned n = 0; s->active && s->p2p->links && n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        uint64_t due = l ? dxpu_tags_next_ns(&l->asked) : DXPU_NEVER;
        next = due < next ? due : next;
        if (l && !l->c && l->dial_ns < next)
            next = l->dial_ns;
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
        l->c->more = true;
    else
        end(l, DXPU_REASON_BUSY); /* p2p_links_room() has looked: the channel is over */
}

bool p2p_links_room(slot *s, dxpu_bytes tlp, uint64_t now)
{
    for (unsigned n = 0; s->p2p->links && n < P2P_LINKS; n++) {
        p2p_link *l = s->p2p->link[n];
        if (!l || !l->ready || dxpu_channel_status(&l->c->ch).state != DXPU_STATE_UP ||
            dxpu_channel_reserve(&l->c->ch, DXPU_COMPLETION, tlp.len)) {
            if (l)
                l->full_ns = 0;
            continue;
        }
        if (!l->full_ns)
            l->full_ns = now + s->shard->fabric.base.hold_ms * 1000000ull;
        if (now < l->full_ns)
            return false;
        end(l, DXPU_REASON_HOLD);
    }
    return true;
}

bool p2p_links_dirty(const slot *s, unsigned but)
{
    for (unsigned n = 0; s->p2p->links && n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        if (l && l->ready && n + 1 != but && l->c->ch.tx.queue[DXPU_POSTED].count)
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
        if (l && l->ready && n + 1 != but && l->c->ch.tx.queue[DXPU_POSTED].count)
            end(l, DXPU_REASON_HOLD);
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
    l->c->more = true;
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

/* A request that a device of the neighbor makes: of its own, and of memory (B-12). */
static bool is_request(const p2p_link *l, const dxpu_tlp *t)
{
    bool memory = t->type == DXPU_TLP_MWR || t->type == DXPU_TLP_MRD || t->type == DXPU_TLP_DMWR ||
                  t->type == DXPU_TLP_FETCHADD || t->type == DXPU_TLP_SWAP ||
                  t->type == DXPU_TLP_CAS;
    return memory && !t->at && !dxpu_guard_pasid(t) && l->place.bus &&
           DXPU_BDF_BUS(t->requester) >= l->place.bus &&
           DXPU_BDF_BUS(t->requester) <= l->place.last_bus;
}

enum { TAKEN, WAITS, BROKEN };

static int take_posted(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp)
{
    p2p *p = l->s->p2p;
    if (!l->ready) {
        l->ready = !l->dials && is_hello(l, t);
        if (l->ready)
            log_info("slot %u: linked to slot %u of another box", slots_number(l->s),
                     l->place.box_slot);
        return l->ready ? TAKEN : BROKEN;
    }
    if (!is_request(l, t))
        return BROKEN;
    if (p->in[DXPU_POSTED].count >= INBOX_TLPS ||
        !p2p_put(l->s, DXPU_POSTED, tlp, P2P_LINK | l->neighbor, l->life))
        return WAITS;
    if (p->behind && --p->behind == 0)
        p->mark = p->order;
    return TAKEN;
}

static int take_completion(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp)
{
    dxpu_request r;
    if (l->s->p2p->in[DXPU_COMPLETION].count >= INBOX_COMPLETIONS)
        return WAITS;
    if (dxpu_tags_complete(&l->asked, t, &r) != DXPU_OK) { /* late, or unexpected */
        l->s->p2p->count.links_refused++;
        return TAKEN;
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
        rc = take_posted(l, &t, tlp);
    else if (!l->ready)
        rc = BROKEN;
    else if (cls == DXPU_COMPLETION)
        rc = take_completion(l, &t, tlp);
    else
        rc = !is_request(l, &t) ? BROKEN : p2p_asked_by(l, &t, tlp, now) ? TAKEN : WAITS;
    if (rc == TAKEN) {
        (void)dxpu_channel_take(&l->c->ch, cls, now); /* peek() has just shown it */
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
    return true;
}

/* True: there may be more. */
static bool work(p2p_link *l, uint64_t now)
{
    bool any = true;
    for (unsigned n = 0; any && n < TURN; n++) {
        any = take_event(l);
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            int rc = take(l, cls, now);
            any |= rc == TAKEN;
            if (rc != BROKEN)
                continue;
            l->s->p2p->count.links_refused++;
            log_warning(
                "slot %u: the box of slot %u sends what no neighbor does; the channel to it "
                "ends",
                slots_number(l->s), l->place.box_slot);
            end(l, DXPU_REASON_PROTOCOL);
            return false;
        }
    }
    return any;
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
            s->active->more = true;
        while (dxpu_tags_expire(&l->asked, now, &r)) {
            if (!p2p_put(s, DXPU_COMPLETION, p2p_refusal(&r, bytes), P2P_LINK | l->neighbor,
                         l->life))
                slots_no_memory(s);
        }
        if (!l->c && now >= l->dial_ns)
            dial(l, now);
    }
}

unsigned p2p_links_posted(const slot *s)
{
    unsigned posted = 0;
    for (unsigned n = 0; s->p2p->links && n < P2P_LINKS; n++) {
        const p2p_link *l = s->p2p->link[n];
        posted += l && l->ready ? l->c->ch.rx.queue[DXPU_POSTED].count : 0;
    }
    return posted;
}

/* Its slot's turn takes what has come. */
bool p2p_serve(shard *sh, const fabric_channel *c)
{
    const p2p_link *l = link_of(sh, c);
    slot *s = l ? l->s : NULL;
    bool has_come = false;
    if (!s || !s->active)
        return false;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        has_come |= dxpu_channel_peek(&c->ch, cls).tlp.len != 0;
    if (s->p2p->fence_ns && !p2p_links_dirty(s, 0)) {
        s->p2p->fence_ns = 0;
        s->active->more = true;
    }
    if (has_come && s->p2p->in[DXPU_POSTED].count < INBOX_TLPS)
        s->active->more = true;
    return false;
}
