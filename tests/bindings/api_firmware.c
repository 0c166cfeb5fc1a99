/* api_firmware.c - the binding without an operating system: its rings, its clock, the Ethernet
   around its frames, and a node between a bare channel and a device that the test plays
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dxpu_firmware.h"
#include "dxpu_firmware_keys.h"
#include "dxpu_guard.h"
#include "dxpu_portable.h"
#include "dxpu_sodium.h"

#include <sodium.h>

enum {
    COUNT = 8,
    FRAME_BYTES = 1520,
    TLP_BYTES = 160,
    SLOT = 1,
    MEMORY_BYTES = 400 * 1024,
    CROSSINGS = 200000
};

static const dxpu_fw_address box_at = { { 2, 0, 0, 0, 0, 1 }, { 10, 0, 0, 1 }, 4458 };
static const dxpu_fw_address host_at = { { 2, 0, 0, 0, 0, 2 }, { 10, 0, 0, 2 }, 40000 };

/* ==== Rings =================================================================================== */

/* Each part from malloc(), so that the sanitizer sees the byte behind it. */
static void ring_open(dxpu_fw_ring *r, uint32_t count, uint32_t bytes)
{
    uint8_t *buffers = malloc((size_t)count * bytes);
    uint32_t *lengths = malloc(count * sizeof *lengths);
    assert_true(buffers && lengths);
    assert_int_equal(dxpu_fw_ring_init(r, buffers, lengths, count, bytes), DXPU_OK);
}

static void ring_close(dxpu_fw_ring *r)
{
    free(r->buffers);
    free((void *)(uintptr_t)r->lengths);
}

/* Put one buffer that begins with `number`; false when the ring is full. */
static bool ring_fill(dxpu_fw_ring *r, uint32_t number, uint32_t bytes)
{
    uint8_t *room = dxpu_fw_ring_room(r);
    if (!room)
        return false;
    memset(room, 0xee, bytes);
    memcpy(room, &number, sizeof number);
    dxpu_fw_ring_put(r, bytes);
    return true;
}

static uint32_t ring_number(dxpu_fw_ring *r, uint32_t *bytes)
{
    uint32_t number;
    const uint8_t *p = dxpu_fw_ring_peek(r, bytes);
    assert_non_null(p);
    memcpy(&number, p, sizeof number);
    dxpu_fw_ring_take(r);
    return number;
}

static void test_ring_refuses_sizes(void **state)
{
    static const struct {
        uint32_t count, bytes;
    } bad[] = { { 0, 64 }, { 1, 64 }, { 3, 64 }, { 512, 64 }, { 4, 0 }, { 4, 63 } };
    dxpu_fw_ring r;
    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(dxpu_fw_ring_init(&r, NULL, NULL, bad[i].count, bad[i].bytes), DXPU_E_ARG);
}

/* From just before the counts wrap: full, in order, and empty again, round after round. */
static void test_ring_wraps(void **state)
{
    dxpu_fw_ring r;
    uint32_t number = 0, next = 0, bytes = 0;
    (void)state;
    ring_open(&r, COUNT, 64);
    r.put = r.taken = UINT32_MAX - 5;
    for (unsigned round = 0; round < 40; round++) {
        unsigned filled = 0;
        for (; ring_fill(&r, number, 4 + number % 60); number++)
            filled++;
        assert_int_equal(dxpu_fw_ring_used(&r), COUNT);
        assert_true(filled > 0);
        for (unsigned i = 0; i < 1 + round % COUNT; i++, next++) {
            assert_int_equal(ring_number(&r, &bytes), next);
            assert_int_equal(bytes, 4 + next % 60);
        }
    }
    dxpu_fw_ring_drop(&r);
    assert_null(dxpu_fw_ring_peek(&r, &bytes));
    assert_true(r.put < 1000); /* it did wrap */
    ring_close(&r);
}

static void test_ring_hostile_producer(void **state)
{
    static const uint32_t lengths[] = { 65, 64 * COUNT, UINT32_MAX, 0x80000000u };
    dxpu_fw_ring r;
    uint32_t bytes = 1;
    (void)state;
    ring_open(&r, COUNT, 64);
    assert_true(ring_fill(&r, 1, 64));
    assert_non_null(dxpu_fw_ring_peek(&r, &bytes));
    assert_int_equal(bytes, 64); /* control: the largest there is */
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        r.lengths[0] = lengths[i];
        assert_non_null(dxpu_fw_ring_peek(&r, &bytes));
        assert_int_equal(bytes, 0);
    }
    r.put = r.taken + COUNT + 1;
    assert_null(dxpu_fw_ring_peek(&r, &bytes));
    assert_null(dxpu_fw_ring_room(&r));
    r.put = r.taken - 1;
    assert_null(dxpu_fw_ring_peek(&r, &bytes));
    ring_close(&r);
}

static void *fill_for_ever(void *user)
{
    dxpu_fw_ring *r = user;
    for (uint32_t number = 0; number < CROSSINGS;) {
        if (ring_fill(r, number, 4 + number % 60))
            number++;
        else
            sched_yield();
    }
    return NULL;
}

/* Producer and consumer on two cores, without a lock. */
static void test_ring_between_threads(void **state)
{
    dxpu_fw_ring r;
    pthread_t producer;
    uint32_t next = 0, bytes = 0;
    (void)state;
    ring_open(&r, COUNT, 64);
    r.put = r.taken = UINT32_MAX - CROSSINGS / 2;
    assert_int_equal(pthread_create(&producer, NULL, fill_for_ever, &r), 0);
    while (next < CROSSINGS) {
        if (!dxpu_fw_ring_peek(&r, &bytes)) {
            sched_yield();
            continue;
        }
        assert_int_equal(ring_number(&r, &bytes), next);
        assert_int_equal(bytes, 4 + next % 60);
        next++;
    }
    assert_int_equal(pthread_join(producer, NULL), 0);
    assert_null(dxpu_fw_ring_peek(&r, &bytes));
    ring_close(&r);
}

/* ==== Time ==================================================================================== */

/* Odd steps through many periods of the counter, against the exact time. */
static void clock_runs(dxpu_fw_clock *c, uint64_t hz, unsigned bits, uint32_t start)
{
    uint32_t mask = bits < 32 ? ((uint32_t)1 << bits) - 1 : UINT32_MAX;
    uint64_t ticks = 0, last = 0;
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t ns, exact;
        ticks += i % 1000 == 0 ? mask : i * 7919u % (mask / 2 + 1);
        ns = dxpu_fw_clock_ns(c, (uint32_t)((start + ticks) & mask));
        exact = ticks / hz * 1000000000u + ticks % hz * 1000000000u / hz;
        assert_true(ns >= last && ns <= exact);
        assert_true(exact - ns <= 1 + (ticks >> 32)); /* 2^-32 ns a tick */
        last = ns;
    }
    assert_true(ticks > 1000ull * mask);
}

static void test_clock_wraps_and_keeps_time(void **state)
{
    dxpu_fw_clock c;
    (void)state;
    dxpu_fw_clock_init(&c, 25000000, 32, 0xfffffff0u);
    clock_runs(&c, 25000000, 32, 0xfffffff0u);
    dxpu_fw_clock_init(&c, 3000000, 24, 0);
    clock_runs(&c, 3000000, 24, 0);
    dxpu_fw_clock_init(&c, 1000, 8, 255);
    clock_runs(&c, 1000, 8, 255);
    dxpu_fw_clock_init(&c, 4000000000u, 32, 1);
    clock_runs(&c, 4000000000u, 32, 1);
}

static void test_clock_ticks(void **state)
{
    static const uint64_t ns[] = { 0, 1, 40, 41, 1000, 999999999, 2000000000, DXPU_NEVER };
    dxpu_fw_clock c;
    (void)state;
    dxpu_fw_clock_init(&c, 25000000, 32, 0);
    for (unsigned i = 0; i < 7; i++) {
        uint64_t slept = dxpu_fw_clock_ticks(&c, ns[i]) * 40ull;
        assert_true(slept > ns[i] || slept + 40 > ns[i]);
        assert_true(slept <= ns[i] + 40);
    }
    assert_int_equal(dxpu_fw_clock_ticks(&c, ns[7]), 107374182); /* UINT32_MAX ns */
    dxpu_fw_clock_init(&c, 25000000, 16, 0);
    assert_int_equal(dxpu_fw_clock_ticks(&c, ns[7]), 0x7fff); /* half a period */
}

/* ==== Ethernet ================================================================================ */

/* What a node at box_at makes of a frame, in memory of just its size. */
static unsigned parse(const uint8_t *frame, uint32_t bytes, dxpu_fw_counters *count)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    dxpu_fw_datagram d;
    unsigned what;
    assert_non_null(copy);
    memcpy(copy, frame, bytes);
    what = dxpu_fw_wire_parse(&box_at, copy, bytes, &d, count);
    free(copy);
    return what;
}

static uint32_t build(uint8_t *frame, uint32_t payload_bytes)
{
    for (uint32_t i = 0; i < payload_bytes; i++)
        frame[DXPU_FW_HEADERS_BYTES + i] = (uint8_t)(i * 31 + 7);
    return dxpu_fw_wire_build(&host_at, &box_at, 2, frame, payload_bytes);
}

static void test_wire_round_trip(void **state)
{
    uint8_t frame[FRAME_BYTES];
    (void)state;
    for (uint32_t n = 0; n <= 1472; n += n < 40 ? 1 : 13) {
        dxpu_fw_counters count = { 0 };
        dxpu_fw_datagram d;
        uint32_t bytes = build(frame, n);
        assert_int_equal(bytes, DXPU_FW_HEADERS_BYTES + n);
        assert_int_equal(dxpu_fw_wire_parse(&box_at, frame, bytes, &d, &count), DXPU_FW_DATAGRAM);
        assert_int_equal(d.payload_bytes, n);
        assert_ptr_equal(d.payload, frame + DXPU_FW_HEADERS_BYTES);
        assert_memory_equal(&d.from.mac, host_at.mac, 6);
        assert_memory_equal(&d.from.ip, host_at.ip, 4);
        assert_int_equal(d.from.port, host_at.port);
        assert_int_equal(d.flags, 0);
        assert_int_equal(count.rx_datagrams, 1);
    }
}

/* Sums computed by another program; an odd length. */
static void test_wire_checksums_of_another(void **state)
{
    static const uint8_t packet[] = { 0x45, 0x00, 0x00, 0x21, 0x00, 0x00, 0x40, 0x00, 0x40,
                                      0x11, 0x26, 0xca, 10,   0,    0,    2,    10,   0,
                                      0,    1,    0x9c, 0x40, 0x11, 0x6a, 0x00, 0x0d, 0x48,
                                      0x39, 'd',  'x',  'p',  'u',  '!' };
    uint8_t frame[64];
    (void)state;
    memcpy(frame + DXPU_FW_HEADERS_BYTES, "dxpu!", 5);
    assert_int_equal(dxpu_fw_wire_build(&host_at, &box_at, 0, frame, 5), 47);
    assert_memory_equal(frame + 14, packet, sizeof packet);
}

static void test_wire_every_byte_counts(void **state)
{
    uint8_t frame[FRAME_BYTES];
    uint32_t bytes = build(frame, 61);
    (void)state;
    for (uint32_t i = 0; i < bytes; i++) {
        dxpu_fw_counters count = { 0 };
        bool checked = i < 6 || i > 11; /* who sent it is between him and his switch */
        frame[i] ^= 0x10;
        assert_int_equal(parse(frame, bytes, &count), checked ? DXPU_FW_NOTHING : DXPU_FW_DATAGRAM);
        assert_int_equal(count.rx_datagrams, !checked);
        frame[i] ^= 0x10;
    }
    for (uint32_t n = 0; n <= bytes; n++) {
        dxpu_fw_counters count = { 0 };
        assert_int_equal(parse(frame, n, &count), n < bytes ? DXPU_FW_NOTHING : DXPU_FW_DATAGRAM);
        assert_int_equal(count.rx_length, n < bytes);
    }
}

static void sum_anew(uint8_t *frame)
{
    uint32_t sum = 0;
    frame[24] = frame[25] = 0;
    for (unsigned i = 14; i < 34; i += 2)
        sum += dxpu_get_be16(frame + i);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16));
    dxpu_put_be16(frame + 24, sum);
    frame[40] = frame[41] = 0; /* no UDP checksum: only the field under test is wrong */
}

