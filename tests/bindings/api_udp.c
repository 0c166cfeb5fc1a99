/* api_udp.c - the UDP fabric on loopback: batches, both IP versions, waiting modes, counters
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "dxpu_libevent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

enum { COUNT = 200, GUARD_SECONDS = 20 };

/* One object that sends to itself. */
typedef struct echo {
    dxpu_udp *udp;
    dxpu_udp_path path[2];
    unsigned to_send, sent, got, want, runs;
    unsigned flags; /* of the last datagram */
    unsigned socket;
    size_t len;
    uint64_t due_ns, ran_ns;
    bool in_order, from_self, guarded;
} echo;

static void on_guard(evutil_socket_t fd, short what, void *user)
{
    echo *e = user;
    (void)fd;
    (void)what;
    e->guarded = true;
    dxpu_udp_stop(e->udp);
}

static void on_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags)
{
    echo *e = user;
    uint32_t number = 0;
    if (len >= sizeof number) {
        memcpy(&number, buf, sizeof number);
        e->in_order &= number == e->got;
    }
    e->from_self &= dxpu_udp_same(&from->remote, dxpu_udp_local(e->udp, from->socket));
    e->socket = from->socket;
    e->flags = flags;
    e->len = len;
    if (++e->got == e->want)
        dxpu_udp_stop(e->udp);
}

static uint64_t next_ns(void *user)
{
    echo *e = user;
    return e->sent < e->to_send ? 0 : e->due_ns;
}

static void run(void *user, uint64_t now)
{
    echo *e = user;
    e->runs++;
    for (unsigned i = 0; i < 50 && e->sent < e->to_send; i++, e->sent++) {
        uint32_t number = e->sent;
        memcpy(dxpu_udp_room(e->udp), &number, sizeof number);
        dxpu_udp_commit(e->udp, &e->path[0], sizeof number + e->sent);
    }
    if (now >= e->due_ns) {
        e->ran_ns = now;
        dxpu_udp_stop(e->udp);
    }
}

/* False when this machine has no such address family. */
static bool open_echo(echo *e, const char *where, dxpu_udp_config *cfg)
{
    const char *why;
    memset(e, 0, sizeof *e);
    e->due_ns = DXPU_NEVER;
    e->in_order = e->from_self = true;
    assert_null(dxpu_udp_parse(where, &cfg->local[0]));
    cfg->sockets = 1;
    e->udp = dxpu_udp_open(cfg, &why);
    if (!e->udp && where[0] == '[')
        return false;
    assert_non_null(e->udp);
    e->path[0].remote = *dxpu_udp_local(e->udp, 0);
    return true;
}

static void loop(echo *e)
{
    dxpu_udp_callbacks cb = { e, on_datagram, next_ns, run };
    struct event *guard = evtimer_new(dxpu_udp_base(e->udp), on_guard, e);
    struct timeval limit = { GUARD_SECONDS, 0 };
    assert_non_null(guard);
    evtimer_add(guard, &limit);
    assert_int_equal(dxpu_udp_loop(e->udp, &cb), DXPU_OK);
    event_free(guard);
    assert_false(e->guarded);
}

