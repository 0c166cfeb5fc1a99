/* api_memory.c - the memory device of dxpu-box, TLP in, TLP out
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "eptest.h"
#include "eptest_model.h"
#include "memory_model.h"
#include "pages.h"
#include "pci.h"
#include "vga.h"
#include "vga_model.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "root_complex.h"

enum { SIZE = 64 * 1024 };
static const uint64_t BASE = 0x4000100000u;

static endpoint ep;

static dxpu_tlp request(uint8_t type, uint64_t offset, uint32_t bytes)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 4;
    t.tag = 9;
    assert_int_equal(
        dxpu_be_from_range(BASE + offset, bytes, &t.first_be, &t.last_be, &t.length_dw), DXPU_OK);
    t.address = (BASE + offset) & ~(uint64_t)3;
    return t;
}

static void write_bytes(uint64_t offset, const uint8_t *data, uint32_t bytes)
{
    uint8_t padded[4096 + 8] = { 0 };
    dxpu_tlp t = request(DXPU_TLP_MWR, offset, bytes);
    memcpy(padded + offset % 4, data, bytes);
    t.payload.ptr = padded;
    t.payload.len = t.length_dw * 4u;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 0); /* posted: never answered */
}

/* Read and put the completions together, checking that they fit. */
static void read_bytes(uint64_t offset, uint8_t *data, uint32_t bytes)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, offset, bytes);
    uint32_t got = 0;
    ep_give(&ep, &t);
    for (unsigned i = 0; i < ep.answers; i++) {
        uint32_t skip = (uint32_t)((offset + got) % 4), left = bytes - got;
        uint32_t here = (uint32_t)ep.answer[i].payload.len - skip;
        assert_int_equal(ep.answer[i].status, DXPU_CPL_SC);
        assert_int_equal(ep.answer[i].tag, 9);
        assert_int_equal(ep.answer[i].byte_count, left);
        assert_int_equal(ep.answer[i].lower_addr, (offset + got) % 128);
        if (here > left)
            here = left;
        memcpy(data + got, ep.answer[i].payload.ptr + skip, here);
        got += here;
    }
    assert_int_equal(got, bytes);
}

static int setup(void **state)
{
    device_settings s = { .memory_bytes = SIZE, .mps_bytes = 512 };
    (void)state;
    if (!ep_open(&ep, &memory_kind, &s))
        return -1;
    ep_config_put(&ep, 0x10, 15, (uint32_t)BASE);
    ep_config_put(&ep, 0x14, 15, (uint32_t)(BASE >> 32));
    ep_config_put(&ep, 0x04, 3, 6);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ep_close(&ep);
    return 0;
}

static void test_identity_and_capability(void **state)
{
    (void)state;
    assert_int_equal(ep_config_get(&ep, 0), (uint32_t)MEMORY_DEVICE << 16 | MEMORY_VENDOR);
    assert_int_equal(ep_config_get(&ep, 0x34) & 0xff, MEMORY_CAP_PCIE);
    assert_int_equal(ep_config_get(&ep, MEMORY_CAP_PCIE) & 0xffff, 0x0010); /* the only one */
    assert_int_equal(ep_config_get(&ep, MEMORY_CAP_PCIE + 4) & 7, 2);       /* 512 bytes */
    ep_config_put(&ep, 0, 15, 0);
    assert_int_equal(ep_config_get(&ep, 0), (uint32_t)MEMORY_DEVICE << 16 | MEMORY_VENDOR);
    assert_int_equal(ep_config_get(&ep, 0x100), 0); /* no extended capability */
}

static void test_bar_is_sized(void **state)
{
    (void)state;
    ep_config_put(&ep, 0x10, 15, 0xffffffffu);
    ep_config_put(&ep, 0x14, 15, 0xffffffffu);
    assert_int_equal(ep_config_get(&ep, 0x10), (0xffffffffu & ~(uint32_t)(SIZE - 1)) | 0xc);
    assert_int_equal(ep_config_get(&ep, 0x14), 0xffffffffu);
    ep_config_put(&ep, 0x10, 4, 0x00120000u); /* one byte enable writes one byte */
    assert_int_equal(ep_config_get(&ep, 0x10), 0xff12000cu);
}

