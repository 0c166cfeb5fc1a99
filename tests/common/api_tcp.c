/* TCP streams of bindings/libevent: addresses, time-outs, bounds, and which end is reported how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dxpu_tcp.h"
#include "secure_stream.h"

#include <errno.h>
#include <unistd.h>

/* What happened to one end. */
typedef struct end {
    unsigned opened, closed;
    const char *why;
    dxpu_tcp_conn *conn;
    uint8_t got[200000];
    size_t len;
    bool echo, refuse, touch, flood, finish;
} end;

static end server, client;
static struct event_base *base;
static dxpu_tcp_settings set;
static dxpu_tcp_listener *listener;

static void *on_opened(void *user, dxpu_tcp_conn *c)
{
    end *e = user;
    e->opened++;
    e->conn = c;
    if (e->touch)
        dxpu_tcp_touch(c);
    return e->refuse ? NULL : e;
}

static void on_bytes(void *context, dxpu_tcp_conn *c, dxpu_bytes in)
{
    end *e = context;
    assert_true(in.len <= sizeof e->got - e->len);
    memcpy(e->got + e->len, in.ptr, in.len);
    e->len += in.len;
    if (e->echo)
        assert_true(dxpu_tcp_send(c, in.ptr, in.len));
    for (unsigned i = 0; e->flood && i < 100000; i++) {
        unsigned before = e->closed;
        if (!dxpu_tcp_send(c, e->got, 1000))
            assert_false(dxpu_tcp_send(c, e->got, 1)); /* over, but c may still be asked */
        assert_int_equal(e->closed, before);           /* not while this runs */
    }
    if (e->finish)
        dxpu_tcp_finish(c);
}

static void on_closed(void *context, dxpu_tcp_conn *c, const char *why)
{
    end *e = context;
    (void)c;
    e->closed++;
    e->why = why;
    e->conn = NULL;
}

static dxpu_tcp_callbacks callbacks(end *e)
{
    dxpu_tcp_callbacks cb = { NULL, on_opened, on_bytes, on_closed };
    cb.user = e;
    return cb;
}

static int setup(void **state)
{
    (void)state;
    memset(&server, 0, sizeof server);
    memset(&client, 0, sizeof client);
    client.touch = true;
    dxpu_tcp_settings_default(&set);
    base = event_base_new();
    return base ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    if (client.conn)
        dxpu_tcp_drop(client.conn, "the test is over");
    dxpu_tcp_unlisten(listener);
    listener = NULL;
    event_base_free(base);
    return 0;
}

static void serve(void)
{
    dxpu_tcp_callbacks cb = callbacks(&server);
    dxpu_udp_address at;
    const char *why = NULL;
    assert_null(dxpu_tcp_parse(":0", &at));
    listener = dxpu_tcp_listen(base, &at, &set, &cb, &why);
    assert_non_null(listener);
}

static dxpu_tcp_conn *join(end *e)
{
    dxpu_tcp_settings mine;
    dxpu_tcp_callbacks cb = callbacks(e);
    const char *why = NULL;
    dxpu_tcp_settings_default(&mine);
    dxpu_tcp_conn *c = dxpu_tcp_connect(base, dxpu_tcp_local(listener), &mine, &cb, &why);
    assert_non_null(c);
    assert_int_equal(e->opened + e->closed, 0); /* reported later */
    return c;
}

/* Run events until the counter is there; fails after 10 s. */
static void run_until(const unsigned *counter, unsigned value)
{
    uint64_t give_up = dxpu_udp_now_ns() + 10000000000u;
    while (*counter < value) {
        struct timeval tv = { 0, 10000 };
        assert_true(dxpu_udp_now_ns() < give_up);
        assert_int_equal(event_base_loopexit(base, &tv), 0);
        assert_true(event_base_dispatch(base) >= 0);
    }
}

static void run_until_got(const end *e, size_t len)
{
    uint64_t give_up = dxpu_udp_now_ns() + 10000000000u;
    while (e->len < len) {
        struct timeval tv = { 0, 1000 };
        assert_true(dxpu_udp_now_ns() < give_up);
        assert_int_equal(event_base_loopexit(base, &tv), 0);
        assert_true(event_base_dispatch(base) >= 0);
    }
}