static void test_parse(void **state)
{
    static const struct {
        const char *text, *print;
    } good[] = { { "127.0.0.1:80", "127.0.0.1:80" },
                 { "[::1]:4000", "[::1]:4000" },
                 { "127.0.0.1", "127.0.0.1:4458" },
                 { "[fe80::1]", "[fe80::1]:4458" },
                 { ":7", "0.0.0.0:7" },
                 { "*:65535", "0.0.0.0:65535" },
                 { "127.0.0.1:0", "127.0.0.1:0" } };
    static const char *const bad[] = { "",           "::1",       "[::1",          "[::1]x:1",
                                       "1.2.3.4:",   "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:-1",
                                       "1.2.3.4:1 ", "not a host" };
    dxpu_udp_address a, b;
    char text[DXPU_UDP_TEXT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_null(dxpu_udp_parse(good[i].text, &a));
        assert_string_equal(dxpu_udp_print(&a, text), good[i].print);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_non_null(dxpu_udp_parse(bad[i], &a));
    assert_null(dxpu_udp_parse("127.0.0.1:1", &a));
    assert_null(dxpu_udp_parse("127.0.0.1:2", &b));
    assert_true(dxpu_udp_same(&a, &a));
    assert_false(dxpu_udp_same(&a, &b));
    assert_null(dxpu_udp_parse("[::1]:1", &b));
    assert_true(dxpu_udp_same(&b, &b));
    assert_false(dxpu_udp_same(&a, &b));
}

static void test_parse_list(void **state)
{
    static const char *const bad[] = { "",
                                       ",",
                                       "1.2.3.4:1,",
                                       ",1.2.3.4:1",
                                       "1.2.3.4:1,,[::1]:2",
                                       "1.2.3.4:1, 1.2.3.4:2",
                                       "1.2.3.4:1,[::1" };
    dxpu_udp_address a[3];
    char text[DXPU_UDP_TEXT_BYTES];
    unsigned n = 9;
    (void)state;
    assert_null(dxpu_udp_parse_list("127.0.0.1:80", a, 3, &n));
    assert_int_equal(n, 1);
    assert_null(dxpu_udp_parse_list("10.0.0.1,[::1]:80,:7", a, 3, &n));
    assert_int_equal(n, 3);
    assert_string_equal(dxpu_udp_print(&a[0], text), "10.0.0.1:4458");
    assert_string_equal(dxpu_udp_print(&a[1], text), "[::1]:80");
    assert_string_equal(dxpu_udp_print(&a[2], text), "0.0.0.0:7");
    assert_non_null(strstr(dxpu_udp_parse_list("10.0.0.1,[::1]:80,:7", a, 2, &n), "too many"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_non_null(dxpu_udp_parse_list(bad[i], a, 3, &n));
}

static void deliver(const char *where, unsigned wait)
{
    dxpu_udp_config cfg;
    echo e;
    dxpu_udp_config_default(&cfg);
    cfg.wait = wait;
    if (!open_echo(&e, where, &cfg))
        skip();
    e.to_send = e.want = COUNT;
    loop(&e);
    assert_int_equal(e.got, COUNT);
    assert_true(e.in_order);
    assert_true(e.from_self);
    assert_int_equal(e.len, sizeof(uint32_t) + COUNT - 1);
    assert_int_equal(dxpu_udp_count(e.udp)->rx_datagrams, COUNT);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_datagrams, COUNT);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_bytes, dxpu_udp_count(e.udp)->rx_bytes);
    /* 50 a turn in batches of 32: 32 and 18 */
    assert_int_equal(dxpu_udp_count(e.udp)->tx_batches, 2 * COUNT / 50);
    assert_true(dxpu_udp_count(e.udp)->rx_batches < COUNT / 4);
    dxpu_udp_close(e.udp);
}

static void test_v4_adaptive(void **state)
{
    (void)state;
    deliver("127.0.0.1:0", DXPU_UDP_ADAPTIVE);
}

static void test_v4_block(void **state)
{
    (void)state;
    deliver("127.0.0.1:0", DXPU_UDP_BLOCK);
}

static void test_v4_busy(void **state)
{
    (void)state;
    deliver("127.0.0.1:0", DXPU_UDP_BUSY);
}

static void test_v6_adaptive(void **state)
{
    (void)state;
    deliver("[::1]:0", DXPU_UDP_ADAPTIVE);
}

static void test_v6_block(void **state)
{
    (void)state;
    deliver("[::1]:0", DXPU_UDP_BLOCK);
}

static void test_timers_in_all_modes(void **state)
{
    (void)state;
    for (unsigned wait = DXPU_UDP_ADAPTIVE; wait <= DXPU_UDP_BUSY; wait++) {
        dxpu_udp_config cfg;
        echo e;
        dxpu_udp_config_default(&cfg);
        cfg.wait = wait;
        open_echo(&e, "127.0.0.1:0", &cfg);
        e.due_ns = dxpu_udp_now_ns() + 50 * 1000 * 1000;
        loop(&e);
        assert_true(e.ran_ns >= e.due_ns); /* never early */
        if (wait == DXPU_UDP_BUSY)
            assert_int_equal(dxpu_udp_count(e.udp)->waits, 0);
        else
            assert_true(dxpu_udp_count(e.udp)->waits > 0);
        dxpu_udp_close(e.udp);
    }
}

/* Who blocks wakes late: so a timer that is nearer than spin_ns is waited for by looking. */
static void test_near_timers(void **state)
{
    enum { SPIN_NS = 40 * 1000 * 1000 };
    (void)state;
    for (unsigned far = 0; far < 2; far++) { /* the control: it blocks before one that is not */
        dxpu_udp_config cfg;
        echo e;
        dxpu_udp_config_default(&cfg);
        cfg.spin_ns = SPIN_NS;
        open_echo(&e, "127.0.0.1:0", &cfg);
        e.due_ns = dxpu_udp_now_ns() + (far ? 5 : 2) * (uint64_t)SPIN_NS - SPIN_NS / 10;
        loop(&e);
        assert_true(e.ran_ns >= e.due_ns);
        if (far)
            assert_true(dxpu_udp_count(e.udp)->waits > 0);
        else
            assert_int_equal(dxpu_udp_count(e.udp)->waits, 0);
        dxpu_udp_close(e.udp);
    }
}

/* The process does not run after it has sent, until a timer is overdue. */
static uint64_t sleep_over_it(void *user)
{
    static const struct timespec pause = { 0, 5 * 1000 * 1000 };
    echo *e = user;
    if (e->sent && e->due_ns == DXPU_NEVER) {
        e->due_ns = dxpu_udp_now_ns() + 1000 * 1000;
        (void)nanosleep(&pause, NULL);
    }
    return next_ns(e);
}

/* What came meanwhile is read before the timer is due: it may be what the timer waits for. */
static void test_what_waits_comes_before_a_late_timer(void **state)
{
    enum { WAITING = 40 };
    (void)state;
    for (unsigned wait = DXPU_UDP_ADAPTIVE; wait <= DXPU_UDP_BUSY; wait++) {
        dxpu_udp_callbacks cb = { NULL, on_datagram, sleep_over_it, run };
        dxpu_udp_config cfg;
        echo e;
        dxpu_udp_config_default(&cfg);
        cfg.wait = wait;
        open_echo(&e, "127.0.0.1:0", &cfg);
        cb.user = &e;
        e.to_send = WAITING;
        assert_int_equal(dxpu_udp_loop(e.udp, &cb), DXPU_OK); /* until the timer is due */
        assert_true(e.ran_ns >= e.due_ns);
        assert_int_equal(e.got, WAITING);
        dxpu_udp_close(e.udp);
    }
}

static void on_other(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    dxpu_udp_stop(user);
}

static void test_other_events_live(void **state)
{
    (void)state;
    for (unsigned wait = DXPU_UDP_ADAPTIVE; wait <= DXPU_UDP_BUSY; wait++) {
        struct timeval soon = { 0, 2000 };
        struct event *other;
        dxpu_udp_config cfg;
        echo e;
        dxpu_udp_config_default(&cfg);
        cfg.wait = wait;
        open_echo(&e, "127.0.0.1:0", &cfg);
        other = evtimer_new(dxpu_udp_base(e.udp), on_other, e.udp);
        evtimer_add(other, &soon);
        loop(&e);
        event_free(other);
        dxpu_udp_close(e.udp);
    }
}

/* A datagram from outside with these Explicit Congestion Notification bits. */
static void send_marked(const dxpu_udp_address *to, int ecn, size_t len)
{
    static const uint8_t zeros[4096];
    int family = to->u.any.sa_family, fd = socket(family, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    if (family == AF_INET6)
        assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &ecn, sizeof ecn), 0);
    else
        assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_TOS, &ecn, sizeof ecn), 0);
    assert_int_equal(sendto(fd, zeros, len, 0, &to->u.any, to->len), (ssize_t)len);
    close(fd);
}

