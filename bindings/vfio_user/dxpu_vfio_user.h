/* dxpu_vfio_user.h - the server side of the vfio-user protocol: one PCI function for one guest
   SPDX-License-Identifier: MIT

   A virtual machine monitor (QEMU's vfio-user-pci) connects to a unix socket and sees one PCI
   function.  Every access to its configuration space and BARs becomes a callback, answered at once
   or later; the guest's memory is shared for DMA; interrupts are eventfds or messages.  Nothing
   here blocks.  A client may vanish, come back, or send anything: it is answered with an error or
   disconnected, and counted.

   The whole program, for a poll loop (libevent: the same descriptor with EV_READ | EV_PERSIST):

       dxpu_vfu *s = dxpu_vfu_open(&cfg, &callbacks, &why);
       struct pollfd p = { dxpu_vfu_fd(s), POLLIN, 0 };
       while (poll(&p, 1, -1) >= 0) dxpu_vfu_process(s);

   An object belongs to one thread at a time; distinct objects share nothing but a handler of
   SIGBUS, which opening one installs unless it is there: a client that truncates its memory then
   gets an error (dma_faults) instead of ending the process.  Faults of others go on to the handler
   that was there before; a program that installs another handler later must do the same.  A
   descriptor whose close may wait for the client is closed by a thread, made when there is one.
   Callbacks may call everything here but process and close.  Linux 4.18 or later (epoll, eventfd,
   memfd seals, asynchronous I/O).

   CONTENTS   1 Function and limits   2 Callbacks   3 Opening and the loop   4 Answers
              5 Guest memory   6 Interrupts   7 Counters */
#ifndef DXPU_VFIO_USER_H_INCLUDED
#define DXPU_VFIO_USER_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Function and limits ================================================================== */

/* regions of a PCI function, as VFIO numbers them; 0..5 are the BARs */
enum { DXPU_VFU_ROM = 6, DXPU_VFU_CONFIG = 7, DXPU_VFU_VGA = 8, DXPU_VFU_REGIONS = 9 };

/* interrupt kinds of a PCI function, as VFIO numbers them */
enum { DXPU_VFU_INTX, DXPU_VFU_MSI, DXPU_VFU_MSIX, DXPU_VFU_ERR, DXPU_VFU_REQ, DXPU_VFU_IRQS };

enum { DXPU_VFU_READ = 1, DXPU_VFU_WRITE = 2 }; /* access: of a region, of guest memory */

typedef struct dxpu_vfu_region {
    uint64_t bytes;  /* 0: the region does not exist */
    unsigned access; /* DXPU_VFU_READ | DXPU_VFU_WRITE: what the client may do */
} dxpu_vfu_region;

/* The function presented.  The configuration space, which the callbacks own, says what the BARs
   are (64-bit, prefetchable) and where the MSI-X table is; a 64-bit BAR uses its lower index.
   There are no mappable areas: every access is a message.  Brackets: the default. */
typedef struct dxpu_vfu_config {
    const char *path; /* of the listening socket; NULL: none, adopt() is given clients [NULL] */
    unsigned mode; /* permission bits of the socket file, whatever the umask, which open changes for
                         a moment [0600] */
    dxpu_vfu_region region[DXPU_VFU_REGIONS]; /* [configuration space of 256 bytes, read-write] */
    uint32_t irqs[DXPU_VFU_IRQS];             /* vectors of each kind, 0..2,048 [0] */
    bool hidden;    /* there is no function yet: connections wait for dxpu_vfu_present() [false] */
    bool can_reset; /* the client may send DEVICE_RESET [true] */
    uint32_t transfer_bytes; /* largest access and DMA message, 4 KiB .. 1 MiB [64 KiB] */
    uint32_t queue_bytes;    /* output waiting for the socket, 2 x transfer .. 64 MiB [1 MiB] */
    uint32_t requests;     /* accesses unanswered at a time, 1..4,096; reading stops there [256] */
    uint32_t dma_maps;     /* guest memory regions, 1..65,535 [4,096] */
    uint64_t memory_bytes; /* address space for them [16 TiB] */
    uint32_t dma_messages; /* DMA messages unanswered at a time, 1..1,023 [64] */
    uint32_t late_ms;      /* answers later than this are dropped, 0: none are [4,500] */
    uint32_t burst;        /* messages handled by one process(), 1.. [64] */
} dxpu_vfu_config;

