/* unit_eptest.c - the PCI endpoint test function under a small root complex
   SPDX-License-Identifier: MIT

   CONTENTS   1 Driver   2 Configuration space   3 BARs   4 Interrupts   5 Transfers   6 Errors
              7 Resets   8 Fuzz */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "eptest_model.h"
#include "function.h"
#include "pages.h"
#include "pci.h"

#include "root_complex.h"

#include "push_host.h"

/* ==== 1  Driver =============================================================================== */

enum {
    BDF = 0x0308, /* 03:01.0 */
    SOURCE = 0x100000,
    TARGET = 0x800000 /* offsets in host memory */
};

static const uint64_t bar_at[5] = { 0x20000000, 0x20010000, 0x20020000, 0x20030000, 0x5000000000 };

static void reg_set(rc *r, unsigned reg, uint32_t value)
{
    uint8_t b[4];
    dxpu_put_le32(b, value);
    mmio_write(r, bar_at[0] + reg, b, 4);
}

static uint32_t dword_at(rc *r, uint64_t address)
{
    assert_int_equal(mmio_read_status(r, address, 4), DXPU_CPL_SC);
    return dxpu_get_le32(r->data);
}

static uint32_t reg_get(rc *r, unsigned reg)
{
    return dword_at(r, bar_at[0] + reg);
}

static void place_bars(rc *r)
{
    for (unsigned i = 0; i < 5; i++)
        cfg_write(r, 0x10 + 4 * i, (uint32_t)bar_at[i]);
    cfg_write(r, 0x24, (uint32_t)(bar_at[4] >> 32));
    cfg_write_be(r, 0x04, 0x0006, 0x3);
}

static rc *up_with(const jobs *executor, uint64_t bar_bytes)
{
    device_settings set = {
        .mps_bytes = 512, .identity = 7, .bar_bytes = bar_bytes, .jobs = executor
    };
    rc *r = calloc(1, sizeof *r);
    assert_non_null(r);
    rc_open(r, &eptest_kind, &set, BDF);
    place_bars(r);
    return r;
}

static rc *up(uint64_t bar_bytes)
{
    return up_with(NULL, bar_bytes);
}

static void down(rc *r)
{
    rc_close(r);
    free(r);
}

static eptest *model(rc *r)
{
    return r->dev;
}

/* `log2` messages of MSI, the data of the first is base. */
static void msi_on(rc *r, unsigned log2, uint32_t base)
{
    cfg_write(r, FN_CAP_MSI + 4, MSI_BASE);
    cfg_write(r, FN_CAP_MSI + 8, 0);
    cfg_write(r, FN_CAP_MSI + 12, base);
    cfg_write_be(r, FN_CAP_MSI, 0x00010000u | log2 << 20, 0xc);
}

static void msix_on(rc *r)
{
    for (uint32_t i = 0; i < EPTEST_MSIX; i++) {
        reg_set(r, EPTEST_TABLE + i * 16, MSI_BASE);
        reg_set(r, EPTEST_TABLE + i * 16 + 8, 64 + i);
        reg_set(r, EPTEST_TABLE + i * 16 + 12, 0);
    }
    cfg_write_be(r, FN_CAP_MSIX, 0x80000000u, 0xc);
}

static void start(rc *r, uint32_t cmd, uint64_t source, uint64_t target, uint32_t size)
{
    reg_set(r, EPTEST_SOURCE, (uint32_t)source);
    reg_set(r, EPTEST_SOURCE + 4, (uint32_t)(source >> 32));
    reg_set(r, EPTEST_DESTINATION, (uint32_t)target);
    reg_set(r, EPTEST_DESTINATION + 4, (uint32_t)(target >> 32));
    reg_set(r, EPTEST_SIZE, size);
    reg_set(r, EPTEST_IRQ_TYPE, EPTEST_IRQ_MSI);
    reg_set(r, EPTEST_IRQ_NUMBER, 1);
    reg_set(r, EPTEST_COMMAND, cmd);
}

/* The status of a whole command. */
static uint32_t do_command(rc *r, uint32_t cmd, uint64_t source, uint64_t target, uint32_t size)
{
    unsigned before = r->msi_count[0];
    uint32_t status;
    start(r, cmd, source, target, size);
    rc_run(r);
    status = reg_get(r, EPTEST_STATUS);
    assert_int_equal(r->msi_count[0] - before, (status & EPTEST_IRQ_RAISED) != 0);
    assert_int_equal(reg_get(r, EPTEST_COMMAND), 0);
    return status;
}

/* As the kernel's crc32_le(~0, ...): bit by bit, no final inversion. */
static uint32_t kernel_crc(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return crc;
}

