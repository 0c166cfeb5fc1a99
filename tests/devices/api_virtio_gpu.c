/* api_virtio_gpu.c - the virtio display adapter under a driver that knows only the standard
   SPDX-License-Identifier: MIT

   Numbers are those of Virtual I/O Device 1.2, 5.7, not of the model's headers.

   CONTENTS   1 What the device says   2 Resources   3 Transfers and pictures   4 Cursor   5 Order
              6 Malformed commands   7 Limits   8 Resets */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "virtio_gpu.h"

#include "virtio_gpu_driver.h"

/* ==== 1  What the device says ================================================================= */

static void test_identity_and_configuration(void **state)
{
    driver *d = drv_open();
    (void)state;
    assert_int_equal(cfg_read(&d->r, 0x00), 0x10501af4);
    assert_int_equal(cfg_read(&d->r, 0x08) >> 8, 0x038000);
    assert_int_equal(common(d, NUM_QUEUES, 2), QUEUES);
    assert_int_equal(get(d, d->config, 4), 0); /* no event */
    set(d, d->config + 4, 1, 4);
    assert_int_equal(get(d, d->config + 8, 4), 1);  /* scanouts */
    assert_int_equal(get(d, d->config + 12, 4), 0); /* capability sets */
    assert_int_equal(offered(d) & 0x1f, F_EDID);    /* no 3D, UUID, blob, context init */
    drv_close(d);
}

static void test_display_and_edid(void **state)
{
    driver *d = drv_up(F_USUAL);
    const uint8_t *p = reply_of(d, 0);
    uint8_t sum = 0;
    (void)state;
    assert_int_equal(run(d, DISPLAY_INFO, 0, NULL), OK_DISPLAY);
    assert_int_equal(dxpu_get_le32(p + 24 + 8), 1024);
    assert_int_equal(dxpu_get_le32(p + 24 + 12), 768);
    assert_int_equal(dxpu_get_le32(p + 24 + 16), 1);
    for (unsigned i = 1; i < 16; i++)
        assert_int_equal(dxpu_get_le32(p + 24 + i * 24 + 16), 0); /* there are no others */
    assert_int_equal(run(d, GET_EDID, WORDS(0, 0)), OK_EDID);
    assert_int_equal(dxpu_get_le32(p + 24), 128);
    for (unsigned i = 0; i < 128; i++)
        sum = (uint8_t)(sum + p[32 + i]);
    assert_int_equal(sum, 0);
    assert_int_equal(p[32 + 54], 0x64); /* the preferred timing: 65 MHz */
    assert_int_equal(dxpu_get_le32(p + 32 + 12), 0x77);
    assert_int_equal(run(d, GET_EDID, WORDS(1, 0)), BAD_SCANOUT);
    drv_close(d);
    d = drv_up(F_VERSION_1); /* not negotiated */
    assert_int_equal(run(d, GET_EDID, WORDS(0, 0)), UNSPEC);
    drv_close(d);
}

/* ==== 2  Resources ============================================================================ */

static void test_create_and_unref(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    assert_int_equal(create(d, 0, BGRX, 8, 8), BAD_RESOURCE);
    assert_int_equal(create(d, 7, BGRX, 8, 8), OK);
    assert_int_equal(create(d, 7, BGRX, 8, 8), BAD_RESOURCE);
    assert_int_equal(create(d, 7 + 256, BGRX, 8, 8), OK); /* in the same bucket */
    assert_int_equal(create(d, 8, 5, 8, 8), BAD_PARAMETER);
    assert_int_equal(create(d, 8, BGRX, 0, 8), BAD_PARAMETER);
    assert_int_equal(create(d, 8, BGRX, 8, 0), BAD_PARAMETER);
    assert_int_equal(create(d, 8, BGRX, 0x80000001u, 2), BAD_PARAMETER);
    assert_int_equal(run(d, UNREF, WORDS(9, 0)), BAD_RESOURCE);
    assert_int_equal(run(d, UNREF, WORDS(0, 0)), BAD_RESOURCE);
    assert_int_equal(run(d, UNREF, WORDS(7, 0)), OK);
    assert_int_equal(run(d, UNREF, WORDS(7, 0)), BAD_RESOURCE);
    assert_int_equal(run(d, UNREF, WORDS(7 + 256, 0)), OK);
    assert_int_equal(create(d, 7, BGRX, 8, 8), OK);
    drv_close(d);
}