static void test_completer_id_is_captured(void **state)
{
    device_settings s = { .memory_bytes = SIZE, .mps_bytes = 512 };
    void *fresh = memory_kind.create(&s, &ep.port), *kept = ep.dev;
    (void)state;
    ep.dev = fresh;
    ep_config_get(&ep, 0);
    assert_int_equal(ep.answer[0].completer, 0); /* nothing was written yet */
    ep_config_put(&ep, 0x3c, 1, 5);
    ep_config_get(&ep, 0);
    assert_int_equal(ep.answer[0].completer, DXPU_BDF(5, 3, 0));
    memory_kind.destroy(fresh);
    ep.dev = kept;
}

static void test_reads_return_writes(void **state)
{
    uint8_t data[4096], back[4096];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 13 + i / 256);
    for (uint32_t at = 0; at < 9; at++) { /* every alignment, lengths around a dword and more */
        static const uint32_t lengths[] = { 1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 128, 500 };
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            uint8_t around[600], want[600];
            memset(want, 0, sizeof want);
            memory_kind.reset(ep.dev);
            ep_config_put(&ep, 0x10, 15, (uint32_t)BASE);
            ep_config_put(&ep, 0x14, 15, (uint32_t)(BASE >> 32));
            ep_config_put(&ep, 0x04, 3, 6);
            memcpy(want + 16 + at, data, lengths[i]);
            write_bytes(16 + at, data, lengths[i]);
            read_bytes(0, around, sizeof around);
            assert_memory_equal(around, want, sizeof want); /* and nothing beside it */
            read_bytes(16 + at, back, lengths[i]);
            assert_memory_equal(back, data, lengths[i]);
        }
    }
    write_bytes(4096, data, 4096);
    read_bytes(4096, back, 4096);
    assert_memory_equal(back, data, 4096);
}

static void test_reads_are_split(void **state)
{
    uint8_t back[4096];
    (void)state;
    read_bytes(4096, back, 4096);
    assert_int_equal(ep.answers, 4096 / 128); /* Max_Payload_Size is 128 after reset */
    ep_config_put(&ep, MEMORY_CAP_PCIE + 8, 1, 2 << 5);
    read_bytes(4096, back, 4096);
    assert_int_equal(ep.answers, 4096 / 512);
    read_bytes(4096 + 4, back, 1024);
    assert_int_equal(ep.answers, 3);
    assert_int_equal(ep.answer[0].length_dw, 127);      /* up to the boundary, then whole ones */
    ep_config_put(&ep, MEMORY_CAP_PCIE + 8, 1, 5 << 5); /* more than it supports */
    read_bytes(4096, back, 4096);
    assert_int_equal(ep.answers, 4096 / 512);
}

static void test_zero_length_read(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, 64, 0);
    (void)state;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 1);
    assert_int_equal(ep.answer[0].byte_count, 1);
    assert_int_equal(ep.answer[0].length_dw, 1);
}

static void expect_unsupported(const dxpu_tlp *t)
{
    ep_give(&ep, t);
    assert_int_equal(ep.answers, 1);
    assert_int_equal(ep.answer[0].status, DXPU_CPL_UR);
    assert_int_equal(ep.answer[0].payload.len, 0);
    assert_int_equal(ep.answer[0].tag, t->tag);
}

