/* bindings/sodium/dxpu_sodium_stream.c from the inside: vectors, every byte of a handshake and of a
   message altered, streams cut, spliced and repeated, wrong keys, strangers, bytes of others; each
   beside a stream that comes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* Not linked: reaches struct dxpu_sodium_stream. */
#define DXPU_SODIUM_STREAM_REKEY_BYTES 64
#include "dxpu_sodium_stream.c"

#include "dxpu_sodium.h"
#include "seeds.h"
#include "vector_file.h"

enum { CLIENT, SERVER, MAX = 4096, ENDS = DXPU_SODIUM_STREAM_ENDS_COUNT };

/* ==== Two ends ================================================================================ */

typedef struct pair {
    dxpu_noise_pair own[2];
    dxpu_sodium_stream *s[2];
    uint64_t ended[2][ENDS];
    bool stranger; /* the server knows no key */
    unsigned asked;
    uint8_t seen[KEY_BYTES]; /* by known() */
} pair;

static bool known(void *user, const uint8_t key[KEY_BYTES])
{
    pair *p = user;
    p->asked++;
    memcpy(p->seen, key, KEY_BYTES);
    return !p->stranger;
}

static dxpu_sodium_stream *make_end(pair *p, unsigned end, const uint8_t *server)
{
    dxpu_sodium_stream_settings set = { &p->own[end], server, p, known, p->ended[end] };
    dxpu_sodium_stream *s = dxpu_sodium_stream_new(&set);
    assert_non_null(s);
    return s;
}

static void begin_keyed(pair *p)
{
    p->s[CLIENT] = make_end(p, CLIENT, p->own[SERVER].public_key);
    p->s[SERVER] = make_end(p, SERVER, NULL);
}

static void begin(pair *p)
{
    memset(p, 0, sizeof *p);
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &p->own[CLIENT]);
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &p->own[SERVER]);
    begin_keyed(p);
}

static void end_pair(pair *p)
{
    dxpu_sodium_stream_free(p->s[CLIENT]);
    dxpu_sodium_stream_free(p->s[SERVER]);
}

/* Give bytes to an end; what it says of them.  Messages must be the texts, one after the other. */
static int give(pair *p, unsigned end, const void *data, size_t len, const char *texts)
{
    dxpu_bytes in = { data, len }, plain;
    int rc;
    while ((rc = dxpu_sodium_stream_take(p->s[end], &in, &plain)) == DXPU_OK) {
        assert_non_null(texts);
        assert_true(plain.len <= strlen(texts));
        assert_memory_equal(plain.ptr, texts, plain.len);
        texts += plain.len;
    }
    assert_true(!texts || !*texts);
    return rc;
}

/* What an end wants to say, into out. */
static size_t say_of(pair *p, unsigned end, uint8_t *out)
{
    dxpu_bytes b = dxpu_sodium_stream_emit(p->s[end]);
    memcpy(out, b.ptr, b.len);
    assert_int_equal(dxpu_sodium_stream_emit(p->s[end]).len, 0); /* once */
    return b.len;
}

static size_t seal_text(pair *p, unsigned end, const char *text, uint8_t *out)
{
    dxpu_bytes plain = { (const uint8_t *)text, strlen(text) };
    size_t len = 0;
    assert_int_equal(dxpu_sodium_stream_seal(p->s[end], plain, out, MAX, &len), DXPU_OK);
    assert_int_equal(len, plain.len + DXPU_SODIUM_STREAM_OVERHEAD_BYTES);
    return len;
}

static bool up(const pair *p, unsigned end)
{
    return dxpu_sodium_stream_up(p->s[end]);
}

/* Messages of the handshake, as they passed. */
typedef struct tape {
    uint8_t bytes[3][FIRST_BYTES];
    size_t len[3];
} tape;

static void shake(pair *p, tape *t)
{
    for (unsigned i = 0; i < 3; i++) {
        t->len[i] = say_of(p, i % 2, t->bytes[i]);
        assert_true(t->len[i]);
        assert_int_equal(up(p, SERVER), false); /* S-73: not before the last */
        assert_int_equal(give(p, 1 - i % 2, t->bytes[i], t->len[i], NULL), DXPU_E_AGAIN);
    }
    assert_true(up(p, CLIENT) && up(p, SERVER));
}

static void pair_up(pair *p)
{
    tape t;
    begin(p);
    shake(p, &t);
}

