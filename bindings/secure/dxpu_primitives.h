/* dxpu_primitives.h - the table of functions that the handshake and the sealing compute with
   SPDX-License-Identifier: MIT

   bindings/secure knows what is computed (spec/security.md), a table how: dxpu_sodium_primitives()
   of bindings/sodium by libsodium, dxpu_portable_primitives() of bindings/portable in plain C, or a
   product's own over its hardware.  No function of a table may branch or address memory by a secret
   (S-113).  All return at once and cannot fail, but for agree() and decrypt(). */
#ifndef DXPU_PRIMITIVES_H_INCLUDED
#define DXPU_PRIMITIVES_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DXPU_KEY_BYTES = 32, DXPU_TAG_MAX_BYTES = 32, DXPU_NONCE_MAX_BYTES = 32 };

/* An AEAD, in place.  tag: tag_bytes, written by encrypt() and compared by decrypt(). */
typedef struct dxpu_aead {
    uint16_t suite; /* DXPU_SUITE_*: one bit */
    uint8_t tag_bytes, nonce_bytes;
    uint16_t state_bytes; /* of a key as expand() makes it, aligned to 16 */
    void (*expand)(void *state, const uint8_t key[DXPU_KEY_BYTES]);
    void (*encrypt)(const void *state, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                    size_t body_bytes, uint8_t *tag);
    /* False, and the body means nothing, when the tag does not match. */
    bool (*decrypt)(const void *state, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                    size_t body_bytes, const uint8_t *tag);
} dxpu_aead;

typedef struct dxpu_primitives {
    /* Unpredictable bytes: keys, cookies and nonces come from them. */
    void (*random)(void *user, uint8_t *out, size_t bytes);
    void *user; /* of random() */
    /* X25519 (RFC 7748): of a secret and the base point, or another's public key.  agree() is false
       when the result is zero: the public key was one of the few whose multiples are known. */
    void (*public_key)(uint8_t out[DXPU_KEY_BYTES], const uint8_t secret[DXPU_KEY_BYTES]);
    bool (*agree)(uint8_t out[DXPU_KEY_BYTES], const uint8_t secret[DXPU_KEY_BYTES],
                  const uint8_t remote[DXPU_KEY_BYTES]);
    /* BLAKE2b (RFC 7693) of `count` parts, one behind the other; out_bytes 1..64, key.len 0..64. */
    void (*hash)(uint8_t *out, size_t out_bytes, dxpu_bytes key, const dxpu_bytes *parts,
                 unsigned count);
    /* HChaCha20: the key that XChaCha20 goes on with. */
    void (*hchacha20)(uint8_t out[DXPU_KEY_BYTES], const uint8_t in[16],
                      const uint8_t key[DXPU_KEY_BYTES]);
    bool (*equal)(const uint8_t *a, const uint8_t *b, size_t bytes);
    void (*wipe)(void *p, size_t bytes); /* which no compiler leaves out */
    /* Wipe what functions of this table, and those of bindings/secure that call them, left on the
       stack below the caller (S-20). */
    void (*wipe_stack)(void);
    /* The first is ChaCha20-Poly1305 (RFC 8439), whose state is the key itself. */
    const dxpu_aead *aeads;
    unsigned aead_count;
} dxpu_primitives;

#ifdef __cplusplus
}
#endif
#endif /* DXPU_PRIMITIVES_H_INCLUDED */
