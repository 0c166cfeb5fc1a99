/* unit_identity.c - who a device is
   SPDX-License-Identifier: MIT */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "identity.h"

#define NO_MACHINE "/nonexistent/machine-id"

static uint64_t base(void)
{
    return identity_of_slot(2, 1, "/tmp/a.img", "127.0.0.1:4458");
}

static void test_every_part_counts(void **state)
{
    uint64_t ids[] = {
        base(),
        identity_of_slot(3, 1, "/tmp/a.img", "127.0.0.1:4458"),
        identity_of_slot(2, 2, "/tmp/a.img", "127.0.0.1:4458"),
        identity_of_slot(2, 1, "/tmp/b.img", "127.0.0.1:4458"),
        identity_of_slot(2, 1, NULL, "127.0.0.1:4458"),
        identity_of_slot(2, 1, NULL, "127.0.0.1:4459"),
        identity_of_slot(2, 1, NULL, "/tmp/a.img"),
        identity_of_slot(21, 1, NULL, "127.0.0.1:4458"),
        identity_of_slot(2, 11, NULL, "127.0.0.1:4458"),
        identity_of_name("a"),
        identity_of_name("b"),
        identity_of_name("a-2"),
    };
    (void)state;
    for (unsigned i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        for (unsigned k = 0; k < i; k++)
            assert_true(ids[i] != ids[k]);
    }
}

static void test_the_same_again(void **state)
{
    (void)state;
    assert_true(base() == base());
    assert_true(identity_of_name("a") == identity_of_name("a"));
    /* with a file the address does not matter, nor do further files */
    assert_true(base() == identity_of_slot(2, 1, "/tmp/a.img,/tmp/c.img", "[::1]:9"));
}

static uint64_t of_file(const char *file)
{
    return identity_of_slot(2, 1, file, "");
}

/* However the file is named, and whether it is there yet or not. */
static void test_one_file_many_names(void **state)
{
    char folder[] = "/tmp/unit_identity.XXXXXX", file[64], dotted[64], link[64];
    char *here = getcwd(NULL, 0);
    uint64_t before;
    FILE *f;
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_non_null(here);
    snprintf(file, sizeof file, "%s/disk", folder);
    snprintf(dotted, sizeof dotted, "%s/../%s/./disk", folder, strrchr(folder, '/') + 1);
    snprintf(link, sizeof link, "%s/link", folder);
    before = of_file(file);
    assert_true(before == of_file(dotted));
    f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(symlink("disk", link), 0);
    assert_true(before == of_file(file));
    assert_true(before == of_file(dotted));
    assert_true(before == of_file(link));
    assert_int_equal(chdir(folder), 0);
    assert_true(before == of_file("disk"));
    assert_true(before != of_file("disc"));
    assert_int_equal(chdir(here), 0);
    assert_true(before != of_file("disk"));
    assert_true(of_file("/disk-of-nobody") == of_file("/../disk-of-nobody"));
    free(here);
    unlink(link);
    unlink(file);
    rmdir(folder);
}

static void test_machines_differ(void **state)
{
    char file[] = "/tmp/unit_identity.XXXXXX", name[IDENTITY_MACHINE_BYTES],
         host[IDENTITY_MACHINE_BYTES];
    uint64_t none = identity_on(NO_MACHINE, 2, 1, "/x", ""), first;
    int fd = mkstemp(file);
    (void)state;
    assert_true(fd >= 0);
    assert_true(identity_on(file, 2, 1, "/x", "") == none); /* it is empty */
    assert_int_equal(write(fd, "first\n", 6), 6);
    first = identity_on(file, 2, 1, "/x", "");
    assert_true(first != none);
    identity_machine(file, name);
    assert_string_equal(name, "first");
    assert_int_equal(pwrite(fd, "other\n", 6, 0), 6);
    assert_true(identity_on(file, 2, 1, "/x", "") != first);
    identity_machine(NO_MACHINE, name);
    assert_int_equal(gethostname(host, sizeof host), 0);
    assert_string_equal(name, host);
    close(fd);
    unlink(file);
}

/* Of a proxy with a manager: its file alone counts, and the slot. */
static void test_of_a_proxy(void **state)
{
    uint8_t one[16] = { 1 }, other[16] = { 1 };
    uint64_t first = identity_of_proxy(one, 1);
    (void)state;
    assert_true(identity_of_proxy(other, 1) == first);
    assert_true(identity_of_proxy(one, 2) != first);
    for (unsigned i = 0; i < 16; i++) {
        other[i] ^= 0x80;
        assert_true(identity_of_proxy(other, 1) != first);
        other[i] ^= 0x80;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_counts),   cmocka_unit_test(test_the_same_again),
        cmocka_unit_test(test_one_file_many_names), cmocka_unit_test(test_machines_differ),
        cmocka_unit_test(test_of_a_proxy),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
