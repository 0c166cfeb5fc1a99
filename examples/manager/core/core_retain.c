/* core_retain.c - data kept for a lease that left a slot or has ended, how long, and what would be
   erased; the clock by which leases end
   SPDX-License-Identifier: MIT

   Retention times run by the monotonic clock, and only while this program runs.  That of a slot
   runs only while its data could be used, which needs the slot and its box; that of an ended lease,
   while this holds for each of its slots.  The time left is stored now and then, so that a restart
   lengthens it by an hour at most. */
#include <stdio.h>
#include <string.h>

#include "core_internal.h"

enum { DRIFT = 1000, SAVED_AT_ONCE = 64 }; /* a clock may go wrong by one part in DRIFT */

/* -- The clock -- */

void corei_clock_begin(core *c, bool held)
{
    c->offset_ms = c->serial_offset_ms = c->unix_ms - c->mono_ms;
    c->drift_ms = c->mono_ms;
    c->held = c->unsure = held || c->unix_ms + CORE_STEP_MS < c->last_unix_ms;
}

/* Returns how far the clock is from where it should be. */
static int64_t step_of(const core *c)
{
    return (int64_t)(c->unix_ms - c->mono_ms - c->offset_ms);
}

static bool is_step(int64_t ms)
{
    return ms > CORE_STEP_MS || ms < -CORE_STEP_MS;
}

/* Clocks drift, and are slewed: the offset follows as slowly. */
static void drift(core *c)
{
    int64_t most = (int64_t)((c->mono_ms - c->drift_ms) / DRIFT), step = step_of(c);
    if (!most)
        return;
    step = step > most ? most : step < -most ? -most : step;
    c->offset_ms += (uint64_t)step;
    c->drift_ms = c->mono_ms;
}

void core_clock(core *c, uint64_t unix_ms, uint64_t mono_ms)
{
    c->unix_ms = unix_ms;
    c->mono_ms = mono_ms;
    if (!c->unsure)
        c->held = is_step(step_of(c));
    if (c->held)
        c->drift_ms = mono_ms;
    else
        drift(c);
    if ((int64_t)(corei_day_ms(c) - mono_ms - c->serial_offset_ms) > 0)
        c->serial_offset_ms = corei_day_ms(c) - mono_ms;
}

bool core_clock_held(const core *c, int64_t *step_ms)
{
    *step_ms = c->held && !c->unsure ? step_of(c) : 0;
    return c->held;
}

uint64_t corei_day_ms(const core *c)
{
    if (!c->held)
        return c->unix_ms;
    if (!c->unsure)
        return c->mono_ms + c->offset_ms;
    return c->unix_ms > c->last_unix_ms ? c->unix_ms : c->last_unix_ms;
}

uint64_t corei_serial_limit(const core *c)
{
    uint64_t ran_ms = c->mono_ms - c->open_ms;
    uint64_t limit = (c->mono_ms + c->serial_offset_ms) * COREI_SERIALS / 1000;
    if (c->serials_ahead) /* the clock says nothing about them */
        limit = c->first_serial + 1 + ran_ms * COREI_SERIALS / 1000;
    return limit + c->set.early;
}

void corei_clock_tell(core *c)
{
    if (c->held == c->held_told || corei_begin(c).code != CORE_OK)
        return;
    if (!c->held)
        (void)corei_event(c, CORE_EVENT_CLOCK_CONFIRMED,
                          "it has stepped back: leases expire again");
    else if (c->unsure)
        (void)corei_event(c, CORE_EVENT_ALARM,
                          "the clock is before the last stored time or was in doubt then, or the "
                          "store is an imported copy: no lease expires and no retention ends "
                          "until it is confirmed");
    else
        (void)corei_event(c, CORE_EVENT_ALARM,
                          "the clock stepped by %lld s: no lease expires until it steps back, "
                          "or is confirmed",
                          (long long)(step_of(c) / 1000));
    corei_mark_changed(c, COREI_META, 0);
    bool held = c->held;
    if (corei_commit(c).code == CORE_OK)
        c->held_told = held;
}

core_result core_confirm_clock(core *c)
{
    if (!c->held)
        return corei_result(CORE_E_STATE, "the clock is not in doubt");
    core_result r = corei_begin(c);
    if (r.code != CORE_OK)
        return r;
    uint64_t offset_ms = c->offset_ms;
    bool unsure = c->unsure, told = c->held_told;
    c->offset_ms = c->unix_ms - c->mono_ms;
    c->held = c->unsure = c->held_told = false;
    (void)corei_event(c, CORE_EVENT_CLOCK_CONFIRMED, "it is right: leases expire again");
    corei_mark_changed(c, COREI_META, 0);
    r = corei_commit(c);
    if (r.code == CORE_OK) {
        for (uint32_t i = 0; unsure && i < c->t.pool->slots; i++)
            corei_retain_count(c, i);
        return r;
    }
    c->offset_ms = offset_ms;
    c->held = true;
    c->unsure = unsure;
    c->held_told = told;
    return r;
}

