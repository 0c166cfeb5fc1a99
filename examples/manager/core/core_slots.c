/* core_slots.c - what follows, for a slot and its lease, from what proxies report or fail to report
   SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"

/* -- A lease's ports -- */

/* In a transaction: the node is no longer a stranger. */
void corei_use_node(core *c, uint32_t node)
{
    if (c->t.node[node].used)
        return;
    c->t.node[node].used = true;
    corei_mark_changed(c, COREI_NODE, node);
}

/* The lowest empty ones of its host. */
bool corei_take_ports(core *c, uint64_t lease)
{
    corei_tables *t = &c->t;
    const pool_lease *l = pool_find_lease(t->pool, lease);
    const core_node *host = &t->node[t->host_node[l->host]];
    uint32_t at = host->first, end = host->first + host->total;
    unsigned n = 0;
    corei_use_node(c, t->host_node[l->host]);
    for (uint32_t i = l->first; i != POOL_NONE; i = t->pool->slot[i].next, at++) {
        corei_use_node(c, t->slot[i].node);
        while (at < end && (t->port[at].slot != CORE_NONE || corei_port_foreign(c, at)))
            at++;
        if (at == end)
            return false;
        t->port[at].slot = i;
        t->slot_more[i].port = at;
        t->slot_more[i].yield_ms = 0;
        t->lease[pool_lease_index(lease)].port[n++] = (uint16_t)(at - host->first + 1);
        corei_touch_slot(c, i);
    }
    return true;
}

/* The port is no longer this slot's.  The slot remembers it, to wait until the host has given it
   up. */
static void leave_port(core *c, uint32_t slot)
{
    corei_tables *t = &c->t;
    uint32_t port = t->slot_more[slot].port;
    t->slot_more[slot].yield_ms = 0;
    if (port != CORE_NONE && t->port[port].slot == slot) {
        t->port[port].slot = CORE_NONE;
        t->port_more[port].before = slot;
    }
    if (t->slot_more[slot].other) /* what stands there now can be taken in */
        corei_look_at(c, corei_slot_unit(slot), c->mono_ms);
    corei_touch_slot(c, slot);
}

void corei_leave_ports(core *c, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next)
        leave_port(c, i);
    memset(c->t.lease[pool_lease_index(lease)].port, 0, sizeof c->t.lease[0].port);
}

void corei_end_lease(core *c, uint64_t lease, core_event_type type, pool_reason why)
{
    corei_tables *t = &c->t;
    uint32_t index = pool_lease_index(lease), slot[POOL_COUNT_MAX], retained;
    core_lease *more = &t->lease[index];
    const char *tenant = t->tenant[t->pool->lease[index].tenant].name;
    unsigned n = pool_lease_slots(t->pool, lease, slot);
    corei_event_lease(c, type, lease, "%u slot%s of %s: %s", n, n == 1 ? "" : "s",
                      t->model[t->pool->lease[index].model].name,
                      why == POOL_WHY_RETENTION          ? pool_reason_text(why)
                      : type == CORE_EVENT_LEASE_EXPIRED ? "it has expired, and has no data to keep"
                                                         : "as asked");
    corei_mark_gone(c, "lease/%llx", (unsigned long long)lease);
    if (more->key[0])
        corei_hash_remove(&t->lease_by_key, corei_hash_name(tenant, more->key), index);
    corei_heap_remove(&t->expiry, index);
    while ((retained = t->pool->lease[index].retained) != POOL_NONE)
        corei_discard(c, retained, why);
    corei_leave_ports(c, lease);
    (void)pool_release(t->pool, lease, why);
    for (unsigned i = 0; i < n; i++)
        corei_mark_changed(c, COREI_SLOT, slot[i]);
    memset(more, 0, sizeof *more);
}

/* -- One host, one epoch -- */

/* Two programs may run under one identity: a host that was started again, or a copy of it.  Each is
   given epochs of its own, so that the box accepts one of them alone.  An epoch that was given
   before this program started may be either's. */
bool corei_may_offer(const core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    const corei_slot *more = &t->slot_more[slot];
    uint64_t epoch = t->pool->slot[slot].epoch;
    if (more->offered_epoch != epoch)
        return epoch > c->first_epoch;
    return more->port == CORE_NONE ||
           more->offered_to == t->node[t->port[more->port].node].instance;
}

/* Its box has reported since the start, and knows no lease of it that the store does not. */
static bool knows_no_more(const core *c, uint32_t slot)
{
    const core_slot *s = &c->t.slot[slot];
    uint64_t epoch = c->t.pool->slot[slot].epoch;
    return s->reported && s->device.epoch <= epoch && s->device.epoch_seen <= epoch;
}

bool corei_is_kept(const core *c, uint32_t slot)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    return !d->epoch && d->state == DXPU_CONTROL_SLOT_KEPT &&
           d->epoch_seen == c->t.pool->slot[slot].epoch;
}

/* Is the port's slot to have a new epoch?  Not before its box has reported: a new epoch would hide
   that the box knows a lease which the store does not, or keeps the data of one that was parked
   since (M-179). */
static bool is_renewed(const core *c, uint32_t port)
{
    const core_port *p = &c->t.port[port];
    return p->slot != CORE_NONE && c->t.pool->slot[p->slot].state == POOL_LEASED &&
           p->device.state == DXPU_CONTROL_SLOT_EMPTY && !corei_may_offer(c, p->slot) &&
           knows_no_more(c, p->slot) && !corei_is_kept(c, p->slot);
}

