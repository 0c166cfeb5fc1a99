/* Datagrams that leave as segments of one message, and messages that bring several datagrams. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sendmmsg, SO_NO_CHECK */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <cmocka.h>

#include <sys/socket.h>

/* Calls of one socket that find its buffer full, once it has taken the given number of messages. */
static struct {
    int fd;
    unsigned takes, refuses, asked;
} full;

static int buffer_sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
    if (full.refuses && fd == full.fd) {
        full.asked++;
        if (!full.takes) {
            full.refuses--;
            errno = EAGAIN;
            return -1;
        }
        count = count < full.takes ? count : full.takes;
        full.takes -= count;
    }
    return sendmmsg(fd, msgs, count, flags);
}

static ssize_t buffer_sendmsg(int fd, const struct msghdr *h, int flags)
{
    if (full.refuses && fd == full.fd && !full.takes--) {
        full.takes = 0;
        full.refuses--;
        errno = EAGAIN;
        return -1;
    }
    return sendmsg(fd, h, flags);
}

static unsigned yields;

static int counted_yield(void)
{
    yields++;
    return 0;
}

#define sendmmsg    buffer_sendmmsg
#define sendmsg     buffer_sendmsg
#define sched_yield counted_yield
#include "dxpu_libevent.c" /* not linked: reaches segments_from() and receive() */
#undef sendmmsg
#undef sendmsg
#undef sched_yield

typedef struct port {
    dxpu_udp *udp;
    dxpu_udp_path self;
    unsigned got, want;
    size_t len[64];
    uint8_t first[64]; /* byte of each */
} port;

static void on_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags)
{
    port *p = user;
    (void)flags;
    assert_true(p->got < 64);
    assert_true(dxpu_udp_same(&from->remote, &p->self.remote));
    for (size_t i = 1; i < len; i++)
        assert_int_equal(buf[i], buf[0]);
    p->first[p->got] = buf[0];
    p->len[p->got++] = len;
}

static uint64_t next_ns(void *user)
{
    (void)user;
    return DXPU_NEVER;
}

static void run(void *user, uint64_t now)
{
    port *p = user;
    (void)now;
    if (p->got >= p->want)
        dxpu_udp_stop(p->udp);
}

static void receive_until(port *p, unsigned want)
{
    dxpu_udp_callbacks cb = { p, on_datagram, next_ns, run };
    p->want = want;
    assert_int_equal(dxpu_udp_loop(p->udp, &cb), DXPU_OK);
    assert_int_equal(p->got, want);
}

static void open_port(port *p)
{
    dxpu_udp_config cfg;
    const char *why;
    memset(p, 0, sizeof *p);
    dxpu_udp_config_default(&cfg);
    cfg.sockets = 2;
    cfg.batch = 64;
    assert_null(dxpu_udp_parse("127.0.0.1:0", &cfg.local[0]));
    cfg.local[1] = cfg.local[0];
    p->udp = dxpu_udp_open(&cfg, &why);
    assert_non_null(p->udp);
    p->self.socket = 0;
    p->self.remote = *dxpu_udp_local(p->udp, 0);
    if (!p->udp->sockets[0].segments) {
        dxpu_udp_close(p->udp);
        skip();
    }
}

static void put(port *p, const dxpu_udp_path *to, size_t len)
{
    memset(dxpu_udp_room(p->udp), (int)p->udp->tx_used, len);
    dxpu_udp_commit(p->udp, to, len);
}

static void expect(const port *p, const size_t *len, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(p->len[i], len[i]);
        assert_int_equal(p->first[i], i);
    }
}

static void test_equal_datagrams_are_one_message(void **state)
{
    static const size_t len[] = { 1000, 1000, 1000, 1000, 300, 1000, 1200 };
    enum { N = sizeof len / sizeof len[0] };
    port p;
    (void)state;
    open_port(&p);
    for (unsigned i = 0; i < N; i++)
        put(&p, &p.self, len[i]);
    assert_int_equal(segments_from(p.udp, 0), 5); /* a shorter one ends it */
    assert_int_equal(segments_from(p.udp, 4), 1);
    assert_int_equal(segments_from(p.udp, 5), 1); /* a longer one is not a segment */
    assert_int_equal(segments_from(p.udp, 6), 1);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, N);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_bytes, 6500);
    receive_until(&p, N);
    expect(&p, len, N);
    assert_int_equal(dxpu_udp_count(p.udp)->rx_datagrams, N);
    assert_int_equal(dxpu_udp_count(p.udp)->rx_bytes, 6500);
    assert_true(p.udp->sockets[0].segments);
    dxpu_udp_close(p.udp);
}

