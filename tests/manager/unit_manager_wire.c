/* unit_manager_wire.c - the manager's port for proxies over loopback, with keys: what one may take
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* what store.c asks of the system */
#endif
#include <setjmp.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core_rig.h"

#include "wire_internal.h"

enum { KEYS = 2, MOST = WIRE_KEY_CONNECTIONS + 2, PIECE = 60000 };

/* The proxy's end of a connection. */
typedef struct end {
    secure_conn *conn;         /* NULL: not open */
    bool opened, closed, node; /* node: it was registered */
    uint16_t code;             /* of the last error; 0: none */
    uint8_t identity;
    dxpu_control_stream stream;
    uint8_t room[DXPU_CONTROL_HEADER_BYTES + 1024];
} end;

static struct event_base *base;
static rig_store disk;
static core *c;
static wire *w;
static keys *lists;
static dxpu_noise_pair *own[KEYS];
static char peers[] = "/tmp/unit_manager_wire.XXXXXX";
static end ends[MOST];

/* -- Proxies -- */

static void *on_joined(void *user, secure_conn *conn)
{
    end *e = user;
    e->conn = conn;
    e->opened = true;
    return e;
}

static void on_heard(void *context, secure_conn *conn, dxpu_bytes in)
{
    end *e = context;
    dxpu_control_frame f;
    dxpu_control m;
    (void)conn;
    while (dxpu_control_take(&e->stream, &in, &f) == DXPU_OK) {
        assert_int_equal(dxpu_control_decode(&f, &m), DXPU_OK);
        e->node |= m.type == DXPU_CONTROL_NODE;
        e->code = m.type == DXPU_CONTROL_ERROR ? m.u.error.code : e->code;
    }
}

static void on_left(void *context, secure_conn *conn, const char *why_closed)
{
    end *e = context;
    (void)conn;
    (void)why_closed;
    e->conn = NULL;
    e->closed = true;
}

static void turn(void)
{
    struct timeval tv = { 0, 2000 };
    (void)event_base_loopexit(base, &tv);
    (void)event_base_dispatch(base);
}

/* Until it is open, or refused. */
static void join(end *e, unsigned key)
{
    secure_callbacks cb = { e, on_joined, on_heard, on_left };
    dxpu_tcp_settings set;
    const char *text = NULL;
    memset(e, 0, sizeof *e);
    e->identity = (uint8_t)(1 + (e - ends));
    assert_int_equal(dxpu_control_stream_init(&e->stream, e->room, sizeof e->room), DXPU_OK);
    dxpu_tcp_settings_default(&set);
    set.send_bytes = 2 << 20;
    assert_non_null(secure_connect(base, secure_local(w->listener), &set, own[key],
                                   keys_own(lists)->public_key, &cb, &text));
    for (unsigned i = 0; i < 5000 && !e->opened && !e->closed; i++)
        turn();
    assert_true(e->opened || e->closed);
}

static void say(end *e, const dxpu_control *m)
{
    uint8_t bytes[1024];
    size_t len;
    assert_int_equal(dxpu_control_encode(m, bytes, sizeof bytes, &len), DXPU_OK);
    assert_true(secure_send(e->conn, bytes, len));
}

static void greet(end *e)
{
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_HELLO;
    m.request = 1;
    m.u.hello.role = DXPU_CONTROL_ROLE_BOX;
    m.u.hello.version_min = m.u.hello.version_max = DXPU_CONTROL_VERSION;
    m.u.hello.name = (dxpu_bytes){ (const uint8_t *)"box 1.0", 7 };
    say(e, &m);
}

/* One of the slots of its box. */
static void say_slot(end *e, unsigned number, unsigned total)
{
    uint8_t entry[DXPU_CONTROL_DEVICE_BYTES];
    char name[8];
    dxpu_control_device d = { .number = (uint16_t)number,
                              .state = DXPU_CONTROL_SLOT_WIPED,
                              .health = DXPU_CONTROL_HEALTH_GOOD,
                              .model = "nvme" };
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_REGISTER;
    m.request = 2;
    m.u.reg.role = DXPU_CONTROL_ROLE_BOX;
    m.u.reg.total = (uint16_t)total;
    m.u.reg.first = (uint16_t)number;
    m.u.reg.count = 1;
    m.u.reg.entry_bytes = DXPU_CONTROL_DEVICE_BYTES;
    m.u.reg.instance = 7;
    m.u.reg.identity[0] = e->identity;
    snprintf(name, sizeof name, "box%u", e->identity);
    m.u.reg.name = (dxpu_bytes){ (const uint8_t *)name, strlen(name) };
    dxpu_control_device_encode(&d, entry);
    m.u.reg.entries = (dxpu_bytes){ entry, sizeof entry };
    m.u.reg.paths = 1;
    m.u.reg.path[0] = (dxpu_control_address){ 4, (uint16_t)(4400 + e->identity), { 127 } };
    say(e, &m);
}

