/* api_slots.c - the slots of a box and their channels, with a device that floods, reads and keeps
   silent, and a host whose every frame and TLP the test decides about
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../examples/box_proxy/identity.c"
#include "../examples/box_proxy/slots.c"
#include "../examples/box_proxy/leases.c"
#include "../examples/box_proxy/state.c"
#include "peer.h"

enum { CAPACITY = 4, FLOOD = 400, POSTED_ROOM = 64, BURST = 64, BURST_BYTES = 128 };

/* ==== The device: what it does with a TLP is the test's ======================================= */

typedef struct stub {
    const device_port *port;
    unsigned requests, writes, resets, most; /* most TLPs seen waiting */
} stub;

static void (*on_write)(stub *d);
static void (*on_read)(stub *d, const dxpu_tlp *t);

static void stub_emit(stub *d, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    unsigned waiting;
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    d->port->emit(d->port->user, tlp);
    waiting = d->port->waiting(d->port->user);
    if (waiting > d->most)
        d->most = waiting;
}

static void stub_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    stub *d = device;
    (void)bytes;
    if (dxpu_tlp_class(t) == DXPU_NONPOSTED) {
        d->requests++;
        if (on_read)
            on_read(d, t);
    } else if (dxpu_tlp_class(t) == DXPU_POSTED) {
        d->writes++;
        if (on_write)
            on_write(d);
    }
}

static void stub_event(void *device, const dxpu_event *e)
{
    (void)device;
    (void)e;
}

static void stub_reset(void *device)
{
    ((stub *)device)->resets++;
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

static const device_kind stub_kind = { .name = "stub",
                                       .create = stub_create,
                                       .destroy = free,
                                       .tlp = stub_tlp,
                                       .event = stub_event,
                                       .reset = stub_reset,
                                       .report = stub_report };

static void emit_request(stub *d, uint8_t type, uint16_t tag)
{
    dxpu_tlp t = peer_request(type, tag);
    stub_emit(d, &t);
}

static void emit_completion(stub *d, uint16_t tag, uint32_t bytes)
{
    static const uint8_t data[BURST_BYTES];
    dxpu_tlp read = peer_request(DXPU_TLP_MRD, tag), cpl;
    dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &cpl);
    cpl.byte_count = (uint16_t)bytes;
    cpl.lower_addr = 0;
    cpl.length_dw = (uint16_t)(bytes / 4);
    cpl.payload.ptr = data;
    cpl.payload.len = bytes;
    stub_emit(d, &cpl);
}

/* ==== The box ================================================================================= */

static box b;
static shard loop;
static peer host, second;

static stub *device(void)
{
    return b.slots[0].device;
}

static void run_until(bool (*done)(void))
{
    peer_run(&loop.fabric, done);
}

static bool some_polls(void)
{
    return peer_polls >= 100;
}

static bool host_is_up(void)
{
    return dxpu_channel_state(&host.ch) == DXPU_STATE_UP && b.slots[0].active;
}

static int setup(void **state)
{
    fabric_settings net = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { &loop, slots_welcome, slots_up, slots_work, slots_down, NULL, NULL };
    device_settings set;
    (void)state;
    memset(&b, 0, sizeof b);
    memset(&loop, 0, sizeof loop);
    memset(&set, 0, sizeof set);
    on_write = NULL;
    on_read = NULL;
    loop.box = &b;
    loop.node = 2;
    b.shards = &loop;
    b.shard_count = b.count = 1;
    b.quiet = true;
    net.hold_ms = 60000; /* nothing here ends by silence */
    assert_int_equal(fabric_open(&loop.fabric, "box", &net, CAPACITY, &cb), 0);
    loop.fabric.base.tx.header[DXPU_POSTED] = POSTED_ROOM;
    assert_int_equal(slots_open(&b, &stub_kind, &set), 0);
    peer_start(&host, dxpu_udp_base(loop.fabric.udp));
    peer_start(&second, dxpu_udp_base(loop.fabric.udp));
    host.cfg.hold_ms = second.cfg.hold_ms = 60000;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop(&host);
    peer_stop(&second);
    assert_int_equal(fabric_close(&loop.fabric), 0);
    slots_close(&b);
    return 0;
}

static void attach(void)
{
    peer_dial(&host, dxpu_udp_local(loop.fabric.udp, 0), 1);
    run_until(host_is_up);
}

/* One write makes the device do on_write(). */
static void poke(peer *p)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    assert_int_equal(peer_submit(p, &t), DXPU_OK);
}

/* ==== What waits ============================================================================== */

static unsigned sent, got[DXPU_CLASSES];

static void burst(stub *d, const dxpu_tlp *t)
{
    for (unsigned i = 0; i < BURST; i++) /* a small one fits where a large one has to wait */
        emit_completion(d, t->tag, i % 2 ? 4 : BURST_BYTES);
}

