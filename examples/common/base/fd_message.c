/* fd_message.c - see fd_message.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* MSG_CMSG_CLOEXEC */
#endif
#include "fd_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union ancillary {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * FD_MESSAGE_MAX)];
} ancillary;

int fd_message_send(int socket, unsigned char word, const int *fds, unsigned count)
{
    ancillary control;
    struct iovec part = { &word, 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t n;
    if (count > FD_MESSAGE_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (count) {
        struct cmsghdr *c;
        memset(&control, 0, sizeof control);
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    do {
        n = sendmsg(socket, &m, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n == 1 ? 0 : -1;
}

/* The descriptors of a message: the first `room` of them.  The kernel drops what the control buffer
   has no place for; one more may fit, since its end is aligned, and is closed. */
static unsigned take_fds(struct msghdr *m, int *fds, unsigned room)
{
    unsigned n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n < room)
                fds[n++] = fd;
            else
                (void)close(fd);
        }
    }
    return n;
}

ssize_t fd_message_receive(int socket, unsigned char *word, int *fds, unsigned *count)
{
    ancillary control;
    struct iovec part = { word, 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes };
    unsigned room = *count < FD_MESSAGE_MAX ? *count : FD_MESSAGE_MAX;
    ssize_t n;
    m.msg_controllen = room ? CMSG_SPACE(sizeof(int) * room) : 0;
    n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *count = n < 0 ? 0 : take_fds(&m, fds, room);
    return n;
}
