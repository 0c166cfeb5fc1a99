/* unit_core.c - the manager's core: what follows from registers, requests, answers and time
   SPDX-License-Identifier: MIT */
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

/* NULL: there is no such record. */
static const char *rig_value(const rig_store *s, const char *key)
{
    bool there;
    unsigned at = rig_place(s, key, &there);
    return there ? s->record[at].value : NULL;
}

enum { BOX = 1, HOST = 2, SLOTS = 4, PORTS = 4 };

static rig_store disk;
static core *c;
static core_result why;
static uint64_t now_ms;
static dxpu_control_device box[SLOTS], host[PORTS];
static uint32_t box_node, host_node;

static void start(void)
{
    core_settings set;
    rig_settings(&set);
    assert_int_equal(set.grace_ms, CORE_GRACE_MS);
    set.grace_ms = 5000;
    c = core_open(&disk.base, &set, 1000000 + now_ms, now_ms, &why);
    if (!c)
        fail_msg("%s", why.text);
}

static void at(uint64_t ms)
{
    now_ms = ms;
    core_clock(c, 1000000 + ms, ms);
    core_tick(c);
}

static int begin(void **state)
{
    (void)state;
    rig_store_init(&disk);
    now_ms = 1;
    for (unsigned i = 0; i < SLOTS; i++)
        box[i] = (dxpu_control_device){ .number = (uint16_t)(i + 1),
                                        .state = DXPU_CONTROL_SLOT_WIPED,
                                        .health = DXPU_CONTROL_HEALTH_GOOD,
                                        .vendor = 0x1b36,
                                        .device = 0x10,
                                        .class_code = 0x010802,
                                        .model = "nvme",
                                        .serial = { 'A', (char)('0' + i) } };
    for (unsigned i = 0; i < PORTS; i++)
        host[i] = (dxpu_control_device){ .number = (uint16_t)(i + 1) };
    start();
    return 0;
}

/* Nothing is lost with it. */
static void core_ends(void)
{
    const char *differs = c ? rig_differs(c, &disk) : NULL;
    core_close(c);
    c = NULL;
    if (differs)
        fail_msg("%s in the store is not as in the tables", differs);
}

static int end(void **state)
{
    (void)state;
    core_ends();
    rig_store_free(&disk);
    return 0;
}

static void box_says(unsigned first, unsigned count)
{
    box_node = rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, box, SLOTS, first, count, &why);
    if (!box_node)
        fail_msg("%s", why.text);
}

static void host_says(unsigned first, unsigned count)
{
    host_node = rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, 8, host, PORTS, first, count, &why);
    if (!host_node)
        fail_msg("%s", why.text);
}

/* The next order is of this type, to this node. */
static core_order expect(unsigned type, uint32_t node)
{
    core_order o;
    if (!core_next_order(c, &o))
        fail_msg("no order; expected %s", dxpu_control_type_name(type));
    if (o.m.type != type || o.node != node)
        fail_msg("%s to node %u; expected %s to %u", dxpu_control_type_name(o.m.type), o.node,
                 dxpu_control_type_name(type), node);
    return o;
}

static void expect_none(void)
{
    core_order o;
    if (core_next_order(c, &o))
        fail_msg("%s to node %u; expected none", dxpu_control_type_name(o.m.type), o.node);
}

static void done(const core_order *o, unsigned state, uint64_t epoch)
{
    dxpu_control_done d = { 1, (uint8_t)state, epoch };
    assert_true(core_answered(c, o, DXPU_CONTROL_CODE_NONE, &d));
}

static void both_connect(void)
{
    box_says(1, SLOTS);
    host_says(1, PORTS);
    core_order o = expect(DXPU_CONTROL_DRAIN, box_node);
    assert_false(o.m.u.drain.on);
    done(&o, 0, 0);
    expect_none();
}

/* A second box, whose slots are free. */
static uint32_t second_box(void)
{
    dxpu_control_device fresh[SLOTS];
    for (unsigned i = 0; i < SLOTS; i++) {
        fresh[i] = box[i];
        fresh[i].epoch = fresh[i].epoch_seen = 0;
        fresh[i].state = DXPU_CONTROL_SLOT_WIPED;
    }
    uint32_t node = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, fresh, SLOTS, 1, SLOTS, &why);
    core_order o = expect(DXPU_CONTROL_DRAIN, node);
    done(&o, 0, 0);
    return node;
}

static uint64_t lease_one(void)
{
    core_request r = { .tenant = "t", .model = "nvme", .key = "k", .count = 1, .replace = true };
    uint64_t lease;
    bool existed;
    r.host = host_node;
    core_result result = core_create(c, &r, &lease, &existed);
    if (result.code != CORE_OK)
        fail_msg("%s", result.text);
    assert_false(existed);
    return lease;
}

static unsigned count_events(core_event_type type)
{
    static core_event e[256];
    unsigned n = core_events_after(c, 0, e, 256), found = 0;
    for (unsigned i = 0; i < n; i++)
        found += e[i].type == type;
    return found;
}

static void test_create_release(void **state)
{
    (void)state;
    both_connect();
    uint64_t lease = lease_one();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PENDING);
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    unsigned s = o.m.u.bind.slot, p = o.m.u.bind.host_slot;
    uint64_t epoch = o.m.u.bind.epoch;
    expect_none(); /* the host is notified when the box has it */
    done(&o, DXPU_CONTROL_SLOT_HELD, epoch);
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    assert_int_equal(o.m.u.attach.slot, p);
    assert_int_equal(o.m.u.attach.box_slot, s);
    assert_int_equal(o.m.u.attach.box.port, 4400 + BOX);
    done(&o, DXPU_CONTROL_SLOT_DIALING, epoch);
    expect_none();
    host[p - 1].state = DXPU_CONTROL_SLOT_UP;
    host[p - 1].epoch = epoch;
    host_says(p, 1);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    o = expect(DXPU_CONTROL_DETACH, host_node);
    expect_none(); /* the box waits for the host */
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    o = expect(DXPU_CONTROL_UNBIND, box_node);
    assert_int_equal(o.m.u.unbind.epoch, epoch);
    assert_false(o.m.u.unbind.keep);
    done(&o, DXPU_CONTROL_SLOT_WIPING, 0);
    expect_none();
    assert_int_equal(core_pool(c)->slot[s - 1].state, POOL_WIPING);
    box[s - 1].state = DXPU_CONTROL_SLOT_WIPED;
    box[s - 1].epoch_seen = epoch;
    box_says(s, 1);
    assert_int_equal(core_pool(c)->slot[s - 1].state, POOL_FREE);
    expect_none();
}

/* A slot in a further loop of its box: the host is sent to that one's port. */
static void test_m73_port_offset(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SLOTS; i++)
        box[i].port_offset = (uint16_t)(10 + i);
    both_connect();
    (void)lease_one();
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    unsigned s = o.m.u.bind.slot;
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    assert_int_equal(o.m.u.attach.box.port, 4400 + BOX + 10 + s - 1);
    box[s - 1].port_offset = (uint16_t)(65535 - 4400 - BOX); /* the last one that there can be */
    box_says(s, 1);
    box[s - 1].port_offset++;
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, box, SLOTS, s, 1, &why), 0);
    assert_non_null(strstr(why.text, "port"));
}

/* The lease is up at the host; the order of it all is above. */
static uint64_t lease_up(unsigned *slot, unsigned *port)
{
    uint64_t lease = lease_one();
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    uint64_t epoch = o.m.u.bind.epoch;
    *slot = o.m.u.bind.slot;
    *port = o.m.u.bind.host_slot;
    done(&o, DXPU_CONTROL_SLOT_HELD, epoch);
    box[*slot - 1].state = DXPU_CONTROL_SLOT_UP;
    box[*slot - 1].epoch = box[*slot - 1].epoch_seen = epoch;
    box[*slot - 1].peer_node = host_node;
    box[*slot - 1].peer_slot = (uint16_t)*port;
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    done(&o, DXPU_CONTROL_SLOT_DIALING, epoch);
    host[*port - 1].state = DXPU_CONTROL_SLOT_UP;
    host[*port - 1].epoch = epoch;
    box_says(*slot, 1);
    host_says(*port, 1);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    return lease;
}

static void test_restart(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port), epoch = core_pool(c)->epoch;
    core_ends();
    now_ms = 1000;
    start();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(core_pool(c)->slot[slot - 1].epoch, epoch);
    expect_none();
    box_says(1, SLOTS);
    host_says(1, PORTS);
    core_order o = expect(DXPU_CONTROL_DRAIN, box_node);
    done(&o, 0, 0);
    expect_none(); /* everything is as it is to be */
}

/* Epochs, and numbers of leases, begin above the time of day: a store that was put back gives none
   again that it gave before, though no box reports it. */
static void test_m74_old_store(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    rig_store backup = rig_store_copy(&disk);
    uint64_t first = lease_up(&slot, &port), epoch = core_pool(c)->epoch;
    core_ends();
    rig_store_free(&disk);
    disk = backup;
    now_ms += 2000;
    start();
    assert_true(core_pool(c)->epoch > epoch);
    uint32_t other = second_box(); /* the one with the lease does not come */
    host[port - 1].state = DXPU_CONTROL_SLOT_UP;
    host_says(1, PORTS);
    expect_none(); /* the lease that the host has is nothing that this store gave */
    assert_int_equal(count_events(CORE_EVENT_PORT_FOREIGN), 1);
    uint64_t second = lease_one();
    core_order o = expect(DXPU_CONTROL_BIND, other);
    assert_true(o.m.u.bind.epoch > epoch && second != first);
    /* The clock goes back: on from what is stored. */
    epoch = core_pool(c)->epoch;
    core_ends();
    now_ms = 1;
    core_settings set;
    rig_settings(&set);
    c = core_open(&disk.base, &set, 5, now_ms, &why);
    assert_true(c && core_pool(c)->epoch == epoch);
    core_ends(); /* or it is nonsense */
    c = core_open(&disk.base, &set, UINT64_MAX / 2, now_ms, &why);
    assert_true(c && core_pool(c)->epoch == epoch);
}

/* Each start has a higher term, whatever the clock says; and it is 0 while it is not stored. */
static void test_m144_term(void **state)
{
    (void)state;
    uint64_t term = core_term(c), last;
    assert_true(term >= 1000000 && core_term(c) == term);
    for (unsigned i = 0; i < 3; i++) {
        last = term;
        core_ends();
        now_ms = i == 1 ? 1 : now_ms + 5000 * i; /* at once, the clock back, later */
        start();
        term = core_term(c);
        assert_true(term > last);
    }
    assert_true(term >= 1000000 + now_ms);
    core_ends();
    start();
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_int_equal(core_term(c), 0);
    disk.fail_after = UINT_MAX;
    at(now_ms + COREI_REFUSE_MS);
    assert_true(core_term(c) > term);
}

/* The highest epoch that a proxy may report leaves the others theirs: the next given ones may be
   reported, also after a restart. */
static void test_m74_reported(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t most = (1000000 + now_ms) * 1000 + COREI_EPOCH_AHEAD;
    dxpu_control_device far[SLOTS];
    memcpy(far, box, sizeof far);
    far[0].state = DXPU_CONTROL_SLOT_EMPTY;
    far[0].epoch_seen = most + 1;
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 7, far, 1, 1, 1, &why), 0);
    assert_int_equal(why.code, CORE_E_ARG);
    far[0].epoch_seen = most;
    uint32_t node = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 7, far, 1, 1, 1, &why);
    core_order o = expect(DXPU_CONTROL_DRAIN, node);
    done(&o, 0, 0);
    (void)lease_up(&slot, &port);
    uint64_t given = core_pool(c)->epoch;
    assert_true(given > most);
    dxpu_control_done d = { 1, DXPU_CONTROL_SLOT_HELD, given + 1 }; /* nor by an answer */
    assert_int_equal(core_reset(c, slot - 1).code, CORE_OK);
    o = expect(DXPU_CONTROL_RESET, box_node);
    assert_false(core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &d));
    assert_true(core_pool(c)->epoch == given);
    done(&o, DXPU_CONTROL_SLOT_HELD, given);
    box_says(1, SLOTS);
    core_ends();
    start();
    box_says(1, SLOTS);
    host_says(1, PORTS);
    assert_true(core_pool(c)->epoch > most);
}

static void copy_says(uint64_t instance, dxpu_control_device *ports)
{
    uint32_t node =
        rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, instance, ports, PORTS, 1, PORTS, &why);
    if (node != host_node)
        fail_msg("node %u: %s", node, why.text);
}

/* The box learns of a new epoch, and then the host: one with the epoch before is fenced off. */
static uint64_t expect_renewed(uint64_t before)
{
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    uint64_t epoch = o.m.u.bind.epoch;
    assert_true(epoch > before);
    expect_none();
    done(&o, DXPU_CONTROL_SLOT_HELD, epoch);
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    assert_int_equal(o.m.u.attach.epoch, epoch);
    dxpu_control_done d = { o.m.u.attach.slot, DXPU_CONTROL_SLOT_DIALING, epoch };
    core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &d);
    expect_none();
    return epoch;
}

/* Two programs run under one identity, in turns at the manager: each has epochs of its own. */
static void test_m75_copies(void **state)
{
    (void)state;
    unsigned slot, port;
    dxpu_control_device copy[PORTS];
    memcpy(copy, host, sizeof copy);
    both_connect();
    uint64_t lease = lease_up(&slot, &port), epoch = core_pool(c)->epoch, mine = epoch;
    host[port - 1].state = DXPU_CONTROL_SLOT_EMPTY; /* control: detached there by hand */
    host_says(port, 1);
    expect_none();
    at(now_ms + COREI_RETRY_MS);
    core_order o = expect(DXPU_CONTROL_ATTACH, host_node);
    assert_int_equal(o.m.u.attach.epoch, epoch);
    done(&o, DXPU_CONTROL_SLOT_DIALING, epoch);
    host[port - 1].state = DXPU_CONTROL_SLOT_UP;
    copy_says(80, copy);
    o = expect(DXPU_CONTROL_BIND, box_node); /* a box that is drained, and does not know M-61 */
    core_answered(c, &o, DXPU_CONTROL_CODE_DRAINED, NULL);
    assert_int_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    expect_none();
    at(now_ms + COREI_RETRY_MS);
    epoch = expect_renewed(epoch);
    assert_int_equal(core_slot_phase(c, slot - 1), CORE_LOST); /* it was up, and no event is new */
    host[port - 1].epoch = mine;
    copy_says(8, host); /* the first one is back, and does not know */
    o = expect(DXPU_CONTROL_DETACH, host_node);
    assert_int_equal(o.m.u.detach.epoch, mine);
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    epoch = expect_renewed(epoch);
    core_ends(); /* the first client after a restart of this program may be either */
    now_ms += 1000;
    start();
    box[slot - 1].epoch = box[slot - 1].epoch_seen = epoch;
    box_says(1, SLOTS);
    o = expect(DXPU_CONTROL_DRAIN, box_node);
    done(&o, 0, 0);
    copy_says(80, copy);
    (void)expect_renewed(epoch);
    assert_int_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
}

/* All leases of a host, more than one transaction holds; and a store that fails meanwhile. */
static void test_m75_many(void **state)
{
    (void)state;
    enum { MANY = POOL_COUNT_MAX * 2 };
    static dxpu_control_device ports[MANY], slots[POOL_COUNT_MAX];
    uint64_t lease, before;
    bool existed;
    core_order o;
    unsigned bound = 0;
    for (unsigned i = 0; i < MANY; i++)
        ports[i] = (dxpu_control_device){ .number = (uint16_t)(i + 1) };
    for (unsigned i = 0; i < POOL_COUNT_MAX; i++) {
        slots[i] = box[0];
        slots[i].number = (uint16_t)(i + 1);
    }
    for (uint8_t i = 0; i < 2; i++)
        assert_true(rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(20 + i), 7, slots,
                                 POOL_COUNT_MAX, 1, POOL_COUNT_MAX, &why));
    core_request r = { .model = "nvme", .count = POOL_COUNT_MAX };
    r.host = rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, 8, ports, MANY, 1, MANY, &why);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    for (before = core_pool(c)->epoch; core_next_order(c, &o);) { /* the host is notified of all */
        dxpu_control_done d = { corei_order_slot(&o.m), DXPU_CONTROL_SLOT_HELD,
                                corei_order_epoch(&o.m) };
        core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &d);
    }
    disk.fault = STORE_E_FULL;
    disk.fail_after = 3; /* one is lost, one is connected, and the first half */
    (void)rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, 80, ports, MANY, 1, MANY, &why);
    for (unsigned turn = 0; turn < 3; turn++) {
        while (core_next_order(c, &o)) {
            assert_true(corei_order_epoch(&o.m) > before);
            dxpu_control_done d = { corei_order_slot(&o.m), DXPU_CONTROL_SLOT_HELD,
                                    corei_order_epoch(&o.m) };
            bound += o.m.type == DXPU_CONTROL_BIND;
            core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &d);
        }
        assert_int_equal(bound, turn ? MANY : MANY / 2);
        disk.fail_after = UINT_MAX;
        at(now_ms + COREI_REFUSE_MS);
    }
}

/* A copy that ran beside the proxy does not take its place while that one is disconnected. */
static void test_m76_rival(void **state)
{
    (void)state;
    dxpu_control_device copy[PORTS];
    memcpy(copy, host, sizeof copy);
    both_connect();
    core_rival(c, host_node, 80);
    core_rival(c, host_node, 80);
    assert_int_equal(count_events(CORE_EVENT_ALARM), 1);
    core_rival(c, 77, 80); /* no such node */
    core_disconnected(c, host_node);
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, 80, copy, PORTS, 1, PORTS, &why),
                     0);
    assert_non_null(strstr(why.text, "identity"));
    host_says(1, PORTS);
    core_disconnected(c, host_node);
    at(now_ms + COREI_RIVAL_MS - 1);
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST, 80, copy, PORTS, 1, PORTS, &why),
                     0);
    copy_says(81, copy); /* control: one that was started again gets in at once */
    core_disconnected(c, host_node);
    at(now_ms + COREI_RIVAL_MS);
    copy_says(80, copy);
}

static void test_broken(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port), epoch = core_pool(c)->epoch;
    box[slot - 1].health = DXPU_CONTROL_HEALTH_BROKEN;
    box_says(slot, 1);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_DEGRADED);
    core_order first = { 0 }, second = { 0 };
    assert_true(core_next_order(c, &first) && core_next_order(c, &second));
    core_order *bind = first.m.type == DXPU_CONTROL_BIND ? &first : &second;
    core_order *detach = bind == &first ? &second : &first;
    assert_int_equal(bind->m.type, DXPU_CONTROL_BIND);
    assert_int_equal(detach->m.type, DXPU_CONTROL_DETACH);
    assert_int_equal(bind->m.u.bind.host_slot, port);
    assert_int_not_equal(bind->m.u.bind.slot, slot);
    assert_int_equal(detach->m.u.detach.epoch, epoch);
}

/* A box that is gone is given up when its host has no answer from it either. */
static void test_grace(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    uint32_t was = core_find_slot(c, box_node, slot);
    core_disconnected(c, box_node);
    assert_int_equal(core_next_ms(c), now_ms + 5000);
    at(5000);
    assert_int_equal(core_pool(c)->slot[was].state, POOL_LEASED);
    at(6000);
    assert_int_equal(core_pool(c)->slot[was].state, POOL_LEASED);
    host[port - 1].state = DXPU_CONTROL_SLOT_DIALING;
    host_says(port, 1);
    assert_int_equal(core_pool(c)->slot[was].state, POOL_BROKEN);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_DEGRADED);
    box_says(1, SLOTS);
    assert_int_equal(core_pool(c)->slot[was].state, POOL_LEASED);
}

