/* net_port.c - see net_port.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* struct ifreq */
#endif
#include "net_port.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int watch(net_port *p, int how, unsigned queue, uint32_t events)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = events;
    e.data.u32 = queue;
    return epoll_ctl(p->watch, how, p->fd[queue], &e);
}

static int add_queue(net_port *p, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    p->fd[p->queues++] = fd;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
        return -1;
    return watch(p, EPOLL_CTL_ADD, p->queues - 1, EPOLLIN | EPOLLONESHOT);
}

/* One queue of a tap; -1: errno says why not. */
static int open_tap(const char *name, short flags)
{
    struct ifreq r;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK), why;
    memset(&r, 0, sizeof r);
    memcpy(r.ifr_name, name, strlen(name));
    r.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | flags);
    if (fd >= 0 && !ioctl(fd, TUNSETIFF, &r))
        return fd;
    why = errno;
    if (fd >= 0)
        (void)close(fd);
    errno = why;
    return -1;
}

static int open_taps(net_port *p, const char *name)
{
    short flags = IFF_MULTI_QUEUE;
    int fd;
    if (!*name || strlen(name) >= IFNAMSIZ || !if_nametoindex(name)) {
        errno = ENODEV; /* it would be created, and lost at the end */
        return -1;
    }
    fd = open_tap(name, flags);
    if (fd < 0 && errno == EINVAL) { /* it was made for one queue */
        flags = 0;
        fd = open_tap(name, flags);
    }
    while (fd >= 0) {
        if (add_queue(p, fd))
            return -1;
        if (!flags || p->queues == NET_PORT_QUEUES)
            return 0;
        fd = open_tap(name, flags);
    }
    return -1;
}

static int set_header(net_port *p)
{
    int bytes = NET_PORT_HEADER, little = 1;
    for (unsigned i = 0; i < p->queues; i++) {
        if (ioctl(p->fd[i], TUNSETVNETHDRSZ, &bytes) || ioctl(p->fd[i], TUNSETVNETLE, &little))
            return -1;
    }
    return 0;
}

/* Two slots at one interface would get each other's frames, which the kernel spreads over all that
   opened it.  The lock is a name in the network namespace: it holds for other boxes as well, and
   ends with the process.  0, or -1 after a message. */
static int lock_tap(net_port *p, const char *name)
{
    struct sockaddr_un at;
    unsigned index = if_nametoindex(name);
    int bytes;
    if (!index)
        return 0; /* no interface has this name */
    memset(&at, 0, sizeof at);
    at.sun_family = AF_UNIX;
    bytes = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "dxpu-tap-%u", index);
    p->lock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (p->lock >= 0 &&
        !bind(p->lock, (const struct sockaddr *)&at,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)bytes))
        return 0;
    if (p->lock >= 0 && errno == EADDRINUSE)
        log_error("virtio-net: cannot open tap %s: another slot or box uses it; give each slot a "
                  "tap of its own",
                  name);
    else
        log_error("virtio-net: cannot lock tap %s: %s", name, strerror(errno));
    return -1;
}

static int use_tap(net_port *p, const char *name)
{
    if (lock_tap(p, name))
        return -1;
    p->tap = true;
    if (!open_taps(p, name) && !set_header(p))
        return 0;
    log_error("virtio-net: cannot open tap %s: %s; make it with 'ip tuntap add dev %s mode tap "
              "multi_queue user USER'",
              name, strerror(errno), name);
    return -1;
}

/* 0: it is not a socket. */
static int socket_type(int fd)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) ? 0 : type;
}

/* What is wrong with an inherited descriptor; NULL: nothing. */
static const char *misfit(net_port *p, int fd, char name[IFNAMSIZ])
{
    const int needed = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    struct ifreq r;
    int type;
    memset(&r, 0, sizeof r);
    if (!ioctl(fd, TUNGETIFF, &r)) {
        p->tap = true;
        memcpy(name, r.ifr_name, IFNAMSIZ);
        return (r.ifr_flags & needed) == needed
                   ? NULL
                   : "its interface is not a tap with IFF_NO_PI and IFF_VNET_HDR";
    }
    type = socket_type(fd);
    p->datagrams = type == SOCK_DGRAM;
    if (p->datagrams || type == SOCK_SEQPACKET)
        return NULL;
    return fcntl(fd, F_GETFD) < 0 ? strerror(errno) : "it is neither a tap nor a datagram socket";
}

