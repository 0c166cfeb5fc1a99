/* dxpu_af_xdp.h - datagrams for dxpu past the kernel's network stack: AF_XDP sockets, libxdp and
   libbpf underneath
   SPDX-License-Identifier: MIT

   One dxpu_xdp works beside the UDP sockets of one loop and carries their traffic on one network
   interface.  An XDP program steers the datagrams for their addresses and ports here; everything
   else passes to the kernel.  What AF_XDP cannot send (a neighbour not yet resolved, a route by
   another interface) the caller sends by its UDP socket, which makes the kernel resolve the
   neighbour.  The wire is plain UDP/IPv4 and IPv6, so the other end need not use AF_XDP.

   An object belongs to one thread.  Several of one program may share an interface, each with ports
   and queues of its own: they are opened and closed while none of them runs.

   CONTENTS   1 Addresses   2 Opening   3 Sending   4 Receiving   5 Counters   6 Headers, filter */
#ifndef DXPU_AF_XDP_H_INCLUDED
#define DXPU_AF_XDP_H_INCLUDED

#include "dxpu.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef DXPU_AF_XDP /* 1: with libxdp and libbpf; 0: dxpu_xdp_open() says that they are missing */
#define DXPU_AF_XDP 0
#endif
#if DXPU_AF_XDP != 0 && DXPU_AF_XDP != 1
#error "DXPU_AF_XDP: 0 or 1"
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DXPU_XDP_SOCKETS_MAX = 8,
    DXPU_XDP_LOCALS_MAX = 32,
    DXPU_XDP_QUEUES_MAX = 16,
    DXPU_XDP_PACKET_MAX = 3826,   /* bytes of an IP packet: a 4 KiB chunk, headroom, Ethernet */
    DXPU_XDP_DATAGRAM_MAX = 3798, /* bytes of a datagram in one, by IPv4 */
    DXPU_XDP_MAC_BYTES = 6
};

/* ==== 1  Addresses ============================================================================ */

/* An IPv4 or IPv6 address and port. */
typedef union dxpu_xdp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} dxpu_xdp_address;

/* One of our addresses on the interface, never a wildcard. */
typedef struct dxpu_xdp_local {
    dxpu_xdp_address at;
    unsigned socket; /* the caller's number of it */
    unsigned loop;   /* of several objects on the interface, which one has it */
} dxpu_xdp_local;

/* ==== 2  Opening ============================================================================== */

typedef struct dxpu_xdp_config {
    char interface[IF_NAMESIZE];
    /* Where the caller's UDP sockets are bound.  Those of another interface are left to them; a
       wildcard stands for every address that the interface has now. */
    dxpu_xdp_address local[DXPU_XDP_SOCKETS_MAX];
    unsigned sockets;        /* 1..DXPU_XDP_SOCKETS_MAX */
    unsigned queue, queues;  /* the first one, and how many [0, 1]; sending is by the first */
    unsigned loop, loops;    /* the queues are divided among `loops` objects; this one has part
                               `loop`, from 0 [0, 1] */
    struct dxpu_xdp *beside; /* the object with loop 0, for all others [NULL] */
    unsigned batch;          /* datagrams at a look, 1..256 [64] */
    bool generic;            /* do not ask the driver: the kernel's generic XDP [false] */
    bool copy;               /* do not ask the driver for zero-copy [false] */
    bool busy_poll;          /* drive the driver from dxpu_xdp_receive() (SO_PREFER_BUSY_POLL), for
                               drivers with gro_flush_timeout set [false] */
    bool ecn_capable;        /* mark what is sent ECT(0): only for a sender that heeds CE [false] */
    bool fixed_hop;          /* all goes to next_hop; the kernel is not asked [false] */
    uint8_t next_hop[DXPU_XDP_MAC_BYTES];
} dxpu_xdp_config;

typedef struct dxpu_xdp dxpu_xdp;

/* The values in brackets; local and sockets stay 0 for the caller to set. */
void dxpu_xdp_config_default(dxpu_xdp_config *cfg);
/* "eth0", "eth0,2" (queue), "eth0,0-3", and behind them ",generic", ",copy", ",busy-poll",
   ",mac=02:00:00:00:00:01" (fixed next hop).  Returns NULL, or a static text of what is wrong. */