static void test_backing(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    assert_int_equal(create(d, 1, BGRX, 16, 16), OK);
    assert_int_equal(transfer(d, 1, 0, 0, 16, 16, 0), UNSPEC); /* it has none */
    assert_int_equal(run(d, DETACH, WORDS(1, 0)), UNSPEC);
    assert_int_equal(attach_one(d, 2, MEM_LOW + AT_DATA, 1024), BAD_RESOURCE);
    assert_int_equal(attach(d, 1, 0), BAD_PARAMETER);
    assert_int_equal(attach_one(d, 1, UINT64_MAX - 100, 1024), BAD_PARAMETER);
    assert_int_equal(attach_one(d, 1, MEM_LOW + AT_DATA, 1024), OK);
    assert_int_equal(attach_one(d, 1, MEM_LOW + AT_DATA, 1024), UNSPEC); /* it has some */
    assert_int_equal(transfer(d, 1, 0, 0, 16, 16, 0), OK);
    assert_int_equal(run(d, DETACH, WORDS(1, 0)), OK);
    assert_int_equal(transfer(d, 1, 0, 0, 16, 16, 0), UNSPEC);
    assert_int_equal(run(d, DETACH, WORDS(2, 0)), BAD_RESOURCE);
    put_command(d, 0, ATTACH, WORDS(1, 3)); /* fewer entries than it says */
    assert_int_equal(done(d, CONTROL, 32, 47, REPLY_ROOM), BAD_PARAMETER);
    put_command(d, 0, ATTACH, WORDS(1, 16385));
    assert_int_equal(done(d, CONTROL, 32, 64, REPLY_ROOM), BAD_PARAMETER);
    put_command(d, 0, ATTACH, WORDS(1, 0x10000001));
    assert_int_equal(done(d, CONTROL, 32, 16, REPLY_ROOM), BAD_PARAMETER);
    drv_close(d);
}

/* ==== 3  Transfers and pictures =============================================================== */

static void fill_words(driver *d, uint32_t at, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        dxpu_put_le32(d->r.mem + at + i * 4, seed + i * 0x010203);
}

/* A resource of 100 x 60 in the driver's memory in pieces of odd sizes, one of them empty. */
static void make_scattered(driver *d)
{
    static const uint32_t sizes[] = { 1, 4096, 0, 777, 5000, 3, 8192, 24000 - 18069 };
    uint32_t at = AT_DATA;
    fill_words(d, AT_DATA, 6000, 5);
    assert_int_equal(create(d, 1, BGRX, 100, 60), OK);
    for (unsigned i = 0; i < 8; i++) {
        put_entry(d, i, (i & 1 ? MEM_HIGH : MEM_LOW) + at, sizes[i]);
        at += sizes[i];
    }
    assert_int_equal(attach(d, 1, 8), OK);
    assert_int_equal(scanout(d, 1, 0, 0, 100, 60), OK);
}

static void test_transfer_of_all(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    expect_dark(d);
    make_scattered(d);
    expect_size(d, 100, 60);
    expect_pixel(d, 99, 59, 0);
    assert_int_equal(transfer(d, 1, 0, 0, 100, 60, 0), OK);
    assert_int_equal(run(d, FLUSH, WORDS(0, 0, 100, 60, 1, 0)), OK);
    for (unsigned i = 0; i < 6000; i += 61)
        expect_pixel(d, i % 100, i / 100, (5 + i * 0x010203) & 0xffffff);
    assert_int_equal(scanout(d, 1, 10, 20, 30, 40), OK); /* a part of it */
    expect_size(d, 30, 40);
    expect_pixel(d, 1, 2, (5 + 2211 * 0x010203) & 0xffffff);
    assert_int_equal(scanout(d, 0, 0, 0, 0, 0), OK);
    expect_dark(d);
    drv_close(d);
}