static void test_unsupported_requests(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, SIZE, 4);
    (void)state;
    expect_unsupported(&t);
    t = request(DXPU_TLP_MRD, (uint64_t)0 - 4, 4); /* just below */
    expect_unsupported(&t);
    t = request(DXPU_TLP_MRD, SIZE - 4, 4);
    ep_give(&ep, &t); /* the control: the last dword is there */
    assert_int_equal(ep.answer[0].status, DXPU_CPL_SC);
    t = request(DXPU_TLP_MRDLK, 0, 4);
    expect_unsupported(&t);
    assert_int_equal(ep.answer[0].type, DXPU_TLP_CPLLK);
    t = ep_config(DXPU_TLP_CFGRD1, 0, 15);
    expect_unsupported(&t);
    t = ep_config(DXPU_TLP_CFGRD0, 0, 15);
    t.target = DXPU_BDF(5, 3, 1); /* it has one function */
    expect_unsupported(&t);
    ep_config_put(&ep, 0x04, 3, 4); /* memory space off */
    t = request(DXPU_TLP_MRD, 0, 4);
    expect_unsupported(&t);
}

static void test_writes_outside_change_nothing(void **state)
{
    uint8_t data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, back[8];
    memory *m = ep.dev;
    (void)state;
    write_bytes(SIZE, data, 8);
    write_bytes(SIZE + 4096, data, 8);
    assert_int_equal(m->count.writes_dropped, 2);
    assert_int_equal(m->count.writes, 0);
    write_bytes(SIZE - 8, data, 8); /* the control */
    assert_int_equal(m->count.writes, 1);
    read_bytes(SIZE - 8, back, 8);
    assert_memory_equal(back, data, 8);
}

static void test_poisoned_write_is_not_stored(void **state)
{
    uint8_t data[4] = { 1, 2, 3, 4 }, back[4];
    dxpu_tlp t = request(DXPU_TLP_MWR, 0, 4);
    (void)state;
    t.ep = true;
    t.payload.ptr = data;
    t.payload.len = 4;
    ep_give(&ep, &t);
    read_bytes(0, back, 4);
    assert_int_equal(back[0], 0);
    t.ep = false;
    ep_give(&ep, &t);
    read_bytes(0, back, 4);
    assert_memory_equal(back, data, 4);
}

static void test_poisoned_config_write_has_no_effect(void **state)
{
    static const uint8_t data[4] = { 5 };
    dxpu_tlp t;
    (void)state;
    ep_config_put(&ep, 0x3c, 1, 9);
    t = ep_config(DXPU_TLP_CFGWR0, 0x3c, 1);
    t.payload.ptr = data;
    t.payload.len = sizeof data;
    t.target = DXPU_BDF(6, 6, 0);
    t.ep = true;
    expect_unsupported(&t);
    assert_int_equal(ep_config_get(&ep, 0x3c) & 0xff, 9);
    assert_int_equal(ep.answer[0].completer, DXPU_BDF(5, 3, 0)); /* not captured either */
    t.ep = false;
    ep_give(&ep, &t); /* the control */
    assert_int_equal(ep_config_get(&ep, 0x3c) & 0xff, 5);
    assert_int_equal(ep.answer[0].completer, DXPU_BDF(6, 6, 0));
}

/* An atomic on `before`; its completion must show that, memory `after`. */
static void atomic_case(uint8_t type, const uint8_t *before, const uint8_t *operand,
                        uint32_t operand_bytes, const uint8_t *after, uint32_t bytes)
{
    uint8_t back[16];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    write_bytes(256, before, bytes);
    t.type = type;
    t.header_dw = 4;
    t.address = BASE + 256;
    t.length_dw = (uint16_t)(operand_bytes / 4);
    t.payload.ptr = operand;
    t.payload.len = operand_bytes;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 1);
    assert_int_equal(ep.answer[0].type, DXPU_TLP_CPLD);
    assert_int_equal(ep.answer[0].payload.len, bytes);
    assert_int_equal(ep.answer[0].byte_count, bytes);
    assert_memory_equal(ep.answer[0].payload.ptr, before, bytes);
    read_bytes(256, back, bytes);
    assert_memory_equal(back, after, bytes);
}

