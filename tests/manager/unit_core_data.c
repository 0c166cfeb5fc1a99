/* unit_core_data.c - the manager's core: what becomes of a tenant's data (spec/control.md, 8)
   SPDX-License-Identifier: MIT

   Two boxes and a host obey every order at once.  What a guest wrote is a tag in its slot. */
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

#include "core_rig.h"

enum { BOXES = 2, HOST = 9, SLOTS = 4, PORTS = 6, GRACE_MS = 5000, KEPT_MS = 100000 };

static rig_store disk;
static core *c;
static core_result why;
static uint64_t now_ms, unix_ms;
static dxpu_control_device box[BOXES][SLOTS], host[PORTS];
static uint32_t box_node[BOXES], host_node;
static uint64_t box_instance; /* of all boxes: another one after a start */
static bool box_there[BOXES], host_there;
static uint64_t bytes[BOXES][SLOTS]; /* the lease that wrote them; 0: wiped */
static uint64_t retention_ms;
static unsigned deaf; /* a box's slot whose lease does not come up; 0: none */

/* -- The rig -- */

static uint64_t word_bits = UINT64_MAX; /* of what boxes have of a tenant's name */

static void start_early(uint64_t early)
{
    core_settings set;
    core_settings_default(&set);
    set.early = early;
    set.word_bits = word_bits;
    assert_int_equal(set.retention_ms, CORE_RETENTION_S * 1000u);
    set.grace_ms = GRACE_MS;
    set.retention_ms = retention_ms;
    c = core_open(&disk.base, &set, unix_ms, now_ms, &why);
    if (!c)
        fail_msg("%s", why.text);
}

static void start(void)
{
    start_early(EARLY);
}

static void tell(unsigned b, unsigned first, unsigned count)
{
    box_node[b] = rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(b + 1), box_instance, box[b],
                               SLOTS, first, count, &why);
    if (!box_node[b])
        fail_msg("%s", why.text);
    box_there[b] = true;
}

static void host_tells(unsigned first, unsigned count)
{
    host_node = rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, 8, host, PORTS, first, count, &why);
    if (!host_node)
        fail_msg("%s", why.text);
    host_there = true;
}

static bool silent; /* boxes of an older program: they do not know which lease they have (M-174) */

static unsigned ons; /* orders that allow direct requests */

static void box_obeys(unsigned b, const core_order *o, dxpu_control_done *done)
{
    unsigned number = corei_order_slot(&o->m);
    ons += o->m.type == DXPU_CONTROL_DIRECT && o->m.u.direct.on;
    dxpu_control_device *d = &box[b][number ? number - 1 : 0];
    if (o->m.type == DXPU_CONTROL_BIND) {
        d->state = DXPU_CONTROL_SLOT_HELD;
        d->epoch = d->epoch_seen = o->m.u.bind.epoch;
        d->peer_node = o->m.u.bind.host_node;
        d->peer_slot = o->m.u.bind.host_slot;
        d->lease = silent ? 0 : o->m.u.bind.lease;
        d->tenant = silent ? 0 : o->m.u.bind.tenant;
    } else if (o->m.type == DXPU_CONTROL_UNBIND) {
        d->state = o->m.u.unbind.keep ? DXPU_CONTROL_SLOT_KEPT : DXPU_CONTROL_SLOT_WIPED;
        d->epoch = d->peer_node = d->peer_slot = 0;
        if (!o->m.u.unbind.keep || d->epoch_seen != o->m.u.unbind.epoch)
            d->lease = d->tenant = 0;
        d->epoch_seen = o->m.u.unbind.epoch;
        if (!o->m.u.unbind.keep)
            bytes[b][number - 1] = 0;
    }
    *done = (dxpu_control_done){ (uint16_t)number, d->state, d->epoch };
}

/* The guest reads what is there: nothing, or its own. */
static void write_bytes(uint64_t epoch)
{
    for (unsigned b = 0; b < BOXES; b++)
        for (unsigned i = 0; i < SLOTS; i++) {
            uint32_t slot = core_find_slot(c, box_node[b], i + 1);
            if (box[b][i].epoch != epoch)
                continue;
            uint64_t lease = pool_lease_number(core_pool(c), core_pool(c)->slot[slot].lease);
            assert_true(!bytes[b][i] || bytes[b][i] == lease);
            bytes[b][i] = lease;
        }
}

static void host_obeys(const core_order *o, dxpu_control_done *done)
{
    unsigned number = corei_order_slot(&o->m);
    dxpu_control_device *d = &host[number - 1];
    d->epoch = o->m.type == DXPU_CONTROL_ATTACH ? o->m.u.attach.epoch : 0;
    d->peer_slot = d->epoch ? o->m.u.attach.box_slot : 0;
    d->state = d->epoch ? DXPU_CONTROL_SLOT_UP : DXPU_CONTROL_SLOT_EMPTY;
    if (d->epoch && deaf && o->m.u.attach.box_slot == deaf)
        d->state = DXPU_CONTROL_SLOT_DIALING;
    else if (d->epoch)
        write_bytes(d->epoch);
    *done = (dxpu_control_done){ (uint16_t)number, d->state, d->epoch };
}

/* All orders are given and obeyed; the number of wipes. */
static unsigned pump(void)
{
    core_order o;
    unsigned wipes = 0;
    while (core_next_order(c, &o)) {
        dxpu_control_done done = { 0, 0, 0 };
        unsigned number = corei_order_slot(&o.m), b = o.node == box_node[0] ? 0 : 1;
        wipes += o.m.type == DXPU_CONTROL_UNBIND && !o.m.u.unbind.keep;
        if (o.node == host_node)
            host_obeys(&o, &done);
        else
            box_obeys(b, &o, &done);
        assert_true(core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &done));
        if (o.node == host_node)
            host_tells(number, 1);
        else if (number)
            tell(b, number, 1);
    }
    return wipes;
}

static unsigned after(uint64_t ms)
{
    now_ms += ms;
    unix_ms += ms;
    core_clock(c, unix_ms, now_ms);
    core_tick(c);
    return pump();
}

static void loses(unsigned b)
{
    for (unsigned i = 0; i < PORTS; i++)
        for (unsigned s = 0; s < SLOTS; s++)
            if (host[i].epoch && host[i].epoch == box[b][s].epoch)
                host[i].state = DXPU_CONTROL_SLOT_DIALING;
    core_disconnected(c, box_node[b]);
    box_there[b] = false;
    host_tells(1, PORTS);
}

static void comes_back(unsigned b)
{
    tell(b, 1, SLOTS);
    for (unsigned i = 0; i < PORTS; i++)
        for (unsigned s = 0; s < SLOTS; s++)
            if (host[i].epoch && host[i].epoch == box[b][s].epoch)
                host[i].state = DXPU_CONTROL_SLOT_UP;
    host_tells(1, PORTS);
    pump();
}

static void stop(void)
{
    const char *differs = rig_differs(c, &disk);
    if (differs)
        fail_msg("%s in the store is not as in the tables", differs);
    core_close(c);
}

static void restart(void)
{
    stop();
    start();
    for (unsigned b = 0; b < BOXES; b++)
        if (box_there[b])
            tell(b, 1, SLOTS);
    host_tells(1, PORTS);
    pump();
}

static int begin(void **state)
{
    (void)state;
    rig_store_init(&disk);
    now_ms = 1;
    unix_ms = 1700000000000u;
    retention_ms = KEPT_MS;
    box_instance = 7;
    silent = false;
    word_bits = UINT64_MAX;
    memset(bytes, 0, sizeof bytes);
    memset(host, 0, sizeof host);
    for (unsigned b = 0; b < BOXES; b++)
        for (unsigned i = 0; i < SLOTS; i++)
            box[b][i] = (dxpu_control_device){ .number = (uint16_t)(i + 1),
                                               .state = DXPU_CONTROL_SLOT_WIPED,
                                               .health = DXPU_CONTROL_HEALTH_GOOD,
                                               .group = 1 + i / 2,
                                               .model = "nvme",
                                               .serial = { (char)('A' + b), (char)('0' + i) },
                                               .data = DXPU_CONTROL_DATA_PERSISTENT,
                                               .medium = 1 + b * SLOTS + i };
    for (unsigned i = 0; i < PORTS; i++)
        host[i].number = (uint16_t)(i + 1);
    start();
    for (unsigned b = 0; b < BOXES; b++)
        tell(b, 1, SLOTS);
    host_tells(1, PORTS);
    pump();
    return 0;
}

static int end(void **state)
{
    (void)state;
    const char *differs = c ? rig_differs(c, &disk) : NULL;
    core_close(c);
    c = NULL;
    rig_store_free(&disk);
    if (differs)
        fail_msg("%s in the store is not as in the tables", differs);
    return 0;
}

static uint64_t lease_up(uint8_t count, uint8_t need, uint8_t replace, uint64_t seconds)
{
    core_request r = { .tenant = "red",
                       .model = "nvme",
                       .host = host_node,
                       .count = count,
                       .need = need,
                       .replace = replace,
                       .seconds = seconds };
    uint64_t lease;
    bool existed;
    core_result result = core_create(c, &r, &lease, &existed);
    if (result.code != CORE_OK)
        fail_msg("%s", result.text);
    pump();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    return lease;
}

static uint32_t slot_of(uint64_t lease, unsigned place)
{
    uint32_t slot[POOL_COUNT_MAX];
    assert_true(pool_lease_slots(core_pool(c), lease, slot) > place);
    return slot[place];
}

static unsigned box_of(uint32_t slot)
{
    return core_nodes(c, &(uint32_t){ 0 })[c->t.slot[slot].node].number == box_node[0] ? 0 : 1;
}

static uint64_t bytes_of(uint32_t slot)
{
    return bytes[box_of(slot)][c->t.slot[slot].device.number - 1];
}

static unsigned state_of(uint32_t slot)
{
    return core_pool(c)->slot[slot].state;
}

/* The text of the last event of a type; NULL: there is none. */
static const char *last_text(core_event_type type)
{
    static core_event e[512];
    const char *text = NULL;
    for (unsigned i = 0, n = core_events_after(c, 0, e, 512); i < n; i++)
        if (e[i].type == type)
            text = e[i].text;
    return text;
}

static bool says(core_event_type type, const char *what)
{
    const char *text = last_text(type);
    return text && strstr(text, what);
}

/* A lease with a slot in a box that is disconnected longer than its grace, with its data. */
static uint64_t lose_one(uint32_t *slot)
{
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_YES, 0);
    *slot = slot_of(lease, 0);
    unsigned b = box_of(*slot);
    loses(b);
    (void)after(GRACE_MS + 1);
    assert_int_not_equal(slot_of(lease, 0), *slot);
    comes_back(b);
    return lease;
}

/* -- Absence -- */

/* A lease that asks for that goes on with another slot, and what it had is not lost. */
static void test_m92_absence_retains(void **state)
{
    (void)state;
    uint32_t slot;
    uint64_t lease = lose_one(&slot), owner = core_slot_owner(c, slot);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    assert_int_equal(owner, lease);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(box[box_of(slot)][c->t.slot[slot].device.number - 1].state,
                     DXPU_CONTROL_SLOT_KEPT);
    assert_true(says(CORE_EVENT_SLOT_RETAINED, "its box is unreachable"));
    assert_null(last_text(CORE_EVENT_SLOT_WIPED));
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    restart();
    assert_int_equal(state_of(slot), POOL_RETAINED);
    assert_int_equal(core_slot_owner(c, slot), lease);
    (void)after(1000);
    assert_int_equal(bytes_of(slot), lease);
}

/* So it is when the box comes back after a restart of the manager, and when its device breaks. */
static void test_m92_over_restarts_and_repair(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    loses(b);
    (void)after(GRACE_MS + 1);
    assert_int_equal(state_of(slot), POOL_BROKEN);
    assert_int_equal(core_slot_owner(c, slot), lease);
    restart();
    assert_int_equal(state_of(slot), POOL_BROKEN);
    comes_back(b);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    box[b][number - 1].health = DXPU_CONTROL_HEALTH_BROKEN;
    tell(b, number, 1);
    assert_int_equal(state_of(slot), POOL_BROKEN);
    assert_non_null(strstr(core_recover(c, slot).text, "the slot is broken"));
    box[b][number - 1].health = DXPU_CONTROL_HEALTH_GOOD;
    tell(b, number, 1);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    assert_int_equal(pump(), 0);
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    (void)after(1);
    assert_int_equal(slot_of(lease, 0), slot);
    assert_int_equal(bytes_of(slot), lease);
}

/* Two absences of a lease of one slot: the second is not replaced, since one slot is retained. */
static void test_m92_no_more_than_it_has(void **state)
{
    (void)state;
    uint32_t slot, second;
    uint64_t lease = lose_one(&slot);
    second = slot_of(lease, 0);
    unsigned b = box_of(second);
    loses(b);
    (void)after(GRACE_MS + 1);
    assert_int_equal(slot_of(lease, 0), second);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_DEGRADED);
    comes_back(b);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(second), lease);
    assert_int_equal(core_pool(c)->tenant[0].used, 2); /* what is retained counts */
}

/* A slot that never came to its host has nothing to keep. */
static void test_m92_never_served(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .host = host_node, .count = 1 };
    uint64_t lease;
    bool existed;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot);
    core_disconnected(c, box_node[b]);
    box_there[b] = false;
    (void)after(GRACE_MS + 1);
    assert_int_not_equal(slot_of(lease, 0), slot); /* by default, too */
    assert_int_equal(core_slot_owner(c, slot), 0);
    comes_back(b);
    assert_int_equal(state_of(slot), POOL_FREE);
}

static void test_m93_recover(void **state)
{
    (void)state;
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    uint32_t second = slot_of(lease, 0);
    uint64_t epoch = core_pool(c)->slot[slot].epoch;
    assert_int_equal(core_recover(c, second).code, CORE_E_STATE);
    assert_int_equal(core_recover(c, core_pool(c)->slots).code, CORE_E_UNKNOWN);
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    assert_int_equal(slot_of(lease, 0), slot);
    assert_true(core_pool(c)->slot[slot].epoch > epoch);
    assert_int_equal(pump(), 0);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(state_of(second), POOL_RETAINED);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(bytes_of(second), lease);
    assert_int_equal(core_recover(c, second).code, CORE_OK); /* and the other way round */
    assert_int_equal(pump(), 0);
    assert_int_equal(slot_of(lease, 0), second);
    restart();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(core_slot_owner(c, slot), lease);
}

