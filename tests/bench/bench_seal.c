/* A frame sealed and opened by each suite that is here, and by the CRC suite, beside copying it
   twice; a whole handshake at both ends, and an initiation that is refused for want of a cookie,
   beside one Diffie-Hellman.

   usage: bench_seal ROUNDS COUNT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "dxpu_sodium.h"

#include "bench.h"

#include <sodium.h>

enum { HEADER = DXPU_FRAME_FULL_BYTES, LARGEST = 8972, FRAME = DXPU_SODIUM_FRAME_BYTES };

/* Frames, trailer left out: a read, a write of 256 B, an MTU of 1500, a write of 4 KB, of 9000. */
static const size_t sizes[] = { 104, 364, 1436, 4208, 8956 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

typedef struct ends {
    dxpu_noise_pair *key[2];
    dxpu_sodium *end[2]; /* host, box */
    dxpu_sodium_peer peer;
    dxpu_sodium_request ask;
    dxpu_sodium_session *x;
    uint64_t now_ns;
} ends;

static uint8_t frame[LARGEST + 64], copied[2][LARGEST + 64];
static volatile uint32_t sink;
static const dxpu_bytes from = { (const uint8_t *)"host", 4 };

static dxpu_sodium_peer *find(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    (void)key;
    return &((ends *)user)->peer;
}

static uint8_t authorize(void *user, dxpu_sodium_peer *peer,
                         const uint8_t key[DXPU_NOISE_KEY_BYTES],
                         const dxpu_sodium_request *request, uint32_t *channel)
{
    (void)user, (void)peer, (void)key, (void)request;
    *channel = 0x2000;
    return DXPU_REASON_NONE;
}

static void ends_create(ends *e)
{
    memset(e, 0, sizeof *e);
    e->now_ns = 1;
    e->ask.channel = 0x1000;
    e->ask.version_min = e->ask.version_max = DXPU_WIRE_VERSION;
    e->ask.epoch = 7;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_sodium_config cfg;
        dxpu_sodium_config_default(&cfg);
        e->key[i] = dxpu_sodium_key_new();
        cfg.identity = e->key[i];
        cfg.cb.user = e;
        cfg.cb.find = find;
        cfg.cb.authorize = authorize;
        e->end[i] = dxpu_sodium_create(&cfg);
        bench_must(e->end[i] != NULL, "an end");
    }
}

static void ends_destroy(ends *e)
{
    for (unsigned i = 0; i < 2; i++) {
        dxpu_sodium_destroy(e->end[i]);
        dxpu_sodium_key_free(e->key[i]);
    }
}

static size_t begin(ends *e, uint16_t suites, uint8_t out[FRAME])
{
    e->ask.suites = suites;
    e->x = dxpu_sodium_begin(e->end[0], e->key[1]->public_key, &e->ask);
    bench_must(e->x != NULL, "a session");
    int n = dxpu_sodium_initiate(e->x, e->now_ns, e->now_ns, out, FRAME);
    bench_must(n > 0, "an initiation");
    return (size_t)n;
}

/* All messages there are, cookie included. */
static void shake(ends *e, uint16_t suites)
{
    uint8_t packet[2][FRAME];
    size_t bytes = begin(e, suites, packet[0]);
    for (unsigned i = 0; bytes; i++) {
        dxpu_sodium_session *done;
        dxpu_bytes datagram = { packet[i & 1], bytes };
        bench_must(dxpu_sodium_ingest(e->end[(i + 1) & 1], e->now_ns, datagram, from,
                                      packet[(i + 1) & 1], FRAME, &bytes, &done) == DXPU_OK,
                   "a handshake");
    }
    bench_must(dxpu_sodium_state(e->x) == DXPU_SODIUM_KEYED, "keys");
}

/* Two sessions of one program that are each other's, so that one opens what the other seals: the
   box's is found by an open frame, as in life. */
static dxpu_sodium_session *box_session(ends *e)
{
    dxpu_offer offer;
    dxpu_frame f;
    uint8_t out[DXPU_FRAME_BASE_BYTES + DXPU_OFFER_BYTES + DXPU_FRAME_TAG_MAX_BYTES];
    const dxpu_suite *suite = dxpu_sodium_suite(e->x);
    memset(&f, 0, sizeof f);
    memset(&offer, 0, sizeof offer);
    f.kind = DXPU_KIND_OPEN;
    offer.channel = e->ask.channel;
    offer.version_min = offer.version_max = DXPU_WIRE_VERSION;
    offer.suites = suite->id;
    offer.tlp_formats = 1;
    offer.window_frames = 64;
    offer.frame_limit_bytes = 1452;
    offer.hold_ms = 1000;
    offer.epoch = e->ask.epoch;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        offer.limits.header[i] = 64;
        offer.limits.data[i] = 1024;
    }
    size_t head = dxpu_frame_encode_header(&f, DXPU_OFFER_BYTES, suite->tag_bytes, out);
    dxpu_offer_encode(&offer, out + head);
    bench_must(suite->seal(e->x, 0, 0, (dxpu_bytes){ out, head }, out + head, DXPU_OFFER_BYTES),
               "seal");
    dxpu_bytes datagram = { out, head + DXPU_OFFER_BYTES + suite->tag_bytes };
    dxpu_sodium_session *x = dxpu_sodium_opener(e->end[1], e->now_ns, datagram, &offer);
    bench_must(x != NULL, "an open");
    return x;
}

