/* Fuzz target: two ends of a sealed stream, and a network between them that does what the input
   says: it passes bytes on as it likes, alters, drops, repeats and invents them.  Whatever it does,
   an end hears a beginning of what the other one said, and nothing else; who is up has met the
   owner of the key; and what is passed on unaltered arrives.  Beside them a stranger, with a key of
   its own, under its own name or that of the known one, and with what it records of them, comes to
   the same server: it never gets in, and is not answered.
   libFuzzer: -max_len=256 */
#include "quick_sodium.h"

#include "dxpu_noise.h"
#include "dxpu_sodium.h"
#include "dxpu_sodium_stream.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEY_BYTES = DXPU_NOISE_KEY_BYTES, WAY = 1 << 17, SAID_MAX = 64 };

typedef struct end {
    dxpu_noise_pair own;
    dxpu_sodium_stream *s;
    uint8_t way[WAY];        /* towards the other end, and not yet there */
    size_t len;              /* from here on all is 0 in the beginning */
    bool altered;            /* way */
    uint16_t said[SAID_MAX]; /* lengths of its messages; the bytes are their number */
    unsigned says, heard;    /* messages; of the other end's */
    uint64_t ended[DXPU_SODIUM_STREAM_ENDS_COUNT];
} end;

enum { CLIENT, SERVER, STRANGER, STRANGERS_SERVER, ENDS };
static end ends[ENDS];
static bool posing, recorded; /* the stranger: as the client; with its bytes */

static void put(end *from, const uint8_t *bytes, size_t len)
{
    if (len > sizeof from->way - from->len)
        return;
    memcpy(from->way + from->len, bytes, len);
    from->len += len;
}

/* What its handshake says. */
static void emit(end *from)
{
    dxpu_bytes b = dxpu_sodium_stream_emit(from->s);
    put(from, b.ptr, b.len);
}

static void say_more(end *from, size_t len)
{
    static uint8_t plain[DXPU_SODIUM_STREAM_PLAIN_MAX], out[DXPU_SODIUM_STREAM_PLAIN_MAX + 18];
    size_t bytes = 0;
    if (from->says == SAID_MAX || len > sizeof plain ||
        len + DXPU_SODIUM_STREAM_OVERHEAD_BYTES > sizeof from->way - from->len)
        return;
    memset(plain, (int)from->says, len);
    if (dxpu_sodium_stream_seal(from->s, (dxpu_bytes){ plain, len }, out, sizeof out, &bytes) !=
        DXPU_OK) {
        must(!dxpu_sodium_stream_up(from->s));
        return;
    }
    must(dxpu_sodium_stream_up(from->s));
    from->said[from->says++] = (uint16_t)len;
    put(from, out, bytes);
}

static void heard(end *to, const end *from, dxpu_bytes plain)
{
    must(to->heard < from->says && plain.len == from->said[to->heard]);
    for (size_t i = 0; i < plain.len; i++)
        must(plain.ptr[i] == to->heard);
    to->heard++;
}

/* The given number of bytes of its way arrives. */
static void arrive(end *from, end *to, size_t len)
{
    dxpu_bytes in, plain;
    int rc;
    in.ptr = from->way;
    in.len = len < from->len ? len : from->len;
    len = in.len;
    while ((rc = dxpu_sodium_stream_take(to->s, &in, &plain)) == DXPU_OK)
        heard(to, from, plain);
    must(rc != DXPU_E_AGAIN || in.len == 0);
    must(rc == DXPU_E_AGAIN || dxpu_sodium_stream_end(to->s) != DXPU_SODIUM_STREAM_NONE);
    must(from->altered || to->altered || rc == DXPU_E_AGAIN); /* it does not end by itself */
    if (dxpu_sodium_stream_up(to->s))
        must(memcmp(dxpu_sodium_stream_peer(to->s), from->own.public_key, KEY_BYTES) == 0);
    memmove(from->way, from->way + len, from->len - len);
    from->len -= len;
    emit(to);
}

static void attack(end *from, input *in, unsigned what)
{
    size_t at = from->len ? (next(in) | (size_t)next(in) << 8) % from->len : 0;
    uint8_t bytes[32];
    size_t len = 1 + next(in) % sizeof bytes;
    if (what == 0 && from->len) { /* another bit */
        from->way[at] ^= (uint8_t)(1u << len % 8);
        from->altered = true;
    } else if (what == 1 && from->len) { /* dropped */
        len = len < from->len - at ? len : from->len - at;
        memmove(from->way + at, from->way + at + len, from->len - at - len);
        from->len -= len;
        from->altered = true;
    } else if (what == 2 && from->len && len <= from->len - at) { /* repeated, at the end */
        memcpy(bytes, from->way + at, len);
        put(from, bytes, len);
        from->altered = true;
    } else if (what == 3) { /* invented */
        for (size_t i = 0; i < len; i++)
            bytes[i] = next(in);
        put(from, bytes, len);
        from->altered = true;
    }
}