/* -- What keeps data -- */

bool core_keeps_data(const core *c, uint32_t slot)
{
    return c->t.slot[slot].device.data != DXPU_CONTROL_DATA_NONE;
}

bool core_model_keeps_data(const core *c, uint32_t model)
{
    for (uint32_t i = 0; i < c->t.pool->slots; i++)
        if (c->t.pool->slot[i].model == model && core_keeps_data(c, i))
            return true;
    return false;
}

bool corei_lease_keeps_data(const core *c, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    for (uint32_t i = l->first; i != POOL_NONE; i = c->t.pool->slot[i].next)
        if (core_keeps_data(c, i) && !corei_never_served(c, i))
            return true;
    return l->retained != POOL_NONE;
}

/* Is it of a lease that has ended? */
static bool has_ended(const core *c, uint32_t slot)
{
    uint32_t lease = c->t.pool->slot[slot].lease;
    return lease != POOL_NONE && c->t.lease[lease].ended;
}

uint64_t core_slot_owner(const core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    uint32_t owner = has_ended(c, slot) ? s->lease : s->owner;
    return owner == POOL_NONE ? 0 : pool_lease_number(c->t.pool, owner);
}

unsigned core_slot_state(const core *c, uint32_t slot)
{
    unsigned state = c->t.pool->slot[slot].state;
    return state == POOL_LEASED && has_ended(c, slot) ? POOL_RETAINED : state;
}

void core_count_slots(const core *c, uint32_t (*count)[POOL_STATES])
{
    const pool *p = c->t.pool;
    for (uint32_t i = 0; i < c->t.models; i++)
        memcpy(count[i], p->model[i].count, sizeof count[i]);
    for (uint32_t i = 0; i < p->limits.leases; i++)
        for (uint32_t s = c->t.lease[i].ended ? p->lease[i].first : POOL_NONE; s != POOL_NONE;
             s = p->slot[s].next)
            if (p->slot[s].state == POOL_LEASED) {
                count[p->slot[s].model][POOL_LEASED]--;
                count[p->slot[s].model][POOL_RETAINED]++;
            }
}

/* -- How long -- */

static uint64_t left_of(const core *c, uint64_t stored_ms, uint64_t ran_ms)
{
    uint64_t all = stored_ms ? stored_ms : c->set.retention_ms;
    if (!c->set.retention_ms)
        return UINT64_MAX;
    return ran_ms < all ? all - ran_ms : 0;
}

uint64_t core_slot_left_ms(const core *c, uint32_t slot)
{
    const corei_slot *more = &c->t.slot_more[slot];
    if (has_ended(c, slot))
        return core_lease_left_ms(c, core_slot_owner(c, slot));
    if (c->t.pool->slot[slot].owner == POOL_NONE)
        return UINT64_MAX;
    return left_of(c, c->t.slot[slot].stored_ms,
                   more->ran_ms + (more->counts ? c->mono_ms - more->since_ms : 0));
}

uint64_t core_lease_left_ms(const core *c, uint64_t lease)
{
    const core_lease *l = &c->t.lease[pool_lease_index(lease)];
    if (!pool_find_lease(c->t.pool, lease) || !l->ended)
        return UINT64_MAX;
    return left_of(c, l->stored_ms, l->ran_ms + (l->counts ? c->mono_ms - l->since_ms : 0));
}

static void save_later(core *c)
{
    if (c->save_ms == UINT64_MAX)
        c->save_ms = c->mono_ms + COREI_SAVE_MS;
}

static void wake(core *c, uint32_t slot, uint64_t left_ms)
{
    if (left_ms == UINT64_MAX)
        return;
    corei_look_at(c, corei_slot_unit(slot), c->mono_ms + left_ms);
    save_later(c);
}

/* Are its data within reach, as far as its box has reported?  A copy of a store does not know what
   was extended or recovered since: its times wait to be confirmed (M-96). */
static bool is_within_reach(const core *c, uint32_t slot)
{
    return !c->unsure && core_slot_state(c, slot) == POOL_RETAINED && !c->t.slot_more[slot].late &&
           c->t.node[c->t.slot[slot].node].connected;
}

