/* dxpu_vfio_user_client.c - see dxpu_vfio_user_client.h.  SPDX-License-Identifier: MIT

   Written from the public vfio-user specification.  Order of the file: the server's time,
   connection, output, requests, the server's DMA, interrupts, what the device is, receiving,
   opening. */
#define _GNU_SOURCE
#include "dxpu_vfio_user_client.h"
#include "dxpu_vfio_user_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    POSTED_ID = 0xffff,  /* of commands that want no reply: entry 1,023, which is never used */
    ENTRY_BITS = 10,     /* of a request's id: its entry; the rest distinguishes a late reply */
    SERVER_LEAST = 4096, /* largest transfer of a server that can be used, at least */
    MULTI_MAX = 64,      /* writes in one message */
    MULTI_BYTES = 8,     /* largest of them */
    VECTORS_MAX = 2048,  /* of a kind */
    EVENTS = 64          /* taken from epoll at a time */
};

enum { MAIN, TWIN, STREAMS };

/* What epoll says of a descriptor; vectors are behind. */
enum { ON_WAKE, ON_TIMER, ON_STREAM, ON_VECTOR = ON_STREAM + STREAMS };

/* What a request is for: the owner's, or a step of the introduction. */
enum { FOR_OWNER, FOR_VERSION, FOR_INFO, FOR_REGION, FOR_IRQ };

typedef struct request {
    uint64_t tag, since_ms, offset;
    uint32_t region, bytes;
    uint32_t group; /* SET_IRQS: the same for all pieces of a call */
    int error;      /* the first of the pieces that were answered */
    uint16_t id, command;
    uint8_t purpose;
    bool used;
} request;

/* A DMA command of the server that is not answered; token 0: free. */
typedef struct dma_command {
    uint64_t token, address;
    uint32_t bytes;
    uint16_t id, command;
    uint8_t stream;
} dma_command;

/* `gate`: bytes of each stream that were sent before it was raised. */
typedef struct vector {
    int fd; /* -1: none yet */
    bool on, pending, again;
    uint64_t gate[STREAMS], again_gate[STREAMS];
} vector;

struct dxpu_vfuc {
    dxpu_vfuc_config cfg;
    dxpu_vfuc_callbacks cb;
    dxpu_vfuc_counters count;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    int epoll, wake, timer;
    vfu_closer *closer;

    /* the connection; all below is void without one */
    vfu_stream io[STREAMS];
    uint32_t events[STREAMS];   /* what epoll watches them for */
    uint64_t handled[STREAMS];  /* bytes of whole messages that were taken */
    uint64_t reserved[STREAMS]; /* of the output, for answers */
    uint64_t main_gate;         /* bytes of TWIN that were sent before what was read of MAIN */
    bool broken, ready, paused, stalled, woken;
    const char *why;
    uint64_t alarm_ms;          /* when the timer rings, or before; 0: it does not */
    uint64_t quiet_ms;          /* the last reset ended: nothing was late before */
    uint64_t taken_ms[STREAMS]; /* blocked: when the socket last took something */
    size_t multi_bytes; /* of a WRITE_MULTI at the end of the output that may grow; 0: none */
    unsigned next_region, next_irq, region_count, irq_count;
    uint64_t server_fds; /* descriptors that it accepts in a message */
    uint32_t groups;     /* of pieces */
    dxpu_vfuc_info info;

    request *requests;
    uint32_t *free_requests;     /* stack */
    uint32_t free_count, resets; /* resets: of the unanswered */
    uint16_t round;

    dma_command *dma;
    uint32_t dma_used;
    uint64_t next_token;

    /* its time, in which those above are, does not pass while it waits for the owner */
    bool stopped;
    uint64_t stopped_ms, stopped_since_ms;

    vector *vectors[DXPU_VFU_IRQS];
    uint32_t vector_count[DXPU_VFU_IRQS]; /* that there is memory for */
    uint32_t pending;
};

/* ==== the server's time ======================================================================= */

static uint64_t served_ms(const dxpu_vfuc *c)
{
    return (c->stopped ? c->stopped_since_ms : vfu_now_ms()) - c->stopped_ms;
}

/* When something begun at since_ms is too late.  All wait behind a reset. */
static uint64_t due_ms(const dxpu_vfuc *c, uint64_t since_ms)
{
    uint64_t since = since_ms > c->quiet_ms ? since_ms : c->quiet_ms;
    return since + (c->resets ? c->cfg.reset_ms : c->cfg.answer_ms);
}

