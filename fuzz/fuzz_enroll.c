/* Fuzz target: `dxpu enroll`, which waits or asks, between the one that it is to meet, others with
   keys of their own, somebody in the middle, a network that does what the input says, and who sits
   at the terminal.  No code is shown and no key is taken but of who has said all that the code is
   of; who compares codes before yes gets the key of the right one; without yes, or --expect,
   nothing is taken; what is refused changes nothing; who was forgotten leaves nothing behind; and
   with the right one it succeeds, whatever was before.
   libFuzzer: -max_len=256 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem() */
#endif
#include "quick_sodium.h"

#include "dxpu_tcp.h"
#include "keys.h"
#include "console.h"
#include "log.h"
#include "text.h"
#include "input.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    ROOM = DXPU_SODIUM_FRAME_BYTES,
    BAG = 16,
    SESSIONS = 12,
    AGAIN = 3,  /* and one for each time that all is well */
    OWNERS = 4, /* the one that it is to meet, two others, and dxpu's own key: */
    OWN = 3,
    LINE = 64,
    KEY = DXPU_NOISE_KEY_BYTES
};

typedef struct message {
    uint8_t bytes[ROOM];
    size_t len;
} message;

/* One handshake of one of the others.  Most talk to dxpu; between: to those who do, as if it were
   dxpu. */
typedef struct session {
    dxpu_sodium_enroll e;
    unsigned owner;
    bool between;
    dxpu_udp_path at;
} session;

static dxpu_noise_pair owners[OWNERS];

static struct network {
    input in;
    bool listen, stopped, json, settling;
    session sessions[SESSIONS + AGAIN];
    unsigned count, settled, steps;
    message bag[BAG]; /* what anybody said, the latest one first */
    message said;     /* dxpu's last one */
    dxpu_udp_callbacks cb;
    dxpu_udp_address local;
    uint8_t room[ROOM];
    uint64_t now_ns, sent, met;
    event_callback_fn on_input, on_signal; /* NULL: no callback */
    void *input_user, *signal_user;
    char typed[256], line[LINE]; /* not yet read; read since the question, and no line yet */
    size_t typed_bytes, line_bytes;
    bool hung_up, yes, compared; /* yes: the last line; compared: after a look at both codes */
    int add;                     /* what comes of adding a line */
    bool took;
    keys_peer taken;
    FILE *out[2];
    char *text[2];
    size_t bytes[2];
} net;

/* ==== 1  What dxpu has of its system ========================================================== */

static dxpu_udp *net_open(const dxpu_udp_config *cfg)
{
    net.local = cfg->local[0];
    return (dxpu_udp *)(void *)&net;
}

static int net_loop(const dxpu_udp_callbacks *cb);

static void net_stop(void)
{
    net.stopped = true;
}

static void keep(const uint8_t *bytes, size_t len)
{
    memmove(&net.bag[1], &net.bag[0], sizeof net.bag - sizeof net.bag[0]);
    memcpy(net.bag[0].bytes, bytes, len);
    net.bag[0].len = len;
}

static void net_commit(size_t len)
{
    must(len <= ROOM);
    net.sent++;
    keep(net.room, len);
    net.said = net.bag[0];
}

static struct event *net_event(evutil_socket_t what, event_callback_fn cb, void *user)
{
    *(what == STDIN_FILENO ? &net.on_input : &net.on_signal) = cb;
    *(what == STDIN_FILENO ? &net.input_user : &net.signal_user) = user;
    return (struct event *)(void *)&net;
}

/* What was typed, which is what a line of it says as well. */
static ssize_t net_read(void *out, size_t cap)
{
    size_t len = net.typed_bytes < cap ? net.typed_bytes : cap;
    if (!len && !net.hung_up)
        errno = EAGAIN;
    memcpy(out, net.typed, len);
    memmove(net.typed, net.typed + len, net.typed_bytes - len);
    net.typed_bytes -= len;
    for (size_t i = 0; i < len; i++) {
        char c = ((char *)out)[i];
        if (net.line_bytes < LINE && c != '\n')
            net.line[net.line_bytes++] = c;
        if (c != '\n')
            continue;
        net.yes = net.yes || (net.line_bytes == 3 && memcmp(net.line, "yes", 3) == 0);
        net.line_bytes = 0;
    }
    return len || net.hung_up ? (ssize_t)len : -1;
}

