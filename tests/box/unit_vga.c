/* unit_vga.c - the display adapter, TLP in, TLP out, and its picture as a PNG
   SPDX-License-Identifier: MIT

   CONTENTS   1 Root complex   2 Configuration space   3 Window   4 Framebuffer   5 Picture
              6 Resets */
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

#include "pages.h"
#include "pci.h"
#include "vga_model.h"
#include "screenshot.h"
#include "root_complex.h"

#include <png.h>

/* ==== 1  Root complex ========================================================================= */

#define FRAME  0x4001000000u
#define WINDOW 0xf8001000u

static endpoint ep;

static dxpu_tlp request(uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = address >> 32 ? 4 : 3;
    t.tag = 9;
    t.address = address & ~(uint64_t)3;
    assert_int_equal(dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw),
                     DXPU_OK);
    return t;
}

/* Write a range of bytes within 4 KB. */
static void put(uint64_t address, const void *data, uint32_t bytes)
{
    dxpu_tlp t = request(DXPU_TLP_MWR, address, bytes);
    uint8_t payload[DXPU_TLP_PAYLOAD_MAX_BYTES] = { 0 };
    memcpy(payload + (address & 3), data, bytes);
    t.payload.ptr = payload;
    t.payload.len = t.length_dw * 4u;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 0);
}

/* Read a range of bytes within 4 KB; returns the number of completions. */
static unsigned get(uint64_t address, void *to, uint32_t bytes)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, address, bytes);
    uint32_t done = 0;
    ep_give(&ep, &t);
    for (unsigned i = 0; i < ep.answers; i++) {
        uint32_t skip = i == 0 ? (uint32_t)(address & 3) : 0;
        uint32_t n = (uint32_t)ep.answer[i].payload.len - skip;
        assert_int_equal(ep.answer[i].status, DXPU_CPL_SC);
        assert_int_equal(ep.answer[i].completer, EP_BDF);
        assert_int_equal(ep.answer[i].tag, 9);
        assert_int_equal(ep.answer[i].byte_count, bytes - done);
        n = n < bytes - done ? n : bytes - done;
        memcpy((uint8_t *)to + done, ep.answer[i].payload.ptr + skip, n);
        done += n;
    }
    assert_int_equal(done, bytes);
    return ep.answers;
}

static uint32_t get_number(uint64_t address, uint32_t bytes)
{
    uint8_t data[4] = { 0 };
    get(address, data, bytes);
    return dxpu_get_le32(data);
}

static void put_number(uint64_t address, uint32_t value, uint32_t bytes)
{
    uint8_t data[4];
    dxpu_put_le32(data, value);
    put(address, data, bytes);
}

static void expect_unsupported(const dxpu_tlp *t)
{
    ep_give(&ep, t);
    assert_int_equal(ep.answers, 1);
    assert_int_equal(ep.answer[0].status, DXPU_CPL_UR);
    assert_int_equal(ep.answer[0].payload.len, 0);
}

static void map_bars(void)
{
    ep_config_put(&ep, 0x10, 15, (uint32_t)FRAME);
    ep_config_put(&ep, 0x14, 15, (uint32_t)(FRAME >> 32));
    ep_config_put(&ep, 0x18, 15, WINDOW);
    ep_config_put(&ep, 0x04, 3, 2);
}

static int setup(void **state)
{
    device_settings s = { .mps_bytes = 512, .identity = 0x20001 };
    (void)state;
    if (!ep_open(&ep, &vga_kind, &s))
        return -1;
    map_bars();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ep_close(&ep);
    return 0;
}

static void reg_set(unsigned index, uint32_t value)
{
    put_number(WINDOW + 0x500 + index * 2, value, 2);
}

static uint32_t reg_get(unsigned index)
{
    return get_number(WINDOW + 0x500 + index * 2, 2);
}

/* What a driver does to show a picture whose lines follow one another. */
static void show(unsigned width, unsigned height, unsigned bits)
{
    reg_set(REG_ENABLE, 0);
    reg_set(REG_BITS, bits);
    reg_set(REG_WIDTH, width);
    reg_set(REG_HEIGHT, height);
    reg_set(REG_LINE, width);
    reg_set(REG_LEFT, 0);
    reg_set(REG_TOP, 0);
    reg_set(REG_ENABLE, 0x41);
}

/* ==== 2  Configuration space ================================================================== */