void corei_renew(core *c, uint32_t port)
{
    corei_tables *t = &c->t;
    const core_node *host = &t->node[t->port[port].node];
    uint32_t end = host->first + host->total;
    if (!is_renewed(c, port))
        return;
    bool began = corei_begin(c).code == CORE_OK;
    for (uint32_t i = port; began && i < end && c->marks < POOL_COUNT_MAX; i++) {
        uint32_t slot = t->port[i].slot;
        if (!is_renewed(c, i))
            continue;
        bool up = t->slot_more[slot].up_epoch == t->pool->slot[slot].epoch;
        (void)pool_renew(t->pool, slot);
        if (up)
            t->slot_more[slot].up_epoch = t->pool->slot[slot].epoch;
        corei_mark_changed(c, COREI_SLOT, slot);
        corei_touch_slot(c, slot);
    }
    if (began && corei_commit(c).code == CORE_OK)
        return;
    for (uint32_t i = 0; i < t->ports; i++) /* they may stand elsewhere now */
        if (is_renewed(c, i))
            corei_look_at(c, corei_port_unit(c, i), corei_again_ms(c));
}

/* -- Replacing -- */

bool corei_can_lend(const core *c, uint32_t slot)
{
    const corei_slot *more = &c->t.slot_more[slot];
    return knows_no_more(c, slot) && !more->late && !more->other &&
           !corei_is_unknown(&c->t.slot[slot].device);
}

bool corei_never_served(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const dxpu_control_device *d = &c->t.slot[slot].device;
    bool empty = d->state == DXPU_CONTROL_SLOT_EMPTY && d->health == DXPU_CONTROL_HEALTH_GOOD;
    return s->lease != POOL_NONE && !c->t.slot[slot].served && c->t.slot[slot].reported &&
           !d->epoch && d->epoch_seen < s->epoch && (empty || d->state == DXPU_CONTROL_SLOT_WIPED);
}

/* Does the slot hold data of its lease? */
static bool holds_data(const core *c, uint32_t slot)
{
    return core_keeps_data(c, slot) && !corei_never_served(c, slot);
}

/* Puts another slot in the place of one in its lease: its port, its records, the orders to
   proxies. */
static void take_place(core *c, uint32_t slot, uint32_t other, uint32_t port)
{
    corei_tables *t = &c->t;
    uint32_t lease = t->pool->slot[other].lease;
    if (port != CORE_NONE)
        t->port[port].slot = other;
    t->slot_more[other].port = port;
    t->slot_more[other].yield_ms = 0;
    t->lease[lease].replaced++;
    t->lease[lease].moved_node = t->node[t->slot[slot].node].number;
    t->lease[lease].moved_slot = t->slot[slot].device.number;
    if (t->pool->slot[slot].owner != POOL_NONE)
        corei_retain_begin(c, slot);
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_mark_changed(c, COREI_SLOT, other);
    corei_mark_changed(c, COREI_LEASE, lease);
    corei_touch_slot(c, other);
}

/* retain: what the slot holds is kept. */
static core_result move_to(core *c, uint32_t slot, pool_other other, pool_reason why, bool retain)
{
    corei_tables *t = &c->t;
    uint32_t port = t->slot_more[slot].port;
    const core_slot *to = &t->slot[other.slot];
    corei_event_slot(c, CORE_EVENT_SLOT_REPLACED, slot, "by slot %u.%u: %s%s",
                     t->node[to->node].number, to->device.number, pool_reason_text(why),
                     other.need_kept ? "" : "; no free slot satisfies the lease's need");
    bool had = port != CORE_NONE && t->port[port].slot == slot;
    corei_use_node(c, to->node);
    leave_port(c, slot);
    int rc = pool_replace(t->pool, slot, other.slot, why, retain && holds_data(c, slot));
    if (rc != POOL_OK)
        return corei_pool_result(rc);
    t->slot[other.slot].served = false;
    t->lease[t->pool->slot[other.slot].lease].moved_why = (uint8_t)why;
    take_place(c, slot, other.slot, had ? port : CORE_NONE);
    return (core_result){ CORE_OK, "" };
}

core_result corei_recover(core *c, uint32_t slot)
{
    corei_tables *t = &c->t;
    uint32_t lease = t->pool->slot[slot].owner, now = t->pool->lease[lease].first;
    for (unsigned i = t->pool->slot[slot].place; i; i--)
        now = t->pool->slot[now].next;
    uint32_t port = t->slot_more[now].port;
    bool had = port != CORE_NONE && t->port[port].slot == now;
    corei_event_slot(c, CORE_EVENT_SLOT_RECOVERED, slot, "in place of slot %u.%u",
                     t->node[t->slot[now].node].number, t->slot[now].device.number);
    leave_port(c, now);
    int rc = pool_recover(t->pool, slot, holds_data(c, now));
    if (rc != POOL_OK)
        return corei_pool_result(rc);
    t->slot_more[slot].up_epoch = 0;
    t->slot[slot].served = true; /* its box says so: `kept` */
    t->lease[lease].kept = true; /* it waits for this slot */
    t->lease[lease].moved_why = POOL_WHY_RECOVER;
    take_place(c, now, slot, had ? port : CORE_NONE);
    corei_retain_count(c, slot);
    return (core_result){ CORE_OK, "" };
}

void corei_discard(core *c, uint32_t slot, pool_reason why)
{
    uint32_t owner = c->t.pool->slot[slot].owner;
    corei_event_slot(c, CORE_EVENT_SLOT_DISCARDED, slot, "what it kept for the lease is wiped: %s",
                     pool_reason_text(why));
    (void)pool_discard(c->t.pool, slot, why);
    corei_retain_count(c, slot);
    corei_retain_owner(c, owner); /* it may have waited for this slot */
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
}

static const char not_heard_of[] =
    "the box of the slot in its place has not reported yet; try again in a second";

