/* worker.c - see worker.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* CPU_SET, pthread_setaffinity_np() */
#endif
#include "worker.h"
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct worker {
    struct event_base *base;
    struct event *asked; /* call is set */
    int fd, ended;
    int (*run)(void *user);
    void *user;
    int result;
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* of these */
    pthread_cond_t done;
    void (*call)(void *arg); /* NULL: nothing is asked */
    void *arg;
    bool running; /* the thread takes calls */
};

worker *worker_new(struct event_base *base, int (*run)(void *user), void *user)
{
    worker *w = calloc(1, sizeof *w);
    if (w) {
        w->base = base;
        w->run = run;
        w->user = user;
        w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        (void)pthread_mutex_init(&w->lock, NULL); /* ordinary ones: cannot fail */
        (void)pthread_cond_init(&w->done, NULL);
    }
    if (!w || w->fd < 0) {
        log_error("cannot create an eventfd for a thread: %s", strerror(errno));
        worker_free(w);
        return NULL;
    }
    return w;
}

void worker_free(worker *w)
{
    if (!w)
        return;
    if (w->asked)
        event_free(w->asked);
    if (w->fd >= 0)
        close(w->fd);
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->done);
    free(w);
}

static void add_one(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof one); /* cannot be full */
}

/* What was asked for, if anything.  The lock is held, but not while it is done: the caller waits
   for it, so there is no other call. */
static void serve(worker *w)
{
    if (!w->call)
        return;
    pthread_mutex_unlock(&w->lock);
    w->call(w->arg);
    pthread_mutex_lock(&w->lock);
    w->call = NULL;
    pthread_cond_signal(&w->done);
}

static void on_asked(evutil_socket_t fd, short what, void *user)
{
    worker *w = user;
    uint64_t times;
    (void)what;
    (void)!read(fd, &times, sizeof times);
    pthread_mutex_lock(&w->lock);
    serve(w);
    pthread_mutex_unlock(&w->lock);
}

static void *body(void *user)
{
    worker *w = user;
    int result = w->run(w->user);
    pthread_mutex_lock(&w->lock);
    serve(w);
    w->result = result;
    w->running = false;
    pthread_mutex_unlock(&w->lock);
    add_one(w->ended);
    return NULL;
}

/* The index-th core that this process may use, and again from the first. */
static void bind_to_core(pthread_attr_t *attr, unsigned index)
{
    cpu_set_t all, one;
    unsigned count;
    if (sched_getaffinity(0, sizeof all, &all) || (count = (unsigned)CPU_COUNT(&all)) == 0)
        return; /* more cores than a cpu_set_t has: the kernel places it */
    index %= count;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || index--)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)pthread_attr_setaffinity_np(attr, sizeof one, &one);
        return;
    }
}

/* Signals are the first thread's. */
static int start_thread(worker *w, unsigned index)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return rc;
    bind_to_core(&attr, index);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, &attr, body, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

static int start(worker *w, unsigned index, int ended)
{
    int rc;
    w->ended = ended;
    w->asked = event_new(w->base, w->fd, EV_READ | EV_PERSIST, on_asked, w);
    if (!w->asked || event_add(w->asked, NULL)) {
        log_error("libevent refuses a thread's eventfd");
        return -1;
    }
    w->running = true;
    rc = start_thread(w, index);
    w->started = !rc;
    if (!rc)
        return 0;
    w->running = false;
    log_error("cannot start a thread: %s", strerror(rc));
    return -1;
}

void worker_call(worker *w, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    if (!w->running) { /* no other thread is there */
        pthread_mutex_unlock(&w->lock);
        fn(arg);
        return;
    }
    w->arg = arg;
    w->call = fn;
    add_one(w->fd);
    while (w->call)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* Wait for the end of a thread; what its run() returned, 0 when it was not started. */
static int join(worker *w)
{
    if (!w->started)
        return 0;
    (void)pthread_join(w->thread, NULL);
    w->started = false;
    return w->result;
}

/* Those of workers_run() that run. */
typedef struct crew {
    const workers *all;
    unsigned left;
} crew;

static void on_ended(evutil_socket_t fd, short what, void *user)
{
    crew *c = user;
    uint64_t ended = 0;
    (void)what;
    (void)!read(fd, &ended, sizeof ended);
    c->left -= (unsigned)ended;
    if (!c->left)
        (void)event_base_loopbreak(c->all->base);
    else if (c->all->together)
        c->all->stop(c->all->arg);
}

static int run_crew(crew *c, int ended)
{
    const workers *all = c->all;
    int rc = 0;
    for (unsigned i = 0; !rc && i < all->count; i++) {
        rc = start(all->worker[i], i, ended);
        c->left += !rc;
    }
    if (rc)
        all->stop(all->arg);
    if (c->left && event_base_dispatch(all->base) < 0) {
        log_error("cannot wait for events: %s", strerror(errno));
        all->stop(all->arg);
        rc = -1;
    }
    for (unsigned i = 0; i < all->count; i++) {
        if (join(all->worker[i]))
            rc = -1;
    }
    return rc;
}

int workers_run(const workers *all)
{
    crew c = { all, 0 };
    struct event *event;
    int fd, rc = -1;
    if (all->count == 1)
        return all->worker[0]->run(all->worker[0]->user);
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    event = fd < 0 ? NULL : event_new(all->base, fd, EV_READ | EV_PERSIST, on_ended, &c);
    if (event && !event_add(event, NULL))
        rc = run_crew(&c, fd);
    else
        log_error("cannot create an event for threads: %s", strerror(errno));
    if (event)
        event_free(event);
    if (fd >= 0)
        close(fd);
    return rc;
}
