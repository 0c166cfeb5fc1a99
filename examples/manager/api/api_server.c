/* api_server.c - libevent's HTTP server, its connections, and what takes too long
   SPDX-License-Identifier: MIT

   evhttp reads requests and writes answers, one at a time on a connection.  What it does not bound
   is bounded here: connections, what one may send ahead, the time of a whole request. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "api_internal.h"
#include "log.h"
#include "sandbox.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TICK_MS = 100,
    IDLE_S = 60,     /* between requests, and while one is read: without a byte */
    STALL_S = 10,    /* an answer waits and nothing of it is taken */
    KEEP_MS = 15000, /* a stream is given a comment */
    DISPLACED_TOLD_MS = 60000,
    AHEAD_BYTES = 131072, /* of requests not yet read; a whole body has to fit */
    HEAD_MAX_BYTES = 16 * 1024,
    LOBBY_MIN = 16,
    STRANGER_TICKS = 10, /* for a first request, when others wait for the place */
    METHODS = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
              EVHTTP_REQ_PATCH | EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS
};
_Static_assert((int)AHEAD_BYTES > (int)API_BODY_MAX_BYTES + (int)HEAD_MAX_BYTES,
               "evhttp wants the whole body in its input");

uint64_t api_now_ms(void)
{
    return dxpu_udp_now_ns() / 1000000;
}

static void enter(api_conn *c, api_state state)
{
    c->state = state;
    c->since_ms = api_now_ms();
}

/* ==== 1  Answers ============================================================================== */

static void count_answer(api_conn *c, unsigned status)
{
    unsigned routes, s = 0;
    const api_route *first = api_routes(&routes);
    while (s < API_STATUSES && api_status(s) != status)
        s++;
    if (s < API_STATUSES)
        c->a->requests[c->route ? (size_t)(c->route - first) : API_ROUTES_MAX][s]++;
}

void api_add_field(api_conn *c, const char *name, const char *value)
{
    (void)evhttp_add_header(evhttp_request_get_output_headers(c->request), name, value);
}

static void usual_fields(api_conn *c, const char *type)
{
    if (type)
        api_add_field(c, "Content-Type", type);
    api_add_field(c, "Cache-Control", "no-store");
    api_add_field(c, "X-Content-Type-Options", "nosniff");
}

static void free_text(const void *text, size_t bytes, void *user)
{
    (void)text;
    (void)bytes;
    free(user);
}

void api_answer(api_conn *c, unsigned status, const char *type, char *text, size_t bytes)
{
    static const char no_memory[] = "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\","
                                    "\"status\":503,\"detail\":\"out of memory\"}";
    struct evbuffer *body = evbuffer_new();
    bool bodyless = status == 204 || c->head.method == EVHTTP_REQ_HEAD;
    char length[24];
    if (!text && status != 204) {
        status = 503;
        type = "application/problem+json";
        text = strdup(no_memory);
        bytes = text ? strlen(text) : 0;
    }
    if (!body || (text && evbuffer_add_reference(body, text, bytes, free_text, text))) {
        free(text);
        if (body)
            evbuffer_free(body);
        enter(c, API_LOST);
        return;
    }
    usual_fields(c, type);
    snprintf(length, sizeof length, "%zu", bytes);
    if (status != 204)
        api_add_field(c, "Content-Length", length);
    count_answer(c, status);
    api_tell_asked(c, status);
    enter(c, API_SENDING);
    evhttp_send_reply(c->request, (int)status, api_reason(status), bodyless ? NULL : body);
    evbuffer_free(body);
}

void api_answer_json(api_conn *c, unsigned status, json_t *j)
{
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    api_answer(c, status, "application/json", text, text ? strlen(text) : 0);
}

void api_stream_begin(api_conn *c, const char *type)
{
    api_add_field(c, "Connection", "close");
    usual_fields(c, type);
    count_answer(c, 200);
    enter(c, API_STREAMING);
    evhttp_send_reply_start(c->request, 200, api_reason(200));
}

