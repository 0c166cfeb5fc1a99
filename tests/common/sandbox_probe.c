/* sandbox_probe.c - tries one thing, before or behind the filter of system calls (cli_sandbox.py)
   SPDX-License-Identifier: MIT

       sandbox_probe free|caged|keeper|monitor|renderer|gpu|parent WHAT

   Prints how it ended: "fine" or the name of the error.  With a third word, WHAT is tried in a
   thread that was made before the filter.  "Another process" is a child that was there before. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static const char *what;
static const char *const names[] = {
    "key", "key_at", "folder", "remove", "move", "shorten", "size"
};
static int go[2]; /* a pipe: a byte in it lets the early thread run */
static pid_t child;
static int sockets[2];
#define FCHMODAT2 452
#define UPPER     (1L << 32) /* of an argument that is an int: the kernel does not look at it */

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

/* By a name that is there. */
static long try_names(void)
{
    static const char key[] = "/etc/passwd", *name = "/nothing-of-this-name";
    struct stat st;
    if (!strcmp(what, "key"))
        return open(key, O_RDONLY);
    if (!strcmp(what, "key_at"))
        return syscall(SYS_openat, AT_FDCWD, key, O_RDONLY);
    if (!strcmp(what, "folder"))
        return open("/", O_RDONLY | O_DIRECTORY);
    if (!strcmp(what, "remove"))
        return unlink(name) && errno == ENOENT ? 0 : -1;
    if (!strcmp(what, "move"))
        return rename(name, "/tmp/moved") && errno == ENOENT ? 0 : -1;
    if (!strcmp(what, "shorten"))
        return truncate(name, 0) && errno == ENOENT ? 0 : -1;
    return fstat(0, &st); /* "size" */
}

/* HOW_MODE, as create_4755: on a file that is made here for it. */
static long try_mode(const char *how, unsigned mode)
{
    char name[] = "probe_XXXXXX", made[sizeof name + 1];
    int fd = mkstemp(name);
    long rc = -1;
    if (fd < 0)
        return -1;
    snprintf(made, sizeof made, "%s2", name);
    if (!strcmp(how, "chmod"))
        rc = syscall(SYS_chmod, name, mode);
    else if (!strcmp(how, "fchmod"))
        rc = syscall(SYS_fchmod, fd, mode);
    else if (!strcmp(how, "fchmodat"))
        rc = syscall(SYS_fchmodat, AT_FDCWD, name, mode);
    else if (!strcmp(how, "newer"))
        rc = syscall(FCHMODAT2, AT_FDCWD, name, mode, 0);
    else if (!strcmp(how, "create"))
        rc = syscall(SYS_open, made, O_RDWR | O_CREAT, mode);
    else if (!strcmp(how, "createat"))
        rc = syscall(SYS_openat, AT_FDCWD, made, O_RDWR | O_CREAT | O_EXCL, mode);
    else if (!strcmp(how, "unnamed"))
        rc = syscall(SYS_openat, AT_FDCWD, ".", O_RDWR | O_TMPFILE, mode);
    else if (!strcmp(how, "open")) /* what stands there is no mode */
        rc = syscall(SYS_openat, AT_FDCWD, name, O_RDWR, mode);
    mode = (unsigned)errno;
    unlink(name);
    unlink(made);
    errno = (int)mode;
    return rc;
}

static long try_memory(const char *whose)
{
    char name[40];
    snprintf(name, sizeof name, "/proc/%s/mem", whose);
    return open(name, O_RDWR);
}

