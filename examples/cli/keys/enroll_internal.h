/* enroll_internal.h - one run of dxpu enroll, and its handshakes: of enroll_command.c,
   enroll_talk.c and their tests
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_ENROLL_INTERNAL_H
#define DXPU_CLI_ENROLL_INTERNAL_H

#include "enroll_talk.h"
#include "keys.h"

enum {
    ENROLL_TALKS = 256,                /* at a time, of who waits */
    ENROLL_BEGIN_NS = 10000000,        /* for each that begins, */
    ENROLL_BEGIN_AHEAD_NS = 200000000, /* with so much at once after quiet */
    ENROLL_SIGNALS = 3,
    ENROLL_ANSWER_BYTES = 16
};

/* A handshake with who is at that address; not begun: begun_ns 0. */
typedef struct enroll_one {
    dxpu_sodium_enroll e;
    dxpu_udp_path path;
    uint64_t begun_ns;
} enroll_one;

struct enroll_talk {
    const dxpu_noise_pair *own;
    const char *name;
    dxpu_udp *udp;
    enroll_one *talks; /* in locked memory; of who begins only the first one is used */
    enroll_one *peer;  /* whose key is known; NULL: none yet */
    bool listen;
    uint64_t deadline_ns, until_ns, again_ns, paid_ns;
    enroll_end end;
    struct event *signals[ENROLL_SIGNALS], *input;
    char answer[ENROLL_ANSWER_BYTES];
    unsigned answer_bytes;
    const char *question;
    enroll_counters count;
};

typedef struct enroll_options {
    const char *listen, *key, *peers, *may, *name, *as, *expect;
    uint64_t seconds;
    bool json;
} enroll_options;

/* One run of the command. */
typedef struct enrolling {
    enroll_options o;
    const char *to;
    unsigned may, others; /* others: keys that were not the expected one */
    dxpu_udp_address at;
    dxpu_noise_pair *own;
    enroll_talk *talk;
    keys_peer peer; /* the other, as its line has it */
    char line[KEYS_LINE_BYTES], key[DXPU_SODIUM_KEY_TEXT_BYTES],
        code[DXPU_SODIUM_FINGERPRINT_BYTES], from[DXPU_UDP_TEXT_BYTES];
    const char *result; /* a word for scripts */
    bool met, written;
} enrolling;

/* The handshake with who is there; NULL: none. */
enroll_one *enroll_find(const enroll_talk *t, const dxpu_udp_path *from);
/* Is there time for another one (S-143)? */
bool enroll_may_begin(enroll_talk *t, uint64_t now);
/* Of dxpu_udp_callbacks; user is the enroll_talk. */
void enroll_on_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags);
/* What the other said, as this end's line has it. */
void enroll_take_peer(enrolling *n);

#endif
