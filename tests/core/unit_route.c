/* Routing tables: spec/route.md, "Tables".  SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <cmocka.h>

enum { CAPACITY = 8 };
enum {
    COMMAND = 0x04,
    BUSES = 0x18,
    MEMORY = 0x20,
    PREF = 0x24,
    PREF_BASE = 0x28,
    PREF_LIMIT = 0x2c
};

typedef struct bench {
    dxpu_host_table t;
    dxpu_host_entry entries[CAPACITY];
    dxpu_host_window windows[2 * CAPACITY];
} bench;

static void bench_init(bench *b)
{
    memset(b, 0xee, sizeof *b); /* init must not trust what was there */
    assert_int_equal(dxpu_host_init(&b->t, b->entries, b->windows, CAPACITY), DXPU_OK);
}

static dxpu_host_entry row_of(uint16_t port)
{
    dxpu_host_entry e;
    memset(&e, 0, sizeof e);
    e.port = port;
    e.box.node = 7;
    e.box.slot = (uint16_t)(port >> 3 & 31);
    e.box.function = DXPU_FUNCTION_ALL;
    e.path = 2;
    e.epoch = 99;
    e.channel = 1000u + port;
    return e;
}

static int add(bench *b, uint16_t port)
{
    dxpu_host_entry e = row_of(port);
    return dxpu_host_add(&b->t, &e);
}

static int learn(bench *b, int row, unsigned reg, uint32_t value)
{
    return dxpu_host_learn(&b->t, (uint32_t)row, (uint16_t)reg, 0xf, value);
}

static int at(const bench *b, uint64_t address)
{
    return dxpu_host_by_address(&b->t, address);
}

static int behind(const bench *b, unsigned bus)
{
    return dxpu_host_by_bdf(&b->t, DXPU_BDF(bus, 5, 3));
}

/* The windows are sorted and apart, the counts are right, the columns say what is in force. */
static void check(const bench *b)
{
    const dxpu_host_table *t = &b->t;
    uint32_t used = 0, blocked = 0;
    for (uint32_t i = 0; i < t->window_count; i++) {
        const dxpu_host_window *w = &t->windows[i];
        assert_true(w->range.base <= w->range.limit);
        if (i)
            assert_true(w[-1].range.limit < w->range.base);
        assert_true(t->entries[w->entry].used);
    }
    for (uint32_t i = 0; i < CAPACITY; i++) {
        const dxpu_host_entry *e = &t->entries[i];
        used += e->used;
        blocked += e->flags != 0;
        if (e->memory.base <= e->memory.limit && e->used) {
            assert_int_equal(dxpu_host_by_address(t, e->memory.base), i);
            assert_int_equal(dxpu_host_by_address(t, e->memory.limit), i);
        }
        if (e->prefetchable.base <= e->prefetchable.limit && e->used) {
            assert_int_equal(dxpu_host_by_address(t, e->prefetchable.base), i);
            assert_int_equal(dxpu_host_by_address(t, e->prefetchable.limit), i);
        }
    }
    for (unsigned bus = 0; bus < 256; bus++) {
        int row = dxpu_host_by_bdf(t, DXPU_BDF(bus, 0, 0));
        if (row >= 0)
            assert_true(t->entries[row].bus <= bus && bus <= t->entries[row].bus_last);
    }
    assert_int_equal(used, t->used);
    assert_int_equal(blocked, t->blocked);
}