static void ecn(const char *where)
{
    dxpu_udp_config cfg;
    echo e;
    dxpu_udp_config_default(&cfg);
    if (!open_echo(&e, where, &cfg))
        skip();
    for (int mark = 0; mark < 4; mark++) {
        send_marked(&e.path[0].remote, mark, 10);
        e.want = e.got + 1;
        loop(&e);
        assert_int_equal(e.flags, mark == 3 ? DXPU_RX_ECN_CE : 0);
    }
    dxpu_udp_close(e.udp);
}

static void test_ecn_v4(void **state)
{
    (void)state;
    ecn("127.0.0.1:0");
}

static void test_ecn_v6(void **state)
{
    (void)state;
    ecn("[::1]:0");
}

/* The Explicit Congestion Notification bits of the next datagram that a plain socket gets. */
static int mark_of(int fd)
{
    uint8_t bytes[100], control[100];
    struct iovec iov = { bytes, sizeof bytes };
    struct msghdr h;
    int tos = -1;
    memset(&h, 0, sizeof h);
    h.msg_iov = &iov;
    h.msg_iovlen = 1;
    h.msg_control = control;
    h.msg_controllen = sizeof control;
    assert_true(recvmsg(fd, &h, 0) > 0);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
            tos = *CMSG_DATA(c);
        else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
            memcpy(&tos, CMSG_DATA(c), sizeof tos);
    }
    return tos;
}

