/* dxpu_sodium_stream.h - a byte stream sealed from end to end: Noise IK over TCP or the like
   SPDX-License-Identifier: MIT

   The client, which connects, knows the server's public key; the server learns the client's and
   decides whether it may connect.  After that each side seals messages of up to
   DXPU_SODIUM_STREAM_PLAIN_MAX bytes.  The wire format is in spec/security.md, S-70 ff.

   Bytes in, bytes out: no I/O, no clock.  How long a handshake may take is the caller's business.

       s = dxpu_sodium_stream_new(&settings);
       for (;;) {
           send what dxpu_sodium_stream_emit(s) gives;               handshake messages
           while ((rc = dxpu_sodium_stream_take(s, &in, &plain)) == DXPU_OK)
               ...                                                   plain is one message
           if (rc != DXPU_E_AGAIN) close it, dxpu_sodium_stream_end_text() says why;
           if (dxpu_sodium_stream_up(s))
               dxpu_sodium_stream_seal(s, bytes, out, sizeof out, &len), send that;
       }

   The end of the stream below is not authentic: anyone between the two can cut it, so it means
   only that no more arrives.  A message is delivered whole or not at all.  sodium_init() must
   have been called. */
#ifndef DXPU_SODIUM_STREAM_H_INCLUDED
#define DXPU_SODIUM_STREAM_H_INCLUDED

#include "dxpu.h"
#include "dxpu_noise.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DXPU_SODIUM_STREAM_MAX_BYTES = 65535,  /* of a message's ciphertext */
    DXPU_SODIUM_STREAM_PLAIN_MAX = 65519,  /* of what is in it */
    DXPU_SODIUM_STREAM_OVERHEAD_BYTES = 18 /* of each message: length and tag */
};

/* Why a stream is over: name, what take() returns then, text. */
#define DXPU_SODIUM_STREAM_ENDS(X)                                                                 \
    X(NONE, DXPU_OK, "it is not over")                                                             \
    X(PLAIN, DXPU_E_MAGIC, "the other side does not speak a sealed stream; is it run --plain?")    \
    X(VERSION, DXPU_E_VERSION, "it uses another version of sealed streams; upgrade one side")      \
    X(HANDSHAKE, DXPU_E_CRC, "a handshake that is not authentic: one side has another key")        \
    X(STRANGER, DXPU_E_STATE, "its key is not authorized here")                                    \
    X(FORGED, DXPU_E_CRC, "a message that is not authentic: altered, repeated or out of order")    \
    X(LENGTH, DXPU_E_LENGTH, "a message of a length that none has")                                \
    X(MEMORY, DXPU_E_ROOM, "out of memory")
#define DXPU_SODIUM_STREAM_ENUM(name, code, text) DXPU_SODIUM_STREAM_##name,
enum { DXPU_SODIUM_STREAM_ENDS(DXPU_SODIUM_STREAM_ENUM) DXPU_SODIUM_STREAM_ENDS_COUNT };
#undef DXPU_SODIUM_STREAM_ENUM

typedef struct dxpu_sodium_stream dxpu_sodium_stream;

typedef struct dxpu_sodium_stream_settings {
    const dxpu_noise_pair *identity; /* copied */
    const uint8_t *server;           /* its public key, copied; NULL: this side is the server */
    void *user;
    /* Of a server: may the owner of this key connect?  The handshake can still be a recording;
       the key is proven when the stream is up.  NULL: none may. */
    bool (*known)(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
    uint64_t *ended; /* DXPU_SODIUM_STREAM_ENDS_COUNT counters, one more each time; NULL: none */
} dxpu_sodium_stream_settings;

/* Begin one end.  NULL when there is no memory. */
dxpu_sodium_stream *dxpu_sodium_stream_new(const dxpu_sodium_stream_settings *set);
void dxpu_sodium_stream_free(dxpu_sodium_stream *s); /* wipes it; NULL is allowed */

/* Handshake bytes to be sent now, once: after new() and after each take().  Valid until the next
   call. */
dxpu_bytes dxpu_sodium_stream_emit(dxpu_sodium_stream *s);
/* Take bytes from the network; *in is advanced past what was used.
   DXPU_OK: *plain is the next message, perhaps empty, valid until the next call; call again
   DXPU_E_AGAIN: all of *in is used
   Else the stream is over, and stays so; dxpu_sodium_stream_end() says why. */
int dxpu_sodium_stream_take(dxpu_sodium_stream *s, dxpu_bytes *in, dxpu_bytes *plain);
/* Seal one message: out[0..*bytes), DXPU_SODIUM_STREAM_OVERHEAD_BYTES more than `plain`, which may
   not overlap.  DXPU_OK, or E_STATE before it is up and once it is over, E_ROOM. */
int dxpu_sodium_stream_seal(dxpu_sodium_stream *s, dxpu_bytes plain, uint8_t *out, size_t cap,
                            size_t *bytes);
/* The other side has proven its key, and the stream is not over. */
bool dxpu_sodium_stream_up(const dxpu_sodium_stream *s);
/* The other side's public key: at a client what it was given, at a server once it is up, and of a
   stranger; NULL before. */
const uint8_t *dxpu_sodium_stream_peer(const dxpu_sodium_stream *s);
unsigned dxpu_sodium_stream_end(const dxpu_sodium_stream *s); /* DXPU_SODIUM_STREAM_* */
const char *dxpu_sodium_stream_end_text(unsigned end);        /* "?" for another number */
const char *dxpu_sodium_stream_end_name(unsigned end);        /* "forged" */

#ifdef __cplusplus
}
#endif
#endif /* DXPU_SODIUM_STREAM_H_INCLUDED */
