/* prop_policy.c - the pool's policy over seeded random pools and histories: one owner for each
   slot, indexes that equal a scan, choices and refusals that equal what trying everything finds
   SPDX-License-Identifier: MIT
   DXPU_SEED repeats a run, DXPU_ROUNDS sets its length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 96, BOXES = 12, HOSTS = 4, TENANTS = 3, LEASES = 32, MODELS = 3 };

static uint64_t seed = 1, rounds = 30000, state_word;
static pool *p;
static uint64_t held[LEASES]; /* leases that the test has; 0: none */
static uint64_t last_epoch[SLOTS], last_serial;
static uint32_t last_tenant[SLOTS]; /* whose data may be on it */

static uint32_t draw(uint32_t below)
{
    state_word ^= state_word << 13;
    state_word ^= state_word >> 7;
    state_word ^= state_word << 17;
    return (uint32_t)(state_word >> 32) % below;
}

static bool with_devices; /* functions of devices, and leases that ask about them */

static const pool_limits limits = { SLOTS, BOXES, HOSTS, TENANTS, LEASES, MODELS };

/* Some slots of a box are functions of one device. */
static void share(uint32_t box)
{
    uint32_t first = p->box[box].first_slot;
    for (unsigned i = 1; with_devices && i < p->box[box].slots; i++) {
        unsigned root = p->slot[first + i - 1].device ? p->slot[first + i - 1].device : i;
        if (!draw(2))
            continue;
        assert_int_equal(pool_set_device(p, first + i - 1, root), POOL_OK);
        assert_int_equal(pool_set_device(p, first + i, root), POOL_OK);
    }
}

/* Boxes of 1..`most` slots: of one model with groups of 2 or 4, or of anything. */
static void fill(unsigned boxes, unsigned most)
{
    uint32_t number;
    for (unsigned i = 0; i < boxes; i++) {
        pool_slot_info info[8];
        unsigned count = 1 + draw(most), group = 2u << draw(2), mixed = draw(4) == 0;
        uint16_t model = (uint16_t)draw(MODELS);
        for (unsigned j = 0; j < count; j++) {
            info[j].model = mixed ? (uint16_t)draw(MODELS) : model;
            info[j].group = mixed && draw(3) == 0 ? POOL_NONE : j / group;
        }
        assert_int_equal(pool_add_box(p, info, count, &number), POOL_OK);
        share(number);
    }
    for (unsigned i = 0; i < HOSTS; i++)
        assert_int_equal(pool_add_host(p, 2 + draw(30), &number), POOL_OK);
    for (unsigned i = 0; i < TENANTS; i++)
        assert_int_equal(pool_add_tenant(p, 1 + draw(50), &number), POOL_OK);
}

static void fresh(unsigned boxes, unsigned most)
{
    free(p);
    size_t bytes = pool_bytes(&limits);
    void *memory = malloc(bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes);
    p = pool_init(memory, bytes, &limits);
    assert_non_null(p);
    memset(held, 0, sizeof held);
    last_serial = 0;
    memset(last_epoch, 0, sizeof last_epoch);
    memset(last_tenant, 0xff, sizeof last_tenant);
    with_devices = draw(2);
    fill(boxes, most);
}

static int begin(void **state)
{
    (void)state;
    state_word = seed * 0x9e3779b97f4a7c15u + 1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(p);
    p = NULL;
    return 0;
}

/* -- The whole pool, looked at slot by slot: the number of things that are wrong -- */

static unsigned wrong_lease(uint32_t at, unsigned char owned[SLOTS])
{
    const pool_lease *l = &p->lease[at];
    unsigned wrong = 0, n = 0;
    uint32_t prev = POOL_NONE;
    if (!l->count)
        return 0;
    for (uint32_t i = l->first; i != POOL_NONE && n <= l->count; i = p->slot[i].next, n++) {
        wrong += owned[i]++ != 0 || p->slot[i].lease != at || p->slot[i].model != l->model ||
                 p->slot[i].prev != prev;
        wrong += p->slot[i].state != POOL_LEASED && p->slot[i].state != POOL_BROKEN;
        prev = i;
    }
    return wrong + (n != l->count || l->last != prev);
}

/* What is retained for a lease: the list of each, and its slots. */
static unsigned wrong_retained(void)
{
    unsigned char owned[SLOTS] = { 0 };
    unsigned wrong = 0;
    for (uint32_t i = 0; i < LEASES; i++) {
        const pool_lease *l = &p->lease[i];
        uint32_t n = 0, prev = POOL_NONE;
        if (!l->count)
            continue;
        for (uint32_t s = l->retained; s != POOL_NONE && n <= SLOTS; s = p->slot[s].next, n++) {
            wrong += p->slot[s].owner != i || p->slot[s].prev != prev || owned[s]++ ||
                     p->slot[s].model != l->model || p->slot[s].place >= l->count;
            prev = s;
        }
        wrong += n != l->retained_count;
    }
    for (uint32_t i = 0; i < p->slots; i++) {
        const pool_slot *s = &p->slot[i];
        wrong += owned[i] != (s->owner != POOL_NONE);
        wrong += owned[i] && (s->lease != POOL_NONE || !s->dirty || s->wipe);
        wrong += owned[i] && s->state != POOL_RETAINED && s->state != POOL_BROKEN &&
                 s->state != POOL_QUARANTINED;
        wrong += s->state == POOL_RETAINED && !owned[i];
        wrong += s->state == POOL_WIPING && !s->wipe; /* M-91: somebody decided that */
        wrong += s->wipe && (!s->dirty || s->lease != POOL_NONE);
    }
    return wrong;
}

static unsigned wrong_owners(void)
{
    unsigned char owned[SLOTS] = { 0 };
    uint32_t tenants[TENANTS] = { 0 }, hosts[HOSTS] = { 0 }, leases = 0;
    unsigned wrong = 0;
    for (uint32_t i = 0; i < LEASES; i++) {
        wrong += wrong_lease(i, owned);
        if (p->lease[i].count) {
            leases++;
            tenants[p->lease[i].tenant] += p->lease[i].count;
            if (p->lease[i].host != POOL_NONE)
                hosts[p->lease[i].host] += p->lease[i].count;
        }
    }
    uint32_t empty = 0;
    for (uint32_t i = p->empty_lease; i != POOL_NONE && empty <= LEASES; i = p->lease[i].first)
        empty++;
    wrong += empty != LEASES - leases;
    for (uint32_t i = 0; i < p->slots; i++) {
        wrong += owned[i] != (p->slot[i].lease != POOL_NONE);
        if (p->slot[i].owner != POOL_NONE)
            tenants[p->lease[p->slot[i].owner].tenant]++;
        wrong += p->slot[i].state == POOL_LEASED && !owned[i];
        wrong += p->box[p->slot[i].box].draining &&
                 (p->slot[i].state == POOL_FREE || p->slot[i].state == POOL_SPARE);
        wrong += p->slot[i].dirty && (p->slot[i].state == POOL_FREE ||
                                      p->slot[i].state == POOL_SPARE); /* never the old data */
    }
    for (uint32_t i = 0; i < TENANTS; i++)
        wrong += tenants[i] != p->tenant[i].used;
    for (uint32_t i = 0; i < HOSTS; i++)
        wrong += hosts[i] != p->host[i].used || hosts[i] > p->host[i].capacity;
    return wrong + wrong_retained() + (leases != p->leases);
}

static unsigned wrong_counts(void)
{
    uint32_t count[MODELS][POOL_STATES] = { { 0 } };
    unsigned wrong = 0;
    for (uint32_t i = 0; i < p->slots; i++)
        count[p->slot[i].model][p->slot[i].state]++;
    for (unsigned m = 0; m < MODELS; m++) {
        uint32_t there = count[m][POOL_FREE] + count[m][POOL_SPARE], spares = 0;
        uint32_t wanted = p->model[m].spares_wanted;
        for (unsigned s = 0; s < POOL_STATES; s++)
            wrong += count[m][s] != p->model[m].count[s];
        wrong += count[m][POOL_SPARE] != (wanted < there ? wanted : there);
        for (uint32_t i = p->model[m].first_spare; i != POOL_NONE; i = p->slot[i].next, spares++)
            wrong += p->slot[i].state != POOL_SPARE || p->slot[i].model != m;
        wrong += spares != count[m][POOL_SPARE];
    }
    return wrong;
}

static unsigned listed(uint32_t head, uint32_t cell)
{
    unsigned n = 0;
    for (uint32_t i = head; i != POOL_NONE; i = p->cell[i].next)
        n += i == cell;
    return n;
}

static unsigned rank(unsigned free)
{
    return free < POOL_RANKS ? free : POOL_RANKS;
}

