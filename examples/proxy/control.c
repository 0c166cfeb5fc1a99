/* control.c - see control.h
   SPDX-License-Identifier: MIT */
#include "control.h"

#include <errno.h>
#include <stdlib.h>

enum { REQUEST_BYTES = 1024 /* longest body of a request */ };

/* Slots in one answer: as many as a body holds. */
enum { SLOTS_MAX = (DXPU_CONTROL_BODY_MAX - 16) / DXPU_CONTROL_SLOT_BYTES };

#define CONTROL_COUNTERS(X)                                                                        \
    X(requests, "messages understood")                                                             \
    X(refused, "of them answered with an error")                                                   \
    X(bad, "messages not understood")                                                              \
    X(ignored, "messages of an ignorable type")
#define CONTROL_FIELD(name, text) uint64_t name;

struct client;

struct control {
    control_proxy proxy;
    dxpu_tcp_listener *listener;
    char name[64];
    struct {
        CONTROL_COUNTERS(CONTROL_FIELD)
    } count;
    /* The picture that is being fetched, in pieces, by the connection that asked last. */
    struct client *viewer; /* NULL: none */
    uint16_t png_slot;
    uint8_t *png;
    size_t png_bytes;
    uint8_t entries[SLOTS_MAX * DXPU_CONTROL_SLOT_BYTES];
    uint8_t out[DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX];
};

/* One connection. */
typedef struct client {
    control *owner;
    bool greeted;
    dxpu_control_stream stream;
    uint8_t room[DXPU_CONTROL_HEADER_BYTES + REQUEST_BYTES];
} client;

/* ==== Addresses =============================================================================== */

void control_address_from(const dxpu_udp_address *a, dxpu_control_address *out)
{
    memset(out, 0, sizeof *out);
    if (a->u.any.sa_family == AF_INET) {
        out->family = 4;
        out->port = ntohs(a->u.v4.sin_port);
        memcpy(out->ip, &a->u.v4.sin_addr, 4);
    } else if (a->u.any.sa_family == AF_INET6) {
        out->family = 6;
        out->port = ntohs(a->u.v6.sin6_port);
        memcpy(out->ip, &a->u.v6.sin6_addr, 16);
    }
}

void control_address_to(const dxpu_control_address *a, dxpu_udp_address *out)
{
    memset(out, 0, sizeof *out);
    if (a->family == 4) {
        out->u.v4.sin_family = AF_INET;
        out->u.v4.sin_port = htons(a->port);
        memcpy(&out->u.v4.sin_addr, a->ip, 4);
        out->len = sizeof out->u.v4;
    } else if (a->family == 6) {
        out->u.v6.sin6_family = AF_INET6;
        out->u.v6.sin6_port = htons(a->port);
        memcpy(&out->u.v6.sin6_addr, a->ip, 16);
        out->len = sizeof out->u.v6;
    }
}

unsigned control_box_from(const dxpu_control_attach *m, dxpu_udp_address *out)
{
    control_address_to(&m->box, &out[0]);
    for (unsigned i = 0; i < m->more; i++)
        control_address_to(&m->path[i], &out[i + 1]);
    return m->more + 1u;
}

/* ==== Answers ================================================================================= */

static dxpu_bytes view(const char *text)
{
    dxpu_bytes b = { (const uint8_t *)text, strlen(text) };
    return b;
}

static void reply(control *o, dxpu_tcp_conn *conn, const dxpu_control *m)
{
    size_t len = 0;
    if (dxpu_control_encode(m, o->out, sizeof o->out, &len) == DXPU_OK)
        (void)dxpu_tcp_send(conn, o->out, len); /* else the connection is over already */
}

static void send_error(control *o, dxpu_tcp_conn *conn, uint32_t request, unsigned code,
                       uint16_t slot)
{
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_ERROR;
    m.request = request;
    m.u.error.code = (uint16_t)code;
    m.u.error.slot = slot;
    m.u.error.text = view(dxpu_control_code_text(code));
    o->count.refused++;
    reply(o, conn, &m);
}

static void send_hello(control *o, dxpu_tcp_conn *conn, uint32_t request)
{
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_HELLO;
    m.request = request;
    m.u.hello.role = o->proxy.role;
    m.u.hello.version_min = m.u.hello.version_max = DXPU_CONTROL_VERSION;
    m.u.hello.node = o->proxy.node;
    m.u.hello.slots = o->proxy.slots;
    m.u.hello.name = view(o->name);
    reply(o, conn, &m);
}

static void describe(const control *o, unsigned number, dxpu_control_slot *s)
{
    memset(s, 0, sizeof *s);
    s->number = (uint16_t)number;
    o->proxy.slot(o->proxy.user, number, s);
}

static void send_done(control *o, dxpu_tcp_conn *conn, uint32_t request, uint16_t slot)
{
    dxpu_control m;
    dxpu_control_slot s;
    describe(o, slot, &s);
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_DONE;
    m.request = request;
    m.u.done.slot = slot;
    m.u.done.state = s.state;
    m.u.done.epoch = s.epoch;
    reply(o, conn, &m);
}