static void test_addresses(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: refused */
    } rows[] = {
        { "127.0.0.1", "127.0.0.1:4459" },
        { "127.0.0.2:7", "127.0.0.2:7" },
        { "5000", "127.0.0.1:5000" },
        { ":5000", "127.0.0.1:5000" },
        { "*:5000", "0.0.0.0:5000" },
        { "*", "0.0.0.0:4459" },
        { "[::1]", "[::1]:4459" },
        { "[::1]:5000", "[::1]:5000" },
        { "0", "127.0.0.1:0" },
        { "", NULL },
        { "65536", NULL },
        { "127.0.0.1:", NULL },
        { "127.0.0.1:x", NULL },
        { "::1", NULL },
        { "[::1", NULL },
    };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[DXPU_UDP_TEXT_BYTES];
        dxpu_udp_address a;
        const char *why = dxpu_tcp_parse(rows[i].text, &a);
        if (rows[i].want) {
            assert_null(why);
            assert_string_equal(dxpu_udp_print(&a, text), rows[i].want);
        } else {
            assert_non_null(why);
        }
    }
}

static void test_addresses_of_another_port(void **state)
{
    dxpu_udp_address a;
    char text[DXPU_UDP_TEXT_BYTES];
    (void)state;
    assert_non_null(dxpu_tcp_parse_port("", 4457, &a));
    assert_null(dxpu_tcp_parse_port("127.0.0.2", 4457, &a));
    assert_string_equal(dxpu_udp_print(&a, text), "127.0.0.2:4457");
    assert_null(dxpu_tcp_parse_port("[::1]", 65535, &a));
    assert_string_equal(dxpu_udp_print(&a, text), "[::1]:65535");
    assert_null(dxpu_tcp_parse_port("127.0.0.2:7", 4457, &a));
    assert_string_equal(dxpu_udp_print(&a, text), "127.0.0.2:7");
}

/* Each end knows where both are, while the connection stands. */
static void test_here(void **state)
{
    dxpu_udp_address a, there;
    (void)state;
    serve();
    join(&client);
    run_until(&client.opened, 1);
    run_until(&server.opened, 1);
    assert_true(dxpu_tcp_here(server.conn, &a));
    assert_true(dxpu_udp_same(&a, dxpu_tcp_local(listener)));
    assert_true(dxpu_tcp_here(client.conn, &a));
    assert_int_equal(a.u.any.sa_family, AF_INET);
    assert_int_equal(ntohl(a.u.v4.sin_addr.s_addr), INADDR_LOOPBACK);
    assert_false(dxpu_udp_same(&a, dxpu_tcp_local(listener)));
    assert_true(dxpu_tcp_there(server.conn, &there));
    assert_true(dxpu_udp_same(&a, &there));
    assert_true(dxpu_tcp_there(client.conn, &there));
    assert_true(dxpu_udp_same(&there, dxpu_tcp_local(listener)));
}

static void test_echo(void **state)
{
    static uint8_t data[150000];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + i / 251);
    server.echo = server.touch = true;
    serve();
    (void)join(&client);
    run_until(&client.opened, 1);
    assert_true(dxpu_tcp_send(client.conn, data, sizeof data));
    run_until_got(&client, sizeof data);
    assert_memory_equal(client.got, data, sizeof data);
    dxpu_tcp_drop(client.conn, "enough");
    assert_int_equal(client.closed, 1);
    assert_string_equal(client.why, "enough");
    run_until(&server.closed, 1);
    assert_string_equal(server.why, "closed by the peer");
    assert_int_equal(server.opened, 1);
    assert_int_equal(dxpu_tcp_accepted(listener), 1);
    assert_int_equal(dxpu_tcp_displaced(listener), 0);
}

/* The server's bytes are there before the client has looked at the connection at all. */
static void test_server_speaks_first(void **state)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t len = sizeof at;
    dxpu_tcp_callbacks cb = callbacks(&client);
    dxpu_udp_address remote;
    const char *why = NULL;
    int fd = socket(AF_INET, SOCK_STREAM, 0), peer;
    (void)state;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    memset(&remote, 0, sizeof remote);
    remote.u.v4 = at;
    remote.len = len;
    assert_non_null(dxpu_tcp_connect(base, &remote, &set, &cb, &why));
    peer = accept(fd, NULL, NULL);
    assert_true(peer >= 0);
    assert_int_equal(send(peer, "first", 5, 0), 5);
    run_until_got(&client, 5);
    assert_memory_equal(client.got, "first", 5);
    assert_int_equal(client.opened, 1);
    assert_true(dxpu_tcp_send(client.conn, "then", 4));
    close(peer);
    run_until(&client.closed, 1);
    assert_int_equal(client.opened, 1); /* not reported twice */
    close(fd);
}

