/* dxpu_libevent.h - datagrams for dxpu: UDP in batches, three ways of waiting, libevent underneath
   SPDX-License-Identifier: MIT

   One dxpu_udp is one UDP port of one thread's loop: its sockets, its event base and the loop.  It
   knows datagrams and paths, not TLPs.  An object belongs to one thread.

   CONTENTS   1 Addresses and paths   2 Opening   3 Sending   4 The loop   5 Counters   6 Bypass */
#ifndef DXPU_LIBEVENT_H_INCLUDED
#define DXPU_LIBEVENT_H_INCLUDED

#include "dxpu.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DXPU_UDP_PORT = 4458 }; /* default port of a box */

/* ==== 1  Addresses and paths ================================================================== */

/* An IPv4 or IPv6 address and port. */
typedef struct dxpu_udp_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } u;
    socklen_t len;
} dxpu_udp_address;

/* A way between two ports: which of our sockets, and the remote address.  A caller keeps one array
   of them per channel; dxpu_channel_emit()'s path is the index into it. */
typedef struct dxpu_udp_path {
    unsigned socket; /* 0 .. sockets - 1 */
    dxpu_udp_address remote;
} dxpu_udp_path;

enum { DXPU_UDP_TEXT_BYTES = 80 };

/* "127.0.0.1:4458", "[::1]:4458", "box.example:4458", "127.0.0.1" (DXPU_UDP_PORT), ":0", "*:4458".
   Host names are resolved, which may block.  Returns NULL, or a static text about what is wrong:
   dxpu_udp_unresolved for a name that may be resolved later, any other for a permanent error. */
const char *dxpu_udp_parse(const char *text, dxpu_udp_address *out);
extern const char dxpu_udp_unresolved[];
/* Up to `max` addresses with commas in between; *count gets how many.  Returns as above. */
const char *dxpu_udp_parse_list(const char *text, dxpu_udp_address *out, unsigned max,
                                unsigned *count);
/* The reverse; out is returned. */
const char *dxpu_udp_print(const dxpu_udp_address *a, char out[DXPU_UDP_TEXT_BYTES]);
bool dxpu_udp_same(const dxpu_udp_address *a, const dxpu_udp_address *b);

/* ==== 2  Opening ============================================================================== */

/* how the loop waits when there is nothing to do */
enum {
    DXPU_UDP_ADAPTIVE, /* polls for spin_ns after the last datagram and before a timer, yielding the
                          processor between two polls, else blocks: low latency while packets
                          flow */
    DXPU_UDP_BLOCK,    /* always blocks: least processor time */
    DXPU_UDP_BUSY      /* never blocks: lowest latency, one core */
};

enum { DXPU_UDP_SOCKETS_MAX = 8 };

typedef struct dxpu_udp_config {
    dxpu_udp_address local[DXPU_UDP_SOCKETS_MAX];
    unsigned sockets; /* 1..DXPU_UDP_SOCKETS_MAX; a second one is a second path's local address */
    unsigned wait;    /* DXPU_UDP_ADAPTIVE.. */
    uint64_t spin_ns; /* [50,000] */
    unsigned batch;   /* messages a system call, 1..1024 [32] */
    size_t datagram_bytes;   /* largest one sent or received [2,048] */
    unsigned buffer_bytes;   /* asked for as socket buffers; the kernel may give less [4 MiB] */
    bool ecn_capable;        /* mark what is sent ECT(0): only for a sender that heeds CE [false] */
    struct event_base *base; /* NULL: one with precise timers is made, and freed by close */
} dxpu_udp_config;

typedef struct dxpu_udp dxpu_udp;

/* The values in brackets; local and sockets stay 0 for the caller to set. */
void dxpu_udp_config_default(dxpu_udp_config *cfg);
/* Bind the sockets.  NULL on failure, and *why is a text with its remedy (static, errno is set). */
dxpu_udp *dxpu_udp_open(const dxpu_udp_config *cfg, const char **why);
void dxpu_udp_close(dxpu_udp *u); /* NULL is allowed */
unsigned dxpu_udp_sockets(const dxpu_udp *u);
/* Where socket `index` is bound, with the port the kernel chose. */
const dxpu_udp_address *dxpu_udp_local(const dxpu_udp *u, unsigned index);
/* For further events (signals, timers) of the program. */
struct event_base *dxpu_udp_base(dxpu_udp *u);
/* Monotonic nanoseconds: the clock of the loop, and the one to give to dxpu.h. */
uint64_t dxpu_udp_now_ns(void);

/* ==== 3  Sending ============================================================================== */

/* Room for the next datagram, datagram_bytes of it; write there, then commit.  Never NULL: a full
   batch is sent first, or dropped where it can only wait. */
uint8_t *dxpu_udp_room(dxpu_udp *u);
/* Queue the first len bytes of dxpu_udp_room() to a path.  They leave with the batch, in order for
   each socket: when it is full, at flush, and after each run() of the loop. */