/* A lease of three slots has the middle one back in the middle. */
static void test_m93_place(void **state)
{
    (void)state;
    uint64_t lease = lease_up(3, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t slot = slot_of(lease, 1);
    uint16_t port = core_leases(c)[pool_lease_index(lease)].port[1];
    assert_int_equal(core_break(c, slot, POOL_WHY_DEVICE).code, CORE_OK);
    (void)after(1);
    assert_int_not_equal(slot_of(lease, 1), slot);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    restart();
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    (void)after(1);
    assert_int_equal(slot_of(lease, 1), slot);
    assert_int_equal(core_leases(c)[pool_lease_index(lease)].port[1], port);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
}

/* The slot at this place fails, is replaced, and works again: returns it, retained. */
static uint32_t leave(uint64_t lease, unsigned place)
{
    uint32_t slot = slot_of(lease, place);
    assert_int_equal(core_break(c, slot, POOL_WHY_DEVICE).code, CORE_OK);
    (void)after(1);
    assert_int_not_equal(slot_of(lease, place), slot);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(pump(), 0);
    return slot;
}

/* Both slots of a lease are retained, first the one at place 0; false: the box of that one reports
   that it is empty. */
static uint64_t both_retained(uint32_t slot[2], bool kept)
{
    uint64_t lease = lease_up(2, POOL_ANY, CORE_REPLACE_YES, 0);
    for (unsigned i = 0; i < 2; i++)
        slot[i] = leave(lease, i);
    unsigned b = box_of(slot[0]), number = c->t.slot[slot[0]].device.number;
    box[b][number - 1].state = kept ? DXPU_CONTROL_SLOT_KEPT : DXPU_CONTROL_SLOT_EMPTY;
    tell(b, number, 1);
    return lease;
}

static void test_m93_all_or_none(void **state)
{
    (void)state;
    uint32_t slot[2], now[2];
    uint64_t lease = both_retained(slot, false);
    uint64_t epoch = core_pool(c)->slot[slot[1]].epoch;
    unsigned b = box_of(slot[0]), number = c->t.slot[slot[0]].device.number, commits = disk.commits;
    for (unsigned i = 0; i < 2; i++)
        now[i] = slot_of(lease, i);
    assert_int_equal(core_recover_all(c, lease + 1).code, CORE_E_STATE);
    core_result none = core_recover_all(c, lease); /* slot[1] could be had, slot[0] not */
    assert_int_equal(none.code, CORE_E_STATE);
    assert_non_null(strstr(none.text, "its box reports the slot as"));
    assert_int_equal(disk.commits, commits);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(slot_of(lease, i), now[i]);
        assert_int_equal(state_of(slot[i]), POOL_RETAINED);
    }
    assert_true(core_pool(c)->slot[slot[1]].epoch == epoch);
    box[b][number - 1].state = DXPU_CONTROL_SLOT_KEPT;
    tell(b, number, 1);
    commits = disk.commits;
    assert_int_equal(core_recover_all(c, lease).code, CORE_OK);
    assert_int_equal(disk.commits, commits + 1);
    restart();
    (void)after(1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(slot_of(lease, i), slot[i]);
        assert_int_equal(state_of(now[i]), POOL_RETAINED);
        assert_int_equal(bytes_of(slot[i]), lease);
    }
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
}

/* Of two slots that left the same place, the one that left it first. */
static void test_m93_all_of_one_place(void **state)
{
    (void)state;
    uint64_t lease = lease_up(2, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t left[2], other = slot_of(lease, 1);
    for (unsigned i = 0; i < 2; i++)
        left[i] = leave(lease, 0);
    uint32_t now = slot_of(lease, 0);
    assert_int_equal(core_recover_all(c, lease).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(slot_of(lease, 0), left[0]);
    assert_int_equal(slot_of(lease, 1), other);
    assert_int_equal(state_of(left[1]), POOL_RETAINED);
    assert_int_equal(state_of(now), POOL_RETAINED);
    assert_int_equal(bytes_of(left[1]), lease);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
}

/* So it is after a restart, whichever of them has the lower number. */
static void test_m93_all_of_one_place_restarted(void **state)
{
    (void)state;
    for (unsigned again = 0; again < 2; again++) { /* the first slot returns, and leaves again? */
        uint64_t lease = lease_up(2, POOL_ANY, CORE_REPLACE_YES, 0);
        uint32_t first = leave(lease, 0), second = slot_of(lease, 0);
        if (again) {
            assert_int_equal(core_recover(c, first).code, CORE_OK);
            (void)after(1);
        }
        assert_int_equal(leave(lease, 0), again ? first : second);
        restart();
        (void)after(1);
        assert_int_equal(core_recover_all(c, lease).code, CORE_OK);
        (void)after(1);
        assert_int_equal(slot_of(lease, 0), again ? second : first);
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
        (void)end(state);
        (void)begin(state);
    }
}

/* Not while its box cannot say that the data are there. */
static void test_m93_box_says_kept(void **state)
{
    (void)state;
    static const uint8_t not [] = { DXPU_CONTROL_SLOT_EMPTY, DXPU_CONTROL_SLOT_WIPED,
                                    DXPU_CONTROL_SLOT_UNWIPED };
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number, left;
    for (unsigned i = 0; i < 3; i++) {
        box[b][number - 1].state = not [i];
        tell(b, number, 1);
        assert_int_equal(pump(), 0);
        assert_non_null(strstr(core_recover(c, slot).text, "its box reports the slot as"));
        assert_int_equal(state_of(slot), POOL_RETAINED);
    }
    box[b][number - 1].state = DXPU_CONTROL_SLOT_KEPT;
    tell(b, number, 1);
    assert_int_equal(core_drain(c, box_node[b], true, false, &left).code, CORE_OK);
    assert_int_equal(left, 1); /* what is retained is not out of the box */
    assert_non_null(strstr(core_recover(c, slot).text, "end the drain"));
    assert_int_equal(core_drain(c, box_node[b], false, false, &left).code, CORE_OK);
    core_disconnected(c, box_node[b]);
    assert_non_null(strstr(core_recover(c, slot).text, "not connected"));
    comes_back(b);
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    pump();
    assert_int_equal(bytes_of(slot), lease);
}

/* By default a lease waits for what keeps data, and goes on without what does not. */
static void test_m94_default_by_data(void **state)
{
    (void)state;
    for (unsigned data = DXPU_CONTROL_DATA_UNKNOWN; data <= DXPU_CONTROL_DATA_PERSISTENT; data++) {
        bool none = data == DXPU_CONTROL_DATA_NONE;
        for (unsigned b = 0; b < BOXES; b++)
            for (unsigned i = 0; i < SLOTS; i++)
                box[b][i].data = (uint8_t)data;
        tell(0, 1, SLOTS);
        tell(1, 1, SLOTS);
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 0);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot);
        assert_int_equal(core_model_keeps_data(c, 0), !none); /* M-90 */
        assert_int_equal(core_lease_replaces(c, lease), none);
        loses(b);
        (void)after(GRACE_MS + 1);
        assert_int_equal(slot_of(lease, 0) != slot, none);
        comes_back(b);
        (void)after(1);
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
        assert_int_equal(bytes_of(slot), none ? 0 : lease);
        restart();
        assert_int_equal(core_keeps_data(c, slot), !none);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)after(1);
    }
}

/* -- Decisions -- */

static void test_m91_release_wipes_what_is_retained(void **state)
{
    (void)state;
    uint32_t slot;
    core_erased e[4];
    uint64_t lease = lose_one(&slot);
    uint32_t second = slot_of(lease, 0);
    assert_int_equal(core_would_erase(c, CORE_DEED_RELEASE, lease, e, 4), 2);
    assert_int_equal(core_would_erase(c, CORE_DEED_RELEASE, lease, e, 1), 2);
    assert_string_equal(e[0].tenant, "red");
    assert_int_equal(e[0].lease, lease);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    assert_int_equal(pump(), 2);
    assert_int_equal(bytes_of(slot), 0);
    assert_int_equal(bytes_of(second), 0);
    assert_int_equal(state_of(slot), POOL_FREE);
    assert_int_equal(state_of(second), POOL_FREE);
    assert_true(says(CORE_EVENT_SLOT_WIPED, "its lease was released"));
    assert_true(says(CORE_EVENT_SLOT_DISCARDED, "its lease was released"));
}

/* The decision outlives that the slot is broken when it is made. */
static void test_m91_release_while_disconnected(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot);
    loses(b);
    (void)after(GRACE_MS + 1);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    assert_int_equal(core_slot_owner(c, slot), 0);
    restart();
    comes_back(b);
    assert_int_equal(state_of(slot), POOL_FREE);
    assert_int_equal(bytes_of(slot), 0);
    assert_true(says(CORE_EVENT_SLOT_WIPED, "its lease was released"));
}

static void test_m91_discard(void **state)
{
    (void)state;
    uint32_t slot;
    core_erased e[4];
    uint64_t lease = lose_one(&slot);
    assert_int_equal(core_discard(c, slot_of(lease, 0)).code, CORE_E_STATE);
    assert_int_equal(core_would_erase(c, CORE_DEED_DISCARD, slot, e, 4), 1);
    assert_int_equal(e[0].slot, slot);
    assert_int_equal(core_discard(c, slot).code, CORE_OK);
    assert_int_equal(pump(), 1);
    assert_int_equal(bytes_of(slot), 0);
    assert_int_equal(state_of(slot), POOL_FREE);
    assert_true(says(CORE_EVENT_SLOT_WIPED, "its tenant has discarded it"));
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
}

/* The effects of a request are reported beforehand. */
static void test_m91_would_erase(void **state)
{
    (void)state;
    core_erased e[SLOTS];
    unsigned left;
    uint64_t lease = lease_up(2, POOL_SAME_BOX, CORE_REPLACE_DEFAULT, 0);
    uint64_t stays = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot);
    assert_int_equal(box_of(slot_of(stays, 0)), b);
    assert_int_equal(core_would_erase(c, CORE_DEED_DRAIN, box_node[b], e, SLOTS), 2);
    assert_int_equal(core_would_erase(c, CORE_DEED_DRAIN, box_node[!b], e, SLOTS), 0);
    assert_int_equal(core_would_erase(c, CORE_DEED_DRAIN, host_node, e, SLOTS), 0);
    assert_int_equal(core_would_erase(c, CORE_DEED_REPLACE, slot, e, SLOTS), 1);
    assert_int_equal(core_would_erase(c, CORE_DEED_REPAIR, slot, e, SLOTS), 0);
    assert_int_equal(core_would_erase(c, CORE_DEED_REPLACE, UINT64_MAX, e, SLOTS), 0);
    assert_int_equal(core_would_erase(c, CORE_DEED_RELEASE, 7, e, SLOTS), 0);
    assert_int_equal(core_drain(c, box_node[b], true, true, &left).code, CORE_OK);
    assert_int_equal(left, 1);
    assert_int_equal(pump(), 2);
    assert_int_equal(bytes_of(slot), 0);
    assert_true(says(CORE_EVENT_SLOT_WIPED, "its box is being drained"));
    assert_int_equal(bytes_of(slot_of(stays, 0)), stays);
    slot = slot_of(lease, 0);
    assert_int_equal(core_drain(c, box_node[b], false, false, &left).code, CORE_OK);
    assert_int_equal(core_replace(c, slot, POOL_WHY_OPERATOR, true).code, CORE_OK);
    assert_int_equal(pump(), 1);
    assert_true(says(CORE_EVENT_SLOT_WIPED, "requested by an operator"));
}

/* -- Retention times -- */

static void test_m97_retention_ends(void **state)
{
    (void)state;
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    assert_int_equal(core_slot_left_ms(c, slot), KEPT_MS);
    assert_int_equal(core_slot_left_ms(c, slot_of(lease, 0)), UINT64_MAX);
    unix_ms += 10 * KEPT_MS; /* a step of the time of day */
    assert_int_equal(after(KEPT_MS - 1), 0);
    assert_int_equal(core_slot_left_ms(c, slot), 1);
    assert_int_equal(core_next_ms(c), now_ms + 1);
    assert_int_equal(after(1), 1);
    assert_int_equal(bytes_of(slot), 0);
    assert_int_equal(state_of(slot), POOL_FREE);
    assert_true(says(CORE_EVENT_SLOT_WIPED, "its retention time is over"));
    assert_non_null(pool_find_lease(core_pool(c), lease));
}

/* Neither an absence nor a restart costs any of it. */
static void test_m97_stands_still(void **state)
{
    (void)state;
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    unsigned b = box_of(slot);
    (void)after(KEPT_MS / 2);
    core_disconnected(c, box_node[b]);
    box_there[b] = false;
    (void)after(5 * KEPT_MS);
    assert_int_equal(core_slot_left_ms(c, slot), KEPT_MS / 2);
    restart();
    (void)after(5 * KEPT_MS);
    assert_int_equal(core_slot_left_ms(c, slot), KEPT_MS / 2);
    comes_back(b);
    assert_int_equal(after(KEPT_MS / 2 - 1), 0);
    restart();
    assert_int_equal(core_slot_left_ms(c, slot), 1);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(after(1), 1);
}

/* So it is for a lease that has ended: of each of its slots. */
static void test_m97_ended_stands_still(void **state)
{
    (void)state;
    uint64_t lease = lease_up(2, POOL_SPREAD, CORE_REPLACE_NO, 0);
    assert_int_equal(core_release(c, lease, true).code, CORE_OK);
    pump();
    (void)after(KEPT_MS / 4);
    for (unsigned b = 0; b < BOXES; b++) {
        core_disconnected(c, box_node[b]);
        box_there[b] = false;
        (void)after(5 * KEPT_MS);
        assert_int_equal(core_lease_left_ms(c, lease), KEPT_MS / 4 * (3 - b));
        restart();
        (void)after(5 * KEPT_MS);
        assert_int_equal(core_lease_left_ms(c, lease), KEPT_MS / 4 * (3 - b));
        comes_back(b);
        assert_int_equal(after(KEPT_MS / 4), 0); /* the control: it runs again */
    }
    uint32_t slot = slot_of(lease, 0);
    assert_int_equal(core_break(c, slot, POOL_WHY_OPERATOR).code, CORE_OK);
    (void)after(5 * KEPT_MS);
    assert_int_equal(core_lease_left_ms(c, lease), KEPT_MS / 4);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(after(KEPT_MS / 4 - 1), 0);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(after(1), 2);
    assert_null(pool_find_lease(core_pool(c), lease));
}

