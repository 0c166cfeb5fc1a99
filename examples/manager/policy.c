/* policy.c - which slots of the pool a request gets, which device replaces a broken one
   SPDX-License-Identifier: MIT

   Why it takes from where least is free: what remains free is then as concentrated as it can be.  A
   box that has f slots free and gives n takes n(2f - n) from the sum of squares that pool_room()
   measures, which is least for the smallest f that has n; and where a request may come from several
   boxes, emptying the smallest first leaves a remainder that majorizes every other. */
#include "policy_internal.h"

#include <limits.h>
#include <math.h>
#include <string.h>

const char *pool_error_text(int rc)
{
    switch (rc) {
#define POOL_ERROR_TEXT(name, value, text)                                                         \
    case POOL_##name:                                                                              \
        return text;
        POOL_ERRORS(POOL_ERROR_TEXT)
#undef POOL_ERROR_TEXT
    default:
        return "unknown error";
    }
}

const char *pool_state_name(unsigned state)
{
    static const char *const names[] = { "free",    "spare",  "leased",      "wiping",
                                         "drained", "broken", "quarantined", "retained" };
    return state < POOL_STATES ? names[state] : "?";
}

const char *pool_reason_name(unsigned reason)
{
    static const char *const names[] = { "none",     "device",  "box",     "drain",   "wipe",
                                         "operator", "foreign", "release", "discard", "retention",
                                         "recover",  "absent",  "refused", "path" };
    return reason < POOL_REASONS ? names[reason] : "?";
}

const char *pool_reason_text(unsigned reason)
{
    static const char *const texts[] = { "for no reason given",
                                         "the device is broken",
                                         "its box is unreachable",
                                         "its box is being drained",
                                         "it could not be wiped",
                                         "requested by an operator",
                                         "it has a lease that the store does not know",
                                         "its lease was released",
                                         "its tenant has discarded it",
                                         "its retention time is over",
                                         "its lease took an older slot back",
                                         "there is no device in it",
                                         "its box did not bind it",
                                         "its host did not reach its box" };
    return reason < POOL_REASONS ? texts[reason] : "?";
}

/* -- Memory -- */

typedef struct layout {
    size_t at[7], bytes;
} layout;

static bool lay_out(const pool_limits *l, layout *out)
{
    const uint32_t counts[] = { l->slots, l->boxes, l->hosts, l->tenants, l->leases, l->models };
    const size_t sizes[] = { sizeof(pool_slot),   sizeof(pool_box),   sizeof(pool_host),
                             sizeof(pool_tenant), sizeof(pool_lease), sizeof(pool_model) };
    size_t at = (sizeof(pool) + 15) & ~(size_t)15;
    for (unsigned i = 0; i < 6; i++) {
        if (!counts[i] || counts[i] > 1u << 24)
            return false;
        out->at[i] = at;
        at += (counts[i] * sizes[i] + 15) & ~(size_t)15;
    }
    out->at[6] = at;
    out->bytes = at + (size_t)l->slots * 2 * sizeof(pool_cell);
    return true;
}

size_t pool_bytes(const pool_limits *limits)
{
    layout l;
    return lay_out(limits, &l) ? l.bytes : 0;
}

static void model_init(pool_model *m)
{
    memset(m, 0, sizeof *m);
    m->first_spare = POOL_NONE;
    for (unsigned i = 0; i <= POOL_RANKS; i++) {
        m->box_head[i] = POOL_NONE;
        for (unsigned j = 0; j <= POOL_RANKS; j++)
            m->group_head[i][j] = POOL_NONE;
    }
}

pool *pool_init(void *memory, size_t bytes, const pool_limits *limits)
{
    layout l;
    uint8_t *base = memory;
    pool *p = memory;
    if (!lay_out(limits, &l) || bytes < l.bytes)
        return NULL;
    memset(p, 0, sizeof *p);
    p->limits = *limits;
    p->slot = (pool_slot *)(void *)(base + l.at[0]);
    p->box = (pool_box *)(void *)(base + l.at[1]);
    p->host = (pool_host *)(void *)(base + l.at[2]);
    p->tenant = (pool_tenant *)(void *)(base + l.at[3]);
    p->lease = (pool_lease *)(void *)(base + l.at[4]);
    p->model = (pool_model *)(void *)(base + l.at[5]);
    p->cell = (pool_cell *)(void *)(base + l.at[6]);
    for (uint32_t i = 0; i < limits->models; i++)
        model_init(&p->model[i]);
    memset(p->lease, 0, limits->leases * sizeof *p->lease);
    for (uint32_t i = 0; i < limits->leases; i++)
        p->lease[i].first = i + 1 < limits->leases ? i + 1 : POOL_NONE;
    return p;
}

/* -- The index -- */

static uint64_t bit(unsigned count)
{
    return (uint64_t)1 << (count - 1);
}

/* Bits of `count` and above. */
static uint64_t from(unsigned count)
{
    return ~(bit(count) - 1);
}

static unsigned rank_of(const pool_cell *c)
{
    return c->free < POOL_RANKS ? c->free : POOL_RANKS;
}

/* The list that a cell with free slots is in. */
static uint32_t *head_of(pool *p, const pool_cell *c)
{
    pool_model *m = &p->model[c->model];
    return c->parent == POOL_NONE ? &m->box_head[rank_of(c)]
                                  : &m->group_head[rank_of(c)][rank_of(&p->cell[c->parent])];
}

/* The bit of each of its lists says whether anything is in it. */
static void mark(pool *p, const pool_cell *c, bool any)
{
    pool_model *m = &p->model[c->model];
    unsigned rank = rank_of(c);
    if (c->parent == POOL_NONE) {
        m->box_mask = any ? m->box_mask | bit(rank) : m->box_mask & ~bit(rank);
        return;
    }
    uint64_t *in_box = &m->group_box_mask[rank], of_box = bit(rank_of(&p->cell[c->parent]));
    *in_box = any ? *in_box | of_box : *in_box & ~of_box;
    m->group_mask = *in_box ? m->group_mask | bit(rank) : m->group_mask & ~bit(rank);
}

static void link_cell(pool *p, uint32_t at)
{
    pool_cell *c = &p->cell[at];
    if (!c->free)
        return;
    uint32_t *head = head_of(p, c);
    c->prev = POOL_NONE;
    c->next = *head;
    if (*head != POOL_NONE)
        p->cell[*head].prev = at;
    *head = at;
    mark(p, c, true);
}

static void unlink_cell(pool *p, uint32_t at)
{
    pool_cell *c = &p->cell[at];
    if (!c->free)
        return;
    uint32_t *head = head_of(p, c);
    if (c->next != POOL_NONE)
        p->cell[c->next].prev = c->prev;
    if (c->prev != POOL_NONE)
        p->cell[c->prev].next = c->next;
    else
        *head = c->next;
    if (*head == POOL_NONE)
        mark(p, c, false);
}

/* A slot became free (by: 1) or is so no longer (-1): its cells, and the groups beside it in the
   box, whose place depends on the box, move to other lists. */
static void count_free(pool *p, const pool_slot *s, int by)
{
    const pool_box *b = &p->box[s->box];
    uint32_t end = b->first_cell + b->cells;
    for (uint32_t i = b->first_cell; i < end; i++)
        if (p->cell[i].parent == s->box_cell)
            unlink_cell(p, i);
    unlink_cell(p, s->box_cell);
    p->cell[s->box_cell].free = (uint16_t)(p->cell[s->box_cell].free + by);
    if (s->group_cell != POOL_NONE)
        p->cell[s->group_cell].free = (uint16_t)(p->cell[s->group_cell].free + by);
    link_cell(p, s->box_cell);
    for (uint32_t i = b->first_cell; i < end; i++)
        if (p->cell[i].parent == s->box_cell)
            link_cell(p, i);
}

static void spare_in(pool *p, uint32_t at)
{
    uint32_t *head = &p->model[p->slot[at].model].first_spare;
    p->slot[at].prev = POOL_NONE;
    p->slot[at].next = *head;
    if (*head != POOL_NONE)
        p->slot[*head].prev = at;
    *head = at;
}

