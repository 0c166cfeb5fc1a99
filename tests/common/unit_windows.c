/* unit_windows.c - tables of DMA windows, against a map that has every address
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dxpu_windows.h"
#include "windows.h"

enum { SPAN = 97, STEPS = 4000 };

static windows w;
static uint8_t map[SPAN];
static uint64_t base; /* of map[0] */
static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)seed * below) >> 32);
}

static int teardown(void **state)
{
    (void)state;
    windows_free(&w);
    return 0;
}

/* Sorted, apart, neighbours merged, none of them empty. */
static void check_form(const windows *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        assert_true(t->at[i].first <= t->at[i].last && t->at[i].access);
        if (i == 0)
            continue;
        assert_true(t->at[i - 1].last < t->at[i].first);
        assert_true(t->at[i - 1].last + 1 < t->at[i].first ||
                    t->at[i - 1].access != t->at[i].access);
    }
}

static void check_map(void)
{
    check_form(&w);
    for (unsigned i = 0; i < SPAN; i++)
        assert_int_equal(windows_at(&w, base + i), map[i]);
    for (unsigned n = 0; n < 40; n++) {
        unsigned at = draw(SPAN), bytes = draw(SPAN - at + 1), access = draw(3) + 1;
        bool all = bytes > 0;
        for (unsigned i = 0; i < bytes; i++)
            all = all && (map[at + i] & access) == access;
        assert_int_equal(windows_allow(&w, base + at, bytes, access), all);
    }
}

static void random_steps(uint64_t from, uint32_t first_seed)
{
    base = from;
    seed = first_seed;
    memset(map, 0, sizeof map);
    windows_clear(&w);
    for (unsigned n = 0; n < STEPS; n++) {
        unsigned first = draw(SPAN), last = first + draw(n % 7 ? 9 : SPAN - first), access;
        bool grant = draw(2) != 0;
        last = last < SPAN ? last : SPAN - 1;
        access = draw(3) + 1;
        for (unsigned i = first; i <= last; i++)
            map[i] = (uint8_t)(grant ? map[i] | access : map[i] & ~access);
        assert_true(grant ? windows_grant(&w, base + first, base + last, access)
                          : windows_revoke(&w, base + first, base + last, access));
        if (n % 8 == 0)
            check_map();
    }
    check_map();
}

static void test_s101_agrees_with_a_map_of_every_address(void **state)
{
    (void)state;
    random_steps(0x100000000ull, 1);
    random_steps(0, 2);
    random_steps(UINT64_MAX - (SPAN - 1), 3); /* ends at 2^64 */
}

static void test_s100_nothing_is_allowed_at_first(void **state)
{
    (void)state;
    assert_false(windows_allow(&w, 0, 1, WINDOW_READ));
    assert_false(windows_allow(&w, UINT64_MAX, 1, WINDOW_WRITE));
    assert_true(windows_grant(&w, 0x1000, 0x1fff, WINDOW_READ)); /* the control */
    assert_true(windows_allow(&w, 0x1000, 0x1000, WINDOW_READ));
}

static void test_s101_edges(void **state)
{
    (void)state;
    assert_true(windows_grant(&w, 0x1000, 0x1fff, WINDOW_READ | WINDOW_WRITE));
    assert_true(windows_grant(&w, 0x2000, 0x2fff, WINDOW_READ));
    assert_int_equal(w.count, 2);
    assert_true(windows_allow(&w, 0x1ffc, 8, WINDOW_READ)); /* over two that touch */
    assert_false(windows_allow(&w, 0x1ffc, 8, WINDOW_WRITE));
    assert_false(windows_allow(&w, 0xfff, 1, WINDOW_READ)); /* one byte outside */
    assert_false(windows_allow(&w, 0x2fff, 2, WINDOW_READ));
    assert_false(windows_allow(&w, 0x1000, 0, WINDOW_READ));
    assert_true(windows_grant(&w, UINT64_MAX - 3, UINT64_MAX, WINDOW_WRITE));
    assert_true(windows_allow(&w, UINT64_MAX - 3, 4, WINDOW_WRITE));
    assert_true(windows_grant(&w, 0, 0xfff, WINDOW_WRITE));
    assert_false(windows_allow(&w, UINT64_MAX - 3, 5, WINDOW_WRITE)); /* would wrap around */
    assert_false(windows_allow(&w, 1, UINT64_MAX, WINDOW_WRITE));
}

