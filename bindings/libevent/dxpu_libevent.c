/* dxpu_libevent.c - see dxpu_libevent.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* recvmmsg, sendmmsg */
#endif
#include "dxpu_libevent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    POLL_NS = 100 * 1000,
    RETRY_NS = 100 * 1000,
    KEEP_NS =
        5 * 1000 * 1000, /* what a full socket refuses; a stalled one must not hold up others */
    SPARE = 8,           /* places of the batch for single datagrams while others wait in it */
    LATE_NS = 20 * 1000,
    CATCH_UP_ROUNDS = 8,
    CONTROL_BYTES = 64,
    ECN_MASK = 3,
    ECN_CE = 3,
    ECN_ECT0 = 2
};

/* Segments: the kernel takes datagrams of equal size to one place as one message, carries them
   through its stack as one, and may hand them over as one; only the last may be shorter. */
enum { SEGMENTS_MAX = 64, SEGMENTS_BYTES = 65000, JOINED_BYTES = 65536 };

/* One batch of datagrams, one direction. */
typedef struct batch {
    struct mmsghdr *msgs;
    struct iovec *iov;
    dxpu_udp_address *addr;
    uint8_t *control; /* CONTROL_BYTES each */
    uint8_t *mem;     /* room_bytes each */
    size_t room_bytes;
} batch;

typedef struct udp_socket {
    int fd;
    dxpu_udp_address local;
    struct event *readable;
    bool maybe;          /* libevent saw it readable since it was last drained */
    bool segments;       /* the kernel takes them */
    unsigned look;       /* messages to ask for: one while they come one by one */
    unsigned tx_from;    /* nothing of the batch before it waits for this socket */
    uint64_t refused_ns; /* since when its buffer is full; 0: it is not */
} udp_socket;

struct dxpu_udp {
    dxpu_udp_config cfg;
    udp_socket sockets[DXPU_UDP_SOCKETS_MAX];
    struct event_base *base;
    struct event *timer;
    bool own_base, stop, fired;
    batch rx, tx;
    unsigned rx_written; /* headers that the kernel has written to */
    unsigned tx_used;
    bool tx_waits;                         /* the last flush left something, as a socket is full */
    struct mmsghdr *tx_order;              /* the messages of one socket, side by side */
    unsigned tx_for[DXPU_UDP_SOCKETS_MAX]; /* how many of the batch leave by it */
    uint8_t *tx_socket;                    /* which each leaves by */
    dxpu_udp_bypass bypass;                /* room is NULL when there is none */
    struct event *bypass_readable[DXPU_UDP_BYPASS_FDS];
    bool bypass_maybe;
    uint8_t *bypass_room; /* what the last dxpu_udp_room() gave, when it is the bypass's */
    dxpu_udp_counters count;
    bool (*look)(void *user, bool about_to_block); /* NULL: none */
    void *look_user;
};

/* ==== 1  Addresses and paths ================================================================== */

/* Split "host:port" in place.  NULL or what is wrong. */
static const char *split_host_port(char *text, const char **host, const char **port)
{
    char *colon = NULL;
    *host = text;
    if (*text == '[') {
        char *end = strchr(text, ']');
        if (!end)
            return "address: ']' is missing, write [ADDR]:PORT";
        *end = '\0';
        *host = text + 1;
        if (end[1] == ':')
            colon = end + 1;
        else if (end[1])
            return "address: only ':PORT' may follow ']'";
    } else {
        colon = strchr(text, ':');
        if (colon && strchr(colon + 1, ':'))
            return "address: write an IPv6 address in brackets, [ADDR]:PORT";
    }
    if (colon) {
        *colon = '\0';
        *port = colon + 1;
    }
    return NULL;
}

const char dxpu_udp_unresolved[] = "address: no such host; check the name or write the number";

/* Can it be known later?  A name can, and an address with an interface behind '%'. */
static bool may_resolve(const char *host)
{
    return strchr(host, '%') || (host[strspn(host, "0123456789.")] && !strchr(host, ':'));
}