static void assert_over(pair *p, unsigned end, unsigned why)
{
    dxpu_bytes in = { (const uint8_t *)"", 1 }, plain;
    uint8_t out[64];
    size_t len;
    assert_int_equal(dxpu_sodium_stream_end(p->s[end]), why);
    assert_int_equal(p->ended[end][why], 1);
    assert_false(up(p, end));
    assert_int_equal(dxpu_sodium_stream_take(p->s[end], &in, &plain), end_codes[why]); /* S-77 */
    assert_int_equal(dxpu_sodium_stream_seal(p->s[end], plain, out, sizeof out, &len),
                     DXPU_E_STATE);
    assert_int_equal(p->ended[end][why], 1);
    assert_true(sodium_is_zero((const uint8_t *)&p->s[end]->tx, sizeof p->s[end]->tx));
    assert_true(sodium_is_zero((const uint8_t *)&p->s[end]->rx, sizeof p->s[end]->rx));
    assert_true(sodium_is_zero((const uint8_t *)&p->s[end]->noise, sizeof p->s[end]->noise));
}

/* ==== Vectors ================================================================================= */

static vector x;
static uint8_t drawn[KEY_BYTES];

static const char *fixed_name(void)
{
    return "fixed";
}

static uint32_t fixed_word(void)
{
    return 4;
}

static void fixed_bytes(void *const out, const size_t len)
{
    memset(out, 0, len);
    memcpy(out, drawn, len < KEY_BYTES ? len : KEY_BYTES);
}

static randombytes_implementation fixed = { fixed_name, fixed_word, NULL, NULL, fixed_bytes, NULL };

static size_t value(const char *key, uint8_t *out)
{
    size_t len = 0;
    assert_non_null(vector_get(&x, key));
    vector_hex(vector_get(&x, key), out, MAX, &len);
    return len;
}

static void assert_says(pair *p, unsigned end, const char *key)
{
    uint8_t want[MAX], said[FIRST_BYTES];
    size_t len = value(key, want);
    if (strcmp(key, "greeting") == 0)
        len += value("greeting2", want + len);
    assert_int_equal(say_of(p, end, said), len);
    assert_memory_equal(said, want, len);
    assert_int_equal(give(p, 1 - end, said, len, NULL), DXPU_E_AGAIN);
}

static void check_messages(pair *p, unsigned end, const char *who)
{
    for (unsigned i = 1; i <= 6; i++) {
        char key[20], text[20];
        uint8_t want[MAX], out[MAX];
        size_t len;
        snprintf(key, sizeof key, "%s%u", who, i);
        snprintf(text, sizeof text, "message %u", i);
        len = value(key, want);
        assert_int_equal(seal_text(p, end, text, out), len);
        assert_memory_equal(out, want, len);
        assert_int_equal(give(p, 1 - end, out, len, text), DXPU_E_AGAIN);
    }
}

static void check_vector(void)
{
    static const char *const secret[] = { "client_secret", "server_secret" };
    uint8_t bytes[MAX];
    pair p;
    memset(&p, 0, sizeof p);
    for (unsigned end = 0; end < 2; end++) {
        (void)value(secret[end], bytes);
        dxpu_noise_pair_of(dxpu_sodium_primitives(), &p.own[end], bytes);
    }
    (void)value("client_ephemeral", drawn);
    begin_keyed(&p);
    (void)value("server_ephemeral", drawn);
    assert_says(&p, CLIENT, "greeting");
    assert_says(&p, SERVER, "answer");
    assert_says(&p, CLIENT, "proof");
    check_messages(&p, CLIENT, "client");
    check_messages(&p, SERVER, "server");
    end_pair(&p);
}

static void test_s70_s76_vectors_of_another_implementation(void **state)
{
    (void)state;
    vector_folder = "tests/data";
    randombytes_set_implementation(&fixed);
    assert_int_equal(vector_run("stream.txt", &x, check_vector), 1);
    randombytes_set_implementation(&randombytes_sysrandom_implementation);
}

/* ==== Handshake =============================================================================== */