/* Only the rectangle changes, and the offset is where its first row begins. */
static void test_transfer_of_a_rectangle(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    make_scattered(d);
    assert_int_equal(transfer(d, 1, 30, 10, 41, 33, (10 * 100 + 30) * 4), OK);
    for (unsigned i = 0; i < 6000; i += 7) {
        unsigned x = i % 100, y = i / 100;
        bool in = x >= 30 && x < 71 && y >= 10 && y < 43;
        expect_pixel(d, x, y, in ? (5 + i * 0x010203) & 0xffffff : 0);
    }
    assert_int_equal(transfer(d, 1, 0, 0, 1, 1, 4 * 5999), OK);
    expect_pixel(d, 0, 0, (5 + 5999 * 0x010203) & 0xffffff);
    assert_int_equal(transfer(d, 1, 0, 0, 0, 60, 0), OK); /* nothing */
    assert_int_equal(transfer(d, 1, 0, 0, 100, 60, 1), BAD_PARAMETER);
    assert_int_equal(transfer(d, 1, 0, 0, 1, 1, 4 * 6000 - 3), BAD_PARAMETER);
    assert_int_equal(transfer(d, 1, 0, 0, 1, 1, UINT64_MAX), BAD_PARAMETER);
    assert_int_equal(transfer(d, 1, 1, 0, 100, 1, 0), BAD_PARAMETER);
    assert_int_equal(transfer(d, 1, 0, 60, 1, 1, 0), BAD_PARAMETER);
    assert_int_equal(transfer(d, 1, UINT32_MAX, 0, 2, 1, 0), BAD_PARAMETER);
    assert_int_equal(transfer(d, 3, 0, 0, 1, 1, 0), BAD_RESOURCE);
    drv_close(d);
}

/* Memory that holds no row of the rectangle is not read: it cannot be.  The control: one row more
   cannot be transferred. */
static void test_only_covered_rows_are_read(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    assert_int_equal(create(d, 1, BGRX, 256, 64), OK);
    put_entry(d, 0, 0x7000000000u, 16 * 1024);
    put_entry(d, 1, MEM_LOW + AT_DATA, 32 * 1024);
    put_entry(d, 2, 0x7000000000u, 16 * 1024);
    assert_int_equal(attach(d, 1, 3), OK);
    assert_int_equal(transfer(d, 1, 0, 16, 256, 32, 16 * 1024), OK);
    assert_int_equal(transfer(d, 1, 3, 16, 200, 32, 16 * 1024 + 12), OK);
    assert_int_equal(transfer(d, 1, 0, 15, 256, 32, 15 * 1024), UNSPEC);
    assert_int_equal(transfer(d, 1, 3, 16, 200, 33, 16 * 1024 + 12), UNSPEC);
    assert_int_equal(status(d), 15);
    assert_int_equal(transfer(d, 1, 0, 16, 256, 32, 16 * 1024), OK); /* and it goes on */
    drv_close(d);
}

/* More bytes than are read at once, in few rows and in many. */
static void test_large_transfers(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 2; how++) {
        driver *d = drv_up(F_USUAL);
        fill_words(d, AT_DATA, 1 << 20, 9);
        assert_int_equal(create(d, 1, BGRX, 1024, 1024), OK);
        assert_int_equal(attach_one(d, 1, MEM_LOW + AT_DATA, 4 << 20), OK);
        assert_int_equal(scanout(d, 1, 0, 0, 1024, 1024), OK);
        assert_int_equal(transfer(d, 1, 0, 0, how ? 1023 : 1024, 1024, 0), OK);
        for (unsigned i = 0; i < 1 << 20; i += 50021) {
            bool in = !how || i % 1024 < 1023;
            expect_pixel(d, i % 1024, i / 1024, in ? (9 + i * 0x010203) & 0xffffff : 0);
        }
        drv_close(d);
    }
}

static void test_formats(void **state)
{
    static const struct {
        uint32_t number, want;
    } f[] = { { BGRA, 0x332211 }, { BGRX, 0x332211 }, { ARGB, 0x223344 }, { XRGB, 0x223344 },
              { RGBA, 0x112233 }, { XBGR, 0x443322 }, { ABGR, 0x443322 }, { RGBX, 0x112233 } };
    driver *d = drv_up(F_USUAL);
    (void)state;
    dxpu_put_le32(d->r.mem + AT_DATA, 0x44332211);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(create(d, i + 1, f[i].number, 1, 1), OK);
        assert_int_equal(attach_one(d, i + 1, MEM_LOW + AT_DATA, 4), OK);
        assert_int_equal(transfer(d, i + 1, 0, 0, 1, 1, 0), OK);
        assert_int_equal(scanout(d, i + 1, 0, 0, 1, 1), OK);
        expect_pixel(d, 0, 0, f[i].want);
    }
    drv_close(d);
}

