/* sim_core.c - the manager's core with simulated proxies that lose messages, connections and their
   memory, on a store that fails; the manager is killed at any commit
   SPDX-License-Identifier: MIT

   Whatever happens: a slot has one owner, no acknowledged lease is lost or made twice, no lease
   reads another's data, a parked one keeps its own, quotas hold; and when the trouble is over,
   boxes and hosts have what the store says.  Each has a mutation that breaks it, and is seen.
   No data of a tenant are wiped without a decision of somebody allowed to make it, through
   absences, kills, steps of the clock and old copies of the store, or of what boxes know.
   And a manager that is started with another store, empty or old, ends nothing and wipes nothing
   that this store did not give.
   DXPU_SEED repeats a run, DXPU_SEEDS sets how many there are. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* what store.c asks of the system */
#endif
#include <setjmp.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core_world.h"
#include "policy_internal.h"
#include "seeds.h"

enum {
    STEPS = 500,
    KEYS = 12,
    TENANTS = 3,
    QUOTA = 5,
    REST_MS = 60000,
    RETENTION_MS = 10000,
    HEARD_MS = 2000,
    ABSENCES = 30,
    OLD_STATES = 10,
    ABSENCE_STEPS = 1000
};

/* What users were answered. */
typedef enum { NOTHING, HELD, UNSURE } knows; /* UNSURE: killed before the answer */
typedef struct entry {
    knows state;
    uint64_t lease, expires_unix_ms;
    bool moved; /* parked or attached since: the request no longer says where it is */
    bool parked;
    uint32_t place[3]; /* node and slot, while its data are kept */
} entry;

static entry ledger[KEYS];
/* Decisions to wipe: leases that are over, or data of a lease in one slot.  One is about a medium,
   and holds until that was wiped, also while another one is in the slot. */
enum { DECIDED = 16 };
static uint64_t over[4096], given_up[BOXES][BOX_SLOTS][DECIDED];
static unsigned overs;
/* When the first of these learned of a lease: data were kept for it. */
static struct {
    uint64_t lease, since_ms;
} kept_since[4096];
static uint64_t events_seen;
static int64_t clock_step_ms;
static bool restores;   /* the store is put back at times, so what users know is not true then */
static bool old_states; /* so is what boxes know, instead */
static unsigned retained_seen, wipes_seen, recovered_seen, kept_seen, swaps_seen, said_kept_seen;
static unsigned waits_seen;
static rig_store disk;
static core *c;
static uint64_t now_ms;
static uint64_t first_seed = 1, seeds = 60, absences = ABSENCES, states = OLD_STATES;
static unsigned restarts, creates, refusals;

/* -- The manager -- */

static uint64_t unix_ms(void)
{
    return 1700000000000u + now_ms + (uint64_t)clock_step_ms;
}

