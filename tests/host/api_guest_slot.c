/* api_guest_slot.c - a slot of the guest's switch, with a box that keeps silent, resets, and reads
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

#include "dxpu_push.h"
#include "grants.h"
#include "msi.h"
#include "probe.h"
#include "queue.h"
#include "retry.h"
#include "slot.h"
#include "peer.h"
#include "slot_line.h"

enum { READS = 3, MAPPED = 0x1000, UNMAPPED = 0x2000 };

static fabric net;
static guest_slot the_slot;
static direct_line the_box;
static peer far;
static unsigned silent, answered, requests, good, unsupported, interrupts, shown;
static uint32_t last_data, last_value;
static bool visible, master, no_way, in_use[READS];
static unsigned interrupts_waited, memory_windows; /* how many parts the guest's memory has */

/* ==== The guest =============================================================================== */

static bool dma_read(void *user, uint64_t address, void *data, size_t bytes)
{
    (void)user;
    memset(data, 0x5a, bytes);
    return address < UNMAPPED;
}

static bool dma_write(void *user, uint64_t address, const void *data, size_t bytes)
{
    (void)user;
    (void)data;
    (void)bytes;
    return address < UNMAPPED;
}

static bool msi(void *user, uint64_t address, uint32_t data)
{
    (void)user;
    (void)address;
    if (no_way) {
        interrupts_waited++;
        return false;
    }
    interrupts++;
    last_data = data;
    return true;
}

static int route(void *user, unsigned number, const dxpu_tlp *t)
{
    (void)user;
    (void)number;
    (void)t;
    return master ? 0 : -DXPU_CPL_UR;
}

static guest_slot *other_slot(void *user, unsigned number)
{
    (void)user;
    (void)number;
    return NULL;
}

static void reach(void *user, unsigned number, windows *out)
{
    (void)user;
    (void)number;
    for (uint64_t i = 0; i < memory_windows; i++)
        assert_true(windows_grant(out, i << 20, (i << 20) + 0xfff, WINDOW_READ | WINDOW_WRITE));
}

static bool message(void *user, unsigned number, const dxpu_tlp *t)
{
    (void)user;
    assert_int_equal(number, 1);
    return t->message_code == 0x31; /* ERR_NONFATAL */
}

static bool not_ready(void *user, unsigned number, const dxpu_tlp *req, dxpu_tlp *cpl,
                      uint8_t data[4])
{
    (void)user;
    (void)number;
    if (!visible || req->register_bytes || req->type != DXPU_TLP_CFGRD0)
        return false;
    dxpu_tlp_completion(req, 0, DXPU_CPL_SC, cpl);
    memset(data, 0, 4);
    data[0] = 1;
    cpl->payload.ptr = data;
    cpl->payload.len = 4;
    return true;
}

static uint32_t port_mps_bytes = 128;

static uint32_t mps_bytes(void *user, unsigned number)
{
    (void)user;
    (void)number;
    return port_mps_bytes;
}

static void on_completion(void *user, const dxpu_tlp *cpl, uint64_t request, bool last)
{
    (void)user;
    assert_true(last && request < READS && in_use[request]); /* each once */
    in_use[request] = false;
    silent += !cpl;
    answered += cpl != NULL;
    if (cpl && cpl->payload.len == 4)
        last_value = dxpu_get_le32(cpl->payload.ptr);
}

static void filled(void *user, unsigned number, bool there)
{
    (void)user;
    (void)number;
    shown += there;
}

static unsigned losses, values_at_loss;
static dxpu_vswitch_values last_values;

static void lost(void *user, unsigned number, const dxpu_vswitch_values *values)
{
    (void)user;
    assert_int_equal(number, 1);
    assert_int_equal(silent, 0); /* what is in flight is answered by them */
    losses++;
    values_at_loss = values->count;
    last_values = *values;
}

static const slot_host the_host = { NULL,       dma_read,      dma_write, msi,     route,
                                    other_slot, reach,         NULL,      message, not_ready,
                                    mps_bytes,  on_completion, filled,    lost };

/* ==== The fabric ============================================================================== */

static void up(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    direct_up(&the_box, now);
}

static bool work(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    return the_box.channel == c && slot_work(&the_slot, now);
}

static void down(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    if (the_box.channel == c)
        direct_down(&the_box, now);
}

static uint64_t next_ns(void *user)
{
    (void)user;
    return direct_next_ns(&the_box);
}

static void tick(void *user, uint64_t now)
{
    (void)user;
    direct_tick(&the_box, now);
}

static void run_until(bool (*done)(void))
{
    peer_run(&net, done);
}

/* Up, and the sizes of the device's BARs are known. */
static bool is_up(void)
{
    return the_slot.up && !the_slot.probe.running;
}

/* A device that has no function 0 to size. */
static void refuse_probe(peer *p, uint64_t now)
{
    dxpu_tlp t, cpl;
    (void)now;
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
        (void)peer_submit(p, &cpl);
    }
}

static dxpu_tlp config_request(uint8_t type, uint16_t function, uint16_t at, const uint8_t *data)
{
    dxpu_tlp t = peer_request(type, 0);
    t.address = 0;
    t.target = function;
    t.register_bytes = at;
    t.payload.ptr = data;
    t.payload.len = data ? 4 : 0;
    return t;
}

/* As if the guest had set or cleared Bus Master Enable, and the device answered. */
static void let_master(uint16_t function, bool on)
{
    uint8_t command[4] = { on ? 0x04 : 0 };
    dxpu_tlp t = config_request(DXPU_TLP_CFGWR0, function, 4, command), cpl;
    msi_sent(&the_slot.msi, &t);
    dxpu_tlp_completion(&t, 0, DXPU_CPL_SC, &cpl);
    msi_answered(&the_slot.msi, &cpl);
}

static void attach_far(void)
{
    dxpu_udp_address here;
    here.len = sizeof here.u;
    assert_int_equal(getsockname(far.fd, &here.u.any, &here.len), 0);
    direct_attach(&the_box, &here, dxpu_udp_now_ns());
}

static bool push_is_offered;

static void start_with(uint64_t hold_ms, void (*step)(peer *p, uint64_t now))
{
    fabric_settings s = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { NULL, NULL, up, work, down, next_ns, tick, NULL, NULL };
    silent = answered = requests = good = unsupported = interrupts = shown = losses = 0;
    master = true;
    visible = no_way = false;
    interrupts_waited = memory_windows = 0;
    s.hold_ms = hold_ms;
    s.keys = keys_none();
    assert_int_equal(fabric_open(&net, &s, 4, &cb), 0);
    direct_open(&the_box, &the_slot, &net);
    assert_int_equal(slot_init(&the_slot, 1, &the_host, &the_box.line, hold_ms * 1000000u), 0);
    the_slot.push.offered = push_is_offered;
    peer_start(&far, dxpu_udp_base(net.udp));
    far.cfg.hold_ms = 60000;
    attach_far();
    far.step = step;
    run_until(is_up);
    far.step = NULL;
    let_master(0, true);
}

