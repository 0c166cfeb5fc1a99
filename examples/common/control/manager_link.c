/* manager_link.c - see manager_link.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 State   2 Registers   3 Alarms   4 Heartbeats   5 Answers   6 Connection
              7 Opening */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* getentropy(), gethostname() */
#endif
#include "manager_link.h"
#include "log.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    SLOTS_PER_REGISTER = 256,
    REGISTERS_OUT = 64, /* of changed slots, without an answer; more wait */
    ALARMS_KEPT = 32,
    ALARM_TEXT_BYTES = 160,
    REFUSAL_TEXT_BYTES = DXPU_CONTROL_TEXT_MAX + 32,
    SILENT_HEARTBEATS = 3, /* then the connection is given up (M-52) */
    ANSWER_MS = 10000,     /* until then all slots must be registered */
    GREET_MS = 2000,       /* with several managers; then the next one is dialed, */
    SILENT_MS = 2000,      /* and one that was silent is left out for that long */
    BACKOFF_MIN_MS = 100,
    BACKOFF_MAX_MS = 5000,
    BACKOFF_SEVERAL_MS = 400, /* with several managers: the next leader serves within seconds */
    HEARTBEAT_MIN_MS = 10,    /* whatever the manager asks for */
    HEARTBEAT_MAX_MS = 600000,
    TERM_HEARTBEATS = 20, /* without one of the highest term; then a lower one is believed again */
    TERM_MAX_MS = 60000   /* or after that time */
};

#define REFUSAL_NS 60000000000u /* interval at which the same one is repeated */

/* ==== 1  State ================================================================================ */

#define LINK_COUNTERS(X)                                                                           \
    X(connections, "that stood")                                                                   \
    X(registers, "sent")                                                                           \
    X(heartbeats, "sent")                                                                          \
    X(alarms, "sent")
#define LINK_FIELD(name, text) uint64_t name;

/* What was asked, in the upper bits of a request's number: the answer must fit (M-50). */
enum { ASKED_HELLO = 1, ASKED_REGISTER, ASKED_HEARTBEAT, ASKED_ALARM, ASKED_END, ASKED_SHIFT = 28 };

typedef enum link_state {
    LINK_AWAY, /* no connection stands */
    LINK_GREETING,
    LINK_REGISTERING, /* all slots */
    LINK_UP
} link_state;

typedef struct link_alarm {
    uint16_t slot;
    uint8_t kind;
    uint64_t epoch;
    char text[ALARM_TEXT_BYTES];
} link_alarm;

struct manager_link {
    struct event_base *base;
    requests *requests;
    requests_peer *peer; /* NULL: there is no connection */
    manager_proxy proxy;
    dxpu_udp_address address[MANAGERS_MAX]; /* of one pool; only the one that leads answers */
    unsigned managers, dialed, first; /* how many; the one that is dialed or connected; the one that
                                         was connected last */
    uint64_t dialed_ns;
    uint64_t silent_ns[MANAGERS_MAX]; /* when one that is frozen or cut off may be dialed again */
    keys *keys;
    uint8_t key[DXPU_NOISE_KEY_BYTES]; /* the managers' */
    char at[DXPU_UDP_TEXT_BYTES], name[MANAGER_NAME_MAX + 1];
    uint8_t identity[IDENTITY_BYTES];
    uint64_t instance;
    secure_conn *conn;
    struct event *timer; /* to dial, to give up, to send a heartbeat: as the state has it */
    struct event *flush; /* what has changed; set by an eventfd, also from other threads */
    int flush_fd;
    link_state state;
    bool closing;
    const char *complaint; /* said last; the same again is not news */
    secure_telling refusals;
    char refusal[REFUSAL_TEXT_BYTES]; /* reported last, "" since it is registered */
    unsigned backoff_ms, heartbeat_ms;
    uint32_t node, changes, sequence;
    /* M-144: of this connection's manager, 0: unknown; the highest, and when that one answered. */
    uint64_t term, highest_term, term_ns;
    uint32_t asked[ASKED_END]; /* without an answer */
    /* Each slot as it was registered last, and whether that may no longer be true. */
    uint8_t (*told)[DXPU_CONTROL_DEVICE_BYTES];
    pthread_mutex_t lock; /* of these */
    bool *changed, any_changed;
    link_alarm alarms[ALARMS_KEPT]; /* a ring of those to be sent */
    unsigned first_alarm, alarms_waiting;
    uint64_t alarms_dropped;
    dxpu_control_address path[DXPU_CONTROL_PATHS_MAX];
    unsigned paths;
    struct {
        LINK_COUNTERS(LINK_FIELD)
    } count;
};

