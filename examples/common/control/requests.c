/* requests.c - see requests.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Addresses   2 Answers   3 Requests   4 Connections   5 Opening */
#include "control_internal.h"

#include <stdlib.h>

/* ==== 1  Addresses ============================================================================ */

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

/* ==== 2  Answers ============================================================================== */

static dxpu_bytes view(const char *text)
{
    dxpu_bytes b = { (const uint8_t *)text, strlen(text) };
    return b;
}

bool requests_send(requests *o, secure_conn *conn, const dxpu_control *m)
{
    size_t len = 0;
    return dxpu_control_encode(m, o->out, sizeof o->out, &len) == DXPU_OK &&
           secure_send(conn, o->out, len);
}

static void reply(requests *o, secure_conn *conn, const dxpu_control *m)
{
    (void)requests_send(o, conn, m); /* else the connection is over already */
}

static void send_error(requests *o, secure_conn *conn, uint32_t request, unsigned code,
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

void requests_greet(requests *o, secure_conn *conn, uint32_t request)
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

static void describe(const requests *o, unsigned number, dxpu_control_slot *s)
{
    memset(s, 0, sizeof *s);
    s->number = (uint16_t)number;
    o->proxy.slot(o->proxy.user, number, s);
}

static void send_done(requests *o, secure_conn *conn, uint32_t request, uint16_t slot)
{
    dxpu_control m;
    dxpu_control_slot s;
    memset(&s, 0, sizeof s);
    if (slot) /* a drain may be about all */
        describe(o, slot, &s);
    memset(&m, 0, sizeof m);
    m.type = DXPU_CONTROL_DONE;
    m.request = request;
    m.u.done.slot = slot;
    m.u.done.state = s.state;
    m.u.done.epoch = s.epoch;
    reply(o, conn, &m);
}

static void send_status(requests *o, secure_conn *conn, uint32_t request,
                        const dxpu_control_ask *ask)
{
    unsigned there = o->proxy.slots + 1u - ask->first;
    unsigned count = ask->count && ask->count < there ? ask->count : there;
    dxpu_control m;
    if (count > REQUESTS_SLOTS_MAX)
        count = REQUESTS_SLOTS_MAX;
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

static void forget_picture(requests *o)
{
    free(o->png);
    o->png = NULL;
    o->viewer = NULL;
}

/* M-23: a piece of the picture that is kept; with the last one it is not kept any more. */
static void send_piece(requests *o, secure_conn *conn, uint32_t request, uint32_t offset)
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

/* ==== 3  Requests ============================================================================= */

static unsigned do_hello(requests_peer *c, const dxpu_control_hello *m)
{
    if (c->greeted)
        return DXPU_CONTROL_CODE_ORDER;
    if (m->version_min > DXPU_CONTROL_VERSION || m->version_max < DXPU_CONTROL_VERSION)
        return DXPU_CONTROL_CODE_VERSION;
    c->greeted = true;
    return DXPU_CONTROL_CODE_NONE;
}

/* What every request about a slot must keep. */
static unsigned check_slot(const requests *o, unsigned slot)
{
    return slot > o->proxy.slots ? DXPU_CONTROL_CODE_NO_SLOT : DXPU_CONTROL_CODE_NONE;
}

uint16_t requests_slot(const dxpu_control *m)
{
    switch (m->type) {
    case DXPU_CONTROL_ATTACH:
        return m->u.attach.slot;
    case DXPU_CONTROL_DETACH:
        return m->u.detach.slot;
    case DXPU_CONTROL_BIND:
        return m->u.bind.slot;
    case DXPU_CONTROL_UNBIND:
        return m->u.unbind.slot;
    case DXPU_CONTROL_RESET:
        return m->u.reset.slot;
    case DXPU_CONTROL_DIRECT:
        return m->u.direct.slot;
    case DXPU_CONTROL_DRAIN:
        return m->u.drain.slot;
    case DXPU_CONTROL_ASK:
        return m->u.ask.first;
    case DXPU_CONTROL_SCREENSHOT:
        return m->u.screenshot.slot;
    case DXPU_CONTROL_PLUG:
        return m->u.plug.slot;
    default:
        return 0;
    }
}

/* Whether the client is authorized for it. */
static bool allowed(const requests_peer *c, unsigned type)
{
    const control_proxy *p = &c->owner->proxy;
    switch (type) {
    case DXPU_CONTROL_ATTACH:
        return p->attach != NULL;
    case DXPU_CONTROL_DETACH:
        return p->detach != NULL;
    case DXPU_CONTROL_SCREENSHOT:
        return p->screenshot != NULL;
    case DXPU_CONTROL_PLUG:
        return !c->answer && p->plug; /* S-248: a manager names no files of this machine */
    case DXPU_CONTROL_BIND:
        return c->answer && p->bind; /* M-51 */
    case DXPU_CONTROL_UNBIND:
        return c->answer && p->unbind;
    case DXPU_CONTROL_RESET:
        return c->answer && p->reset;
    case DXPU_CONTROL_DRAIN:
        return c->answer && p->drain;
    case DXPU_CONTROL_DIRECT:
        return c->answer && p->direct;
    default:
        return true;
    }
}

/* What is answered by done. */
static unsigned do_change(const requests *o, const dxpu_control *m)
{
    const control_proxy *p = &o->proxy;
    switch (m->type) {
    case DXPU_CONTROL_ATTACH:
        return p->attach(p->user, &m->u.attach);
    case DXPU_CONTROL_DETACH:
        return p->detach(p->user, &m->u.detach);
    case DXPU_CONTROL_BIND:
        return p->bind(p->user, &m->u.bind);
    case DXPU_CONTROL_UNBIND:
        return p->unbind(p->user, &m->u.unbind);
    case DXPU_CONTROL_RESET:
        return p->reset(p->user, &m->u.reset);
    case DXPU_CONTROL_DIRECT:
        return p->direct(p->user, &m->u.direct);
    case DXPU_CONTROL_PLUG:
        return p->plug(p->user, &m->u.plug);
    default:
        return p->drain(p->user, &m->u.drain);
    }
}

/* M-22, M-23 */
static unsigned do_screenshot(const requests_peer *c, secure_conn *conn, const dxpu_control *m)
{
    const dxpu_control_screenshot *ask = &m->u.screenshot;
    requests *o = c->owner;
    unsigned code;
    if (ask->offset == 0) {
        if (o->viewer && !o->png) /* another one is on its way */
            return DXPU_CONTROL_CODE_BUSY;
        forget_picture(o); /* who has not all of it yet asks again */
        o->viewer = c;
        o->viewer_conn = conn;
        o->png_request = m->request;
        o->png_slot = ask->slot;
        code = o->proxy.screenshot(o->proxy.user, ask->slot);
        if (code)
            forget_picture(o);
        return code;
    }
    if (o->viewer != c || o->png_slot != ask->slot || !o->png)
        return DXPU_CONTROL_CODE_GONE;
    if (ask->offset >= o->png_bytes)
        return DXPU_CONTROL_CODE_MALFORMED;
    send_piece(o, conn, m->request, ask->offset);
    return DXPU_CONTROL_CODE_NONE;
}

void requests_picture(requests *o, uint16_t slot, unsigned code, uint8_t *png, size_t bytes)
{
    if (!o->viewer || o->png || o->png_slot != slot) { /* the client is gone */
        free(png);
    } else if (code) {
        send_error(o, o->viewer_conn, o->png_request, code, slot);
        forget_picture(o);
    } else {
        o->png = png;
        o->png_bytes = bytes;
        send_piece(o, o->viewer_conn, o->png_request, 0);
    }
}

/* A change is under way.  An earlier client of the same is answered that it was requested again. */
static void answer_later(requests_peer *c, secure_conn *conn, const dxpu_control *m)
{
    requests *o = c->owner;
    requests_waiting *w = &o->waiting[requests_slot(m) - 1];
    if (w->peer)
        send_error(o, w->conn, w->request, DXPU_CONTROL_CODE_BUSY, requests_slot(m));
    w->peer = c;
    w->conn = conn;
    w->request = m->request;
}

void requests_settled(requests *o, unsigned slot, unsigned code)
{
    requests_waiting *w = &o->waiting[slot - 1];
    if (w->peer && code)
        send_error(o, w->conn, w->request, code, (uint16_t)slot);
    else if (w->peer)
        send_done(o, w->conn, w->request, (uint16_t)slot);
    w->peer = NULL;
}

/* Do it and answer, unless it is refused: the code. */
static unsigned act(requests_peer *c, secure_conn *conn, const dxpu_control *m)
{
    requests *o = c->owner;
    unsigned code;
    if (!allowed(c, m->type))
        return DXPU_CONTROL_CODE_ROLE;
    code = check_slot(o, requests_slot(m));
    if (code)
        return code;
    switch (m->type) {
    case DXPU_CONTROL_ATTACH:
    case DXPU_CONTROL_DETACH:
    case DXPU_CONTROL_BIND:
    case DXPU_CONTROL_UNBIND:
    case DXPU_CONTROL_RESET:
    case DXPU_CONTROL_DRAIN:
    case DXPU_CONTROL_DIRECT:
    case DXPU_CONTROL_PLUG:
        code = do_change(o, m);
        if (code == REQUESTS_LATER) {
            answer_later(c, conn, m);
            return DXPU_CONTROL_CODE_NONE;
        }
        if (!code)
            send_done(o, conn, m->request, requests_slot(m));
        return code;
    case DXPU_CONTROL_ASK:
        send_status(o, conn, m->request, &m->u.ask);
        return DXPU_CONTROL_CODE_NONE;
    case DXPU_CONTROL_SCREENSHOT:
        return do_screenshot(c, conn, m);
    default:
        return DXPU_CONTROL_CODE_TYPE; /* an answer, and nothing was asked */
    }
}

/* M-50: these answer what the proxy asked. */
static bool is_answer(const requests_peer *c, unsigned type)
{
    return c->answer &&
           (type == DXPU_CONTROL_HELLO || type == DXPU_CONTROL_ERROR || type == DXPU_CONTROL_DONE ||
            type == DXPU_CONTROL_NODE || type == DXPU_CONTROL_HEARTBEAT);
}

/* Act on a message; false when the connection must end. */
static bool handle(requests_peer *c, secure_conn *conn, const dxpu_control *m)
{
    requests *o = c->owner;
    unsigned code;
    o->count.requests++;
    if (is_answer(c, m->type))
        return c->answer(c->user, m);
    if (m->type == DXPU_CONTROL_HELLO) {
        code = do_hello(c, &m->u.hello);
        if (!code)
            requests_greet(o, conn, m->request);
    } else {
        code = c->greeted ? act(c, conn, m) : DXPU_CONTROL_CODE_ORDER; /* M-11 */
    }
    if (code)
        send_error(o, conn, m->request, code, requests_slot(m));
    return code != DXPU_CONTROL_CODE_ORDER && code != DXPU_CONTROL_CODE_VERSION;
}

/* ==== 4  Connections ========================================================================== */

/* A message that could not be read: M-5, M-6, M-10.  False: the connection must end, there was no
   hello yet. */
static bool handle_bad(requests_peer *c, secure_conn *conn, const dxpu_control_frame *f, int error)
{
    requests *o = c->owner;
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
static void handle_end(requests_peer *c, secure_conn *conn, const dxpu_control_frame *f, int error)
{
    c->owner->count.bad++;
    if (error != DXPU_E_MAGIC)
        send_error(
            c->owner, conn, f->request,
            error == DXPU_E_VERSION ? DXPU_CONTROL_CODE_VERSION : DXPU_CONTROL_CODE_MALFORMED, 0);
}

bool requests_bytes(requests_peer *c, secure_conn *conn, dxpu_bytes in)
{
    dxpu_control_frame f;
    dxpu_control m;
    for (;;) {
        int rc = dxpu_control_take(&c->stream, &in, &f);
        if (rc == DXPU_E_AGAIN)
            return true;
        if (rc != DXPU_OK) {
            handle_end(c, conn, &f, rc);
            break;
        }
        rc = dxpu_control_decode(&f, &m);
        if (rc == DXPU_OK ? !handle(c, conn, &m) : !handle_bad(c, conn, &f, rc))
            break;
        if (rc == DXPU_OK)
            secure_touch(conn);
    }
    secure_finish(conn);
    return false;
}

requests_peer *requests_peer_new(requests *r, requests_answer answer, void *user)
{
    requests_peer *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->owner = r;
    c->answer = answer;
    c->user = user;
    c->greeted = answer != NULL; /* its hello is an answer */
    (void)dxpu_control_stream_init(&c->stream, c->room, sizeof c->room); /* room for the header */
    return c;
}

void requests_peer_free(requests_peer *c)
{
    if (c && c->owner->viewer == c)
        forget_picture(c->owner);
    for (unsigned i = 0; c && i < c->owner->proxy.slots; i++) {
        if (c->owner->waiting[i].peer == c)
            c->owner->waiting[i].peer = NULL;
    }
    free(c);
}

/* ==== 5  Opening ============================================================================== */

requests *requests_open(const control_proxy *proxy)
{
    requests *o = calloc(1, sizeof *o);
    if (o)
        o->waiting = calloc(proxy->slots, sizeof *o->waiting);
    if (!o || !o->waiting) {
        free(o);
        return NULL;
    }
    o->proxy = *proxy;
    snprintf(o->name, sizeof o->name, "%s %s", proxy->name, DXPU_VERSION);
    return o;
}

void requests_close(requests *o)
{
    if (!o)
        return;
    forget_picture(o);
    free(o->waiting);
    free(o);
}

const control_proxy *requests_proxy(const requests *o)
{
    return &o->proxy;
}

void requests_set_node(requests *o, uint32_t node)
{
    o->proxy.node = node;
}

void requests_report(const requests *o, report *r)
{
#define REQUEST_PRINT(name, text) report_number(r, #name, o->count.name);
    REQUESTS_COUNTERS(REQUEST_PRINT)
#undef REQUEST_PRINT
}