/* ==== 2  Callbacks ============================================================================ */

typedef struct dxpu_vfu dxpu_vfu;

/* One access, checked: it lies inside its region, which allows it, and has 1..transfer_bytes. */
typedef struct dxpu_vfu_access {
    uint64_t token;  /* answer with this, once; 0: a posted write, there is nothing to answer */
    uint64_t offset; /* in the region */
    uint32_t region; /* DXPU_VFU_CONFIG, a BAR, ... */
    uint32_t bytes;  /* as the client sent it: any length and alignment */
} dxpu_vfu_access;

/* All but read and write may be NULL.  Each is called from process() only; pointers given to it are
   valid until it returns.  A token stays good until it is answered or the client is gone. */
typedef struct dxpu_vfu_callbacks {
    void *user;
    /* Answer with dxpu_vfu_reply_read() or _error(), now or later. */
    void (*read)(void *user, const dxpu_vfu_access *a);
    /* Take data[a->bytes]; unless the token is 0, answer with dxpu_vfu_reply_write() or _error().
       A REGION_WRITE_MULTI arrives as its writes, of which only the last may have a token. */
    void (*write)(void *user, const dxpu_vfu_access *a, const uint8_t *data);
    /* Reset the function; answer with dxpu_vfu_reply_write() or _error().  NULL: done at once. */
    void (*reset)(void *user, uint64_t token);
    /* A client has agreed on a version. */
    void (*connected)(void *user);
    /* That client is gone: all its tokens, DMA messages, memory and eventfds are void already.  The
       state of the function is kept, as the protocol wants.  why: static text. */
    void (*disconnected)(void *user, const char *why);
    /* A DMA message was answered.  error: 0, or an errno value; data: what a read brought. */
    void (*dma_done)(void *user, uint64_t tag, int error, dxpu_bytes data);
} dxpu_vfu_callbacks;

/* ==== 3  Opening and the loop ================================================================= */

/* The values in brackets. */
void dxpu_vfu_config_default(dxpu_vfu_config *cfg);
/* Listen.  Both arguments are copied.  A stale socket file (no listener) is replaced.
   NULL on failure, and *why is a text with its remedy (static, errno is set). */
dxpu_vfu *dxpu_vfu_open(const dxpu_vfu_config *cfg, const dxpu_vfu_callbacks *cb, const char **why);
/* Disconnect, remove the socket file, free everything; no callback is called.  NULL is allowed. */
void dxpu_vfu_close(dxpu_vfu *s);
/* Remove a stale socket file (no listener); any other stays.  For a process that outlives a server
   which may not, or could not, remove its own. */
void dxpu_vfu_remove(const char *path);
/* Take a connected stream socket as the client; it now belongs to the server.  DXPU_OK, E_FULL
   when there is a client, E_ARG when fd cannot be used; on errors fd stays the caller's. */
int dxpu_vfu_adopt(dxpu_vfu *s, int fd);
/* Present another function from now on: region[DXPU_VFU_REGIONS] and irqs[DXPU_VFU_IRQS] as in the
   configuration, copied; its interrupts are low.  NULL: none, as `hidden` says.  DXPU_OK; E_FULL
   when a client is connected, or without memory; E_ARG.  A client that is lost is not connected,
   also before disconnected() was called, which may present, too: the last call counts. */
int dxpu_vfu_present(dxpu_vfu *s, const dxpu_vfu_region *region, const uint32_t *irqs);
/* The connection to a client that has agreed on a version, -1: none.  Another process that holds a
   duplicate can end it gracefully when this one cannot any more: by dxpu_vfu_end(). */
int dxpu_vfu_client(const dxpu_vfu *s);
/* Shut a connection down, read what the client had sent, close it: as the server does with its own.
   Descriptors that the client had sent are closed with that, which can wait for the client. */
void dxpu_vfu_end(int fd);
/* One descriptor for the life of the server: call process() while it is readable.  (An epoll
   descriptor: it covers listening, reading, writing, and work put off by burst or pause.) */
