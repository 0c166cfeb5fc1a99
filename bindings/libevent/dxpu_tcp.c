/* dxpu_tcp.c - see dxpu_tcp.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu_tcp.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

/* ACCEPTS_MS: after quiet, the share of a second's accepts taken at once.  At most AWAY connections
   are refused in AWAY_MS, which limits the time spent on them. */
enum { READ_BYTES = 16384, RETRY_MS = 100, ACCEPTS_MS = 100, AWAY = 128, AWAY_MS = 5 };
enum { GROUPS = 256, SHARE = 2, AHEAD_S = 8 };

static const char NO_ANSWER[] = "no answer";

struct dxpu_tcp_conn {
    dxpu_tcp_conn *next, **link;
    dxpu_tcp_listener *listener; /* NULL: it was connected from here */
    dxpu_tcp_settings set;
    dxpu_tcp_callbacks cb;
    void *context;
    void (*drained)(void *context, dxpu_tcp_conn *c);
    struct bufferevent *bev;
    struct event *greeting;
    uint64_t touched_ns;
    const char *why; /* it is over */
    bool open, greeted, finishing, eof, over;
    unsigned busy; /* callbacks running: it ends when the last one returns */
};

struct dxpu_tcp_listener {
    struct event_base *base;
    struct evconnlistener *listen;
    struct event *retry;
    dxpu_tcp_settings set;
    dxpu_tcp_callbacks cb;
    dxpu_udp_address local;
    void (*drained)(void *context, dxpu_tcp_conn *c);
    dxpu_tcp_conn *conns;
    unsigned count;
    uint64_t accepted, displaced;
    uint64_t paid_ns; /* accepts are paid for until then, at the rate of the settings */
    uint64_t group_paid_ns[GROUPS], secret[2];
    uint64_t limited;
    unsigned away; /* refused since the last pause */
};

/* ==== 1  Addresses ============================================================================ */

const char *dxpu_tcp_parse_port(const char *text, unsigned port, dxpu_udp_address *out)
{
    char full[320], added[16] = "";
    size_t len = strlen(text);
    if (!len || len >= 300)
        return "address: empty or too long, write ADDR:PORT";
    if (strspn(text, "0123456789") == len) {
        snprintf(full, sizeof full, "127.0.0.1:%s", text);
        return dxpu_udp_parse(full, out);
    }
    /* a colon outside brackets is a port's; two are reported as by dxpu_udp_parse() */
    if (text[0] == '[' ? text[len - 1] == ']' : !strchr(text, ':'))
        snprintf(added, sizeof added, ":%u", port);
    snprintf(full, sizeof full, "%s%s%s", text[0] == ':' ? "127.0.0.1" : "", text, added);
    return dxpu_udp_parse(full, out);
}

const char *dxpu_tcp_parse(const char *text, dxpu_udp_address *out)
{
    return dxpu_tcp_parse_port(text, DXPU_TCP_PORT, out);
}

/* ==== 2  Settings ============================================================================= */

void dxpu_tcp_settings_default(dxpu_tcp_settings *s)
{
    s->connections = 64;
    s->accepts = 250;
    s->send_bytes = 256u << 10;
    s->greet_ms = 5000;
    s->idle_ms = 60000;
    s->stall_ms = 10000;
}

/* A disconnected peer makes the write fail instead of ending the program. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

static struct timeval milliseconds(unsigned ms)
{
    struct timeval tv;
    tv.tv_sec = (time_t)(ms / 1000);
    tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
    return tv;
}

/* ==== 4  Connections ========================================================================== */

static void conn_free(dxpu_tcp_conn *c)
{
    if (c->bev)
        bufferevent_free(c->bev);
    if (c->greeting)
        event_free(c->greeting);
    free(c);
}

/* closed() waits for the callbacks that run: they still use the context. */
static void leave(dxpu_tcp_conn *c, const char *why)
{
    if (why && !c->why)
        c->why = why;
    if (--c->busy || !c->over)
        return;
    if (c->context || !c->listener)
        c->cb.closed(c->context ? c->context : c->cb.user, c, c->why);
    conn_free(c);
}

