/* api_server.c - connections of the HTTP server: bytes in, answers out, and what takes too long
   SPDX-License-Identifier: MIT

   Places, silence and readers that do not read are dxpu_tcp.h's; here a connection has requests one
   after the other, and of an answer no more is handed on than its reader takes. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_internal.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TICK_MS = 100,
    IDLE_MS = 60000,      /* between requests */
    KEEP_MS = 15000,      /* a stream is given a comment */
    PIECE_BYTES = 65536,  /* handed on at a time */
    AHEAD_BYTES = 131072, /* handed on and not yet taken */
    SEND_BYTES = AHEAD_BYTES + PIECE_BYTES + 4096
};

uint64_t api_now_ms(void)
{
    return dxpu_udp_now_ns() / 1000000;
}

/* ==== 1  Answers ============================================================================== */

static void count_answer(api_conn *c, unsigned status)
{
    unsigned routes, s = 0;
    const api_route *first = api_routes(&routes);
    while (s < HTTP_STATUSES && http_status(s) != status)
        s++;
    if (s < HTTP_STATUSES)
        c->a->requests[c->route ? (size_t)(c->route - first) : API_ROUTES_MAX][s]++;
}

static void enter(api_conn *c, api_state state)
{
    c->state = state;
    c->since_ms = api_now_ms();
}

/* The answer is out: the next request, or the end. */
static void answered(api_conn *c)
{
    free(c->rest);
    c->rest = NULL;
    if (c->in.request.close) {
        enter(c, API_FINISHED);
        dxpu_tcp_finish(c->tcp);
    } else {
        http_next(&c->in);
        enter(c, API_READING);
    }
}

static void flush(api_conn *c)
{
    while (c->state == API_SENDING && !c->gone && c->rest_at < c->rest_bytes &&
           dxpu_tcp_unsent(c->tcp) < AHEAD_BYTES) {
        size_t left = c->rest_bytes - c->rest_at, n = left < PIECE_BYTES ? left : PIECE_BYTES;
        if (!dxpu_tcp_send(c->tcp, c->rest + c->rest_at, n))
            return;
        c->rest_at += n;
    }
    if (c->state == API_SENDING && !c->gone && c->rest_at == c->rest_bytes)
        answered(c);
}