/* A slot that the lease left before it ended keeps its own time, however long its box is off. */
static void test_m97_a_replaced_slot_has_its_own_time(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t left = slot_of(lease, 0), now;
    unsigned b = box_of(left);
    loses(b);
    (void)after(GRACE_MS + 1);
    now = slot_of(lease, 0);
    assert_int_not_equal(now, left);
    assert_int_equal(core_release(c, lease, true).code, CORE_OK);
    pump();
    (void)after(5 * KEPT_MS);
    comes_back(b);
    assert_int_equal(bytes_of(left), lease);
    assert_int_equal(core_slot_left_ms(c, left), KEPT_MS);
    assert_int_equal(bytes_of(now), lease); /* it goes with the last of them */
    assert_int_equal(after(KEPT_MS - 1), 0);
    assert_int_equal(bytes_of(left), lease);
    (void)after(1);
    (void)after(1);
    assert_null(pool_find_lease(core_pool(c), lease));
    assert_int_equal(bytes_of(left), 0);
    assert_int_equal(bytes_of(now), 0);
}

/* Its box says that it does not work, while the store has no room: its time stands still; and one
   that was over by then, without room to say so, ends nothing before that is acted upon. */
static void test_m97_broken_and_no_room(void **state)
{
    (void)state;
    for (unsigned over = 0; over < 2; over++) {
        uint32_t slot;
        uint64_t lease = lose_one(&slot);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        disk.fail_after = 0;
        disk.fault = STORE_E_FULL;
        if (over)
            assert_int_equal(after(2 * KEPT_MS), 0);
        box[b][number - 1].health = DXPU_CONTROL_HEALTH_BROKEN;
        tell(b, number, 1);
        assert_int_equal(over ? 0 : after(2 * KEPT_MS), 0);
        disk.fail_after = UINT_MAX;
        assert_int_equal(after(2 * COREI_REFUSE_MS), 0);
        assert_int_equal(state_of(slot), POOL_BROKEN);
        assert_int_equal(core_slot_owner(c, slot), lease);
        box[b][number - 1].health = DXPU_CONTROL_HEALTH_GOOD;
        tell(b, number, 1);
        assert_int_equal(core_repair(c, slot).code, CORE_OK);
        assert_int_equal(after(over ? 0 : KEPT_MS / 2), over ? 1 : 0);
        assert_int_equal(bytes_of(slot), over ? 0 : lease);
        assert_int_equal(after(KEPT_MS), over ? 0 : 1); /* the control */
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)pump();
    }
}

/* Killed, it goes on with what was stored in the hour before. */
static void test_m97_killed(void **state)
{
    (void)state;
    uint32_t slot;
    retention_ms = 3 * COREI_SAVE_MS;
    restart();
    uint64_t lease = lose_one(&slot);
    (void)after(COREI_SAVE_MS);
    unsigned commits = disk.commits;
    (void)after(COREI_SAVE_MS / 2);
    assert_true(disk.commits <= commits + 1); /* it is not written all the time */
    disk.fail_after = 0;
    core_close(c);
    disk.fail_after = UINT_MAX;
    start();
    uint64_t left = core_slot_left_ms(c, slot);
    assert_true(left >= 3 * COREI_SAVE_MS - (COREI_SAVE_MS + COREI_SAVE_MS / 2) &&
                left <= 2 * COREI_SAVE_MS);
    assert_int_equal(core_slot_owner(c, slot), lease);
}

static void test_m97_without_limit(void **state)
{
    (void)state;
    uint32_t slot;
    retention_ms = 0;
    restart();
    uint64_t lease = lose_one(&slot);
    assert_int_equal(core_slot_left_ms(c, slot), UINT64_MAX);
    assert_int_equal(core_release(c, lease, true).code, CORE_OK);
    assert_int_equal(core_recover(c, slot).code, CORE_E_STATE); /* the lease comes first */
    assert_int_equal(core_lease_left_ms(c, lease), UINT64_MAX);
    (void)after((uint64_t)CORE_RETENTION_S * 100000);
    restart();
    assert_int_equal(state_of(slot), POOL_RETAINED);
    assert_non_null(pool_find_lease(core_pool(c), lease));
}

/* -- Ends of leases -- */

/* The slot is shown as retained for the lease, and is kept, or given up, with all of it. */
static void assert_retained_whole(uint64_t lease, uint32_t slot)
{
    uint32_t models, kept = 0, lent = 0, (*count)[POOL_STATES];
    (void)core_models(c, &models);
    count = calloc(models, sizeof *count);
    core_count_slots(c, count);
    for (uint32_t i = 0; i < models; i++) {
        kept += count[i][POOL_RETAINED];
        lent += count[i][POOL_LEASED];
    }
    free(count);
    assert_int_equal(kept, 1);
    assert_int_equal(lent, 0);
    assert_int_equal(core_slot_state(c, slot), POOL_RETAINED);
    assert_int_equal(core_slot_owner(c, slot), lease);
    assert_int_equal(core_slot_left_ms(c, slot), core_lease_left_ms(c, lease));
    assert_int_equal(core_recover(c, slot).code, CORE_E_STATE);
    assert_int_equal(core_discard(c, slot).code, CORE_E_STATE);
}

static void test_m95_expiry(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 10);
    uint32_t slot = slot_of(lease, 0);
    const core_lease *l = &core_leases(c)[pool_lease_index(lease)];
    assert_int_equal(core_lease_left_ms(c, lease), UINT64_MAX);
    assert_int_equal(after(10000), 0);
    assert_true(l->ended);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ENDED);
    assert_true(says(CORE_EVENT_LEASE_EXPIRED, "its data are kept for 100 s"));
    assert_retained_whole(lease, slot);
    assert_int_equal(core_lease_left_ms(c, lease), KEPT_MS);
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_E_STATE);
    assert_int_equal(core_release(c, lease, true).code, CORE_E_STATE);
    assert_int_equal(after(KEPT_MS / 2), 0);
    restart();
    l = &core_leases(c)[pool_lease_index(lease)];
    assert_true(l->ended);
    assert_int_equal(core_lease_left_ms(c, lease), KEPT_MS / 2);
    assert_int_equal(core_extend(c, lease, 60).code, CORE_OK);
    assert_false(l->ended);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
    assert_int_equal(core_slot_state(c, slot), POOL_LEASED);
    assert_int_equal(core_slot_owner(c, slot), 0);
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    pump();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(after(60000), 0); /* once more, and to the end */
    assert_int_equal(after(KEPT_MS - 1), 0);
    assert_int_equal(after(1), 1);
    assert_null(pool_find_lease(core_pool(c), lease));
    assert_int_equal(bytes_of(slot), 0);
    assert_true(says(CORE_EVENT_LEASE_RELEASED, "its retention time is over"));
}

static void test_m95_release_keep(void **state)
{
    (void)state;
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    assert_int_equal(core_release(c, lease, true).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_true(says(CORE_EVENT_LEASE_KEPT, "released: its data are kept"));
    assert_int_equal(after(KEPT_MS), 2);
    assert_null(pool_find_lease(core_pool(c), lease));
    assert_int_equal(core_pool(c)->model[0].count[POOL_FREE], BOXES * SLOTS);
}

/* Without data there is nothing to wait for; a key is free for another lease only then. */
static void test_m95_without_data(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .host = host_node, .count = 1, .seconds = 10, .key = "k" };
    uint64_t lease, again;
    bool existed;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    pump();
    (void)after(10000);
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_E_STATE);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    (void)after(1);
    for (unsigned b = 0; b < BOXES; b++) {
        for (unsigned i = 0; i < SLOTS; i++)
            box[b][i].data = DXPU_CONTROL_DATA_NONE;
        tell(b, 1, SLOTS);
    }
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    pump();
    assert_int_equal(after(10000), 1);
    assert_null(pool_find_lease(core_pool(c), lease));
    assert_true(says(CORE_EVENT_LEASE_EXPIRED, "no data to keep"));
}

/* -- The clock -- */

static void test_m96_step(void **state)
{
    (void)state;
    int64_t step;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 1000);
    const core_lease *l = &core_leases(c)[pool_lease_index(lease)];
    unix_ms += 59000; /* within a minute: a correction */
    (void)after(1);
    assert_false(core_clock_held(c, &step));
    unix_ms += 10000000;
    (void)after(1);
    assert_true(core_clock_held(c, &step));
    assert_true(step >= 10000000);
    assert_true(says(CORE_EVENT_ALARM, "the clock stepped by 100"));
    assert_int_equal(core_next_ms(c) > now_ms, true);
    assert_false(l->ended);
    unix_ms -= 10000000;
    (void)after(1);
    assert_false(core_clock_held(c, &step));
    assert_true(says(CORE_EVENT_CLOCK_CONFIRMED, "stepped back"));
    assert_int_equal(core_confirm_clock(c).code, CORE_E_STATE);
    unix_ms += 10000000;
    (void)after(1);
    restart(); /* the doubt outlives that */
    l = &core_leases(c)[pool_lease_index(lease)];
    (void)after(1);
    assert_true(core_clock_held(c, &step));
    assert_int_equal(step, 0);
    assert_false(l->ended);
    assert_int_equal(core_confirm_clock(c).code, CORE_OK);
    (void)after(1);
    assert_true(l->ended);
    assert_true(core_lease_left_ms(c, lease) > KEPT_MS - 10);
}

/* A lease that is made meanwhile ends by the time that was believed. */
static void test_m96_made_meanwhile(void **state)
{
    (void)state;
    unix_ms -= 10000000;
    (void)after(1);
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 1000);
    unix_ms += 10000000;
    (void)after(999998);
    assert_false(core_leases(c)[pool_lease_index(lease)].ended);
    (void)after(10);
    assert_true(core_leases(c)[pool_lease_index(lease)].ended);
}

/* A clock that drifts, or is slewed, is not a step: a day too fast by a minute and a half. */
static void test_m96_drift(void **state)
{
    (void)state;
    int64_t step;
    for (unsigned i = 0; i < 24 * 60; i++) {
        unix_ms += 62;
        (void)after(60000);
        assert_false(core_clock_held(c, &step));
    }
}

static void test_m96_before_the_last(void **state)
{
    (void)state;
    int64_t step;
    (void)lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 1000);
    unix_ms -= 100000;
    restart();
    (void)after(1);
    assert_true(core_clock_held(c, &step));
    assert_true(says(CORE_EVENT_ALARM, "before the last stored time"));
    unix_ms += 100000; /* whether that is right is unknown */
    (void)after(1);
    assert_true(core_clock_held(c, &step));
    assert_int_equal(core_confirm_clock(c).code, CORE_OK);
    assert_false(core_clock_held(c, &step));
    restart(); /* the control */
    assert_false(core_clock_held(c, &step));
    disk.fail_after = 0; /* a confirmation that is not stored counts for nothing */
    disk.fault = STORE_E_FULL;
    unix_ms += 1000000;
    core_clock(c, unix_ms, now_ms);
    assert_int_equal(core_confirm_clock(c).code, CORE_E_STORE);
    assert_true(core_clock_held(c, &step));
    disk.fail_after = UINT_MAX;
    (void)after(2000);
}

/* -- Owner unknown -- */

static void change_record(const char *key, const char *from, const char *to)
{
    bool there;
    unsigned at = rig_place(&disk, key, &there);
    assert_true(there);
    char *found = strstr(disk.record[at].value, from), text[2048];
    assert_non_null(found);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(found - disk.record[at].value),
             disk.record[at].value, to, found + strlen(from));
    store_change one = { key, text, strlen(text) };
    rig_change(&disk, &one);
}

/* Records of a program that knew nothing of what is retained. */
static void test_m98_older_records(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot);
    char key[32];
    core_erased e[1];
    snprintf(key, sizeof key, "slot/%u.%u", box_node[b], c->t.slot[slot].device.number);
    loses(b);
    (void)after(GRACE_MS + 1);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    core_close(c);
    change_record(key, "\"wipe\":\"release\",\"data\":\"persistent\"", "\"more\":0");
    change_record("meta", "\"format\":2", "\"format\":1");
    start();
    host_tells(1, PORTS);
    box[b][c->t.slot[slot].device.number - 1].data = DXPU_CONTROL_DATA_UNKNOWN;
    comes_back(b);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(bytes_of(slot), lease);
    assert_non_null(
        strstr(disk.record[rig_place(&disk, "meta", &(bool){ 0 })].value, "\"format\":2"));
    assert_int_equal(core_would_erase(c, CORE_DEED_REPAIR, slot, e, 1), 1);
    assert_int_equal(e[0].lease, 0);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(pump(), 1);
    assert_int_equal(bytes_of(slot), 0);
}

/* A slot whose lease is not in the store. */
static void test_m98_lease_is_missing(void **state)
{
    (void)state;
    uint32_t slot;
    char key[32];
    uint64_t lease = lose_one(&slot);
    uint32_t leased = slot_of(lease, 0);
    core_close(c);
    snprintf(key, sizeof key, "lease/%llx", (unsigned long long)lease);
    store_change gone = { key, NULL, 0 };
    rig_change(&disk, &gone);
    start();
    tell(0, 1, SLOTS);
    tell(1, 1, SLOTS);
    assert_int_equal(pump(), 0);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(state_of(leased), POOL_QUARANTINED);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(bytes_of(leased), lease);
    host_tells(1, PORTS);
    core_close(c); /* slots that are quarantined when they are loaded are not written then */
    c = NULL;
}

/* Whose record names another tenant than the lease's. */
static void test_m98_another_tenant(void **state)
{
    (void)state;
    uint32_t slot;
    char key[32];
    uint64_t lease = lose_one(&slot);
    snprintf(key, sizeof key, "slot/%u.%u", box_node[box_of(slot)], c->t.slot[slot].device.number);
    core_close(c);
    change_record(key, "\"tenant\":\"red\"", "\"tenant\":\"blue\"");
    start();
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(core_slot_owner(c, slot), 0);
    assert_int_equal(bytes_of(slot), lease);
    core_close(c);
    c = NULL;
}

/* What was to be wiped is elsewhere: the other device is left alone. */
static void test_m98_another_device(void **state)
{
    (void)state;
    for (unsigned same = 0; same < 2; same++) {
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        core_disconnected(c, box_node[b]);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        box[b][number - 1].group++;
        if (!same)
            memcpy(box[b][number - 1].serial, "other", 6);
        comes_back(b);
        (void)after(1);
        assert_int_equal(state_of(slot), same ? POOL_FREE : POOL_QUARANTINED);
        assert_int_equal(bytes_of(slot), same ? 0 : lease);
        assert_int_equal(core_repair(c, slot).code, same ? CORE_E_STATE : CORE_OK);
        (void)after(1);
    }
}