static void ecn_sent(const char *where)
{
    struct timeval limit = { GUARD_SECONDS, 0 };
    for (int capable = 0; capable < 2; capable++) { /* without it: the control */
        dxpu_udp_config cfg;
        dxpu_udp_path to;
        echo e;
        int fd, on = 1;
        dxpu_udp_config_default(&cfg);
        cfg.ecn_capable = capable;
        if (!open_echo(&e, where, &cfg))
            skip();
        to.socket = 0;
        assert_null(dxpu_udp_parse(where, &to.remote));
        fd = socket(to.remote.u.any.sa_family, SOCK_DGRAM, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, &to.remote.u.any, to.remote.len), 0);
        assert_int_equal(getsockname(fd, &to.remote.u.any, &to.remote.len), 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
        if (to.remote.u.any.sa_family == AF_INET6)
            assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on), 0);
        else
            assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on), 0);
        memset(dxpu_udp_room(e.udp), 0, 10);
        dxpu_udp_commit(e.udp, &to, 10);
        dxpu_udp_flush(e.udp);
        assert_int_equal(mark_of(fd), capable ? 2 : 0); /* ECT(0): RFC 3168, 5 */
        close(fd);
        dxpu_udp_close(e.udp);
    }
}

static void test_ecn_sent_v4(void **state)
{
    (void)state;
    ecn_sent("127.0.0.1:0");
}

static void test_ecn_sent_v6(void **state)
{
    (void)state;
    ecn_sent("[::1]:0");
}

static void test_too_long_is_counted(void **state)
{
    dxpu_udp_config cfg;
    echo e;
    (void)state;
    dxpu_udp_config_default(&cfg);
    cfg.datagram_bytes = 1000;
    open_echo(&e, "127.0.0.1:0", &cfg);
    send_marked(&e.path[0].remote, 0, 1001);
    send_marked(&e.path[0].remote, 0, 1000); /* the control: one byte less is delivered */
    e.want = 1;
    loop(&e);
    assert_int_equal(e.len, 1000);
    assert_int_equal(dxpu_udp_count(e.udp)->rx_too_long, 1);
    assert_int_equal(dxpu_udp_count(e.udp)->rx_datagrams, 2);
    dxpu_udp_close(e.udp);
}

