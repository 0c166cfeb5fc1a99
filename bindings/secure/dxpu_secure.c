/* dxpu_secure.c - see dxpu_secure.h, spec/security.md
   SPDX-License-Identifier: MIT */
#include "dxpu_secure.h"
#include "dxpu_seal.h"

enum { KEY = DXPU_NOISE_KEY_BYTES, MAC = 16, COOKIE = 16, SECRET = 32 };
#define SECOND_NS ((uint64_t)1000000000)
#define COOKIE_NS (120 * SECOND_NS) /* lifetime of a cookie's secret, and of a cookie */
enum { PENDING_LOOKED_AT = 256 };   /* of pending sessions, for the one that makes room */

/* ==== Messages ================================================================================ */

enum { TYPE_INITIATION = 1, TYPE_RESPONSE = 2, TYPE_COOKIE = 3, SECURITY_VERSION = 1 };

enum { /* the head of each message, S-10 */
       HEAD_TYPE = 0,
       HEAD_SECURITY = 1,
       HEAD_VERSION_MIN = 2,
       HEAD_VERSION_MAX = 3,
       HEAD_CHANNEL = 4, /* the initiator's */
       HEAD_BYTES = 8
};

enum { /* payload of the initiation, S-12 */
       ASK_TIMESTAMP = 0,
       ASK_EPOCH = 8,
       ASK_SOURCE = 16,
       ASK_DESTINATION = 24,
       ASK_SUITES = 32,
       ASK_BYTES = 36
};

enum { /* payload of the response, S-15 */
       ANSWER_REASON = 0,
       ANSWER_VERSION = 1,
       ANSWER_SUITE = 2,
       ANSWER_CHANNEL = 4,
       ANSWER_EPOCH = 8,
       ANSWER_BYTES = 16
};

enum {
    NOISE1_BYTES = KEY + KEY + 2 * DXPU_NOISE_TAG_BYTES, /* beside the payload */
    INITIATION_BYTES = HEAD_BYTES + NOISE1_BYTES + ASK_BYTES + 2 * MAC,
    COOKIE_NONCE = HEAD_BYTES,
    COOKIE_NONCE_BYTES = 24, /* XChaCha20's */
    COOKIE_SEALED = COOKIE_NONCE + COOKIE_NONCE_BYTES,
    COOKIE_BYTES = COOKIE_SEALED + COOKIE + DXPU_NOISE_TAG_BYTES,
    PAYLOAD_MAX_BYTES = DXPU_HANDSHAKE_MAX_BYTES
};

static void put_place(uint8_t *out, const dxpu_place *p)
{
    dxpu_put_be32(out, p->node);
    dxpu_put_be16(out + 4, p->slot);
    dxpu_put_be16(out + 6, p->function);
}

static dxpu_place get_place(const uint8_t *in)
{
    dxpu_place p;
    p.node = dxpu_get_be32(in);
    p.slot = dxpu_get_be16(in + 4);
    p.function = dxpu_get_be16(in + 6);
    return p;
}

/* ==== State =================================================================================== */

struct dxpu_secure_session {
    dxpu_secure *end;
    void *user;
    uint8_t state, reason;
    bool initiator;
    bool settled; /* responder: no open is looked for */
    dxpu_secure_request asked;
    uint8_t peer[KEY];
    uint32_t local_id, remote_id;
    uint64_t born_ns;
    /* initiator, while it asks */
    dxpu_noise noise;
    uint8_t initiation[INITIATION_BYTES], cookie[COOKIE];
    uint64_t cookie_ns; /* when it came; 0: there is none */
    bool cookie_used;   /* in answer to this initiation */
    /* keyed */
    dxpu_seal seal;
    uint64_t phase_ns;  /* ours began */
    uint64_t forget_ns; /* the receiver's key before */
    uint64_t gap_ns;    /* between phases of ours, at least: the hold that was agreed on */
};

struct dxpu_secure {
    const dxpu_primitives *with;
    dxpu_noise_pair identity;
    uint8_t cookie_secret[2][SECRET]; /* this one, and the one before */
    uint64_t cookie_made_ns;
    uint8_t mac_key[SECRET], cookie_key[SECRET]; /* of our public key, as a responder */
    dxpu_secure_config cfg;
    dxpu_secure_counters count;
    uint64_t wall_ns;    /* last timestamp sent */
    uint64_t pending_ns; /* no pending session is due before */
    bool cookies;
    uint8_t *scratch; /* of an open that is looked at: cfg.open_bytes, behind the sessions */
    unsigned begun;   /* sessions that ever were one: those behind have not been touched */
    dxpu_secure_session session[];
};

static void session_wipe(dxpu_secure_session *x)
{
    dxpu_secure *s = x->end;
    s->with->wipe(x, sizeof *x);
    x->end = s;
}

static bool session_is_free(const dxpu_secure *s)
{
    bool any = s->begun < s->cfg.sessions;
    for (unsigned i = 0; !any && i < s->begun; i++)
        any = s->session[i].state == DXPU_SECURE_FREE;
    return any;
}

/* One that is free, and empty; NULL: there is none. */
static dxpu_secure_session *session_take(dxpu_secure *s)
{
    unsigned i = 0;
    while (i < s->begun && s->session[i].state != DXPU_SECURE_FREE)
        i++;
    if (i == s->cfg.sessions)
        return NULL;
    s->begun += i == s->begun;
    s->session[i].end = s;
    session_wipe(&s->session[i]);
    return &s->session[i];
}

static uint64_t pending_end_ns(const dxpu_secure_session *x)
{
    uint64_t life_ns = x->end->cfg.pending_ns;
    return life_ns < DXPU_NEVER - x->born_ns ? x->born_ns + life_ns : DXPU_NEVER;
}

