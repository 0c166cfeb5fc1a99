/* core_orders.c - orders to proxies, until they report what the tables have; time
   SPDX-License-Identifier: MIT

   An order names the state to reach, so that giving it twice does no harm.  Each is derived from
   the tables when it is asked for: none is kept, so none can be out of date. */
#include <stdio.h>
#include <string.h>

#include "core_internal.h"

/* -- Boxes -- */

/* Does a connected host still have the slot under this epoch?  It may for a while, so that its
   guest sees the device removed rather than failing. */
static bool host_has(core *c, uint32_t slot, uint64_t epoch)
{
    corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    corei_slot *more = &t->slot_more[slot];
    uint32_t port = more->port;
    if (port == CORE_NONE) { /* before this program started */
        uint32_t host = core_find_node(c, d->peer_node);
        if (host == CORE_NONE || t->node[host].role != DXPU_CONTROL_ROLE_HOST || !d->peer_slot ||
            d->peer_slot > t->node[host].total)
            return false;
        port = t->node[host].first + d->peer_slot - 1u;
        t->port_more[port].before = slot;
    }
    const core_port *p = &t->port[port];
    if (!t->node[p->node].connected || p->device.epoch != epoch)
        return false;
    if (!more->yield_ms)
        more->yield_ms = c->mono_ms + COREI_YIELD_MS;
    uint64_t until_ms =
        more->yield_ms + (p->device.state == DXPU_CONTROL_SLOT_CLOSING ? COREI_LEAVE_MS : 0);
    if (c->mono_ms >= until_ms)
        return false;
    corei_look_at(c, corei_slot_unit(slot), until_ms);
    return true;
}

/* A box that was started since its wipe was ordered waits for the order (M-105). */
static bool is_wiping(const core *c, uint32_t slot)
{
    return c->t.slot[slot].device.state == DXPU_CONTROL_SLOT_WIPING &&
           c->t.slot_more[slot].wipe_told == c->t.node[c->t.slot[slot].node].instance;
}

/* Unbinds the lease that the box has; where it has none, under the highest epoch that is known. A
   lease that the store does not know is left as it is, also while that could not be stored. */
static bool order_unbind(core *c, uint32_t slot, bool keep, dxpu_control *m)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    uint64_t epoch = c->t.pool->slot[slot].epoch;
    if (d->epoch)
        epoch = d->epoch;
    else if (d->epoch_seen > epoch)
        epoch = d->epoch_seen;
    if (!epoch || epoch > c->t.pool->slot[slot].epoch || is_wiping(c, slot) ||
        (d->epoch && host_has(c, slot, d->epoch)))
        return false;
    m->type = DXPU_CONTROL_UNBIND;
    m->u.unbind.slot = d->number;
    m->u.unbind.keep = keep;
    m->u.unbind.epoch = epoch;
    return true;
}

/* M-82 */
static void name_key(const core_node *n, bool *keyed, uint8_t key[DXPU_CONTROL_KEY_BYTES])
{
    *keyed = n->sealed;
    if (n->sealed)
        memcpy(key, n->key, sizeof n->key);
}

static void renew_kept(core *c, uint32_t slot)
{
    corei_slot *more = &c->t.slot_more[slot];
    bool began = corei_begin(c).code == CORE_OK;
    if (began) {
        bool up = more->up_epoch == c->t.pool->slot[slot].epoch;
        (void)pool_renew(c->t.pool, slot);
        if (up)
            more->up_epoch = c->t.pool->slot[slot].epoch;
        corei_mark_changed(c, COREI_SLOT, slot);
        corei_touch_slot(c, slot);
    }
    if (!began || corei_commit(c).code != CORE_OK)
        corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
}

/* Parks the lease (M-179): its box keeps the data, so it lost its host after the copy was made.
   The host in the store may be another tenant's by now. */
