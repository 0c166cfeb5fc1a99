/* bindings/portable from the inside: vectors of the RFCs, libsodium on random input, the corners of
   the arithmetic, what is left on the stack
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dxpu_portable.c" /* not linked: reaches fe_read() and others */
#include "dxpu_sodium.h"

#include <sodium.h>

enum { MAX = 512 };

static dxpu_primitives ours;
static const dxpu_primitives *theirs;

static void draw(void *user, uint8_t *out, size_t bytes)
{
    (void)user;
    randombytes_buf(out, bytes);
}

static size_t hex(const char *text, uint8_t *out)
{
    size_t bytes = 0;
    assert_int_equal(sodium_hex2bin(out, MAX, text, strlen(text), NULL, &bytes, NULL), 0);
    return bytes;
}

/* ==== Vectors ================================================================================= */

static void check_x25519(const char *secret, const char *point, const char *product)
{
    uint8_t s[MAX], p[MAX], want[MAX], out[KEY];
    hex(secret, s);
    hex(point, p);
    hex(product, want);
    assert_true(ours.agree(out, s, p));
    assert_memory_equal(out, want, KEY);
}

/* RFC 7748, section 5.2. */
static void test_s190_rfc7748(void **state)
{
    uint8_t k[KEY] = { 9 }, u[KEY] = { 9 }, out[KEY], want[MAX];
    (void)state;
    check_x25519("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                 "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
                 "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
    check_x25519("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                 "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
                 "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957");
    for (unsigned i = 0; i < 1000; i++) {
        assert_true(ours.agree(out, k, u));
        memcpy(u, k, KEY);
        memcpy(k, out, KEY);
    }
    hex("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51", want);
    assert_memory_equal(k, want, KEY);
}

/* RFC 7693, appendix A. */
static void test_s190_rfc7693(void **state)
{
    const dxpu_bytes none = { NULL, 0 },
                     abc[2] = { { (const uint8_t *)"a", 1 }, { (const uint8_t *)"bc", 2 } };
    uint8_t out[64], want[MAX];
    (void)state;
    ours.hash(out, 64, none, abc, 2);
    hex("ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
        want);
    assert_memory_equal(out, want, 64);
}

/* RFC 8439, section 2.8.2; HChaCha20 of draft-irtf-cfrg-xchacha, section 2.2.1. */
static void test_s190_rfc8439(void **state)
{
    static const char text[] = "Ladies and Gentlemen of the class of '99: If I could offer you "
                               "only one tip for the future, sunscreen would be it.";
    uint8_t key[KEY], nonce[MAX], header[MAX], body[sizeof text], tag[TAG], want[MAX], out[KEY];
    dxpu_bytes head = { header, 0 };
    size_t bytes;
    (void)state;
    for (unsigned i = 0; i < KEY; i++)
        key[i] = (uint8_t)(0x80 + i);
    hex("070000004041424344454647", nonce);
    head.len = hex("50515253c0c1c2c3c4c5c6c7", header);
    memcpy(body, text, sizeof text);
    ours.aeads[0].encrypt(key, nonce, head, body, sizeof text - 1, tag);
    bytes = hex("d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
                "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
                "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
                "3ff4def08e4b7a9de576d26586cec64b6116",
                want);
    assert_int_equal(bytes, sizeof text - 1);
    assert_memory_equal(body, want, bytes);
    hex("1ae10b594f09e26a7e902ecbd0600691", want);
    assert_memory_equal(tag, want, TAG);
    assert_true(ours.aeads[0].decrypt(key, nonce, head, body, bytes, tag));
    assert_memory_equal(body, text, bytes);
    for (unsigned i = 0; i < KEY; i++)
        key[i] = (uint8_t)i;
    hex("000000090000004a0000000031415927", nonce);
    ours.hchacha20(out, nonce, key);
    hex("82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc", want);
    assert_memory_equal(out, want, KEY);
}

/* ==== libsodium =============================================================================== */

static void test_s190_x25519_as_libsodium(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        uint8_t secret[KEY], point[KEY], a[KEY], b[KEY];
        randombytes_buf(secret, KEY);
        ours.public_key(a, secret);
        theirs->public_key(b, secret);
        assert_memory_equal(a, b, KEY);
        randombytes(point, KEY);
        if (i % 3 == 0) { /* 2^255 - 19 - 10 and on, or the same beyond the highest bit */
            memset(point, 0xff, KEY);
            point[0] = (uint8_t)(0xe3 + i / 3);
            point[31] = i % 2 ? 0x7f : 0xff;
        }
        bool good = ours.agree(a, secret, point);
        assert_int_equal(good, theirs->agree(b, secret, point));
        if (good)
            assert_memory_equal(a, b, KEY);
    }
}