uint64_t dxpu_secure_pending_ns(const dxpu_secure *s)
{
    return s->pending_ns;
}

void dxpu_secure_expire(dxpu_secure *s, uint64_t now_ns)
{
    if (now_ns < s->pending_ns)
        return;
    s->pending_ns = DXPU_NEVER;
    for (unsigned i = 0; i < s->begun; i++) {
        dxpu_secure_session *x = &s->session[i];
        if (x->state != DXPU_SECURE_PENDING)
            continue;
        if (now_ns >= pending_end_ns(x)) {
            s->count.expired++;
            session_wipe(x);
        } else if (pending_end_ns(x) < s->pending_ns) {
            s->pending_ns = pending_end_ns(x);
        }
    }
}

/* Of these sessions the oldest of the key that has most; the beginner's new one counts. */
static dxpu_secure_session *crowding(dxpu_secure_session *const *list, unsigned count,
                                     const uint8_t beginner[KEY])
{
    dxpu_secure_session *found = NULL;
    unsigned most = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned of = memcmp(list[i]->peer, beginner, KEY) == 0;
        for (unsigned k = 0; k < count; k++)
            of += memcmp(list[i]->peer, list[k]->peer, KEY) == 0;
        if (of > most || (of == most && list[i]->born_ns < found->born_ns)) {
            most = of;
            found = list[i];
        }
    }
    return found;
}

/* When there are too many for one more, one goes: so that no key displaces those of a key that has
   fewer (S-157). */
static void pending_make_room(dxpu_secure *s, const uint8_t beginner[KEY])
{
    dxpu_secure_session *list[PENDING_LOOKED_AT], *goes;
    unsigned pending = 0, count = 0;
    for (unsigned i = 0; i < s->begun; i++) {
        if (s->session[i].state != DXPU_SECURE_PENDING)
            continue;
        pending++;
        if (count < PENDING_LOOKED_AT)
            list[count++] = &s->session[i];
    }
    if (pending < s->cfg.pending && session_is_free(s))
        return;
    goes = crowding(list, count, beginner);
    if (goes) {
        s->count.displaced++;
        session_wipe(goes);
    }
}

/* ==== MACs and cookies ======================================================================== */

#define LABEL(text) ((dxpu_bytes){ (const uint8_t *)(text), sizeof(text) - 1 })

/* The key that a public key stands for under a label (S-11). */
static void labelled(const dxpu_primitives *with, dxpu_bytes label, const uint8_t key[KEY],
                     uint8_t out[SECRET])
{
    const dxpu_bytes none = { NULL, 0 }, parts[2] = { label, { key, KEY } };
    with->hash(out, SECRET, none, parts, 2);
}

static void mac_of(const dxpu_primitives *with, dxpu_bytes key, dxpu_bytes data, uint8_t out[MAC])
{
    with->hash(out, MAC, key, &data, 1);
}

/* The MAC stands behind the data. */
static bool mac_matches(const dxpu_primitives *with, dxpu_bytes key, const uint8_t *data,
                        size_t len)
{
    uint8_t want[MAC];
    mac_of(with, key, (dxpu_bytes){ data, len }, want);
    return with->equal(want, data + len, MAC);
}

/* What a cookie's nonce makes of a key: XChaCha20's, and the nonce of ChaCha20 to go on with. */
static void cookie_cipher(const dxpu_primitives *with, const uint8_t key[SECRET],
                          const uint8_t nonce[COOKIE_NONCE_BYTES], uint8_t out_key[SECRET],
                          uint8_t out_nonce[12])
{
    with->hchacha20(out_key, nonce, key);
    memset(out_nonce, 0, 4);
    memcpy(out_nonce + 4, nonce + 16, 8);
}

/* Cookie secrets live for two turns of COOKIE_NS, however seldom somebody asks. */
static void cookie_turn(dxpu_secure *s, uint64_t now_ns)
{
    uint64_t age_ns = now_ns - s->cookie_made_ns;
    if (s->cookies && age_ns < COOKIE_NS)
        return;
    if (s->cookies && age_ns < 2 * COOKIE_NS) {
        memcpy(s->cookie_secret[1], s->cookie_secret[0], SECRET);
        s->cookie_made_ns += COOKIE_NS;
    } else {
        s->with->random(s->with->user, s->cookie_secret[1], SECRET);
        s->cookie_made_ns = now_ns;
    }
    s->with->random(s->with->user, s->cookie_secret[0], SECRET);
    s->cookies = true;
}

/* Does the initiation's second MAC prove that the sender receives at this address? */
static bool cookie_proven(const dxpu_secure *s, dxpu_bytes body, dxpu_bytes from)
{
    bool proven = false;
    for (unsigned i = 0; i < 2; i++) {
        uint8_t cookie[COOKIE];
        mac_of(s->with, (dxpu_bytes){ s->cookie_secret[i], SECRET }, from, cookie);
        proven |=
            mac_matches(s->with, (dxpu_bytes){ cookie, sizeof cookie }, body.ptr, body.len - MAC);
    }
    return proven;
}

/* ==== Frames ================================================================================== */

/* A handshake frame around a message of `bytes` at out's body.  Its bytes. */
static size_t frame_finish(uint8_t *out, uint32_t channel, size_t bytes)
{
    dxpu_frame f;
    memset(&f, 0, sizeof f);
    f.kind = DXPU_KIND_HANDSHAKE;
    f.channel = channel;
    size_t head = dxpu_frame_encode_header(&f, bytes, DXPU_FRAME_CRC_BYTES, out);
    dxpu_frame_seal_crc(out, head + bytes);
    return head + bytes + DXPU_FRAME_CRC_BYTES;
}

