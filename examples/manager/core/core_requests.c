/* core_requests.c - what users and operators ask for
   SPDX-License-Identifier: MIT */
#include <string.h>

#include "core_internal.h"

enum { SECONDS_MAX = 1 << 30 }; /* of a lease: 34 years */

static core_result no_lease(uint64_t lease)
{
    return corei_result(CORE_E_UNKNOWN, "there is no lease %llx", (unsigned long long)lease);
}

static const core_result all_good = { CORE_OK, "" };

/* A name that is part of a key of the store. */
static bool is_name(const char *name)
{
    for (; *name; name++)
        if (*name <= ' ' || *name > '~')
            return false;
    return true;
}

static core_result check_slot(const core *c, uint32_t slot)
{
    return slot < c->t.pool->slots ? all_good
                                   : corei_result(CORE_E_UNKNOWN, "there is no such slot");
}

/* -- Leases -- */

static uint32_t find_key(const core *c, const char *tenant, const char *key)
{
    const corei_tables *t = &c->t;
    const corei_hash *h = &t->lease_by_key;
    uint32_t i = h->head[corei_hash_name(tenant, key) & h->mask];
    while (i != CORE_NONE && (strcmp(t->lease[i].key, key) != 0 ||
                              strcmp(t->tenant[t->pool->lease[i].tenant].name, tenant) != 0))
        i = h->next[i];
    return i;
}

/* Returns the tenant, added if it leases for the first time. */
uint32_t corei_tenant_for(core *c, const char *name)
{
    uint32_t tenant = core_find_tenant(c, name);
    if (tenant != CORE_NONE)
        return tenant;
    if (c->t.pool->tenants == c->t.pool->limits.tenants && corei_load(c).code != CORE_OK)
        return CORE_NONE;
    corei_tables *t = &c->t;
    if (!corei_hash_add(&t->tenant_by_name, corei_hash_name(name, ""), t->pool->tenants) ||
        pool_add_tenant(t->pool, c->set.default_quota, &tenant) != POOL_OK)
        return CORE_NONE;
    memcpy(t->tenant[tenant].name, name, strlen(name) + 1);
    t->tenant[tenant].no_direct = false;
    t->tenant[tenant].word = corei_tenant_word(c, name);
    return tenant;
}

/* Drops the newest tenant, which got nothing: else a client fills the tables under ever new
   names. */
void corei_drop_tenant(core *c, const char *name)
{
    corei_tables *t = &c->t;
    uint32_t tenant = core_find_tenant(c, name);
    if (tenant != CORE_NONE && pool_drop_tenant(t->pool, tenant) == POOL_OK)
        corei_hash_remove(&t->tenant_by_name, corei_hash_name(name, ""), tenant);
}

/* The key is known: for the same request, or for another one. */
static core_result create_again(const core *c, uint32_t index, const core_request *r,
                                uint64_t *lease)
{
    const corei_tables *t = &c->t;
    const pool_lease *l = &t->pool->lease[index];
    uint32_t host = l->host == POOL_NONE ? r->host : t->node[t->host_node[l->host]].number;
    if (host != r->host || strcmp(t->model[l->model].name, core_model_name(r->model)) != 0 ||
        l->count != r->count || l->need != r->need || t->lease[index].replace != r->replace ||
        strcmp(t->lease[index].attributes, r->attributes) != 0 || l->device != r->device ||
        l->exclusive != r->exclusive || l->apart != r->apart || l->peer != r->peer)
        return corei_result(CORE_E_STATE,
                            "lease %llx has this key and asks for something else; use another key",
                            (unsigned long long)pool_lease_number(t->pool, index));
    if (t->lease[index].ended)
        return corei_result(CORE_E_STATE,
                            "lease %llx has this key and has ended, and its data are kept; "
                            "recover it, release it, or use another key",
                            (unsigned long long)pool_lease_number(t->pool, index));
    *lease = pool_lease_number(t->pool, index);
    return all_good;
}

static core_result check_names(const core_request *r, const char *tenant)
{
    if (!is_name(tenant) || !is_name(r->key) || !is_name(r->attributes) ||
        r->seconds > SECONDS_MAX || r->replace > CORE_REPLACE_NO)
        return corei_result(CORE_E_ARG,
                            "names are printable ASCII without spaces, seconds are at most %d",
                            SECONDS_MAX);
    return all_good;
}

static core_result check_request(const core *c, const core_request *r, pool_request *out)
{
    uint32_t host = core_find_node(c, r->host), model = core_find_model(c, r->model);
    if (host == CORE_NONE || c->t.node[host].role != DXPU_CONTROL_ROLE_HOST)
        return corei_result(CORE_E_UNKNOWN, "node %u is not a host", r->host);
    if (model == CORE_NONE)
        return corei_result(CORE_E_UNKNOWN, "no box has the model %s; 'dxpu pool' lists the models",
                            r->model);
    out->host = c->t.node[host].pool_index;
    out->model = (uint16_t)model;
    out->count = r->count;
    out->need = r->need;
    out->filter = NULL;
    out->device = r->device;
    out->exclusive = r->exclusive;
    out->apart = r->apart;
    out->peer = r->peer;
    return r->peer ? corei_check_peer(c, r, out->tenant, out->host) : all_good;
}

/* Returns a slot that serves the request and has these attributes, but whose box is disconnected
   and may be back; or CORE_NONE. */
static uint32_t find_silent(const core *c, const pool_request *q, const char *attributes)
{
    for (uint32_t i = 0; i < c->t.pool->slots; i++)
        if (c->t.slot_more[i].silent && pool_serves(c->t.pool, q, i) &&
            !(q->peer && c->t.node[c->t.slot[i].node].no_direct) &&
            core_has_attributes(c->t.slot[i].device.attributes, attributes))
            return i;
    return CORE_NONE;
}

/* Counts unassigned slots that would be free if their boxes were not given up. */
static uint32_t count_gone(const core *c, uint16_t model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->t.pool->slots; i++) {
        const pool_slot *s = &c->t.pool->slot[i];
        count += s->model == model && s->state == POOL_BROKEN && s->reason == POOL_WHY_BOX &&
                 s->lease == POOL_NONE;
    }
    return count;
}

