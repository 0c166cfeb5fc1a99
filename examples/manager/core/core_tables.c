/* core_tables.c - heaps and hashes, memory of the tables, the queue of orders for proxies
   SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"

/* -- Heap -- */

bool corei_heap_init(corei_heap *h, uint32_t limit)
{
    h->due = calloc(limit, sizeof *h->due);
    h->at = calloc(limit, sizeof *h->at);
    h->place = calloc(limit, sizeof *h->place);
    h->count = 0;
    return h->due && h->at && h->place;
}

void corei_heap_free(corei_heap *h)
{
    free(h->due);
    free(h->at);
    free(h->place);
}

static void heap_put(corei_heap *h, uint32_t place, uint32_t number)
{
    h->at[place] = number;
    h->place[number] = place + 1;
}

/* The number at `place` is due earlier, or later, than its neighbours think. */
static void heap_sift(corei_heap *h, uint32_t place)
{
    uint32_t number = h->at[place];
    uint64_t due = h->due[number];
    while (place && h->due[h->at[(place - 1) / 2]] > due) {
        heap_put(h, place, h->at[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < h->count && h->due[h->at[child + 1]] < h->due[h->at[child]])
            child++;
        if (child >= h->count || h->due[h->at[child]] >= due)
            break;
        heap_put(h, place, h->at[child]);
        place = child;
    }
    heap_put(h, place, number);
}

void corei_heap_set(corei_heap *h, uint32_t number, uint64_t due)
{
    h->due[number] = due;
    if (!h->place[number])
        heap_put(h, h->count++, number);
    heap_sift(h, h->place[number] - 1);
}

void corei_heap_remove(corei_heap *h, uint32_t number)
{
    uint32_t place = h->place[number];
    if (!place)
        return;
    h->place[number] = 0;
    uint32_t last = h->at[--h->count];
    if (last == number)
        return;
    heap_put(h, place - 1, last);
    heap_sift(h, place - 1);
}

uint64_t corei_heap_due(const corei_heap *h)
{
    return h->count ? h->due[h->at[0]] : UINT64_MAX;
}

/* -- Hash -- */

bool corei_hash_init(corei_hash *h, uint32_t expected)
{
    uint32_t buckets = 64;
    while (buckets < expected)
        buckets *= 2;
    h->mask = buckets - 1;
    h->room = 0;
    h->next = NULL;
    h->head = malloc(buckets * sizeof *h->head);
    if (h->head)
        memset(h->head, 0xff, buckets * sizeof *h->head);
    return h->head != NULL;
}

void corei_hash_free(corei_hash *h)
{
    free(h->head);
    free(h->next);
}

bool corei_hash_add(corei_hash *h, uint32_t hash, uint32_t number)
{
    if (number >= h->room) {
        uint32_t room = number < 32 ? 64 : 2 * number;
        uint32_t *next = realloc(h->next, room * sizeof *next);
        if (!next)
            return false;
        h->next = next;
        h->room = room;
    }
    h->next[number] = h->head[hash & h->mask];
    h->head[hash & h->mask] = number;
    return true;
}

void corei_hash_remove(corei_hash *h, uint32_t hash, uint32_t number)
{
    uint32_t *at = &h->head[hash & h->mask];
    while (*at != CORE_NONE && *at != number)
        at = &h->next[*at];
    if (*at == number)
        *at = h->next[number];
}

/* FNV-1a, 32 bits. */
uint32_t corei_hash_name(const char *tenant, const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *tenant; tenant++)
        hash = (hash ^ (uint8_t)*tenant) * 16777619u;
    hash = (hash ^ ' ') * 16777619u;
    for (; *key; key++)
        hash = (hash ^ (uint8_t)*key) * 16777619u;
    return hash;
}

/* -- Tables -- */

