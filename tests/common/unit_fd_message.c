/* unit_fd_message.c - descriptors between processes: all that were sent, no more than asked for
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fd_message.h"
#include "descriptors.h"

static int pair[2];

static int set_up(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int tear_down(void **state)
{
    (void)state;
    return close(pair[0]) + close(pair[1]);
}

static ino_t file_of(int fd)
{
    struct stat s;
    assert_int_equal(fstat(fd, &s), 0);
    return s.st_ino;
}

static void test_a_message_arrives_with_its_descriptors(void **state)
{
    int sent[FD_MESSAGE_MAX], got[FD_MESSAGE_MAX];
    (void)state;
    for (unsigned n = 0; n <= FD_MESSAGE_MAX; n++) {
        int before = open_fds(), ends[2];
        unsigned char word = 0;
        unsigned count = FD_MESSAGE_MAX;
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(pipe(ends), 0);
            close(ends[1]);
            sent[i] = ends[0];
        }
        assert_int_equal(fd_message_send(pair[0], (unsigned char)(200 + n), sent, n), 0);
        assert_int_equal(fd_message_receive(pair[1], &word, got, &count), 1);
        assert_int_equal(word, 200 + n);
        assert_int_equal(count, n);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(file_of(got[i]), file_of(sent[i]));
            assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
            close(got[i]);
            close(sent[i]);
        }
        assert_int_equal(open_fds(), before);
    }
}

/* What the caller has no room for is open in neither process. */
static void test_excess_descriptors_are_closed(void **state)
{
    const int sent[FD_MESSAGE_MAX] = { 0 };
    (void)state;
    for (unsigned room = 0; room < FD_MESSAGE_MAX; room++) {
        int got[FD_MESSAGE_MAX], before = open_fds();
        unsigned char word = 0;
        unsigned count = room;
        assert_int_equal(fd_message_send(pair[0], 7, sent, FD_MESSAGE_MAX), 0);
        assert_int_equal(fd_message_receive(pair[1], &word, got, &count), 1);
        assert_int_equal(word, 7);
        assert_int_equal(count, room);
        assert_int_equal(open_fds(), before + (int)room);
        while (count)
            close(got[--count]);
    }
}

static void test_errors(void **state)
{
    const int sent[FD_MESSAGE_MAX + 1] = { 0 };
    int got = -1;
    unsigned char word = 0;
    unsigned count = 1;
    (void)state;
    assert_int_equal(fd_message_receive(pair[1], &word, &got, &count), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(count, 0);
    assert_int_equal(fd_message_send(pair[0], 1, sent, FD_MESSAGE_MAX + 1), -1);
    assert_int_equal(errno, EINVAL);
    close(pair[0]);
    assert_int_equal(fd_message_send(pair[1], 1, sent, 1), -1);
    assert_int_equal(errno, EPIPE);
    count = 1;
    assert_int_equal(fd_message_receive(pair[1], &word, &got, &count), 0);
    assert_int_equal(count, 0);
    pair[0] = dup(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_message_arrives_with_its_descriptors, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_excess_descriptors_are_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors, set_up, tear_down),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