static core_result box_away(const core *c, uint32_t slot)
{
    uint32_t node = c->t.slot[slot].node;
    const core_node *n = &c->t.node[node];
    uint64_t gone_ms = c->t.node_more[node].gone_ms;
    uint64_t away_ms = c->unix_ms > n->since_unix_ms ? c->unix_ms - n->since_unix_ms : 0;
    uint64_t left_ms = gone_ms > c->mono_ms ? gone_ms - c->mono_ms : 0;
    if (n->connected)
        return corei_result(
            CORE_E_CAPACITY,
            "a box with free slots, %s, has not reported all of its slots; try again in a second",
            n->name);
    return corei_result(CORE_E_CAPACITY,
                        "a box with free slots, %s, has not reported for %llu s; try again: in "
                        "%llu s it no longer counts (--grace-ms)",
                        n->name, (unsigned long long)(away_ms / 1000),
                        (unsigned long long)(left_ms / 1000 + 1));
}

#define WITHHELD " (%u share a drive with data that are kept)"

/* Free, and bound by their boxes to none. */
static bool is_withheld(const core *c, uint32_t slot, corei_seen *seen)
{
    unsigned state = c->t.pool->slot[slot].state;
    return (state == POOL_FREE || state == POOL_SPARE) && corei_is_withheld_seen(c, slot, seen);
}

static core_result too_few(const core *c, uint32_t host, uint16_t model)
{
    uint32_t suspect = 0, withheld = 0;
    corei_seen seen = { 0 };
    for (uint32_t i = 0; i < c->t.pool->slots; i++) {
        suspect += c->t.pool->slot[i].model == model && corei_is_kept_from(c, host, i);
        withheld += c->t.pool->slot[i].model == model && is_withheld(c, i, &seen);
    }
    uint32_t drained = c->t.pool->model[model].count[POOL_DRAINED], gone = count_gone(c, model);
    uint32_t retained = c->t.pool->model[model].count[POOL_RETAINED];
    char broken[128] = "";
    if (suspect)
        return corei_result(CORE_E_CAPACITY,
                            "too few slots with this model are free: %u more are in boxes that "
                            "serve no lease now (dxpu list boxes: suspect); ask for fewer, or wait",
                            (unsigned)suspect);
    if (!drained && !gone && !retained && !withheld)
        return corei_pool_result(POOL_E_FREE);
    if (gone)
        snprintf(broken, sizeof broken, " (%u broken: box disconnected)", (unsigned)gone);
    if (retained)
        snprintf(broken + strlen(broken), sizeof broken - strlen(broken), " (%u retained)",
                 (unsigned)retained);
    if (withheld)
        snprintf(broken + strlen(broken), sizeof broken - strlen(broken), WITHHELD,
                 (unsigned)withheld);
    if (!drained && !gone)
        return corei_result(CORE_E_CAPACITY,
                            "too few slots with this model are free%s; ask for fewer, wait for a "
                            "release, or discard what is retained",
                            broken);
    if (!drained)
        return corei_result(CORE_E_CAPACITY,
                            "too few slots with this model are free%s; ask for fewer, wait for a "
                            "release, or bring the box back (dxpu list boxes)",
                            broken);
    return corei_result(CORE_E_CAPACITY,
                        "too few slots with this model are free%s, and %u are drained; ask for "
                        "fewer, wait for a release, or end a drain (dxpu drain BOX --off)",
                        broken, (unsigned)drained);
}

/* The same of those that have these attributes. */
static core_result too_few_such(const core *c, uint32_t host, uint16_t model,
                                const char *attributes)
{
    uint32_t have = 0, free = 0, suspect = 0, drained = 0, retained = 0, withheld = 0;
    char more[128] = "";
    corei_seen seen = { 0 };
    if (c->t.pool->exclusive) /* how many they keep from others is not to be counted */
        return corei_result(CORE_E_CAPACITY,
                            "too few slots of this model with %s are free for this tenant; ask for "
                            "fewer, or wait for a release",
                            attributes);
    for (uint32_t i = 0; i < c->t.pool->slots; i++) {
        const pool_slot *s = &c->t.pool->slot[i];
        if (s->model != model || !core_has_attributes(c->t.slot[i].device.attributes, attributes))
            continue;
        bool kept = corei_is_kept_from(c, host, i), held = is_withheld(c, i, &seen);
        have++;
        free += s->state == POOL_FREE && !kept && !held;
        withheld += held;
        suspect += kept;
        drained += s->state == POOL_DRAINED;
        retained += s->state == POOL_RETAINED;
    }
    if (suspect)
        snprintf(more, sizeof more, " (%u in boxes that are suspect)", (unsigned)suspect);
    if (drained)
        snprintf(more + strlen(more), sizeof more - strlen(more), " (%u drained)",
                 (unsigned)drained);
    if (retained)
        snprintf(more + strlen(more), sizeof more - strlen(more), " (%u retained)",
                 (unsigned)retained);
    if (withheld)
        snprintf(more + strlen(more), sizeof more - strlen(more), WITHHELD, (unsigned)withheld);
    return corei_result(CORE_E_CAPACITY,
                        "too few slots of this model with %s are free: %u of %u%s; 'dxpu list "
                        "slots' shows the attributes that there are",
                        attributes, (unsigned)free, (unsigned)have, more);
}

/* The same of slots that may be shared, or not: of other tenants' leases it says nothing. */
static core_result too_few_devices(const pool_request *q)
{
    static const char *const kinds[POOL_DEVICES] = { "slots", "slots with a device of their own",
                                                     "functions of shared devices" };
    return corei_result(CORE_E_CAPACITY,
                        "too few %s of this model are free%s; ask for fewer, wait for a release, "
                        "or ask for any device%s",
                        kinds[q->device],
                        q->exclusive ? " whose device no other tenant has a function of" : "",
                        q->exclusive ? ", not exclusive" : "");
}

/* Would it get slots where direct requests are forbidden? */
static bool is_for_direct(core *c, const core_request *r, const pool_request *q)
{
    pool_request any = *q;
    corei_wanted wanted;
    pool_choice choice;
    if (!r->peer || !c->t.no_directs)
        return false;
    any.filter = corei_filter(c, r->attributes, false, &wanted);
    return corei_choose(c, &any, &choice) == POOL_OK;
}

