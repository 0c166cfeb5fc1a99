/* report_value.h - for tests: a number of what a device or a program reports
   SPDX-License-Identifier: MIT

   Include after cmocka. */
#ifndef REPORT_VALUE_H_INCLUDED
#define REPORT_VALUE_H_INCLUDED

#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first one of this name that `fill` reports of `from`. */
static inline unsigned long long report_value(void (*fill)(void *from, report *r), void *from,
                                              const char *name)
{
    char *text = NULL, key[40];
    const char *at;
    size_t size = 0;
    unsigned long long value = 0;
    FILE *out = open_memstream(&text, &size);
    report r;
    assert_non_null(out);
    report_begin(&r, out, true);
    fill(from, &r);
    report_end(&r);
    (void)fclose(out);
    (void)snprintf(key, sizeof key, "\"%s\":", name);
    at = strstr(text, key);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(key), "%llu", &value), 1);
    free(text);
    return value;
}

#endif /* REPORT_VALUE_H_INCLUDED */