static const control_proxy *self(const manager_link *m)
{
    return requests_proxy(m->requests);
}

static void set_timer(manager_link *m, unsigned ms)
{
    struct timeval tv;
    tv.tv_sec = (time_t)(ms / 1000);
    tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
    (void)event_add(m->timer, &tv);
}

/* on_flush() comes, in the link's own thread. */
static void wake(const manager_link *m)
{
    uint64_t one = 1;
    (void)!write(m->flush_fd, &one, sizeof one); /* full: it is set already */
}

static bool ask(manager_link *m, unsigned what, dxpu_control *msg)
{
    msg->request = (uint32_t)what << ASKED_SHIFT | (m->sequence++ & 0xfffffffu);
    m->asked[what]++;
    return requests_send(m->requests, m->conn, msg);
}

/* ==== 2  Registers ============================================================================ */

static void describe(const manager_link *m, unsigned number, uint8_t out[DXPU_CONTROL_DEVICE_BYTES])
{
    dxpu_control_device d;
    memset(&d, 0, sizeof d);
    d.number = (uint16_t)number;
    m->proxy.device(m->proxy.user, number, &d);
    dxpu_control_device_encode(&d, out);
}

/* Slots in the form of `told`. */
static bool send_register(manager_link *m, unsigned first, unsigned count)
{
    dxpu_control msg;
    memset(&msg, 0, sizeof msg);
    msg.type = DXPU_CONTROL_REGISTER;
    msg.u.reg.role = self(m)->role;
    msg.u.reg.total = self(m)->slots;
    msg.u.reg.first = (uint16_t)first;
    msg.u.reg.count = (uint16_t)count;
    msg.u.reg.entry_bytes = DXPU_CONTROL_DEVICE_BYTES;
    msg.u.reg.node = m->node;
    msg.u.reg.instance = m->instance;
    memcpy(msg.u.reg.identity, m->identity, IDENTITY_BYTES);
    msg.u.reg.entries.ptr = m->told[first - 1];
    msg.u.reg.entries.len = (size_t)count * DXPU_CONTROL_DEVICE_BYTES;
    msg.u.reg.paths = (uint8_t)m->paths;
    memcpy(msg.u.reg.path, m->path, sizeof m->path);
    msg.u.reg.name.ptr = (const uint8_t *)m->name;
    msg.u.reg.name.len = strlen(m->name);
    m->count.registers++;
    return ask(m, ASKED_REGISTER, &msg);
}

static void set_changed(manager_link *m, bool changed)
{
    pthread_mutex_lock(&m->lock);
    m->any_changed = changed;
    memset(m->changed, changed, self(m)->slots);
    pthread_mutex_unlock(&m->lock);
}

/* The value of a mark, which is cleared. */
static bool take_mark(manager_link *m, bool *mark)
{
    bool was;
    pthread_mutex_lock(&m->lock);
    was = *mark;
    *mark = false;
    pthread_mutex_unlock(&m->lock);
    return was;
}

static void mark(manager_link *m, unsigned number)
{
    pthread_mutex_lock(&m->lock);
    m->changed[number - 1] = m->any_changed = true;
    pthread_mutex_unlock(&m->lock);
}

static void register_all(manager_link *m)
{
    unsigned slots = self(m)->slots;
    m->state = LINK_REGISTERING;
    set_changed(m, false);
    for (unsigned i = 0; i < slots; i++)
        describe(m, i + 1, m->told[i]);
    for (unsigned first = 1, count; first <= slots; first += count) {
        count = slots + 1 - first < SLOTS_PER_REGISTER ? slots + 1 - first : SLOTS_PER_REGISTER;
        if (!send_register(m, first, count))
            return; /* the connection has just ended */
    }
}

