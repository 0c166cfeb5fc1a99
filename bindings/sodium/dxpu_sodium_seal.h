/* dxpu_sodium_seal.h - the keys of one channel and what they seal; part of dxpu_sodium.c
   SPDX-License-Identifier: MIT */
#ifndef DXPU_SODIUM_SEAL_H_INCLUDED
#define DXPU_SODIUM_SEAL_H_INCLUDED

#include "dxpu_sodium.h"

#include <sodium.h>

enum { SEAL_SECRET_BYTES = 32 };
/* One key never seals more: far below where any of the suites becomes weak (S-43). */
#define SEAL_BYTES_MAX ((uint64_t)1 << 38)

typedef struct seal_key {
    union {
        uint8_t bytes[32];
        crypto_aead_aes256gcm_state gcm; /* expanded */
    } u;
    bool set;
} seal_key;

typedef struct seal_aead seal_aead;

/* What is sent: one key. */
typedef struct seal_sender {
    uint8_t secret[SEAL_SECRET_BYTES]; /* of this phase; the next one's comes from it */
    seal_key key;
    uint64_t phase, bytes;
    uint64_t next; /* packet number, at least */
} seal_sender;

/* What is received: the key before, the key, and the key after, which the peer may begin with. */
typedef struct seal_receiver {
    uint8_t secret[SEAL_SECRET_BYTES]; /* of the key after */
    seal_key before, key, after;
    uint64_t phase; /* of key */
    bool moved;     /* the peer began a phase; nobody has looked at the clock since */
} seal_receiver;

typedef struct seal {
    const seal_aead *aead;
    seal_sender tx;
    seal_receiver rx;
} seal;

/* What all keys of a channel come from (S-41). */
typedef struct seal_context {
    const uint8_t *split[2]; /* keys of the handshake: the initiator's, the responder's */
    const uint8_t *hash;
    uint16_t suite;
    uint64_t epoch;
    uint32_t channel[2]; /* ids of initiator and responder */
} seal_context;

/* Keys of phase 0 for the one end. */
void seal_begin(seal *s, const seal_context *c, bool initiator);
/* As dxpu_suite says; true when done. */
bool seal_seal(seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
               size_t body_bytes);
bool seal_open(seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
               size_t body_bytes);
/* Begin the next phase of what is sent; its number's low two bits go into frames. */
uint8_t seal_next_phase(seal *s);
/* The receiver's key before is needed no more. */
void seal_forget(seal *s);
size_t seal_tag_bytes(const seal *s);
uint16_t seal_suite(const seal *s);

#endif /* DXPU_SODIUM_SEAL_H_INCLUDED */
