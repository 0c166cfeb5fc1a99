/* dxpu_sodium_seal.c - see dxpu_sodium_seal.h
   SPDX-License-Identifier: MIT */
#include "dxpu_sodium_seal.h"

enum { NONCE_MAX_BYTES = 32 };

/* ==== AEADs =================================================================================== */

struct seal_aead {
    uint16_t suite;
    uint8_t tag_bytes, nonce_bytes;
    void (*expand)(seal_key *k, const uint8_t secret[32]);
    void (*encrypt)(const seal_key *k, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                    size_t body_bytes);
    bool (*decrypt)(const seal_key *k, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                    size_t body_bytes);
};

static void expand_plain(seal_key *k, const uint8_t secret[32])
{
    memcpy(k->u.bytes, secret, sizeof k->u.bytes);
}

static void expand_gcm(seal_key *k, const uint8_t secret[32])
{
    crypto_aead_aes256gcm_beforenm(&k->u.gcm, secret);
}

/* A suite whose functions take the key itself; a shorter key is the first bytes of ours. */
#define SEAL_PLAIN(prefix)                                                                         \
    static void encrypt_##prefix(const seal_key *k, const uint8_t *nonce, dxpu_bytes header,       \
                                 uint8_t *body, size_t body_bytes)                                 \
    {                                                                                              \
        crypto_aead_##prefix##_encrypt_detached(body, body + body_bytes, NULL, body, body_bytes,   \
                                                header.ptr, header.len, NULL, nonce, k->u.bytes);  \
    }                                                                                              \
    static bool decrypt_##prefix(const seal_key *k, const uint8_t *nonce, dxpu_bytes header,       \
                                 uint8_t *body, size_t body_bytes)                                 \
    {                                                                                              \
        return crypto_aead_##prefix##_decrypt_detached(body, NULL, body, body_bytes,               \
                                                       body + body_bytes, header.ptr, header.len,  \
                                                       nonce, k->u.bytes) == 0;                    \
    }

SEAL_PLAIN(chacha20poly1305_ietf)
#ifdef crypto_aead_aegis128l_KEYBYTES /* libsodium 1.0.19 and later */
#if crypto_aead_aegis128l_ABYTES != 32 || crypto_aead_aegis256_ABYTES != 32
#error "this libsodium has AEGIS with other tags than S-40; use a release, 1.0.19 or later"
#endif
#define SEAL_AEGIS 1
SEAL_PLAIN(aegis128l)
SEAL_PLAIN(aegis256)
#else
#define SEAL_AEGIS 0
#endif

static void encrypt_gcm(const seal_key *k, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                        size_t body_bytes)
{
    crypto_aead_aes256gcm_encrypt_detached_afternm(body, body + body_bytes, NULL, body, body_bytes,
                                                   header.ptr, header.len, NULL, nonce, &k->u.gcm);
}

static bool decrypt_gcm(const seal_key *k, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                        size_t body_bytes)
{
    return crypto_aead_aes256gcm_decrypt_detached_afternm(body, NULL, body, body_bytes,
                                                          body + body_bytes, header.ptr, header.len,
                                                          nonce, &k->u.gcm) == 0;
}

static const seal_aead aeads[] = {
    { DXPU_SUITE_CHACHA20_POLY1305, crypto_aead_chacha20poly1305_ietf_ABYTES,
      crypto_aead_chacha20poly1305_ietf_NPUBBYTES, expand_plain, encrypt_chacha20poly1305_ietf,
      decrypt_chacha20poly1305_ietf },
    { DXPU_SUITE_AES_256_GCM, crypto_aead_aes256gcm_ABYTES, crypto_aead_aes256gcm_NPUBBYTES,
      expand_gcm, encrypt_gcm, decrypt_gcm },
#if SEAL_AEGIS
    { DXPU_SUITE_AEGIS_128L, crypto_aead_aegis128l_ABYTES, crypto_aead_aegis128l_NPUBBYTES,
      expand_plain, encrypt_aegis128l, decrypt_aegis128l },
    { DXPU_SUITE_AEGIS_256, crypto_aead_aegis256_ABYTES, crypto_aead_aegis256_NPUBBYTES,
      expand_plain, encrypt_aegis256, decrypt_aegis256 },
#endif
};

