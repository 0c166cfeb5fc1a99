/* core_store.c - the transaction: tables have changed, their records follow, or they change back
   SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"

core_result corei_begin(core *c)
{
    if (!c->pending)
        c->marks = c->gones = c->tolds = c->news = 0;
    if (c->dead || c->mono_ms < c->refuse_until_ms)
        return corei_result(CORE_E_STORE, "%.250s", c->failure);
    return (core_result){ CORE_OK, "" };
}

void corei_mark_changed(core *c, corei_kind kind, uint32_t index)
{
    for (unsigned i = 0; i < c->marks; i++)
        if (c->mark[i].kind == kind && c->mark[i].index == index)
            return;
    if (c->marks < COREI_MARKS_MAX)
        c->mark[c->marks] = (corei_mark){ kind, index };
    c->marks++; /* more than there is room for: the commit fails */
}

void corei_mark_new(core *c, json_t *record, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->new_key[c->news], sizeof c->new_key[0], format, args);
    c->new_record[c->news++] = record;
    va_end(args);
}

void corei_mark_gone(core *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (c->gones < COREI_MARKS_MAX)
        vsnprintf(c->gone[c->gones], sizeof c->gone[0], format, args);
    c->gones++;
    va_end(args);
}

/* -- One record -- */

corei_key corei_key_of(const core *c, corei_mark m)
{
    const corei_tables *t = &c->t;
    corei_key k;
    switch (m.kind) {
    case COREI_NODE:
        snprintf(k.text, sizeof k.text, "node/%u", t->node[m.index].number);
        break;
    case COREI_SLOT:
        snprintf(k.text, sizeof k.text, "slot/%u.%u", t->node[t->slot[m.index].node].number,
                 t->slot[m.index].device.number);
        break;
    case COREI_LEASE:
        snprintf(k.text, sizeof k.text, "lease/%llx",
                 (unsigned long long)pool_lease_number(t->pool, m.index));
        break;
    case COREI_TENANT:
        snprintf(k.text, sizeof k.text, "tenant/%s", t->tenant[m.index].name);
        break;
    case COREI_SPARES:
        snprintf(k.text, sizeof k.text, "spares/%s", t->model[m.index].name);
        break;
    default:
        snprintf(k.text, sizeof k.text, "meta");
        break;
    }
    return k;
}

static json_t *tenant_json(const corei_tables *t, uint32_t tenant)
{
    json_t *j = json_pack("{s:I}", "quota", (json_int_t)t->pool->tenant[tenant].quota);
    if (j && t->tenant[tenant].no_direct)
        json_object_set_new(j, "direct", json_false());
    return j;
}

static json_t *meta_json(const core *c)
{
    json_t *j =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:b, s:I}", "format", COREI_FORMAT, "node",
                  (json_int_t)c->t.highest_node, "epoch", (json_int_t)c->t.pool->epoch, "foreign",
                  (json_int_t)c->t.foreign_epoch, "serial", (json_int_t)c->t.pool->serial, "time",
                  (json_int_t)(c->held ? c->last_unix_ms : c->unix_ms), "held", c->held, "term",
                  (json_int_t)c->term);
    if (j && c->set.no_direct)
        json_object_set_new(j, "direct", json_false());
    return j;
}

json_t *corei_json_of(const core *c, corei_mark m)
{
    const corei_tables *t = &c->t;
    switch (m.kind) {
    case COREI_NODE:
        return corei_node_json(c, m.index);
    case COREI_SLOT:
        return corei_slot_json(c, &t->pool->slot[m.index], &t->slot[m.index]);
    case COREI_LEASE:
        return corei_lease_json(c, m.index);
    case COREI_TENANT:
        return tenant_json(t, m.index);
    case COREI_SPARES:
        return json_pack("{s:I}", "count", (json_int_t)t->pool->model[m.index].spares_wanted);
    default:
        return meta_json(c);
    }
}

/* -- All -- */

typedef struct batch_record {
    corei_key key;
    char *value;
} batch_record;

typedef struct record_batch {
    store_change *change;
    unsigned count, room;
    bool failed;
    batch_record record[];
} record_batch;

/* NULL without memory.  Most have a few records: room for the most takes longer than the rest. */
static record_batch *batch_new(unsigned room)
{
    room = room < STORE_CHANGES_MAX ? room : STORE_CHANGES_MAX;
    record_batch *b = malloc(sizeof *b + room * (sizeof b->record[0] + sizeof b->change[0]));
    if (!b)
        return NULL;
    *b = (record_batch){ .change = (store_change *)(void *)&b->record[room], .room = room };
    return b;
}

static void batch_add(record_batch *b, corei_key key, json_t *j)
{
    if (b->count == b->room) {
        b->failed = true;
        json_decref(j);
        return;
    }
    char *value = j ? json_dumps(j, JSON_COMPACT) : NULL;
    batch_record *r = &b->record[b->count];
    *r = (batch_record){ key, value };
    b->change[b->count++] = (store_change){ r->key.text, value, value ? strlen(value) : 0 };
    json_decref(j);
}

static void batch_put(record_batch *b, corei_key key, json_t *j)
{
    unsigned at = b->count;
    batch_add(b, key, j);
    b->failed = b->failed || !b->record[at].value; /* out of memory */
}

