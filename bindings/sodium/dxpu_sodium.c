/* dxpu_sodium.c - see dxpu_sodium.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mlock2(), madvise() */
#endif
#include "dxpu_sodium.h"

#include <sodium.h>
#include <sys/mman.h>
#include <unistd.h>

/* libsodium's functions leave parts of keys on the stack, which is not locked: so much of what lies
   below the caller is wiped, of which they use less (S-20). */
enum { STACK_BYTES = 8192 };

/* Before a dxpu_sodium: the pages that it is in. */
typedef struct block {
    uint8_t *pages; /* the first and the last cannot be reached */
    size_t bytes;   /* of all */
    bool locked;
} block;
enum { HEAD_BYTES = (sizeof(block) + 15) & ~15u }; /* as a dxpu_sodium is aligned */

/* ==== AEADs =================================================================================== */

static void expand_plain(void *state, const uint8_t key[DXPU_KEY_BYTES])
{
    memcpy(state, key, DXPU_KEY_BYTES);
}

static void expand_gcm(void *state, const uint8_t key[DXPU_KEY_BYTES])
{
    crypto_aead_aes256gcm_beforenm(state, key);
}

/* A suite whose functions take the key itself; a shorter key is the first bytes of ours. */
#define SODIUM_PLAIN(prefix)                                                                       \
    static void encrypt_##prefix(const void *state, const uint8_t *nonce, dxpu_bytes header,       \
                                 uint8_t *body, size_t body_bytes, uint8_t *tag)                   \
    {                                                                                              \
        crypto_aead_##prefix##_encrypt_detached(body, tag, NULL, body, body_bytes, header.ptr,     \
                                                header.len, NULL, nonce, state);                   \
    }                                                                                              \
    static bool decrypt_##prefix(const void *state, const uint8_t *nonce, dxpu_bytes header,       \
                                 uint8_t *body, size_t body_bytes, const uint8_t *tag)             \
    {                                                                                              \
        return crypto_aead_##prefix##_decrypt_detached(body, NULL, body, body_bytes, tag,          \
                                                       header.ptr, header.len, nonce, state) == 0; \
    }

SODIUM_PLAIN(chacha20poly1305_ietf)
#ifdef crypto_aead_aegis128l_KEYBYTES /* libsodium 1.0.19 and later */
#if crypto_aead_aegis128l_ABYTES != 32 || crypto_aead_aegis256_ABYTES != 32
#error "this libsodium has AEGIS with other tags than S-40; use a release, 1.0.19 or later"
#endif
#define SODIUM_AEGIS 1
SODIUM_PLAIN(aegis128l)
SODIUM_PLAIN(aegis256)
#else
#define SODIUM_AEGIS 0
#endif

static void encrypt_gcm(const void *state, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                        size_t body_bytes, uint8_t *tag)
{
    crypto_aead_aes256gcm_encrypt_detached_afternm(body, tag, NULL, body, body_bytes, header.ptr,
                                                   header.len, NULL, nonce, state);
}

static bool decrypt_gcm(const void *state, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                        size_t body_bytes, const uint8_t *tag)
{
    return crypto_aead_aes256gcm_decrypt_detached_afternm(
               body, NULL, body, body_bytes, tag, header.ptr, header.len, nonce, state) == 0;
}

static const dxpu_aead library_aeads[] = {
    { DXPU_SUITE_CHACHA20_POLY1305, crypto_aead_chacha20poly1305_ietf_ABYTES,
      crypto_aead_chacha20poly1305_ietf_NPUBBYTES, DXPU_KEY_BYTES, expand_plain,
      encrypt_chacha20poly1305_ietf, decrypt_chacha20poly1305_ietf },
    { DXPU_SUITE_AES_256_GCM, crypto_aead_aes256gcm_ABYTES, crypto_aead_aes256gcm_NPUBBYTES,
      sizeof(crypto_aead_aes256gcm_state), expand_gcm, encrypt_gcm, decrypt_gcm },
#if SODIUM_AEGIS
    { DXPU_SUITE_AEGIS_128L, crypto_aead_aegis128l_ABYTES, crypto_aead_aegis128l_NPUBBYTES,
      DXPU_KEY_BYTES, expand_plain, encrypt_aegis128l, decrypt_aegis128l },
    { DXPU_SUITE_AEGIS_256, crypto_aead_aegis256_ABYTES, crypto_aead_aegis256_NPUBBYTES,
      DXPU_KEY_BYTES, expand_plain, encrypt_aegis256, decrypt_aegis256 },
#endif
};

/* libsodium computes AEGIS without the processor's help as well, many times slower. */
static bool aes_hardware(void)
{
#if SODIUM_AEGIS
    return sodium_runtime_has_aesni() || sodium_runtime_has_armcrypto();
#else
    return false;
#endif
}