void dxpu_tcp_drop(dxpu_tcp_conn *c, const char *why)
{
    if (c->over)
        return;
    c->over = true;
    c->busy++;
    (void)bufferevent_disable(c->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(c->bev, NULL, NULL, NULL, NULL);
    if (c->link) {
        *c->link = c->next;
        if (c->next)
            c->next->link = c->link;
        c->listener->count--;
    }
    leave(c, why);
}

/* Once.  A peer that speaks first may be heard before libevent reports the connection. */
static void opened(dxpu_tcp_conn *c)
{
    if (c->open || c->over)
        return;
    c->open = true;
    c->touched_ns = dxpu_udp_now_ns();
    c->context = c->cb.opened(c->cb.user, c);
    if (!c->context)
        dxpu_tcp_drop(c, "refused here");
}

static void on_read(struct bufferevent *bev, void *user)
{
    dxpu_tcp_conn *c = user;
    struct evbuffer *in = bufferevent_get_input(bev);
    uint8_t some[4096];
    int n;
    c->busy++;
    opened(c);
    while (!c->over && !c->finishing && (n = evbuffer_remove(in, some, sizeof some)) > 0) {
        dxpu_bytes bytes = { some, (size_t)n };
        c->cb.bytes(c->context, c, bytes);
    }
    if (c->finishing && !c->over)
        (void)evbuffer_drain(in, evbuffer_get_length(in));
    leave(c, NULL);
}

/* All is sent.  Closing now, with bytes of the peer unread, could destroy what is on its way. */
static void half_close(dxpu_tcp_conn *c)
{
    if (c->eof || shutdown(bufferevent_getfd(c->bev), SHUT_WR))
        dxpu_tcp_drop(c, "closed here");
}

static void on_write(struct bufferevent *bev, void *user)
{
    dxpu_tcp_conn *c = user;
    (void)bev;
    c->busy++;
    if (c->finishing)
        half_close(c);
    else if (c->drained && c->context)
        c->drained(c->context, c);
    leave(c, NULL);
}

/* The peer says no more, and may still listen. */
static void on_eof(dxpu_tcp_conn *c)
{
    c->eof = true;
    if (evbuffer_get_length(bufferevent_get_output(c->bev)))
        dxpu_tcp_finish(c);
    else
        dxpu_tcp_drop(c, c->finishing ? "closed here" : "closed by the peer");
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    dxpu_tcp_conn *c = user;
    (void)bev;
    c->busy++;
    if (what & BEV_EVENT_CONNECTED) {
        opened(c);
    } else if (!c->open) {
        dxpu_tcp_drop(c, NO_ANSWER);
    } else if (what & BEV_EVENT_TIMEOUT) {
        dxpu_tcp_drop(c,
                      what & BEV_EVENT_WRITING ? "the peer does not read" : "silent for too long");
    } else if (!(what & BEV_EVENT_EOF)) {
        dxpu_tcp_drop(c, "connection lost");
    } else {
        on_eof(c);
    }
    leave(c, NULL);
}

static void on_greeting(evutil_socket_t fd, short what, void *user)
{
    dxpu_tcp_conn *c = user;
    (void)fd;
    (void)what;
    dxpu_tcp_drop(c, c->finishing ? "closed here" : c->open ? "no greeting" : NO_ANSWER);
}

/* fd is closed with the connection, and when this fails.  fd -1: to be connected. */
static dxpu_tcp_conn *conn_new(struct event_base *base, evutil_socket_t fd,
                               const dxpu_tcp_settings *s, const dxpu_tcp_callbacks *cb)
{
    struct timeval greet = milliseconds(s->greet_ms), idle = milliseconds(s->idle_ms),
                   stall = milliseconds(s->stall_ms);
    dxpu_tcp_conn *c = calloc(1, sizeof *c);
    if (!c) {
        if (fd >= 0)
            (void)evutil_closesocket(fd);
        return NULL;
    }
    ignore_sigpipe();
    c->set = *s;
    c->cb = *cb;
    c->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev && fd >= 0)
        (void)evutil_closesocket(fd);
    c->greeting = event_new(base, -1, 0, on_greeting, c);
    if (!c->bev || !c->greeting || event_add(c->greeting, &greet)) {
        conn_free(c);
        return NULL;
    }
    bufferevent_setwatermark(c->bev, EV_READ, 0, READ_BYTES);
    (void)bufferevent_set_timeouts(c->bev, s->idle_ms ? &idle : NULL, &stall);
    return c;
}

