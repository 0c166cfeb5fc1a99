/* dxpu_sodium_stream.c - see dxpu_sodium_stream.h, spec/security.md S-70 ff.
   SPDX-License-Identifier: MIT */
#include "dxpu_sodium_stream.h"
#include "dxpu_sodium.h"

#include <sodium.h>
#include <stdlib.h>

#ifndef DXPU_SODIUM_STREAM_REKEY_BYTES /* of ciphertext under one key, S-76; both ends the same */
#define DXPU_SODIUM_STREAM_REKEY_BYTES ((uint64_t)1 << 30)
#endif

enum { KEY_BYTES = DXPU_NOISE_KEY_BYTES, TAG_BYTES = DXPU_NOISE_TAG_BYTES };
enum {
    HEAD_BYTES = 8,
    LENGTH_BYTES = 2,
    NOISE_1_BYTES = KEY_BYTES + KEY_BYTES + TAG_BYTES + TAG_BYTES, /* the client's message */
    NOISE_2_BYTES = KEY_BYTES + TAG_BYTES,                         /* the server's */
    FIRST_BYTES = HEAD_BYTES + NOISE_1_BYTES,
    ROOM_MIN_BYTES = 1024
};

/* S-71, with the length of what follows; the client's is part of the prologue: authentic. */
static const uint8_t heads[2][HEAD_BYTES] = {
    { 'D', 'X', 'S', 'S', 1, 0, 0, NOISE_1_BYTES },
    { 'D', 'X', 'S', 'S', 1, 0, 0, NOISE_2_BYTES },
};
enum { HEAD_MAGIC_BYTES = 4, HEAD_VERSION = 4, VERSION = 1 };

static const char prologue_text[] = "dxpu stream 1";
enum { PROLOGUE_TEXT_BYTES = sizeof prologue_text - 1 };

enum { GREETING, PROVING, UP }; /* PROVING: a server, until the client's first message */

/* One direction's key, nonce and use. */
typedef struct direction {
    uint8_t key[KEY_BYTES];
    uint64_t nonce, bytes;
} direction;

struct dxpu_sodium_stream {
    dxpu_sodium_stream_settings set;
    dxpu_noise noise;
    direction tx, rx;
    uint8_t state, end;
    bool named; /* peer is known */
    uint8_t peer[KEY_BYTES];
    uint8_t said[FIRST_BYTES]; /* to be sent */
    size_t said_bytes;
    /* What has come of the message that is on its way: in `first` until the stream is up. */
    uint8_t first[FIRST_BYTES];
    uint8_t *room;
    size_t cap, have;
    bool taken; /* it was given away */
};

/* ==== Sealing ================================================================================= */

static void make_nonce(uint64_t n, uint8_t out[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
    memset(out, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    dxpu_put_le64(out + 4, n);
}

/* S-76: Noise's Rekey when the key has done its share.  The nonce goes on; 2^64 messages of 16
   bytes at least never come. */
static void used(direction *d, size_t bytes)
{
    static const uint8_t zeros[KEY_BYTES];
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES], out[KEY_BYTES + TAG_BYTES];
    d->nonce++;
    d->bytes += bytes;
    if (d->bytes < DXPU_SODIUM_STREAM_REKEY_BYTES)
        return;
    make_nonce(UINT64_MAX, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, zeros, sizeof zeros, NULL, 0, NULL, nonce,
                                              d->key);
    memcpy(d->key, out, KEY_BYTES);
    d->bytes = 0;
    sodium_memzero(out, sizeof out);
    dxpu_sodium_primitives()->wipe_stack();
}

/* The message of `plain` at out, which has room. */
static size_t seal(direction *d, dxpu_bytes plain, uint8_t *out)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    size_t sealed = plain.len + TAG_BYTES;
    dxpu_put_be16(out, (uint32_t)sealed);
    make_nonce(d->nonce, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(out + LENGTH_BYTES, NULL, plain.ptr, plain.len, NULL,
                                              0, NULL, nonce, d->key);
    used(d, sealed);
    return LENGTH_BYTES + sealed;
}

/* In place: sealed bytes, tag included. */
static bool open_sealed(direction *d, uint8_t *data, size_t sealed)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    make_nonce(d->nonce, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt_detached(data, NULL, data, sealed - TAG_BYTES,
                                                           data + sealed - TAG_BYTES, NULL, 0,
                                                           nonce, d->key) != 0)
        return false;
    used(d, sealed);
    return true;
}

/* ==== Ends ==================================================================================== */

#define END_CODE(name, code, text) (code),
static const int end_codes[] = { DXPU_SODIUM_STREAM_ENDS(END_CODE) };
#undef END_CODE

/* Over, and counted; what take() returns. */
static int over(dxpu_sodium_stream *s, unsigned end)
{
    s->end = (uint8_t)end;
    if (s->set.ended)
        s->set.ended[end]++;
    dxpu_noise_wipe(&s->noise);
    sodium_memzero(&s->tx, sizeof s->tx);
    sodium_memzero(&s->rx, sizeof s->rx);
    return end_codes[end];
}

