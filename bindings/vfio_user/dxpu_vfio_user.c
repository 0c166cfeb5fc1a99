/* dxpu_vfio_user.c - see dxpu_vfio_user.h.  SPDX-License-Identifier: MIT

   Written from the public vfio-user specification.  Order of the file: waking, output queue,
   requests, guest memory, interrupts, version, commands, receiving, connections, opening. */
#define _GNU_SOURCE
#include "dxpu_vfio_user.h"
#include "dxpu_vfio_user_copy.h"
#include "dxpu_vfio_user_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    POSTED_ID = 0xffff, /* of DMA messages that want no reply: entry 1,023, which is never used */
    MULTI_BYTES = 200 * MULTI_ENTRY, /* of QEMU's longest WRITE_MULTI, whatever a transfer may be */
    REPLY_ROOM = 256                 /* every reply without region data fits */
};

/* Guest memory.  host is NULL when it can be reached by message only. */
typedef struct region {
    uint64_t first, last; /* guest addresses, both included */
    uint8_t *host;        /* of `first` */
    void *map;
    size_t map_bytes;
    unsigned access;
} region;

/* A command that waits for the callback's answer; token 0: free. */
typedef struct request {
    uint64_t token;
    uint64_t since_ms;
    uint64_t offset; /* WRITE_MULTI: how many writes */
    uint32_t region;
    uint32_t bytes;
    uint32_t room; /* bytes of output set aside */
    uint16_t id, command;
} request;

/* A DMA message of ours; used until its reply arrives. */
typedef struct dma_message {
    uint64_t address, tag;
    uint32_t bytes;
    uint16_t id, command;
    bool used;
} dma_message;

typedef struct vector {
    int fd; /* eventfd, -1: none */
    bool masked, pending;
    bool level; /* asserted until lowered, whoever is connected */
} vector;

struct dxpu_vfu {
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb;
    dxpu_vfu_counters count;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct stat path_stat; /* of the socket file: remove only what we made */
    int epoll, listener, wake, spare;
    bool choked; /* too many descriptors wait to be closed: nothing is received or accepted */

    /* the client; all below is void without one */
    vfu_stream io;          /* its connection */
    uint32_t client_events; /* what epoll watches it for */
    bool agreed, announced; /* version exchanged; connected() called */
    bool broken;            /* to be closed by process() */
    bool paused, stalled, woken;
    bool behind; /* messages may have waited in the socket since behind_ms */
    uint64_t behind_ms;
    const char *why;      /* broken: the reason */
    size_t message_bytes; /* largest DMA message */

    uint64_t multi_next; /* writes of the WRITE_MULTI at in_head that are done */
    size_t out_reserved; /* of the output, for the answers of `requests` */

    request *requests;
    uint32_t *free_requests; /* stack */
    uint32_t free_count;
    uint64_t next_token;

    dma_message *dma;
    uint32_t dma_used;
    uint16_t dma_round;

    region *regions; /* sorted, never overlapping */
    uint32_t region_count;
    uint32_t region_changes;
    uint64_t mapped_bytes;

    vector *vectors[DXPU_VFU_IRQS];
    vector *vector_memory;
};

/* A command being handled. */
typedef struct message {
    const uint8_t *body;
    size_t len;
    uint16_t id, command;
    bool no_reply;
} message;

/* ==== waking and breaking ===================================================================== */

/* Make the epoll descriptor readable, so that process() is called without news from the client. */
static void wake(dxpu_vfu *s)
{
    uint64_t one = 1;
    if (!s->woken && write(s->wake, &one, sizeof one) == (ssize_t)sizeof one)
        s->woken = true;
}

/* Reading stops now: what comes meanwhile has waited since then when it is read at last. */
static void fall_behind(dxpu_vfu *s)
{
    if (!s->behind)
        s->behind_ms = vfu_now_ms();
    s->behind = true;
}

/* The connection cannot go on.  Tokens are void now; process() does the rest. */
static void break_client(dxpu_vfu *s, const char *why)
{
    uint32_t i;
    if (s->io.fd < 0 || s->broken)
        return;
    s->broken = true;
    s->why = why;
    for (i = 0; i < s->cfg.requests; i++) {
        s->requests[i].token = 0;
        s->free_requests[i] = i;
    }
    s->free_count = s->cfg.requests;
    for (i = 0; i < s->cfg.dma_messages; i++)
        s->dma[i].used = false;
    s->dma_used = 0;
    s->io.out_head = s->io.out_tail = s->io.out_sent = s->out_reserved = 0;
    wake(s);
}

/* As above, for what the client sent. */
static void break_bad(dxpu_vfu *s, const char *why)
{
    if (s->io.fd >= 0 && !s->broken)
        s->count.clients_broken++;
    break_client(s, why);
}

static bool is_up(const dxpu_vfu *s)
{
    return s->io.fd >= 0 && !s->broken;
}

/* Watch the client for what can be used now, no more: level-triggered events would spin. */
static void update_interest(dxpu_vfu *s)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    if (s->io.fd < 0)
        return;
    if (!s->paused && !s->stalled && !s->choked)
        e.events |= EPOLLIN;
    if (s->io.blocked)
        e.events |= EPOLLOUT;
    e.data.fd = s->io.fd;
    if (e.events != s->client_events && epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->io.fd, &e) == 0)
        s->client_events = e.events;
}

/* Room for answers came back: take up reading where it stopped. */
static void unstall(dxpu_vfu *s)
{
    if (!s->stalled)
        return;
    s->stalled = false;
    wake(s);
}

/* ==== output queue ============================================================================ */

static void flush(dxpu_vfu *s)
{
    bool was_blocked = s->io.blocked;
    if (!is_up(s))
        return;
    if (!vfu_stream_flush(&s->io)) {
        break_client(s, "client closed the connection");
        return;
    }
    s->count.output_waited += s->io.blocked;
    if (was_blocked != s->io.blocked)
        update_interest(s);
    if (was_blocked)
        unstall(s);
}

/* Bytes that may still be queued beside what is set aside for answers. */
static size_t out_free(const dxpu_vfu *s)
{
    return vfu_stream_room(&s->io) - s->out_reserved;
}

static void out_end(dxpu_vfu *s)
{
    if (!s->io.blocked)
        flush(s);
}

/* Answer a command that is not kept as a request, with `len` bytes of its own. */
static void reply(dxpu_vfu *s, const message *m, const void *body, size_t len)
{
    uint8_t *p;
    if (m->no_reply || !is_up(s))
        return;
    p = vfu_stream_begin(&s->io, m->id, m->command, HEADER + len, TYPE_REPLY);
    if (len)
        memcpy(p, body, len);
    out_end(s);
}

static void reply_failed(dxpu_vfu *s, const message *m, int error)
{
    uint8_t *p;
    if (m->no_reply) {
        s->count.errors_silent++;
        return;
    }
    s->count.errors++;
    if (!is_up(s))
        return;
    p = vfu_stream_begin(&s->io, m->id, m->command, HEADER, TYPE_REPLY | FLAG_ERROR);
    put32(p - 4, (uint32_t)error);
    out_end(s);
}

/* ==== requests: commands that the callback answers ============================================ */