/* What dxpu_channel_emit_many() writes, behind a datagram and before one. */
static void test_side_by_side(void **state)
{
    static const size_t len[] = { 100, 700, 700, 700, 200, 50 };
    enum { N = sizeof len / sizeof len[0] };
    port p;
    unsigned datagrams = 0;
    uint8_t *room;
    (void)state;
    open_port(&p);
    put(&p, &p.self, len[0]);
    room = dxpu_udp_room_many(p.udp, &datagrams);
    assert_int_equal(datagrams, 63);
    for (unsigned i = 1; i < 5; i++)
        memset(room + (i - 1) * len[1], (int)i, len[i]);
    dxpu_udp_commit_many(p.udp, &p.self, 3 * len[1] + len[4], len[1]);
    put(&p, &p.self, len[5]);
    assert_int_equal(segments_from(p.udp, 0), 1);
    assert_int_equal(segments_from(p.udp, 1), 4);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, N);
    receive_until(&p, N);
    expect(&p, len, N);
    for (unsigned i = 0; i < 63; i++) /* the places are as before */
        put(&p, &p.self, 1);
    (void)dxpu_udp_room_many(p.udp, &datagrams);
    assert_int_equal(datagrams, 1);
    put(&p, &p.self, 1);
    (void)dxpu_udp_room_many(p.udp, &datagrams); /* a full batch is sent first */
    assert_int_equal(datagrams, 64);
    dxpu_udp_close(p.udp);
}

static void test_what_ends_a_message(void **state)
{
    port p;
    dxpu_udp_path other;
    (void)state;
    open_port(&p);
    other = p.self;
    other.remote = *dxpu_udp_local(p.udp, 1);
    put(&p, &p.self, 100);
    put(&p, &other, 100); /* to another place */
    other.socket = 1;
    put(&p, &other, 100); /* by another socket */
    assert_int_equal(segments_from(p.udp, 0), 1);
    assert_int_equal(segments_from(p.udp, 1), 1);
    p.udp->tx_used = 0;
    for (unsigned i = 0; i < 64; i++)
        put(&p, &p.self, 1500);
    assert_int_equal(segments_from(p.udp, 0), SEGMENTS_BYTES / 1500);
    p.udp->tx_used = 0;
    put(&p, &p.self, 0); /* nothing is not a segment */
    put(&p, &p.self, 0);
    assert_int_equal(segments_from(p.udp, 0), 1);
    p.udp->tx_used = 0;
    memset(p.udp->tx_for, 0, sizeof p.udp->tx_for);
    dxpu_udp_close(p.udp);
}

/* A socket without checksums may not have the kernel cut messages: all arrives nevertheless. */
static void test_refused_segments_go_singly(void **state)
{
    static const size_t len[] = { 500, 500, 500, 20 };
    enum { N = sizeof len / sizeof len[0] };
    int yes = 1;
    port p;
    (void)state;
    open_port(&p);
    assert_int_equal(setsockopt(p.udp->sockets[0].fd, SOL_SOCKET, SO_NO_CHECK, &yes, sizeof yes),
                     0);
    for (unsigned i = 0; i < N; i++)
        put(&p, &p.self, len[i]);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, N);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_errors, 0);
    receive_until(&p, N);
    expect(&p, len, N);
    assert_false(p.udp->sockets[0].segments); /* it is not tried again ... */
    assert_true(p.udp->sockets[1].segments);  /* ... there */
    dxpu_udp_close(p.udp);
}

/* A message that cannot leave at all is counted for each of its datagrams, and says nothing about
   segments: port 0 is nowhere. */