int dxpu_vfu_fd(const dxpu_vfu *s);
/* Do what is ready: at most `burst` messages, then return; the descriptor stays readable when
   there is more.  Never blocks.  DXPU_OK, or E_DEAD when the server itself cannot go on (errno). */
int dxpu_vfu_process(dxpu_vfu *s);
/* true: take no further message from the client until false, replies to DMA messages included.
   Answers and direct DMA go on.  QEMU gives up after 5 s without an answer. */
void dxpu_vfu_pause(dxpu_vfu *s, bool pause);
/* Is there a client that has agreed on a version? */
bool dxpu_vfu_is_connected(const dxpu_vfu *s);
/* Drop the client.  Tokens are void at once; disconnected() comes from the next process(). */
void dxpu_vfu_disconnect(dxpu_vfu *s);

/* ==== 4  Answers ==============================================================================
   All: DXPU_OK; E_NONE (and counted as reply_refused) when the token was answered before, belongs
   to a client that is gone, or never existed; E_ARG when the answer does not fit the request, which
   then stays unanswered.  An answer later than late_ms is E_NONE too (counted as reply_late), and
   is not sent: QEMU has given up after 5 s, and a reply that it no longer expects breaks its stream
   of messages.  Room for the answer was set aside when the request was taken: they cannot
   fail for lack of it.  O(1) plus the copy. */

/* data[bytes] is copied; bytes is the access's. */
int dxpu_vfu_reply_read(dxpu_vfu *s, uint64_t token, const void *data, size_t bytes);
int dxpu_vfu_reply_write(dxpu_vfu *s, uint64_t token); /* a write, or a reset */
/* error: an errno value > 0 that is sent to the client. */
int dxpu_vfu_reply_error(dxpu_vfu *s, uint64_t token, int error);
/* Requests not answered yet. */
uint32_t dxpu_vfu_unanswered(const dxpu_vfu *s);
/* Bytes that wait for the socket: an eventfd that is signalled now overtakes them. */
size_t dxpu_vfu_waiting_bytes(const dxpu_vfu *s);

/* ==== 5  Guest memory =========================================================================
   Regions come and go at any message; look up at each use.  A range may lie in several regions that
   touch; it never crosses a hole, and is accessed as a whole or not at all (only memory that the
   client took away by truncating its file may fail half-way).  Address + bytes may end at 2^64. */

/* how a range can be reached */
enum {
    DXPU_VFU_DMA_NONE,    /* a part is not mapped, or not for this access */
    DXPU_VFU_DMA_DIRECT,  /* by dma_read() and dma_write() */
    DXPU_VFU_DMA_MESSAGE, /* a part was given without a usable file: by message only */
    DXPU_VFU_DMA_VOID     /* no bytes, or it wraps around */
};
/* access: DXPU_VFU_READ or DXPU_VFU_WRITE or both.  O(log regions + regions touched). */
int dxpu_vfu_dma_probe(const dxpu_vfu *s, uint64_t address, uint64_t bytes, unsigned access);
/* Copy bytes from or to guest memory.  DXPU_OK, or E_NONE unless the range is DMA_DIRECT.  Writes
   are made in rising address order, the last 64 bytes in aligned units of at most 8, so that a
   guest that polls sees an entry's last dword last. */
int dxpu_vfu_dma_read(dxpu_vfu *s, uint64_t address, void *data, size_t bytes);
int dxpu_vfu_dma_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes);
/* The same by message: the client does the access on the function's behalf, in the order sent.  The
   range need not be mapped.  dma_done() brings `tag` back, except for posted writes.  bytes: 1 ..
   dxpu_vfu_dma_message_bytes().  DXPU_OK, E_AGAIN (try after the next process()), E_CLOSED (no
   client), E_ARG. */
int dxpu_vfu_dma_send_read(dxpu_vfu *s, uint64_t address, size_t bytes, uint64_t tag);
int dxpu_vfu_dma_send_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes,
                            bool posted, uint64_t tag);
