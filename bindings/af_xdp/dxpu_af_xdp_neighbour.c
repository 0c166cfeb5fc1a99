/* dxpu_af_xdp_neighbour.c - see dxpu_af_xdp_neighbour.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu_af_xdp_neighbour.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

enum { ANSWER_BYTES = 4096, GAP_NS = 50000 };
/* how long an answer counts: a neighbour asked for by the first datagram is soon there */
enum { USABLE_NS = 1000000000, UNUSABLE_NS = 1000000 };
/* states in which a neighbour may be sent to; the kernel asks a stale one again when it sends */
enum {
    FRESH = NUD_REACHABLE | NUD_PERMANENT | NUD_NOARP | NUD_DELAY | NUD_PROBE,
    USABLE = FRESH | NUD_STALE
};

/* ==== Netlink ================================================================================= */

typedef struct question {
    struct nlmsghdr head;
    union {
        struct rtmsg route;
        struct ndmsg neighbour;
    } body;
    uint8_t attributes[64];
} question;

/* Aligned for the headers in it. */
typedef union answer {
    struct nlmsghdr head;
    uint8_t bytes[ANSWER_BYTES];
} answer;

static size_t address_bytes(int family)
{
    return family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

static const void *address_of(const dxpu_xdp_address *a)
{
    return a->any.sa_family == AF_INET6 ? (const void *)&a->v6.sin6_addr
                                        : (const void *)&a->v4.sin_addr;
}

static void set_address(dxpu_xdp_address *a, int family, const void *bytes)
{
    memset(a, 0, sizeof *a);
    a->any.sa_family = (sa_family_t)family;
    if (family == AF_INET6)
        memcpy(&a->v6.sin6_addr, bytes, sizeof a->v6.sin6_addr);
    else
        memcpy(&a->v4.sin_addr, bytes, sizeof a->v4.sin_addr);
}

static void begin(question *q, int type, size_t body_bytes)
{
    memset(q, 0, sizeof *q);
    q->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(body_bytes);
    q->head.nlmsg_type = (uint16_t)type;
    q->head.nlmsg_flags = NLM_F_REQUEST;
}

static void add(question *q, int type, const void *value, size_t bytes)
{
    struct rtattr a;
    uint8_t *at = (uint8_t *)q + NLMSG_ALIGN(q->head.nlmsg_len);
    a.rta_type = (uint16_t)type;
    a.rta_len = (uint16_t)RTA_LENGTH(bytes);
    memcpy(at, &a, sizeof a);
    memcpy(at + RTA_LENGTH(0), value, bytes);
    q->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(a.rta_len));
}

/* Bytes of the answer of type `type`, 0 for none: the kernel has it ready when sendto() returns. */
static size_t ask(dxpu_xdp_hops *h, question *q, int type, answer *out)
{
    ssize_t n;
    q->head.nlmsg_seq = ++h->sequence;
    h->questions++;
    if (send(h->fd, q, q->head.nlmsg_len, MSG_DONTWAIT) < 0)
        return 0;
    while ((n = recv(h->fd, out, sizeof *out, MSG_DONTWAIT)) > 0) {
        if (NLMSG_OK(&out->head, (size_t)n) && out->head.nlmsg_seq == h->sequence)
            return out->head.nlmsg_type == type ? out->head.nlmsg_len : 0;
    }
    return 0;
}

/* The next attribute behind `a`, or the first behind the body; NULL past the last. */
static const struct rtattr *attribute(const answer *m, size_t body_bytes, const struct rtattr *a)
{
    const uint8_t *end = m->bytes + m->head.nlmsg_len;
    const uint8_t *at = a ? (const uint8_t *)a + RTA_ALIGN(a->rta_len)
                          : m->bytes + NLMSG_ALIGN(NLMSG_LENGTH(body_bytes));
    const struct rtattr *next = (const void *)at;
    if (at > end || (size_t)(end - at) < sizeof *next || next->rta_len < sizeof *next ||
        next->rta_len > (size_t)(end - at))
        return NULL;
    return next;
}

/* ==== Route, then neighbour =================================================================== */

/* The next hop towards hop->to, and hop->from where that is a wildcard.  False: by another
   interface, to several, or to none. */