/* Wake up then, or before. */
static void arm(dxpu_vfuc *c, uint64_t at_ms)
{
    struct itimerspec t;
    uint64_t served, real;
    if (c->alarm_ms && c->alarm_ms <= at_ms)
        return;
    served = served_ms(c);
    real = vfu_now_ms() + (at_ms > served ? at_ms - served : 0);
    c->alarm_ms = at_ms;
    memset(&t, 0, sizeof t);
    t.it_value.tv_sec = (time_t)(real / 1000);
    t.it_value.tv_nsec = (long)(real % 1000) * 1000000;
    (void)timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* Whose turn is it?  The owner's during a pause, and while the server's commands fill all room; but
   not when room is missing because the server does not read. */
static void run_clock(dxpu_vfuc *c)
{
    bool unread = c->io[MAIN].blocked || c->io[TWIN].blocked;
    bool stop = c->paused || (c->stalled && (c->dma_used == c->cfg.dma_commands || !unread));
    if (stop == c->stopped)
        return;
    if (stop)
        c->stopped_since_ms = vfu_now_ms();
    else
        c->stopped_ms += vfu_now_ms() - c->stopped_since_ms;
    c->stopped = stop;
    if (!stop && !c->alarm_ms) /* it rang meanwhile */
        arm(c, served_ms(c));
}

/* ==== connection ============================================================================== */

/* Make the epoll descriptor readable, so that process() is called without news from the server. */
static void wake_loop(dxpu_vfuc *c)
{
    uint64_t one = 1;
    if (!c->woken && write(c->wake, &one, sizeof one) == (ssize_t)sizeof one)
        c->woken = true;
}

static bool is_up(const dxpu_vfuc *c)
{
    return c->io[MAIN].fd >= 0 && !c->broken;
}

/* The connection cannot go on; process() does the rest. */
static void break_server(dxpu_vfuc *c, const char *why)
{
    if (!is_up(c))
        return;
    c->broken = true;
    c->ready = false;
    c->why = why;
    wake_loop(c);
}

/* As above, for what the server sent or left out. */
static void break_bad(dxpu_vfuc *c, const char *why)
{
    if (is_up(c))
        c->count.broken++;
    break_server(c, why);
}

/* May messages of a stream be handled now?  Replies stay behind the DMA of the second socket that
   was sent before them. */
static bool may_go(const dxpu_vfuc *c, unsigned i)
{
    if (c->paused || c->stalled)
        return false;
    return i == TWIN || c->io[TWIN].fd < 0 || c->handled[TWIN] >= c->main_gate;
}

static bool may_read(const dxpu_vfuc *c, unsigned i)
{
    return may_go(c, i) && vfu_closer_has_room(c->closer);
}

/* Watch a stream for what can be used now, no more: level-triggered events would spin. */
static void update_interest(dxpu_vfuc *c, unsigned i)
{
    struct epoll_event e;
    vfu_stream *io = &c->io[i];
    memset(&e, 0, sizeof e);
    if (io->fd < 0)
        return;
    if (may_read(c, i))
        e.events |= EPOLLIN;
    if (io->blocked)
        e.events |= EPOLLOUT;
    e.data.u32 = ON_STREAM + i;
    if (e.events != c->events[i] && epoll_ctl(c->epoll, EPOLL_CTL_MOD, io->fd, &e) == 0)
        c->events[i] = e.events;
}

/* Descriptors of a message that enables interrupts (vfu_stream.fds_of). */
static unsigned eventfds_of(void *user, const uint8_t *message, int fds[FDS_MAX])
{
    const dxpu_vfuc *c = (const dxpu_vfuc *)user;
    const uint8_t *body = message + HEADER;
    uint32_t i, irq, start, count;
    /* a refusal has the server's command in it, and no body */
    if (get16(message + 2) != CMD_SET_IRQS || (get32(message + 8) & TYPE_MASK) != TYPE_COMMAND ||
        !(get32(body + 4) & IRQ_DATA_EVENTFD))
        return 0;
    irq = get32(body + 8);
    start = get32(body + 12);
    count = get32(body + 16);
    for (i = 0; i < count; i++)
        fds[i] = c->vectors[irq][start + i].fd;
    return count;
}

static bool watch(const dxpu_vfuc *c, int fd, uint32_t what, uint32_t events)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = events;
    e.data.u32 = what;
    return epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

static bool start_stream(dxpu_vfuc *c, unsigned i, int fd)
{
    if (!watch(c, fd, ON_STREAM + i, EPOLLIN))
        return false;
    c->io[i].fd = fd;
    c->events[i] = EPOLLIN;
    c->handled[i] = c->reserved[i] = 0;
    return true;
}

static void end_stream(dxpu_vfuc *c, unsigned i)
{
    vfu_stream *io = &c->io[i];
    if (io->fd < 0)
        return;
    vfu_stream_close_fds(io);
    vfu_stream_clear(io);
    (void)epoll_ctl(c->epoll, EPOLL_CTL_DEL, io->fd, NULL); /* others may hold it open */
    vfu_closer_hang_up(c->closer, io->fd);
    io->fd = -1;
}

/* A server that is gone may still hold the eventfds: the next one gets others. */
static void end_vectors(dxpu_vfuc *c)
{
    uint32_t irq, i;
    for (irq = 0; irq < DXPU_VFU_IRQS; irq++) {
        for (i = 0; i < c->vector_count[irq]; i++) {
            if (c->vectors[irq][i].fd >= 0) {
                (void)epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->vectors[irq][i].fd, NULL);
                close(c->vectors[irq][i].fd);
            }
        }
        free(c->vectors[irq]);
        c->vectors[irq] = NULL;
        c->vector_count[irq] = 0;
    }
    c->pending = 0;
}

static void end_server(dxpu_vfuc *c)
{
    const char *why = c->why ? c->why : "closed";
    uint32_t i;
    end_stream(c, TWIN);
    end_stream(c, MAIN);
    end_vectors(c);
    for (i = 0; i < c->cfg.requests; i++) {
        c->requests[i].used = false;
        c->free_requests[i] = i;
    }
    c->free_count = c->cfg.requests;
    c->resets = 0;
    for (i = 0; i < c->cfg.dma_commands; i++)
        c->dma[i].token = 0;
    c->dma_used = 0;
    c->broken = c->ready = c->stalled = false;
    run_clock(c);
    c->alarm_ms = 0;
    c->multi_bytes = 0;
    c->why = NULL;
    if (c->cb.gone)
        c->cb.gone(c->cb.user, why);
}

void dxpu_vfuc_disconnect(dxpu_vfuc *c, const char *why)
{
    break_server(c, why);
}

bool dxpu_vfuc_is_connected(const dxpu_vfuc *c)
{
    return c->io[MAIN].fd >= 0;
}

bool dxpu_vfuc_is_ready(const dxpu_vfuc *c)
{
    return is_up(c) && c->ready;
}

const dxpu_vfuc_info *dxpu_vfuc_device(const dxpu_vfuc *c)
{
    return dxpu_vfuc_is_ready(c) ? &c->info : NULL;
}

/* ==== output ================================================================================== */

static void unstall(dxpu_vfuc *c)
{
    if (!c->stalled)
        return;
    c->stalled = false;
    run_clock(c);
    wake_loop(c);
}

static size_t unsent(const vfu_stream *io)
{
    return io->out_tail - io->out_head - io->out_sent;
}

static void flush(dxpu_vfuc *c, unsigned i)
{
    vfu_stream *io = &c->io[i];
    bool was_blocked = io->blocked;
    size_t before = unsent(io);
    if (!is_up(c) || io->fd < 0)
        return;
    if (!vfu_stream_flush(io)) {
        break_server(c, errno == ETOOMANYREFS
                            ? "too many descriptors are on their way to servers; raise the limit "
                              "(ulimit -n)"
                            : "the server closed the connection");
        return;
    }
    c->count.output_waited += io->blocked;
    if (io->blocked) {
        if (!was_blocked || unsent(io) < before)
            c->taken_ms[i] = served_ms(c);
        arm(c, due_ms(c, c->taken_ms[i]));
    }
    if (i == MAIN && io->out_head == io->out_tail)
        c->multi_bytes = 0;
    if (was_blocked != io->blocked)
        update_interest(c, i);
    if (was_blocked)
        unstall(c);
    run_clock(c);
}

static void out_end(dxpu_vfuc *c, unsigned i)
{
    if (!c->io[i].blocked)
        flush(c, i);
}

/* As vfu_stream_begin(): a message of several that was at the end of the output no longer grows. */
static uint8_t *out_begin(dxpu_vfuc *c, unsigned i, uint16_t id, uint16_t command, size_t size,
                          uint32_t flags)
{
    if (i == MAIN)
        c->multi_bytes = 0;
    return vfu_stream_begin(&c->io[i], id, command, size, flags);
}

/* Bytes that may still be queued beside what is set aside for answers. */
static size_t out_free(const dxpu_vfuc *c, unsigned i)
{
    return vfu_stream_room(&c->io[i]) - (size_t)c->reserved[i];
}

size_t dxpu_vfuc_waiting_bytes(const dxpu_vfuc *c)
{
    return c->io[MAIN].out_tail - c->io[MAIN].out_head;
}

/* ==== requests ================================================================================ */

