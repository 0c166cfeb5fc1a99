/* api_p2p.c - TLPs between two slots of a box that do not pass the host, with devices and hosts
   whose every TLP the test decides about
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "slots.h"
#include "p2p_internal.h"
#include "peer.h"

enum { A, B, C, SLOTS, CAPACITY = 16, HOLD_MS = 800 };
enum { CLASSES = DXPU_CLASSES, KEPT = 4 };
#define WINDOW_OF(slot) (0x90000000u + (slot)*0x1000000u)
#define WINDOW_BYTES    0x1000000u

/* ==== Devices ================================================================================= */

typedef struct stub {
    const device_port *port;
    unsigned got[CLASSES], posted_before; /* the last request */
    uint8_t type[64];                     /* of all that came, in order */
    uint64_t address[64];
    unsigned count;
    dxpu_tlp last; /* without its payload */
    uint8_t status;
    bool busy, answers;
} stub;

static void emit(stub *d, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    d->port->emit(d->port->user, tlp);
}

static void stub_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    static const uint8_t data[4] = { 1 };
    stub *d = device;
    dxpu_tlp cpl;
    (void)bytes;
    if (t->type == DXPU_TLP_CFGWR0) {
        dxpu_tlp_completion(t, t->target, DXPU_CPL_SC, &cpl);
        emit(d, &cpl);
        return;
    }
    if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
        d->posted_before = d->got[DXPU_POSTED];
    d->got[dxpu_tlp_class(t)]++;
    if (d->count < sizeof d->type) {
        d->address[d->count] = t->address;
        d->type[d->count++] = t->type;
    }
    if (d->answers && t->type == DXPU_TLP_MRD) {
        dxpu_tlp_completion(t, 0, DXPU_CPL_SC, &cpl);
        cpl.payload.ptr = data;
        cpl.payload.len = sizeof data;
        emit(d, &cpl);
    }
    d->status = t->status;
    d->last = *t;
    d->last.payload.ptr = NULL;
}

static void stub_event(void *device, const dxpu_event *e)
{
    (void)device;
    (void)e;
}

static void stub_reset(void *device)
{
    (void)device;
}

static void stub_report(void *device, report *r)
{
    (void)device;
    (void)r;
}

static void *stub_create(const device_settings *s, const device_port *port)
{
    stub *d = calloc(1, sizeof *d);
    (void)s;
    assert_non_null(d);
    d->port = port;
    return d;
}

static bool stub_busy(const void *device, bool posted)
{
    (void)posted;
    return ((const stub *)device)->busy;
}

static const device_kind stub_kind = { .name = "stub",
                                       .create = stub_create,
                                       .destroy = free,
                                       .tlp = stub_tlp,
                                       .event = stub_event,
                                       .reset = stub_reset,
                                       .busy = stub_busy,
                                       .report = stub_report };

/* ==== The box and the hosts =================================================================== */

static box b;
static shard loop;
static peer hosts[SLOTS];
static peer other;      /* another box */
static unsigned epochs; /* of the channel that is dialed next */

static stub *device(unsigned at)
{
    return b.slots[at].device;
}

static void run_until(bool (*done)(void))
{
    peer_run(&loop.fabric, done);
}

static bool a_while(void)
{
    return peer_polls >= 30;
}

static uint64_t next_ns(void *user)
{
    return slots_next_ns(user);
}

static unsigned wanted;
static bool is_configured(void)
{
    dxpu_tlp t;
    return peer_take(&hosts[wanted], DXPU_COMPLETION, &t);
}

static bool is_up(void)
{
    return dxpu_channel_status(&hosts[wanted].ch).state == DXPU_STATE_UP && b.slots[wanted].active;
}

/* The function of slot n is n + 1:00.0, and may master the bus. */
static void configure(unsigned at)
{
    static uint8_t command[4] = { 0x06 };
    dxpu_tlp t = peer_request(DXPU_TLP_CFGWR0, 0);
    t.address = 0;
    t.target = (uint16_t)DXPU_BDF(at + 1, 0, 0);
    t.register_bytes = 4;
    t.payload.ptr = command;
    t.payload.len = sizeof command;
    assert_int_equal(peer_submit(&hosts[at], &t), DXPU_OK);
    wanted = at;
    run_until(is_configured);
}

static void grant(unsigned at, uint8_t type, uint64_t first, uint64_t length)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = type;
    e.flags = DXPU_EVENT_READ | DXPU_EVENT_WRITE;
    e.base = first;
    e.length = length;
    assert_int_equal(dxpu_channel_submit_event(&hosts[at].ch, &e), DXPU_OK);
}

static void dial(unsigned at, uint32_t node)
{
    hosts[at].open = false;
    peer_dial_as(&hosts[at], dxpu_udp_local(loop.fabric.udp, 0), (uint16_t)(at + 1), node,
                 ++epochs);
    wanted = at;
    run_until(is_up);
    grant(at, DXPU_EVENT_DMA_GRANT, 0, (uint64_t)1 << 32);
    configure(at);
}

static void send_list(unsigned at, const dxpu_p2p_list *l)
{
    uint8_t payload[DXPU_P2P_BYTES_MAX];
    dxpu_tlp t;
    dxpu_p2p_message(l, payload, &t);
    assert_int_equal(peer_submit(&hosts[at], &t), DXPU_OK);
    run_until(a_while);
}

/* Slot n of the switch `domain` reaches all others of it. */
static dxpu_p2p_list list_of(unsigned at, uint8_t domain)
{
    dxpu_p2p_list l;
    memset(&l, 0, sizeof l);
    memset(l.domain, domain, sizeof l.domain);
    l.slot = (uint8_t)(at + 1);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (i == at)
            continue;
        l.at[l.count].slot = (uint8_t)(i + 1);
        l.at[l.count].payload_bytes = 256;
        l.at[l.count].first = WINDOW_OF(i);
        l.at[l.count++].last = WINDOW_OF(i) + (WINDOW_BYTES - 1);
    }
    return l;
}

static void list(unsigned at, uint8_t domain)
{
    dxpu_p2p_list l = list_of(at, domain);
    send_list(at, &l);
}

static int setup(void **state)
{
    fabric_settings net = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { &loop,      slots_authorize, slots_up, slots_work,
                            slots_down, next_ns,         NULL,     NULL,
                            NULL };
    device_settings set;
    (void)state;
    memset(&b, 0, sizeof b);
    memset(&loop, 0, sizeof loop);
    memset(&set, 0, sizeof set);
    loop.box = &b;
    loop.node = 2;
    b.shards = &loop;
    b.shard_count = 1;
    b.count = SLOTS;
    b.keys = net.keys = keys_none();
    net.hold_ms = HOLD_MS;
    assert_int_equal(fabric_open(&loop.fabric, &net, CAPACITY, &cb), 0);
    assert_int_equal(slots_open(&b, &stub_kind, &set), 0);
    for (unsigned i = 0; i < SLOTS; i++)
        peer_start(&hosts[i], dxpu_udp_base(loop.fabric.udp));
    peer_start(&other, dxpu_udp_base(loop.fabric.udp));
    b.p2p = true;
    dial(A, 1);
    dial(B, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SLOTS; i++)
        peer_stop(&hosts[i]);
    peer_stop(&other);
    assert_int_equal(fabric_close(&loop.fabric), 0);
    slots_close(&b);
    return 0;
}

