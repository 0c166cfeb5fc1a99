/* dxpu_sodium.h - keys between proxies: handshake, sealed frames, key files, with libsodium
   SPDX-License-Identifier: MIT

   Two proxies that know each other's public keys agree on keys by a handshake of two messages
   (Noise IK) before a channel is opened; from its open frame on every frame of the channel is
   sealed.  What stands on the wire, and what it defends against, is in spec/security.md (S-n).

       host                                            box
       x = dxpu_sodium_begin(...)
       dxpu_sodium_initiate(x, ...)  -- initiation -->  dxpu_sodium_ingest()
       dxpu_sodium_ingest()          <-- cookie ------
                                     -- initiation -->  dxpu_sodium_ingest()
       dxpu_sodium_ingest()          <-- response ----
       cfg.suite = dxpu_sodium_suite(x), cfg.suite_user = x
       dxpu_channel_open()           -- open, sealed -> x = dxpu_sodium_opener()

   A dxpu_sodium is one end: an identity and its sessions.  It belongs to one thread; so do its
   sessions.  All secrets stand in one block of locked memory, and are wiped when they are done.

   CONTENTS   1 Library   2 Keys and files   3 Suites   4 One end   5 Handshake   6 Sessions
              7 Enrolment   8 Counters */
#ifndef DXPU_SODIUM_H_INCLUDED
#define DXPU_SODIUM_H_INCLUDED

#include "dxpu.h"
#include "dxpu_noise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Library ============================================================================== */

/* Before everything else, once.  DXPU_OK, or E_NONE: the library could not start. */
int dxpu_sodium_init(void);

/* ==== 2  Keys and files ======================================================================= */

enum {
    DXPU_SODIUM_KEY_TEXT_BYTES = 45, /* base64 of a key, and a zero */
    DXPU_SODIUM_FINGERPRINT_BYTES = 40
};

/* A new identity in a new file of mode 600; an existing file is never touched.  In guarded, locked
   memory; free it with dxpu_sodium_key_free().  NULL on failure, and *why says what (static text,
   errno is set). */
dxpu_noise_pair *dxpu_sodium_key_create(const char *file, const char **why);
/* Read one.  The file must be regular and no symbolic link, the user's own (or root's), and closed
   to everybody else.  As above, but errno is 0 where the file is not as it should be. */
dxpu_noise_pair *dxpu_sodium_key_load(const char *file, const char **why);
/* A new identity without a file; NULL when there is no memory. */
dxpu_noise_pair *dxpu_sodium_key_new(void);
void dxpu_sodium_key_free(dxpu_noise_pair *p); /* wipes it; NULL is allowed */

/* A public key as people and files write it: 44 characters of base64.  text is returned. */
const char *dxpu_sodium_key_print(const uint8_t key[DXPU_NOISE_KEY_BYTES],
                                  char text[DXPU_SODIUM_KEY_TEXT_BYTES]);
/* The reverse; false for anything else than exactly that. */
bool dxpu_sodium_key_parse(const char *text, uint8_t key[DXPU_NOISE_KEY_BYTES]);
/* What two people read to each other to compare a public key: 128 bits of its hash in eight groups
   of four digits.  text is returned. */
const char *dxpu_sodium_fingerprint(const uint8_t key[DXPU_NOISE_KEY_BYTES],
                                    char text[DXPU_SODIUM_FINGERPRINT_BYTES]);

/* ==== 3  Suites =============================================================================== */

/* Bits of an offer's suites, beside DXPU_SUITE_CRC (W-23, S-40). */
#define DXPU_SODIUM_SUITES(X) /* name, bit, tag bytes, text; the best one first */                 \
    X(AEGIS_128L, 0x0008, 32, "aegis-128l")                                                        \
    X(AEGIS_256, 0x0010, 32, "aegis-256")                                                          \
    X(AES_256_GCM, 0x0004, 16, "aes-256-gcm")                                                      \
    X(CHACHA20_POLY1305, 0x0002, 16, "chacha20-poly1305")
#define DXPU_SODIUM_ENUM(name, bit, tag, text) DXPU_SUITE_##name = (bit),
enum { DXPU_SODIUM_SUITES(DXPU_SODIUM_ENUM) };
#undef DXPU_SODIUM_ENUM