/* A request and its message; NULL when there is no room.  *body is behind the header. */
static request *ask(dxpu_vfuc *c, uint16_t command, size_t len, uint8_t purpose, uint64_t tag,
                    uint8_t **body)
{
    request *r;
    uint32_t i;
    if (c->free_count == 0 || out_free(c, MAIN) < HEADER + len)
        return NULL;
    i = c->free_requests[--c->free_count];
    r = &c->requests[i];
    memset(r, 0, sizeof *r);
    r->used = true;
    r->tag = tag;
    r->command = command;
    r->purpose = purpose;
    r->since_ms = served_ms(c);
    r->id = (uint16_t)((uint32_t)c->round++ << ENTRY_BITS | i);
    c->resets += command == CMD_RESET;
    arm(c, due_ms(c, r->since_ms));
    *body = out_begin(c, MAIN, r->id, command, HEADER + len, TYPE_COMMAND);
    memset(*body, 0, len);
    return r;
}

static void release(dxpu_vfuc *c, request *r)
{
    if (r->command == CMD_RESET && --c->resets == 0) {
        c->quiet_ms = served_ms(c);
        arm(c, due_ms(c, 0)); /* what waited behind it has less time from here on */
    }
    r->used = false;
    c->free_requests[c->free_count++] = (uint32_t)(r - c->requests);
}

/* Has the server read nothing for too long?  *next: when to look again, if that is earlier. */
static bool is_deaf(dxpu_vfuc *c, unsigned i, uint64_t *next)
{
    const vfu_stream *io = &c->io[i];
    if (io->blocked && due_ms(c, c->taken_ms[i]) <= served_ms(c))
        flush(c, i); /* epoll reports room late: when most of the buffer is free */
    if (!io->blocked || !is_up(c))
        return false;
    if (due_ms(c, c->taken_ms[i]) < *next)
        *next = due_ms(c, c->taken_ms[i]);
    return *next <= served_ms(c);
}

/* Is something too late?  If not, look again when the oldest would be. */
static void look_at_clock(dxpu_vfuc *c)
{
    uint64_t next = UINT64_MAX;
    uint32_t i;
    c->alarm_ms = 0;
    if (c->stopped) /* looked at when it runs again */
        return;
    if (is_deaf(c, MAIN, &next) || is_deaf(c, TWIN, &next)) {
        c->count.timeouts++;
        break_bad(c, "the server does not read");
        return;
    }
    if (!is_up(c)) /* closed meanwhile */
        return;
    for (i = 0; i < c->cfg.requests; i++) {
        if (c->requests[i].used && due_ms(c, c->requests[i].since_ms) < next)
            next = due_ms(c, c->requests[i].since_ms);
    }
    if (next <= served_ms(c)) {
        c->count.timeouts++;
        break_bad(c, c->resets ? "the server does not end a reset" : "the server does not answer");
    } else if (next != UINT64_MAX) {
        arm(c, next);
    }
}

/* What is the matter with a request before it is made; DXPU_OK: nothing. */
static int check(const dxpu_vfuc *c, uint32_t index, uint64_t offset, uint32_t bytes,
                 unsigned access)
{
    const dxpu_vfu_region *r;
    if (!dxpu_vfuc_is_ready(c))
        return DXPU_E_CLOSED;
    if (index >= DXPU_VFU_REGIONS || bytes == 0 || bytes > c->info.transfer_bytes)
        return DXPU_E_ARG;
    r = &c->info.region[index];
    if (bytes > r->bytes || offset > r->bytes - bytes || !(r->access & access))
        return DXPU_E_ARG;
    return DXPU_OK;
}

static void put_access(uint8_t *p, uint32_t region, uint64_t offset, uint32_t bytes)
{
    put64(p, offset);
    put32(p + 8, region);
    put32(p + 12, bytes);
}

static void note_access(request *r, uint32_t region, uint64_t offset, uint32_t bytes)
{
    r->region = region;
    r->offset = offset;
    r->bytes = bytes;
}

int dxpu_vfuc_read(dxpu_vfuc *c, uint32_t region, uint64_t offset, uint32_t bytes, uint64_t tag)
{
    int rc = check(c, region, offset, bytes, DXPU_VFU_READ);
    uint8_t *p;
    request *r;
    if (rc != DXPU_OK)
        return rc;
    r = ask(c, CMD_REGION_READ, ACCESS, FOR_OWNER, tag, &p);
    if (!r)
        return DXPU_E_AGAIN;
    put_access(p, region, offset, bytes);
    note_access(r, region, offset, bytes);
    c->count.reads++;
    out_end(c, MAIN);
    return DXPU_OK;
}

/* Add a posted write to the message of several at the end of the output.  False: there is none that
   can grow. */
static bool share(dxpu_vfuc *c, uint32_t region, uint64_t offset, const void *data, uint32_t bytes)
{
    vfu_stream *io = &c->io[MAIN];
    uint8_t *message = io->out + io->out_tail - c->multi_bytes, *p;
    if (c->multi_bytes == 0 || c->multi_bytes >= HEADER + 8 + MULTI_MAX * MULTI_ENTRY ||
        io->out_size - io->out_tail < MULTI_ENTRY || out_free(c, MAIN) < MULTI_ENTRY ||
        (io->out_tail - c->multi_bytes == io->out_head && io->out_sent > 0))
        return false;
    p = io->out + io->out_tail;
    memset(p, 0, MULTI_ENTRY);
    put_access(p, region, offset, bytes);
    memcpy(p + ACCESS, data, bytes);
    io->out_tail += MULTI_ENTRY;
    c->multi_bytes += MULTI_ENTRY;
    put32(message + 4, (uint32_t)c->multi_bytes);
    put64(message + HEADER, get64(message + HEADER) + 1);
    c->count.writes_shared++;
    return true;
}

/* A posted write.  DXPU_OK or DXPU_E_AGAIN. */
static int post(dxpu_vfuc *c, uint32_t region, uint64_t offset, const void *data, uint32_t bytes)
{
    bool multi = c->info.write_multiple && c->io[MAIN].blocked && bytes <= MULTI_BYTES;
    size_t len = multi ? 8 + MULTI_ENTRY : ACCESS + (size_t)bytes;
    uint8_t *p;
    if (multi && share(c, region, offset, data, bytes)) {
        c->count.writes_posted++;
        return DXPU_OK;
    }
    if (out_free(c, MAIN) < HEADER + len)
        return DXPU_E_AGAIN;
    p = out_begin(c, MAIN, POSTED_ID, multi ? CMD_WRITE_MULTI : CMD_REGION_WRITE, HEADER + len,
                  TYPE_COMMAND | FLAG_NO_REPLY);
    memset(p, 0, len);
    if (multi) {
        c->multi_bytes = HEADER + len;
        put64(p, 1);
        p += 8;
    }
    put_access(p, region, offset, bytes);
    memcpy(p + ACCESS, data, bytes);
    c->count.writes_posted++;
    out_end(c, MAIN);
    return DXPU_OK;
}

