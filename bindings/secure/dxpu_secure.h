/* dxpu_secure.h - keys between proxies: the handshake and sealed frames, over a table of primitives
   SPDX-License-Identifier: MIT

   Two proxies that know each other's public keys agree on keys by a handshake of two messages
   (Noise IK) before a channel is opened; from its open frame on every frame of the channel is
   sealed.  The wire format, and what it defends against, are in spec/security.md (S-n).

       host                                            box
       x = dxpu_secure_begin(...)
       dxpu_secure_initiate(x, ...)  -- initiation -->  dxpu_secure_ingest()
       dxpu_secure_ingest()          <-- cookie ------
                                     -- initiation -->  dxpu_secure_ingest()
       dxpu_secure_ingest()          <-- response ----
       cfg.suite = dxpu_secure_suite(x), cfg.suite_user = x
       dxpu_channel_open()           -- open, sealed -> x = dxpu_secure_opener()

   A dxpu_secure is one end: an identity and its sessions.  It belongs to one thread; so do its
   sessions.  All secrets are in the caller's memory, which should be out of others' reach and
   never be written to a disk; they are wiped after use.

   No operating system, no allocation, no library but mem* and strlen: what is computed comes from a
   table (dxpu_primitives.h).  C11.

   CONTENTS   1 Suites   2 One end   3 Handshake   4 Sessions   5 Bounds   6 Counters */
#ifndef DXPU_SECURE_H_INCLUDED
#define DXPU_SECURE_H_INCLUDED

#include "dxpu_noise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Suites =============================================================================== */

/* Bits of an offer's suites, beside DXPU_SUITE_CRC (W-23, S-40). */
#define DXPU_SECURE_SUITES(X) /* name, bit, tag bytes, text; the best one first */                 \
    X(AEGIS_128L, 0x0008, 32, "aegis-128l")                                                        \
    X(AEGIS_256, 0x0010, 32, "aegis-256")                                                          \
    X(AES_256_GCM, 0x0004, 16, "aes-256-gcm")                                                      \
    X(CHACHA20_POLY1305, 0x0002, 16, "chacha20-poly1305")
#define DXPU_SECURE_ENUM(name, bit, tag, text) DXPU_SUITE_##name = (bit),
enum { DXPU_SECURE_SUITES(DXPU_SECURE_ENUM) };
#undef DXPU_SECURE_ENUM

const char *dxpu_secure_suite_name(uint16_t suite); /* "aes-256-gcm"; "?" for none */

/* ==== 2  One end ============================================================================== */

typedef struct dxpu_secure dxpu_secure;
typedef struct dxpu_secure_session dxpu_secure_session;

/* What the initiator asks for; authentic when a callback sees it. */
typedef struct dxpu_secure_request {
    uint32_t channel; /* under which the initiator receives, not 0 (W-21) */
    uint8_t version_min, version_max;
    uint16_t suites; /* DXPU_SUITE_*; never DXPU_SUITE_CRC */
    uint64_t epoch;  /* lease epoch, at least 1 */
    dxpu_place source, destination;
} dxpu_secure_request;

/* What a responder remembers of a peer: one for each public key it knows, zeros at first.  If it is
   lost (a restart), an old initiation can be replayed once; it leads to no sealed frame (S-14). */
typedef struct dxpu_secure_peer {
    uint64_t newest; /* the largest timestamp seen; written here, kept by the caller */
} dxpu_secure_peer;

typedef struct dxpu_secure_callbacks {
    void *user;
    /* The peer with this public key; NULL for a stranger, which gets no answer.  Without this
       callback (NULL) no peer may begin. */
    dxpu_secure_peer *(*find)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
    /* Remember this timestamp of the key, also where several ends share what they know of it.
       False: one as large has been seen, so the initiation is dropped.  Called once for each
       authentic initiation above peer->newest, before it is answered or refused.  NULL: true. */
    bool (*fresh)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp);
    /* Is the peer authorized for its request?  DXPU_REASON_NONE, and *channel is the id under which
       this end will receive; or the reason to refuse, which the peer gets.  NULL: no peer is. */
    uint8_t (*authorize)(void *user, dxpu_secure_peer *peer,
                         const uint8_t key[DXPU_NOISE_KEY_BYTES],
                         const dxpu_secure_request *request, uint32_t *channel);
    /* May one more initiation from this proven address be processed?  NULL: yes.  For a limit by
       address (S-98): the checks before it cost no Diffie-Hellman. */
    bool (*spare)(void *user, uint64_t now_ns, dxpu_bytes from);
} dxpu_secure_callbacks;

