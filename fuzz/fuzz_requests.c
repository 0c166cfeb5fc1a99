/* Fuzz target: what a proxy does with control messages, from several connections to its control
   port (control.c, requests.c) and from its manager at once, in any cut.  Each message has the
   answer that the rules name, at once, in order, with its request number (M-9, M-17), or ends its
   own connection and no other; the proxy is asked for slots that it has, and for what is a
   manager's by its manager alone (M-51); pictures arrive whole (M-22, M-23); and what is counted is
   what was said.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include "quiet.h"

#include "control_far.h"

#include "control_internal.h"
#include "fabric.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PORTS = 4, MANAGER = PORTS, PEERS, SLOTS = 5, ASKED_MAX = 300, STEPS_MAX = 300 };
enum { SAY = 2, NETWORK = 10, SET, TIME, OPS }; /* steps; those before come */
enum { TINY = 2, DARK = 3, LARGE = 4, SHOWN_MAX = 3 * DXPU_CONTROL_PIECE_MAX }; /* displays */

/* What a message is to be answered with: a type, and the code of an error. */
typedef struct asked {
    dxpu_control m; /* but for its views; type 0: it cannot be read */
    uint16_t type, code;
} asked;

/* The other end of a connection. */
typedef struct peer {
    far_end far; /* first: rig_said() */
    bool manager, greeted;
    bool ends; /* it broke a rule: its connection is over */
    bool full; /* more was said to it than it has taken: so it is, too */
    asked asked[ASKED_MAX];
    unsigned first, count; /* of what came and is not answered */
} peer;

static requests *r;
static control *port;
static secure_listener *to_manager;
static peer peers[PEERS];
static struct keys lists;
static bool box;         /* or a host */
static unsigned refusal; /* code of changes; 0: they are done */
static uint32_t node;
static uint8_t shown[SHOWN_MAX + SLOTS];
static size_t shown_bytes[SLOTS + 1];
static const peer *viewer; /* the last that began a picture, if it is kept; */
static unsigned viewed;    /* its slot */
static const peer *speaks; /* now */
static unsigned changes;   /* that the proxy was asked for, by the answers that are due; */
static unsigned changed;   /* and that it was */
static struct {
    uint64_t requests, refused, bad, ignored;
    uint64_t answers, answered; /* a manager's, and those that the proxy got */
} sum;

/* -- The proxy -- */

static unsigned change(unsigned slot)
{
    must(slot && slot <= SLOTS);
    changed++;
    return refusal;
}

static unsigned do_attach(void *user, const dxpu_control_attach *m)
{
    dxpu_udp_address at[DXPU_CONTROL_PATHS_MAX];
    unsigned count = control_box_from(m, at);
    (void)user;
    must(!box && count == m->more + 1u && m->epoch && m->box_slot);
    for (unsigned i = 0; i < count; i++) {
        dxpu_control_address again;
        const dxpu_control_address *was = i ? &m->path[i - 1] : &m->box;
        control_address_from(&at[i], &again);
        must(was->family && again.family == was->family && again.port == was->port);
        must(!memcmp(again.ip, was->ip, sizeof again.ip));
    }
    return change(m->slot);
}

static unsigned do_detach(void *user, const dxpu_control_detach *m)
{
    (void)user;
    must(!box);
    return change(m->slot);
}

static unsigned do_bind(void *user, const dxpu_control_bind *m)
{
    (void)user;
    must(speaks->manager && m->epoch && m->host_slot && m->host_node);
    return change(m->slot);
}

static unsigned do_unbind(void *user, const dxpu_control_unbind *m)
{
    (void)user;
    must(speaks->manager && m->epoch);
    return change(m->slot);
}

static unsigned do_reset(void *user, const dxpu_control_reset *m)
{
    (void)user;
    must(speaks->manager);
    return change(m->slot);
}

static unsigned do_drain(void *user, const dxpu_control_drain *m)
{
    (void)user;
    must(speaks->manager);
    return change(m->slot ? m->slot : 1);
}