/* A request of a slot's device to another slot's window. */
static dxpu_tlp request(unsigned from, unsigned to, uint8_t type, uint16_t tag)
{
    static const uint8_t operand[8];
    dxpu_tlp t = peer_request(type, tag);
    t.requester = (uint16_t)DXPU_BDF(from + 1, 0, 0);
    t.address = WINDOW_OF(to) + tag * 8u;
    if (type == DXPU_TLP_FETCHADD || type == DXPU_TLP_SWAP || type == DXPU_TLP_CAS) {
        t.length_dw = type == DXPU_TLP_CAS ? 2 : 1;
        t.first_be = 0;
        t.payload.ptr = operand;
        t.payload.len = t.length_dw * 4u;
    }
    return t;
}

static void ask(unsigned from, unsigned to, uint8_t type, uint16_t tag)
{
    dxpu_tlp t = request(from, to, type, tag);
    emit(device(from), &t);
}

/* The device answers the request that arrived last with one dword. */
static void answer(unsigned at)
{
    static const uint8_t data[4] = { 1, 2, 3, 4 };
    dxpu_tlp cpl;
    dxpu_tlp_completion(&device(at)->last, (uint16_t)DXPU_BDF(at + 1, 0, 0), DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = sizeof data;
    emit(device(at), &cpl);
}

/* What the host of a slot has been sent, in a while. */
static unsigned at_host(unsigned at, unsigned cls)
{
    unsigned n = 0;
    dxpu_tlp t;
    run_until(a_while);
    while (peer_take(&hosts[at], cls, &t))
        n++;
    return n;
}

static unsigned at_hosts(void)
{
    unsigned n = 0;
    for (unsigned at = A; at <= B; at++) {
        for (unsigned cls = 0; cls < CLASSES; cls++)
            n += at_host(at, cls);
    }
    return n;
}

static void both_list(void)
{
    list(A, 7);
    list(B, 7);
}

/* ==== Cases =================================================================================== */

static void test_b5_requests_and_answers_stay_inside(void **state)
{
    static const uint8_t types[] = { DXPU_TLP_MRD, DXPU_TLP_FETCHADD, DXPU_TLP_SWAP, DXPU_TLP_CAS };
    (void)state;
    both_list();
    ask(A, B, DXPU_TLP_MWR, 0);
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], 1);
    for (unsigned i = 0; i < sizeof types; i++) {
        ask(A, B, types[i], (uint16_t)(i + 1));
        run_until(a_while);
        assert_int_equal(device(B)->got[DXPU_NONPOSTED], i + 1);
        assert_int_equal(device(B)->last.type, types[i]);
        assert_int_equal(device(B)->last.requester, DXPU_BDF(A + 1, 0, 0));
        answer(B);
        run_until(a_while);
        assert_int_equal(device(A)->got[DXPU_COMPLETION], i + 1);
        assert_int_equal(device(A)->last.tag, i + 1);
        assert_int_equal(device(A)->status, DXPU_CPL_SC);
    }
    assert_int_equal(at_hosts(), 0);
}

/* The controls: what is in no window, and all without a list, is the host's. */
static void test_b5_control_all_else_is_the_hosts(void **state)
{
    dxpu_tlp t;
    (void)state;
    ask(A, B, DXPU_TLP_MWR, 0);
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    both_list();
    t = request(A, B, DXPU_TLP_MWR, 0);
    t.address = 0x1000;
    emit(device(A), &t);
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    assert_int_equal(device(B)->got[DXPU_POSTED], 0);
}

/* The same window and slot number, but another switch, another host, or none. */
static void test_b4_slots_of_different_guests_never_talk(void **state)
{
    (void)state;
    list(A, 7);
    ask(A, B, DXPU_TLP_MWR, 0); /* the other has sent no list */
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    list(B, 8);
    ask(A, B, DXPU_TLP_MWR, 0); /* another switch's */
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    dial(B, 9);
    list(B, 7);
    ask(A, B, DXPU_TLP_MWR, 0); /* another node claims to be that switch */
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    assert_int_equal(device(B)->got[DXPU_POSTED], 0);
    dial(B, 1);
    list(B, 7);
    ask(A, B, DXPU_TLP_MWR, 0); /* the control */
    assert_int_equal(at_host(A, DXPU_POSTED), 0);
    assert_int_equal(device(B)->got[DXPU_POSTED], 1);
}

/* Of each length but its own, poisoned, of too many windows or places: malformed. */
static void test_b3_what_is_not_a_list(void **state)
{
    uint8_t payload[DXPU_P2P_BYTES_MAX];
    dxpu_p2p_list l = list_of(A, 7), out;
    size_t whole;
    dxpu_tlp t;
    (void)state;
    l.places = 1;
    l.at[1].own = true;
    l.place[0] = (dxpu_p2p_place){ .slot = 3, .box_slot = 4, .epoch = 5, .family = 6, .port = 7 };
    dxpu_p2p_message(&l, payload, &t);
    assert_int_equal(dxpu_p2p_decode(&t, &out), 1);
    assert_memory_equal(&out, &l, sizeof l);
    whole = t.payload.len;
    for (t.payload.len = 4; t.payload.len < whole; t.payload.len += 4) {
        assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG);
        assert_int_equal(out.count + out.places + out.slot, 0);
    }
    t.ep = true;
    assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG);
    t.ep = false;
    payload[2] = DXPU_P2P_WINDOWS + 1;
    assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG);
    payload[2] = l.count;
    payload[3] = DXPU_P2P_PLACES + 1;
    assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG);
    payload[3] = l.places;
    memset(payload + 4, 0, DXPU_P2P_DOMAIN_BYTES);
    assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG);
    l.places = 2;
    l.place[1] = l.place[0];
    dxpu_p2p_message(&l, payload, &t);
    assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG); /* two places of one slot */
    l.place[1].slot++;
    dxpu_p2p_message(&l, payload, &t);
    assert_int_equal(dxpu_p2p_decode(&t, &out), 1);
    l.place[1].bus = 1;
    dxpu_p2p_message(&l, payload, &t);
    assert_int_equal(dxpu_p2p_decode(&t, &out), DXPU_E_ARG);
    payload[0]++;
    assert_int_equal(dxpu_p2p_decode(&t, &out), 0);
}

/* A list that is not one takes away what the one before listed. */
static void test_b3_a_malformed_list_lists_nothing(void **state)
{
    dxpu_p2p_list l = list_of(A, 7);
    (void)state;
    both_list();
    l.at[1].last = l.at[1].first - 1;
    send_list(A, &l);
    ask(A, B, DXPU_TLP_MWR, 0);
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    assert_int_equal(device(B)->got[DXPU_POSTED], 0);
    assert_int_equal(device(A)->got[DXPU_POSTED], 0); /* no list reaches the device */
}

static void withdraw(unsigned at)
{
    dxpu_p2p_list l = list_of(at, 7);
    l.count = 0;
    send_list(at, &l);
}

/* What waits when the list changes does not reach the other device, and a request is answered. */
static void test_b6_what_waits_is_looked_at_again(void **state)
{
    (void)state;
    both_list();
    device(B)->busy = true;
    ask(A, B, DXPU_TLP_MWR, 0);
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    withdraw(A);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->count, 0);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    assert_int_equal(at_hosts(), 0);
    list(A, 7);
    ask(A, B, DXPU_TLP_MWR, 0); /* the control */
    run_until(a_while);
    assert_int_equal(device(B)->count, 1);
}

/* The same of the grant and of Bus Master Enable. */
static void test_b6_a_revoked_window_ends_it(void **state)
{
    (void)state;
    both_list();
    device(B)->busy = true;
    ask(A, B, DXPU_TLP_MWR, 0);
    grant(A, DXPU_EVENT_DMA_REVOKE, WINDOW_OF(B), WINDOW_BYTES);
    run_until(a_while);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->count, 0);
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    assert_int_equal(at_hosts(), 0);
}