static void send_status(control *o, dxpu_tcp_conn *conn, uint32_t request,
                        const dxpu_control_ask *ask)
{
    unsigned there = o->proxy.slots + 1u - ask->first;
    unsigned count = ask->count && ask->count < there ? ask->count : there;
    dxpu_control m;
    if (count > SLOTS_MAX)
        count = SLOTS_MAX;
    for (unsigned i = 0; i < count; i++) {
        dxpu_control_slot s;
        describe(o, ask->first + i, &s);
        dxpu_control_slot_encode(&s, o->entries + i * DXPU_CONTROL_SLOT_BYTES);
    }
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_STATUS;
    m.request = request;
    m.u.status.role = o->proxy.role;
    m.u.status.node = o->proxy.node;
    m.u.status.total = o->proxy.slots;
    m.u.status.first = ask->first;
    m.u.status.count = (uint16_t)count;
    m.u.status.entry_bytes = DXPU_CONTROL_SLOT_BYTES;
    m.u.status.entries.ptr = o->entries;
    m.u.status.entries.len = (size_t)count * DXPU_CONTROL_SLOT_BYTES;
    reply(o, conn, &m);
}

static void forget_picture(control *o)
{
    free(o->png);
    o->png = NULL;
    o->viewer = NULL;
}

/* M-23: a piece of the picture that is kept; with the last one it is not kept any more. */
static void send_piece(control *o, dxpu_tcp_conn *conn, uint32_t request, uint32_t offset)
{
    size_t left = o->png_bytes - offset;
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_PICTURE;
    m.request = request;
    m.u.picture.slot = o->png_slot;
    m.u.picture.total = (uint32_t)o->png_bytes;
    m.u.picture.offset = offset;
    m.u.picture.png.ptr = o->png + offset;
    m.u.picture.png.len = left < DXPU_CONTROL_PIECE_MAX ? left : DXPU_CONTROL_PIECE_MAX;
    reply(o, conn, &m);
    if (left <= DXPU_CONTROL_PIECE_MAX)
        forget_picture(o);
}

/* ==== Requests ================================================================================ */

static unsigned do_hello(client *c, const dxpu_control_hello *m)
{
    if (c->greeted)
        return DXPU_CONTROL_CODE_ORDER;
    if (m->version_min > DXPU_CONTROL_VERSION || m->version_max < DXPU_CONTROL_VERSION)
        return DXPU_CONTROL_CODE_VERSION;
    c->greeted = true;
    return DXPU_CONTROL_CODE_NONE;
}

/* What every request about a slot must keep. */
static unsigned check_slot(const control *o, unsigned slot)
{
    return slot > o->proxy.slots ? DXPU_CONTROL_CODE_NO_SLOT : DXPU_CONTROL_CODE_NONE;
}

static unsigned do_change(const control *o, const dxpu_control *m, uint16_t *slot)
{
    unsigned code;
    *slot = m->type == DXPU_CONTROL_ATTACH ? m->u.attach.slot : m->u.detach.slot;
    if (!o->proxy.attach || !o->proxy.detach)
        return DXPU_CONTROL_CODE_ROLE;
    code = check_slot(o, *slot);
    if (code)
        return code;
    return m->type == DXPU_CONTROL_ATTACH ? o->proxy.attach(o->proxy.user, &m->u.attach)
                                          : o->proxy.detach(o->proxy.user, &m->u.detach);
}

/* M-22, M-23 */
static unsigned do_screenshot(client *c, const dxpu_control_screenshot *m)
{
    control *o = c->owner;
    unsigned code;
    if (!o->proxy.screenshot)
        return DXPU_CONTROL_CODE_ROLE;
    code = check_slot(o, m->slot);
    if (code)
        return code;
    if (m->offset == 0) {
        forget_picture(o);
        code = o->proxy.screenshot(o->proxy.user, m->slot, &o->png, &o->png_bytes);
        if (code)
            return code;
        o->viewer = c;
        o->png_slot = m->slot;
    } else if (o->viewer != c || o->png_slot != m->slot) {
        return DXPU_CONTROL_CODE_GONE;
    }
    return m->offset < o->png_bytes ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_MALFORMED;
}

/* Act on a message; false when the connection must end. */
static bool handle(client *c, dxpu_tcp_conn *conn, const dxpu_control *m)
{
    control *o = c->owner;
    uint16_t slot = 0;
    unsigned code = DXPU_CONTROL_CODE_NONE;
    bool hello = m->type == DXPU_CONTROL_HELLO;
    o->count.requests++;
    if (!hello && !c->greeted) {
        code = DXPU_CONTROL_CODE_ORDER; /* M-11 */
    } else if (hello) {
        code = do_hello(c, &m->u.hello);
        if (!code)
            send_hello(o, conn, m->request);
    } else if (m->type == DXPU_CONTROL_ATTACH || m->type == DXPU_CONTROL_DETACH) {
        code = do_change(o, m, &slot);
        if (!code)
            send_done(o, conn, m->request, slot);
    } else if (m->type == DXPU_CONTROL_ASK) {
        slot = m->u.ask.first;
        code = check_slot(o, slot);
        if (!code)
            send_status(o, conn, m->request, &m->u.ask);
    } else if (m->type == DXPU_CONTROL_SCREENSHOT) {
        slot = m->u.screenshot.slot;
        code = do_screenshot(c, &m->u.screenshot);
        if (!code)
            send_piece(o, conn, m->request, m->u.screenshot.offset);
    } else {
        code = DXPU_CONTROL_CODE_TYPE; /* an answer, and nothing was asked */
    }
    if (code)
        send_error(o, conn, m->request, code, slot);
    return code != DXPU_CONTROL_CODE_ORDER && code != DXPU_CONTROL_CODE_VERSION;
}

