/* api_crc.c - the CRC-32 that programs are built with, and zlib's, against one computed bit by bit
   SPDX-License-Identifier: MIT

   This file is compiled with bindings/zlib on zlib; the library it links may use libdeflate. */
#include "dxpu_zlib.h"
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { LENGTH_MAX = 4200 };

static uint32_t reference(uint32_t crc, const uint8_t *p, size_t len)
{
    crc = ~crc;
    while (len--) {
        crc ^= *p++;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void test_all_agree(void **state)
{
    static uint8_t data[LENGTH_MAX + 16];
    uint32_t seed = 1;
    (void)state;
    for (size_t i = 0; i < sizeof data; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (uint8_t)(seed >> 24);
    }
    for (size_t len = 0; len < LENGTH_MAX; len += len < 300 ? 1 : 61) {
        for (size_t at = 0; at < 16; at += 5) {
            uint32_t want = reference(0, data + at, len);
            assert_int_equal(dxpu_crc32(0, data + at, len), want);
            assert_int_equal(dxpu_zlib_crc32(0, data + at, len), want);
            /* in two parts */
            want = dxpu_crc32(0, data + at, len / 3);
            want = dxpu_crc32(want, data + at + len / 3, len - len / 3);
            assert_int_equal(want, reference(0, data + at, len));
        }
    }
    assert_int_equal(dxpu_crc32(0, "123456789", 9), 0xcbf43926u);
}

static void test_nothing_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(dxpu_crc32(0x12345678u, NULL, 0), 0x12345678u);
    assert_int_equal(dxpu_zlib_crc32(0x12345678u, NULL, 0), 0x12345678u);
}

static void test_name(void **state)
{
    (void)state;
    assert_non_null(strstr(dxpu_zlib_name(), DXPU_ZLIB_USE_LIBDEFLATE ? "libdeflate " : "zlib "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_agree),
        cmocka_unit_test(test_nothing_changes_nothing),
        cmocka_unit_test(test_name),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