static void test_s2_points_that_give_no_secret(void **state)
{
    static const char *const small[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };
    uint8_t secret[KEY], point[MAX], out[KEY];
    (void)state;
    randombytes_buf(secret, KEY);
    for (unsigned i = 0; i < sizeof small / sizeof small[0]; i++) {
        hex(small[i], point);
        assert_false(ours.agree(out, secret, point));
    }
    point[0] = 9; /* control */
    assert_true(ours.agree(out, secret, point));
}

/* All lengths around blocks, all lengths of keys and results. */
static void test_s190_blake2b_as_libsodium(void **state)
{
    uint8_t data[MAX], key[64], a[64], b[64];
    (void)state;
    randombytes(data, sizeof data);
    randombytes_buf(key, 32);
    randombytes(key + 32, 32);
    for (size_t len = 0; len <= 300; len++) {
        size_t part = len * 37 % (len + 1), out = 16 + len % 49;
        dxpu_bytes parts[3] = { { data, part }, { NULL, 0 }, { data + part, len - part } };
        dxpu_bytes k = { key, len % 2 ? 16 + len % 49 : 0 };
        ours.hash(a, out, k, parts, 3);
        theirs->hash(b, out, k, parts, 3);
        assert_memory_equal(a, b, out);
    }
}

static void test_s190_aead_as_libsodium(void **state)
{
    uint8_t key[KEY], nonce[16], header[64], a[MAX], b[MAX], ta[TAG], tb[TAG];
    (void)state;
    for (size_t len = 0; len <= 300; len++) {
        dxpu_bytes head = { header, len * 13 % 65 };
        randombytes_buf(key, KEY);
        randombytes(nonce, sizeof nonce);
        randombytes(header, sizeof header);
        randombytes(a, sizeof a);
        memcpy(b, a, sizeof b);
        ours.aeads[0].encrypt(key, nonce, head, a, len, ta);
        theirs->aeads[0].encrypt(key, nonce, head, b, len, tb);
        assert_memory_equal(a, b, sizeof a); /* not a byte beyond, either */
        assert_memory_equal(ta, tb, TAG);
        assert_true(theirs->aeads[0].decrypt(key, nonce, head, b, len, ta));
        ta[len % TAG] ^= (uint8_t)(1u << len % 8);
        assert_false(ours.aeads[0].decrypt(key, nonce, head, a, len, ta));
        assert_true(ours.aeads[0].decrypt(key, nonce, head, a, len, tb));
        assert_memory_equal(a, b, sizeof a);
    }
    for (unsigned i = 0; i < 50; i++) {
        randombytes_buf(key, KEY);
        randombytes(nonce, sizeof nonce);
        ours.hchacha20(a, nonce, key);
        theirs->hchacha20(b, nonce, key);
        assert_memory_equal(a, b, KEY);
    }
}

/* Poly1305 where its carries go furthest: r, s and blocks of ones, and sums around 2^130 - 5. */
static void test_s190_poly1305_corners(void **state)
{
    static const uint8_t ends[] = { 0xfa, 0xfb, 0xfc, 0xff, 0x00, 0x01, 0x05 };
    (void)state;
    for (unsigned i = 0; i < 7u * 4 * 6; i++) {
        uint8_t key[KEY], data[96], a[TAG], b[TAG];
        size_t len = 16 * (1 + i % 6);
        poly p;
        memset(key, i / 6 % 4 & 1 ? 0xff : 0, 16);
        key[0] |= (uint8_t)(i / 6 % 4 & 1 ? 0 : 1 + (i % 2)); /* r of 1, of 2 */
        memset(key + 16, i / 6 % 4 & 2 ? 0xff : 0, 16);
        memset(data, 0xff, sizeof data);
        data[0] = ends[i / 24];
        poly_begin(&p, key);
        poly_add(&p, data, len);
        poly_end(&p, a);
        crypto_onetimeauth_poly1305(b, data, len, key);
        assert_memory_equal(a, b, TAG);
    }
}

