/* p2p.c - see p2p.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Inbox   2 Who may reach whom   3 Requests   4 Completions   5 To the device
              6 Life */
#include "p2p.h"
#include "log.h"
#include "slots.h"

#include <stdlib.h>

enum {
    INBOX_TLPS = 128,        /* posted, and as many requests */
    INBOX_REQUESTS = 128,    /* of other devices, not yet completed */
    INBOX_COMPLETIONS = 1024 /* that wait or may still come */
};

typedef struct p2p_tlp {
    struct p2p_tlp *next;
    uint64_t order; /* over all classes of this inbox */
    uint32_t life;  /* of the sender */
    uint16_t from;  /* its index */
    uint16_t len;
    uint8_t bytes[];
} p2p_tlp;

typedef struct p2p_queue {
    p2p_tlp *head, **tail;
    unsigned count;
} p2p_queue;

#define P2P_COUNTERS(X)                                                                              \
    X(out) /* of the device, to other slots of the box */                                            \
    X(in)                                                                                            \
    X(refused) /* listed no more when they were to be delivered, or the other device took nothing */ \
    X(unanswered)                                                                                    \
    X(lists)                                                                                         \
    X(lists_refused)

struct p2p {
    dxpu_p2p_list list;
    uint16_t to[DXPU_P2P_WINDOWS]; /* number of the box's slot of each; 0: none has it */
    uint64_t seen;                 /* shard.p2p_changes when `to` was made */
    p2p_queue in[DXPU_CLASSES];
    uint64_t order;    /* of the TLP put in last */
    uint64_t stuck_ns; /* when what waits for room is given up; 0: nothing waits */
    bool clogged;      /* it was: until the device takes something */
    uint32_t life;     /* another one after each reset, and in each incarnation */
    unsigned owed;     /* completions that requests of the device may still bring */
    dxpu_tags asked;   /* requests of other slots' devices */
    dxpu_tag_entry entries[INBOX_REQUESTS];
#define P2P_FIELD(name) uint64_t name;
    struct {
        P2P_COUNTERS(P2P_FIELD)
    } count;
#undef P2P_FIELD
};

/* ==== 1  Inbox ================================================================================ */

