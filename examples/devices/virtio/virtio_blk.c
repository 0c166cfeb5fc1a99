/* virtio_blk.c - see virtio_blk.h
   SPDX-License-Identifier: MIT

   A request's header and its first data arrive in one read.  What is longer than a piece goes piece
   by piece, so that no request needs more than one buffer, nor more than a bounded time of a
   thread.

   CONTENTS   1 Object   2 In any thread   3 Buffers   4 Ends   5 Reading and writing
              6 Discard and write zeroes   7 Requests   8 Wipe   9 Kind */
#include "virtio_blk.h"
#include "block_store.h"
#include "log.h"
#include "virtio.h"

#include <errno.h>
#include <stdlib.h>

/* ==== 1  Object =============================================================================== */

enum {
    SECTOR_LOG2 = 9,
    HEADER_BYTES = 16,
    SEGMENT_BYTES = 16, /* of discard and write zeroes */
    SEGMENTS = 16,      /* at most, of one request */
    SERIAL_BYTES = 20,

    PIECE_BYTES = 256 << 10,
    BUFFER_BYTES = 32 << 20, /* of all requests together */
    QUICK_BYTES = 16 << 10,  /* read in the loop when that needs no disk */
    CHECK_BYTES = 1 << 20,   /* read by one step of a wipe */
    HOLE_BYTES = 256 << 20,  /* erased by one step, where that makes holes */
    CLEARED_BYTES = 64 << 20 /* of memory by one discard: it costs time, and frees nothing */
};

#define BLK_F_SEG_MAX      ((uint64_t)1 << 2)
#define BLK_F_RO           ((uint64_t)1 << 5)
#define BLK_F_BLK_SIZE     ((uint64_t)1 << 6)
#define BLK_F_FLUSH        ((uint64_t)1 << 9)
#define BLK_F_MQ           ((uint64_t)1 << 12)
#define BLK_F_DISCARD      ((uint64_t)1 << 13)
#define BLK_F_WRITE_ZEROES ((uint64_t)1 << 14)

enum { /* of the device's configuration, as far as it is used */
       CONFIG_CAPACITY = 0,
       CONFIG_SEG_MAX = 12,
       CONFIG_BLK_SIZE = 20,
       CONFIG_QUEUES = 34,
       CONFIG_DISCARD_SECTORS = 36,
       CONFIG_DISCARD_SEGMENTS = 40,
       CONFIG_DISCARD_ALIGNMENT = 44,
       CONFIG_ZEROES_SECTORS = 48,
       CONFIG_ZEROES_SEGMENTS = 52,
       CONFIG_ZEROES_UNMAP = 56,
       CONFIG_BYTES = 60
};

enum { /* types of requests */
       TYPE_IN = 0,
       TYPE_OUT = 1,
       TYPE_FLUSH = 4,
       TYPE_GET_ID = 8,
       TYPE_DISCARD = 11,
       TYPE_WRITE_ZEROES = 13
};

enum { SEGMENT_UNMAP = 1 }; /* flags */

enum { STATUS_OK = 0, STATUS_IOERR = 1, STATUS_UNSUPP = 2 };

typedef enum blk_op {
    BLK_READ,
    BLK_WRITE,
    BLK_SYNC,
    BLK_ZERO,
    BLK_DISCARD,
    BLK_FORGET,
    BLK_CHECK
} blk_op;

/* While its job runs, that alone uses op, store, data, at, bytes, and writes error and the rest. */
typedef struct blk_request {
    virtio_request r; /* first */
    uint32_t type;
    virtio_then *resume; /* what a buffer is waited for */
    uint8_t *buffer;
    uint32_t buffer_bytes;
    uint8_t *data;     /* in the buffer, or in `few` */
    uint64_t at, left; /* in the store; left: bytes after those of the job */
    unsigned segment, segments;
    blk_op op;
    block_store *store;
    uint64_t bytes;        /* of the job */
    uint64_t memory_bytes; /* what a discard may still clear of memory */
    bool deallocate;
    int error; /* errno, BLOCK_STORE_DIFFERS, or 0 */
    uint8_t few[HEADER_BYTES + SEGMENTS * SEGMENT_BYTES];
} blk_request;

#define BLK_COUNTERS(X)                                                                            \
    X(reads)                                                                                       \
    X(writes)                                                                                      \
    X(flushes)                                                                                     \
    X(requests_failed)                                                                             \
    X(store_errors)