/* And in a slot that is retained: it waits for its own. */
static void test_m98_another_device_retained(void **state)
{
    (void)state;
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    dxpu_control_device was = box[b][number - 1];
    memcpy(box[b][number - 1].serial, "other", 6);
    box[b][number - 1].state = DXPU_CONTROL_SLOT_WIPED;
    tell(b, number, 1);
    assert_int_equal(state_of(slot), POOL_BROKEN);
    assert_int_equal(core_slot_owner(c, slot), lease);
    assert_int_equal(pump(), 0);
    box[b][number - 1] = was;
    tell(b, number, 1);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    (void)after(1);
    assert_int_equal(bytes_of(slot), lease);
}

/* -- Another device -- */

/* The box was stopped, and comes back with what is in `now` there. */
static void comes_back_with(unsigned b, unsigned number, const dxpu_control_device *now)
{
    core_disconnected(c, box_node[b]);
    box[b][number - 1] = *now;
    comes_back(b);
}

/* So does the manager. */
static void restart_with(unsigned b, unsigned number, const dxpu_control_device *now)
{
    stop();
    box[b][number - 1] = *now;
    start();
    for (unsigned i = 0; i < BOXES; i++)
        tell(i, 1, SLOTS);
    pump();
    host_tells(1, PORTS);
    pump();
}

/* A used one in the place of one that was wiped, of another group, model or serial number. */
static void test_m77_another_device_is_not_lent(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 4; what++) {
        bool broken = what == 3;
        dxpu_control_device was = box[0][0], now = was;
        uint32_t slot = core_find_slot(c, box_node[0], 1);
        if (broken) {
            box[0][0].health = DXPU_CONTROL_HEALTH_BROKEN;
            tell(0, 1, 1);
            assert_int_equal(state_of(slot), POOL_BROKEN);
        }
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.group += what == 0;
        snprintf(now.model, sizeof now.model, "%s", what == 1 ? "other" : "nvme");
        snprintf(now.serial, sizeof now.serial, "%s", what ? "other" : "A0");
        bytes[0][0] = 77;
        comes_back_with(0, 1, &now);
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        assert_int_equal(pump(), 0);
        assert_int_equal(bytes[0][0], 77);
        was.epoch_seen = core_pool(c)->slot[slot].epoch; /* the control: its own, wiped */
        bytes[0][0] = 0;
        assert_int_equal(core_repair(c, slot).code, CORE_OK);
        assert_int_equal(pump(), 1);
        comes_back_with(0, 1, &was);
        assert_int_equal(state_of(slot), POOL_FREE);
    }
}

/* A broken one is not lent either. */
static void test_another_device_is_broken(void **state)
{
    (void)state;
    dxpu_control_device now = box[0][0];
    memcpy(now.serial, "other", 6);
    now.health = DXPU_CONTROL_HEALTH_BROKEN;
    comes_back_with(0, 1, &now);
    assert_int_equal(state_of(core_find_slot(c, box_node[0], 1)), POOL_BROKEN);
}

/* The box has another medium, which it serves to none: its slot has the same serial number, and
   another model and group.  An operator may have it wiped. */
static void test_m98_another_medium(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    core_disconnected(c, box_node[b]);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    dxpu_control_device now = box[b][number - 1];
    now.state = DXPU_CONTROL_SLOT_EMPTY;
    now.epoch = now.peer_node = now.peer_slot = 0;
    now.health = DXPU_CONTROL_HEALTH_BROKEN;
    now.group++;
    memcpy(now.model, "other", 6);
    bytes[b][number - 1] = 77;
    comes_back_with(b, number, &now);
    (void)after(1000);
    assert_int_equal(bytes[b][number - 1], 77);
    assert_int_equal(state_of(slot), POOL_BROKEN);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(pump(), 1);
    box[b][number - 1].health = DXPU_CONTROL_HEALTH_GOOD;
    tell(b, number, 1);
    (void)after(1);
    assert_int_equal(bytes[b][number - 1], 0);
    (void)core_repair(c, slot);
    assert_int_equal(state_of(slot), POOL_FREE);
}

/* What was to be wiped was wiped, or never written, and a used disk stands there since. */
static void test_m98_unknown_is_not_wiped(void **state)
{
    (void)state;
    for (unsigned had = 0; had < 2; had++) {
        core_request r = { .model = "nvme", .host = host_node, .count = 1 };
        uint64_t lease;
        bool existed;
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        if (had)
            pump();
        core_disconnected(c, box_node[b]);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        dxpu_control_device now = box[b][number - 1];
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.epoch = now.peer_node = now.peer_slot = 0;
        bytes[b][number - 1] = 77;
        comes_back_with(b, number, &now);
        (void)after(1000);
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        assert_int_equal(bytes[b][number - 1], 77);
        assert_int_equal(core_repair(c, slot).code, CORE_OK); /* the control */
        assert_int_equal(pump(), 1);
        assert_int_equal(bytes[b][number - 1], 0);
        assert_int_equal(state_of(slot), POOL_FREE);
    }
}

/* The same in a slot that is broken: what a repair wipes it says before. */
static void test_m103_repair_of_a_broken_slot(void **state)
{
    (void)state;
    core_erased e[SLOTS];
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    assert_int_equal(pump(), 1);
    assert_int_equal(core_break(c, slot, POOL_WHY_OPERATOR).code, CORE_OK);
    assert_int_equal(core_would_erase(c, CORE_DEED_REPAIR, slot, e, SLOTS), 0); /* the control */
    core_disconnected(c, box_node[b]);
    dxpu_control_device now = box[b][number - 1];
    now.state = DXPU_CONTROL_SLOT_EMPTY;
    bytes[b][number - 1] = 77;
    comes_back_with(b, number, &now);
    (void)after(1000);
    assert_int_equal(state_of(slot), POOL_BROKEN);
    assert_int_equal(core_would_erase(c, CORE_DEED_REPAIR, slot, e, SLOTS), 1);
    assert_true(e[0].slot == slot && !e[0].lease);
    assert_int_equal(core_repair(c, slot).code, CORE_OK);
    assert_int_equal(pump(), 1);
    assert_int_equal(bytes[b][number - 1], 0);
}

/* A disk that its box knows nothing of is in the slot of a parked lease.  A decision that
   the lease's data are wiped is not about that disk. */
static void test_m98_unknown_before_the_decision(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 3; what++) {
        bool ends = what == 1; /* its retention time; else it is released */
        bool says = what == 2; /* its box, on which medium it is */
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        core_result r = ends ? core_release(c, lease, true) : core_park(c, lease);
        assert_int_equal(r.code, CORE_OK);
        pump();
        dxpu_control_device now = box[b][number - 1];
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.epoch_seen = 0;
        now.medium = says ? 99 : 0;
        bytes[b][number - 1] = 77;
        comes_back_with(b, number, &now);
        assert_int_equal(state_of(slot), says ? POOL_QUARANTINED : POOL_LEASED);
        if (!ends)
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        assert_int_equal(ends ? after(KEPT_MS) : pump(), 0);
        (void)after(0);
        assert_null(pool_find_lease(core_pool(c), lease));
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        assert_int_equal(bytes[b][number - 1], 77);
        assert_int_equal(core_repair(c, slot).code, CORE_OK); /* the control */
        assert_int_equal(pump(), 1);
        assert_int_equal(bytes[b][number - 1], 0);
    }
}

/* Repaired and wiped, but the box was stopped before it said so, and started with another disk. */
static void test_m98_repair_of_the_disk_before(void **state)
{
    (void)state;
    for (unsigned same = 0; same < 2; same++) {
        uint32_t slot = core_find_slot(c, box_node[0], 1);
        dxpu_control_device now = box[0][0];
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        bytes[0][0] = 77;
        comes_back_with(0, 1, &now);
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        assert_int_equal(core_repair(c, slot).code, CORE_OK);
        core_disconnected(c, box_node[0]);
        bytes[0][0] = 78;
        box_instance += !same;
        comes_back(0);
        assert_int_equal(state_of(slot), same ? POOL_FREE : POOL_QUARANTINED); /* the control */
        assert_int_equal(bytes[0][0], same ? 0 : 78);
        (void)core_repair(c, slot);
        (void)pump();
        assert_int_equal(state_of(slot), POOL_FREE);
    }
}

/* A slot is lent, and its box is gone before it knows.  The slot is broken when it is back, with a
   used disk, or with the one that was wiped. */
static void test_m77_another_disk_while_broken(void **state)
{
    (void)state;
    for (unsigned used = 0; used < 2; used++) {
        core_request r = { .model = "nvme", .host = host_node, .count = 1 };
        uint64_t lease;
        bool existed;
        r.replace = CORE_REPLACE_NO;
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        loses(b);
        (void)after(GRACE_MS + 1);
        assert_int_equal(state_of(slot), POOL_BROKEN);
        if (used) {
            box[b][number - 1].state = DXPU_CONTROL_SLOT_EMPTY;
            bytes[b][number - 1] = 77;
        }
        box_instance++;
        tell(b, 1, SLOTS);
        pump(); /* before its host says anything */
        comes_back(b);
        (void)after(0);
        assert_int_equal(state_of(slot), used ? POOL_QUARANTINED : POOL_LEASED);
        assert_int_equal(bytes[b][number - 1], used ? 77 : lease); /* the control: it came up */
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)pump();
    }
}

/* What a slot has is not known while its box is not connected, nor while it has not said all. */
static void test_m98_repair_needs_the_box(void **state)
{
    (void)state;
    uint32_t slot = core_find_slot(c, box_node[0], 1);
    dxpu_control_device now = box[0][0];
    now.state = DXPU_CONTROL_SLOT_HELD;
    now.epoch = now.epoch_seen = core_pool(c)->epoch + 1;
    comes_back_with(0, 1, &now);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    core_disconnected(c, box_node[0]);
    assert_int_equal(core_repair(c, slot).code, CORE_E_AWAY);
    box[0][0].state = DXPU_CONTROL_SLOT_EMPTY; /* a used disk, after a start */
    box[0][0].epoch = 0;
    bytes[0][0] = 77;
    box_instance++;
    tell(0, 1, 2);
    assert_int_equal(core_repair(c, slot).code, CORE_E_AWAY);
    tell(0, 3, SLOTS - 2);
    (void)after(0);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(bytes[0][0], 77);
    assert_int_equal(core_repair(c, slot).code, CORE_OK); /* the control */
    assert_int_equal(pump(), 1);
}

/* A lease that the store does not know has data in a slot, with another medium when an operator
   has it repaired.  Then its box, or it and the manager, are started again, and it has the first
   medium again: that one was not repaired. */
static void test_m98_repair_of_another_disk(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 4; how++) { /* 0, 2: repaired with its own medium, the control */
        uint32_t slot = core_find_slot(c, box_node[0], 1);
        bool other = how % 2, both = how / 2;
        dxpu_control_device wiped = box[0][0], mine = wiped;
        mine.state = DXPU_CONTROL_SLOT_HELD;
        mine.epoch = mine.epoch_seen = core_pool(c)->epoch + 1;
        mine.peer_node = host_node + 1;
        mine.peer_slot = 1;
        comes_back_with(0, 1, &mine);
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        bytes[0][0] = 77;
        dxpu_control_device now = mine;
        if (other) {
            now.state = DXPU_CONTROL_SLOT_EMPTY;
            now.health = DXPU_CONTROL_HEALTH_BROKEN;
            now.epoch = now.peer_node = now.peer_slot = 0;
        }
        box_instance++;
        comes_back_with(0, 1, &now);
        assert_int_equal(core_repair(c, slot).code, CORE_OK);
        assert_int_equal(state_of(slot), POOL_WIPING);
        box_instance++; /* before it is ordered to wipe anything */
        if (both)
            restart_with(0, 1, &mine);
        else
            comes_back_with(0, 1, &mine);
        (void)after(0);
        slot = core_find_slot(c, box_node[0], 1);
        assert_int_equal(state_of(slot), other ? POOL_QUARANTINED : POOL_FREE);
        assert_int_equal(bytes[0][0], other ? 77 : 0);
        if (!other)
            continue;
        assert_true(says(CORE_EVENT_SLOT_QUARANTINED, "another medium than when it was repaired"));
        assert_int_equal(core_repair(c, slot).code, CORE_OK);
        assert_int_equal(pump(), 1);
        assert_int_equal(state_of(slot), POOL_FREE);
    }
}

/* The store is an old copy: it has a lease that is over, whose slot was wiped under that epoch, and
   has another disk since. */
static void test_m77_wiped_under_its_epoch(void **state)
{
    (void)state;
    for (unsigned knows = 0; knows < 2; knows++) {
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        pump();
        dxpu_control_device now = box[b][number - 1];
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.epoch_seen = knows ? now.epoch_seen : 0; /* the control: the box lost its state */
        bytes[b][number - 1] = knows ? 77 : lease;
        comes_back_with(b, number, &now);
        restart();
        assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
        (void)after(1);
        assert_int_equal(state_of(slot), knows ? POOL_QUARANTINED : POOL_LEASED);
        assert_int_equal(bytes[b][number - 1], knows ? 77 : lease);
    }
}

/* A box that lost its state: its slots are as it then calls them. */
static void forgets(unsigned b)
{
    core_disconnected(c, box_node[b]);
    box_instance++;
    for (unsigned i = 0; i < SLOTS; i++) {
        dxpu_control_device *d = &box[b][i];
        if (bytes[b][i])
            d->state = DXPU_CONTROL_SLOT_EMPTY;
        d->epoch = d->epoch_seen = d->peer_node = 0;
        d->peer_slot = 0;
    }
}

/* The manager is started again, and all but this box are heard of. */
static void restart_without(unsigned b)
{
    stop();
    start();
    tell(1 - b, 1, SLOTS);
    host_tells(1, PORTS);
    pump();
}

/* The store may be an old copy, in which a lease has what is another's now: where the box lost its
   state, too, neither knows whose data the slot has, before an operator says so. */
