/* bindings/sodium by its public functions: the handshake over a network that this file is, sealed
   channels in virtual time over one that loses and reorders, enrollment, key files. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp, symlink */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_sync.h"
#include "dxpu_sodium.h"
#include "sanitized.h"
#include "seeds.h"

#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FRAME = DXPU_SODIUM_FRAME_BYTES, BASE = DXPU_FRAME_BASE_BYTES, US = 1000, MS = 1000000 };
enum { HEAD = 8, MAC = 16, KEY = 32 };
enum { TYPE_INITIATION = 1, TYPE_RESPONSE = 2, TYPE_COOKIE = 3 };
enum { INITIATION_BYTES = 172, RESPONSE_BYTES = 72, COOKIE_BYTES = 64 }; /* of the body */
#define SECOND ((uint64_t)1000000000)

/* ==== Two ends ================================================================================ */

typedef struct world {
    dxpu_noise_pair *key[2];
    dxpu_sodium *end[2]; /* host, box */
    dxpu_sodium_config cfg[2];
    dxpu_sodium_session *x[2];
    dxpu_sodium_peer peer;     /* what the box remembers of the host */
    bool stranger, has_cookie; /* the host's session */
    uint8_t reason;            /* of the box's authorize() */
    unsigned finds, authorizations, stamps;
    uint64_t stamp; /* the last of them; another port of the box shares it */
    uint32_t next_id;
    dxpu_sodium_request ask, asked; /* by the host; as the box's authorize() saw it */
    uint64_t now_ns, wall_ns;
} world;

static const uint8_t host_address[] = "host:1", other_address[] = "host:2";
static const dxpu_bytes host_at = { host_address, sizeof host_address };
static const dxpu_bytes other_at = { other_address, sizeof other_address };

static dxpu_sodium_peer *find(void *user, const uint8_t key[KEY])
{
    world *w = user;
    w->finds++;
    return w->stranger || memcmp(key, w->key[0]->public_key, KEY) != 0 ? NULL : &w->peer;
}

static bool fresh(void *user, const uint8_t key[KEY], uint64_t timestamp)
{
    world *w = user;
    bool rises = timestamp > w->stamp;
    assert_memory_equal(key, w->key[0]->public_key, KEY);
    w->stamps++;
    w->stamp = rises ? timestamp : w->stamp;
    return rises;
}

static uint8_t authorize(void *user, dxpu_sodium_peer *peer, const uint8_t key[KEY],
                         const dxpu_sodium_request *request, uint32_t *channel)
{
    world *w = user;
    assert_ptr_equal(peer, &w->peer);
    assert_memory_equal(key, w->key[0]->public_key, KEY);
    w->authorizations++;
    w->asked = *request;
    *channel = w->next_id++;
    return w->reason;
}

static void world_config(world *w)
{
    memset(w, 0, sizeof *w);
    w->now_ns = 77 * SECOND;
    w->wall_ns = 1700000000 * SECOND;
    w->next_id = 0x2000;
    for (unsigned i = 0; i < 2; i++) {
        w->key[i] = dxpu_sodium_key_new();
        assert_non_null(w->key[i]);
        dxpu_sodium_config_default(&w->cfg[i]);
        w->cfg[i].identity = w->key[i];
    }
    w->cfg[1].cb.user = w;
    w->cfg[1].cb.find = find;
    w->cfg[1].cb.fresh = fresh;
    w->cfg[1].cb.authorize = authorize;
    w->ask.channel = 0x1000;
    w->ask.version_min = w->ask.version_max = DXPU_WIRE_VERSION;
    w->ask.epoch = 7;
    w->ask.source.node = 5;
    w->ask.destination.node = 9;
    w->ask.destination.slot = 3;
    w->ask.source.function = w->ask.destination.function = DXPU_FUNCTION_ALL;
}

static void world_create(world *w)
{
    for (unsigned i = 0; i < 2; i++) {
        w->end[i] = dxpu_sodium_create(&w->cfg[i]);
        assert_non_null(w->end[i]);
    }
}

static void world_init(world *w)
{
    world_config(w);
    world_create(w);
}

static void world_free(world *w)
{
    for (unsigned i = 0; i < 2; i++) {
        dxpu_sodium_destroy(w->end[i]);
        dxpu_sodium_key_free(w->key[i]);
    }
}

/* ==== One frame at a time ===================================================================== */

typedef struct packet {
    uint8_t bytes[1500];
    size_t len;
} packet;

static void begin(world *w)
{
    w->x[0] = dxpu_sodium_begin(w->end[0], w->key[1]->public_key, &w->ask);
    assert_non_null(w->x[0]);
    w->has_cookie = false;
}

static packet initiate(world *w)
{
    packet p;
    w->wall_ns += 1000;
    int n = dxpu_sodium_initiate(w->x[0], w->now_ns, w->wall_ns, p.bytes, sizeof p.bytes);
    assert_true(n > 0);
    p.len = (size_t)n;
    return p;
}

/* What an end makes of a frame; its answer replaces the frame. */
static int take_from(world *w, unsigned end, packet *p, dxpu_bytes from)
{
    packet in = *p;
    dxpu_sodium_session *x = NULL;
    int rc = dxpu_sodium_ingest(w->end[end], w->now_ns, (dxpu_bytes){ in.bytes, in.len }, from,
                                p->bytes, sizeof p->bytes, &p->len, &x);
    assert_true(!x || x == w->x[0]);
    return rc;
}

static int take(world *w, unsigned end, packet *p)
{
    return take_from(w, end, p, host_at);
}

static uint8_t type_of(const packet *p)
{
    return p->len > BASE ? p->bytes[BASE] : 0;
}

/* A body that is cut anywhere, under a good frame. */
static packet cut(const packet *whole, size_t body_bytes)
{
    packet p;
    dxpu_frame f;
    memset(&f, 0, sizeof f);
    f.kind = DXPU_KIND_HANDSHAKE;
    f.channel = whole->bytes[BASE] == TYPE_INITIATION ? 0 : 0x1000;
    size_t head = dxpu_frame_encode_header(&f, body_bytes, 4, p.bytes);
    memcpy(p.bytes + head, whole->bytes + BASE, body_bytes);
    dxpu_frame_seal_crc(p.bytes, head + body_bytes);
    p.len = head + body_bytes + 4;
    return p;
}

/* The CRC of a frame that was altered. */
static void reseal(packet *p)
{
    dxpu_frame_seal_crc(p->bytes, p->len - DXPU_FRAME_CRC_BYTES);
}

/* An initiation whose address is proven: with a cookie, fetched first when there is none. */
static packet proven_initiation(world *w)
{
    packet p = initiate(w);
    if (!w->has_cookie) {
        assert_int_equal(take(w, 1, &p), DXPU_OK);
        assert_int_equal(type_of(&p), TYPE_COOKIE);
        assert_int_equal(take(w, 0, &p), DXPU_OK);
        w->has_cookie = true;
    }
    assert_int_equal(type_of(&p), TYPE_INITIATION);
    return p;
}

/* The whole handshake. */
static void shake(world *w)
{
    begin(w);
    packet p = proven_initiation(w);
    assert_int_equal(take(w, 1, &p), DXPU_OK);
    assert_int_equal(type_of(&p), TYPE_RESPONSE);
    assert_int_equal(take(w, 0, &p), DXPU_OK);
    assert_int_equal(p.len, 0);
    assert_int_equal(dxpu_sodium_state(w->x[0]), DXPU_SODIUM_KEYED);
}

static void test_s1_handshake(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    assert_int_equal(dxpu_sodium_state(w.x[0]), DXPU_SODIUM_ASKING);
    assert_null(dxpu_sodium_suite(w.x[0]));
    world_free(&w);
    world_init(&w);
    shake(&w);
    assert_int_equal(dxpu_sodium_local_id(w.x[0]), 0x1000);
    assert_int_equal(dxpu_sodium_remote_id(w.x[0]), 0x2000);
    assert_memory_equal(dxpu_sodium_peer_key(w.x[0]), w.key[1]->public_key, KEY);
    assert_non_null(dxpu_sodium_suite(w.x[0]));
    assert_int_equal(w.asked.channel, 0x1000);
    assert_int_equal(w.asked.epoch, 7);
    assert_int_equal(w.asked.version_max, DXPU_WIRE_VERSION);
    assert_int_equal(w.asked.source.node, 5);
    assert_int_equal(w.asked.destination.node, 9);
    assert_int_equal(w.asked.destination.slot, 3);
    assert_int_equal(w.asked.destination.function, DXPU_FUNCTION_ALL);
    assert_int_equal(w.asked.suites, dxpu_sodium_suites());
    assert_int_equal(dxpu_sodium_count(w.end[1])->responses_sent, 1);
    world_free(&w);
}

/* Every byte of each message changed under a good CRC: no answer that leads anywhere, no session
   keyed, and the handshake then goes on with the frame as it was. */
static void test_s2_every_byte_counts(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    packet good = proven_initiation(&w), bad;
    for (size_t i = BASE; i < good.len - 4; i++) {
        bad = good;
        bad.bytes[i] ^= (uint8_t)(1u << (i & 7));
        reseal(&bad);
        int rc = take(&w, 1, &bad);
        assert_true(rc != DXPU_OK || type_of(&bad) == TYPE_COOKIE); /* mac2 alone: a new cookie */
    }
    assert_int_equal(w.authorizations, 0);
    assert_int_equal(take(&w, 1, &good), DXPU_OK);
    assert_int_equal(w.authorizations, 1);
    for (size_t i = BASE; i < good.len - 4; i++) {
        bad = good;
        bad.bytes[i] ^= (uint8_t)(1u << (i & 7));
        reseal(&bad);
        assert_int_not_equal(take(&w, 0, &bad), DXPU_OK);
        assert_int_equal(dxpu_sodium_state(w.x[0]), DXPU_SODIUM_ASKING);
    }
    assert_int_equal(take(&w, 0, &good), DXPU_OK);
    assert_int_equal(dxpu_sodium_state(w.x[0]), DXPU_SODIUM_KEYED);
    world_free(&w);
}

/* MACs of an initiation as spec/security.md says, by somebody who knows the public key and holds a
   cookie: what he alters of the head is found out all the same. */
static void put_macs(world *w, packet *p, const uint8_t cookie[16])
{
    uint8_t input[10 + KEY], key[KEY], *body = p->bytes + BASE;
    memcpy(input, "dxpu mac 1", 10);
    memcpy(input + 10, w->key[1]->public_key, KEY);
    crypto_generichash(key, sizeof key, input, sizeof input, NULL, 0);
    crypto_generichash(body + 140, MAC, body, 140, key, sizeof key);
    crypto_generichash(body + 156, MAC, body, 156, cookie, 16);
    reseal(p);
}

/* The cookie that the box would give for this initiation, read as S-17 says. */
static void fetch_cookie(world *w, const packet *initiation, uint8_t cookie[16])
{
    uint8_t input[13 + KEY], key[KEY];
    packet p = *initiation;
    memset(p.bytes + BASE + 156, 0, MAC);
    reseal(&p);
    assert_int_equal(take(w, 1, &p), DXPU_OK);
    assert_int_equal(type_of(&p), TYPE_COOKIE);
    memcpy(input, "dxpu cookie 1", 13);
    memcpy(input + 13, w->key[1]->public_key, KEY);
    crypto_generichash(key, sizeof key, input, sizeof input, NULL, 0);
    const uint8_t *body = p.bytes + BASE;
    assert_int_equal(crypto_aead_xchacha20poly1305_ietf_decrypt(
                         cookie, NULL, NULL, body + HEAD + 24, 32, initiation->bytes + BASE + 140,
                         MAC, body + HEAD, key),
                     0);
}