/* M-53: what is no longer as it was registered, slot by slot. */
static void register_changed(manager_link *m)
{
    unsigned slots = self(m)->slots;
    if (!take_mark(m, &m->any_changed))
        return;
    for (unsigned i = 0; i < slots; i++) {
        uint8_t now[DXPU_CONTROL_DEVICE_BYTES];
        if (!take_mark(m, &m->changed[i]))
            continue;
        if (m->asked[ASKED_REGISTER] >= REGISTERS_OUT) {
            mark(m, i + 1); /* the next answer brings us back */
            return;
        }
        describe(m, i + 1, now);
        if (!memcmp(now, m->told[i], sizeof now))
            continue;
        memcpy(m->told[i], now, sizeof now);
        m->changes++;
        if (!send_register(m, i + 1, 1))
            return;
    }
}

void manager_changed(manager_link *m, unsigned number)
{
    if (!m)
        return;
    mark(m, number);
    wake(m);
}

/* ==== 3  Alarms =============================================================================== */

static bool oldest_alarm(manager_link *m, link_alarm *out)
{
    bool any;
    pthread_mutex_lock(&m->lock);
    any = m->alarms_waiting != 0;
    if (any)
        *out = m->alarms[m->first_alarm];
    pthread_mutex_unlock(&m->lock);
    return any;
}

static void send_alarms(manager_link *m)
{
    link_alarm a;
    dxpu_control msg;
    if (m->asked[ASKED_ALARM] || !oldest_alarm(m, &a))
        return;
    memset(&msg, 0, sizeof msg);
    msg.type = DXPU_CONTROL_ALARM;
    msg.u.alarm.slot = a.slot;
    msg.u.alarm.kind = a.kind;
    msg.u.alarm.epoch = a.epoch;
    msg.u.alarm.text.ptr = (const uint8_t *)a.text;
    msg.u.alarm.text.len = strlen(a.text);
    m->count.alarms++;
    (void)ask(m, ASKED_ALARM, &msg); /* it stays the oldest until it is answered */
}

/* The first one was answered, whatever the answer. */
static void alarm_done(manager_link *m)
{
    pthread_mutex_lock(&m->lock);
    m->first_alarm = (m->first_alarm + 1) % ALARMS_KEPT;
    m->alarms_waiting--;
    pthread_mutex_unlock(&m->lock);
    send_alarms(m);
}

