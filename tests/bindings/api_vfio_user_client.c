/* The vfio-user client against the server of the same binding, and against scripted servers that
   break every rule.
   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "descriptors.h"
#include "dxpu_vfio_user_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { VERSION = 1, MAP, UNMAP, INFO, REGION, IO_FDS, IRQ, SET_IRQS, READ, WRITE, DREAD, DWRITE };
enum { RESET = 13, MULTI = 15, NO_REPLY = 0x10, FAILED = 0x21, REPLY = 1 };
enum { BAR_BYTES = 8192, VECTORS = 20, LOG = 4096, TURNS = 20000 };

/* What happened at the client, in order. */
typedef struct entry {
    enum { READY, GONE, DONE, DMA_READ, DMA_WRITE, INTERRUPT } what;
    uint64_t tag, address; /* tag: token of DMA; vector of an interrupt */
    int error;
    uint32_t bytes;
    uint8_t data[8];
} entry;

typedef struct world {
    dxpu_vfuc *c;
    dxpu_vfuc_config cfg;
    dxpu_vfu *s, *late; /* s NULL: the server is a script; late: reached by a relay */
    int peer;           /* of a script */
    int fds_before;
    entry log[LOG];
    unsigned count;
    const char *why;
    bool keep; /* DMA is not answered */
    unsigned pause_at;
    uint32_t vectors;      /* of a script, 0: 4 */
    uint8_t memory[65536]; /* what the server's DMA reaches */
    /* the server's device */
    uint8_t bar[BAR_BYTES];
    unsigned resets, dones, server_writes;
    int done_error;
    uint8_t done_data[64];
    size_t done_len;
    /* the last message that a script received */
    uint8_t in[70000];
    int in_fds;
} world;

static entry *note(world *w, int what)
{
    entry *e = &w->log[w->count++ % LOG];
    memset(e, 0, sizeof *e);
    e->what = what;
    return e;
}

/* Entries of a kind. */
static unsigned seen(const world *w, int what)
{
    unsigned n = 0, i;
    for (i = 0; i < w->count && i < LOG; i++)
        n += w->log[i].what == (unsigned)what;
    return n;
}

static entry *last(world *w)
{
    assert_true(w->count > 0);
    return &w->log[(w->count - 1) % LOG];
}

static void on_ready(void *user)
{
    (void)note(user, READY);
}

static void on_gone(void *user, const char *why)
{
    (void)note(user, GONE);
    ((world *)user)->why = why;
}

static void on_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    entry *e = note(user, DONE);
    e->tag = tag;
    e->error = error;
    e->bytes = (uint32_t)data.len;
    memcpy(e->data, data.ptr ? data.ptr : e->data, data.len < 8 ? data.len : 8);
}

static void on_dma_read(void *user, uint64_t token, uint64_t address, uint32_t bytes)
{
    world *w = user;
    entry *e = note(w, DMA_READ);
    e->tag = token;
    e->address = address;
    e->bytes = bytes;
    assert_true(token != 0);
    if (w->keep)
        return;
    if (address + bytes > sizeof w->memory)
        assert_int_equal(dxpu_vfuc_dma_reply_error(w->c, token, EFAULT), DXPU_OK);
    else
        assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, token, w->memory + address, bytes),
                         DXPU_OK);
}

static void on_dma_write(void *user, uint64_t token, uint64_t address, dxpu_bytes data)
{
    world *w = user;
    entry *e = note(w, DMA_WRITE);
    e->tag = token;
    e->address = address;
    e->bytes = (uint32_t)data.len;
    memcpy(e->data, data.ptr, data.len < 8 ? data.len : 8);
    if (address + data.len <= sizeof w->memory)
        memcpy(w->memory + address, data.ptr, data.len);
    if (w->pause_at && --w->pause_at == 0)
        dxpu_vfuc_pause(w->c, true);
    if (token && !w->keep)
        assert_int_equal(dxpu_vfuc_dma_reply_write(w->c, token), DXPU_OK);
}

static void on_interrupt(void *user, uint32_t irq, uint32_t number)
{
    entry *e = note(user, INTERRUPT);
    e->address = irq;
    e->tag = number;
}

static void server_read(void *user, const dxpu_vfu_access *a)
{
    world *w = user;
    static const uint8_t zero[4096];
    (void)dxpu_vfu_reply_read(w->s ? w->s : w->late, a->token,
                              a->region == 0 ? w->bar + a->offset : zero, a->bytes);
}

static void server_write(void *user, const dxpu_vfu_access *a, const uint8_t *data)
{
    world *w = user;
    w->server_writes++;
    if (a->region == 0)
        memcpy(w->bar + a->offset, data, a->bytes);
    if (a->token && a->region == 0 && a->offset == 0x100)
        (void)dxpu_vfu_reply_error(w->s, a->token, EIO);
    else if (a->token)
        (void)dxpu_vfu_reply_write(w->s, a->token);
}

static void server_reset(void *user, uint64_t token)
{
    world *w = user;
    w->resets++;
    memset(w->bar, 0, sizeof w->bar);
    if (token)
        (void)dxpu_vfu_reply_write(w->s, token);
}

static void server_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    world *w = user;
    w->dones++;
    w->done_error = error;
    w->done_len = data.len;
    assert_int_equal(tag, 7);
    if (data.len && data.len <= sizeof w->done_data)
        memcpy(w->done_data, data.ptr, data.len);
}

/* One turn of each that has something to do; false: none has. */
static bool turn(world *w)
{
    struct pollfd p[2];
    p[0].fd = dxpu_vfuc_fd(w->c);
    p[1].fd = w->s ? dxpu_vfu_fd(w->s) : -1;
    p[0].events = p[1].events = POLLIN;
    if (poll(p, 2, 0) <= 0)
        return false;
    if (p[0].revents)
        assert_int_equal(dxpu_vfuc_process(w->c), DXPU_OK);
    if (p[1].revents)
        assert_int_equal(dxpu_vfu_process(w->s), DXPU_OK);
    return true;
}

static void pump(world *w)
{
    int i;
    for (i = 0; i < TURNS && turn(w); i++)
        continue;
    assert_true(i < TURNS); /* nothing must spin */
}

/* Until there are `many` entries of a kind, for ten seconds at most. */
static void await(world *w, int what, unsigned many)
{
    struct pollfd p = { dxpu_vfuc_fd(w->c), POLLIN, 0 };
    int i;
    for (i = 0; i < 1000 && seen(w, what) < many; i++) {
        pump(w);
        if (seen(w, what) < many)
            (void)poll(&p, 1, 10);
    }
    assert_true(seen(w, what) >= many);
}

static void start_client(world *w)
{
    const char *why;
    dxpu_vfuc_callbacks cb = { w,           on_ready,     on_gone,     on_done,
                               on_dma_read, on_dma_write, on_interrupt };
    w->c = dxpu_vfuc_open(&w->cfg, &cb, &why);
    assert_non_null(w->c);
}

static int start(void **state)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->fds_before = open_fds();
    w->peer = -1;
    dxpu_vfuc_config_default(&w->cfg);
    w->cfg.transfer_bytes = 4096;
    w->cfg.queue_bytes = 65536;
    *state = w;
    return 0;
}

static int stop(void **state)
{
    world *w = *state;
    dxpu_vfuc_close(w->c);
    dxpu_vfu_close(w->s);
    if (w->peer >= 0)
        close(w->peer);
    assert_int_equal(settled_fds(w->fds_before), w->fds_before);
    free(w);
    return 0;
}