static void test_identity(void **state)
{
    (void)state;
    assert_int_equal(ep_config_get(&ep, 0x00), 0x11111234u);
    assert_int_equal(ep_config_get(&ep, 0x08), 0x03800002u);
    assert_int_equal(ep_config_get(&ep, 0x0c) >> 16 & 0xff, 0); /* a type 0 header, one function */
    assert_int_equal(ep_config_get(&ep, 0x04) >> 16, 0x0010);
    assert_int_equal(ep_config_get(&ep, 0x34) & 0xff, VGA_CAP_PCIE);
    assert_int_equal(ep_config_get(&ep, VGA_CAP_PCIE),
                     0x00020010u);                             /* the only capability; endpoint */
    assert_int_equal(ep_config_get(&ep, 0x3c) >> 8 & 0xff, 0); /* no interrupt pin */
    assert_int_equal(ep_config_get(&ep, 0x100), 0);
    ep_config_put(&ep, 0x00, 15, 0);
    assert_int_equal(ep_config_get(&ep, 0x00), 0x11111234u);
}

static void test_bars_are_sized(void **state)
{
    (void)state;
    for (unsigned at = 0x10; at < 0x28; at += 4)
        ep_config_put(&ep, at, 15, 0xffffffffu);
    ep_config_put(&ep, 0x30, 15, 0xffffffffu);
    assert_int_equal(ep_config_get(&ep, 0x10), 0xff00000cu); /* 16 MB, 64 bits, prefetchable */
    assert_int_equal(ep_config_get(&ep, 0x14), 0xffffffffu);
    assert_int_equal(ep_config_get(&ep, 0x18), 0xfffff000u); /* 4 KB, 32 bits */
    for (unsigned at = 0x1c; at < 0x28; at += 4)
        assert_int_equal(ep_config_get(&ep, at), 0);
    assert_int_equal(ep_config_get(&ep, 0x30), 0); /* no expansion ROM */
}

static void test_other_functions_are_not_there(void **state)
{
    dxpu_tlp t = ep_config(DXPU_TLP_CFGRD0, 0, 15);
    (void)state;
    t.target = DXPU_BDF(5, 3, 1);
    expect_unsupported(&t);
    assert_int_equal(ep_config_get(&ep, 0x00), 0x11111234u); /* the control */
}

static void test_error_bits_are_set_and_cleared(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, FRAME + VGA_FRAME_BYTES, 4);
    (void)state;
    assert_int_equal(ep_config_get(&ep, VGA_CAP_PCIE + 8) >> 16, 0);
    expect_unsupported(&t);
    assert_int_equal(ep_config_get(&ep, VGA_CAP_PCIE + 8) >> 16,
                     0x9); /* correctable, unsupported */
    ep_config_put(&ep, VGA_CAP_PCIE + 8, 12, 0x00080000u);
    assert_int_equal(ep_config_get(&ep, VGA_CAP_PCIE + 8) >> 16, 0x1);
    put_number(FRAME + VGA_FRAME_BYTES, 1, 4); /* posted: no answer */
    assert_int_equal(ep_config_get(&ep, VGA_CAP_PCIE + 8) >> 16, 0xb);
}

/* ==== 3  Window =============================================================================== */

static void test_edid(void **state)
{
    static const uint8_t start[8] = { 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0 };
    uint8_t edid[256], sum = 0;
    (void)state;
    for (unsigned i = 0; i < sizeof edid; i++) /* as Linux reads it, byte by byte */
        edid[i] = (uint8_t)get_number(WINDOW + i, 1);
    assert_memory_equal(edid, start, sizeof start);
    for (unsigned i = 0; i < EDID_BYTES; i++)
        sum = (uint8_t)(sum + edid[i]);
    assert_int_equal(sum, 0);
    assert_int_equal(edid[126], 0); /* no extension */
    assert_int_equal(edid[EDID_BYTES], 0);
    assert_int_equal(dxpu_get_le32(edid + 12), 0x20001);
    /* the preferred timing, as E-EDID 1.4 section 3.10.2 packs it */
    assert_int_equal(dxpu_get_le16(edid + 54) * 10000, 65000000);
    assert_int_equal(edid[56] | (edid[58] >> 4) << 8, 1024);
    assert_int_equal(edid[57] | (edid[58] & 15) << 8, 320);
    assert_int_equal(edid[59] | (edid[61] >> 4) << 8, 768);
    assert_int_equal(edid[60] | (edid[61] & 15) << 8, 38);
    put_number(WINDOW, 0x12345678, 4);
    assert_int_equal(get_number(WINDOW, 4), 0xffffff00u); /* read-only */
}