int dxpu_vfuc_write(dxpu_vfuc *c, uint32_t region, uint64_t offset, const void *data,
                    uint32_t bytes, bool posted, uint64_t tag)
{
    int rc = check(c, region, offset, bytes, DXPU_VFU_WRITE);
    uint8_t *p;
    request *r;
    if (rc != DXPU_OK)
        return rc;
    if (posted) {
        rc = post(c, region, offset, data, bytes);
        c->count.writes += rc == DXPU_OK;
        return rc;
    }
    r = ask(c, CMD_REGION_WRITE, ACCESS + (size_t)bytes, FOR_OWNER, tag, &p);
    if (!r)
        return DXPU_E_AGAIN;
    put_access(p, region, offset, bytes);
    memcpy(p + ACCESS, data, bytes);
    note_access(r, region, offset, bytes);
    c->count.writes++;
    out_end(c, MAIN);
    return DXPU_OK;
}

int dxpu_vfuc_reset(dxpu_vfuc *c, uint64_t tag)
{
    uint8_t *p;
    if (!dxpu_vfuc_is_ready(c))
        return DXPU_E_CLOSED;
    if (!c->info.can_reset)
        return DXPU_E_ARG;
    if (!ask(c, CMD_RESET, 0, FOR_OWNER, tag, &p))
        return DXPU_E_AGAIN;
    out_end(c, MAIN);
    return DXPU_OK;
}

int dxpu_vfuc_dma_map(dxpu_vfuc *c, uint64_t address, uint64_t bytes, unsigned access, uint64_t tag)
{
    uint8_t *p;
    if (!dxpu_vfuc_is_ready(c))
        return DXPU_E_CLOSED;
    if (bytes == 0 || bytes - 1 > UINT64_MAX - address || (access & ~3u) != 0)
        return DXPU_E_ARG;
    if (!ask(c, CMD_DMA_MAP, 32, FOR_OWNER, tag, &p))
        return DXPU_E_AGAIN;
    put32(p, 32);
    put32(p + 4, access); /* READ, WRITE have the same bits */
    put64(p + 16, address);
    put64(p + 24, bytes);
    out_end(c, MAIN);
    return DXPU_OK;
}

int dxpu_vfuc_dma_unmap(dxpu_vfuc *c, uint64_t address, uint64_t bytes, uint64_t tag)
{
    uint8_t *p;
    if (!dxpu_vfuc_is_ready(c))
        return DXPU_E_CLOSED;
    if (!ask(c, CMD_DMA_UNMAP, 24, FOR_OWNER, tag, &p))
        return DXPU_E_AGAIN;
    put32(p, 24);
    put64(p + 8, address);
    put64(p + 16, bytes);
    out_end(c, MAIN);
    return DXPU_OK;
}

uint32_t dxpu_vfuc_unanswered(const dxpu_vfuc *c)
{
    return c->cfg.requests - c->free_count;
}

/* Another piece of the same call that is not answered; NULL: there is none. */
static request *other_piece(const dxpu_vfuc *c, const request *r)
{
    uint32_t i;
    for (i = 0; i < c->cfg.requests; i++) {
        request *x = &c->requests[i];
        if (x != r && x->used && x->command == CMD_SET_IRQS && x->group == r->group)
            return x;
    }
    return NULL;
}

/* The owner's part of a reply: `error` or what a read brought.  Of a call in pieces it hears once,
   whichever of them is answered last. */
static void finish(dxpu_vfuc *c, request *r, int error, const uint8_t *data)
{
    uint64_t tag = r->tag;
    request *other = r->command == CMD_SET_IRQS ? other_piece(c, r) : NULL;
    dxpu_bytes bytes = { NULL, 0 };
    if (!error && r->command == CMD_REGION_READ) {
        bytes.ptr = data;
        bytes.len = r->bytes;
    }
    c->count.errors += error != 0;
    error = r->error ? r->error : error;
    if (other)
        other->error = other->error ? other->error : error;
    release(c, r);
    if (!other)
        c->cb.done(c->cb.user, tag, error, bytes);
}

/* Does a reply without error fit its request? */
static bool fits(const request *r, const uint8_t *body, size_t len)
{
    switch (r->command) {
    case CMD_REGION_READ:
        return len == ACCESS + (size_t)r->bytes && get64(body) == r->offset &&
               get32(body + 8) == r->region && get32(body + 12) == r->bytes;
    case CMD_REGION_WRITE:
        return len == ACCESS && get64(body) == r->offset && get32(body + 8) == r->region &&
               get32(body + 12) == r->bytes;
    default:
        return true; /* nothing in them is used */
    }
}

/* ==== the server's DMA ======================================================================== */

static void refuse(dxpu_vfuc *c, unsigned i, uint16_t id, uint16_t command, int error)
{
    uint8_t *p = out_begin(c, i, id, command, HEADER, TYPE_REPLY | FLAG_ERROR);
    put32(p - 4, (uint32_t)error);
    out_end(c, i);
}

static size_t answer_bytes(uint16_t command, uint32_t bytes)
{
    return HEADER + ACCESS + (command == CMD_DMA_READ ? (size_t)bytes : 0);
}

/* Keep a command; there is a free entry and room, the caller has looked.  Returns its token. */
static uint64_t keep(dxpu_vfuc *c, unsigned stream, const uint8_t *header, uint64_t address,
                     uint32_t bytes)
{
    uint32_t i = 0;
    dma_command *d;
    while (c->dma[i].token)
        i++;
    d = &c->dma[i];
    d->token = ++c->next_token << ENTRY_BITS | i;
    d->address = address;
    d->bytes = bytes;
    d->id = get16(header);
    d->command = get16(header + 2);
    d->stream = (uint8_t)stream;
    c->reserved[stream] += answer_bytes(d->command, bytes);
    c->dma_used++;
    return d->token;
}

static dma_command *find(dxpu_vfuc *c, uint64_t token)
{
    uint32_t i = (uint32_t)(token & ((1u << ENTRY_BITS) - 1));
    if (token == 0 || !is_up(c) || i >= c->cfg.dma_commands || c->dma[i].token != token)
        return NULL;
    return &c->dma[i];
}

/* The command is answered: its message is in the queue. */
static void forget(dxpu_vfuc *c, dma_command *d)
{
    d->token = 0;
    c->dma_used--;
    out_end(c, d->stream);
    unstall(c);
}

/* The header of an answer and its echo, out of the room set aside. */
static uint8_t *answer(dxpu_vfuc *c, const dma_command *d, size_t size)
{
    uint8_t *p;
    c->reserved[d->stream] -= answer_bytes(d->command, d->bytes);
    p = out_begin(c, d->stream, d->id, d->command, size, TYPE_REPLY);
    put64(p, d->address);
    return p + 8;
}

int dxpu_vfuc_dma_reply_read(dxpu_vfuc *c, uint64_t token, const void *data, size_t bytes)
{
    dma_command *d = find(c, token);
    uint8_t *p;
    if (!d)
        return DXPU_E_NONE;
    if (d->command != CMD_DMA_READ || bytes != d->bytes)
        return DXPU_E_ARG;
    p = answer(c, d, HEADER + ACCESS + bytes);
    put64(p, bytes);
    memcpy(p + 8, data, bytes);
    forget(c, d);
    return DXPU_OK;
}