unsigned dxpu_sodium_stream_end(const dxpu_sodium_stream *s)
{
    return s->end;
}

const char *dxpu_sodium_stream_end_text(unsigned end)
{
#define END_TEXT(name, code, text) text,
    static const char *const texts[] = { DXPU_SODIUM_STREAM_ENDS(END_TEXT) };
#undef END_TEXT
    return end < DXPU_SODIUM_STREAM_ENDS_COUNT ? texts[end] : "?";
}

const char *dxpu_sodium_stream_end_name(unsigned end)
{
    static const char *const names[] = { "none",     "plain",  "version", "handshake",
                                         "stranger", "forged", "length",  "memory" };
    return end < DXPU_SODIUM_STREAM_ENDS_COUNT ? names[end] : "?";
}

/* ==== Handshake =============================================================================== */

/* Our handshake message, behind its head. */
static int say(dxpu_sodium_stream *s, unsigned which)
{
    const dxpu_bytes none = { NULL, 0 };
    size_t bytes = 0;
    memcpy(s->said, heads[which], HEAD_BYTES);
    if (dxpu_noise_write(&s->noise, none, s->said + HEAD_BYTES, sizeof s->said - HEAD_BYTES,
                         &bytes) != DXPU_OK)
        return over(s, DXPU_SODIUM_STREAM_HANDSHAKE); /* a public key that gives no secret */
    s->said_bytes = HEAD_BYTES + bytes;
    return DXPU_OK;
}

/* Bytes of the message, of which `want` must be there. */
static bool fill(dxpu_sodium_stream *s, dxpu_bytes *in, uint8_t *room, size_t want)
{
    size_t n = want > s->have ? want - s->have : 0;
    if (n > in->len)
        n = in->len;
    if (n) {
        memcpy(room + s->have, in->ptr, n);
        in->ptr += n;
        in->len -= n;
    }
    s->have += n;
    return s->have >= want;
}

static void split(dxpu_sodium_stream *s)
{
    uint8_t hash[DXPU_NOISE_HASH_BYTES];
    bool client = s->set.server != NULL;
    (void)dxpu_noise_split(&s->noise, client ? s->tx.key : s->rx.key,
                           client ? s->rx.key : s->tx.key, hash);
}

/* The client has the server's answer: it proves its own key by an empty message, S-73. */
static int finish_client(dxpu_sodium_stream *s)
{
    const dxpu_bytes none = { NULL, 0 };
    split(s);
    s->said_bytes = seal(&s->tx, none, s->said);
    s->state = UP;
    return DXPU_OK;
}

static int finish_server(dxpu_sodium_stream *s)
{
    int rc;
    memcpy(s->peer, dxpu_noise_remote(&s->noise), KEY_BYTES);
    s->named = true;
    if (!s->set.known || !s->set.known(s->set.user, s->peer))
        return over(s, DXPU_SODIUM_STREAM_STRANGER); /* S-74: and no answer */
    rc = say(s, 1);
    if (rc == DXPU_OK) {
        split(s);
        s->state = PROVING;
    }
    return rc;
}

/* The other side's handshake message: its head is looked at byte by byte, so that who speaks
   something else is not waited for. */
static int greet(dxpu_sodium_stream *s, dxpu_bytes *in)
{
    const uint8_t *head = heads[s->set.server ? 1 : 0];
    uint8_t nothing[1];
    size_t bytes = 0, wanted = HEAD_BYTES + head[HEAD_BYTES - 1], seen;
    dxpu_bytes message = { s->first + HEAD_BYTES, head[HEAD_BYTES - 1] };
    bool whole = fill(s, in, s->first, HEAD_BYTES);
    seen = s->have < HEAD_BYTES ? s->have : HEAD_BYTES;
    if (memcmp(s->first, head, seen < HEAD_MAGIC_BYTES ? seen : HEAD_MAGIC_BYTES) != 0)
        return over(s, DXPU_SODIUM_STREAM_PLAIN);
    if (seen > HEAD_VERSION && s->first[HEAD_VERSION] != VERSION)
        return over(s, DXPU_SODIUM_STREAM_VERSION);
    if (memcmp(s->first, head, seen) != 0)
        return over(s, DXPU_SODIUM_STREAM_LENGTH);
    if (!whole || !fill(s, in, s->first, wanted))
        return DXPU_E_AGAIN;
    s->have = 0;
    if (dxpu_noise_read(&s->noise, message, nothing, 0, &bytes) != DXPU_OK)
        return over(s, DXPU_SODIUM_STREAM_HANDSHAKE);
    return s->set.server ? finish_client(s) : finish_server(s);
}

/* ==== Messages ================================================================================ */

