/* world.c - see world.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Time   2 Links   3 Proxies and network   4 Root complex   5 GPUs   6 A run */
#include "world.h"

#include <stdlib.h>

enum { HOST, BOX, ENDS };      /* of a channel */
enum { UP, DOWN, DIRECTIONS }; /* towards the host, towards the GPU */
enum {
    PS = 1000,             /* in a nanosecond */
    TLP_BYTES = 20 + 4096, /* of the longest one here */
    LINK_BYTES = 8,        /* PCIe: as in bindings/model */
    LINK_CREDITS = 64,     /* headers of writes that the other end of a PCIe link holds */
    START_NS = 1000000,
    LAUNCHES = 64, /* that the host is ahead at most */
    DOORBELL_BYTES = 4,
    FETCH_BYTES = 64
};
#define READ_BASE 0x8000000000ull

typedef struct packet {
    struct packet *next;
    uint32_t len;
    uint8_t bytes[];
} packet;

typedef struct event {
    uint64_t at_ps, serial;
    packet *what;
    uint8_t kind, gpu, end;
} event;

typedef struct wire {
    uint64_t free_ps, busy_ps;
    double ps_per_byte;
} wire;

typedef struct queue {
    packet *head, **tail;
} queue;

typedef struct station { /* one end of one channel, and what waits to go into it */
    dxpu_channel ch;
    void *mem;
    queue in; /* from PCIe */
    uint64_t wake_ps;
} station;

typedef struct gpu {
    station end[ENDS];
    wire link[DIRECTIONS];
    dxpu_tags tags;
    dxpu_tag_entry *entries;
    dxpu_credits used, limit; /* of its writes */
    uint64_t next_address;
} gpu;

typedef struct world {
    const perf_scene *sc;
    perf_result *out;
    event *heap;
    size_t len, cap;
    uint64_t serial, now_ps, measure_ps, bytes;
    uint64_t convert_ps, cross_ps, root_ps; /* in one proxy; between them, one way */
    wire slot[DIRECTIONS];                  /* the host proxy's place in the host, shared */
    wire net[DIRECTIONS];
    bool net_armed[DIRECTIONS], take_armed[PERF_GPUS_MAX + 1][DIRECTIONS];
    unsigned net_turn[DIRECTIONS];
    gpu g[PERF_GPUS_MAX];
    dxpu_credits push_used, push_limit;
    bool single, failed;
    uint64_t single_done_ps;
    /* kernels */
    uint64_t launched, rung, done, measure_done, next_launch_ps, measured_at_ps;
    uint32_t fetches_left;
    double fetch_debt;
    bool running, launch_held;
    uint8_t tlp[TLP_BYTES], frame[DXPU_FRAME_MAX_LIMIT_BYTES];
} world;

enum {
    EV_AT_BOX,  /* a TLP has crossed the GPU's link upwards */
    EV_AT_GPU,  /* ... downwards */
    EV_AT_ROOT, /* ... the host slot's link upwards */
    EV_AT_HOST, /* ... downwards */
    EV_ANSWER,  /* host memory has been read */
    EV_SENT,    /* a frame is converted, and on the network */
    EV_CAME,    /* ... off it */
    EV_FRAME,   /* ... at the channel's other end */
    EV_WAKE,
    EV_NET,  /* the network is free for the next frame */
    EV_TAKE, /* the PCIe link behind a proxy is free for the next TLP */
    EV_LAUNCH,
    EV_KERNEL_END
};

/* ==== 1  Time ================================================================================= */

static bool earlier(const event *a, const event *b)
{
    return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->serial < b->serial;
}

static event event_of(unsigned kind, unsigned g, unsigned end, packet *what, uint64_t at_ps)
{
    event e;
    memset(&e, 0, sizeof e);
    e.kind = (uint8_t)kind;
    e.gpu = (uint8_t)g;
    e.end = (uint8_t)end;
    e.what = what;
    e.at_ps = at_ps;
    return e;
}

