/* core_adopt.c - leases that run, and that the store does not know: an old copy of it was put back
   SPDX-License-Identifier: MIT

   M-170 to M-172.  What a box and a host report alike of a lease is believed: it is a lease again.
   The store knew more of it (its tenant's key, its end, which slots belong together), and that is
   lost. */
#include <stdio.h>
#include <string.h>

#include "core_internal.h"

static void adopt_not(core_adoption *a, const char *why)
{
    a->what = CORE_ADOPT_NOT;
    snprintf(a->why, sizeof a->why, "%s", why);
}

/* The host's port that the box says has the slot's lease; CORE_NONE, with why: it does not say so,
   too. */
static uint32_t port_of(const core *c, uint32_t slot, core_adoption *a)
{
    const corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t host = core_find_node(c, d->peer_node);
    if (host == CORE_NONE || t->node[host].role != DXPU_CONTROL_ROLE_HOST ||
        !t->node[host].connected) {
        adopt_not(a, "it is lent, and its host is not connected");
        return CORE_NONE;
    }
    a->host = t->node[host].number;
    a->host_slot = d->peer_slot;
    uint32_t port = t->node[host].first + d->peer_slot - 1u;
    bool there = d->peer_slot && d->peer_slot <= t->node[host].total && t->port[port].reported;
    const dxpu_control_device *p = there ? &t->port[port].device : NULL;
    uint32_t box = t->node[t->slot[slot].node].number;
    if (p && p->epoch == d->epoch && p->peer_slot == d->number &&
        (!p->peer_node || p->peer_node == box) &&
        (p->state == DXPU_CONTROL_SLOT_UP || p->state == DXPU_CONTROL_SLOT_DIALING))
        return port;
    adopt_not(a, "it is lent, and its host does not report that lease");
    return CORE_NONE;
}

/* Lent now, under the highest epoch that is known of the slot. */
static void adopt_lent(const core *c, uint32_t slot, core_adoption *a)
{
    const corei_tables *t = &c->t;
    const pool_slot *s = &t->pool->slot[slot];
    uint32_t port = port_of(c, slot, a);
    if (port == CORE_NONE)
        return;
    uint32_t has = t->port[port].slot;
    if (s->lease == POOL_NONE && has == CORE_NONE) {
        a->what = CORE_ADOPT_LEASE;
    } else if (s->lease != POOL_NONE && has == slot && t->slot_more[slot].port == port) {
        a->what = CORE_ADOPT_BACK;
        a->lease = pool_lease_number(t->pool, s->lease);
    } else {
        adopt_not(a, "the store has other leases for this slot, or for its host's slot");
    }
}

bool core_may_adopt(const core *c, uint32_t slot, core_adoption *out)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const core_slot *box = &c->t.slot[slot];
    const dxpu_control_device *d = &box->device;
    memset(out, 0, sizeof *out);
    if (s->state != POOL_QUARANTINED || s->reason != POOL_WHY_FOREIGN)
        return false;
    if (!c->t.node[box->node].connected || !box->reported || c->t.slot_more[slot].late)
        adopt_not(out, "its box is not connected");
    else if (c->t.slot_more[slot].other)
        adopt_not(out, "another device is in it than the store has");
    else if (s->owner != POOL_NONE)
        adopt_not(out, "it is kept for a lease: recover or discard it");
    else if (d->epoch && d->epoch == s->epoch)
        adopt_lent(c, slot, out);
    else if (d->epoch)
        adopt_not(out, "its box reports an epoch that another lease had since");
    else if (d->state == DXPU_CONTROL_SLOT_WIPED && s->lease == POOL_NONE)
        out->what = CORE_ADOPT_FREE;
    else if (d->state == DXPU_CONTROL_SLOT_WIPED)
        adopt_not(out, "it is wiped, and the store has a lease for it: release or replace that");
    else if (d->state == DXPU_CONTROL_SLOT_KEPT)
        adopt_not(out, "its box keeps data of a lease that the store does not know");
    else
        adopt_not(out, "its box does not know what data it has");
    return true;
}

/* Whose the lease is to be: the client says so, else its host's owner. */
static const char *tenant_of(const core *c, const core_adoption *a, const char *named)
{
    uint32_t host = core_find_node(c, a->host);
    const char *owner = host == CORE_NONE ? "" : c->t.node[host].owner;
    return *named ? named : *owner ? owner : "default";
}