int dxpu_vfuc_dma_reply_write(dxpu_vfuc *c, uint64_t token)
{
    dma_command *d = find(c, token);
    if (!d)
        return DXPU_E_NONE;
    if (d->command != CMD_DMA_WRITE)
        return DXPU_E_ARG;
    put64(answer(c, d, HEADER + ACCESS), d->bytes); /* libvfio-user accepts no count of 4 bytes */
    forget(c, d);
    return DXPU_OK;
}

int dxpu_vfuc_dma_reply_error(dxpu_vfuc *c, uint64_t token, int error)
{
    dma_command *d = find(c, token);
    uint8_t *p;
    if (error <= 0)
        return DXPU_E_ARG;
    if (!d)
        return DXPU_E_NONE;
    c->reserved[d->stream] -= answer_bytes(d->command, d->bytes);
    p = out_begin(c, d->stream, d->id, d->command, HEADER, TYPE_REPLY | FLAG_ERROR);
    put32(p - 4, (uint32_t)error);
    c->count.dma_refused++;
    forget(c, d);
    return DXPU_OK;
}

/* 0, or an errno value for the server. */
static int check_dma(const dxpu_vfuc *c, const uint8_t *body, size_t len, bool write)
{
    uint64_t address, bytes;
    if (len < ACCESS)
        return EINVAL;
    address = get64(body);
    bytes = get64(body + 8);
    if (bytes == 0 || bytes > c->info.transfer_bytes || bytes - 1 > UINT64_MAX - address)
        return EINVAL;
    /* libvfio-user's last piece of a long write has data beyond its count */
    if (write ? len - ACCESS < bytes : len != ACCESS)
        return EINVAL;
    return (write ? c->cb.dma_write != NULL : c->cb.dma_read != NULL) ? 0 : EPERM;
}

/* A command of the server on stream i: only DMA is one. */
static void take_command(dxpu_vfuc *c, unsigned i, const uint8_t *header, size_t len)
{
    const uint8_t *body = header + HEADER;
    uint16_t command = get16(header + 2);
    bool posted = (get32(header + 8) & FLAG_NO_REPLY) != 0, write = command == CMD_DMA_WRITE;
    int error = ENOSYS;
    uint64_t address, token = 0;
    uint32_t bytes;
    if (!write && command != CMD_DMA_READ)
        c->count.unknown++;
    else if (!c->ready || (posted && !write))
        error = EINVAL;
    else
        error = check_dma(c, body, len, write);
    if (error) {
        c->count.dma_refused++;
        if (!posted)
            refuse(c, i, get16(header), command, error);
        return;
    }
    address = get64(body);
    bytes = (uint32_t)get64(body + 8);
    if (!posted)
        token = keep(c, i, header, address, bytes);
    if (write) {
        dxpu_bytes data;
        data.ptr = body + ACCESS;
        data.len = bytes;
        c->count.dma_writes++;
        c->cb.dma_write(c->cb.user, token, address, data);
    } else {
        c->count.dma_reads++;
        c->cb.dma_read(c->cb.user, token, address, bytes);
    }
}

/* ==== interrupts ============================================================================== */

static uint64_t unread(const vfu_stream *io)
{
    int bytes = 0;
    if (io->fd < 0 || ioctl(io->fd, FIONREAD, &bytes) != 0 || bytes < 0)
        return 0;
    return (uint64_t)bytes + (io->in_tail - io->in_head);
}

/* Bytes of a stream that the server has sent until now. */
static uint64_t sent_to_us(const dxpu_vfuc *c, unsigned i)
{
    return c->handled[i] + unread(&c->io[i]);
}

/* The server signalled an eventfd, which is never read: an edge is enough, and a read could wait,
   since the server shares its flags. */
static void on_vector(dxpu_vfuc *c, uint32_t irq, uint32_t index)
{
    vector *v = &c->vectors[irq][index];
    uint64_t *gate = v->pending ? v->again_gate : v->gate;
    unsigned i;
    if (!v->on)
        return;
    for (i = 0; i < STREAMS; i++)
        gate[i] = sent_to_us(c, i);
    v->again = v->pending;
    c->pending += !v->pending;
    v->pending = true;
}

static bool has_passed(const dxpu_vfuc *c, const uint64_t gate[STREAMS])
{
    return c->handled[MAIN] >= gate[MAIN] && (c->io[TWIN].fd < 0 || c->handled[TWIN] >= gate[TWIN]);
}

static void raise_one(dxpu_vfuc *c, uint32_t irq, uint32_t index)
{
    vector *v = &c->vectors[irq][index];
    if (v->again) {
        memcpy(v->gate, v->again_gate, sizeof v->gate);
        v->again = false;
    } else {
        v->pending = false;
        c->pending--;
    }
    if (!v->on)
        return;
    c->count.interrupts++;
    if (c->cb.interrupt)
        c->cb.interrupt(c->cb.user, irq, index);
}

/* Give on the interrupts behind whose DMA we are. */
static void raise_pending(dxpu_vfuc *c)
{
    uint32_t irq, i;
    for (irq = 0; irq < DXPU_VFU_IRQS; irq++) {
        for (i = 0; i < c->vector_count[irq] && c->pending; i++) {
            const vector *v = &c->vectors[irq][i];
            while (v->pending && !c->paused && is_up(c) && has_passed(c, v->gate))
                raise_one(c, irq, i);
        }
    }
}

/* Memory and eventfds for `count` vectors.  False: none is left. */
static bool make_vectors(dxpu_vfuc *c, uint32_t irq, uint32_t count)
{
    uint32_t i;
    if (!c->vectors[irq]) {
        c->vectors[irq] = (vector *)calloc(c->info.irqs[irq], sizeof *c->vectors[irq]);
        if (!c->vectors[irq])
            return false;
        c->vector_count[irq] = c->info.irqs[irq];
        for (i = 0; i < c->vector_count[irq]; i++)
            c->vectors[irq][i].fd = -1;
    }
    for (i = 0; i < count; i++) {
        vector *v = &c->vectors[irq][i];
        if (v->fd < 0)
            v->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        else
            continue;
        if (v->fd < 0)
            return false;
        if (!watch(c, v->fd, ON_VECTOR + (irq * VECTORS_MAX + i), EPOLLIN | EPOLLET)) {
            close(v->fd);
            v->fd = -1;
            return false;
        }
    }
    return true;
}

static void put_irqs(dxpu_vfuc *c, uint32_t irq, uint32_t start, uint32_t count, uint64_t tag)
{
    uint8_t *p;
    request *r = ask(c, CMD_SET_IRQS, IRQ_SET, FOR_OWNER, tag, &p);
    if (!r)
        return; /* there is room: the caller has looked */
    r->group = c->groups;
    put32(p, IRQ_SET);
    put32(p + 4, IRQ_TRIGGER | (count ? IRQ_DATA_EVENTFD : IRQ_DATA_NONE));
    put32(p + 8, irq);
    put32(p + 12, start);
    put32(p + 16, count);
    out_end(c, MAIN);
}