/* Of slots that others have it says nothing but that they do not serve. */
static core_result not_found(core *c, const core_request *r, const pool_request *q, int rc)
{
    if (is_for_direct(c, r, q))
        return corei_result(CORE_E_CAPACITY,
                            "too few slots of this model are free in boxes whose devices may reach "
                            "others directly; ask for fewer, wait for a release, or ask without a "
                            "peer");
    if (rc == POOL_E_PLACE && q->apart)
        return corei_result(CORE_E_CAPACITY, "enough slots are free, but not on as many devices "
                                             "where they are asked for; ask for fewer, elsewhere, "
                                             "or not apart");
    if (rc == POOL_E_PLACE)
        return corei_pool_result(rc);
    if (q->device || q->exclusive)
        return too_few_devices(q);
    return r->attributes[0] ? too_few_such(c, r->host, q->model, r->attributes)
                            : too_few(c, r->host, q->model);
}

static core_result over_quota(const core *c, const pool_request *q)
{
    const pool_tenant *t = &c->t.pool->tenant[q->tenant];
    return corei_result(
        CORE_E_QUOTA,
        "%s uses %u of %u slots and asks for %u%s; release a lease, discard what is "
        "retained, or ask for a higher quota",
        c->t.tenant[q->tenant].name, pool_used(c->t.pool, q->tenant), t->quota, q->count,
        q->exclusive ? ", exclusive, so that all functions of their devices count" : "");
}

/* The host has too few empty slots: the numbers that the policy's sentence lacks. */
static core_result over_host(const core *c, uint32_t host, unsigned asked)
{
    const pool_host *h = &c->t.pool->host[host];
    return corei_result(CORE_E_CAPACITY,
                        "%s has %u of %u slots empty, and %u are asked for; ask for fewer or name "
                        "another host",
                        c->t.node[c->t.host_node[host]].name, h->capacity - h->used, h->capacity,
                        asked);
}

/* A pool that is put back to an older state continues with the numbers of that moment, so none may
   be given before its time. */
core_result corei_may_number(const core *c)
{
    if (c->t.pool->serial < corei_serial_limit(c))
        return all_good;
    return corei_result(CORE_E_PACE,
                        "this manager has made more than %d leases a second since it started; "
                        "try again in a second",
                        COREI_SERIALS);
}

/* Chooses slots for the lease, and lends them. */
static core_result grant(core *c, const core_request *r, pool_request *q, pool_choice *choice,
                         uint64_t *lease)
{
    corei_tables *t = &c->t;
    core_result result = check_request(c, r, q);
    if (result.code == CORE_OK)
        result = corei_may_number(c);
    if (result.code != CORE_OK)
        return result;
    corei_wanted wanted;
    q->filter = corei_filter(c, r->attributes, r->peer != 0, &wanted);
    int rc = corei_choose(c, q, choice);
    q->filter = NULL; /* it ends here */
    uint32_t silent = CORE_NONE;
    if (rc == POOL_E_FREE || rc == POOL_E_PLACE)
        silent = find_silent(c, q, r->attributes);
    for (unsigned i = 0; rc == POOL_OK && i < choice->count && silent == CORE_NONE; i++)
        silent = corei_can_lend(c, choice->slot[i]) ? CORE_NONE : choice->slot[i];
    if (silent != CORE_NONE)
        return box_away(c, silent);
    if (rc == POOL_E_QUOTA)
        return over_quota(c, q);
    if (rc == POOL_E_HOST)
        return over_host(c, q->host, q->count);
    if (rc == POOL_E_FREE || rc == POOL_E_PLACE)
        return not_found(c, r, q, rc);
    if (rc == POOL_OK)
        rc = pool_grant(t->pool, q, choice, lease);
    return corei_pool_result(rc);
}

static core_result create_new(core *c, const core_request *r, const char *tenant, uint64_t *lease)
{
    corei_tables *t = &c->t;
    pool_request q;
    pool_choice choice;
    bool known = core_find_tenant(c, tenant) != CORE_NONE;
    core_result result = check_names(r, tenant);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    q.tenant = corei_tenant_for(c, tenant); /* first: models and hosts may be elsewhere then */
    if (q.tenant == CORE_NONE)
        return corei_pool_result(POOL_E_ROOM);
    result = grant(c, r, &q, &choice, lease);
    if (result.code != CORE_OK) {
        if (!known)
            corei_drop_tenant(c, tenant);
        return result;
    }
    core_lease *l = &t->lease[pool_lease_index(*lease)];
    memset(l, 0, sizeof *l);
    memcpy(l->key, r->key, sizeof l->key);
    memcpy(l->attributes, r->attributes, sizeof l->attributes);
    l->created_unix_ms = c->unix_ms;
    l->made_ms = c->mono_ms;
    l->expires_unix_ms = r->seconds ? corei_day_ms(c) + r->seconds * 1000 : 0;
    l->replace = r->replace;
    t->lease_seen[pool_lease_index(*lease)] = CORE_LEASE_PENDING;
    if (l->expires_unix_ms)
        corei_heap_set(&t->expiry, pool_lease_index(*lease), l->expires_unix_ms);
    bool told = !l->key[0] || corei_hash_add(&t->lease_by_key, corei_hash_name(tenant, l->key),
                                             pool_lease_index(*lease));
    if (!corei_take_ports(c, *lease) || !told) {
        corei_leave_ports(c, *lease);
        (void)corei_reload(c);
        return corei_result(CORE_E_CAPACITY, "%s", pool_error_text(POOL_E_HOST));
    }
    corei_event_lease(c, CORE_EVENT_LEASE_CREATED, *lease, "%u of %s%s", r->count, r->model,
                      r->exclusive ? ", exclusive" : "");
    corei_mark_changed(c, COREI_META, 0);
    corei_mark_changed(c, COREI_LEASE, pool_lease_index(*lease));
    for (unsigned i = 0; i < choice.count; i++) {
        t->slot[choice.slot[i]].served = false;
        corei_mark_changed(c, COREI_SLOT, choice.slot[i]);
    }
    return corei_commit(c);
}

