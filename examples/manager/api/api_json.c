/* api_json.c - the core's tables as JSON
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_internal.h"
#include "dxpu_sodium.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ==== 1  Values =============================================================================== */

json_t *api_json_text(const char *text)
{
    char clean[512];
    size_t n = 0;
    for (; text[n] && n < sizeof clean - 1; n++)
        clean[n] = text[n] < ' ' || text[n] > '~' ? '?' : text[n];
    clean[n] = '\0';
    return json_string(clean);
}

json_t *api_json_time(uint64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;
    char text[64];
    size_t n;
    if (!unix_ms || !gmtime_r(&seconds, &tm))
        return json_null();
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%03uZ", (unsigned)(unix_ms % 1000));
    return json_string(text);
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* Of a time that is left, in ms; UINT64_MAX: null. */
static json_t *seconds_left(uint64_t ms)
{
    return ms == UINT64_MAX ? json_null() : number((ms + 999) / 1000);
}

static json_t *number_or_null(uint64_t n, uint64_t null)
{
    return n == null ? json_null() : number(n);
}

static json_t *text_or_null(const char *text)
{
    return *text ? api_json_text(text) : json_null();
}

static json_t *hex(uint64_t n, int digits)
{
    char text[24];
    snprintf(text, sizeof text, "0x%0*llx", digits, (unsigned long long)n);
    return json_string(text);
}

json_t *api_json_lease_id(uint64_t lease)
{
    char text[24];
    if (!lease)
        return json_null();
    snprintf(text, sizeof text, "%llx", (unsigned long long)lease);
    return json_string(text);
}

/* ==== 2  Nodes ================================================================================ */

static json_t *addresses(const core_node *n)
{
    json_t *out = json_array();
    for (unsigned i = 0; i < n->paths && i < DXPU_CONTROL_PATHS_MAX; i++) {
        const dxpu_control_address *p = &n->path[i];
        char ip[INET6_ADDRSTRLEN] = "?", text[80];
        (void)inet_ntop(p->family == 6 ? AF_INET6 : AF_INET, p->ip, ip, sizeof ip);
        snprintf(text, sizeof text, p->family == 6 ? "[%s]:%u" : "%s:%u", ip, p->port);
        (void)json_array_append_new(out, json_string(text));
    }
    return out;
}

/* A standby does not know: null. */
static json_t *is_connected(const api *a, const core_node *n)
{
    return a->follows ? json_null() : json_boolean(n->connected);
}

typedef struct node_counts {
    unsigned free, leased, broken; /* broken: quarantined ones, too */
} node_counts;

static node_counts count_slots(const api *a, const core_node *n)
{
    const pool *p = core_pool(a->core);
    node_counts out = { 0, 0, 0 };
    uint32_t count;
    const core_port *ports = core_ports(a->core, &count);
    for (uint32_t i = n->first; i < n->first + n->total; i++) {
        if (n->role == DXPU_CONTROL_ROLE_HOST) {
            out.leased += ports[i].slot != CORE_NONE;
            out.free += ports[i].slot == CORE_NONE && !ports[i].foreign;
        } else {
            unsigned state = p->slot[i].state;
            out.leased += p->slot[i].lease != POOL_NONE;
            out.free += state == POOL_FREE || state == POOL_SPARE;
            out.broken += state == POOL_BROKEN || state == POOL_QUARANTINED;
        }
    }
    return out;
}

/* What is wrong with a node that is connected; which hosts do not reach a box. */
static void add_suspect(const api *a, uint32_t node, json_t *out)
{
    enum { HOSTS = 64 };
    uint32_t hosts[HOSTS], count;
    const core_node *n = &core_nodes(a->core, &count)[node];
    char text[CORE_TROUBLE_BYTES];
    uint64_t since_ms;
    if (a->follows) {
        (void)json_object_set_new(out, "suspect", json_null());
        (void)json_object_set_new(out, "unreached_by", json_null());
        return;
    }
    bool box = n->role == DXPU_CONTROL_ROLE_BOX;
    unsigned level = core_suspect(a->core, node, &since_ms, text);
    unsigned known = box ? core_unreached_by(a->core, node, hosts, HOSTS) : 0;
    json_t *list = json_array();
    for (unsigned i = 0; i < known && i < HOSTS; i++)
        (void)json_array_append_new(list, number(hosts[i]));
    (void)json_object_set_new(out, "suspect",
                              *text ? json_pack("{s:s, s:s, s:o}", "lent",
                                                !box        ? "as_before"
                                                : level > 1 ? "no"
                                                            : "last",
                                                "why", text, "since", api_json_time(since_ms))
                                    : json_null());
    (void)json_object_set_new(out, "unreached_by", list);
}

/* A proxy is known by its identity and key, so tenants do not see it. */
json_t *api_json_node(const api *a, uint32_t node, const api_caller *caller)
{
    uint32_t nodes;
    const core_node *n = &core_nodes(a->core, &nodes)[node];
    bool tenant = caller->role == API_TENANT;
    char identity[33], key[DXPU_SODIUM_KEY_TEXT_BYTES] = "";
    node_counts slots = count_slots(a, n);
    json_t *out;
    for (unsigned i = 0; i < 16; i++)
        snprintf(identity + 2 * i, 3, "%02x", n->identity[i]);
    if (n->keyed)
        dxpu_sodium_key_print(n->key, key);
    out = json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "node",
        number(n->number), "role", dxpu_control_role_name(n->role), "name", api_json_text(n->name),
        "program", api_json_text(n->program), "identity", text_or_null(tenant ? "" : identity),
        "key", text_or_null(tenant ? "" : key), "connected", is_connected(a, n), "since",
        api_json_time(a->follows ? 0 : n->since_unix_ms), "draining", n->draining, "addresses",
        addresses(n), "slots", number(n->total), "free", number(slots.free), "leased",
        number(slots.leased), "broken", number(slots.broken), "owner", text_or_null(n->owner));
    if (out)
        (void)json_object_set_new(out, "direct",
                                  n->role == DXPU_CONTROL_ROLE_BOX ? json_boolean(!n->no_direct)
                                                                   : json_null());
    add_suspect(a, node, out);
    return out;
}

