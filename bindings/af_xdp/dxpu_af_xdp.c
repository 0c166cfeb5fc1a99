/* dxpu_af_xdp.c - see dxpu_af_xdp.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu_af_xdp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ==== Options and counters: also without libxdp =============================================== */

void dxpu_xdp_config_default(dxpu_xdp_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->queues = cfg->loops = 1;
    cfg->batch = 64;
}

/* "2" or "0-3". */
static const char *parse_queues(const char *word, dxpu_xdp_config *cfg)
{
    char *end;
    unsigned long first = strtoul(word, &end, 10), last = first;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
        last = strtoul(end + 1, &end, 10);
    if (*end || first > last || last > 65535 || last - first >= DXPU_XDP_QUEUES_MAX)
        return "the queue is a number, or FIRST-LAST with at most 16 of them";
    cfg->queue = (unsigned)first;
    cfg->queues = (unsigned)(last - first + 1);
    return NULL;
}

static const char *parse_word(const char *word, dxpu_xdp_config *cfg)
{
    unsigned b[DXPU_XDP_MAC_BYTES];
    int used = 0;
    if (*word >= '0' && *word <= '9')
        return parse_queues(word, cfg);
    if (!strcmp(word, "generic")) {
        cfg->generic = cfg->copy = true;
    } else if (!strcmp(word, "copy")) {
        cfg->copy = true;
    } else if (!strcmp(word, "busy-poll")) {
        cfg->busy_poll = true;
    } else if (sscanf(word, "mac=%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4],
                      &b[5], &used) == DXPU_XDP_MAC_BYTES &&
               used && !word[used]) {
        cfg->fixed_hop = true;
        for (unsigned i = 0; i < DXPU_XDP_MAC_BYTES; i++)
            cfg->next_hop[i] = (uint8_t)b[i];
    } else {
        return "behind the interface: a queue, generic, copy, busy-poll or mac=XX:XX:XX:XX:XX:XX";
    }
    return NULL;
}

const char *dxpu_xdp_parse_option(const char *text, dxpu_xdp_config *cfg)
{
    char word[64];
    size_t len = strcspn(text, ",");
    if (!len || len >= sizeof cfg->interface)
        return "the name of a network interface comes first";
    memcpy(cfg->interface, text, len);
    cfg->interface[len] = '\0';
    while (text[len]) {
        const char *why;
        text += len + 1;
        len = strcspn(text, ",");
        if (len >= sizeof word)
            return "a word is too long";
        memcpy(word, text, len);
        word[len] = '\0';
        why = parse_word(word, cfg);
        if (why)
            return why;
    }
    return NULL;
}

#define DXPU_XDP_NAME(name, text) #name,
static const char *const counter_names[] = { DXPU_XDP_COUNTERS(DXPU_XDP_NAME) };
#undef DXPU_XDP_NAME

const char *dxpu_xdp_counter_name(unsigned index)
{
    return index < sizeof counter_names / sizeof counter_names[0] ? counter_names[index] : NULL;
}

uint64_t dxpu_xdp_counter_value(const dxpu_xdp_counters *c, unsigned index)
{
    uint64_t value = 0;
    if (dxpu_xdp_counter_name(index))
        memcpy(&value, (const uint8_t *)c + index * sizeof value, sizeof value);
    return value;
}

#if DXPU_AF_XDP

#include "dxpu_af_xdp_neighbour.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

enum {
    CHUNK = 4096,
    RX_CHUNKS = 1024, /* with TX_CHUNKS below the 8 MiB that a user may lock by default */
    TX_CHUNKS = 512,
    HEAD = 64, /* of a chunk that is sent: the headers stand at its end */
    KICKS = TX_CHUNKS / 32 + 8,
    BUSY_TRIES = 50,
    BUSY_PAUSE_NS = 20000000,
    BUSY_POLL_US = 20,
    BATCH_MAX = 256
};

typedef struct queue {
    uint8_t *area;
    struct xsk_umem *umem;
    struct xsk_socket *socket;
    struct xsk_ring_prod fill, tx;
    struct xsk_ring_cons done, rx;
} queue;

