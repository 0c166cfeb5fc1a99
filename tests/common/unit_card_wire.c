/* examples/common/fabric/card_wire.c: the order of what arrives at several ports, whom it is heard
   from, and room. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

/* Lets a stranger send ahead of connect(). */
static int late_connect(int fd, const struct sockaddr *to, socklen_t length);
#define connect late_connect
#include "card_wire.c" /* not linked: replaces connect() */
#undef connect
#include "loopback.h"

static char addresses[3][LOOPBACK_BYTES];
#define HERE  addresses[0]
#define CARD  addresses[1]
#define OTHER addresses[2]

enum { MOST = 200 };

static struct {
    uint8_t type[MOST];
    uint16_t requester[MOST];
    unsigned count, room; /* room: how many more it takes */
} got;

static void on_tlp(void *user, const dxpu_tlp *t)
{
    (void)user;
    assert_true(got.count < MOST);
    got.type[got.count] = t->type;
    got.requester[got.count++] = t->requester;
    got.room -= got.room > 0;
}

static bool on_room(void *user)
{
    (void)user;
    return got.room > 0;
}

/* The software's end. */
static card_wire *open_wire(unsigned room)
{
    const card_wire_settings s = { false, false, false, CARD, HERE, 4 };
    const card_wire_callbacks cb = { NULL, on_tlp, on_room, NULL, NULL };
    card_wire *w = card_wire_open(&s, &cb);
    assert_non_null(w);
    memset(&got, 0, sizeof got);
    got.room = room;
    return w;
}

/* One TLP from `address`, by the port of the adapter for its tag. */
static void send_from(const char *address, uint8_t type, uint16_t tag, uint16_t requester)
{
    static const uint8_t data[4] = { 'd', 'x', 'p', 'u' };
    uint8_t out[64];
    struct sockaddr_in a;
    dxpu_tlp t;
    size_t len = 0;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.tag = tag;
    t.requester = requester;
    t.address = 0x1000;
    t.byte_count = 4;
    if (type == DXPU_TLP_MWR || type == DXPU_TLP_CPLD) {
        t.payload.ptr = data;
        t.payload.len = sizeof data;
    }
    dxpu_nettlp_head(out, 0, 0);
    assert_int_equal(dxpu_tlp_encode(&t, out + DXPU_NETTLP_HEAD_BYTES, 32, &len), DXPU_OK);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons(
        (uint16_t)((type == DXPU_TLP_CPLD ? DXPU_NETTLP_SOFTWARE_PORT : DXPU_NETTLP_ADAPTER_PORT) +
                   tag));
    assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(inet_pton(AF_INET, HERE, &a.sin_addr), 1);
    len += DXPU_NETTLP_HEAD_BYTES;
    assert_int_equal(sendto(fd, out, len, 0, (struct sockaddr *)&a, sizeof a), len);
    (void)close(fd);
}

static bool stranger_sends;

static int late_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    struct sockaddr_in here;
    socklen_t bytes = sizeof here;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&here, &bytes), 0);
    if (stranger_sends && ntohs(here.sin_port) == DXPU_NETTLP_ADAPTER_PORT)
        send_from(OTHER, DXPU_TLP_MWR, 0, 1);
    return connect(fd, to, length);
}

/* The port of the first read is looked at first, and has a read behind the write. */
static void test_n1_no_read_passes_a_write(void **state)
{
    card_wire *w = open_wire(16);
    (void)state;
    send_from(CARD, DXPU_TLP_MRD, 1, 1);
    send_from(CARD, DXPU_TLP_MWR, 0, 2);
    send_from(CARD, DXPU_TLP_MRD, 1, 3);
    send_from(CARD, DXPU_TLP_MRD, 2, 4);
    card_wire_work(w);
    assert_int_equal(got.count, 4);
    assert_int_equal(got.requester[0], 2);
    assert_int_equal(got.requester[1], 1);
    assert_int_equal(got.requester[2], 3);
    assert_int_equal(got.requester[3], 4);
    card_wire_close(w);
}