static void park_kept(core *c, uint32_t slot)
{
    uint32_t index = c->t.pool->slot[slot].lease, of[POOL_COUNT_MAX];
    uint64_t lease = pool_lease_number(c->t.pool, index);
    bool began = corei_begin(c).code == CORE_OK;
    if (began) {
        unsigned n = pool_lease_slots(c->t.pool, lease, of);
        corei_event_lease(c, CORE_EVENT_LEASE_PARKED, lease,
                          "its box keeps its data: it was parked, or ended, since this copy of the "
                          "store was made");
        corei_leave_ports(c, lease);
        (void)pool_park(c->t.pool, lease);
        c->t.lease[index].kept = true;
        c->t.lease_seen[index] = CORE_LEASE_PARKED;
        corei_mark_changed(c, COREI_LEASE, index);
        for (unsigned i = 0; i < n; i++)
            corei_mark_changed(c, COREI_SLOT, of[i]);
    }
    if (!began || corei_commit(c).code != CORE_OK)
        corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
}

/* Its box is given up, and the lease's host reports that it does not have the lease. */
static bool is_lost(const core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    uint32_t port = t->slot_more[slot].port;
    const core_port *p = port == CORE_NONE ? NULL : &t->port[port];
    return p && corei_node_given_up(c, t->slot[slot].node) && t->node[p->node].connected &&
           p->reported && p->device.epoch != t->pool->slot[slot].epoch;
}

/* If another slot of the lease was lent to its host when this run began, the lease is that host's
   still, and gets a new epoch; else it is parked (M-179).  This waits while that is unknown of one
   of its slots. */
static void settle_kept(core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    uint32_t lease = t->pool->slot[slot].lease;
    bool lent = false, known = true;
    for (uint32_t i = t->pool->lease[lease].first; i != POOL_NONE; i = t->pool->slot[i].next) {
        const core_slot *s = &t->slot[i];
        bool reported = t->node[s->node].connected && s->reported && !t->slot_more[i].late;
        known = known && (reported || is_lost(c, i)) && t->pool->slot[i].state != POOL_QUARANTINED;
        lent = lent || t->slot_more[i].lent == pool_lease_number(t->pool, lease);
    }
    if (!known)
        corei_look_at(c, corei_slot_unit(slot), c->mono_ms + COREI_REPLACE_MS);
    else if (lent)
        renew_kept(c, slot);
    else
        park_kept(c, slot);
}

static bool order_bind(const core *c, uint32_t slot, dxpu_control *m)
{
    const corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t port = t->slot_more[slot].port;
    if (corei_is_bound(c, slot) || is_wiping(c, slot))
        return false;
    if (port == CORE_NONE || t->port[port].slot != slot)
        return false;
    m->type = DXPU_CONTROL_BIND;
    m->u.bind.slot = d->number;
    m->u.bind.host_node = t->node[t->port[port].node].number;
    m->u.bind.host_slot = t->port[port].device.number;
    m->u.bind.epoch = t->pool->slot[slot].epoch;
    name_key(&t->node[t->port[port].node], &m->u.bind.keyed, m->u.bind.key);
    corei_name_lease(c, slot, &m->u.bind.lease, &m->u.bind.tenant);
    return true;
}

/* Orders to keep what the box has for a lease without a host.  A box that lost its state is ordered
   that, too, if the medium is known to be the lease's. */
static bool order_keep(core *c, uint32_t slot, dxpu_control *m)
{
    const core_slot *s = &c->t.slot[slot];
    bool own = s->medium && s->medium == s->device.medium && corei_is_own(c, slot);
    return (s->device.epoch || own) && order_unbind(c, slot, true, m);
}

/* M-182.  Ordered before the lease is bound, so that nothing is direct meanwhile, and also for a
   slot that is broken or quarantined but lent.  Where the box may have another lease there (M-174),
   this one's tenant allows nothing. */
static bool order_direct(const core *c, uint32_t slot, dxpu_control *m)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    uint32_t lease = s->lease;
    unsigned told = c->t.slot_more[slot].direct;
    bool on = corei_is_direct(c, slot);
    bool lent = lease != POOL_NONE && c->t.pool->lease[lease].host != POOL_NONE;
    if (!lent && (on || !c->t.slot[slot].device.epoch))
        return false;
    if (on && s->state == POOL_QUARANTINED && s->reason == POOL_WHY_FOREIGN)
        return false;
    if (told == COREI_DIRECT_NOT || told == (on ? COREI_DIRECT_ON : COREI_DIRECT_OFF))
        return false;
    m->type = DXPU_CONTROL_DIRECT;
    m->u.direct.slot = c->t.slot[slot].device.number;
    m->u.direct.on = on;
    return true;
}