/* Keep a command; there is a free entry and room, the caller has looked.  Returns its token. */
static uint64_t keep(dxpu_vfu *s, const message *m, uint32_t reg, uint64_t offset, uint32_t bytes)
{
    uint32_t i = s->free_requests[--s->free_count];
    request *r = &s->requests[i];
    /* entry in the low bits, a number that never comes back above them */
    r->token = ++s->next_token << 12 | i;
    if (s->cfg.late_ms)
        r->since_ms = s->behind ? s->behind_ms : vfu_now_ms();
    r->id = m->id;
    r->command = m->command;
    r->region = reg;
    r->offset = offset;
    r->bytes = bytes;
    r->room = HEADER + ACCESS + (m->command == CMD_REGION_READ ? bytes : 0);
    s->out_reserved += r->room;
    return r->token;
}

/* The request is answered: its message is in the queue. */
static void forget(dxpu_vfu *s, request *r)
{
    r->token = 0;
    s->free_requests[s->free_count++] = (uint32_t)(r - s->requests);
    out_end(s);
    unstall(s);
}

/* The request of a token, NULL (and counted) when there is none, or it is too late to answer. */
static request *find(dxpu_vfu *s, uint64_t token)
{
    request *r;
    uint32_t i = (uint32_t)(token & 0xfff);
    if (token == 0 || !is_up(s) || i >= s->cfg.requests || s->requests[i].token != token) {
        s->count.reply_refused++;
        return NULL;
    }
    r = &s->requests[i];
    if (s->cfg.late_ms && vfu_now_ms() - r->since_ms > s->cfg.late_ms) {
        s->count.reply_late++;
        s->out_reserved -= r->room;
        forget(s, r);
        return NULL;
    }
    return r;
}

/* Queue the answer's header and the echo of the access, out of the room set aside. */
static uint8_t *answer(dxpu_vfu *s, const request *r, size_t extra)
{
    uint8_t *p;
    s->out_reserved -= r->room;
    p = vfu_stream_begin(&s->io, r->id, r->command, HEADER + ACCESS + extra, TYPE_REPLY);
    put64(p, r->offset);
    put32(p + 8, r->region);
    put32(p + 12, r->bytes);
    return p + ACCESS;
}

int dxpu_vfu_reply_read(dxpu_vfu *s, uint64_t token, const void *data, size_t bytes)
{
    request *r = find(s, token);
    if (!r)
        return DXPU_E_NONE;
    if (r->command != CMD_REGION_READ || bytes != r->bytes)
        return DXPU_E_ARG;
    memcpy(answer(s, r, bytes), data, bytes);
    forget(s, r);
    return DXPU_OK;
}

int dxpu_vfu_reply_write(dxpu_vfu *s, uint64_t token)
{
    request *r = find(s, token);
    if (!r)
        return DXPU_E_NONE;
    if (r->command == CMD_REGION_READ)
        return DXPU_E_ARG;
    if (r->command == CMD_REGION_WRITE) {
        (void)answer(s, r, 0);
    } else { /* a reset says nothing, WRITE_MULTI how many writes were done */
        size_t len = r->command == CMD_WRITE_MULTI ? 8 : 0;
        uint8_t *p;
        s->out_reserved -= r->room;
        p = vfu_stream_begin(&s->io, r->id, r->command, HEADER + len, TYPE_REPLY);
        if (len)
            put64(p, r->offset);
    }
    forget(s, r);
    return DXPU_OK;
}

int dxpu_vfu_reply_error(dxpu_vfu *s, uint64_t token, int error)
{
    request *r;
    if (error <= 0)
        return DXPU_E_ARG;
    r = find(s, token);
    if (!r)
        return DXPU_E_NONE;
    s->out_reserved -= r->room;
    put32(vfu_stream_begin(&s->io, r->id, r->command, HEADER, TYPE_REPLY | FLAG_ERROR) - 4,
          (uint32_t)error);
    s->count.errors++;
    forget(s, r);
    return DXPU_OK;
}

size_t dxpu_vfu_waiting_bytes(const dxpu_vfu *s)
{
    return s->io.out_tail - s->io.out_head;
}

uint32_t dxpu_vfu_unanswered(const dxpu_vfu *s)
{
    return s->cfg.requests - s->free_count;
}

/* ==== guest memory ============================================================================ */

/* Number of regions that begin at or below `address`. */
static uint32_t regions_upto(const dxpu_vfu *s, uint64_t address)
{
    uint32_t low = 0, high = s->region_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->regions[mid].first <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int dxpu_vfu_dma_probe(const dxpu_vfu *s, uint64_t address, uint64_t bytes, unsigned access)
{
    uint32_t i = regions_upto(s, address);
    uint64_t last;
    int how = DXPU_VFU_DMA_DIRECT;
    if (bytes == 0 || bytes - 1 > UINT64_MAX - address)
        return DXPU_VFU_DMA_VOID;
    last = address + (bytes - 1);
    if (i == 0 || s->regions[i - 1].last < address)
        return DXPU_VFU_DMA_NONE;
    for (i--;; i++) {
        const region *r = &s->regions[i];
        if ((r->access & access) != access)
            return DXPU_VFU_DMA_NONE;
        if (!r->host)
            how = DXPU_VFU_DMA_MESSAGE;
        if (r->last >= last)
            return how;
        if (i + 1 == s->region_count || s->regions[i + 1].first != r->last + 1)
            return DXPU_VFU_DMA_NONE;
    }
}

/* `data` is written to only when reading. */
static int dma_copy(dxpu_vfu *s, uint64_t address, uint8_t *data, size_t bytes, bool write)
{
    const region *r;
    if (dxpu_vfu_dma_probe(s, address, bytes, write ? DXPU_VFU_WRITE : DXPU_VFU_READ) !=
            DXPU_VFU_DMA_DIRECT ||
        s->broken) {
        s->count.dma_refused++;
        return DXPU_E_NONE;
    }
    for (r = &s->regions[regions_upto(s, address) - 1]; bytes > 0; r++) {
        uint64_t left = r->last - address; /* one less than what is left of the region */
        size_t n = bytes - 1 > left ? (size_t)left + 1 : bytes;
        uint8_t *host = r->host + (address - r->first);
        if (!vfu_copy(data, host, n, write)) {
            s->count.dma_faults++;
            return DXPU_E_NONE;
        }
        data += n;
        address += n;
        bytes -= n;
    }
    return DXPU_OK;
}

int dxpu_vfu_dma_read(dxpu_vfu *s, uint64_t address, void *data, size_t bytes)
{
    return dma_copy(s, address, (uint8_t *)data, bytes, false);
}

int dxpu_vfu_dma_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes)
{
    return dma_copy(s, address, (uint8_t *)(uintptr_t)data, bytes, true);
}

bool dxpu_vfu_memory_at(const dxpu_vfu *s, uint32_t index, dxpu_vfu_memory *out)
{
    const region *r;
    if (index >= s->region_count)
        return false;
    r = &s->regions[index];
    out->address = r->first;
    out->bytes = r->last - r->first + 1;
    out->access = r->access;
    out->direct = r->host != NULL;
    return true;
}

uint32_t dxpu_vfu_memory_changes(const dxpu_vfu *s)
{
    return s->region_changes;
}

static void region_release(dxpu_vfu *s, region *r)
{
    s->region_changes++;
    if (r->map) {
        munmap(r->map, r->map_bytes);
        s->mapped_bytes -= r->map_bytes;
    }
}