static void test_wire_fields(void **state)
{
    static const struct {
        uint8_t at, value;
        size_t counter;
    } rows[] = {
        { 15, 0x03, offsetof(dxpu_fw_counters, rx_datagrams) }, /* control; CE */
        { 14, 0x46, offsetof(dxpu_fw_counters, rx_fragment) },  /* IPv4 options */
        { 14, 0x65, offsetof(dxpu_fw_counters, rx_other) },
        { 20, 0x20, offsetof(dxpu_fw_counters, rx_fragment) }, /* more fragments */
        { 21, 0x01, offsetof(dxpu_fw_counters, rx_fragment) }, /* an offset */
        { 23, 6, offsetof(dxpu_fw_counters, rx_other) },       /* TCP */
        { 17, 27, offsetof(dxpu_fw_counters, rx_length) },     /* no room for UDP */
        { 16, 0x10, offsetof(dxpu_fw_counters, rx_length) },   /* longer than the frame */
        { 39, 7, offsetof(dxpu_fw_counters, rx_length) },
        { 38, 0x10, offsetof(dxpu_fw_counters, rx_length) },
        { 26, 127, offsetof(dxpu_fw_counters, rx_source) },
        { 26, 0, offsetof(dxpu_fw_counters, rx_source) },
        { 26, 224, offsetof(dxpu_fw_counters, rx_source) },
        { 6, 0x01, offsetof(dxpu_fw_counters, rx_source) }, /* a group cannot send */
        { 30, 11, offsetof(dxpu_fw_counters, rx_other) },
        { 37, 0x6b, offsetof(dxpu_fw_counters, rx_other) },
    };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t frame[FRAME_BYTES];
        uint32_t bytes = build(frame, 61);
        dxpu_fw_counters count = { 0 };
        uint64_t counted;
        frame[rows[i].at] = rows[i].value;
        sum_anew(frame);
        (void)parse(frame, bytes, &count);
        memcpy(&counted, (uint8_t *)&count + rows[i].counter, sizeof counted);
        assert_int_equal(counted, 1);
    }
}

static const uint8_t arp_request[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2,  0, 0, 0, 0,
                                         2,    8,    6,    0,    1,    8,    0,  6, 4, 0, 1,
                                         2,    0,    0,    0,    0,    2,    10, 0, 0, 2, 0,
                                         0,    0,    0,    0,    0,    10,   0,  0, 1 };

static void test_wire_arp(void **state)
{
    dxpu_fw_counters count = { 0 };
    uint8_t request[60], answer[DXPU_FW_ETHERNET_MIN_BYTES];
    (void)state;
    memcpy(request, arp_request, sizeof request);
    assert_int_equal(parse(request, 60, &count), DXPU_FW_ARP);
    assert_int_equal(parse(request, 42, &count), DXPU_FW_ARP);
    assert_int_equal(parse(request, 41, &count), DXPU_FW_NOTHING);
    assert_int_equal(dxpu_fw_wire_arp(&box_at, request, answer), 60);
    assert_memory_equal(answer, host_at.mac, 6);
    assert_memory_equal(answer + 6, box_at.mac, 6);
    assert_int_equal(answer[21], 2);
    assert_memory_equal(answer + 22, box_at.mac, 6);
    assert_memory_equal(answer + 28, box_at.ip, 4);
    assert_memory_equal(answer + 32, host_at.mac, 6);
    assert_memory_equal(answer + 38, host_at.ip, 4);
    assert_int_equal(parse(answer, 60, &count), DXPU_FW_NOTHING); /* an answer is not a question */
    request[41] = 9;
    assert_int_equal(parse(request, 60, &count), DXPU_FW_NOTHING); /* somebody else */
    assert_int_equal(count.rx_arp, 2);
    assert_int_equal(count.rx_other, 3);
}

/* ==== A node, its host and its device ========================================================= */

typedef struct rig {
    dxpu_fw fw;
    dxpu_fw_slot slot;
    dxpu_fw_ring rx, tx, to_device, from_device;
    void *memory;
    uint64_t now;
    dxpu_channel host; /* the bare other end */
    void *host_memory;
    uint32_t next_id;
    unsigned resets, slow; /* resets asked for; how many of them are not done yet */
    unsigned events, kept;
    uint32_t behind;    /* TLPs in the ring when the last event arrived */
    dxpu_fw_kept lease; /* the last one */
    bool keep, deaf;    /* deaf: what the node says is lost */
    uint64_t chance;
} rig;

static uint32_t rig_random(void *user)
{
    rig *g = user;
    g->chance = g->chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->chance >> 33) | 1u;
}

static bool rig_reset(void *user, uint16_t slot)
{
    rig *g = user;
    assert_int_equal(slot, SLOT);
    g->resets++;
    if (g->slow) {
        g->slow--;
        return false;
    }
    dxpu_fw_ring_drop(&g->to_device);
    return true;
}

static void rig_event(void *user, uint16_t slot, const dxpu_event *e)
{
    rig *g = user;
    assert_int_equal(slot, SLOT);
    assert_true(e->type == DXPU_EVENT_HOT_RESET || e->type == DXPU_EVENT_SLOT_POWER);
    g->behind = dxpu_fw_ring_used(&g->to_device);
    g->events++;
}

static bool rig_keep(void *user, uint16_t slot, const dxpu_fw_kept *lease)
{
    rig *g = user;
    assert_int_equal(slot, SLOT);
    assert_true(lease->epoch > 0);
    g->kept++;
    g->lease = *lease;
    return g->keep;
}

static const dxpu_fw_hooks rig_hooks = { rig_random, rig_reset, rig_event, rig_keep };

static dxpu_fw_config rig_config(rig *g)
{
    dxpu_fw_config cfg;
    dxpu_fw_config_default(&cfg);
    cfg.own = box_at;
    cfg.node = 2;
    cfg.rx = &g->rx;
    cfg.tx = &g->tx;
    cfg.hooks = &rig_hooks;
    cfg.user = cfg.security_user = g;
    cfg.channel.hold_ms = 100;
    cfg.channel.tx.header[DXPU_COMPLETION] = 64;
    return cfg;
}

static void rig_begin(rig *g, const dxpu_fw_security *security)
{
    dxpu_fw_config cfg;
    memset(g, 0, sizeof *g);
    g->now = 1000;
    g->keep = true;
    ring_open(&g->rx, COUNT, FRAME_BYTES);
    ring_open(&g->tx, COUNT, FRAME_BYTES);
    ring_open(&g->to_device, COUNT, TLP_BYTES + 64);
    ring_open(&g->from_device, 4 * COUNT, TLP_BYTES + 64);
    g->slot.to_device = &g->to_device;
    g->slot.from_device = &g->from_device;
    cfg = rig_config(g);
    cfg.security = security;
    g->memory = malloc(dxpu_fw_bytes(&cfg, 1));
    assert_int_equal(dxpu_fw_init(&g->fw, &cfg, &g->slot, 1, g->memory, dxpu_fw_bytes(&cfg, 1)),
                     DXPU_OK);
}

static void rig_end(rig *g)
{
    ring_close(&g->rx);
    ring_close(&g->tx);
    ring_close(&g->to_device);
    ring_close(&g->from_device);
    free(g->memory);
    free(g->host_memory);
}

/* A host dials with this epoch; nonposted: requests that it lets the device send. */
static void rig_dial(rig *g, uint64_t epoch, uint32_t nonposted, const dxpu_suite *suite)
{
    dxpu_channel_config cfg;
    size_t bytes;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = cfg.sequence = 0x5000 + ++g->next_id;
    cfg.epoch = epoch;
    cfg.local.node = 1;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.node = 2;
    cfg.remote.slot = SLOT;
    cfg.hold_ms = 100;
    cfg.rx.header[DXPU_NONPOSTED] = nonposted;
    cfg.suite = suite;
    free(g->host_memory);
    bytes = dxpu_channel_bytes(&cfg);
    g->host_memory = malloc(bytes);
    assert_int_equal(dxpu_channel_init(&g->host, &cfg, g->host_memory, bytes), DXPU_OK);
    assert_int_equal(dxpu_channel_open(&g->host, g->now), DXPU_OK);
}

static void rig_to_node(rig *g, const uint8_t *datagram, size_t len)
{
    uint8_t *room = dxpu_fw_ring_room(&g->rx);
    if (!room) /* a network loses what it cannot hand over */
        return;
    memcpy(room + DXPU_FW_HEADERS_BYTES, datagram, len);
    dxpu_fw_ring_put(&g->rx, dxpu_fw_wire_build(&host_at, &box_at, 0, room, (uint32_t)len));
}

/* One turn of everybody but the device, 50 us. */
static void rig_turn(rig *g)
{
    uint8_t out[2048], path, *frame;
    uint32_t bytes = 0;
    int n;
    g->now += 50000;
    while (g->host_memory && /* dialed */
           (n = dxpu_channel_emit(&g->host, g->now, out, sizeof out, &path)) > 0)
        rig_to_node(g, out, (size_t)n);
    dxpu_fw_poll(&g->fw, g->now);
    while ((frame = dxpu_fw_ring_peek(&g->tx, &bytes)) != NULL) {
        dxpu_fw_counters count = { 0 };
        dxpu_fw_datagram d;
        if (dxpu_fw_wire_parse(&host_at, frame, bytes, &d, &count) == DXPU_FW_DATAGRAM && !g->deaf)
            (void)dxpu_channel_ingest(&g->host, g->now, d.payload, d.payload_bytes, d.flags);
        dxpu_fw_ring_take(&g->tx);
    }
}

static void rig_turns(rig *g, unsigned turns)
{
    while (turns--)
        rig_turn(g);
}

static void rig_up(rig *g, uint64_t epoch, uint32_t nonposted)
{
    rig_dial(g, epoch, nonposted, NULL);
    rig_turns(g, 8);
    assert_int_equal(dxpu_channel_status(&g->host).state, DXPU_STATE_UP);
    assert_ptr_equal(g->slot.active, &g->slot.link[g->slot.active - g->slot.link]);
}

/* A handshake frame of 20 bytes reaches the node. */
static void rig_says_handshake(rig *g)
{
    uint8_t frame[64];
    dxpu_frame f;
    size_t n;
    memset(&f, 0, sizeof f);
    f.kind = DXPU_KIND_HANDSHAKE;
    n = dxpu_frame_encode_header(&f, 20, DXPU_FRAME_CRC_BYTES, frame);
    memset(frame + n, 1, 20);
    dxpu_frame_seal_crc(frame, n + 20);
    rig_to_node(g, frame, n + 20 + DXPU_FRAME_CRC_BYTES);
    dxpu_fw_poll(&g->fw, g->now);
}

static const uint8_t zeros[TLP_BYTES];

/* A request; the address identifies it. */
static dxpu_tlp request(uint8_t type, uint32_t number)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.tag = (uint16_t)(number & 0xff);
    t.first_be = 15;
    t.length_dw = 1;
    t.address = 4 * number;
    if (type == DXPU_TLP_MWR) {
        t.payload.ptr = zeros;
        t.payload.len = 4;
    }
    return t;
}

static dxpu_bytes encode(const dxpu_tlp *t, uint8_t out[TLP_BYTES])
{
    dxpu_bytes tlp = { out, 0 };
    assert_int_equal(dxpu_tlp_encode(t, out, TLP_BYTES, &tlp.len), DXPU_OK);
    return tlp;
}

static int host_sends(rig *g, const dxpu_tlp *t)
{
    uint8_t out[TLP_BYTES];
    return dxpu_channel_submit(&g->host, encode(t, out), g->now, 0);
}

static bool device_sends(rig *g, const dxpu_tlp *t)
{
    uint8_t out[TLP_BYTES], *room = dxpu_fw_ring_room(&g->from_device);
    dxpu_bytes tlp = encode(t, out);
    if (!room)
        return false;
    memcpy(room, tlp.ptr, tlp.len);
    dxpu_fw_ring_put(&g->from_device, (uint32_t)tlp.len);
    return true;
}

/* The next TLP of a class at the host, taken; false: none. */
static bool host_takes(rig *g, unsigned cls, dxpu_tlp *t)
{
    dxpu_delivery d = dxpu_channel_peek(&g->host, cls);
    if (!d.tlp.len)
        return false;
    assert_int_equal(dxpu_tlp_decode(d.tlp, t), DXPU_OK);
    t->payload.ptr = zeros; /* what it pointed to is gone */
    assert_int_equal(dxpu_channel_take(&g->host, cls, g->now), DXPU_OK);
    return true;
}

static bool device_takes(rig *g, dxpu_tlp *t)
{
    uint32_t bytes = 0;
    dxpu_bytes tlp = { dxpu_fw_ring_peek(&g->to_device, &bytes), 0 };
    if (!tlp.ptr)
        return false;
    tlp.len = bytes;
    assert_int_equal(dxpu_tlp_decode(tlp, t), DXPU_OK);
    t->payload.ptr = zeros; /* what it pointed to is gone */
    dxpu_fw_ring_take(&g->to_device);
    return true;
}

/* A node without a list of keys refuses all hosts. */
static const dxpu_fw_security without_list;