void corei_retain_owner(core *c, uint32_t lease)
{
    core_lease *l = &c->t.lease[lease];
    bool counts = l->ended;
    for (uint32_t i = c->t.pool->lease[lease].first; counts && i != POOL_NONE;
         i = c->t.pool->slot[i].next)
        counts = is_within_reach(c, i);
    if (l->counts && !counts)
        l->ran_ms += c->mono_ms - l->since_ms;
    if (!l->counts && counts)
        l->since_ms = c->mono_ms;
    l->counts = counts;
    if (counts && c->t.pool->lease[lease].retained == POOL_NONE) /* whose end looks again */
        wake(c, c->t.pool->lease[lease].first,
             core_lease_left_ms(c, pool_lease_number(c->t.pool, lease)));
}

void corei_retain_count(core *c, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    corei_slot *more = &c->t.slot_more[slot];
    bool counts = s->owner != POOL_NONE && is_within_reach(c, slot);
    if (has_ended(c, slot))
        corei_retain_owner(c, s->lease);
    if (more->counts && !counts)
        more->ran_ms += c->mono_ms - more->since_ms;
    if (!more->counts && counts)
        more->since_ms = c->mono_ms;
    more->counts = counts;
    if (counts)
        wake(c, slot, core_slot_left_ms(c, slot));
}

void corei_retain_begin(core *c, uint32_t slot)
{
    corei_slot *more = &c->t.slot_more[slot];
    c->t.slot[slot].stored_ms = 0;
    more->ran_ms = 0;
    more->counts = false;
    corei_event_slot(c, CORE_EVENT_SLOT_RETAINED, slot, "its data are kept for the lease: %s",
                     pool_reason_text(c->t.pool->slot[slot].reason));
    corei_retain_count(c, slot);
}

bool corei_retain_due(core *c, uint32_t slot)
{
    corei_retain_count(c, slot);
    if (!c->t.slot_more[slot].counts || core_slot_left_ms(c, slot))
        return false;
    if (corei_begin(c).code == CORE_OK) {
        corei_discard(c, slot, POOL_WHY_RETENTION);
        if (corei_commit(c).code == CORE_OK)
            return true;
    }
    corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
    return true;
}

void corei_retain_lease(core *c, uint32_t lease)
{
    uint64_t number = pool_lease_number(c->t.pool, lease);
    uint32_t slot = c->t.pool->lease[lease].first;
    corei_retain_owner(c, lease);
    if (!c->t.lease[lease].counts || core_lease_left_ms(c, number) ||
        c->t.pool->lease[lease].retained != POOL_NONE) /* each has its own time */
        return;
    if (corei_begin(c).code == CORE_OK) {
        corei_end_lease(c, number, CORE_EVENT_LEASE_RELEASED, POOL_WHY_RETENTION);
        if (corei_commit(c).code == CORE_OK)
            return;
    }
    corei_look_at(c, corei_slot_unit(slot), corei_again_ms(c));
}

/* -- What is left is stored -- */

static bool save_slot(core *c, uint32_t slot)
{
    uint64_t left = core_slot_left_ms(c, slot);
    corei_slot *more = &c->t.slot_more[slot];
    if (left == UINT64_MAX || (!more->ran_ms && !more->counts))
        return false;
    c->t.slot[slot].stored_ms = left ? left : 1; /* 0: all of it */
    more->ran_ms = 0;
    more->since_ms = c->mono_ms;
    corei_mark_changed(c, COREI_SLOT, slot);
    return true;
}

static bool save_lease(core *c, uint32_t lease)
{
    uint64_t number = pool_lease_number(c->t.pool, lease);
    uint64_t left = number ? core_lease_left_ms(c, number) : UINT64_MAX;
    core_lease *l = &c->t.lease[lease];
    if (left == UINT64_MAX || (!l->ran_ms && !l->counts))
        return false;
    l->stored_ms = left ? left : 1;
    l->ran_ms = 0;
    l->since_ms = c->mono_ms;
    corei_mark_changed(c, COREI_LEASE, lease);
    return true;
}

void corei_retain_save(core *c)
{
    uint32_t slot = 0, lease = 0;
    bool more = false;
    c->save_ms = UINT64_MAX;
    do {
        if (corei_begin(c).code != CORE_OK)
            break;
        corei_mark_changed(c, COREI_META, 0); /* the time of day */
        unsigned n = 0;
        for (; slot < c->t.pool->slots && n < SAVED_AT_ONCE; slot++)
            n += save_slot(c, slot);
        for (; lease < c->t.pool->limits.leases && n < SAVED_AT_ONCE; lease++)
            n += save_lease(c, lease);
        more = more || n;
        if (corei_commit(c).code != CORE_OK)
            break;
    } while (lease < c->t.pool->limits.leases);
    if (more || corei_heap_due(&c->t.expiry) != UINT64_MAX)
        save_later(c);
}

