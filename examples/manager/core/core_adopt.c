/* core_adopt.c - takes back leases that run and that the store does not know: it is an old copy
   SPDX-License-Identifier: MIT

   M-170 to M-175.  When a box and a host report the same of a lease, it is a lease again.  The box
   or the operator says whose it is, not the store, whose state is older.  What else the store knew
   of it (the tenant's key, the end, which slots belong together) is lost. */
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core_internal.h"

#define TENANT_TEXT "dxpu tenant " /* no hash of a name elsewhere is this one */

/* The word by which boxes know a tenant: they learn no names.  A client that chooses a
   tenant's name cannot choose one with another tenant's word. */
uint64_t corei_tenant_word(const core *c, const char *name)
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    char text[CORE_NAME_BYTES + sizeof TENANT_TEXT];
    uint64_t word = 0;
    snprintf(text, sizeof text, TENANT_TEXT "%s", name);
    (void)crypto_generichash(hash, sizeof hash, (const uint8_t *)text, strlen(text), NULL, 0);
    for (unsigned i = 0; i < sizeof word; i++)
        word |= (uint64_t)hash[i] << 8 * i;
    return word & c->set.word_bits;
}

void corei_name_lease(const core *c, uint32_t slot, uint64_t *lease, uint64_t *tenant)
{
    const pool *p = c->t.pool;
    uint32_t index = p->slot[slot].lease;
    *lease = index == POOL_NONE ? 0 : pool_lease_number(p, index);
    *tenant = index == POOL_NONE ? 0 : c->t.tenant[p->lease[index].tenant].word;
}

static void adopt_not(core_adoption *a, const char *why, ...) __attribute__((format(printf, 2, 3)));

static void adopt_not(core_adoption *a, const char *why, ...)
{
    va_list args;
    a->what = CORE_ADOPT_NOT;
    va_start(args, why);
    (void)vsnprintf(a->why, sizeof a->why, why, args);
    va_end(args);
}

/* Returns a host that has the slot's lease and is not the one that the box names, or CORE_NONE. One
   epoch is one lease in the whole pool. */
static uint32_t other_host(const core *c, const dxpu_control_device *d)
{
    const corei_tables *t = &c->t;
    for (uint32_t i = 0; i < t->ports; i++) {
        const dxpu_control_device *p = &t->port[i].device;
        if (t->port[i].reported && p->epoch == d->epoch && p->peer_slot == d->number &&
            t->node[t->port[i].node].connected && t->node[t->port[i].node].number != d->peer_node)
            return t->port[i].node;
    }
    return CORE_NONE;
}

/* Says why the box's host is not found.  An empty store gives nodes other numbers than those that
   proxies have from the former store (M-175).  All ports are looked at only for a slot that was
   named, not for each of many. */
static void explain_host(const core *c, const dxpu_control_device *d, bool named, core_adoption *a)
{
    uint32_t host = core_find_node(c, d->peer_node), other = named ? other_host(c, d) : CORE_NONE;
    const core_node *n = host == CORE_NONE ? NULL : &c->t.node[host];
    if (other != CORE_NONE)
        adopt_not(a,
                  "it is lent to host %u of a former store, and the one that has it is host %u "
                  "(%s) here: give the nodes their former numbers",
                  d->peer_node, c->t.node[other].number, c->t.node[other].name);
    else if (n && n->role != DXPU_CONTROL_ROLE_HOST)
        adopt_not(a,
                  "it is lent to host %u of a former store, and node %u is a box here (%s): give "
                  "the nodes their former numbers",
                  d->peer_node, d->peer_node, n->name);
    else if (!n)
        adopt_not(a, "it is lent to host %u, which this store does not know", d->peer_node);
    else if (!n->connected)
        adopt_not(a, "it is lent, and its host is not connected");
    else
        adopt_not(a, "it is lent, and its host does not report that lease");
}

/* Returns the port that has the slot's lease, as its box and its host both report, or CORE_NONE,
   and `a` says why. */
