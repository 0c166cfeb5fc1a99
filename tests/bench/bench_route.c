/* Finding where a TLP goes, by the size of the tables: the channel of a datagram, the slot of a
   box, the row of the host's table behind which a BDF or an address stands.  The keys are random,
   so that neither caches nor branch prediction remember them better than a busy proxy's would. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "fabric.h"

#include "bench.h"

enum { KEYS = 4096, MEGABYTE = 1 << 20, HEADER_BYTES = 16 };
#define WINDOWS_AT 0x4000000000u

static const uint32_t sizes[] = { 8, 64, 512, 4096, 65534 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* The contents of the tables of one size, and the searches in them. */
typedef struct tables {
    uint32_t size;
    fabric channels;
    fabric_channel *channel_memory;
    dxpu_box_table box;
    dxpu_host_table host;
    uint32_t *id; /* keys */
    uint16_t *slot, *bdf;
    uint64_t *address;
    uint8_t (*header)[HEADER_BYTES]; /* memory reads of these addresses */
} tables;

static tables all[SIZES];
static volatile uint64_t sink;

static void *need(size_t count, size_t bytes)
{
    void *p = calloc(count, bytes);
    bench_must(p != NULL, "memory");
    return p;
}

static void fill_channels(tables *t, uint64_t *random)
{
    uint32_t n = t->size < FABRIC_CHANNELS_MAX ? t->size : FABRIC_CHANNELS_MAX;
    t->channels.capacity = n;
    t->channels.channels = need(n, sizeof *t->channels.channels);
    t->channel_memory = need(n, sizeof *t->channel_memory);
    for (uint32_t i = 0; i < n; i++) {
        fabric_channel *c = &t->channel_memory[i];
        c->id = ((uint32_t)bench_random(random) & ~(uint32_t)FABRIC_INDEX_MASK) | i;
        t->channels.channels[i] = c;
    }
    for (unsigned i = 0; i < KEYS; i++)
        t->id[i] = t->channels.channels[bench_random(random) % n]->id;
}

/* Rows with 1 MB windows side by side; the first 255 of them with a bus. */
static void fill_host(tables *t, uint64_t *random)
{
    uint32_t n = t->size, buses = n < 255 ? n : 255;
    bench_must(dxpu_host_init(&t->host, need(n, sizeof(dxpu_host_entry)),
                              need(2 * (size_t)n, sizeof(dxpu_host_window)), n) == DXPU_OK,
               "a host table");
    for (uint32_t i = 0; i < n; i++) {
        dxpu_host_entry e;
        memset(&e, 0, sizeof e);
        e.box.node = 2;
        e.box.slot = (uint16_t)(i + 1);
        e.memory.base = e.prefetchable.base = 1; /* empty */
        e.prefetchable.base = WINDOWS_AT + (uint64_t)i * MEGABYTE;
        e.prefetchable.limit = e.prefetchable.base + MEGABYTE - 1;
        e.bus = e.bus_last = (uint8_t)(i < buses ? i + 1 : 0);
        bench_must(dxpu_host_add(&t->host, &e) >= 0, "a row of the host table");
    }
    for (unsigned i = 0; i < KEYS; i++) {
        t->bdf[i] = DXPU_BDF(1 + bench_random(random) % buses, 0, 0);
        t->address[i] = WINDOWS_AT + bench_random(random) % n * MEGABYTE + (i & 0xff) * 64;
    }
}

static void fill_headers(tables *t)
{
    for (unsigned i = 0; i < KEYS; i++) {
        dxpu_tlp tlp;
        size_t len;
        memset(&tlp, 0, sizeof tlp);
        tlp.type = DXPU_TLP_MRD;
        tlp.header_dw = 4;
        tlp.address = t->address[i];
        tlp.length_dw = 16;
        tlp.first_be = tlp.last_be = 0xf;
        bench_must(dxpu_tlp_encode(&tlp, t->header[i], HEADER_BYTES, &len) == DXPU_OK, "encode");
    }
}

static void fill(tables *t, uint32_t size)
{
    uint64_t random = size;
    t->size = size;
    t->id = need(KEYS, sizeof *t->id);
    t->slot = need(KEYS, sizeof *t->slot);
    t->bdf = need(KEYS, sizeof *t->bdf);
    t->address = need(KEYS, sizeof *t->address);
    t->header = need(KEYS, sizeof *t->header);
    bench_must(dxpu_box_init(&t->box, need(size, sizeof(dxpu_box_entry)), size) == DXPU_OK,
               "a box table");
    for (unsigned i = 0; i < KEYS; i++)
        t->slot[i] = (uint16_t)(1 + bench_random(&random) % size);
    fill_channels(t, &random);
    fill_host(t, &random);
    fill_headers(t);
}

static uint64_t find_channel(const tables *t, unsigned key)
{
    const fabric_channel *c = fabric_channel_by_id(&t->channels, t->id[key]);
    bench_must(c != NULL, "a channel is not found");
    return c->id;
}

static uint64_t find_slot(const tables *t, unsigned key)
{
    const dxpu_box_entry *e = dxpu_box_slot(&t->box, t->slot[key]);
    bench_must(e != NULL, "a slot is not found");
    return e->slot;
}

static uint64_t find_bdf(const tables *t, unsigned key)
{
    int row = dxpu_host_by_bdf(&t->host, t->bdf[key]);
    bench_must(row >= 0, "a BDF is not found");
    return (uint64_t)row;
}

static uint64_t find_address(const tables *t, unsigned key)
{
    int row = dxpu_host_by_address(&t->host, t->address[key]);
    bench_must(row >= 0, "an address is not found");
    return (uint64_t)row;
}

static uint64_t find_tlp(const tables *t, unsigned key)
{
    dxpu_bytes bytes = { t->header[key], HEADER_BYTES };
    dxpu_tlp tlp;
    int row = -1;
    if (dxpu_tlp_decode_header(bytes, &tlp) == DXPU_OK && dxpu_tlp_class(&tlp) == DXPU_NONPOSTED)
        row = dxpu_host_route(&t->host, &tlp);
    bench_must(row >= 0, "a TLP has no way");
    return (uint64_t)row;
}

static const struct {
    const char *name;
    uint64_t (*find)(const tables *t, unsigned key);
    uint32_t most; /* entries it can have */
} finders[] = {
    { "channel", find_channel, FABRIC_CHANNELS_MAX },
    { "slot", find_slot, 65534 },
    { "bdf", find_bdf, 65534 },
    { "address", find_address, 65534 },
    { "classify+route", find_tlp, 65534 },
};
enum { FINDERS = sizeof finders / sizeof finders[0] };

static double measure(unsigned which, const tables *t, unsigned long count)
{
    double begin = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++)
        sink += finders[which].find(t, i % KEYS);
    return (bench_cpu_ns() - begin) / (double)count;
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    for (unsigned i = 0; i < SIZES; i++)
        fill(&all[i], sizes[i]);
    for (unsigned r = 0; r < a.rounds; r++) {
        for (unsigned f = 0; f < FINDERS; f++) {
            for (unsigned i = 0; i < SIZES && sizes[i] <= finders[f].most; i++) {
                char row[64];
                double smallest = measure(f, &all[0], a.count);
                snprintf(row, sizeof row, "route %s %u", finders[f].name, sizes[i]);
                bench_result(row, measure(f, &all[i], a.count), smallest);
            }
        }
    }
    return 0;
}
