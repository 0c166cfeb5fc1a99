/* bindings/secure/dxpu_seal.c from the inside: vectors of another implementation, what a key
   depends on, phases, limits. */
#define _POSIX_C_SOURCE 200809L /* pthread_attr_setstack() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <pthread.h>

#include "dxpu_seal.h"
#include "dxpu_sodium.h"

#include "vector_file.h"

enum { MAX = 256, HEADER = 20 };
static const uint8_t text[] = "a body of a frame";
enum { TEXT = sizeof text - 1 };
static const uint64_t packet = 0x0102030405060708;

static uint8_t split[2][32], hash[64], header[HEADER];

static dxpu_seal_context context_of(uint16_t suite)
{
    dxpu_seal_context c = {
        { split[0], split[1] }, hash, suite, 0x1122334455667788, { 0x1000, 0x2000 }
    };
    return c;
}

static int setup(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        split[0][i] = (uint8_t)i;
        split[1][i] = (uint8_t)(32 + i);
    }
    for (unsigned i = 0; i < sizeof hash; i++)
        hash[i] = (uint8_t)(0x80 + i);
    for (unsigned i = 0; i < HEADER; i++)
        header[i] = (uint8_t)(0x30 + i);
    return 0;
}

/* The text sealed in the sender's phase; bytes of it and its tag. */
static size_t put_text(dxpu_seal *s, uint64_t number, uint8_t out[MAX])
{
    memcpy(out, text, TEXT);
    assert_true(dxpu_seal_frame(s, (uint8_t)(s->tx.phase & 3), number,
                                (dxpu_bytes){ header, HEADER }, out, TEXT));
    return TEXT + dxpu_seal_tag_bytes(s);
}

static bool opens(dxpu_seal *s, uint8_t phase, uint64_t number, const uint8_t *sealed)
{
    uint8_t copy[MAX];
    memcpy(copy, sealed, TEXT + dxpu_seal_tag_bytes(s));
    bool good = dxpu_seal_unframe(s, phase, number, (dxpu_bytes){ header, HEADER }, copy, TEXT);
    if (good)
        assert_memory_equal(copy, text, TEXT);
    return good;
}

/* ==== Vectors ================================================================================= */

static vector x;
static unsigned skipped;

static void check_vector(void)
{
    uint16_t suite = (uint16_t)strtoul(vector_get(&x, "suite"), NULL, 10);
    bool initiator = strcmp(vector_get(&x, "direction"), "0") == 0;
    dxpu_seal_context c = context_of(suite);
    dxpu_seal from, to;
    if (!(dxpu_sodium_suites() & suite)) {
        skipped++;
        return;
    }
    dxpu_seal_begin(&from, dxpu_sodium_primitives(), &c, initiator);
    dxpu_seal_begin(&to, dxpu_sodium_primitives(), &c, !initiator);
    for (unsigned phase = 0; phase < 6; phase++) {
        char key[20];
        uint8_t want[MAX], out[MAX];
        size_t len = 0;
        snprintf(key, sizeof key, "sealed%u", phase);
        vector_hex(vector_get(&x, key), want, sizeof want, &len);
        if (phase)
            assert_int_equal(dxpu_seal_next_phase(&from), phase & 3);
        assert_int_equal(put_text(&from, packet, out), len);
        assert_memory_equal(out, want, len);
        assert_true(opens(&to, phase & 3, packet, want));
    }
}

static void test_s41_s42_vectors_of_another_implementation(void **state)
{
    (void)state;
    vector_folder = "tests/data";
    assert_int_equal(vector_run("seal.txt", &x, check_vector), 4);
    if (skipped == 4)
        skip();
}

/* ==== What a key depends on =================================================================== */