static unsigned do_direct(void *user, const dxpu_control_direct *m)
{
    (void)user;
    must(speaks->manager && m->slot);
    return change(m->slot);
}

static unsigned do_plug(void *user, const dxpu_control_plug *m)
{
    (void)user;
    must(m->device.len == 6);
    return change(m->slot);
}

static unsigned do_shot(void *user, unsigned number)
{
    uint8_t *png;
    (void)user;
    must(box && number && number <= SLOTS);
    if (number < TINY || number == DARK)
        return number == DARK ? DXPU_CONTROL_CODE_DARK : DXPU_CONTROL_CODE_NO_SCREEN;
    png = malloc(shown_bytes[number]);
    must(png != NULL);
    memcpy(png, shown + number, shown_bytes[number]);
    requests_picture(r, (uint16_t)number, DXPU_CONTROL_CODE_NONE, png, shown_bytes[number]);
    return DXPU_CONTROL_CODE_NONE;
}

static void do_slot(void *user, unsigned number, dxpu_control_slot *out)
{
    (void)user;
    must(number && number <= SLOTS && out->number == number);
    out->state = (uint8_t)(number % DXPU_CONTROL_SLOT_END);
    out->epoch = number * 1000;
    snprintf(out->device, sizeof out->device, "device-%u", number);
}

bool fabric_port_further(dxpu_udp_address *a, unsigned further)
{
    (void)a;
    return !further;
}

/* -- What it says -- */

static void heard_status(const dxpu_control_ask *a, const dxpu_control_status *st)
{
    dxpu_bytes rest = st->entries;
    dxpu_control_slot s;
    unsigned left = SLOTS + 1u - a->first, n = 0;
    must(st->first == a->first && st->total == SLOTS && st->node == node);
    must(st->count == (a->count && a->count < left ? a->count : left));
    while (dxpu_control_slot_next(st, &rest, &s)) {
        must(s.number == st->first + n && s.epoch == s.number * 1000u);
        n++;
    }
    must(n == st->count);
}

static void heard_picture(const dxpu_control_screenshot *a, const dxpu_control_picture *p)
{
    must(p->slot == a->slot && p->offset == a->offset && p->total == shown_bytes[p->slot]);
    must(p->png.len == DXPU_CONTROL_PIECE_MAX || p->offset + p->png.len == p->total);
    must(!memcmp(p->png.ptr, shown + p->slot + p->offset, p->png.len));
}

static void rig_said(const secure_conn *conn, const uint8_t *data, size_t bytes, bool good)
{
    peer *k = (peer *)(void *)conn->own;
    const asked *a = &k->asked[k->first++];
    dxpu_control m = far_read(data, bytes);
    k->full |= !good;
    must(k == speaks && k->first <= k->count && m.request == a->m.request && m.type == a->type);
    if (m.type == DXPU_CONTROL_ERROR)
        must(m.u.error.code == a->code && m.u.error.text.len);
    else if (m.type == DXPU_CONTROL_HELLO)
        must(m.u.hello.slots == SLOTS && m.u.hello.node == node);
    else if (m.type == DXPU_CONTROL_DONE)
        must(m.u.done.slot == requests_slot(&a->m) && m.u.done.epoch == m.u.done.slot * 1000u);
    else if (m.type == DXPU_CONTROL_STATUS)
        heard_status(&a->m.u.ask, &m.u.status);
    else
        heard_picture(&a->m.u.screenshot, &m.u.picture);
}

/* -- The rules -- */

/* M-50 */
static bool is_answer_to(const peer *k, unsigned type)
{
    return k->manager &&
           (type == DXPU_CONTROL_HELLO || type == DXPU_CONTROL_ERROR || type == DXPU_CONTROL_DONE ||
            type == DXPU_CONTROL_NODE || type == DXPU_CONTROL_HEARTBEAT);
}