static bool put(slot *to, unsigned cls, dxpu_bytes tlp, const slot *from)
{
    p2p_queue *q = &to->p2p->in[cls];
    p2p_tlp *w = malloc(sizeof *w + tlp.len);
    if (!w)
        return false;
    w->next = NULL;
    w->order = ++to->p2p->order;
    w->life = from->p2p->life;
    w->from = (uint16_t)(slots_number(from) - 1);
    w->len = (uint16_t)tlp.len;
    memcpy(w->bytes, tlp.ptr, tlp.len);
    *q->tail = w;
    q->tail = &w->next;
    q->count++;
    to->active->more = true; /* its turn may be over, and nothing else wakes the loop */
    return true;
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

/* ==== 2  Who may reach whom =================================================================== */

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

/* The slot that a request of s goes to; NULL: the host's. */
static slot *target(slot *s, const dxpu_tlp *t)
{
    unsigned w;
    slot *to;
    if (!is_up(s) || !s->p2p->list.count || t->at || dxpu_guard_pasid(t))
        return NULL;
    if (s->p2p->seen != s->shard->p2p_changes)
        look_up(s);
    w = dxpu_p2p_find(&s->p2p->list, t->address);
    if (w == s->p2p->list.count || !s->p2p->to[w] ||
        t->payload.len > s->p2p->list.at[w].payload_bytes)
        return NULL;
    to = &s->shard->box->slots[s->p2p->to[w] - 1];
    return is_neighbor(s, to, s->p2p->list.at[w].slot) ? to : NULL;
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

static int request(slot *s, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now)
{
    unsigned cls = dxpu_tlp_class(t);
    slot *to = target(s, t);
    if (!to)
        return P2P_HOST;
    if (to->p2p->in[cls].count >= INBOX_TLPS || to->p2p->clogged)
        return wait_for(s, to, tlp, now);
    if (cls == DXPU_NONPOSTED)
        return ask(s, to, t, tlp, now);
    if (!put(to, cls, tlp, s))
        return DXPU_E_AGAIN;
    s->p2p->count.out++;
    return DXPU_OK;
}

/* ==== 4  Completions ========================================================================== */

/* NULL: who asked is gone since. */
static slot *asker(const slot *s, uint64_t user)
{
    slot *from = &s->shard->box->slots[user >> 48];
    return is_up(from) && from->p2p->life == (uint32_t)user ? from : NULL;
}

static void settle(slot *from, uint64_t user)
{
    from->p2p->owed -= user >> 32 & 0xffff;
}

/* A request that will have no answer of the device. */
static void answer(slot *s, const dxpu_request *r)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    slot *from = asker(s, r->user);
    dxpu_tlp cpl;
    s->p2p->count.unanswered++;
    if (!from)
        return;
    settle(from, r->user);
    memset(&cpl, 0, sizeof cpl);
    cpl.type = DXPU_TLP_CPL;
    cpl.header_dw = 3;
    cpl.requester = r->requester;
    cpl.tag = r->tag;
    cpl.status = DXPU_CPL_UR;
    cpl.byte_count = r->left_bytes ? r->left_bytes : 4;
    (void)dxpu_tlp_encode(&cpl, bytes, sizeof bytes, &tlp.len); /* always in range */
    if (!put(from, DXPU_COMPLETION, tlp, s))
        slots_no_memory(from);
}

/* With a payload that the requester's port may not pass: its request is over (V-16). */
static bool is_oversized(const slot *from, const dxpu_tlp *cpl, const slot *s)
{
    for (unsigned w = 0; w < from->p2p->list.count; w++) {
        if (from->p2p->list.at[w].slot == s->p2p->list.slot)
            return cpl->payload.len > from->p2p->list.at[w].payload_bytes;
    }
    return false; /* listed no more: the request was let through under an earlier list */
}

static int completion(slot *s, const dxpu_tlp *t, dxpu_bytes tlp)
{
    dxpu_request r;
    slot *from;
    if (!s->p2p->asked.in_flight || dxpu_tags_complete(&s->p2p->asked, t, &r) != DXPU_OK)
        return P2P_HOST;
    from = asker(s, r.user);
    if (!from)
        return DXPU_OK;
    if (is_oversized(from, t, s)) {
        if (!r.done)
            (void)dxpu_tags_drop(&s->p2p->asked, t->requester, t->tag);
        answer(s, &r);
        return DXPU_OK;
    }
    if (!put(from, DXPU_COMPLETION, tlp, s)) {
        slots_no_memory(from);
        return DXPU_OK;
    }
    if (r.done)
        settle(from, r.user);
    s->p2p->count.out++;
    return DXPU_OK;
}

int p2p_submit(slot *s, dxpu_bytes tlp, uint64_t now)
{
    dxpu_tlp t;
    if (!s->p2p || dxpu_tlp_receive(tlp, &t) != DXPU_OK)
        return P2P_HOST;
    if (dxpu_tlp_class(&t) == DXPU_COMPLETION)
        return completion(s, &t, tlp);
    return t.type == DXPU_TLP_MSG || t.type == DXPU_TLP_MSGD ? P2P_HOST : request(s, &t, tlp, now);
}

/* ==== 5  To the device ======================================================================== */

uint64_t p2p_mark(const slot *s)
{
    return s->p2p ? s->p2p->order : 0;
}

bool p2p_first(const slot *s, uint64_t mark)
{
    return s->p2p && s->p2p->in[DXPU_POSTED].head && s->p2p->in[DXPU_POSTED].head->order <= mark;
}

/* The list, the windows and Bus Master Enable may have changed since it was put there (B-6). */
static bool is_allowed(slot *s, const p2p_tlp *w, const dxpu_tlp *t, dxpu_bytes tlp)
{
    slot *from = &s->shard->box->slots[w->from];
    return is_up(from) && from->p2p->life == w->life &&
           dxpu_guard_waited(&from->guard, tlp) == DXPU_GUARD_PASS && target(from, t) == s;
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

/* Its sender may have waited for the room. */
static void wake(slot *s, const p2p_tlp *w)
{
    slot *from = &s->shard->box->slots[w->from];
    s->p2p->stuck_ns = 0;
    s->p2p->clogged = false;
    if (from->active && from->waiting)
        from->active->more = true;
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
    int rc = dxpu_p2p_decode(t, &list);
    if (rc == 0)
        return false;
    s->shard->p2p_changes++;
    if (!has_p2p(s)) { /* without memory all goes through the host */
        log_warning("slot %u: out of memory for what its device may reach in this box",
                    slots_number(s));
        return true;
    }
    s->p2p->list = list; /* of one that is malformed: empty (B-3) */
    s->p2p->count.lists++;
    s->p2p->count.lists_refused += rc < 0;
    return true;
}

void p2p_reset(slot *s)
{
    dxpu_request r;
    if (!s->p2p)
        return;
    while (dxpu_tags_pop(&s->p2p->asked, &r))
        answer(s, &r);
    clear_inbox(s->p2p);
    s->p2p->life++;
    s->p2p->owed = 0;
    s->p2p->stuck_ns = 0;
    s->p2p->clogged = false;
}

void p2p_end(slot *s)
{
    if (!s->p2p)
        return;
    p2p_reset(s);
    memset(&s->p2p->list, 0, sizeof s->p2p->list);
    s->shard->p2p_changes++;
}

void p2p_free(slot *s)
{
    if (s->p2p)
        clear_inbox(s->p2p);
    free(s->p2p);
    s->p2p = NULL;
}

void p2p_expire(slot *s, uint64_t now)
{
    dxpu_request r;
    while (s->p2p && dxpu_tags_expire(&s->p2p->asked, now, &r))
        answer(s, &r);
}

uint64_t p2p_next_ns(const shard *sh)
{
    const box *b = sh->box;
    uint64_t next = DXPU_NEVER;
    for (unsigned i = sh->index; i < b->count && sh->p2p_slots; i += b->shard_count) {
        uint64_t due = b->slots[i].p2p ? dxpu_tags_next_ns(&b->slots[i].p2p->asked) : DXPU_NEVER;
        next = due < next ? due : next;
    }
    return next;
}

void p2p_report(const slot *s, report *r)
{
    static const p2p none;
    const p2p *p = s->p2p ? s->p2p : &none;
#define P2P_REPORT(name) report_number(r, #name, p->count.name);
    report_open(r, "p2p");
    report_number(r, "windows", p->list.count);
    P2P_COUNTERS(P2P_REPORT)
    report_close(r);
#undef P2P_REPORT
}