static void link_up(world *w)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    if (!w->c)
        start_client(w);
    assert_int_equal(dxpu_vfuc_adopt(w->c, pair[0]), DXPU_OK);
    if (w->s)
        assert_int_equal(dxpu_vfu_adopt(w->s, pair[1]), DXPU_OK);
    else
        w->peer = pair[1];
}

/* The project's own server at the other end. */
static void own_server(world *w)
{
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb = { w, server_read, server_write, server_reset, NULL, NULL, server_done };
    const char *why;
    dxpu_vfu_config_default(&cfg);
    cfg.region[0].bytes = BAR_BYTES;
    cfg.region[0].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    cfg.region[2].bytes = 4096;
    cfg.region[2].access = DXPU_VFU_READ;
    cfg.irqs[DXPU_VFU_MSIX] = VECTORS;
    cfg.transfer_bytes = 8192;
    w->s = dxpu_vfu_open(&cfg, &cb, &why);
    assert_non_null(w->s);
    link_up(w);
    await(w, READY, 1);
}

/* ==== against the own server ================================================================== */

static void test_device_is_described(void **state)
{
    world *w = *state;
    const dxpu_vfuc_info *d;
    own_server(w);
    d = dxpu_vfuc_device(w->c);
    assert_non_null(d);
    assert_int_equal(d->region[0].bytes, BAR_BYTES);
    assert_int_equal(d->region[0].access, 3);
    assert_int_equal(d->region[1].bytes, 0);
    assert_int_equal(d->region[2].access, DXPU_VFU_READ);
    assert_int_equal(d->region[DXPU_VFU_CONFIG].bytes, 256);
    assert_int_equal(d->irqs[DXPU_VFU_MSIX], VECTORS);
    assert_int_equal(d->irqs[DXPU_VFU_MSI], 0);
    assert_int_equal(d->transfer_bytes, 4096); /* the smaller of both */
    assert_true(d->can_reset && d->write_multiple && !d->twin);
}

static void test_reads_and_writes(void **state)
{
    world *w = *state;
    uint8_t data[4096], i;
    own_server(w);
    for (i = 1; i <= 8; i++) {
        memset(data, 0x10 + i, sizeof data);
        assert_int_equal(dxpu_vfuc_write(w->c, 0, 16u * i, data, i, i & 1, 100u + i), DXPU_OK);
        assert_int_equal(dxpu_vfuc_read(w->c, 0, 16u * i, i, 200u + i), DXPU_OK);
        await(w, DONE, seen(w, DONE) + (i & 1 ? 1 : 2));
        assert_int_equal(last(w)->tag, 200 + i);
        assert_int_equal(last(w)->error, 0);
        assert_int_equal(last(w)->bytes, i);
        assert_memory_equal(last(w)->data, data, i);
    }
    memset(data, 0xab, sizeof data);
    assert_int_equal(dxpu_vfuc_write(w->c, 0, 4096, data, 4096, false, 1), DXPU_OK);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 4096, 4096, 2), DXPU_OK);
    await(w, DONE, seen(w, DONE) + 2);
    assert_int_equal(last(w)->bytes, 4096);
    assert_memory_equal(w->bar + 4096, data, 4096);
    assert_int_equal(dxpu_vfuc_write(w->c, 0, 0x100, data, 4, false, 3), DXPU_OK);
    await(w, DONE, seen(w, DONE) + 1);
    assert_int_equal(last(w)->error, EIO);
    assert_int_equal(dxpu_vfuc_count(w->c)->writes_posted, 4);
    assert_int_equal(dxpu_vfuc_unanswered(w->c), 0);
}

static void test_requests_are_checked(void **state)
{
    world *w = *state;
    uint8_t data[4] = { 0 };
    unsigned i;
    start_client(w);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 0), DXPU_E_CLOSED);
    assert_int_equal(dxpu_vfuc_connect(w->c), DXPU_E_ARG); /* no path */
    own_server(w);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, BAR_BYTES - 4, 4, 0), DXPU_OK); /* control */
    assert_int_equal(dxpu_vfuc_read(w->c, 0, BAR_BYTES - 3, 4, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, UINT64_MAX - 2, 4, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 0, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4097, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_read(w->c, 1, 0, 4, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_read(w->c, DXPU_VFU_REGIONS, 0, 4, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_write(w->c, 2, 0, data, 4, false, 0), DXPU_E_ARG); /* read-only */
    assert_int_equal(dxpu_vfuc_dma_map(w->c, 1, UINT64_MAX, 3, 0), DXPU_OK);      /* ends at 2^64 */
    assert_int_equal(dxpu_vfuc_dma_map(w->c, 2, UINT64_MAX, 3, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, VECTORS + 1, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSI, 1, 0), DXPU_E_ARG);
    for (i = 0; dxpu_vfuc_read(w->c, 0, 0, 4, i) == DXPU_OK; i++)
        assert_true(i < w->cfg.requests);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, i), DXPU_E_AGAIN);
    assert_int_equal(dxpu_vfuc_unanswered(w->c), w->cfg.requests);
    pump(w);
    assert_int_equal(dxpu_vfuc_unanswered(w->c), 0);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, i), DXPU_OK);
}

static void test_dma_by_message(void **state)
{
    world *w = *state;
    uint8_t data[16] = "0123456789abcde";
    own_server(w);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 16, 3), DXPU_VFU_DMA_NONE); /* control */
    assert_int_equal(dxpu_vfuc_dma_map(w->c, 0x1000, 0x1000, 3, 1), DXPU_OK);
    await(w, DONE, 1);
    assert_int_equal(last(w)->error, 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 16, 3), DXPU_VFU_DMA_MESSAGE);
    assert_int_equal(dxpu_vfuc_dma_map(w->c, 0x1800, 0x1000, 3, 2), DXPU_OK); /* overlaps */
    await(w, DONE, 2);
    assert_int_equal(last(w)->error, EEXIST);
    assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0x1000, data, 16, false, 7), DXPU_OK);
    assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0x1008, data, 4, true, 7), DXPU_OK);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0x1000, 16, 7), DXPU_OK);
    pump(w);
    assert_int_equal(w->dones, 2);
    assert_int_equal(w->done_error, 0);
    assert_int_equal(w->done_len, 16);
    assert_memory_equal(w->done_data, "012345670123cde", 16);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0x100000, 16, 7), DXPU_OK);
    pump(w);
    assert_int_equal(w->done_error, EFAULT);
    assert_int_equal(dxpu_vfuc_dma_unmap(w->c, 0x1000, 0x1000, 3), DXPU_OK);
    await(w, DONE, 3);
    assert_int_equal(last(w)->error, 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 16, 3), DXPU_VFU_DMA_NONE);
}

static void test_dma_tokens(void **state)
{
    world *w = *state;
    uint64_t token;
    w->cfg.dma_commands = 2;
    w->keep = true;
    own_server(w);
    for (int i = 0; i < 3; i++)
        assert_int_equal(dxpu_vfu_dma_send_read(w->s, 16, 16, 7), DXPU_OK);
    pump(w);
    assert_int_equal(seen(w, DMA_READ), 2); /* the third waits in the socket */
    assert_int_equal(dxpu_vfuc_count(w->c)->stalls, 1);
    token = last(w)->tag;
    assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, token, w->memory, 15), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_dma_reply_write(w->c, token), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, token + 1, w->memory, 16), DXPU_E_NONE);
    assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, token, w->memory, 16), DXPU_OK);
    assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, token, w->memory, 16), DXPU_E_NONE);
    pump(w);
    assert_int_equal(seen(w, DMA_READ), 3);
    assert_int_equal(w->dones, 1);
    token = last(w)->tag;
    dxpu_vfuc_disconnect(w->c, "test");
    assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, token, w->memory, 16), DXPU_E_NONE);
    await(w, GONE, 1);
    assert_string_equal(w->why, "test");
}

