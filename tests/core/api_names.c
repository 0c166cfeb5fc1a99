/* api_names.c - names and sentences of errors and counters
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>

#include <cmocka.h>

#define ERROR_ROW(name, value, text) { value, #name, text },
#define COUNTER_ROW(name, text)      { #name, text },

static const struct {
    int value;
    const char *name, *text;
} errors[] = { { DXPU_OK, "OK", "ok" }, DXPU_ERRORS(ERROR_ROW) };

static const struct {
    const char *name, *text;
} counters[] = { DXPU_COUNTERS(COUNTER_ROW) };

enum { ERRORS = sizeof errors / sizeof errors[0], COUNTERS = sizeof counters / sizeof counters[0] };

static void test_errors(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ERRORS; i++) {
        assert_string_equal(dxpu_error_name(errors[i].value), errors[i].name);
        assert_string_equal(dxpu_error_text(errors[i].value), errors[i].text);
        assert_true(errors[i].value <= 0 && errors[i].value >= -127);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(errors[k].name, errors[i].name);
    }
}

static void test_numbers_that_are_not_errors(void **state)
{
    unsigned unknown = 0;
    (void)state;
    for (int value = -128; value <= 1; value++) {
        bool known = false;
        for (unsigned i = 0; i < ERRORS; i++)
            known = known || errors[i].value == value;
        if (known)
            continue;
        unknown++;
        assert_string_equal(dxpu_error_name(value), "E_UNKNOWN");
        assert_string_equal(dxpu_error_text(value), "unknown error");
    }
    assert_int_equal(unknown, 130 - ERRORS);
}

static void test_counters(void **state)
{
    uint64_t fields[COUNTERS];
    dxpu_counters c;
    (void)state;
    assert_int_equal(sizeof fields, sizeof c);
    for (unsigned i = 0; i < COUNTERS; i++)
        fields[i] = 1000 + i;
    memcpy(&c, fields, sizeof c);
    assert_int_equal(c.tx_frames, 1000);
    for (unsigned i = 0; i < COUNTERS; i++) {
        assert_string_equal(dxpu_counter_name(i), counters[i].name);
        assert_int_equal(dxpu_counter_value(&c, i), 1000 + i);
        assert_int_equal(dxpu_counter_value(NULL, i), 0);
    }
    assert_null(dxpu_counter_name(COUNTERS));
    assert_int_equal(dxpu_counter_value(&c, COUNTERS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_numbers_that_are_not_errors),
        cmocka_unit_test(test_counters),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