static void test_registers(void **state)
{
    (void)state;
    assert_int_equal(reg_get(REG_ID) & 0xfff0u, 0xb0c0);
    assert_int_equal(reg_get(REG_MEMORY) * 65536, VGA_FRAME_BYTES);
    for (unsigned i = 1; i < REG_MEMORY; i++)
        reg_set(i, 0x1100 + i);
    for (unsigned i = 1; i < REG_MEMORY; i++)
        assert_int_equal(reg_get(i), 0x1100 + i);
    reg_set(REG_ID, 1);
    reg_set(REG_MEMORY, 1);
    assert_int_equal(reg_get(REG_ID), 0xb0c5);
    assert_int_equal(reg_get(REG_MEMORY), 256);
    put_number(WINDOW + 0x505, 0x77, 1); /* the upper byte of one */
    assert_int_equal(reg_get(2), 0x7702);
    put_number(WINDOW + 0x506, 0x66665555, 4); /* two at once, across dwords */
    assert_int_equal(reg_get(3), 0x5555);
    assert_int_equal(reg_get(4), 0x6666);
    assert_int_equal(reg_get(5), 0x1105);
    assert_int_equal(get_number(WINDOW + 0x504, 4), 0x55557702u);
    assert_int_equal(get_number(WINDOW + 0x516, 2), 0); /* behind the last */
    put_number(WINDOW + 0x516, 0xffff, 2);
    assert_int_equal(get_number(WINDOW + 0x514, 4), 256);
}

static void test_extension(void **state)
{
    (void)state;
    assert_int_equal(get_number(WINDOW + 0x600, 4), 8);
    assert_int_equal(get_number(WINDOW + 0x604, 4), 0x1e1e1e1eu);
    put_number(WINDOW + 0x604, 0xbebebebeu, 4);
    assert_int_equal(get_number(WINDOW + 0x604, 4), 0xbebebebeu);
    put_number(WINDOW + 0x604, 0x12345678u, 4); /* neither */
    assert_int_equal(get_number(WINDOW + 0x604, 4), 0xbebebebeu);
    put_number(WINDOW + 0x604, 0x1e1e1e1eu, 4);
    assert_int_equal(get_number(WINDOW + 0x604, 4), 0x1e1e1e1eu);
    put_number(WINDOW + 0x41a, 0xff, 1); /* no legacy registers */
    assert_int_equal(get_number(WINDOW + 0x41a, 1), 0);
    assert_int_equal(get_number(WINDOW + 0xffc, 4), 0);
}

static void test_window_is_read_in_one_piece(void **state)
{
    uint8_t all[VGA_WINDOW_BYTES];
    (void)state;
    assert_int_equal(get(WINDOW, all, sizeof all), 32); /* 128 bytes each before MPS is set */
    assert_int_equal(all[1], 0xff);
    assert_int_equal(all[0x500], 0xc5);
    assert_int_equal(all[0x600], 8);
    assert_int_equal(all[0x604], 0x1e);
}

/* ==== 4  Framebuffer ========================================================================== */

static void test_frame_keeps_what_is_written(void **state)
{
    uint8_t data[4096], back[4096];
    (void)state;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + 1);
    put(FRAME + VGA_FRAME_BYTES - 4096, data, 4096);
    assert_int_equal(get(FRAME + VGA_FRAME_BYTES - 4096, back, 4096), 32);
    assert_memory_equal(back, data, sizeof data);
    ep_config_put(&ep, VGA_CAP_PCIE + 8, 1, 2 << 5); /* payloads of 512 bytes */
    assert_int_equal(get(FRAME + VGA_FRAME_BYTES - 4096, back, 4096), 8);
    assert_memory_equal(back, data, sizeof data);
    for (unsigned at = 0; at < 9; at++) { /* every alignment and length of a few bytes */
        for (unsigned len = 1; len < 12; len++) {
            uint8_t want[24];
            memset(want, 0xee, sizeof want);
            put(FRAME + 0x1000, want, sizeof want);
            memcpy(want + at, data, len);
            put(FRAME + 0x1000 + at, data, len);
            get(FRAME + 0x1000, back, sizeof want);
            assert_memory_equal(back, want, sizeof want);
            get(FRAME + 0x1000 + at, back, len);
            assert_memory_equal(back, data, len);
        }
    }
}