static unsigned wrong_index(void)
{
    unsigned wrong = 0;
    for (uint32_t i = 0; i < p->cells; i++) {
        const pool_cell *c = &p->cell[i];
        const pool_model *m = &p->model[c->model];
        unsigned free = 0, in_box = c->parent == POOL_NONE ? 0 : p->cell[c->parent].free;
        for (uint32_t j = 0; j < p->slots; j++)
            free += p->slot[j].state == POOL_FREE &&
                    (p->slot[j].box_cell == i || p->slot[j].group_cell == i);
        wrong += free != c->free;
        if (free && c->parent == POOL_NONE)
            wrong += listed(m->box_head[rank(free)], i) != 1;
        else if (free)
            wrong += listed(m->group_head[rank(free)][rank(in_box)], i) != 1;
    }
    for (unsigned k = 0; k < MODELS; k++)
        for (unsigned f = 1; f <= POOL_RANKS; f++) {
            const pool_model *m = &p->model[k];
            wrong += (m->box_mask >> (f - 1) & 1) != (m->box_head[f] != POOL_NONE);
            wrong += (m->group_mask >> (f - 1) & 1) != (m->group_box_mask[f] != 0);
            for (unsigned g = 1; g <= POOL_RANKS; g++)
                wrong +=
                    (m->group_box_mask[f] >> (g - 1) & 1) != (m->group_head[f][g] != POOL_NONE);
        }
    return wrong;
}

/* Is it the data's lease too?  POOL_NONE: none has anything there. */
static uint32_t lease_at(uint32_t slot)
{
    return p->slot[slot].lease != POOL_NONE ? p->slot[slot].lease : p->slot[slot].owner;
}

static bool on_one_device(uint32_t a, uint32_t b)
{
    return p->slot[a].device && p->slot[a].device == p->slot[b].device &&
           p->slot[a].box == p->slot[b].box;
}

/* M-158: no other tenant has a function beside an exclusive one. */
static unsigned wrong_exclusive(void)
{
    unsigned wrong = 0, leases = 0, of_tenant[TENANTS] = { 0 };
    for (uint32_t i = 0; i < LEASES; i++) {
        bool is_one = p->lease[i].count && p->lease[i].exclusive;
        leases += is_one;
        if (is_one)
            of_tenant[p->lease[i].tenant]++;
    }
    for (uint32_t i = 0; i < p->slots; i++)
        for (uint32_t j = 0; j < p->slots && p->slot[i].lease != POOL_NONE; j++)
            wrong += p->lease[p->slot[i].lease].exclusive && on_one_device(i, j) &&
                     lease_at(j) != POOL_NONE &&
                     p->lease[lease_at(j)].tenant != p->lease[p->slot[i].lease].tenant;
    for (uint32_t i = 0; i < p->tenants; i++)
        wrong += p->tenant[i].exclusive != of_tenant[i];
    return wrong + (leases != p->exclusive);
}

static unsigned wrong_all(void)
{
    return wrong_owners() + wrong_counts() + wrong_index() + wrong_exclusive();
}

/* -- Random histories -- */

static uint32_t unfit; /* slots with this remainder of 3 do not fit; 3: all do */

static bool is_fit(const void *user, uint32_t slot)
{
    return slot % 3 != *(const uint32_t *)user;
}

static const pool_filter of_some = { is_fit, &unfit };

/* Half of the time there is none. */
static const pool_filter *any_filter(void)
{
    unfit = draw(2) ? draw(3) : 3;
    return unfit < 3 ? &of_some : NULL;
}

/* One that there is; 0: there is none. */
static uint64_t any_lease(void)
{
    unsigned at = draw(LEASES);
    for (unsigned i = 0; i < LEASES; i++)
        if (held[(at + i) % LEASES])
            return held[(at + i) % LEASES];
    return 0;
}

static void any_request(pool_request *r, unsigned most)
{
    r->tenant = draw(TENANTS);
    r->host = draw(HOSTS);
    r->model = (uint16_t)draw(MODELS);
    r->count = (uint8_t)(1 + draw(most));
    r->need = (uint8_t)draw(POOL_NEEDS);
    r->filter = any_filter();
    r->device = with_devices && !draw(3) ? (uint8_t)draw(POOL_DEVICES) : POOL_DEVICE_ANY;
    r->exclusive = with_devices && !draw(4);
    r->apart = with_devices && !draw(3);
    r->peer = with_devices && !draw(3) ? any_lease() : 0;
}

/* May a lease that asks for this, of this tenant, have the slot? */
static bool may_stand(uint32_t tenant, unsigned device, bool exclusive, uint32_t slot)
{
    bool function = p->slot[slot].device != 0;
    if ((device == POOL_DEVICE_WHOLE && function) || (device == POOL_DEVICE_FUNCTION && !function))
        return false;
    for (uint32_t i = 0; i < p->slots; i++) {
        if (i == slot || !on_one_device(i, slot))
            continue;
        if (exclusive &&
            (p->slot[i].state == POOL_WIPING ||
             (p->slot[i].state == POOL_QUARANTINED && p->slot[i].reason == POOL_WHY_FOREIGN)))
            return false;
        if (lease_at(i) != POOL_NONE && p->lease[lease_at(i)].tenant != tenant &&
            (exclusive || p->lease[lease_at(i)].exclusive))
            return false;
    }
    return true;
}

/* The same of a slot for a lease that there is. */
static bool may_have(const pool_lease *l, uint32_t slot)
{
    return may_stand(l->tenant, l->device, l->exclusive, slot);
}

/* Slots of the lease in the slot's box. */
static bool is_beside(uint64_t lease, uint32_t slot)
{
    const pool_lease *l = pool_find_lease(p, lease);
    for (uint32_t i = l ? l->first : POOL_NONE; i != POOL_NONE; i = p->slot[i].next)
        if (p->slot[i].box == p->slot[slot].box)
            return true;
    return false;
}

/* A slot that is given out has a new epoch, and no other tenant's data. */
static void check_given(uint32_t slot, uint32_t tenant)
{
    assert_true(p->slot[slot].epoch > last_epoch[slot]);
    last_epoch[slot] = p->slot[slot].epoch;
    assert_true(last_tenant[slot] == POOL_NONE || last_tenant[slot] == tenant);
    last_tenant[slot] = tenant;
}

static void step_lease(void)
{
    pool_request r;
    pool_choice c;
    uint64_t lease;
    unsigned at = draw(LEASES);
    any_request(&r, 8);
    if (held[at] || pool_choose(p, &r, &c) != POOL_OK)
        return;
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
    assert_true(lease >> POOL_INDEX_BITS > last_serial); /* no number comes twice */
    last_serial = lease >> POOL_INDEX_BITS;
    for (unsigned i = 0; i < c.count; i++)
        check_given(c.slot[i], r.tenant);
    assert_int_equal(pool_grant(p, &r, &c, &lease) == POOL_OK, false); /* not a second time */
    uint32_t slots[POOL_COUNT_MAX];
    held[at] = pool_lease_number(p, p->slot[c.slot[0]].lease);
    assert_int_equal(pool_lease_slots(p, held[at], slots), c.count);
    assert_memory_equal(slots, c.slot, c.count * sizeof slots[0]);
}

static void step_end(void)
{
    unsigned at = draw(LEASES);
    if (!held[at])
        return;
    const pool_lease *l = pool_find_lease(p, held[at]);
    bool parked = l->host == POOL_NONE;
    switch (draw(3)) {
    case 0:
        assert_int_equal(pool_park(p, held[at]), parked ? POOL_E_STATE : POOL_OK);
        break;
    case 1:
        if (pool_attach(p, held[at], draw(HOSTS)) == POOL_OK)
            for (uint32_t i = l->first; i != POOL_NONE; i = p->slot[i].next)
                check_given(i, l->tenant);
        break;
    default:
        assert_int_equal(pool_release(p, held[at], POOL_WHY_RELEASE), POOL_OK);
        assert_int_equal(pool_release(p, held[at], POOL_WHY_RELEASE), POOL_E_UNKNOWN);
        assert_null(pool_find_lease(p, held[at]));
        held[at] = 0;
        break;
    }
}

static bool is_lendable(const pool_lease *l, uint32_t cell, uint32_t i)
{
    return (p->slot[i].state == POOL_FREE || p->slot[i].state == POOL_SPARE) && is_fit(&unfit, i) &&
           (p->slot[i].box_cell == cell || p->slot[i].group_cell == cell) && may_have(l, i);
}

/* Does this cell, of boxes or groups, have unassigned slots for all of the lease's? */
static bool has_lendable(const pool_lease *l, uint32_t cell)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < p->slots; i++) {
        bool again = false;
        for (uint32_t j = 0; l->apart && j < i; j++)
            again = again || (on_one_device(i, j) && is_lendable(l, cell, j));
        n += is_lendable(l, cell, i) && !again;
    }
    return n >= l->count;
}

/* A lease that asks for one box or group finds another when there is one, and moves there. */
static void step_move_all(void)
{
    uint64_t lease = held[draw(LEASES)];
    const pool_lease *l = pool_find_lease(p, lease);
    pool_choice c;
    const pool_filter *filter = any_filter();
    bool any = false;
    if (!l || (l->need != POOL_SAME_BOX && l->need != POOL_SAME_GROUP)) {
        assert_int_equal(pool_choose_all(p, lease, filter, &c), l ? POOL_E_STATE : POOL_E_UNKNOWN);
        return;
    }
    for (uint32_t i = 0; i < p->cells; i++)
        any = any || (p->cell[i].model == l->model &&
                      (p->cell[i].parent != POOL_NONE) == (l->need == POOL_SAME_GROUP) &&
                      has_lendable(l, i));
    assert_int_equal(pool_choose_all(p, lease, filter, &c), any ? POOL_OK : POOL_E_PLACE);
    uint32_t from[POOL_COUNT_MAX];
    unsigned n = any ? pool_lease_slots(p, lease, from) : 0;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(pool_replace(p, from[i], c.slot[i], POOL_WHY_DRAIN, false), POOL_OK);
        check_given(c.slot[i], l->tenant);
    }
    assert_true(!any || pool_need_kept(p, lease));
}