int dxpu_vfuc_enable_irqs(dxpu_vfuc *c, uint32_t irq, uint32_t count, uint64_t tag)
{
    uint32_t each = c->server_fds < FDS_MAX ? (uint32_t)c->server_fds : FDS_MAX, start, pieces;
    if (!dxpu_vfuc_is_ready(c))
        return DXPU_E_CLOSED;
    if (irq >= DXPU_VFU_IRQS || count > c->info.irqs[irq] || (count && !each))
        return DXPU_E_ARG;
    pieces = 1 + (count ? (count + each - 1) / each : 0);
    if (pieces > c->cfg.requests || pieces > c->cfg.queue_bytes / (HEADER + IRQ_SET))
        return DXPU_E_ARG;
    if (c->free_count < pieces || out_free(c, MAIN) < pieces * (size_t)(HEADER + IRQ_SET) ||
        !make_vectors(c, irq, count))
        return DXPU_E_AGAIN;
    c->groups++;
    for (start = 0; start < c->vector_count[irq]; start++)
        c->vectors[irq][start].on = start < count;
    /* those of before, then the new ones */
    put_irqs(c, irq, 0, 0, tag);
    for (start = 0; start < count; start += each)
        put_irqs(c, irq, start, count - start < each ? count - start : each, tag);
    return DXPU_OK;
}

/* ==== what the device is ====================================================================== */

static void introduce(dxpu_vfuc *c)
{
    char text[200];
    uint8_t *p;
    int n = snprintf(text, sizeof text,
                     "{\"capabilities\":{\"max_msg_fds\":%d,\"max_data_xfer_size\":%u,"
                     "\"max_dma_maps\":65535,\"pgsizes\":4096,\"write_multiple\":true%s}}",
                     FDS_MAX, c->cfg.transfer_bytes,
                     c->cfg.twin ? ",\"twin_socket\":{\"supported\":true}" : "");
    if (!ask(c, CMD_VERSION, 4 + (size_t)n + 1, FOR_VERSION, 0, &p))
        return;      /* an empty queue has room */
    put16(p + 2, 1); /* 0.1 */
    memcpy(p + 4, text, (size_t)n + 1);
    out_end(c, MAIN);
}

/* A question whose body begins with its length.  NULL: refusals of the server's commands fill the
   output. */
static uint8_t *question(dxpu_vfuc *c, uint16_t command, uint32_t len, uint8_t purpose)
{
    uint8_t *p;
    if (!ask(c, command, len, purpose, 0, &p)) {
        break_bad(c, "the server does not read");
        return NULL;
    }
    put32(p, len);
    return p;
}

/* The next question, or ready(). */
static void ask_next(dxpu_vfuc *c)
{
    uint8_t *p;
    if (c->next_region < c->region_count) {
        p = question(c, CMD_GET_REGION_INFO, 32, FOR_REGION);
        if (p)
            put32(p + 8, c->next_region);
    } else if (c->next_irq < c->irq_count) {
        p = question(c, CMD_GET_IRQ_INFO, 16, FOR_IRQ);
        if (p)
            put32(p + 8, c->next_irq);
    } else {
        c->ready = true;
        c->count.connections++;
        if (c->cb.ready)
            c->cb.ready(c->cb.user);
        return;
    }
    out_end(c, MAIN);
}

static void ask_device(dxpu_vfuc *c)
{
    (void)question(c, CMD_GET_INFO, 16, FOR_INFO);
    out_end(c, MAIN);
}

/* A connected one: it can never listen, so that what is queued in it are messages. */
static bool is_unix_stream(int fd)
{
    struct sockaddr_un peer;
    int type = 0, domain = 0;
    socklen_t len = sizeof type, peer_len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0;
}

/* The server's commands arrive by a socket of their own.  False: what it says makes no sense. */
static bool take_twin(dxpu_vfuc *c, const vfu_capabilities *caps)
{
    vfu_stream *io = &c->io[MAIN];
    if (!c->cfg.twin || caps->twin_index >= io->fds_count || io->fds[caps->twin_index] < 0 ||
        !is_unix_stream(io->fds[caps->twin_index]) ||
        !start_stream(c, TWIN, io->fds[caps->twin_index]))
        return false;
    io->fds[caps->twin_index] = -1;
    c->info.twin = true;
    return true;
}

/* NULL, or what is wrong. */
static const char *take_version(dxpu_vfuc *c, const uint8_t *body, size_t len)
{
    vfu_capabilities caps;
    if (len < 4 || get16(body) != 0 || get16(body + 2) > 1)
        return "the server has another version of the protocol";
    if (!vfu_capabilities_read(body + 4, len - 4, &caps))
        return "the server's capabilities are malformed";
    if (caps.transfer_bytes < SERVER_LEAST)
        return "the server transfers fewer than 4,096 bytes at a time";
    c->info.transfer_bytes = caps.transfer_bytes < c->cfg.transfer_bytes
                                 ? (uint32_t)caps.transfer_bytes
                                 : c->cfg.transfer_bytes;
    c->info.write_multiple = caps.write_multiple;
    c->server_fds = caps.fds;
    if (caps.twin && !take_twin(c, &caps))
        return "the server's second socket cannot be used";
    ask_device(c);
    return NULL;
}

static const char *take_info(dxpu_vfuc *c, const uint8_t *body, size_t len)
{
    if (len < 16 || !(get32(body + 4) & 2u))
        return "the server has no PCI device";
    c->info.can_reset = get32(body + 4) & 1u;
    c->region_count = get32(body + 8);
    c->irq_count = get32(body + 12);
    if (c->region_count > DXPU_VFU_REGIONS) /* others are of no PCI standard */
        c->region_count = DXPU_VFU_REGIONS;
    if (c->irq_count > DXPU_VFU_IRQS)
        c->irq_count = DXPU_VFU_IRQS;
    ask_next(c);
    return NULL;
}

/* A region, an interrupt kind that the server refuses to describe is one that it has not. */
static const char *take_region(dxpu_vfuc *c, const uint8_t *body, size_t len, int error)
{
    dxpu_vfu_region *r = &c->info.region[c->next_region];
    if (!error) {
        if (len < 32 || get32(body + 8) != c->next_region)
            return "the server describes a region wrongly";
        r->bytes = get64(body + 16);
        r->access = r->bytes ? get32(body + 4) & 3u : 0;
    }
    c->next_region++;
    ask_next(c);
    return NULL;
}

