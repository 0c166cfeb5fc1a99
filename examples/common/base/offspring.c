/* offspring.c - see offspring.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "offspring.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void offspring_keep_one(int own)
{
    long most = sysconf(_SC_OPEN_MAX);
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3u, (unsigned)own - 1, 0u) == 0 &&
        syscall(SYS_close_range, (unsigned)own + 1, ~0u, 0u) == 0)
        return;
#endif
    for (int fd = 3; fd < (most > 0 ? most : 1024); fd++) {
        if (fd != own)
            (void)close(fd);
    }
}

static void set_signals(void (*handler)(int))
{
    static const int all[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE };
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        (void)signal(all[i], handler);
}

void offspring_outlive(void)
{
    const struct rlimit no_core = { 0, 0 };
    set_signals(SIG_IGN);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)prctl(PR_SET_DUMPABLE, 0);
}

void offspring_obey(void)
{
    set_signals(SIG_DFL);
}

int offspring_start(void (*serve)(int from, const void *what), const void *what)
{
    int pair[2], status = 0;
    pid_t child;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -1;
    child = fork();
    if (child == 0) {
        pid_t own = fork();
        if (own == 0) {
            offspring_outlive();
            offspring_keep_one(pair[1]);
            serve(pair[1], what);
        }
        _exit(own < 0 ? errno : 0);
    }
    (void)close(pair[1]);
    if (child > 0 && waitpid(child, &status, 0) == child) {
        if (WIFEXITED(status) && !WEXITSTATUS(status))
            return pair[0];
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
    }
    status = errno;
    (void)close(pair[0]);
    errno = status;
    return -1;
}