core_result core_create(core *c, const core_request *r, uint64_t *lease, bool *existed)
{
    const char *tenant = r->tenant[0] ? r->tenant : "default";
    uint32_t index = r->key[0] ? find_key(c, tenant, r->key) : CORE_NONE;
    *lease = 0;
    *existed = index != CORE_NONE;
    if (*existed)
        return create_again(c, index, r, lease);
    core_result result = create_new(c, r, tenant, lease);
    if (result.code != CORE_OK)
        *lease = 0;
    return result;
}

core_result core_extend(core *c, uint64_t lease, uint64_t seconds)
{
    if (!pool_find_lease(c->t.pool, lease))
        return no_lease(lease);
    if (seconds > SECONDS_MAX)
        return corei_result(CORE_E_ARG, "%d seconds at most; 0: no end", SECONDS_MAX);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    uint32_t index = pool_lease_index(lease);
    core_lease *l = &c->t.lease[index];
    bool ended = l->ended;
    l->ended = l->counts = false;
    l->stored_ms = l->ran_ms = 0;
    l->expires_unix_ms = seconds ? corei_day_ms(c) + seconds * 1000 : 0;
    if (seconds)
        corei_heap_set(&c->t.expiry, index, l->expires_unix_ms);
    else
        corei_heap_remove(&c->t.expiry, index);
    char text[40] = "has no end";
    if (seconds)
        snprintf(text, sizeof text, "ends in %llu s", (unsigned long long)seconds);
    corei_event_lease(c, CORE_EVENT_LEASE_EXTENDED, lease, "%s%s", text,
                      ended ? "; it is back, parked: attach it" : "");
    corei_mark_changed(c, COREI_LEASE, index);
    return corei_commit(c);
}

core_result core_release(core *c, uint64_t lease, bool keep)
{
    if (!pool_find_lease(c->t.pool, lease))
        return no_lease(lease);
    if (keep && c->t.lease[pool_lease_index(lease)].ended)
        return corei_result(CORE_E_STATE, "the lease has ended, and its data are kept; recover it, "
                                          "or release it without them");
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    if (keep && corei_lease_keeps_data(c, lease))
        corei_retire(c, lease, CORE_EVENT_LEASE_KEPT, "released");
    else
        corei_end_lease(c, lease, CORE_EVENT_LEASE_RELEASED, POOL_WHY_RELEASE);
    return corei_commit(c);
}

static void mark_lease(core *c, uint64_t lease)
{
    uint32_t slot[POOL_COUNT_MAX];
    unsigned n = pool_lease_slots(c->t.pool, lease, slot);
    corei_mark_changed(c, COREI_LEASE, pool_lease_index(lease));
    for (unsigned i = 0; i < n; i++)
        corei_mark_changed(c, COREI_SLOT, slot[i]);
}

core_result core_park(core *c, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    if (!l)
        return no_lease(lease);
    if (l->host == POOL_NONE)
        return corei_result(CORE_E_STATE, "the lease is parked already");
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    corei_event_lease(c, CORE_EVENT_LEASE_PARKED, lease, "its data stay");
    corei_leave_ports(c, lease);
    (void)pool_park(c->t.pool, lease);
    c->t.lease[pool_lease_index(lease)].kept = true;
    c->t.lease_seen[pool_lease_index(lease)] = CORE_LEASE_PARKED;
    mark_lease(c, lease);
    return corei_commit(c);
}

/* Its data are in these boxes: it waits for them and gets no other slots. */
static core_result check_boxes(const core *c, const pool_lease *l)
{
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next) {
        const core_node *box = &c->t.node[c->t.slot[i].node];
        if (box->draining || !box->connected)
            return corei_result(box->draining ? CORE_E_STATE : CORE_E_AWAY,
                                "the lease's data are in box %u, which is %s; %s, or release it",
                                box->number, box->draining ? "draining" : "not connected",
                                box->draining ? "end the drain" : "wait until it is back");
    }
    return all_good;
}

/* A quarantined slot has the epoch of its box, which adoption compares: under a later one it would
   belong to no lease.  Another lease may run there, and a box that just connected may yet report
   it. */
static core_result check_known(const core *c, const pool_lease *l)
{
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next) {
        unsigned box = c->t.node[c->t.slot[i].node].number, number = c->t.slot[i].device.number;
        const dxpu_control_device *d = &c->t.slot[i].device;
        bool has = d->epoch || d->state == DXPU_CONTROL_SLOT_KEPT;
        if (c->t.pool->slot[i].state == POOL_QUARANTINED && has)
            return corei_result(
                CORE_E_STATE,
                "slot %u.%u of the lease is quarantined: its box knows a later lease; an "
                "operator adopts it (dxpu adopt %u.%u), if need be after a release "
                "of this lease, which wipes nothing there",
                box, number, box, number);
        if (c->t.slot_more[i].late || !c->t.slot[i].reported)
            return corei_result(CORE_E_AWAY,
                                "box %u has not reported slot %u of the lease; wait until it has",
                                box, number);
    }
    return all_good;
}

core_result core_attach(core *c, uint64_t lease, uint32_t host)
{
    uint32_t node = core_find_node(c, host);
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    if (!l)
        return no_lease(lease);
    if (node == CORE_NONE || c->t.node[node].role != DXPU_CONTROL_ROLE_HOST)
        return corei_result(CORE_E_UNKNOWN, "node %u is not a host", host);
    if (c->t.lease[pool_lease_index(lease)].ended)
        return corei_result(CORE_E_STATE, "the lease has ended; recover it first");
    core_result result = l->host == POOL_NONE ? check_boxes(c, l) : all_good;
    if (result.code == CORE_OK && l->host == POOL_NONE)
        result = check_known(c, l);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    int rc = pool_attach(c->t.pool, lease, c->t.node[node].pool_index);
    if (rc == POOL_E_STATE)
        return corei_result(CORE_E_STATE, "the lease has a host; park it first");
    if (rc == POOL_E_HOST)
        return over_host(c, c->t.node[node].pool_index, pool_find_lease(c->t.pool, lease)->count);
    if (rc != POOL_OK)
        return corei_pool_result(rc);
    if (!corei_take_ports(c, lease)) {
        (void)corei_reload(c);
        return corei_result(CORE_E_CAPACITY, "%s", pool_error_text(POOL_E_HOST));
    }
    c->t.lease_seen[pool_lease_index(lease)] = CORE_LEASE_PENDING;
    corei_event_lease(c, CORE_EVENT_LEASE_ATTACHED, lease, "to node %u", host);
    mark_lease(c, lease);
    return corei_commit(c);
}