static void put_head(uint8_t *body, unsigned type, const dxpu_secure_request *r)
{
    body[HEAD_TYPE] = (uint8_t)type;
    body[HEAD_SECURITY] = SECURITY_VERSION;
    body[HEAD_VERSION_MIN] = type == TYPE_INITIATION ? r->version_min : 0;
    body[HEAD_VERSION_MAX] = type == TYPE_INITIATION ? r->version_max : 0;
    dxpu_put_be32(body + HEAD_CHANNEL, r->channel);
}

/* What both ends must agree on before the first message (S-3): a label, and the head. */
enum { LABEL_BYTES = 16, PROLOGUE_BYTES = LABEL_BYTES + HEAD_BYTES };
static dxpu_bytes prologue_of(const uint8_t *head, uint8_t out[PROLOGUE_BYTES])
{
    static const char label[] = "dxpu handshake 1";
    memcpy(out, label, LABEL_BYTES);
    memcpy(out + LABEL_BYTES, head, HEAD_BYTES);
    return (dxpu_bytes){ out, PROLOGUE_BYTES };
}

/* Keys from a finished handshake, which is wiped. */
static void session_key(dxpu_secure_session *x, dxpu_noise *n, uint16_t suite)
{
    uint8_t split[2][KEY], hash[DXPU_NOISE_HASH_BYTES];
    dxpu_seal_context c;
    (void)dxpu_noise_split(n, split[0], split[1], hash);
    c.split[0] = split[0];
    c.split[1] = split[1];
    c.hash = hash;
    c.suite = suite;
    c.epoch = x->asked.epoch;
    c.channel[0] = x->initiator ? x->local_id : x->remote_id;
    c.channel[1] = x->initiator ? x->remote_id : x->local_id;
    dxpu_seal_begin(&x->seal, x->end->with, &c, x->initiator);
    x->end->with->wipe(split, sizeof split);
    x->end->with->wipe(hash, sizeof hash);
}

/* ==== Initiator =============================================================================== */

dxpu_secure_session *dxpu_secure_begin(dxpu_secure *s, const uint8_t key[KEY],
                                       const dxpu_secure_request *request)
{
    dxpu_secure_session *x;
    uint16_t suites = request->suites ? request->suites & s->cfg.suites : s->cfg.suites;
    if (!suites || !request->channel || !request->epoch || !request->version_min ||
        request->version_max < request->version_min)
        return NULL;
    x = session_take(s);
    if (!x)
        return NULL;
    x->state = DXPU_SECURE_ASKING;
    x->initiator = true;
    x->asked = *request;
    x->asked.suites = suites;
    x->local_id = request->channel;
    memcpy(x->peer, key, KEY);
    return x;
}

/* The second MAC of the initiation, if a cookie is at hand. */
static void put_cookie(dxpu_secure_session *x)
{
    uint8_t *mac2 = x->initiation + INITIATION_BYTES - MAC;
    memset(mac2, 0, MAC);
    if (x->cookie_ns)
        mac_of(x->end->with, (dxpu_bytes){ x->cookie, COOKIE },
               (dxpu_bytes){ x->initiation, INITIATION_BYTES - MAC }, mac2);
}

static int send_initiation(dxpu_secure_session *x, uint8_t *out)
{
    memcpy(out + DXPU_FRAME_BASE_BYTES, x->initiation, INITIATION_BYTES);
    return (int)frame_finish(out, 0, INITIATION_BYTES);
}

/* Timestamps of this end rise whatever the clock does (S-13). */
static uint64_t timestamp(dxpu_secure *s, uint64_t wall_ns)
{
    s->wall_ns = wall_ns > s->wall_ns ? wall_ns : s->wall_ns + 1;
    return s->wall_ns;
}

static void put_ask(dxpu_secure_session *x, uint64_t wall_ns, uint8_t ask[ASK_BYTES])
{
    memset(ask, 0, ASK_BYTES);
    dxpu_put_be64(ask + ASK_TIMESTAMP, timestamp(x->end, wall_ns));
    dxpu_put_be64(ask + ASK_EPOCH, x->asked.epoch);
    put_place(ask + ASK_SOURCE, &x->asked.source);
    put_place(ask + ASK_DESTINATION, &x->asked.destination);
    dxpu_put_be16(ask + ASK_SUITES, x->asked.suites);
}

int dxpu_secure_initiate(dxpu_secure_session *x, uint64_t now_ns, uint64_t wall_ns, uint8_t *out,
                         size_t cap)
{
    uint8_t prologue[PROLOGUE_BYTES], ask[ASK_BYTES], key[SECRET], *body = x->initiation;
    const dxpu_primitives *with = x->end->with;
    size_t bytes = 0;
    if (x->state != DXPU_SECURE_ASKING)
        return DXPU_E_STATE;
    if (cap < DXPU_SECURE_FRAME_BYTES)
        return DXPU_E_ROOM;
    put_head(body, TYPE_INITIATION, &x->asked);
    (void)dxpu_noise_start(&x->noise, with, DXPU_NOISE_IK, true, &x->end->identity, x->peer,
                           prologue_of(body, prologue));
    put_ask(x, wall_ns, ask);
    if (dxpu_noise_write(&x->noise, (dxpu_bytes){ ask, sizeof ask }, body + HEAD_BYTES,
                         INITIATION_BYTES, &bytes) != DXPU_OK)
        return DXPU_E_STATE; /* an invalid public key */
    labelled(with, LABEL("dxpu mac 1"), x->peer, key);
    mac_of(with, (dxpu_bytes){ key, sizeof key }, (dxpu_bytes){ body, INITIATION_BYTES - 2 * MAC },
           body + INITIATION_BYTES - 2 * MAC);
    if (x->cookie_ns && now_ns - x->cookie_ns >= COOKIE_NS)
        x->cookie_ns = 0;
    put_cookie(x);
    x->cookie_used = false;
    x->end->count.initiations_sent++;
    return send_initiation(x, out);
}

