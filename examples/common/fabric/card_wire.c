/* card_wire.c - see card_wire.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Object   2 Sockets   3 Sending   4 TLPs that arrive   5 Messages   6 Turns */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "card_wire.h"
#include "dxpu_libevent.h"
#include "log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ==== 1  Object =============================================================================== */

enum {
    BURST = 32,       /* datagrams of one socket in a row */
    TURN = 512,       /* of all, in one call */
    TURN_NS = 200000, /* all of them: the other end sends as fast as it likes (S-161) */
    EVENTS = DXPU_NETTLP_SOFTWARE_PORTS + DXPU_NETTLP_ADAPTER_PORTS + 1,
    DEFERRED = 256,       /* reads of the other end: one of each tag */
    COMPLETIONS = 64,     /* of reads of this one; what is more stays in the sockets */
    HELD_MOST = 2048,     /* more datagrams than a socket holds */
    DATAGRAM_LEAST = 512, /* bytes of memory that the system takes for one: more than this */
    PASSES = 4,
    BUFFER_BYTES = 1 << 20, /* of a socket, as far as the system gives it */
    IN_BYTES = 8192,        /* of a datagram; longer ones are dropped */
    NETTLP_PAYLOAD = 1024   /* with its headers it fits into an Ethernet frame */
};

/* What the other end sends to a socket. */
enum { TO_OURS, TO_THEIRS, TO_BOTH, TO_MESSAGES };

#define CARD_WIRE_COUNTERS(X)                                                                      \
    X(tlps_sent)                                                                                   \
    X(tlps_received)                                                                               \
    X(not_sent)                                                                                    \
    X(datagrams_malformed)                                                                         \
    X(datagrams_misplaced)                                                                         \
    X(datagrams_forgotten)                                                                         \
    X(datagrams_strange)                                                                           \
    X(questions)                                                                                   \
    X(questions_refused)

/* A read of the other end, which must not pass writes that arrived before it at other ports. */
typedef struct deferred_read {
    dxpu_tlp t;
    uint32_t pass; /* in which it arrived */
} deferred_read;

/* Nor must a completion, whoever it is for: it may say that they are done. */
typedef struct deferred_completion {
    dxpu_tlp t;
    uint32_t pass;
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
} deferred_completion;

typedef struct wire_socket {
    int fd;
    uint16_t there; /* port of the other end; 0: any */
    uint8_t kind;
    bool cleared;   /* all that was in it when the pass began was taken */
    unsigned taken; /* datagrams in this pass */
    unsigned stale; /* datagrams that may still be in it from before card_wire_forget() */
} wire_socket;

struct card_wire {
    card_wire_settings set;
    card_wire_callbacks cb;
    struct sockaddr_storage peer, local; /* ports are filled in for each socket */
    socklen_t length;
    wire_socket *at;
    unsigned count, ours, theirs, messages; /* where each kind begins in `at` */
    int all, requests; /* epoll of everything; of TLPs, not read while there is no room */
    bool paused;
    deferred_read deferred[DEFERRED]; /* a ring */
    unsigned first, waiting;
    deferred_completion *completions; /* another */
    unsigned completions_first, completions_waiting;
    uint32_t pass;  /* over the requests' sockets, of each until it was empty once */
    unsigned asked; /* NetTLP: the question that waits for its answer; 0: none */
    uint16_t sequence;
    dxpu_rawtlp_reader reader;
    bool rest; /* RawUDP: the datagram in `in` has more TLPs */
    uint8_t in[IN_BYTES];
#define CARD_WIRE_FIELD(name) uint64_t name;
    struct {
        CARD_WIRE_COUNTERS(CARD_WIRE_FIELD)
    } count_of;
#undef CARD_WIRE_FIELD
};

/* ==== 2  Sockets ============================================================================== */

/* False: it is not an address without a port. */
static bool read_address(const char *text, struct sockaddr_storage *out, socklen_t *length)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        out->ss_family = AF_INET;
        *length = sizeof *v4;
        return true;
    }
    out->ss_family = AF_INET6;
    *length = sizeof *v6;
    return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
}