static void test_store_fails(void **state)
{
    (void)state;
    both_connect();
    core_request r = { .model = "nvme", .host = host_node, .count = 2 };
    uint64_t lease;
    bool existed;
    char text[256];
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_STORE);
    assert_true(core_store_failed(c, text));
    assert_int_equal(core_pool(c)->leases, 0);
    expect_none();
    disk.fail_after = UINT_MAX;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_STORE);
    at(1200);
    assert_false(core_store_failed(c, text));
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    assert_non_null(rig_value(&disk, "meta"));
}

/* The store's statistics are of what is in it. */
static void test_only_commits_that_were_made_are_counted(void **state)
{
    (void)state;
    store_change change = { "x", "0", 1 };
    store_fault f;
    uint64_t commits = disk.base.commit_ns.count, changes = disk.base.changes;
    assert_int_equal(store_commit(&disk.base, NULL, 0, &f), STORE_OK); /* is it there? */
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_int_equal(store_commit(&disk.base, &change, 1, &f), STORE_E_FULL);
    assert_int_equal(disk.base.commit_ns.count, commits);
    assert_int_equal(disk.base.changes, changes);
    disk.fail_after = UINT_MAX;
    assert_int_equal(store_commit(&disk.base, &change, 1, &f), STORE_OK); /* the control */
    assert_int_equal(disk.base.commit_ns.count, commits + 1);
    assert_int_equal(disk.base.changes, changes + 1);
}

/* -- Registers that share a commit -- */

enum { BATCH = 6, BATCH_IDENTITY = 20 };

static uint32_t batch_box(unsigned i, uint64_t instance)
{
    return rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(BATCH_IDENTITY + i), instance, box,
                        SLOTS, 1, SLOTS, &why);
}

static void test_registers_share_a_commit(void **state)
{
    (void)state;
    uint32_t node[BATCH];
    unsigned before = disk.commits;
    for (unsigned round = 0; round < 2; round++) { /* new ones, then those that are back */
        before = disk.commits;
        core_batch(c);
        for (unsigned i = 0; i < BATCH; i++) {
            uint32_t n = batch_box(i, 1);
            assert_int_equal(n, round ? node[i] : n);
            node[i] = n;
        }
        assert_int_equal(disk.commits, before);
        assert_int_equal(count_events(CORE_EVENT_NODE_CONNECTED), round ? BATCH : 0);
        assert_true(core_batch_end(c));
        assert_int_equal(disk.commits, before + 1);
        assert_int_equal(count_events(CORE_EVENT_NODE_CONNECTED), (round + 1) * BATCH);
        assert_null(rig_differs(c, &disk));
        core_ends();
        start();
    }
    assert_int_equal(core_pool(c)->slots, BATCH * SLOTS);
    before = disk.commits;
    for (unsigned i = 0; i < BATCH; i++) /* the control */
        assert_int_equal(batch_box(i, 1), node[i]);
    assert_true(disk.commits >= before + BATCH);
}

static void test_lost_proxies_share_a_commit(void **state)
{
    (void)state;
    uint32_t node[BATCH];
    for (unsigned i = 0; i < BATCH; i++)
        node[i] = batch_box(i, 1);
    unsigned before = disk.commits;
    core_batch(c);
    for (unsigned i = 0; i < BATCH; i++)
        core_disconnected(c, node[i]);
    assert_int_equal(disk.commits, before);
    assert_true(core_batch_end(c));
    assert_int_equal(disk.commits, before + 1);
    assert_int_equal(count_events(CORE_EVENT_NODE_LOST), BATCH);
}

/* Slots that are stored need no room, however many a box has. */
static void test_registers_of_known_boxes_share_a_commit(void **state)
{
    (void)state;
    store_kind few = *disk.base.kind;
    for (unsigned i = 0; i < BATCH; i++)
        (void)batch_box(i, 1);
    core_ends();
    start();
    few.share = BATCH + COREI_REGISTER_CHANGES; /* of each an event */
    disk.base.kind = &few;
    unsigned before = disk.commits;
    core_batch(c);
    for (unsigned i = 0; i < BATCH; i++)
        assert_int_not_equal(batch_box(i, 1), 0);
    assert_true(core_batch_end(c));
    assert_int_equal(disk.commits, before + 1);
    assert_null(rig_differs(c, &disk));
    core_ends();
    rig_store_free(&disk);
    rig_store_init(&disk);
    start();
}

/* What follows from them may take a commit for each slot: others have a turn in between, and until
   then nothing is ordered there. */
static void test_what_follows_from_registers_is_done_in_parts(void **state)
{
    enum { BOXES = 2 * COREI_FOLLOW_COMMITS };
    (void)state;
    for (unsigned i = 0; i < BOXES; i++)
        (void)batch_box(i, 1);
    core_ends();
    start();
    for (unsigned i = 0; i < SLOTS; i++)
        box[i].health = DXPU_CONTROL_HEALTH_BROKEN;
    core_batch(c);
    for (unsigned i = 0; i < BOXES; i++)
        assert_int_not_equal(batch_box(i, 1), 0);
    assert_true(core_batch_end(c));
    uint32_t last = c->t.node[BOXES - 1].first;
    assert_true(c->t.slot_more[last].late);
    assert_int_equal(core_pool(c)->slot[last].reason, POOL_WHY_BOX); /* as before it was back */
    unsigned parts = 1;
    for (bool more = true; more; parts++) {
        unsigned before = disk.commits;
        more = core_follow(c);
        assert_in_range(disk.commits - before, 1, COREI_FOLLOW_COMMITS);
    }
    assert_int_equal(parts, BOXES * SLOTS / COREI_FOLLOW_COMMITS);
    for (uint32_t i = 0; i < core_pool(c)->slots; i++) {
        assert_int_equal(core_pool(c)->slot[i].reason, POOL_WHY_DEVICE);
        assert_false(c->t.slot_more[i].late);
    }
    assert_null(rig_differs(c, &disk));
    for (unsigned i = 0; i < SLOTS; i++)
        box[i].health = DXPU_CONTROL_HEALTH_GOOD;
}

/* A serial number that a box says later is stored, as all that is known of a device. */
static void test_serial_that_is_said_later(void **state)
{
    (void)state;
    char serial = box[0].serial[0];
    box[0].serial[0] = 0;
    box_says(1, SLOTS);
    box[0].serial[0] = serial;
    box_says(1, 1);
    assert_string_equal(c->t.slot[0].device.serial, "A0");
    assert_null(rig_differs(c, &disk));
}

/* Of a slot that was hidden meanwhile, too: it is stored as it is shown. */
static void test_serial_that_is_said_by_a_box_that_is_back(void **state)
{
    (void)state;
    for (unsigned batch = 0; batch < 2; batch++) {
        box[batch].serial[0] = 0;
        box_says(1, SLOTS);
        core_disconnected(c, box_node);
        assert_true(c->t.slot_more[batch].silent);
        snprintf(box[batch].serial, sizeof box[batch].serial, "later%u", batch);
        if (batch)
            core_batch(c);
        box_says(1, SLOTS);
        if (batch)
            assert_true(core_batch_end(c));
        assert_string_equal(c->t.slot[batch].device.serial, box[batch].serial);
        assert_int_equal(core_pool(c)->slot[batch].state, POOL_FREE);
        assert_null(rig_differs(c, &disk));
    }
}

/* While a box is disconnected its slots are hidden, which is never stored. */
static void test_box_that_is_lost_in_its_batch(void **state)
{
    (void)state;
    core_batch(c);
    uint32_t node = batch_box(0, 1);
    core_disconnected(c, node);
    assert_true(core_batch_end(c));
    assert_true(c->t.slot_more[0].silent);
    assert_non_null(strstr(rig_value(&disk, "slot/1.1"), "\"state\":\"free\""));
}

/* No more than the store takes well at a time. */
static void test_registers_share_as_many_changes_as_the_store_has_room_for(void **state)
{
    (void)state;
    store_kind few = *disk.base.kind;
    few.share = SLOTS + COREI_REGISTER_CHANGES;
    disk.base.kind = &few;
    unsigned before = disk.commits;
    core_batch(c);
    for (unsigned i = 0; i < BATCH; i++)
        assert_int_not_equal(batch_box(i, 1), 0);
    assert_int_equal(disk.commits, before + BATCH - 1);
    assert_true(core_batch_end(c));
    assert_int_equal(disk.commits, before + BATCH);
    core_ends();
    rig_store_free(&disk);
    rig_store_init(&disk);
    start();
}

/* One of them is known and has another name, the others are new. */
static void test_registers_whose_commit_fails(void **state)
{
    (void)state;
    uint32_t known = batch_box(0, 1), count;
    core_ends();
    start();
    core_batch(c);
    rig_name = "renamed";
    assert_int_equal(batch_box(0, 1), known);
    rig_name = "name";
    for (unsigned i = 1; i < BATCH; i++)
        assert_int_not_equal(batch_box(i, 1), 0);
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_false(core_batch_end(c));
    (void)core_nodes(c, &count);
    assert_int_equal(count, 1);
    assert_int_equal(core_pool(c)->slots, SLOTS);
    core_disconnected(c, known); /* as the program does with all of them */
    disk.fail_after = UINT_MAX;
    at(2000);
    rig_name = "renamed";
    core_batch(c);
    for (unsigned i = 0; i < BATCH; i++) {
        assert_int_not_equal(batch_box(i, 1), 0);
        rig_name = "name";
    }
    assert_true(core_batch_end(c));
    assert_string_equal(core_nodes(c, &count)[0].name, "renamed");
    assert_int_equal(count, BATCH);
    core_ends(); /* the store has all of that */
    start();
    assert_string_equal(core_nodes(c, &count)[0].name, "renamed");
}

/* It fails in the middle, for want of room in it: what comes after is refused, what was before is
   no node. */
static void test_a_full_batch_whose_commit_fails(void **state)
{
    (void)state;
    store_kind few = *disk.base.kind;
    uint32_t count;
    few.share = SLOTS + COREI_REGISTER_CHANGES;
    disk.base.kind = &few;
    core_batch(c);
    assert_int_not_equal(batch_box(0, 1), 0);
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_int_equal(batch_box(1, 1), 0);
    assert_int_equal(why.code, CORE_E_STORE);
    disk.fail_after = UINT_MAX;
    at(2000);
    assert_int_equal(batch_box(2, 1), 0); /* the store works again, but a number was used twice */
    assert_int_equal(why.code, CORE_E_STORE);
    assert_false(core_batch_end(c));
    (void)core_nodes(c, &count);
    assert_int_equal(count, 0);
    core_batch(c);
    assert_int_not_equal(batch_box(2, 1), 0); /* the control: the next batch has it */
    assert_true(core_batch_end(c));
    (void)core_nodes(c, &count);
    assert_int_equal(count, 1);
    core_ends();
    rig_store_free(&disk);
    rig_store_init(&disk);
    start();
}

/* Tables that are full are loaded again in a batch: with what waits. */
static void test_tables_grow_in_a_batch(void **state)
{
    enum { MANY = 60 };
    (void)state;
    uint32_t node[MANY];
    uint64_t loads = c->loads;
    core_batch(c);
    for (unsigned i = 0; i < MANY; i++)
        node[i] = batch_box(i, 1);
    assert_true(c->loads > loads);
    assert_true(core_batch_end(c));
    for (unsigned i = 0; i < MANY; i++)
        assert_int_not_equal(core_find_slot(c, node[i], SLOTS), CORE_NONE);
    assert_null(rig_differs(c, &disk));
}

/* The box knows a lease that the store does not: nothing is lent there, nothing wiped, until
   somebody says so. */
static void test_store_is_old(void **state)
{
    (void)state;
    both_connect();
    box[1].epoch_seen = 50;
    box[1].epoch = 50;
    box[1].state = DXPU_CONTROL_SLOT_UP;
    box_says(2, 1);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_QUARANTINED);
    assert_true(core_pool(c)->epoch >= 50);
    expect_none();
    core_ends();
    start(); /* and that is remembered */
    assert_int_equal(core_pool(c)->slot[1].state, POOL_QUARANTINED);
    both_connect();
    assert_int_equal(core_repair(c, 1).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_UNBIND, box_node);
    assert_int_equal(o.m.u.unbind.epoch, 50);
    assert_false(o.m.u.unbind.keep);
}

/* A box that is new to the store, and lends slots or lent them: nothing is wiped there, whichever
   epochs this pool has given, and what was wiped already is free. */
static void test_foreign_box(void **state)
{
    (void)state;
    static const uint8_t states[SLOTS] = { DXPU_CONTROL_SLOT_EMPTY, DXPU_CONTROL_SLOT_KEPT,
                                           DXPU_CONTROL_SLOT_WIPED, DXPU_CONTROL_SLOT_HELD };
    box[0].epoch_seen = 30;
    box[0].state = DXPU_CONTROL_SLOT_EMPTY;
    both_connect();
    assert_int_equal(core_pool(c)->slot[0].state, POOL_QUARANTINED);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_FREE);
    assert_true(core_pool(c)->epoch >= 30);
    for (unsigned i = 0; i < SLOTS; i++) {
        box[i].epoch_seen = 2 + i;
        box[i].epoch = i == 3 ? 2 + i : 0;
        box[i].state = states[i];
    }
    for (unsigned again = 0; again < 2; again++) { /* in place, and when the tables are rebuilt */
        uint32_t other = rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(9 + again), 1, box, SLOTS,
                                      1, again ? 0 : SLOTS, &why);
        if (again)
            (void)rig_register(c, DXPU_CONTROL_ROLE_HOST, 20, 1, host, PORTS, 1, PORTS, &why);
        other = rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(9 + again), 1, box, SLOTS, 1,
                             SLOTS, &why);
        uint32_t slot = core_find_slot(c, other, 1);
        for (unsigned i = 0; i < SLOTS; i++) {
            const pool_slot *s = &core_pool(c)->slot[slot + i];
            assert_int_equal(s->state, i == 2 ? POOL_FREE : POOL_QUARANTINED);
            assert_int_equal(s->reason, i == 2 ? POOL_WHY_NONE : POOL_WHY_FOREIGN);
        }
        core_order o = expect(DXPU_CONTROL_DRAIN, other);
        done(&o, 0, 0);
        expect_none();
    }
    assert_int_equal(count_events(CORE_EVENT_SLOT_QUARANTINED), 1 + 2 * 3);
}

/* The manager is started with an empty store while two boxes lend: they and the host keep what they
   have until an operator says otherwise, slot by slot. */
static void test_fresh_store(void **state)
{
    (void)state;
    dxpu_control_device other[SLOTS];
    for (unsigned i = 0; i < PORTS - 1; i++) { /* in this order the second has the lower epochs */
        host[i].state = DXPU_CONTROL_SLOT_UP;
        host[i].epoch = 17 - 8 * i;
    }
    memcpy(other, box, sizeof other);
    box[0].state = DXPU_CONTROL_SLOT_UP;
    box[0].epoch = box[0].epoch_seen = 17;
    other[1].state = DXPU_CONTROL_SLOT_UP;
    other[1].epoch = other[1].epoch_seen = 9;
    host[2].epoch = 5; /* whose box does not come */
    both_connect();
    uint32_t second = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, other, SLOTS, 1, SLOTS, &why);
    core_order o = expect(DXPU_CONTROL_DRAIN, second);
    done(&o, 0, 0);
    expect_none();
    assert_int_equal(count_events(CORE_EVENT_PORT_FOREIGN), 3);
    uint64_t lease = lease_one(); /* at the port that is left */
    assert_int_equal(core_leases(c)[pool_lease_index(lease)].port[0], 4);
    assert_true(core_next_order(c, &o) && o.m.type == DXPU_CONTROL_BIND);
    assert_true(o.node == second && o.m.u.bind.epoch > 17);
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    other[o.m.u.bind.slot - 1].epoch = host[3].epoch = o.m.u.bind.epoch;
    other[o.m.u.bind.slot - 1].epoch_seen = o.m.u.bind.epoch;
    other[o.m.u.bind.slot - 1].peer_node = host_node;
    other[o.m.u.bind.slot - 1].peer_slot = 4;
    host[3].state = DXPU_CONTROL_SLOT_UP;
    (void)expect(DXPU_CONTROL_ATTACH, host_node);
    core_ends();
    start(); /* and that is remembered */
    host_says(1, PORTS);
    second = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, other, SLOTS, 1, SLOTS, &why);
    o = expect(DXPU_CONTROL_DRAIN, second);
    done(&o, 0, 0);
    expect_none();
    assert_int_equal(core_repair(c, core_find_slot(c, second, 2)).code, CORE_OK);
    o = expect(DXPU_CONTROL_DETACH, host_node);
    assert_int_equal(o.m.u.detach.slot, 2);
    assert_int_equal(o.m.u.detach.epoch, 9);
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    o = expect(DXPU_CONTROL_UNBIND, second);
    assert_int_equal(o.m.u.unbind.epoch, 9);
    expect_none();
}

/* A box that says `wiped` of a lease before the last never learned of the last: it is notified. */
static void test_stale_wiped(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port), epoch = core_pool(c)->epoch;
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_DETACH, host_node);
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    (void)expect(DXPU_CONTROL_UNBIND, box_node);
    core_disconnected(c, box_node);
    box[slot - 1].state = DXPU_CONTROL_SLOT_WIPED; /* as it was before the lease */
    box[slot - 1].epoch = 0;
    box[slot - 1].epoch_seen = epoch - 1;
    box_says(1, SLOTS);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_WIPING);
    o = expect(DXPU_CONTROL_UNBIND, box_node);
    assert_int_equal(o.m.u.unbind.epoch, epoch);
    assert_false(o.m.u.unbind.keep);
    done(&o, DXPU_CONTROL_SLOT_WIPED, 0); /* now it knows what it speaks of */
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_FREE);
}

/* The box starts again while it wipes. */
static void box_starts_again(uint64_t instance)
{
    core_disconnected(c, box_node);
    assert_int_equal(
        rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, instance, box, SLOTS, 1, SLOTS, &why),
        box_node);
}

static void test_m105_each_instance_is_ordered_to_wipe(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port), epoch = core_pool(c)->epoch;
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_DETACH, host_node);
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    o = expect(DXPU_CONTROL_UNBIND, box_node);
    done(&o, DXPU_CONTROL_SLOT_WIPING, 0);
    box[slot - 1].state = DXPU_CONTROL_SLOT_WIPING;
    box[slot - 1].epoch = 0;
    box[slot - 1].epoch_seen = epoch;
    box_says(slot, 1);
    expect_none(); /* it is at it */
    for (uint64_t instance = 8; instance < 10; instance++) {
        box_starts_again(instance);
        o = expect(DXPU_CONTROL_UNBIND, box_node);
        assert_int_equal(o.m.u.unbind.epoch, epoch);
        assert_false(o.m.u.unbind.keep);
        done(&o, DXPU_CONTROL_SLOT_WIPING, 0);
        (void)expect(DXPU_CONTROL_DRAIN, box_node);
        expect_none();
    }
    box[slot - 1].state = DXPU_CONTROL_SLOT_WIPED;
    box_starts_again(9);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_FREE);
}

/* An old copy of the box's state was put back: what it was to wipe then is another lease's now. */
static void test_m105_a_lease_is_bound_where_an_older_one_was_wiped(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    (void)lease_up(&slot, &port);
    uint64_t epoch = core_pool(c)->epoch;
    box[slot - 1].state = DXPU_CONTROL_SLOT_WIPING;
    box[slot - 1].epoch = 0;
    box[slot - 1].epoch_seen = epoch - 1;
    box_starts_again(8);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_LEASED);
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    assert_int_equal(o.m.u.bind.epoch, epoch);
}

/* The store gave an epoch, and another one, whose backup it is, gave it to another host's slot. */
static void test_other_peer(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    box_says(slot, 1); /* control: that peer is the store's */
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_LEASED);
    box[slot - 1].peer_slot++;
    box_says(slot, 1);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_QUARANTINED);
    assert_int_not_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    core_order o;
    while (core_next_order(c, &o)) /* the lease there is left as it is */
        assert_true(o.m.type == DXPU_CONTROL_DETACH || o.m.u.bind.slot != slot);
    assert_int_equal(count_events(CORE_EVENT_SLOT_QUARANTINED), 1);
}