typedef struct virtio_blk {
    virtio v; /* first */
    block_store store;
    block_health health;
    bool read_only;
    uint8_t serial[SERIAL_BYTES];
    uint64_t buffer_bytes;
    virtio_list starving; /* no buffer yet */
    blk_request wiper;
    struct {
        uint64_t at;
        bool erased; /* it is being read back */
        bool begins; /* when no access of before is under way */
        int how;     /* DEVICE_WIPING.. */
    } wipe;
#define BLK_FIELD(name) uint64_t name;
    struct {
        BLK_COUNTERS(BLK_FIELD)
    } count;
#undef BLK_FIELD
} virtio_blk;

static virtio_blk *blk_of(virtio *v)
{
    return (virtio_blk *)v;
}

static blk_request *request_of(virtio_request *r)
{
    return (blk_request *)r;
}

/* ==== 2  In any thread ======================================================================== */

static int run_op(blk_request *q)
{
    switch (q->op) {
    case BLK_READ:
        return block_store_read(q->store, q->at, q->data, (size_t)q->bytes);
    case BLK_WRITE:
        return block_store_write(q->store, q->at, q->data, (size_t)q->bytes);
    case BLK_SYNC:
        return block_store_sync(q->store);
    case BLK_ZERO:
        return block_store_zero(q->store, q->at, q->bytes, q->deallocate, &q->bytes);
    case BLK_DISCARD:
        return block_store_deallocate(q->store, q->at, q->bytes, &q->memory_bytes);
    default:
        return block_store_forget_all(q->store);
    }
}

/* job.run */
static void run(job *j)
{
    blk_request *q = (blk_request *)j;
    if (q->op == BLK_CHECK)
        q->error = block_store_check_zero(q->store, q->at, (size_t)q->bytes);
    else
        q->error = run_op(q) ? errno : 0;
}

/* job.quick: of a short read what is in the page cache, for a thread's turn costs more. */
static bool quick(job *j)
{
    blk_request *q = (blk_request *)j;
    return q->op == BLK_READ && q->bytes <= QUICK_BYTES &&
           block_store_read_now(q->store, q->at, q->data, (size_t)q->bytes) == (ssize_t)q->bytes;
}

static void submit(virtio_blk *b, blk_request *q, blk_op op, uint64_t bytes, virtio_then *then)
{
    q->op = op;
    q->store = &b->store;
    q->bytes = bytes;
    q->error = 0;
    q->r.job.run = run;
    q->r.job.quick = quick;
    virtio_submit(&b->v, &q->r, then);
}

/* virtio_type.ended */
static void blk_ended(virtio *v, virtio_request *r)
{
    virtio_blk *b = blk_of(v);
    const blk_request *q = request_of(r);
    if (q->error <= 0)
        return;
    b->count.store_errors++;
    block_health_failed(&b->health, v->fn.pci.port, q->error, block_store_lost(&b->store));
}

/* ==== 3  Buffers ============================================================================== */

static void drop_buffer(virtio_blk *b, blk_request *q)
{
    if (!q->buffer)
        return;
    b->buffer_bytes -= q->buffer_bytes;
    free(q->buffer);
    q->buffer = NULL;
}

/* True when the request has a buffer of the given size, or of a piece, and a header; else resume()
   is called when there may be one.  A smaller one that it had is gone. */
static bool get_buffer(virtio_blk *b, blk_request *q, uint64_t bytes, virtio_then *resume)
{
    uint32_t room = (bytes < PIECE_BYTES ? (uint32_t)bytes : PIECE_BYTES) + HEADER_BYTES;
    if (q->buffer && q->buffer_bytes >= room)
        return true;
    drop_buffer(b, q);
    if (b->buffer_bytes + room <= BUFFER_BYTES)
        q->buffer = malloc(room);
    if (!q->buffer) {
        q->resume = resume;
        virtio_list_append(&b->starving, &q->r);
        return false;
    }
    q->buffer_bytes = room;
    b->buffer_bytes += room;
    return true;
}

/* virtio_type.release */
static void blk_release(virtio *v, virtio_request *r)
{
    virtio_list_remove(&blk_of(v)->starving, r);
    drop_buffer(blk_of(v), request_of(r));
}