static uint32_t port_of(const core *c, uint32_t slot, bool named, core_adoption *a)
{
    const corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t host = core_find_node(c, d->peer_node);
    if (host == CORE_NONE || t->node[host].role != DXPU_CONTROL_ROLE_HOST ||
        !t->node[host].connected) {
        explain_host(c, d, named, a);
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
    explain_host(c, d, named, a);
    return CORE_NONE;
}

/* Counts the tenants that fit what the slot's box reports: `it`, and others of the store, of which
   *other is the last. */
static unsigned fitting(const core *c, const dxpu_control_device *d, const char *it,
                        const char **other)
{
    const corei_tables *t = &c->t;
    unsigned count = corei_tenant_word(c, it) == d->tenant;
    for (uint32_t i = 0; i < t->pool->tenants; i++)
        if (t->tenant[i].word == d->tenant && strcmp(t->tenant[i].name, it) != 0) {
            *other = t->tenant[i].name;
            count++;
        }
    return count;
}

/* Finds the tenant of a lease that the store does not know: the one that the client names, else the
   one that its box names, if the store has it; where its box names none, its host's owner.  False:
   the lease cannot be adopted, and `a` says why. */
static bool find_tenant(const core *c, uint32_t host, const dxpu_control_device *d, bool named,
                        const char *tenant, core_adoption *a)
{
    const corei_tables *t = &c->t;
    const char *owner = t->node[host].owner, *it = *tenant ? tenant : *owner ? owner : "default";
    const char *other = it;
    unsigned fit = d->lease ? fitting(c, d, it, &other) : 0;
    it = *tenant ? it : other;
    snprintf(a->tenant, sizeof a->tenant, "%s", it);
    if (fit == 1 && corei_tenant_word(c, it) == d->tenant)
        return true;
    if (fit > 1)
        adopt_not(a, "two tenants of the store fit what its box says of its lease: %s is one", it);
    else if (d->lease && *tenant)
        adopt_not(a, "its box says that its lease is another tenant's than %s", tenant);
    else if (d->lease)
        adopt_not(a, "the store does not know the tenant of its lease: name it (--tenant)");
    else if (!named && !*tenant)
        adopt_not(a,
                  "its box does not say whose lease it is, and the store's owner of its host "
                  "(%s) may be older: name the slot, or the tenant",
                  *owner ? owner : "none");
    else if (!named && *owner && strcmp(owner, tenant) != 0)
        adopt_not(a,
                  "its box does not say whose lease it is, and its host's owner is %s: name the "
                  "slot, if it is %s's",
                  owner, tenant);
    else
        return true;
    a->tenant[0] = 0;
    return false;
}

/* The store has a lease of the same slot, host and host's slot, but under an earlier epoch: another
   tenant's lease may have come there since. */
static void adopt_back(const core *c, uint32_t slot, bool named, const char *tenant,
                       core_adoption *a)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    unsigned long long known = c->t.slot_more[slot].known_epoch, now = d->epoch;
    uint64_t lease, its;
    char than[48] = "";
    corei_name_lease(c, slot, &lease, &its);
    a->what = CORE_ADOPT_BACK;
    a->lease = lease;
    a->known_epoch = known;
    snprintf(a->tenant, sizeof a->tenant, "%s",
             c->t.tenant[c->t.pool->lease[pool_lease_index(lease)].tenant].name);
    if (known)
        snprintf(than, sizeof than, " than %llu", known);
    if (corei_names_other(d, lease, its))
        adopt_not(a,
                  "its box has lease %llx under epoch %llu, and the store %llx of %s, which has "
                  "ended or moved since: the slot can be adopted when that one is released",
                  (unsigned long long)d->lease, now, (unsigned long long)lease, a->tenant);
    else if (!d->lease && !named)
        adopt_not(
            a,
            "the store has lease %llx of %s there, but its box reports a later epoch%s, %llu, "
            "and not of which lease: it may be another tenant's since; name the slot, and the "
            "tenant, if it is %s's",
            (unsigned long long)lease, a->tenant, than, now, a->tenant);
    else if (!d->lease && !*tenant)
        adopt_not(
            a,
            "the store has lease %llx of %s there, but its box reports a later epoch%s, %llu, "
            "and not of which lease: name its tenant, too (--tenant %s, if it is that one's)",
            (unsigned long long)lease, a->tenant, than, now, a->tenant);
    else if (*tenant && strcmp(tenant, a->tenant) != 0)
        adopt_not(a, "the store has lease %llx of %s there, not of %s", (unsigned long long)lease,
                  a->tenant, tenant);
}

/* Says which other lease of the store has the slot, or its host's slot, and how to get it out of
   the way.  None of that wipes anything in a quarantined slot. */
