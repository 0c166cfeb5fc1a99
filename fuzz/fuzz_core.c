/* Fuzz target: the manager's core.  Proxies, users, operators, the clock and the disk do
   what the input says: registers of boxes and hosts in parts, answers to orders, alarms, ends of
   connections, all requests; a store that fails; a restart.  Its tables agree with each other
   after each step; a slot's lease never begins twice under one epoch nor under a lower one; no two
   orders are out for one slot; and what was leased is leased after a start.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* what store.c asks of the system */
#endif
#include "input.h"
#include "quiet.h"

#include <limits.h>

#include "core_claims.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PROXIES = 4, SLOTS = 4, ORDERS = 16, STEPS_MAX = 300 };

typedef struct ordered { /* of a box's slot */
    uint64_t epoch;
    uint32_t host;
    uint16_t host_slot;
} ordered;

static rig_store disk;
static core *c;
static uint64_t now_ms;
static uint32_t number[PROXIES]; /* of a node; 0: not yet */
static core_order out[ORDERS];   /* not yet answered */
static unsigned outs;
static ordered bound[64][SLOTS + 1]; /* by node and slot */

static void start(void)
{
    core_settings set;
    core_result why;
    core_settings_default(&set);
    set.early = (uint64_t)1 << 32; /* so short a run has no second */
    set.events = 16;
    set.nodes = 16;
    set.slots = 256; /* a byte names any lease */
    set.grace_ms = 5000;
    c = core_open(&disk.base, &set, 1000000 + now_ms, now_ms, &why);
    must(c != NULL);
    outs = 0;
}

/* Its orders: their answers never arrive. */
static void forget_out(uint32_t node)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < outs; i++) {
        if (out[i].node != node)
            out[kept++] = out[i];
    }
    outs = kept;
}

static uint64_t instance_of(uint32_t node_number)
{
    uint32_t nodes, at = core_find_node(c, node_number);
    return at == CORE_NONE ? 0 : core_nodes(c, &nodes)[at].instance;
}

static void do_register(input *in, uint8_t how)
{
    uint8_t key[DXPU_CONTROL_KEY_BYTES] = { 0 };
    dxpu_control_device d[SLOTS];
    uint8_t who = next(in) % PROXIES, parts = next(in);
    unsigned first = 1 + parts % SLOTS, count = 1 + (parts >> 2) % (SLOTS + 1 - first);
    core_result why;
    uint64_t was;
    uint32_t node;
    if (!(how & 1)) {
        first = 1;
        count = SLOTS;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        uint8_t about = i + 1 >= first && i + 1 < first + count ? next(in) : 0;
        d[i] = (dxpu_control_device){ .number = (uint16_t)(i + 1),
                                      .state = about % (DXPU_CONTROL_SLOT_UNWIPED + 1),
                                      .health = about & 0x80 ? DXPU_CONTROL_HEALTH_BROKEN
                                                             : DXPU_CONTROL_HEALTH_GOOD,
                                      .group = about >> 6 & 1,
                                      .model = { 'm', (char)('a' + (about >> 5 & 1)) } };
        if (about & 0x10) {
            d[i].epoch_seen = d[i].epoch = core_pool(c)->epoch - next(in) % 4;
            d[i].peer_node = next(in) % 8;
            d[i].peer_slot = next(in) % 8;
        }
    }
    was = instance_of(number[who]);
    key[0] = (uint8_t)(1 + who); /* an identity has one key, wire.c checks that */
    rig_key = how & 8 ? key : NULL;
    rig_name = how & 4 ? "other" : "name";
    node = rig_register(c, who & 1 ? DXPU_CONTROL_ROLE_HOST : DXPU_CONTROL_ROLE_BOX, who,
                        1u + (how >> 4), d, SLOTS, first, count, &why);
    if (was && instance_of(number[who]) != was) /* it restarted, and knows of none */
        forget_out(number[who]);
    must(node || why.code != CORE_OK);
    if (node)
        number[who] = node;
}