static void spare_out(pool *p, uint32_t at)
{
    const pool_slot *s = &p->slot[at];
    if (s->next != POOL_NONE)
        p->slot[s->next].prev = s->prev;
    if (s->prev != POOL_NONE)
        p->slot[s->prev].next = s->next;
    else
        p->model[s->model].first_spare = s->next;
}

/* The only place that changes a slot's state. */
static void slot_to(pool *p, uint32_t at, pool_state state, pool_reason why)
{
    pool_slot *s = &p->slot[at];
    if (s->state == POOL_FREE)
        count_free(p, s, -1);
    if (s->state == POOL_SPARE)
        spare_out(p, at);
    p->model[s->model].count[s->state]--;
    p->model[s->model].count[state]++;
    s->state = (uint8_t)state;
    s->reason = (uint8_t)why;
    if (state == POOL_FREE)
        count_free(p, s, 1);
    if (state == POOL_SPARE)
        spare_in(p, at);
}

/* Whom it served before no longer matters: free, or drained with its box. */
static void slot_to_pool(pool *p, uint32_t at)
{
    bool draining = p->box[p->slot[at].box].draining;
    slot_to(p, at, draining ? POOL_DRAINED : POOL_FREE, draining ? POOL_WHY_DRAIN : POOL_WHY_NONE);
}

/* -- Choosing -- */

/* What a request, or a lease of which a slot is replaced, asks of each slot.  NULL: nothing. */
typedef struct wish {
    const pool_filter *filter;
    uint32_t tenant;
    uint8_t device;
    bool exclusive, apart;
} wish;

static wish wish_of(const pool_request *r)
{
    return (wish){ r->filter, r->tenant, r->device, r->exclusive, r->apart };
}

static wish wish_of_lease(const pool *p, uint32_t lease, const pool_filter *filter)
{
    const pool_lease *l = &p->lease[lease];
    return (wish){ filter, l->tenant, l->device, l->exclusive, l->apart };
}

/* Does each slot of the model serve it?  Then the index says all. */
static bool is_plain(const pool *p, const wish *w)
{
    return !w->filter && !w->device && !w->exclusive && !w->apart && !p->exclusive;
}

/* Whose slot it is, or whose data it keeps; POOL_NONE: no lease's. */
static uint32_t lease_in(const pool *p, uint32_t slot)
{
    return p->slot[slot].lease != POOL_NONE ? p->slot[slot].lease : p->slot[slot].owner;
}

/* Slots in which functions of the slot's device may be: from the first one, up to `end`. */
static uint32_t functions_of(const pool *p, uint32_t slot, uint32_t *end)
{
    const pool_slot *s = &p->slot[slot];
    const pool_box *b = &p->box[s->box];
    unsigned first = s->device - 1u, most = first + POOL_FUNCTIONS_MAX;
    *end = b->first_slot + (most < b->slots ? most : b->slots);
    return b->first_slot + first;
}

/* Whoever has it, or still has it though its lease is over, is unknown, whatever lease it is in. */
static bool is_a_strangers(const pool_slot *s)
{
    return s->state == POOL_WIPING ||
           (s->state == POOL_QUARANTINED && s->reason == POOL_WHY_FOREIGN);
}

/* Does what is in this slot keep the wish from other functions of its device?  No tenant is to have
   one beside another's exclusive one. */
static bool is_barred_by(const pool *p, const wish *w, uint32_t slot)
{
    uint32_t lease = lease_in(p, slot);
    if (w->exclusive && is_a_strangers(&p->slot[slot]))
        return true;
    return lease != POOL_NONE && p->lease[lease].tenant != w->tenant &&
           (w->exclusive || p->lease[lease].exclusive);
}

static bool may_share(const pool *p, const wish *w, uint32_t slot)
{
    uint32_t end;
    for (uint32_t i = functions_of(p, slot, &end); i < end; i++) {
        if (i != slot && p->slot[i].device == p->slot[slot].device && is_barred_by(p, w, i))
            return false;
    }
    return true;
}

/* What slots of a device have, as a wish sees them. */
typedef struct device_use {
    uint16_t own, others, free;
    uint16_t taken; /* by the choice that is made */
    bool barred;
} device_use;

/* Those of a box, by number: so that a choice looks at each slot once, not at its device's. */
typedef struct box_use {
    device_use of[POOL_BOX_SLOTS_MAX + 1];
} box_use;

static void look_at_devices(const pool *p, uint32_t box, const wish *w, box_use *d)
{
    const pool_box *b = &p->box[box];
    memset(d->of, 0, (b->slots + 1u) * sizeof d->of[0]);
    for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++) {
        device_use *u = &d->of[p->slot[i].device];
        uint32_t lease = lease_in(p, i);
        if (!p->slot[i].device)
            continue;
        u->barred = u->barred || is_barred_by(p, w, i);
        if (lease == POOL_NONE)
            u->free = (uint16_t)(u->free + (p->slot[i].state == POOL_FREE));
        else if (p->lease[lease].tenant == w->tenant)
            u->own++;
        else
            u->others++;
    }
}

/* d: of the slot's box, where the slot is free or a spare; NULL: for one slot alone. */
static bool fits(const pool *p, const wish *w, const box_use *d, uint32_t slot)
{
    unsigned device = p->slot[slot].device;
    if (!w)
        return true;
    if ((w->device == POOL_DEVICE_WHOLE && device) ||
        (w->device == POOL_DEVICE_FUNCTION && !device))
        return false;
    if (device && (w->exclusive || p->exclusive) &&
        (d ? d->of[device].barred : !may_share(p, w, slot)))
        return false;
    return !w->filter || w->filter->fits(w->filter->user, slot);
}

static bool same_device(const pool *p, uint32_t a, uint32_t b)
{
    return p->slot[a].device && p->slot[a].device == p->slot[b].device &&
           p->slot[a].box == p->slot[b].box;
}

enum { DEVICE_OWN, DEVICE_LENT, DEVICE_UNUSED, DEVICE_WHOLE };

/* Lower goes first; UINT64_MAX: not at all beside those that were taken. */
static uint64_t device_rank(const wish *w, const box_use *d, unsigned device)
{
    const device_use *u = &d->of[device];
    if (!w || (w->apart && !device))
        return 0;
    if (!device)
        return (uint64_t)DEVICE_WHOLE << 16;
    if (w->apart)
        return u->taken ? UINT64_MAX : (uint64_t)(u->own + u->others);
    return (uint64_t)(u->own || u->taken ? DEVICE_OWN
                      : u->others        ? DEVICE_LENT
                                         : DEVICE_UNUSED)
               << 16 |
           u->free;
}

/* Where a slot is in the order of device_rank(), and then of its group's free slots. */
typedef struct order {
    uint64_t device, group;
} order;

static bool is_lower(const order *a, const order *b)
{
    return a->device != b->device ? a->device < b->device : a->group < b->group;
}

/* Free slots of a box or group, in the order of their numbers, of which some may not fit. */
typedef struct candidates {
    unsigned count;
    uint16_t slot[POOL_BOX_SLOTS_MAX]; /* of the box, from 0 */
    uint64_t fits[POOL_BOX_SLOTS_MAX / 64];
} candidates;

static void list_free(const pool *p, uint32_t cell, candidates *c)
{
    const pool_box *b = &p->box[p->cell[cell].box];
    memset(c, 0, sizeof *c);
    for (unsigned i = 0; i < b->slots; i++) {
        const pool_slot *s = &p->slot[b->first_slot + i];
        if (s->state == POOL_FREE && (s->box_cell == cell || s->group_cell == cell))
            c->slot[c->count++] = (uint16_t)i;
    }
}

/* The place of the first one in that order; c->count: there is none.  Each is asked once whether it
   fits, and is no longer a candidate where it does not. */