const char *card_wire_check(const char *address)
{
    struct sockaddr_storage a;
    socklen_t length;
    return read_address(address, &a, &length) ? NULL
                                              : "must be an IPv4 or IPv6 address without a port";
}

static void set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET)
        ((struct sockaddr_in *)a)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)a)->sin6_port = htons(port);
}

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return !memcmp(&((const struct sockaddr_in *)a)->sin_addr,
                       &((const struct sockaddr_in *)b)->sin_addr, sizeof(struct in_addr));
    return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                   &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

static bool is_of(const card_wire *w, const struct sockaddr_storage *from, uint16_t port)
{
    uint16_t theirs = from->ss_family == AF_INET ? ((const struct sockaddr_in *)from)->sin_port
                                                 : ((const struct sockaddr_in6 *)from)->sin6_port;
    return same_address(from, &w->peer) && ntohs(theirs) == port;
}

/* One with these ports, 0: any here, or not connected to one there.  False after a message. */
static bool add_socket(card_wire *w, uint8_t kind, uint16_t here, uint16_t there, int epoll)
{
    struct epoll_event e;
    wire_socket *s = &w->at[w->count];
    int bytes = BUFFER_BYTES;
    s->fd = socket(w->peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0) {
        log_error("cannot open a socket for %s: %s", w->set.peer, strerror(errno));
        return false;
    }
    s->kind = kind;
    s->there = there;
    w->count++;
    set_port(&w->local, here);
    set_port(&w->peer, there);
    if (kind == TO_OURS || kind == TO_BOTH) /* of the many others each has what is usual */
        (void)setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (bind(s->fd, (struct sockaddr *)&w->local, w->length)) {
        log_error("cannot use UDP port %u for %s: %s; give each card a local address of its own",
                  here, w->set.peer, strerror(errno));
        return false;
    }
    memset(&e, 0, sizeof e);
    e.events = EPOLLIN;
    e.data.u32 = w->count - 1;
    if ((there && connect(s->fd, (struct sockaddr *)&w->peer, w->length)) ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, s->fd, &e)) {
        log_error("cannot reach %s: %s", w->set.peer, strerror(errno));
        return false;
    }
    return true;
}

/* The adapter sends its requests by one port alone, so that they stay in order: N-12. */
static bool add_nettlp(card_wire *w)
{
    bool adapter = w->set.adapter;
    unsigned ours = adapter ? 1 : w->set.tags,
             theirs = adapter ? w->set.tags : DXPU_NETTLP_ADAPTER_PORTS;
    unsigned our_port = adapter ? DXPU_NETTLP_ADAPTER_PORT : DXPU_NETTLP_SOFTWARE_PORT,
             their_port = adapter ? DXPU_NETTLP_SOFTWARE_PORT : DXPU_NETTLP_ADAPTER_PORT;
    bool ok = true;
    w->ours = 0;
    for (unsigned i = 0; ok && i < ours; i++)
        ok =
            add_socket(w, TO_OURS, (uint16_t)(our_port + i), (uint16_t)(our_port + i), w->requests);
    w->theirs = w->count;
    for (unsigned i = 0; ok && i < theirs; i++)
        ok = add_socket(w, TO_THEIRS, (uint16_t)(their_port + i), (uint16_t)(their_port + i),
                        w->requests);
    w->messages = w->count;
    return ok && add_socket(w, TO_MESSAGES, adapter ? DXPU_NETTLP_MESSAGES_PORT : 0,
                            adapter ? 0 : DXPU_NETTLP_MESSAGES_PORT, w->all);
}

static bool add_sockets(card_wire *w)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = EPOLLIN;
    e.data.u32 = UINT32_MAX;
    w->all = epoll_create1(EPOLL_CLOEXEC);
    w->requests = epoll_create1(EPOLL_CLOEXEC);
    if (w->all < 0 || w->requests < 0 || epoll_ctl(w->all, EPOLL_CTL_ADD, w->requests, &e)) {
        log_error("cannot watch the sockets of %s: %s", w->set.peer, strerror(errno));
        return false;
    }
    return w->set.raw ? add_socket(w, TO_BOTH, 0, DXPU_RAWTLP_PORT, w->requests) : add_nettlp(w);
}

