/* program.c - see program.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "program.h"
#include "log.h"
#include "fabric.h"
#include "notify.h"
#include "sandbox.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int program_parse(const option_program *p, int argc, char **argv, option_call *call)
{
    return options_status(options_parse(p, argc, argv, call));
}

int program_options(option_program *p, int argc, char **argv)
{
    static char version[120];
    snprintf(version, sizeof version,
             "%s, wire version %d, CRC-32 by %s, AF_XDP by %s, sandbox by %s", DXPU_VERSION,
             DXPU_WIRE_VERSION, fabric_crc_name(), dxpu_xdp_name(), sandbox_name());
    p->version = version;
    return program_parse(p, argc, argv, NULL);
}

int program_usage(const char *what)
{
    if (strstr(what, dxpu_udp_unresolved)) {
        log_error("%s", what);
        return PROGRAM_SYSTEM;
    }
    return options_wrong("%s", what);
}

int program_print(bool json, void (*fill)(report *r))
{
    report r;
    report_begin(&r, stdout, json);
    fill(&r);
    report_end(&r);
    if (!ferror(stdout))
        return 0;
    log_error("standard output: %s; the results are not all there", strerror(errno));
    return -1;
}

void program_log(void (*fill)(report *r))
{
    report r;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out) {
        report_begin(&r, out, log_is_json());
        fill(&r);
        report_end(&r);
    }
    if (out && !fclose(out))
        log_document("statistics", text);
    else
        log_error("cannot print statistics: out of memory");
    free(text);
}

static const int signals[] = { SIGINT, SIGTERM, SIGUSR1, SIGHUP };
enum { COUNT = sizeof signals / sizeof signals[0] };

static void act(const program_loop *p, int number)
{
    if (number == SIGUSR1)
        p->on_usr1();
    else if (number == SIGHUP)
        p->on_hup();
    else {
        notify_stopping();
        p->on_stop();
    }
}

static void on_signal(evutil_socket_t number, short what, void *user)
{
    (void)what;
    act(user, number);
}

int program_run(const program_loop *p)
{
    struct event *events[COUNT] = { NULL };
    program_loop loop = *p;
    sigset_t stops;
    bool ready = true;
    int rc = PROGRAM_SYSTEM;
    (void)sigemptyset(&stops);
    for (unsigned i = 0; i < COUNT; i++) {
        (void)sigaddset(&stops, signals[i]);
        if (signals[i] == SIGHUP && !loop.on_hup)
            continue;
        events[i] = evsignal_new(loop.base, signals[i], on_signal, &loop);
        ready = ready && events[i] && !event_add(events[i], NULL);
    }
    if (!ready)
        log_error("cannot catch signals: %s", strerror(errno));
    else if (!sandbox_enter())
        rc = loop.run();
    (void)sigprocmask(SIG_BLOCK, &stops, NULL); /* it ends: a signal now changes nothing */
    for (unsigned i = 0; i < COUNT; i++) {
        if (events[i])
            event_free(events[i]);
    }
    return rc;
}

/* ==== A process with a parent ================================================================= */

typedef struct child {
    const program_loop *loop;
    void (*on_ask)(unsigned char kind);
    struct event *event;
} child;

static void on_parent(evutil_socket_t fd, short what, void *user)
{
    const child *c = user;
    unsigned char kind = PROGRAM_ASK_STOP;
    ssize_t n = recv(fd, &kind, sizeof kind, MSG_DONTWAIT);
    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof kind) { /* it is gone */
        (void)event_del(c->event);
        kind = PROGRAM_ASK_STOP;
    }
    if (kind == PROGRAM_ASK_STOP || kind == PROGRAM_ASK_NUMBERS || kind == PROGRAM_ASK_KEYS)
        act(c->loop, kind == PROGRAM_ASK_STOP   ? SIGTERM
                     : kind == PROGRAM_ASK_KEYS ? SIGHUP
                                                : SIGUSR1);
    else
        c->on_ask(kind);
}

int program_run_child(const program_loop *p, int parent, void (*on_ask)(unsigned char kind))
{
    child c = { p, on_ask, NULL };
    int rc = PROGRAM_SYSTEM;
    c.event = event_new(p->base, parent, EV_READ | EV_PERSIST, on_parent, &c);
    if (!c.event || event_add(c.event, NULL))
        log_error("cannot wait for messages: %s", strerror(errno));
    else if (!sandbox_enter())
        rc = p->run();
    if (c.event)
        event_free(c.event);
    return rc;
}

static struct {
    struct timespec time;
    const char *message;
} limit;

static void *end_late(void *user)
{
    while (nanosleep(&limit.time, &limit.time))
        continue;
    log_error("%s", limit.message);
    _exit(PROGRAM_SYSTEM);
    return user;
}

void program_end_within(unsigned ms, const char *message)
{
    pthread_t thread;
    limit.time.tv_sec = ms / 1000;
    limit.time.tv_nsec = (long)(ms % 1000) * 1000000;
    limit.message = message;
    if (!pthread_create(&thread, NULL, end_late, NULL)) /* else it waits, as without a limit */
        (void)pthread_detach(thread);
}
