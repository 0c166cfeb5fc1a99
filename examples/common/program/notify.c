/* notify.c - see notify.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#endif
#include "notify.h"
#include "log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { STATUS_BYTES = 256, READY_MS = 5000 };

static int to = -1;
static bool ready;

static int connect_to(const char *name)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t len = strlen(name);
    int fd;
    if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof at.sun_path) {
        errno = EINVAL;
        return -1;
    }
    memcpy(at.sun_path, name, len);
    if (name[0] == '@')
        at.sun_path[0] = 0; /* an abstract name, which has no zero at its end */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    len += offsetof(struct sockaddr_un, sun_path) + (name[0] == '/');
    if (connect(fd, (const struct sockaddr *)&at, (socklen_t)len)) {
        close(fd);
        return -1;
    }
    return fd;
}

void notify_start(void)
{
    const char *name = getenv("NOTIFY_SOCKET");
    if (!name || !*name)
        return;
    to = connect_to(name);
    if (to < 0)
        log_warning("NOTIFY_SOCKET %s: %s; the service manager gets no READY=1", name,
                    strerror(errno));
    (void)unsetenv("NOTIFY_SOCKET");
}

/* A write(), which every sandbox allows.  What does not arrive is the service manager's loss. */
__attribute__((format(printf, 2, 0))) static void say(const char *head, const char *format,
                                                      va_list args)
{
    char text[STATUS_BYTES];
    size_t len = (size_t)snprintf(text, sizeof text, "%sSTATUS=", head);
    (void)vsnprintf(text + len, sizeof text - len, format, args);
    if (write(to, text, strlen(text)) < 0 && (errno == EPIPE || errno == ECONNREFUSED))
        notify_leave();
}

void notify_ready(const char *format, ...)
{
    struct pollfd room = { .fd = to, .events = POLLOUT };
    va_list args;
    if (to < 0)
        return;
    /* A service manager that hangs delays a start, and does not prevent it; later nothing waits
       for it. */
    if (!ready)
        (void)poll(&room, 1, READY_MS);
    va_start(args, format);
    say(ready ? "" : "READY=1\n", format, args);
    va_end(args);
    ready = true;
}

void notify_status(const char *format, ...)
{
    va_list args;
    if (to < 0)
        return;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

__attribute__((format(printf, 1, 2))) static void stopping(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("STOPPING=1\n", format, args);
    va_end(args);
}

void notify_stopping(void)
{
    if (to >= 0)
        stopping("closing gracefully");
}

void notify_leave(void)
{
    if (to >= 0)
        close(to);
    to = -1;
}