static void test_s3_head_is_authentic(void **state)
{
    uint8_t cookie[16];
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    packet good = initiate(&w);
    fetch_cookie(&w, &good, cookie);
    put_macs(&w, &good, cookie);
    for (unsigned at = 2; at < HEAD; at++) { /* versions and channel id */
        packet bad = good;
        bad.bytes[BASE + at] ^= 2;
        put_macs(&w, &bad, cookie);
        assert_int_equal(take(&w, 1, &bad), DXPU_E_CRC);
    }
    assert_int_equal(w.finds, 0);
    assert_int_equal(dxpu_sodium_count(w.end[1])->forged, 6);
    assert_int_equal(take(&w, 1, &good), DXPU_OK); /* control */
    assert_int_equal(type_of(&good), TYPE_RESPONSE);
    world_free(&w);
}

static void test_s10_frames(void **state)
{
    world w;
    packet p;
    dxpu_frame f;
    (void)state;
    world_init(&w);
    begin(&w);
    packet good = initiate(&w);
    assert_int_equal(dxpu_frame_decode((dxpu_bytes){ good.bytes, good.len }, 4, &f), DXPU_OK);
    assert_int_equal(f.kind, DXPU_KIND_HANDSHAKE);
    assert_int_equal(f.channel, 0);
    assert_int_equal(f.packet, 0);
    p = good;
    p.bytes[BASE + 1] = 2; /* security version */
    reseal(&p);
    assert_int_equal(take(&w, 1, &p), DXPU_E_VERSION);
    p = good;
    p.bytes[DXPU_FRAME_CHANNEL] = 1;
    reseal(&p);
    assert_int_equal(take(&w, 1, &p), DXPU_E_CHANNEL);
    for (unsigned type = 0; type < 256; type++) {
        if (type >= TYPE_INITIATION && type <= TYPE_COOKIE)
            continue;
        p = good;
        p.bytes[BASE] = (uint8_t)type;
        p.bytes[BASE + 2] = p.bytes[BASE + 3] = 0;
        p = cut(&p, INITIATION_BYTES);
        assert_int_equal(take(&w, 1, &p), DXPU_E_KIND);
        assert_int_equal(p.len, 0);
    }
    p = good;
    p.bytes[BASE + 9] ^= 1; /* without a new CRC */
    assert_int_equal(take(&w, 1, &p), DXPU_E_CRC);
    p = good;
    p.len--;
    assert_int_equal(take(&w, 1, &p), DXPU_E_LENGTH);
    assert_int_equal(dxpu_sodium_count(w.end[1])->malformed, 2 + 253 + 2);
    p = good;
    assert_int_equal(take(&w, 1, &p), DXPU_OK); /* control; the answers name the initiator's id */
    assert_int_equal(dxpu_frame_decode((dxpu_bytes){ p.bytes, p.len }, 4, &f), DXPU_OK);
    assert_int_equal(f.channel, 0x1000);
    world_free(&w);
}

static void test_w13_s10_short_and_long_bodies(void **state)
{
    world w;
    packet p, whole;
    (void)state;
    world_init(&w);
    begin(&w);
    packet good = proven_initiation(&w);
    for (size_t len = 0; len < INITIATION_BYTES; len++) {
        p = cut(&good, len);
        assert_int_equal(take(&w, 1, &p), DXPU_E_SHORT);
    }
    memset(&whole, 0, sizeof whole);
    memcpy(whole.bytes, good.bytes, good.len);
    p = cut(&whole, DXPU_HANDSHAKE_MAX_BYTES + 1);
    assert_int_equal(take(&w, 1, &p), DXPU_E_STATE);
    p = cut(&whole, DXPU_HANDSHAKE_MAX_BYTES); /* read, but its MAC stands elsewhere */
    assert_int_equal(take(&w, 1, &p), DXPU_E_CRC);
    assert_int_equal(take(&w, 1, &good), DXPU_OK);
    assert_int_equal(type_of(&good), TYPE_RESPONSE);
    for (size_t len = 0; len < RESPONSE_BYTES; len++) {
        p = cut(&good, len);
        assert_int_not_equal(take(&w, 0, &p), DXPU_OK);
    }
    assert_int_equal(take(&w, 0, &good), DXPU_OK);
    world_free(&w);
}

static void test_s11_only_who_knows_the_key_is_answered(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    w.x[0] = dxpu_sodium_begin(w.end[0], w.key[0]->public_key, &w.ask); /* not the box's */
    packet p = initiate(&w);
    assert_int_equal(take(&w, 1, &p), DXPU_E_CRC);
    assert_int_equal(p.len, 0);
    assert_int_equal(dxpu_sodium_count(w.end[1])->bad_mac, 1);
    dxpu_sodium_end(w.x[0]);
    begin(&w); /* control */
    p = initiate(&w);
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    assert_true(p.len > 0);
    world_free(&w);
}

/* An initiation that comes twice, or late behind a newer one, changes nothing; and this end's
   timestamps rise when its clock does not. */
static void test_s13_timestamps(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    packet first = proven_initiation(&w), again = first, late;
    assert_int_equal(take(&w, 1, &first), DXPU_OK);
    assert_int_equal(type_of(&first), TYPE_RESPONSE);
    assert_int_equal(take(&w, 1, &again), DXPU_E_REPLAY);
    assert_int_equal(again.len, 0);
    late = proven_initiation(&w);
    w.wall_ns -= SECOND; /* the clock is set back */
    packet newer = proven_initiation(&w);
    assert_int_equal(take(&w, 1, &newer), DXPU_OK);
    assert_int_equal(type_of(&newer), TYPE_RESPONSE);
    assert_int_equal(take(&w, 1, &late), DXPU_E_REPLAY);
    assert_int_equal(w.authorizations, 2);
    assert_int_equal(dxpu_sodium_count(w.end[1])->replayed, 2);
    world_free(&w);
}

/* ==== A responder by hand ===================================================================== */

/* What a box that keeps no rule could answer. */
static unsigned answered_by_hand(unsigned at, uint8_t value, bool set)
{
    uint8_t prologue[24], ask[64], payload[16] = { 0, 1, 0, 2, 0, 0, 0x20, 0 };
    size_t bytes = 0;
    dxpu_noise n;
    world w;
    world_init(&w);
    begin(&w);
    packet p = initiate(&w), out;
    memcpy(prologue, "dxpu handshake 1", 16);
    memcpy(prologue + 16, p.bytes + BASE, HEAD);
    assert_int_equal(dxpu_noise_start(&n, dxpu_sodium_primitives(), DXPU_NOISE_IK, false, w.key[1],
                                      NULL, (dxpu_bytes){ prologue, sizeof prologue }),
                     DXPU_OK);
    dxpu_bytes message = { p.bytes + BASE + HEAD, INITIATION_BYTES - HEAD - 2 * MAC };
    assert_int_equal(dxpu_noise_read(&n, message, ask, sizeof ask, &bytes), DXPU_OK);
    assert_int_equal(bytes, 36);
    payload[15] = 7; /* epoch */
    if (set)
        payload[at] = value;
    memset(&out, 0, sizeof out);
    uint8_t body[100] = { TYPE_RESPONSE, 1, 0, 0, 0, 0, 0x10, 0 };
    assert_int_equal(
        dxpu_noise_write(&n, (dxpu_bytes){ payload, sizeof payload }, body + HEAD, 90, &bytes),
        DXPU_OK);
    memcpy(out.bytes + BASE, body, HEAD + bytes);
    out = cut(&out, HEAD + bytes);
    assert_int_equal(take(&w, 0, &out), DXPU_OK);
    unsigned got =
        dxpu_sodium_state(w.x[0]) == DXPU_SODIUM_KEYED ? 100 : dxpu_sodium_reason(w.x[0]);
    world_free(&w);
    return got;
}

static void test_s15_answer_must_be_what_was_offered(void **state)
{
    (void)state;
    assert_int_equal(answered_by_hand(0, 0, false), 100);              /* control */
    assert_int_equal(answered_by_hand(1, 2, true), DXPU_REASON_OFFER); /* version */
    assert_int_equal(answered_by_hand(1, 0, true), DXPU_REASON_OFFER);
    assert_int_equal(answered_by_hand(3, 1, true), DXPU_REASON_OFFER); /* CRC */
    assert_int_equal(answered_by_hand(3, 0, true), DXPU_REASON_OFFER);
    assert_int_equal(answered_by_hand(3, 6, true), DXPU_REASON_OFFER); /* two */
    assert_int_equal(answered_by_hand(2, 0x80, true), DXPU_REASON_OFFER);
    assert_int_equal(answered_by_hand(6, 0, true), DXPU_REASON_OFFER);  /* no channel */
    assert_int_equal(answered_by_hand(15, 8, true), DXPU_REASON_OFFER); /* epoch */
    assert_int_equal(answered_by_hand(0, DXPU_REASON_BUSY, true), DXPU_REASON_BUSY);
}

static void test_s15_refused_with_a_reason(void **state)
{
    world w;
    (void)state;
    for (unsigned suites = 0; suites < 2; suites++) {
        world_config(&w);
        w.reason = DXPU_REASON_EPOCH;
        if (suites) {
            w.cfg[1].suites = DXPU_SUITE_CHACHA20_POLY1305;
            w.ask.suites = (uint16_t)~DXPU_SUITE_CHACHA20_POLY1305;
            if (!(dxpu_sodium_suites() & w.ask.suites))
                break; /* there is but one here */
        }
        world_create(&w);
        begin(&w);
        packet p = proven_initiation(&w);
        assert_int_equal(take(&w, 1, &p), DXPU_OK);
        assert_int_equal(type_of(&p), TYPE_RESPONSE);
        assert_int_equal(take(&w, 0, &p), DXPU_OK);
        assert_int_equal(dxpu_sodium_state(w.x[0]), DXPU_SODIUM_REFUSED);
        assert_int_equal(dxpu_sodium_reason(w.x[0]),
                         suites ? DXPU_REASON_VERSION : DXPU_REASON_EPOCH);
        assert_null(dxpu_sodium_suite(w.x[0]));
        assert_int_equal(dxpu_sodium_count(w.end[1])->refused, 1);
        world_free(&w);
    }
}

static void test_s12_requests_out_of_range(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    dxpu_sodium_request r = w.ask;
#define NONE(field, value)                                                                         \
    r = w.ask;                                                                                     \
    r.field = (value);                                                                             \
    assert_null(dxpu_sodium_begin(w.end[0], w.key[1]->public_key, &r))
    NONE(channel, 0);
    NONE(epoch, 0);
    NONE(version_min, 0);
    NONE(version_min, 2);
    NONE(suites, DXPU_SUITE_CRC);
#undef NONE
    for (unsigned i = 0; i < w.cfg[0].sessions; i++)
        begin(&w); /* control, until there is no room */
    assert_null(dxpu_sodium_begin(w.end[0], w.key[1]->public_key, &w.ask));
    world_free(&w);
}

