/* bindings/secure/dxpu_noise.c from the inside: published vectors, every message damaged in every
   byte, turns and sizes, the wipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "dxpu_noise.h"
#include "dxpu_sodium.h"

#include <sodium.h>
#include <string.h>

#include "vector_file.h"

enum {
    KEY = DXPU_NOISE_KEY_BYTES,
    HASH = DXPU_NOISE_HASH_BYTES,
    TAG = DXPU_NOISE_TAG_BYTES,
    BLOCK = 128 /* of BLAKE2b */
};

/* ==== Randomness of our choice ================================================================ */

/* What is drawn next, 32 bytes each; when it is used up, a stream that no test asks about. */
static uint8_t drawn[4][KEY];
static unsigned draws_left, draw_at;
static uint64_t stream = 1;

static const char *fixed_name(void)
{
    return "fixed";
}

static uint32_t fixed_word(void)
{
    stream = stream * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(stream >> 32);
}

static void fixed_bytes(void *const out, const size_t len)
{
    if (draws_left && len == KEY) {
        memcpy(out, drawn[draw_at++], KEY);
        draws_left--;
        return;
    }
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = (uint8_t)fixed_word();
}

static randombytes_implementation fixed = { fixed_name, fixed_word, NULL, NULL, fixed_bytes, NULL };

static void draw(const uint8_t key[KEY])
{
    if (!draws_left)
        draw_at = 0;
    memcpy(drawn[draw_at + draws_left++], key, KEY);
}

/* ==== Pairs =================================================================================== */

enum { MAX = 512 };

typedef struct sides {
    dxpu_noise n[2]; /* initiator, responder */
    dxpu_noise_pair own[2];
} sides;

static const uint8_t prologue_bytes[] = "unit";
static const dxpu_bytes prologue = { prologue_bytes, sizeof prologue_bytes };
static const dxpu_bytes hello = { prologue_bytes, 3 };

static void begin(sides *s, unsigned pattern, dxpu_bytes theirs)
{
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &s->own[0]);
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &s->own[1]);
    const uint8_t *remote = pattern == DXPU_NOISE_IK ? s->own[1].public_key : NULL;
    assert_int_equal(dxpu_noise_start(&s->n[0], dxpu_sodium_primitives(), pattern, true, &s->own[0],
                                      remote, prologue),
                     DXPU_OK);
    assert_int_equal(dxpu_noise_start(&s->n[1], dxpu_sodium_primitives(), pattern, false,
                                      &s->own[1], NULL, theirs),
                     DXPU_OK);
}

/* The next message of a handshake into out; its bytes. */
static size_t say(sides *s, uint8_t out[MAX])
{
    size_t bytes = 0;
    assert_int_equal(dxpu_noise_write(&s->n[s->n[0].next & 1], hello, out, MAX, &bytes), DXPU_OK);
    return bytes;
}

static int hear(sides *s, unsigned end, const uint8_t *message, size_t bytes)
{
    uint8_t payload[MAX];
    size_t got = 0;
    int rc =
        dxpu_noise_read(&s->n[end], (dxpu_bytes){ message, bytes }, payload, sizeof payload, &got);
    if (rc == DXPU_OK) {
        assert_int_equal(got, hello.len);
        assert_memory_equal(payload, hello.ptr, hello.len);
    }
    return rc;
}

/* ==== Vectors ================================================================================= */

static vector x;

static dxpu_bytes value(const char *key)
{
    static uint8_t bytes[4][MAX];
    static unsigned at;
    const char *text = vector_get(&x, key);
    dxpu_bytes v = { bytes[at = (at + 1) % 4], 0 };
    assert_non_null(text);
    vector_hex(text, bytes[at], MAX, &v.len);
    return v;
}

static dxpu_bytes numbered(const char *what, unsigned number)
{
    char key[20];
    snprintf(key, sizeof key, "%s%u", what, number);
    return value(key);
}

/* What a transport of the vectors does: nonce 0, 1, ... under each direction's key. */
static void check_transport(uint8_t key[2][KEY], unsigned first)
{
    for (unsigned number = first; number <= 6; number++) {
        uint8_t out[MAX], nonce[12] = { 0 };
        dxpu_bytes payload = numbered("payload", number), want = numbered("message", number);
        nonce[4] = (uint8_t)((number - first) / 2);
        crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, payload.ptr, payload.len, NULL, 0,
                                                  NULL, nonce, key[(number - 1) % 2]);
        assert_int_equal(want.len, payload.len + TAG);
        assert_memory_equal(out, want.ptr, want.len);
    }
}

