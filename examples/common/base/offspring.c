/* offspring.c - see offspring.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "offspring.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