static void test_s70_each_knows_the_other(void **state)
{
    pair p;
    tape t;
    uint8_t out[MAX];
    (void)state;
    begin(&p);
    assert_null(dxpu_sodium_stream_peer(p.s[SERVER]));
    shake(&p, &t);
    assert_memory_equal(dxpu_sodium_stream_peer(p.s[SERVER]), p.own[CLIENT].public_key, KEY_BYTES);
    assert_memory_equal(dxpu_sodium_stream_peer(p.s[CLIENT]), p.own[SERVER].public_key, KEY_BYTES);
    assert_memory_equal(p.seen, p.own[CLIENT].public_key, KEY_BYTES);
    assert_int_equal(p.asked, 1);
    assert_int_equal(give(&p, SERVER, out, seal_text(&p, CLIENT, "question", out), "question"),
                     DXPU_E_AGAIN);
    assert_int_equal(give(&p, CLIENT, out, seal_text(&p, SERVER, "answer", out), "answer"),
                     DXPU_E_AGAIN);
    end_pair(&p);
}

/* One bit of one handshake message is another; the end that hears it is over, and says nothing. */
static void alter(unsigned message, size_t at, unsigned bit)
{
    tape t;
    pair p;
    int rc;
    begin(&p);
    for (unsigned i = 0; i <= message; i++) {
        t.len[i] = say_of(&p, i % 2, t.bytes[i]);
        assert_true(at < t.len[i] || i < message);
        if (i == message)
            t.bytes[i][at] ^= (uint8_t)(1u << bit);
        rc = give(&p, 1 - i % 2, t.bytes[i], t.len[i], NULL);
        assert_int_equal(rc == DXPU_E_AGAIN && !p.s[1 - i % 2]->end, i < message);
    }
    assert_int_equal(dxpu_sodium_stream_emit(p.s[1 - message % 2]).len, 0);
    assert_false(up(&p, 1 - message % 2));
    end_pair(&p);
}

static void test_s71_s77_every_byte_of_a_handshake_counts(void **state)
{
    static const size_t bytes[3] = { HEAD_BYTES + NOISE_1_BYTES, HEAD_BYTES + NOISE_2_BYTES, 18 };
    pair p;
    (void)state;
    pair_up(&p); /* control: unaltered, and of these lengths */
    end_pair(&p);
    for (unsigned message = 0; message < 3; message++) {
        for (size_t at = 0; at < bytes[message]; at += seeds_step())
            alter(message, at, (unsigned)(at + message) % 8);
    }
}

/* A greeting's public key is an X25519 one: its top bit is not part of the number, but it is part
   of what is authentic. */
static void test_s70_top_bit_of_an_ephemeral_key(void **state)
{
    (void)state;
    alter(0, HEAD_BYTES + KEY_BYTES - 1, 7);
    alter(1, HEAD_BYTES + KEY_BYTES - 1, 7);
}

static void test_s71_others_are_known_by_their_first_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        unsigned end;
    } who[] = {
        { "DXCT\1\0\0\1", 8, DXPU_SODIUM_STREAM_PLAIN },
        { "GET / HTTP/1.1\r\n", 16, DXPU_SODIUM_STREAM_PLAIN },
        { "DXX", 3, DXPU_SODIUM_STREAM_PLAIN },
        { "\0", 1, DXPU_SODIUM_STREAM_PLAIN },
        { "DXSS\2", 5, DXPU_SODIUM_STREAM_VERSION },
        { "DXSS\1\1", 6, DXPU_SODIUM_STREAM_LENGTH },
        { "DXSS\1\0\377\377", 8, DXPU_SODIUM_STREAM_LENGTH },
        { "DXSS\1\0\0\60", 8, DXPU_SODIUM_STREAM_NONE }, /* control: an answer's head */
    };
    (void)state;
    for (unsigned i = 0; i < sizeof who / sizeof who[0]; i++) {
        pair p;
        unsigned end = who[i].end;
        begin(&p);
        assert_int_equal(give(&p, CLIENT, who[i].text, who[i].len, NULL),
                         end ? end_codes[end] : DXPU_E_AGAIN);
        if (end)
            assert_over(&p, CLIENT, end);
        end_pair(&p);
    }
}