static unsigned rule_picture(const peer *k, const dxpu_control_screenshot *m)
{
    if (m->offset == 0) {
        viewer = NULL;
        if (m->slot < TINY || m->slot == DARK)
            return m->slot == DARK ? DXPU_CONTROL_CODE_DARK : DXPU_CONTROL_CODE_NO_SCREEN;
        viewer = k;
        viewed = m->slot;
    }
    if (viewer != k || viewed != m->slot)
        return DXPU_CONTROL_CODE_GONE;
    if (m->offset >= shown_bytes[m->slot])
        return DXPU_CONTROL_CODE_MALFORMED;
    if (shown_bytes[m->slot] - m->offset <= DXPU_CONTROL_PIECE_MAX)
        viewer = NULL;
    return DXPU_CONTROL_CODE_NONE;
}

/* The code of a message to who greeted; 0, and the type of the answer. */
static unsigned rule(const peer *k, const dxpu_control *m, uint16_t *type)
{
    bool managers = (m->type >= DXPU_CONTROL_BIND && m->type <= DXPU_CONTROL_RESET) ||
                    m->type == DXPU_CONTROL_DIRECT;
    bool hosts = m->type == DXPU_CONTROL_ATTACH || m->type == DXPU_CONTROL_DETACH;
    bool plugs = m->type == DXPU_CONTROL_PLUG;
    if ((hosts && box) || (managers && (!box || !k->manager)) ||
        ((plugs || m->type == DXPU_CONTROL_SCREENSHOT) && !box) || (plugs && k->manager))
        return DXPU_CONTROL_CODE_ROLE;
    if (requests_slot(m) > SLOTS)
        return DXPU_CONTROL_CODE_NO_SLOT;
    *type = m->type == DXPU_CONTROL_ASK          ? DXPU_CONTROL_STATUS
            : m->type == DXPU_CONTROL_SCREENSHOT ? DXPU_CONTROL_PICTURE
                                                 : DXPU_CONTROL_DONE;
    if (m->type == DXPU_CONTROL_SCREENSHOT)
        return rule_picture(k, &m->u.screenshot);
    changes += managers || hosts || plugs;
    if (managers || hosts || plugs)
        return refusal;
    return m->type == DXPU_CONTROL_ASK ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_TYPE;
}

static void expect(peer *k, const dxpu_control *m, uint32_t request, unsigned type, unsigned code)
{
    asked *a = &k->asked[k->count++];
    must(k->count <= ASKED_MAX);
    memset(a, 0, sizeof *a);
    if (m)
        a->m = *m;
    a->m.request = request;
    a->type = (uint16_t)(code ? DXPU_CONTROL_ERROR : type);
    a->code = (uint16_t)code;
    sum.refused += code != 0;
}

/* A message that can be read. */
static void expect_message(peer *k, const dxpu_control *m)
{
    const dxpu_control_hello *h = &m->u.hello;
    uint16_t type = DXPU_CONTROL_HELLO;
    unsigned code = DXPU_CONTROL_CODE_NONE;
    sum.requests++;
    if (is_answer_to(k, m->type)) {
        sum.answers++;
        k->ends = m->request == 0xff; /* see on_answer() */
        return;
    }
    if (k->greeted == (m->type == DXPU_CONTROL_HELLO))
        code = DXPU_CONTROL_CODE_ORDER; /* M-11 */
    else if (m->type == DXPU_CONTROL_HELLO && (h->version_min > 1 || h->version_max < 1))
        code = DXPU_CONTROL_CODE_VERSION;
    k->ends = code != DXPU_CONTROL_CODE_NONE;
    if (!code && k->greeted)
        code = rule(k, m, &type);
    k->greeted |= !k->ends;
    expect(k, m, m->request, type, code);
}

/* One that cannot: M-5, M-6, M-10. */
static void expect_bad(peer *k, const dxpu_control_frame *f, int rc)
{
    k->ends = !k->greeted;
    if (rc == DXPU_E_KIND && f->type & DXPU_CONTROL_IGNORABLE) {
        sum.ignored++;
        return;
    }
    sum.bad++;
    expect(k, NULL, f->request, 0,
           rc == DXPU_E_KIND   ? DXPU_CONTROL_CODE_TYPE
           : rc == DXPU_E_RSVD ? DXPU_CONTROL_CODE_MUST
                               : DXPU_CONTROL_CODE_MALFORMED);
}