static dxpu_secure_session *asking(dxpu_secure *s, uint32_t channel)
{
    for (unsigned i = 0; i < s->begun; i++) {
        dxpu_secure_session *x = &s->session[i];
        if (x->state == DXPU_SECURE_ASKING && x->local_id == channel && x->noise.messages)
            return x;
    }
    return NULL;
}

/* The responder wants to know that we receive here: say the same again, with its cookie (S-18). */
static int on_cookie(dxpu_secure *s, uint64_t now_ns, dxpu_bytes body, uint8_t *answer,
                     size_t *bytes)
{
    dxpu_secure_session *x = asking(s, dxpu_get_be32(body.ptr + HEAD_CHANNEL));
    uint8_t key[SECRET], nonce[12], cookie[COOKIE];
    if (body.len < COOKIE_BYTES) {
        s->count.malformed++;
        return DXPU_E_SHORT;
    }
    if (!x || x->cookie_used) {
        s->count.unasked++;
        return DXPU_E_STATE;
    }
    labelled(s->with, LABEL("dxpu cookie 1"), x->peer, key);
    cookie_cipher(s->with, key, body.ptr + COOKIE_NONCE, key, nonce);
    memcpy(cookie, body.ptr + COOKIE_SEALED, COOKIE);
    if (!s->with->aeads->decrypt(key, nonce,
                                 (dxpu_bytes){ x->initiation + INITIATION_BYTES - 2 * MAC, MAC },
                                 cookie, COOKIE, body.ptr + COOKIE_SEALED + COOKIE)) {
        s->count.forged++;
        return DXPU_E_CRC;
    }
    memcpy(x->cookie, cookie, COOKIE);
    x->cookie_ns = now_ns ? now_ns : 1;
    x->cookie_used = true;
    put_cookie(x);
    *bytes = (size_t)send_initiation(x, answer);
    return DXPU_OK;
}

/* What the responder chose must be what we offered. */
static bool answer_valid(const dxpu_secure_session *x, const uint8_t *a)
{
    uint16_t suite = dxpu_get_be16(a + ANSWER_SUITE);
    return a[ANSWER_VERSION] >= x->asked.version_min && a[ANSWER_VERSION] <= x->asked.version_max &&
           suite != 0 && (suite & (suite - 1)) == 0 && (suite & ~x->asked.suites) == 0 &&
           dxpu_get_be32(a + ANSWER_CHANNEL) != 0 &&
           dxpu_get_be64(a + ANSWER_EPOCH) == x->asked.epoch;
}

static int on_response(dxpu_secure *s, uint64_t now_ns, dxpu_bytes body,
                       dxpu_secure_session **session)
{
    dxpu_secure_session *x = asking(s, dxpu_get_be32(body.ptr + HEAD_CHANNEL));
    uint8_t a[PAYLOAD_MAX_BYTES];
    size_t bytes = 0;
    if (!x) {
        s->count.unasked++;
        return DXPU_E_STATE;
    }
    dxpu_bytes message = { body.ptr + HEAD_BYTES, body.len - HEAD_BYTES };
    if (dxpu_noise_read(&x->noise, message, a, sizeof a, &bytes) != DXPU_OK) {
        s->count.forged++;
        return DXPU_E_CRC;
    }
    *session = x;
    x->reason = bytes < ANSWER_BYTES ? (uint8_t)DXPU_REASON_OFFER : a[ANSWER_REASON];
    if (x->reason == DXPU_REASON_NONE && !answer_valid(x, a))
        x->reason = DXPU_REASON_OFFER;
    if (x->reason != DXPU_REASON_NONE) {
        x->state = DXPU_SECURE_REFUSED;
        dxpu_noise_wipe(&x->noise);
        return DXPU_OK;
    }
    x->remote_id = dxpu_get_be32(a + ANSWER_CHANNEL);
    session_key(x, &x->noise, dxpu_get_be16(a + ANSWER_SUITE));
    s->with->wipe(x->cookie, sizeof x->cookie);
    x->state = DXPU_SECURE_KEYED;
    x->born_ns = now_ns;
    s->count.keyed++;
    return DXPU_OK;
}

/* ==== Responder =============================================================================== */

/* An address that is not proven costs a few hashes and a cipher, and leaves nothing here (S-17). */
static int send_cookie(dxpu_secure *s, dxpu_bytes body, dxpu_bytes from, uint8_t *answer,
                       size_t *bytes)
{
    uint8_t key[SECRET], nonce[12], *out = answer + DXPU_FRAME_BASE_BYTES;
    uint32_t channel = dxpu_get_be32(body.ptr + HEAD_CHANNEL);
    dxpu_secure_request r;
    memset(&r, 0, sizeof r);
    r.channel = channel;
    put_head(out, TYPE_COOKIE, &r);
    s->with->random(s->with->user, out + COOKIE_NONCE, COOKIE_NONCE_BYTES);
    cookie_cipher(s->with, s->cookie_key, out + COOKIE_NONCE, key, nonce);
    mac_of(s->with, (dxpu_bytes){ s->cookie_secret[0], SECRET }, from, out + COOKIE_SEALED);
    s->with->aeads->encrypt(key, nonce, (dxpu_bytes){ body.ptr + body.len - 2 * MAC, MAC },
                            out + COOKIE_SEALED, COOKIE, out + COOKIE_SEALED + COOKIE);
    *bytes = frame_finish(answer, channel, COOKIE_BYTES);
    s->count.cookies_sent++;
    return DXPU_OK;
}

/* The best suite that both have; 0 for none. */
static uint16_t best_suite(uint16_t suites)
{
#define DXPU_SECURE_BEST(name, bit, tag, text) (bit),
    static const uint16_t order[] = { DXPU_SECURE_SUITES(DXPU_SECURE_BEST) };
#undef DXPU_SECURE_BEST
    for (unsigned i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (suites & order[i])
            return order[i];
    }
    return 0;
}