static void explain_taken(const core *c, uint32_t slot, uint32_t has, core_adoption *a)
{
    const corei_tables *t = &c->t;
    const pool *p = t->pool;
    bool here = p->slot[slot].lease != POOL_NONE;
    uint32_t lease = here ? p->slot[slot].lease : p->slot[has].lease;
    unsigned box = t->node[t->slot[here ? slot : has].node].number;
    unsigned number = t->slot[here ? slot : has].device.number;
    unsigned long long name = lease == POOL_NONE ? 0 : pool_lease_number(p, lease);
    const char *tenant = lease == POOL_NONE ? "" : t->tenant[p->lease[lease].tenant].name;
    if (!here)
        adopt_not(a,
                  "the store has lease %llx of %s in its host's slot, by slot %u.%u: park that "
                  "lease, or release it, and adopt again",
                  name, tenant, box, number);
    else if (p->lease[lease].host == POOL_NONE)
        adopt_not(a,
                  "it is lent, and the store has lease %llx of %s in it, parked: release that "
                  "lease, which wipes nothing here, and adopt again",
                  name, tenant);
    else
        adopt_not(a,
                  "the store has lease %llx of %s in it for another slot of a host: move that one "
                  "(dxpu replace %u.%u), or release it, and adopt again",
                  name, tenant, box, number);
}

/* The slot is lent now, under the highest epoch that is known of it. */
static void adopt_lent(const core *c, uint32_t slot, bool named, const char *tenant,
                       core_adoption *a)
{
    const corei_tables *t = &c->t;
    const pool_slot *s = &t->pool->slot[slot];
    uint32_t port = port_of(c, slot, named, a);
    if (port == CORE_NONE)
        return;
    uint32_t has = t->port[port].slot;
    if (s->lease == POOL_NONE && has == CORE_NONE) {
        if (find_tenant(c, t->port[port].node, &t->slot[slot].device, named, tenant, a))
            a->what = CORE_ADOPT_LEASE;
    } else if (s->lease != POOL_NONE && has == slot && t->slot_more[slot].port == port) {
        adopt_back(c, slot, named, tenant, a);
    } else {
        explain_taken(c, slot, has, a);
    }
}

/* Returns another slot of which a box reports that it has data of this lease, while the store has
   none of the lease there; else CORE_NONE. */
static uint32_t other_slot(const core *c, uint32_t slot, uint32_t lease)
{
    const corei_tables *t = &c->t;
    const dxpu_control_device *d = &t->slot[slot].device;
    for (uint32_t i = 0; i < t->pool->slots; i++) {
        const pool_slot *s = &t->pool->slot[i];
        if (t->slot[i].reported && t->slot[i].device.lease == d->lease &&
            t->slot[i].device.tenant == d->tenant && s->lease != lease && s->owner != lease)
            return i;
    }
    return CORE_NONE;
}

/* The lease may have moved to another slot since, whose data are later: all slots are looked at,
   but only for one that was named.  The host in the store may be another tenant's by now. */
static void adopt_kept_of(const core *c, uint32_t slot, uint32_t lease, bool named,
                          const char *tenant, core_adoption *a)
{
    const corei_tables *t = &c->t;
    uint32_t other = named ? other_slot(c, slot, lease) : CORE_NONE;
    unsigned long long name = a->lease;
    if (*tenant && strcmp(tenant, a->tenant) != 0)
        adopt_not(a, "the store has lease %llx of %s there, not of %s", name, a->tenant, tenant);
    else if (t->pool->lease[lease].host != POOL_NONE)
        adopt_not(a,
                  "its box keeps data of lease %llx of %s, under a later epoch than the store has, "
                  "whose host may be another tenant's by now: park that lease, and adopt again",
                  name, a->tenant);
    else if (!named)
        adopt_not(a,
                  "its box keeps data of lease %llx of %s, under a later epoch than the store "
                  "has: name the slot, if that lease has no later data elsewhere",
                  name, a->tenant);
    else if (other != CORE_NONE)
        adopt_not(a, "slot %u.%u has data of lease %llx, too, which may be later ones",
                  t->node[t->slot[other].node].number, t->slot[other].device.number, name);
}

/* The slot is not lent, and its box keeps data under a later epoch than the store knew.  They are
   those of the lease that the store has there, if its box says so (M-177). */