/* Which box is disconnected, and for how long it counts; then that its slots are broken. */
static void test_a_disconnected_box_is_named(void **state)
{
    (void)state;
    uint32_t nodes;
    uint64_t lease;
    bool existed;
    both_connect();
    core_request r = { .model = "nvme", .host = host_node, .count = SLOTS + 1 };
    why = core_create(c, &r, &lease, &existed); /* the control: it is here */
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_null(strstr(why.text, "not reported"));
    assert_null(strstr(why.text, "broken"));
    core_disconnected(c, box_node);
    at(now_ms + 2000);
    r.count = 1;
    why = core_create(c, &r, &lease, &existed);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, core_nodes(c, &nodes)[core_find_node(c, box_node)].name));
    assert_non_null(strstr(why.text, "has not reported for 2 s; try again: in 4 s it no longer"));
    at(now_ms + 4000); /* it is given up */
    why = core_create(c, &r, &lease, &existed);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_null(strstr(why.text, "not reported"));
    assert_non_null(strstr(why.text, "broken: box disconnected)"));
    box_says(1, SLOTS);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
}

/* A request, and a lease that is attached: how many slots the host has empty, and how many are
   asked for. */
static void test_a_full_host_is_refused_with_numbers(void **state)
{
    (void)state;
    uint64_t lease, other;
    bool existed;
    both_connect();
    uint32_t small = rig_register(c, DXPU_CONTROL_ROLE_HOST, HOST + 1, 9, host, 1, 1, 1, &why);
    core_request r = { .model = "nvme", .host = host_node, .count = 3 };
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    r.count = 2;
    why = core_create(c, &r, &other, &existed);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, " has 1 of 4 slots empty, and 2 are asked for; "));
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    why = core_attach(c, lease, small);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, " has 1 of 1 slots empty, and 3 are asked for; "));
    memcpy(r.model, "gpu", sizeof "gpu");
    why = core_create(c, &r, &other, &existed);
    assert_int_equal(why.code, CORE_E_UNKNOWN);
    assert_non_null(strstr(why.text, "no box has the model gpu; 'dxpu pool' lists the models"));
}

/* After a start only slots of boxes that were heard of are lent, whatever others have free. */
static void test_silent_since_start(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .count = SLOTS, .need = POOL_SAME_BOX };
    uint64_t lease;
    bool existed;
    both_connect();
    uint32_t second = second_box();
    core_ends();
    start();
    host_says(1, PORTS);
    r.host = host_node;
    assert_non_null(strstr(core_create(c, &r, &lease, &existed).text, "not reported"));
    assert_int_equal(second_box(), second);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    assert_int_equal(core_find_slot(c, second, 1), pool_find_lease(core_pool(c), lease)->first);
    assert_null(strstr(rig_value(&disk, "slot/1.1"), "broken")); /* no record says so */
    unsigned repaired = count_events(CORE_EVENT_SLOT_REPAIRED);
    box_says(1, SLOTS);
    assert_int_equal(core_pool(c)->slot[0].state, POOL_FREE);
    assert_int_equal(count_events(CORE_EVENT_SLOT_REPAIRED), repaired);
}

static void test_wipe_fails(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_DETACH, host_node);
    core_answered(c, &o, DXPU_CONTROL_CODE_EMPTY, NULL);
    for (unsigned again = 0; again < 2; again++) {
        o = expect(DXPU_CONTROL_UNBIND, box_node);
        done(&o, DXPU_CONTROL_SLOT_WIPING, 0);
        box[slot - 1].state = DXPU_CONTROL_SLOT_UNWIPED;
        box[slot - 1].epoch = 0;
        box_says(slot, 1);
        assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_QUARANTINED);
        expect_none();
        assert_int_equal(core_repair(c, slot - 1).code, CORE_OK);
        expect_none(); /* the same again is not said at once */
        at(now_ms + COREI_RETRY_MAX_MS);
    }
}

/* A host that does not give the slot up is waited for, not forever. */
static void test_host_is_slow(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_DETACH, host_node);
    expect_none();
    at(now_ms + COREI_YIELD_MS - 1);
    expect_none();
    at(now_ms + 1);
    (void)expect(DXPU_CONTROL_UNBIND, box_node);
    expect_none();
    core_answered(c, &o, DXPU_CONTROL_CODE_EMPTY, NULL);
    expect_none();
}

/* Its guest may need time to let go of the device; also that has an end. */
static void test_v47_host_that_is_closing_is_waited_for(void **state)
{
    unsigned slot, port;
    (void)state;
    both_connect();
    for (unsigned ends = 0; ends < 2; ends++) {
        uint64_t lease = lease_up(&slot, &port);
        core_order o;
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        o = expect(DXPU_CONTROL_DETACH, host_node);
        done(&o, DXPU_CONTROL_SLOT_CLOSING, box[slot - 1].epoch);
        at(now_ms + COREI_YIELD_MS);
        expect_none();
        at(now_ms + COREI_LEAVE_MS - 1);
        expect_none();
        if (ends) {
            at(now_ms + 1);
        } else {
            host[port - 1].state = DXPU_CONTROL_SLOT_EMPTY;
            host[port - 1].epoch = 0;
            host_says(port, 1);
        }
        o = expect(DXPU_CONTROL_UNBIND, box_node);
        done(&o, DXPU_CONTROL_SLOT_WIPING, 0);
        expect_none();
    }
}

static void test_park_attach(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port), epoch = core_pool(c)->epoch;
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    assert_int_equal(core_park(c, lease).code, CORE_E_STATE);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
    core_order o = expect(DXPU_CONTROL_DETACH, host_node);
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    host[port - 1].state = DXPU_CONTROL_SLOT_EMPTY;
    host[port - 1].epoch = 0;
    o = expect(DXPU_CONTROL_UNBIND, box_node);
    assert_true(o.m.u.unbind.keep);
    done(&o, DXPU_CONTROL_SLOT_KEPT, 0);
    expect_none();
    core_ends();
    start();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
    box[slot - 1].state = DXPU_CONTROL_SLOT_KEPT;
    box[slot - 1].epoch = 0;
    both_connect();
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    o = expect(DXPU_CONTROL_BIND, box_node);
    assert_true(o.m.u.bind.epoch > epoch);
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    (void)expect(DXPU_CONTROL_ATTACH, host_node);
}

/* Parked, and both proxies have done what follows. */
static uint64_t lease_kept(unsigned *slot, unsigned *port)
{
    uint64_t lease = lease_up(slot, port);
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_DETACH, host_node);
    done(&o, DXPU_CONTROL_SLOT_EMPTY, 0);
    host[*port - 1].state = DXPU_CONTROL_SLOT_EMPTY;
    host[*port - 1].epoch = 0;
    o = expect(DXPU_CONTROL_UNBIND, box_node);
    done(&o, DXPU_CONTROL_SLOT_KEPT, 0);
    box[*slot - 1].state = DXPU_CONTROL_SLOT_KEPT;
    box[*slot - 1].epoch = 0;
    box_says(*slot, 1);
    return lease;
}

/* A parked lease is not moved by a drain, nor given to a host while its box drains or is
   disconnected. */
static void test_kept_stays(void **state)
{
    (void)state;
    unsigned slot, port, left;
    both_connect();
    uint64_t lease = lease_kept(&slot, &port);
    (void)second_box();
    assert_int_equal(core_drain(c, box_node, true, true, &left).code, CORE_OK);
    assert_int_equal(left, 1);
    assert_int_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_E_STATE);
    assert_non_null(strstr(core_attach(c, lease, host_node).text, "draining"));
    assert_int_equal(core_drain(c, box_node, false, false, &left).code, CORE_OK);
    core_disconnected(c, box_node);
    assert_non_null(strstr(core_attach(c, lease, host_node).text, "not connected"));
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PARKED);
    box_says(1, SLOTS);
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
}

/* Attached again: until it is up, neither a drained nor a silent box nor a broken device costs it
   its slot; an operator may say so. */
static void test_kept_until_up(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_kept(&slot, &port);
    (void)second_box();
    const pool_slot *s = &core_pool(c)->slot[slot - 1];
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    core_answered(c, &o, DXPU_CONTROL_CODE_DRAINED, NULL);
    assert_int_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    core_disconnected(c, box_node);
    at(now_ms + 6000);
    assert_int_equal(s->state, POOL_BROKEN);
    core_ends();
    start(); /* and that is remembered */
    s = &core_pool(c)->slot[slot - 1];
    host_says(1, PORTS);
    (void)second_box();
    at(now_ms + 20000);
    assert_int_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    box_says(1, SLOTS);
    assert_int_equal(s->state, POOL_LEASED);
    box[slot - 1].health = DXPU_CONTROL_HEALTH_BROKEN;
    box_says(slot, 1);
    at(now_ms + COREI_REPLACE_MS);
    assert_int_equal(s->state, POOL_BROKEN);
    assert_int_not_equal(s->lease, POOL_NONE);
    assert_int_equal(core_replace(c, slot - 1, POOL_WHY_OPERATOR, true).code, CORE_OK);
    assert_int_equal(s->lease, POOL_NONE);
}

/* Once it is up it is a lease as others are. */
static void test_control_kept(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_kept(&slot, &port);
    assert_int_equal(core_attach(c, lease, host_node).code, CORE_OK);
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    uint64_t epoch = o.m.u.bind.epoch;
    done(&o, DXPU_CONTROL_SLOT_HELD, epoch);
    box[slot - 1].epoch = box[slot - 1].epoch_seen = epoch;
    box[slot - 1].state = DXPU_CONTROL_SLOT_UP;
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    done(&o, DXPU_CONTROL_SLOT_DIALING, epoch);
    host[port - 1].epoch = epoch;
    host[port - 1].state = DXPU_CONTROL_SLOT_UP;
    host_says(port, 1);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    box[slot - 1].health = DXPU_CONTROL_HEALTH_BROKEN;
    box_says(slot, 1);
    assert_int_not_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
}

static void test_key(void **state)
{
    (void)state;
    core_request r = { .tenant = "t", .model = "nvme", .key = "k", .count = 1, .replace = true };
    uint64_t lease, again;
    bool existed;
    both_connect();
    lease = lease_one();
    core_ends();
    start();
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_OK);
    assert_true(existed && again == lease);
    r.count = 2;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_E_STATE);
    memcpy(r.tenant, "u", 2); /* another tenant's key is another */
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_E_CAPACITY);
    box_says(1, SLOTS); /* whose slots are lent only when it was heard of */
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_OK);
    assert_false(existed);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    memcpy(r.tenant, "t", 2);
    r.count = 1;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_OK);
    assert_true(!existed && again != lease);
}

static void test_refusals(void **state)
{
    (void)state;
    core_request r = { .tenant = "t", .model = "nvme", .count = 3 };
    uint64_t lease;
    bool existed;
    both_connect();
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_UNKNOWN);
    r.host = box_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_UNKNOWN);
    r.host = host_node;
    assert_int_equal(core_set_tenant(c, "t", 2).code, CORE_OK);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_QUOTA);
    assert_int_equal(core_set_tenant(c, "t", 64).code, CORE_OK);
    r.count = 5;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_CAPACITY);
    r.count = 0;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_ARG);
    r.count = 1;
    memcpy(r.model, "tpu", 4);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_UNKNOWN);
    memcpy(r.tenant, "a b", 4);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_ARG);
    assert_int_equal(core_release(c, 77, false).code, CORE_E_UNKNOWN);
    assert_int_equal(core_set_tenant(c, "", 1).code, CORE_E_ARG);
    assert_int_equal(core_set_spares(c, "tpu", 1).code, CORE_E_UNKNOWN);
    assert_int_equal(core_repair(c, 99).code, CORE_E_UNKNOWN);
    assert_int_equal(core_pool(c)->leases, 0);
}

/* A tenant for whom the tables are rebuilt, in which models are in another order; and one whose
   request fails leaves nothing. */
static void test_new_tenants(void **state)
{
    (void)state;
    core_request r = { .model = "tpu", .count = 1 };
    uint64_t lease;
    bool existed;
    uint32_t n;
    both_connect();
    for (unsigned i = 3; i <= 10; i++) { /* in the store node 10 comes before node 3 */
        dxpu_control_device d = box[0];
        snprintf(d.model, sizeof d.model, "%s", i == 3 ? "tpu" : i == 10 ? "gpu" : "nvme");
        assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)i, 1, &d, 1, 1, 1, &why),
                         i);
    }
    uint32_t was = core_find_model(c, "tpu");
    r.host = host_node;
    r.count = 2; /* there is one */
    for (unsigned i = 0; i < 100; i++) {
        snprintf(r.tenant, sizeof r.tenant, "nobody%u", i);
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_CAPACITY);
    }
    (void)core_tenants(c, &n);
    assert_int_equal(n, 0);
    assert_int_equal(core_find_tenant(c, "nobody1"), CORE_NONE);
    for (unsigned i = 0; i < 16; i++) {
        snprintf(r.tenant, sizeof r.tenant, "t%u", i);
        assert_int_equal(core_set_tenant(c, r.tenant, 1).code, CORE_OK);
    }
    snprintf(r.tenant, sizeof r.tenant, "last");
    r.count = 1;
    assert_int_equal(core_find_model(c, "tpu"), was);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    assert_int_not_equal(core_find_model(c, "tpu"), was); /* control: they were rebuilt */
    assert_string_equal(c->t.slot[pool_find_lease(core_pool(c), lease)->first].device.model, "tpu");
}

static void test_expiry(void **state)
{
    (void)state;
    core_request r = { .tenant = "t", .model = "nvme", .count = 1, .seconds = 10 };
    uint64_t lease, longer;
    bool existed;
    both_connect();
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    assert_int_equal(core_create(c, &r, &longer, &existed).code, CORE_OK);
    assert_int_equal(core_extend(c, longer, 20).code, CORE_OK);
    assert_int_equal(core_next_ms(c), now_ms + 10000);
    core_ends();
    start();
    at(now_ms + 9999);
    assert_non_null(pool_find_lease(core_pool(c), lease));
    box_says(1, SLOTS); /* it never had them */
    at(now_ms + 1);
    assert_null(pool_find_lease(core_pool(c), lease));
    assert_non_null(pool_find_lease(core_pool(c), longer));
    assert_int_equal(core_extend(c, longer, 0).code, CORE_OK);
    at(now_ms + 100000);
    assert_non_null(pool_find_lease(core_pool(c), longer));
}

/* An order that is refused is given again later and later, and reported once. */
static void test_refused_order(void **state)
{
    (void)state;
    core_event e[8];
    both_connect();
    (void)lease_one();
    uint64_t pause = 100;
    for (unsigned i = 0; i < 8; i++, pause = pause < 2500 ? 2 * pause : 5000) {
        core_order o = expect(DXPU_CONTROL_BIND, box_node);
        core_answered(c, &o, DXPU_CONTROL_CODE_BUSY, NULL);
        expect_none();
        if (i) {
            at(now_ms + pause - 1);
            expect_none();
            at(now_ms + 1);
        } else {
            at(now_ms + 100);
        }
    }
    unsigned told = 0, n = core_events_after(c, 0, e, 8);
    for (unsigned i = 0; i < n; i++)
        told += e[i].type == CORE_EVENT_ORDER_REFUSED;
    assert_int_equal(told, 1);
}

/* Slots that were never lent, with unknown data: a box that was reinstalled. */
static void test_unknown_data(void **state)
{
    (void)state;
    for (unsigned i = 1; i < SLOTS; i++) /* the first one is the control: it is wiped, and free */
        box[i].state = DXPU_CONTROL_SLOT_EMPTY;
    both_connect();
    assert_int_equal(core_pool(c)->slot[0].state, POOL_FREE);
    for (unsigned i = 1; i < SLOTS; i++) {
        assert_int_equal(core_pool(c)->slot[i].state, POOL_QUARANTINED);
        assert_int_equal(core_pool(c)->slot[i].reason, POOL_WHY_FOREIGN);
        for (unsigned j = 1; j < i; j++)
            assert_true(core_pool(c)->slot[i].epoch != core_pool(c)->slot[j].epoch);
    }
    assert_int_equal(core_repair(c, 1).code, CORE_OK);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_WIPING);
}

static void test_drain_moves(void **state)
{
    (void)state;
    unsigned slot, port, left;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    assert_int_equal(core_drain(c, box_node, true, true, &left).code, CORE_OK);
    assert_int_equal(left, 1); /* there is no other box */
    uint32_t other = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, box, SLOTS, 1, 0, &why);
    dxpu_control_device fresh[SLOTS];
    memcpy(fresh, box, sizeof fresh);
    for (unsigned i = 0; i < SLOTS; i++) {
        fresh[i].epoch = fresh[i].epoch_seen = 0;
        fresh[i].state = DXPU_CONTROL_SLOT_WIPED;
    }
    other = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, fresh, SLOTS, 1, SLOTS, &why);
    assert_int_not_equal(other, 0);
    assert_int_equal(core_drain(c, box_node, true, true, &left).code, CORE_OK);
    assert_int_equal(left, 0);
    uint32_t now[POOL_COUNT_MAX];
    assert_int_equal(pool_lease_slots(core_pool(c), lease, now), 1);
    assert_int_equal(c->t.node[c->t.slot[now[0]].node].number, other);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_WIPING);
    core_ends();
    start();
    assert_true(c->t.node[0].draining);
    assert_int_equal(core_pool(c)->slot[slot % SLOTS].state, POOL_DRAINED);
}

/* Boxes with 8 slots in groups of 4, and a lease in the first; others are free but for `taken`
   slots of each. */
static uint64_t lease_in_groups(uint8_t count, uint8_t need, unsigned boxes, unsigned taken)
{
    dxpu_control_device d[8];
    uint64_t lease;
    bool existed;
    core_request r = { .model = "nvme", .count = count, .need = need, .replace = true };
    for (unsigned i = 0; i < 8; i++) {
        d[i] = box[0];
        d[i].group = 1 + i / 4;
    }
    host_says(1, PORTS);
    r.host = host_node;
    box_node = rig_register(c, DXPU_CONTROL_ROLE_BOX, 30, 1, d, 8, 1, 8, &why);
    for (unsigned b = 1; b < boxes && need == POOL_SPREAD; b++)
        assert_true(rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(30 + b), 1, d, 8, 1, 8, &why));
    core_result result = core_create(c, &r, &lease, &existed);
    if (result.code != CORE_OK)
        fail_msg("%s", result.text);
    for (unsigned b = 1; b < boxes; b++) {
        uint32_t node =
            rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(30 + b), 1, d, 8, 1, 8, &why);
        for (unsigned i = 0; i < taken; i++) /* of each group as many */
            assert_int_equal(
                core_break(c, core_find_slot(c, node, 1 + i / 2 + i % 2 * 4), POOL_WHY_OPERATOR)
                    .code,
                CORE_OK);
    }
    return lease;
}

static unsigned slots_at(uint64_t lease, uint32_t node)
{
    uint32_t slot[POOL_COUNT_MAX];
    unsigned n = pool_lease_slots(core_pool(c), lease, slot), there = 0;
    for (unsigned i = 0; i < n; i++)
        there += c->t.node[c->t.slot[slot[i]].node].number == node;
    return there;
}