/* An initiation by hand, its payload as given, with a cookie: what the box makes of it. */
static int asked_by_hand(world *w, const uint8_t *ask, size_t ask_bytes, const uint8_t head[HEAD])
{
    uint8_t prologue[24], cookie[16], key[KEY], input[10 + KEY];
    packet p;
    size_t bytes = 0;
    dxpu_noise n;
    begin(w);
    packet honest = initiate(w);
    fetch_cookie(w, &honest, cookie);
    dxpu_sodium_end(w->x[0]);
    memcpy(prologue, "dxpu handshake 1", 16);
    memcpy(prologue + 16, head, HEAD);
    assert_int_equal(dxpu_noise_start(&n, dxpu_sodium_primitives(), DXPU_NOISE_IK, true, w->key[0],
                                      w->key[1]->public_key,
                                      (dxpu_bytes){ prologue, sizeof prologue }),
                     DXPU_OK);
    memset(&p, 0, sizeof p);
    uint8_t *body = p.bytes + BASE;
    memcpy(body, head, HEAD);
    assert_int_equal(
        dxpu_noise_write(&n, (dxpu_bytes){ ask, ask_bytes }, body + HEAD, 1000, &bytes), DXPU_OK);
    bytes += HEAD;
    memcpy(input, "dxpu mac 1", 10);
    memcpy(input + 10, w->key[1]->public_key, KEY);
    crypto_generichash(key, sizeof key, input, sizeof input, NULL, 0);
    crypto_generichash(body + bytes, MAC, body, bytes, key, sizeof key);
    crypto_generichash(body + bytes + MAC, MAC, body, bytes + MAC, cookie, sizeof cookie);
    p = cut(&p, bytes + 2 * MAC);
    int rc = take(w, 1, &p);
    assert_int_equal(p.len != 0, rc == DXPU_OK);
    return rc;
}

static void test_s12_initiations_out_of_range(void **state)
{
    static const struct {
        unsigned at; /* in the payload, or 1000 + in the head */
        uint8_t value;
        int rc;
    } rows[] = { { 100, 1, DXPU_OK },       { 15, 0, DXPU_E_OFFER },   /* control; epoch 0 */
                 { 33, 3, DXPU_E_OFFER },   { 33, 1, DXPU_E_OFFER },   /* the CRC suite */
                 { 34, 1, DXPU_OK },        { 1002, 0, DXPU_E_OFFER }, /* kept; versions */
                 { 1002, 2, DXPU_E_OFFER }, { 1003, 9, DXPU_OK },
                 { 1006, 0, DXPU_E_OFFER }, { 1000, TYPE_INITIATION, DXPU_OK } };
    world w;
    (void)state;
    world_init(&w);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t ask[200] = { 0 }, head[HEAD] = { TYPE_INITIATION, 1, 1, 1, 0, 0, 0x10, 0 };
        ask[7] = (uint8_t)(i + 1); /* timestamp */
        ask[15] = 7;
        ask[33] = 2;
        if (rows[i].at >= 1000)
            head[rows[i].at - 1000] = rows[i].value;
        else
            ask[rows[i].at] = rows[i].value;
        size_t len = rows[i].at == 100 ? sizeof ask : 36; /* more is what later versions add */
        if (asked_by_hand(&w, ask, len, head) != rows[i].rc)
            fail_msg("row %u", i);
    }
    assert_int_equal(w.authorizations, 4);
    assert_int_equal(dxpu_sodium_count(w.end[1])->malformed, 6);
    world_free(&w);
}

static void test_s16_strangers_get_no_answer(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    w.stranger = true;
    begin(&w);
    packet p = proven_initiation(&w);
    assert_int_equal(take(&w, 1, &p), DXPU_E_STATE);
    assert_int_equal(p.len, 0);
    assert_int_equal(w.finds, 1);
    assert_int_equal(w.authorizations, 0);
    w.stranger = false;
    p = proven_initiation(&w);
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    assert_true(p.len > 0);
    world_free(&w);
}

/* ==== Cookies ================================================================================= */

static void test_s17_address_is_proven_first(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    packet p = initiate(&w), with;
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    assert_int_equal(type_of(&p), TYPE_COOKIE);
    assert_int_equal(w.finds, 0);
    assert_int_equal(take(&w, 0, &p), DXPU_OK);
    with = p;
    assert_int_equal(take_from(&w, 1, &p, other_at), DXPU_OK); /* the cookie is another address's */
    assert_int_equal(type_of(&p), TYPE_COOKIE);
    assert_int_equal(w.finds, 0);
    p = with;
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    assert_int_equal(type_of(&p), TYPE_RESPONSE);
    assert_int_equal(w.finds, 1);
    world_free(&w);
}

/* A cookie is good for the turn of the secret and one more. */
static void test_s17_cookies_grow_old(void **state)
{
    (void)state;
    for (uint64_t age = 0; age < 400; age += 40) {
        uint8_t cookie[16];
        world w;
        world_init(&w);
        begin(&w);
        packet p = initiate(&w);
        fetch_cookie(&w, &p, cookie);
        w.now_ns += 119 * SECOND; /* the secret is still the same */
        fetch_cookie(&w, &p, cookie);
        w.now_ns += age * SECOND;
        put_macs(&w, &p, cookie);
        assert_int_equal(take(&w, 1, &p), DXPU_OK);
        assert_int_equal(type_of(&p), age <= 120 ? TYPE_RESPONSE : TYPE_COOKIE);
        world_free(&w);
    }
}

/* An unsolicited cookie, a forged one, and a second one for the same initiation. */
static void test_s18_cookies_at_the_initiator(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    packet p = initiate(&w), bad, again;
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    again = p;
    for (size_t i = BASE + HEAD; i < p.len - 4; i++) {
        bad = p;
        bad.bytes[i] ^= 1;
        reseal(&bad);
        assert_int_equal(take(&w, 0, &bad), DXPU_E_CRC);
        assert_int_equal(bad.len, 0);
    }
    bad = p;
    bad.bytes[BASE + 7] ^= 1; /* another channel's */
    bad.bytes[DXPU_FRAME_CHANNEL + 3] ^= 1;
    reseal(&bad);
    assert_int_equal(take(&w, 0, &bad), DXPU_E_STATE);
    bad = cut(&p, COOKIE_BYTES - 1);
    assert_int_equal(take(&w, 0, &bad), DXPU_E_SHORT);
    assert_int_equal(take(&w, 0, &p), DXPU_OK); /* control */
    assert_int_equal(type_of(&p), TYPE_INITIATION);
    assert_int_equal(take(&w, 0, &again), DXPU_E_STATE);
    assert_int_equal(again.len, 0);
    p = initiate(&w); /* a new one uses the cookie that is there */
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    assert_int_equal(type_of(&p), TYPE_RESPONSE);
    world_free(&w);
}

/* The initiator leaves a cookie of 120 s; what it sends then is answered by another. */
static void test_s18_an_old_cookie_is_not_used(void **state)
{
    (void)state;
    for (unsigned old = 0; old < 2; old++) {
        static const uint8_t none[MAC];
        world w;
        world_init(&w);
        begin(&w);
        proven_initiation(&w);
        w.now_ns += 120 * SECOND - !old;
        packet p = initiate(&w);
        assert_int_equal(memcmp(p.bytes + BASE + 156, none, MAC) == 0, old);
        world_free(&w);
    }
}

/* A flood of good initiations from forged addresses: no Diffie-Hellman (no key is looked
   up), no session, no answer longer than its request; and an honest host gets through. */
static void test_s17_s19_flood(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    packet one = initiate(&w);
    unsigned rounds = 20000 / (unsigned)seeds_step();
    for (unsigned i = 0; i < rounds; i++) {
        packet p = one;
        size_t len = p.len;
        uint8_t from[4] = { 0, 0, 1, 2 };
        dxpu_put_le16(from, (uint16_t)i);
        assert_int_equal(take_from(&w, 1, &p, (dxpu_bytes){ from, sizeof from }), DXPU_OK);
        assert_int_equal(type_of(&p), TYPE_COOKIE);
        assert_true(p.len <= len);
    }
    assert_int_equal(w.finds, 0);
    assert_int_equal(dxpu_sodium_count(w.end[1])->cookies_sent, rounds);
    packet p = proven_initiation(&w);
    size_t len = p.len;
    assert_int_equal(take(&w, 1, &p), DXPU_OK);
    assert_int_equal(type_of(&p), TYPE_RESPONSE);
    assert_true(p.len <= len);
    assert_int_equal(w.finds, 1);
    world_free(&w);
}

/* S-98: who has proven an address may be stopped before a Diffie-Hellman is computed for him. */
static unsigned spared, spare_left;

static bool spare(void *user, uint64_t now_ns, dxpu_bytes from)
{
    const world *w = user;
    assert_int_equal(now_ns, w->now_ns);
    assert_int_equal(from.len, host_at.len);
    assert_memory_equal(from.ptr, host_at.ptr, from.len);
    spared++;
    return spare_left && spare_left--;
}

static void test_s98_limit_of_an_address(void **state)
{
    world w;
    (void)state;
    world_config(&w);
    w.cfg[1].cb.spare = spare;
    world_create(&w);
    begin(&w);
    spared = spare_left = 0;
    packet p = proven_initiation(&w);
    assert_int_equal(spared, 0); /* without a cookie it is not asked */
    packet again = p;
    assert_true(take(&w, 1, &p) < 0);
    assert_int_equal(spared, 1);
    assert_int_equal(w.finds, 0);
    assert_int_equal(dxpu_sodium_count(w.end[1])->limited, 1);
    spare_left = 1; /* the control: the same, when there is some left */
    assert_int_equal(take(&w, 1, &again), DXPU_OK);
    assert_int_equal(type_of(&again), TYPE_RESPONSE);
    assert_int_equal(w.finds, 1);
    assert_int_equal(dxpu_sodium_count(w.end[1])->limited, 1);
    world_free(&w);
}

/* ==== Random bytes ============================================================================ */

static uint64_t rng_state;

static uint32_t rng_below(uint32_t n)
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 16) % n;
}

/* Frames of all types, mangled, at both ends: nothing is keyed but by the true ones. */
static void test_s2_random_frames(void **state)
{
    const char *rounds = getenv("DXPU_ROUNDS");
    unsigned n = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 20000;
    packet seed[4];
    world w;
    (void)state;
    rng_state = getenv("DXPU_SEED") ? strtoull(getenv("DXPU_SEED"), NULL, 10) : 1;
    world_init(&w);
    begin(&w);
    seed[0] = seed[1] = initiate(&w);
    assert_int_equal(take(&w, 1, &seed[1]), DXPU_OK); /* cookie */
    seed[2] = proven_initiation(&w);
    seed[3] = seed[2];
    assert_int_equal(take(&w, 1, &seed[3]), DXPU_OK); /* response */
    for (unsigned i = 0; i < n; i++) {
        const packet *from = &seed[rng_below(4)];
        packet p = *from;
        size_t body = rng_below(4) ? p.len - BASE - 4 : rng_below((uint32_t)(p.len - BASE - 3));
        p = cut(&p, body);
        for (uint32_t k = 1 + rng_below(3); k && body; k--)
            p.bytes[BASE + rng_below((uint32_t)body)] ^= (uint8_t)(1 + rng_below(255));
        if (body == from->len - BASE - 4 && !memcmp(p.bytes + BASE, from->bytes + BASE, body))
            continue; /* undone */
        if (rng_below(16) == 0)
            p.bytes[rng_below((uint32_t)p.len)] ^= 1;
        else
            reseal(&p);
        take(&w, rng_below(2), &p);
        if (dxpu_sodium_state(w.x[0]) != DXPU_SODIUM_ASKING)
            fail_msg("keyed in round %u", i);
    }
    assert_int_equal(w.authorizations, 1);
    assert_int_equal(take(&w, 0, &seed[3]), DXPU_OK); /* control */
    assert_int_equal(dxpu_sodium_state(w.x[0]), DXPU_SODIUM_KEYED);
    world_free(&w);
}

/* ==== Sealed channels in virtual time ========================================================= */

enum { NET = 4096, LIMIT = 1452 };

typedef struct flying {
    uint64_t at_ns;
    unsigned to;
    packet p;
} flying;

typedef struct liar liar;

