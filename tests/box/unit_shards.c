/* unit_shards.c - what loops answer to the first thread, and when it hears of that
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "leases.h"
#include "requests.h"

static unsigned settled, last_code;

static void count_settled(requests *o, unsigned number, unsigned code)
{
    (void)o;
    assert_int_equal(number, 1);
    settled++;
    last_code = code;
}

static unsigned bind_later(box *b, const dxpu_control_bind *m)
{
    (void)b;
    (void)m;
    return REQUESTS_LATER;
}

static unsigned unbind_later(box *b, const dxpu_control_unbind *m)
{
    (void)b;
    (void)m;
    return REQUESTS_LATER;
}

/* Not linked: replaces requests_settled(), leases_bind() and leases_unbind(). */
#define requests_settled count_settled
#define leases_bind      bind_later
#define leases_unbind    unbind_later
#include "shards.c"
#undef requests_settled
#undef leases_bind
#undef leases_unbind

enum { SLOTS = 3 };

static box b;
static slot all[SLOTS];
static const dxpu_control_bind bind_order = { .slot = 1 };
static const dxpu_control_unbind unbind_order = { .slot = 1 };

static int open_with(unsigned wait)
{
    fabric_settings net = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    net.wait = wait;
    memset(&b, 0, sizeof b);
    settled = last_code = 0;
    memset(all, 0, sizeof all);
    b.slots = all;
    b.count = SLOTS;
    b.keys = net.keys = keys_none();
    assert_int_equal(shards_open(&b, &net), 0);
    for (unsigned i = 0; i < SLOTS; i++)
        all[i].shard = &b.shards[0];
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return open_with(DXPU_UDP_ADAPTIVE);
}

static int teardown(void **state)
{
    (void)state;
    return shards_close(&b);
}

static unsigned bind_it(void)
{
    return shards_bind(&b, &bind_order);
}

static unsigned unbind_it(void)
{
    return shards_unbind(&b, &unbind_order);
}

/* The first thread's turn. */
static void turn(void)
{
    assert_true(event_base_loop(b.base, EVLOOP_NONBLOCK) >= 0);
}

/* The loop has written the first order; the first thread hears of the next one before it hears of
   that. */
static void two_in_a_row(unsigned (*first)(void), unsigned (*next)(void))
{
    settled = 0;
    assert_int_equal(first(), REQUESTS_LATER);
    turn();
    assert_int_equal(settled, 0);
    shards_answer(&b, 1, DXPU_CONTROL_CODE_NONE);
    assert_int_equal(next(), REQUESTS_LATER);
    assert_int_equal(settled, 1); /* the first one's, before the next caller waits */
    assert_int_equal(last_code, DXPU_CONTROL_CODE_NONE);
    turn();
    assert_int_equal(settled, 1);
    shards_answer(&b, 1, DXPU_CONTROL_CODE_STATE);
    turn();
    assert_int_equal(settled, 2);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_STATE);
}

static void test_m57_an_answer_is_its_orders_own(void **state)
{
    (void)state;
    two_in_a_row(unbind_it, bind_it);
    two_in_a_row(bind_it, unbind_it);
}

static void stop_later(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    fabric_stop(user);
}

/* What a loop has seen of a job that a thread has ended, without its eventfd. */
static unsigned seen_by_looking(void)
{
    static const struct timeval end = { 0, 2000 };
    shard *sh = &b.shards[0];
    struct event *timer = evtimer_new(dxpu_udp_base(sh->fabric.udp), stop_later, &sh->fabric);
    assert_non_null(timer);
    assert_int_equal(event_add(timer, &end), 0);
    atomic_fetch_add(&sh->ended, 1);
    assert_int_equal(fabric_run(&sh->fabric), 0);
    event_free(timer);
    return sh->ended_seen;
}

static void test_a_job_is_seen_before_its_eventfd(void **state)
{
    (void)state;
    assert_int_equal(seen_by_looking(), 1);
    assert_int_equal(seen_by_looking(), 2);
    assert_int_equal(shards_close(&b), 0);
    (void)open_with(DXPU_UDP_BUSY); /* its eventfd is polled every 100 us */
    assert_int_equal(seen_by_looking(), 0);
    assert_int_equal(shards_close(&b), 0);
    (void)open_with(DXPU_UDP_BLOCK); /* control: it does not look again */
    assert_int_equal(seen_by_looking(), 0);
}

/* A busy disk costs the slots beside it no turn each time. */
static void test_a_job_wakes_its_slot_alone(void **state)
{
    shard *sh = &b.shards[0];
    fabric *f = &sh->fabric;
    dxpu_udp_path path;
    (void)state;
    assert_int_equal(fabric_route(f, dxpu_udp_local(f->udp, 0), 1, &path), DXPU_OK);
    for (unsigned i = 0; i < SLOTS; i++) {
        dxpu_channel_config cfg;
        dxpu_channel_config_default(&cfg);
        cfg.epoch = i + 1;
        cfg.remote.slot = (uint16_t)(i + 1);
        all[i].active = fabric_dial(f, &cfg, NULL, &path, 1, dxpu_udp_now_ns());
        assert_non_null(all[i].active);
        f->due_ns[all[i].active->live_at] = DXPU_NEVER;
    }
    assert_false(on_look(sh, false));
    atomic_fetch_add(&all[1].ended, 1);
    atomic_fetch_add(&sh->ended, 1);
    assert_true(on_look(sh, false));
    for (unsigned i = 0; i < SLOTS; i++)
        assert_int_equal(f->due_ns[all[i].active->live_at] == 0, i == 1);
    f->due_ns[all[1].active->live_at] = DXPU_NEVER;
    atomic_fetch_add(&sh->ended, 1); /* of the file of leases */
    assert_true(on_look(sh, false));
    assert_int_equal(f->due_ns[all[1].active->live_at], DXPU_NEVER);
    on_wake(sh->wake, EV_READ, sh);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_int_equal(f->due_ns[all[i].active->live_at], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_m57_an_answer_is_its_orders_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_job_is_seen_before_its_eventfd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_job_wakes_its_slot_alone, setup, teardown),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