/* Those that this library and this processor do: the AES ones only in hardware. */
uint16_t dxpu_sodium_suites(void);
const char *dxpu_sodium_suite_name(uint16_t suite); /* "aes-256-gcm"; "?" for none */

/* ==== 4  One end ============================================================================== */

typedef struct dxpu_sodium dxpu_sodium;
typedef struct dxpu_sodium_session dxpu_sodium_session;

/* What the initiator asks for; authentic when a callback sees it. */
typedef struct dxpu_sodium_request {
    uint32_t channel; /* under which the initiator receives, not 0 (W-21) */
    uint8_t version_min, version_max;
    uint16_t suites; /* DXPU_SUITE_*; never DXPU_SUITE_CRC */
    uint64_t epoch;  /* lease epoch, at least 1 */
    dxpu_place source, destination;
} dxpu_sodium_request;

/* What a responder remembers of a peer: one for each public key it knows, 0 at first.  When it is
   lost (a restart), an old initiation can be sent once more; it leads to no sealed frame (S-14). */
typedef struct dxpu_sodium_peer {
    uint64_t newest; /* the largest timestamp seen; written here, kept by the caller */
} dxpu_sodium_peer;

typedef struct dxpu_sodium_callbacks {
    void *user;
    /* The peer with this public key; NULL for a stranger, who gets no answer. */
    dxpu_sodium_peer *(*find)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
    /* Remember this timestamp of the key, also where several ends share what they know of it.
       False: one as large has been seen, so the initiation is dropped.  Called once for each
       authentic initiation above peer->newest, before it is answered or refused.  NULL: true. */
    bool (*fresh)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp);
    /* May it hold what it asks for?  DXPU_REASON_NONE, and *channel is the id under which we shall
       receive; or the reason to refuse, which the peer is told. */
    uint8_t (*welcome)(void *user, dxpu_sodium_peer *peer, const uint8_t key[DXPU_NOISE_KEY_BYTES],
                       const dxpu_sodium_request *request, uint32_t *channel);
    /* May one more initiation be looked at of this address, which is proven?  NULL: yes.  It is the
       place for a limit by address (S-98): what was before costs no Diffie-Hellman. */
    bool (*spare)(void *user, uint64_t now_ns, dxpu_bytes from);
} dxpu_sodium_callbacks;

typedef struct dxpu_sodium_config {
    const dxpu_noise_pair *identity; /* copied */
    unsigned sessions;               /* at most so many at once [64] */
    unsigned pending;     /* of them, responder's whose open has not come; the oldest goes [16] */
    uint64_t pending_ns;  /* after which dxpu_sodium_expire() ends it anyway [5 s] */
    uint16_t suites;      /* to offer and to accept; what is not here is left out [all] */
    uint64_t rekey_ns;    /* a new key phase after so long [120 s] */
    uint64_t rekey_bytes; /* or so much sealed, at most 2^37 [2^36] */
    dxpu_sodium_callbacks cb; /* find or welcome NULL: nobody may begin */
} dxpu_sodium_config;

/* The values in brackets; identity and callbacks are left for the caller. */
void dxpu_sodium_config_default(dxpu_sodium_config *cfg);
/* NULL when a value is out of range or there is no memory. */
dxpu_sodium *dxpu_sodium_create(const dxpu_sodium_config *cfg);
void dxpu_sodium_destroy(dxpu_sodium *s); /* wipes all; NULL is allowed */
/* False: the system would not lock the memory (RLIMIT_MEMLOCK), so secrets may reach a swap. */
bool dxpu_sodium_locked(const dxpu_sodium *s);

/* ==== 5  Handshake ============================================================================ */

enum {
    DXPU_SODIUM_FRAME_BYTES = 256, /* no handshake frame of ours is longer */
    DXPU_SODIUM_FROM_BYTES = 32    /* of an address, at most */
};

/* Begin a session towards the owner of a public key.  NULL when there is no room or the request is
   out of range.  suites of the request: 0 for all of ours. */
dxpu_sodium_session *dxpu_sodium_begin(dxpu_sodium *s, const uint8_t key[DXPU_NOISE_KEY_BYTES],
                                       const dxpu_sodium_request *request);