/* It may say that the data are there. */
static void test_n1_no_completion_passes_a_write(void **state)
{
    card_wire *w = open_wire(2);
    (void)state;
    send_from(CARD, DXPU_TLP_CPLD, 0, 4); /* so this port is looked at first */
    for (unsigned i = 0; i < 4; i++)
        send_from(CARD, DXPU_TLP_MWR, (uint16_t)(i % 2), (uint16_t)i);
    send_from(CARD, DXPU_TLP_CPLD, 0, 5);
    for (unsigned n = 2; n <= 4; n += 2) { /* nor while they wait for room */
        card_wire_work(w);
        card_wire_work(w);
        assert_int_equal(got.count, n);
        got.room = 2;
    }
    card_wire_work(w);
    assert_int_equal(got.count, 6);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(got.type[i], DXPU_TLP_MWR);
    assert_int_equal(got.requester[4], 4);
    assert_int_equal(got.requester[5], 5);
    card_wire_close(w);
}

/* Also where reads are more than are passed on in one pass. */
static void test_n1_many_reads_pass_no_writes(void **state)
{
    card_wire *w = open_wire(MOST);
    (void)state;
    send_from(CARD, DXPU_TLP_MRD, 1, 0); /* so this port is looked at first */
    for (unsigned i = 0; i < 40; i++)
        send_from(CARD, DXPU_TLP_MWR, 0, (uint16_t)i);
    for (unsigned i = 1; i < 140; i++)
        send_from(CARD, DXPU_TLP_MRD, 1, (uint16_t)i);
    for (unsigned i = 0; i < 8; i++)
        card_wire_work(w);
    assert_int_equal(got.count, 180);
    for (unsigned i = 0; i < got.count; i++)
        assert_int_equal(got.type[i], i < 40 ? DXPU_TLP_MWR : DXPU_TLP_MRD);
    card_wire_close(w);
}

static void test_n10_others_are_not_received(void **state)
{
    card_wire *w = open_wire(16);
    (void)state;
    send_from(OTHER, DXPU_TLP_MWR, 0, 1);
    card_wire_work(w);
    assert_int_equal(got.count, 0);
    send_from(CARD, DXPU_TLP_MWR, 0, 2);
    card_wire_work(w);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.requester[0], 2);
    card_wire_close(w);
}

/* What there is no room for waits, reads that were taken already, too. */
static void test_n21_room(void **state)
{
    card_wire *w = open_wire(1);
    (void)state;
    send_from(CARD, DXPU_TLP_MRD, 1, 1);
    send_from(CARD, DXPU_TLP_MRD, 2, 2);
    send_from(CARD, DXPU_TLP_MWR, 0, 3);
    for (unsigned n = 1; n <= 3; n++) {
        card_wire_work(w);
        card_wire_work(w);
        assert_int_equal(got.count, n);
        assert_true(card_wire_is_paused(w) || n == 3);
        got.room = 1;
    }
    card_wire_work(w);
    assert_false(card_wire_is_paused(w));
    card_wire_close(w);
}

/* More reads than are kept: each is passed on once, in order, and only where there is room. */
static void test_n21_many_reads(void **state)
{
    card_wire *w = open_wire(1);
    (void)state;
    for (unsigned i = 0; i < 150; i++)
        send_from(CARD, DXPU_TLP_MRD, 1, (uint16_t)i);
    for (unsigned n = 1; n <= 150; n++) {
        for (unsigned i = 0; i < 4; i++)
            card_wire_work(w);
        assert_int_equal(got.count, n);
        assert_int_equal(got.requester[n - 1], n - 1);
        got.room = 1;
    }
    card_wire_close(w);
}