static void manager_start(void)
{
    core_settings set;
    core_result why;
    core_settings_default(&set);
    set.events = 256;
    set.retention_ms = RETENTION_MS;
    set.grace_ms = 5000;
    set.salt = mutant == SAME_SALT ? 0 : (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
    disk.fail_after = UINT_MAX;
    c = core_open(&disk.base, &set, unix_ms(), now_ms, &why);
    if (!c) {
        violate(why.text, 0);
        return;
    }
    for (uint32_t i = 0; mutant == TRUSTS_COPIES && i < c->t.pool->slots; i++)
        c->t.slot_more[i].agreed = true;
    for (unsigned i = 0; i < PROXIES; i++) {
        world[i].noticed = world[i].linked = false;
        world[i].in.count = world[i].out.count = 0;
    }
}

/* Killed in the commit that just failed.  What it did since was not seen. */
static bool killed(void)
{
    if (!disk.failures || disk.fault != STORE_E_IO)
        return false;
    disk.failures = 0;
    restarts++;
    core_close(c);
    manager_start();
    return true;
}

static void cut(proxy *p)
{
    p->linked = false;
    p->in.count = p->out.count = 0;
}

/* The manager sees that a connection is over, some time after it is. */
static void notice(proxy *p)
{
    if (p->noticed)
        core_disconnected(c, p->node);
    p->noticed = false;
}

/* As if every program with a host's identity were the same one. */
static void share_epochs(void)
{
    for (uint32_t i = 0; mutant == COPIES_SHARE && i < c->t.ports; i++) {
        uint32_t slot = c->t.port[i].slot;
        if (slot == CORE_NONE)
            continue;
        c->t.slot_more[slot].offered_epoch = core_pool(c)->slot[slot].epoch;
        c->t.slot_more[slot].offered_to = c->t.node[c->t.port[i].node].instance;
    }
}

static void send_orders(void)
{
    core_order o;
    share_epochs();
    for (unsigned n = 0; core_next_order(c, &o); n++) {
        if (n > 1000) {
            violate("orders without end", o.m.type);
            return;
        }
        if (o.m.type == DXPU_CONTROL_BIND) {
            uint32_t slot = core_find_slot(c, o.node, o.m.u.bind.slot);
            *lease_of_epoch(o.m.u.bind.epoch) =
                pool_lease_number(core_pool(c), core_pool(c)->slot[slot].lease);
        }
        for (unsigned i = 0; i < PROXIES; i++)
            if (world[i].node == o.node && world[i].linked && world[i].noticed && !world[i].fresh)
                push(&world[i].in, TO_OBEY)->order = o;
    }
}

static void hear(proxy *p)
{
    const message *m = pop(&p->out);
    core_result why;
    if (m->kind == TO_ANSWER) {
        assert_true(core_answered(c, &m->order, m->code, m->code ? NULL : &m->done));
        return;
    }
    bool first = p->fresh;
    if (first)
        notice(p); /* the connection before this one is over */
    p->fresh = false;
    if (first) /* as the program does with the first message of a connection */
        core_batch(c);
    uint32_t node =
        rig_register(c, p->role, p->id, p->instance, m->device, p->units, m->first, m->count, &why);
    if (first && !core_batch_end(c) && node) {
        core_disconnected(c, node);
        node = 0;
    }
    if (!node) {
        cut(p);
        p->noticed = false;
    } else if (!disk.failures || disk.fault != STORE_E_IO) {
        p->node = node;
        p->noticed = true;
    }
}

/* -- Whose data may go -- */

static void decide_lease(uint64_t lease)
{
    if (lease && overs < sizeof over / sizeof over[0])
        over[overs++] = lease;
}

/* The decision that this lease's data in the slot go: its place, or the first free one. */
static uint64_t *decision(unsigned box, unsigned number, uint64_t lease)
{
    uint64_t *at = given_up[box][number], *end = at + DECIDED, *room = NULL;
    for (; at < end && *at != lease; at++)
        if (!*at && !room)
            room = at;
    return at < end ? at : room;
}

static void decide_data(unsigned box, unsigned number, uint64_t lease)
{
    uint64_t *at = lease ? decision(box, number, lease) : NULL;
    if (lease && !at)
        violate("more decisions than there is room for", lease);
    else if (at)
        *at = lease;
}

/* Whoever decides goes by what the box has reported: not by another medium in the slot since then,
   nor by the lease's own, which is back. */
static uint64_t reported_tag(const core_slot *s, unsigned box, unsigned number)
{
    const unit *u = &world[box].unit[number];
    bool empty = s->device.state == DXPU_CONTROL_SLOT_EMPTY,
         now = u->state == DXPU_CONTROL_SLOT_EMPTY;
    if (!s->reported || empty == now)
        return u->tag;
    return empty ? FOREIGN_TAG : u->strange && now ? own_disk[box][number].tag : u->tag;
}

/* What is in the slot, and what its lease has there; and what the host writes until it knows that
   the box's lease is over. */
static void decide_slot(uint32_t slot)
{
    const core_slot *s = &c->t.slot[slot];
    unsigned box = c->t.node[s->node].identity[0] - 1u, number = s->device.number - 1u;
    const unit *u = &world[box].unit[number];
    const pool_slot *ps = &c->t.pool->slot[slot];
    uint32_t lease = ps->lease != POOL_NONE ? ps->lease : ps->owner;
    decide_data(box, number, reported_tag(s, box, number));
    decide_data(box, number, lease == POOL_NONE ? 0 : pool_lease_number(c->t.pool, lease));
    decide_data(box, number, u->epoch ? *lease_of_epoch(u->epoch) : 0);
}

static void note_wipe(const proxy *p, unsigned i, uint64_t lease)
{
    uint64_t *whose = decision(p->id - 1u, i, lease);
    bool decided =
        p->id == 2 || (p->unit[i].looks == 2 && lease != FOREIGN_TAG); /* it keeps none */
    if (whose && *whose == lease) {
        decided = true;
        *whose = 0;
    }
    for (unsigned n = 0; n < overs && !decided; n++)
        decided = over[n] == lease;
    wipes_seen++;
    if (!decided)
        violate("data are wiped without a decision", lease);
}

static uint64_t *since_of(uint64_t lease)
{
    unsigned at = (unsigned)(lease * 2654435761u >> 20) % 4096;
    while (kept_since[at].lease && kept_since[at].lease != lease)
        at = (at + 1) % 4096;
    kept_since[at].lease = lease;
    return &kept_since[at].since_ms;
}

/* What the manager decided by itself: the end of a retention time, and not before. */
static void hear_event(const core_event *e)
{
    bool over_now = strstr(e->text, pool_reason_text(POOL_WHY_RETENTION)) != NULL;
    uint64_t *since = e->lease ? since_of(e->lease) : NULL;
    bool keeps = e->type == CORE_EVENT_SLOT_RETAINED || e->type == CORE_EVENT_LEASE_EXPIRED ||
                 e->type == CORE_EVENT_LEASE_KEPT;
    retained_seen += e->type == CORE_EVENT_SLOT_RETAINED;
    recovered_seen += e->type == CORE_EVENT_SLOT_RECOVERED;
    kept_seen += e->type == CORE_EVENT_LEASE_KEPT || e->type == CORE_EVENT_LEASE_EXPIRED;
    if (keeps && !*since)
        *since = now_ms;
    if (!over_now || (e->type != CORE_EVENT_SLOT_DISCARDED && e->type != CORE_EVENT_LEASE_RELEASED))
        return;
    if (!*since || now_ms - *since + HEARD_MS < RETENTION_MS)
        violate("a retention time was cut short", e->lease);
    if (e->type == CORE_EVENT_LEASE_RELEASED)
        decide_lease(e->lease);
    else
        decide_slot(core_find_slot(c, e->node, e->slot));
}

static void hear_events(void)
{
    static core_event e[256];
    unsigned n = c ? core_events_after(c, events_seen, e, 256) : 0;
    for (unsigned i = 0; i < n; i++)
        hear_event(&e[i]);
    events_seen = n ? e[n - 1].number : events_seen;
}

/* -- Users -- */

/* Slots whose data are kept stay those of their lease: no operator replaced one. */
static void check_kept(entry *e)
{
    const pool *p = core_pool(c);
    const pool_lease *l = pool_find_lease(p, e->lease);
    const core_lease *more = &core_leases(c)[pool_lease_index(e->lease)];
    bool kept_now = more->kept || (mutant == MOVES_KEPT && l->host == POOL_NONE);
    unsigned n = 0;
    if (!kept_now)
        memset(e->place, 0, sizeof e->place);
    for (uint32_t i = l->first; kept_now && i != POOL_NONE; i = p->slot[i].next, n++) {
        const core_slot *s = &c->t.slot[i];
        uint32_t place = c->t.node[s->node].number << 16 | s->device.number;
        if (e->place[n] && e->place[n] != place)
            violate("a parked lease lost a slot", e->lease);
        e->place[n] = place;
    }
    if (mutant == MOVES_KEPT)
        c->t.lease[pool_lease_index(e->lease)].kept = false;
}

/* What was acknowledged is there, unless its time is over; and no more than the quotas allow. */
static void check_ledger(void)
{
    unsigned used[TENANTS] = { 0 };
    if (restores)
        return;
    for (unsigned i = 0; i < KEYS; i++) {
        entry *e = &ledger[i];
        if (e->state != HELD)
            continue;
        const pool_lease *l = pool_find_lease(core_pool(c), e->lease);
        if (!l && e->expires_unix_ms && e->expires_unix_ms <= unix_ms()) {
            *e = (entry){ .state = NOTHING };
            continue;
        }
        if (!l || l->count != 1 + i % 3)
            violate("an acknowledged lease is lost", e->lease);
        else
            check_kept(e);
        used[i % TENANTS] += 1 + i % 3;
    }
    for (unsigned i = 0; i < TENANTS; i++)
        if (used[i] > QUOTA)
            violate("a tenant has more than its quota", i);
}

static core_request request_of(unsigned key)
{
    core_request r = { .count = (uint8_t)(1 + key % 3),
                       .need = (uint8_t)(key % 5 == 0 ? POOL_SAME_BOX : POOL_ANY),
                       .replace = key % 4 ? CORE_REPLACE_YES : CORE_REPLACE_NO,
                       .seconds = key % 6 == 0 ? 20 : 0 };
    snprintf(r.tenant, sizeof r.tenant, "tenant%u", key % TENANTS);
    snprintf(r.model, sizeof r.model, "%s", key % 7 == 0 ? "gpu" : "nvme");
    snprintf(r.key, sizeof r.key, "key%u", key);
    r.host = world[BOXES + key % HOSTS].node;
    return r;
}

static void forget_uses(void)
{
    for (uint32_t i = 0; mutant == NO_QUOTA && i < core_pool(c)->tenants; i++)
        core_pool(c)->tenant[i].used = 0;
}

static void user_creates(unsigned key)
{
    entry *e = &ledger[key];
    core_request r = request_of(key);
    uint64_t lease;
    bool existed;
    if (!r.host || e->moved)
        return;
    check_ledger(); /* some may have ended meanwhile */
    forget_uses();
    if (mutant == KEY_TWICE)
        r.key[0] = 0;
    core_result result = core_create(c, &r, &lease, &existed);
    creates++;
    if (killed()) {
        if (e->state == NOTHING)
            e->state = UNSURE;
        return;
    }
    if (result.code != CORE_OK) {
        refusals++;
        if (result.code != CORE_E_STORE && result.code != CORE_E_STATE && e->state == UNSURE)
            e->state = NOTHING;
        return;
    }
    if (e->state == HELD && lease != e->lease && !restores)
        violate("a key was given two leases", lease);
    e->expires_unix_ms = core_leases(c)[pool_lease_index(lease)].expires_unix_ms;
    e->parked = pool_find_lease(core_pool(c), lease)->host == POOL_NONE;
    e->lease = lease;
    e->state = HELD;
}

static void user_releases(unsigned key)
{
    entry *e = &ledger[key];
    if (e->state != HELD)
        return;
    decide_lease(e->lease);
    core_result result = core_release(c, e->lease, false);
    bool dead = killed();
    if (dead || result.code == CORE_OK || result.code == CORE_E_UNKNOWN)
        *e = (entry){ .state = dead ? UNSURE : NOTHING };
}

static void user_parks(unsigned key)
{
    entry *e = &ledger[key];
    if (e->state != HELD)
        return;
    e->moved = true;
    (void)(e->parked ? core_attach(c, e->lease, world[BOXES + draw(HOSTS)].node)
                     : core_park(c, e->lease));
    (void)killed();
    const pool_lease *l = c ? pool_find_lease(core_pool(c), e->lease) : NULL;
    e->parked = l && l->host == POOL_NONE;
}

/* Somebody asked for that: a parked lease may have other slots. */
static void forget_places(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        memset(ledger[i].place, 0, sizeof ledger[i].place);
}

/* Of what is kept for their leases users take some back, and give some up; or a lease ends, and its
   data are kept, or it is extended. */
static void user_keeps(unsigned key)
{
    uint32_t slot = c->t.pool->slots ? draw(c->t.pool->slots) : 0;
    entry *e = &ledger[key];
    switch (draw(8)) {
    case 0:
        if (restores && e->state == HELD)
            (void)core_release(c, e->lease, true);
        break;
    case 1:
        if (e->state == HELD)
            (void)core_extend(c, e->lease, 0);
        break;
    case 2:
        if (slot < c->t.pool->slots && c->t.pool->slot[slot].owner != POOL_NONE) {
            decide_slot(slot);
            (void)core_discard(c, slot);
        }
        break;
    default:
        for (slot = 0; c && slot < c->t.pool->slots; slot++)
            if (c->t.pool->slot[slot].state == POOL_RETAINED) {
                (void)(slot % 2 ? core_recover(c, slot)
                                : core_recover_all(c, core_slot_owner(c, slot)));
                forget_places();
                break;
            }
        break;
    }
    (void)killed();
}

static void operator_replaces(uint32_t slot)
{
    decide_slot(slot);
    (void)core_replace(c, slot, POOL_WHY_OPERATOR, true);
    forget_places();
}

/* What the slot has is the data of its lease, as the operator knows. */
static bool operator_keeps(uint32_t slot)
{
    const core_slot *s = &c->t.slot[slot];
    const pool_slot *ps = &core_pool(c)->slot[slot];
    uint32_t lease = ps->lease != POOL_NONE ? ps->lease : ps->owner;
    const unit *u = &world[c->t.node[s->node].identity[0] - 1].unit[s->device.number - 1];
    if (lease == POOL_NONE || u->tag != pool_lease_number(core_pool(c), lease) ||
        core_keep(c, slot).code != CORE_OK)
        return false;
    said_kept_seen++;
    return true;
}

/* A slot that is quarantined, or broken and unassigned, is wiped then. */
static void operator_repairs(uint32_t slot)
{
    if (draw(2) && operator_keeps(slot))
        return;
    const pool_slot *s = &core_pool(c)->slot[slot];
    if (s->lease == POOL_NONE && (s->owner == POOL_NONE || s->state == POOL_QUARANTINED))
        decide_slot(slot);
    (void)core_repair(c, slot);
}

static void operator_acts(void)
{
    uint32_t slots, slot, box = world[draw(BOXES)].node;
    unsigned left;
    core_slots(c, &slots);
    if (!slots || !box)
        return;
    slot = draw(slots);
    switch (draw(7)) {
    case 0:
        for (uint32_t i = 0; i < slots; i++)
            if (c->t.node[c->t.slot[i].node].number == box)
                decide_slot(i);
        (void)core_drain(c, box, true, draw(2), &left);
        break;
    case 1:
    case 2:
        (void)core_drain(c, box, false, false, &left);
        break;
    case 3:
        operator_replaces(slot);
        break;
    case 4:
        (void)core_break(c, slot, POOL_WHY_OPERATOR);
        break;
    case 5:
        operator_repairs(slot);
        break;
    default:
        (void)core_reset(c, slot);
        (void)core_set_spares(c, "nvme", draw(3));
        break;
    }
}

/* -- Trouble -- */

/* What the box knew of the slot is gone, also of its own disk while another one is in it. */
static void forget_state(const proxy *p, unit *u)
{
    unit *own = &own_disk[p->id - 1][u - p->unit];
    u->elsewhere = u->waits = false;
    u->seen = 0;
    unit_end(u, DXPU_CONTROL_SLOT_EMPTY);
    own->seen = 0;
    unit_end(own, DXPU_CONTROL_SLOT_EMPTY);
}

static void restart(proxy *p, bool forgets)
{
    cut(p);
    p->instance = ++instances;
    p->draining = false;
    for (unsigned i = 0; i < p->units; i++) {
        unit *u = &p->unit[i];
        if (p->role == DXPU_CONTROL_ROLE_HOST)
            unit_end(u, DXPU_CONTROL_SLOT_EMPTY);
        else if (u->state == DXPU_CONTROL_SLOT_UP)
            u->state = DXPU_CONTROL_SLOT_HELD;
        u->waits = u->state == DXPU_CONTROL_SLOT_WIPING;
        if (forgets && p->role == DXPU_CONTROL_ROLE_BOX)
            forget_state(p, u);
    }
}

/* An older copy of a box's state is put back, of slots that were not lent then: one that was admits
   its host again, which spec/control.md leaves to who puts it back. */
static void put_state_back(proxy *p)
{
    restart(p, false);
    for (unsigned i = 0; i < p->units; i++) {
        const unit *was = &old_state[p->id - 1][i];
        unit *u = &p->unit[i];
        if (was->epoch || !was->seen || was->strange || u->strange || was->seen >= u->seen)
            continue;
        unit_end(u, was->state);
        u->seen = was->seen;
        u->waits = u->state == DXPU_CONTROL_SLOT_WIPING;
        waits_seen += u->waits;
    }
}

/* Of a moment that is rare, a wipe, more often than of others. */
static void copy_states(void)
{
    for (unsigned b = 0; b < BOXES; b++)
        for (unsigned i = 0; i < BOX_SLOTS; i++)
            if (world[b].unit[i].state == DXPU_CONTROL_SLOT_WIPING ? draw(2) : !draw(50))
                old_state[b][i] = world[b].unit[i];
}

/* A host is paused, as a virtual machine may be, and started elsewhere under its identity; or the
   two change places. */
static void copy_host(unsigned host)
{
    proxy *p = &world[BOXES + host], *copy = &copy_of_host[host], was = *p;
    cut(p);
    if (draw(2) && copy->units)
        *p = *copy;
    else
        restart(p, false);
    *copy = was;
    cut(copy);
    p->noticed = was.noticed;
    p->node = was.node;
    copy->noticed = false;
}

static void trouble(void)
{
    proxy *p = &world[draw(PROXIES)];
    unit *u = &p->unit[draw(p->units)];
    if (old_states && draw(8) == 0) {
        put_state_back(&world[draw(BOXES)]);
        return;
    }
    if (restores && !old_states && draw(8) == 0) {
        p = &world[draw(2) * 2]; /* the second box keeps no data */
        u = &p->unit[draw(p->units)];
        restart(p, false);
        swap_disk(p, u);
        swaps_seen++;
        return;
    }
    switch (draw(10)) {
    case 0:
    case 1:
        cut(p);
        break;
    case 2:
        restart(p, draw(4) == 0);
        break;
    case 3:
        u->bad_wipe = draw(4) == 0;
        break;
    case 4:
        u->broken = p->role == DXPU_CONTROL_ROLE_BOX && !u->broken;
        tell(p, (unsigned)(u - p->unit), 1);
        break;
    case 5:
        disk.failures = 0;
        disk.fault = STORE_E_IO;
        disk.lost = draw(2);
        disk.fail_after = draw(6);
        break;
    case 7:
        copy_host(draw(HOSTS));
        break;
    case 6:
        disk.failures = 0;
        disk.fault = STORE_E_FULL;
        disk.lost = false;
        disk.fail_after = draw(4);
        break;
    case 8: /* all tables rebuilt, as when the pool grows: not visible */
        if (!c->dead && corei_load(c).code != CORE_OK)
            violate("the store cannot be read", 0);
        break;
    default:
        if (disk.fault == STORE_E_FULL)
            disk.fail_after = UINT_MAX;
        break;
    }
}

static void move_proxy(proxy *p)
{
    if (!p->linked && draw(4) == 0)
        dial(p);
    if (!p->linked && p->noticed && draw(4) == 0)
        notice(p);
    for (unsigned i = 0; i < p->units; i++) {
        if (draw(3) == 0)
            p->role == DXPU_CONTROL_ROLE_BOX ? wipe_step(p, i) : close_step(p, i);
        if (p->role == DXPU_CONTROL_ROLE_HOST && draw(2))
            channel_step(p, i);
    }
    while (p->in.count && p->linked && draw(4))
        obey(p, &pop(&p->in)->order);
    while (c && p->out.count && p->linked && draw(4)) {
        hear(p);
        if (killed())
            break;
    }
}

/* -- What must hold -- */

static const entry *entry_of(uint64_t lease)
{
    for (unsigned i = 0; i < KEYS; i++)
        if (ledger[i].state == HELD && ledger[i].lease == lease)
            return &ledger[i];
    return NULL;
}

/* No lease that was not requested, or that was given back. */
static void check_leases(void)
{
    const pool *p = core_pool(c);
    for (uint32_t i = 0; i < p->limits.leases; i++) {
        unsigned key;
        uint64_t number = pool_lease_number(p, i);
        if (!number || entry_of(number))
            continue;
        if (sscanf(core_leases(c)[i].key, "key%u", &key) != 1 || ledger[key].state != UNSURE)
            violate("a lease that was not requested", number);
    }
}

static void check_ports(void)
{
    uint32_t slots, ports;
    const core_port *port = core_ports(c, &ports);
    core_slots(c, &slots);
    for (uint32_t i = 0; i < ports; i++)
        for (uint32_t j = 0; j < i && port[i].slot != CORE_NONE; j++)
            if (port[j].slot == port[i].slot)
                violate("two ports are to have one slot", port[i].slot);
}

static void check_all(void)
{
    if (!c)
        return;
    check_owners();
    check_ledger();
    check_leases();
    check_ports();
}

/* -- Rest -- */

/* The trouble is over: the store has room, what broke is whole again. */
static void heal(void)
{
    disk.fail_after = UINT_MAX;
    for (unsigned i = 0; i < PROXIES; i++) {
        proxy *p = &world[i];
        for (unsigned j = 0; j < p->units; j++) {
            p->unit[j].broken = p->unit[j].bad_wipe = false;
            tell(p, j, 1);
        }
    }
}

/* As operators do then. */
static void repair_all(void)
{
    uint32_t slots;
    unsigned left;
    for (unsigned i = 0; i < BOXES; i++)
        if (world[i].node && world[i].draining)
            (void)core_drain(c, world[i].node, false, false, &left);
    core_slots(c, &slots);
    for (uint32_t i = 0; i < slots; i++) {
        const pool_slot *s = &core_pool(c)->slot[i];
        if (s->state == POOL_QUARANTINED && s->lease != POOL_NONE && operator_keeps(i))
            continue;
        if (s->state == POOL_QUARANTINED && s->lease != POOL_NONE)
            operator_replaces(i); /* a lease that did not ask for that waits for somebody */
        else if (s->state == POOL_BROKEN || s->state == POOL_QUARANTINED)
            operator_repairs(i);
    }
}

static void settle_down(void)
{
    heal();
    for (uint64_t end = now_ms + REST_MS; now_ms < end && !violation[0]; now_ms += 250) {
        core_clock(c, unix_ms(), now_ms);
        core_tick(c);
        hear_events();
        if (now_ms + REST_MS / 2 > end)
            repair_all();
        for (unsigned i = 0; i < PROXIES; i++)
            move_proxy(&world[i]);
        send_orders();
    }
    check_all();
}

static void check_port_at_rest(const core_port *port, const unit *u)
{
    const pool *p = core_pool(c);
    if (port->slot == CORE_NONE) {
        if (u->epoch)
            violate("a host has what it is not to have", u->epoch);
        return;
    }
    const core_slot *s = &c->t.slot[port->slot];
    const unit *slot = &world[c->t.node[s->node].identity[0] - 1].unit[s->device.number - 1];
    if (u->state != DXPU_CONTROL_SLOT_UP || u->epoch != p->slot[port->slot].epoch)
        violate("a host has not what it is to have", p->slot[port->slot].epoch);
    if (slot->epoch != p->slot[port->slot].epoch)
        violate("a box has not what it is to have", p->slot[port->slot].epoch);
}

static void check_slot_at_rest(uint32_t index, const unit *u)
{
    const pool_slot *s = &core_pool(c)->slot[index];
    bool leased = s->lease != POOL_NONE;
    if (s->state == POOL_WIPING || s->state == POOL_BROKEN || s->state == POOL_QUARANTINED)
        violate("a slot is not through", s->state);
    if (!leased && (u->epoch || (u->tag && s->owner == POOL_NONE)))
        violate("a box has what it is not to have", u->epoch ? u->epoch : u->tag);
    if (leased && core_pool(c)->lease[s->lease].host == POOL_NONE && u->epoch)
        violate("a parked slot has a host", u->epoch);
}

static void check_rest(void)
{
    uint32_t nodes;
    const core_node *n = core_nodes(c, &nodes);
    for (uint32_t i = 0; i < nodes; i++) {
        const proxy *p = &world[n[i].identity[0] - 1];
        if (!n[i].connected)
            violate("a node did not come back", n[i].number);
        for (uint32_t j = 0; j < n[i].total; j++)
            if (p->role == DXPU_CONTROL_ROLE_HOST)
                check_port_at_rest(&c->t.port[n[i].first + j], &p->unit[j]);
            else
                check_slot_at_rest(n[i].first + j, &p->unit[j]);
    }
    for (unsigned i = 0; i < KEYS; i++)
        if (ledger[i].state == HELD && !ledger[i].parked &&
            core_lease_now(c, ledger[i].lease) != CORE_LEASE_ENDED &&
            core_lease_now(c, ledger[i].lease) != CORE_LEASE_ACTIVE)
            violate("a lease is not up", ledger[i].lease);
}

/* -- A run -- */

/* As a manager that does what the mutation says. */
static void mutate(void)
{
    for (uint32_t i = 0; i < c->t.pool->slots; i++) {
        pool_slot *s = &c->t.pool->slot[i];
        if (s->state != POOL_RETAINED)
            continue;
        if (mutant == DROPS_RETAINED)
            (void)pool_discard(c->t.pool, i, POOL_WHY_BOX);
        for (uint32_t l = 0; mutant == MIXES_OWNERS && l < c->t.pool->limits.leases; l++)
            if (l != s->owner && c->t.pool->lease[l].count &&
                c->t.pool->lease[l].model == s->model) {
                pool_disown(c->t.pool, i);
                pool_own(c->t.pool, i, l, 0);
                break;
            }
    }
}

static void step(void)
{
    now_ms += draw(4) ? draw(200) : draw(2000);
    core_clock(c, unix_ms(), now_ms);
    core_tick(c);
    if (killed() && !c)
        return;
    hear_events();
    if (draw(5) == 0)
        trouble();
    if (draw(2) == 0) {
        unsigned key = draw(KEYS), what = draw(9);
        if (what == 8)
            user_keeps(key);
        else if (what < 4)
            user_creates(key);
        else if (what < 6)
            user_releases(key);
        else if (what < 7)
            user_parks(key);
        else
            operator_acts();
        if (killed() && !c)
            return;
    }
    for (unsigned i = 0; c && i < PROXIES; i++)
        move_proxy(&world[i]);
    for (unsigned i = 0; i < HOSTS * PORTS; i++)
        if (draw(2))
            channel_step(&copy_of_host[i / PORTS], i % PORTS);
    if (c)
        hear_events();
    if (c && (mutant == DROPS_RETAINED || mutant == MIXES_OWNERS))
        mutate();
    if (c)
        send_orders();
    disk.forgetful = mutant == FORGETS_COMMIT && draw(20) == 0;
}

static void set_quotas(void)
{
    for (unsigned i = 0; i < TENANTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "tenant%u", i);
        (void)core_set_tenant(c, name, QUOTA);
    }
}