static void test_atomics(void **state)
{
    static const uint8_t before[16] = { 0xff, 0xff, 0, 0, 0xfe, 0xff, 0xff, 0xff,
                                        9,    9,    9, 9, 9,    9,    9,    9 };
    static const uint8_t one[8] = { 1, 0, 0, 0, 0, 0, 0, 0 };
    static const uint8_t all[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    static const uint8_t sum32[4] = { 0, 0, 1, 0 }; /* the carry goes up in memory order */
    static const uint8_t sum64[8] = { 0xfe, 0xff, 0, 0, 0xfe, 0xff, 0xff, 0xff };
    uint8_t pair[32];
    (void)state;
    atomic_case(DXPU_TLP_FETCHADD, before, one, 4, sum32, 4);
    atomic_case(DXPU_TLP_FETCHADD, before, all, 8, sum64, 8); /* less one */
    atomic_case(DXPU_TLP_SWAP, before, one, 4, one, 4);
    atomic_case(DXPU_TLP_SWAP, before, one, 8, one, 8);
    for (uint32_t bytes = 4; bytes <= 16; bytes *= 2) {
        memcpy(pair, before, bytes);
        memset(pair + bytes, 0x55, bytes);
        atomic_case(DXPU_TLP_CAS, before, pair, 2 * bytes, pair + bytes, bytes);
        pair[bytes - 1] ^= 1; /* other than what is there: nothing is stored */
        atomic_case(DXPU_TLP_CAS, before, pair, 2 * bytes, before, bytes);
    }
}

static void test_deferrable_write(void **state)
{
    uint8_t data[64], back[64];
    dxpu_tlp t = request(DXPU_TLP_DMWR, 128, 64);
    (void)state;
    memset(data, 0x77, sizeof data);
    t.payload.ptr = data;
    t.payload.len = sizeof data;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 1);
    assert_int_equal(ep.answer[0].type, DXPU_TLP_CPL);
    assert_int_equal(ep.answer[0].status, DXPU_CPL_SC);
    read_bytes(128, back, sizeof back);
    assert_memory_equal(back, data, sizeof data);
    t = request(DXPU_TLP_DMWR, SIZE, 64);
    t.payload.ptr = data;
    t.payload.len = sizeof data;
    expect_unsupported(&t);
}

static void test_completions_and_messages_are_ignored(void **state)
{
    memory *m = ep.dev;
    dxpu_tlp t;
    (void)state;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_CPL;
    t.header_dw = 3;
    t.byte_count = 4;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 0);
    assert_int_equal(m->count.completions_ignored, 1);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.message_code = 0x19;
    t.message_routing = DXPU_MSG_BROADCAST;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 0);
    assert_int_equal(m->count.messages, 1);
}

static void test_reset_leaves_nothing(void **state)
{
    uint8_t data[4] = { 1, 2, 3, 4 }, back[4];
    dxpu_tlp t;
    (void)state;
    write_bytes(SIZE - 4, data, 4);
    read_bytes(SIZE - 4, back, 4);
    assert_memory_equal(back, data, 4); /* the control */
    memory_kind.reset(ep.dev);
    t = request(DXPU_TLP_MRD, 0, 4);
    expect_unsupported(&t); /* off again */
    ep_config_put(&ep, 0x10, 15, (uint32_t)BASE);
    ep_config_put(&ep, 0x14, 15, (uint32_t)(BASE >> 32));
    ep_config_put(&ep, 0x04, 3, 6);
    read_bytes(SIZE - 4, back, 4);
    memset(data, 0, sizeof data);
    assert_memory_equal(back, data, 4);
}

static void test_function_level_reset(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, 0, 4);
    (void)state;
    ep_config_put(&ep, MEMORY_CAP_PCIE + 8, 3, 0x8000);
    assert_int_equal(ep_config_get(&ep, 0x10), 0xc);
    expect_unsupported(&t);
}

static void test_hot_reset(void **state)
{
    dxpu_event e;
    (void)state;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_HOT_RESET;
    memory_kind.event(ep.dev, &e); /* released: nothing happens */
    assert_int_not_equal(ep_config_get(&ep, 0x10), 0xc);
    e.flags = DXPU_EVENT_ON;
    memory_kind.event(ep.dev, &e);
    assert_int_equal(ep_config_get(&ep, 0x10), 0xc);
}