static void test_n16_what_arrived_is_dropped(void **state)
{
    card_wire *w = open_wire(1);
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        send_from(CARD, DXPU_TLP_MWR, (uint16_t)(i % 2), (uint16_t)i);
    send_from(CARD, DXPU_TLP_MRD, 2, 20);
    send_from(CARD, DXPU_TLP_CPLD, 0, 21);
    card_wire_work(w);
    assert_int_equal(got.count, 1);
    assert_true(card_wire_is_paused(w));
    card_wire_forget(w);
    got.room = MOST;
    card_wire_work(w);
    assert_int_equal(got.count, 1);
    send_from(CARD, DXPU_TLP_MWR, 0, 22); /* control */
    card_wire_work(w);
    assert_int_equal(got.count, 2);
    assert_int_equal(got.requester[1], 22);
    card_wire_close(w);
}

/* More than one call drops: the rest is dropped when it is met, and never passed on. */
static void test_s161_n16_much_that_arrived_is_dropped_in_turns(void **state)
{
    enum { EACH = 140, SOCKETS = 5 };
    card_wire *w = open_wire(MOST);
    (void)state;
    for (unsigned i = 0; i < EACH * SOCKETS; i++)
        send_from(CARD, DXPU_TLP_MWR, (uint16_t)(i % SOCKETS), (uint16_t)i);
    card_wire_forget(w);
    assert_int_equal(w->count_of.datagrams_forgotten, TURN);
    card_wire_forget(w); /* a guest that resets its function repeatedly */
    assert_int_equal(w->count_of.datagrams_forgotten, EACH * SOCKETS);
    for (unsigned i = 0; i < EACH * SOCKETS; i++)
        send_from(CARD, DXPU_TLP_MWR, (uint16_t)(i % SOCKETS), (uint16_t)i);
    card_wire_forget(w);
    for (unsigned i = 0; i < 8; i++)
        card_wire_work(w);
    assert_int_equal(got.count, 0);
    assert_int_equal(w->count_of.datagrams_forgotten, 2 * EACH * SOCKETS);
    for (unsigned i = 0; i < SOCKETS; i++) /* control */
        send_from(CARD, DXPU_TLP_MWR, (uint16_t)i, (uint16_t)i);
    card_wire_work(w);
    assert_int_equal(got.count, SOCKETS);
    card_wire_close(w);
}

/* Whether a socket was emptied, was not looked at, or was empty: what comes later is taken. */
static void test_n16_what_arrives_later_is_taken(void **state)
{
    card_wire *w = open_wire(MOST);
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        for (unsigned i = 0; i < TURN; i++)
            send_from(CARD, DXPU_TLP_MWR, (uint16_t)(i % (2 * n)), (uint16_t)i);
        card_wire_forget(w);
        assert_int_equal(w->count_of.datagrams_forgotten, n * TURN);
        for (unsigned i = 0; i < 5; i++)
            send_from(CARD, DXPU_TLP_MWR, (uint16_t)i, (uint16_t)i);
        card_wire_work(w);
        assert_int_equal(got.count, n * 5);
    }
    card_wire_close(w);
}

/* A socket has its port before it has its peer. */
static void test_n10_nor_those_of_before(void **state)
{
    card_wire *w;
    (void)state;
    stranger_sends = true;
    w = open_wire(16);
    stranger_sends = false;
    card_wire_work(w);
    assert_int_equal(got.count, 0);
    send_from(CARD, DXPU_TLP_MWR, 0, 2);
    card_wire_work(w);
    assert_int_equal(got.count, 1);
    card_wire_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_n1_no_read_passes_a_write),
        cmocka_unit_test(test_n1_no_completion_passes_a_write),
        cmocka_unit_test(test_n1_many_reads_pass_no_writes),
        cmocka_unit_test(test_n10_others_are_not_received),
        cmocka_unit_test(test_n21_room),
        cmocka_unit_test(test_n21_many_reads),
        cmocka_unit_test(test_n16_what_arrived_is_dropped),
        cmocka_unit_test(test_s161_n16_much_that_arrived_is_dropped_in_turns),
        cmocka_unit_test(test_n16_what_arrives_later_is_taken),
        cmocka_unit_test(test_n10_nor_those_of_before),
    };
    loopback_claim(addresses, 3);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests_name("unit_card_wire", tests, NULL, NULL);
}
