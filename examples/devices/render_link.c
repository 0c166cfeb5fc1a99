/* render_link.c - see render_link.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Slots   2 Life   3 Replies   4 Requests   5 The tick */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "render_link.h"
#include "launcher.h"
#include "log.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS_NS     ((uint64_t)1000000)
#define FIRST_NS  (100 * MS_NS) /* before it is started again, doubled each time */
#define MOST_NS   (10000 * MS_NS)
#define HOPE_NS   (4 * FIRST_NS)  /* below it the next one may work */
#define LASTED_NS (10000 * MS_NS) /* after this long it counts as one that works */
#define OPEN_NS   (30000 * MS_NS) /* to READY: it loads a compiler; to be started */
#define ANSWER_NS (10000 * MS_NS) /* a shader may take long, or for ever */

enum { TURN = 64 /* messages of a tick */ };

/* Of the capability sets: what makes the renderer touch the guest's memory at other moments than a
   transfer (transfers in a command stream, persistent buffers, memory information).  Mesa expects
   these together or not at all.  Offsets in set 2 and bits of virgl_hw.h. */
enum { CAPS_AT = 392, CAPS_V2_AT = 688, SET_2 = 1 };
#define CAPS_NOT    0x84020000u
#define CAPS_V2_NOT 0x00000088u

/* ==== 1  Slots ================================================================================ */

int render_link_slot(render_link *l)
{
    for (int i = 0; l->state == RENDER_RUNNING && i < RENDER_SLOTS; i++) {
        if (!l->taken[i]) {
            l->taken[i] = true;
            return i;
        }
    }
    return -1;
}

uint8_t *render_link_at(const render_link *l, int slot)
{
    return l->memory + (size_t)slot * RENDER_SLOT_BYTES;
}

void render_link_free(render_link *l, int slot)
{
    if (slot >= 0)
        l->taken[slot] = false;
}

/* ==== 2  Life ================================================================================= */

/* 0, or -1 and errno */
static int watch(render_link *l, int fd)
{
    struct epoll_event e = { .events = EPOLLIN };
    return epoll_ctl(l->watch, EPOLL_CTL_ADD, fd, &e);
}

static void forget(render_link *l)
{
    if (l->socket >= 0)
        (void)close(l->socket); /* it leaves `watch` */
    if (l->memory)
        (void)munmap(l->memory, RENDER_MEMORY_BYTES);
    l->socket = -1;
    l->memory = NULL;
    l->pending = 0;
    memset(l->request, 0, sizeof l->request);
    memset(l->taken, 0, sizeof l->taken);
    l->used = false;
    l->generation++;
}

/* Its end is closed, or it would be readable from now on. */
static void lose_launcher(render_link *l)
{
    log_error("virtio-gpu: the process that starts renderers is gone: no 3D until a restart");
    (void)close(l->launcher);
    l->launcher = -1;
    if (l->state == RENDER_STARTING || l->state == RENDER_WAITING)
        l->state = RENDER_OFF;
}

static void ask_launcher(render_link *l)
{
    l->state = RENDER_STARTING;
    l->since_ns = l->now_ns;
    if (l->launcher < 0)
        l->state = RENDER_OFF;
    else if (launcher_ask(l->launcher))
        lose_launcher(l);
}

static bool lasted(const render_link *l)
{
    return l->state == RENDER_RUNNING && l->now_ns - l->ready_ns >= LASTED_NS;
}

/* This one is over, for whatever reason, and does no more work for a tenant that may be gone. */
static void end(render_link *l, const char *why)
{
    l->count.renderer_ends++;
    if (lasted(l) || !l->wait_ns)
        l->wait_ns = FIRST_NS;
    if (l->launcher > 0)
        log_warning("virtio-gpu: its renderer %s; it is started again in %llu ms", why,
                    (unsigned long long)(l->wait_ns / MS_NS));
    else
        log_warning("virtio-gpu: its renderer %s", why);
    l->state = RENDER_WAITING;
    l->due_ns = l->now_ns + l->wait_ns;
    l->wait_ns = l->wait_ns * 2 < MOST_NS ? l->wait_ns * 2 : MOST_NS;
    l->on->lost(l->user); /* before the memory goes */
    forget(l);
    if (l->launcher > 0)
        launcher_end(l->launcher);
}