const char *dxpu_xdp_parse_option(const char *text, dxpu_xdp_config *cfg);
/* Sockets, filter, and the filter on the interface until close or the end of the process.  May wait
   a second for a queue that another socket is just leaving.  NULL on failure, and *why is a text
   with its remedy (static, errno is set). */
dxpu_xdp *dxpu_xdp_open(const dxpu_xdp_config *cfg, const char **why);
void dxpu_xdp_close(dxpu_xdp *x); /* NULL is allowed */
/* "native, zero-copy", "native, copy" or "generic, copy": what the driver gave. */
const char *dxpu_xdp_mode(const dxpu_xdp *x);
/* Readable when dxpu_xdp_receive() has something; of queue number `index` from 0. */
unsigned dxpu_xdp_queues(const dxpu_xdp *x);
int dxpu_xdp_fd(const dxpu_xdp *x, unsigned index);
/* What it was built with: "libbpf 1.1", or "none". */
const char *dxpu_xdp_name(void);

/* ==== 3  Sending ============================================================================== */

/* Room for the next datagram, DXPU_XDP_DATAGRAM_MAX bytes; write there, then commit.  NULL: all
   buffers wait for the driver. */
uint8_t *dxpu_xdp_room(dxpu_xdp *x);
/* Queue the first len bytes of dxpu_xdp_room() from the caller's socket number `socket`.  False: it
   cannot be sent by AF_XDP now; the bytes in the room are unchanged: send them by the socket. */
bool dxpu_xdp_commit(dxpu_xdp *x, unsigned socket, const dxpu_xdp_address *to, size_t len);
/* Hand what was queued to the driver. */
void dxpu_xdp_flush(dxpu_xdp *x);
/* True: the driver's queue was full, and datagrams wait: call dxpu_xdp_flush() again soon, also
   when there is nothing new.  It tries a bounded number of times and never waits. */
bool dxpu_xdp_waits(const dxpu_xdp *x);

/* ==== 4  Receiving ============================================================================ */

/* One datagram; buf may be written to and is valid until the callback returns, which may send.
   flags is what dxpu_channel_ingest() takes: DXPU_RX_ECN_CE. */
typedef void dxpu_xdp_on_datagram(void *user, uint8_t *buf, size_t len, unsigned socket,
                                  const dxpu_xdp_address *from, unsigned flags);
/* Receive up to a batch from each queue; never waits.  Returns the number of packets examined. */
unsigned dxpu_xdp_receive(dxpu_xdp *x, dxpu_xdp_on_datagram *on_datagram, void *user);

/* ==== 5  Counters ============================================================================= */

#define DXPU_XDP_COUNTERS(X)                                                                       \
    X(rx_datagrams, "datagrams received")                                                          \
    X(rx_bytes, "bytes of them")                                                                   \
    X(rx_batches, "looks that brought some")                                                       \
    X(rx_not_ours, "dropped: not UDP for an address and port of ours")                             \
    X(rx_length, "dropped: lengths of Ethernet, IP and UDP do not agree")                          \
    X(rx_fragment, "dropped: a fragment")                                                          \
    X(rx_checksum, "dropped: checksum of IP or UDP")                                               \
    X(rx_source, "dropped: invalid source address")                                                \
    X(rx_checksum_partial, "taken from this machine's kernel, which left the checksum open")       \
    X(rx_fill_empty, "packets found no buffer (kernel's count, may rise without loss)")            \
    X(rx_ring_full, "lost by the kernel: the receive ring was full")                               \
    X(rx_kernel_dropped, "lost by the kernel otherwise")                                           \
    X(tx_datagrams, "datagrams sent")                                                              \
    X(tx_bytes, "bytes of them")                                                                   \
    X(tx_batches, "flushes that had some")                                                         \
    X(tx_full, "left to the socket: all buffers were waiting")                                     \
    X(tx_elsewhere, "left to the socket: no neighbour, or another interface")                      \
    X(tx_refresh, "left to the socket so that the kernel asks an old neighbour again")             \
    X(tx_too_long, "dropped: larger than the interface's MTU")                                     \
    X(tx_left, "flushes that left datagrams for another try: the driver's queue was full")         \
    X(tx_errors, "flushes that the kernel refused")                                                \
    X(lookups, "times the kernel was asked for a route and neighbour")