static void test_refused_sends_are_counted(void **state)
{
    dxpu_udp_config cfg;
    echo e;
    (void)state;
    dxpu_udp_config_default(&cfg);
    cfg.datagram_bytes = 65535;
    open_echo(&e, "127.0.0.1:0", &cfg);
    memset(dxpu_udp_room(e.udp), 0, 65535);
    dxpu_udp_commit(e.udp, &e.path[0], 65535); /* more than UDP over IPv4 carries */
    memset(dxpu_udp_room(e.udp), 0, 65507);
    dxpu_udp_commit(e.udp, &e.path[0], 65507); /* the control: the next of the batch leaves */
    dxpu_udp_flush(e.udp);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_too_long, 1);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_datagrams, 1);
    e.want = 1;
    loop(&e);
    assert_int_equal(e.len, 65507);
    dxpu_udp_close(e.udp);
}

static void test_loss_shows(void **state)
{
    dxpu_udp_config cfg;
    echo e;
    (void)state;
    dxpu_udp_config_default(&cfg);
    cfg.buffer_bytes = 1; /* the kernel's smallest: it drops what does not fit */
    open_echo(&e, "127.0.0.1:0", &cfg);
    for (unsigned i = 0; i < 1000; i++) {
        memset(dxpu_udp_room(e.udp), 0, 1000);
        dxpu_udp_commit(e.udp, &e.path[0], 1000);
    }
    dxpu_udp_flush(e.udp);
    e.due_ns = dxpu_udp_now_ns(); /* one turn takes a batch, what is there */
    loop(&e);
    assert_in_range(e.got, 1, 500);
    assert_int_equal(dxpu_udp_count(e.udp)->rx_datagrams, e.got);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_datagrams + dxpu_udp_count(e.udp)->tx_full, 1000);
    dxpu_udp_close(e.udp);
}

static void test_two_sockets_are_two_paths(void **state)
{
    dxpu_udp_config cfg;
    const char *why;
    echo e;
    (void)state;
    memset(&e, 0, sizeof e);
    e.due_ns = DXPU_NEVER;
    e.from_self = true;
    dxpu_udp_config_default(&cfg);
    cfg.sockets = 2;
    assert_null(dxpu_udp_parse("127.0.0.1:0", &cfg.local[0]));
    assert_null(dxpu_udp_parse("127.0.0.2:0", &cfg.local[1]));
    e.udp = dxpu_udp_open(&cfg, &why);
    assert_non_null(e.udp);
    for (unsigned i = 0; i < 2; i++) {
        e.path[i].socket = i;
        e.path[i].remote = *dxpu_udp_local(e.udp, i);
    }
    for (unsigned i = 0; i < 4; i++) { /* in turn: a batch for each socket */
        memset(dxpu_udp_room(e.udp), (int)i, 100);
        dxpu_udp_commit(e.udp, &e.path[i % 2], 100);
    }
    dxpu_udp_flush(e.udp);
    e.want = 4;
    loop(&e);
    assert_true(e.from_self);
    assert_int_equal(e.socket, 1);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_batches, 2);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_bytes, 400);
    memset(dxpu_udp_room(e.udp), 0, 10); /* what is left from before goes nowhere again */
    dxpu_udp_commit(e.udp, &e.path[1], 10);
    dxpu_udp_flush(e.udp);
    e.want = 5;
    loop(&e);
    assert_int_equal(e.len, 10);
    assert_int_equal(dxpu_udp_count(e.udp)->tx_datagrams, 5);
    dxpu_udp_close(e.udp);
}

static void test_open_says_why(void **state)
{
    dxpu_udp_config cfg;
    const char *why = NULL;
    echo e;
    (void)state;
    dxpu_udp_config_default(&cfg);
    assert_null(dxpu_udp_open(&cfg, &why)); /* no socket at all */
    assert_non_null(why);
    open_echo(&e, "127.0.0.1:0", &cfg);
    cfg.local[0] = *dxpu_udp_local(e.udp, 0);
    assert_null(dxpu_udp_open(&cfg, &why));
    assert_non_null(strstr(why, "in use"));
    cfg.batch = 0;
    assert_null(dxpu_udp_open(&cfg, &why));
    dxpu_udp_close(e.udp);
    dxpu_udp_close(NULL);
}