static void test_r1_rows(void **state)
{
    bench b;
    (void)state;
    assert_int_equal(dxpu_host_init(&b.t, b.entries, b.windows, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_host_init(&b.t, b.entries, b.windows, 65535), DXPU_E_ARG);
    bench_init(&b);
    for (int i = 0; i < CAPACITY; i++)
        assert_int_equal(add(&b, DXPU_BDF(2, i, 0)), i);
    assert_int_equal(add(&b, DXPU_BDF(2, 9, 0)), DXPU_E_FULL);
    assert_int_equal(b.t.used, CAPACITY);
    assert_int_equal(b.entries[3].box.node, 7);
    assert_int_equal(b.entries[3].box.slot, 3);
    assert_int_equal(b.entries[3].channel, 1000u + DXPU_BDF(2, 3, 0));
    assert_int_equal(b.entries[3].path, 2);
    assert_int_equal(b.entries[3].epoch, 99);
    assert_int_equal(dxpu_host_remove(&b.t, 3), DXPU_OK);
    assert_int_equal(dxpu_host_remove(&b.t, 3), DXPU_E_NONE);
    assert_int_equal(dxpu_host_remove(&b.t, CAPACITY), DXPU_E_NONE);
    assert_int_equal(dxpu_host_set_port(&b.t, 3, 1), DXPU_E_NONE);
    assert_int_equal(dxpu_host_set_port(&b.t, CAPACITY, 1), DXPU_E_NONE);
    assert_int_equal(learn(&b, 3, COMMAND, 2), DXPU_E_NONE);
    assert_int_equal(learn(&b, CAPACITY, COMMAND, 2), DXPU_E_NONE);
    assert_int_equal(add(&b, DXPU_BDF(2, 9, 0)), 3);
    check(&b);
}

static void test_r1_smallest_and_largest(void **state)
{
    static dxpu_host_entry many[65534];
    static dxpu_host_window many_windows[2 * 65534];
    dxpu_host_entry one[1], e = row_of(DXPU_BDF(2, 0, 0));
    dxpu_host_window windows[2];
    dxpu_host_table t;
    (void)state;
    assert_int_equal(dxpu_host_init(&t, one, windows, 1), DXPU_OK);
    assert_int_equal(dxpu_host_learn(&t, 0, COMMAND, 0xf, 2), DXPU_E_NONE);
    assert_int_equal(dxpu_host_add(&t, &e), 0);
    assert_int_equal(dxpu_host_add(&t, &e), DXPU_E_FULL);
    assert_int_equal(dxpu_host_learn(&t, 1, COMMAND, 0xf, 2), DXPU_E_NONE);
    assert_int_equal(dxpu_host_remove(&t, 1), DXPU_E_NONE);
    assert_int_equal(dxpu_host_learn(&t, 0, BUSES, 0xf, 0x010100), DXPU_OK);
    assert_int_equal(dxpu_host_init(&t, many, many_windows, 65534), DXPU_OK);
    for (int i = 0; i < 65533; i++)
        many[i].used = true; /* filling it by add() takes its square */
    assert_int_equal(dxpu_host_add(&t, &e), 65533);
    assert_int_equal(dxpu_host_learn(&t, 65533, BUSES, 0xf, 0x010100), DXPU_OK);
    assert_int_equal(dxpu_host_by_bdf(&t, DXPU_BDF(1, 0, 0)), 65533);
}

static void test_r1_presets(void **state)
{
    static const struct {
        dxpu_range memory, prefetchable;
        uint8_t bus, bus_last;
        int rc;
    } rows[] = {
        /* 0 */ { { 0xe0000000u, 0xe01fffffu }, { 0x4000000000u, 0x4fffffffffu }, 3, 5, 0 },
        /* 1 */ { { 0, 0 }, { 0, 0 }, 0, 0, 1 },
        /* 2 */ { { 1, 0 }, { UINT64_MAX, 0 }, 6, 6, 2 },
        /* 3 */ { { 0xe0200000u, 0xe03ffffeu }, { 0, 0 }, 0, 0, DXPU_E_ARG },   /* limit off 1 MB */
        /* 4 */ { { 0xe0280000u, 0xe03fffffu }, { 0, 0 }, 0, 0, DXPU_E_ARG },   /* base off 1 MB */
        /* 5 */ { { 0x100000000u, 0x1000fffffu }, { 0, 0 }, 0, 0, DXPU_E_ARG }, /* above 4 GB */
        /* 6 */ { { 0, 0 }, { 0x5000000001u, 0x50000fffffu }, 0, 0, DXPU_E_ARG },
        /* 7 */ { { 0, 0 }, { 0, 0 }, 9, 8, DXPU_E_ARG },
        /* 8 */ { { 0xe0100000u, 0xe02fffffu }, { 0, 0 }, 0, 0, DXPU_E_OVERLAP }, /* row 0 */
        /* 9 */ { { 0, 0 }, { 0x3000000000u, 0x50000fffffu }, 0, 0, DXPU_E_OVERLAP },
        /* 10 */ { { 0, 0 }, { 0xe0000000u, 0xe00fffffu }, 0, 0, DXPU_E_OVERLAP },
        /* 11 */ { { 0, 0 }, { 0, 0 }, 5, 7, DXPU_E_OVERLAP },
        /* 12 */ { { 0xe0200000u, 0xe02fffffu }, { 0x5000000000u, 0x50000fffffu }, 7, 255, 3 },
        /* 13 */ { { 0, 0xfffffu }, { 0xfffffffffff00000u, UINT64_MAX }, 1, 2, 4 }, /* the ends */
        /* 14 */ { { 0, 0 }, { 0xfff00000u, 0x1000fffffu }, 0, 0, 5 }, /* low halves as of none */
    };
    bench b;
    (void)state;
    bench_init(&b);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_host_entry e = row_of(DXPU_BDF(2, i, 0));
        e.memory = rows[i].memory;
        e.prefetchable = rows[i].prefetchable;
        e.bus = rows[i].bus;
        e.bus_last = rows[i].bus_last;
        e.flags = 0xff; /* learnt and private fields do not matter */
        memset(e.reg, 0xff, sizeof e.reg);
        uint32_t used = b.t.used;
        int rc = dxpu_host_add(&b.t, &e);
        if (rc != rows[i].rc)
            fail_msg("row %zu: %d", i, rc);
        assert_int_equal(b.t.used, used + (rc >= 0));
        check(&b);
    }
    assert_int_equal(at(&b, 0xe01fffffu), 0);
    assert_int_equal(at(&b, 0x4000000000u), 0);
    assert_int_equal(at(&b, 0xe0200000u), 3);
    assert_int_equal(at(&b, 0), 4);
    assert_int_equal(at(&b, UINT64_MAX), 4);
    assert_int_equal(at(&b, 0x100000000u), 5);
    assert_int_equal(behind(&b, 255), 3);
    for (unsigned i = 0; i < 6; i++) /* nothing preset */
        assert_int_equal(b.entries[1].reg[i], i == 2 || i == 3 ? 0x0000fff0u : 0);
    /* the presets are in the registers: half a register may be written on top of them */
    assert_int_equal(dxpu_host_learn(&b.t, 0, MEMORY, 0xc, 0xe0000000u), DXPU_OK);
    assert_int_equal(b.entries[0].memory.base, 0xe0000000u);
    assert_int_equal(b.entries[0].memory.limit, 0xe00fffffu);
    assert_int_equal(b.entries[1].memory.base > b.entries[1].memory.limit, true);
    assert_int_equal(learn(&b, 1, COMMAND, 2), DXPU_OK); /* nothing preset: nothing comes on */
    assert_int_equal(learn(&b, 2, COMMAND, 2), DXPU_OK);
    assert_int_equal(b.t.window_count, 7);
    assert_int_equal(learn(&b, 0, COMMAND, 0), DXPU_OK);
    assert_int_equal(at(&b, 0x4000000000u), DXPU_E_NONE);
    check(&b);
}