/* ==== 3  Slots ================================================================================ */

void api_slot_name(const api *a, uint32_t slot, char out[24])
{
    uint32_t count;
    const core_slot *s = &core_slots(a->core, &count)[slot];
    snprintf(out, 24, "%u.%u", core_nodes(a->core, &count)[s->node].number, s->device.number);
}

bool api_sees_lease(const api *a, const api_caller *caller, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(core_pool(a->core), lease);
    uint32_t count;
    return l && (caller->role != API_TENANT ||
                 !strcmp(core_tenants(a->core, &count)[l->tenant].name, caller->tenant));
}

bool api_may_use(const api *a, const api_caller *caller, uint64_t node)
{
    uint32_t count, index = core_find_node(a->core, (uint32_t)node);
    const core_node *n = core_nodes(a->core, &count);
    if (caller->role != API_TENANT)
        return true;
    if (index == CORE_NONE || n[index].role != DXPU_CONTROL_ROLE_HOST)
        return false;
    return !n[index].owner[0] ? a->set.shared_hosts : !strcmp(n[index].owner, caller->tenant);
}

/* What proxies say: a standby, to which they say nothing, does not know (M-146). */
static json_t *known(const api *a, const char *what)
{
    return a->follows ? json_null() : json_string(what);
}

static const char *health_name(unsigned health)
{
    return health == DXPU_CONTROL_HEALTH_GOOD     ? "good"
           : health == DXPU_CONTROL_HEALTH_BROKEN ? "broken"
                                                  : "none";
}

