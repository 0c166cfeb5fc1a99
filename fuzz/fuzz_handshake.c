/* Fuzz target: a host and a box that agree on keys, a stranger with a key of its own, and a network
   that does what the input says: passes handshake frames on, from one address or another, alters,
   repeats and invents them, with CRCs made right or not.
   The box never answers by more bytes than arrived; it computes no Diffie-Hellman and keeps nothing
   for who does not prove its address by a cookie that went there; it responds to initiations of the
   host alone, and to none that is not newer than all before; a session is keyed only with the owner
   of the public key that was asked for; an open leads to a session only when its keys read it; and
   without interference both have keys.
   libFuzzer: -max_len=128 */
#include "quick_sodium.h"

#include "dxpu_secure.c" /* not linked: reaches labelled() */
#include "dxpu_sodium.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    BYTES = DXPU_NOISE_KEY_BYTES,
    WAYS = 2,
    ROOM = DXPU_SODIUM_FRAME_BYTES,
    BASE = DXPU_FRAME_BASE_BYTES,
    HOST = 0,
    BOX = 1,
    STRANGER = 2,
    ENDS = 3,
    STEPS_MAX = 512, /* each may cost a Diffie-Hellman */
    KEPT = 4
};

typedef struct packet {
    uint8_t bytes[ROOM];
    size_t len;
} packet;

/* The longest that a cookie counts: its secret is the newest for 120 s, and then the one before. */
static const uint64_t cookie_max_ns = 240 * (uint64_t)1000000000;

static dxpu_noise_pair own[ENDS];
static dxpu_sodium *end[ENDS];
static dxpu_sodium_session *asking_one, *strangers;
static dxpu_sodium_peer known;
static packet way[WAYS], kept[KEPT]; /* towards the box, away from it; those of before */
static uint64_t now_ns;
static bool altered;
static struct { /* what the host said first, by its ephemeral keys: in the order of timestamps */
    uint8_t key[STEPS_MAX + 2][BYTES];
    unsigned count, answered;
} first;
static struct {
    struct {
        uint8_t cookie[COOKIE];
        unsigned address;
        uint64_t ns;
    } one[STEPS_MAX + 4];
    unsigned count;
} cookies;

static dxpu_sodium_peer *find(void *user, const uint8_t key[BYTES])
{
    (void)user;
    return memcmp(key, own[HOST].public_key, BYTES) == 0 ? &known : NULL;
}

static uint8_t authorize(void *user, dxpu_sodium_peer *peer, const uint8_t key[BYTES],
                         const dxpu_sodium_request *request, uint32_t *channel)
{
    (void)user;
    must(peer == &known && memcmp(key, own[HOST].public_key, BYTES) == 0);
    must(request->channel && request->epoch && request->suites);
    *channel = 0x2000;
    return request->destination.slot == 9 ? DXPU_REASON_BUSY : DXPU_REASON_NONE;
}

static void begin(input *in)
{
    dxpu_sodium_config cfg;
    dxpu_sodium_request ask;
    memset(way, 0, sizeof way);
    memset(kept, 0, sizeof kept);
    memset(&known, 0, sizeof known);
    first.count = first.answered = cookies.count = 0;
    now_ns = 1000000000;
    altered = false;
    for (unsigned i = 0; i < ENDS; i++) {
        dxpu_noise_pair_new(dxpu_sodium_primitives(), &own[i]);
        dxpu_sodium_config_default(&cfg);
        cfg.identity = &own[i];
        cfg.sessions = 4;
        cfg.pending = 2;
        cfg.cb.find = find;
        cfg.cb.authorize = authorize;
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
    asking_one = dxpu_sodium_begin(end[HOST], own[BOX].public_key, &ask);
    strangers = dxpu_sodium_begin(end[STRANGER], own[BOX].public_key, &ask);
    must(asking_one && strangers);
}

static void initiate(unsigned who)
{
    dxpu_sodium_session *x = who == HOST ? asking_one : strangers;
    int n = dxpu_sodium_initiate(x, now_ns, now_ns + 5, way[0].bytes, ROOM);
    must(n > 0 || dxpu_sodium_state(x) != DXPU_SODIUM_ASKING);
    if (n <= 0)
        return;
    way[0].len = (size_t)n;
    if (who == HOST)
        memcpy(first.key[first.count++], way[0].bytes + BASE + HEAD_BYTES, BYTES);
}

/* S-13, S-16: the host said it, and neither it nor what it said later has been answered. */
static void check_response(const packet *p)
{
    unsigned i = first.count;
    while (i && memcmp(first.key[i - 1], p->bytes + BASE + HEAD_BYTES, BYTES) != 0)
        i--;
    must(i > first.answered);
    first.answered = i;
}

/* Who listens at the address can read the cookie. */
static void keep_cookie(const packet *p, const uint8_t *answer, unsigned address)
{
    const uint8_t *body = answer + BASE, *mac1 = p->bytes + BASE + INITIATION_BYTES - 2 * MAC;
    uint8_t key[SECRET];
    labelled(dxpu_sodium_primitives(), LABEL("dxpu cookie 1"), own[BOX].public_key, key);
    must(crypto_aead_xchacha20poly1305_ietf_decrypt(
             cookies.one[cookies.count].cookie, NULL, NULL, body + COOKIE_SEALED,
             COOKIE_BYTES - COOKIE_SEALED, mac1, MAC, body + COOKIE_NONCE, key) == 0);
    cookies.one[cookies.count].ns = now_ns;
    cookies.one[cookies.count++].address = address;
}

/* S-17: MAC_2 is made with a cookie that went to the address, and not long ago. */
static bool proves(const packet *p, unsigned address)
{
    const uint8_t *body = p->bytes + BASE;
    uint8_t mac2[MAC];
    bool proven = false;
    for (unsigned i = 0; i < cookies.count && p->len >= BASE + INITIATION_BYTES; i++) {
        crypto_generichash(mac2, MAC, body, INITIATION_BYTES - MAC, cookies.one[i].cookie, COOKIE);
        proven |= cookies.one[i].address == address && now_ns - cookies.one[i].ns < cookie_max_ns &&
                  memcmp(mac2, body + INITIATION_BYTES - MAC, MAC) == 0;
    }
    return proven;
}

static unsigned pending(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < end[BOX]->begun; i++)
        n += end[BOX]->session[i].state != DXPU_SODIUM_FREE;
    return n;
}