typedef struct line {
    world w;
    bool plain; /* no suite: for controls */
    dxpu_channel ch[2];
    void *mem[2];
    flying *net;
    unsigned under_way, loss, doubled; /* of a thousand */
    uint64_t delay_ns, jitter_ns;
    uint32_t to_send[2], sent[2], got[2];
    uint64_t every_ns, next_ns[2]; /* a TLP so often */
    uint32_t hold_ms[2];           /* 0: the usual */
    unsigned refused;              /* frames that a channel did not take */
    liar *liar;                    /* on the way, if any */
} line;

static line *line_new(void)
{
    line *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->net = calloc(NET, sizeof *l->net);
    assert_non_null(l->net);
    world_config(&l->w);
    l->delay_ns = 10 * US;
    return l;
}

static void line_free(line *l)
{
    for (unsigned i = 0; i < 2; i++)
        free(l->mem[i]);
    world_free(&l->w);
    free(l->net);
    free(l);
}

static void channel_make(line *l, unsigned end)
{
    dxpu_sodium_session *x = l->w.x[end];
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = l->plain ? 0x1000 + 0x1000 * end : dxpu_sodium_local_id(x);
    cfg.sequence = 100 + end;
    cfg.epoch = l->w.ask.epoch;
    cfg.local = end ? l->w.ask.destination : l->w.ask.source;
    cfg.remote = end ? l->w.ask.source : l->w.ask.destination;
    cfg.frame_limit_bytes = LIMIT;
    cfg.lossless = true;
    if (l->hold_ms[end])
        cfg.hold_ms = l->hold_ms[end];
    cfg.suite = l->plain ? NULL : dxpu_sodium_suite(x);
    cfg.suite_user = x;
    size_t need = dxpu_channel_bytes(&cfg);
    l->mem[end] = malloc(need);
    assert_non_null(l->mem[end]);
    assert_int_equal(dxpu_channel_init(&l->ch[end], &cfg, l->mem[end], need), DXPU_OK);
}

/* The box and an open: a session's, if it is anybody's. */
static int box_open(line *l, packet *p)
{
    dxpu_offer offer;
    if (!l->plain) {
        dxpu_sodium_session *x =
            dxpu_sodium_opener(l->w.end[1], l->w.now_ns, (dxpu_bytes){ p->bytes, p->len }, &offer);
        if (!x)
            return DXPU_E_CRC;
        assert_int_equal(offer.channel, 0x1000);
        assert_true(!l->w.x[1] || l->w.x[1] == x);
        l->w.x[1] = x;
    }
    if (l->mem[1])
        return dxpu_channel_ingest(&l->ch[1], l->w.now_ns, p->bytes, p->len, 0);
    channel_make(l, 1);
    return dxpu_channel_accept(&l->ch[1], l->w.now_ns, p->bytes, p->len);
}

static int arrive(line *l, unsigned to, packet p)
{
    if (to && p.bytes[DXPU_FRAME_KIND] == DXPU_KIND_OPEN)
        return box_open(l, &p);
    return l->mem[to] ? dxpu_channel_ingest(&l->ch[to], l->w.now_ns, p.bytes, p.len, 0)
                      : DXPU_E_CHANNEL;
}

/* ---- Who alters what passes ---- */

enum { HEARD = 64 };

struct liar {
    packet heard[2][HEARD]; /* what has arrived at each end, the youngest over the oldest */
    unsigned many[2];
    packet foreign; /* of another session */
    unsigned each;  /* lies for each frame that passes */
    uint64_t lies, replays, taken;
};

static void hear(liar *who, unsigned to, const packet *p)
{
    who->heard[to][who->many[to]++ % HEARD] = *p;
}

static const packet *heard(const liar *who, unsigned to)
{
    unsigned many = who->many[to] < HEARD ? who->many[to] : HEARD;
    return &who->heard[to][rng_below(many)];
}

/* The first bytes of one, the last of the other. */
static packet splice(const packet *head, const packet *tail)
{
    packet p = *tail;
    size_t most = head->len < tail->len ? head->len : tail->len;
    memcpy(p.bytes, head->bytes, rng_below(4) ? rng_below((uint32_t)most) : BASE);
    return p;
}

static packet lengthened(const packet *from)
{
    packet p = *from;
    size_t room = sizeof p.bytes - p.len;
    for (size_t more = 1 + rng_below(40); more && room; more--, room--)
        p.bytes[p.len++] = (uint8_t)rng_below(256);
    return p;
}

static packet lie_about(const line *l, unsigned to, const packet *passing)
{
    const liar *who = l->liar;
    const packet *from = rng_below(2) ? passing : heard(who, to);
    packet p = *from;
    switch (rng_below(8)) {
    case 0: /* bits */
        for (uint32_t n = 1 + rng_below(8); n; n--)
            p.bytes[rng_below((uint32_t)p.len)] ^= (uint8_t)(1u << rng_below(8));
        return p;
    case 1:
        p.len = rng_below((uint32_t)p.len);
        return p;
    case 2:
        return lengthened(from);
    case 3:
        return splice(from, heard(who, to));
    case 4:
        return *heard(who, to); /* again */
    case 5:
        p = *heard(who, 1 - to); /* reflected */
        break;
    case 6:
        p = who->foreign;
        break;
    default: /* a field of the header: kind, flags, packet number */
        p.bytes[rng_below(BASE)] = (uint8_t)rng_below(256);
        return p;
    }
    memcpy(p.bytes + DXPU_FRAME_CHANNEL, passing->bytes + DXPU_FRAME_CHANNEL, 4);
    return p;
}