const char *dxpu_udp_parse(const char *text, dxpu_udp_address *out)
{
    char copy[300], fallback[8];
    const char *host, *port = fallback, *why;
    struct addrinfo hints, *found = NULL;
    if (!*text || strlen(text) >= sizeof copy)
        return "address: empty or too long, write ADDR:PORT";
    strcpy(copy, text);
    snprintf(fallback, sizeof fallback, "%d", DXPU_UDP_PORT);
    why = split_host_port(copy, &host, &port);
    if (why)
        return why;
    if (!*port || strspn(port, "0123456789") != strlen(port) || strlen(port) > 5 ||
        atoi(port) > 65535)
        return "address: the port is a number from 0 to 65535";
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICSERV | AI_PASSIVE;
    if (!*host || !strcmp(host, "*")) {
        host = NULL;
        hints.ai_family = AF_INET;
    }
    if (getaddrinfo(host, port, &hints, &found) || !found)
        return host && may_resolve(host) ? dxpu_udp_unresolved
                                         : "address: not an IPv4 or IPv6 address";
    memset(out, 0, sizeof *out);
    out->len = found->ai_addrlen;
    memcpy(&out->u, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return NULL;
}

const char *dxpu_udp_parse_list(const char *text, dxpu_udp_address *out, unsigned max,
                                unsigned *count)
{
    for (*count = 0; *count < max; text++) {
        char one[300];
        size_t len = strcspn(text, ",");
        const char *why;
        if (len >= sizeof one)
            return "address: too long";
        memcpy(one, text, len);
        one[len] = '\0';
        why = dxpu_udp_parse(one, &out[*count]);
        if (why)
            return why;
        ++*count;
        text += len;
        if (!*text)
            return NULL;
    }
    return "address: too many of them; leave some out";
}

const char *dxpu_udp_print(const dxpu_udp_address *a, char out[DXPU_UDP_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->u.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->u.v6.sin6_addr, host, sizeof host);
        snprintf(out, DXPU_UDP_TEXT_BYTES, "[%s]:%u", host, ntohs(a->u.v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &a->u.v4.sin_addr, host, sizeof host);
        snprintf(out, DXPU_UDP_TEXT_BYTES, "%s:%u", host, ntohs(a->u.v4.sin_port));
    }
    return out;
}

bool dxpu_udp_same(const dxpu_udp_address *a, const dxpu_udp_address *b)
{
    if (a->u.any.sa_family != b->u.any.sa_family)
        return false;
    if (a->u.any.sa_family == AF_INET6)
        return a->u.v6.sin6_port == b->u.v6.sin6_port &&
               a->u.v6.sin6_scope_id == b->u.v6.sin6_scope_id &&
               !memcmp(&a->u.v6.sin6_addr, &b->u.v6.sin6_addr, sizeof a->u.v6.sin6_addr);
    return a->u.v4.sin_port == b->u.v4.sin_port &&
           a->u.v4.sin_addr.s_addr == b->u.v4.sin_addr.s_addr;
}

/* ==== 2  Opening ============================================================================== */

uint64_t dxpu_udp_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void dxpu_udp_config_default(dxpu_udp_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->wait = DXPU_UDP_ADAPTIVE;
    cfg->spin_ns = 50 * 1000;
    cfg->batch = 32;
    cfg->datagram_bytes = 2048;
    cfg->buffer_bytes = 4u << 20;
}

static void on_readable(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    ((udp_socket *)user)->maybe = true;
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    ((dxpu_udp *)user)->fired = true;
}

static bool batch_init(batch *b, size_t n, size_t room_bytes)
{
    b->msgs = calloc(n, sizeof *b->msgs);
    b->iov = calloc(n, sizeof *b->iov);
    b->addr = calloc(n, sizeof *b->addr);
    b->control = calloc(n, CONTROL_BYTES);
    b->mem = calloc(n, room_bytes);
    b->room_bytes = room_bytes;
    if (!b->msgs || !b->iov || !b->addr || !b->mem || !b->control)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct msghdr *h = &b->msgs[i].msg_hdr;
        b->iov[i].iov_base = b->mem + i * room_bytes;
        b->iov[i].iov_len = room_bytes;
        h->msg_iov = &b->iov[i];
        h->msg_iovlen = 1;
        h->msg_name = &b->addr[i].u;
        h->msg_control = b->control + i * CONTROL_BYTES;
    }
    return true;
}

