/* wire.c - see wire.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "wire_internal.h"
#include "log.h"
#include "requests.h"
#include "sandbox.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    SILENT_HEARTBEATS = 3,
    ANSWER_HEARTBEATS = 10, /* for an order that waits for no disk */
    ORDERS_MAX = 0xffff     /* out at one proxy: a request's number has their index in 16 bits */
};

void wire_settings_default(wire_settings *set)
{
    memset(set, 0, sizeof *set);
    set->listen = "127.0.0.1:4457";
    set->connections = 4096;
    set->heartbeat_ms = 1000;
    set->status_ms = 5000;
}

/* ==== Time ==================================================================================== */

static uint64_t now_ms(void)
{
    return dxpu_udp_now_ns() / 1000000u;
}

void wire_clock(core *c)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    core_clock(c, (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u, now_ms());
}

/* ==== Who is there ============================================================================ */

/* Where a node is in by_node, or would be. */
static unsigned place_of(const wire *w, uint32_t node)
{
    unsigned low = 0, high = w->nodes;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (w->by_node[middle]->node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static wire_proxy *find_node(const wire *w, uint32_t node)
{
    unsigned at = place_of(w, node);
    return at < w->nodes && w->by_node[at]->node == node ? w->by_node[at] : NULL;
}

static wire_proxy *find_identity(const wire *w, const uint8_t identity[16])
{
    for (unsigned i = 0; i < w->nodes; i++) {
        if (!memcmp(w->by_node[i]->identity, identity, 16))
            return w->by_node[i];
    }
    return NULL;
}

static bool enroll(wire_proxy *p, uint32_t node)
{
    wire *w = p->owner;
    unsigned at = place_of(w, node);
    if (w->nodes == w->room) {
        unsigned room = w->room ? w->room * 2 : 64;
        wire_proxy **more = realloc(w->by_node, room * sizeof *more);
        if (!more)
            return false;
        w->by_node = more;
        w->room = room;
    }
    memmove(w->by_node + at + 1, w->by_node + at, (w->nodes - at) * sizeof *w->by_node);
    w->by_node[at] = p;
    w->nodes++;
    p->node = node;
    p->ask_next_ms = 0;
    return true;
}

/* The core is notified; what was ordered is void. */
static void leave(wire_proxy *p)
{
    wire *w = p->owner;
    unsigned at = place_of(w, p->node);
    uint32_t node = p->node;
    if (!node)
        return;
    w->nodes--;
    memmove(w->by_node + at, w->by_node + at + 1, (w->nodes - at) * sizeof *w->by_node);
    p->node = 0;
    free(p->orders);
    p->orders = NULL;
    p->places = p->free_place = 0;
    if (w->core)
        core_disconnected(w->core, node);
}

/* No use of p afterwards but in its own callback. */
static void drop(wire_proxy *p, const char *why)
{
    leave(p);
    p->over = true;
    secure_drop(p->conn, why);
}

/* ==== Sending ================================================================================= */

static dxpu_bytes view(const char *text)
{
    dxpu_bytes b = { (const uint8_t *)text, strlen(text) };
    return b;
}

/* False: the connection is over, and no use of p afterwards but in its own callback. */
static bool tell(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    size_t len = 0;
    if (p->over)
        return false;
    if (dxpu_control_encode(m, w->out, sizeof w->out, &len) != DXPU_OK)
        return true; /* never: what is made here is in range, and orders go by send_order() */
    return secure_send(p->conn, w->out, len);
}

static void begin(dxpu_control *m, unsigned type, uint32_t request)
{
    memset(m, 0, sizeof *m);
    m->type = (uint16_t)type;
    m->request = request;
}

/* text: NULL for what the code says. */
static void send_error(wire_proxy *p, uint32_t request, unsigned code, const char *text)
{
    char clean[DXPU_CONTROL_TEXT_MAX + 1];
    dxpu_control m;
    snprintf(clean, sizeof clean, "%s", text ? text : dxpu_control_code_text(code));
    for (char *c = clean; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    begin(&m, DXPU_CONTROL_ERROR, request);
    m.u.error.code = (uint16_t)code;
    m.u.error.text = view(clean);
    p->owner->count.errors_sent++;
    (void)tell(p, &m);
}

static void send_ask(wire_proxy *p, uint16_t from)
{
    dxpu_control m;
    p->ask = (uint32_t)++p->serial << 16;
    if (!p->ask)
        p->ask = (uint32_t)++p->serial << 16;
    p->ask_sent_ms = now_ms();
    begin(&m, DXPU_CONTROL_ASK, p->ask);
    m.u.ask.first = from;
    p->ask_first = from;
    if (from == 1)
        p->ask_total = 0;
    (void)tell(p, &m);
}

/* ==== Orders ================================================================================== */

static wire_order *new_place(wire_proxy *p)
{
    unsigned places;
    wire_order *more;
    while (p->free_place < p->places && p->orders[p->free_place].sent_ns)
        p->free_place++;
    if (p->free_place < p->places)
        return &p->orders[p->free_place];
    places = p->places ? p->places * 2 : 16;
    if (places > ORDERS_MAX)
        return NULL;
    more = realloc(p->orders, places * sizeof *more);
    if (!more)
        return NULL;
    memset(more + p->places, 0, (places - p->places) * sizeof *more);
    p->orders = more;
    p->places = places;
    return &p->orders[p->free_place];
}

static void send_order(wire *w, const core_order *o)
{
    wire_proxy *p = find_node(w, o->node);
    wire_order *place = p ? new_place(p) : NULL;
    size_t len = 0;
    if (!p) {
        core_disconnected(w->core, o->node);
        return;
    }
    if (!place) {
        drop(p, "too many orders are out");
        return;
    }
    place->order = *o;
    place->reported = false;
    place->sent_ns = dxpu_udp_now_ns();
    place->request = (uint32_t)++p->serial << 16 | (uint32_t)(place - p->orders + 1);
    place->order.m.request = place->request;
    w->count.orders++;
    if (dxpu_control_encode(&place->order.m, w->out, sizeof w->out, &len) != DXPU_OK) {
        place->sent_ns = 0;
        (void)core_answered(w->core, o, DXPU_CONTROL_CODE_MALFORMED, NULL);
    } else {
        (void)secure_send(p->conn, w->out, len);
    }
}

/* False: it says it did what was not ordered, or under an epoch that cannot be. */
static bool do_answer(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    unsigned index = (m->request & 0xffff) - 1, slot;
    wire_order *place = index < p->places ? &p->orders[index] : NULL;
    core_order o;
    if (p->ask && m->request == p->ask && m->type == DXPU_CONTROL_ERROR) {
        p->ask = 0;
        p->ask_next_ms = now_ms() + w->set.status_ms;
        return true;
    }
    if (!place || !place->sent_ns || place->request != m->request) {
        w->count.unasked++;
        return true;
    }
    o = place->order;
    slot = requests_slot(&o.m);
    histogram_add(&w->answers, dxpu_udp_now_ns() - place->sent_ns);
    place->sent_ns = 0;
    if (index < p->free_place)
        p->free_place = index;
    if (m->type == DXPU_CONTROL_ERROR) {
        w->count.refused++;
        return core_answered(w->core, &o,
                             m->u.error.code ? m->u.error.code : DXPU_CONTROL_CODE_MALFORMED, NULL);
    }
    if ((slot && m->u.done.slot != slot) ||
        !core_answered(w->core, &o, DXPU_CONTROL_CODE_NONE, &m->u.done)) {
        w->count.bad++;
        return false;
    }
    w->count.done++;
    return true;
}

static void do_status(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    const dxpu_control_status *st = &m->u.status;
    if (!p->node || !p->ask || m->request != p->ask) {
        w->count.unasked++;
        return;
    }
    w->count.statuses++;
    p->ask = 0;
    p->ask_next_ms = now_ms() + w->set.status_ms;
    w->set.on_status(w->set.user, p->node, st);
    /* Where it is not what was asked for, or there is ever more, the rest waits for the next. */
    bool same = st->first == p->ask_first && (!p->ask_total || st->total <= p->ask_total);
    p->ask_total = st->total;
    if (same && st->count && st->first + st->count <= st->total)
        send_ask(p, (uint16_t)(st->first + st->count));
}

/* ==== What proxies say ======================================================================== */

/* The code to refuse with. */
static unsigned do_hello(wire_proxy *p, const dxpu_control *m)
{
    static const char name[] = "dxpu-manager " DXPU_VERSION;
    const dxpu_control_hello *h = &m->u.hello;
    dxpu_control answer;
    if (p->greeted)
        return DXPU_CONTROL_CODE_ORDER;
    if (h->version_min > DXPU_CONTROL_VERSION || h->version_max < DXPU_CONTROL_VERSION)
        return DXPU_CONTROL_CODE_VERSION;
    if (h->role != DXPU_CONTROL_ROLE_HOST && h->role != DXPU_CONTROL_ROLE_BOX)
        return DXPU_CONTROL_CODE_ROLE;
    p->room = malloc(DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX);
    if (!p->room)
        return DXPU_CONTROL_CODE_MEMORY;
    p->greeted = true;
    p->role = h->role;
    snprintf(p->program, sizeof p->program, "%.*s", (int)h->name.len, (const char *)h->name.ptr);
    /* between two messages: nothing of the stream is lost */
    (void)dxpu_control_stream_init(&p->stream, p->room,
                                   DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX);
    p->owner->count.hellos++;
    begin(&answer, DXPU_CONTROL_HELLO, m->request);
    answer.u.hello.role = DXPU_CONTROL_ROLE_MANAGER;
    answer.u.hello.version_min = answer.u.hello.version_max = DXPU_CONTROL_VERSION;
    answer.u.hello.name = view(name);
    (void)tell(p, &answer);
    return DXPU_CONTROL_CODE_NONE;
}

/* M-72: may this connection speak for the identity?  An older one of the same proxy goes. */
static bool make_way(wire_proxy *p, const dxpu_control_register *r)
{
    wire *w = p->owner;
    wire_proxy *other = find_identity(w, r->identity);
    if (!other)
        return true;
    if (other->instance != r->instance) {
        w->count.doubles++;
        if (other->rival != r->instance)
            other->rival_ms = now_ms();
        other->rival = r->instance;
        return false;
    }
    w->count.replaced++;
    drop(other, "the proxy has made another connection");
    return true;
}

/* By the lists as they are now. */
static bool may_register(const wire_proxy *p)
{
    const uint8_t *key = secure_key(p->conn);
    bool host = p->role == DXPU_CONTROL_ROLE_HOST;
    return !key || keys_allow(p->owner->set.keys, key, host ? KEYS_HOST : KEYS_BOX, 0);
}

/* M-81: is the key that of such a proxy, and the identity's? */
static bool check_key(wire_proxy *p, const dxpu_control *m)
{
    const uint8_t *key = secure_key(p->conn);
    bool host = p->role == DXPU_CONTROL_ROLE_HOST;
    core_result why = { CORE_OK, "" };
    if (!key)
        return true;
    if (!may_register(p))
        snprintf(why.text, sizeof why.text,
                 "its key is not authorized to register as a %s; give its line of --peers may=%s",
                 host ? "host" : "box", host ? "host" : "box");
    else
        why = core_check_key(p->owner->core, &m->u.reg, key);
    if (!why.text[0])
        return true;
    p->owner->count.keys_refused++;
    send_error(p, m->request, DXPU_CONTROL_CODE_KEY, why.text);
    return false;
}

/* What lists of keys say of a name: KEYS_NAME_*, and "" or what is wrong, with its remedy. */
static unsigned look_up_name(const wire *w, const uint8_t *key, const char *name, char why[256])
{
    char own[KEYS_NAME_MAX + 1];
    unsigned whose = keys_name(w->set.keys, key, name, own);
    *why = '\0';
    if (whose == KEYS_NAME_WRONG)
        snprintf(why, 256,
                 "its line of --peers here says name=%s; start it with --name %s, or change that "
                 "line",
                 own, own);
    if (whose == KEYS_NAME_OTHER)
        snprintf(why, 256,
                 "the name '%s' is that of another key, by --peers here; give this one another "
                 "--name, or a line with name= of its own",
                 name);
    return whose;
}

/* M-86 */
static bool check_name(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    const uint8_t *key = secure_key(p->conn);
    char name[CORE_NAME_BYTES], text[256];
    core_result why;
    unsigned whose;
    if (!key)
        return true;
    core_name(&m->u.reg, name);
    whose = look_up_name(w, key, name, text);
    why = core_check_name(w->core, &m->u.reg, key, text, whose == KEYS_NAME_OWN);
    if (why.code == CORE_OK)
        return true;
    w->count.names_refused++;
    send_error(p, m->request, DXPU_CONTROL_CODE_KEY, why.text);
    return false;
}

/* M-87 */
static bool check_paths(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    const uint8_t *key = secure_key(p->conn);
    core_result why = { CORE_OK, "" };
    if (key)
        why = core_check_paths(w->core, &m->u.reg, key);
    if (why.code == CORE_OK)
        return true;
    w->count.paths_refused++;
    send_error(p, m->request, DXPU_CONTROL_CODE_KEY, why.text);
    return false;
}

static bool take_register(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    const dxpu_control_register *r = &m->u.reg;
    core_result why = { CORE_OK, "" };
    dxpu_control answer;
    uint32_t node = 0;
    if (r->role != p->role ||
        (p->node && (p->instance != r->instance || memcmp(p->identity, r->identity, 16)))) {
        w->count.bad++;
        send_error(p, m->request, DXPU_CONTROL_CODE_MALFORMED,
                   "one connection is for one proxy: its role, identity and instance stay");
        return false;
    }
    if ((!p->node && !check_key(p, m)) || !check_name(p, m) || !check_paths(p, m))
        return false;
    if (!p->node && !make_way(p, r)) {
        send_error(p, m->request, DXPU_CONTROL_CODE_BUSY, CORE_DOUBLE);
        return false;
    }
    if (!p->node && secure_key(p->conn))
        why = core_check_pace(w->core, secure_key(p->conn));
    if (why.code == CORE_OK)
        node = core_register(w->core, r, p->program, secure_key(p->conn), &why);
    if (!node || (!p->node && !enroll(p, node))) {
        w->count.registers_refused++;
        if (node)
            core_disconnected(w->core, node);
        send_error(p, m->request,
                   why.code == CORE_E_ARG ? DXPU_CONTROL_CODE_MALFORMED
                   : node                 ? DXPU_CONTROL_CODE_MEMORY
                                          : DXPU_CONTROL_CODE_BUSY,
                   node ? NULL : why.text);
        return false;
    }
    w->silent = 0;
    w->count.registers++;
    memcpy(p->identity, r->identity, 16);
    p->instance = r->instance;
    p->heard_ms = now_ms();
    begin(&answer, DXPU_CONTROL_NODE, m->request);
    answer.u.node.node = node;
    answer.u.node.heartbeat_ms = w->set.heartbeat_ms;
    answer.u.node.term = core_term(w->core);
    answer.u.node.directs = core_directs(w->core, node);
    return tell(p, &answer);
}

static bool do_register(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    uint64_t begin_ns = dxpu_udp_now_ns();
    bool goes_on = take_register(p, m);
    w->register_ns += dxpu_udp_now_ns() - begin_ns;
    return goes_on;
}

static bool do_heartbeat(wire_proxy *p, const dxpu_control *m)
{
    if (m->u.heartbeat.instance != p->instance) {
        p->owner->count.bad++;
        send_error(p, m->request, DXPU_CONTROL_CODE_MALFORMED, NULL);
        return false;
    }
    p->owner->count.heartbeats++;
    p->owner->silent = 0;
    p->heard_ms = now_ms();
    /* What was said before it ended proves nothing; what it says so much later does. */
    if (p->rival && p->heard_ms >= p->rival_ms + p->owner->set.heartbeat_ms) {
        core_rival(p->owner->core, p->node, p->rival);
        p->rival = 0;
    }
    return tell(p, m);
}

static void do_alarm(wire_proxy *p, const dxpu_control *m)
{
    dxpu_control answer;
    p->owner->count.alarms++;
    core_alarm(p->owner->core, p->node, &m->u.alarm);
    begin(&answer, DXPU_CONTROL_DONE, m->request);
    answer.u.done.slot = m->u.alarm.slot;
    answer.u.done.epoch = m->u.alarm.epoch;
    (void)tell(p, &answer);
}

static bool is_answer(unsigned type)
{
    return type == DXPU_CONTROL_ERROR || type == DXPU_CONTROL_DONE || type == DXPU_CONTROL_STATUS;
}

/* What a registered proxy may say; false when the connection must end. */
static bool handle_registered(wire_proxy *p, const dxpu_control *m)
{
    switch (m->type) {
    case DXPU_CONTROL_HEARTBEAT:
        return do_heartbeat(p, m);
    case DXPU_CONTROL_ALARM:
        do_alarm(p, m);
        return true;
    case DXPU_CONTROL_STATUS:
        do_status(p, m);
        return true;
    case DXPU_CONTROL_DONE:
    case DXPU_CONTROL_ERROR:
        return do_answer(p, m);
    default:
        p->owner->count.bad++;
        send_error(p, m->request, DXPU_CONTROL_CODE_TYPE, NULL);
        return true;
    }
}

/* Act on a message; false when the connection must end. */
static bool handle(wire_proxy *p, const dxpu_control *m)
{
    unsigned code = DXPU_CONTROL_CODE_ORDER; /* M-11, M-70 */
    if (p->greeted && m->type == DXPU_CONTROL_REGISTER)
        return do_register(p, m);
    if (p->node && m->type != DXPU_CONTROL_HELLO)
        return handle_registered(p, m);
    if (m->type == DXPU_CONTROL_HELLO)
        code = do_hello(p, m);
    if (code) {
        p->owner->count.bad++;
        if (!is_answer(m->type))
            send_error(p, m->request, code, NULL);
    }
    return code == DXPU_CONTROL_CODE_NONE;
}

/* A message that could not be read: M-5, M-6, M-10.  False: the connection must end; so it must
   when that was an answer, for its order would wait. */
static bool handle_bad(wire_proxy *p, const dxpu_control_frame *f, int error)
{
    if (error == DXPU_E_KIND && (f->type & DXPU_CONTROL_IGNORABLE)) {
        p->owner->count.ignored++;
        return p->greeted;
    }
    p->owner->count.bad++;
    if (is_answer(f->type))
        return false;
    send_error(p, f->request,
               error == DXPU_E_KIND   ? DXPU_CONTROL_CODE_TYPE
               : error == DXPU_E_RSVD ? DXPU_CONTROL_CODE_MUST
                                      : DXPU_CONTROL_CODE_MALFORMED,
               NULL);
    return p->greeted;
}

/* The stream is over: say why as far as there is somebody to understand it (M-3, M-4). */
static void handle_end(wire_proxy *p, const dxpu_control_frame *f, int error)
{
    p->owner->count.bad++;
    if (error != DXPU_E_MAGIC)
        send_error(p, f->request,
                   error == DXPU_E_VERSION ? DXPU_CONTROL_CODE_VERSION
                                           : DXPU_CONTROL_CODE_MALFORMED,
                   NULL);
}

/* ==== Connections ============================================================================= */

/* The proxy is read again when it is its turn: see resume(). */
static void hold(wire_proxy *p, const dxpu_control *m)
{
    wire *w = p->owner;
    p->later = evbuffer_new();
    if (!p->later) {
        drop(p, "out of memory");
        return;
    }
    p->message = *m; /* what it views stays in the stream's room until the next take */
    p->next_held = NULL;
    *w->last_held = p;
    w->last_held = &p->next_held;
    secure_touch(p->conn);
}

/* What all that wait with this one's key have sent. */
size_t wire_kept_bytes(const wire_proxy *p)
{
    const uint8_t *key = secure_key(p->conn);
    size_t bytes = 0;
    const wire_proxy *lists[] = { p->owner->held, p->owner->going };
    for (unsigned i = 0; key && i < 2; i++) {
        for (const wire_proxy *o = lists[i]; o; o = o->next_held) {
            if (!o->closed && !memcmp(secure_key(o->conn), key, DXPU_CONTROL_KEY_BYTES))
                bytes += evbuffer_get_length(o->later);
        }
    }
    return bytes;
}

static void keep(wire_proxy *p, dxpu_bytes in)
{
    if (evbuffer_get_length(p->later) + in.len > WIRE_LATER_BYTES ||
        wire_kept_bytes(p) + in.len > (size_t)WIRE_LATER_SHARES * WIRE_LATER_BYTES ||
        evbuffer_add(p->later, in.ptr, in.len))
        drop(p, "it sends too much before it is registered");
}

static void unhold(wire_proxy *p)
{
    wire *w = p->owner;
    wire_proxy **at = &w->held;
    while (*at != p)
        at = &(*at)->next_held;
    *at = p->next_held;
    if (w->last_held == &p->next_held)
        w->last_held = at;
}

/* Nothing more is read from it, and what is queued is still sent. */
static void finish(wire_proxy *p)
{
    leave(p);
    if (!p->over)
        secure_finish(p->conn);
    p->over = true;
}

static void hear(wire_proxy *p, dxpu_bytes in)
{
    dxpu_control_frame f;
    dxpu_control m;
    while (!p->over) {
        int rc = dxpu_control_take(&p->stream, &in, &f);
        if (rc == DXPU_E_AGAIN)
            return;
        if (rc != DXPU_OK) {
            handle_end(p, &f, rc);
            break;
        }
        rc = dxpu_control_decode(&f, &m);
        if (rc == DXPU_OK && m.type == DXPU_CONTROL_REGISTER && p->greeted && !p->node) {
            hold(p, &m);
            if (!p->over)
                keep(p, in);
            return;
        }
        if (rc == DXPU_OK ? !handle(p, &m) : !handle_bad(p, &f, rc))
            break;
        if (p->node && !p->over)
            secure_touch(p->conn);
    }
    finish(p);
}

static void on_bytes(void *context, secure_conn *conn, dxpu_bytes in)
{
    wire_proxy *p = context;
    (void)conn;
    wire_clock(p->owner->core);
    if (p->later)
        keep(p, in);
    else
        hear(p, in);
}

static void forget(wire_proxy *p)
{
    *p->link = p->next;
    if (p->next)
        p->next->link = p->link;
    free(p->room);
    free(p);
}

/* Its register is done, and what it has said since follows.  Not in a callback of its connection,
   so that closed() may come at any time. */
static void go_on(wire_proxy *p)
{
    struct evbuffer *later = p->later;
    uint8_t some[4096];
    int n;
    p->later = NULL;
    while (!p->over && (n = evbuffer_remove(later, some, sizeof some)) > 0) {
        dxpu_bytes in = { some, (size_t)n };
        hear(p, in);
    }
    evbuffer_free(later);
    p->working = false;
    p->heard_ms = now_ms();
    if (p->closed)
        forget(p);
}

/* They are stored together, and no answer leaves before this returns to the loop. */
static void register_held(wire *w)
{
    wire_proxy **first = w->last_going;
    core_batch(w->core);
    while (w->held && w->register_ns <= WIRE_REGISTER_NS) {
        wire_proxy *p = w->held;
        unhold(p);
        p->working = true;
        if (!handle(p, &p->message))
            finish(p);
        p->next_held = NULL;
        *w->last_going = p;
        w->last_going = &p->next_held;
    }
    uint64_t begin_ns = dxpu_udp_now_ns();
    bool stored = core_batch_end(w->core);
    w->register_ns += dxpu_udp_now_ns() - begin_ns;
    for (wire_proxy *p = *first; !stored && p; p = p->next_held) {
        if (p->node)
            drop(p, "the store cannot be written");
    }
    w->follows = true;
}

/* A few at least, and then as many as there is time for. */
static void do_rest(wire *w)
{
    bool has_time = true;
    while (w->follows && has_time) {
        uint64_t begin_ns = dxpu_udp_now_ns();
        w->follows = core_follow(w->core);
        w->register_ns += dxpu_udp_now_ns() - begin_ns;
        has_time = w->register_ns <= WIRE_REGISTER_NS;
    }
    while (w->going && has_time) {
        wire_proxy *p = w->going;
        w->going = p->next_held;
        if (!w->going)
            w->last_going = &w->going;
        go_on(p);
        has_time = w->register_ns <= WIRE_REGISTER_NS;
    }
}

/* What registers are and cause, for as long as there is time; the loop turns once before the rest.
   What was begun is ended before more begins. */
static void resume(wire *w)
{
    w->register_ns = 0;
    do_rest(w);
    if (w->held && w->register_ns <= WIRE_REGISTER_NS) {
        register_held(w);
        do_rest(w);
    }
    if (w->held || w->going || w->follows)
        event_active(w->again, EV_TIMEOUT, 0);
}

void wire_pump(wire *w)
{
    core_order o;
    wire_clock(w->core);
    resume(w);
    while (core_next_order(w->core, &o))
        send_order(w, &o);
}

static void *on_opened(void *user, secure_conn *conn)
{
    wire *w = user;
    wire_proxy *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->owner = w;
    p->conn = conn;
    p->next = w->first;
    p->link = &w->first;
    if (p->next)
        p->next->link = &p->next;
    w->first = p;
    (void)dxpu_control_stream_init(&p->stream, p->greeting, sizeof p->greeting);
    return p;
}

static void on_closed(void *context, secure_conn *conn, const char *why)
{
    wire_proxy *p = context;
    (void)conn;
    (void)why;
    if (p->owner->core)
        wire_clock(p->owner->core);
    leave(p);
    p->over = true;
    if (p->working) {
        p->closed = true;
        return;
    }
    if (p->later) {
        unhold(p);
        evbuffer_free(p->later);
    }
    forget(p);
}

/* ==== Silence ================================================================================= */

/* Its answer is sent when it is on the box's disk (M-57), which may take long: another connection
   would wait for the same. */
static bool waits_for_disk(const core_order *o)
{
    return o->m.type == DXPU_CONTROL_BIND || o->m.type == DXPU_CONTROL_UNBIND;
}

static bool order_overdue(const wire_proxy *p, uint64_t now, uint64_t late)
{
    uint64_t most_ms = (uint64_t)ANSWER_HEARTBEATS * p->owner->set.heartbeat_ms + late;
    for (unsigned i = 0; i < p->places; i++) {
        wire_order *o = &p->orders[i];
        if (!o->sent_ns || now <= o->sent_ns / 1000000u + most_ms)
            continue;
        if (!waits_for_disk(&o->order))
            return true;
        if (!o->reported)
            core_unanswered(p->owner->core, &o->order, now - o->sent_ns / 1000000u);
        o->reported = true;
    }
    return p->ask && now > p->ask_sent_ms + most_ms;
}

/* M-71.  late: this program was held up that long; what it has not read yet is not silence. */
static void look_at(wire_proxy *p, uint64_t now, uint64_t late)
{
    wire *w = p->owner;
    p->heard_ms += late;
    if (now > p->heard_ms + (uint64_t)SILENT_HEARTBEATS * w->set.heartbeat_ms) {
        w->count.silent++;
        w->silent++;
        drop(p, "three heartbeats are missing");
    } else if (order_overdue(p, now, late)) {
        w->count.unanswered++;
        drop(p, "an order is not answered");
    } else if (w->set.on_status && !p->ask && now >= p->ask_next_ms) {
        send_ask(p, 1);
    }
}

static void on_scan(evutil_socket_t fd, short what, void *user)
{
    wire *w = user;
    uint64_t now = now_ms(), due = w->scanned_ms + w->scan_ms, late = now > due ? now - due : 0;
    (void)fd;
    (void)what;
    wire_clock(w->core);
    w->scanned_ms = now;
    core_batch(w->core); /* a network that fails silences many */
    for (wire_proxy *p = w->first, *next; p; p = next) {
        next = p->next;
        if (p->node && !p->working) /* what that one says is not read yet */
            look_at(p, now, late);
    }
    (void)core_batch_end(w->core); /* where it fails, events are not stored */
}

/* ==== Opening ================================================================================= */

const char *wire_check(const char *listen, const keys_settings *k)
{
    static char text[200];
    dxpu_udp_address local;
    const char *why = dxpu_tcp_parse_port(listen, WIRE_PORT, &local);
    if (!why)
        why = keys_check_addresses(k, &local, 1);
    snprintf(text, sizeof text, "--listen: %s", why ? why : "");
    return why && why != dxpu_udp_unresolved ? text : NULL;
}

static const char *listen_at(wire *w)
{
    secure_callbacks cb = { NULL, on_opened, on_bytes, on_closed };
    secure_settings set = { .keys = w->set.keys,
                            .may = KEYS_HOST | KEYS_BOX,
                            .per_key = WIRE_KEY_CONNECTIONS };
    dxpu_udp_address local;
    const char *why = dxpu_tcp_parse_port(w->set.listen, WIRE_PORT, &local);
    if (why)
        return why;
    cb.user = w;
    dxpu_tcp_settings_default(&set.tcp);
    set.tcp.connections = w->set.connections;
    set.tcp.accepts = 1000;
    set.tcp.send_bytes = WIRE_SEND_BYTES;
    set.tcp.idle_ms = 0; /* on_scan() knows better what silence is */
    w->listener = secure_listen(w->base, &local, &set, &cb, &why);
    return w->listener ? NULL : why;
}

static void on_again(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    (void)user; /* wire_pump() follows */
}

static const char *scan_often(wire *w)
{
    struct timeval often;
    w->scan_ms = w->set.heartbeat_ms / 4 + 1;
    w->scanned_ms = now_ms();
    often.tv_sec = (time_t)(w->scan_ms / 1000);
    often.tv_usec = (suseconds_t)(w->scan_ms % 1000 * 1000);
    w->scan = event_new(w->base, -1, EV_PERSIST, on_scan, w);
    w->again = event_new(w->base, -1, 0, on_again, w);
    return w->again && w->scan && !event_add(w->scan, &often) ? NULL : "out of memory";
}

wire *wire_open(struct event_base *base, core *c, const wire_settings *set)
{
    char text[DXPU_UDP_TEXT_BYTES];
    wire *w = calloc(1, sizeof *w);
    const char *why = "out of memory";
    errno = 0;
    if (w) {
        w->base = base;
        w->core = c;
        w->set = *set;
        w->last_held = &w->held;
        w->last_going = &w->going;
        why = listen_at(w);
        if (!why)
            why = scan_often(w);
    }
    if (why) {
        log_error("--listen %s: %s%s%s%s", set->listen, why, sandbox_hint(errno), errno ? ": " : "",
                  errno ? strerror(errno) : "");
        wire_close(w);
        return NULL;
    }
    log_note("proxies at %s", dxpu_udp_print(secure_local(w->listener), text));
    return w;
}

/* M-86, of one that is registered. */
static void recheck_name(wire_proxy *p)
{
    char why[256];
    const uint8_t *key = secure_key(p->conn);
    uint32_t count, at = core_find_node(p->owner->core, p->node);
    if (!key || at == CORE_NONE)
        return;
    (void)look_up_name(p->owner, key, core_nodes(p->owner->core, &count)[at].name, why);
    if (*why)
        drop(p, "its name no longer belongs to its key");
}

void wire_recheck(wire *w)
{
    secure_recheck(w->listener);
    wire_clock(w->core);
    for (wire_proxy *p = w->first, *next; p; p = next) {
        next = p->next;
        if (p->node && !may_register(p))
            drop(p, "its key is no longer authorized for its role");
        else if (p->node)
            recheck_name(p);
    }
}

void wire_close(wire *w)
{
    if (!w)
        return;
    w->core = NULL; /* that this program stops is no event of each wire_proxy */
    secure_unlisten(w->listener);
    for (wire_proxy *p = w->going, *next; p; p = next) {
        next = p->next_held;
        go_on(p); /* which is closed, and ends here */
    }
    if (w->scan)
        event_free(w->scan);
    if (w->again)
        event_free(w->again);
    free(w->by_node);
    free(w);
}

bool wire_is_cut_off(const wire *w)
{
    return !w->nodes && w->silent > 1;
}

void wire_report(const wire *w, report *r)
{
    report_open(r, "proxies");
    report_number(r, "connected", w->nodes);
    secure_report(w->listener, r);
#define WIRE_PRINT(name, text) report_number(r, #name, w->count.name);
    WIRE_COUNTERS(WIRE_PRINT)
#undef WIRE_PRINT
    report_histogram(r, "answer_us", &w->answers);
    report_close(r);
}
