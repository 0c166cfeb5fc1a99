/* Read throughput against tags x read size / round trip (DxPU, equation 1), in virtual time: a host
   keeps all its tags in flight, a box answers at once, the network takes half the round trip each
   way.  What is missing from the equation is what the channel holds back: it needs no processor.
   Then a stream of writes, whose window is the frames in flight; and the paper's experiment (5.1):
   the same bytes pushed, as a processor's stores of 64 bytes, beside pulled, by a device. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dxpu.h"

#include "sim.h"

#include "bench.h"
#include "pair.h"

enum { TAGS_MAX = 256, SETTLE_ROUND_TRIPS = 100 };

typedef struct scene {
    uint32_t tags, read_bytes; /* tags 0: writes of that many bytes */
    uint32_t rtt_ns, window_frames;
} scene;

static const scene scenes[] = {
    { 32, 128, 4900, 64 },   { 32, 256, 4900, 64 },   { 140, 128, 4900, 64 },
    { 140, 256, 4900, 64 },  { 256, 512, 4900, 256 }, { 32, 128, 6800, 64 },
    { 32, 256, 6800, 64 },   { 140, 128, 6800, 64 },  { 140, 256, 6800, 64 },
    { 256, 512, 6800, 256 }, { 0, 256, 7000, 16 },    { 0, 256, 7000, 256 },
    { 0, 256, 100000, 16 },  { 0, 256, 100000, 256 },
};

/* Reads, and the writes in their place. */
static const scene pulled[] = {
    { 140, 128, 4900, 64 },   { 140, 128, 6800, 64 },    { 140, 128, 20000, 64 },
    { 140, 128, 100000, 64 }, { 140, 128, 1000000, 64 },
};

static bench_pair pair;
static dxpu_tags tags;
static dxpu_tag_entry entries[TAGS_MAX];
static sim_events events;
static sim_link wire[2]; /* towards each end */
static sim_rng rng;
static sim_net_count net;
static uint64_t bytes_done, wake_ns[2];
static uint8_t payload[4096];

static void submit(unsigned end, const dxpu_tlp *t, uint64_t user)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { out, 0 };
    bench_must(dxpu_tlp_encode(t, out, sizeof out, &tlp.len) == DXPU_OK &&
                   dxpu_channel_submit(&pair.end[end], tlp, pair.now_ns, user) == DXPU_OK,
               "submit");
}

static void memory_request(const scene *sc, uint8_t type, dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = 4;
    t->address = 0x8000000000u;
    t->length_dw = (uint16_t)(sc->read_bytes / 4);
    t->first_be = t->last_be = 0xf;
}

/* The host: as many reads as it has tags, or as many writes as the channel takes. */
static void host_work(const scene *sc)
{
    dxpu_channel *ch = &pair.end[0];
    dxpu_delivery d;
    dxpu_tlp t;
    int tag;
    while ((d = dxpu_channel_peek(ch, DXPU_COMPLETION)).tlp.len) {
        bench_must(dxpu_tlp_decode(d.tlp, &t) == DXPU_OK, "a completion");
        bytes_done += t.payload.len;
        dxpu_channel_take(ch, DXPU_COMPLETION, pair.now_ns);
    }
    memory_request(sc, DXPU_TLP_MRD, &t);
    while (sc->tags && (tag = dxpu_tags_alloc(&tags)) >= 0) {
        t.tag = (uint16_t)tag;
        submit(0, &t, 0);
    }
    memory_request(sc, DXPU_TLP_MWR, &t);
    t.payload.ptr = payload;
    t.payload.len = sc->read_bytes;
    while (!sc->tags) {
        uint8_t out[DXPU_TLP_MAX_BYTES];
        dxpu_bytes tlp = { out, 0 };
        bench_must(dxpu_tlp_encode(&t, out, sizeof out, &tlp.len) == DXPU_OK, "encode");
        if (dxpu_channel_submit(ch, tlp, pair.now_ns, 0) != DXPU_OK)
            break;
    }
}

/* The box: every read is answered at once, in one completion. */
static void box_work(void)
{
    dxpu_channel *ch = &pair.end[1];
    dxpu_delivery d;
    dxpu_tlp t, cpl;
    while ((d = dxpu_channel_peek(ch, DXPU_NONPOSTED)).tlp.len) {
        bench_must(dxpu_tlp_decode(d.tlp, &t) == DXPU_OK, "a request");
        dxpu_tlp_completion(&t, DXPU_BDF(1, 0, 0), DXPU_CPL_SC, &cpl);
        cpl.payload.ptr = payload;
        cpl.payload.len = t.length_dw * 4u;
        dxpu_channel_take(ch, DXPU_NONPOSTED, pair.now_ns);
        submit(1, &cpl, 0);
    }
    while ((d = dxpu_channel_peek(ch, DXPU_POSTED)).tlp.len) {
        bench_must(dxpu_tlp_decode(d.tlp, &t) == DXPU_OK, "a write");
        bytes_done += t.payload.len;
        dxpu_channel_take(ch, DXPU_POSTED, pair.now_ns);
    }
}

