/* Two channels of one program, opened: what one emits the other ingests.  Included after dxpu.h
   and bench.h. */
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

enum { PAIR_FRAME_BYTES = 65536 };

typedef struct bench_pair {
    dxpu_channel end[2]; /* host, box */
    void *mem[2];
    uint64_t now_ns;
    uint64_t frames[2], bytes[2]; /* emitted so far by each */
    uint8_t frame[PAIR_FRAME_BYTES];
} bench_pair;

/* All that `from` wants to send. */
static inline void pair_pump(bench_pair *p, unsigned from)
{
    uint8_t path;
    int n;
    while ((n = dxpu_channel_emit(&p->end[from], p->now_ns, p->frame, sizeof p->frame, &path)) >
           0) {
        bench_must(dxpu_channel_ingest(&p->end[1 - from], p->now_ns, p->frame, (size_t)n, 0) ==
                       DXPU_OK,
                   "a frame was not taken");
        p->bytes[from] += (unsigned)n;
        p->frames[from]++;
    }
}

static inline void pair_init_end(bench_pair *p, unsigned end, dxpu_channel_config cfg)
{
    size_t bytes = dxpu_channel_bytes(&cfg);
    cfg.local_id = 0x1000 + end;
    cfg.sequence = 77 + end;
    cfg.epoch = 7;
    cfg.tags = end ? NULL : cfg.tags;
    p->mem[end] = malloc(bytes);
    bench_must(bytes && p->mem[end] &&
                   dxpu_channel_init(&p->end[end], &cfg, p->mem[end], bytes) == DXPU_OK,
               "a channel");
}

static inline void pair_open(bench_pair *p, const dxpu_channel_config *cfg)
{
    uint8_t path;
    int n;
    memset(p, 0, sizeof *p);
    p->now_ns = 1000000;
    pair_init_end(p, 0, *cfg);
    pair_init_end(p, 1, *cfg);
    bench_must(dxpu_channel_open(&p->end[0], p->now_ns) == DXPU_OK, "open");
    n = dxpu_channel_emit(&p->end[0], p->now_ns, p->frame, sizeof p->frame, &path);
    bench_must(n > 0 && dxpu_channel_accept(&p->end[1], p->now_ns, p->frame, (size_t)n) == DXPU_OK,
               "accept");
    for (unsigned i = 0; i < 64; i++) {
        p->now_ns += 2000;
        pair_pump(p, 1);
        pair_pump(p, 0);
    }
    bench_must(dxpu_channel_status(&p->end[0]).state == DXPU_STATE_UP &&
                   dxpu_channel_status(&p->end[1]).state == DXPU_STATE_UP,
               "the channel is not up");
}

static inline void pair_close(bench_pair *p)
{
    free(p->mem[0]);
    free(p->mem[1]);
}

#endif