/* The last lease of the slot was the tenant's, and it was not lent since. */
static bool has_left(const api *a, const char *tenant, uint32_t slot)
{
    uint32_t count;
    const core_slot *s = &core_slots(a->core, &count)[slot];
    uint32_t box = core_nodes(a->core, &count)[s->node].number;
    uint64_t epoch = core_pool(a->core)->slot[slot].epoch;
    for (unsigned i = 0; i < API_LEFT; i++) {
        const api_left *l = &a->left[i];
        if (l->box == box && l->slot == s->device.number && l->epoch == epoch &&
            !strcmp(l->tenant, tenant))
            return true;
    }
    return false;
}

bool api_sees_slot(const api *a, const api_caller *caller, uint32_t slot)
{
    const pool *p = core_pool(a->core);
    if (caller->role != API_TENANT)
        return true;
    if (p->slot[slot].lease != POOL_NONE)
        return api_sees_lease(a, caller, pool_lease_number(p, p->slot[slot].lease));
    if (core_slot_owner(a->core, slot))
        return api_sees_lease(a, caller, core_slot_owner(a->core, slot));
    return has_left(a, caller->tenant, slot);
}

const char *api_slot_state(const api *a, const api_caller *caller, uint32_t slot)
{
    unsigned state = core_slot_state(a->core, slot);
    bool is_free = state == POOL_FREE || state == POOL_SPARE;
    return is_free || api_sees_slot(a, caller, slot) ? pool_state_name(state) : NULL;
}

/* That the slot is there, and whether it is free. */
static void hide_slot(json_t *o, const char *state)
{
    static const char *const hidden[] = { "node_name",    "serial",         "group",
                                          "reason",       "dirty",          "epoch",
                                          "health",       "box_state",      "connected",
                                          "retained_for", "retained_left_s" };
    for (unsigned i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        (void)json_object_set_new(o, hidden[i], json_null());
    (void)json_object_set_new(o, "state", state ? json_string(state) : json_null());
}

static const char *data_name(unsigned data)
{
    return data == DXPU_CONTROL_DATA_NONE         ? "none"
           : data == DXPU_CONTROL_DATA_PERSISTENT ? "persistent"
                                                  : "unknown";
}

/* "10.3", the slot with the first function of the slot's device, or null: it is not shared. */
static json_t *device_name(const api *a, uint32_t slot, const core_function *f)
{
    uint32_t count;
    const core_slot *s = &core_slots(a->core, &count)[slot];
    char name[24];
    if (!f->device)
        return json_null();
    snprintf(name, sizeof name, "%u.%u", core_nodes(a->core, &count)[s->node].number, f->device);
    return json_string(name);
}

/* Functions of a shared device that the pool has; of one that is lent whole, its own. */
static unsigned count_functions(const api *a, uint32_t slot, const core_function *f)
{
    uint32_t count;
    const core_slot *s = &core_slots(a->core, &count)[slot];
    const core_node *n = &core_nodes(a->core, &count)[s->node];
    unsigned all = 0;
    if (!f->device)
        return f->functions;
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        all += i < core_pool(a->core)->slots && core_pool(a->core)->slot[i].device == f->device;
    return all;
}

static void add_function(json_t *o, const api *a, uint32_t slot)
{
    core_function f = core_function_of(a->core, slot);
    (void)json_object_set_new(o, "device", device_name(a, slot, &f));
    (void)json_object_set_new(o, "function", f.device ? number(f.function) : json_null());
    (void)json_object_set_new(o, "functions", number(count_functions(a, slot, &f)));
    (void)json_object_set_new(o, "virtual_functions", number(f.virtuals));
}

json_t *api_json_slot(const api *a, uint32_t slot, const api_caller *caller)
{
    uint32_t count;
    const core_slot *s = &core_slots(a->core, &count)[slot];
    const core_node *n = &core_nodes(a->core, &count)[s->node];
    const pool *p = core_pool(a->core);
    const pool_slot *q = &p->slot[slot];
    const dxpu_control_device *d = &s->device;
    uint64_t lease = q->lease == POOL_NONE ? 0 : pool_lease_number(p, q->lease);
    uint64_t owner = core_slot_owner(a->core, slot);
    char name[24];
    json_t *o;
    api_slot_name(a, slot, name);
    o = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:b, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o}",
        "slot", name, "node", number(n->number), "node_name", api_json_text(n->name), "number",
        number(d->number), "model", api_json_text(d->model), "attributes",
        text_or_null(d->attributes), "data", data_name(d->data), "serial", api_json_text(d->serial),
        "vendor_id", hex(d->vendor, 4), "device_id", hex(d->device, 4), "class",
        hex(d->class_code, 6), "group", number_or_null(d->group, 0), "state",
        pool_state_name(core_slot_state(a->core, slot)), "reason", pool_reason_name(q->reason),
        "dirty", q->dirty, "epoch", number_or_null(q->epoch, 0), "lease",
        api_sees_lease(a, caller, lease) ? api_json_lease_id(lease) : json_null(), "health",
        known(a, health_name(d->health)), "box_state", known(a, dxpu_control_state_name(d->state)),
        "connected", is_connected(a, n), "retained_for", api_json_lease_id(owner),
        "retained_left_s", owner ? seconds_left(core_slot_left_ms(a->core, slot)) : json_null());
    if (o)
        add_function(o, a, slot);
    if (o && !api_sees_slot(a, caller, slot))
        hide_slot(o, api_slot_state(a, caller, slot));
    return o;
}

