/* dxpu_seal.h - the keys of one channel and what they seal; part of dxpu_secure.c
   SPDX-License-Identifier: MIT */
#ifndef DXPU_SEAL_H_INCLUDED
#define DXPU_SEAL_H_INCLUDED

#include "dxpu_noise.h"

enum { SEAL_SECRET_BYTES = 32 };
/* One key never seals more: far below where any of the suites becomes weak (S-43). */
#define SEAL_BYTES_MAX ((uint64_t)1 << 38)

#ifndef DXPU_SEAL_STATE_BYTES /* of the largest expanded key: AES-256-GCM's of libsodium */
#define DXPU_SEAL_STATE_BYTES 512
#endif

typedef struct dxpu_seal_key {
    _Alignas(16) uint8_t state[DXPU_SEAL_STATE_BYTES]; /* as dxpu_aead.expand() made it */
    bool set;
} dxpu_seal_key;

/* What is sent: one key. */
typedef struct dxpu_seal_sender {
    uint8_t secret[SEAL_SECRET_BYTES]; /* of this phase; the next one's comes from it */
    dxpu_seal_key key;
    uint64_t phase, bytes;
    uint64_t next; /* packet number, at least */
} dxpu_seal_sender;

/* What is received: the key before, the key, and the key after, which the peer may begin with. */
typedef struct dxpu_seal_receiver {
    uint8_t secret[SEAL_SECRET_BYTES]; /* of the key after */
    dxpu_seal_key before, key, after;
    uint64_t phase; /* of key */
    bool moved;     /* the peer began a phase; the clock was not read since */
} dxpu_seal_receiver;

typedef struct dxpu_seal {
    const dxpu_primitives *with;
    const dxpu_aead *aead;
    dxpu_seal_sender tx;
    dxpu_seal_receiver rx;
} dxpu_seal;

/* What all keys of a channel come from (S-41). */
typedef struct dxpu_seal_context {
    const uint8_t *split[2]; /* keys of the handshake: the initiator's, the responder's */
    const uint8_t *hash;
    uint16_t suite;
    uint64_t epoch;
    uint32_t channel[2]; /* ids of initiator and responder */
} dxpu_seal_context;

/* Suites that a table has, and whose keys fit here. */
uint16_t dxpu_seal_suites(const dxpu_primitives *with);
/* Keys of phase 0 for the one end; the suite is one of dxpu_seal_suites(). */
void dxpu_seal_begin(dxpu_seal *s, const dxpu_primitives *with, const dxpu_seal_context *c,
                     bool initiator);
/* As dxpu_suite says; true when done. */
bool dxpu_seal_frame(dxpu_seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                     uint8_t *body, size_t body_bytes);
bool dxpu_seal_unframe(dxpu_seal *s, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                       uint8_t *body, size_t body_bytes);
/* The key of a phase, from the secret of that direction (S-41). */
void dxpu_seal_make_key(const dxpu_seal *s, const uint8_t secret[SEAL_SECRET_BYTES], uint64_t phase,
                        dxpu_seal_key *k);
/* Begin the next phase of what is sent; its number's low two bits go into frames. */
uint8_t dxpu_seal_next_phase(dxpu_seal *s);
/* The receiver's key before is needed no more. */
void dxpu_seal_forget(dxpu_seal *s);
size_t dxpu_seal_tag_bytes(const dxpu_seal *s);
uint16_t dxpu_seal_suite(const dxpu_seal *s);

#endif /* DXPU_SEAL_H_INCLUDED */