static void test_init_refuses(void **state)
{
    rig g;
    dxpu_fw_config cfg, bad;
    size_t bytes;
    (void)state;
    rig_begin(&g, NULL);
    cfg = bad = rig_config(&g);
    bytes = dxpu_fw_bytes(&cfg, 1);
    assert_true(bytes > 0 && bytes < MEMORY_BYTES);
    assert_int_equal(dxpu_fw_init(&g.fw, &cfg, &g.slot, 1, g.memory, bytes), DXPU_OK);
    assert_int_equal(dxpu_fw_init(&g.fw, &cfg, &g.slot, 1, g.memory, bytes - 1), DXPU_E_ROOM);
    assert_int_equal(dxpu_fw_init(&g.fw, &cfg, &g.slot, 0, g.memory, bytes), DXPU_E_ARG);
    assert_int_equal(dxpu_fw_init(&g.fw, &cfg, &g.slot, 1, (uint8_t *)g.memory + 4, bytes),
                     DXPU_E_ARG);
    bad.channel.window_frames = 5;
    assert_int_equal(dxpu_fw_bytes(&bad, 1), 0);
    assert_int_equal(dxpu_fw_init(&g.fw, &bad, &g.slot, 1, g.memory, bytes), DXPU_E_ARG);
    bad = cfg;
    bad.channel.frame_limit_bytes = FRAME_BYTES; /* does not fit behind the headers */
    assert_int_equal(dxpu_fw_init(&g.fw, &bad, &g.slot, 1, g.memory, MEMORY_BYTES), DXPU_E_ARG);
    bad = cfg;
    bad.hooks = NULL;
    assert_int_equal(dxpu_fw_init(&g.fw, &bad, &g.slot, 1, g.memory, bytes), DXPU_E_ARG);
    bad = cfg;
    bad.security = &without_list;
    assert_int_equal(dxpu_fw_init(&g.fw, &bad, &g.slot, 1, g.memory, bytes), DXPU_E_ARG);
    for (int i = -1; i <= 1; i++) { /* objects of other options; build.py compiles such */
        size_t fw = sizeof g.fw + sizeof(dxpu_tlp) + (size_t)(8 * i),
               slot = sizeof g.slot + (size_t)(8 * i);
        int want = i ? DXPU_E_ARG : DXPU_OK;
        assert_int_equal(
            dxpu_fw_init_sized(&g.fw, fw, &cfg, &g.slot, sizeof g.slot, 1, g.memory, bytes), want);
        assert_int_equal(dxpu_fw_init_sized(&g.fw, sizeof g.fw + sizeof(dxpu_tlp), &cfg, &g.slot,
                                            slot, 1, g.memory, bytes),
                         want);
    }
    rig_end(&g);
}

/* Both ways through rings that wrap many times, with the counts at their end at the start. */
static void test_tlps_cross_both_ways(void **state)
{
    rig g;
    uint32_t sent[2] = { 0, 0 }, got[2] = { 0, 0 };
    dxpu_tlp t;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    assert_int_equal(g.resets, 1); /* at the start; it is untouched since */
    assert_int_equal(g.kept, 1);
    while (got[0] < 1000 || got[1] < 1000) {
        dxpu_tlp w[2] = { request(DXPU_TLP_MWR, sent[0]), request(DXPU_TLP_MWR, sent[1]) };
        if (sent[0] < 1000 && host_sends(&g, &w[0]) == DXPU_OK)
            sent[0]++;
        if (sent[1] < 1000 && device_sends(&g, &w[1]))
            sent[1]++;
        rig_turn(&g);
        for (; device_takes(&g, &t); got[0]++)
            assert_int_equal(t.address, 4 * got[0]);
        for (; host_takes(&g, DXPU_POSTED, &t); got[1]++)
            assert_int_equal(t.address, 4 * got[1]);
        assert_true(g.now < 1000000000u);
    }
    assert_int_equal(g.fw.counters.device_malformed + g.fw.counters.host_malformed, 0);
    rig_end(&g);
}

static void test_full_ring_to_device(void **state)
{
    rig g;
    uint32_t sent = 0, got = 0;
    dxpu_tlp t = request(DXPU_TLP_MWR, 0);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    for (unsigned i = 0; i < 200; i++) {
        t = request(DXPU_TLP_MWR, sent);
        sent += host_sends(&g, &t) == DXPU_OK;
        rig_turn(&g);
    }
    assert_int_equal(dxpu_fw_ring_used(&g.to_device), COUNT);
    assert_true(sent > COUNT && sent < 200);     /* the rest waits where credits say so */
    assert_true(dxpu_fw_next_ns(&g.fw) > g.now); /* nothing to do until the device takes one */
    for (; device_takes(&g, &t); rig_turn(&g)) {
        assert_int_equal(t.address, 4 * got++);
        if (got == 1)
            assert_int_equal(dxpu_fw_next_ns(&g.fw), 0); /* control: it has taken one */
    }
    assert_int_equal(got, sent);
    rig_end(&g);
}

/* The host has no credit for requests: posted TLPs and completions pass them, in order, and the
   requests keep theirs. */
static void test_requests_wait_others_pass(void **state)
{
    rig g;
    uint32_t posted = 0, requests = 0, completions = 0;
    dxpu_tlp t, read = request(DXPU_TLP_MRD, 9), cpl;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 1);
    dxpu_tlp_completion(&read, 0, DXPU_CPL_UR, &cpl);
    for (uint32_t i = 0; i < 24; i++) { /* 16 wait in the channel, 1 has credit */
        t = request(DXPU_TLP_MRD, i);
        assert_true(device_sends(&g, &t));
    }
    for (uint32_t i = 0; i < 3; i++) {
        t = request(DXPU_TLP_MWR, i);
        assert_true(device_sends(&g, &t) && device_sends(&g, &cpl));
    }
    rig_turns(&g, 10);
    assert_true(dxpu_fw_ring_used(&g.from_device) > 6); /* control: the ring is blocked */
    for (; host_takes(&g, DXPU_POSTED, &t); posted++)
        assert_int_equal(t.address, 4 * posted);
    for (; host_takes(&g, DXPU_COMPLETION, &t); completions++)
        assert_int_equal(t.status, DXPU_CPL_UR);
    assert_int_equal(posted, 3);
    assert_int_equal(completions, 3);
    for (unsigned i = 0; i < 400; i++, rig_turn(&g)) {
        if (host_takes(&g, DXPU_NONPOSTED, &t))
            assert_int_equal(t.address, 4 * requests++);
    }
    assert_int_equal(requests, 24);
    assert_int_equal(dxpu_fw_ring_used(&g.from_device), 0);
    assert_false(host_takes(&g, DXPU_POSTED, &t)); /* nothing twice */
    assert_false(host_takes(&g, DXPU_COMPLETION, &t));
    rig_end(&g);
}

/* A posted TLP that has to wait holds back everything behind it. */
static void test_nothing_passes_posted(void **state)
{
    rig g;
    dxpu_tlp t, read = request(DXPU_TLP_MRD, 9), cpl;
    unsigned sent = 0, got = 0;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    dxpu_tlp_completion(&read, 0, DXPU_CPL_UR, &cpl);
    for (unsigned i = 0; i < 100; i++, rig_turn(&g)) { /* 64 at the host, 16 here, then the ring */
        t = request(DXPU_TLP_MWR, sent);
        sent += device_sends(&g, &t);
    }
    while (dxpu_fw_ring_used(&g.from_device) == 0)
        fail(); /* control: it is full */
    assert_true(device_sends(&g, &cpl));
    rig_turns(&g, 20);
    assert_false(host_takes(&g, DXPU_COMPLETION, &t));
    for (unsigned i = 0; i < 400; i++, rig_turn(&g)) {
        while (host_takes(&g, DXPU_POSTED, &t))
            assert_int_equal(t.address, 4 * got++);
        if (host_takes(&g, DXPU_COMPLETION, &t))
            assert_int_equal(got, sent);
    }
    assert_int_equal(got, sent);
    rig_end(&g);
}

/* A completion that is too large for the room there is waits, and a smaller one behind it too. */
static void test_a_class_keeps_its_order(void **state)
{
    rig g;
    dxpu_tlp t, read = request(DXPU_TLP_MRD, 9), cpl;
    unsigned got = 0;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    read.length_dw = TLP_BYTES / 4 - 4;
    read.last_be = 15;
    dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = zeros;
    cpl.payload.len = read.length_dw * 4u; /* 9 units of 256: 28 fit */
    for (unsigned i = 0; i < 29; i++) {
        cpl.tag = (uint16_t)i;
        assert_true(device_sends(&g, &cpl));
    }
    dxpu_tlp_completion(&read, 0, DXPU_CPL_UR, &cpl);
    cpl.tag = 29;
    assert_true(device_sends(&g, &cpl));
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(dxpu_fw_ring_used(&g.from_device), 2); /* control: the large one waits */
    for (unsigned i = 0; i < 100; i++, rig_turn(&g)) {
        while (host_takes(&g, DXPU_COMPLETION, &t))
            assert_int_equal(t.tag, got++);
    }
    assert_int_equal(got, 30);
    rig_end(&g);
}

static void test_hostile_device(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 1);
    uint32_t at;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    at = g.from_device.put;
    for (unsigned i = 0; i < 5; i++)
        assert_true(device_sends(&g, &t));
    g.from_device.lengths[at % g.from_device.count] = TLP_BYTES + 65;
    g.from_device.lengths[(at + 1) % g.from_device.count] = UINT32_MAX;
    g.from_device.lengths[(at + 2) % g.from_device.count] = 0;
    g.from_device.lengths[(at + 3) % g.from_device.count] = 15; /* a TLP of 16 */
    rig_turns(&g, 4);
    assert_int_equal(g.fw.counters.device_lengths, 3);
    assert_int_equal(g.fw.counters.device_malformed, 1);
    assert_true(host_takes(&g, DXPU_POSTED, &t)); /* control: the fifth is good */
    assert_false(host_takes(&g, DXPU_POSTED, &t));

    g.from_device.put += 1000; /* some were lost, unknown which */
    rig_turns(&g, 8);
    assert_int_equal(g.fw.counters.rings_astray, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_FAILED);
    assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_PROTOCOL);
    assert_null(g.slot.active);
    rig_up(&g, 2, 64);
    assert_true(device_sends(&g, &t));
    rig_turns(&g, 4);
    assert_true(host_takes(&g, DXPU_POSTED, &t));
    rig_end(&g);
}

static void test_network_ring_astray(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 1);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    g.rx.put += 500;
    assert_int_equal(dxpu_fw_next_ns(&g.fw), 0);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 200); /* the retransmission comes */
    assert_int_equal(g.fw.counters.rings_astray, 1);
    assert_true(device_takes(&g, &t));
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    g.rx.lengths[g.rx.put % COUNT] = FRAME_BYTES + 1;
    g.rx.put++;
    rig_turn(&g);
    assert_int_equal(g.fw.counters.device_lengths, 1);
    rig_end(&g);
}

/* What breaks a rule, or is longer than a buffer, is answered and never reaches the device. */
static void test_malformed_from_host(void **state)
{
    rig g;
    uint8_t bytes[TLP_BYTES], large[1024 + 16];
    dxpu_tlp t = request(DXPU_TLP_MRD, 1);
    dxpu_bytes tlp;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    tlp = encode(&t, bytes);
    bytes[7] = 0x0f | 0xf0; /* Last DW BE of a request of one dword */
    assert_int_equal(dxpu_channel_submit(&g.host, tlp, g.now, 0), DXPU_OK);
    t = request(DXPU_TLP_MWR, 1);
    t.length_dw = 256;
    t.last_be = 15;
    t.address = 0;
    t.payload.ptr = large; /* any 1,024 bytes */
    t.payload.len = 1024;
    memset(large, 0, sizeof large);
    tlp.ptr = large;
    t.payload.ptr = (const uint8_t *)g.host_memory;
    assert_int_equal(dxpu_tlp_encode(&t, large, sizeof large, &tlp.len), DXPU_OK);
    assert_int_equal(dxpu_channel_submit(&g.host, tlp, g.now, 0), DXPU_OK);
    t = request(DXPU_TLP_MWR, 7);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 10);
    assert_int_equal(g.fw.counters.host_malformed, 2);
    assert_true(device_takes(&g, &t)); /* control: the good one */
    assert_int_equal(t.address, 4 * 7);
    assert_false(device_takes(&g, &t));
    assert_true(host_takes(&g, DXPU_COMPLETION, &t));
    assert_int_equal(t.status, DXPU_CPL_UR);
    assert_false(host_takes(&g, DXPU_COMPLETION, &t));
    rig_end(&g);
}

