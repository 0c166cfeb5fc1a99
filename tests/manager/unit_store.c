/* unit_store.c - the manager's store: what is acknowledged is there, what failed is not, and the
   message says what to do
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* unshare() */
#endif
#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "directory_sync.h"
#include "store.h"

enum { LARGE_BYTES = 64 * 1024 };

static char folder[64], path[128];
static store_fault why;

/* An empty directory for each test. */
static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dxpu-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pool.db", folder);
    memset(&why, 0, sizeof why);
    return 0;
}

static int end(void **state)
{
    static const char *const names[] = { "pool.db", "pool.db-wal", "pool.db-journal",
                                         "pool.db-shm" };
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        unlink(name);
    }
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

static store *suite_open(void)
{
    return store_open_sqlite(path, &why);
}

#define SUITE_KILLS 30
#include "store_suite.h"

/* Opening fails with this error, and its message names the file and this word. */
static void open_bad(store_error code, const char *word)
{
    assert_null(store_open_sqlite(path, &why));
    assert_int_equal(why.code, code);
    assert_non_null(strstr(why.text, path));
    assert_non_null(strstr(why.text, word));
}

static void raw(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* The first column of the answer's first row. */
static const char *ask(store *s, const char *sql, char *out, size_t room)
{
    sqlite3_stmt *query;
    assert_int_equal(sqlite3_prepare_v2(store_database(s), sql, -1, &query, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    snprintf(out, room, "%s", (const char *)sqlite3_column_text(query, 0));
    sqlite3_finalize(query);
    return out;
}

static void test_durable_and_private(void **state)
{
    (void)state;
    char text[16];
    struct stat st;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    assert_string_equal(ask(s, "PRAGMA synchronous", text, sizeof text),
                        "2"); /* FULL: fsync before a commit returns */
    assert_string_equal(ask(s, "PRAGMA journal_mode", text, sizeof text), "wal");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(s);
}

/* An error that SQLite does not undo by itself is undone, and the store is closed to changes. */
static void test_failed_change_is_undone(void **state)
{
    (void)state;
    store *s = open_good();
    sqlite3_limit(store_database(s), SQLITE_LIMIT_LENGTH, 1000);
    char large[2000] = { 0 };
    store_change batch[] = { { "good", "v", 1 }, { "large", large, sizeof large } };
    assert_int_equal(store_commit(s, batch, 2, &why), STORE_E_IO);
    assert_int_equal(look(s, "").count, 0);
    assert_int_equal(put(s, "good", "v"), STORE_E_IO);
    store_close(s);
    s = open_good();
    assert_int_equal(look(s, "").count, 0);
    assert_int_equal(put(s, "good", "v"), STORE_OK);
    store_close(s);
}

/* -- No room -- */

static char large_value[LARGE_BYTES];

/* Fill until there is no room: the number of records that were acknowledged. */
static unsigned fill(store *s, store_error *rc)
{
    char key[16];
    unsigned n = 0;
    do {
        snprintf(key, sizeof key, "%04u", n);
        store_change pair[] = { { key, large_value, sizeof large_value }, { "last", key, 4 } };
        *rc = store_commit(s, pair, 2, &why);
    } while (*rc == STORE_OK && ++n < 1000);
    return n;
}

/* What was acknowledged is there, the rest is not; 0 when so. */
static int judge(store *s, unsigned n)
{
    char last[32];
    seen all = { 0 };
    snprintf(last, sizeof last, "last=%04u ", n - 1);
    return n < 3 || n >= 1000 || store_load(s, "", see, &all, &why) != STORE_OK ||
           all.count != n + 1 || all.bytes != (size_t)n * LARGE_BYTES + 4 ||
           strcmp(all.text, last) != 0;
}

static void test_no_room_by_file_size_limit(void **state)
{
    (void)state;
    struct rlimit old, small;
    store_error rc;
    store *s = open_good();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    unsigned n = fill(s, &rc);
    store_fault first = why;
    store_error again = put(s, "again", "1");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, STORE_E_FULL);
    assert_true(again == STORE_OK || again == STORE_E_FULL); /* a small one may fit */
    assert_non_null(strstr(first.text, "make room"));
    if (again == STORE_OK)
        assert_int_equal(put(s, "again", NULL), STORE_OK);
    assert_int_equal(judge(s, n), 0);
    store_close(s);
    s = open_good();
    assert_int_equal(judge(s, n), 0);
    assert_int_equal(put(s, "more", "1"), STORE_OK); /* there is room again */
    assert_int_equal(judge(s, n) != 0, true);        /* control: it sees one record too many */
    store_close(s);
}

static bool write_text(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Mounts of its own; for who is not root, as root of a user namespace. */
static bool own_mounts(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char users[32], groups[32];
    if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)))
        return false;
    snprintf(users, sizeof users, "0 %u 1", uid);
    snprintf(groups, sizeof groups, "0 %u 1", gid);
    return !uid ||
           (write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", users) &&
            write_text("/proc/self/gid_map", groups));
}

