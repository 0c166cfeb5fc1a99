/* unit_probe.c - sizing a device's BARs, against scripted configuration spaces
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "probe.h"

/* What a device has at 0x10..0x24: a register and the bits of it that can be written. */
typedef struct space {
    uint32_t reg[PROBE_BARS], mask[PROBE_BARS];
    unsigned writes;
    uint8_t header; /* its type; function 5, when there is one, is the same */
    uint8_t mps[2]; /* largest Max_Payload_Size, plus 1, of functions 0 and 5; 0: no list */
    bool circle;    /* its list of capabilities has no end, and no PCI Express */
} space;

/* A capability at 0x40, and PCI Express at 0x60. */
static uint32_t capabilities(const space *s, unsigned fn, unsigned at)
{
    unsigned mps = s->mps[fn == 5];
    switch (at) {
    case 0x34:
        return mps || s->circle ? 0x40 : 0;
    case 0x40:
        return 0x01 | (s->circle ? 0x40u : 0x60u) << 8;
    case 0x60:
        return 0x00020010;
    case 0x64:
        return 0x10008020 | (mps - 1);
    default:
        fail();
        return 0;
    }
}

/* The completion of one request; payload in data. */
static dxpu_tlp answer(space *s, const dxpu_tlp *t, uint8_t data[4])
{
    dxpu_tlp cpl;
    unsigned i = (t->register_bytes - 0x10u) / 4, fn = DXPU_BDF_FN(t->target);
    assert_int_equal(t->first_be, 0xf);
    dxpu_tlp_completion(t, 0, DXPU_CPL_SC, &cpl);
    if (fn && fn != 5) { /* some say so, others read as ones */
        static const uint8_t ones[4] = { 0xff, 0xff, 0xff, 0xff };
        assert_int_equal(t->register_bytes, 0);
        cpl.status = fn % 2 ? DXPU_CPL_UR : DXPU_CPL_SC;
        cpl.payload.ptr = fn % 2 ? NULL : ones;
        cpl.payload.len = fn % 2 ? 0 : 4;
        return cpl;
    }
    if (t->register_bytes == 0 || t->register_bytes == 0xc) {
        memset(data, 0x12, 4);
        if (t->register_bytes == 0xc)
            data[2] = s->header;
        cpl.payload.ptr = data;
        cpl.payload.len = 4;
        return cpl;
    }
    if (t->register_bytes >= 0x34) {
        assert_int_equal(t->type, DXPU_TLP_CFGRD0);
        dxpu_put_le32(data, capabilities(s, fn, t->register_bytes));
        cpl.payload.ptr = data;
        cpl.payload.len = 4;
        return cpl;
    }
    assert_true(i < PROBE_BARS);
    if (t->type == DXPU_TLP_CFGWR0) {
        uint32_t v = dxpu_get_le32(t->payload.ptr);
        s->reg[i] = (s->reg[i] & ~s->mask[i]) | (v & s->mask[i]);
        s->writes++;
        return cpl;
    }
    dxpu_put_le32(data, s->reg[i]);
    cpl.payload.ptr = data;
    cpl.payload.len = 4;
    return cpl;
}

/* To the end, but for at most `most` requests. */
static unsigned go_on(probe *p, space *s, unsigned most)
{
    uint8_t out[4], in[4];
    unsigned n = 0;
    dxpu_tlp t;
    while (n < most && probe_request(p, &t, out)) {
        dxpu_tlp cpl = answer(s, &t, in);
        probe_answer(p, &cpl);
        n++;
    }
    return n;
}