/* -- Boxes and slots -- */

/* Is another slot of its lease, before it in the box, still there?  Then it was looked at
   already. */
static bool stayed(const core *c, uint32_t first, uint32_t slot)
{
    while (first < slot && c->t.pool->slot[first].lease != c->t.pool->slot[slot].lease)
        first++;
    return first < slot;
}

/* Moves each lease's slot in the box that has another place, and may be wiped here, in one commit.
   Leases that need many slots together go first. */
static core_result move_all(core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    const pool *p = c->t.pool;
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = n->first; i < n->first + n->total; i++) {
            uint32_t lease = p->slot[i].lease;
            if (lease == POOL_NONE || stayed(c, n->first, i))
                continue;
            unsigned need = p->lease[lease].need;
            if ((need == POOL_SAME_BOX || need == POOL_SAME_GROUP) == !pass)
                (void)corei_move_out(c, i); /* else it stays: *left counts it */
        }
    return corei_commit(c);
}

core_result core_drain(core *c, uint32_t number, bool on, bool move, unsigned *left)
{
    uint32_t node = corei_find_box(c, number);
    *left = 0;
    if (node == CORE_NONE)
        return corei_result(CORE_E_UNKNOWN, "node %u is not a box", number);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    core_node *n = &c->t.node[node];
    n->draining = on;
    if (n->total)
        (void)pool_drain(c->t.pool, n->pool_index, on, left);
    corei_event_node(c, CORE_EVENT_NODE_DRAIN, node, on ? "no new leases" : "back in service");
    corei_mark_changed(c, COREI_NODE, node);
    corei_touch(c, corei_node_unit(c, node));
    result = corei_commit(c);
    if (result.code == CORE_OK)
        corei_hide_silent(&c->t, node);
    if (result.code == CORE_OK && on && move && *left)
        result = move_all(c, node);
    *left = 0;
    n = &c->t.node[node];
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        *left += c->t.pool->slot[i].lease != POOL_NONE || c->t.pool->slot[i].owner != POOL_NONE;
    return result;
}

core_result core_replace(core *c, uint32_t slot, pool_reason why, bool force)
{
    core_result result = check_slot(c, slot);
    if (result.code == CORE_OK && c->t.pool->slot[slot].lease == POOL_NONE)
        result = corei_result(CORE_E_STATE,
                              "the slot is %s and no lease has it; only leased ones "
                              "are replaced",
                              pool_state_name(c->t.pool->slot[slot].state));
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code == CORE_OK)
        result = corei_replace(c, slot, why, force);
    return result.code == CORE_OK ? corei_commit(c) : result;
}

/* A slot that keeps data for a lease that it left. */
static core_result check_owned(const core *c, uint32_t slot)
{
    core_result result = check_slot(c, slot);
    if (result.code == CORE_OK && core_slot_state(c, slot) != c->t.pool->slot[slot].state)
        result = corei_result(CORE_E_STATE, "the slot's lease has ended: it is recovered, or "
                                            "released, with all of its slots");
    else if (result.code == CORE_OK && c->t.pool->slot[slot].owner == POOL_NONE)
        result = corei_result(CORE_E_STATE, "the slot is %s, and keeps no data of a lease it left",
                              pool_state_name(c->t.pool->slot[slot].state));
    return result;
}

/* Does its box have there what the slot is retained for? */
static core_result check_box_keeps(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const core_node *box = &c->t.node[c->t.slot[slot].node];
    const dxpu_control_device *d = &c->t.slot[slot].device;
    if (s->state != POOL_RETAINED)
        return corei_result(CORE_E_STATE,
                            "the slot is %s (%s); its lease can have it back when it "
                            "works",
                            pool_state_name(s->state), pool_reason_text(s->reason));
    if (box->draining || !box->connected || !c->t.slot[slot].reported)
        return corei_result(box->draining ? CORE_E_STATE : CORE_E_AWAY,
                            "its box, node %u, is %s; %s", box->number,
                            box->draining ? "draining" : "not connected",
                            box->draining ? "end the drain" : "wait until it is back");
    bool kept = d->state == DXPU_CONTROL_SLOT_KEPT && d->epoch_seen <= s->epoch;
    if (!kept && (!d->epoch || d->epoch > s->epoch))
        return corei_result(
            CORE_E_STATE,
            "its box reports the slot as %s, so the owner of its data is unknown; if they are the "
            "lease's, run dxpu repair --keep; else put the box's state back, or discard them",
            dxpu_control_state_name(d->state));
    return all_good;
}

/* A recovered slot goes to the host of its lease, but not where the store may be an old copy, in
   which that host is no longer the lease's (M-179). */
static core_result check_host(const core *c, uint32_t lease)
{
    const pool_lease *l = &c->t.pool->lease[lease];
    for (uint32_t i = l->host == POOL_NONE ? POOL_NONE : l->first; i != POOL_NONE;
         i = c->t.pool->slot[i].next) {
        const pool_slot *s = &c->t.pool->slot[i];
        unsigned box = c->t.node[c->t.slot[i].node].number, number = c->t.slot[i].device.number;
        bool later = s->state == POOL_QUARANTINED && s->reason == POOL_WHY_FOREIGN &&
                     !corei_is_unknown(&c->t.slot[i].device);
        if (!c->t.slot[i].reported)
            return corei_result(CORE_E_AWAY,
                                "box %u has not reported slot %u of the lease; wait until it has, "
                                "or park the lease",
                                box, number);
        if (later || corei_is_kept(c, i))
            return corei_result(CORE_E_STATE,
                                "the box of slot %u.%u of the lease knows a later lease; the host "
                                "may be another tenant's by now: park the lease first",
                                box, number);
    }
    return all_good;
}

static core_result check_recover(const core *c, uint32_t slot)
{
    core_result result = check_owned(c, slot);
    if (result.code == CORE_OK && c->t.lease[c->t.pool->slot[slot].owner].ended)
        result = corei_result(CORE_E_STATE, "its lease has ended; recover the lease first");
    if (result.code == CORE_OK)
        result = check_box_keeps(c, slot);
    return result.code == CORE_OK ? check_host(c, c->t.pool->slot[slot].owner) : result;
}

