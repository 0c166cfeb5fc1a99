/* core_load.c - fills the tables from the store: at the start, after a failed commit, to grow them
   SPDX-License-Identifier: MIT

   Limits are twice what there is, so that loading for want of room is rare, and a few more, but no
   more than the settings allow.  So a small pool has small tables, since they are cleared at each
   load.  What proxies have reported is in no record: it is carried over from the former tables. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"

/* What is read before the limits are known. */
typedef struct loading {
    core *c;
    core_result result;
    uint64_t epoch, foreign_epoch, serial, unix_ms, term;
    uint32_t highest_node;
    bool held, older, no_direct;
    core_node *node;
    uint32_t nodes, node_room, slots, ports, hosts;
    core_slot *slot;
    pool_slot *was;
    corei_owner *owner;
    bool *seen;
    core_model *model;
    uint32_t *spares;
    uint32_t models, model_room;
    core_tenant *tenant;
    uint32_t *quota;
    uint32_t tenants, tenant_room;
    corei_hash by_name;
    uint32_t lease_end; /* above every index of a lease */
    corei_tables t;
} loading;

static int load_fault(loading *l, core_result r)
{
    if (l->result.code == CORE_OK)
        l->result = r;
    return 1;
}

static int load_damaged(loading *l, const char *key)
{
    return load_fault(
        l, corei_result(CORE_E_DAMAGED,
                        "record %s of the store is damaged; put a backup in its place", key));
}

static int load_no_memory(loading *l)
{
    return load_fault(l, corei_result(CORE_E_MEMORY, "out of memory"));
}

/* Makes room for one more; the contents stay. */
static bool grow(void *array, size_t bytes, uint32_t count, uint32_t *room)
{
    void **p = array;
    if (count < *room)
        return true;
    uint32_t more = *room ? 2 * *room : 16;
    void *new = realloc(*p, more * bytes);
    if (!new)
        return false;
    *p = new;
    *room = more;
    return true;
}

/* -- Records -- */