static void start(uint64_t hold_ms)
{
    start_with(hold_ms, refuse_probe);
}

static int teardown(void **state)
{
    (void)state;
    peer_stop(&far);
    slot_free(&the_slot);
    return fabric_close(&net);
}

static void send_reads(void)
{
    for (unsigned i = 0; i < READS; i++) {
        dxpu_tlp t = peer_request(DXPU_TLP_MRD, 0);
        in_use[i] = true;
        assert_true(slot_send(&the_slot, &t, i, dxpu_udp_now_ns()));
    }
}

static void count_requests(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t))
        requests++;
}

static bool all_silent(void)
{
    return silent == READS;
}

static bool all_heard(void)
{
    return silent + answered == READS;
}

static bool all_taken(void)
{
    return requests == READS;
}

/* ==== Tests =================================================================================== */

static void test_silent_device_is_timed_out(void **state)
{
    (void)state;
    start(1000); /* the time of a request is the hold time and a little */
    far.step = count_requests;
    send_reads();
    run_until(all_silent);
    assert_int_equal(requests, READS);
    assert_int_equal(the_slot.timeouts, READS);
    assert_int_equal(the_slot.contained, 0);
    assert_true(the_slot.up);
}

static void test_requests_in_flight_are_contained(void **state)
{
    (void)state;
    start(60000);
    far.step = count_requests;
    send_reads();
    run_until(all_taken);
    assert_int_equal(silent, 0);
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(all_silent);
    assert_int_equal(the_slot.contained, READS);
    assert_int_equal(the_slot.timeouts, 0);
    assert_false(the_slot.up);
}

/* ---- push rules ---- */

static unsigned declarations; /* messages of the box */

static bool all_declared(void)
{
    return the_slot.up_tlps >= declarations || peer_polls >= 2000;
}

enum { RING = 0x400, RING_ENTRY = 64, RING_ENTRIES = 8, RUNG_AT = 0x9008 };

static uint8_t arrived[8]; /* what the box got: 'o' an offer, 'd' data, 'w' a write */
static unsigned arrivals;
static dxpu_push_data last_push;
static uint8_t push_bytes[DXPU_PUSH_BYTES];

static void take_pushes(peer *p, uint64_t now)
{
    dxpu_push_offer offer;
    dxpu_push_data data;
    dxpu_event e;
    dxpu_tlp t;
    refuse_probe(p, now);
    while (p->open && dxpu_channel_peek_event(&p->ch, &e)) /* what waits behind it may go */
        assert_int_equal(dxpu_channel_take_event(&p->ch), DXPU_OK);
    while (p->open && arrivals < sizeof arrived) {
        dxpu_delivery d = dxpu_channel_peek(&p->ch, DXPU_POSTED);
        uint8_t what;
        if (!d.tlp.len)
            break;
        assert_int_equal(dxpu_tlp_receive(d.tlp, &t), DXPU_OK);
        what = t.type == DXPU_TLP_MWR ? 'w' : '?';
        if (dxpu_push_offer_decode(&t, &offer) == 1)
            what = 'o';
        if (dxpu_push_data_decode(&t, &data) == 1) {
            what = 'd';
            last_push = data;
            memcpy(push_bytes, last_push.data.ptr, last_push.data.len);
        }
        arrived[arrivals++] = what;
        assert_int_equal(dxpu_channel_take(&p->ch, DXPU_POSTED, now), DXPU_OK);
    }
}

static void start_pushing(bool offered)
{
    arrivals = 0;
    push_is_offered = offered;
    start_with(60000, take_pushes);
    push_is_offered = false;
    far.step = take_pushes;
    memory_windows = 1;
    slot_reach(&the_slot);
}

static void make_rule(unsigned number, uint64_t base, uint16_t bytes)
{
    uint8_t payload[DXPU_PUSH_RULE_BYTES];
    dxpu_push_rule r;
    dxpu_tlp t;
    memset(&r, 0, sizeof r);
    r.rule = (uint8_t)number;
    r.mode = DXPU_PUSH_SINCE;
    r.width = 4;
    r.generation = 7;
    r.doorbell = RUNG_AT;
    r.base = base;
    r.entries = RING_ENTRIES;
    r.stride = RING_ENTRY;
    r.bytes = bytes;
    dxpu_push_rule_message(&r, payload, &t);
    declarations = (unsigned)the_slot.up_tlps + 1;
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
    run_until(all_declared);
}

static bool has_rung(void)
{
    return arrivals && arrived[arrivals - 1] == 'w';
}

/* A write of the guest to the doorbell: what arrives at the box for it. */
static const char *ring_doorbell(uint32_t value)
{
    static char text[sizeof arrived + 1];
    uint8_t data[4];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.address = RUNG_AT;
    dxpu_put_le32(data, value);
    t.payload.ptr = data;
    t.payload.len = 4;
    arrivals = 0;
    assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    run_until(has_rung);
    memcpy(text, arrived, arrivals);
    text[arrivals] = '\0';
    return text;
}

static void test_u7_data_ahead_of_the_doorbell(void **state)
{
    (void)state;
    start_pushing(true);
    assert_true(arrivals >= 1 && arrived[0] == 'o'); /* U-2 */
    make_rule(0, RING, 256);
    assert_int_equal(the_slot.push.table.count, 1);
    assert_string_equal(ring_doorbell(1), "dw");
    assert_true(last_push.address == RING && last_push.generation == 7);
    assert_int_equal(last_push.data.len, RING_ENTRY);
    for (unsigned i = 0; i < RING_ENTRY; i++)
        assert_int_equal(push_bytes[i], 0x5a);
    assert_string_equal(ring_doorbell(1), "w"); /* nothing new */
    assert_string_equal(ring_doorbell(7), "dw");
    assert_string_equal(ring_doorbell(1), "ddw"); /* over the ring's end */
    assert_int_equal(the_slot.push.sent, 4);
    assert_int_equal(the_slot.push.bytes, (1 + 4 + 1 + 1) * RING_ENTRY);
    make_rule(0, RING, 0); /* withdrawn */
    assert_string_equal(ring_doorbell(2), "w");
    assert_int_equal(the_slot.push.rules_refused + the_slot.push.refused, 0);
}

static void test_u8_what_the_device_may_not_read(void **state)
{
    (void)state;
    start_pushing(true);
    make_rule(0, RING, 256);
    let_master(0, false);
    assert_string_equal(ring_doorbell(1), "w");
    let_master(0, true);
    assert_string_equal(ring_doorbell(2), "dw");
    master = false; /* the switch routes it nowhere */
    assert_string_equal(ring_doorbell(3), "w");
    master = true;
    assert_string_equal(ring_doorbell(4), "dw");
    memory_windows = 0; /* revoked */
    slot_reach(&the_slot);
    assert_string_equal(ring_doorbell(5), "w");
    memory_windows = 1;
    slot_reach(&the_slot);
    assert_string_equal(ring_doorbell(6), "dw");
    make_rule(0, 0x1000 - RING_ENTRY, 256); /* its second entry was never granted */
    assert_string_equal(ring_doorbell(1), "dw");
    assert_string_equal(ring_doorbell(2), "w");
    make_rule(0, UNMAPPED, 256);
    assert_string_equal(ring_doorbell(1), "w");
    assert_int_equal(the_slot.push.refused, 5);
    assert_int_equal(the_slot.refused, 0);
}

