/* secure_stream.c - see secure_stream.h
   SPDX-License-Identifier: MIT */
#include "secure_stream.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 16384 }; /* of what is sent in one message: bounds what the other side keeps */
#define SAY_NS    1000000000u /* interval between lines about strangers, */
#define UNLIKE_NS 60000000000u /* and so often whoever has no keys, or another one for this side */

static const char NO_HANDSHAKE[] =
    "it ends the handshake: its key is not the one given here, it does not authorize this side's "
    "key, or it has no keys (--plain)";
static const char SEALED[] = "DXSS"; /* S-71: how who has keys begins */
static const char SLOW[] = "it does not answer the handshake";

struct secure_conn {
    secure_conn *next, **link;
    secure_listener *listener; /* NULL: it was connected from here */
    secure_callbacks cb;
    dxpu_tcp_conn *tcp;
    dxpu_sodium_stream *stream; /* NULL: plain */
    void *context;
    const char *why; /* better known than by what is below */
    bool reached, up, over, heard;
    unsigned inside; /* callbacks of tcp that run: until they return, this stays */
};

struct secure_listener {
    secure_settings set;
    secure_callbacks cb;
    dxpu_tcp_listener *tcp;
    secure_conn *conns;
    uint64_t ended[DXPU_SODIUM_STREAM_ENDS_COUNT], revoked, crowded;
    secure_telling strangers, plain, sealed, other_key;
};

/* ==== Access ================================================================================== */

static bool known(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    secure_listener *l = user;
    for (unsigned bit = 1; bit <= l->set.may; bit <<= 1) {
        if ((l->set.may & bit) && keys_allow(l->set.keys, key, bit, 0))
            return true;
    }
    return false;
}

/* "control, host" */
static const char *may_words(unsigned may, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
#define MAY_WORD(name, bit, word)                                                                  \
    if (may & (bit) && len < cap)                                                                  \
        len += (size_t)snprintf(out + len, cap - len, "%s%s", len ? " or may=" : "may=", word);
    KEYS_MAY(MAY_WORD)
#undef MAY_WORD
    return out;
}

bool secure_tell(secure_telling *t, uint64_t every_ns, char more[SECURE_MORE_BYTES])
{
    uint64_t now = dxpu_udp_now_ns();
    if (t->said_ns && now - t->said_ns < every_ns) {
        t->unsaid++;
        return false;
    }
    more[0] = '\0';
    if (t->unsaid)
        snprintf(more, SECURE_MORE_BYTES, " (and %llu others)", (unsigned long long)t->unsaid);
    t->said_ns = now;
    t->unsaid = 0;
    return true;
}

static void say_stranger(secure_listener *l, const uint8_t *key)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES], words[64], more[SECURE_MORE_BYTES];
    if (!key)
        l->strangers.unsaid++;
    if (!key || !secure_tell(&l->strangers, SAY_NS, more))
        return;
    log_warning("public key %s is not authorized here%s; a line of --peers with %s authorizes it",
                dxpu_sodium_key_print(key, text), more, may_words(l->set.may, words, sizeof words));
}

static const char *name_of(const secure_conn *c, char out[DXPU_UDP_TEXT_BYTES])
{
    dxpu_udp_address there;
    return dxpu_tcp_there(c->tcp, &there) ? dxpu_udp_print(&there, out)
                                          : "a peer that has disconnected";
}

/* The option by which who connects here learns this side's key. */
static const char *key_option(const secure_listener *l)
{
    return l->set.may & KEYS_CONTROL ? "--peer" : "--manager-key";
}

static void say_plain(secure_conn *c)
{
    char at[DXPU_UDP_TEXT_BYTES], more[SECURE_MORE_BYTES];
    secure_listener *l = c->listener;
    if (secure_tell(&l->plain, UNLIKE_NS, more))
        log_warning("%s connects without keys and is refused%s; start it with --key and %s, and "
                    "without --plain",
                    name_of(c, at), more, key_option(l));
}