static void test_interrupts_follow_dma(void **state)
{
    world *w = *state;
    uint8_t data[64] = { 1 };
    w->cfg.burst = 3;
    own_server(w);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 19), DXPU_E_NONE); /* not enabled */
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, VECTORS, 5), DXPU_OK);
    await(w, DONE, 1);
    assert_int_equal(last(w)->error, 0);
    pump(w);
    for (unsigned n = 1; n <= 3; n++) {
        for (int i = 0; i < 20; i++)
            assert_int_equal(dxpu_vfu_dma_send_write(w->s, 64u * (unsigned)i, data, 64, true, 7),
                             DXPU_OK);
        assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 19), DXPU_OK);
        assert_true(turn(w)); /* has seen it, and is not through the DMA */
        assert_int_equal(seen(w, INTERRUPT), n - 1);
        await(w, INTERRUPT, n);
        assert_int_equal(seen(w, DMA_WRITE), 20 * n);
        assert_int_equal(last(w)->what, INTERRUPT);
        assert_int_equal(last(w)->tag, 19);
    }
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 2, 6), DXPU_OK);
    await(w, DONE, 2);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 19), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 1), DXPU_OK);
    await(w, INTERRUPT, 4);
    assert_int_equal(last(w)->tag, 1);
}

/* Raised again while the first waits for its DMA: once more, behind the DMA of the second. */
static void test_interrupt_raised_twice(void **state)
{
    world *w = *state;
    uint8_t data[64] = { 1 };
    w->cfg.burst = 1;
    own_server(w);
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 1, 5), DXPU_OK);
    await(w, DONE, 1);
    pump(w);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++)
            assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0, data, 64, true, 7), DXPU_OK);
        assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_OK);
        assert_true(turn(w));
    }
    await(w, INTERRUPT, 2);
    assert_int_equal(seen(w, DMA_WRITE), 8);
    assert_int_equal(last(w)->what, INTERRUPT);
}

static void test_reset(void **state)
{
    world *w = *state;
    uint8_t data[4] = { 1, 2, 3, 4 };
    own_server(w);
    assert_int_equal(dxpu_vfuc_write(w->c, 0, 0, data, 4, true, 0), DXPU_OK);
    assert_int_equal(dxpu_vfuc_reset(w->c, 9), DXPU_OK);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 10), DXPU_OK);
    await(w, DONE, 2);
    assert_int_equal(w->resets, 1);
    assert_int_equal(last(w)->tag, 10);
    assert_memory_equal(last(w)->data, "\0\0\0\0", 4);
}

static void test_pause(void **state)
{
    world *w = *state;
    uint8_t data[4] = { 0 };
    own_server(w);
    w->pause_at = 2;
    for (int i = 0; i < 5; i++)
        assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0, data, 4, true, 7), DXPU_OK);
    pump(w);
    assert_int_equal(seen(w, DMA_WRITE), 2);
    dxpu_vfuc_pause(w->c, false);
    pump(w);
    assert_int_equal(seen(w, DMA_WRITE), 5);
    dxpu_vfuc_pause(w->c, true);
    dxpu_vfu_disconnect(w->s);
    await(w, GONE, 1); /* an end is noticed all the same */
}

static void test_server_goes_and_returns(void **state)
{
    world *w = *state;
    own_server(w);
    for (unsigned i = 1; i <= 5; i++) {
        assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, VECTORS, 5), DXPU_OK);
        await(w, DONE, i);
        dxpu_vfu_disconnect(w->s);
        await(w, GONE, i);
        assert_null(dxpu_vfuc_device(w->c));
        assert_false(dxpu_vfuc_is_connected(w->c));
        assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_E_CLOSED);
        link_up(w);
        await(w, READY, i + 1);
    }
    assert_int_equal(dxpu_vfuc_adopt(w->c, 0), DXPU_E_FULL);
}

static void test_connects_by_path(void **state)
{
    world *w = *state;
    char path[64];
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb = { w, server_read, server_write, NULL, NULL, NULL, NULL };
    const char *why;
    snprintf(path, sizeof path, "/tmp/vfuc.%d.sock", (int)getpid());
    w->cfg.path = path;
    start_client(w);
    assert_int_equal(dxpu_vfuc_connect(w->c), DXPU_E_CLOSED);
    assert_int_equal(errno, ENOENT);
    dxpu_vfu_config_default(&cfg);
    cfg.path = path;
    w->s = dxpu_vfu_open(&cfg, &cb, &why);
    assert_non_null(w->s);
    assert_int_equal(dxpu_vfuc_connect(w->c), DXPU_OK);
    assert_int_equal(dxpu_vfuc_connect(w->c), DXPU_E_FULL);
    await(w, READY, 1);
    assert_int_equal(dxpu_vfuc_device(w->c)->region[DXPU_VFU_CONFIG].bytes, 256);
}

static void test_configuration_is_checked(void **state)
{
    world *w = *state;
    dxpu_vfuc_config good = w->cfg, bad;
    dxpu_vfuc_callbacks cb = { .done = on_done };
    char longest[200];
    const char *why;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    w->c = dxpu_vfuc_open(&good, &cb, &why); /* control */
    assert_non_null(w->c);
#define REFUSED(set)                                                                               \
    bad = good, bad.set, assert_null(dxpu_vfuc_open(&bad, &cb, &why)), assert_non_null(why)
    REFUSED(transfer_bytes = 4095);
    REFUSED(transfer_bytes = 1048577);
    REFUSED(queue_bytes = 8191);
    REFUSED(requests = 15);
    REFUSED(requests = 1024);
    REFUSED(dma_commands = 0);
    REFUSED(dma_commands = 1025);
    REFUSED(answer_ms = 0);
    REFUSED(reset_ms = 0);
    REFUSED(burst = 0);
    REFUSED(path = "");
    REFUSED(path = longest);
#undef REFUSED
    cb.done = NULL;
    assert_null(dxpu_vfuc_open(&good, &cb, &why));
}

/* ==== against scripts ========================================================================= */

static void put16(uint8_t *p, unsigned v)
{
    uint16_t x = (uint16_t)v;
    memcpy(p, &x, 2);
}

static void put32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

static void put64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, 8);
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static unsigned get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

/* Send bytes with the same descriptor `many` times. */
static void send_fds(int to, const void *p, size_t n, int fd, unsigned many)
{
    int fds[SEND_FDS_MAX] = { 0 };
    for (unsigned i = 0; i < many; i++)
        fds[i] = fd;
    assert_int_equal(send_with_fds(to, p, n, fds, many, 0), n);
}

static void send_fd(int to, const void *p, size_t n, int fd)
{
    send_fds(to, p, n, fd, fd >= 0);
}

static void lose_peer(world *w)
{
    close(w->peer);
    w->peer = -1;
}

static void send_message(int to, unsigned id, unsigned command, uint32_t flags, const void *body,
                         size_t len)
{
    uint8_t m[9000];
    assert_true(len + 16 <= sizeof m);
    put16(m, id);
    put16(m + 2, command);
    put32(m + 4, (uint32_t)(16 + len));
    put32(m + 8, flags);
    put32(m + 12, flags & 0x20 ? EPERM : 0);
    if (len)
        memcpy(m + 16, body, len);
    send_fd(to, m, 16 + len, -1);
}