void manager_alarm(manager_link *m, unsigned slot, unsigned kind, uint64_t epoch, const char *text)
{
    link_alarm a;
    if (!m)
        return;
    a.slot = (uint16_t)slot;
    a.kind = (uint8_t)kind;
    a.epoch = epoch;
    snprintf(a.text, sizeof a.text, "%s", text);
    for (char *c = a.text; *c; c++) { /* M-8 */
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    pthread_mutex_lock(&m->lock);
    if (m->alarms_waiting == ALARMS_KEPT)
        m->alarms_dropped++;
    else
        m->alarms[(m->first_alarm + m->alarms_waiting++) % ALARMS_KEPT] = a;
    pthread_mutex_unlock(&m->lock);
    wake(m);
}

/* ==== 4  Heartbeats =========================================================================== */

static void on_flush(evutil_socket_t fd, short what, void *user)
{
    manager_link *m = user;
    uint64_t times;
    (void)what;
    (void)!read(fd, &times, sizeof times);
    if (m->state != LINK_UP)
        return; /* all will be registered */
    register_changed(m);
    if (m->state == LINK_UP)
        send_alarms(m);
}

/* M-52 */
static void heartbeat(manager_link *m)
{
    dxpu_control msg;
    if (m->asked[ASKED_HEARTBEAT] >= SILENT_HEARTBEATS) {
        secure_drop(m->conn, "no answer to three heartbeats");
        return;
    }
    memset(&msg, 0, sizeof msg);
    msg.type = DXPU_CONTROL_HEARTBEAT;
    msg.u.heartbeat.instance = m->instance;
    msg.u.heartbeat.changes = m->changes;
    m->count.heartbeats++;
    if (!ask(m, ASKED_HEARTBEAT, &msg))
        return;
    set_timer(m, m->heartbeat_ms);
    set_changed(m, true); /* also what was not reported */
    register_changed(m);
}

/* ==== 5  Answers ============================================================================== */

static bool end(manager_link *m, const char *why)
{
    secure_drop(m->conn, why);
    return false;
}

static bool on_hello(manager_link *m, const dxpu_control_hello *hello)
{
    if (hello->role != DXPU_CONTROL_ROLE_MANAGER)
        return end(m, "it is not a manager");
    if (hello->version_min > DXPU_CONTROL_VERSION || hello->version_max < DXPU_CONTROL_VERSION)
        return end(m, "it has no version of control messages in common with this proxy");
    register_all(m);
    return true;
}

static void set_node(manager_link *m, uint32_t node)
{
    if (node == m->node)
        return;
    log_note("node %u of manager %s", (unsigned)node, m->at);
    m->node = node;
    requests_set_node(m->requests, node);
    m->proxy.node(m->proxy.user, node);
}

/* M-144: another manager has led since.  It is not believed for ever: all may have been restored
   from a copy, on a machine with a wrong clock. */
static bool is_former(const manager_link *m, uint64_t term)
{
    uint64_t ms = (uint64_t)m->heartbeat_ms * TERM_HEARTBEATS;
    ms = ms < TERM_MAX_MS ? ms : TERM_MAX_MS;
    return term < m->highest_term && /* one that could not store its term has 0 */
           dxpu_udp_now_ns() - m->term_ns < ms * 1000000u;
}

static void hear_term(manager_link *m)
{
    if (!m->term)
        return;
    m->highest_term = m->term;
    m->term_ns = dxpu_udp_now_ns();
}

static bool on_node(manager_link *m, const dxpu_control_node *node)
{
    if (is_former(m, node->term))
        return end(m, "another manager leads the pool since");
    m->term = node->term;
    hear_term(m);
    m->heartbeat_ms = node->heartbeat_ms < HEARTBEAT_MIN_MS   ? HEARTBEAT_MIN_MS
                      : node->heartbeat_ms > HEARTBEAT_MAX_MS ? HEARTBEAT_MAX_MS
                                                              : node->heartbeat_ms;
    set_node(m, node->node);
    if (m->proxy.directs)
        m->proxy.directs(m->proxy.user, node->directs);
    if (m->state == LINK_REGISTERING && !m->asked[ASKED_REGISTER]) {
        m->state = LINK_UP;
        m->first = m->dialed;
        m->backoff_ms = BACKOFF_MIN_MS;
        m->complaint = NULL;
        m->refusal[0] = '\0';
        log_note("registered with manager %s", m->at);
        set_timer(m, m->heartbeat_ms);
    }
    if (m->state == LINK_UP) /* what waited for this answer, and what changed meanwhile */
        wake(m);
    return true;
}

/* It dials repeatedly, and is refused for the same reason until somebody mends it. */
static void tell_refusal(manager_link *m, const dxpu_control_error *e)
{
    char text[REFUSAL_TEXT_BYTES], more[SECURE_MORE_BYTES];
    snprintf(text, sizeof text, "%s (%.*s)", dxpu_control_code_name(e->code), (int)e->text.len,
             (const char *)e->text.ptr);
    if (strcmp(text, m->refusal) != 0)
        memset(&m->refusals, 0, sizeof m->refusals);
    memcpy(m->refusal, text, sizeof m->refusal);
    if (secure_tell(&m->refusals, REFUSAL_NS, more))
        log_warning("manager %s refuses: %s%s", m->at, text, more);
}

static bool on_error(manager_link *m, unsigned what, const dxpu_control_error *e)
{
    if (what == ASKED_ALARM && m->asked[ASKED_ALARM]) {
        m->asked[ASKED_ALARM]--;
        alarm_done(m);
        return true;
    }
    tell_refusal(m, e);
    return end(m, "refused by it");
}

/* requests_answer: each answers what was asked, and no more. */
static bool on_answer(void *user, const dxpu_control *msg)
{
    static const struct {
        unsigned type, asked;
    } fits[] = { { DXPU_CONTROL_HELLO, ASKED_HELLO },
                 { DXPU_CONTROL_NODE, ASKED_REGISTER },
                 { DXPU_CONTROL_HEARTBEAT, ASKED_HEARTBEAT },
                 { DXPU_CONTROL_DONE, ASKED_ALARM } };
    manager_link *m = user;
    unsigned what = msg->request >> ASKED_SHIFT;
    bool good = false;
    if (msg->type == DXPU_CONTROL_ERROR)
        return on_error(m, what, &msg->u.error);
    for (unsigned i = 0; i < sizeof fits / sizeof fits[0]; i++)
        good |= fits[i].type == msg->type && fits[i].asked == what && m->asked[what];
    if (!good)
        return end(m, "it sent an unexpected answer"); /* M-50 */
    m->asked[what]--;
    switch (what) {
    case ASKED_HELLO:
        return on_hello(m, &msg->u.hello);
    case ASKED_REGISTER:
        return on_node(m, &msg->u.node);
    case ASKED_HEARTBEAT:
        hear_term(m);
        return true;
    default:
        alarm_done(m);
        return true;
    }
}

/* ==== 6  Connection =========================================================================== */

static void *on_opened(void *user, secure_conn *conn)
{
    manager_link *m = user;
    dxpu_udp_address here;
    m->peer = requests_peer_new(m->requests, on_answer, m);
    if (!m->peer)
        return NULL;
    m->count.connections++;
    m->state = LINK_GREETING;
    m->paths = m->proxy.paths && secure_here(conn, &here)
                   ? m->proxy.paths(m->proxy.user, &here, m->path)
                   : 0;
    memset(m->asked, 0, sizeof m->asked);
    m->asked[ASKED_HELLO] = 1;
    m->term = 0;
    requests_greet(m->requests, conn, (uint32_t)ASKED_HELLO << ASKED_SHIFT);
    set_timer(m, ANSWER_MS);
    return m;
}

static void on_bytes(void *context, secure_conn *conn, dxpu_bytes in)
{
    (void)requests_bytes(((manager_link *)context)->peer, conn, in);
}

/* A wrong key at either end looks the same from here: the manager answers no stranger (S-74). */
static void complain(const manager_link *m, const char *why, bool greeting)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    log_warning(
        "manager %s: %s%s; dialing again", m->at, why,
        greeting && keys_plain(m->keys)
            ? "; if it requires keys, start this one with --key and --manager-key, without --plain"
            : "");
    if (!secure_is_handshake(why))
        return;
    log_error("--manager-key must be the public key that the manager prints when it starts, and "
              "its --peers must have: %s may=%s",
              dxpu_sodium_key_print(keys_own(m->keys)->public_key, text),
              dxpu_control_role_name(self(m)->role));
}