static void say_sealed(secure_conn *c)
{
    char at[DXPU_UDP_TEXT_BYTES], more[SECURE_MORE_BYTES];
    secure_listener *l = c->listener;
    if (secure_tell(&l->sealed, UNLIKE_NS, more))
        log_warning(
            "%s requires keys%s, and this program runs with --plain; start this one with --key",
            name_of(c, at), more);
}

static void say_other_key(secure_conn *c)
{
    char at[DXPU_UDP_TEXT_BYTES], text[DXPU_SODIUM_KEY_TEXT_BYTES], more[SECURE_MORE_BYTES];
    secure_listener *l = c->listener;
    if (secure_tell(&l->other_key, UNLIKE_NS, more))
        log_warning(
            "%s expects another public key than this program's%s; if it is meant to reach this "
            "one, give it %s %s",
            name_of(c, at), more, key_option(l),
            dxpu_sodium_key_print(keys_own(l->set.keys)->public_key, text));
}

/* S-92: of a stream that ends before it is up, for want of keys that fit. */
static void say_end(secure_conn *c)
{
    switch (dxpu_sodium_stream_end(c->stream)) {
    case DXPU_SODIUM_STREAM_STRANGER:
        say_stranger(c->listener, dxpu_sodium_stream_peer(c->stream));
        break;
    case DXPU_SODIUM_STREAM_PLAIN:
        say_plain(c);
        break;
    case DXPU_SODIUM_STREAM_HANDSHAKE:
        say_other_key(c);
        break;
    default:
        break;
    }
}

/* ==== Life ==================================================================================== */

static secure_conn *conn_new(secure_listener *l, const secure_callbacks *cb)
{
    secure_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->cb = *cb;
    c->listener = l;
    if (!l)
        return c;
    c->next = l->conns;
    c->link = &l->conns;
    if (c->next)
        c->next->link = &c->next;
    l->conns = c;
    return c;
}

static void conn_free(secure_conn *c)
{
    if (c->link) {
        *c->link = c->next;
        if (c->next)
            c->next->link = c->link;
    }
    dxpu_sodium_stream_free(c->stream);
    free(c);
}

/* Has its key as many connections as one may have? */
static bool is_one_too_many(const secure_conn *c)
{
    unsigned count = 0;
    if (!c->listener || !c->listener->set.per_key || !c->stream)
        return false;
    for (const secure_conn *o = c->listener->conns; o; o = o->next)
        count += o->up && !o->over && !memcmp(secure_key(o), secure_key(c), DXPU_NOISE_KEY_BYTES);
    return count >= c->listener->set.per_key;
}

/* The other side is there, and is who it says. */
static void come_up(secure_conn *c)
{
    if (is_one_too_many(c)) {
        c->listener->crowded++;
        secure_drop(c, "its key has its maximum number of connections");
        return;
    }
    if (c->listener && c->stream && !known(c->listener, secure_key(c))) {
        secure_drop(c, "its key is no longer authorized"); /* since its greeting */
        return;
    }
    c->up = true;
    c->context = c->cb.opened(c->cb.user, c);
    if (!c->context && !c->over)
        secure_drop(c, "refused here");
}

static void emit(secure_conn *c)
{
    dxpu_bytes said = dxpu_sodium_stream_emit(c->stream);
    if (said.len && !c->over && !dxpu_tcp_send(c->tcp, said.ptr, said.len))
        c->over = true;
}

/* Bytes that are sealed. */
static void hear(secure_conn *c, dxpu_bytes in)
{
    dxpu_bytes plain;
    int rc = DXPU_OK;
    while (!c->over && rc == DXPU_OK) {
        rc = dxpu_sodium_stream_take(c->stream, &in, &plain);
        emit(c);
        if (!c->up && !c->over && dxpu_sodium_stream_up(c->stream))
            come_up(c);
        if (rc == DXPU_OK && !c->over && plain.len)
            c->cb.bytes(c->context, c, plain);
    }
    if (c->over || rc == DXPU_E_AGAIN)
        return;
    if (c->listener)
        say_end(c);
    secure_drop(c, dxpu_sodium_stream_end_text(dxpu_sodium_stream_end(c->stream)));
}