core_result corei_replace(core *c, uint32_t slot, pool_reason why, bool force)
{
    pool_other other;
    uint64_t lease = pool_lease_number(c->t.pool, c->t.pool->slot[slot].lease);
    int rc = corei_choose_other(c, slot, &other);
    if (rc != POOL_OK)
        return corei_pool_result(rc);
    if (!force && !other.need_kept && pool_need_kept(c->t.pool, lease))
        return corei_result(
            CORE_E_CAPACITY,
            "no free slot satisfies the need of lease %llx beside its others; move the whole lease "
            "(drain its box with --move), or force it (dxpu replace --force)",
            (unsigned long long)lease);
    if (!corei_can_lend(c, other.slot))
        return corei_result(CORE_E_CAPACITY, "%s", not_heard_of);
    return move_to(c, slot, other, why, false);
}

/* All slots of a lease that asks for one box, or group, go to another one. */
static core_result move_group(core *c, uint64_t lease)
{
    pool_choice to;
    uint32_t from[POOL_COUNT_MAX];
    unsigned n = pool_lease_slots(c->t.pool, lease, from);
    core_result r = { CORE_OK, "" };
    int rc = corei_choose_all(c, lease, &to);
    if (rc != POOL_OK)
        return corei_result(CORE_E_CAPACITY, "no other %u free slots satisfy its need", n);
    for (unsigned i = 0; i < n; i++)
        if (!corei_can_lend(c, to.slot[i]))
            return corei_result(CORE_E_CAPACITY, "%s", not_heard_of);
    for (unsigned i = 0; i < n && r.code == CORE_OK; i++)
        r = move_to(c, from[i], (pool_other){ to.slot[i], true }, POOL_WHY_DRAIN, false);
    return r;
}

/* Moves one slot, but not where the lease would lose what it asks for and has now. */
static core_result move_one(core *c, uint32_t slot, bool need_kept)
{
    pool_other other;
    if (corei_choose_other(c, slot, &other) != POOL_OK)
        return corei_result(CORE_E_CAPACITY, "no other slot of its model is free");
    if (need_kept && !other.need_kept)
        return corei_result(CORE_E_CAPACITY, "no other free slot satisfies its need");
    if (!corei_can_lend(c, other.slot))
        return corei_result(CORE_E_CAPACITY, "%s", not_heard_of);
    return move_to(c, slot, other, POOL_WHY_DRAIN, false);
}

/* May a drain move the lease?  Its data would be wiped.  It stays if they are kept here, or if it
   was made without replacement. */
core_result corei_may_move_out(const core_lease *l)
{
    if (l->kept)
        return corei_result(CORE_E_STATE, "its data are kept here; end the drain to attach it, or "
                                          "release it");
    if (l->replace == CORE_REPLACE_NO)
        return corei_result(CORE_E_STATE, "it was made with --no-replace, and its data would be "
                                          "wiped; dxpu replace moves it, without them");
    return (core_result){ CORE_OK, "" };
}

core_result corei_move_out(core *c, uint32_t slot)
{
    const pool *p = c->t.pool;
    uint64_t lease = pool_lease_number(p, p->slot[slot].lease);
    const pool_lease *l = pool_find_lease(p, lease);
    bool kept = pool_need_kept(p, lease);
    bool close = l->count > 1 && (l->need == POOL_SAME_BOX || l->need == POOL_SAME_GROUP);
    core_result r = corei_may_move_out(&c->t.lease[pool_lease_index(lease)]);
    if (r.code == CORE_OK)
        r = close && kept ? move_group(c, lease) : move_one(c, slot, kept);
    if (r.code != CORE_OK)
        corei_event_slot(c, CORE_EVENT_NODE_DRAIN, slot, "its lease stays: %s", r.text);
    return r;
}

/* Does its lease run in the quarantined slot, as its box and its host both report?  Then adoption
   brings it back (M-170).  One that has not reported yet may still say so. */
static bool goes_on(const core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    const pool_slot *s = &t->pool->slot[slot];
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t port = t->slot_more[slot].port, box = t->slot[slot].node;
    uint64_t lease, tenant;
    if (s->state != POOL_QUARANTINED || s->reason != POOL_WHY_FOREIGN || port == CORE_NONE ||
        (!t->node[box].connected && corei_node_given_up(c, box)))
        return false;
    if (!t->slot[slot].reported)
        return true;
    const core_node *host = &t->node[t->port[port].node];
    const dxpu_control_device *p = &t->port[port].device;
    corei_name_lease(c, slot, &lease, &tenant);
    if (!d->epoch || d->epoch != s->epoch || d->peer_node != host->number ||
        d->peer_slot != p->number || corei_names_other(d, lease, tenant))
        return false;
    return !host->connected || !t->port[port].reported ||
           (p->epoch == d->epoch && p->peer_slot == d->number);
}

/* Is the slot replaced when it fails?  A lease whose data are kept waits for them, and no more
   slots are retained for a lease than it has. */
static bool is_replaced(const core *c, uint32_t slot)
{
    uint32_t lease = c->t.pool->slot[slot].lease;
    if (lease == POOL_NONE || c->t.lease[lease].kept || goes_on(c, slot))
        return false;
    const pool_lease *l = &c->t.pool->lease[lease];
    uint8_t how = c->t.lease[lease].replace;
    return how != CORE_REPLACE_NO &&
           (!holds_data(c, slot) || (how == CORE_REPLACE_YES && l->retained_count < l->count));
}

bool core_lease_replaces(const core *c, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    uint8_t how = l ? c->t.lease[pool_lease_index(lease)].replace : CORE_REPLACE_NO;
    for (uint32_t i = l ? l->first : POOL_NONE; i != POOL_NONE && how == CORE_REPLACE_DEFAULT;
         i = c->t.pool->slot[i].next)
        if (core_keeps_data(c, i))
            return false;
    return how != CORE_REPLACE_NO;
}

/* Replaces the slot if its lease asked for that; where no slot is free, later.  What it holds is
   kept. */