#define DXPU_XDP_FIELD(name, text) uint64_t name;
typedef struct dxpu_xdp_counters {
    DXPU_XDP_COUNTERS(DXPU_XDP_FIELD)
} dxpu_xdp_counters;
#undef DXPU_XDP_FIELD

/* With what the kernel counts as of this call. */
const dxpu_xdp_counters *dxpu_xdp_count(dxpu_xdp *x);
/* Name and value of counter `index`; NULL past the last. */
const char *dxpu_xdp_counter_name(unsigned index);
uint64_t dxpu_xdp_counter_value(const dxpu_xdp_counters *c, unsigned index);

/* ==== 6  Headers, filter ======================================================================
   Pure functions: need neither rights nor libraries. */

enum { DXPU_XDP_HEADERS_4 = 42, DXPU_XDP_HEADERS_6 = 62 }; /* bytes: Ethernet, IP, UDP */

/* Between whom, and how, a packet goes. */
typedef struct dxpu_xdp_way {
    uint8_t from_mac[DXPU_XDP_MAC_BYTES], to_mac[DXPU_XDP_MAC_BYTES];
    dxpu_xdp_address from, to; /* of one family */
    uint8_t ecn;               /* 0..3, as IP has it */
} dxpu_xdp_way;

/* Bytes of headers for this family, 42 or 62. */
size_t dxpu_xdp_header_bytes(int family);
/* Write the headers in front of the `len` bytes of datagram that are at frame + header bytes;
   Don't Fragment, hop limit 64.  len: 0..DXPU_XDP_DATAGRAM_MAX. */
void dxpu_xdp_build(uint8_t *frame, const dxpu_xdp_way *way, size_t len);

/* what became of a packet; each has its counter */
enum {
    DXPU_XDP_GOOD,
    DXPU_XDP_NOT_OURS,
    DXPU_XDP_LENGTH,
    DXPU_XDP_FRAGMENT,
    DXPU_XDP_CHECKSUM,
    DXPU_XDP_SOURCE
};

typedef struct dxpu_xdp_datagram {
    size_t offset, len; /* of the datagram in the frame */
    unsigned socket;
    dxpu_xdp_address from;
    unsigned flags; /* DXPU_RX_ECN_CE */
    bool partial;   /* the checksum was only begun */
} dxpu_xdp_datagram;

typedef struct dxpu_xdp_receiver {
    const dxpu_xdp_local *local;
    unsigned locals;
    uint32_t scope;  /* the interface's index, for link-local sources */
    bool partial_ok; /* packets may come from this machine's kernel, which leaves the UDP checksum
                        to a driver: the sum of the pseudo-header alone is taken, too (veth) */
} dxpu_xdp_receiver;

/* Parse a received packet of any bytes.  Returns DXPU_XDP_GOOD and *out, or why it is dropped. */
int dxpu_xdp_parse(const dxpu_xdp_receiver *r, const uint8_t *frame, size_t len,
                   dxpu_xdp_datagram *out);

struct bpf_insn;
enum { DXPU_XDP_FILTER_MAX = 512 }; /* instructions */
/* The XDP program: whole UDP packets without IP options for one of the locals go to the AF_XDP
   socket that map_fd, a BPF_MAP_TYPE_XSKMAP, has at local.loop * queues + their queue, everything
   else to the kernel: also what came to a queue of another loop, since the kernel gives a packet
   only to sockets of its queue.  queues: 1 + the highest number of a queue.  Returns the number of
   instructions in out, which has room for DXPU_XDP_FILTER_MAX.  locals: at most
   DXPU_XDP_LOCALS_MAX. */
unsigned dxpu_xdp_filter(const dxpu_xdp_local *local, unsigned locals, unsigned queues, int map_fd,
                         struct bpf_insn *out);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_AF_XDP_H_INCLUDED */