static void fill(rc *r, uint32_t at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        r->mem[at + i] = (uint8_t)rnd(r);
}

/* ==== 2  Configuration space ================================================================== */

static void test_identity(void **state)
{
    rc *r = up(0);
    (void)state;
    assert_int_equal(cfg_read(r, 0x00), 0xb500104cu);
    assert_int_equal(cfg_read(r, 0x08), 0xff000001u);
    assert_int_equal(cfg_read(r, 0x34), FN_CAP_PM);
    down(r);
}

/* PM, MSI, MSI-X, PCI Express, end. */
static void test_capability_list(void **state)
{
    static const uint8_t ids[] = { 0x01, 0x05, 0x11, 0x10 };
    rc *r = up(0);
    unsigned at = cfg_read(r, 0x34) & 0xff;
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t v = cfg_read(r, at);
        assert_int_equal(v & 0xff, ids[i]);
        at = v >> 8 & 0xff;
    }
    assert_int_equal(at, 0);
    down(r);
}

static void test_bar_sizes(void **state)
{
    rc *r = up((uint64_t)4 << 30);
    static const uint32_t mask[6] = { ~(uint32_t)0x1fff, ~(uint32_t)0xfff, ~(uint32_t)0x1fff,
                                      ~(uint32_t)0x3fff, 0x0000000cu,      0xffffffffu };
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        cfg_write(r, 0x10 + 4 * i, 0xffffffff);
        assert_int_equal(cfg_read(r, 0x10 + 4 * i), mask[i]);
    }
    cfg_write(r, 0x30, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x30), 0); /* no expansion ROM */
    down(r);
}

static void test_power_states(void **state)
{
    rc *r = up(0);
    (void)state;
    cfg_write(r, FN_CAP_PM + 4, 1); /* D1 is not there */
    assert_int_equal(cfg_read(r, FN_CAP_PM + 4) & 3, 0);
    cfg_write(r, FN_CAP_PM + 4, 3);
    assert_int_equal(cfg_read(r, FN_CAP_PM + 4) & 3, 3);
    assert_int_equal(mmio_read_status(r, bar_at[1], 4), DXPU_CPL_UR);
    cfg_write(r, FN_CAP_PM + 4, 0);
    assert_int_equal(mmio_read_status(r, bar_at[1], 4), DXPU_CPL_SC);
    down(r);
}

/* ==== 3  BARs ================================================================================= */

/* As the driver does it: a pattern in each dword, then all are read back. */
static void test_bars_are_memory(void **state)
{
    static const uint32_t bytes[5] = { 4, EPTEST_BAR1_BYTES, EPTEST_BAR2_BYTES, EPTEST_BAR3_BYTES,
                                       EPTEST_BAR4_BYTES };
    rc *r = up(0);
    uint8_t b[4];
    (void)state;
    for (unsigned bar = 0; bar < 5; bar++) {
        for (uint32_t at = 0; at < bytes[bar]; at += 4) {
            dxpu_put_le32(b, 0xa0a00000u + at + bar);
            mmio_write(r, bar_at[bar] + at, b, 4);
        }
    }
    for (unsigned bar = 0; bar < 5; bar++) {
        for (uint32_t at = 0; at < bytes[bar]; at += 4)
            assert_int_equal(dword_at(r, bar_at[bar] + at), 0xa0a00000u + at + bar);
    }
    assert_int_equal(mmio_read_status(r, bar_at[3] + EPTEST_BAR3_BYTES, 4), DXPU_CPL_UR);
    assert_int_equal(mmio_read_status(r, bar_at[4] + EPTEST_BAR4_BYTES, 4), DXPU_CPL_UR);
    down(r);
}

static void test_bytes_within_a_dword(void **state)
{
    rc *r = up(0);
    uint8_t b[5] = { 1, 2, 3, 4, 5 };
    (void)state;
    mmio_write(r, bar_at[1] + 3, b, 5);
    assert_int_equal(dword_at(r, bar_at[1]), 0x01000000u);
    assert_int_equal(dword_at(r, bar_at[1] + 4), 0x05040302u);
    down(r);
}

/* 4 GB of which only what is written takes memory. */
static void test_far_end_of_4g(void **state)
{
    uint64_t size = (uint64_t)4 << 30;
    rc *r = up(size);
    uint8_t b[4] = { 0xde, 0xad, 0xbe, 0xef };
    (void)state;
    assert_int_equal(dword_at(r, bar_at[4] + size - 4), 0);
    mmio_write(r, bar_at[4] + size - 4, b, 4);
    mmio_write(r, bar_at[4] + size / 2, b, 3);
    assert_int_equal(dword_at(r, bar_at[4] + size - 4), 0xefbeaddeu);
    assert_int_equal(dword_at(r, bar_at[4] + size / 2), 0x00beaddeu);
    assert_int_equal(dword_at(r, bar_at[4]), 0);
    assert_int_equal(mmio_read_status(r, bar_at[4] + size, 4), DXPU_CPL_UR);
    down(r);
}

