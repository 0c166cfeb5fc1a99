/* unit_durable.c - bytes written to a file that accepts them in parts
   SPDX-License-Identifier: MIT */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "durable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 100, PART = 60 };

/* A file that may have PART bytes: the first write() is short, the next one fails. */
static void test_write_in_parts(void **state)
{
    char bytes[BYTES], got[BYTES];
    struct rlimit before, few;
    struct stat st;
    FILE *f = tmpfile();
    bool all;
    int error;
    (void)state;
    assert_non_null(f);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)i;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    few = before;
    few.rlim_cur = PART;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    errno = 0;
    all = durable_write(fileno(f), bytes, BYTES);
    error = errno;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(all);
    assert_int_equal(error, EFBIG);
    assert_int_equal(fstat(fileno(f), &st), 0);
    assert_int_equal(st.st_size, PART);
    /* control: without the limit there is room */
    assert_true(durable_write(fileno(f), bytes + PART, BYTES - PART));
    assert_int_equal(pread(fileno(f), got, BYTES, 0), BYTES);
    assert_memory_equal(got, bytes, BYTES);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_write_in_parts) };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
