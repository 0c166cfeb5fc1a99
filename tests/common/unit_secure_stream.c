/* secure_stream.h over loopback: who is accepted, what arrives, what each end reports, with keys
   and without; a key that is taken away. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "secure_stream.h"

/* What happened to one end. */
typedef struct end {
    unsigned opened, closed;
    const char *why;
    secure_conn *conn;
    uint8_t key[DXPU_NOISE_KEY_BYTES], *got;
    bool has_key, refuse, echo, finish, drop;
    size_t len;
} end;

enum { ROOM = 400000 };

static struct event_base *base;
static secure_listener *listener;
static keys *lists;
static dxpu_noise_pair *own, *stranger;
static end server, client;
static char peers[] = "/tmp/unit_secure.XXXXXX";

static void *on_opened(void *user, secure_conn *c)
{
    end *e = user;
    const uint8_t *key = secure_key(c);
    e->opened++;
    e->conn = c;
    e->has_key = key != NULL;
    if (key)
        memcpy(e->key, key, sizeof e->key);
    secure_touch(c);
    return e->refuse ? NULL : e;
}

static void on_bytes(void *context, secure_conn *c, dxpu_bytes in)
{
    end *e = context;
    assert_true(e->opened && in.len && in.len <= ROOM - e->len);
    memcpy(e->got + e->len, in.ptr, in.len);
    e->len += in.len;
    if (e->echo)
        assert_true(secure_send(c, in.ptr, in.len));
    if (e->finish)
        secure_finish(c);
    if (e->drop)
        secure_drop(c, "enough");
    if (e->finish || e->drop)
        assert_false(secure_send(c, "x", 1));
}

static void on_closed(void *context, secure_conn *c, const char *why)
{
    end *e = context;
    (void)c;
    e->closed++;
    e->why = why;
    e->conn = NULL;
}

static void write_peers(bool mine)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    FILE *f = fopen(peers, "w");
    assert_non_null(f);
    if (mine)
        fprintf(f, "%s may=host\n", dxpu_sodium_key_print(own->public_key, text));
    fprintf(f, "%s may=control\n", dxpu_sodium_key_print(stranger->public_key, text));
    fclose(f);
}

static unsigned per_key;

static void serve(bool plain)
{
    secure_callbacks cb = { &server, on_opened, on_bytes, on_closed };
    secure_settings set = { .may = KEYS_HOST | KEYS_BOX, .per_key = per_key };
    keys_settings k = { NULL, NULL, plain ? NULL : peers, plain, false };
    dxpu_udp_address at;
    const char *why = NULL;
    bool wrong;
    lists = keys_open(&k, &wrong);
    assert_non_null(lists);
    set.keys = lists;
    dxpu_tcp_settings_default(&set.tcp);
    assert_null(dxpu_tcp_parse(":0", &at));
    listener = secure_listen(base, &at, &set, &cb, &why);
    assert_non_null(listener);
}

static void join(const dxpu_noise_pair *key)
{
    secure_callbacks cb = { &client, on_opened, on_bytes, on_closed };
    const dxpu_noise_pair *there = keys_own(lists);
    dxpu_tcp_settings set;
    const char *why = NULL;
    dxpu_tcp_settings_default(&set);
    assert_non_null(secure_connect(base, secure_local(listener), &set, key,
                                   there ? there->public_key : stranger->public_key, &cb, &why));
    assert_int_equal(client.opened + client.closed, 0);
}

static void run_until(const unsigned *counter)
{
    for (unsigned turn = 0; turn < 2000 && !*counter; turn++) {
        struct timeval tv = { 0, 5000 };
        (void)event_base_loopexit(base, &tv);
        (void)event_base_dispatch(base);
    }
    assert_true(*counter);
}

static void run_until_len(const end *e, size_t len)
{
    for (unsigned turn = 0; turn < 2000 && e->len < len; turn++) {
        struct timeval tv = { 0, 5000 };
        (void)event_base_loopexit(base, &tv);
        (void)event_base_dispatch(base);
    }
    assert_int_equal(e->len, len);
}