static void test_capabilities_register_is_read_only(void **state)
{
    rc *r = up(0);
    (void)state;
    assert_int_equal(reg_get(r, EPTEST_CAPS), EPTEST_CAPS_VALUE);
    reg_set(r, EPTEST_CAPS, 0xffffffff);
    assert_int_equal(reg_get(r, EPTEST_CAPS), EPTEST_CAPS_VALUE);
    reg_set(r, EPTEST_FLAGS, 0xffffffff); /* its neighbour is memory */
    assert_int_equal(reg_get(r, EPTEST_FLAGS), 0xffffffff);
    down(r);
}

static void test_memory_disabled(void **state)
{
    rc *r = up(0);
    (void)state;
    assert_int_equal(mmio_read_status(r, bar_at[0], 4), DXPU_CPL_SC);
    cfg_write_be(r, 0x04, 0x0004, 0x3);
    assert_int_equal(mmio_read_status(r, bar_at[0], 4), DXPU_CPL_UR);
    down(r);
}

/* ==== 4  Interrupts =========================================================================== */

static void raise_command(rc *r, uint32_t cmd, uint32_t number)
{
    reg_set(r, EPTEST_IRQ_NUMBER, number);
    reg_set(r, EPTEST_COMMAND, cmd);
    rc_run(r);
}

static void test_msi(void **state)
{
    rc *r = up(0);
    (void)state;
    raise_command(r, EPTEST_RAISE_MSI, 1); /* not enabled */
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    msi_on(r, 3, 0x40);
    for (unsigned i = 1; i <= 8; i++) {
        raise_command(r, EPTEST_RAISE_MSI, i);
        assert_int_equal(reg_get(r, EPTEST_STATUS), EPTEST_IRQ_RAISED);
        assert_int_equal(r->msi_count[0x40 + i - 1], 1);
    }
    raise_command(r, EPTEST_RAISE_MSI, 9);
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    raise_command(r, EPTEST_RAISE_MSI, 0);
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    assert_int_equal(r->writes, 8);
    down(r);
}

static void test_msi_mask_and_pending(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 2, 0);
    cfg_write(r, FN_CAP_MSI + 16, 1u << 2);
    raise_command(r, EPTEST_RAISE_MSI, 3);
    assert_int_equal(r->msi_count[2], 0);
    assert_int_equal(cfg_read(r, FN_CAP_MSI + 20), 1u << 2);
    raise_command(r, EPTEST_RAISE_MSI, 2); /* its neighbour is not masked */
    assert_int_equal(r->msi_count[1], 1);
    cfg_write(r, FN_CAP_MSI + 16, 0);
    assert_int_equal(r->msi_count[2], 1);
    assert_int_equal(cfg_read(r, FN_CAP_MSI + 20), 0);
    down(r);
}

static void test_msix(void **state)
{
    rc *r = up(0);
    (void)state;
    raise_command(r, EPTEST_RAISE_MSIX, 1);
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    msix_on(r);
    for (unsigned i = 1; i <= EPTEST_MSIX; i++) {
        raise_command(r, EPTEST_RAISE_MSIX, i);
        assert_int_equal(reg_get(r, EPTEST_STATUS), EPTEST_IRQ_RAISED);
        assert_int_equal(r->msi_count[64 + i - 1], 1);
    }
    raise_command(r, EPTEST_RAISE_MSIX, EPTEST_MSIX + 1);
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    assert_int_equal(r->writes, EPTEST_MSIX);
    down(r);
}

static void test_msix_mask_and_pending(void **state)
{
    rc *r = up(0);
    (void)state;
    msix_on(r);
    reg_set(r, EPTEST_TABLE + 5 * 16 + 12, 1);
    raise_command(r, EPTEST_RAISE_MSIX, 6);
    assert_int_equal(r->msi_count[69], 0);
    assert_int_equal(reg_get(r, EPTEST_PBA), 1u << 5);
    reg_set(r, EPTEST_PBA, 0); /* read-only */
    assert_int_equal(reg_get(r, EPTEST_PBA), 1u << 5);
    reg_set(r, EPTEST_TABLE + 5 * 16 + 12, 0);
    assert_int_equal(r->msi_count[69], 1);
    assert_int_equal(reg_get(r, EPTEST_PBA), 0);
    cfg_write_be(r, FN_CAP_MSIX, 0xc0000000u, 0xc); /* all of them */
    raise_command(r, EPTEST_RAISE_MSIX, 6);
    assert_int_equal(r->msi_count[69], 1);
    cfg_write_be(r, FN_CAP_MSIX, 0x80000000u, 0xc);
    assert_int_equal(r->msi_count[69], 2);
    down(r);
}

