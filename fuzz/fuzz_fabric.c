/* Fuzz target: two hosts and a box, each a port of fabric.c with its keys or all without, and a
   network that does what the input says: loses, doubles, delays, alters and invents datagrams, and
   moves a host behind another address.  Hosts dial, submit and close, lists of keys change, time
   passes.  Channels come up once and end once; the places, lists and sessions of a port agree; who
   is not on the list has no channel; what a box takes is what that host submitted on that
   incarnation, in order, from its first on; no port spins; and when everybody closes and the
   network works nothing is left.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu_zlib.h"
#include "quick_sodium.h"
#include "quiet.h"

#include "dxpu_secure.c" /* not linked: reaches struct dxpu_sodium_session */
#include "dxpu_sodium.h"
#include "input.h"

#include "dxpu_libevent.h"

#include <sys/random.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- The network: what flies between the ports -- */

enum { HOSTS = 2, BOX = HOSTS, PORTS, SOCKETS = 2, SLOTS = 2, CAPACITY = 6, FLIGHT = 32, KEPT = 4 };
enum { SEGMENTS = 3 };
enum { BYTES = 1280, HOLD_MS = 100, STEPS_MAX = 200, QUIET_TURNS = 2000 };
enum { DATAGRAM_MAX = 9216 }; /* as ports have it */

typedef struct parcel {
    unsigned from, to, socket; /* ports; of both ends */
    bool moved;                /* from the other address of that host */
    uint8_t bytes[BYTES];
    size_t len;
} parcel;

struct dxpu_udp {
    unsigned port;
    uint8_t room[SEGMENTS * DATAGRAM_MAX];
};

static dxpu_udp udps[PORTS];
static parcel flight[FLIGHT], kept[KEPT];
static unsigned flying, keeps;
static bool moved[HOSTS];
static uint64_t clock_ns;

static dxpu_udp_address address(unsigned port, unsigned socket, bool other)
{
    dxpu_udp_address a;
    memset(&a, 0, sizeof a);
    a.u.v4.sin_family = AF_INET;
    a.u.v4.sin_port = htons((uint16_t)(4458 + (other ? 1000 : 0)));
    a.u.v4.sin_addr.s_addr = htonl(0x7f000001u + port + (socket << 8));
    a.len = sizeof a.u.v4;
    return a;
}

static uint64_t udp_now_ns(void)
{
    return clock_ns;
}

static dxpu_udp *udp_open(const dxpu_udp_config *cfg, const char **why)
{
    dxpu_udp *u = &udps[ntohl(cfg->local[0].u.v4.sin_addr.s_addr) - 0x7f000001u];
    (void)why;
    u->port = (unsigned)(u - udps);
    return u;
}

static void udp_close(dxpu_udp *u)
{
    (void)u;
}

static unsigned udp_sockets(const dxpu_udp *u)
{
    (void)u;
    return SOCKETS;
}

static const dxpu_udp_address *udp_local(const dxpu_udp *u, unsigned index)
{
    static dxpu_udp_address a;
    must(index < SOCKETS);
    a = address(u->port, index, false);
    return &a;
}

static uint8_t *udp_room(dxpu_udp *u)
{
    return u->room;
}

static uint8_t *udp_room_many(dxpu_udp *u, unsigned *datagrams)
{
    *datagrams = SEGMENTS;
    return u->room;
}

static void udp_put(dxpu_udp *u, const dxpu_udp_path *to, const uint8_t *bytes, size_t len)
{
    uint32_t at = ntohl(to->remote.u.v4.sin_addr.s_addr) - 0x7f000001u;
    parcel *p = &flight[flying];
    must(len && len <= BYTES && to->socket < SOCKETS && (at & 0xff) < PORTS);
    must(at >> 8 == to->socket); /* as it was dialed, or came */
    if (flying == FLIGHT)
        return;
    flying++;
    p->from = u->port;
    p->to = at & 0xff;
    p->socket = to->socket;
    p->moved = u->port < HOSTS && moved[u->port];
    p->len = len;
    memcpy(p->bytes, bytes, len);
    if (keeps < KEPT || len % 7 == 0)
        kept[keeps++ % KEPT] = *p;
}

static void udp_commit(dxpu_udp *u, const dxpu_udp_path *to, size_t len)
{
    udp_put(u, to, u->room, len);
}