static int use_descriptor(net_port *p, int fd)
{
    char name[IFNAMSIZ] = "";
    const char *wrong = misfit(p, fd, name);
    if (!wrong && p->tap && lock_tap(p, name))
        return -1;
    if (!wrong && (add_queue(p, fd) || (p->tap && set_header(p))))
        wrong = strerror(errno);
    if (!wrong)
        return 0;
    log_error("virtio-net: cannot use descriptor %d: %s", fd, wrong);
    return -1;
}

int net_port_open(net_port *p, const char *tap, uint64_t descriptor)
{
    memset(p, 0, sizeof *p);
    p->lock = -1;
    p->offloads = NET_PORT_UNKNOWN;
    p->watch = epoll_create1(EPOLL_CLOEXEC);
    if (p->watch < 0) {
        log_error("virtio-net: epoll: %s", strerror(errno));
        return -1;
    }
    if (!(tap ? use_tap(p, tap) : use_descriptor(p, (int)descriptor)))
        return 0;
    net_port_close(p);
    return -1;
}

void net_port_close(net_port *p)
{
    for (unsigned i = 0; i < p->queues; i++)
        (void)close(p->fd[i]);
    if (p->watch >= 0)
        (void)close(p->watch);
    if (p->lock >= 0)
        (void)close(p->lock);
    p->queues = 0;
    p->watch = p->lock = -1;
}

void net_port_poll(net_port *p)
{
    struct epoll_event e[NET_PORT_QUEUES];
    int count = epoll_wait(p->watch, e, NET_PORT_QUEUES, 0);
    for (int i = 0; i < count; i++)
        p->ready[e[i].data.u32] = true;
}

void net_port_arm(net_port *p, unsigned queue)
{
    p->ready[queue] = false;
    (void)watch(p, EPOLL_CTL_MOD, queue, EPOLLIN | EPOLLONESHOT);
}

/* Frames may still arrive after this error of read(). */
static bool passes(int why)
{
    return why == EAGAIN || why == EINTR || why == ENOBUFS || why == ENOMEM ||
           why == ECONNREFUSED || why == ECONNRESET || why == EHOSTUNREACH || why == ENETUNREACH ||
           why == EHOSTDOWN || why == ENETDOWN;
}

bool net_port_read(net_port *p, unsigned queue, uint8_t *to, size_t room, size_t *bytes)
{
    ssize_t got;
    if (!p->ready[queue])
        return false;
    got = read(p->fd[queue], to, room);
    if (got > 0 || (!got && p->datagrams)) {
        *bytes = (size_t)got;
        return true;
    }
    p->ready[queue] = false; /* the peer is gone, or the interface */
    if (got < 0 && passes(errno))
        net_port_arm(p, queue);
    return false;
}

bool net_port_write(net_port *p, unsigned queue, const uint8_t *from, size_t bytes, bool *dropped)
{
    ssize_t put = write(p->fd[queue], from, bytes);
    *dropped = put < 0;
    return put >= 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS);
}

void net_port_offload(net_port *p, unsigned what)
{
    unsigned long flags = 0;
    if (!p->tap || p->offloads == what)
        return;
    p->offloads = what;
    if (what & NET_PORT_CSUM)
        flags |= TUN_F_CSUM;
    if (what & NET_PORT_TSO4)
        flags |= TUN_F_TSO4;
    if (what & NET_PORT_TSO6)
        flags |= TUN_F_TSO6;
    if (what & NET_PORT_ECN)
        flags |= TUN_F_TSO_ECN;
    if (ioctl(p->fd[0], TUNSETOFFLOAD, flags))     /* of the whole interface */
        (void)ioctl(p->fd[0], TUNSETOFFLOAD, 0ul); /* not what was set for another driver */
}