/* Who gets a signal when something can be read. */
static long try_signals(void)
{
    struct f_owner_ex owner = { F_OWNER_PID, child };
    int pair[2], pid = child;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return -1;
    if (!strcmp(what, "owner"))
        return fcntl(pair[0], F_SETOWN, child);
    if (!strcmp(what, "owner64"))
        return syscall(SYS_fcntl, (long)pair[0], UPPER | F_SETOWN, (long)child);
    if (!strcmp(what, "owner_ex"))
        return fcntl(pair[0], F_SETOWN_EX, &owner);
    if (!strcmp(what, "owner_signal"))
        return fcntl(pair[0], F_SETSIG, SIGKILL);
    if (!strcmp(what, "owner_file"))
        return ioctl(pair[0], FIOSETOWN, &pid);
    if (!strcmp(what, "owner_group"))
        return ioctl(pair[0], SIOCSPGRP, &pid);
    if (!strcmp(what, "owner_none")) /* what libevent and others do */
        return fcntl(pair[0], F_SETFL, O_NONBLOCK) || ioctl(pair[0], FIONREAD, &pid) ? -1 : 0;
    fprintf(stderr, "sandbox_probe: no '%s' here\n", what);
    exit(2);
}

static long try_sockets(void)
{
    int pair[2];
    if (!strcmp(what, "packet"))
        return socket(AF_PACKET, SOCK_RAW, 0);
    if (!strcmp(what, "packet64"))
        return syscall(SYS_socket, UPPER | AF_PACKET, (long)SOCK_RAW, 0L);
    if (!strcmp(what, "xdp"))
        return socket(AF_XDP, SOCK_RAW, 0);
    if (!strcmp(what, "udp"))
        return socket(AF_INET, SOCK_DGRAM, 0);
    if (!strcmp(what, "unix"))
        return socket(AF_UNIX, SOCK_STREAM, 0);
    if (!strcmp(what, "unix64"))
        return syscall(SYS_socket, UPPER | AF_UNIX, (long)SOCK_STREAM, 0L);
    if (!strcmp(what, "pair"))
        return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    if (!strcmp(what, "pair_datagrams"))
        return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    return try_signals();
}

static long map(int flags, int fd)
{
    void *p = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, flags, fd, 0);
    return p == MAP_FAILED ? -1 : 0;
}

/* Memory that no limit of a process counts. */
static long try_uncounted(void)
{
    if (!strcmp(what, "hidden_file"))
        return memfd_create("probe", 0);
    if (!strcmp(what, "longer"))
        return ftruncate(0, 4096);
    if (!strcmp(what, "filled"))
        return fallocate(0, 0, 0, 4096);
    if (!strcmp(what, "locked"))
        return mlock(names, 1);
    if (!strcmp(what, "locked2"))
        return mlock2(names, 1, 0);
    if (!strcmp(what, "shared"))
        return map(MAP_SHARED | MAP_ANONYMOUS, -1);
    if (!strcmp(what, "shared_checked"))
        return map(MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1);
    if (!strcmp(what, "shared_code"))
        return mmap(NULL, 1, PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
    if (!strcmp(what, "growing"))
        return map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1);
    if (!strcmp(what, "growing_shared"))
        return map(MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1);
    if (!strcmp(what, "mapped")) /* /dev/null cannot be */
        return map(MAP_SHARED, 0);
    if (!strcmp(what, "pages"))
        return map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1);
    return -2;
}

/* What reaches other processes. */
static long try_others(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    struct msghdr m = { .msg_namelen = 0 };
    struct mmsghdr mm = { .msg_len = 0 };
    const struct sockaddr *at = (const struct sockaddr *)&name;
    unsigned long set[16] = { 1 };
    if (!strcmp(what, "cores"))
        return syscall(SYS_sched_setaffinity, child, sizeof set, set);
    if (!strcmp(what, "queue"))
        return syscall(SYS_io_setup, 1, &(unsigned long){ 0 });
    if (!strcmp(what, "message"))
        return sendmsg(sockets[0], &m, 0);
    if (!strcmp(what, "messages"))
        return sendmmsg(sockets[0], &mm, 1, 0);
    if (!strcmp(what, "named"))
        return bind(sockets[0], at, sizeof at->sa_family);
    if (!strcmp(what, "connected"))
        return connect(sockets[0], at, sizeof name);
    if (!strcmp(what, "listening"))
        return listen(sockets[0], 1);
    if (!strcmp(what, "accepting"))
        return accept4(sockets[0], NULL, NULL, 0);
    if (!strcmp(what, "pipe"))
        return pipe((int[2]){ 0 });
    if (!strcmp(what, "sent"))
        return send(sockets[0], "x", 1, MSG_NOSIGNAL) == 1 ? 0 : -1;
    if (!strcmp(what, "driver"))
        return ioctl(0, _IOC(_IOC_READ | _IOC_WRITE, 'd', 0, 64), names);
    return -2;
}

