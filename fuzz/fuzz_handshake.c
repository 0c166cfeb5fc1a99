/* Fuzz target: a host and a box that agree on keys, and a network that does what the input says:
   passes handshake frames on, alters, repeats and invents them, with CRCs made right or not.
   The box answers nothing by more bytes than came; a session is keyed only with the
   owner of the public key that was asked for; an open leads to a session only when its keys
   read it; and without interference both have keys.
   libFuzzer: -max_len=128 */
#define DXPU_IMPLEMENTATION
#include "quick_sodium.h"

#include "bindings/sodium/dxpu_noise.c"
#define KEY KEY_OF_END /* the same in each of the parts */
#define MAC MAC_OF_END
#include "bindings/sodium/dxpu_sodium.c"
#undef KEY
#undef MAC
#include "bindings/sodium/dxpu_sodium_seal.c"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    BYTES = DXPU_NOISE_KEY_BYTES,
    WAYS = 2,
    ROOM = DXPU_SODIUM_FRAME_BYTES,
    BASE = DXPU_FRAME_BASE_BYTES
};

typedef struct packet {
    uint8_t bytes[ROOM];
    size_t len;
} packet;

static dxpu_noise_pair own[2];
static dxpu_sodium *end[2];
static dxpu_sodium_session *asking_one;
static dxpu_sodium_peer known;
static packet way[WAYS], kept; /* towards the box, towards the host; one of before */
static uint64_t now_ns;
static bool altered;

static dxpu_sodium_peer *find(void *user, const uint8_t key[BYTES])
{
    (void)user;
    return memcmp(key, own[0].public_key, BYTES) == 0 ? &known : NULL;
}

static uint8_t welcome(void *user, dxpu_sodium_peer *peer, const uint8_t key[BYTES],
                       const dxpu_sodium_request *request, uint32_t *channel)
{
    (void)user;
    must(peer == &known && memcmp(key, own[0].public_key, BYTES) == 0);
    must(request->channel && request->epoch && request->suites);
    *channel = 0x2000;
    return request->destination.slot == 9 ? DXPU_REASON_BUSY : DXPU_REASON_NONE;
}

static void begin(input *in)
{
    dxpu_sodium_config cfg;
    dxpu_sodium_request ask;
    memset(way, 0, sizeof way);
    memset(&kept, 0, sizeof kept);
    memset(&known, 0, sizeof known);
    now_ns = 1000000000;
    altered = false;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_noise_pair_new(&own[i]);
        dxpu_sodium_config_default(&cfg);
        cfg.identity = &own[i];
        cfg.sessions = 4;
        cfg.pending = 2;
        cfg.cb.find = find;
        cfg.cb.welcome = welcome;
        end[i] = dxpu_sodium_create(&cfg);
        must(end[i] != NULL);
    }
    memset(&ask, 0, sizeof ask);
    ask.channel = 0x1000;
    ask.version_min = ask.version_max = DXPU_WIRE_VERSION;
    ask.epoch = 7;
    ask.source.node = 1;
    ask.source.slot = 1;
    ask.destination.node = 2;
    ask.destination.slot = next(in) & 0x10 ? 9 : 3;
    asking_one = dxpu_sodium_begin(end[0], own[1].public_key, &ask);
    must(asking_one != NULL);
}

static void initiate(void)
{
    int n = dxpu_sodium_initiate(asking_one, now_ns, now_ns + 5, way[0].bytes, ROOM);
    must(n > 0 || dxpu_sodium_state(asking_one) != DXPU_SODIUM_ASKING);
    if (n > 0)
        way[0].len = (size_t)n;
}