/* However the other slot ends, its neighbor's request is answered, once. */
static void test_b8_the_other_slot_ends(void **state)
{
    (void)state;
    both_list();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    dxpu_channel_reset(&hosts[B].ch, DXPU_REASON_SHUTDOWN);
    run_until(a_while);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    ask(A, B, DXPU_TLP_MWR, 0); /* the host's now */
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
}

static void test_b8_the_other_slot_is_reset(void **state)
{
    (void)state;
    both_list();
    device(B)->busy = true;
    ask(A, B, DXPU_TLP_MWR, 0);
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    grant(B, DXPU_EVENT_HOT_RESET, 0, 0);
    run_until(a_while);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->count, 0);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    ask(A, B, DXPU_TLP_MWR, 0); /* the list stays */
    run_until(a_while);
    assert_int_equal(device(B)->count, 1);
}

/* What a device asked before its own reset is not answered after it, nor does it go anywhere. */
static void test_b8_the_requester_is_reset(void **state)
{
    (void)state;
    both_list();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    grant(A, DXPU_EVENT_HOT_RESET, 0, 0);
    run_until(a_while);
    answer(B);
    run_until(a_while);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 0);
    assert_int_equal(at_hosts(), 0);
}

static bool is_answered(void)
{
    return device(A)->got[DXPU_COMPLETION] == 1;
}

static void test_b8_a_silent_device(void **state)
{
    uint64_t begin = dxpu_udp_now_ns();
    (void)state;
    both_list();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(is_answered);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    assert_true(dxpu_udp_now_ns() - begin >= HOLD_MS * 1000000ull);
    answer(B); /* too late: the tag rests, and the host may have one like it */
    assert_int_equal(at_host(B, DXPU_COMPLETION), 0);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
}

/* Nor is one of another lease: the next one's host may ask with the same tag. */
static void test_b8_late_only_in_its_lease(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 1);
    (void)state;
    both_list();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(is_answered);
    dial(B, 1);
    t.requester = (uint16_t)DXPU_BDF(A + 1, 0, 0);
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    run_until(a_while);
    answer(B);
    assert_int_equal(at_host(B, DXPU_COMPLETION), 1);
}

static bool has_posted(void)
{
    return dxpu_channel_peek(&hosts[wanted].ch, DXPU_POSTED).tlp.len != 0;
}

/* A device that takes nothing holds up its neighbor for the hold time at most, and what waits is
   bounded. */
static void test_b8_a_device_that_takes_nothing(void **state)
{
    enum { MANY = 1000 };
    unsigned begin;
    dxpu_tlp t;
    (void)state;
    both_list();
    device(B)->busy = true;
    for (unsigned i = 0; i < MANY; i++)
        ask(A, B, DXPU_TLP_MWR, 0);
    t = request(A, B, DXPU_TLP_MWR, 0);
    t.address = 0x1000;
    emit(device(A), &t); /* for the host, behind them */
    assert_int_equal(at_host(A, DXPU_POSTED), 0);
    wanted = A;
    run_until(has_posted);
    assert_int_equal(at_host(A, DXPU_POSTED), 1);
    device(B)->busy = false;
    run_until(a_while);
    assert_true(device(B)->got[DXPU_POSTED] > 0 && device(B)->got[DXPU_POSTED] < MANY / 2);
    ask(A, B, DXPU_TLP_MWR, 0); /* it goes on */
    begin = device(B)->got[DXPU_POSTED];
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], begin + 1);
}

/* A host that has seen what the neighbor sent it afterwards writes behind the neighbor's write. */
static void test_b7_the_neighbors_writes_come_first(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    both_list();
    device(B)->busy = true; /* so that both wait in the same turn */
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    ask(A, B, DXPU_TLP_MWR, 0);
    run_until(a_while);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->count, 2);
    assert_int_equal(device(B)->type[0], DXPU_TLP_MWR);
    assert_int_equal(device(B)->type[1], DXPU_TLP_MRD);
}

/* A completion does not pass the write before it, nor a request. */
static void test_b7_nothing_passes_a_write(void **state)
{
    (void)state;
    both_list();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    device(A)->busy = true;
    ask(B, A, DXPU_TLP_MWR, 0);
    answer(B);
    ask(B, A, DXPU_TLP_MRD, 2);
    run_until(a_while);
    assert_int_equal(device(A)->count, 0);
    device(A)->busy = false;
    run_until(a_while);
    assert_int_equal(device(A)->count, 3);
    assert_int_equal(device(A)->type[0], DXPU_TLP_MWR);
}

/* A payload that the requester's port may not pass is refused, once (V-16). */
static void test_b5_payloads(void **state)
{
    static const uint8_t data[512];
    dxpu_tlp t, cpl;
    (void)state;
    both_list();
    t = request(A, B, DXPU_TLP_MWR, 0);
    t.length_dw = sizeof data / 4;
    t.last_be = 15;
    t.payload.ptr = data;
    t.payload.len = sizeof data;
    emit(device(A), &t);
    assert_int_equal(at_host(A, DXPU_POSTED), 1); /* which cuts it */
    t = request(A, B, DXPU_TLP_MRD, 1);
    t.length_dw = sizeof data / 4;
    t.last_be = 15;
    emit(device(A), &t);
    run_until(a_while);
    dxpu_tlp_completion(&device(B)->last, 0, DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = 320 - cpl.lower_addr;
    cpl.length_dw = (uint16_t)(cpl.payload.len / 4);
    emit(device(B), &cpl);
    run_until(a_while);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    cpl.byte_count = (uint16_t)(cpl.byte_count - cpl.payload.len);
    cpl.lower_addr = 320 % 128;
    cpl.payload.len = cpl.byte_count;
    cpl.length_dw = cpl.byte_count / 4;
    emit(device(B), &cpl); /* nor is the rest the host's */
    assert_int_equal(at_host(B, DXPU_COMPLETION), 0);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
}

/* ==== From box to box ========================================================================= */

enum { THERE = 5, FAR = 9, LAST = 27, BUS = 0x30 }; /* its slot; slots of the host; its bus */
#define FAR_WINDOW 0xa0000000u

static uint16_t port_of(const peer *p)
{
    struct sockaddr_in in;
    socklen_t len = sizeof in;
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&in, &len), 0);
    return ntohs(in.sin_port);
}

/* The list of slot B, as slot `own` of its switch, with a neighbor in the other box. */
static dxpu_p2p_list far_list(uint8_t own, uint8_t far)
{
    dxpu_p2p_list l;
    memset(&l, 0, sizeof l);
    memset(l.domain, 7, sizeof l.domain);
    l.slot = own;
    l.count = 2;
    l.places = 1;
    l.at[1].own = true; /* what the neighbor may reach here */
    l.at[1].slot = far;
    l.at[1].payload_bytes = 256;
    l.at[1].first = WINDOW_OF(B);
    l.at[1].last = WINDOW_OF(B) + (WINDOW_BYTES - 1);
    l.at[0].slot = far;
    l.at[0].payload_bytes = 256;
    l.at[0].first = FAR_WINDOW;
    l.at[0].last = FAR_WINDOW + 0xfffff;
    l.place[0].slot = far;
    l.place[0].box_slot = THERE;
    l.place[0].epoch = 77;
    l.place[0].family = 4;
    l.place[0].port = port_of(&other);
    l.place[0].address[0] = 127;
    l.place[0].address[3] = 1;
    l.place[0].bus = l.place[0].last_bus = BUS;
    return l;
}

static bool host_is_over(void)
{
    return dxpu_channel_status(&hosts[B].ch).state == DXPU_STATE_FAILED;
}

static bool is_over(void)
{
    return dxpu_channel_status(&other.ch).state == DXPU_STATE_FAILED;
}