static void test_nonposted_limit(void **state)
{
    rig g;
    dxpu_tlp t;
    (void)state;
    rig_begin(&g, NULL);
    g.slot.counts_nonposted = true;
    g.slot.nonposted_limit = 2;
    rig_up(&g, 1, 64);
    for (uint32_t i = 0; i < 4; i++) {
        t = request(DXPU_TLP_MRD, i);
        assert_int_equal(host_sends(&g, &t), DXPU_OK);
    }
    t = request(DXPU_TLP_MWR, 99);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 10);
    assert_int_equal(dxpu_fw_ring_used(&g.to_device), 3); /* the write passed two reads */
    assert_true(device_takes(&g, &t) && device_takes(&g, &t) && device_takes(&g, &t));
    rig_turns(&g, 4);
    assert_false(device_takes(&g, &t));
    g.slot.nonposted_limit++;
    assert_int_equal(dxpu_fw_next_ns(&g.fw), 0);
    rig_turns(&g, 4);
    assert_true(device_takes(&g, &t));
    assert_int_equal(t.address, 4 * 2);
    rig_end(&g);
}

static void test_event_is_a_barrier(void **state)
{
    rig g;
    dxpu_event e = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    dxpu_tlp t = request(DXPU_TLP_MWR, 1);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    assert_int_equal(dxpu_channel_submit_event(&g.host, &e), DXPU_OK);
    t = request(DXPU_TLP_MWR, 2);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 10);
    assert_int_equal(g.events, 0);
    assert_int_equal(dxpu_fw_ring_used(&g.to_device), 1);
    assert_true(device_takes(&g, &t));
    rig_turns(&g, 2);
    assert_int_equal(g.events, 1);
    assert_int_equal(g.behind, 0);
    assert_true(device_takes(&g, &t));
    assert_int_equal(t.address, 8);
    rig_end(&g);
}

/* -- A guard at the rings -- */

enum { ASKED = 16, WINDOWS = 8 };

typedef struct guarded {
    dxpu_guard guard;
    dxpu_tag_entry asked[ASKED];
    dxpu_window windows[WINDOWS];
    uint8_t room[2 * (TLP_BYTES + 64)];
} guarded;

static void guarded_begin(guarded *d, rig *g)
{
    static const dxpu_guard_allowed nothing_more = { false, false };
    dxpu_windows windows;
    dxpu_windows_init(&windows, d->windows, WINDOWS, NULL);
    assert_int_equal(dxpu_guard_init(&d->guard, &nothing_more, d->asked, ASKED, &windows), DXPU_OK);
    g->slot.guard = &d->guard;
    g->slot.guard_room = d->room;
}

/* A request of the device leaves, if it may. */
static bool guarded_arrives(rig *g, uint8_t type, uint64_t address)
{
    dxpu_tlp t = request(type, 0);
    t.requester = DXPU_BDF(3, 0, 0);
    t.address = address;
    assert_true(device_sends(g, &t));
    rig_turns(g, 4);
    return host_takes(g, type == DXPU_TLP_MRD ? DXPU_NONPOSTED : DXPU_POSTED, &t);
}

/* The host lets the device master the bus, and grants it 4 KB. */
static void host_grants(rig *g)
{
    static const uint8_t master[4] = { 4 };
    dxpu_event e = { .type = DXPU_EVENT_DMA_GRANT, .flags = DXPU_EVENT_READ | DXPU_EVENT_WRITE };
    const unsigned events = g->events;
    dxpu_tlp t = request(DXPU_TLP_CFGWR0, 0);
    e.base = 0x10000;
    e.length = 0x1000;
    t.address = 0;
    t.target = DXPU_BDF(3, 0, 0);
    t.register_bytes = 4;
    t.payload.ptr = master;
    t.payload.len = 4;
    assert_int_equal(dxpu_channel_submit_event(&g->host, &e), DXPU_OK);
    assert_int_equal(host_sends(g, &t), DXPU_OK);
    rig_turns(g, 4);
    assert_true(device_takes(g, &t));
    assert_int_equal(g->events, events); /* the guard's alone */
}

/* S-100 to S-108, S-112 and S-193 between the rings. */
static void test_s100_s108_a_guard_at_the_rings(void **state)
{
    static guarded d;
    rig g;
    dxpu_tlp t;
    (void)state;
    rig_begin(&g, NULL);
    guarded_begin(&d, &g);
    rig_up(&g, 1, 64);
    assert_false(guarded_arrives(&g, DXPU_TLP_MWR, 0x10000));
    host_grants(&g);
    assert_true(guarded_arrives(&g, DXPU_TLP_MWR, 0x10000));
    assert_true(guarded_arrives(&g, DXPU_TLP_MWR, 0x10ffc));
    assert_false(guarded_arrives(&g, DXPU_TLP_MWR, 0x11000));
    assert_true(guarded_arrives(&g, DXPU_TLP_MRD, 0x10ffc));
    assert_false(device_takes(&g, &t)); /* that one waits for its host */
    assert_false(guarded_arrives(&g, DXPU_TLP_MRD, 0x11000));
    assert_true(device_takes(&g, &t)); /* S-108 */
    assert_int_equal(t.type, DXPU_TLP_CPL);
    assert_int_equal(t.status, DXPU_CPL_UR);
    assert_int_equal(g.fw.counters.device_refused, 3);
    g.slot.guard = NULL; /* the control: nothing else keeps it back */
    assert_true(guarded_arrives(&g, DXPU_TLP_MWR, 0x11000));
    g.slot.guard = &d.guard;
    rig_up(&g, 2, 64); /* the next host has granted nothing */
    assert_false(guarded_arrives(&g, DXPU_TLP_MWR, 0x10000));
    assert_int_equal(dxpu_guard_refused(&d.guard), 4);
    rig_end(&g);
}

/* A refusal needs room on the way to the device: the request waits, and what follows passes. */
static void test_s108_a_refusal_waits_for_room(void **state)
{
    static guarded d;
    rig g;
    dxpu_tlp t;
    (void)state;
    rig_begin(&g, NULL);
    guarded_begin(&d, &g);
    rig_up(&g, 1, 64);
    host_grants(&g);
    for (unsigned i = 0; i < COUNT; i++) {
        t = request(DXPU_TLP_MWR, i);
        assert_int_equal(host_sends(&g, &t), DXPU_OK);
    }
    rig_turns(&g, 4);
    assert_int_equal(dxpu_fw_ring_used(&g.to_device), COUNT);
    assert_false(guarded_arrives(&g, DXPU_TLP_MRD, 0x11000));
    assert_int_equal(g.fw.counters.device_refused, 0);
    assert_true(guarded_arrives(&g, DXPU_TLP_MWR, 0x10000));
    assert_true(device_takes(&g, &t));
    rig_turns(&g, 4);
    assert_int_equal(g.fw.counters.device_refused, 1);
    while (device_takes(&g, &t) && t.type != DXPU_TLP_CPL)
        rig_turns(&g, 2);
    assert_int_equal(t.status, DXPU_CPL_UR);
    rig_end(&g);
}

/* Answers for which there is no credit yet are looked at once, arrive all, and in their order. */
static void test_s107_answers_that_wait(void **state)
{
    enum { READS = 4 };
    static guarded d;
    dxpu_fw_config cfg;
    unsigned got = 0;
    rig g;
    dxpu_tlp t, cpl;
    (void)state;
    rig_begin(&g, NULL);
    cfg = g.fw.cfg;
    cfg.channel.tx.header[DXPU_COMPLETION] = 1;
    assert_true(dxpu_fw_bytes(&cfg, 1) <= dxpu_fw_bytes(&g.fw.cfg, 1));
    guarded_begin(&d, &g);
    assert_int_equal(dxpu_fw_init(&g.fw, &cfg, &g.slot, 1, g.memory, dxpu_fw_bytes(&cfg, 1)),
                     DXPU_OK);
    rig_up(&g, 1, 64);
    for (uint8_t i = 0; i < READS; i++) {
        t = request(DXPU_TLP_MRD, i);
        t.tag = i;
        assert_int_equal(host_sends(&g, &t), DXPU_OK);
    }
    rig_turns(&g, 4);
    for (unsigned i = 0; i < READS; i++) {
        assert_true(device_takes(&g, &t));
        dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
        assert_true(device_sends(&g, &cpl));
    }
    dxpu_fw_poll(&g.fw, g.now);
    assert_true(g.slot.held_bytes > 0); /* the control: some did wait */
    for (unsigned i = 0; i < 20; i++, rig_turn(&g)) {
        for (; host_takes(&g, DXPU_COMPLETION, &t); got++)
            assert_int_equal(t.tag, got);
    }
    assert_int_equal(got, READS);
    assert_int_equal(g.fw.counters.device_refused, 0);
    dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
    assert_true(device_sends(&g, &cpl)); /* no request for another */
    rig_turns(&g, 4);
    assert_int_equal(g.fw.counters.device_refused, 1);
    rig_end(&g);
}

/* -- What waits when the device is reset -- */

enum { WAITING = 3 };

static void device_writes(rig *g, unsigned number)
{
    dxpu_tlp t = request(DXPU_TLP_MWR, 0);
    t.requester = DXPU_BDF(3, 0, 0);
    t.address = 0x10000 + 4 * number;
    assert_true(device_sends(g, &t));
}

/* The device writes until some writes wait for a host that takes none; then it reads, and answers
   what the host asked.  Returns how many writes have left. */
static unsigned device_waits(rig *g)
{
    unsigned sent = 0;
    dxpu_tlp t = request(DXPU_TLP_MRD, 7), cpl;
    assert_int_equal(host_sends(g, &t), DXPU_OK);
    rig_turns(g, 4);
    assert_true(device_takes(g, &t));
    while (dxpu_fw_ring_used(&g->from_device) < WAITING) {
        assert_in_range(sent, 0, 1000);
        device_writes(g, sent++);
        rig_turn(g);
    }
    dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
    t.requester = DXPU_BDF(3, 0, 0);
    t.address = 0x10000;
    assert_true(device_sends(g, &t));
    assert_true(device_sends(g, &cpl));
    rig_turns(g, 4);
    assert_int_equal(dxpu_fw_ring_used(&g->from_device), WAITING + 2);
    return sent - WAITING;
}

/* How many TLPs of each class arrive at last, with this event (0: none) while some wait; and the
   device is granted the same memory again before the host takes the first. */
static unsigned came_after(unsigned event, bool with_guard, unsigned came[DXPU_CLASSES])
{
    static guarded d;
    dxpu_event e = { .type = (uint8_t)event, .flags = DXPU_EVENT_ON };
    unsigned left;
    rig g;
    dxpu_tlp t;
    memset(came, 0, DXPU_CLASSES * sizeof *came);
    rig_begin(&g, NULL);
    if (with_guard)
        guarded_begin(&d, &g);
    rig_up(&g, 1, 64);
    if (with_guard)
        host_grants(&g);
    left = device_waits(&g);
    if (event)
        assert_int_equal(dxpu_channel_submit_event(&g.host, &e), DXPU_OK);
    rig_turns(&g, 4);
    assert_int_equal(g.events, event != 0);
    if (with_guard)
        host_grants(&g);
    for (unsigned i = 0; i < 100; i++, rig_turn(&g)) {
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
            came[cls] += host_takes(&g, cls, &t);
    }
    assert_int_equal(g.fw.counters.device_dropped, event ? WAITING + 1 : 0);
    assert_int_equal(g.fw.counters.device_refused, 0);
    assert_int_equal(dxpu_fw_ring_used(&g.from_device), 0);
    device_writes(&g, 0); /* and it can still write */
    rig_turns(&g, 4);
    assert_true(host_takes(&g, DXPU_POSTED, &t));
    rig_end(&g);
    return left;
}

/* S-175: of what the device sent before its reset only answers leave after it. */
static void test_s175_waiting_for_a_device_that_is_reset(void **state)
{
    static const uint8_t events[] = { DXPU_EVENT_HOT_RESET, DXPU_EVENT_SLOT_POWER };
    unsigned came[DXPU_CLASSES], left;
    (void)state;
    for (unsigned with_guard = 0; with_guard < 2; with_guard++) {
        left = came_after(0, with_guard, came); /* the control */
        assert_int_equal(came[DXPU_POSTED], left + WAITING);
        assert_int_equal(came[DXPU_NONPOSTED], 1);
        assert_int_equal(came[DXPU_COMPLETION], 1);
        for (unsigned i = 0; i < sizeof events; i++) {
            left = came_after(events[i], with_guard, came);
            assert_int_equal(came[DXPU_POSTED], left);
            assert_int_equal(came[DXPU_NONPOSTED], 0);
            assert_int_equal(came[DXPU_COMPLETION], 1);
        }
    }
}

