/* Fuzz target: the manager's port for proxies over its real core and connections in memory.
   Proxies greet, register in parts, live, alarm, answer orders and asks, speak out of turn, break
   off in the middle of a message, are there twice, take nothing; bytes arrive in any cut; users,
   operators, the clock, a slow or failing store and lists of keys that change do the rest.  Each
   whole message is counted once, and so is each answer; what is sent can be read, and is for such a
   proxy; one that keeps the rules beside all that is never the one that suffers; and wire and core
   agree on who is connected.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* what store.c asks of the system */
#endif
#include "input.h"
#include "quiet.h"

#include <limits.h>
#include <time.h>

#include "core_claims.h"
#include "control_far.h"
#include "pretend_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- The time -- */

enum { UNIX_MS = 1000000 };

static int wall(struct timespec *t)
{
    t->tv_sec = (time_t)(UNIX_MS / 1000 + rig_ns / 1000000000u);
    t->tv_nsec = (long)(rig_ns % 1000000000u);
    return 0;
}

/* Not linked: replaces clock_gettime() and others. */
#define dxpu_udp_now_ns         rig_now_ns
#define clock_gettime(clock, t) wall(t)
#include "wire.c"

/* -- What there is -- */

enum { PEERS = 4, GOOD = PEERS, SLOTS = 4, ORDERS = 16, STEPS_MAX = 200 };
enum { TYPES = DXPU_CONTROL_DIRECT + 1, HEARTBEAT_MS = 1000 };

typedef struct ordered {
    uint32_t request;
    uint16_t type, slot;
} ordered;

/* The other end of a connection. */
typedef struct peer {
    far_end far;           /* first: rig_said() */
    unsigned frames, sure; /* messages received; accepted */
    unsigned heartbeats;   /* answers to them */
    uint8_t who;           /* identity */
    uint32_t ask;          /* its request, or 0; */
    uint16_t ask_first;    /* for the slots from this one on */
    ordered order[ORDERS];
    unsigned orders;
} peer;

static rig_store disk;
static uint64_t slow_ns; /* of a commit */
static core *c;
static wire *w;
static peer peers[PEERS + 1]; /* the last one keeps all rules */
static struct keys lists;
static bool sealed;
static uint32_t number[PEERS]; /* of nodes, by identity; 0: not yet */
static uint64_t good_ms;       /* when the good one last gave a sign of life */
static struct {
    unsigned frames, sure, ask_errors, opened;
    uint64_t said[TYPES];
} sum;

/* -- What the manager says -- */

static bool is_order(unsigned type)
{
    return (type >= DXPU_CONTROL_BIND && type <= DXPU_CONTROL_RESET) ||
           type == DXPU_CONTROL_ATTACH || type == DXPU_CONTROL_DETACH;
}

static void note_order(peer *k, const wire_proxy *p, const dxpu_control *m)
{
    bool of_host = m->type == DXPU_CONTROL_ATTACH || m->type == DXPU_CONTROL_DETACH;
    uint16_t slot = requests_slot(m);
    must(p->node && p->role == (of_host ? DXPU_CONTROL_ROLE_HOST : DXPU_CONTROL_ROLE_BOX));
    must(m->request && m->request != p->ask);
    for (unsigned i = 0; i < k->orders; i++)
        must(k->order[i].request != m->request && (k->order[i].slot != slot || !slot));
    if (k->orders < ORDERS)
        k->order[k->orders++] = (ordered){ m->request, m->type, slot };
}

static void rig_said(const secure_conn *conn, const uint8_t *data, size_t bytes, bool good)
{
    peer *k = (peer *)(void *)conn->own;
    const wire_proxy *p = conn->context;
    dxpu_control m = far_read(data, bytes);
    must(m.type < TYPES);
    sum.said[m.type]++;
    if (!good)
        return;
    if (m.type == DXPU_CONTROL_NODE && k->who < PEERS) {
        number[k->who] = m.u.node.node;
    } else if (m.type == DXPU_CONTROL_HEARTBEAT) {
        k->heartbeats++;
    } else if (m.type == DXPU_CONTROL_ASK) {
        k->ask = m.request;
        k->ask_first = m.u.ask.first;
    } else if (is_order(m.type)) {
        note_order(k, p, &m);
    } else {
        must(m.type == DXPU_CONTROL_HELLO || m.type == DXPU_CONTROL_ERROR ||
             m.type == DXPU_CONTROL_NODE || m.type == DXPU_CONTROL_DONE);
    }
}