static void test_m77_old_copy_and_lost_state(void **state)
{
    (void)state;
    for (unsigned restarts = 0; restarts < 2; restarts++) {
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        forgets(b);
        if (restarts)
            restart_without(b);
        tell(b, 1, SLOTS);
        assert_int_equal(pump(), 0);
        assert_int_equal(bytes[b][number - 1], lease);
        assert_int_equal(state_of(slot), restarts ? POOL_QUARANTINED : POOL_LEASED);
        if (restarts) {
            assert_true(says(CORE_EVENT_SLOT_QUARANTINED, "does not know what data it has"));
            assert_int_equal(core_keep(c, slot).code, CORE_OK);
            assert_true(says(CORE_EVENT_SLOT_REPAIRED, "its data are the lease's"));
        }
        (void)after(3000);
        assert_int_equal(state_of(slot), POOL_LEASED);
        assert_int_equal(slot_of(lease, 0), slot);
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
        assert_int_equal(bytes_of(slot), lease);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        assert_int_equal(after(3000), 1);
    }
}

/* A box that lost its state learns again what it keeps: a retained slot is taken back. */
static void recovers_after_lost_state(bool restarts)
{
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    forgets(b);
    if (restarts)
        restart_without(b);
    tell(b, 1, SLOTS);
    assert_int_equal(pump(), 0);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    if (restarts) {
        assert_non_null(strstr(core_recover(c, slot).text, "dxpu repair --keep"));
        assert_int_equal(core_keep(c, slot).code, CORE_OK);
        assert_int_equal(pump(), 0);
    }
    assert_int_equal(box[b][number - 1].state, DXPU_CONTROL_SLOT_KEPT);
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    (void)after(3000);
    assert_int_equal(slot_of(lease, 0), slot);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
}

static void test_m93_after_lost_state(void **state)
{
    (void)state;
    recovers_after_lost_state(false);
}

static void test_m93_after_lost_state_and_restart(void **state)
{
    (void)state;
    recovers_after_lost_state(true);
}

/* The operator's word is refused where the box has another medium, or none that is known, or has
   seen an epoch, and where no lease is known; and a box that lost its state and has another disk is
   not trusted by itself. */
static void test_m104_keep_needs_the_medium(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    dxpu_control_device *d = &box[b][number - 1];
    uint64_t medium = d->medium;
    assert_int_equal(core_keep(c, slot).code, CORE_E_STATE); /* it is leased */
    assert_int_equal(core_keep(c, core_find_slot(c, box_node[1 - b], 1)).code, CORE_E_STATE);
    assert_int_equal(core_keep(c, 99).code, CORE_E_UNKNOWN);
    forgets(b);
    bytes[b][number - 1] = 77;
    d->medium = 99;
    tell(b, 1, SLOTS);
    (void)after(1000);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(bytes[b][number - 1], 77);
    assert_non_null(strstr(core_keep(c, slot).text, "another medium"));
    d->medium = 0;
    tell(b, 1, SLOTS);
    assert_non_null(strstr(core_keep(c, slot).text, "did not say"));
    d->medium = medium;
    bytes[b][number - 1] = lease;
    d->epoch_seen = 5;
    tell(b, 1, SLOTS);
    assert_non_null(strstr(core_keep(c, slot).text, "lost its state"));
    d->epoch_seen = 0;
    tell(b, 1, SLOTS);
    core_disconnected(c, box_node[b]);
    assert_non_null(strstr(core_keep(c, slot).text, "not connected"));
    tell(b, 1, SLOTS);
    assert_int_equal(core_keep(c, slot).code, CORE_OK);
    (void)after(3000);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(slot), lease);
}

/* Where the box knew a lease that the store does not, no word of an operator is asked for. */
static void test_m104_not_after_a_foreign_lease(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    box[b][number - 1].epoch_seen += 50;
    box[b][number - 1].epoch = box[b][number - 1].epoch_seen;
    tell(b, 1, SLOTS);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    tell(b, 1, SLOTS);
    forgets(b);
    tell(b, 1, SLOTS);
    (void)after(1000);
    assert_non_null(strstr(core_keep(c, slot).text, "did not say"));
    restart();
    assert_non_null(strstr(core_keep(c, slot).text, "did not say"));
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
}

/* What another device in its place keeps says nothing of the lease's: here, one that keeps none. */
static void test_m92_data_of_its_own_device(void **state)
{
    (void)state;
    for (unsigned gone = 0; gone < 2; gone++) { /* the box has another device there, or none */
        core_erased e[4];
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 0);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        dxpu_control_device was = box[b][number - 1], now = was;
        now.data = DXPU_CONTROL_DATA_NONE;
        now.health = gone ? DXPU_CONTROL_HEALTH_NONE : DXPU_CONTROL_HEALTH_GOOD;
        memcpy(now.serial, "other", 6);
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.epoch = 0;
        comes_back_with(b, number, &now);
        (void)after(2000);
        restart();
        assert_true(core_keeps_data(c, slot));
        assert_int_equal(slot_of(lease, 0), slot); /* by default it waits */
        assert_int_equal(core_would_erase(c, CORE_DEED_RELEASE, lease, e, 4), 1);
        was.state = DXPU_CONTROL_SLOT_HELD;
        comes_back_with(b, number, &was);
        if (!gone) /* it works again by itself where there was no other one */
            assert_int_equal(core_repair(c, slot).code, CORE_OK);
        assert_int_equal(state_of(slot), POOL_LEASED);
        assert_int_equal(pump(), 0);
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
        assert_int_equal(bytes_of(slot), lease);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)after(1);
        box[b][number - 1].data = DXPU_CONTROL_DATA_NONE; /* the control: its own */
        tell(b, number, 1);
        assert_false(core_keeps_data(c, slot));
        box[b][number - 1].data = DXPU_CONTROL_DATA_PERSISTENT;
        tell(b, number, 1);
    }
}

/* A device that is gone for a while is the same one when it is back: lent, wiped, or free. */
static void test_s242_a_device_is_gone_and_back(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 4; what++) { /* 3: another one is back */
        uint64_t lease = what ? lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0) : 0;
        uint32_t slot = lease ? slot_of(lease, 0) : 0;
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        dxpu_control_device *d = &box[b][number - 1], none = *d;
        none.health = DXPU_CONTROL_HEALTH_NONE;
        none.vendor++;                     /* what it says of none is nothing */
        comes_back_with(b, number, &none); /* a box that was started, and knows no server yet */
        assert_int_equal(state_of(slot), POOL_BROKEN);
        assert_int_equal(c->t.pool->slot[slot].reason, POOL_WHY_ABSENT);
        restart();
        assert_int_equal(state_of(slot), POOL_BROKEN);
        if (what == 2)
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        d->health = DXPU_CONTROL_HEALTH_GOOD;
        d->vendor--;
        d->device = (uint16_t)(d->device + (what == 3));
        tell(b, number, 1);
        (void)after(1000);
        assert_int_equal(state_of(slot) == POOL_BROKEN, what == 3);
        if (what == 1)
            assert_int_equal(bytes_of(slot), lease);
        if (what == 1)
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)after(1000);
        assert_true(what == 3 || state_of(slot) == POOL_FREE);
    }
}

/* A lease that was parked before it came up has no data: what its box calls empty is another's. */
static void test_m77_parked_before_it_was_up(void **state)
{
    (void)state;
    for (unsigned up = 0; up < 2; up++) {
        core_request r = { .tenant = "red", .model = "nvme", .host = host_node, .count = 1 };
        uint64_t lease;
        bool existed;
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        if (up)
            pump();
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        pump();
        dxpu_control_device now = box[b][number - 1];
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.epoch_seen = 0;
        if (!up)
            bytes[b][number - 1] = 77;
        comes_back_with(b, number, &now);
        if (up) /* it learned again what it keeps */
            assert_int_equal(box[b][number - 1].state, DXPU_CONTROL_SLOT_KEPT);
        restart();
        assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
        (void)after(1);
        assert_int_equal(state_of(slot), up ? POOL_LEASED : POOL_QUARANTINED);
        assert_int_equal(bytes[b][number - 1], up ? lease : 77);
        if (up)
            assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE); /* the control */
    }
}

/* Of a lease of two slots one came up.  A restart of the manager does not forget which. */
static void test_m92_one_was_up(void **state)
{
    (void)state;
    core_request r = {
        .tenant = "red", .model = "nvme", .host = host_node, .count = 2, .replace = CORE_REPLACE_YES
    };
    uint64_t lease;
    bool existed;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    uint32_t slot = slot_of(lease, 0), other = slot_of(lease, 1);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    deaf = c->t.slot[other].device.number;
    pump();
    deaf = 0;
    assert_int_equal(core_slot_phase(c, slot), CORE_UP);
    assert_int_not_equal(core_slot_phase(c, other), CORE_UP);
    dxpu_control_device now = box[b][number - 1];
    now.state = DXPU_CONTROL_SLOT_EMPTY;
    now.epoch = now.epoch_seen = 0;
    restart_with(b, number, &now);
    assert_int_equal(bytes[b][number - 1], lease);
    assert_int_equal(state_of(slot), POOL_QUARANTINED); /* the store may be an old copy: M-77 */
    assert_int_equal(core_slot_owner(c, slot), lease);
    assert_int_equal(core_keep(c, slot).code, CORE_OK);
    assert_int_equal(state_of(slot), POOL_RETAINED);
}

/* While the store has no room no order is given on what a box said before. */
static void test_m100_nothing_is_ordered_unseen(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 3; what++) { /* another device; a broken one; not up yet */
        core_request r = { .model = "nvme", .host = host_node, .count = 1 };
        uint64_t lease;
        bool existed;
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
        uint32_t slot = slot_of(lease, 0);
        unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
        if (what < 2)
            pump();
        core_disconnected(c, box_node[b]);
        if (what < 2)
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        dxpu_control_device now = box[b][number - 1];
        now.state = DXPU_CONTROL_SLOT_EMPTY;
        now.epoch = 0;
        if (what == 1)
            now.health = DXPU_CONTROL_HEALTH_BROKEN;
        else
            memcpy(now.serial, what ? now.serial : "other", 6);
        bytes[b][number - 1] = 77;
        disk.fail_after = 0;
        disk.fault = STORE_E_FULL;
        comes_back_with(b, number, &now);
        assert_int_equal(after(COREI_REFUSE_MS / 2), 0);
        assert_int_equal(box[b][number - 1].epoch, 0);
        assert_int_equal(after(2 * COREI_REFUSE_MS), 0);
        assert_int_equal(box[b][number - 1].epoch, 0);
        assert_int_equal(bytes[b][number - 1], 77);
        disk.fail_after = UINT_MAX;
        assert_int_equal(after(2 * COREI_REFUSE_MS), 0);
        assert_int_equal(state_of(slot), what == 1 ? POOL_BROKEN : POOL_QUARANTINED);
        assert_int_equal(bytes[b][number - 1], 77);
        (void)core_release(c, lease, false);
        (void)pump(); /* of another slot, which it may have by now */
        assert_int_equal(bytes[b][number - 1], 77);
        box[b][number - 1].health = DXPU_CONTROL_HEALTH_GOOD;
        tell(b, number, 1);
        assert_int_equal(core_repair(c, slot).code, CORE_OK); /* the control: it goes on */
        assert_int_equal(pump(), 1);
    }
}

/* -- Nodes, orders, numbers, places -- */

static void test_m99_forget(void **state)
{
    (void)state;
    uint32_t slot;
    (void)lose_one(&slot);
    unsigned b = box_of(slot);
    core_disconnected(c, box_node[b]);
    box_there[b] = false;
    assert_int_equal(core_forget(c, box_node[b]).code, CORE_E_STATE);
    assert_non_null(strstr(core_forget(c, box_node[b]).text, "retains data"));
    assert_int_equal(core_discard(c, slot).code, CORE_OK);
    assert_int_equal(core_forget(c, box_node[b]).code, CORE_OK);
}

/* The box has a lease that the store does not, and the store cannot be written just then. */
static void test_m100_no_unbind_above_its_own(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    unsigned b = box_of(slot), number = c->t.slot[slot].device.number;
    core_disconnected(c, box_node[b]);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    pump();
    box[b][number - 1].epoch = box[b][number - 1].epoch_seen = core_pool(c)->epoch + 100;
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    tell(b, 1, SLOTS);
    assert_int_equal(pump(), 0);
    assert_int_equal(bytes_of(slot), lease);
    disk.fail_after = UINT_MAX;
    assert_int_equal(after(2000), 0);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
}

/* The store is put back as it was repeatedly, each time at once, and leases are made as fast
   as they are granted.  Returns how many numbers were given twice; *refused: how often none was. */
static unsigned outpace_the_clock(uint64_t early, unsigned *refused)
{
    enum { LIVES = 4, TRIES = 200 }; /* each leaves a slot behind that is in doubt */
    static uint64_t given[LIVES * TRIES];
    unsigned count = 0, twice = 0;
    core_request r = { .model = "nvme", .host = host_node, .count = 1 };
    bool existed;
    rig_store copy = rig_store_copy(&disk);
    for (unsigned life = 0; life < LIVES; life++) {
        core_close(c);
        rig_store_free(&disk);
        disk = rig_store_copy(&copy);
        start_early(early);
        tell(0, 1, SLOTS);
        tell(1, 1, SLOTS);
        host_tells(1, PORTS);
        pump();
        for (unsigned i = 0; i < TRIES; i++) {
            uint64_t lease;
            core_result made = core_create(c, &r, &lease, &existed);
            *refused += made.code == CORE_E_PACE;
            if (made.code == CORE_OK) {
                for (unsigned j = 0; j < count; j++)
                    twice += given[j] == lease;
                given[count++] = lease;
                assert_int_equal(core_release(c, lease, false).code, CORE_OK);
            }
            (void)after(i % 4 == 0); /* four times as fast as there are milliseconds */
        }
    }
    rig_store_free(&copy);
    assert_true(count > LIVES);
    return twice;
}

static void test_m101_never_twice(void **state)
{
    (void)state;
    unsigned refused = 0, free_runs = 0;
    assert_int_equal(outpace_the_clock(0, &refused), 0);
    assert_true(refused > 0);
    (void)after(1000);
    assert_true(outpace_the_clock(EARLY, &free_runs) > 0); /* the control: nothing holds it back */
    assert_int_equal(free_runs, 0);
}

/* What was held back is made when its time has come; the clock of a run whose tables are ahead of
   the time of day (it was set back) is the monotonic one. */