core_result core_recover(core *c, uint32_t slot)
{
    core_result result = check_recover(c, slot);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code == CORE_OK)
        result = corei_recover(c, slot);
    return result.code == CORE_OK ? corei_commit(c) : result;
}

/* Puts the slots that left the lease first last: of those of one place, the last one stays there.
   A lease gets later slots under later epochs. */
static void sort_newest_first(const pool *p, uint32_t slot[POOL_COUNT_MAX], unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        for (unsigned j = i; j && p->slot[slot[j]].epoch > p->slot[slot[j - 1]].epoch; j--) {
            uint32_t newer = slot[j];
            slot[j] = slot[j - 1];
            slot[j - 1] = newer;
        }
    }
}

core_result core_recover_all(core *c, uint64_t lease)
{
    uint32_t slot[POOL_COUNT_MAX];
    unsigned count = pool_lease_retained(c->t.pool, lease, slot);
    core_result result = count ? all_good
                               : corei_result(CORE_E_STATE, "nothing is retained for lease %llx",
                                              (unsigned long long)lease);
    for (unsigned i = 0; i < count && result.code == CORE_OK; i++) {
        core_result one = check_recover(c, slot[i]);
        if (one.code != CORE_OK)
            result = corei_result(one.code, "slot %u.%u: %.250s",
                                  c->t.node[c->t.slot[slot[i]].node].number,
                                  c->t.slot[slot[i]].device.number, one.text);
    }
    if (result.code == CORE_OK)
        result = corei_begin(c);
    sort_newest_first(c->t.pool, slot, count);
    for (unsigned i = 0; i < count && result.code == CORE_OK; i++)
        result = corei_recover(c, slot[i]);
    return result.code == CORE_OK ? corei_commit(c) : result;
}

core_result core_discard(core *c, uint32_t slot)
{
    core_result result = check_owned(c, slot);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    corei_discard(c, slot, POOL_WHY_DISCARD);
    return corei_commit(c);
}

/* Breaks one slot, in a transaction.  False: it is broken already. */
static bool break_one(core *c, uint32_t slot, pool_reason why)
{
    corei_show_silent(&c->t, slot);
    if (pool_break(c->t.pool, slot, why) != POOL_OK)
        return false;
    corei_event_slot(c, CORE_EVENT_SLOT_BROKEN, slot, "%s", pool_reason_text(why));
    corei_mark_changed(c, COREI_SLOT, slot);
    return true;
}

core_result core_break(core *c, uint32_t slot, pool_reason why)
{
    core_result result = check_slot(c, slot);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    if (!break_one(c, slot, why))
        return corei_result(CORE_E_STATE, "the slot is %s already (%s); repair it when it works",
                            pool_state_name(c->t.pool->slot[slot].state),
                            pool_reason_text(c->t.pool->slot[slot].reason));
    result = corei_commit(c);
    if (result.code == CORE_OK)
        corei_settle_slot(c, slot);
    return result;
}

/* Breaks the device's slots that were working, in changes of as many as one has events.  Gives
   their numbers; the first *stored are broken in the store, whatever the result. */
static core_result break_all(core *c, uint32_t node, uint16_t device, pool_reason why,
                             uint16_t broken[POOL_FUNCTIONS_MAX], unsigned *stored)
{
    core_result result = corei_begin(c);
    unsigned count = 0;
    *stored = 0;
    for (unsigned i = 0; result.code == CORE_OK && i < POOL_FUNCTIONS_MAX; i++) {
        uint32_t slot = core_find_slot(c, node, device + i);
        if (slot == CORE_NONE || c->t.pool->slot[slot].device != device || !break_one(c, slot, why))
            continue;
        broken[count++] = (uint16_t)(device + i);
        if (count - *stored < COREI_TX_EVENTS)
            continue;
        result = corei_commit(c);
        *stored = result.code == CORE_OK ? count : *stored;
        if (result.code == CORE_OK)
            result = corei_begin(c);
    }
    if (result.code == CORE_OK && count > *stored)
        result = corei_commit(c);
    *stored = result.code == CORE_OK ? count : *stored;
    return result;
}

core_result core_break_device(core *c, uint32_t slot, pool_reason why)
{
    core_result result = check_slot(c, slot);
    if (result.code != CORE_OK)
        return result;
    if (!c->t.pool->slot[slot].device)
        return core_break(c, slot, why);
    uint32_t node = c->t.node[c->t.slot[slot].node].number;
    uint16_t broken[POOL_FUNCTIONS_MAX];
    unsigned count;
    result = break_all(c, node, c->t.pool->slot[slot].device, why, broken, &count);
    if (result.code == CORE_OK && !count)
        return corei_result(CORE_E_STATE, "all functions of the device are broken or quarantined "
                                          "already; repair them when it works");
    for (unsigned i = 0; i < count; i++) { /* tables may be others now */
        uint32_t other = core_find_slot(c, node, broken[i]);
        if (other != CORE_NONE)
            corei_settle_slot(c, other);
    }
    return result;
}

/* Has hosts give up a lease which the store did not know. */
static void own_ports(core *c, uint32_t slot)
{
    corei_tables *t = &c->t;
    for (uint32_t i = 0; i < t->ports; i++)
        if (t->port[i].foreign && t->port[i].device.epoch == t->pool->slot[slot].epoch) {
            t->port[i].foreign = false;
            t->port_more[i].before = slot;
            t->slot_more[slot].port = i;
        }
}

bool corei_repair_finds_data(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const core_slot *box = &c->t.slot[slot];
    return s->state == POOL_BROKEN && s->lease == POOL_NONE && !s->dirty && box->reported &&
           box->device.state == DXPU_CONTROL_SLOT_EMPTY;
}

