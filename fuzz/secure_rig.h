/* secure_rig.h - control connections in memory, in place of secure_stream.c and keys.c
   SPDX-License-Identifier: MIT

   They keep what secure_stream.h says of them: closed() comes at once, or when the callback that
   runs returns; what is sent waits for a peer that takes none, up to send_bytes; who ends a
   connection still sends what it has said.  Nothing is sealed: the target says whose key a
   connection has, and what each key may.  Time is rig_ns. */
#ifndef SECURE_RIG_H_INCLUDED
#define SECURE_RIG_H_INCLUDED

#include "input.h"

#include "sandbox.h"
#include "secure_stream.h"

enum { RIG_KEYS = 6, RIG_PIECE_BYTES = 4096 /* that dxpu_tcp.c hears at once */ };

static uint64_t rig_ns; /* the time */

static inline uint64_t rig_now_ns(void)
{
    return rig_ns;
}

/* -- Keys -- */

struct keys {
    struct {
        uint8_t key[DXPU_NOISE_KEY_BYTES];
        unsigned may;
        char name[KEYS_NAME_MAX + 1];
    } row[RIG_KEYS];
};

/* A row's place; RIG_KEYS: a stranger's. */
static inline unsigned rig_row(const keys *k, const uint8_t *key)
{
    unsigned i = 0;
    while (i < RIG_KEYS && memcmp(k->row[i].key, key, sizeof k->row[i].key))
        i++;
    return i;
}

bool keys_allow(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], unsigned may, uint16_t slot)
{
    unsigned i = rig_row(k, key);
    (void)slot;
    return i < RIG_KEYS && (k->row[i].may & may) == may;
}