card_wire *card_wire_open(const card_wire_settings *s, const card_wire_callbacks *cb)
{
    card_wire *w = calloc(1, sizeof *w);
    socklen_t length = 0;
    if (!w) {
        log_error("out of memory");
        return NULL;
    }
    w->set = *s;
    w->cb = *cb;
    w->all = w->requests = -1;
    w->at = calloc(DXPU_NETTLP_SOFTWARE_PORTS + DXPU_NETTLP_ADAPTER_PORTS + 1, sizeof *w->at);
    w->completions = calloc(COMPLETIONS, sizeof *w->completions);
    dxpu_rawtlp_reader_init(&w->reader, s->spans);
    (void)read_address(s->peer, &w->peer, &w->length);
    if (s->local)
        (void)read_address(s->local, &w->local, &length);
    else
        w->local.ss_family = w->peer.ss_family;
    if (w->local.ss_family != w->peer.ss_family)
        log_error("%s and %s: must both be IPv4 or both IPv6 addresses", s->peer, s->local);
    else if (!w->at || !w->completions)
        log_error("out of memory");
    else if (add_sockets(w))
        return w;
    card_wire_close(w);
    return NULL;
}

void card_wire_close(card_wire *w)
{
    for (unsigned i = 0; w->at && i < w->count; i++)
        (void)close(w->at[i].fd);
    if (w->requests >= 0)
        (void)close(w->requests);
    if (w->all >= 0)
        (void)close(w->all);
    free(w->completions);
    free(w->at);
    free(w);
}

int card_wire_descriptor(const card_wire *w)
{
    return w->all;
}

/* ==== 3  Sending ============================================================================== */

uint32_t card_wire_payload(const card_wire *w)
{
    return w->set.raw ? DXPU_RAWTLP_TLP_MAX - 16 : NETTLP_PAYLOAD;
}

/* The socket of an exchange; NULL: its tag has none. */
static const wire_socket *socket_of(const card_wire *w, const dxpu_tlp *t, bool ours)
{
    bool software = ours != w->set.adapter;
    unsigned at = software ? t->tag : t->tag % DXPU_NETTLP_ADAPTER_PORTS;
    unsigned first = ours ? w->ours : w->theirs, end = ours ? w->theirs : w->messages;
    if (w->set.raw)
        return &w->at[0];
    if (dxpu_tlp_class(t) == DXPU_POSTED && ours)
        at = 0;
    return at < end - first ? &w->at[first + at] : NULL;
}

bool card_wire_send(card_wire *w, const dxpu_tlp *t, bool ours)
{
    uint8_t tlp[DXPU_TLP_MAX_BYTES], raw[DXPU_RAWTLP_SEND_MAX];
    uint8_t out[DXPU_NETTLP_DATAGRAM_MAX], *from = out;
    const wire_socket *s = socket_of(w, t, ours);
    dxpu_bytes all = { tlp, 0 };
    size_t bytes = 0;
    if (s && dxpu_tlp_encode(t, tlp, sizeof tlp, &all.len) == DXPU_OK) {
        if (w->set.raw) {
            bytes = dxpu_rawtlp_encode(raw, all);
            from = raw;
        } else {
            dxpu_nettlp_head(out, w->sequence++, (uint32_t)(dxpu_udp_now_ns() / 8));
            memcpy(out + DXPU_NETTLP_HEAD_BYTES, tlp, all.len);
            bytes = DXPU_NETTLP_HEAD_BYTES + all.len;
        }
    }
    /* an error of an earlier datagram is reported here once, and this one not sent */
    for (unsigned tries = 0; bytes && tries < 2; tries++) {
        if (send(s->fd, from, bytes, MSG_NOSIGNAL) == (ssize_t)bytes) {
            w->count_of.tlps_sent++;
            return true;
        }
        if (errno != ECONNREFUSED)
            break;
    }
    w->count_of.not_sent++;
    return false;
}

