/* Fuzz target: a proxy's connection to its manager (manager_link.c over requests.c), whatever the
   manager says, in any cut, whatever the network does, and whenever slots change and alarms arrive.
   Each message that the proxy sends can be read and is due: all slots are registered, in order,
   as they are then (M-40), and again as soon as somebody says that they changed, or at the next
   heartbeat (M-53); heartbeats are sent when the last node says (M-52); alarms are sent singly, the
   oldest first, until each is answered.  It answers no liar (M-50), dials when it is time and never
   stops to (M-58), and says nothing on the terminal that is not text.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

static FILE *terminal(void);
#undef stderr
#define stderr terminal()

#include "control_far.h"
#include "requests.h"
#include "pretend_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- What surrounds it -- */

enum { INSTANCE = 0x55, HERE_PORT = 4321 };

static struct keys lists;
static bool plain;
static const char wrong_keys[] = "no handshake";

static ssize_t on_terminal(void *user, const char *text, size_t len)
{
    (void)user;
    for (size_t i = 0; i < len; i++)
        must(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
    return (ssize_t)len;
}

static FILE *terminal(void)
{
    static const cookie_io_functions_t calls = { NULL, on_terminal, NULL, NULL };
    static FILE *file;
    if (!file)
        file = fopencookie(NULL, "w", calls);
    must(file != NULL);
    return file;
}

const dxpu_noise_pair *keys_own(const keys *k)
{
    static const dxpu_noise_pair own;
    must(k == &lists);
    return plain ? NULL : &own;
}

bool keys_plain(const keys *k)
{
    return !keys_own(k);
}

bool secure_is_handshake(const char *why)
{
    return why == wrong_keys;
}

bool secure_here(const secure_conn *c, dxpu_udp_address *out)
{
    memset(out, 0, sizeof *out);
    out->u.v4.sin_family = AF_INET;
    out->u.v4.sin_port = htons(HERE_PORT);
    out->u.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out->len = sizeof out->u.v4;
    return c != NULL;
}

bool secure_tell(secure_telling *t, uint64_t every_ns, char more[SECURE_MORE_BYTES])
{
    more[0] = '\0';
    t->unsaid += t->said_ns && rig_ns - t->said_ns < every_ns;
    t->said_ns = rig_ns;
    return !t->unsaid;
}

static int draw(void *out, size_t len)
{
    memset(out, INSTANCE, len);
    return 0;
}

static requests_peer *spy(requests *to, requests_answer call, void *user);

/* Not linked: replaces requests_peer_new() and others. */
#define getentropy(out, len)              draw(out, len)
#define gethostname(out, len)             (snprintf(out, len, "host\x07name"), 0)
#define requests_peer_new(to, call, user) spy(to, call, user)
#include "manager_link.c"
#undef requests_peer_new

/* -- What is known of it -- */

enum { SLOTS = 600, ALARMS = 32, BEATS_MAX = 400, STEPS_MAX = 200 };
enum { NS_PER_MS = 1000000, DIAL_MIN_MS = 100, DIAL_MAX_MS = 5000, REGISTERED_MS = 10000 };
enum { STAND, SAY_RIGHT, SAY_OTHER, SAY_ASK, SAY_RAW, NETWORK, CHANGE, ALARM, TIME, SET, OPS };

typedef struct alarm_told {
    uint16_t slot;
    uint8_t kind;
    uint64_t epoch;
} alarm_told;

static manager_link *m;
static requests *r;
static secure_listener line; /* of the connection: no listener, but it has its settings */
static secure_callbacks up;  /* the link's own */
static requests_answer answer;
static far_end manager;
static const uint8_t identity[IDENTITY_BYTES] = { 1 };

static struct {
    uint8_t role;
    unsigned slots, beats;
    bool refuses;                      /* nothing listens where it dials */
    bool answers;                      /* the manager answers all at once */
    uint8_t value[SLOTS], told[SLOTS]; /* of each slot: now, and as the manager has it */
    bool silent[SLOTS];                /* it changed without a report */
    alarm_told alarm[ALARMS];
    unsigned alarms;
    uint64_t alarms_ever, alarms_dropped;
    uint32_t node, changes;
    /* M-144: the manager's, the highest one, when that was heard, how long it counts. */
    uint64_t term, highest, term_ns, counts_ns;
} proxy;

/* The connection. */
static struct {
    bool open, greeted, registered, lost; /* lost: a message is not received */
    unsigned first;                       /* slot that is registered next */
    unsigned out[ASKED_END];              /* asked for, not answered */
    uint32_t said[ASKED_END];             /* the last number of each */
    uint64_t open_ns, beat_ns, dial_ns, dial_ms;
    uint32_t heartbeat_ms;
} talk;

static struct {
    uint64_t connections, registers, heartbeats, alarms;
} sum;

static uint64_t clamped_ns(uint32_t ms)
{
    return (ms < 10 ? 10 : ms > 600000 ? 600000 : ms) * (uint64_t)NS_PER_MS;
}

/* -- Its proxy -- */

static void do_device(void *user, unsigned number, dxpu_control_device *out)
{
    (void)user;
    must(number && number <= proxy.slots && out->number == number);
    out->state = proxy.value[number - 1] % DXPU_CONTROL_SLOT_END;
    out->epoch = proxy.value[number - 1];
    snprintf(out->model, sizeof out->model, "model-%u", number);
}

static unsigned do_paths(void *user, const dxpu_udp_address *here,
                         dxpu_control_address out[DXPU_CONTROL_PATHS_MAX])
{
    (void)user;
    control_address_from(here, &out[0]);
    out[1] = out[0];
    out[1].port++;
    return 2;
}

static void do_node(void *user, uint32_t node)
{
    (void)user;
    must(node && node != proxy.node && requests_proxy(r)->node == node);
    proxy.node = node;
}

static void change(unsigned slot, uint8_t value, bool said)
{
    must(slot && slot <= proxy.slots);
    proxy.value[slot - 1] = value;
    proxy.silent[slot - 1] = !said;
    if (said)
        manager_changed(m, slot);
}

static unsigned do_bind(void *user, const dxpu_control_bind *b)
{
    (void)user;
    change(b->slot, (uint8_t)b->epoch, true);
    return DXPU_CONTROL_CODE_NONE;
}

static unsigned do_attach(void *user, const dxpu_control_attach *a)
{
    (void)user;
    change(a->slot, (uint8_t)a->epoch, true);
    return DXPU_CONTROL_CODE_NONE;
}

static void do_slot(void *user, unsigned number, dxpu_control_slot *out)
{
    (void)user;
    must(number && number <= proxy.slots && out->number == number);
    out->epoch = proxy.value[number - 1];
}

/* -- What it says -- */

static void heard_register(const dxpu_control_register *reg)
{
    dxpu_bytes rest = reg->entries;
    dxpu_control_device d;
    unsigned n = 0;
    must(talk.greeted && reg->role == proxy.role && reg->total == proxy.slots);
    must(reg->node == proxy.node && !memcmp(reg->identity, identity, sizeof identity));
    must(reg->instance == 0x5555555555555555u && reg->name.len == strlen("host?name-3"));
    must(!memcmp(reg->name.ptr, "host?name-3", reg->name.len));
    must(reg->paths == (proxy.role == DXPU_CONTROL_ROLE_BOX ? 2 : 0));
    must(!reg->paths || (reg->path[0].port == HERE_PORT && reg->path[1].port == HERE_PORT + 1));
    must(talk.first > proxy.slots ? reg->count == 1 && talk.registered : reg->first == talk.first);
    for (; dxpu_control_device_next(reg, &rest, &d); n++) {
        uint8_t *told = &proxy.told[reg->first + n - 1];
        must(d.number == reg->first + n && d.epoch == proxy.value[d.number - 1]);
        must(talk.first <= proxy.slots || d.epoch != *told); /* else it is no news */
        *told = (uint8_t)d.epoch;
        proxy.silent[d.number - 1] = false;
    }
    must(n && n == reg->count);
    proxy.changes += talk.first > proxy.slots;
    if (talk.first <= proxy.slots)
        talk.first += n;
}

static void heard_heartbeat(const dxpu_control_heartbeat *h)
{
    must(talk.registered && rig_ns == talk.beat_ns && talk.out[ASKED_HEARTBEAT] < 3);
    must(h->instance == 0x5555555555555555u && h->changes == proxy.changes);
    talk.beat_ns = rig_ns + clamped_ns(talk.heartbeat_ms);
    memset(proxy.silent, 0, sizeof proxy.silent); /* it looks at all of them now */
    proxy.beats++;
}

static void heard_alarm(const dxpu_control_alarm *a)
{
    const alarm_told *oldest = &proxy.alarm[0];
    must(talk.registered && !talk.out[ASKED_ALARM] && proxy.alarms);
    must(a->slot == oldest->slot && a->kind == oldest->kind && a->epoch == oldest->epoch);
    for (size_t i = 0; i < a->text.len; i++)
        must(a->text.ptr[i] >= ' ' && a->text.ptr[i] <= '~');
}

static unsigned what_asks(unsigned type)
{
    return type == DXPU_CONTROL_HELLO       ? ASKED_HELLO
           : type == DXPU_CONTROL_REGISTER  ? ASKED_REGISTER
           : type == DXPU_CONTROL_HEARTBEAT ? ASKED_HEARTBEAT
           : type == DXPU_CONTROL_ALARM     ? ASKED_ALARM
                                            : ASKED_END;
}

static void heard(const dxpu_control *c)
{
    unsigned what = what_asks(c->type);
    if (what == ASKED_END) { /* an answer: fuzz_requests looks at those */
        must(c->type == DXPU_CONTROL_ERROR || c->type == DXPU_CONTROL_DONE ||
             c->type == DXPU_CONTROL_STATUS);
        return;
    }
    must(c->request >> 28 == what && (what == ASKED_HELLO || c->request != talk.said[what]));
    if (what == ASKED_HELLO)
        must(!talk.greeted && c->u.hello.role == proxy.role && c->u.hello.slots == proxy.slots &&
             c->u.hello.node == proxy.node);
    else if (what == ASKED_REGISTER)
        heard_register(&c->u.reg);
    else if (what == ASKED_HEARTBEAT)
        heard_heartbeat(&c->u.heartbeat);
    else
        heard_alarm(&c->u.alarm);
    sum.registers += what == ASKED_REGISTER;
    sum.heartbeats += what == ASKED_HEARTBEAT;
    sum.alarms += what == ASKED_ALARM;
    talk.said[what] = c->request;
    talk.out[what]++;
}

static void rig_said(const secure_conn *conn, const uint8_t *data, size_t bytes, bool good)
{
    dxpu_control c = far_read(data, bytes);
    must(conn == manager.conn && talk.open);
    heard(&c);
    talk.lost |= !good;
}

/* -- The rules -- */

static void alarm_answered(void)
{
    talk.out[ASKED_ALARM]--;
    proxy.alarms--;
    memmove(proxy.alarm, proxy.alarm + 1, proxy.alarms * sizeof *proxy.alarm);
}

static void term_heard(void)
{
    if (!proxy.term)
        return;
    proxy.highest = proxy.term;
    proxy.term_ns = rig_ns;
}

static bool is_term_lower(const dxpu_control_node *n)
{
    return n->term < proxy.highest && rig_ns - proxy.term_ns < proxy.counts_ns;
}

static void node_answered(const dxpu_control_node *n)
{
    uint64_t counts_ns = 20 * clamped_ns(n->heartbeat_ms), most_ns = 60000 * (uint64_t)NS_PER_MS;
    proxy.term = n->term;
    term_heard();
    proxy.counts_ns = counts_ns < most_ns ? counts_ns : most_ns;
    talk.heartbeat_ms = n->heartbeat_ms;
    if (talk.registered || talk.out[ASKED_REGISTER] || talk.first <= proxy.slots)
        return;
    talk.registered = true;
    talk.dial_ms = DIAL_MIN_MS;
    talk.beat_ns = rig_ns + clamped_ns(talk.heartbeat_ms);
}

/* M-50: does the connection go on? */
static bool rule(const dxpu_control *c)
{
    unsigned what = c->request >> 28;
    if (what == ASKED_ALARM && talk.out[what] &&
        (c->type == DXPU_CONTROL_ERROR || c->type == DXPU_CONTROL_DONE)) {
        alarm_answered();
        return true;
    }
    if (c->type == DXPU_CONTROL_ERROR || c->type == DXPU_CONTROL_DONE || !what ||
        what != what_asks(c->type == DXPU_CONTROL_NODE ? DXPU_CONTROL_REGISTER : c->type) ||
        !talk.out[what])
        return false;
    talk.out[what]--;
    if (c->type == DXPU_CONTROL_NODE && is_term_lower(&c->u.node))
        return false;
    if (c->type == DXPU_CONTROL_NODE)
        node_answered(&c->u.node);
    if (c->type == DXPU_CONTROL_HEARTBEAT)
        term_heard();
    talk.greeted |= c->type == DXPU_CONTROL_HELLO;
    return c->type != DXPU_CONTROL_HELLO ||
           (c->u.hello.role == DXPU_CONTROL_ROLE_MANAGER && c->u.hello.version_min <= 1);
}

static bool spy_answer(void *user, const dxpu_control *c)
{
    bool goes_on = rule(c);
    must(user == m && answer(user, c) == goes_on);
    must(manager.conn->over == (!goes_on || talk.lost));
    must(c->type != DXPU_CONTROL_NODE || !goes_on || proxy.node == c->u.node.node);
    return goes_on;
}

static requests_peer *spy(requests *to, requests_answer call, void *user)
{
    answer = call;
    return requests_peer_new(to, spy_answer, user);
}

/* -- Connections -- */

static void far_comes(far_end *f, const uint8_t *at, size_t len)
{
    (void)f;
    (void)at;
    (void)len;
}

/* M-58 */
static void dial_again(void)
{
    talk.dial_ns = rig_ns + talk.dial_ms * NS_PER_MS;
    talk.dial_ms = talk.dial_ms * 2 < DIAL_MAX_MS ? talk.dial_ms * 2 : DIAL_MAX_MS;
}

static void on_line_closed(void *user, secure_conn *conn, const char *why)
{
    uint64_t dial_ms = talk.dial_ms;
    must(user == m && conn == manager.conn);
    if (!strcmp(why, "no answer to three heartbeats"))
        must(talk.registered && talk.out[ASKED_HEARTBEAT] == 3 && rig_ns == talk.beat_ns);
    if (!strcmp(why, "it does not answer"))
        must(!talk.registered && rig_ns == talk.open_ns + (uint64_t)REGISTERED_MS * NS_PER_MS);
    proxy.term = 0;
    memset(&talk, 0, sizeof talk);
    talk.dial_ms = dial_ms;
    dial_again();
    up.closed(user, conn, why);
}

secure_conn *secure_connect(struct event_base *base, const dxpu_udp_address *remote,
                            const dxpu_tcp_settings *set, const dxpu_noise_pair *own,
                            const uint8_t *server, const secure_callbacks *cb, const char **why)
{
    secure_conn *c;
    (void)base;
    must(!manager.conn && rig_ns == talk.dial_ns && ntohs(remote->u.v4.sin_port) == MANAGER_PORT);
    must(!own == plain && server != NULL && set->idle_ms == 0);
    *why = "cannot connect";
    if (proxy.refuses) {
        dial_again();
        return NULL;
    }
    c = calloc(1, sizeof *c);
    must(c != NULL);
    up = *cb;
    line.set.tcp = *set;
    line.cb = *cb;
    line.cb.closed = on_line_closed;
    rig_join(&line, c, &manager.conn);
    c->context = cb->user;
    return c;
}

static void stand(void)
{
    secure_conn *c = manager.conn;
    if (!far_open(&manager) || talk.open)
        return;
    talk.open = true;
    talk.open_ns = rig_ns;
    talk.first = 1;
    sum.connections++;
    manager.waiting = 0;
    c->busy++;
    must(up.opened(up.user, c) == m);
    rig_leave(c);
}

/* -- What the manager says -- */

/* The answer to what was asked last of this kind. */
static dxpu_control right(unsigned what, uint8_t how)
{
    static const uint16_t type[ASKED_END] = { 0, DXPU_CONTROL_HELLO, DXPU_CONTROL_NODE,
                                              DXPU_CONTROL_HEARTBEAT, DXPU_CONTROL_DONE };
    static const uint32_t often[] = { 1000, 1, 7, UINT32_MAX };
    dxpu_control c = far_message(type[what], talk.said[what]);
    if (what == ASKED_HELLO) {
        c.u.hello.role = DXPU_CONTROL_ROLE_MANAGER - (how >> 7);
        c.u.hello.version_min = c.u.hello.version_max = 1 + (how >> 6 & 1);
        c.u.hello.name = (dxpu_bytes){ (const uint8_t *)"manager", 7 };
    } else if (what == ASKED_REGISTER) {
        c.u.node.node = 7 + (how >> 6);
        c.u.node.heartbeat_ms = often[how >> 4 & 3];
        c.u.node.term = how & 3;
    } else if (what == ASKED_HEARTBEAT) {
        c.u.heartbeat.instance = 1;
    }
    return c;
}

/* Whatever waits for an answer gets it. */
static void answer_all(uint8_t how)
{
    for (unsigned what = 1; what < ASKED_END; what++) {
        while (far_open(&manager) && talk.open && talk.out[what]) {
            unsigned before = talk.out[what];
            dxpu_control c = right(what, how);
            far_flow(&manager, 0);
            if (far_open(&manager) && talk.out[what] == before)
                far_say(&manager, NULL, &c);
            if (talk.out[what] == before)
                return; /* it waits behind half a message, or there is an alarm more */
        }
    }
}

static void say_other(input *in, uint8_t how)
{
    unsigned what = 1 + (how & 3);
    dxpu_control c = right(what, how);
    if (how & 4) { /* it was not asked, or not so */
        c.request = (uint32_t)next(in) << 25;
    } else if (how & 8) {
        c.type = DXPU_CONTROL_ERROR;
        c.u.error = (dxpu_control_error){ 1 + (how >> 4), 1, { (const uint8_t *)"no", 2 } };
    }
    far_say(&manager, in, &c);
}

/* What any proxy is asked, and what makes this one change. */
static void say_ask(input *in, uint8_t how)
{
    unsigned slot = 1u + (how & 3) * proxy.slots / 3;
    dxpu_control c = far_message(DXPU_CONTROL_ASK, how);
    if (how & 4) {
        c.u.ask.first = (uint16_t)slot;
        c.u.ask.count = 2;
    } else if (how & 8) {
        c.type = DXPU_CONTROL_BIND;
        c.u.bind =
            (dxpu_control_bind){ (uint16_t)slot, 1, 2, 1u + (how >> 4), false, { 0 }, how & 1, 5 };
    } else {
        c.type = DXPU_CONTROL_ATTACH;
        c.u.attach.slot = (uint16_t)slot;
        c.u.attach.box_slot = 1;
        c.u.attach.epoch = 1u + (how >> 4);
        c.u.attach.box = (dxpu_control_address){ 4, 4400, { 127, 0, 0, 1 } };
    }
    far_say(&manager, in, &c);
}

/* -- Alarms, changes, time -- */

static void alarm_comes(input *in, uint8_t how)
{
    char text[256];
    alarm_told a = { (uint16_t)(how % (proxy.slots + 1)), 1 + (how & 3), ++proxy.alarms_ever };
    size_t len = next(in) % sizeof text;
    memset(text, next(in), len); /* 0, controls, other alphabets: whatever a device is called */
    text[len] = '\0';
    if (proxy.alarms == ALARMS)
        proxy.alarms_dropped++;
    else
        proxy.alarm[proxy.alarms++] = a;
    manager_alarm(m, a.slot, a.kind, a.epoch, text);
}

static void change_some(input *in, uint8_t how)
{
    unsigned first = next(in) * proxy.slots / 256, count = how & 0x40 ? 80 : 1;
    for (unsigned i = first; i < first + count && i < proxy.slots; i++)
        change(i + 1, how & 0x3f, how & 0x80);
}

/* What is true after each turn of the loop. */
static void check(void)
{
    const timer *t = (const timer *)(const void *)m->timer;
    bool open = far_open(&manager);
    must(talk.open || !talk.registered);
    must((m->state == LINK_UP) == talk.registered);
    must(m->conn == manager.conn && (m->peer != NULL) == talk.open);
    if (!manager.conn)
        must(t->due_ns == talk.dial_ns);
    else if (open && talk.open)
        must(t->due_ns ==
             (talk.registered ? talk.beat_ns : talk.open_ns + (uint64_t)REGISTERED_MS * NS_PER_MS));
    must(m->alarms_waiting == proxy.alarms && m->alarms_dropped == proxy.alarms_dropped);
    if (!open || !talk.registered)
        return;
    must(talk.out[ASKED_ALARM] == (proxy.alarms != 0));
    must(talk.out[ASKED_REGISTER] <= 64);
    for (unsigned i = 0; i < proxy.slots && talk.out[ASKED_REGISTER] < 64; i++)
        must(proxy.silent[i] || proxy.told[i] == proxy.value[i]);
}

static void follow(void)
{
    unsigned turns = 0;
    do {
        must(turns++ < 1000);
        timers_turn();
        rig_turn(&line);
        if (proxy.answers)
            answer_all(0);
    } while (timers_more());
    check();
}

static void pass_time(uint64_t ns)
{
    uint64_t until = rig_ns + ns;
    while (rig_ns < until && proxy.beats < BEATS_MAX) {
        const timer *t = (const timer *)(const void *)m->timer;
        rig_ns = t->due_ns < until ? t->due_ns : until;
        follow();
    }
}

static void network(uint8_t how)
{
    static const char *const why[] = { wrong_keys, "nobody listens there", "out of memory" };
    if (talk.open)
        far_network(&manager, how & 7, how >> 3);
    else if (manager.conn)
        secure_drop(manager.conn, why[plain ? 1 : how % 3]);
}

/* -- A run -- */

static void step(input *in)
{
    uint8_t op = next(in), how = next(in);
    bool said = (op & 0x7fu) % OPS < NETWORK && talk.open;
    switch ((op & 0x7fu) % OPS) {
    case STAND:
        stand();
        break;
    case SAY_RIGHT:
        answer_all(how & 0x3f);
        break;
    case SAY_OTHER:
        if (said)
            say_other(in, how);
        break;
    case SAY_ASK:
        if (said)
            say_ask(in, how);
        break;
    case SAY_RAW:
        if (said && how & 0x40)
            far_say_type(&manager, in, how & 0x80 ? 0x8001 : how & 0x3f, how);
        else if (said)
            far_say_raw(&manager, in, how & 0x3f);
        break;
    case NETWORK:
        network(how);
        break;
    case CHANGE:
        change_some(in, how);
        break;
    case ALARM:
        alarm_comes(in, how);
        break;
    case TIME:
        pass_time((uint64_t)NS_PER_MS << how % 15);
        break;
    default:
        proxy.refuses = how & 1;
        proxy.answers = how & 2;
        break;
    }
    if (!(op & 0x80)) /* else there is more in this turn of the loop */
        follow();
}

static void start(uint8_t how)
{
    static const unsigned slots[] = { 2, 1, 257, SLOTS };
    control_proxy about = {
        .name = "dxpu-host", .role = DXPU_CONTROL_ROLE_HOST, .attach = do_attach, .slot = do_slot
    };
    manager_proxy does = { .device = do_device, .node = do_node };
    manager_settings set = { "127.0.0.1", NULL, "identity", NULL, 2 };
    memset(&proxy, 0, sizeof proxy);
    memset(&talk, 0, sizeof talk);
    memset(&sum, 0, sizeof sum);
    memset(&line, 0, sizeof line);
    timers_begin();
    rig_ns = talk.dial_ns = 1000000;
    talk.dial_ms = DIAL_MIN_MS;
    plain = how & 8;
    proxy.slots = slots[how & 3];
    proxy.role = DXPU_CONTROL_ROLE_HOST;
    if (how & 4) {
        about.name = "dxpu-box";
        about.role = proxy.role = DXPU_CONTROL_ROLE_BOX;
        about.attach = NULL;
        about.bind = do_bind;
        does.paths = do_paths;
    }
    about.slots = (uint16_t)proxy.slots;
    r = requests_open(&about);
    m = r ? manager_open(NULL, &set, identity, &lists, r, &does) : NULL;
    must(m != NULL);
    follow();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    report all;
    start(next(&in));
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    must(m->count.connections == sum.connections && m->count.registers == sum.registers);
    must(m->count.heartbeats == sum.heartbeats && m->count.alarms == sum.alarms);
    report_begin(&all, terminal(), true);
    manager_report(m, &all);
    report_end(&all);
    manager_close(m);
    must(!manager.conn && !timers[0].there && !timers[1].there);
    requests_close(r);
    return 0;
}