static corei_key event_key(uint64_t number)
{
    corei_key k;
    snprintf(k.text, sizeof k.text, "event/%020llu", (unsigned long long)number);
    return k;
}

static void batch_fill(core *c, record_batch *b)
{
    if (c->older) /* whoever knows no other format is to refuse it from now on */
        corei_mark_changed(c, COREI_META, 0);
    b->failed = c->marks > COREI_MARKS_MAX || c->gones > COREI_MARKS_MAX;
    for (unsigned i = 0; !b->failed && i < c->gones; i++) {
        corei_key k;
        snprintf(k.text, sizeof k.text, "%s", c->gone[i]);
        batch_add(b, k, NULL);
    }
    for (unsigned i = 0; i < c->news; i++) {
        corei_key k;
        snprintf(k.text, sizeof k.text, "%s", c->new_key[i]);
        batch_put(b, k, c->new_record[i]);
    }
    for (unsigned i = 0; !b->failed && i < c->marks; i++)
        batch_put(b, corei_key_of(c, c->mark[i]), corei_json_of(c, c->mark[i]));
    for (unsigned i = 0; !b->failed && i < c->tolds; i++)
        batch_put(b, event_key(c->told[i].number), corei_event_json(&c->told[i]));
    for (unsigned i = 0; !b->failed && i < c->history.drops; i++)
        batch_add(b, event_key(c->history.drop[i]), NULL);
}

core_result corei_reload(core *c)
{
    core_result loaded = corei_load(c);
    if (loaded.code == CORE_OK)
        return loaded;
    c->dead = c->failed = true;
    snprintf(c->failure, sizeof c->failure, "its tables cannot be rebuilt: %.200s", loaded.text);
    return loaded;
}

/* What waited for this commit is not in the store.  Reports of nodes and slots that are there are
   stored later; new ones are gone. */
static void lose_pending(core *c, bool pending)
{
    for (unsigned i = 0; pending && i < c->marks && i < COREI_MARKS_MAX; i++) {
        corei_mark m = c->mark[i];
        if (m.kind == COREI_NODE) {
            c->t.node_more[m.index].unsaved = true;
            corei_look_at(c, corei_node_unit(c, m.index), corei_again_ms(c));
        } else if (m.kind == COREI_SLOT) {
            c->t.slot_more[m.index].data_unsaved = true;
            corei_look_at(c, corei_slot_unit(m.index), corei_again_ms(c));
        }
    }
    c->lost = c->lost || pending;
}

/* Restores the former state, but not again at once: a disk without room would be read all the
   time. */
static core_result commit_failed(core *c, const store_fault *f)
{
    if (f->code == STORE_E_ARG) { /* the change is at fault, not the disk */
        c->tolds = 0;
        (void)corei_reload(c);
        return corei_result(CORE_E_ARG, "%.250s", f->text);
    }
    snprintf(c->failure, sizeof c->failure, "%.255s", f->text);
    c->failed = true;
    c->dead = f->code == STORE_E_IO || f->code == STORE_E_CORRUPT || f->code == STORE_E_MEMORY;
    c->refuse_until_ms = c->mono_ms + COREI_REFUSE_MS;
    c->tolds = 0;
    (void)corei_reload(c);
    return corei_result(CORE_E_STORE, "%.250s", c->failure);
}

uint64_t corei_again_ms(const core *c)
{
    return c->refuse_until_ms > c->mono_ms ? c->refuse_until_ms : c->mono_ms + COREI_REFUSE_MS;
}

/* Of the transaction, by now. */
static unsigned count_changes(const core *c)
{
    return c->marks + c->gones + c->news + c->tolds + c->history.drops;
}

core_result corei_commit_later(core *c)
{
    if (!c->batch)
        return corei_commit(c);
    c->commits++;
    c->pending = true;
    return (core_result){ CORE_OK, "" };
}

core_result corei_make_room(core *c, unsigned more)
{
    unsigned share = store_share(c->store);
    bool full = count_changes(c) + more > (share < COREI_MARKS_MAX ? share : COREI_MARKS_MAX) ||
                c->tolds + more > COREI_TX_EVENTS; /* there may be one for each slot */
    return c->pending && full ? corei_commit(c) : (core_result){ CORE_OK, "" };
}

core_result corei_commit(core *c)
{
    bool pending = c->pending;
    store_fault f = { STORE_E_FULL, "a change has too many records, or there is no memory for it" };
    record_batch *b = batch_new(count_changes(c) + 1); /* see batch_fill() */
    store_error rc = STORE_E_FULL;
    if (b) {
        batch_fill(c, b);
        if (!b->failed)
            rc = b->count ? store_commit(c->store, b->change, b->count, &f) : STORE_OK;
        for (unsigned i = 0; i < b->count; i++)
            free(b->record[i].value);
        free(b);
    }
    c->commits++;
    c->pending = false;
    if (rc != STORE_OK) {
        lose_pending(c, pending);
        return commit_failed(c, &f);
    }
    c->failed = c->older = false;
    c->failure[0] = 0;
    c->history.drops = 0;
    corei_events_keep(c);
    return (core_result){ CORE_OK, "" };
}
