/* core_claims.h - invariants of the manager's core under any input
   SPDX-License-Identifier: MIT */
#ifndef CORE_CLAIMS_H_INCLUDED
#define CORE_CLAIMS_H_INCLUDED

#include "core_rig.h"

/* What is kept for a lease is dirty, and its wipe not decided; what is not lent,
   and may be, is clean; and the lease knows of all that is kept for it. */
static void check_owners(const pool *p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->slots; i++) {
        const pool_slot *s = &p->slot[i];
        bool lendable = s->state == POOL_FREE || s->state == POOL_SPARE || s->state == POOL_DRAINED;
        must(!lendable || (!s->dirty && s->lease == POOL_NONE));
        must((s->owner != POOL_NONE) >= (s->state == POOL_RETAINED));
        if (s->owner == POOL_NONE)
            continue;
        const pool_lease *l = &p->lease[s->owner];
        must(s->lease == POOL_NONE && s->dirty && !s->wipe && !lendable);
        must(s->state != POOL_WIPING && s->state != POOL_LEASED);
        must(l->count && s->place < l->count && l->model == s->model);
        kept++;
    }
    for (uint32_t i = 0; i < p->limits.leases; i++) {
        const pool_lease *l = &p->lease[i];
        uint32_t of = 0;
        if (!l->count)
            continue;
        for (uint32_t s = l->retained; s != POOL_NONE; s = p->slot[s].next, of++)
            must(p->slot[s].owner == i && of < p->slots);
        must(of == l->retained_count && of <= kept);
        kept -= of;
    }
    must(!kept);
}

/* Every slot of a lease is in that lease alone, and no two ports are to have one slot. */
static void check_core(const core *c)
{
    const pool *p = core_pool(c);
    uint32_t nodes, slots, ports, leased = 0, used = 0;
    const core_node *node = core_nodes(c, &nodes);
    const core_slot *slot = core_slots(c, &slots);
    const core_port *port = core_ports(c, &ports);
    for (uint32_t i = 0; i < nodes; i++) {
        must(!i || node[i - 1].number < node[i].number);
        must(node[i].total <= (node[i].role == DXPU_CONTROL_ROLE_BOX ? slots : ports));
    }
    must(p->slots == slots && p->epoch <= COREI_EPOCH_MAX);
    for (uint32_t i = 0; i < slots; i++) {
        must(p->slot[i].state < POOL_STATES && slot[i].node < nodes);
        must(p->slot[i].lease == POOL_NONE || p->lease[p->slot[i].lease].count);
        must(p->slot[i].state != POOL_LEASED || p->slot[i].lease != POOL_NONE);
        must(p->slot[i].epoch <= p->epoch);
        must(node[slot[i].node].connected || /* a disconnected box's slots are not lent */
             (p->slot[i].state != POOL_FREE && p->slot[i].state != POOL_SPARE));
        leased += p->slot[i].lease != POOL_NONE;
        must(core_slot_state(c, i) < POOL_STATES);
    }
    check_owners(p);
    for (uint32_t i = 0; i < p->limits.leases; i++)
        used += pool_lease_number(p, i) ? p->lease[i].count : 0;
    must(leased == used);
    for (uint32_t i = 0; i < ports; i++) {
        must(port[i].slot == CORE_NONE || port[i].slot < slots);
        for (uint32_t k = 0; k < i && port[i].slot != CORE_NONE; k++)
            must(port[k].slot != port[i].slot);
    }
}

/* Of all leases, the slots in them and those kept for them, in whatever order the tables are. */
static uint64_t leases_of(const core *c)
{
    const pool *p = core_pool(c);
    uint64_t sum = p->leases;
    uint32_t count;
    const core_node *node = core_nodes(c, &count);
    const core_slot *slot = core_slots(c, &count);
    for (uint32_t i = 0; i < p->slots; i++) { /* their places in the tables may change */
        uint64_t number = (uint64_t)node[slot[i].node].number << 16 | slot[i].device.number;
        if (p->slot[i].lease != POOL_NONE)
            sum += (pool_lease_number(p, p->slot[i].lease) ^ p->slot[i].epoch << 20) * number;
        if (p->slot[i].owner != POOL_NONE)
            sum +=
                (pool_lease_number(p, p->slot[i].owner) ^ (p->slot[i].place + 1u) << 20) * number;
    }
    return sum;
}

/* -- All that is in the tables, in whatever order -- */

static uint64_t add_number(uint64_t sum, uint64_t v)
{
    sum = (sum ^ v) * 0x9e3779b97f4a7c15u;
    return sum ^ sum >> 29;
}

static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = add_number(sum, ((const uint8_t *)bytes)[i]);
    return sum;
}