/* A retained slot goes back to where it was, or is given up. */
static void step_retained(uint32_t slot)
{
    const pool_slot *s = &p->slot[slot];
    uint32_t slots[POOL_COUNT_MAX], owner = s->owner, place = s->place;
    if (owner == POOL_NONE) {
        assert_int_equal(pool_recover(p, slot, true), POOL_E_STATE);
        assert_int_equal(pool_discard(p, slot, POOL_WHY_DISCARD), POOL_E_STATE);
        return;
    }
    uint64_t lease = pool_lease_number(p, owner);
    if (draw(3) == 0) {
        bool works = s->state == POOL_RETAINED;
        assert_int_equal(pool_discard(p, slot, POOL_WHY_DISCARD), POOL_OK);
        assert_true(!works || s->state == POOL_WIPING);
        return;
    }
    assert_int_equal(pool_lease_slots(p, lease, slots), p->lease[owner].count);
    uint32_t now = slots[place];
    bool retain = draw(2);
    int rc = pool_recover(p, slot, retain);
    assert_int_equal(rc == POOL_OK, s->state == POOL_LEASED);
    if (rc != POOL_OK)
        return;
    check_given(slot, p->lease[owner].tenant);
    assert_int_equal(p->slot[now].owner, retain ? owner : POOL_NONE);
    (void)pool_lease_slots(p, lease, slots);
    assert_int_equal(slots[place], slot);
}

static void step_trouble(void)
{
    uint32_t slot = draw(p->slots);
    pool_other other;
    pool_slot_info now = { (uint16_t)draw(MODELS), draw(3) ? draw(5) : POOL_NONE };
    unsigned left;
    switch (draw(10)) {
    case 9:
    case 8:
        step_retained(draw(2) ? slot : draw(p->slots));
        break;
    case 7:
        step_move_all();
        break;
    case 6:
        assert_int_equal(pool_change_slot(p, slot, &now),
                         p->slot[slot].lease == POOL_NONE && p->slot[slot].owner == POOL_NONE
                             ? POOL_OK
                             : POOL_E_STATE);
        break;
    case 0:
        pool_break(p, slot, POOL_WHY_DEVICE);
        break;
    case 1:
        if (draw(4))
            pool_repair(p, slot, draw(2) ? POOL_WHY_OPERATOR : POOL_WHY_NONE);
        else
            pool_keep(p, slot);
        break;
    case 2:
        if (pool_choose_other(p, slot, NULL, &other) == POOL_OK) {
            uint32_t tenant = p->lease[p->slot[slot].lease].tenant;
            uint64_t lease = pool_lease_number(p, p->slot[slot].lease);
            bool was_kept = pool_need_kept(p, lease);
            assert_int_equal(pool_replace(p, slot, other.slot, POOL_WHY_DEVICE, draw(2)), POOL_OK);
            if (was_kept || !other.need_kept)
                assert_int_equal(pool_need_kept(p, lease), other.need_kept);
            check_given(other.slot, tenant);
            assert_int_equal(pool_replace(p, slot, other.slot, POOL_WHY_DEVICE, false),
                             POOL_E_STATE);
        }
        break;
    case 3:
        assert_int_equal(pool_drain(p, p->slot[slot].box, draw(3) == 0, &left), POOL_OK);
        break;
    case 4:
        pool_set_spares(p, (uint16_t)draw(MODELS), draw(6));
        break;
    default:
        pool_set_quota(p, draw(TENANTS), draw(60));
        break;
    }
}

static void step(void)
{
    uint32_t slot = draw(p->slots);
    switch (draw(4)) {
    case 0:
        step_lease();
        break;
    case 1:
        step_end();
        break;
    case 2:
        if (pool_wiped(p, slot, draw(5) != 0) == POOL_OK && !p->slot[slot].dirty)
            last_tenant[slot] = POOL_NONE;
        break;
    default:
        step_trouble();
        break;
    }
}

static void test_histories(void **state)
{
    (void)state;
    unsigned seen[POOL_STATES] = { 0 };
    for (uint64_t i = 0; i < rounds; i++) {
        if (i % 1000 == 0)
            fresh(BOXES, 8);
        step();
        assert_int_equal(wrong_all(), 0);
        for (unsigned m = 0; m < MODELS; m++)
            for (unsigned s = 0; s < POOL_STATES; s++)
                seen[s] += p->model[m].count[s];
    }
    for (unsigned s = 0; s < POOL_STATES; s++)
        assert_true(seen[s] > 0); /* the histories went everywhere */
}

/* The checks above see what they look for. */
static void test_control_histories(void **state)
{
    (void)state;
    fresh(BOXES, 8);
    while (p->leases < 2)
        step();
    assert_int_equal(wrong_all(), 0);
    uint32_t leased = 0, spared = 0;
    while (p->slot[leased].lease == POOL_NONE)
        leased++;
    while (p->slot[spared].state != POOL_FREE)
        spared++;
    pool_lease *l = &p->lease[p->slot[leased].lease];
    uint32_t first = l->first;
    l->first = spared; /* a slot in a lease that does not know of it */
    assert_true(wrong_owners() > 0);
    l->first = first;
    p->slot[spared].dirty = true;
    assert_int_equal(wrong_owners(), 1);
    p->slot[spared].dirty = false;
    p->model[p->slot[spared].model].count[POOL_FREE]++;
    assert_int_equal(wrong_counts(), 1);
    p->model[p->slot[spared].model].count[POOL_FREE]--;
    p->cell[p->slot[spared].box_cell].free++;
    assert_true(wrong_index() > 0);
    p->cell[p->slot[spared].box_cell].free--;
    assert_int_equal(wrong_all(), 0);
}

/* -- Against trying everything -- */

static bool fits(uint32_t subset, const uint32_t *slots, const pool_request *r)
{
    uint32_t first = POOL_NONE;
    for (unsigned i = 0; subset >> i; i++) {
        if (!(subset >> i & 1))
            continue;
        const pool_slot *s = &p->slot[slots[i]];
        if (first == POOL_NONE)
            first = slots[i];
        const pool_slot *f = &p->slot[first];
        if (r->count > 1 && r->need == POOL_SAME_BOX && s->box != f->box)
            return false;
        if (r->count > 1 && r->need == POOL_SAME_GROUP &&
            (s->group_cell != f->group_cell || s->group_cell == POOL_NONE))
            return false;
        for (unsigned j = 0; j < i; j++)
            if (subset >> j & 1 && ((r->need == POOL_SPREAD && p->slot[slots[j]].box == s->box) ||
                                    (r->apart && on_one_device(slots[i], slots[j]))))
                return false;
    }
    return true;
}

/* The sum of squares that pool_room() has above the line, without these slots. */
static unsigned squares_without(const uint32_t *taken, unsigned count, uint16_t model,
                                bool by_group)
{
    unsigned sum = 0;
    for (uint32_t i = 0; i < p->cells; i++) {
        const pool_cell *c = &p->cell[i];
        unsigned free = c->free;
        if (c->model != model || (c->parent != POOL_NONE) != by_group)
            continue;
        for (unsigned j = 0; j < count; j++)
            free -= p->slot[taken[j]].box_cell == i || p->slot[taken[j]].group_cell == i;
        sum += free * free;
    }
    return sum;
}

static unsigned bits(uint32_t x)
{
    unsigned n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}

typedef struct oracle {
    int rc;
    unsigned squares; /* of the best choice */
    unsigned beside;  /* how many can be in boxes of the peer */
} oracle;

static unsigned count_beside(uint64_t peer, const uint32_t *slots, unsigned count)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        n += is_beside(peer, slots[i]);
    return n;
}

static bool by_group_of(const pool_request *r)
{
    return r->count > 1 && r->need == POOL_SAME_GROUP;
}

static void try_everything(const pool_request *r, oracle *o)
{
    uint32_t slots[SLOTS], count = 0, taken[POOL_COUNT_MAX];
    o->squares = o->beside = 0;
    for (uint32_t i = 0; i < p->slots; i++)
        if (p->slot[i].state == POOL_FREE && p->slot[i].model == r->model && is_fit(&unfit, i) &&
            may_stand(r->tenant, r->device, r->exclusive, i))
            slots[count++] = i;
    o->rc = POOL_E_FREE;
    if (p->tenant[r->tenant].used + r->count > p->tenant[r->tenant].quota)
        o->rc = POOL_E_QUOTA;
    else if (p->host[r->host].used + r->count > p->host[r->host].capacity)
        o->rc = POOL_E_HOST;
    if (o->rc != POOL_E_FREE || count < r->count)
        return;
    o->rc = POOL_E_PLACE;
    for (uint32_t subset = 1; subset < 1u << count; subset++) {
        unsigned n = 0;
        if (bits(subset) != r->count || !fits(subset, slots, r))
            continue;
        for (unsigned i = 0; i < count; i++)
            if (subset >> i & 1)
                taken[n++] = slots[i];
        unsigned squares = squares_without(taken, n, r->model, by_group_of(r));
        if (o->rc != POOL_OK || squares > o->squares)
            o->squares = squares;
        unsigned beside = count_beside(r->peer, taken, n);
        o->beside = beside > o->beside ? beside : o->beside;
        o->rc = POOL_OK;
    }
}