static void test_r2_by_address(void **state)
{
    bench b;
    (void)state;
    bench_init(&b);
    assert_int_equal(at(&b, 0), DXPU_E_NONE); /* an empty table */
    assert_int_equal(add(&b, DXPU_BDF(2, 0, 0)), 0);
    assert_int_equal(learn(&b, 0, COMMAND, 2), DXPU_OK);
    assert_int_equal(learn(&b, 0, MEMORY, 0xe010e010u), DXPU_OK); /* one MB */
    assert_int_equal(at(&b, 0xe00fffffu), DXPU_E_NONE);
    assert_int_equal(at(&b, 0xe0100000u), 0);
    assert_int_equal(at(&b, 0xe01fffffu), 0);
    assert_int_equal(at(&b, 0xe0200000u), DXPU_E_NONE);
    assert_int_equal(at(&b, 0x1e0100000u), DXPU_E_NONE);          /* 64 bits are compared */
    assert_int_equal(learn(&b, 0, MEMORY, 0xe000e010u), DXPU_OK); /* base > limit: off */
    assert_int_equal(at(&b, 0xe0100000u), DXPU_E_NONE);
    assert_int_equal(learn(&b, 0, MEMORY, 0x00000000u), DXPU_OK); /* the first MB */
    assert_int_equal(at(&b, 0), 0);
    assert_int_equal(at(&b, 0xfffffu), 0);
    assert_int_equal(at(&b, 0x100000u), DXPU_E_NONE);
    assert_int_equal(learn(&b, 0, MEMORY, 0xfff00000u), DXPU_OK); /* all of 4 GB */
    assert_int_equal(at(&b, 0xffffffffu), 0);
    assert_int_equal(at(&b, 0x100000000u), DXPU_E_NONE);
    check(&b);
}

static void test_r3_by_bdf(void **state)
{
    bench b;
    (void)state;
    bench_init(&b);
    assert_int_equal(add(&b, DXPU_BDF(2, 0, 0)), 0);
    assert_int_equal(add(&b, DXPU_BDF(2, 1, 0)), 1);
    assert_int_equal(behind(&b, 0), DXPU_E_NONE);
    assert_int_equal(learn(&b, 0, BUSES, 0x00050302), DXPU_OK); /* 3..5 */
    assert_int_equal(learn(&b, 1, BUSES, 0x40ff0602), DXPU_OK); /* 6..255, latency timer */
    assert_int_equal(behind(&b, 2), DXPU_E_NONE);
    assert_int_equal(behind(&b, 3), 0);
    assert_int_equal(behind(&b, 5), 0);
    assert_int_equal(behind(&b, 6), 1);
    assert_int_equal(behind(&b, 255), 1);
    assert_int_equal(b.entries[0].bus, 3);
    assert_int_equal(b.entries[0].bus_last, 5);
    assert_int_equal(b.entries[1].reg[1], 0x00ff0602);          /* the latency timer is read-only */
    assert_int_equal(learn(&b, 0, BUSES, 0x00020302), DXPU_OK); /* subordinate below secondary */
    assert_int_equal(behind(&b, 3), DXPU_E_NONE);
    assert_int_equal(b.entries[0].bus, 0);
    assert_int_equal(b.entries[0].bus_last, 0);
    assert_int_equal(learn(&b, 0, BUSES, 0x00050002), DXPU_OK); /* secondary 0: not assigned */
    assert_int_equal(behind(&b, 0), DXPU_E_NONE);
    assert_int_equal(behind(&b, 3), DXPU_E_NONE);
    assert_int_equal(learn(&b, 0, BUSES, 0x00040402), DXPU_OK);
    assert_int_equal(behind(&b, 4), 0);
    check(&b);
}

static void test_r4_byte_enables_and_masks(void **state)
{
    static const unsigned ignored[] = { 0x00, 0x08, 0x10, 0x1c, 0x30, 0x3c, 0x40, 0x420, 0x06 };
    bench b;
    (void)state;
    bench_init(&b);
    assert_int_equal(add(&b, DXPU_BDF(2, 0, 0)), 0);
    for (unsigned i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        assert_int_equal(learn(&b, 0, ignored[i], 0xffffffffu), DXPU_OK);
    assert_int_equal(dxpu_host_learn(&b.t, 0, COMMAND, 0x0, 0xffffffffu), DXPU_OK); /* no byte */
    assert_int_equal(b.t.count_learnt, 0);
    assert_int_equal(b.entries[0].reg[0], 0);
    for (unsigned be = 1; be < 16; be++) {
        uint32_t mask = 0;
        for (unsigned i = 0; i < 4; i++)
            mask |= be >> i & 1 ? 0xffu << 8 * i : 0;
        b.entries[0].reg[4] = 0x12345678;
        assert_int_equal(dxpu_host_learn(&b.t, 0, PREF_BASE, (uint8_t)be, 0xa5b6c7d8u), DXPU_OK);
        assert_int_equal(b.entries[0].reg[4], (0x12345678 & ~mask) | (0xa5b6c7d8u & mask));
    }
    assert_int_equal(b.t.count_learnt, 15);
    static const struct {
        unsigned reg;
        uint32_t kept;
    } masks[6] = {
        { COMMAND, 0xffff },        { BUSES, 0xffffff }, /* no status, no latency timer */
        { MEMORY, 0xfff0fff0u },    { PREF, 0xfff0fff0u },
        { PREF_BASE, 0xffffffffu }, { PREF_LIMIT, 0xffffffffu }
    };
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(learn(&b, 0, masks[i].reg, 0xffffffffu), DXPU_OK);
        assert_int_equal(b.entries[0].reg[i], masks[i].kept);
    }
    assert_int_equal(learn(&b, 0, BUSES, 0), DXPU_OK);
    /* the type bits of the windows are read-only: what is written there does nothing */
    assert_int_equal(learn(&b, 0, MEMORY, 0xe01fe01fu), DXPU_OK);
    assert_int_equal(b.entries[0].memory.base, 0xe0100000u);
    assert_int_equal(b.entries[0].memory.limit, 0xe01fffffu);
    assert_int_equal(learn(&b, 0, PREF_BASE, 0x40), DXPU_OK);
    assert_int_equal(learn(&b, 0, PREF_LIMIT, 0x41), DXPU_OK);
    assert_int_equal(learn(&b, 0, PREF, 0x00100020), DXPU_OK); /* 64 bits though written as 0 */
    assert_int_equal(b.entries[0].prefetchable.base, 0x4000200000u);
    assert_int_equal(b.entries[0].prefetchable.limit, 0x41001fffffu);
    check(&b);
}

