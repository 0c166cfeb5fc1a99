/* core.c - the pool as the manager knows it: opening, time, views
   SPDX-License-Identifier: MIT */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"
#include "store_copy.h"

core_result corei_result(core_code code, const char *format, ...)
{
    core_result r = { code, "" };
    va_list args;
    va_start(args, format);
    vsnprintf(r.text, sizeof r.text, format, args);
    va_end(args);
    return r;
}

/* What the policy refused, for users. */
core_result corei_pool_result(int rc)
{
    switch (rc) {
    case POOL_OK:
        return (core_result){ CORE_OK, "" };
    case POOL_E_ARG:
        return corei_result(CORE_E_ARG, "%s", pool_error_text(rc));
    case POOL_E_UNKNOWN:
        return corei_result(CORE_E_UNKNOWN, "%s", pool_error_text(rc));
    case POOL_E_QUOTA:
        return corei_result(CORE_E_QUOTA, "%s", pool_error_text(rc));
    case POOL_E_STATE:
        return corei_result(CORE_E_STATE, "%s", pool_error_text(rc));
    default:
        return corei_result(CORE_E_CAPACITY, "%s", pool_error_text(rc));
    }
}

/* -- Opening -- */

void core_settings_default(core_settings *set)
{
    memset(set, 0, sizeof *set);
    set->grace_ms = CORE_GRACE_MS;
    set->reach_ms = CORE_REACH_MS;
    set->retention_ms = CORE_RETENTION_S * 1000u;
    set->default_quota = POOL_NONE;
    set->events = 10000;
    set->nodes = 65536;
    set->slots = 1048576;
    set->word_bits = UINT64_MAX;
}

core *core_open(store *s, const core_settings *set, uint64_t unix_ms, uint64_t mono_ms,
                core_result *why)
{
    core *c = calloc(1, sizeof *c);
    if (!c || !set->events || !corei_history_init(&c->history, set->events)) {
        *why = set->events ? corei_result(CORE_E_MEMORY, "out of memory")
                           : corei_result(CORE_E_ARG, "at least one event is kept");
        if (c)
            corei_history_free(&c->history);
        free(c);
        return NULL;
    }
    c->store = s;
    c->set = *set;
    c->save_ms = UINT64_MAX;
    c->unix_ms = unix_ms;
    c->mono_ms = c->open_ms = mono_ms;
    *why = corei_load_events(c);
    if (why->code == CORE_OK)
        *why = corei_load(c);
    if (why->code == CORE_OK) {
        corei_history_sort(c);
        return c;
    }
    core_close(c);
    return NULL;
}

void core_close(core *c)
{
    if (!c)
        return;
    if (c->t.pool && !c->dead && !c->failed && !c->set.reader)
        corei_retain_save(c);
    corei_tables_free(&c->t);
    corei_history_free(&c->history);
    free(c);
}

uint64_t core_term(core *c)
{
    if (!c->term_stored && corei_begin(c).code == CORE_OK) {
        corei_tell_allowed(c);
        corei_mark_changed(c, COREI_META, 0);
        c->term_stored = corei_commit(c).code == CORE_OK;
    }
    return c->term_stored ? c->term : 0;
}

core_result core_snapshot(core *c, char **text, size_t *bytes)
{
    store_fault f;
    uint64_t records;
    *text = NULL;
    *bytes = 0;
    if (c->dead || c->failed)
        return corei_result(CORE_E_STORE, "the store cannot be written, so a copy may lack what it "
                                          "has; try again when it can");
    if (store_export_text(c->store, text, bytes, &records, &f) == STORE_OK)
        return (core_result){ CORE_OK, "" };
    free(*text);
    *text = NULL;
    return corei_result(CORE_E_STORE, "%.250s", f.text);
}

bool core_is_dead(const core *c)
{
    return c->dead;
}

bool core_store_failed(const core *c, char text[256])
{
    memcpy(text, c->failure, sizeof c->failure);
    return c->failed;
}

/* -- Views -- */

const pool *core_pool(const core *c)
{
    return c->t.pool;
}

const core_node *core_nodes(const core *c, uint32_t *count)
{
    *count = c->t.nodes;
    return c->t.node;
}

const core_slot *core_slots(const core *c, uint32_t *count)
{
    *count = c->t.pool->slots;
    return c->t.slot;
}

const core_port *core_ports(const core *c, uint32_t *count)
{
    *count = c->t.ports;
    return c->t.port;
}

const core_lease *core_leases(const core *c)
{
    return c->t.lease;
}

const core_tenant *core_tenants(const core *c, uint32_t *count)
{
    *count = c->t.pool->tenants;
    return c->t.tenant;
}