static void start(dxpu_tcp_conn *c)
{
    int one = 1; /* messages are small and urgent */
    (void)setsockopt(bufferevent_getfd(c->bev), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    (void)bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

dxpu_tcp_conn *dxpu_tcp_connect(struct event_base *base, const dxpu_udp_address *remote,
                                const dxpu_tcp_settings *s, const dxpu_tcp_callbacks *cb,
                                const char **why)
{
    dxpu_tcp_conn *c = conn_new(base, -1, s, cb);
    if (!c) {
        *why = "out of memory";
        return NULL;
    }
    if (bufferevent_socket_connect(c->bev, &remote->u.any, (int)remote->len)) {
        *why = "cannot connect; is the address one that this machine reaches?";
        conn_free(c);
        return NULL;
    }
    start(c); /* not earlier: an immediate refusal must not free what is returned */
    return c;
}

bool dxpu_tcp_here(const dxpu_tcp_conn *c, dxpu_udp_address *out)
{
    out->len = sizeof out->u;
    return c->open && !c->over && !getsockname(bufferevent_getfd(c->bev), &out->u.any, &out->len);
}

bool dxpu_tcp_there(const dxpu_tcp_conn *c, dxpu_udp_address *out)
{
    out->len = sizeof out->u;
    return c->open && !c->over && !getpeername(bufferevent_getfd(c->bev), &out->u.any, &out->len);
}

bool dxpu_tcp_send(dxpu_tcp_conn *c, const void *data, size_t bytes)
{
    struct evbuffer *out;
    if (c->over || c->finishing)
        return false;
    out = bufferevent_get_output(c->bev);
    if (bytes > c->set.send_bytes || evbuffer_get_length(out) > c->set.send_bytes - bytes ||
        bufferevent_write(c->bev, data, bytes)) {
        dxpu_tcp_drop(c, "the peer does not read its answers");
        return false;
    }
    return true;
}

size_t dxpu_tcp_unsent(const dxpu_tcp_conn *c)
{
    return c->over ? 0 : evbuffer_get_length(bufferevent_get_output(c->bev));
}

void dxpu_tcp_touch(dxpu_tcp_conn *c)
{
    if (!c->greeted)
        (void)event_del(c->greeting);
    c->greeted = true;
    c->touched_ns = dxpu_udp_now_ns();
}

void dxpu_tcp_finish(dxpu_tcp_conn *c)
{
    struct timeval stall = milliseconds(c->set.stall_ms);
    if (c->over || c->finishing)
        return;
    c->finishing = true;
    (void)event_add(c->greeting, &stall); /* however slowly the peer takes the rest */
    if (!evbuffer_get_length(bufferevent_get_output(c->bev)))
        half_close(c);
}

/* ==== 3  Listener ============================================================================= */

/* Close the longest silent connection, one that never greeted before others. */
static void displace(dxpu_tcp_listener *l)
{
    dxpu_tcp_conn *worst = NULL;
    for (dxpu_tcp_conn *c = l->conns; c; c = c->next) {
        if (!worst || (worst->greeted && !c->greeted) ||
            (worst->greeted == c->greeted && c->touched_ns < worst->touched_ns))
            worst = c;
    }
    if (worst) {
        l->displaced++;
        dxpu_tcp_drop(worst, "displaced by another connection");
    }
}

/* Which ends libevent's turn with it, too. */
static void pause_listening(dxpu_tcp_listener *l, unsigned ms)
{
    struct timeval pause = milliseconds(ms);
    l->away = 0;
    (void)evconnlistener_disable(l->listen);
    (void)event_add(l->retry, &pause);
}

/* Whoever connects repeatedly from everywhere holds up who connects, but not what else is done
   here. */
static void pay_accept(dxpu_tcp_listener *l)
{
    uint64_t now = dxpu_udp_now_ns(), most = (uint64_t)ACCEPTS_MS * 1000000u;
    l->paid_ns = (l->paid_ns > now ? l->paid_ns : now) + 1000000000u / l->set.accepts;
    if (l->paid_ns > now + most)
        pause_listening(l, ACCEPTS_MS);
}

/* By a keyed hash, so that no peer can choose whose share it uses up. */
static unsigned group_of(const dxpu_tcp_listener *l, const struct sockaddr *from)
{
    dxpu_udp_address a;
    uint64_t where = 0;
    if (from->sa_family == AF_INET6) {
        memcpy(&a.u.v6, from, sizeof a.u.v6);
        memcpy(&where, &a.u.v6.sin6_addr, sizeof where);
    } else {
        memcpy(&a.u.v4, from, sizeof a.u.v4);
        where = (uint64_t)1 << 32 | a.u.v4.sin_addr.s_addr;
    }
    where = (where ^ l->secret[0]) * (l->secret[1] | 1);
    where = (where ^ where >> 32) * (l->secret[1] | 1);
    return (unsigned)(where >> 56);
}

/* Has this address had more than its share? */
static bool is_greedy(dxpu_tcp_listener *l, const struct sockaddr *from)
{
    uint64_t now = dxpu_udp_now_ns(), *paid = &l->group_paid_ns[group_of(l, from)];
    uint64_t each = 1000000000u * (uint64_t)SHARE / l->set.accepts, most = l->set.connections;
    most = most > l->set.accepts ? most : l->set.accepts;
    most = most < (uint64_t)AHEAD_S * l->set.accepts ? most : (uint64_t)AHEAD_S * l->set.accepts;
    if (*paid > now + most * each)
        return true;
    *paid = (*paid > now ? *paid : now) + each;
    return false;
}

/* At once, so that who is behind him in the kernel's queue comes up; nothing of it stays. */
static void send_away(dxpu_tcp_listener *l, evutil_socket_t fd)
{
    struct linger none = { 1, 0 };
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    (void)evutil_closesocket(fd);
    l->limited++;
    if (++l->away == AWAY)
        pause_listening(l, AWAY_MS);
}

static void on_accept(struct evconnlistener *listen, evutil_socket_t fd, struct sockaddr *from,
                      int len, void *user)
{
    dxpu_tcp_listener *l = user;
    dxpu_tcp_conn *c;
    (void)listen;
    (void)len;
    if (is_greedy(l, from)) {
        send_away(l, fd);
        return;
    }
    l->accepted++;
    pay_accept(l);
    if (l->count >= l->set.connections)
        displace(l);
    c = conn_new(l->base, fd, &l->set, &l->cb);
    if (!c)
        return;
    c->listener = l;
    c->drained = l->drained;
    c->next = l->conns;
    c->link = &l->conns;
    if (c->next)
        c->next->link = &c->next;
    l->conns = c;
    l->count++;
    c->busy++;
    opened(c);
    if (!c->over)
        start(c);
    leave(c, NULL);
}

/* Out of descriptors, mostly: what waits stays in the kernel's queue for a while. */
static void on_accept_error(struct evconnlistener *listen, void *user)
{
    dxpu_tcp_listener *l = user;
    struct timeval retry = milliseconds(RETRY_MS);
    displace(l);
    (void)evconnlistener_disable(listen);
    (void)event_add(l->retry, &retry);
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)evconnlistener_enable(((dxpu_tcp_listener *)user)->listen);
}

static const char *listen_at(dxpu_tcp_listener *l, const dxpu_udp_address *local)
{
    int fd, one = 1;
    fd = socket(local->u.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return "no TCP socket; is this address family enabled?";
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (local->u.any.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    l->local.len = sizeof l->local.u;
    if (bind(fd, &local->u.any, local->len) || listen(fd, SOMAXCONN) ||
        getsockname(fd, &l->local.u.any, &l->local.len)) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return saved == EADDRINUSE ? "port in use; stop the other program or choose another port"
               : saved == EACCES   ? "ports below 1024 are not for a program without capabilities; "
                                     "choose a higher one"
                                   : "cannot bind; is this an address of this machine?";
    }
    l->listen = evconnlistener_new(l->base, on_accept, l, LEV_OPT_CLOSE_ON_FREE, 0, fd);
    if (!l->listen) {
        (void)close(fd);
        return "libevent refuses the socket";
    }
    evconnlistener_set_error_cb(l->listen, on_accept_error);
    return NULL;
}

dxpu_tcp_listener *dxpu_tcp_listen(struct event_base *base, const dxpu_udp_address *local,
                                   const dxpu_tcp_settings *s, const dxpu_tcp_callbacks *cb,
                                   const char **why)
{
    dxpu_tcp_listener *l = calloc(1, sizeof *l);
    if (!l || s->connections < 1 || s->accepts < 1 ||
        getentropy(l->secret, sizeof l->secret) != 0) {
        *why = l ? "a value is out of range" : "out of memory";
        free(l);
        return NULL;
    }
    l->base = base;
    l->set = *s;
    l->cb = *cb;
    l->retry = event_new(base, -1, 0, on_retry, l);
    *why = l->retry ? listen_at(l, local) : "out of memory";
    if (*why) {
        int saved = errno;
        if (l->retry)
            event_free(l->retry);
        free(l);
        errno = saved;
        return NULL;
    }
    return l;
}

void dxpu_tcp_unlisten(dxpu_tcp_listener *l)
{
    if (!l)
        return;
    evconnlistener_free(l->listen);
    event_free(l->retry);
    while (l->conns)
        dxpu_tcp_drop(l->conns, "closed here");
    free(l);
}

const dxpu_udp_address *dxpu_tcp_local(const dxpu_tcp_listener *l)
{
    return &l->local;
}

uint64_t dxpu_tcp_accepted(const dxpu_tcp_listener *l)
{
    return l->accepted;
}

uint64_t dxpu_tcp_displaced(const dxpu_tcp_listener *l)
{
    return l->displaced;
}

uint64_t dxpu_tcp_limited(const dxpu_tcp_listener *l)
{
    return l->limited;
}

void dxpu_tcp_on_drained(dxpu_tcp_listener *l, void (*drained)(void *context, dxpu_tcp_conn *c))
{
    l->drained = drained;
}
