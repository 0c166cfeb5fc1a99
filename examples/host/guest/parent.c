/* parent.c - see parent.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#endif
#include "parent_internal.h"
#include "log.h"
#include "dxpu_libevent.h"
#include "dxpu_vfio_user.h"
#include "notify.h"
#include "open_files.h"
#include "plugger.h"
#include "program.h"
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_MAX_NS 8000000000u /* from the end of a worker to the next one */
#define END_NS       5000000000u /* that a keeper has to end gracefully */
#define STOP_NS      3000000000u /* ... and a worker, besides the hold time */

enum { NO_MEMORY_MS = 10 };

/* ==== Starting ================================================================================ */

static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD };

void parent_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_held(parent_keeper *k)
{
    for (unsigned i = 0; i < DXPU_VSWITCH_SLOTS_MAX; i++)
        parent_close(&k->held[i]);
}

/* In a child: nothing of the parent's is left but its own end of `mine`, and in a worker the key
   (S-184). */
static void leave_parent(parent *p, const parent_child *mine)
{
    sigset_t none;
    notify_leave();
    for (unsigned i = 0; i < sizeof caught / sizeof caught[0]; i++)
        (void)signal(caught[i],
                     caught[i] == SIGCHLD ? SIG_DFL : SIG_IGN); /* the parent has these */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    parent_close(&p->signals);
    for (unsigned i = 0; i < p->set->guests; i++) {
        if (&p->keeper[i].c != mine)
            parent_close(&p->keeper[i].c.socket);
        if (&p->keeper[i].plugger != mine)
            parent_close(&p->keeper[i].plugger.socket);
        close_held(&p->keeper[i]);
    }
    if (&p->worker != mine) {
        parent_close(&p->worker.socket);
        explicit_bzero(p->key, sizeof p->key);
    }
}

int parent_start(parent *p, parent_child *c, const char *name, int *end)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        log_error("cannot create a socket for a process: %s", strerror(errno));
        return -1;
    }
    (void)fflush(NULL);
    c->pid = fork();
    if (c->pid == 0) {
        c->socket = *end = pair[1];
        close(pair[0]);
        (void)prctl(PR_SET_NAME, name);
        leave_parent(p, c);
        return 0;
    }
    close(pair[1]);
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK); /* one that does not read blocks no other */
    if (c->pid < 0) {
        log_error("cannot start a process: %s", strerror(errno));
        close(pair[0]);
        c->pid = 0;
        c->socket = -1;
        return -1;
    }
    c->socket = pair[0];
    return 1;
}