/* Slots that the tenant's exclusive leases keep from others, if the choice were given to the
   request. */
static uint32_t kept_with(const pool_request *r, const pool_choice *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->slots; i++) {
        bool is_kept = false, chosen = false;
        for (uint32_t j = 0; j < p->slots; j++)
            is_kept = is_kept || (on_one_device(i, j) && lease_at(j) != POOL_NONE &&
                                  p->lease[lease_at(j)].tenant == r->tenant &&
                                  p->lease[lease_at(j)].exclusive);
        for (unsigned j = 0; j < c->count; j++) {
            chosen = chosen || c->slot[j] == i;
            is_kept = is_kept || (r->exclusive && on_one_device(i, c->slot[j]));
        }
        kept += is_kept && !chosen && lease_at(i) == POOL_NONE;
    }
    return kept;
}

/* M-178: what the policy would give without a quota is too much for it. */
static bool is_over_quota(const pool_request *r, pool_choice *c)
{
    uint32_t quota = p->tenant[r->tenant].quota;
    assert_int_equal(pool_set_quota(p, r->tenant, POOL_NONE), POOL_OK);
    int rc = pool_choose(p, r, c);
    assert_int_equal(pool_set_quota(p, r->tenant, quota), POOL_OK);
    return rc == POOL_OK && p->tenant[r->tenant].used + r->count + kept_with(r, c) > quota;
}

static void test_choices_equal_oracle(void **state)
{
    (void)state;
    unsigned seen[16] = { 0 }, beside = 0, shared = 0, kept = 0, whole = 0;
    for (uint64_t i = 0; i < rounds / 10; i++) {
        pool_request r;
        pool_choice c;
        oracle o;
        if (i % 50 == 0)
            fresh(5, 4);
        step();
        any_request(&r, 5);
        if (r.exclusive) /* so few that what it keeps from others may be too many */
            assert_int_equal(
                pool_set_quota(p, r.tenant, p->tenant[r.tenant].used + r.count + draw(3)), POOL_OK);
        try_everything(&r, &o);
        int rc = pool_choose(p, &r, &c);
        if (o.rc == POOL_OK && rc == POOL_E_QUOTA) {
            assert_true(is_over_quota(&r, &c));
            r.device = r.device == POOL_DEVICE_ANY ? POOL_DEVICE_WHOLE : r.device;
            assert_int_not_equal(pool_choose(p, &r, &c), POOL_OK);
            kept++;
            continue;
        }
        pool_choice unlimited;
        bool second = rc == POOL_OK && is_over_quota(&r, &unlimited); /* whole devices alone */
        whole += second;
        assert_int_equal(rc, o.rc);
        seen[-rc]++;
        if (rc != POOL_OK)
            continue;
        assert_true(p->tenant[r.tenant].used + r.count + kept_with(&r, &c) <=
                        p->tenant[r.tenant].quota ||
                    (!r.exclusive && !kept_with(&r, &c)));
        uint32_t all[SLOTS];
        for (unsigned j = 0; j < c.count; j++) {
            all[j] = c.slot[j];
            assert_int_equal(p->slot[c.slot[j]].state, POOL_FREE);
            assert_int_equal(p->slot[c.slot[j]].model, r.model);
            assert_true(is_fit(&unfit, c.slot[j]));
        }
        assert_int_equal(c.count, r.count);
        assert_true(fits((1u << c.count) - 1, all, &r));
        unsigned squares = squares_without(all, c.count, r.model, by_group_of(&r));
        bool plain = !r.filter && !r.device && !r.exclusive && !r.apart && !p->exclusive;
        assert_true(plain && !o.beside ? squares == o.squares : squares <= o.squares);
        unsigned by_peer = count_beside(r.peer, all, c.count);
        assert_true(second ? by_peer <= o.beside && r.exclusive : by_peer == o.beside);
        for (unsigned j = 0; j < c.count; j++)
            assert_true(may_stand(r.tenant, r.device, r.exclusive, c.slot[j]));
        beside += o.beside > 0;
        shared += (r.exclusive || r.apart || r.device) && p->slot[c.slot[0]].device;
    }
    assert_true(beside && shared && kept && whole);
    assert_true(seen[0] && seen[-POOL_E_QUOTA] && seen[-POOL_E_HOST] && seen[-POOL_E_FREE] &&
                seen[-POOL_E_PLACE]);
}

/* -- Against first fit, on pools that are too large to try everything -- */

static bool first_fit(const pool_request *r, uint32_t *out)
{
    for (uint32_t i = 0; i < p->slots; i++) {
        unsigned n = 0;
        for (uint32_t j = i; j < p->slots && n < r->count; j++) {
            const pool_slot *s = &p->slot[j];
            bool bad = s->state != POOL_FREE || s->model != r->model;
            bad = bad || (r->need == POOL_SAME_BOX && n && s->box != p->slot[out[0]].box);
            bad = bad || (r->need == POOL_SAME_GROUP && r->count > 1 &&
                          (s->group_cell == POOL_NONE ||
                           (n && s->group_cell != p->slot[out[0]].group_cell)));
            for (unsigned k = 0; k < n && r->need == POOL_SPREAD; k++)
                bad = bad || s->box == p->slot[out[k]].box;
            if (!bad)
                out[n++] = j;
        }
        if (n == r->count)
            return true;
    }
    return false;
}

static void test_never_worse_than_first_fit(void **state)
{
    (void)state;
    unsigned better = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        pool_request r;
        pool_choice c;
        uint32_t first[POOL_COUNT_MAX];
        if (i % 300 == 0)
            fresh(BOXES, 8);
        step();
        any_request(&r, 8);
        r.filter = NULL;
        r.device = POOL_DEVICE_ANY;
        r.exclusive = r.apart = false;
        r.peer = 0;
        if (p->exclusive || pool_choose(p, &r, &c) != POOL_OK)
            continue;
        assert_true(first_fit(&r, first));
        unsigned ours = squares_without(c.slot, c.count, r.model, by_group_of(&r));
        unsigned theirs = squares_without(first, r.count, r.model, by_group_of(&r));
        assert_true(ours >= theirs);
        better += ours > theirs;
    }
    assert_true(better > 0); /* control: they are not the same choice */
}

/* Does `other` in the place of `slot` stand where the lease asked for it?  A spread lease may have
   lost its need elsewhere before. */
static bool good_place(uint32_t slot, uint32_t other)
{
    uint32_t slots[POOL_COUNT_MAX];
    const pool_lease *l = &p->lease[p->slot[slot].lease];
    pool_request r = { .count = l->count, .need = l->need };
    unsigned n = pool_lease_slots(p, pool_lease_number(p, p->slot[slot].lease), slots);
    bool alone = true, apart = true;
    for (unsigned i = 0; i < n; i++) {
        alone = alone && (slots[i] == slot || p->slot[slots[i]].box != p->slot[other].box);
        apart = apart && (slots[i] == slot || !l->apart || !on_one_device(slots[i], other));
        if (slots[i] == slot)
            slots[i] = other;
    }
    return apart && (r.need == POOL_SPREAD ? alone : fits((1u << n) - 1, slots, &r));
}

/* Among slots that are as good otherwise, the group of the slot that is replaced comes first; shown
   for leases of one slot, where nothing else is near. */
static bool in_nearest(uint32_t slot, uint32_t other)
{
    const pool_slot *a = &p->slot[slot], *b = &p->slot[other];
    bool group_there = false;
    if (p->lease[a->lease].count > 1 || a->group_cell == POOL_NONE)
        return true;
    for (uint32_t i = 0; i < p->slots; i++)
        group_there =
            group_there || (p->slot[i].group_cell == a->group_cell && p->slot[i].state == b->state);
    return !group_there || b->group_cell == a->group_cell;
}

