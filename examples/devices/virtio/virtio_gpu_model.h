/* virtio_gpu_model.h - the virtio display adapter's object, and what its parts offer one another
   SPDX-License-Identifier: MIT

   Parts:
     virtio_gpu.c           commands, in the order of their queue, and the device_kind
     virtio_gpu_resource.c  resources, the driver's memory behind them, transfers
     virtio_gpu_screen.c    scanout, cursor, EDID, picture

   CONTENTS   1 Sizes   2 Requests   3 Resources   4 Screen   5 The device   6 Between parts */
#ifndef VIRTIO_GPU_MODEL_H_INCLUDED
#define VIRTIO_GPU_MODEL_H_INCLUDED

#include "edid.h"
#include "virtio.h"
#include "virtio_gpu.h"

/* ==== 1  Sizes ================================================================================ */

enum {
    GPU_CONTROL = 0, /* queues */
    GPU_CURSOR = 1,
    GPU_QUEUES = 2,

    GPU_PIXEL_BYTES = 4,
    GPU_HEADER_BYTES = 24,  /* of a command and of its reply */
    GPU_COMMAND_BYTES = 96, /* read as soon as a command is available: all of most of them */
    GPU_ENTRY_BYTES = 16,   /* of a list of the driver's memory */
    GPU_EDID_ROOM = 1024,
    GPU_REPLY_BYTES = GPU_HEADER_BYTES + 8 + GPU_EDID_ROOM, /* the longest */

    /* what a driver can allocate */
    GPU_RESOURCES = 1024,
    GPU_SIDE = 16384,              /* pixels of a resource's width or height */
    GPU_RESOURCE_BYTES = 64 << 20, /* of one resource */
    GPU_ENTRIES = 16384,           /* of one resource's memory */
    GPU_ALL_ENTRIES = 16 * 16384,  /* of all together */
    GPU_BUCKETS = 256,

    GPU_RUNS = 64,              /* reads under way for one transfer */
    GPU_RUN_BYTES = 64 << 10,   /* of one of them */
    GPU_READ_BYTES = 256 << 10, /* of all of them */

    GPU_CURSOR_SIDE = 64
};
#define GPU_ALL_BYTES                                                                              \
    ((uint64_t)256 << 20) /* of all resources; as much again may be on its way out */

typedef enum gpu_reply {
    GPU_LATER = 0, /* the command is not done yet */
    GPU_OK = 0x1100,
    GPU_OK_DISPLAY = 0x1101,
    GPU_OK_EDID = 0x1104,
    GPU_UNSPECIFIED = 0x1200,
    GPU_NO_MEMORY = 0x1201,
    GPU_BAD_SCANOUT = 0x1202,
    GPU_BAD_RESOURCE = 0x1203,
    GPU_BAD_PARAMETER = 0x1205
} gpu_reply;

/* ==== 2  Requests ============================================================================= */

typedef struct gpu_request {
    virtio_request r; /* first */
    bool fetched;
    uint32_t bytes; /* of the command that are here; the rest is r's to read */
    uint8_t command[GPU_COMMAND_BYTES];
    uint32_t reply_bytes;
    uint8_t reply[GPU_REPLY_BYTES];
} gpu_request;

/* ==== 3  Resources ============================================================================ */

typedef struct gpu_rect {
    uint32_t x, y, width, height;
} gpu_rect;

typedef struct gpu_format {
    uint32_t number;
    uint8_t red, green, blue, alpha; /* which byte of a pixel; alpha: the one that is left */
} gpu_format;

typedef struct gpu_resource {
    struct gpu_resource *next;
    uint32_t id, width, height;
    const gpu_format *format;
    uint32_t bytes;
    uint8_t *pixels;
    fn_range *backing; /* the driver's memory; NULL: none */
    uint32_t entries;
    uint64_t backing_bytes;
} gpu_resource;

/* A rectangle on its way from the driver's memory to a resource, in runs of bytes that follow one
   another in both. */