/* virtio_type.work: one at a time, once others have given theirs back. */
static bool blk_work(virtio *v)
{
    virtio_blk *b = blk_of(v);
    virtio_request *r = b->starving.head;
    if (!r || b->buffer_bytes + PIECE_BYTES + HEADER_BYTES > BUFFER_BYTES)
        return false;
    r = virtio_list_take(&b->starving);
    request_of(r)->resume(v, r);
    return request_of(r)->buffer != NULL; /* else the system has no memory */
}

/* ==== 4  Ends ================================================================================= */

static void end(virtio_blk *b, blk_request *q, uint8_t status)
{
    b->count.requests_failed += status != STATUS_OK;
    drop_buffer(b, q);
    virtio_finish(&q->r, status);
}

static void job_was_last(virtio *v, virtio_request *r)
{
    end(blk_of(v), request_of(r), request_of(r)->error ? STATUS_IOERR : STATUS_OK);
}

/* Without FLUSH the driver expects that what it wrote is durable (1.2, 5.2.5). */
static void settle(virtio_blk *b, blk_request *q)
{
    if (b->v.accepted & BLK_F_FLUSH)
        end(b, q, STATUS_OK);
    else
        submit(b, q, BLK_SYNC, 0, job_was_last);
}

/* Are these blocks there? */
static bool in_range(const virtio_blk *b, uint64_t sector, uint64_t bytes)
{
    uint64_t size = b->store.size & ~(uint64_t)((1 << SECTOR_LOG2) - 1);
    return sector <= size >> SECTOR_LOG2 && bytes <= size - (sector << SECTOR_LOG2);
}

static uint32_t piece_of(uint64_t left)
{
    return left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
}

/* ==== 5  Reading and writing ================================================================== */

static void read_next(virtio *v, virtio_request *r);

static void read_sent(virtio *v, virtio_request *r)
{
    blk_request *q = request_of(r);
    q->at += q->bytes;
    if (q->left)
        read_next(v, r);
    else
        end(blk_of(v), q, STATUS_OK);
}

static void read_done(virtio *v, virtio_request *r)
{
    blk_request *q = request_of(r);
    if (q->error)
        end(blk_of(v), q, STATUS_IOERR);
    else
        virtio_write(v, r, q->data, (uint32_t)q->bytes, read_sent);
}

/* The next piece; also what waits for a buffer. */
static void read_next(virtio *v, virtio_request *r)
{
    virtio_blk *b = blk_of(v);
    blk_request *q = request_of(r);
    uint32_t bytes = piece_of(q->left);
    if (!get_buffer(b, q, q->left, read_next))
        return;
    q->data = q->buffer;
    q->left -= bytes;
    submit(b, q, BLK_READ, bytes, read_done);
}

static void read_begin(virtio_blk *b, blk_request *q, uint64_t sector)
{
    q->left = q->r.writable_bytes;
    q->at = sector << SECTOR_LOG2;
    if (q->left % (1 << SECTOR_LOG2) || !in_range(b, sector, q->left)) {
        end(b, q, STATUS_IOERR);
        return;
    }
    b->count.reads++;
    if (q->left)
        read_next(&b->v, &q->r);
    else
        end(b, q, STATUS_OK);
}

static void write_done(virtio *v, virtio_request *r);

static void write_fetched(virtio *v, virtio_request *r)
{
    blk_request *q = request_of(r);
    if (r->failed)
        end(blk_of(v), q, STATUS_IOERR);
    else
        submit(blk_of(v), q, BLK_WRITE, q->bytes, write_done);
}

static void write_done(virtio *v, virtio_request *r)
{
    virtio_blk *b = blk_of(v);
    blk_request *q = request_of(r);
    q->at += q->bytes;
    if (q->error) {
        end(b, q, STATUS_IOERR);
    } else if (!q->left) {
        settle(b, q);
    } else {
        q->data = q->buffer;
        q->bytes = piece_of(q->left);
        q->left -= q->bytes;
        virtio_read(v, r, q->data, (uint32_t)q->bytes, write_fetched);
    }
}

/* `there` bytes of the data have arrived with the header. */
static void write_begin(virtio_blk *b, blk_request *q, uint64_t sector, uint32_t there)
{
    uint64_t all = there + q->r.readable_bytes;
    q->left = q->r.readable_bytes;
    q->at = sector << SECTOR_LOG2;
    if (b->read_only || all % (1 << SECTOR_LOG2) || !in_range(b, sector, all)) {
        end(b, q, STATUS_IOERR);
        return;
    }
    b->count.writes++;
    if (there)
        submit(b, q, BLK_WRITE, there, write_done);
    else
        settle(b, q);
}

