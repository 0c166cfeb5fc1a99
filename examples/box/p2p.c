/* p2p.c - see p2p.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Inbox   2 Access   3 Requests   4 Completions   5 To the device
              6 Life */
#include "p2p_internal.h"
#include "log.h"

#include <stdlib.h>

/* ==== 1  Inbox ================================================================================ */

bool p2p_put(slot *to, unsigned cls, dxpu_bytes tlp, uint16_t from, uint32_t life)
{
    p2p_queue *q = &to->p2p->in[cls];
    p2p_tlp *w = malloc(sizeof *w + tlp.len);
    if (!w)
        return false;
    w->next = NULL;
    w->order = ++to->p2p->order;
    w->life = life;
    w->from = from;
    w->len = (uint16_t)tlp.len;
    memcpy(w->bytes, tlp.ptr, tlp.len);
    *q->tail = w;
    q->tail = &w->next;
    q->count++;
    p2p_stir(to, to->active);
    return true;
}

static bool put(slot *to, unsigned cls, dxpu_bytes tlp, const slot *from)
{
    return p2p_put(to, cls, tlp, (uint16_t)(slots_number(from) - 1), from->p2p->life);
}

static p2p_tlp *pop(p2p_queue *q)
{
    p2p_tlp *w = q->head;
    q->head = w->next;
    if (!q->head)
        q->tail = &q->head;
    q->count--;
    return w;
}

static void clear_inbox(p2p *p)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        while (p->in[cls].head)
            free(pop(&p->in[cls]));
    }
}

/* ==== 2  Access =============================================================================== */

static bool is_up(const slot *s)
{
    return s->p2p && s->active && dxpu_channel_status(&s->active->ch).state < DXPU_STATE_CLOSED;
}

static bool has_same_key(const fabric_channel *a, const fabric_channel *b)
{
    if (!a->session || !b->session)
        return !a->session && !b->session;
    return !memcmp(dxpu_sodium_peer_key(a->session), dxpu_sodium_peer_key(b->session),
                   DXPU_NOISE_KEY_BYTES);
}

/* Is `other` slot `number` of the switch that s is a slot of?  B-4 */
static bool is_neighbor(const slot *s, const slot *other, unsigned number)
{
    return other != s && is_up(other) && other->p2p->list.slot == number &&
           !memcmp(s->p2p->list.domain, other->p2p->list.domain, DXPU_P2P_DOMAIN_BYTES) &&
           s->active->ch.cfg.remote.node == other->active->ch.cfg.remote.node &&
           has_same_key(s->active, other->active);
}

static void look_up(slot *s)
{
    const shard *sh = s->shard;
    const box *b = sh->box;
    p2p *p = s->p2p;
    p->seen = sh->p2p_changes;
    for (unsigned w = 0; w < p->list.count; w++) {
        p->to[w] = 0;
        for (unsigned i = sh->index; i < b->count && !p->to[w]; i += b->shard_count) {
            if (is_neighbor(s, &b->slots[i], p->list.at[w].slot))
                p->to[w] = (uint16_t)(i + 1);
        }
    }
}

/* The window of a neighbor that a request of s is for; NULL: none. */
static const dxpu_p2p_window *window_of(const slot *s, const dxpu_tlp *t)
{
    const dxpu_p2p_list *l = &s->p2p->list;
    unsigned w = is_up(s) && l->count && !t->at && !dxpu_guard_pasid(t)
                     ? dxpu_p2p_find(l, t->address)
                     : l->count;
    return w < l->count && t->payload.len <= l->at[w].payload_bytes ? &l->at[w] : NULL;
}

/* The slot of this loop that has a window; NULL: none. */
static slot *target(slot *s, const dxpu_p2p_window *w)
{
    slot *to;
    if (!w)
        return NULL;
    if (s->p2p->seen != s->shard->p2p_changes)
        look_up(s);
    if (!s->p2p->to[w - s->p2p->list.at])
        return NULL;
    to = &s->shard->box->slots[s->p2p->to[w - s->p2p->list.at] - 1];
    return is_neighbor(s, to, w->slot) ? to : NULL;
}

/* ==== 3  Requests ============================================================================= */

/* What a request may bring: `user` of dxpu_tags. */
static uint64_t user_of(const slot *from, uint32_t completions)
{
    return (uint64_t)(slots_number(from) - 1) << 48 | (uint64_t)completions << 32 | from->p2p->life;
}