static unsigned pick(const pool *p, uint32_t first, const wish *w, const box_use *d, candidates *c)
{
    unsigned best = POOL_BOX_SLOTS_MAX, left = 0;
    order least = { UINT64_MAX, 0 };
    for (unsigned i = 0; i < c->count; i++) {
        unsigned at = c->slot[i];
        const pool_slot *s = &p->slot[first + at];
        order o = { device_rank(w, d, s->device), 0 }; /* in no group: nothing is broken up */
        if (s->group_cell != POOL_NONE)
            o.group = (uint64_t)p->cell[s->group_cell].free << 32 | s->group_cell;
        bool lower = is_lower(&o, &least);
        if (lower && !(c->fits[at / 64] >> at % 64 & 1)) {
            if (!fits(p, w, d, first + at))
                continue;
            c->fits[at / 64] |= (uint64_t)1 << at % 64;
        }
        if (lower) {
            least = o;
            best = left;
        }
        c->slot[left++] = (uint16_t)at;
    }
    c->count = left;
    return best < left ? best : left;
}

/* `count` free slots of a box or group, or as many as fit, in that order. */
static void take(const pool *p, uint32_t cell, const wish *w, unsigned count, pool_choice *out)
{
    const pool_box *b = &p->box[p->cell[cell].box];
    box_use d;
    candidates c;
    list_free(p, cell, &c);
    if (w)
        look_at_devices(p, p->cell[cell].box, w, &d);
    for (; count; count--) {
        unsigned best = pick(p, b->first_slot, w, &d, &c);
        if (best == c.count)
            return;
        uint32_t slot = b->first_slot + c.slot[best];
        if (w)
            d.of[p->slot[slot].device].taken++;
        memmove(&c.slot[best], &c.slot[best + 1], (--c.count - best) * sizeof c.slot[0]);
        out->slot[out->count++] = slot;
    }
}

static unsigned lowest(uint64_t mask)
{
    return (unsigned)__builtin_ctzll(mask) + 1;
}

/* In an order of its own: free slots, those of its box where it is a group, and its place. */
static bool is_before(const pool *p, uint32_t a, uint32_t b)
{
    const pool_cell *x = &p->cell[a], *y = &p->cell[b];
    if (x->free != y->free)
        return x->free < y->free;
    if (x->parent != POOL_NONE && p->cell[x->parent].free != p->cell[y->parent].free)
        return p->cell[x->parent].free < p->cell[y->parent].free;
    return a < b;
}

/* The first of a list in that order, or that after `last`: lists of the last rank have none. */
static uint32_t in_order(const pool *p, uint32_t head, uint32_t last)
{
    uint32_t best = POOL_NONE;
    for (uint32_t i = head; i != POOL_NONE; i = p->cell[i].next)
        if ((last == POOL_NONE || is_before(p, last, i)) &&
            (best == POOL_NONE || is_before(p, i, best)))
            best = i;
    return best;
}

/* Boxes that a lease's slots are in. */
typedef struct near {
    unsigned count;
    uint32_t box[POOL_COUNT_MAX];
} near;

static bool is_near(const near *n, uint32_t box)
{
    for (unsigned i = 0; i < n->count; i++) {
        if (n->box[i] == box)
            return true;
    }
    return false;
}

static pool_lease *lease_of(const pool *p, uint64_t number);

static near near_of(const pool *p, uint64_t lease)
{
    const pool_lease *l = lease ? lease_of(p, lease) : NULL;
    near n;
    n.count = 0;
    for (uint32_t i = l ? l->first : POOL_NONE; i != POOL_NONE; i = p->slot[i].next) {
        if (!is_near(&n, p->slot[i].box))
            n.box[n.count++] = p->slot[i].box;
    }
    return n;
}

/* The box's cell of a model; POOL_NONE: it has no such slots. */
static uint32_t cell_of(const pool *p, uint32_t box, uint16_t model)
{
    const pool_box *b = &p->box[box];
    for (uint32_t i = b->first_cell; i < b->first_cell + b->cells; i++) {
        const pool_cell *c = &p->cell[i];
        if (c->slots && c->model == model && c->parent == POOL_NONE)
            return i;
    }
    return POOL_NONE;
}

/* `each` slots of a box at most, of what is still asked for. */
static void gather_one(const pool *p, const pool_request *r, uint32_t cell, unsigned each,
                       pool_choice *out)
{
    wish w = wish_of(r);
    unsigned most = r->count - out->count;
    most = most < p->cell[cell].free ? most : p->cell[cell].free;
    take(p, cell, &w, most < each ? most : each, out);
}

/* From the boxes of the peer, then from where least is free. */
static bool gather(const pool *p, const pool_request *r, unsigned each, pool_choice *out)
{
    const pool_model *m = &p->model[r->model];
    near n = near_of(p, r->peer);
    for (unsigned i = 0; i < n.count && out->count < r->count; i++) {
        uint32_t cell = cell_of(p, n.box[i], r->model);
        if (cell != POOL_NONE)
            gather_one(p, r, cell, each, out);
    }
    for (uint64_t mask = m->box_mask; mask && out->count < r->count; mask &= mask - 1) {
        unsigned rank = lowest(mask);
        uint32_t head = m->box_head[rank];
        for (uint32_t i = rank == POOL_RANKS ? in_order(p, head, POOL_NONE) : head;
             i != POOL_NONE && out->count < r->count;
             i = rank == POOL_RANKS ? in_order(p, head, i) : p->cell[i].next)
            if (!is_near(&n, p->cell[i].box))
                gather_one(p, r, i, each, out);
    }
    return out->count == r->count;
}

/* The same of slots that fit, in these boxes where there are any: each box or group that has enough
   free ones is looked at. */
static bool together_fitting(const pool *p, const pool_request *r, bool group, const near *n,
                             pool_choice *out)
{
    uint32_t best = POOL_NONE;
    wish w = wish_of(r);
    for (uint32_t i = 0; i < p->cells; i++) {
        const pool_cell *c = &p->cell[i];
        pool_choice found = { 0 };
        if (c->slots < r->count || c->free < r->count || c->model != r->model ||
            (c->parent != POOL_NONE) != group || (n->count && !is_near(n, c->box)) ||
            (best != POOL_NONE && c->free >= p->cell[best].free))
            continue;
        take(p, i, &w, r->count, &found);
        if (found.count < r->count)
            continue;
        best = i;
        *out = found;
    }
    return best != POOL_NONE;
}

/* Where the rank of a cell, or of its box, says less than its free slots. */
static uint32_t first_of(const pool *p, const pool_model *m, bool group, unsigned rank)
{
    uint32_t best = POOL_NONE;
    if (!group)
        return in_order(p, m->box_head[rank], POOL_NONE);
    for (uint64_t mask = m->group_box_mask[rank]; mask; mask &= mask - 1) {
        uint32_t one = in_order(p, m->group_head[rank][lowest(mask)], POOL_NONE);
        if (best == POOL_NONE || is_before(p, one, best))
            best = one;
    }
    return best;
}

/* All from one box or group, the one with the least free that has enough, of the peer's boxes where
   one of those has. */
static bool together(const pool *p, const pool_request *r, bool group, pool_choice *out)
{
    const pool_model *m = &p->model[r->model];
    const near any = { 0 }, n = near_of(p, r->peer);
    wish w = wish_of(r);
    if (n.count && together_fitting(p, r, group, &n, out))
        return true;
    if (!is_plain(p, &w))
        return together_fitting(p, r, group, &any, out);
    uint64_t mask = (group ? m->group_mask : m->box_mask) & from(r->count);
    if (!mask)
        return false;
    unsigned rank = lowest(mask), of_box = group ? lowest(m->group_box_mask[rank]) : rank;
    uint32_t cell = group ? m->group_head[rank][of_box] : m->box_head[rank];
    if (of_box == POOL_RANKS || rank == POOL_RANKS)
        cell = first_of(p, m, group, rank);
    take(p, cell, &w, r->count, out);
    return true;
}

/* What does not depend on which slots are free. */
static int admit(const pool *p, const pool_request *r)
{
    if (!r->count || r->count > POOL_COUNT_MAX || r->need >= POOL_NEEDS ||
        r->device >= POOL_DEVICES)
        return POOL_E_ARG;
    if (r->tenant >= p->tenants || r->host >= p->hosts || r->model >= p->limits.models)
        return POOL_E_UNKNOWN;
    const pool_tenant *t = &p->tenant[r->tenant];
    if (t->used >= t->quota || r->count > t->quota - t->used)
        return POOL_E_QUOTA;
    if (r->count > p->host[r->host].capacity - p->host[r->host].used)
        return POOL_E_HOST;
    return POOL_OK;
}

