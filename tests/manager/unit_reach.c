/* unit_reach.c - boxes that answer the manager and serve no lease: found out, avoided, tried again
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

/* -- Three boxes and three hosts, which do as ordered unless a test says otherwise -- */

enum { BOXES = 3, HOSTS = 3, NODES = BOXES + HOSTS, SLOTS = 4, REACH_MS = 1000, STEP_MS = 50 };

typedef struct proxy {
    uint8_t role, identity;
    uint64_t instance;
    uint32_t node;
    dxpu_control_device slot[SLOTS];
    unsigned box[SLOTS]; /* of a host: to which its port is attached */
    bool full, hangs;    /* a box that refuses, or never answers, bind and unbind */
    bool slow;           /* a host that makes no attempt */
    bool absent;         /* a box whose devices are: it refuses its hosts */
    bool old;            /* a host that does not say whether it reaches a box */
    bool refuses;        /* a host that attaches nothing */
    unsigned dead;       /* a host's port that never has a channel */
    bool shared;         /* a box whose slots are one drive's: S-249 */
    core_order held;     /* that has no answer */
    bool holds;
} proxy;

static rig_store disk;
static core *c;
static core_result why;
static uint64_t now_ms, unix_ms;
static proxy at[NODES];
static bool reaches[HOSTS][BOXES];
static unsigned wipes[BOXES]; /* unbinds without keep */

static proxy *box_at(unsigned i)
{
    return &at[i];
}

static proxy *host_at(unsigned i)
{
    return &at[BOXES + i];
}

static proxy *proxy_of(uint32_t node)
{
    for (unsigned i = 0; i < NODES; i++)
        if (at[i].node == node)
            return &at[i];
    fail_msg("no node %u", node);
    return NULL;
}

static void says(proxy *p, unsigned first, unsigned count)
{
    p->node =
        rig_register(c, p->role, p->identity, p->instance, p->slot, SLOTS, first, count, &why);
    if (!p->node)
        fail_msg("%s", why.text);
}

static void answer(const core_order *o, unsigned code, const dxpu_control_device *d)
{
    dxpu_control_done done = { 0 };
    if (d)
        done = (dxpu_control_done){ d->number, d->state, d->epoch };
    assert_true(core_answered(c, o, code, code ? NULL : &done));
}

static void bind_done(proxy *p, const core_order *o)
{
    dxpu_control_device *d = &p->slot[o->m.u.bind.slot - 1];
    d->state = DXPU_CONTROL_SLOT_HELD;
    d->epoch = d->epoch_seen = o->m.u.bind.epoch;
    d->peer_node = o->m.u.bind.host_node;
    d->peer_slot = o->m.u.bind.host_slot;
    answer(o, DXPU_CONTROL_CODE_NONE, d);
    says(p, d->number, 1);
}

static void unbind_done(proxy *p, const core_order *o)
{
    dxpu_control_device *d = &p->slot[o->m.u.unbind.slot - 1];
    d->state = o->m.u.unbind.keep ? DXPU_CONTROL_SLOT_KEPT : DXPU_CONTROL_SLOT_WIPED;
    d->epoch = 0;
    if (o->m.u.unbind.epoch > d->epoch_seen)
        d->epoch_seen = o->m.u.unbind.epoch;
    wipes[p - at] += !o->m.u.unbind.keep;
    answer(o, DXPU_CONTROL_CODE_NONE, d);
    says(p, d->number, 1);
}

/* Data are kept there that no host has. */
static bool keeps_to_itself(const proxy *p)
{
    bool kept = false, lent = false;
    for (unsigned i = 0; p->shared && i < SLOTS; i++) {
        kept |= p->slot[i].state == DXPU_CONTROL_SLOT_KEPT;
        lent |= p->slot[i].epoch != 0;
    }
    return kept && !lent;
}

static void box_does(proxy *p, const core_order *o)
{
    if (o->m.type == DXPU_CONTROL_DRAIN) {
        answer(o, DXPU_CONTROL_CODE_NONE, &(dxpu_control_device){ 0 });
    } else if (p->hangs) {
        p->held = *o;
        p->holds = true;
    } else if (p->full) {
        answer(o, DXPU_CONTROL_CODE_STATE, NULL);
    } else if (o->m.type == DXPU_CONTROL_BIND && keeps_to_itself(p) &&
               p->slot[o->m.u.bind.slot - 1].state == DXPU_CONTROL_SLOT_WIPED) {
        answer(o, DXPU_CONTROL_CODE_BUSY, NULL);
    } else if (o->m.type == DXPU_CONTROL_BIND) {
        bind_done(p, o);
    } else {
        assert_int_equal(o->m.type, DXPU_CONTROL_UNBIND);
        unbind_done(p, o);
    }
}

static void host_does(proxy *p, const core_order *o)
{
    bool attach = o->m.type == DXPU_CONTROL_ATTACH;
    unsigned number = attach ? o->m.u.attach.slot : o->m.u.detach.slot;
    dxpu_control_device *d = &p->slot[number - 1];
    if (attach && p->refuses) {
        answer(o, DXPU_CONTROL_CODE_ADDRESS, NULL);
        return;
    }
    d->state = attach ? DXPU_CONTROL_SLOT_DIALING : DXPU_CONTROL_SLOT_EMPTY;
    d->epoch = attach ? o->m.u.attach.epoch : 0;
    d->reach = attach ? DXPU_CONTROL_REACH_TRYING : DXPU_CONTROL_REACH_UNKNOWN;
    if (attach)
        p->box[number - 1] = (unsigned)(o->m.u.attach.box.port - 4400 - 1);
    answer(o, DXPU_CONTROL_CODE_NONE, d);
    says(p, number, 1);
}

/* What a host sees of its boxes. */
static void dial(unsigned host)
{
    proxy *p = host_at(host);
    for (unsigned i = 0; i < SLOTS; i++) {
        dxpu_control_device *d = &p->slot[i], was = *d;
        if (d->state == DXPU_CONTROL_SLOT_EMPTY || p->slow)
            continue;
        bool up = reaches[host][p->box[i]] && p->dead != i + 1;
        d->state = up ? DXPU_CONTROL_SLOT_UP : DXPU_CONTROL_SLOT_DIALING;
        d->reach = up ? DXPU_CONTROL_REACH_UP : DXPU_CONTROL_REACH_SILENT;
        if (up && box_at(p->box[i])->absent) {
            d->state = DXPU_CONTROL_SLOT_DIALING;
            d->reach = DXPU_CONTROL_REACH_REFUSED;
        }
        d->reach = p->old ? DXPU_CONTROL_REACH_UNKNOWN : d->reach;
        if (memcmp(&was, d, sizeof was))
            says(p, i + 1, 1);
    }
}