static void test_u10_a_reset_ends_rules(void **state)
{
    (void)state;
    start_pushing(true);
    make_rule(0, RING, 256);
    assert_string_equal(ring_doorbell(1), "dw");
    slot_event(&the_slot, DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON);
    slot_event(&the_slot, DXPU_EVENT_HOT_RESET, 0);
    let_master(0, true);
    far.step = take_pushes;
    assert_string_equal(ring_doorbell(2), "w");
    make_rule(0, RING, 256); /* the offer stands */
    assert_string_equal(ring_doorbell(1), "dw");
}

static void test_u2_u5_no_offer_no_rules(void **state)
{
    (void)state;
    start_pushing(false);
    assert_int_equal(arrivals, 0);
    make_rule(0, RING, 256); /* dropped, as every message that a host does not know */
    assert_string_equal(ring_doorbell(1), "w");
    assert_int_equal(the_slot.push.rules_refused + the_slot.refused, 0);
    teardown(NULL);
    start_pushing(true);
    make_rule(DXPU_PUSH_RULES, RING, 256); /* control: these are refused and counted */
    make_rule(0, RING, DXPU_PUSH_BYTES + 1);
    assert_int_equal(the_slot.push.rules_refused, 2);
    assert_string_equal(ring_doorbell(1), "w");
}

/* ---- values of what is gone ---- */

enum { PLACES = 8 };

/* One of `count` ranges of a byte each, from this offset on. */
static void declare(peer *p, unsigned kind, unsigned count, size_t bytes, uint16_t offset)
{
    uint8_t payload[4 + PLACES * 16];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    memset(payload, 0, sizeof payload);
    payload[0] = (uint8_t)kind;
    payload[1] = (uint8_t)count;
    for (unsigned i = 0; i < PLACES; i++) {
        payload[4 + 16 * i + 3] = 1;
        dxpu_put_be16(payload + 4 + 16 * i + 14, offset + i);
    }
    t.type = DXPU_TLP_MSGD;
    t.header_dw = 4;
    t.message_code = 0x7f;
    t.message_routing = DXPU_MSG_TO_ROOT;
    t.message_dw[0] = 0xffff;
    t.message_dw[1] = 0x64787075;
    t.payload.ptr = payload;
    t.payload.len = bytes;
    t.length_dw = (uint16_t)(bytes / 4);
    assert_int_equal(peer_submit(p, &t), DXPU_OK);
    declarations++;
}

/* A device with a BAR of 4 KB, two of whose ranges are within. */
static void declare_and_answer(peer *p, uint64_t now)
{
    uint8_t data[4] = { 0 };
    dxpu_tlp t, cpl;
    (void)now;
    if (p->open && !declarations)
        declare(p, 1, 3, 4 + 3 * 16, 0xffe);
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        dxpu_tlp_completion(&t, 0, DXPU_CPL_SC, &cpl);
        dxpu_put_le32(data, t.register_bytes == 0      ? 0x12345678
                            : t.register_bytes == 0x10 ? 0xfffff000
                                                       : 0);
        if (t.type == DXPU_TLP_CFGRD0) {
            cpl.payload.ptr = data;
            cpl.payload.len = 4;
        }
        (void)peer_submit(p, &cpl);
    }
}

static bool is_lost(void)
{
    return losses == 1 && !the_box.channel;
}

static void test_v49_the_last_declaration_counts(void **state)
{
    uint64_t before;
    (void)state;
    declarations = 0;
    start_with(60000, declare_and_answer);
    assert_int_equal(shown, 1);
    assert_int_equal(the_slot.values.count, 2);
    assert_int_equal(the_slot.values_refused, 1); /* V-50 */
    before = the_slot.up_tlps;
    declarations = (unsigned)before;
    declare(&far, 1, 7, 4 + 7 * 16, 0x100); /* another one while it is attached */
    run_until(all_declared);
    assert_int_equal(the_slot.values.count, 7);
    declare(&far, 1, 8, 4 + 8 * 16, 0);
    declare(&far, 1, 2, 4 + 16, 0);
    run_until(all_declared);
    assert_int_equal(the_slot.values.count, 7);
    assert_int_equal(the_slot.values_refused, 3);
    declare(&far, 2, 1, 4 + 16, 0); /* of a kind that is not known: R-25 */
    run_until(all_declared);
    assert_int_equal(the_slot.values.count, 7);
    assert_int_equal(the_slot.values_refused, 3);
    assert_int_equal(the_slot.refused, 0);
    declare(&far, 1, 0, 4, 0);
    run_until(all_declared);
    assert_int_equal(the_slot.values.count, 0);
    declare(&far, 1, 1, 4 + 16, 0x14);
    run_until(all_declared);
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(is_lost);
    assert_int_equal(values_at_loss, 1);
    assert_int_equal(last_values.value[0].offset, 0x14);
}

/* Each incarnation begins without one. */
static void test_v49_declaration_ends_with_its_incarnation(void **state)
{
    (void)state;
    declarations = 0;
    start_with(60000, declare_and_answer);
    send_reads();
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(is_lost);
    assert_int_equal(values_at_loss, 2);
    assert_int_equal(silent, READS);
    far.open = false;
    far.step = declare_and_answer; /* which declares once */
    run_until(is_up);
    assert_int_equal(the_slot.incarnations, 2);
    assert_int_equal(the_slot.values.count, 0);
}

/* Direct attach looks at a device again after a reset, and marks it as one that does not answer. */
static void test_v51_device_that_fails_after_it_was_shown(void **state)
{
    (void)state;
    declarations = 0;
    start_with(60000, declare_and_answer);
    assert_int_equal(shown, 1);
    the_slot.probe.failed = true;
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(is_lost);
    assert_int_equal(values_at_loss, 2);
}

/* Before the guest was shown the device it read nothing of it. */
static void test_v50_device_that_was_not_shown(void **state)
{
    (void)state;
    declarations = 0;
    start(60000);
    declare(&far, 1, 1, 4 + 16, 0x14);
    run_until(all_declared);
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(is_lost);
    assert_int_equal(values_at_loss, 0);
}

static void answer_and_end(peer *p, uint64_t now)
{
    uint8_t payload[4] = { 0 }, frame[2048], path;
    dxpu_tlp t, cpl;
    int n;
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        dxpu_tlp_completion(&t, 0, DXPU_CPL_SC, &cpl);
        cpl.payload.ptr = payload;
        cpl.payload.len = sizeof payload;
        (void)peer_submit(p, &cpl);
        requests++;
    }
    if (requests < READS)
        return;
    peer_noise(p);
    while ((n = dxpu_channel_emit(&p->ch, now, frame, sizeof frame, &path)) > 0)
        peer_send(p, p->fd, frame, (size_t)n);
    dxpu_channel_reset(&p->ch, DXPU_REASON_SHUTDOWN);
    p->step = NULL;
}