/* The next message of the client into w->in; descriptors are closed and counted.  False: none. */
static bool receive(world *w, int from)
{
    size_t have = 0, want = 16;
    w->in_fds = 0;
    while (have < want) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int) * 16)];
        } control;
        struct iovec iov = { w->in + have, want - have };
        struct msghdr h;
        struct cmsghdr *c;
        ssize_t n;
        memset(&h, 0, sizeof h);
        h.msg_iov = &iov;
        h.msg_iovlen = 1;
        h.msg_control = control.bytes;
        h.msg_controllen = sizeof control.bytes;
        n = recvmsg(from, &h, MSG_DONTWAIT);
        if (n <= 0)
            return false;
        for (c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
            int fd, i, many = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            for (i = 0; i < many; i++) {
                memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
                close(fd);
            }
            w->in_fds += many;
        }
        have += (size_t)n;
        if (have >= 16)
            want = get32(w->in + 4);
    }
    return true;
}

static void expect_command(world *w, unsigned command)
{
    pump(w);
    assert_true(receive(w, w->peer));
    assert_int_equal(get16(w->in + 2), command);
}

static void answer(world *w, const void *body, size_t len)
{
    send_message(w->peer, get16(w->in), get16(w->in + 2), REPLY, body, len);
}

/* To a read of 4 bytes. */
static void answer_read(world *w)
{
    uint8_t body[20] = { 0 };
    memcpy(body, w->in + 16, 16);
    answer(w, body, sizeof body);
}

/* A posted write of 4 bytes to address 0. */
static void make_write(uint8_t m[36])
{
    memset(m, 0, 36);
    put16(m + 2, DWRITE);
    put32(m + 4, 36);
    put32(m + 8, NO_REPLY);
    put64(m + 24, 4);
}

static size_t version_body(uint8_t *out, unsigned major, unsigned minor, const char *json)
{
    put16(out, major);
    put16(out + 2, minor);
    memcpy(out + 4, json, strlen(json) + 1);
    return 4 + strlen(json) + 1;
}

/* Answer the rest of the introduction: BAR0 of 8 KiB, configuration space of 256 bytes, 4 MSI-X. */
static void describe(world *w)
{
    uint8_t body[64];
    memset(body, 0, sizeof body);
    expect_command(w, INFO);
    put32(body, 16);
    put32(body + 4, 3);
    put32(body + 8, 9);
    put32(body + 12, 5);
    answer(w, body, 16);
    for (unsigned i = 0; i < 9; i++) {
        expect_command(w, REGION);
        memset(body, 0, sizeof body);
        put32(body, 32);
        put32(body + 4, 3);
        put32(body + 8, i);
        put64(body + 16, i == 0 ? BAR_BYTES : i == 7 ? 256 : 0);
        answer(w, body, 32);
    }
    for (unsigned i = 0; i < 5; i++) {
        expect_command(w, IRQ);
        memset(body, 0, sizeof body);
        put32(body, 16);
        put32(body + 4, i == 2);
        put32(body + 8, i);
        put32(body + 12, i == 2 ? (w->vectors ? w->vectors : 4) : 0);
        answer(w, body, 16);
    }
    await(w, READY, 1);
}

static void script(world *w, const char *json)
{
    uint8_t body[300];
    link_up(w);
    expect_command(w, VERSION);
    answer(w, body, version_body(body, 0, 1, json));
    describe(w);
}

/* A server that says this in its version: the client parts, for a reason. */
static void bad_version(world *w, unsigned major, unsigned minor, const char *json,
                        const char *reason)
{
    uint8_t body[300];
    unsigned gone = seen(w, GONE);
    link_up(w);
    expect_command(w, VERSION);
    answer(w, body, version_body(body, major, minor, json));
    pump(w);
    assert_int_equal(seen(w, GONE), gone + 1);
    assert_string_equal(w->why, reason);
    lose_peer(w);
}

static void test_versions_refused(void **state)
{
    world *w = *state;
    bad_version(w, 1, 0, "", "the server has another version of the protocol");
    bad_version(w, 0, 2, "", "the server has another version of the protocol");
    bad_version(w, 0, 0, "{", "the server's capabilities are malformed");
    bad_version(w, 0, 0, "{\"capabilities\":{\"max_data_xfer_size\":-1}}",
                "the server's capabilities are malformed");
    bad_version(w, 0, 0, "{\"capabilities\":{\"max_data_xfer_size\":4095}}",
                "the server transfers fewer than 4,096 bytes at a time");
    bad_version(w, 0, 0, "{\"capabilities\":{\"twin_socket\":{\"supported\":true}}}",
                "the server's second socket cannot be used");
    bad_version(w, 0, 0, "{\"capabilities\":{\"twin_socket\":{\"supported\":true,\"fd_index\":0}}}",
                "the server's second socket cannot be used");
    assert_int_equal(seen(w, READY), 0);
    script(w, "{\"capabilities\":{\"max_data_xfer_size\":4096,\"x\":[{}]}}"); /* control */
}

static void test_first_answer_must_be_the_version(void **state)
{
    world *w = *state;
    uint8_t body[32] = { 0 };
    link_up(w);
    expect_command(w, VERSION);
    send_message(w->peer, get16(w->in), INFO, REPLY, body, 16);        /* another command */
    send_message(w->peer, get16(w->in) ^ 1u, VERSION, REPLY, body, 4); /* another id */
    send_message(w->peer, 0, DREAD, 0, body, 16); /* no DMA before it is known */
    pump(w);
    assert_int_equal(dxpu_vfuc_count(w->c)->replies_unexpected, 2);
    assert_int_equal(dxpu_vfuc_count(w->c)->dma_refused, 1);
    assert_int_equal(seen(w, DMA_READ) + seen(w, GONE), 0);
    answer(w, body, 3); /* too short */
    await(w, GONE, 1);
}

static void test_descriptions_refused(void **state)
{
    static const struct {
        unsigned command, at;
        uint32_t value;
        size_t len;
    } rows[] = { { INFO, 4, 1, 16 },    { INFO, 0, 16, 15 }, { REGION, 8, 1, 32 },
                 { REGION, 0, 32, 31 }, { IRQ, 8, 1, 16 },   { IRQ, 0, 16, 15 } };
    world *w = *state;
    for (unsigned row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        uint8_t body[300];
        unsigned gone = seen(w, GONE);
        link_up(w);
        expect_command(w, VERSION);
        answer(w, body, version_body(body, 0, 0, ""));
        while (seen(w, GONE) == gone) {
            unsigned command;
            bool here;
            pump(w);
            assert_true(receive(w, w->peer));
            command = get16(w->in + 2);
            here = command == rows[row].command;
            memset(body, 0, sizeof body);
            put32(body + 4, 3);
            put32(body + 8, command == INFO ? 9 : get32(w->in + 16 + 8));
            put32(body + 12, 5);
            if (here)
                put32(body + rows[row].at, rows[row].value);
            answer(w, body, here ? rows[row].len : command == REGION ? 32 : 16);
            pump(w);
            assert_true(!here || seen(w, GONE) == gone + 1);
        }
        lose_peer(w);
    }
    assert_int_equal(seen(w, READY), 0);
}