static void test_r5_overlap_is_blocked_then_retried(void **state)
{
    bench b;
    (void)state;
    bench_init(&b);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(add(&b, DXPU_BDF(2, i, 0)), i);
        assert_int_equal(learn(&b, i, COMMAND, 2), DXPU_OK);
        assert_int_equal(learn(&b, i, MEMORY, 0x0000fff0u), DXPU_OK);
        assert_int_equal(learn(&b, i, PREF, 0x0000fff0u), DXPU_OK);
    }
    assert_int_equal(b.t.window_count, 0);
    assert_int_equal(learn(&b, 0, MEMORY, 0xe0f0e000u), DXPU_OK);        /* e00..e0f */
    assert_int_equal(learn(&b, 1, MEMORY, 0xe1f0e100u), DXPU_OK);        /* e10..e1f: touches */
    assert_int_equal(learn(&b, 2, MEMORY, 0xe1f0e0f0u), DXPU_E_OVERLAP); /* over both */
    assert_int_equal(b.t.blocked, 1);
    assert_int_equal(b.t.count_overlap, 1);
    assert_int_equal(at(&b, 0xe0ffffffu), 0);
    assert_int_equal(at(&b, 0xe1000000u), 1);
    assert_true(b.entries[2].memory.base > b.entries[2].memory.limit);
    check(&b);
    assert_int_equal(learn(&b, 0, MEMORY, 0xe0e0e000u), DXPU_OK); /* one neighbour shrinks ... */
    assert_int_equal(at(&b, 0xe0f00000u), DXPU_E_NONE);           /* ... the other is in the way */
    assert_int_equal(b.t.blocked, 1);
    assert_int_equal(learn(&b, 1, COMMAND, 0), DXPU_OK); /* it goes off */
    assert_int_equal(at(&b, 0xe0f00000u), 2);
    assert_int_equal(at(&b, 0xe1ffffffu), 2);
    assert_int_equal(b.t.blocked, 0);
    check(&b);
    assert_int_equal(learn(&b, 1, COMMAND, 2), DXPU_E_OVERLAP); /* now this one waits */
    assert_int_equal(learn(&b, 1, BUSES, 0x030300),
                     DXPU_E_OVERLAP); /* still, though its bus is in */
    assert_int_equal(behind(&b, 3), 1);
    assert_int_equal(learn(&b, 3, BUSES, 0x040200), DXPU_E_OVERLAP);
    assert_int_equal(behind(&b, 2), DXPU_E_NONE); /* no part of the span */
    assert_int_equal(b.t.blocked, 2);
    check(&b);
    assert_int_equal(dxpu_host_remove(&b.t, 2), DXPU_OK);
    assert_int_equal(at(&b, 0xe1000000u), 1);
    assert_int_equal(b.t.blocked, 1);
    assert_int_equal(dxpu_host_remove(&b.t, 1), DXPU_OK);
    assert_int_equal(b.t.blocked, 0);
    assert_int_equal(behind(&b, 2), 3);
    assert_int_equal(behind(&b, 4), 3);
    assert_int_equal(at(&b, 0xe1000000u), DXPU_E_NONE);
    check(&b);
    /* a blocked row goes: it no longer counts */
    assert_int_equal(learn(&b, 3, MEMORY, 0xe000e000u), DXPU_E_OVERLAP);
    assert_int_equal(dxpu_host_remove(&b.t, 3), DXPU_OK);
    assert_int_equal(b.t.blocked, 0);
    assert_int_equal(at(&b, 0xe0000000u), 0);
    check(&b);
}

static void test_r5_own_windows_may_overlap(void **state)
{
    bench b;
    (void)state;
    bench_init(&b);
    assert_int_equal(add(&b, DXPU_BDF(2, 0, 0)), 0);
    assert_int_equal(add(&b, DXPU_BDF(2, 1, 0)), 1);
    assert_int_equal(learn(&b, 0, MEMORY, 0xe0f0e000u), DXPU_OK);
    assert_int_equal(learn(&b, 0, PREF, 0xe170e080u), DXPU_OK);
    assert_int_equal(learn(&b, 0, COMMAND, 6), DXPU_OK);
    assert_int_equal(b.t.window_count, 1); /* their union */
    assert_int_equal(at(&b, 0xe0000000u), 0);
    assert_int_equal(at(&b, 0xe17fffffu), 0);
    assert_int_equal(learn(&b, 1, COMMAND, 2), DXPU_OK);
    assert_int_equal(learn(&b, 1, PREF, 0x0000fff0u), DXPU_OK);
    assert_int_equal(learn(&b, 1, MEMORY, 0xe170e170u), DXPU_E_OVERLAP);
    assert_int_equal(learn(&b, 0, PREF, 0xe000e000u), DXPU_OK); /* inside the other */
    assert_int_equal(b.t.window_count, 2);
    assert_int_equal(at(&b, 0xe1700000u), 1);
    assert_int_equal(at(&b, 0xe0ffffffu), 0);
    check(&b);
    assert_int_equal(learn(&b, 0, PREF, 0x00000000u), DXPU_OK); /* apart, and below */
    assert_int_equal(b.t.window_count, 3);
    assert_int_equal(at(&b, 0xfffffu), 0);
    check(&b);
    assert_int_equal(learn(&b, 0, PREF, 0xe1f0e160u),
                     DXPU_E_OVERLAP); /* prefetchable alone waits */
    assert_int_equal(at(&b, 0xe0000000u), 0);
    assert_int_equal(at(&b, 0xe1600000u), DXPU_E_NONE);
    check(&b);
}

/* A port whose bus was renumbered keeps its windows. */
static void test_r6_set_port(void **state)
{
    bench b;
    (void)state;
    bench_init(&b);
    assert_int_equal(add(&b, DXPU_BDF(2, 0, 0)), 0);
    assert_int_equal(learn(&b, 0, BUSES, 0x00030302), DXPU_OK);
    assert_int_equal(dxpu_host_set_port(&b.t, 0, DXPU_BDF(4, 0, 0)), DXPU_OK);
    assert_int_equal(b.entries[0].port, DXPU_BDF(4, 0, 0));
    assert_int_equal(behind(&b, 3), 0);
    assert_int_equal(dxpu_host_set_port(&b.t, 1, DXPU_BDF(4, 0, 0)), DXPU_E_NONE);
    check(&b);
}

/* ---- what an operating system does to bridges ---- */