static void far_comes(far_end *far, const uint8_t *at, size_t len)
{
    peer *k = (peer *)(void *)far;
    dxpu_bytes in = { at, len };
    dxpu_control_frame f;
    dxpu_control m;
    int rc = DXPU_OK;
    speaks = k;
    k->first = k->count = 0;
    while (!k->ends && (rc = dxpu_control_take(&far->own, &in, &f)) == DXPU_OK) {
        rc = dxpu_control_decode(&f, &m);
        if (rc == DXPU_OK)
            expect_message(k, &m);
        else
            expect_bad(k, &f, rc);
    }
    if (k->ends || rc == DXPU_E_AGAIN)
        return;
    k->ends = true; /* M-2, M-3, M-4 */
    sum.bad++;
    if (rc != DXPU_E_MAGIC)
        expect(k, NULL, f.request, 0,
               rc == DXPU_E_VERSION ? DXPU_CONTROL_CODE_VERSION : DXPU_CONTROL_CODE_MALFORMED);
}

/* -- What is said to it -- */

static bool on_answer(void *user, const dxpu_control *m)
{
    must(user == peers && is_answer_to(speaks, m->type));
    sum.answered++;
    return m->request != 0xff; /* for what was not asked, say */
}

static void *on_manager(void *user, secure_conn *conn)
{
    (void)conn;
    return requests_peer_new(r, on_answer, user);
}

static void say_hello(peer *k, input *in, uint8_t how)
{
    dxpu_control m = far_message(DXPU_CONTROL_HELLO, how);
    m.u.hello.role = DXPU_CONTROL_ROLE_COMMAND;
    m.u.hello.version_min = 1 + (how >> 7);
    m.u.hello.version_max = 1 + (how >> 6);
    m.u.hello.name = (dxpu_bytes){ (const uint8_t *)"command 1.0", 11 };
    far_say(&k->far, in, &m);
}

static void say_attach(peer *k, input *in, uint8_t how)
{
    dxpu_control m = far_message(DXPU_CONTROL_ATTACH, how);
    dxpu_control_attach *a = &m.u.attach;
    a->slot = next(in) % (SLOTS + 2);
    a->box_slot = 1;
    a->epoch = 7;
    a->box = (dxpu_control_address){ how & 0x40 ? 6 : 4, 4400, { 127, 0, 0, 1 } };
    a->more = how >> 3 & 7;
    for (unsigned i = 0; i < a->more; i++)
        a->path[i] =
            (dxpu_control_address){ i & 1 ? 6 : 4, (uint16_t)(4401 + i), { 127, 0, 0, 2 } };
    a->keyed = how & 0x80;
    a->key[0] = 1;
    far_say(&k->far, in, &m);
}

static void say_ask(peer *k, input *in, uint8_t how)
{
    dxpu_control m = far_message(DXPU_CONTROL_ASK, how);
    m.u.ask.first = next(in) % (SLOTS + 2);
    m.u.ask.count = how >> 3 & 7;
    far_say(&k->far, in, &m);
}

static void say_screenshot(peer *k, input *in, uint8_t how)
{
    static const uint32_t offset[] = { 0, 1, 7, DXPU_CONTROL_PIECE_MAX };
    dxpu_control m = far_message(DXPU_CONTROL_SCREENSHOT, how);
    m.u.screenshot.slot = next(in) % (SLOTS + 2);
    m.u.screenshot.offset = offset[how >> 3 & 3] * (how & 0x20 ? 2 : 1);
    far_say(&k->far, in, &m);
}