static bool order_slot(core *c, uint32_t slot, dxpu_control *m)
{
    const corei_tables *t = &c->t;
    const pool_slot *s = &t->pool->slot[slot];
    const dxpu_control_device *d = &t->slot[slot].device;
    if (t->slot_more[slot].late)
        return false;
    if (t->slot_more[slot].reset_epoch != d->epoch) /* whom it was for is gone */
        c->t.slot_more[slot].reset = false;
    if (t->slot_more[slot].reset) {
        m->type = DXPU_CONTROL_RESET;
        m->u.reset.slot = d->number;
        m->u.reset.epoch = d->epoch;
        return true;
    }
    if (order_direct(c, slot, m))
        return true;
    switch (s->state) {
    case POOL_LEASED:
        if (t->pool->lease[s->lease].host == POOL_NONE)
            return order_keep(c, slot, m);
        if (!corei_is_kept(c, slot))
            return order_bind(c, slot, m);
        settle_kept(c, slot);
        return false;
    case POOL_BROKEN:
        if (s->lease != POOL_NONE && t->pool->lease[s->lease].host != POOL_NONE)
            return false;
        return d->epoch && order_unbind(c, slot, true, m);
    case POOL_RETAINED:
        return order_keep(c, slot, m);
    case POOL_WIPING:
        if (corei_may_wipe(c, slot))
            return order_unbind(c, slot, false, m);
        corei_look_at(c, corei_slot_unit(slot), c->mono_ms); /* it is quarantined */
        return false;
    default:
        return false;
    }
}

/* -- Hosts -- */

/* M-73 */
static void further(dxpu_control_address *a, uint16_t port_offset)
{
    a->port = (uint16_t)(a->port + port_offset); /* in range: check_register() saw to it */
}

static bool order_attach(core *c, uint32_t port, dxpu_control *m)
{
    const corei_tables *t = &c->t;
    const core_port *p = &t->port[port];
    const core_slot *s = &t->slot[p->slot];
    const core_node *box = &t->node[s->node];
    const pool_slot *ps = &t->pool->slot[p->slot];
    if (ps->state == POOL_LEASED && !corei_may_offer(c, p->slot)) {
        corei_renew(c, port);
        return false;
    }
    /* The box comes first: it refuses hosts of which it was not notified. */
    if (ps->state != POOL_LEASED || !corei_is_bound(c, p->slot) || !box->paths ||
        t->work[corei_slot_unit(p->slot)].out)
        return false;
    m->type = DXPU_CONTROL_ATTACH;
    m->u.attach.slot = p->device.number;
    m->u.attach.box_slot = s->device.number;
    m->u.attach.epoch = ps->epoch;
    m->u.attach.box = box->path[0];
    m->u.attach.more = (uint8_t)(box->paths - 1);
    memcpy(m->u.attach.path, box->path + 1, (box->paths - 1u) * sizeof box->path[0]);
    c->t.slot_more[p->slot].offered_epoch = ps->epoch;
    c->t.slot_more[p->slot].offered_to = t->node[p->node].instance;
    name_key(box, &m->u.attach.keyed, m->u.attach.key);
    further(&m->u.attach.box, s->device.port_offset);
    for (unsigned i = 0; i < m->u.attach.more; i++)
        further(&m->u.attach.path[i], s->device.port_offset);
    return true;
}

static bool order_port(core *c, uint32_t port, dxpu_control *m)
{
    const core_port *p = &c->t.port[port];
    const dxpu_control_device *d = &p->device;
    if (d->state == DXPU_CONTROL_SLOT_EMPTY)
        return p->slot != CORE_NONE && order_attach(c, port, m);
    if (corei_port_foreign(c, port))
        return false;
    bool lost = c->t.port_more[port].moved && d->state == DXPU_CONTROL_SLOT_DIALING;
    if (d->state == DXPU_CONTROL_SLOT_CLOSING ||
        (p->slot != CORE_NONE && d->epoch == c->t.pool->slot[p->slot].epoch && !lost))
        return false;
    m->type = DXPU_CONTROL_DETACH;
    m->u.detach.slot = d->number;
    m->u.detach.reason = DXPU_REASON_DETACH;
    m->u.detach.epoch = d->epoch;
    return true;
}