int render_link_open(render_link *l, int launcher, const render_events *on, void *user)
{
    l->launcher = launcher;
    l->socket = -1;
    l->on = on;
    l->user = user;
    l->generation = 1; /* 0: of nothing */
    l->watch = epoll_create1(EPOLL_CLOEXEC);
    if (l->watch < 0)
        return -1;
    if (!launcher)
        return 0;
    if (watch(l, launcher))
        return -1;
    ask_launcher(l);
    return 0;
}

void render_link_close(render_link *l)
{
    forget(l);
    if (l->launcher > 0)
        (void)close(l->launcher);
    if (l->watch >= 0)
        (void)close(l->watch);
}

int render_link_descriptor(const render_link *l)
{
    return l->watch;
}

void render_link_renew(render_link *l)
{
    if (!l->used)
        return;
    if (lasted(l)) /* so does the next one, and is worth waiting for */
        l->wait_ns = 0;
    forget(l);
    ask_launcher(l);
}

/* The launcher has answered. */
static bool take_renderer(render_link *l)
{
    int memory, rc = launcher_take(l->launcher, &l->socket, &memory);
    void *at;
    if (rc > 0)
        return false;
    if (rc && errno == EPIPE) {
        lose_launcher(l);
        return true;
    }
    if (rc) {
        end(l, "cannot be started");
        return true;
    }
    at = mmap(NULL, RENDER_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    (void)close(memory);
    if (at == MAP_FAILED || watch(l, l->socket)) {
        l->memory = at == MAP_FAILED ? NULL : at;
        end(l, "has no memory");
        return true;
    }
    l->memory = at;
    l->count.renderer_starts++;
    l->since_ns = l->now_ns;
    l->state = RENDER_OPENING;
    return true;
}

/* ==== 3  Replies ============================================================================== */

/* Numbers of the message, data of the memory: both are copied before they are used. */
static void take_capsets(render_link *l, const uint8_t *m)
{
    for (unsigned i = 0; i < RENDER_CAPSETS; i++) {
        render_capset *c = &l->capset[i];
        c->version = render_word(m, 2 + i * 2);
        c->bytes = render_word(m, 3 + i * 2);
        memcpy(c->data, render_link_at(l, (int)i), c->bytes);
    }
    if (l->capset[SET_2].bytes >= CAPS_V2_AT + 4) {
        uint8_t *d = l->capset[SET_2].data;
        dxpu_put_le32(d + CAPS_AT, dxpu_get_le32(d + CAPS_AT) & ~CAPS_NOT);
        dxpu_put_le32(d + CAPS_V2_AT, dxpu_get_le32(d + CAPS_V2_AT) & ~CAPS_V2_NOT);
    }
}

/* False: there is no such request. */
static bool take_done(render_link *l, const uint8_t *m)
{
    uint32_t number = render_word(m, 1);
    for (unsigned i = 0; number && i < RENDER_PENDING; i++) {
        int slot = l->request[i].slot;
        if (l->request[i].number != number)
            continue;
        l->request[i].number = 0;
        l->pending--;
        l->since_ns = l->now_ns;
        l->on->done(l->user, l->request[i].owner, slot, !render_word(m, RENDER_STATUS));
        return true;
    }
    return false;
}

/* False: it breaks the rules. */
static bool take_reply(render_link *l, const uint8_t *m, size_t bytes)
{
    if (!render_reply_fits(m, bytes))
        return false;
    if (render_word(m, 0) == RENDER_READY) {
        if (l->state != RENDER_OPENING)
            return false;
        take_capsets(l, m);
        l->state = RENDER_RUNNING;
        l->ready_ns = l->now_ns;
        return true;
    }
    if (l->state != RENDER_RUNNING)
        return false;
    if (render_word(m, 0) == RENDER_DONE)
        return take_done(l, m);
    if (!l->pending)
        return false; /* it follows from a request that is not done */
    l->count.render_results++;
    l->on->result(l->user, render_word(m, 1), m + 8);
    return true;
}

static bool take_replies(render_link *l)
{
    uint8_t m[RENDER_REPLY_BYTES + 1]; /* a longer message is seen as such */
    unsigned turn = 0;
    while (turn < TURN && l->socket >= 0) {
        ssize_t n = recv(l->socket, m, sizeof m, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        turn++;
        if (n <= 0)
            end(l, "has ended");
        else if (!take_reply(l, m, (size_t)n))
            end(l, "sent what makes no sense");
    }
    return turn > 0;
}

/* ==== 4  Requests ============================================================================= */

bool render_link_place(const render_link *l)
{
    return l->pending < RENDER_PENDING;
}

bool render_link_ask(render_link *l, void *owner, uint32_t op, uint32_t context, uint32_t resource,
                     int slot, unsigned count, const uint32_t *words)
{
    uint8_t m[RENDER_REQUEST_BYTES] = { 0 };
    unsigned i = 0;
    while (i < RENDER_PENDING && l->request[i].number)
        i++;
    if (l->state != RENDER_RUNNING || i == RENDER_PENDING)
        return false;
    l->number = l->number == INT32_MAX ? 1 : l->number + 1; /* the number of a fence, an int */
    render_put(m, RENDER_OP, op);
    render_put(m, RENDER_NUMBER, l->number);
    render_put(m, RENDER_CONTEXT, context);
    render_put(m, RENDER_RESOURCE, resource);
    for (unsigned k = 0; k < count; k++)
        render_put(m, RENDER_ARGUMENTS + k, words[k]);
    /* one that has ended, or reads nothing, is noticed by the next tick */
    if (send(l->socket, m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof m)
        return false;
    if (!l->pending++)
        l->since_ns = l->now_ns;
    l->request[i].number = l->number;
    l->request[i].slot = slot;
    l->request[i].owner = owner;
    l->used = true;
    l->count.render_requests++;
    return true;
}

void render_link_disown(render_link *l, const void *owner)
{
    for (unsigned i = 0; i < RENDER_PENDING; i++) {
        if (l->request[i].owner == owner)
            l->request[i].owner = NULL;
    }
}

bool render_link_settled(const render_link *l)
{
    return l->state == RENDER_RUNNING || l->state == RENDER_OFF || l->wait_ns > HOPE_NS ||
           (l->state == RENDER_STARTING && l->now_ns - l->since_ns > OPEN_NS);
}

/* ==== 5  The tick ============================================================================= */

bool render_link_tick(render_link *l, uint64_t now_ns)
{
    bool any = false;
    if (!l->now_ns) /* it was asked for before there was a time */
        l->since_ns = now_ns;
    l->now_ns = now_ns;
    if (l->launcher > 0 && l->state != RENDER_STARTING && launcher_gone(l->launcher))
        lose_launcher(l);
    if (l->state == RENDER_WAITING && now_ns >= l->due_ns) {
        ask_launcher(l);
        any = true;
    }
    if (l->state == RENDER_STARTING)
        any |= take_renderer(l);
    if (l->state == RENDER_OPENING || l->state == RENDER_RUNNING)
        any |= take_replies(l);
    if ((l->state == RENDER_OPENING && now_ns - l->since_ns > OPEN_NS) ||
        (l->state == RENDER_RUNNING && l->pending && now_ns - l->since_ns > ANSWER_NS)) {
        end(l, "does not answer");
        any = true;
    }
    return any;
}