static bool is_decided(void)
{
    return dxpu_channel_status(&other.ch).state >= DXPU_STATE_UP;
}

static void begin_other(uint16_t from, uint64_t epoch)
{
    const dxpu_udp_address *to = dxpu_udp_local(loop.fabric.udp, 0);
    memcpy(&other.to, &to->u, to->len);
    other.to_len = to->len;
    other.cfg.epoch = epoch;
    other.cfg.hold_ms = HOLD_MS;
    memset(&other.cfg.local, 0, sizeof other.cfg.local);
    memset(&other.cfg.remote, 0, sizeof other.cfg.remote);
    other.cfg.local.node = 3;
    other.cfg.local.slot = from;
    other.cfg.remote.slot = B + 1;
    peer_begin(&other);
    assert_int_equal(dxpu_channel_open(&other.ch, dxpu_udp_now_ns()), DXPU_OK);
}

static void open_other(uint16_t from, uint64_t epoch)
{
    begin_other(from, epoch);
    run_until(a_while);
}

static void hello(uint8_t domain, uint8_t from, uint8_t to)
{
    uint8_t payload[DXPU_P2P_HELLO_BYTES];
    dxpu_p2p_hello h;
    dxpu_tlp t;
    memset(h.domain, domain, sizeof h.domain);
    h.from = from;
    h.to = to;
    dxpu_p2p_hello_message(&h, payload, &t);
    assert_int_equal(peer_submit(&other, &t), DXPU_OK);
}

static void send_far(uint8_t type, uint16_t tag, uint16_t requester)
{
    dxpu_tlp t = request(A, B, type, tag);
    t.requester = requester;
    assert_int_equal(peer_submit(&other, &t), DXPU_OK);
}

/* Slot B is LAST of its switch; its neighbor FAR opens. */
static void link_other(void)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    send_list(B, &l);
    open_other(THERE, hosts[B].cfg.epoch);
    assert_int_equal(dxpu_channel_status(&other.ch).state, DXPU_STATE_UP);
    hello(7, FAR, LAST);
    run_until(a_while);
}

static unsigned at_other(unsigned cls)
{
    unsigned n = 0;
    dxpu_tlp t;
    run_until(a_while);
    while (peer_take(&other, cls, &t))
        n++;
    return n;
}

static void write_far(void)
{
    dxpu_tlp t = request(B, A, DXPU_TLP_MWR, 0);
    t.address = FAR_WINDOW;
    emit(device(B), &t);
}

static void test_b13_both_ways(void **state)
{
    static const uint8_t data[4] = { 5 };
    dxpu_tlp t, cpl;
    (void)state;
    link_other();
    send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
    send_far(DXPU_TLP_FETCHADD, 3, DXPU_BDF(BUS, 0, 0));
    run_until(a_while);
    assert_int_equal(device(B)->count, 2);
    answer(B);
    assert_int_equal(at_other(DXPU_COMPLETION), 1);
    write_far();
    assert_int_equal(at_other(DXPU_POSTED), 1);
    t = request(B, A, DXPU_TLP_MRD, 4);
    t.address = FAR_WINDOW + 0x10;
    emit(device(B), &t);
    assert_int_equal(at_other(DXPU_NONPOSTED), 1);
    dxpu_tlp_completion(&t, DXPU_BDF(BUS, 0, 0), DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = sizeof data;
    assert_int_equal(peer_submit(&other, &cpl), DXPU_OK);
    assert_int_equal(peer_submit(&other, &cpl), DXPU_OK); /* unexpected */
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(B)->status, DXPU_CPL_SC);
    assert_int_equal(at_hosts(), 0);
}

/* Another slot, an old epoch, one that is to wait for an open itself, none at all. */
static void test_b11_authorized_openers(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    (void)state;
    open_other(THERE, hosts[B].cfg.epoch); /* no list */
    assert_true(is_over());
    send_list(B, &l);
    open_other(THERE + 1, hosts[B].cfg.epoch);
    assert_true(is_over());
    open_other(THERE, hosts[B].cfg.epoch - 1);
    assert_true(is_over());
    l = far_list(FAR - 1, FAR);
    send_list(B, &l);
    open_other(THERE, hosts[B].cfg.epoch);
    assert_true(is_over());
    assert_true(b.slots[B].active != NULL); /* it has taken over nothing */
    link_other();                           /* the control */
    assert_int_equal(dxpu_channel_status(&other.ch).state, DXPU_STATE_UP);
}

static void test_b10_only_where_the_operator_allows_it(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    (void)state;
    b.p2p = false;
    send_list(B, &l);
    open_other(THERE, hosts[B].cfg.epoch);
    assert_true(is_over());
    other.open = false;
    l = far_list(FAR, LAST);
    send_list(B, &l); /* to dial */
    run_until(a_while);
    assert_false(other.open);
}

static void test_b12_hello_comes_first(void **state)
{
    static const uint8_t bad[][3] = { { 8, FAR, LAST }, { 7, FAR - 1, LAST }, { 7, FAR, FAR } };
    dxpu_p2p_list l = far_list(LAST, FAR);
    (void)state;
    send_list(B, &l);
    for (unsigned i = 0; i <= 3; i++) {
        open_other(THERE, hosts[B].cfg.epoch);
        if (i < 3)
            hello(bad[i][0], bad[i][1], bad[i][2]);
        send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
        run_until(is_over);
        assert_int_equal(dxpu_channel_status(&other.ch).reason, DXPU_REASON_PROTOCOL);
    }
    assert_int_equal(device(B)->count, 0);
}

/* What would be taken for the host's, or another slot's; configuration; a message. */
static void test_b13_what_no_neighbor_sends(void **state)
{
    static const uint16_t strangers[] = { 0, DXPU_BDF(B + 1, 0, 0), DXPU_BDF(BUS + 1, 0, 0) };
    dxpu_tlp t;
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        link_other();
        send_far(i ? DXPU_TLP_MWR : DXPU_TLP_MRD, 1, strangers[i]);
        run_until(is_over);
    }
    link_other();
    t = request(A, B, DXPU_TLP_CFGRD0, 1);
    t.requester = DXPU_BDF(BUS, 0, 0);
    t.address = 0;
    assert_int_equal(peer_submit(&other, &t), DXPU_OK);
    run_until(is_over);
    link_other();
    hello(7, FAR, LAST); /* again: a message like any other */
    run_until(is_over);
    assert_int_equal(device(B)->count, 0);
    assert_true(b.slots[B].active != NULL);
}

/* The host hears of nothing that follows a write before that one is safe. */
static void test_b14_writes_elsewhere_wait(void **state)
{
    dxpu_tlp t;
    (void)state;
    link_other();
    other.deaf = true;
    write_far();
    t = request(B, A, DXPU_TLP_MWR, 0);
    t.address = 0x1000;
    emit(device(B), &t);
    assert_int_equal(at_host(B, DXPU_POSTED), 0);
    other.deaf = false;
    wanted = B;
    run_until(has_posted);
    assert_int_equal(at_host(B, DXPU_POSTED), 1);
    assert_int_equal(at_other(DXPU_POSTED), 1);
}

/* Nor does an answer to the host go ahead of it. */
static void test_b14_answers_wait(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    link_other();
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    run_until(a_while);
    other.deaf = true;
    write_far();
    answer(B);
    assert_int_equal(at_host(B, DXPU_COMPLETION), 0);
    other.deaf = false;
    wanted = B;
    run_until(is_configured);
}