/* The request that an authentic initiation holds, which has room for it. */
static int read_ask(const uint8_t *body, const uint8_t *ask, dxpu_secure_request *r)
{
    memset(r, 0, sizeof *r);
    r->channel = dxpu_get_be32(body + HEAD_CHANNEL);
    r->version_min = body[HEAD_VERSION_MIN];
    r->version_max = body[HEAD_VERSION_MAX];
    r->epoch = dxpu_get_be64(ask + ASK_EPOCH);
    r->source = get_place(ask + ASK_SOURCE);
    r->destination = get_place(ask + ASK_DESTINATION);
    r->suites = dxpu_get_be16(ask + ASK_SUITES);
    return r->channel && r->epoch && r->version_min && r->version_min <= r->version_max &&
                   !(r->suites & DXPU_SUITE_CRC)
               ? DXPU_OK
               : DXPU_E_OFFER;
}

/* The same peer asks again for the same channel: its earlier session leads nowhere. */
static void forget_earlier(dxpu_secure *s, const uint8_t key[KEY], uint32_t channel)
{
    for (unsigned i = 0; i < s->begun; i++) {
        dxpu_secure_session *x = &s->session[i];
        if (x->state == DXPU_SECURE_PENDING && x->remote_id == channel &&
            memcmp(x->peer, key, KEY) == 0)
            session_wipe(x);
    }
}

/* DXPU_REASON_NONE: *x is a new session, *suite the chosen one. */
static uint8_t decide(dxpu_secure *s, uint64_t now_ns, const dxpu_noise *n, dxpu_secure_peer *peer,
                      const dxpu_secure_request *r, uint16_t *suite, dxpu_secure_session **x)
{
    const uint8_t *key = dxpu_noise_remote(n);
    uint32_t channel = 0;
    uint8_t reason;
    *suite = best_suite(r->suites & s->cfg.suites);
    if (!*suite || r->version_min > DXPU_WIRE_VERSION || r->version_max < DXPU_WIRE_VERSION)
        return DXPU_REASON_VERSION;
    reason = s->cfg.cb.authorize(s->cfg.cb.user, peer, key, r, &channel);
    if (reason != DXPU_REASON_NONE)
        return reason;
    forget_earlier(s, key, r->channel);
    dxpu_secure_expire(s, now_ns);
    pending_make_room(s, key);
    *x = channel ? session_take(s) : NULL;
    if (!*x)
        return DXPU_REASON_BUSY;
    (*x)->asked = *r;
    (*x)->local_id = channel;
    (*x)->remote_id = r->channel;
    (*x)->born_ns = now_ns;
    memcpy((*x)->peer, key, KEY);
    return DXPU_REASON_NONE;
}

/* Answer an authentic request of a peer that is known (S-15). */
static int respond(dxpu_secure *s, uint64_t now_ns, dxpu_noise *n, dxpu_secure_peer *peer,
                   const dxpu_secure_request *r, uint8_t *answer, size_t *bytes)
{
    uint8_t payload[ANSWER_BYTES], *body = answer + DXPU_FRAME_BASE_BYTES;
    dxpu_secure_session *x = NULL;
    uint16_t suite = 0;
    size_t len = 0;
    memset(payload, 0, sizeof payload);
    payload[ANSWER_REASON] = decide(s, now_ns, n, peer, r, &suite, &x);
    payload[ANSWER_VERSION] = DXPU_WIRE_VERSION;
    if (x) {
        dxpu_put_be16(payload + ANSWER_SUITE, suite);
        dxpu_put_be32(payload + ANSWER_CHANNEL, x->local_id);
    }
    dxpu_put_be64(payload + ANSWER_EPOCH, r->epoch);
    put_head(body, TYPE_RESPONSE, r);
    if (dxpu_noise_write(n, (dxpu_bytes){ payload, sizeof payload }, body + HEAD_BYTES,
                         DXPU_SECURE_FRAME_BYTES - HEAD_BYTES - DXPU_FRAME_BASE_BYTES -
                             DXPU_FRAME_CRC_BYTES,
                         &len) != DXPU_OK)
        return DXPU_E_CRC; /* never: both of its keys gave a secret when it was read */
    if (x) {
        session_key(x, n, suite);
        x->state = DXPU_SECURE_PENDING;
        if (pending_end_ns(x) < s->pending_ns)
            s->pending_ns = pending_end_ns(x);
        s->count.responses_sent++;
    } else {
        s->count.refused++;
    }
    *bytes = frame_finish(answer, r->channel, HEAD_BYTES + len);
    return DXPU_OK;
}

/* Takes the timestamp of an authentic initiation, whatever becomes of it: one that is refused must
   not be answered twice either (S-13). */
static bool is_fresh(dxpu_secure *s, dxpu_secure_peer *peer, const uint8_t key[KEY],
                     uint64_t timestamp)
{
    if (timestamp <= peer->newest)
        return false;
    peer->newest = timestamp;
    return !s->cfg.cb.fresh || s->cfg.cb.fresh(s->cfg.cb.user, key, timestamp);
}

/* An initiation from a proven address: the only place where a Diffie-Hellman is computed for
   somebody who is not known yet. */