static void test_byte_enables_with_holes(void **state)
{
    static const uint8_t old[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    static const uint8_t data[8] = { 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88 };
    (void)state;
    for (unsigned be = 0; be < 256; be++) {
        dxpu_tlp t = request(DXPU_TLP_MWR, FRAME + 8, 8);
        uint8_t back[8];
        put(FRAME + 8, old, 8);
        t.first_be = be & 15;
        t.last_be = (uint8_t)(be >> 4);
        t.payload.ptr = data;
        t.payload.len = 8;
        if (!t.first_be || !t.last_be)
            continue; /* two dwords need both */
        ep_give(&ep, &t);
        get(FRAME + 8, back, 8);
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(back[i], be >> i & 1 ? data[i] : old[i]);
    }
}

static void test_zero_length_requests(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, FRAME, 0);
    uint8_t data[4] = { 9, 9, 9, 9 };
    (void)state;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 1);
    assert_int_equal(ep.answer[0].status, DXPU_CPL_SC);
    assert_int_equal(ep.answer[0].byte_count, 1);
    t = request(DXPU_TLP_MWR, FRAME, 0);
    t.payload.ptr = data;
    t.payload.len = 4;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 0);
    assert_int_equal(get_number(FRAME, 4), 0);
}

static void test_outside_is_unsupported(void **state)
{
    const uint64_t at[] = { FRAME - 4, FRAME + VGA_FRAME_BYTES, WINDOW - 4,
                            WINDOW + VGA_WINDOW_BYTES };
    dxpu_tlp t;
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        t = request(DXPU_TLP_MRD, at[i], 4);
        expect_unsupported(&t);
        put_number(at[i], 0xffffffffu, 4);
    }
    t = request(DXPU_TLP_MRD, FRAME + VGA_FRAME_BYTES - 4, 4);
    t.length_dw = 2; /* over the end; the decoder refuses to cross a 4 KB boundary */
    t.last_be = 15;
    assert_false(pci_locate(&((vga *)ep.dev)->f, 0, &t, 8, &(uint64_t){ 0 }));
    assert_true(pci_locate(&((vga *)ep.dev)->f, 0, &t, 4, &(uint64_t){ 0 }));
    t = request(DXPU_TLP_MRD, FRAME, 4);
    ep_give(&ep, &t);
    assert_int_equal(ep.answer[0].status, DXPU_CPL_SC); /* the control */
    ep_config_put(&ep, 0x04, 3, 0);
    expect_unsupported(&t); /* memory is off */
}

static void test_other_requests_are_unsupported(void **state)
{
    uint8_t data[8] = { 1 };
    dxpu_tlp t = request(DXPU_TLP_FETCHADD, FRAME, 4);
    (void)state;
    t.first_be = t.last_be = 0;
    t.payload.ptr = data;
    t.payload.len = 4;
    expect_unsupported(&t);
    assert_int_equal(get_number(FRAME, 4), 0);
    t = request(DXPU_TLP_MRDLK, FRAME, 4);
    expect_unsupported(&t);
    t = ep_config(DXPU_TLP_CFGRD1, 0, 15);
    expect_unsupported(&t);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_CPL;
    t.header_dw = 3;
    t.byte_count = 4;
    ep_give(&ep, &t);
    assert_int_equal(ep.answers, 0);
    assert_int_equal(((vga *)ep.dev)->count.completions_ignored, 1);
}

static void test_poisoned_write_is_not_stored(void **state)
{
    uint8_t data[4] = { 1, 2, 3, 4 };
    dxpu_tlp t = request(DXPU_TLP_MWR, FRAME, 4);
    (void)state;
    t.payload.ptr = data;
    t.payload.len = 4;
    t.ep = 1;
    ep_give(&ep, &t);
    assert_int_equal(get_number(FRAME, 4), 0);
    assert_int_equal(ep_config_get(&ep, 0x04) >> 31, 1); /* detected parity error */
    t.ep = 0;
    ep_give(&ep, &t);
    assert_int_equal(get_number(FRAME, 4), 0x04030201u); /* the control */
}

/* ==== 5  Picture ============================================================================== */