/* Both ends by the same context, but for one thing: nothing opens.  Control: nothing differs. */
static void test_s41_all_of_the_context_counts(void **state)
{
    (void)state;
    for (unsigned change = 0; change < 9; change++) {
        uint16_t suite = DXPU_SUITE_CHACHA20_POLY1305;
        dxpu_seal_context c = context_of(suite), d = c;
        uint8_t other[2][32], other_hash[64], out[MAX];
        dxpu_seal from, to;
        memcpy(other, split, sizeof other);
        memcpy(other_hash, hash, sizeof other_hash);
        d.split[0] = other[0];
        d.hash = other_hash;
        other[0][31] ^= change == 1;
        other_hash[63] ^= change == 2;
        d.epoch += change == 3;
        d.channel[0] += change == 4;
        d.channel[1] += change == 5;
        dxpu_seal_begin(&from, dxpu_sodium_primitives(), &c, true);
        dxpu_seal_begin(&to, dxpu_sodium_primitives(), &d, change == 6);
        put_text(&from, packet + (change == 7), out);
        header[0] ^= change == 8;
        assert_int_equal(opens(&to, 0, packet, out), change == 0);
        header[0] ^= change == 8;
    }
}

static void test_s40_suites_have_their_own_keys(void **state)
{
    uint8_t out[MAX], plain[MAX];
    dxpu_seal_context c = context_of(DXPU_SUITE_CHACHA20_POLY1305);
    dxpu_seal a, b;
    (void)state;
    if (!(dxpu_sodium_suites() & DXPU_SUITE_AES_256_GCM))
        skip();
    dxpu_seal_begin(&a, dxpu_sodium_primitives(), &c, true);
    put_text(&a, packet, plain);
    c.suite = DXPU_SUITE_AES_256_GCM; /* the same AEAD under another suite's number */
    dxpu_seal_begin(&b, dxpu_sodium_primitives(), &c, true);
    b.aead = a.aead;
    dxpu_seal_make_key(&b, b.tx.secret, 0, &b.tx.key);
    put_text(&b, packet, out);
    assert_memory_not_equal(out, plain, TEXT);
}

static void test_s40_every_suite_and_size(void **state)
{
    uint16_t suites = dxpu_sodium_suites();
    unsigned seen = 0;
    (void)state;
    assert_true(suites & DXPU_SUITE_CHACHA20_POLY1305);
    assert_false(suites & DXPU_SUITE_CRC);
    for (unsigned bit = 0; bit < 16; bit++) {
        uint16_t suite = (uint16_t)(1u << bit);
        dxpu_seal_context c = context_of(suite);
        dxpu_seal from, to;
        if (!(suites & suite))
            continue;
        seen++;
        assert_string_not_equal(dxpu_sodium_suite_name(suite), "?");
        dxpu_seal_begin(&from, dxpu_sodium_primitives(), &c, true);
        dxpu_seal_begin(&to, dxpu_sodium_primitives(), &c, false);
        for (size_t len = 0; len < 300; len++) {
            uint8_t body[400], copy[400];
            dxpu_bytes head = { header, HEADER };
            for (size_t i = 0; i < sizeof body; i++)
                body[i] = (uint8_t)(i * 7 + len);
            memcpy(copy, body, sizeof body);
            size_t all = len + dxpu_seal_tag_bytes(&from);
            assert_true(dxpu_seal_frame(&from, 0, len, head, body, len));
            assert_memory_equal(body + all, copy + all, sizeof body - all); /* not a byte beyond */
            assert_true(len < 16 || memcmp(body, copy, len) != 0);
            memcpy(copy, body, all);
            copy[(len * 13) % all] ^= 0x20;
            assert_false(dxpu_seal_unframe(&to, 0, len, head, copy, len));
            assert_true(dxpu_seal_unframe(&to, 0, len, head, body, len));
            for (size_t i = 0; i < len; i++)
                assert_int_equal(body[i], (uint8_t)(i * 7 + len));
        }
    }
    assert_true(seen >= 1);
}

/* ==== Phases ================================================================================== */

static void begin_pair(dxpu_seal *from, dxpu_seal *to)
{
    dxpu_seal_context c = context_of(DXPU_SUITE_CHACHA20_POLY1305);
    dxpu_seal_begin(from, dxpu_sodium_primitives(), &c, true);
    dxpu_seal_begin(to, dxpu_sodium_primitives(), &c, false);
}