static void test_s72_another_server_key(void **state)
{
    pair p;
    uint8_t out[FIRST_BYTES];
    dxpu_noise_pair other;
    (void)state;
    pair_up(&p); /* control */
    end_pair(&p);
    begin(&p);
    dxpu_noise_pair_new(dxpu_sodium_primitives(), &other);
    dxpu_sodium_stream_free(p.s[CLIENT]);
    p.s[CLIENT] = make_end(&p, CLIENT, other.public_key);
    assert_int_equal(give(&p, SERVER, out, say_of(&p, CLIENT, out), NULL), DXPU_E_CRC);
    assert_over(&p, SERVER, DXPU_SODIUM_STREAM_HANDSHAKE);
    assert_int_equal(p.asked, 0);
    assert_int_equal(dxpu_sodium_stream_emit(p.s[SERVER]).len, 0);
    end_pair(&p);
}

/* Somebody in the server's place, with a key of his own. */
static void test_s72_an_impostor_cannot_answer(void **state)
{
    pair p, q;
    uint8_t out[FIRST_BYTES];
    size_t len;
    (void)state;
    begin(&p);
    begin(&q);
    memcpy(&q.own[CLIENT], &p.own[CLIENT], sizeof q.own[CLIENT]);
    dxpu_sodium_stream_free(q.s[CLIENT]);
    q.s[CLIENT] = make_end(&q, CLIENT, q.own[SERVER].public_key);
    assert_int_equal(give(&q, SERVER, out, say_of(&q, CLIENT, out), NULL), DXPU_E_AGAIN);
    len = say_of(&q, SERVER, out);
    assert_int_equal(give(&p, CLIENT, out, len, NULL), DXPU_E_CRC);
    assert_over(&p, CLIENT, DXPU_SODIUM_STREAM_HANDSHAKE);
    assert_int_equal(give(&q, CLIENT, out, len, NULL), DXPU_E_AGAIN); /* control: its own client */
    assert_true(up(&q, CLIENT));
    end_pair(&p);
    end_pair(&q);
}

/* A public key of the server that gives no secret. */
static void test_s72_a_key_that_gives_no_secret(void **state)
{
    static const uint8_t zeros[KEY_BYTES];
    pair p;
    (void)state;
    begin(&p);
    dxpu_sodium_stream_free(p.s[CLIENT]);
    p.s[CLIENT] = make_end(&p, CLIENT, zeros);
    assert_int_equal(dxpu_sodium_stream_emit(p.s[CLIENT]).len, 0);
    assert_over(&p, CLIENT, DXPU_SODIUM_STREAM_HANDSHAKE);
    end_pair(&p);
}

static void test_s73_a_recorded_handshake_proves_nothing(void **state)
{
    pair p;
    tape t;
    uint8_t answer[FIRST_BYTES];
    (void)state;
    begin(&p);
    shake(&p, &t);
    dxpu_sodium_stream_free(p.s[SERVER]);
    p.s[SERVER] = make_end(&p, SERVER, NULL);
    assert_int_equal(give(&p, SERVER, t.bytes[0], t.len[0], NULL), DXPU_E_AGAIN);
    assert_true(say_of(&p, SERVER, answer)); /* it answers, ... */
    assert_null(dxpu_sodium_stream_peer(p.s[SERVER]));
    assert_int_equal(give(&p, SERVER, t.bytes[2], t.len[2], NULL), DXPU_E_CRC);
    assert_over(&p, SERVER, DXPU_SODIUM_STREAM_FORGED); /* ... and no one was accepted */
    assert_null(dxpu_sodium_stream_peer(p.s[SERVER]));
    end_pair(&p);
}

/* Until the client is proven there is no room but for a handshake. */
static void test_s73_s74_nothing_is_allocated_before(void **state)
{
    static const uint8_t large[] = { 0xff, 0xff, 1, 2, 3 };
    pair p;
    uint8_t out[MAX];
    (void)state;
    begin(&p);
    assert_int_equal(give(&p, SERVER, out, say_of(&p, CLIENT, out), NULL), DXPU_E_AGAIN);
    assert_int_equal(give(&p, SERVER, large, sizeof large, NULL), DXPU_E_LENGTH);
    assert_over(&p, SERVER, DXPU_SODIUM_STREAM_LENGTH);
    assert_null(p.s[SERVER]->room);
    end_pair(&p);
    pair_up(&p); /* control: of who is proven, it is waited for */
    assert_int_equal(give(&p, SERVER, large, sizeof large, NULL), DXPU_E_AGAIN);
    assert_non_null(p.s[SERVER]->room);
    end_pair(&p);
}

