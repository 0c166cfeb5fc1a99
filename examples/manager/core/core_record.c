/* core_record.c - nodes, slots, leases and events as the records that the store keeps
   SPDX-License-Identifier: MIT

   What is read was written by this program.  It is checked all the same: people repair files by
   hand. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"
#include "dxpu_sodium.h"

enum { DATA_KINDS = DXPU_CONTROL_DATA_PERSISTENT + 1 };

static const char *const need_names[POOL_NEEDS] = { "any", "same_box", "same_group", "spread" };

/* Returns the number of a name among `count` names, or `count`. */
static unsigned name_number(const char *name, const char *(*named)(unsigned), unsigned count)
{
    unsigned i = 0;
    while (i < count && strcmp(name, named(i)) != 0)
        i++;
    return i;
}

static const char *need_name(unsigned need)
{
    return need_names[need];
}

static const char *device_name(unsigned device)
{
    static const char *const names[POOL_DEVICES] = { "any", "whole", "function" };
    return names[device];
}

static const char *replace_name(unsigned how)
{
    static const char *const names[] = { "default", "yes", "no" };
    return names[how];
}

/* Older programs had a flag. */
static bool replace_read(json_t *j, uint8_t *out)
{
    if (json_is_boolean(j)) {
        *out = json_is_true(j) ? CORE_REPLACE_YES : CORE_REPLACE_NO;
        return true;
    }
    *out = (uint8_t)name_number(json_is_string(j) ? json_string_value(j) : "", replace_name,
                                CORE_REPLACE_NO + 1);
    return *out <= CORE_REPLACE_NO;
}

static bool copy_text(char *out, size_t room, const char *text)
{
    size_t len = strlen(text);
    if (len >= room)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

void corei_clean_name(char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            *text = '_';
}

void corei_clean_model(char *model)
{
    corei_clean_name(model);
    const char *name = core_model_name(model);
    if (name != model)
        memcpy(model, name, strlen(name) + 1);
}

/* Counts that fit. */
static bool in_range(json_int_t value, json_int_t low, json_int_t high)
{
    return value >= low && value <= high;
}

/* -- Nodes -- */

static json_t *address_json(const dxpu_control_address *a)
{
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->ip, text, sizeof text);
    return json_pack("[s, i]", text, a->port);
}

static bool address_read(json_t *j, dxpu_control_address *out)
{
    const char *text;
    int port;
    memset(out, 0, sizeof *out);
    if (json_unpack(j, "[s, i]", &text, &port) != 0 || !in_range(port, 0, 65535))
        return false;
    out->family = strchr(text, ':') ? 6 : 4;
    out->port = (uint16_t)port;
    return inet_pton(out->family == 4 ? AF_INET : AF_INET6, text, out->ip) == 1;
}

json_t *corei_node_json(const core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    char identity[33], key[DXPU_SODIUM_KEY_TEXT_BYTES] = "";
    json_t *paths = json_array();
    for (unsigned i = 0; i < 16; i++)
        snprintf(identity + 2 * i, 3, "%02x", n->identity[i]);
    for (unsigned i = 0; i < n->paths; i++)
        json_array_append_new(paths, address_json(&n->path[i]));
    if (n->keyed)
        dxpu_sodium_key_print(n->key, key);
    json_t *j =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:b, s:b, s:o, s:s, s:s}", "role",
                  n->role == DXPU_CONTROL_ROLE_BOX ? "box" : "host", "identity", identity, "name",
                  n->name, "program", n->program, "slots", (int)n->total, "draining", n->draining,
                  "used", n->used, "paths", paths, "owner", n->owner, "key", key);
    if (j && n->no_direct)
        json_object_set_new(j, "direct", json_false());
    return j;
}

static bool identity_read(const char *text, uint8_t out[16])
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return false;
    for (unsigned i = 0; i < 16; i++) {
        char two[3] = { text[2 * i], text[2 * i + 1], 0 };
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    return true;
}