static void test_refused_datagrams_are_counted(void **state)
{
    port p;
    dxpu_udp_path nowhere;
    (void)state;
    open_port(&p);
    nowhere = p.self;
    nowhere.remote.u.v4.sin_port = 0;
    for (unsigned i = 0; i < 3; i++)
        put(&p, &nowhere, 100);
    put(&p, &p.self, 100); /* the control: what follows leaves */
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_errors, 3);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 1);
    assert_true(p.udp->sockets[0].segments);
    receive_until(&p, 1);
    dxpu_udp_close(p.udp);
}

static void buffer_is_full(const port *p, unsigned takes, unsigned refuses)
{
    full.fd = p->udp->sockets[0].fd;
    full.takes = takes;
    full.refuses = refuses;
    full.asked = 0;
}

/* A full buffer takes none of a message: all of it and what follows waits, in order.  No more is
   asked for, and the other socket sends. */
static void test_what_a_full_buffer_refuses_waits(void **state)
{
    static const size_t len[] = { 500, 500, 100, 300, 300, 300, 50 };
    enum { N = sizeof len / sizeof len[0] };
    unsigned datagrams = 1;
    port p;
    dxpu_udp_path other;
    (void)state;
    open_port(&p);
    other = p.self;
    other.socket = 1;
    for (unsigned i = 0; i < N; i++)
        put(&p, &p.self, len[i]);
    buffer_is_full(&p, 1, 2); /* the first three are a message */
    dxpu_udp_flush(p.udp);
    assert_int_equal(full.asked, 2);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 3);
    assert_null(dxpu_udp_room_many(p.udp, &datagrams));
    assert_int_equal(datagrams, 0);
    put(&p, &other, 10);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 4);
    put(&p, &p.self, 10);
    dxpu_udp_flush(p.udp); /* the buffer is empty again */
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, N + 2);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_bytes, 500 + 500 + 100 + 3 * 300 + 50 + 20);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 0);
    assert_non_null(dxpu_udp_room_many(p.udp, &datagrams));
    assert_int_equal(datagrams, 64);
    dxpu_udp_close(p.udp);
}

/* The datagrams arrive once each and in order; run() is called again without an event. */
static void test_the_loop_tries_again(void **state)
{
    static const size_t len[] = { 500, 500, 100, 300 };
    port p;
    (void)state;
    open_port(&p);
    for (unsigned i = 0; i < 4; i++)
        put(&p, &p.self, len[i]);
    buffer_is_full(&p, 1, 3);
    receive_until(&p, 4);
    expect(&p, len, 4);
    assert_int_equal(full.refuses, 0); /* control: it was refused */
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 0);
    dxpu_udp_close(p.udp);
}

/* A message that goes singly, and is refused in its midst, goes on there. */
static void test_a_message_continues_where_it_was_refused(void **state)
{
    static const size_t len[] = { 500, 500, 500, 20 };
    int yes = 1;
    port p;
    (void)state;
    open_port(&p);
    assert_int_equal(setsockopt(p.udp->sockets[0].fd, SOL_SOCKET, SO_NO_CHECK, &yes, sizeof yes),
                     0);
    for (unsigned i = 0; i < 4; i++)
        put(&p, &p.self, len[i]);
    buffer_is_full(&p, 3, 1); /* one is for the message as such */
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 2);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 4);
    receive_until(&p, 4);
    expect(&p, len, 4);
    dxpu_udp_close(p.udp);
}

/* A socket that takes nothing for long holds up no others: what waits for it is dropped, and what
   follows at once, until it takes some. */
static void test_a_stalled_socket_drops(void **state)
{
    port p;
    (void)state;
    open_port(&p);
    put(&p, &p.self, 100);
    put(&p, &p.self, 100);
    buffer_is_full(&p, 0, 3);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 0);
    p.udp->sockets[0].refused_ns -= KEEP_NS; /* as if then */
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 2);
    put(&p, &p.self, 100);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 3);
    put(&p, &p.self, 100); /* it takes one: from now on they wait again */
    dxpu_udp_flush(p.udp);
    put(&p, &p.self, 100);
    buffer_is_full(&p, 0, 1);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 3);
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 2);
    receive_until(&p, 2);
    dxpu_udp_close(p.udp);
}