/* Devices of a box that exclusive leases of the tenant have a slot of, by number. */
static void mark_exclusive(const pool *p, uint32_t box, uint32_t tenant, bool *of)
{
    const pool_box *b = &p->box[box];
    memset(of, 0, (b->slots + 1u) * sizeof *of);
    for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++) {
        uint32_t lease = lease_in(p, i);
        if (lease != POOL_NONE && p->lease[lease].tenant == tenant && p->lease[lease].exclusive)
            of[p->slot[i].device] = true;
    }
}

/* Slots that belong to no lease, of devices that exclusive leases of this tenant keep from others
   (M-178); the choice, which may be NULL, counts as given. */
static uint32_t count_kept(const pool *p, uint32_t tenant, bool exclusive, const pool_choice *c)
{
    bool of[POOL_BOX_SLOTS_MAX + 1];
    uint32_t count = 0;
    for (uint32_t box = 0; box < p->boxes; box++) {
        const pool_box *b = &p->box[box];
        uint32_t given = 0;
        mark_exclusive(p, box, tenant, of);
        for (unsigned i = 0; c && i < c->count; i++) {
            if (p->slot[c->slot[i]].box == box && exclusive)
                of[p->slot[c->slot[i]].device] = true;
        }
        of[0] = false;
        for (unsigned i = 0; c && i < c->count; i++)
            given += p->slot[c->slot[i]].box == box && of[p->slot[c->slot[i]].device];
        for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++)
            count += of[p->slot[i].device] && lease_in(p, i) == POOL_NONE;
        count -= given;
    }
    return count;
}

uint32_t pool_used(const pool *p, uint32_t tenant)
{
    const pool_tenant *t = &p->tenant[tenant];
    return t->used + (t->exclusive ? count_kept(p, tenant, false, NULL) : 0);
}

/* Is the choice more than the tenant's quota, with what it keeps from others? */
static bool is_too_much(const pool *p, const pool_request *r, const pool_choice *c)
{
    const pool_tenant *t = &p->tenant[r->tenant];
    if (t->quota == POOL_NONE || (!t->exclusive && !r->exclusive))
        return false;
    return (uint64_t)t->used + r->count + count_kept(p, r->tenant, r->exclusive, c) > t->quota;
}

static uint32_t count_fitting(const pool *p, const pool_request *r)
{
    wish w = wish_of(r);
    uint32_t count = 0;
    box_use d;
    for (uint32_t box = 0; box < p->boxes; box++) {
        const pool_box *b = &p->box[box];
        look_at_devices(p, box, &w, &d);
        for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++)
            count +=
                p->slot[i].state == POOL_FREE && p->slot[i].model == r->model && fits(p, &w, &d, i);
    }
    return count;
}

/* Without what the choice keeps from others. */
static int choose(const pool *p, const pool_request *r, pool_choice *out)
{
    bool found;
    if (r->count > p->model[r->model].count[POOL_FREE])
        return POOL_E_FREE;
    pool_choice c = { 0 };
    switch (r->count > 1 ? r->need : POOL_ANY) { /* one slot is together, and spread, anyway */
    case POOL_SAME_BOX:
        found = together(p, r, false, &c);
        break;
    case POOL_SAME_GROUP:
        found = together(p, r, true, &c);
        break;
    case POOL_SPREAD:
        found = gather(p, r, 1, &c);
        break;
    default:
        found = gather(p, r, POOL_COUNT_MAX, &c);
        break;
    }
    if (!found)
        return count_fitting(p, r) < r->count ? POOL_E_FREE : POOL_E_PLACE;
    *out = c;
    return POOL_OK;
}

/* Functions go first (M-159): where an exclusive lease would keep too many from others, whole
   devices may do, which keep none. */
int pool_choose(const pool *p, const pool_request *r, pool_choice *out)
{
    pool_request q = *r;
    pool_choice c;
    int rc = admit(p, r);
    if (rc == POOL_OK)
        rc = choose(p, r, &c);
    if (rc == POOL_OK && is_too_much(p, r, &c)) {
        q.device = POOL_DEVICE_WHOLE;
        if (!r->exclusive || r->device != POOL_DEVICE_ANY || choose(p, &q, &c) != POOL_OK ||
            is_too_much(p, &q, &c))
            return POOL_E_QUOTA;
    }
    if (rc == POOL_OK)
        *out = c;
    return rc;
}

bool pool_serves(const pool *p, const pool_request *r, uint32_t slot)
{
    wish w = wish_of(r);
    return slot < p->slots && p->slot[slot].model == r->model && fits(p, &w, NULL, slot);
}

/* Does `at` stand where the need of the lease asks, beside its slots other than `lost`? */
static bool keeps_need(const pool *p, uint32_t lost, uint32_t at)
{
    const pool_lease *l = &p->lease[p->slot[lost].lease];
    const pool_slot *b = &p->slot[at];
    for (uint32_t i = l->first; i != POOL_NONE; i = p->slot[i].next) {
        const pool_slot *s = &p->slot[i];
        if (i == lost)
            continue;
        if ((l->need == POOL_SAME_BOX && s->box != b->box) ||
            (l->need == POOL_SPREAD && s->box == b->box) ||
            (l->need == POOL_SAME_GROUP &&
             (s->group_cell != b->group_cell || b->group_cell == POOL_NONE)) ||
            (l->apart && same_device(p, i, at)))
            return false;
    }
    return true;
}

typedef struct search {
    const pool *pool;
    wish wish;
    uint32_t lost, near; /* near: another slot of the lease, or the lost one */
    struct near peer;
    const box_use *devices; /* of the box whose slots are considered; NULL: not known */
    uint32_t best;
    unsigned best_rank; /* lower is better */
} search;

enum {
    RANK_NEED = 16,
    RANK_PEER = 8,
    RANK_FREE = 4,
    RANK_GROUP = 2,
    RANK_BOX = 1,
    RANK_WORST = 32
};

static void consider(search *s, uint32_t at)
{
    const pool_slot *a = &s->pool->slot[s->near], *b = &s->pool->slot[at];
    unsigned rank = 0;
    if (!fits(s->pool, &s->wish, s->devices, at))
        return;
    if (!keeps_need(s->pool, s->lost, at))
        rank |= RANK_NEED;
    if (s->peer.count && !is_near(&s->peer, b->box))
        rank |= RANK_PEER;
    if (b->state != POOL_SPARE)
        rank |= RANK_FREE;
    if (a->group_cell == POOL_NONE || a->group_cell != b->group_cell)
        rank |= RANK_GROUP;
    if (a->box != b->box)
        rank |= RANK_BOX;
    if (rank < s->best_rank) {
        s->best_rank = rank;
        s->best = at;
    }
}

static void consider_box(search *s, uint32_t box)
{
    const pool_box *b = &s->pool->box[box];
    box_use d;
    look_at_devices(s->pool, box, &s->wish, &d);
    s->devices = &d;
    for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++) {
        const pool_slot *slot = &s->pool->slot[i];
        if (slot->model == s->pool->slot[s->lost].model &&
            (slot->state == POOL_FREE || slot->state == POOL_SPARE))
            consider(s, i);
    }
    s->devices = NULL;
}

/* Far from `near`, only boxes that the lease is in already are unlike the others, and those are
   POOL_COUNT_MAX at most: so neither search is longer than what that many boxes hold. */
static void consider_far(search *s)
{
    const pool *p = s->pool;
    const pool_model *m = &p->model[p->slot[s->lost].model];
    unsigned spares = POOL_COUNT_MAX * POOL_BOX_SLOTS_MAX + 1, cells = POOL_COUNT_MAX + 1;
    for (uint32_t i = m->first_spare; i != POOL_NONE && spares--; i = p->slot[i].next)
        consider(s, i);
    for (uint64_t mask = m->box_mask; mask; mask &= mask - 1)
        for (uint32_t i = m->box_head[lowest(mask)]; i != POOL_NONE && cells;
             cells--, i = p->cell[i].next) {
            pool_choice one = { 0 };
            take(p, i, &s->wish, 1, &one);
            consider(s, one.slot[0]);
        }
}

