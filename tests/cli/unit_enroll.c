/* unit_enroll.c - dxpu enroll: what who waits keeps of others, and names that others say of
   themselves; the rest, over sockets and terminals, is in cli_enroll.py */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "command.h"
#include "dxpu_tcp.h"
#include "enroll_internal.h"

#include <string.h>

static dxpu_noise_pair *own, *other;
static enroll_talk *waiting;

/* What the command has from main.c. */
void out_of_memory(void)
{
    abort();
}

static int set_up(void **state)
{
    dxpu_udp_address at;
    const char *why;
    (void)state;
    assert_int_equal(dxpu_sodium_init(), DXPU_OK);
    own = dxpu_sodium_key_new();
    other = dxpu_sodium_key_new();
    assert_null(dxpu_tcp_parse_port("127.0.0.1:0", ENROLL_PORT, &at));
    waiting = enroll_open(own, "here", &at, true, 60, &why);
    return own && other && waiting ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    enroll_close(waiting);
    dxpu_sodium_key_free(own);
    dxpu_sodium_key_free(other);
    return 0;
}

/* A datagram from port `from`; with time for it. */
static void hear(unsigned from, const uint8_t *bytes, size_t len)
{
    uint8_t copy[DXPU_SODIUM_FRAME_BYTES];
    dxpu_udp_path path = { .remote = *enroll_local(waiting) };
    path.remote.u.v4.sin_port = htons((uint16_t)from);
    memcpy(copy, bytes, len);
    waiting->paid_ns = 0;
    enroll_on_datagram(waiting, copy, len, &path, 0);
}

/* An initiator's next message goes there. */
static void send_to(dxpu_sodium_enroll *e, unsigned from)
{
    uint8_t out[DXPU_SODIUM_FRAME_BYTES];
    int n = dxpu_sodium_enroll_emit(e, out, sizeof out);
    assert_true(n > 0);
    hear(from, out, (size_t)n);
}

/* The answer that stands at who waits for that port; false: there is none. */
static bool answer_of(dxpu_sodium_enroll *e, unsigned from)
{
    dxpu_udp_path path = { .remote = *enroll_local(waiting) };
    enroll_one *of;
    path.remote.u.v4.sin_port = htons((uint16_t)from);
    of = enroll_find(waiting, &path);
    return of &&
           dxpu_sodium_enroll_ingest(e, (dxpu_bytes){ of->e.said, of->e.said_bytes }) == DXPU_OK;
}

static void test_s143_the_oldest_goes(void **state)
{
    enum { CROWD = ENROLL_TALKS + 44 };
    static dxpu_sodium_enroll crowd[CROWD];
    (void)state;
    for (unsigned i = 0; i < CROWD; i++) {
        assert_int_equal(dxpu_sodium_enroll_begin(&crowd[i], other, true, "x"), DXPU_OK);
        send_to(&crowd[i], 1000 + i);
    }
    assert_int_equal(enroll_count(waiting)->begun, CROWD);
    assert_int_equal(enroll_count(waiting)->displaced, CROWD - ENROLL_TALKS);
    assert_false(answer_of(&crowd[0], 1000));
    assert_false(answer_of(&crowd[CROWD - ENROLL_TALKS - 1], 1000 + CROWD - ENROLL_TALKS - 1));
    assert_true(answer_of(&crowd[CROWD - ENROLL_TALKS], 1000 + CROWD - ENROLL_TALKS));
    send_to(&crowd[CROWD - ENROLL_TALKS], 1000 + CROWD - ENROLL_TALKS);
    assert_non_null(waiting->peer);
    assert_int_equal(waiting->end, ENROLL_MET);
    send_to(&crowd[CROWD - 1], 1000 + CROWD - 1); /* one is met: others are late */
    assert_int_equal(enroll_count(waiting)->late, 1);
    assert_int_equal(enroll_count(waiting)->refused, 0);
}