/* -- Leases that have ended -- */

static void how_long(uint64_t ms, char out[32])
{
    unsigned long long s = ms / 1000, days = s / 86400;
    if (ms == UINT64_MAX)
        snprintf(out, 32, "without a limit");
    else if (days)
        snprintf(out, 32, "for %llu day%s", days, days == 1 ? "" : "s");
    else
        snprintf(out, 32, "for %llu s", s);
}

void corei_retire(core *c, uint64_t lease, core_event_type type, const char *why)
{
    uint32_t index = pool_lease_index(lease), slot[POOL_COUNT_MAX];
    core_lease *l = &c->t.lease[index];
    char text[32];
    unsigned n = pool_lease_slots(c->t.pool, lease, slot);
    how_long(left_of(c, 0, 0), text);
    corei_event_lease(c, type, lease,
                      "%s: its data are kept %s; recover it to have it back, or release it", why,
                      text);
    if (c->t.pool->lease[index].host != POOL_NONE) {
        corei_leave_ports(c, lease);
        (void)pool_park(c->t.pool, lease);
        l->kept = true;
        c->t.lease_seen[index] = CORE_LEASE_PARKED;
    }
    l->ended = true;
    l->stored_ms = l->ran_ms = 0;
    l->counts = false;
    corei_heap_remove(&c->t.expiry, index);
    corei_mark_changed(c, COREI_LEASE, index);
    for (unsigned i = 0; i < n; i++)
        corei_mark_changed(c, COREI_SLOT, slot[i]);
    corei_retain_owner(c, index);
}

/* -- What would be erased -- */

typedef struct listing {
    const core *c;
    core_erased *out;
    unsigned count, max;
} listing;

static void list_slot(listing *l, uint32_t slot)
{
    const pool *p = l->c->t.pool;
    const pool_slot *s = &p->slot[slot];
    uint32_t lease = s->lease != POOL_NONE ? s->lease : s->owner;
    if ((!s->dirty && !corei_repair_finds_data(l->c, slot)) || !core_keeps_data(l->c, slot))
        return;
    if (l->count < l->max) {
        core_erased *e = &l->out[l->count];
        memset(e, 0, sizeof *e);
        e->slot = slot;
        if (lease != POOL_NONE) {
            e->lease = pool_lease_number(p, lease);
            memcpy(e->tenant, l->c->t.tenant[p->lease[lease].tenant].name, sizeof e->tenant);
        }
    }
    l->count++;
}

static void list_release(listing *l, uint64_t lease)
{
    const pool *p = l->c->t.pool;
    const pool_lease *of = pool_find_lease(p, lease);
    for (uint32_t i = of ? of->first : POOL_NONE; i != POOL_NONE; i = p->slot[i].next)
        list_slot(l, i);
    for (uint32_t i = of ? of->retained : POOL_NONE; i != POOL_NONE; i = p->slot[i].next)
        list_slot(l, i);
}

static void list_drain(listing *l, uint64_t number)
{
    const core *c = l->c;
    uint32_t node = number <= UINT32_MAX ? corei_find_box(c, (uint32_t)number) : CORE_NONE;
    if (node == CORE_NONE)
        return;
    const core_node *n = &c->t.node[node];
    for (uint32_t i = n->first; i < n->first + n->total; i++) {
        uint32_t lease = c->t.pool->slot[i].lease;
        if (lease != POOL_NONE && corei_may_move_out(&c->t.lease[lease]).code == CORE_OK)
            list_slot(l, i);
    }
}

unsigned core_would_erase(const core *c, core_deed deed, uint64_t of, core_erased *out,
                          unsigned max)
{
    listing l = { c, out, 0, max };
    bool slot = deed == CORE_DEED_REPLACE || deed == CORE_DEED_REPAIR || deed == CORE_DEED_DISCARD;
    const pool_slot *s = slot && of < c->t.pool->slots ? &c->t.pool->slot[of] : NULL;
    if (deed == CORE_DEED_DRAIN)
        list_drain(&l, of);
    if (deed == CORE_DEED_RELEASE)
        list_release(&l, of);
    if (!s)
        return l.count;
    bool repaired = s->lease == POOL_NONE && (s->state == POOL_QUARANTINED ||
                                              (s->state == POOL_BROKEN && s->owner == POOL_NONE));
    if ((deed == CORE_DEED_REPLACE && s->lease != POOL_NONE) ||
        (deed == CORE_DEED_DISCARD && s->owner != POOL_NONE) ||
        (deed == CORE_DEED_REPAIR && repaired))
        list_slot(&l, (uint32_t)of);
    return l.count;
}