static void regions_clear(dxpu_vfu *s)
{
    uint32_t i;
    for (i = 0; i < s->region_count; i++)
        region_release(s, &s->regions[i]);
    s->region_count = 0;
}

/* What offsets into a memory file must be multiples of. */
static uint64_t memory_unit(int fd)
{
    struct statfs f;
    if (fstatfs(fd, &f) == 0 && (unsigned long)f.f_type == HUGETLBFS_MAGIC && f.f_bsize > 0)
        return (uint64_t)f.f_bsize;
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Map [offset, offset + bytes) of fd into *r.  0, also when it is no memory file and r->host stays
   NULL, or an errno value.  The size is that of now: a client can truncate the file whenever it
   likes, and can free pages of one that is sealed against that, so each copy expects a fault. */
static int region_map(dxpu_vfu *s, region *r, int fd, uint64_t offset, uint64_t bytes)
{
    struct stat st;
    uint64_t unit, skip, length;
    int prot = 0;
    if (!vfu_is_memory(fd)) { /* S-170: not even its size is asked for */
        if (vfu_is_stream(fd) || vfu_is_eventfd(fd))
            return EINVAL;
        s->count.dma_by_message++;
        return 0;
    }
    if (fstat(fd, &st) != 0 || st.st_size < 0 || bytes > (uint64_t)st.st_size ||
        offset > (uint64_t)st.st_size - bytes)
        return EINVAL;
    unit = memory_unit(fd);
    skip = offset % unit;
    length = (bytes + skip + unit - 1) / unit * unit; /* st_size < 2^63: no overflow */
    if (length > SIZE_MAX || length > s->cfg.memory_bytes - s->mapped_bytes)
        return ENOMEM;
    prot |= r->access & DXPU_VFU_READ ? PROT_READ : 0;
    prot |= r->access & DXPU_VFU_WRITE ? PROT_WRITE : 0;
    r->map = mmap(NULL, (size_t)length, prot, MAP_SHARED, fd, (off_t)(offset - skip));
    if (r->map == MAP_FAILED) {
        r->map = NULL;
        return errno;
    }
    r->map_bytes = (size_t)length;
    s->mapped_bytes += length;
    r->host = (uint8_t *)r->map + skip;
    return 0;
}

/* DMA_MAP: argsz, flags, offset, address, size. */
static int do_dma_map(dxpu_vfu *s, const message *m)
{
    region r;
    uint32_t i;
    uint64_t offset, bytes;
    int error;
    if (m->len != 32 || get32(m->body) < 32)
        return EINVAL;
    memset(&r, 0, sizeof r);
    r.access = get32(m->body + 4);
    offset = get64(m->body + 8);
    r.first = get64(m->body + 16);
    bytes = get64(m->body + 24);
    if ((r.access & ~3u) != 0 || bytes == 0 || bytes - 1 > UINT64_MAX - r.first)
        return EINVAL;
    r.last = r.first + (bytes - 1);
    if (s->io.fds_count > 1)
        return EINVAL;
    i = regions_upto(s, r.last);
    if (i > 0 && s->regions[i - 1].last >= r.first)
        return EEXIST;
    if (s->region_count == s->cfg.dma_maps)
        return ENOSPC;
    if (s->io.fds_count == 1) {
        error = region_map(s, &r, s->io.fds[0], offset, bytes);
        if (error)
            return error;
        vfu_closer_close(s->io.closer, s->io.fds[0]); /* the mapping holds the file */
        s->io.fds[0] = -1;
    } else {
        s->count.dma_by_message++;
    }
    memmove(&s->regions[i + 1], &s->regions[i], (s->region_count - i) * sizeof r);
    s->regions[i] = r;
    s->region_count++;
    s->region_changes++;
    reply(s, m, NULL, 0);
    return 0;
}

/* DMA_UNMAP: argsz, flags (bit 1: all), address, size. */
static int do_dma_unmap(dxpu_vfu *s, const message *m)
{
    uint64_t first, bytes;
    uint32_t i, flags;
    if (m->len != 24 || get32(m->body) < 24)
        return EINVAL;
    flags = get32(m->body + 4);
    first = get64(m->body + 8);
    bytes = get64(m->body + 16);
    if (flags == 2) {
        if (first != 0 || bytes != 0)
            return EINVAL;
        regions_clear(s);
    } else {
        if (flags != 0)
            return EINVAL;
        i = regions_upto(s, first);
        if (i == 0 || bytes == 0 || s->regions[i - 1].first != first ||
            s->regions[i - 1].last - first != bytes - 1)
            return ENOENT;
        region_release(s, &s->regions[i - 1]);
        s->region_count--;
        memmove(&s->regions[i - 1], &s->regions[i],
                (s->region_count + 1 - i) * sizeof s->regions[0]);
    }
    reply(s, m, m->body, 24);
    return 0;
}

/* ==== DMA by message ========================================================================== */

size_t dxpu_vfu_dma_message_bytes(const dxpu_vfu *s)
{
    return dxpu_vfu_is_connected(s) ? s->message_bytes : 0;
}

/* Queue a DMA message; data NULL: a read. */
static int dma_send(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes, bool posted,
                    uint64_t tag)
{
    size_t size = HEADER + ACCESS + (data ? bytes : 0);
    uint16_t command = data ? CMD_DMA_WRITE : CMD_DMA_READ;
    dma_message *d = NULL;
    uint16_t id = POSTED_ID;
    uint8_t *p;
    if (!dxpu_vfu_is_connected(s))
        return DXPU_E_CLOSED;
    if (bytes == 0 || bytes > s->message_bytes || bytes - 1 > UINT64_MAX - address)
        return DXPU_E_ARG;
    if (size > out_free(s) || (!posted && s->dma_used == s->cfg.dma_messages))
        return DXPU_E_AGAIN;
    if (!posted) {
        uint32_t i = 0;
        while (s->dma[i].used)
            i++;
        d = &s->dma[i];
        /* entry in the low bits; the rest distinguishes a late reply */
        id = (uint16_t)((uint32_t)s->dma_round++ << 10 | i);
        d->address = address;
        d->tag = tag;
        d->bytes = (uint32_t)bytes;
        d->id = id;
        d->command = command;
        d->used = true;
        s->dma_used++;
    }
    p = vfu_stream_begin(&s->io, id, command, size, TYPE_COMMAND | (posted ? FLAG_NO_REPLY : 0));
    put64(p, address);
    put64(p + 8, bytes);
    if (data)
        memcpy(p + ACCESS, data, bytes);
    s->count.dma_sent++;
    out_end(s);
    return DXPU_OK;
}

int dxpu_vfu_dma_send_read(dxpu_vfu *s, uint64_t address, size_t bytes, uint64_t tag)
{
    return dma_send(s, address, NULL, bytes, false, tag);
}

int dxpu_vfu_dma_send_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes,
                            bool posted, uint64_t tag)
{
    return dma_send(s, address, data, bytes, posted, tag);
}

int dxpu_vfu_msi(dxpu_vfu *s, uint64_t address, uint32_t data)
{
    uint8_t le[4]; /* as in guest memory: PCI is little-endian */
    dxpu_put_le32(le, data);
    if (address & 3)
        return DXPU_E_ARG;
    return dma_send(s, address, le, sizeof le, true, 0);
}