static void test_find_is_the_first_that_does_not_end_before(void **state)
{
    static const dxpu_window rows[] = { { 0, 9, 1 }, { 10, 10, 2 }, { 20, UINT64_MAX, 3 } };
    (void)state;
    assert_int_equal(dxpu_windows_find(rows, 3, 0), 0);
    assert_int_equal(dxpu_windows_find(rows, 3, 9), 0);
    assert_int_equal(dxpu_windows_find(rows, 3, 10), 1);
    assert_int_equal(dxpu_windows_find(rows, 3, 11), 2); /* in the gap before it */
    assert_int_equal(dxpu_windows_find(rows, 3, UINT64_MAX), 2);
    assert_int_equal(dxpu_windows_find(rows, 2, 11), 2); /* none */
    assert_int_equal(dxpu_windows_find(NULL, 0, 5), 0);
}

static void test_s102_neighbours_are_one_window(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) /* as memory that is plugged piece by piece */
        assert_true(windows_grant(&w, i << 12, (i << 12) + 0xfff, WINDOW_READ | WINDOW_WRITE));
    assert_int_equal(w.count, 1);
    for (uint64_t i = 0; i < 5000; i += 2)
        assert_true(windows_revoke(&w, i << 12, (i << 12) + 0xfff, WINDOW_READ | WINDOW_WRITE));
    assert_int_equal(w.count, 2500);
    check_form(&w);
    assert_true(windows_grant(&w, 0, (5000ull << 12) - 1, WINDOW_READ | WINDOW_WRITE));
    assert_int_equal(w.count, 1);
}

static void fill(void)
{
    for (uint64_t i = 0; i < DXPU_WINDOWS_MAX; i++)
        assert_true(windows_grant(&w, i * 16, i * 16 + 7, WINDOW_READ));
}

/* What has no place is denied, and nothing else is lost by it. */
static void test_s102_a_full_table_denies(void **state)
{
    (void)state;
    fill();
    assert_false(windows_grant(&w, DXPU_WINDOWS_MAX * 16, DXPU_WINDOWS_MAX * 16 + 7, WINDOW_READ));
    assert_false(windows_allow(&w, DXPU_WINDOWS_MAX * 16, 1, WINDOW_READ));
    assert_int_equal(w.count, DXPU_WINDOWS_MAX);
    assert_true(windows_allow(&w, 16, 8, WINDOW_READ));
    assert_true(windows_grant(&w, 8, 15, WINDOW_READ)); /* two become one: there is place */
    assert_true(windows_grant(&w, DXPU_WINDOWS_MAX * 16, DXPU_WINDOWS_MAX * 16 + 7, WINDOW_READ));
}

/* The middle of a window goes, and there is no place for what is left of it: all of it goes. */
static void test_s102_a_full_table_revokes_more(void **state)
{
    (void)state;
    fill();
    assert_false(windows_revoke(&w, 16 * 5 + 2, 16 * 5 + 3, WINDOW_READ));
    assert_int_equal(w.count, DXPU_WINDOWS_MAX - 1);
    assert_int_equal(windows_at(&w, 16 * 5 + 7), 0);
    assert_int_equal(windows_at(&w, 16 * 4 + 7), WINDOW_READ);
    assert_int_equal(windows_at(&w, 16 * 6), WINDOW_READ);
    check_form(&w);
}

/* In fixed memory, full most of the time: what has no place is not granted, and what is revoked is
   gone, whatever goes with it. */
static void test_s102_fixed_memory(void **state)
{
    enum { ROOM = 12 };
    dxpu_windows fixed;
    unsigned refused[2] = { 0, 0 };
    (void)state;
    dxpu_windows_init(&fixed, malloc(ROOM * sizeof(dxpu_window)), ROOM, NULL);
    assert_non_null(fixed.at);
    base = 0x1000;
    seed = 4;
    memset(map, 0, sizeof map);
    for (unsigned n = 0; n < STEPS; n++) {
        unsigned first = draw(SPAN), last = first + draw(9), access = draw(3) + 1;
        bool grant = draw(3) != 0, done;
        last = last < SPAN ? last : SPAN - 1;
        done = grant ? dxpu_windows_grant(&fixed, base + first, base + last, access)
                     : dxpu_windows_revoke(&fixed, base + first, base + last, access);
        refused[grant] += !done;
        check_form(&fixed);
        for (unsigned i = 0; i < SPAN; i++) {
            unsigned is = dxpu_windows_at(&fixed, base + i), want = map[i];
            if (i >= first && i <= last && (done || !grant))
                want = grant ? want | access : want & ~access;
            assert_true(done || grant ? is == want : (is & ~want) == 0);
            map[i] = (uint8_t)is;
        }
    }
    assert_true(refused[0] > 10 && refused[1] > 10 && fixed.capacity == ROOM);
    free(fixed.at);
}

