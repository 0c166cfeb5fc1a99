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

#include "tests/core_rig.h"

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
    core_settings_default(&set);
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

static int end(void **state)
{
    (void)state;
    core_close(c);
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
    core_answered(c, o, DXPU_CONTROL_CODE_NONE, &d);
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

static void test_create_release(void **state)
{
    (void)state;
    both_connect();
    uint64_t lease = lease_one();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PENDING);
    core_order o = expect(DXPU_CONTROL_BIND, box_node);
    unsigned s = o.m.u.bind.slot, p = o.m.u.bind.host_slot;
    uint64_t epoch = o.m.u.bind.epoch;
    expect_none(); /* the host is told when the box has it */
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
    assert_int_equal(core_release(c, lease).code, CORE_OK);
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
static void test_m70_port_offset(void **state)
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

/* The lease is up at the host; the order of it all is told above. */
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
    core_close(c);
    now_ms = 1000;
    start();
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_int_equal(core_pool(c)->epoch, epoch);
    expect_none();
    box_says(1, SLOTS);
    host_says(1, PORTS);
    core_order o = expect(DXPU_CONTROL_DRAIN, box_node);
    done(&o, 0, 0);
    expect_none(); /* everything is as it is to be */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create_release, begin, end),
        cmocka_unit_test_setup_teardown(test_m70_port_offset, begin, end),
        cmocka_unit_test_setup_teardown(test_restart, begin, end),
        cmocka_unit_test_setup_teardown(test_broken, begin, end),
        cmocka_unit_test_setup_teardown(test_grace, begin, end),
        cmocka_unit_test_setup_teardown(test_store_fails, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