static void test_finish_sends_the_rest(void **state)
{
    static uint8_t data[100000];
    (void)state;
    server.echo = server.touch = true;
    serve();
    (void)join(&client);
    run_until(&client.opened, 1);
    assert_true(dxpu_tcp_send(client.conn, data, sizeof data));
    dxpu_tcp_finish(client.conn);
    assert_false(dxpu_tcp_send(client.conn, data, 1));
    run_until(&client.closed, 1);
    assert_string_equal(client.why, "closed here");
    run_until_got(&server, sizeof data);
}

static unsigned drained;
static size_t left;

static void on_drained(void *context, dxpu_tcp_conn *c)
{
    static uint8_t data[50000];
    size_t n = left < sizeof data ? left : sizeof data;
    (void)context;
    drained++;
    assert_int_equal(dxpu_tcp_unsent(c), 0);
    left -= n;
    if (n) {
        assert_true(dxpu_tcp_send(c, data, n));
        assert_int_equal(dxpu_tcp_unsent(c), n);
    }
}

/* More than may wait to be sent, piece by piece. */
static void test_drained(void **state)
{
    (void)state;
    set.send_bytes = 60000;
    drained = 0;
    left = 150000;
    server.touch = true;
    serve();
    dxpu_tcp_on_drained(listener, on_drained);
    (void)join(&client);
    run_until_got(&client, 150000);
    run_until(&drained, 4);
    assert_int_equal(client.len, 150000);
    assert_int_equal(left, 0);
}

static void test_no_answer(void **state)
{
    dxpu_udp_address at;
    const char *why = NULL;
    (void)state;
    serve();
    at = *dxpu_tcp_local(listener);
    dxpu_tcp_unlisten(listener);
    listener = NULL;
    dxpu_tcp_callbacks cb = callbacks(&client);
    assert_non_null(dxpu_tcp_connect(base, &at, &set, &cb, &why));
    run_until(&client.closed, 1);
    assert_string_equal(client.why, "no answer");
    assert_int_equal(client.opened, 0);
}

static void test_refused_here(void **state)
{
    (void)state;
    server.refuse = true;
    serve();
    (void)join(&client);
    run_until(&client.closed, 1);
    assert_int_equal(server.opened, 1);
    assert_int_equal(server.closed, 0); /* it has no context that could be freed */
}

static void test_no_greeting(void **state)
{
    (void)state;
    set.greet_ms = 30;
    serve();
    (void)join(&client);
    run_until(&server.closed, 1);
    assert_string_equal(server.why, "no greeting");
    run_until(&client.closed, 1);
}

static void test_silent(void **state)
{
    (void)state;
    set.greet_ms = 20;
    set.idle_ms = 60;
    server.touch = true; /* greeted: the first time-out does not count any more */
    serve();
    (void)join(&client);
    run_until(&server.closed, 1);
    assert_string_equal(server.why, "silent for too long");
}

static void test_peer_takes_nothing(void **state)
{
    (void)state;
    set.send_bytes = 100000;
    server.flood = server.touch = true;
    serve();
    (void)join(&client);
    run_until(&client.opened, 1);
    assert_true(dxpu_tcp_send(client.conn, "x", 1));
    run_until(&server.closed, 1);
    assert_string_equal(server.why, "the peer does not read its answers");
    run_until(&client.closed, 1);
    assert_true(client.len <= set.send_bytes);
}

static void test_displaced(void **state)
{
    static end ends[4];
    (void)state;
    memset(ends, 0, sizeof ends);
    set.connections = 2;
    server.touch = true;
    serve();
    (void)join(&ends[0]);
    run_until(&server.opened, 1);
    server.touch = false; /* the others say nothing */
    for (unsigned i = 1; i < 4; i++) {
        (void)join(&ends[i]);
        run_until(&server.opened, i + 1);
    }
    run_until(&ends[1].closed, 1);
    run_until(&ends[2].closed, 1);
    assert_int_equal(server.closed, 2);
    assert_string_equal(server.why, "displaced by another connection");
    assert_int_equal(ends[0].closed, 0); /* the oldest, but it greeted */
    assert_int_equal(ends[3].closed, 0);
    assert_int_equal(dxpu_tcp_displaced(listener), 2);
    dxpu_tcp_unlisten(listener);
    listener = NULL;
    assert_int_equal(server.closed, 4);
    run_until(&ends[0].closed, 1);
    run_until(&ends[3].closed, 1);
}

/* A connection that begins, from this address of loopback. */
static int reach(unsigned from)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    const dxpu_udp_address *to = dxpu_tcp_local(listener);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    at.sin_addr.s_addr = htonl(0x7f000000u + from);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    (void)connect(fd, &to->u.any, to->len);
    return fd;
}