/* A reply arrived: to one of our DMA messages, or to nothing. */
static void take_reply(dxpu_vfu *s, const uint8_t *header, const uint8_t *body, size_t len)
{
    uint16_t id = get16(header);
    uint32_t i = id & 0x3ff;
    dma_message *d = i < s->cfg.dma_messages ? &s->dma[i] : NULL;
    dxpu_bytes data = { NULL, 0 };
    int error = 0;
    if (id == POSTED_ID && (get32(header + 8) & FLAG_ERROR)) {
        s->count.dma_errors++; /* QEMU says so when a posted write failed */
        return;
    }
    if (!d || !d->used || d->id != id || d->command != get16(header + 2)) {
        s->count.reply_unexpected++;
        return;
    }
    if (get32(header + 8) & FLAG_ERROR) {
        error = (int)(get32(header + 12) & INT32_MAX);
        error = error ? error : EIO;
    } else if (d->command == CMD_DMA_READ) {
        if (len != ACCESS + (size_t)d->bytes || get64(body) != d->address ||
            get64(body + 8) != d->bytes)
            error = EPROTO;
    } else if (len && (len < 12 || get64(body) != d->address ||
                       (len < 16 ? get32(body + 8) : get64(body + 8)) != d->bytes)) {
        error =
            EPROTO; /* of a write's reply QEMU sends the header alone; a count has 4 bytes or 8 */
    }
    if (error) {
        s->count.dma_errors++;
    } else if (d->command == CMD_DMA_READ) {
        data.ptr = body + ACCESS;
        data.len = d->bytes;
    }
    d->used = false;
    s->dma_used--;
    if (s->cb.dma_done)
        s->cb.dma_done(s->cb.user, d->tag, error, data);
}

/* ==== interrupts ============================================================================== */

static int signal_eventfd(dxpu_vfu *s, int fd)
{
    if (!vfu_signal(s->wake, fd)) {
        s->count.irqs_failed++;
        return DXPU_E_NONE;
    }
    s->count.irqs_raised++;
    return DXPU_OK;
}

static int vector_raise(dxpu_vfu *s, vector *v, bool masks_itself)
{
    if (v->fd < 0)
        return DXPU_E_NONE;
    if (v->masked) {
        v->pending = true;
        return DXPU_OK;
    }
    v->masked = masks_itself;
    return signal_eventfd(s, v->fd);
}

int dxpu_vfu_irq_raise(dxpu_vfu *s, uint32_t irq, uint32_t index)
{
    if (irq >= DXPU_VFU_IRQS || index >= s->cfg.irqs[irq])
        return DXPU_E_ARG;
    return vector_raise(s, &s->vectors[irq][index], irq == DXPU_VFU_INTX);
}

int dxpu_vfu_irq_level(dxpu_vfu *s, uint32_t irq, uint32_t index, bool on)
{
    vector *v;
    if (irq >= DXPU_VFU_IRQS || index >= s->cfg.irqs[irq])
        return DXPU_E_ARG;
    v = &s->vectors[irq][index];
    if (v->level == on)
        return DXPU_OK;
    v->level = on;
    v->pending = v->pending && on; /* what was masked is over: a level is not an edge */
    return on ? vector_raise(s, v, irq == DXPU_VFU_INTX) : DXPU_OK;
}

static void vector_set(vector *v, int fd)
{
    if (v->fd >= 0)
        close(v->fd);
    v->fd = fd;
    v->masked = v->pending = false;
}

static void vectors_clear(dxpu_vfu *s, uint32_t irq)
{
    uint32_t i;
    for (i = 0; i < s->cfg.irqs[irq]; i++)
        vector_set(&s->vectors[irq][i], -1);
}

/* DATA_EVENTFD with TRIGGER: give or, without descriptors, take away eventfds. */
static int set_eventfds(dxpu_vfu *s, vector *v, uint32_t count, bool intx)
{
    uint32_t i;
    if (s->io.fds_count != 0 && s->io.fds_count != count)
        return EINVAL;
    for (i = 0; i < s->io.fds_count; i++) {
        if (!vfu_is_eventfd(s->io.fds[i]))
            return EINVAL;
    }
    for (i = 0; i < count; i++) {
        vector_set(&v[i], s->io.fds_count ? s->io.fds[i] : -1);
        if (s->io.fds_count)
            s->io.fds[i] = -1;
        if (v[i].level)
            (void)vector_raise(s, &v[i], intx);
    }
    return 0;
}

static void vector_act(dxpu_vfu *s, vector *v, uint32_t action, bool intx)
{
    if (action == IRQ_MASK) {
        v->masked = true;
    } else if (action == IRQ_UNMASK) {
        bool pending = v->pending || v->level;
        v->masked = v->pending = false;
        if (pending)
            (void)vector_raise(s, v, intx);
    } else {
        (void)vector_raise(s, v, intx);
    }
}

/* SET_IRQS: argsz, flags, index, start, count, booleans. */
static int do_set_irqs(dxpu_vfu *s, const message *m)
{
    uint32_t data, action, irq, start, count, i;
    int error;
    if (m->len < 20 || get32(m->body) < 20)
        return EINVAL;
    data = get32(m->body + 4) & IRQ_DATA;
    action = get32(m->body + 4) & IRQ_ACTION;
    irq = get32(m->body + 8);
    start = get32(m->body + 12);
    count = get32(m->body + 16);
    if ((get32(m->body + 4) & ~(uint32_t)(IRQ_DATA | IRQ_ACTION)) != 0 || irq >= DXPU_VFU_IRQS)
        return EINVAL;
    if (action != IRQ_MASK && action != IRQ_UNMASK && action != IRQ_TRIGGER)
        return EINVAL;
    if (start > s->cfg.irqs[irq] || count > s->cfg.irqs[irq] - start)
        return EINVAL;
    if (count == 0) {
        if (start != 0 || data != IRQ_DATA_NONE || action != IRQ_TRIGGER)
            return EINVAL;
        vectors_clear(s, irq);
    } else if (data == IRQ_DATA_EVENTFD) {
        if (action != IRQ_TRIGGER)
            return ENOTSUP;
        error = set_eventfds(s, &s->vectors[irq][start], count, irq == DXPU_VFU_INTX);
        if (error)
            return error;
    } else if (data == IRQ_DATA_NONE || data == IRQ_DATA_BOOL) {
        if (data == IRQ_DATA_BOOL && m->len - 20 != count)
            return EINVAL;
        for (i = 0; i < count; i++)
            if (data == IRQ_DATA_NONE || m->body[20 + i])
                vector_act(s, &s->vectors[irq][start + i], action, irq == DXPU_VFU_INTX);
    } else {
        return EINVAL;
    }
    reply(s, m, NULL, 0);
    return 0;
}

/* ==== version and capabilities ================================================================ */

/* VERSION: major, minor, JSON text with its NUL.  Returns 0 or an errno value, after which the
   connection is closed: there is nothing else that both ends could agree on. */