typedef struct dxpu_secure_config {
    const dxpu_noise_pair *identity; /* copied */
    unsigned sessions;               /* at most at once [64] */
    unsigned pending;                /* responder's whose open has not arrived; S-157 [16] */
    uint64_t pending_ns;             /* after which dxpu_secure_expire() ends it anyway [5 s] */
    uint16_t suites;      /* to offer and to accept; what is not here is left out [all] */
    uint64_t rekey_ns;    /* a new key phase after this time [120 s] */
    uint64_t rekey_bytes; /* or after this much sealed, at most 2^37 [2^36] */
    uint32_t open_bytes;  /* of the longest open that is looked at [DXPU_FRAME_MAX_LIMIT_BYTES] */
    dxpu_secure_callbacks cb;
} dxpu_secure_config;

/* The values in brackets; identity and callbacks are left for the caller. */
void dxpu_secure_config_default(dxpu_secure_config *cfg);
/* Bytes of memory for it; 0 when a value is out of range. */
size_t dxpu_secure_bytes(const dxpu_secure_config *cfg);
/* Make one end in memory of the caller, aligned to 16.  Memory of a session is touched only when
   the session begins, so whatever an earlier end left there must have been wiped.  NULL when a
   value is out of range, the memory too small, or no suite left.
   with  stays the caller's and must outlive this end */
dxpu_secure *dxpu_secure_init(void *memory, size_t memory_bytes, const dxpu_secure_config *cfg,
                              const dxpu_primitives *with);
/* End it: wipe all memory that it touched. */
void dxpu_secure_wipe(dxpu_secure *s);
/* The public key of this end, 32 bytes. */
const uint8_t *dxpu_secure_own_key(const dxpu_secure *s);

/* ==== 3  Handshake ============================================================================ */

enum {
    DXPU_SECURE_FRAME_BYTES = 256, /* no handshake frame of ours is longer */
    DXPU_SECURE_FROM_BYTES = 32    /* of an address, at most */
};

/* Begin a session towards the owner of a public key.  NULL when there is no room or the request is
   out of range.  suites of the request: 0 for all of ours. */
dxpu_secure_session *dxpu_secure_begin(dxpu_secure *s, const uint8_t key[DXPU_NOISE_KEY_BYTES],
                                       const dxpu_secure_request *request);
/* Write an initiation, a frame to be sent.  Call it again, with back-off, until an answer arrives:
   each initiation is new.
   wall_ns  nanoseconds since 1970; when the clock stands still or goes back, one more than the last
   Returns its bytes, or E_STATE when the session is not one that asks. */
int dxpu_secure_initiate(dxpu_secure_session *x, uint64_t now_ns, uint64_t wall_ns, uint8_t *out,
                         size_t cap);
/* The body of a handshake frame of this security version, 8 bytes at least: the message's type, the
   version, and six bytes that the type gives a meaning.  DXPU_OK or a peer error. */
int dxpu_secure_body(dxpu_bytes datagram, dxpu_bytes *body);
/* Take one handshake frame from the network.
   from    source of the frame, as bytes that are equal for equal address and port
   answer  cap bytes, DXPU_SECURE_FRAME_BYTES at least; send *bytes of them back to the source
   session the one that was answered: it is keyed or refused.  Else NULL
   Returns DXPU_OK, or a peer error after counting it. */
int dxpu_secure_ingest(dxpu_secure *s, uint64_t now_ns, dxpu_bytes datagram, dxpu_bytes from,
                       uint8_t *answer, size_t cap, size_t *bytes, dxpu_secure_session **session);

/* ==== 4  Sessions ============================================================================= */

/* dxpu_secure_state() */
enum {
    DXPU_SECURE_FREE,    /* ended */
    DXPU_SECURE_ASKING,  /* initiator: no answer yet */
    DXPU_SECURE_REFUSED, /* initiator: dxpu_secure_reason() says why; end it */
    DXPU_SECURE_PENDING, /* responder: keyed, and no sealed frame yet; not the caller's */
    DXPU_SECURE_KEYED
};
unsigned dxpu_secure_state(const dxpu_secure_session *x);
uint8_t dxpu_secure_reason(const dxpu_secure_session *x); /* DXPU_REASON_* */
const dxpu_secure_request *dxpu_secure_asked(const dxpu_secure_session *x);
const uint8_t *dxpu_secure_peer_key(const dxpu_secure_session *x); /* the other's, 32 bytes */
/* For dxpu_channel_config.local_id, and what the peer's is; 0 before it is keyed. */
uint32_t dxpu_secure_local_id(const dxpu_secure_session *x);
uint32_t dxpu_secure_remote_id(const dxpu_secure_session *x);
/* For dxpu_channel_config.suite, with the session as suite_user.  NULL before it is keyed.
   A session is for one channel: it seals no packet number twice. */
const dxpu_suite *dxpu_secure_suite(const dxpu_secure_session *x);
/* The caller's own pointer. */
void dxpu_secure_set_user(dxpu_secure_session *x, void *user);
void *dxpu_secure_user(const dxpu_secure_session *x);

/* Whose open frame is this?  The session whose keys open it and whose handshake asked for what it
   offers (S-32); it is the caller's from now on.  The frame is not altered: give it to
   dxpu_channel_accept() of a channel with this session's suite, or again, when the session has a
   channel already, to dxpu_channel_ingest().  NULL, counted, when no session's.  O(pending). */