static void replace_broken(core *c, uint32_t slot, pool_reason why)
{
    pool_other other;
    if (!is_replaced(c, slot))
        return;
    if (corei_choose_other(c, slot, &other) != POOL_OK || !corei_can_lend(c, other.slot) ||
        move_to(c, slot, other, why, true).code != CORE_OK)
        corei_look_at(c, corei_slot_unit(slot), c->mono_ms + COREI_REPLACE_MS);
}

/* Begins a change that no user asked for.  If the store refuses, the slot is looked at again. */
static bool change_begin(core *c, uint32_t slot)
{
    if (corei_begin(c).code == CORE_OK)
        return true;
    corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
    return false;
}

/* The same for what follows from a report: until it is stored no order goes to the slot (M-100). */
static bool settle_begin(core *c, uint32_t slot)
{
    bool began = change_begin(c, slot);
    c->t.slot_more[slot].late = !began;
    return began;
}

/* A failed commit loads other tables, where the slot may have another index. */
static bool settle_commit(core *c, uint32_t slot)
{
    uint32_t node = c->t.node[c->t.slot[slot].node].number, number = c->t.slot[slot].device.number;
    c->t.slot_more[slot].late = true; /* there, too */
    if (corei_commit(c).code == CORE_OK) {
        c->t.slot_more[slot].late = false;
        return true;
    }
    slot = core_find_slot(c, node, number);
    if (slot != CORE_NONE)
        corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
    return false;
}

static void settle_end(core *c, uint32_t slot)
{
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
    (void)settle_commit(c, slot);
}

/* May its lease have another slot, although the device works?  A lease that was never up has no
   data to wait for; what may be in the slot all the same is retained. */
static bool may_evade(const core *c, uint32_t slot)
{
    uint32_t lease = c->t.pool->slot[slot].lease;
    const pool_lease *l = &c->t.pool->lease[lease];
    bool was_up =
        c->t.lease[lease].was_up || c->t.slot_more[slot].up_epoch == c->t.pool->slot[slot].epoch;
    if (c->t.lease[lease].kept || c->t.lease[lease].replace == CORE_REPLACE_NO)
        return false;
    return is_replaced(c, slot) || (!was_up && l->retained_count < l->count);
}

/* Can all of them move?  None may be in use by its guest, and no more is retained than the lease
   has. */
static bool may_evade_all(const core *c, uint64_t lease, const uint32_t *slot, unsigned n)
{
    unsigned kept = pool_find_lease(c->t.pool, lease)->retained_count;
    for (unsigned i = 0; i < n; i++) {
        if (!may_evade(c, slot[i]) || core_slot_phase(c, slot[i]) == CORE_UP)
            return false;
        kept += holds_data(c, slot[i]);
    }
    return kept <= n;
}

/* Moves all slots of a lease that was never up and asks for one box, or group.  False: they
   stay. */
static bool evade_together(core *c, uint64_t lease, pool_reason why)
{
    pool_choice to;
    uint32_t from[POOL_COUNT_MAX];
    unsigned n = pool_lease_slots(c->t.pool, lease, from);
    if (!may_evade_all(c, lease, from, n) || corei_choose_all(c, lease, &to) != POOL_OK)
        return false;
    for (unsigned i = 0; i < n; i++)
        if (!corei_can_lend(c, to.slot[i]))
            return false;
    if (!settle_begin(c, from[0]))
        return true;
    for (unsigned i = 0; i < n; i++) {
        (void)move_to(c, from[i], (pool_other){ to.slot[i], true }, why, true);
        corei_mark_changed(c, COREI_SLOT, from[i]);
        corei_touch_slot(c, from[i]);
    }
    (void)settle_commit(c, from[0]);
    return true;
}

void corei_evade(core *c, uint32_t slot, pool_reason why)
{
    pool_other other;
    uint64_t lease = pool_lease_number(c->t.pool, c->t.pool->slot[slot].lease);
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    bool close = l->count > 1 && (l->need == POOL_SAME_BOX || l->need == POOL_SAME_GROUP);
    if (!may_evade(c, slot))
        return;
    if (close && !c->t.lease[pool_lease_index(lease)].was_up) {
        (void)evade_together(c, lease, why);
        return;
    }
    if (corei_choose_other(c, slot, &other) != POOL_OK || !corei_can_lend(c, other.slot) ||
        !settle_begin(c, slot))
        return;
    (void)move_to(c, slot, other, why, true);
    settle_end(c, slot);
}

static void break_slot(core *c, uint32_t slot, pool_reason why, const char *text)
{
    if (!settle_begin(c, slot))
        return;
    corei_event_slot(c, CORE_EVENT_SLOT_BROKEN, slot, "%s", text);
    (void)pool_break(c->t.pool, slot, why);
    replace_broken(c, slot, why);
    settle_end(c, slot);
}

static void repair_slot(core *c, uint32_t slot, const char *text)
{
    if (!settle_begin(c, slot))
        return;
    corei_event_slot(c, CORE_EVENT_SLOT_REPAIRED, slot, "%s", text);
    (void)pool_repair(c->t.pool, slot, POOL_WHY_NONE);
    settle_end(c, slot);
}

/* -- What the box of a slot says -- */

void corei_see_epoch(core *c, uint64_t epoch)
{
    if (epoch <= c->t.foreign_epoch)
        return;
    if (epoch > c->t.pool->epoch) /* who gave it may have given those behind it, too */
        pool_raise_epoch(c->t.pool, epoch + c->set.salt % COREI_EPOCH_SALT);
    c->t.foreign_epoch = epoch;
    corei_mark_changed(c, COREI_META, 0);
}

bool corei_has_data(const dxpu_control_device *d)
{
    return d->epoch || d->state == DXPU_CONTROL_SLOT_KEPT ||
           d->state == DXPU_CONTROL_SLOT_UNWIPED || d->state == DXPU_CONTROL_SLOT_WIPING;
}

static bool is_clean(const pool_slot *s)
{
    return s->state == POOL_FREE || s->state == POOL_SPARE || s->state == POOL_DRAINED;
}