/* What changes a slot, but attach. */
static void say_change(peer *k, input *in, uint8_t how)
{
    uint8_t kind = how >> 3 & 7, slot = next(in) % (SLOTS + 2);
    dxpu_control m = far_message(DXPU_CONTROL_DETACH, how);
    if (kind < 2) {
        m.u.detach.slot = slot;
        m.u.detach.epoch = kind;
    } else if (kind < 4) {
        m.type = DXPU_CONTROL_BIND;
        m.u.bind = (dxpu_control_bind){ slot, 1, 2, 3, kind & 1, { 1 }, kind & 2, 5 };
    } else if (kind == 4) {
        m.type = DXPU_CONTROL_UNBIND;
        m.u.unbind = (dxpu_control_unbind){ slot, how & 0x80, 3 };
    } else if (kind == 5) {
        m.type = DXPU_CONTROL_RESET;
        m.u.reset.slot = slot;
    } else if (kind == 6) {
        m.type = DXPU_CONTROL_DRAIN;
        m.u.drain = (dxpu_control_drain){ slot, how & 0x80 };
        if (how & 0x40) {
            m.type = DXPU_CONTROL_DIRECT;
            m.u.direct = (dxpu_control_direct){ slot, how & 0x80 };
        }
    } else {
        m.type = DXPU_CONTROL_PLUG;
        m.u.plug = (dxpu_control_plug){
            slot, DXPU_CONTROL_REPLACE, how & 0x80, { (const uint8_t *)"memory", 6 }
        };
    }
    far_say(&k->far, in, &m);
}

static void say_other(peer *k, input *in, uint8_t how)
{
    static const uint16_t type[] = { DXPU_CONTROL_ERROR,
                                     DXPU_CONTROL_DONE,
                                     DXPU_CONTROL_STATUS,
                                     DXPU_CONTROL_PICTURE,
                                     DXPU_CONTROL_NODE,
                                     DXPU_CONTROL_HEARTBEAT,
                                     0x29,
                                     0x8001 };
    far_say_type(&k->far, in, type[how >> 5], how & 4 ? 0xff : how);
}

static void come(peer *k, uint8_t how)
{
    bool manager = k == &peers[MANAGER];
    if (k->far.conn)
        return;
    k->manager = k->greeted = manager;
    k->ends = k->full = false;
    far_connect(&k->far, manager ? to_manager : port->listener,
                how & 0x80 ? lists.row[how >> 5 & 3].key : NULL, REQUESTS_BODY_MAX);
}

/* -- Settings, time -- */

static void set_something(input *in, uint8_t how)
{
    uint8_t value = next(in);
    unsigned row = value & 3;
    switch (how & 3) {
    case 0:
        refusal = value ? 6 + value % 18 : 0; /* none of those that end a connection */
        break;
    case 1:
        node = value;
        requests_set_node(r, node);
        break;
    case 2:
        if (!viewer) /* also none beyond a piece, and one byte */
            shown_bytes[LARGE] = value & 1 ? 1 + (size_t)value * 760
                                           : DXPU_CONTROL_PIECE_MAX * (1u + (value >> 1) % 3);
        break;
    default:
        lists.row[row].may = value & 0x80 ? KEYS_CONTROL : 0;
        control_recheck(port);
        for (unsigned i = 0; i < PORTS; i++)
            must(!far_open(&peers[i].far) || !peers[i].far.conn->key ||
                 keys_allow(&lists, peers[i].far.conn->key, KEYS_CONTROL, 0));
        break;
    }
}

/* Of all connections, whatever one of them said. */
static void check(const bool stay[PEERS])
{
    unsigned open = 0;
    for (unsigned i = 0; i < PEERS; i++) {
        const peer *k = &peers[i];
        must(!far_open(&k->far) || !k->ends); /* who broke a rule is not heard any more */
        must(!stay[i] || far_open(&k->far));  /* no other is disconnected */
        open += k->far.conn != NULL;
        if (viewer == k && !k->far.conn)
            viewer = NULL;
    }
    must(port->listener->count + to_manager->count == open);
    must(r->viewer == (viewer ? viewer->far.conn->context : NULL) && !r->png == !viewer);
    must(changed == changes && sum.answered == sum.answers);
    must(r->count.requests == sum.requests && r->count.refused == sum.refused);
    must(r->count.bad == sum.bad && r->count.ignored == sum.ignored);
}