/* Numbers of regions, interrupts and bytes that no device has. */
static void test_descriptions_bounded(void **state)
{
    world *w = *state;
    uint8_t body[300];
    unsigned regions = 0, irqs = 0;
    link_up(w);
    expect_command(w, VERSION);
    answer(w, body, version_body(body, 0, 0, "{\"capabilities\":{\"max_msg_fds\":99999}}"));
    while (!seen(w, READY)) {
        unsigned command;
        pump(w);
        if (seen(w, READY))
            break;
        assert_true(receive(w, w->peer));
        command = get16(w->in + 2);
        regions += command == REGION;
        irqs += command == IRQ;
        memset(body, 0xff, sizeof body);
        if (command != INFO)
            put32(body + 8, get32(w->in + 16 + 8));
        answer(w, body, command == REGION ? 32 : 16);
    }
    assert_int_equal(regions, DXPU_VFU_REGIONS);
    assert_int_equal(irqs, DXPU_VFU_IRQS);
    assert_int_equal(dxpu_vfuc_device(w->c)->region[0].bytes, UINT64_MAX);
    assert_int_equal(dxpu_vfuc_device(w->c)->irqs[DXPU_VFU_MSIX], 2048);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, UINT64_MAX - 4, 4, 1), DXPU_OK);
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 9, 2), DXPU_OK);
    expect_command(w, READ);
    expect_command(w, SET_IRQS); /* none of before */
    assert_int_equal(w->in_fds, 0);
    expect_command(w, SET_IRQS);
    assert_int_equal(w->in_fds, 8);
    expect_command(w, SET_IRQS);
    assert_int_equal(w->in_fds, 1);
}

/* Two calls at once, in pieces of which any may be refused, and answered in any order: each has its
   own error, and its done() when all of its pieces are answered. */
static void test_interrupts_in_pieces_refused(void **state)
{
    world *w = *state;
    unsigned id[5];
    script(w, "{\"capabilities\":{\"max_msg_fds\":2}}");
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 4, 1), DXPU_OK);
    for (unsigned i = 0; i < 5; i++) {
        if (i == 3)
            assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 2, 2), DXPU_OK);
        expect_command(w, SET_IRQS);
        id[i] = get16(w->in);
    }
    send_message(w->peer, id[1], SET_IRQS, FAILED, NULL, 0); /* the first call's second */
    send_message(w->peer, id[3], SET_IRQS, REPLY, NULL, 0);
    send_message(w->peer, id[2], SET_IRQS, REPLY, NULL, 0);
    send_message(w->peer, id[4], SET_IRQS, REPLY, NULL, 0);
    pump(w);
    assert_int_equal(seen(w, DONE), 1);
    assert_int_equal(last(w)->tag, 2);
    assert_int_equal(last(w)->error, 0);
    send_message(w->peer, id[0], SET_IRQS, REPLY, NULL, 0);
    pump(w);
    assert_int_equal(seen(w, DONE), 2);
    assert_int_equal(last(w)->tag, 1);
    assert_int_equal(last(w)->error, EPERM);
    assert_int_equal(dxpu_vfuc_unanswered(w->c), 0);
}

/* A server that accepts one descriptor at a time: more pieces than there are requests. */
static void test_interrupts_in_too_many_pieces(void **state)
{
    world *w = *state;
    w->cfg.requests = 16;
    own_server(w);
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, VECTORS, 1), DXPU_OK);
    await(w, DONE, 1);
    dxpu_vfu_close(w->s);
    w->s = NULL;
    await(w, GONE, 1);
    w->count = 0;
    w->vectors = 16;
    script(w, "{\"capabilities\":{\"max_msg_fds\":1}}");
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 16, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 15, 1), DXPU_OK);
}

static bool too_many;

ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
    if (too_many && h->msg_control) {
        errno = ETOOMANYREFS;
        return -1;
    }
    return syscall(SYS_sendmsg, fd, h, flags);
}

/* The system limits the descriptors of a user that are on their way: that is not a server's end. */
static void test_descriptors_on_their_way(void **state)
{
    world *w = *state;
    script(w, "{\"capabilities\":{\"max_msg_fds\":8}}");
    too_many = true;
    (void)dxpu_vfuc_enable_irqs(w->c, DXPU_VFU_MSIX, 4, 1);
    too_many = false;
    await(w, GONE, 1);
    assert_non_null(strstr(w->why, "raise the limit"));
}

static void test_s241_replies_that_do_not_fit(void **state)
{
    world *w = *state;
    uint8_t body[64];
    script(w, "");
    for (unsigned i = 0; i < 6; i++) {
        size_t len = 20;
        assert_int_equal(dxpu_vfuc_read(w->c, 0, 8, 4, i), DXPU_OK);
        expect_command(w, READ);
        memset(body, 0x77, sizeof body);
        memcpy(body, w->in + 16, 16);
        if (i == 1)
            len = 19;
        if (i == 2)
            len = 24;
        if (i == 3)
            body[0] ^= 1;
        if (i == 4)
            body[8] ^= 1;
        if (i == 5)
            body[12] ^= 1;
        answer(w, body, len);
        await(w, DONE, i + 1);
        assert_int_equal(last(w)->error, i ? EPROTO : 0);
        assert_int_equal(last(w)->bytes, i ? 0 : 4);
        answer(w, body, len); /* twice */
        pump(w);
    }
    assert_int_equal(dxpu_vfuc_count(w->c)->replies_wrong, 5);
    assert_int_equal(dxpu_vfuc_count(w->c)->replies_unexpected, 6);
    assert_int_equal(seen(w, DONE), 6);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 8, 4, 9), DXPU_OK);
    expect_command(w, READ);
    send_message(w->peer, get16(w->in), READ, FAILED, NULL, 0);
    await(w, DONE, 7);
    assert_int_equal(last(w)->error, EPERM);
}

static void test_dma_commands_refused(void **state)
{
    static const struct {
        unsigned command;
        uint64_t address, bytes;
        size_t data;
        uint32_t flags;
    } rows[] = { { DREAD, 0, 0, 0, 0 },          { DREAD, 0, 4097, 0, 0 },
                 { DREAD, 0, UINT64_MAX, 0, 0 }, { DREAD, UINT64_MAX - 2, 4, 0, 0 },
                 { DREAD, 0, 4, 4, 0 },          { DREAD, 0, 4, 0, NO_REPLY },
                 { DWRITE, 0, 4, 3, 0 },         { DWRITE, UINT64_MAX - 2, 4, 4, NO_REPLY },
                 { READ, 0, 4, 0, 0 },           { SET_IRQS, 4ull << 32, 0, 0, 0 },
                 { VERSION, 0, 0, 0, 0 },        { 0xffff, 0, 0, 0, 0 } };
    world *w = *state;
    uint8_t body[64];
    script(w, "");
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(body, 0, sizeof body);
        put64(body, rows[i].address);
        put64(body + 8, rows[i].bytes);
        send_message(w->peer, 0x1234, rows[i].command, rows[i].flags, body, 16 + rows[i].data);
        pump(w);
        assert_int_equal(receive(w, w->peer), !(rows[i].flags & NO_REPLY));
        if (!(rows[i].flags & NO_REPLY)) {
            assert_int_equal(get16(w->in), 0x1234);
            assert_int_equal(get32(w->in + 8), FAILED);
            assert_int_equal(get32(w->in + 4), 16);
        }
        assert_int_equal(dxpu_vfuc_count(w->c)->dma_refused, i + 1);
    }
    assert_int_equal(seen(w, DMA_READ) + seen(w, DMA_WRITE) + seen(w, GONE), 0);
    put64(body, UINT64_MAX - 3); /* control: ends at 2^64 */
    put64(body + 8, 4);
    send_message(w->peer, 1, DWRITE, NO_REPLY, body, 20);
    pump(w);
    assert_int_equal(seen(w, DMA_WRITE), 1);
}