static long try_one(void)
{
    static char *const words[] = { (char *)(size_t) "true", NULL };
    long page = sysconf(_SC_PAGESIZE), rc;
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
    if (!strcmp(what, "bpf"))
        return syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, NULL, 0);
    if (!strcmp(what, "swap"))
        return syscall(SYS_getpriority, 0, 0);
    if (!strcmp(what, "kill_other"))
        return kill(getppid(), 0);
    if (!strcmp(what, "type"))
        return ioctl(0, TIOCSTI, "x");
    if (!strcmp(what, "type64"))
        return syscall(SYS_ioctl, 0L, UPPER | TIOCSTI, "x");
    if (!strcmp(what, "console"))
        return ioctl(0, TIOCLINUX, "\3"); /* paste */
    if (!strcmp(what, "leader"))
        return ioctl(0, TIOCSCTTY, 0);
    if (!strcmp(what, "fd_name")) { /* what is this that a guest passed? */
        char name[40], target[40];
        snprintf(name, sizeof name, "/proc/self/fd/%d", eventfd(0, 0));
        return readlink(name, target, sizeof target);
    }
    if (!strcmp(what, "own_memory"))
        return try_memory("self");
    if (!strcmp(what, "other_memory")) {
        char number[16];
        snprintf(number, sizeof number, "%d", (int)child);
        return try_memory(number);
    }
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
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!strcmp(what, names[i]))
            return try_names();
    }
    rc = try_uncounted();
    rc = rc == -2 ? try_others() : rc;
    if (rc != -2)
        return rc;
    return try_sockets();
}

static long try_what(void)
{
    char how[16];
    unsigned mode;
    return sscanf(what, "%15[a-z]_%o", how, &mode) == 2 ? try_mode(how, mode) : try_one();
}

static bool enter_parent(void)
{
    static const sandbox_settings set;
    bool wrong;
    return !sandbox_start(&set, &wrong) && !sandbox_enter_as(SANDBOX_PARENT);
}

static void *early(void *user)
{
    char byte;
    (void)user;
    if (read(go[0], &byte, 1) == 1) {
        long rc = try_what();
        printf("%s\n", rc < 0 ? strerrorname_np(errno) : "fine");
    }
    return NULL;
}

static const char *const parts[] = { [SANDBOX_WORKER] = "caged",
                                     [SANDBOX_KEEPER] = "keeper",
                                     [SANDBOX_MONITOR] = "monitor",
                                     [SANDBOX_RENDERER] = "renderer",
                                     [SANDBOX_GPU_RENDERER] = "gpu" };
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

int main(int argc, char **argv)
{
    static const sandbox_settings set;
    pthread_t t;
    int hold[2];
    bool caged, wrong;
    unsigned part = 0;
    if (argc < 3)
        return 2;
    what = argv[2];
    while (part < COUNT(parts) && (!parts[part] || strcmp(argv[1], parts[part])))
        part++;
    caged = part < COUNT(parts);
    if (pipe(go) || pipe(hold) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
        return 2;
    child = fork();
    if (child <= 0) {
        char byte;
        close(hold[1]);
        _exit(child < 0 || read(hold[0], &byte, 1) != 0); /* until its parent is gone */
    }
    if (caged && sandbox_start(&set, &wrong))
        return 3;
    if (pthread_create(&t, NULL, early, NULL))
        return 2;
    if (caged && sandbox_enter_as(part))
        return 3;
    if (!strcmp(argv[1], "parent") && !enter_parent())
        return 3;
    if (argc > 3) { /* in the early thread */
        if (write(go[1], "x", 1) != 1 || pthread_join(t, NULL))
            return 2;
    } else {
        long rc = try_what();
        printf("%s\n", rc < 0 ? strerrorname_np(errno) : "fine");
    }
    fflush(stdout);
    _exit(0);
}