static void udp_commit_many(dxpu_udp *u, const dxpu_udp_path *to, size_t len, size_t segment)
{
    must(segment && len <= SEGMENTS * segment);
    for (size_t at = 0; at < len; at += segment)
        udp_put(u, to, u->room + at, len - at < segment ? len - at : segment);
}

static uint64_t udp_counter(const dxpu_udp *u, unsigned index)
{
    (void)u;
    return index;
}

#define dxpu_udp_counter_value udp_counter
#define dxpu_udp_now_ns        udp_now_ns
#define dxpu_udp_open          udp_open
#define dxpu_udp_close         udp_close
#define dxpu_udp_sockets       udp_sockets
#define dxpu_udp_local         udp_local
#define dxpu_udp_room          udp_room
#define dxpu_udp_commit        udp_commit
#define dxpu_udp_commit_many   udp_commit_many
#define dxpu_udp_room_many     udp_room_many

static ssize_t draw(void *out, size_t len)
{
    fixed_bytes(out, len);
    return (ssize_t)len;
}

/* Not linked: replaces dxpu_udp_open() and others. */
#define getrandom(out, len, flags) draw(out, len)
#include "sealing.c"
#include "fabric.c"

enum {
    DELIVER,
    ALL,
    LOSE,
    DOUBLE,
    ALTER,
    INVENT,
    REPLAY,
    TIME,
    DIAL,
    SUBMIT,
    CLOSE,
    LIST,
    MOVE,
    OPS
};

struct keys {
    unsigned port;
};

/* What is known of an incarnation, by its id at its port. */
typedef struct incarnation {
    uint32_t id;
    uint64_t count; /* TLPs submitted, or taken */
} incarnation;

static fabric fabrics[PORTS];
static struct keys lists[PORTS];
static dxpu_noise_pair own[PORTS];
static incarnation known_ones[PORTS][CAPACITY];
static bool plain, liar;        /* somebody has said what only a liar says */
static unsigned may;            /* a bit for each host */
static unsigned talking[PORTS]; /* incarnations that came up and did not end */
static uint64_t newest[HOSTS], epoch[SLOTS], seen[SLOTS], walls;

/* -- Keys -- */

static unsigned whose(const uint8_t *key)
{
    unsigned i = 0;
    while (i < PORTS && memcmp(own[i].public_key, key, sizeof own[i].public_key))
        i++;
    return i;
}

bool keys_plain(const keys *k)
{
    (void)k;
    return plain;
}

const char keys_plain_address[] = "";

const char *keys_check_addresses(const keys_settings *s, const dxpu_udp_address *at, unsigned count)
{
    (void)s;
    (void)at;
    (void)count;
    return NULL;
}

bool keys_allow_address(const keys *k, const dxpu_udp_address *a)
{
    (void)k;
    (void)a;
    return true;
}

const dxpu_noise_pair *keys_own(const keys *k)
{
    return &own[k->port];
}

bool keys_allow(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], unsigned what, uint16_t slot)
{
    unsigned i = whose(key);
    (void)slot;
    must(what == KEYS_FABRIC);
    return k->port == BOX ? i < HOSTS && (may >> i & 1u) : i == BOX;
}

bool keys_find(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], keys_peer *out)
{
    (void)k;
    (void)key;
    (void)out;
    return false;
}

uint64_t keys_newest(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    must(k->port == BOX && whose(key) < HOSTS);
    return newest[whose(key)];
}

bool keys_fresh(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp)
{
    uint64_t *at = &newest[whose(key)];
    must(k->port == BOX && whose(key) < HOSTS);
    if (timestamp <= *at)
        return false;
    *at = timestamp;
    return true;
}

bool keys_fresh_passing(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp)
{
    return keys_fresh(k, key, timestamp);
}

uint64_t keys_wall_ns(keys *k)
{
    (void)k;
    return clock_ns + ++walls;
}

/* -- The programs -- */

static incarnation *known_one(const fabric *f, const fabric_channel *c)
{
    return &known_ones[f - fabrics][c->id & FABRIC_INDEX_MASK];
}