core_result core_repair(core *c, uint32_t slot)
{
    core_result result = check_slot(c, slot);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    const pool_slot *s = &c->t.pool->slot[slot];
    const core_slot *box = &c->t.slot[slot];
    if (!c->t.node[box->node].connected && /* its medium is not known */
        ((s->state == POOL_BROKEN && s->reason == POOL_WHY_BOX) ||
         (s->lease == POOL_NONE && s->dirty)))
        return corei_result(CORE_E_AWAY, "its box is not connected; repair it when that is back");
    if (corei_repair_finds_data(c, slot))
        (void)pool_taint(c->t.pool, slot, s->epoch ? s->epoch : c->t.pool->epoch + 1, true);
    bool decided = s->state == POOL_BROKEN && s->wipe && !box->repaired_empty; /* before this */
    if (pool_repair(c->t.pool, slot, POOL_WHY_OPERATOR) != POOL_OK)
        return corei_result(CORE_E_STATE,
                            s->state == POOL_QUARANTINED
                                ? "the slot is %s and a lease has it; keep its data (dxpu repair "
                                  "--keep), replace it, or release that lease, then repair"
                                : "the slot is %s; only broken and quarantined ones are repaired",
                            pool_state_name(s->state));
    corei_event_slot(c, CORE_EVENT_SLOT_REPAIRED, slot, "declared by an operator");
    own_ports(c, slot);
    c->t.slot[slot].repaired_empty =
        s->state == POOL_WIPING && !decided && box->device.state == DXPU_CONTROL_SLOT_EMPTY;
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
    result = corei_commit(c);
    if (result.code != CORE_OK)
        return result;
    c->t.slot_more[slot].repair_epoch = s->state == POOL_WIPING ? s->epoch : 0;
    c->t.slot_more[slot].repair_instance = c->t.node[c->t.slot[slot].node].instance;
    corei_hide_silent(&c->t, box->node);
    corei_settle_slot(c, slot);
    return result;
}

/* Is what its box calls `empty` on the medium that it served the slot's lease from? */
static core_result check_keep(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const core_slot *box = &c->t.slot[slot];
    if ((s->state != POOL_QUARANTINED && s->state != POOL_RETAINED) ||
        (s->lease == POOL_NONE && s->owner == POOL_NONE))
        return corei_result(CORE_E_STATE,
                            "the slot is %s%s; what a quarantined or retained slot "
                            "has of a lease is kept",
                            pool_state_name(s->state),
                            s->state == POOL_QUARANTINED ? ", and its lease is unknown" : "");
    if (!c->t.node[box->node].connected || !box->reported)
        return corei_result(CORE_E_AWAY, "its box is not connected; keep it when that is back");
    if (!corei_is_unknown(&box->device) || box->device.epoch_seen || !box->served)
        return corei_result(CORE_E_STATE,
                            "its box reports the slot as %s; only the data of a lease that was up "
                            "when the box lost its state can be kept",
                            dxpu_control_state_name(box->device.state));
    if (!box->medium || box->medium != box->device.medium)
        return corei_result(CORE_E_STATE, "its box %s; put the lease's file or disk back",
                            box->medium && box->device.medium
                                ? "has another medium there than when it served the lease"
                                : "did not say on which medium the lease's data were");
    return all_good;
}

core_result core_keep(core *c, uint32_t slot)
{
    core_result result = check_slot(c, slot);
    if (result.code == CORE_OK)
        result = check_keep(c, slot);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    (void)pool_keep(c->t.pool, slot);
    corei_event_slot(c, CORE_EVENT_SLOT_REPAIRED, slot,
                     "declared by an operator; its data are the lease's");
    corei_mark_changed(c, COREI_SLOT, slot);
    corei_touch_slot(c, slot);
    result = corei_commit(c);
    if (result.code != CORE_OK)
        return result;
    c->t.slot_more[slot].agreed = true;
    corei_settle_slot(c, slot);
    return result;
}

core_result core_reset(core *c, uint32_t slot)
{
    core_result result = check_slot(c, slot);
    if (result.code != CORE_OK)
        return result;
    if (!c->t.node[c->t.slot[slot].node].connected)
        return corei_result(CORE_E_AWAY, "its box is not connected");
    result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    corei_event_slot(c, CORE_EVENT_SLOT_RESET, slot, "requested by an operator");
    result = corei_commit(c);
    if (result.code != CORE_OK)
        return result;
    c->t.slot_more[slot].reset = true;
    c->t.slot_more[slot].reset_epoch = c->t.slot[slot].device.epoch;
    corei_touch(c, corei_slot_unit(slot));
    return all_good;
}

/* -- The pool -- */

static core_result check_forget(const core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    bool leased = false, retained = false;
    if (n->connected || c->t.node_more[node].told) /* or it reports what it has, part by part */
        return corei_result(CORE_E_STATE, "node %u is connected; stop its proxy first", n->number);
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        if (n->role == DXPU_CONTROL_ROLE_BOX) {
            leased = leased || c->t.pool->slot[i].lease != POOL_NONE;
            retained = retained || c->t.pool->slot[i].owner != POOL_NONE;
        } else {
            leased = leased || c->t.port[i].slot != CORE_NONE;
        }
    if (retained)
        return corei_result(
            CORE_E_STATE,
            "node %u retains data of leases; discard them, or release the leases, first",
            n->number);
    return leased ? corei_result(CORE_E_STATE, "node %u has leases; release them first", n->number)
                  : all_good;
}

core_result core_forget(core *c, uint32_t number)
{
    uint32_t node = core_find_node(c, number);
    if (node == CORE_NONE)
        return corei_result(CORE_E_UNKNOWN, "there is no node %u", number);
    core_result result = check_forget(c, node);
    if (result.code == CORE_OK)
        result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    const core_node *n = &c->t.node[node];
    corei_event_node(c, CORE_EVENT_NODE_FORGOTTEN, node, "%s", n->name);
    corei_mark_gone(c, "node/%u", number);
    for (uint32_t i = 1; n->role == DXPU_CONTROL_ROLE_BOX && i <= n->total; i++)
        corei_mark_gone(c, "slot/%u.%u", number, i);
    corei_mark_changed(c, COREI_META, 0);
    result = corei_commit(c);
    if (result.code != CORE_OK)
        return result;
    c->full = false;
    c->shares_no_more = c->shares;
    result = corei_reload(c);
    corei_reach_forget(c, number, ""); /* a host misses no box that is no more */
    return result;
}

static bool is_stranger(const core *c, uint32_t node, uint64_t away_ms)
{
    const core_node *n = &c->t.node[node];
    return !n->used && !n->connected && c->unix_ms >= n->since_unix_ms + away_ms &&
           check_forget(c, node).code == CORE_OK;
}