/* Their completions arrive with the end of the channel, and not before. */
static void test_d60_requests_with_untaken_completions_are_contained(void **state)
{
    (void)state;
    start(60000);
    far.step = answer_and_end;
    send_reads();
    run_until(all_silent);
    assert_int_equal(requests, READS);
    assert_int_equal(the_slot.contained, READS);
    assert_int_equal(the_slot.timeouts, 0);
}

static unsigned asked;

static bool all_asked_are_taken(void)
{
    return requests == asked || peer_polls >= 2000;
}

/* Configuration writes take tags, and none are awaited: the guest is held before these run
   out. */
static void test_no_request_is_lost_for_want_of_a_tag(void **state)
{
    static uint8_t data[4];
    (void)state;
    start(60000);
    far.step = count_requests;
    for (asked = 0; asked < SLOT_TAGS && !slot_congested(&the_slot); asked++) {
        dxpu_tlp t = peer_request(DXPU_TLP_CFGWR0, 0);
        t.address = 0;
        t.payload.ptr = data;
        t.payload.len = sizeof data;
        assert_true(slot_send(&the_slot, &t, READS, dxpu_udp_now_ns()));
    }
    assert_in_range(asked, 2, SLOT_TAGS / 2);
    run_until(all_asked_are_taken);
    assert_int_equal(requests, asked);
    assert_true(slot_congested(&the_slot));
    assert_int_equal(the_slot.dropped, 0);
}

static bool far_is_off(void)
{
    return peer_polls >= 50;
}

/* What is given to a full queue is refused and leaves no trace: tags and queue are as before. */
static void test_full_queue_refuses(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 0);
    unsigned writes = 0, reads = READS;
    (void)state;
    start(60000);
    far.deaf = true; /* nothing is acknowledged, so the queues fill */
    send_reads();
    run_until(far_is_off);
    do {
        t = peer_request(DXPU_TLP_MWR, 0);
    } while (slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()) && ++writes < 4 * SLOT_QUEUE);
    assert_in_range(writes, SLOT_QUEUE, 4 * SLOT_QUEUE - 1);
    assert_int_equal(queue_used(&the_slot.queue, DXPU_POSTED), SLOT_QUEUE);
    for (; reads < SLOT_TAGS / 2; reads++) {
        t = peer_request(DXPU_TLP_MRD, 0);
        assert_true(slot_send(&the_slot, &t, READS, dxpu_udp_now_ns()));
    }
    for (unsigned n = 0; n < 2 * SLOT_TAGS; n++) { /* no such request: it cannot be encoded */
        t = peer_request(DXPU_TLP_MRD, 0);
        t.length_dw = 0;
        assert_false(slot_send(&the_slot, &t, READS, dxpu_udp_now_ns()));
    }
    for (; reads < SLOT_TAGS; reads++)
        assert_true(dxpu_tags_alloc(&the_slot.tags) >= 0);
    assert_int_equal(dxpu_tags_alloc(&the_slot.tags), DXPU_E_NO_TAG); /* the control */
    t = peer_request(DXPU_TLP_MRD, 0);
    assert_false(slot_send(&the_slot, &t, READS, dxpu_udp_now_ns()));
}

static void take_all(peer *p, uint64_t now)
{
    dxpu_tlp t;
    while (peer_take(p, DXPU_POSTED, &t))
        ;
    refuse_probe(p, now);
}

/* What the channel refuses for good is answered, and its tag can be given out again. */
static void test_refused_request_frees_its_tag(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    (void)state;
    start(60000);
    far.deaf = true;
    while (queue_used(&the_slot.queue, DXPU_POSTED) == 0) {
        t = peer_request(DXPU_TLP_MWR, 0);
        assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    }
    send_reads(); /* they wait behind the write */
    assert_int_equal(queue_used(&the_slot.queue, DXPU_NONPOSTED), READS);
    the_slot.queue.cls[DXPU_NONPOSTED].items[the_slot.queue.cls[DXPU_NONPOSTED].head].len += 4;
    far.deaf = false;
    far.step = take_all;
    run_until(all_heard);
    assert_int_equal(silent, 1);
    assert_int_equal(the_slot.dropped, 1);
    for (unsigned i = 0; i < SLOT_TAGS; i++)
        assert_true(dxpu_tags_alloc(&the_slot.tags) >= 0);
}

/* The guest writes on whenever it may. */
static void congest(void)
{
    while (the_slot.up && !slot_congested(&the_slot)) {
        dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
        assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    }
}

static bool is_over_or_late(void)
{
    congest();
    return !the_slot.up || peer_polls >= 2000;
}

/* A box that acknowledges and takes no writes holds the guest up for the hold time at most. */
static void test_v17_guest_is_not_held_up_beyond_hold(void **state)
{
    (void)state;
    start(300);
    congest();
    send_reads(); /* they wait behind the writes */
    run_until(is_over_or_late);
    assert_false(the_slot.up);
    assert_false(slot_congested(&the_slot));
    assert_int_equal(silent, READS);
    assert_int_equal(the_box.last_error, DXPU_E_RESET);
}

static void take_some(peer *p, uint64_t now)
{
    static uint64_t next_ns;
    dxpu_tlp t;
    if (now >= next_ns && p->open) {
        for (unsigned n = 0; n < 32 && peer_take(p, DXPU_POSTED, &t);)
            n++;
        next_ns = now + 20000000;
    }
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        dxpu_tlp cpl;
        dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
        (void)peer_submit(p, &cpl);
    }
}

static bool all_heard_or_late(void)
{
    congest();
    return all_heard() || peer_polls >= 2000;
}

/* The control: one that is slow is only slow. */
static void test_slow_box_is_not_given_up(void **state)
{
    (void)state;
    start(1000);
    congest();
    far.step = take_some;
    send_reads();
    run_until(all_heard_or_late);
    assert_int_equal(answered, READS);
    assert_true(the_slot.up);
}

static unsigned writes_taken, taken_at_event, events_taken;

static void count_writes(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (p->open && peer_take(p, DXPU_POSTED, &t))
        writes_taken++;
}

static bool is_empty(void)
{
    return !the_box.channel;
}