static void test_scanout_and_flush_are_checked(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    assert_int_equal(create(d, 1, BGRX, 100, 60), OK);
    assert_int_equal(scanout(d, 2, 0, 0, 100, 60), BAD_RESOURCE);
    assert_int_equal(run(d, SET_SCANOUT, WORDS(0, 0, 100, 60, 1, 1)), BAD_SCANOUT);
    assert_int_equal(scanout(d, 1, 0, 0, 101, 60), BAD_PARAMETER);
    assert_int_equal(scanout(d, 1, 1, 0, 100, 60), BAD_PARAMETER);
    assert_int_equal(scanout(d, 1, 0, 0, 0, 60), BAD_PARAMETER);
    assert_int_equal(scanout(d, 1, 0, UINT32_MAX, 100, 2), BAD_PARAMETER);
    expect_dark(d);
    assert_int_equal(run(d, FLUSH, WORDS(0, 0, 100, 60, 2, 0)), BAD_RESOURCE);
    assert_int_equal(run(d, FLUSH, WORDS(0, 1, 100, 60, 1, 0)), BAD_PARAMETER);
    assert_int_equal(scanout(d, 1, 0, 0, 100, 60), OK);
    assert_int_equal(run(d, UNREF, WORDS(1, 0)), OK); /* what is shown */
    expect_dark(d);
    drv_close(d);
}

/* ==== 4  Cursor =============================================================================== */

static uint32_t cursor(driver *d, uint32_t type, uint32_t id, int32_t x, int32_t y)
{
    return run(d, type, WORDS(0, (uint32_t)x, (uint32_t)y, 0, id, 0, 0, 0));
}

static uint32_t half(uint32_t c)
{
    return (c >> 16 & 0xff) * 127 / 255 << 16 | (c >> 8 & 0xff) * 127 / 255 << 8 |
           (c & 0xff) * 127 / 255;
}

/* format: with an alpha channel or, as Linux has it, without one that its pixels have all the
   same. */
static void draw_with_cursor(uint32_t format)
{
    driver *d = drv_up(F_USUAL);
    make_scattered(d);
    assert_int_equal(create(d, 2, format, 64, 64), OK);
    assert_int_equal(attach_one(d, 2, MEM_LOW + AT_DATA + 0x10000, 64 * 64 * 4), OK);
    for (unsigned i = 0; i < 64 * 64; i++) /* opaque, then half, then not there */
        dxpu_put_le32(d->r.mem + AT_DATA + 0x10000 + i * 4, i < 64    ? 0xff0000ffu
                                                            : i < 128 ? 0x80400000u
                                                                      : 0);
    assert_int_equal(transfer(d, 2, 0, 0, 64, 64, 0), OK);
    assert_int_equal(transfer(d, 1, 0, 0, 100, 60, 0), OK);
    assert_int_equal(cursor(d, UPDATE_CURSOR, 2, 50, 20), OK);
    expect_pixel(d, 49, 20, (5 + 2049 * 0x010203) & 0xffffff);
    expect_pixel(d, 50, 20, 0x0000ff);
    expect_pixel(d, 50, 21, half(5 + 2150 * 0x010203) + 0x400000);
    expect_pixel(d, 50, 22, (5 + 2250 * 0x010203) & 0xffffff);
    assert_int_equal(cursor(d, MOVE_CURSOR, 0, -63, 59), OK); /* one pixel of it is left */
    expect_pixel(d, 0, 59, 0x0000ff);
    expect_pixel(d, 1, 59, (5 + 5901 * 0x010203) & 0xffffff);
    expect_pixel(d, 50, 20, (5 + 2050 * 0x010203) & 0xffffff);
    assert_int_equal(run(d, UNREF, WORDS(2, 0)), OK); /* it keeps its image */
    expect_pixel(d, 0, 59, 0x0000ff);
    assert_int_equal(cursor(d, UPDATE_CURSOR, 0, 0, 0), OK); /* no cursor */
    expect_pixel(d, 0, 0, 5);
    drv_close(d);
}

static void test_cursor_is_drawn(void **state)
{
    (void)state;
    draw_with_cursor(BGRA);
    draw_with_cursor(BGRX);
}