static void ask_to_register(end *e)
{
    say_slot(e, 1, 1);
}

/* Messages that may be ignored, of this number of bytes at most. */
static void chatter(end *e, size_t bytes)
{
    static uint8_t piece[DXPU_CONTROL_HEADER_BYTES + PIECE] = { 'D', 'X', 'C', 'T', 1, 0, 0x80, 1 };
    dxpu_put_be16(piece + 10, PIECE);
    for (; e->conn && bytes >= sizeof piece; bytes -= sizeof piece) {
        assert_true(secure_send(e->conn, piece, sizeof piece));
        turn();
    }
    for (unsigned i = 0; i < 20; i++)
        turn();
}

static void answer(const end *e)
{
    for (unsigned i = 0; i < 5000 && !e->closed && !e->node && !e->code; i++) {
        turn();
        wire_pump(w); /* as the program does in each turn of its loop */
    }
}

/* -- The rig -- */

static int begin_test(void **state)
{
    core_settings set;
    wire_settings ws;
    core_result bad;
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    keys_settings k = { NULL, NULL, peers, false, false };
    bool wrong;
    (void)state;
    rig_store_init(&disk);
    core_settings_default(&set);
    c = core_open(&disk.base, &set, (uint64_t)time(NULL) * 1000u, dxpu_udp_now_ns() / 1000000u,
                  &bad);
    base = event_base_new();
    snprintf(peers, sizeof peers, "/tmp/unit_manager_wire.XXXXXX");
    int fd = mkstemp(peers);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!c || !base || !f)
        return -1;
    for (unsigned i = 0; i < KEYS; i++) {
        own[i] = dxpu_sodium_key_new();
        fprintf(f, "%s may=box\n", dxpu_sodium_key_print(own[i]->public_key, text));
    }
    fclose(f);
    lists = keys_open(&k, &wrong);
    wire_settings_default(&ws);
    ws.listen = "127.0.0.1:0";
    ws.keys = lists;
    w = lists ? wire_open(base, c, &ws) : NULL;
    return w ? 0 : -1;
}

static int end_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MOST; i++)
        if (ends[i].conn)
            secure_drop(ends[i].conn, "the test is over");
    memset(ends, 0, sizeof ends);
    wire_close(w);
    core_close(c);
    rig_store_free(&disk);
    keys_close(lists);
    for (unsigned i = 0; i < KEYS; i++)
        dxpu_sodium_key_free(own[i]);
    event_base_free(base);
    return unlink(peers);
}

/* -- What one key may take -- */

/* While others register, what proxies of a key send is kept for all of them together. */
static void test_m134_what_is_kept_of_a_key(void **state)
{
    enum { LOUD = WIRE_LATER_SHARES + 2, QUIET = LOUD };
    unsigned closed = 0;
    (void)state;
    for (unsigned i = 0; i <= QUIET; i++) {
        join(&ends[i], i == QUIET);
        assert_true(ends[i].opened);
    }
    w->register_ns = WIRE_REGISTER_NS + 1; /* the time of this turn is spent */
    for (unsigned i = 0; i <= QUIET; i++) {
        greet(&ends[i]);
        ask_to_register(&ends[i]);
        chatter(&ends[i], WIRE_LATER_BYTES - 2 * PIECE); /* less than each alone may have */
    }
    for (unsigned i = 0; i < LOUD; i++)
        closed += ends[i].closed;
    assert_in_range(closed, 1, LOUD - WIRE_LATER_SHARES + 1);
    assert_false(ends[QUIET].closed); /* the control: another key's */
    size_t kept = 0;
    for (const wire_proxy *p = w->held; p; p = p->next_held)
        kept = wire_kept_bytes(p) > kept ? wire_kept_bytes(p) : kept;
    assert_in_range(kept, WIRE_LATER_BYTES, WIRE_LATER_SHARES * WIRE_LATER_BYTES);
    for (unsigned i = 0; i < 100 && w->held; i++) {
        wire_pump(w);
        turn();
    }
    answer(&ends[QUIET]);
    assert_true(ends[QUIET].node);
}

static void test_m134_connections_of_a_key(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WIRE_KEY_CONNECTIONS; i++) {
        join(&ends[i], 0);
        assert_true(ends[i].opened);
    }
    assert_false(ends[0].closed);
    join(&ends[WIRE_KEY_CONNECTIONS], 0);
    for (unsigned i = 0; i < 5000 && !ends[WIRE_KEY_CONNECTIONS].closed; i++)
        turn();
    assert_true(ends[WIRE_KEY_CONNECTIONS].closed);
    assert_false(ends[0].closed);             /* nor was it for want of time */
    join(&ends[WIRE_KEY_CONNECTIONS + 1], 1); /* the control: another key's */
    greet(&ends[WIRE_KEY_CONNECTIONS + 1]);
    ask_to_register(&ends[WIRE_KEY_CONNECTIONS + 1]);
    answer(&ends[WIRE_KEY_CONNECTIONS + 1]);
    assert_true(ends[WIRE_KEY_CONNECTIONS + 1].node);
}

