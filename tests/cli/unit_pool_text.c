/* unit_pool_text.c - text of the manager made fit for a terminal, tables, durations
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#undef _POSIX_C_SOURCE
#include "pool_table.h"
#include "command.h"
#include <string.h>
#include "pool_text.h"
#include "text.h"
#include "options.h"

#define TEST(name) cmocka_unit_test(test_##name)

void out_of_memory(void)
{
    abort();
}

static uint64_t dice(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* ---- text ---- */

static void test_clean(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        { "plain text ~", "plain text ~" },
        { "\x1b[2J\a\b\r\n\t\x7f", "?[2J??????" },
        { "\xc2\x9b"
          "31m", /* CSI in one character */
          "?31m" },
        { "caf\xc3\xa9 \xe4\xb8\x96 \xf0\x9f\x98\x80",
          "caf\xc3\xa9 \xe4\xb8\x96 \xf0\x9f\x98\x80" },
        { "a\xe2\x80\xae"
          "b", /* from right to left */
          "a?b" },
        { "a\xe2\x80\x8b\xef\xbb\xbf", "a??" },
        { "\x9b\xff\xc0\x80\xe0\x80\xaf", "????" }, /* c0 80 and e0 80 af: overlong */
        { "\xed\xa0\x80\xf4\x90\x80\x80", "??" },   /* a surrogate, beyond the last */
        { "\xe4\xb8", "?" },
        { "\xe4"
          "a",
          "?a" },
        { "", "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", rows[i].in);
        text_clean(text);
        assert_string_equal(text, rows[i].out);
    }
}

/* Of any text no control character is left, it is no longer, and clean a second time. */
static void test_clean_of_random_bytes(void **state)
{
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        char text[24], again[24];
        size_t len = dice(&seed) % (sizeof text - 1);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)(dice(&seed) >> 20);
        text[len] = '\0';
        len = strlen(text);
        text_clean(text);
        assert_true(strlen(text) <= len);
        for (const char *p = text; *p; p++) {
            assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
            assert_false((unsigned char)p[0] == 0xc2 && (unsigned char)p[1] < 0xa0);
        }
        memcpy(again, text, sizeof again);
        text_clean(again);
        assert_string_equal(again, text);
        assert_true(pool_text_cut(text, 5) <= strlen(text));
    }
}

static void test_clean_json(void **state)
{
    json_t *j = json_loads("{\"a\": [\"\\u001b\", {\"b\": \"x\\u009by\"}], \"n\": 7}", 0, NULL);
    char *text;
    (void)state;
    pool_text_clean_json(j);
    text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"a\":[\"?\",{\"b\":\"x?y\"}],\"n\":7}");
    free(text);
    json_decref(j);
}

static void test_width_and_cut(void **state)
{
    (void)state;
    assert_int_equal(pool_text_width("abc"), 3);
    assert_int_equal(pool_text_width("\xe4\xb8\x96x"), 3); /* a wide one */
    assert_int_equal(pool_text_width("e\xcc\x81"), 1);     /* an accent stands above */
    assert_int_equal(pool_text_cut("abc", 2), 2);
    assert_int_equal(pool_text_cut("\xe4\xb8\x96x", 1), 0);
    assert_int_equal(pool_text_cut("\xe4\xb8\x96x", 2), 3);
    assert_int_equal(pool_text_cut("abc", 9), 3);
}

static void test_seconds_and_numbers(void **state)
{
    static const struct {
        const char *text;
        uint64_t seconds; /* UINT64_MAX: none */
    } rows[] = {
        { "0", 0 },
        { "90", 90 },
        { "90s", 90 },
        { "30m", 1800 },
        { "2h", 7200 },
        { "7d", 604800 },
        { "1w", 604800 },
        { "", UINT64_MAX },
        { "s", UINT64_MAX },
        { "-1", UINT64_MAX },
        { "1y", UINT64_MAX },
        { "1 h", UINT64_MAX },
        { "1h ", UINT64_MAX },
        { "0x1", UINT64_MAX },
        { "1.5h", UINT64_MAX },
        { "hh", UINT64_MAX },
        { "36600d", 36600ull * 86400 },
        { "36601d", UINT64_MAX },
        { "18446744073709551617", UINT64_MAX },
        { "99999999999999999999999999h", UINT64_MAX },
    };
    uint64_t v;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool good = options_seconds(rows[i].text, &v);
        assert_int_equal(good, rows[i].seconds != UINT64_MAX);
        if (good)
            assert_int_equal(v, rows[i].seconds);
    }
    assert_true(options_number("18446744073709551615", UINT64_MAX, &v) && v == UINT64_MAX);
    assert_false(options_number("18446744073709551616", UINT64_MAX, &v));
    assert_true(options_number("5", 5, &v));
    assert_false(options_number("6", 5, &v));
    assert_false(options_number("60", 5, &v));
    assert_true(options_number("000", 5, &v));
}