/* The replacement is what a look at every slot finds best. */
static void test_replacement_equals_scan(void **state)
{
    (void)state;
    unsigned kept = 0, lost = 0, none = 0, near = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        pool_other other;
        uint32_t slot;
        if (i % 300 == 0)
            fresh(BOXES, 8);
        step();
        slot = draw(p->slots);
        if (p->slot[slot].lease == POOL_NONE) {
            assert_int_equal(pool_choose_other(p, slot, NULL, &other), POOL_E_STATE);
            continue;
        }
        const pool_filter *filter = any_filter();
        const pool_lease *l = &p->lease[p->slot[slot].lease];
        bool peer = pool_find_lease(p, l->peer), beside = false;
        bool can_keep = false, spare = false, spare_keeps = false, any = false;
        for (uint32_t j = 0; j < p->slots; j++) {
            const pool_slot *s = &p->slot[j];
            if (s->model != p->slot[slot].model ||
                (s->state != POOL_FREE && s->state != POOL_SPARE) || !is_fit(&unfit, j) ||
                !may_have(l, j))
                continue;
            any = true;
            spare = spare || s->state == POOL_SPARE;
            can_keep = can_keep || good_place(slot, j);
            beside = beside || (good_place(slot, j) && is_beside(l->peer, j));
            spare_keeps = spare_keeps || (s->state == POOL_SPARE && good_place(slot, j));
        }
        int rc = pool_choose_other(p, slot, filter, &other);
        assert_int_equal(rc, any ? POOL_OK : POOL_E_FREE);
        none += !any;
        if (!any)
            continue;
        assert_int_equal(other.need_kept, can_keep);
        assert_true(!can_keep || is_beside(l->peer, other.slot) == beside);
        assert_true(peer ||
                    (p->slot[other.slot].state == POOL_SPARE) == (can_keep ? spare_keeps : spare));
        assert_true(is_fit(&unfit, other.slot) && may_have(l, other.slot));
        assert_true(filter || peer || with_devices || in_nearest(slot, other.slot));
        near += peer && beside;
        kept += other.need_kept;
        lost += !other.need_kept;
    }
    assert_true(kept && lost && none && near);
}

/* -- After a restart -- */

/* A new pool with what a store would have of the old one, which is returned. */
static pool *restart(void)
{
    pool *old = p;
    size_t bytes = pool_bytes(&limits);
    uint32_t n;
    unsigned left;
    p = pool_init(malloc(bytes), bytes, &limits);
    assert_non_null(p);
    for (uint32_t i = 0; i < old->boxes; i++) {
        const pool_box *b = &old->box[i];
        pool_slot_info info[POOL_BOX_SLOTS_MAX];
        for (unsigned j = 0; j < b->slots; j++) {
            const pool_slot *s = &old->slot[b->first_slot + j];
            info[j].model = s->model;
            info[j].group = s->group_cell == POOL_NONE ? POOL_NONE : old->cell[s->group_cell].label;
        }
        assert_int_equal(pool_add_box(p, info, b->slots, &n), POOL_OK);
        assert_int_equal(pool_drain(p, i, b->draining, &left), POOL_OK);
        for (unsigned j = 0; j < b->slots; j++)
            assert_int_equal(
                pool_set_device(p, b->first_slot + j, old->slot[b->first_slot + j].device),
                POOL_OK);
    }
    for (uint32_t i = 0; i < HOSTS; i++)
        assert_int_equal(pool_add_host(p, old->host[i].capacity, &n), POOL_OK);
    for (uint32_t i = 0; i < TENANTS; i++)
        assert_int_equal(pool_add_tenant(p, old->tenant[i].quota, &n), POOL_OK);
    for (uint32_t i = 0; i < old->slots; i++)
        assert_int_equal(pool_restore_slot(p, i, &old->slot[i]), POOL_OK);
    for (uint32_t i = 0; i < LEASES; i++) {
        uint64_t lease = pool_lease_number(old, i);
        const pool_lease *l = &old->lease[i];
        pool_request r = { l->tenant, l->host,   l->model,     l->count, l->need,
                           NULL,      l->device, l->exclusive, l->apart, l->peer };
        pool_choice c = { l->count, { 0 } };
        if (!lease)
            continue;
        pool_lease_slots(old, lease, c.slot);
        assert_int_equal(pool_restore_lease(p, lease, &r, &c), POOL_OK);
        assert_int_equal(pool_restore_lease(p, lease, &r, &c), POOL_E_STATE);
        assert_int_equal(pool_restore_lease(p, lease + 1, &r, &c) == POOL_OK, false);
    }
    for (uint32_t i = 0; i < old->slots; i++) {
        const pool_slot *s = &old->slot[i];
        uint64_t owner = s->owner == POOL_NONE ? 0 : pool_lease_number(old, s->owner);
        unsigned places = owner ? p->lease[s->owner].count : 0;
        assert_int_equal(pool_restore_owner(p, i, owner, places), POOL_E_STATE);
        if (owner) {
            assert_int_equal(pool_restore_owner(p, i, owner, s->place), POOL_OK);
            assert_int_equal(pool_restore_owner(p, i, owner, s->place), POOL_E_STATE);
        }
    }
    for (uint32_t i = 0; i < MODELS; i++)
        p->model[i].spares_wanted = old->model[i].spares_wanted;
    pool_raise_serial(p, old->serial);
    pool_restored(p);
    return old;
}

/* Which of the free slots are spares may differ, all else may not. */
static bool same_slot(const pool_slot *a, const pool_slot *b)
{
    unsigned x = a->state == POOL_SPARE ? POOL_FREE : a->state;
    unsigned y = b->state == POOL_SPARE ? POOL_FREE : b->state;
    return x == y && a->reason == b->reason && a->epoch == b->epoch && a->lease == b->lease &&
           a->dirty == b->dirty && a->model == b->model && a->box == b->box &&
           a->owner == b->owner && a->place == b->place && a->wipe == b->wipe;
}

static void test_restart_brings_everything_back(void **state)
{
    (void)state;
    unsigned leases = 0;
    for (uint64_t i = 0; i < rounds / 10; i++) {
        if (i % 100 == 0)
            fresh(BOXES, 8);
        for (unsigned j = 0; j < 5; j++)
            step();
        pool *old = restart();
        assert_int_equal(wrong_all(), 0);
        assert_true(p->epoch == old->epoch && p->leases == old->leases);
        for (uint32_t j = 0; j < p->slots; j++)
            assert_true(same_slot(&p->slot[j], &old->slot[j]));
        for (uint32_t j = 0; j < LEASES; j++) {
            assert_true(pool_lease_number(p, j) == pool_lease_number(old, j));
            assert_int_equal(p->lease[j].host,
                             p->lease[j].count ? old->lease[j].host : p->lease[j].host);
            assert_true(!p->lease[j].count || (p->lease[j].exclusive == old->lease[j].exclusive &&
                                               p->lease[j].apart == old->lease[j].apart &&
                                               p->lease[j].device == old->lease[j].device &&
                                               p->lease[j].peer == old->lease[j].peer));
        }
        leases += p->leases;
        free(old);
    }
    assert_true(leases > 0);
}

/* Records that no pool ever wrote are refused; a lost lease gives its slots no free way back. */
static void test_restore_refuses(void **state)
{
    (void)state;
    pool_slot was = { .state = POOL_LEASED, .dirty = true, .epoch = 7 };
    pool_request r = { .count = 1 };
    pool_choice c = { 1, { 0 } };
    fresh(1, 1);
    r.model = p->slot[0].model;
    uint64_t number = (uint64_t)7 << 32;
    assert_int_equal(pool_restore_slot(p, p->slots, &was), POOL_E_UNKNOWN);
    assert_int_equal(pool_restore_lease(p, number, &r, &c), POOL_E_STATE); /* it is free */
    was.state = POOL_FREE; /* with a tenant's data */
    assert_int_equal(pool_restore_slot(p, 0, &was), POOL_E_ARG);
    was.state = POOL_STATES;
    assert_int_equal(pool_restore_slot(p, 0, &was), POOL_E_ARG);
    was.state = POOL_LEASED;
    assert_int_equal(pool_restore_slot(p, 0, &was), POOL_OK);
    assert_int_equal(pool_restore_slot(p, 0, &was), POOL_E_STATE);
    assert_int_equal(pool_restore_lease(p, 7, &r, &c), POOL_E_ARG);
    assert_int_equal(pool_restore_lease(p, number | LEASES, &r, &c), POOL_E_ROOM);
    r.tenant = TENANTS;
    assert_int_equal(pool_restore_lease(p, number, &r, &c), POOL_E_UNKNOWN);
    pool_restored(p);                                     /* the lease did not come */
    assert_int_equal(p->slot[0].state, POOL_QUARANTINED); /* M-98 */
    assert_int_equal(wrong_all(), 0);
    assert_int_equal(p->epoch, 7);
}

/* No more are retained than the lease has slots, but a store may name more. */
static void test_list_of_retained_is_bounded(void **state)
{
    (void)state;
    pool_slot_info info[SLOTS / 2];
    pool_request r = { .count = 1 };
    pool_choice c;
    uint32_t n, slot = 0, out[POOL_COUNT_MAX + 1];
    uint64_t lease;
    fresh(0, 1);
    for (unsigned i = 0; i < SLOTS / 2; i++)
        info[i] = (pool_slot_info){ 0, POOL_NONE };
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pool_add_box(p, info, SLOTS / 2, &n), POOL_OK);
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
    for (unsigned i = 0; i <= POOL_COUNT_MAX; i++) {
        pool_other other;
        slot = pool_find_lease(p, lease)->first;
        assert_int_equal(pool_choose_other(p, slot, NULL, &other), POOL_OK);
        assert_int_equal(pool_replace(p, slot, other.slot, POOL_WHY_DEVICE, true), POOL_OK);
    }
    out[POOL_COUNT_MAX] = POOL_NONE;
    assert_int_equal(pool_find_lease(p, lease)->retained_count, POOL_COUNT_MAX + 1);
    assert_int_equal(pool_lease_retained(p, lease, out), POOL_COUNT_MAX);
    assert_int_equal(out[0], slot);
    assert_int_equal(out[POOL_COUNT_MAX], POOL_NONE);
}