static void run(uint64_t ms)
{
    core_order o;
    for (uint64_t end = now_ms + ms; now_ms < end;) {
        now_ms += STEP_MS;
        unix_ms += STEP_MS;
        core_clock(c, unix_ms, now_ms);
        core_tick(c);
        while (core_next_order(c, &o)) {
            proxy *p = proxy_of(o.node);
            if (p->role == DXPU_CONTROL_ROLE_BOX)
                box_does(p, &o);
            else
                host_does(p, &o);
        }
        for (unsigned i = 0; i < HOSTS; i++)
            dial(i);
    }
}

static void start(void)
{
    core_settings set;
    core_settings_default(&set);
    assert_int_equal(set.reach_ms, CORE_REACH_MS);
    set.reach_ms = REACH_MS;
    c = core_open(&disk.base, &set, unix_ms, now_ms, &why);
    if (!c)
        fail_msg("%s", why.text);
}

static void connect_all(void)
{
    for (unsigned i = 0; i < NODES; i++)
        says(&at[i], 1, SLOTS);
    run(STEP_MS);
}

static int begin(void **state)
{
    (void)state;
    rig_store_init(&disk);
    now_ms = 1;
    unix_ms = 1000000;
    memset(at, 0, sizeof at);
    memset(wipes, 0, sizeof wipes);
    for (unsigned i = 0; i < NODES; i++) {
        proxy *p = &at[i];
        p->role = i < BOXES ? DXPU_CONTROL_ROLE_BOX : DXPU_CONTROL_ROLE_HOST;
        p->identity = (uint8_t)(i + 1);
        p->instance = 1;
        for (unsigned s = 0; s < SLOTS; s++) {
            p->slot[s].number = (uint16_t)(s + 1);
            if (i >= BOXES)
                continue;
            p->slot[s].state = DXPU_CONTROL_SLOT_WIPED;
            p->slot[s].health = DXPU_CONTROL_HEALTH_GOOD;
            p->slot[s].data = DXPU_CONTROL_DATA_PERSISTENT;
            memcpy(p->slot[s].model, "nvme", 5);
        }
    }
    for (unsigned i = 0; i < HOSTS * BOXES; i++)
        reaches[i / BOXES][i % BOXES] = true;
    start();
    connect_all();
    return 0;
}

static int end(void **state)
{
    (void)state;
    const char *differs = rig_differs(c, &disk);
    core_close(c);
    rig_store_free(&disk);
    if (differs)
        fail_msg("%s in the store is not as in the tables", differs);
    return 0;
}

/* -- What tests look at -- */

static core_result ask(unsigned host, unsigned replace, unsigned count, uint64_t *lease)
{
    core_request r = { .tenant = "t", .model = "nvme" };
    bool existed;
    r.host = host_at(host)->node;
    r.replace = (uint8_t)replace;
    r.count = (uint8_t)count;
    r.need = count > 1 ? POOL_SAME_BOX : POOL_ANY;
    return core_create(c, &r, lease, &existed);
}

static uint64_t lease_of(unsigned host)
{
    uint64_t lease;
    core_result r = ask(host, CORE_REPLACE_DEFAULT, 1, &lease);
    if (r.code != CORE_OK)
        fail_msg("%s", r.text);
    return lease;
}

static uint32_t slot_of(uint64_t lease)
{
    uint32_t slot[POOL_COUNT_MAX];
    assert_true(pool_lease_slots(core_pool(c), lease, slot) >= 1);
    return slot[0];
}

static unsigned box_of(uint64_t lease)
{
    uint32_t count;
    const core_slot *s = core_slots(c, &count);
    return (unsigned)(proxy_of(core_nodes(c, &count)[s[slot_of(lease)].node].number) - at);
}

/* One that is made in that box: the others take none meanwhile. */
static uint64_t made_in(unsigned host, unsigned box, unsigned replace)
{
    uint64_t lease;
    unsigned left;
    for (unsigned i = 0; i < BOXES; i++)
        assert_int_equal(core_drain(c, box_at(i)->node, i != box, false, &left).code, CORE_OK);
    core_result r = ask(host, replace, 1, &lease);
    if (r.code != CORE_OK)
        fail_msg("%s", r.text);
    for (unsigned i = 0; i < BOXES; i++)
        assert_int_equal(core_drain(c, box_at(i)->node, false, false, &left).code, CORE_OK);
    return lease;
}

/* One that stays in that box. */
static uint64_t lease_in(unsigned host, unsigned box)
{
    return made_in(host, box, CORE_REPLACE_NO);
}

static unsigned state_of(uint32_t slot)
{
    return core_pool(c)->slot[slot].state;
}

static unsigned suspect(const proxy *p)
{
    char text[CORE_TROUBLE_BYTES];
    uint64_t since;
    return core_suspect(c, core_find_node(c, p->node), &since, text);
}

static bool is_doubted(const proxy *p)
{
    char text[CORE_TROUBLE_BYTES];
    uint64_t since;
    (void)core_suspect(c, core_find_node(c, p->node), &since, text);
    return *text != '\0';
}

/* Events of the type whose text has these words, about the node; NULL: about any. */
static unsigned events(core_event_type type, const proxy *p, const char *words)
{
    static core_event e[1024];
    unsigned n = core_events_before(c, UINT64_MAX, e, 1024), found = 0;
    for (unsigned i = 0; i < n; i++)
        found += e[i].type == type && strstr(e[i].text, words) && (!p || e[i].node == p->node);
    return found;
}

static const core_lease *more_of(uint64_t lease)
{
    return &core_leases(c)[pool_lease_index(lease)];
}

static void is_active(uint64_t lease)
{
    char text[CORE_TROUBLE_BYTES];
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_ACTIVE);
    assert_false(core_slot_trouble(c, slot_of(lease), text));
}

/* -- A box that does not bind -- */

/* Its state is on a full disk.  The lease goes elsewhere at once, the box is lent last; an order
   that it carries out again says that it works. */
static void test_m161_box_refuses(void **state)
{
    (void)state;
    char text[CORE_TROUBLE_BYTES];
    uint64_t lease = lease_of(0);
    uint32_t slot = slot_of(lease);
    proxy *sick = box_at(box_of(lease));
    sick->full = true;
    run(STEP_MS);
    assert_true(core_slot_trouble(c, slot, text) && strstr(text, "refuses to bind it: state"));
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PENDING);
    run(900);
    is_active(lease);
    assert_ptr_not_equal(box_at(box_of(lease)), sick);
    assert_int_equal(more_of(lease)->moved_node, sick->node);
    assert_int_equal(more_of(lease)->moved_slot,
                     core_slots(c, &(uint32_t){ 0 })[slot].device.number);
    assert_int_equal(more_of(lease)->moved_why, POOL_WHY_REFUSED);
    assert_int_equal(suspect(sick), 1);
    assert_int_equal(events(CORE_EVENT_ALARM, sick, "refuses to bind: state; it is lent last"), 1);
    assert_int_equal(state_of(slot), POOL_WIPING); /* it may have the lease: not free before */
    for (unsigned i = 0; i < 3; i++) {
        uint64_t other = lease_of(1);
        assert_ptr_not_equal(box_at(box_of(other)), sick);
    }
    run(3 * COREI_RETRY_MAX_MS);
    assert_int_equal(state_of(slot), POOL_WIPING);
    sick->full = false;
    run(2 * COREI_RETRY_MAX_MS);
    assert_int_equal(suspect(sick), 0);
    assert_int_equal(events(CORE_EVENT_NODE_TRUSTED, sick, "carries out orders again"), 1);
    assert_true(state_of(slot) == POOL_FREE);
}