/* -- Orders -- */

static bool order_node(const core *c, uint32_t node, dxpu_control *m)
{
    const core_node *n = &c->t.node[node];
    if (n->role != DXPU_CONTROL_ROLE_BOX || c->t.node_more[node].drain_told == n->draining)
        return false;
    m->type = DXPU_CONTROL_DRAIN;
    m->u.drain.slot = 0;
    m->u.drain.on = n->draining;
    return true;
}

/* What a unit is, and whose. */
typedef struct unit_kind {
    corei_kind kind; /* COREI_SLOT, COREI_NODE; COREI_LEASE for a port */
    uint32_t index, node;
} unit_kind;

static unit_kind unit_of(const core *c, uint32_t unit)
{
    uint32_t ports = corei_port_unit(c, 0), nodes = corei_node_unit(c, 0);
    if (unit < ports)
        return (unit_kind){ COREI_SLOT, unit, c->t.slot[unit].node };
    if (unit < nodes)
        return (unit_kind){ COREI_LEASE, unit - ports, c->t.port[unit - ports].node };
    return (unit_kind){ COREI_NODE, unit - nodes, unit - nodes };
}

uint64_t corei_order_epoch(const dxpu_control *m)
{
    switch (m->type) {
    case DXPU_CONTROL_BIND:
        return m->u.bind.epoch;
    case DXPU_CONTROL_UNBIND:
        return m->u.unbind.epoch;
    case DXPU_CONTROL_ATTACH:
        return m->u.attach.epoch;
    case DXPU_CONTROL_DETACH:
        return m->u.detach.epoch;
    case DXPU_CONTROL_RESET:
        return m->u.reset.epoch;
    case DXPU_CONTROL_DIRECT:
        return m->u.direct.on;
    default:
        return m->u.drain.on;
    }
}

/* Returns its type and intent: an unbind that keeps is another order than one that wipes. */
static uint16_t order_kind(const dxpu_control *m)
{
    enum { KEEP = 0x8000 };
    bool keep = m->type == DXPU_CONTROL_UNBIND && m->u.unbind.keep;
    return (uint16_t)(m->type | (keep ? KEEP : 0));
}

/* May the order be given now?  One that had no effect is repeated after longer and longer
   pauses. */
static bool order_due(core *c, uint32_t unit, const dxpu_control *m)
{
    corei_work *w = &c->t.work[unit];
    if (w->kind != order_kind(m) || w->epoch != corei_order_epoch(m)) {
        w->kind = order_kind(m);
        w->epoch = corei_order_epoch(m);
        w->tries = 0;
        w->refused = false;
    } else if (c->mono_ms < w->not_before_ms) {
        corei_look_at(c, unit, w->not_before_ms);
        return false;
    }
    uint64_t pause = (uint64_t)COREI_RETRY_MS << (w->tries < 6 ? w->tries : 6);
    w->not_before_ms = c->mono_ms + (pause < COREI_RETRY_MAX_MS ? pause : COREI_RETRY_MAX_MS);
    w->tries = (uint8_t)(w->tries < 6 ? w->tries + 1 : 6);
    w->out = true;
    return true;
}

bool core_next_order(core *c, core_order *out)
{
    corei_tables *t = &c->t;
    while (t->queued && !c->dead) {
        uint32_t unit = t->queue[t->queue_first];
        t->queue_first = (t->queue_first + 1) % t->units;
        t->queued--;
        t->work[unit].queued = false;
        unit_kind k = unit_of(c, unit);
        if (k.node >= t->nodes || !t->node[k.node].connected || t->work[unit].out)
            continue;
        memset(out, 0, sizeof *out);
        out->node = t->node[k.node].number;
        bool any = k.kind == COREI_SLOT   ? order_slot(c, k.index, &out->m)
                   : k.kind == COREI_NODE ? order_node(c, k.index, &out->m)
                                          : order_port(c, k.index, &out->m);
        if (!any || !order_due(c, unit, &out->m))
            continue;
        if (out->m.type == DXPU_CONTROL_ATTACH)
            t->port_more[k.index].moved = false;
        if (out->m.type == DXPU_CONTROL_BIND) {
            t->slot_more[k.index].asked_ms = c->mono_ms;
            corei_look_at(c, unit, c->mono_ms + c->set.reach_ms);
        }
        if (k.kind == COREI_NODE) /* until it answers */
            t->node_more[k.index].drain_told = COREI_NO_REPORT;
        return true;
    }
    return false;
}