static void batch_free(batch *b)
{
    free(b->msgs);
    free(b->iov);
    free(b->addr);
    free(b->control);
    free(b->mem);
}

static void set_int(int fd, int level, int option, int value)
{
    /* each of these improves the socket; none is needed for it to work */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static void socket_options(int fd, int family, const dxpu_udp_config *cfg)
{
    int ecn = cfg->ecn_capable ? ECN_ECT0 : 0;
    set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)cfg->buffer_bytes);
    set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)cfg->buffer_bytes);
    set_int(fd, IPPROTO_UDP, UDP_GRO, 1);
    if (family == AF_INET6) {
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
        set_int(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
        set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
        set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, ecn);
    } else {
        set_int(fd, IPPROTO_IP, IP_RECVTOS, 1);
        set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
        set_int(fd, IPPROTO_IP, IP_TOS, ecn);
    }
}

static bool takes_segments(int fd)
{
    int size;
    socklen_t len = sizeof size;
    return !getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, &len);
}

static const char *socket_open(dxpu_udp *u, unsigned index)
{
    udp_socket *s = &u->sockets[index];
    const dxpu_udp_address *want = &u->cfg.local[index];
    s->fd = socket(want->u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return "no UDP socket; is this address family enabled?";
    socket_options(s->fd, want->u.any.sa_family, &u->cfg);
    if (bind(s->fd, &want->u.any, want->len))
        return errno == EADDRINUSE ? "port in use; stop the other program or choose another port"
               : errno == EACCES   ? "ports below 1024 are not for a program without capabilities; "
                                     "choose a higher one"
                                   : "cannot bind; is this an address of this machine?";
    s->local.len = sizeof s->local.u;
    if (getsockname(s->fd, &s->local.u.any, &s->local.len))
        return "no local address";
    s->readable = event_new(u->base, s->fd, EV_READ | EV_PERSIST, on_readable, s);
    if (!s->readable || event_add(s->readable, NULL))
        return "libevent refuses the socket";
    s->maybe = true;
    s->look = 1;
    s->segments = takes_segments(s->fd);
    return NULL;
}

static const char *open_all(dxpu_udp *u)
{
    if (!u->base) {
        struct event_config *ec = event_config_new();
        if (!ec)
            return "out of memory";
        event_config_set_flag(ec, EVENT_BASE_FLAG_PRECISE_TIMER);
        u->base = event_base_new_with_config(ec);
        event_config_free(ec);
        u->own_base = true;
    }
    if (!u->base)
        return "libevent has no event base";
    u->timer = event_new(u->base, -1, 0, on_timer, u);
    u->tx_order = calloc(u->cfg.batch + SPARE, sizeof *u->tx_order);
    u->tx_socket = calloc(u->cfg.batch + SPARE, sizeof *u->tx_socket);
    if (!u->timer || !u->tx_order || !u->tx_socket ||
        !batch_init(&u->rx, u->cfg.batch, JOINED_BYTES) ||
        !batch_init(&u->tx, u->cfg.batch + SPARE, u->cfg.datagram_bytes))
        return "out of memory";
    u->rx_written = u->cfg.batch;
    for (unsigned i = 0; i < u->cfg.sockets; i++) {
        const char *why = socket_open(u, i);
        if (why)
            return why;
    }
    return NULL;
}

dxpu_udp *dxpu_udp_open(const dxpu_udp_config *cfg, const char **why)
{
    dxpu_udp *u;
    if (cfg->sockets < 1 || cfg->sockets > DXPU_UDP_SOCKETS_MAX || cfg->batch < 1 ||
        cfg->batch > 1024 || cfg->datagram_bytes < 1 || cfg->datagram_bytes > 65535) {
        errno = EINVAL;
        *why = "a configuration value is out of range";
        return NULL;
    }
    u = calloc(1, sizeof *u);
    if (!u) {
        *why = "out of memory";
        return NULL;
    }
    u->cfg = *cfg;
    u->base = cfg->base;
    for (unsigned i = 0; i < DXPU_UDP_SOCKETS_MAX; i++)
        u->sockets[i].fd = -1;
    *why = open_all(u);
    if (*why) {
        int saved = errno;
        dxpu_udp_close(u);
        errno = saved;
        return NULL;
    }
    return u;
}

void dxpu_udp_close(dxpu_udp *u)
{
    if (!u)
        return;
    for (unsigned i = 0; i < DXPU_UDP_SOCKETS_MAX; i++) {
        if (u->sockets[i].readable)
            event_free(u->sockets[i].readable);
        if (u->sockets[i].fd >= 0)
            close(u->sockets[i].fd);
    }
    for (unsigned i = 0; i < DXPU_UDP_BYPASS_FDS; i++) {
        if (u->bypass_readable[i])
            event_free(u->bypass_readable[i]);
    }
    if (u->timer)
        event_free(u->timer);
    if (u->own_base && u->base)
        event_base_free(u->base);
    batch_free(&u->rx);
    batch_free(&u->tx);
    free(u->tx_order);
    free(u->tx_socket);
    free(u);
}

unsigned dxpu_udp_sockets(const dxpu_udp *u)
{
    return u->cfg.sockets;
}

const dxpu_udp_address *dxpu_udp_local(const dxpu_udp *u, unsigned index)
{
    return &u->sockets[index].local;
}

struct event_base *dxpu_udp_base(dxpu_udp *u)
{
    return u->base;
}

/* ==== 3  Sending ============================================================================== */

static bool is_full(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS;
}

static void count_send_error(dxpu_udp *u, int error)
{
    if (error == EMSGSIZE)
        u->count.tx_too_long++;
    else
        u->count.tx_errors++;
}

static void count_sent(dxpu_udp *u, const struct msghdr *h)
{
    for (size_t i = 0; i < h->msg_iovlen; i++)
        u->count.tx_bytes += h->msg_iov[i].iov_len;
    u->count.tx_datagrams += h->msg_iovlen;
}

/* The kernel refused a message as such: its datagrams one by one.  Where the first of them goes,
   this way (a device without checksums, IPsec) takes no segments, ever.  Returns how many are done
   with: the buffer is full for the next one. */
static size_t send_singly(dxpu_udp *u, udp_socket *s, struct msghdr *h)
{
    struct iovec *all = h->msg_iov;
    size_t count = h->msg_iovlen;
    h->msg_control = NULL;
    h->msg_controllen = 0;
    h->msg_iovlen = 1;
    for (size_t i = 0; i < count; i++) {
        h->msg_iov = &all[i];
        if (sendmsg(s->fd, h, MSG_DONTWAIT) < 0) {
            if (is_full(errno))
                return i;
            count_send_error(u, errno);
            continue;
        }
        s->segments &= i > 0;
        u->count.tx_batches++;
        count_sent(u, h);
    }
    return count;
}

/* Returns how many datagrams of the message are done with.  For a full buffer that is 0: the kernel
   takes a message as a whole. */
static size_t send_refused(dxpu_udp *u, udp_socket *s, struct msghdr *h, int error)
{
    if (is_full(error))
        return 0;
    if (h->msg_iovlen > 1 && (error == EINVAL || error == EIO || error == EMSGSIZE))
        return send_singly(u, s, h);
    for (size_t i = 0; i < h->msg_iovlen; i++)
        count_send_error(u, error);
    return h->msg_iovlen;
}

/* Returns the first datagram of the batch for which the buffer is full; tx_used: all have left. */
static unsigned send_all(dxpu_udp *u, udp_socket *s, struct mmsghdr *msgs, unsigned count)
{
    unsigned done = 0;
    while (done < count) {
        int n = sendmmsg(s->fd, msgs + done, count - done, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* the first of the rest was refused; the others may still go */
            struct msghdr *h = &msgs[done].msg_hdr;
            size_t first = (size_t)(h->msg_iov - u->tx.iov), all = h->msg_iovlen;
            size_t past = send_refused(u, s, h, errno);
            if (past < all)
                return (unsigned)(first + past);
            done++;
            continue;
        }
        u->count.tx_batches++;
        for (unsigned end = done + (unsigned)n; done < end; done++)
            count_sent(u, &msgs[done].msg_hdr);
    }
    return u->tx_used;
}

/* How many datagrams of the batch, from `i` on, can leave as segments of one message. */
static unsigned segments_from(const dxpu_udp *u, unsigned i)
{
    const struct iovec *v = &u->tx.iov[i];
    size_t sum = v[0].iov_len;
    unsigned n = 1;
    if (!u->sockets[u->tx_socket[i]].segments || !sum)
        return 1;
    while (i + n < u->tx_used && n < SEGMENTS_MAX && v[n - 1].iov_len == v[0].iov_len &&
           v[n].iov_len && v[n].iov_len <= v[0].iov_len && sum + v[n].iov_len <= SEGMENTS_BYTES &&
           u->tx_socket[i + n] == u->tx_socket[i] &&
           dxpu_udp_same(&u->tx.addr[i + n], &u->tx.addr[i])) {
        sum += v[n].iov_len;
        n++;
    }
    return n;
}

/* The message of `n` datagrams from `i` on. */
static void make_message(const dxpu_udp *u, unsigned i, unsigned n, struct mmsghdr *m)
{
    struct cmsghdr *c;
    uint16_t size = (uint16_t)u->tx.iov[i].iov_len;
    *m = u->tx.msgs[i];
    m->msg_hdr.msg_iovlen = n;
    m->msg_hdr.msg_controllen = 0;
    if (n == 1)
        return;
    m->msg_hdr.msg_controllen = CMSG_SPACE(sizeof size);
    c = CMSG_FIRSTHDR(&m->msg_hdr);
    c->cmsg_level = IPPROTO_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof size);
    memcpy(CMSG_DATA(c), &size, sizeof size);
}