struct dxpu_xdp {
    dxpu_xdp_config cfg;
    dxpu_xdp_local local[DXPU_XDP_LOCALS_MAX];
    dxpu_xdp_receiver receiver;
    uint8_t mac[DXPU_XDP_MAC_BYTES];
    unsigned ifindex, mtu;
    int map_fd, program_fd, link_fd; /* of loop 0, as what is steered */
    dxpu_xdp_local steered[DXPU_XDP_LOCALS_MAX];
    unsigned steered_count;
    unsigned queue_numbers; /* 1 + the highest of any loop */
    bool native, zero_copy;
    queue queues[DXPU_XDP_QUEUES_MAX];
    uint64_t tx_free[TX_CHUNKS]; /* chunks of the first queue */
    unsigned tx_free_count, tx_queued;
    bool waits; /* the driver has not taken all that was queued */
    dxpu_xdp_hops hops;
    dxpu_xdp_counters count;
};

/* ==== Opening ================================================================================= */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *rights_or(const char *otherwise)
{
    if (errno == EPERM || errno == EACCES)
        return "rights are missing: run as root, or give the program CAP_NET_RAW, CAP_NET_ADMIN "
               "and CAP_BPF";
    if (errno == ENOBUFS || errno == ENOMEM)
        return "not enough memory may be locked: raise `ulimit -l`, or give the program "
               "CAP_IPC_LOCK";
    return otherwise;
}

/* Packets of this machine's own kernel come by such an interface, their checksum left open. */
static bool is_veth(int fd, struct ifreq *r)
{
    struct ethtool_drvinfo driver;
    memset(&driver, 0, sizeof driver);
    driver.cmd = ETHTOOL_GDRVINFO;
    r->ifr_data = (void *)&driver;
    return !ioctl(fd, SIOCETHTOOL, r) && !strcmp(driver.driver, "veth");
}

static const char *look_at_interface(dxpu_xdp *x)
{
    struct ifreq r;
    int fd;
    const char *why = NULL;
    x->ifindex = if_nametoindex(x->cfg.interface);
    if (!x->ifindex)
        return "no such network interface; `ip link` lists them";
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return "no socket to ask about the interface";
    memset(&r, 0, sizeof r);
    memcpy(r.ifr_name, x->cfg.interface, sizeof r.ifr_name);
    if (ioctl(fd, SIOCGIFHWADDR, &r) || r.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
        errno = EOPNOTSUPP;
        why = "not an Ethernet interface; AF_XDP needs one (on one machine: veth)";
    } else {
        memcpy(x->mac, r.ifr_hwaddr.sa_data, sizeof x->mac);
        if (ioctl(fd, SIOCGIFMTU, &r))
            why = "the interface has no MTU";
        x->mtu =
            (unsigned)r.ifr_mtu < DXPU_XDP_PACKET_MAX ? (unsigned)r.ifr_mtu : DXPU_XDP_PACKET_MAX;
        x->receiver.partial_ok = is_veth(fd, &r);
    }
    close(fd);
    return why;
}

static bool covers(const dxpu_xdp_address *want, const dxpu_xdp_address *has)
{
    static const struct in6_addr zero;
    if (want->any.sa_family != has->any.sa_family)
        return false;
    if (want->any.sa_family == AF_INET)
        return !want->v4.sin_addr.s_addr || want->v4.sin_addr.s_addr == has->v4.sin_addr.s_addr;
    return !memcmp(&want->v6.sin6_addr, &zero, sizeof zero) ||
           !memcmp(&want->v6.sin6_addr, &has->v6.sin6_addr, sizeof zero);
}

/* What of cfg.local is on the interface. */
static const char *find_locals(dxpu_xdp *x)
{
    struct ifaddrs *all, *a;
    if (getifaddrs(&all))
        return "the interface's addresses cannot be read";
    for (a = all; a; a = a->ifa_next) {
        dxpu_xdp_address has;
        if (!a->ifa_addr || strcmp(a->ifa_name, x->cfg.interface))
            continue;
        memset(&has, 0, sizeof has);
        if (a->ifa_addr->sa_family == AF_INET)
            memcpy(&has.v4, a->ifa_addr, sizeof has.v4);
        else if (a->ifa_addr->sa_family == AF_INET6)
            memcpy(&has.v6, a->ifa_addr, sizeof has.v6);
        else
            continue;
        for (unsigned i = 0; i < x->cfg.sockets; i++) {
            dxpu_xdp_local *l = &x->local[x->receiver.locals];
            if (!covers(&x->cfg.local[i], &has) || x->receiver.locals == DXPU_XDP_LOCALS_MAX)
                continue;
            l->at = has;
            l->socket = i;
            l->loop = x->cfg.loop;
            if (has.any.sa_family == AF_INET)
                l->at.v4.sin_port = x->cfg.local[i].v4.sin_port;
            else
                l->at.v6.sin6_port = x->cfg.local[i].v6.sin6_port;
            x->receiver.locals++;
        }
    }
    freeifaddrs(all);
    x->receiver.local = x->local;
    x->receiver.scope = x->ifindex;
    if (x->receiver.locals)
        return NULL;
    errno = EADDRNOTAVAIL;
    return "no address that is listened at is this interface's; `ip address` lists them";
}