static void on_status(void *user, uint32_t node, const dxpu_control_status *st)
{
    dxpu_bytes rest = st->entries;
    dxpu_control_slot s;
    unsigned n = 0;
    (void)user;
    must(find_node(w, node) != NULL);
    while (dxpu_control_slot_next(st, &rest, &s))
        n++;
    must(n == st->count && !rest.len);
}

/* -- What proxies say -- */

static void far_comes(far_end *f, const uint8_t *at, size_t len)
{
    peer *k = (peer *)(void *)f;
    dxpu_bytes in = { at, len };
    dxpu_control_frame frame;
    while (dxpu_control_take(&f->own, &in, &frame) == DXPU_OK) {
        k->frames++;
        sum.frames++;
        sum.ask_errors += frame.type == DXPU_CONTROL_ERROR && frame.request == k->ask;
    }
}

static uint8_t role_of(const peer *k)
{
    return k->who & 1 || k->who == GOOD ? DXPU_CONTROL_ROLE_HOST : DXPU_CONTROL_ROLE_BOX;
}

static void say_hello(peer *k, input *in, uint8_t how)
{
    dxpu_control m = far_message(DXPU_CONTROL_HELLO, how);
    m.u.hello.role = how & 0x40 ? how >> 4 & 3 : role_of(k);
    m.u.hello.version_min = 1 + (how >> 7);
    m.u.hello.version_max = m.u.hello.version_min;
    m.u.hello.name = view("proxy 1.0");
    far_say(&k->far, in, &m);
}

/* A slot as its proxy knows it.  in NULL: a box's is wiped, a host's empty. */
static dxpu_control_device device_of(const peer *k, input *in, unsigned at)
{
    uint8_t about = in ? next(in) : role_of(k) == DXPU_CONTROL_ROLE_BOX ? 6 : 0;
    dxpu_control_device d = { .number = (uint16_t)at,
                              .state = about % (DXPU_CONTROL_SLOT_UNWIPED + 1),
                              .health = about & 0x80 ? DXPU_CONTROL_HEALTH_BROKEN
                                                     : DXPU_CONTROL_HEALTH_GOOD,
                              .group = about >> 6 & 1,
                              .model = { 'm', (char)('a' + (about >> 5 & 1)) } };
    if (about & 0x10) {
        d.epoch_seen = d.epoch = core_pool(c)->epoch - next(in) % 4;
        d.peer_node = next(in) % 8;
        d.peer_slot = next(in) % 8;
    }
    return d;
}

/* how: the instance, the name; parts: which slots, of how many; 0: all. */
static void say_register(peer *k, input *in, uint8_t how, uint8_t parts)
{
    static const char *const names[] = { "n0", "n1", "n2", "n3" };
    uint8_t entries[SLOTS * DXPU_CONTROL_DEVICE_BYTES];
    dxpu_control m = far_message(DXPU_CONTROL_REGISTER, 1u + how);
    dxpu_control_register *r = &m.u.reg;
    bool box = role_of(k) == DXPU_CONTROL_ROLE_BOX;
    r->role = role_of(k);
    r->total = (uint16_t)(parts & 0x40 ? 1 + (parts >> 4 & 3) : SLOTS);
    r->first = (uint16_t)(1 + (parts & 3) % r->total);
    r->count = (uint16_t)((parts >> 2 & 3) + 1);
    if (!parts || r->count > r->total - r->first + 1)
        r->count = (uint16_t)(r->total - r->first + 1);
    r->entry_bytes = DXPU_CONTROL_DEVICE_BYTES;
    r->instance = 1 + (how >> 6 & 1);
    r->identity[0] = (uint8_t)(k->who + 1);
    r->identity[1] = k->who == GOOD ? 0x5a : 0;
    r->node = k->who < PEERS ? number[k->who] : 0;
    r->name = view(k->who == GOOD ? "good" : names[(k->who + (how >> 4)) % PEERS]);
    for (unsigned i = 0; i < r->count; i++) {
        dxpu_control_device d = device_of(k, in, r->first + i);
        dxpu_control_device_encode(&d, entries + i * DXPU_CONTROL_DEVICE_BYTES);
    }
    r->entries = (dxpu_bytes){ entries, r->count * (size_t)DXPU_CONTROL_DEVICE_BYTES };
    r->paths = box;
    r->path[0] = (dxpu_control_address){ 4, (uint16_t)(4400 + (how & 0x80 ? 0 : k->who)), { 127 } };
    far_say(&k->far, in, &m);
}