static void ask_on(peer *p, uint64_t now)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, (uint16_t)(sent % 256));
    (void)now;
    while (sent < 200 && peer_submit(p, &t) == DXPU_OK)
        t = peer_request(DXPU_TLP_MRD, (uint16_t)(++sent % 256));
}

static void ask_and_take(peer *p, uint64_t now)
{
    dxpu_tlp t;
    ask_on(p, now);
    while (peer_take(p, DXPU_COMPLETION, &t)) {
        assert_int_equal(t.tag, got[DXPU_COMPLETION] / BURST % 256); /* in order */
        assert_int_equal(t.length_dw, got[DXPU_COMPLETION] % 2 ? 1 : BURST_BYTES / 4);
        got[DXPU_COMPLETION]++;
    }
}

static bool all_completions(void)
{
    return got[DXPU_COMPLETION] == 200 * BURST;
}

/* While much waits, the device is given no further request. */
static void test_waiting_is_bounded(void **state)
{
    unsigned asked;
    (void)state;
    memset(got, 0, sizeof got);
    sent = 0;
    on_read = burst;
    attach();
    host.step = ask_on;
    run_until(some_polls);
    asked = device()->requests;
    assert_in_range(device()->most, WAITING_MAX, WAITING_MAX + BURST);
    run_until(some_polls);
    assert_int_equal(device()->requests, asked);
    assert_true(asked < sent);
    host.step = ask_and_take; /* the control: then it goes on, and nothing is lost */
    run_until(all_completions);
    assert_int_equal(device()->requests, 200);
    assert_int_equal(b.slots[0].dropped, 0);
}

static void reads_then_others(stub *d)
{
    for (unsigned i = 0; i < FLOOD; i++)
        emit_request(d, DXPU_TLP_MRD, (uint16_t)(i % 256));
    emit_completion(d, 1, 4);
    emit_request(d, DXPU_TLP_MWR, 1);
}

static void take_others(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    got[DXPU_POSTED] += peer_take(p, DXPU_POSTED, &t);
    got[DXPU_COMPLETION] += peer_take(p, DXPU_COMPLETION, &t);
}

static void take_requests(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (peer_take(p, DXPU_NONPOSTED, &t)) {
        assert_int_equal(t.tag, got[DXPU_NONPOSTED] % 256);
        got[DXPU_NONPOSTED]++;
    }
}

static bool others_came(void)
{
    return got[DXPU_POSTED] == 1 && got[DXPU_COMPLETION] == 1;
}

static bool requests_came(void)
{
    return got[DXPU_NONPOSTED] == FLOOD;
}

/* A host that takes no requests gets posted TLPs and completions all the same. */
static void test_posted_and_completions_pass_requests(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    on_write = reads_then_others;
    attach();
    host.step = take_others;
    poke(&host);
    run_until(others_came);
    assert_true(b.slots[0].waiting > 0); /* the control: requests do wait */
    host.step = take_requests;
    run_until(requests_came);
    assert_int_equal(b.slots[0].dropped, 0);
}

static void writes_then_others(stub *d)
{
    for (unsigned i = 0; i < FLOOD; i++)
        emit_request(d, DXPU_TLP_MWR, (uint16_t)i);
    emit_completion(d, 1, 4);
    emit_request(d, DXPU_TLP_MRD, 1);
    emit_request(d, DXPU_TLP_MWR, FLOOD);
}

/* Everything, the younger classes first whenever they may. */
static void take_all(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    for (;;) {
        if (peer_take(p, DXPU_COMPLETION, &t) || peer_take(p, DXPU_NONPOSTED, &t)) {
            assert_true(got[DXPU_POSTED] >= FLOOD);
            got[dxpu_tlp_class(&t)]++;
        } else if (peer_take(p, DXPU_POSTED, &t)) {
            assert_int_equal(t.address, 0x1000u + 4 * got[DXPU_POSTED]);
            got[DXPU_POSTED]++;
        } else {
            return;
        }
    }
}

static bool all_came(void)
{
    return got[DXPU_POSTED] == FLOOD + 1 && got[DXPU_COMPLETION] == 1 && got[DXPU_NONPOSTED] == 1;
}

static void test_nothing_passes_older_posted(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    on_write = writes_then_others;
    attach();
    poke(&host);
    run_until(some_polls);
    assert_true(b.slots[0].waiting > 2);
    host.step = take_all;
    run_until(all_came);
}

static void flood(stub *d)
{
    for (unsigned i = 0; i < FLOOD; i++)
        emit_request(d, DXPU_TLP_MWR, (uint16_t)i);
}

static void answer(stub *d, const dxpu_tlp *t)
{
    emit_completion(d, t->tag, 4);
}

static bool second_is_up(void)
{
    return dxpu_channel_state(&second.ch) == DXPU_STATE_UP && b.slots[0].active;
}

static bool one_completion(void)
{
    return got[DXPU_COMPLETION] == 1;
}