static int on_proven(dxpu_secure *s, uint64_t now_ns, dxpu_bytes body, dxpu_noise *n,
                     uint8_t *answer, size_t *bytes)
{
    uint8_t prologue[PROLOGUE_BYTES], ask[PAYLOAD_MAX_BYTES];
    dxpu_secure_request r;
    dxpu_secure_peer *peer;
    size_t len = 0;
    dxpu_bytes message = { body.ptr + HEAD_BYTES, body.len - HEAD_BYTES - 2 * MAC };
    (void)dxpu_noise_start(n, s->with, DXPU_NOISE_IK, false, &s->identity, NULL,
                           prologue_of(body.ptr, prologue));
    if (dxpu_noise_read(n, message, ask, sizeof ask, &len) != DXPU_OK) {
        s->count.forged++;
        return DXPU_E_CRC;
    }
    peer = s->cfg.cb.find(s->cfg.cb.user, dxpu_noise_remote(n));
    if (!peer) {
        s->count.stranger++;
        return DXPU_E_STATE;
    }
    if (!is_fresh(s, peer, dxpu_noise_remote(n), dxpu_get_be64(ask + ASK_TIMESTAMP))) {
        s->count.replayed++;
        return DXPU_E_REPLAY;
    }
    int rc = read_ask(body.ptr, ask, &r);
    if (rc != DXPU_OK) {
        s->count.malformed++;
        return rc;
    }
    return respond(s, now_ns, n, peer, &r, answer, bytes);
}

static int on_initiation(dxpu_secure *s, uint64_t now_ns, dxpu_bytes body, dxpu_bytes from,
                         uint8_t *answer, size_t *bytes)
{
    dxpu_noise n;
    if (!s->cfg.cb.find || !s->cfg.cb.authorize) {
        s->count.unasked++;
        return DXPU_E_STATE;
    }
    if (body.len < INITIATION_BYTES) {
        s->count.malformed++;
        return DXPU_E_SHORT;
    }
    if (!mac_matches(s->with, (dxpu_bytes){ s->mac_key, SECRET }, body.ptr, body.len - 2 * MAC)) {
        s->count.bad_mac++;
        return DXPU_E_CRC;
    }
    cookie_turn(s, now_ns);
    if (!cookie_proven(s, body, from))
        return send_cookie(s, body, from, answer, bytes);
    if (s->cfg.cb.spare && !s->cfg.cb.spare(s->cfg.cb.user, now_ns, from)) {
        s->count.limited++;
        return DXPU_E_STATE;
    }
    int rc = on_proven(s, now_ns, body, &n, answer, bytes);
    dxpu_noise_wipe(&n);
    return rc;
}

int dxpu_secure_body(dxpu_bytes datagram, dxpu_bytes *body)
{
    dxpu_frame f;
    int rc = dxpu_frame_decode(datagram, DXPU_FRAME_CRC_BYTES, &f);
    if (rc == DXPU_OK)
        rc = dxpu_frame_check_crc(datagram);
    if (rc != DXPU_OK)
        return rc;
    if (f.kind != DXPU_KIND_HANDSHAKE || f.body.len > DXPU_HANDSHAKE_MAX_BYTES)
        return DXPU_E_STATE; /* W-13 */
    if (f.body.len < HEAD_BYTES)
        return DXPU_E_SHORT;
    *body = f.body;
    return f.body.ptr[HEAD_SECURITY] == SECURITY_VERSION ? DXPU_OK : DXPU_E_VERSION;
}

/* A whole frame that can be one of ours: its body. */
static int frame_read(dxpu_bytes datagram, dxpu_bytes *body)
{
    int rc = dxpu_secure_body(datagram, body);
    uint8_t kind = 0;
    uint32_t channel = 0;
    if (rc != DXPU_OK)
        return rc;
    (void)dxpu_frame_peek(datagram, &kind, &channel); /* a frame, as the body says */
    bool first = body->ptr[HEAD_TYPE] == TYPE_INITIATION;
    if (!first && dxpu_get_be16(body->ptr + HEAD_VERSION_MIN) != 0)
        return DXPU_E_RSVD;
    return channel == (first ? 0 : dxpu_get_be32(body->ptr + HEAD_CHANNEL)) ? DXPU_OK
                                                                            : DXPU_E_CHANNEL;
}

int dxpu_secure_ingest(dxpu_secure *s, uint64_t now_ns, dxpu_bytes datagram, dxpu_bytes from,
                       uint8_t *answer, size_t cap, size_t *bytes, dxpu_secure_session **session)
{
    dxpu_bytes body = { NULL, 0 };
    *bytes = 0;
    *session = NULL;
    if (cap < DXPU_SECURE_FRAME_BYTES || from.len > DXPU_SECURE_FROM_BYTES)
        return DXPU_E_ROOM;
    int rc = frame_read(datagram, &body);
    if (rc != DXPU_OK) {
        s->count.malformed++;
        return rc;
    }
    switch (body.ptr[HEAD_TYPE]) {
    case TYPE_INITIATION:
        return on_initiation(s, now_ns, body, from, answer, bytes);
    case TYPE_RESPONSE:
        return on_response(s, now_ns, body, session);
    case TYPE_COOKIE:
        return on_cookie(s, now_ns, body, answer, bytes);
    default:
        s->count.malformed++;
        return DXPU_E_KIND;
    }
}

/* ==== Sealed frames =========================================================================== */

static bool session_seal(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                         uint8_t *body, size_t body_bytes)
{
    dxpu_secure_session *x = user;
    bool sealed = x->state == DXPU_SECURE_KEYED &&
                  dxpu_seal_frame(&x->seal, key_phase, nonce, header, body, body_bytes);
    x->end->count.unsealed += !sealed;
    return sealed;
}

static bool session_open(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                         uint8_t *body, size_t body_bytes)
{
    dxpu_secure_session *x = user;
    return x->state == DXPU_SECURE_KEYED &&
           dxpu_seal_unframe(&x->seal, key_phase, nonce, header, body, body_bytes);
}