static void say_heartbeat(peer *k, input *in, uint8_t how)
{
    dxpu_control m = far_message(DXPU_CONTROL_HEARTBEAT, how);
    m.u.heartbeat.instance = 1 + (how >> 6 & 1);
    far_say(&k->far, in, &m);
}

static void say_alarm(peer *k, input *in, uint8_t how)
{
    dxpu_control m = far_message(DXPU_CONTROL_ALARM, how);
    m.u.alarm.slot = how >> 2 & 7;
    m.u.alarm.kind = 1 + (how >> 5);
    m.u.alarm.epoch = how & 0x80 ? core_pool(c)->epoch : 0;
    m.u.alarm.text = view("hot");
    far_say(&k->far, in, &m);
}

/* To one of the orders that are out; how 0: it is done. */
static void say_answer(peer *k, input *in, uint8_t how)
{
    unsigned i = in ? next(in) % (k->orders ? k->orders : 1) : 0;
    dxpu_control m = far_message(how & 4 ? DXPU_CONTROL_ERROR : DXPU_CONTROL_DONE, 0x10001);
    ordered o = { 0x10001, DXPU_CONTROL_BIND, 1 };
    if (k->orders) {
        o = k->order[i];
        k->order[i] = k->order[--k->orders];
    }
    m.request = how & 8 ? o.request + 0x10000 : o.request;
    if (how & 4) {
        m.u.error.code = how >> 4;
        m.u.error.text = view("no");
    } else {
        m.u.done.slot = how & 0x80 ? o.slot + 1u : o.slot;
        m.u.done.state = how >> 4 & 7;
        m.u.done.epoch = core_pool(c)->epoch;
    }
    far_say(&k->far, in, &m);
}

/* To an ask. */
static void say_status(peer *k, input *in, uint8_t how)
{
    uint8_t entries[SLOTS * DXPU_CONTROL_SLOT_BYTES] = { 0 };
    dxpu_control m = far_message(DXPU_CONTROL_STATUS, how & 4 ? 7 : k->ask);
    m.u.status.role = role_of(k);
    m.u.status.first = (uint16_t)(k->ask_first + (how >> 4 & 3));
    m.u.status.count = how & 8 ? 0 : SLOTS;
    m.u.status.total = (uint16_t)(m.u.status.first + m.u.status.count - 1 + (how >> 6));
    m.u.status.entry_bytes = DXPU_CONTROL_SLOT_BYTES;
    m.u.status.entries = (dxpu_bytes){ entries, m.u.status.count * (size_t)168 };
    if ((how & 0xfc) == 0xf8) { /* an error instead */
        m = far_message(DXPU_CONTROL_ERROR, k->ask);
        m.u.error.code = DXPU_CONTROL_CODE_STOPPING;
        m.u.error.text = view("no");
    }
    far_say(&k->far, in, &m);
}

/* Another message than any of these, also those that only a manager sends. */
static void say_other(peer *k, input *in, uint8_t how)
{
    static const uint16_t type[] = {
        DXPU_CONTROL_ASK, DXPU_CONTROL_NODE, DXPU_CONTROL_RESET, DXPU_CONTROL_DRAIN, 0x29, 0x8001
    };
    far_say_type(&k->far, in, type[(how >> 2) % 6], how);
}

/* Much that may be ignored. */
static void say_much(peer *k, uint8_t how)
{
    static uint8_t bytes[DXPU_CONTROL_HEADER_BYTES + 64000] = { 'D', 'X', 'C', 'T', 1, 0, 0x80, 1 };
    bytes[10] = 64000 >> 8;
    bytes[11] = 64000 & 0xff;
    for (unsigned i = 0; i < (how >> 2) % 20 && far_open(&k->far); i++)
        far_bring(&k->far, bytes, sizeof bytes);
}

/* -- Connections -- */

static void come(peer *k, uint8_t who, const uint8_t *key)
{
    if (k->far.conn)
        return;
    k->who = who;
    k->frames = k->sure = k->heartbeats = k->orders = 0;
    k->ask = 0;
    far_connect(&k->far, w->listener, key, DXPU_CONTROL_BODY_MAX);
    sum.opened += k->far.conn != NULL;
}

