/* Fuzz target: a hostile vfio-user server.  The input is a list of steps: replies that are right,
   or wrong in a chosen place, with descriptors; commands; raw bytes; interrupts; an end of the
   connection; time that passes; and calls of the client's program, which answers DMA late, twice,
   or not at all.
   The client never waits and never spins, what it sends is well-formed, done() comes once for each
   request and never after gone(), and of interrupts with the error of a refused piece of its own;
   what it gives on is inside the limits, a server that owes something for the longest time allowed
   is gone and none is before the shortest, and no descriptor stays open.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "descriptors.h"
#include "input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- The time -- */

static uint64_t clock_ms, ring_ms; /* ring_ms 0: the timer is not set */
static int timer_fd;

static int pretend_clock(struct timespec *t)
{
    t->tv_sec = (time_t)(clock_ms / 1000);
    t->tv_nsec = (long)(clock_ms % 1000) * 1000000;
    return 0;
}

static int pretend_timer(void)
{
    return timer_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int pretend_set(const struct itimerspec *t)
{
    uint64_t one = 1;
    ring_ms = (uint64_t)t->it_value.tv_sec * 1000 + (uint64_t)t->it_value.tv_nsec / 1000000;
    if (ring_ms <= clock_ms) {
        ring_ms = 0;
        return write(timer_fd, &one, sizeof one) == (ssize_t)sizeof one ? 0 : -1;
    }
    return 0;
}

/* Not linked: replaces clock_gettime(), timerfd_create() and timerfd_settime(). */
#define clock_gettime(clock, t)              pretend_clock(t)
#define timerfd_create(clock, flags)         pretend_timer()
#define timerfd_settime(fd, flags, t, other) pretend_set(t)
#include "dxpu_vfio_user_client.c"

enum { TOKENS = 8, TAGS = 256, TRANSFER = 4096, ASKED = 64, CALLS = 64 };
enum { ANSWER_MS = 5000, RESET_MS = 30000, UNIT_MS = 20 };

/* A call that enables interrupts: pieces of it that were not seen yet. */
typedef struct call {
    uint8_t tag;
    unsigned pieces;
} call;

typedef struct world {
    dxpu_vfuc *c;
    int peer, twin; /* the server's ends */
    bool ready, later, deaf;
    bool due[TAGS];  /* done() has to come for these */
    bool irqs[TAGS]; /* of them: those that enable interrupts */
    uint64_t tokens[TOKENS];
    uint32_t sizes[TOKENS];
    unsigned kept;
    uint8_t asked[ASKED][HEADER + 32]; /* commands of the client that were not answered */
    uint16_t asked_tag[ASKED];         /* of interrupts; TAGS: another command */
    unsigned asked_head, asked_tail;
    call calls[CALLS]; /* in the order in which their pieces are sent */
    unsigned calls_head, calls_tail;
    bool refused[TAGS], muddled; /* muddled: replies may be anything */
    int eventfd;
    size_t have;
    bool paused;
    unsigned open_dma;        /* commands of the server that are not answered */
    uint64_t timeouts;        /* that were counted */
    uint64_t owed_ms, its_ms; /* since the server said something, was connected: its time */
} world;

static void on_ready(void *user)
{
    world *w = user;
    const dxpu_vfuc_info *d = dxpu_vfuc_device(w->c);
    must(!w->ready && d && d->transfer_bytes <= TRANSFER && d->transfer_bytes >= 4096);
    for (unsigned i = 0; i < DXPU_VFU_IRQS; i++)
        must(d->irqs[i] <= 2048);
    w->ready = true;
}

static void on_gone(void *user, const char *why)
{
    world *w = user;
    must(why != NULL && !dxpu_vfuc_is_connected(w->c));
    must(dxpu_vfuc_count(w->c)->timeouts == w->timeouts || w->its_ms >= ANSWER_MS);
    w->timeouts = dxpu_vfuc_count(w->c)->timeouts;
    w->ready = false;
    w->open_dma = 0;
    w->owed_ms = 0;
    memset(w->due, 0, sizeof w->due);
}

static void on_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    world *w = user;
    must(w->ready && tag < TAGS && w->due[tag]);
    must(error >= 0 && (error == 0 || data.len == 0) && data.len <= TRANSFER);
    if (w->irqs[tag] && !w->muddled)
        must((error != 0) == w->refused[tag]);
    w->due[tag] = false;
}