/* A device that writes to its neighbor without an end answers its host all the same. */
static unsigned streamed;
static bool is_answered_in_the_stream(void)
{
    dxpu_tlp t;
    for (; device(B)->port->waiting(device(B)->port->user) < 16; streamed++)
        write_far();
    while (peer_take(&other, DXPU_POSTED, &t))
        ;
    return peer_take(&hosts[B], DXPU_COMPLETION, &t);
}

static void test_b14_a_stream_of_writes(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    link_other();
    streamed = 0;
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    run_until(a_while);
    is_answered_in_the_stream();
    answer(B);
    run_until(is_answered_in_the_stream);
    assert_true(streamed > 16);
}

/* A neighbor that sends without an end does not keep the host out, whose request arrives after what
   was there before. */
static bool is_asked_in_the_stream(void)
{
    while (dxpu_channel_reserve(&other.ch, DXPU_POSTED, 64))
        send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
    return device(B)->got[DXPU_NONPOSTED] == 1;
}

static bool is_in_the_inbox(void)
{
    return b.slots[B].p2p->in[DXPU_POSTED].count > 0;
}

static void test_b7_a_stream_of_a_neighbor(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    unsigned there;
    (void)state;
    link_other();
    is_asked_in_the_stream();
    run_until(a_while);
    device(B)->busy = true;
    is_asked_in_the_stream();
    run_until(is_in_the_inbox);
    /* more may come behind the request, while that is on its way to the device */
    there = device(B)->got[DXPU_POSTED] + b.slots[B].p2p->in[DXPU_POSTED].count;
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_NONPOSTED], 0);
    device(B)->busy = false;
    run_until(is_asked_in_the_stream);
    assert_true(device(B)->posted_before >= there);
}

/* A neighbor that takes nothing holds up what goes elsewhere for the hold time at most. */
static void test_b8_a_neighbor_that_takes_nothing(void **state)
{
    enum { MANY = 3000 };
    dxpu_tlp t;
    (void)state;
    link_other();
    for (unsigned i = 0; i < MANY; i++)
        write_far();
    t = request(B, A, DXPU_TLP_MWR, 0);
    t.address = 0x1000;
    emit(device(B), &t);
    assert_int_equal(at_host(B, DXPU_POSTED), 0);
    run_until(host_is_over); /* what it has not taken is lost */
    assert_int_equal(at_host(B, DXPU_POSTED), 0);
    run_until(is_over);
}

/* One slot does not use up the places of all channels. */
static void test_b10_channels_are_bounded(void **state)
{
    dxpu_p2p_list l = far_list(LAST, 1);
    unsigned up = 0;
    (void)state;
    l.places = 12;
    for (unsigned i = 0; i < l.places; i++) {
        l.place[i] = l.place[0];
        l.place[i].slot = (uint8_t)(i + 1);
        l.place[i].box_slot = (uint16_t)(THERE + i);
    }
    send_list(B, &l);
    for (unsigned i = 0; i < l.places; i++) {
        begin_other((uint16_t)(THERE + i), hosts[B].cfg.epoch);
        run_until(is_decided);
        up += !is_over();
    }
    assert_int_equal(up, P2P_LINKS_EACH);
}

/* Nor do those that are all opened before the first one is up. */
static peer many[12];

static bool all_are_decided(void)
{
    bool all = true;
    for (unsigned i = 0; i < 12; i++)
        all &= dxpu_channel_status(&many[i].ch).state >= DXPU_STATE_UP;
    return all && a_while();
}

static void test_b10_channels_opened_at_once(void **state)
{
    dxpu_p2p_list l = far_list(LAST, 1);
    unsigned up = 0;
    peer kept = other;
    (void)state;
    l.places = 12;
    for (unsigned i = 0; i < l.places; i++) {
        l.place[i] = l.place[0];
        l.place[i].slot = (uint8_t)(i + 1);
        l.place[i].box_slot = (uint16_t)(THERE + i);
    }
    send_list(B, &l);
    for (unsigned i = 0; i < l.places; i++) {
        memset(&other, 0, sizeof other);
        peer_init(&other);
        begin_other((uint16_t)(THERE + i), hosts[B].cfg.epoch);
        many[i] = other;
        peer_start(&many[i], dxpu_udp_base(loop.fabric.udp));
    }
    other = kept;
    run_until(all_are_decided);
    for (unsigned i = 0; i < l.places; i++) {
        up += dxpu_channel_status(&many[i].ch).state == DXPU_STATE_UP;
        peer_stop(&many[i]);
    }
    assert_int_equal(up, P2P_LINKS_EACH);
}

/* What a host opens and leaves takes no place of a channel that the box dials. */
static void test_b10_a_dial_keeps_its_place(void **state)
{
    dxpu_p2p_list l = far_list(FAR, LAST);
    const fabric_channel *c;
    bool is_there = false;
    (void)state;
    other.deaf = true;
    send_list(B, &l);
    c = b.slots[B].p2p->link[LAST - 1]->c;
    assert_non_null(c);
    hosts[C].deaf = true;
    for (unsigned i = 0; i < CAPACITY + 4; i++) {
        peer_dial_as(&hosts[C], dxpu_udp_local(loop.fabric.udp, 0), C + 1, 1, ++epochs);
        peer_poll(-1, 0, &hosts[C]);
    }
    run_until(a_while);
    for (unsigned i = 0; i < loop.fabric.live_count; i++)
        is_there |= loop.fabric.live[i] == c;
    assert_true(is_there);
    assert_int_equal(loop.fabric.free_count, 0);
    l.places = l.count = 0;
    send_list(B, &l);
}

static bool link_is_over(void)
{
    return b.slots[B].p2p == NULL || p2p_links_up(&b.slots[B]) == 0;
}

/* A lost write is not a secret; a box that ends the channel, or loses nothing, costs none. */
static void test_b15_lost_writes(void **state)
{
    dxpu_tlp t;
    (void)state;
    link_other();
    t = request(B, A, DXPU_TLP_MRD, 4);
    t.address = FAR_WINDOW;
    emit(device(B), &t);
    assert_int_equal(at_other(DXPU_NONPOSTED), 1);
    dxpu_channel_reset(&other.ch, DXPU_REASON_NO_SLOT);
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(B)->status, DXPU_CPL_UR);
    assert_false(host_is_over());
    link_other();
    other.deaf = other.mute = true; /* silence, with nothing on its way */
    run_until(link_is_over);
    run_until(a_while);
    assert_false(host_is_over());
    other.deaf = other.mute = false;
    link_other();
    other.deaf = other.mute = true;
    write_far();
    run_until(host_is_over);
    other.deaf = other.mute = false;
}

static bool is_linked(void)
{
    return !link_is_over();
}

/* Whatever the other box says of its end, but that its device is gone. */
static void test_b15_lost_by_a_reset(void **state)
{
    static const uint8_t reasons[] = { DXPU_REASON_HOLD, DXPU_REASON_BUSY, DXPU_REASON_DETACH };
    (void)state;
    for (unsigned i = 0; i < sizeof reasons; i++) {
        link_other();
        other.deaf = true;
        write_far();
        run_until(a_while);
        dxpu_channel_reset(&other.ch, reasons[i]);
        run_until(host_is_over);
        other.deaf = false;
        dial(B, 1);
    }
    link_other(); /* what it drops after it was acknowledged */
    write_far();
    assert_int_equal(at_other(DXPU_POSTED), 1);
    dxpu_channel_reset(&other.ch, DXPU_REASON_PROTOCOL);
    run_until(host_is_over);
}

/* One that another takes the place of. */
static void test_b15_lost_by_another_open(void **state)
{
    (void)state;
    link_other();
    other.deaf = true;
    write_far();
    run_until(a_while);
    other.deaf = false;
    begin_other(THERE, hosts[B].cfg.epoch);
    run_until(host_is_over);
}