static uint32_t completions_of(const dxpu_tlp *t)
{
    uint32_t headers, data, offset, span;
    if (t->type != DXPU_TLP_MRD)
        return 1;
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &offset, &span);
    dxpu_tags_worst((uint8_t)((t->address + offset) & 0x7f), span, &headers, &data);
    return headers;
}

/* There is no room.  What waits does so for the hold time; then the other slot gets nothing until
   its device has taken something, so that this one's TLPs to its host go on (B-8). */
static int wait_for(slot *s, slot *to, dxpu_bytes tlp, uint64_t now)
{
    p2p *p = to->p2p;
    if (!p->stuck_ns)
        p->stuck_ns = now + s->shard->fabric.base.hold_ms * 1000000ull;
    p->clogged |= now >= p->stuck_ns;
    if (!p->clogged)
        return DXPU_E_AGAIN;
    s->p2p->count.refused++;
    slots_answer(s, tlp);
    return DXPU_OK;
}

static int ask(slot *s, slot *to, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    uint32_t completions = completions_of(t);
    p2p *p = to->p2p;
    if (s->p2p->owed + s->p2p->in[DXPU_COMPLETION].count + completions > INBOX_COMPLETIONS)
        return DXPU_E_AGAIN; /* until what it asked before is answered */
    if (dxpu_tags_track(&p->asked, t, now, user_of(s, completions)) != DXPU_OK)
        return wait_for(s, to, tlp, now);
    if (!put(to, DXPU_NONPOSTED, tlp, s)) {
        (void)dxpu_tags_drop(&p->asked, t->requester, t->tag);
        return DXPU_E_AGAIN;
    }
    s->p2p->owed += completions;
    s->p2p->count.out++;
    return DXPU_OK;
}

/* What informs others of a write must not be ahead of it (B-14), and waits for the hold time at
   most for a neighbor that takes nothing (B-8). */
static bool is_fenced(slot *s, unsigned but, uint64_t now)
{
    p2p *p = s->p2p;
    if (!p2p_links_dirty(s, but)) {
        p->fence_ns = 0;
        return false;
    }
    if (!p->fence_ns)
        p->fence_ns = now + s->shard->fabric.base.hold_ms * 1000000ull;
    if (now < p->fence_ns)
        return true;
    p->fence_ns = 0;
    p2p_links_break(s, but);
    return !is_up(s); /* they are lost: what informs of them leaves no more */
}

static int request(slot *s, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    const dxpu_p2p_window *w = s->indirect ? NULL : window_of(s, t);
    unsigned cls = dxpu_tlp_class(t);
    slot *to = target(s, w);
    if (to && to->indirect) {
        to = NULL;
        w = NULL;
    }
    /* an atomic or DMWr informs as a write does */
    if (t->type != DXPU_TLP_MRD && is_fenced(s, w && !to ? w->slot : 0, now))
        return DXPU_E_AGAIN;
    if (!to)
        return w ? p2p_link_request(s, w->slot, t, tlp, now) : P2P_HOST;
    if (to->p2p->in[cls].count >= INBOX_TLPS || to->p2p->clogged)
        return wait_for(s, to, tlp, now);
    if (cls == DXPU_NONPOSTED)
        return ask(s, to, t, tlp, now);
    if (!put(to, cls, tlp, s))
        return DXPU_E_AGAIN;
    s->p2p->count.out++;
    return DXPU_OK;
}

bool p2p_asked_by(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    uint16_t from = P2P_LINK | l->neighbor;
    uint32_t completions = completions_of(t);
    uint64_t user = (uint64_t)from << 48 | (uint64_t)completions << 32 | l->life;
    p2p *p = l->s->p2p;
    if (p->in[DXPU_NONPOSTED].count >= INBOX_TLPS || !p2p_link_may_ask(l, completions) ||
        dxpu_tags_track(&p->asked, t, now, user) != DXPU_OK)
        return false;
    if (p2p_put(l->s, DXPU_NONPOSTED, tlp, from, l->life)) {
        l->owed += completions;
        return true;
    }
    (void)dxpu_tags_drop(&p->asked, t->requester, t->tag);
    return false;
}

/* ==== 4  Completions ========================================================================== */

/* Of a request; both NULL: it is gone since. */
typedef struct requester {
    slot *s;
    p2p_link *link;
} requester;

static requester asker(const slot *s, uint64_t user)
{
    requester r = { NULL, NULL };
    unsigned from = (unsigned)(user >> 48);
    slot *other = from & P2P_LINK ? NULL : &s->shard->box->slots[from];
    if (!other)
        r.link = p2p_link_of(s, from & ~(unsigned)P2P_LINK, (uint32_t)user);
    else if (is_up(other) && other->p2p->life == (uint32_t)user)
        r.s = other;
    return r;
}