static void queue_close(queue *q)
{
    if (q->socket)
        xsk_socket__delete(q->socket);
    if (q->umem)
        xsk_umem__delete(q->umem);
    if (q->area)
        munmap(q->area, (size_t)(RX_CHUNKS + TX_CHUNKS) * CHUNK);
    memset(q, 0, sizeof *q);
}

/* One try; errno. */
static int queue_try(dxpu_xdp *x, queue *q, unsigned number)
{
    struct xsk_umem_config umem = { .fill_size = RX_CHUNKS,
                                    .comp_size = TX_CHUNKS,
                                    .frame_size = CHUNK,
                                    .frame_headroom = 0,
                                    .flags = 0 };
    struct xsk_socket_config socket = { .rx_size = RX_CHUNKS, .tx_size = TX_CHUNKS };
    size_t bytes = (size_t)(RX_CHUNKS + TX_CHUNKS) * CHUNK;
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int rc;
    if (area == MAP_FAILED)
        return errno;
    q->area = area;
    rc = xsk_umem__create(&q->umem, area, bytes, &q->fill, &q->done, &umem);
    if (rc)
        return -rc;
    socket.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
    socket.bind_flags = XDP_USE_NEED_WAKEUP;
    if (x->cfg.copy)
        socket.bind_flags |= XDP_COPY; /* else the kernel takes zero-copy where it can */
    rc = xsk_socket__create(&q->socket, x->cfg.interface, number, q->umem, &q->rx, &q->tx, &socket);
    return -rc;
}

static void set_busy_poll(int fd)
{
    int on = 1, us = BUSY_POLL_US, budget = 64;
    /* each of these only makes it faster */
    (void)setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us);
    (void)setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof budget);
}

/* The kernel lets go of a queue some time after its last socket was closed. */
static const char *queue_open(dxpu_xdp *x, unsigned index)
{
    static const struct timespec pause = { 0, BUSY_PAUSE_NS };
    queue *q = &x->queues[index];
    uint32_t at;
    for (unsigned i = 0;; i++) {
        errno = queue_try(x, q, x->cfg.queue + index);
        if (!errno)
            break;
        if (errno != EBUSY || i == BUSY_TRIES)
            return errno == EBUSY    ? "another AF_XDP socket has the queue; stop that program or "
                                       "name another queue, IFNAME,QUEUE"
                   : errno == EINVAL ? "the interface has no such queue; `ethtool -l` counts them"
                                     : rights_or("the kernel gives no AF_XDP socket here; without "
                                                 "--af-xdp the kernel's sockets are used");
        queue_close(q);
        nanosleep(&pause, NULL);
    }
    if (xsk_ring_prod__reserve(&q->fill, RX_CHUNKS, &at) != RX_CHUNKS)
        return "the fill ring is too small";
    for (uint32_t i = 0; i < RX_CHUNKS; i++)
        *xsk_ring_prod__fill_addr(&q->fill, at + i) = (uint64_t)i * CHUNK;
    xsk_ring_prod__submit(&q->fill, RX_CHUNKS);
    if (x->cfg.busy_poll)
        set_busy_poll(xsk_socket__fd(q->socket));
    return NULL;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* The program that steers to x as well as to those opened before; owner is loop 0. */
static const char *load_filter(dxpu_xdp *owner, const dxpu_xdp *x)
{
    struct bpf_insn program[DXPU_XDP_FILTER_MAX];
    unsigned count;
    int fd;
    errno = E2BIG;
    if (owner->steered_count + x->receiver.locals > DXPU_XDP_LOCALS_MAX)
        return "too many addresses, of all cores or guests; name those to listen at";
    memcpy(owner->steered + owner->steered_count, x->local,
           x->receiver.locals * sizeof *owner->steered);
    owner->steered_count += x->receiver.locals;
    count = dxpu_xdp_filter(owner->steered, owner->steered_count, owner->queue_numbers,
                            owner->map_fd, program);
    fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "dxpu_xdp", "Dual MIT/GPL", program, count, NULL);
    if (fd < 0)
        return rights_or("the kernel refuses the XDP program; Linux 5.9 or newer is needed");
    if (owner != x && bpf_link_update(owner->link_fd, fd, NULL)) {
        close_fd(fd);
        return "the kernel does not replace the XDP program; Linux 5.9 or newer is needed";
    }
    close_fd(owner->program_fd);
    owner->program_fd = fd;
    return NULL;
}