static void test_s45_before_key_and_after(void **state)
{
    uint8_t old[4][MAX];
    dxpu_seal from, to;
    (void)state;
    begin_pair(&from, &to);
    for (unsigned phase = 0; phase < 4; phase++) {
        put_text(&from, phase, old[phase]);
        dxpu_seal_next_phase(&from);
    }
    assert_false(opens(&to, 2, 2, old[2])); /* two ahead */
    assert_true(opens(&to, 0, 0, old[0]));
    assert_false(to.rx.moved);
    assert_true(opens(&to, 1, 1, old[1])); /* the next one: it is the key now */
    assert_true(to.rx.moved);
    assert_true(opens(&to, 0, 0, old[0])); /* the one before */
    dxpu_seal_forget(&to);
    assert_false(opens(&to, 0, 0, old[0]));
    assert_true(opens(&to, 1, 1, old[1]));
    assert_true(opens(&to, 2, 2, old[2]));
    assert_true(opens(&to, 1, 1, old[1]));
    assert_true(opens(&to, 3, 3, old[3]));
    assert_false(opens(&to, 1, 1, old[1])); /* two back */
}

/* A forged frame of the next phase moves nothing. */
static void test_s45_only_an_authentic_frame_moves(void **state)
{
    uint8_t out[MAX], first[MAX];
    dxpu_seal from, to;
    (void)state;
    begin_pair(&from, &to);
    put_text(&from, 0, first);
    dxpu_seal_next_phase(&from);
    put_text(&from, 1, out);
    out[0] ^= 1;
    assert_false(opens(&to, 1, 1, out));
    assert_int_equal(to.rx.phase, 0);
    out[0] ^= 1;
    assert_true(opens(&to, 1, 1, out));
    assert_int_equal(to.rx.phase, 1);
}

/* Nothing of an old phase is left: neither its key nor the secret that it came from. */
static void test_s20_old_phase_is_gone(void **state)
{
    uint8_t secret[2][32], *bytes;
    dxpu_seal s, to;
    (void)state;
    begin_pair(&s, &to);
    memcpy(secret[0], s.tx.secret, 32);
    memcpy(secret[1], s.tx.key.state, 32);
    for (unsigned turn = 0; turn < 2; turn++) {
        unsigned found = 0;
        bytes = (uint8_t *)&s;
        for (size_t i = 0; i + 32 <= sizeof s; i++)
            found += memcmp(bytes + i, secret[0], 32) == 0 || memcmp(bytes + i, secret[1], 32) == 0;
        assert_int_equal(found, turn ? 0 : 2); /* control: they were there */
        dxpu_seal_next_phase(&s);
    }
}

/* ==== The stack =============================================================================== */

enum { STACK = 256 << 10 };
enum { LAST_BEGIN, LAST_NEXT_PHASE, LAST_ADVANCE, LASTS, WITHOUT_CLEARING = LASTS };
static uint8_t stack[STACK] __attribute__((aligned(4096)));
static uint8_t first[2][32];        /* secret and key of phase 0 */
static dxpu_seal near_end, far_end; /* not on the stack */

typedef struct keys_made {
    uint16_t suite;
    unsigned last; /* what is called last: what it leaves is not overwritten */
} keys_made;

static void *make_keys(void *user)
{
    static uint8_t out[MAX];
    const keys_made *m = user;
    dxpu_seal_context c = context_of(m->suite);
    dxpu_seal_begin(&far_end, dxpu_sodium_primitives(), &c, false);
    dxpu_seal_begin(&near_end, dxpu_sodium_primitives(), &c, true);
    memcpy(first[0], near_end.tx.secret, 32);
    memcpy(first[1], near_end.tx.key.state, 32); /* an expanded key begins with the key */
    if (m->last == WITHOUT_CLEARING)
        dxpu_seal_make_key(&near_end, near_end.tx.secret, 0, &near_end.tx.key);
    if (m->last == LAST_NEXT_PHASE || m->last == LAST_ADVANCE)
        (void)dxpu_seal_next_phase(&near_end);
    if (m->last == LAST_ADVANCE) {
        put_text(&near_end, 1, out);
        (void)dxpu_seal_unframe(&far_end, 1, 1, (dxpu_bytes){ header, HEADER }, out, TEXT);
    }
    return NULL;
}

static bool on_stack(const uint8_t secret[32])
{
    bool found = false;
    for (size_t i = 0; i + 32 <= STACK && !found; i++)
        found = memcmp(stack + i, secret, 32) == 0;
    return found;
}