/* There is room for what waits for it: of neighbors it is not known which. */
static void wake_all(const slot *s)
{
    if (s->p2p->stuck_ns)
        fabric_stir(&s->shard->fabric);
    p2p_links_wake(s);
}

/* A request that the slot's device was asked is over. */
static void settle(const slot *s, const requester *from, uint64_t user)
{
    if (from->s)
        from->s->p2p->owed -= user >> 32 & 0xffff;
    if (from->link)
        from->link->owed -= user >> 32 & 0xffff;
    wake_all(s);
}

static void give(const requester *to, dxpu_bytes tlp, const slot *s)
{
    if (to->link)
        p2p_link_send(to->link, tlp, dxpu_udp_now_ns());
    else if (!put(to->s, DXPU_COMPLETION, tlp, s))
        slots_no_memory(to->s);
}

/* A request that will have no answer of the device. */
static void answer(slot *s, const dxpu_request *r)
{
    uint8_t bytes[REFUSAL_BYTES];
    requester to = asker(s, r->user);
    s->p2p->count.unanswered++;
    settle(s, &to, r->user);
    if (to.s || to.link)
        give(&to, refusal_of_tracked(r, bytes), s);
}

/* With a payload that the requester's port may not pass: its request is over (V-16). */
unsigned p2p_payload_bytes(const dxpu_p2p_list *l, unsigned neighbor)
{
    unsigned w = 0;
    while (w < l->count && l->at[w].slot != neighbor)
        w++;
    return w < l->count ? l->at[w].payload_bytes : 0; /* or listed no more: the request was let
                                                         through under an earlier list */
}

static bool is_oversized(const requester *to, const dxpu_tlp *cpl, const slot *s)
{
    unsigned most = to->s ? p2p_payload_bytes(&to->s->p2p->list, s->p2p->list.slot)
                          : p2p_payload_bytes(&s->p2p->list, to->link->neighbor);
    return most && cpl->payload.len > most;
}

static void remember_late(p2p *p, const dxpu_request *r, uint64_t now)
{
    p2p_late *l = &p->late[p->late_at++ % INBOX_REQUESTS]; /* as many as there are tags */
    l->requester = r->requester;
    l->tag = r->tag;
    l->until_ns = p->late_ns = now + p->asked.timeout_ns;
}

/* Of a request that was answered for its device: the host might take it for one of its own that has
   the same tag. */
static bool is_late(p2p *p, const dxpu_tlp *cpl, uint64_t now)
{
    bool late = false;
    if (now >= p->late_ns)
        p->late_ns = 0;
    for (unsigned i = 0; p->late_ns && i < INBOX_REQUESTS; i++)
        late |= p->late[i].requester == cpl->requester && p->late[i].tag == cpl->tag &&
                now < p->late[i].until_ns;
    p->count.refused += late;
    return late;
}

static int completion(slot *s, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    dxpu_request r;
    requester to;
    if (!s->p2p->asked.in_flight && !s->p2p->late_ns)
        return P2P_HOST;
    if (dxpu_tags_complete(&s->p2p->asked, t, &r) != DXPU_OK)
        return is_late(s->p2p, t, now) ? DXPU_OK : P2P_HOST;
    to = asker(s, r.user);
    if (!to.s && !to.link)
        return DXPU_OK;
    if (is_oversized(&to, t, s)) {
        if (!r.done) {
            (void)dxpu_tags_drop(&s->p2p->asked, t->requester, t->tag);
            remember_late(s->p2p, &r, now); /* the pieces that still come */
        }
        answer(s, &r);
        return DXPU_OK;
    }
    if (r.done)
        settle(s, &to, r.user);
    s->p2p->count.out += to.s != NULL;
    s->p2p->count.links_out += to.link != NULL;
    give(&to, tlp, s);
    return DXPU_OK;
}

int p2p_submit(slot *s, dxpu_bytes tlp, uint64_t now)
{
    dxpu_tlp t;
    if (!is_up(s) || dxpu_tlp_receive(tlp, &t) != DXPU_OK) /* over: refused by the channel */
        return P2P_HOST;
    if (dxpu_tlp_class(&t) != DXPU_COMPLETION && t.type != DXPU_TLP_MSG && t.type != DXPU_TLP_MSGD)
        return request(s, &t, tlp, now);
    if (is_fenced(s, 0, now))
        return DXPU_E_AGAIN;
    return dxpu_tlp_class(&t) == DXPU_COMPLETION ? completion(s, &t, tlp, now) : P2P_HOST;
}