/* All rows, some at a time, as a box copies them. */
static uint8_t *whole_picture(unsigned *w, unsigned *h)
{
    uint8_t *rgb;
    if (!vga_kind.picture(ep.dev, NULL, 0, 0, w, h))
        return NULL;
    rgb = malloc((size_t)*w * *h * 3);
    assert_non_null(rgb);
    for (unsigned row = 0; row < *h; row += 7)
        assert_true(vga_kind.picture(ep.dev, rgb + (size_t)row * *w * 3, row,
                                     *h - row < 7 ? *h - row : 7, w, h));
    return rgb;
}

static void expect_nothing_shown(void)
{
    unsigned w, h;
    assert_false(vga_kind.picture(ep.dev, NULL, 0, 0, &w, &h));
}

static void expect_pixel(unsigned x, unsigned y, uint32_t want)
{
    unsigned w, h;
    uint8_t *rgb = whole_picture(&w, &h), *p;
    assert_non_null(rgb);
    assert_true(x < w && y < h);
    p = rgb + (y * w + x) * 3;
    assert_int_equal((uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2], want);
    free(rgb);
}

static void test_pixels_of_32_bits(void **state)
{
    (void)state;
    show(640, 480, 32);
    put_number(FRAME + (479 * 640 + 639) * 4, 0xff112233u, 4);
    expect_pixel(639, 479, 0x112233);
    put_number(WINDOW + 0x604, VGA_BYTES_BIG, 4);
    expect_pixel(639, 479, 0x2211ff);
}

static void test_pixels_of_16_bits(void **state)
{
    (void)state;
    show(64, 64, 16);
    put_number(FRAME, 0xf800, 2);
    put_number(FRAME + 2, 0x07e0, 2);
    put_number(FRAME + 4, 0x001f, 2);
    put_number(FRAME + 6, 0x8410, 2);
    expect_pixel(0, 0, 0xff0000);
    expect_pixel(1, 0, 0x00ff00);
    expect_pixel(2, 0, 0x0000ff);
    expect_pixel(3, 0, 0x848284);
    put_number(WINDOW + 0x604, VGA_BYTES_BIG, 4);
    expect_pixel(0, 0, 0x001cc6); /* 0x00f8: no red, green 7, blue 24 */
}

static void test_lines_and_offsets(void **state)
{
    (void)state;
    show(100, 70, 32);
    reg_set(REG_LINE, 128);
    reg_set(REG_LEFT, 3);
    reg_set(REG_TOP, 5);
    put_number(FRAME + ((5 + 2) * 128 + 3 + 1) * 4, 0x123456, 4);
    expect_pixel(1, 2, 0x123456);
    reg_set(REG_LINE, 10); /* shorter than a line: it does not count */
    put_number(FRAME + ((5 + 2) * 100 + 3 + 1) * 4, 0x654321, 4);
    expect_pixel(1, 2, 0x654321);
}

static void test_what_is_not_a_mode_shows_nothing(void **state)
{
    (void)state;
    expect_nothing_shown();
    show(640, 480, 32);
    expect_pixel(0, 0, 0); /* the control */
    reg_set(REG_ENABLE, 0x40);
    expect_nothing_shown();
    show(640, 480, 24);
    expect_nothing_shown();
    show(63, 480, 32);
    expect_nothing_shown();
    show(640, 63, 32);
    expect_nothing_shown();
    show(2048, 2048, 32); /* all of the memory */
    expect_pixel(2047, 2047, 0);
    reg_set(REG_LEFT, 1);
    expect_nothing_shown();
    show(0xffff, 0xffff, 32);
    reg_set(REG_TOP, 0xffff);
    expect_nothing_shown();
}

static void test_png_is_the_picture(void **state)
{
    unsigned w, h;
    size_t bytes = 0;
    uint8_t *rgb, *png, *back;
    png_image image;
    (void)state;
    show(320, 200, 32);
    for (unsigned i = 0; i < 320 * 200; i++)
        put_number(FRAME + i * 4, i * 2654435761u, 4);
    rgb = whole_picture(&w, &h);
    assert_non_null(rgb);
    png = screenshot_encode(rgb, w, h, &bytes);
    assert_non_null(png);
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    assert_true(png_image_begin_read_from_memory(&image, png, bytes));
    assert_int_equal(image.width, 320);
    assert_int_equal(image.height, 200);
    image.format = PNG_FORMAT_RGB;
    back = malloc(PNG_IMAGE_SIZE(image));
    assert_non_null(back);
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    for (unsigned i = 0; i < 320 * 200; i++) {
        uint32_t want = (i * 2654435761u) & 0xffffff;
        assert_int_equal(
            (uint32_t)back[i * 3] << 16 | (uint32_t)back[i * 3 + 1] << 8 | back[i * 3 + 2], want);
    }
    free(rgb);
    free(png);
    free(back);
}