static void test_cursor_is_checked(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint32_t head, len;
    (void)state;
    assert_int_equal(create(d, 2, BGRA, 64, 63), OK);
    assert_int_equal(cursor(d, UPDATE_CURSOR, 2, 0, 0), BAD_PARAMETER);
    assert_int_equal(cursor(d, UPDATE_CURSOR, 3, 0, 0), BAD_RESOURCE);
    assert_int_equal(run(d, MOVE_CURSOR, WORDS(1, 0, 0, 0, 0, 0, 0, 0)), BAD_SCANOUT);
    put_command(d, 0, MOVE_CURSOR, WORDS(0, 0, 0, 0, 0, 0, 0, 0));
    assert_int_equal(done(d, CONTROL, 56, 0, REPLY_ROOM), UNSPEC); /* in the other queue */
    put_command(d, 0, DISPLAY_INFO, 0, NULL);
    assert_int_equal(done(d, CURSOR, 24, 0, REPLY_ROOM), UNSPEC);
    put_command(d, 0, MOVE_CURSOR, WORDS(0, 0, 0, 0, 0, 0, 0, 0));
    submit(d, CURSOR, 0, 56, 0, 0); /* as Linux does: no place for a reply */
    notify(d, CURSOR);
    rc_run(&d->r);
    assert_true(reap(d, CURSOR, &head, &len));
    assert_int_equal(len, 0);
    assert_int_equal(status(d), 15);
    drv_close(d);
}

/* ==== 5  Order ================================================================================ */

/* Command `i` of a cycle: a resource is made, gets memory, is filled, and goes. */
static uint32_t put_cycle(driver *d, unsigned i)
{
    switch (i % 4) {
    case 0:
        return put_command(d, i, CREATE_2D, WORDS(1, BGRX, 16, 16));
    case 1:
        return put_command(d, i, ATTACH, WORDS(1, 1, (uint32_t)MEM_LOW + AT_DATA, 0, 1024, 0));
    case 2:
        return put_command(d, i, TRANSFER, WORDS(0, 0, 16, 16, 0, 0, 1, 0));
    default:
        return put_command(d, i, UNREF, WORDS(1, 0));
    }
}

/* Whatever order reads are answered in, commands are done in the order of the queue. */
static void test_commands_are_done_in_order(void **state)
{
    (void)state;
    for (unsigned indirect = 0; indirect < 2; indirect++) {
        driver *d = drv_up(F_USUAL | (indirect ? F_INDIRECT : 0));
        uint32_t head, len;
        for (unsigned round = 0; round < 16; round++) {
            for (unsigned i = 0; i < 16; i++) {
                uint32_t bytes = put_cycle(d, i);
                uint64_t table = MEM_LOW + AT_TABLES + i * 4096u;
                uint8_t *to = indirect ? rc_mem(&d->r, table, 32) : ring_mem(d, 0, 0);
                put_chain(d, to, indirect ? 0 : i * 2, i, bytes, 0, REPLY_ROOM);
                if (indirect)
                    put_desc(ring_mem(d, 0, 0), i * 2, table, 32, INDIRECT, 0);
                avail_put(d, CONTROL, (uint16_t)(i * 2));
            }
            notify(d, CONTROL);
            rc_run(&d->r);
            for (unsigned i = 0; i < 16; i++) {
                assert_true(reap(d, CONTROL, &head, &len));
                assert_int_equal(head, i * 2);
                assert_int_equal(dxpu_get_le32(reply_of(d, i)), OK);
            }
        }
        drv_close(d);
    }
}

/* A fence is in the reply of its command, which comes when that is done: the picture has it. */
static void test_fences(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t *c = command_of(d, 0);
    const uint8_t *p = reply_of(d, 0);
    (void)state;
    make_scattered(d);
    put_command(d, 0, TRANSFER, WORDS(0, 0, 100, 60, 0, 0, 1, 0));
    dxpu_put_le32(c + 4, 1);
    dxpu_put_le32(c + 8, 0x89abcdefu);
    dxpu_put_le32(c + 12, 0x01234567u);
    dxpu_put_le32(c + 16, 5);
    submit(d, CONTROL, 0, 56, 0, 24);
    notify(d, CONTROL);
    while (!used_index(d, CONTROL) || dxpu_get_le32(p) != OK) {
        assert_true(d->r.answers_waiting);
        answer_round(d);
    }
    expect_pixel(d, 99, 59, (5 + 5999 * 0x010203) & 0xffffff);
    assert_int_equal(dxpu_get_le32(p + 4), 1);
    assert_int_equal(dxpu_get_le32(p + 8), 0x89abcdefu);
    assert_int_equal(dxpu_get_le32(p + 12), 0x01234567u);
    assert_int_equal(dxpu_get_le32(p + 16), 5);
    drv_close(d);
}