/* ==== 6  Discard and write zeroes ============================================================= */

/* Segment `i`, in sectors; the status when it cannot be done. */
static uint8_t segment_at(const virtio_blk *b, const blk_request *q, unsigned i, uint64_t *sector,
                          uint32_t *sectors)
{
    const uint8_t *s = q->data + (size_t)i * SEGMENT_BYTES;
    uint32_t flags = dxpu_get_le32(s + 12);
    *sector = dxpu_get_le64(s);
    *sectors = dxpu_get_le32(s + 8);
    if (flags & ~(q->type == TYPE_WRITE_ZEROES ? (uint32_t)SEGMENT_UNMAP : 0))
        return STATUS_UNSUPP;
    return in_range(b, *sector, (uint64_t)*sectors << SECTOR_LOG2) ? STATUS_OK : STATUS_IOERR;
}

static void segment_next(virtio_blk *b, blk_request *q);

static void segment_done(virtio *v, virtio_request *r)
{
    virtio_blk *b = blk_of(v);
    blk_request *q = request_of(r);
    q->at += q->bytes;
    q->left -= q->bytes;
    if (q->error)
        end(b, q, STATUS_IOERR);
    else
        segment_next(b, q);
}

/* Where there is more of this segment, that; else the next one. */
static void segment_next(virtio_blk *b, blk_request *q)
{
    uint64_t sector;
    uint32_t sectors;
    while (!q->left && q->segment < q->segments) {
        (void)segment_at(b, q, q->segment, &sector, &sectors);
        q->deallocate = dxpu_get_le32(q->data + (size_t)q->segment * SEGMENT_BYTES + 12);
        q->at = sector << SECTOR_LOG2;
        q->left = (uint64_t)sectors << SECTOR_LOG2;
        q->segment++;
    }
    if (!q->left)
        settle(b, q);
    else
        submit(b, q, q->type == TYPE_DISCARD ? BLK_DISCARD : BLK_ZERO,
               q->left < HOLE_BYTES ? q->left : HOLE_BYTES, segment_done);
}

/* All segments are checked before anything is done. */
static void segments_begin(virtio_blk *b, blk_request *q, uint32_t there)
{
    uint8_t status = STATUS_OK;
    uint64_t sector;
    uint32_t sectors;
    if (b->read_only || q->r.readable_bytes || !there || there % SEGMENT_BYTES)
        status = STATUS_IOERR;
    q->segments = there / SEGMENT_BYTES;
    q->segment = 0;
    q->left = 0;
    q->memory_bytes = CLEARED_BYTES;
    if (q->segments > SEGMENTS)
        status = STATUS_IOERR;
    for (unsigned i = 0; i < q->segments && status == STATUS_OK; i++)
        status = segment_at(b, q, i, &sector, &sectors);
    if (status == STATUS_OK)
        segment_next(b, q);
    else
        end(b, q, status);
}

/* ==== 7  Requests ============================================================================= */

static void id_sent(virtio *v, virtio_request *r)
{
    end(blk_of(v), request_of(r), STATUS_OK);
}

static void id_begin(virtio_blk *b, blk_request *q)
{
    uint64_t room = q->r.writable_bytes;
    if (room)
        virtio_write(&b->v, &q->r, b->serial, room < SERIAL_BYTES ? (uint32_t)room : SERIAL_BYTES,
                     id_sent);
    else
        end(b, q, STATUS_IOERR);
}

/* The header is there, and `there` bytes of what follows it. */
static void begin(virtio_blk *b, blk_request *q, const uint8_t *header, uint32_t there)
{
    uint64_t sector = dxpu_get_le64(header + 8);
    q->type = dxpu_get_le32(header);
    switch (q->type) {
    case TYPE_IN:
        read_begin(b, q, sector);
        break;
    case TYPE_OUT:
        write_begin(b, q, sector, there);
        break;
    case TYPE_FLUSH:
        b->count.flushes++;
        submit(b, q, BLK_SYNC, 0, job_was_last);
        break;
    case TYPE_GET_ID:
        id_begin(b, q);
        break;
    case TYPE_DISCARD:
    case TYPE_WRITE_ZEROES:
        segments_begin(b, q, there);
        break;
    default:
        end(b, q, STATUS_UNSUPP);
        break;
    }
}