static void check_vector(void)
{
    unsigned pattern = strcmp(vector_get(&x, "pattern"), "IK") ? DXPU_NOISE_XX : DXPU_NOISE_IK;
    uint8_t hash[2][HASH], key[2][2][KEY];
    dxpu_noise n[2];
    for (unsigned end = 0; end < 2; end++) {
        dxpu_noise_pair own;
        const char *remote = end ? NULL : vector_get(&x, "init_remote");
        dxpu_noise_pair_of(dxpu_sodium_primitives(), &own,
                           value(end ? "resp_static" : "init_static").ptr);
        assert_int_equal(dxpu_noise_start(&n[end], dxpu_sodium_primitives(), pattern, !end, &own,
                                          remote ? value("init_remote").ptr : NULL,
                                          value("prologue")),
                         DXPU_OK);
    }
    unsigned number = 1;
    for (; !dxpu_noise_done(&n[0]); number++) {
        uint8_t out[MAX], in[MAX];
        size_t bytes = 0, got = 0;
        unsigned from = (number - 1) % 2;
        dxpu_bytes payload = numbered("payload", number), want = numbered("message", number);
        draws_left = 0;
        draw(value(from ? "resp_ephemeral" : "init_ephemeral").ptr);
        assert_int_equal(dxpu_noise_overhead(&n[from]), want.len - payload.len);
        assert_int_equal(dxpu_noise_write(&n[from], payload, out, sizeof out, &bytes), DXPU_OK);
        assert_int_equal(bytes, want.len);
        assert_memory_equal(out, want.ptr, want.len);
        assert_int_equal(dxpu_noise_read(&n[1 - from], want, in, sizeof in, &got), DXPU_OK);
        assert_int_equal(got, payload.len);
        assert_memory_equal(in, payload.ptr, payload.len);
        for (unsigned end = 0; end < 2 && number == 2; end++)
            assert_memory_equal(n[end].hash, value("hash2").ptr, HASH);
    }
    draws_left = 0;
    for (unsigned end = 0; end < 2; end++) {
        assert_int_equal(dxpu_noise_split(&n[end], key[end][0], key[end][1], hash[end]), DXPU_OK);
        check_transport(key[end], number);
    }
    assert_memory_equal(hash[0], hash[1], HASH);
    if (pattern == DXPU_NOISE_IK)
        assert_memory_equal(hash[0], value("hash2").ptr, HASH);
}

static void test_s1_published_vectors(void **state)
{
    (void)state;
    vector_folder = "tests/data";
    assert_int_equal(vector_run("noise.txt", &x, check_vector), 2);
}

/* RFC 7693 has no HMAC; this is the definition of RFC 2104 computed another way. */
static void test_s1_hmac_by_definition(void **state)
{
    uint8_t key[HASH], text[200], whole[BLOCK + sizeof text], out[HASH], inner[HASH];
    (void)state;
    for (unsigned i = 0; i < HASH; i++)
        key[i] = (uint8_t)(3 * i);
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)i;
    dxpu_noise_hmac(dxpu_sodium_primitives(), key, (dxpu_bytes){ text, 70 },
                    (dxpu_bytes){ text + 70, 130 }, out);
    memset(whole, 0x36, BLOCK);
    for (unsigned i = 0; i < HASH; i++)
        whole[i] ^= key[i];
    memcpy(whole + BLOCK, text, sizeof text);
    crypto_generichash(inner, HASH, whole, sizeof whole, NULL, 0);
    memset(whole, 0x5c, BLOCK);
    for (unsigned i = 0; i < HASH; i++)
        whole[i] ^= key[i];
    memcpy(whole + BLOCK, inner, HASH);
    crypto_generichash(inner, HASH, whole, BLOCK + HASH, NULL, 0);
    assert_memory_equal(out, inner, HASH);
}

/* ==== Handshakes ============================================================================== */

static void finish(sides *s)
{
    uint8_t key[2][2][KEY], hash[2][HASH], out[MAX];
    while (!dxpu_noise_done(&s->n[0])) {
        unsigned from = s->n[0].next & 1;
        size_t bytes = say(s, out);
        assert_int_equal(hear(s, 1 - from, out, bytes), DXPU_OK);
    }
    for (unsigned end = 0; end < 2; end++) {
        assert_memory_equal(dxpu_noise_remote(&s->n[end]), s->own[1 - end].public_key, KEY);
        assert_int_equal(dxpu_noise_split(&s->n[end], key[end][0], key[end][1], hash[end]),
                         DXPU_OK);
    }
    assert_memory_equal(key[0], key[1], sizeof key[0]);
    assert_memory_equal(hash[0], hash[1], HASH);
    assert_memory_not_equal(key[0][0], key[0][1], KEY);
}