/* Nothing is in the tables alone that a restart of the manager would lose. */
static void check_store(void)
{
    bool mutated = mutant == FORGETS_COMMIT || mutant == MOVES_KEPT; /* the tables alone */
    const char *differs = mutated ? NULL : rig_differs(c, &disk);
    if (differs)
        violate(differs, 0);
}

static void begin_run(void)
{
    memset(ledger, 0, sizeof ledger);
    memset(given_up, 0, sizeof given_up);
    memset(kept_since, 0, sizeof kept_since);
    overs = 0;
    events_seen = 0;
    clock_step_ms = 0;
    restores = old_states = false;
}

/* False: something did not hold, and `violation` says what. */
static bool run_seed(uint64_t seed, mutation m)
{
    random_word = seed * 0x9e3779b97f4a7c15u + 1;
    mutant = m;
    now_ms = 1;
    begin_run();
    rig_store_init(&disk);
    world_init();
    manager_start();
    set_quotas();
    for (unsigned i = 0; i < STEPS && !violation[0]; i++) {
        step();
        check_all();
        if (c && i % 16 == 0)
            check_store();
    }
    disk.forgetful = false;
    if (!violation[0])
        settle_down();
    if (!violation[0])
        check_rest();
    core_close(c);
    c = NULL;
    rig_store_free(&disk);
    return !violation[0];
}

