/* launcher.c - see launcher.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 The asker   2 What is started   3 The launcher */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "launcher.h"
#include "fd_message.h"
#include "log.h"
#include "offspring.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NICE = 5 /* loops go first where cores are few */ };

/* ==== 1  The asker ============================================================================ */

bool launcher_beside(const char *name, char *path, size_t size)
{
    size_t bytes = strlen(name) + 1;
    ssize_t n = readlink("/proc/self/exe", path, size);
    char *slash;
    if (n <= 0 || (size_t)n >= size)
        return false;
    path[n] = '\0';
    slash = strrchr(path, '/');
    if (!slash || bytes > size - (size_t)(slash + 1 - path))
        return false;
    memcpy(slash + 1, name, bytes);
    return access(path, X_OK) == 0;
}

static int say(int launcher, unsigned char what)
{
    ssize_t n = send(launcher, &what, sizeof what, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n == (ssize_t)sizeof what ? 0 : -1;
}

int launcher_ask(int launcher)
{
    return say(launcher, LAUNCHER_START);
}

/* Where that fails, the next start ends it. */
void launcher_end(int launcher)
{
    (void)say(launcher, LAUNCHER_END);
}

/* The word of the answer may be any errno: it is not taken for one of recvmsg(). */
int launcher_take(int launcher, int *socket, int *memory)
{
    unsigned char why = 0;
    unsigned count = 2;
    int fds[2];
    ssize_t n = fd_message_receive(launcher, &why, fds, &count);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n > 0 && count == 2) {
        *socket = fds[0];
        *memory = fds[1];
        return 0;
    }
    if (count)
        (void)close(fds[0]);
    if (n <= 0)
        errno = EPIPE;
    else
        errno = why ? why : EMFILE; /* descriptors that had no place here */
    return -1;
}

bool launcher_gone(int launcher)
{
    unsigned char any;
    ssize_t n = recv(launcher, &any, sizeof any, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* ==== 2  What is started ====================================================================== */

/* execv() changes none of them. */
static void run(const char *const *argv)
{
    (void)execv(argv[0], (char *const *)(uintptr_t)argv);
}

static void not_run(const char *path)
{
    log_error("%s: %s", path, strerror(errno));
    _exit(127);
}

/* Not the asker's terminal or log: what is started may be taken over later.  log: where to say that
   it was not started. */
static bool detach(int *log)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    *log = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LAUNCHER_MEMORY + 1);
    if (nothing < 0)
        return false;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fd != nothing && dup2(nothing, fd) != fd)
            return false;
    }
    return nothing <= STDERR_FILENO ? !fcntl(nothing, F_SETFD, 0) : !close(nothing);
}

/* In the child: it ends with the launcher, and Ctrl-C is for the asker alone. */
static void become(const char *const *argv, pid_t launcher, int socket, int memory)
{
    int fds[2], log;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) /* it has ended before that */
        _exit(127);
    offspring_obey();
    (void)setpgid(0, 0);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    fds[0] = fcntl(socket, F_DUPFD, LAUNCHER_MEMORY + 1); /* out of each other's way */
    fds[1] = fcntl(memory, F_DUPFD, LAUNCHER_MEMORY + 1);
    if (fds[0] < 0 || fds[1] < 0 || !detach(&log) || dup2(fds[0], LAUNCHER_SOCKET) < 0 ||
        dup2(fds[1], LAUNCHER_MEMORY) < 0)
        _exit(127);
    (void)close(fds[0]);
    (void)close(fds[1]);
    run(argv);
    if (log >= 0)
        (void)dup2(log, STDERR_FILENO);
    not_run(argv[0]);
}

int launcher_try(const char *const *argv)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        run(argv);
        not_run(argv[0]);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Memory of which no page is there yet; neither of those that have it can change its size under the
   other. */
static int make_memory(size_t bytes)
{
    int fd = memfd_create("dxpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && !ftruncate(fd, (off_t)bytes) &&
        !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* ==== 3  The launcher ========================================================================= */

static void end(pid_t *child)
{
    if (*child <= 0)
        return;
    (void)kill(*child, SIGKILL); /* not awaited before: the number is still its own */
    (void)waitpid(*child, NULL, 0);
    *child = 0;
}

static void start(int to, const char *const *argv, size_t memory_bytes, pid_t *child)
{
    pid_t self = getpid();
    int fds[2] = { -1, -1 }, pair[2], error = 0;
    end(child);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        (void)fd_message_send(to, (unsigned char)errno, NULL, 0);
        return;
    }
    fds[0] = pair[0];
    fds[1] = make_memory(memory_bytes);
    if (fds[1] < 0 || (*child = fork()) < 0)
        error = errno;
    else if (*child == 0)
        become(argv, self, pair[1], fds[1]);
    (void)close(pair[1]);
    (void)fd_message_send(to, (unsigned char)error, fds, error ? 0 : 2);
    (void)close(fds[0]);
    if (fds[1] >= 0)
        (void)close(fds[1]);
}

typedef struct launched {
    const char *const *argv;
    size_t memory_bytes;
} launched;

static void serve(int from, const void *what)
{
    const launched *l = what;
    pid_t child = 0;
    unsigned char asked;
    while (recv(from, &asked, sizeof asked, 0) == (ssize_t)sizeof asked) {
        if (asked == LAUNCHER_END)
            end(&child);
        else
            start(from, l->argv, l->memory_bytes, &child);
    }
    end(&child);
}

int launcher_start(const char *const *argv, size_t memory_bytes)
{
    const launched l = { argv, memory_bytes };
    return offspring_start(serve, &l);
}