static void test_time_and_escape(void **state)
{
    char text[32], small[8];
    (void)state;
    assert_string_equal(pool_text_time("2026-01-02T03:04:05.678Z", text), "2026-01-02 03:04:05Z");
    assert_string_equal(pool_text_time("2026-01-02T03:04:05Z", text), "2026-01-02T03:04:05Z");
    assert_string_equal(pool_text_time("soon", text), "soon");
    assert_string_equal(pool_text_time("123456789012345678901234567890\xc3\xa9", text),
                        "123456789012345678901234567890?"); /* cut within a character */
    assert_true(pool_text_escape("a/b ?\xc3", text, sizeof text));
    assert_string_equal(text, "a%2Fb%20%3F%C3");
    assert_false(pool_text_escape("////", small, sizeof small));
}

/* ---- tables ---- */

/* The table as it is printed; the caller's to free. */
static char *printed(unsigned width)
{
    pool_table t;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    pool_table_begin(&t, "id|+count|!state|a long title");
    pool_table_add(&t, "10.3");
    pool_table_add(&t, "%d", 123456789);
    pool_table_add(&t, "active");
    pool_table_add(&t, "%s", "some text that is rather long");
    pool_table_add(&t, "%s", "");
    pool_table_json(&t, NULL);
    pool_table_add(&t, "odd");
    pool_table_add(&t, "x");
    pool_table_end(&t, out, width, false);
    fclose(out);
    return text;
}

/* A cell that was cut within a character is shown in whole ones. */
static void test_cut_cells(void **state)
{
    pool_table t;
    (void)state;
    pool_table_begin(&t, "id");
    pool_table_add(&t, "%.2s", "x\xc3\xa9");
    assert_string_equal(t.cell[0], "x?");
    free(t.cell[0]);
    free(t.cell);
}

static void test_tables(void **state)
{
    static const struct {
        unsigned width;
        const char *text;
    } rows[] = {
        { 0, "id        count  state   a long title\n"
             "10.3  123456789  active  some text that is rather long\n"
             "-             -  odd     x\n" },
        { 40, "id        count  state   a long title\n"
              "10.3  123456789  active  some text that~\n"
              "-             -  odd     x\n" },
        { 25, "id        count  state\n"
              "10.3  123456789  active\n"
              "-             -  odd\n" },
        { 3, "id\n10.3\n-\n" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = printed(rows[i].width);
        assert_string_equal(text, rows[i].text);
        free(text);
    }
}

/* An identifier that is cut is of no use, whatever the width. */
static void test_identifiers_are_whole(void **state)
{
    static const unsigned widths[] = { 80, 30, 20, 3 };
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        pool_table t;
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        assert_non_null(out);
        pool_table_begin(&t, "a text|!state|#lease|more");
        pool_table_add(&t, "%s", "0123456789012345678901234567890123456789");
        pool_table_add(&t, "active");
        pool_table_add(&t, "%s", "63cf4bfa3c00a");
        pool_table_add(&t, "%s", "0123456789012345678901234567890123456789");
        pool_table_end(&t, out, widths[i], false);
        fclose(out);
        assert_non_null(strstr(text, "63cf4bfa3c00a"));
        assert_non_null(strchr(text, '~')); /* the control: others are cut, or left out */
        assert_int_equal(strstr(text, "more") != NULL, widths[i] == 80);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(identifiers_are_whole),
        TEST(clean),
        TEST(clean_of_random_bytes),
        TEST(clean_json),
        TEST(width_and_cut),
        TEST(seconds_and_numbers),
        TEST(time_and_escape),
        TEST(cut_cells),
        TEST(tables),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