/* The program stays while link_fd is open: it goes with the process, however that ends. */
static const char *attach(dxpu_xdp *x)
{
    struct bpf_link_create_opts how;
    const char *why = load_filter(x->cfg.beside ? x->cfg.beside : x, x);
    if (why)
        return why;
    if (x->cfg.beside) {
        x->native = x->cfg.beside->native;
        return NULL;
    }
    memset(&how, 0, sizeof how);
    how.sz = sizeof how;
    errno = 0;
    if (!x->cfg.generic) {
        how.flags = XDP_FLAGS_DRV_MODE;
        x->link_fd = bpf_link_create(x->program_fd, (int)x->ifindex, BPF_XDP, &how);
        x->native = x->link_fd >= 0;
    }
    if (!x->native && x->zero_copy)
        return "the driver takes zero-copy sockets but no XDP program; give IFNAME,generic";
    if (!x->native && errno != EBUSY && errno != EEXIST) {
        how.flags = XDP_FLAGS_SKB_MODE;
        x->link_fd = bpf_link_create(x->program_fd, (int)x->ifindex, BPF_XDP, &how);
    }
    if (x->link_fd >= 0)
        return NULL;
    if (errno == EBUSY || errno == EEXIST)
        return "another XDP program is on the interface; stop its owner, or `ip link set dev "
               "IFNAME xdp off`";
    return rights_or("the kernel attaches no XDP program here; Linux 5.9 or newer is needed");
}

/* The queues of this loop, each with its socket in the map. */
static const char *open_queues(dxpu_xdp *x, int map_fd)
{
    for (unsigned i = 0; i < x->cfg.queues; i++) {
        uint32_t key = x->cfg.loop * x->queue_numbers + x->cfg.queue + i;
        const char *why = queue_open(x, i);
        int fd = why ? -1 : xsk_socket__fd(x->queues[i].socket);
        if (why)
            return why;
        if (bpf_map_update_elem(map_fd, &key, &fd, 0))
            return "the kernel takes no AF_XDP socket into its map";
    }
    return NULL;
}

static const char *open_all(dxpu_xdp *x)
{
    struct xdp_options options = { 0 };
    socklen_t bytes = sizeof options;
    const char *why = look_at_interface(x);
    int probe;
    if (!why)
        why = find_locals(x);
    if (why)
        return why;
    probe = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (probe < 0)
        return rights_or("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)");
    close(probe);
    if (dxpu_xdp_hops_open(&x->hops, x->ifindex))
        return "no netlink socket to read neighbours from";
    if (!x->cfg.beside)
        x->map_fd = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "dxpu_xsks", 4, 4,
                                   x->cfg.loops * x->queue_numbers, NULL);
    if (!x->cfg.beside && x->map_fd < 0)
        return rights_or("the kernel gives no map for AF_XDP sockets");
    why = open_queues(x, x->cfg.beside ? x->cfg.beside->map_fd : x->map_fd);
    if (why)
        return why;
    for (unsigned i = 0; i < TX_CHUNKS; i++)
        x->tx_free[x->tx_free_count++] = (uint64_t)(RX_CHUNKS + i) * CHUNK;
    if (!getsockopt(xsk_socket__fd(x->queues[0].socket), SOL_XDP, XDP_OPTIONS, &options, &bytes))
        x->zero_copy = (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
    return attach(x);
}

/* Its part of the queues. */
static void divide_queues(dxpu_xdp *x)
{
    unsigned all = x->cfg.queues, loops = x->cfg.loops, begin = x->cfg.loop * all / loops;
    x->queue_numbers = x->cfg.queue + all;
    x->cfg.queue += begin;
    x->cfg.queues = (x->cfg.loop + 1) * all / loops - begin;
}

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
    (void)level;
    (void)format;
    (void)args;
    return 0;
}

