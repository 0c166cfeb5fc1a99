/* console.c - see console.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#endif
#include "console.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20 }; /* statistics of many slots at once fit */

static bool changed;

/* A pipe is opened again, because O_NONBLOCK would hold for every program that shares it, and for
   our standard output after 2>&1. */
static void own_pipe(void)
{
    int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        (void)dup2(fd, STDERR_FILENO);
        close(fd);
    }
    (void)fcntl(STDERR_FILENO, F_SETPIPE_SZ, PIPE_BYTES); /* no more than it may */
}

void console_start(void)
{
    struct stat s;
    int flags;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file at its limit (ulimit -f) is as a full disk */
    if (fstat(STDERR_FILENO, &s) || (!S_ISFIFO(s.st_mode) && !S_ISSOCK(s.st_mode)))
        return;
    if (S_ISFIFO(s.st_mode))
        own_pipe();
    flags = fcntl(STDERR_FILENO, F_GETFL); /* where there is no /proc: of the shared pipe */
    changed = flags >= 0 && fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK) == 0;
}

void console_end(void)
{
    int flags = changed ? fcntl(STDERR_FILENO, F_GETFL) : -1;
    if (flags >= 0)
        (void)fcntl(STDERR_FILENO, F_SETFL, flags & ~O_NONBLOCK);
}

void console_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
}