/* ==== 6  Malformed commands =================================================================== */

static void test_malformed_commands(void **state)
{
    static const uint32_t types[] = { CREATE_2D, UNREF,  SET_SCANOUT, FLUSH,
                                      TRANSFER,  ATTACH, DETACH,      GET_EDID };
    static const uint32_t bytes[] = { 40, 32, 48, 48, 56, 32, 32, 32 };
    driver *d = drv_up(F_USUAL);
    uint32_t head, len;
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        put_command(d, 0, types[i], WORDS(1, BGRX, 16, 16));
        assert_int_equal(done(d, CONTROL, bytes[i] - 1, 0, REPLY_ROOM), BAD_PARAMETER);
    }
    assert_int_equal(done(d, CONTROL, 23, 0, REPLY_ROOM), BAD_PARAMETER);
    assert_int_equal(done(d, CONTROL, 3, 0, REPLY_ROOM), UNSPEC);
    assert_int_equal(run(d, 0, 0, NULL), UNSPEC);
    assert_int_equal(run(d, CREATE_BLOB, WORDS(1, 1, 1, 0, 0, 0, 0, 0)), UNSPEC);
    assert_int_equal(run(d, CTX_CREATE, WORDS(0, 0)), UNSPEC);
    assert_int_equal(create(d, 1, BGRX, 16, 16), OK); /* none of them was made */
    put_command(d, 0, DISPLAY_INFO, 0, NULL);
    assert_int_equal(done(d, CONTROL, 24, 0, 24), OK_DISPLAY); /* cut off */
    assert_int_equal(done(d, CONTROL, 24, 0, 4), OK_DISPLAY);
    submit(d, CONTROL, 0, 24, 0, 0);
    put_desc(ring_mem(d, CONTROL, 0), 8, MEM_LOW + AT_REPLIES, 24, WRITE, 0); /* no command */
    avail_put(d, CONTROL, 8);
    put_desc(ring_mem(d, CONTROL, 0), 9, 0x7000000000u, 24, NEXT, 10); /* it cannot be read */
    put_desc(ring_mem(d, CONTROL, 0), 10, MEM_LOW + AT_REPLIES + 64, 24, WRITE, 0);
    avail_put(d, CONTROL, 9);
    notify(d, CONTROL);
    rc_run(&d->r);
    for (unsigned i = 0; i < 3; i++)
        assert_true(reap(d, CONTROL, &head, &len));
    assert_int_equal(dxpu_get_le32(d->r.mem + AT_REPLIES), UNSPEC);
    assert_int_equal(dxpu_get_le32(d->r.mem + AT_REPLIES + 64), UNSPEC);
    assert_int_equal(status(d), 15);
    drv_close(d);
}

/* A reply has nothing of commands of another tenant, whose places in memory it takes. */
static void test_nothing_of_another_tenant(void **state)
{
    static const uint8_t zero[20] = { 0 };
    driver *d = drv_up(F_USUAL);
    (void)state;
    for (unsigned i = 0; i < 256; i++) { /* as many as the device takes at once */
        uint8_t *c = command_of(d, 0);
        put_command(d, 0, FLUSH, WORDS(0, 0, 1, 1, 7, 0));
        dxpu_put_le32(c + 4, 1);
        memset(c + 8, 0x5a, 12);
        assert_int_equal(done(d, CONTROL, 48, 0, REPLY_ROOM), BAD_RESOURCE);
        assert_int_equal(reply_of(d, 0)[8], 0x5a);
    }
    set_common(d, STATUS, 0, 1);
    drv_start(d, F_USUAL, 64);
    for (unsigned i = 0; i < 3; i++) {
        memset(reply_of(d, 0), 0xff, 24);
        submit(d, CONTROL, 0, 48, 0, REPLY_ROOM);
        put_desc(ring_mem(d, CONTROL, 0), 0, 0x7000000000u, 48, NEXT, 1); /* cannot be read */
        notify(d, CONTROL);
        rc_run(&d->r);
        assert_int_equal(dxpu_get_le32(reply_of(d, 0)), UNSPEC);
        assert_memory_equal(reply_of(d, 0) + 4, zero, sizeof zero);
    }
    drv_close(d);
}

