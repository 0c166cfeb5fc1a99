/* dxpu_seal.c - see dxpu_seal.h
   SPDX-License-Identifier: MIT */
#include "dxpu_seal.h"

/* ==== Suites ================================================================================== */

uint16_t dxpu_seal_suites(const dxpu_primitives *with)
{
    unsigned suites = 0;
    for (unsigned i = 0; i < with->aead_count; i++) {
        if (with->aeads[i].state_bytes <= DXPU_SEAL_STATE_BYTES)
            suites |= with->aeads[i].suite;
    }
    return (uint16_t)suites;
}

static const dxpu_aead *aead_of(const dxpu_primitives *with, uint16_t suite)
{
    const dxpu_aead *found = NULL;
    for (unsigned i = 0; i < with->aead_count; i++)
        found = with->aeads[i].suite == suite ? &with->aeads[i] : found;
    return found;
}

/* ==== Derivation ============================================================================== */

/* The secret of one direction's phase 0. */
static void derive_first(const dxpu_primitives *with, const dxpu_seal_context *c,
                         unsigned direction, uint8_t out[SEAL_SECRET_BYTES])
{
    static const char label[] = "dxpu transport 1";
    uint8_t numbers[19];
    const dxpu_bytes key = { c->split[direction], DXPU_NOISE_KEY_BYTES };
    const dxpu_bytes parts[3] = { { (const uint8_t *)label, sizeof label - 1 },
                                  { c->hash, DXPU_NOISE_HASH_BYTES },
                                  { numbers, sizeof numbers } };
    dxpu_put_be16(numbers, c->suite);
    dxpu_put_be64(numbers + 2, c->epoch);
    dxpu_put_be32(numbers + 10, c->channel[0]);
    dxpu_put_be32(numbers + 14, c->channel[1]);
    numbers[18] = (uint8_t)direction;
    with->hash(out, SEAL_SECRET_BYTES, key, parts, 3);
}

/* What a phase's secret gives under a label of four letters; out may be the secret. */
static void derive(const dxpu_primitives *with, const uint8_t secret[SEAL_SECRET_BYTES],
                   const char *label, uint64_t phase, uint8_t out[SEAL_SECRET_BYTES])
{
    uint8_t text[12], result[SEAL_SECRET_BYTES];
    const dxpu_bytes key = { secret, SEAL_SECRET_BYTES }, part = { text, sizeof text };
    memcpy(text, label, 4);
    dxpu_put_be64(text + 4, phase);
    with->hash(result, sizeof result, key, &part, 1);
    memcpy(out, result, sizeof result);
    with->wipe(result, sizeof result);
}

void dxpu_seal_make_key(const dxpu_seal *s, const uint8_t secret[SEAL_SECRET_BYTES], uint64_t phase,
                        dxpu_seal_key *k)
{
    uint8_t bytes[SEAL_SECRET_BYTES];
    derive(s->with, secret, "key ", phase, bytes);
    s->aead->expand(k->state, bytes);
    k->set = true;
    s->with->wipe(bytes, sizeof bytes);
}

void dxpu_seal_begin(dxpu_seal *s, const dxpu_primitives *with, const dxpu_seal_context *c,
                     bool initiator)
{
    uint8_t secret[SEAL_SECRET_BYTES];
    with->wipe(s, sizeof *s);
    s->with = with;
    s->aead = aead_of(with, c->suite);
    derive_first(with, c, initiator ? 0 : 1, s->tx.secret);
    dxpu_seal_make_key(s, s->tx.secret, 0, &s->tx.key);
    derive_first(with, c, initiator ? 1 : 0, secret);
    dxpu_seal_make_key(s, secret, 0, &s->rx.key);
    derive(with, secret, "next", 1, s->rx.secret);
    dxpu_seal_make_key(s, s->rx.secret, 1, &s->rx.after);
    with->wipe(secret, sizeof secret);
    with->wipe_stack();
}

/* ==== Frames ================================================================================== */

static void make_nonce(const dxpu_seal *s, uint64_t packet, uint8_t nonce[DXPU_NONCE_MAX_BYTES])
{
    memset(nonce, 0, DXPU_NONCE_MAX_BYTES);
    dxpu_put_be64(nonce + s->aead->nonce_bytes - 8, packet);
}

size_t dxpu_seal_tag_bytes(const dxpu_seal *s)
{
    return s->aead->tag_bytes;
}

uint16_t dxpu_seal_suite(const dxpu_seal *s)
{
    return s->aead->suite;
}

bool dxpu_seal_frame(dxpu_seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                     uint8_t *body, size_t body_bytes)
{
    uint8_t n[DXPU_NONCE_MAX_BYTES];
    uint64_t bytes = header.len + body_bytes + s->aead->tag_bytes;
    if (key_phase != (s->tx.phase & 3) || bytes > SEAL_BYTES_MAX - s->tx.bytes)
        return false;
    if (nonce < s->tx.next || nonce == UINT64_MAX)
        return false; /* a second channel with these keys would lay them bare (S-42) */
    s->tx.next = nonce + 1;
    s->tx.bytes += bytes;
    make_nonce(s, nonce, n);
    s->aead->encrypt(s->tx.key.state, n, header, body, body_bytes, body + body_bytes);
    return true;
}

/* The peer has begun the next phase. */
static void advance(dxpu_seal *s)
{
    dxpu_seal_receiver *r = &s->rx;
    r->before = r->key;
    r->key = r->after;
    r->phase++;
    derive(s->with, r->secret, "next", r->phase + 1, r->secret);
    dxpu_seal_make_key(s, r->secret, r->phase + 1, &r->after);
    r->moved = true;
    s->with->wipe_stack();
}

bool dxpu_seal_unframe(dxpu_seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                       uint8_t *body, size_t body_bytes)
{
    uint8_t n[DXPU_NONCE_MAX_BYTES];
    unsigned ahead = (key_phase - (unsigned)(s->rx.phase & 3)) & 3;
    const dxpu_seal_key *k = ahead == 0   ? &s->rx.key
                             : ahead == 1 ? &s->rx.after
                             : ahead == 3 ? &s->rx.before
                                          : NULL;
    if (!k || !k->set)
        return false;
    make_nonce(s, nonce, n);
    if (!s->aead->decrypt(k->state, n, header, body, body_bytes, body + body_bytes))
        return false;
    if (ahead == 1)
        advance(s);
    return true;
}

uint8_t dxpu_seal_next_phase(dxpu_seal *s)
{
    s->tx.phase++;
    s->tx.bytes = 0;
    s->tx.next = 0;
    derive(s->with, s->tx.secret, "next", s->tx.phase, s->tx.secret);
    dxpu_seal_make_key(s, s->tx.secret, s->tx.phase, &s->tx.key);
    s->with->wipe_stack();
    return (uint8_t)(s->tx.phase & 3);
}

void dxpu_seal_forget(dxpu_seal *s)
{
    s->with->wipe(&s->rx.before, sizeof s->rx.before);
    s->with->wipe_stack();
}
