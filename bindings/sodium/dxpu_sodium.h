/* dxpu_sodium.h - keys between proxies with libsodium: its primitives, locked memory, key files
   SPDX-License-Identifier: MIT

   The handshake and the sealing are those of bindings/secure (dxpu_secure.h), over libsodium's
   functions; dxpu_sodium_* is what programs on an operating system call.  All secrets are in one
   block of locked memory, and are wiped after use.

   CONTENTS   1 Library   2 Keys and files   3 One end   4 Enrollment */
#ifndef DXPU_SODIUM_H_INCLUDED
#define DXPU_SODIUM_H_INCLUDED

#include "dxpu_secure.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Library ============================================================================== */

/* Before everything else, once.  DXPU_OK, or E_NONE: the library could not start. */
int dxpu_sodium_init(void);
/* Its functions as a table. */
const dxpu_primitives *dxpu_sodium_primitives(void);
/* Suites that this library and this processor do: the AES ones only in hardware. */
uint16_t dxpu_sodium_suites(void);

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
   to others.  As above, but errno is 0 where the file is not as it should be. */
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

/* ==== 3  One end ==============================================================================
   What dxpu_secure.h says of each of these holds.  create() is its init() in locked memory. */

typedef dxpu_secure dxpu_sodium;
typedef dxpu_secure_session dxpu_sodium_session;
typedef dxpu_secure_request dxpu_sodium_request;
typedef dxpu_secure_peer dxpu_sodium_peer;
typedef dxpu_secure_callbacks dxpu_sodium_callbacks;
typedef dxpu_secure_config dxpu_sodium_config;
typedef dxpu_secure_counters dxpu_sodium_counters;

enum {
    DXPU_SODIUM_FRAME_BYTES = DXPU_SECURE_FRAME_BYTES,
    DXPU_SODIUM_FROM_BYTES = DXPU_SECURE_FROM_BYTES
};
enum {
    DXPU_SODIUM_FREE = DXPU_SECURE_FREE,
    DXPU_SODIUM_ASKING = DXPU_SECURE_ASKING,
    DXPU_SODIUM_REFUSED = DXPU_SECURE_REFUSED,
    DXPU_SODIUM_PENDING = DXPU_SECURE_PENDING,
    DXPU_SODIUM_KEYED = DXPU_SECURE_KEYED
};

/* NULL when a value is out of range or there is no memory. */
dxpu_sodium *dxpu_sodium_create(const dxpu_sodium_config *cfg);
void dxpu_sodium_destroy(dxpu_sodium *s); /* wipes all; NULL is allowed */
/* False: the system would not lock the memory (RLIMIT_MEMLOCK), so secrets may reach a swap. */
bool dxpu_sodium_locked(const dxpu_sodium *s);

#define dxpu_sodium_config_default dxpu_secure_config_default
#define dxpu_sodium_begin          dxpu_secure_begin
#define dxpu_sodium_initiate       dxpu_secure_initiate
#define dxpu_sodium_ingest         dxpu_secure_ingest
#define dxpu_sodium_state          dxpu_secure_state
#define dxpu_sodium_reason         dxpu_secure_reason
#define dxpu_sodium_asked          dxpu_secure_asked
#define dxpu_sodium_peer_key       dxpu_secure_peer_key
#define dxpu_sodium_local_id       dxpu_secure_local_id
#define dxpu_sodium_remote_id      dxpu_secure_remote_id
#define dxpu_sodium_suite          dxpu_secure_suite
#define dxpu_sodium_suite_name     dxpu_secure_suite_name
#define dxpu_sodium_set_user       dxpu_secure_set_user
#define dxpu_sodium_user           dxpu_secure_user
#define dxpu_sodium_opener         dxpu_secure_opener
#define dxpu_sodium_pending_ns     dxpu_secure_pending_ns
#define dxpu_sodium_expire         dxpu_secure_expire
#define dxpu_sodium_settle         dxpu_secure_settle
#define dxpu_sodium_work           dxpu_secure_work
#define dxpu_sodium_next_ns        dxpu_secure_next_ns
#define dxpu_sodium_end            dxpu_secure_end
#define dxpu_sodium_count          dxpu_secure_count
#define dxpu_sodium_counter_name   dxpu_secure_counter_name
#define dxpu_sodium_counter_value  dxpu_secure_counter_value

/* ==== 4  Enrollment =========================================================================== */

enum { DXPU_SODIUM_NAME_BYTES = 32, DXPU_SODIUM_HEARD_BYTES = 16 };

/* How two proxies learn each other's public keys (Noise XX).  An attacker between them could have
   inserted its own: people compare the code, or the fingerprints, before either key is used (S-50).
   It holds a secret: keep it in locked memory. */
typedef struct dxpu_sodium_enroll {
    dxpu_noise noise;
    char name[DXPU_SODIUM_NAME_BYTES + 1], peer_name[DXPU_SODIUM_NAME_BYTES + 1];
    uint8_t remote[DXPU_NOISE_KEY_BYTES];
    uint8_t said[DXPU_SODIUM_FRAME_BYTES]; /* our last message */
    uint16_t said_bytes;
    uint8_t heard[DXPU_SODIUM_HEARD_BYTES]; /* hash of the peer's last one */
    bool done;
} dxpu_sodium_enroll;

/* Begin; name is sent to the peer, at most DXPU_SODIUM_NAME_BYTES of 0x20..0x7e.  DXPU_OK or
   E_ARG. */
int dxpu_sodium_enroll_begin(dxpu_sodium_enroll *e, const dxpu_noise_pair *own, bool initiator,
                             const char *name);
/* Our message, the same until the peer's next one arrives: repeat it.  Its bytes; 0: none yet. */
int dxpu_sodium_enroll_emit(dxpu_sodium_enroll *e, uint8_t *out, size_t cap);
/* Take one datagram.  DXPU_OK; E_REPLAY: the last one again, so emit again; other peer errors. */
int dxpu_sodium_enroll_ingest(dxpu_sodium_enroll *e, dxpu_bytes datagram);
/* The peer's key and name are known; they mean nothing until people have compared the code. */
bool dxpu_sodium_enroll_done(const dxpu_sodium_enroll *e);
/* The code, equal at both ends when it is done and no attacker is between them: 128 bits of a hash
   of all messages, keys and names too, written as fingerprints are; "" before.  Returns text. */
const char *dxpu_sodium_enroll_code(const dxpu_sodium_enroll *e,
                                    char text[DXPU_SODIUM_FINGERPRINT_BYTES]);
void dxpu_sodium_enroll_wipe(dxpu_sodium_enroll *e);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_SODIUM_H_INCLUDED */
