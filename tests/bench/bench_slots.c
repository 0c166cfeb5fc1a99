/* Several devices through one pair of proxies: a port with a channel to each of the first N slots
   of a running dxpu-box, whose memory devices are all read at once.

   usage: bench_slots ROUNDS MILLISECONDS ADDR:PORT FIRST-EPOCH */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "fabric.h"

#include "bench.h"
#include "enumerate.h"

enum { DEVICES_MAX = 8, DEPTH = 32, READ_BYTES = 256, MPS = 512, MS = 1000000, BAR_BYTES = 65536 };
enum { COMPLETION_HEADERS = 4096, COMPLETION_UNITS = 32768 };
#define BAR_AT     0x8000000000u
#define TIMEOUT_NS 10000000000u

typedef struct device {
    fabric_channel *channel;
    enumerate setup;
    dxpu_tags tags;
    dxpu_tag_entry entries[DEPTH];
    bool asked;
    uint32_t at; /* of the next read */
    uint64_t bytes;
} device;

static fabric port;
static device devices[DEVICES_MAX];
static unsigned count;
static uint64_t begin_ns, end_ns, length_ns;

static void submit(device *d, dxpu_tlp *t, uint64_t now)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { out, 0 };
    int tag = dxpu_tags_alloc(&d->tags);
    t->tag = (uint16_t)tag;
    bench_must(tag >= 0 && dxpu_tlp_encode(t, out, sizeof out, &tlp.len) == DXPU_OK &&
                   dxpu_channel_submit(&d->channel->ch, tlp, now, 0) == DXPU_OK,
               "submit");
}

static void read_next(device *d, uint64_t now)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.header_dw = 4;
    t.address = BAR_AT + d->at;
    t.length_dw = READ_BYTES / 4;
    t.first_be = t.last_be = 0xf;
    d->at = (d->at + READ_BYTES) % BAR_BYTES;
    submit(d, &t, now);
}

static void take(device *d, uint64_t now)
{
    dxpu_delivery got;
    while ((got = dxpu_channel_peek(&d->channel->ch, DXPU_COMPLETION)).tlp.len) {
        dxpu_tlp t;
        bench_must(dxpu_tlp_decode(got.tlp, &t) == DXPU_OK, "a completion");
        if (d->asked)
            enumerate_answer(&d->setup, &t, 0);
        else
            d->bytes += t.status == DXPU_CPL_SC ? t.payload.len : 0;
        d->asked = false;
        dxpu_channel_take(&d->channel->ch, DXPU_COMPLETION, now);
    }
}

static bool all_ready(void)
{
    for (unsigned i = 0; i < count; i++) {
        if (!devices[i].channel->up || !enumerate_done(&devices[i].setup))
            return false;
    }
    return true;
}

static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    device *d = devices;
    (void)user;
    while (d->channel != c)
        d++;
    take(d, now);
    bench_must(!d->setup.why, "a device cannot be set up");
    if (!d->asked && !enumerate_done(&d->setup)) {
        dxpu_tlp t;
        uint8_t payload[4];
        if (enumerate_request(&d->setup, &t, payload)) {
            submit(d, &t, now);
            d->asked = true;
        }
    }
    while (begin_ns && now < end_ns && d->tags.in_flight < DEPTH)
        read_next(d, now);
    return false;
}

static void on_up(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    (void)now;
}

static void on_down(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    (void)now;
    bench_must(end_ns && now >= end_ns, "a channel was lost");
    if (!fabric_busy(&port))
        fabric_stop(&port);
}

static uint64_t on_next_ns(void *user)
{
    (void)user;
    return begin_ns ? end_ns : DXPU_NEVER;
}

static void on_tick(void *user, uint64_t now)
{
    (void)user;
    if (!begin_ns && all_ready()) {
        begin_ns = now;
        end_ns = now + length_ns;
    } else if (begin_ns && now >= end_ns) {
        fabric_close_all(&port, DXPU_REASON_DETACH);
    }
}

static void dial(device *d, uint64_t epoch, uint16_t slot, const dxpu_udp_path *path)
{
    dxpu_channel_config cfg;
    memset(d, 0, sizeof *d);
    bench_must(dxpu_tags_init(&d->tags, d->entries, DEPTH, 0, DXPU_TAGS_32, TIMEOUT_NS) == DXPU_OK,
               "tags");
    enumerate_start(&d->setup, BAR_AT, MPS);
    dxpu_channel_config_default(&cfg);
    cfg.epoch = epoch;
    cfg.local.node = 1;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.slot = slot;
    cfg.tags = &d->tags;
    d->channel = fabric_dial(&port, &cfg, NULL, path, 1, dxpu_udp_now_ns());
    bench_must(d->channel != NULL, "dial");
}

/* Megabytes a second of all, beside those of one device; the least and the most that one of them
   had, beside the fair share. */
static void measure(const dxpu_udp_address *box, uint64_t epoch)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { NULL, NULL, on_up, on_work, on_down, on_next_ns, on_tick, NULL, NULL };
    dxpu_udp_path path;
    static double alone;
    uint64_t all = 0, least = UINT64_MAX, most = 0;
    double seconds = (double)length_ns / 1e9;
    char row[64];
    set.wait = DXPU_UDP_BUSY;
    set.keys = keys_none();
    begin_ns = end_ns = 0;
    bench_must(!fabric_open(&port, &set, DEVICES_MAX, &cb), "a port");
    port.base.rx.header[DXPU_COMPLETION] = COMPLETION_HEADERS;
    port.base.rx.data[DXPU_COMPLETION] = COMPLETION_UNITS;
    bench_must(fabric_route(&port, box, 1, &path) == DXPU_OK, "no way to the box");
    for (unsigned i = 0; i < count; i++)
        dial(&devices[i], epoch, (uint16_t)(i + 1), &path);
    bench_must(fabric_run(&port) == 0, "the loop");
    for (unsigned i = 0; i < count; i++) {
        uint64_t bytes = devices[i].bytes;
        all += bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    fabric_close(&port);
    if (count == 1)
        alone = (double)all;
    snprintf(row, sizeof row, "devices %u", count);
    bench_result(row, (double)all / 1e6 / seconds, alone / 1e6 / seconds);
    if (count > 1) {
        snprintf(row, sizeof row, "devices %u, least share", count);
        bench_result(row, (double)least * count / (double)all, 1);
        snprintf(row, sizeof row, "devices %u, largest share", count);
        bench_result(row, (double)most * count / (double)all, 1);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    dxpu_udp_address box;
    uint64_t epoch = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    bench_must(epoch && !dxpu_udp_parse(argv[3], &box), "ADDR:PORT FIRST-EPOCH");
    length_ns = a.count * (uint64_t)MS;
    for (unsigned r = 0; r < a.rounds; r++) {
        for (count = 1; count <= DEVICES_MAX; count *= 2)
            measure(&box, epoch++);
    }
    return 0;
}