/* The tables of a lease of which the proxies know all. */
static void fill(core *c, uint32_t slot, uint32_t port, core_adoption *a)
{
    corei_tables *t = &c->t;
    const core_node *host = &t->node[t->port[port].node];
    corei_slot *more = &t->slot_more[slot];
    core_lease *l = &t->lease[pool_lease_index(a->lease)];
    bool up = t->port[port].device.state == DXPU_CONTROL_SLOT_UP;
    if (a->what == CORE_ADOPT_LEASE) {
        memset(l, 0, sizeof *l);
        l->created_unix_ms = c->unix_ms;
        l->made_ms = c->mono_ms;
        l->replace = CORE_REPLACE_NO; /* unknown what was asked for: nothing is exchanged */
        l->was_up = true;
        l->port[0] = t->port[port].device.number;
        t->lease_seen[pool_lease_index(a->lease)] = up ? CORE_LEASE_ACTIVE : CORE_LEASE_DEGRADED;
    }
    t->port[port].slot = slot;
    t->port[port].foreign = false;
    more->port = port;
    more->yield_ms = 0;
    more->agreed = true;
    more->up_epoch = t->pool->slot[slot].epoch;
    more->offered_epoch = t->pool->slot[slot].epoch; /* this instance of the host has it (M-75) */
    more->offered_to = host->instance;
    t->slot[slot].served = true;
    t->slot[slot].medium = t->slot[slot].device.medium;
    t->slot[slot].repaired_empty = false;
    corei_use_node(c, t->port[port].node);
    corei_use_node(c, t->slot[slot].node);
}

static core_result adopt(core *c, uint32_t slot, const char *tenant, core_adoption *a)
{
    corei_tables *t = &c->t;
    uint32_t port = port_of(c, slot, a);
    const pool_request q = { .tenant = core_find_tenant(c, tenant),
                             .host = t->node[t->port[port].node].pool_index,
                             .model = t->pool->slot[slot].model,
                             .count = 1,
                             .need = POOL_ANY };
    core_result pace = corei_may_number(c);
    if (a->what != CORE_ADOPT_BACK && pace.code != CORE_OK)
        return pace;
    int rc = a->what == CORE_ADOPT_BACK ? pool_keep(t->pool, slot)
                                        : pool_adopt(t->pool, &q, slot, &a->lease);
    if (rc != POOL_OK)
        return corei_pool_result(rc);
    fill(c, slot, port, a);
    corei_event_slot(c, CORE_EVENT_LEASE_ADOPTED, slot, "slot %u of host %u has it: %s",
                     a->host_slot, a->host,
                     a->what == CORE_ADOPT_BACK ? "under a later epoch than the store knew"
                                                : "a lease that the store did not know");
    corei_mark_changed(c, COREI_META, 0);
    corei_mark_changed(c, COREI_LEASE, pool_lease_index(a->lease));
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
    return corei_commit(c);
}

core_result core_adopt(core *c, uint32_t slot, const char *tenant, core_adoption *out)
{
    uint32_t node = c->t.node[c->t.slot[slot].node].number, number = c->t.slot[slot].device.number;
    if (!core_may_adopt(c, slot, out))
        return corei_result(CORE_E_STATE, "only quarantined slots are adopted");
    if (out->what == CORE_ADOPT_NOT)
        return corei_result(CORE_E_STATE, "%s", out->why);
    if (out->what == CORE_ADOPT_FREE)
        return core_repair(c, slot); /* its box has verified that it is wiped */
    core_result result = corei_begin(c);
    char name[CORE_NAME_BYTES]; /* the owner's is in a table */
    snprintf(name, sizeof name, "%s", tenant_of(c, out, tenant));
    bool known = core_find_tenant(c, name) != CORE_NONE;
    if (result.code == CORE_OK && out->what == CORE_ADOPT_LEASE &&
        corei_tenant_for(c, name) == CORE_NONE)
        result = corei_pool_result(POOL_E_ROOM);
    slot = core_find_slot(c, node, number); /* room for a tenant may have loaded other tables */
    if (result.code == CORE_OK)
        result = adopt(c, slot, name, out);
    if (result.code != CORE_OK && !known)
        corei_drop_tenant(c, name);
    slot = core_find_slot(c, node, number);
    if (result.code == CORE_OK && slot != CORE_NONE)
        corei_settle_slot(c, slot);
    return result;
}
