/* unit_audit.c - the log of leases, keys and refusals: what it keeps, and what audit_check() sees
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "audit.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/dxpu-audit-XXXXXX", file[64], other[64];

static void write_some(audit *a, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++) {
        const audit_field fields[] = { { "slot", NULL, i }, { "text", "a \"b\"\n\x01", 0 } };
        audit_write(a, "lease.created", fields, 2);
    }
}

static void fresh(void)
{
    unlink(file);
    unlink(other);
}

/* A new log of that many lines. */
static void write_log(unsigned count)
{
    audit *a;
    fresh();
    a = audit_open("test", file);
    assert_non_null(a);
    write_some(a, 0, count);
    audit_close(a);
}

static char *read_all(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 65536);
    assert_non_null(f);
    assert_non_null(text);
    *bytes = fread(text, 1, 65535, f);
    fclose(f);
    return text;
}

static void write_all(const char *path, const char *text, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    fclose(f);
}

static int64_t lines_of(const char *path)
{
    uint64_t line;
    char why[160];
    return audit_check(path, &line, why, NULL, NULL, NULL);
}

static void test_s130_lines_follow_each_other(void **state)
{
    char head[AUDIT_HASH_TEXT_BYTES], first[AUDIT_HASH_TEXT_BYTES], last[AUDIT_HASH_TEXT_BYTES];
    char why[160];
    uint64_t line;
    struct stat is;
    audit *a;
    (void)state;
    fresh();
    for (unsigned opened = 0; opened < 3; opened++) {
        a = audit_open("test", file);
        assert_non_null(a);
        write_some(a, opened, 4);
        assert_int_equal(audit_lines(a), 4);
        audit_head(a, head);
        audit_close(a);
    }
    assert_int_equal(audit_check(file, &line, why, NULL, first, last), 12);
    assert_string_equal(last, head);
    assert_true(strspn(first, "0") == 64);
    assert_int_equal(stat(file, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0600);
}

/* Each byte of a line but the last one's changes something that the check sees; an untouched copy
   is the control. */
/* Text of a request need not be UTF-8: its line is not lost, and is one line. */
static void test_s130_any_text_is_kept(void **state)
{
    const audit_field hostile = { "target", "/v1/\xff\xc0\x80\x1b[2J\"}\n{", 0 };
    size_t bytes;
    char *text;
    audit *a;
    (void)state;
    fresh();
    a = audit_open("test", file);
    assert_non_null(a);
    audit_write(a, "api.request", &hostile, 1);
    assert_int_equal(audit_lost(a), 0);
    write_some(a, 0, 1);
    audit_close(a);
    assert_int_equal(lines_of(file), 2);
    text = read_all(file, &bytes);
    assert_non_null(
        strstr(text, "\"target\":\"/v1/\\uFFFD\\uFFFD\\u001B[2J\\\"}\\n{\",\"before\":\""));
    free(text);
}

static void test_s131_what_was_changed_is_seen(void **state)
{
    size_t bytes, last;
    char *text;
    (void)state;
    write_log(5);
    text = read_all(file, &bytes);
    write_all(other, text, bytes);
    assert_int_equal(lines_of(other), 5);
    for (last = bytes - 2; text[last] != '\n'; last--) {
    }
    for (size_t i = 0; i < last; i++) {
        text[i] ^= 1;
        write_all(other, text, bytes);
        assert_int_equal(lines_of(other), -1);
        text[i] ^= 1;
    }
    free(text);
}

static void test_s131_what_is_missing_is_seen(void **state)
{
    size_t bytes;
    char *text, *second, *third;
    uint64_t line;
    char why[160];
    audit *a;
    (void)state;
    write_log(4);
    text = read_all(file, &bytes);
    second = strchr(text, '\n') + 1;
    third = strchr(second, '\n') + 1;
    memmove(second, third, bytes - (size_t)(third - text) + 1);
    write_all(other, text, strlen(text));
    assert_int_equal(audit_check(other, &line, why, NULL, NULL, NULL), -1);
    assert_int_equal(line, 2);
    a = audit_open("test", other);
    assert_null(a); /* and nothing is put behind it */
    free(text);
}

/* Lines that are gone at the beginning: the rest is whole, and says with which number it begins and
   what that one follows. */
static void test_s131_a_beginning_is_logged(void **state)
{
    char first[AUDIT_HASH_TEXT_BYTES], head[AUDIT_HASH_TEXT_BYTES], why[160];
    size_t bytes;
    uint64_t line, begins;
    char *text, *third;
    audit *a;
    (void)state;
    fresh();
    a = audit_open("test", file);
    assert_int_equal(audit_check(file, &line, why, &begins, first, NULL), 0);
    assert_int_equal(begins, 0);
    write_some(a, 0, 2);
    audit_head(a, head);
    write_some(a, 2, 3);
    audit_close(a);
    assert_int_equal(audit_check(file, &line, why, &begins, first, NULL), 5);
    assert_int_equal(begins, 1); /* the control */
    text = read_all(file, &bytes);
    third = strchr(strchr(text, '\n') + 1, '\n') + 1;
    write_all(other, third, bytes - (size_t)(third - text));
    assert_int_equal(audit_check(other, &line, why, &begins, first, NULL), 3);
    assert_int_equal(begins, 3);
    assert_string_equal(first, head);
    free(text);
}

/* Two programs that append to one file would break its chain. */
static void test_s134_one_program_at_a_time(void **state)
{
    audit *a, *b;
    (void)state;
    fresh();
    a = audit_open("test", file);
    assert_non_null(a);
    write_some(a, 0, 1);
    assert_null(audit_open("test", file));
    write_some(a, 1, 1);
    assert_int_equal(lines_of(file), 2);
    assert_int_equal(rename(file, other), 0); /* moved away, it is still whose it was */
    assert_null(audit_open("test", other));
    b = audit_open("test", file);
    assert_non_null(b);
    assert_false(audit_reopen(a));
    write_some(a, 2, 1); /* where it was */
    assert_int_equal(lines_of(other), 3);
    audit_close(b);
    assert_true(audit_reopen(a));
    b = audit_open("test", other); /* the control: whoever closes it gives it back */
    assert_non_null(b);
    audit_close(a);
    audit_close(b);
}

static void test_s132_a_torn_end_is_taken_away(void **state)
{
    size_t bytes;
    char *text;
    audit *a;
    (void)state;
    write_log(3);
    text = read_all(file, &bytes);
    for (size_t cut = 1; cut < 40; cut += 6) {
        write_all(other, text, bytes - cut);
        assert_int_equal(lines_of(other), -1);
        a = audit_open("test", other);
        assert_non_null(a);
        write_some(a, 9, 1);
        audit_close(a);
        assert_int_equal(lines_of(other), 3);
    }
    free(text);
}

static void test_s132_a_full_disk_loses_lines_and_says_so(void **state)
{
    struct rlimit old, little = { 0, 0 };
    struct stat is;
    size_t bytes;
    char *text;
    audit *a;
    (void)state;
    fresh();
    a = audit_open("test", file);
    write_some(a, 0, 2);
    assert_int_equal(stat(file, &is), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    little.rlim_cur = (rlim_t)is.st_size + 20; /* room for a part of a line */
    little.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    write_some(a, 2, 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(audit_lost(a), 3);
    assert_int_equal(lines_of(file), 2); /* nothing half written */
    write_some(a, 5, 1);
    audit_close(a);
    assert_int_equal(lines_of(file), 4);
    text = read_all(file, &bytes);
    assert_non_null(strstr(text, "\"what\":\"audit.lost\",\"lines\":3"));
    free(text);
}

/* What is written behind the lines of an open log, over the last one, or cut off, is not built
   upon: the lines are counted, and when it was moved away the log goes on in a new file. */
static void test_s132_nothing_is_appended_behind_what_differs(void **state)
{
    char first[AUDIT_HASH_TEXT_BYTES], head[AUDIT_HASH_TEXT_BYTES], why[160];
    uint64_t line, begins;
    (void)state;
    for (int how = 0; how < 4; how++) {
        size_t bytes, now;
        char *text, *after;
        audit *a;
        fresh();
        a = audit_open("test", file);
        write_some(a, 0, 3);
        audit_head(a, head);
        text = read_all(file, &bytes);
        if (how == 1)
            text[bytes - 5] ^= 1; /* of the last line, which stays as long */
        else if (how == 2)
            memcpy(text + bytes, "x\n", 2);
        write_all(file, text, how == 2 ? bytes + 2 : how == 3 ? bytes - 1 : bytes);
        write_some(a, 3, 2);
        after = read_all(file, &now);
        assert_int_equal(audit_lost(a), how ? 2 : 0); /* how 0 is the control: the same bytes */
        assert_int_equal(audit_lines(a), how ? 3 : 5);
        assert_int_equal(strstr(after, "\"n\":4,") == NULL, how != 0);
        assert_int_equal(rename(file, other), 0);
        assert_true(audit_reopen(a));
        write_some(a, 5, 1);
        audit_close(a);
        assert_int_equal(audit_check(file, &line, why, &begins, first, NULL), how ? 2 : 1);
        assert_int_equal(begins, how ? 4 : 6);
        assert_int_equal(strcmp(first, head) == 0, how != 0);
        free(text);
        free(after);
    }
}

static void test_s133_a_new_file_follows_the_old_one(void **state)
{
    char head[AUDIT_HASH_TEXT_BYTES], first[AUDIT_HASH_TEXT_BYTES];
    char why[160];
    uint64_t line, begins;
    audit *a;
    (void)state;
    fresh();
    a = audit_open("test", file);
    write_some(a, 0, 2);
    assert_true(audit_reopen(a)); /* not moved: the same file */
    write_some(a, 2, 1);
    audit_head(a, head);
    assert_int_equal(rename(file, other), 0);
    assert_true(audit_reopen(a));
    write_some(a, 3, 2);
    assert_int_equal(lines_of(other), 3);
    assert_int_equal(audit_check(file, &line, why, &begins, first, NULL), 2);
    assert_int_equal(begins, 4);
    assert_string_equal(first, head);
    assert_int_equal(rename(file, other), 0);
    write_all(file, "what\n", 5);
    assert_false(audit_reopen(a)); /* somebody else's */
    write_some(a, 5, 1);
    assert_int_equal(lines_of(other), 3);
    audit_close(a);
}

static void test_s130_what_is_not_a_file_is_refused(void **state)
{
    (void)state;
    fresh();
    assert_null(audit_open("test", folder));
    assert_null(audit_open("test", "/dev/null"));
    assert_int_equal(symlink("/tmp/nowhere", file), 0);
    assert_null(audit_open("test", file));
    fresh();
    write_all(file, "hello\n", 6);
    assert_null(audit_open("test", file));
}

/* Nor does one hold the program up until somebody reads from it. */
static void test_s130_a_pipe_is_refused(void **state)
{
    audit *a;
    (void)state;
    fresh();
    assert_int_equal(mkfifo(file, 0600), 0);
    alarm(20); /* else this would wait for ever */
    assert_null(audit_open("test", file));
    fresh();
    a = audit_open("test", file);
    assert_non_null(a);
    write_some(a, 0, 1);
    assert_int_equal(rename(file, other), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_false(audit_reopen(a));
    alarm(0);
    write_some(a, 1, 1); /* the control: where it was */
    audit_close(a);
    assert_int_equal(lines_of(other), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s130_lines_follow_each_other),
        cmocka_unit_test(test_s130_any_text_is_kept),
        cmocka_unit_test(test_s130_what_is_not_a_file_is_refused),
        cmocka_unit_test(test_s130_a_pipe_is_refused),
        cmocka_unit_test(test_s131_what_was_changed_is_seen),
        cmocka_unit_test(test_s131_what_is_missing_is_seen),
        cmocka_unit_test(test_s131_a_beginning_is_logged),
        cmocka_unit_test(test_s132_a_torn_end_is_taken_away),
        cmocka_unit_test(test_s132_a_full_disk_loses_lines_and_says_so),
        cmocka_unit_test(test_s132_nothing_is_appended_behind_what_differs),
        cmocka_unit_test(test_s133_a_new_file_follows_the_old_one),
        cmocka_unit_test(test_s134_one_program_at_a_time),
    };
    int failed;
    if (!mkdtemp(folder))
        return 2;
    snprintf(file, sizeof file, "%s/log", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    fresh();
    rmdir(folder);
    return failed;
}