static uint8_t on_authorize(void *user, const dxpu_offer *o, const uint8_t *key,
                            dxpu_channel_config *cfg)
{
    must(user == &fabrics[BOX] && !key == plain && cfg->epoch == o->epoch);
    must(plain || whose(key) < HOSTS);
    cfg->local.node = BOX;
    if (!o->destination.slot || o->destination.slot > SLOTS ||
        (!plain && !(may >> whose(key) & 1u)))
        return DXPU_REASON_NO_SLOT;
    return o->epoch < seen[o->destination.slot - 1] ? DXPU_REASON_EPOCH : DXPU_REASON_NONE;
}

static void on_up(void *user, fabric_channel *c, uint64_t now)
{
    fabric *f = user;
    incarnation *i = known_one(f, c);
    must(now == clock_ns && c->up && !c->ended && i->id != c->id);
    must(!c->session == plain);
    *i = (incarnation){ c->id, 0 };
    talking[f - fabrics]++;
    if (f != &fabrics[BOX])
        return;
    must(plain || may >> whose(dxpu_sodium_peer_key(c->session)) & 1u);
    for (unsigned n = 0; n < f->live_count; n++) /* as boxes do */
        if (f->live[n] != c && f->live[n]->up && !f->live[n]->ended && f->live[n]->slot == c->slot)
            dxpu_channel_reset(&f->live[n]->ch, DXPU_REASON_REPLACED);
    if (c->ch.cfg.epoch > seen[c->slot - 1])
        seen[c->slot - 1] = c->ch.cfg.epoch;
}

/* A write of a host's nth TLP of an incarnation. */
static dxpu_tlp nth(const dxpu_place *host, uint64_t e, uint64_t n)
{
    static const uint8_t data[4] = { 1, 2, 3, 4 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 15;
    t.requester = (uint16_t)(host->node << 8 | host->slot);
    t.address = 4 * ((e & 0xff) << 16 | n);
    t.payload.ptr = data;
    t.payload.len = sizeof data;
    return t;
}

/* One batch, and then the others have their turn. */
static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    fabric *f = user;
    incarnation *i = known_one(f, c);
    must(c->up && !c->ended && i->id == c->id);
    for (unsigned n = 0; n < 2; n++, i->count++) {
        dxpu_tlp is = nth(&c->ch.cfg.remote, c->ch.cfg.epoch, i->count), t;
        dxpu_delivery d = dxpu_channel_peek(&c->ch, DXPU_POSTED);
        if (!d.tlp.len)
            return false;
        must(liar || (f == &fabrics[BOX] && dxpu_tlp_receive(d.tlp, &t) == DXPU_OK &&
                      t.requester == is.requester && t.address == is.address));
        (void)dxpu_channel_take(&c->ch, DXPU_POSTED, now);
    }
    return true;
}

static void on_down(void *user, fabric_channel *c, uint64_t now)
{
    incarnation *i = known_one(user, c);
    must(now == clock_ns && c->ended && dxpu_channel_status(&c->ch).state >= DXPU_STATE_CLOSED);
    must(!c->up || i->id == c->id); /* once */
    talking[(fabric *)user - fabrics] -= c->up;
    i->id = 0;
}

/* -- What holds of a port -- */

static void check(const fabric *f)
{
    unsigned up = 0;
    must(f->live_count + f->free_count == f->capacity);
    for (unsigned i = 0; i < f->live_count; i++) {
        const fabric_channel *c = f->live[i];
        up += c->up && !c->ended;
        must(c->live_at == i && f->channels[c->id & FABRIC_INDEX_MASK] == c);
        must(!c->session || dxpu_sodium_user(c->session) == c);
        for (unsigned k = 0; k < i; k++)
            must(!c->session || f->live[k]->session != c->session);
        if (c->session && c->up && !c->ended && f == &fabrics[BOX])
            must(c->session->settled && (dxpu_channel_status(&c->ch).state >= DXPU_STATE_CLOSED ||
                                         may >> whose(dxpu_sodium_peer_key(c->session)) & 1u));
    }
    for (unsigned i = 0; f->sealing.end && i < f->sealing.end->begun; i++) {
        const dxpu_sodium_session *x = &f->sealing.end->session[i];
        const fabric_channel *c = x->user;
        must(x->state == DXPU_SODIUM_FREE || !c ||
             (fabric_channel_by_id(f, c->id) == c && c->session == x));
    }
    must(f->up == up && talking[f - fabrics] == up);
    for (unsigned i = 0; i < f->free_count; i++)
        must(!f->channels[f->free_list[(f->free_head + i) % f->capacity]]);
}

