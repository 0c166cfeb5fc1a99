/* dxpu_vfio_user_stream.h - vfio-user messages and their sockets, for server and client
   SPDX-License-Identifier: MIT

   Written from the public vfio-user specification.  A stream is one connected socket with what was
   received of it and what waits to be sent.  Nothing here waits. */
#ifndef DXPU_VFIO_USER_STREAM_H_INCLUDED
#define DXPU_VFIO_USER_STREAM_H_INCLUDED

#include "dxpu.h"
#include "dxpu_vfio_user_descriptors.h"

#include <time.h>

enum { /* commands */
       CMD_VERSION = 1,
       CMD_DMA_MAP = 2,
       CMD_DMA_UNMAP = 3,
       CMD_GET_INFO = 4,
       CMD_GET_REGION_INFO = 5,
       CMD_GET_REGION_IO_FDS = 6,
       CMD_GET_IRQ_INFO = 7,
       CMD_SET_IRQS = 8,
       CMD_REGION_READ = 9,
       CMD_REGION_WRITE = 10,
       CMD_DMA_READ = 11,
       CMD_DMA_WRITE = 12,
       CMD_RESET = 13,
       CMD_WRITE_MULTI = 15,
       CMD_FEATURE = 16,
       CMD_MIG_READ = 17,
       CMD_MIG_WRITE = 18
};

enum { /* header flags */
       TYPE_MASK = 0xf,
       TYPE_COMMAND = 0,
       TYPE_REPLY = 1,
       FLAG_NO_REPLY = 0x10,
       FLAG_ERROR = 0x20
};

enum { /* SET_IRQS flags */
       IRQ_DATA_NONE = 0x01,
       IRQ_DATA_BOOL = 0x02,
       IRQ_DATA_EVENTFD = 0x04,
       IRQ_DATA = 0x07,
       IRQ_MASK = 0x08,
       IRQ_UNMASK = 0x10,
       IRQ_TRIGGER = 0x20,
       IRQ_ACTION = 0x38
};

enum {
    HEADER = 16,         /* bytes before every message's own: id, command, size, flags, error */
    ACCESS = 16,         /* offset, region, count: before the data of region and DMA messages */
    MULTI_ENTRY = 24,    /* one write of REGION_WRITE_MULTI */
    IRQ_SET = 20,        /* argsz, flags, index, start, count: SET_IRQS before its data */
    FDS_MAX = 8,         /* descriptors a message may bring; also reported to the other end */
    READ_AHEAD = 16384,  /* received at a time beyond the largest message */
    PEER_BYTES = 1048576 /* max_data_xfer_size of a peer that names none */
};

/* ==== bytes: the protocol uses the byte order of the machine ================================== */

static inline uint16_t get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void put16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void put32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void put64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* ==== time ==================================================================================== */

static inline uint64_t vfu_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ==== capabilities of VERSION ================================================================= */

typedef struct vfu_capabilities {
    uint64_t transfer_bytes; /* max_data_xfer_size */
    uint64_t fds;            /* max_msg_fds */
    uint64_t dma_maps;
    uint64_t twin_index; /* of the descriptor; UINT64_MAX: not given */
    bool write_multiple, twin;
} vfu_capabilities;

/* Reads the JSON text of a VERSION message, which may have a NUL; *caps has the protocol's defaults
   where it says nothing.  False: it is malformed. */
bool vfu_capabilities_read(const uint8_t *text, size_t len, vfu_capabilities *caps);

/* ==== streams ================================================================================= */

typedef struct vfu_stream {
    int fd; /* -1: none */
    vfu_closer *closer;
    uint64_t *fds_closed, *fds_lost_count; /* the owner's counters */

    uint8_t *in; /* received, not handled: in[in_head .. in_tail) */
    size_t in_size, in_head, in_tail;
    int fds[FDS_MAX]; /* received with the message that starts at fds_at */
    unsigned fds_count;
    size_t fds_at;
    bool fds_lost;

    uint8_t *out; /* whole messages, waiting for the socket: out[out_head .. out_tail) */
    size_t out_size, out_head, out_tail;
    size_t out_sent; /* of the first one */
    bool blocked;    /* the socket took less than it was given */
    /* Descriptors to send with the message that begins here; they stay the owner's.  NULL: none. */
    unsigned (*fds_of)(void *user, const uint8_t *message, int fds[FDS_MAX]);
    void *user;
} vfu_stream;

enum { VFU_NOTHING, VFU_ALL, VFU_MORE, VFU_OVER };

/* Room for messages with `largest` bytes behind header and access, and for `queue` bytes of
   output.  False: no memory. */
bool vfu_stream_open(vfu_stream *io, size_t largest, size_t queue);
void vfu_stream_free(vfu_stream *io);
/* Forgets what was received and is to be sent; descriptors are closed before. */
void vfu_stream_clear(vfu_stream *io);

/* The size of the message at in_head when all of it is here, else 0.  *wrong: it can be none, and
   why not; else unchanged. */
size_t vfu_stream_message(const vfu_stream *io, const char **wrong);
/* Receives once.  VFU_NOTHING: there is nothing for now; VFU_ALL: that was all; VFU_MORE: there may
   be more; VFU_OVER: the connection is. */
int vfu_stream_read(vfu_stream *io);
/* Closes descriptors that were received. */
void vfu_stream_close_fds(vfu_stream *io);

/* Bytes that may still be queued. */
size_t vfu_stream_room(const vfu_stream *io);
/* A message of `size` bytes at the end of the queue, header filled: there is room.  Returns what is
   behind the header. */
uint8_t *vfu_stream_begin(vfu_stream *io, uint16_t id, uint16_t command, size_t size,
                          uint32_t flags);
/* Sends what the socket takes.  False: the connection is over. */
bool vfu_stream_flush(vfu_stream *io);

#endif /* DXPU_VFIO_USER_STREAM_H_INCLUDED */