static void test_no_intx(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    raise_command(r, EPTEST_RAISE_INTX, 0);
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    assert_int_equal(r->writes, 0);
    assert_int_equal(cfg_read(r, 0x3c) >> 8 & 0xff, 0); /* no pin */
    down(r);
}

/* ==== 5  Transfers ============================================================================ */

static const uint32_t sizes[] = {
    1, 2, 3, 4, 5, 63, 64, 127, 129, 4095, 4096, 4097, 65537, 1 << 20
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void test_read(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    for (unsigned i = 0; i < SIZES; i++) {
        uint32_t at = SOURCE + rnd(r) % 4097;
        uint64_t base = i & 1 ? MEM_HIGH : MEM_LOW;
        fill(r, at, sizes[i]);
        reg_set(r, EPTEST_CHECKSUM, kernel_crc(r->mem + at, sizes[i]));
        assert_int_equal(do_command(r, EPTEST_READ, base + at, 0, sizes[i]),
                         EPTEST_READ_SUCCESS | EPTEST_IRQ_RAISED);
        r->mem[at + sizes[i] / 2] ^= 0x10;
        assert_int_equal(do_command(r, EPTEST_READ, base + at, 0, sizes[i]),
                         EPTEST_READ_FAIL | EPTEST_IRQ_RAISED);
    }
    down(r);
}

static void test_write(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    for (unsigned i = 0; i < SIZES; i++) {
        uint32_t at = TARGET + rnd(r) % 4097;
        memset(r->mem + at - 1, 0x5a, sizes[i] + 2);
        assert_int_equal(do_command(r, EPTEST_WRITE, 0, MEM_HIGH + at, sizes[i]),
                         EPTEST_WRITE_SUCCESS | EPTEST_IRQ_RAISED);
        assert_int_equal(reg_get(r, EPTEST_CHECKSUM), kernel_crc(r->mem + at, sizes[i]));
        assert_int_equal(r->mem[at - 1], 0x5a); /* neither before ... */
        assert_int_equal(r->mem[at + sizes[i]], 0x5a);
    }
    down(r);
}

static void test_copy(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    for (unsigned i = 0; i < SIZES; i++) {
        uint32_t from = SOURCE + rnd(r) % 4097, to = TARGET + rnd(r) % 4097;
        fill(r, from, sizes[i]);
        memset(r->mem + to - 1, 0x5a, sizes[i] + 2);
        assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + from, MEM_LOW + to, sizes[i]),
                         EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
        assert_memory_equal(r->mem + from, r->mem + to, sizes[i]);
        assert_int_equal(r->mem[to - 1], 0x5a);
        assert_int_equal(r->mem[to + sizes[i]], 0x5a);
    }
    down(r);
}

/* Sizes and number of requests in flight are those that software programs; the root complex of this
   test looks at each. */
static void test_limits(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    fill(r, SOURCE, 1 << 16);
    r->hold = true;
    r->mrrs = 128;
    cfg_write_be(r, FN_CAP_PCIE + 8, 0x0000, 0x3);
    start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 1 << 16);
    rc_run(r);
    assert_int_equal(r->most_in_flight, 32);
    assert_true(cfg_read(r, FN_CAP_PCIE + 8) & 0x00200000u); /* transactions pending */
    r->hold = false;
    rc_run(r);
    assert_int_equal(r->most_in_flight, 32);
    assert_false(cfg_read(r, FN_CAP_PCIE + 8) & 0x00200000u);
    assert_memory_equal(r->mem + SOURCE, r->mem + TARGET, 1 << 16);
    r->mrrs = 256; /* and now 256 tags, reads of 256 and writes of 512 bytes */
    r->mps = 512;
    r->hold = true;
    r->writes = 0;
    cfg_write_be(r, FN_CAP_PCIE + 8, 0x1140, 0x3);
    start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET + 0x100000, 1 << 16);
    rc_run(r);
    assert_int_equal(r->most_in_flight, 256);
    r->hold = false;
    rc_run(r);
    assert_memory_equal(r->mem + SOURCE, r->mem + TARGET + 0x100000, 1 << 16);
    assert_int_equal(r->writes, (1 << 16) / 512 + 1);
    down(r);
}