static void test_counters_have_names(void **state)
{
    dxpu_udp_config cfg;
    unsigned n = 0;
    echo e;
    (void)state;
    dxpu_udp_config_default(&cfg);
    open_echo(&e, "127.0.0.1:0", &cfg);
    e.to_send = e.want = 1;
    loop(&e);
    while (dxpu_udp_counter_name(n))
        n++;
    assert_int_equal(n, sizeof(dxpu_udp_counters) / sizeof(uint64_t));
    assert_string_equal(dxpu_udp_counter_name(0), "rx_datagrams");
    assert_int_equal(dxpu_udp_counter_value(e.udp, 0), 1);
    assert_int_equal(dxpu_udp_counter_value(e.udp, n), 0);
    dxpu_udp_close(e.udp);
}

/* ---- A bypass: no room for the first of four datagrams, takes every second one ---- */

typedef struct detour {
    uint8_t room[64];
    uint32_t taken[8];
    unsigned rooms, takes, flushes, pending;
} detour;

static uint8_t *detour_room(void *self)
{
    detour *d = self;
    return d->rooms++ % 4 ? d->room : NULL;
}

static bool detour_commit(void *self, const dxpu_udp_path *to, size_t len)
{
    detour *d = self;
    uint32_t number;
    (void)to;
    memcpy(&number, d->room, sizeof number);
    if (number % 2 == 0)
        return false;
    assert_int_equal(len, sizeof number + number);
    d->taken[d->takes++] = number;
    d->pending++;
    return true;
}

static void detour_flush(void *self)
{
    detour *d = self;
    d->flushes += d->pending > 0;
}

/* What was taken comes back. */
static unsigned detour_receive(void *self, const dxpu_udp_callbacks *cb)
{
    detour *d = self;
    dxpu_udp_path from;
    uint32_t number;
    if (!d->pending || !d->flushes)
        return 0;
    memset(&from, 0, sizeof from);
    number = d->taken[d->takes - d->pending--];
    cb->on_datagram(cb->user, (uint8_t *)&number, sizeof number, &from, DXPU_RX_ECN_CE);
    return 1;
}

static void on_either(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                      unsigned flags)
{
    echo *e = user;
    uint32_t number;
    (void)from;
    assert_true(len >= sizeof number);
    memcpy(&number, buf, sizeof number);
    assert_true(number < 8);
    assert_int_equal(flags, number % 2 ? DXPU_RX_ECN_CE : 0); /* by the bypass */
    e->flags |= 1u << number;
    if (++e->got == e->want)
        dxpu_udp_stop(e->udp);
}

static void test_bypass(void **state)
{
    dxpu_udp_config cfg;
    detour d;
    dxpu_udp_bypass b;
    echo e;
    (void)state;
    for (unsigned wait = DXPU_UDP_ADAPTIVE; wait <= DXPU_UDP_BUSY; wait++) {
        dxpu_udp_callbacks cb = { &e, on_either, next_ns, run };
        memset(&d, 0, sizeof d);
        memset(&b, 0, sizeof b);
        dxpu_udp_config_default(&cfg);
        cfg.wait = wait;
        assert_true(open_echo(&e, "127.0.0.1:0", &cfg));
        b.self = &d;
        b.datagram_bytes = cfg.datagram_bytes + 1; /* more than is promised to a sender */
        b.room = detour_room;
        b.commit = detour_commit;
        b.flush = detour_flush;
        b.receive = detour_receive;
        b.fds = 1;
        assert_true((b.fd[0] = eventfd(1, EFD_CLOEXEC)) >= 0); /* always readable */
        assert_int_equal(dxpu_udp_use(e.udp, &b), -1);
        b.datagram_bytes = sizeof d.room;
        assert_int_equal(dxpu_udp_use(e.udp, &b), DXPU_OK);
        assert_int_equal(dxpu_udp_use(e.udp, &b), -1); /* once */
        e.to_send = e.want = 8;
        assert_int_equal(dxpu_udp_loop(e.udp, &cb), DXPU_OK);
        assert_int_equal(e.flags, 0xff);
        assert_int_equal(d.takes, 4);
        assert_true(d.flushes > 0);
        assert_int_equal(dxpu_udp_count(e.udp)->tx_datagrams, 4);
        for (unsigned i = 0; i < 4; i++) { /* the bypass has room for one, or none */
            unsigned datagrams = 0;
            uint8_t *room = dxpu_udp_room_many(e.udp, &datagrams);
            assert_int_equal(datagrams, room == d.room ? 1 : cfg.batch);
        }
        dxpu_udp_close(e.udp);
        close(b.fd[0]);
    }
}