static int do_version(dxpu_vfu *s, const message *m)
{
    vfu_capabilities caps;
    uint8_t body[REPLY_ROOM - HEADER];
    uint16_t minor;
    int n;
    if (m->len < 4 || m->no_reply || get16(m->body) != 0)
        return EINVAL;
    minor = get16(m->body + 2);
    if (!vfu_capabilities_read(m->body + 4, m->len - 4, &caps))
        return EINVAL;
    s->message_bytes = caps.transfer_bytes < s->cfg.transfer_bytes ? (size_t)caps.transfer_bytes
                                                                   : s->cfg.transfer_bytes;
    put16(body, 0);
    put16(body + 2, minor < 1 ? minor : 1);
    n = snprintf((char *)body + 4, sizeof body - 4,
                 "{\"capabilities\":{\"max_msg_fds\":%d,\"max_data_xfer_size\":%u,"
                 "\"max_dma_maps\":%u,\"pgsizes\":4096%s}}",
                 FDS_MAX, s->cfg.transfer_bytes, s->cfg.dma_maps,
                 caps.write_multiple ? ",\"write_multiple\":true" : "");
    if (n < 0 || (size_t)n >= sizeof body - 4)
        return EINVAL;
    s->agreed = true;
    s->count.clients++;
    reply(s, m, body, 4 + (size_t)n + 1);
    return 0;
}

/* ==== what the device is ====================================================================== */

/* DEVICE_GET_INFO: argsz, flags, regions, interrupt kinds. */
static int do_get_info(dxpu_vfu *s, const message *m)
{
    uint8_t body[16];
    if (m->len < 16 || get32(m->body) < 16)
        return EINVAL;
    put32(body, 16);
    put32(body + 4, (s->cfg.can_reset ? 1u : 0u) | 2u); /* RESET, PCI */
    put32(body + 8, DXPU_VFU_REGIONS);
    put32(body + 12, DXPU_VFU_IRQS);
    reply(s, m, body, sizeof body);
    return 0;
}

/* DEVICE_GET_REGION_INFO: argsz, flags, index, capability offset, size, offset. */
static int do_get_region_info(dxpu_vfu *s, const message *m)
{
    uint8_t body[32];
    uint32_t index;
    if (m->len < 32 || get32(m->body) < 32)
        return EINVAL;
    index = get32(m->body + 8);
    if (index >= DXPU_VFU_REGIONS)
        return EINVAL;
    memset(body, 0, sizeof body);
    put32(body, 32);
    if (s->cfg.region[index].bytes)
        put32(body + 4, s->cfg.region[index].access & 3u); /* READ, WRITE have the same bits */
    put32(body + 8, index);
    put64(body + 16, s->cfg.region[index].bytes);
    reply(s, m, body, sizeof body);
    return 0;
}

/* DEVICE_GET_IRQ_INFO: argsz, flags, index, count. */
static int do_get_irq_info(dxpu_vfu *s, const message *m)
{
    uint8_t body[16];
    uint32_t irq, flags = 0;
    if (m->len < 16 || get32(m->body) < 16)
        return EINVAL;
    irq = get32(m->body + 8);
    /* as VFIO does: the two kinds that are not PCI interrupts do not exist when there are none */
    if (irq >= DXPU_VFU_IRQS || (irq >= DXPU_VFU_ERR && s->cfg.irqs[irq] == 0))
        return EINVAL;
    if (s->cfg.irqs[irq])
        flags = irq == DXPU_VFU_INTX ? 7 : 1; /* EVENTFD; INTx also MASKABLE and AUTOMASKED */
    put32(body, 16);
    put32(body + 4, flags);
    put32(body + 8, irq);
    put32(body + 12, s->cfg.irqs[irq]);
    reply(s, m, body, sizeof body);
    return 0;
}

/* ==== region accesses ========================================================================= */

/* 0 when `bytes` at `offset` of region `index` may be accessed so, else an errno value. */
static int check_access(const dxpu_vfu *s, uint32_t index, uint64_t offset, uint32_t bytes,
                        unsigned access)
{
    const dxpu_vfu_region *r;
    if (index >= DXPU_VFU_REGIONS)
        return EINVAL;
    r = &s->cfg.region[index];
    if (bytes == 0 || bytes > s->cfg.transfer_bytes)
        return EINVAL;
    if (bytes > r->bytes || offset > r->bytes - bytes)
        return EINVAL;
    return (r->access & access) == access ? 0 : EPERM;
}

static void fill_access(dxpu_vfu_access *a, const uint8_t *body)
{
    a->offset = get64(body);
    a->region = get32(body + 8);
    a->bytes = get32(body + 12);
    a->token = 0;
}

static int do_region_read(dxpu_vfu *s, const message *m)
{
    dxpu_vfu_access a;
    int error;
    if (m->len != ACCESS || m->no_reply)
        return EINVAL;
    fill_access(&a, m->body);
    error = check_access(s, a.region, a.offset, a.bytes, DXPU_VFU_READ);
    if (error)
        return error;
    a.token = keep(s, m, a.region, a.offset, a.bytes);
    s->count.reads++;
    s->cb.read(s->cb.user, &a);
    return 0;
}

static void give_write(dxpu_vfu *s, const dxpu_vfu_access *a, const uint8_t *data)
{
    s->count.writes++;
    if (a->token == 0)
        s->count.writes_posted++;
    s->cb.write(s->cb.user, a, data);
}

static int do_region_write(dxpu_vfu *s, const message *m)
{
    dxpu_vfu_access a;
    int error;
    if (m->len < ACCESS)
        return EINVAL;
    fill_access(&a, m->body);
    if (m->len - ACCESS != a.bytes)
        return EINVAL;
    error = check_access(s, a.region, a.offset, a.bytes, DXPU_VFU_WRITE);
    if (error)
        return error;
    if (!m->no_reply)
        a.token = keep(s, m, a.region, a.offset, a.bytes);
    give_write(s, &a, m->body + ACCESS);
    return 0;
}

/* REGION_WRITE_MULTI: how many, then that many of offset, region, count, 8 bytes.  All are checked
   before the first is made.  The earlier ones are posted, the last one's answer is the answer; what
   the callbacks send meanwhile leaves its room alone.  A pause in between is obeyed: *done says
   whether the last one was given. */
static int do_write_multi(dxpu_vfu *s, const message *m, bool *done)
{
    dxpu_vfu_access a;
    const uint8_t *p = m->body + 8;
    size_t held = m->no_reply ? 0 : HEADER + ACCESS; /* has_room() has seen it */
    uint64_t n, i;
    if (m->len < 8)
        return EINVAL;
    n = get64(m->body);
    if (n == 0 || n > (m->len - 8) / MULTI_ENTRY || m->len - 8 != n * MULTI_ENTRY)
        return EINVAL;
    for (i = s->multi_next ? n : 0; i < n; i++) {
        int error;
        fill_access(&a, p + i * MULTI_ENTRY);
        error = check_access(s, a.region, a.offset, a.bytes, DXPU_VFU_WRITE);
        if (error || a.bytes > 8)
            return error ? error : EINVAL;
    }
    s->out_reserved += held;
    while (s->multi_next < n && !s->paused && !s->broken) {
        const uint8_t *entry = p + s->multi_next++ * MULTI_ENTRY;
        fill_access(&a, entry);
        if (s->multi_next == n) {
            s->out_reserved -= held;
            held = 0;
            a.token = m->no_reply ? 0 : keep(s, m, a.region, n, a.bytes);
        }
        give_write(s, &a, entry + ACCESS);
    }
    if (!s->broken) /* else nothing is set aside any more */
        s->out_reserved -= held;
    *done = s->multi_next == n;
    if (*done)
        s->multi_next = 0;
    return 0;
}

