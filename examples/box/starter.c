/* starter.c - see starter.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 The box's end   2 Devices   3 The starter */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "starter.h"
#include "dxpu_libevent.h"
#include "log.h"
#include "offspring.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DEVICES_MAX = 1024,
    ARGUMENTS_MAX = 64,
    LOOK_MS = 50,         /* how often it looks for devices that have ended */
    AGAIN_FIRST_MS = 100, /* before a device is started again, doubled each time */
    AGAIN_MOST_MS = 10000,
    LASTED_MS = 10000, /* after this long it counts as one that works */
    END_MS = 60000,    /* for a device to end by itself: a disk may take long to flush */
    NICE = 5           /* loops go first where cores are few */
};

/* Messages to the starter begin with one of these. */
enum { ADD = 'a', SEAL = 's' };

static char directory[40];

/* ==== 1  The box's end ======================================================================== */

void starter_socket(unsigned slot, char out[STARTER_PATH_BYTES])
{
    snprintf(out, STARTER_PATH_BYTES, "%s/%u", directory, slot);
}

void starter_layout(unsigned slot, char out[STARTER_PATH_BYTES])
{
    snprintf(out, STARTER_PATH_BYTES, "%s/%u.layout", directory, slot);
}

int starter_add(int starter, unsigned slot, const char *arguments, size_t bytes)
{
    static char message[5 + STARTER_ARGUMENTS_BYTES];
    uint32_t number = slot;
    if (bytes > STARTER_ARGUMENTS_BYTES)
        return -1;
    message[0] = ADD;
    memcpy(message + 1, &number, sizeof number);
    memcpy(message + 5, arguments, bytes);
    return send(starter, message, 5 + bytes, MSG_NOSIGNAL) == (ssize_t)(5 + bytes) ? 0 : -1;
}

void starter_seal(int starter)
{
    char seal = SEAL;
    (void)!send(starter, &seal, 1, MSG_NOSIGNAL);
}

void starter_end(int starter)
{
    struct pollfd p;
    (void)shutdown(starter, SHUT_WR);
    p.fd = starter;
    p.events = POLLIN;
    (void)poll(&p, 1, END_MS); /* its end closes the other one */
    (void)close(starter);
}

/* ==== 2  Devices ============================================================================== */

typedef struct device {
    unsigned slot;
    char *arguments; /* each with its NUL */
    size_t bytes;
    pid_t pid; /* 0: it does not run */
    uint64_t started_ms, due_ms, wait_ms;
} device;

static device devices[DEVICES_MAX];
static unsigned device_count;
static char program[4096];
static pid_t starter; /* itself */

static uint64_t now_ms(void)
{
    return dxpu_udp_now_ns() / 1000000;
}

/* In the child: it ends with the starter, and Ctrl-C is for the box alone. */
static void become(const device *d)
{
    char *argv[ARGUMENTS_MAX + 2];
    unsigned count = 0;
    argv[count++] = program;
    for (size_t at = 0; at < d->bytes && count <= ARGUMENTS_MAX;
         at += strlen(d->arguments + at) + 1)
        argv[count++] = d->arguments + at;
    argv[count] = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter) /* it has ended before that */
        _exit(127);
    offspring_obey();
    (void)setpgid(0, 0);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    (void)execv(program, argv);
    log_error("%s: %s", program, strerror(errno));
    _exit(127);
}

static void start(device *d)
{
    d->started_ms = now_ms();
    d->pid = fork();
    if (d->pid == 0)
        become(d);
    if (d->pid < 0) {
        d->pid = 0;
        d->due_ms = d->started_ms + d->wait_ms;
    }
}

/* One has ended: it is started again, later each time. */
static void ended(device *d, int status)
{
    uint64_t now = now_ms();
    d->pid = 0;
    if (now - d->started_ms >= LASTED_MS)
        d->wait_ms = AGAIN_FIRST_MS;
    d->due_ms = now + d->wait_ms;
    log_warning("slot %u: its device has ended (%s %d); it is started again in %llu ms", d->slot,
                WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                (unsigned long long)d->wait_ms);
    d->wait_ms = d->wait_ms * 2 < AGAIN_MOST_MS ? d->wait_ms * 2 : AGAIN_MOST_MS;
}