/* -- Answers -- */

uint16_t corei_order_slot(const dxpu_control *m)
{
    switch (m->type) {
    case DXPU_CONTROL_BIND:
        return m->u.bind.slot;
    case DXPU_CONTROL_UNBIND:
        return m->u.unbind.slot;
    case DXPU_CONTROL_ATTACH:
        return m->u.attach.slot;
    case DXPU_CONTROL_DETACH:
        return m->u.detach.slot;
    case DXPU_CONTROL_RESET:
        return m->u.reset.slot;
    case DXPU_CONTROL_DIRECT:
        return m->u.direct.slot;
    default:
        return 0;
    }
}

/* Returns the unit that an order was for; CORE_NONE: it no longer exists. */
static uint32_t order_unit(const core *c, const core_order *o)
{
    uint32_t node = core_find_node(c, o->node);
    if (node == CORE_NONE)
        return CORE_NONE;
    const core_node *n = &c->t.node[node];
    uint16_t number = corei_order_slot(&o->m);
    if (!number)
        return corei_node_unit(c, node);
    if (number > n->total)
        return CORE_NONE;
    uint32_t at = n->first + number - 1;
    return n->role == DXPU_CONTROL_ROLE_BOX ? corei_slot_unit(at) : corei_port_unit(c, at);
}

/* The proxy has carried out the order: its answer is newer than its last register. */
static void order_done(core *c, unit_kind k, const core_order *o, const dxpu_control_done *done)
{
    corei_tables *t = &c->t;
    if (k.kind == COREI_NODE) {
        t->node_more[k.index].drain_told = o->m.u.drain.on;
        return;
    }
    if (o->m.type == DXPU_CONTROL_DIRECT) {
        corei_direct_done(c, k.index, o->m.u.direct.on);
        return;
    }
    dxpu_control_device *d =
        k.kind == COREI_SLOT ? &t->slot[k.index].device : &t->port[k.index].device;
    if (o->m.type == DXPU_CONTROL_RESET)
        t->slot_more[k.index].reset = false;
    if (o->m.type == DXPU_CONTROL_BIND) /* refusals count that are in a row */
        t->slot_more[k.index].refusal.count = 0;
    if (o->m.type == DXPU_CONTROL_ATTACH)
        t->port_more[k.index].refusal.count = 0;
    if (!done)
        return;
    d->state = done->state;
    d->epoch = done->state == DXPU_CONTROL_SLOT_EMPTY ? 0 : done->epoch;
    if (d->epoch > d->epoch_seen)
        d->epoch_seen = d->epoch;
    if (k.kind == COREI_LEASE)
        corei_note_dial(c, k.index);
    if (o->m.type == DXPU_CONTROL_BIND) {
        d->peer_node = o->m.u.bind.host_node;
        d->peer_slot = o->m.u.bind.host_slot;
    }
    if (o->m.type == DXPU_CONTROL_UNBIND) {
        if (o->m.u.unbind.epoch > d->epoch_seen)
            d->epoch_seen = o->m.u.unbind.epoch;
        t->slot_more[k.index].yield_ms = 0;
        t->slot_more[k.index].wipe_told =
            o->m.u.unbind.keep ? 0 : t->node[t->slot[k.index].node].instance;
    }
    if (o->m.type == DXPU_CONTROL_BIND || o->m.type == DXPU_CONTROL_UNBIND)
        corei_binds(c, k.index);
}

/* Counts a refusal that may mean that a box does not work, or that a host cannot reach it.  Those
   that pass, or follow from an operator's decision, do not count. */