static int do_reset(dxpu_vfu *s, const message *m)
{
    if (m->len != 0)
        return EINVAL;
    if (!s->cfg.can_reset)
        return ENOTSUP;
    s->count.resets++;
    if (!s->cb.reset) {
        reply(s, m, NULL, 0);
        return 0;
    }
    s->cb.reset(s->cb.user, m->no_reply ? 0 : keep(s, m, 0, 0, 0));
    return 0;
}

/* ==== receiving =============================================================================== */

static int dispatch(dxpu_vfu *s, const message *m, bool *done)
{
    switch (m->command) {
    case CMD_VERSION:
        return EINVAL; /* said before */
    case CMD_DMA_MAP:
        return do_dma_map(s, m);
    case CMD_DMA_UNMAP:
        return do_dma_unmap(s, m);
    case CMD_GET_INFO:
        return do_get_info(s, m);
    case CMD_GET_REGION_INFO:
        return do_get_region_info(s, m);
    case CMD_GET_IRQ_INFO:
        return do_get_irq_info(s, m);
    case CMD_SET_IRQS:
        return do_set_irqs(s, m);
    case CMD_REGION_READ:
        return do_region_read(s, m);
    case CMD_REGION_WRITE:
        return do_region_write(s, m);
    case CMD_WRITE_MULTI:
        return do_write_multi(s, m, done);
    case CMD_RESET:
        return do_reset(s, m);
    case CMD_GET_REGION_IO_FDS:
    case CMD_FEATURE:
    case CMD_MIG_READ:
    case CMD_MIG_WRITE:
        s->count.unknown++;
        return ENOTSUP;
    default:
        s->count.unknown++;
        return ENOSYS;
    }
}

/* The first message: agree on a version or part. */
static void greet(dxpu_vfu *s, const message *m)
{
    int error;
    if (m->command != CMD_VERSION) {
        break_bad(s, "client did not begin with its version");
        return;
    }
    error = do_version(s, m);
    if (error) {
        reply_failed(s, m, error);
        break_bad(s, "client's version or capabilities cannot be agreed on");
        return;
    }
    if (is_up(s)) {
        s->announced = true;
        if (s->cb.connected)
            s->cb.connected(s->cb.user);
    }
}

/* Is there room to answer this message?  It is not taken before there is. */
static bool has_room(const dxpu_vfu *s, const message *m)
{
    size_t need = REPLY_ROOM;
    if (m->command == CMD_REGION_READ && m->len >= ACCESS) {
        uint32_t bytes = get32(m->body + 12);
        need += bytes <= s->cfg.transfer_bytes ? bytes : 0;
    }
    return s->free_count > 0 && out_free(s) >= need;
}

/* Handle the whole message at in_head.  False: not now (paused or no room), it stays. */
static bool handle(dxpu_vfu *s, const uint8_t *header, size_t size)
{
    message m;
    uint32_t flags = get32(header + 8);
    bool mine = s->io.fds_at == s->io.in_head, done = true;
    unsigned fds_of_later = 0;
    int error = 0;
    m.id = get16(header);
    m.command = get16(header + 2);
    m.body = header + HEADER;
    m.len = size - HEADER;
    m.no_reply = (flags & FLAG_NO_REPLY) != 0;
    if ((flags & TYPE_MASK) == TYPE_COMMAND && !has_room(s, &m)) {
        s->stalled = true;
        fall_behind(s);
        s->count.stalls++;
        return false;
    }
    if (!mine) { /* hide descriptors that belong to a message behind this one */
        fds_of_later = s->io.fds_count;
        s->io.fds_count = 0;
    }
    if ((flags & TYPE_MASK) == TYPE_REPLY) {
        take_reply(s, header, m.body, m.len);
    } else if (!s->agreed) {
        greet(s, &m);
    } else {
        error = mine && s->io.fds_lost ? EMFILE : dispatch(s, &m, &done);
        if (error)
            reply_failed(s, &m, error);
    }
    if (mine && done)
        vfu_stream_close_fds(&s->io);
    if (!mine)
        s->io.fds_count = fds_of_later;
    s->count.messages += done;
    return done;
}

/* Watch for connections, or leave them in the queue. */
static void set_listening(dxpu_vfu *s)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = s->choked || s->cfg.hidden ? 0 : EPOLLIN;
    e.data.fd = s->listener;
    if (s->listener >= 0)
        (void)epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &e);
}

/* S-171: is nothing more to be received?  The closer wakes us when that changes. */
static bool is_choked(dxpu_vfu *s)
{
    bool room = vfu_closer_has_room(s->io.closer);
    if (room == s->choked) {
        s->choked = !room;
        set_listening(s);
    }
    if (!room) {
        fall_behind(s);
        s->count.stalls++;
    }
    return !room;
}

/* Read once.  False: nothing for now, or the connection is over.  *more: there may be more. */
static bool read_some(dxpu_vfu *s, bool *more)
{
    int rc = vfu_stream_read(&s->io);
    if (rc == VFU_OVER)
        break_client(s, "client closed the connection");
    if (rc == VFU_NOTHING || rc == VFU_OVER)
        return false;
    *more = rc == VFU_MORE;
    return true;
}

/* Handle what is buffered, read, and again, for at most `burst` messages. */
static void receive(dxpu_vfu *s, bool readable)
{
    uint32_t left = s->cfg.burst;
    bool drained = false;
    while (is_up(s)) {
        const char *wrong = NULL;
        size_t size = vfu_stream_message(&s->io, &wrong);
        if (wrong) {
            break_bad(s, wrong);
            return;
        }
        if (size) {
            if (s->paused || s->stalled)
                return;
            if (left-- == 0) {
                wake(s);
                return;
            }
            if (!handle(s, s->io.in + s->io.in_head, size))
                return;
            s->io.in_head += size;
        } else if (readable && !s->paused && !is_choked(s) && read_some(s, &readable)) {
            drained = !readable;
        } else {
            if ((drained || readable) && !s->paused && !s->choked)
                s->behind = false; /* all that had waited is handled */
            return;
        }
    }
}

/* ==== connections ============================================================================= */

void dxpu_vfu_end(int fd)
{
    uint8_t unread[4096];
    (void)shutdown(fd, SHUT_RDWR); /* from here the client can add nothing */
    while (recv(fd, unread, sizeof unread, MSG_DONTWAIT) > 0)
        continue;
    close(fd);
}

static void close_client(dxpu_vfu *s)
{
    bool announced = s->announced;
    const char *why = s->why ? s->why : "closed";
    uint32_t i;
    vfu_stream_close_fds(&s->io);
    regions_clear(s);
    for (i = 0; i < DXPU_VFU_IRQS; i++)
        vectors_clear(s, i);
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, s->io.fd, NULL); /* others may hold it open */
    vfu_closer_hang_up(s->io.closer, s->io.fd);
    s->io.fd = -1;
    s->agreed = s->announced = s->broken = s->stalled = false;
    s->why = NULL;
    vfu_stream_clear(&s->io);
    s->multi_next = 0;
    s->behind = s->paused;
    if (announced && s->cb.disconnected)
        s->cb.disconnected(s->cb.user, why);
}