/* What the guest wrote before is delivered, also what waited for room in the channel. */
static void test_detach_follows_what_was_sent(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    unsigned sent = 0;
    (void)state;
    start(60000);
    writes_taken = 0;
    for (; queue_used(&the_slot.queue, DXPU_POSTED) < READS; sent++) {
        t = peer_request(DXPU_TLP_MWR, 0);
        assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    }
    direct_detach(&the_box);
    t = peer_request(DXPU_TLP_MWR, 0);
    assert_false(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    far.step = count_writes;
    run_until(is_empty);
    assert_int_equal(writes_taken, sent);
    assert_int_equal(the_box.last_error, DXPU_E_CLOSED);
}

static bool is_empty_or_late(void)
{
    return !the_box.channel || peer_polls >= 2000;
}

/* What a box does not take cannot be delivered first: the slot is free after the hold time. */
static void test_detach_does_not_wait_beyond_hold(void **state)
{
    (void)state;
    start(300);
    for (unsigned i = 0; i < 100; i++) { /* 64 may be sent: the others wait for credit */
        dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
        assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    }
    run_until(far_is_off);
    assert_int_equal(queue_used(&the_slot.queue, DXPU_POSTED), 0);
    direct_detach(&the_box);
    assert_non_null(the_box.channel);
    run_until(is_empty_or_late);
    assert_null(the_box.channel);
    assert_int_equal(the_box.last_reason, DXPU_REASON_DETACH);
}

static void take_in_order(peer *p, uint64_t now)
{
    dxpu_event e;
    dxpu_tlp t;
    (void)now;
    while (p->open && peer_take(p, DXPU_POSTED, &t))
        writes_taken++;
    if (p->open && dxpu_channel_peek_event(&p->ch, &e)) {
        assert_int_equal(dxpu_channel_take_event(&p->ch), DXPU_OK);
        taken_at_event = writes_taken;
        events_taken++;
    }
}

static bool all_writes_are_taken(void)
{
    return writes_taken == the_slot.down_tlps - the_slot.up_tlps && /* less the probe */
           queue_used(&the_slot.queue, DXPU_POSTED) == 0 && events_taken;
}

/* A link event stays behind writes that wait for room, and before what comes later. */
static void test_d35_event_waits_behind_writes(void **state)
{
    dxpu_tlp t;
    unsigned before = 0;
    (void)state;
    start(60000);
    writes_taken = taken_at_event = events_taken = 0;
    far.deaf = true;
    while (queue_used(&the_slot.queue, DXPU_POSTED) < READS) {
        t = peer_request(DXPU_TLP_MWR, 0);
        assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
        before++;
    }
    slot_event(&the_slot, DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON);
    for (unsigned i = 0; i < READS; i++) {
        t = peer_request(DXPU_TLP_MWR, 0);
        assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
    }
    far.deaf = false;
    far.step = take_in_order;
    run_until(all_writes_are_taken);
    assert_int_equal(events_taken, 1);
    assert_int_equal(taken_at_event, before);
    assert_int_equal(writes_taken, before + READS);
}

static bool is_down(void)
{
    return !the_slot.up;
}

/* Events cannot be left out: a box that accepts none begins again. */
static void test_events_without_room_end_the_channel(void **state)
{
    unsigned n = 0;
    (void)state;
    start(60000);
    far.deaf = true;
    while (dxpu_channel_status(&the_box.channel->ch).state == DXPU_STATE_UP && n++ < 100)
        slot_event(&the_slot, DXPU_EVENT_SLOT_POWER, (uint8_t)(n % 2 ? DXPU_EVENT_ON : 0));
    assert_in_range(n, QUEUE_EVENTS + 1, 99);
    run_until(is_down);
    assert_null(queue_peek_event(&the_slot.queue));
}

static void read_guest(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (peer_take(p, DXPU_COMPLETION, &t)) {
        good += t.status == DXPU_CPL_SC;
        unsupported += t.status == DXPU_CPL_UR;
    }
}

static bool all_answered(void)
{
    return good + unsupported == 5;
}

static void ask(uint8_t type, uint16_t tag, uint32_t address)
{
    dxpu_tlp t = peer_request(type, tag);
    t.address = address;
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
}

static bool one_more(void)
{
    return good + unsupported == 6;
}

static void test_requests_of_the_device_are_answered(void **state)
{
    static const uint8_t malformed[12] = { 0, 0, 0, 1, 0, 0, 7, 0x1f, 0, 0, 16, 0 };
    /* LN, EP, a reserved address bit: a read all the same (T-43) */
    static const uint8_t reserved[12] = { 0, 2, 0x40, 1, 0, 0, 8, 15, 0, 0, 16, 1 };
    dxpu_bytes raw = { malformed, sizeof malformed }, odd = { reserved, sizeof reserved };
    (void)state;
    start(60000);
    far.step = read_guest;
    ask(DXPU_TLP_MRD, 1, MAPPED);
    ask(DXPU_TLP_MRD, 2, UNMAPPED);
    ask(DXPU_TLP_IORD, 3, MAPPED);
    assert_int_equal(dxpu_channel_submit(&far.ch, raw, dxpu_udp_now_ns(), 0), DXPU_OK);
    assert_int_equal(dxpu_channel_submit(&far.ch, odd, dxpu_udp_now_ns(), 0), DXPU_OK);
    run_until(all_answered);
    assert_int_equal(good, 2);
    assert_int_equal(unsupported, 3);
    assert_int_equal(the_slot.refused, 3);
    master = false;
    ask(DXPU_TLP_MRD, 4, MAPPED);
    run_until(one_more);
    assert_int_equal(unsupported, 4);
}

/* A line that takes `line_room` completions, then no more, and has `line_reads` reads of 4 KB. */
static unsigned line_room, line_reads;
static uint8_t line_read[16];

static int narrow_submit(void *user, dxpu_bytes tlp, uint64_t now, uint64_t request)
{
    (void)user;
    (void)tlp;
    (void)now;
    (void)request;
    return line_room && line_room-- ? DXPU_OK : DXPU_E_AGAIN;
}

static dxpu_delivery narrow_peek(void *user, unsigned cls)
{
    dxpu_delivery d;
    (void)user;
    memset(&d, 0, sizeof d);
    if (cls == DXPU_NONPOSTED && line_reads)
        d.tlp = (dxpu_bytes){ line_read, 12 };
    return d;
}

static void narrow_take(void *user, unsigned cls, uint64_t now)
{
    (void)user;
    (void)now;
    line_reads -= cls == DXPU_NONPOSTED;
}

/* The device reads 4 KB a few times, and there is room for the given number of completions. */
static void read_narrowly(unsigned reads, unsigned room)
{
    dxpu_tlp t;
    size_t len;
    start(60000);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.header_dw = 3;
    t.address = MAPPED;
    t.length_dw = 1024;
    t.first_be = t.last_be = 15;
    assert_int_equal(dxpu_tlp_encode(&t, line_read, sizeof line_read, &len), DXPU_OK);
    the_box.line.submit = narrow_submit;
    the_box.line.peek = narrow_peek;
    the_box.line.take = narrow_take;
    line_room = room;
    line_reads = reads;
    while (slot_work(&the_slot, dxpu_udp_now_ns()))
        ;
}

/* A TLP costs both proxies more than its bytes do. */
static void test_completions_are_as_large_as_the_port_allows(void **state)
{
    static const uint32_t sizes[] = { 128, 512, 4096 };
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        if (i)
            (void)teardown(NULL);
        port_mps_bytes = sizes[i];
        read_narrowly(1, 100);
        port_mps_bytes = 128;
        assert_int_equal(line_reads, 0);
        assert_int_equal(100 - line_room, 4096 / sizes[i]);
    }
}