/* Entries that cannot be read fail their command alone. */
static void test_list_that_cannot_be_read(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint32_t head, len;
    (void)state;
    assert_int_equal(create(d, 1, BGRX, 16, 16), OK);
    put_command(d, 0, ATTACH, WORDS(1, 100));
    submit(d, CONTROL, 0, 32, 1600, REPLY_ROOM);
    put_desc(ring_mem(d, CONTROL, 0), 1, 0x7000000000u, 1600, NEXT, 2);
    notify(d, CONTROL);
    rc_run(&d->r);
    assert_true(reap(d, CONTROL, &head, &len));
    assert_int_equal(dxpu_get_le32(reply_of(d, 0)), UNSPEC);
    assert_int_equal(attach_one(d, 1, MEM_LOW + AT_DATA, 1024), OK);
    drv_close(d);
}

/* ==== 7  Limits =============================================================================== */

static void test_number_of_resources(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    for (uint32_t i = 1; i <= 1024; i++)
        assert_int_equal(create(d, i, BGRX, 1, 1), OK);
    assert_int_equal(create(d, 2000, BGRX, 1, 1), NO_MEMORY);
    assert_int_equal(run(d, UNREF, WORDS(77, 0)), OK);
    assert_int_equal(create(d, 2000, BGRX, 1, 1), OK);
    drv_close(d);
}

static void test_bytes_of_resources(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    assert_int_equal(create(d, 9, BGRX, 16384, 1025), NO_MEMORY);
    assert_int_equal(create(d, 9, BGRX, 16385, 1), BAD_PARAMETER);
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(create(d, i, BGRX, 4096, 4096), OK); /* 64 MB each */
    assert_int_equal(create(d, 9, BGRX, 1, 1), NO_MEMORY);
    assert_int_equal(run(d, UNREF, WORDS(2, 0)), OK);
    assert_int_equal(create(d, 9, BGRX, 4096, 4096), OK);
    set_common(d, STATUS, 0, 1);
    drv_start(d, F_USUAL, 64);
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(create(d, i, BGRX, 4096, 4096), OK);
    drv_close(d);
}

/* Those of 0 bytes count as well: there is memory for them. */
static void test_empty_entries(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    for (unsigned i = 0; i < 16384; i++)
        put_entry(d, i, MEM_LOW + AT_DATA, 0);
    for (uint32_t i = 1; i <= 17; i++) {
        assert_int_equal(create(d, i, BGRX, 16, 16), OK);
        assert_int_equal(attach(d, i, 16384), i <= 16 ? OK : NO_MEMORY);
    }
    assert_int_equal(run(d, UNREF, WORDS(5, 0)), OK);
    assert_int_equal(attach(d, 17, 16384), OK);
    drv_close(d);
}

static void test_entries_of_resources(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    for (unsigned i = 0; i < 16384; i++)
        put_entry(d, i, MEM_LOW + AT_DATA + i, 1);
    for (uint32_t i = 1; i <= 17; i++) {
        assert_int_equal(create(d, i, BGRX, 16, 16), OK);
        assert_int_equal(attach(d, i, 16384), i <= 16 ? OK : NO_MEMORY);
    }
    assert_int_equal(transfer(d, 1, 0, 0, 16, 16, 15000), OK);
    assert_int_equal(run(d, DETACH, WORDS(3, 0)), OK);
    assert_int_equal(attach(d, 17, 16384), OK);
    assert_int_equal(run(d, UNREF, WORDS(5, 0)), OK);
    assert_int_equal(attach(d, 3, 16384), OK);
    assert_int_equal(create(d, 5, BGRX, 16, 16), OK);
    assert_int_equal(attach(d, 5, 1), NO_MEMORY);
    drv_close(d);
}

/* ==== 8  Resets =============================================================================== */