static const char *take_irq(dxpu_vfuc *c, const uint8_t *body, size_t len, int error)
{
    if (!error) {
        uint32_t count;
        if (len < 16 || get32(body + 8) != c->next_irq)
            return "the server describes an interrupt wrongly";
        count = get32(body + 4) & 1u ? get32(body + 12) : 0;
        c->info.irqs[c->next_irq] = count < VECTORS_MAX ? count : VECTORS_MAX;
    }
    c->next_irq++;
    ask_next(c);
    return NULL;
}

/* ==== receiving =============================================================================== */

/* An answer in the introduction. */
static void take_introduction(dxpu_vfuc *c, const request *r, const uint8_t *body, size_t len,
                              int error)
{
    const char *wrong = NULL;
    if (error && (r->purpose == FOR_VERSION || r->purpose == FOR_INFO))
        wrong = "the server refuses to describe its device";
    else if (r->purpose == FOR_VERSION)
        wrong = take_version(c, body, len);
    else if (r->purpose == FOR_INFO)
        wrong = take_info(c, body, len);
    else if (r->purpose == FOR_REGION)
        wrong = take_region(c, body, len, error);
    else
        wrong = take_irq(c, body, len, error);
    if (wrong)
        break_bad(c, wrong);
}

static void take_reply(dxpu_vfuc *c, unsigned stream, const uint8_t *header, size_t len)
{
    uint16_t id = get16(header);
    uint32_t i = id & ((1u << ENTRY_BITS) - 1);
    request *r = i < c->cfg.requests ? &c->requests[i] : NULL;
    int error = 0;
    if (id == POSTED_ID && (get32(header + 8) & FLAG_ERROR)) {
        c->count.errors++; /* some servers say so when a posted write failed */
        return;
    }
    if (stream != MAIN || !r || !r->used || r->id != id || r->command != get16(header + 2)) {
        c->count.replies_unexpected++;
        return;
    }
    if (get32(header + 8) & FLAG_ERROR) {
        error = (int)(get32(header + 12) & INT32_MAX);
        error = error ? error : EIO;
    } else if (!fits(r, header + HEADER, len)) {
        c->count.replies_wrong++;
        error = EPROTO;
    }
    if (r->purpose == FOR_OWNER) {
        finish(c, r, error, header + HEADER + ACCESS);
    } else {
        request asked = *r;
        release(c, r);
        take_introduction(c, &asked, header + HEADER, len, error);
    }
}

/* Is there room to answer this message?  It is not taken before there is. */
static bool has_room(const dxpu_vfuc *c, unsigned i, const uint8_t *header, size_t len)
{
    size_t need = HEADER + ACCESS;
    if (get16(header + 2) == CMD_DMA_READ && len >= ACCESS) {
        uint64_t bytes = get64(header + HEADER + 8);
        need += bytes <= c->cfg.transfer_bytes ? (size_t)bytes : 0;
    }
    return c->dma_used < c->cfg.dma_commands && out_free(c, i) >= need;
}

/* Handle the whole message at in_head of stream i.  False: not now, it stays. */
static bool handle(dxpu_vfuc *c, unsigned i, size_t size)
{
    vfu_stream *io = &c->io[i];
    const uint8_t *header = io->in + io->in_head;
    bool mine = io->fds_at == io->in_head,
         command = (get32(header + 8) & TYPE_MASK) == TYPE_COMMAND;
    unsigned fds_of_later = 0;
    if (command && !has_room(c, i, header, size - HEADER)) {
        c->stalled = true;
        run_clock(c);
        c->count.stalls++;
        return false;
    }
    if (!mine) { /* hide descriptors that belong to a message behind this one */
        fds_of_later = io->fds_count;
        io->fds_count = 0;
    }
    c->count.messages++;
    if (command)
        take_command(c, i, header, size - HEADER);
    else
        take_reply(c, i, header, size - HEADER);
    if (mine)
        vfu_stream_close_fds(io);
    else
        io->fds_count = fds_of_later;
    return true;
}

/* Read stream i once.  False: nothing for now, or the connection is over. */
static bool read_some(dxpu_vfuc *c, unsigned i, bool *more)
{
    int rc = vfu_stream_read(&c->io[i]);
    if (rc == VFU_OVER)
        break_server(c, "the server closed the connection");
    if (rc == VFU_NOTHING || rc == VFU_OVER)
        return false;
    *more = rc == VFU_MORE;
    if (i == MAIN && c->io[TWIN].fd >= 0)
        c->main_gate = sent_to_us(c, TWIN);
    return true;
}

/* Handle what is buffered of stream i, read, and again, for at most *left messages. */
static void receive(dxpu_vfuc *c, unsigned i, bool readable, uint32_t *left)
{
    vfu_stream *io = &c->io[i];
    while (is_up(c) && io->fd >= 0) {
        const char *wrong = NULL;
        size_t size = vfu_stream_message(io, &wrong);
        if (wrong) {
            break_bad(c, wrong);
            return;
        }
        if (size) {
            if (!may_go(c, i))
                return;
            if (*left == 0) {
                wake_loop(c);
                return;
            }
            --*left;
            if (!handle(c, i, size))
                return;
            io->in_head += size;
            c->handled[i] += size;
        } else if (!readable || !may_read(c, i) || !read_some(c, i, &readable)) {
            return;
        }
    }
}

/* The second socket first: the first may have to wait for it.  Each has its own number of messages:
   a server whose DMA never ends must not keep its answers from being seen. */
static void receive_all(dxpu_vfuc *c, const uint32_t events[STREAMS])
{
    const uint32_t any = EPOLLIN | EPOLLHUP | EPOLLERR;
    uint32_t left[STREAMS] = { c->cfg.burst, c->cfg.burst };
    receive(c, TWIN, (events[TWIN] & any) != 0, &left[TWIN]);
    receive(c, MAIN, (events[MAIN] & any) != 0, &left[MAIN]);
    if (is_up(c) && !may_go(c, MAIN)) { /* what MAIN waits for has been sent, in part at least */
        receive(c, TWIN, true, &left[TWIN]);
        receive(c, MAIN, false, &left[MAIN]);
    }
}

void dxpu_vfuc_pause(dxpu_vfuc *c, bool pause)
{
    unsigned i;
    if (c->paused == pause)
        return;
    c->paused = pause;
    run_clock(c);
    for (i = 0; i < STREAMS; i++)
        update_interest(c, i);
    if (!pause)
        wake_loop(c); /* there may be messages read before */
}

static void on_event(dxpu_vfuc *c, const struct epoll_event *e, uint32_t streams[STREAMS],
                     bool *rang)
{
    uint32_t what = e->data.u32;
    uint64_t many;
    if (what == ON_WAKE) {
        c->woken = false;
        (void)!read(c->wake, &many, sizeof many);
    } else if (what == ON_TIMER) {
        (void)!read(c->timer, &many, sizeof many);
        c->alarm_ms = 0;
        *rang = true;
    } else if (what < ON_VECTOR) {
        streams[what - ON_STREAM] = e->events;
    } else if (is_up(c)) {
        on_vector(c, (what - ON_VECTOR) / VECTORS_MAX, (what - ON_VECTOR) % VECTORS_MAX);
    }
}

