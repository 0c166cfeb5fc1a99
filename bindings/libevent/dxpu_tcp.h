/* dxpu_tcp.h - streams for dxpu: TCP connections with bounded buffers and time-outs
   SPDX-License-Identifier: MIT

   Bytes in, bytes out; what they mean is the caller's business.  Nothing here blocks but
   dxpu_tcp_parse() of a name.  An object belongs to the thread of its event base.  The first
   connection has SIGPIPE ignored in this process, unless it is handled already.

   CONTENTS   1 Addresses   2 Settings and callbacks   3 Listener   4 Connections */
#ifndef DXPU_TCP_H_INCLUDED
#define DXPU_TCP_H_INCLUDED

#include "dxpu_libevent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Addresses ============================================================================ */

enum { DXPU_TCP_PORT = 4459 }; /* default control port of a proxy */

/* As dxpu_udp_parse(), but what is left out is the careful choice: no host is 127.0.0.1, no port
   is DXPU_TCP_PORT; "4459" alone is a port.  "*:4459" is every address.  NULL, or what is wrong. */
const char *dxpu_tcp_parse(const char *text, dxpu_udp_address *out);
/* The same with another port than DXPU_TCP_PORT, 1..65535. */
const char *dxpu_tcp_parse_port(const char *text, unsigned port, dxpu_udp_address *out);

/* ==== 2  Settings and callbacks =============================================================== */

typedef struct dxpu_tcp_settings {
    unsigned connections; /* at a time, of one listener [64] */
    /* In a second, of one listener [250]; the others wait in the kernel.  One address (of IPv6 its
       upper half; 256 groups by a secret hash) gets half of them, and at once as many as there are
       places, or as are accepted in a second; connections beyond that are closed. */
    unsigned accepts;
    size_t send_bytes; /* may wait to be sent; more, and the connection is closed [256 KiB] */
    unsigned greet_ms; /* until dxpu_tcp_touch() must have been called once [5,000] */
    unsigned idle_ms;  /* without a byte of the peer, 0 for ever [60,000] */
    unsigned stall_ms; /* bytes wait and the peer takes none [10,000] */
} dxpu_tcp_settings;

/* The values in brackets. */
void dxpu_tcp_settings_default(dxpu_tcp_settings *s);

typedef struct dxpu_tcp_conn dxpu_tcp_conn;

/* Any of them may close any connection. */
typedef struct dxpu_tcp_callbacks {
    void *user;
    /* The connection is open.  Returns its context, given to the others; NULL refuses it. */
    void *(*opened)(void *user, dxpu_tcp_conn *c);
    /* Bytes in order; all of them are taken. */
    void (*bytes)(void *context, dxpu_tcp_conn *c, dxpu_bytes in);
    /* It is over: free the context.  why: a static text, "closed by the peer".  When opened() was
       not called, or gave NULL: only for dxpu_tcp_connect(), with user as the context. */
    void (*closed)(void *context, dxpu_tcp_conn *c, const char *why);
} dxpu_tcp_callbacks;

/* ==== 3  Listener ============================================================================= */

typedef struct dxpu_tcp_listener dxpu_tcp_listener;

/* NULL on failure, and *why is a text with its remedy (static, errno is set). */
dxpu_tcp_listener *dxpu_tcp_listen(struct event_base *base, const dxpu_udp_address *local,
                                   const dxpu_tcp_settings *s, const dxpu_tcp_callbacks *cb,
                                   const char **why);
/* Closes its connections too; NULL is allowed. */
void dxpu_tcp_unlisten(dxpu_tcp_listener *l);
/* Where it is bound, with the port the kernel chose. */
const dxpu_udp_address *dxpu_tcp_local(const dxpu_tcp_listener *l);
/* Connections accepted, and how many of them were closed here to accept another: when all places
   are taken, the one that was silent longest is closed, those that never greeted first. */
uint64_t dxpu_tcp_accepted(const dxpu_tcp_listener *l);
uint64_t dxpu_tcp_displaced(const dxpu_tcp_listener *l);
/* Connections closed at once: too many in a second, in all or from one address. */
uint64_t dxpu_tcp_limited(const dxpu_tcp_listener *l);
/* For callers with much to send: drained() is called for connections accepted from now on, once
   they are open, and whenever the kernel has taken all that was sent. */
void dxpu_tcp_on_drained(dxpu_tcp_listener *l, void (*drained)(void *context, dxpu_tcp_conn *c));

/* ==== 4  Connections ========================================================================== */

/* Connect; opened() or closed() follows, not before this returns.  greet_ms
   is the time it may take.  NULL on failure as above. */
dxpu_tcp_conn *dxpu_tcp_connect(struct event_base *base, const dxpu_udp_address *remote,
                                const dxpu_tcp_settings *s, const dxpu_tcp_callbacks *cb,
                                const char **why);
/* This end's address; false when the connection is not open. */
bool dxpu_tcp_here(const dxpu_tcp_conn *c, dxpu_udp_address *out);
/* The peer's. */
bool dxpu_tcp_there(const dxpu_tcp_conn *c, dxpu_udp_address *out);
/* Send; false when the connection is over or has just been closed for lack of room. */
bool dxpu_tcp_send(dxpu_tcp_conn *c, const void *data, size_t bytes);
/* Bytes that wait to be sent. */
size_t dxpu_tcp_unsent(const dxpu_tcp_conn *c);
/* The peer sent something valid: it has greeted, and is not the longest silent one. */
void dxpu_tcp_touch(dxpu_tcp_conn *c);
/* Stop reading; close when all is sent and the peer has closed too, or after stall_ms. */
void dxpu_tcp_finish(dxpu_tcp_conn *c);
/* Close at once; closed() is called from here, or when a running callback of c returns.  Do not use
   c afterwards, except in that callback. */
void dxpu_tcp_drop(dxpu_tcp_conn *c, const char *why);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_TCP_H_INCLUDED */