static uint64_t add_device(uint64_t sum, const dxpu_control_device *d)
{
    uint8_t bytes[DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control_device_encode(d, bytes);
    return add_bytes(sum, bytes, sizeof bytes);
}

/* A slot or port by its node's number and its own: their places may change. */
static uint64_t slot_name(const core *c, uint32_t i)
{
    const core_slot *s = &c->t.slot[i];
    return i == CORE_NONE ? 0 : (uint64_t)c->t.node[s->node].number << 16 | s->device.number;
}

static uint64_t port_name(const core *c, uint32_t i)
{
    const core_port *p = &c->t.port[i];
    const core_node *n = i == CORE_NONE ? NULL : &c->t.node[p->node];
    return n ? (uint64_t)n->number << 16 | (i - n->first + 1) : 0;
}

static uint64_t add_unit(uint64_t sum, const core *c, uint32_t unit)
{
    const corei_work *w = &c->t.work[unit];
    sum = add_number(add_number(sum, w->out), w->refused);
    sum = add_number(add_number(sum, w->tries), w->kind);
    sum = add_number(add_number(sum, w->epoch), w->not_before_ms);
    return add_number(sum, c->t.timers.place[unit] ? c->t.timers.due[unit] : 0);
}

static uint64_t node_sum(const core *c, uint32_t i)
{
    const core_node *n = &c->t.node[i];
    const corei_node *m = &c->t.node_more[i];
    uint64_t sum = add_number(add_number(n->number, n->role), n->total);
    sum = add_bytes(sum, n->identity, sizeof n->identity);
    if (m->unsaved && !n->connected) /* until all is reported, each part says this */
        return add_unit(add_number(sum, m->missing), c, corei_node_unit(c, i));
    sum = add_bytes(sum, n->name, strlen(n->name));
    sum = add_bytes(sum, n->program, strlen(n->program));
    sum = add_bytes(sum, n->owner, strlen(n->owner));
    for (unsigned k = 0; k < n->paths; k++)
        sum = add_number(add_bytes(sum, n->path[k].ip, 16), n->path[k].port);
    sum = add_number(add_number(sum, n->draining), n->used);
    sum = add_number(add_number(sum, n->keyed), n->sealed);
    sum = n->keyed ? add_bytes(sum, n->key, sizeof n->key) : sum;
    sum = add_number(add_number(sum, n->connected), n->instance);
    sum = add_number(add_number(sum, n->since_unix_ms), m->drain_told);
    sum = add_number(add_number(sum, m->gone_ms), m->enlarge_ms);
    sum = add_number(add_number(sum, m->left_ms), m->rival);
    sum = add_number(add_number(sum, m->missing), m->told_total);
    sum = add_number(sum, m->unsaved);
    return add_unit(sum, c, corei_node_unit(c, i));
}

static uint64_t slot_sum(const core *c, uint32_t i)
{
    const pool *p = c->t.pool;
    const pool_slot *s = &p->slot[i];
    const corei_slot *m = &c->t.slot_more[i];
    /* Spares are chosen again; disconnected boxes are hidden, or drained. */
    bool as_free = s->state == POOL_SPARE || m->silent;
    uint64_t sum = add_device(slot_name(c, i), &c->t.slot[i].device);
    sum = m->other ? add_device(sum, m->other) : sum;
    sum = add_number(add_number(sum, c->t.slot[i].reported), as_free ? POOL_FREE : s->state);
    sum = add_number(add_number(sum, as_free ? POOL_WHY_NONE : s->reason), s->dirty);
    sum = add_number(add_number(sum, s->epoch), port_name(c, m->port));
    sum = add_number(sum, s->lease == POOL_NONE ? 0 : pool_lease_number(p, s->lease));
    sum = add_number(sum, s->owner == POOL_NONE ? 0 : pool_lease_number(p, s->owner));
    sum = add_number(add_number(sum, s->wipe), s->owner == POOL_NONE ? 0 : s->place);
    sum = add_number(add_number(sum, c->t.slot[i].served), c->t.slot[i].repaired_empty);
    sum = add_number(add_number(sum, c->t.slot[i].medium), m->agreed);
    sum = add_number(add_number(sum, m->repair_epoch), m->repair_instance);
    sum = add_number(sum, core_slot_left_ms(c, i));
    sum = add_number(add_number(sum, m->up_epoch), m->yield_ms);
    sum = add_number(add_number(sum, m->wipe_told), m->reset);
    sum = add_number(add_number(sum, m->reset_epoch), m->silent);
    sum = add_number(add_number(sum, m->late), m->offered_epoch);
    return add_unit(add_number(sum, m->offered_to), c, corei_slot_unit(i));
}

static uint64_t port_sum(const core *c, uint32_t i)
{
    const core_port *p = &c->t.port[i];
    uint64_t sum = add_device(port_name(c, i), &p->device);
    sum = add_number(add_number(sum, p->reported), p->foreign);
    sum = add_number(add_number(sum, slot_name(c, p->slot)), c->t.port_more[i].moved);
    sum = add_number(sum, slot_name(c, c->t.port_more[i].before));
    return add_unit(sum, c, corei_port_unit(c, i));
}

static uint64_t lease_sum(const core *c, uint32_t i)
{
    uint64_t number = pool_lease_number(c->t.pool, i);
    const core_lease *l = &c->t.lease[i];
    uint64_t sum = add_number(add_number(number, c->t.lease_seen[i]), l->expires_unix_ms);
    sum = add_number(add_number(sum, l->was_up), l->kept);
    return add_number(add_number(sum, l->ended), core_lease_left_ms(c, number));
}

static uint64_t tables_sum(const core *c)
{
    const pool *p = c->t.pool;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->t.nodes; i++)
        sum += node_sum(c, i);
    for (uint32_t i = 0; i < p->slots; i++)
        sum += slot_sum(c, i);
    for (uint32_t i = 0; i < c->t.ports; i++)
        sum += port_sum(c, i);
    for (uint32_t i = 0; i < p->limits.leases; i++)
        if (pool_lease_number(p, i))
            sum += lease_sum(c, i);
    return sum;
}

/* Rebuilt tables equal the previous ones. */
static inline void make_anew(core *c)
{
    uint64_t was = tables_sum(c);
    if (c->dead)
        return;
    must(corei_load(c).code == CORE_OK);
    must(tables_sum(c) == was);
}

#endif /* CORE_CLAIMS_H_INCLUDED */
