/* unit_durable.c - bytes written to a file that accepts them in parts
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
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
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 100, PART = 60 };

static bool in_parts, interrupted;
static unsigned parts;

/* In place of the system's: in parts of 7 bytes at most, the first one only after a signal. */
ssize_t write(int fd, const void *bytes, size_t len)
{
    if (in_parts && !interrupted) {
        interrupted = true;
        errno = EINTR;
        return -1;
    }
    parts++;
    return syscall(SYS_write, fd, bytes, in_parts && len > 7 ? 7 : len);
}

static void test_write_continues(void **state)
{
    char bytes[BYTES], got[BYTES];
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(f);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)(i + 1);
    parts = 0;
    in_parts = true;
    assert_true(durable_write(fileno(f), bytes, BYTES));
    in_parts = false;
    assert_true(interrupted);
    assert_int_equal(parts, 15); /* of 100 bytes */
    assert_int_equal(pread(fileno(f), got, BYTES, 0), BYTES);
    assert_memory_equal(got, bytes, BYTES);
    fclose(f);
}

/* A file that may have PART bytes: the first write() is short, the next one fails. */
static void test_write_beyond_a_limit(void **state)
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_write_continues),
                                        cmocka_unit_test(test_write_beyond_a_limit) };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
