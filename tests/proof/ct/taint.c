/* taint.c - secrets marked as undefined for valgrind's memcheck, which then reports every branch
   and every address that depends on one (S-113).

   It stands between bindings/sodium and libsodium (ld --wrap): what is drawn at random with the
   size of a key is secret, and so is all that is computed from it, until libsodium gives something
   that may be known: a public key, a ciphertext, the text of an authentic ciphertext, and whether
   two things are equal or a message is authentic.

   It stands between the tests and cmocka, too: only those that one of the patterns in CT_TESTS
   names are run, as valgrind takes long to start. */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <valgrind/memcheck.h>

enum { SECRET_BYTES = 32 };

/* What a function of libsodium returned is known, even if computed from secrets. */
static int known(int rc)
{
    (void)VALGRIND_MAKE_MEM_DEFINED(&rc, sizeof rc);
    return rc;
}

void __real_randombytes_buf(void *buf, size_t size);
void __wrap_randombytes_buf(void *buf, size_t size);
void __wrap_randombytes_buf(void *buf, size_t size)
{
    __real_randombytes_buf(buf, size);
    if (size == SECRET_BYTES)
        (void)VALGRIND_MAKE_MEM_UNDEFINED(buf, size);
}

int __real_crypto_scalarmult_base(unsigned char *q, const unsigned char *n);
int __wrap_crypto_scalarmult_base(unsigned char *q, const unsigned char *n);
int __wrap_crypto_scalarmult_base(unsigned char *q, const unsigned char *n)
{
    int rc = __real_crypto_scalarmult_base(q, n);
    (void)VALGRIND_MAKE_MEM_DEFINED(q, crypto_scalarmult_BYTES);
    return known(rc);
}

/* The product is a secret; that it is 0 says something of the other side's point. */
int __real_crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p);
int __wrap_crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p);
int __wrap_crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p)
{
    int rc = known(__real_crypto_scalarmult(q, n, p));
    (void)VALGRIND_MAKE_MEM_UNDEFINED(q, crypto_scalarmult_BYTES); /* also with a key of a test */
    return rc;
}

int __real_sodium_memcmp(const void *a, const void *b, size_t len);
int __wrap_sodium_memcmp(const void *a, const void *b, size_t len);
int __wrap_sodium_memcmp(const void *a, const void *b, size_t len)
{
    return known(__real_sodium_memcmp(a, b, len));
}

/* That a key is 0 is public: such a file is refused. */
int __real_sodium_is_zero(const unsigned char *n, size_t len);
int __wrap_sodium_is_zero(const unsigned char *n, size_t len);
int __wrap_sodium_is_zero(const unsigned char *n, size_t len)
{
    return known(__real_sodium_is_zero(n, len));
}

/* A key that is read from its file. */
int __real_sodium_base642bin(unsigned char *bin, size_t bin_max, const char *b64, size_t b64_len,
                             const char *ignore, size_t *bin_len, const char **end, int variant);
int __wrap_sodium_base642bin(unsigned char *bin, size_t bin_max, const char *b64, size_t b64_len,
                             const char *ignore, size_t *bin_len, const char **end, int variant);
int __wrap_sodium_base642bin(unsigned char *bin, size_t bin_max, const char *b64, size_t b64_len,
                             const char *ignore, size_t *bin_len, const char **end, int variant)
{
    int rc = __real_sodium_base642bin(bin, bin_max, b64, b64_len, ignore, bin_len, end, variant);
    if (rc == 0)
        (void)VALGRIND_MAKE_MEM_UNDEFINED(bin, bin_max);
    return rc;
}