static void push(world *w, event e)
{
    size_t i;
    if (w->len == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 1024;
        event *heap = realloc(w->heap, cap * sizeof *heap);
        if (!heap) {
            free(e.what);
            w->failed = true;
            return;
        }
        w->heap = heap;
        w->cap = cap;
    }
    e.serial = w->serial++;
    for (i = w->len++; i && earlier(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static event pop(world *w)
{
    event top = w->heap[0], last = w->heap[--w->len];
    size_t i = 0, c;
    while ((c = 2 * i + 1) < w->len) {
        if (c + 1 < w->len && earlier(&w->heap[c + 1], &w->heap[c]))
            c++;
        if (!earlier(&w->heap[c], &last))
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    w->heap[i] = last;
    return top;
}

static uint64_t now_ns(const world *w)
{
    return w->now_ps / PS;
}

static uint64_t us_ps(double us)
{
    return (uint64_t)(us * 1e6 + 0.5);
}

static void stamp(world *w, unsigned which)
{
    if (w->single && w->out->stamp_us[which] <= 0)
        w->out->stamp_us[which] = (double)(w->now_ps - (uint64_t)START_NS * PS) / 1e6;
}

/* ==== 2  Links ================================================================================ */

static packet *packet_of(world *w, const uint8_t *bytes, size_t len)
{
    packet *p = malloc(sizeof *p + len);
    if (!p) {
        w->failed = true;
        return NULL;
    }
    p->next = NULL;
    p->len = (uint32_t)len;
    memcpy(p->bytes, bytes, len);
    return p;
}

static packet *packet_encode(world *w, const dxpu_tlp *t)
{
    size_t len = 0;
    if (dxpu_tlp_encode(t, w->tlp, sizeof w->tlp, &len) != DXPU_OK) {
        w->failed = true;
        return NULL;
    }
    return packet_of(w, w->tlp, len);
}

static void queue_add(queue *q, packet *p)
{
    if (!q->head)
        q->tail = &q->head;
    *q->tail = p;
    q->tail = &p->next;
}

static packet *queue_take(queue *q)
{
    packet *p = q->head;
    q->head = p->next;
    p->next = NULL;
    return p;
}

/* When the last of that many bytes has left, if they queue up now. */
static uint64_t wire_pass(const world *w, wire *l, double bytes)
{
    uint64_t takes = (uint64_t)(bytes * l->ps_per_byte + 0.5);
    l->free_ps = (l->free_ps > w->now_ps ? l->free_ps : w->now_ps) + takes;
    l->busy_ps += w->now_ps >= w->measure_ps ? takes : 0;
    return l->free_ps;
}

/* A TLP goes onto a PCIe link; what a proxy adds travels with it. */
static void link_send(world *w, wire *l, packet *p, unsigned kind, unsigned g)
{
    double bytes;
    if (!p)
        return;
    bytes = p->len + LINK_BYTES + (w->sc->pooled ? w->sc->m.proxy_bytes : 0);
    push(w, event_of(kind, g, 0, p, wire_pass(w, l, bytes)));
    w->out->tlps++;
}

/* ==== 3  Proxies and network ================================================================== */

static void net_pump(world *w, unsigned dir);

static void station_wake(world *w, unsigned g, unsigned end)
{
    station *s = &w->g[g].end[end];
    uint64_t next = dxpu_channel_next_ns(&s->ch), free_ps = w->net[end == BOX ? UP : DOWN].free_ps;
    if (next == DXPU_NEVER)
        return;
    next = next * PS > w->now_ps ? next * PS : w->now_ps + PS;
    next = next > free_ps ? next : free_ps; /* no frame leaves before */
    if (s->wake_ps > w->now_ps && s->wake_ps <= next)
        return; /* it looks again then */
    s->wake_ps = next;
    push(w, event_of(EV_WAKE, g, end, NULL, next));
}

static void credit_back(world *w, unsigned g, unsigned end, const packet *p);

/* What came from PCIe goes into the channel while it has room. */
static void station_submit(world *w, unsigned g, unsigned end)
{
    station *s = &w->g[g].end[end];
    while (s->in.head) {
        dxpu_bytes tlp = { s->in.head->bytes, s->in.head->len };
        int rc = dxpu_channel_submit(&s->ch, tlp, now_ns(w), 0);
        packet *p;
        if (rc == DXPU_E_AGAIN)
            break;
        w->failed |= rc != DXPU_OK;
        p = queue_take(&s->in);
        credit_back(w, g, end, p);
        free(p);
    }
    net_pump(w, end == BOX ? UP : DOWN);
    station_wake(w, g, end);
}

/* The next frame of the channels that share this direction, in turn. */
static void net_pump(world *w, unsigned dir)
{
    unsigned end = dir == UP ? BOX : HOST;
    wire *l = &w->net[dir];
    for (unsigned tried = 0; tried < w->sc->m.gpus && l->free_ps <= w->now_ps;) {
        unsigned g = w->net_turn[dir]++ % w->sc->m.gpus;
        uint8_t path;
        double bytes;
        int n =
            dxpu_channel_emit(&w->g[g].end[end].ch, now_ns(w), w->frame, sizeof w->frame, &path);
        packet *p;
        w->failed |= n < 0;
        if (n <= 0) {
            tried++;
            continue;
        }
        tried = 0;
        bytes = n + DXPU_MODEL_UDP_BYTES + DXPU_MODEL_ETHERNET_BYTES;
        w->out->frames++;
        w->out->frame_bytes += (unsigned)n;
        p = packet_of(w, w->frame, (size_t)n);
        if (!p)
            return;
        push(w, event_of(EV_SENT, g, 1 - end, p, wire_pass(w, l, bytes) + w->convert_ps));
    }
    if (l->free_ps > w->now_ps && !w->net_armed[dir]) {
        w->net_armed[dir] = true;
        push(w, event_of(EV_NET, 0, dir, NULL, l->free_ps));
    }
}

/* One TLP leaves a channel; false when nothing does now. */
static bool take_one(world *w, unsigned g, unsigned end)
{
    static const uint8_t order[] = { DXPU_POSTED, DXPU_COMPLETION, DXPU_NONPOSTED };
    station *s = &w->g[g].end[end];
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        dxpu_delivery d = dxpu_channel_peek(&s->ch, order[i]);
        if (!d.tlp.len)
            continue;
        if (end == BOX) {
            link_send(w, &w->g[g].link[DOWN], packet_of(w, d.tlp.ptr, d.tlp.len), EV_AT_GPU, g);
        } else if (w->sc->traffic == PERF_PEER) { /* its way leads down again, to GPU 1 */
            if (dxpu_channel_submit(&w->g[1].end[HOST].ch, d.tlp, now_ns(w), 0) != DXPU_OK)
                return false;
        } else {
            link_send(w, &w->slot[UP], packet_of(w, d.tlp.ptr, d.tlp.len), EV_AT_ROOT, g);
        }
        (void)dxpu_channel_take(&s->ch, order[i], now_ns(w));
        return true;
    }
    return false;
}

/* What arrived goes on to PCIe as fast as the link there takes it. */
static void station_take(world *w, unsigned g, unsigned end)
{
    wire *l = end == BOX ? &w->g[g].link[DOWN] : &w->slot[UP];
    bool *armed = end == BOX ? &w->take_armed[g][DOWN] : &w->take_armed[PERF_GPUS_MAX][UP];
    while (l->free_ps <= w->now_ps && take_one(w, g, end))
        ;
    if (l->free_ps > w->now_ps && !*armed) {
        *armed = true;
        push(w, event_of(EV_TAKE, g, end, NULL, l->free_ps));
    }
    if (w->sc->traffic == PERF_PEER && end == HOST) {
        net_pump(w, DOWN);
        station_wake(w, 1, HOST);
    }
    net_pump(w, end == BOX ? UP : DOWN); /* credits travel back */
    station_wake(w, g, end);
}

static void on_take(world *w, const event *e)
{
    if (e->end == BOX) {
        w->take_armed[e->gpu][DOWN] = false;
        station_take(w, e->gpu, BOX);
        return;
    }
    w->take_armed[PERF_GPUS_MAX][UP] = false;
    for (unsigned i = 0; i < w->sc->m.gpus; i++) /* the one behind it first */
        station_take(w, (e->gpu + 1 + i) % w->sc->m.gpus, HOST);
}

/* From one end of the channel to the other: conversion, network, conversion. */
static void on_way(world *w, event *e)
{
    bool sent = e->kind == EV_SENT, up = e->end == HOST;
    stamp(w, up ? (sent ? PERF_SENT : PERF_CAME) : (sent ? PERF_SENT_AGAIN : PERF_CAME_AGAIN));
    push(w, event_of(sent ? EV_CAME : EV_FRAME, e->gpu, e->end, e->what,
                     w->now_ps + (sent ? w->cross_ps : w->convert_ps)));
    e->what = NULL;
}

static void on_frame(world *w, const event *e)
{
    station *s = &w->g[e->gpu].end[e->end];
    w->failed |= dxpu_channel_ingest(&s->ch, now_ns(w), e->what->bytes, e->what->len, 0) != DXPU_OK;
    stamp(w, e->end == HOST ? PERF_AT_HOST : PERF_AT_BOX_AGAIN);
    station_take(w, e->gpu, e->end);
    station_submit(w, e->gpu, e->end);
}

static int station_open(world *w, gpu *g)
{
    dxpu_channel_config cfg;
    uint32_t reads = w->single ? 1 : w->sc->m.tags, frames = w->sc->window_frames;
    uint32_t units = reads * w->sc->m.mrs_bytes / 16 + 4096;
    uint64_t t = START_NS - 200000;
    uint8_t path;
    int n;
    dxpu_channel_config_default(&cfg);
    cfg.lossless = true;
    cfg.window_frames = w->single && frames > 256 ? 256 : frames;
    cfg.frame_limit_bytes = w->sc->m.mtu_bytes - DXPU_MODEL_UDP_BYTES;
    cfg.epoch = 1;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        cfg.rx.header[cls] = cfg.tx.header[cls] = w->single ? 256 : 8192;
        cfg.rx.data[cls] = cfg.tx.data[cls] = units;
    }
    cfg.rx.data[DXPU_POSTED] = w->sc->posted_bytes / 16;
    cfg.tx.data[DXPU_POSTED] = units + w->sc->posted_bytes / 8; /* acknowledgements are later yet */
    for (unsigned end = 0; end < ENDS; end++) {
        size_t bytes = dxpu_channel_bytes(&cfg);
        cfg.local_id = 1 + end;
        g->end[end].mem = bytes ? malloc(bytes) : NULL;
        if (!g->end[end].mem)
            return bytes ? DXPU_E_FULL : DXPU_E_ARG;
        if (dxpu_channel_init(&g->end[end].ch, &cfg, g->end[end].mem, bytes) != DXPU_OK)
            return DXPU_E_ARG;
    }
    (void)dxpu_channel_open(&g->end[HOST].ch, t);
    n = dxpu_channel_emit(&g->end[HOST].ch, t, w->frame, sizeof w->frame, &path);
    if (n <= 0 || dxpu_channel_accept(&g->end[BOX].ch, t, w->frame, (size_t)n) != DXPU_OK)
        return DXPU_E_ARG;
    for (unsigned i = 0; i < 64; i++, t += 2000) {
        unsigned end = i & 1 ? HOST : BOX;
        while ((n = dxpu_channel_emit(&g->end[end].ch, t, w->frame, sizeof w->frame, &path)) > 0)
            (void)dxpu_channel_ingest(&g->end[1 - end].ch, t, w->frame, (size_t)n, 0);
    }
    return dxpu_channel_status(&g->end[BOX].ch).state == DXPU_STATE_UP ? DXPU_OK : DXPU_E_ARG;
}

/* ==== 4  Root complex ========================================================================= */

static void memory_tlp(dxpu_tlp *t, uint8_t type, uint64_t address, uint32_t bytes)
{
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = 4;
    t->address = address;
    t->length_dw = (uint16_t)(bytes / 4);
    t->first_be = 0xf;
    t->last_be = bytes > 4 ? 0xf : 0;
}

static void from_root(world *w, unsigned g, packet *p)
{
    if (w->sc->pooled)
        link_send(w, &w->slot[DOWN], p, EV_AT_HOST, g);
    else
        link_send(w, &w->g[g].link[DOWN], p, EV_AT_GPU, g);
}

/* The data of a read, in completions of one size. */
static void answer(world *w, unsigned g, const packet *p)
{
    static const uint8_t zeros[4096];
    dxpu_bytes in = { p->bytes, p->len };
    dxpu_tlp read, cpl;
    uint32_t left, piece;
    uint64_t address;
    if (dxpu_tlp_decode(in, &read) != DXPU_OK) {
        w->failed = true;
        return;
    }
    address = read.address;
    for (left = read.length_dw * 4u; left; left -= piece, address += piece) {
        piece = left < w->sc->m.completion_bytes ? left : w->sc->m.completion_bytes;
        dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &cpl);
        cpl.byte_count = (uint16_t)left;
        cpl.lower_addr = (uint8_t)(address & 0x7f);
        cpl.length_dw = (uint16_t)(piece / 4);
        cpl.payload.ptr = zeros;
        cpl.payload.len = piece;
        from_root(w, g, packet_encode(w, &cpl));
    }
}

/* The host writes while its link's other end takes it. */
static void push_more(world *w)
{
    static const uint8_t zeros[4096];
    uint32_t bytes = w->sc->m.push_bytes, units = dxpu_credit_units(bytes);
    while (w->sc->traffic == PERF_PUSH && !w->single &&
           dxpu_credit_fits(&w->push_limit, &w->push_used, DXPU_POSTED, units)) {
        dxpu_tlp t;
        memory_tlp(&t, DXPU_TLP_MWR, READ_BASE, bytes);
        t.payload.ptr = zeros;
        t.payload.len = bytes;
        dxpu_credit_add(&w->push_used, DXPU_POSTED, units);
        from_root(w, (unsigned)(w->push_used.header[DXPU_POSTED] % w->sc->m.gpus),
                  packet_encode(w, &t));
    }
}

static void launch(world *w)
{
    static const uint8_t zeros[DOORBELL_BYTES];
    dxpu_tlp t;
    if (w->launched - w->done == LAUNCHES) {
        w->launch_held = true;
        return;
    }
    memory_tlp(&t, DXPU_TLP_MWR, READ_BASE, DOORBELL_BYTES);
    t.payload.ptr = zeros;
    t.payload.len = DOORBELL_BYTES;
    w->launched++;
    from_root(w, 0, packet_encode(w, &t));
    push(w, event_of(EV_LAUNCH, 0, 0, NULL, w->now_ps + us_ps(w->sc->launch_us) + 1));
}

static void gpu_write_more(world *w, unsigned g);

static void on_root(world *w, event *e)
{
    dxpu_tlp_shape shape;
    dxpu_bytes in = { e->what->bytes, e->what->len };
    stamp(w, PERF_AT_ROOT);
    if (dxpu_tlp_measure(in, &shape) == DXPU_OK && shape.cls == DXPU_NONPOSTED) {
        push(w, event_of(EV_ANSWER, e->gpu, 0, e->what, w->now_ps + w->root_ps));
        e->what = NULL;
        return;
    }
    if (w->now_ps >= w->measure_ps && w->sc->traffic != PERF_KERNELS)
        w->bytes += shape.payload_bytes;
    if (!w->sc->pooled) { /* taken at once */
        dxpu_credit_add(&w->g[e->gpu].limit, DXPU_POSTED, dxpu_credit_units(shape.payload_bytes));
        gpu_write_more(w, e->gpu);
    }
}

/* ==== 5  GPUs ================================================================================= */

static bool gpu_read(world *w, unsigned which, uint32_t bytes)
{
    gpu *g = &w->g[which];
    int tag = dxpu_tags_alloc(&g->tags);
    dxpu_tlp t;
    if (tag < 0)
        return false; /* Figure 3 (b) of the paper: the next one waits for a completion */
    memory_tlp(&t, DXPU_TLP_MRD, READ_BASE + g->next_address, bytes);
    t.tag = (uint16_t)tag;
    t.requester = g->tags.requester;
    g->next_address = (g->next_address + bytes) & 0xfffff;
    w->failed |= dxpu_tags_track(&g->tags, &t, now_ns(w), 0) != DXPU_OK;
    link_send(w, &g->link[UP], packet_encode(w, &t), w->sc->pooled ? EV_AT_BOX : EV_AT_ROOT, which);
    return true;
}

static void gpu_write_more(world *w, unsigned which)
{
    static const uint8_t zeros[4096];
    gpu *g = &w->g[which];
    uint32_t bytes = w->sc->m.mps_bytes, units = dxpu_credit_units(bytes);
    bool writes = w->sc->traffic == PERF_WRITE || (w->sc->traffic == PERF_PEER && which == 0);
    while (writes && !w->single && dxpu_credit_fits(&g->limit, &g->used, DXPU_POSTED, units)) {
        dxpu_tlp t;
        memory_tlp(&t, DXPU_TLP_MWR, READ_BASE, bytes);
        t.requester = g->tags.requester;
        t.payload.ptr = zeros;
        t.payload.len = bytes;
        dxpu_credit_add(&g->used, DXPU_POSTED, units);
        link_send(w, &g->link[UP], packet_encode(w, &t), w->sc->pooled ? EV_AT_BOX : EV_AT_ROOT,
                  which);
    }
}

/* A proxy has passed on a write: its sender may send another one. */
static void credit_back(world *w, unsigned g, unsigned end, const packet *p)
{
    dxpu_tlp_shape shape;
    dxpu_bytes in = { p->bytes, p->len };
    if (dxpu_tlp_measure(in, &shape) != DXPU_OK || shape.cls != DXPU_POSTED)
        return;
    if (end == BOX) {
        dxpu_credit_add(&w->g[g].limit, DXPU_POSTED, dxpu_credit_units(shape.payload_bytes));
        gpu_write_more(w, g);
    } else {
        dxpu_credit_add(&w->push_limit, DXPU_POSTED, dxpu_credit_units(shape.payload_bytes));
        push_more(w);
    }
}

/* A kernel begins once its doorbell has rung and its commands are fetched. */
static void kernel_step(world *w)
{
    double rest;
    if (w->running || w->rung == w->done)
        return;
    w->running = true;
    w->fetch_debt += w->sc->m.reads_per_kernel;
    w->fetches_left = (uint32_t)w->fetch_debt;
    w->fetch_debt -= w->fetches_left;
    if (w->fetches_left) {
        (void)gpu_read(w, 0, FETCH_BYTES);
        return;
    }
    rest = w->sc->kernel_us - w->sc->m.reads_per_kernel * w->sc->m.rtt_native_us;
    push(w, event_of(EV_KERNEL_END, 0, 0, NULL, w->now_ps + us_ps(rest > 0 ? rest : 0)));
}

static void kernel_fetched(world *w)
{
    double rest = w->sc->kernel_us - w->sc->m.reads_per_kernel * w->sc->m.rtt_native_us;
    if (--w->fetches_left)
        (void)gpu_read(w, 0, FETCH_BYTES);
    else
        push(w, event_of(EV_KERNEL_END, 0, 0, NULL, w->now_ps + us_ps(rest > 0 ? rest : 0)));
}

static void kernel_end(world *w)
{
    w->running = false;
    w->done++;
    w->measured_at_ps = w->now_ps;
    if (w->launch_held) {
        w->launch_held = false;
        launch(w);
    }
    kernel_step(w);
}

static void completion(world *w, unsigned which, const dxpu_tlp *t)
{
    gpu *g = &w->g[which];
    dxpu_request r;
    if (dxpu_tags_complete(&g->tags, t, &r) != DXPU_OK) {
        w->failed = true;
        return;
    }
    if (w->now_ps >= w->measure_ps)
        w->bytes += t->payload.len;
    if (!r.done)
        return;
    stamp(w, PERF_AT_GPU);
    if (w->single)
        w->single_done_ps = w->now_ps;
    else if (w->sc->traffic == PERF_KERNELS)
        kernel_fetched(w);
    else
        while (gpu_read(w, which, w->sc->m.mrs_bytes))
            ;
}

static void on_gpu(world *w, const event *e)
{
    dxpu_bytes in = { e->what->bytes, e->what->len };
    dxpu_tlp t;
    if (dxpu_tlp_decode(in, &t) != DXPU_OK) {
        w->failed = true;
    } else if (dxpu_tlp_class(&t) == DXPU_COMPLETION) {
        completion(w, e->gpu, &t);
    } else if (w->sc->traffic == PERF_KERNELS) {
        w->rung++;
        kernel_step(w);
    } else if (w->now_ps >= w->measure_ps) {
        w->bytes += t.payload.len;
    }
    if (!w->sc->pooled && w->sc->traffic == PERF_PUSH) {
        dxpu_credit_add(&w->push_limit, DXPU_POSTED, dxpu_credit_units((uint32_t)t.payload.len));
        push_more(w);
    }
}

/* ==== 6  A run ================================================================================ */

static void handle(world *w, event *e)
{
    w->now_ps = e->at_ps;
    switch (e->kind) {
    case EV_AT_BOX:
        stamp(w, PERF_AT_BOX);
        queue_add(&w->g[e->gpu].end[BOX].in, e->what);
        e->what = NULL;
        station_submit(w, e->gpu, BOX);
        break;
    case EV_AT_HOST:
        stamp(w, PERF_AT_HOST_AGAIN);
        queue_add(&w->g[e->gpu].end[HOST].in, e->what);
        e->what = NULL;
        station_submit(w, e->gpu, HOST);
        break;
    case EV_AT_GPU:
        on_gpu(w, e);
        break;
    case EV_AT_ROOT:
        on_root(w, e);
        break;
    case EV_ANSWER:
        answer(w, e->gpu, e->what);
        break;
    case EV_SENT:
    case EV_CAME:
        on_way(w, e);
        break;
    case EV_FRAME:
        on_frame(w, e);
        break;
    case EV_WAKE:
        if (w->g[e->gpu].end[e->end].wake_ps == e->at_ps)
            station_submit(w, e->gpu, e->end);
        break;
    case EV_NET:
        w->net_armed[e->end] = false;
        net_pump(w, e->end);
        break;
    case EV_TAKE:
        on_take(w, e);
        break;
    case EV_LAUNCH:
        launch(w);
        break;
    default:
        kernel_end(w);
        break;
    }
    free(e->what);
}

static double hops_us(const perf_scene *sc)
{
    return sc->pooled ? sc->more_hops * sc->hop_us : 0;
}

static double round_trip_us(const perf_scene *sc)
{
    return sc->pooled ? sc->m.rtt_us + 2 * hops_us(sc) : sc->m.rtt_native_us;
}

static void wires(world *w)
{
    const dxpu_model *m = &w->sc->m;
    double pcie = 1e3 / (dxpu_model_lanes_gbs(m->generation, m->lanes) * (1 - m->dllp_share));
    for (unsigned dir = 0; dir < DIRECTIONS; dir++) {
        w->slot[dir].ps_per_byte = pcie;
        w->net[dir].ps_per_byte = 8e3 / m->network_gbit_s;
        for (unsigned g = 0; g < m->gpus; g++)
            w->g[g].link[dir].ps_per_byte = pcie;
    }
}

static int world_begin(world *w)
{
    uint64_t half_ps;
    int rc = DXPU_OK;
    w->now_ps = (uint64_t)START_NS * PS;
    wires(w);
    half_ps = us_ps(dxpu_model_rtt_delta_us(&w->sc->m) / 2 + hops_us(w->sc));
    w->convert_ps = us_ps(dxpu_model_rtt_delta_us(&w->sc->m) / 4 * w->sc->conversion_share);
    w->cross_ps = half_ps > 2 * w->convert_ps ? half_ps - 2 * w->convert_ps : 0;
    w->push_limit.header[DXPU_POSTED] = LINK_CREDITS;
    w->push_limit.data[DXPU_POSTED] = LINK_CREDITS * 4096 / 16;
    for (unsigned i = 0; i < w->sc->m.gpus && rc == DXPU_OK; i++) {
        gpu *g = &w->g[i];
        unsigned mode = w->sc->m.tags <= DXPU_TAGS_256 ? DXPU_TAGS_256 : DXPU_TAGS_768;
        g->limit = w->push_limit;
        g->entries = calloc(w->sc->m.tags, sizeof *g->entries);
        if (!g->entries)
            return DXPU_E_FULL;
        rc = dxpu_tags_init(&g->tags, g->entries, w->sc->m.tags, DXPU_BDF(1 + i, 0, 0), mode,
                            DXPU_NEVER);
        if (rc == DXPU_OK && w->sc->pooled)
            rc = station_open(w, g);
    }
    return rc;
}

static void world_end(world *w)
{
    for (unsigned i = 0; i < w->sc->m.gpus; i++) {
        free(w->g[i].entries);
        for (unsigned e = 0; e < ENDS; e++) {
            station *s = &w->g[i].end[e];
            while (s->in.head)
                free(queue_take(&s->in));
            free(s->mem);
        }
    }
    while (w->len) {
        event e = pop(w);
        free(e.what);
    }
    free(w->heap);
    free(w);
}

static void start_traffic(world *w)
{
    for (unsigned g = 0; g < w->sc->m.gpus; g++) {
        if (w->sc->traffic == PERF_READ)
            while (gpu_read(w, g, w->sc->m.mrs_bytes))
                ;
        gpu_write_more(w, g);
    }
    push_more(w);
    if (w->sc->traffic == PERF_KERNELS)
        launch(w);
}

static bool step_until(world *w, uint64_t until_ps)
{
    while (w->len && w->heap[0].at_ps <= until_ps && !w->failed) {
        event e = pop(w);
        handle(w, &e);
        if (w->single && w->single_done_ps)
            break;
    }
    if (!w->single)
        w->now_ps = until_ps;
    return !w->failed;
}

/* A world of its own for each: *us gets the time of one read on it. */
static int one_read(const perf_scene *sc, perf_result *out, uint64_t root_ps, double *us)
{
    world *w = calloc(1, sizeof *w);
    int rc;
    if (!w)
        return DXPU_E_FULL;
    w->sc = sc;
    w->out = out;
    w->single = true;
    w->root_ps = root_ps;
    rc = world_begin(w);
    if (rc == DXPU_OK) {
        (void)gpu_read(w, 0, sc->traffic == PERF_KERNELS ? FETCH_BYTES : sc->m.mrs_bytes);
        if (!step_until(w, UINT64_MAX) || !w->single_done_ps)
            rc = DXPU_E_ARG;
        *us = (double)(w->single_done_ps - (uint64_t)START_NS * PS) / 1e6;
    }
    world_end(w);
    return rc;
}

static void results(world *w, uint64_t measured_ps)
{
    perf_result *r = w->out;
    uint64_t busy = 0;
    for (unsigned dir = 0; dir < DIRECTIONS; dir++) {
        busy = w->slot[dir].busy_ps > busy ? w->slot[dir].busy_ps : busy;
        for (unsigned i = 0; i < w->sc->m.gpus; i++)
            busy = w->g[i].link[dir].busy_ps > busy ? w->g[i].link[dir].busy_ps : busy;
    }
    r->gbs = (double)w->bytes * 1e3 / (double)measured_ps;
    r->link_share = (double)busy / (double)measured_ps;
    for (unsigned i = 0; i < w->sc->m.gpus && w->sc->pooled; i++) {
        for (unsigned e = 0; e < ENDS; e++)
            r->sent_again += w->g[i].end[e].ch.count.tx_retransmits;
    }
}

static int loaded(const perf_scene *sc, perf_result *out, uint64_t root_ps)
{
    world *w = calloc(1, sizeof *w);
    double rtt = round_trip_us(sc);
    double unit = sc->traffic == PERF_KERNELS ? sc->kernel_us + sc->launch_us + rtt : rtt;
    uint64_t half_ps = us_ps(unit * sc->round_trips), from_ps;
    int rc;
    if (!w)
        return DXPU_E_FULL;
    w->sc = sc;
    w->out = out;
    w->root_ps = root_ps;
    w->measure_ps = (uint64_t)START_NS * PS + half_ps;
    rc = world_begin(w);
    if (rc == DXPU_OK) {
        start_traffic(w);
        rc = step_until(w, w->measure_ps) ? DXPU_OK : DXPU_E_ARG;
        w->measure_done = w->done;
        from_ps = w->measured_at_ps;
        if (rc == DXPU_OK && !step_until(w, w->measure_ps + half_ps))
            rc = DXPU_E_ARG;
        results(w, half_ps);
        if (w->done > w->measure_done)
            out->period_us =
                (double)(w->measured_at_ps - from_ps) / 1e6 / (double)(w->done - w->measure_done);
    }
    world_end(w);
    return rc;
}

void perf_scene_default(perf_scene *sc)
{
    memset(sc, 0, sizeof *sc);
    dxpu_model_default(&sc->m);
    sc->pooled = true;
    sc->window_frames = 4096;
    sc->conversion_share = 3.7 / 5.6; /* Table 6 */
    sc->posted_bytes = 256 * 1024;
    sc->hop_us = 0.3;
    sc->round_trips = 30;
}

int perf_run(const perf_scene *sc, perf_result *out)
{
    perf_scene one = *sc;
    double target = round_trip_us(sc), base = 0;
    bool known = sc->traffic <= PERF_KERNELS && sc->m.gpus <= PERF_GPUS_MAX && sc->m.tags <= 768 &&
                 (sc->traffic != PERF_PEER || sc->m.gpus == 2) && sc->round_trips > 0 &&
                 sc->more_hops <= 100 && sc->hop_us >= 0 && sc->hop_us <= 1000 &&
                 sc->conversion_share >= 0 && sc->conversion_share <= 1;
    int rc = dxpu_model_check(&sc->m);
    memset(out, 0, sizeof *out);
    if (rc != DXPU_OK || !known || sc->m.mps_bytes % 4 || sc->m.mrs_bytes % 4 ||
        sc->m.push_bytes % 4 || sc->m.completion_bytes % 64)
        return DXPU_E_ARG;
    one.traffic = sc->traffic == PERF_KERNELS ? PERF_KERNELS : PERF_READ;
    rc = one_read(&one, out, 0, &base);
    if (rc == DXPU_OK && base > target)
        rc = DXPU_E_ARG;
    memset(out, 0, sizeof *out);
    if (rc == DXPU_OK) /* host memory takes what the links leave of the round trip */
        rc = one_read(&one, out, us_ps(target - base), &out->rtt_us);
    out->tlps = out->frames = out->frame_bytes = 0;
    return rc == DXPU_OK ? loaded(sc, out, us_ps(target - base)) : rc;
}