static void say_something(peer *k, input *in, uint8_t op, uint8_t how)
{
    static void (*const one[])(peer *, input *, uint8_t) = { say_hello,      say_attach, say_ask,
                                                             say_screenshot, say_change, say_change,
                                                             say_other };
    if (op < sizeof one / sizeof *one)
        one[op](k, in, how);
    else
        far_say_raw(&k->far, in, how >> 3);
}

/* Is it still there after such a step, about this one, if no rule is broken? */
static bool stays(const peer *k, const peer *about, uint8_t op)
{
    const secure_conn *conn = k->far.conn;
    if (!far_open(&k->far))
        return false;
    return op == TIME ? conn->greeted && !conn->deaf : op != SET && (k != about || op != NETWORK);
}

static void step(input *in)
{
    uint8_t op = next(in) % OPS, how = next(in);
    peer *k = &peers[(how & 7) % PEERS];
    bool stay[PEERS];
    for (unsigned i = 0; i < PEERS; i++)
        stay[i] = stays(&peers[i], k, op);
    k->first = k->count = 0;
    if (op < SAY) {
        come(k, how);
        if (op && !k->manager && k->far.conn && !k->greeted)
            say_hello(k, NULL, 0);
    } else if (op < NETWORK) {
        say_something(k, in, op - SAY, how);
    } else if (op == NETWORK) {
        far_network(&k->far, how >> 3 & 7, how >> 6);
    } else if (op == SET) {
        set_something(in, how);
    } else {
        rig_ns += 1000000ull << how % 16;
    }
    must(k->first == k->count); /* each has its answer */
    rig_turn(port->listener);
    rig_turn(to_manager);
    stay[k - peers] &= !k->ends && !k->full;
    check(stay);
}

static void start(uint8_t how)
{
    static const secure_callbacks cb = { peers, on_manager, control_on_bytes, control_on_closed };
    control_proxy proxy = {
        .name = "dxpu-host", .role = DXPU_CONTROL_ROLE_HOST, .slots = SLOTS, .slot = do_slot
    };
    secure_settings set = { .keys = &lists };
    const char *why;
    box = how & 1;
    if (box) {
        proxy.name = "dxpu-box";
        proxy.role = DXPU_CONTROL_ROLE_BOX;
        proxy.screenshot = do_shot;
        proxy.bind = do_bind;
        proxy.unbind = do_unbind;
        proxy.reset = do_reset;
        proxy.drain = do_drain;
        proxy.direct = do_direct;
        proxy.plug = do_plug;
    } else {
        proxy.attach = do_attach;
        proxy.detach = do_detach;
    }
    r = requests_open(&proxy);
    port = r ? control_open(NULL, "127.0.0.1:4459", 0, &lists, r) : NULL;
    dxpu_tcp_settings_default(&set.tcp);
    to_manager = secure_listen(NULL, secure_local(port->listener), &set, &cb, &why);
}

static void begin(void)
{
    memset(&sum, 0, sizeof sum);
    rig_ns = 1000000;
    refusal = changes = changed = viewed = 0;
    node = 0;
    viewer = NULL;
    for (unsigned i = 0; i < RIG_KEYS; i++) {
        memset(lists.row[i].key, (int)(i + 1), sizeof lists.row[i].key);
        lists.row[i].may = KEYS_CONTROL;
    }
    for (unsigned i = 0; !shown[SHOWN_MAX] && i < sizeof shown; i++)
        shown[i] = (uint8_t)(i * 7 + i / 251 + 1);
    shown_bytes[TINY] = 1;
    shown_bytes[LARGE] = 2 * DXPU_CONTROL_PIECE_MAX + 7;
    shown_bytes[SLOTS] = DXPU_CONTROL_PIECE_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    report all;
    begin();
    start(next(&in));
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    report_begin(&all, nowhere(), box);
    control_report(port, r, &all);
    report_end(&all);
    control_close(port);
    secure_unlisten(to_manager);
    for (unsigned i = 0; i < PEERS; i++)
        must(!peers[i].far.conn);
    must(!r->viewer && !r->png);
    requests_close(r);
    return 0;
}