/* In a child with a file system of 1 MB: 0 good, 1 not good, 77 no such file system to be had. */
static int full_disk(void)
{
    store_error rc;
    if (!own_mounts() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", folder, "tmpfs", 0, "size=1m"))
        return 77;
    store *s = store_open_sqlite(path, &why);
    if (!s)
        return 1;
    unsigned n = fill(s, &rc);
    if (rc != STORE_E_FULL || !strstr(why.text, "make room") || judge(s, n))
        return 1;
    store_close(s);
    s = store_open_sqlite(path, &why);
    if (!s || judge(s, n))
        return 1;
    if (mount("tmpfs", folder, "tmpfs", MS_REMOUNT, "size=16m"))
        return 77;
    rc = put(s, "more", "1");
    store_close(s);
    if (rc != STORE_OK || mount("tmpfs", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=16m"))
        return 1;
    s = store_open_sqlite(path, &why);
    return s || why.code != STORE_E_IO || !strstr(why.text, "must be writable");
}

static void test_no_room_on_a_full_disk(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(full_disk());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* -- Files that are not as they should be -- */

static void test_locked(void **state)
{
    (void)state;
    int status;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    pid_t child = fork(); /* locks are a process's */
    assert_true(child >= 0);
    if (!child) {
        store *second = store_open_sqlite(path, &why);
        _exit(second || why.code != STORE_E_LOCKED || !strstr(why.text, "another program"));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    open_bad(STORE_E_LOCKED, "another program"); /* in this process too */
    assert_int_equal(put(s, "b", "1"), STORE_OK);
    store_close(s);
    s = open_good(); /* control: the lock was the reason */
    assert_int_equal(look(s, "").count, 2);
    store_close(s);
}

static void test_newer_schema(void **state)
{
    (void)state;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    store_close(s);
    raw("PRAGMA user_version=2");
    open_bad(STORE_E_NEWER, "schema 2");
    raw("PRAGMA user_version=1");
    s = open_good();
    assert_int_equal(look(s, "").count, 1);
    store_close(s);
}

static void test_foreign(void **state)
{
    (void)state;
    raw("CREATE TABLE theirs (x)");
    open_bad(STORE_E_FOREIGN, "another program's");
    raw("INSERT INTO theirs VALUES (1)"); /* as it was */
}

static void write_over(long at, const void *bytes, size_t len)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
    close(fd);
}

static void test_corrupt(void **state)
{
    (void)state;
    static char noise[4096];
    struct stat st;
    store_error rc = STORE_OK;
    store *s = open_good();
    for (unsigned i = 0; i < 200 && rc == STORE_OK; i++) {
        char key[16];
        snprintf(key, sizeof key, "%04u", i);
        rc = put(s, key, "0123456789012345678901234567890123456789012345678901234567890");
    }
    assert_int_equal(rc, STORE_OK);
    store_close(s);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size >= 4 * 4096);
    memset(noise, 0x5a, sizeof noise);
    write_over(2 * 4096, noise, sizeof noise); /* a page of the table */
    open_bad(STORE_E_CORRUPT, "backup");
    write_over(0, noise, 100); /* the header: it may never have been a store */
    open_bad(STORE_E_CORRUPT, "name another file");
}

/* Damage that comes while it is open: the commit fails, and so does every one after it. */
static void test_corrupt_while_open(void **state)
{
    (void)state;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    sqlite3_exec(store_database(s), "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    store_close(s);
    s = open_good();
    static char noise[4096];
    memset(noise, 0x5a, sizeof noise);
    sqlite3_db_release_memory(store_database(s));
    write_over(4096, noise, sizeof noise);
    assert_int_equal(put(s, "b", "1"), STORE_E_CORRUPT);
    assert_non_null(strstr(why.text, "backup"));
    assert_int_equal(put(s, "b", "1"), STORE_E_IO);
    store_close(s);
    open_bad(STORE_E_CORRUPT, "backup");
}

/* M-130: a file that was truncated, or made by hand, is not a new pool; the control: a file that is
   not there is one. */
static void test_empty_file(void **state)
{
    (void)state;
    struct stat st;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    open_bad(STORE_E_CORRUPT, "0 bytes");
    assert_non_null(strstr(why.text, "remove it"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(unlink(path), 0);
    store *s = open_good();
    assert_int_equal(stat(path, &st), 0); /* whatever ends it now, it is no empty file */
    assert_true(st.st_size > 0);
    store_close(s);
    s = open_good();
    store_close(s);
}

static void test_no_such_directory(void **state)
{
    (void)state;
    char good[sizeof path];
    memcpy(good, path, sizeof path);
    snprintf(path, sizeof path, "%s/none/pool.db", folder);
    open_bad(STORE_E_IO, "No such file");
    memcpy(path, good, sizeof path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, begin, end)

/* The file, or its log, is removed while it is open: seen at the next look, and nothing is
   acknowledged; what was in it is beside it. */
static void test_removed(void **state)
{
    (void)state;
    static const char *const ends[] = { "", "-wal" };
    char name[160], saved[160];
    snprintf(saved, sizeof saved, "%s-saved", path);
    for (unsigned i = 0; i < 4; i++) {
        store *s = open_good();
        snprintf(name, sizeof name, "%s%s", path, ends[i / 2]);
        assert_int_equal(put(s, "a", "1"), STORE_OK);
        assert_int_equal(store_check(s, &why), STORE_OK); /* the control */
        assert_int_equal(unlink(name), 0);
        if (i % 2) { /* another file with its name */
            FILE *f = fopen(name, "w");
            assert_non_null(f);
            fclose(f);
        }
        assert_int_equal(i < 2 ? put(s, "b", "2") : store_check(s, &why), STORE_E_IO);
        assert_non_null(strstr(why.text, "removed"));
        bool all = i / 2 == 0; /* of the log nothing is gone that is not in the file */
        assert_true(!all || strstr(why.text, saved));
        assert_int_equal(put(s, "c", "3"), STORE_E_IO);
        assert_int_equal(store_check(s, &why), STORE_E_IO);
        store_close(s);
        if (all) {
            unlink(path);
            open_bad(STORE_E_IO, "-saved"); /* no empty one takes its place */
            assert_int_equal(rename(saved, path), 0);
        }
        s = open_good();
        assert_string_equal(look(s, "").text, i < 2 ? "a=1 b=2 " : "a=1 ");
        assert_int_equal(put(s, "b", NULL), STORE_OK);
        store_close(s);
    }
    store *s = open_good();
    assert_int_equal(mkdir(saved, 0700), 0); /* it cannot be saved */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(store_check(s, &why), STORE_E_IO);
    assert_non_null(strstr(why.text, "backup"));
    store_close(s);
    assert_int_equal(rmdir(saved), 0);
    s = open_good();
    assert_int_equal(unlink(path), 0);
    directory_sync_fails = true; /* nor is what a crash would undo */
    assert_int_equal(store_check(s, &why), STORE_E_IO);
    directory_sync_fails = false;
    assert_non_null(strstr(why.text, "backup"));
    store_close(s);
    assert_int_equal(unlink(saved), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(records_come_back),
        TEST(loading_can_stop),
        TEST(durable_and_private),
        TEST(out_of_range),
        TEST(failed_change_is_undone),
        TEST(killed_between_and_within_commits),
        TEST(no_room_by_file_size_limit),
        TEST(no_room_on_a_full_disk),
        TEST(locked),
        TEST(newer_schema),
        TEST(foreign),
        TEST(corrupt),
        TEST(corrupt_while_open),
        TEST(removed),
        TEST(empty_file),
        TEST(no_such_directory),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