/* The same between the stranger and its server. */
static void arrive_strange(end *from, end *to, size_t len)
{
    dxpu_bytes in, plain, b;
    in.ptr = from->way;
    in.len = len = len < from->len ? len : from->len;
    must(dxpu_sodium_stream_take(to->s, &in, &plain) != DXPU_OK);
    must(!dxpu_sodium_stream_up(to->s));
    memmove(from->way, from->way + len, from->len - len);
    from->len -= len;
    b = dxpu_sodium_stream_emit(to->s);
    must(b.len == 0 || recorded); /* S-74; a recording is answered, S-73 */
    put(to, b.ptr, b.len);
}

static bool known(void *user, const uint8_t key[KEY_BYTES])
{
    (void)user;
    return memcmp(key, ends[CLIENT].own.public_key, KEY_BYTES) == 0;
}

/* A client and its server. */
static void begin_two(end *client)
{
    for (unsigned i = 0; i < 2; i++) {
        end *e = client + i;
        dxpu_sodium_stream_settings set = { &e->own, i ? NULL : ends[SERVER].own.public_key, NULL,
                                            known, e->ended };
        memset((uint8_t *)e + offsetof(end, len), 0, sizeof *e - offsetof(end, len));
        dxpu_sodium_stream_free(e->s);
        e->s = dxpu_sodium_stream_new(&set);
        must(e->s != NULL);
    }
    emit(client);
}

/* The stranger, perhaps under a name that is not its own. */
static void begin_strange(bool as_client)
{
    posing = as_client;
    recorded = false;
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &ends[STRANGER].own);
    if (posing)
        memcpy(ends[STRANGER].own.public_key, ends[CLIENT].own.public_key, KEY_BYTES);
    ends[STRANGERS_SERVER].own = ends[SERVER].own;
    begin_two(&ends[STRANGER]);
}

static void begin(void)
{
    for (unsigned i = 0; i < ENDS; i++)
        ends[i].s = NULL;
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &ends[CLIENT].own);
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &ends[SERVER].own);
    begin_two(&ends[CLIENT]);
    begin_strange(false);
}

/* What is under way between others comes instead of what was. */
static void cross(end *to, const end *from)
{
    memcpy(to->way, from->way, from->len);
    to->len = from->len;
    to->altered = true;
}

static void strange(unsigned way, unsigned what)
{
    if (what < 2) {
        begin_strange(what == 1);
    } else if (what == 2) {
        recorded = true;
        cross(&ends[STRANGER + way], &ends[way]);
    } else {
        cross(&ends[way], &ends[STRANGER + way]);
    }
}

/* The stranger's greeting arrives: it is turned away for its key, or for one that it has not. */
static void settle_strange(void)
{
    const dxpu_sodium_stream *s = ends[STRANGERS_SERVER].s;
    const uint8_t *peer;
    arrive_strange(&ends[STRANGER], &ends[STRANGERS_SERVER], WAY);
    arrive_strange(&ends[STRANGERS_SERVER], &ends[STRANGER], WAY);
    if (ends[STRANGER].altered)
        return;
    peer = dxpu_sodium_stream_peer(s);
    must(dxpu_sodium_stream_end(s) ==
         (posing ? DXPU_SODIUM_STREAM_HANDSHAKE : DXPU_SODIUM_STREAM_STRANGER));
    must(posing ? !peer : peer && !memcmp(peer, ends[STRANGER].own.public_key, KEY_BYTES));
}

/* Both ways are passed on until nothing is under way: all that was said is heard, unless the
   network did something. */
static void settle(void)
{
    for (unsigned i = 0; i < 8; i++)
        arrive(&ends[i % 2], &ends[1 - i % 2], WAY);
    if (ends[0].altered || ends[1].altered)
        return;
    must(dxpu_sodium_stream_up(ends[0].s) && dxpu_sodium_stream_up(ends[1].s));
    must(ends[0].heard == ends[1].says && ends[1].heard == ends[0].says);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    quick_begin();
    begin();
    while (in.left) {
        uint8_t op = next(&in);
        unsigned way = op & 1;
        if ((op >> 1 & 7) == 1)
            strange(way, op >> 4 & 3);
        else if ((op >> 1 & 7) == 2)
            arrive_strange(&ends[STRANGER + way], &ends[STRANGERS_SERVER - way],
                           (size_t)1 << (op >> 4));
        else if ((op >> 1 & 7) == 0)
            arrive(&ends[way], &ends[1 - way], (size_t)1 << (op >> 4));
        else if ((op >> 1 & 7) == 3)
            say_more(&ends[way], (size_t)next(&in) << (op >> 4) % 9);
        else
            attack(&ends[way], &in, (op >> 1 & 7) - 4);
    }
    settle();
    settle_strange();
    for (unsigned i = 0; i < ENDS; i++)
        dxpu_sodium_stream_free(ends[i].s);
    return 0;
}