static void arrive(unsigned to)
{
    static const uint8_t at[] = { 10, 0, 0, 1 };
    dxpu_sodium_session *x = NULL;
    uint8_t answer[ROOM];
    size_t bytes = 0;
    packet p = way[to == 1 ? 0 : 1];
    dxpu_bytes datagram = { p.bytes, p.len }, from = { at, sizeof at };
    int rc = dxpu_sodium_ingest(end[to], now_ns, datagram, from, answer, ROOM, &bytes, &x);
    must(rc == DXPU_OK || bytes == 0);
    must(to == 0 || bytes <= p.len); /* the box sends nobody more than came in their name */
    must(!x || (x == asking_one && to == 0));
    if (x && dxpu_sodium_state(x) == DXPU_SODIUM_KEYED)
        must(memcmp(dxpu_sodium_peer_key(x), own[1].public_key, BYTES) == 0 &&
             dxpu_sodium_local_id(x) == 0x1000 && dxpu_sodium_remote_id(x) == 0x2000);
    if (bytes) {
        memcpy(way[to].bytes, answer, bytes);
        way[to].len = bytes;
    }
    kept = p;
}

/* The open of a channel, sealed with the keys of whom asked. */
static void open_frame(void)
{
    const dxpu_suite *suite = dxpu_sodium_suite(asking_one);
    dxpu_channel_config cfg;
    dxpu_channel ch;
    dxpu_offer offer;
    uint8_t out[2048], path;
    void *memory;
    int n;
    if (!suite)
        return;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = 0x1000;
    cfg.epoch = 7;
    cfg.local = dxpu_sodium_asked(asking_one)->source;
    cfg.remote = dxpu_sodium_asked(asking_one)->destination;
    cfg.suite = suite;
    cfg.suite_user = asking_one;
    memory = malloc(dxpu_channel_bytes(&cfg));
    must(memory && dxpu_channel_init(&ch, &cfg, memory, dxpu_channel_bytes(&cfg)) == DXPU_OK);
    must(dxpu_channel_open(&ch, now_ns) == DXPU_OK);
    n = dxpu_channel_emit(&ch, now_ns, out, sizeof out, &path);
    if (n > 0) {
        dxpu_bytes datagram = { out, (size_t)n };
        dxpu_sodium_session *x = dxpu_sodium_opener(end[1], now_ns, datagram, &offer);
        must(!x || (offer.epoch == 7 && offer.channel == 0x1000));
        must(!x || memcmp(dxpu_sodium_peer_key(x), own[0].public_key, BYTES) == 0);
        out[n / 2] ^= 1; /* and not, when it was altered */
        must(dxpu_sodium_opener(end[1], now_ns, datagram, &offer) == NULL);
    }
    free(memory);
}

static void attack(input *in, uint8_t op)
{
    packet *p = &way[op >> 3 & 1];
    size_t at, n;
    altered = true;
    switch (op >> 4 & 3) {
    case 0: /* a bit */
        if (p->len)
            p->bytes[next(in) % p->len] ^= (uint8_t)(1u << (op >> 6));
        break;
    case 1: /* cut */
        p->len = p->len ? next(in) % p->len : 0;
        break;
    case 2: /* what came before */
        *p = kept;
        break;
    default: /* invented, under a good head or not */
        n = next(in);
        at = op & 0x80 ? BASE : 0;
        for (p->len = at; p->len < n && in->left; p->len++)
            p->bytes[p->len] = next(in);
        break;
    }
    if ((op & 0x40) && p->len > DXPU_FRAME_CRC_BYTES)
        dxpu_frame_seal_crc(p->bytes, p->len - DXPU_FRAME_CRC_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size < 512 ? size : 512 }; /* each step may cost a Diffie-Hellman */
    quick_begin();
    must(dxpu_sodium_init() == DXPU_OK);
    begin(&in);
    while (in.left) {
        uint8_t op = next(&in);
        if ((op & 7) < 2)
            initiate();
        else if ((op & 7) < 4)
            arrive(op & 1);
        else if ((op & 7) == 4)
            now_ns += (uint64_t)1 << (op >> 3) % 40;
        else if ((op & 7) == 5)
            open_frame();
        else
            attack(&in, op);
    }
    for (unsigned i = 0; i < 2 && !altered; i++) { /* with a cookie, if one is asked for */
        initiate();
        arrive(1);
        arrive(0);
    }
    must(altered || dxpu_sodium_state(asking_one) != DXPU_SODIUM_ASKING);
    open_frame();
    for (unsigned i = 0; i < 2; i++)
        dxpu_sodium_destroy(end[i]);
    return 0;
}