/* ==== 4  TLPs that arrive ===================================================================== */

static void give_first(card_wire *w)
{
    const dxpu_tlp t = w->deferred[w->first].t;
    w->first = (w->first + 1) % DEFERRED;
    w->waiting--;
    w->cb.tlp(w->cb.user, &t);
}

static void defer(card_wire *w, const dxpu_tlp *t)
{
    deferred_read *d = &w->deferred[(w->first + w->waiting++) % DEFERRED];
    d->t = *t;
    d->pass = w->pass;
}

static void give_first_completion(card_wire *w)
{
    deferred_completion *d = &w->completions[w->completions_first];
    w->completions_first = (w->completions_first + 1) % COMPLETIONS;
    w->completions_waiting--;
    w->cb.tlp(w->cb.user, &d->t);
}

static void defer_completion(card_wire *w, const dxpu_tlp *t)
{
    unsigned at = (w->completions_first + w->completions_waiting++) % COMPLETIONS;
    deferred_completion *d = &w->completions[at];
    d->t = *t;
    d->pass = w->pass;
    if (t->payload.len)
        memcpy(d->data, t->payload.ptr, t->payload.len);
    d->t.payload.ptr = t->payload.len ? d->data : NULL;
}

static void take_tlp(card_wire *w, unsigned kind, dxpu_bytes tlp)
{
    dxpu_tlp t;
    bool completion;
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK) {
        w->count_of.datagrams_malformed++;
        return;
    }
    completion = dxpu_tlp_class(&t) == DXPU_COMPLETION;
    if (kind != TO_BOTH && completion != (kind == TO_OURS)) {
        w->count_of.datagrams_misplaced++;
        return;
    }
    w->count_of.tlps_received++;
    if (kind == TO_OURS)
        defer_completion(w, &t);
    else if (kind == TO_THEIRS && t.type == DXPU_TLP_MRD)
        defer(w, &t);
    else
        w->cb.tlp(w->cb.user, &t);
}

static void take_datagram(card_wire *w, unsigned kind, dxpu_bytes d)
{
    dxpu_nettlp n;
    if (kind == TO_BOTH) {
        dxpu_rawtlp_arrived(&w->reader, d);
        w->rest = true;
    } else if (dxpu_nettlp_decode(d, &n) == DXPU_OK) {
        take_tlp(w, kind, n.tlp);
    } else {
        w->count_of.datagrams_malformed++;
    }
}

/* ==== 5  Messages ============================================================================= */

/* From any port of the other end's address. */
static void take_question(card_wire *w, int fd, dxpu_bytes d, const struct sockaddr_storage *from,
                          socklen_t length)
{
    uint8_t out[DXPU_NETTLP_ANSWER_MAX];
    dxpu_nettlp_answer a;
    bool big = false;
    int what = same_address(from, &w->peer) ? dxpu_nettlp_question_decode(d, &big) : DXPU_E_ARG;
    if (what < 0 || !w->cb.question) {
        w->count_of.questions_refused++;
        return;
    }
    w->count_of.questions++;
    memset(&a, 0, sizeof a);
    a.what = (unsigned)what;
    w->cb.question(w->cb.user, &a);
    (void)!sendto(fd, out, dxpu_nettlp_answer_encode(out, &a, big), MSG_NOSIGNAL,
                  (const struct sockaddr *)from, length);
}

static void take_answer(card_wire *w, dxpu_bytes d)
{
    dxpu_nettlp_answer a;
    memset(&a, 0, sizeof a);
    if (!w->asked || dxpu_nettlp_answer_decode(d, w->asked, false, &a) != DXPU_OK) {
        w->count_of.datagrams_malformed++;
        return;
    }
    w->asked = 0;
    if (w->cb.answer)
        w->cb.answer(w->cb.user, &a);
}