static int start_keepers(parent *p)
{
    for (unsigned i = 0; i < p->set->guests; i++) {
        int end = -1, rc = parent_start(p, &p->keeper[i].c, "dxpu-keeper", &end);
        if (rc == 0)
            exit(keeper_run(&p->set->keeper[i], end));
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* S-184: the keepers have begun, and have no copy of it. */
static int make_key(parent *p)
{
    if (!getentropy(p->key, sizeof p->key))
        return 0;
    log_error("cannot get random numbers from the kernel: %s", strerror(errno));
    return -1;
}

static int make_links(const parent *p, crossing_fds *links)
{
    for (unsigned i = 0; i < p->set->guests; i++) {
        if (crossing_create(&links[i])) {
            log_error("cannot create memory shared by processes: %s", strerror(errno));
            while (i--)
                crossing_close_fds(&links[i]);
            return -1;
        }
    }
    return 0;
}

/* One that does not take what it is sent has been taken over, or hangs: its guest's connection is
   ended as for any that was killed. */
void parent_tell_keeper(const parent_child *keeper, char kind, const int *fds, unsigned count)
{
    if (keeper->pid && keeper_tell(keeper->socket, kind, fds, count))
        (void)kill(keeper->pid, SIGKILL);
}

static void ask_worker(const parent *p, unsigned char kind)
{
    if (p->worker.pid)
        (void)keeper_tell(p->worker.socket, (char)kind, NULL, 0);
}

/* The process that speaks QMP, and a socket between it and the keeper.  0, or -1 after a
   message. */
static int start_plugger(parent *p, unsigned n)
{
    parent_keeper *k = &p->keeper[n];
    const guest_settings *g = p->set->keeper[n].guest;
    int pair[2], end = -1, rc;
    k->plug_ns = 0;
    k->plugged_ns = dxpu_udp_now_ns();
    if (!g->qmp || !k->c.pid)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        log_error("cannot create a socket for a process: %s", strerror(errno));
        return -1;
    }
    rc = parent_start(p, &k->plugger, "dxpu-plugger", &end);
    if (rc == 0) {
        close(pair[0]);
        exit(plugger_run(g, pair[1], end));
    }
    if (rc > 0)
        parent_tell_keeper(&k->c, KEEPER_PLUG, &pair[0], 1);
    close(pair[0]);
    close(pair[1]);
    return rc < 0 ? -1 : 0;
}

static int start_pluggers(parent *p)
{
    int rc = 0;
    for (unsigned i = 0; i < p->set->guests && !rc; i++)
        rc = start_plugger(p, i);
    return rc;
}

static int start_worker(parent *p)
{
    crossing_fds links[PARENT_GUESTS_MAX];
    int end = -1, rc;
    if (make_links(p, links))
        return -1;
    rc = parent_start(p, &p->worker, "dxpu-worker", &end);
    if (rc == 0)
        exit(p->set->worker(links, p->again, p->key, end));
    for (unsigned i = 0; i < p->set->guests; i++) {
        const int fds[CROSSING_FDS] = { links[i].memory, links[i].keeper[0], links[i].keeper[1],
                                        links[i].worker[0], links[i].worker[1] };
        if (rc > 0 && p->keeper[i].c.pid)
            parent_tell_keeper(&p->keeper[i].c, KEEPER_LINK, fds, CROSSING_FDS);
        else
            ask_worker(p, (unsigned char)(PARENT_ASK_ABANDON | i));
        crossing_close_fds(&links[i]);
    }
    p->start_ns = 0;
    p->heard = p->served = false;
    return rc < 0 ? -1 : 0;
}

/* ==== Ends ==================================================================================== */

static const char *end_text(int status, char out[40])
{
    if (WIFSIGNALED(status))
        snprintf(out, 40, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(out, 40, "ended with status %d", WEXITSTATUS(status));
    return out;
}

static void end_keepers(parent *p)
{
    if (p->ending)
        return;
    p->stopping = p->ending = true;
    p->end_ns = dxpu_udp_now_ns() + END_NS;
    for (unsigned i = 0; i < p->set->guests; i++) {
        parent_tell_keeper(&p->keeper[i].c, KEEPER_STOP, NULL, 0);
        parent_close(&p->keeper[i].plugger.socket); /* which ends it */
    }
}

static void stop(parent *p)
{
    if (!p->stopping)
        notify_stopping();
    p->stopping = true;
    if (!p->worker.pid) {
        end_keepers(p);
        return;
    }
    ask_worker(p, PROGRAM_ASK_STOP); /* its end is the keepers' */
    if (!p->stop_ns)
        p->stop_ns = dxpu_udp_now_ns() + p->set->keeper[0].hold_ms * 1000000u + STOP_NS;
}

/* Did the worker, which may have ended, open all that it was to open?  It says nothing else. */
static bool worker_served(parent *p)
{
    int fd = -1;
    unsigned count = 0;
    if (!p->heard && p->worker.socket >= 0) {
        int kind = keeper_hear(p->worker.socket, &fd, &count);
        p->heard = kind != 0;
        p->served = kind == PARENT_SERVED;
    }
    return p->served;
}

/* All sockets are there, the guests' and the fabric's. */
static void report_ready(parent *p)
{
    bool open = worker_served(p) && !p->stopping;
    for (unsigned i = 0; i < p->set->guests; i++)
        open = open && p->keeper[i].open;
    if (open && !p->ready)
        notify_ready("%u guest%s", p->set->guests, p->set->guests == 1 ? "" : "s");
    p->ready |= open;
}

/* From the end of a process to the next one; last: what it was before, 0: this is the first. */
static uint64_t next_pause_ns(uint64_t last, bool served)
{
    return served || !last            ? PARENT_PAUSE_MIN_NS
           : last >= PAUSE_MAX_NS / 2 ? PAUSE_MAX_NS
                                      : last * 2;
}

/* The exit status of a first worker that never served says what is wrong with the settings. */
static void on_worker_end(parent *p, int status)
{
    char text[40];
    uint64_t now = dxpu_udp_now_ns();
    bool served = worker_served(p);
    p->again |= served;
    p->worker.pid = 0;
    p->stop_ns = 0;
    parent_close(&p->worker.socket);
    for (unsigned i = 0; i < p->set->guests; i++)
        parent_tell_keeper(&p->keeper[i].c, KEEPER_LOST, NULL, 0);
    if (p->stopping || !p->again) {
        if (!p->status)
            p->status = WIFEXITED(status) ? WEXITSTATUS(status) : PROGRAM_SYSTEM;
        end_keepers(p);
        return;
    }
    p->pause_ns = next_pause_ns(p->pause_ns, served);
    p->start_ns = now + p->pause_ns;
    log_warning("the worker process %s; guests go on with empty slots, the next one starts "
                "in %llu ms",
                end_text(status, text), (unsigned long long)(p->pause_ns / 1000000u));
}

/* In a process of its own: what a guest's process had sent may wait for that when it is closed. */
static void end_connection(parent *p, int *held)
{
    int fd = *held;
    pid_t pid;
    if (fd < 0)
        return;
    *held = -1;
    pid = fork();
    if (pid == 0) {
        leave_parent(p, NULL);
        dxpu_vfu_end(fd);
        _exit(0);
    }
    if (pid < 0)
        (void)shutdown(fd, SHUT_RDWR); /* the least that can be done */
    close(fd);
}

static void on_keeper_end(parent *p, unsigned n, int status)
{
    parent_keeper *k = &p->keeper[n];
    char text[40], path[GUEST_SOCKET_BYTES];
    bool any = false;
    k->c.pid = 0;
    parent_close(&k->c.socket);
    for (unsigned i = 0; i < DXPU_VSWITCH_SLOTS_MAX; i++)
        end_connection(p, &k->held[i]);
    for (unsigned i = 0; i < guest_sockets(p->set->keeper[n].guest); i++) /* a keeper reaches no */
        dxpu_vfu_remove(guest_socket(p->set->keeper[n].guest, i, path));  /* file (S-201) */
    if (status && !p->status)
        p->status = PROGRAM_SYSTEM;
    for (unsigned i = 0; i < p->set->guests; i++)
        any |= p->keeper[i].c.pid != 0;
    if (p->ending)
        return;
    log_warning("the keeper process of %s %s; its guest's connection is shut down, its "
                "slots are detached",
                p->set->keeper[n].guest->socket, end_text(status, text));
    ask_worker(p, (unsigned char)(PARENT_ASK_ABANDON | n));
    if (!any || !p->ready) /* a start that fails for one guest fails */
        stop(p);
}

void parent_on_plugger_end(parent *p, unsigned n, int status)
{
    parent_keeper *k = &p->keeper[n];
    uint64_t now = dxpu_udp_now_ns();
    char text[40];
    k->plugger.pid = 0;
    parent_close(&k->plugger.socket);
    if (p->stopping || !k->c.pid)
        return;
    k->plug_pause_ns = next_pause_ns(k->plug_pause_ns, now - k->plugged_ns >= PARENT_LASTED_NS);
    k->plug_ns = now + k->plug_pause_ns;
    log_warning("the process that speaks QMP for %s %s; the next one starts in %llu ms",
                p->set->keeper[n].guest->socket, end_text(status, text),
                (unsigned long long)(k->plug_pause_ns / 1000000u));
}

static void start_due_pluggers(parent *p, uint64_t now)
{
    for (unsigned i = 0; i < p->set->guests && !p->stopping; i++) {
        parent_keeper *k = &p->keeper[i];
        if (k->plug_ns && now >= k->plug_ns && start_plugger(p, i))
            k->plug_ns = now + PAUSE_MAX_NS;
    }
}

static void on_children(parent *p)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == p->worker.pid)
            on_worker_end(p, status);
        for (unsigned i = 0; i < p->set->guests; i++) {
            if (pid == p->keeper[i].c.pid)
                on_keeper_end(p, i, status);
            if (pid == p->keeper[i].plugger.pid)
                parent_on_plugger_end(p, i, status);
        }
    }
}