static void set_pause(world *w, bool pause)
{
    dxpu_vfuc_pause(w->c, pause);
    w->paused = pause;
}

static void remember(world *w, uint64_t token, uint32_t bytes)
{
    w->tokens[w->kept % TOKENS] = token;
    w->sizes[w->kept++ % TOKENS] = bytes;
}

static void on_dma_read(void *user, uint64_t token, uint64_t address, uint32_t bytes)
{
    static const uint8_t zero[TRANSFER];
    world *w = user;
    must(w->ready && token && bytes && bytes <= TRANSFER && address + (bytes - 1) >= address);
    remember(w, token, bytes);
    w->open_dma += w->later;
    if (!w->later)
        must(dxpu_vfuc_dma_reply_read(w->c, token, zero, bytes) == DXPU_OK);
}

static void on_dma_write(void *user, uint64_t token, uint64_t address, dxpu_bytes data)
{
    static uint8_t copy[TRANSFER];
    world *w = user;
    must(w->ready && data.len && data.len <= TRANSFER && address + (data.len - 1) >= address);
    memcpy(copy, data.ptr, data.len);
    if (token)
        remember(w, token, 0);
    if (address == 0x5000)
        set_pause(w, true);
    w->open_dma += token && w->later;
    if (token && !w->later)
        must(dxpu_vfuc_dma_reply_write(w->c, token) == DXPU_OK);
}

static void on_interrupt(void *user, uint32_t irq, uint32_t index)
{
    must(((world *)user)->ready && irq < DXPU_VFU_IRQS && index < VECTORS_MAX);
}

/* The tag of the call whose piece this is. */
static uint16_t piece_of(world *w)
{
    call *x = &w->calls[w->calls_head % CALLS];
    must(w->calls_head < w->calls_tail);
    w->calls_head += --x->pieces == 0;
    return x->tag;
}

static void take_message(world *w, const uint8_t *p, uint32_t length)
{
    uint32_t flags = get32(p + 8);
    must((flags & ~(uint32_t)(TYPE_REPLY | FLAG_NO_REPLY | FLAG_ERROR)) == 0);
    if ((flags & TYPE_REPLY) || (flags & FLAG_NO_REPLY))
        return;
    memcpy(w->asked[w->asked_tail % ASKED], p, length < HEADER + 32 ? length : HEADER + 32);
    w->asked_tag[w->asked_tail % ASKED] = get16(p + 2) == CMD_SET_IRQS ? piece_of(w) : TAGS;
    w->asked_tail++;
    if (w->asked_tail - w->asked_head > ASKED)
        w->asked_head = w->asked_tail - ASKED;
}

/* Receive all there is, and look at it; one eventfd is kept. */
static void drain(world *w)
{
    static uint8_t in[1 << 17];
    int fds[VFU_FDS_MAX];
    unsigned count;
    bool lost;
    size_t at = 0;
    ssize_t n;
    while ((n = vfu_receive(w->peer, in + w->have, sizeof in - w->have, fds, &count, &lost)) > 0) {
        must(count <= FDS_MAX && !lost);
        for (unsigned i = 0; i < count; i++) {
            must(vfu_is_eventfd(fds[i]));
            if (w->eventfd >= 0)
                close(w->eventfd);
            w->eventfd = fds[i];
        }
        w->have += (size_t)n;
        for (; w->have - at >= HEADER; at += get32(in + at + 4)) {
            uint32_t length = get32(in + at + 4);
            must(length >= HEADER && length <= HEADER + ACCESS + TRANSFER);
            if (w->have - at < length)
                break;
            take_message(w, in + at, length);
        }
        memmove(in, in + at, w->have - at);
        w->have -= at;
        at = 0;
    }
}