/* A drained box's leases get slots that stand as they ask, all of them, or stay and say why. */
static void test_drain_keeps_needs(void **state)
{
    static const struct {
        uint8_t count, need, boxes, taken;
        bool moves;
    } runs[] = {
        { 4, POOL_SAME_BOX, 2, 0, true },   { 4, POOL_SAME_BOX, 2, 4, true },
        { 4, POOL_SAME_BOX, 3, 6, false },  { 3, POOL_SAME_GROUP, 2, 0, true },
        { 3, POOL_SAME_GROUP, 2, 2, true }, { 3, POOL_SAME_GROUP, 3, 4, false },
        { 3, POOL_SPREAD, 4, 0, true },     { 3, POOL_SPREAD, 3, 0, false },
        { 4, POOL_ANY, 3, 6, true },
    };
    for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        unsigned left, was;
        uint64_t lease = lease_in_groups(runs[i].count, runs[i].need, runs[i].boxes, runs[i].taken);
        if (runs[i].need == POOL_SPREAD)
            box_node =
                c->t.node[c->t.slot[pool_find_lease(core_pool(c), lease)->first].node].number;
        was = slots_at(lease, box_node);
        assert_true(was && pool_need_kept(core_pool(c), lease));
        assert_int_equal(core_drain(c, box_node, true, true, &left).code, CORE_OK);
        assert_int_equal(left, runs[i].moves ? 0 : was);
        assert_int_equal(slots_at(lease, box_node), left);
        assert_true(pool_need_kept(core_pool(c), lease));
        assert_int_equal(count_events(CORE_EVENT_NODE_DRAIN), runs[i].moves ? 1 : 2);
        assert_int_equal(count_events(CORE_EVENT_SLOT_REPLACED), runs[i].moves ? was : 0);
        if (runs[i].moves) { /* with the ports, in their order; and so it is stored */
            uint32_t at = pool_find_lease(core_pool(c), lease)->first;
            assert_int_equal(c->t.port[c->t.slot_more[at].port].slot, at);
        }
        core_ends();
        start();
        assert_true(pool_need_kept(core_pool(c), lease));
        assert_int_equal(slots_at(lease, box_node), left);
        (void)end(state);
        (void)begin(state);
    }
}

/* A lease whose data are nowhere else stays in a drained box, and an event says why; one that may
   be replaced is the control.  An operator may move it. */
static void test_drain_leaves_no_replace(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .count = 2, .replace = CORE_REPLACE_NO };
    core_event e[64];
    unsigned left, told = 0;
    uint64_t lease, moves;
    uint32_t first;
    bool existed;
    both_connect();
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    first = pool_find_lease(core_pool(c), lease)->first;
    moves = lease_one();
    assert_true(rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, box, SLOTS, 1, SLOTS, &why));
    assert_int_equal(core_drain(c, box_node, true, true, &left).code, CORE_OK);
    assert_int_equal(left, 2);
    assert_int_equal(slots_at(lease, box_node), 2);
    assert_int_equal(slots_at(moves, box_node), 0);
    for (unsigned i = 0, n = core_events_after(c, 0, e, 64); i < n; i++)
        told += e[i].type == CORE_EVENT_NODE_DRAIN && e[i].lease == lease &&
                strstr(e[i].text, "--no-replace") != NULL;
    assert_int_equal(told, 1);
    assert_int_equal(core_pool(c)->slot[first].state, POOL_LEASED);
    assert_int_equal(core_replace(c, first, POOL_WHY_OPERATOR, true).code, CORE_OK);
    assert_int_equal(slots_at(lease, box_node), 1);
}

static void test_other_device(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    unsigned free_slot = slot % SLOTS + 1;
    memcpy(box[free_slot - 1].model, "gpu", 4);
    box_says(free_slot, 1);
    assert_int_not_equal(core_find_model(c, "gpu"), CORE_NONE);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    memcpy(box[slot - 1].serial, "other", 6);
    box_says(slot, 1);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_DEGRADED);
    assert_int_not_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    assert_null(strstr(rig_value(&disk, "slot/1.1"), "gpu\"x"));
}

/* A box whose devices change all the time costs no rebuilt tables, and no more changes of the
   store than there are allowed; the last one counts in the end. */
static void test_changes_all_the_time(void **state)
{
    (void)state;
    both_connect();
    uint64_t loads = c->loads, commits = c->commits;
    for (unsigned i = 0; i <= 10000; i++) {
        snprintf(box[0].model, sizeof box[0].model, "m%u", i);
        box[0].group = i % 3;
        box_says(1, 1);
        expect_none();
    }
    assert_int_equal(c->loads, loads);
    assert_in_range(c->commits - commits, COREI_CHANGES, COREI_CHANGES + SLOTS);
    assert_int_equal(core_find_model(c, "m10000"), CORE_NONE);
    box[1].health = DXPU_CONTROL_HEALTH_BROKEN; /* nor is what it says of another one acted upon */
    box_says(2, 1);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_FREE);
    host[0].state = DXPU_CONTROL_SLOT_UP; /* the control: what others say is */
    host[0].epoch = 7;
    host_says(1, 1);
    assert_int_equal(count_events(CORE_EVENT_PORT_FOREIGN), 1);
    at(now_ms + 1000);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_BROKEN);
    assert_int_equal(core_pool(c)->slot[0].model, core_find_model(c, "m10000"));
    assert_in_range(c->t.models, 2, 3); /* the others are forgotten */
    assert_int_equal(c->loads, loads);
    host[1].state = DXPU_CONTROL_SLOT_UP;
    for (unsigned i = 0; i < 1000; i++) { /* a host's words are counted as well */
        host[1].epoch = 8 + i;
        host_says(2, 1);
        host[1].epoch = 0;
        host_says(2, 1);
    }
    assert_in_range(count_events(CORE_EVENT_PORT_FOREIGN), 2, 1 + COREI_CHANGES + PORTS);
    host[1].epoch = 5000;
    host_says(2, 1);
    at(now_ms + 1000);
    assert_true(c->t.port[1].foreign);
}

/* Many models that come and go: as many as there can be at a time, whatever was there before. */
static void test_models_come_and_go(void **state)
{
    (void)state;
    dxpu_control_device d[64];
    both_connect();
    for (unsigned i = 0; i < 64; i++)
        d[i] = box[0];
    for (unsigned turn = 0; turn < 40; turn++) {
        for (unsigned i = 0; i < 64; i++)
            snprintf(d[i].model, sizeof d[i].model, "m%u", 64 * turn + i);
        assert_true(rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1 + turn, d, 64, 1, 64, &why));
        assert_int_equal(corei_models_used(&c->t), 65);
        at(now_ms + 1000);
    }
    assert_true(c->loads < 10);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(core_pool(c)->slot[SLOTS + i].state, POOL_FREE);
}

/* A proxy with ever more slots rebuilds the tables at most once a minute; others in between. */
static void test_ever_more_slots(void **state)
{
    (void)state;
    dxpu_control_device many[64];
    both_connect();
    for (unsigned i = 0; i < 64; i++)
        many[i] = box[0];
    uint64_t loads = c->loads;
    for (unsigned total = SLOTS + 1; total <= 64; total++)
        assert_int_equal(
            rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, many, total, 1, total, &why) != 0,
            total == SLOTS + 1);
    assert_int_equal(c->loads, loads + 1);
    assert_non_null(strstr(why.text, "minute"));
    at(now_ms + COREI_ENLARGE_MS);
    assert_true(rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, many, 64, 1, 64, &why));
    /* New ones, though they come in turns, need none. */
    loads = c->loads;
    for (unsigned part = 0; part < 2; part++)
        for (uint8_t i = 0; i < 4; i++)
            assert_true(rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(20 + i), 1, box, SLOTS,
                                     1 + part, SLOTS - 1, &why));
    assert_int_equal(c->loads, loads);
    assert_int_equal(core_pool(c)->slots, 64 + 4 * SLOTS);
}

/* A slot that was wiped, and that its box calls `empty` now: it is not lent before it is wiped. */
static void test_m77_reinstalled(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .count = SLOTS };
    uint64_t lease;
    bool existed;
    both_connect();
    uint32_t second = second_box();
    r.host = host_node;
    core_disconnected(c, box_node);
    for (unsigned i = 0; i < 2; i++)
        box[i].state = DXPU_CONTROL_SLOT_EMPTY;
    assert_int_equal(core_break(c, 1, POOL_WHY_OPERATOR).code, CORE_OK);
    box_says(1, SLOTS);
    assert_int_equal(core_pool(c)->slot[0].state, POOL_QUARANTINED);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_BROKEN);
    assert_int_equal(core_pool(c)->slot[2].state, POOL_FREE); /* the control: still wiped */
    expect_none();                                            /* nothing is wiped yet */
    assert_int_equal(core_repair(c, 0).code, CORE_OK);
    assert_int_equal(core_repair(c, 1).code, CORE_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(core_pool(c)->slot[i].state, POOL_WIPING);
        core_order o = expect(DXPU_CONTROL_UNBIND, box_node);
        assert_false(o.m.u.unbind.keep);
        dxpu_control_done d = { o.m.u.unbind.slot, DXPU_CONTROL_SLOT_WIPED, 0 };
        core_answered(c, &o, DXPU_CONTROL_CODE_NONE, &d);
        assert_int_equal(core_pool(c)->slot[i].state, POOL_FREE);
        box[i].state = DXPU_CONTROL_SLOT_WIPED;
        box[i].epoch_seen = o.m.u.unbind.epoch;
    }
    /* A lease that was not up yet gets other slots; one that was up goes on. */
    unsigned slot, port;
    uint64_t up = lease_up(&slot, &port);
    r.count = 1;
    r.replace = true;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    uint32_t at_first = pool_find_lease(core_pool(c), lease)->first;
    assert_true(at_first < SLOTS);
    core_disconnected(c, box_node);
    for (unsigned i = 0; i < SLOTS; i++) {
        box[i].state = DXPU_CONTROL_SLOT_EMPTY;
        box[i].epoch = box[i].epoch_seen = 0;
    }
    box_says(1, SLOTS);
    at(now_ms + COREI_REPLACE_MS); /* not by a slot of the same box, which is as unknown */
    assert_int_equal(pool_find_lease(core_pool(c), up)->first, slot - 1);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_LEASED);
    assert_int_equal(core_find_slot(c, second, 1), pool_find_lease(core_pool(c), lease)->first);
    assert_int_equal(core_pool(c)->slot[at_first].state, POOL_QUARANTINED);
}

/* M-132: a box that refuses each order, and makes each another one by what it reports before. */
static void test_m132_refusals(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    core_disconnected(c, box_node);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    uint64_t epoch = core_pool(c)->slot[slot - 1].epoch;
    core_order o;
    for (unsigned round = 0; round < 2; round++) { /* the second one is the control */
        unsigned before = disk.commits, most = COREI_CHANGES + SLOTS + 10;
        for (unsigned i = 1; i < 4 * most; i++) {
            box[slot - 1].state = DXPU_CONTROL_SLOT_HELD;
            box[slot - 1].epoch = epoch - i - round * 4 * most;
            box[slot - 1].peer_node = box[slot - 1].peer_slot = 0;
            box_says(1, SLOTS);
            while (core_next_order(c, &o))
                assert_true(core_answered(c, &o, DXPU_CONTROL_CODE_EPOCH, NULL));
        }
        assert_true(disk.commits - before <= most);
        assert_true(disk.commits - before > COREI_CHANGES / 2);
        at(now_ms + 1000);
    }
}

/* Two keys that come with one identity in turn. */
static void test_m132_other_keys(void **state)
{
    (void)state;
    uint8_t keys[3][DXPU_CONTROL_KEY_BYTES] = { { 1 }, { 2 }, { 3 } };
    dxpu_control_register r = { .role = DXPU_CONTROL_ROLE_BOX, .identity = { BOX, 1 } };
    rig_key = keys[0];
    box_says(1, SLOTS);
    rig_key = NULL;
    unsigned before = disk.commits;
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(core_check_key(c, &r, keys[1 + i % 2]).code, CORE_E_STATE);
    assert_int_equal(disk.commits - before, 2);
    at(now_ms + COREI_TOLD_MS); /* the control */
    assert_int_equal(core_check_key(c, &r, keys[1]).code, CORE_E_STATE);
    assert_true(disk.commits - before > 2);
}

/* A node comes with more slots; one between others. */
static void test_more_slots(void **state)
{
    (void)state;
    dxpu_control_device more[SLOTS + 2];
    both_connect();
    uint64_t lease = lease_one();
    uint32_t other = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, box, SLOTS, 1, SLOTS, &why);
    memcpy(more, box, sizeof box);
    more[SLOTS] = more[SLOTS + 1] = box[0];
    core_disconnected(c, box_node);
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, more, SLOTS + 2, 1, 3, &why),
                     box_node);
    assert_false(c->t.node[core_find_node(c, box_node)].connected);
    assert_int_equal(
        rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, more, SLOTS + 2, 4, SLOTS - 1, &why),
        box_node);
    assert_true(c->t.node[core_find_node(c, box_node)].connected);
    assert_int_equal(core_pool(c)->slots, 2 * SLOTS + 2);
    assert_int_equal(core_find_slot(c, other, 1), SLOTS + 2);
    assert_non_null(pool_find_lease(core_pool(c), lease));
    assert_true(c->t.node[core_find_node(c, other)].connected);
}

static void test_forget(void **state)
{
    (void)state;
    both_connect();
    uint64_t lease = lease_one();
    assert_int_equal(core_forget(c, box_node).code, CORE_E_STATE);
    core_disconnected(c, box_node);
    assert_int_equal(core_forget(c, box_node).code, CORE_E_STATE);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    uint64_t epoch = core_pool(c)->epoch;
    assert_int_equal(core_forget(c, box_node).code, CORE_OK);
    assert_null(rig_value(&disk, "slot/1.1"));
    assert_int_equal(core_pool(c)->epoch, epoch);
    core_ends();
    start();
    assert_int_equal(core_pool(c)->epoch, epoch);
    uint32_t was = box_node;
    box_says(1, SLOTS);
    assert_true(box_node > was && box_node > host_node);
    core_disconnected(c, box_node);
    box_says(1, SLOTS - 1); /* it is back, and has not reported all */
    assert_int_equal(core_forget(c, box_node).code, CORE_E_STATE);
    core_disconnected(c, box_node);
    assert_int_equal(core_forget(c, box_node).code, CORE_OK);
}

/* Strangers register until there are as many nodes, or slots, as there may be: reported once; those
   that never had a lease can be forgotten together. */
static void test_strangers(void **state)
{
    (void)state;
    core_settings set;
    uint32_t count, nodes;
    rig_settings(&set);
    assert_int_equal(set.nodes, 65536);
    core_ends();
    set.nodes = 20;
    set.slots = 20 * SLOTS;
    c = core_open(&disk.base, &set, 1000000, now_ms, &why);
    both_connect();
    unsigned slot, port;
    uint64_t lease = lease_up(&slot, &port);
    for (unsigned i = 0; i < 25; i++) {
        uint32_t node =
            rig_register(c, i % 2 ? DXPU_CONTROL_ROLE_BOX : DXPU_CONTROL_ROLE_HOST,
                         (uint8_t)(100 + i), 1, i % 2 ? box : host, i ? 3 : 4, 1, i ? 3 : 4, &why);
        assert_int_equal(node != 0, i < 18);
        core_disconnected(c, node);
    }
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, "--nodes"));
    assert_int_equal(count_events(CORE_EVENT_ALARM), 1);
    box_says(1, SLOTS); /* who was here before is not refused */
    core_clock(c, 1000000 + 999, now_ms);
    assert_int_equal(core_forget_unused(c, 1000, &count).code, CORE_OK);
    assert_int_equal(count, 0); /* not for that time */
    core_clock(c, 1000000 + 2000, now_ms);
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    assert_int_equal(core_forget_unused(c, 1000, &count).code, CORE_E_STORE);
    core_nodes(c, &nodes);
    assert_int_equal(nodes, 20);
    disk.fail_after = UINT_MAX;
    at(now_ms + COREI_REFUSE_MS);
    core_clock(c, 1000000 + 5000, now_ms);
    assert_int_equal(core_forget_unused(c, 1000, &count).code, CORE_OK);
    assert_int_equal(count, 18);
    core_nodes(c, &nodes);
    assert_int_equal(nodes, 2);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_null(rig_value(&disk, "slot/4.1"));
    /* Their slots are counted, too: a host with more than are left. */
    static dxpu_control_device many[18 * SLOTS + 1];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, (uint8_t)(200 + i), 1, many,
                                      18 * SLOTS + 1 - i, 1, 18 * SLOTS + 1 - i, &why) != 0,
                         i);
    assert_int_equal(count_events(CORE_EVENT_ALARM), 2);
    /* One that had a lease is kept, though it has none now, and that is remembered. */
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    core_disconnected(c, host_node);
    core_ends();
    c = core_open(&disk.base, &set, 1000000, now_ms, &why);
    core_clock(c, 9000000, now_ms);
    assert_int_equal(core_forget_unused(c, 1000, &count).code, CORE_OK);
    assert_int_equal(count, 1);
    assert_int_not_equal(core_find_node(c, host_node), CORE_NONE);
    assert_int_not_equal(core_find_node(c, box_node), CORE_NONE);
}

/* Events are numbered without gaps, are there after a restart, and the oldest go. */
static void test_events(void **state)
{
    (void)state;
    core_event e[32];
    core_settings set;
    rig_settings(&set);
    set.events = 8;
    core_ends();
    c = core_open(&disk.base, &set, 1000, 1, &why);
    assert_non_null(c);
    both_connect();
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(core_release(c, lease_one(), false).code, CORE_OK);
    for (unsigned i = 0; i < 2; i++) {
        unsigned n = core_events_after(c, 0, e, 32);
        assert_int_equal(n, 8);
        for (unsigned j = 1; j < n; j++)
            assert_true(e[j].number > e[j - 1].number);
        assert_int_equal(e[n - 1].type, CORE_EVENT_LEASE_RELEASED);
        assert_string_equal(e[n - 1].tenant, "t");
        assert_int_equal(core_events_after(c, e[n - 1].number, e, 32), 0);
        core_ends();
        c = core_open(&disk.base, &set, 1000, 1, &why);
        assert_non_null(c);
    }
}

/* Fewer are kept for a while, then more again. */
static void test_events_kept_fewer_and_more(void **state)
{
    static const unsigned kept[] = { 100, 8, 100 };
    (void)state;
    core_event e[128];
    core_settings set;
    for (unsigned i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        unsigned n;
        core_settings_default(&set);
        set.events = kept[i];
        core_ends();
        c = core_open(&disk.base, &set, 1000, 1, &why);
        assert_non_null(c);
        n = core_events_after(c, 0, e, 128);
        for (unsigned j = 0; j < n; j++)
            assert_true(!j || e[j].number > e[j - 1].number);
        assert_true(n <= kept[i]);
        both_connect();
        for (unsigned j = 0; j < 10; j++)
            assert_int_equal(core_set_spares(c, "nvme", j & 1).code, CORE_OK);
    }
    assert_true(core_events_after(c, 0, e, 128) >= 10);
}

/* Once a change is written, tables that cannot be rebuilt say what the store does not. */
static void test_tables_that_cannot_be_rebuilt(void **state)
{
    (void)state;
    char text[256];
    both_connect();
    core_disconnected(c, box_node);
    disk.unreadable = true;
    assert_false(core_is_dead(c)); /* the control */
    assert_int_not_equal(core_forget(c, box_node).code, CORE_OK);
    assert_true(core_is_dead(c));
    assert_true(core_store_failed(c, text));
    assert_non_null(strstr(text, "rebuilt"));
    assert_int_equal(core_set_tenant(c, "t", 3).code, CORE_E_STORE);
    disk.unreadable = false;
    core_ends();
    start();
    assert_int_equal(core_find_node(c, box_node), CORE_NONE); /* it was done */
}

/* Models whose spares were taken back leave nothing in the store. */
static void test_no_spares_no_record(void **state)
{
    (void)state;
    both_connect();
    assert_int_equal(core_set_spares(c, "nvme", 1).code, CORE_OK);
    assert_non_null(rig_value(&disk, "spares/nvme")); /* the control */
    assert_int_equal(core_set_spares(c, "nvme", 0).code, CORE_OK);
    assert_null(rig_value(&disk, "spares/nvme"));
}