/* A refusal that ends by itself does not count. */
static void test_m161_refusals_that_count(void **state)
{
    (void)state;
    uint64_t lease = lease_of(0);
    proxy *sick = box_at(box_of(lease));
    sick->full = true;
    run(100); /* once or twice */
    sick->full = false;
    run(1000);
    is_active(lease);
    assert_ptr_equal(box_at(box_of(lease)), sick);
    assert_false(is_doubted(sick));
    assert_int_equal(events(CORE_EVENT_ALARM, NULL, ""), 0);
}

/* Nor do those before it did as ordered: three in a row. */
static void test_m161_refusals_in_a_row(void **state)
{
    (void)state;
    uint64_t lease = lease_in(0, 0);
    proxy *sick = box_at(0);
    sick->full = true;
    run(10 * COREI_RETRY_MAX_MS); /* it has no other slot: it waits */
    assert_true(is_doubted(sick));
    sick->full = false;
    run(2 * COREI_RETRY_MAX_MS);
    is_active(lease);
    assert_false(is_doubted(sick));
    dxpu_control_device *d = &sick->slot[slot_of(lease) % SLOTS];
    d->state = DXPU_CONTROL_SLOT_EMPTY; /* its state is lost, and the medium its own */
    d->epoch = d->epoch_seen = 0;
    d->peer_node = d->peer_slot = 0;
    unsigned alarms = events(CORE_EVENT_ALARM, sick, "");
    says(sick, d->number, 1);
    assert_int_equal(state_of(slot_of(lease)), POOL_LEASED);
    run(REACH_MS);
    is_active(lease);
    assert_false(is_doubted(sick));
    assert_int_equal(events(CORE_EVENT_ALARM, sick, ""), alarms);
    /* The same of a host. */
    host_at(0)->refuses = true;
    assert_int_equal(core_park(c, lease).code, CORE_OK);
    run(REACH_MS);
    assert_int_equal(core_attach(c, lease, host_at(0)->node).code, CORE_OK);
    run(10 * COREI_RETRY_MAX_MS);
    assert_int_equal(events(CORE_EVENT_ALARM, sick, "refuses to attach"), 1);
    host_at(0)->refuses = false;
    run(2 * COREI_RETRY_MAX_MS);
    is_active(lease);
    host_at(0)->slot[0].state = DXPU_CONTROL_SLOT_EMPTY; /* it is to attach it again */
    host_at(0)->slot[0].epoch = 0;
    says(host_at(0), 1, 1);
    run(REACH_MS);
    is_active(lease);
    assert_int_equal(events(CORE_EVENT_ALARM, sick, "refuses to attach"), 1);
}

/* Its disk hangs: it may bind later, so the slot is another's only once it said that it has not. */
static void test_m161_box_does_not_answer(void **state)
{
    (void)state;
    char text[CORE_TROUBLE_BYTES];
    uint64_t lease = lease_of(0);
    uint32_t slot = slot_of(lease);
    proxy *sick = box_at(box_of(lease));
    sick->hangs = true;
    run(REACH_MS - STEP_MS);
    assert_int_equal(slot_of(lease), slot);
    assert_false(core_slot_trouble(c, slot, text)); /* not yet */
    run(3 * STEP_MS);
    is_active(lease);
    assert_ptr_not_equal(box_at(box_of(lease)), sick);
    assert_int_equal(events(CORE_EVENT_ALARM, sick, "does not answer a bind"), 1);
    run(10 * REACH_MS);
    assert_int_equal(state_of(slot), POOL_WIPING);
    assert_true(sick->holds);
    sick->hangs = false; /* what it was ordered then is done now */
    bind_done(sick, &sick->held);
    assert_int_equal(state_of(slot), POOL_WIPING);
    run(REACH_MS);
    assert_int_equal(state_of(slot), POOL_FREE);
    assert_int_equal(wipes[sick - at], 1);
    assert_false(is_doubted(sick));
    is_active(lease);
}

/* -- A box that hosts do not reach -- */

static void cut(unsigned box, bool on)
{
    for (unsigned i = 0; i < HOSTS; i++)
        reaches[i][box] = !on;
}

/* The host has another box, so it is this one.  The box has the lease: what may be in the slot is
   kept for it, not erased, until somebody says so. */
static void test_m162_box_is_not_reached(void **state)
{
    (void)state;
    char text[CORE_TROUBLE_BYTES];
    uint32_t hosts[4];
    uint64_t lease = lease_of(0);
    unsigned sick = box_of(lease);
    uint32_t slot = slot_of(lease);
    cut(sick, true);
    run(REACH_MS / 2);
    assert_true(core_slot_trouble(c, slot, text) && strstr(text, "no answer from its box"));
    assert_int_equal(slot_of(lease), slot);
    run(2 * REACH_MS);
    is_active(lease);
    assert_int_not_equal(box_of(lease), sick);
    assert_int_equal(more_of(lease)->moved_why, POOL_WHY_PATH);
    assert_int_equal(suspect(box_at(sick)), 1); /* the host reaches another one */
    assert_int_equal(core_unreached_by(c, core_find_node(c, box_at(sick)->node), hosts, 4), 1);
    assert_int_equal(hosts[0], host_at(0)->node);
    assert_int_equal(events(CORE_EVENT_ALARM, box_at(sick), "has no answer from it"), 1);
    assert_int_equal(events(CORE_EVENT_ALARM, box_at(sick), "hosts that are connected do not"), 1);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    assert_int_equal(
        box_at(sick)->slot[core_slots(c, &(uint32_t){ 0 })[slot].device.number - 1].state,
        DXPU_CONTROL_SLOT_KEPT);
    assert_int_equal(wipes[sick], 0);
    assert_int_equal(core_discard(c, slot).code, CORE_OK);
    run(REACH_MS);
    assert_int_equal(wipes[sick], 1);
    assert_int_equal(state_of(slot), POOL_FREE);
}