/* room() has always some: single ones go beside those that wait, then instead of them. */
static void test_room_beside_what_waits(void **state)
{
    port p;
    (void)state;
    open_port(&p);
    buffer_is_full(&p, 0, 1000);
    for (unsigned i = 0; i < 64 + SPARE; i++)
        put(&p, &p.self, 100 + i);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 0);
    put(&p, &p.self, 7);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_full, 64 + SPARE);
    full.refuses = 0;
    dxpu_udp_flush(p.udp);
    assert_int_equal(dxpu_udp_count(p.udp)->tx_datagrams, 1);
    receive_until(&p, 1);
    assert_int_equal(p.len[0], 7);
    dxpu_udp_close(p.udp);
}

/* One datagram at a time is asked for until one does come: each look costs less. */
static void test_looks_grow_with_what_comes(void **state)
{
    port p;
    dxpu_udp_callbacks cb = { &p, on_datagram, next_ns, run };
    (void)state;
    open_port(&p);
    for (unsigned i = 0; i < 8; i++) /* of growing size: a message each */
        put(&p, &p.self, 10 + i);
    dxpu_udp_flush(p.udp);
    for (unsigned want = 1; want <= 4; want *= 2) {
        assert_int_equal(p.udp->sockets[0].look, want);
        assert_int_equal(receive(p.udp, 0, &cb), want);
    }
    assert_int_equal(receive(p.udp, 0, &cb), 1); /* the eighth; there are no more */
    assert_int_equal(p.udp->sockets[0].look, 1);
    assert_int_equal(receive(p.udp, 0, &cb), 0);
    dxpu_udp_close(p.udp);
}

static void stop_later(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    dxpu_udp_stop(user);
}

static uint64_t at_once(void *user)
{
    (void)user;
    return 0;
}

/* How often a loop lets other threads have its processor in 2 ms without a datagram. */
static unsigned yields_of(unsigned wait, uint64_t (*next)(void *user))
{
    static const struct timeval end = { 0, 2000 };
    dxpu_udp_config cfg;
    const char *why;
    dxpu_udp *u;
    port p;
    dxpu_udp_callbacks cb = { &p, on_datagram, next, run };
    struct event *timer;
    dxpu_udp_config_default(&cfg);
    cfg.sockets = 1;
    cfg.wait = wait;
    cfg.spin_ns = 1000000000;
    assert_null(dxpu_udp_parse("127.0.0.1:0", &cfg.local[0]));
    u = dxpu_udp_open(&cfg, &why);
    assert_non_null(u);
    memset(&p, 0, sizeof p);
    p.udp = u;
    p.want = 1; /* none comes */
    timer = evtimer_new(dxpu_udp_base(u), stop_later, u);
    assert_non_null(timer);
    assert_int_equal(event_add(timer, &end), 0);
    yields = 0;
    assert_int_equal(dxpu_udp_loop(u, &cb), DXPU_OK);
    event_free(timer);
    dxpu_udp_close(u);
    return yields;
}

/* Where cores are few, the thread that is to send the next datagram may need this one's. */
static void test_who_looks_again_yields(void **state)
{
    (void)state;
    assert_true(yields_of(DXPU_UDP_ADAPTIVE, next_ns) > 0);
    assert_int_equal(yields_of(DXPU_UDP_ADAPTIVE, at_once),
                     0);                                    /* it works, and waits for nothing */
    assert_int_equal(yields_of(DXPU_UDP_BUSY, next_ns), 0); /* it has a core to itself */
    assert_int_equal(yields_of(DXPU_UDP_BLOCK, next_ns), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_datagrams_are_one_message),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_what_ends_a_message),
        cmocka_unit_test(test_refused_segments_go_singly),
        cmocka_unit_test(test_refused_datagrams_are_counted),
        cmocka_unit_test(test_what_a_full_buffer_refuses_waits),
        cmocka_unit_test(test_the_loop_tries_again),
        cmocka_unit_test(test_a_message_continues_where_it_was_refused),
        cmocka_unit_test(test_a_stalled_socket_drops),
        cmocka_unit_test(test_room_beside_what_waits),
        cmocka_unit_test(test_looks_grow_with_what_comes),
        cmocka_unit_test(test_who_looks_again_yields),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
