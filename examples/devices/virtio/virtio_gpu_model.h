/* virtio_gpu_model.h - the virtio display adapter's object, and what its parts offer one another
   SPDX-License-Identifier: MIT

   Parts:
     virtio_gpu.c           commands, in the order of their queue, and the device_kind
     virtio_gpu_resource.c  resources, the driver's memory behind them, transfers
     virtio_gpu_screen.c    scanout, cursor, EDID, picture
     virtio_gpu_3d.c        contexts, 3D resources, command streams, fences, by a renderer
     virtio_gpu_move.c      transfers of 3D resources, in pieces that fit a slot of the renderer's
     virtio_gpu_format.c    sizes of their pixels

   CONTENTS   1 Sizes   2 Requests   3 Resources   4 Screen   5 Rendering   6 The device
              7 Between parts */
#ifndef VIRTIO_GPU_MODEL_H_INCLUDED
#define VIRTIO_GPU_MODEL_H_INCLUDED

#include "edid.h"
#include "render_link.h"
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

    GPU_CURSOR_SIDE = 64,

    GPU_CONTEXTS = 64,
    GPU_LEVELS = 15,                  /* of a 3D resource: those of GPU_SIDE */
    GPU_LAYERS = 2048,                /* or its depth */
    GPU_RENDER_BYTES = 128 << 20,     /* of one 3D resource */
    GPU_RENDER_TURN_BYTES = 64 << 10, /* copied or written in a turn */

    GPU_F_VIRGL = 1 << 0,
    GPU_F_EDID = 1 << 1
};
#define GPU_ALL_RENDER_BYTES ((uint64_t)512 << 20) /* of all 3D resources */
#define GPU_ALL_BYTES                                                                              \
    ((uint64_t)256 << 20) /* of all resources; as much again may be on its way out */

typedef enum gpu_reply {
    GPU_LATER = 0, /* the command is not done yet */
    GPU_OK = 0x1100,
    GPU_OK_DISPLAY = 0x1101,
    GPU_OK_CAPSET_INFO = 0x1102,
    GPU_OK_CAPSET = 0x1103,
    GPU_OK_EDID = 0x1104,
    GPU_UNSPECIFIED = 0x1200,
    GPU_NO_MEMORY = 0x1201,
    GPU_BAD_SCANOUT = 0x1202,
    GPU_BAD_RESOURCE = 0x1203,
    GPU_BAD_CONTEXT = 0x1204,
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
    uint8_t *body; /* what follows the reply; NULL: nothing */
    uint32_t body_bytes;
    uint32_t asked, answered; /* requests to the renderer */
    bool refused;             /* one of them */
    bool over;     /* answered, or done without the renderer, but others before it are not */
    gpu_reply how; /* then */
} gpu_request;

/* ==== 3  Resources ============================================================================ */

typedef struct gpu_rect {
    uint32_t x, y, width, height;
} gpu_rect;

typedef struct gpu_format {
    uint32_t number;
    uint8_t red, green, blue, alpha; /* which byte of a pixel; alpha: the one that is left */
} gpu_format;

/* Pixels of a format are in blocks of this size. */
typedef struct gpu_block {
    uint8_t bytes, width, height; /* bytes 0: not known */
} gpu_block;

typedef struct gpu_resource {
    struct gpu_resource *next;
    uint32_t id, width, height;
    const gpu_format *format;
    uint32_t bytes;
    uint8_t *pixels;
    fn_range *backing; /* the driver's memory; NULL: none */
    uint32_t entries;
    uint64_t backing_bytes;
    /* of a 3D resource, which the renderer has; pixels are then a copy for the scanout, or NULL */
    bool rendered;
    uint32_t generation; /* of the renderer */
    uint32_t target, bind, depth, layers, levels, samples;
    gpu_block block;
    uint64_t render_bytes;
    struct gpu_resource *next_result; /* of gpu_render.results */
    bool has_result;                  /* not written to the driver's memory yet */
    uint8_t result[RENDER_RESULT_BYTES];
} gpu_resource;