/* Many from address 2, and the listener's turn. */
static void crowd(void)
{
    struct timeval tv = { 0, 1000 };
    for (unsigned i = 0; i < 64; i++)
        close(reach(2));
    assert_int_equal(event_base_loopexit(base, &tv), 0);
    assert_true(event_base_dispatch(base) >= 0);
}

/* Does who comes from there meanwhile get his byte back? */
static bool is_let_in(unsigned from)
{
    uint64_t give_up = dxpu_udp_now_ns() + 20000000000u;
    ssize_t n = -1;
    int fd = reach(from);
    bool said = false;
    char c;
    while (n < 0) {
        assert_true(dxpu_udp_now_ns() < give_up);
        crowd();
        said = said || send(fd, "x", 1, MSG_NOSIGNAL) == 1;
        n = said ? recv(fd, &c, 1, 0) : -1;
        if (n < 0 && errno == ECONNRESET)
            n = 0;
    }
    close(fd);
    return n == 1;
}

static void test_s146_a_crowd_from_one_address(void **state)
{
    enum { OTHERS = 8 };
    uint64_t give_up = dxpu_udp_now_ns() + 60000000000u;
    unsigned in = 0;
    (void)state;
    set.accepts = 100;
    server.echo = true;
    serve();
    assert_true(is_let_in(2)); /* the control: he, too, before he comes too often */
    assert_int_equal(dxpu_tcp_limited(listener), 0);
    while (dxpu_tcp_limited(listener) < 1000) {
        assert_true(dxpu_udp_now_ns() < give_up);
        crowd();
    }
    for (unsigned from = 3; from < 3 + OTHERS; from++)
        in += is_let_in(from);
    assert_true(in >= OTHERS - 2); /* of 256 groups one is the crowd's */
    assert_true(dxpu_tcp_limited(listener) > 10 * dxpu_tcp_accepted(listener));
}

static void test_port_in_use(void **state)
{
    dxpu_tcp_callbacks cb = callbacks(&server);
    const char *why = NULL;
    (void)state;
    serve();
    assert_null(dxpu_tcp_listen(base, dxpu_tcp_local(listener), &set, &cb, &why));
    assert_non_null(strstr(why, "in use"));
    set.connections = 0;
    assert_null(dxpu_tcp_listen(base, dxpu_tcp_local(listener), &set, &cb, &why));
}

/* ==== Control connections over them =========================================================== */

static secure_conn *told; /* NULL: closed */

static void *on_secure_opened(void *user, secure_conn *c)
{
    told = c;
    secure_touch(c);
    server.opened++;
    return user;
}

static void on_secure_bytes(void *context, secure_conn *c, dxpu_bytes in)
{
    (void)context;
    (void)c;
    (void)in;
}

static void on_secure_closed(void *context, secure_conn *c, const char *why)
{
    (void)context;
    (void)c;
    (void)why;
    told = NULL;
}

/* A peer that reads nothing: whoever speaks to it outside a callback ends the connection, which is
   gone when the call returns. */
static void test_secure_send_to_who_does_not_read(void **state)
{
    static const uint8_t much[100000];
    secure_callbacks cb = { &server, on_secure_opened, on_secure_bytes, on_secure_closed };
    secure_settings how = { .tcp = set, .keys = keys_none(), .may = KEYS_ALL };
    dxpu_udp_address at;
    const char *why = NULL;
    secure_listener *l;
    unsigned sent = 0;
    int fd;
    (void)state;
    assert_null(dxpu_tcp_parse(":0", &at));
    l = secure_listen(base, &at, &how, &cb, &why);
    assert_non_null(l);
    fd = socket(secure_local(l)->u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &secure_local(l)->u.any, secure_local(l)->len), 0);
    run_until(&server.opened, 1);
    while (told && secure_send(told, much, sizeof much))
        assert_true(++sent < 10000);
    assert_null(told);
    assert_true(sent > 0);
    secure_unlisten(l);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test_setup_teardown(test_addresses_of_another_port, setup, teardown),
        cmocka_unit_test_setup_teardown(test_here, setup, teardown),
        cmocka_unit_test_setup_teardown(test_echo, setup, teardown),
        cmocka_unit_test_setup_teardown(test_server_speaks_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_finish_sends_the_rest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drained, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_here, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_greeting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_peer_takes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_displaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_s146_a_crowd_from_one_address, setup, teardown),
        cmocka_unit_test_setup_teardown(test_port_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_secure_send_to_who_does_not_read, setup, teardown),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