/* Any slot may be one of the few that fit. */
static void consider_all(search *s)
{
    for (uint32_t box = 0; box < s->pool->boxes; box++)
        consider_box(s, box);
}

int pool_choose_other(const pool *p, uint32_t slot, const pool_filter *filter, pool_other *out)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    if (p->slot[slot].lease == POOL_NONE)
        return POOL_E_STATE;
    const pool_lease *l = &p->lease[p->slot[slot].lease];
    search s = { p,
                 wish_of_lease(p, p->slot[slot].lease, filter),
                 slot,
                 l->first,
                 near_of(p, l->peer),
                 NULL,
                 POOL_NONE,
                 RANK_WORST };
    if (s.near == slot && p->slot[slot].next != POOL_NONE)
        s.near = p->slot[slot].next;
    consider_box(&s, p->slot[s.near].box);
    for (unsigned i = 0; i < s.peer.count; i++)
        consider_box(&s, s.peer.box[i]);
    if (!is_plain(p, &s.wish))
        consider_all(&s);
    else
        consider_far(&s);
    if (s.best == POOL_NONE)
        return POOL_E_FREE;
    out->slot = s.best;
    out->need_kept = !(s.best_rank & RANK_NEED);
    return POOL_OK;
}

/* Is it the first of its device in this list, where only one of each may be? */
static bool adds(const pool *p, const wish *w, uint32_t slot, const pool_choice *out)
{
    for (unsigned i = 0; w->apart && i < out->count; i++) {
        if (same_device(p, out->slot[i], slot))
            return false;
    }
    return true;
}

/* Unassigned slots of a cell that fit, the first of them into out: how many there are. */
static unsigned list_lendable(const pool *p, uint32_t cell, const wish *w, pool_choice *out)
{
    const pool_box *b = &p->box[p->cell[cell].box];
    unsigned count = 0;
    box_use d;
    look_at_devices(p, p->cell[cell].box, w, &d);
    out->count = 0;
    for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++) {
        const pool_slot *s = &p->slot[i];
        if ((s->state == POOL_FREE || s->state == POOL_SPARE) &&
            (s->box_cell == cell || s->group_cell == cell) && fits(p, w, &d, i) &&
            adds(p, w, i, out) && ++count && out->count < POOL_COUNT_MAX)
            out->slot[out->count++] = i;
    }
    return count;
}

/* In these boxes where there are any: the cell with the fewest that suffice. */
static bool choose_all_in(const pool *p, const pool_lease *l, const wish *w, const near *n,
                          pool_choice *best)
{
    unsigned least = UINT_MAX;
    for (uint32_t i = 0; i < p->cells; i++) {
        const pool_cell *c = &p->cell[i];
        pool_choice found;
        if (c->slots < l->count || c->model != l->model ||
            (c->parent != POOL_NONE) != (l->need == POOL_SAME_GROUP) ||
            (n->count && !is_near(n, c->box)))
            continue;
        unsigned count = list_lendable(p, i, w, &found);
        if (count >= l->count && count < least) {
            least = count;
            *best = found;
        }
    }
    return least != UINT_MAX;
}

int pool_choose_all(const pool *p, uint64_t lease, const pool_filter *filter, pool_choice *out)
{
    const pool_lease *l = pool_find_lease(p, lease);
    const near any = { 0 };
    pool_choice best;
    if (!l)
        return POOL_E_UNKNOWN;
    near n = near_of(p, l->peer);
    wish w = wish_of_lease(p, pool_lease_index(lease), filter);
    if (l->need != POOL_SAME_BOX && l->need != POOL_SAME_GROUP)
        return POOL_E_STATE;
    if (!(n.count && choose_all_in(p, l, &w, &n, &best)) && !choose_all_in(p, l, &w, &any, &best))
        return POOL_E_PLACE;
    best.count = l->count;
    *out = best;
    return POOL_OK;
}

/* -- Spares -- */

uint32_t pool_spares_for(uint32_t devices, double failures_per_year, double repair_days,
                         double risk)
{
    double mean = devices * failures_per_year * repair_days / 365.25;
    if (!(mean > 0) || !(risk < 1))
        return 0;
    /* Failures during one repair are Poisson; in logarithms, since exp(-mean) may be 0. */
    double log_term = -mean, sum = exp(log_term);
    uint32_t spares = 0;
    while (spares < devices && 1 - sum > risk) {
        spares++;
        log_term += log(mean / spares);
        sum += exp(log_term);
    }
    return spares;
}

/* Up to the wanted number of spares: out of the boxes with the least free. */
static void settle(pool *p, uint16_t model)
{
    pool_model *m = &p->model[model];
    while (m->count[POOL_SPARE] > m->spares_wanted)
        slot_to(p, m->first_spare, POOL_FREE, POOL_WHY_NONE);
    while (m->count[POOL_SPARE] < m->spares_wanted && m->box_mask) {
        pool_choice one = { 0 };
        take(p, m->box_head[lowest(m->box_mask)], NULL, 1, &one);
        slot_to(p, one.slot[0], POOL_SPARE, POOL_WHY_NONE);
    }
}

int pool_set_spares(pool *p, uint16_t model, uint32_t spares)
{
    if (model >= p->limits.models)
        return POOL_E_UNKNOWN;
    p->model[model].spares_wanted = spares;
    settle(p, model);
    return POOL_OK;
}

/* -- What there is -- */

/* One more slot is in the cell of a box (parent: POOL_NONE), or of a group in it, made when it
   is not there.  There is room: a slot is in two at most. */
static uint32_t cell_for(pool *p, uint32_t box, uint16_t model, uint32_t parent, uint32_t label)
{
    pool_box *b = &p->box[box];
    uint32_t end = b->first_cell + b->cells, at = end;
    for (uint32_t i = b->first_cell; i < end; i++) {
        const pool_cell *c = &p->cell[i];
        if (!c->slots)
            at = i;
        if (!c->slots || c->model != model || c->parent != parent || c->label != label)
            continue;
        p->cell[i].slots++;
        return i;
    }
    b->cells = (uint16_t)(b->cells + (at == end));
    p->cell[at] =
        (pool_cell){ .box = box, .parent = parent, .label = label, .model = model, .slots = 1 };
    return at;
}

static void place_slot(pool *p, pool_slot *s, const pool_slot_info *info)
{
    s->model = info->model;
    s->box_cell = cell_for(p, s->box, info->model, POOL_NONE, POOL_NONE);
    s->group_cell = POOL_NONE;
    if (info->group != POOL_NONE)
        s->group_cell = cell_for(p, s->box, info->model, s->box_cell, info->group);
}

static void add_slot(pool *p, uint32_t box, const pool_slot_info *info)
{
    uint32_t at = p->slots++;
    pool_slot *s = &p->slot[at];
    memset(s, 0, sizeof *s);
    s->box = box;
    s->lease = s->next = s->prev = s->owner = POOL_NONE;
    place_slot(p, s, info);
    s->state = POOL_WIPING; /* until slot_to() has counted it */
    p->model[s->model].count[POOL_WIPING]++;
}

int pool_add_box(pool *p, const pool_slot_info *slots, unsigned count, uint32_t *box)
{
    if (!count || count > POOL_BOX_SLOTS_MAX)
        return POOL_E_ARG;
    for (unsigned i = 0; i < count; i++)
        if (slots[i].model >= p->limits.models)
            return POOL_E_UNKNOWN;
    if (p->boxes == p->limits.boxes || count > p->limits.slots - p->slots)
        return POOL_E_ROOM;
    pool_box *b = &p->box[p->boxes];
    memset(b, 0, sizeof *b);
    b->first_slot = p->slots;
    b->first_cell = 2 * p->slots;
    b->slots = (uint16_t)count;
    p->cells = b->first_cell + 2 * count;
    memset(&p->cell[b->first_cell], 0, 2 * count * sizeof p->cell[0]);
    for (unsigned i = 0; i < count; i++)
        add_slot(p, p->boxes, &slots[i]);
    *box = p->boxes++;
    for (unsigned i = 0; i < count; i++)
        slot_to_pool(p, b->first_slot + i);
    for (unsigned i = 0; i < count; i++)
        settle(p, slots[i].model);
    return POOL_OK;
}