/* How many secrets of a channel a thread leaves on its stack that makes them. */
static unsigned left_on_stack(uint16_t suite, unsigned last)
{
    const uint8_t *secrets[] = { first[0],           first[1],
                                 near_end.tx.secret, near_end.tx.key.state,
                                 far_end.rx.secret,  far_end.rx.key.state,
                                 split[0],           far_end.rx.after.state,
                                 near_end.rx.secret, near_end.rx.after.state };
    keys_made m = { suite, last };
    pthread_attr_t how;
    pthread_t thread;
    unsigned found = 0;
    memset(stack, 0, sizeof stack);
    assert_int_equal(pthread_attr_init(&how), 0);
    assert_int_equal(pthread_attr_setstack(&how, stack, sizeof stack), 0);
    assert_int_equal(pthread_create(&thread, &how, make_keys, &m), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&how);
    assert_int_equal(near_end.tx.phase, last == LAST_NEXT_PHASE || last == LAST_ADVANCE);
    assert_int_equal(far_end.rx.phase, last == LAST_ADVANCE);
    for (unsigned i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
        found += on_stack(secrets[i]);
    return found;
}

/* No key, and no secret that keys come from, stays on the stack, which is not locked. */
static void test_s20_s61_nothing_is_left_on_the_stack(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 16; bit++) {
        uint16_t suite = (uint16_t)(1u << bit);
        if (!(dxpu_sodium_suites() & suite))
            continue;
        assert_int_not_equal(left_on_stack(suite, WITHOUT_CLEARING), 0); /* control */
        for (unsigned last = 0; last < LASTS; last++)
            assert_int_equal(left_on_stack(suite, last), 0);
    }
}

/* ==== Limits ================================================================================== */

static void test_s43_a_key_is_used_up(void **state)
{
    uint8_t out[MAX];
    dxpu_seal from, to;
    dxpu_bytes head = { header, HEADER };
    (void)state;
    begin_pair(&from, &to);
    uint64_t each = HEADER + TEXT + dxpu_seal_tag_bytes(&from);
    from.tx.bytes = SEAL_BYTES_MAX - each;
    put_text(&from, 0, out); /* the last one */
    assert_int_equal(from.tx.bytes, SEAL_BYTES_MAX);
    assert_false(dxpu_seal_frame(&from, 0, 1, head, out, TEXT));
    dxpu_seal_next_phase(&from);
    put_text(&from, 1, out);
    assert_true(opens(&to, 1, 1, out));
    assert_false(dxpu_seal_frame(&from, 0, 2, head, out, TEXT)); /* a phase that is not ours now */
}

/* The same number again would seal two frames with one key stream. */
static void test_s42_no_number_twice(void **state)
{
    uint8_t out[MAX];
    dxpu_seal from, to;
    dxpu_bytes head = { header, HEADER };
    (void)state;
    begin_pair(&from, &to);
    put_text(&from, 5, out);
    assert_false(dxpu_seal_frame(&from, 0, 5, head, out, TEXT));
    assert_false(dxpu_seal_frame(&from, 0, 4, head, out, TEXT));
    assert_false(dxpu_seal_frame(&from, 0, UINT64_MAX, head, out, TEXT));
    put_text(&from, 6, out);
    put_text(&from, UINT64_MAX - 1, out);
    dxpu_seal_next_phase(&from);
    put_text(&from, 0, out); /* another key */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s41_s42_vectors_of_another_implementation),
        cmocka_unit_test(test_s41_all_of_the_context_counts),
        cmocka_unit_test(test_s40_suites_have_their_own_keys),
        cmocka_unit_test(test_s40_every_suite_and_size),
        cmocka_unit_test(test_s45_before_key_and_after),
        cmocka_unit_test(test_s45_only_an_authentic_frame_moves),
        cmocka_unit_test(test_s20_old_phase_is_gone),
        cmocka_unit_test(test_s20_s61_nothing_is_left_on_the_stack),
        cmocka_unit_test(test_s42_no_number_twice),
        cmocka_unit_test(test_s43_a_key_is_used_up),
    };
    if (dxpu_sodium_init() != DXPU_OK)
        return 1;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, setup, NULL);
}