const dxpu_suite *dxpu_secure_suite(const dxpu_secure_session *x)
{
#define DXPU_SECURE_ROW(name, bit, tag, text) { (bit), (tag), session_seal, session_open },
    static const dxpu_suite suites[] = { DXPU_SECURE_SUITES(DXPU_SECURE_ROW) };
#undef DXPU_SECURE_ROW
    if (x->state != DXPU_SECURE_KEYED)
        return NULL;
    for (unsigned i = 0; i < sizeof suites / sizeof suites[0]; i++) {
        if (suites[i].id == dxpu_seal_suite(&x->seal))
            return &suites[i];
    }
    return NULL;
}

static bool same_place(const dxpu_place *a, const dxpu_place *b)
{
    return a->node == b->node && a->slot == b->slot && a->function == b->function;
}

/* An open must offer what the handshake asked for, or the keys would carry another lease. */
static bool offer_asked(const dxpu_secure_session *x, const dxpu_offer *o)
{
    return o->channel == x->remote_id && o->epoch == x->asked.epoch &&
           o->suites == dxpu_seal_suite(&x->seal) && same_place(&o->source, &x->asked.source) &&
           same_place(&o->destination, &x->asked.destination);
}

/* Can this session read the open?  It is decrypted beside the frame. */
static bool reads_open(dxpu_secure_session *x, dxpu_bytes datagram, dxpu_offer *offer)
{
    uint8_t *copy = x->end->scratch;
    dxpu_frame f;
    if (datagram.len > x->end->cfg.open_bytes ||
        dxpu_frame_decode(datagram, dxpu_seal_tag_bytes(&x->seal), &f) != DXPU_OK ||
        f.kind != DXPU_KIND_OPEN || f.key_phase != 0)
        return false;
    dxpu_bytes head = { datagram.ptr, DXPU_FRAME_BASE_BYTES };
    size_t rest = datagram.len - head.len;
    memcpy(copy, datagram.ptr + head.len, rest);
    return dxpu_seal_unframe(&x->seal, f.key_phase, f.packet, head, copy, f.body.len) &&
           dxpu_offer_decode((dxpu_bytes){ copy, f.body.len }, offer) == DXPU_OK &&
           offer_asked(x, offer);
}

dxpu_secure_session *dxpu_secure_opener(dxpu_secure *s, uint64_t now_ns, dxpu_bytes datagram,
                                        dxpu_offer *offer)
{
    dxpu_secure_expire(s, now_ns);
    for (unsigned i = 0; i < s->begun; i++) {
        dxpu_secure_session *x = &s->session[i];
        bool waits = x->state == DXPU_SECURE_PENDING ||
                     (x->state == DXPU_SECURE_KEYED && !x->initiator && !x->settled);
        if (waits && reads_open(x, datagram, offer)) {
            x->state = DXPU_SECURE_KEYED;
            return x;
        }
    }
    s->count.opens_unknown++;
    return NULL;
}

void dxpu_secure_settle(dxpu_secure_session *x)
{
    x->settled = true;
}

/* The longest of its paths' timeouts: how late a frame can be that is still worth something. */
static uint64_t timeout_ns(const dxpu_channel *ch)
{
    dxpu_path_info p;
    uint64_t longest_ns = 0;
    for (unsigned i = 0; dxpu_channel_path(ch, i, &p) == DXPU_OK; i++)
        longest_ns = p.rto_ns > longest_ns ? p.rto_ns : longest_ns;
    return longest_ns;
}

/* When our next phase is due: by volume as soon as it may, by time (S-44). */
static uint64_t next_phase_ns(const dxpu_secure_session *x)
{
    const dxpu_secure_config *cfg = &x->end->cfg;
    bool full = x->seal.tx.bytes >= cfg->rekey_bytes;
    return x->phase_ns + (full || cfg->rekey_ns < x->gap_ns ? x->gap_ns : cfg->rekey_ns);
}

void dxpu_secure_work(dxpu_secure_session *x, dxpu_channel *ch, uint64_t now_ns)
{
    dxpu_status s = dxpu_channel_status(ch);
    if (x->state != DXPU_SECURE_KEYED || s.state < DXPU_STATE_UP || s.state > DXPU_STATE_CLOSING)
        return;
    if (!x->gap_ns) { /* it came up */
        x->gap_ns = s.hold_ns;
        x->phase_ns = now_ns;
    }
    if (x->seal.rx.moved) { /* S-45 */
        x->seal.rx.moved = false;
        x->forget_ns = now_ns + 3 * timeout_ns(ch);
        x->end->count.rekeys_seen++;
    }
    if (x->forget_ns && now_ns >= x->forget_ns) {
        x->forget_ns = 0;
        dxpu_seal_forget(&x->seal);
    }
    if (now_ns >= next_phase_ns(x)) {
        dxpu_channel_set_key_phase(ch, dxpu_seal_next_phase(&x->seal));
        x->phase_ns = now_ns;
        x->end->count.rekeys++;
    }
}

uint64_t dxpu_secure_next_ns(const dxpu_secure_session *x)
{
    uint64_t phase_ns;
    if (x->state != DXPU_SECURE_KEYED || !x->gap_ns)
        return DXPU_NEVER;
    if (x->seal.rx.moved)
        return 0;
    phase_ns = next_phase_ns(x);
    return x->forget_ns && x->forget_ns < phase_ns ? x->forget_ns : phase_ns;
}

/* ==== Life ==================================================================================== */

unsigned dxpu_secure_state(const dxpu_secure_session *x)
{
    return x->state;
}

uint8_t dxpu_secure_reason(const dxpu_secure_session *x)
{
    return x->reason;
}

const dxpu_secure_request *dxpu_secure_asked(const dxpu_secure_session *x)
{
    return &x->asked;
}

const uint8_t *dxpu_secure_peer_key(const dxpu_secure_session *x)
{
    return x->peer;
}