static void note_refusal(core *c, unit_kind k, const core_order *o, unsigned code)
{
    bool passes = code == DXPU_CONTROL_CODE_BUSY || code == DXPU_CONTROL_CODE_CLOSING ||
                  code == DXPU_CONTROL_CODE_STOPPING || code == DXPU_CONTROL_CODE_TWICE;
    bool decided = code == DXPU_CONTROL_CODE_EPOCH || code == DXPU_CONTROL_CODE_DRAINED;
    if (o->m.type == DXPU_CONTROL_UNBIND && code == DXPU_CONTROL_CODE_STATE)
        corei_binds_not(c, k.index);
    if (passes || decided)
        return;
    if (o->m.type == DXPU_CONTROL_BIND)
        corei_refused(&c->t.slot_more[k.index].refusal, o->m.u.bind.epoch, code);
    if (o->m.type == DXPU_CONTROL_ATTACH)
        corei_refused(&c->t.port_more[k.index].refusal, o->m.u.attach.epoch, code);
}

/* A box that has seen a later lease than the store is asked no more.  One that is drained gives its
   slot back.  The others are asked again. */
static void order_refused(core *c, uint32_t unit, unit_kind k, const core_order *o, unsigned code)
{
    corei_tables *t = &c->t;
    corei_work *w = &t->work[unit];
    if (o->m.type == DXPU_CONTROL_RESET)
        t->slot_more[k.index].reset = false;
    if (o->m.type == DXPU_CONTROL_DETACH && code == DXPU_CONTROL_CODE_EMPTY) {
        t->port[k.index].device.state = DXPU_CONTROL_SLOT_EMPTY;
        t->port[k.index].device.epoch = 0;
        return;
    }
    if (o->m.type == DXPU_CONTROL_DIRECT && code == DXPU_CONTROL_CODE_TYPE)
        corei_direct_unknown(c, k.index);
    corei_party *party = corei_party_of(c, k.node);
    if (!w->refused && code != DXPU_CONTROL_CODE_CLOSING &&
        corei_party_may(&party->change_ms, &party->changes, COREI_CHANGES + c->t.node[k.node].total,
                        c->mono_ms) &&
        corei_begin(c).code == CORE_OK) {
        const char *name = dxpu_control_type_name(o->m.type);
        w->refused = true;
        party->changes++;
        if (k.kind == COREI_SLOT)
            corei_event_slot(c, CORE_EVENT_ORDER_REFUSED, k.index, "%s: %s", name,
                             dxpu_control_code_name(code));
        else
            corei_event_node(c, CORE_EVENT_ORDER_REFUSED, k.node, "%s of slot %u: %s", name,
                             corei_order_slot(&o->m), dxpu_control_code_name(code));
        (void)corei_commit(c);
    }
    note_refusal(c, k, o, code);
    if (o->m.type == DXPU_CONTROL_BIND)
        corei_bind_refused(c, k.index, o->m.u.bind.epoch, code);
}

bool core_answered(core *c, const core_order *o, unsigned code, const dxpu_control_done *done)
{
    uint32_t unit = order_unit(c, o);
    if (done && done->epoch > corei_epoch_told_max(c))
        return false;
    if (unit == CORE_NONE || !c->t.work[unit].out)
        return true;
    unit_kind k = unit_of(c, unit);
    c->t.work[unit].out = false;
    if (code == DXPU_CONTROL_CODE_NONE)
        order_done(c, k, o, done);
    else
        order_refused(c, unit, k, o, code);
    corei_touch(c, unit);
    if (k.kind == COREI_SLOT) {
        corei_touch_slot(c, k.index);
        corei_settle_slot(c, k.index);
    } else if (k.kind == COREI_LEASE) {
        const core_port *p = &c->t.port[k.index];
        if (c->t.port_more[k.index].before != CORE_NONE)
            corei_touch(c, corei_slot_unit(c->t.port_more[k.index].before));
        if (p->slot != CORE_NONE)
            corei_settle_slot(c, p->slot);
    }
    return true;
}

