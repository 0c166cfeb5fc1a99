/* control_client.c - see control_client.h
   SPDX-License-Identifier: MIT */
#include "control_client.h"

#include <event2/buffer.h>

enum { PENDING_MAX = 1 << 20 };

static void *on_opened(void *user, secure_conn *conn)
{
    control_client *c = user;
    c->open = true;
    secure_touch(conn); /* from here on the answer's time-out counts */
    (void)event_base_loopbreak(c->base);
    return c;
}

static void give_up(control_client *c, const char *why)
{
    c->over = true;
    c->why = why;
    if (c->conn)
        secure_drop(c->conn, why);
}

/* Look at what came, up to the answer: what follows it waits, for the answer is a view. */
static void look(control_client *c)
{
    dxpu_bytes in;
    size_t there = evbuffer_get_length(c->pending);
    dxpu_control_frame f;
    int rc = DXPU_OK;
    in.ptr = evbuffer_pullup(c->pending, -1);
    in.len = there;
    while (!c->answered && (rc = dxpu_control_take(&c->stream, &in, &f)) != DXPU_E_AGAIN) {
        if (rc == DXPU_OK)
            rc = dxpu_control_decode(&f, &c->answer);
        if (rc == DXPU_E_KIND && (f.type & DXPU_CONTROL_IGNORABLE))
            continue;
        if (rc != DXPU_OK) {
            give_up(c, rc == DXPU_E_VERSION ? "it uses another version of control messages"
                                            : "it is not a proxy's control port");
            return;
        }
        /* request 0: said unasked, before the connection ends */
        c->answered = c->answer.request == c->request ||
                      (c->answer.request == 0 && c->answer.type == DXPU_CONTROL_ERROR);
    }
    (void)evbuffer_drain(c->pending, there - in.len);
}

static void on_control_bytes(void *context, secure_conn *conn, dxpu_bytes in)
{
    control_client *c = context;
    (void)conn;
    if (evbuffer_get_length(c->pending) > PENDING_MAX || evbuffer_add(c->pending, in.ptr, in.len))
        give_up(c, "it sent an unexpected message");
    (void)event_base_loopbreak(c->base);
}

static void on_closed(void *context, secure_conn *conn, const char *why)
{
    control_client *c = context;
    (void)conn;
    c->conn = NULL;
    if (!c->over) /* who has keys says nothing to who has none */
        c->why = c->plain && c->open && c->request == 1
                     ? "it ends the connection; if it has keys, give its --peer"
                     : why;
    c->over = true; /* what came before is still looked at */
    (void)event_base_loopbreak(c->base);
}

/* Until *done, the end of the connection, or that time. */
static void run_until(control_client *c, uint64_t end, const bool *done)
{
    uint64_t now;
    for (;;) {
        uint64_t us;
        struct timeval tv;
        if (done == &c->answered)
            look(c);
        now = dxpu_udp_now_ns();
        if (*done || c->over || now >= end)
            return;
        us = (end - now) / 1000 + 1;
        tv.tv_sec = (time_t)(us / 1000000);
        tv.tv_usec = (suseconds_t)(us % 1000000);
        (void)event_base_loopexit(c->base, &tv);
        if (event_base_dispatch(c->base) < 0)
            return;
    }
}

static uint64_t in_ms(unsigned ms)
{
    return dxpu_udp_now_ns() + ms * 1000000ull;
}

const char *control_client_ask(control_client *c, dxpu_control *m)
{
    static uint8_t out[DXPU_CONTROL_HEADER_BYTES + 1024];
    size_t len = 0;
    m->request = ++c->request;
    c->answered = false;
    if (dxpu_control_encode(m, out, sizeof out, &len) != DXPU_OK)
        return "the request does not fit into a message";
    if (c->over || !secure_send(c->conn, out, len))
        return c->why ? c->why : "connection lost";
    run_until(c, in_ms(c->timeout_ms), &c->answered);
    if (c->answered)
        return NULL;
    return c->over ? c->why : "it does not answer";
}

const char *control_client_open(control_client *c, const dxpu_udp_address *to, const key_options *k,
                                unsigned timeout_ms)
{
    static const char name[] = "dxpu " DXPU_VERSION;
    secure_callbacks cb = { NULL, on_opened, on_control_bytes, on_closed };
    dxpu_tcp_settings set;
    dxpu_control m;
    const char *why = "out of memory";
    memset(c, 0, sizeof *c);
    cb.user = c;
    c->timeout_ms = timeout_ms;
    c->plain = !k->own;
    (void)dxpu_control_stream_init(&c->stream, c->room, sizeof c->room);
    dxpu_tcp_settings_default(&set);
    set.greet_ms = timeout_ms;
    set.stall_ms = timeout_ms;
    c->base = event_base_new();
    c->pending = evbuffer_new();
    c->conn = c->base && c->pending
                  ? secure_connect(c->base, to, &set, k->own, k->server, &cb, &why)
                  : NULL;
    if (!c->conn)
        return why;
    run_until(c, in_ms(timeout_ms), &c->open);
    if (!c->open)
        return c->over ? c->why : "no answer";
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_HELLO;
    m.u.hello.role = DXPU_CONTROL_ROLE_COMMAND;
    m.u.hello.version_min = m.u.hello.version_max = DXPU_CONTROL_VERSION;
    m.u.hello.name.ptr = (const uint8_t *)name;
    m.u.hello.name.len = sizeof name - 1;
    why = control_client_ask(c, &m);
    if (why)
        return why;
    if (c->answer.type == DXPU_CONTROL_ERROR)
        return dxpu_control_code_text(c->answer.u.error.code);
    if (c->answer.type != DXPU_CONTROL_HELLO)
        return "it is not a proxy's control port";
    c->hello = c->answer.u.hello;
    memcpy(c->name, c->hello.name.ptr, c->hello.name.len); /* 255 at most */
    return NULL;
}

void control_client_pause(control_client *c, unsigned ms)
{
    bool never = false;
    run_until(c, in_ms(ms), &never);
}

void control_client_close(control_client *c)
{
    if (c->conn)
        secure_drop(c->conn, "closed here");
    if (c->pending)
        evbuffer_free(c->pending);
    if (c->base)
        event_base_free(c->base);
}