uint32_t dxpu_secure_local_id(const dxpu_secure_session *x)
{
    return x->local_id;
}

uint32_t dxpu_secure_remote_id(const dxpu_secure_session *x)
{
    return x->remote_id;
}

void dxpu_secure_set_user(dxpu_secure_session *x, void *user)
{
    x->user = user;
}

void *dxpu_secure_user(const dxpu_secure_session *x)
{
    return x->user;
}

void dxpu_secure_end(dxpu_secure_session *x)
{
    session_wipe(x);
}

void dxpu_secure_config_default(dxpu_secure_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->sessions = 64;
    cfg->pending = 16;
    cfg->pending_ns = 5 * SECOND_NS;
    cfg->suites = (uint16_t)(UINT16_MAX ^ DXPU_SUITE_CRC);
    cfg->rekey_ns = 120 * SECOND_NS;
    cfg->rekey_bytes = (uint64_t)1 << 36;
    cfg->open_bytes = DXPU_FRAME_MAX_LIMIT_BYTES;
}

size_t dxpu_secure_bytes(const dxpu_secure_config *cfg)
{
    if (!cfg->identity || !cfg->sessions || cfg->sessions > 65536 || !cfg->pending ||
        !cfg->rekey_ns || !cfg->rekey_bytes || cfg->rekey_bytes > SEAL_BYTES_MAX / 2)
        return 0;
    return sizeof(dxpu_secure) + cfg->sessions * sizeof(dxpu_secure_session) +
           ((cfg->open_bytes + 15u) & ~(size_t)15u);
}

dxpu_secure *dxpu_secure_init(void *memory, size_t memory_bytes, const dxpu_secure_config *cfg,
                              const dxpu_primitives *with)
{
    dxpu_secure *s = memory;
    size_t bytes = dxpu_secure_bytes(cfg);
    uint16_t suites = cfg->suites & dxpu_seal_suites(with);
    if (!bytes || memory_bytes < bytes || ((uintptr_t)memory & 15u) || !suites)
        return NULL;
    memset(s, 0, sizeof *s); /* sessions, once they begin */
    s->with = with;
    s->cfg = *cfg;
    s->cfg.suites = suites;
    s->cfg.identity = NULL;
    s->pending_ns = DXPU_NEVER;
    s->identity = *cfg->identity;
    s->scratch = (uint8_t *)(s->session + cfg->sessions);
    labelled(with, LABEL("dxpu mac 1"), s->identity.public_key, s->mac_key);
    labelled(with, LABEL("dxpu cookie 1"), s->identity.public_key, s->cookie_key);
    return s;
}

void dxpu_secure_wipe(dxpu_secure *s)
{
    const dxpu_primitives *with = s->with;
    with->wipe(s->scratch, s->cfg.open_bytes);
    with->wipe(s, sizeof *s + s->begun * sizeof *s->session);
}

const uint8_t *dxpu_secure_own_key(const dxpu_secure *s)
{
    return s->identity.public_key;
}

const char *dxpu_secure_suite_name(uint16_t suite)
{
#define DXPU_SECURE_NAME(name, bit, tag, text) { (bit), (text) },
    static const struct {
        uint16_t suite;
        const char *text;
    } names[] = { DXPU_SECURE_SUITES(DXPU_SECURE_NAME) };
#undef DXPU_SECURE_NAME
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].suite == suite)
            return names[i].text;
    }
    return "?";
}

/* ==== Bounds ================================================================================== */

static int64_t counted(const dxpu_secure_budget *b, uint64_t ns)
{
    return (int64_t)(ns < b->debt_ns ? ns : b->debt_ns);
}

bool dxpu_secure_has_time(dxpu_secure_budget *b, uint64_t now_ns)
{
    if (now_ns > b->at_ns)
        b->credit_ns += counted(b, (now_ns - b->at_ns) / DXPU_SECURE_SHARE);
    b->at_ns = now_ns;
    if (b->credit_ns > DXPU_SECURE_BURST_NS)
        b->credit_ns = DXPU_SECURE_BURST_NS;
    return b->credit_ns > 0;
}

void dxpu_secure_spend(dxpu_secure_budget *b, uint64_t spent_ns)
{
    b->credit_ns -= counted(b, spent_ns);
}

bool dxpu_secure_spare(dxpu_secure_budget *b, uint64_t now_ns, uint8_t group)
{
    uint64_t *at = &b->spare_ns[group];
    if (*at < now_ns)
        *at = now_ns;
    if (*at - now_ns > (uint64_t)DXPU_SECURE_ADDRESS_BURST * DXPU_SECURE_ADDRESS_NS)
        return false;
    *at += DXPU_SECURE_ADDRESS_NS;
    return true;
}

/* ==== Counters ================================================================================ */

const dxpu_secure_counters *dxpu_secure_count(const dxpu_secure *s)
{
    return &s->count;
}

#define DXPU_SECURE_NAME(name, text) #name,
static const char *const counter_names[] = { DXPU_SECURE_COUNTERS(DXPU_SECURE_NAME) };
#undef DXPU_SECURE_NAME
#define DXPU_SECURE_OFFSET(name, text) offsetof(dxpu_secure_counters, name),
static const size_t counter_offsets[] = { DXPU_SECURE_COUNTERS(DXPU_SECURE_OFFSET) };
#undef DXPU_SECURE_OFFSET

const char *dxpu_secure_counter_name(unsigned index)
{
    return index < sizeof counter_names / sizeof counter_names[0] ? counter_names[index] : NULL;
}

uint64_t dxpu_secure_counter_value(const dxpu_secure *s, unsigned index)
{
    uint64_t value = 0;
    if (index < sizeof counter_offsets / sizeof counter_offsets[0])
        memcpy(&value, (const uint8_t *)&s->count + counter_offsets[index], sizeof value);
    return value;
}