void card_wire_ask(card_wire *w, unsigned what)
{
    uint8_t q[DXPU_RAWTLP_GREETING_BYTES];
    size_t bytes = w->set.raw ? sizeof q : (size_t)DXPU_NETTLP_QUESTION_BYTES;
    w->asked = what;
    if (w->set.raw)
        dxpu_rawtlp_greeting(q);
    else
        dxpu_nettlp_question(q, what, false);
    for (unsigned tries = 0; tries < 2; tries++) {
        if (send(w->at[w->messages].fd, q, bytes, MSG_NOSIGNAL) == (ssize_t)bytes)
            return;
    }
}

/* ==== 6  Turns ================================================================================ */

static bool has_room(card_wire *w)
{
    return !w->cb.room || w->cb.room(w->cb.user);
}

/* The requests' sockets are not looked at: they would be ready all the time. */
static void set_paused(card_wire *w, bool paused)
{
    struct epoll_event e;
    if (paused == w->paused)
        return;
    memset(&e, 0, sizeof e);
    e.events = paused ? 0 : EPOLLIN;
    e.data.u32 = UINT32_MAX;
    if (epoll_ctl(w->all, EPOLL_CTL_MOD, w->requests, &e) == 0)
        w->paused = paused;
}

/* False: there is no room for what a socket of requests may have. */
static bool may_go_on(card_wire *w)
{
    dxpu_bytes tlp;
    while (has_room(w)) {
        if (!w->rest)
            return true;
        w->rest = dxpu_rawtlp_next(&w->reader, &tlp);
        if (w->rest)
            take_tlp(w, TO_BOTH, tlp);
    }
    set_paused(w, true);
    return false;
}

/* Whether a datagram of this kind may be taken now. */
static bool may_take(card_wire *w, unsigned kind)
{
    if (kind == TO_OURS)
        return w->completions_waiting < COMPLETIONS;
    return kind == TO_MESSAGES || (w->waiting < DEFERRED && may_go_on(w));
}

/* What is in a socket from before card_wire_forget(), `most` at once.  How many that were. */
static unsigned drop_stale(card_wire *w, wire_socket *s, unsigned most)
{
    unsigned n = 0;
    while (s->stale && n < most) {
        if (recv(s->fd, w->in, sizeof w->in, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
            s->stale = 0;
            break;
        }
        s->stale--;
        n++;
    }
    w->count_of.datagrams_forgotten += n;
    return n;
}

/* How many datagrams were taken from a socket. */
static unsigned drain(card_wire *w, unsigned index)
{
    wire_socket *s = &w->at[index];
    struct sockaddr_storage from;
    unsigned n = drop_stale(w, s, BURST);
    for (; n < BURST && may_take(w, s->kind); n++) {
        socklen_t length = sizeof from;
        dxpu_bytes d = { w->in, 0 };
        ssize_t got = recvfrom(s->fd, w->in, sizeof w->in, MSG_DONTWAIT | MSG_TRUNC,
                               (struct sockaddr *)&from, &length);
        if (got < 0) { /* also an ICMP message about what was sent: the next turn goes on */
            s->cleared |= errno == EAGAIN;
            break;
        }
        s->cleared |= ++s->taken >= HELD_MOST;
        d.len = (size_t)got;
        if (s->there && !is_of(w, &from, s->there))
            w->count_of.datagrams_strange++; /* from before connect() */
        else if (d.len > sizeof w->in)
            w->count_of.datagrams_malformed++;
        else if (s->kind != TO_MESSAGES)
            take_datagram(w, s->kind, d);
        else if (w->set.adapter)
            take_question(w, s->fd, d, &from, length);
        else
            take_answer(w, d);
    }
    return n;
}

/* What arrived in an earlier pass: since then every socket of requests was empty once, so all that
   arrived before was taken. */
static void give_deferred(card_wire *w)
{
    while (w->completions_waiting && w->completions[w->completions_first].pass != w->pass)
        give_first_completion(w);
    while (w->waiting && w->deferred[w->first].pass != w->pass) {
        if (!has_room(w)) {
            set_paused(w, true);
            return;
        }
        give_first(w);
    }
}

/* Sockets that are not ready are empty.  True: all were so in this pass.  More reads than there are
   tags hold up nothing: then those that were taken go first, to make room. */
static bool pass_is_over(card_wire *w, const struct epoll_event *ready, int n)
{
    bool over = true;
    if (!w->waiting && !w->completions_waiting)
        return false;
    for (unsigned i = w->theirs; i < w->messages; i++) {
        bool is_ready = false;
        for (int k = 0; k < n && !w->at[i].cleared && !is_ready; k++)
            is_ready = ready[k].data.u32 == i;
        w->at[i].cleared |= !is_ready || w->waiting == DEFERRED;
        over = over && w->at[i].cleared;
    }
    return over;
}

/* What the other end sent, but for messages.  How many datagrams were taken. */
static unsigned take_tlps(card_wire *w)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(w->requests, e, EVENTS, 0);
    unsigned taken = 0;
    for (int i = 0; i < n && !w->paused; i++)
        taken += drain(w, e[i].data.u32);
    if (n < 0 || w->paused || !pass_is_over(w, e, n))
        return taken;
    give_deferred(w);
    w->pass++;
    for (unsigned i = w->theirs; i < w->messages; i++) {
        w->at[i].cleared = false;
        w->at[i].taken = 0;
    }
    return taken;
}