/* Write an initiation, a frame to be sent; call again, with back-off, while no answer has come:
   each one is new.
   wall_ns  nanoseconds since 1970; when the clock stands still or goes back, one more than the last
   Returns its bytes, or E_STATE when the session is not one that asks. */
int dxpu_sodium_initiate(dxpu_sodium_session *x, uint64_t now_ns, uint64_t wall_ns, uint8_t *out,
                         size_t cap);
/* Take one handshake frame from the network.
   from    where it came from, as bytes that are the same for the same address and port
   answer  cap bytes, DXPU_SODIUM_FRAME_BYTES at least; *bytes of them go back to where it came from
   session the one that has come to an answer: it is keyed or refused.  Else NULL
   Returns DXPU_OK, or a peer error after counting it. */
int dxpu_sodium_ingest(dxpu_sodium *s, uint64_t now_ns, dxpu_bytes datagram, dxpu_bytes from,
                       uint8_t *answer, size_t cap, size_t *bytes, dxpu_sodium_session **session);

/* ==== 6  Sessions ============================================================================= */

/* dxpu_sodium_state() */
enum {
    DXPU_SODIUM_FREE,    /* ended */
    DXPU_SODIUM_ASKING,  /* initiator: no answer yet */
    DXPU_SODIUM_REFUSED, /* initiator: dxpu_sodium_reason() says why; end it */
    DXPU_SODIUM_PENDING, /* responder: keyed, and no sealed frame yet; not the caller's */
    DXPU_SODIUM_KEYED
};
unsigned dxpu_sodium_state(const dxpu_sodium_session *x);
uint8_t dxpu_sodium_reason(const dxpu_sodium_session *x); /* DXPU_REASON_* */
const dxpu_sodium_request *dxpu_sodium_asked(const dxpu_sodium_session *x);
const uint8_t *dxpu_sodium_peer_key(const dxpu_sodium_session *x); /* the other's, 32 bytes */
/* For dxpu_channel_config.local_id, and what the peer's is; 0 before it is keyed. */
uint32_t dxpu_sodium_local_id(const dxpu_sodium_session *x);
uint32_t dxpu_sodium_remote_id(const dxpu_sodium_session *x);
/* For dxpu_channel_config.suite, with the session as suite_user.  NULL before it is keyed.
   A session is for one channel: it seals no packet number twice. */
const dxpu_suite *dxpu_sodium_suite(const dxpu_sodium_session *x);
/* The caller's own pointer. */
void dxpu_sodium_set_user(dxpu_sodium_session *x, void *user);
void *dxpu_sodium_user(const dxpu_sodium_session *x);

/* Whose open frame is this?  The session whose keys open it and whose handshake asked for what it
   offers (S-32); it is the caller's from now on.  The frame is not altered: give it to
   dxpu_channel_accept() of a channel with this session's suite, or again, when the session has a
   channel already, to dxpu_channel_ingest().  NULL, counted, for nobody's.  O(pending). */
dxpu_sodium_session *dxpu_sodium_opener(dxpu_sodium *s, uint64_t now_ns, dxpu_bytes datagram,
                                        dxpu_offer *offer);
/* When the first pending session's time is over (S-14), or earlier: call dxpu_sodium_expire() then.
   DXPU_NEVER: none is pending.  O(1). */
uint64_t dxpu_sodium_pending_ns(const dxpu_sodium *s);
/* Forget the keys of pending sessions whose open has not come in time.  O(sessions). */
void dxpu_sodium_expire(dxpu_sodium *s, uint64_t now_ns);
/* The channel is up: no open is looked for any more. */
void dxpu_sodium_settle(dxpu_sodium_session *x);
/* Begin a new key phase when it is time, forget an old one: after frames were taken and sent, and
   when dxpu_sodium_next_ns() has come.  Without it a key is used up in the end (S-43), and the
   channel fails.  O(paths). */
void dxpu_sodium_work(dxpu_sodium_session *x, dxpu_channel *ch, uint64_t now_ns);
/* When dxpu_sodium_work() has something to do; 0 at once, DXPU_NEVER nothing. */
uint64_t dxpu_sodium_next_ns(const dxpu_sodium_session *x);
/* Wipe it; before its channel's memory is used again. */
void dxpu_sodium_end(dxpu_sodium_session *x);