void core_unanswered(core *c, const core_order *o, uint64_t ms)
{
    uint32_t slot = core_find_slot(c, o->node, corei_order_slot(&o->m));
    corei_party *party = slot != CORE_NONE ? corei_party_of(c, c->t.slot[slot].node) : NULL;
    if (!party || !corei_party_may(&party->alarm_ms, &party->alarms, COREI_ALARMS, c->mono_ms))
        return;
    party->alarms++;
    if (corei_begin(c).code != CORE_OK)
        return;
    corei_event_slot(c, CORE_EVENT_ALARM, slot,
                     "its box is connected, but has not done %s for %llu s: does the disk with its "
                     "--state hang?",
                     dxpu_control_type_name(o->m.type), (unsigned long long)(ms / 1000));
    (void)corei_commit(c);
}

/* -- Time -- */

static void box_due(core *c, uint32_t node)
{
    corei_settle_free(c, node);
    uint32_t first = c->t.node[node].first, end = first + c->t.node[node].total;
    if (corei_node_given_up(c, node))
        for (uint32_t i = first; i < end; i++)
            corei_settle_slot(c, i);
}

static void unit_due(core *c, uint32_t unit)
{
    unit_kind k = unit_of(c, unit);
    if (k.node >= c->t.nodes)
        return;
    corei_touch(c, unit);
    if (k.kind == COREI_SLOT) {
        corei_touch_slot(c, k.index);
        corei_settle_slot(c, k.index);
    } else if (k.kind == COREI_LEASE) {
        corei_settle_port(c, k.index);
        if (c->t.port[k.index].slot != CORE_NONE)
            corei_settle_slot(c, c->t.port[k.index].slot);
    } else if (k.kind == COREI_NODE) {
        corei_save_node(c, k.index);
        if (c->t.node[k.index].role == DXPU_CONTROL_ROLE_BOX)
            box_due(c, k.index);
    }
}

/* The store failed: does it work again? */
static void try_store(core *c)
{
    if (corei_begin(c).code != CORE_OK)
        return;
    corei_mark_changed(c, COREI_META, 0);
    (void)corei_commit(c);
}

/* Its data are kept for a while, when it has any. */
static bool expire_one(core *c)
{
    uint64_t lease = pool_lease_number(c->t.pool, c->t.expiry.at[0]);
    if (corei_begin(c).code != CORE_OK)
        return false;
    if (corei_lease_keeps_data(c, lease))
        corei_retire(c, lease, CORE_EVENT_LEASE_EXPIRED, "it has expired");
    else
        corei_end_lease(c, lease, CORE_EVENT_LEASE_EXPIRED, POOL_WHY_RELEASE);
    return corei_commit(c).code == CORE_OK;
}

void core_tick(core *c)
{
    if (c->dead || c->mono_ms < c->refuse_until_ms)
        return;
    if (c->failed)
        try_store(c);
    corei_clock_tell(c);
    corei_reach_tick(c);
    corei_look_at_shares(c);
    while (!c->held && corei_heap_due(&c->t.expiry) <= c->unix_ms)
        if (!expire_one(c))
            break; /* the rest needs no store, or will find out for itself */
    while (corei_heap_due(&c->t.timers) <= c->mono_ms) {
        uint32_t unit = c->t.timers.at[0];
        corei_heap_remove(&c->t.timers, unit);
        unit_due(c, unit);
        if (c->mono_ms < c->refuse_until_ms)
            return;
    }
    if (c->mono_ms >= c->save_ms)
        corei_retain_save(c);
}

uint64_t core_next_ms(const core *c)
{
    uint64_t timer = corei_heap_due(&c->t.timers), day = corei_heap_due(&c->t.expiry), due;
    if (c->dead)
        return UINT64_MAX;
    if (c->held)
        day = UINT64_MAX;
    if (day != UINT64_MAX)
        day = day <= c->unix_ms ? c->mono_ms : c->mono_ms + (day - c->unix_ms);
    due = timer < day ? timer : day;
    due = c->save_ms < due ? c->save_ms : due;
    if (c->held != c->held_told)
        due = c->mono_ms;
    uint64_t doubt = corei_reach_next_ms(c);
    due = doubt < due ? doubt : due;
    if (c->failed)
        return c->refuse_until_ms;
    return due;
}