/* A record that is not as this program writes it is reported by its key. */
static void test_damaged(void **state)
{
    (void)state;
    static const char *const keys[] = { "meta", "node/1", "slot/1.2", "tenant/t", "event/1" };
    core_settings set;
    store_fault f;
    rig_settings(&set);
    both_connect();
    assert_int_equal(core_set_tenant(c, "t", 5).code, CORE_OK);
    for (unsigned i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *was = rig_value(&disk, keys[i]);
        char *copy = was ? strdup(was) : NULL;
        store_change bad = { keys[i], "{\"x\":1}", 7 };
        assert_int_equal(store_commit(&disk.base, &bad, 1, &f), STORE_OK);
        assert_null(core_open(&disk.base, &set, 1, 1, &why));
        assert_non_null(strstr(why.text, keys[i]));
        store_change back = { keys[i], copy, copy ? strlen(copy) : 0 };
        assert_int_equal(store_commit(&disk.base, &back, 1, &f), STORE_OK);
        free(copy);
    }
    core *again = core_open(&disk.base, &set, 1, 1, &why);
    assert_non_null(again);
    core_close(again);
}

/* A record under another key than that it is written under, and numbers without room above them:
   what came next would be taken for damage at the start after. */
static void test_strange_keys(void **state)
{
    (void)state;
    static const char *const names[][2] = { { "node/1", "node/01" },
                                            { "node/1", "node/4294967297" },
                                            { "node/1", "node/4294967295" },
                                            { "slot/1.2", "slot/1.02" },
                                            { "slot/1.2", "slot/1.2x" },
                                            { "lease/", "lease/0" },
                                            { "lease/", "lease/3e900100000" },
                                            { "event/", "event/2" },
                                            { "event/", "event/00000000000000000002 " },
                                            { "event/", "event/000000000800000000000000000002" },
                                            { "event/", "event/18446744073709551615" },
                                            { "event/", "event/09223372036854775807" } };
    static const char *const metas[] = {
        "{\"format\":1,\"node\":2,\"epoch\":9223372036854775807,\"foreign\":0,\"serial\":1}",
        "{\"format\":1,\"node\":4294967295,\"epoch\":9,\"foreign\":0,\"serial\":1}"
    };
    core_settings set;
    store_fault f;
    rig_settings(&set);
    both_connect();
    (void)lease_one();
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = NULL;
        char *copy;
        for (unsigned k = 0; k < disk.records && !value; k++)
            if (strncmp(disk.record[k].key, names[i][0], strlen(names[i][0])) == 0)
                value = disk.record[k].value;
        assert_non_null(value);
        copy = strdup(value);
        store_change bad = { names[i][1], copy, strlen(copy) };
        store_change none = { names[i][1], NULL, 0 };
        assert_int_equal(store_commit(&disk.base, &bad, 1, &f), STORE_OK);
        assert_null(core_open(&disk.base, &set, 1, 1, &why));
        assert_int_equal(why.code, CORE_E_DAMAGED);
        assert_non_null(strstr(why.text, names[i][1]));
        assert_int_equal(store_commit(&disk.base, &none, 1, &f), STORE_OK);
        free(copy);
    }
    core *again = core_open(&disk.base, &set, 1, 1, &why); /* the control */
    assert_non_null(again);
    core_close(again);
    for (unsigned i = 0; i < 2; i++) {
        store_change high = { "meta", metas[i], strlen(metas[i]) };
        assert_int_equal(store_commit(&disk.base, &high, 1, &f), STORE_OK);
        assert_null(core_open(&disk.base, &set, 1, 1, &why));
        assert_int_equal(why.code, CORE_E_DAMAGED);
    }
}

/* Where the disk's contents are unknown, nothing is ordered and nothing granted any more. */
static void test_store_is_lost(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .host = 2, .count = 1 };
    uint64_t lease;
    bool existed;
    both_connect();
    disk.fail_after = 0;
    disk.fault = STORE_E_IO;
    disk.lost = true; /* the disk has it all the same */
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_STORE);
    disk.fail_after = UINT_MAX;
    at(now_ms + 5000);
    expect_none();
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_STORE);
    core_ends();
    start();
    assert_int_equal(core_pool(c)->leases, 1);
}

static void test_operator(void **state)
{
    (void)state;
    unsigned slot, port;
    uint32_t now[POOL_COUNT_MAX];
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    assert_int_equal(core_replace(c, slot % SLOTS, POOL_WHY_OPERATOR, true).code, CORE_E_STATE);
    assert_int_equal(core_reset(c, slot - 1).code, CORE_OK);
    assert_int_equal(count_events(CORE_EVENT_SLOT_RESET), 1);
    assert_non_null(strstr(core_repair(c, slot - 1).text, "the slot is leased"));
    assert_non_null(strstr(core_replace(c, slot % SLOTS, POOL_WHY_OPERATOR, true).text, "is free"));
    core_order o = expect(DXPU_CONTROL_RESET, box_node);
    assert_int_equal(o.m.u.reset.epoch, core_pool(c)->epoch);
    core_answered(c, &o, DXPU_CONTROL_CODE_EPOCH, NULL);
    expect_none(); /* once, whatever came of it */
    assert_int_equal(core_replace(c, slot - 1, POOL_WHY_OPERATOR, true).code, CORE_OK);
    assert_int_equal(pool_lease_slots(core_pool(c), lease, now), 1);
    assert_int_not_equal(now[0], slot - 1);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_WIPING);
    assert_int_equal(core_leases(c)[pool_lease_index(lease)].replaced, 1);
    uint32_t second = now[0];
    assert_int_equal(core_break(c, second, POOL_WHY_OPERATOR).code, CORE_OK);
    assert_int_equal(core_break(c, second, POOL_WHY_OPERATOR).code, CORE_E_STATE);
    assert_non_null(strstr(core_break(c, second, POOL_WHY_OPERATOR).text, "broken already"));
    assert_int_equal(pool_lease_slots(core_pool(c), lease, now), 1);
    assert_int_not_equal(now[0], second);
    assert_int_equal(core_leases(c)[pool_lease_index(lease)].port[0], port);
    core_disconnected(c, box_node);
    assert_int_equal(core_reset(c, 0).code, CORE_E_AWAY);
    assert_int_equal(count_events(CORE_EVENT_SLOT_REPLACED), 2);
    assert_int_equal(core_set_spares(c, "nvme", 1).code, CORE_OK);
    core_ends();
    start();
    assert_int_equal(core_pool(c)->model[0].spares_wanted, 1);
    assert_int_equal(core_pool(c)->slot[second].state, POOL_BROKEN);
    assert_int_equal(core_leases(c)[pool_lease_index(lease)].replaced, 2);
}

/* No slot in place of the broken one: as soon as there is one. */
static void test_replaced_later(void **state)
{
    (void)state;
    unsigned slot, port;
    core_request r = { .tenant = "u", .model = "nvme", .count = 3 };
    uint64_t lease, others;
    bool existed;
    both_connect();
    lease = lease_up(&slot, &port);
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &others, &existed).code, CORE_OK);
    box[slot - 1].health = DXPU_CONTROL_HEALTH_BROKEN;
    box_says(slot, 1);
    assert_int_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    assert_int_equal(core_release(c, others, false).code, CORE_OK);
    for (unsigned i = 0; i < SLOTS; i++)
        if (i != slot - 1) {
            box[i].state = DXPU_CONTROL_SLOT_WIPED;
            box[i].epoch_seen = core_pool(c)->slot[i].epoch;
        }
    box_says(1, SLOTS);
    at(now_ms + COREI_REPLACE_MS);
    assert_int_not_equal(pool_find_lease(core_pool(c), lease)->first, slot - 1);
    assert_int_equal(core_pool(c)->slot[slot - 1].lease, POOL_NONE);
}

static void test_bind_refused(void **state)
{
    (void)state;
    static const unsigned codes[] = { DXPU_CONTROL_CODE_DRAINED, DXPU_CONTROL_CODE_EPOCH };
    both_connect();
    uint64_t lease = lease_one();
    for (unsigned i = 0; i < 2; i++) {
        if (i) /* the slot before: whether it was used, only its box knows */
            (void)expect(DXPU_CONTROL_UNBIND, box_node);
        core_order o = expect(DXPU_CONTROL_BIND, box_node);
        uint32_t first = pool_find_lease(core_pool(c), lease)->first;
        core_answered(c, &o, codes[i], NULL);
        assert_int_not_equal(pool_find_lease(core_pool(c), lease)->first, first);
        assert_int_equal(core_pool(c)->slot[first].state, i ? POOL_QUARANTINED : POOL_WIPING);
    }
    assert_int_equal(count_events(CORE_EVENT_SLOT_QUARANTINED), 1);
}

static void test_register_refused(void **state)
{
    (void)state;
    both_connect();
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, BOX, 7, box, SLOTS, 1, SLOTS, &why),
                     0);
    assert_int_equal(why.code, CORE_E_STATE);
    assert_int_equal(
        rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 7, box, POOL_BOX_SLOTS_MAX + 1, 1, 1, &why), 0);
    assert_int_equal(why.code, CORE_E_ARG);
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_MANAGER, 9, 7, box, 1, 1, 1, &why), 0);
    assert_int_equal(why.code, CORE_E_ARG);
    box[0].epoch_seen = COREI_EPOCH_CLOCK_MAX;
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 7, box, SLOTS, 1, 1, &why), 0);
    assert_int_equal(why.code, CORE_E_ARG);
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    box[0].epoch_seen = 0;
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 7, box, SLOTS, 1, 1, &why), 0);
    assert_int_equal(why.code, CORE_E_STORE);
    uint32_t nodes;
    core_nodes(c, &nodes);
    assert_int_equal(nodes, 2);
}

/* More models than there can be are refused before anything is stored: the store can be loaded. */
static void test_too_many_models(void **state)
{
    (void)state;
    dxpu_control_device d[64];
    uint32_t n = 0;
    both_connect(); /* one model */
    for (unsigned b = 0; b < 17; b++) {
        for (unsigned i = 0; i < 64; i++) {
            d[i] = box[0];
            snprintf(d[i].model, sizeof d[i].model, "m%u", 64 * b + i);
        }
        unsigned count = b < 15 ? 64 : b < 16 ? 63 : 1; /* 1 + 15 * 64 + 63 = 1024 */
        uint32_t node =
            rig_register(c, DXPU_CONTROL_ROLE_BOX, (uint8_t)(50 + b), 1, d, count, 1, count, &why);
        assert_int_equal(node != 0, b < 16);
    }
    assert_int_equal(why.code, CORE_E_CAPACITY);
    core_ends();
    start();
    (void)core_models(c, &n);
    assert_int_equal(n, COREI_MODELS_MAX);
    both_connect();
    memcpy(box[0].model, "more", 5); /* nor by another device in a slot */
    box_says(1, 1);
    assert_int_equal(core_pool(c)->slot[0].state, POOL_BROKEN);
    core_ends();
    start();
}

/* A model with blanks is one word everywhere: requests can name it, the store has it in a key. */
static void test_blanks(void **state)
{
    (void)state;
    char text[256];
    core_request r = { .model = "QEMU_NVMe_Ctrl", .count = 1 };
    uint64_t lease;
    bool existed;
    for (unsigned i = 0; i < SLOTS; i++) {
        memcpy(box[i].model, "QEMU NVMe Ctrl", 15);
        memcpy(box[i].serial, "a b ", 5);
    }
    both_connect();
    box_says(1, 1);
    assert_int_equal(count_events(CORE_EVENT_SLOT_CHANGED), 0);
    assert_int_equal(core_set_spares(c, "QEMU_NVMe_Ctrl", 1).code, CORE_OK);
    assert_non_null(rig_value(&disk, "spares/QEMU_NVMe_Ctrl"));
    assert_non_null(strstr(rig_value(&disk, "slot/1.1"), "\"a_b_\""));
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    disk.fail_after = 0; /* a change that the store does not take is no failure of the disk */
    disk.fault = STORE_E_ARG;
    assert_int_equal(core_extend(c, lease, 5).code, CORE_E_ARG);
    assert_false(core_store_failed(c, text));
    disk.fail_after = UINT_MAX;
    assert_int_equal(core_extend(c, lease, 5).code, CORE_OK);
}

static void set_attributes(unsigned slot, const char *text)
{
    snprintf(box[slot - 1].attributes, sizeof box[0].attributes, "%s", text);
}

static unsigned slot_number_of(uint64_t lease)
{
    return c->t.slot[pool_find_lease(core_pool(c), lease)->first].device.number;
}

static void test_m155_attributes_are_whole_words(void **state)
{
    (void)state;
    assert_true(core_has_attributes("render=node,rack=7", "rack=7"));
    assert_true(core_has_attributes("render=node,rack=7", "rack=7,render=node"));
    assert_true(core_has_attributes("rack=7", ""));
    assert_true(core_has_attributes("rack=7", ",rack=7,"));
    assert_false(core_has_attributes("rack=71", "rack=7"));
    assert_false(core_has_attributes("rack=7", "rack=71"));
    assert_false(core_has_attributes("xrack=7", "rack=7"));
    assert_false(core_has_attributes("", "rack=7"));
    assert_false(core_has_attributes("render=node", "render=node,rack=7"));
}

/* What a box says of its slots is stored, a request gets slots that have what it requires, and so
   does what takes a slot's place; without the requirement, the control, another one does. */
static void test_m156_lease_by_attributes(void **state)
{
    (void)state;
    for (unsigned required = 0; required < 2; required++) {
        core_request r = { .model = "nvme", .count = 1, .replace = CORE_REPLACE_YES, .key = "k" };
        uint64_t lease, again;
        bool existed;
        set_attributes(2, "render=node,rack=7");
        set_attributes(4, "render=node");
        both_connect();
        assert_non_null(strstr(rig_value(&disk, "slot/1.2"), "\"render=node,rack=7\""));
        assert_null(strstr(rig_value(&disk, "slot/1.1"), "attributes"));
        r.host = host_node;
        if (required)
            memcpy(r.attributes, "render=node", 12);
        r.count = 3;
        assert_int_equal(core_create(c, &r, &lease, &existed).code,
                         required ? CORE_E_CAPACITY : CORE_OK);
        if (!required)
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        (void)end(state);
        (void)begin(state);
        set_attributes(2, "render=node,rack=7");
        set_attributes(4, "render=node");
        both_connect();
        r.count = 1;
        assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
        assert_int_equal(slot_number_of(lease), required ? 2 : 1);
        memset(r.attributes, 0, sizeof r.attributes); /* the key is for something else, then */
        assert_int_equal(core_create(c, &r, &again, &existed).code,
                         required ? CORE_E_STATE : CORE_OK);
        core_ends();
        start(); /* the lease keeps what it requires */
        box_says(1, SLOTS);
        host_says(1, PORTS);
        assert_int_equal(
            core_break(c, core_find_slot(c, box_node, required ? 2 : 1), POOL_WHY_OPERATOR).code,
            CORE_OK);
        core_tick(c);
        assert_int_equal(slot_number_of(lease), required ? 4 : 2);
        (void)end(state);
        (void)begin(state);
    }
}

/* A box is started with other attributes: they are stored, and a lease keeps its slot. */
static void test_m155_attributes_change(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .count = 1, .attributes = "rack=7" };
    uint64_t lease;
    bool existed;
    set_attributes(1, "rack=7");
    both_connect();
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    set_attributes(1, "rack=8");
    box_says(1, 1);
    assert_non_null(strstr(rig_value(&disk, "slot/1.1"), "\"rack=8\""));
    assert_int_equal(slot_number_of(lease), 1);
    assert_int_equal(core_pool(c)->slot[0].state, POOL_LEASED);
    assert_int_equal(count_events(CORE_EVENT_SLOT_CHANGED), 0);
}

/* Another device is taken in with its own attributes, at once. */
static void test_m155_attributes_of_another_device(void **state)
{
    (void)state;
    core_request r = { .model = "nvme", .count = 1, .attributes = "rack=8" };
    uint64_t lease;
    bool existed;
    set_attributes(1, "rack=7");
    both_connect();
    set_attributes(1, "rack=8");
    box[0].serial[0] = 'Z';
    box_says(1, 1);
    assert_string_equal(c->t.slot[0].device.serial, box[0].serial);
    assert_string_equal(c->t.slot[0].device.attributes, "rack=8");
    assert_non_null(strstr(rig_value(&disk, "slot/1.1"), "\"rack=8\""));
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    assert_int_equal(slot_number_of(lease), 1);
}

/* What boxes say of functions: S-250 to S-252. */
static void test_m157_functions(void **state)
{
    static const struct {
        const char *attributes;
        unsigned device, function, functions, virtuals;
    } cases[] = {
        { "size=1M,function=0", 3, 0, 1, 0 },
        { "function=2,of=1", 1, 2, 1, 0 },
        { "functions=4,size=1M", 0, 0, 4, 0 },
        { "virtual-functions=8", 0, 0, 1, 8 },
        { "function=1,of=3", 0, 0, 1, 0 }, /* itself */
        { "function=1,of=4", 0, 0, 1, 0 }, /* a later one */
        { "function=1,of=0", 0, 0, 1, 0 },
        { "function=1", 0, 0, 1, 0 },
        { "of=1", 0, 0, 1, 0 },
        { "function=x,of=1", 0, 0, 1, 0 },
        { "function=1,of=1x", 0, 0, 1, 0 },
        { "function=1,of=", 0, 0, 1, 0 },
        { "function=99999999999,of=1", 0, 0, 1, 0 },
        { "functions=65536,virtual-functions=99999", 0, 0, 1, 0 },
        { "xfunction=0,function=1,of=2", 2, 1, 1, 0 },
        { "", 0, 0, 1, 0 },
    };
    (void)state;
    both_connect();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_attributes(3, cases[i].attributes);
        box_says(3, 1);
        core_function f = core_function_of(c, 2);
        assert_int_equal(f.device, cases[i].device);
        assert_int_equal(f.function, cases[i].function);
        assert_int_equal(f.functions, cases[i].functions);
        assert_int_equal(f.virtuals, cases[i].virtuals);
        assert_int_equal(core_pool(c)->slot[2].device, cases[i].device);
    }
}

/* Two functions of one device, and two devices of their own. */
static void two_functions(void)
{
    set_attributes(1, "function=0");
    set_attributes(2, "function=1,of=1");
    set_attributes(4, "functions=2");
    both_connect();
}

static core_code ask_for(const char *tenant, unsigned device, bool exclusive, uint64_t *lease)
{
    core_request r = {
        .model = "nvme", .count = 1, .device = (uint8_t)device, .exclusive = exclusive
    };
    bool existed;
    snprintf(r.tenant, sizeof r.tenant, "%s", tenant);
    r.host = host_node;
    why = core_create(c, &r, lease, &existed);
    return why.code;
}

/* A lease says what it requires, also after a restart, and where slots are registered again. */
static void test_m157_whole_and_function(void **state)
{
    uint64_t lease, other;
    (void)state;
    two_functions();
    assert_int_equal(ask_for("a", POOL_DEVICE_WHOLE, false, &lease), CORE_OK);
    assert_int_equal(slot_number_of(lease), 3);
    char key[40];
    snprintf(key, sizeof key, "lease/%llx", (unsigned long long)lease);
    assert_non_null(strstr(rig_value(&disk, key), "\"whole\""));
    assert_null(strstr(rig_value(&disk, key), "exclusive"));
    assert_int_equal(ask_for("a", POOL_DEVICE_FUNCTION, false, &other), CORE_OK);
    assert_int_equal(slot_number_of(other), 1);
    core_ends();
    start();
    assert_int_equal(pool_find_lease(core_pool(c), lease)->device, POOL_DEVICE_WHOLE);
    assert_int_equal(core_pool(c)->slot[1].device, 1);
    box_says(1, SLOTS);
    host_says(1, PORTS);
    c->t.lease[pool_lease_index(lease)].replace = CORE_REPLACE_YES;
    assert_int_equal(core_break(c, core_find_slot(c, box_node, 3), POOL_WHY_OPERATOR).code,
                     CORE_OK);
    core_tick(c);
    assert_int_equal(slot_number_of(lease), 4); /* not the function in slot 2, which is free */
    assert_int_equal(ask_for("a", POOL_DEVICE_WHOLE, false, &other), CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, "slots with a device of their own"));
}