static void test_s74_a_stranger_gets_no_answer(void **state)
{
    pair p;
    uint8_t out[FIRST_BYTES];
    (void)state;
    begin(&p);
    p.stranger = true;
    assert_int_equal(give(&p, SERVER, out, say_of(&p, CLIENT, out), NULL), DXPU_E_STATE);
    assert_over(&p, SERVER, DXPU_SODIUM_STREAM_STRANGER);
    assert_int_equal(dxpu_sodium_stream_emit(p.s[SERVER]).len, 0);
    assert_null(p.s[SERVER]->room);
    assert_memory_equal(dxpu_sodium_stream_peer(p.s[SERVER]), p.own[CLIENT].public_key, KEY_BYTES);
    end_pair(&p);
    pair_up(&p); /* control: the same, known */
    end_pair(&p);
}

static void test_s74_without_a_list_all_are_refused(void **state)
{
    pair p;
    uint8_t out[FIRST_BYTES];
    (void)state;
    begin(&p);
    p.s[SERVER]->set.known = NULL;
    assert_int_equal(give(&p, SERVER, out, say_of(&p, CLIENT, out), NULL), DXPU_E_STATE);
    assert_over(&p, SERVER, DXPU_SODIUM_STREAM_STRANGER);
    end_pair(&p);
}

/* ==== Messages ================================================================================ */

static void test_s75_every_byte_of_a_message_counts(void **state)
{
    static const char text[] = "which key holds which slot";
    pair p;
    uint8_t out[MAX];
    size_t bytes = sizeof text - 1 + DXPU_SODIUM_STREAM_OVERHEAD_BYTES;
    (void)state;
    for (size_t at = 0, step = seeds_step(); at <= bytes;
         at += at + step > bytes && at < bytes ? bytes - at : step) {
        size_t len;
        pair_up(&p);
        len = seal_text(&p, SERVER, text, out);
        assert_int_equal(len, bytes);
        if (at == bytes) { /* control */
            assert_int_equal(give(&p, CLIENT, out, len, text), DXPU_E_AGAIN);
        } else {
            out[at] ^= (uint8_t)(1u << at % 8);
            /* a longer length waits for more: of the next message, which does not help */
            (void)give(&p, CLIENT, out, len, NULL);
            for (unsigned i = 0; i < 2048 && !p.s[CLIENT]->end; i++)
                (void)give(&p, CLIENT, out, seal_text(&p, SERVER, text, out), NULL);
            assert_true(p.ended[CLIENT][DXPU_SODIUM_STREAM_FORGED] +
                            p.ended[CLIENT][DXPU_SODIUM_STREAM_LENGTH] ==
                        1);
        }
        end_pair(&p);
    }
}

static void test_s75_a_message_cut_is_not_delivered(void **state)
{
    static const char text[] = "half of a lease";
    pair p;
    uint8_t out[MAX];
    size_t len;
    (void)state;
    pair_up(&p);
    len = seal_text(&p, CLIENT, text, out);
    for (size_t i = 0; i + 1 < len; i++)
        assert_int_equal(give(&p, SERVER, out + i, 1, NULL), DXPU_E_AGAIN);
    assert_int_equal(give(&p, SERVER, out + len - 1, 1, text), DXPU_E_AGAIN); /* control: whole */
    end_pair(&p);
}

/* Messages of one stream in another between the same two, and of the one direction in the other. */
static void test_s75_messages_of_another_stream(void **state)
{
    for (unsigned way = 0; way < 3; way++) {
        pair p, q;
        uint8_t out[MAX];
        size_t len;
        (void)state;
        pair_up(&p);
        memset(&q, 0, sizeof q);
        memcpy(q.own, p.own, sizeof q.own);
        begin_keyed(&q);
        tape t;
        shake(&q, &t);
        len = seal_text(way == 1 ? &q : &p, CLIENT, "mine", out);
        if (way == 0) /* control */
            assert_int_equal(give(&p, SERVER, out, len, "mine"), DXPU_E_AGAIN);
        else
            assert_int_equal(give(&p, way == 1 ? SERVER : CLIENT, out, len, NULL), DXPU_E_CRC);
        end_pair(&p);
        end_pair(&q);
    }
}