static void note_bind(const core_order *o)
{
    const dxpu_control_bind *b = &o->m.u.bind;
    ordered *was;
    if (o->m.type != DXPU_CONTROL_BIND)
        return;
    must(o->node < 64 && b->slot && b->slot <= SLOTS && b->epoch);
    was = &bound[o->node][b->slot];
    must(b->epoch >= was->epoch);
    must(b->epoch > was->epoch ||
         (b->host_node == was->host && b->host_slot == was->host_slot)); /* asked again */
    was->epoch = b->epoch;
    was->host = b->host_node;
    was->host_slot = b->host_slot;
}

/* The slot, of all kinds of orders but drain it is the first field. */
static uint16_t slot_of(const core_order *o)
{
    switch (o->m.type) {
    case DXPU_CONTROL_BIND:
        return o->m.u.bind.slot;
    case DXPU_CONTROL_UNBIND:
        return o->m.u.unbind.slot;
    case DXPU_CONTROL_RESET:
        return o->m.u.reset.slot;
    case DXPU_CONTROL_ATTACH:
        return o->m.u.attach.slot;
    case DXPU_CONTROL_DETACH:
        return o->m.u.detach.slot;
    default:
        return 0;
    }
}

static void take_order(void)
{
    core_order o;
    if (outs == ORDERS || !core_next_order(c, &o))
        return;
    for (unsigned i = 0; i < outs; i++)
        must(out[i].node != o.node || slot_of(&out[i]) != slot_of(&o) || !slot_of(&o));
    note_bind(&o);
    out[outs++] = o;
}

static void answer(input *in, uint8_t how)
{
    dxpu_control_done d = { 0 };
    core_order o;
    unsigned i = next(in) % (outs ? outs : 1);
    if (!outs)
        return;
    o = out[i];
    out[i] = out[--outs];
    d.slot = slot_of(&o);
    d.state = next(in) % (DXPU_CONTROL_SLOT_UNWIPED + 1);
    d.epoch = o.m.type == DXPU_CONTROL_BIND ? o.m.u.bind.epoch : core_pool(c)->epoch - (how & 3);
    if (how & 0x40)
        d.epoch += (uint64_t)next(in) << 55;
    if (core_answered(c, &o, how & 0x10 ? 1u + next(in) % 16 : DXPU_CONTROL_CODE_NONE,
                      how & 0x10 ? NULL : &d))
        return;
    core_disconnected(c, o.node);
    forget_out(o.node);
}

static void hang_up(unsigned who)
{
    if (!number[who])
        return;
    core_disconnected(c, number[who]);
    forget_out(number[who]);
}

static uint64_t some_lease(uint8_t which)
{
    const pool *p = core_pool(c);
    return p->limits.leases ? pool_lease_number(p, which % p->limits.leases) : 0;
}

/* What users ask for. */
static void request(input *in, uint8_t how)
{
    core_request r = { .tenant = "red", .model = "ma" };
    uint64_t lease = some_lease(next(in));
    bool existed;
    switch (how & 7) {
    case 0:
    case 1:
        r.tenant[0] = how & 8 ? 'b' : 'r';
        r.model[1] = how & 0x10 ? 'b' : 'a';
        r.host = number[how & 0x20 ? 3 : 1];
        r.count = next(in) % 6;
        r.need = next(in) % (POOL_NEEDS + 1);
        r.replace = how & 0x40   ? CORE_REPLACE_YES
                    : how & 0x80 ? CORE_REPLACE_DEFAULT
                                 : CORE_REPLACE_NO;
        r.seconds = how & 0x80 ? 1 + next(in) : 0;
        r.key[0] = (char)(how & 1 ? 'k' : 0);
        (void)core_create(c, &r, &lease, &existed);
        break;
    case 2:
        (void)core_release(c, lease, how & 0x10);
        break;
    case 3:
        (void)core_park(c, lease);
        break;
    case 4:
        (void)core_attach(c, lease, number[how & 8 ? 3 : 1]);
        break;
    case 5:
        (void)core_extend(c, lease, next(in));
        break;
    case 6:
        (void)core_set_tenant(c, how & 8 ? "bed" : "red", how & 0x10 ? next(in) : POOL_NONE);
        break;
    default:
        (void)core_set_spares(c, how & 8 ? "mb" : "ma", next(in) % 4);
        break;
    }
}