static void os_write(bench *b, uint16_t port, unsigned reg, unsigned be, uint32_t value)
{
    uint32_t row = 0;
    while (b->entries[row].port != port)
        row++;
    (void)dxpu_host_learn(&b->t, row, (uint16_t)reg, (uint8_t)be, value);
    check(b);
}

/* Windows are probed with all ones and put back, then written: upper limit 0 first, so that a
   half-written pair is an empty window. */
static void os_windows(bench *b, uint16_t port, uint32_t memory, uint64_t base, uint64_t limit)
{
    os_write(b, port, MEMORY, 0xf, memory);
    os_write(b, port, PREF_LIMIT, 0xf, 0);
    os_write(b, port, PREF, 0xf, (uint32_t)(base >> 16 & 0xfff0) | (uint32_t)(limit & 0xfff00000u));
    os_write(b, port, PREF_BASE, 0xf, (uint32_t)(base >> 32));
    os_write(b, port, PREF_LIMIT, 0xf, (uint32_t)(limit >> 32));
}

static void test_r4_r6_enumerator(void **state)
{
    uint16_t p0 = DXPU_BDF(2, 0, 0), p1 = DXPU_BDF(2, 1, 0);
    bench b;
    (void)state;
    bench_init(&b);
    assert_int_equal(add(&b, p0), 0);
    assert_int_equal(add(&b, p1), 1);
    /* firmware left buses; the system clears them, sizes, and scans one port after the other */
    for (int i = 0; i < 2; i++) {
        uint16_t port = i ? p1 : p0;
        os_write(&b, port, BUSES, 0x7, 0);
        os_write(&b, port, PREF, 0xf, 0xffe0fff0u); /* is there a window? */
        os_write(&b, port, PREF, 0xf, 0x00000000u);
        os_write(&b, port, PREF_BASE, 0xf, 0xffffffffu); /* are there 64 bits? */
        os_write(&b, port, PREF_BASE, 0xf, 0x00000000u);
        os_write(&b, port, MEMORY, 0xf, 0xffffffffu);
        os_write(&b, port, MEMORY, 0xf, 0x00000000u);
    }
    assert_int_equal(b.t.window_count, 0);    /* Memory Space is clear all the while */
    os_write(&b, p0, BUSES, 0x7, 0x00ff0302); /* everything, while its bus is scanned */
    assert_int_equal(behind(&b, 200), 0);
    os_write(&b, p0, BUSES, 0x4, 0x00050000); /* three buses are kept for it: one byte */
    os_write(&b, p1, BUSES, 0x7, 0x00ff0602);
    assert_int_equal(behind(&b, 200), 1);
    os_write(&b, p1, BUSES, 0x4, 0x00080000);
    assert_int_equal(behind(&b, 5), 0);
    assert_int_equal(behind(&b, 6), 1);
    assert_int_equal(behind(&b, 9), DXPU_E_NONE);
    assert_int_equal(b.t.count_overlap, 0);
    /* windows, then Memory Space with bus mastering, the status half not enabled */
    os_windows(&b, p0, 0xe0f0e000u, 0x4000000000u, 0x47ffffffffu);
    os_windows(&b, p1, 0xe1f0e100u, 0x4800000000u, 0x4fffffffffu);
    assert_int_equal(b.t.window_count, 0);
    os_write(&b, p0, COMMAND, 0x3, 0x0006);
    os_write(&b, p1, COMMAND, 0x3, 0x0006);
    assert_int_equal(b.t.window_count, 4);
    assert_int_equal(at(&b, 0xe0ffffffu), 0);
    assert_int_equal(at(&b, 0xe1000000u), 1);
    assert_int_equal(at(&b, 0x47ffffffffu), 0);
    assert_int_equal(at(&b, 0x4800000000u), 1);
    /* hot-add behind p0: its windows are moved while Memory Space stays on */
    os_windows(&b, p0, 0xe2f0e200u, 0x5000000000u, 0x5fffffffffu);
    assert_int_equal(b.t.count_overlap, 0); /* no half-written pair ever hit the neighbour */
    assert_int_equal(at(&b, 0xe0000000u), DXPU_E_NONE);
    assert_int_equal(at(&b, 0xe2000000u), 0);
    assert_int_equal(at(&b, 0x5fffffffffu), 0);
    assert_int_equal(at(&b, 0x4000000000u), DXPU_E_NONE);
    /* base and limit by halves, as firmware does */
    os_write(&b, p1, MEMORY, 0x3, 0x0000e300u); /* base above limit: off */
    assert_int_equal(at(&b, 0xe1000000u), DXPU_E_NONE);
    os_write(&b, p1, MEMORY, 0xc, 0xe3f00000u);
    assert_int_equal(at(&b, 0xe3ffffffu), 1);
    /* a neighbour grows over it first, and is let in when it has moved */
    os_write(&b, p0, MEMORY, 0xf, 0xe3f0e200u);
    assert_int_equal(b.t.blocked, 1);
    assert_int_equal(at(&b, 0xe2000000u), DXPU_E_NONE);
    os_write(&b, p1, MEMORY, 0xf, 0xe4f0e400u);
    assert_int_equal(b.t.blocked, 0);
    assert_int_equal(at(&b, 0xe3000000u), 0);
    /* the sizing of a window in use: Memory Space goes off, all ones, back, on */
    os_write(&b, p1, COMMAND, 0x3, 0x0000);
    os_write(&b, p1, PREF, 0xf, 0xffffffffu);
    os_write(&b, p1, PREF, 0xf, 0xfff00000u);
    os_write(&b, p1, COMMAND, 0x3, 0x0006);
    assert_int_equal(at(&b, 0x4800000000u), 1);
    assert_int_equal(at(&b, 0x4fffffffffu), 1);
}

/* What a route depends on: the type, and where the TLP goes. */
static dxpu_tlp going(unsigned type, uint16_t target, uint64_t address)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = (uint8_t)type;
    t.target = target;
    t.address = address;
    return t;
}

