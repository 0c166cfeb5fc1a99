/* secure_stream.h - control connections: dxpu_tcp, sealed by keys unless both ends are --plain
   SPDX-License-Identifier: MIT

   The same as dxpu_tcp.h, with the same settings, but that opened() comes when the other side has
   proven its public key, and that bytes are sealed (spec/security.md, S-70 ff.).  The handshake is
   part of the time to greet. */
#ifndef SECURE_STREAM_H_INCLUDED
#define SECURE_STREAM_H_INCLUDED

#include "dxpu_sodium_stream.h"
#include "dxpu_tcp.h"
#include "keys.h"
#include "stats.h"

typedef struct secure_conn secure_conn;

/* As dxpu_tcp_callbacks. */
typedef struct secure_callbacks {
    void *user;
    void *(*opened)(void *user, secure_conn *c);
    void (*bytes)(void *context, secure_conn *c, dxpu_bytes in);
    void (*closed)(void *context, secure_conn *c, const char *why);
} secure_callbacks;

/* ==== What repeats ============================================================================ */

enum { SECURE_MORE_BYTES = 48 };

/* Events that others can repeat without limit: one line is logged, then a count. */
typedef struct secure_telling {
    uint64_t said_ns, unsaid;
} secure_telling;

/* Is it logged now?  Not within every_ns of the last time; more: "" or " (and 3 others)". */
bool secure_tell(secure_telling *t, uint64_t every_ns, char more[SECURE_MORE_BYTES]);

/* ==== Listener ================================================================================ */

typedef struct secure_listener secure_listener;

typedef struct secure_settings {
    dxpu_tcp_settings tcp;
    keys *keys;       /* stays the caller's; those of --plain: nothing is sealed */
    unsigned may;     /* KEYS_CONTROL..: who has one of these comes in */
    unsigned per_key; /* connections of one key at a time; 0: no limit */
} secure_settings;

/* NULL on failure, and *why is a text with its remedy (static, errno is set). */
secure_listener *secure_listen(struct event_base *base, const dxpu_udp_address *local,
                               const secure_settings *set, const secure_callbacks *cb,
                               const char **why);
void secure_unlisten(secure_listener *l); /* NULL is allowed */
/* The keys were read again: peers without access any more are disconnected. */
void secure_recheck(secure_listener *l);
const dxpu_udp_address *secure_local(const secure_listener *l);
/* connections, displaced, limited, and why streams ended. */
void secure_report(const secure_listener *l, report *r);

/* ==== Connections ============================================================================= */

/* Connect.  own: this side's key, NULL for plain bytes; server: the other's public key. */
secure_conn *secure_connect(struct event_base *base, const dxpu_udp_address *remote,
                            const dxpu_tcp_settings *set, const dxpu_noise_pair *own,
                            const uint8_t *server, const secure_callbacks *cb, const char **why);
/* The other side's public key; NULL without keys. */
const uint8_t *secure_key(const secure_conn *c);
/* The reason of closed() is that the other side ended the handshake: one of the keys is not the
   one that is expected. */
bool secure_is_handshake(const char *why);
/* As in dxpu_tcp.h. */
bool secure_here(const secure_conn *c, dxpu_udp_address *out);
bool secure_send(secure_conn *c, const void *data, size_t bytes);
void secure_touch(secure_conn *c);
void secure_finish(secure_conn *c);
void secure_drop(secure_conn *c, const char *why);

#endif /* SECURE_STREAM_H_INCLUDED */