static void pump(world *w)
{
    int i;
    struct pollfd p;
    p.fd = dxpu_vfuc_fd(w->c);
    p.events = POLLIN;
    for (i = 0; i < 1000; i++) {
        if (w->peer >= 0 && !w->deaf)
            drain(w);
        if (poll(&p, 1, 0) != 1)
            break;
        must(dxpu_vfuc_process(w->c) == DXPU_OK);
    }
    must(i < 1000);
}

static void hang_up(world *w)
{
    if (w->peer >= 0)
        close(w->peer);
    if (w->twin >= 0)
        close(w->twin);
    if (w->eventfd >= 0)
        close(w->eventfd);
    w->peer = w->twin = w->eventfd = -1;
}

static void connect_again(world *w)
{
    int pair[2], sndbuf = 0; /* as small as there is */
    hang_up(w);
    set_pause(w, false);
    dxpu_vfuc_disconnect(w->c, "again");
    pump(w);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    must(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf) == 0);
    must(dxpu_vfuc_adopt(w->c, pair[0]) == DXPU_OK);
    w->peer = pair[1];
    w->have = 0;
    w->asked_head = w->asked_tail = w->calls_head = w->calls_tail = 0;
    w->muddled = false;
    w->its_ms = w->owed_ms = 0;
    pump(w); /* what it asks first can be answered by the next step */
}

static void transmit(world *w, int to, const uint8_t *p, size_t n, int fd)
{
    if (to >= 0 && n)
        w->muddled |= send_with_fds(to, p, n, &fd, fd >= 0, MSG_DONTWAIT) != (ssize_t)n;
    w->owed_ms = 0;
}

static size_t right_version(world *w, uint8_t *out, uint8_t kind, int *fd)
{
    static const char *const texts[] = {
        "", "{\"capabilities\":{\"max_data_xfer_size\":4096,\"write_multiple\":true}}",
        "{\"capabilities\":{\"max_msg_fds\":3}}",
        "{\"capabilities\":{\"twin_socket\":{\"supported\":true,\"fd_index\":0}}}"
    };
    const char *text = texts[kind % 4];
    int pair[2];
    memset(out, 0, 4);
    memcpy(out + 4, text, strlen(text) + 1);
    if (kind % 4 == 3 && w->twin < 0 &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        w->twin = pair[0];
        *fd = pair[1];
    }
    return 4 + strlen(text) + 1;
}

/* What a good server answers to a command, into out. */
static size_t right_answer(world *w, const uint8_t *asked, uint8_t *out, uint8_t kind, int *fd)
{
    memset(out, 0, ACCESS + TRANSFER);
    switch (get16(asked + 2)) {
    case CMD_VERSION:
        return right_version(w, out, kind, fd);
    case CMD_GET_INFO:
        put32(out + 4, 3);
        put32(out + 8, 9);
        put32(out + 12, 5);
        return 16;
    case CMD_GET_REGION_INFO:
        put32(out + 4, 3);
        memcpy(out + 8, asked + HEADER + 8, 4);
        put64(out + 16, kind & 1 ? 4096 : 256);
        return 32;
    case CMD_GET_IRQ_INFO:
        put32(out + 4, 1);
        memcpy(out + 8, asked + HEADER + 8, 4);
        put32(out + 12, kind);
        return 16;
    case CMD_REGION_READ:
        memcpy(out, asked + HEADER, ACCESS);
        return ACCESS + get32(asked + HEADER + 12);
    case CMD_REGION_WRITE:
        memcpy(out, asked + HEADER, ACCESS);
        return ACCESS;
    default:
        return 0;
    }
}