static unsigned resets, reset_reason;

static void count_reset(void *user, uint8_t reason)
{
    (void)user;
    resets++;
    reset_reason = reason;
}

/* A device would wait for ever for a completion that is lost here. */
static void test_without_memory_for_a_completion_the_channel_ends(void **state)
{
    (void)state;
    resets = 0;
    read_narrowly(1, 0);
    the_box.line.reset = count_reset;
    assert_int_equal(queue_used(&the_slot.queue, DXPU_COMPLETION), 4096 / 128);
    assert_int_equal(resets, 0);
    the_slot.queue.cls[DXPU_COMPLETION].capacity = 4096 / 128; /* as if there were no more memory */
    for (unsigned n = 1; n <= 2; n++) {
        line_reads = 1;
        (void)slot_work(&the_slot, dxpu_udp_now_ns());
        assert_int_equal(the_slot.dropped, n * 4096 / 128);
        assert_int_equal(resets, 1); /* until it is down */
        assert_int_equal(reset_reason, DXPU_REASON_BUSY);
    }
}

/* Reads that waited for room are answered when the line has some: it says so once. */
static void test_reads_continue_when_completions_leave(void **state)
{
    (void)state;
    read_narrowly(20, 0);
    assert_in_range(line_reads, 1, 19); /* control: some wait */
    line_room = SLOT_OWED + 20 * 32;
    while (slot_work(&the_slot, dxpu_udp_now_ns()))
        ;
    assert_int_equal(line_reads, 0);
    assert_int_equal(line_room, SLOT_OWED); /* all completions have left */
}

static bool all_came(void)
{
    return the_slot.messages + the_slot.refused == 2;
}

static void test_v12_r25_messages_of_the_device_go_to_the_root(void **state)
{
    dxpu_tlp t;
    (void)state;
    start(60000);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.message_code = 0x31;
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
    t.message_code = 0x7f; /* of a vendor, Type 1: dropped without a word */
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
    t.message_code = 0x7e; /* Type 0: Unsupported Request */
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
    run_until(all_came);
    assert_int_equal(the_slot.messages, 1);
    assert_int_equal(the_slot.refused, 1);
}

/* ==== Interrupts ============================================================================== */

/* Configuration space of a device with one capability: MSI, 64-bit. */
static const uint8_t config_space[256] = { [0x34] = 0x50, [0x50] = 0x05, [0x52] = 0x80 };
enum { MSI_FUNCTION = DXPU_BDF(1, 0, 0) };
static windows told; /* what the box knows */

static void config_device(peer *p, uint64_t now)
{
    dxpu_tlp t, cpl;
    dxpu_event e;
    (void)now;
    while (p->open && dxpu_channel_peek_event(&p->ch, &e)) {
        assert_int_equal(dxpu_channel_take_event(&p->ch), DXPU_OK);
        assert_true(e.type != DXPU_EVENT_DMA_GRANT || windows_event(&told, &e));
        assert_true(e.type != DXPU_EVENT_DMA_REVOKE || windows_event(&told, &e));
        events_taken++;
    }
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        bool read = t.type == DXPU_TLP_CFGRD0;
        dxpu_tlp_completion(&t, MSI_FUNCTION, DXPU_CPL_SC, &cpl);
        cpl.payload.ptr = read ? config_space + t.register_bytes % 256u : NULL;
        cpl.payload.len = read ? 4 : 0;
        (void)peer_submit(p, &cpl);
    }
}

static void config(uint8_t type, uint16_t at, uint32_t value)
{
    uint8_t data[4];
    dxpu_tlp t;
    dxpu_put_le32(data, value);
    t = config_request(type, MSI_FUNCTION, at, type == DXPU_TLP_CFGWR0 ? data : NULL);
    in_use[0] = true;
    answered = 0;
    assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
}

static bool one_answered(void)
{
    return answered == 1;
}

static void configure(uint8_t type, uint16_t at, uint32_t value)
{
    config(type, at, value);
    run_until(one_answered);
}

static void interrupt(uint16_t requester, uint32_t address, uint8_t data)
{
    uint8_t payload[4] = { data };
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    t.requester = requester;
    t.address = address;
    t.payload.ptr = payload;
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
}

static bool five_came(void)
{
    return interrupts + the_slot.msis_refused == 5;
}

static void test_v15_only_programmed_interrupts_are_delivered(void **state)
{
    (void)state;
    start(60000);
    far.step = config_device;
    configure(DXPU_TLP_CFGRD0, 0x34, 0);
    configure(DXPU_TLP_CFGRD0, 0x50, 0);
    configure(DXPU_TLP_CFGWR0, 0x54, 0xfee01000);
    configure(DXPU_TLP_CFGWR0, 0x5c, 0x31);
    interrupt(MSI_FUNCTION, 0xfee01000, 0x31); /* not enabled yet */
    run_until(far_is_off);
    configure(DXPU_TLP_CFGWR0, 0x04, 0x04);
    configure(DXPU_TLP_CFGWR0, 0x50, 0x00810000);
    interrupt(MSI_FUNCTION, 0xfee02000, 0x31);
    interrupt(MSI_FUNCTION, 0xfee01000, 0x30);
    interrupt(0, 0xfee01000, 0x31);
    interrupt(MSI_FUNCTION, 0xfee01000, 0x31);
    run_until(five_came);
    assert_int_equal(the_slot.msis_refused, 4);
    assert_int_equal(interrupts, 1);
    assert_int_equal(last_data, 0x31);
    assert_int_equal(the_slot.dma_writes, 0);
}

static bool interrupt_waits(void)
{
    return interrupts_waited > 0;
}

static bool write_is_done(void)
{
    return the_slot.dma_writes == 1;
}

/* One for which there is no room to the guest is not lost; what is behind it stays behind it. */
static void test_interrupts_wait_for_room(void **state)
{
    dxpu_tlp t;
    (void)state;
    start(60000);
    far.step = config_device;
    configure(DXPU_TLP_CFGRD0, 0x34, 0);
    configure(DXPU_TLP_CFGRD0, 0x50, 0);
    configure(DXPU_TLP_CFGWR0, 0x54, 0xfee01000);
    configure(DXPU_TLP_CFGWR0, 0x5c, 0x31);
    configure(DXPU_TLP_CFGWR0, 0x50, 0x00810000);
    configure(DXPU_TLP_CFGWR0, 0x04, 0x04);
    no_way = true;
    interrupt(MSI_FUNCTION, 0xfee01000, 0x31);
    t = peer_request(DXPU_TLP_MWR, 0);
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
    run_until(interrupt_waits);
    run_until(far_is_off);
    assert_int_equal(interrupts, 0);
    assert_int_equal(the_slot.dma_writes, 0);
    no_way = false;
    run_until(write_is_done);
    assert_int_equal(interrupts, 1);
    assert_int_equal(the_slot.msis, 1);
}

