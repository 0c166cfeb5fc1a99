/* core_history.c - which events are kept, and how much each party may make the pool do
   SPDX-License-Identifier: MIT

   A party is a proxy's key (without one, its node) or a tenant.  When the history is full, the
   party with the most events loses its oldest: so none displaces what the pool knows of the
   others.  What a proxy reports of its own connecting and disconnecting, and of a lease that goes
   up and down, counts as another party: it is the most frequent, and others cause some of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"

#define NO_PARTY UINT32_MAX /* of an event that is not kept any more */

/* -- Parties -- */

/* Returns the number of the party of this name, which may be new.  0, the manager's own party, when
   there is no memory for it. */
static uint32_t party_named(core *c, const char id[COREI_PARTY_BYTES])
{
    corei_history *h = &c->history;
    for (uint32_t i = 1; i < h->parties; i++)
        if (!memcmp(h->party[i].id, id, COREI_PARTY_BYTES))
            return i;
    corei_party *more = realloc(h->party, (h->parties + 1) * sizeof *more);
    if (!more)
        return 0;
    h->party = more;
    memset(&more[h->parties], 0, sizeof *more);
    memcpy(more[h->parties].id, id, COREI_PARTY_BYTES);
    return h->parties++;
}

static uint32_t party_with_key(core *c, const uint8_t key[DXPU_CONTROL_KEY_BYTES], char kind)
{
    char id[COREI_PARTY_BYTES] = { kind, 'k' };
    memcpy(id + 2, key, DXPU_CONTROL_KEY_BYTES);
    return party_named(c, id);
}

corei_party *corei_party_of_key(core *c, const uint8_t key[DXPU_CONTROL_KEY_BYTES])
{
    uint32_t party = party_with_key(c, key, 'p'); /* which may move them */
    return &c->history.party[party];
}

/* kind: 'p' what a proxy reports, 's' whether it is connected and its leases are up */
static uint32_t party_of_node(core *c, uint32_t number, char kind)
{
    char id[COREI_PARTY_BYTES] = { kind };
    uint32_t node = core_find_node(c, number);
    if (node != CORE_NONE && c->t.node[node].keyed)
        return party_with_key(c, c->t.node[node].key, kind);
    snprintf(id + 1, sizeof id - 1, "%u", number);
    return party_named(c, id);
}

corei_party *corei_party_of(core *c, uint32_t node)
{
    corei_node *more = &c->t.node_more[node];
    if (!more->party)
        more->party = party_of_node(c, c->t.node[node].number, 'p');
    return &c->history.party[more->party];
}

static uint32_t party_of_tenant(core *c, const char *tenant)
{
    char id[COREI_PARTY_BYTES] = { 't' };
    if (!tenant[0])
        return 0;
    snprintf(id + 1, sizeof id - 1, "%s", tenant);
    return party_named(c, id);
}

static uint32_t party_of(core *c, const core_event *e)
{
    switch (e->type) {
    case CORE_EVENT_NODE_CONNECTED:
    case CORE_EVENT_NODE_LOST:
    case CORE_EVENT_LEASE_UP:
    case CORE_EVENT_LEASE_DEGRADED:
        return e->node ? party_of_node(c, e->node, 's') : party_of_tenant(c, e->tenant);
    case CORE_EVENT_NODE_DRAIN:
    case CORE_EVENT_NODE_FORGOTTEN:
    case CORE_EVENT_SPARES_SET:
        return 0;
    case CORE_EVENT_NODE_OWNER:
    case CORE_EVENT_TENANT_SET:
    case CORE_EVENT_LEASE_CREATED:
    case CORE_EVENT_LEASE_EXTENDED:
    case CORE_EVENT_LEASE_PARKED:
    case CORE_EVENT_LEASE_ATTACHED:
    case CORE_EVENT_LEASE_RELEASED:
    case CORE_EVENT_LEASE_EXPIRED:
    case CORE_EVENT_LEASE_KEPT:
    case CORE_EVENT_SLOT_RECOVERED:
    case CORE_EVENT_SLOT_DISCARDED:
        return party_of_tenant(c, e->tenant);
    default:
        return e->node ? party_of_node(c, e->node, 'p') : 0;
    }
}

bool corei_party_may(uint64_t *since_ms, uint64_t *count, uint64_t most, uint64_t now_ms)
{
    if (now_ms - *since_ms >= 1000) {
        *since_ms = now_ms;
        *count = 0;
    }
    return *count < most;
}

/* -- What is kept -- */

static uint32_t history_place(const corei_history *h, uint64_t position)
{
    return (uint32_t)(position % h->room);
}