uint16_t dxpu_sodium_suites(void)
{
    unsigned suites = DXPU_SUITE_CHACHA20_POLY1305;
    if (crypto_aead_aes256gcm_is_available())
        suites |= DXPU_SUITE_AES_256_GCM;
    if (aes_hardware())
        suites |= DXPU_SUITE_AEGIS_128L | DXPU_SUITE_AEGIS_256;
    return (uint16_t)suites;
}

/* ==== The table =============================================================================== */

static void library_random(void *user, uint8_t *out, size_t bytes)
{
    (void)user;
    randombytes_buf(out, bytes);
}

static void library_public_key(uint8_t out[DXPU_KEY_BYTES], const uint8_t secret[DXPU_KEY_BYTES])
{
    crypto_scalarmult_base(out, secret);
}

static bool library_agree(uint8_t out[DXPU_KEY_BYTES], const uint8_t secret[DXPU_KEY_BYTES],
                          const uint8_t remote[DXPU_KEY_BYTES])
{
    return crypto_scalarmult(out, secret, remote) == 0;
}

static void library_hash(uint8_t *out, size_t out_bytes, dxpu_bytes key, const dxpu_bytes *parts,
                         unsigned count)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, key.ptr, key.len, out_bytes);
    for (unsigned i = 0; i < count; i++)
        crypto_generichash_update(&state, parts[i].ptr, parts[i].len);
    crypto_generichash_final(&state, out, out_bytes);
    sodium_memzero(&state, sizeof state);
}

static void library_hchacha20(uint8_t out[DXPU_KEY_BYTES], const uint8_t in[16],
                              const uint8_t key[DXPU_KEY_BYTES])
{
    crypto_core_hchacha20(out, in, key, NULL);
}

static bool library_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    return sodium_memcmp(a, b, bytes) == 0;
}

static void library_wipe_stack(void)
{
    sodium_stackzero(STACK_BYTES);
}

const dxpu_primitives *dxpu_sodium_primitives(void)
{
    static const dxpu_primitives table = { library_random,
                                           NULL,
                                           library_public_key,
                                           library_agree,
                                           library_hash,
                                           library_hchacha20,
                                           library_equal,
                                           sodium_memzero,
                                           library_wipe_stack,
                                           library_aeads,
                                           sizeof library_aeads / sizeof library_aeads[0] };
    return &table;
}

/* ==== Life ==================================================================================== */

int dxpu_sodium_init(void)
{
    return sodium_init() < 0 ? DXPU_E_NONE : DXPU_OK;
}

/* As sodium_malloc(), but that one touches all of it: a box has room for the keys of thousands of
   channels, few of which are ever there.  Nor is there a canary ahead of the block: what writes
   before it within its first page, or less than 16 bytes behind it, is not found. */
static bool pages_open(block *b, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    uint8_t *at;
    b->bytes = inner + 2 * page;
    at = mmap(NULL, b->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    b->pages = at;
    at += page;
    if (mprotect(at, inner, PROT_READ | PROT_WRITE)) {
        (void)munmap(b->pages, b->bytes);
        return false;
    }
    (void)madvise(at, inner, MADV_DONTDUMP);
    b->locked = mlock2(at, inner, MLOCK_ONFAULT) == 0 || mlock(at, inner) == 0;
    return true;
}

static block *block_of(const dxpu_sodium *s)
{
    return (block *)(void *)((uintptr_t)s - HEAD_BYTES);
}

dxpu_sodium *dxpu_sodium_create(const dxpu_sodium_config *cfg)
{
    dxpu_sodium_config ours = *cfg;
    size_t bytes = dxpu_secure_bytes(cfg), all = HEAD_BYTES + ((bytes + 15) & ~(size_t)15);
    uint8_t *at;
    dxpu_sodium *s;
    block b;
    if (!bytes || !pages_open(&b, all))
        return NULL;
    at = b.pages + b.bytes - (size_t)sysconf(_SC_PAGESIZE) - all; /* its end is the last page */
    memcpy(at, &b, sizeof b);
    ours.suites &= dxpu_sodium_suites();
    s = dxpu_secure_init(at + HEAD_BYTES, bytes, &ours, dxpu_sodium_primitives());
    if (!s)
        (void)munmap(b.pages, b.bytes);
    return s;
}

void dxpu_sodium_destroy(dxpu_sodium *s)
{
    block b;
    if (!s)
        return;
    b = *block_of(s);
    dxpu_secure_wipe(s);
    (void)munmap(b.pages, b.bytes);
}

bool dxpu_sodium_locked(const dxpu_sodium *s)
{
    return block_of(s)->locked;
}
