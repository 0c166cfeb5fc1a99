/* unit_parent.c - what the parent of keepers and worker takes from a keeper that was taken over
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "parent_internal.h"

#include "bridge.h"
#include "crossing.h"
#include "direct.h"
#include "dxpu_libevent.h"
#include "log.h"

/* What these tests do not come to. */
int keeper_run(const keeper_settings *settings, int socket)
{
    (void)settings;
    (void)socket;
    return 1;
}

static unsigned sent;

int keeper_tell(int socket, char kind, const int *fds, unsigned count)
{
    ssize_t n = send(socket, &kind, 1, MSG_NOSIGNAL);
    (void)fds;
    (void)count;
    sent += n == 1;
    return n == 1 ? 0 : -1;
}

/* The messages of the keeper, in the order in which they come. */
static struct {
    int kind, fd;
    unsigned fds;
} said[64];
static unsigned heard, to_say;

int keeper_hear(int socket, int *fds, unsigned *count)
{
    (void)socket;
    if (heard == to_say)
        return 0;
    *count = said[heard].fds;
    fds[0] = said[heard].fd;
    return said[heard++].kind;
}

static const guest_settings guest_set = { .socket = "vm", .form = &bridge_form };
static const keeper_settings keeper_set = { &guest_set, 1000, 0 };
static const parent_settings set = { &keeper_set, 1, NULL };
static parent the;

/* A process that waits until it is killed. */
static pid_t sleeper(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(60); /* in any case */
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

static bool was_killed(pid_t pid)
{
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status);
}

static int setup(void **state)
{
    (void)state;
    memset(&the, 0, sizeof the);
    the.set = &set;
    the.signals = the.worker.socket = -1;
    the.keeper[0].c.socket = the.keeper[0].plugger.socket = -1;
    memset(the.keeper[0].held, 0xff, sizeof the.keeper[0].held);
    heard = to_say = sent = 0;
    (void)alarm(30);
    return 0;
}

static void say(int kind, int fd, unsigned fds)
{
    said[to_say].kind = kind;
    said[to_say].fd = fd;
    said[to_say++].fds = fds;
}

/* S-180: the parent goes on, and the keeper's end is what it is for one that was killed. */
static void test_s180_keeper_that_reads_nothing(void **state)
{
    int end = -1;
    unsigned n = 0;
    (void)state;
    if (parent_start(&the, &the.keeper[0].c, "dxpu-test", &end) == 0) {
        (void)alarm(60); /* in any case */
        for (;;)
            pause();
    }
    assert_true(the.keeper[0].c.pid > 0);
    while (n++ < 100000 && sent + 1 >= n)
        parent_tell_keeper(&the.keeper[0].c, KEEPER_LOST, NULL, 0);
    assert_in_range(sent, 16, 99999);
    assert_true(was_killed(the.keeper[0].c.pid));
    parent_close(&the.keeper[0].c.socket);
}

/* S-184: forks of the parent have a copy of its memory. */
static void test_s184_workers_alone_have_the_key(void **state)
{
    static const uint8_t zero[CROSSING_KEY_BYTES];
    parent_child *const children[] = { &the.worker, &the.keeper[0].c, &the.keeper[0].plugger };
    (void)state;
    for (unsigned i = 0; i < sizeof children / sizeof children[0]; i++) {
        int end = -1, status = 0;
        setup(state);
        memset(the.key, 0x5a, sizeof the.key);
        if (parent_start(&the, children[i], "dxpu-test", &end) == 0)
            _exit(memcmp(the.key, zero, sizeof zero) ? 2 : 3);
        assert_true(waitpid(children[i]->pid, &status, 0) > 0 && WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), i ? 3 : 2);
        parent_close(&children[i]->socket);
    }
    assert_int_equal(the.key[0], 0x5a);
}