/* The next one in the list, but for those that were silent, if there is another. */
static void turn_to_next(manager_link *m, unsigned most_ms)
{
    uint64_t now_ns = dxpu_udp_now_ns();
    for (unsigned tries = 0; tries < m->managers; tries++) {
        m->dialed = (m->dialed + 1) % m->managers;
        if (m->dialed == m->first) /* all of them were tried */
            m->backoff_ms = m->backoff_ms * 2 < most_ms ? m->backoff_ms * 2 : most_ms;
        if (now_ns >= m->silent_ns[m->dialed])
            return;
    }
}

static void on_closed(void *context, secure_conn *conn, const char *why)
{
    manager_link *m = context;
    unsigned most_ms = m->managers > 1 ? BACKOFF_SEVERAL_MS : BACKOFF_MAX_MS;
    bool greeting = m->state == LINK_GREETING;
    bool silent = m->state == LINK_UP
                      ? m->asked[ASKED_HEARTBEAT] >= SILENT_HEARTBEATS
                      : dxpu_udp_now_ns() - m->dialed_ns >= GREET_MS / 2 * 1000000ull;
    (void)conn;
    requests_peer_free(m->peer);
    m->peer = NULL;
    m->conn = NULL;
    m->state = LINK_AWAY;
    if (m->closing)
        return;
    if (why != m->complaint)
        complain(m, why, greeting);
    m->complaint = why;
    if (silent)
        m->silent_ns[m->dialed] = dxpu_udp_now_ns() + SILENT_MS * 1000000ull;
    set_timer(m, m->backoff_ms / m->managers); /* a round of all takes as long as one alone */
    turn_to_next(m, most_ms);
}

