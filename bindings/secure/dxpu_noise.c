/* dxpu_noise.c - see dxpu_noise.h
   SPDX-License-Identifier: MIT

   Names in comments are those of the Noise specification: MixHash, MixKey, EncryptAndHash. */
#include "dxpu_noise.h"

enum { KEY = DXPU_NOISE_KEY_BYTES, HASH = DXPU_NOISE_HASH_BYTES, TAG = DXPU_NOISE_TAG_BYTES };
enum { BLOCK = 128 }; /* of BLAKE2b, for HMAC */
enum { NONCE = 12 };

/* ==== Patterns ================================================================================ */

/* Tokens; the two letters of a Diffie-Hellman name the initiator's key and the responder's. */
enum { END, E, S, EE, ES, SE, SS };
enum { MESSAGES = 3, TOKENS = 5 };

typedef struct shape {
    char name[HASH]; /* padded with zeros, as the first hash is */
    bool known;      /* the responder's public key is, from the start */
    uint8_t messages;
    uint8_t tokens[MESSAGES][TOKENS];
} shape;

static const shape shapes[] = {
    { "Noise_IK_25519_ChaChaPoly_BLAKE2b",
      true,
      2,
      { { E, ES, S, SS, END }, { E, EE, SE, END }, { END } } },
    { "Noise_XX_25519_ChaChaPoly_BLAKE2b",
      false,
      3,
      { { E, END }, { E, EE, S, ES, END }, { S, SE, END } } },
};

static const shape *shape_of(const dxpu_noise *n)
{
    return &shapes[n->pattern];
}

/* ==== Hashing ================================================================================= */