static void test_r8_route(void **state)
{
    bench b;
    dxpu_tlp t;
    (void)state;
    bench_init(&b);
    assert_int_equal(add(&b, DXPU_BDF(2, 0, 0)), 0);
    assert_int_equal(add(&b, DXPU_BDF(2, 1, 0)), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(learn(&b, i, BUSES, i ? 0x040402 : 0x030302), DXPU_OK);
        assert_int_equal(learn(&b, i, MEMORY, i ? 0xe010e010u : 0xe000e000u), DXPU_OK);
        assert_int_equal(learn(&b, i, PREF, 0x0000fff0u), DXPU_OK);
        assert_int_equal(learn(&b, i, COMMAND, 2), DXPU_OK);
    }
    for (unsigned type = 0; type < DXPU_TLP_TYPE_COUNT; type++) {
        t = going(type, DXPU_BDF(4, 0, 0), 0xe0000010u); /* row 1, by address 0 */
        int want = dxpu_tlp_routing(&t) == DXPU_ROUTE_ADDRESS ? 0 : 1;
        if (type == DXPU_TLP_IORD || type == DXPU_TLP_IOWR || t.type == DXPU_TLP_MSG ||
            t.type == DXPU_TLP_MSGD || dxpu_tlp_class(&t) == DXPU_COMPLETION)
            want = DXPU_E_NONE;
        assert_int_equal(dxpu_host_route(&b.t, &t), want);
    }
    t = going(DXPU_TLP_CPLD, DXPU_BDF(4, 0, 0), 0);
    t.requester = DXPU_BDF(3, 0, 1);
    assert_int_equal(dxpu_host_route(&b.t, &t), 0);
    static const int messages[8] = { DXPU_E_NONE, 0,           1,           DXPU_E_NONE,
                                     DXPU_E_NONE, DXPU_E_NONE, DXPU_E_NONE, DXPU_E_NONE };
    for (unsigned routing = 0; routing < 8; routing++) {
        t = going(DXPU_TLP_MSG, DXPU_BDF(4, 0, 0), 0xe0000010u);
        t.message_routing = (uint8_t)routing;
        assert_int_equal(dxpu_host_route(&b.t, &t), messages[routing]);
    }
    t = going(DXPU_TLP_MRD, 0, 0x1e0000010u);
    assert_int_equal(dxpu_host_route(&b.t, &t), DXPU_E_NONE);
}

/* ---- the host table against a naive model ---- */

static uint64_t dice_state;
static uint32_t dice(void)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice_state >> 33);
}

/* What a row can have: 0 bus span, 1 memory, 2 prefetchable window.  Addresses count 1 MB. */
typedef struct naive_row {
    bool used, memory_space;
    uint64_t want[3][2]; /* first, last */
    bool on[3];          /* in force */
} naive_row;
typedef struct naive {
    naive_row row[CAPACITY];
} naive;

static bool naive_wants(const naive_row *r, int what)
{
    if (what == 0 && r->want[0][0] == 0)
        return false;
    return r->want[what][0] <= r->want[what][1] && (what == 0 || r->memory_space);
}

static void naive_place(naive *n, int i)
{
    naive_row *r = &n->row[i];
    for (int what = 0; what < 3; what++) {
        r->on[what] = naive_wants(r, what);
        for (int k = 0; k < CAPACITY; k++) {
            for (int other = what ? 1 : 0; other < (what ? 3 : 1); other++) {
                const naive_row *o = &n->row[k];
                if (k != i && o->on[other] && o->want[other][0] <= r->want[what][1] &&
                    r->want[what][0] <= o->want[other][1])
                    r->on[what] = false;
            }
        }
    }
}

static bool naive_blocked(const naive_row *r)
{
    return r->used && (r->on[0] != naive_wants(r, 0) || r->on[1] != naive_wants(r, 1) ||
                       r->on[2] != naive_wants(r, 2));
}

static void naive_settle(naive *n)
{
    for (int i = 0; i < CAPACITY; i++)
        if (naive_blocked(&n->row[i]))
            naive_place(n, i);
}

static int naive_find(const naive *n, int what, uint64_t value)
{
    for (int i = 0; i < CAPACITY; i++)
        for (int k = what; k < (what ? 3 : 1); k++)
            if (n->row[i].on[k] && n->row[i].want[k][0] <= value && value <= n->row[i].want[k][1])
                return i;
    return DXPU_E_NONE;
}

static int naive_blocked_count(const naive *n)
{
    int count = 0;
    for (int i = 0; i < CAPACITY; i++)
        count += naive_blocked(&n->row[i]);
    return count;
}

/* Both are changed the same way; every address and bus must then lead to the same row. */
static void naive_agrees(const naive *n, const bench *b)
{
    static const uint64_t edges[2] = { 0, 0xfffff };
    for (uint64_t mb = 0; mb < 40; mb++)
        for (unsigned edge = 0; edge < 2; edge++)
            assert_int_equal(at(b, (mb << 20) + edges[edge]), naive_find(n, 1, mb));
    for (uint64_t mb = 0x4000; mb < 0x4028; mb++)
        assert_int_equal(at(b, mb << 20), naive_find(n, 1, mb));
    for (unsigned bus = 0; bus < 20; bus++)
        assert_int_equal(behind(b, bus), naive_find(n, 0, bus));
    assert_int_equal(b->t.blocked, naive_blocked_count(n));
    check(b);
}

