/* render_wire.h - messages between a virtio display adapter and its renderer, dxpu-render
   SPDX-License-Identifier: MIT

   A pair of sockets that keeps messages apart, and a memory of RENDER_MEMORY_BYTES that both map
   and neither can resize, in RENDER_SLOTS slots.  Words are 32 bits, little-endian.  A request has
   RENDER_REQUEST_BYTES:

       0 operation   1 number   2 context   3 resource   4... arguments, below; the rest is 0

   A reply has RENDER_REPLY_BYTES:

       READY   version, then version and bytes of each capability set, which begins slot 0 or 1:
               once, and first
       DONE    the number of a request, status (0: good): once for each request.  It says that its
               slot is read, or filled, and for a request with RENDER_FENCE that all before it is
               drawn
       RESULT  resource, then 4 words: a query's result, which replaces the beginning of that
               resource in the guest's memory; before the DONE of the requests that it follows from

   Each end takes the other for hostile: what is not as said here ends the connection, and what is
   in the memory may change at any time. */
#ifndef RENDER_WIRE_H_INCLUDED
#define RENDER_WIRE_H_INCLUDED

#include "dxpu.h"

enum {
    RENDER_VERSION = 1,
    RENDER_REQUEST_WORDS = 16,
    RENDER_REQUEST_BYTES = RENDER_REQUEST_WORDS * 4,
    RENDER_REPLY_WORDS = 8,
    RENDER_REPLY_BYTES = RENDER_REPLY_WORDS * 4,

    RENDER_SLOTS = 8,
    RENDER_SLOT_BYTES = 1 << 20, /* a command stream, or a piece of a transfer */
    RENDER_MEMORY_BYTES = RENDER_SLOTS * RENDER_SLOT_BYTES,
    RENDER_PENDING = 32, /* requests that are not answered yet */

    RENDER_CAPSETS = 2,
    RENDER_CAPSET_BYTES = 4096, /* of one, at most */
    RENDER_RESULT_BYTES = 16,
    RENDER_MAILBOX_BYTES = 65536, /* of a resource that results go to, at most */

    RENDER_FENCE = 1, /* flags */
    RENDER_BIND_CUSTOM = 1 << 17
};

/* With their arguments. */
typedef enum render_op {
    RENDER_CONTEXT_CREATE = 1,
    RENDER_CONTEXT_DESTROY,
    /* target, format, bind, width, height, depth, layers, last level, samples, flags: of virtio's
       command */
    RENDER_RESOURCE_CREATE,
    RENDER_RESOURCE_DESTROY,
    RENDER_ATTACH, /* the resource to the context */
    RENDER_DETACH,
    RENDER_SUBMIT, /* slot, bytes, flags */
    /* slot, bytes, level, x, y, z, width, height, depth, stride, layer stride: out of the slot */
    RENDER_WRITE,
    RENDER_READ, /* the same: into the slot */
    RENDER_OPS
} render_op;

typedef enum render_reply { RENDER_READY = 1, RENDER_DONE, RENDER_RESULT } render_reply;

enum { /* words */
       RENDER_OP = 0,
       RENDER_NUMBER,
       RENDER_CONTEXT,
       RENDER_RESOURCE,
       RENDER_ARGUMENTS,
       RENDER_SLOT = RENDER_ARGUMENTS,
       RENDER_BYTES,
       RENDER_FLAGS, /* of RENDER_SUBMIT */
       RENDER_LEVEL = RENDER_FLAGS,
       RENDER_BOX,
       RENDER_STRIDE = RENDER_BOX + 6,
       RENDER_LAYER_STRIDE,
       RENDER_STATUS = 2 /* of DONE */
};

static inline uint32_t render_word(const uint8_t *message, unsigned i)
{
    return dxpu_get_le32(message + (size_t)i * 4);
}

static inline void render_put(uint8_t *message, unsigned i, uint32_t value)
{
    dxpu_put_le32(message + (size_t)i * 4, value);
}

/* The operation uses a slot, as the message says. */
static inline bool render_has_slot(uint32_t op)
{
    return op == RENDER_SUBMIT || op == RENDER_WRITE || op == RENDER_READ;
}

/* A request that can be looked at further: a known operation, a slot and bytes within the memory, a
   box of a resource whose numbers do not wrap around. */
static inline bool render_request_fits(const uint8_t *m, size_t bytes)
{
    uint32_t op = bytes == RENDER_REQUEST_BYTES ? render_word(m, RENDER_OP) : 0, used;
    if (!op || op >= RENDER_OPS)
        return false;
    if (!render_has_slot(op))
        return true;
    used = render_word(m, RENDER_BYTES);
    if (render_word(m, RENDER_SLOT) >= RENDER_SLOTS || !used || used > RENDER_SLOT_BYTES)
        return false;
    if (op == RENDER_SUBMIT)
        return used % 4 == 0;
    for (unsigned i = 0; i < 6; i++) {
        uint32_t at = render_word(m, RENDER_BOX + i);
        if (at > 1u << 28 || (i >= 3 && !at))
            return false;
    }
    return render_word(m, RENDER_STRIDE) <= used && render_word(m, RENDER_LAYER_STRIDE) <= used &&
           render_word(m, RENDER_LEVEL) < 32;
}

/* What can be said of a reply without its context. */
static inline bool render_reply_fits(const uint8_t *m, size_t bytes)
{
    uint32_t kind = bytes == RENDER_REPLY_BYTES ? render_word(m, 0) : 0;
    if (kind != RENDER_READY)
        return kind == RENDER_DONE || (kind == RENDER_RESULT && render_word(m, 1));
    for (unsigned i = 0; i < RENDER_CAPSETS; i++) {
        uint32_t size = render_word(m, 3 + i * 2);
        if (size > RENDER_CAPSET_BYTES || size % 4)
            return false;
    }
    return render_word(m, 1) == RENDER_VERSION;
}

#endif /* RENDER_WIRE_H_INCLUDED */