static void test_m133_registers_of_a_key(void **state)
{
    (void)state;
    wire_clock(c);
    corei_party_of_key(c, own[0]->public_key)->connects_ms =
        c->mono_ms + (uint64_t)COREI_CONNECT_MS * 1000;
    for (unsigned i = 0; i < KEYS; i++) {
        join(&ends[i], i);
        greet(&ends[i]);
        ask_to_register(&ends[i]);
        answer(&ends[i]);
    }
    assert_false(ends[0].node);
    assert_int_equal(ends[0].code, DXPU_CONTROL_CODE_BUSY);
    assert_true(ends[1].node); /* the control: another key's */
}

/* -- Registers that share a commit -- */

enum { CROWD = 5 };

/* All of them have said it, one slot in a message, and wait for the turn to end. */
static void crowd(unsigned slots)
{
    for (unsigned i = 0; i < CROWD; i++) {
        join(&ends[i], 0);
        greet(&ends[i]);
        for (unsigned n = 1; n <= slots; n++)
            say_slot(&ends[i], n, slots);
    }
    for (unsigned i = 0, held = 0; i < 5000 && held < CROWD; i++) {
        turn();
        held = 0;
        for (const wire_proxy *p = w->held; p; p = p->next_held)
            held++;
    }
}

static void test_registers_of_a_turn_share_a_commit(void **state)
{
    (void)state;
    crowd(1);
    unsigned before = disk.commits;
    wire_pump(w);
    assert_int_equal(disk.commits, before + 2); /* and the term's, once */
    for (unsigned i = 0; i < CROWD; i++) {
        answer(&ends[i]);
        assert_true(ends[i].node);
    }
}

/* None is answered, and what was new is not a node: all have to register again. */
static void test_registers_whose_commit_fails_are_not_answered(void **state)
{
    (void)state;
    assert_int_not_equal(core_term(c), 0);
    crowd(1);
    disk.fail_after = 0;
    disk.fault = STORE_E_FULL;
    wire_pump(w);
    for (unsigned i = 0; i < 5000 && !ends[CROWD - 1].closed; i++)
        turn();
    uint32_t count;
    (void)core_nodes(c, &count);
    assert_int_equal(count, 0);
    for (unsigned i = 0; i < CROWD; i++) {
        assert_true(ends[i].closed);
        assert_false(ends[i].node);
    }
    disk.fail_after = UINT_MAX;
    usleep(COREI_REFUSE_MS * 1000 + 10000);
    crowd(1);
    for (unsigned i = 0; i < CROWD; i++) { /* the control */
        answer(&ends[i]);
        assert_true(ends[i].node);
    }
}

static const store_kind *quick;

static store_error slow_commit(store *base_store, const store_change *changes, unsigned count,
                               store_fault *f)
{
    usleep(WIRE_REGISTER_NS / 1000 / 2);
    return quick->commit(base_store, changes, count, f);
}

/* What is stored for each alone is so for a few in a turn; others have theirs in between. */
static void test_last_parts_of_registers_have_turns(void **state)
{
    (void)state;
    quick = disk.base.kind;
    store_kind slow = *quick;
    slow.commit = slow_commit;
    assert_int_not_equal(core_term(c), 0);
    crowd(2);
    for (unsigned i = 0; i < CROWD; i++)
        assert_int_equal(ends[i].node, 0);
    disk.base.kind = &slow;
    wire_pump(w);
    for (unsigned pumps = 0; w->going || w->follows; pumps++) {
        unsigned before = disk.commits;
        assert_in_range(pumps, 0, 100);
        wire_pump(w);
        assert_in_range(disk.commits - before, 0, 3);
    }
    assert_true(disk.commits >= CROWD); /* the control: there was one for each */
    assert_int_equal(core_pool(c)->slots, 2 * CROWD);
    disk.base.kind = quick;
    for (unsigned i = 0; i < CROWD; i++) {
        answer(&ends[i]);
        assert_true(ends[i].node);
    }
}

/* The end of the program does not wait for them. */
static void test_close_while_last_parts_wait(void **state)
{
    (void)state;
    static store_kind slow;
    quick = disk.base.kind;
    slow = *quick;
    slow.commit = slow_commit;
    crowd(2);
    disk.base.kind = &slow;
    wire_pump(w);
    assert_non_null(w->going);
    disk.base.kind = quick; /* end_test() closes it */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_m134_what_is_kept_of_a_key),
        CASE(test_m134_connections_of_a_key),
        CASE(test_m133_registers_of_a_key),
        CASE(test_registers_of_a_turn_share_a_commit),
        CASE(test_registers_whose_commit_fails_are_not_answered),
        CASE(test_last_parts_of_registers_have_turns),
        CASE(test_close_while_last_parts_wait),
    };
    if (dxpu_sodium_init() < 0)
        return 1;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