/* Does the box name another port than the slot's?  False also when the slot is unassigned. */
static bool other_peer(const core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t port = t->slot_more[slot].port;
    if (port == CORE_NONE || t->port[port].slot != slot)
        return false;
    return d->peer_node != t->node[t->port[port].node].number ||
           d->peer_slot != t->port[port].device.number;
}

bool corei_is_bound(const core *c, uint32_t slot)
{
    return c->t.slot[slot].device.epoch == c->t.pool->slot[slot].epoch && !other_peer(c, slot);
}

bool corei_names_other(const dxpu_control_device *d, uint64_t lease, uint64_t tenant)
{
    return d->lease && (d->lease != lease || d->tenant != tenant);
}

/* Notes that the box has the lease under an epoch of the store.  What this run has bound shows
   nothing of the host: it took that from the store. */
void corei_note_lent(core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t port = t->slot_more[slot].port;
    uint64_t lease, tenant;
    corei_name_lease(c, slot, &lease, &tenant);
    if (lease && port != CORE_NONE && t->port[port].slot == slot && d->epoch &&
        d->epoch <= c->stored_epoch && !corei_names_other(d, lease, tenant) &&
        corei_is_bound(c, slot))
        c->t.slot_more[slot].lent = lease;
}

/* Has an operator looked at what the slot has now, and had it wiped?  When a box that was started
   since calls the slot `empty`, it may be on another medium: that one must be looked at, too. */
static bool is_repaired(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const corei_slot *more = &c->t.slot_more[slot];
    bool same = more->repair_instance == c->t.node[c->t.slot[slot].node].instance;
    return s->state == POOL_WIPING && more->repair_epoch == s->epoch &&
           (same || c->t.slot[slot].device.state != DXPU_CONTROL_SLOT_EMPTY);
}

bool corei_is_own(const core *c, uint32_t slot)
{
    const core_slot *s = &c->t.slot[slot];
    bool moved = s->medium && s->device.medium && s->medium != s->device.medium;
    return s->served && !moved && c->t.slot_more[slot].agreed && corei_is_unknown(&s->device) &&
           !s->device.epoch_seen;
}

bool corei_is_unknown(const dxpu_control_device *d)
{
    return d->state == DXPU_CONTROL_SLOT_EMPTY && d->health == DXPU_CONTROL_HEALTH_GOOD &&
           !d->epoch;
}

/* The wipe was decided while the box called the slot `empty`.  A box that was started since has a
   lease there, or its data: so the medium of that lease is back. */
static bool is_other_medium(const core *c, uint32_t slot)
{
    const core_slot *s = &c->t.slot[slot];
    return s->repaired_empty && (s->device.epoch || s->device.state == DXPU_CONTROL_SLOT_KEPT) &&
           c->t.slot_more[slot].repair_instance != c->t.node[s->node].instance;
}

bool corei_may_wipe(const core *c, uint32_t slot)
{
    return (is_repaired(c, slot) || !corei_is_unknown(&c->t.slot[slot].device)) &&
           !is_other_medium(c, slot);
}

/* Is it unknown whose data the slot has (M-77, M-98)?
   - Its box calls a slot `empty` that is wiped, or whose lease's data are to be wiped: the box was
     reinstalled, or another disk is there.
   - Its box calls a lent slot `empty`.  One that was up has its own tenant's data where the box
     lost its state: see corei_is_own().  A box that has seen an epoch there did not lose it: it has
     wiped what the lease had, and another disk is there.
   - The slot has a lease's medium again, and the wipe was decided for another one. */
static bool is_unknown(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const dxpu_control_device *d = &c->t.slot[slot].device;
    bool wipes = s->state == POOL_WIPING && !corei_may_wipe(c, slot);
    bool lent = s->state == POOL_LEASED && !corei_is_own(c, slot);
    return !c->t.work[corei_slot_unit(slot)].out &&
           (wipes || (corei_is_unknown(d) && (is_clean(s) || lent)));
}

static void settle_unknown(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    if (!settle_begin(c, slot))
        return;
    corei_event_slot(c, CORE_EVENT_SLOT_QUARANTINED, slot, "%s",
                     corei_is_unknown(&c->t.slot[slot].device)
                         ? "its box does not know what data it has: was it reinstalled, or is it "
                           "another disk? repair wipes it (or keeps a lease's data: --keep)"
                         : "it has another medium than when it was repaired, with a lease's data: "
                           "repair wipes it");
    c->t.slot[slot].repaired_empty = false;
    (void)pool_taint(c->t.pool, slot, s->epoch ? s->epoch : c->t.pool->epoch + 1, true);
    replace_broken(c, slot, POOL_WHY_FOREIGN);
    settle_end(c, slot);
}

/* The box has seen a lease that the store does not know to be this slot's: the store is older than
   the pool, or another pool's.  The same holds when the two gave one epoch to different hosts.
   Nothing is lent or wiped there until an operator has looked. */
static bool settle_foreign(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const dxpu_control_device *d = &c->t.slot[slot].device;
    uint64_t epoch = d->epoch > d->epoch_seen ? d->epoch : d->epoch_seen;
    bool out = c->t.work[corei_slot_unit(slot)].out;
    bool known = !is_clean(s) || !corei_has_data(d) || (epoch && epoch == s->epoch) || out;
    bool other = d->epoch && d->epoch == s->epoch && other_peer(c, slot) &&
                 (s->state == POOL_LEASED || s->state == POOL_BROKEN);
    if (epoch <= s->epoch && known && !other)
        return false;
    if (!settle_begin(c, slot))
        return true;
    corei_event_slot(c, CORE_EVENT_SLOT_QUARANTINED, slot,
                     "the box knows a lease that the store does not (epoch %llu): is the store an "
                     "old backup? nothing is wiped before repair",
                     (unsigned long long)epoch);
    corei_see_epoch(c, epoch);
    if (s->lease != POOL_NONE && epoch > s->epoch && !c->t.slot_more[slot].known_epoch)
        c->t.slot_more[slot].known_epoch = s->epoch;
    c->t.slot[slot].medium = 0; /* whose data it has is not for core_keep() to say */
    if (epoch < s->epoch || !epoch)
        epoch = s->epoch ? s->epoch : c->t.pool->epoch + 1;
    (void)pool_taint(c->t.pool, slot, epoch, true);
    replace_broken(c, slot, POOL_WHY_FOREIGN);
    settle_end(c, slot);
    return true;
}