/* Lent last, then not at all, then again: the wait is longer each time. */
static void test_m163_lent_last_then_not(void **state)
{
    (void)state;
    uint64_t lease[BOXES * SLOTS + 1], none;
    unsigned n = 0;
    for (unsigned i = 0; i < 2; i++)
        cut(i, true);
    for (unsigned h = 0; h < HOSTS; h++) { /* all of the good box */
        lease[n++] = lease_of(h);
        run(10 * REACH_MS);
    }
    for (unsigned i = 0; i < n; i++) {
        is_active(lease[i]);
        assert_int_equal(box_of(lease[i]), 2);
    }
    lease[n++] = lease_of(0);
    run(REACH_MS);
    is_active(lease[n - 1]);
    core_result r = { CORE_OK, "" };
    for (unsigned i = 0; i < 4 && r.code == CORE_OK; i++) { /* now the doubted ones are tried */
        r = ask(i % HOSTS, CORE_REPLACE_NO, 1, &none);
        run(3 * REACH_MS);
    }
    assert_int_equal(r.code, CORE_E_CAPACITY);
    assert_non_null(strstr(r.text, "serve no lease now"));
    assert_true(suspect(box_at(0)) == 2 || suspect(box_at(1)) == 2);
    run(200 * COREI_DOUBT_WAITS * REACH_MS); /* as long as somebody is without an answer */
    assert_true(is_doubted(box_at(0)) || is_doubted(box_at(1)));
    cut(0, false);
    cut(1, false);
    run(2 * REACH_MS);
    assert_false(is_doubted(box_at(0)) || is_doubted(box_at(1)));
    assert_true(events(CORE_EVENT_NODE_TRUSTED, NULL, "a host reaches it") >= 1);
}

/* A request for attributes is refused with what it cannot have, and why. */
static void test_m163_attributes(void **state)
{
    (void)state;
    unsigned left;
    bool existed;
    uint64_t lease;
    core_request r = { .tenant = "t", .model = "nvme", .count = 2, .attributes = "rack=7" };
    for (unsigned i = 0; i < 2; i++) {
        memcpy(box_at(i)->slot[3].attributes, "rack=7", 7);
        says(box_at(i), 4, 1);
    }
    uint64_t waits = lease_in(0, 0);
    reaches[0][0] = false;
    run(3 * REACH_MS); /* that host is lent nothing of it, and that of the other is drained */
    assert_int_equal(box_of(waits), 0);
    assert_int_equal(core_drain(c, box_at(1)->node, true, false, &left).code, CORE_OK);
    r.host = host_at(0)->node;
    core_result refused = core_create(c, &r, &lease, &existed);
    assert_int_equal(refused.code, CORE_E_CAPACITY);
    assert_non_null(strstr(refused.text, "free: 0 of 2 (1 in boxes that are suspect) (1 drained)"));
}

/* Nothing is said of a node that was forgotten. */
static void test_m163_forgotten(void **state)
{
    (void)state;
    uint64_t lease = lease_in(0, 0);
    (void)lease_in(0, 1);
    reaches[0][0] = false;
    run(3 * REACH_MS);
    assert_int_equal(c->doubts, 2); /* the box, and it for that host */
    assert_int_equal(core_release(c, lease, false).code, CORE_OK);
    run(REACH_MS);
    core_disconnected(c, box_at(0)->node);
    assert_int_equal(core_forget(c, box_at(0)->node).code, CORE_OK);
    assert_int_equal(c->doubts, 0);
    assert_int_equal(events(CORE_EVENT_NODE_TRUSTED, NULL, ""), 0);
}

/* Time alone: a box that none tries any more is one as any again. */
static void test_m163_tried_again(void **state)
{
    (void)state;
    uint64_t lease = lease_of(0);
    unsigned sick = box_of(lease);
    cut(sick, true);
    run(2 * REACH_MS);
    is_active(lease);
    assert_int_equal(suspect(box_at(sick)), 1);
    run(2 * COREI_DOUBT_WAITS * REACH_MS);
    assert_int_equal(suspect(box_at(sick)), 0);
    assert_int_equal(events(CORE_EVENT_NODE_TRUSTED, box_at(sick), "to be tried again"), 1);
    /* A restart of the box is a reason, too. */
    uint64_t next = 0;
    for (unsigned i = 0; i < 4 && !suspect(box_at(sick)); i++) {
        next = lease_of(1 + i % 2);
        run(3 * REACH_MS);
        is_active(next);
    }
    assert_int_equal(suspect(box_at(sick)), 1); /* of one host at a time */
    box_at(sick)->instance++;
    says(box_at(sick), 1, SLOTS);
    assert_int_equal(suspect(box_at(sick)), 0);
    assert_int_equal(events(CORE_EVENT_NODE_TRUSTED, box_at(sick), "restarted"), 1);
}

/* Returns how long the box stays as suspect as it is now: 1 lent last, 2 not at all. */
static uint64_t lasts(const proxy *p, unsigned level)
{
    uint64_t from_ms = now_ms;
    assert_int_equal(suspect(p), level);
    while (suspect(p) == level)
        run(STEP_MS);
    return now_ms - from_ms;
}

/* A lease in this box, which does not answer its bind: the lease moves, and the box is suspect. */
static void fail_once(unsigned box)
{
    uint64_t lease = made_in(0, box, CORE_REPLACE_DEFAULT);
    assert_int_equal(box_of(lease), box);
    while (box_of(lease) == box)
        run(STEP_MS);
}

/* First it is lent last for two units; then not at all for two or four, and last for as long. */
static void test_m163_how_long(void **state)
{
    (void)state;
    const uint64_t unit_ms = COREI_DOUBT_WAITS * REACH_MS, late_ms = 2 * STEP_MS;
    box_at(1)->hangs = true;
    fail_once(1);
    assert_in_range(lasts(box_at(1), 1), 2 * unit_ms - late_ms, 2 * unit_ms + late_ms);
    for (unsigned units = 2; units <= 4; units *= 2) {
        assert_int_equal(suspect(box_at(1)), 0);
        fail_once(1);
        for (unsigned level = 2; level; level--)
            assert_in_range(lasts(box_at(1), level), units * unit_ms - late_ms,
                            units * unit_ms + late_ms);
    }
    assert_int_equal(suspect(box_at(1)), 0);
}

/* One host that reaches no box does not make them suspect, nor does its lease go through all. */
static void test_m162_one_bad_host(void **state)
{
    (void)state;
    uint64_t good = lease_of(1), lease;
    run(REACH_MS);
    is_active(good);
    for (unsigned i = 0; i < BOXES; i++)
        reaches[0][i] = false;
    for (unsigned n = 0; n < 2; n++) {
        assert_int_equal(ask(0, CORE_REPLACE_YES, 1, &lease).code, CORE_OK);
        run(20 * REACH_MS);
        for (unsigned i = 0; i < BOXES; i++)
            assert_false(is_doubted(box_at(i)));
    }
    assert_true(is_doubted(host_at(0)));
    assert_true(events(CORE_EVENT_ALARM, host_at(0), "reaches none of the boxes") >= 1);
    assert_true(more_of(lease)->replaced <= 2);
    is_active(good);
    for (unsigned i = 0; i < BOXES; i++)
        reaches[0][i] = true;
    run(2 * REACH_MS);
    is_active(lease);
    assert_false(is_doubted(host_at(0)));
}