/* M-158: of two tenants, over a restart; the control is the same without `exclusive`. */
static void test_m158_exclusive(void **state)
{
    for (unsigned exclusive = 0; exclusive < 2; exclusive++) {
        uint64_t lease, other;
        two_functions();
        assert_int_equal(ask_for("a", POOL_DEVICE_FUNCTION, exclusive, &lease), CORE_OK);
        core_ends();
        start();
        box_says(1, SLOTS);
        host_says(1, PORTS);
        assert_int_equal(ask_for("b", POOL_DEVICE_FUNCTION, false, &other),
                         exclusive ? CORE_E_CAPACITY : CORE_OK);
        assert_null(strstr(why.text, "exclusive")); /* nor does it say what is in the way */
        if (exclusive) {
            assert_int_equal(ask_for("b", POOL_DEVICE_ANY, false, &other), CORE_OK);
            assert_int_equal(slot_number_of(other), 3);
            assert_int_equal(core_park(c, lease).code, CORE_OK); /* it still counts */
            assert_int_equal(ask_for("b", POOL_DEVICE_FUNCTION, false, &other), CORE_E_CAPACITY);
            assert_int_equal(ask_for("a", POOL_DEVICE_FUNCTION, true, &other), CORE_OK);
            assert_int_equal(core_release(c, other, false).code, CORE_OK);
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        }
        (void)end(state);
        (void)begin(state);
    }
    uint64_t lease, again;
    two_functions();
    assert_int_equal(ask_for("a", POOL_DEVICE_FUNCTION, false, &lease), CORE_OK);
    assert_int_equal(ask_for("b", POOL_DEVICE_FUNCTION, true, &again), CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, "no other tenant has a function"));
}

/* A refusal counts none of the slots that another tenant's exclusive lease keeps free; and one of
   slots apart does not say that they were asked for close or spread. */
static void test_m158_refusals_count_nothing(void **state)
{
    (void)state;
    core_request r = { .tenant = "b", .model = "nvme", .count = 1, .attributes = "of=1" };
    uint64_t lease, other;
    bool existed;
    two_functions();
    r.host = host_node;
    r.count = 2;
    assert_int_equal(core_create(c, &r, &other, &existed).code, CORE_E_CAPACITY);
    why = core_create(c, &r, &other, &existed);
    assert_non_null(strstr(why.text, "are free: 1 of 1")); /* the control */
    r.count = 1;
    assert_int_equal(ask_for("a", POOL_DEVICE_FUNCTION, true, &lease), CORE_OK);
    assert_int_equal(slot_number_of(lease), 1); /* slot 2 is free, and of=1 */
    why = core_create(c, &r, &other, &existed);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, "with of=1 are free for this tenant"));
    assert_null(strpbrk(strstr(why.text, "are free"), "0123456789"));
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    (void)end(state);
    (void)begin(state);
    two_functions();
    r = (core_request){ .tenant = "b", .model = "nvme", .count = 2, .apart = true };
    r.device = POOL_DEVICE_FUNCTION;
    r.host = host_node;
    why = core_create(c, &r, &other, &existed);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, "not on as many devices"));
}

/* Each of many functions has its event: they are more than one change has. */
static void test_m157_break_a_large_device(void **state)
{
    enum { MANY = COREI_TX_EVENTS + 40 };
    static dxpu_control_device many[MANY];
    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = (dxpu_control_device){ .number = (uint16_t)(i + 1) };
        many[i].state = DXPU_CONTROL_SLOT_WIPED;
        many[i].health = DXPU_CONTROL_HEALTH_GOOD;
        memcpy(many[i].model, "nvme", 5);
        snprintf(many[i].attributes, sizeof many[i].attributes,
                 i ? "function=%u,of=1" : "function=0", i);
    }
    both_connect();
    uint32_t node = rig_register(c, DXPU_CONTROL_ROLE_BOX, 9, 1, many, MANY, 1, MANY, &why);
    assert_int_not_equal(node, 0);
    disk.fault = STORE_E_FULL;
    for (unsigned fails = 2; fails--;) { /* what was stored stays so */
        disk.fail_after = fails ? 1 : UINT_MAX;
        assert_int_equal(core_break_device(c, core_find_slot(c, node, 1), POOL_WHY_OPERATOR).code,
                         fails ? CORE_E_STORE : CORE_OK);
        assert_int_equal(count_events(CORE_EVENT_SLOT_BROKEN), fails ? COREI_TX_EVENTS : MANY);
        for (unsigned i = 1; i <= MANY; i++)
            assert_int_equal(core_pool(c)->slot[core_find_slot(c, node, i)].state == POOL_BROKEN,
                             !fails || i <= COREI_TX_EVENTS);
        disk.fail_after = UINT_MAX;
        now_ms += 60000;
        core_clock(c, 1000000 + now_ms, now_ms);
    }
}

/* A device that fails takes its functions with it, and no other slot; each is repaired alone. */
static void test_m157_break_a_device(void **state)
{
    uint64_t lease;
    (void)state;
    two_functions();
    assert_int_equal(ask_for("a", POOL_DEVICE_FUNCTION, false, &lease), CORE_OK);
    assert_int_equal(core_break_device(c, 1, POOL_WHY_OPERATOR).code, CORE_OK);
    const pool *p = core_pool(c);
    assert_int_equal(p->slot[0].state, POOL_BROKEN);
    assert_int_equal(p->slot[1].state, POOL_BROKEN);
    assert_int_equal(p->slot[2].state, POOL_FREE);
    assert_int_equal(count_events(CORE_EVENT_SLOT_BROKEN), 2);
    assert_int_equal(core_break_device(c, 0, POOL_WHY_OPERATOR).code, CORE_E_STATE);
    assert_int_equal(core_repair(c, 1).code, CORE_OK);
    assert_int_not_equal(core_pool(c)->slot[1].state, POOL_BROKEN);
    assert_int_equal(core_pool(c)->slot[0].state, POOL_BROKEN);
    assert_int_equal(core_break_device(c, 0, POOL_WHY_OPERATOR).code, CORE_OK); /* what is left */
    assert_int_equal(core_break_device(c, 3, POOL_WHY_OPERATOR).code, CORE_OK); /* its own device */
    assert_int_equal(core_pool(c)->slot[2].state, POOL_FREE);
    assert_int_equal(core_break_device(c, 99, POOL_WHY_OPERATOR).code, CORE_E_UNKNOWN);
}

/* The same key with another wish is another request. */
static void test_m157_key(void **state)
{
    core_request r = { .model = "nvme", .count = 1, .key = "k" };
    uint64_t lease, again;
    bool existed;
    (void)state;
    two_functions();
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    r.exclusive = true;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_E_STATE);
    r.exclusive = false;
    r.apart = true;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_E_STATE);
    r.apart = false;
    r.device = POOL_DEVICE_FUNCTION;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_E_STATE);
    r.device = POOL_DEVICE_ANY;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_OK);
    assert_true(existed && again == lease);
}

static core_code set_direct(const char *tenant, bool on)
{
    return core_change_tenant(c, tenant, NULL, &on).code;
}

/* M-180: nothing is ordered where nothing is forbidden. */
static void test_m180_directs(void **state)
{
    (void)state;
    both_connect();
    assert_false(core_directs(c, box_node));
    assert_int_equal(core_set_direct(c, host_node, false).code, CORE_E_UNKNOWN);
    assert_int_equal(core_set_direct(c, box_node, false).code, CORE_OK);
    assert_int_equal(core_set_direct(c, box_node, false).code, CORE_OK); /* counts once */
    assert_true(core_directs(c, box_node));
    assert_false(core_directs(c, host_node));
    assert_int_equal(set_direct("t", false), CORE_OK);
    assert_int_equal(set_direct("t", false), CORE_OK);
    assert_int_equal(core_set_direct(c, box_node, true).code, CORE_OK);
    assert_true(core_directs(c, box_node));
    core_ends();
    start(); /* as stored */
    box_says(1, SLOTS);
    assert_true(core_directs(c, box_node));
    assert_int_equal(set_direct("t", true), CORE_OK);
    assert_false(core_directs(c, box_node));
    assert_int_equal(core_set_direct(c, box_node, false).code, CORE_OK);
    core_ends();
    start();
    box_says(1, SLOTS);
    assert_true(core_directs(c, box_node));
    assert_int_equal(count_events(CORE_EVENT_NODE_DIRECT), 4);
}

/* An option of a process: the next one, at another machine perhaps, may lack it. */
static void test_m182_the_pools_ban_ends(void **state)
{
    (void)state;
    core_settings set;
    rig_settings(&set);
    disk.fault = STORE_E_FULL;
    for (unsigned i = 0; i < 4; i++) {
        core_close(c);
        set.no_direct = i == 0;
        set.reader = false;
        c = core_open(&disk.base, &set, 1000000 + now_ms, now_ms, &why);
        assert_non_null(c);
        assert_int_equal(core_may_direct(c), i != 0);
        disk.fail_after = i == 1 ? 0 : UINT_MAX; /* it is said when it can be stored */
        assert_int_equal(core_term(c) != 0, i != 1);
        disk.fail_after = UINT_MAX;
        assert_int_equal(count_events(CORE_EVENT_ALARM), i > 1);
        if (i == 0) { /* a standby shows what the leader has */
            core_close(c);
            set.no_direct = false;
            set.reader = true;
            c = core_open(&disk.base, &set, 1000000 + now_ms, now_ms, &why);
            assert_false(core_may_direct(c));
        }
    }
}

static core_order expect_direct(bool on)
{
    core_order o = expect(DXPU_CONTROL_DIRECT, box_node);
    assert_int_equal(o.m.u.direct.slot, 1);
    assert_int_equal(o.m.u.direct.on, on);
    return o;
}

/* A lease that is up learns of it at once, one of another tenant not; and it is allowed again. */
static void test_m182_direct_is_revoked(void **state)
{
    unsigned slot, port;
    (void)state;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_ALLOWED);
    assert_int_equal(set_direct("other", false), CORE_OK);
    expect_none();
    assert_int_equal(set_direct("t", false), CORE_OK);
    assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_ORDERED);
    core_order o = expect_direct(false);
    expect_none();
    assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 0);
    done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
    expect_none();
    assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_FORBIDDEN);
    assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 1);
    assert_int_equal(set_direct("t", true), CORE_OK);
    o = expect_direct(true);
    done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
    assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_ALLOWED);
    assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 2);
    for (uint32_t i = 1; i < SLOTS; i++) /* nothing takes its place */
        assert_int_equal(core_break(c, i, POOL_WHY_OPERATOR).code, CORE_OK);
    box[0].health = DXPU_CONTROL_HEALTH_BROKEN; /* broken, and its host still has it */
    box_says(1, 1);
    assert_int_equal(core_pool(c)->slot[0].state, POOL_BROKEN);
    assert_int_equal(core_set_direct(c, box_node, false).code, CORE_OK);
    o = expect_direct(false);
    disk.fail_after = 0; /* its event cannot be stored: what the box does is known all the same */
    done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
    disk.fail_after = UINT_MAX;
    assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_FORBIDDEN);
}

/* A box that connects again, and a manager that starts, order it again: that it was carried out is
   no news, and costs no commit. */
static void test_m182_reported_once(void **state)
{
    unsigned slot, port;
    (void)state;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    assert_int_equal(set_direct("t", false), CORE_OK);
    core_order o = expect_direct(false);
    done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
    assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 1);
    for (unsigned i = 0; i < 4; i++) {
        if (i == 2) {
            core_ends();
            start();
        } else {
            core_disconnected(c, box_node);
        }
        box_says(1, SLOTS);
        if (i == 2) {
            o = expect(DXPU_CONTROL_DRAIN, box_node);
            done(&o, 0, 0);
        }
        o = expect_direct(false);
        assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_ORDERED);
        unsigned before = disk.commits;
        done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
        assert_int_equal(disk.commits, before);
        assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_FORBIDDEN);
        assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 1);
    }
    core_disconnected(c, box_node);
    assert_int_equal(set_direct("other", false), CORE_OK); /* so that something is ordered */
    assert_int_equal(set_direct("t", true), CORE_OK);
    box_says(1, SLOTS);
    o = expect_direct(true);
    done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
    assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 2);
    assert_int_equal(set_direct("other", true), CORE_OK); /* nothing is forbidden */
    assert_int_equal(set_direct("t", false), CORE_OK);
    o = expect_direct(false);
    core_disconnected(c, box_node);
    box_says(1, SLOTS);
    o = expect_direct(false);
    done(&o, DXPU_CONTROL_SLOT_UP, core_pool(c)->slot[0].epoch);
    assert_int_equal(count_events(CORE_EVENT_SLOT_DIRECT), 3);
}

/* A box that starts, or a lease that is made, is ordered so before the bind; each lent slot, where
   some are not direct. */
static void test_m182_direct_before_bind(void **state)
{
    (void)state;
    both_connect();
    assert_int_equal(set_direct("t", false), CORE_OK);
    (void)lease_one();
    core_order o = expect_direct(false);
    expect_none();
    done(&o, DXPU_CONTROL_SLOT_WIPED, 0);
    o = expect(DXPU_CONTROL_BIND, box_node);
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    box[0].epoch = box[0].epoch_seen = o.m.u.bind.epoch;
    box[0].state = DXPU_CONTROL_SLOT_HELD;
    box[0].peer_node = host_node;
    box[0].peer_slot = 1;
    (void)expect(DXPU_CONTROL_ATTACH, host_node);
    core_disconnected(c, box_node);
    box_says(1, SLOTS);
    o = expect_direct(false);
    assert_int_equal(set_direct("t", true), CORE_OK); /* while that is under way */
    done(&o, DXPU_CONTROL_SLOT_HELD, box[0].epoch);
    (void)expect_direct(true);
}

/* A box that does not know the order serves its leases all the same, and they say so. */
static void test_m182_an_older_box(void **state)
{
    (void)state;
    both_connect();
    assert_int_equal(set_direct("t", false), CORE_OK);
    uint64_t lease = lease_one();
    core_order o = expect_direct(false);
    assert_true(core_answered(c, &o, DXPU_CONTROL_CODE_TYPE, NULL));
    assert_int_equal(core_lease_direct(c, lease), CORE_DIRECT_UNENFORCED);
    assert_int_equal(count_events(CORE_EVENT_ORDER_REFUSED), 1);
    (void)expect(DXPU_CONTROL_BIND, box_node);
}

static core_code ask_peer(const char *tenant, uint64_t peer, uint64_t *lease)
{
    core_request r = { .model = "nvme", .count = 1, .peer = peer };
    bool existed;
    snprintf(r.tenant, sizeof r.tenant, "%s", tenant);
    r.host = host_node;
    why = core_create(c, &r, lease, &existed);
    return why.code;
}

/* A lease that was to be near a peer is replaced all the same where only a box is left that forbids
   what they would do; one that is made is refused, and why is said. */
static void test_m183_replaced_where_direct_is_forbidden(void **state)
{
    (void)state;
    for (unsigned alone = 0; alone < 2; alone++) {
        uint64_t lease, peer, other;
        both_connect();
        assert_int_equal(ask_peer("a", 0, &lease), CORE_OK);
        core_order o = expect(DXPU_CONTROL_BIND, box_node);
        done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
        box[0].epoch = box[0].epoch_seen = o.m.u.bind.epoch;
        box[0].state = DXPU_CONTROL_SLOT_HELD;
        box[0].peer_node = host_node;
        box[0].peer_slot = 1;
        (void)expect(DXPU_CONTROL_ATTACH, host_node);
        assert_int_equal(ask_peer("a", lease, &peer), CORE_OK);
        o = expect(DXPU_CONTROL_BIND, box_node);
        uint32_t second = second_box(), at = pool_find_lease(core_pool(c), peer)->first;
        assert_int_equal(core_set_direct(c, second, false).code, CORE_OK);
        for (uint32_t i = 0; i < SLOTS; i++)
            if (core_pool(c)->slot[i].state == POOL_FREE)
                assert_int_equal(core_break(c, i, POOL_WHY_OPERATOR).code, CORE_OK);
        assert_int_equal(ask_peer("a", lease, &other), CORE_E_CAPACITY);
        assert_non_null(strstr(why.text, "in boxes whose devices may reach others directly"));
        if (alone)
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        assert_int_equal(core_replace(c, at, POOL_WHY_OPERATOR, false).code, CORE_OK);
        uint32_t now = pool_find_lease(core_pool(c), peer)->first;
        assert_int_equal(c->t.node[c->t.slot[now].node].number, second);
        (void)end(state);
        (void)begin(state);
    }
}

/* A peer comes into the box of its peer, where another one would not; both know it, and no other
   tenant does. */
static void test_m183_peers(void **state)
{
    uint64_t lease, peer, other, found[CORE_PEERS_MAX];
    (void)state;
    both_connect();
    assert_int_equal(ask_peer("a", 0, &lease), CORE_OK);
    uint32_t there = c->t.pool->slot[pool_find_lease(core_pool(c), lease)->first].box;
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    box[0].epoch = box[0].epoch_seen = o.m.u.bind.epoch;
    box[0].state = DXPU_CONTROL_SLOT_HELD;
    box[0].peer_node = host_node;
    box[0].peer_slot = 1;
    (void)expect(DXPU_CONTROL_ATTACH, host_node);
    uint32_t second = second_box();
    for (unsigned i = 1; i < SLOTS; i++) /* with one free slot it is the first choice */
        assert_int_equal(core_break(c, core_find_slot(c, second, i), POOL_WHY_OPERATOR).code,
                         CORE_OK);
    assert_int_equal(ask_peer("a", lease, &peer), CORE_OK);
    assert_int_equal(c->t.pool->slot[pool_find_lease(core_pool(c), peer)->first].box, there);
    assert_int_equal(ask_peer("a", 0, &other), CORE_OK); /* the control */
    assert_int_not_equal(c->t.pool->slot[pool_find_lease(core_pool(c), other)->first].box, there);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(core_lease_peers(c, lease, found), 1);
        assert_true(found[0] == peer);
        assert_int_equal(core_lease_peers(c, peer, found), 1);
        assert_true(found[0] == lease);
        assert_int_equal(core_lease_peers(c, other, found), 0);
        assert_int_equal(core_way_between(c, lease, peer), CORE_WAY_BOX);
        assert_int_equal(core_way_between(c, lease, other), CORE_WAY_BOXES);
        assert_int_equal(core_way_between(c, lease, lease), CORE_WAY_HOST);
        core_ends();
        start(); /* it is stored */
        box_says(1, SLOTS);
        host_says(1, PORTS);
    }
    assert_int_equal(ask_peer("b", lease, &other), CORE_E_UNKNOWN);
    char text[sizeof why.text];
    memcpy(text, why.text, sizeof text);
    assert_int_equal(ask_peer("b", lease + 1, &other), CORE_E_UNKNOWN); /* the same words */
    assert_int_equal(strcspn(text, "0123456789abcdef"), strcspn(why.text, "0123456789abcdef"));
    assert_int_equal(strlen(text), strlen(why.text));
    assert_int_equal(core_find_tenant(c, "b"), CORE_NONE);
    assert_int_equal(set_direct("a", false), CORE_OK);
    assert_int_equal(core_way_between(c, lease, peer), CORE_WAY_HOST);
    assert_int_equal(ask_peer("a", lease, &other), CORE_E_STATE);
    assert_non_null(strstr(why.text, "for the tenant"));
    assert_int_equal(set_direct("a", true), CORE_OK);
    assert_int_equal(core_set_direct(c, box_node, false).code, CORE_OK);
    assert_int_equal(ask_peer("a", lease, &other), CORE_E_STATE);
    assert_non_null(strstr(why.text, "in its box"));
    assert_int_equal(core_set_direct(c, box_node, true).code, CORE_OK);
    assert_int_equal(core_park(c, peer).code, CORE_OK);
    assert_int_equal(core_way_between(c, lease, peer), CORE_WAY_HOST);
    assert_int_equal(core_lease_peers(c, lease, found), 0);
    assert_int_equal(ask_peer("a", peer, &other), CORE_E_STATE);
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    assert_int_equal(core_lease_peers(c, peer, found), 0);
}

