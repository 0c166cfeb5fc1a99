/* unit_log.c - messages on standard error: levels, formats, hostile text, a reader that is slow
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "log.h"
#include "console.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int usual, end = -1; /* standard error of the test; the pipe that is in its place */
static char got[1 << 20];

static void catch_messages(void)
{
    int pair[2];
    assert_int_equal(pipe2(pair, O_NONBLOCK | O_CLOEXEC), 0);
    usual = dup(STDERR_FILENO);
    assert_true(usual >= 0 && dup2(pair[1], STDERR_FILENO) >= 0);
    close(pair[1]);
    end = pair[0];
}

/* What was written since the last time. */
static const char *caught(void)
{
    ssize_t n = read(end, got, sizeof got - 1);
    got[n > 0 ? n : 0] = '\0';
    return got;
}

static int set_up(void **state)
{
    (void)state;
    unsetenv("JOURNAL_STREAM");
    catch_messages();
    log_name("dxpu-test");
    log_set(LOG_AT_INFO, LOG_AUTO);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)dup2(usual, STDERR_FILENO);
    close(usual);
    close(end);
    return 0;
}

static void say_all(void)
{
    log_error("e");
    log_warning("w");
    log_note("n");
    log_info("i");
    log_debug("d");
}

static void test_levels(void **state)
{
    (void)state;
    say_all();
    assert_string_equal(caught(), "dxpu-test: e\ndxpu-test: w\ndxpu-test: n\ndxpu-test: i\n");
    log_set(LOG_AT_ERROR, LOG_TEXT);
    say_all();
    assert_string_equal(caught(), "dxpu-test: e\n");
    assert_false(log_shows(LOG_AT_WARNING));
    log_set(LOG_AT_DEBUG, LOG_TEXT);
    say_all();
    assert_non_null(strstr(caught(), "dxpu-test: d\n"));
    log_name(NULL);
    log_error("as it was called");
    assert_non_null(strstr(caught(), "unit_log: as it was called\n"));
}

static void test_journal(void **state)
{
    struct stat st;
    char stream[64];
    (void)state;
    log_set(LOG_AT_DEBUG, LOG_JOURNAL);
    say_all();
    assert_string_equal(caught(), "<3>dxpu-test: e\n<4>dxpu-test: w\n<5>dxpu-test: n\n"
                                  "<6>dxpu-test: i\n<7>dxpu-test: d\n");
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_set(LOG_AT_INFO, LOG_AUTO);
    log_error("e");
    assert_string_equal(caught(), "<3>dxpu-test: e\n");
    log_set(LOG_AT_INFO, LOG_TEXT); /* when it is asked for */
    log_error("e");
    assert_string_equal(caught(), "dxpu-test: e\n");
    setenv("JOURNAL_STREAM", "1:1", 1); /* inherited, and standard error is something else */
    log_set(LOG_AT_INFO, LOG_AUTO);
    log_error("e");
    assert_string_equal(caught(), "dxpu-test: e\n");
}

static void test_time(void **state)
{
    unsigned year, month, day, hour, minute, second, ms;
    int len = 0;
    (void)state;
    log_set(LOG_AT_INFO, LOG_TIME);
    log_error("e");
    assert_int_equal(sscanf(caught(), "%4u-%2u-%2uT%2u:%2u:%2u.%3uZ %n", &year, &month, &day, &hour,
                            &minute, &second, &ms, &len),
                     7);
    assert_in_range(year, 2020, 9999);
    assert_int_equal(len, strlen("2026-01-02T03:04:05.678Z "));
    assert_string_equal(got + len, "dxpu-test: e\n");
}

static const char hostile[] = "\x1b[2J\r\n<0>kernel: \"\\ \x9b\xff \xe2\x80\xae caf\xc3\xa9\x7f";

/* One message is one line, and it commands nothing, whoever had it printed. */
static void test_hostile_text(void **state)
{
    (void)state;
    log_error("slot 3: %s", hostile);
    assert_string_equal(caught(), "dxpu-test: slot 3: ?[2J?"
                                  "?<0>kernel: \"\\ ?? ? caf\xc3\xa9?\n");
    log_set(LOG_AT_INFO, LOG_JOURNAL);
    log_error("%s", hostile);
    assert_memory_equal(caught(), "<3>dxpu-test: ?[2J", 18);
    assert_ptr_equal(strchr(got, '\n'), got + strlen(got) - 1);
}

static void test_json(void **state)
{
    static const char *const keys[] = { "time", "level", "program", "text" };
    json_t *j;
    (void)state;
    log_set(LOG_AT_INFO, LOG_JSON);
    log_warning("%s\"}\n{\"level\":\"x\"", "a");
    j = json_loads(caught(), JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_object_size(j), 4);
    for (unsigned i = 0; i < 4; i++)
        assert_non_null(json_string_value(json_object_get(j, keys[i])));
    assert_string_equal(json_string_value(json_object_get(j, "level")), "warning");
    assert_string_equal(json_string_value(json_object_get(j, "program")), "dxpu-test");
    assert_string_equal(json_string_value(json_object_get(j, "text")), "a\"}?{\"level\":\"x\"");
    assert_ptr_equal(strchr(got, '\n'), got + strlen(got) - 1);
    json_decref(j);
}