/* -- Functions of devices -- */

/* A box of four whole devices' slots and two devices of three functions each: slots 1, 5, 6, 10 are
   whole, 2..4 and 7..9 functions. */
static void functions_box(void)
{
    static const uint16_t device[10] = { 0, 2, 2, 2, 0, 0, 7, 7, 7, 0 };
    pool_slot_info info[10];
    uint32_t n;
    fresh(0, 1);
    for (unsigned i = 0; i < 10; i++)
        info[i] = (pool_slot_info){ 0, POOL_NONE };
    assert_int_equal(pool_add_box(p, info, 10, &n), POOL_OK);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(pool_set_device(p, i, device[i]), POOL_OK);
    for (unsigned i = 0; i < TENANTS; i++)
        assert_int_equal(pool_set_quota(p, i, POOL_NONE), POOL_OK);
    for (unsigned i = 0; i < HOSTS; i++)
        assert_int_equal(pool_set_capacity(p, i, 100), POOL_OK);
}

/* The number of the slot that a lease of this tenant gets, from 1; 0: none. */
static unsigned lend(uint32_t tenant, unsigned device, bool exclusive, bool apart)
{
    pool_request r = { .tenant = tenant,
                       .count = 1,
                       .device = (uint8_t)device,
                       .exclusive = exclusive,
                       .apart = apart };
    pool_choice c;
    uint64_t lease;
    if (pool_choose(p, &r, &c) != POOL_OK)
        return 0;
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
    return c.slot[0] + 1;
}

/* M-159: a tenant's functions are together, then those of devices that are in use, and whole
   devices stay; apart, the device with the fewest. */
static void test_m159_functions_are_packed(void **state)
{
    (void)state;
    functions_box();
    assert_int_equal(lend(0, POOL_DEVICE_ANY, false, false), 2);
    assert_int_equal(lend(0, POOL_DEVICE_ANY, false, false), 3);
    assert_int_equal(lend(1, POOL_DEVICE_ANY, false, false), 4);
    assert_int_equal(lend(1, POOL_DEVICE_ANY, false, false), 7);
    assert_int_equal(lend(1, POOL_DEVICE_WHOLE, false, false), 1);
    assert_int_equal(lend(0, POOL_DEVICE_ANY, false, false), 8);
    assert_int_equal(lend(0, POOL_DEVICE_ANY, false, false), 9);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 0);
    assert_int_equal(lend(0, POOL_DEVICE_ANY, false, false), 5);
    functions_box();
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, true), 2);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, true), 7);
    assert_int_equal(lend(1, POOL_DEVICE_FUNCTION, false, true), 3);
    functions_box(); /* within one lease it is a must */
    pool_request r = { .count = 3, .device = POOL_DEVICE_FUNCTION, .apart = true };
    pool_choice c;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_PLACE);
    r.count = 2;
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    assert_false(on_one_device(c.slot[0], c.slot[1]));
    r.apart = false;
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    assert_true(on_one_device(c.slot[0], c.slot[1]));
}

/* M-183: a lease that moves as a whole goes to its peer's box, where that has room, though it has
   more free slots than another one; the control is a lease without a peer. */
static void test_m183_all_move_to_the_peer(void **state)
{
    pool_slot_info info[8];
    uint32_t box[4];
    (void)state;
    fresh(0, 1);
    for (unsigned i = 0; i < 8; i++)
        info[i] = (pool_slot_info){ 0, POOL_NONE };
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pool_add_box(p, info, i == 0 ? 8 : 2, &box[i]), POOL_OK);
    assert_int_equal(pool_set_quota(p, 0, POOL_NONE), POOL_OK);
    assert_int_equal(pool_set_capacity(p, 0, 100), POOL_OK);
    pool_request near = { .count = 3, .need = POOL_SAME_BOX }; /* in box 0 alone */
    pool_request r = { .count = 2, .need = POOL_SAME_BOX };
    pool_choice c;
    uint64_t peer, lease;
    assert_int_equal(pool_choose(p, &near, &c), POOL_OK);
    assert_int_equal(pool_grant(p, &near, &c, &peer), POOL_OK);
    for (unsigned with = 0; with < 2; with++) {
        assert_int_equal(pool_choose(p, &r, &c), POOL_OK); /* before it has a peer */
        assert_int_not_equal(p->slot[c.slot[0]].box, box[0]);
        r.peer = with ? peer : 0;
        assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
        r.peer = 0;
        assert_int_equal(pool_choose_all(p, lease, NULL, &c), POOL_OK);
        assert_int_equal(c.count, 2);
        assert_int_equal(p->slot[c.slot[0]].box == box[0], with);
    }
}

/* M-158: neither beside another tenant's function, nor another tenant's beside it. */
static void test_m158_exclusive(void **state)
{
    (void)state;
    functions_box();
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 2);
    assert_int_equal(lend(1, POOL_DEVICE_FUNCTION, true, false), 7); /* not beside tenant 0's */
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 3);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 4);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 0); /* 8 and 9 are free */
    assert_int_equal(lend(2, POOL_DEVICE_FUNCTION, true, false), 0);
    assert_int_equal(lend(1, POOL_DEVICE_FUNCTION, false, false), 8); /* its own */
    assert_int_equal(wrong_all(), 0);
    uint64_t lease = pool_lease_number(p, p->slot[6].lease);
    assert_int_equal(pool_release(p, lease, POOL_WHY_RELEASE), POOL_OK);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 9);
    assert_int_equal(pool_set_device(p, 0, 2), POOL_E_ARG); /* the first function is before it */
    assert_int_equal(pool_set_device(p, 10, 0), POOL_E_UNKNOWN);
}

/* M-178: what an exclusive lease keeps from others counts; the tenant's own further function of the
   device costs no more. */
static void test_m178_what_is_kept_from_others_counts(void **state)
{
    (void)state;
    functions_box();
    assert_int_equal(pool_set_quota(p, 0, 4), POOL_OK);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, true, false), 2); /* of 2, 3, 4 */
    assert_int_equal(p->tenant[0].used, 1);
    assert_int_equal(pool_used(p, 0), 3);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, true), 7);
    assert_int_equal(pool_used(p, 0), 4);
    assert_int_equal(lend(0, POOL_DEVICE_WHOLE, false, false), 0);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 3);
    assert_int_equal(pool_used(p, 0), 4);
    assert_int_equal(lend(1, POOL_DEVICE_FUNCTION, false, false), 8); /* others, as before */
    uint64_t lease = pool_lease_number(p, p->slot[1].lease);
    assert_int_equal(pool_release(p, lease, POOL_WHY_RELEASE), POOL_OK);
    assert_int_equal(pool_used(p, 0), 2);
    functions_box(); /* one exclusive slot is as many as its device has */
    assert_int_equal(pool_set_quota(p, 0, 2), POOL_OK);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, true, false), 0);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 2); /* the controls */
    assert_int_equal(lend(0, POOL_DEVICE_WHOLE, true, false), 1);
    functions_box(); /* whole devices, where functions would be too many */
    assert_int_equal(pool_set_quota(p, 0, 2), POOL_OK);
    assert_int_equal(lend(0, POOL_DEVICE_ANY, true, false), 1);
    assert_int_equal(pool_used(p, 0), 1);
    assert_int_equal(lend(0, POOL_DEVICE_ANY, false, false), 2); /* the control: a function */
}

/* Nor beside one whose user is not known: its box has a lease that the tables do not have, also
   where they have another one there, of the tenant that asks; or its lease is over, and it is not
   wiped. */
static void test_m158_exclusive_beside_a_stranger(void **state)
{
    (void)state;
    functions_box();
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, false, false), 2);
    assert_int_equal(pool_taint(p, 1, 100, true), POOL_OK);
    assert_int_equal(p->lease[p->slot[1].lease].tenant, 0);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, true, false), 7); /* not 3, of its own device */
    uint64_t lease = pool_lease_number(p, p->slot[6].lease);
    assert_int_equal(pool_release(p, lease, POOL_WHY_RELEASE), POOL_OK);
    assert_int_equal(p->slot[6].state, POOL_WIPING);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, true, false), 0);
    assert_int_equal(lend(1, POOL_DEVICE_FUNCTION, false, false), 3); /* the control */
    assert_int_equal(pool_wiped(p, 6, true), POOL_OK);
    assert_int_equal(lend(0, POOL_DEVICE_FUNCTION, true, false), 7);
}

/* -- Numbers and errors -- */

/* Of `mean` expected failures, the chance that there are more than `spares`. */
static double chance_of_more(double mean, uint32_t spares)
{
    double term = exp(-mean), sum = 0;
    for (uint32_t i = 0; i <= spares; i++) {
        sum += term;
        term *= mean / (i + 1);
    }
    return 1 - sum;
}

