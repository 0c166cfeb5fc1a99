/* unit_open_files.c - the limit of descriptors is raised as far as it may be
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "open_files.h"

static rlim_t limit(void)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    return r.rlim_cur;
}

static void test_raised_as_far_as_it_may_be(void **state)
{
    const struct rlimit low = { 64, 200 };
    (void)state;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(open_files_allow(50), 64); /* never lowered */
    assert_int_equal(limit(), 64);
    assert_int_equal(open_files_allow(100), 100);
    assert_int_equal(limit(), 100);
    assert_int_equal(open_files_allow((uint64_t)1 << 40), 200);
    assert_int_equal(limit(), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_raised_as_far_as_it_may_be) };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