/* D-49, W-28: which host gets the slot, and what is done before his first TLP is looked at. */
static void test_d49_w28_leases(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 5);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 5, 64);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 4);
    assert_int_equal(dxpu_fw_ring_used(&g.to_device), 1); /* the device has not looked at it */
    rig_dial(&g, 4, 64, NULL);
    rig_turns(&g, 4);
    assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_EPOCH);

    g.slow = 3;
    g.resets = 0;
    rig_dial(&g, 6, 64, NULL);
    rig_turns(&g, 8);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    t = request(DXPU_TLP_MWR, 6);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 10);
    assert_true(g.slow > 0 && g.slow < 3);                /* control: the reset goes on, */
    assert_int_equal(dxpu_fw_ring_used(&g.to_device), 1); /* the last host's TLP is still there, */
    t = request(DXPU_TLP_MWR, 9);
    assert_true(device_sends(&g, &t)); /* and the device says something of before the reset */
    rig_turns(&g, 100);
    assert_int_equal(g.resets, 4);
    assert_false(host_takes(&g, DXPU_POSTED, &t));
    assert_true(device_takes(&g, &t)); /* and then only the new one's */
    assert_int_equal(t.address, 4 * 6);
    assert_false(device_takes(&g, &t));

    g.keep = false; /* a lease that would be forgotten */
    rig_dial(&g, 7, 64, NULL);
    rig_turns(&g, 8);
    assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_NO_SLOT);
    assert_int_equal(dxpu_fw_lease(&g.fw, SLOT)->epoch_seen, 6);
    assert_non_null(g.slot.active);
    rig_end(&g);
}

/* D-49: the device is reset between two hosts; what it sends while unassigned reaches neither.
   None is made twice: it may take long. */
static void test_d49_one_reset_between_hosts(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 5);
    (void)state;
    rig_begin(&g, NULL);
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.resets, 1);
    rig_up(&g, 1, 64);
    assert_int_equal(g.resets, 1);
    assert_int_equal(dxpu_channel_close(&g.host, DXPU_REASON_DETACH), DXPU_OK);
    rig_turns(&g, 10);
    assert_int_equal(g.resets, 2); /* it ended */
    rig_up(&g, 2, 64);
    assert_int_equal(g.resets, 2);
    rig_up(&g, 3, 64);
    assert_int_equal(g.resets, 3); /* it was replaced */
    assert_int_equal(dxpu_channel_close(&g.host, DXPU_REASON_DETACH), DXPU_OK);
    rig_turns(&g, 10);
    assert_int_equal(g.resets, 4);
    assert_true(device_sends(&g, &t));
    rig_turns(&g, 2);
    assert_int_equal(g.fw.counters.device_dropped, 1);
    rig_up(&g, 4, 64);
    assert_int_equal(g.resets, 5); /* it was not as at power-up */
    rig_end(&g);
}

/* A host with keys at a node without them is recognized, and gets no answer (S-92). */
static void test_s92_handshake_without_keys(void **state)
{
    rig g;
    (void)state;
    rig_begin(&g, NULL);
    rig_says_handshake(&g);
    assert_int_equal(g.fw.counters.rx_handshakes, 1);
    assert_int_equal(g.fw.counters.rx_unknown, 0);
    assert_int_equal(dxpu_fw_ring_used(&g.tx), 0);
    rig_end(&g);
}

/* P-3: an open in order but shorter than what it offers. */
static void short_open(rig *g, const dxpu_suite *suite)
{
    uint8_t out[2048], small[256], path;
    dxpu_bytes whole = { out, 0 }, header = { small, 0 };
    size_t tag = suite ? suite->tag_bytes : DXPU_FRAME_CRC_BYTES;
    dxpu_offer offer;
    dxpu_frame f;
    rig_dial(g, 1, 64, NULL);
    whole.len = (size_t)dxpu_channel_emit(&g->host, g->now, out, sizeof out, &path);
    assert_int_equal(dxpu_frame_decode(whole, DXPU_FRAME_CRC_BYTES, &f), DXPU_OK);
    assert_int_equal(dxpu_offer_decode(f.body, &offer), DXPU_OK);
    offer.suites = suite ? suite->id : DXPU_SUITE_CRC;
    header.len = dxpu_frame_encode_header(&f, DXPU_OFFER_BYTES, tag, small);
    dxpu_offer_encode(&offer, small + header.len);
    if (suite)
        (void)suite->seal(g, 0, f.packet, header, small + header.len, DXPU_OFFER_BYTES);
    else
        dxpu_frame_seal_crc(small, header.len + DXPU_OFFER_BYTES);
    rig_to_node(g, small, header.len + DXPU_OFFER_BYTES + tag);
}

static void test_other_slots_and_bad_opens(void **state)
{
    rig g;
    uint8_t out[2048], path;
    int n;
    (void)state;
    rig_begin(&g, NULL);
    for (unsigned slot = 0; slot < 3; slot += 2) {
        rig_dial(&g, 1, 64, NULL);
        g.host.cfg.remote.slot = (uint16_t)slot;
        rig_turns(&g, 4);
        assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_NO_SLOT);
    }
    assert_int_equal(g.fw.counters.opens_refused, 2);
    rig_dial(&g, 1, 64, NULL);
    n = dxpu_channel_emit(&g.host, g.now, out, sizeof out, &path);
    assert_true(n > 1000);
    rig_to_node(&g, out, 100); /* shorter than it says */
    out[200] ^= 1;
    rig_to_node(&g, out, (size_t)n);
    memset(out, 0, 8);
    rig_to_node(&g, out, 64);
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.fw.counters.opens_bad, 1);
    short_open(&g, NULL);
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.fw.counters.opens_bad, 2);
    assert_int_equal(g.fw.counters.rx_not_frames, 2); /* its length field; no magic */
    assert_int_equal(g.fw.counters.opens, 0);
    rig_end(&g);
}

/* Answers follow the newest frame, not one that was late on the way. */
static void test_path_follows_the_newest(void **state)
{
    static const uint8_t other[4] = { 10, 0, 0, 9 };
    rig g;
    uint8_t late[2048], path;
    dxpu_tlp t = request(DXPU_TLP_MWR, 1);
    int n;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    n = dxpu_channel_emit(&g.host, g.now, late, sizeof late, &path);
    assert_true(n > 0);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turn(&g);
    for (unsigned i = 0; i < 2; i++) { /* late, then a new one: both from elsewhere */
        dxpu_fw_address from = host_at;
        uint8_t *room = dxpu_fw_ring_room(&g.rx);
        memcpy(from.ip, other, sizeof other);
        if (i) {
            assert_int_equal(host_sends(&g, &t), DXPU_OK);
            n = dxpu_channel_emit(&g.host, g.now += 50000, late, sizeof late, &path);
            assert_true(n > 0);
        }
        memcpy(room + DXPU_FW_HEADERS_BYTES, late, (size_t)n);
        dxpu_fw_ring_put(&g.rx, dxpu_fw_wire_build(&from, &box_at, 0, room, (uint32_t)n));
        dxpu_fw_poll(&g.fw, g.now);
        assert_true(g.slot.active->ch.count.rx_tlps >= 2); /* control: the late one was taken */
        assert_memory_equal(g.slot.active->path[0].at.ip, i ? other : host_at.ip, 4);
    }
    rig_end(&g);
}

/* The bytes of frames that the node wants to send, taken off. */
static size_t leaves(rig *g)
{
    size_t bytes = 0;
    uint32_t n = 0;
    while (dxpu_fw_ring_peek(&g->tx, &n)) {
        bytes += n - (uint32_t)DXPU_FW_HEADERS_BYTES;
        dxpu_fw_ring_take(&g->tx);
    }
    return bytes;
}

/* A router of the host fails over to another with its own MAC.  The box answers by that one,
   and the address, which is the same, stays valid; a late frame by the old one changes nothing. */
static void test_path_follows_the_next_hop(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 1);
    uint8_t frame[2][2048], path, *out;
    uint32_t bytes = 0;
    int n[2];
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    for (unsigned i = 0; i < 100; i++) {
        (void)device_sends(&g, &t);
        rig_turn(&g);
    }
    assert_true(g.slot.active->path[0].validation.valid);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(host_sends(&g, &t), DXPU_OK);
        n[i] = dxpu_channel_emit(&g.host, g.now += 50000, frame[i], sizeof frame[i], &path);
        assert_true(n[i] > 0);
    }
    for (unsigned i = 2; i--;) { /* the newer one by the new router, then the late one */
        dxpu_fw_address from = host_at;
        uint8_t *room = dxpu_fw_ring_room(&g.rx);
        from.mac[5] ^= (uint8_t)i;
        memcpy(room + DXPU_FW_HEADERS_BYTES, frame[i], (size_t)n[i]);
        dxpu_fw_ring_put(&g.rx, dxpu_fw_wire_build(&from, &box_at, 0, room, (uint32_t)n[i]));
        dxpu_fw_poll(&g.fw, g.now);
        (void)leaves(&g);
        assert_true(device_sends(&g, &t));
        dxpu_fw_poll(&g.fw, g.now += 10000000);
        out = dxpu_fw_ring_peek(&g.tx, &bytes);
        assert_non_null(out);
        assert_memory_equal(out, host_at.mac, 5);
        assert_int_equal(out[5], host_at.mac[5] ^ 1);
        assert_true(g.slot.active->path[0].validation.valid);
    }
    assert_int_equal(g.slot.active->ch.count.rx_tlps, 2); /* control: both were taken */
    rig_end(&g);
}

/* P-27: a frame of the host comes from another's address, and much waits for the host. */
static void test_p27_three_times_what_arrived(void **state)
{
    static const uint8_t other[4] = { 10, 0, 0, 9 };
    (void)state;
    for (unsigned limited = 0; limited < 2; limited++) {
        rig g;
        uint8_t caught[2048], path, *room;
        dxpu_fw_address from = host_at;
        dxpu_tlp t = request(DXPU_TLP_MWR, 1);
        size_t bytes = 0;
        int n;
        rig_begin(&g, NULL);
        rig_up(&g, 1, 64);
        assert_int_equal(host_sends(&g, &t), DXPU_OK);
        n = dxpu_channel_emit(&g.host, g.now, caught, sizeof caught, &path);
        assert_true(n > 0);
        memcpy(from.ip, other, sizeof other);
        room = dxpu_fw_ring_room(&g.rx);
        memcpy(room + DXPU_FW_HEADERS_BYTES, caught, (size_t)n);
        dxpu_fw_ring_put(&g.rx, dxpu_fw_wire_build(&from, &box_at, 0, room, (uint32_t)n));
        dxpu_fw_poll(&g.fw, g.now);
        assert_memory_equal(g.slot.active->path[0].at.ip, other, 4);
        g.slot.active->path[0].validation.valid = !limited; /* the control */
        for (unsigned i = 0; i < 900; i++) {                /* less than the hold time */
            (void)device_sends(&g, &t);
            dxpu_fw_poll(&g.fw, g.now += 100000);
            bytes += leaves(&g);
        }
        assert_true(limited ? bytes <= 3 * (size_t)n : bytes > 30 * (size_t)n);
        rig_end(&g);
    }
}

/* P-27: the host itself has moved, and goes on. */
static void test_p27_a_host_that_moved(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 1), got;
    unsigned taken = 0;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    for (unsigned i = 0; i < 8; i++)
        assert_true(device_sends(&g, &t));
    g.slot.active->path[0].at.ip[3] ^= 8; /* as if it had been there until now */
    g.slot.active->path[0].validation.valid = false;
    g.slot.active->path[0].validation.allowed_bytes = 0;
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    for (unsigned i = 0; i < 1600; i++) { /* 80 ms */
        rig_turn(&g);
        while (host_takes(&g, DXPU_POSTED, &got))
            taken++;
    }
    assert_int_equal(taken, 8);
    assert_true(g.slot.active && g.slot.active->path[0].validation.valid);
    rig_end(&g);
}

/* P-27: one frame of the host comes from another's address, the next one from its own again, which
   has answered before. */
static void test_p27_back_to_an_address_that_answered(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 1);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    for (unsigned i = 0; i < 100; i++) {
        (void)device_sends(&g, &t);
        rig_turn(&g);
    }
    assert_true(g.slot.active->path[0].validation.valid);
    for (unsigned i = 0; i < 2; i++) {
        dxpu_fw_address from = host_at;
        uint8_t frame[2048], path, *room = dxpu_fw_ring_room(&g.rx);
        int n;
        assert_int_equal(host_sends(&g, &t), DXPU_OK);
        n = dxpu_channel_emit(&g.host, g.now += 50000, frame, sizeof frame, &path);
        assert_true(n > 0);
        from.ip[3] = i ? from.ip[3] : 9;
        memcpy(room + DXPU_FW_HEADERS_BYTES, frame, (size_t)n);
        dxpu_fw_ring_put(&g.rx, dxpu_fw_wire_build(&from, &box_at, 0, room, (uint32_t)n));
        dxpu_fw_poll(&g.fw, g.now);
        assert_memory_equal(g.slot.active->path[0].at.ip, from.ip, 4);
        assert_int_equal(g.slot.active->path[0].validation.valid, i);
    }
    rig_end(&g);
}