bool corei_node_read(json_t *j, core_node *out)
{
    const char *role, *identity, *name, *program, *owner = "", *key = "";
    int slots, draining, used = 1, direct = 1;
    json_t *paths;
    if (json_unpack(j, "{s:s, s:s, s:s, s:s, s:i, s:b, s?b, s:o, s?s, s?s, s?b}", "role", &role,
                    "identity", &identity, "name", &name, "program", &program, "slots", &slots,
                    "draining", &draining, "used", &used, "paths", &paths, "owner", &owner, "key",
                    &key, "direct", &direct) != 0)
        return false;
    bool box = strcmp(role, "box") == 0;
    out->role = box ? DXPU_CONTROL_ROLE_BOX : DXPU_CONTROL_ROLE_HOST;
    out->total = (uint32_t)slots;
    out->draining = draining;
    out->no_direct = !direct;
    out->used = used;
    if ((!box && strcmp(role, "host") != 0) || json_array_size(paths) > DXPU_CONTROL_PATHS_MAX ||
        !in_range(slots, 0, box ? POOL_BOX_SLOTS_MAX : COREI_HOST_SLOTS_MAX) ||
        !identity_read(identity, out->identity) || !copy_text(out->name, sizeof out->name, name) ||
        !copy_text(out->program, sizeof out->program, program) ||
        !copy_text(out->owner, sizeof out->owner, owner) ||
        (*key && !dxpu_sodium_key_parse(key, out->key)))
        return false;
    out->keyed = *key != 0;
    for (out->paths = 0; out->paths < json_array_size(paths); out->paths++)
        if (!address_read(json_array_get(paths, out->paths), &out->path[out->paths]))
            return false;
    return true;
}

/* -- Slots -- */

static const char *data_name(unsigned data)
{
    static const char *const names[] = { "unknown", "none", "persistent" };
    return data < DATA_KINDS ? names[data] : names[DXPU_CONTROL_DATA_UNKNOWN];
}

/* Adds for which lease the slot keeps data, whose that is, and how long. */
static void add_owner(json_t *j, const core *c, const pool_slot *s, uint64_t stored_ms)
{
    char lease[24];
    uint32_t tenant = c->t.pool->lease[s->owner].tenant;
    snprintf(lease, sizeof lease, "%llx",
             (unsigned long long)pool_lease_number(c->t.pool, s->owner));
    json_object_set_new(j, "lease", json_string(lease));
    json_object_set_new(j, "tenant", json_string(c->t.tenant[tenant].name));
    json_object_set_new(j, "place", json_integer(s->place));
    json_object_set_new(j, "left", json_integer((json_int_t)stored_ms));
}

json_t *corei_slot_json(const core *c, const pool_slot *s, const core_slot *box)
{
    const dxpu_control_device *d = &box->device;
    /* Which slots are spare or drained follows from what else is stored. */
    bool out = s->state != POOL_SPARE && s->state != POOL_DRAINED;
    json_t *j = json_pack("{s:s, s:s, s:I, s:b, s:s, s:s, s:i, s:i, s:I, s:I, s:s, s:s, s:b}",
                          "state", pool_state_name(out ? s->state : POOL_FREE), "reason",
                          pool_reason_name(out ? s->reason : POOL_WHY_NONE), "epoch",
                          (json_int_t)s->epoch, "dirty", s->dirty, "model", d->model, "serial",
                          d->serial, "vendor", d->vendor, "device", d->device, "class",
                          (json_int_t)d->class_code, "group", (json_int_t)d->group, "wipe",
                          pool_reason_name(s->wipe), "data", data_name(d->data), "up", box->served);
    if (j && box->medium) {
        char medium[17];
        snprintf(medium, sizeof medium, "%016llx", (unsigned long long)box->medium);
        json_object_set_new(j, "medium", json_string(medium));
    }
    if (j && d->attributes[0])
        json_object_set_new(j, "attributes", json_string(d->attributes));
    if (j && box->repaired_empty)
        json_object_set_new(j, "empty", json_true());
    if (j && s->owner != POOL_NONE)
        add_owner(j, c, s, box->stored_ms);
    return j;
}

/* Reads members that records of older programs lack: then there was no decision to wipe what is
   broken and dirty, and devices may keep data. */
static bool kept_read(json_t *j, core_slot *out, pool_slot *was, corei_owner *owner)
{
    const char *wipe = pool_reason_name(POOL_WHY_NONE), *data = "unknown", *lease = "",
               *tenant = "", *medium = "", *attributes = "";
    json_int_t place = 0, left = 0;
    int up = -1, empty = 0;
    memset(owner, 0, sizeof *owner);
    if (json_unpack(j, "{s?s, s?s, s?s, s?s, s?I, s?I, s?b, s?b, s?s, s?s}", "wipe", &wipe, "data",
                    &data, "lease", &lease, "tenant", &tenant, "place", &place, "left", &left, "up",
                    &up, "empty", &empty, "medium", &medium, "attributes", &attributes) != 0 ||
        !in_range(place, 0, POOL_COUNT_MAX - 1) || left < 0 ||
        !copy_text(owner->tenant, sizeof owner->tenant, tenant) ||
        !copy_text(out->device.attributes, sizeof out->device.attributes, attributes))
        return false;
    corei_clean_name(out->device.attributes);
    owner->lease = strtoull(lease, NULL, 16);
    owner->place = (unsigned)place;
    owner->older = up < 0;
    out->served = up > 0;
    out->medium = strtoull(medium, NULL, 16);
    out->repaired_empty = empty;
    out->stored_ms = owner->lease ? (uint64_t)left : 0;
    out->device.data = (uint8_t)name_number(data, data_name, DATA_KINDS);
    was->wipe = (uint8_t)name_number(wipe, pool_reason_name, POOL_REASONS);
    return out->device.data < DATA_KINDS && was->wipe < POOL_REASONS;
}