/* ---- A bypass whose driver is full for some time, while nothing else happens ---- */

static bool is_full(const void *self)
{
    return ((const detour *)self)->flushes < 4;
}

static void count_flush(void *self)
{
    ((detour *)self)->flushes++;
}

static unsigned nothing_comes(void *self, const dxpu_udp_callbacks *cb)
{
    (void)self;
    (void)cb;
    return 0;
}

static uint64_t never(void *user)
{
    (void)user;
    return DXPU_NEVER;
}

static void until_it_flowed(void *user, uint64_t now)
{
    echo *e = user;
    (void)now;
    if (e->got++ >= 3)
        dxpu_udp_stop(e->udp);
}

static void too_late(evutil_socket_t fd, short what, void *user)
{
    echo *e = user;
    (void)fd;
    (void)what;
    e->flags = 1;
    dxpu_udp_stop(e->udp);
}

static void test_bypass_that_waits(void **state)
{
    static const struct timeval half_a_second = { 0, 500000 };
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        dxpu_udp_callbacks cb = { NULL, on_either, never, until_it_flowed };
        dxpu_udp_config cfg;
        dxpu_udp_bypass b;
        detour d;
        echo e;
        struct event *timer;
        memset(&d, 0, sizeof d);
        memset(&b, 0, sizeof b);
        dxpu_udp_config_default(&cfg);
        cfg.wait = DXPU_UDP_BLOCK;
        assert_true(open_echo(&e, "127.0.0.1:0", &cfg));
        cb.user = &e;
        b.self = &d;
        b.datagram_bytes = sizeof d.room;
        b.room = detour_room;
        b.commit = detour_commit;
        b.flush = count_flush;
        b.receive = nothing_comes;
        b.waits = waits ? is_full : NULL; /* the control */
        assert_int_equal(dxpu_udp_use(e.udp, &b), DXPU_OK);
        timer = evtimer_new(dxpu_udp_base(e.udp), too_late, &e);
        assert_int_equal(evtimer_add(timer, &half_a_second), 0);
        assert_int_equal(dxpu_udp_loop(e.udp, &cb), DXPU_OK);
        assert_int_equal(e.flags, !waits); /* else it slept until something else came */
        event_free(timer);
        dxpu_udp_close(e.udp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_list),
        cmocka_unit_test(test_v4_adaptive),
        cmocka_unit_test(test_v4_block),
        cmocka_unit_test(test_v4_busy),
        cmocka_unit_test(test_v6_adaptive),
        cmocka_unit_test(test_v6_block),
        cmocka_unit_test(test_timers_in_all_modes),
        cmocka_unit_test(test_near_timers),
        cmocka_unit_test(test_what_waits_comes_before_a_late_timer),
        cmocka_unit_test(test_other_events_live),
        cmocka_unit_test(test_ecn_v4),
        cmocka_unit_test(test_ecn_v6),
        cmocka_unit_test(test_ecn_sent_v4),
        cmocka_unit_test(test_ecn_sent_v6),
        cmocka_unit_test(test_too_long_is_counted),
        cmocka_unit_test(test_refused_sends_are_counted),
        cmocka_unit_test(test_loss_shows),
        cmocka_unit_test(test_two_sockets_are_two_paths),
        cmocka_unit_test(test_open_says_why),
        cmocka_unit_test(test_counters_have_names),
        cmocka_unit_test(test_bypass),
        cmocka_unit_test(test_bypass_that_waits),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