static int setup(void **state)
{
    int fd;
    (void)state;
    memset(&server, 0, sizeof server);
    memset(&client, 0, sizeof client);
    server.got = malloc(ROOM);
    client.got = malloc(ROOM);
    base = event_base_new();
    own = dxpu_sodium_key_new();
    stranger = dxpu_sodium_key_new();
    snprintf(peers, sizeof peers, "/tmp/unit_secure.XXXXXX");
    fd = mkstemp(peers);
    if (fd < 0 || close(fd) || !base || !own || !stranger || !server.got || !client.got)
        return -1;
    write_peers(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (client.conn)
        secure_drop(client.conn, "the test is over");
    secure_unlisten(listener);
    listener = NULL;
    keys_close(lists);
    dxpu_sodium_key_free(own);
    dxpu_sodium_key_free(stranger);
    event_base_free(base);
    free(server.got);
    free(client.got);
    return unlink(peers);
}

/* Long ones go in several messages; they arrive whole and in order, both ways. */
static void exchange(void)
{
    static uint8_t data[100000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 >> 4);
    server.echo = true;
    run_until(&client.opened);
    assert_true(secure_send(client.conn, "a", 1));
    assert_true(secure_send(client.conn, data, sizeof data));
    run_until_len(&client, sizeof data + 1);
    assert_memory_equal(client.got + 1, data, sizeof data);
    assert_int_equal(server.opened, 1);
}

static void test_s70_bytes_both_ways(void **state)
{
    (void)state;
    serve(false);
    join(own);
    exchange();
    assert_true(server.has_key && client.has_key);
    assert_memory_equal(server.key, own->public_key, sizeof server.key);
    assert_memory_equal(client.key, keys_own(lists)->public_key, sizeof client.key);
    secure_drop(client.conn, "done");
    assert_string_equal(client.why, "done");
    run_until(&server.closed);
    assert_string_equal(server.why, "closed by the peer");
}

static void test_s97_bytes_without_keys(void **state)
{
    (void)state;
    serve(true);
    join(NULL);
    exchange();
    assert_false(server.has_key || client.has_key);
    secure_recheck(listener); /* none is disconnected */
    assert_int_equal(server.closed, 0);
}

/* A known key, of which the list says something else; control: above. */
static void test_s74_s91_a_key_with_other_rights(void **state)
{
    (void)state;
    serve(false);
    join(stranger);
    run_until(&client.closed);
    assert_int_equal(client.opened + server.opened + server.closed, 0);
    assert_true(secure_is_handshake(client.why));
}

static void test_s71_one_side_without_keys(void **state)
{
    for (unsigned plain = 0; plain < 2; plain++) {
        (void)state;
        serve(plain != 0);
        join(plain ? own : NULL);
        if (!plain) { /* who has no keys speaks at once */
            run_until(&client.opened);
            assert_true(secure_send(client.conn, "DXCTxxxxxxxxxxxx", 16));
        } else { /* what it hears is a greeting: this server answers nothing to it */
            server.drop = true;
        }
        run_until(&client.closed);
        assert_int_equal(plain ? client.opened : server.opened, 0);
        if (!plain) {
            assert_int_equal(teardown(NULL), 0);
            assert_int_equal(setup(NULL), 0);
        }
    }
}

static void test_a_connection_that_is_refused(void **state)
{
    (void)state;
    serve(false);
    server.refuse = true;
    join(own);
    run_until(&client.closed);
    assert_int_equal(server.opened, 1);
    assert_int_equal(server.closed, 0); /* as dxpu_tcp has it */
}

/* What was said before the end still arrives; after a drop nothing is heard. */
static void test_ends_from_inside(void **state)
{
    (void)state;
    serve(false);
    server.echo = server.finish = true;
    join(own);
    run_until(&client.opened);
    assert_true(secure_send(client.conn, "last words", 10));
    run_until(&client.closed);
    assert_int_equal(client.len, 10);
    run_until(&server.closed);
}

static void test_a_drop_from_inside(void **state)
{
    (void)state;
    serve(false);
    server.drop = true;
    join(own);
    run_until(&client.opened);
    assert_true(secure_send(client.conn, "one", 3));
    assert_true(secure_send(client.conn, "two", 3));
    run_until(&server.closed);
    assert_string_equal(server.why, "enough");
    assert_int_equal(server.len, 3);
}

static void test_s96_a_key_that_is_taken_away(void **state)
{
    (void)state;
    serve(false);
    join(own);
    run_until(&server.opened);
    assert_int_equal(keys_reload(lists), 0);
    secure_recheck(listener);
    assert_int_equal(server.closed, 0); /* control: it may still */
    write_peers(false);
    assert_int_equal(keys_reload(lists), 0);
    secure_recheck(listener);
    assert_int_equal(server.closed, 1);
    assert_string_equal(server.why, "its key is no longer authorized");
    run_until(&client.closed);
}

/* M-134: one key has a bounded number at a time; when one has ended, there is room for another. */
static void test_m134_connections_of_one_key(void **state)
{
    secure_conn *conn[2] = { NULL, NULL };
    (void)state;
    per_key = 2;
    serve(false);
    per_key = 0;
    for (unsigned i = 0; i < 2; i++) {
        client.opened = server.opened = 0;
        join(own);
        run_until(&client.opened);
        run_until(&server.opened);
        conn[i] = client.conn;
    }
    assert_int_equal(server.closed, 0);
    client.opened = server.opened = 0;
    join(own);
    run_until(&client.closed);
    assert_int_equal(server.opened, 0);
    secure_drop(conn[0], "done");
    run_until(&server.closed);
    secure_drop(conn[1], "done");
    client.opened = client.closed = 0;
    join(own);
    run_until(&server.opened);
    run_until(&client.opened);
}

static void test_no_answer(void **state)
{
    (void)state;
    serve(false);
    dxpu_udp_address at = *secure_local(listener);
    secure_callbacks cb = { &client, on_opened, on_bytes, on_closed };
    dxpu_tcp_settings set;
    const char *why = NULL;
    dxpu_tcp_settings_default(&set);
    secure_unlisten(listener);
    listener = NULL;
    assert_non_null(secure_connect(base, &at, &set, own, stranger->public_key, &cb, &why));
    run_until(&client.closed);
    assert_string_equal(client.why, "no answer");
    assert_false(secure_is_handshake(client.why));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s70_bytes_both_ways),
        CASE(test_s97_bytes_without_keys),
        CASE(test_s74_s91_a_key_with_other_rights),
        CASE(test_s71_one_side_without_keys),
        CASE(test_a_connection_that_is_refused),
        CASE(test_ends_from_inside),
        CASE(test_a_drop_from_inside),
        CASE(test_s96_a_key_that_is_taken_away),
        CASE(test_m134_connections_of_one_key),
        CASE(test_no_answer),
    };
    if (dxpu_sodium_init() != DXPU_OK)
        return 1;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
