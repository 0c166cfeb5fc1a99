/* dxpu_noise.h - the Noise handshakes IK and XX over X25519, ChaCha20-Poly1305 and BLAKE2b
   SPDX-License-Identifier: MIT

   As the Noise Protocol Framework, revision 34, defines Noise_IK_25519_ChaChaPoly_BLAKE2b and
   Noise_XX_25519_ChaChaPoly_BLAKE2b: no pre-shared keys, no other modifiers.

       dxpu_noise_start(&n, primitives, DXPU_NOISE_IK, true, &own, remote_public, prologue);
       dxpu_noise_write(&n, payload, out, sizeof out, &bytes);   the initiator's turn first,
       dxpu_noise_read(&n, message, in, sizeof in, &bytes);      then alternating,
       dxpu_noise_split(&n, first, second, hash);                until no message is left

   Nothing is allocated.  A dxpu_noise holds secrets: keep it in locked memory, and wipe it. */
#ifndef DXPU_NOISE_H_INCLUDED
#define DXPU_NOISE_H_INCLUDED

#include "dxpu_primitives.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DXPU_NOISE_KEY_BYTES = DXPU_KEY_BYTES,
    DXPU_NOISE_HASH_BYTES = 64,
    DXPU_NOISE_TAG_BYTES = 16,
    DXPU_NOISE_MESSAGE_MAX_BYTES = 65535
};

/* Patterns. */
enum {
    DXPU_NOISE_IK, /* two messages; the initiator knows the responder's public key */
    DXPU_NOISE_XX  /* three messages; neither knows the other's */
};

/* A Diffie-Hellman key pair. */
typedef struct dxpu_noise_pair {
    uint8_t secret[DXPU_NOISE_KEY_BYTES];
    uint8_t public_key[DXPU_NOISE_KEY_BYTES];
} dxpu_noise_pair;

/* Draw a new pair; or compute the public key of a secret. */
void dxpu_noise_pair_new(const dxpu_primitives *with, dxpu_noise_pair *p);
void dxpu_noise_pair_of(const dxpu_primitives *with, dxpu_noise_pair *p,
                        const uint8_t secret[DXPU_NOISE_KEY_BYTES]);

/* The handshake at one end.  Private, but for what the functions below return. */
typedef struct dxpu_noise {
    const dxpu_primitives *with;
    uint8_t pattern;
    bool initiator;
    uint8_t messages, next; /* how many, 0 when wiped; the next one, from 0 */
    bool keyed;             /* key is set */
    uint64_t nonce;
    uint8_t hash[DXPU_NOISE_HASH_BYTES], chain[DXPU_NOISE_HASH_BYTES];
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    dxpu_noise_pair own, ephemeral;
    uint8_t remote[DXPU_NOISE_KEY_BYTES], remote_ephemeral[DXPU_NOISE_KEY_BYTES];
} dxpu_noise;

/* Begin.
   with    stays the caller's, and is used until the handshake is wiped
   remote  the responder's public key: for IK at the initiator, else NULL
   Returns DXPU_OK, or E_ARG for a pattern that does not exist or a remote key where none belongs or
   none where one does. */
int dxpu_noise_start(dxpu_noise *n, const dxpu_primitives *with, unsigned pattern, bool initiator,
                     const dxpu_noise_pair *own, const uint8_t *remote, dxpu_bytes prologue);
/* What the next message has beside its payload, in bytes; 0 when none is left. */
size_t dxpu_noise_overhead(const dxpu_noise *n);
/* Write the next message, with `payload` in it: out[0..*bytes).
   DXPU_OK; E_STATE when it is not our turn; E_ROOM; E_CRC for a public key of the peer that gives
   no secret.  Nothing changes unless it is DXPU_OK. */
int dxpu_noise_write(dxpu_noise *n, dxpu_bytes payload, uint8_t *out, size_t cap, size_t *bytes);
/* Read the peer's next message; its payload goes to payload[0..*bytes).
   DXPU_OK; E_STATE when it is our turn; E_SHORT, E_LENGTH; E_ROOM; E_CRC when it is not authentic.
   Nothing changes unless it is DXPU_OK: a forged message ends no handshake. */
int dxpu_noise_read(dxpu_noise *n, dxpu_bytes message, uint8_t *payload, size_t cap, size_t *bytes);
/* True when no message is left, or it was wiped. */
bool dxpu_noise_done(const dxpu_noise *n);
/* The peer's public key, as far as it is known: IK's initiator from the start, IK's responder after
   the first message, XX after the second and the third. */
const uint8_t *dxpu_noise_remote(const dxpu_noise *n);
/* After the last message: the keys of what the initiator sends, of what the responder sends, and
   the handshake hash.  The handshake is wiped.  DXPU_OK, or E_STATE before that and once wiped. */
int dxpu_noise_split(dxpu_noise *n, uint8_t initiator[DXPU_NOISE_KEY_BYTES],
                     uint8_t responder[DXPU_NOISE_KEY_BYTES], uint8_t hash[DXPU_NOISE_HASH_BYTES]);
void dxpu_noise_wipe(dxpu_noise *n);
/* HMAC-BLAKE2b of two parts, of which one may be empty: the hash of the key schedule. */
void dxpu_noise_hmac(const dxpu_primitives *with, const uint8_t key[DXPU_NOISE_HASH_BYTES],
                     dxpu_bytes a, dxpu_bytes b, uint8_t out[DXPU_NOISE_HASH_BYTES]);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_NOISE_H_INCLUDED */