/* A host loses its network while it has leases in several boxes: none of them moves, though it
   would be replaced, and no box is blamed. */
static void test_m162_host_loses_all(void **state)
{
    (void)state;
    core_request r = {
        .tenant = "t", .model = "nvme", .count = 2, .need = POOL_SPREAD, .replace = CORE_REPLACE_YES
    };
    uint64_t lease;
    bool existed;
    r.host = host_at(0)->node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    run(REACH_MS);
    is_active(lease);
    for (unsigned i = 0; i < BOXES; i++)
        reaches[0][i] = false;
    run(10 * REACH_MS);
    assert_int_equal(more_of(lease)->replaced, 0);
    for (unsigned i = 0; i < BOXES; i++)
        assert_false(is_doubted(box_at(i)));
    assert_true(is_doubted(host_at(0)));
    for (unsigned i = 0; i < BOXES; i++)
        reaches[0][i] = true;
    run(REACH_MS);
    is_active(lease);
}

/* A host that reaches one box of three makes no more than one of the others suspect, and none is
   kept from other hosts. */
static void test_m162_half_bad_host(void **state)
{
    (void)state;
    core_request r = { .tenant = "t", .model = "nvme", .count = 2, .need = POOL_SPREAD };
    unsigned doubted = 0, good = box_of(lease_of(0));
    uint64_t lease;
    bool existed;
    for (unsigned i = 0; i < BOXES; i++)
        reaches[0][i] = i == good;
    run(REACH_MS);
    r.host = host_at(0)->node;
    assert_int_equal(core_create(c, &r, &lease, &existed).code, CORE_OK);
    run(5 * REACH_MS); /* one slot of it goes from one bad box to the other, and on */
    assert_int_equal(more_of(lease)->replaced, 2);
    is_active(lease);
    for (unsigned i = 0; i < BOXES; i++) {
        doubted += is_doubted(box_at(i));
        assert_true(suspect(box_at(i)) < 2);
    }
    assert_true(doubted == 1 && !is_doubted(host_at(0)));
    for (unsigned i = 0; i < SLOTS; i++) { /* the others reach all */
        lease = lease_of(1);
        run(REACH_MS);
        is_active(lease);
    }
}

/* Hosts behind one broken switch doubt a box together, until they fail with others, too. */
static void test_m162_two_bad_hosts(void **state)
{
    (void)state;
    uint64_t lease[2];
    for (unsigned i = 0; i < 2 * BOXES; i++)
        reaches[i / BOXES][i % BOXES] = false;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(ask(i, CORE_REPLACE_YES, 1, &lease[i]).code, CORE_OK);
    run(4 * REACH_MS);
    for (unsigned i = 0; i < BOXES; i++)
        assert_false(is_doubted(box_at(i)));
    assert_true(is_doubted(host_at(0)) && is_doubted(host_at(1)));
    uint64_t good = lease_of(2);
    run(REACH_MS);
    is_active(good);
}

/* Two hosts of one owner, or key, are one witness: whatever they say, the box is lent to others. */
static void test_m163_hosts_of_one_party(void **state)
{
    (void)state;
    uint64_t lease[2], other;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(core_set_owner(c, host_at(i)->node, "t").code, CORE_OK);
        lease[i] = lease_in(i, 0);
        (void)lease_in(i, 1); /* they have a channel elsewhere */
    }
    reaches[0][0] = reaches[1][0] = false;
    for (unsigned n = 0; n < 3; n++) {
        run(3 * REACH_MS);
        assert_int_equal(suspect(box_at(0)), 1);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(core_park(c, lease[i]).code, CORE_OK);
            run(STEP_MS * 4);
            assert_int_equal(core_attach(c, lease[i], host_at(i)->node).code, CORE_OK);
        }
    }
    reaches[2][0] = false; /* a host of another party says so, too */
    (void)lease_in(2, 1);
    other = lease_in(2, 0);
    run(3 * REACH_MS);
    assert_int_equal(suspect(box_at(0)), 2);
    assert_int_equal(core_release(c, other, true).code, CORE_OK);
    run(3 * COREI_DOUBT_WAITS * REACH_MS); /* and then no longer */
    assert_int_equal(suspect(box_at(0)), 1);
}

/* One of two slots that a host has of a box has no channel: it is that slot, and not the box. */
static void test_m162_one_slot_of_a_box(void **state)
{
    (void)state;
    uint64_t good = lease_in(0, 0);
    run(REACH_MS);
    is_active(good);
    host_at(0)->dead = 2;
    uint64_t bad = lease_in(0, 0);
    run(3 * REACH_MS);
    for (unsigned i = 0; i < 10; i++) {
        host_at(0)->slot[0].code = (uint16_t)(i + 1); /* something of the good one changed */
        says(host_at(0), 1, 1);
        run(REACH_MS);
        assert_false(is_doubted(box_at(0)) || is_doubted(host_at(0)));
    }
    assert_int_equal(box_of(bad), 0);
    assert_int_equal(events(CORE_EVENT_ALARM, NULL, ""), 0);
    assert_int_equal(events(CORE_EVENT_NODE_TRUSTED, NULL, ""), 0);
}

/* A host that refuses all attaches, of two: they are doubted, no box is, and their leases stay. */
static void test_m162_host_refuses(void **state)
{
    (void)state;
    uint64_t lease[2];
    for (unsigned i = 0; i < 2; i++) {
        host_at(i)->refuses = true;
        assert_int_equal(ask(i, CORE_REPLACE_YES, 1, &lease[i]).code, CORE_OK);
    }
    run(20 * COREI_RETRY_MAX_MS);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(more_of(lease[i])->replaced <= 2);
        assert_true(is_doubted(host_at(i)));
        assert_int_equal(events(CORE_EVENT_ALARM, host_at(i), "reaches none"), 1);
    }
    for (unsigned i = 0; i < BOXES; i++)
        assert_false(is_doubted(box_at(i)));
    uint64_t good = lease_of(2);
    run(REACH_MS);
    is_active(good);
    for (unsigned i = 0; i < 2; i++)
        host_at(i)->refuses = false;
    run(2 * COREI_RETRY_MAX_MS);
    for (unsigned i = 0; i < 2; i++) {
        is_active(lease[i]);
        assert_false(is_doubted(host_at(i)));
    }
}

/* What one host does not reach and another does, is the way between them: that host gets others. */
static void test_m162_between_the_two(void **state)
{
    (void)state;
    uint64_t good = lease_of(1), lease = lease_of(0);
    unsigned box = box_of(good);
    run(REACH_MS);
    while (box_of(lease) != box) {
        run(REACH_MS);
        lease = lease_of(0);
    }
    reaches[0][box] = false;
    run(3 * REACH_MS);
    assert_false(is_doubted(box_at(box)));
    assert_int_equal(events(CORE_EVENT_ALARM, box_at(box), "has no answer from it"), 1);
    uint64_t next = lease_of(0), other = lease_of(1);
    run(REACH_MS);
    assert_int_not_equal(box_of(next), box);
    is_active(next);
    is_active(other);
}