static int xdp_silent(enum libxdp_print_level level, const char *format, va_list args)
{
    (void)level;
    (void)format;
    (void)args;
    return 0;
}

dxpu_xdp *dxpu_xdp_open(const dxpu_xdp_config *cfg, const char **why)
{
    dxpu_xdp *x;
    if (cfg->sockets < 1 || cfg->sockets > DXPU_XDP_SOCKETS_MAX || cfg->queues < 1 ||
        cfg->queues > DXPU_XDP_QUEUES_MAX || cfg->batch < 1 || cfg->batch > BATCH_MAX ||
        cfg->loops < 1 || cfg->loops > cfg->queues || cfg->loop >= cfg->loops ||
        !cfg->loop != !cfg->beside) {
        errno = EINVAL;
        *why = "a configuration value is out of range";
        return NULL;
    }
    x = calloc(1, sizeof *x);
    if (!x) {
        *why = "out of memory";
        return NULL;
    }
    x->cfg = *cfg;
    divide_queues(x);
    x->map_fd = x->program_fd = x->link_fd = x->hops.fd = -1;
    libbpf_set_print(silent); /* what failed is said by *why */
    libxdp_set_print(xdp_silent);
    *why = open_all(x);
    if (*why) {
        int saved = errno;
        dxpu_xdp_close(x);
        errno = saved;
        return NULL;
    }
    return x;
}

void dxpu_xdp_close(dxpu_xdp *x)
{
    if (!x)
        return;
    close_fd(x->link_fd); /* first: nothing is steered into a queue that goes */
    close_fd(x->program_fd);
    for (unsigned i = 0; i < x->cfg.queues; i++)
        queue_close(&x->queues[i]);
    close_fd(x->map_fd);
    dxpu_xdp_hops_close(&x->hops);
    free(x);
}

const char *dxpu_xdp_mode(const dxpu_xdp *x)
{
    return !x->native ? "generic, copy" : x->zero_copy ? "native, zero-copy" : "native, copy";
}

unsigned dxpu_xdp_queues(const dxpu_xdp *x)
{
    return x->cfg.queues;
}

int dxpu_xdp_fd(const dxpu_xdp *x, unsigned index)
{
    return xsk_socket__fd(x->queues[index].socket);
}

const char *dxpu_xdp_name(void)
{
    static char text[40];
    snprintf(text, sizeof text, "libbpf %u.%u", libbpf_major_version(), libbpf_minor_version());
    return text;
}

/* ==== Sending ================================================================================= */

/* Chunks that the driver is done with come back. */
static void reap(dxpu_xdp *x)
{
    queue *q = &x->queues[0];
    uint32_t at, n = xsk_ring_cons__peek(&q->done, TX_CHUNKS, &at);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t chunk = *xsk_ring_cons__comp_addr(&q->done, at + i) / CHUNK * CHUNK;
        if (x->tx_free_count < TX_CHUNKS)
            x->tx_free[x->tx_free_count++] = chunk;
    }
    if (n)
        xsk_ring_cons__release(&q->done, n);
}

/* In copy mode a call sends at most 32 packets and says EAGAIN when there are more; so it does when
   the device's queue is full. */
static void kick(dxpu_xdp *x)
{
    queue *q = &x->queues[0];
    x->waits = false;
    if (!xsk_ring_prod__needs_wakeup(&q->tx))
        return;
    for (unsigned i = 0; i < KICKS; i++) {
        if (sendto(xsk_socket__fd(q->socket), NULL, 0, MSG_DONTWAIT, NULL, 0) >= 0)
            return;
        if (errno != EAGAIN && errno != EBUSY && errno != EINTR && errno != ENOBUFS) {
            x->count.tx_errors++;
            return;
        }
        reap(x);
    }
    x->waits = true;
    x->count.tx_left++;
}

uint8_t *dxpu_xdp_room(dxpu_xdp *x)
{
    if (!x->tx_free_count)
        reap(x);
    if (!x->tx_free_count) {
        dxpu_xdp_flush(x);
        kick(x);
        reap(x);
    }
    if (!x->tx_free_count) {
        x->count.tx_full++;
        return NULL;
    }
    return x->queues[0].area + x->tx_free[x->tx_free_count - 1] + HEAD;
}

