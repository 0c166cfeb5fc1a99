/* unit_crossing.c - memory between keeper and worker: order, credits, waking, and ends that lie
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_GET_SEALS, pthread */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "crossing.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

static crossing keeper, worker;

static int setup(void **state)
{
    crossing_fds fds, copy;
    (void)state;
    assert_int_equal(crossing_create(&fds), 0);
    copy.memory = dup(fds.memory);
    for (unsigned i = 0; i < 2; i++) {
        copy.keeper[i] = dup(fds.keeper[i]);
        copy.worker[i] = dup(fds.worker[i]);
    }
    assert_int_equal(fcntl(fds.memory, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(crossing_open(&keeper, &fds, true), 0);
    assert_int_equal(crossing_open(&worker, &copy, false), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    crossing_close(&keeper);
    crossing_close(&worker);
    return 0;
}

static crossing_record tlp(unsigned slot, unsigned cls, size_t bytes)
{
    const crossing_record r = { (uint16_t)bytes, CROSSING_TLP, (uint8_t)cls, slot, 1, 0 };
    return r;
}

/* One record, if there is room for it: false when not. */
static bool send(crossing *c, unsigned slot, unsigned cls, const void *data, size_t bytes)
{
    const crossing_record r = tlp(slot, cls, bytes);
    return crossing_room(c, slot, cls) && crossing_put(c, &r, data);
}

/* Neither end can take memory away from the other. */
static void test_s182_memory_is_sealed(void **state)
{
    crossing_fds fds;
    (void)state;
    assert_int_equal(crossing_create(&fds), 0);
    assert_int_equal(ftruncate(fds.memory, 4096), -1);
    assert_int_equal(errno, EPERM);
    crossing_close_fds(&fds);
}

static void test_records_come_in_order_and_whole(void **state)
{
    uint8_t data[CROSSING_PAYLOAD_MAX];
    crossing_record r;
    (void)state;
    for (uint32_t n = 0; n < 3000; n++) { /* the ring is gone round some times */
        size_t bytes = n * 37 % sizeof data;
        memset(data, (int)(n & 0xff), sizeof data);
        assert_true(send(&keeper, 1 + n % 28, n % 3, data, bytes));
        assert_true(crossing_get(&worker, &r));
        assert_int_equal(r.bytes, bytes);
        assert_int_equal(r.slot, 1 + n % 28);
        assert_int_equal(r.arg, n % 3);
        assert_true(!bytes ||
                    (worker.payload[0] == (n & 0xff) && worker.payload[bytes - 1] == (n & 0xff)));
        crossing_return(&worker, r.slot, r.arg);
    }
    assert_false(crossing_get(&worker, &r));
    assert_false(worker.broken || keeper.broken);
}

/* A slot whose line takes nothing has no room; another slot, and another class, have. */
static void test_credits_are_of_a_slot_and_class(void **state)
{
    uint8_t data[16] = { 0 };
    crossing_record r;
    unsigned n = 0;
    (void)state;
    while (send(&keeper, 1, DXPU_POSTED, data, sizeof data))
        n++;
    assert_int_equal(n, CROSSING_TLPS);
    while (crossing_get(&worker, &r))
        continue;
    assert_false(crossing_room(&keeper, 1, DXPU_POSTED));
    assert_true(crossing_room(&keeper, 1, DXPU_NONPOSTED));
    assert_true(crossing_room(&keeper, 2, DXPU_POSTED));
    crossing_return(&worker, 1, DXPU_POSTED);
    assert_true(crossing_room(&keeper, 1, DXPU_POSTED));
}

static bool is_woken(const crossing *c)
{
    struct pollfd p = { c->wake, POLLIN, 0 };
    return poll(&p, 1, 0) == 1;
}

/* No system call for a peer that looks by itself; one for one that sleeps. */
static void test_only_sleepers_are_woken(void **state)
{
    uint8_t data[16] = { 0 };
    crossing_record r;
    (void)state;
    assert_true(send(&keeper, 1, 0, data, sizeof data));
    assert_false(is_woken(&worker));
    assert_true(crossing_news(&worker, true)); /* it does not sleep: there is something */
    assert_true(send(&keeper, 1, 0, data, sizeof data));
    assert_false(is_woken(&worker));
    while (crossing_get(&worker, &r))
        continue;
    assert_false(crossing_news(&worker, true));
    assert_true(send(&keeper, 1, 0, data, sizeof data));
    assert_true(is_woken(&worker));
    crossing_woken(&worker);
    assert_false(is_woken(&worker));
    assert_true(send(&keeper, 1, 0, data, sizeof data)); /* notified already */
    assert_false(is_woken(&worker));
}

static void test_room_wakes_who_waits_for_it(void **state)
{
    uint8_t data[16] = { 0 };
    crossing_record r;
    (void)state;
    while (send(&keeper, 1, 0, data, sizeof data))
        continue;
    assert_false(crossing_news(&keeper, true));
    while (crossing_get(&worker, &r))
        continue;
    (void)crossing_news(&keeper, false); /* the ring was emptied */
    assert_false(crossing_room(&keeper, 1, 0));
    crossing_woken(&keeper);
    assert_false(crossing_news(&keeper, true));
    crossing_return(&worker, 1, 0);
    assert_true(is_woken(&keeper));
    assert_true(crossing_news(&keeper, false));
    assert_true(crossing_room(&keeper, 1, 0));
}

static void test_full_ring_takes_no_more(void **state)
{
    static uint8_t data[4000];
    unsigned n = 0;
    (void)state;
    for (unsigned slot = 1; slot <= 28; slot++) {
        while (send(&keeper, slot, 0, data, sizeof data))
            n++;
    }
    assert_in_range(n * sizeof data, CROSSING_RING_BYTES / 2,
                    CROSSING_RING_BYTES - CROSSING_RESERVE + 2 * sizeof data);
    crossing_record r = { 0, CROSSING_CLOSE, 0, 1, 1, 0 };
    assert_true(crossing_put(&keeper, &r, NULL)); /* what needs no credit still has room */
    assert_false(keeper.broken);
}

/* ==== Ends that lie =========================================================================== */

static void write_record(crossing_record r)
{
    memcpy(keeper.mine->ring, &r, sizeof r);
    atomic_store(&keeper.mine->head, sizeof r + 64);
}

static void test_s181_positions_that_cannot_be(void **state)
{
    crossing_record r;
    (void)state;
    atomic_store(&keeper.mine->head, CROSSING_RING_BYTES + 16);
    assert_false(crossing_get(&worker, &r));
    assert_true(worker.broken);
    atomic_store(&keeper.mine->head, 0); /* it is never believed again */
    assert_false(crossing_news(&worker, false));
    assert_false(crossing_get(&worker, &r));
    atomic_store(&worker.mine->tail, 4096); /* taken more than there was */
    assert_false(crossing_room(&keeper, 1, 0));
    assert_true(keeper.broken);
}

static void test_s181_part_of_a_record(void **state)
{
    crossing_record r;
    (void)state;
    atomic_store(&keeper.mine->head, 8);
    assert_false(crossing_get(&worker, &r));
    assert_true(worker.broken);
}

static void test_s181_records_that_cannot_be(void **state)
{
    static const crossing_record wrong[] = {
        { 5000, CROSSING_TLP, 0, 1, 1, 0 }, /* longer than any */
        { 100, CROSSING_TLP, 0, 1, 1, 0 },  /* longer than what there is */
        { 8, CROSSING_KINDS, 0, 1, 1, 0 },  { 8, CROSSING_TLP, 3, 1, 1, 0 },
        { 8, CROSSING_TLP, 200, 1, 1, 0 },  { 8, CROSSING_TLP, 0, 0, 1, 0 },
        { 8, CROSSING_TLP, 0, 29, 1, 0 },   { 8, CROSSING_TLP, 0, UINT32_MAX, 1, 0 },
        { 8, CROSSING_EVENT, 0, 0, 1, 0 },  { 8, CROSSING_TLP, 0, 1, 1, 1 },
    };
    const crossing_record right = { 64, CROSSING_TLP, 2, 28, 1, 0 };
    crossing_record r;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_record(wrong[i]);
        assert_false(crossing_get(&worker, &r));
        assert_true(worker.broken);
        teardown(state);
        setup(state);
    }
    write_record(right); /* the control */
    assert_true(crossing_get(&worker, &r));
}

/* More than it has credits for would be more than this end has room for. */
static void test_s181_more_than_the_credits(void **state)
{
    uint8_t data[16] = { 0 };
    const crossing_record t = tlp(3, 1, sizeof data);
    crossing_record r;
    unsigned n = 0;
    (void)state;
    for (unsigned i = 0; i <= CROSSING_TLPS; i++)
        assert_true(crossing_put(&keeper, &t, data)); /* it did not ask whether there is room */
    while (crossing_get(&worker, &r))
        n++;
    assert_int_equal(n, CROSSING_TLPS);
    assert_true(worker.broken);
}

static void test_s181_credits_that_were_not_taken(void **state)
{
    (void)state;
    atomic_store(&worker.mine->taken[4][0], 7);
    assert_false(crossing_room(&keeper, 5, 0));
    assert_true(keeper.broken);
}

/* With any bytes in the memory, an end reads within it and stops. */
static void test_s181_any_bytes(void **state)
{
    uint32_t seed = 1;
    for (unsigned round = 0; round < 300; round++) {
        crossing_record r;
        unsigned n = 0;
        for (size_t at = 0; at < 4096; at++) {
            seed = seed * 1664525u + 1013904223u;
            keeper.mine->ring[at] = (uint8_t)(seed >> 24) & (uint8_t)(at % 16 < 8 ? 0x0f : 0xff);
        }
        atomic_store(&keeper.mine->head, (seed >> 8) % (2u * CROSSING_RING_BYTES));
        while (n++ < 100000 && crossing_get(&worker, &r)) {
            if (r.kind == CROSSING_TLP)
                crossing_return(&worker, r.slot, r.arg);
            else if (r.kind == CROSSING_EVENT)
                crossing_return(&worker, r.slot, CROSSING_EVENTS);
        }
        assert_true(n < 100000);
        teardown(state);
        setup(state);
    }
}

/* S-202: the worker makes all that it has block, takes what is in the keeper's pipe away between
   its waking and its reading, and never reads its own. */
static void test_s202_neither_makes_the_other_wait(void **state)
{
    const int its[] = { worker.wake, worker.wake_other };
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(fcntl(its[i], F_SETFL, fcntl(its[i], F_GETFL) & ~O_NONBLOCK), 0);
    (void)alarm(20);
    crossing_woken(&keeper); /* nothing to read */
    assert_false(keeper.deaf);
    for (unsigned n = 0; n < 200000; n++) { /* more than a pipe holds */
        atomic_store(&worker.mine->asleep, 1);
        crossing_nudge(&keeper);
    }
    assert_true(is_woken(&worker));
    (void)alarm(0);
}

/* A pipe without a writer is readable for ever. */
static void test_end_of_the_other_is_heard_once(void **state)
{
    (void)state;
    assert_false(is_woken(&keeper));
    crossing_close(&worker);
    crossing_woken(&keeper);
    assert_true(keeper.deaf);
}

/* ==== Two threads ============================================================================= */

enum { MANY = 60000 };

static void sleep_until_news(crossing *c)
{
    while (!crossing_news(c, true)) {
        struct pollfd p = { c->wake, POLLIN, 0 };
        assert_int_equal(poll(&p, 1, 20000), 1); /* none is lost */
        crossing_woken(c);
    }
}

static void *produce(void *arg)
{
    (void)arg;
    for (uint32_t n = 0; n < MANY;) {
        if (send(&keeper, 1 + n % 2, 0, &n, sizeof n))
            n++;
        else
            sleep_until_news(&keeper);
    }
    return NULL;
}

/* Both sleep whenever they can: no waking is lost, nothing comes twice or out of order. */
static void test_no_waking_is_lost(void **state)
{
    pthread_t thread;
    crossing_record r;
    uint32_t n = 0, value;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, produce, NULL), 0);
    while (n < MANY) {
        if (!crossing_get(&worker, &r)) {
            sleep_until_news(&worker);
            continue;
        }
        memcpy(&value, worker.payload, sizeof value);
        assert_int_equal(value, n);
        crossing_return(&worker, r.slot, r.arg);
        n++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(worker.broken || keeper.broken);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s182_memory_is_sealed),
        CASE(test_records_come_in_order_and_whole),
        CASE(test_credits_are_of_a_slot_and_class),
        CASE(test_only_sleepers_are_woken),
        CASE(test_room_wakes_who_waits_for_it),
        CASE(test_full_ring_takes_no_more),
        CASE(test_s181_positions_that_cannot_be),
        CASE(test_s181_part_of_a_record),
        CASE(test_s181_records_that_cannot_be),
        CASE(test_s181_more_than_the_credits),
        CASE(test_s181_credits_that_were_not_taken),
        CASE(test_s181_any_bytes),
        CASE(test_s202_neither_makes_the_other_wait),
        CASE(test_end_of_the_other_is_heard_once),
        CASE(test_no_waking_is_lost),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