/* A box whose channel is full holds the device back. */
static void test_back_pressure(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    r->closed = true;
    start(r, EPTEST_WRITE, 0, MEM_LOW + TARGET, 4096);
    rc_run(r);
    assert_int_equal(r->writes, 0);
    r->closed = false;
    eptest_kind.tick(r->dev, 1);
    rc_run(r);
    assert_int_equal(reg_get(r, EPTEST_STATUS), EPTEST_WRITE_SUCCESS | EPTEST_IRQ_RAISED);
    assert_int_equal(r->writes, 4096 / 128 + 1);
    down(r);
}

/* A command that arrives while one is being done is done after it. */
static void test_commands_queue(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    r->hold = true;
    start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 64);
    rc_run(r);
    reg_set(r, EPTEST_COMMAND, EPTEST_WRITE);
    assert_int_equal(reg_get(r, EPTEST_COMMAND), EPTEST_WRITE);
    assert_int_equal(r->msi_count[0], 0);
    r->hold = false;
    rc_run(r);
    assert_int_equal(r->msi_count[0], 2);
    assert_int_equal(reg_get(r, EPTEST_STATUS), EPTEST_WRITE_SUCCESS | EPTEST_IRQ_RAISED);
    down(r);
}

static void test_unknown_command(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    raise_command(r, 0x1000, 1);
    assert_int_equal(reg_get(r, EPTEST_COMMAND), 0);
    assert_int_equal(reg_get(r, EPTEST_STATUS), 0);
    assert_int_equal(r->writes, 0);
    assert_int_equal(model(r)->count.commands_unknown, 1);
    down(r);
}

/* ==== 6  Errors =============================================================================== */

static void test_no_bus_master(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    cfg_write_be(r, 0x04, 0x0002, 0x3);
    start(r, EPTEST_READ, MEM_LOW + SOURCE, 0, 64);
    rc_run(r);
    assert_int_equal(r->reads + r->writes, 0);
    assert_int_equal(reg_get(r, EPTEST_STATUS),
                     EPTEST_READ_FAIL | EPTEST_SOURCE_INVALID | EPTEST_IRQ_RAISED);
    start(r, EPTEST_WRITE, 0, MEM_LOW + TARGET, 64);
    rc_run(r);
    assert_int_equal(r->reads + r->writes, 0);
    assert_int_equal(reg_get(r, EPTEST_STATUS),
                     EPTEST_WRITE_FAIL | EPTEST_DESTINATION_INVALID | EPTEST_IRQ_RAISED);
    cfg_write_be(r, 0x04, 0x0006, 0x3); /* the interrupt was pending */
    assert_int_equal(r->msi_count[0], 1);
    down(r);
}

/* Bus mastering ends in the middle of a transfer. */
static void test_bus_master_taken_away(void **state)
{
    rc *r = up(0);
    unsigned reads;
    (void)state;
    msi_on(r, 0, 0);
    r->hold = true;
    start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 1 << 20);
    rc_run(r);
    reads = r->reads;
    cfg_write_be(r, 0x04, 0x0002, 0x3);
    r->hold = false;
    rc_run(r);
    assert_int_equal(r->reads, reads);
    assert_int_equal(r->writes, 0);
    assert_true(model(r)->fn.count.completions_late > 0);
    cfg_write_be(r, 0x04, 0x0006, 0x3);
    assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 4096),
                     EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
    down(r);
}

static void test_failed_completions(void **state)
{
    static const struct {
        uint8_t status;
        bool poison;
        uint32_t pci_status;
    } rows[] = { { DXPU_CPL_UR, false, 0x2000 },
                 { DXPU_CPL_CA, false, 0x1000 },
                 { DXPU_CPL_SC, true, 0x8000 } };
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    for (unsigned i = 0; i < 3; i++) {
        r->status = rows[i].status;
        r->poison = rows[i].poison;
        assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 8192),
                         EPTEST_COPY_FAIL | EPTEST_SOURCE_INVALID | EPTEST_IRQ_RAISED);
        assert_int_equal(cfg_read(r, 0x04) >> 16 & 0xf000, rows[i].pci_status);
        cfg_write_be(r, 0x04, 0xf9000000u, 0xc);
        assert_int_equal(cfg_read(r, 0x04) >> 16 & 0xf000, 0);
    }
    r->status = DXPU_CPL_SC;
    r->poison = false;
    assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 8192),
                     EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
    down(r);
}