/* Each port does what is due; it ends. */
static void settle(void)
{
    bool any = true;
    for (unsigned turns = 0; any; turns++) {
        must(turns < 50);
        any = false;
        for (unsigned i = 0; i < PORTS; i++) {
            if (fabric_next_ns(&fabrics[i]) > clock_ns)
                continue;
            fabric_turn(&fabrics[i], clock_ns);
            any = true;
        }
    }
    for (unsigned i = 0; i < PORTS; i++)
        check(&fabrics[i]);
}

/* -- The network -- */

static void bring(const parcel *p, unsigned flags)
{
    dxpu_udp_path from = { p->socket, address(p->from, p->socket, p->moved) };
    uint8_t *copy = malloc(p->len ? p->len : 1);
    must(copy != NULL);
    memcpy(copy, p->bytes, p->len);
    fabric_on_datagram(&fabrics[p->to], copy, p->len, &from, flags);
    free(copy);
    fabric_turn(&fabrics[p->to], clock_ns);
    settle();
}

static parcel take(unsigned n)
{
    parcel p = flight[n];
    memmove(flight + n, flight + n + 1, (--flying - n) * sizeof *flight);
    return p;
}

static void all_arrive(void)
{
    for (unsigned n = 0; flying && n < 200; n++) {
        parcel p = take(0);
        bring(&p, 0);
    }
}

/* A byte is another, and without keys the checksum may be right all the same. */
static void alter(parcel *p, uint8_t at, uint8_t by)
{
    size_t i = at % p->len;
    if (p->len < DXPU_FRAME_CRC_BYTES + 1u)
        return;
    p->bytes[i] ^= (uint8_t)(by | 1);
    if (by & 0x80) {
        dxpu_frame_seal_crc(p->bytes, p->len - DXPU_FRAME_CRC_BYTES);
        liar |= plain;
    }
}

static void invent(input *in, uint8_t how)
{
    parcel p = { .from = how & 1, .to = how & 2 ? BOX : how >> 2 & 1, .socket = how >> 3 & 1 };
    p.len = next(in) % 128;
    for (size_t i = 0; i < p.len; i++)
        p.bytes[i] = next(in);
    if (how & 0x10 && p.len > DXPU_FRAME_CRC_BYTES)
        dxpu_frame_seal_crc(p.bytes, p.len - DXPU_FRAME_CRC_BYTES);
    liar |= plain;
    bring(&p, how >> 6 & DXPU_RX_ECN_CE);
}

static void pass_time(uint64_t ns)
{
    uint64_t until = clock_ns + ns;
    settle();
    for (unsigned turns = 0; clock_ns < until && turns < QUIET_TURNS; turns++) {
        uint64_t due = until;
        for (unsigned i = 0; i < PORTS; i++) {
            uint64_t at = fabric_next_ns(&fabrics[i]);
            due = at < due ? at : due;
        }
        must(due > clock_ns); /* what was due is done */
        clock_ns = due;
        settle();
    }
}

/* -- Steps -- */

static void dial(unsigned host, uint8_t how)
{
    fabric *f = &fabrics[host];
    unsigned slot = how & 1, count = 1 + (how >> 1 & 1);
    dxpu_udp_address box[SOCKETS] = { address(BOX, 0, false), address(BOX, 1, false) };
    dxpu_udp_path path[SOCKETS];
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = how & 0x20 && epoch[slot] ? epoch[slot] : ++epoch[slot];
    cfg.local = (dxpu_place){ host + 1, (uint16_t)(slot + 1), 0 };
    cfg.remote = (dxpu_place){ 0, (uint16_t)(how & 0x40 ? SLOTS + 1 : slot + 1), 0 };
    must(fabric_route(f, box, count, path) == DXPU_OK);
    (void)fabric_dial(f, &cfg, own[how & 0x80 ? host : BOX].public_key, path, count, clock_ns);
}

static void submit(unsigned host, unsigned n)
{
    fabric *f = &fabrics[host];
    fabric_channel *c = f->live_count ? f->live[n % f->live_count] : NULL;
    uint8_t bytes[64];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp t;
    if (!c || !c->up || c->ended)
        return;
    t = nth(&c->ch.cfg.local, c->ch.cfg.epoch, known_one(f, c)->count);
    must(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len) == DXPU_OK);
    if (dxpu_channel_submit(&c->ch, tlp, clock_ns, 0) == DXPU_OK)
        known_one(f, c)->count++;
}