int pool_change_slot(pool *p, uint32_t slot, const pool_slot_info *now)
{
    if (slot >= p->slots || now->model >= p->limits.models)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    if (s->lease != POOL_NONE || s->owner != POOL_NONE)
        return POOL_E_STATE;
    uint16_t was = s->model;
    bool lent = s->state == POOL_FREE || s->state == POOL_SPARE;
    if (lent)
        slot_to(p, slot, POOL_WIPING, POOL_WHY_NONE); /* in no list */
    p->model[was].count[s->state]--;
    p->cell[s->box_cell].slots--;
    if (s->group_cell != POOL_NONE)
        p->cell[s->group_cell].slots--;
    place_slot(p, s, now);
    p->model[s->model].count[s->state]++;
    if (lent)
        slot_to_pool(p, slot);
    settle(p, was);
    settle(p, s->model);
    return POOL_OK;
}

int pool_set_device(pool *p, uint32_t slot, unsigned device)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    const pool_box *b = &p->box[s->box];
    unsigned number = slot - b->first_slot + 1;
    if (device && (device > number || number - device >= POOL_FUNCTIONS_MAX))
        return POOL_E_ARG;
    s->device = (uint16_t)device;
    return POOL_OK;
}

int pool_add_host(pool *p, uint32_t capacity, uint32_t *host)
{
    if (p->hosts == p->limits.hosts)
        return POOL_E_ROOM;
    p->host[p->hosts].capacity = capacity;
    p->host[p->hosts].used = 0;
    *host = p->hosts++;
    return POOL_OK;
}

int pool_set_capacity(pool *p, uint32_t host, uint32_t capacity)
{
    if (host >= p->hosts)
        return POOL_E_UNKNOWN;
    if (capacity < p->host[host].used)
        return POOL_E_STATE;
    p->host[host].capacity = capacity;
    return POOL_OK;
}

int pool_add_tenant(pool *p, uint32_t quota, uint32_t *tenant)
{
    if (p->tenants == p->limits.tenants)
        return POOL_E_ROOM;
    p->tenant[p->tenants].quota = quota;
    p->tenant[p->tenants].used = p->tenant[p->tenants].exclusive = 0;
    *tenant = p->tenants++;
    return POOL_OK;
}

int pool_drop_tenant(pool *p, uint32_t tenant)
{
    if (tenant >= p->tenants)
        return POOL_E_UNKNOWN;
    if (tenant + 1 != p->tenants || p->tenant[tenant].used)
        return POOL_E_STATE;
    p->tenants--;
    return POOL_OK;
}

int pool_set_quota(pool *p, uint32_t tenant, uint32_t quota)
{
    if (tenant >= p->tenants)
        return POOL_E_UNKNOWN;
    p->tenant[tenant].quota = quota;
    return POOL_OK;
}

/* -- Leases -- */

static pool_lease *lease_of(const pool *p, uint64_t number)
{
    uint32_t index = pool_lease_index(number);
    uint64_t serial = number >> POOL_INDEX_BITS;
    bool there = index < p->limits.leases && serial && p->lease[index].serial == serial;
    return there && p->lease[index].count ? &p->lease[index] : NULL;
}

const pool_lease *pool_find_lease(const pool *p, uint64_t lease)
{
    return lease_of(p, lease);
}

uint64_t pool_lease_number(const pool *p, uint32_t index)
{
    if (index >= p->limits.leases || !p->lease[index].count)
        return 0;
    return p->lease[index].serial << POOL_INDEX_BITS | index;
}

static unsigned list_from(const pool *p, uint32_t first, uint32_t out[POOL_COUNT_MAX])
{
    unsigned n = 0;
    for (uint32_t i = first; i != POOL_NONE && n < POOL_COUNT_MAX; i = p->slot[i].next)
        out[n++] = i;
    return n;
}

unsigned pool_lease_slots(const pool *p, uint64_t lease, uint32_t out[POOL_COUNT_MAX])
{
    const pool_lease *l = lease_of(p, lease);
    return list_from(p, l ? l->first : POOL_NONE, out);
}

unsigned pool_lease_retained(const pool *p, uint64_t lease, uint32_t out[POOL_COUNT_MAX])
{
    const pool_lease *l = lease_of(p, lease);
    return list_from(p, l ? l->retained : POOL_NONE, out);
}

bool pool_need_kept(const pool *p, uint64_t lease)
{
    const pool_lease *l = lease_of(p, lease);
    for (uint32_t i = l ? l->first : POOL_NONE; i != POOL_NONE; i = p->slot[i].next) {
        if (!keeps_need(p, i, i))
            return false;
    }
    return true;
}

static void chain(pool *p, uint32_t at, uint32_t lease, uint32_t prev)
{
    pool_slot *s = &p->slot[at];
    pool_lease *l = &p->lease[lease];
    s->lease = lease;
    s->prev = prev;
    s->next = prev == POOL_NONE ? l->first : p->slot[prev].next;
    *(s->prev == POOL_NONE ? &l->first : &p->slot[s->prev].next) = at;
    *(s->next == POOL_NONE ? &l->last : &p->slot[s->next].prev) = at;
}

static void give(pool *p, uint32_t at, uint32_t lease, uint32_t prev)
{
    slot_to(p, at, POOL_LEASED, POOL_WHY_NONE);
    p->slot[at].dirty = true;
    p->slot[at].wipe = POOL_WHY_NONE;
    p->slot[at].epoch = ++p->epoch;
    chain(p, at, lease, prev);
}

void pool_own(pool *p, uint32_t at, uint32_t lease, unsigned place)
{
    pool_slot *s = &p->slot[at];
    pool_lease *l = &p->lease[lease];
    s->owner = lease;
    s->place = (uint8_t)place;
    s->wipe = POOL_WHY_NONE;
    s->prev = POOL_NONE;
    s->next = l->retained;
    if (l->retained != POOL_NONE)
        p->slot[l->retained].prev = at;
    l->retained = at;
    l->retained_count++;
    p->tenant[l->tenant].used++;
}

void pool_disown(pool *p, uint32_t at)
{
    pool_slot *s = &p->slot[at];
    pool_lease *l = &p->lease[s->owner];
    *(s->prev == POOL_NONE ? &l->retained : &p->slot[s->prev].next) = s->next;
    if (s->next != POOL_NONE)
        p->slot[s->next].prev = s->prev;
    s->owner = s->next = s->prev = POOL_NONE;
    s->place = 0;
    l->retained_count--;
    p->tenant[l->tenant].used--;
}

static unsigned chain_place(const pool *p, uint32_t at)
{
    unsigned place = 0;
    for (uint32_t i = p->slot[at].prev; i != POOL_NONE; i = p->slot[i].prev)
        place++;
    return place;
}

/* Take a slot out of its lease; one that is broken or quarantined stays so. */
static void take_back(pool *p, uint32_t at, pool_reason why, bool retain)
{
    pool_slot *s = &p->slot[at];
    uint32_t lease = s->lease;
    pool_lease *l = &p->lease[lease];
    unsigned place = retain ? chain_place(p, at) : 0;
    *(s->prev == POOL_NONE ? &l->first : &p->slot[s->prev].next) = s->next;
    *(s->next == POOL_NONE ? &l->last : &p->slot[s->next].prev) = s->prev;
    s->lease = s->next = s->prev = POOL_NONE;
    if (retain)
        pool_own(p, at, lease, place);
    else
        s->wipe = (uint8_t)why;
    if (s->state == POOL_LEASED)
        slot_to(p, at, retain ? POOL_RETAINED : POOL_WIPING, why);
}