int dxpu_vfu_client(const dxpu_vfu *s)
{
    return s->agreed ? s->io.fd : -1;
}

int dxpu_vfu_adopt(dxpu_vfu *s, int fd)
{
    struct epoll_event e;
    int type = 0, flags = fcntl(fd, F_GETFL);
    socklen_t len = sizeof type;
    if (s->io.fd >= 0)
        return DXPU_E_FULL;
    if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM)
        return DXPU_E_ARG;
    memset(&e, 0, sizeof e);
    e.events = s->paused ? 0 : EPOLLIN;
    e.data.fd = fd;
    if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) != 0)
        return DXPU_E_ARG;
    s->io.fd = fd;
    s->client_events = e.events;
    return DXPU_OK;
}

/* Has the client closed its end, though bytes of it may still wait to be read? */
static bool hung_up(const dxpu_vfu *s)
{
    struct pollfd p;
    p.fd = s->io.fd;
    p.events = 0;
    p.revents = 0;
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

/* A client that is gone or never said its version gives way to the next one. */
static void give_way(dxpu_vfu *s)
{
    if (s->io.fd < 0)
        return;
    if (!s->agreed) {
        s->count.clients_refused++;
        break_client(s, "a newer client connected before the version was agreed");
        close_client(s);
    } else if (hung_up(s)) {
        break_client(s, "client closed the connection");
        close_client(s);
    }
}

/* No descriptor is left: give up the reserve to take the connection out of the queue, then take it
   back. */
static void refuse_by_spare(dxpu_vfu *s)
{
    int fd;
    if (s->spare < 0)
        return;
    close(s->spare);
    fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        s->count.clients_refused++;
        vfu_closer_hang_up(s->io.closer, fd);
    }
    s->spare = fcntl(s->wake, F_DUPFD_CLOEXEC, 0);
}

/* Somebody connects, and waits when there is no function any more: disconnected() was called. */
static void accept_client(dxpu_vfu *s)
{
    int fd;
    give_way(s);
    if (s->cfg.hidden)
        return;
    if (s->spare < 0) /* another thread was faster when it was to be taken back */
        s->spare = fcntl(s->wake, F_DUPFD_CLOEXEC, 0);
    fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            refuse_by_spare(s);
        return;
    }
    if (dxpu_vfu_adopt(s, fd) != DXPU_OK) {
        s->count.clients_refused++;
        vfu_closer_hang_up(s->io.closer, fd);
    }
}