void dxpu_udp_commit(dxpu_udp *u, const dxpu_udp_path *to, size_t len);
/* Room for up to *datagrams side by side, datagram_bytes each: for dxpu_channel_emit_many().  NULL
   and 0 while a socket's buffer is full: send later, the loop calls run() again.
   Then commit_many(): the first len bytes of it leave as datagrams of `segment` bytes, the last one
   maybe shorter, no more of them than there was room for; where the kernel takes it, as one
   message.  segment is at least 1, but for one empty datagram. */
uint8_t *dxpu_udp_room_many(dxpu_udp *u, unsigned *datagrams);
void dxpu_udp_commit_many(dxpu_udp *u, const dxpu_udp_path *to, size_t len, size_t segment);
/* Send the batch now.  Datagrams that a full socket buffer refuses wait for the next flush.  After
   5 ms without any progress they are dropped and counted as tx_full, and so are all that follow
   until the socket accepts some again.  What the kernel refuses for other reasons is dropped and
   counted. */
void dxpu_udp_flush(dxpu_udp *u);

/* ==== 4  The loop ============================================================================= */

typedef struct dxpu_udp_callbacks {
    void *user;
    /* One datagram; buf may be written to and is valid until the callback returns.  flags is what
       dxpu_channel_ingest() takes: DXPU_RX_ECN_CE. */
    void (*on_datagram)(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags);
    /* When run() has something to do next: 0 at once, DXPU_NEVER nothing is armed. */
    uint64_t (*next_ns)(void *user);
    /* Do what is due.  Called after each batch of datagrams, when next_ns() has come, and after
       libevent has run other events. */
    void (*run)(void *user, uint64_t now_ns);
} dxpu_udp_callbacks;

/* Call look() whenever the loop polls for datagrams, for example to check memory shared with
   another process.  It returns true if there was something; run() is called then.  about_to_block:
   if there is nothing, a descriptor of the loop's base must signal new work from now on.  NULL:
   stop.  While it is set, the loop yields the processor between two polls also with
   DXPU_UDP_BUSY, since it may wait for a thread on this core. */
void dxpu_udp_watch(dxpu_udp *u, bool (*look)(void *user, bool about_to_block), void *user);
/* Run until dxpu_udp_stop().  DXPU_OK, or -1 with errno when waiting itself failed. */
int dxpu_udp_loop(dxpu_udp *u, const dxpu_udp_callbacks *cb);
/* Make the loop return; from a callback or an event of the same base. */
void dxpu_udp_stop(dxpu_udp *u);

/* ==== 5  Counters ============================================================================= */

#define DXPU_UDP_COUNTERS(X)                                                                       \
    X(rx_datagrams, "datagrams received")                                                          \
    X(rx_bytes, "bytes of them")                                                                   \
    X(rx_batches, "receiving system calls that brought some")                                      \
    X(rx_too_long, "dropped: longer than datagram_bytes")                                          \
    X(rx_errors, "receiving system calls that failed")                                             \
    X(tx_datagrams, "datagrams sent")                                                              \
    X(tx_bytes, "bytes of them")                                                                   \
    X(tx_batches, "sending system calls that took some")                                           \
    X(tx_full, "dropped: the socket buffer was full")                                              \
    X(tx_too_long, "dropped: larger than the path's MTU")                                          \
    X(tx_errors, "dropped: other errors of the kernel")                                            \
    X(waits, "times the loop blocked")

#define DXPU_UDP_FIELD(name, text) uint64_t name;
typedef struct dxpu_udp_counters {
    DXPU_UDP_COUNTERS(DXPU_UDP_FIELD)
} dxpu_udp_counters;
#undef DXPU_UDP_FIELD

const dxpu_udp_counters *dxpu_udp_count(const dxpu_udp *u);
/* Name and value of counter `index`; NULL past the last. */
const char *dxpu_udp_counter_name(unsigned index);
uint64_t dxpu_udp_counter_value(const dxpu_udp *u, unsigned index);

/* ==== 6  Bypass =============================================================================== */

enum { DXPU_UDP_BYPASS_FDS = 16 };

/* A way past the kernel's sockets, such as bindings/af_xdp: it is asked first, and what it does not
   take goes by the socket.  The sockets stay: they hold the ports. */
typedef struct dxpu_udp_bypass {
    void *self;
    int fd[DXPU_UDP_BYPASS_FDS]; /* readable when receive() has something */
    unsigned fds;
    size_t datagram_bytes; /* room's, at most the configured one: what a sender has from now on */
    uint8_t *(*room)(void *self); /* NULL: none now */
    /* False: not taken, the bytes in the room still stand. */
    bool (*commit)(void *self, const dxpu_udp_path *to, size_t len);
    void (*flush)(void *self);
    /* Datagrams wait that flush() could not hand over: the loop calls it again within 100 us.
       NULL: they never do. */
    bool (*waits)(const void *self);
    /* One batch; how much there was. */
    unsigned (*receive)(void *self, const dxpu_udp_callbacks *cb);
} dxpu_udp_bypass;

/* Use it from now on; before the loop, once.  It must outlive u.  DXPU_OK, or -1. */
int dxpu_udp_use(dxpu_udp *u, const dxpu_udp_bypass *b);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_LIBEVENT_H_INCLUDED */