static void on_drained(struct evhttp_connection *http, void *user)
{
    (void)http;
    api_stream_pump(user);
}

bool api_stream_send(api_conn *c, const char *text, size_t bytes)
{
    struct evbuffer *more = evbuffer_new();
    bool good = more && !evbuffer_add(more, text, bytes);
    if (good)
        evhttp_send_reply_chunk_with_cb(c->request, more, on_drained, c);
    if (more)
        evbuffer_free(more);
    c->since_ms = c->heard_ms = api_now_ms();
    return good;
}

void api_end_streams(api *a)
{
    for (api_conn *c = a->conns; c; c = c->next) {
        if (c->state == API_STREAMING)
            enter(c, API_LOST);
    }
}

size_t api_unsent(const api_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* ==== 2  Requests ============================================================================= */

/* The answer is out; evhttp frees the request, and reads the next one or closes. */
static void on_answered(struct evhttp_request *q, void *user)
{
    api_conn *c = user;
    (void)q;
    c->request = NULL;
    evhttp_connection_set_timeout(c->http, IDLE_S);
    enter(c, API_READING);
    if (!evbuffer_get_length(bufferevent_get_input(c->bev)))
        c->since_ms = 0;
}

/* evhttp does not read while a request has no answer, and so would not see that its client has
   gone.  It must not see bytes either, for it takes those for a mistake of its own. */
static void watch_for_end(api_conn *c)
{
    bufferevent_data_cb written;
    bufferevent_event_cb event;
    void *user;
    bufferevent_getcb(c->bev, NULL, &written, &event, &user);
    bufferevent_setcb(c->bev, NULL, written, event, user);
    (void)bufferevent_enable(c->bev, EV_READ);
}

static void adopt(api *a);

static void on_request(struct evhttp_request *q, void *user)
{
    static const struct timeval stall = { STALL_S, 0 };
    api *a = user;
    api_conn *c;
    unsigned refused;
    adopt(a);
    c = a->conns;
    while (c && c->http != evhttp_request_get_connection(q))
        c = c->next;
    if (!c) {
        evhttp_send_error(q, HTTP_SERVUNAVAIL, NULL); /* there was no memory for it */
        return;
    }
    c->request = q;
    c->route = NULL;
    memset(&c->caller, 0, sizeof c->caller); /* anonymous, until it is known */
    c->arg[0] = '\0';
    evhttp_request_set_on_complete_cb(q, on_answered, c);
    bufferevent_set_timeouts(c->bev, NULL,
                             &stall); /* nothing is to be said to a wait or a stream */
    enter(c, API_HANDLING);
    refused = api_head_read(&c->head, q);
    if (refused)
        api_problem_head(c, refused);
    else
        api_dispatch(c);
    if (a->paused) /* it may be known now */
        event_active(a->news, EV_TIMEOUT, 0);
    if (c->state == API_WAITING)
        watch_for_end(c);
}

/* ==== 3  Connections ========================================================================== */

static void conn_free(api_conn *c)
{
    api *a = c->a;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    if (!--a->count)
        (void)event_del(a->tick);
    if (a->paused)
        event_active(a->news, EV_TIMEOUT, 0);
    free(c);
}

static void on_bytes(struct evbuffer *in, const struct evbuffer_cb_info *info, void *user)
{
    api_conn *c = user;
    (void)in;
    if (!info->n_added)
        return;
    c->heard_ms = api_now_ms();
    if (c->state == API_READING && !c->since_ms)
        c->since_ms = c->heard_ms;
}

static void on_closed(struct evhttp_connection *http, void *user)
{
    api_conn *c = user;
    (void)http;
    if (c->state == API_WAITING) /* what it asked for was done, whoever hears of it: S-130 */
        api_tell_asked(c, c->u.wait.status);
    (void)evbuffer_remove_cb(bufferevent_get_input(c->bev), on_bytes, c);
    /* evhttp leaves a request without an answer to its user, when its client goes */
    if (c->request && !evhttp_request_get_connection(c->request))
        evhttp_request_free(c->request);
    conn_free(c);
}

static void name_client(api_conn *c)
{
    dxpu_udp_address a = { .len = sizeof a.u };
    if (!getpeername(bufferevent_getfd(c->bev), &a.u.any, &a.len))
        (void)dxpu_udp_print(&a, c->from);
}

/* evhttp reports no new connection, only asks for its bufferevent, and makes the rest of it then:
   what its callbacks are given. */
static void adopt(api *a)
{
    api_conn *c = a->fresh;
    bufferevent_event_cb event;
    void *http;
    int one = 1;
    if (!c)
        return;
    a->fresh = NULL;
    bufferevent_getcb(c->bev, NULL, NULL, &event, &http);
    (void)bufferevent_decref(c->bev);
    if (!event) { /* it could not be made */
        conn_free(c);
        return;
    }
    (void)setsockopt(bufferevent_getfd(c->bev), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->http = http;
    name_client(c);
    evhttp_connection_set_closecb(c->http, on_closed, c);
}

/* Between two requests: its client loses nothing when it is closed. */
static bool is_idle(const api_conn *c)
{
    return c->state == API_READING && !c->since_ms;
}

static bool is_of(const api_conn *c, const api_caller *who)
{
    return c->known.role == who->role && !strcmp(c->known.tenant, who->tenant);
}

static void displace(api *a, const api_conn *c)
{
    uint64_t now = api_now_ms();
    a->displaced++;
    if (now >= a->displaced_told_ms) {
        log_warning("HTTP: %s %s was closed to make room, as were %llu others before; raise "
                    "--http-connections (%u)",
                    c->known.role ? "the idle connection of" : "the connection without a token of",
                    c->from, (unsigned long long)(a->displaced - 1), a->set.connections);
        a->displaced_told_ms = now + DISPLACED_TOLD_MS;
    }
    evhttp_connection_free(c->http);
}

static unsigned share(unsigned most)
{
    return (most + 3) / 4;
}

/* Connections that have a place. */
typedef struct use {
    unsigned all, others, own; /* others: not operators'; own: of one caller */
} use;

static void add_use(use *u, const api_conn *o, const api_caller *who)
{
    u->all++;
    u->others += o->known.role != API_OPERATOR;
    u->own += is_of(o, who);
}

/* Operators may have all places, others a quarter each and three together. */
static bool has_place(const use *u, const api_caller *who, unsigned most)
{
    return u->all < most &&
           (who->role == API_OPERATOR || (u->own < share(most) && u->others < most - most / 4));
}

/* Of those that are idle, and whose closing makes room for the caller, the longest silent one. */
static api_conn *find_idle(const api *a, const api_caller *who, const api_conn *but, bool own)
{
    api_conn *found = NULL;
    for (api_conn *o = a->conns; o; o = o->next) {
        bool fits =
            own ? is_of(o, who) : who->role == API_OPERATOR || o->known.role != API_OPERATOR;
        if (o != but && o->known.role && is_idle(o) && fits &&
            (!found || o->heard_ms <= found->heard_ms))
            found = o;
    }
    return found;
}

bool api_conn_known(api_conn *c)
{
    api *a = c->a;
    unsigned most = a->set.connections;
    bool bounded = c->caller.role != API_OPERATOR;
    use u = { 0, 0, 0 };
    for (const api_conn *o = a->conns; o; o = o->next) {
        if (o != c && o->known.role)
            add_use(&u, o, &c->caller);
    }
    if (!has_place(&u, &c->caller, most)) {
        const api_conn *idle = find_idle(a, &c->caller, c, bounded && u.own >= share(most));
        if (!idle)
            return false;
        displace(a, idle);
    }
    c->known = c->caller;
    /* Whoever has many places keeps none while it says nothing. */
    if (u.own >= (bounded ? share(most) : most) / 2 || u.all >= most - most / 4)
        api_add_field(c, "Connection", "close");
    return true;
}

unsigned api_lobby(unsigned connections)
{
    return share(connections) < LOBBY_MIN ? LOBBY_MIN : share(connections);
}

static unsigned count_unknown(const api *a)
{
    unsigned n = 0;
    for (const api_conn *c = a->conns; c; c = c->next)
        n += !c->known.role;
    return n;
}

/* A client without a good token that was answered, or has had time to send its request. */
static api_conn *find_stranger(const api *a)
{
    api_conn *found = NULL;
    for (api_conn *c = a->conns; c; c = c->next) {
        unsigned ticks = a->ticks - c->accepted_tick; /* none passes while the loop stands still */
        if (!c->known.role && c->http && (is_idle(c) || ticks >= STRANGER_TICKS) &&
            (!found || ticks >= a->ticks - found->accepted_tick))
            found = c;
    }
    return found;
}

/* While there is no place for one more whose token is not known, the system queues them: each has
   STRANGER_TICKS for its request. */
static void admit(api *a)
{
    unsigned unknown = count_unknown(a), most = api_lobby(a->set.connections);
    while (unknown >= most) {
        const api_conn *c = find_stranger(a);
        if (!c)
            break;
        displace(a, c);
        unknown--;
    }
    if (unknown < most) /* out of memory: with the next change of a connection, or tick */
        a->paused = evconnlistener_enable(a->listener) != 0;
}

bool api_has_room(const api_conn *c, api_state state, unsigned most)
{
    use u = { 0, 0, 0 };
    for (const api_conn *o = c->a->conns; o; o = o->next) {
        if (o->state == state)
            add_use(&u, o, &c->known);
    }
    return has_place(&u, &c->known, most);
}

static struct bufferevent *on_accept(struct event_base *base, void *user)
{
    static const struct timeval tick = { 0, TICK_MS * 1000 };
    api *a = user;
    api_conn *c = calloc(1, sizeof *c);
    struct bufferevent *bev = bufferevent_socket_new(base, -1, 0);
    adopt(a);
    a->accepted++;
    if (!c || !bev || !evbuffer_add_cb(bufferevent_get_input(bev), on_bytes, c) ||
        (!a->count && event_add(a->tick, &tick))) {
        if (bev)
            bufferevent_free(bev);
        free(c);
        return NULL; /* evhttp makes one of its own, and on_request() does not know it */
    }
    bufferevent_setwatermark(bev, EV_READ, 0, AHEAD_BYTES);
    bufferevent_incref(bev); /* until it is known whether evhttp keeps it */
    c->a = a;
    c->bev = bev;
    c->heard_ms = api_now_ms();
    c->accepted_tick = a->ticks;
    enter(c, API_READING);
    c->next = a->conns;
    c->link = &a->conns;
    if (c->next)
        c->next->link = &c->next;
    a->conns = a->fresh = c;
    a->count++;
    if (count_unknown(a) >= api_lobby(a->set.connections)) {
        a->paused = true;
        (void)evconnlistener_disable(a->listener);
    }
    event_active(a->news, EV_TIMEOUT, 0);
    return bev;
}

/* ==== 4  Time ================================================================================= */

static void look_at(api_conn *c, uint64_t now)
{
    uint64_t took = now > c->since_ms ? now - c->since_ms : 0;
    switch (c->state) {
    case API_READING:
        if (c->since_ms && took >= c->a->set.request_ms)
            evhttp_connection_free(c->http);
        break;
    case API_WAITING:
        api_wait_look(c);
        break;
    case API_STREAMING:
        if (c->caller.expires_unix_s && (uint64_t)time(NULL) >= c->caller.expires_unix_s) {
            enter(c, API_LOST); /* the token holds no longer */
            break;
        }
        api_stream_pump(c);
        if (took >= KEEP_MS)
            (void)api_stream_send(c, ":\n\n", 3);
        break;
    case API_LOST:
        evhttp_connection_free(c->http);
        break;
    default:
        break;
    }
}

static void on_time(evutil_socket_t fd, short what, void *user)
{
    api *a = user;
    uint64_t now = api_now_ms();
    api_conn *next;
    (void)fd;
    (void)what;
    adopt(a);
    for (api_conn *c = a->conns; c; c = next) {
        next = c->next;
        look_at(c, now);
    }
    if (a->paused)
        admit(a);
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
    ((api *)user)->ticks++;
    on_time(fd, what, user);
}

unsigned api_count_in(const api *a, api_state state)
{
    unsigned n = 0;
    for (const api_conn *c = a->conns; c; c = c->next)
        n += c->state == state;
    return n;
}

/* ==== 5  Listener ============================================================================= */

static bool is_loopback(const dxpu_udp_address *at)
{
    if (at->u.any.sa_family == AF_INET)
        return ntohl(at->u.v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&at->u.v6.sin6_addr);
}

/* NULL, or what is wrong. */
static const char *listen_at(api *a, dxpu_udp_address *local)
{
    unsigned flags = LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC |
                     (local->u.any.sa_family == AF_INET6 ? LEV_OPT_BIND_IPV6ONLY : 0);
    struct evconnlistener *l = evconnlistener_new_bind(a->base, NULL, NULL, flags, SOMAXCONN,
                                                       &local->u.any, (int)local->len);
    if (!l)
        return errno == EADDRINUSE ? "port in use; stop the other program or choose another port"
               : errno == EACCES   ? "ports below 1024 are not for a program without capabilities; "
                                     "choose a higher one"
                                   : "cannot bind; is this an address of this machine?";
    if (!evhttp_bind_listener(a->http, l)) {
        evconnlistener_free(l);
        return "out of memory";
    }
    a->listener = l;
    local->len = sizeof local->u;
    if (getsockname(evconnlistener_get_fd(l), &local->u.any, &local->len))
        return "libevent's socket has no address";
    (void)dxpu_udp_print(local, a->address);
    return NULL;
}

static const char *serve(api *a, dxpu_udp_address *local)
{
    a->tick = event_new(a->base, -1, EV_PERSIST, on_tick, a);
    a->news = event_new(a->base, -1, 0, on_time, a);
    a->http = evhttp_new(a->base);
    if (!a->tick || !a->news || !a->http)
        return "out of memory";
    evhttp_set_allowed_methods(a->http, METHODS);
    evhttp_set_max_headers_size(a->http, HEAD_MAX_BYTES);
    evhttp_set_max_body_size(a->http, API_BODY_MAX_BYTES);
    (void)evhttp_set_flags(a->http, EVHTTP_SERVER_LINGERING_CLOSE); /* or 413 is lost in a reset */
    evhttp_set_timeout(a->http, IDLE_S);
    evhttp_set_default_content_type(a->http, NULL);
    evhttp_set_bevcb(a->http, on_accept, a);
    evhttp_set_gencb(a->http, on_request, a);
    return listen_at(a, local);
}

/* A disconnected client makes the write fail instead of ending the program. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

const char *api_check(const char *at)
{
    static char text[200];
    dxpu_udp_address local;
    const char *why = dxpu_tcp_parse_port(at, API_PORT, &local);
    snprintf(text, sizeof text, "--http: %s", why ? why : "");
    return why && why != dxpu_udp_unresolved ? text : NULL;
}

bool api_listen(api *a, bool *wrong)
{
    const char *at = a->set.at ? a->set.at : "127.0.0.1:4456";
    dxpu_udp_address local;
    const char *why = dxpu_tcp_parse_port(at, API_PORT, &local);
    *wrong = !why && !a->set.tokens && !is_loopback(&local);
    if (*wrong)
        why = "other machines can reach this address; give --tokens FILE, or listen at 127.0.0.1";
    a->loopback = !why && is_loopback(&local);
    errno = 0;
    ignore_sigpipe();
    if (!why)
        why = serve(a, &local);
    if (why)
        log_error("HTTP at %s: %s%s", at, why, sandbox_hint(errno));
    return !why;
}

void api_unlisten(api *a)
{
    adopt(a);
    if (a->http)
        evhttp_free(a->http);
    if (a->tick)
        event_free(a->tick);
    if (a->news)
        event_free(a->news);
}