/* False: not this way now. */
static bool find_way(dxpu_xdp *x, unsigned socket, const dxpu_xdp_address *to, dxpu_xdp_way *w)
{
    const dxpu_xdp_address *from = &x->cfg.local[socket];
    const dxpu_xdp_hop *hop;
    bool first;
    w->from = *from;
    w->to = *to;
    w->ecn = x->cfg.ecn_capable ? 2 : 0; /* ECT(0) */
    memcpy(w->from_mac, x->mac, sizeof w->from_mac);
    if (x->cfg.fixed_hop && x->receiver.locals) {
        memcpy(w->to_mac, x->cfg.next_hop, sizeof w->to_mac);
        for (unsigned i = 0; i < x->receiver.locals; i++) {
            if (x->local[i].socket == socket) {
                w->from = x->local[i].at;
                return true;
            }
        }
        x->count.tx_elsewhere++;
        return false;
    }
    hop = dxpu_xdp_hop_to(&x->hops, from, to, now_ns(), &first);
    if (!hop || !hop->usable) {
        x->count.tx_elsewhere++;
        return false;
    }
    if (first && hop->old) { /* the kernel asks the neighbour again when it sends to it */
        x->count.tx_refresh++;
        return false;
    }
    memcpy(w->to_mac, hop->mac, sizeof w->to_mac);
    if (from->any.sa_family == AF_INET)
        w->from.v4.sin_addr = hop->from.v4.sin_addr;
    else
        w->from.v6.sin6_addr = hop->from.v6.sin6_addr;
    return true;
}

bool dxpu_xdp_commit(dxpu_xdp *x, unsigned socket, const dxpu_xdp_address *to, size_t len)
{
    queue *q = &x->queues[0];
    size_t headers = dxpu_xdp_header_bytes(to->any.sa_family);
    uint64_t chunk = x->tx_free[x->tx_free_count - 1];
    struct xdp_desc *d;
    dxpu_xdp_way way;
    uint32_t at;
    if (socket >= x->cfg.sockets || x->cfg.local[socket].any.sa_family != to->any.sa_family ||
        !find_way(x, socket, to, &way))
        return false;
    if (len > DXPU_XDP_DATAGRAM_MAX || headers - sizeof(struct ethhdr) + len > x->mtu) {
        x->count.tx_too_long++;
        return true;
    }
    if (!xsk_ring_prod__reserve(&q->tx, 1, &at)) {
        x->count.tx_full++;
        return false;
    }
    x->tx_free_count--;
    dxpu_xdp_build(q->area + chunk + HEAD - headers, &way, len);
    d = xsk_ring_prod__tx_desc(&q->tx, at);
    d->addr = chunk + HEAD - headers;
    d->len = (uint32_t)(headers + len);
    d->options = 0;
    x->tx_queued++;
    x->count.tx_datagrams++;
    x->count.tx_bytes += len;
    return true;
}

void dxpu_xdp_flush(dxpu_xdp *x)
{
    if (!x->tx_queued && !x->waits)
        return;
    if (x->tx_queued) {
        xsk_ring_prod__submit(&x->queues[0].tx, x->tx_queued);
        x->tx_queued = 0;
        x->count.tx_batches++;
    }
    kick(x);
    reap(x);
}

bool dxpu_xdp_waits(const dxpu_xdp *x)
{
    return x->waits;
}

/* ==== Receiving =============================================================================== */

static void count_drop(dxpu_xdp *x, int what)
{
    switch (what) {
    case DXPU_XDP_LENGTH:
        x->count.rx_length++;
        break;
    case DXPU_XDP_FRAGMENT:
        x->count.rx_fragment++;
        break;
    case DXPU_XDP_CHECKSUM:
        x->count.rx_checksum++;
        break;
    case DXPU_XDP_SOURCE:
        x->count.rx_source++;
        break;
    default:
        x->count.rx_not_ours++;
        break;
    }
}