/* ==== What the box learns that the device may reach ========================================= */

static unsigned windows_at_write;

/* What was sent when the write came. */
static void take_write_and_events(peer *p, uint64_t now)
{
    dxpu_tlp t;
    config_device(p, now);
    if (p->open && peer_take(p, DXPU_POSTED, &t)) {
        windows_at_write = told.count;
        writes_taken++;
    }
}

static bool a_write_was_taken(void)
{
    return writes_taken == 1;
}

static void write_once(void)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    assert_true(slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()));
}

static void begin_windows(void)
{
    start(60000);
    windows_clear(&told);
    writes_taken = events_taken = windows_at_write = 0;
    far.step = take_write_and_events;
}

/* However many they are: more than fit into the queues of events at a time. */
static void test_s103_windows_are_sent_ahead_of_what_uses_them(void **state)
{
    (void)state;
    begin_windows();
    write_once(); /* the control */
    run_until(a_write_was_taken);
    assert_int_equal(windows_at_write, 0);
    writes_taken = 0;
    memory_windows = 5000;
    slot_reach(&the_slot);
    write_once();
    memory_windows = 5001; /* while the others are on their way */
    slot_reach(&the_slot);
    run_until(a_write_was_taken);
    assert_int_equal(windows_at_write, 5001);
    assert_true(windows_allow(&told, (uint64_t)5000 << 20, 0x1000, WINDOW_READ | WINDOW_WRITE));
    writes_taken = 0;
    memory_windows = 1;
    slot_reach(&the_slot);
    write_once();
    run_until(a_write_was_taken);
    assert_int_equal(windows_at_write, 1);
    assert_int_equal(the_slot.dropped, 0);
    windows_free(&told);
}

static bool back_to_one(void)
{
    return told.count == 1 && told.at[0].first == 0xfee02000u;
}

/* Granted before the device has it; what it replaced goes only when none can be on its way. */
static void test_s103_interrupts_are_granted_as_programmed(void **state)
{
    (void)state;
    begin_windows();
    configure(DXPU_TLP_CFGRD0, 0x34, 0);
    configure(DXPU_TLP_CFGRD0, 0x50, 0);
    assert_int_equal(told.count, 0);
    configure(DXPU_TLP_CFGWR0, 0x54, 0xfee01000);
    assert_int_equal(windows_at(&told, 0xfee01000u), WINDOW_WRITE);
    assert_false(windows_allow(&told, 0xfee01000u, 5, WINDOW_WRITE));
    configure(DXPU_TLP_CFGWR0, 0x50, 0x00810000);
    far.step = NULL;
    config(DXPU_TLP_CFGWR0, 0x54, 0xfee02000);
    run_until(far_is_off);
    assert_int_equal(the_slot.grants.told.count, 2);
    far.step = config_device;
    run_until(one_answered);
    run_until(back_to_one);
    slot_event(&the_slot, DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON); /* nothing is programmed now */
    run_until(far_is_off);
    assert_int_equal(told.count, 0);
    configure(DXPU_TLP_CFGWR0, 0x54, 0x00001000); /* no interrupt: it would be memory */
    run_until(far_is_off);
    assert_int_equal(told.count, 0);
    windows_free(&told);
}

static bool all_looked_at(void)
{
    return good + the_slot.refused + the_slot.dma_writes == asked;
}

/* A read and a write; how many of them got through. */
static unsigned try_both(uint16_t requester, uint8_t at, bool pasid)
{
    unsigned before = good + (unsigned)the_slot.dma_writes;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_tlp t = peer_request(i ? DXPU_TLP_MWR : DXPU_TLP_MRD, 7);
        t.requester = requester;
        t.address = MAPPED;
        t.at = at;
        t.prefix_count = pasid;
        t.prefix[0] = 0x91000001u;
        assert_int_equal(peer_submit(&far, &t), DXPU_OK);
    }
    asked += 2;
    run_until(all_looked_at);
    return good + (unsigned)the_slot.dma_writes - before;
}

/* A box that enforces nothing. */
static void test_s109_the_host_looks_itself(void **state)
{
    (void)state;
    start(60000);
    far.step = read_guest;
    asked = 0;
    assert_int_equal(try_both(0, 0, false), 2); /* the control */
    assert_int_equal(try_both(DXPU_BDF(0, 0, 1), 0, false), 0);
    assert_int_equal(the_slot.refused_why[SLOT_REFUSED_requester], 2);
    let_master(0, false);
    assert_int_equal(try_both(0, 0, false), 0);
    assert_int_equal(the_slot.refused_why[SLOT_REFUSED_master], 2);
    let_master(0, true);
    assert_int_equal(try_both(0, 2, false), 0);
    assert_int_equal(try_both(0, 0, true), 0);
    assert_int_equal(the_slot.refused_why[SLOT_REFUSED_translated], 4);
    assert_int_equal(the_slot.refused, 8);
    assert_true(the_slot.alarmed);
    assert_int_equal(try_both(0, 0, false), 2);
    direct_detach(&the_box);
    run_until(is_empty);
    attach_far();
    assert_false(the_slot.alarmed); /* the first of another lease is reported again */
}

/* ==== A device that is not ready ============================================================== */

enum { FOREVER = 1000000 };
static unsigned not_yet, order_at, crs_sent;
static uint16_t order[16]; /* registers of writes that succeeded */

static void slow_device(peer *p, uint64_t now)
{
    dxpu_tlp t, cpl;
    uint8_t data[4] = { 0x34, 0x12, 0x78, 0x56 };
    (void)now;
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        bool read = t.type == DXPU_TLP_CFGRD0, ready = not_yet == 0;
        not_yet -= !ready;
        crs_sent += !ready;
        dxpu_tlp_completion(&t, MSI_FUNCTION, ready ? DXPU_CPL_SC : DXPU_CPL_CRS, &cpl);
        cpl.payload.ptr = read && ready ? data : NULL;
        cpl.payload.len = read && ready ? 4 : 0;
        if (!read && ready && order_at < 16)
            order[order_at++] = t.register_bytes;
        (void)peer_submit(p, &cpl);
    }
}

static void slow_start(uint64_t hold_ms, unsigned answers_not_yet)
{
    start(hold_ms);
    far.step = slow_device;
    not_yet = answers_not_yet;
    order_at = crs_sent = last_value = 0;
}

static bool one_waits(void)
{
    return the_slot.retry.count == 1;
}

static bool three_answered(void)
{
    return answered == 3;
}

static bool is_shown(void)
{
    return shown == 1;
}

/* A device is shown once its BARs are known, and not before; one that does not give them never. */
static void test_device_is_shown_when_it_is_known(void **state)
{
    (void)state;
    start(60000);
    assert_false(the_slot.up && the_slot.probe.running);
    assert_int_equal(shown, 0); /* it answered nothing */
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(far_is_off);
    far.open = false;
    far.step = config_device;
    run_until(is_shown);
    assert_false(the_slot.probe.running);
    assert_false(the_slot.probe.failed);
}