/* ==== Messages ================================================================================ */

static void on_signals(parent *p)
{
    struct signalfd_siginfo s;
    while (read(p->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo == SIGCHLD)
            on_children(p);
        else if (s.ssi_signo == SIGHUP)
            ask_worker(p, PROGRAM_ASK_KEYS); /* the next one reads them anyway */
        else if (s.ssi_signo != SIGUSR1)
            stop(p);
        else if (p->worker.pid)
            ask_worker(p, PROGRAM_ASK_NUMBERS);
        else
            log_warning("no statistics: the worker process is being started");
    }
}

static bool is_connection(int fd)
{
    int type = 0, domain = 0;
    socklen_t len = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

/* S-180.  False: no keeper says that, so it has ended. */
static bool on_message(parent *p, parent_keeper *k, int kind, const int *fds, unsigned count)
{
    bool client = kind >= KEEPER_CLIENT && kind <= KEEPER_CLIENT_LAST;
    if (count > (client ? 1u : 0u) || (count && !is_connection(fds[0])))
        return false;
    if (client) {
        int *held = &k->held[kind - KEEPER_CLIENT];
        parent_close(held);
        *held = count ? fds[0] : -1;
    } else if (kind == KEEPER_OPEN) {
        k->open = true;
    } else if (kind == KEEPER_KILL && p->worker.pid) {
        (void)kill(p->worker.pid, SIGKILL);
    }
    return true;
}

void parent_on_keeper(parent *p, unsigned n)
{
    parent_keeper *k = &p->keeper[n];
    int fds[CROSSING_FDS], kind = 0;
    for (unsigned i = 0; i < PARENT_MESSAGES; i++) {
        unsigned count = CROSSING_FDS;
        kind = keeper_hear(k->c.socket, fds, &count);
        if (kind <= 0)
            break;
        if (!on_message(p, k, kind, fds, count)) { /* what it sent stays open: to close a file of */
            (void)kill(k->c.pid, SIGKILL);         /* a guest's may take as long as that likes */
            kind = -1;
            break;
        }
    }
    if (kind < 0) /* its end comes as a signal */
        parent_close(&k->c.socket);
}

static void kill_worker(parent *p)
{
    log_warning("the worker process does not end: killed");
    (void)kill(p->worker.pid, SIGKILL);
    p->stop_ns = 0;
}

static void kill_keepers(parent *p)
{
    for (unsigned i = 0; i < p->set->guests; i++) {
        if (p->keeper[i].c.pid)
            (void)kill(p->keeper[i].c.pid, SIGKILL);
        if (p->keeper[i].plugger.pid)
            (void)kill(p->keeper[i].plugger.pid, SIGKILL);
    }
    p->end_ns = DXPU_NEVER;
}

/* ==== The loop ================================================================================ */

static bool any_left(const parent *p)
{
    bool any = p->worker.pid || (p->start_ns && !p->stopping);
    for (unsigned i = 0; i < p->set->guests; i++)
        any |= p->keeper[i].c.pid || p->keeper[i].plugger.pid;
    return any;
}

static uint64_t next_start_ns(const parent *p)
{
    uint64_t next = p->start_ns ? p->start_ns : DXPU_NEVER;
    for (unsigned i = 0; i < p->set->guests; i++) {
        uint64_t at = p->keeper[i].plug_ns;
        next = at && at < next ? at : next;
    }
    return next;
}

static int wait_ms(uint64_t now, uint64_t at)
{
    return at <= now ? 0 : at - now > PAUSE_MAX_NS ? -1 : (int)((at - now + 999999) / 1000000);
}

static void wait_for_all(parent *p)
{
    struct pollfd fds[PARENT_GUESTS_MAX + 2];
    while (any_left(p)) {
        uint64_t now = dxpu_udp_now_ns(), at = next_start_ns(p);
        if (p->stopping)
            at = p->ending ? p->end_ns : p->stop_ns ? p->stop_ns : DXPU_NEVER;
        fds[0].fd = p->signals;
        fds[0].events = POLLIN;
        for (unsigned i = 0; i < p->set->guests; i++) {
            fds[i + 1].fd = p->keeper[i].c.socket;
            fds[i + 1].events = POLLIN;
        }
        fds[p->set->guests + 1].fd = p->heard ? -1 : p->worker.socket;
        fds[p->set->guests + 1].events = POLLIN;
        if (poll(fds, p->set->guests + 2, wait_ms(now, at)) < 0 && errno != EINTR)
            (void)poll(NULL, 0, NO_MEMORY_MS); /* the children stay; what is ready is read anyway */
        for (unsigned i = 0; i < p->set->guests; i++) {
            if (p->keeper[i].c.socket >= 0) /* what a keeper said before its end, too */
                parent_on_keeper(p, i);
        }
        report_ready(p);
        on_signals(p);
        now = dxpu_udp_now_ns();
        if (p->ending && now >= p->end_ns)
            kill_keepers(p);
        if (p->stop_ns && now >= p->stop_ns)
            kill_worker(p);
        if (p->start_ns && now >= p->start_ns && !p->stopping && start_worker(p))
            p->start_ns = now + PAUSE_MAX_NS;
        start_due_pluggers(p, now);
    }
}

void parent_raise_limit(const parent_settings *set)
{
    uint64_t need = PARENT_DESCRIPTORS;
    for (unsigned i = 0; i < set->guests; i++)
        need += guest_sockets(set->keeper[i].guest) + 1;
    if (open_files_allow(need) < need)
        log_warning("%llu descriptors for all guests' connections are more than "
                    "allowed; " OPEN_FILES_REMEDY,
                    (unsigned long long)need);
}

int parent_run(const parent_settings *set)
{
    parent p = { .set = set, .worker = { 0, -1 } };
    sigset_t mask;
    parent_raise_limit(set);
    (void)sigemptyset(&mask);
    for (unsigned i = 0; i < sizeof caught / sizeof caught[0]; i++)
        (void)sigaddset(&mask, caught[i]);
    (void)sigprocmask(SIG_BLOCK, &mask, NULL);
    p.signals = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    for (unsigned i = 0; i < set->guests; i++) {
        p.keeper[i].c.socket = p.keeper[i].plugger.socket = -1;
        memset(p.keeper[i].held, 0xff, sizeof p.keeper[i].held); /* -1 */
    }
    if (p.signals < 0 || sandbox_enter_as(SANDBOX_PARENT) || start_keepers(&p) || make_key(&p) ||
        start_pluggers(&p) || start_worker(&p)) {
        p.status = PROGRAM_SYSTEM;
        stop(&p);
    }
    wait_for_all(&p);
    parent_close(&p.signals);
    return p.status;
}