static void test_honest(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
        if (!run_seed(seed, HONEST))
            fail_msg("%s; repeat with: DXPU_SEED=%llu build/san/tests/manager/sim_core", violation,
                     (unsigned long long)seed);
    /* The trouble was there. */
    assert_true(restarts > seeds && creates > 10 * seeds && refusals > seeds);
}

/* Each of the properties is looked at: what breaks it is found, by that name. */
static void test_control_mutations(void **state)
{
    static const char *const names[DROPS_RETAINED] = {
        [ADMITS_ALL] = "two hosts have one slot",
        [FORGETS_COMMIT] = "an acknowledged lease is lost",
        [KEY_TWICE] = "a key was given two",
        [WIPES_NOT] = "a lease reads another's data",
        [WIPES_KEPT] = "a lease's data are gone",
        [NO_QUOTA] = "a tenant has more than its quota",
        [MOVES_KEPT] = "a parked lease lost a slot",
        [COPIES_SHARE] = "two hosts have one slot",
        [LIES_DONE] = "a host has what it is not",
    };
    (void)state;
    for (unsigned m = HONEST + 1; m < DROPS_RETAINED; m++) {
        unsigned seed = 1;
        while (seed < 100 && (run_seed(seed, (mutation)m) || !strstr(violation, names[m])))
            seed++;
        if (seed == 100)
            fail_msg("mutation %u was not found: %s; last: %s", m, names[m], violation);
    }
}