/* An answer to the oldest command: its kind, what is wrong with it and where, a descriptor. */
static void step_answer(world *w, input *in)
{
    uint8_t m[HEADER + ACCESS + TRANSFER];
    uint8_t kind = next(in), wrong = next(in), at = next(in), value = next(in);
    uint16_t tag = w->asked_tag[w->asked_head % ASKED];
    int fd = -1;
    size_t len;
    if (w->asked_head == w->asked_tail)
        return;
    w->muddled |= (wrong & (8 | 32)) != 0;
    if (tag < TAGS)
        w->refused[tag] |= wrong & 1;
    memcpy(m, w->asked[w->asked_head++ % ASKED], HEADER);
    len = right_answer(w, w->asked[(w->asked_head - 1) % ASKED], m + HEADER, kind, &fd);
    put32(m + 8, TYPE_REPLY | (wrong & 1 ? FLAG_ERROR : 0));
    if (wrong & 2)
        len = len > value ? len - value : 0;
    if (wrong & 4)
        len += value;
    len = len > ACCESS + TRANSFER ? ACCESS + TRANSFER : len;
    put32(m + 4, (uint32_t)(HEADER + len));
    if (wrong & 8)
        m[at % (HEADER + len)] ^= value;
    if ((wrong & 16) && fd < 0)
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    transmit(w, w->peer, m, HEADER + len, fd);
    if (wrong & 32)
        transmit(w, w->peer, m, HEADER + len, -1);
    if (fd >= 0)
        close(fd);
}

/* A command of the server: on which socket, which, flags, address, length. */
static void step_command(world *w, input *in)
{
    uint8_t m[HEADER + ACCESS + 256];
    uint8_t how = next(in), flags = next(in), where = next(in), count = next(in);
    size_t len = how & 0x10 ? count : 0;
    memset(m, 0, sizeof m);
    put16(m, next(in));
    put16(m + 2, how & 0xf);
    put32(m + 4, (uint32_t)(HEADER + ACCESS + len));
    put32(m + 8, flags & (FLAG_NO_REPLY | FLAG_ERROR));
    put64(m + HEADER, flags & 1 ? UINT64_MAX - where : (uint64_t)where << 8);
    put64(m + HEADER + 8, flags & 2 ? (uint64_t)count << 56 : flags & 4 ? count * 64u : count);
    transmit(w, how & 0x80 && w->twin >= 0 ? w->twin : w->peer, m, HEADER + ACCESS + len, -1);
}

static void step_raw(world *w, input *in)
{
    size_t len = next(in);
    const uint8_t *p = next_piece(in, &len);
    w->muddled = true;
    transmit(w, len & 1 && w->twin >= 0 ? w->twin : w->peer, p, len, -1);
}

static int enable(world *w, uint32_t irq, uint32_t count, uint8_t tag)
{
    uint32_t each = w->c->server_fds < FDS_MAX ? (uint32_t)w->c->server_fds : FDS_MAX;
    call *x = &w->calls[w->calls_tail % CALLS];
    int rc;
    if (w->calls_tail - w->calls_head == CALLS)
        return DXPU_E_NONE;
    rc = dxpu_vfuc_enable_irqs(w->c, irq, count, tag);
    if (rc == DXPU_OK) {
        x->tag = tag;
        x->pieces = 1 + (count ? (count + each - 1) / each : 0);
        w->calls_tail++;
        w->refused[tag] = false;
    }
    return rc;
}