static void test_s1_both_patterns(void **state)
{
    (void)state;
    for (unsigned pattern = 0; pattern < 2; pattern++) {
        sides s;
        begin(&s, pattern, prologue);
        finish(&s);
    }
}

/* Every byte of every message changed, and every length but its own: refused, and the handshake
   then goes on with the message as it was.  XX's first message is in the clear: what is changed
   there shows in the second.  Control: the true message, each time. */
static void test_s2_damaged_messages(void **state)
{
    (void)state;
    for (unsigned pattern = 0; pattern < 2; pattern++) {
        sides s;
        begin(&s, pattern, prologue);
        for (unsigned message = 0; !dxpu_noise_done(&s.n[0]); message++) {
            uint8_t out[MAX], bad[MAX];
            unsigned to = 1 - (s.n[0].next & 1);
            bool clear = pattern == DXPU_NOISE_XX && message == 0;
            size_t bytes = say(&s, out);
            for (size_t i = 0; i < bytes && !clear; i++) {
                memcpy(bad, out, bytes);
                bad[i] ^= (uint8_t)(1u << (i & 7));
                assert_int_equal(hear(&s, to, bad, bytes), DXPU_E_CRC);
            }
            for (size_t len = 0; len < bytes && !clear; len++)
                assert_int_equal(hear(&s, to, out, len),
                                 len < bytes - hello.len ? DXPU_E_SHORT : DXPU_E_CRC);
            memcpy(bad, out, bytes);
            bad[bytes] = 0;
            if (!clear)
                assert_int_equal(hear(&s, to, bad, bytes + 1), DXPU_E_CRC);
            assert_int_equal(hear(&s, to, out, bytes), DXPU_OK);
        }
        finish(&s);
    }
}

static void test_s2_first_message_of_xx_altered(void **state)
{
    uint8_t out[MAX];
    sides s;
    (void)state;
    for (unsigned altered = 0; altered < 2; altered++) {
        begin(&s, DXPU_NOISE_XX, prologue);
        size_t bytes = say(&s, out);
        out[0] ^= (uint8_t)altered;
        assert_int_equal(hear(&s, 1, out, bytes), DXPU_OK);
        size_t len = 0;
        assert_int_equal(dxpu_noise_write(&s.n[1], hello, out, MAX, &len), DXPU_OK);
        assert_int_equal(hear(&s, 0, out, len), altered ? DXPU_E_CRC : DXPU_OK);
    }
}

static void test_s3_another_prologue_or_key(void **state)
{
    const dxpu_bytes other = { prologue_bytes, prologue.len - 1 };
    uint8_t out[MAX];
    sides s, t;
    (void)state;
    begin(&s, DXPU_NOISE_IK, other);
    assert_int_equal(hear(&s, 1, out, say(&s, out)), DXPU_E_CRC);
    begin(&s, DXPU_NOISE_IK, prologue);
    begin(&t, DXPU_NOISE_IK, prologue);
    size_t bytes = say(&s, out);
    assert_int_equal(hear(&t, 1, out, bytes), DXPU_E_CRC); /* for another responder */
    assert_int_equal(hear(&s, 1, out, bytes), DXPU_OK);
}

