/* descriptors.h - for tests of what comes with descriptors: sending them, counting those open
   SPDX-License-Identifier: MIT */
#ifndef DESCRIPTORS_H_INCLUDED
#define DESCRIPTORS_H_INCLUDED

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEND_FDS_MAX = 253 /* of one message (SCM_MAX_FD) */ };

/* As send(), with `count` descriptors. */
static inline ssize_t send_with_fds(int to, const void *p, size_t bytes, const int *fds,
                                    unsigned count, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SEND_FDS_MAX)];
    } control;
    struct iovec iov = { (void *)(uintptr_t)p, bytes };
    struct msghdr h;
    memset(&h, 0, sizeof h);
    h.msg_iov = &iov;
    h.msg_iovlen = 1;
    if (count) {
        struct cmsghdr *c;
        memset(&control, 0, sizeof control);
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    return sendmsg(to, &h, flags | MSG_NOSIGNAL);
}

/* How many are open in this process. */
static inline int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        abort();
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* The lowest that is free: found sooner. */
static inline int lowest_fd(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

/* What number() returns, when it is as expected or ten seconds later: some descriptors are closed
   by a thread. */
static inline int settled(int (*number)(void), int expected)
{
    int now = number(), i;
    for (i = 0; i < 10000 && now != expected; i++) {
        usleep(1000);
        now = number();
    }
    return now;
}

static inline int settled_fds(int expected)
{
    return settled(open_fds, expected);
}

#endif /* DESCRIPTORS_H_INCLUDED */