/* More than the inbox has room for, acknowledged all the same. */
enum { FILLED = INBOX_TLPS + 40 };

static void flood(void)
{
    device(B)->busy = true;
    for (unsigned i = 0; i < FILLED; i++) {
        send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
        if (i % 16 == 15)
            run_until(a_while);
    }
    run_until(a_while);
    assert_int_equal(other.ch.tx.queue[DXPU_POSTED].count, 0);
}

static void fill(void)
{
    link_other();
    flood();
}

/* What a loop that passes over channels without work serves next: nothing yet. */
static void let_none_be_due(void)
{
    for (unsigned i = 0; i < loop.fabric.live_count; i++)
        loop.fabric.due_ns[i] = DXPU_NEVER;
}

static bool is_due(const fabric_channel *c)
{
    return loop.fabric.due_ns[c->live_at] == 0;
}

/* One slot's turn gives another one work, and room for what waits for it. */
static void test_b8_work_for_another_slot_is_announced(void **state)
{
    const fabric_channel *a = b.slots[A].active, *at_b = b.slots[B].active;
    (void)state;
    loop.fabric.few = 1;
    both_list();
    let_none_be_due();
    assert_false(is_due(a) || is_due(at_b)); /* the control */
    ask(A, B, DXPU_TLP_MRD, 1);
    assert_true(is_due(at_b));
    run_until(a_while);
    let_none_be_due();
    answer(B);
    assert_true(is_due(a));
    run_until(a_while);
    device(B)->busy = true;
    for (unsigned i = 0; i < FILLED; i++)
        ask(A, B, DXPU_TLP_MWR, 0);
    assert_true(b.slots[A].waiting > 0);
    let_none_be_due();
    device(B)->busy = false;
    (void)slots_work(&loop, b.slots[B].active, dxpu_udp_now_ns());
    assert_true(is_due(a));
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], FILLED);
}

static void test_b8_room_for_a_link_is_announced(void **state)
{
    const fabric_channel *link;
    (void)state;
    loop.fabric.few = 1;
    fill();
    link = b.slots[B].p2p->link[FAR - 1]->c;
    let_none_be_due();
    (void)slots_work(&loop, b.slots[B].active, dxpu_udp_now_ns());
    assert_false(is_due(link)); /* the control: its device takes nothing */
    device(B)->busy = false;
    (void)slots_work(&loop, b.slots[B].active, dxpu_udp_now_ns());
    assert_true(is_due(link));
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], FILLED);
}

static void test_b13_what_is_acknowledged_arrives(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    uint8_t payload[DXPU_P2P_BYTES_MAX];
    dxpu_tlp t;
    (void)state;
    fill();
    assert_int_equal(dxpu_channel_close(&other.ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
    run_until(a_while);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], FILLED);
    assert_false(host_is_over());
    fill(); /* a list that ends it comes behind */
    l.count = l.places = 0;
    dxpu_p2p_message(&l, payload, &t);
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    run_until(a_while);
    device(B)->busy = false;
    run_until(is_over);
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], 2 * FILLED);
    assert_false(host_is_over());
}

/* By a place that replaces it: this end takes what has come first. */
static void test_b13_a_replaced_channel(void **state)
{
    (void)state;
    fill();
    open_other(THERE, hosts[B].cfg.epoch);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], FILLED);
    assert_false(host_is_over());
}

/* As much as one channel stores, and not that of one after the other. */
static void test_b11_channels_one_after_the_other(void **state)
{
    enum { MANY = 20, EACH = 40 };
    (void)state;
    fill();
    for (unsigned n = 0; n < MANY && !is_over(); n++) {
        open_other(THERE, hosts[B].cfg.epoch);
        if (is_over())
            break;
        hello(7, FAR, LAST);
        for (unsigned i = 0; i < EACH; i++)
            send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
        run_until(a_while);
    }
    assert_true(b.slots[B].p2p->in[DXPU_POSTED].count <=
                INBOX_TLPS + loop.fabric.base.rx.header[DXPU_POSTED]);
    assert_true(is_over());
    assert_int_equal(dxpu_channel_status(&other.ch).reason, DXPU_REASON_BUSY);
    device(B)->busy = false;
    run_until(a_while);
    link_other(); /* the control */
    assert_false(host_is_over());
}

/* And where it cannot be had any more, that is not a secret. */
static void test_b15_lost_acknowledged_writes(void **state)
{
    (void)state;
    fill();
    dxpu_channel_reset(&other.ch, DXPU_REASON_NO_SLOT);
    run_until(host_is_over);
}

/* The other box's reset is here, and before the channel has its turn this end has something to say
   there: that its device does not answer. */
static void reset_before_its_turn(uint8_t reason)
{
    uint8_t frame[2048], path;
    uint64_t now = dxpu_udp_now_ns();
    fabric_channel *c = b.slots[B].p2p->link[FAR - 1]->c;
    int n;
    dxpu_channel_reset(&other.ch, reason);
    n = dxpu_channel_emit(&other.ch, now, frame, sizeof frame, &path);
    assert_true(n > 0);
    (void)dxpu_channel_ingest(&c->ch, now, frame, (size_t)n, 0);
    assert_int_equal(dxpu_channel_status(&c->ch).state, DXPU_STATE_FAILED);
    p2p_work(&b.slots[B], now + 2 * HOLD_MS * 1000000ull);
    assert_null(b.slots[B].p2p->link[FAR - 1]->c);
}

static void test_b15_a_reset_before_its_turn(void **state)
{
    (void)state;
    link_other();
    send_far(DXPU_TLP_MRD, 3, DXPU_BDF(BUS, 0, 0));
    run_until(a_while);
    other.deaf = true;
    write_far();
    run_until(a_while);
    reset_before_its_turn(DXPU_REASON_NO_SLOT); /* the write's device is gone */
    run_until(a_while);
    assert_false(host_is_over());
    other.deaf = false;
    link_other();
    send_far(DXPU_TLP_MRD, 4, DXPU_BDF(BUS, 0, 0)); /* the other tag rests */
    run_until(a_while);
    flood();
    reset_before_its_turn(DXPU_REASON_HOLD); /* with acknowledged writes there */
    run_until(host_is_over);
}

/* What the host does not let the neighbor's device reach here, however the other box asks. */
static void test_b13_only_what_is_listed(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    dxpu_tlp t;
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        link_other();
        if (i == 0)
            l.at[1].last = l.at[1].first + 3;
        else if (i == 1)
            l.count = 1;
        else if (i == 2)
            l.place[0].bus = 0;
        else
            l.at[1].slot = FAR - 1;
        send_list(B, &l);
        t = request(A, B, i % 2 ? DXPU_TLP_MRD : DXPU_TLP_MWR, 3);
        t.requester = DXPU_BDF(BUS, 0, 0);
        t.address = WINDOW_OF(B) + 0x10;
        t.tag = i % 2 ? 3 : 0;
        assert_int_equal(peer_submit(&other, &t), DXPU_OK);
        run_until(is_over);
        assert_int_equal(dxpu_channel_status(&other.ch).reason, DXPU_REASON_PROTOCOL);
        l = far_list(LAST, FAR);
    }
    assert_int_equal(device(B)->count, 0);
    assert_false(host_is_over());
}