/* Of all answers that the device waits for. */
static size_t answer_bytes(const driver *d)
{
    size_t bytes = 0;
    for (unsigned tag = 0; tag < 256; tag++) {
        for (const tlp_copy *c = d->r.answers[tag].head; c; c = c->next)
            bytes += c->len;
    }
    return bytes;
}

/* After any number of answers a reset, of any kind, leaves no resource, picture or access. */
static void test_reset_in_every_state(void **state)
{
    (void)state;
    for (reset_kind how = DEVICE_RESET; how < RESETS; how++) {
        unsigned transfers = 0; /* under way at the reset */
        for (unsigned answers = 0; answers < 40; answers += 3) {
            driver *d = drv_up(F_USUAL);
            make_scattered(d);
            assert_int_equal(create(d, 2, BGRX, 16, 16), OK);
            put_command(d, 0, TRANSFER, WORDS(0, 0, 99, 60, 0, 0, 1, 0));
            submit(d, CONTROL, 0, 56, 0, 24);
            put_command(d, 4, ATTACH, WORDS(2, 100));
            submit(d, CONTROL, 4, 32, 1600, 24);
            put_command(d, 8, MOVE_CURSOR, WORDS(0, 1, 1, 0, 0, 0, 0, 0));
            submit(d, CURSOR, 8, 56, 0, 0);
            notify(d, CONTROL);
            notify(d, CURSOR);
            rc_look(&d->r);
            for (unsigned i = 0; i < answers && rc_answer_one(&d->r); i++)
                rc_look(&d->r);
            transfers += answer_bytes(d) > 8000; /* commands and lists are shorter */
            drv_reset(d, how);
            d->r.writes = d->r.reads = 0;
            rc_run(&d->r);
            assert_int_equal(d->r.writes + d->r.reads, 0);
            expect_dark(d);
            drv_start(d, F_USUAL, 16);
            assert_int_equal(run(d, UNREF, WORDS(1, 0)), BAD_RESOURCE);
            make_scattered(d);
            expect_pixel(d, 0, 0, 0);
            assert_int_equal(transfer(d, 1, 0, 0, 100, 60, 0), OK);
            drv_close(d);
        }
        assert_true(transfers >= 3);
    }
}

/* The queue alone is reset while a transfer is under way: resources stay. */
static void test_queue_reset(void **state)
{
    driver *d = drv_up(F_USUAL | F_RESET);
    (void)state;
    make_scattered(d);
    put_command(d, 0, TRANSFER, WORDS(0, 0, 99, 60, 0, 0, 1, 0));
    submit(d, CONTROL, 0, 56, 0, 24);
    notify(d, CONTROL);
    for (unsigned i = 0; i < 5; i++)
        answer_round(d);
    set_common(d, QUEUE_SELECT, CONTROL, 2);
    set_common(d, QUEUE_RESET, 1, 2);
    d->r.writes = 0;
    rc_run(&d->r);
    assert_int_equal(d->r.writes, 0);
    make_queue(d, CONTROL, 64);
    assert_int_equal(transfer(d, 1, 0, 0, 100, 60, 0), OK);
    expect_pixel(d, 99, 59, (5 + 5999 * 0x010203) & 0xffffff);
    drv_close(d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity_and_configuration),
        cmocka_unit_test(test_display_and_edid),
        cmocka_unit_test(test_create_and_unref),
        cmocka_unit_test(test_backing),
        cmocka_unit_test(test_transfer_of_all),
        cmocka_unit_test(test_transfer_of_a_rectangle),
        cmocka_unit_test(test_only_covered_rows_are_read),
        cmocka_unit_test(test_large_transfers),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_scanout_and_flush_are_checked),
        cmocka_unit_test(test_cursor_is_drawn),
        cmocka_unit_test(test_cursor_is_checked),
        cmocka_unit_test(test_commands_are_done_in_order),
        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_malformed_commands),
        cmocka_unit_test(test_nothing_of_another_tenant),
        cmocka_unit_test(test_list_that_cannot_be_read),
        cmocka_unit_test(test_number_of_resources),
        cmocka_unit_test(test_bytes_of_resources),
        cmocka_unit_test(test_entries_of_resources),
        cmocka_unit_test(test_empty_entries),
        cmocka_unit_test(test_reset_in_every_state),
        cmocka_unit_test(test_queue_reset),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