/* What waits for this socket. */
static void drop_waiting(dxpu_udp *u, unsigned index)
{
    udp_socket *s = &u->sockets[index];
    for (; s->tx_from < u->tx_used; s->tx_from++)
        u->count.tx_full += u->tx_socket[s->tx_from] == index;
    u->tx_for[index] = 0;
}

/* What does not leave waits in its place for the next flush, until the socket has taken nothing for
   KEEP_NS. */
static void flush_socket(dxpu_udp *u, unsigned index)
{
    udp_socket *s = &u->sockets[index];
    uint64_t sent = u->count.tx_datagrams, now;
    unsigned count = 0, n;
    for (unsigned i = s->tx_from; i < u->tx_used; i += n) {
        n = segments_from(u, i);
        if (u->tx_socket[i] == index)
            make_message(u, i, n, &u->tx_order[count++]);
    }
    s->tx_from = send_all(u, s, u->tx_order, count);
    if (u->count.tx_datagrams != sent)
        s->refused_ns = 0;
    if (s->tx_from == u->tx_used) {
        u->tx_for[index] = 0;
        return;
    }
    now = dxpu_udp_now_ns();
    if (!s->refused_ns)
        s->refused_ns = now;
    if (now - s->refused_ns > KEEP_NS)
        drop_waiting(u, index);
}