/* The store as one of a version that named the model `virtio-blk` has it. */
static void store_former_model(void)
{
    char text[2048];
    for (unsigned i = 0; i < disk.records; i++) {
        char *at = strstr(disk.record[i].value, "\"nvme\"");
        if (strncmp(disk.record[i].key, "event/", 6) == 0 || !at)
            continue;
        int len = snprintf(text, sizeof text, "%.*s\"virtio-blk\"%s",
                           (int)(at - disk.record[i].value), disk.record[i].value, at + 6);
        rig_change(&disk, &(store_change){ disk.record[i].key, text, (size_t)len });
    }
    rig_change(&disk, &(store_change){ "spares/virtio-blk", "{\"count\":2}", 11 });
}

/* Models that have other names since are the same ones: leases, requests, spares go on. */
static void test_m155_models_under_former_names(void **state)
{
    (void)state;
    unsigned slot, port;
    bool existed;
    uint64_t again;
    core_request r = {
        .tenant = "t", .model = "virtio-blk", .key = "k", .count = 1, .replace = true
    };
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    core_ends();
    store_former_model();
    start();
    for (unsigned i = 0; i < SLOTS; i++)
        snprintf(box[i].model, sizeof box[0].model, i % 2 ? "blk" : "virtio-blk");
    unsigned broken = count_events(CORE_EVENT_SLOT_BROKEN);
    both_connect();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(count_events(CORE_EVENT_SLOT_BROKEN), broken);
    assert_int_equal(count_events(CORE_EVENT_SLOT_CHANGED), 0);
    assert_int_equal(c->t.models, 1);
    assert_string_equal(c->t.model[0].name, "blk");
    assert_string_equal(c->t.slot[0].device.model, "blk");
    r.host = host_node;
    assert_int_equal(core_create(c, &r, &again, &existed).code, CORE_OK);
    assert_true(existed && again == lease);
    assert_int_equal(core_pool(c)->model[0].spares_wanted, 2);
    assert_int_equal(core_set_spares(c, "virtio-blk", 0).code, CORE_OK);
    assert_null(rig_value(&disk, "spares/virtio-blk"));
    core_close(c); /* records that did not change have the former name still */
    start();
    assert_int_equal(core_pool(c)->model[0].spares_wanted, 0);
    core_close(c);
    c = NULL;
}

/* May the owner of `key` register as the box? */
static core_code box_may(const uint8_t *key)
{
    dxpu_control_register r = { .role = DXPU_CONTROL_ROLE_BOX, .identity = { BOX, 1 } };
    why = core_check_key(c, &r, key);
    return why.code;
}

/* A registration in parts, under another name, after rekey: all of it is kept. */
static void test_m81_parts_are_kept(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    (void)state;
    rig_key = key[0];
    box_says(1, SLOTS);
    core_disconnected(c, box_node);
    assert_int_equal(core_forget_key(c, box_node).code, CORE_OK);
    rig_key = key[1];
    rig_name = "other";
    box_says(1, 2);
    assert_false(c->t.node[0].connected);
    box_says(3, 2);
    assert_true(c->t.node[0].connected);
    core_ends();
    start();
    assert_string_equal(c->t.node[0].name, "other");
    assert_memory_equal(c->t.node[0].key, key[1], 32);
    rig_key = NULL;
    rig_name = "name";
}

/* When the store failed as a proxy came, what it said is kept as soon as it can be. */
static void test_m81_kept_later(void **state)
{
    static const uint8_t key[32] = { 1 };
    static const char *const names[] = { "n0", "n1", "n2", "n3" };
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool refused = i & 1, leaves = i & 2; /* the store is not asked; it does not stay */
        box_says(1, SLOTS);
        core_disconnected(c, box_node);
        disk.fail_after = 0;
        disk.fault = STORE_E_FULL;
        if (refused)
            assert_int_equal(core_set_tenant(c, "t", 5).code, CORE_E_STORE);
        rig_key = refused ? key : NULL;
        rig_name = names[i];
        box_says(1, SLOTS);
        disk.fail_after = UINT_MAX;
        assert_true(c->t.node_more[0].unsaved); /* control */
        if (leaves)
            core_disconnected(c, box_node);
        at(now_ms + COREI_REFUSE_MS);
        assert_false(c->t.node_more[0].unsaved);
        assert_null(rig_differs(c, &disk));
        assert_string_equal(c->t.node[0].name, rig_name);
        assert_true(c->t.node[0].keyed == (i > 0));
        if (!leaves)
            core_disconnected(c, box_node);
        at(now_ms + 5000); /* grace */
        assert_true(corei_node_given_up(c, 0));
        assert_int_equal(core_pool(c)->slot[0].state, POOL_BROKEN);
        assert_false(c->t.slot_more[0].silent); /* and its slots are reported as broken */
        rig_key = NULL;
    }
    rig_name = "name";
}

/* What a node's connection has is the same after the tables were rebuilt. */
static void test_m82_tables_rebuilt(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    dxpu_control_device more[2] = { box[0], box[1] };
    (void)state;
    rig_key = key[1];
    host_says(1, PORTS);
    core_order o;
    uint64_t loads = c->loads;
    rig_key = key[0];
    for (unsigned total = 1; total <= 2; total++) {
        box_node = rig_register(c, DXPU_CONTROL_ROLE_BOX, BOX, 7, more, total, 1, total, &why);
        while (core_next_order(c, &o))
            done(&o, 0, 0);
    }
    assert_true(c->loads > loads);
    lease_one();
    o = expect(DXPU_CONTROL_BIND, box_node);
    assert_true(o.m.u.bind.keyed);
    assert_memory_equal(o.m.u.bind.key, key[1], 32);
    rig_key = NULL;
}

/* M-81, M-82: an identity keeps its key, over a restart of the manager too, and orders name it. */
static void test_m81_m82_keys(void **state)
{
    static const uint8_t key[3][32] = { { 1 }, { 2 }, { 3 } };
    (void)state;
    assert_int_equal(box_may(key[2]), CORE_OK); /* it is unassigned yet */
    rig_key = key[0];
    box_says(1, SLOTS);
    rig_key = key[1];
    host_says(1, PORTS);
    core_order o = expect(DXPU_CONTROL_DRAIN, box_node);
    done(&o, 0, 0);
    lease_one();
    o = expect(DXPU_CONTROL_BIND, box_node);
    assert_true(o.m.u.bind.keyed);
    assert_memory_equal(o.m.u.bind.key, key[1], 32);
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    assert_true(o.m.u.attach.keyed);
    assert_memory_equal(o.m.u.attach.key, key[0], 32);
    assert_int_equal(box_may(key[0]), CORE_OK);
    for (unsigned times = 0; times < 2; times++) {
        assert_int_equal(box_may(key[2]), CORE_E_STATE);
        assert_non_null(strstr(why.text, "dxpu rekey 1"));
        assert_int_equal(count_events(CORE_EVENT_NODE_KEY), 1); /* once of each */
    }
    assert_int_equal(box_may(key[1]), CORE_E_STATE);
    assert_int_equal(count_events(CORE_EVENT_NODE_KEY), 2);
    assert_int_equal(core_forget_key(c, box_node).code, CORE_E_STATE); /* it is connected */
    assert_int_equal(core_forget_key(c, 99).code, CORE_E_UNKNOWN);
    core_ends();
    start();
    assert_int_equal(box_may(key[2]), CORE_E_STATE);
    assert_int_equal(box_may(key[0]), CORE_OK);
    assert_int_equal(core_forget_key(c, box_node).code, CORE_OK);
    assert_int_equal(box_may(key[2]), CORE_OK);
    rig_key = key[2];
    box_says(1, SLOTS);
    assert_int_equal(box_may(key[0]), CORE_E_STATE);
    rig_key = NULL;
}

/* M-81: a key that may register does not fill the pool with nodes. */
static void test_m81_identities_of_one_key(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    dxpu_control_device none = { .number = 1 };
    uint32_t last = 0;
    (void)state;
    rig_key = key[0];
    for (unsigned i = 0; i < 64; i++) {
        last = rig_register(c, DXPU_CONTROL_ROLE_HOST, (uint8_t)(50 + i), 1, &none, 1, 1, 1, &why);
        assert_int_not_equal(last, 0);
    }
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, 200, 1, &none, 1, 1, 1, &why), 0);
    assert_int_equal(why.code, CORE_E_CAPACITY);
    assert_non_null(strstr(why.text, "keys of their own"));
    core_disconnected(c, last); /* one that it has may reconnect */
    assert_int_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, 50 + 63, 2, &none, 1, 1, 1, &why),
                     last);
    rig_key = key[1]; /* another key has places of its own */
    assert_int_not_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, 201, 1, &none, 1, 1, 1, &why), 0);
    rig_key = key[0];
    core_disconnected(c, last);
    assert_int_equal(core_forget(c, last).code, CORE_OK);
    assert_int_not_equal(rig_register(c, DXPU_CONTROL_ROLE_HOST, 200, 1, &none, 1, 1, 1, &why), 0);
    rig_key = NULL;
}

/* May the owner of `key` be called so with this identity? */
static core_code may_be(uint8_t identity, const uint8_t *key, const char *name, const char *list,
                        bool own)
{
    dxpu_control_register r = { .role = DXPU_CONTROL_ROLE_HOST, .identity = { identity, 1 } };
    r.name.ptr = (const uint8_t *)name;
    r.name.len = strlen(name);
    why = core_check_name(c, &r, key, list, own);
    return why.code;
}

static uint32_t host_called(uint8_t identity, const uint8_t *key, const char *name)
{
    dxpu_control_device none = { .number = 1 };
    uint32_t node;
    rig_key = key;
    rig_name = name;
    node = rig_register(c, DXPU_CONTROL_ROLE_HOST, identity, 1, &none, 1, 1, 1, &why);
    rig_key = NULL;
    rig_name = "name";
    assert_int_not_equal(node, 0);
    return node;
}

static const char *name_of(uint32_t number)
{
    uint32_t count;
    return core_nodes(c, &count)[core_find_node(c, number)].name;
}

/* M-86: of two keys that no list names, the first one has the name. */
static void test_m86_the_name_of_another_key(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    (void)state;
    assert_int_equal(may_be(50, key[0], "web7", "", false), CORE_OK);
    uint32_t first = host_called(50, key[0], "web7");
    assert_int_equal(may_be(51, key[0], "web7", "", false), CORE_OK); /* its own */
    assert_int_equal(may_be(52, key[1], "web8", "", false), CORE_OK);
    assert_int_equal(count_events(CORE_EVENT_NODE_NAME), 0);
    for (unsigned times = 0; times < 2; times++) {
        assert_int_equal(may_be(52, key[1], "web7", "", false), CORE_E_STATE);
        assert_non_null(strstr(why.text, "another --name"));
        assert_int_equal(count_events(CORE_EVENT_NODE_NAME), 1); /* once of each key */
        core_disconnected(c, first);                             /* known is enough */
    }
    uint32_t second = host_called(52, key[1], "web8");
    assert_int_equal(may_be(52, key[1], "web7", "", false), CORE_E_STATE); /* nor later */
    assert_int_equal(may_be(52, key[1], "web8", "", false), CORE_OK);
    at(now_ms + COREI_TOLD_MS);
    assert_int_equal(may_be(52, key[1], "web7", "", false), CORE_E_STATE);
    assert_int_equal(count_events(CORE_EVENT_NODE_NAME), 2); /* an hour later again */
    (void)host_called(53, key[1], "web7"); /* a store of before this rule: both have it, and stay */
    assert_int_equal(may_be(53, key[1], "web7", "", false), CORE_OK);
    assert_int_equal(may_be(50, key[0], "web7", "", false), CORE_OK);
    assert_int_equal(may_be(54, key[0], "", "", false), CORE_OK); /* an empty name matches none */
    assert_string_equal(name_of(second), "web8");
}

/* M-86: what a list says goes before who was first, and is kept. */
static void test_m86_the_name_of_a_list(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    char number[16];
    (void)state;
    uint32_t thief = host_called(50, key[0], "web7");
    uint32_t twin = host_called(51, key[0], "web7"), other = host_called(52, key[0], "web6");
    assert_int_equal(may_be(60, key[1], "web7", "", true), CORE_OK);
    assert_int_equal(count_events(CORE_EVENT_NODE_NAME), 2);
    snprintf(number, sizeof number, "%u", thief);
    assert_string_equal(name_of(thief), number);
    assert_string_not_equal(name_of(twin), "web7");
    assert_string_equal(name_of(other), "web6"); /* the control */
    uint32_t owner = host_called(60, key[1], "web7");
    assert_int_equal(may_be(50, key[0], "web7", "it is another's", false), CORE_E_STATE);
    assert_string_equal(why.text, "it is another's");
    core_ends();
    start();
    assert_string_equal(name_of(thief), number);
    assert_string_equal(name_of(owner), "web7");
}

/* Keys whose names are refused do not fill the log. */
static void test_m86_events_are_bounded(void **state)
{
    uint8_t key[32] = { 0 };
    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        key[0] = (uint8_t)i;
        assert_int_equal(may_be(50, key, "web7", "no", false), CORE_E_STATE);
    }
    assert_int_equal(count_events(CORE_EVENT_NODE_NAME), COREI_TOLD);
}

/* May the owner of `key` be reached at 127.0.0.`host`, with slots at `port` and `offset` above? */
static core_code may_be_at(uint8_t identity, const uint8_t *key, uint8_t host_byte, unsigned port,
                           unsigned offset)
{
    uint8_t entry[DXPU_CONTROL_DEVICE_BYTES] = { 0 };
    dxpu_control_device d = box[0];
    dxpu_control_register r = { .role = DXPU_CONTROL_ROLE_BOX, .identity = { identity, 1 } };
    d.port_offset = (uint16_t)offset;
    dxpu_control_device_encode(&d, entry);
    r.total = r.first = r.count = 1;
    r.entry_bytes = sizeof entry;
    r.entries = (dxpu_bytes){ entry, sizeof entry };
    r.paths = 1;
    r.path[0] = (dxpu_control_address){ 4, (uint16_t)port, { 127, 0, 0, host_byte } };
    why = core_check_paths(c, &r, key);
    return why.code;
}

/* M-87: where a box is reached no box of another key is, whichever way it names that port; who has
   the address, and ports of its own there, may. */
static void test_m87_the_address_of_another_key(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    const unsigned port = 4400 + BOX;
    (void)state;
    box[1].port_offset = 7;
    rig_key = key[0];
    box_says(1, SLOTS);
    assert_int_equal(may_be_at(9, key[1], 1, port - 1, 0), CORE_OK); /* a NAT's */
    assert_int_equal(may_be_at(9, key[1], 2, port, 0), CORE_OK);
    assert_int_equal(may_be_at(9, key[0], 1, port, 0), CORE_OK);   /* one owner */
    assert_int_equal(may_be_at(BOX, key[0], 1, port, 0), CORE_OK); /* the box itself */
    assert_int_equal(count_events(CORE_EVENT_NODE_PATH), 0);
    assert_int_equal(may_be_at(9, key[1], 1, port, 0), CORE_E_STATE);
    assert_non_null(strstr(why.text, "--advertise"));
    assert_int_equal(may_be_at(9, key[1], 1, port + 7, 0), CORE_E_STATE);
    assert_int_equal(may_be_at(9, key[1], 1, port - 3, 3), CORE_E_STATE);
    assert_int_equal(may_be_at(9, key[1], 1, port - 3, 10), CORE_E_STATE);
    assert_int_equal(may_be_at(9, key[1], 1, port - 3, 2), CORE_OK);
    assert_int_equal(count_events(CORE_EVENT_NODE_PATH), 1); /* once an hour of each key */
}

/* M-87: a disconnected box keeps its address as long as its leases, and after a restart of the
   manager too; who took it later does not keep the first one out. */
static void test_m87_a_disconnected_box(void **state)
{
    static const uint8_t key[2][32] = { { 1 }, { 2 } };
    const unsigned port = 4400 + BOX;
    (void)state;
    rig_key = key[0];
    box_says(1, SLOTS);
    core_ends();
    start();
    assert_int_equal(may_be_at(9, key[1], 1, port, 0), CORE_E_STATE);
    box_says(1, SLOTS);
    core_disconnected(c, box_node);
    assert_int_equal(may_be_at(9, key[1], 1, port, 0), CORE_E_STATE);
    at(now_ms + CORE_GRACE_MS);
    assert_int_equal(may_be_at(9, key[1], 1, port, 0), CORE_OK); /* it moved there */
    rig_key = key[1];
    uint32_t later = second_box();
    c->t.node[core_find_node(c, later)].path[0].port = (uint16_t)port;
    assert_int_equal(may_be_at(BOX, key[0], 1, port, 0), CORE_OK);     /* it is back */
    assert_int_equal(may_be_at(10, key[0], 1, port, 0), CORE_E_STATE); /* the control: a stranger */
    c->t.node[core_find_node(c, later)].path[0].port = 4400 + 9;       /* as it said */
    rig_key = NULL;
}

/* Without keys none is named, nor asked for; what is known of one stays. */
static void test_m82_no_keys(void **state)
{
    static const uint8_t key[32] = { 1 };
    (void)state;
    rig_key = key;
    box_says(1, SLOTS);
    core_disconnected(c, box_node);
    rig_key = NULL;
    both_connect();
    lease_one();
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    assert_false(o.m.u.bind.keyed);
    done(&o, DXPU_CONTROL_SLOT_HELD, o.m.u.bind.epoch);
    o = expect(DXPU_CONTROL_ATTACH, host_node);
    assert_false(o.m.u.attach.keyed);
    assert_int_equal(box_may(key), CORE_OK);
}

/* A reset whose box was lost before it was notified is for the lease that there was. */
static void test_stale_reset(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    for (unsigned again = 0; again < 2; again++) {
        assert_int_equal(core_reset(c, slot - 1).code, CORE_OK);
        core_disconnected(c, box_node);
        if (again) { /* the lease is gone meanwhile */
            assert_int_equal(core_release(c, lease, false).code, CORE_OK);
            box[slot - 1].state = DXPU_CONTROL_SLOT_KEPT;
            box[slot - 1].epoch = 0;
        }
        box_says(1, SLOTS);
        core_order o;
        bool reset = false;
        while (core_next_order(c, &o)) {
            reset = reset || o.m.type == DXPU_CONTROL_RESET;
            done(&o, o.m.type == DXPU_CONTROL_DETACH ? 0 : box[slot - 1].state, 0);
            if (o.m.type == DXPU_CONTROL_RESET)
                box_says(slot, 1);
        }
        assert_int_equal(reset, !again);
    }
}

/* Registers a host of this key. */
static uint32_t keyed_host(uint8_t identity, uint8_t key_of)
{
    uint8_t key[DXPU_CONTROL_KEY_BYTES];
    dxpu_control_register r = { .role = DXPU_CONTROL_ROLE_HOST, .instance = 1, .first = 1 };
    uint32_t node;
    memset(key, key_of, sizeof key);
    memset(r.identity, identity, sizeof r.identity);
    node = core_register(c, &r, "test", key, &why);
    if (!node)
        fail_msg("%s", why.text);
    return node;
}

static unsigned events_of(uint32_t node, core_event_type type)
{
    static core_event e[128];
    unsigned n = core_events_after(c, 0, e, 128), found = 0;
    for (unsigned i = 0; i < n; i++)
        found += e[i].node == node && e[i].type == type;
    return found;
}