static bool same(const packet *a, const packet *b)
{
    return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

/* Before `passing` arrives.  Whoever has no keys gets right what needs none: the CRC. */
static void lie(line *l, unsigned to, const packet *passing)
{
    liar *who = l->liar;
    for (unsigned i = 0; who->many[0] && who->many[1] && i < who->each; i++) {
        packet p = lie_about(l, to, passing);
        if (l->plain && p.len > BASE + 4)
            reseal(&p);
        if (same(&p, passing))
            continue; /* undone */
        uint64_t frames = l->ch[to].count.rx_frames, replays = l->ch[to].count.rx_replay;
        int err = arrive(l, to, p);
        who->lies++;
        who->taken += err == DXPU_OK || l->ch[to].count.rx_frames != frames;
        who->replays += l->ch[to].count.rx_replay - replays;
    }
    hear(who, to, passing);
}

static void send_packet(line *l, unsigned to, const packet *p)
{
    for (unsigned copies = rng_below(1000) < l->doubled ? 2 : 1; copies; copies--) {
        if (rng_below(1000) < l->loss)
            continue;
        assert_true(l->under_way < NET);
        flying *f = &l->net[l->under_way++];
        f->at_ns =
            l->w.now_ns + l->delay_ns + (l->jitter_ns ? rng_below((uint32_t)l->jitter_ns) : 0);
        f->to = to;
        f->p = *p;
    }
}

/* A memory write whose first bytes are its number. */
static int submit_number(line *l, unsigned end, uint32_t number)
{
    uint8_t payload[64], bytes[128];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    memset(payload, (int)number, sizeof payload);
    memcpy(payload, &number, sizeof number);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.length_dw = sizeof payload / 4;
    t.first_be = t.last_be = 0xf;
    t.address = 0x10000;
    t.payload.ptr = payload;
    t.payload.len = sizeof payload;
    assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    return dxpu_channel_submit(&l->ch[end], tlp, l->w.now_ns, 0);
}

/* All that has come, in the order of its numbers. */
static void take_numbers(line *l, unsigned end)
{
    dxpu_delivery d;
    dxpu_tlp t;
    while ((d = dxpu_channel_peek(&l->ch[end], DXPU_POSTED)).tlp.len) {
        uint32_t number;
        assert_int_equal(dxpu_tlp_decode(d.tlp, &t), DXPU_OK);
        assert_int_equal(t.payload.len, 64);
        memcpy(&number, t.payload.ptr, sizeof number);
        assert_int_equal(number, l->got[end]);
        assert_int_equal(t.payload.ptr[63], (uint8_t)number);
        l->got[end]++;
        assert_int_equal(dxpu_channel_take(&l->ch[end], DXPU_POSTED, l->w.now_ns), DXPU_OK);
    }
}

static bool is_up(const line *l, unsigned end)
{
    return l->mem[end] && dxpu_channel_status(&l->ch[end]).state == DXPU_STATE_UP;
}

static void service(line *l, unsigned end)
{
    packet p;
    uint8_t path;
    int n;
    if (!l->mem[end])
        return;
    take_numbers(l, end);
    if (!l->plain) {
        dxpu_sodium_work(l->w.x[end], &l->ch[end], l->w.now_ns);
        assert_true(dxpu_sodium_next_ns(l->w.x[end]) > l->w.now_ns);
    }
    if (is_up(l, end) && l->sent[end] < l->to_send[end] && l->w.now_ns >= l->next_ns[end] &&
        submit_number(l, end, l->sent[end]) == DXPU_OK) {
        l->sent[end]++;
        l->next_ns[end] = l->w.now_ns + l->every_ns;
    }
    while ((n = dxpu_channel_emit(&l->ch[end], l->w.now_ns, p.bytes, sizeof p.bytes, &path)) > 0) {
        p.len = (size_t)n;
        send_packet(l, 1 - end, &p);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* To the next thing that happens, and let it happen. */
static void step(line *l)
{
    uint64_t at = DXPU_NEVER;
    for (unsigned i = 0; i < l->under_way; i++)
        at = earlier(at, l->net[i].at_ns);
    for (unsigned end = 0; end < 2; end++) {
        if (!l->mem[end])
            continue;
        at = earlier(at, dxpu_channel_next_ns(&l->ch[end]));
        if (is_up(l, end) && l->sent[end] < l->to_send[end])
            at = earlier(at, l->next_ns[end] > l->w.now_ns ? l->next_ns[end] : l->w.now_ns + US);
        if (!l->plain)
            at = earlier(at, dxpu_sodium_next_ns(l->w.x[end]));
    }
    assert_true(at != DXPU_NEVER);
    l->w.now_ns = at > l->w.now_ns ? at : l->w.now_ns;
    for (unsigned i = 0; i < l->under_way;) {
        if (l->net[i].at_ns > l->w.now_ns) {
            i++;
            continue;
        }
        flying f = l->net[i];
        l->net[i] = l->net[--l->under_way];
        if (l->liar)
            lie(l, f.to, &f.p);
        l->refused += arrive(l, f.to, f.p) != DXPU_OK;
        service(l, f.to);
    }
    service(l, 0);
    service(l, 1);
}

static void line_open(line *l)
{
    world_create(&l->w);
    if (!l->plain)
        shake(&l->w);
    channel_make(l, 0);
    assert_int_equal(dxpu_channel_open(&l->ch[0], l->w.now_ns), DXPU_OK);
    service(l, 0);
}

static void line_up(line *l)
{
    line_open(l);
    for (unsigned i = 0; i < 100000 && !(is_up(l, 0) && is_up(l, 1)); i++)
        step(l);
    assert_true(is_up(l, 0) && is_up(l, 1));
    if (!l->plain)
        dxpu_sodium_settle(l->w.x[1]);
}

static void run_all(line *l)
{
    for (unsigned i = 0; l->got[0] < l->to_send[1] || l->got[1] < l->to_send[0]; i++) {
        assert_true(i < 3000000);
        assert_true(is_up(l, 0) && is_up(l, 1));
        step(l);
    }
}

/* The next frame that an end sends, of a kind, caught on its way. */
static packet catch_kind(line *l, unsigned end, unsigned kind)
{
    packet p;
    uint8_t path;
    for (unsigned i = 0; i < 100; i++) {
        int n = dxpu_channel_emit(&l->ch[end], l->w.now_ns, p.bytes, sizeof p.bytes, &path);
        assert_true(n > 0);
        p.len = (size_t)n;
        if (p.bytes[DXPU_FRAME_KIND] == kind)
            return p;
    }
    fail_msg("no frame of kind %u", kind);
    return p;
}

static packet catch_data(line *l, unsigned end)
{
    assert_int_equal(submit_number(l, end, l->sent[end]++), DXPU_OK);
    return catch_kind(l, end, DXPU_KIND_DATA);
}

/* Every TLP once, in order and unaltered, with each suite that is here, over a bad network. */
static void test_s40_channels_over_a_bad_network(void **state)
{
    (void)state;
    for (unsigned bit = 1; bit < 16; bit++) {
        if (!(dxpu_sodium_suites() & 1u << bit))
            continue;
        rng_state = bit;
        line *l = line_new();
        l->w.ask.suites = (uint16_t)(1u << bit);
        l->loss = 50;
        l->doubled = 50;
        l->jitter_ns = 100 * US;
        l->to_send[0] = l->to_send[1] = 2000 / (unsigned)seeds_step();
        line_up(l);
        assert_int_equal(dxpu_sodium_suite(l->w.x[0])->id, 1u << bit);
        assert_int_equal(l->ch[0].link.trailer, dxpu_sodium_suite(l->w.x[0])->tag_bytes);
        run_all(l);
        assert_true(l->ch[0].count.tx_retransmits > 0); /* control: it was bad */
        assert_true(l->ch[1].count.rx_replay > 0);
        assert_int_equal(l->ch[0].count.rx_crc + l->ch[1].count.rx_crc, 0);
        line_free(l);
    }
}

static void test_s44_s45_rekey_in_flight(void **state)
{
    (void)state;
    for (unsigned volume = 0; volume < 2; volume++) {
        line *l = line_new();
        rng_state = 3 + volume;
        for (unsigned i = 0; i < 2; i++) {
            if (volume)
                l->w.cfg[i].rekey_bytes = 20000 + 10000 * i;
            else
                l->w.cfg[i].rekey_ns = (1500 + 700 * i) * (uint64_t)MS;
        }
        l->loss = 100;
        l->jitter_ns = 20 * MS;
        l->to_send[0] = l->to_send[1] = 2000;
        l->every_ns = 10 * MS;
        line_up(l);
        run_all(l);
        for (unsigned i = 0; i < 2; i++) {
            const dxpu_sodium_counters *c = dxpu_sodium_count(l->w.end[i]);
            const dxpu_sodium_counters *peer = dxpu_sodium_count(l->w.end[1 - i]);
            assert_true(c->rekeys >= 6); /* more than once round the two bits */
            assert_in_range(peer->rekeys_seen, c->rekeys - 1, c->rekeys);
            assert_int_equal(c->unsealed, 0);
        }
        assert_true(l->ch[0].count.tx_retransmits > 0);
        line_free(l);
    }
}

/* Phases are at least a hold apart, however small the volume. */
static void test_s44_not_sooner_than_hold(void **state)
{
    line *l = line_new();
    (void)state;
    l->w.cfg[0].rekey_bytes = 1;
    l->to_send[0] = 1000;
    l->every_ns = 5 * MS;
    line_up(l);
    uint64_t begin_ns = l->w.now_ns;
    run_all(l);
    uint64_t holds = (l->w.now_ns - begin_ns) / (1000 * (uint64_t)MS);
    assert_in_range(dxpu_sodium_count(l->w.end[0])->rekeys, holds, holds); /* one each */
    assert_in_range(holds, 4, 6);
    line_free(l);
}

/* ... whatever longer one this end would have let the other have. */
static void test_s44_the_hold_that_was_agreed_on(void **state)
{
    line *l = line_new();
    (void)state;
    l->hold_ms[0] = 600000;
    l->hold_ms[1] = 1000;
    l->w.cfg[0].rekey_ns = 1;
    l->to_send[0] = 600;
    l->every_ns = 5 * MS;
    line_up(l);
    run_all(l);
    assert_in_range(dxpu_sodium_count(l->w.end[0])->rekeys, 2, 4);
    line_free(l);
}

/* A frame of the phase before, caught on its way: good for three timeouts, then no more. */
static void test_s45_old_key_for_three_timeouts(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        dxpu_path_info path;
        line *l = line_new();
        l->w.cfg[0].rekey_ns = 1; /* as soon as it may */
        line_up(l);
        packet old = catch_data(l, 0);
        assert_int_equal(old.bytes[DXPU_FRAME_FLAGS] >> 6, 0);
        uint64_t until_ns = l->w.now_ns + 2 * SECOND;
        while (dxpu_sodium_count(l->w.end[1])->rekeys_seen == 0) {
            assert_true(l->w.now_ns < until_ns);
            step(l);
        }
        assert_int_equal(dxpu_channel_path(&l->ch[1], 0, &path), DXPU_OK);
        assert_true(dxpu_sodium_next_ns(l->w.x[1]) <= l->w.now_ns + 3 * path.rto_ns);
        assert_true(dxpu_sodium_next_ns(l->w.x[1]) > l->w.now_ns + 2 * path.rto_ns);
        if (late) {
            l->w.now_ns = dxpu_sodium_next_ns(l->w.x[1]);
            dxpu_sodium_work(l->w.x[1], &l->ch[1], l->w.now_ns);
        }
        assert_int_equal(arrive(l, 1, old), late ? DXPU_E_CRC : DXPU_OK);
        line_free(l);
    }
}

static void test_s42_s46_replay_is_refused(void **state)
{
    line *l = line_new();
    (void)state;
    line_up(l);
    packet p = catch_data(l, 0);
    assert_int_equal(arrive(l, 1, p), DXPU_OK);
    assert_int_equal(arrive(l, 1, p), DXPU_E_REPLAY);
    service(l, 1);
    assert_int_equal(l->got[1], 1);
    packet back = catch_data(l, 1);
    assert_int_equal(arrive(l, 1, back), DXPU_E_CHANNEL); /* reflected */
    memcpy(back.bytes + DXPU_FRAME_CHANNEL, p.bytes + DXPU_FRAME_CHANNEL, 4);
    assert_int_equal(arrive(l, 1, back), DXPU_E_CRC);
    line_free(l);
}

/* Each byte of a sealed frame changed: nothing is taken, nothing counts as a sign of life. */
static void test_s40_every_byte_of_a_frame_counts(void **state)
{
    line *l = line_new();
    (void)state;
    line_up(l);
    packet good = catch_data(l, 0);
    uint64_t taken = l->ch[1].count.rx_frames;
    for (size_t i = 0; i < good.len; i++) {
        packet bad = good;
        bad.bytes[i] ^= (uint8_t)(1u << (i & 7));
        assert_int_not_equal(arrive(l, 1, bad), DXPU_OK);
    }
    assert_int_equal(l->ch[1].count.rx_frames, taken);
    assert_int_equal(arrive(l, 1, good), DXPU_OK);
    assert_int_equal(l->ch[1].count.rx_frames, taken + 1);
    line_free(l);
}

/* Bits, lengths, parts of two, replays, reflections, frames of another session, other headers:
   while all TLPs arrive once and unaltered, nothing of it is taken, with any suite. */
static void test_s40_s46_a_liar_on_the_way(void **state)
{
    const uint64_t lies = 500000; /* with each suite: a million with the two of libsodium 1.0.18 */
    liar *who = calloc(1, sizeof *who);
    line *other = line_new();
    (void)state;
    assert_non_null(who);
    rng_state = getenv("DXPU_SEED") ? strtoull(getenv("DXPU_SEED"), NULL, 10) : 1;
    line_up(other);
    who->foreign = catch_data(other, 0);
    line_free(other);
    for (unsigned bit = 1; bit < 16; bit++) {
        if (!(dxpu_sodium_suites() & 1u << bit))
            continue;
        line *l = line_new();
        l->w.ask.suites = (uint16_t)(1u << bit);
        l->doubled = 50;
        l->jitter_ns = 100 * US;
        line_up(l);
        memset(who->many, 0, sizeof who->many);
        who->lies = who->replays = who->taken = 0;
        who->each = 50;
        l->liar = who;
        while (who->lies < lies) {
            l->to_send[0] = l->to_send[1] += 100;
            run_all(l);
        }
        assert_int_equal(who->taken, 0);
        assert_true(who->replays > lies / 20); /* those came as far as the window */
        printf("suite %u: %llu lies, %llu of them replays, none taken\n", 1u << bit,
               (unsigned long long)who->lies, (unsigned long long)who->replays);
        line_free(l);
    }
    free(who);
}

/* The same liar without authentication, where frames and TLPs have their CRC all the same. */
static void test_s40_control_a_liar_where_nothing_is_sealed(void **state)
{
    uint64_t lies = 0, taken = 0;
    (void)state;
    rng_state = 1;
    for (unsigned i = 0; i < 20; i++) {
        liar *who = calloc(1, sizeof *who);
        line *l = line_new();
        assert_non_null(who);
        l->plain = true;
        who->each = 50;
        line_up(l);
        l->liar = who;
        for (unsigned to = 1; who->lies < 500 && is_up(l, 0) && is_up(l, 1); to = 1 - to) {
            who->foreign = catch_data(l, 1 - to);
            lie(l, to, &who->foreign); /* one soon ends the channel */
        }
        lies += who->lies;
        taken += who->taken;
        line_free(l);
        free(who);
    }
    printf("not sealed: %llu of %llu lies taken\n", (unsigned long long)taken,
           (unsigned long long)lies);
    assert_true(taken >= 20);
}

/* A reset that anybody can make ends no sealed channel; control: it ends one without keys. */
static void test_s33_forged_reset(void **state)
{
    (void)state;
    for (unsigned plain = 0; plain < 2; plain++) {
        line *l = line_new();
        packet p;
        l->plain = plain != 0;
        line_up(l);
        p.len = dxpu_reset_encode(l->plain ? 0x1000 : dxpu_sodium_local_id(l->w.x[0]),
                                  DXPU_REASON_DETACH, p.bytes);
        arrive(l, 0, p);
        assert_int_equal(is_up(l, 0), !plain);
        line_free(l);
    }
}

/* An open that offers another channel id, epoch, slot or suite than was asked for, sealed with the
   right keys: refused.  Control: the one that was asked for. */
static void test_s32_open_must_be_what_was_asked(void **state)
{
    (void)state;
    for (unsigned change = 0; change < 6; change++) {
        dxpu_channel_config cfg;
        dxpu_offer offer;
        dxpu_suite suite;
        packet p;
        uint8_t path;
        world w;
        world_init(&w);
        shake(&w);
        dxpu_channel_config_default(&cfg);
        suite = *dxpu_sodium_suite(w.x[0]);
        cfg.local_id = 0x1000 + (change == 1);
        cfg.epoch = 7 + (change == 2);
        cfg.local = w.ask.source;
        cfg.remote = w.ask.destination;
        cfg.remote.slot = (uint16_t)(cfg.remote.slot + (change == 3));
        cfg.local.node += change == 4;
        suite.id = (uint16_t)(suite.id << (change == 5));
        cfg.suite = &suite;
        cfg.suite_user = w.x[0];
        void *mem = malloc(dxpu_channel_bytes(&cfg));
        dxpu_channel ch;
        assert_int_equal(dxpu_channel_init(&ch, &cfg, mem, dxpu_channel_bytes(&cfg)), DXPU_OK);
        assert_int_equal(dxpu_channel_open(&ch, w.now_ns), DXPU_OK);
        int n = dxpu_channel_emit(&ch, w.now_ns, p.bytes, sizeof p.bytes, &path);
        assert_true(n > 0);
        packet copy = p;
        dxpu_sodium_session *x =
            dxpu_sodium_opener(w.end[1], w.now_ns, (dxpu_bytes){ p.bytes, (size_t)n }, &offer);
        assert_int_equal(x != NULL, change == 0);
        assert_memory_equal(p.bytes, copy.bytes, (size_t)n); /* unaltered */
        assert_int_equal(dxpu_sodium_count(w.end[1])->opens_unknown, change != 0);
        free(mem);
        world_free(&w);
    }
}

/* An open with a byte changed, or sealed with other keys, is refused. */
static void test_s31_altered_open_is_refused(void **state)
{
    dxpu_offer offer;
    line *l = line_new(), *other = line_new();
    (void)state;
    l->loss = other->loss = 1000; /* what they send is caught here */
    line_open(l);
    line_open(other);
    l->w.now_ns += 100 * MS;
    other->w.now_ns += 100 * MS;
    packet good = catch_kind(l, 0, DXPU_KIND_OPEN);
    packet alien = catch_kind(other, 0, DXPU_KIND_OPEN), bad;
    for (size_t i = 0; i < good.len; i += 7) {
        bad = good;
        bad.bytes[i] ^= 0x10;
        assert_null(dxpu_sodium_opener(l->w.end[1], l->w.now_ns, (dxpu_bytes){ bad.bytes, bad.len },
                                       &offer));
    }
    assert_null(dxpu_sodium_opener(l->w.end[1], l->w.now_ns, (dxpu_bytes){ alien.bytes, alien.len },
                                   &offer));
    dxpu_sodium_session *x =
        dxpu_sodium_opener(l->w.end[1], l->w.now_ns, (dxpu_bytes){ good.bytes, good.len }, &offer);
    assert_non_null(x); /* control, and again: an open is repeated until its channel is up */
    assert_ptr_equal(x, dxpu_sodium_opener(l->w.end[1], l->w.now_ns,
                                           (dxpu_bytes){ good.bytes, good.len }, &offer));
    dxpu_sodium_settle(x);
    assert_null(
        dxpu_sodium_opener(l->w.end[1], l->w.now_ns, (dxpu_bytes){ good.bytes, good.len }, &offer));
    line_free(l);
    line_free(other);
}

/* ==== Pending sessions ======================================================================== */

/* n handshakes, each for a channel of its own; then which of their opens still find a session. */
static unsigned still_there(unsigned n, unsigned pending, uint64_t wait_ns, uint64_t *displaced)
{
    unsigned found = 0;
    line *l = line_new();
    packet *open = calloc(n, sizeof *open);
    l->w.cfg[1].pending = pending;
    l->loss = 1000;
    world_create(&l->w);
    for (unsigned i = 0; i < n; i++) {
        l->w.ask.channel = 0x1000 + i;
        shake(&l->w);
        channel_make(l, 0);
        assert_int_equal(dxpu_channel_open(&l->ch[0], l->w.now_ns), DXPU_OK);
        open[i] = catch_kind(l, 0, DXPU_KIND_OPEN);
        free(l->mem[0]);
        l->mem[0] = NULL;
        l->w.now_ns += MS;
    }
    l->w.now_ns += wait_ns;
    for (unsigned i = 0; i < n; i++) {
        dxpu_offer offer;
        dxpu_bytes datagram = { open[i].bytes, open[i].len };
        bool there = dxpu_sodium_opener(l->w.end[1], l->w.now_ns, datagram, &offer) != NULL;
        found |= (unsigned)there << i;
    }
    *displaced = dxpu_sodium_count(l->w.end[1])->displaced;
    free(open);
    line_free(l);
    return found;
}

static void test_s14_pending_sessions_are_few_and_short(void **state)
{
    uint64_t displaced;
    (void)state;
    assert_int_equal(still_there(5, 16, 0, &displaced), 0x1f); /* control */
    assert_int_equal(displaced, 0);
    assert_int_equal(still_there(5, 3, 0, &displaced), 0x1c); /* the oldest went */
    assert_int_equal(displaced, 2);
    assert_int_equal(still_there(5, 16, 4900 * (uint64_t)MS, &displaced), 0x1f);
    assert_int_equal(still_there(5, 16, 5000 * (uint64_t)MS, &displaced), 0);
}

/* S-157: one key that begins and begins displaces its own, not the only one of another key. */
static void test_s157_pending_sessions_are_shared(void **state)
{
    line *l = line_new();
    world *w = &l->w;
    dxpu_noise_pair *first = w->key[0];
    dxpu_sodium_config cfg = w->cfg[0];
    dxpu_sodium *first_end;
    dxpu_offer offer;
    packet open;
    (void)state;
    w->cfg[1].pending = 3;
    l->loss = 1000;
    world_create(w);
    shake(w);
    channel_make(l, 0);
    assert_int_equal(dxpu_channel_open(&l->ch[0], w->now_ns), DXPU_OK);
    open = catch_kind(l, 0, DXPU_KIND_OPEN);
    free(l->mem[0]);
    l->mem[0] = NULL;
    first_end = w->end[0];
    w->key[0] = dxpu_sodium_key_new();
    cfg.identity = w->key[0];
    w->end[0] = dxpu_sodium_create(&cfg);
    for (unsigned i = 0; i < 5; i++) {
        w->now_ns += MS;
        w->ask.channel = 0x3000 + i;
        shake(w);
    }
    assert_int_equal(dxpu_sodium_count(w->end[1])->displaced, 3); /* the control: it was full */
    assert_non_null(
        dxpu_sodium_opener(w->end[1], w->now_ns, (dxpu_bytes){ open.bytes, open.len }, &offer));
    dxpu_sodium_destroy(w->end[0]);
    dxpu_sodium_key_free(w->key[0]);
    w->end[0] = first_end;
    w->key[0] = first;
    line_free(l);
}

/* A program that waits for the time it is given forgets the keys without anything that arrives. */
static void test_s14_pending_sessions_end_by_time(void **state)
{
    const dxpu_sodium_counters *c;
    world w;
    (void)state;
    world_init(&w);
    c = dxpu_sodium_count(w.end[1]);
    assert_true(dxpu_sodium_pending_ns(w.end[1]) == DXPU_NEVER);
    dxpu_sodium_expire(w.end[1], w.now_ns);
    shake(&w);
    uint64_t first_ns = w.now_ns + 5 * SECOND;
    assert_true(dxpu_sodium_pending_ns(w.end[1]) == first_ns);
    w.now_ns += SECOND;
    w.ask.channel++;
    shake(&w);
    assert_true(dxpu_sodium_pending_ns(w.end[1]) == first_ns);
    dxpu_sodium_expire(w.end[1], first_ns - 1);
    assert_int_equal(c->expired, 0); /* control */
    dxpu_sodium_expire(w.end[1], first_ns);
    assert_int_equal(c->expired, 1);
    assert_true(dxpu_sodium_pending_ns(w.end[1]) == first_ns + SECOND);
    dxpu_sodium_expire(w.end[1], first_ns + SECOND);
    assert_int_equal(c->expired, 2);
    assert_true(dxpu_sodium_pending_ns(w.end[1]) == DXPU_NEVER);
    assert_true(dxpu_sodium_pending_ns(w.end[0]) == DXPU_NEVER); /* the host's is not pending */
    world_free(&w);
}

/* An old initiation that a box which forgot its peers takes once more: the box says nothing sealed,
   gives nothing to its program, and the living channel is as before. */
static void test_s14_old_initiation_after_a_restart(void **state)
{
    line *l = line_new();
    (void)state;
    world_create(&l->w);
    begin(&l->w);
    packet p = proven_initiation(&l->w), old = p;
    assert_int_equal(take(&l->w, 1, &p), DXPU_OK);
    assert_int_equal(take(&l->w, 0, &p), DXPU_OK);
    channel_make(l, 0);
    assert_int_equal(dxpu_channel_open(&l->ch[0], l->w.now_ns), DXPU_OK);
    service(l, 0);
    for (unsigned i = 0; i < 1000 && !(is_up(l, 0) && is_up(l, 1)); i++)
        step(l);
    l->w.peer.newest = l->w.stamp = 0; /* forgotten */
    assert_int_equal(take(&l->w, 1, &old), DXPU_OK);
    assert_int_equal(type_of(&old), TYPE_RESPONSE);
    l->to_send[0] = l->to_send[1] = 100;
    run_all(l);
    assert_int_equal(l->refused, 0);
    line_free(l);
}

/* S-13: a timestamp counts whatever becomes of its initiation, also where a program keeps it for
   several ends: one that asks for a version, suite or epoch that is refused. */
static void test_s13_refused_initiations_count(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 4; what++) {
        world w;
        world_config(&w);
        if (what == 1)
            w.ask.version_min = w.ask.version_max = DXPU_WIRE_VERSION + 1;
        if (what == 2) {
            w.cfg[0].suites = DXPU_SUITE_CHACHA20_POLY1305;
            w.cfg[1].suites = DXPU_SUITE_AES_256_GCM;
        }
        if (what == 3)
            w.reason = DXPU_REASON_EPOCH;
        if (what == 2 && !(dxpu_sodium_suites() & DXPU_SUITE_AES_256_GCM)) {
            world_free(&w); /* no AES in this processor: there is one suite for both */
            continue;
        }
        world_create(&w);
        begin(&w);
        packet p = proven_initiation(&w), old = p, older = initiate(&w);
        assert_int_equal(take(&w, 1, &p), DXPU_OK);
        assert_int_equal(type_of(&p), TYPE_RESPONSE);
        assert_int_equal(dxpu_sodium_count(w.end[1])->refused, what != 0);
        assert_int_equal(w.stamps, 1);
        w.peer.newest = 0; /* as at another port */
        assert_int_equal(take(&w, 1, &old), DXPU_E_REPLAY);
        assert_int_equal(w.stamps, 2);
        assert_int_equal(old.len, 0);
        assert_int_equal(take(&w, 1, &older), DXPU_OK); /* control: it is later in truth */
        assert_int_equal(w.stamps, 3);
        world_free(&w);
    }
}

/* Answers that are lost: the host asks again, and the box keeps one session of it. */
static void test_s13_lost_answers(void **state)
{
    world w;
    (void)state;
    world_config(&w);
    w.cfg[1].pending = 1;
    world_create(&w);
    begin(&w);
    packet before = initiate(&w);
    for (unsigned i = 0; i < 5; i++) {
        packet p = proven_initiation(&w);
        assert_memory_not_equal(p.bytes + BASE + HEAD, before.bytes + BASE + HEAD, KEY);
        before = p;
        assert_int_equal(take(&w, 1, &p), DXPU_OK);
        assert_int_equal(type_of(&p), TYPE_RESPONSE);
        if (i == 4)
            assert_int_equal(take(&w, 0, &p), DXPU_OK);
    }
    assert_int_equal(dxpu_sodium_state(w.x[0]), DXPU_SODIUM_KEYED);
    assert_int_equal(dxpu_sodium_count(w.end[1])->displaced, 0);
    world_free(&w);
}

/* What is ended seals nothing and opens nothing. */
static void test_s20_ended_sessions(void **state)
{
    line *l = line_new();
    (void)state;
    line_up(l);
    const dxpu_suite *suite = dxpu_sodium_suite(l->w.x[0]);
    uint8_t body[64] = { 0 }, header[20] = { 0 };
    assert_true(suite->seal(l->w.x[0], 0, 1000, (dxpu_bytes){ header, 20 }, body, 10));
    dxpu_sodium_end(l->w.x[0]);
    assert_false(suite->seal(l->w.x[0], 0, 1001, (dxpu_bytes){ header, 20 }, body, 10));
    assert_false(suite->open(l->w.x[0], 0, 1001, (dxpu_bytes){ header, 20 }, body, 10));
    assert_int_equal(dxpu_sodium_state(l->w.x[0]), DXPU_SODIUM_FREE);
    assert_int_equal(dxpu_sodium_count(l->w.end[0])->unsealed, 1);
    line_free(l);
}

/* No room at the box, or no channel for it: the host is notified. */
static void test_s15_no_room(void **state)
{
    (void)state;
    for (unsigned why = 0; why < 3; why++) {
        line *l = line_new();
        l->w.cfg[1].sessions = why == 1 ? 1 : 2;
        line_up(l); /* one is taken for good */
        l->w.next_id = why == 2 ? 0 : 0x3000;
        l->w.ask.channel++;
        begin(&l->w);
        packet p = proven_initiation(&l->w);
        assert_int_equal(take(&l->w, 1, &p), DXPU_OK);
        assert_int_equal(take(&l->w, 0, &p), DXPU_OK);
        if (why == 0) {
            assert_int_equal(dxpu_sodium_state(l->w.x[0]), DXPU_SODIUM_KEYED);
        } else {
            assert_int_equal(dxpu_sodium_state(l->w.x[0]), DXPU_SODIUM_REFUSED);
            assert_int_equal(dxpu_sodium_reason(l->w.x[0]), DXPU_REASON_BUSY);
        }
        line_free(l);
    }
}

static void test_what_a_caller_may_not(void **state)
{
    uint8_t out[FRAME];
    size_t bytes;
    dxpu_sodium_session *x;
    world w;
    (void)state;
    world_init(&w);
    begin(&w);
    assert_int_equal(dxpu_sodium_initiate(w.x[0], w.now_ns, w.wall_ns, out, FRAME - 1),
                     DXPU_E_ROOM);
    packet p = initiate(&w);
    dxpu_bytes datagram = { p.bytes, p.len }, far = { p.bytes, DXPU_SODIUM_FROM_BYTES + 1 };
    assert_int_equal(
        dxpu_sodium_ingest(w.end[1], w.now_ns, datagram, host_at, out, FRAME - 1, &bytes, &x),
        DXPU_E_ROOM);
    assert_int_equal(dxpu_sodium_ingest(w.end[1], w.now_ns, datagram, far, out, FRAME, &bytes, &x),
                     DXPU_E_ROOM);
    assert_int_equal(
        dxpu_sodium_ingest(w.end[1], w.now_ns, datagram, host_at, out, FRAME, &bytes, &x), DXPU_OK);
    dxpu_sodium_end(w.x[0]);
    shake(&w);
    assert_int_equal(dxpu_sodium_initiate(w.x[0], w.now_ns, w.wall_ns, out, FRAME), DXPU_E_STATE);
    assert_int_equal(dxpu_sodium_asked(w.x[0])->destination.slot, 3);
    assert_null(dxpu_sodium_user(w.x[0]));
    dxpu_sodium_set_user(w.x[0], &w);
    assert_ptr_equal(dxpu_sodium_user(w.x[0]), &w);
    static const uint8_t no_key[KEY] = { 1 }; /* of order one */
    x = dxpu_sodium_begin(w.end[0], no_key, &w.ask);
    assert_non_null(x);
    assert_int_equal(dxpu_sodium_initiate(x, w.now_ns, w.wall_ns, out, FRAME), DXPU_E_STATE);
    world_free(&w);
}

/* ==== Enrollment ============================================================================== */

typedef struct enrolling {
    dxpu_noise_pair *key;
    dxpu_sodium_enroll e;
} enrolling;

static void enroll_begin(enrolling *r, bool initiator, const char *name)
{
    r->key = dxpu_sodium_key_new();
    assert_non_null(r->key);
    assert_int_equal(dxpu_sodium_enroll_begin(&r->e, r->key, initiator, name), DXPU_OK);
}

static void enroll_end(enrolling *r)
{
    dxpu_sodium_enroll_wipe(&r->e);
    dxpu_sodium_key_free(r->key);
}

/* One message on its way; false when there was none. */
static bool enroll_move(enrolling *from, enrolling *to, unsigned loss)
{
    uint8_t out[FRAME];
    int n = dxpu_sodium_enroll_emit(&from->e, out, sizeof out);
    assert_true(n >= 0);
    if (n == 0 || rng_below(1000) < loss)
        return false;
    int rc = dxpu_sodium_enroll_ingest(&to->e, (dxpu_bytes){ out, (size_t)n });
    assert_true(rc == DXPU_OK || rc == DXPU_E_REPLAY || rc == DXPU_E_STATE);
    return true;
}

/* S-141 */
static void assert_codes(const enrolling *a, const enrolling *b, bool same)
{
    char of_a[DXPU_SODIUM_FINGERPRINT_BYTES], of_b[DXPU_SODIUM_FINGERPRINT_BYTES];
    dxpu_sodium_enroll_code(&a->e, of_a);
    dxpu_sodium_enroll_code(&b->e, of_b);
    assert_int_equal(strlen(of_a), DXPU_SODIUM_FINGERPRINT_BYTES - 1);
    assert_int_equal(strlen(of_b), DXPU_SODIUM_FINGERPRINT_BYTES - 1);
    assert_int_equal(strcmp(of_a, of_b) == 0, same);
}

static void test_s51_enrollment(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        enrolling a, b;
        rng_state = seed;
        char early[DXPU_SODIUM_FINGERPRINT_BYTES];
        enroll_begin(&a, true, "host-7");
        enroll_begin(&b, false, "a box");
        assert_string_equal(dxpu_sodium_enroll_code(&a.e, early), "");
        for (unsigned i = 0; i < 500; i++) {
            enroll_move(&a, &b, seed ? 500 : 0);
            enroll_move(&b, &a, seed ? 500 : 0);
        }
        assert_true(dxpu_sodium_enroll_done(&a.e) && dxpu_sodium_enroll_done(&b.e));
        assert_memory_equal(a.e.remote, b.key->public_key, KEY);
        assert_memory_equal(b.e.remote, a.key->public_key, KEY);
        assert_string_equal(a.e.peer_name, "a box");
        assert_string_equal(b.e.peer_name, "host-7");
        assert_codes(&a, &b, true);
        enroll_end(&a);
        enroll_end(&b);
    }
}

