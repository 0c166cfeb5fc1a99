/* sandbox_probe.c - tries one thing, before or behind the filter of system calls (cli_sandbox.py)
   SPDX-License-Identifier: MIT

       sandbox_probe free|caged WHAT

   Prints how it ended: "fine" or the name of the error.  With "thread", WHAT is tried in a thread
   that was made before the filter. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "examples/proxy/sandbox.h"

#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *what;
static int go[2]; /* a pipe: a byte in it lets the early thread run */

static void *nothing(void *user)
{
    return user;
}

static long try_thread(void)
{
    pthread_t t;
    int rc = pthread_create(&t, NULL, nothing, NULL);
    errno = rc;
    return rc ? -1 : pthread_join(t, NULL);
}

static long try_file(void)
{
    FILE *f = tmpfile();
    return f && fputs("x", f) >= 0 && !fclose(f) ? 0 : -1;
}

static long try_one(void)
{
    static char *const words[] = { (char *)(size_t) "true", NULL };
    long page = sysconf(_SC_PAGESIZE);
    void *p;
    if (!strcmp(what, "exec"))
        return execv("/bin/true", words);
    if (!strcmp(what, "fork"))
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0 ? (_exit(0), 0) : 0;
    if (!strcmp(what, "clone3"))
        return syscall(SYS_clone3, NULL, (size_t)0);
    if (!strcmp(what, "ptrace"))
        return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    if (!strcmp(what, "setuid"))
        return setuid(getuid());
    if (!strcmp(what, "uring"))
        return syscall(SYS_io_uring_setup, 1, NULL);
    if (!strcmp(what, "packet"))
        return socket(AF_PACKET, SOCK_RAW, 0);
    if (!strcmp(what, "udp"))
        return socket(AF_INET, SOCK_DGRAM, 0);
    if (!strcmp(what, "swap"))
        return syscall(SYS_getpriority, 0, 0);
    if (!strcmp(what, "kill_other"))
        return kill(getppid(), 0);
    if (!strcmp(what, "type"))
        return ioctl(0, TIOCSTI, "x");
    if (!strcmp(what, "limit"))
        return syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, NULL, NULL);
    if (!strcmp(what, "code")) {
        p = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE | PROT_EXEC,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? -1 : 0;
    }
    if (!strcmp(what, "memory")) {
        p = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? -1 : mprotect(p, (size_t)page, PROT_READ);
    }
    if (!strcmp(what, "copy") || !strcmp(what, "peek")) {
        char from = 1, to = 0;
        struct iovec there = { &from, 1 }, here = { &to, 1 };
        return process_vm_readv(what[0] == 'c' ? getpid() : getppid(), &here, 1, &there, 1, 0);
    }
    if (!strcmp(what, "thread"))
        return try_thread();
    if (!strcmp(what, "file"))
        return try_file();
    fprintf(stderr, "sandbox_probe: no '%s' here\n", what);
    exit(2);
}

static void *early(void *user)
{
    char byte;
    (void)user;
    if (read(go[0], &byte, 1) == 1) {
        long rc = try_one();
        printf("%s\n", rc < 0 ? strerrorname_np(errno) : "fine");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const sandbox_settings set;
    pthread_t t;
    bool caged, wrong;
    if (argc < 3)
        return 2;
    what = argv[2];
    caged = !strcmp(argv[1], "caged");
    if (pipe(go) || pthread_create(&t, NULL, early, NULL))
        return 2;
    if (caged && (sandbox_start("sandbox_probe", &set, &wrong) || sandbox_enter()))
        return 3;
    if (argc > 3) { /* in the early thread */
        if (write(go[1], "x", 1) != 1 || pthread_join(t, NULL))
            return 2;
    } else {
        long rc = try_one();
        printf("%s\n", rc < 0 ? strerrorname_np(errno) : "fine");
    }
    fflush(stdout);
    _exit(0);
}