static int net_flush(void)
{
    net.typed_bytes = net.line_bytes = 0;
    net.yes = net.compared = false;
    return 0;
}

static int net_add(const keys_peer *p)
{
    must(p && !net.took);
    net.took = net.add == 0;
    net.taken = *p;
    return net.add;
}

LOG_PRINTF static void say_log(const char *format, ...);

#undef stdout
#undef stderr
#define stdout                                 net.out[0]
#define stderr                                 net.out[1]
#define puts(text)                             fprintf(stdout, "%s\n", text)
#define putchar(c)                             fputc(c, stdout)
#define isatty(fd)                             (true)
#define dxpu_udp_open(cfg, why)                ((void)(why), net_open(cfg))
#define dxpu_udp_close(u)                      ((void)(u))
#define dxpu_udp_loop(u, cb)                   ((void)(u), net_loop(cb))
#define dxpu_udp_stop(u)                       ((void)(u), net_stop())
#define dxpu_udp_room(u)                       ((void)(u), net.room)
#define dxpu_udp_commit(u, to, len)            ((void)(u), (void)(to), net_commit(len))
#define dxpu_udp_base(u)                       ((void)(u), NULL)
#define dxpu_udp_local(u, index)               ((void)(u), &net.local)
#define dxpu_udp_now_ns()                      (net.now_ns)
#define event_new(base, what, flags, cb, user) net_event(what, cb, user)
#define event_add(e, tv)                       (0)
#define event_free(e)                          ((void)(e), net.on_input = NULL)
#define read(fd, out, cap)                     ((void)(fd), net_read(out, cap))
#define tcflush(fd, which)                     net_flush()
#define keys_add(file, p)                      net_add(p)
#define log_error                              say_log
#define log_warning                            say_log
#define log_note                               say_log
#define console_say(...)                       fprintf(stderr, __VA_ARGS__)

/* Not linked: replaces read() and others. */
#include "enroll_talk.c"
static void forget(enroll_talk *t);
#define enroll_forget forget
#include "enroll_command.c" /* not linked: reaches enroll() */
#undef enroll_forget
#include "print_json.c"

