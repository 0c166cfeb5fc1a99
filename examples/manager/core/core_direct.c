/* core_direct.c - which devices may reach one another without their host; leases that are peers
   SPDX-License-Identifier: MIT

   Boxes carry requests between the devices of one host, where the host lists them (spec/p2p.md).
   The manager decides where they may: it forbids that for a box, a tenant, or the whole pool, and
   it places leases that are to be peers together. */
#include <string.h>

#include "core_internal.h"

/* -- Permission -- */

const char *core_direct_name(unsigned direct)
{
    static const char *const names[] = { "allowed", "forbidden", "ordered", "unenforced" };
    return direct < sizeof names / sizeof names[0] ? names[direct] : "?";
}

const char *core_way_name(unsigned way)
{
    static const char *const names[] = { "host", "boxes", "box" };
    return way < sizeof names / sizeof names[0] ? names[way] : "?";
}

bool core_may_direct(const core *c)
{
    return !(c->set.reader ? c->no_direct : c->set.no_direct);
}

bool corei_is_direct(const core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    uint32_t lease = t->pool->slot[slot].lease;
    if (!core_may_direct(c) || t->node[t->slot[slot].node].no_direct)
        return false;
    return lease == POOL_NONE || !t->tenant[t->pool->lease[lease].tenant].no_direct;
}

core_direct core_lease_direct(const core *c, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    core_direct worst = CORE_DIRECT_ALLOWED;
    for (uint32_t i = l ? l->first : POOL_NONE; i != POOL_NONE; i = c->t.pool->slot[i].next) {
        unsigned told = c->t.slot_more[i].direct;
        core_direct now = corei_is_direct(c, i)      ? CORE_DIRECT_ALLOWED
                          : told == COREI_DIRECT_OFF ? CORE_DIRECT_FORBIDDEN
                          : told == COREI_DIRECT_NOT ? CORE_DIRECT_UNENFORCED
                          : l->host == POOL_NONE     ? CORE_DIRECT_FORBIDDEN
                                                     : CORE_DIRECT_ORDERED;
        worst = now > worst ? now : worst;
    }
    return worst;
}

/* -- Peers -- */

core_way core_way_between(const core *c, uint64_t a, uint64_t b)
{
    const pool *p = c->t.pool;
    const pool_lease *x = pool_find_lease(p, a), *y = pool_find_lease(p, b);
    if (!x || !y || x == y || x->host == POOL_NONE || x->host != y->host)
        return CORE_WAY_HOST;
    bool one = true;
    for (const pool_lease *l = x; l; l = l == x ? y : NULL)
        for (uint32_t i = l->first; i != POOL_NONE; i = p->slot[i].next) {
            if (!corei_is_direct(c, i))
                return CORE_WAY_HOST;
            one = one && p->slot[i].box == p->slot[x->first].box;
        }
    return one ? CORE_WAY_BOX : CORE_WAY_BOXES;
}

static unsigned add_peer(uint64_t lease, uint64_t out[CORE_PEERS_MAX], unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (out[i] == lease)
            return count;
    if (count < CORE_PEERS_MAX)
        out[count++] = lease;
    return count;
}

unsigned core_lease_peers(const core *c, uint64_t lease, uint64_t out[CORE_PEERS_MAX])
{
    const corei_tables *t = &c->t;
    const pool_lease *l = pool_find_lease(t->pool, lease);
    unsigned count = 0;
    if (!l)
        return 0;
    if (pool_find_lease(t->pool, l->peer))
        count = add_peer(l->peer, out, count);
    if (l->host == POOL_NONE)
        return count;
    const core_node *host = &t->node[t->host_node[l->host]];
    for (uint32_t i = host->first; i < host->first + host->total; i++) {
        uint32_t slot = t->port[i].slot;
        uint32_t other = slot == CORE_NONE ? POOL_NONE : t->pool->slot[slot].lease;
        if (other != POOL_NONE && t->pool->lease[other].peer == lease)
            count = add_peer(pool_lease_number(t->pool, other), out, count);
    }
    return count;
}