static void naive_learn(naive *n, bench *b, int i)
{
    naive_row *r = &n->row[i];
    uint32_t base = dice() % 40, limit = base + dice() % 6 - 1, what = dice() % 5;
    int rc, last = DXPU_OK;
    if (what == 0) {
        r->memory_space = dice() % 4 != 0;
        rc = learn(b, i, COMMAND, r->memory_space ? 0x406 : 0x405);
    } else if (what <= 2) {
        base %= 18;
        limit = base + dice() % 5 - 1;
        r->want[0][0] = base;
        r->want[0][1] = limit & 0xff;
        rc = learn(b, i, BUSES, (limit & 0xff) << 16 | base << 8 | 1);
    } else if (what == 3) {
        r->want[1][0] = base;
        r->want[1][1] = limit & 0xfff;
        rc = learn(b, i, MEMORY, limit << 20 | base << 4);
    } else {
        uint64_t upper = dice() % 2 ? 0x4000 : 0; /* in MB: 16 GB */
        r->want[2][0] = 1; /* off, as the upper limit below the base makes it */
        r->want[2][1] = 0;
        naive_place(n, i);
        naive_settle(n);
        (void)learn(b, i, PREF_LIMIT, 0);
        (void)learn(b, i, PREF_BASE, 0xffffffffu);
        naive_agrees(n, b);
        (void)learn(b, i, PREF, limit << 20 | base << 4);
        r->want[2][0] = upper + base;
        r->want[2][1] = upper + (limit & 0xfff);
        last = learn(b, i, PREF_LIMIT, (uint32_t)(upper >> 12));
        rc = learn(b, i, PREF_BASE, (uint32_t)(upper >> 12));
        (void)last;
    }
    naive_place(n, i);
    assert_int_equal(rc, naive_blocked(r) ? DXPU_E_OVERLAP : DXPU_OK);
    naive_settle(n);
}

static void naive_add(naive *n, bench *b)
{
    naive_row fresh = { true, false, { { 0, 0 }, { 1, 0 }, { 1, 0 } }, { false, false, false } };
    dxpu_host_entry e = row_of(DXPU_BDF(2, dice() % 32, 0));
    int i = 0, want;
    while (i < CAPACITY && n->row[i].used)
        i++;
    if (dice() % 2) { /* preset */
        uint32_t base = dice() % 40, limit = base + dice() % 4;
        e.bus = (uint8_t)(1 + dice() % 18);
        e.bus_last = (uint8_t)(e.bus + dice() % 3);
        e.memory.base = (uint64_t)base << 20;
        e.memory.limit = ((uint64_t)limit << 20) + 0xfffff;
        fresh.memory_space = true;
        fresh.want[0][0] = e.bus;
        fresh.want[0][1] = e.bus_last;
        fresh.want[1][0] = base;
        fresh.want[1][1] = limit;
    }
    want = i == CAPACITY ? DXPU_E_FULL : i;
    if (want >= 0) {
        n->row[i] = fresh;
        naive_place(n, i);
        if (naive_blocked(&n->row[i])) {
            memset(&n->row[i], 0, sizeof n->row[i]);
            want = DXPU_E_OVERLAP;
        }
    }
    assert_int_equal(dxpu_host_add(&b->t, &e), want);
}

static void test_r5_model(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        unsigned blocked = 0, seen_all = 0;
        naive n;
        bench b;
        memset(&n, 0, sizeof n);
        bench_init(&b);
        dice_state = seed;
        for (unsigned step = 0; step < 2500; step++) {
            int i = (int)(dice() % CAPACITY), what = (int)(dice() % 16);
            if (what == 0) {
                assert_int_equal(dxpu_host_remove(&b.t, (uint32_t)i),
                                 n.row[i].used ? DXPU_OK : DXPU_E_NONE);
                memset(&n.row[i], 0, sizeof n.row[i]);
                naive_settle(&n);
            } else if (what <= 3) {
                naive_add(&n, &b);
            } else if (n.row[i].used) {
                naive_learn(&n, &b, i);
            }
            naive_agrees(&n, &b);
            blocked += b.t.blocked > 0;
            seen_all += b.t.used == CAPACITY;
        }
        assert_true(blocked > 100 && seen_all > 100); /* it went everywhere */
    }
}

/* ---- Table 3 ---- */