/* As libvfio-user reads it: 16 bytes behind the header, or it ends the connection.  Its last piece
   of a long write has more data than its count says. */
static void test_dma_write_answered(void **state)
{
    world *w = *state;
    uint8_t body[64] = { 0 };
    script(w, "");
    for (unsigned more = 0; more <= 8; more += 4) {
        put64(body, 0x1000 + more);
        put64(body + 8, 4);
        memset(body + 16, (int)(0x40 + more), 16);
        send_message(w->peer, 7, DWRITE, 0, body, 20 + more);
        pump(w);
        assert_int_equal(last(w)->what, DMA_WRITE);
        assert_int_equal(last(w)->bytes, 4);
        assert_true(receive(w, w->peer));
        assert_int_equal(get32(w->in), 7 | DWRITE << 16);
        assert_int_equal(get32(w->in + 4), 32);
        assert_int_equal(get32(w->in + 8), REPLY);
        assert_int_equal(get64(w->in + 16), 0x1000 + more);
        assert_int_equal(get64(w->in + 24), 4);
        assert_int_equal(w->memory[0x1003 + more], 0x40 + more);
        assert_int_equal(w->memory[0x1004 + more], 0);
    }
}

static void test_s241_impossible_headers(void **state)
{
    world *w = *state;
    for (unsigned i = 0; i < 4; i++) {
        uint8_t m[16] = { 0 };
        put32(m + 4, i == 0 ? 15 : i == 1 ? 4096 + 33 : i == 2 ? UINT32_MAX : 16);
        put32(m + 8, i == 3 ? 2 : 0);
        if (i)
            lose_peer(w);
        w->count = 0;
        script(w, "");
        send_fd(w->peer, m, 16, -1);
        await(w, GONE, 1);
        assert_int_equal(dxpu_vfuc_count(w->c)->broken, i + 1);
    }
}

#define TWIN "{\"capabilities\":{\"twin_socket\":{\"fd_index\":0,\"supported\":true}}}"

/* Answer the version with this second socket. */
static void offer_twin(world *w, int fd)
{
    uint8_t body[300], m[316];
    size_t len;
    link_up(w);
    expect_command(w, VERSION);
    assert_non_null(strstr((const char *)w->in + 20, "twin_socket"));
    len = version_body(body, 0, 1, TWIN);
    memcpy(m, w->in, 16);
    put32(m + 4, (uint32_t)(16 + len));
    put32(m + 8, REPLY);
    memcpy(m + 16, body, len);
    send_fd(w->peer, m, 16 + len, fd);
}

/* A session with a second socket; pair[1] is the client's end, pair[0] the server's. */
static void twin_script(world *w, int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    offer_twin(w, pair[1]);
    describe(w);
}

/* A socket that is not connected, or listens: what waits at it is more than messages. */
static void test_second_socket_must_be_connected(void **state)
{
    world *w = *state;
    for (unsigned i = 0; i < 2; i++) {
        struct sockaddr_un any = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (i) {
            assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof any.sun_family), 0);
            assert_int_equal(listen(fd, 1), 0);
        }
        offer_twin(w, fd);
        close(fd);
        await(w, GONE, i + 1);
        assert_string_equal(w->why, "the server's second socket cannot be used");
        lose_peer(w);
    }
}

/* The server may set options of the client's end, which it made: credentials and pidfds then come
   with every read, and room for all descriptors is left beside them. */
static void test_s241_options_of_the_second_socket(void **state)
{
    world *w = *state;
    uint8_t m[36];
    int pair[2], before, one = 1, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    twin_script(w, pair);
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one), 0);
    (void)setsockopt(pair[1], SOL_SOCKET, 76 /* SO_PASSPIDFD, Linux 6.5 */, &one, sizeof one);
    make_write(m);
    pump(w);
    before = open_fds();
    for (unsigned i = 1; i <= 100; i++) {
        send_fd(pair[0], m, sizeof m, -1);
        pump(w);
        assert_int_equal(seen(w, DMA_WRITE), i);
    }
    assert_int_equal(settled_fds(before), before);
    send_fds(pair[0], m, sizeof m, null, SEND_FDS_MAX);
    pump(w);
    assert_int_equal(seen(w, DMA_WRITE), 101);
    assert_int_equal(dxpu_vfuc_count(w->c)->fds_closed, SEND_FDS_MAX);
    assert_int_equal(settled_fds(before), before);
    close(pair[0]);
    close(pair[1]);
    close(null);
}

/* DMA that never ends does not hide an answer: each turn has more of it than one turn handles. */
static void test_second_socket_leaves_time_for_the_first(void **state)
{
    world *w = *state;
    uint8_t m[36];
    int pair[2], i;
    w->cfg.burst = 1;
    twin_script(w, pair);
    close(pair[1]);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_OK);
    expect_command(w, READ);
    make_write(m);
    for (i = 0; i < 5; i++)
        send_fd(pair[0], m, sizeof m, -1);
    answer_read(w);
    for (i = 0; i < 50 && !seen(w, DONE); i++) {
        send_fd(pair[0], m, sizeof m, -1);
        assert_int_equal(dxpu_vfuc_process(w->c), DXPU_OK);
        assert_true(seen(w, DMA_WRITE) < 6u + (unsigned)i); /* control: more is left */
    }
    assert_int_equal(seen(w, DONE), 1);
    close(pair[0]);
}

/* Of a second socket: a reply stays behind the DMA that was sent before it, whichever of them a
   turn would come to first. */
static void test_twin_socket(void **state)
{
    world *w = *state;
    int pair[2];
    uint8_t body[300], m[36];
    w->cfg.burst = 7;
    twin_script(w, pair);
    close(pair[1]);
    assert_true(dxpu_vfuc_device(w->c)->twin);
    for (unsigned n = 1; n <= 20; n++) {
        assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, n), DXPU_OK);
        expect_command(w, READ);
        memset(body, 0, sizeof body);
        put64(body, 64);
        put64(body + 8, 4);
        for (unsigned i = 0; i < 100; i++)
            send_message(pair[0], i, DWRITE, NO_REPLY, body, 20);
        answer_read(w);
        w->count = 0;
        await(w, DONE, 1);
        assert_int_equal(seen(w, DMA_WRITE), 100);
        assert_int_equal(last(w)->what, DONE);
    }
    memset(body, 0, sizeof body);
    put64(body, 64);
    put64(body + 8, 16);
    send_message(pair[0], 77, DREAD, 0, body, 16);
    pump(w);
    assert_false(receive(w, w->peer));
    assert_true(receive(w, pair[0])); /* answered where it was asked */
    assert_int_equal(get16(w->in), 77);
    assert_int_equal(get32(w->in + 4), 48);
    /* a reply behind half a message waits for its rest, and does not spin */
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 99), DXPU_OK);
    expect_command(w, READ);
    make_write(m);
    send_fd(pair[0], m, 10, -1);
    answer_read(w);
    w->count = 0;
    pump(w);
    assert_int_equal(w->count, 0);
    send_fd(pair[0], m + 10, 26, -1);
    pump(w);
    assert_int_equal(w->count, 2);
    assert_int_equal(last(w)->what, DONE);
    close(pair[0]);
    await(w, GONE, 1);
}