static void test_m101_waits_for_the_clock(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .host = host_node, .count = 1 };
    uint64_t lease, last = 0;
    bool existed;
    for (unsigned back = 0; back < 2; back++) {
        core_close(c);
        unix_ms -= back ? 86400000 : 0;
        start_early(0);
        assert_int_equal(c->serials_ahead, back);
        tell(0, 1, SLOTS);
        tell(1, 1, SLOTS);
        host_tells(1, PORTS);
        pump();
        (void)after(1000);
        for (unsigned i = 0; i < 2; i++) {
            unsigned made = 0;
            while (core_create(c, &r, &lease, &existed).code == CORE_OK) {
                assert_true(lease >> POOL_INDEX_BITS > last);
                last = lease >> POOL_INDEX_BITS;
                assert_int_equal(core_release(c, lease, false).code, CORE_OK);
                pump();
                made++;
            }
            assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_PACE);
            assert_in_range(made, i ? 25 : 250, i ? 26 : 262);
            (void)after(100);
        }
    }
}

/* A run whose clock is set back while it runs: by a step that is confirmed, or by a correction. */
static void test_m101_continues_when_the_clock_is_set_back(void **state)
{
    static const uint64_t by[] = { 7200000, 50000 };
    (void)state;
    core_request r = { .model = "nvme", .host = host_node, .count = 1 };
    for (unsigned i = 0; i < 2; i++) {
        uint64_t lease, before = 0, made = 0;
        bool existed;
        core_close(c);
        unix_ms += 86400000;
        start_early(0);
        assert_false(c->serials_ahead);
        tell(0, 1, SLOTS);
        tell(1, 1, SLOTS);
        host_tells(1, PORTS);
        pump();
        (void)after(1000);
        unix_ms -= by[i];
        (void)after(1);
        assert_int_equal(core_confirm_clock(c).code, i ? CORE_E_STATE : CORE_OK);
        (void)after(1000);
        while (core_create(c, &r, &lease, &existed).code == CORE_OK) { /* two seconds' worth */
            assert_true(lease > before);
            before = lease;
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
            pump();
            made++;
        }
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_PACE);
        assert_in_range(made, 500, 530);
    }
}

static void test_m102_replace_keeps_the_group(void **state)
{
    (void)state;
    uint64_t lease = lease_up(4, POOL_SAME_BOX, CORE_REPLACE_DEFAULT, 0);
    uint32_t slot = slot_of(lease, 0);
    assert_int_equal(core_replace(c, slot, POOL_WHY_OPERATOR, false).code, CORE_E_CAPACITY);
    assert_non_null(strstr(core_replace(c, slot, POOL_WHY_OPERATOR, false).text, "or force it"));
    assert_int_equal(slot_of(lease, 0), slot);
    assert_true(pool_need_kept(core_pool(c), lease));
    assert_int_equal(core_replace(c, slot, POOL_WHY_OPERATOR, true).code, CORE_OK);
    assert_false(pool_need_kept(core_pool(c), lease));
    pump();
    uint64_t any = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 0); /* the control */
    assert_int_equal(core_replace(c, slot_of(any, 0), POOL_WHY_OPERATOR, false).code, CORE_OK);
    pump();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* -- An old copy of the store is put back -- */

static rig_store backup;

static void back_up(void)
{
    backup = rig_store_copy(&disk);
}

static void put_back(void)
{
    (void)after(1000);
    stop();
    rig_store_free(&disk);
    disk = backup;
    start();
    for (unsigned b = 0; b < BOXES; b++)
        tell(b, 1, SLOTS);
    host_tells(1, PORTS);
    assert_int_equal(pump(), 0); /* nothing is wiped */
}

static core_adopted may_adopt(uint32_t slot)
{
    core_adoption a;
    assert_true(core_may_adopt(c, slot, true, "", &a));
    assert_true((a.what == CORE_ADOPT_NOT) == (a.why[0] != 0));
    return a.what;
}

/* Leases that box and host agree on go on, what is wiped is free, and the rest is left. */
static void test_m170_adopt(void **state)
{
    (void)state;
    silent = true;
    core_adoption a;
    back_up();
    uint64_t runs = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint64_t over = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint64_t parked = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(runs, 0), wiped = slot_of(over, 0), kept = slot_of(parked, 0);
    uint64_t epoch = core_pool(c)->slot[slot].epoch;
    assert_false(core_may_adopt(c, slot, true, "", &a));
    assert_int_equal(core_release(c, over, false).code, CORE_OK);
    assert_int_equal(core_park(c, parked).code, CORE_OK);
    (void)pump();
    assert_int_equal(state_of(wiped), POOL_FREE);
    put_back();
    assert_int_equal(may_adopt(slot), CORE_ADOPT_LEASE);
    assert_int_equal(may_adopt(wiped), CORE_ADOPT_FREE);
    assert_int_equal(may_adopt(kept), CORE_ADOPT_NOT);
    assert_int_equal(state_of(slot), POOL_QUARANTINED); /* to look changes nothing */
    assert_int_equal(core_adopt(c, kept, true, "", &a).code, CORE_E_STATE);
    assert_non_null(strstr(a.why, "keeps data of a lease"));
    assert_int_equal(core_adopt(c, wiped, true, "", &a).code, CORE_OK);
    assert_int_equal(core_adopt(c, slot, true, "blue", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(state_of(wiped), POOL_FREE);
    assert_true(a.lease && a.lease != runs);
    assert_int_equal(slot_of(a.lease, 0), slot);
    assert_int_equal(core_lease_now(c, a.lease), CORE_LEASE_ACTIVE);
    assert_int_equal(core_pool(c)->slot[slot].epoch, epoch);
    assert_true(says(CORE_EVENT_LEASE_ADOPTED, "did not know"));
    uint32_t used, limit;
    core_quota(c, "blue", &used, &limit);
    assert_int_equal(used, 1);
    assert_false(core_may_adopt(c, slot, true, "", &a)); /* once */
    assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_E_STATE);
    uint64_t lease = pool_lease_number(core_pool(c), core_pool(c)->slot[slot].lease);
    restart();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(slot), runs);
    assert_int_equal(bytes_of(kept), parked);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK); /* a lease as any */
    assert_int_equal(pump(), 1);
    assert_int_equal(bytes_of(slot), 0);
    assert_int_equal(state_of(slot), POOL_FREE);
}

/* As an import leaves the record: see hold_expiries() in store_copy.c. */
static void put_back_held(void)
{
    (void)after(1000);
    stop();
    rig_store_free(&disk);
    disk = backup;
    change_record("meta", "\"held\":false", "\"held\":true");
    start();
    for (unsigned b = 0; b < BOXES; b++)
        tell(b, 1, SLOTS);
    host_tells(1, PORTS);
    assert_int_equal(pump(), 0);
}

/* Leases that were extended since the copy, and what was recovered, outlive its times. */
static void test_m96_copy_ends_nothing(void **state)
{
    (void)state;
    int64_t step;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 50), ended;
    uint32_t kept, slot = slot_of(lease, 0);
    ended = lose_one(&kept);
    back_up();
    assert_int_equal(core_extend(c, lease, 9000).code, CORE_OK);
    (void)after(60000);
    put_back_held();
    assert_int_equal(after(1000), 0);
    assert_true(core_clock_held(c, &step));
    assert_true(says(CORE_EVENT_ALARM, "imported copy"));
    assert_int_equal(after(2 * KEPT_MS), 0);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(bytes_of(kept), ended);
    assert_int_equal(core_extend(c, lease, 9000).code, CORE_OK);
    assert_int_equal(core_confirm_clock(c).code, CORE_OK);
    assert_int_equal(after(KEPT_MS / 2), 0); /* its time begins when it is confirmed */
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(after(KEPT_MS), 1);
    assert_int_equal(bytes_of(kept), 0);
    restart();
    assert_false(core_clock_held(c, &step));
}

/* The store has the lease, under the epoch before. */
static void test_m170_later_epoch(void **state)
{
    (void)state;
    core_adoption a;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    back_up();
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    (void)pump();
    uint64_t epoch = core_pool(c)->slot[slot].epoch;
    put_back();
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_true(core_may_adopt(c, slot, false, "", &a)); /* its box says that it is that lease */
    assert_int_equal(a.what, CORE_ADOPT_BACK);
    assert_int_equal(core_adopt(c, slot, false, "", &a).code, CORE_OK);
    assert_true(a.lease == lease && core_pool(c)->slot[slot].epoch == epoch);
    assert_int_equal(pump(), 0);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    restart();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(slot), lease);
}

/* Box and host do not agree, or one of them says nothing. */
static void test_m171_not_adopted(void **state)
{
    (void)state;
    silent = true;
    core_adoption a;
    back_up();
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    dxpu_control_device *port = host, was;
    while (!port->epoch)
        port++;
    put_back();
    assert_int_equal(may_adopt(slot), CORE_ADOPT_LEASE); /* the control */
    was = *port;
    port->epoch++;
    host_tells(1, PORTS);
    assert_int_equal(may_adopt(slot), CORE_ADOPT_NOT);
    *port = was;
    port->peer_slot++;
    host_tells(1, PORTS);
    assert_int_equal(may_adopt(slot), CORE_ADOPT_NOT);
    *port = was;
    port->peer_node = 77;
    host_tells(1, PORTS);
    assert_int_equal(may_adopt(slot), CORE_ADOPT_NOT);
    *port = was;
    host_tells(1, PORTS);
    core_disconnected(c, host_node);
    assert_int_equal(may_adopt(slot), CORE_ADOPT_NOT);
    host_tells(1, PORTS);
    loses(box_of(slot));
    assert_int_equal(may_adopt(slot), CORE_ADOPT_NOT);
    assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_E_STATE);
    comes_back(box_of(slot));
    assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_OK);
    assert_int_equal(bytes_of(slot), lease);
}

static void test_m170_store_fails(void **state)
{
    (void)state;
    silent = true;
    core_adoption a;
    back_up();
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    put_back();
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_int_equal(core_adopt(c, slot, true, "green", &a).code, CORE_E_STORE);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(core_pool(c)->leases, 0);
    disk.fail_after = UINT_MAX;
    (void)after(2000);
    assert_int_equal(core_adopt(c, slot, true, "green", &a).code, CORE_OK);
    assert_int_equal(core_lease_now(c, a.lease), CORE_LEASE_ACTIVE);
}

/* The tenant's name is its host's owner, and there is room for it in larger tables alone. */
static void test_m170_owner_in_larger_tables(void **state)
{
    (void)state;
    silent = true;
    core_adoption a;
    uint32_t used, limit;
    back_up();
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    put_back();
    assert_int_equal(core_set_owner(c, host_node, "of-its-host").code, CORE_OK);
    for (unsigned i = 0; core_pool(c)->tenants < core_pool(c)->limits.tenants; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(core_set_tenant(c, name, 3).code, CORE_OK);
    }
    assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_OK);
    core_quota(c, "of-its-host", &used, &limit);
    assert_int_equal(used, 1);
    assert_int_equal(core_lease_now(c, a.lease), CORE_LEASE_ACTIVE);
}

/* What is done by the operator's word for one slot, named, or for all. */
static core_adopted may(uint32_t slot, bool named, const char *tenant, const char *part)
{
    core_adoption a;
    assert_true(core_may_adopt(c, slot, named, tenant, &a));
    if (part && !strstr(a.why, part))
        fail_msg("%s", a.why);
    return a.what;
}

/* One slot alone can be lent: the next lease has it, too. */
static uint32_t one_slot(void)
{
    for (uint32_t i = 1; i < core_pool(c)->slots; i++)
        assert_int_equal(core_break(c, i, POOL_WHY_OPERATOR).code, CORE_OK);
    (void)pump();
    return 0;
}

static uint64_t lease_of(const char *tenant)
{
    core_request r = { .model = "nvme", .host = host_node, .count = 1, .replace = CORE_REPLACE_NO };
    uint64_t lease;
    bool existed;
    snprintf(r.tenant, sizeof r.tenant, "%s", tenant);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    return lease;
}

/* The lease that the store has was attached and parked since: its box says whose data it keeps.  No
   host has them before the lease is attached. */
static void test_m177_kept_under_a_later_epoch(void **state)
{
    (void)state;
    core_adoption a;
    for (unsigned parked = 0; parked < 2; parked++) {
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0);
        if (parked)
            assert_int_equal(core_park(c, lease).code, CORE_OK);
        (void)pump();
        back_up();
        if (!parked)
            assert_int_equal(core_park(c, lease).code, CORE_OK);
        (void)pump();
        assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
        (void)pump();
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        (void)pump();
        put_back();
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        if (!parked) {
            assert_int_equal(may(slot, true, "", "park that lease"), CORE_ADOPT_NOT);
            assert_int_equal(core_park(c, lease).code, CORE_OK);
            assert_int_equal(pump(), 0);
        }
        assert_int_equal(may(slot, false, "", "name the slot"), CORE_ADOPT_NOT);
        assert_int_equal(may(slot, true, "blue", "not of blue"), CORE_ADOPT_NOT);
        assert_int_equal(may(slot, true, "", NULL), CORE_ADOPT_KEPT);
        assert_int_equal(core_attach(c, lease, host_node).code, CORE_E_STATE);
        assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_OK);
        assert_true(a.lease == lease && !a.host);
        assert_int_equal(pump(), 0);
        assert_int_equal(state_of(slot), POOL_LEASED);
        restart();
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
        assert_int_equal(bytes_of(slot), lease);
        assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
        (void)pump();
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE); /* it reads its own data */
        assert_int_equal(bytes_of(slot), lease);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        assert_int_equal(pump(), 1);
    }
}

/* So it is with what is retained for a lease: its tenant recovers it. */
static void test_m177_retained_under_a_later_epoch(void **state)
{
    (void)state;
    core_adoption a;
    uint32_t slot;
    uint64_t lease = lose_one(&slot);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    back_up();
    uint64_t epoch = core_pool(c)->slot[slot].epoch;
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)pump();
    put_back();
    assert_true(core_pool(c)->slot[slot].epoch > epoch);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(core_recover(c, slot).code, CORE_E_STATE);
    assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    restart();
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(core_recover(c, slot).code, CORE_OK);
    (void)pump();
    assert_int_equal(slot_of(lease, 0), slot);
    assert_int_equal(bytes_of(slot), lease);
}

/* Its lease has a host in the copy, which may be another tenant's by now, and no box says that it
   was parked: the slot is not bound there. */