static void on_bytes(void *context, dxpu_tcp_conn *tcp, dxpu_bytes in)
{
    secure_conn *c = context;
    (void)tcp;
    c->inside++;
    if (!c->stream && c->listener && !c->heard && in.len >= sizeof SEALED - 1 &&
        !memcmp(in.ptr, SEALED, sizeof SEALED - 1))
        say_sealed(c);
    c->heard = true;
    if (c->stream)
        hear(c, in);
    else
        c->cb.bytes(c->context, c, in);
    c->inside--;
}

/* The reason of an end, before the other side has proven itself. */
static const char *early(const secure_conn *c, const char *why)
{
    if (c->why || !c->reached || !c->stream)
        return c->why ? c->why : why;
    return strcmp(why, "no greeting") ? NO_HANDSHAKE : SLOW;
}

static void on_closed(void *context, dxpu_tcp_conn *tcp, const char *why)
{
    secure_conn *c = context;
    (void)tcp;
    c->over = true;
    if (c->up && c->context)
        c->cb.closed(c->context, c, c->why ? c->why : why);
    else if (!c->listener)
        c->cb.closed(c->cb.user, c, c->up ? why : early(c, why));
    conn_free(c);
}

/* False: no memory. */
static bool begin(secure_conn *c, const dxpu_sodium_stream_settings *set)
{
    c->stream = dxpu_sodium_stream_new(set);
    if (c->stream)
        emit(c);
    return c->stream != NULL;
}

/* ==== Listener ================================================================================ */

static void *on_accepted(void *user, dxpu_tcp_conn *tcp)
{
    secure_listener *l = user;
    secure_conn *c = conn_new(l, &l->cb);
    bool good = c != NULL;
    if (!c)
        return NULL;
    c->tcp = tcp;
    c->inside++;
    if (keys_plain(l->set.keys)) {
        come_up(c);
        good = c->context != NULL;
    } else {
        dxpu_sodium_stream_settings set = { keys_own(l->set.keys), NULL, l, known, l->ended };
        good = begin(c, &set);
    }
    c->inside--;
    if (good)
        return c;
    conn_free(c); /* on_closed() does not come */
    return NULL;
}

secure_listener *secure_listen(struct event_base *base, const dxpu_udp_address *local,
                               const secure_settings *set, const secure_callbacks *cb,
                               const char **why)
{
    dxpu_tcp_callbacks below = { NULL, on_accepted, on_bytes, on_closed };
    secure_listener *l;
    errno = 0;
    *why = keys_plain_address;
    if (!keys_allow_address(set->keys, local))
        return NULL;
    l = calloc(1, sizeof *l);
    *why = "out of memory";
    if (!l)
        return NULL;
    l->set = *set;
    l->cb = *cb;
    below.user = l;
    l->tcp = dxpu_tcp_listen(base, local, &set->tcp, &below, why);
    if (l->tcp)
        return l;
    free(l);
    return NULL;
}

void secure_unlisten(secure_listener *l)
{
    if (!l)
        return;
    dxpu_tcp_unlisten(l->tcp);
    free(l);
}

void secure_recheck(secure_listener *l)
{
    secure_conn *next;
    if (keys_plain(l->set.keys))
        return;
    for (secure_conn *c = l->conns; c; c = next) {
        next = c->next;
        if (c->over || !c->up || known(l, secure_key(c)))
            continue;
        l->revoked++;
        secure_drop(c, "its key is no longer authorized");
    }
}