/* -- Every absence -- */

/* The clock steps, by up to two days, and back; somebody may believe it. */
static void step_clock(void)
{
    clock_step_ms = draw(2) ? 0 : (int64_t)draw(2 * 86400) * 1000 - 86400000;
    core_clock(c, unix_ms(), now_ms);
    if (draw(2))
        (void)core_confirm_clock(c);
    (void)killed();
}

static uint64_t last_event(void)
{
    static core_event e[256];
    uint64_t last = 0;
    for (unsigned n; (n = core_events_after(c, last, e, 256)) != 0;)
        last = e[n - 1].number;
    return last;
}

/* An older copy of the store is put back, and the manager starts with it,
   whatever the clock says. */
static void put_back(rig_store *copy)
{
    core_close(c);
    rig_store_free(&disk);
    disk = rig_store_copy(copy);
    memset(ledger, 0, sizeof ledger);
    clock_step_ms = (int64_t)draw(2 * 86400) * 1000 - 86400000;
    if (draw(2)) /* and a box lost its state meanwhile */
        restart(&world[draw(BOXES)], true);
    manager_start();
    events_seen = c ? last_event() : 0; /* they were heard before */
}

/* Boxes and hosts are unreachable, cut off and killed, so is the manager, its clock steps, its
   store is full or put back, and boxes come back with used disks: no data of a tenant go without a
   decision, and no lease reads another's. */