/* M-131, M-132: all nodes of one key have the alarms of one, and push out none of another's. */
static void test_m131_one_key_among_others(void **state)
{
    (void)state;
    static const char text[] = "hot";
    dxpu_control_alarm a = { .kind = DXPU_CONTROL_ALARM_DEVICE };
    core_settings set;
    core_event e[128];
    uint32_t loud[4], quiet;
    a.text.ptr = (const uint8_t *)text;
    a.text.len = sizeof text - 1;
    rig_settings(&set);
    set.events = 64;
    core_ends();
    c = core_open(&disk.base, &set, 1000, 1, &why);
    assert_non_null(c);
    quiet = keyed_host(100, 100);
    assert_int_equal(core_set_tenant(c, "t", 5).code, CORE_OK);
    at(5000);
    core_alarm(c, quiet, &a);
    for (unsigned i = 0; i < 4; i++)
        loud[i] = keyed_host((uint8_t)(i + 1), 200);
    unsigned before = count_events(CORE_EVENT_ALARM);
    for (unsigned i = 0; i < 100; i++)
        core_alarm(c, loud[i % 4], &a);
    assert_int_equal(count_events(CORE_EVENT_ALARM) - before, COREI_ALARMS);
    for (unsigned s = 6; s < 200; s++) {
        at(s * 1000);
        for (unsigned i = 0; i < 20; i++)
            core_alarm(c, loud[i % 4], &a);
        core_disconnected(c, loud[s % 4]); /* coming and going is its own, too */
        (void)keyed_host((uint8_t)(s % 4 + 1), 200);
    }
    for (unsigned i = 0; i < 2; i++) { /* and after a restart */
        assert_int_equal(events_of(quiet, CORE_EVENT_ALARM), 1);
        assert_int_equal(events_of(quiet, CORE_EVENT_NODE_NEW), 1);
        assert_int_equal(count_events(CORE_EVENT_TENANT_SET), 1);
        unsigned n = core_events_after(c, 0, e, 128),
                 back = core_events_before(c, UINT64_MAX, e, 1);
        assert_int_equal(n, 64); /* the control: it was full, over and over */
        assert_int_equal(back, 1);
        assert_true(e[0].number > 1000);
        for (unsigned k = 1; k < n; k++)
            assert_true(!core_events_after(c, e[0].number, e + 1, 1));
        core_close(c);
        c = core_open(&disk.base, &set, 1000, now_ms, &why);
        assert_non_null(c);
    }
    unsigned records = 0; /* in the store are those, and what the next commit deletes */
    for (uint64_t i = 1; i <= e[0].number; i++) {
        char key[40];
        snprintf(key, sizeof key, "event/%020llu", (unsigned long long)i);
        records += rig_value(&disk, key) != NULL;
    }
    assert_in_range(records, 64, 64 + COREI_DROPS_MAX);
}

/* M-133: a key that connects repeatedly is refused, and not another one. */
static void test_m133_connects_of_one_key(void **state)
{
    static const uint8_t one[DXPU_CONTROL_KEY_BYTES] = { 1 }, other[DXPU_CONTROL_KEY_BYTES] = { 2 };
    unsigned good = 0;
    (void)state;
    at(100000);
    for (unsigned i = 0; i < 2 * COREI_CONNECTS; i++)
        good += core_check_pace(c, one).code == CORE_OK;
    assert_int_equal(good, COREI_CONNECTS);
    assert_int_equal(core_check_pace(c, one).code, CORE_E_STATE);
    assert_int_equal(core_check_pace(c, other).code, CORE_OK); /* the control */
    at(now_ms + 3 * COREI_CONNECT_MS);
    for (good = 0; core_check_pace(c, one).code == CORE_OK; good++)
        continue;
    assert_int_equal(good, 3);
}

/* A node cannot fill the store with alarms. */
static void test_alarms(void **state)
{
    (void)state;
    static const char text[] = "too\nhot";
    dxpu_control_alarm a = { .slot = 1, .kind = DXPU_CONTROL_ALARM_DEVICE };
    a.text.ptr = (const uint8_t *)text;
    a.text.len = sizeof text - 1;
    both_connect();
    at(5000);
    for (unsigned i = 0; i < 50; i++)
        core_alarm(c, box_node, &a);
    assert_int_equal(count_events(CORE_EVENT_ALARM), COREI_ALARMS);
    at(6000);
    a.slot = 0;
    core_alarm(c, box_node, &a);
    core_alarm(c, 99, &a);
    core_event e[64];
    unsigned n = core_events_after(c, 0, e, 64);
    assert_string_equal(e[n - 1].text, "device: too?hot");
    assert_int_equal(e[n - 1].node, box_node);
}

/* Of a silent box no slot is lent; a host that works goes on, and one not heard of may. */
static void test_silent_box(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    core_disconnected(c, box_node);
    core_disconnected(c, host_node);
    at(now_ms + 5000);
    assert_int_equal(core_pool(c)->model[0].count[POOL_FREE], 0);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_LEASED);
    host_says(1, PORTS);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_LEASED);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    core_disconnected(c, host_node);
    host[port - 1].state = DXPU_CONTROL_SLOT_EMPTY; /* started again */
    host[port - 1].epoch = 0;
    host_says(1, PORTS);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_BROKEN);
    box_says(1, SLOTS);
    assert_int_equal(core_pool(c)->model[0].count[POOL_FREE], SLOTS - 1);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_LEASED);
}

/* As soon as its connection ends a box lends nothing, whatever is asked of it meanwhile; no record
   says so, and it lends again when it is back. */
static void test_box_disconnected_for_a_moment(void **state)
{
    (void)state;
    core_request r = { .host = host_node, .count = 1, .model = "nvme" };
    unsigned left;
    uint64_t lease;
    bool existed;
    both_connect();
    char *record = strdup(rig_value(&disk, "slot/1.2"));
    assert_non_null(record);
    core_disconnected(c, box_node);
    assert_int_equal(core_pool(c)->model[0].count[POOL_FREE], 0);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_E_CAPACITY);
    for (unsigned on = 2; on--;)
        assert_int_equal(core_drain(c, box_node, on != 0, false, &left).code, CORE_OK);
    assert_int_equal(core_pool(c)->model[0].count[POOL_FREE], 0);
    assert_string_equal(rig_value(&disk, "slot/1.2"), record);
    box_says(1, SLOTS);
    assert_int_equal(core_pool(c)->model[0].count[POOL_FREE], SLOTS);
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK); /* control */
    free(record);
}

/* The store is an old backup, and the slot that the box lent meanwhile has a lease in it. */
static void test_leased_in_backup(void **state)
{
    (void)state;
    unsigned slot, port;
    both_connect();
    uint64_t lease = lease_up(&slot, &port);
    uint64_t above = core_pool(c)->epoch + 500;
    box[slot - 1].epoch = box[slot - 1].epoch_seen = above;
    box_says(slot, 1);
    assert_int_equal(core_pool(c)->slot[slot - 1].state, POOL_QUARANTINED);
    uint32_t now = pool_find_lease(core_pool(c), lease)->first;
    assert_int_not_equal(now, slot - 1);
    assert_true(core_pool(c)->slot[now].epoch > above); /* epochs go on above */
}

/* A broken device was exchanged for another: it is free without anybody's word. */
static void test_exchanged(void **state)
{
    (void)state;
    both_connect();
    box[1].health = DXPU_CONTROL_HEALTH_BROKEN;
    box_says(2, 1);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_BROKEN);
    box[1].health = DXPU_CONTROL_HEALTH_GOOD;
    box_says(2, 1);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_BROKEN);
    memcpy(box[1].serial, "new", 4);
    box_says(2, 1);
    assert_int_equal(core_pool(c)->slot[1].state, POOL_FREE);
    assert_non_null(strstr(rig_value(&disk, "slot/1.2"), "\"serial\":\"new\""));
    box[2].state = DXPU_CONTROL_SLOT_KEPT; /* somebody's data, where none should be */
    box_says(3, 1);
    assert_int_equal(core_pool(c)->slot[2].state, POOL_QUARANTINED);
    expect_none();
    assert_int_equal(core_repair(c, 2).code, CORE_OK);
    (void)expect(DXPU_CONTROL_UNBIND, box_node);
}

static void hear(void *user, const core_event *e)
{
    uint64_t *last = user;
    assert_int_equal(e->number, *last + 1);
    *last = e->number;
}

static void test_listener_and_names(void **state)
{
    (void)state;
    core_settings set;
    uint64_t last = 0;
    uint32_t n;
    rig_settings(&set);
    set.user = &last;
    set.on_event = hear;
    core_ends();
    c = core_open(&disk.base, &set, 1000, 1, &why);
    both_connect();
    (void)lease_one();
    assert_int_equal(last, 5); /* each node new and connected, and the lease */
    assert_string_equal(core_tenants(c, &n)[0].name, "t");
    assert_int_equal(n, 1);
    assert_string_equal(core_models(c, &n)[0].name, "nvme");
    assert_int_equal(n, 1);
    assert_string_equal(core_phase_name(CORE_LOST), "lost");
    assert_string_equal(core_lease_state_name(CORE_LEASE_PARKED), "parked");
    assert_string_equal(core_lease_state_name(CORE_LEASE_ENDED), "ended");
    assert_string_equal(core_event_name(CORE_EVENT_ALARM), "alarm");
    set.events = 0;
    assert_null(core_open(&disk.base, &set, 1, 1, &why));
    assert_int_equal(why.code, CORE_E_ARG);
}

/* A lease whose record does not fit the others is reported, not dropped. */
static void test_damaged_lease(void **state)
{
    (void)state;
    core_settings set;
    store_fault f;
    char key[40];
    rig_settings(&set);
    both_connect();
    snprintf(key, sizeof key, "lease/%llx", (unsigned long long)lease_one());
    const char *good = rig_value(&disk, key);
    static const char *const parts[][2] = { { "\"host\":2", "\"host\":1" },
                                            { "\"nvme\"", "\"gpu1\"" },
                                            { "[[1,", "[[2," },
                                            { "\"any\"", "\"all\"" } };
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char *copy = strdup(good), *at_part = strstr(copy, parts[i][0]);
        assert_non_null(at_part);
        memcpy(at_part, parts[i][1], strlen(parts[i][1]));
        store_change bad = { key, copy, strlen(copy) };
        char *was = strdup(good);
        assert_int_equal(store_commit(&disk.base, &bad, 1, &f), STORE_OK);
        assert_null(core_open(&disk.base, &set, 1, 1, &why));
        assert_non_null(strstr(why.text, key));
        store_change back = { key, was, strlen(was) };
        assert_int_equal(store_commit(&disk.base, &back, 1, &f), STORE_OK);
        good = rig_value(&disk, key);
        free(copy);
        free(was);
    }
    char *slot = strdup(rig_value(&disk, "slot/1.3"));
    store_change none = { "slot/1.3", NULL, 0 }, again = { "slot/1.3", slot, strlen(slot) };
    assert_int_equal(store_commit(&disk.base, &none, 1, &f), STORE_OK);
    assert_null(core_open(&disk.base, &set, 1, 1, &why));
    assert_non_null(strstr(why.text, "slot/1.3"));
    assert_int_equal(store_commit(&disk.base, &again, 1, &f), STORE_OK);
    free(slot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create_release, begin, end),
        cmocka_unit_test_setup_teardown(test_m73_port_offset, begin, end),
        cmocka_unit_test_setup_teardown(test_restart, begin, end),
        cmocka_unit_test_setup_teardown(test_m74_old_store, begin, end),
        cmocka_unit_test_setup_teardown(test_m144_term, begin, end),
        cmocka_unit_test_setup_teardown(test_m74_reported, begin, end),
        cmocka_unit_test_setup_teardown(test_m75_copies, begin, end),
        cmocka_unit_test_setup_teardown(test_m75_many, begin, end),
        cmocka_unit_test_setup_teardown(test_m76_rival, begin, end),
        cmocka_unit_test_setup_teardown(test_broken, begin, end),
        cmocka_unit_test_setup_teardown(test_grace, begin, end),
        cmocka_unit_test_setup_teardown(test_store_fails, begin, end),
        cmocka_unit_test_setup_teardown(test_registers_share_a_commit, begin, end),
        cmocka_unit_test_setup_teardown(test_lost_proxies_share_a_commit, begin, end),
        cmocka_unit_test_setup_teardown(test_box_that_is_lost_in_its_batch, begin, end),
        cmocka_unit_test_setup_teardown(test_only_commits_that_were_made_are_counted, begin, end),
        cmocka_unit_test_setup_teardown(test_registers_of_known_boxes_share_a_commit, begin, end),
        cmocka_unit_test_setup_teardown(test_what_follows_from_registers_is_done_in_parts, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_serial_that_is_said_later, begin, end),
        cmocka_unit_test_setup_teardown(test_serial_that_is_said_by_a_box_that_is_back, begin, end),
        cmocka_unit_test_setup_teardown(
            test_registers_share_as_many_changes_as_the_store_has_room_for, begin, end),
        cmocka_unit_test_setup_teardown(test_registers_whose_commit_fails, begin, end),
        cmocka_unit_test_setup_teardown(test_a_full_batch_whose_commit_fails, begin, end),
        cmocka_unit_test_setup_teardown(test_tables_grow_in_a_batch, begin, end),
        cmocka_unit_test_setup_teardown(test_leased_in_backup, begin, end),
        cmocka_unit_test_setup_teardown(test_exchanged, begin, end),
        cmocka_unit_test_setup_teardown(test_listener_and_names, begin, end),
        cmocka_unit_test_setup_teardown(test_damaged_lease, begin, end),
        cmocka_unit_test_setup_teardown(test_operator, begin, end),
        cmocka_unit_test_setup_teardown(test_replaced_later, begin, end),
        cmocka_unit_test_setup_teardown(test_bind_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_register_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_too_many_models, begin, end),
        cmocka_unit_test_setup_teardown(test_blanks, begin, end),
        cmocka_unit_test(test_m155_attributes_are_whole_words),
        cmocka_unit_test_setup_teardown(test_m156_lease_by_attributes, begin, end),
        cmocka_unit_test_setup_teardown(test_m155_attributes_change, begin, end),
        cmocka_unit_test_setup_teardown(test_m155_models_under_former_names, begin, end),
        cmocka_unit_test_setup_teardown(test_m155_attributes_of_another_device, begin, end),
        cmocka_unit_test_setup_teardown(test_m157_functions, begin, end),
        cmocka_unit_test_setup_teardown(test_m157_whole_and_function, begin, end),
        cmocka_unit_test_setup_teardown(test_m158_exclusive, begin, end),
        cmocka_unit_test_setup_teardown(test_m158_refusals_count_nothing, begin, end),
        cmocka_unit_test_setup_teardown(test_m157_key, begin, end),
        cmocka_unit_test_setup_teardown(test_m180_directs, begin, end),
        cmocka_unit_test_setup_teardown(test_m182_direct_is_revoked, begin, end),
        cmocka_unit_test_setup_teardown(test_m182_reported_once, begin, end),
        cmocka_unit_test_setup_teardown(test_m182_the_pools_ban_ends, begin, end),
        cmocka_unit_test_setup_teardown(test_m182_direct_before_bind, begin, end),
        cmocka_unit_test_setup_teardown(test_m182_an_older_box, begin, end),
        cmocka_unit_test_setup_teardown(test_m183_peers, begin, end),
        cmocka_unit_test_setup_teardown(test_m183_replaced_where_direct_is_forbidden, begin, end),
        cmocka_unit_test_setup_teardown(test_m157_break_a_device, begin, end),
        cmocka_unit_test_setup_teardown(test_m157_break_a_large_device, begin, end),
        cmocka_unit_test_setup_teardown(test_m81_m82_keys, begin, end),
        cmocka_unit_test_setup_teardown(test_m81_parts_are_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_m81_kept_later, begin, end),
        cmocka_unit_test_setup_teardown(test_m82_tables_rebuilt, begin, end),
        cmocka_unit_test_setup_teardown(test_m81_identities_of_one_key, begin, end),
        cmocka_unit_test_setup_teardown(test_m86_the_name_of_another_key, begin, end),
        cmocka_unit_test_setup_teardown(test_m86_the_name_of_a_list, begin, end),
        cmocka_unit_test_setup_teardown(test_m86_events_are_bounded, begin, end),
        cmocka_unit_test_setup_teardown(test_m87_the_address_of_another_key, begin, end),
        cmocka_unit_test_setup_teardown(test_m87_a_disconnected_box, begin, end),
        cmocka_unit_test_setup_teardown(test_m82_no_keys, begin, end),
        cmocka_unit_test_setup_teardown(test_stale_reset, begin, end),
        cmocka_unit_test_setup_teardown(test_alarms, begin, end),
        cmocka_unit_test_setup_teardown(test_m133_connects_of_one_key, begin, end),
        cmocka_unit_test_setup_teardown(test_m131_one_key_among_others, begin, end),
        cmocka_unit_test_setup_teardown(test_silent_box, begin, end),
        cmocka_unit_test_setup_teardown(test_box_disconnected_for_a_moment, begin, end),
        cmocka_unit_test_setup_teardown(test_store_is_old, begin, end),
        cmocka_unit_test_setup_teardown(test_foreign_box, begin, end),
        cmocka_unit_test_setup_teardown(test_fresh_store, begin, end),
        cmocka_unit_test_setup_teardown(test_stale_wiped, begin, end),
        cmocka_unit_test_setup_teardown(test_m105_each_instance_is_ordered_to_wipe, begin, end),
        cmocka_unit_test_setup_teardown(test_m105_a_lease_is_bound_where_an_older_one_was_wiped,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_other_peer, begin, end),
        cmocka_unit_test_setup_teardown(test_silent_since_start, begin, end),
        cmocka_unit_test_setup_teardown(test_a_disconnected_box_is_named, begin, end),
        cmocka_unit_test_setup_teardown(test_a_full_host_is_refused_with_numbers, begin, end),
        cmocka_unit_test_setup_teardown(test_wipe_fails, begin, end),
        cmocka_unit_test_setup_teardown(test_host_is_slow, begin, end),
        cmocka_unit_test_setup_teardown(test_v47_host_that_is_closing_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(test_park_attach, begin, end),
        cmocka_unit_test_setup_teardown(test_kept_stays, begin, end),
        cmocka_unit_test_setup_teardown(test_kept_until_up, begin, end),
        cmocka_unit_test_setup_teardown(test_control_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_key, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
        cmocka_unit_test_setup_teardown(test_new_tenants, begin, end),
        cmocka_unit_test_setup_teardown(test_expiry, begin, end),
        cmocka_unit_test_setup_teardown(test_refused_order, begin, end),
        cmocka_unit_test_setup_teardown(test_unknown_data, begin, end),
        cmocka_unit_test_setup_teardown(test_drain_moves, begin, end),
        cmocka_unit_test_setup_teardown(test_drain_keeps_needs, begin, end),
        cmocka_unit_test_setup_teardown(test_drain_leaves_no_replace, begin, end),
        cmocka_unit_test_setup_teardown(test_other_device, begin, end),
        cmocka_unit_test_setup_teardown(test_changes_all_the_time, begin, end),
        cmocka_unit_test_setup_teardown(test_models_come_and_go, begin, end),
        cmocka_unit_test_setup_teardown(test_ever_more_slots, begin, end),
        cmocka_unit_test_setup_teardown(test_m77_reinstalled, begin, end),
        cmocka_unit_test_setup_teardown(test_m132_refusals, begin, end),
        cmocka_unit_test_setup_teardown(test_m132_other_keys, begin, end),
        cmocka_unit_test_setup_teardown(test_more_slots, begin, end),
        cmocka_unit_test_setup_teardown(test_forget, begin, end),
        cmocka_unit_test_setup_teardown(test_strangers, begin, end),
        cmocka_unit_test_setup_teardown(test_events, begin, end),
        cmocka_unit_test_setup_teardown(test_events_kept_fewer_and_more, begin, end),
        cmocka_unit_test_setup_teardown(test_tables_that_cannot_be_rebuilt, begin, end),
        cmocka_unit_test_setup_teardown(test_no_spares_no_record, begin, end),
        cmocka_unit_test_setup_teardown(test_damaged, begin, end),
        cmocka_unit_test_setup_teardown(test_strange_keys, begin, end),
        cmocka_unit_test_setup_teardown(test_store_is_lost, begin, end),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