unsigned keys_name(keys *k, const uint8_t key[DXPU_NOISE_KEY_BYTES], const char *name,
                   char own[KEYS_NAME_MAX + 1])
{
    unsigned mine = rig_row(k, key), whose = 0;
    while (whose < RIG_KEYS && (!*name || strcmp(k->row[whose].name, name)))
        whose++;
    if (whose < RIG_KEYS)
        return whose == mine ? KEYS_NAME_OWN : KEYS_NAME_OTHER;
    if (mine == RIG_KEYS || !k->row[mine].name[0])
        return KEYS_NAME_FREE;
    snprintf(own, KEYS_NAME_MAX + 1, "%s", k->row[mine].name);
    return KEYS_NAME_WRONG;
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

const char *sandbox_hint(int error)
{
    (void)error;
    return "";
}

/* -- Connections -- */

struct secure_conn {
    secure_conn *next, **link;
    secure_listener *listener;
    void *context;
    secure_conn **own; /* NULL is written there when the connection is gone */
    const uint8_t *key;
    const char *why;
    size_t unsent;
    uint64_t since_ns; /* it is there, or is finished; */
    uint64_t stuck_ns; /* or takes nothing */
    bool deaf;         /* the peer takes nothing */
    bool greeted, over, finishing, eof, ended;
    unsigned busy;
};

struct secure_listener {
    secure_settings set;
    secure_callbacks cb;
    dxpu_udp_address local;
    secure_conn *conns;
    unsigned count;
};

/* The target's: what was said there; not `good`: it is not received. */
static void rig_said(const secure_conn *c, const uint8_t *data, size_t bytes, bool good);

secure_listener *secure_listen(struct event_base *base, const dxpu_udp_address *local,
                               const secure_settings *set, const secure_callbacks *cb,
                               const char **why)
{
    secure_listener *l = calloc(1, sizeof *l);
    (void)base;
    *why = NULL;
    must(l != NULL);
    l->set = *set;
    l->cb = *cb;
    l->local = *local;
    return l;
}

static void rig_leave(secure_conn *c)
{
    if (--c->busy || !c->ended)
        return;
    if (c->context)
        c->listener->cb.closed(c->context, c, c->why);
    *c->own = NULL;
    free(c);
}

void secure_drop(secure_conn *c, const char *why)
{
    c->over = true;
    if (!c->why)
        c->why = why;
    if (c->ended)
        return;
    c->ended = true;
    c->busy++;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->listener->count--;
    rig_leave(c);
}

void secure_unlisten(secure_listener *l)
{
    while (l && l->conns)
        secure_drop(l->conns, "closed here");
    free(l);
}

static bool rig_known(const secure_listener *l, const uint8_t *key)
{
    for (unsigned bit = 1; key && bit <= l->set.may; bit <<= 1) {
        if ((l->set.may & bit) && keys_allow(l->set.keys, key, bit, 0))
            return true;
    }
    return !key;
}

void secure_recheck(secure_listener *l)
{
    for (secure_conn *c = l->conns, *next; c; c = next) {
        next = c->next;
        if (!rig_known(l, c->key) && !c->over)
            secure_drop(c, "its key is no longer authorized");
    }
}

const dxpu_udp_address *secure_local(const secure_listener *l)
{
    return &l->local;
}

void secure_report(const secure_listener *l, report *r)
{
    report_number(r, "connections", l->count);
}

const uint8_t *secure_key(const secure_conn *c)
{
    return c->key;
}

void secure_touch(secure_conn *c)
{
    c->greeted = true;
}

bool secure_send(secure_conn *c, const void *data, size_t bytes)
{
    size_t most = c->listener->set.tcp.send_bytes;
    bool inside = c->busy != 0, open = !c->over && !c->ended && !c->finishing;
    bool good = open && bytes <= most && c->unsent <= most - bytes;
    rig_said(c, data, bytes, good);
    if (good && !c->unsent)
        c->stuck_ns = rig_ns;
    if (good)
        c->unsent += bytes;
    else if (inside)
        c->over = true;
    if (open && !good)
        secure_drop(c, "the peer does not read its answers");
    return good;
}

/* All is sent. */
static void rig_half_close(secure_conn *c)
{
    if (c->eof)
        secure_drop(c, "closed here");
}

static void rig_finish(secure_conn *c)
{
    if (c->ended || c->finishing)
        return;
    c->finishing = true;
    c->since_ns = rig_ns;
    if (!c->unsent)
        rig_half_close(c);
}

void secure_finish(secure_conn *c)
{
    if (c->over)
        return;
    c->over = true;
    rig_finish(c);
}

/* -- The network and its other end -- */

/* c is the listener's from now on; *own is it, as long as it is there. */
static void rig_join(secure_listener *l, secure_conn *c, secure_conn **own)
{
    *own = c;
    c->own = own;
    c->listener = l;
    c->since_ns = rig_ns;
    c->next = l->conns;
    c->link = &l->conns;
    if (c->next)
        c->next->link = &c->next;
    l->conns = c;
    l->count++;
}

/* key: NULL for none; a stranger has no connection. */
static void rig_connect(secure_listener *l, const uint8_t *key, secure_conn **own)
{
    secure_conn *c = rig_known(l, key) ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return;
    c->key = key;
    rig_join(l, c, own);
    c->busy++;
    c->context = l->cb.opened(l->cb.user, c);
    if (!c->context)
        secure_drop(c, "refused here");
    rig_leave(c);
}

/* Bytes arrive; each piece is memory of its own, so that ASan sees reads beyond it. */
static void rig_bring(secure_conn *c, const uint8_t *at, size_t len)
{
    c->busy++;
    while (len && !c->ended && !c->finishing) {
        dxpu_bytes in = { NULL, len < RIG_PIECE_BYTES ? len : RIG_PIECE_BYTES };
        uint8_t *piece = malloc(in.len);
        must(piece != NULL);
        memcpy(piece, at, in.len);
        in.ptr = piece;
        c->listener->cb.bytes(c->context, c, in);
        free(piece);
        at += in.len;
        len -= in.len;
    }
    rig_leave(c);
}

/* The peer says no more, and may still listen. */
static void rig_eof(secure_conn *c)
{
    c->busy++;
    c->eof = true;
    if (c->unsent)
        rig_finish(c);
    else
        secure_drop(c, c->finishing ? "closed here" : "closed by the peer");
    rig_leave(c);
}

/* Peers take what was said; who does not greet, or takes nothing, loses its connection. */
static void rig_turn(secure_listener *l)
{
    uint64_t greet_ns = l->set.tcp.greet_ms * 1000000ull,
             stall_ns = l->set.tcp.stall_ms * 1000000ull;
    for (secure_conn *c = l->conns, *next; c; c = next) {
        next = c->next;
        c->busy++;
        if (!c->deaf && c->unsent) {
            c->unsent = 0;
            if (c->finishing)
                rig_half_close(c);
        }
        if (c->finishing && rig_ns >= c->since_ns + stall_ns)
            secure_drop(c, "closed here");
        else if (c->unsent && rig_ns >= c->stuck_ns + stall_ns)
            secure_drop(c, "the peer takes nothing");
        else if (!c->finishing && !c->greeted && rig_ns >= c->since_ns + greet_ns)
            secure_drop(c, "no greeting");
        rig_leave(c);
    }
}

#endif /* SECURE_RIG_H_INCLUDED */