static void header_fetched(virtio *v, virtio_request *r)
{
    blk_request *q = request_of(r);
    uint8_t *header = q->data;
    q->data += HEADER_BYTES;
    if (r->failed)
        end(blk_of(v), q, STATUS_IOERR);
    else
        begin(blk_of(v), q, header, (uint32_t)q->bytes - HEADER_BYTES);
}

/* The header, with as much of the data as there is room for; also what waits for a buffer. */
static void fetch_header(virtio *v, virtio_request *r)
{
    blk_request *q = request_of(r);
    uint64_t all = r->readable_bytes, most = PIECE_BYTES + HEADER_BYTES;
    q->data = q->few;
    if (all > sizeof q->few) {
        if (!get_buffer(blk_of(v), q, all, fetch_header))
            return;
        q->data = q->buffer;
        all = all < most ? all : most;
    }
    q->bytes = all;
    virtio_read(v, r, q->data, (uint32_t)all, header_fetched);
}

/* virtio_type.request */
static void blk_request_begin(virtio *v, virtio_request *r)
{
    blk_request *q = request_of(r);
    q->buffer = NULL;
    if (r->readable_bytes < HEADER_BYTES || !r->writable_bytes) {
        virtio_break(v); /* there is no place for its status */
        return;
    }
    virtio_has_status(r);
    fetch_header(v, r);
}

static const virtio_type blk_type = {
    .request = blk_request_begin, .release = blk_release, .ended = blk_ended, .work = blk_work
};

/* ==== 8  Wipe ================================================================================= */

static void wipe_next(virtio *v, virtio_request *r);

static void wipe_stepped(virtio *v, virtio_request *r)
{
    virtio_blk *b = blk_of(v);
    const blk_request *q = request_of(r);
    if (b->wipe.how != DEVICE_WIPING || b->wipe.begins)
        return; /* it ends, or begins again */
    if (q->error) {
        log_error("virtio-blk: wipe: %s at byte %llu: %s", q->op == BLK_CHECK ? "verify" : "erase",
                  (unsigned long long)b->wipe.at,
                  q->error == BLOCK_STORE_DIFFERS ? "not zero" : strerror(q->error));
        b->wipe.how = DEVICE_UNWIPED;
        return;
    }
    b->wipe.at += q->bytes;
    if (q->op == BLK_FORGET) {
        b->wipe.at = 0;
        b->wipe.erased = true;
    }
    wipe_next(v, r);
}

static void wipe_next(virtio *v, virtio_request *r)
{
    virtio_blk *b = blk_of(v);
    blk_request *q = request_of(r);
    uint64_t left = b->store.size - b->wipe.at;
    uint64_t most = b->wipe.erased ? CHECK_BYTES : HOLE_BYTES;
    blk_op op = b->wipe.erased ? BLK_CHECK : left ? BLK_ZERO : BLK_FORGET;
    if (b->wipe.erased && !left) { /* all of it could be written and read */
        b->health.broken = b->health.lost = false;
        b->wipe.how = DEVICE_WIPED;
        return;
    }
    q->at = b->wipe.at;
    q->deallocate = true;
    submit(b, q, op, left < most ? left : most, wipe_stepped);
}

/* device_kind.wipe */
static int blk_wipe(void *device, bool begin_now)
{
    virtio_blk *b = device;
    if (begin_now) {
        memset(&b->wipe, 0, sizeof b->wipe);
        b->wipe.how = DEVICE_WIPING;
        b->wipe.begins = !b->read_only;
        if (b->read_only) /* nothing was written to it */
            b->wipe.how = DEVICE_WIPED;
    }
    (void)virtio_reap(&b->v); /* a step at a call */
    if (b->wipe.begins && !b->v.dropped && !b->wiper.r.busy) {
        b->wipe.begins = false;
        wipe_next(&b->v, &b->wiper.r);
    }
    return b->wipe.how;
}

/* ==== 9  Kind ================================================================================= */