static void test_s75_repeated_left_out_or_in_another_order(void **state)
{
    static const char *const orders[] = { "012", "001", "02", "10", "1" };
    (void)state;
    for (unsigned i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        uint8_t out[3][MAX];
        size_t len[3];
        pair p;
        unsigned next = 0;
        int rc = DXPU_E_AGAIN;
        pair_up(&p);
        for (unsigned m = 0; m < 3; m++) {
            char text[2] = { (char)('0' + m), 0 };
            len[m] = seal_text(&p, CLIENT, text, out[m]);
        }
        for (const char *o = orders[i]; *o && rc == DXPU_E_AGAIN; o++) {
            unsigned m = (unsigned)(*o - '0');
            char text[2] = { *o, 0 };
            rc = give(&p, SERVER, out[m], len[m], m == next++ ? text : NULL);
        }
        if (i == 0) /* control */
            assert_int_equal(rc, DXPU_E_AGAIN);
        else
            assert_over(&p, SERVER, DXPU_SODIUM_STREAM_FORGED);
        end_pair(&p);
    }
}

static void test_s75_lengths(void **state)
{
    pair p;
    (void)state;
    for (unsigned len = 0; len <= TAG_BYTES; len++) {
        uint8_t head[2] = { 0, (uint8_t)len };
        pair_up(&p);
        assert_int_equal(give(&p, CLIENT, head, sizeof head, NULL),
                         len < TAG_BYTES ? DXPU_E_LENGTH
                                         : DXPU_E_AGAIN); /* TAG_BYTES: the control */
        if (len < TAG_BYTES)
            assert_over(&p, CLIENT, DXPU_SODIUM_STREAM_LENGTH);
        end_pair(&p);
    }
}

/* The longest, and one byte more; and the shortest, in as little room as it takes. */
static void test_s75_the_longest_message(void **state)
{
    static uint8_t plain[DXPU_SODIUM_STREAM_PLAIN_MAX + 1], out[sizeof plain + 18];
    dxpu_bytes most = { plain, DXPU_SODIUM_STREAM_PLAIN_MAX }, in, back;
    dxpu_bytes more = { plain, sizeof plain }, none = { NULL, 0 };
    size_t len = 0;
    pair p;
    (void)state;
    pair_up(&p);
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i * 7 >> 3);
    assert_int_equal(dxpu_sodium_stream_seal(p.s[0], more, out, sizeof out, &len), DXPU_E_ROOM);
    assert_int_equal(dxpu_sodium_stream_seal(p.s[0], most, out, 65536, &len), DXPU_E_ROOM);
    assert_int_equal(dxpu_sodium_stream_seal(p.s[0], none, out, 17, &len), DXPU_E_ROOM);
    assert_int_equal(dxpu_sodium_stream_seal(p.s[0], most, out, 65537, &len), DXPU_OK);
    in.ptr = out;
    in.len = len;
    assert_int_equal(dxpu_sodium_stream_take(p.s[1], &in, &back), DXPU_OK);
    assert_int_equal(back.len, most.len);
    assert_memory_equal(back.ptr, plain, back.len);
    assert_true(p.s[1]->cap <= 131072);
    assert_int_equal(dxpu_sodium_stream_seal(p.s[0], none, out, 18, &len), DXPU_OK);
    in.ptr = out;
    in.len = len;
    assert_int_equal(dxpu_sodium_stream_take(p.s[1], &in, &back), DXPU_OK);
    assert_int_equal(back.len, 0);
    end_pair(&p);
}

/* However the network cuts it, handshake and all. */
static void test_s75_bytes_as_the_network_cuts_them(void **state)
{
    (void)state;
    for (size_t part = 1; part < 130; part += seeds_step()) {
        pair p;
        uint8_t all[MAX], one[FIRST_BYTES];
        size_t len;
        begin(&p);
        assert_int_equal(give(&p, SERVER, one, say_of(&p, CLIENT, one), NULL), DXPU_E_AGAIN);
        len = say_of(&p, SERVER, all);
        for (size_t at = 0; at < len; at += part)
            assert_int_equal(give(&p, CLIENT, all + at, part < len - at ? part : len - at, NULL),
                             DXPU_E_AGAIN);
        len = say_of(&p, CLIENT, all);
        len += seal_text(&p, CLIENT, "one", all + len);
        len += seal_text(&p, CLIENT, "two", all + len);
        dxpu_bytes plain;
        unsigned messages = 0;
        for (size_t at = 0; at < len; at += part) {
            dxpu_bytes in = { all + at, part < len - at ? part : len - at };
            while (dxpu_sodium_stream_take(p.s[SERVER], &in, &plain) == DXPU_OK)
                assert_memory_equal(plain.ptr, messages++ ? "two" : "one", 3);
        }
        assert_int_equal(messages, 2);
        end_pair(&p);
    }
}