/* Somebody in the middle can bring both to an end, but not to each other's fingerprints. */
static void test_s50_s141_somebody_in_the_middle(void **state)
{
    char fa[DXPU_SODIUM_FINGERPRINT_BYTES], fb[DXPU_SODIUM_FINGERPRINT_BYTES];
    enrolling a, b, near_a, near_b;
    (void)state;
    enroll_begin(&a, true, "a");
    enroll_begin(&b, false, "b");
    enroll_begin(&near_a, false, "b");
    enroll_begin(&near_b, true, "a");
    for (unsigned i = 0; i < 3; i++) {
        enroll_move(&a, &near_a, 0);
        enroll_move(&near_a, &a, 0);
        enroll_move(&near_b, &b, 0);
        enroll_move(&b, &near_b, 0);
    }
    assert_true(dxpu_sodium_enroll_done(&a.e) && dxpu_sodium_enroll_done(&b.e));
    assert_string_not_equal(dxpu_sodium_fingerprint(a.e.remote, fa),
                            dxpu_sodium_fingerprint(b.key->public_key, fb));
    assert_string_equal(dxpu_sodium_fingerprint(a.e.remote, fa), /* control */
                        dxpu_sodium_fingerprint(near_a.key->public_key, fb));
    assert_int_equal(strlen(fa), DXPU_SODIUM_FINGERPRINT_BYTES - 1);
    assert_codes(&a, &b, false);
    assert_codes(&a, &near_a, true); /* control */
    enroll_end(&a);
    enroll_end(&b);
    enroll_end(&near_a);
    enroll_end(&near_b);
}