static void empty_batch(dxpu_udp *u)
{
    u->tx_waits = false;
    u->tx_used = 0;
    for (unsigned i = 0; i < u->cfg.sockets; i++)
        u->sockets[i].tx_from = 0;
}

void dxpu_udp_flush(dxpu_udp *u)
{
    bool waits = false;
    if (u->bypass.room)
        u->bypass.flush(u->bypass.self);
    for (unsigned i = 0; i < u->cfg.sockets; i++) {
        if (u->tx_for[i])
            flush_socket(u, i);
        waits |= u->tx_for[i] > 0;
    }
    u->tx_waits = waits;
    if (!waits)
        empty_batch(u);
}

static uint8_t *next_place(const dxpu_udp *u)
{
    return u->tx.mem + u->tx_used * u->tx.room_bytes;
}

static uint8_t *socket_room(dxpu_udp *u)
{
    if (u->tx_used >= u->cfg.batch)
        dxpu_udp_flush(u);
    if (u->tx_used == u->cfg.batch + SPARE) {
        for (unsigned i = 0; i < u->cfg.sockets; i++)
            drop_waiting(u, i);
        empty_batch(u);
    }
    return next_place(u);
}

static uint8_t *bypass_room(dxpu_udp *u)
{
    u->bypass_room = u->bypass.room ? u->bypass.room(u->bypass.self) : NULL;
    return u->bypass_room;
}