static void test_turns_and_sizes(void **state)
{
    uint8_t out[MAX], in[MAX], key[KEY], hash[HASH];
    size_t bytes = 0;
    sides s;
    (void)state;
    begin(&s, DXPU_NOISE_IK, prologue);
    assert_int_equal(dxpu_noise_write(&s.n[1], hello, out, MAX, &bytes), DXPU_E_STATE);
    assert_int_equal(hear(&s, 0, out, 100), DXPU_E_STATE);
    assert_int_equal(dxpu_noise_split(&s.n[0], key, key, hash), DXPU_E_STATE);
    size_t need = dxpu_noise_overhead(&s.n[0]) + hello.len;
    assert_int_equal(dxpu_noise_write(&s.n[0], hello, out, need - 1, &bytes), DXPU_E_ROOM);
    assert_int_equal(dxpu_noise_write(&s.n[0], hello, out, 10, &bytes), DXPU_E_ROOM);
    assert_int_equal(dxpu_noise_write(&s.n[0], hello, out, need, &bytes), DXPU_OK);
    assert_int_equal(bytes, need);
    dxpu_bytes message = { out, bytes };
    assert_int_equal(dxpu_noise_read(&s.n[1], message, in, hello.len - 1, &bytes), DXPU_E_ROOM);
    assert_int_equal(dxpu_noise_read(&s.n[1], message, in, hello.len, &bytes), DXPU_OK);
    dxpu_bytes huge = { in, DXPU_NOISE_MESSAGE_MAX_BYTES };
    assert_int_equal(dxpu_noise_write(&s.n[1], huge, out, SIZE_MAX, &bytes), DXPU_E_ROOM);
    huge.len++;
    assert_int_equal(dxpu_noise_read(&s.n[0], huge, in, SIZE_MAX, &bytes), DXPU_E_LENGTH);
    finish(&s);
    assert_int_equal(dxpu_noise_write(&s.n[0], hello, out, MAX, &bytes), DXPU_E_STATE);
    assert_int_equal(hear(&s, 1, out, 100), DXPU_E_STATE);
    assert_int_equal(dxpu_noise_overhead(&s.n[0]), 0);
    assert_int_equal(
        dxpu_noise_start(&s.n[0], dxpu_sodium_primitives(), 2, true, &s.own[0], key, prologue),
        DXPU_E_ARG);
    assert_int_equal(dxpu_noise_start(&s.n[0], dxpu_sodium_primitives(), DXPU_NOISE_IK, true,
                                      &s.own[0], NULL, prologue),
                     DXPU_E_ARG);
    assert_int_equal(dxpu_noise_start(&s.n[0], dxpu_sodium_primitives(), DXPU_NOISE_IK, false,
                                      &s.own[0], key, prologue),
                     DXPU_E_ARG);
    assert_int_equal(dxpu_noise_start(&s.n[0], dxpu_sodium_primitives(), DXPU_NOISE_XX, true,
                                      &s.own[0], key, prologue),
                     DXPU_E_ARG);
}

/* A public key whose every multiple is zero gives no secret: at the one who reads it as an
   ephemeral one, and at the one who was given it as the responder's. */
static void test_s2_public_key_of_small_order(void **state)
{
    static const uint8_t order1[KEY] = { 1 };
    uint8_t out[MAX];
    size_t bytes = 0;
    sides s;
    (void)state;
    begin(&s, DXPU_NOISE_IK, prologue);
    memcpy(out, order1, KEY);
    memset(out + KEY, 0, 100);
    assert_int_equal(hear(&s, 1, out, KEY + 100), DXPU_E_CRC);
    assert_int_equal(dxpu_noise_start(&s.n[0], dxpu_sodium_primitives(), DXPU_NOISE_IK, true,
                                      &s.own[0], order1, prologue),
                     DXPU_OK);
    assert_int_equal(dxpu_noise_write(&s.n[0], hello, out, MAX, &bytes), DXPU_E_CRC);
}

/* Split leaves nothing behind, and what is wiped gives no keys. */
static void test_s20_wiped(void **state)
{
    uint8_t key[KEY], hash[HASH];
    dxpu_noise zero;
    sides s;
    (void)state;
    memset(&zero, 0, sizeof zero);
    begin(&s, DXPU_NOISE_IK, prologue);
    assert_memory_not_equal(&s.n[0], &zero, sizeof zero); /* control */
    finish(&s);
    assert_memory_equal(&s.n[0], &zero, sizeof zero);
    assert_memory_equal(&s.n[1], &zero, sizeof zero);
    assert_int_equal(dxpu_noise_split(&s.n[0], key, key, hash), DXPU_E_STATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s1_published_vectors),
        cmocka_unit_test(test_s1_hmac_by_definition),
        cmocka_unit_test(test_s1_both_patterns),
        cmocka_unit_test(test_s2_damaged_messages),
        cmocka_unit_test(test_s2_first_message_of_xx_altered),
        cmocka_unit_test(test_s3_another_prologue_or_key),
        cmocka_unit_test(test_turns_and_sizes),
        cmocka_unit_test(test_s2_public_key_of_small_order),
        cmocka_unit_test(test_s20_wiped),
    };
    randombytes_set_implementation(&fixed);
    if (sodium_init() < 0)
        return 1;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