bool corei_tables_init(corei_tables *t, const pool_limits *l, uint32_t ports)
{
    size_t bytes = pool_bytes(l);
    t->node_room = l->boxes + l->hosts;
    t->port_room = ports;
    t->units = l->slots + ports + t->node_room;
    t->memory = bytes ? malloc(bytes) : NULL;
    t->pool = t->memory ? pool_init(t->memory, bytes, l) : NULL;
    t->node = calloc(t->node_room, sizeof *t->node);
    t->node_more = calloc(t->node_room, sizeof *t->node_more);
    t->slot = calloc(l->slots, sizeof *t->slot);
    t->slot_more = calloc(l->slots, sizeof *t->slot_more);
    t->port = calloc(ports, sizeof *t->port);
    t->port_more = calloc(ports, sizeof *t->port_more);
    t->lease = calloc(l->leases, sizeof *t->lease);
    t->lease_seen = calloc(l->leases, sizeof *t->lease_seen);
    t->tenant = calloc(l->tenants, sizeof *t->tenant);
    t->model = calloc(l->models, sizeof *t->model);
    t->host_node = calloc(l->hosts, sizeof *t->host_node);
    t->work = calloc(t->units, sizeof *t->work);
    t->queue = calloc(t->units, sizeof *t->queue);
    return corei_heap_init(&t->expiry, l->leases) && corei_heap_init(&t->timers, t->units) &&
           corei_hash_init(&t->tenant_by_name, l->tenants) &&
           corei_hash_init(&t->lease_by_key, l->leases) && t->pool && t->node && t->node_more &&
           t->slot && t->slot_more && t->port && t->port_more && t->lease && t->lease_seen &&
           t->tenant && t->model && t->host_node && t->work && t->queue;
}

void corei_tables_free(corei_tables *t)
{
    for (uint32_t i = 0; t->node_more && i < t->nodes; i++) {
        free(t->node_more[i].told);
        free(t->node_more[i].got);
    }
    for (uint32_t i = 0; t->slot_more && t->pool && i < t->pool->slots; i++)
        free(t->slot_more[i].other);
    void *const all[] = { t->memory,    t->node,  t->node_more,  t->slot,     t->slot_more,
                          t->port,      t->lease, t->lease_seen, t->tenant,   t->model,
                          t->port_more, t->work,  t->queue,      t->host_node };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    corei_heap_free(&t->expiry);
    corei_heap_free(&t->timers);
    corei_hash_free(&t->tenant_by_name);
    corei_hash_free(&t->lease_by_key);
    memset(t, 0, sizeof *t);
}

/* -- Models -- */

/* No slot has the model any more, and no spares of it are set. */
static bool is_vacant(const corei_tables *t, uint32_t model)
{
    const pool_model *m = &t->pool->model[model];
    uint32_t slots = m->spares_wanted;
    for (unsigned state = 0; state < POOL_STATES; state++)
        slots += m->count[state];
    return !slots;
}

uint32_t corei_models_used(const corei_tables *t)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < t->models; i++)
        used += !is_vacant(t, i);
    return used;
}

uint32_t corei_model_for(corei_tables *t, const char *name, bool instead)
{
    uint32_t at = t->models;
    for (uint32_t i = 0; i < t->models; i++) {
        if (strcmp(t->model[i].name, name) == 0)
            return i;
        if (instead && is_vacant(t, i))
            at = i;
    }
    if (at == t->pool->limits.models)
        return CORE_NONE;
    snprintf(t->model[at].name, sizeof t->model[at].name, "%s", name);
    t->models += at == t->models;
    return at;
}

/* -- Units -- */

uint32_t corei_slot_unit(uint32_t slot)
{
    return slot;
}

uint32_t corei_port_unit(const core *c, uint32_t port)
{
    return c->t.pool->limits.slots + port;
}

uint32_t corei_node_unit(const core *c, uint32_t node)
{
    return c->t.pool->limits.slots + c->t.port_room + node;
}

void corei_touch(core *c, uint32_t unit)
{
    corei_tables *t = &c->t;
    if (t->work[unit].queued)
        return;
    t->work[unit].queued = true;
    t->queue[(t->queue_first + t->queued++) % t->units] = unit;
}

void corei_touch_slot(core *c, uint32_t slot)
{
    uint32_t port = c->t.slot_more[slot].port;
    corei_touch(c, corei_slot_unit(slot));
    if (port != CORE_NONE)
        corei_touch(c, corei_port_unit(c, port));
}

