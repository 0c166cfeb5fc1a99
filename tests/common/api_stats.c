/* api_stats.c - the latency histogram and the reports of the proxies
   SPDX-License-Identifier: MIT */
#include "stats.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>

#include <cmocka.h>

static histogram h;

static void check_near(uint64_t value, uint64_t want)
{
    assert_in_range(value, want, want + want / 31 + 1);
}

static void test_percentiles(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    assert_int_equal(histogram_percentile(&h, 50), 0);
    for (uint64_t i = 1; i <= 1000; i++)
        histogram_add(&h, i * 1000);
    check_near(histogram_percentile(&h, 50), 500000);
    check_near(histogram_percentile(&h, 90), 900000);
    check_near(histogram_percentile(&h, 99), 990000);
    assert_int_equal(histogram_percentile(&h, 100), 1000000);
    assert_int_equal(h.max, 1000000);
    histogram_add(&h, 50000000); /* one outlier moves the end only */
    check_near(histogram_percentile(&h, 50), 500000);
    assert_int_equal(histogram_percentile(&h, 100), 50000000);
}

static void test_every_size_of_value(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t value = (uint64_t)1 << bit;
        memset(&h, 0, sizeof h);
        histogram_add(&h, value);
        histogram_add(&h, UINT64_MAX);
        if (bit < 63)
            check_near(histogram_percentile(&h, 50), value);
        assert_true(histogram_percentile(&h, 100) == UINT64_MAX);
    }
    memset(&h, 0, sizeof h);
    for (uint64_t i = 0; i < 64; i++) /* small ones are exact */
        histogram_add(&h, i);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(histogram_percentile(&h, (i + 1) * 100.0 / 64), i);
}

static void read_back(FILE *f, char *text, size_t size)
{
    size_t n;
    rewind(f);
    n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    fclose(f);
}

static void test_json(void **state)
{
    char text[300];
    FILE *f = tmpfile();
    report r;
    (void)state;
    assert_non_null(f);
    report_begin(&r, f, true);
    report_number(&r, "a", 1);
    report_open(&r, "b");
    report_text(&r, "c", "d");
    report_real(&r, "e", 1.5);
    report_close(&r);
    report_open(&r, "empty");
    report_close(&r);
    report_number(&r, "f", UINT64_MAX);
    report_end(&r);
    read_back(f, text, sizeof text);
    assert_string_equal(text, "{\"a\":1,\"b\":{\"c\":\"d\",\"e\":1.500},\"empty\":{},"
                              "\"f\":18446744073709551615}\n");
}

static void test_counters_add_up(void **state)
{
    dxpu_counters total, one;
    (void)state;
    memset(&total, 0, sizeof total);
    memset(&one, 0, sizeof one);
    one.tx_frames = 3;
    one.rx_events_ignored = 4; /* the first and the last */
    counters_add(&total, &one);
    counters_add(&total, &one);
    assert_int_equal(total.tx_frames, 6);
    assert_int_equal(total.rx_events_ignored, 8);
    assert_int_equal(total.rx_frames, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),
        cmocka_unit_test(test_every_size_of_value),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_counters_add_up),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