/* libsodium computes AEGIS without the processor's help as well, many times slower. */
static bool aes_hardware(void)
{
#if SEAL_AEGIS
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

static const seal_aead *aead_of(uint16_t suite)
{
    const seal_aead *found = NULL;
    for (unsigned i = 0; i < sizeof aeads / sizeof aeads[0]; i++)
        found = aeads[i].suite == suite ? &aeads[i] : found;
    return found;
}

/* ==== Derivation ============================================================================== */

static void put_be(uint8_t *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

/* The secret of one direction's phase 0. */
static void derive_first(const seal_context *c, unsigned direction, uint8_t out[SEAL_SECRET_BYTES])
{
    static const char label[] = "dxpu transport 1";
    crypto_generichash_state state;
    uint8_t numbers[19];
    put_be(numbers, c->suite, 2);
    put_be(numbers + 2, c->epoch, 8);
    put_be(numbers + 10, c->channel[0], 4);
    put_be(numbers + 14, c->channel[1], 4);
    numbers[18] = (uint8_t)direction;
    crypto_generichash_init(&state, c->split[direction], DXPU_NOISE_KEY_BYTES, SEAL_SECRET_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)label, sizeof label - 1);
    crypto_generichash_update(&state, c->hash, DXPU_NOISE_HASH_BYTES);
    crypto_generichash_update(&state, numbers, sizeof numbers);
    crypto_generichash_final(&state, out, SEAL_SECRET_BYTES);
    sodium_memzero(&state, sizeof state);
}

/* What a phase's secret gives under a label of four letters; out may be the secret. */
static void derive(const uint8_t secret[SEAL_SECRET_BYTES], const char *label, uint64_t phase,
                   uint8_t out[SEAL_SECRET_BYTES])
{
    uint8_t text[12], result[SEAL_SECRET_BYTES];
    memcpy(text, label, 4);
    put_be(text + 4, phase, 8);
    crypto_generichash(result, sizeof result, text, sizeof text, secret, SEAL_SECRET_BYTES);
    memcpy(out, result, sizeof result);
    sodium_memzero(result, sizeof result);
}

static void make_key(const seal_aead *aead, const uint8_t secret[SEAL_SECRET_BYTES], uint64_t phase,
                     seal_key *k)
{
    uint8_t bytes[SEAL_SECRET_BYTES];
    derive(secret, "key ", phase, bytes);
    aead->expand(k, bytes);
    k->set = true;
    sodium_memzero(bytes, sizeof bytes);
}

void seal_begin(seal *s, const seal_context *c, bool initiator)
{
    uint8_t secret[SEAL_SECRET_BYTES];
    sodium_memzero(s, sizeof *s);
    s->aead = aead_of(c->suite);
    derive_first(c, initiator ? 0 : 1, s->tx.secret);
    make_key(s->aead, s->tx.secret, 0, &s->tx.key);
    derive_first(c, initiator ? 1 : 0, secret);
    make_key(s->aead, secret, 0, &s->rx.key);
    derive(secret, "next", 1, s->rx.secret);
    make_key(s->aead, s->rx.secret, 1, &s->rx.after);
    sodium_memzero(secret, sizeof secret);
    sodium_stackzero(DXPU_NOISE_STACK_BYTES);
}

/* ==== Frames ================================================================================== */

static void make_nonce(const seal *s, uint64_t packet, uint8_t nonce[NONCE_MAX_BYTES])
{
    memset(nonce, 0, NONCE_MAX_BYTES);
    put_be(nonce + s->aead->nonce_bytes - 8, packet, 8);
}

size_t seal_tag_bytes(const seal *s)
{
    return s->aead->tag_bytes;
}

uint16_t seal_suite(const seal *s)
{
    return s->aead->suite;
}

bool seal_seal(seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
               size_t body_bytes)
{
    uint8_t n[NONCE_MAX_BYTES];
    uint64_t bytes = header.len + body_bytes + s->aead->tag_bytes;
    if (key_phase != (s->tx.phase & 3) || bytes > SEAL_BYTES_MAX - s->tx.bytes)
        return false;
    if (nonce < s->tx.next || nonce == UINT64_MAX)
        return false; /* a second channel with these keys would lay them bare (S-42) */
    s->tx.next = nonce + 1;
    s->tx.bytes += bytes;
    make_nonce(s, nonce, n);
    s->aead->encrypt(&s->tx.key, n, header, body, body_bytes);
    return true;
}

/* The peer has begun the next phase. */
static void advance(seal *s)
{
    seal_receiver *r = &s->rx;
    r->before = r->key;
    r->key = r->after;
    r->phase++;
    derive(r->secret, "next", r->phase + 1, r->secret);
    make_key(s->aead, r->secret, r->phase + 1, &r->after);
    r->moved = true;
    sodium_stackzero(DXPU_NOISE_STACK_BYTES);
}

bool seal_open(seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
               size_t body_bytes)
{
    uint8_t n[NONCE_MAX_BYTES];
    unsigned ahead = (key_phase - (unsigned)(s->rx.phase & 3)) & 3;
    const seal_key *k = ahead == 0   ? &s->rx.key
                        : ahead == 1 ? &s->rx.after
                        : ahead == 3 ? &s->rx.before
                                     : NULL;
    if (!k || !k->set)
        return false;
    make_nonce(s, nonce, n);
    if (!s->aead->decrypt(k, n, header, body, body_bytes))
        return false;
    if (ahead == 1)
        advance(s);
    return true;
}

uint8_t seal_next_phase(seal *s)
{
    s->tx.phase++;
    s->tx.bytes = 0;
    s->tx.next = 0;
    derive(s->tx.secret, "next", s->tx.phase, s->tx.secret);
    make_key(s->aead, s->tx.secret, s->tx.phase, &s->tx.key);
    sodium_stackzero(DXPU_NOISE_STACK_BYTES);
    return (uint8_t)(s->tx.phase & 3);
}

void seal_forget(seal *s)
{
    sodium_memzero(&s->rx.before, sizeof s->rx.before);
    sodium_stackzero(DXPU_NOISE_STACK_BYTES);
}