/* A host that only opens, with ever new ids, takes no other's channel and no memory. */
static void test_flood_of_opens(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 3);
    dxpu_channel host;
    void *memory;
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    host = g.host;
    memory = g.host_memory;
    g.host_memory = NULL;
    g.deaf = true;
    for (unsigned i = 0; i < 20; i++) {
        rig_dial(&g, 2 + i, 64, NULL);
        rig_turns(&g, 2);
    }
    assert_int_equal(g.fw.counters.opens, 21);
    assert_int_equal(g.fw.counters.ups, 1);
    free(g.host_memory);
    g.host = host;
    g.host_memory = memory;
    g.deaf = false;
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 100);
    assert_true(device_takes(&g, &t));
    rig_end(&g);
}

static void test_full_ring_to_network(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 3);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    while (ring_fill(&g.tx, 0, 60)) { /* the port is stuck */
    }
    assert_true(device_sends(&g, &t));
    for (unsigned i = 0; i < 20; i++)
        dxpu_fw_poll(&g.fw, g.now += 50000);
    assert_true(dxpu_fw_next_ns(&g.fw) > g.now); /* it does not spin */
    assert_int_equal(dxpu_fw_ring_used(&g.tx), COUNT);
    memcpy(dxpu_fw_ring_room(&g.rx), arp_request, sizeof arp_request);
    dxpu_fw_ring_put(&g.rx, sizeof arp_request);
    assert_int_equal(dxpu_fw_next_ns(&g.fw), 0);
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.fw.counters.rx_arp, 1);
    assert_int_equal(g.fw.counters.tx_full, 1);
    dxpu_fw_ring_drop(&g.tx);
    assert_true(dxpu_fw_next_ns(&g.fw) <= g.now); /* control */
    rig_turns(&g, 20);
    assert_true(host_takes(&g, DXPU_POSTED, &t));
    rig_end(&g);
}

static void test_close_and_silence(void **state)
{
    rig g;
    (void)state;
    rig_begin(&g, NULL);
    assert_true(dxpu_fw_idle(&g.fw));
    rig_up(&g, 1, 64);
    assert_false(dxpu_fw_idle(&g.fw));
    dxpu_fw_close(&g.fw, DXPU_REASON_SHUTDOWN);
    rig_turns(&g, 20);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_CLOSED);
    assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_SHUTDOWN);
    assert_true(dxpu_fw_idle(&g.fw));
    assert_int_equal(g.fw.counters.closed, 1);
    assert_false(dxpu_fw_lease(&g.fw, SLOT)->used); /* given back */

    rig_up(&g, 2, 64);
    assert_int_equal(dxpu_channel_close(&g.host, DXPU_REASON_DETACH), DXPU_OK);
    g.deaf = true;
    rig_turns(&g, 10); /* the answer is lost, and given again */
    assert_int_equal(g.fw.counters.closed, 2);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_CLOSING);
    g.deaf = false;
    rig_turns(&g, 1000);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_CLOSED);

    rig_up(&g, 3, 64);
    for (unsigned i = 0; i < 3000; i++) /* the host says nothing: hold */
        dxpu_fw_poll(&g.fw, g.now += 50000);
    assert_int_equal(g.fw.counters.failed, 1);
    assert_true(dxpu_fw_lease(&g.fw, SLOT)->used); /* kept for it */
    assert_true(dxpu_fw_idle(&g.fw));
    dxpu_fw_ring_drop(&g.tx);
    dxpu_fw_poll(&g.fw, g.now += 1000000);
    assert_true(dxpu_fw_next_ns(&g.fw) == DXPU_NEVER); /* asleep until somebody comes */
    rig_end(&g);
}

/* What comes from a device without a host is dropped, and does not stay for the next. */
static void test_device_without_host(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 3);
    (void)state;
    rig_begin(&g, NULL);
    dxpu_fw_poll(&g.fw, g.now);
    assert_true(device_sends(&g, &t) && device_sends(&g, &t));
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.fw.counters.device_dropped, 2);
    assert_int_equal(dxpu_fw_ring_used(&g.from_device), 0);
    rig_up(&g, 1, 64);
    rig_turns(&g, 4);
    assert_false(host_takes(&g, DXPU_POSTED, &t));
    rig_end(&g);
}

/* Frames, lengths and counts at random.  After it a host still gets the slot. */
static void test_random_hardware(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 3);
    (void)state;
    rig_begin(&g, NULL);
    rig_up(&g, 1, 64);
    for (unsigned i = 0; i < 20000; i++) {
        dxpu_fw_ring *r = rig_random(&g) & 2 ? &g.rx : &g.from_device;
        uint32_t what = rig_random(&g) >> 8, at = what % r->buffer_bytes;
        uint8_t *room = dxpu_fw_ring_room(r);
        if (room) {
            room[at] = (uint8_t)(what >> 12);
            r->lengths[r->put % r->count] = what & 0x800 ? what : what % (r->buffer_bytes + 2);
            r->put += what % 97 == 0 ? what : 1;
        }
        if (i % 64 == 0 && dxpu_channel_status(&g.host).state == DXPU_STATE_UP)
            (void)host_sends(&g, &t);
        if (dxpu_channel_status(&g.host).state >= DXPU_STATE_CLOSED)
            rig_dial(&g, 2 + i, 64, NULL);
        rig_turn(&g);
        (void)device_takes(&g, &t);
        t = request(DXPU_TLP_MWR, i);
    }
    assert_true(g.fw.counters.rings_astray > 10 && g.fw.counters.device_lengths > 100);
    assert_true(g.fw.counters.device_malformed > 10 && g.fw.counters.ups > 2);
    g.now += 1000000000;
    rig_turns(&g, 50);
    rig_up(&g, 1000000, 64);
    rig_end(&g);
}

/* ==== Sealed channels: a toy suite, whose only virtue is that it is another one =============== */

static unsigned sessions_ended;

static bool toy_seal(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                     uint8_t *body, size_t body_bytes)
{
    uint8_t tag = (uint8_t)(nonce + header.ptr[DXPU_FRAME_KIND]);
    (void)user;
    (void)key_phase;
    for (size_t i = 0; i < body_bytes; i++)
        tag = (uint8_t)(tag + (body[i] ^= 0x5a));
    memset(body + body_bytes, tag, 16);
    return true;
}

static bool toy_open(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                     uint8_t *body, size_t body_bytes)
{
    uint8_t tag = (uint8_t)(nonce + header.ptr[DXPU_FRAME_KIND]);
    (void)user;
    (void)key_phase;
    for (size_t i = 0; i < body_bytes; i++)
        tag = (uint8_t)(tag + body[i]);
    for (size_t i = 0; i < body_bytes; i++)
        body[i] ^= 0x5a;
    return body[body_bytes] == tag && body[body_bytes + 15] == tag;
}

static const dxpu_suite toy = { 0x0100, 16, toy_seal, toy_open };

static size_t toy_handshake(void *user, uint64_t now_ns, dxpu_bytes frame,
                            const dxpu_fw_address *from, uint8_t *out, size_t cap)
{
    (void)user;
    (void)now_ns;
    assert_memory_equal(from->ip, host_at.ip, 4);
    assert_true(cap >= frame.len && cap >= DXPU_FRAME_MIN_LIMIT_BYTES);
    memcpy(out, frame.ptr, frame.len);
    return frame.len;
}

static uint8_t toy_owner = 0x42;    /* of all bytes of the key; 0: none */
static const dxpu_suite *toy_suite; /* that the session has */

static bool toy_reads_open(void *user, uint64_t now_ns, dxpu_bytes frame, dxpu_fw_opening *o)
{
    uint8_t copy[2048];
    dxpu_frame f;
    dxpu_bytes c = { copy, frame.len }, header = { copy, DXPU_FRAME_BASE_BYTES };
    (void)now_ns;
    assert_true(frame.len <= sizeof copy);
    memcpy(copy, frame.ptr, frame.len);
    if (dxpu_frame_decode(c, toy.tag_bytes, &f) != DXPU_OK ||
        !toy_open(NULL, 0, f.packet, header, copy + header.len, f.body.len) ||
        dxpu_offer_decode(f.body, &o->offer) != DXPU_OK)
        return false;
    o->local_id = 0x77;
    o->suite = toy_suite;
    o->suite_user = user;
    memset(o->owner, toy_owner, sizeof o->owner);
    return true;
}

static bool toy_allowed(void *user, uint16_t slot, const uint8_t owner[DXPU_FW_OWNER_BYTES])
{
    (void)user;
    return slot == SLOT && owner[0] == toy_owner;
}

static uint64_t toy_work(void *user, void *suite_user, dxpu_channel *ch, uint64_t now_ns)
{
    assert_ptr_equal(user, suite_user);
    assert_ptr_equal(ch->cfg.suite_user, suite_user);
    (void)now_ns;
    return DXPU_NEVER;
}

static void toy_end(void *user, void *suite_user)
{
    assert_ptr_equal(user, suite_user);
    sessions_ended++;
}

static const dxpu_fw_security toy_security = { toy_handshake, toy_reads_open, toy_allowed,
                                               toy_work,      toy_end,        NULL };

/* An open() that gives no key, or no suite, refuses all hosts, with and without keys. */
static void test_s95_open_without_owner(void **state)
{
    rig g;
    (void)state;
    rig_begin(&g, &toy_security);
    for (unsigned i = 0; i < 3; i++) {
        toy_owner = i == 0 ? 0 : 0x42;
        toy_suite = i == 1 ? NULL : &toy;
        sessions_ended = 0;
        rig_dial(&g, 1 + i, 64, &toy);
        rig_turns(&g, 10);
        assert_int_equal(dxpu_channel_status(&g.host).state,
                         i == 2 ? DXPU_STATE_UP : DXPU_STATE_OPENING); /* 2: the control */
        assert_int_equal(sessions_ended > 0, i < 2);
    }
    assert_int_equal(g.fw.counters.opens, 1);
    assert_true(g.fw.counters.opens_unauthorized >= 2);
    rig_end(&g);
}

/* P-3: what open() has read is ended when the box does not want it, or its keys would stay. */
static void test_p3_short_sealed_open(void **state)
{
    rig g;
    (void)state;
    rig_begin(&g, &toy_security);
    toy_suite = &toy;
    sessions_ended = 0;
    short_open(&g, &toy);
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.fw.counters.opens_bad, 1);
    assert_int_equal(sessions_ended, 1);
    rig_dial(&g, 1, 64, &toy);
    rig_turns(&g, 10);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    short_open(&g, &toy); /* once more, and they are those of a channel */
    dxpu_fw_poll(&g.fw, g.now);
    assert_int_equal(g.fw.counters.opens_bad, 2);
    assert_int_equal(sessions_ended, 1);
    rig_end(&g);
}

static void test_s30_s33_sealed(void **state)
{
    rig g;
    dxpu_tlp t = request(DXPU_TLP_MWR, 3);
    uint8_t frame[64];
    size_t n;
    (void)state;
    sessions_ended = 0;
    toy_suite = &toy;
    rig_begin(&g, &toy_security);
    rig_says_handshake(&g);
    assert_int_equal(g.fw.counters.rx_handshakes, 1);
    assert_int_equal(dxpu_fw_ring_used(&g.tx), 1); /* answered */
    dxpu_fw_ring_drop(&g.tx);

    rig_dial(&g, 1, 64, NULL); /* S-30: an open without keys */
    rig_turns(&g, 10);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_OPENING);
    assert_true(g.fw.counters.opens_bad > 0);

    rig_dial(&g, 5, 64, &toy);
    rig_turns(&g, 10);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_int_equal(g.slot.active->ch.cfg.local_id, 0x77);
    assert_int_equal(host_sends(&g, &t), DXPU_OK);
    rig_turns(&g, 10);
    assert_true(device_takes(&g, &t));
    n = dxpu_reset_encode(0x77, DXPU_REASON_NONE, frame); /* S-33 */
    rig_to_node(&g, frame, n);
    rig_turns(&g, 4);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_non_null(g.slot.active);

    assert_int_equal(dxpu_channel_close(&g.host, DXPU_REASON_DETACH), DXPU_OK);
    rig_turns(&g, 3000); /* the channel stays a hold to answer */
    assert_int_equal(sessions_ended, 1);
    rig_dial(&g, 4, 64, &toy); /* refused: an old epoch, and nothing in the open says so */
    rig_turns(&g, 4);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_OPENING);
    assert_true(sessions_ended > 1);
    assert_int_equal(g.fw.counters.opens_refused, 0);
    assert_true(g.fw.counters.opens_unauthorized > 0);
    rig_end(&g);
}

/* ==== Sealed channels: bindings/sodium behind the hooks ====================================== */

enum { HOST, NODE, OTHER, ENDS }; /* OTHER: another host, whose key the node knows, too */