int dxpu_vfu_process(dxpu_vfu *s)
{
    struct epoll_event e[4];
    uint32_t client = 0;
    bool connecting = false;
    int i, n = epoll_wait(s->epoll, e, 4, 0);
    if (n < 0)
        return errno == EINTR ? DXPU_OK : DXPU_E_DEAD;
    for (i = 0; i < n; i++) {
        if (e[i].data.fd == s->wake) {
            uint64_t many;
            s->woken = false;
            if (read(s->wake, &many, sizeof many) < 0 && errno != EAGAIN && errno != EINTR)
                return DXPU_E_DEAD;
            if (s->choked)
                (void)is_choked(s);
        } else if (e[i].data.fd == s->listener) {
            connecting = true;
        } else if (e[i].data.fd == s->io.fd) {
            client = e[i].events;
        }
    }
    if (client & EPOLLOUT)
        flush(s);
    if (is_up(s))
        receive(s, (client & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0);
    if (is_up(s) && (client & (EPOLLHUP | EPOLLERR)) && (s->paused || s->stalled || s->choked))
        break_client(s, "client closed the connection");
    if (s->broken)
        close_client(s);
    if (connecting && !s->cfg.hidden && !is_choked(s))
        accept_client(s);
    update_interest(s);
    return DXPU_OK;
}

int dxpu_vfu_fd(const dxpu_vfu *s)
{
    return s->epoll;
}

void dxpu_vfu_pause(dxpu_vfu *s, bool pause)
{
    if (s->paused == pause)
        return;
    s->paused = pause;
    if (pause)
        fall_behind(s);
    update_interest(s);
    if (!pause)
        wake(s); /* there may be messages read before */
}

bool dxpu_vfu_is_connected(const dxpu_vfu *s)
{
    return is_up(s) && s->agreed;
}

void dxpu_vfu_disconnect(dxpu_vfu *s)
{
    break_client(s, "disconnected by the server");
}

/* ==== opening ================================================================================= */

void dxpu_vfu_config_default(dxpu_vfu_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->mode = 0600;
    cfg->region[DXPU_VFU_CONFIG].bytes = 256;
    cfg->region[DXPU_VFU_CONFIG].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    cfg->can_reset = true;
    cfg->transfer_bytes = 65536;
    cfg->queue_bytes = 1048576;
    cfg->requests = 256;
    cfg->dma_maps = 4096;
    cfg->memory_bytes = (uint64_t)1 << 44;
    cfg->dma_messages = 64;
    cfg->late_ms = 4500;
    cfg->burst = 64;
}

static const char *check_config(const dxpu_vfu_config *c, const dxpu_vfu_callbacks *cb)
{
    uint32_t i;
    for (i = 0; i < DXPU_VFU_IRQS; i++)
        if (c->irqs[i] > 2048)
            return "irqs: at most 2,048 vectors of a kind";
    if (!cb->read || !cb->write)
        return "callbacks: read and write are needed";
    if (c->transfer_bytes < 4096 || c->transfer_bytes > 1048576)
        return "transfer_bytes: 4 KiB to 1 MiB";
    if (c->queue_bytes < 2 * c->transfer_bytes || c->queue_bytes > 67108864)
        return "queue_bytes: 2 x transfer_bytes to 64 MiB";
    if (c->requests < 1 || c->requests > 4096)
        return "requests: 1 to 4,096";
    if (c->dma_maps < 1 || c->dma_maps > 65535)
        return "dma_maps: 1 to 65,535";
    if (c->dma_messages < 1 || c->dma_messages > 1023)
        return "dma_messages: 1 to 1,023";
    if (c->burst < 1)
        return "burst: at least 1";
    return NULL;
}

/* As many vectors as the configuration says, none with an eventfd. */
static bool allocate_vectors(dxpu_vfu *s)
{
    uint32_t i, total = 0;
    vector *v;
    for (i = 0; i < DXPU_VFU_IRQS; i++)
        total += s->cfg.irqs[i];
    s->vector_memory = v = (vector *)calloc(total + 1, sizeof *v);
    if (!v)
        return false;
    for (i = 0; i < total; i++)
        v[i].fd = -1;
    for (i = 0; i < DXPU_VFU_IRQS; i++) {
        s->vectors[i] = v;
        v += s->cfg.irqs[i];
    }
    return true;
}

static bool allocate(dxpu_vfu *s)
{
    uint32_t i, largest = s->cfg.transfer_bytes > MULTI_BYTES ? s->cfg.transfer_bytes : MULTI_BYTES;
    s->io.fds_closed = &s->count.fds_closed;
    s->io.fds_lost_count = &s->count.fds_lost;
    s->requests = (request *)calloc(s->cfg.requests, sizeof *s->requests);
    s->free_requests = (uint32_t *)calloc(s->cfg.requests, sizeof *s->free_requests);
    s->dma = (dma_message *)calloc(s->cfg.dma_messages, sizeof *s->dma);
    s->regions = (region *)calloc(s->cfg.dma_maps, sizeof *s->regions);
    if (!vfu_stream_open(&s->io, largest, s->cfg.queue_bytes) || !s->requests ||
        !s->free_requests || !s->dma || !s->regions || !allocate_vectors(s))
        return false;
    for (i = 0; i < s->cfg.requests; i++)
        s->free_requests[i] = i;
    s->free_count = s->cfg.requests;
    return true;
}

/* Vectors as the configuration says, in place of those of before.  Without memory there is no
   function. */
static bool replace_vectors(dxpu_vfu *s)
{
    vector *before = s->vector_memory;
    if (allocate_vectors(s)) {
        free(before);
        return true;
    }
    s->vector_memory = before;
    memset(s->cfg.irqs, 0, sizeof s->cfg.irqs);
    s->cfg.hidden = true;
    return false;
}

/* A client that is broken, and whose end process() has not reported, stays until then: this may be
   a callback for one of its messages. */
int dxpu_vfu_present(dxpu_vfu *s, const dxpu_vfu_region *regions, const uint32_t *irqs)
{
    dxpu_vfu_config next = s->cfg;
    uint32_t i;
    bool all = true;
    if (dxpu_vfu_is_connected(s))
        return DXPU_E_FULL;
    next.hidden = !regions || !irqs;
    if (!next.hidden) {
        memcpy(next.region, regions, sizeof next.region);
        memcpy(next.irqs, irqs, sizeof next.irqs);
    }
    if (check_config(&next, &s->cb))
        return DXPU_E_ARG;
    if (s->io.fd >= 0 && !s->agreed) { /* it has said nothing yet */
        break_client(s, "another function is presented");
        close_client(s);
    }
    for (i = 0; i < DXPU_VFU_IRQS; i++)
        vectors_clear(s, i);
    s->cfg = next;
    if (!next.hidden)
        all = replace_vectors(s);
    set_listening(s);
    return all ? DXPU_OK : DXPU_E_FULL;
}

static bool watch(dxpu_vfu *s, int fd)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = EPOLLIN;
    e.data.fd = fd;
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* True if no process listens on this socket file: a crash left it behind. */
static bool is_stale(const struct sockaddr_un *a)
{
    struct stat st;
    int fd;
    bool stale;
    if (lstat(a->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    stale = connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

/* The mask makes the mode of the file, before anybody can connect; that of whoever started the
   program must take nothing of it away. */
static int bind_with_mode(int fd, const struct sockaddr_un *a, mode_t mode)
{
    mode_t usual = umask(~mode & 0777);
    int rc = bind(fd, (const struct sockaddr *)a, sizeof *a);
    (void)umask(usual); /* cannot fail, and leaves errno */
    return rc;
}

static bool socket_address(const char *path, struct sockaddr_un *a)
{
    size_t len = strlen(path);
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    if (!len || len >= sizeof a->sun_path)
        return false;
    memcpy(a->sun_path, path, len);
    return true;
}

void dxpu_vfu_remove(const char *path)
{
    struct sockaddr_un a;
    if (socket_address(path, &a) && is_stale(&a))
        (void)unlink(path);
}

static const char *start_listening(dxpu_vfu *s, const char *path)
{
    struct sockaddr_un a;
    if (!socket_address(path, &a)) {
        errno = ENAMETOOLONG;
        return "the path of a unix socket has 1 to 107 bytes; use a shorter one";
    }
    memcpy(s->path, path, strlen(path));
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0)
        return "cannot make a socket";
    dxpu_vfu_remove(path);
    if (bind_with_mode(s->listener, &a, (mode_t)s->cfg.mode) != 0)
        return errno == EADDRINUSE
                   ? "another server or a file is there; stop it or use another path"
                   : "cannot make the socket file";
    if (lstat(path, &s->path_stat) != 0)
        s->path_stat.st_ino = 0;
    if (listen(s->listener, 4) != 0 || !watch(s, s->listener))
        return "cannot listen";
    set_listening(s);
    return NULL;
}

dxpu_vfu *dxpu_vfu_open(const dxpu_vfu_config *cfg, const dxpu_vfu_callbacks *cb, const char **why)
{
    dxpu_vfu *s;
    int error;
    *why = check_config(cfg, cb);
    if (*why) {
        errno = EINVAL;
        return NULL;
    }
    s = (dxpu_vfu *)calloc(1, sizeof *s);
    if (!s) {
        *why = "out of memory";
        return NULL;
    }
    s->cfg = *cfg;
    s->cfg.path = NULL;
    s->cb = *cb;
    s->io.fd = s->listener = s->epoll = s->wake = s->spare = -1;
    vfu_copy_start();
    if (!allocate(s)) {
        *why = "out of memory; lower queue_bytes or dma_maps";
    } else if ((s->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
               (s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 || !watch(s, s->wake) ||
               !(s->io.closer = vfu_closer_new(s->wake)) ||
               (s->spare = fcntl(s->wake, F_DUPFD_CLOEXEC, 0)) < 0) {
        *why = "no file descriptor left; raise the limit (ulimit -n)";
    } else if (cfg->path) {
        *why = start_listening(s, cfg->path);
    }
    if (!*why)
        return s;
    error = errno;
    dxpu_vfu_close(s);
    errno = error;
    return NULL;
}

void dxpu_vfu_close(dxpu_vfu *s)
{
    struct stat st;
    if (!s)
        return;
    s->cb.disconnected = NULL;
    if (s->io.fd >= 0)
        close_client(s);
    if (s->path_stat.st_ino && lstat(s->path, &st) == 0 && st.st_ino == s->path_stat.st_ino &&
        st.st_dev == s->path_stat.st_dev)
        unlink(s->path);
    if (s->listener >= 0)
        close(s->listener);
    if (s->spare >= 0)
        close(s->spare);
    vfu_closer_free(s->io.closer);
    if (s->wake >= 0)
        close(s->wake);
    if (s->epoll >= 0)
        close(s->epoll);
    vfu_stream_free(&s->io);
    free(s->requests);
    free(s->free_requests);
    free(s->dma);
    free(s->regions);
    free(s->vector_memory);
    free(s);
}

/* ==== counters ================================================================================ */

#define TEXT(name, text) { #name, text },
static const char *const counter_texts[][2] = { DXPU_VFU_COUNTERS(TEXT) };
#undef TEXT
enum { COUNTERS = sizeof counter_texts / sizeof counter_texts[0] };

const dxpu_vfu_counters *dxpu_vfu_count(const dxpu_vfu *s)
{
    return &s->count;
}

const char *dxpu_vfu_counter_name(unsigned index)
{
    return index < COUNTERS ? counter_texts[index][0] : NULL;
}

const char *dxpu_vfu_counter_text(unsigned index)
{
    return index < COUNTERS ? counter_texts[index][1] : NULL;
}

uint64_t dxpu_vfu_counter_value(const dxpu_vfu *s, unsigned index)
{
    uint64_t v = 0;
    if (index < COUNTERS)
        memcpy(&v, (const uint8_t *)&s->count + index * sizeof v, sizeof v);
    return v;
}
