/* unit_queue.c - TLPs that wait for a channel: which may pass which
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "queue.h"

enum { CAPACITY = 8, BYTES = 16 };

static tlp_queue q;

static int setup(void **state)
{
    (void)state;
    memset(&q, 0, sizeof q);
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (queue_init(&q, cls, CAPACITY, BYTES))
            return -1;
        q.cls[cls].head = q.cls[cls].tail = UINT32_MAX - 2; /* wraps soon */
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    queue_free(&q);
    return 0;
}

static bool push(unsigned cls, uint64_t user, size_t len)
{
    uint8_t data[64];
    dxpu_bytes tlp = { data, len };
    memset(data, (int)user, sizeof data);
    return queue_push(&q, cls, tlp, user);
}

static bool next_is(unsigned cls, uint64_t user)
{
    const queue_item *w = queue_peek(&q, cls);
    return w && w->user == user && w->bytes[w->len - 1] == (uint8_t)user;
}

static void test_each_class_keeps_its_order(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < CAPACITY; i++)
            assert_true(push(DXPU_NONPOSTED, i + 1, i % 2 ? 12 : 64)); /* some are allocated */
        assert_false(push(DXPU_NONPOSTED, 99, 12));
        assert_int_equal(queue_used(&q, DXPU_NONPOSTED), CAPACITY);
        for (unsigned i = 0; i < CAPACITY; i++) {
            assert_true(next_is(DXPU_NONPOSTED, i + 1));
            queue_pop(&q, DXPU_NONPOSTED);
        }
        assert_null(queue_peek(&q, DXPU_NONPOSTED));
    }
}

static void test_nothing_passes_posted(void **state)
{
    (void)state;
    assert_true(push(DXPU_COMPLETION, 1, 12)); /* before any posted one */
    assert_true(push(DXPU_POSTED, 2, 12));
    assert_true(push(DXPU_POSTED, 3, 12));
    assert_true(push(DXPU_NONPOSTED, 4, 12));
    assert_true(push(DXPU_COMPLETION, 5, 12));
    assert_true(push(DXPU_POSTED, 6, 12));
    assert_true(next_is(DXPU_COMPLETION, 1));
    queue_pop(&q, DXPU_COMPLETION);
    for (unsigned i = 0; i < 2; i++) {
        assert_null(queue_peek(&q, DXPU_NONPOSTED));
        assert_null(queue_peek(&q, DXPU_COMPLETION));
        assert_true(next_is(DXPU_POSTED, 2 + i));
        queue_pop(&q, DXPU_POSTED);
    }
    assert_true(next_is(DXPU_NONPOSTED, 4)); /* 6 came later */
    assert_true(next_is(DXPU_COMPLETION, 5));
    assert_int_equal(queue_first(&q, DXPU_POSTED)->user, 6);
}

/* Requests that wait for ever stop neither posted TLPs nor completions. */
static void test_requests_stop_nothing(void **state)
{
    (void)state;
    assert_true(push(DXPU_NONPOSTED, 1, 12));
    assert_true(push(DXPU_POSTED, 2, 12));
    assert_true(next_is(DXPU_POSTED, 2));
    queue_pop(&q, DXPU_POSTED);
    assert_true(push(DXPU_COMPLETION, 3, 12));
    assert_true(next_is(DXPU_COMPLETION, 3));
    assert_true(next_is(DXPU_NONPOSTED, 1));
}

static const dxpu_event *push_event(uint8_t flags)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_HOT_RESET;
    e.flags = flags;
    return queue_push_event(&q, &e) ? queue_peek_event(&q) : NULL;
}

static void test_d35_events_are_barriers(void **state)
{
    const dxpu_event *e;
    (void)state;
    e = push_event(DXPU_EVENT_ON); /* nothing waits: it may go */
    assert_non_null(e);
    assert_true(push(DXPU_COMPLETION, 1, 12));
    assert_false(next_is(DXPU_COMPLETION, 1));
    queue_pop_event(&q);
    assert_true(next_is(DXPU_COMPLETION, 1));
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        assert_true(push(cls, 2, 12));
    assert_null(push_event(DXPU_EVENT_ON));
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        assert_true(push(cls, 3, 12));
    assert_null(push_event(0));
    queue_pop(&q, DXPU_COMPLETION);
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        assert_null(queue_peek_event(&q));
        assert_true(next_is(cls, 2));
        queue_pop(&q, cls);
        assert_null(queue_peek(&q, cls)); /* the other classes are not there yet */
    }
    e = queue_peek_event(&q);
    assert_true(e && e->flags == DXPU_EVENT_ON);
    queue_pop_event(&q);
    assert_null(queue_peek_event(&q));
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        assert_true(next_is(cls, 3));
        queue_pop(&q, cls);
    }
    e = queue_peek_event(&q);
    assert_true(e && e->flags == 0);
    queue_clear_events(&q);
    for (unsigned i = 0; i < QUEUE_EVENTS; i++)
        assert_non_null(push_event(0));
    assert_null(push_event(0));
    queue_clear_events(&q);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_each_class_keeps_its_order),
        CASE(test_nothing_passes_posted),
        CASE(test_requests_stop_nothing),
        CASE(test_d35_events_are_barriers),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