static unsigned receive(dxpu_xdp *x, queue *q, dxpu_xdp_on_datagram *on_datagram, void *user)
{
    uint32_t from, to = 0, n = xsk_ring_cons__peek(&q->rx, x->cfg.batch, &from);
    uint64_t used[BATCH_MAX];
    if (!n) {
        if (x->cfg.busy_poll)
            (void)recvfrom(xsk_socket__fd(q->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
        return 0;
    }
    x->count.rx_batches++;
    for (uint32_t i = 0; i < n; i++) {
        const struct xdp_desc *d = xsk_ring_cons__rx_desc(&q->rx, from + i);
        uint8_t *frame = xsk_umem__get_data(q->area, d->addr);
        dxpu_xdp_datagram g;
        int rc = dxpu_xdp_parse(&x->receiver, frame, d->len, &g);
        used[i] = d->addr / CHUNK * CHUNK;
        if (rc != DXPU_XDP_GOOD) {
            count_drop(x, rc);
            continue;
        }
        x->count.rx_datagrams++;
        x->count.rx_bytes += g.len;
        x->count.rx_checksum_partial += g.partial;
        on_datagram(user, frame + g.offset, g.len, g.socket, &g.from, g.flags);
    }
    xsk_ring_cons__release(&q->rx, n);
    /* never full: it has room for all chunks */
    if (xsk_ring_prod__reserve(&q->fill, n, &to) == n) {
        for (uint32_t i = 0; i < n; i++)
            *xsk_ring_prod__fill_addr(&q->fill, to + i) = used[i];
        xsk_ring_prod__submit(&q->fill, n);
    }
    if (xsk_ring_prod__needs_wakeup(&q->fill))
        (void)recvfrom(xsk_socket__fd(q->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
    return n;
}

unsigned dxpu_xdp_receive(dxpu_xdp *x, dxpu_xdp_on_datagram *on_datagram, void *user)
{
    unsigned n = 0;
    for (unsigned i = 0; i < x->cfg.queues; i++)
        n += receive(x, &x->queues[i], on_datagram, user);
    return n;
}

const dxpu_xdp_counters *dxpu_xdp_count(dxpu_xdp *x)
{
    x->count.rx_fill_empty = x->count.rx_ring_full = x->count.rx_kernel_dropped = 0;
    for (unsigned i = 0; i < x->cfg.queues; i++) {
        struct xdp_statistics s;
        socklen_t bytes = sizeof s;
        memset(&s, 0, sizeof s); /* an older kernel fills less of it */
        if (getsockopt(dxpu_xdp_fd(x, i), SOL_XDP, XDP_STATISTICS, &s, &bytes))
            continue;
        x->count.rx_fill_empty += s.rx_fill_ring_empty_descs;
        x->count.rx_ring_full += s.rx_ring_full;
        x->count.rx_kernel_dropped += s.rx_dropped + s.rx_invalid_descs;
    }
    x->count.lookups = x->hops.questions;
    return &x->count;
}

#else /* !DXPU_AF_XDP */

dxpu_xdp *dxpu_xdp_open(const dxpu_xdp_config *cfg, const char **why)
{
    (void)cfg;
    errno = ENOSYS;
    *why = "built without AF_XDP; install libxdp-dev and libbpf-dev, and build again";
    return NULL;
}

void dxpu_xdp_close(dxpu_xdp *x)
{
    (void)x;
}

const char *dxpu_xdp_mode(const dxpu_xdp *x)
{
    (void)x;
    return "none";
}

unsigned dxpu_xdp_queues(const dxpu_xdp *x)
{
    (void)x;
    return 0;
}

int dxpu_xdp_fd(const dxpu_xdp *x, unsigned index)
{
    (void)x;
    (void)index;
    return -1;
}

const char *dxpu_xdp_name(void)
{
    return "none";
}

uint8_t *dxpu_xdp_room(dxpu_xdp *x)
{
    (void)x;
    return NULL;
}

bool dxpu_xdp_commit(dxpu_xdp *x, unsigned socket, const dxpu_xdp_address *to, size_t len)
{
    (void)x;
    (void)socket;
    (void)to;
    (void)len;
    return false;
}

void dxpu_xdp_flush(dxpu_xdp *x)
{
    (void)x;
}

bool dxpu_xdp_waits(const dxpu_xdp *x)
{
    (void)x;
    return false;
}

unsigned dxpu_xdp_receive(dxpu_xdp *x, dxpu_xdp_on_datagram *on_datagram, void *user)
{
    (void)x;
    (void)on_datagram;
    (void)user;
    return 0;
}

const dxpu_xdp_counters *dxpu_xdp_count(dxpu_xdp *x)
{
    static const dxpu_xdp_counters none;
    (void)x;
    return &none;
}

#endif /* DXPU_AF_XDP */