/* ==== 6  Resets =============================================================================== */

/* Something of a user in memory and registers. */
static void plant(void)
{
    show(640, 480, 32);
    put_number(WINDOW + 0x604, VGA_BYTES_BIG, 4);
    put_number(FRAME, 0x5ec2e7, 4);
    put_number(FRAME + VGA_FRAME_BYTES - 4, 0x5ec2e7, 4);
    assert_int_equal(get_number(FRAME + VGA_FRAME_BYTES - 4, 4), 0x5ec2e7); /* the control */
    assert_int_equal(reg_get(REG_WIDTH), 640);
}

static void expect_clean(void)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, FRAME, 4);
    expect_unsupported(&t); /* memory is off */
    expect_nothing_shown();
    assert_int_equal(ep_config_get(&ep, 0x10), 0xc);
    assert_int_equal(ep_config_get(&ep, 0x18), 0);
    map_bars();
    assert_int_equal(get_number(FRAME, 4), 0);
    assert_int_equal(get_number(FRAME + VGA_FRAME_BYTES - 4, 4), 0);
    assert_int_equal(get_number(WINDOW + 0x604, 4), VGA_BYTES_LITTLE);
    assert_int_equal(reg_get(REG_ID), VGA_ID);
    assert_int_equal(reg_get(REG_MEMORY), 256);
    for (unsigned i = 1; i < REG_MEMORY; i++)
        assert_int_equal(reg_get(i), 0);
}

static void test_reset_leaves_nothing(void **state)
{
    (void)state;
    plant();
    vga_kind.reset(ep.dev);
    expect_clean();
}

static void test_function_level_reset(void **state)
{
    (void)state;
    plant();
    ep_config_put(&ep, VGA_CAP_PCIE + 8, 2, 0x8000);
    assert_int_equal(ep.answer[0].completer, EP_BDF);
    expect_clean();
}

static void test_hot_reset(void **state)
{
    dxpu_event e;
    (void)state;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_HOT_RESET;
    plant();
    vga_kind.event(ep.dev, &e); /* released: nothing happens */
    assert_int_equal(reg_get(REG_WIDTH), 640);
    e.flags = DXPU_EVENT_ON;
    vga_kind.event(ep.dev, &e);
    expect_clean();
}

/* S-161: what a reset leaves to be given back is a job, whose time is not the loop's. */
static void test_s161_a_reset_clears_at_once(void **state)
{
    jobs_queue kept;
    jobs later = rc_jobs_later(&kept);
    device_settings set = { .jobs = &later };
    pages p;
    (void)state;
    assert_int_equal(pages_open(&p, VGA_FRAME_BYTES, false, &set), 0);
    for (unsigned round = 0; round < 2; round++) {
        p.dirty = round ? p.size : 4096; /* little is cleared where it is */
        memset(p.bytes, 0x5e, (size_t)p.dirty);
        pages_clear(&p);
        assert_int_equal(kept.head != NULL, round); /* not yet run */
        assert_int_equal(p.bytes[0] | memcmp(p.bytes, p.bytes + 1, p.size - 1), 0);
    }
    assert_int_equal(rc_jobs_run(&kept), 1);
    pages_close(&p);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_identity),
        CASE(test_bars_are_sized),
        CASE(test_other_functions_are_not_there),
        CASE(test_error_bits_are_set_and_cleared),
        CASE(test_edid),
        CASE(test_registers),
        CASE(test_extension),
        CASE(test_window_is_read_in_one_piece),
        CASE(test_frame_keeps_what_is_written),
        CASE(test_byte_enables_with_holes),
        CASE(test_zero_length_requests),
        CASE(test_outside_is_unsupported),
        CASE(test_other_requests_are_unsupported),
        CASE(test_poisoned_write_is_not_stored),
        CASE(test_pixels_of_32_bits),
        CASE(test_pixels_of_16_bits),
        CASE(test_lines_and_offsets),
        CASE(test_what_is_not_a_mode_shows_nothing),
        CASE(test_png_is_the_picture),
        CASE(test_reset_leaves_nothing),
        CASE(test_function_level_reset),
        CASE(test_hot_reset),
        cmocka_unit_test(test_s161_a_reset_clears_at_once),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