static void test_all_kinds(void **state)
{
    /* 4 GB 64-bit prefetchable; 8 KB 32-bit; I/O; 64 KB 64-bit */
    space s = { { 0xc, 0, 0, 1, 4, 0 },
                { 0, 0xffffffff, 0xffffe000, 0xffffff00, 0xffff0000, 0xffffffff },
                .header = 0 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    probe_start(&p);
    assert_int_equal(go_on(&p, &s, 100), 2 + 24 + 1);
    assert_int_equal(probe_mps_bytes(&p), 0);
    assert_false(p.running);
    assert_false(p.failed);
    assert_int_equal(probe_bars(&p, bars), 3);
    assert_true(bars[0].bytes == (uint64_t)4 << 30);
    assert_true(bars[0].prefetchable);
    assert_true(bars[1].bytes == 8192);
    assert_false(bars[1].prefetchable);
    assert_true(bars[2].bytes == 65536);
    assert_false(bars[2].prefetchable);
}

static void test_registers_are_put_back(void **state)
{
    space s = { { 0xf8000000, 0, 0x2000000c, 0x9, 0, 0 },
                { 0xffff0000, 0, 0xfffff000, 0xffffffff, 0, 0 },
                .header = 0 };
    space before = s;
    probe p;
    (void)state;
    probe_start(&p);
    (void)go_on(&p, &s, 100);
    assert_memory_equal(s.reg, before.reg, sizeof s.reg);
    assert_int_equal(s.writes, 12);
}

static void test_no_bars(void **state)
{
    space s = { { 0 }, { 0 }, .header = 0 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    probe_start(&p);
    (void)go_on(&p, &s, 100);
    assert_false(p.failed);
    assert_int_equal(probe_bars(&p, bars), 0);
}

/* A 64-bit BAR in the last register has no other half; its size is what the register says. */
static void test_half_a_bar(void **state)
{
    space s = { { 0, 0, 0, 0, 0, 4 }, { 0, 0, 0, 0, 0, 0xfffff000 }, .header = 0 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    probe_start(&p);
    (void)go_on(&p, &s, 100);
    assert_int_equal(probe_bars(&p, bars), 1);
    assert_true(bars[0].bytes == 4096);
    s.reg[5] = 0xc; /* no window above 4 GB: it could not hold an address there */
    probe_start(&p);
    (void)go_on(&p, &s, 100);
    assert_int_equal(probe_bars(&p, bars), 1);
    assert_true(bars[0].bytes == 4096 && !bars[0].prefetchable);
}

/* A type, and no bit that can be written. */
static void test_type_without_a_bar(void **state)
{
    space s = { { 8, 0, 0, 0, 0, 4 }, { 0 }, .header = 0 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    probe_start(&p);
    (void)go_on(&p, &s, 100);
    assert_int_equal(probe_bars(&p, bars), 0);
    s.mask[0] = 0xfffff000; /* the control */
    probe_start(&p);
    (void)go_on(&p, &s, 100);
    assert_int_equal(probe_bars(&p, bars), 1);
}

static void test_refusals(void **state)
{
    space s = { { 0 }, { 0 }, .header = 0 };
    uint8_t out[4];
    dxpu_tlp t, cpl;
    probe p;
    (void)state;
    for (unsigned after = 0; after < 27; after++) {
        for (unsigned way = 0; way < 3; way++) {
            probe_start(&p);
            assert_int_equal(go_on(&p, &s, after), after);
            assert_true(probe_request(&p, &t, out));
            dxpu_tlp_completion(&t, 0, way ? DXPU_CPL_UR : DXPU_CPL_SC, &cpl);
            if (way == 0) { /* data where none belongs, or none where some does */
                cpl.payload.ptr = out;
                cpl.payload.len = t.type == DXPU_TLP_CFGWR0 ? 4 : 0;
            }
            probe_answer(&p, way == 2 ? NULL : &cpl);
            assert_true(p.failed);
            assert_false(probe_request(&p, &t, out));
            assert_false(p.running);
        }
    }
}

static void test_device_asks_for_time(void **state)
{
    space s = { { 0 }, { 0xfffff000 }, .header = 0 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    uint8_t out[4];
    dxpu_tlp t, cpl;
    probe p;
    (void)state;
    for (unsigned times = 1; times <= PROBE_RETRIES + 1; times++) {
        probe_start(&p);
        for (unsigned i = 0; i < times; i++) {
            assert_true(probe_request(&p, &t, out));
            assert_int_equal(t.register_bytes, 0);
            dxpu_tlp_completion(&t, 0, DXPU_CPL_CRS, &cpl);
            probe_answer(&p, &cpl);
            assert_int_equal(p.wait, i < PROBE_RETRIES);
            p.wait = false;
        }
        assert_int_equal(p.failed, times > PROBE_RETRIES);
        if (!p.failed) {
            (void)go_on(&p, &s, 100);
            assert_int_equal(probe_bars(&p, bars), 1);
        }
    }
}

/* The device was reset between two requests, and its registers with it. */
static void test_reset_meanwhile(void **state)
{
    space s = { { 0 }, { 0xfffff000 }, .header = 0 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    for (unsigned after = 0; after < 26; after++) {
        probe_start(&p);
        assert_int_equal(go_on(&p, &s, after), after);
        memset(s.reg, 0, sizeof s.reg);
        p.again = true;
        assert_int_equal(go_on(&p, &s, 100), 1 + 2 + 24 + 1);
        assert_int_equal(probe_bars(&p, bars), 1);
        assert_true(bars[0].bytes == 4096);
    }
}

static void test_all_functions(void **state)
{
    space s = { { 0 }, { 0xfffff000, 0, 0, 0, 0, 0xffff0000 }, .header = 0x80 };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    probe_start(&p);
    assert_int_equal(go_on(&p, &s, 100), 2 * 27 + 6);
    assert_false(p.failed);
    assert_int_equal(probe_bars(&p, bars), 4);
    assert_true(bars[2].bytes == 4096);
    assert_true(bars[3].bytes == 65536);
    s.header = 0x81; /* bridges have two */
    probe_start(&p);
    assert_int_equal(go_on(&p, &s, 100), 2 * 11 + 6);
    assert_int_equal(probe_bars(&p, bars), 2);
    s.header = 2; /* an unknown header */
    probe_start(&p);
    assert_int_equal(go_on(&p, &s, 100), 2);
    assert_false(p.failed);
    assert_int_equal(probe_bars(&p, bars), 0);
    s.header = 0; /* the control: one function is all */
    probe_start(&p);
    assert_int_equal(go_on(&p, &s, 100), 27);
    assert_int_equal(probe_bars(&p, bars), 2);
}

/* The smallest of all functions: what a port allows is for each of them. */
static void test_largest_payload(void **state)
{
    static const struct {
        uint8_t header, mps[2];
        uint32_t bytes;
    } rows[] = { { 0, { 1, 0 }, 128 },     { 0, { 6, 0 }, 4096 },   { 0, { 8, 0 }, 4096 },
                 { 0, { 3, 1 }, 512 },     { 0x80, { 3, 1 }, 128 }, { 0x80, { 2, 6 }, 256 },
                 { 0x80, { 6, 0 }, 4096 }, { 1, { 4, 0 }, 1024 },   { 0x80, { 0, 3 }, 512 },
                 { 0, { 0, 0 }, 0 } };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        space s = { .header = rows[i].header, .mps = { rows[i].mps[0], rows[i].mps[1] } };
        probe p;
        probe_start(&p);
        (void)go_on(&p, &s, 200);
        assert_false(p.failed || p.running);
        assert_int_equal(probe_mps_bytes(&p), rows[i].bytes);
    }
}

static void test_list_without_end(void **state)
{
    space s = { .circle = true };
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    probe p;
    (void)state;
    s.mask[0] = 0xfffff000;
    probe_start(&p);
    assert_true(go_on(&p, &s, 1000) < 100);
    assert_false(p.failed || p.running);
    assert_int_equal(probe_mps_bytes(&p), 0);
    assert_int_equal(probe_bars(&p, bars), 1);
}

/* A device that reads as ones is absent. */
static void test_no_device_at_function_0(void **state)
{
    uint8_t ones[4] = { 0xff, 0xff, 0xff, 0xff }, out[4];
    dxpu_tlp t, cpl;
    probe p;
    (void)state;
    probe_start(&p);
    assert_true(probe_request(&p, &t, out));
    dxpu_tlp_completion(&t, 0, DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = ones;
    cpl.payload.len = 4;
    probe_answer(&p, &cpl);
    assert_true(p.failed);
    assert_false(probe_request(&p, &t, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_registers_are_put_back),
        cmocka_unit_test(test_no_bars),
        cmocka_unit_test(test_half_a_bar),
        cmocka_unit_test(test_type_without_a_bar),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_device_asks_for_time),
        cmocka_unit_test(test_reset_meanwhile),
        cmocka_unit_test(test_all_functions),
        cmocka_unit_test(test_largest_payload),
        cmocka_unit_test(test_list_without_end),
        cmocka_unit_test(test_no_device_at_function_0),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