typedef struct keys {
    dxpu_noise_pair *pair[ENDS];
    dxpu_sodium *end[ENDS];
    dxpu_sodium_peer peer[ENDS];
    bool listed[ENDS]; /* in the node's list */
    bool blind;        /* the node's handshake does not ask it which host gets the slot */
    const dxpu_fw *fw;
    uint32_t next_id;
} keys;

static keys ring_of_keys;

static dxpu_sodium_peer *keys_find(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    keys *k = user;
    for (unsigned i = 0; i < ENDS; i++) {
        if (k->listed[i] && !memcmp(key, k->pair[i]->public_key, DXPU_NOISE_KEY_BYTES))
            return &k->peer[i];
    }
    return NULL;
}

static bool keys_allowed(void *user, uint16_t slot, const uint8_t owner[DXPU_FW_OWNER_BYTES])
{
    (void)user;
    return slot == SLOT && keys_find(&ring_of_keys, owner);
}

static uint8_t keys_authorize(void *user, dxpu_sodium_peer *peer,
                              const uint8_t key[DXPU_NOISE_KEY_BYTES],
                              const dxpu_sodium_request *request, uint32_t *channel)
{
    keys *k = user;
    (void)peer;
    *channel = 0x9000 + ++k->next_id;
    return k->blind ? DXPU_REASON_NONE
                    : dxpu_fw_authorize(k->fw, &request->source, request->destination.slot,
                                        request->epoch, key);
}

static size_t keys_handshake(void *user, uint64_t now_ns, dxpu_bytes frame,
                             const dxpu_fw_address *from, uint8_t *out, size_t cap)
{
    uint8_t where[6] = { from->ip[0], from->ip[1], from->ip[2], from->ip[3] };
    dxpu_bytes at = { where, sizeof where };
    dxpu_sodium_session *x;
    size_t bytes = 0;
    (void)user;
    dxpu_put_be16(where + 4, from->port);
    return dxpu_sodium_ingest(ring_of_keys.end[NODE], now_ns, frame, at, out, cap, &bytes, &x) ==
                   DXPU_OK
               ? bytes
               : 0;
}

static bool keys_open(void *user, uint64_t now_ns, dxpu_bytes frame, dxpu_fw_opening *o)
{
    dxpu_sodium_session *x = dxpu_sodium_opener(ring_of_keys.end[NODE], now_ns, frame, &o->offer);
    (void)user;
    if (!x)
        return false;
    o->local_id = dxpu_sodium_local_id(x);
    o->suite = dxpu_sodium_suite(x);
    o->suite_user = x;
    memcpy(o->owner, dxpu_sodium_peer_key(x), sizeof o->owner);
    return true;
}

static uint64_t keys_work(void *user, void *suite_user, dxpu_channel *ch, uint64_t now_ns)
{
    (void)user;
    if (dxpu_channel_status(ch).state == DXPU_STATE_UP)
        dxpu_sodium_settle(suite_user);
    dxpu_sodium_work(suite_user, ch, now_ns);
    return dxpu_sodium_next_ns(suite_user);
}

static void keys_end(void *user, void *suite_user)
{
    (void)user;
    dxpu_sodium_end(suite_user);
}

static const dxpu_fw_security keys_security = { keys_handshake, keys_open, keys_allowed,
                                                keys_work,      keys_end,  NULL };

/* A host's handshake with the node, frame by frame; the session, keyed or refused.  Both hosts say
   that they are node 1. */
static dxpu_sodium_session *rig_handshake(rig *g, unsigned who, uint32_t id, uint64_t epoch)
{
    uint8_t out[DXPU_SODIUM_FRAME_BYTES], *frame;
    dxpu_bytes at = { box_at.ip, sizeof box_at.ip };
    dxpu_sodium_request ask = { 0 };
    dxpu_sodium_session *x, *done = NULL;
    uint32_t bytes = 0;
    int n;
    ask.channel = id;
    ask.version_min = ask.version_max = DXPU_WIRE_VERSION;
    ask.epoch = epoch;
    ask.source.node = 1;
    ask.destination.node = 2;
    ask.destination.slot = SLOT;
    ask.source.function = ask.destination.function = DXPU_FUNCTION_ALL;
    x = dxpu_sodium_begin(ring_of_keys.end[who], ring_of_keys.pair[NODE]->public_key, &ask);
    assert_non_null(x);
    n = dxpu_sodium_initiate(x, g->now, 1700000000000000000u + g->now, out, sizeof out);
    assert_true(n > 0);
    rig_to_node(g, out, (size_t)n);
    for (unsigned i = 0; i < 4 && !done; i++) { /* a cookie, then the response */
        dxpu_fw_poll(&g->fw, g->now);
        while ((frame = dxpu_fw_ring_peek(&g->tx, &bytes)) != NULL) {
            dxpu_bytes said = { frame + DXPU_FW_HEADERS_BYTES, bytes - DXPU_FW_HEADERS_BYTES };
            size_t answer = 0;
            assert_int_equal(dxpu_sodium_ingest(ring_of_keys.end[who], g->now, said, at, out,
                                                sizeof out, &answer, &done),
                             DXPU_OK);
            dxpu_fw_ring_take(&g->tx);
            if (answer)
                rig_to_node(g, out, answer);
        }
    }
    assert_ptr_equal(done, x);
    return x;
}

/* A host dials with its key; it is the rig's from now on. */
static dxpu_sodium_session *rig_dial_keyed(rig *g, unsigned who, uint64_t epoch)
{
    dxpu_sodium_session *x = rig_handshake(g, who, 0x5001 + g->next_id, epoch);
    assert_int_equal(dxpu_sodium_state(x), DXPU_SODIUM_KEYED);
    rig_dial(g, epoch, 64, dxpu_sodium_suite(x)); /* by the id that was asked for */
    g->host.cfg.suite_user = x;
    rig_turns(g, 10);
    return x;
}

static void keys_begin(keys *k, const rig *g)
{
    memset(k, 0, sizeof *k);
    k->fw = &g->fw;
    k->listed[HOST] = k->listed[OTHER] = true;
    assert_int_equal(dxpu_sodium_init(), DXPU_OK);
    for (unsigned i = 0; i < ENDS; i++) {
        dxpu_sodium_config cfg;
        dxpu_sodium_config_default(&cfg);
        cfg.identity = k->pair[i] = dxpu_sodium_key_new();
        cfg.rekey_ns = 300000000;
        cfg.cb.user = k;
        cfg.cb.find = i == NODE ? keys_find : NULL;
        cfg.cb.authorize = i == NODE ? keys_authorize : NULL;
        k->end[i] = dxpu_sodium_create(&cfg);
        assert_non_null(k->end[i]);
    }
}

static void keys_close(keys *k)
{
    for (unsigned i = 0; i < ENDS; i++) {
        dxpu_sodium_destroy(k->end[i]);
        dxpu_sodium_key_free(k->pair[i]);
    }
}

/* A whole life under real keys: handshake with a cookie, TLPs both ways through key phases that the
   node begins as well, and the session wiped at the end. */
static void test_s41_s44_real_keys(void **state)
{
    dxpu_sodium_session *x;
    uint32_t got = 0, sent = 0;
    dxpu_tlp t;
    rig g;
    (void)state;
    rig_begin(&g, &keys_security);
    keys_begin(&ring_of_keys, &g);
    x = rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    for (unsigned i = 0; i < 30000; i++, rig_turn(&g)) { /* 1.5 s */
        t = request(DXPU_TLP_MWR, sent);
        if (i % 100 == 0 && device_sends(&g, &t))
            sent++;
        for (; host_takes(&g, DXPU_POSTED, &t); got++)
            assert_int_equal(t.address, 4 * got);
        dxpu_sodium_work(x, &g.host, g.now);
    }
    assert_int_equal(got, sent);
    assert_true(sent > 200);
    assert_true(dxpu_sodium_count(ring_of_keys.end[NODE])->rekeys >= 3);
    assert_true(dxpu_sodium_count(ring_of_keys.end[NODE])->rekeys_seen >= 3);
    assert_int_equal(dxpu_sodium_count(ring_of_keys.end[NODE])->cookies_sent, 1); /* S-17 */
    assert_int_equal(dxpu_channel_close(&g.host, DXPU_REASON_DETACH), DXPU_OK);
    rig_turns(&g, 3000);
    assert_int_equal(g.fw.counters.closed, 1);
    assert_int_equal(g.slot.link[0].state + g.slot.link[1].state, 0);
    rig_end(&g);
    keys_close(&ring_of_keys);
}

/* The other host, as node 1 as well, learns it in its handshake, and where that does not ask the
   node, its open is not answered. */
static void other_is_refused(rig *g, uint64_t epoch)
{
    uint64_t unauthorized = g->fw.counters.opens_unauthorized, ups = g->fw.counters.ups;
    dxpu_sodium_session *x;
    ring_of_keys.blind = false;
    x = rig_handshake(g, OTHER, 0x5001 + g->next_id, epoch);
    assert_int_equal(dxpu_sodium_state(x), DXPU_SODIUM_REFUSED);
    assert_int_equal(dxpu_sodium_reason(x), DXPU_REASON_EPOCH);
    dxpu_sodium_end(x);
    ring_of_keys.blind = true;
    (void)rig_dial_keyed(g, OTHER, epoch);
    ring_of_keys.blind = false;
    assert_int_equal(dxpu_channel_status(&g->host).state, DXPU_STATE_OPENING);
    assert_true(g->fw.counters.opens_unauthorized > unauthorized);
    assert_int_equal(g->fw.counters.ups, ups);
}

/* A lease stays with the key that opened it: while its host is there, after it has gone, and after
   a restart of the node.  The controls: that key, and a higher epoch. */
static void test_s95_a_lease_is_its_keys(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MWR, 7);
    dxpu_fw_kept kept;
    dxpu_fw_config cfg;
    dxpu_channel host;
    void *memory;
    rig g;
    (void)state;
    rig_begin(&g, &keys_security);
    keys_begin(&ring_of_keys, &g);
    (void)rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_int_equal(g.kept, 1);
    assert_memory_equal(g.lease.owner, ring_of_keys.pair[HOST]->public_key, DXPU_FW_OWNER_BYTES);
    host = g.host;
    memory = g.host_memory;
    g.host_memory = NULL;
    other_is_refused(&g, 1);
    free(g.host_memory);
    g.host = host;
    g.host_memory = memory;
    assert_int_equal(host_sends(&g, &t), DXPU_OK); /* the first one has its device still */
    rig_turns(&g, 20);
    assert_true(device_takes(&g, &t));

    (void)rig_dial_keyed(&g, HOST, 1); /* control: the same key, which has lost its channel */
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_int_equal(dxpu_channel_close(&g.host, DXPU_REASON_DETACH), DXPU_OK);
    rig_turns(&g, 3000);
    other_is_refused(&g, 1);
    assert_int_equal(g.kept, 1);

    kept = g.lease;
    cfg = g.fw.cfg;
    assert_int_equal(dxpu_fw_init(&g.fw, &cfg, &g.slot, 1, g.memory, dxpu_fw_bytes(&cfg, 1)),
                     DXPU_OK);
    assert_int_equal(dxpu_fw_restore(&g.fw, SLOT + 1, &kept), DXPU_E_ARG);
    assert_int_equal(dxpu_fw_restore(&g.fw, SLOT, &kept), DXPU_OK);
    other_is_refused(&g, 1);
    (void)rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);

    (void)rig_dial_keyed(&g, OTHER, 2); /* control: it may have the slot */
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_int_equal(g.kept, 2);
    assert_memory_equal(g.lease.owner, ring_of_keys.pair[OTHER]->public_key, DXPU_FW_OWNER_BYTES);
    rig_end(&g);
    keys_close(&ring_of_keys);
}

/* A node that had forgotten the key passes it to keep(), and is refused where it cannot be kept. */
static void test_s95_a_forgotten_key_is_kept_again(void **state)
{
    static const dxpu_fw_kept kept = { .epoch = 1, .host_node = 1 };
    rig g;
    (void)state;
    rig_begin(&g, &keys_security);
    keys_begin(&ring_of_keys, &g);
    assert_int_equal(dxpu_fw_restore(&g.fw, SLOT, &kept), DXPU_OK);
    g.keep = false;
    (void)rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_NO_SLOT);
    g.keep = true;
    (void)rig_dial_keyed(&g, OTHER, 1); /* the refused one is not an owner */
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_int_equal(g.kept, 2);
    assert_memory_equal(g.lease.owner, ring_of_keys.pair[OTHER]->public_key, DXPU_FW_OWNER_BYTES);
    rig_end(&g);
    keys_close(&ring_of_keys);
}

/* A key that is taken off the list: its channel ends, and a session that it has agreed on meanwhile
   opens none. */