struct virtio_gpu;

/* A rectangle on its way from the driver's memory to a resource, in runs of bytes that follow one
   another in both. */
typedef struct gpu_transfer {
    gpu_resource *resource; /* NULL: none is under way */
    uint64_t from;          /* of the row, in the driver's memory */
    uint8_t *to;
    uint32_t row_bytes, rows; /* rows: that are left with this one */
    uint32_t stride, to_stride;
    uint32_t done;    /* bytes of this row that are asked for */
    uint32_t entry;   /* where the next byte may be; in front of it: */
    uint64_t before;  /* bytes */
    uint32_t reading; /* bytes under way */
    bool failed;
    void (*then)(struct virtio_gpu *g, bool failed); /* it is over */
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

/* ==== 5  Rendering ============================================================================ */

/* What the current command waits for. */
typedef enum gpu_wait {
    GPU_WAIT_NOTHING, /* of the renderer */
    GPU_WAIT_START,   /* a renderer, or that there is none */
    GPU_WAIT_SLOT,
    GPU_WAIT_MEMORY, /* the driver's, to a slot */
    GPU_WAIT_ANSWER, /* to its request */
    GPU_WAIT_ROOM    /* to write a piece to the driver's memory, or turns to copy it */
} gpu_wait;

typedef enum gpu_way { GPU_TO_RENDERER, GPU_TO_DRIVER, GPU_TO_PIXELS } gpu_way;

/* A box of a 3D resource on its way, in pieces of rows of blocks. */
typedef struct gpu_move {
    gpu_way way;
    gpu_resource *resource;
    uint32_t context, level;
    uint32_t x, y, z, width, height, depth; /* of the box */
    uint64_t from;                          /* of its first row in the driver's memory */
    uint64_t stride, layer_stride;
    uint32_t row_bytes, rows;         /* of a layer of the box */
    uint32_t layer, row, at;          /* where the piece begins; at: bytes of a buffer */
    uint32_t piece_rows, piece_bytes; /* piece_bytes: of each of its rows */
    int slot;                         /* of the piece; -1: none */
    uint32_t done_row, done_bytes;    /* of the piece, copied or written */
    uint32_t entry;                   /* of the driver's memory, where that is; in front of it: */
    uint64_t before;                  /* bytes */
} gpu_move;

typedef struct gpu_context {
    uint32_t id; /* 0: free */
    uint32_t generation;
} gpu_context;

typedef struct gpu_render {
    bool on; /* there is a launcher */
    render_link link;
    gpu_context context[GPU_CONTEXTS];
    uint64_t bytes;         /* of 3D resources */
    gpu_request *answering; /* with a body; others wait */
    virtio_list sent;       /* commands that the renderer works on, in their order */
    gpu_resource *results;  /* to be written before any answer */
    gpu_wait wait;
    gpu_reply (*again)(struct virtio_gpu *g, gpu_request *q); /* after GPU_WAIT_START */
    int slot; /* of a command stream on its way to it; -1: none */
    uint32_t stream_bytes;
    gpu_move move;
} gpu_render;

/* ==== 6  The device =========================================================================== */

#define GPU_COUNTERS(X)                                                                            \
    X(commands)                                                                                    \
    X(commands_failed)                                                                             \
    X(transfers)                                                                                   \
    X(transfer_bytes)                                                                              \
    X(flushes)                                                                                     \
    X(cursor_commands)                                                                             \
    X(pictures)                                                                                    \
    X(contexts)                                                                                    \
    X(streams)                                                                                     \
    X(stream_bytes)                                                                                \
    X(moves)                                                                                       \
    X(move_bytes)                                                                                  \
    X(resources)                                                                                   \
    X(resource_bytes)

typedef struct virtio_gpu {
    virtio v;          /* first */
    char drawn_by[32]; /* what renders, as in its attributes */
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
    gpu_render render;
#define GPU_FIELD(name) uint64_t name;
    struct {
        GPU_COUNTERS(GPU_FIELD)
    } count;
#undef GPU_FIELD
} virtio_gpu;

/* ==== 7  Between parts ======================================================================== */

/* A command that was GPU_LATER has ended so. */
void gpu_end(virtio_gpu *g, gpu_reply how);
/* The current command waits for the renderer without keeping others back. */
void gpu_sent(virtio_gpu *g);
/* Answer those commands in front of the list that are over. */
void gpu_answer(virtio_gpu *g);
gpu_rect gpu_rect_at(const uint8_t *p);
/* True when all of r lies in an area of this size. */
bool gpu_rect_fits(const gpu_rect *r, uint32_t width, uint32_t height);

gpu_resource *gpu_find(virtio_gpu *g, uint32_t id);
/* The number is free, and there is room in the table. */
bool gpu_table_room(virtio_gpu *g, uint32_t id);
void gpu_table_add(virtio_gpu *g, gpu_resource *r);
void gpu_table_remove(virtio_gpu *g, gpu_resource *r); /* and free it */
/* Commands: q->command has all of them, of attach the first part. */
gpu_reply gpu_create(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_unref(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_attach(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_detach(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_transfer_begin(virtio_gpu *g, gpu_request *q);
bool gpu_transfer_work(virtio_gpu *g); /* true when anything was done */
/* Bring `rows` of row_bytes, `stride` apart from `from` on in the resource's memory, to `to`, where
   they are to_stride apart. */
void gpu_transfer_start(virtio_gpu *g, gpu_resource *r, uint64_t from, uint8_t *to, uint32_t rows,
                        uint32_t row_bytes, uint32_t stride, uint32_t to_stride,
                        void (*then)(virtio_gpu *g, bool failed));
void gpu_cancel(virtio_gpu *g);     /* what current waits for */
void gpu_forget_all(virtio_gpu *g); /* every resource */
void gpu_free_old(virtio_gpu *g);   /* at once: no job runs */

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

gpu_block gpu_block_of(uint32_t format);
/* The format of a scanout; NULL: no scanout has it. */
const gpu_format *gpu_format_of(uint32_t number);
int gpu_render_open(virtio_gpu *g, int launcher); /* 0, or -1: no descriptor */
bool gpu_render_work(virtio_gpu *g);
void gpu_render_cancel(virtio_gpu *g); /* what current waits for */
void gpu_render_forget(virtio_gpu *g); /* contexts, and what the renderer knows */
void gpu_drop_result(virtio_gpu *g, gpu_resource *r);
gpu_reply gpu_get_capset_info(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_get_capset(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_context_create(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_context_destroy(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_context_attach(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_context_detach(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_create_3d(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_unref_3d(virtio_gpu *g, const gpu_resource *r);
gpu_reply gpu_submit(virtio_gpu *g, gpu_request *q);
/* Ask for the current command, and wait for the answer: GPU_LATER; else what is wrong, and the
   slot is free. */
gpu_reply gpu_ask(virtio_gpu *g, uint32_t op, uint32_t context, uint32_t resource, int slot,
                  unsigned count, const uint32_t *words);
/* Is it there, of the renderer of now? */
bool gpu_is_rendered(const virtio_gpu *g, const gpu_resource *r);
gpu_reply gpu_context_of(virtio_gpu *g, uint32_t id); /* GPU_OK, or what is wrong with it */
/* All that is asked of the renderer for the current command: it ends with the last answer. */
void gpu_all_asked(virtio_gpu *g);

gpu_reply gpu_move_to_host(virtio_gpu *g, gpu_request *q);
gpu_reply gpu_move_from_host(virtio_gpu *g, gpu_request *q);
/* The rectangle of a 3D resource to its pixels. */
gpu_reply gpu_move_to_pixels(virtio_gpu *g, gpu_resource *r, const gpu_rect *rect);
bool gpu_move_work(virtio_gpu *g);
void gpu_move_answered(virtio_gpu *g, int slot, bool good); /* slot: of a piece that was read */
void gpu_move_stop(virtio_gpu *g);

#endif /* VIRTIO_GPU_MODEL_H_INCLUDED */