static void test_completion_timeout(void **state)
{
    rc *r = up(0);
    (void)state;
    msi_on(r, 0, 0);
    cfg_write_be(r, FN_CAP_PCIE + 0x28, 0x6, 0x1); /* 65 to 210 ms */
    eptest_kind.tick(r->dev, 1000);
    r->hold = true;
    start(r, EPTEST_READ, MEM_LOW + SOURCE, 0, 4096);
    rc_run(r);
    eptest_kind.tick(r->dev, 209999999u);
    rc_run(r);
    assert_int_equal(r->msi_count[0], 0);
    eptest_kind.tick(r->dev, 210002000u);
    rc_run(r);
    assert_int_equal(r->msi_count[0], 1);
    assert_int_equal(reg_get(r, EPTEST_STATUS),
                     EPTEST_READ_FAIL | EPTEST_SOURCE_INVALID | EPTEST_IRQ_RAISED);
    assert_true(model(r)->fn.count.completion_timeouts > 0);
    rc_forget(r);
    eptest_kind.tick(r->dev, 430000000u); /* the tags have rested */
    r->hold = false;
    assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 4096),
                     EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
    down(r);
}

static void test_poisoned_write_is_dropped(void **state)
{
    rc *r = up(0);
    uint8_t b[4] = { 1, 2, 3, 4 };
    dxpu_tlp t = rc_request(r, DXPU_TLP_MWR, bar_at[1], 4);
    (void)state;
    t.payload.ptr = b;
    t.payload.len = 4;
    t.ep = true;
    rc_give(r, &t);
    assert_int_equal(dword_at(r, bar_at[1]), 0);
    assert_int_equal(model(r)->fn.count.poisoned, 1);
    down(r);
}

/* ==== 7  Resets =============================================================================== */

static void test_reset_leaves_nothing(void **state)
{
    dxpu_event hot = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        rc *r = up((uint64_t)1 << 32);
        uint8_t b[4] = { 1, 2, 3, 4 };
        msi_on(r, 0, 0);
        msix_on(r);
        for (unsigned bar = 1; bar < 5; bar++)
            mmio_write(r, bar_at[bar] + 0x800, b, 4);
        mmio_write(r, bar_at[4] + 0xfffff000u, b, 4);
        r->hold = true;
        start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 1 << 20);
        rc_run(r);
        if (way == 0)
            cfg_write_be(r, FN_CAP_PCIE + 8, 0x8000, 0x3);
        else if (way == 1)
            eptest_kind.event(r->dev, &hot);
        else
            eptest_kind.reset(r->dev);
        if (way > 0)
            rc_forget(r);
        assert_int_equal(cfg_read(r, 0x10), 0);
        assert_int_equal(cfg_read(r, 0x04) & 0xffff, 0);
        r->hold = false;
        rc_run(r);
        assert_int_equal(r->writes, 0); /* neither data nor an interrupt of the old command */
        place_bars(r);
        for (unsigned bar = 1; bar < 5; bar++)
            assert_int_equal(dword_at(r, bar_at[bar] + 0x800), 0);
        assert_int_equal(dword_at(r, bar_at[4] + 0xfffff000u), 0);
        assert_int_equal(reg_get(r, EPTEST_SIZE), 0);
        assert_int_equal(reg_get(r, EPTEST_TABLE), 0);
        assert_int_equal(reg_get(r, EPTEST_TABLE + 12), 1);
        msi_on(r, 0, 0);
        assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 5000),
                         EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
        down(r);
    }
}

/* An answer to a request of before a function-level reset meets none of those since: the tag is not
   used again before it arrives, whoever keeps the answer back. */
static void test_d61_late_completions_meet_no_request(void **state)
{
    rc *r = up(0);
    uint32_t before;
    (void)state;
    msi_on(r, 0, 0);
    r->hold = true;
    start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 1 << 20);
    rc_run(r);
    before = r->most_in_flight;
    assert_true(before > 0);
    cfg_write_be(r, FN_CAP_PCIE + 8, 0x8000, 0x3);
    place_bars(r);
    msi_on(r, 0, 0);
    memset(r->mem + TARGET, 0, 5000);
    memset(r->mem + SOURCE, 0x5a, 5000);
    start(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 5000);
    rc_run(r); /* a tag of one that is in flight would be noticed here */
    r->hold = false;
    rc_run(r);
    assert_true(model(r)->fn.count.completions_late >= before); /* one of each at least */
    assert_int_equal(reg_get(r, EPTEST_STATUS), EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
    assert_memory_equal(r->mem + TARGET, r->mem + SOURCE, 5000);
    down(r);
}