static void test_r11_slots(void **state)
{
    static dxpu_box_entry many[65535];
    dxpu_box_entry e[3];
    dxpu_box_table t;
    (void)state;
    assert_int_equal(dxpu_box_init(&t, e, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_box_init(&t, many, 65536), DXPU_E_ARG);
    assert_int_equal(dxpu_box_init(&t, many, 65535), DXPU_OK);
    assert_int_equal(dxpu_box_slot(&t, 65535)->slot, 65535);
    memset(e, 0xee, sizeof e);
    assert_int_equal(dxpu_box_init(&t, e, 3), DXPU_OK);
    assert_null(dxpu_box_slot(&t, DXPU_SLOT_HOST));
    assert_null(dxpu_box_slot(&t, 4));
    for (uint16_t slot = 1; slot <= 3; slot++) {
        assert_ptr_equal(dxpu_box_slot(&t, slot), &e[slot - 1]);
        assert_int_equal(e[slot - 1].slot, slot);
        assert_int_equal(e[slot - 1].function, DXPU_FUNCTION_ALL);
        assert_false(e[slot - 1].valid || e[slot - 1].used);
    }
    assert_int_equal(dxpu_box_bind(&t, 1, 5, 2, 0, 1), DXPU_E_NONE); /* no device */
    assert_int_equal(dxpu_box_bind(&t, 0, 5, 2, 0, 1), DXPU_E_NONE); /* no slot */
    assert_int_equal(dxpu_box_bind(&t, 4, 5, 2, 0, 1), DXPU_E_NONE);
    assert_int_equal(dxpu_box_release(&t, 0), DXPU_E_NONE);
    assert_int_equal(dxpu_box_release(&t, 4), DXPU_E_NONE);
    assert_int_equal(dxpu_box_release(&t, 1), DXPU_E_NONE); /* not lent */
    e[0].valid = true;
    assert_int_equal(dxpu_box_bind(&t, 1, 5, 2, 9, 1), DXPU_OK); /* the control */
    assert_true(e[0].used);
    assert_int_equal(e[0].host_node, 5);
    assert_int_equal(e[0].host_slot, 2);
    assert_int_equal(e[0].path, 9);
    assert_int_equal(e[0].epoch, 1);
    assert_int_equal(dxpu_box_release(&t, 1), DXPU_OK);
    assert_int_equal(dxpu_box_release(&t, 1), DXPU_E_NONE);
    assert_false(e[0].used);
    assert_int_equal(e[0].epoch, 0);
    assert_int_equal(e[0].epoch_seen, 1);
}

typedef struct bid { /* what a host brings, and what it gets */
    uint32_t node;
    uint16_t slot;
    uint64_t epoch;
    int rc;
} bid;
enum { RELEASE = 0xffff }; /* as node: the lease ends first */

/* One slot under a list of bids; a refused one changes nothing. */
static void bids(const bid *list, size_t count)
{
    dxpu_box_entry e[1];
    dxpu_box_table t;
    assert_int_equal(dxpu_box_init(&t, e, 1), DXPU_OK);
    e[0].valid = true;
    e[0].channel = 77;
    for (size_t i = 0; i < count; i++) {
        if (list[i].node == RELEASE) {
            uint64_t seen = e[0].epoch_seen;
            assert_int_equal(dxpu_box_release(&t, 1), DXPU_OK);
            assert_int_equal(e[0].epoch_seen, seen);
            assert_int_equal(e[0].epoch, 0);
            assert_false(e[0].used);
            continue;
        }
        dxpu_box_entry before = e[0];
        int rc = dxpu_box_bind(&t, 1, list[i].node, list[i].slot, 4, list[i].epoch);
        if (rc != list[i].rc)
            fail_msg("bid %zu: %d", i, rc);
        if (rc != DXPU_OK) {
            assert_memory_equal(&before, &e[0], sizeof before);
            continue;
        }
        assert_true(e[0].used);
        assert_int_equal(e[0].epoch, list[i].epoch);
        assert_int_equal(e[0].epoch_seen, list[i].epoch);
        assert_int_equal(e[0].host_node, list[i].node);
        assert_int_equal(e[0].host_slot, list[i].slot);
        assert_int_equal(e[0].channel, 77); /* the caller's, to end a displaced lease by */
    }
}

static void test_r12_old_epochs(void **state)
{
    static const bid list[] = {
        { 5, 2, 0, DXPU_E_EPOCH },                                /* none */
        { 5, 2, 10, DXPU_OK },         { 5, 2, 9, DXPU_E_EPOCH }, /* even from the holder */
        { 6, 2, 9, DXPU_E_EPOCH },     { 5, 2, 0, DXPU_E_EPOCH },
        { 5, 2, 11, DXPU_OK },         { 5, 2, 10, DXPU_E_EPOCH },
        { 5, 2, UINT64_MAX, DXPU_OK }, { 5, 2, UINT64_MAX - 1, DXPU_E_EPOCH },
    };
    (void)state;
    bids(list, sizeof list / sizeof list[0]);
}

static void test_r13_an_epoch_is_one_hosts(void **state)
{
    static const bid list[] = {
        { 5, 2, 10, DXPU_OK },
        { 5, 2, 10, DXPU_OK },      /* again */
        { 6, 2, 10, DXPU_E_EPOCH }, /* another node */
        { 5, 3, 10, DXPU_E_EPOCH }, /* another slot of it */
        { RELEASE, 0, 0, 0 },
        { 6, 2, 10, DXPU_E_EPOCH }, /* unassigned, yet it is another's epoch */
        { 5, 2, 10, DXPU_OK },      /* its host comes back */
    };
    (void)state;
    bids(list, sizeof list / sizeof list[0]);
}

static void test_r14_the_newer_lease_wins(void **state)
{
    static const bid list[] = {
        { 5, 2, 10, DXPU_OK },      { 6, 1, 11, DXPU_OK }, /* while it is lent */
        { 5, 2, 10, DXPU_E_EPOCH },                        /* the displaced host */
        { 5, 2, 11, DXPU_E_EPOCH }, { 5, 2, 12, DXPU_OK },
    };
    (void)state;
    bids(list, sizeof list / sizeof list[0]);
}

static void test_r15_release_keeps_the_epoch(void **state)
{
    static const bid list[] = {
        { 5, 2, 10, DXPU_OK },     { RELEASE, 0, 0, 0 },       { 5, 2, 9, DXPU_E_EPOCH },
        { 6, 2, 9, DXPU_E_EPOCH }, { 6, 2, 10, DXPU_E_EPOCH }, { 6, 2, 11, DXPU_OK },
    };
    (void)state;
    bids(list, sizeof list / sizeof list[0]);
}

static void test_r12_model(void **state)
{
    dxpu_box_entry e[1];
    dxpu_box_table t;
    uint64_t seen = 0;
    uint32_t owner = 0;
    unsigned granted = 0;
    (void)state;
    assert_int_equal(dxpu_box_init(&t, e, 1), DXPU_OK);
    e[0].valid = true;
    dice_state = 3;
    for (unsigned step = 0; step < 3000; step++) {
        uint32_t host = 1 + dice() % 3;
        uint64_t epoch = seen + dice() % 3 - (seen ? 1 : 0);
        bool ok = epoch > seen || (epoch == seen && epoch > 0 && host == owner);
        if (dice() % 5 == 0)
            (void)dxpu_box_release(&t, 1);
        assert_int_equal(dxpu_box_bind(&t, 1, 9, (uint16_t)host, 0, epoch),
                         ok ? DXPU_OK : DXPU_E_EPOCH);
        if (ok) {
            seen = epoch;
            owner = host;
            granted++;
        }
        assert_true(e[0].epoch_seen == seen);
    }
    assert_true(granted > 500 && granted < 2500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r1_rows),
        cmocka_unit_test(test_r1_smallest_and_largest),
        cmocka_unit_test(test_r1_presets),
        cmocka_unit_test(test_r2_by_address),
        cmocka_unit_test(test_r3_by_bdf),
        cmocka_unit_test(test_r4_byte_enables_and_masks),
        cmocka_unit_test(test_r4_r6_enumerator),
        cmocka_unit_test(test_r5_overlap_is_blocked_then_retried),
        cmocka_unit_test(test_r5_own_windows_may_overlap),
        cmocka_unit_test(test_r5_model),
        cmocka_unit_test(test_r6_set_port),
        cmocka_unit_test(test_r8_route),
        cmocka_unit_test(test_r11_slots),
        cmocka_unit_test(test_r12_old_epochs),
        cmocka_unit_test(test_r13_an_epoch_is_one_hosts),
        cmocka_unit_test(test_r14_the_newer_lease_wins),
        cmocka_unit_test(test_r15_release_keeps_the_epoch),
        cmocka_unit_test(test_r12_model),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