/* ==== 7  Enrolment ============================================================================ */

enum { DXPU_SODIUM_NAME_BYTES = 32 };

/* How two proxies learn each other's public keys (Noise XX).  Whoever is between them could have
   put in his own: people compare the code, or the fingerprints, before either key is used (S-50).
   It holds a secret: keep it in locked memory. */
typedef struct dxpu_sodium_enrol {
    dxpu_noise noise;
    char name[DXPU_SODIUM_NAME_BYTES + 1], peer_name[DXPU_SODIUM_NAME_BYTES + 1];
    uint8_t remote[DXPU_NOISE_KEY_BYTES];
    uint8_t said[DXPU_SODIUM_FRAME_BYTES]; /* our last message */
    uint16_t said_bytes;
    uint8_t heard; /* type of the peer's last one */
    bool done;
} dxpu_sodium_enrol;

/* Begin; name is told to the peer, at most DXPU_SODIUM_NAME_BYTES of 0x20..0x7e.  DXPU_OK or
   E_ARG. */
int dxpu_sodium_enrol_begin(dxpu_sodium_enrol *e, const dxpu_noise_pair *own, bool initiator,
                            const char *name);
/* Our message, the same until the peer's next one has come: repeat it.  Its bytes; 0: none yet. */
int dxpu_sodium_enrol_emit(dxpu_sodium_enrol *e, uint8_t *out, size_t cap);
/* Take one datagram.  DXPU_OK; E_REPLAY: the last one again, so emit again; other peer errors. */
int dxpu_sodium_enrol_ingest(dxpu_sodium_enrol *e, dxpu_bytes datagram);
/* The peer's key and name are known; they mean nothing until people have compared the code. */
bool dxpu_sodium_enrol_done(const dxpu_sodium_enrol *e);
/* What stands at both ends when it is done, and nobody is between them: 128 bits of a hash of all
   that was said, keys and names too, written as fingerprints are.  "" before.  text is returned. */
const char *dxpu_sodium_enrol_code(const dxpu_sodium_enrol *e,
                                   char text[DXPU_SODIUM_FINGERPRINT_BYTES]);
void dxpu_sodium_enrol_wipe(dxpu_sodium_enrol *e);

/* ==== 8  Counters ============================================================================= */

#define DXPU_SODIUM_COUNTERS(X)                                                                    \
    X(initiations_sent, "initiations sent")                                                        \
    X(responses_sent, "initiations answered with keys")                                            \
    X(cookies_sent, "initiations answered with a cookie: the address was not proven")              \
    X(keyed, "sessions keyed as initiator")                                                        \
    X(refused, "initiations refused with a reason")                                                \
    X(malformed, "handshake frames damaged, short, or of an unknown type, version or channel")     \
    X(bad_mac, "initiations from somebody who does not know our public key")                       \
    X(forged, "handshake messages that are not authentic")                                         \
    X(limited, "initiations dropped: too many from one proven address")                            \
    X(stranger, "initiations by a public key that is not known here")                              \
    X(replayed, "initiations with an old timestamp")                                               \
    X(unasked, "answers that no session waits for")                                                \
    X(displaced, "pending sessions that made room")                                                \
    X(expired, "pending sessions whose open never came")                                           \
    X(opens_unknown, "sealed opens that no session can read, or that offer what was not asked")    \
    X(rekeys, "key phases begun here")                                                             \
    X(rekeys_seen, "key phases begun by peers")                                                    \
    X(unsealed, "frames refused by seal: a key used up, a packet number used before")
#define DXPU_SODIUM_FIELD(name, text) uint64_t name;
typedef struct dxpu_sodium_counters {
    DXPU_SODIUM_COUNTERS(DXPU_SODIUM_FIELD)
} dxpu_sodium_counters;
#undef DXPU_SODIUM_FIELD

const dxpu_sodium_counters *dxpu_sodium_count(const dxpu_sodium *s);
/* Name and value of counter `index`; NULL past the last. */
const char *dxpu_sodium_counter_name(unsigned index);
uint64_t dxpu_sodium_counter_value(const dxpu_sodium *s, unsigned index);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_SODIUM_H_INCLUDED */
