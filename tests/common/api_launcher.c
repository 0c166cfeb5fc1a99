/* api_launcher.c - what a launcher starts: its descriptors, and its end
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher.h"

enum { HANG_MS = 20000, MEMORY = 4096, QUIET_MS = 50 };

static bool readable(int fd, int ms)
{
    struct pollfd p = { fd, POLLIN, 0 };
    return poll(&p, 1, ms) == 1;
}

/* The socket of what was started. */
static int ask(int launcher)
{
    int socket = -1, memory = -1;
    assert_int_equal(launcher_take(launcher, &socket, &memory), 1);
    assert_int_equal(launcher_ask(launcher), 0);
    assert_true(readable(launcher, HANG_MS));
    assert_int_equal(launcher_take(launcher, &socket, &memory), 0);
    assert_int_equal(lseek(memory, 0, SEEK_END), MEMORY);
    (void)close(memory);
    return socket;
}

static void expect_end(int socket)
{
    char any;
    assert_true(readable(socket, HANG_MS));
    assert_int_equal(recv(socket, &any, 1, MSG_DONTWAIT), 0);
}

/* It has nothing of what started it: no terminal, no log. */
static void test_s245_descriptors(void **state)
{
    static const char script[] =
        "for i in 0 1 2 3 4; do x=$(readlink /proc/$$/fd/$i); echo $x >&3; done;"
        "for i in 5 6 7 8 9; do x=none; [ -e /proc/$$/fd/$i ] && x=open; echo $x >&3; done";
    static const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    int launcher = launcher_start(argv, MEMORY), socket;
    char text[200];
    (void)state;
    assert_true(launcher > 0);
    socket = ask(launcher);
    for (unsigned i = 0; i < 10; i++) {
        ssize_t n;
        assert_true(readable(socket, HANG_MS));
        n = recv(socket, text, sizeof text - 1, 0);
        assert_true(n > 1);
        text[n - 1] = '\0';
        if (i < 3)
            assert_string_equal(text, "/dev/null");
        else if (i == LAUNCHER_SOCKET)
            assert_memory_equal(text, "socket:", 7);
        else if (i == LAUNCHER_MEMORY)
            assert_memory_equal(text, "/memfd:", 7);
        else
            assert_string_equal(text, "none");
    }
    (void)close(socket);
    (void)close(launcher);
}

/* By a message, by another one, and with the asker. */
static void test_ends(void **state)
{
    static const char *const argv[] = { "/bin/sleep", "1000", NULL };
    int launcher = launcher_start(argv, MEMORY), first, second, third;
    (void)state;
    assert_true(launcher > 0);
    launcher_end(launcher); /* there is none */
    first = ask(launcher);
    assert_false(readable(first, QUIET_MS));
    launcher_end(launcher);
    expect_end(first);
    launcher_end(launcher);
    second = ask(launcher);
    assert_false(readable(second, QUIET_MS));
    third = ask(launcher);
    expect_end(second);
    assert_false(readable(third, QUIET_MS));
    assert_false(launcher_gone(launcher));
    (void)close(launcher);
    expect_end(third);
    (void)close(first);
    (void)close(second);
    (void)close(third);
}

/* The other end of the socket pair plays that process. */
static void test_answers(void **state)
{
    const unsigned char again = EAGAIN;
    int pair[2], socket = -1, memory = -1;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(launcher_take(pair[0], &socket, &memory), 1);
    assert_int_equal(send(pair[1], &again, 1, 0), 1);
    assert_int_equal(launcher_take(pair[0], &socket, &memory), -1);
    assert_int_equal(errno, EAGAIN);
    assert_false(launcher_gone(pair[0]));
    assert_int_equal(launcher_ask(pair[0]), 0);
    (void)close(pair[1]); /* with a message that it has not read */
    assert_true(launcher_gone(pair[0]));
    assert_int_equal(launcher_take(pair[0], &socket, &memory), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(launcher_ask(pair[0]), -1);
    assert_int_equal(socket, -1);
    (void)close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s245_descriptors),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_answers),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