static void test_s96_a_key_taken_off_the_list(void **state)
{
    dxpu_sodium_session *x;
    rig g;
    (void)state;
    rig_begin(&g, &keys_security);
    keys_begin(&ring_of_keys, &g);
    (void)rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    ring_of_keys.listed[OTHER] = false;
    dxpu_fw_recheck(&g.fw);
    rig_turns(&g, 10);
    assert_int_equal(dxpu_channel_status(&g.host).state,
                     DXPU_STATE_UP); /* control: another one's */
    x = rig_handshake(&g, HOST, 0x5001 + g.next_id, 1);
    ring_of_keys.listed[HOST] = false;
    dxpu_fw_recheck(&g.fw);
    assert_int_equal(g.fw.counters.revoked, 1);
    assert_true(dxpu_fw_next_ns(&g.fw) <= g.now);
    rig_turn(&g);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_FAILED);
    assert_int_equal(dxpu_channel_status(&g.host).reason, DXPU_REASON_DETACH);
    assert_null(g.slot.active);
    rig_dial(&g, 1, 64, dxpu_sodium_suite(x));
    g.host.cfg.suite_user = x;
    rig_turns(&g, 10);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_OPENING);
    assert_true(g.fw.counters.opens_unauthorized > 0);
    assert_int_equal(g.fw.counters.ups, 1);
    rig_end(&g);
    keys_close(&ring_of_keys);
}

/* -- The binding's own keys, computed by bindings/portable -- */

typedef struct box {
    dxpu_primitives table;
    dxpu_fw_peer peers[2];
    dxpu_fw_keys keys;
    void *memory;
    uint64_t clock_ns, costs_ns; /* what looking at a frame takes */
} box;

static void box_random(void *user, uint8_t *out, size_t bytes)
{
    (void)user;
    randombytes_buf(out, bytes);
}

static uint64_t box_clock(void *user)
{
    box *b = user;
    return b->clock_ns += b->costs_ns;
}

/* HOST may have the slot, OTHER the one behind it. */
static void box_begin(box *b, rig *g)
{
    dxpu_fw_keys_config cfg = { 0 };
    size_t bytes;
    rig_begin(g, &dxpu_fw_keys_security);
    keys_begin(&ring_of_keys, g);
    memset(b, 0, sizeof *b);
    dxpu_portable_init(&b->table, box_random, NULL);
    memcpy(b->peers[0].key, ring_of_keys.pair[HOST]->public_key, DXPU_KEY_BYTES);
    b->peers[0].slots = DXPU_FW_ALL_SLOTS;
    memcpy(b->peers[1].key, ring_of_keys.pair[OTHER]->public_key, DXPU_KEY_BYTES);
    b->peers[1].slots = 2;
    cfg.with = &b->table;
    cfg.peers = b->peers;
    cfg.peer_count = 2;
    cfg.sessions = 6;
    cfg.pending = 4;
    cfg.clock_ns = box_clock;
    cfg.user = b;
    assert_int_equal(dxpu_fw_keys_bytes(&cfg), 0); /* whose? */
    cfg.identity = ring_of_keys.pair[NODE];
    bytes = dxpu_fw_keys_bytes(&cfg);
    b->memory = aligned_alloc(16, bytes);
    assert_non_null(b->memory);
    assert_int_equal(dxpu_fw_keys_init(&b->keys, &cfg, &g->fw, b->memory, bytes - 1), DXPU_E_ROOM);
    memset(b->memory, 0x5a, bytes); /* keys of an earlier life */
    assert_int_equal(dxpu_fw_keys_init(&b->keys, &cfg, &g->fw, b->memory, bytes), DXPU_OK);
    assert_null(memchr((uint8_t *)b->memory + bytes / 2, 0x5a, bytes - bytes / 2)); /* sessions */
    g->fw.cfg.security_user = &b->keys;
}

static void box_end(box *b, rig *g)
{
    free(b->memory);
    rig_end(g);
    keys_close(&ring_of_keys);
}

/* A whole life: handshake with a cookie, TLPs both ways, the host's key phases; then a key that may
   not have this slot, and one that is taken off the list. */
static void test_s192_a_box_with_keys_of_its_own(void **state)
{
    static box b;
    const dxpu_secure_counters *count;
    dxpu_sodium_session *x;
    uint32_t got = 0, sent = 0;
    dxpu_tlp t;
    rig g;
    (void)state;
    box_begin(&b, &g);
    count = dxpu_fw_keys_count(&b.keys);
    x = rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    assert_int_equal(count->cookies_sent, 1);
    for (unsigned i = 0; i < 20000; i++, rig_turn(&g)) { /* 1 s */
        t = request(DXPU_TLP_MWR, sent);
        if (i % 100 == 0 && device_sends(&g, &t))
            sent++;
        for (; host_takes(&g, DXPU_POSTED, &t); got++)
            assert_int_equal(t.address, 4 * got);
        dxpu_sodium_work(x, &g.host, g.now);
    }
    assert_int_equal(got, sent);
    assert_true(sent > 150 && count->rekeys_seen >= 2);

    x = rig_handshake(&g, OTHER, 0x5001 + g.next_id, 2);
    assert_int_equal(dxpu_sodium_state(x), DXPU_SODIUM_REFUSED);
    assert_int_equal(dxpu_sodium_reason(x),
                     DXPU_REASON_NO_SLOT); /* as if it were not there (S-95) */
    dxpu_sodium_end(x);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    b.peers[1].slots = 3; /* control */
    x = rig_handshake(&g, OTHER, 0x5001 + g.next_id, 2);
    assert_int_equal(dxpu_sodium_state(x), DXPU_SODIUM_KEYED);

    dxpu_fw_recheck(&g.fw);
    rig_turns(&g, 4);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP); /* control */
    b.peers[0].slots = 0;
    dxpu_fw_recheck(&g.fw);
    rig_turns(&g, 4);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_FAILED); /* S-96 */
    box_end(&b, &g);
}

/* An initiation of HOST whose address is proven, as it would be repeated by who recorded it: so
   often, one each turn, after a pause. */
static void box_flood(rig *g, unsigned count, uint64_t pause_ns)
{
    uint8_t out[DXPU_SODIUM_FRAME_BYTES];
    dxpu_sodium_request ask = { 0 };
    dxpu_sodium_session *x;
    int n;
    ask.channel = 0x6001;
    ask.version_min = ask.version_max = DXPU_WIRE_VERSION;
    ask.epoch = 1;
    ask.destination.slot = SLOT;
    x = dxpu_sodium_begin(ring_of_keys.end[HOST], ring_of_keys.pair[NODE]->public_key, &ask);
    assert_non_null(x);
    n = dxpu_sodium_initiate(x, g->now, 1800000000000000000u + g->now, out, sizeof out);
    assert_true(n > 0);
    while (count--) {
        g->now += pause_ns;
        rig_to_node(g, out, (size_t)n);
        rig_turn(g);
    }
    dxpu_sodium_end(x);
}

/* S-98, S-156: looking at a handshake takes 10 ms here, and a second has room for 25 of them; with
   no channel up for all.  On a slow part it takes 400 ms, and 8 s have room for 5. */
static void test_s98_a_box_gives_handshakes_their_share(void **state)
{
    static box b;
    const dxpu_secure_counters *count;
    uint64_t before;
    rig g;
    (void)state;
    box_begin(&b, &g);
    count = dxpu_fw_keys_count(&b.keys);
    b.costs_ns = 10000000;
    box_flood(&g, 100, 0);
    assert_int_equal(count->cookies_sent, 100); /* control: it is not awaited */
    assert_int_equal(b.keys.late, 0);
    b.costs_ns = 0;
    (void)rig_dial_keyed(&g, HOST, 1);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    b.costs_ns = 10000000;
    before = count->cookies_sent;
    box_flood(&g, 20000, 0); /* 1 s */
    assert_in_range(count->cookies_sent - before, 20, 27);
    assert_true(b.keys.late > 19000);
    b.costs_ns = 400000000;
    before = count->cookies_sent;
    box_flood(&g, 8000, 950000); /* 8 s */
    assert_in_range(count->cookies_sent - before, 4, 6);
    assert_int_equal(dxpu_channel_status(&g.host).state, DXPU_STATE_UP);
    box_end(&b, &g);
}

/* S-14: the keys of a handshake that leads to no open are forgotten, and the node wakes for it. */
static void test_s14_a_box_forgets_in_time(void **state)
{
    static box b;
    uint64_t due_ns;
    rig g;
    (void)state;
    box_begin(&b, &g);
    (void)rig_handshake(&g, HOST, 0x5001, 1);
    dxpu_fw_poll(&g.fw, g.now);
    due_ns = dxpu_fw_next_ns(&g.fw);
    assert_int_equal(due_ns, g.now + 5000000000u);
    dxpu_fw_poll(&g.fw, due_ns - 1);
    assert_int_equal(dxpu_fw_keys_count(&b.keys)->expired, 0);
    dxpu_fw_poll(&g.fw, due_ns);
    assert_int_equal(dxpu_fw_keys_count(&b.keys)->expired, 1);
    assert_int_equal(dxpu_fw_next_ns(&g.fw), DXPU_NEVER);
    box_end(&b, &g);
}

static void test_counter_names(void **state)
{
    dxpu_fw_counters count = { 0 };
    unsigned i = 0;
    (void)state;
    count.rx_datagrams = 7;
    count.rings_astray = 9;
    assert_string_equal(dxpu_fw_counter_name(0), "rx_datagrams");
    assert_int_equal(dxpu_fw_counter_value(&count, 0), 7);
    while (dxpu_fw_counter_name(i + 1))
        i++;
    assert_string_equal(dxpu_fw_counter_name(i), "rings_astray");
    assert_int_equal(dxpu_fw_counter_value(&count, i), 9);
    assert_int_equal(dxpu_fw_counter_value(&count, i + 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_refuses_sizes),
        cmocka_unit_test(test_ring_wraps),
        cmocka_unit_test(test_ring_hostile_producer),
        cmocka_unit_test(test_ring_between_threads),
        cmocka_unit_test(test_clock_wraps_and_keeps_time),
        cmocka_unit_test(test_clock_ticks),
        cmocka_unit_test(test_wire_round_trip),
        cmocka_unit_test(test_wire_checksums_of_another),
        cmocka_unit_test(test_wire_every_byte_counts),
        cmocka_unit_test(test_wire_fields),
        cmocka_unit_test(test_wire_arp),
        cmocka_unit_test(test_init_refuses),
        cmocka_unit_test(test_tlps_cross_both_ways),
        cmocka_unit_test(test_full_ring_to_device),
        cmocka_unit_test(test_requests_wait_others_pass),
        cmocka_unit_test(test_nothing_passes_posted),
        cmocka_unit_test(test_a_class_keeps_its_order),
        cmocka_unit_test(test_hostile_device),
        cmocka_unit_test(test_network_ring_astray),
        cmocka_unit_test(test_malformed_from_host),
        cmocka_unit_test(test_nonposted_limit),
        cmocka_unit_test(test_event_is_a_barrier),
        cmocka_unit_test(test_s100_s108_a_guard_at_the_rings),
        cmocka_unit_test(test_s108_a_refusal_waits_for_room),
        cmocka_unit_test(test_s107_answers_that_wait),
        cmocka_unit_test(test_s175_waiting_for_a_device_that_is_reset),
        cmocka_unit_test(test_d49_w28_leases),
        cmocka_unit_test(test_d49_one_reset_between_hosts),
        cmocka_unit_test(test_s92_handshake_without_keys),
        cmocka_unit_test(test_other_slots_and_bad_opens),
        cmocka_unit_test(test_path_follows_the_newest),
        cmocka_unit_test(test_path_follows_the_next_hop),
        cmocka_unit_test(test_p27_three_times_what_arrived),
        cmocka_unit_test(test_p27_a_host_that_moved),
        cmocka_unit_test(test_p27_back_to_an_address_that_answered),
        cmocka_unit_test(test_flood_of_opens),
        cmocka_unit_test(test_full_ring_to_network),
        cmocka_unit_test(test_close_and_silence),
        cmocka_unit_test(test_device_without_host),
        cmocka_unit_test(test_random_hardware),
        cmocka_unit_test(test_s95_open_without_owner),
        cmocka_unit_test(test_p3_short_sealed_open),
        cmocka_unit_test(test_s30_s33_sealed),
        cmocka_unit_test(test_s41_s44_real_keys),
        cmocka_unit_test(test_s95_a_lease_is_its_keys),
        cmocka_unit_test(test_s95_a_forgotten_key_is_kept_again),
        cmocka_unit_test(test_s96_a_key_taken_off_the_list),
        cmocka_unit_test(test_s192_a_box_with_keys_of_its_own),
        cmocka_unit_test(test_s98_a_box_gives_handshakes_their_share),
        cmocka_unit_test(test_s14_a_box_forgets_in_time),
        cmocka_unit_test(test_counter_names),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
