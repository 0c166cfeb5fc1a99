/* unit_leaks.c - sanitized programs find what is lost at their end, and only that, though the check
   skips memory never touched (tests/support/leak_scan.c)
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <pthread.h>
#include <search.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sanitized.h"

enum { SLOTS = 4 << 20, FAR = SLOTS / 2 + 7, LEAKS = 16, OUTER = 1240, INNER = 568, STATUS = 1 };
static void *zeros[SLOTS];                             /* 32 MB, of which a page is touched */
static void *data[4096] = { [4095] = (void *)&zeros }; /* of the file */
static _Thread_local void *own[4096];
static char told[1 << 16];

/* Overwrites what calls have left on the stack. */
__attribute__((noinline)) static void clear_stack(void)
{
    volatile char bytes[1 << 16];
    memset((char *)(uintptr_t)bytes, 0, sizeof bytes);
}

__attribute__((noinline)) static void lose(void)
{
    for (unsigned i = 0; i < LEAKS; i++) {
        void **volatile outer = malloc(OUTER);
        *outer = malloc(INNER);
        outer = NULL;
    }
}

__attribute__((noinline)) static void in_zeros(void)
{
    zeros[FAR] = malloc(OUTER);
}

/* The control of in_zeros. */
__attribute__((noinline)) static void out_of_zeros(void)
{
    in_zeros();
    zeros[FAR] = (void *)&zeros;
}

__attribute__((noinline)) static void in_data(void)
{
    data[5] = malloc(OUTER);
}

__attribute__((noinline)) static void in_own(void)
{
    own[2048] = malloc(OUTER);
}

__attribute__((noinline)) static void from_kept(void)
{
    in_zeros();
    *(void **)zeros[FAR] = malloc(INNER);
}

/* libc has the table. */
static void in_library(void)
{
    assert_true(hcreate(1000));
}

static void *stay(void *held)
{
    void *volatile *kept = held;
    void *volatile mine = *kept;
    *kept = NULL;
    for (;;)
        pause();
    return mine;
}

__attribute__((noinline)) static void on_stack(void)
{
    static void *volatile held;
    pthread_t thread;
    held = malloc(OUTER);
    assert_int_equal(pthread_create(&thread, NULL, stay, (void *)(uintptr_t)&held), 0);
    while (held)
        usleep(1000);
}

/* The exit status of a process that does it and returns; in `told`, what it printed. */
static int after(void (*act)(void))
{
    int status, ends[2];
    size_t got = 0;
    ssize_t n;
    pid_t child;
    if (!SANITIZED)
        skip();
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* a test counts faults of small pages */
        act();
        clear_stack();
        exit(0);
    }
    close(ends[1]);
    while ((n = read(ends[0], told + got, sizeof told - 1 - got)) > 0)
        got += (size_t)n;
    told[got] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_what_is_lost_is_found(void **state)
{
    (void)state;
    assert_int_equal(after(lose), STATUS);
    assert_non_null(strstr(told, "Direct leak of "));
    assert_non_null(strstr(told, "Indirect leak of "));
    assert_non_null(strstr(told, "in lose ")); /* symbols are found, too */
}

static void test_what_was_overwritten_is_found(void **state)
{
    (void)state;
    assert_int_equal(after(out_of_zeros), STATUS);
    assert_non_null(strstr(told, "Direct leak of 1240 byte"));
}

static void test_what_is_kept_is_not_reported(void **state)
{
    static void (*const all[])(void) = { in_zeros,   in_data,  in_own,     from_kept,
                                         in_library, on_stack, clear_stack };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int status = after(all[i]);
        if (status || told[0])
            print_error("%zu: %s\n", i, told);
        assert_int_equal(status, 0);
        assert_int_equal(told[0], 0);
    }
}

__attribute__((noinline)) static void touch_all(void)
{
    for (size_t i = 0; i < SLOTS; i++)
        zeros[i] = (void *)&zeros;
}

static long faults(void)
{
    struct rusage r;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &r), 0);
    return r.ru_minflt;
}

static void test_what_was_never_touched_is_not_read(void **state)
{
    const long pages = (long)(sizeof zeros / 4096), before = faults();
    (void)state;
    if (access("/proc/self/pagemap", R_OK) != 0 || sysconf(_SC_PAGESIZE) != 4096)
        skip(); /* then all is read */
    assert_int_equal(after(in_zeros), 0);
    assert_true(faults() - before < pages);
    assert_int_equal(after(touch_all), 0); /* the control */
    assert_true(faults() - before > pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_lost_is_found),
        cmocka_unit_test(test_what_was_overwritten_is_found),
        cmocka_unit_test(test_what_is_kept_is_not_reported),
        cmocka_unit_test(test_what_was_never_touched_is_not_read),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