/* Marks records of strangers from this node on, in a transaction, as many as fit.  Returns the next
   node. */
static uint32_t mark_strangers(core *c, uint32_t node, uint64_t away_ms, uint32_t *count)
{
    for (; node < c->t.nodes && c->gones + POOL_BOX_SLOTS_MAX < COREI_MARKS_MAX; node++) {
        const core_node *n = &c->t.node[node];
        if (!is_stranger(c, node, away_ms))
            continue;
        corei_mark_gone(c, "node/%u", n->number);
        for (uint32_t i = 1; n->role == DXPU_CONTROL_ROLE_BOX && i <= n->total; i++)
            corei_mark_gone(c, "slot/%u.%u", n->number, i);
        ++*count;
    }
    return node;
}

core_result core_forget_unused(core *c, uint64_t away_ms, uint32_t *count)
{
    uint32_t node = 0, found;
    *count = 0;
    while (node < c->t.nodes) {
        core_result result = corei_begin(c);
        if (result.code != CORE_OK)
            return result;
        found = 0;
        node = mark_strangers(c, node, away_ms, &found);
        if (!found)
            continue;
        (void)corei_event(c, CORE_EVENT_NODE_FORGOTTEN, "%u that never had a lease", found);
        corei_mark_changed(c, COREI_META, 0);
        result = corei_commit(c);
        if (result.code != CORE_OK)
            return result;
        *count += found;
        c->full = false;
        c->shares_no_more = c->shares;
    }
    return *count ? corei_reload(c) : all_good;
}

core_result core_forget_key(core *c, uint32_t number)
{
    uint32_t node = core_find_node(c, number);
    if (node == CORE_NONE)
        return corei_result(CORE_E_UNKNOWN, "there is no node %u", number);
    if (c->t.node[node].connected)
        return corei_result(CORE_E_STATE, "node %u is connected under its key; stop it first",
                            number);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    c->t.node[node].keyed = c->t.node[node].sealed = false;
    c->t.node_more[node].party = 0;
    corei_event_node(c, CORE_EVENT_NODE_KEY, node,
                     "the next key that it registers with is its key");
    corei_mark_changed(c, COREI_NODE, node);
    return corei_commit(c);
}

core_result core_set_owner(core *c, uint32_t number, const char *tenant)
{
    uint32_t node = core_find_node(c, number);
    if (node == CORE_NONE || c->t.node[node].role != DXPU_CONTROL_ROLE_HOST)
        return corei_result(CORE_E_UNKNOWN, "node %u is not a host", number);
    if (strlen(tenant) >= CORE_NAME_BYTES || !is_name(tenant))
        return corei_result(CORE_E_ARG, "a tenant's name is 1 to %d printable characters",
                            CORE_NAME_BYTES - 1);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    memcpy(c->t.node[node].owner, tenant, strlen(tenant) + 1);
    core_event *e = corei_event(c, CORE_EVENT_NODE_OWNER, "%s has %s%s", c->t.node[node].name,
                                tenant[0] ? "the owner " : "no owner", tenant);
    e->node = number;
    memcpy(e->tenant, tenant, strlen(tenant) + 1);
    corei_mark_changed(c, COREI_NODE, node);
    return corei_commit(c);
}

static void set_quota(core *c, uint32_t tenant, uint32_t quota)
{
    const char *name = c->t.tenant[tenant].name;
    (void)pool_set_quota(c->t.pool, tenant, quota);
    core_event *e = quota == POOL_NONE ? corei_event(c, CORE_EVENT_TENANT_SET, "%s: no quota", name)
                                       : corei_event(c, CORE_EVENT_TENANT_SET,
                                                     "%s: a quota of %u slots", name, quota);
    memcpy(e->tenant, name, strlen(name) + 1);
}

core_result core_set_tenant(core *c, const char *name, uint32_t quota)
{
    return core_change_tenant(c, name, &quota, NULL);
}

core_result core_change_tenant(core *c, const char *name, const uint32_t *quota, const bool *direct)
{
    if (!name[0] || strlen(name) >= CORE_NAME_BYTES || !is_name(name))
        return corei_result(CORE_E_ARG, "a tenant's name is 1 to %d printable characters",
                            CORE_NAME_BYTES - 1);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    uint32_t tenant = corei_tenant_for(c, name);
    if (tenant == CORE_NONE)
        return corei_result(CORE_E_CAPACITY, "%s", pool_error_text(POOL_E_ROOM));
    if (quota)
        set_quota(c, tenant, *quota);
    bool before = !c->t.tenant[tenant].no_direct, changes = direct && *direct != before;
    if (direct) {
        core_event *e =
            corei_event(c, CORE_EVENT_TENANT_SET,
                        *direct ? "%s: its devices may reach one another directly"
                                : "%s: its devices reach one another through hosts alone",
                        name);
        memcpy(e->tenant, name, strlen(name) + 1);
        c->t.tenant[tenant].no_direct = !*direct;
    }
    if (changes)
        c->t.no_directs += *direct ? UINT32_MAX : 1;
    corei_mark_changed(c, COREI_TENANT, tenant);
    result = corei_commit(c);
    if (result.code == CORE_OK && changes)
        corei_touch_leased(c);
    return result;
}

core_result core_set_spares(core *c, const char *model, uint32_t count)
{
    uint32_t index = core_find_model(c, model);
    if (index == CORE_NONE)
        return corei_result(CORE_E_UNKNOWN, "no box has the model %s; 'dxpu pool' lists the models",
                            model);
    core_result result = corei_begin(c);
    if (result.code != CORE_OK)
        return result;
    (void)pool_set_spares(c->t.pool, (uint16_t)index, count);
    (void)corei_event(c, CORE_EVENT_SPARES_SET, "%u spares of %s", count, model);
    if (count)
        corei_mark_changed(c, COREI_SPARES, index);
    else
        corei_mark_gone(c, "spares/%s", c->t.model[index].name);
    const char *was = core_model_was(c->t.model[index].name);
    if (was) /* its record may be there under that name */
        corei_mark_gone(c, "spares/%s", was);
    return corei_commit(c);
}