/* jobs.settle, in a job: it waits for itself. */
static void never(void *user)
{
    (void)user;
    fail_msg("waits for its own end");
}

/* One that cannot be made, in a job of its executor: as where a device is plugged in. */
static void test_one_that_cannot_be_made(void **state)
{
    static const device_port none;
    jobs_queue done;
    jobs own;
    device_settings set = {
        .jobs = &own, .mps_bytes = 512, .timeout_ns = DXPU_NEVER, .bar_bytes = (uint64_t)1 << 62
    };
    (void)state;
    jobs_here(&done, &own);
    own.settle = never;
    assert_null(eptest_kind.create(&set, &none));
}

/* S-161: a job gives back the memory that a reset takes away; its time is not the loop's. */
static void test_s161_a_reset_clears_at_once(void **state)
{
    dxpu_event hot = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    jobs_queue kept;
    jobs later = rc_jobs_later(&kept);
    uint8_t b[4] = { 1, 2, 3, 4 };
    rc *r = up_with(&later, (uint64_t)1 << 32);
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        bool much = i % 2;
        uint64_t at = bar_at[4] + (much ? 0xfffff000u : 0x800);
        place_bars(r);
        mmio_write(r, at, b, 4);
        mmio_write(r, bar_at[1], b, 4);
        assert_int_equal(dword_at(r, at), 0x04030201);
        if (i / 2 == 0)
            cfg_write_be(r, FN_CAP_PCIE + 8, 0x8000, 0x3);
        else if (i / 2 == 1)
            eptest_kind.event(r->dev, &hot);
        else
            eptest_kind.reset(r->dev);
        assert_int_equal(kept.head != NULL, much); /* little is cleared where it is */
        place_bars(r);
        assert_int_equal(dword_at(r, at), 0);
        assert_int_equal(dword_at(r, bar_at[1]), 0);
        assert_int_equal(reg_get(r, EPTEST_CAPS), EPTEST_CAPS_VALUE);
        assert_int_equal(rc_jobs_run(&kept), much);
    }
    down(r);
}

/* ==== 8  Fuzz ================================================================================= */

/* ---- push rules ---- */

/* The reads of a command whose source has new contents, of which the checksum is right. */
static unsigned push_reads_of(rc *r, uint64_t source, uint32_t at, uint32_t bytes)
{
    unsigned before = r->reads;
    fill(r, at, bytes);
    reg_set(r, EPTEST_CHECKSUM, kernel_crc(r->mem + at, bytes));
    assert_int_equal(do_command(r, EPTEST_READ, source, 0, bytes) & ~(uint32_t)EPTEST_IRQ_RAISED,
                     EPTEST_READ_SUCCESS);
    return r->reads - before;
}

static void test_u13_source_comes_with_the_command(void **state)
{
    uint8_t payload[DXPU_PUSH_OFFER_BYTES];
    rc *r = up(0);
    uint64_t low = MEM_LOW + SOURCE, high = MEM_HIGH + SOURCE + 3;
    uint64_t dropped;
    uint32_t last;
    dxpu_tlp t;
    (void)state;
    msi_on(r, 0, 0);
    push_begin(r);
    assert_true(push_reads_of(r, low, SOURCE, 64) > 0); /* control: nothing is offered */
    assert_int_equal(pushes.count, 0);
    push_offer(r, 4);
    assert_true(push_reads_of(r, low, SOURCE, 64) > 0); /* the rule comes with it */
    assert_int_equal(pushes.count, 1);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(push_reads_of(r, low, SOURCE, 64), 0);
    assert_true(push_reads_of(r, high, SOURCE + 3, 64) > 0); /* at another place */
    assert_int_equal(push_reads_of(r, high, SOURCE + 3, 64), 0);
    assert_true(push_reads_of(r, high, SOURCE + 3, 1000) > 0); /* more of it */
    assert_int_equal(pushes.count, 1);
    assert_int_equal(push_reads_of(r, high, SOURCE + 3, 1000), 0);
    assert_true(push_reads_of(r, low, SOURCE, 4096) > 2);
    assert_true(push_reads_of(r, low, SOURCE, 4096) > 0); /* what is beyond a push's bytes */
    assert_int_equal(do_command(r, EPTEST_COPY, low, MEM_LOW + TARGET, 4096) &
                         ~(uint32_t)EPTEST_IRQ_RAISED,
                     EPTEST_COPY_SUCCESS);
    assert_memory_equal(r->mem + TARGET, r->mem + SOURCE, 4096);
    last = pushes.entry[0].rule.generation;
    push_offer(r, 4); /* in mid-channel: rules are made again, of other generations (U-4) */
    assert_true(push_reads_of(r, low, SOURCE, 64) > 0);
    assert_true(pushes.count == 1 && pushes.entry[0].rule.generation > last);
    assert_int_equal(push_reads_of(r, low, SOURCE, 64), 0);
    dropped = model(r)->fn.count.pushes_dropped;
    dxpu_push_offer_message(&pushes.offer, payload, &t);
    t.ep = true; /* U-1 */
    rc_give(r, &t);
    assert_int_equal(model(r)->fn.count.pushes_dropped, dropped + 1);
    assert_int_equal(push_reads_of(r, low, SOURCE, 64), 0);
    place_bars(r); /* the doorbell may be elsewhere now (U-14) */
    assert_int_equal(pushes.count, 0);
    assert_true(push_reads_of(r, low, SOURCE, 64) > 0);
    assert_int_equal(push_reads_of(r, low, SOURCE, 64), 0);
    down(r);
}