const core_model *core_models(const core *c, uint32_t *count)
{
    *count = c->t.models;
    return c->t.model;
}

/* Numbers grow with the index. */
uint32_t core_find_node(const core *c, uint32_t number)
{
    uint32_t low = 0, high = c->t.nodes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->t.node[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->t.nodes && c->t.node[low].number == number ? low : CORE_NONE;
}

uint32_t corei_find_box(const core *c, uint32_t number)
{
    uint32_t node = core_find_node(c, number);
    return node != CORE_NONE && c->t.node[node].role == DXPU_CONTROL_ROLE_BOX ? node : CORE_NONE;
}

uint32_t core_find_slot(const core *c, uint32_t node_number, uint32_t slot_number)
{
    uint32_t node = corei_find_box(c, node_number);
    if (node == CORE_NONE || !slot_number || slot_number > c->t.node[node].total)
        return CORE_NONE;
    return c->t.node[node].first + slot_number - 1;
}

uint32_t core_find_tenant(const core *c, const char *name)
{
    const corei_hash *h = &c->t.tenant_by_name;
    uint32_t i = h->head[corei_hash_name(name, "") & h->mask];
    while (i != CORE_NONE && strcmp(c->t.tenant[i].name, name) != 0)
        i = h->next[i];
    return i;
}

void core_quota(const core *c, const char *tenant, uint32_t *used, uint32_t *limit)
{
    uint32_t i = core_find_tenant(c, tenant);
    *used = i == CORE_NONE ? 0 : pool_used(c->t.pool, i);
    *limit = i == CORE_NONE ? c->set.default_quota : c->t.pool->tenant[i].quota;
}

bool core_is_starting(const core *c)
{
    bool early = c->mono_ms < c->open_ms + COREI_START_MS;
    for (uint32_t i = 0; early && i < c->t.nodes; i++)
        if ((c->t.node[i].used || c->t.node[i].role == DXPU_CONTROL_ROLE_BOX) &&
            !c->t.node[i].instance)
            return true;
    return false;
}

static const char *const renamed[][2] = { { "virtio-gpu", "gpu" },
                                          { "virtio-net", "nic" },
                                          { "virtio-blk", "blk" } };

static const char *other_name(const char *name, unsigned from, const char *otherwise)
{
    for (unsigned i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
        if (strcmp(name, renamed[i][from]) == 0)
            return renamed[i][!from];
    return otherwise;
}

const char *core_model_name(const char *name)
{
    return other_name(name, 0, name);
}

const char *core_model_was(const char *name)
{
    return other_name(name, 1, NULL);
}

uint32_t core_find_model(const core *c, const char *name)
{
    name = core_model_name(name);
    for (uint32_t i = 0; i < c->t.models; i++)
        if (strcmp(c->t.model[i].name, name) == 0)
            return i;
    return CORE_NONE;
}

const char *core_phase_name(unsigned phase)
{
    static const char *const names[] = { "binding", "attaching", "up", "lost", "broken" };
    return phase < sizeof names / sizeof names[0] ? names[phase] : "?";
}

const char *core_lease_state_name(unsigned state)
{
    static const char *const names[] = { "pending", "active", "degraded", "parked", "ended" };
    return state < sizeof names / sizeof names[0] ? names[state] : "?";
}

core_phase core_slot_phase(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    const corei_slot *more = &c->t.slot_more[slot];
    const core_port *p = more->port == CORE_NONE ? NULL : &c->t.port[more->port];
    bool was_up = more->up_epoch == s->epoch;
    if (s->state == POOL_BROKEN || s->state == POOL_QUARANTINED)
        return CORE_BROKEN;
    if (p && !p->reported && was_up)
        return CORE_UP; /* as it was before this program started */
    if (p && p->device.epoch == s->epoch && p->device.state == DXPU_CONTROL_SLOT_UP)
        return CORE_UP;
    if (was_up)
        return CORE_LOST;
    return c->t.slot[slot].device.epoch == s->epoch ? CORE_ATTACHING : CORE_BINDING;
}

core_lease_state core_lease_now(const core *c, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    if (!l)
        return CORE_LEASE_PENDING;
    if (c->t.lease[pool_lease_index(lease)].ended)
        return CORE_LEASE_ENDED;
    if (l->host == POOL_NONE)
        return CORE_LEASE_PARKED;
    bool up = true;
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next)
        up = up && core_slot_phase(c, i) == CORE_UP;
    if (up)
        return CORE_LEASE_ACTIVE;
    return c->t.lease[pool_lease_index(lease)].was_up ? CORE_LEASE_DEGRADED : CORE_LEASE_PENDING;
}