/* ==== 4  Leases =============================================================================== */

static json_t *rate(double per_s)
{
    return per_s < 0 ? json_null() : json_real(per_s);
}

/* host: NULL, it is parked. */
static json_t *lease_slots(const api *a, uint64_t lease, const core_lease *more,
                           const core_node *host)
{
    const pool *p = core_pool(a->core);
    uint32_t slots[POOL_COUNT_MAX], count;
    const core_slot *of = core_slots(a->core, &count);
    const core_node *nodes = core_nodes(a->core, &count);
    unsigned n = pool_lease_slots(p, lease, slots);
    json_t *out = json_array();
    for (unsigned i = 0; i < n; i++) {
        const api_traffic *t = host ? api_traffic_of(a, host, more->port[i]) : NULL;
        char name[24], why[CORE_TROUBLE_BYTES];
        (void)core_slot_trouble(a->core, slots[i], why);
        api_slot_name(a, slots[i], name);
        core_function f = core_function_of(a->core, slots[i]);
        (void)json_array_append_new(
            out, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "slot", name, "device",
                           device_name(a, slots[i], &f), "box_connected",
                           is_connected(a, &nodes[of[slots[i]].node]), "host_slot",
                           host ? number(more->port[i]) : json_null(), "epoch",
                           number(p->slot[slots[i]].epoch), "state",
                           known(a, core_phase_name(core_slot_phase(a->core, slots[i]))), "why",
                           text_or_null(why), "to_device_per_s", rate(t ? t->to_per_s : -1),
                           "from_device_per_s", rate(t ? t->from_per_s : -1)));
    }
    return out;
}

/* The host with this index of the pool; NULL: there is none. */
static const core_node *host_of(const api *a, uint32_t host)
{
    uint32_t count;
    const core_node *n = core_nodes(a->core, &count);
    for (uint32_t i = 0; host != POOL_NONE && i < count; i++) {
        if (n[i].role == DXPU_CONTROL_ROLE_HOST && n[i].pool_index == host)
            return &n[i];
    }
    return NULL;
}

/* Some slot of the lease does, or its box does not say. */
static bool keeps_data(const api *a, uint64_t lease)
{
    uint32_t slots[POOL_COUNT_MAX];
    unsigned n = pool_lease_slots(core_pool(a->core), lease, slots);
    for (unsigned i = 0; i < n; i++)
        if (core_keeps_data(a->core, slots[i]))
            return true;
    return false;
}

bool api_knows_state(const api *a, unsigned state)
{
    return !a->follows || state == CORE_LEASE_PARKED || state == CORE_LEASE_ENDED;
}

static json_t *state_of(const api *a, uint64_t lease)
{
    core_lease_state state = core_lease_now(a->core, lease);
    return api_knows_state(a, state) ? json_string(core_lease_state_name(state)) : json_null();
}