static void test_s2_s51_enrollment_forged(void **state)
{
    uint8_t out[FRAME], bad[FRAME];
    enrolling a, b;
    (void)state;
    enroll_begin(&a, true, "a");
    enroll_begin(&b, false, "b");
    for (unsigned message = 0; message < 3; message++) {
        enrolling *from = message == 1 ? &b : &a, *to = message == 1 ? &a : &b;
        int n = dxpu_sodium_enroll_emit(&from->e, out, sizeof out);
        assert_true(n > 0);
        for (int i = BASE; i < n - 4 && message; i++) {
            memcpy(bad, out, (size_t)n);
            bad[i] ^= 4;
            dxpu_frame_seal_crc(bad, (size_t)n - 4);
            int rc = dxpu_sodium_enroll_ingest(&to->e, (dxpu_bytes){ bad, (size_t)n });
            assert_int_not_equal(rc, DXPU_OK);
        }
        dxpu_bytes true_one = { out, (size_t)n };
        assert_int_equal(dxpu_sodium_enroll_ingest(&from->e, true_one), DXPU_E_STATE); /* its own */
        assert_int_equal(dxpu_sodium_enroll_ingest(&to->e, true_one), DXPU_OK);
        for (int i = BASE; i < n - 4; i++) { /* like it, but not the same */
            memcpy(bad, out, (size_t)n);
            bad[i] ^= 4;
            dxpu_frame_seal_crc(bad, (size_t)n - 4);
            int rc = dxpu_sodium_enroll_ingest(&to->e, (dxpu_bytes){ bad, (size_t)n });
            assert_true(rc != DXPU_OK && rc != DXPU_E_REPLAY);
        }
        assert_int_equal(dxpu_sodium_enroll_ingest(&to->e, true_one), DXPU_E_REPLAY);
    }
    enroll_end(&a);
    enroll_end(&b);
    assert_int_equal(dxpu_sodium_enroll_begin(&a.e, a.key, true, "a\tb"), DXPU_E_ARG);
    assert_int_equal(
        dxpu_sodium_enroll_begin(&a.e, a.key, true, "123456789012345678901234567890123"),
        DXPU_E_ARG);
}

/* ==== Keys and files ========================================================================== */

static char folder[] = "/tmp/dxpu_sodium_XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static unsigned at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    static const char *const names[] = { "key", "link", "pipe", "copy" };
    (void)state;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(in_folder(names[i]));
    return rmdir(folder);
}

static bool loads(const char *file)
{
    const char *why = NULL;
    dxpu_noise_pair *p = dxpu_sodium_key_load(file, &why);
    assert_true(!p == (why != NULL));
    dxpu_sodium_key_free(p);
    return p != NULL;
}

static void write_file(const char *file, const char *text, size_t len)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    assert_int_equal(chmod(file, 0600), 0);
}