/* ==== Keys ==================================================================================== */

static void test_s76_keys_change_by_volume(void **state)
{
    uint8_t out[MAX], before[KEY_BYTES];
    unsigned changes = 0;
    pair p;
    (void)state;
    pair_up(&p);
    for (unsigned i = 0; i < 40; i++) {
        memcpy(before, p.s[CLIENT]->tx.key, KEY_BYTES);
        assert_int_equal(
            give(&p, SERVER, out, seal_text(&p, CLIENT, "ten bytes.", out), "ten bytes."),
            DXPU_E_AGAIN);
        changes += memcmp(before, p.s[CLIENT]->tx.key, KEY_BYTES) != 0;
        assert_memory_equal(p.s[CLIENT]->tx.key, p.s[SERVER]->rx.key, KEY_BYTES);
    }
    assert_int_equal(changes, (16 + 40 * 26) / 78); /* every third, the proof being a small one */
    end_pair(&p);
}

/* Who does not change his key is not understood; control above. */
static void test_s76_who_keeps_his_key_is_refused(void **state)
{
    uint8_t out[MAX];
    unsigned good = 0;
    pair p;
    (void)state;
    pair_up(&p);
    while (good < 10) {
        size_t len;
        p.s[CLIENT]->tx.bytes = 0;
        len = seal_text(&p, CLIENT, "ten bytes.", out);
        if (dxpu_sodium_stream_take(p.s[SERVER], &(dxpu_bytes){ out, len },
                                    &(dxpu_bytes){ NULL, 0 }) != DXPU_OK)
            break;
        good++;
    }
    assert_int_equal(good, 2); /* 16 + 26 + 26 >= 64 */
    assert_over(&p, SERVER, DXPU_SODIUM_STREAM_FORGED);
    end_pair(&p);
}

static void test_s77_ends_have_words(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ENDS; i++)
        assert_true(strlen(dxpu_sodium_stream_end_text(i)) > 5 &&
                    strlen(dxpu_sodium_stream_end_name(i)) > 3);
    assert_string_equal(dxpu_sodium_stream_end_name(DXPU_SODIUM_STREAM_MEMORY), "memory");
    assert_string_equal(dxpu_sodium_stream_end_text(ENDS), "?");
    assert_string_equal(dxpu_sodium_stream_end_name(ENDS), "?");
    dxpu_sodium_stream_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s70_s76_vectors_of_another_implementation),
        cmocka_unit_test(test_s70_each_knows_the_other),
        cmocka_unit_test(test_s71_s77_every_byte_of_a_handshake_counts),
        cmocka_unit_test(test_s70_top_bit_of_an_ephemeral_key),
        cmocka_unit_test(test_s71_others_are_known_by_their_first_bytes),
        cmocka_unit_test(test_s72_another_server_key),
        cmocka_unit_test(test_s72_an_impostor_cannot_answer),
        cmocka_unit_test(test_s72_a_key_that_gives_no_secret),
        cmocka_unit_test(test_s73_a_recorded_handshake_proves_nothing),
        cmocka_unit_test(test_s73_s74_nothing_is_allocated_before),
        cmocka_unit_test(test_s74_a_stranger_gets_no_answer),
        cmocka_unit_test(test_s74_without_a_list_all_are_refused),
        cmocka_unit_test(test_s75_every_byte_of_a_message_counts),
        cmocka_unit_test(test_s75_a_message_cut_is_not_delivered),
        cmocka_unit_test(test_s75_messages_of_another_stream),
        cmocka_unit_test(test_s75_repeated_left_out_or_in_another_order),
        cmocka_unit_test(test_s75_lengths),
        cmocka_unit_test(test_s75_the_longest_message),
        cmocka_unit_test(test_s75_bytes_as_the_network_cuts_them),
        cmocka_unit_test(test_s76_keys_change_by_volume),
        cmocka_unit_test(test_s76_who_keeps_his_key_is_refused),
        cmocka_unit_test(test_s77_ends_have_words),
    };
    if (dxpu_sodium_init() != DXPU_OK)
        return 1;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