static void test_m177_retained_where_the_host_is_old(void **state)
{
    (void)state;
    core_adoption a;
    for (unsigned later = 0; later < 2; later++) {
        uint32_t slot, other;
        uint64_t lease = lose_one(&slot);
        other = slot_of(lease, 0);
        back_up();
        if (later)
            assert_int_equal(core_recover(c, slot).code, CORE_OK);
        (void)pump();
        if (later)
            assert_int_equal(core_discard(c, other).code, CORE_OK);
        (void)pump();
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        (void)after(1000);
        stop();
        rig_store_free(&disk);
        disk = backup;
        start();
        tell(box_of(slot), 1, SLOTS);
        host_tells(1, PORTS);
        assert_int_equal(after(2000), 0);
        assert_int_equal(state_of(slot), later ? POOL_QUARANTINED : POOL_RETAINED);
        if (later)
            assert_int_equal(may(slot, true, "", "park that lease"), CORE_ADOPT_NOT);
        else
            assert_int_equal(core_recover(c, slot).code, CORE_E_AWAY);
        assert_int_equal(core_recover_all(c, lease).code, later ? CORE_E_STATE : CORE_E_AWAY);
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        if (later)
            assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_OK);
        assert_int_equal(core_recover(c, slot).code, CORE_OK); /* the control: no host has it */
        assert_int_equal(pump(), 0);
        assert_int_equal(box[box_of(slot)][slot % SLOTS].state, DXPU_CONTROL_SLOT_KEPT);
        assert_int_equal(bytes_of(slot), lease);
        tell(!box_of(slot), 1, SLOTS);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)after(2000);
    }
}

/* The copy's time was almost over, of a retained slot or of a lease that had ended. */
static void test_m177_retention_begins_again(void **state)
{
    (void)state;
    core_adoption a;
    for (unsigned ended = 0; ended < 2; ended++) {
        uint32_t slot;
        uint64_t lease = ended ? lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0) : lose_one(&slot);
        slot = ended ? slot_of(lease, 0) : slot;
        if (ended)
            assert_int_equal(core_release(c, lease, true).code, CORE_OK);
        assert_int_equal(after(KEPT_MS - 2000), 0);
        restart();
        back_up();
        if (ended) {
            assert_int_equal(core_extend(c, lease, 9000).code, CORE_OK);
            assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
        } else {
            assert_int_equal(core_recover(c, slot).code, CORE_OK);
        }
        (void)pump();
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        (void)pump();
        put_back();
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_OK);
        assert_int_equal(after(KEPT_MS / 2), 0);
        assert_int_equal(core_slot_state(c, slot), POOL_RETAINED);
        restart();
        assert_int_equal(after(KEPT_MS / 2 - 1), 0);
        assert_int_equal(bytes_of(slot), lease);
        assert_true(after(1000) > 0); /* it ends */
        assert_int_equal(bytes_of(slot), 0);
    }
}

/* What another tenant's lease left there since is not given to the one of the store, by any word;
   nor what a box of an older program keeps, which does not say whose it is. */
static void test_m177_kept_of_another_lease(void **state)
{
    (void)state;
    core_adoption a;
    uint32_t slot = one_slot();
    for (unsigned i = 0; i < 2; i++) {
        silent = i == 1;
        uint64_t ended = lease_of("red");
        back_up();
        assert_int_equal(core_release(c, ended, false).code, CORE_OK);
        (void)pump();
        uint64_t later = lease_of("blue");
        assert_int_equal(core_park(c, later).code, CORE_OK);
        (void)pump();
        put_back();
        assert_int_equal(state_of(slot), POOL_QUARANTINED);
        const char *text = i ? "does not report of which" : "keeps data of lease";
        assert_int_equal(may(slot, true, "", text), CORE_ADOPT_NOT);
        assert_int_equal(may(slot, true, "red", text), CORE_ADOPT_NOT);
        assert_int_equal(core_adopt(c, slot, true, "red", &a).code, CORE_E_STATE);
        assert_int_equal(bytes_of(slot), later);
        assert_int_equal(core_release(c, ended, false).code, CORE_OK);
        assert_int_equal(pump(), 0);
        assert_int_equal(core_repair(c, slot).code, CORE_OK);
        assert_int_equal(pump(), 1);
    }
}

/* It moved to another slot since, which has its later data. */
static void test_m177_kept_where_the_lease_was_before(void **state)
{
    (void)state;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_YES, 0);
    uint32_t slot = slot_of(lease, 0), other;
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)pump();
    back_up();
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_break(c, slot, POOL_WHY_OPERATOR).code, CORE_OK);
    (void)pump();
    other = slot_of(lease, 0);
    assert_int_not_equal(other, slot);
    assert_int_equal(box[slot / SLOTS][slot % SLOTS].state, DXPU_CONTROL_SLOT_KEPT);
    put_back();
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(may(slot, true, "", "may be later ones"), CORE_ADOPT_NOT);
}

/* red's lease was over, and blue's has the same slots of box and host, when red's was restored. */
static uint64_t put_back_anothers(uint32_t slot, uint64_t *running)
{
    uint64_t ended = lease_of("red");
    back_up();
    assert_int_equal(core_release(c, ended, false).code, CORE_OK);
    (void)pump();
    *running = lease_of("blue");
    assert_int_equal(slot_of(*running, 0), slot);
    put_back();
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(slot_of(ended, 0), slot);
    return ended;
}

/* It is not red's by any word, and blue's once red's is released, which wipes nothing. */
static void test_m174_anothers_lease(void **state)
{
    (void)state;
    core_adoption a;
    uint32_t slot = one_slot(), used, limit;
    uint64_t running, ended = put_back_anothers(slot, &running);
    for (unsigned named = 0; named < 2; named++) {
        assert_int_equal(may(slot, named, "", "ended or moved since"), CORE_ADOPT_NOT);
        assert_int_equal(may(slot, named, "red", "ended or moved since"), CORE_ADOPT_NOT);
        assert_int_equal(core_adopt(c, slot, named, "", &a).code, CORE_E_STATE);
    }
    assert_int_equal(core_release(c, ended, false).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    assert_int_equal(may(slot, true, "", "does not know the tenant"), CORE_ADOPT_NOT);
    assert_int_equal(may(slot, true, "red", "another tenant's than red"), CORE_ADOPT_NOT);
    assert_int_equal(may(slot, false, "blue", NULL), CORE_ADOPT_LEASE);
    assert_int_equal(core_set_tenant(c, "blue", 3).code, CORE_OK);
    assert_int_equal(core_set_owner(c, host_node, "red").code, CORE_OK); /* as it once was */
    assert_int_equal(core_adopt(c, slot, false, "", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    core_quota(c, "blue", &used, &limit);
    assert_int_equal(used, 1);
    assert_int_equal(core_lease_now(c, a.lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(slot), running);
}

/* blue's device may not reach others directly: red, whose lease the store has there, may. */
static void test_m182_not_by_anothers_tenant(void **state)
{
    (void)state;
    core_adoption a;
    uint32_t slot = one_slot();
    uint64_t running;
    const bool no = false;
    assert_int_equal(core_change_tenant(c, "blue", NULL, &no).code, CORE_OK);
    ons = 0;
    uint64_t ended = put_back_anothers(slot, &running);
    assert_int_equal(ons, 0);
    assert_int_equal(core_release(c, ended, false).code, CORE_OK);
    assert_int_equal(core_adopt(c, slot, false, "", &a).code, CORE_OK);
    (void)pump();
    assert_int_equal(ons, 0);
    assert_int_equal(core_release(c, a.lease, false).code, CORE_OK);
    (void)pump();
    uint64_t own = lease_of("red"); /* the control: adopted, it may */
    back_up();
    assert_int_equal(core_park(c, own).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_attach(c, own, host_node).code, CORE_OK);
    (void)pump();
    put_back();
    ons = 0;
    assert_int_equal(core_adopt(c, slot, false, "", &a).code, CORE_OK);
    (void)pump();
    assert_int_equal(ons, 1);
}

/* The copy is put back.  True: an order to bind follows, before the host has come or after. */
static bool binds_after_copy(bool host_first)
{
    core_order o;
    bool binds = false;
    (void)after(1000);
    stop();
    rig_store_free(&disk);
    disk = backup;
    start();
    for (unsigned b = 0; b < BOXES; b++)
        tell(b, 1, SLOTS);
    if (host_first)
        host_tells(1, PORTS);
    while (core_next_order(c, &o)) {
        dxpu_control_done done;
        binds = binds || o.m.type == DXPU_CONTROL_BIND;
        if (o.node == host_node)
            host_obeys(&o, &done);
        else
            box_obeys(o.node == box_node[0] ? 0 : 1, &o, &done);
        assert_true(core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &done));
        for (unsigned b = 0; b < BOXES; b++)
            tell(b, 1, SLOTS);
    }
    host_tells(1, PORTS);
    assert_int_equal(pump(), 0);
    return binds;
}

/* It was parked, or ended, since, and has its host again in the copy: that one may be another
   tenant's by now. */
static void test_m179_parked_since(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool ended = i % 2, host_first = i / 2;
        uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0);
        back_up();
        assert_int_equal(ended ? core_release(c, lease, true).code : core_park(c, lease).code,
                         CORE_OK);
        assert_false(binds_after_copy(host_first));
        assert_int_equal(state_of(slot), POOL_LEASED);
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
        assert_true(says(CORE_EVENT_LEASE_PARKED, "since this copy"));
        restart();
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
        assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
        (void)pump();
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
        assert_int_equal(bytes_of(slot), lease);
    }
}

/* One slot of it is lent to its host still: the other one, which it left, is bound under a later
   epoch than its box has ended, and nothing is taken from the guest. */
static void test_m179_one_slot_goes_on(void **state)
{
    (void)state;
    uint64_t lease = lease_up(2, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t left = slot_of(lease, 0), other = slot_of(lease, 1);
    uint64_t epoch = core_pool(c)->slot[left].epoch;
    back_up();
    dxpu_control_device *d = &box[left / SLOTS][left % SLOTS];
    for (unsigned i = 0; i < PORTS; i++)
        if (host[i].epoch == epoch)
            host[i] = (dxpu_control_device){ .number = (uint16_t)(i + 1) };
    d->state = DXPU_CONTROL_SLOT_KEPT;
    d->epoch = d->peer_node = d->peer_slot = 0;
    assert_true(binds_after_copy(false));
    assert_true(core_pool(c)->slot[left].epoch > epoch);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(bytes_of(left), lease);
    assert_int_equal(bytes_of(other), lease);
    assert_false(says(CORE_EVENT_LEASE_PARKED, "since this copy"));
}

/* So it is where its host has forgotten all, so that the other one gets a new epoch first (M-75),
   and where the other one's device is broken, but lent. */
static void test_m179_goes_on_with_new_epochs(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool empty = i % 2, broken = i / 2;
        uint64_t lease = lease_up(2, POOL_ANY, CORE_REPLACE_NO, 0);
        uint32_t left = slot_of(lease, 1), other = slot_of(lease, 0);
        uint64_t epoch = core_pool(c)->slot[left].epoch;
        back_up();
        dxpu_control_device *d = &box[left / SLOTS][left % SLOTS];
        for (unsigned p = 0; p < PORTS; p++)
            if (empty || host[p].epoch == epoch)
                host[p] = (dxpu_control_device){ .number = (uint16_t)(p + 1) };
        d->state = DXPU_CONTROL_SLOT_KEPT;
        d->epoch = d->peer_node = d->peer_slot = 0;
        d = &box[other / SLOTS][other % SLOTS];
        d->health = broken ? DXPU_CONTROL_HEALTH_BROKEN : DXPU_CONTROL_HEALTH_GOOD;
        assert_true(binds_after_copy(true));
        assert_false(says(CORE_EVENT_LEASE_PARKED, "since this copy"));
        assert_true(core_pool(c)->slot[left].epoch > epoch);
        assert_int_equal(box[left / SLOTS][left % SLOTS].state, DXPU_CONTROL_SLOT_HELD);
        assert_int_equal(state_of(other), broken ? POOL_BROKEN : POOL_LEASED);
        if (!broken)
            assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
        d->health = DXPU_CONTROL_HEALTH_GOOD;
        tell(box_of(other), 1, SLOTS);
        assert_int_equal(bytes_of(left), lease);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)after(2 * COREI_YIELD_MS);
    }
}

/* A slot that this run gave the lease, in place of a quarantined one, was bound because the store
   names that host: it is no proof of it. */
static void test_m179_own_bind_proves_nothing(void **state)
{
    (void)state;
    uint64_t lease = lease_up(2, POOL_SPREAD, CORE_REPLACE_YES, 0);
    uint32_t other = slot_of(lease, 0), left = slot_of(lease, 1);
    back_up();
    assert_int_equal(core_break(c, left, POOL_WHY_OPERATOR).code, CORE_OK);
    (void)pump();
    assert_int_not_equal(slot_of(lease, 1), left);
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)after(1000);
    stop();
    rig_store_free(&disk);
    disk = backup;
    start();
    host_tells(1, PORTS);
    tell(box_of(left), 1, SLOTS);
    (void)pump();
    tell(box_of(other), 1, SLOTS);
    (void)pump();
    assert_int_equal(slot_of(lease, 1), left);
    assert_int_not_equal(slot_of(lease, 0), other); /* the control: bound by this run */
    assert_int_equal(box[box_of(slot_of(lease, 0))][slot_of(lease, 0) % SLOTS].state,
                     DXPU_CONTROL_SLOT_HELD);
    (void)after(2000);
    (void)after(2 * COREI_YIELD_MS);
    assert_int_equal(box[box_of(left)][left % SLOTS].state, DXPU_CONTROL_SLOT_KEPT);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
    assert_int_equal(bytes_of(left), lease);
}

/* Before all of its boxes have reported nothing follows: one may say that it is lent still. */
static void test_m179_waits_for_all_boxes(void **state)
{
    (void)state;
    uint64_t lease = lease_up(2, POOL_SPREAD, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    back_up();
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)after(1000);
    assert_int_equal(box[box_of(slot)][slot % SLOTS].state, DXPU_CONTROL_SLOT_KEPT);
    stop();
    rig_store_free(&disk);
    disk = backup;
    start();
    tell(box_of(slot), 1, SLOTS);
    host_tells(1, PORTS);
    assert_int_equal(after(2000), 0);
    assert_int_equal(core_pool(c)->lease[pool_lease_index(lease)].host != POOL_NONE, 1);
    assert_int_equal(box[box_of(slot)][slot % SLOTS].state, DXPU_CONTROL_SLOT_KEPT);
    tell(!box_of(slot), 1, SLOTS);
    assert_int_equal(after(2000), 0);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
}