uint8_t *dxpu_udp_room(dxpu_udp *u)
{
    uint8_t *room = bypass_room(u);
    return room ? room : socket_room(u);
}

uint8_t *dxpu_udp_room_many(dxpu_udp *u, unsigned *datagrams)
{
    uint8_t *room = bypass_room(u);
    *datagrams = 1;
    if (room)
        return room;
    if (!u->tx_waits)
        room = socket_room(u); /* whose flush may leave something */
    *datagrams = u->tx_waits ? 0 : u->cfg.batch - u->tx_used;
    return u->tx_waits ? NULL : room;
}

void dxpu_udp_commit_many(dxpu_udp *u, const dxpu_udp_path *to, size_t len, size_t segment)
{
    uint8_t *room = u->bypass_room;
    if (room) { /* for one */
        if (u->bypass.commit(u->bypass.self, to, len))
            return;
        memcpy(socket_room(u), room, len);
    }
    DXPU_ASSERT(segment || !len);
    room = next_place(u);
    do {
        unsigned i = u->tx_used++;
        size_t bytes = len < segment ? len : segment;
        u->tx_socket[i] = (uint8_t)to->socket;
        u->tx_for[to->socket]++;
        u->tx.iov[i].iov_base = room;
        u->tx.iov[i].iov_len = bytes;
        u->tx.addr[i] = to->remote;
        u->tx.msgs[i].msg_hdr.msg_namelen = to->remote.len;
        room += bytes;
        len -= bytes;
    } while (len); /* one may be empty */
}

void dxpu_udp_commit(dxpu_udp *u, const dxpu_udp_path *to, size_t len)
{
    dxpu_udp_commit_many(u, to, len, len);
}

/* ==== 4  The loop ============================================================================= */

/* The kernel's control data of a message: flags of ingest, and the bytes of each of its datagrams
   but the last when it has joined several. */
static unsigned read_control(struct msghdr *h, size_t *segment_bytes)
{
    unsigned flags = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        int value = 0;
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
            value = *CMSG_DATA(c); /* one byte */
        else
            memcpy(&value, CMSG_DATA(c), sizeof value);
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && value > 0)
            *segment_bytes = (size_t)value;
        else if (((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
                  (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) &&
                 (value & ECN_MASK) == ECN_CE)
            flags = DXPU_RX_ECN_CE;
    }
    return flags;
}

/* The datagrams of one message. */
static unsigned deliver(dxpu_udp *u, unsigned index, unsigned i, const dxpu_udp_callbacks *cb)
{
    struct msghdr *h = &u->rx.msgs[i].msg_hdr;
    uint8_t *at = h->msg_iov->iov_base;
    size_t left = u->rx.msgs[i].msg_len, segment = left, len;
    unsigned flags = read_control(h, &segment), n = 0;
    dxpu_udp_path from;
    from.socket = index;
    from.remote = u->rx.addr[i];
    from.remote.len = h->msg_namelen;
    do {
        len = left < segment ? left : segment;
        n++;
        u->count.rx_datagrams++;
        u->count.rx_bytes += len;
        if (len > u->cfg.datagram_bytes)
            u->count.rx_too_long++;
        else
            cb->on_datagram(cb->user, at, len, &from, flags);
        at += len;
        left -= len;
    } while (left);
    return n;
}