/* Just 2^130 - 5 is 0, and the numbers beside it are not. */
static void test_s190_poly1305_is_reduced(void **state)
{
    (void)state;
    for (int32_t i = -2; i <= 2; i++) {
        uint8_t tag[TAG], want[TAG] = { 0 };
        poly p;
        memset(&p, 0, sizeof p);
        for (unsigned k = 0; k < PARTS; k++)
            p.h[k] = PART_MASK;
        p.h[0] = (uint32_t)(PART_MASK - 4 + i);
        if (i < 0)
            memset(want, 0xff, TAG);
        want[0] = (uint8_t)(i < 0 ? 0xfb + i : i);
        poly_end(&p, tag);
        assert_memory_equal(tag, want, TAG);
    }
}

/* A field element's one way to be written: around 0, 2^255 - 19 and 2^255. */
static void test_s190_numbers_are_reduced(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        uint8_t in[KEY], out[KEY], want[KEY] = { 0 };
        fe f;
        memset(in, 0xff, KEY);
        in[31] = 0x7f;
        in[0] = (uint8_t)(0xd8 + i); /* 2^255 - 40 + i */
        if (i < 21)
            memcpy(want, in, KEY);
        else
            want[0] = (uint8_t)(i - 21);
        fe_read(f, in);
        fe_write(out, f);
        assert_memory_equal(out, want, KEY);
    }
}

static void test_equal_and_wipe(void **state)
{
    uint8_t a[40], b[40];
    (void)state;
    randombytes(a, sizeof a);
    memcpy(b, a, sizeof b);
    assert_true(ours.equal(a, b, sizeof a));
    for (unsigned i = 0; i < sizeof a; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            b[i] ^= (uint8_t)(1u << bit);
            assert_false(ours.equal(a, b, sizeof a));
            b[i] ^= (uint8_t)(1u << bit);
        }
    }
    b[0] = (uint8_t)~a[0];
    b[39] = (uint8_t)~a[39];
    ours.wipe(b + 1, sizeof b - 2);
    assert_int_equal(b[0], (uint8_t)~a[0]);
    assert_int_equal(b[39], (uint8_t)~a[39]);
    assert_true(sodium_is_zero(b + 1, sizeof b - 2));
}

/* ==== The stack =============================================================================== */

enum { BELOW = DXPU_PORTABLE_STACK_BYTES / 2 };

#define BARE __attribute__((noinline, no_sanitize("address", "undefined")))

static BARE void dirty_below(void)
{
    uint8_t room[BELOW];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = 0xa5;
    __asm__ volatile("" : : "m"(room)); /* which it needs */
}

/* How much of that is still there. */
static BARE size_t dirt_below(void)
{
    uint8_t room[BELOW];
    size_t dirt = 0;
    __asm__ volatile("" : "=m"(room)); /* it holds what is there */
    for (size_t i = 0; i < sizeof room; i++)
        dirt += room[i] == 0xa5;
    return dirt;
}

static void test_s20_the_stack_is_wiped(void **state)
{
    size_t before, after;
    (void)state;
    dirty_below();
    before = dirt_below();
    dirty_below();
    ours.wipe_stack();
    after = dirt_below();
    assert_true(before > BELOW / 2); /* control */
    assert_true(after < 256);
}

static int setup(void **state)
{
    (void)state;
    dxpu_portable_init(&ours, draw, NULL);
    theirs = dxpu_sodium_primitives();
    return dxpu_sodium_init();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s190_rfc7748),
        cmocka_unit_test(test_s190_rfc7693),
        cmocka_unit_test(test_s190_rfc8439),
        cmocka_unit_test(test_s190_x25519_as_libsodium),
        cmocka_unit_test(test_s2_points_that_give_no_secret),
        cmocka_unit_test(test_s190_blake2b_as_libsodium),
        cmocka_unit_test(test_s190_aead_as_libsodium),
        cmocka_unit_test(test_s190_poly1305_corners),
        cmocka_unit_test(test_s190_poly1305_is_reduced),
        cmocka_unit_test(test_s190_numbers_are_reduced),
        cmocka_unit_test(test_equal_and_wipe),
        cmocka_unit_test(test_s20_the_stack_is_wiped),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, setup, NULL);
}
