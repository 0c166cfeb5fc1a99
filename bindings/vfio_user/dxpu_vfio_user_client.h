/* dxpu_vfio_user_client.h - the client side of the vfio-user protocol: one PCI function of a server
   SPDX-License-Identifier: MIT

   A server (another process: a device model, QEMU's x-vfio-user-server) listens on a unix socket
   and is one PCI function.  This end reads and writes its regions, resets it, takes its interrupts,
   and does the accesses to memory that it asks for: no memory is shared with it, so a server that
   needs that (SPDK) cannot be used.
   Nothing here blocks.  A server may vanish at any byte, never answer, or send anything: lengths,
   counts and ids are checked, and it is disconnected or answered with an error, and counted.

   The whole program, for a poll loop (libevent: the same descriptor with EV_READ | EV_PERSIST):

       dxpu_vfuc *c = dxpu_vfuc_open(&cfg, &callbacks, &why);
       struct pollfd p = { dxpu_vfuc_fd(c), POLLIN, 0 };
       while (dxpu_vfuc_connect(c) == DXPU_OK && poll(&p, 1, -1) >= 0)
           while (dxpu_vfuc_process(c) == DXPU_OK && dxpu_vfuc_is_connected(c)) poll(&p, 1, -1);

   An object belongs to one thread at a time; distinct objects share nothing.  Callbacks may call
   everything here but process, connect, adopt and close.

   Order.  Commands reach the server in the order of the calls.  What the server sends is given on
   in the order in which it was sent, also where it uses a second socket for its commands (twin
   socket): a reply arrives after the DMA that was sent before it, and an interrupt behind all that
   had been sent when it was raised.

   CONTENTS   1 Limits   2 Callbacks   3 Opening and the loop   4 The device   5 Requests
              6 The server's DMA   7 Counters */
#ifndef DXPU_VFIO_USER_CLIENT_H_INCLUDED
#define DXPU_VFIO_USER_CLIENT_H_INCLUDED

#include "dxpu_vfio_user.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Limits =============================================================================== */

/* Brackets: the default. */
typedef struct dxpu_vfuc_config {
    const char *path;        /* of the server's socket; NULL: only adopt() [NULL] */
    uint32_t transfer_bytes; /* largest access, either way, 4 KiB .. 1 MiB [64 KiB] */
    uint32_t queue_bytes;    /* output waiting for a socket, 2 x transfer .. 64 MiB [1 MiB] */
    uint32_t requests;       /* unanswered at a time, 16..1,023 [256] */
    uint32_t dma_commands;   /* of the server, unanswered; no more are read then, 1..1,024 [64] */
    uint32_t answer_ms;      /* a server that leaves a command unanswered, or reads nothing of what
                                waits for its socket, is disconnected [5,000] */
    uint32_t reset_ms;       /* the same while it has a reset [30,000] */
    uint32_t burst;          /* messages of a socket handled by one process(), 1.. [64] */
    bool twin;               /* let the server use a second socket for its commands [true] */
} dxpu_vfuc_config;

/* ==== 2  Callbacks ============================================================================ */

typedef struct dxpu_vfuc dxpu_vfuc;

/* All but done may be NULL.  Each is called from process() only; pointers given to it are valid
   until it returns. */
typedef struct dxpu_vfuc_callbacks {
    void *user;
    /* The server has described its device: dxpu_vfuc_device() returns it, requests may be made. */
    void (*ready)(void *user);
    /* The connection is over, also one that never was ready: requests and DMA tokens are void,
       done() does not come for them.  why: static text. */
    void (*gone)(void *user, const char *why);
    /* A request was answered.  error: 0, or an errno value; data: what a read brought. */
    void (*done)(void *user, uint64_t tag, int error, dxpu_bytes data);
    /* The server reads memory: answer with dma_reply_read() or dma_reply_error(), now or later.
       1..transfer_bytes bytes that do not wrap around; whether it may is the owner's to know.
       NULL: refused. */
    void (*dma_read)(void *user, uint64_t token, uint64_t address, uint32_t bytes);
    /* The server writes memory; token 0: posted, there is nothing to answer. */
    void (*dma_write)(void *user, uint64_t token, uint64_t address, dxpu_bytes data);
    /* An interrupt, of those that were enabled. */
    void (*interrupt)(void *user, uint32_t irq, uint32_t vector);
} dxpu_vfuc_callbacks;

/* ==== 3  Opening and the loop ================================================================= */

/* The values in brackets. */
void dxpu_vfuc_config_default(dxpu_vfuc_config *cfg);
/* Both arguments are copied.  NULL on failure, and *why is a text (static, errno is set). */
dxpu_vfuc *dxpu_vfuc_open(const dxpu_vfuc_config *cfg, const dxpu_vfuc_callbacks *cb,
                          const char **why);
/* Disconnects and frees everything; no callback is called.  NULL is allowed. */
void dxpu_vfuc_close(dxpu_vfuc *c);
/* Connects to the server and begins to ask what it is.  DXPU_OK; E_FULL: there is a connection;
   E_CLOSED: no server listens, or its queue is full (errno); E_ARG: no path was given. */
int dxpu_vfuc_connect(dxpu_vfuc *c);
/* The same with a connected stream socket, which now is the client's.  On errors it stays the
   caller's. */
int dxpu_vfuc_adopt(dxpu_vfuc *c, int fd);
/* One descriptor for the life of the client: call process() while it is readable. */
int dxpu_vfuc_fd(const dxpu_vfuc *c);
/* Does what is ready, and returns; never blocks.  DXPU_OK, or E_DEAD when the client itself cannot
   go on (errno). */