/* False: the tables must be rebuilt, with room for another model. */
static bool move_in_pool(core *c, uint32_t slot)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    uint32_t model = corei_model_for(&c->t, d->model, true);
    pool_slot_info now = { (uint16_t)model, d->group ? d->group : POOL_NONE };
    return model != CORE_NONE && pool_change_slot(c->t.pool, slot, &now) == POOL_OK;
}

/* Takes in the new device of a slot that no lease has or is to have.  False: what the new device
   reports is still to be looked at. */
static bool take_in(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    dxpu_control_device *other = c->t.slot_more[slot].other, *d = &c->t.slot[slot].device;
    if (!settle_begin(c, slot))
        return true;
    corei_event_slot(c, CORE_EVENT_SLOT_CHANGED, slot, "now %s %s", other->model, other->serial);
    bool moves = strcmp(d->model, other->model) != 0 || d->group != other->group;
    bool same = d->serial[0] && strcmp(d->serial, other->serial) == 0;
    dxpu_control_device now = *other; /* what it keeps, and has, is its own: M-90, M-155 */
    corei_copy_report(&now, d);
    now.data = other->data;
    memcpy(now.attributes, other->attributes, sizeof now.attributes);
    *d = now;
    corei_set_device(&c->t, slot);
    if (s->dirty && !same && d->state != DXPU_CONTROL_SLOT_WIPED) /* its data are not these */
        (void)pool_taint(c->t.pool, slot, s->epoch, true);
    else if (s->state == POOL_BROKEN &&
             (s->reason == POOL_WHY_DEVICE || s->reason == POOL_WHY_ABSENT) &&
             d->health == DXPU_CONTROL_HEALTH_GOOD)
        (void)pool_repair(c->t.pool, slot, POOL_WHY_NONE);
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
    if (!settle_commit(c, slot)) /* what stands there is still another one */
        return true;
    c->t.slot_more[slot].other = NULL;
    c->t.slot_more[slot].repair_epoch = 0;
    free(other);
    if (!moves || move_in_pool(c, slot))
        return false;
    (void)corei_reload(c);
    corei_look_at(c, corei_slot_unit(slot), c->mono_ms);
    return true;
}

/* Another device is in the slot. */
static bool settle_inventory(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const dxpu_control_device *other = c->t.slot_more[slot].other;
    if (!other)
        return false;
    if (s->lease != POOL_NONE || s->owner != POOL_NONE) {
        if (s->state == POOL_LEASED || s->state == POOL_RETAINED)
            break_slot(c, slot, POOL_WHY_DEVICE,
                       s->lease != POOL_NONE ? "another device is in the leased slot"
                                             : "another device is in the retained slot");
        return true; /* once no lease has the slot */
    }
    if (core_find_model(c, other->model) == CORE_NONE &&
        corei_models_used(&c->t) == COREI_MODELS_MAX) {
        if (s->state != POOL_BROKEN && s->state != POOL_QUARANTINED)
            break_slot(c, slot, POOL_WHY_DEVICE, "the pool has its maximum number of models");
        return true;
    }
    return take_in(c, slot);
}

/* The box has done what was ordered: the slot is wiped, or could not be; or there is more to wipe
   than was known.  What it says about a lease before the last one, of which it never learned, is no
   answer. */
static void settle_wipe(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const dxpu_control_device *d = &c->t.slot[slot].device;
    bool done = d->epoch_seen >= s->epoch &&
                (d->state == DXPU_CONTROL_SLOT_WIPED ||
                 (d->state == DXPU_CONTROL_SLOT_UNWIPED && c->t.slot_more[slot].wipe_told));
    if (c->t.work[corei_slot_unit(slot)].out)
        return;
    if (is_clean(s) && corei_has_data(d) && settle_begin(c, slot)) {
        (void)pool_taint(c->t.pool, slot, s->epoch, false);
        settle_end(c, slot);
    } else if (s->state == POOL_WIPING && done && !d->epoch && settle_begin(c, slot)) {
        bool wiped = d->state == DXPU_CONTROL_SLOT_WIPED;
        if (wiped)
            corei_event_slot(c, CORE_EVENT_SLOT_WIPED, slot, "and read back: %s",
                             pool_reason_text(s->reason));
        else
            corei_event_slot(
                c, CORE_EVENT_SLOT_QUARANTINED, slot,
                "its wipe failed or did not verify; see the box's messages, then repair it");
        (void)pool_wiped(c->t.pool, slot, wiped);
        c->t.slot[slot].repaired_empty = false;
        c->t.slot_more[slot].wipe_told = 0;
        settle_end(c, slot);
    }
}

/* Stores what the box reports of the slot's data. */
static void settle_data(core *c, uint32_t slot)
{
    if (!c->t.slot_more[slot].data_unsaved || !change_begin(c, slot))
        return;
    corei_mark_changed(c, COREI_SLOT, slot);
    if (corei_commit(c).code == CORE_OK)
        c->t.slot_more[slot].data_unsaved = false;
    else
        corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
}

/* Stores that the box has the lease that the store has, or keeps its data, and on which medium: a
   box may forget it. */