void corei_touch_node(core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    bool box = n->role == DXPU_CONTROL_ROLE_BOX;
    corei_touch(c, corei_node_unit(c, node));
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        corei_touch(c, box ? corei_slot_unit(i) : corei_port_unit(c, i));
}

void corei_look_at(core *c, uint32_t unit, uint64_t mono_ms)
{
    corei_heap *h = &c->t.timers;
    if (!h->place[unit] || mono_ms < h->due[unit])
        corei_heap_set(h, unit, mono_ms);
}

/* -- Attributes -- */

bool core_has_attributes(const char *slot, const char *required)
{
    for (const char *word = required; *word;) {
        size_t len = strcspn(word, ",");
        bool found = !len;
        for (const char *own = slot; *own && !found;) {
            size_t own_len = strcspn(own, ",");
            found = own_len == len && memcmp(own, word, len) == 0;
            own += own_len + (own[own_len] == ',');
        }
        if (!found)
            return false;
        word += len + (word[len] == ',');
    }
    return true;
}

/* The number that an attribute has; -1: there is none, or it is too large. */
static int attribute_number(const char *attributes, const char *key)
{
    size_t len = strlen(key);
    for (const char *own = attributes; *own;) {
        size_t own_len = strcspn(own, ",");
        if (own_len > len + 1 && memcmp(own, key, len) == 0 && own[len] == '=') {
            size_t digits = strspn(own + len + 1, "0123456789");
            bool good = digits && digits <= 5 && len + 1 + digits == own_len;
            return good ? (int)strtoul(own + len + 1, NULL, 10) : -1;
        }
        own += own_len + (own[own_len] == ',');
    }
    return -1;
}

/* Returns the number of the slot with the first function; 0: the device is this slot's alone. */
static unsigned device_of(const dxpu_control_device *d)
{
    int function = attribute_number(d->attributes, "function");
    int of = attribute_number(d->attributes, "of");
    if (function == 0)
        return d->number;
    bool good = function > 0 && of > 0 && of < d->number && d->number - of < POOL_FUNCTIONS_MAX;
    return good ? (unsigned)of : 0;
}

void corei_set_device(corei_tables *t, uint32_t slot)
{
    if (slot < t->pool->slots) /* else it joins the pool when its box has reported all */
        (void)pool_set_device(t->pool, slot, device_of(&t->slot[slot].device));
}

core_function core_function_of(const core *c, uint32_t slot)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    core_function f = { .device = (uint16_t)device_of(d), .functions = 1 };
    int function = attribute_number(d->attributes, "function");
    int functions = attribute_number(d->attributes, "functions");
    int virtuals = attribute_number(d->attributes, "virtual-functions");
    if (f.device)
        f.function = (uint16_t)function;
    if (functions > 0 && functions <= UINT16_MAX)
        f.functions = (uint16_t)functions;
    if (virtuals > 0 && virtuals <= UINT16_MAX)
        f.virtuals = (uint16_t)virtuals;
    return f;
}

static bool slot_fits(const void *user, uint32_t slot)
{
    const corei_wanted *w = user;
    const core_node *box = &w->core->t.node[w->core->t.slot[slot].node];
    return !(w->direct && box->no_direct) &&
           core_has_attributes(w->core->t.slot[slot].device.attributes, w->attributes) &&
           !corei_is_withheld_seen(w->core, slot, w->seen);
}

const pool_filter *corei_filter(const core *c, const char *attributes, bool direct,
                                corei_wanted *wanted)
{
    direct = direct && c->t.no_directs;
    *wanted = (corei_wanted){ .core = c, .attributes = attributes, .direct = direct };
    wanted->seen = &wanted->memory;
    wanted->filter = (pool_filter){ slot_fits, wanted };
    return attributes[0] || direct || c->shares ? &wanted->filter : NULL;
}

const pool_filter *corei_lease_filter(const core *c, uint32_t slot, bool direct,
                                      corei_wanted *wanted)
{
    uint32_t lease = c->t.pool->slot[slot].lease;
    return lease == POOL_NONE ? NULL
                              : corei_filter(c, c->t.lease[lease].attributes, direct, wanted);
}