/* What operators do. */
static void operate(input *in, uint8_t how)
{
    uint32_t slots, slot = next(in), node = number[how >> 4 & 3], count;
    unsigned left;
    (void)core_slots(c, &slots);
    slot = slots ? slot % slots : CORE_NONE;
    switch (how & 7) {
    case 0:
        (void)core_drain(c, node, how & 8, how & 0x80, &left);
        break;
    case 1:
        if (slot != CORE_NONE)
            (void)core_replace(c, slot, POOL_WHY_OPERATOR, how & 0x80);
        break;
    case 2:
        if (slot != CORE_NONE)
            (void)core_break(c, slot, POOL_WHY_OPERATOR);
        break;
    case 3:
        if (slot == CORE_NONE)
            break;
        if (how & 0x80)
            (void)(how & 8 ? core_recover(c, slot) : core_discard(c, slot));
        else if (how & 8)
            (void)core_keep(c, slot);
        else if (how & 0x40)
            (void)core_recover_all(c, core_slot_owner(c, slot));
        else
            (void)core_repair(c, slot);
        break;
    case 4:
        if (slot != CORE_NONE)
            (void)core_reset(c, slot);
        break;
    case 5:
        if (core_forget(c, node).code == CORE_OK)
            number[how >> 4 & 3] = 0;
        break;
    case 6:
        (void)core_set_owner(c, node, how & 8 ? "red" : "");
        break;
    default:
        (void)core_forget_unused(c, how & 8 ? 0 : 60000, &count);
        break;
    }
}

static void alarm_of(input *in, uint8_t how)
{
    dxpu_control_alarm a = { 0 };
    a.slot = next(in) % (SLOTS + 2);
    a.kind = next(in) % (DXPU_CONTROL_ALARM_END + 1);
    a.epoch = core_pool(c)->epoch - (how & 3);
    if (number[how >> 4 & 3])
        core_alarm(c, number[how >> 4 & 3], &a);
}

static void start_again(void)
{
    uint64_t leases = leases_of(c);
    bool failed = disk.failures != 0;
    must(!rig_differs(c, &disk));
    core_close(c);
    disk.fail_after = UINT_MAX;
    disk.failures = 0;
    start();
    must(failed || leases_of(c) == leases);
}

static void step(input *in)
{
    uint8_t op = next(in), how = next(in);
    switch (op & 15) {
    case 0:
    case 1:
        do_register(in, how);
        break;
    case 2:
    case 3:
    case 4:
        take_order();
        break;
    case 5:
    case 6:
    case 7:
        answer(in, how);
        break;
    case 8:
    case 9:
        request(in, how);
        break;
    case 10:
        operate(in, how);
        break;
    case 11:
        alarm_of(in, how);
        break;
    case 12:
        hang_up(how % PROXIES);
        break;
    case 13:
        disk.fail_after = how & 0x80 ? how & 7 : UINT_MAX;
        disk.fault = how & 0x40 ? STORE_E_IO : STORE_E_FULL;
        disk.lost = how & 0x20;
        break;
    case 14:
        if (how == 0xff)
            start_again();
        else if (how == 0xfe)
            make_anew(c);
        break;
    default:
        now_ms += (uint64_t)1 << how % 20;
        break;
    }
    core_clock(c, 1000000 + now_ms, now_ms);
    core_tick(c);
    must(core_next_ms(c) > now_ms || core_store_failed(c, (char[256]){ 0 }));
    check_core(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    rig_store_init(&disk);
    memset(number, 0, sizeof number);
    memset(bound, 0, sizeof bound);
    now_ms = 1;
    start();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    make_anew(c);
    start_again(); /* it takes what it wrote */
    core_close(c);
    rig_store_free(&disk);
    return 0;
}
