/* store_suite.h - what every store of the manager must do, whatever is below it
   SPDX-License-Identifier: MIT

   Included behind a suite_open(), which opens the store of the test, or fills `why`, and
   SUITE_KILLS, the number of processes to be killed.  Without it there are only the helpers. */
#ifndef STORE_SUITE_H_INCLUDED
#define STORE_SUITE_H_INCLUDED

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static store *open_good(void)
{
    store *s = suite_open();
    if (!s)
        fail_msg("%s", why.text);
    return s;
}

static store_error put(store *s, const char *key, const char *value)
{
    store_change c = { key, value, value ? strlen(value) : 0 };
    return store_commit(s, &c, 1, &why);
}

typedef struct seen {
    unsigned count;
    size_t bytes;
    char text[512]; /* key=value, of short values */
} seen;

static int see(void *user, const char *key, const void *value, size_t len)
{
    seen *all = user;
    size_t at = strlen(all->text);
    all->count++;
    all->bytes += len;
    if (len < 64)
        snprintf(all->text + at, sizeof all->text - at, "%s=%.*s ", key, (int)len,
                 (const char *)value);
    return 0;
}

static seen look(store *s, const char *prefix)
{
    seen all = { 0 };
    assert_int_equal(store_load(s, prefix, see, &all, &why), STORE_OK);
    return all;
}

#ifdef SUITE_KILLS

/* -- What it is for -- */

static void test_records_come_back(void **state)
{
    (void)state;
    store *s = open_good();
    store_change batch[] = { { "lease/2", "b", 1 }, { "lease/10", "", 0 }, { "leases", "x", 1 },
                             { "host/1", "h", 1 },  { "lease/2", "c", 1 }, { "lease/~", "t", 1 } };
    assert_int_equal(store_commit(s, batch, 6, &why), STORE_OK);
    assert_string_equal(look(s, "lease/").text, "lease/10= lease/2=c lease/~=t ");
    assert_int_equal(look(s, "").count, 5);
    store_close(s);
    s = open_good();
    assert_string_equal(look(s, "lease/").text, "lease/10= lease/2=c lease/~=t ");
    assert_int_equal(put(s, "lease/2", NULL), STORE_OK);
    assert_int_equal(put(s, "lease/never", NULL), STORE_OK); /* not there: as asked */
    assert_int_equal(look(s, "lease/").count, 2);
    store_close(s);
    store_close(NULL);
}

static int stop_at_once(void *user, const char *key, const void *value, size_t len)
{
    (void)key;
    (void)value;
    (void)len;
    return ++*(int *)user;
}

static void test_loading_can_stop(void **state)
{
    (void)state;
    int calls = 0;
    store *s = open_good();
    assert_int_equal(put(s, "a", "1"), STORE_OK);
    assert_int_equal(put(s, "b", "1"), STORE_OK);
    assert_int_equal(store_load(s, "", stop_at_once, &calls, &why), STORE_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(put(s, "c", "1"), STORE_OK); /* nothing holds it up */
    store_close(s);
}

static void test_out_of_range(void **state)
{
    (void)state;
    static char large[STORE_VALUE_MAX_BYTES + 1];
    static store_change many[STORE_CHANGES_MAX + 1];
    char key[STORE_KEY_MAX_BYTES + 2];
    store *s = open_good();
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = 0;
    assert_int_equal(put(s, key, "v"), STORE_E_ARG);
    assert_int_equal(put(s, key + 1, "v"), STORE_OK);
    assert_int_equal(put(s, "", "v"), STORE_E_ARG);
    assert_int_equal(put(s, "a b", "v"), STORE_E_ARG);
    assert_int_equal(put(s, "\xc3\xa4", "v"), STORE_E_ARG);
    for (unsigned i = 0; i <= STORE_CHANGES_MAX; i++)
        many[i] = (store_change){ "m", "v", 1 };
    assert_int_equal(store_commit(s, many, STORE_CHANGES_MAX + 1, &why), STORE_E_ARG);
    assert_int_equal(store_commit(s, many, STORE_CHANGES_MAX, &why), STORE_OK);
    /* After them: SQLite reads a large record for each key that it compares with that of it. */
    store_change c = { "large", large, sizeof large };
    assert_int_equal(store_commit(s, &c, 1, &why), STORE_E_ARG);
    c.len--;
    assert_int_equal(store_commit(s, &c, 1, &why), STORE_OK);
    assert_int_equal(store_commit(s, &c, 0, &why), STORE_E_ARG);
    /* One bad change: none is made. */
    store_change batch[] = { { "good", "v", 1 }, { "", "v", 1 } };
    assert_int_equal(store_commit(s, batch, 2, &why), STORE_E_ARG);
    assert_int_equal(look(s, "good").count, 0);
    store_close(s);
}

/* -- Killed -- */

/* Commits pairs that are equal, and reports each number once it is acknowledged. */
static void commit_until_killed(int told)
{
    store *s = suite_open();
    char text[16];
    for (uint32_t i = 1; s; i++) {
        snprintf(text, sizeof text, "%u", i);
        store_change pair[] = { { "one", text, strlen(text) }, { "two", text, strlen(text) } };
        if (store_commit(s, pair, 2, &why) != STORE_OK ||
            write(told, &i, sizeof i) != (ssize_t)sizeof i)
            break;
    }
    _exit(1);
}

static void test_killed_between_and_within_commits(void **state)
{
    (void)state;
    uint32_t progress = 0;
    for (unsigned round = 0; round < SUITE_KILLS; round++) {
        int ends[2];
        uint32_t told = 0, number, one, two;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            close(ends[0]);
            commit_until_killed(ends[1]);
        }
        close(ends[1]);
        for (unsigned i = 0; i < 1 + round && read(ends[0], &number, sizeof number) > 0; i++)
            told = number;
        usleep(37 * round);
        kill(child, SIGKILL);
        while (read(ends[0], &number, sizeof number) > 0)
            told = number;
        close(ends[0]);
        assert_int_equal(waitpid(child, NULL, 0), child);
        store *s = open_good();
        assert_int_equal(sscanf(look(s, "").text, "one=%u two=%u", &one, &two), 2);
        assert_int_equal(one, two);                  /* nothing half done */
        assert_true(one == told || one == told + 1); /* nothing lost that was reported */
        store_close(s);
        progress += told;
    }
    assert_true(progress >= SUITE_KILLS);
}

#endif /* SUITE_KILLS */

#endif /* STORE_SUITE_H_INCLUDED */
