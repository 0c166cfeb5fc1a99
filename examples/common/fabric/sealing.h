/* sealing.h - the keys of a port's channels: handshakes within a budget, and who is refused
   SPDX-License-Identifier: MIT

   Between fabric.h, which has the channels, and dxpu_sodium.h, which has their keys.  It belongs to
   the thread of its port. */
#ifndef SEALING_H_INCLUDED
#define SEALING_H_INCLUDED

#include "keys.h"
#include "stats.h"

#include <sodium.h>

/* PASSING: because one that is known names it. */
typedef enum sealing_known { SEALING_STRANGER, SEALING_KNOWN, SEALING_PASSING } sealing_known;

typedef struct sealing_callbacks {
    void *user;
    /* May a public key open channels that --peer and --peers do not name?  NULL: none may. */
    sealing_known (*known)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
    /* dxpu_sodium_callbacks.authorize, of a key that is known; NULL: none may begin. */
    uint8_t (*authorize)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES],
                         const dxpu_sodium_request *request, uint32_t *channel);
} sealing_callbacks;

#define SEALING_COUNTERS(X)                                                                        \
    X(late, "handshake and open frames dropped: they had their share of the time")                 \
    X(plain_opens, "opens without keys, refused: this end has them")                               \
    X(plain_here, "handshakes refused: this end is --plain")                                       \
    X(revoked, "channels ended: their key is no longer authorized for them")
#define SEALING_FIELD(name, text) uint64_t name;
typedef struct sealing_counters {
    SEALING_COUNTERS(SEALING_FIELD)
} sealing_counters;
#undef SEALING_FIELD

typedef struct sealing {
    keys *keys;
    sealing_callbacks cb;
    dxpu_sodium *end; /* NULL: --plain */
    dxpu_sodium_peer peer;
    dxpu_secure_budget budget;                   /* of handshakes beside channels (S-98) */
    unsigned told;                               /* bits of causes */
    unsigned strangers;                          /* logged */
    uint8_t stranger[DXPU_NOISE_KEY_BYTES];      /* the last of them */
    uint8_t hash_key[crypto_shorthash_KEYBYTES]; /* of addresses */
    sealing_counters count;
} sealing;

/* sessions: at most, pending ones included.  0, or -1 after a message. */
int sealing_open(sealing *z, keys *k, unsigned sessions, unsigned pending, uint64_t rekey_ns,
                 const sealing_callbacks *cb);
void sealing_close(sealing *z);
/* When sealing_work() has something to do, or earlier; DXPU_NEVER: nothing. */
uint64_t sealing_next_ns(const sealing *z);
/* Forget the keys of handshakes whose open has not arrived in time (S-14). */
void sealing_work(sealing *z, uint64_t now_ns);
/* As dxpu_sodium_ingest(), for whoever is at `from`.
   busy   channels are up, which must not wait for handshakes */
int sealing_ingest(sealing *z, uint64_t now_ns, dxpu_bytes datagram, const dxpu_udp_address *from,
                   bool busy, uint8_t *answer, size_t cap, size_t *bytes,
                   dxpu_sodium_session **session);
/* As dxpu_sodium_opener(); busy as above: looking for the session is part of the handshake, and has
   a share of its time. */
dxpu_sodium_session *sealing_opener(sealing *z, uint64_t now_ns, dxpu_bytes datagram,
                                    const dxpu_udp_address *from, bool busy, dxpu_offer *offer);
/* A handshake has arrived, and here are no keys. */
void sealing_plain_here(sealing *z, const dxpu_udp_address *from);
void sealing_report(const sealing *z, report *r);

#endif /* SEALING_H_INCLUDED */