static bool event(uint8_t type, uint8_t flags, uint64_t first, uint64_t length)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = type;
    e.flags = flags;
    e.base = first;
    e.length = length;
    return windows_event(&w, &e);
}

static void test_s101_events(void **state)
{
    (void)state;
    assert_true(event(DXPU_EVENT_DMA_GRANT, DXPU_EVENT_READ, 0x1000, 0x1000));
    assert_int_equal(windows_at(&w, 0x1fff), WINDOW_READ);
    assert_true(event(DXPU_EVENT_DMA_GRANT, DXPU_EVENT_WRITE, UINT64_MAX, 1));
    assert_int_equal(windows_at(&w, UINT64_MAX), WINDOW_WRITE);
    assert_false(event(DXPU_EVENT_DMA_GRANT, DXPU_EVENT_WRITE, UINT64_MAX, 2)); /* wraps around */
    assert_false(event(DXPU_EVENT_DMA_GRANT, DXPU_EVENT_WRITE, 0x5000, 0));
    assert_int_equal(w.count, 2);
    assert_true(event(DXPU_EVENT_DMA_REVOKE, DXPU_EVENT_READ | DXPU_EVENT_WRITE, 0x1800, 0x800));
    assert_int_equal(windows_at(&w, 0x17ff), WINDOW_READ);
    assert_int_equal(windows_at(&w, 0x1800), 0);
    assert_false(event(DXPU_EVENT_LINK, DXPU_EVENT_READ, 0x9000, 1));
    assert_int_equal(windows_at(&w, 0x9000), 0);
}

/* Each difference reported and applied: any set becomes any other. */
static void test_s103_differences_lead_from_one_to_the_other(void **state)
{
    windows other = { 0 };
    (void)state;
    base = UINT64_MAX - (SPAN - 1);
    seed = 9;
    for (unsigned round = 0; round < 300; round++) {
        windows_change c;
        unsigned steps = 0;
        windows *t[2] = { &w, &other };
        for (unsigned n = 0; n < 2; n++) {
            windows_clear(t[n]);
            for (unsigned i = draw(9); i > 0; i--) {
                uint64_t first = base + draw(SPAN), last = first + draw(30);
                assert_true(
                    windows_grant(t[n], first, last < first ? UINT64_MAX : last, draw(3) + 1));
            }
        }
        for (uint64_t from = 0; windows_differ(&w, &other, from, &c); from = c.last + 1) {
            assert_true(windows_revoke(&w, c.first, c.last, c.is & ~c.to_be));
            assert_true(windows_grant(&w, c.first, c.last, c.to_be & ~c.is));
            steps++;
            if (c.last == UINT64_MAX)
                break;
        }
        assert_false(windows_differ(&w, &other, 0, &c));
        assert_int_equal(w.count, other.count);
        assert_true(steps <= 40);
    }
    assert_true(windows_grant(&other, 4, 5, WINDOW_READ)); /* the control: it sees one */
    assert_true(windows_differ(&w, &other, 0, &(windows_change){ 0, 0, 0, 0 }));
    assert_true(windows_copy(&w, &other));
    assert_false(windows_differ(&w, &other, 0, &(windows_change){ 0, 0, 0, 0 }));
    windows_free(&other);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_s100_nothing_is_allowed_at_first, teardown),
        cmocka_unit_test_teardown(test_s101_agrees_with_a_map_of_every_address, teardown),
        cmocka_unit_test_teardown(test_s101_edges, teardown),
        cmocka_unit_test(test_find_is_the_first_that_does_not_end_before),
        cmocka_unit_test_teardown(test_s101_events, teardown),
        cmocka_unit_test_teardown(test_s102_neighbours_are_one_window, teardown),
        cmocka_unit_test_teardown(test_s102_a_full_table_denies, teardown),
        cmocka_unit_test_teardown(test_s102_a_full_table_revokes_more, teardown),
        cmocka_unit_test_teardown(test_s102_fixed_memory, teardown),
        cmocka_unit_test_teardown(test_s103_differences_lead_from_one_to_the_other, teardown),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