core_result corei_check_peer(const core *c, const core_request *r, uint32_t tenant, uint32_t host)
{
    const pool_lease *l = pool_find_lease(c->t.pool, r->peer);
    if (!l || l->tenant != tenant)
        return corei_result(CORE_E_UNKNOWN, "there is no lease %llx", (unsigned long long)r->peer);
    if (l->host != host)
        return corei_result(
            CORE_E_STATE, "lease %llx is %s; only devices of one host reach one another directly",
            (unsigned long long)r->peer, l->host == POOL_NONE ? "parked" : "another host's");
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next)
        if (!corei_is_direct(c, i))
            return corei_result(CORE_E_STATE,
                                "an operator has forbidden that devices of lease %llx reach others "
                                "directly (%s)",
                                (unsigned long long)r->peer,
                                !core_may_direct(c)             ? "in the pool: --no-direct"
                                : c->t.tenant[tenant].no_direct ? "for the tenant: dxpu tenant"
                                                                : "in its box: dxpu direct");
    return (core_result){ CORE_OK, "" };
}

/* -- Orders -- */

void corei_tell_allowed(core *c)
{
    if (c->no_direct && !c->set.no_direct)
        (void)corei_event(c, CORE_EVENT_ALARM,
                          "devices may reach others directly again: the manager before this one "
                          "had --no-direct, and this one has not");
}

static bool are_ordered(const core *c)
{
    return !core_may_direct(c) || c->t.no_directs;
}

void corei_direct_load(core *c)
{
    for (uint32_t i = 0; i < c->t.pool->slots; i++)
        c->t.slot_more[i].forbids = !corei_is_direct(c, i);
}

void corei_direct_begin(core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    for (uint32_t i = n->first; i < n->first + n->total; i++) {
        corei_slot *more = &c->t.slot_more[i];
        more->direct = are_ordered(c) ? COREI_DIRECT_UNKNOWN : COREI_DIRECT_ON;
        more->forbids = more->forbids && are_ordered(c);
    }
}

bool core_directs(core *c, uint32_t number)
{
    uint32_t node = corei_find_box(c, number);
    if (node == CORE_NONE)
        return false;
    if (!are_ordered(c)) /* the box takes the answer as an order for all */
        corei_direct_begin(c, node);
    return are_ordered(c);
}

/* Reports a change only: each lent slot is ordered again when its box connects. */
static void tell_direct(core *c, uint32_t slot, bool on)
{
    if (c->t.slot_more[slot].forbids == !on)
        return;
    c->t.slot_more[slot].forbids = !on;
    if (corei_begin(c).code != CORE_OK)
        return;
    corei_event_slot(c, CORE_EVENT_SLOT_DIRECT, slot, "its device %s",
                     on ? "may reach others directly again"
                        : "reaches others through its host alone");
    (void)corei_commit(c);
}

void corei_direct_done(core *c, uint32_t slot, bool on)
{
    c->t.slot_more[slot].direct = on ? COREI_DIRECT_ON : COREI_DIRECT_OFF;
    tell_direct(c, slot, on);
}

/* The box has an earlier version, and carries what hosts list. */
void corei_direct_unknown(core *c, uint32_t slot)
{
    c->t.slot_more[slot].direct = COREI_DIRECT_NOT;
}

void corei_touch_leased(core *c)
{
    for (uint32_t i = 0; i < c->t.pool->slots; i++)
        if (c->t.pool->slot[i].lease != POOL_NONE || c->t.slot[i].device.epoch)
            corei_touch(c, corei_slot_unit(i));
}

core_result core_set_direct(core *c, uint32_t number, bool on)
{
    uint32_t node = corei_find_box(c, number);
    if (node == CORE_NONE)
        return corei_result(CORE_E_UNKNOWN, "node %u is not a box", number);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    core_node *n = &c->t.node[node];
    c->t.no_directs += (uint32_t)n->no_direct * UINT32_MAX + !on;
    n->no_direct = !on;
    corei_event_node(c, CORE_EVENT_NODE_DIRECT, node,
                     on ? "its devices may reach others directly"
                        : "its devices reach others through their hosts alone");
    corei_mark_changed(c, COREI_NODE, node);
    result = corei_commit(c);
    if (result.code == CORE_OK)
        corei_touch_leased(c);
    return result;
}