static void do_come(input *in, uint8_t how)
{
    peer *k = &peers[how % PEERS];
    uint8_t who = how & 4 ? how >> 3 & 3 : how % PEERS, key = how & 0x80 ? next(in) % 5 : who;
    come(k, who, sealed ? lists.row[key].key : NULL);
    if (how & 0x40)
        return;
    say_hello(k, NULL, 0);
    say_register(k, NULL, how & 0x20 ? 0x40 : 0, 0);
}

/* -- Users, operators, disk, keys -- */

static store_error slow_commit(store *base, const store_change *changes, unsigned n, store_fault *f)
{
    rig_ns += slow_ns;
    return rig_commit(base, changes, n, f);
}

static void do_request(input *in, uint8_t how)
{
    core_request r = { .tenant = "red", .model = "ma" };
    const pool *p = core_pool(c);
    uint64_t lease = pool_lease_number(p, next(in) % p->limits.leases);
    bool existed;
    if (!(how & 4)) {
        r.model[1] = how & 0x10 ? 'b' : 'a';
        r.host = number[how & 0x20 ? 3 : 1];
        r.count = 1 + (how & 3);
        r.replace = how & 0x40 ? CORE_REPLACE_YES : CORE_REPLACE_NO;
        (void)core_create(c, &r, &lease, &existed);
    } else if ((how & 3) == 0) {
        (void)core_release(c, lease, how & 0x10);
    } else if ((how & 3) == 1) {
        (void)core_park(c, lease);
    } else {
        (void)core_attach(c, lease, number[how & 0x20 ? 3 : 1]);
    }
}

static void operate(input *in, uint8_t how)
{
    uint32_t slots, slot = next(in), node = number[how >> 4 & 3], found;
    unsigned left;
    (void)core_slots(c, &slots);
    slot = slots ? slot % slots : CORE_NONE;
    if ((how & 7) < 2)
        (void)core_drain(c, node, how & 1, how & 0x80, &left);
    else if ((how & 7) == 6)
        (void)core_forget_key(c, node);
    else if ((how & 7) == 7)
        (void)(how & 8 ? core_forget_unused(c, 0, &found) : core_forget(c, node));
    else if (slot == CORE_NONE)
        return;
    else if ((how & 7) == 2)
        (void)core_break(c, slot, POOL_WHY_OPERATOR);
    else if ((how & 7) == 3)
        (void)core_repair(c, slot);
    else if ((how & 7) == 4)
        (void)core_reset(c, slot);
    else
        (void)core_replace(c, slot, POOL_WHY_OPERATOR, how & 0x80);
}

static void set_row(unsigned i, unsigned may, const char *name)
{
    memset(lists.row[i].key, (int)(i + 1), sizeof lists.row[i].key);
    lists.row[i].may = may;
    snprintf(lists.row[i].name, sizeof lists.row[i].name, "%s", name);
}

static void change_keys(uint8_t how)
{
    char name[] = "n0";
    name[1] = (char)('0' + (how >> 4 & 3));
    set_row(how & 3, how & 4 ? KEYS_ALL : how & 8 ? KEYS_HOST : 0, how & 0x40 ? name : "");
    for (unsigned i = 0; i < PEERS; i++) /* a name stands there once */
        if (i != (how & 3u) && !strcmp(lists.row[i].name, name))
            lists.row[i].name[0] = '\0';
    wire_recheck(w);
}

static void change_disk(uint8_t how)
{
    slow_ns = (how & 0x40 ? how & 31 : 0) * 4000000ull;
    disk.fail_after = how & 0x80 ? how & 7 : UINT_MAX;
    disk.fault = how & 0x10 ? STORE_E_IO : STORE_E_FULL;
    disk.lost = how & 0x20;
}

/* -- What holds -- */