/* Room for a message of that length; only for a peer that has proven its key. */
static bool make_room(dxpu_sodium_stream *s, size_t bytes)
{
    size_t cap = ROOM_MIN_BYTES;
    uint8_t *more;
    while (cap < bytes)
        cap *= 2;
    if (cap <= s->cap)
        return true;
    more = realloc(s->room, cap);
    if (!more)
        return false;
    if (!s->room)
        memcpy(more, s->first, LENGTH_BYTES);
    s->room = more;
    s->cap = cap;
    return true;
}

/* DXPU_OK: message[0..*sealed) is there, tag included. */
static int gather(dxpu_sodium_stream *s, dxpu_bytes *in, uint8_t **message, size_t *sealed)
{
    uint8_t *room = s->room ? s->room : s->first;
    if (s->taken)
        s->have = 0;
    s->taken = false;
    if (!fill(s, in, room, LENGTH_BYTES))
        return DXPU_E_AGAIN;
    *sealed = dxpu_get_be16(room);
    if (*sealed < TAG_BYTES || (s->state == PROVING && *sealed != TAG_BYTES))
        return over(s, DXPU_SODIUM_STREAM_LENGTH); /* S-75, S-73 */
    if (s->state == UP) {
        if (!make_room(s, LENGTH_BYTES + *sealed))
            return over(s, DXPU_SODIUM_STREAM_MEMORY);
        room = s->room;
    }
    if (!fill(s, in, room, LENGTH_BYTES + *sealed))
        return DXPU_E_AGAIN;
    *message = room + LENGTH_BYTES;
    return DXPU_OK;
}

int dxpu_sodium_stream_take(dxpu_sodium_stream *s, dxpu_bytes *in, dxpu_bytes *plain)
{
    uint8_t *message = NULL;
    size_t sealed = 0;
    int rc = DXPU_OK;
    for (;;) {
        if (s->end)
            return end_codes[s->end];
        rc = s->state == GREETING ? greet(s, in) : gather(s, in, &message, &sealed);
        if (rc != DXPU_OK)
            return rc;
        if (!message)
            continue;
        if (!open_sealed(&s->rx, message, sealed))
            return over(s, DXPU_SODIUM_STREAM_FORGED);
        s->taken = true;
        if (s->state == UP)
            break;
        s->state = UP;
        message = NULL;
    }
    plain->ptr = message;
    plain->len = sealed - TAG_BYTES;
    return DXPU_OK;
}

int dxpu_sodium_stream_seal(dxpu_sodium_stream *s, dxpu_bytes plain, uint8_t *out, size_t cap,
                            size_t *bytes)
{
    if (!dxpu_sodium_stream_up(s))
        return DXPU_E_STATE;
    if (plain.len > DXPU_SODIUM_STREAM_PLAIN_MAX || cap < DXPU_SODIUM_STREAM_OVERHEAD_BYTES ||
        plain.len > cap - DXPU_SODIUM_STREAM_OVERHEAD_BYTES)
        return DXPU_E_ROOM;
    *bytes = seal(&s->tx, plain, out);
    return DXPU_OK;
}

dxpu_bytes dxpu_sodium_stream_emit(dxpu_sodium_stream *s)
{
    dxpu_bytes out = { s->said, s->said_bytes };
    s->said_bytes = 0;
    return out;
}

/* ==== Life ==================================================================================== */

bool dxpu_sodium_stream_up(const dxpu_sodium_stream *s)
{
    return s->state == UP && !s->end;
}

const uint8_t *dxpu_sodium_stream_peer(const dxpu_sodium_stream *s)
{
    bool proven = s->state == UP || s->end == DXPU_SODIUM_STREAM_STRANGER;
    return s->named && (s->set.server || proven) ? s->peer : NULL;
}

dxpu_sodium_stream *dxpu_sodium_stream_new(const dxpu_sodium_stream_settings *set)
{
    uint8_t prologue[PROLOGUE_TEXT_BYTES + HEAD_BYTES];
    dxpu_bytes view = { prologue, sizeof prologue };
    dxpu_sodium_stream *s = sodium_malloc(sizeof *s); /* S-61 */
    if (!s)
        return NULL;
    memset(s, 0, sizeof *s);
    s->set = *set;
    memcpy(prologue, prologue_text, PROLOGUE_TEXT_BYTES);
    memcpy(prologue + PROLOGUE_TEXT_BYTES, heads[0], HEAD_BYTES);
    (void)dxpu_noise_start(&s->noise, dxpu_sodium_primitives(), DXPU_NOISE_IK, set->server != NULL,
                           set->identity, set->server, view);
    if (set->server) {
        memcpy(s->peer, set->server, KEY_BYTES);
        s->set.server = s->peer;
        s->named = true;
        (void)say(s, 0); /* a server's key that gives no secret: over from the start */
    }
    return s;
}

void dxpu_sodium_stream_free(dxpu_sodium_stream *s)
{
    if (!s)
        return;
    if (s->room)
        sodium_memzero(s->room, s->cap);
    free(s->room);
    sodium_free(s);
}