static void at_box(unsigned address)
{
    static const uint8_t at[2][4] = { { 10, 0, 0, 1 }, { 10, 0, 0, 2 } };
    unsigned agreed = quick_agreements, had = pending();
    dxpu_sodium_session *x = NULL;
    uint8_t answer[ROOM];
    size_t bytes = 0;
    const packet *p = &way[0];
    dxpu_bytes datagram = { p->bytes, p->len }, from = { at[address], sizeof at[address] };
    int rc = dxpu_sodium_ingest(end[BOX], now_ns, datagram, from, answer, ROOM, &bytes, &x);
    must((rc == DXPU_OK || bytes == 0) && !x);
    must(bytes <= p->len); /* no address gets more bytes than came from it */
    must(quick_agreements == agreed || proves(p, address));
    must(pending() <= had || (bytes && quick_agreements > agreed));
    if (!bytes)
        return;
    if (answer[BASE + HEAD_TYPE] == TYPE_COOKIE)
        keep_cookie(p, answer, address);
    else
        check_response(p);
    memcpy(way[1].bytes, answer, bytes);
    way[1].len = bytes;
}

static void away(unsigned to)
{
    dxpu_sodium_session *x = NULL;
    uint8_t answer[ROOM];
    size_t bytes = 0;
    dxpu_bytes datagram = { way[1].bytes, way[1].len }, from = { own[BOX].public_key, 4 };
    int rc = dxpu_sodium_ingest(end[to], now_ns, datagram, from, answer, ROOM, &bytes, &x);
    must(rc == DXPU_OK || bytes == 0);
    must(!x || (x == asking_one && to == HOST));
    if (x && dxpu_sodium_state(x) == DXPU_SODIUM_KEYED)
        must(memcmp(dxpu_sodium_peer_key(x), own[BOX].public_key, BYTES) == 0 &&
             dxpu_sodium_local_id(x) == 0x1000 && dxpu_sodium_remote_id(x) == 0x2000);
    if (bytes) {
        memcpy(way[0].bytes, answer, bytes);
        way[0].len = bytes;
    }
}

/* to the box, from another address or not; from it, to the stranger or the host */
static void arrive(unsigned box, unsigned other)
{
    packet p = way[!box];
    if (box)
        at_box(other);
    else
        away(other ? STRANGER : HOST);
    memmove(kept + 1, kept, sizeof kept - sizeof kept[0]);
    kept[0] = p;
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
        dxpu_sodium_session *x = dxpu_sodium_opener(end[BOX], now_ns, datagram, &offer);
        must(!x || (offer.epoch == 7 && offer.channel == 0x1000));
        must(!x || memcmp(dxpu_sodium_peer_key(x), own[HOST].public_key, BYTES) == 0);
        out[n / 2] ^= 1; /* and not, when it was altered */
        must(dxpu_sodium_opener(end[BOX], now_ns, datagram, &offer) == NULL);
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
        *p = kept[op >> 6];
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
    input in = { data, size < STEPS_MAX ? size : STEPS_MAX };
    quick_begin();
    must(dxpu_sodium_init() == DXPU_OK);
    begin(&in);
    while (in.left) {
        uint8_t op = next(&in);
        if ((op & 7) < 2)
            initiate(op & 8 ? STRANGER : HOST);
        else if ((op & 7) < 4)
            arrive(op & 1, op >> 3 & 1);
        else if ((op & 7) == 4) /* up to nine minutes */
            now_ns += (uint64_t)256 << (op >> 3);
        else if ((op & 7) == 5)
            open_frame();
        else
            attack(&in, op);
    }
    for (unsigned i = 0; i < 2 && !altered; i++) { /* with a cookie, if one is asked for */
        initiate(HOST);
        arrive(1, 0);
        arrive(0, 0);
    }
    must(altered || dxpu_sodium_state(asking_one) != DXPU_SODIUM_ASKING);
    open_frame();
    for (unsigned i = 0; i < ENDS; i++)
        dxpu_sodium_destroy(end[i]);
    return 0;
}
