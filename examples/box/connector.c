/* connector.c - see connector.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "connector.h"
#include "fd_message.h"
#include "offspring.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A listener whose queue is full is asked again later: nothing waits.  Its error has a name of its
   own, since connector_take() has EAGAIN while there is no answer. */
static void connect_once(int to, const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    if (fd < 0 || connect(fd, (const struct sockaddr *)a, sizeof *a))
        error = errno == EAGAIN ? EBUSY : errno;
    (void)fd_message_send(to, (unsigned char)error, &fd, error ? 0 : 1);
    if (fd >= 0)
        (void)close(fd);
}

static void serve(int from, const void *path)
{
    struct sockaddr_un a;
    unsigned char asked;
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path, path, strnlen(path, sizeof a.sun_path - 1));
    while (recv(from, &asked, sizeof asked, 0) == (ssize_t)sizeof asked)
        connect_once(from, &a);
}

int connector_start(const char *path)
{
    return offspring_start(serve, path);
}

int connector_ask(int connector)
{
    unsigned char any = 0;
    return send(connector, &any, sizeof any, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof any
               ? 0
               : -1;
}

int connector_take(int connector)
{
    unsigned char why = 0;
    unsigned count = 1;
    int fd = -1;
    ssize_t n = fd_message_receive(connector, &why, &fd, &count);
    if (n >= 0 && !count)
        errno = n ? why : EPIPE;
    return fd;
}