/* One batch from one socket; the number of datagrams. */
static unsigned receive(dxpu_udp *u, unsigned index, const dxpu_udp_callbacks *cb)
{
    udp_socket *s = &u->sockets[index];
    unsigned look = s->look, datagrams = 0;
    int n;
    for (unsigned i = 0; i < u->rx_written; i++) {
        u->rx.msgs[i].msg_hdr.msg_namelen = sizeof u->rx.addr[i].u;
        u->rx.msgs[i].msg_hdr.msg_controllen = CONTROL_BYTES;
    }
    n = recvmmsg(s->fd, u->rx.msgs, look, MSG_DONTWAIT, NULL);
    u->rx_written = n > 0 ? (unsigned)n : 0;
    s->maybe = n == (int)look; /* else drained: libevent reports more */
    s->look = 1;
    if (n <= 0) {
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            u->count.rx_errors++;
        return 0;
    }
    u->count.rx_batches++;
    if (s->maybe)
        s->look = 2 * look < u->cfg.batch ? 2 * look : u->cfg.batch;
    for (unsigned i = 0; i < (unsigned)n; i++)
        datagrams += deliver(u, index, i, cb);
    return datagrams;
}

/* Look at every socket once (all when `all`, else those that libevent saw readable).  Beside a
   bypass the sockets have little: only what libevent saw. */
static unsigned receive_all(dxpu_udp *u, const dxpu_udp_callbacks *cb, bool all)
{
    unsigned n = 0;
    if (u->bypass.room) {
        if (all || u->bypass_maybe)
            n = u->bypass.receive(u->bypass.self, cb);
        u->bypass_maybe = n > 0; /* until it was seen empty */
        all = false;
    }
    for (unsigned i = 0; i < u->cfg.sockets; i++) {
        if (all || u->sockets[i].maybe)
            n += receive(u, i, cb);
    }
    return n;
}

/* A timer is due for longer than a loop takes, so the process did not run for a while.  What came
   meanwhile is read first: an acknowledgement that waits in a socket is not a late one. */
static unsigned catch_up(dxpu_udp *u, const dxpu_udp_callbacks *cb)
{
    unsigned n = receive_all(u, cb, true), rounds = 0;
    for (bool more = true; more && rounds < CATCH_UP_ROUNDS; rounds++) {
        more = u->bypass_maybe;
        for (unsigned i = 0; i < u->cfg.sockets; i++)
            more |= u->sockets[i].maybe;
        if (more)
            n += receive_all(u, cb, false);
    }
    return n;
}

/* Block until a datagram, another event, or next_ns. */
static int block(dxpu_udp *u, uint64_t now, uint64_t next)
{
    if (next != DXPU_NEVER) {
        uint64_t us = next > now ? (next - now + 999) / 1000 : 0;
        struct timeval tv;
        if (us > 3600u * 1000000u)
            us = 3600u * 1000000u;
        tv.tv_sec = (time_t)(us / 1000000u);
        tv.tv_usec = (suseconds_t)(us % 1000000u);
        if (event_add(u->timer, &tv))
            return -1;
    } else {
        event_del(u->timer);
    }
    u->count.waits++;
    return event_base_loop(u->base, EVLOOP_ONCE) < 0 ? -1 : 0;
}

/* Run the events of others without waiting.  NONBLOCK alone would go on for as long as a socket is
   readable. */