/* The leases of the same tenant that it asked to be near to, or that asked for it. */
static json_t *peers_of(const api *a, uint64_t lease)
{
    uint64_t peer[CORE_PEERS_MAX];
    unsigned n = core_lease_peers(a->core, lease, peer);
    json_t *out = json_array();
    for (unsigned i = 0; i < n; i++)
        (void)json_array_append_new(
            out, json_pack("{s:o, s:s}", "lease", api_json_lease_id(peer[i]), "way",
                           core_way_name(core_way_between(a->core, lease, peer[i]))));
    return out;
}

json_t *api_json_lease(const api *a, uint64_t lease)
{
    static const char *const needs[] = { "any", "same_box", "same_group", "spread" };
    static const char *const devices[] = { "any", "whole", "function" };
    const pool *p = core_pool(a->core);
    const pool_lease *l = pool_find_lease(p, lease);
    const core_lease *more;
    const core_node *host;
    uint32_t count;
    char moved[24] = "";
    if (!l)
        return NULL;
    more = &core_leases(a->core)[l - p->lease];
    host = host_of(a, l->host);
    if (more->moved_node)
        snprintf(moved, sizeof moved, "%u.%u", more->moved_node, more->moved_slot);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:s, s:b, s:s, s:b, s:b, s:o, s:o, "
        "s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "lease", api_json_lease_id(lease), "tenant",
        api_json_text(core_tenants(a->core, &count)[l->tenant].name), "key",
        text_or_null(more->key), "host", host ? number(host->number) : json_null(), "host_name",
        host ? api_json_text(host->name) : json_null(), "host_connected",
        host ? is_connected(a, host) : json_null(), "model",
        api_json_text(core_models(a->core, &count)[l->model].name), "attributes",
        text_or_null(more->attributes), "data", keeps_data(a, lease) ? "persistent" : "none",
        "count", number(l->count), "need", needs[l->need < POOL_NEEDS ? l->need : 0], "need_kept",
        pool_need_kept(p, lease), "device", devices[l->device < POOL_DEVICES ? l->device : 0],
        "exclusive", l->exclusive, "apart", l->apart, "peer", api_json_lease_id(l->peer), "peers",
        peers_of(a, lease), "direct", known(a, core_direct_name(core_lease_direct(a->core, lease))),
        "state", state_of(a, lease), "replace", core_lease_replaces(a->core, lease), "replaced",
        number(more->replaced), "created_at", api_json_time(more->created_unix_ms), "expires_at",
        api_json_time(more->expires_unix_ms), "slots", lease_slots(a, lease, more, host),
        "retained", api_json_retained(a, lease), "wiped_in_s",
        seconds_left(core_lease_left_ms(a->core, lease)), "moved_from", text_or_null(moved),
        "moved_why", text_or_null(*moved ? pool_reason_text(more->moved_why) : ""));
}

/* ==== 5  Pool, tenants, events ================================================================ */

static json_t *nodes_of(const api *a, unsigned role)
{
    uint32_t count;
    const core_node *n = core_nodes(a->core, &count);
    uint64_t total = 0, connected = 0, draining = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (n[i].role != role)
            continue;
        total++;
        connected += n[i].connected;
        draining += n[i].draining;
    }
    json_t *out = json_pack("{s:o, s:o}", "total", number(total), "connected",
                            a->follows ? json_null() : number(connected));
    if (role == DXPU_CONTROL_ROLE_BOX)
        (void)json_object_set_new(out, "draining", number(draining));
    return out;
}

/* Those that the caller sees. */
static json_t *leases_of(const api *a, const api_caller *caller)
{
    const pool *p = core_pool(a->core);
    uint64_t count[CORE_LEASE_STATES] = { 0 }, total = 0, seen = 0;
    json_t *out = json_object();
    for (uint32_t i = 0; i < p->limits.leases && seen < p->leases; i++) {
        uint64_t lease = pool_lease_number(p, i);
        seen += lease != 0;
        if (!lease || !api_sees_lease(a, caller, lease))
            continue;
        total++;
        count[core_lease_now(a->core, lease)]++;
    }
    (void)json_object_set_new(out, "total", number(total));
    for (unsigned s = 0; s < CORE_LEASE_STATES; s++)
        (void)json_object_set_new(out, core_lease_state_name(s),
                                  api_knows_state(a, s) ? number(count[s]) : json_null());
    return out;
}