static void fuzz_step(rc *r)
{
    static const uint8_t types[] = { DXPU_TLP_MRD, DXPU_TLP_MWR,    DXPU_TLP_MWR,
                                     DXPU_TLP_MWR, DXPU_TLP_CFGWR0, DXPU_TLP_CFGRD0 };
    uint8_t data[16];
    dxpu_tlp t;
    uint8_t type = types[rnd(r) % 6];
    uint32_t at = rnd(r) % 8 ? rnd(r) % 0x40 : rnd(r) % EPTEST_BAR0_BYTES;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = rnd(r) % 4 ? 0 : (uint8_t)rnd(r);
    t = rc_request(r, type, bar_at[rnd(r) % 8 ? 0 : rnd(r) % 5] + (at & ~3u), 4);
    if (type == DXPU_TLP_CFGWR0 || type == DXPU_TLP_CFGRD0) {
        t.header_dw = 3;
        t.address = 0;
        t.register_bytes = (uint16_t)(rnd(r) % 0x100 & ~3u);
        t.length_dw = 1;
        t.last_be = 0;
    }
    t.first_be = (uint8_t)(rnd(r) % 15 + 1);
    if (type == DXPU_TLP_MWR || type == DXPU_TLP_CFGWR0) {
        t.payload.ptr = data;
        t.payload.len = 4;
    }
    rc_give(r, &t);
}

/* Whatever a driver does, the device neither breaks nor stops working after a reset. */
static void test_fuzz(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 60; seed++) {
        rc *r = up(0);
        r->seed = seed;
        r->foreign = true;
        for (unsigned i = 0; i < 400; i++) {
            fuzz_step(r);
            rc_look(r);
            if (rnd(r) % 4)
                (void)rc_answer_one(r);
            if (rnd(r) % 64 == 0)
                place_bars(r);
            eptest_kind.tick(r->dev, (uint64_t)i * 1000000);
        }
        r->foreign = false;
        rc_forget(r);
        eptest_kind.reset(r->dev);
        place_bars(r);
        msi_on(r, 0, 0);
        assert_int_equal(do_command(r, EPTEST_COPY, MEM_LOW + SOURCE, MEM_LOW + TARGET, 3000),
                         EPTEST_COPY_SUCCESS | EPTEST_IRQ_RAISED);
        down(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_capability_list),
        cmocka_unit_test(test_bar_sizes),
        cmocka_unit_test(test_power_states),
        cmocka_unit_test(test_bars_are_memory),
        cmocka_unit_test(test_bytes_within_a_dword),
        cmocka_unit_test(test_far_end_of_4g),
        cmocka_unit_test(test_capabilities_register_is_read_only),
        cmocka_unit_test(test_memory_disabled),
        cmocka_unit_test(test_msi),
        cmocka_unit_test(test_msi_mask_and_pending),
        cmocka_unit_test(test_msix),
        cmocka_unit_test(test_msix_mask_and_pending),
        cmocka_unit_test(test_no_intx),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_commands_queue),
        cmocka_unit_test(test_unknown_command),
        cmocka_unit_test(test_no_bus_master),
        cmocka_unit_test(test_bus_master_taken_away),
        cmocka_unit_test(test_failed_completions),
        cmocka_unit_test(test_completion_timeout),
        cmocka_unit_test(test_poisoned_write_is_dropped),
        cmocka_unit_test(test_reset_leaves_nothing),
        cmocka_unit_test(test_d61_late_completions_meet_no_request),
        cmocka_unit_test(test_one_that_cannot_be_made),
        cmocka_unit_test(test_s161_a_reset_clears_at_once),
        cmocka_unit_test(test_u13_source_comes_with_the_command),
        cmocka_unit_test(test_fuzz),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