int dxpu_vfuc_process(dxpu_vfuc *c)
{
    struct epoll_event e[EVENTS];
    uint32_t streams[STREAMS] = { 0, 0 };
    bool rang = false;
    unsigned i;
    int k, n = epoll_wait(c->epoll, e, EVENTS, 0);
    if (n < 0)
        return errno == EINTR ? DXPU_OK : DXPU_E_DEAD;
    for (k = 0; k < n; k++)
        on_event(c, &e[k], streams, &rang);
    for (i = 0; i < STREAMS; i++) {
        if (streams[i] & EPOLLOUT)
            flush(c, i);
    }
    if (is_up(c))
        receive_all(c, streams);
    if (c->pending)
        raise_pending(c);
    if (rang && is_up(c)) /* behind what has arrived: this call may be late */
        look_at_clock(c);
    for (i = 0; i < STREAMS; i++) {
        if (is_up(c) && (streams[i] & (EPOLLHUP | EPOLLERR)) && !may_read(c, i))
            break_server(c, "the server closed the connection");
    }
    if (c->broken)
        end_server(c);
    for (i = 0; i < STREAMS; i++)
        update_interest(c, i);
    return DXPU_OK;
}

int dxpu_vfuc_fd(const dxpu_vfuc *c)
{
    return c->epoll;
}

/* ==== opening ================================================================================= */

void dxpu_vfuc_config_default(dxpu_vfuc_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->transfer_bytes = 65536;
    cfg->queue_bytes = 1048576;
    cfg->requests = 256;
    cfg->dma_commands = 64;
    cfg->answer_ms = 5000;
    cfg->reset_ms = 30000;
    cfg->burst = 64;
    cfg->twin = true;
}

static const char *check_config(const dxpu_vfuc_config *c, const dxpu_vfuc_callbacks *cb)
{
    if (!cb->done)
        return "callbacks: done is needed";
    if (c->transfer_bytes < 4096 || c->transfer_bytes > 1048576)
        return "transfer_bytes: 4 KiB to 1 MiB";
    if (c->queue_bytes < 2 * c->transfer_bytes || c->queue_bytes > 67108864)
        return "queue_bytes: 2 x transfer_bytes to 64 MiB";
    if (c->requests < 16 || c->requests > 1023)
        return "requests: 16 to 1,023";
    if (c->dma_commands < 1 || c->dma_commands > 1024)
        return "dma_commands: 1 to 1,024";
    if (c->answer_ms < 1 || c->reset_ms < 1 || c->burst < 1)
        return "answer_ms, reset_ms, burst: at least 1";
    if (c->path && (!c->path[0] || strlen(c->path) >= sizeof((struct sockaddr_un *)0)->sun_path))
        return "the path of a unix socket has 1 to 107 bytes; use a shorter one";
    return NULL;
}

static bool allocate(dxpu_vfuc *c)
{
    unsigned i;
    bool all = true;
    for (i = 0; i < STREAMS; i++) {
        vfu_stream *io = &c->io[i];
        io->fds_closed = &c->count.fds_closed;
        io->fds_lost_count = &c->count.fds_lost;
        io->closer = c->closer;
        all &= vfu_stream_open(io, c->cfg.transfer_bytes, c->cfg.queue_bytes);
    }
    c->io[MAIN].fds_of = eventfds_of;
    c->io[MAIN].user = c;
    c->requests = (request *)calloc(c->cfg.requests, sizeof *c->requests);
    c->free_requests = (uint32_t *)calloc(c->cfg.requests, sizeof *c->free_requests);
    c->dma = (dma_command *)calloc(c->cfg.dma_commands, sizeof *c->dma);
    return all && c->requests && c->free_requests && c->dma;
}

dxpu_vfuc *dxpu_vfuc_open(const dxpu_vfuc_config *cfg, const dxpu_vfuc_callbacks *cb,
                          const char **why)
{
    dxpu_vfuc *c;
    *why = check_config(cfg, cb);
    if (*why) {
        errno = EINVAL;
        return NULL;
    }
    c = (dxpu_vfuc *)calloc(1, sizeof *c);
    if (!c) {
        *why = "out of memory";
        return NULL;
    }
    c->cfg = *cfg;
    c->cfg.path = NULL;
    if (cfg->path)
        memcpy(c->path, cfg->path, strlen(cfg->path));
    c->cb = *cb;
    c->io[MAIN].fd = c->io[TWIN].fd = c->epoll = c->wake = c->timer = -1;
    if ((c->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 ||
        (c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0 ||
        !watch(c, c->wake, ON_WAKE, EPOLLIN) || !watch(c, c->timer, ON_TIMER, EPOLLIN) ||
        !(c->closer = vfu_closer_new(c->wake))) {
        *why = "no file descriptor left; raise the limit (ulimit -n)";
    } else if (!allocate(c)) {
        *why = "out of memory; lower queue_bytes";
    } else {
        uint32_t i;
        for (i = 0; i < c->cfg.requests; i++)
            c->free_requests[i] = i;
        c->free_count = c->cfg.requests;
        return c;
    }
    dxpu_vfuc_close(c);
    return NULL;
}

void dxpu_vfuc_close(dxpu_vfuc *c)
{
    int error = errno;
    if (!c)
        return;
    c->cb.gone = NULL;
    if (c->io[MAIN].fd >= 0)
        end_server(c);
    vfu_closer_free(c->closer);
    if (c->timer >= 0)
        close(c->timer);
    if (c->wake >= 0)
        close(c->wake);
    if (c->epoll >= 0)
        close(c->epoll);
    vfu_stream_free(&c->io[MAIN]);
    vfu_stream_free(&c->io[TWIN]);
    free(c->requests);
    free(c->free_requests);
    free(c->dma);
    free(c);
    errno = error;
}

int dxpu_vfuc_adopt(dxpu_vfuc *c, int fd)
{
    if (c->io[MAIN].fd >= 0)
        return DXPU_E_FULL;
    if (!is_unix_stream(fd) || !start_stream(c, MAIN, fd))
        return DXPU_E_ARG;
    memset(&c->info, 0, sizeof c->info);
    c->next_region = c->next_irq = c->region_count = c->irq_count = 0;
    c->main_gate = 0;
    introduce(c);
    return DXPU_OK;
}

int dxpu_vfuc_connect(dxpu_vfuc *c)
{
    struct sockaddr_un a;
    int fd, error;
    if (!c->path[0])
        return DXPU_E_ARG;
    if (c->io[MAIN].fd >= 0)
        return DXPU_E_FULL;
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path, c->path, sizeof a.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return DXPU_E_CLOSED;
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0 &&
        dxpu_vfuc_adopt(c, fd) == DXPU_OK)
        return DXPU_OK;
    error = errno;
    close(fd);
    errno = error;
    return DXPU_E_CLOSED;
}

const dxpu_vfuc_counters *dxpu_vfuc_count(const dxpu_vfuc *c)
{
    return &c->count;
}