static void put_config(virtio_blk *b, const device_settings *s)
{
    uint8_t *c = b->v.config;
    dxpu_put_le64(c + CONFIG_CAPACITY, b->store.size >> SECTOR_LOG2);
    dxpu_put_le32(c + CONFIG_SEG_MAX, VIRTIO_SIZE_MAX - 2); /* and the header and the status */
    dxpu_put_le32(c + CONFIG_BLK_SIZE, s->block_bytes == 4096 ? 4096 : 512);
    dxpu_put_le16(c + CONFIG_QUEUES, VIRTIO_BLK_QUEUES);
    dxpu_put_le32(c + CONFIG_DISCARD_SECTORS, 0xffffffff);
    dxpu_put_le32(c + CONFIG_DISCARD_SEGMENTS, SEGMENTS);
    dxpu_put_le32(c + CONFIG_DISCARD_ALIGNMENT, s->block_bytes == 4096 ? 8 : 1);
    dxpu_put_le32(c + CONFIG_ZEROES_SECTORS, 0xffffffff);
    dxpu_put_le32(c + CONFIG_ZEROES_SEGMENTS, SEGMENTS);
    c[CONFIG_ZEROES_UNMAP] = 1;
}

static void blk_destroy(void *device)
{
    virtio_blk *b = device;
    b->wipe.how = DEVICE_UNWIPED;
    virtio_close(&b->v);
    block_store_close(&b->store);
    free(b);
}

static void put_serial(virtio_blk *b, const device_settings *s)
{
    char text[SERIAL_BYTES + 1];
    if (s->serial)
        snprintf(text, sizeof text, "%s", s->serial);
    else
        snprintf(text, sizeof text, "DXPU%016llx", (unsigned long long)s->identity);
    memcpy(b->serial, text, strlen(text));
}

static void *blk_create(const device_settings *s, const device_port *port)
{
    virtio_setup setup = { .type = 2,
                           .class_code = 0x018000, /* mass storage, other */
                           .queues = VIRTIO_BLK_QUEUES,
                           .features = BLK_F_SEG_MAX | BLK_F_BLK_SIZE | BLK_F_FLUSH | BLK_F_MQ |
                                       BLK_F_DISCARD | BLK_F_WRITE_ZEROES,
                           .requests = 256,
                           .request_bytes = sizeof(blk_request),
                           .config_bytes = CONFIG_BYTES };
    uint64_t bytes = s->file_bytes || s->file ? s->file_bytes : s->memory_bytes;
    virtio_blk *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->read_only = s->read_only;
    if (s->read_only)
        setup.features = (setup.features | BLK_F_RO) & ~(BLK_F_DISCARD | BLK_F_WRITE_ZEROES);
    if (block_store_open(&b->store, "virtio-blk", s->file, bytes, s->read_only)) {
        free(b);
        return NULL;
    }
    virtio_list_clear(&b->starving);
    if (virtio_open(&b->v, &setup, &blk_type, s, port)) {
        blk_destroy(b);
        return NULL;
    }
    put_config(b, s);
    put_serial(b, s);
    return b;
}

/* device_kind.medium */
static uint64_t blk_medium(void *device, bool *pristine)
{
    const virtio_blk *b = device;
    *pristine = b->read_only || b->store.pristine; /* it has nothing of a host's */
    return b->read_only ? 0 : b->store.medium;
}

/* device_kind.shown */
static uint64_t blk_shown(const void *device)
{
    const virtio_blk *b = device;
    return b->read_only ? b->store.medium : 0;
}

static void blk_report(void *device, report *r)
{
    const virtio_blk *b = device;
#define BLK_PRINT(name) report_number(r, #name, b->count.name);
    BLK_COUNTERS(BLK_PRINT)
#undef BLK_PRINT
    virtio_report(&b->v, r);
}

static void blk_attributes(const void *device, char out[DEVICE_ATTRIBUTES_BYTES])
{
    const virtio_blk *b = device;
    block_store_attributes(b->store.size, dxpu_get_le32(b->v.config + CONFIG_BLK_SIZE), out);
}

const device_kind virtio_blk_kind = { .name = "virtio-blk",
                                      .model = "blk",
                                      .vendor = VIRTIO_BLK_VENDOR,
                                      .device = VIRTIO_BLK_DEVICE,
                                      .class_code = 0x018000,
                                      .create = blk_create,
                                      .destroy = blk_destroy,
                                      .tlp = virtio_tlp,
                                      .event = virtio_event,
                                      .reset = virtio_reset,
                                      .report = blk_report,
                                      .tick = virtio_tick,
                                      .wipe = blk_wipe,
                                      .medium = blk_medium,
                                      .shown = blk_shown,
                                      .values = virtio_values,
                                      .attributes = blk_attributes };