void dxpu_noise_hmac(const dxpu_primitives *with, const uint8_t key[HASH], dxpu_bytes a,
                     dxpu_bytes b, uint8_t out[HASH])
{
    const dxpu_bytes none = { NULL, 0 };
    uint8_t pad[BLOCK], inner[HASH];
    dxpu_bytes parts[3] = { { pad, sizeof pad }, a, b };
    for (unsigned i = 0; i < BLOCK; i++)
        pad[i] = (uint8_t)((i < HASH ? key[i] : 0) ^ 0x36);
    with->hash(inner, HASH, none, parts, 3);
    for (unsigned i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    parts[1] = (dxpu_bytes){ inner, sizeof inner };
    with->hash(out, HASH, none, parts, 2);
    with->wipe(pad, sizeof pad);
    with->wipe(inner, sizeof inner);
}

/* HKDF with two outputs; first may be the chaining key itself. */
static void hkdf(const dxpu_primitives *with, const uint8_t chain[HASH], dxpu_bytes input,
                 uint8_t first[HASH], uint8_t second[HASH])
{
    static const uint8_t one = 1, two = 2;
    const dxpu_bytes none = { NULL, 0 }, last = { &two, 1 };
    uint8_t secret[HASH];
    dxpu_noise_hmac(with, chain, input, none, secret);
    dxpu_noise_hmac(with, secret, (dxpu_bytes){ &one, 1 }, none, first);
    dxpu_noise_hmac(with, secret, (dxpu_bytes){ first, HASH }, last, second);
    with->wipe(secret, sizeof secret);
}

static void mix_hash(dxpu_noise *n, const uint8_t *data, size_t len)
{
    const dxpu_bytes none = { NULL, 0 }, parts[2] = { { n->hash, HASH }, { data, len } };
    uint8_t hash[HASH];
    n->with->hash(hash, HASH, none, parts, 2);
    memcpy(n->hash, hash, HASH);
}

/* MixKey with the result of a Diffie-Hellman.  False when that is not secret: a public key is one
   of the few whose multiples an onlooker knows. */
static bool mix_key(dxpu_noise *n, const dxpu_noise_pair *own, const uint8_t remote[KEY])
{
    uint8_t shared[KEY], key[HASH];
    bool good = n->with->agree(shared, own->secret, remote);
    if (good) {
        hkdf(n->with, n->chain, (dxpu_bytes){ shared, sizeof shared }, n->chain, key);
        memcpy(n->key, key, KEY);
        n->keyed = true;
        n->nonce = 0;
    }
    n->with->wipe(shared, sizeof shared);
    n->with->wipe(key, sizeof key);
    return good;
}

static void next_nonce(dxpu_noise *n, uint8_t out[NONCE])
{
    memset(out, 0, NONCE);
    dxpu_put_le64(out + 4, n->nonce);
    n->nonce++;
}

/* EncryptAndHash; out has room for the tag when a key is set. */
static void encrypt(dxpu_noise *n, const uint8_t *data, size_t len, uint8_t *out)
{
    uint8_t nonce[NONCE];
    if (len)
        memmove(out, data, len);
    if (n->keyed) {
        next_nonce(n, nonce);
        n->with->aeads->encrypt(n->key, nonce, (dxpu_bytes){ n->hash, HASH }, out, len, out + len);
        len += TAG;
    }
    mix_hash(n, out, len);
}

/* DecryptAndHash of len bytes, tag included, to out, which has no room for the tag; false when they
   are not authentic. */
static bool decrypt(dxpu_noise *n, const uint8_t *data, size_t len, uint8_t *out)
{
    uint8_t nonce[NONCE];
    size_t plain = n->keyed ? len - TAG : len;
    bool good = true;
    if (plain)
        memmove(out, data, plain);
    if (n->keyed) {
        next_nonce(n, nonce);
        good = n->with->aeads->decrypt(n->key, nonce, (dxpu_bytes){ n->hash, HASH }, out, plain,
                                       data + plain);
    }
    mix_hash(n, data, len);
    return good;
}

/* ==== Messages ================================================================================ */

static bool our_turn(const dxpu_noise *n)
{
    return (n->next % 2 == 0) == n->initiator;
}

/* The Diffie-Hellman that a token names. */
static bool agree(dxpu_noise *n, unsigned token)
{
    bool first = token == EE || token == ES, second = token == EE || token == SE;
    bool ours = n->initiator ? first : second, theirs = n->initiator ? second : first;
    return mix_key(n, ours ? &n->ephemeral : &n->own, theirs ? n->remote_ephemeral : n->remote);
}

size_t dxpu_noise_overhead(const dxpu_noise *n)
{
    size_t bytes = 0;
    bool keyed = n->keyed;
    if (dxpu_noise_done(n))
        return 0;
    for (const uint8_t *t = shape_of(n)->tokens[n->next]; *t != END; t++) {
        if (*t == E)
            bytes += KEY;
        else if (*t == S)
            bytes += (size_t)KEY + (keyed ? (size_t)TAG : 0);
        else
            keyed = true;
    }
    return bytes + (keyed ? (size_t)TAG : 0);
}

/* The tokens of our message, at out. */
static int write_tokens(dxpu_noise *n, uint8_t **out)
{
    for (const uint8_t *t = shape_of(n)->tokens[n->next]; *t != END; t++) {
        if (*t == E) {
            dxpu_noise_pair_new(n->with, &n->ephemeral);
            memcpy(*out, n->ephemeral.public_key, KEY);
            mix_hash(n, *out, KEY);
            *out += KEY;
        } else if (*t == S) {
            size_t tag = n->keyed ? (size_t)TAG : 0;
            encrypt(n, n->own.public_key, KEY, *out);
            *out += KEY + tag;
        } else if (!agree(n, *t)) {
            return DXPU_E_CRC;
        }
    }
    return DXPU_OK;
}

int dxpu_noise_write(dxpu_noise *n, dxpu_bytes payload, uint8_t *out, size_t cap, size_t *bytes)
{
    size_t overhead = dxpu_noise_overhead(n);
    uint8_t *at = out;
    dxpu_noise work;
    int rc;
    if (dxpu_noise_done(n) || !our_turn(n))
        return DXPU_E_STATE;
    cap = cap < DXPU_NOISE_MESSAGE_MAX_BYTES ? cap : DXPU_NOISE_MESSAGE_MAX_BYTES;
    if (overhead > cap || payload.len > cap - overhead)
        return DXPU_E_ROOM;
    work = *n;
    rc = write_tokens(&work, &at);
    if (rc == DXPU_OK) {
        encrypt(&work, payload.ptr, payload.len, at);
        work.next++;
        *n = work;
        *bytes = overhead + payload.len;
    }
    dxpu_noise_wipe(&work);
    n->with->wipe_stack();
    return rc;
}

/* The tokens of the peer's message, at in; its length has been checked. */
static int read_tokens(dxpu_noise *n, const uint8_t **in)
{
    for (const uint8_t *t = shape_of(n)->tokens[n->next]; *t != END; t++) {
        if (*t == E) {
            memcpy(n->remote_ephemeral, *in, KEY);
            mix_hash(n, *in, KEY);
            *in += KEY;
        } else if (*t == S) {
            size_t len = (size_t)KEY + (n->keyed ? (size_t)TAG : 0);
            if (!decrypt(n, *in, len, n->remote))
                return DXPU_E_CRC;
            *in += len;
        } else if (!agree(n, *t)) {
            return DXPU_E_CRC;
        }
    }
    return DXPU_OK;
}

int dxpu_noise_read(dxpu_noise *n, dxpu_bytes message, uint8_t *payload, size_t cap, size_t *bytes)
{
    size_t overhead = dxpu_noise_overhead(n), len;
    const uint8_t *at = message.ptr;
    dxpu_noise work;
    int rc;
    if (dxpu_noise_done(n) || our_turn(n))
        return DXPU_E_STATE;
    if (message.len < overhead)
        return DXPU_E_SHORT;
    if (message.len > DXPU_NOISE_MESSAGE_MAX_BYTES)
        return DXPU_E_LENGTH;
    len = message.len - overhead;
    if (len > cap)
        return DXPU_E_ROOM;
    work = *n;
    rc = read_tokens(&work, &at);
    if (rc == DXPU_OK && !decrypt(&work, at, (size_t)(message.ptr + message.len - at), payload))
        rc = DXPU_E_CRC;
    if (rc == DXPU_OK) {
        work.next++;
        *n = work;
        *bytes = len;
    }
    dxpu_noise_wipe(&work);
    n->with->wipe_stack();
    return rc;
}

/* ==== Life ==================================================================================== */

void dxpu_noise_pair_of(const dxpu_primitives *with, dxpu_noise_pair *p, const uint8_t secret[KEY])
{
    memmove(p->secret, secret, KEY);
    with->public_key(p->public_key, p->secret);
    with->wipe_stack();
}

void dxpu_noise_pair_new(const dxpu_primitives *with, dxpu_noise_pair *p)
{
    with->random(with->user, p->secret, KEY);
    with->public_key(p->public_key, p->secret);
    with->wipe_stack();
}

int dxpu_noise_start(dxpu_noise *n, const dxpu_primitives *with, unsigned pattern, bool initiator,
                     const dxpu_noise_pair *own, const uint8_t *remote, dxpu_bytes prologue)
{
    if (pattern > DXPU_NOISE_XX || (remote != NULL) != (shapes[pattern].known && initiator))
        return DXPU_E_ARG;
    memset(n, 0, sizeof *n);
    n->with = with;
    n->pattern = (uint8_t)pattern;
    n->messages = shapes[pattern].messages;
    n->initiator = initiator;
    n->own = *own;
    memcpy(n->hash, shapes[pattern].name, HASH);
    memcpy(n->chain, n->hash, HASH);
    mix_hash(n, prologue.ptr, prologue.len);
    if (remote)
        memcpy(n->remote, remote, KEY);
    if (shapes[pattern].known)
        mix_hash(n, initiator ? n->remote : n->own.public_key, KEY);
    return DXPU_OK;
}

bool dxpu_noise_done(const dxpu_noise *n)
{
    return n->next == n->messages;
}

const uint8_t *dxpu_noise_remote(const dxpu_noise *n)
{
    return n->remote;
}

int dxpu_noise_split(dxpu_noise *n, uint8_t initiator[KEY], uint8_t responder[KEY],
                     uint8_t hash[HASH])
{
    const dxpu_primitives *with = n->with;
    const dxpu_bytes none = { NULL, 0 };
    uint8_t first[HASH], second[HASH];
    if (!n->messages || !dxpu_noise_done(n))
        return DXPU_E_STATE;
    hkdf(n->with, n->chain, none, first, second);
    memcpy(initiator, first, KEY);
    memcpy(responder, second, KEY);
    memcpy(hash, n->hash, HASH);
    with->wipe(first, sizeof first);
    with->wipe(second, sizeof second);
    dxpu_noise_wipe(n);
    with->wipe_stack();
    return DXPU_OK;
}

void dxpu_noise_wipe(dxpu_noise *n)
{
    if (n->with)
        n->with->wipe(n, sizeof *n);
}