/* What the programs say, cleaned as log.c does. */
static void say_log(const char *format, ...)
{
    char text[LOG_LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_clean(text);
    fprintf(stderr, "dxpu enroll: %s\n", text);
}

void out_of_memory(void)
{
    abort();
}

/* ==== 2  The others =========================================================================== */

/* Who begins: of those who talk to a dxpu that waits each, and else who is between. */
static session *begin_session(unsigned owner, bool between, const char *name)
{
    session *s = &net.sessions[net.count];
    bool first = net.listen != between;
    memset(s, 0, sizeof *s);
    s->owner = owner;
    s->between = between;
    s->at.remote = net.local;
    s->at.remote.u.v4.sin_port = htons((uint16_t)(1000 + net.count));
    must(dxpu_sodium_enroll_begin(&s->e, &owners[owner], first, "") == DXPU_OK);
    memcpy(s->e.name, name, strlen(name)); /* who lies may call itself anything */
    net.count++;
    return s;
}

static bool same_hash(const dxpu_sodium_enroll *a, const dxpu_sodium_enroll *b)
{
    return memcmp(a->noise.hash, b->noise.hash, sizeof a->noise.hash) == 0;
}

/* Has it said all that e, which is done, has heard; and heard all but perhaps the last of e? */
static bool agrees(const session *s, const dxpu_sodium_enroll *e)
{
    dxpu_sodium_enroll x = s->e;
    if (!x.done)
        (void)dxpu_sodium_enroll_ingest(&x, (dxpu_bytes){ e->said, e->said_bytes });
    if (!x.done || x.noise.initiator == e->noise.initiator || !same_hash(&x, e))
        return false;
    must(memcmp(e->remote, owners[s->owner].public_key, sizeof e->remote) == 0);
    must(memcmp(x.remote, owners[OWN].public_key, sizeof x.remote) == 0);
    return true;
}

static const session *partner(const dxpu_sodium_enroll *e)
{
    for (unsigned i = 0; i < net.count; i++) {
        if (agrees(&net.sessions[i], e))
            return &net.sessions[i];
    }
    return NULL;
}

/* The codes are the same where all that was said is, and only there. */
static void check_codes(const dxpu_sodium_enroll *e)
{
    char here[DXPU_SODIUM_FINGERPRINT_BYTES], there[DXPU_SODIUM_FINGERPRINT_BYTES];
    must(strlen(dxpu_sodium_enroll_code(e, here)) == sizeof here - 1);
    for (unsigned i = 0; i < net.count; i++) {
        const dxpu_sodium_enroll *x = &net.sessions[i].e;
        bool shown = *dxpu_sodium_enroll_code(x, there) != '\0';
        must(shown == (x->noise.messages && dxpu_noise_done(&x->noise)));
        must(!shown || (strcmp(here, there) == 0) == same_hash(x, e));
    }
}

/* dxpu has met somebody. */
static void check_met(const enroll_talk *t)
{
    const dxpu_sodium_enroll *e = &t->peer->e;
    const session *s = partner(e);
    bool good = true;
    must(e->done && s);
    for (const char *p = s->e.name; *p; p++)
        good = good && *p >= 0x20 && *p <= 0x7e;
    must(strcmp(e->peer_name, good ? s->e.name : "") == 0);
    check_codes(e);
}

enum { BELOW = 8192 };

/* Does the secret stand where what was called has had its stack?  It was zeroed before. */
__attribute__((noinline, no_sanitize("address", "undefined"))) static bool
stands_below(const uint8_t secret[KEY])
{
    uint8_t room[BELOW];
    __asm__ volatile("" : "=m"(room)); /* it holds what is there */
    return memmem(room, sizeof room, secret, KEY) != NULL;
}

static bool has_key(const uint8_t key[KEY])
{
    unsigned found = 0;
    for (unsigned i = 0; i < OWNERS; i++)
        found += memcmp(key, owners[i].public_key, KEY) == 0;
    return found != 0;
}

/* What is refused changes nothing, and no key is left on the stack. */
static int hear_at(session *s, const message *m)
{
    static const uint8_t nothing[sizeof s->e.heard];
    dxpu_sodium_enroll before = s->e;
    uint8_t *copy = malloc(m->len ? m->len : 1);
    int rc;
    must(copy != NULL);
    memcpy(copy, m->bytes, m->len);
    sodium_stackzero(2 * BELOW);
    rc = dxpu_sodium_enroll_ingest(&s->e, (dxpu_bytes){ copy, m->len });
    must(!stands_below(owners[s->owner].secret));
    must(!memcmp(s->e.heard, nothing, sizeof nothing) ||
         !stands_below(s->e.noise.ephemeral.secret));
    free(copy);
    must(rc == DXPU_OK || memcmp(&s->e, &before, sizeof before) == 0);
    must(rc != DXPU_OK || memcmp(s->e.heard, before.heard, sizeof before.heard) != 0);
    must(!s->e.done || has_key(s->e.remote)); /* only with who has a key of these */
    return rc;
}

static bool say_of(session *s)
{
    uint8_t out[ROOM];
    int n = dxpu_sodium_enroll_emit(&s->e, out, sizeof out);
    must(n >= 0);
    if (n > 0)
        keep(out, (size_t)n);
    return n > 0;
}

/* ==== 3  The network ========================================================================== */

static void tick(void)
{
    if (!net.stopped && net.cb.next_ns(net.cb.user) <= net.now_ns)
        net.cb.run(net.cb.user, net.now_ns);
}

static void to_dxpu(const message *m, const session *from)
{
    const enroll_talk *t = net.cb.user;
    bool before = t->peer != NULL;
    uint8_t *copy;
    if (net.stopped)
        return;
    copy = malloc(m->len ? m->len : 1);
    must(copy != NULL);
    memcpy(copy, m->bytes, m->len);
    sodium_stackzero(2 * BELOW);
    net.cb.on_datagram(net.cb.user, copy, m->len, &from->at, 0);
    must(!stands_below(owners[OWN].secret));
    free(copy);
    if (!before && t->peer) {
        net.met++;
        check_met(t);
    }
    must(!net.listen || net.sent <= t->count.datagrams); /* S-143 */
    must(t->count.datagrams == t->count.begun + t->count.repeated + t->count.refused +
                                   t->count.limited + t->count.late + net.met);
    tick();
}

/* One message each way, as they come. */
static void pass(session *s)
{
    message m;
    if (net.listen) {
        if (say_of(s)) {
            uint64_t sent = net.sent;
            m = net.bag[0];
            to_dxpu(&m, s);
            if (net.sent != sent)
                (void)hear_at(s, &net.said);
        }
    } else if (net.said.len) {
        (void)hear_at(s, &net.said);
        if (say_of(s)) {
            m = net.bag[0];
            to_dxpu(&m, s);
        }
    }
}

static void seal(message *m)
{
    if (m->len > DXPU_FRAME_CRC_BYTES)
        dxpu_frame_seal_crc(m->bytes, m->len - DXPU_FRAME_CRC_BYTES);
}

static void alter(message *m, unsigned how, input *in)
{
    size_t at = next(in);
    if (how < 4 || !m->len)
        return;
    at %= m->len;
    if (how < 6) {
        m->bytes[at] ^= (uint8_t)(1u << next(in) % 8);
    } else if (how == 6) {
        m->len = at;
    } else { /* the end is another one's */
        const message *other = &net.bag[next(in) % BAG];
        if (other->len > at)
            memcpy(m->bytes + at, other->bytes + at, other->len - at);
        m->len = other->len > at ? other->len : at;
    }
    if (how != 5)
        seal(m);
}

/* Under a good head or none. */
static void invent(bool head, input *in)
{
    message m;
    size_t len = next(in) % 200, at = 0;
    dxpu_frame f;
    memset(&f, 0, sizeof f);
    f.kind = DXPU_KIND_HANDSHAKE;
    if (head)
        at = dxpu_frame_encode_header(&f, len, DXPU_FRAME_CRC_BYTES, m.bytes);
    for (size_t i = 0; i < len; i++)
        m.bytes[at + i] = next(in);
    m.len = at + len + (head ? DXPU_FRAME_CRC_BYTES : 0);
    if (head)
        seal(&m);
    keep(m.bytes, m.len);
}

/* ==== 4  The terminal ========================================================================= */

static void input_event(void)
{
    if (net.on_input && !net.stopped)
        net.on_input(STDIN_FILENO, EV_READ, net.input_user);
}

static void type(const char *text, size_t len)
{
    if (len > sizeof net.typed - net.typed_bytes)
        return;
    memcpy(net.typed + net.typed_bytes, text, len);
    net.typed_bytes += len;
    input_event();
}

/* Who sits there looks at both codes, and then answers. */
static void compare(void)
{
    const enroll_talk *t = net.cb.user;
    char here[DXPU_SODIUM_FINGERPRINT_BYTES], there[DXPU_SODIUM_FINGERPRINT_BYTES];
    bool same = false;
    if (!net.on_input || net.stopped)
        return;
    (void)dxpu_sodium_enroll_code(&t->peer->e, here);
    for (unsigned i = 0; i < net.count; i++) {
        session *s = &net.sessions[i];
        if (s->owner != 0 || s->between)
            continue;
        if (net.said.len && !net.listen)
            (void)hear_at(s, &net.said); /* it is repeated until then */
        same = same || strcmp(dxpu_sodium_enroll_code(&s->e, there), here) == 0;
    }
    type("\n", 1); /* a line of its own, unless what stood there was an answer */
    if (net.stopped)
        return;
    net.compared = same;
    type(same ? "yes\n" : "no\n", same ? 4 : 3);
}

static void at_terminal(unsigned what, input *in)
{
    static const char *const words[] = { "yes\n", "no\n", "Yes\n", "ye", "s\n", "yes \n", "\n" };
    char some[32];
    size_t len;
    if (what < sizeof words / sizeof *words) {
        type(words[what], strlen(words[what]));
    } else if (what < 20) {
        compare();
    } else if (what < 26) {
        len = next(in) % sizeof some;
        for (size_t i = 0; i < len; i++)
            some[i] = (char)next(in);
        type(some, len);
    } else if (what < 28) {
        net.hung_up = true;
        input_event();
    } else if (what < 30 && net.on_signal && !net.stopped) {
        net.on_signal(SIGINT, EV_SIGNAL, net.signal_user);
    }
}

/* ==== 5  Steps ================================================================================ */

static void step(input *in)
{
    uint8_t op = next(in);
    unsigned what = op >> 3;
    session *s = &net.sessions[what % net.count];
    message m;
    char name[DXPU_SODIUM_NAME_BYTES + 1] = "";
    switch (op & 7) {
    case 0:
        pass(s);
        break;
    case 1:
    case 2:
        op = next(in);
        m = net.bag[op % BAG];
        alter(&m, what & 7, in);
        s = &net.sessions[(op / BAG) % net.count];
        if (what & 8)
            (void)hear_at(s, &m);
        else
            to_dxpu(&m, s);
        break;
    case 3:
        (void)say_of(s);
        break;
    case 4:
        op = next(in) % sizeof name;
        for (unsigned i = 0; i < op; i++)
            name[i] = (char)next(in);
        if (net.count < SESSIONS)
            (void)begin_session(what % OWNERS, what & 16, name);
        break;
    case 5:
        net.now_ns += (uint64_t)32 << what;
        break;
    case 6:
        at_terminal(what, in);
        break;
    default:
        invent(what & 1, in);
        break;
    }
}

/* The network has had enough: the right one comes, and all goes well. */
static void settle(void)
{
    const enroll_talk *t = net.cb.user;
    session *s;
    net.now_ns += 2000000000u;
    tick();
    if (net.stopped || net.now_ns >= t->deadline_ns || net.settled == AGAIN)
        return;
    net.settled++;
    if (!t->peer) {
        s = begin_session(0, false, "right");
        pass(s);
        pass(s);
        must(t->peer != NULL && agrees(s, &t->peer->e));
    } else {
        compare();
        must(!net.on_input || net.stopped);
    }
}

static int net_loop(const dxpu_udp_callbacks *cb)
{
    net.cb = *cb;
    net.stopped = false;
    while (!net.stopped) {
        tick();
        if (!net.stopped && net.in.left) {
            step(&net.in);
        } else if (!net.stopped && net.settled < AGAIN) {
            settle();
        } else if (!net.stopped) {
            net.now_ns += (uint64_t)1 << 40;
        }
    }
    return DXPU_OK;
}

/* No part of a handshake that was forgotten stands anywhere. */
static void forget(enroll_talk *t)
{
    const enroll_one *was = t->peer;
    uint8_t secret[KEY];
    memcpy(secret, was->e.noise.ephemeral.secret, sizeof secret);
    enroll_forget(t);
    must(!t->peer && !was->begun_ns && sodium_is_zero((const uint8_t *)&was->e, sizeof was->e));
    must(!memmem(t->talks, (ENROLL_TALKS + 1) * sizeof *t->talks, secret, sizeof secret));
}

/* ==== 6  One input ============================================================================ */

static void check_printed(const char *text, size_t bytes)
{
    must(strlen(text) == bytes);
    for (size_t i = 0; i < bytes; i++)
        must(text[i] == '\n' || (text[i] >= 0x20 && text[i] <= 0x7e));
}

/* What came of it, and whether it might. */
static void check_end(const enrolling *n, int rc, const dxpu_noise_pair *expected)
{
    bool told = rc == EXIT_ALL && !n->o.peers;
    must((rc == EXIT_ALL) ==
         (strcmp(n->result, "enrolled") == 0 || strcmp(n->result, "known") == 0));
    must(net.took == n->written);
    if (rc == EXIT_ALL || net.took) {
        must(n->met && (expected ? memcmp(n->peer.key, expected->public_key, KEY) == 0 : net.yes));
        must(!net.compared || memcmp(n->peer.key, owners[0].public_key, KEY) == 0);
        must(memcmp(n->peer.key, owners[OWN].public_key, KEY) != 0);
    }
    if (net.took)
        must(memcmp(net.taken.key, n->peer.key, KEY) == 0 && net.taken.may == n->may);
    check_printed(net.text[0], net.bytes[0]);
    check_printed(net.text[1], net.bytes[1]);
    if (n->o.json) {
        json_t *document = json_loadb(net.text[0], net.bytes[0], 0, NULL);
        must(document != NULL);
        json_decref(document);
    } else {
        must((net.bytes[0] != 0) == (told || net.took));
        must(!net.bytes[0] || strncmp(net.text[0], n->line, strlen(n->line)) == 0);
    }
}

static void prepare(enrolling *n, uint8_t flags, uint8_t more, char expect[64])
{
    static char here[] = "127.0.0.1:4455";
    memset(n, 0, sizeof *n);
    n->own = &owners[OWN];
    n->may = KEYS_FABRIC;
    n->o.seconds = 300;
    n->o.json = flags & 2;
    n->o.listen = net.listen ? here : NULL;
    n->to = net.listen ? NULL : here;
    n->o.peers = flags & 4 ? "peers" : NULL;
    n->o.as = flags & 8 ? "other" : NULL;
    n->at = net.local;
    net.add = flags & 64 ? (flags & 128 ? -1 : 1) : 0;
    if (flags & 16)
        n->o.expect = flags & 32
                          ? dxpu_sodium_key_print(owners[more % OWNERS].public_key, expect)
                          : dxpu_sodium_fingerprint(owners[more % OWNERS].public_key, expect);
}

static void begin_all(uint8_t flags)
{
    memset(&net, 0, sizeof net);
    net.listen = flags & 1;
    net.now_ns = 1000000000;
    net.local.u.v4.sin_family = AF_INET;
    net.local.u.v4.sin_port = htons(4455);
    net.local.u.v4.sin_addr.s_addr = htonl(0x7f000001);
    net.local.len = sizeof net.local.u.v4;
    for (unsigned i = 0; i < OWNERS; i++)
        dxpu_noise_pair_new(dxpu_sodium_primitives(), &owners[i]);
    for (unsigned i = 0; i < 2; i++)
        must((net.out[i] = open_memstream(&net.text[i], &net.bytes[i])) != NULL);
    (void)begin_session(0, false, "right");
    (void)begin_session(1, false, "other");
    (void)begin_session(1, true, "between");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    uint8_t flags = next(&in), more = flags & 16 ? next(&in) : 0;
    char expect[64];
    enrolling n;
    const char *why;
    int rc;
    quick_begin();
    begin_all(flags);
    net.in = in;
    prepare(&n, flags, more, expect);
    n.talk = enroll_open(n.own, "here", &n.at, net.listen, (unsigned)n.o.seconds, &why);
    must(n.talk != NULL);
    rc = enroll(&n);
    for (unsigned i = 0; i < 2; i++)
        must(fclose(net.out[i]) == 0);
    check_end(&n, rc, n.o.expect ? &owners[more % OWNERS] : NULL);
    enroll_close(n.talk);
    for (unsigned i = 0; i < 2; i++)
        free(net.text[i]);
    return 0;
}