static void check_sums(void)
{
    const wire_counters *n = &w->count;
    uint64_t heard = n->hellos + n->registers + n->registers_refused + n->keys_refused +
                     n->names_refused + n->paths_refused + n->doubles + n->heartbeats + n->alarms +
                     n->done + n->refused + n->statuses + n->bad + n->unasked + n->ignored;
    uint64_t orders = 0;
    unsigned open = 0;
    for (unsigned i = 0; i <= PEERS; i++) {
        peer *k = &peers[i];
        open += far_open(&k->far);
        if (!far_open(&k->far) || ((const wire_proxy *)k->far.conn->context)->later)
            continue;
        sum.sure += k->frames - k->sure;
        k->sure = k->frames;
    }
    must(heard + sum.ask_errors >= sum.sure);      /* all that whoever is still there has said; */
    must(heard <= sum.frames + sum.opened - open); /* and, of who is not, how it ended */
    for (unsigned t = 0; t < TYPES; t++)
        orders += is_order(t) ? sum.said[t] : 0;
    must(n->hellos == sum.said[DXPU_CONTROL_HELLO] && n->registers == sum.said[DXPU_CONTROL_NODE]);
    must(n->heartbeats == sum.said[DXPU_CONTROL_HEARTBEAT]);
    must(n->alarms == sum.said[DXPU_CONTROL_DONE]);
    must(n->errors_sent == sum.said[DXPU_CONTROL_ERROR] && n->orders == orders);
    must(n->done + n->refused <= orders);
}

/* Of each connection. */
static void check_proxy(const wire_proxy *p)
{
    unsigned out = 0;
    must(p->owner == w && p->conn->context == p && *p->link == p);
    must(!p->later ||
         (p->greeted && !p->node && evbuffer_get_length(p->later) <= WIRE_LATER_BYTES));
    must(!p->node || (p->greeted && find_node(w, p->node) == p));
    must(!p->node || may_register(p)); /* M-81, also when the lists have changed */
    must(p->conn->unsent <= WIRE_SEND_BYTES);
    for (unsigned i = 0; i < p->places; i++)
        out += p->orders[i].sent_ns != 0;
    must(out <= SLOTS + 1 && p->places <= 16); /* one for each slot, and one for all */
}

static void check_wire(void)
{
    uint32_t nodes;
    const core_node *node = core_nodes(c, &nodes);
    unsigned there = 0, held = 0, later = 0;
    for (const wire_proxy *p = w->first; p; p = p->next) {
        check_proxy(p);
        later += p->later != NULL;
        there++;
    }
    for (const wire_proxy *p = w->held; p; p = p->next_held)
        held++;
    for (const wire_proxy *p = w->going; p; p = p->next_held)
        held++;
    must(there == w->listener->count && held == later);
    for (unsigned i = 0; i < w->nodes; i++) {
        uint32_t at = core_find_node(c, w->by_node[i]->node);
        must(!i || w->by_node[i - 1]->node < w->by_node[i]->node);
        for (unsigned j = 0; j < i; j++) /* M-72 */
            must(memcmp(w->by_node[i]->identity, w->by_node[j]->identity, 16));
        must(at != CORE_NONE && (node[at].connected || c->t.node_more[at].told));
    }
    for (uint32_t i = 0; i < nodes; i++)
        must(!node[i].connected || find_node(w, node[i].number));
}

/* -- Time -- */

/* The proxy that keeps the rules. */
static void attend(void)
{
    peer *k = &peers[GOOD];
    uint64_t now = rig_ns / 1000000u;
    unsigned heartbeats = k->heartbeats;
    while (k->orders)
        say_answer(k, NULL, 0);
    if (k->ask) {
        say_status(k, NULL, 0);
        k->ask = 0;
    }
    if (now >= good_ms + HEARTBEAT_MS) {
        good_ms = now;
        say_heartbeat(k, NULL, 0);
        heartbeats++;
    }
    must(far_open(&k->far) && k->heartbeats == heartbeats &&
         !((const wire_proxy *)k->far.conn->context)->later);
}

/* As often as there is something to do: what is due, and what main.c does after each turn. */
static void follow(void)
{
    bool more = true;
    for (unsigned turns = 0; more; turns++) {
        must(turns < 100);
        rig_turn(w->listener);
        timers_turn();
        attend();
        wire_clock(c);
        if (core_next_ms(c) <= rig_ns / 1000000u)
            core_tick(c);
        wire_pump(w);
        more = timers_more();
    }
    must(!w->held && !w->going); /* who waits does not wait for somebody else's bytes */
    check_wire();
    check_sums();
    check_core(c);
}

/* Each peer that is still there has sent a heartbeat. */
static void check_silence(void)
{
    uint64_t now = rig_ns / 1000000u;
    for (unsigned i = 0; i < w->nodes; i++)
        must(now <= w->by_node[i]->heard_ms + 3 * HEARTBEAT_MS + w->scan_ms);
}