/* Largest DMA message: what both ends allow; 0 without a client. */
size_t dxpu_vfu_dma_message_bytes(const dxpu_vfu *s);
/* Region `index` of guest memory in address order; false past the last. */
typedef struct dxpu_vfu_memory {
    uint64_t address;
    uint64_t bytes;
    unsigned access; /* DXPU_VFU_READ | DXPU_VFU_WRITE */
    bool direct;     /* shared, not by message */
} dxpu_vfu_memory;
bool dxpu_vfu_memory_at(const dxpu_vfu *s, uint32_t index, dxpu_vfu_memory *out);
/* A number that is another one after each time that regions came or went. */
uint32_t dxpu_vfu_memory_changes(const dxpu_vfu *s);

/* ==== 6  Interrupts =========================================================================== */

/* Raise vector `vector` of kind `irq` through the eventfd that the client gave for it.  A masked
   vector is remembered and raised when unmasked; INTx masks itself.  DXPU_OK; E_NONE when the
   client gave no eventfd; E_ARG. */
int dxpu_vfu_irq_raise(dxpu_vfu *s, uint32_t irq, uint32_t vector);
/* Assert or deassert a vector that is a level, as INTx is: while it is asserted it is raised again
   whenever it is unmasked or gets an eventfd.  Kept while no client is connected.  As
   dxpu_vfu_irq_raise(). */
int dxpu_vfu_irq_level(dxpu_vfu *s, uint32_t irq, uint32_t vector, bool on);
/* Send an MSI: a posted 4-byte DMA message, which a PC's client turns into the interrupt at
   0xfee00000.  Bus Master Enable must be set in the function's command register, or QEMU refuses it
   (counted as dma_errors).
   address: a multiple of 4.  As dxpu_vfu_dma_send_write(). */
int dxpu_vfu_msi(dxpu_vfu *s, uint64_t address, uint32_t data);

/* ==== 7  Counters ============================================================================= */

#define DXPU_VFU_COUNTERS(X)                                                                       \
    X(clients, "clients that agreed on a version")                                                 \
    X(clients_refused, "connections closed because there was a client, or no descriptor left")     \
    X(clients_broken, "clients disconnected for what they sent")                                   \
    X(messages, "messages received, well-formed headers")                                          \
    X(reads, "region reads given to the callback")                                                 \
    X(writes, "region writes given to the callback")                                               \
    X(writes_posted, "those of them that want no answer")                                          \
    X(resets, "device resets")                                                                     \
    X(errors, "commands refused with an error")                                                    \
    X(errors_silent, "commands refused that wanted no answer")                                     \
    X(unknown, "commands of an unknown or unsupported number")                                     \
    X(reply_refused, "answers refused: given before, or the client is gone")                       \
    X(reply_late, "answers dropped: the client has given up")                                      \
    X(reply_unexpected, "replies of the client to nothing")                                        \
    X(fds_closed, "descriptors received that the message does not use")                            \
    X(fds_lost, "messages whose descriptors did not all arrive")                                   \
    X(dma_by_message, "regions whose file is missing or not memory: reached by message only")      \
    X(dma_refused, "direct accesses outside what is mapped and allowed")                           \
    X(dma_faults, "direct accesses to memory that the client took away")                           \
    X(dma_sent, "DMA messages sent")                                                               \
    X(dma_errors, "DMA messages that failed or were answered wrongly")                             \
    X(irqs_raised, "eventfds signalled")                                                           \
    X(irqs_failed, "eventfds not signalled: asynchronous I/O is missing")                          \
    X(output_waited, "times the socket took less than it was given")                               \
    X(stalls, "times reading stopped: no room for answers, or descriptors wait to be closed")

#define DXPU_VFU_FIELD(name, text) uint64_t name;
typedef struct dxpu_vfu_counters {
    DXPU_VFU_COUNTERS(DXPU_VFU_FIELD)
} dxpu_vfu_counters;
#undef DXPU_VFU_FIELD

const dxpu_vfu_counters *dxpu_vfu_count(const dxpu_vfu *s);
/* Name, meaning and value of counter `index`; NULL past the last. */
const char *dxpu_vfu_counter_name(unsigned index);
const char *dxpu_vfu_counter_text(unsigned index);
uint64_t dxpu_vfu_counter_value(const dxpu_vfu *s, unsigned index);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_VFIO_USER_H_INCLUDED */
