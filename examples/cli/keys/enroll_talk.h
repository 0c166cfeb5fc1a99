/* enroll_talk.h - how two ends of dxpu enroll learn each other's public keys: Noise XX over UDP
   SPDX-License-Identifier: MIT

   One end waits, and the other one begins.  What comes that belongs to no handshake is counted and
   changes nothing; handshakes that are begun and go nowhere are bounded in number and in how many
   begin in a second (S-143). */
#ifndef DXPU_CLI_ENROLL_TALK_H
#define DXPU_CLI_ENROLL_TALK_H

#include "dxpu_libevent.h"
#include "dxpu_sodium.h"

enum { ENROLL_PORT = 4455 };

#define ENROLL_COUNTERS(X)                                                                         \
    X(datagrams, "datagrams received")                                                             \
    X(begun, "handshakes that others began")                                                       \
    X(repeated, "repeated messages")                                                               \
    X(refused, "datagrams that are not messages of a handshake, or not authentic")                 \
    X(limited, "handshakes not begun: too many in a second")                                       \
    X(displaced, "handshakes that others made room for")                                           \
    X(late, "datagrams of others, when a key was known already")

typedef struct enroll_counters {
#define ENROLL_COUNTER(name, text) uint64_t name;
    ENROLL_COUNTERS(ENROLL_COUNTER)
#undef ENROLL_COUNTER
} enroll_counters;

/* Why a wait is over. */
typedef enum enroll_end {
    ENROLL_MET,     /* a key is known */
    ENROLL_YES,     /* somebody has said so at the terminal */
    ENROLL_NO,      /* or not; or there is no input any more */
    ENROLL_LATE,    /* it was time */
    ENROLL_STOPPED, /* by a signal */
    ENROLL_BROKEN   /* waiting itself failed: errno */
} enroll_end;

typedef struct enroll_talk enroll_talk;

/* own: this end's key and, at most DXPU_SODIUM_NAME_BYTES of it, its name; both stay the caller's.
   listen: wait at this address; else begin, with who is there.  seconds: after which every wait is
   over.  NULL on failure, and *why is a text with its remedy (errno is set, or 0). */
enroll_talk *enroll_open(const dxpu_noise_pair *own, const char *name, const dxpu_udp_address *at,
                         bool listen, unsigned seconds, const char **why);
void enroll_close(enroll_talk *t); /* wipes all; NULL is allowed */
const dxpu_udp_address *enroll_local(const enroll_talk *t);
const enroll_counters *enroll_count(const enroll_talk *t);

/* Until a key is known; it means nothing before people have compared the code. */
enroll_end enroll_meet(enroll_talk *t);
/* Whose it is, and where its messages come from; after ENROLL_MET. */
const dxpu_sodium_enroll *enroll_peer(const enroll_talk *t, const dxpu_udp_address **from);
/* It is not the one that was waited for: the next enroll_meet() waits for another.  Who began
   cannot. */
void enroll_forget(enroll_talk *t);
/* Print the question on standard error, and read the answer, yes or no, from standard input. */
enroll_end enroll_ask(enroll_talk *t, const char *question);
/* The initiator's last message has no answer: it is repeated for a while. */
void enroll_linger(enroll_talk *t);

#endif
