/* unit_program.c - a program that cannot end because of what it waits for
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

/* Its exit status, with what it wrote in text[]. */
static int end_of(bool hangs, char *text, size_t room)
{
    int ends[2], status;
    size_t got = 0;
    ssize_t n;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        program_end_within(hangs ? 20 : 600000, "the disk does not answer");
        while (hangs)
            (void)pause();
        _exit(PROGRAM_GOOD);
    }
    (void)close(ends[1]);
    while (got + 1 < room && (n = read(ends[0], text + got, room - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = 0;
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_end_within(void **state)
{
    char text[400];
    (void)state;
    assert_int_equal(end_of(true, text, sizeof text), PROGRAM_SYSTEM);
    assert_non_null(strstr(text, "the disk does not answer\n"));
}

/* What ends by itself says nothing, and waits for no limit. */
static void test_control_end_before(void **state)
{
    char text[400];
    (void)state;
    assert_int_equal(end_of(false, text, sizeof text), PROGRAM_GOOD);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_within),
        cmocka_unit_test(test_control_end_before),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