static bool waits(const card_wire *w)
{
    return (w->waiting || w->completions_waiting) && !w->paused;
}

static unsigned turn(card_wire *w)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(w->all, e, EVENTS, 0);
    unsigned taken = 0;
    bool tlps = w->waiting || w->completions_waiting;
    for (int i = 0; i < n; i++) {
        if (e[i].data.u32 == UINT32_MAX)
            tlps = true;
        else
            taken += drain(w, e[i].data.u32);
    }
    return taken + (tlps && !w->paused ? take_tlps(w) : 0);
}

void card_wire_work(card_wire *w)
{
    uint64_t end_ns = dxpu_udp_now_ns() + TURN_NS;
    unsigned taken = 0, now;
    if ((w->paused || w->rest) && may_go_on(w))
        set_paused(w, false);
    do {
        now = turn(w);
        taken += now;
    } while ((now || waits(w)) && taken < TURN && dxpu_udp_now_ns() < end_ns);
    for (unsigned i = 0; i < PASSES && waits(w); i++) /* or nothing would wake it */
        (void)take_tlps(w);
}

/* How many datagrams a socket has at most: none when it is empty. */
static unsigned held(const wire_socket *s)
{
    uint32_t bytes[SK_MEMINFO_VARS];
    socklen_t length = sizeof bytes;
    if (getsockopt(s->fd, SOL_SOCKET, SO_MEMINFO, bytes, &length) || length < sizeof *bytes)
        return HELD_MOST;
    return (bytes[SK_MEMINFO_RMEM_ALLOC] + DATAGRAM_LEAST - 1) / DATAGRAM_LEAST;
}

/* What a socket has not more of arrives later, and is taken.  One that does not become empty until
   all of that was taken may lose a few that arrived later. */
void card_wire_forget(card_wire *w)
{
    unsigned dropped = 0;
    w->waiting = w->completions_waiting = 0;
    w->rest = false;
    w->reader.open = false;
    w->reader.bytes = 0;
    for (unsigned i = 0; i < w->count; i++) {
        wire_socket *s = &w->at[i];
        s->stale = s->kind == TO_MESSAGES ? 0 : held(s);
        dropped += drop_stale(w, s, TURN - dropped); /* the rest in later turns */
        if (s->stale)
            s->stale = held(s);
    }
    set_paused(w, false);
}

bool card_wire_is_paused(const card_wire *w)
{
    return w->paused;
}

void card_wire_report(const card_wire *w, report *r)
{
#define CARD_WIRE_PRINT(name) report_number(r, #name, w->count_of.name);
    CARD_WIRE_COUNTERS(CARD_WIRE_PRINT)
#undef CARD_WIRE_PRINT
    if (w->set.raw) {
        report_number(r, "torn", w->reader.count.torn);
        report_number(r, "blocks_cut", w->reader.count.blocks_cut);
    }
}