static void note_agreement(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    core_slot *box = &c->t.slot[slot];
    const dxpu_control_device *d = &box->device;
    corei_slot *more = &c->t.slot_more[slot];
    if (!s->epoch || d->epoch_seen != s->epoch || more->other || more->late ||
        (s->state != POOL_LEASED && s->state != POOL_RETAINED))
        return;
    more->agreed = true;
    bool known = box->served && (!d->medium || d->medium == box->medium);
    if ((!d->epoch && d->state != DXPU_CONTROL_SLOT_KEPT) || known || !change_begin(c, slot))
        return;
    box->served = true;
    box->medium = d->medium ? d->medium : box->medium;
    corei_mark_changed(c, COREI_SLOT, slot);
    if (corei_commit(c).code != CORE_OK)
        corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
}

static void settle_told(core *c, uint32_t slot)
{
    settle_data(c, slot);
    const pool_slot *s = &c->t.pool->slot[slot];
    const dxpu_control_device *d = &c->t.slot[slot].device;
    if (settle_foreign(c, slot) || settle_inventory(c, slot))
        return;
    if (is_unknown(c, slot)) {
        settle_unknown(c, slot);
        return;
    }
    bool wipes = d->health == DXPU_CONTROL_HEALTH_BROKEN && is_repaired(c, slot);
    if (d->health != DXPU_CONTROL_HEALTH_GOOD && !wipes) {
        bool none = d->health == DXPU_CONTROL_HEALTH_NONE;
        if (s->state != POOL_BROKEN && s->state != POOL_QUARANTINED)
            break_slot(c, slot, none ? POOL_WHY_ABSENT : POOL_WHY_DEVICE,
                       none ? "there is no device in it" : "its box reports it as broken");
    } else if (s->state == POOL_BROKEN &&
               (s->reason == POOL_WHY_BOX || s->reason == POOL_WHY_ABSENT)) {
        repair_slot(c, slot,
                    s->reason == POOL_WHY_BOX ? "its box is connected again"
                                              : "its device is there again");
        if (is_unknown(c, slot)) { /* which is about slots that work */
            settle_unknown(c, slot);
            return;
        }
    }
    note_agreement(c, slot);
    settle_wipe(c, slot);
}

/* -- What the host of a port says -- */

bool corei_port_foreign(const core *c, uint32_t port)
{
    const corei_tables *t = &c->t;
    const core_port *p = &t->port[port];
    uint64_t epoch = p->device.epoch;
    if (!epoch || (p->slot != CORE_NONE && t->pool->slot[p->slot].epoch == epoch))
        return false;
    bool before = epoch > c->stored_epoch && epoch <= c->first_epoch;
    if (epoch > t->pool->epoch || epoch <= t->foreign_epoch || before) {
        bool known = false; /* else its box may still come */
        for (uint32_t i = 0; i < t->pool->slots; i++) {
            const pool_slot *s = &t->pool->slot[i];
            if (s->epoch == epoch && s->reason == POOL_WHY_FOREIGN)
                return true;
            known = known || s->epoch == epoch;
        }
        return !known;
    }
    return false;
}

void corei_settle_port(core *c, uint32_t port)
{
    core_port *p = &c->t.port[port];
    bool foreign = corei_port_foreign(c, port);
    if (!foreign || p->foreign) {
        p->foreign = foreign;
        return;
    }
    if (corei_begin(c).code != CORE_OK) {
        corei_look_at(c, corei_port_unit(c, port), corei_again_ms(c));
        return;
    }
    corei_event_node(c, CORE_EVENT_PORT_FOREIGN, p->node,
                     "slot %u has a lease that the store does not know (epoch %llu): it is left "
                     "until its box's slot is repaired",
                     p->device.number, (unsigned long long)p->device.epoch);
    corei_see_epoch(c, p->device.epoch);
    bool told = corei_commit(c).code == CORE_OK;
    c->t.port[port].foreign = told;
    if (!told)
        corei_look_at(c, corei_port_unit(c, port), corei_again_ms(c));
}

/* -- What none reports -- */

bool corei_node_given_up(const core *c, uint32_t node)
{
    uint64_t gone = c->t.node_more[node].gone_ms;
    return !c->t.node[node].connected && gone && c->mono_ms >= gone;
}

/* Its box is given up.  While its host receives TLPs from it, the box is gone for the manager
   alone; while its host has not reported, that is unknown. */
static void settle_silent(core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    const pool_slot *s = &t->pool->slot[slot];
    uint32_t port = t->slot_more[slot].port;
    if (s->state != POOL_LEASED || port == CORE_NONE || t->port[port].slot != slot)
        return;
    const core_port *p = &t->port[port];
    bool up = p->device.epoch == s->epoch && p->device.state == DXPU_CONTROL_SLOT_UP;
    if (t->node[p->node].connected && !up)
        break_slot(c, slot, POOL_WHY_BOX, "its box is unreachable, from its host too");
}

void corei_hide_silent(corei_tables *t, uint32_t node)
{
    uint32_t first = t->node[node].first, end = first + t->node[node].total;
    for (uint32_t i = first; i < end && !t->node[node].connected; i++) {
        unsigned state = t->pool->slot[i].state;
        if (state != POOL_FREE && state != POOL_SPARE)
            continue;
        t->slot_more[i].silent = true;
        (void)pool_break(t->pool, i, POOL_WHY_BOX);
    }
}

void corei_show_silent(corei_tables *t, uint32_t slot)
{
    if (t->slot_more[slot].silent)
        (void)pool_repair(t->pool, slot, POOL_WHY_NONE);
    t->slot_more[slot].silent = false;
}

/* Breaks the slots without a lease of a box that is given up, so that none is lent, and repairs
   them when it is back.  All in one commit. */
