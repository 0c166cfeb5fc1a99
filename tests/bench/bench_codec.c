/* One TLP into and out of a frame, beside copying it in and out and four passes of the fastest
   CRC-32 library over the same bytes: TLP CRC and frame CRC, at both ends.

   usage: bench_codec ROUNDS COUNT [PAYLOAD [floor]]
   With PAYLOAD that one alone and no baseline, or the baseline alone: for a profiler. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "dxpu_zlib.h"

#include "dxpu.h"

#include "bench.h"
#include "pair.h"

enum { US = 1000, FRAME_LIMIT = 8972, BURST = 8, WARM_UP = 500 };

static const uint32_t payloads[] = { 0, 64, 128, 256, 512, 4096 };
enum { PAYLOADS = sizeof payloads / sizeof payloads[0] };

static bench_pair pair;
static uint8_t data[4096];
static uint8_t stored[2][DXPU_TLP_MAX_BYTES * BURST + 256];
static volatile uint32_t sink;

/* A memory write; without payload a read. */
static void make_tlp(uint32_t payload, dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = payload ? DXPU_TLP_MWR : DXPU_TLP_MRD;
    t->header_dw = 4;
    t->requester = DXPU_BDF(1, 0, 0);
    t->address = 0x8000000000u;
    t->length_dw = (uint16_t)(payload ? payload / 4 : 16);
    t->first_be = t->last_be = 0xf;
    t->payload.ptr = payload ? data : NULL;
    t->payload.len = payload;
}

static unsigned take_all(unsigned cls)
{
    unsigned taken = 0;
    dxpu_delivery d;
    while ((d = dxpu_channel_peek(&pair.end[1], cls)).tlp.len) {
        sink += d.tlp.ptr[d.tlp.len - 1];
        bench_must(dxpu_channel_take(&pair.end[1], cls, pair.now_ns) == DXPU_OK, "take");
        taken++;
    }
    return taken;
}

/* submit, emit, ingest, take, and the acknowledgements that this costs; ns a TLP. */
static double carry(dxpu_bytes tlp, unsigned cls, unsigned burst, unsigned long count)
{
    double begin = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        unsigned taken = 0;
        for (unsigned k = 0; k < burst; k++)
            bench_must(dxpu_channel_submit(&pair.end[0], tlp, pair.now_ns, 0) == DXPU_OK, "submit");
        while (taken < burst) {
            pair_pump(&pair, 0);
            pair.now_ns += 2 * US;
            taken += take_all(cls);
            pair_pump(&pair, 1);
            pair.now_ns += 2 * US;
        }
    }
    return (bench_cpu_ns() - begin) / (double)count / burst;
}

/* What cannot be left out: ns a TLP of `len` bytes, `burst` of them in a frame. */
static double floor_of(dxpu_bytes tlp, size_t frame_bytes, unsigned burst, unsigned long count)
{
    double begin = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        for (unsigned k = 0; k < burst; k++) {
            uint8_t *to = stored[0] + k * tlp.len;
            memcpy(to, tlp.ptr, tlp.len);
            sink += dxpu_zlib_crc32(0, to, tlp.len);
        }
        sink += dxpu_zlib_crc32(0, stored[0], frame_bytes);
        sink += dxpu_zlib_crc32(0, stored[0], frame_bytes);
        for (unsigned k = 0; k < burst; k++) {
            uint8_t *to = stored[1] + k * tlp.len;
            memcpy(to, stored[0] + k * tlp.len, tlp.len);
            sink += dxpu_zlib_crc32(0, to, tlp.len);
        }
    }
    return (bench_cpu_ns() - begin) / (double)count / burst;
}

static double encode_decode(const dxpu_tlp *t, unsigned long count)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    double begin = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        dxpu_bytes tlp = { out, 0 };
        dxpu_tlp back;
        bench_must(dxpu_tlp_encode(t, out, sizeof out, &tlp.len) == DXPU_OK &&
                       dxpu_tlp_decode(tlp, &back) == DXPU_OK,
                   "the codec");
        sink += back.length_dw;
    }
    return (bench_cpu_ns() - begin) / (double)count;
}

static double copy_twice(dxpu_bytes tlp, unsigned long count)
{
    double begin = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        memcpy(stored[0], tlp.ptr, tlp.len);
        sink += stored[0][i % tlp.len];
        memcpy(stored[1], stored[0], tlp.len);
        sink += stored[1][i % tlp.len];
    }
    return (bench_cpu_ns() - begin) / (double)count;
}

/* A pair whose windows are open. */
static void open_pair(dxpu_bytes tlp, unsigned cls, unsigned burst)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.frame_limit_bytes = FRAME_LIMIT;
    cfg.window_frames = 64;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        cfg.rx.header[i] = cfg.tx.header[i] = 256;
        cfg.rx.data[i] = cfg.tx.data[i] = 8192;
    }
    pair_open(&pair, &cfg);
    carry(tlp, cls, burst, WARM_UP);
}

enum { BOTH, OURS, FLOOR };

static void measure(uint32_t payload, unsigned burst, unsigned long count, unsigned what)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { out, 0 };
    dxpu_tlp t;
    char row[64];
    uint64_t frames, bytes;
    double ours = 0;
    make_tlp(payload, &t);
    bench_must(dxpu_tlp_encode(&t, out, sizeof out, &tlp.len) == DXPU_OK, "encode");
    open_pair(tlp, (unsigned)dxpu_tlp_class(&t), burst);
    frames = pair.frames[0];
    bytes = pair.bytes[0];
    if (what == FLOOR) /* the payload only shows how long its frame is */
        (void)carry(tlp, (unsigned)dxpu_tlp_class(&t), burst, 1);
    else
        ours = carry(tlp, (unsigned)dxpu_tlp_class(&t), burst, count);
    frames = pair.frames[0] - frames;
    bytes = (pair.bytes[0] - bytes) / (what == FLOOR ? 1 : count);
    bench_must(pair.end[0].count.tx_retransmits == 0, "something was lost");
    bench_must(frames < count + count / 10 + 5, "the TLPs did not travel in one frame");
    snprintf(row, sizeof row, "codec %s%u B", burst > 1 ? "8 x " : "", payload);
    bench_result(row, ours, what == OURS ? 0 : floor_of(tlp, (size_t)bytes, burst, count));
    if (burst == 1 && what == BOTH) {
        snprintf(row, sizeof row, "tlp %u B", payload);
        bench_result(row, encode_decode(&t, count), copy_twice(tlp, count));
    }
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    for (unsigned r = 0; argc > 3 && r < a.rounds; r++)
        measure((uint32_t)strtoul(argv[3], NULL, 10), 1, a.count, argc > 4 ? FLOOR : OURS);
    for (unsigned r = 0; argc <= 3 && r < a.rounds; r++) {
        for (unsigned i = 0; i < PAYLOADS; i++) {
            measure(payloads[i], 1, a.count, BOTH);
            if (payloads[i] <= 512)
                measure(payloads[i], BURST, a.count / BURST + 1, BOTH);
        }
    }
    return 0;
}