static void dial(manager_link *m)
{
    secure_callbacks cb = { m, on_opened, on_bytes, on_closed };
    dxpu_tcp_settings set;
    const char *why;
    dxpu_tcp_settings_default(&set);
    set.idle_ms = 0; /* heartbeats do this */
    if (m->managers > 1)
        set.greet_ms = GREET_MS;
    m->dialed_ns = dxpu_udp_now_ns();
    dxpu_udp_print(&m->address[m->dialed], m->at);
    m->conn =
        secure_connect(m->base, &m->address[m->dialed], &set, keys_own(m->keys), m->key, &cb, &why);
    if (!m->conn)
        on_closed(m, NULL, why);
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
    manager_link *m = user;
    (void)fd;
    (void)what;
    if (!m->conn)
        dial(m);
    else if (m->state == LINK_UP)
        heartbeat(m);
    else
        secure_drop(m->conn, "it does not answer");
}

/* ==== 7  Opening ============================================================================== */

static const char *check_key(const manager_settings *s, const keys_settings *k)
{
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    if (k->plain)
        return s->key ? "--plain cannot be used with --manager-key" : NULL;
    return dxpu_sodium_key_parse(s->key, key)
               ? NULL
               : "--manager-key must be a public key, 44 characters; `dxpu pubkey FILE` prints it";
}

/* ADDR[:PORT][,ADDR[:PORT]...].  NULL, or what is wrong with it: a name that does not resolve is
   left out, unless none does. */
static const char *find_managers(const char *text, dxpu_udp_address out[MANAGERS_MAX],
                                 unsigned *count, bool warns)
{
    char one[256];
    const char *why = NULL, *end;
    unsigned left_out = 0;
    *count = 0;
    do {
        size_t len;
        end = strchr(text, ',');
        len = end ? (size_t)(end - text) : strlen(text);
        if (*count + left_out == MANAGERS_MAX)
            return "more than 9 managers";
        if (len >= sizeof one)
            return "an address is too long";
        memcpy(one, text, len);
        one[len] = '\0';
        why = dxpu_tcp_parse_port(one, MANAGER_PORT, &out[*count]);
        *count += !why;
        if (why == dxpu_udp_unresolved) {
            if (warns)
                log_warning("--manager %s: %s; it is left out until the next start", one, why);
            left_out++;
            why = NULL;
        }
        text += len + 1;
    } while (!why && end);
    return why || *count ? why : dxpu_udp_unresolved;
}

const char *manager_check(const manager_settings *s, const keys_settings *k, const char *further)
{
    const bool no_key = !s->key && !k->plain;
    static char text[200];
    dxpu_udp_address address[MANAGERS_MAX];
    unsigned managers = 0;
    const char *why;
    if (!s->address)
        return NULL; /* an --identity waits for it: a service's unit has one at once */
    if (further || !s->identity || no_key) {
        snprintf(text, sizeof text, "--manager requires%s%s%s%s%s", further ? " " : "",
                 further ? further : "", s->identity ? "" : " --identity FILE",
                 no_key ? " --manager-key KEY" : "",
                 no_key ? " (the manager prints its public key when it starts)"
                        : " (created if missing)");
        return text;
    }
    if (s->name && (!s->name[0] || strlen(s->name) > MANAGER_NAME_MAX))
        return "--name: 1 to 64 characters";
    for (const char *c = s->name; c && *c; c++) {
        if (*c < ' ' || *c > '~')
            return "--name: only printable ASCII";
    }
    why = find_managers(s->address, address, &managers, true);
    if (!why)
        why = keys_check_addresses(k, address, managers);
    snprintf(text, sizeof text, "--manager: %s", why ? why : "");
    return why ? text : check_key(s, k);
}