static void close_one(unsigned port, uint8_t how)
{
    fabric *f = &fabrics[port];
    fabric_channel *c = f->live_count ? f->live[(how >> 4) % f->live_count] : NULL;
    if (how & 8)
        fabric_close_all(f, DXPU_REASON_SHUTDOWN);
    else if (c && c->up && !c->ended)
        (void)dxpu_channel_close(&c->ch, DXPU_REASON_DETACH);
    else if (c && !c->ended)
        dxpu_channel_reset(&c->ch, DXPU_REASON_DETACH);
}

static void step(input *in)
{
    uint8_t op = next(in), how = next(in);
    unsigned n = flying ? how % flying : 0;
    parcel p;
    switch (op % OPS) {
    case DELIVER:
    case LOSE:
    case DOUBLE:
    case ALTER:
        if (!flying)
            break;
        p = op % OPS == DOUBLE ? flight[n] : take(n);
        if (op % OPS == ALTER)
            alter(&p, next(in), next(in));
        if (op % OPS != LOSE)
            bring(&p, 0);
        break;
    case ALL:
        all_arrive();
        break;
    case INVENT:
        invent(in, how);
        break;
    case REPLAY:
        p = kept[how % KEPT];
        p.moved = how & 0x80;
        if (p.len)
            bring(&p, 0);
        break;
    case TIME:
        pass_time(1000u << how % 18);
        break;
    case DIAL:
        dial(how >> 2 & 1, how);
        break;
    case SUBMIT:
        submit(how & 1, how >> 1);
        break;
    case CLOSE:
        close_one((how & 3u) % PORTS, how);
        break;
    case LIST:
        may = how & 3;
        fabric_keys_changed(&fabrics[BOX]);
        break;
    default:
        moved[how & 1] = how & 2;
        break;
    }
    settle();
}

/* -- A run -- */

static void start(void)
{
    static const char *const listen[PORTS] = { "127.0.0.1:4458,127.0.1.1:4458",
                                               "127.0.0.2:4458,127.0.1.2:4458",
                                               "127.0.0.3:4458,127.0.1.3:4458" };
    quick_begin();
    clock_ns = 1000000000;
    for (unsigned i = 0; i < PORTS; i++) {
        fabric_settings set = FABRIC_SETTINGS_DEFAULT(listen[i]);
        fabric_callbacks cb = {
            &fabrics[i], i == BOX ? on_authorize : NULL, on_up, on_work, on_down, NULL, NULL, NULL,
            NULL
        };
        dxpu_noise_pair_new(dxpu_sodium_primitives(), &own[i]);
        lists[i].port = i;
        set.window_frames = 4;
        set.mtu = 1280;
        set.hold_ms = HOLD_MS;
        set.keys = &lists[i];
        must(fabric_open(&fabrics[i], &set, CAPACITY, &cb) == 0);
    }
}

/* Everybody leaves, over a network that works. */
static void finish(void)
{
    report r;
    moved[0] = moved[1] = false;
    for (unsigned i = 0; i < PORTS; i++)
        fabric_close_all(&fabrics[i], DXPU_REASON_SHUTDOWN);
    for (unsigned n = 0; n < 100; n++) {
        all_arrive();
        pass_time(HOLD_MS * 1000000u / 10);
    }
    for (unsigned i = 0; i < PORTS; i++) {
        must(!fabrics[i].live_count && !fabric_busy(&fabrics[i]));
        report_begin(&r, nowhere(), true);
        fabric_report(&fabrics[i], &r);
        report_end(&r);
        must(fabric_close(&fabrics[i]) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    memset(known_ones, 0, sizeof known_ones);
    memset(kept, 0, sizeof kept);
    memset(newest, 0, sizeof newest);
    memset(epoch, 0, sizeof epoch);
    memset(seen, 0, sizeof seen);
    memset(moved, 0, sizeof moved);
    memset(talking, 0, sizeof talking);
    flying = keeps = 0;
    walls = 0;
    liar = false;
    may = 3;
    plain = next(&in) & 1;
    start();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    finish();
    return 0;
}