/* A host that makes no attempt, or is not connected, says nothing of a box. */
static void test_m164_slow_host(void **state)
{
    (void)state;
    char text[CORE_TROUBLE_BYTES];
    host_at(0)->slow = true;
    uint64_t lease = lease_of(0);
    uint32_t slot = slot_of(lease);
    run(20 * REACH_MS);
    assert_int_equal(slot_of(lease), slot);
    assert_false(core_slot_trouble(c, slot, text));
    for (unsigned i = 0; i < NODES; i++)
        assert_false(is_doubted(&at[i]));
    assert_true(core_pending_ms(c) >= 20 * REACH_MS);
    /* It dials without an answer, and goes before that is for long enough. */
    cut(box_of(lease), true);
    host_at(0)->slow = false;
    run(REACH_MS / 2);
    core_disconnected(c, host_at(0)->node);
    run(10 * REACH_MS);
    assert_int_equal(slot_of(lease), slot);
    assert_int_equal(events(CORE_EVENT_ALARM, NULL, ""), 0);
}

/* One of a version that does not say. */
static void test_m164_host_does_not_say(void **state)
{
    (void)state;
    host_at(0)->old = true;
    uint64_t lease = lease_of(0);
    uint32_t slot = slot_of(lease);
    cut(box_of(lease), true);
    run(20 * REACH_MS);
    assert_int_equal(slot_of(lease), slot);
    assert_int_equal(events(CORE_EVENT_ALARM, NULL, ""), 0);
    cut(box_of(lease), false);
    run(REACH_MS);
    is_active(lease);
}

/* A box that answers, and refuses its host, may have a device that is gone for a moment: S-242. */
static void test_m161_device_is_absent(void **state)
{
    (void)state;
    char text[CORE_TROUBLE_BYTES];
    uint64_t lease;
    assert_int_equal(ask(0, CORE_REPLACE_YES, 1, &lease).code, CORE_OK);
    uint32_t slot = slot_of(lease);
    proxy *box = box_at(box_of(lease));
    run(REACH_MS);
    is_active(lease);
    box->absent = true;
    run(30000);
    assert_true(core_slot_trouble(c, slot, text) && strstr(text, "has refused its host"));
    assert_int_equal(slot_of(lease), slot);
    box->absent = false;
    run(REACH_MS);
    is_active(lease);
    assert_int_equal(events(CORE_EVENT_ALARM, NULL, ""), 0);
    box->absent = true; /* and for good, whatever it is */
    run(COREI_ABSENT_MS + REACH_MS);
    is_active(lease);
    assert_int_not_equal(slot_of(lease), slot);
}

/* The time of day changes nothing. */
static void test_m164_clock_jumps(void **state)
{
    (void)state;
    uint64_t lease = lease_of(0);
    unsigned sick = box_of(lease);
    cut(sick, true);
    run(REACH_MS / 4);
    unix_ms += (uint64_t)86400000 * 365;
    run(REACH_MS / 4);
    assert_int_equal(box_of(lease), sick);
    unix_ms = 5000;
    run(REACH_MS / 4);
    assert_int_equal(box_of(lease), sick);
    run(2 * REACH_MS);
    is_active(lease);
    assert_int_not_equal(box_of(lease), sick);
}

/* -- A path that dies -- */

/* The lease was up.  By default its disk is waited for; where it asked for another, what it has is
   retained. */
static void test_m165_path_dies(void **state)
{
    (void)state;
    char text[CORE_TROUBLE_BYTES];
    uint64_t waits = lease_of(0), moves;
    assert_int_equal(ask(0, CORE_REPLACE_YES, 1, &moves).code, CORE_OK);
    run(REACH_MS);
    is_active(waits);
    is_active(moves);
    uint32_t first = slot_of(waits), second = slot_of(moves);
    for (unsigned i = 0; i < BOXES; i++)
        cut(i, i == box_of(waits) || i == box_of(moves));
    run(3 * REACH_MS);
    assert_int_equal(slot_of(waits), first);
    assert_int_equal(core_lease_now(c, waits), CORE_LEASE_DEGRADED);
    assert_true(core_slot_trouble(c, first, text));
    is_active(moves);
    assert_int_not_equal(slot_of(moves), second);
    assert_int_equal(state_of(second), POOL_RETAINED);
    cut(0, false);
    cut(1, false);
    cut(2, false);
    run(REACH_MS);
    is_active(waits);
    assert_int_equal(wipes[0] + wipes[1] + wipes[2], 0);
    assert_int_equal(core_recover(c, second).code, CORE_OK); /* its data are there */
}

/* Replaced by hand before it counts: not by a slot of the box that fails. */
static void test_m166_replace_elsewhere(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        uint64_t lease = lease_of(0);
        unsigned sick = box_of(lease);
        box_at(sick)->full = kind == 0;
        cut(sick, kind == 1);
        run(4 * STEP_MS);
        assert_int_equal(box_of(lease), sick);
        assert_int_equal(core_replace(c, slot_of(lease), POOL_WHY_OPERATOR, false).code, CORE_OK);
        assert_int_not_equal(box_of(lease), sick);
        box_at(sick)->full = false;
        cut(sick, false);
        run(REACH_MS);
        is_active(lease);
    }
}

/* The same of a lease that asks for one box: all of it moves. */
static void test_m161_one_box(void **state)
{
    (void)state;
    uint64_t lease;
    uint32_t slot[POOL_COUNT_MAX];
    assert_int_equal(ask(0, CORE_REPLACE_DEFAULT, 3, &lease).code, CORE_OK);
    unsigned sick = box_of(lease);
    cut(sick, true);
    run(3 * REACH_MS);
    is_active(lease);
    assert_int_not_equal(box_of(lease), sick);
    assert_true(pool_need_kept(core_pool(c), lease));
    assert_int_equal(pool_lease_retained(core_pool(c), lease, slot), 3);
}

/* One of its slots is up, in use in the guest: it stays, and the others with it. */
static void test_m161_one_box_partly_up(void **state)
{
    (void)state;
    uint64_t lease;
    host_at(0)->dead = 2;
    assert_int_equal(ask(0, CORE_REPLACE_YES, 2, &lease).code, CORE_OK);
    unsigned box = box_of(lease);
    run(5 * REACH_MS);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PENDING);
    assert_int_equal(more_of(lease)->replaced, 0);
    assert_int_equal(box_of(lease), box);
    host_at(0)->dead = 0;
    run(REACH_MS);
    is_active(lease);
}