/* A document is whole in every format, however long, and whatever level is shown. */
static void test_document(void **state)
{
    enum { FIGURES = 3000 };
    static char lines[FIGURES * 8], object[FIGURES * 10];
    size_t at = 0, len = 1;
    json_t *j;
    (void)state;
    (void)fcntl(STDERR_FILENO, F_SETPIPE_SZ, 1 << 20);
    object[0] = '{';
    for (int i = 0; i < FIGURES; i++) {
        at += (size_t)snprintf(lines + at, sizeof lines - at, "f%d 7\n", i);
        len += (size_t)snprintf(object + len, sizeof object - len, "\"%d\":7,", i);
    }
    memcpy(object + len - 1, "}\n", 3);
    log_set(LOG_AT_ERROR, LOG_TEXT);
    assert_false(log_is_json());
    log_document("figures", lines);
    assert_string_equal(caught(), lines);
    log_set(LOG_AT_ERROR, LOG_JOURNAL);
    log_document("figures", "a 1\n  b 2\n\nc 3");
    assert_string_equal(caught(), "<6>a 1\n<6>  b 2\n<6>\n<6>c 3\n");
    log_set(LOG_AT_ERROR, LOG_JSON);
    assert_true(log_is_json());
    log_document("figures", object);
    j = json_loads(caught(), JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_object_size(j), 5);
    assert_string_equal(json_string_value(json_object_get(j, "level")), "info");
    assert_string_equal(json_string_value(json_object_get(j, "text")), "figures");
    assert_int_equal(json_object_size(json_object_get(j, "figures")), FIGURES);
    assert_ptr_equal(strchr(got, '\n'), got + strlen(got) - 1);
    json_decref(j);
}

/* What a reader took half of ends before the next message begins; it is noted. */
static void test_document_cut_off(void **state)
{
    static char line[1 << 16];
    (void)state;
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK), 0);
    assert_true(fcntl(STDERR_FILENO, F_SETPIPE_SZ, 4096 * 4) > 0);
    memset(line, 'x', sizeof line - 1);
    log_document("figures", line);
    assert_null(strchr(caught(), '\n'));
    log_error("next");
    assert_memory_equal(caught(), "\ndxpu-test: next\n", 17);
    assert_non_null(strstr(got, "1 messages before this one are lost"));
}

/* Very long lines are cut, in every format within what one line may have. */
static void test_long(void **state)
{
    static const char letters[] = "x\x1b\"\xc3"; /* from harmless to what JSON makes six of */
    static char text[100000];
    (void)state;
    for (unsigned f = LOG_TEXT; f <= LOG_JOURNAL; f++) {
        for (unsigned i = 0; i < 4; i++) {
            memset(text, letters[i], sizeof text - 1);
            log_set(LOG_AT_INFO, (log_format)f);
            log_error("%s", text);
            (void)caught();
            assert_ptr_equal(strchr(got, '\n'), got + strlen(got) - 1);
            assert_true(strlen(got) >= LOG_LINE_BYTES && strlen(got) < 6 * LOG_LINE_BYTES + 256);
            assert_memory_equal(got + strlen(got) - (f == LOG_JSON ? 6 : 4), "...", 3);
        }
    }
}

/* A reader that takes nothing holds nothing up, and gets the number of lines it missed. */
static void test_full(void **state)
{
    unsigned lines = 0, said = 0;
    (void)state;
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK), 0);
    errno = ENOENT;
    for (unsigned i = 0; i < 20000; i++)
        log_error("number %u", said++);
    assert_int_equal(errno, ENOENT);
    (void)caught();
    for (const char *c = got; (c = strchr(c, '\n')) != NULL; c++)
        lines++;
    assert_in_range(lines, 100, said - 1);
    log_error("the last");
    assert_memory_equal(caught(), "dxpu-test: the last\ndxpu-test: ", 31);
    assert_int_equal(strtoul(got + 31, NULL, 10), said - lines);
    assert_non_null(strstr(got, "messages before this one are lost"));
    log_error("once"); /* control: it is noted once */
    assert_string_equal(caught(), "dxpu-test: once\n");
}

/* After console_start() standard error is such a reader, pipe or socket. */
static void test_console(void **state)
{
    (void)state;
    console_start();
    for (unsigned i = 0; i < 200000; i++)
        log_error("it is not read");
    console_end();
    assert_memory_equal(caught(), "dxpu-test: it is not read\n", 26);
    while (*caught())
        ;
    log_error("it is read again");
    assert_non_null(strstr(caught(), "messages before this one are lost"));
}

static void *speak(void *which)
{
    for (unsigned i = 0; i < 300; i++)
        log_error("thread %s says a sentence", (const char *)which);
    return NULL;
}

/* Lines of threads are whole. */
static void test_threads(void **state)
{
    static char names[4][2] = { "0", "1", "2", "3" };
    pthread_t t[4];
    unsigned lines = 0;
    (void)state;
    (void)fcntl(STDERR_FILENO, F_SETPIPE_SZ, 1 << 20);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, speak, names[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    for (char *line = strtok((caught(), got), "\n"); line; line = strtok(NULL, "\n"), lines++) {
        unsigned n;
        int len = 0;
        assert_int_equal(sscanf(line, "dxpu-test: thread %1u says a sentence%n", &n, &len), 1);
        assert_int_equal(len, strlen(line));
    }
    assert_int_equal(lines, 1200);
}

/* Standard error is closed, or gone: nothing happens. */
static void test_no_reader(void **state)
{
    (void)state;
    close(STDERR_FILENO);
    log_error("nowhere");
    assert_true(dup2(usual, STDERR_FILENO) >= 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(levels),   TEST(journal),          TEST(time), TEST(hostile_text), TEST(json),
        TEST(document), TEST(document_cut_off), TEST(long), TEST(full),         TEST(console),
        TEST(threads),  TEST(no_reader),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