typedef struct gpu_transfer {
    gpu_resource *resource; /* NULL: none is under way */
    uint64_t from;          /* of the row, in the driver's memory */
    uint8_t *to;
    uint32_t row_bytes, stride, rows; /* rows: that are left with this one */
    uint32_t done;                    /* bytes of this row that are asked for */
    uint32_t entry;                   /* where the next byte may be; in front of it: */
    uint64_t before;                  /* bytes */
    uint32_t reading;                 /* bytes under way */
    bool failed;
    fn_fetch run[GPU_RUNS];
    bool busy[GPU_RUNS];
} gpu_transfer;

/* Frees resources in a job: many pages take their time. */
typedef struct gpu_cleaner {
    virtio_request r; /* first */
    gpu_resource *old;
    uint64_t bytes;
} gpu_cleaner;

/* ==== 4  Screen =============================================================================== */

typedef struct gpu_screen {
    gpu_resource *shown; /* NULL: the scanout is off */
    gpu_rect rect;       /* of it */
    struct {
        const gpu_format *format; /* NULL: there is no cursor */
        int32_t x, y;
        uint8_t pixels[GPU_CURSOR_SIDE * GPU_CURSOR_SIDE * GPU_PIXEL_BYTES];
    } cursor;
    uint8_t edid[EDID_BYTES];
} gpu_screen;

/* ==== 5  The device =========================================================================== */

#define GPU_COUNTERS(X)                                                                            \
    X(commands)                                                                                    \
    X(commands_failed)                                                                             \
    X(transfers)                                                                                   \
    X(transfer_bytes)                                                                              \
    X(flushes)                                                                                     \
    X(cursor_commands)                                                                             \
    X(pictures)                                                                                    \
    X(resources)                                                                                   \
    X(resource_bytes)

typedef struct virtio_gpu {
    virtio v; /* first */
    virtio_list arrived[GPU_QUEUES];
    gpu_request *current; /* of the control queue: it waits for the driver's memory */
    uint8_t *list;        /* of current: entries on their way */
    gpu_transfer transfer;
    gpu_resource *bucket[GPU_BUCKETS];
    uint32_t entries; /* of all resources */
    gpu_resource *old;
    uint64_t old_bytes; /* of what is to be freed, with the cleaner's */
    gpu_cleaner cleaner;
    bool closing;
    gpu_screen screen;
#define GPU_FIELD(name) uint64_t name;
    struct {
        GPU_COUNTERS(GPU_FIELD)
    } count;
#undef GPU_FIELD
} virtio_gpu;

/* ==== 6  Between parts ======================================================================== */

/* A command that was GPU_LATER has ended so. */
void gpu_end(virtio_gpu *g, gpu_reply how);
gpu_rect gpu_rect_at(const uint8_t *p);
/* True when all of r lies in an area of this size. */
bool gpu_rect_fits(const gpu_rect *r, uint32_t width, uint32_t height);

gpu_resource *gpu_find(virtio_gpu *g, uint32_t id);
/* Commands: q->command has all of them, of attach the first part. */
gpu_reply gpu_create(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_unref(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_attach(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_detach(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_transfer_begin(virtio_gpu *g, gpu_request *q);
bool gpu_transfer_work(virtio_gpu *g); /* true when anything was done */
void gpu_cancel(virtio_gpu *g);        /* what current waits for */
void gpu_forget_all(virtio_gpu *g);    /* every resource */
void gpu_free_old(virtio_gpu *g);      /* at once: no job runs */

gpu_reply gpu_display_info(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_get_edid(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_set_scanout(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_flush(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_cursor_update(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_cursor_move(virtio_gpu *g, gpu_request *q);
void gpu_screen_forget(virtio_gpu *g, const gpu_resource *r); /* it is going to be freed */
void gpu_screen_dark(virtio_gpu *g);
bool gpu_picture(void *device, uint8_t *rgb, unsigned row, unsigned rows, unsigned *width,
                 unsigned *height);

#endif /* VIRTIO_GPU_MODEL_H_INCLUDED */