static void test_spares_by_failure_rate(void **state)
{
    (void)state;
    static const double rates[] = { 0.01, 0.05, 0.2 }, risks[] = { 0.1, 0.01, 0.0001 };
    for (uint32_t devices = 8; devices <= 8192; devices *= 4)
        for (unsigned i = 0; i < 9; i++) {
            uint32_t n = pool_spares_for(devices, rates[i / 3], 7, risks[i % 3]);
            double mean = devices * rates[i / 3] * 7 / 365.25;
            assert_true(chance_of_more(mean, n) <= risks[i % 3]);
            assert_true(n == 0 || chance_of_more(mean, n - 1) > risks[i % 3]);
        }
    assert_int_equal(pool_spares_for(512, 0, 7, 0.01), 0);
    assert_int_equal(pool_spares_for(512, 0.05, 7, 1), 0);
    assert_int_equal(pool_spares_for(10, 1000, 365, 0.01), 10);    /* never more than there are */
    assert_true(pool_spares_for(1u << 24, 0.05, 7, 0.01) > 16077); /* where exp(-mean) is 0 */
    assert_true(pool_spares_for(1u << 24, 0.05, 7, 0.01) < 16077 * 2); /* 16,077 are expected */
}

static void test_limits_and_errors(void **state)
{
    (void)state;
    pool_limits l = limits;
    pool_slot_info info[POOL_BOX_SLOTS_MAX + 1] = { { 0, POOL_NONE } };
    pool_request r = { .count = 1 };
    pool_choice c;
    pool_other other;
    unsigned left;
    uint32_t n;
    uint64_t lease;
    l.leases = 0;
    assert_int_equal(pool_bytes(&l), 0);
    fresh(1, 1);
    assert_null(pool_init(p, pool_bytes(&limits) - 1, &limits));
    assert_int_equal(pool_add_box(p, info, 0, &n), POOL_E_ARG);
    assert_int_equal(pool_add_box(p, info, POOL_BOX_SLOTS_MAX + 1, &n), POOL_E_ARG);
    info[0].model = MODELS;
    assert_int_equal(pool_add_box(p, info, 1, &n), POOL_E_UNKNOWN);
    info[0].model = 0;
    assert_int_equal(pool_add_host(p, 1, &n), POOL_E_ROOM);
    assert_int_equal(pool_add_tenant(p, 1, &n), POOL_E_ROOM);
    r.count = 0;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_ARG);
    r.count = POOL_COUNT_MAX + 1;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_ARG);
    r.count = 1;
    r.need = POOL_NEEDS;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_ARG);
    r.need = POOL_ANY;
    r.host = HOSTS;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_UNKNOWN);
    r.host = 0;
    r.tenant = TENANTS;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_UNKNOWN);
    r.tenant = 0;
    r.model = MODELS;
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_UNKNOWN);
    r.model = p->slot[0].model;
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    c.slot[0] = p->slots; /* a choice that was not made here */
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_E_STATE);
    assert_int_equal(pool_choose_other(p, p->slots, NULL, &other), POOL_E_UNKNOWN);
    assert_int_equal(pool_replace(p, 0, p->slots, POOL_WHY_DEVICE, false), POOL_E_UNKNOWN);
    assert_int_equal(pool_break(p, p->slots, POOL_WHY_DEVICE), POOL_E_UNKNOWN);
    assert_int_equal(pool_repair(p, p->slots, POOL_WHY_OPERATOR), POOL_E_UNKNOWN);
    assert_int_equal(pool_keep(p, p->slots), POOL_E_UNKNOWN);
    assert_int_equal(pool_wiped(p, p->slots, true), POOL_E_UNKNOWN);
    assert_int_equal(pool_drain(p, BOXES, true, &left), POOL_E_UNKNOWN);
    assert_int_equal(pool_set_spares(p, MODELS, 1), POOL_E_UNKNOWN);
    assert_int_equal(pool_set_quota(p, TENANTS, 1), POOL_E_UNKNOWN);
    assert_int_equal(pool_release(p, 1, POOL_WHY_RELEASE), POOL_E_UNKNOWN);
    assert_int_equal(wrong_all(), 0);
    for (int rc = -9; rc <= 0; rc++)
        assert_int_equal(strcmp(pool_error_text(rc), "unknown error") == 0, rc == -9);
}

/* Why a device was given up, or a slot taken out, stays with the slot. */
static void test_reasons(void **state)
{
    (void)state;
    pool_slot_info info[2] = { { 0, 0 }, { 0, 0 } };
    pool_request r = { .count = 1 };
    pool_choice c;
    pool_other other;
    uint32_t n;
    uint64_t lease;
    fresh(1, 1);
    assert_int_equal(pool_add_box(p, info, 2, &n), POOL_OK);
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
    assert_int_equal(pool_break(p, c.slot[0], POOL_WHY_BOX), POOL_OK);
    assert_int_equal(p->slot[c.slot[0]].reason, POOL_WHY_BOX);
    assert_int_equal(pool_choose_other(p, c.slot[0], NULL, &other), POOL_OK);
    assert_int_equal(pool_replace(p, c.slot[0], other.slot, POOL_WHY_DEVICE, false), POOL_OK);
    assert_int_equal(p->slot[c.slot[0]].state, POOL_BROKEN);
    assert_int_equal(p->slot[c.slot[0]].reason, POOL_WHY_DEVICE);
    assert_int_equal(pool_release(p, lease, POOL_WHY_RELEASE), POOL_OK);
    assert_int_equal(pool_wiped(p, other.slot, false), POOL_OK);
    assert_int_equal(p->slot[other.slot].state, POOL_QUARANTINED);
    assert_int_equal(p->slot[other.slot].reason, POOL_WHY_WIPE);
    assert_string_equal(pool_state_name(POOL_QUARANTINED), "quarantined");
    assert_string_equal(pool_reason_name(POOL_WHY_WIPE), "wipe");
    assert_string_equal(pool_state_name(POOL_STATES), pool_reason_name(POOL_REASONS));
}

/* A slot that turns out to have been lent is no one's before it is wiped, or repaired; and epochs
   go on above what others gave. */
static void test_taint(void **state)
{
    pool_request r = { .count = 1 };
    pool_choice c;
    uint64_t lease;
    (void)state;
    fresh(2, 4);
    r.model = p->slot[0].model;
    uint32_t of_model = p->model[r.model].count[POOL_FREE];
    assert_int_equal(pool_taint(p, p->slots, 1, false), POOL_E_UNKNOWN);
    assert_int_equal(pool_taint(p, 0, 70, false), POOL_OK);
    assert_int_equal(p->slot[0].state, POOL_WIPING);
    assert_true(p->slot[0].dirty && p->epoch == 70);
    assert_int_equal(pool_taint(p, 0, 69, false), POOL_E_STATE);
    assert_int_equal(pool_taint(p, 0, 80, true), POOL_OK);
    assert_int_equal(p->slot[0].state, POOL_QUARANTINED);
    assert_int_equal(p->model[r.model].count[POOL_FREE], of_model - 1);
    assert_int_equal(pool_repair(p, 0, POOL_WHY_OPERATOR), POOL_OK);
    assert_int_equal(p->slot[0].state, POOL_WIPING);
    assert_int_equal(pool_wiped(p, 0, true), POOL_OK);
    pool_raise_epoch(p, 90);
    pool_raise_epoch(p, 5);
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
    assert_int_equal(p->slot[c.slot[0]].epoch, 91);
    assert_int_equal(pool_set_capacity(p, 0, 0), POOL_E_STATE);
    assert_int_equal(pool_set_capacity(p, p->hosts, 1), POOL_E_UNKNOWN);
    assert_int_equal(pool_set_capacity(p, 0, 1), POOL_OK);
    assert_int_equal(pool_choose(p, &r, &c), POOL_E_HOST);
    assert_int_equal(pool_taint(p, c.slot[0], 99, false), POOL_E_STATE);
    assert_int_equal(pool_taint(p, c.slot[0], 99, true), POOL_OK);
    assert_int_equal(p->slot[c.slot[0]].reason, POOL_WHY_FOREIGN);
    assert_int_equal(pool_break(p, c.slot[0], POOL_WHY_OPERATOR), POOL_E_STATE);
    assert_int_equal(pool_repair(p, c.slot[0], POOL_WHY_OPERATOR), POOL_E_STATE);
    assert_int_equal(pool_keep(p, c.slot[0]), POOL_OK); /* what it has is the lease's */
    assert_int_equal(p->slot[c.slot[0]].state, POOL_LEASED);
    assert_int_equal(pool_keep(p, c.slot[0]), POOL_E_STATE);
    assert_int_equal(pool_taint(p, c.slot[0], 99, true), POOL_OK);
    assert_int_equal(pool_release(p, lease, POOL_WHY_RELEASE), POOL_OK);
    assert_int_equal(p->slot[c.slot[0]].state, POOL_QUARANTINED);
    assert_int_equal(pool_keep(p, c.slot[0]), POOL_E_STATE); /* of none */
    assert_int_equal(pool_repair(p, c.slot[0], POOL_WHY_OPERATOR), POOL_OK);
    assert_int_equal(p->slot[c.slot[0]].state, POOL_WIPING);
}