int dxpu_vfuc_process(dxpu_vfuc *c);
/* true: no further message or interrupt of the server is handled until false.  The time that passes
   meanwhile does not count as the server's, and what had passed before still does. */
void dxpu_vfuc_pause(dxpu_vfuc *c, bool pause);
/* Is there a connection, and has its server described its device? */
bool dxpu_vfuc_is_connected(const dxpu_vfuc *c);
bool dxpu_vfuc_is_ready(const dxpu_vfuc *c);
/* Ends the connection; gone() comes from the next process(), with `why` (static text). */
void dxpu_vfuc_disconnect(dxpu_vfuc *c, const char *why);

/* ==== 4  The device =========================================================================== */

typedef struct dxpu_vfuc_info {
    dxpu_vfu_region region[DXPU_VFU_REGIONS];
    uint32_t irqs[DXPU_VFU_IRQS]; /* vectors that eventfds can signal, at most 2,048 */
    bool can_reset;
    uint32_t transfer_bytes; /* of one access, 4,096 at least: what both ends allow */
    bool write_multiple;     /* REGION_WRITE_MULTI is offered */
    bool twin;               /* the server uses a second socket */
} dxpu_vfuc_info;

/* NULL unless it is ready. */
const dxpu_vfuc_info *dxpu_vfuc_device(const dxpu_vfuc *c);

/* ==== 5  Requests =============================================================================
   done() brings `tag` back, unless the connection ends.  All: DXPU_OK; E_AGAIN: no room, try after
   the next process(); E_CLOSED: not ready; E_ARG: outside of the region, not allowed there, or more
   than transfer_bytes. */

int dxpu_vfuc_read(dxpu_vfuc *c, uint32_t region, uint64_t offset, uint32_t bytes, uint64_t tag);
/* data is copied.  posted: there is no answer, and no done().  While the socket takes nothing,
   posted writes of at most 8 bytes share a message (REGION_WRITE_MULTI) where that is offered. */
int dxpu_vfuc_write(dxpu_vfuc *c, uint32_t region, uint64_t offset, const void *data,
                    uint32_t bytes, bool posted, uint64_t tag);
int dxpu_vfuc_reset(dxpu_vfuc *c, uint64_t tag);
/* The server may ask for DMA in [address, address + bytes).  access: DXPU_VFU_READ, _WRITE.  No
   descriptor is given, so it must ask each time. */
int dxpu_vfuc_dma_map(dxpu_vfuc *c, uint64_t address, uint64_t bytes, unsigned access,
                      uint64_t tag);
/* Of exactly what was mapped. */
int dxpu_vfuc_dma_unmap(dxpu_vfuc *c, uint64_t address, uint64_t bytes, uint64_t tag);
/* Let the server raise vectors 0 .. count - 1 of a kind, and no others; 0: none.  In pieces of as
   many descriptors as it accepts; one done() comes, when all are answered, with the first error.
   E_ARG also when these are more than `requests`, or do not fit into queue_bytes. */
int dxpu_vfuc_enable_irqs(dxpu_vfuc *c, uint32_t irq, uint32_t count, uint64_t tag);
/* Requests that are not answered yet. */
uint32_t dxpu_vfuc_unanswered(const dxpu_vfuc *c);
/* Bytes that wait for the socket. */
size_t dxpu_vfuc_waiting_bytes(const dxpu_vfuc *c);

/* ==== 6  The server's DMA =====================================================================
   Room for an answer was set aside when the command was taken.  DXPU_OK; E_NONE: the token was
   answered before, or its connection is over; E_ARG: the answer does not fit. */

/* data[bytes] is copied; bytes is the command's. */
int dxpu_vfuc_dma_reply_read(dxpu_vfuc *c, uint64_t token, const void *data, size_t bytes);
int dxpu_vfuc_dma_reply_write(dxpu_vfuc *c, uint64_t token);
/* error: an errno value > 0 that is sent to the server. */
int dxpu_vfuc_dma_reply_error(dxpu_vfuc *c, uint64_t token, int error);

/* ==== 7  Counters ============================================================================= */

#define DXPU_VFUC_COUNTERS(X)                                                                      \
    X(connections, "connections made")                                                             \
    X(broken, "connections ended for what the server sent or left unanswered")                     \
    X(messages, "messages received")                                                               \
    X(reads, "region reads sent")                                                                  \
    X(writes, "region writes sent")                                                                \
    X(writes_posted, "of these, posted")                                                           \
    X(writes_shared, "of these, in messages of several")                                           \
    X(errors, "requests that the server refused")                                                  \
    X(replies_wrong, "replies that do not fit their command")                                      \
    X(replies_unexpected, "replies to nothing")                                                    \
    X(unknown, "commands that are not known")                                                      \
    X(dma_reads, "the server's reads of memory")                                                   \
    X(dma_writes, "the server's writes to memory")                                                 \
    X(dma_refused, "of these, refused")                                                            \
    X(interrupts, "interrupts")                                                                    \
    X(timeouts, "commands left unanswered or unread for too long")                                 \
    X(fds_closed, "descriptors received and not used")                                             \
    X(fds_lost, "messages with more descriptors than were agreed on")                              \
    X(output_waited, "times a socket took less than it was given")                                 \
    X(stalls, "times reading stopped for want of room for answers")

#define DXPU_VFUC_FIELD(name, text) uint64_t name;
typedef struct dxpu_vfuc_counters {
    DXPU_VFUC_COUNTERS(DXPU_VFUC_FIELD)
} dxpu_vfuc_counters;
#undef DXPU_VFUC_FIELD

const dxpu_vfuc_counters *dxpu_vfuc_count(const dxpu_vfuc *c);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_VFIO_USER_CLIENT_H_INCLUDED */