/* At once this program was held up, which is not a peer's silence. */
static void pass_time(uint8_t how)
{
    uint64_t left_ns = 1000000ull << (how & 0x7f) % 15,
             piece_ns = how & 0x80 ? left_ns : w->scan_ms * 1000000;
    while (left_ns) {
        uint64_t part = left_ns < piece_ns ? left_ns : piece_ns;
        rig_ns += part;
        left_ns -= part;
        follow();
        check_silence();
    }
}

/* Both, and the proxy that keeps the rules. */
static void start(void)
{
    core_settings set;
    wire_settings at;
    core_result why;
    peer *k = &peers[GOOD];
    core_settings_default(&set);
    set.early = (uint64_t)1 << 32; /* so short a run has no second */
    set.events = 16;
    set.nodes = 16;
    set.slots = 256; /* a byte names any lease */
    set.grace_ms = 5000;
    c = core_open(&disk.base, &set, UNIX_MS + rig_ns / 1000000u, rig_ns / 1000000u, &why);
    wire_settings_default(&at);
    at.keys = &lists;
    at.heartbeat_ms = HEARTBEAT_MS;
    at.on_status = on_status;
    w = c ? wire_open(NULL, c, &at) : NULL;
    must(w != NULL);
    memset(&sum, 0, sizeof sum);
    good_ms = rig_ns / 1000000u;
    come(k, GOOD, sealed ? lists.row[GOOD].key : NULL);
    say_hello(k, NULL, 0);
    say_register(k, NULL, 0, 0);
    wire_pump(w); /* the end of that turn of the loop */
}

static void stop(void)
{
    report r;
    report_begin(&r, nowhere(), sealed);
    wire_report(w, &r);
    report_end(&r);
    wire_close(w);
    for (unsigned i = 0; i <= PEERS; i++)
        must(!peers[i].far.conn);
    core_close(c);
}

static void start_again(void)
{
    uint64_t leases = leases_of(c);
    bool failed = disk.failures != 0;
    must(!rig_differs(c, &disk));
    stop();
    change_disk(0);
    disk.failures = 0;
    start();
    must(failed || leases_of(c) == leases);
}

static void say_something(peer *k, input *in, unsigned op, uint8_t how)
{
    static void (*const one[])(peer *, input *, uint8_t) = { say_hello,  NULL,       say_heartbeat,
                                                             say_alarm,  say_answer, say_answer,
                                                             say_status, say_other };
    if (op == 1)
        say_register(k, in, how, next(in));
    else if (op < sizeof one / sizeof *one)
        one[op](k, in, op ? how : how & 0xfc);
    else if (op == 8)
        far_say_raw(&k->far, in, how >> 2);
    else
        say_much(k, how);
}

static void step(input *in)
{
    uint8_t op = next(in), how = next(in);
    unsigned what = (op & 0x7fu) % 19;
    peer *k = &peers[how % PEERS];
    switch (what) {
    case 0:
    case 1:
        do_come(in, how);
        break;
    case 12:
        far_network(&k->far, how >> 2 & 7, how >> 5);
        break;
    case 13:
        do_request(in, how);
        break;
    case 14:
        operate(in, how);
        break;
    case 15:
        change_keys(how);
        break;
    case 16:
        change_disk(how);
        break;
    case 17:
        if (how == 0xff)
            start_again();
        else if (how == 0xfe)
            make_anew(c);
        break;
    case 18:
        pass_time(how);
        break;
    default:
        say_something(k, in, what - 2, how);
        break;
    }
    check_wire();
    if (!(op & 0x80)) /* else there is more in this turn of the loop */
        follow();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const store_kind kind = { .load = rig_load, .commit = slow_commit };
    input in = { data, size };
    timers_begin();
    memset(number, 0, sizeof number);
    for (unsigned i = 0; i < RIG_KEYS; i++)
        set_row(i, i <= GOOD ? KEYS_ALL : 0, "");
    rig_store_init(&disk);
    disk.base.kind = &kind;
    slow_ns = 0;
    rig_ns = 1000000;
    sealed = next(&in) & 1;
    start();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    make_anew(c);
    start_again(); /* it takes what it wrote */
    stop();
    rig_store_free(&disk);
    return 0;
}