bool corei_slot_read(json_t *j, core_slot *out, pool_slot *was, corei_owner *owner)
{
    const char *state, *reason, *model, *serial;
    json_int_t epoch, class_code, group;
    int dirty, vendor, device;
    dxpu_control_device *d = &out->device;
    if (json_unpack(j, "{s:s, s:s, s:I, s:b, s:s, s:s, s:i, s:i, s:I, s:I}", "state", &state,
                    "reason", &reason, "epoch", &epoch, "dirty", &dirty, "model", &model, "serial",
                    &serial, "vendor", &vendor, "device", &device, "class", &class_code, "group",
                    &group) != 0 ||
        !in_range(epoch, 0, (json_int_t)COREI_EPOCH_MAX) || !in_range(class_code, 0, 0xffffff) ||
        !in_range(group, 0, UINT32_MAX) || !in_range(vendor, 0, 0xffff) ||
        !in_range(device, 0, 0xffff) || !copy_text(d->model, sizeof d->model, model) ||
        !copy_text(d->serial, sizeof d->serial, serial))
        return false;
    corei_clean_model(d->model);
    corei_clean_name(d->serial);
    d->vendor = (uint16_t)vendor;
    d->device = (uint16_t)device;
    d->class_code = (uint32_t)class_code;
    d->group = (uint32_t)group;
    was->state = (uint8_t)name_number(state, pool_state_name, POOL_STATES);
    was->reason = (uint8_t)name_number(reason, pool_reason_name, POOL_REASONS);
    was->epoch = (uint64_t)epoch;
    was->dirty = dirty;
    return was->state < POOL_STATES && was->reason < POOL_REASONS && kept_read(j, out, was, owner);
}

/* -- Leases -- */

/* Adds what few leases ask for, and older programs do not know. */
static void add_wishes(json_t *j, const pool_lease *l)
{
    char peer[24];
    snprintf(peer, sizeof peer, "%llx", (unsigned long long)l->peer);
    if (l->peer)
        json_object_set_new(j, "peer", json_string(peer));
    if (l->device)
        json_object_set_new(j, "device", json_string(device_name(l->device)));
    if (l->exclusive)
        json_object_set_new(j, "exclusive", json_true());
    if (l->apart)
        json_object_set_new(j, "apart", json_true());
}

static bool wishes_read(json_t *j, corei_lease_record *out)
{
    const char *device = device_name(POOL_DEVICE_ANY), *peer = "";
    int exclusive = 0, apart = 0;
    if (json_unpack(j, "{s?s, s?b, s?b, s?s}", "device", &device, "exclusive", &exclusive, "apart",
                    &apart, "peer", &peer) != 0)
        return false;
    out->peer = strtoull(peer, NULL, 16);
    out->device = (uint8_t)name_number(device, device_name, POOL_DEVICES);
    out->exclusive = exclusive;
    out->apart = apart;
    return out->device < POOL_DEVICES;
}

json_t *corei_lease_json(const core *c, uint32_t lease)
{
    const pool_lease *l = &c->t.pool->lease[lease];
    const core_lease *more = &c->t.lease[lease];
    json_t *slots = json_array();
    unsigned n = 0;
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next) {
        const core_slot *s = &c->t.slot[i];
        json_array_append_new(slots, json_pack("[i, i, i]", (int)c->t.node[s->node].number,
                                               s->device.number, more->port[n++]));
    }
    int host = l->host == POOL_NONE ? 0 : (int)c->t.node[c->t.host_node[l->host]].number;
    json_t *j = json_pack(
        "{s:s, s:s, s:i, s:s, s:s, s:o, s:s, s:I, s:I, s:s, s:i, s:b, s:b, s:b, s:I, s:[i, i], "
        "s:s}",
        "attributes", more->attributes, "tenant", c->t.tenant[l->tenant].name, "host", host,
        "model", c->t.model[l->model].name, "need", need_name(l->need), "slots", slots, "key",
        more->key, "created", (json_int_t)more->created_unix_ms, "expires",
        (json_int_t)more->expires_unix_ms, "replace", replace_name(more->replace), "replaced",
        (int)more->replaced, "up", more->was_up, "kept", more->kept, "ended", more->ended, "left",
        (json_int_t)more->stored_ms, "moved", (int)more->moved_node, more->moved_slot, "why",
        pool_reason_name(more->moved_why));
    if (j)
        add_wishes(j, l);
    return j;
}