static void set_name(manager_link *m, const char *name, unsigned number)
{
    char end[16] = "";
    if (name)
        snprintf(m->name, sizeof m->name, "%s", name);
    else if (gethostname(m->name, sizeof m->name))
        m->name[0] = '\0';
    m->name[MANAGER_NAME_MAX] = '\0';
    for (char *c = m->name; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    if (number)
        snprintf(end, sizeof end, "-%u", number + 1);
    if (strlen(m->name) > MANAGER_NAME_MAX - strlen(end))
        m->name[MANAGER_NAME_MAX - strlen(end)] = '\0';
    strcat(m->name, end);
}

/* NULL, or why a manager cannot be dialed: its name may have been another address before. */
static const char *look_up(manager_link *m, const char *text)
{
    const char *why = find_managers(text, m->address, &m->managers, false);
    for (unsigned i = 0; !why && i < m->managers; i++)
        why = keys_allow_address(m->keys, &m->address[i]) ? NULL : keys_plain_address;
    return why;
}

manager_link *manager_open(struct event_base *base, const manager_settings *s,
                           const uint8_t identity[IDENTITY_BYTES], keys *k, requests *r,
                           const manager_proxy *proxy)
{
    manager_link *m = calloc(1, sizeof *m);
    unsigned slots = requests_proxy(r)->slots;
    const char *why = NULL;
    if (m) {
        m->base = base;
        m->requests = r;
        m->keys = k;
        if (s->key)
            (void)dxpu_sodium_key_parse(s->key, m->key);
        m->proxy = *proxy;
        m->backoff_ms = BACKOFF_MIN_MS;
        memcpy(m->identity, identity, IDENTITY_BYTES);
        set_name(m, s->name, s->number);
        m->told = calloc(slots, sizeof *m->told);
        m->changed = calloc(slots, sizeof *m->changed);
        m->timer = evtimer_new(base, on_timer, m);
        m->flush_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        m->flush = event_new(base, m->flush_fd, EV_READ | EV_PERSIST, on_flush, m);
        (void)pthread_mutex_init(&m->lock, NULL); /* an ordinary one: cannot fail */
        why = look_up(m, s->address);
    }
    if (!m || !m->told || !m->changed || !m->timer || m->flush_fd < 0 || !m->flush ||
        event_add(m->flush, NULL) || why || getentropy(&m->instance, sizeof m->instance)) {
        log_error("--manager %s: %s", s->address, why ? why : "out of memory");
        manager_close(m);
        return NULL;
    }
    m->instance |= 1; /* M-40: not 0 */
    set_timer(m, 0);
    return m;
}

void manager_close(manager_link *m)
{
    if (!m)
        return;
    m->closing = true;
    if (m->conn)
        secure_drop(m->conn, "closed here");
    if (m->timer)
        event_free(m->timer);
    if (m->flush)
        event_free(m->flush);
    if (m->flush_fd >= 0)
        close(m->flush_fd);
    (void)pthread_mutex_destroy(&m->lock);
    free(m->told);
    free(m->changed);
    free(m);
}

void manager_report(manager_link *m, report *r)
{
    uint64_t dropped;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    dropped = m->alarms_dropped;
    pthread_mutex_unlock(&m->lock);
    report_open(r, "manager");
    report_number(r, "registered", m->state == LINK_UP);
    report_number(r, "node", m->node);
    report_number(r, "changes", m->changes);
#define LINK_PRINT(name, text) report_number(r, #name, m->count.name);
    LINK_COUNTERS(LINK_PRINT)
#undef LINK_PRINT
    report_number(r, "alarms_dropped", dropped);
    report_close(r);
}