/* One of its boxes does not come back: it is waited for as long as its host may have its slot. */
static void test_m179_a_box_is_lost(void **state)
{
    (void)state;
    for (unsigned has = 0; has < 2; has++) {
        uint64_t lease = lease_up(2, POOL_SPREAD, CORE_REPLACE_NO, 0);
        uint32_t slot = slot_of(lease, 0), lost = slot_of(lease, 1);
        uint64_t epoch = core_pool(c)->slot[lost].epoch;
        back_up();
        assert_int_equal(core_park(c, lease).code, CORE_OK);
        (void)after(1000);
        stop();
        rig_store_free(&disk);
        disk = backup;
        start();
        uint32_t port = c->t.slot_more[lost].port;
        host[port].epoch = has ? epoch : 0;
        host[port].peer_slot = has ? c->t.slot[lost].device.number : 0;
        host[port].state = has ? DXPU_CONTROL_SLOT_DIALING : DXPU_CONTROL_SLOT_EMPTY;
        tell(box_of(slot), 1, SLOTS);
        host_tells(1, PORTS);
        (void)after(GRACE_MS);
        assert_int_not_equal(core_lease_now(c, lease), CORE_LEASE_PARKED); /* it may come yet */
        (void)after(COREI_DIAL_MS + 1000);
        (void)after(2000);
        assert_int_equal(core_lease_now(c, lease) == CORE_LEASE_PARKED, !has);
        assert_int_equal(box[box_of(slot)][slot % SLOTS].state, DXPU_CONTROL_SLOT_KEPT);
        tell(!box_of(slot), 1, SLOTS);
        (void)after(2000);
        assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
        (void)after(2000);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)after(2000);
        (void)after(2000);
    }
}

/* An attach would give the slot a later epoch than its box has, which then no lease's could be. */
static void test_m171_no_attach_before_adoption(void **state)
{
    (void)state;
    core_adoption a;
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0);
    uint32_t slot = slot_of(lease, 0);
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)pump();
    back_up();
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    (void)pump();
    put_back();
    core_result result = core_attach(c, lease, host_node);
    assert_int_equal(result.code, CORE_E_STATE);
    assert_non_null(strstr(result.text, "dxpu adopt"));
    assert_int_equal(may(slot, false, "", "parked: release that"), CORE_ADOPT_NOT);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(core_adopt(c, slot, false, "", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(bytes_of(slot), lease);
    assert_int_equal(core_lease_now(c, a.lease), CORE_LEASE_ACTIVE);
}

/* red takes its own lease off and on again: blue's, which runs there, can still be adopted. */
static void test_m171_no_attach_over_anothers(void **state)
{
    (void)state;
    core_adoption a;
    uint32_t slot = one_slot();
    uint64_t running, ended = put_back_anothers(slot, &running);
    assert_int_equal(core_park(c, ended).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_attach(c, ended, host_node).code, CORE_E_STATE);
    assert_int_equal(core_release(c, ended, false).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(core_adopt(c, slot, false, "blue", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(bytes_of(slot), running);
}

/* red's lease was moved, and its slot was lent to blue, since: what is in the way of each is named,
   and how it goes. */
static void test_m171_reason_names_the_way(void **state)
{
    (void)state;
    core_adoption a;
    uint64_t moved = lease_of("red"), blue;
    uint32_t slot = slot_of(moved, 0), to;
    back_up();
    assert_int_equal(core_replace(c, slot, POOL_WHY_OPERATOR, false).code, CORE_OK);
    (void)pump();
    to = slot_of(moved, 0);
    if (core_pool(c)->slot[slot].owner != POOL_NONE)
        assert_int_equal(core_discard(c, slot).code, CORE_OK);
    (void)pump();
    assert_int_equal(state_of(slot), POOL_FREE);
    for (uint32_t i = 0; i < core_pool(c)->slots; i++)
        if (i != slot && i != to && i != to + 1)
            assert_int_equal(core_break(c, i, POOL_WHY_OPERATOR).code, CORE_OK);
    do
        blue = lease_of("blue");
    while (slot_of(blue, 0) != slot);
    put_back();
    assert_int_equal(may(slot, false, "blue", "(dxpu replace "), CORE_ADOPT_NOT);
    assert_int_equal(may(to, false, "", "in its host's slot, by slot"), CORE_ADOPT_NOT);
    assert_int_equal(core_replace(c, slot, POOL_WHY_OPERATOR, false).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(core_adopt(c, slot, false, "blue", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(bytes_of(slot), blue);
    assert_int_equal(core_lease_now(c, a.lease), CORE_LEASE_ACTIVE);
    assert_int_equal(core_park(c, moved).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_adopt(c, to, false, "", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_string_equal(a.tenant, "red");
    assert_int_equal(bytes_of(to), moved);
}

/* A device without data, of a lease that is replaced: not while box and host say that it runs. */
static void not_replaced(bool control)
{
    core_adoption a;
    for (unsigned b = 0; b < BOXES; b++)
        for (unsigned i = 0; i < SLOTS; i++)
            box[b][i].data = DXPU_CONTROL_DATA_NONE;
    for (unsigned b = 0; b < BOXES; b++)
        tell(b, 1, SLOTS);
    (void)pump();
    uint64_t lease = lease_up(1, POOL_ANY, CORE_REPLACE_DEFAULT, 0);
    uint32_t slot = slot_of(lease, 0);
    assert_true(core_lease_replaces(c, lease));
    back_up();
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    (void)pump();
    put_back();
    assert_int_equal(state_of(slot), POOL_QUARANTINED);
    (void)after(3 * COREI_REPLACE_MS);
    restart();
    (void)after(1);
    assert_int_equal(slot_of(lease, 0), slot);
    assert_int_equal(may(slot, false, "", NULL), CORE_ADOPT_BACK);
    dxpu_control_device *port = host;
    while (!port->epoch)
        port++;
    if (control) { /* its host does not have it */
        port->epoch = port->peer_slot = 0;
        port->state = DXPU_CONTROL_SLOT_EMPTY;
        host_tells(1, PORTS);
        (void)after(3 * COREI_REPLACE_MS);
        assert_int_not_equal(slot_of(lease, 0), slot);
        return;
    }
    assert_int_equal(core_adopt(c, slot, false, "", &a).code, CORE_OK);
    (void)pump();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(slot_of(lease, 0), slot);
}

static void test_m170_not_replaced_while_it_runs(void **state)
{
    (void)state;
    not_replaced(false);
}

static void test_m170_replaced_where_it_does_not_run(void **state)
{
    (void)state;
    not_replaced(true);
}

/* A word that two tenants have is not proof. */
static void test_m174_two_tenants_fit(void **state)
{
    (void)state;
    core_adoption a;
    uint32_t slot = one_slot();
    assert_true(corei_tenant_word(c, "default") == 0x850be908bf09cbb4u); /* as M-174 has it */
    word_bits = 0;
    restart();
    back_up();
    uint64_t running = lease_of("blue");
    put_back();
    assert_int_equal(may(slot, false, "blue", NULL), CORE_ADOPT_LEASE); /* the control */
    assert_int_equal(core_set_tenant(c, "blue", 3).code, CORE_OK);
    assert_int_equal(may(slot, false, "blue", NULL), CORE_ADOPT_LEASE);
    assert_int_equal(core_set_tenant(c, "green", 3).code, CORE_OK);
    assert_int_equal(may(slot, false, "", "two tenants"), CORE_ADOPT_NOT);
    assert_int_equal(may(slot, false, "blue", "two tenants"), CORE_ADOPT_NOT);
    assert_int_equal(core_adopt(c, slot, true, "green", &a).code, CORE_E_STATE);
    assert_int_equal(bytes_of(slot), running);
}

/* A box of an older program does not say which lease it is: the operator does, for each slot. */
static void test_m174_not_said(void **state)
{
    (void)state;
    core_adoption a;
    uint64_t running;
    uint32_t slot = one_slot();
    silent = true;
    uint64_t ended = put_back_anothers(slot, &running);
    assert_int_equal(may(slot, false, "", "it may be another tenant's since"), CORE_ADOPT_NOT);
    assert_true(core_may_adopt(c, slot, false, "", &a));
    assert_true(a.known_epoch && a.known_epoch < a.epoch && a.lease == ended);
    assert_string_equal(a.tenant, "red");
    assert_int_equal(may(slot, false, "red", "name the slot"), CORE_ADOPT_NOT);
    assert_int_equal(may(slot, true, "blue", "not of blue"), CORE_ADOPT_NOT);
    assert_int_equal(may(slot, true, "", "name its tenant"), CORE_ADOPT_NOT);
    assert_int_equal(core_adopt(c, slot, true, "", &a).code, CORE_E_STATE);
    assert_int_equal(may(slot, true, "red", NULL), CORE_ADOPT_BACK);
    assert_int_equal(core_release(c, ended, false).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(may(slot, false, "", "does not say whose"), CORE_ADOPT_NOT);
    assert_int_equal(may(slot, false, "blue", NULL), CORE_ADOPT_LEASE);
    assert_int_equal(core_set_owner(c, host_node, "red").code, CORE_OK);
    assert_int_equal(may(slot, false, "blue", "owner is red"), CORE_ADOPT_NOT);
    assert_int_equal(core_adopt(c, slot, true, "blue", &a).code, CORE_OK);
    assert_int_equal(pump(), 0);
    assert_int_equal(bytes_of(slot), running);
}

/* A new store has given the nodes other numbers. */
static void test_m175_other_numbers(void **state)
{
    (void)state;
    back_up();
    uint32_t slot = slot_of(lease_up(1, POOL_ANY, CORE_REPLACE_NO, 0), 0);
    unsigned b = box_of(slot);
    dxpu_control_device *d = box[b];
    while (!d->epoch)
        d++;
    put_back();
    assert_int_equal(may(slot, true, "red", NULL), CORE_ADOPT_LEASE); /* the control */
    d->peer_node = 77;
    tell(b, 1, SLOTS);
    assert_int_equal(may(slot, true, "red", "the one that has it is host"), CORE_ADOPT_NOT);
    d->peer_node = box_node[b];
    tell(b, 1, SLOTS);
    assert_int_equal(may(slot, true, "red", "their former numbers"), CORE_ADOPT_NOT);
    core_disconnected(c, host_node);
    assert_int_equal(may(slot, true, "red", "is a box here"), CORE_ADOPT_NOT);
    d->peer_node = 77;
    tell(b, 1, SLOTS);
    assert_int_equal(may(slot, true, "red", "does not know"), CORE_ADOPT_NOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_m92_absence_retains),
        CASE(test_m92_over_restarts_and_repair),
        CASE(test_m92_no_more_than_it_has),
        CASE(test_m92_never_served),
        CASE(test_m93_recover),
        CASE(test_m93_place),
        CASE(test_m93_all_or_none),
        CASE(test_m93_all_of_one_place),
        CASE(test_m93_all_of_one_place_restarted),
        CASE(test_m93_box_says_kept),
        CASE(test_m94_default_by_data),
        CASE(test_m91_release_wipes_what_is_retained),
        CASE(test_m91_release_while_disconnected),
        CASE(test_m91_discard),
        CASE(test_m91_would_erase),
        CASE(test_m97_retention_ends),
        CASE(test_m97_stands_still),
        CASE(test_m97_ended_stands_still),
        CASE(test_m97_a_replaced_slot_has_its_own_time),
        CASE(test_m97_broken_and_no_room),
        CASE(test_m97_killed),
        CASE(test_m97_without_limit),
        CASE(test_m95_expiry),
        CASE(test_m95_release_keep),
        CASE(test_m95_without_data),
        CASE(test_m96_step),
        CASE(test_m96_made_meanwhile),
        CASE(test_m96_drift),
        CASE(test_m96_before_the_last),
        CASE(test_m98_older_records),
        CASE(test_m98_lease_is_missing),
        CASE(test_m98_another_tenant),
        CASE(test_m98_another_device),
        CASE(test_m98_another_device_retained),
        CASE(test_m77_another_device_is_not_lent),
        CASE(test_another_device_is_broken),
        CASE(test_m98_another_medium),
        CASE(test_m98_unknown_is_not_wiped),
        CASE(test_m103_repair_of_a_broken_slot),
        CASE(test_m98_unknown_before_the_decision),
        CASE(test_m98_repair_of_the_disk_before),
        CASE(test_m98_repair_of_another_disk),
        CASE(test_m98_repair_needs_the_box),
        CASE(test_m77_another_disk_while_broken),
        CASE(test_m77_wiped_under_its_epoch),
        CASE(test_m77_old_copy_and_lost_state),
        CASE(test_m93_after_lost_state),
        CASE(test_m93_after_lost_state_and_restart),
        CASE(test_m104_keep_needs_the_medium),
        CASE(test_m104_not_after_a_foreign_lease),
        CASE(test_m170_adopt),
        CASE(test_m170_later_epoch),
        CASE(test_m96_copy_ends_nothing),
        CASE(test_m177_kept_under_a_later_epoch),
        CASE(test_m177_retained_under_a_later_epoch),
        CASE(test_m177_retained_where_the_host_is_old),
        CASE(test_m177_retention_begins_again),
        CASE(test_m177_kept_of_another_lease),
        CASE(test_m177_kept_where_the_lease_was_before),
        CASE(test_m171_not_adopted),
        CASE(test_m170_store_fails),
        CASE(test_m170_owner_in_larger_tables),
        CASE(test_m174_anothers_lease),
        CASE(test_m179_parked_since),
        CASE(test_m179_one_slot_goes_on),
        CASE(test_m179_goes_on_with_new_epochs),
        CASE(test_m179_own_bind_proves_nothing),
        CASE(test_m179_waits_for_all_boxes),
        CASE(test_m179_a_box_is_lost),
        CASE(test_m171_no_attach_before_adoption),
        CASE(test_m171_no_attach_over_anothers),
        CASE(test_m171_reason_names_the_way),
        CASE(test_m170_not_replaced_while_it_runs),
        CASE(test_m170_replaced_where_it_does_not_run),
        CASE(test_m174_two_tenants_fit),
        CASE(test_m182_not_by_anothers_tenant),
        CASE(test_m174_not_said),
        CASE(test_m175_other_numbers),
        CASE(test_m92_data_of_its_own_device),
        CASE(test_s242_a_device_is_gone_and_back),
        CASE(test_m77_parked_before_it_was_up),
        CASE(test_m92_one_was_up),
        CASE(test_m100_nothing_is_ordered_unseen),
        CASE(test_m99_forget),
        CASE(test_m100_no_unbind_above_its_own),
        CASE(test_m101_never_twice),
        CASE(test_m101_waits_for_the_clock),
        CASE(test_m101_continues_when_the_clock_is_set_back),
        CASE(test_m102_replace_keeps_the_group),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