static void test_server_that_never_answers(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 20;
    w->cfg.reset_ms = 40;
    link_up(w);
    await(w, GONE, 1); /* not even the version */
    assert_string_equal(w->why, "the server does not answer");
    close(w->peer);
    dxpu_vfuc_close(w->c);
    w->c = NULL;
    w->cfg.answer_ms = 10000;
    w->count = 0;
    script(w, "");
    assert_int_equal(dxpu_vfuc_reset(w->c, 1), DXPU_OK);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 2), DXPU_OK);
    await(w, GONE, 1);
    assert_string_equal(w->why, "the server does not end a reset");
    assert_int_equal(dxpu_vfuc_count(w->c)->timeouts, 1);
    assert_int_equal(seen(w, DONE), 0);
}

/* The timer rings while no server is connected, or in the turn in which one is lost: the next
   server has its time all the same. */
static void test_s242_next_server_never_answers(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 50;
    link_up(w);
    expect_command(w, VERSION);
    lose_peer(w);
    await(w, GONE, 1);
    usleep(80000);
    pump(w);
    link_up(w);
    dxpu_vfuc_disconnect(w->c, "test");
    usleep(80000);
    await(w, GONE, 2);
    assert_string_equal(w->why, "test");
    lose_peer(w);
    link_up(w);
    await(w, GONE, 3);
    assert_string_equal(w->why, "the server does not answer");
}

/* Pauses stop the server's time, and do not begin it again. */
static void test_s242_pauses_do_not_help(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 200;
    script(w, "");
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_OK);
    for (unsigned i = 0; i < 1000 && !seen(w, GONE); i++) {
        usleep(10000);
        dxpu_vfuc_pause(w->c, true);
        dxpu_vfuc_pause(w->c, false);
        pump(w);
    }
    assert_int_equal(seen(w, GONE), 1);
    assert_string_equal(w->why, "the server does not answer");
}

static void test_s242_time_in_a_pause_is_the_owners(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 500;
    script(w, "");
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_OK);
    expect_command(w, READ);
    dxpu_vfuc_pause(w->c, true);
    usleep(1000000);
    pump(w);
    dxpu_vfuc_pause(w->c, false);
    answer_read(w);
    await(w, DONE, 1);
    assert_int_equal(seen(w, GONE), 0);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_OK);
    await(w, GONE, 1); /* control */
}

/* The same of a server whose DMA the owner has not answered: the rest of what it sent is not read
   meanwhile. */
static void test_s242_time_of_a_stall_is_the_owners(void **state)
{
    world *w = *state;
    uint8_t body[20] = { 0 };
    w->cfg.answer_ms = 500;
    w->cfg.dma_commands = 1;
    w->keep = true;
    script(w, "");
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_OK);
    expect_command(w, READ);
    put64(body + 8, 4);
    send_message(w->peer, 1, DREAD, 0, body, 16);
    send_message(w->peer, 2, DREAD, 0, body, 16);
    answer_read(w);
    pump(w);
    assert_int_equal(dxpu_vfuc_count(w->c)->stalls, 1);
    usleep(1000000);
    pump(w);
    assert_int_equal(seen(w, GONE) + seen(w, DONE), 0);
    assert_int_equal(dxpu_vfuc_dma_reply_read(w->c, last(w)->tag, body, 4), DXPU_OK);
    await(w, DONE, 1);
    assert_int_equal(seen(w, GONE), 0);
}

/* Posted writes alone, which nothing answers. */
static void test_s242_server_that_does_not_read(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 100;
    script(w, "");
    while (dxpu_vfuc_write(w->c, 0, 0, w->memory, 64, true, 0) == DXPU_OK)
        continue;
    await(w, GONE, 1);
    assert_string_equal(w->why, "the server does not read");
    assert_int_equal(dxpu_vfuc_count(w->c)->timeouts, 1);
}

/* Answers to its own DMA fill the output, so that nothing of it is read either. */
static void test_s242_server_that_asks_and_does_not_read(void **state)
{
    world *w = *state;
    uint8_t body[16] = { 0 };
    w->cfg.answer_ms = 100;
    script(w, "");
    put64(body + 8, 4096);
    for (unsigned i = 0; i < 120; i++) {
        send_message(w->peer, i, DREAD, 0, body, 16);
        pump(w);
    }
    assert_true(dxpu_vfuc_count(w->c)->stalls > 0);
    await(w, GONE, 1);
    assert_string_equal(w->why, "the server does not read");
}

/* One that reads a little now and then is slow, no more. */
static void test_slow_server_stays(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 600;
    script(w, "");
    while (dxpu_vfuc_write(w->c, 0, 0, w->memory, 64, true, 0) == DXPU_OK)
        continue;
    for (unsigned i = 0; i < 10; i++) {
        usleep(100000);
        pump(w);
        for (unsigned k = 0; k < 4; k++)
            assert_true(receive(w, w->peer));
    }
    assert_int_equal(seen(w, GONE), 0);
    await(w, GONE, 1); /* control */
}

/* What waited behind a reset has no more than answer_ms from its end on. */
static void test_s242_no_answer_behind_a_reset(void **state)
{
    world *w = *state;
    w->cfg.answer_ms = 50;
    w->cfg.reset_ms = 600000;
    script(w, "");
    assert_int_equal(dxpu_vfuc_reset(w->c, 1), DXPU_OK);
    assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 2), DXPU_OK);
    expect_command(w, RESET);
    usleep(80000); /* the timer rings, and is set for the reset */
    pump(w);
    answer(w, NULL, 0);
    await(w, GONE, 1);
    assert_string_equal(w->why, "the server does not answer");
}

/* Refusals fill the output, and the next question finds no room. */
static void test_no_room_for_a_question(void **state)
{
    world *w = *state;
    uint8_t body[64], version[16];
    link_up(w);
    expect_command(w, VERSION);
    memcpy(version, w->in, sizeof version);
    while (w->cfg.queue_bytes - dxpu_vfuc_waiting_bytes(w->c) >= 32) {
        send_message(w->peer, 1, 0xffff, 0, NULL, 0);
        pump(w);
    }
    assert_int_equal(seen(w, GONE), 0);
    memcpy(w->in, version, sizeof version);
    answer(w, body, version_body(body, 0, 1, ""));
    pump(w);
    assert_int_equal(seen(w, GONE), 1);
    assert_string_equal(w->why, "the server does not read");
}

static int post(world *w, unsigned number)
{
    return dxpu_vfuc_write(w->c, 0, number % 1024 * 8, &number, 4, true, 0);
}

/* The message that was received last has one write or several, numbered from `first` on: how
   many. */
static unsigned expect_writes(const world *w, unsigned first)
{
    const uint8_t *p = w->in + 16;
    unsigned many = 1;
    assert_int_equal(get32(w->in + 8), NO_REPLY);
    if (get16(w->in + 2) == MULTI) {
        many = (unsigned)get64(p);
        assert_int_equal(get32(w->in + 4), 24 + 24 * many);
        p += 8;
    } else {
        assert_int_equal(get16(w->in + 2), WRITE);
    }
    for (unsigned i = first; i < first + many; i++, p += 24) {
        assert_int_equal(get64(p), i % 1024 * 8);
        assert_int_equal(get32(p + 12), 4);
        assert_int_equal(get32(p + 16), i);
    }
    return many;
}