static void take_and_count(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    got[DXPU_POSTED] += peer_take(p, DXPU_POSTED, &t);
    got[DXPU_COMPLETION] += peer_take(p, DXPU_COMPLETION, &t);
}

static bool reset_twice(void)
{
    return device()->resets == 2;
}

/* What waits for one incarnation never reaches the next one. */
static void test_next_incarnation_gets_nothing_of_the_last(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    memset(got, 0, sizeof got);
    on_write = flood;
    on_read = answer;
    attach();
    poke(&host);
    run_until(some_polls);
    assert_true(b.slots[0].waiting > 0);
    peer_dial(&second, dxpu_udp_local(loop.fabric.udp, 0), 1);
    run_until(second_is_up);
    run_until(reset_twice); /* the box is up when the second's first sequenced frame has come */
    second.step = take_and_count;
    assert_int_equal(peer_submit(&second, &t), DXPU_OK);
    run_until(one_completion); /* it would come behind posted TLPs */
    assert_int_equal(got[DXPU_POSTED], 0);
    assert_true(b.slots[0].dropped > 0);
    run_until(some_polls);
    assert_int_equal(dxpu_channel_error(&host.ch), DXPU_E_RESET);
    assert_int_equal(dxpu_channel_reason(&host.ch), DXPU_REASON_REPLACED);
}

/* ==== Opening, closing, paths ================================================================= */

static bool opens_came(void)
{
    return loop.fabric.count.opens_accepted == 2 * CAPACITY;
}

/* Opens that nobody goes on with keep no place for ever. */
static void test_half_open_channels_make_room(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * CAPACITY; i++) {
        uint8_t frame[2048], path;
        int n;
        peer_dial(&second, dxpu_udp_local(loop.fabric.udp, 0), 1);
        n = dxpu_channel_emit(&second.ch, dxpu_udp_now_ns(), frame, sizeof frame, &path);
        assert_true(n > 0);
        peer_send(&second, second.fd, frame, (size_t)n);
    }
    second.open = false;
    run_until(opens_came);
    assert_int_equal(loop.fabric.free_count, 0); /* the control: the table is full */
    attach();
    assert_int_equal(loop.fabric.count.opens_refused, 0);
}

static bool box_has_closed(void)
{
    return loop.fabric.count.ended_close == 1;
}

static bool host_has_closed(void)
{
    return dxpu_channel_state(&host.ch) >= DXPU_STATE_CLOSED;
}

/* The answer to a close may be lost; the one who asked asks again. */
static void test_close_is_answered_again(void **state)
{
    (void)state;
    attach();
    host.deaf = true;
    assert_int_equal(dxpu_channel_close(&host.ch, DXPU_REASON_DETACH), DXPU_OK);
    run_until(box_has_closed);
    run_until(some_polls);
    assert_false(host_has_closed()); /* the control */
    host.deaf = false;
    run_until(host_has_closed);
    assert_int_equal(dxpu_channel_error(&host.ch), DXPU_E_CLOSED);
    assert_int_equal(loop.fabric.count.unknown_channel, 0);
}

static fabric_channel *only_channel(void)
{
    for (unsigned i = 0; i < CAPACITY; i++) {
        if (loop.fabric.channels[i])
            return loop.fabric.channels[i];
    }
    return NULL;
}

static bool write_came(void)
{
    return device()->writes == 1;
}

static bool bad_frame_came(void)
{
    return only_channel()->ch.count.rx_crc == 1;
}

/* Only an authentic frame tells where a path leads. */
static void test_path_is_learnt_from_authentic_frames(void **state)
{
    uint8_t frame[2048], path;
    uint32_t crc;
    int n, other = peer_socket();
    (void)state;
    attach();
    run_until(some_polls); /* all acknowledged: the next frame is the write's */
    host.mute = true;
    poke(&host);
    n = dxpu_channel_emit(&host.ch, dxpu_udp_now_ns(), frame, sizeof frame, &path);
    assert_true(n > 0);
    frame[DXPU_FRAME_PATH] = 1;
    crc = dxpu_crc32(0, frame, (size_t)n - 4) ^ 1;
    for (unsigned i = 0; i < 4; i++)
        frame[n - 1 - (int)i] = (uint8_t)(crc >> 8 * i);
    peer_send(&host, other, frame, (size_t)n);
    run_until(bad_frame_came);
    assert_false(only_channel()->paths.path[1].known);
    frame[n - 1] ^= 1;
    peer_send(&host, other, frame, (size_t)n); /* the control */
    run_until(write_came);
    assert_true(only_channel()->paths.path[1].known);
    close(other);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_waiting_is_bounded),
        CASE(test_posted_and_completions_pass_requests),
        CASE(test_nothing_passes_older_posted),
        CASE(test_next_incarnation_gets_nothing_of_the_last),
        CASE(test_half_open_channels_make_room),
        CASE(test_close_is_answered_again),
        CASE(test_path_is_learnt_from_authentic_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