/* No more is retained than the lease has slots, also where all of them move. */
static void test_m92_one_box_twice(void **state)
{
    (void)state;
    uint64_t lease;
    unsigned left;
    uint32_t kept[POOL_COUNT_MAX];
    (void)lease_in(0, 2); /* the host is good */
    run(REACH_MS);
    assert_int_equal(core_drain(c, box_at(2)->node, true, false, &left).code, CORE_OK);
    cut(0, true);
    cut(1, true);
    assert_int_equal(ask(0, CORE_REPLACE_DEFAULT, 3, &lease).code, CORE_OK);
    run(3 * REACH_MS);
    unsigned box = box_of(lease);
    assert_int_equal(more_of(lease)->replaced, 3);
    assert_int_equal(pool_lease_retained(core_pool(c), lease, kept), 3);
    assert_int_equal(core_discard(c, kept[0]).code, CORE_OK);
    assert_int_equal(core_drain(c, box_at(2)->node, false, false, &left).code, CORE_OK);
    run(5 * REACH_MS);
    assert_int_equal(box_of(lease), box);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(core_discard(c, kept[i]).code, CORE_OK);
    run(5 * REACH_MS);
    is_active(lease);
    assert_int_equal(box_of(lease), 2);
    assert_int_equal(pool_lease_retained(core_pool(c), lease, kept), 3);
}

/* The host's word moves a lease, and what it left is retained: that counts in the quota. */
static void test_m92_quota(void **state)
{
    (void)state;
    uint32_t used, limit;
    uint64_t none;
    assert_int_equal(core_set_tenant(c, "t", 1).code, CORE_OK);
    uint64_t lease = lease_of(0);
    uint32_t slot = slot_of(lease);
    cut(box_of(lease), true);
    run(3 * REACH_MS);
    is_active(lease);
    assert_int_equal(state_of(slot), POOL_RETAINED);
    core_quota(c, "t", &used, &limit);
    assert_true(used == 2 && limit == 1);
    core_close(c);
    start();
    connect_all();
    core_quota(c, "t", &used, &limit);
    assert_true(used == 2 && limit == 1);
    assert_int_equal(core_set_tenant(c, "t", 2).code, CORE_OK);
    core_result r = ask(1, CORE_REPLACE_NO, 1, &none);
    assert_int_equal(r.code, CORE_E_QUOTA);
    assert_non_null(strstr(r.text, "uses 2 of 2"));
    assert_int_equal(core_discard(c, slot).code, CORE_OK);
    assert_int_equal(ask(1, CORE_REPLACE_NO, 1, &none).code, CORE_OK);
}

/* A manager that starts knows of no doubt; why the lease moved it does. */
static void test_m161_restart(void **state)
{
    (void)state;
    uint64_t lease = lease_of(0);
    uint32_t sick = box_at(box_of(lease))->node;
    cut(box_of(lease), true);
    run(3 * REACH_MS);
    is_active(lease);
    core_close(c);
    start();
    connect_all();
    run(REACH_MS);
    is_active(lease);
    assert_int_equal(more_of(lease)->moved_node, sick);
    assert_int_equal(more_of(lease)->moved_why, POOL_WHY_PATH);
    assert_int_equal(core_pending_ms(c), 0);
}

/* -- Slots of one drive -- */

/* The box whose slots share a drive, with one lease that is kept. */
static uint64_t keep_one(proxy *p, uint64_t medium)
{
    uint64_t lease;
    p->shared = true;
    for (unsigned i = 0; i < SLOTS; i++) {
        p->slot[i].medium = medium;
        snprintf(p->slot[i].attributes, sizeof p->slot[i].attributes, "size=1G,subsystem=a");
    }
    says(p, 1, SLOTS);
    lease = lease_in(0, (unsigned)(p - at));
    run(STEP_MS * 4);
    is_active(lease);
    return lease;
}

/* Its box binds none of them (S-249), so none is given to a lease; by the medium or by name. */
static void test_m168_slots_beside_kept_data_are_not_lent(void **state)
{
    proxy *p = box_at(0);
    for (uint64_t medium = 1; medium < 78; medium += 76) {
        uint64_t kept = keep_one(p, medium), lease;
        unsigned left;
        assert_int_equal(core_drain(c, box_at(1)->node, true, false, &left).code, CORE_OK);
        assert_int_equal(core_drain(c, box_at(2)->node, true, false, &left).code, CORE_OK);
        lease = lease_of(1); /* the control: beside one that is lent */
        run(STEP_MS * 4);
        is_active(lease);
        assert_int_equal(core_release(c, lease, false).code, CORE_OK);
        assert_int_equal(core_release(c, kept, true).code, CORE_OK);
        run(STEP_MS * 40);
        assert_int_equal(ask(1, CORE_REPLACE_DEFAULT, 1, &lease).code, CORE_E_CAPACITY);
        assert_non_null(strstr(ask(1, CORE_REPLACE_DEFAULT, 1, &lease).text,
                               "(3 share a drive with data that are kept)"));
        assert_int_equal(core_drain(c, box_at(1)->node, false, false, &left).code, CORE_OK);
        lease = lease_of(1);
        run(STEP_MS * 4);
        is_active(lease);
        assert_int_equal(box_of(lease), 1);
        assert_int_equal(core_release(c, kept, false).code, CORE_OK);
        (void)end(state);
        (void)begin(state);
    }
}

/* It was given one before that was kept. */
static void test_m168_a_lease_beside_kept_data_goes_elsewhere(void **state)
{
    (void)state;
    proxy *p = box_at(0);
    uint64_t kept = keep_one(p, 77), lease;
    unsigned left;
    assert_int_equal(core_drain(c, box_at(1)->node, true, false, &left).code, CORE_OK);
    assert_int_equal(core_drain(c, box_at(2)->node, true, false, &left).code, CORE_OK);
    p->hangs = true;
    lease = lease_of(1);
    run(STEP_MS * 2);
    assert_true(p->holds);
    p->holds = p->hangs = false;
    core_order bind = p->held;
    assert_int_equal(core_release(c, kept, true).code, CORE_OK);
    run(STEP_MS * 4);
    assert_true(keeps_to_itself(p));
    box_does(p, &bind);
    run(STEP_MS * 4);
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PENDING); /* there is no other */
    assert_int_equal(core_drain(c, box_at(1)->node, false, false, &left).code, CORE_OK);
    run(REACH_MS * 8); /* as often as the bind is tried again */
    is_active(lease);
    assert_int_equal(box_of(lease), 1);
    assert_false(is_doubted(p));
}

