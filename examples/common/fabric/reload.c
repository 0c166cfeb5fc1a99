/* reload.c - see reload.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "reload.h"
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct reload {
    keys *k;
    void (*changed)(void *user);
    void *user;
    struct event *over;
    int wake; /* the thread has read the file */
    int rc;   /* of keys_read(); the thread's while it runs */
    pthread_t thread;
    bool running, again;
};

static void *read_file(void *arg)
{
    reload *r = arg;
    r->rc = keys_read(r->k);
    (void)eventfd_write(r->wake, 1); /* cannot be full */
    return NULL;
}

static void take(reload *r)
{
    if (r->rc)
        return;
    keys_take(r->k);
    r->changed(r->user);
}

/* The thread is not the one that signals are for. */
static bool start_thread(reload *r)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r->running = pthread_create(&r->thread, NULL, read_file, r) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r->running;
}

static void on_over(evutil_socket_t fd, short what, void *user)
{
    reload *r = user;
    eventfd_t count;
    (void)what;
    if (eventfd_read(fd, &count) || !r->running)
        return;
    (void)pthread_join(r->thread, NULL);
    r->running = false;
    take(r);
    if (r->again)
        reload_start(r);
}

reload *reload_new(struct event_base *base, keys *k, void (*changed)(void *user), void *user)
{
    reload *r = calloc(1, sizeof *r);
    if (r) {
        r->k = k;
        r->changed = changed;
        r->user = user;
        r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (r->wake >= 0)
            r->over = event_new(base, r->wake, EV_READ | EV_PERSIST, on_over, r);
        if (r->over && !event_add(r->over, NULL))
            return r;
    }
    log_error("SIGHUP: no memory or no eventfd to reload --peers: %s", strerror(errno));
    (void)reload_free(r);
    return NULL;
}

void reload_start(reload *r)
{
    r->again = r->running;
    if (r->running || start_thread(r))
        return;
    r->rc = keys_read(r->k); /* without a thread the loop waits */
    take(r);
}

bool reload_free(reload *r)
{
    if (!r)
        return true;
    if (r->over)
        event_free(r->over);
    if (r->running)
        return false;
    if (r->wake >= 0)
        close(r->wake);
    free(r);
    return true;
}