static void look(bool restart)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (unsigned i = 0; i < device_count; i++) {
            if (devices[i].pid == pid && restart)
                ended(&devices[i], status);
            else if (devices[i].pid == pid)
                devices[i].pid = 0;
        }
    }
    for (unsigned i = 0; restart && i < device_count; i++) {
        if (!devices[i].pid && now_ms() >= devices[i].due_ms)
            start(&devices[i]);
    }
}

/* ==== 3  The starter ========================================================================== */

static void add(const char *message, size_t bytes)
{
    device *d = &devices[device_count];
    uint32_t slot;
    if (bytes < 6 || device_count == DEVICES_MAX || message[bytes - 1] != '\0')
        return;
    memcpy(&slot, message + 1, sizeof slot);
    d->slot = slot;
    d->bytes = bytes - 5;
    d->arguments = malloc(d->bytes);
    if (!d->arguments)
        return;
    memcpy(d->arguments, message + 5, d->bytes);
    d->wait_ms = AGAIN_FIRST_MS;
    device_count++;
    start(d);
}

static unsigned running(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < device_count; i++)
        n += devices[i].pid > 0;
    return n;
}

static void signal_all(int number)
{
    for (unsigned i = 0; i < device_count; i++) {
        if (devices[i].pid > 0)
            (void)kill(devices[i].pid, number);
    }
}

static void end_all(void)
{
    uint64_t end = now_ms() + END_MS;
    char path[STARTER_PATH_BYTES];
    signal_all(SIGTERM);
    for (look(false); running() && now_ms() < end; look(false))
        (void)poll(NULL, 0, 10);
    signal_all(SIGKILL);
    for (unsigned i = 0; i < device_count; i++) {
        starter_socket(devices[i].slot, path);
        (void)unlink(path);
        starter_layout(devices[i].slot, path);
        (void)unlink(path);
    }
    (void)rmdir(directory);
}

static void serve(int box)
{
    static char message[5 + STARTER_ARGUMENTS_BYTES];
    bool sealed = false;
    for (;;) {
        struct pollfd p = { box, POLLIN, 0 };
        ssize_t n = 0;
        if (poll(&p, 1, LOOK_MS) > 0) {
            n = recv(box, message, sizeof message, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                break;
        }
        if (n > 0 && message[0] == ADD && !sealed)
            add(message, (size_t)n);
        else if (n > 0 && message[0] == SEAL)
            sealed = true;
        look(true);
    }
    end_all();
}

/* dxpu-device is where this program is. */
static bool find_program(void)
{
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - sizeof "/dxpu-device");
    char *slash;
    if (n <= 0)
        return false;
    program[n] = '\0';
    slash = strrchr(program, '/');
    if (!slash)
        return false;
    memcpy(slash, "/dxpu-device", sizeof "/dxpu-device");
    return access(program, X_OK) == 0;
}

static int refuse(const char *what)
{
    log_error("--isolate: %s: %s", what, strerror(errno));
    return -1;
}

/* The same, when there is a directory. */
static int refuse_in(const char *what)
{
    (void)refuse(what);
    (void)rmdir(directory);
    return -1;
}

int starter_start(void)
{
    int pair[2], room = 2 * STARTER_ARGUMENTS_BYTES;
    pid_t child;
    if (!find_program())
        return refuse("no dxpu-device beside dxpu-box");
    snprintf(directory, sizeof directory, "/tmp/dxpu-box.XXXXXX");
    if (!mkdtemp(directory))
        return refuse(directory);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return refuse_in("no socket");
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    child = fork();
    if (child < 0) {
        (void)close(pair[0]);
        (void)close(pair[1]);
        return refuse_in("no process");
    }
    if (child == 0) {
        (void)close(pair[0]);
        offspring_outlive();
        starter = getpid();
        serve(pair[1]);
        _exit(0);
    }
    (void)close(pair[1]);
    return pair[0];
}