void corei_settle_free(core *c, uint32_t node)
{
    const corei_tables *t = &c->t;
    uint32_t first = t->node[node].first, end = first + t->node[node].total;
    bool gone = corei_node_given_up(c, node);
    for (uint32_t i = first; i < end && t->node[node].connected; i++)
        corei_show_silent(&c->t, i);
    if ((!gone && !t->node[node].connected) || first == end || !change_begin(c, first))
        return;
    for (uint32_t i = first; i < end; i++) {
        const pool_slot *s = &t->pool->slot[i];
        const dxpu_control_device *d = &t->slot[i].device;
        if (gone && (s->state == POOL_FREE || s->state == POOL_SPARE || t->slot_more[i].silent)) {
            t->slot_more[i].silent = false;
            corei_event_slot(c, CORE_EVENT_SLOT_BROKEN, i, "its box is unreachable");
            (void)pool_break(t->pool, i, POOL_WHY_BOX);
        } else if (!gone && s->state == POOL_BROKEN && s->reason == POOL_WHY_BOX &&
                   s->lease == POOL_NONE && d->health == DXPU_CONTROL_HEALTH_GOOD) {
            corei_event_slot(c, CORE_EVENT_SLOT_REPAIRED, i, "its box is connected again");
            (void)pool_repair(t->pool, i, POOL_WHY_NONE);
        } else {
            continue;
        }
        corei_mark_changed(c, COREI_SLOT, i);
    }
    if (corei_commit(c).code != CORE_OK)
        corei_look_at(c, corei_node_unit(c, node), corei_again_ms(c));
}

void corei_settle_slot(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    uint32_t node = c->t.slot[slot].node;
    c->t.slot_more[slot].late = false;
    if (c->t.node[node].connected)
        settle_told(c, slot);
    else if (corei_node_given_up(c, node))
        settle_silent(c, slot);
    s = &c->t.pool->slot[slot];
    bool lost = s->state == POOL_BROKEN || s->state == POOL_QUARANTINED;
    if (lost && goes_on(c, slot)) /* while they report it */
        corei_look_at(c, corei_slot_unit(slot), c->mono_ms + COREI_REPLACE_MS);
    if (lost && is_replaced(c, slot) && s->reason != POOL_WHY_NONE && settle_begin(c, slot)) {
        replace_broken(c, slot, (pool_reason)s->reason);
        if (s->lease == POOL_NONE)
            settle_end(c, slot);
    }
    if (c->t.pool->slot[slot].state == POOL_LEASED)
        corei_reach_slot(c, slot);
    if (corei_retain_due(c, slot)) /* it works, as far as its box has said: M-97 */
        return;
    s = &c->t.pool->slot[slot];
    if (s->lease != POOL_NONE && c->t.lease[s->lease].ended)
        corei_retain_lease(c, s->lease);
    else if (s->lease != POOL_NONE)
        corei_settle_lease(c, s->lease);
}

/* -- Leases -- */

/* Report when it came up, or no longer is. */
void corei_settle_lease(core *c, uint32_t lease)
{
    corei_tables *t = &c->t;
    uint64_t number = pool_lease_number(t->pool, lease);
    const pool_lease *l = pool_find_lease(t->pool, number);
    if (!l || l->host == POOL_NONE || !t->node[t->host_node[l->host]].connected)
        return;
    bool first_time = false;
    for (uint32_t i = l->first; i != POOL_NONE; i = t->pool->slot[i].next)
        if (core_slot_phase(c, i) == CORE_UP) {
            t->slot_more[i].up_epoch = t->pool->slot[i].epoch;
            first_time = first_time || !t->slot[i].served;
        }
    core_lease_state now = core_lease_now(c, number);
    bool back = now == CORE_LEASE_ACTIVE && t->lease[lease].kept,
         same = now == t->lease_seen[lease];
    if ((same && !back && !first_time) || !change_begin(c, l->first))
        return;
    for (uint32_t i = l->first; first_time && i != POOL_NONE; i = t->pool->slot[i].next)
        if (core_slot_phase(c, i) == CORE_UP) {
            t->slot[i].served = true;
            corei_mark_changed(c, COREI_SLOT, i);
        }
    if (now == CORE_LEASE_ACTIVE && !same)
        corei_event_lease(c, CORE_EVENT_LEASE_UP, number, "all of its slots are up");
    else if (now == CORE_LEASE_DEGRADED && !same)
        corei_event_lease(c, CORE_EVENT_LEASE_DEGRADED, number, "not all of its slots are up");
    uint32_t first = l->first;
    if (now == CORE_LEASE_ACTIVE && (back || !t->lease[lease].was_up)) {
        t->lease[lease].was_up = true;
        t->lease[lease].kept = false;
        corei_mark_changed(c, COREI_LEASE, lease);
    }
    if (corei_commit(c).code == CORE_OK)
        t->lease_seen[lease] = (uint8_t)now;
    else
        corei_look_at(c, corei_slot_unit(first), corei_again_ms(c));
}

/* The box has seen a later lease than the pool, or accepts no lease any more. */
void corei_bind_refused(core *c, uint32_t slot, uint64_t epoch, unsigned code)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    bool goes_on = c->t.slot[slot].device.epoch && !other_peer(c, slot); /* an older box: M-61 */
    if (s->epoch != epoch || s->state != POOL_LEASED ||
        (code != DXPU_CONTROL_CODE_EPOCH && (code != DXPU_CONTROL_CODE_DRAINED || goes_on)) ||
        !settle_begin(c, slot))
        return;
    if (code == DXPU_CONTROL_CODE_EPOCH) {
        corei_event_slot(c, CORE_EVENT_SLOT_QUARANTINED, slot,
                         "its box has seen a later lease than the store; repair it when it is "
                         "known why");
        (void)pool_taint(c->t.pool, slot, s->epoch, true);
        replace_broken(c, slot, POOL_WHY_FOREIGN);
    } else {
        replace_broken(c, slot, POOL_WHY_DRAIN);
    }
    settle_end(c, slot);
}
