/* core_rig.h - the manager's core in a test: a store in memory that can fail, and registers
   SPDX-License-Identifier: MIT */
#ifndef CORE_RIG_H_INCLUDED
#define CORE_RIG_H_INCLUDED

#include "core_internal.h"

/* Leases that a test may make at once. */
enum { EARLY = 1 << 20 };

static inline void rig_settings(core_settings *set)
{
    core_settings_default(set);
    set->early = EARLY;
}

/* -- A store in memory -- */

typedef struct rig_record {
    char key[STORE_KEY_MAX_BYTES + 1];
    char *value;
    size_t len;
} rig_record;

typedef struct rig_store {
    store base;
    rig_record *record; /* in order of the keys */
    unsigned records, room;
    unsigned commits, failures;
    bool forgetful;      /* says that it has what it has not */
    unsigned fail_after; /* that many more commits succeed; UINT_MAX: all */
    bool unreadable;     /* loads fail */
    store_error fault;   /* of the others */
    bool lost;           /* a failed commit was made all the same */
} rig_store;

static unsigned rig_place(const rig_store *s, const char *key, bool *there)
{
    unsigned low = 0, high = s->records;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (strcmp(s->record[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *there = low < s->records && strcmp(s->record[low].key, key) == 0;
    return low;
}

static void rig_change(rig_store *s, const store_change *c)
{
    bool there;
    unsigned at = rig_place(s, c->key, &there);
    if (there)
        free(s->record[at].value);
    if (!c->value && there)
        memmove(&s->record[at], &s->record[at + 1], (--s->records - at) * sizeof *s->record);
    if (!c->value)
        return;
    if (!there) {
        if (s->records == s->room) {
            s->room = s->room ? 2 * s->room : 64;
            s->record = realloc(s->record, s->room * sizeof *s->record);
        }
        memmove(&s->record[at + 1], &s->record[at], (s->records++ - at) * sizeof *s->record);
        snprintf(s->record[at].key, sizeof s->record[at].key, "%s", c->key);
    }
    s->record[at].value = malloc(c->len + 1);
    memcpy(s->record[at].value, c->value, c->len);
    s->record[at].value[c->len] = 0;
    s->record[at].len = c->len;
}

static store_error rig_load(store *base, const char *prefix, store_each each, void *user,
                            store_fault *f)
{
    rig_store *s = (rig_store *)base;
    bool there;
    if (s->unreadable) {
        f->code = STORE_E_MEMORY;
        snprintf(f->text, sizeof f->text, "the store in memory is not to be read");
        return f->code;
    }
    for (unsigned i = rig_place(s, prefix, &there);
         i < s->records && strncmp(s->record[i].key, prefix, strlen(prefix)) == 0; i++)
        if (each(user, s->record[i].key, s->record[i].value, s->record[i].len))
            break;
    return STORE_OK;
}

static store_error rig_commit(store *base, const store_change *changes, unsigned count,
                              store_fault *f)
{
    rig_store *s = (rig_store *)base;
    bool fails = s->fail_after == 0;
    if (!fails && s->fail_after != UINT_MAX)
        s->fail_after--;
    for (unsigned i = 0; i < count && (!fails || s->lost) && !s->forgetful; i++)
        rig_change(s, &changes[i]);
    s->commits++;
    s->failures += fails;
    if (!fails)
        return STORE_OK;
    f->code = s->fault;
    snprintf(f->text, sizeof f->text, "the store in memory is to fail");
    return s->fault;
}

static void rig_store_init(rig_store *s)
{
    static const store_kind kind = { .load = rig_load, .commit = rig_commit };
    memset(s, 0, sizeof *s);
    s->base.kind = &kind;
    s->fail_after = UINT_MAX;
}

static void rig_store_free(rig_store *s)
{
    for (unsigned i = 0; i < s->records; i++)
        free(s->record[i].value);
    free(s->record);
}

static inline rig_store rig_store_copy(const rig_store *s)
{
    rig_store copy;
    rig_store_init(&copy);
    for (unsigned i = 0; i < s->records; i++) {
        store_change one = { s->record[i].key, s->record[i].value, s->record[i].len };
        rig_change(&copy, &one);
    }
    return copy;
}

/* -- What the store has -- */

/* Does the record say what the table does?  plain: it needs none, as nothing was ever set. */
static bool rig_agrees(const core *c, const rig_store *s, corei_kind kind, uint32_t index,
                       bool plain)
{
    corei_mark m = { kind, index };
    json_t *j = corei_json_of(c, m);
    char *text = json_dumps(j, JSON_COMPACT);
    bool there, good;
    unsigned at = rig_place(s, corei_key_of(c, m).text, &there);
    good = there ? s->record[at].len == strlen(text) && !strcmp(s->record[at].value, text) : plain;
    free(text);
    json_decref(j);
    return good;
}

static uint32_t rig_count(const rig_store *s, const char *prefix)
{
    bool there;
    unsigned first = rig_place(s, prefix, &there), last = first;
    while (last < s->records && !strncmp(s->record[last].key, prefix, strlen(prefix)))
        last++;
    return last - first;
}

/* The store has exactly what is to outlive this core: NULL, or what differs. */
static inline const char *rig_differs(const core *c, const rig_store *s)
{
    const pool *p = c->t.pool;
    uint32_t leases = 0;
    if (c->dead || s->forgetful)
        return NULL;
    for (uint32_t i = 0; i < c->t.nodes; i++) {
        bool later =
            c->t.node_more[i].unsaved; /* as its store failed, or it has not reported all */
        if (!later && !rig_agrees(c, s, COREI_NODE, i, false))
            return "a node";
        if (later && c->t.node[i].connected && !c->t.timers.place[corei_node_unit(c, i)])
            return "a node that is never stored";
    }
    for (uint32_t i = 0; i < p->slots; i++)
        if (!c->t.slot_more[i].silent && /* hidden for as long as its box is disconnected */
            !rig_agrees(c, s, COREI_SLOT, i, false))
            return "a slot";
    for (uint32_t i = 0; i < p->limits.leases; i++) {
        leases += pool_lease_number(p, i) != 0;
        if (pool_lease_number(p, i) && !rig_agrees(c, s, COREI_LEASE, i, false))
            return "a lease";
    }
    for (uint32_t i = 0; i < p->tenants; i++)
        if (!rig_agrees(c, s, COREI_TENANT, i,
                        p->tenant[i].quota == c->set.default_quota && !c->t.tenant[i].no_direct))
            return "a tenant";
    for (uint32_t i = 0; i < c->t.models; i++)
        if (!rig_agrees(c, s, COREI_SPARES, i, !p->model[i].spares_wanted))
            return "spares";
    return rig_count(s, "node/") != c->t.nodes ? "the number of nodes"
           : rig_count(s, "slot/") != p->slots ? "the number of slots"
           : rig_count(s, "lease/") != leases  ? "the number of leases"
                                               : NULL;
}

/* -- Registers -- */

static const uint8_t *rig_key; /* whose the connection is; NULL: without keys */
static const char *rig_name = "name";

/* A proxy reports `count` slots from the first one on. */
static inline uint32_t rig_register(core *c, uint8_t role, uint8_t identity, uint64_t instance,
                                    const dxpu_control_device *d, unsigned total, unsigned first,
                                    unsigned count, core_result *why)
{
    static uint8_t room[COREI_HOST_SLOTS_MAX * DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control_register r = { .role = role,
                                .total = (uint16_t)total,
                                .first = (uint16_t)first,
                                .count = (uint16_t)count,
                                .entry_bytes = DXPU_CONTROL_DEVICE_BYTES,
                                .instance = instance,
                                .identity = { identity, 1 },
                                .entries = { room, count * (size_t)DXPU_CONTROL_DEVICE_BYTES } };
    r.name.ptr = (const uint8_t *)rig_name;
    r.name.len = strlen(rig_name);
    if (role == DXPU_CONTROL_ROLE_BOX) {
        r.paths = 1;
        r.path[0] = (dxpu_control_address){ 4, (uint16_t)(4400 + identity), { 127, 0, 0, 1 } };
    }
    for (unsigned i = 0; i < count; i++)
        dxpu_control_device_encode(&d[first - 1 + i], room + i * DXPU_CONTROL_DEVICE_BYTES);
    return core_register(c, &r, "test 1.0", rig_key, why);
}

#endif /* CORE_RIG_H_INCLUDED */