static void add_states(json_t *out, const uint64_t count[POOL_STATES])
{
    uint64_t total = 0;
    for (unsigned s = 0; s < POOL_STATES; s++) {
        total += count[s];
        (void)json_object_set_new(out, pool_state_name(s), number(count[s]));
    }
    (void)json_object_set_new(out, "total", number(total));
}

/* Why the store fails has paths of this machine in it. */
const char *api_store_text(const api *a, const api_caller *caller, char text[256])
{
    return !core_store_failed(a->core, text) ? "ok"
           : caller->role == API_TENANT      ? "cannot be written"
                                             : text;
}

json_t *api_json_pool(const api *a, const api_caller *caller)
{
    const pool *p = core_pool(a->core);
    uint64_t all[POOL_STATES] = { 0 };
    uint32_t models;
    const core_model *m = core_models(a->core, &models);
    uint32_t(*count)[POOL_STATES] = calloc(models + 1, sizeof *count);
    json_t *slots = json_object(), *list = json_array();
    char text[256];
    int64_t step_ms;
    if (count)
        core_count_slots(a->core, count);
    for (uint32_t i = 0; count && i < models; i++) {
        uint64_t of[POOL_STATES];
        json_t *j = json_pack("{s:o, s:o, s:f, s:f}", "model", api_json_text(m[i].name),
                              "spares_wanted", number(p->model[i].spares_wanted), "room_box",
                              pool_room(p, (uint16_t)i, false), "room_group",
                              pool_room(p, (uint16_t)i, true));
        for (unsigned s = 0; s < POOL_STATES; s++)
            all[s] += of[s] = count[i][s];
        add_states(j, of);
        (void)json_array_append_new(list, j);
    }
    add_states(slots, all);
    if (!count) {
        json_decref(slots);
        json_decref(list);
        return NULL;
    }
    free(count);
    return json_pack("{s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "store",
                     api_json_text(api_store_text(a, caller, text)), "clock_held",
                     core_clock_held(a->core, &step_ms), "direct", core_may_direct(a->core),
                     "epoch", number(p->epoch), "boxes", nodes_of(a, DXPU_CONTROL_ROLE_BOX),
                     "hosts", nodes_of(a, DXPU_CONTROL_ROLE_HOST), "leases", leases_of(a, caller),
                     "leases_of",
                     caller->role == API_TENANT ? api_json_text(caller->tenant) : json_null(),
                     "slots", slots, "models", list);
}

json_t *api_json_tenant(const api *a, uint32_t tenant)
{
    uint32_t count;
    const pool *p = core_pool(a->core);
    const core_tenant *of = &core_tenants(a->core, &count)[tenant];
    return json_pack("{s:o, s:o, s:o, s:b}", "tenant", api_json_text(of->name), "quota",
                     number_or_null(p->tenant[tenant].quota, POOL_NONE), "used",
                     number(pool_used(p, tenant)), "direct", !of->no_direct);
}

json_t *api_json_event(const api *a, const core_event *e)
{
    uint32_t count, node = core_find_node(a->core, e->node);
    char slot[24];
    snprintf(slot, sizeof slot, "%u.%u", e->node, e->slot);
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "event", number(e->number),
                     "at", api_json_time(e->unix_ms), "type", core_event_name(e->type), "node",
                     number_or_null(e->node, 0), "node_name",
                     node == CORE_NONE ? json_null()
                                       : api_json_text(core_nodes(a->core, &count)[node].name),
                     "slot", e->node && e->slot ? json_string(slot) : json_null(), "lease",
                     api_json_lease_id(e->lease), "tenant", text_or_null(e->tenant), "text",
                     api_json_text(e->text));
}