/* While the socket is full posted writes share messages, in their order. */
static void test_posted_writes_share_messages(void **state)
{
    world *w = *state;
    unsigned sent = 0, got = 0, several = 0;
    int small = 0;
    script(w, "{\"capabilities\":{\"write_multiple\":true}}");
    assert_int_equal(setsockopt(w->peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    while (post(w, sent) == DXPU_OK)
        sent++;
    assert_true(dxpu_vfuc_count(w->c)->writes_shared > 100);
    while (got < sent) {
        unsigned many;
        pump(w);
        if (!receive(w, w->peer))
            continue;
        many = expect_writes(w, got);
        several += many > 1;
        got += many;
    }
    assert_int_equal(got, sent);
    assert_true(several > 0);
}

/* Whatever is put behind a message of several ends it: a request, a refusal, an answer. */
static void test_shared_messages_end(void **state)
{
    static const unsigned behind[] = { READ, 0xffff, DREAD };
    world *w = *state;
    uint8_t body[16] = { 0 };
    unsigned sent = 0, got = 0, others = 0, before[3];
    script(w, "{\"capabilities\":{\"write_multiple\":true}}");
    put64(body + 8, 4);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t shared = dxpu_vfuc_count(w->c)->writes_shared;
        while (dxpu_vfuc_count(w->c)->writes_shared < shared + 3)
            assert_int_equal(post(w, sent++), DXPU_OK);
        before[i] = sent;
        if (i == 0)
            assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 4, 1), DXPU_OK);
        else
            send_message(w->peer, 1, behind[i], 0, body, sizeof body);
        pump(w);
    }
    assert_int_equal(post(w, sent++), DXPU_OK);
    for (unsigned i = 0; got < sent; i++) {
        assert_true(i < TURNS);
        pump(w);
        if (!receive(w, w->peer))
            continue;
        if (others < 3 && get16(w->in + 2) == behind[others])
            assert_int_equal(got, before[others++]);
        else
            got += expect_writes(w, got);
    }
    assert_int_equal(others, 3);
}

/* Carry bytes between the client and a server, and keep what the server says. */
static size_t relay(world *w, dxpu_vfu *server, int there, uint8_t *session, size_t room)
{
    uint8_t body[300];
    size_t len = 0;
    for (int i = 0; i < 200; i++) {
        ssize_t n;
        if (seen(w, READY) == 1) {
            assert_int_equal(dxpu_vfuc_read(w->c, 0, 0, 64, 1), DXPU_OK);
            assert_int_equal(dxpu_vfu_dma_send_read(server, 0, 64, 7), DXPU_OK);
            w->count = 0;
        }
        pump(w);
        n = recv(w->peer, body, sizeof body, MSG_DONTWAIT);
        if (n > 0)
            assert_int_equal(send(there, body, (size_t)n, MSG_NOSIGNAL), n);
        assert_int_equal(dxpu_vfu_process(server), DXPU_OK);
        n = recv(there, session + len, room - len, MSG_DONTWAIT);
        if (n > 0) {
            assert_int_equal(send(w->peer, session + len, (size_t)n, MSG_NOSIGNAL), n);
            len += (size_t)n;
        }
    }
    return len;
}

/* What the server says in a session with a read and its own DMA. */
static size_t record(world *w, uint8_t *session, size_t room)
{
    int pair[2];
    size_t len;
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb = { w, server_read, server_write, NULL, NULL, NULL, NULL };
    const char *why;
    dxpu_vfu *server;
    dxpu_vfu_config_default(&cfg);
    cfg.region[0].bytes = BAR_BYTES;
    cfg.region[0].access = 3;
    cfg.irqs[DXPU_VFU_MSIX] = 4;
    server = dxpu_vfu_open(&cfg, &cb, &why);
    assert_non_null(server);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(dxpu_vfu_adopt(server, pair[1]), DXPU_OK);
    link_up(w);
    w->late = server;
    len = relay(w, server, pair[0], session, room);
    dxpu_vfu_close(server);
    close(pair[0]);
    assert_int_equal(seen(w, DONE), 1);
    assert_int_equal(seen(w, DMA_READ), 1);
    return len;
}

/* A session cut at each of its bytes. */
static void test_disconnect_at_every_byte(void **state)
{
    world *w = *state;
    static uint8_t session[8192];
    size_t len = record(w, session, sizeof session), cut;
    int before;
    assert_true(len > 600);
    lose_peer(w);
    await(w, GONE, 1);
    dxpu_vfuc_close(w->c);
    w->c = NULL;
    before = open_fds();
    for (cut = 0; cut <= len; cut++) {
        w->count = 0;
        link_up(w); /* a new client: ids begin again */
        if (cut)
            assert_int_equal(send(w->peer, session, cut, MSG_NOSIGNAL), cut);
        pump(w);
        lose_peer(w);
        pump(w);
        assert_int_equal(seen(w, GONE), 1);
        assert_false(dxpu_vfuc_is_connected(w->c));
        dxpu_vfuc_close(w->c);
        w->c = NULL;
    }
    assert_int_equal(seen(w, READY), 1); /* the last ones were whole */
    assert_int_equal(settled_fds(before), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_device_is_described, start, stop),
        cmocka_unit_test_setup_teardown(test_reads_and_writes, start, stop),
        cmocka_unit_test_setup_teardown(test_requests_are_checked, start, stop),
        cmocka_unit_test_setup_teardown(test_dma_by_message, start, stop),
        cmocka_unit_test_setup_teardown(test_dma_tokens, start, stop),
        cmocka_unit_test_setup_teardown(test_interrupts_follow_dma, start, stop),
        cmocka_unit_test_setup_teardown(test_interrupt_raised_twice, start, stop),
        cmocka_unit_test_setup_teardown(test_reset, start, stop),
        cmocka_unit_test_setup_teardown(test_pause, start, stop),
        cmocka_unit_test_setup_teardown(test_server_goes_and_returns, start, stop),
        cmocka_unit_test_setup_teardown(test_connects_by_path, start, stop),
        cmocka_unit_test_setup_teardown(test_configuration_is_checked, start, stop),
        cmocka_unit_test_setup_teardown(test_versions_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_first_answer_must_be_the_version, start, stop),
        cmocka_unit_test_setup_teardown(test_descriptions_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_descriptions_bounded, start, stop),
        cmocka_unit_test_setup_teardown(test_interrupts_in_pieces_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_interrupts_in_too_many_pieces, start, stop),
        cmocka_unit_test_setup_teardown(test_descriptors_on_their_way, start, stop),
        cmocka_unit_test_setup_teardown(test_s241_replies_that_do_not_fit, start, stop),
        cmocka_unit_test_setup_teardown(test_dma_commands_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_dma_write_answered, start, stop),
        cmocka_unit_test_setup_teardown(test_s241_impossible_headers, start, stop),
        cmocka_unit_test_setup_teardown(test_second_socket_must_be_connected, start, stop),
        cmocka_unit_test_setup_teardown(test_s241_options_of_the_second_socket, start, stop),
        cmocka_unit_test_setup_teardown(test_second_socket_leaves_time_for_the_first, start, stop),
        cmocka_unit_test_setup_teardown(test_twin_socket, start, stop),
        cmocka_unit_test_setup_teardown(test_server_that_never_answers, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_next_server_never_answers, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_pauses_do_not_help, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_time_in_a_pause_is_the_owners, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_time_of_a_stall_is_the_owners, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_server_that_does_not_read, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_server_that_asks_and_does_not_read, start, stop),
        cmocka_unit_test_setup_teardown(test_slow_server_stays, start, stop),
        cmocka_unit_test_setup_teardown(test_s242_no_answer_behind_a_reset, start, stop),
        cmocka_unit_test_setup_teardown(test_no_room_for_a_question, start, stop),
        cmocka_unit_test_setup_teardown(test_posted_writes_share_messages, start, stop),
        cmocka_unit_test_setup_teardown(test_shared_messages_end, start, stop),
        cmocka_unit_test_setup_teardown(test_disconnect_at_every_byte, start, stop),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