/* Is it the key that the record is written under?  Under another one it would never be removed. */
__attribute__((format(printf, 2, 3))) static bool is_key(const char *key, const char *format, ...)
{
    char wanted[STORE_KEY_MAX_BYTES + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    return strcmp(key, wanted) == 0;
}

static int load_meta(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    int format;
    json_int_t node, epoch, foreign = 0, serial = -1, time = 0, term = 0;
    int held = 0, direct = 1;
    bool good = strcmp(key, "meta") == 0 &&
                json_unpack(j, "{s:i, s:I, s:I, s?I, s?I, s?I, s?b, s?I, s?b}", "format", &format,
                            "node", &node, "epoch", &epoch, "foreign", &foreign, "serial", &serial,
                            "time", &time, "held", &held, "term", &term, "direct", &direct) == 0;
    json_decref(j);
    if (serial < 0) /* of a version that took them from the epochs */
        serial = epoch & UINT32_MAX;
    if (good && format == 1 && serial <= UINT32_MAX) /* they were 32 bits long, above the others */
        serial = serial << 8 | 0xff;
    if (!good || node < 0 || node >= UINT32_MAX || serial > COREI_SERIAL_MAX || epoch < 0 ||
        epoch > (json_int_t)COREI_EPOCH_MAX || foreign < 0 ||
        foreign > (json_int_t)COREI_EPOCH_MAX || time < 0 || term < 0 ||
        term > (json_int_t)COREI_TERM_MAX)
        return load_damaged(l, key);
    if (format < 1 || format > COREI_FORMAT)
        return load_fault(l, corei_result(CORE_E_DAMAGED,
                                          "the store's records have format %d, this program knows "
                                          "%d; run the version that wrote them",
                                          format, COREI_FORMAT));
    l->highest_node = (uint32_t)node;
    l->epoch = (uint64_t)epoch;
    l->serial = (uint64_t)serial;
    l->unix_ms = (uint64_t)time;
    l->held = held;
    l->term = (uint64_t)term;
    l->no_direct = !direct;
    l->older = format < COREI_FORMAT;
    l->foreign_epoch = (uint64_t)foreign;
    return 0;
}

static int load_node(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    core_node n = { 0 };
    n.number = (uint32_t)strtoul(key + strlen("node/"), NULL, 10);
    bool good = n.number && n.number < UINT32_MAX && is_key(key, "node/%u", n.number) &&
                corei_node_read(j, &n);
    json_decref(j);
    if (!good)
        return load_damaged(l, key);
    if (!grow(&l->node, sizeof *l->node, l->nodes, &l->node_room))
        return load_no_memory(l);
    l->node[l->nodes++] = n;
    return 0;
}

/* Returns its index, or l->models: it is not there. */
static uint32_t find_model(const loading *l, const char *name)
{
    uint32_t i = 0;
    while (i < l->models && strcmp(l->model[i].name, name) != 0)
        i++;
    return i;
}

/* Gives its index, and makes it where it is new.  0, or 1 after a fault. */
static int load_model(loading *l, const char *name, uint32_t *model)
{
    uint32_t room = l->model_room;
    *model = find_model(l, name);
    if (*model < l->models)
        return 0;
    if (l->models == COREI_MODELS_MAX)
        return load_fault(l, corei_result(CORE_E_DAMAGED, "more than %d models", COREI_MODELS_MAX));
    if (!grow(&l->model, sizeof *l->model, l->models, &room) ||
        !grow(&l->spares, sizeof *l->spares, l->models, &l->model_room))
        return load_no_memory(l);
    l->spares[l->models] = 0;
    snprintf(l->model[l->models].name, sizeof l->model[0].name, "%s", name);
    l->models++;
    return 0;
}

/* Index of the node with this number: they are in order now. */
static const core_node *load_find(const loading *l, uint32_t number)
{
    for (uint32_t low = 0, high = l->nodes; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        if (l->node[middle].number == number)
            return &l->node[middle];
        if (l->node[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int load_slot(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    core_slot s = { 0 };
    pool_slot was = { 0 };
    corei_owner owner;
    unsigned node = 0, number = 0;
    bool good = sscanf(key, "slot/%u.%u", &node, &number) == 2 &&
                is_key(key, "slot/%u.%u", node, number) && corei_slot_read(j, &s, &was, &owner);
    json_decref(j);
    const core_node *n = good ? load_find(l, node) : NULL;
    if (!n || n->role != DXPU_CONTROL_ROLE_BOX || !number || number > n->total)
        return load_damaged(l, key);
    uint32_t model;
    if (load_model(l, s.device.model, &model))
        return 1;
    was.model = (uint16_t)model;
    s.node = (uint32_t)(n - l->node);
    s.device.number = (uint16_t)number;
    l->slot[n->first + number - 1] = s;
    l->was[n->first + number - 1] = was;
    l->owner[n->first + number - 1] = owner;
    l->seen[n->first + number - 1] = true;
    return 0;
}

static uint32_t load_tenant(loading *l, const char *name)
{
    uint32_t hash = corei_hash_name(name, ""), room = l->tenant_room;
    uint32_t i = l->by_name.head[hash & l->by_name.mask];
    while (i != CORE_NONE && strcmp(l->tenant[i].name, name) != 0)
        i = l->by_name.next[i];
    if (i != CORE_NONE)
        return i;
    if (!grow(&l->tenant, sizeof *l->tenant, l->tenants, &room) ||
        !grow(&l->quota, sizeof *l->quota, l->tenants, &l->tenant_room) ||
        !corei_hash_add(&l->by_name, hash, l->tenants))
        return CORE_NONE;
    l->quota[l->tenants] = l->c->set.default_quota;
    snprintf(l->tenant[l->tenants].name, sizeof l->tenant[0].name, "%s", name);
    l->tenant[l->tenants].no_direct = false;
    l->tenant[l->tenants].word = corei_tenant_word(l->c, name);
    return l->tenants++;
}

static int load_quota(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    const char *name = key + strlen("tenant/");
    json_int_t quota;
    int direct = 1;
    bool good = strlen(name) < CORE_NAME_BYTES &&
                json_unpack(j, "{s:I, s?b}", "quota", &quota, "direct", &direct) == 0;
    json_decref(j);
    if (!good || quota < 0 || quota > UINT32_MAX)
        return load_damaged(l, key);
    uint32_t tenant = load_tenant(l, name);
    if (tenant == CORE_NONE)
        return load_no_memory(l);
    l->quota[tenant] = (uint32_t)quota;
    l->tenant[tenant].no_direct = !direct;
    return 0;
}

static int load_spares(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    const char *name = key + strlen("spares/");
    json_int_t count;
    bool good = strlen(name) < CORE_MODEL_BYTES && json_unpack(j, "{s:I}", "count", &count) == 0;
    json_decref(j);
    if (!good || count < 0 || count > UINT32_MAX)
        return load_damaged(l, key);
    if (!count) /* as older programs left it */
        return 0;
    uint32_t model;
    if (load_model(l, core_model_name(name), &model))
        return 1;
    l->spares[model] = (uint32_t)count;
    return 0;
}

/* Whose leases there are: limits first. */
static int load_lease_head(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    unsigned long long number = strtoull(key + strlen("lease/"), NULL, 16);
    uint32_t places = l->c->set.slots > COREI_LEASES ? l->c->set.slots : COREI_LEASES;
    const char *tenant;
    bool good = is_key(key, "lease/%llx", number) &&
                json_unpack(j, "{s:s}", "tenant", &tenant) == 0 &&
                strlen(tenant) < CORE_NAME_BYTES && pool_lease_index(number) < places;
    uint32_t at = good ? load_tenant(l, tenant) : CORE_NONE;
    json_decref(j);
    if (!good)
        return load_damaged(l, key);
    if (at == CORE_NONE)
        return load_no_memory(l);
    if (pool_lease_index(number) >= l->lease_end)
        l->lease_end = pool_lease_index(number) + 1;
    return 0;
}

static bool load_all(loading *l, const char *prefix, store_each each)
{
    store_fault f = { STORE_OK, "" };
    if (l->result.code == CORE_OK && store_load(l->c->store, prefix, each, l, &f) != STORE_OK)
        load_fault(l, corei_result(f.code == STORE_E_MEMORY ? CORE_E_MEMORY : CORE_E_STORE,
                                   "%.250s", f.text));
    return l->result.code == CORE_OK;
}

static int node_order(const void *a, const void *b)
{
    uint32_t x = ((const core_node *)a)->number, y = ((const core_node *)b)->number;
    return x < y ? -1 : x > y;
}

/* Nodes, and where the slots of each begin. */
static bool load_nodes(loading *l)
{
    if (!load_all(l, "meta", load_meta) || !load_all(l, "node/", load_node))
        return false;
    if (l->nodes)
        qsort(l->node, l->nodes, sizeof *l->node, node_order);
    for (uint32_t i = 0; i < l->nodes; i++) {
        core_node *n = &l->node[i];
        bool box = n->role == DXPU_CONTROL_ROLE_BOX;
        n->first = box ? l->slots : l->ports;
        *(box ? &l->slots : &l->ports) += n->total;
        l->hosts += !box;
        n->since_unix_ms = l->c->unix_ms;
        if (n->number > l->highest_node)
            l->highest_node = n->number;
    }
    l->slot = calloc(l->slots + 1, sizeof *l->slot);
    l->was = calloc(l->slots + 1, sizeof *l->was);
    l->owner = calloc(l->slots + 1, sizeof *l->owner);
    l->seen = calloc(l->slots + 1, sizeof *l->seen);
    if (!l->slot || !l->was || !l->owner || !l->seen || !corei_hash_init(&l->by_name, 4096))
        load_no_memory(l);
    return l->result.code == CORE_OK;
}

static bool load_records(loading *l)
{
    if (!load_nodes(l) || !load_all(l, "slot/", load_slot) || !load_all(l, "tenant/", load_quota) ||
        !load_all(l, "spares/", load_spares) || !load_all(l, "lease/", load_lease_head))
        return false;
    for (uint32_t i = 0; i < l->nodes; i++)
        for (uint32_t j = 0; l->node[i].role == DXPU_CONTROL_ROLE_BOX && j < l->node[i].total; j++)
            if (!l->seen[l->node[i].first + j])
                return !load_fault(l, corei_result(CORE_E_DAMAGED,
                                                   "record slot/%u.%u of the store is missing; put "
                                                   "a backup in its place",
                                                   l->node[i].number, j + 1));
    return true;
}

/* -- Tables -- */

static uint32_t twice(uint32_t count, uint32_t least)
{
    uint64_t room = (uint64_t)count * 2 + least;
    return room < 1u << 24 ? (uint32_t)room : 1u << 24;
}

/* The same for slots and ports, of which the pool gets no more than its settings say. */
static uint32_t twice_allowed(const loading *l, uint32_t count, uint32_t least)
{
    uint32_t room = twice(count, least), most = l->c->set.slots > count ? l->c->set.slots : count;
    return room < most ? room : most;
}

static bool load_tables(loading *l)
{
    uint32_t models = twice(l->models, 4);
    pool_limits limits = { .slots = twice_allowed(l, l->slots, POOL_BOX_SLOTS_MAX),
                           .boxes = twice(l->nodes - l->hosts, 16),
                           .hosts = twice(l->hosts, 16),
                           .tenants = twice(l->tenants, 16),
                           .models =
                               (uint16_t)(models < COREI_MODELS_MAX ? models : COREI_MODELS_MAX) };
    const pool *old = l->c->t.pool;
    if (old &&
        old->limits.models > limits.models) /* who makes them come and go does it for little */
        limits.models = old->limits.models;
    limits.leases = limits.slots > l->lease_end ? limits.slots : l->lease_end;
    if (!corei_tables_init(&l->t, &limits, twice_allowed(l, l->ports, 2 * POOL_COUNT_MAX))) {
        load_no_memory(l);
        return false;
    }
    corei_tables *t = &l->t;
    t->highest_node = l->highest_node;
    t->foreign_epoch = l->foreign_epoch;
    t->models = l->models;
    t->ports = l->ports;
    if (l->models)
        memcpy(t->model, l->model, l->models * sizeof *t->model);
    for (uint32_t i = 0, at; i < l->tenants; i++) {
        t->tenant[i] = l->tenant[i];
        t->no_directs += t->tenant[i].no_direct;
        (void)pool_add_tenant(t->pool, l->quota[i], &at);
        if (!corei_hash_add(&t->tenant_by_name, corei_hash_name(t->tenant[i].name, ""), i))
            load_no_memory(l);
    }
    return l->result.code == CORE_OK;
}

void corei_init_slots(corei_tables *t, uint32_t node)
{
    const core_node *n = &t->node[node];
    bool box = n->role == DXPU_CONTROL_ROLE_BOX;
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        if (box) {
            t->slot[i].node = node;
            t->slot[i].device.number = (uint16_t)(i - n->first + 1);
            t->slot_more[i] = (corei_slot){ .port = CORE_NONE };
        } else {
            t->port[i].node = node;
            t->port[i].slot = CORE_NONE;
            t->port[i].device.number = (uint16_t)(i - n->first + 1);
            t->port_more[i] = (corei_port){ .before = CORE_NONE };
        }
}

static bool load_box(loading *l, core_node *n)
{
    pool_slot_info info[POOL_BOX_SLOTS_MAX];
    unsigned left;
    for (uint32_t i = 0; i < n->total; i++) {
        const dxpu_control_device *d = &l->slot[n->first + i].device;
        info[i].model = l->was[n->first + i].model;
        info[i].group = d->group ? d->group : POOL_NONE;
    }
    /* A box that has not reported its slots is not in the pool yet. */
    n->pool_index = POOL_NONE;
    if (n->total && pool_add_box(l->t.pool, info, n->total, &n->pool_index) != POOL_OK)
        return false;
    if (n->total && n->draining)
        (void)pool_drain(l->t.pool, n->pool_index, true, &left);
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        corei_set_device(&l->t, i);
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        if (pool_restore_slot(l->t.pool, i, &l->was[i]) != POOL_OK)
            return !load_fault(l, corei_result(CORE_E_DAMAGED,
                                               "record slot/%u.%u of the store is damaged; put a "
                                               "backup in its place",
                                               n->number, i - n->first + 1));
    return true;
}

static bool load_pool(loading *l)
{
    corei_tables *t = &l->t;
    for (uint32_t i = 0; i < l->nodes; i++) {
        core_node *n = &t->node[i];
        *n = l->node[i];
        t->no_directs += n->no_direct;
        t->nodes++;
        t->node_more[i].drain_told = COREI_NO_REPORT;
        corei_init_slots(t, i);
        if (n->role == DXPU_CONTROL_ROLE_BOX) {
            for (uint32_t s = n->first; s < n->first + n->total; s++) {
                t->slot[s].device = l->slot[s].device;
                t->slot[s].stored_ms = l->slot[s].stored_ms;
                t->slot[s].served = l->slot[s].served;
                t->slot[s].medium = l->slot[s].medium;
                t->slot[s].repaired_empty = l->slot[s].repaired_empty;
            }
            if (!load_box(l, n))
                return false;
        } else {
            (void)pool_add_host(t->pool, n->total, &n->pool_index);
            t->host_node[n->pool_index] = i;
        }
    }
    return true;
}

/* -- Leases -- */

static bool load_lease_slots(loading *l, uint32_t lease, const corei_lease_record *r,
                             const core_node *host, pool_choice *out)
{
    corei_tables *t = &l->t;
    out->count = r->count;
    for (unsigned i = 0; i < r->count; i++) {
        const core_node *box = load_find(l, r->node[i]);
        if (!box || box->role != DXPU_CONTROL_ROLE_BOX || r->slot[i] > box->total)
            return false;
        out->slot[i] = box->first + r->slot[i] - 1;
        if (l->owner[out->slot[i]].older)
            t->slot[out->slot[i]].served = r->rest.was_up;
        t->slot_more[out->slot[i]].up_epoch =
            t->slot[out->slot[i]].served ? l->was[out->slot[i]].epoch : 0;
        if (!host)
            continue;
        if (!r->rest.port[i] || r->rest.port[i] > host->total)
            return false;
        core_port *p = &t->port[host->first + r->rest.port[i] - 1];
        if (p->slot != CORE_NONE)
            return false;
        p->slot = out->slot[i];
        t->slot_more[out->slot[i]].port = host->first + r->rest.port[i] - 1u;
    }
    t->lease[lease] = r->rest;
    return true;
}

static bool load_lease_record(loading *l, uint64_t number, const corei_lease_record *r)
{
    corei_tables *t = &l->t;
    const core_node *host = r->host ? load_find(l, r->host) : NULL;
    uint32_t model = find_model(l, r->model), lease = pool_lease_index(number);
    pool_choice c = { 0 };
    if ((r->host && (!host || host->role != DXPU_CONTROL_ROLE_HOST)) || model >= t->models ||
        !load_lease_slots(l, lease, r, host, &c))
        return false;
    pool_request q = { load_tenant(l, r->tenant),
                       host ? t->node[host - l->node].pool_index : POOL_NONE,
                       (uint16_t)model,
                       r->count,
                       r->need,
                       NULL,
                       r->device,
                       r->exclusive,
                       r->apart,
                       r->peer };
    if (pool_restore_lease(t->pool, number, &q, &c) != POOL_OK)
        return false;
    t->lease_seen[lease] = !host            ? CORE_LEASE_PARKED
                           : r->rest.was_up ? CORE_LEASE_ACTIVE
                                            : CORE_LEASE_PENDING;
    if (r->rest.expires_unix_ms && !r->rest.ended)
        corei_heap_set(&t->expiry, lease, r->rest.expires_unix_ms);
    if (r->rest.key[0] &&
        !corei_hash_add(&t->lease_by_key, corei_hash_name(r->tenant, r->rest.key), lease))
        load_no_memory(l);
    return true;
}

static int load_lease(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    corei_lease_record r;
    unsigned long long number = strtoull(key + strlen("lease/"), NULL, 16);
    bool good = corei_lease_read(j, &r) && load_lease_record(l, number, &r);
    json_decref(j);
    return good ? l->result.code != CORE_OK : load_damaged(l, key);
}

/* Finds whose data slots keep.  Where the lease is missing, or is another tenant's, the owner of
   the data is not known, and the slot is quarantined. */
static void load_owners(loading *l)
{
    const pool *p = l->t.pool;
    for (uint32_t i = 0; i < l->slots; i++) {
        const corei_owner *o = &l->owner[i];
        const pool_lease *lease = pool_find_lease(p, o->lease);
        if (lease && strcmp(l->t.tenant[lease->tenant].name, o->tenant) == 0)
            (void)pool_restore_owner(l->t.pool, i, o->lease, o->place);
    }
}

/* -- What is carried over -- */

/* Copies what a proxy reports again each time; the rest is its inventory. */
void corei_copy_report(dxpu_control_device *to, const dxpu_control_device *from)
{
    to->state = from->state;
    to->health = from->health;
    to->code = from->code;
    to->epoch = from->epoch;
    to->epoch_seen = from->epoch_seen;
    to->peer_node = from->peer_node;
    to->peer_slot = from->peer_slot;
    to->lease = from->lease;
    to->tenant = from->tenant;
    to->port_offset = from->port_offset;
    to->data = from->data;
    to->medium = from->medium;
    memcpy(to->attributes, from->attributes, sizeof to->attributes);
}

/* Where a former slot (box) or port is now; CORE_NONE: gone. */
static uint32_t now_at(const loading *l, const corei_tables *old, bool box, uint32_t index)
{
    if (index == CORE_NONE)
        return CORE_NONE;
    const core_node *was = &old->node[box ? old->slot[index].node : old->port[index].node];
    const core_node *n = load_find(l, was->number);
    return n && index - was->first < n->total ? n->first + index - was->first : CORE_NONE;
}

static void carry_unit(corei_tables *t, uint32_t to, const corei_tables *old, uint32_t from)
{
    t->work[to] = old->work[from];
    t->work[to].queued = false;
    if (old->timers.place[from])
        corei_heap_set(&t->timers, to, old->timers.due[from]);
}

static void carry_slot(loading *l, uint32_t to, corei_tables *old, uint32_t from)
{
    corei_tables *t = &l->t;
    corei_slot *was = &old->slot_more[from];
    uint32_t port = t->slot_more[to].port;
    t->slot[to].reported = old->slot[from].reported;
    corei_copy_report(&t->slot[to].device, &old->slot[from].device);
    corei_set_device(t, to);
    t->slot_more[to] = *was;
    was->other = NULL;
    t->slot_more[to].port = port != CORE_NONE ? port : now_at(l, old, false, was->port);
    carry_unit(t, corei_slot_unit(to), old, corei_slot_unit(from));
}

static void carry_port(loading *l, uint32_t to, const corei_tables *old, uint32_t from)
{
    corei_tables *t = &l->t;
    t->port[to].reported = old->port[from].reported;
    t->port[to].device = old->port[from].device;
    t->port[to].foreign = old->port[from].foreign;
    t->port_more[to].before = now_at(l, old, true, old->port_more[from].before);
    t->port_more[to].moved = old->port_more[from].moved;
    t->port_more[to].refusal = old->port_more[from].refusal;
    t->port_more[to].dial_ms = old->port_more[from].dial_ms;
    t->port_more[to].dial_epoch = old->port_more[from].dial_epoch;
    carry_unit(t, t->pool->limits.slots + to, old, old->pool->limits.slots + from);
}

/* A node that is given more slots has a total that its old tables do not have yet. */
static bool had(const corei_tables *old, uint32_t from, uint32_t i)
{
    const core_node *was = &old->node[from];
    uint32_t at = was->first + i;
    if (was->role == DXPU_CONTROL_ROLE_BOX)
        return at < old->pool->slots && old->slot[at].node == from;
    return at < old->ports && old->port[at].node == from;
}

static void carry_node(loading *l, uint32_t to, corei_tables *old, uint32_t from)
{
    corei_tables *t = &l->t;
    core_node *n = &t->node[to];
    const core_node *was = &old->node[from];
    bool box = n->role == DXPU_CONTROL_ROLE_BOX;
    n->connected = was->connected;
    n->instance = was->instance;
    n->since_unix_ms = was->since_unix_ms;
    if (was->connected) {
        memcpy(n->name, was->name, sizeof n->name);
        memcpy(n->program, was->program, sizeof n->program);
        n->paths = was->paths;
        memcpy(n->path, was->path, sizeof n->path);
        n->keyed = was->keyed;
        memcpy(n->key, was->key, sizeof n->key);
    }
    n->sealed = was->sealed && n->keyed;
    t->node_more[to] = old->node_more[from];
    old->node_more[from].told = NULL;
    old->node_more[from].got = NULL;
    for (uint32_t i = 0; i < n->total && i < was->total && had(old, from, i); i++)
        if (box)
            carry_slot(l, n->first + i, old, was->first + i);
        else
            carry_port(l, n->first + i, old, was->first + i);
    carry_unit(t, t->pool->limits.slots + t->port_room + to, old,
               old->pool->limits.slots + old->port_room + from);
}

static void carry_leases(corei_tables *t, const corei_tables *old)
{
    for (uint32_t i = 0; i < t->pool->limits.leases && i < old->pool->limits.leases; i++)
        if (pool_lease_number(t->pool, i) &&
            pool_lease_number(t->pool, i) == pool_lease_number(old->pool, i)) {
            t->lease_seen[i] = old->lease_seen[i];
            t->lease[i].ran_ms = old->lease[i].ran_ms;
            t->lease[i].since_ms = old->lease[i].since_ms;
            t->lease[i].counts = old->lease[i].counts;
            t->lease[i].made_ms = old->lease[i].made_ms;
        }
}

static void carry_over(loading *l, corei_tables *old)
{
    for (uint32_t i = 0, j = 0; i < old->nodes; i++) {
        while (j < l->t.nodes && l->t.node[j].number < old->node[i].number)
            j++;
        if (j < l->t.nodes && l->t.node[j].number == old->node[i].number)
            carry_node(l, j, old, i);
    }
    carry_leases(&l->t, old);
}

static void load_end(loading *l)
{
    free(l->node);
    free(l->slot);
    free(l->was);
    free(l->owner);
    free(l->seen);
    free(l->model);
    free(l->spares);
    free(l->tenant);
    free(l->quota);
    corei_hash_free(&l->by_name);
}

/* What a box has that has not reported since the start is unknown: the store may be older. */
static void hide_all(corei_tables *t)
{
    for (uint32_t i = 0; i < t->nodes; i++)
        if (t->node[i].role == DXPU_CONTROL_ROLE_BOX)
            corei_hide_silent(t, i);
}

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Sets where epochs and serials go on: above the store's highest, and above the time of day.  A
   store that was put back may be older than what the proxies know, and higher numbers may have been
   given since.
   - Serials: no run gives one before its time, so none gives one of an earlier run.  Where the
     clock was set back, they begin a random distance further on.
   - Epochs always begin a random distance further on: so two runs with one store differ. */
static void load_epochs(core *c, loading *l)
{
    pool *p = l->t.pool;
    uint64_t clock = c->unix_ms < COREI_EPOCH_CLOCK_MAX / 1000 ? c->unix_ms * 1000 : 0;
    pool_raise_epoch(p, l->epoch);
    pool_raise_serial(p, l->serial);
    if (!c->t.pool) { /* the program starts */
        c->stored_epoch = p->epoch;
        c->first_epoch = higher(clock, p->epoch) + c->set.salt % COREI_EPOCH_SALT;
        c->first_serial = clock / 1000 * COREI_SERIALS / 1000;
        c->serials_ahead = l->serial > c->first_serial || !clock;
        if (c->serials_ahead)
            c->first_serial = l->serial + (c->set.salt >> 32) % COREI_SERIAL_SALT;
        if (!c->stored_epoch) /* it is new: nothing before was its own */
            l->t.foreign_epoch = c->first_epoch;
    }
    pool_raise_epoch(p, c->first_epoch);
    pool_raise_serial(p, c->first_serial);
}

/* Releases leases that have ended when their time is over. */
static void load_ended(core *c)
{
    for (uint32_t i = 0; i < c->t.pool->limits.leases; i++)
        if (c->t.lease[i].ended)
            corei_look_at(c, corei_slot_unit(c->t.pool->lease[i].first), c->mono_ms);
    if (corei_heap_due(&c->t.expiry) != UINT64_MAX && c->save_ms == UINT64_MAX)
        c->save_ms = c->mono_ms + COREI_SAVE_MS;
}

core_result corei_load(core *c)
{
    if (c->pending) { /* else it would not be loaded; where that fails all is loaded, too */
        core_result r = corei_commit(c);
        if (r.code != CORE_OK)
            return c->dead ? r : (core_result){ CORE_OK, "" };
    }
    c->loads++;
    loading l = { .c = c, .result = { CORE_OK, "" } };
    bool good = load_records(&l) && load_tables(&l);
    if (good && !load_pool(&l) && l.result.code == CORE_OK)
        load_fault(&l,
                   corei_result(CORE_E_DAMAGED, "the store has boxes that do not fit into a pool"));
    good = good && load_all(&l, "lease/", load_lease);
    if (good) {
        bool starts = !c->t.pool;
        load_epochs(c, &l);
        load_owners(&l);
        if (starts || c->set.reader)
            c->no_direct = l.no_direct;
        if (starts) {
            c->last_unix_ms = l.unix_ms;
            c->older = l.older;
            c->term = higher(l.term + 1, c->unix_ms < COREI_TERM_MAX ? c->unix_ms : 0);
            corei_clock_begin(c, l.held);
        }
        pool_restored(l.t.pool);
        for (uint32_t i = 0; i < l.models; i++)
            (void)pool_set_spares(l.t.pool, (uint16_t)i, l.spares[i]);
        if (!starts)
            carry_over(&l, &c->t);
        if (!c->set.reader) /* which lends none of them */
            hide_all(&l.t);
        load_end(&l);
        corei_tables_free(&c->t);
        c->t = l.t;
        for (uint32_t i = 0; i < c->t.nodes; i++) {
            corei_touch_node(c, i);
            if (!c->t.node[i].instance)
                corei_node_gone(c, i, COREI_DIAL_MS);
        }
        if (starts) {
            load_ended(c);
            corei_direct_load(c);
        }
        return l.result;
    }
    load_end(&l);
    corei_tables_free(&l.t);
    return l.result;
}

/* -- Events -- */

static int load_event(void *user, const char *key, const void *value, size_t len)
{
    loading *l = user;
    json_t *j = json_loadb(value, len, 0, NULL);
    core_event e = { 0 };
    e.number = strtoull(key + strlen("event/"), NULL, 10);
    bool good = e.number && e.number <= COREI_EVENT_MAX &&
                is_key(key, "event/%020llu", (unsigned long long)e.number) &&
                corei_event_read(j, &e);
    json_decref(j);
    if (!good)
        return load_damaged(l, key);
    corei_history_load(l->c, &e);
    return 0;
}

core_result corei_load_events(core *c)
{
    loading l = { .c = c, .result = { CORE_OK, "" } };
    load_all(&l, "event/", load_event);
    return l.result;
}