static void test_v10_requests_are_made_again_in_order(void **state)
{
    dxpu_tlp t;
    (void)state;
    slow_start(60000, FOREVER);
    config(DXPU_TLP_CFGWR0, 0x10, 1);
    run_until(one_waits);
    for (uint16_t i = 1; i < READS; i++) {
        uint8_t data[4] = { 0 };
        t = peer_request(DXPU_TLP_CFGWR0, 0);
        t.address = 0;
        t.target = MSI_FUNCTION;
        t.register_bytes = (uint16_t)(0x10 + 4 * i);
        t.payload.ptr = data;
        t.payload.len = 4;
        in_use[i] = true;
        assert_true(slot_send(&the_slot, &t, i, dxpu_udp_now_ns()));
    }
    assert_int_equal(the_slot.retry.count, READS);
    not_yet = 0;
    run_until(three_answered);
    assert_int_equal(order_at, 3);
    for (uint16_t i = 0; i < READS; i++)
        assert_int_equal(order[i], 0x10 + 4 * i);
    assert_true(the_slot.retries >= READS);
    uint64_t before = the_slot.retries;
    configure(DXPU_TLP_CFGRD0, 0, 0); /* the control: a ready one is asked once */
    assert_true(the_slot.retries == before);
    assert_int_equal(last_value, 0x56781234);
}

static void test_v10_vendor_id_is_shown_as_not_ready(void **state)
{
    (void)state;
    slow_start(60000, FOREVER);
    visible = true;
    configure(DXPU_TLP_CFGRD0, 0, 0);
    assert_int_equal(last_value, 1);
    assert_int_equal(crs_sent, 1);
    assert_int_equal(the_slot.retry.count, 0);
    config(DXPU_TLP_CFGRD0, 4, 0); /* any other register is asked again */
    run_until(far_is_off);
    assert_int_equal(answered, 0);
    assert_int_equal(the_slot.retry.count, 1);
    not_yet = 0;
    run_until(one_answered);
}

static bool one_silent(void)
{
    return silent + answered == 1;
}

static bool is_asking_for_time(void)
{
    return the_slot.up && the_slot.probe_ns;
}

static void slow_device_with_events(peer *p, uint64_t now)
{
    dxpu_event e;
    slow_device(p, now);
    if (p->open && dxpu_channel_peek_event(&p->ch, &e))
        assert_int_equal(dxpu_channel_take_event(&p->ch), DXPU_OK);
}

/* What waits, or comes back, behind a reset is not made again: it was another machine's. */
static void test_v10_a_reset_ends_what_waits(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        slow_start(60000, FOREVER);
        if (late) /* the device asks for time when the reset has been sent */
            far.step = NULL;
        config(DXPU_TLP_CFGWR0, 0x10, 1);
        silent = 0;
        if (late)
            run_until(far_is_off);
        else
            run_until(one_waits);
        slot_event(&the_slot, DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON);
        slot_event(&the_slot, DXPU_EVENT_HOT_RESET, 0);
        far.step = slow_device_with_events;
        run_until(one_silent);
        not_yet = 0;
        configure(DXPU_TLP_CFGWR0, 0x14, 1);
        assert_int_equal(order_at, 1);
        assert_int_equal(order[0], 0x14);
        assert_int_equal(the_slot.retry.count, 0);
        if (!late)
            teardown(NULL);
    }
}

/* A device that asks for time when its slot is detached: nothing is due any more but the end. */
static void test_detach_ends_the_look_at_the_device(void **state)
{
    uint64_t now;
    (void)state;
    start(60000);
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(far_is_off);
    far.open = false;
    far.step = slow_device;
    not_yet = FOREVER;
    run_until(is_asking_for_time);
    direct_detach(&the_box);
    now = the_slot.probe_ns + 1;
    slot_tick(&the_slot, now);
    assert_true(slot_next_ns(&the_slot) > now);
    run_until(is_empty);
}

/* ... and what was asked of the device at that moment has come back. */
static bool one_silent_none_waits(void)
{
    return one_silent() && the_slot.retry.count == 0;
}

static void test_v10_time_is_up(void **state)
{
    (void)state;
    slow_start(300, FOREVER);
    config(DXPU_TLP_CFGRD0, 0, 0);
    run_until(one_silent_none_waits);
    assert_int_equal(the_slot.retry.count, 0);
    assert_true(crs_sent > 1);
    assert_true(the_slot.up);
    silent = 0;
    config(DXPU_TLP_CFGRD0, 0, 0); /* the channel ends with one that waits */
    run_until(far_is_off);
    dxpu_channel_reset(&far.ch, DXPU_REASON_SHUTDOWN);
    run_until(one_silent);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_silent_device_is_timed_out),
        CASE(test_requests_in_flight_are_contained),
        CASE(test_u7_data_ahead_of_the_doorbell),
        CASE(test_u8_what_the_device_may_not_read),
        CASE(test_u10_a_reset_ends_rules),
        CASE(test_u2_u5_no_offer_no_rules),
        CASE(test_v49_the_last_declaration_counts),
        CASE(test_v49_declaration_ends_with_its_incarnation),
        CASE(test_v51_device_that_fails_after_it_was_shown),
        CASE(test_v50_device_that_was_not_shown),
        CASE(test_d60_requests_with_untaken_completions_are_contained),
        CASE(test_no_request_is_lost_for_want_of_a_tag),
        CASE(test_full_queue_refuses),
        CASE(test_refused_request_frees_its_tag),
        CASE(test_v17_guest_is_not_held_up_beyond_hold),
        CASE(test_slow_box_is_not_given_up),
        CASE(test_detach_follows_what_was_sent),
        CASE(test_detach_does_not_wait_beyond_hold),
        CASE(test_d35_event_waits_behind_writes),
        CASE(test_events_without_room_end_the_channel),
        CASE(test_requests_of_the_device_are_answered),
        CASE(test_completions_are_as_large_as_the_port_allows),
        CASE(test_without_memory_for_a_completion_the_channel_ends),
        CASE(test_reads_continue_when_completions_leave),
        CASE(test_v12_r25_messages_of_the_device_go_to_the_root),
        CASE(test_device_is_shown_when_it_is_known),
        CASE(test_v10_requests_are_made_again_in_order),
        CASE(test_v10_vendor_id_is_shown_as_not_ready),
        CASE(test_v10_time_is_up),
        CASE(test_v10_a_reset_ends_what_waits),
        CASE(test_detach_ends_the_look_at_the_device),
        CASE(test_v15_only_programmed_interrupts_are_delivered),
        CASE(test_interrupts_wait_for_room),
        CASE(test_s103_windows_are_sent_ahead_of_what_uses_them),
        CASE(test_s103_interrupts_are_granted_as_programmed),
        CASE(test_s109_the_host_looks_itself),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