static int poll_events(dxpu_udp *u)
{
    return event_base_loop(u->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0 ? -1 : 0;
}

/* Is looking again better than to block?  A process that blocks comes back some 20 us late: so not
   right after a datagram, since others follow it, nor when a timer is near. */
static bool looks_again(const dxpu_udp *u, uint64_t now, uint64_t last, uint64_t next)
{
    if (next <= now || u->cfg.wait == DXPU_UDP_BUSY)
        return true;
    return u->cfg.wait == DXPU_UDP_ADAPTIVE &&
           (now - last < u->cfg.spin_ns || next - now < u->cfg.spin_ns);
}

/* When to run again: not only when the caller has something to do. */
static uint64_t earlier_retry(const dxpu_udp *u, uint64_t now, uint64_t next)
{
    bool waits = u->bypass.waits && u->bypass.waits(u->bypass.self);
    if (u->tx_waits) /* what is due now has no room */
        return now + RETRY_NS;
    return waits && now + RETRY_NS < next ? now + RETRY_NS : next;
}

void dxpu_udp_watch(dxpu_udp *u, bool (*look)(void *user, bool about_to_block), void *user)
{
    u->look = look;
    u->look_user = user;
}

static bool looks(dxpu_udp *u, bool about_to_block)
{
    return u->look && u->look(u->look_user, about_to_block);
}

int dxpu_udp_loop(dxpu_udp *u, const dxpu_udp_callbacks *cb)
{
    uint64_t now = dxpu_udp_now_ns(), last = now, polled = 0, next = 0;
    bool wake = true; /* other events ran, so run() may have news */
    u->stop = false;
    while (!u->stop) {
        bool all = u->cfg.wait != DXPU_UDP_BLOCK;
        unsigned n = receive_all(u, cb, all);
        n += looks(u, false);
        now = dxpu_udp_now_ns();
        if (next && next != DXPU_NEVER && next + LATE_NS < now) {
            n += catch_up(u, cb);
            now = dxpu_udp_now_ns();
        }
        if (n)
            last = now;
        if (n || wake || next <= now) { /* else nothing has changed since next_ns() */
            cb->run(cb->user, now);
            dxpu_udp_flush(u);
            next = earlier_retry(u, now, cb->next_ns(cb->user));
        }
        wake = false;
        if (n || looks_again(u, now, last, next)) {
            if (now - polled >= POLL_NS) { /* signals and timers live on under load */
                polled = now;
                wake = true;
                if (poll_events(u))
                    return -1;
            }
            /* whoever is waited for may need this processor: not when something is due here */
            if (!n && next > now && (u->look || u->cfg.wait == DXPU_UDP_ADAPTIVE))
                (void)sched_yield();
            continue;
        }
        if (u->stop)
            break;
        if (looks(u, true)) {
            wake = true;
            continue;
        }
        if (block(u, now, next))
            return -1;
        polled = dxpu_udp_now_ns();
        wake = true;
    }
    dxpu_udp_flush(u);
    return DXPU_OK;
}

void dxpu_udp_stop(dxpu_udp *u)
{
    u->stop = true;
}

static void on_bypass(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    ((dxpu_udp *)user)->bypass_maybe = true;
}

int dxpu_udp_use(dxpu_udp *u, const dxpu_udp_bypass *b)
{
    if (u->bypass.room || b->fds > DXPU_UDP_BYPASS_FDS || b->datagram_bytes > u->cfg.datagram_bytes)
        return -1;
    for (unsigned i = 0; i < b->fds; i++) {
        struct event *e = event_new(u->base, b->fd[i], EV_READ | EV_PERSIST, on_bypass, u);
        if (!e)
            return -1;
        u->bypass_readable[i] = e;
        if (event_add(e, NULL))
            return -1;
    }
    u->bypass = *b;
    return DXPU_OK;
}

/* ==== 5  Counters ============================================================================= */

#define DXPU_UDP_NAME(name, text) #name,
static const char *const counter_names[] = { DXPU_UDP_COUNTERS(DXPU_UDP_NAME) };
#undef DXPU_UDP_NAME

const dxpu_udp_counters *dxpu_udp_count(const dxpu_udp *u)
{
    return &u->count;
}

const char *dxpu_udp_counter_name(unsigned index)
{
    return index < sizeof counter_names / sizeof counter_names[0] ? counter_names[index] : NULL;
}

uint64_t dxpu_udp_counter_value(const dxpu_udp *u, unsigned index)
{
    uint64_t value = 0;
    if (dxpu_udp_counter_name(index))
        memcpy(&value, (const uint8_t *)&u->count + index * sizeof value, sizeof value);
    return value;
}