/* Jobs that no thread takes. */
static job *kept[4];
static unsigned kept_count;

static void keep_job(void *user, job *j)
{
    (void)user;
    assert_true(kept_count < 4);
    kept[kept_count++] = j;
}

static job *give_back(void *user)
{
    (void)user;
    if (!kept_count)
        return NULL;
    kept[kept_count - 1]->run(kept[kept_count - 1]);
    return kept[--kept_count];
}

static void drop_tlp(void *user, dxpu_bytes tlp)
{
    (void)user;
    (void)tlp;
}

static void nothing(void *user)
{
    (void)user;
}

static job *none_yet(void *user)
{
    (void)user;
    return NULL;
}

/* Pages on their way back to the system are not piled up by who clears repeatedly. */
static void test_cleared_pages_do_not_pile_up(void **state)
{
    const jobs slow = { NULL, keep_job, none_yet, NULL, nothing };
    const device_settings s = { .jobs = &slow };
    pages p;
    (void)state;
    memset(&p, 0, sizeof p);
    assert_int_equal(pages_open(&p, 1 << 20, false, &s), 0);
    for (unsigned i = 0; i < 3; i++) {
        memset(p.bytes, 1, 1 << 20);
        pages_written(&p, 1 << 20);
        pages_clear(&p);
        assert_int_equal(kept_count, 1);
        for (unsigned at = 0; at < 1 << 20; at += 4096)
            assert_int_equal(p.bytes[at], 0);
    }
    p.jobs.reap = give_back;
    pages_clear(&p); /* takes it back */
    memset(p.bytes, 1, 1 << 20);
    pages_written(&p, 1 << 20);
    pages_clear(&p); /* control: now there is one again */
    assert_int_equal(kept_count, 1);
    pages_close(&p);
    assert_int_equal(kept_count, 0);
}

static pages *pages_of(const device_kind *kind, void *device)
{
    if (kind == &memory_kind)
        return &((memory *)device)->store;
    return kind == &vga_kind ? &((vga *)device)->frame : &((eptest *)device)->memory[4];
}

/* A device without a host has to be rid of its jobs before it can leave (M-24). */
static void test_m24_a_tick_takes_old_pages_back(void **state)
{
    static const device_kind *const kinds[] = { &memory_kind, &vga_kind, &eptest_kind };
    const jobs slow = { NULL, keep_job, give_back, NULL, nothing };
    const device_settings s = { .memory_bytes = 1 << 20, .bar_bytes = 1 << 20, .jobs = &slow };
    (void)state;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        device_port port = { .emit = drop_tlp };
        void *device = kinds[i]->create(&s, &port);
        assert_non_null(device);
        pages_written(pages_of(kinds[i], device), 128 << 10);
        kinds[i]->reset(device);
        assert_int_equal(kept_count, 1);
        kinds[i]->tick(device, 1);
        assert_int_equal(kept_count, 0);
        kinds[i]->destroy(device);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_cleared_pages_do_not_pile_up),
        CASE(test_m24_a_tick_takes_old_pages_back),
        CASE(test_identity_and_capability),
        CASE(test_bar_is_sized),
        CASE(test_completer_id_is_captured),
        CASE(test_reads_return_writes),
        CASE(test_reads_are_split),
        CASE(test_zero_length_read),
        CASE(test_unsupported_requests),
        CASE(test_writes_outside_change_nothing),
        CASE(test_poisoned_write_is_not_stored),
        CASE(test_poisoned_config_write_has_no_effect),
        CASE(test_atomics),
        CASE(test_deferrable_write),
        CASE(test_completions_and_messages_are_ignored),
        CASE(test_reset_leaves_nothing),
        CASE(test_function_level_reset),
        CASE(test_hot_reset),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