dxpu_secure_session *dxpu_secure_opener(dxpu_secure *s, uint64_t now_ns, dxpu_bytes datagram,
                                        dxpu_offer *offer);
/* When the first pending session's time is over (S-14), or earlier: call dxpu_secure_expire() then.
   DXPU_NEVER: none is pending.  O(1). */
uint64_t dxpu_secure_pending_ns(const dxpu_secure *s);
/* Forget the keys of pending sessions whose open did not arrive in time.  O(sessions). */
void dxpu_secure_expire(dxpu_secure *s, uint64_t now_ns);
/* The channel is up: repeated opens are no longer looked up. */
void dxpu_secure_settle(dxpu_secure_session *x);
/* Begin a new key phase when it is due, and forget an old one.  Call it after frames were ingested
   and sent, and at dxpu_secure_next_ns().  Without it a key is used up in the end (S-43), and the
   channel fails.  O(paths). */
void dxpu_secure_work(dxpu_secure_session *x, dxpu_channel *ch, uint64_t now_ns);
/* When dxpu_secure_work() has something to do; 0 at once, DXPU_NEVER nothing. */
uint64_t dxpu_secure_next_ns(const dxpu_secure_session *x);
/* Wipe it; before its channel's memory is used again. */
void dxpu_secure_end(dxpu_secure_session *x);

/* ==== 5  Bounds ===============================================================================

   While channels are up, handshakes and opens together get a share of the time, and a burst after a
   quiet time; time that the last one took beyond that is a debt (S-98, S-156).  Proven addresses
   are limited by groups of a secret hash. */

enum {
    DXPU_SECURE_SHARE = 4, /* a quarter of the time */
    DXPU_SECURE_BURST_NS = 5000000,
    DXPU_SECURE_ADDRESSES = 256,
    DXPU_SECURE_ADDRESS_BURST = 512, /* all slots of a host, when its box is back */
    DXPU_SECURE_ADDRESS_NS = 1000000000 / 200
};

typedef struct dxpu_secure_budget { /* 0 at first, but for debt_ns */
    uint64_t debt_ns;  /* the most that one handshake, or one pause, counts: a clock may jump */
    int64_t credit_ns; /* of time, for handshakes beside channels */
    uint64_t at_ns;
    uint64_t spare_ns[DXPU_SECURE_ADDRESSES]; /* when all that a group had is spared again */
} dxpu_secure_budget;

/* May one more frame be processed while channels are up?  False: drop it unread. */
bool dxpu_secure_has_time(dxpu_secure_budget *b, uint64_t now_ns);
/* Processing the frame took this time. */
void dxpu_secure_spend(dxpu_secure_budget *b, uint64_t spent_ns);
/* For dxpu_secure_callbacks.spare.  group: of the address, by a secret hash. */
bool dxpu_secure_spare(dxpu_secure_budget *b, uint64_t now_ns, uint8_t group);

/* ==== 6  Counters ============================================================================= */

#define DXPU_SECURE_COUNTERS(X)                                                                    \
    X(initiations_sent, "initiations sent")                                                        \
    X(responses_sent, "initiations answered with keys")                                            \
    X(cookies_sent, "initiations answered with a cookie: the address was not proven")              \
    X(keyed, "sessions keyed as initiator")                                                        \
    X(refused, "initiations refused with a reason")                                                \
    X(malformed, "handshake frames damaged, short, or of an unknown type, version or channel")     \
    X(bad_mac, "initiations of peers that do not know our public key")                             \
    X(forged, "handshake messages that are not authentic")                                         \
    X(limited, "initiations dropped: too many from one proven address")                            \
    X(stranger, "initiations by a public key that is not known here")                              \
    X(replayed, "initiations with an old timestamp")                                               \
    X(unasked, "answers that no session waits for")                                                \
    X(displaced, "pending sessions that made room")                                                \
    X(expired, "pending sessions without an open")                                                 \
    X(opens_unknown, "sealed opens that no session can read, or that offer what was not asked")    \
    X(rekeys, "key phases begun here")                                                             \
    X(rekeys_seen, "key phases begun by peers")                                                    \
    X(unsealed, "frames refused by seal: a key used up, a packet number used before")
#define DXPU_SECURE_FIELD(name, text) uint64_t name;
typedef struct dxpu_secure_counters {
    DXPU_SECURE_COUNTERS(DXPU_SECURE_FIELD)
} dxpu_secure_counters;
#undef DXPU_SECURE_FIELD

const dxpu_secure_counters *dxpu_secure_count(const dxpu_secure *s);
/* Name and value of counter `index`; NULL past the last. */
const char *dxpu_secure_counter_name(unsigned index);
uint64_t dxpu_secure_counter_value(const dxpu_secure *s, unsigned index);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_SECURE_H_INCLUDED */