/* ==== 5  To the device ======================================================================== */

static bool is_behind(const p2p *p)
{
    const p2p_tlp *w = p->in[DXPU_POSTED].head;
    return p->behind || (w && w->order <= p->mark);
}

static bool has_passes(const p2p *p)
{
    unsigned any = 0;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        any |= p->pass[cls];
    return any;
}

/* What the host has sent by now comes behind what neighbors have by now, and that alone: however
   much they send, it has its turn. */
static void compare(slot *s)
{
    p2p *p = s->p2p;
    if (is_behind(p) && has_passes(p))
        return;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        p->pass[cls] = s->active->ch.rx.queue[cls].count;
    p2p_links_compare(s);
    p->mark = p->order;
}

bool p2p_host_may(const slot *s, unsigned cls)
{
    return !s->p2p || (s->p2p->pass[cls] && !is_behind(s->p2p));
}

void p2p_host_did(slot *s, unsigned cls)
{
    if (s->p2p && s->p2p->pass[cls]) /* or a list has come just now */
        s->p2p->pass[cls]--;
}

bool p2p_host_waits(const slot *s)
{
    bool waits = s->p2p && s->p2p->again;
    for (unsigned cls = 0; s->p2p && s->active && cls < DXPU_CLASSES; cls++)
        waits |= s->active->ch.rx.queue[cls].count && !s->p2p->pass[cls] &&
                 !(is_behind(s->p2p) && has_passes(s->p2p));
    return waits;
}

/* The list, the windows and Bus Master Enable may have changed since it was put there (B-6). */
static bool is_allowed(slot *s, const p2p_tlp *w, const dxpu_tlp *t, dxpu_bytes tlp)
{
    slot *from = &s->shard->box->slots[w->from & ~(unsigned)P2P_LINK];
    if (w->from & P2P_LINK) /* its own box has looked at the rest */
        return dxpu_p2p_opens(&s->p2p->list, w->from & ~(unsigned)P2P_LINK, t);
    return is_up(from) && from->p2p->life == w->life &&
           dxpu_guard_waited(&from->guard, tlp) == DXPU_GUARD_PASS &&
           target(from, window_of(from, t)) == s;
}

static void turn_back(slot *s, const dxpu_tlp *t)
{
    dxpu_request r;
    dxpu_tlp cpl;
    s->p2p->count.refused++;
    if (dxpu_tlp_class(t) != DXPU_NONPOSTED)
        return;
    dxpu_tlp_completion(t, 0, DXPU_CPL_UR, &cpl);
    if (dxpu_tags_complete(&s->p2p->asked, &cpl, &r) == DXPU_OK)
        answer(s, &r);
}

/* The device takes a TLP: also its sender may have waited, for memory. */
static void wake(slot *s, const p2p_tlp *w)
{
    slot *from = w->from & P2P_LINK ? s : &s->shard->box->slots[w->from];
    wake_all(s);
    s->p2p->stuck_ns = 0;
    s->p2p->clogged = false;
    if (from->active && from->waiting)
        p2p_stir(from, from->active);
}

bool p2p_take(slot *s, unsigned cls)
{
    p2p *p = s->p2p;
    p2p_tlp *w = p ? p->in[cls].head : NULL;
    const p2p_tlp *posted = p ? p->in[DXPU_POSTED].head : NULL;
    dxpu_bytes tlp;
    dxpu_tlp t;
    if (!w || (posted && posted->order < w->order))
        return false;
    (void)pop(&p->in[cls]);
    wake(s, w);
    tlp.ptr = w->bytes;
    tlp.len = w->len;
    if (dxpu_tlp_receive(tlp, &t) == DXPU_OK) { /* always: it was looked at before */
        if (cls != DXPU_COMPLETION && !is_allowed(s, w, &t, tlp)) {
            turn_back(s, &t);
        } else {
            recorder_tlp(&s->shard->box->record, tlp);
            dxpu_guard_down(&s->guard, &t);
            p->count.in++;
            s->kind->tlp(s->device, &t, tlp);
        }
    }
    free(w);
    return true;
}

/* ==== 6  Life ================================================================================= */

static bool has_p2p(slot *s)
{
    if (s->p2p)
        return true;
    s->p2p = calloc(1, sizeof *s->p2p);
    if (!s->p2p)
        return false;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        s->p2p->in[cls].tail = &s->p2p->in[cls].head;
    (void)dxpu_tags_init(&s->p2p->asked, s->p2p->entries, INBOX_REQUESTS, 0, 0,
                         s->shard->fabric.base.hold_ms * 1000000ull);
    s->shard->p2p_slots++;
    return true;
}