/* One end takes, submits and sends; its timer is armed again. */
static void service(const scene *sc, unsigned end)
{
    uint8_t path;
    sim_event e;
    int n;
    if (end == 0)
        host_work(sc);
    else
        box_work();
    memset(&e, 0, sizeof e);
    while ((n = dxpu_channel_emit(&pair.end[end], pair.now_ns, pair.frame, sizeof pair.frame,
                                  &path)) > 0) {
        e.to = (uint8_t)(1 - end);
        e.len = (uint32_t)n;
        sim_link_carry(&wire[1 - end], &events, &rng, pair.now_ns, e, pair.frame, &net);
    }
    bench_must(n == 0, "the channel failed");
    wake_ns[end] = dxpu_channel_next_ns(&pair.end[end]);
    if (wake_ns[end] != DXPU_NEVER) {
        e.kind = SIM_EV_WAKE;
        e.to = (uint8_t)end;
        e.at_ns = max64(wake_ns[end], pair.now_ns + 1);
        wake_ns[end] = e.at_ns;
        sim_push(&events, e);
    }
}

static void run_until(const scene *sc, uint64_t until_ns)
{
    while (events.len && events.heap[0].at_ns < until_ns) {
        sim_event e = sim_pop(&events);
        pair.now_ns = e.at_ns;
        if (e.kind == SIM_EV_FRAME) {
            bench_must(dxpu_channel_ingest(&pair.end[e.to], pair.now_ns, e.bytes, e.len, 0) ==
                           DXPU_OK,
                       "a frame was not taken");
            free(e.bytes);
            service(sc, e.to);
        } else if (wake_ns[e.to] == e.at_ns) {
            service(sc, e.to);
        }
    }
    pair.now_ns = until_ns;
}

static uint64_t sent_again(void)
{
    return pair.end[0].count.tx_retransmits + pair.end[1].count.tx_retransmits;
}

/* Payload bytes a second. */
static double measure(const scene *sc, uint64_t measure_ns)
{
    dxpu_channel_config cfg;
    uint64_t begin, again;
    memset(wire, 0, sizeof wire);
    memset(&events, 0, sizeof events);
    wire[0].delay_ns = wire[1].delay_ns = sc->rtt_ns / 2;
    dxpu_channel_config_default(&cfg);
    cfg.window_frames = sc->window_frames;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) { /* the caller's buffers are not a limit */
        cfg.rx.header[cls] = cfg.tx.header[cls] = 4096;
        cfg.rx.data[cls] = cfg.tx.data[cls] = 32768;
    }
    if (sc->tags) {
        bench_must(dxpu_tags_init(&tags, entries, sc->tags, 0, DXPU_TAGS_256, DXPU_NEVER) ==
                       DXPU_OK,
                   "tags");
        cfg.tags = &tags;
    }
    pair_open(&pair, &cfg);
    begin = pair.now_ns + SETTLE_ROUND_TRIPS * (uint64_t)sc->rtt_ns;
    service(sc, 0);
    service(sc, 1);
    run_until(sc, begin);
    bytes_done = 0;
    again = sent_again(); /* before the round trip was known */
    run_until(sc, begin + measure_ns);
    bench_must(sent_again() == again, "frames were sent again");
    while (events.len) {
        sim_event e = sim_pop(&events);
        free(e.bytes);
    }
    free(events.heap);
    pair_close(&pair);
    return (double)bytes_done * 1e9 / (double)measure_ns;
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    for (unsigned i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        const scene *sc = &scenes[i];
        double ours = measure(sc, a.count * sc->rtt_ns) / 1e6, equation;
        char row[80];
        if (sc->tags) {
            equation = (double)sc->tags * sc->read_bytes * 1e3 / sc->rtt_ns;
            snprintf(row, sizeof row, "equation1 %u x %u B / %.1f us", sc->tags, sc->read_bytes,
                     sc->rtt_ns / 1e3);
        } else { /* five writes of 256 B and their headers fill a frame of 1,452 bytes */
            equation = (double)sc->window_frames * 1280e3 / sc->rtt_ns;
            snprintf(row, sizeof row, "window %u frames, %u us", sc->window_frames,
                     sc->rtt_ns / 1000);
        }
        bench_result(row, ours, equation);
    }
    for (unsigned i = 0; i < sizeof pulled / sizeof pulled[0]; i++) {
        scene pushed = pulled[i];
        char row[80];
        pushed.tags = 0;
        pushed.read_bytes = 64;
        snprintf(row, sizeof row, "pushed, not pulled by %u x %u B / %g us", pulled[i].tags,
                 pulled[i].read_bytes, pulled[i].rtt_ns / 1e3);
        bench_result(row, measure(&pushed, a.count * pushed.rtt_ns) / 1e6,
                     measure(&pulled[i], a.count * pulled[i].rtt_ns) / 1e6);
    }
    return 0;
}