#define AEAD_COMBINED(name)                                                                        \
    int __real_##name##_encrypt(                                                                   \
        unsigned char *c, unsigned long long *c_len, const unsigned char *m,                       \
        unsigned long long m_len, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *none, const unsigned char *nonce, const unsigned char *k);            \
    int __wrap_##name##_encrypt(                                                                   \
        unsigned char *c, unsigned long long *c_len, const unsigned char *m,                       \
        unsigned long long m_len, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *none, const unsigned char *nonce, const unsigned char *k);            \
    int __wrap_##name##_encrypt(                                                                   \
        unsigned char *c, unsigned long long *c_len, const unsigned char *m,                       \
        unsigned long long m_len, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *none, const unsigned char *nonce, const unsigned char *k)             \
    {                                                                                              \
        int rc = __real_##name##_encrypt(c, c_len, m, m_len, ad, ad_len, none, nonce, k);          \
        (void)VALGRIND_MAKE_MEM_DEFINED(c, m_len + name##_ABYTES);                                 \
        return known(rc);                                                                          \
    }                                                                                              \
    int __real_##name##_decrypt(unsigned char *m, unsigned long long *m_len, unsigned char *none,  \
                                const unsigned char *c, unsigned long long c_len,                  \
                                const unsigned char *ad, unsigned long long ad_len,                \
                                const unsigned char *nonce, const unsigned char *k);               \
    int __wrap_##name##_decrypt(unsigned char *m, unsigned long long *m_len, unsigned char *none,  \
                                const unsigned char *c, unsigned long long c_len,                  \
                                const unsigned char *ad, unsigned long long ad_len,                \
                                const unsigned char *nonce, const unsigned char *k);               \
    int __wrap_##name##_decrypt(unsigned char *m, unsigned long long *m_len, unsigned char *none,  \
                                const unsigned char *c, unsigned long long c_len,                  \
                                const unsigned char *ad, unsigned long long ad_len,                \
                                const unsigned char *nonce, const unsigned char *k)                \
    {                                                                                              \
        int rc = known(__real_##name##_decrypt(m, m_len, none, c, c_len, ad, ad_len, nonce, k));   \
        if (rc == 0)                                                                               \
            (void)VALGRIND_MAKE_MEM_DEFINED(m, c_len - name##_ABYTES);                             \
        return rc;                                                                                 \
    }
AEAD_COMBINED(crypto_aead_chacha20poly1305_ietf)

#define AEAD_DETACHED(name, after, tag_bytes, key_type)                                            \
    int __real_##name##_encrypt_detached##after(                                                   \
        unsigned char *c, unsigned char *mac, unsigned long long *mac_len, const unsigned char *m, \
        unsigned long long m_len, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *none, const unsigned char *nonce, key_type k);                        \
    int __wrap_##name##_encrypt_detached##after(                                                   \
        unsigned char *c, unsigned char *mac, unsigned long long *mac_len, const unsigned char *m, \
        unsigned long long m_len, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *none, const unsigned char *nonce, key_type k);                        \
    int __wrap_##name##_encrypt_detached##after(                                                   \
        unsigned char *c, unsigned char *mac, unsigned long long *mac_len, const unsigned char *m, \
        unsigned long long m_len, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *none, const unsigned char *nonce, key_type k)                         \
    {                                                                                              \
        int rc = __real_##name##_encrypt_detached##after(c, mac, mac_len, m, m_len, ad, ad_len,    \
                                                         none, nonce, k);                          \
        (void)VALGRIND_MAKE_MEM_DEFINED(c, m_len);                                                 \
        (void)VALGRIND_MAKE_MEM_DEFINED(mac, tag_bytes);                                           \
        return known(rc);                                                                          \
    }                                                                                              \
    int __real_##name##_decrypt_detached##after(                                                   \
        unsigned char *m, unsigned char *none, const unsigned char *c, unsigned long long c_len,   \
        const unsigned char *mac, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *nonce, key_type k);                                                   \
    int __wrap_##name##_decrypt_detached##after(                                                   \
        unsigned char *m, unsigned char *none, const unsigned char *c, unsigned long long c_len,   \
        const unsigned char *mac, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *nonce, key_type k);                                                   \
    int __wrap_##name##_decrypt_detached##after(                                                   \
        unsigned char *m, unsigned char *none, const unsigned char *c, unsigned long long c_len,   \
        const unsigned char *mac, const unsigned char *ad, unsigned long long ad_len,              \
        const unsigned char *nonce, key_type k)                                                    \
    {                                                                                              \
        int rc = known(__real_##name##_decrypt_detached##after(m, none, c, c_len, mac, ad, ad_len, \
                                                               nonce, k));                         \
        (void)VALGRIND_MAKE_MEM_DEFINED(m, c_len); /* 0, when it is not authentic */               \
        return rc;                                                                                 \
    }
AEAD_DETACHED(crypto_aead_chacha20poly1305_ietf, , crypto_aead_chacha20poly1305_ietf_ABYTES,
              const unsigned char *)
AEAD_DETACHED(crypto_aead_aes256gcm, _afternm, crypto_aead_aes256gcm_ABYTES,
              const crypto_aead_aes256gcm_state *)

static bool chosen(const char *name)
{
    char patterns[512];
    const char *all = getenv("CT_TESTS");
    bool is = false;
    if (!all || strlen(all) >= sizeof patterns)
        abort();
    strcpy(patterns, all);
    for (char *one = strtok(patterns, " "); one; one = strtok(NULL, " "))
        is |= fnmatch(one, name, 0) == 0;
    return is;
}

int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    static struct CMUnitTest some[256];
    size_t count = 0;
    if (n > sizeof some / sizeof *some)
        abort();
    for (size_t i = 0; i < n; i++) {
        if (chosen(tests[i].name))
            some[count++] = tests[i];
    }
    return __real__cmocka_run_group_tests(group, some, count, setup, teardown);
}
