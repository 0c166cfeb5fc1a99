/* api_guest_slot.c - a slot of the guest's switch, with a box that keeps silent, resets, and reads
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../examples/host_proxy/probe.c"
#include "../examples/host_proxy/slot.c"
#include "peer.h"

enum { READS = 3, POLLS_MAX = 20000, MAPPED = 0x1000, UNMAPPED = 0x2000 };

static fabric net;
static guest_slot the_slot;
static peer far;
static unsigned silent, answered, polls, requests, good, unsupported;
static bool master, in_use[READS];
static bool (*until)(void);

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

static void msi(void *user, uint64_t address, uint32_t data)
{
    (void)user;
    (void)address;
    (void)data;
}

static bool bus_master(void *user, unsigned number)
{
    (void)user;
    (void)number;
    return master;
}

static uint32_t mps_bytes(void *user, unsigned number)
{
    (void)user;
    (void)number;
    return 128;
}

static void on_completion(void *user, const dxpu_tlp *cpl, uint64_t request, bool last)
{
    (void)user;
    assert_true(last && request < READS && in_use[request]); /* each once */
    in_use[request] = false;
    silent += !cpl;
    answered += cpl != NULL;
}

static void filled(void *user, unsigned number, bool there)
{
    (void)user;
    (void)number;
    (void)there;
}

static const slot_host the_host = { NULL,       dma_read,  dma_write,     msi,
                                    bus_master, mps_bytes, on_completion, filled };

/* ==== The fabric ============================================================================== */

static void up(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    slot_up(&the_slot, now);
}

static bool work(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    return the_slot.channel == c && slot_work(&the_slot, now);
}

static void down(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    if (the_slot.channel == c)
        slot_down(&the_slot, now);
}

static uint64_t next_ns(void *user)
{
    (void)user;
    return slot_next_ns(&the_slot);
}

static void tick(void *user, uint64_t now)
{
    (void)user;
    slot_tick(&the_slot, now);
}

static void look(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user;
    if (until() || ++polls >= POLLS_MAX)
        fabric_stop(&net);
}

static void run_until(bool (*done)(void))
{
    static const struct timeval ms = { 0, 1000 };
    struct event *timer = event_new(dxpu_udp_base(net.udp), -1, EV_PERSIST, look, NULL);
    assert_non_null(timer);
    until = done;
    polls = 0;
    assert_int_equal(event_add(timer, &ms), 0);
    assert_int_equal(fabric_run(&net), 0);
    event_free(timer);
    assert_true(polls < POLLS_MAX);
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

static void start(uint64_t hold_ms)
{
    fabric_settings s = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { NULL, NULL, up, work, down, next_ns, tick };
    dxpu_udp_address here;
    silent = answered = requests = good = unsupported = 0;
    master = true;
    s.hold_ms = hold_ms;
    assert_int_equal(fabric_open(&net, "host", &s, 4, &cb), 0);
    assert_int_equal(slot_init(&the_slot, 1, 1, &the_host, &net), 0);
    peer_start(&far, dxpu_udp_base(net.udp));
    far.cfg.hold_ms = 60000;
    here.len = sizeof here.u;
    assert_int_equal(getsockname(far.fd, &here.u.any, &here.len), 0);
    assert_int_equal(slot_attach(&the_slot, &here, 1, 1, 1, dxpu_udp_now_ns()), 0);
    far.step = refuse_probe;
    run_until(is_up);
    far.step = NULL;
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

static bool far_is_off(void)
{
    return polls >= 50;
}

/* What is given to a full queue is refused and leaves no trace: tags and queue are as before. */
static void test_full_queue_refuses(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 0);
    unsigned writes = 0, refused = 0;
    (void)state;
    start(60000);
    far.deaf = true; /* nothing is acknowledged, so the queues fill */
    send_reads();
    run_until(far_is_off);
    do {
        t = peer_request(DXPU_TLP_MWR, 0);
    } while (slot_send(&the_slot, &t, 0, dxpu_udp_now_ns()) && ++writes < 4 * SLOT_QUEUE);
    assert_in_range(writes, SLOT_QUEUE, 4 * SLOT_QUEUE - 1);
    for (; refused < 2 * SLOT_TAGS; refused++) {
        t = peer_request(DXPU_TLP_MRD, 0);
        assert_false(slot_send(&the_slot, &t, READS, dxpu_udp_now_ns()));
    }
    assert_false(the_slot.waiting[the_slot.waiting_head % SLOT_QUEUE].nonposted);
    for (unsigned i = 0; i < SLOT_TAGS - READS; i++)
        assert_true(dxpu_tags_alloc(&the_slot.tags) >= 0);
    assert_int_equal(dxpu_tags_alloc(&the_slot.tags), DXPU_E_NO_TAG); /* the control */
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
    return good + unsupported == 4;
}

static void ask(uint8_t type, uint16_t tag, uint32_t address)
{
    dxpu_tlp t = peer_request(type, tag);
    t.address = address;
    assert_int_equal(peer_submit(&far, &t), DXPU_OK);
}

static bool one_more(void)
{
    return good + unsupported == 5;
}

static void test_requests_of_the_device_are_answered(void **state)
{
    static const uint8_t malformed[12] = { 0, 2, 0, 1, 0, 0, 7, 15, 0, 0, 16, 0 };
    dxpu_bytes raw = { malformed, sizeof malformed };
    (void)state;
    start(60000);
    far.step = read_guest;
    ask(DXPU_TLP_MRD, 1, MAPPED);
    ask(DXPU_TLP_MRD, 2, UNMAPPED);
    ask(DXPU_TLP_IORD, 3, MAPPED);
    assert_int_equal(dxpu_channel_submit(&far.ch, raw, dxpu_udp_now_ns(), 0), DXPU_OK);
    run_until(all_answered);
    assert_int_equal(good, 1);
    assert_int_equal(unsupported, 3);
    assert_int_equal(the_slot.refused, 3);
    master = false;
    ask(DXPU_TLP_MRD, 4, MAPPED);
    run_until(one_more);
    assert_int_equal(unsupported, 4);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_silent_device_is_timed_out),
        CASE(test_requests_in_flight_are_contained),
        CASE(test_full_queue_refuses),
        CASE(test_requests_of_the_device_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