const dxpu_udp_address *secure_local(const secure_listener *l)
{
    return dxpu_tcp_local(l->tcp);
}

void secure_report(const secure_listener *l, report *r)
{
    report_number(r, "connections", dxpu_tcp_accepted(l->tcp));
    report_number(r, "displaced", dxpu_tcp_displaced(l->tcp));
    report_number(r, "limited", dxpu_tcp_limited(l->tcp));
    report_open(r, "streams_ended");
    for (unsigned end = 1; end < DXPU_SODIUM_STREAM_ENDS_COUNT; end++)
        report_number(r, dxpu_sodium_stream_end_name(end), l->ended[end]);
    report_number(r, "revoked", l->revoked);
    report_number(r, "crowded", l->crowded);
    report_close(r);
}

/* ==== Connections ============================================================================= */

/* The other side's port is there. */
static void *on_reached(void *user, dxpu_tcp_conn *tcp)
{
    secure_conn *c = user;
    c->tcp = tcp;
    c->reached = true;
    c->inside++;
    if (c->stream)
        emit(c);
    else
        come_up(c);
    c->inside--;
    return c->stream || c->context ? c : NULL; /* on_closed() comes in any case */
}

secure_conn *secure_connect(struct event_base *base, const dxpu_udp_address *remote,
                            const dxpu_tcp_settings *set, const dxpu_noise_pair *own,
                            const uint8_t *server, const secure_callbacks *cb, const char **why)
{
    dxpu_tcp_callbacks below = { NULL, on_reached, on_bytes, on_closed };
    dxpu_sodium_stream_settings seal = { own, server, NULL, NULL, NULL };
    secure_conn *c = conn_new(NULL, cb);
    *why = "out of memory";
    if (!c)
        return NULL;
    below.user = c;
    if (own)
        c->stream = dxpu_sodium_stream_new(&seal);
    if (own && c->stream && dxpu_sodium_stream_end(c->stream))
        *why = "the peer's public key is invalid; give the right one";
    else if (!own || c->stream)
        c->tcp = dxpu_tcp_connect(base, remote, set, &below, why);
    if (c->tcp)
        return c;
    conn_free(c);
    return NULL;
}

const uint8_t *secure_key(const secure_conn *c)
{
    return c->stream ? dxpu_sodium_stream_peer(c->stream) : NULL;
}

bool secure_is_handshake(const char *why)
{
    return why == NO_HANDSHAKE;
}

bool secure_here(const secure_conn *c, dxpu_udp_address *out)
{
    return dxpu_tcp_here(c->tcp, out);
}

bool secure_send(secure_conn *c, const void *data, size_t bytes)
{
    uint8_t out[CHUNK_BYTES + DXPU_SODIUM_STREAM_OVERHEAD_BYTES];
    const uint8_t *at = data;
    bool inside = c->inside != 0, good = !c->over;
    if (!c->stream && good)
        good = dxpu_tcp_send(c->tcp, data, bytes);
    while (good && bytes && c->stream) { /* what was not sent may have ended it, and c is gone */
        dxpu_bytes plain = { at, bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES };
        size_t len = 0;
        good = dxpu_sodium_stream_seal(c->stream, plain, out, sizeof out, &len) == DXPU_OK &&
               dxpu_tcp_send(c->tcp, out, len);
        at += plain.len;
        bytes -= plain.len;
    }
    if (!good && inside)
        c->over = true; /* else it is gone already, if it had not been before */
    return good;
}

void secure_touch(secure_conn *c)
{
    dxpu_tcp_touch(c->tcp);
}

void secure_finish(secure_conn *c)
{
    if (c->over)
        return;
    c->over = true; /* nothing more is read or sent */
    dxpu_tcp_finish(c->tcp);
}

void secure_drop(secure_conn *c, const char *why)
{
    c->over = true;
    if (!c->why)
        c->why = why;
    dxpu_tcp_drop(c->tcp, why);
}