static bool ask_route(dxpu_xdp_hops *h, dxpu_xdp_hop *hop, bool choose_from, dxpu_xdp_address *via)
{
    static const struct in6_addr zero;
    int family = hop->to.any.sa_family;
    size_t bytes = address_bytes(family);
    const struct rtattr *a = NULL;
    bool ours = false;
    question q;
    answer m;
    begin(&q, RTM_GETROUTE, sizeof q.body.route);
    q.body.route.rtm_family = (uint8_t)family;
    q.body.route.rtm_dst_len = (uint8_t)(8 * bytes);
    add(&q, RTA_DST, address_of(&hop->to), bytes);
    if (!choose_from) {
        q.body.route.rtm_src_len = (uint8_t)(8 * bytes);
        add(&q, RTA_SRC, address_of(&hop->from), bytes);
    }
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&hop->to.v6.sin6_addr))
        add(&q, RTA_OIF, &h->ifindex, sizeof h->ifindex);
    if (ask(h, &q, RTM_NEWROUTE, &m) < NLMSG_LENGTH(sizeof(struct rtmsg)) ||
        ((const struct rtmsg *)NLMSG_DATA(&m.head))->rtm_type != RTN_UNICAST)
        return false;
    *via = hop->to;
    while ((a = attribute(&m, sizeof(struct rtmsg), a)) != NULL) {
        uint32_t index;
        if (a->rta_type == RTA_OIF && a->rta_len == RTA_LENGTH(sizeof index)) {
            memcpy(&index, RTA_DATA(a), sizeof index);
            ours = index == h->ifindex;
        } else if (a->rta_type == RTA_GATEWAY && a->rta_len == RTA_LENGTH(bytes)) {
            set_address(via, family, RTA_DATA(a));
        } else if (a->rta_type == RTA_PREFSRC && choose_from && a->rta_len == RTA_LENGTH(bytes)) {
            set_address(&hop->from, family, RTA_DATA(a));
        } else if (a->rta_type == RTA_VIA) {
            return false; /* a gateway of the other family: the kernel can do it */
        }
    }
    return ours && memcmp(address_of(&hop->from), &zero, bytes) != 0;
}

static void ask_neighbour(dxpu_xdp_hops *h, dxpu_xdp_hop *hop, const dxpu_xdp_address *via)
{
    int family = via->any.sa_family;
    const struct rtattr *a = NULL;
    const struct ndmsg *n;
    question q;
    answer m;
    begin(&q, RTM_GETNEIGH, sizeof q.body.neighbour);
    q.body.neighbour.ndm_family = (uint8_t)family;
    q.body.neighbour.ndm_ifindex = (int)h->ifindex;
    add(&q, NDA_DST, address_of(via), address_bytes(family));
    if (ask(h, &q, RTM_NEWNEIGH, &m) < NLMSG_LENGTH(sizeof *n))
        return;
    n = NLMSG_DATA(&m.head);
    if (!(n->ndm_state & USABLE))
        return;
    hop->old = !(n->ndm_state & FRESH);
    while ((a = attribute(&m, sizeof *n, a)) != NULL) {
        if (a->rta_type == NDA_LLADDR && a->rta_len == RTA_LENGTH(sizeof hop->mac)) {
            memcpy(hop->mac, RTA_DATA(a), sizeof hop->mac);
            hop->usable = true;
        }
    }
}

/* ==== What is remembered ====================================================================== */

static bool same_address(const dxpu_xdp_address *a, const dxpu_xdp_address *b)
{
    return a->any.sa_family == b->any.sa_family &&
           !memcmp(address_of(a), address_of(b), address_bytes(a->any.sa_family));
}

static size_t place_of(const dxpu_xdp_address *to)
{
    uint32_t hash = 2166136261u; /* FNV-1a: who floods the table only sends others to the kernel */
    const uint8_t *bytes = address_of(to);
    for (size_t i = 0; i < address_bytes(to->any.sa_family); i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return (hash ^ hash >> 16) % DXPU_XDP_HOPS;
}

static bool is_wildcard(const dxpu_xdp_address *a)
{
    static const struct in6_addr zero;
    return !memcmp(address_of(a), &zero, address_bytes(a->any.sa_family));
}

const dxpu_xdp_hop *dxpu_xdp_hop_to(dxpu_xdp_hops *h, const dxpu_xdp_address *from,
                                    const dxpu_xdp_address *to, uint64_t now_ns, bool *first)
{
    size_t place = place_of(to);
    bool choose_from = is_wildcard(from);
    dxpu_xdp_address via;
    dxpu_xdp_hop *hop = &h->hop[place];
    *first = false;
    for (size_t i = 0; i < DXPU_XDP_HOP_PROBES; i++) {
        dxpu_xdp_hop *one = &h->hop[(place + i) % DXPU_XDP_HOPS];
        if (one->asked_ns && same_address(&one->to, to) &&
            (choose_from || same_address(&one->from, from))) {
            if (now_ns - one->asked_ns < (one->usable ? USABLE_NS : UNUSABLE_NS))
                return one;
            hop = one;
            break;
        }
        if (one->asked_ns < hop->asked_ns)
            hop = one; /* the oldest makes room */
    }
    if (now_ns - h->asked_ns < GAP_NS)
        return NULL;
    h->asked_ns = now_ns;
    memset(hop, 0, sizeof *hop);
    hop->asked_ns = now_ns;
    set_address(&hop->to, to->any.sa_family, address_of(to));
    set_address(&hop->from, from->any.sa_family, address_of(from));
    if (ask_route(h, hop, choose_from, &via))
        ask_neighbour(h, hop, &via);
    *first = true;
    return hop;
}

int dxpu_xdp_hops_open(dxpu_xdp_hops *h, uint32_t ifindex)
{
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    memset(h, 0, sizeof *h);
    h->ifindex = ifindex;
    h->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (h->fd < 0)
        return -1;
    return connect(h->fd, (const struct sockaddr *)&kernel, sizeof kernel);
}

void dxpu_xdp_hops_close(dxpu_xdp_hops *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
}