/* Its list may be later than the neighbor's: the write waits for it, and the host for the write. */
static void test_b13_a_list_that_is_later(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    uint8_t payload[DXPU_P2P_BYTES_MAX];
    dxpu_tlp t;
    (void)state;
    link_other();
    l.count = 1;
    send_list(B, &l);
    send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
    run_until(a_while);
    assert_int_equal(device(B)->count, 0);
    device(B)->busy = true;
    t = peer_request(DXPU_TLP_MWR, 1);
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK); /* of before: waits for no list */
    run_until(a_while);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->count, 1);
    l.count = 2;
    dxpu_p2p_message(&l, payload, &t);
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    t = peer_request(DXPU_TLP_MWR, 2);
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    run_until(a_while);
    assert_int_equal(device(B)->count, 3);
    assert_true(device(B)->address[1] == WINDOW_OF(B));
    assert_true(device(B)->address[2] == t.address);
}

/* Where that list does not come before the channel ends, an acknowledged write is lost. */
static void test_b15_lost_before_its_list(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    (void)state;
    l.count = 1;
    for (unsigned i = 0; i < 2; i++) {
        link_other();
        send_list(B, &l);
        send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
        run_until(a_while);
        assert_int_equal(other.ch.tx.queue[DXPU_POSTED].count, 0);
        if (i == 0) {
            assert_int_equal(dxpu_channel_close(&other.ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
            run_until(host_is_over);
            dial(B, 1);
        }
    }
    begin_other(THERE, hosts[B].cfg.epoch);
    run_until(host_is_over);
    assert_int_equal(device(B)->count, 0);
}

/* What is taken away while it waits at the device is not delivered, as from inside the box. */
static void test_b6_of_another_box(void **state)
{
    dxpu_p2p_list l = far_list(LAST, FAR);
    (void)state;
    link_other();
    l.count = 1;
    device(B)->busy = true;
    send_far(DXPU_TLP_MRD, 3, DXPU_BDF(BUS, 0, 0));
    run_until(a_while);
    b.slots[B].p2p->list = l; /* as if a list had passed the request */
    device(B)->busy = false;
    assert_int_equal(at_other(DXPU_COMPLETION), 1);
    assert_int_equal(device(B)->count, 0);
}

/* However often the host lists another place. */
static void test_b10_dials_are_few(void **state)
{
    enum { LISTS = 40 };
    uint64_t begin = dxpu_udp_now_ns(), before;
    dxpu_p2p_list l = far_list(FAR, LAST);
    (void)state;
    other.deaf = true;
    l.places = 8;
    for (unsigned i = 1; i < l.places; i++) {
        l.place[i] = l.place[0];
        l.place[i].slot = (uint8_t)(FAR + i);
    }
    before = loop.fabric.count.opens_sent;
    for (unsigned n = 0; n < LISTS; n++) {
        for (unsigned i = 0; i < l.places; i++)
            l.place[i].epoch++;
        send_list(B, &l);
    }
    assert_in_range(loop.fabric.count.opens_sent - before, 2,
                    2 + (dxpu_udp_now_ns() - begin) / 200000000u);
}

/* What the host has sent by now comes behind what is here by now, each class for itself. */
static void test_b7_classes(void **state)
{
    dxpu_tlp n1 = peer_request(DXPU_TLP_MRD, 5), x = peer_request(DXPU_TLP_MWR, 6);
    (void)state;
    link_other();
    device(B)->busy = true;
    assert_int_equal(peer_submit(&hosts[B], &n1), DXPU_OK);
    send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
    run_until(a_while);
    send_far(DXPU_TLP_MWR, 0, DXPU_BDF(BUS, 0, 0));
    run_until(a_while);
    assert_int_equal(peer_submit(&hosts[B], &x), DXPU_OK);
    run_until(a_while);
    device(B)->busy = false;
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_POSTED], 3);
    for (unsigned i = 0; i < 4; i++)
        assert_true(device(B)->type[i] != DXPU_TLP_MWR || device(B)->address[i] != x.address ||
                    i >= 2);
    assert_true(device(B)->address[0] == WINDOW_OF(B));
    assert_true(device(B)->address[1] == WINDOW_OF(B) || device(B)->address[2] == WINDOW_OF(B));
    assert_true(device(B)->address[3] == x.address || device(B)->type[3] == DXPU_TLP_MRD);
}

/* A neighbor that asks and takes no answer holds up none for the host. */
static void test_b8_answers_that_are_not_taken(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    link_other();
    device(B)->answers = true;
    for (unsigned tag = 0; tag < 768; tag++) {
        t.tag = (uint16_t)(tag % 256);
        t.requester = DXPU_BDF(BUS, 0, 0);
        t.address = WINDOW_OF(B) + tag * 4;
        (void)peer_submit(&other, &t);
        if (tag % 16 == 15)
            run_until(a_while);
    }
    assert_true(device(B)->got[DXPU_NONPOSTED] < 768);
    t = peer_request(DXPU_TLP_MRD, 5);
    assert_int_equal(peer_submit(&hosts[B], &t), DXPU_OK);
    assert_int_equal(at_host(B, DXPU_COMPLETION), 1);
    assert_false(is_over());
    assert_true(at_other(DXPU_COMPLETION) > 32); /* the control: then it goes on */
    run_until(a_while);
    assert_true(at_other(DXPU_COMPLETION) > 0);
}

/* An answer of before a reset is not one to what is asked after it. */
static void test_b8_an_answer_of_before_a_reset(void **state)
{
    dxpu_p2p_list l = far_list(B + 1, FAR);
    (void)state;
    list(A, 7);
    other.open = false;
    send_list(B, &l);
    run_until(is_linked);
    other.deaf = true;
    write_far();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    answer(B); /* behind the write */
    run_until(a_while);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 0);
    grant(B, DXPU_EVENT_HOT_RESET, 0, 0);
    assert_int_equal(at_host(B, DXPU_COMPLETION), 0); /* nor is it the host's */
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    assert_int_equal(device(B)->got[DXPU_NONPOSTED], 2);
    answer(B); /* the control */
    run_until(a_while);
    assert_int_equal(device(A)->status, DXPU_CPL_SC);
    other.deaf = false;
}

/* Nor does an answer leave that says of a write which is lost that it is done. */
static void test_b14_an_answer_behind_a_lost_write(void **state)
{
    dxpu_p2p_list l = far_list(B + 1, FAR);
    (void)state;
    list(A, 7);
    other.open = false;
    send_list(B, &l);
    run_until(is_linked);
    other.deaf = true;
    write_far();
    ask(A, B, DXPU_TLP_MRD, 1);
    run_until(a_while);
    answer(B);
    run_until(host_is_over);
    run_until(a_while);
    assert_int_equal(device(A)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(A)->status, DXPU_CPL_UR);
    other.deaf = false;
}