/* The usual fields.  length: NULL when the end of the connection ends the body. */
static bool send_head(api_conn *c, unsigned status, const char *type, const char *length)
{
    char head[1024], date[40] = "";
    time_t now = time(NULL);
    struct tm tm;
    int n;
    if (gmtime_r(&now, &tm))
        (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    n = snprintf(head, sizeof head,
                 "HTTP/1.1 %u %s\r\nDate: %s\r\n%s%s%s%s%s%s%s%s%s"
                 "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
                 status, http_reason(status), date, type ? "Content-Type: " : "", type ? type : "",
                 type ? "\r\n" : "", length ? "Content-Length: " : "", length ? length : "",
                 length ? "\r\n" : "", c->in.request.close ? "Connection: close\r\n" : "",
                 !c->in.request.close && !c->in.request.minor ? "Connection: keep-alive\r\n" : "",
                 c->fields);
    c->fields[0] = '\0';
    count_answer(c, status);
    return n > 0 && (size_t)n < sizeof head && dxpu_tcp_send(c->tcp, head, (size_t)n);
}

void api_answer(api_conn *c, unsigned status, const char *type, char *text, size_t bytes)
{
    static const char no_memory[] = "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\","
                                    "\"status\":503,\"detail\":\"out of memory\"}";
    char length[24];
    if (!text && status != 204) {
        status = 503;
        type = "application/problem+json";
        text = strdup(no_memory);
        bytes = text ? strlen(text) : 0;
    }
    snprintf(length, sizeof length, "%zu", bytes);
    c->rest = text;
    c->rest_at = 0;
    c->rest_bytes = c->in.request.method == HTTP_HEAD ? 0 : bytes;
    enter(c, API_SENDING);
    if (send_head(c, status, type, status == 204 ? NULL : length))
        flush(c);
}

void api_answer_json(api_conn *c, unsigned status, json_t *j)
{
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    api_answer(c, status, "application/json", text, text ? strlen(text) : 0);
}

void api_stream_begin(api_conn *c, const char *type)
{
    c->in.request.close = true;
    enter(c, API_STREAMING);
    (void)send_head(c, 200, type, NULL);
}

bool api_stream_send(api_conn *c, const char *text, size_t bytes)
{
    c->since_ms = api_now_ms();
    return !c->gone && dxpu_tcp_send(c->tcp, text, bytes);
}

size_t api_unsent(const api_conn *c)
{
    return dxpu_tcp_unsent(c->tcp);
}

/* ==== 2  One connection ======================================================================= */

static void hold(api_conn *c)
{
    c->held++;
}

static void conn_free(api_conn *c)
{
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    if (!c->a->conns)
        (void)event_del(c->a->tick);
    free(c->rest);
    free(c->in.room);
    free(c);
}

static void let_go(api_conn *c)
{
    if (!--c->held && c->gone)
        conn_free(c);
}

/* Requests that are there, one after the other; while their answers are taken. */
static void run(api_conn *c)
{
    while (c->state == API_READING && !c->gone && c->in.len &&
           dxpu_tcp_unsent(c->tcp) < AHEAD_BYTES) {
        int rc = http_read(&c->in);
        if (rc == HTTP_MORE) {
            if (http_has_head(&c->in) && c->in.request.expects) {
                static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
                c->in.request.expects = false;
                (void)dxpu_tcp_send(c->tcp, go_on, sizeof go_on - 1);
            }
            return;
        }
        enter(c, API_HANDLING);
        c->route = NULL;
        c->arg = NULL;
        c->fields[0] = '\0';
        if (rc == HTTP_COMPLETE)
            api_dispatch(c);
        else
            api_problem_http(c, (unsigned)rc);
    }
}

static void *on_opened(void *user, dxpu_tcp_conn *tcp)
{
    api *a = user;
    api_conn *c = calloc(1, sizeof *c);
    char *room = malloc(HTTP_ROOM_BYTES);
    struct timeval tick = { 0, TICK_MS * 1000 };
    if (!c || !room || (!a->conns && event_add(a->tick, &tick))) {
        free(c);
        free(room);
        return NULL;
    }
    c->a = a;
    c->tcp = tcp;
    http_begin(&c->in, room);
    enter(c, API_READING);
    c->next = a->conns;
    c->link = &a->conns;
    if (c->next)
        c->next->link = &c->next;
    a->conns = c;
    return c;
}

static void on_bytes(void *context, dxpu_tcp_conn *tcp, dxpu_bytes in)
{
    api_conn *c = context;
    (void)tcp;
    if (c->state == API_FINISHED || c->state == API_STREAMING)
        return; /* nothing more is read */
    hold(c);
    if (c->state == API_READING && !c->in.len)
        c->since_ms = api_now_ms();
    if (http_put(&c->in, in.ptr, in.len)) {
        run(c);
    } else if (c->state == API_READING) {
        enter(c, API_HANDLING);
        c->route = NULL;
        api_problem_http(c, 413);
    } else {
        dxpu_tcp_drop(c->tcp, "sends requests and reads no answers");
    }
    let_go(c);
}

static void on_drained(void *context, dxpu_tcp_conn *tcp)
{
    api_conn *c = context;
    (void)tcp;
    hold(c);
    if (c->state == API_STREAMING)
        api_stream_pump(c);
    flush(c);
    run(c);
    let_go(c);
}

static void on_closed(void *context, dxpu_tcp_conn *tcp, const char *why)
{
    api_conn *c = context;
    (void)tcp;
    (void)why;
    hold(c);
    c->gone = true;
    let_go(c);
}

/* ==== 3  Time ================================================================================= */

static void look_at(api_conn *c, uint64_t now)
{
    uint64_t took = now > c->since_ms ? now - c->since_ms : 0;
    switch (c->state) {
    case API_READING:
        if (c->in.len && took >= c->a->set.request_ms && !dxpu_tcp_unsent(c->tcp)) {
            enter(c, API_HANDLING);
            c->route = NULL;
            api_problem_http(c, 408);
        } else if (!c->in.len && took >= IDLE_MS) {
            enter(c, API_FINISHED);
            dxpu_tcp_finish(c->tcp);
        }
        break;
    case API_WAITING:
        api_wait_look(c);
        run(c);
        break;
    case API_STREAMING:
        api_stream_pump(c);
        if (!c->gone && took >= KEEP_MS)
            (void)api_stream_send(c, ":\n\n", 3);
        break;
    default:
        break;
    }
}

static void look_at_all(api *a)
{
    uint64_t now = api_now_ms();
    api_conn *next;
    for (api_conn *c = a->conns; c; c = next) {
        hold(c);
        look_at(c, now);
        next = c->next;
        let_go(c);
    }
}

static void on_time(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    look_at_all(user);
}

unsigned api_count_in(const api *a, api_state state)
{
    unsigned n = 0;
    for (const api_conn *c = a->conns; c; c = c->next)
        n += c->state == state && !c->gone;
    return n;
}

/* ==== 4  Listener ============================================================================= */

static bool is_loopback(const dxpu_udp_address *at)
{
    if (at->u.any.sa_family == AF_INET)
        return ntohl(at->u.v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&at->u.v6.sin6_addr);
}

bool api_listen(api *a)
{
    const char *at = a->set.at ? a->set.at : "127.0.0.1:4456";
    dxpu_tcp_callbacks cb = { a, on_opened, on_bytes, on_closed };
    dxpu_tcp_settings set;
    dxpu_udp_address local;
    const char *why = dxpu_tcp_parse_port(at, API_PORT, &local);
    if (!why && !a->set.tokens && !is_loopback(&local))
        why = "others than this machine reach this address; give --tokens FILE, or listen at "
              "127.0.0.1";
    a->loopback = !why && is_loopback(&local);
    a->tick = event_new(a->base, -1, EV_PERSIST, on_time, a);
    a->news = event_new(a->base, -1, 0, on_time, a);
    if (!why && (!a->tick || !a->news))
        why = "out of memory";
    dxpu_tcp_settings_default(&set);
    set.connections = a->set.connections;
    set.send_bytes = SEND_BYTES;
    set.greet_ms = a->set.request_ms + a->set.request_ms / 4; /* 408 comes first */
    set.idle_ms = 0;                                          /* look_at() knows better */
    if (!why)
        a->listener = dxpu_tcp_listen(a->base, &local, &set, &cb, &why);
    if (!a->listener) {
        fprintf(stderr, "HTTP at %s: %s\n", at, why);
        return false;
    }
    dxpu_tcp_on_drained(a->listener, on_drained);
    (void)dxpu_udp_print(dxpu_tcp_local(a->listener), a->address);
    return true;
}

void api_unlisten(api *a)
{
    dxpu_tcp_unlisten(a->listener);
    if (a->tick)
        event_free(a->tick);
    if (a->news)
        event_free(a->news);
}
