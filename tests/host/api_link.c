/* api_link.c - the host's end of an attachment, with a box that keeps silent, resets, and asks
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

#include "link.h"
#include "peer.h"

enum { REQUESTS = 3, QUESTIONS = 1000, PATIENCE = 100, GUARD_SECONDS = 30 };

static host_link the_link;
static link_settings set;
static peer far;
static bool guarded;

/* ==== The source: REQUESTS reads in each incarnation, and a write whenever it may work ======== */

static struct {
    unsigned starts, submitted, silent, answered;
    bool seen[2 * REQUESTS], writes, finish;
} src;

static void src_start(void *self, uint64_t now)
{
    (void)self;
    for (unsigned i = 0; i < REQUESTS; i++) {
        dxpu_tlp t = peer_request(DXPU_TLP_MRD, (uint16_t)i);
        uint8_t bytes[16];
        dxpu_bytes tlp = { bytes, 0 };
        assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
        assert_int_equal(link_submit(&the_link, tlp, now, src.submitted), DXPU_OK);
        src.submitted++;
    }
    src.starts++;
}

static void src_work(void *self, uint64_t now)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    uint8_t bytes[16];
    dxpu_bytes tlp = { bytes, 0 };
    int rc;
    (void)self;
    if (!src.writes || src.finish)
        return;
    assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    rc = link_submit(&the_link, tlp, now, 0);
    assert_true(rc == DXPU_OK || rc == DXPU_E_AGAIN); /* never asked without a channel */
}

static void src_completion(void *self, const dxpu_tlp *cpl, uint64_t user, bool last, uint64_t now)
{
    (void)self;
    (void)now;
    assert_true(last && user < 2 * REQUESTS && !src.seen[user]); /* each once */
    src.seen[user] = true;
    src.silent += !cpl;
    src.answered += cpl != NULL;
}

static bool src_done(const void *self)
{
    (void)self;
    return src.finish;
}

static uint64_t src_next_ns(const void *self)
{
    (void)self;
    return DXPU_NEVER;
}

static void src_progress(const void *self, char out[64])
{
    (void)self;
    out[0] = '\0';
}

static void src_report(const void *self, report *r)
{
    (void)self;
    (void)r;
}

static bool src_wrong(const void *self, char why[SOURCE_WHY_BYTES])
{
    (void)self;
    why[0] = '\0';
    return false;
}

static const source the_source = { NULL,        src_start,    src_work,   src_completion, src_done,
                                   src_next_ns, src_progress, src_report, src_wrong,      NULL };

static void on_guard(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user;
    guarded = true;
    link_end(&the_link, LINK_SYSTEM);
}

static int setup(void **state)
{
    static char text[DXPU_UDP_TEXT_BYTES];
    fabric_settings net = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    dxpu_udp_address here;
    (void)state;
    memset(&the_link, 0, sizeof the_link);
    memset(&set, 0, sizeof set);
    memset(&src, 0, sizeof src);
    net.keys = keys_none();
    peer_init(&far);
    here.len = sizeof here.u;
    assert_int_equal(getsockname(far.fd, &here.u.any, &here.len), 0);
    set.box = dxpu_udp_print(&here, text);
    set.slot = set.node = set.epoch = 1;
    set.timeout_ms = set.give_up_ms = net.hold_ms = far.cfg.hold_ms = 60000;
    set.tags = LINK_TAGS;
    the_link.box[0] = here;
    the_link.paths = 1;
    assert_int_equal(link_open(&the_link, &set, &net, &the_source), 0);
    peer_start(&far, dxpu_udp_base(the_link.fabric.udp));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop(&far);
    return link_close(&the_link);
}

static void run_link(int result)
{
    static const struct timeval limit = { GUARD_SECONDS, 0 };
    struct event *guard = event_new(dxpu_udp_base(the_link.fabric.udp), -1, 0, on_guard, NULL);
    assert_non_null(guard);
    guarded = false;
    event_add(guard, &limit);
    assert_int_equal(link_run(&the_link), result);
    event_free(guard);
    assert_false(guarded);
}

/* ==== The box ================================================================================= */

static unsigned requests, answers, asked, patience, resets;
static unsigned char malformed[12] = { 0, 2, 0, 1, 0, 0, 0, 15, 0, 0, 16, 0 }; /* a reserved bit */

static void take_down(peer *p)
{
    dxpu_tlp t;
    while (peer_take(p, DXPU_POSTED, &t))
        ;
    while (peer_take(p, DXPU_NONPOSTED, &t))
        requests++;
}

static void keep_silent(peer *p, uint64_t now)
{
    (void)now;
    if (p->open)
        take_down(p);
    src.finish = src.silent == REQUESTS;
}

static void test_silent_device_is_timed_out(void **state)
{
    (void)state;
    requests = 0;
    set.timeout_ms = 50;
    far.step = keep_silent;
    run_link(LINK_DONE);
    assert_int_equal(requests, REQUESTS);
    assert_int_equal(src.silent, REQUESTS);
    assert_int_equal(src.answered, 0);
    assert_int_equal(the_link.timeouts, REQUESTS);
    assert_int_equal(the_link.contained, 0);
    assert_int_equal(src.starts, 1);
}

