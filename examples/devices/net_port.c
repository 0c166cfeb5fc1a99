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
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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

static bool is_tap(int fd)
{
    struct ifreq r;
    memset(&r, 0, sizeof r);
    return !ioctl(fd, TUNGETIFF, &r) && (r.ifr_flags & IFF_VNET_HDR);
}

static int socket_type(int fd)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) ? 0 : type;
}

int net_port_open(net_port *p, const char *tap, uint64_t descriptor)
{
    int rc;
    memset(p, 0, sizeof *p);
    p->offloads = NET_PORT_UNKNOWN;
    p->watch = epoll_create1(EPOLL_CLOEXEC);
    if (p->watch < 0) {
        log_error("virtio-net: epoll: %s", strerror(errno));
        return -1;
    }
    rc = tap ? open_taps(p, tap) : add_queue(p, (int)descriptor);
    if (!rc) {
        p->tap = tap || is_tap(p->fd[0]);
        p->datagrams = socket_type(p->fd[0]) == SOCK_DGRAM;
        rc = p->tap ? set_header(p) : 0;
    }
    if (!rc)
        return 0;
    if (tap)
        log_error("virtio-net: cannot open tap %s: %s; make it with 'ip tuntap add dev %s mode tap "
                  "multi_queue user USER'",
                  tap, strerror(errno), tap);
    else
        log_error("virtio-net: cannot use descriptor %llu: %s", (unsigned long long)descriptor,
                  strerror(errno));
    net_port_close(p);
    return -1;
}

void net_port_close(net_port *p)
{
    for (unsigned i = 0; i < p->queues; i++)
        (void)close(p->fd[i]);
    if (p->watch >= 0)
        (void)close(p->watch);
    p->queues = 0;
    p->watch = -1;
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