/* The other box is not trusted to look at payloads (V-16). */
static void test_b5_payloads_of_another_box(void **state)
{
    static const uint8_t data[512];
    dxpu_tlp t, cpl;
    (void)state;
    link_other();
    t = request(B, A, DXPU_TLP_MRD, 4);
    t.address = FAR_WINDOW;
    t.length_dw = sizeof data / 4;
    t.last_be = 15;
    emit(device(B), &t);
    assert_int_equal(at_other(DXPU_NONPOSTED), 1);
    dxpu_tlp_completion(&t, DXPU_BDF(BUS, 0, 0), DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = sizeof data;
    assert_int_equal(peer_submit(&other, &cpl), DXPU_OK);
    run_until(a_while);
    assert_int_equal(device(B)->got[DXPU_COMPLETION], 1);
    assert_int_equal(device(B)->status, DXPU_CPL_UR);
}

static bool has_been_asked(void)
{
    return dxpu_channel_peek(&hosts[B].ch, DXPU_NONPOSTED).tlp.len != 0;
}

/* Nor does an atomic, which informs others as a write does. */
static void test_b14_atomics_wait(void **state)
{
    dxpu_tlp t;
    (void)state;
    link_other();
    other.deaf = true;
    write_far();
    t = request(B, A, DXPU_TLP_FETCHADD, 1);
    t.address = 0x1000;
    emit(device(B), &t);
    assert_int_equal(at_host(B, DXPU_NONPOSTED), 0);
    other.deaf = false;
    run_until(has_been_asked);
    assert_int_equal(at_host(B, DXPU_NONPOSTED), 1);
}

static bool other_is_open(void)
{
    dxpu_delivery d;
    if (!other.open)
        return false;
    d = dxpu_channel_peek(&other.ch, DXPU_POSTED);
    return d.tlp.len != 0;
}

/* The box of the lower slot dials, says who it is, again after an end, and not when the place is
   gone. */
static void test_b10_the_lower_slot_dials(void **state)
{
    dxpu_p2p_list l = far_list(FAR, LAST);
    dxpu_p2p_hello h;
    dxpu_tlp t;
    (void)state;
    other.open = false;
    other.cfg.hold_ms = HOLD_MS;
    send_list(B, &l);
    for (unsigned i = 0; i < 2; i++) {
        run_until(other_is_open);
        assert_int_equal(other.cfg.epoch, 77);
        assert_int_equal(other.cfg.local.slot, THERE);
        assert_int_equal(other.cfg.remote.slot, B + 1);
        assert_int_equal(other.cfg.remote.function, 0);
        assert_int_equal(dxpu_tlp_receive(dxpu_channel_peek(&other.ch, DXPU_POSTED).tlp, &t),
                         DXPU_OK);
        assert_int_equal(dxpu_p2p_hello_decode(&t, &h), 1);
        assert_int_equal(h.from, FAR);
        assert_int_equal(h.to, LAST);
        assert_int_equal(dxpu_channel_take(&other.ch, DXPU_POSTED, dxpu_udp_now_ns()), DXPU_OK);
        run_until(is_linked);
        write_far();
        assert_int_equal(at_other(DXPU_POSTED), 1);
        if (i == 0) {
            dxpu_channel_reset(&other.ch, DXPU_REASON_SHUTDOWN);
            run_until(link_is_over);
            other.open = false;
        }
    }
    l.places = l.count = 0;
    send_list(B, &l);
    run_until(is_over);
    other.open = false;
    run_until(a_while);
    assert_false(other.open);
    assert_int_equal(at_host(B, DXPU_POSTED), 0);
}

/* B-16: what a manager takes away goes through the host, in both directions, and comes back; what
   is on its way arrives. */
static void test_b16_a_slot_without_direct_requests(void **state)
{
    (void)state;
    both_list();
    for (unsigned at = A; at <= B; at++) {
        unsigned had = device(B)->got[DXPU_POSTED];
        device(B)->busy = true;
        ask(A, B, DXPU_TLP_MWR, 0);
        run_until(a_while);
        p2p_direct(&b.slots[at], false); /* the sender's, or the receiver's */
        ask(A, B, DXPU_TLP_MWR, 1);
        ask(A, B, DXPU_TLP_MRD, (uint16_t)(8 + at));
        assert_int_equal(at_host(A, DXPU_POSTED), 1);
        assert_int_equal(at_host(A, DXPU_NONPOSTED), 1);
        device(B)->busy = false;
        run_until(a_while);
        assert_int_equal(device(B)->got[DXPU_POSTED], had + 1);
        list(A, 7); /* a host's list changes nothing */
        ask(A, B, DXPU_TLP_MWR, 3);
        assert_int_equal(at_host(A, DXPU_POSTED), 1);
        p2p_direct(&b.slots[at], true);
        ask(A, B, DXPU_TLP_MWR, 4);
        assert_int_equal(at_host(A, DXPU_POSTED), 0);
        assert_int_equal(device(B)->got[DXPU_POSTED], had + 2);
    }
}

/* B-16: a channel between boxes ends, none is accepted or dialed; with writes on their way the host
   sees it. */
static void test_b16_a_channel_between_boxes(void **state)
{
    dxpu_p2p_list l = far_list(FAR, LAST);
    (void)state;
    link_other();
    p2p_direct(&b.slots[B], false);
    run_until(is_over);
    assert_int_equal(dxpu_channel_status(&other.ch).reason, DXPU_REASON_HOLD);
    assert_true(b.slots[B].active != NULL);
    write_far();
    assert_int_equal(at_host(B, DXPU_POSTED), 1);
    open_other(THERE, hosts[B].cfg.epoch);
    assert_true(is_over());
    other.open = false;
    send_list(B, &l); /* to dial */
    run_until(a_while);
    assert_false(other.open);
    p2p_direct(&b.slots[B], true);
    link_other(); /* the control */
    assert_int_equal(dxpu_channel_status(&other.ch).state, DXPU_STATE_UP);
    other.deaf = true;
    write_far();
    run_until(a_while);
    p2p_direct(&b.slots[B], false);
    run_until(host_is_over);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_b5_requests_and_answers_stay_inside),
        CASE(test_b5_control_all_else_is_the_hosts),
        CASE(test_b5_payloads),
        CASE(test_b4_slots_of_different_guests_never_talk),
        CASE(test_b3_what_is_not_a_list),
        CASE(test_b3_a_malformed_list_lists_nothing),
        CASE(test_b6_what_waits_is_looked_at_again),
        CASE(test_b6_a_revoked_window_ends_it),
        CASE(test_b7_the_neighbors_writes_come_first),
        CASE(test_b7_nothing_passes_a_write),
        CASE(test_b7_a_stream_of_a_neighbor),
        CASE(test_b8_the_other_slot_ends),
        CASE(test_b8_the_other_slot_is_reset),
        CASE(test_b8_the_requester_is_reset),
        CASE(test_b8_a_silent_device),
        CASE(test_b8_late_only_in_its_lease),
        CASE(test_b8_a_device_that_takes_nothing),
        CASE(test_b10_the_lower_slot_dials),
        CASE(test_b10_only_where_the_operator_allows_it),
        CASE(test_b11_authorized_openers),
        CASE(test_b12_hello_comes_first),
        CASE(test_b13_both_ways),
        CASE(test_b13_what_no_neighbor_sends),
        CASE(test_b14_writes_elsewhere_wait),
        CASE(test_b14_answers_wait),
        CASE(test_b14_a_stream_of_writes),
        CASE(test_b8_a_neighbor_that_takes_nothing),
        CASE(test_b10_channels_are_bounded),
        CASE(test_b10_channels_opened_at_once),
        CASE(test_b10_a_dial_keeps_its_place),
        CASE(test_b15_lost_writes),
        CASE(test_b15_lost_by_a_reset),
        CASE(test_b15_lost_by_another_open),
        CASE(test_b8_work_for_another_slot_is_announced),
        CASE(test_b8_room_for_a_link_is_announced),
        CASE(test_b13_what_is_acknowledged_arrives),
        CASE(test_b13_a_replaced_channel),
        CASE(test_b11_channels_one_after_the_other),
        CASE(test_b15_lost_acknowledged_writes),
        CASE(test_b15_a_reset_before_its_turn),
        CASE(test_b13_only_what_is_listed),
        CASE(test_b13_a_list_that_is_later),
        CASE(test_b15_lost_before_its_list),
        CASE(test_b6_of_another_box),
        CASE(test_b10_dials_are_few),
        CASE(test_b7_classes),
        CASE(test_b8_answers_that_are_not_taken),
        CASE(test_b8_an_answer_of_before_a_reset),
        CASE(test_b14_an_answer_behind_a_lost_write),
        CASE(test_b5_payloads_of_another_box),
        CASE(test_b14_atomics_wait),
        CASE(test_b16_a_slot_without_direct_requests),
        CASE(test_b16_a_channel_between_boxes),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