static bool lease_slots_read(json_t *slots, corei_lease_record *out)
{
    if (!in_range((json_int_t)json_array_size(slots), 1, POOL_COUNT_MAX))
        return false;
    out->count = (uint8_t)json_array_size(slots);
    for (unsigned i = 0; i < out->count; i++) {
        int node, slot, port;
        if (json_unpack(json_array_get(slots, i), "[i, i, i]", &node, &slot, &port) != 0 ||
            !in_range(node, 1, INT32_MAX) || !in_range(slot, 1, POOL_BOX_SLOTS_MAX) ||
            !in_range(port, 0, COREI_HOST_SLOTS_MAX))
            return false;
        out->node[i] = (uint32_t)node;
        out->slot[i] = (uint16_t)slot;
        out->rest.port[i] = (uint16_t)port;
    }
    return true;
}

bool corei_lease_read(json_t *j, corei_lease_record *out)
{
    const char *tenant, *model, *need, *key, *attributes = "", *why = "none";
    json_int_t created, expires, left = 0;
    int host, replaced, up, kept = 0, ended = 0, node = 0, slot = 0;
    json_t *slots, *replace;
    memset(out, 0, sizeof *out);
    if (json_unpack(j,
                    "{s:s, s:i, s:s, s:s, s:o, s:s, s:I, s:I, s:o, s:i, s:b, s?b, s?b, s?I, "
                    "s?[i, i], s?s, s?s}",
                    "tenant", &tenant, "host", &host, "model", &model, "need", &need, "slots",
                    &slots, "key", &key, "created", &created, "expires", &expires, "replace",
                    &replace, "replaced", &replaced, "up", &up, "kept", &kept, "ended", &ended,
                    "left", &left, "moved", &node, &slot, "why", &why, "attributes",
                    &attributes) != 0 ||
        !in_range(host, 0, INT32_MAX) || !in_range(node, 0, INT32_MAX) ||
        !in_range(slot, 0, UINT16_MAX) || left < 0 || (ended && host) ||
        !replace_read(replace, &out->rest.replace) || created < 0 || expires < 0 || replaced < 0 ||
        !copy_text(out->tenant, sizeof out->tenant, tenant) ||
        !copy_text(out->model, sizeof out->model, model) ||
        !copy_text(out->rest.key, sizeof out->rest.key, key) ||
        !copy_text(out->rest.attributes, sizeof out->rest.attributes, attributes))
        return false;
    corei_clean_model(out->model);
    out->host = (uint32_t)host;
    out->need = (uint8_t)name_number(need, need_name, POOL_NEEDS);
    out->rest.created_unix_ms = (uint64_t)created;
    out->rest.expires_unix_ms = (uint64_t)expires;
    out->rest.replaced = (uint32_t)replaced;
    out->rest.was_up = up;
    out->rest.kept = kept;
    out->rest.ended = ended;
    out->rest.stored_ms = (uint64_t)left;
    out->rest.moved_node = (uint32_t)node;
    out->rest.moved_slot = (uint16_t)slot;
    out->rest.moved_why = (uint8_t)name_number(why, pool_reason_name, POOL_REASONS);
    return out->need < POOL_NEEDS && out->rest.moved_why < POOL_REASONS && wishes_read(j, out) &&
           lease_slots_read(slots, out);
}

/* -- Events -- */

json_t *corei_event_json(const core_event *e)
{
    return json_pack("{s:I, s:s, s:I, s:i, s:I, s:s, s:s}", "at", (json_int_t)e->unix_ms, "type",
                     core_event_name(e->type), "node", (json_int_t)e->node, "slot", e->slot,
                     "lease", (json_int_t)e->lease, "tenant", e->tenant, "text", e->text);
}

bool corei_event_read(json_t *j, core_event *out)
{
    const char *type, *tenant, *text;
    json_int_t at, node, lease;
    int slot;
    if (json_unpack(j, "{s:I, s:s, s:I, s:i, s:I, s:s, s:s}", "at", &at, "type", &type, "node",
                    &node, "slot", &slot, "lease", &lease, "tenant", &tenant, "text", &text) != 0 ||
        !in_range(node, 0, UINT32_MAX) || !in_range(slot, 0, 65535) ||
        !copy_text(out->tenant, sizeof out->tenant, tenant) ||
        !copy_text(out->text, sizeof out->text, text))
        return false;
    out->unix_ms = (uint64_t)at;
    out->type = (uint8_t)name_number(type, core_event_name, CORE_EVENT_TYPES);
    out->node = (uint32_t)node;
    out->slot = (uint16_t)slot;
    out->lease = (uint64_t)lease;
    return out->type < CORE_EVENT_TYPES;
}