bool corei_history_init(corei_history *h, uint32_t events)
{
    h->most = events;
    h->room = events + events / 4 + COREI_DROPS_MAX; /* beside those dropped in the middle */
    h->event = calloc(h->room, sizeof *h->event);
    h->whose = calloc(h->room, sizeof *h->whose);
    h->party = calloc(1, sizeof *h->party);
    h->parties = 1;
    return h->event && h->whose && h->party;
}

void corei_history_free(corei_history *h)
{
    free(h->event);
    free(h->whose);
    free(h->party);
}

/* Its record goes with the next commit. */
static void history_drop(corei_history *h, uint64_t position)
{
    uint32_t at = history_place(h, position);
    h->party[h->whose[at]].events--;
    h->whose[at] = NO_PARTY;
    h->count--;
    if (h->drops < COREI_DROPS_MAX)
        h->drop[h->drops++] = h->event[at].number;
    while (h->first < h->end && h->whose[history_place(h, h->first)] == NO_PARTY)
        h->first++;
}

/* Drops the oldest event of the party that has most.  Of two with as many it is the newcomer, who
   is to have one more. */
static void make_room(corei_history *h, uint32_t newcomer)
{
    uint32_t most = 0;
    uint64_t best = 0;
    for (uint32_t i = 0; i < h->parties; i++) {
        uint64_t score = 2 * (uint64_t)h->party[i].events + (i == newcomer ? 3 : 0);
        if (h->party[i].events && score > best) {
            best = score;
            most = i;
        }
    }
    corei_party *p = &h->party[most];
    uint64_t at = p->oldest > h->first ? p->oldest : h->first;
    while (h->whose[history_place(h, at)] != most)
        at++;
    p->oldest = at + 1;
    history_drop(h, at);
}

/* Frees the places of events that were dropped in the middle. */
static void close_gaps(corei_history *h)
{
    uint64_t to = h->first;
    for (uint64_t at = h->first; at < h->end; at++) {
        if (h->whose[history_place(h, at)] == NO_PARTY)
            continue;
        h->event[history_place(h, to)] = h->event[history_place(h, at)];
        h->whose[history_place(h, to++)] = h->whose[history_place(h, at)];
    }
    h->end = to;
    for (uint32_t i = 0; i < h->parties; i++)
        h->party[i].oldest = 0;
}

static void history_keep(corei_history *h, const core_event *e, uint32_t party)
{
    if (h->end - h->first == h->room)
        close_gaps(h);
    uint32_t at = history_place(h, h->end);
    h->event[at] = *e;
    h->whose[at] = party;
    h->party[party].events++;
    h->end++;
    h->count++;
    h->last = e->number;
}

void corei_history_keep(core *c, const core_event *e)
{
    uint32_t party = party_of(c, e);
    if (c->history.count == c->history.most)
        make_room(&c->history, party);
    history_keep(&c->history, e, party);
}

void corei_history_load(core *c, const core_event *e)
{
    if (c->history.count == c->history.room) /* a store that kept more */
        make_room(&c->history, NO_PARTY);
    history_keep(&c->history, e, 0); /* its owner is known from nodes that are not loaded yet */
}

void corei_history_sort(core *c)
{
    corei_history *h = &c->history;
    h->party[0].events = 0;
    for (uint64_t i = h->first; i < h->end; i++) {
        uint32_t at = history_place(h, i);
        if (h->whose[at] == NO_PARTY)
            continue;
        h->whose[at] = party_of(c, &h->event[at]);
        h->party[h->whose[at]].events++;
    }
    for (uint32_t i = 0; i < h->parties; i++)
        h->party[i].oldest = 0;
    while (h->count > h->most) /* dropped before, and their records were still there */
        make_room(h, NO_PARTY);
}

/* -- Views -- */

/* Returns the first position whose event has a number above this one; that event may be dropped. */
static uint64_t position_after(const corei_history *h, uint64_t number)
{
    uint64_t low = h->first, high = h->end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (h->event[history_place(h, middle)].number <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

unsigned core_events_after(const core *c, uint64_t after, core_event *out, unsigned max)
{
    const corei_history *h = &c->history;
    unsigned n = 0;
    for (uint64_t at = position_after(h, after); n < max && at < h->end; at++)
        if (h->whose[history_place(h, at)] != NO_PARTY)
            out[n++] = h->event[history_place(h, at)];
    return n;
}

unsigned core_events_before(const core *c, uint64_t before, core_event *out, unsigned max)
{
    const corei_history *h = &c->history;
    uint64_t at = before ? position_after(h, before - 1) : h->first;
    unsigned n = 0;
    while (n < max && at-- > h->first)
        if (h->whose[history_place(h, at)] != NO_PARTY)
            out[n++] = h->event[history_place(h, at)];
    return n;
}