static bool run_absences(uint64_t seed, mutation m, unsigned steps, bool of_boxes)
{
    random_word = seed * 0x9e3779b97f4a7c15u + 1;
    mutant = m;
    now_ms = 1;
    begin_run();
    restores = true;
    old_states = of_boxes;
    rig_store_init(&disk);
    world_init();
    memset(old_state, 0, sizeof old_state);
    manager_start();
    rig_store copy = rig_store_copy(&disk);
    for (unsigned i = 0; i < steps && !violation[0]; i++) {
        step();
        if (c && draw(100) == 0)
            step_clock();
        if (c && draw(3) == 0)
            user_keeps(draw(KEYS));
        if (c && draw(8) == 0)
            repair_all();
        if (c && draw(50) == 0 && disk.fail_after == UINT_MAX) {
            hear_events(); /* what is in the copy is heard now, or never */
            rig_store_free(&copy);
            copy = rig_store_copy(&disk);
        }
        if (c && draw(200) == 0 && !old_states)
            put_back(&copy);
        if (old_states)
            copy_states();
        if (c)
            check_owners();
    }
    core_close(c);
    c = NULL;
    rig_store_free(&disk);
    rig_store_free(&copy);
    return !violation[0];
}

static void test_m91_absences(void **state)
{
    (void)state;
    retained_seen = wipes_seen = recovered_seen = kept_seen = swaps_seen = said_kept_seen = 0;
    for (uint64_t seed = first_seed; seed < first_seed + absences; seed++)
        if (!run_absences(seed, HONEST, ABSENCE_STEPS, false))
            fail_msg("%s; repeat with: DXPU_SEED=%llu build/san/tests/manager/sim_core", violation,
                     (unsigned long long)seed);
    printf("%u retained, %u recovered, %u leases kept, %u wipes, %u disks changed, %u said to be a "
           "lease's\n",
           retained_seen, recovered_seen, kept_seen, wipes_seen, swaps_seen, said_kept_seen);
    /* There was something to lose: of a part of the seeds, with sanitizers, too little to judge. */
    if (absences >= ABSENCES)
        assert_true(retained_seen > 20 && recovered_seen > 5 && kept_seen > 30 &&
                    wipes_seen > 200 && swaps_seen > 100 && said_kept_seen > 5);
}