/* Of two drives in a box, whose slots take turns, only the one with kept data is withheld. */
static void test_m168_another_drive_of_the_box_is_lent(void **state)
{
    (void)state;
    proxy *p = box_at(0);
    uint64_t kept = keep_one(p, 77), lease;
    uint32_t had[POOL_COUNT_MAX], own = slot_of(kept);
    unsigned left;
    assert_true(p->slot[own].epoch);
    for (unsigned i = 0; i < SLOTS; i++)
        if (i % 2 != own % 2) {
            p->slot[i].medium = 78;
            snprintf(p->slot[i].attributes, sizeof p->slot[i].attributes, "subsystem=b");
        }
    says(p, 1, SLOTS);
    assert_int_equal(core_release(c, kept, true).code, CORE_OK);
    run(STEP_MS * 40);
    assert_int_equal(p->slot[own].state, DXPU_CONTROL_SLOT_KEPT);
    p->shared = false; /* here the box has two drives */
    assert_int_equal(core_drain(c, box_at(1)->node, true, false, &left).code, CORE_OK);
    assert_int_equal(core_drain(c, box_at(2)->node, true, false, &left).code, CORE_OK);
    assert_int_equal(ask(1, CORE_REPLACE_DEFAULT, 3, &lease).code, CORE_E_CAPACITY);
    assert_int_equal(ask(1, CORE_REPLACE_DEFAULT, 2, &lease).code, CORE_OK);
    assert_int_equal(pool_lease_slots(core_pool(c), lease, had), 2);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(had[i] % 2, !(own % 2));
}

/* Once no box has drives that slots share, slots are chosen by the index alone again. */
static void test_m168_no_box_shares_a_drive_any_more(void **state)
{
    (void)state;
    assert_false(c->shares);
    for (unsigned i = 0; i < 2; i++) {
        proxy *p = box_at(i);
        snprintf(p->slot[0].attributes, sizeof p->slot[0].attributes, "subsystem=a");
        says(p, 1, SLOTS);
    }
    run(STEP_MS * 40);
    assert_true(c->shares);
    for (unsigned i = 0; i < 2; i++) {
        proxy *p = box_at(i);
        p->slot[0].attributes[0] = 0;
        says(p, 1, 1);
        run(STEP_MS * 40);
        assert_int_equal(c->shares, i == 0); /* the other one has them yet */
    }
}

/* An attribute of an operator's whose name only ends so joins no drives. */
static void test_m168_another_attribute_joins_no_drives(void **state)
{
    for (unsigned i = 0; i < 3; i++) {
        static const char *const words[] = { "oldsubsystem=a", "size=1G,note=subsystem=a",
                                             "size=1G,subsystem=a" }; /* the control */
        proxy *p = box_at(0);
        uint64_t kept = keep_one(p, 1), lease;
        unsigned left;
        p->shared = i == 2;
        for (unsigned s = 0; s < SLOTS; s++)
            snprintf(p->slot[s].attributes, sizeof p->slot[s].attributes, "%s", words[i]);
        says(p, 1, SLOTS);
        assert_int_equal(core_release(c, kept, true).code, CORE_OK);
        run(STEP_MS * 40);
        assert_int_equal(core_drain(c, box_at(1)->node, true, false, &left).code, CORE_OK);
        assert_int_equal(core_drain(c, box_at(2)->node, true, false, &left).code, CORE_OK);
        assert_int_equal(ask(1, CORE_REPLACE_DEFAULT, 1, &lease).code,
                         i == 2 ? CORE_E_CAPACITY : CORE_OK);
        (void)end(state);
        (void)begin(state);
    }
}

/* Two that the box binds neither: that each is given out does not make the other one bindable. */
static void test_m168_two_beside_kept_data_do_not_wait_for_each_other(void **state)
{
    (void)state;
    proxy *p = box_at(0);
    uint64_t kept = keep_one(p, 77), lease;
    unsigned left;
    assert_int_equal(core_drain(c, box_at(1)->node, true, false, &left).code, CORE_OK);
    assert_int_equal(core_drain(c, box_at(2)->node, true, false, &left).code, CORE_OK);
    p->hangs = true;
    assert_int_equal(ask(1, CORE_REPLACE_DEFAULT, 2, &lease).code, CORE_OK);
    run(STEP_MS * 2);
    assert_true(p->holds);
    core_disconnected(c, p->node);
    p->holds = p->hangs = false;
    assert_int_equal(core_release(c, kept, true).code, CORE_OK);
    run(STEP_MS * 2); /* its host gives it up */
    says(p, 1, SLOTS);
    run(STEP_MS * 4);
    assert_true(keeps_to_itself(p));
    assert_int_equal(core_lease_now(c, lease), CORE_LEASE_PENDING); /* there is no other */
    assert_int_equal(box_of(lease), 0);
    assert_int_equal(core_drain(c, box_at(1)->node, false, false, &left).code, CORE_OK);
    run(REACH_MS * 8);
    is_active(lease);
    assert_int_equal(box_of(lease), 1);
    assert_false(is_doubted(p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_m161_box_refuses, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_refusals_that_count, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_refusals_in_a_row, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_box_does_not_answer, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_box_is_not_reached, begin, end),
        cmocka_unit_test_setup_teardown(test_m163_lent_last_then_not, begin, end),
        cmocka_unit_test_setup_teardown(test_m163_attributes, begin, end),
        cmocka_unit_test_setup_teardown(test_m163_forgotten, begin, end),
        cmocka_unit_test_setup_teardown(test_m163_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(test_m163_how_long, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_one_bad_host, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_host_loses_all, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_half_bad_host, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_two_bad_hosts, begin, end),
        cmocka_unit_test_setup_teardown(test_m163_hosts_of_one_party, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_one_slot_of_a_box, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_host_refuses, begin, end),
        cmocka_unit_test_setup_teardown(test_m162_between_the_two, begin, end),
        cmocka_unit_test_setup_teardown(test_m164_slow_host, begin, end),
        cmocka_unit_test_setup_teardown(test_m164_host_does_not_say, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_device_is_absent, begin, end),
        cmocka_unit_test_setup_teardown(test_m164_clock_jumps, begin, end),
        cmocka_unit_test_setup_teardown(test_m165_path_dies, begin, end),
        cmocka_unit_test_setup_teardown(test_m166_replace_elsewhere, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_one_box, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_one_box_partly_up, begin, end),
        cmocka_unit_test_setup_teardown(test_m92_one_box_twice, begin, end),
        cmocka_unit_test_setup_teardown(test_m92_quota, begin, end),
        cmocka_unit_test_setup_teardown(test_m161_restart, begin, end),
        cmocka_unit_test_setup_teardown(test_m168_slots_beside_kept_data_are_not_lent, begin, end),
        cmocka_unit_test_setup_teardown(test_m168_a_lease_beside_kept_data_goes_elsewhere, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_m168_no_box_shares_a_drive_any_more, begin, end),
        cmocka_unit_test_setup_teardown(test_m168_another_attribute_joins_no_drives, begin, end),
        cmocka_unit_test_setup_teardown(test_m168_another_drive_of_the_box_is_lent, begin, end),
        cmocka_unit_test_setup_teardown(test_m168_two_beside_kept_data_do_not_wait_for_each_other,
                                        begin, end),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