static bool can_give(const pool *p, const pool_request *r, const pool_choice *c)
{
    wish w = wish_of(r);
    if (c->count != r->count)
        return false;
    for (unsigned i = 0; i < c->count; i++) {
        if (c->slot[i] >= p->slots || p->slot[c->slot[i]].state != POOL_FREE ||
            p->slot[c->slot[i]].model != r->model || !fits(p, &w, NULL, c->slot[i]))
            return false;
        for (unsigned j = 0; j < i; j++)
            if (c->slot[i] == c->slot[j] || (r->apart && same_device(p, c->slot[i], c->slot[j])))
                return false;
    }
    return true;
}

/* A new lease, without slots yet: its index. */
static uint32_t open_lease(pool *p, const pool_request *r)
{
    uint32_t index = p->empty_lease;
    pool_lease *l = &p->lease[index];
    p->empty_lease = l->first;
    p->serial++; /* 40 bits: enough for 136 years of 256 a second */
    l->serial = p->serial;
    l->tenant = r->tenant;
    l->host = r->host;
    l->model = r->model;
    l->need = r->need;
    l->count = r->count;
    l->device = r->device;
    l->exclusive = r->exclusive;
    l->apart = r->apart;
    l->peer = r->peer;
    l->first = l->last = l->retained = POOL_NONE;
    l->retained_count = 0;
    p->tenant[r->tenant].used += r->count;
    p->host[r->host].used += r->count;
    p->leases++;
    p->exclusive += r->exclusive;
    p->tenant[r->tenant].exclusive += r->exclusive;
    return index;
}

int pool_grant(pool *p, const pool_request *r, const pool_choice *c, uint64_t *lease)
{
    int rc = admit(p, r);
    if (rc != POOL_OK)
        return rc;
    if (!can_give(p, r, c))
        return POOL_E_STATE;
    if (is_too_much(p, r, c))
        return POOL_E_QUOTA;
    if (p->empty_lease == POOL_NONE)
        return POOL_E_ROOM;
    uint32_t index = open_lease(p, r);
    for (unsigned i = 0; i < c->count; i++)
        give(p, c->slot[i], index, p->lease[index].last);
    *lease = pool_lease_number(p, index);
    return POOL_OK;
}

int pool_adopt(pool *p, const pool_request *r, uint32_t slot, uint64_t *lease)
{
    if (r->tenant >= p->tenants || r->host >= p->hosts || slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    if (s->state != POOL_QUARANTINED || s->reason != POOL_WHY_FOREIGN || s->lease != POOL_NONE ||
        s->owner != POOL_NONE || s->model != r->model || r->count != 1)
        return POOL_E_STATE;
    if (p->host[r->host].capacity == p->host[r->host].used)
        return POOL_E_HOST;
    if (p->empty_lease == POOL_NONE)
        return POOL_E_ROOM;
    uint32_t index = open_lease(p, r);
    slot_to(p, slot, POOL_LEASED, POOL_WHY_NONE);
    s->wipe = POOL_WHY_NONE;
    chain(p, slot, index, POOL_NONE);
    *lease = pool_lease_number(p, index);
    return POOL_OK;
}

int pool_park(pool *p, uint64_t lease)
{
    pool_lease *l = lease_of(p, lease);
    if (!l)
        return POOL_E_UNKNOWN;
    if (l->host == POOL_NONE)
        return POOL_E_STATE;
    p->host[l->host].used -= l->count;
    l->host = POOL_NONE;
    return POOL_OK;
}

int pool_attach(pool *p, uint64_t lease, uint32_t host)
{
    pool_lease *l = lease_of(p, lease);
    if (!l || host >= p->hosts)
        return POOL_E_UNKNOWN;
    if (l->host != POOL_NONE)
        return POOL_E_STATE;
    if (l->count > p->host[host].capacity - p->host[host].used)
        return POOL_E_HOST;
    p->host[host].used += l->count;
    l->host = host;
    for (uint32_t i = l->first; i != POOL_NONE; i = p->slot[i].next)
        p->slot[i].epoch = ++p->epoch; /* the host before is fenced off */
    return POOL_OK;
}

int pool_renew(pool *p, uint32_t slot)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    if (s->state != POOL_LEASED || s->lease == POOL_NONE || p->lease[s->lease].host == POOL_NONE)
        return POOL_E_STATE;
    s->epoch = ++p->epoch;
    return POOL_OK;
}

/* What is kept in the slot is to be wiped. */
static void give_up(pool *p, uint32_t at, pool_reason why)
{
    pool_disown(p, at);
    p->slot[at].wipe = (uint8_t)why;
    if (p->slot[at].state == POOL_RETAINED)
        slot_to(p, at, POOL_WIPING, why);
}

int pool_release(pool *p, uint64_t lease, pool_reason why)
{
    pool_lease *l = lease_of(p, lease);
    if (!l)
        return POOL_E_UNKNOWN;
    p->tenant[l->tenant].used -= l->count;
    if (l->host != POOL_NONE)
        p->host[l->host].used -= l->count;
    while (l->retained != POOL_NONE)
        give_up(p, l->retained, why);
    while (l->first != POOL_NONE)
        take_back(p, l->first, why, false);
    l->count = 0;
    l->first = p->empty_lease;
    p->empty_lease = (uint32_t)(l - p->lease);
    p->leases--;
    p->exclusive -= l->exclusive;
    p->tenant[l->tenant].exclusive -= l->exclusive;
    return POOL_OK;
}

int pool_wiped(pool *p, uint32_t slot, bool verified)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    if (s->state != POOL_WIPING)
        return POOL_E_STATE;
    if (!verified) {
        slot_to(p, slot, POOL_QUARANTINED, POOL_WHY_WIPE);
        return POOL_OK;
    }
    s->dirty = false;
    s->wipe = POOL_WHY_NONE;
    slot_to_pool(p, slot);
    settle(p, s->model);
    return POOL_OK;
}

/* -- Trouble -- */

int pool_break(pool *p, uint32_t slot, pool_reason why)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    if (p->slot[slot].state == POOL_BROKEN || p->slot[slot].state == POOL_QUARANTINED)
        return POOL_E_STATE;
    slot_to(p, slot, POOL_BROKEN, why);
    settle(p, p->slot[slot].model);
    return POOL_OK;
}

int pool_repair(pool *p, uint32_t slot, pool_reason by)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    bool quarantined = s->state == POOL_QUARANTINED;
    if (s->state != POOL_BROKEN && (!quarantined || s->lease != POOL_NONE || !by))
        return POOL_E_STATE;
    if (quarantined && s->owner != POOL_NONE)
        pool_disown(p, slot);
    if (by && s->owner == POOL_NONE && (quarantined || !s->wipe))
        s->wipe = (uint8_t)by;
    if (s->lease != POOL_NONE)
        slot_to(p, slot, POOL_LEASED, POOL_WHY_NONE);
    else if (s->owner != POOL_NONE)
        slot_to(p, slot, POOL_RETAINED, (pool_reason)s->reason);
    else if (s->dirty && s->wipe)
        slot_to(p, slot, POOL_WIPING, (pool_reason)s->wipe);
    else if (s->dirty)
        slot_to(p, slot, POOL_QUARANTINED, POOL_WHY_FOREIGN);
    else
        slot_to_pool(p, slot);
    if (!s->dirty || s->lease != POOL_NONE)
        s->wipe = POOL_WHY_NONE;
    settle(p, s->model);
    return POOL_OK;
}

int pool_keep(pool *p, uint32_t slot)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    const pool_slot *s = &p->slot[slot];
    if (s->state != POOL_QUARANTINED || (s->lease == POOL_NONE && s->owner == POOL_NONE))
        return POOL_E_STATE;
    if (s->lease != POOL_NONE)
        slot_to(p, slot, POOL_LEASED, POOL_WHY_NONE);
    else
        slot_to(p, slot, POOL_RETAINED, (pool_reason)s->reason);
    return POOL_OK;
}