static double sealed(const dxpu_suite *suite, dxpu_sodium_session *host, dxpu_sodium_session *box,
                     size_t bytes, unsigned long count)
{
    static uint64_t packet = 1;
    const dxpu_bytes header = { frame, HEADER };
    double begin_ns = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++, packet++) {
        bench_must(suite->seal(host, 0, packet, header, frame + HEADER, bytes - HEADER) &&
                       suite->open(box, 0, packet, header, frame + HEADER, bytes - HEADER),
                   "a frame");
    }
    return (bench_cpu_ns() - begin_ns) / (double)count;
}

static double summed(size_t bytes, unsigned long count)
{
    const dxpu_bytes whole = { frame, bytes + DXPU_FRAME_CRC_BYTES };
    double begin_ns = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        frame[i % bytes]++;
        dxpu_frame_seal_crc(frame, bytes);
        bench_must(dxpu_frame_check_crc(whole) == DXPU_OK, "a CRC");
    }
    return (bench_cpu_ns() - begin_ns) / (double)count;
}

static double copied_twice(size_t bytes, unsigned long count)
{
    double begin_ns = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        memcpy(copied[0], frame, bytes);
        sink += copied[0][i % bytes];
        memcpy(copied[1], copied[0], bytes);
        sink += copied[1][i % bytes];
    }
    return (bench_cpu_ns() - begin_ns) / (double)count;
}

static void measure_suite(uint16_t suite, unsigned long count)
{
    ends e;
    char row[64];
    ends_create(&e);
    shake(&e, suite);
    dxpu_sodium_session *box = box_session(&e);
    for (unsigned i = 0; i < SIZES; i++) {
        snprintf(row, sizeof row, "seal %s %u B", dxpu_sodium_suite_name(suite),
                 (unsigned)sizes[i]);
        bench_result(row, sealed(dxpu_sodium_suite(e.x), e.x, box, sizes[i], count),
                     copied_twice(sizes[i], count));
    }
    ends_destroy(&e);
}

static void measure_crc(unsigned long count)
{
    char row[64];
    for (unsigned i = 0; i < SIZES; i++) {
        snprintf(row, sizeof row, "seal crc %u B", (unsigned)sizes[i]);
        bench_result(row, summed(sizes[i], count), copied_twice(sizes[i], count));
    }
}

static double diffie_hellman(unsigned long count)
{
    dxpu_noise_pair p;
    uint8_t out[32];
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &p);
    double begin_ns = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        bench_must(crypto_scalarmult(out, p.secret, p.public_key) == 0, "a secret");
        memcpy(p.public_key, out, sizeof out);
    }
    return (bench_cpu_ns() - begin_ns) / (double)count;
}

static void measure_handshake(unsigned long count)
{
    uint8_t packet[FRAME], answer[FRAME];
    dxpu_sodium_session *done;
    size_t bytes, len;
    ends e;
    ends_create(&e);
    double dh_ns = diffie_hellman(count), begin_ns = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        e.now_ns++;
        shake(&e, 0);
        dxpu_sodium_end(e.x);
    }
    bench_result("handshake, both ends", (bench_cpu_ns() - begin_ns) / (double)count, dh_ns);
    len = begin(&e, 0, packet);
    begin_ns = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        bench_must(dxpu_sodium_ingest(e.end[1], e.now_ns, (dxpu_bytes){ packet, len }, from, answer,
                                      FRAME, &bytes, &done) == DXPU_OK,
                   "a cookie");
    }
    bench_result("initiation without a cookie", (bench_cpu_ns() - begin_ns) / (double)count, dh_ns);
    ends_destroy(&e);
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    bench_must(dxpu_sodium_init() == DXPU_OK, "libsodium");
    for (unsigned i = 0; i < sizeof frame; i++)
        frame[i] = (uint8_t)(i * 7);
    for (unsigned r = 0; r < a.rounds; r++) {
        for (unsigned bit = 0; bit < 16; bit++) {
            if (dxpu_sodium_suites() & 1u << bit)
                measure_suite((uint16_t)(1u << bit), a.count);
        }
        measure_crc(a.count);
        measure_handshake(a.count / 50 + 1);
    }
    return 0;
}