static void number(const char *name, uint64_t *value)
{
    const char *text = getenv(name);
    if (text)
        *value = strtoull(text, NULL, 0);
}

/* -- Large boxes -- */

enum { LARGE_BOXES = 12, LARGE_SLOTS = LARGE_BOXES * POOL_BOX_SLOTS_MAX, LARGE_GROUP = 100 };

static unsigned free_in(uint32_t box, uint32_t group_cell)
{
    unsigned n = 0;
    for (uint32_t i = p->box[box].first_slot; i < p->box[box].first_slot + p->box[box].slots; i++)
        n += p->slot[i].state == POOL_FREE &&
             (group_cell == POOL_NONE || p->slot[i].group_cell == group_cell);
    return n;
}

/* No box, or group, that has enough has fewer free slots than what was chosen; of groups with as
   many, no box has fewer. */
static void check_least(const pool_request *r, const pool_choice *c)
{
    const pool_slot *first = &p->slot[c->slot[0]];
    bool group = r->need == POOL_SAME_GROUP;
    unsigned had = free_in(first->box, group ? first->group_cell : POOL_NONE);
    for (uint32_t i = 0; i < p->slots; i++) {
        const pool_slot *s = &p->slot[i];
        if (i != p->box[s->box].first_slot && !(group && i % LARGE_GROUP == 0))
            continue;
        unsigned has = free_in(s->box, group ? s->group_cell : POOL_NONE);
        assert_true(has < r->count || had <= has);
        if (group && has == had)
            assert_true(free_in(first->box, POOL_NONE) <= free_in(s->box, POOL_NONE));
    }
}

/* One of each of the boxes with the least free. */
static void check_spread(const pool_choice *c)
{
    bool in[LARGE_BOXES] = { false };
    unsigned most = 0;
    for (unsigned i = 0; i < c->count; i++) {
        uint32_t box = p->slot[c->slot[i]].box;
        assert_false(in[box]);
        in[box] = true;
        most = free_in(box, POOL_NONE) > most ? free_in(box, POOL_NONE) : most;
    }
    for (uint32_t i = 0; i < p->boxes; i++)
        assert_true(in[i] || !free_in(i, POOL_NONE) || free_in(i, POOL_NONE) >= most);
}

static void test_boxes_of_1024_slots(void **state)
{
    (void)state;
    static pool_slot_info info[POOL_BOX_SLOTS_MAX];
    const pool_limits large = { LARGE_SLOTS, LARGE_BOXES, 1, 1, LARGE_SLOTS, 1 };
    size_t bytes = pool_bytes(&large);
    uint32_t at;
    free(p);
    p = pool_init(malloc(bytes), bytes, &large);
    for (unsigned b = 0; b < LARGE_BOXES; b++) {
        unsigned count = b ? 40 + draw(POOL_BOX_SLOTS_MAX - 40) : POOL_BOX_SLOTS_MAX;
        for (unsigned i = 0; i < count; i++)
            info[i] = (pool_slot_info){ 0, (p->slots + i) / LARGE_GROUP };
        assert_int_equal(pool_add_box(p, info, count, &at), POOL_OK);
    }
    assert_int_equal(pool_add_box(p, info, POOL_BOX_SLOTS_MAX + 1, &at), POOL_E_ARG);
    assert_int_equal(pool_add_host(p, LARGE_SLOTS, &at), POOL_OK);
    assert_int_equal(pool_add_tenant(p, POOL_NONE, &at), POOL_OK);
    for (unsigned i = 0; i < 600; i++) {
        pool_request r = { .count = (uint8_t)(1 + draw(i % 3 ? 64 : LARGE_BOXES)),
                           .need = (uint8_t)(i % 3 ? 1 + draw(2) : POOL_SPREAD) };
        pool_choice c;
        uint64_t lease;
        if (pool_choose(p, &r, &c) != POOL_OK)
            continue;
        assert_int_equal(c.count, r.count);
        if (r.count > 1 && r.need == POOL_SPREAD)
            check_spread(&c);
        else if (r.count > 1)
            check_least(&r, &c);
        assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
        if (draw(3) == 0) {
            for (unsigned j = 0; j < c.count; j++)
                p->slot[c.slot[j]].dirty = false;
            assert_int_equal(pool_release(p, lease, POOL_WHY_RELEASE), POOL_OK);
            for (unsigned j = 0; j < c.count; j++)
                assert_int_equal(pool_wiped(p, c.slot[j], true), POOL_OK);
        }
    }
}

static unsigned asked;

static bool none_fits(const void *user, uint32_t slot)
{
    (void)user;
    (void)slot;
    asked++;
    return false;
}

/* Boxes of as many functions as one may have: 31 devices of 33, and a lease that is exclusive. */
static void large_functions(void)
{
    static pool_slot_info info[POOL_BOX_SLOTS_MAX];
    const pool_limits large = { LARGE_SLOTS, LARGE_BOXES, 1, 2, LARGE_SLOTS, 1 };
    size_t bytes = pool_bytes(&large);
    uint32_t at;
    pool_request r = { .count = 1, .exclusive = true };
    pool_choice c;
    uint64_t lease;
    free(p);
    p = pool_init(malloc(bytes), bytes, &large);
    for (unsigned b = 0; b < LARGE_BOXES; b++)
        assert_int_equal(pool_add_box(p, info, POOL_BOX_SLOTS_MAX, &at), POOL_OK);
    for (uint32_t i = 0; i < p->slots; i++)
        assert_int_equal(pool_set_device(p, i, i % POOL_BOX_SLOTS_MAX / 33 * 33 + 1), POOL_OK);
    assert_int_equal(pool_add_host(p, LARGE_SLOTS, &at), POOL_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pool_add_tenant(p, POOL_NONE, &at), POOL_OK);
    assert_int_equal(pool_choose(p, &r, &c), POOL_OK);
    assert_int_equal(pool_grant(p, &r, &c, &lease), POOL_OK);
}

/* What is refused costs no quota, so it may not cost much: each slot is looked at a few times, not
   all functions of its device for each slot that is asked for. */
static void test_refusals_are_cheap(void **state)
{
    (void)state;
    const pool_filter none = { none_fits, NULL };
    pool_choice c;
    large_functions();
    for (unsigned i = 0; i < 3; i++) {
        pool_request r = { .tenant = 1, .count = POOL_COUNT_MAX, .need = POOL_SAME_BOX };
        r.apart = i == 0;
        r.exclusive = i == 1;
        r.filter = i == 2 ? &none : NULL;
        clock_t least = CLOCKS_PER_SEC;
        for (unsigned j = 0; j < 3; j++) {
            clock_t began = clock();
            asked = 0;
            int rc = pool_choose(p, &r, &c);
            least = clock() - began < least ? clock() - began : least;
            assert_int_equal(rc, i == 0 ? POOL_E_PLACE : i == 1 ? POOL_OK : POOL_E_FREE);
            assert_true(asked <= 2 * p->slots);
        }
        assert_true(least < CLOCKS_PER_SEC / 10); /* 14 ms at most; 550 with the functions */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_histories, begin, end),
        cmocka_unit_test_setup_teardown(test_control_histories, begin, end),
        cmocka_unit_test_setup_teardown(test_choices_equal_oracle, begin, end),
        cmocka_unit_test_setup_teardown(test_never_worse_than_first_fit, begin, end),
        cmocka_unit_test_setup_teardown(test_replacement_equals_scan, begin, end),
        cmocka_unit_test_setup_teardown(test_restart_brings_everything_back, begin, end),
        cmocka_unit_test_setup_teardown(test_restore_refuses, begin, end),
        cmocka_unit_test_setup_teardown(test_list_of_retained_is_bounded, begin, end),
        cmocka_unit_test_setup_teardown(test_m159_functions_are_packed, begin, end),
        cmocka_unit_test_setup_teardown(test_m183_all_move_to_the_peer, begin, end),
        cmocka_unit_test_setup_teardown(test_m158_exclusive, begin, end),
        cmocka_unit_test_setup_teardown(test_m158_exclusive_beside_a_stranger, begin, end),
        cmocka_unit_test_setup_teardown(test_m178_what_is_kept_from_others_counts, begin, end),
        cmocka_unit_test(test_spares_by_failure_rate),
        cmocka_unit_test_setup_teardown(test_limits_and_errors, begin, end),
        cmocka_unit_test_setup_teardown(test_reasons, begin, end),
        cmocka_unit_test_setup_teardown(test_taint, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals_are_cheap, begin, end),
        cmocka_unit_test_setup_teardown(test_boxes_of_1024_slots, begin, end),
    };
    number("DXPU_SEED", &seed);
    number("DXPU_ROUNDS", &rounds);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed)
        fprintf(
            stderr,
            "repeat with: DXPU_SEED=%llu DXPU_ROUNDS=%llu build/san/tests/manager/prop_policy\n",
            (unsigned long long)seed, (unsigned long long)rounds);
    return failed;
}