/* The same where it is boxes whose state is put back, and the manager knows all. */
static void test_m105_old_states_of_boxes(void **state)
{
    (void)state;
    waits_seen = 0;
    for (uint64_t seed = first_seed; seed < first_seed + states; seed++)
        if (!run_absences(seed, HONEST, ABSENCE_STEPS, true))
            fail_msg("%s; repeat with: DXPU_SEED=%llu build/san/tests/manager/sim_core", violation,
                     (unsigned long long)seed);
    printf("%u wipes of old copies\n", waits_seen);
    if (states > 1)
        assert_true(waits_seen > states);
}

static void test_control_absences(void **state)
{
    static const mutation each[] = { DROPS_RETAINED, MIXES_OWNERS, WIPES_NOT,
                                     TRUSTS_COPIES,  SAME_SALT,    RESUMES_WIPES };
    static const char *const found[] = { "without a decision",
                                         "reads another's data",
                                         "reads another's data",
                                         "reads another's data",
                                         "",
                                         "without a decision" };
    /* the seed that finds it today; when another is needed, it is looked for from there on */
    static const uint64_t first[] = { 14, 16, 1, 38, 92, 1 };
    (void)state;
    for (unsigned i = 0; i < sizeof each / sizeof each[0]; i++) {
        uint64_t seed = first[i];
        while (seed < first[i] + 100 &&
               (run_absences(seed, each[i], ABSENCE_STEPS, each[i] == RESUMES_WIPES) ||
                !strstr(violation, found[i])))
            seed++;
        if (seed == first[i] + 100)
            fail_msg("mutation %u was not found: %s; last: %s", each[i], found[i], violation);
    }
}

/* -- Another store -- */

typedef enum { EMPTY_STORE, OLD_STORE, ANOTHER_STORE, STORES } which_store;

static unit kept[PROXIES][UNITS];
static bool guarded[PROXIES][UNITS];

/* Users and proxies do what they do, without trouble. */
static void live(unsigned steps)
{
    for (unsigned i = 0; i < steps && !violation[0]; i++) {
        unsigned key = draw(KEYS), what = draw(6);
        now_ms += draw(200);
        core_clock(c, unix_ms(), now_ms);
        core_tick(c);
        hear_events();
        check_ledger();
        if (what < 3)
            user_creates(key);
        else if (what < 4)
            user_releases(key);
        else if (what < 5)
            user_parks(key);
        for (unsigned p = 0; p < PROXIES; p++)
            move_proxy(&world[p]);
        send_orders();
        check_all();
    }
}

/* The epoch that the store has for this box's slot; 0: none, or it does not know the box. */
static uint64_t recorded(unsigned box, unsigned number)
{
    for (uint32_t i = 0; i < c->t.nodes; i++)
        if (c->t.node[i].identity[0] == world[box].id && number < c->t.node[i].total)
            return core_pool(c)->slot[c->t.node[i].first + number].epoch;
    return 0;
}