static void test_s143_beginnings_are_limited(void **state)
{
    uint8_t first[DXPU_SODIUM_FRAME_BYTES], noise[60] = { 0 };
    dxpu_sodium_enroll e;
    unsigned let = 0;
    int n;
    (void)state;
    assert_int_equal(dxpu_sodium_enroll_begin(&e, other, true, "x"), DXPU_OK);
    n = dxpu_sodium_enroll_emit(&e, first, sizeof first);
    while (enroll_may_begin(waiting, 1000))
        let++;
    assert_true(let <= ENROLL_BEGIN_AHEAD_NS / ENROLL_BEGIN_NS + 1 && let > 1);
    assert_false(enroll_may_begin(waiting, 1000 + ENROLL_BEGIN_NS / 2));
    assert_true(enroll_may_begin(waiting, 1000 + 2 * ENROLL_BEGIN_NS));
    for (unsigned i = 0; i < 1000; i++) /* what is not a first message uses up no turn */
        hear(5, noise, sizeof noise);
    assert_int_equal(waiting->paid_ns, 0);
    assert_int_equal(enroll_count(waiting)->refused, 1000);
    first[n - 1] ^= 1;
    hear(5, first, (size_t)n);
    assert_int_equal(waiting->paid_ns, 0);
    first[n - 1] ^= 1;
    hear(5, first, (size_t)n); /* the control */
    assert_int_not_equal(waiting->paid_ns, 0);
    assert_int_equal(enroll_count(waiting)->begun, 1);
}

/* Only who says the same again is answered again: a short frame of its type would bring a long
   answer to an address that somebody forged. */
static void test_s51_answers_what_is_repeated(void **state)
{
    enum { HEAD_BYTES = 8 };
    uint8_t first[DXPU_SODIUM_FRAME_BYTES], brief[64];
    dxpu_sodium_enroll e;
    dxpu_frame f;
    size_t head;
    int n;
    (void)state;
    assert_int_equal(dxpu_sodium_enroll_begin(&e, other, true, "x"), DXPU_OK);
    n = dxpu_sodium_enroll_emit(&e, first, sizeof first);
    assert_true(n > 0);
    hear(5, first, (size_t)n);
    assert_int_equal(enroll_count(waiting)->begun, 1);
    memset(&f, 0, sizeof f);
    f.kind = DXPU_KIND_HANDSHAKE;
    head = dxpu_frame_encode_header(&f, HEAD_BYTES, DXPU_FRAME_CRC_BYTES, brief);
    memcpy(brief + head, first + DXPU_FRAME_BASE_BYTES, HEAD_BYTES);
    dxpu_frame_seal_crc(brief, head + HEAD_BYTES);
    hear(5, brief, head + HEAD_BYTES + DXPU_FRAME_CRC_BYTES);
    assert_int_equal(enroll_count(waiting)->repeated, 0);
    assert_int_equal(enroll_count(waiting)->refused, 1);
    hear(5, first, (size_t)n); /* the control */
    assert_int_equal(enroll_count(waiting)->repeated, 1);
    assert_int_equal(enroll_count(waiting)->refused, 1);
}

static void test_s144_names_that_others_say(void **state)
{
    static const struct {
        const char *said, *name;
    } rows[] = {
        { "web7", "web7" },
        { "a=b,c", "a=b,c" },
        { "", "" },
        { "x may=control,host,box", "" },
        { "x slots=1", "" },
        { " x", "" },
        { "web7#", "" },
        { "#", "" },
        { "1234567890123456789012345678901", "1234567890123456789012345678901" },
        { "12345678901234567890123456789012", "" },
    };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enrolling n;
        dxpu_sodium_enroll e;
        char want[KEYS_LINE_BYTES], key[DXPU_SODIUM_KEY_TEXT_BYTES];
        const char *name = rows[i].name;
        memset(&n, 0, sizeof n);
        n.talk = waiting;
        n.may = KEYS_FABRIC;
        assert_int_equal(dxpu_sodium_enroll_begin(&e, other, true, rows[i].said), DXPU_OK);
        send_to(&e, 2000 + i);
        assert_true(answer_of(&e, 2000 + i));
        send_to(&e, 2000 + i);
        assert_non_null(waiting->peer);
        enroll_take_peer(&n);
        snprintf(want, sizeof want, "%s%s%s may=fabric",
                 dxpu_sodium_key_print(other->public_key, key), *name ? " name=" : "", name);
        assert_string_equal(n.line, want);
        assert_string_equal(n.peer.name, name);
        enroll_forget(waiting);
        assert_false(answer_of(&e, 2000 + i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_s143_the_oldest_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_s143_beginnings_are_limited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_s51_answers_what_is_repeated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_s144_names_that_others_say, set_up, tear_down),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