bool p2p_message(slot *s, const dxpu_tlp *t)
{
    dxpu_p2p_list list;
    int rc;
    if (t->type != DXPU_TLP_MSGD) /* as most are: decoding clears a whole list */
        return false;
    rc = dxpu_p2p_decode(t, &list);
    if (rc == 0)
        return false;
    s->shard->p2p_changes++;
    if (!has_p2p(s)) { /* without memory all goes through the host */
        log_warning("slot %u: out of memory; its device reaches others through the host",
                    slots_number(s));
        return true;
    }
    s->p2p->list = list;                          /* of one that is malformed: empty (B-3) */
    memset(s->p2p->pass, 0, sizeof s->p2p->pass); /* more of links may be let in, and come first */
    s->p2p->again = true;
    s->p2p->count.lists++;
    s->p2p->count.lists_refused += rc < 0;
    p2p_links_list(s);
    return true;
}

/* Of a completion that waits: is it of another device's request?  That is answered then. */
static bool was_asked(slot *s, dxpu_bytes tlp)
{
    dxpu_request r;
    dxpu_tlp t;
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK ||
        dxpu_tags_complete(&s->p2p->asked, &t, &r) != DXPU_OK)
        return false;
    if (r.done)
        answer(s, &r);
    return true;
}

void p2p_reset(slot *s)
{
    dxpu_request r;
    if (!s->p2p)
        return;
    slots_drop_completions(s,
                           was_asked); /* answers of before it: none is taken for a later one's */
    while (dxpu_tags_pop(&s->p2p->asked, &r))
        answer(s, &r);
    p2p_links_end(s);
    clear_inbox(s->p2p);
    s->p2p->life++;
    s->p2p->owed = 0;
    s->p2p->stuck_ns = s->p2p->fence_ns = 0;
    memset(s->p2p->pass, 0, sizeof s->p2p->pass);
    s->p2p->clogged = false;
}

void p2p_end(slot *s)
{
    if (!s->p2p)
        return;
    p2p_reset(s);
    memset(&s->p2p->list, 0, sizeof s->p2p->list);
    memset(s->p2p->late, 0, sizeof s->p2p->late); /* the next lease may use these tags (S-112) */
    s->p2p->late_ns = 0;
    p2p_links_list(s);
    s->shard->p2p_changes++;
}

void p2p_direct(slot *s, bool on)
{
    if (s->indirect == !on)
        return;
    if (!on && s->p2p) /* both devices stay: writes must not be lost in silence (B-15) */
        p2p_links_revoke(s);
    s->indirect = !on;
    if (s->p2p)
        p2p_links_list(s);
}

void p2p_free(slot *s)
{
    if (s->p2p) {
        clear_inbox(s->p2p);
        p2p_links_free(s);
    }
    free(s->p2p);
    s->p2p = NULL;
}

void p2p_work(slot *s, uint64_t now)
{
    dxpu_request r;
    if (!s->p2p)
        return;
    while (dxpu_tags_expire(&s->p2p->asked, now, &r)) {
        remember_late(s->p2p, &r, now);
        answer(s, &r);
    }
    if (s->p2p->fence_ns && now >= s->p2p->fence_ns) {
        s->p2p->fence_ns = 0;
        p2p_links_break(s, 0);
    }
    s->p2p->again = false;
    compare(s);
    p2p_links_work(s, now);
}

uint64_t p2p_next_ns(const shard *sh)
{
    const box *b = sh->box;
    uint64_t next = DXPU_NEVER;
    for (unsigned i = sh->index; i < b->count && sh->p2p_slots; i += b->shard_count) {
        const slot *s = &b->slots[i];
        uint64_t due = s->p2p ? dxpu_tags_next_ns(&s->p2p->asked) : DXPU_NEVER;
        uint64_t links = s->p2p ? p2p_links_next_ns(s) : DXPU_NEVER;
        next = due < next ? due : next;
        next = links < next ? links : next;
    }
    return next;
}

void p2p_report(const slot *s, report *r)
{
    static const p2p none;
    const p2p *p = s->p2p ? s->p2p : &none;
#define P2P_REPORT(name) report_number(r, #name, p->count.name);
    report_open(r, "p2p");
    report_number(r, "direct", !s->indirect);
    report_number(r, "windows", p->list.count);
    report_number(r, "links", s->p2p ? p2p_links_up(s) : 0);
    P2P_COUNTERS(P2P_REPORT)
    report_close(r);
#undef P2P_REPORT
}