/* The ports that have a lease, and are not about to give it up. */
static void guard_ports(uint64_t epoch)
{
    for (unsigned h = BOXES; epoch && h < PROXIES; h++)
        for (unsigned i = 0; i < world[h].units; i++)
            if (world[h].unit[i].epoch == epoch &&
                world[h].unit[i].state != DXPU_CONTROL_SLOT_CLOSING)
                guarded[h][i] = true;
}

/* Which slots have a lease, or its data, that the store did not give; and their hosts' ports. */
static unsigned guard(void)
{
    unsigned found = 0;
    memset(guarded, 0, sizeof guarded);
    for (unsigned b = 0; b < BOXES; b++)
        for (unsigned i = 0; i < world[b].units; i++) {
            const unit *u = &world[b].unit[i];
            if ((!u->epoch && u->state != DXPU_CONTROL_SLOT_KEPT) || u->seen <= recorded(b, i))
                continue;
            guarded[b][i] = true;
            guard_ports(u->epoch);
            found += u->tag != 0;
        }
    for (unsigned p = 0; p < PROXIES; p++)
        memcpy(kept[p], world[p].unit, sizeof kept[p]);
    return found;
}

static void check_guarded(void)
{
    for (unsigned p = 0; p < PROXIES; p++)
        for (unsigned i = 0; i < world[p].units; i++) {
            const unit *u = &world[p].unit[i], *was = &kept[p][i];
            if (!guarded[p][i])
                continue;
            if (was->tag && u->tag != was->tag)
                violate("data are gone that the store knows nothing of", was->tag);
            if (u->epoch != was->epoch)
                violate("a lease ended that the store knows nothing of", was->epoch);
        }
}

/* Before all have said what they have, a new lease may be given an epoch that one of them knows. */
static bool all_connected(void)
{
    unsigned connected = 0;
    for (uint32_t i = 0; i < c->t.nodes; i++)
        connected += c->t.node[i].connected;
    return connected == PROXIES;
}

/* All requests are for new leases, under keys of their own. */
static void rest_guarded(bool repair)
{
    for (uint64_t end = now_ms + REST_MS; now_ms < end && !violation[0]; now_ms += 250) {
        core_clock(c, unix_ms(), now_ms);
        core_tick(c);
        hear_events();
        if (repair)
            repair_all();
        else if (all_connected() && draw(8) == 0) {
            core_request r = request_of(draw(KEYS));
            uint64_t lease;
            bool existed;
            r.key[0] = 0;
            r.host = c->t.nodes ? c->t.node[draw(c->t.nodes)].number : 0;
            (void)core_create(c, &r, &lease, &existed);
        }
        for (unsigned i = 0; i < PROXIES; i++)
            move_proxy(&world[i]);
        send_orders();
        check_owners();
        check_ports();
        check_guarded();
    }
}

/* How many slots were looked after; then, if so, an operator says that all is well. */
static unsigned run_store(uint64_t seed, which_store which, bool repair)
{
    rig_store old, other;
    random_word = seed * 0x9e3779b97f4a7c15u + 1;
    mutant = HONEST;
    now_ms = 1;
    begin_run();
    rig_store_init(&disk);
    rig_store_init(&other);
    world_init();
    manager_start();
    set_quotas();
    live(60);
    old = rig_store_copy(&disk);
    live(140);
    core_close(c);
    if (which == OLD_STORE) {
        other = rig_store_copy(&old);
    } else if (which == ANOTHER_STORE) { /* one that has given many epochs, elsewhere */
        static const char meta[] = "{\"format\":1,\"node\":40,\"epoch\":9000}";
        store_change much = { "meta", meta, sizeof meta - 1 };
        rig_change(&other, &much);
    }
    rig_store_free(&disk);
    disk = other;
    events_seen = 0;
    manager_start();
    for (unsigned i = 0; c && i < PROXIES; i++) {
        cut(&world[i]);
        world[i].draining = false;
    }
    unsigned found = c ? guard() : 0;
    if (c && !violation[0])
        rest_guarded(false);
    if (c && repair && !violation[0])
        rest_guarded(true);
    core_close(c);
    c = NULL;
    rig_store_free(&disk);
    rig_store_free(&old);
    return found;
}

static void test_another_store_ends_nothing(void **state)
{
    (void)state;
    for (unsigned which = 0; which < STORES; which++) {
        unsigned found = 0;
        for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
            found += run_store(seed, which, false);
            if (violation[0])
                fail_msg(
                    "store %u: %s; repeat with: DXPU_SEED=%llu build/san/tests/manager/sim_core",
                    which, violation, (unsigned long long)seed);
        }
        assert_true(found >= seeds || seeds == 1); /* there was something to lose */
    }
}

/* When an operator says so, it ends and is wiped: the check sees that. */
static void test_control_another_store(void **state)
{
    (void)state;
    for (unsigned which = 0; which < STORES; which++) {
        uint64_t seed = 1;
        while (seed < 50 && (!run_store(seed, which, true) || !violation[0]))
            seed++;
        assert_true(seed < 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_store_ends_nothing),
        cmocka_unit_test(test_control_another_store),
        cmocka_unit_test(test_m91_absences),
        cmocka_unit_test(test_m105_old_states_of_boxes),
        cmocka_unit_test(test_control_absences),
        cmocka_unit_test(test_honest),
        cmocka_unit_test(test_control_mutations),
    };
    const char *seed = getenv("DXPU_SEED"), *count = getenv("DXPU_SEEDS");
    first_seed = seed ? strtoull(seed, NULL, 0) : 1;
    seeds = seed && !count ? 1 : seeds_wanted(seeds);
    absences = count || seed ? seeds : seeds_wanted(absences);
    states = count || seed ? seeds : seeds_wanted(states);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
