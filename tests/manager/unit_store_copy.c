/* unit_store_copy.c - export and import of the manager's records: whole, or refused
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdbool.h>
#include <sys/stat.h>

#include "store_copy.h"

static char folder[64], path[128], file[128];
static store_fault why;

static store *suite_open(void)
{
    return store_open_sqlite(path, &why);
}

#include "store_suite.h"

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dxpu-copy-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.db", folder);
    snprintf(file, sizeof file, "%s/export", folder);
    return 0;
}

static int end(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* Another store, without records. */
static store *open_other(void)
{
    snprintf(path, sizeof path, "%s/b.db", folder);
    return open_good();
}

enum { RECORDS = 250 };

static void fill(store *s)
{
    for (unsigned i = 0; i < RECORDS; i++) {
        char key[16], value[32];
        snprintf(key, sizeof key, "slot/%u", i);
        snprintf(value, sizeof value, "{\"n\":%u}", i);
        assert_int_equal(put(s, key, value), STORE_OK);
    }
    store_change odd[] = { { "odd", "a\0b\n\"\\\xc3\xa4", 9 }, { "empty", "", 0 } };
    assert_int_equal(store_commit(s, odd, 2, &why), STORE_OK);
}

/* The file's bytes. */
static char *contents(size_t *len)
{
    FILE *f = fopen(file, "rb");
    char *bytes = calloc(1, 1 << 20);
    assert_non_null(f);
    *len = fread(bytes, 1, (1 << 20) - 1, f);
    fclose(f);
    return bytes;
}

static void rewrite(const char *bytes, size_t len)
{
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
}

static void test_there_and_back(void **state)
{
    (void)state;
    uint64_t n;
    size_t len, len_again;
    struct stat st;
    store *s = open_good();
    fill(s);
    assert_int_equal(store_export(s, file, &n, &why), STORE_OK);
    assert_int_equal(n, RECORDS + 2);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(s);
    char *bytes = contents(&len);
    s = open_other();
    assert_int_equal(store_import(s, file, &n, &why), STORE_OK);
    assert_int_equal(n, RECORDS + 2);
    assert_int_equal(store_check_import(s, &why), STORE_OK);
    assert_int_equal(store_export(s, file, &n, &why), STORE_OK);
    char *again = contents(&len_again);
    assert_int_equal(len, len_again);
    assert_memory_equal(bytes, again, len);
    assert_int_equal(store_import(s, file, &n, &why), STORE_E_ARG); /* it has records */
    assert_non_null(strstr(why.text, "252 records"));
    assert_int_equal(look(s, "").count, RECORDS + 2);
    store_close(s);
    free(bytes);
    free(again);
}

/* A manager that starts with it ends no lease before that is confirmed. */
static void test_m96_expiries_are_held(void **state)
{
    (void)state;
    uint64_t n;
    store *s = open_good();
    assert_int_equal(put(s, "meta", "{\"format\":5,\"held\":false,\"term\":7}"), STORE_OK);
    assert_int_equal(put(s, "metal", "{\"held\":false}"), STORE_OK);
    assert_int_equal(store_export(s, file, &n, &why), STORE_OK);
    assert_string_equal(look(s, "meta").text,
                        "meta={\"format\":5,\"held\":false,\"term\":7} metal={\"held\":false} ");
    store_close(s);
    s = open_other();
    assert_int_equal(store_import(s, file, &n, &why), STORE_OK);
    assert_string_equal(look(s, "meta").text,
                        "meta={\"format\":5,\"held\":true,\"term\":7} metal={\"held\":false} ");
    store_close(s);
}

/* Nothing of a file that was cut off or changed is imported. */
static void test_damaged_file(void **state)
{
    (void)state;
    uint64_t n;
    size_t len;
    store *s = open_good();
    fill(s);
    assert_int_equal(store_export(s, file, &n, &why), STORE_OK);
    store_close(s);
    char *bytes = contents(&len);
    s = open_other();
    for (size_t cut = 0; cut < len; cut += cut < 40 || cut > len - 80 ? 1 : 97) {
        rewrite(bytes, cut);
        store_error rc = store_import(s, file, &n, &why);
        assert_true(rc == STORE_E_CORRUPT);
    }
    for (size_t at = 0; at < len; at += at < 40 || at > len - 80 ? 1 : 101) {
        bytes[at] ^= 1;
        rewrite(bytes, len);
        bytes[at] ^= 1;
        store_error rc = store_import(s, file, &n, &why);
        assert_true(rc == STORE_E_CORRUPT || rc == STORE_E_NEWER);
    }
    assert_int_equal(look(s, "").count, 0);
    rewrite(bytes, len);
    assert_int_equal(store_import(s, file, &n, &why), STORE_OK); /* the control */
    store_close(s);
    unlink(file);
    assert_int_equal(store_import(NULL, file, &n, &why), STORE_E_IO);
    assert_non_null(strstr(why.text, "No such file"));
    free(bytes);
}

/* A store that fails after some commits. */
static struct {
    store base;
    store *below;
    unsigned left;
} failing;

static store_error failing_load(store *s, const char *prefix, store_each each, void *user,
                                store_fault *f)
{
    (void)s;
    return store_load(failing.below, prefix, each, user, f);
}

static store_error failing_commit(store *s, const store_change *changes, unsigned count,
                                  store_fault *f)
{
    (void)s;
    if (failing.left--)
        return store_commit(failing.below, changes, count, f);
    f->code = STORE_E_FULL;
    snprintf(f->text, sizeof f->text, "it is to fail");
    return STORE_E_FULL;
}

/* Cut off after any commit, an import leaves a store that is refused, until it is repeated. */
static void test_m142_unfinished_import(void **state)
{
    (void)state;
    static const store_kind kind = { .load = failing_load, .commit = failing_commit };
    uint64_t n;
    store *s = open_good();
    fill(s);
    assert_int_equal(store_export(s, file, &n, &why), STORE_OK);
    store_close(s);
    s = open_other();
    failing.base.kind = &kind;
    failing.below = s;
    unsigned commits = 0;
    for (store_error rc = STORE_E_FULL; rc != STORE_OK; commits++) {
        failing.left = commits;
        rc = store_import(&failing.base, file, &n, &why);
        assert_true(rc == STORE_OK || rc == STORE_E_FULL);
        assert_int_equal(store_check_import(s, &why),
                         rc == STORE_OK || !commits ? STORE_OK : STORE_E_CORRUPT);
        if (rc != STORE_OK && commits) {
            assert_non_null(strstr(why.text, "import the file again"));
            assert_int_equal(store_export(s, file, &n, &why), STORE_E_CORRUPT);
        }
    }
    assert_true(commits >= 4);
    assert_int_equal(look(s, "").count, RECORDS + 2);
    store_close(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(there_and_back),
        TEST(damaged_file),
        TEST(m142_unfinished_import),
        TEST(m96_expiries_are_held),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