static void test_s180_connections_are_held(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    the.keeper[0].c.pid = sleeper();
    say(KEEPER_CLIENT, pair[0], 1);
    parent_on_keeper(&the, 0);
    assert_int_equal(the.keeper[0].held[0], pair[0]);
    say(KEEPER_CLIENT, -1, 0);
    parent_on_keeper(&the, 0);
    assert_int_equal(the.keeper[0].held[0], -1);
    assert_int_equal(kill(the.keeper[0].c.pid, 0), 0);
    (void)kill(the.keeper[0].c.pid, SIGKILL);
    assert_true(was_killed(the.keeper[0].c.pid));
    close(pair[1]);
}

/* Anything else that it gives is neither held nor closed here, where that may take for ever. */
static void test_s180_what_is_not_a_connection(void **state)
{
    int pair[2], files[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(pipe(files), 0);
    const int wrong[][3] = { { KEEPER_CLIENT, files[0], 1 },
                             { KEEPER_CLIENT, pair[0], 1 },
                             { KEEPER_CLIENT_LAST, files[0], 1 },
                             { KEEPER_KILL, files[0], 1 },
                             { KEEPER_OPEN, files[0], 1 } };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setup(state);
        the.keeper[0].c.pid = sleeper();
        say(wrong[i][0], wrong[i][1], (unsigned)wrong[i][2]);
        parent_on_keeper(&the, 0);
        assert_int_equal(the.keeper[0].held[0], -1);
        assert_true(was_killed(the.keeper[0].c.pid));
        assert_true(wrong[i][1] < 0 || fcntl(wrong[i][1], F_GETFD) >= 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        close(pair[i]);
        close(files[i]);
    }
}

static void test_s180_one_keeper_is_not_all(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 64; i++)
        say(KEEPER_CLIENT, -1, 0);
    parent_on_keeper(&the, 0);
    assert_int_equal(heard, PARENT_MESSAGES); /* the rest has its turn when the others had theirs */
}

/* Each ends at once, until one has served. */
static void test_v48_pauses_of_the_process_that_speaks_qmp(void **state)
{
    static const unsigned seconds[] = { 1, 2, 4, 8, 8 };
    parent_keeper *k = &the.keeper[0];
    (void)state;
    k->c.pid = 1;
    for (unsigned i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        uint64_t now = dxpu_udp_now_ns();
        k->plugged_ns = now;
        parent_on_plugger_end(&the, 0, 256);
        assert_true(k->plug_ns >= now + seconds[i] * 1000000000ull);
        assert_true(k->plug_ns <= dxpu_udp_now_ns() + seconds[i] * 1000000000ull);
    }
    k->plugged_ns = dxpu_udp_now_ns() - PARENT_LASTED_NS;
    parent_on_plugger_end(&the, 0, 256);
    assert_true(k->plug_ns <= dxpu_udp_now_ns() + PARENT_PAUSE_MIN_NS);
    k->c.pid = 0; /* of this machine's keeper */
    k->plug_ns = 0;
    parent_on_plugger_end(&the, 0, 256);
    assert_true(k->plug_ns == 0);
}

/* V-33: as many connections as all guests together may have. */
static void test_v33_descriptors_for_all_connections(void **state)
{
    static keeper_settings many[PARENT_GUESTS_MAX];
    const guest_settings each = { .socket = "vm", .slots = 28, .form = &direct_form };
    const parent_settings all = { many, PARENT_GUESTS_MAX, NULL };
    struct rlimit before, r;
    (void)state;
    for (unsigned i = 0; i < PARENT_GUESTS_MAX; i++)
        many[i].guest = &each;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    r = before;
    r.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    parent_raise_limit(&set);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    assert_in_range(r.rlim_cur, PARENT_DESCRIPTORS, 1023);
    parent_raise_limit(&all);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    assert_true(r.rlim_cur > PARENT_GUESTS_MAX * 28 || r.rlim_cur == r.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        CASE(test_s180_keeper_that_reads_nothing),
        CASE(test_s180_connections_are_held),
        CASE(test_s180_what_is_not_a_connection),
        CASE(test_s180_one_keeper_is_not_all),
        CASE(test_v33_descriptors_for_all_connections),
        CASE(test_s184_workers_alone_have_the_key),
        CASE(test_v48_pauses_of_the_process_that_speaks_qmp),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