static void adopt_kept(const core *c, uint32_t slot, bool named, const char *tenant,
                       core_adoption *a)
{
    const corei_tables *t = &c->t;
    const pool_slot *s = &t->pool->slot[slot];
    const dxpu_control_device *d = &t->slot[slot].device;
    uint32_t lease = s->lease != POOL_NONE ? s->lease : s->owner;
    const core_tenant *whose = lease == POOL_NONE ? NULL : &t->tenant[t->pool->lease[lease].tenant];
    if (!whose) {
        adopt_not(a, "its box keeps data of a lease that the store does not know");
    } else if (!d->lease) {
        adopt_not(a, "its box keeps data, and does not report of which lease");
    } else if (d->lease != pool_lease_number(t->pool, lease) || d->tenant != whose->word ||
               d->epoch_seen != s->epoch) {
        adopt_not(a, "its box keeps data of lease %llx, and the store has %llx of %s there",
                  (unsigned long long)d->lease,
                  (unsigned long long)pool_lease_number(t->pool, lease), whose->name);
    } else {
        a->what = CORE_ADOPT_KEPT;
        a->lease = d->lease;
        a->known_epoch = t->slot_more[slot].known_epoch;
        snprintf(a->tenant, sizeof a->tenant, "%s", whose->name);
        adopt_kept_of(c, slot, lease, named, tenant, a);
    }
}

bool core_may_adopt(const core *c, uint32_t slot, bool named, const char *tenant,
                    core_adoption *out)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const core_slot *box = &c->t.slot[slot];
    const dxpu_control_device *d = &box->device;
    memset(out, 0, sizeof *out);
    out->epoch = d->epoch;
    if (s->state != POOL_QUARANTINED || s->reason != POOL_WHY_FOREIGN)
        return false;
    if (!c->t.node[box->node].connected || !box->reported || c->t.slot_more[slot].late)
        adopt_not(out, "its box is not connected");
    else if (c->t.slot_more[slot].other)
        adopt_not(out, "another device is in it than the store has");
    else if (!d->epoch && d->state == DXPU_CONTROL_SLOT_KEPT)
        adopt_kept(c, slot, named, tenant, out);
    else if (s->owner != POOL_NONE)
        adopt_not(out, "it is kept for a lease: recover or discard it");
    else if (d->epoch && d->epoch == s->epoch)
        adopt_lent(c, slot, named, tenant, out);
    else if (d->epoch)
        adopt_not(out, "its box reports an epoch that another lease had since");
    else if (d->state == DXPU_CONTROL_SLOT_WIPED && s->lease == POOL_NONE)
        out->what = CORE_ADOPT_FREE;
    else if (d->state == DXPU_CONTROL_SLOT_WIPED)
        adopt_not(out, "it is wiped, and the store has a lease for it: release or replace that");
    else
        adopt_not(out, "its box does not know what data it has");
    return true;
}

/* Fills in a lease as its box and its host report it. */
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
    more->lent = a->lease;
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
    uint32_t port = port_of(c, slot, false, a);
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

/* Gives the data the whole retention time (M-97).  The time left in the store is the copy's, and
   the later epoch shows that the data were used since. */
static void retain_again(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    corei_slot *more = &c->t.slot_more[slot];
    c->t.slot[slot].stored_ms = 0;
    more->ran_ms = 0;
    more->counts = false;
    if (s->lease == POOL_NONE || !c->t.lease[s->lease].ended)
        return;
    core_lease *l = &c->t.lease[s->lease];
    l->stored_ms = l->ran_ms = 0;
    l->counts = false;
    corei_mark_changed(c, COREI_LEASE, s->lease);
}

/* The lease has no host, or the slot is retained for it: no order follows. */
static core_result adopt_back_kept(core *c, uint32_t slot)
{
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    int rc = pool_keep(c->t.pool, slot);
    if (rc != POOL_OK)
        return corei_pool_result(rc);
    c->t.slot[slot].repaired_empty = false;
    retain_again(c, slot);
    corei_event_slot(c, CORE_EVENT_LEASE_ADOPTED, slot,
                     "its box keeps that lease's data, under a later epoch than the store knew");
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
    return corei_commit(c);
}

core_result core_adopt(core *c, uint32_t slot, bool named, const char *tenant, core_adoption *out)
{
    uint32_t node = c->t.node[c->t.slot[slot].node].number, number = c->t.slot[slot].device.number;
    if (!core_may_adopt(c, slot, named, tenant, out))
        return corei_result(CORE_E_STATE, "only quarantined slots are adopted");
    if (out->what == CORE_ADOPT_NOT)
        return corei_result(CORE_E_STATE, "%s", out->why);
    if (out->what == CORE_ADOPT_FREE)
        return core_repair(c, slot); /* its box has verified that it is wiped */
    if (out->what == CORE_ADOPT_KEPT) {
        core_result kept = adopt_back_kept(c, slot);
        slot = core_find_slot(c, node, number);
        if (kept.code == CORE_OK && slot != CORE_NONE)
            corei_settle_slot(c, slot);
        return kept;
    }
    core_result result = corei_begin(c);
    const char *name = out->tenant;
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