/* A message that could not be read: M-5, M-6, M-10.  False: the connection must end, there was no
   hello yet. */
static bool handle_bad(client *c, dxpu_tcp_conn *conn, const dxpu_control_frame *f, int error)
{
    control *o = c->owner;
    if (error == DXPU_E_KIND && (f->type & DXPU_CONTROL_IGNORABLE)) {
        o->count.ignored++;
        return c->greeted;
    }
    o->count.bad++;
    send_error(o, conn, f->request,
               error == DXPU_E_KIND   ? DXPU_CONTROL_CODE_TYPE
               : error == DXPU_E_RSVD ? DXPU_CONTROL_CODE_MUST
                                      : DXPU_CONTROL_CODE_MALFORMED,
               0);
    return c->greeted;
}

/* The stream is over: say why as far as there is somebody to understand it (M-3, M-4). */
static void handle_end(client *c, dxpu_tcp_conn *conn, const dxpu_control_frame *f, int error)
{
    c->owner->count.bad++;
    if (error != DXPU_E_MAGIC)
        send_error(
            c->owner, conn, f->request,
            error == DXPU_E_VERSION ? DXPU_CONTROL_CODE_VERSION : DXPU_CONTROL_CODE_MALFORMED, 0);
}

static void on_bytes(void *context, dxpu_tcp_conn *conn, dxpu_bytes in)
{
    client *c = context;
    dxpu_control_frame f;
    dxpu_control m;
    for (;;) {
        int rc = dxpu_control_take(&c->stream, &in, &f);
        if (rc == DXPU_E_AGAIN)
            return;
        if (rc != DXPU_OK) {
            handle_end(c, conn, &f, rc);
            break;
        }
        rc = dxpu_control_decode(&f, &m);
        if (rc == DXPU_OK ? !handle(c, conn, &m) : !handle_bad(c, conn, &f, rc))
            break;
        if (rc == DXPU_OK)
            dxpu_tcp_touch(conn);
    }
    dxpu_tcp_finish(conn);
}

static void *on_opened(void *user, dxpu_tcp_conn *conn)
{
    client *c = calloc(1, sizeof *c);
    (void)conn;
    if (!c)
        return NULL;
    c->owner = user;
    (void)dxpu_control_stream_init(&c->stream, c->room, sizeof c->room); /* room for the header */
    return c;
}

static void on_closed(void *context, dxpu_tcp_conn *conn, const char *why)
{
    client *c = context;
    (void)conn;
    (void)why;
    if (c->owner->viewer == c)
        forget_picture(c->owner);
    free(c);
}

/* ==== Opening ================================================================================= */

control *control_open(struct event_base *base, const char *at, const control_proxy *proxy)
{
    dxpu_tcp_callbacks cb = { NULL, on_opened, on_bytes, on_closed };
    dxpu_tcp_settings set;
    dxpu_udp_address local;
    char text[DXPU_UDP_TEXT_BYTES];
    const char *why = dxpu_tcp_parse(at, &local);
    control *o = why ? NULL : calloc(1, sizeof *o);
    errno = 0;
    if (o) {
        cb.user = o;
        o->proxy = *proxy;
        snprintf(o->name, sizeof o->name, "%s %s", proxy->name, DXPU_VERSION);
        dxpu_tcp_settings_default(&set);
        o->listener = dxpu_tcp_listen(base, &local, &set, &cb, &why);
    }
    if (!o || !o->listener) {
        fprintf(stderr, "%s: --control %s: %s%s%s\n", proxy->name, at, why ? why : "out of memory",
                errno ? ": " : "", errno ? strerror(errno) : "");
        free(o);
        return NULL;
    }
    fprintf(stderr, "%s: control port %s\n", proxy->name,
            dxpu_udp_print(dxpu_tcp_local(o->listener), text));
    return o;
}

void control_close(control *c)
{
    if (!c)
        return;
    dxpu_tcp_unlisten(c->listener);
    free(c);
}

void control_report(const control *c, report *r)
{
    if (!c)
        return;
    report_open(r, "control");
    report_number(r, "connections", dxpu_tcp_accepted(c->listener));
    report_number(r, "displaced", dxpu_tcp_displaced(c->listener));
#define CONTROL_PRINT(name, text) report_number(r, #name, c->count.name);
    CONTROL_COUNTERS(CONTROL_PRINT)
#undef CONTROL_PRINT
    report_close(r);
}