/* The first channel is reset with all requests in flight, the second one answers. */
static void reset_then_answer(peer *p, uint64_t now)
{
    dxpu_tlp t, cpl;
    (void)now;
    if (p->open && dxpu_channel_status(&p->ch).state >= DXPU_STATE_CLOSED)
        p->open = src.finish; /* its reset has left */
    if (!p->open)
        return;
    while (peer_take(p, DXPU_POSTED, &t))
        ;
    while (peer_take(p, DXPU_NONPOSTED, &t)) {
        static const uint8_t data[4];
        if (++requests <= REQUESTS)
            continue;
        dxpu_tlp_completion(&t, 0, DXPU_CPL_SC, &cpl);
        cpl.payload.ptr = data;
        cpl.payload.len = sizeof data;
        assert_int_equal(peer_submit(p, &cpl), DXPU_OK);
    }
    if (requests == REQUESTS && resets++ == 0)
        dxpu_channel_reset(&p->ch, DXPU_REASON_SHUTDOWN);
    src.finish = src.answered == REQUESTS;
}

/* The same, but the first channel's completions leave together with its end. */
static void answer_and_reset(peer *p, uint64_t now)
{
    uint8_t data[4] = { 0 }, frame[2048], path;
    dxpu_tlp t, cpl;
    int n;
    if (resets) {
        reset_then_answer(p, now);
        return;
    }
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        dxpu_tlp_completion(&t, 0, DXPU_CPL_SC, &cpl);
        cpl.payload.ptr = data;
        cpl.payload.len = sizeof data;
        assert_int_equal(peer_submit(p, &cpl), DXPU_OK);
        requests++;
    }
    if (requests < REQUESTS)
        return;
    peer_noise(p);
    while ((n = dxpu_channel_emit(&p->ch, now, frame, sizeof frame, &path)) > 0)
        peer_send(p, p->fd, frame, (size_t)n);
    dxpu_channel_reset(&p->ch, DXPU_REASON_SHUTDOWN);
    resets++;
}

static void test_d60_requests_with_untaken_completions_are_contained(void **state)
{
    (void)state;
    requests = resets = 0;
    far.step = answer_and_reset;
    run_link(LINK_DONE);
    assert_int_equal(src.starts, 2);
    assert_int_equal(src.silent, REQUESTS);
    assert_int_equal(src.answered, REQUESTS);
    assert_int_equal(the_link.contained, REQUESTS);
}

static void test_requests_in_flight_are_contained(void **state)
{
    (void)state;
    requests = resets = 0;
    src.writes = true;
    far.step = reset_then_answer;
    run_link(LINK_DONE);
    assert_int_equal(src.starts, 2);
    assert_int_equal(src.silent, REQUESTS);
    assert_int_equal(src.answered, REQUESTS);
    assert_int_equal(the_link.contained, REQUESTS);
    assert_int_equal(the_link.timeouts, 0);
}

/* Requests of the device: as many as fit, then its completions, when the host can say no more. */
static void ask_the_host(peer *p, uint64_t now)
{
    dxpu_tlp t;
    if (!p->open || dxpu_channel_status(&p->ch).state != DXPU_STATE_UP)
        return;
    take_down(p);
    for (; asked < QUESTIONS; asked++) {
        dxpu_bytes raw = { malformed, sizeof malformed };
        malformed[6] = (uint8_t)asked;
        t = peer_request(DXPU_TLP_MRD, (uint16_t)(asked % 256));
        if ((asked % 2 ? dxpu_channel_submit(&p->ch, raw, now, 0) : peer_submit(p, &t)) != DXPU_OK)
            break;
    }
    if (++patience < PATIENCE) /* until the host has no room for answers any more */
        return;
    if (patience == PATIENCE)
        assert_true(asked < QUESTIONS); /* the control: it keeps what it cannot answer */
    while (peer_take(p, DXPU_COMPLETION, &t)) {
        assert_int_equal(t.status, DXPU_CPL_UR);
        assert_int_equal(t.tag, answers % 256);
        answers++;
    }
    if (answers == QUESTIONS)
        dxpu_channel_reset(&p->ch, DXPU_REASON_EPOCH); /* ends the host */
}

static void test_requests_of_the_device_are_answered(void **state)
{
    (void)state;
    requests = answers = asked = patience = 0;
    far.cfg.rx.header[DXPU_COMPLETION] = 16;
    far.step = ask_the_host;
    the_link.fabric.base.tx.header[DXPU_COMPLETION] = 16; /* room runs out soon */
    run_link(LINK_NO_CHANNEL);
    assert_int_equal(answers, QUESTIONS);
    assert_int_equal(the_link.device_unsupported, QUESTIONS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_silent_device_is_timed_out),
        CASE(test_requests_in_flight_are_contained),
        CASE(test_d60_requests_with_untaken_completions_are_contained),
        CASE(test_requests_of_the_device_are_answered),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