static void test_s60_key_files(void **state)
{
    const char *why = NULL;
    char file[128], text[200];
    struct stat st;
    (void)state;
    snprintf(file, sizeof file, "%s", in_folder("key"));
    assert_false(loads(file)); /* not there */
    umask(0);
    dxpu_noise_pair *made = dxpu_sodium_key_create(file, &why);
    assert_non_null(made);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_null(dxpu_sodium_key_create(file, &why)); /* never twice */
    assert_int_equal(errno, EEXIST);
    dxpu_noise_pair *read = dxpu_sodium_key_load(file, &why);
    assert_non_null(read);
    assert_memory_equal(read, made, sizeof *read);
    dxpu_sodium_key_free(read);
    dxpu_sodium_key_free(made);
    for (unsigned mode = 0; mode < 0777; mode++) {
        assert_int_equal(chmod(file, (mode_t)(0600 | mode)), 0);
        if (loads(file) != ((mode & 077) == 0))
            fail_msg("mode %o", mode);
    }
    assert_int_equal(chmod(file, 0600), 0);
    assert_int_equal(symlink(file, in_folder("link")), 0);
    assert_false(loads(in_folder("link")));
    assert_null(dxpu_sodium_key_create(in_folder("link"), &why));
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_false(loads(in_folder("pipe"))); /* and does not wait for a writer */
    assert_false(loads(folder));
    assert_null(dxpu_sodium_key_load(folder, &why));
    assert_non_null(strstr(why, "regular"));
    assert_true(loads(file)); /* control */
    FILE *f = fopen(file, "r");
    size_t len = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_int_equal(len, 18 + 45);
    for (size_t i = 0; i < len; i++) {
        char other[200];
        memcpy(other, text, len);
        other[i] = '!';
        write_file(in_folder("copy"), other, len);
        assert_false(loads(in_folder("copy")));
        write_file(in_folder("copy"), text, i);
        assert_false(loads(in_folder("copy")));
    }
    text[len] = '\n';
    write_file(in_folder("copy"), text, len + 1);
    assert_false(loads(in_folder("copy")));
    write_file(in_folder("copy"), text, len);
    assert_true(loads(in_folder("copy")));
}

/* A disk that is full leaves no half of a key; a file of another user is not taken. */
static void test_s60_key_files_that_fail(void **state)
{
    struct rlimit was;
    const char *why = NULL;
    char file[128];
    (void)state;
    snprintf(file, sizeof file, "%s", in_folder("copy"));
    (void)unlink(file);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit now = { 10, was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    dxpu_noise_pair *p = dxpu_sodium_key_create(file, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_null(p);
    assert_int_equal(access(file, F_OK), -1);
    directory_sync_fails = true; /* nor one whose name a crash would undo */
    assert_null(dxpu_sodium_key_create(file, &why));
    directory_sync_fails = false;
    assert_int_equal(access(file, F_OK), -1);
    p = dxpu_sodium_key_create(file, &why); /* control */
    assert_non_null(p);
    dxpu_sodium_key_free(p);
    assert_true(loads(file));
    if (geteuid() == 0) {
        assert_int_equal(chown(file, 1, 1), 0);
        assert_false(loads(file));
    }
}

static void test_s60_public_keys_as_text(void **state)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    uint8_t back[KEY];
    unsigned taken = 0;
    (void)state;
    dxpu_noise_pair *p = dxpu_sodium_key_new();
    assert_int_equal(strlen(dxpu_sodium_key_print(p->public_key, text)), 44);
    assert_true(dxpu_sodium_key_parse(text, back));
    assert_memory_equal(back, p->public_key, KEY);
    assert_false(dxpu_sodium_key_parse("", back));
    text[43] = 'A'; /* 33 bytes */
    assert_false(dxpu_sodium_key_parse(text, back));
    dxpu_sodium_key_print(p->public_key, text);
    text[10] = ' ';
    assert_false(dxpu_sodium_key_parse(text, back));
    for (unsigned i = 0; i < 256; i++) {
        text[10] = (char)i;
        taken += dxpu_sodium_key_parse(text, back);
    }
    assert_int_equal(taken, 64); /* no byte beyond ASCII stands for a digit */
    dxpu_sodium_key_free(p);
}

/* Kilobytes that this process has locked; -1 when the system does not say. */
static long locked_kb(void)
{
    char text[256];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(text, sizeof text, f)) {
        if (sscanf(text, "VmLck: %ld", &kb) == 1)
            break;
    }
    if (f)
        fclose(f);
    return kb;
}

static void test_s61_locked_memory(void **state)
{
    long before = locked_kb();
    world w;
    (void)state;
    world_init(&w);
    bool locked = dxpu_sodium_locked(w.end[0]) && dxpu_sodium_locked(w.end[1]);
    if (before < 0 || !locked || SANITIZED) { /* AddressSanitizer makes mlock() do nothing */
        world_free(&w);
        skip();
    }
    assert_true(locked_kb() >= before + 200); /* both ends' sessions */
    world_free(&w);
    assert_int_equal(locked_kb(), before);
}

/* The kernel reads where this program could, without a signal. */
static bool is_readable(const uint8_t *at)
{
    int way[2];
    bool can;
    assert_int_equal(pipe(way), 0);
    can = write(way[1], at, 1) == 1;
    (void)close(way[0]);
    (void)close(way[1]);
    return can;
}

static void test_s61_guarded_memory(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    for (unsigned i = 0; i < 2; i++) {
        size_t bytes = (dxpu_secure_bytes(&w.cfg[i]) + 15) & ~(size_t)15;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const uint8_t *begin = (const uint8_t *)w.end[i], *end = begin + bytes;
        assert_true(is_readable(begin) && is_readable(end - 1)); /* the control */
        assert_false(is_readable(end));
        assert_false(is_readable(begin - (uintptr_t)begin % page - 1));
    }
    world_free(&w);
}

/* Pages of an end that are in memory. */
static size_t resident_pages(const dxpu_sodium *s, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    uintptr_t begin = (uintptr_t)s / page * page, end = (uintptr_t)s + bytes;
    for (; begin < end; begin += page) {
        unsigned char in = 0;
        assert_int_equal(mincore((void *)begin, page, &in), 0);
        n += in & 1u;
    }
    return n;
}

/* What opening a port with room for thousands of channels costs. */
static void test_sessions_that_never_began_take_no_memory(void **state)
{
    enum { FEW = 16, SESSIONS = 2000 };
    dxpu_sodium_session *x[SESSIONS];
    size_t bytes;
    world w;
    (void)state;
    world_config(&w);
    w.cfg[0].sessions = SESSIONS;
    world_create(&w);
    bytes = dxpu_secure_bytes(&w.cfg[0]);
    assert_true(bytes > (size_t)SESSIONS * 2000);
    assert_in_range(resident_pages(w.end[0], bytes), 1, FEW);
    for (unsigned i = 0; i < SESSIONS; i++) {
        if (i == FEW)
            assert_in_range(resident_pages(w.end[0], bytes), 1, 2 * FEW + 1);
        w.ask.channel = 0x1000 + i;
        x[i] = dxpu_sodium_begin(w.end[0], w.key[1]->public_key, &w.ask);
        assert_non_null(x[i]);
    }
    assert_in_range(resident_pages(w.end[0], bytes), SESSIONS / 3, SESSIONS); /* the control */
    assert_null(dxpu_sodium_begin(w.end[0], w.key[1]->public_key, &w.ask));
    dxpu_sodium_end(x[3]);
    assert_ptr_equal(dxpu_sodium_begin(w.end[0], w.key[1]->public_key, &w.ask), x[3]);
    world_free(&w);
}

static void test_config_and_counters(void **state)
{
    world w;
    (void)state;
    world_config(&w);
#define NONE(field, value)                                                                         \
    do {                                                                                           \
        dxpu_sodium_config c = w.cfg[0];                                                           \
        c.field = (value);                                                                         \
        assert_null(dxpu_sodium_create(&c));                                                       \
    } while (0)
    NONE(identity, NULL);
    NONE(sessions, 0);
    NONE(sessions, 65537);
    NONE(pending, 0);
    NONE(rekey_ns, 0);
    NONE(rekey_bytes, 0);
    NONE(rekey_bytes, ((uint64_t)1 << 37) + 1);
    NONE(suites, DXPU_SUITE_CRC);
#undef NONE
    world_create(&w);
    shake(&w);
    for (unsigned i = 0; dxpu_sodium_counter_name(i); i++) {
        if (strcmp(dxpu_sodium_counter_name(i), "keyed") == 0)
            assert_int_equal(dxpu_sodium_counter_value(w.end[0], i), 1);
        if (strcmp(dxpu_sodium_counter_name(i), "cookies_sent") == 0)
            assert_int_equal(dxpu_sodium_counter_value(w.end[1], i), 1);
    }
    assert_string_equal(dxpu_sodium_suite_name(DXPU_SUITE_AES_256_GCM), "aes-256-gcm");
    assert_string_equal(dxpu_sodium_suite_name(1), "?");
    packet p; /* an end without a list of keys */
    begin(&w);
    p = initiate(&w);
    assert_int_equal(take(&w, 0, &p), DXPU_E_STATE);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s1_handshake),
        cmocka_unit_test(test_s2_every_byte_counts),
        cmocka_unit_test(test_s3_head_is_authentic),
        cmocka_unit_test(test_s10_frames),
        cmocka_unit_test(test_w13_s10_short_and_long_bodies),
        cmocka_unit_test(test_s11_only_who_knows_the_key_is_answered),
        cmocka_unit_test(test_s13_timestamps),
        cmocka_unit_test(test_s15_answer_must_be_what_was_offered),
        cmocka_unit_test(test_s15_refused_with_a_reason),
        cmocka_unit_test(test_s12_requests_out_of_range),
        cmocka_unit_test(test_s12_initiations_out_of_range),
        cmocka_unit_test(test_s16_strangers_get_no_answer),
        cmocka_unit_test(test_s17_address_is_proven_first),
        cmocka_unit_test(test_s17_cookies_grow_old),
        cmocka_unit_test(test_s18_cookies_at_the_initiator),
        cmocka_unit_test(test_s18_an_old_cookie_is_not_used),
        cmocka_unit_test(test_s17_s19_flood),
        cmocka_unit_test(test_s98_limit_of_an_address),
        cmocka_unit_test(test_s15_no_room),
        cmocka_unit_test(test_what_a_caller_may_not),
        cmocka_unit_test(test_s2_random_frames),
        cmocka_unit_test(test_s40_channels_over_a_bad_network),
        cmocka_unit_test(test_s44_s45_rekey_in_flight),
        cmocka_unit_test(test_s44_not_sooner_than_hold),
        cmocka_unit_test(test_s44_the_hold_that_was_agreed_on),
        cmocka_unit_test(test_s45_old_key_for_three_timeouts),
        cmocka_unit_test(test_s42_s46_replay_is_refused),
        cmocka_unit_test(test_s40_every_byte_of_a_frame_counts),
        cmocka_unit_test(test_s40_s46_a_liar_on_the_way),
        cmocka_unit_test(test_s40_control_a_liar_where_nothing_is_sealed),
        cmocka_unit_test(test_s33_forged_reset),
        cmocka_unit_test(test_s32_open_must_be_what_was_asked),
        cmocka_unit_test(test_s31_altered_open_is_refused),
        cmocka_unit_test(test_s14_pending_sessions_are_few_and_short),
        cmocka_unit_test(test_s14_pending_sessions_end_by_time),
        cmocka_unit_test(test_s157_pending_sessions_are_shared),
        cmocka_unit_test(test_s14_old_initiation_after_a_restart),
        cmocka_unit_test(test_s13_refused_initiations_count),
        cmocka_unit_test(test_s13_lost_answers),
        cmocka_unit_test(test_s20_ended_sessions),
        cmocka_unit_test(test_s51_enrollment),
        cmocka_unit_test(test_s50_s141_somebody_in_the_middle),
        cmocka_unit_test(test_s2_s51_enrollment_forged),
        cmocka_unit_test(test_s60_key_files),
        cmocka_unit_test(test_s60_key_files_that_fail),
        cmocka_unit_test(test_s60_public_keys_as_text),
        cmocka_unit_test(test_s61_locked_memory),
        cmocka_unit_test(test_s61_guarded_memory),
        cmocka_unit_test(test_sessions_that_never_began_take_no_memory),
        cmocka_unit_test(test_config_and_counters),
    };
    if (dxpu_sodium_init() != DXPU_OK)
        return 1;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