static void step_program(world *w, input *in)
{
    static uint8_t block[TRANSFER];
    uint8_t what = next(in), i = next(in), tag = next(in);
    uint64_t token = w->tokens[i % TOKENS], one = 1;
    uint32_t region = i & 7;
    int rc = DXPU_E_NONE, answered = DXPU_E_NONE;
    if (w->due[tag] && what % 12 < 6)
        return; /* tags are the program's, and it has each once */
    switch (what % 12) {
    case 0:
        rc = dxpu_vfuc_read(w->c, region, i, i * 16u, tag);
        break;
    case 1:
        rc = dxpu_vfuc_write(w->c, region, i, block, i, false, tag);
        break;
    case 2:
        rc = dxpu_vfuc_reset(w->c, tag);
        break;
    case 3:
        rc = dxpu_vfuc_dma_map(w->c, (uint64_t)i << 56, (uint64_t)tag << 52, i & 3, tag);
        break;
    case 4:
        rc = dxpu_vfuc_dma_unmap(w->c, (uint64_t)i << 56, (uint64_t)tag << 52, tag);
        break;
    case 5:
        rc = enable(w, i & 3, i >> 2, tag);
        break;
    case 6:
        for (unsigned k = 0; k < i; k++)
            (void)dxpu_vfuc_write(w->c, region, k, block, 1u + (k & 7), true, 0);
        break;
    case 7:
        answered = dxpu_vfuc_dma_reply_read(w->c, token, block, w->sizes[i % TOKENS]);
        break;
    case 8:
        answered = dxpu_vfuc_dma_reply_write(w->c, token);
        break;
    case 9:
        answered = dxpu_vfuc_dma_reply_error(w->c, token, i);
        break;
    case 10:
        set_pause(w, i & 1);
        if (w->eventfd >= 0)
            (void)!write(w->eventfd, &one, sizeof one);
        break;
    default:
        if (i & 0x80)
            w->deaf = !w->deaf;
        else
            w->later = !w->later;
    }
    must(rc == DXPU_E_NONE || rc == DXPU_OK || rc == DXPU_E_AGAIN || rc == DXPU_E_ARG ||
         rc == DXPU_E_CLOSED);
    w->open_dma -= answered == DXPU_OK;
    if (rc == DXPU_OK) {
        w->due[tag] = true;
        w->irqs[tag] = what % 12 == 5;
    }
}

/* Time passes.  How much the server owed is counted from its last word on; beyond all limits it
   must be gone. */
static void step_wait(world *w, input *in)
{
    uint64_t one = 1, ms = next(in) & 1 ? RESET_MS : next(in) * (uint64_t)UNIT_MS;
    bool its, owes;
    pump(w);
    its = dxpu_vfuc_is_connected(w->c) && !w->paused && w->open_dma == 0;
    owes = dxpu_vfuc_unanswered(w->c) > 0 || dxpu_vfuc_waiting_bytes(w->c) > 0;
    w->its_ms += w->paused ? 0 : ms;
    w->owed_ms = owes ? w->owed_ms + (its ? ms : 0) : 0;
    its = w->owed_ms >= RESET_MS;
    clock_ms += ms;
    if (ring_ms && ring_ms <= clock_ms) {
        ring_ms = 0;
        must(write(timer_fd, &one, sizeof one) == (ssize_t)sizeof one);
    }
    pump(w);
    must(!its || !dxpu_vfuc_is_connected(w->c));
}

static dxpu_vfuc *start(world *w)
{
    dxpu_vfuc_config cfg;
    dxpu_vfuc_callbacks cb = { w,           on_ready,     on_gone,     on_done,
                               on_dma_read, on_dma_write, on_interrupt };
    const char *why;
    dxpu_vfuc_config_default(&cfg);
    cfg.transfer_bytes = TRANSFER;
    cfg.queue_bytes = 2 * TRANSFER;
    cfg.requests = 32;
    cfg.dma_commands = 3;
    cfg.burst = 16;
    must(cfg.answer_ms == ANSWER_MS && cfg.reset_ms == RESET_MS);
    return dxpu_vfuc_open(&cfg, &cb, &why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    input in;
    int before = lowest_fd();
    in.at = data;
    in.left = size;
    clock_ms = 1000;
    ring_ms = 0;
    memset(&w, 0, sizeof w);
    w.peer = w.twin = w.eventfd = -1;
    w.c = start(&w);
    must(w.c != NULL);
    connect_again(&w);
    while (in.left) {
        uint8_t step = next(&in);
        if (step % 8 < 3)
            step_answer(&w, &in);
        else if (step % 8 == 3)
            step_command(&w, &in);
        else if (step % 8 == 4)
            step_raw(&w, &in);
        else if (step % 8 == 5 && (step & 0x80) && (step & 0x20))
            step_wait(&w, &in);
        else if (step % 8 == 5 && (step & 0x80))
            connect_again(&w);
        else
            step_program(&w, &in);
        if (!(step & 0x40)) /* else several steps are seen at once */
            pump(&w);
    }
    hang_up(&w);
    set_pause(&w, false);
    pump(&w);
    dxpu_vfuc_close(w.c);
    must(settled(lowest_fd, before) == before); /* a thread closes what is not an eventfd */
    return 0;
}