int pool_replace(pool *p, uint32_t slot, uint32_t other, pool_reason why, bool retain)
{
    if (slot >= p->slots || other >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *a = &p->slot[slot], *b = &p->slot[other];
    if (a->lease == POOL_NONE || a->model != b->model ||
        (b->state != POOL_FREE && b->state != POOL_SPARE))
        return POOL_E_STATE;
    uint32_t lease = a->lease, prev = a->prev;
    take_back(p, slot, why, retain);
    if (a->state != POOL_QUARANTINED)
        a->reason = (uint8_t)why;
    give(p, other, lease, prev);
    settle(p, a->model);
    return POOL_OK;
}

int pool_recover(pool *p, uint32_t slot, bool retain)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    const pool_slot *s = &p->slot[slot];
    if (s->state != POOL_RETAINED)
        return POOL_E_STATE;
    uint32_t lease = s->owner, now = p->lease[lease].first;
    for (unsigned i = s->place; i; i--)
        now = p->slot[now].next;
    uint32_t prev = p->slot[now].prev;
    pool_disown(p, slot);
    take_back(p, now, POOL_WHY_RECOVER, retain);
    give(p, slot, lease, prev);
    settle(p, s->model);
    return POOL_OK;
}

int pool_discard(pool *p, uint32_t slot, pool_reason why)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    if (p->slot[slot].owner == POOL_NONE)
        return POOL_E_STATE;
    give_up(p, slot, why);
    return POOL_OK;
}

int pool_drain(pool *p, uint32_t box, bool on, unsigned *left)
{
    if (box >= p->boxes)
        return POOL_E_UNKNOWN;
    pool_box *b = &p->box[box];
    b->draining = on;
    *left = 0;
    for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++) {
        unsigned state = p->slot[i].state;
        if (on ? state == POOL_FREE || state == POOL_SPARE : state == POOL_DRAINED)
            slot_to_pool(p, i);
        *left += p->slot[i].lease != POOL_NONE || p->slot[i].owner != POOL_NONE;
    }
    for (uint32_t i = b->first_slot; i < b->first_slot + b->slots; i++)
        settle(p, p->slot[i].model);
    return POOL_OK;
}

/* -- After a restart -- */

int pool_restore_slot(pool *p, uint32_t slot, const pool_slot *was)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    bool out = was->state == POOL_LEASED || was->state == POOL_WIPING ||
               was->state == POOL_BROKEN || was->state == POOL_QUARANTINED ||
               was->state == POOL_RETAINED;
    if (was->state >= POOL_STATES || was->reason >= POOL_REASONS || (was->dirty && !out) ||
        was->wipe >= POOL_REASONS || (was->wipe && !was->dirty) ||
        ((was->state == POOL_LEASED || was->state == POOL_RETAINED) && !was->dirty))
        return POOL_E_ARG;
    if (s->lease != POOL_NONE ||
        (s->state != POOL_FREE && s->state != POOL_SPARE && s->state != POOL_DRAINED))
        return POOL_E_STATE;
    s->epoch = was->epoch;
    s->dirty = was->dirty;
    s->wipe = was->wipe;
    if (was->epoch > p->epoch)
        p->epoch = was->epoch;
    if (out)
        slot_to(p, slot, (pool_state)was->state, (pool_reason)was->reason);
    return POOL_OK;
}

/* Were these slots those of one lease? */
static bool were_leased(const pool *p, const pool_request *r, const pool_choice *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        const pool_slot *s = c->slot[i] < p->slots ? &p->slot[c->slot[i]] : NULL;
        if (!s || s->lease != POOL_NONE || s->model != r->model || !s->dirty ||
            (s->state != POOL_LEASED && s->state != POOL_BROKEN && s->state != POOL_QUARANTINED))
            return false;
        for (unsigned j = 0; j < i; j++)
            if (c->slot[i] == c->slot[j])
                return false;
    }
    return true;
}

int pool_restore_lease(pool *p, uint64_t number, const pool_request *r, const pool_choice *slots)
{
    uint32_t index = pool_lease_index(number);
    if (!(number >> POOL_INDEX_BITS) || !r->count || r->count > POOL_COUNT_MAX ||
        r->count != slots->count || r->need >= POOL_NEEDS || r->device >= POOL_DEVICES)
        return POOL_E_ARG;
    if (r->tenant >= p->tenants || (r->host >= p->hosts && r->host != POOL_NONE) ||
        r->model >= p->limits.models)
        return POOL_E_UNKNOWN;
    if (index >= p->limits.leases)
        return POOL_E_ROOM;
    pool_lease *l = &p->lease[index];
    if (l->count || !were_leased(p, r, slots))
        return POOL_E_STATE;
    if (r->host != POOL_NONE && r->count > p->host[r->host].capacity - p->host[r->host].used)
        return POOL_E_HOST;
    *l = (pool_lease){ .serial = number >> POOL_INDEX_BITS,
                       .tenant = r->tenant,
                       .host = r->host,
                       .first = POOL_NONE,
                       .last = POOL_NONE,
                       .retained = POOL_NONE,
                       .model = r->model,
                       .count = r->count,
                       .need = r->need,
                       .device = r->device,
                       .exclusive = r->exclusive,
                       .apart = r->apart,
                       .peer = r->peer };
    pool_raise_serial(p, l->serial);
    for (unsigned i = 0; i < slots->count; i++)
        chain(p, slots->slot[i], index, l->last);
    p->tenant[r->tenant].used += r->count;
    if (r->host != POOL_NONE)
        p->host[r->host].used += r->count;
    p->leases++;
    p->exclusive += r->exclusive;
    p->tenant[r->tenant].exclusive += r->exclusive;
    return POOL_OK;
}

int pool_restore_owner(pool *p, uint32_t slot, uint64_t lease, unsigned place)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    const pool_slot *s = &p->slot[slot];
    const pool_lease *l = lease_of(p, lease);
    if (!l || l->model != s->model || place >= l->count || s->lease != POOL_NONE ||
        s->owner != POOL_NONE || !s->dirty || s->wipe ||
        (s->state != POOL_RETAINED && s->state != POOL_BROKEN && s->state != POOL_QUARANTINED))
        return POOL_E_STATE;
    pool_own(p, slot, pool_lease_index(lease), place);
    return POOL_OK;
}

void pool_restored(pool *p)
{
    p->empty_lease = POOL_NONE;
    for (uint32_t i = p->limits.leases; i--;)
        if (!p->lease[i].count) {
            p->lease[i].first = p->empty_lease;
            p->empty_lease = i;
        }
    for (uint32_t i = 0; i < p->slots; i++)
        if ((p->slot[i].state == POOL_LEASED && p->slot[i].lease == POOL_NONE) ||
            (p->slot[i].state == POOL_RETAINED && p->slot[i].owner == POOL_NONE))
            slot_to(p, i, POOL_QUARANTINED, POOL_WHY_FOREIGN);
    for (uint32_t i = 0; i < p->limits.models; i++)
        settle(p, (uint16_t)i);
}

void pool_raise_epoch(pool *p, uint64_t epoch)
{
    if (epoch > p->epoch)
        p->epoch = epoch;
}

void pool_raise_serial(pool *p, uint64_t serial)
{
    if (serial > p->serial)
        p->serial = serial;
}

int pool_taint(pool *p, uint32_t slot, uint64_t epoch, bool quarantine)
{
    if (slot >= p->slots)
        return POOL_E_UNKNOWN;
    pool_slot *s = &p->slot[slot];
    if (((s->lease != POOL_NONE || s->owner != POOL_NONE) && !quarantine) || epoch < s->epoch)
        return POOL_E_STATE;
    s->epoch = epoch;
    s->dirty = true;
    s->wipe = quarantine ? POOL_WHY_NONE : POOL_WHY_RELEASE;
    pool_raise_epoch(p, epoch);
    slot_to(p, slot, quarantine ? POOL_QUARANTINED : POOL_WIPING,
            quarantine ? POOL_WHY_FOREIGN : POOL_WHY_RELEASE);
    settle(p, s->model);
    return POOL_OK;
}

double pool_room(const pool *p, uint16_t model, bool by_group)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < p->cells; i++) {
        const pool_cell *c = &p->cell[i];
        if (c->model == model && (c->parent != POOL_NONE) == by_group) {
            sum += c->free;
            squares += (double)c->free * c->free;
        }
    }
    return sum > 0 ? squares / sum : 0;
}
