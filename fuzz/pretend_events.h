/* pretend_events.h - libevent's events that wait for the time, or for an eventfd
   SPDX-License-Identifier: MIT

   Include before the parts that use them.  Time is rig_ns; eventfds are woken_fd, and there is one
   of them. */
#ifndef PRETEND_EVENTS_H_INCLUDED
#define PRETEND_EVENTS_H_INCLUDED

#include "secure_rig.h"

#include <event2/event.h>

enum { TIMERS = 2, WOKEN_FD = 77 };

typedef struct timer {
    event_callback_fn call;
    void *user;
    uint64_t every_ns, due_ns;
    bool there, active, repeats;
    bool wakes; /* when something was written to the eventfd, and as long as it was not read */
} timer;

static timer timers[TIMERS];
static bool woken;

static void timers_begin(void)
{
    memset(timers, 0, sizeof timers);
    woken = false;
}

static struct event *timer_new(short what, event_callback_fn call, void *user)
{
    timer *t = timers;
    while (t->there)
        t++;
    must(t < timers + TIMERS);
    *t = (timer){ call, user, 0, UINT64_MAX, true, false, what & EV_PERSIST, what & EV_READ };
    return (struct event *)(void *)t;
}

static int timer_add(struct event *e, const struct timeval *every)
{
    timer *t = (timer *)(void *)e;
    if (!every)
        return 0;
    t->every_ns = (uint64_t)every->tv_sec * 1000000000u + (uint64_t)every->tv_usec * 1000u;
    t->due_ns = rig_ns + t->every_ns;
    return 0;
}

static bool timer_due(const timer *t)
{
    return t->there && (t->active || rig_ns >= t->due_ns || (t->wakes && woken));
}

/* Call what is due. */
static void timers_turn(void)
{
    for (timer *t = timers; t < timers + TIMERS; t++) {
        bool due = timer_due(t);
        t->active = false;
        if (due && t->due_ns != UINT64_MAX)
            t->due_ns = t->repeats ? rig_ns + t->every_ns : UINT64_MAX;
        if (due)
            t->call(t->wakes ? WOKEN_FD : -1, t->wakes ? EV_READ : EV_TIMEOUT, t->user);
    }
}

/* Is there more to call, although no time has passed? */
static bool timers_more(void)
{
    bool more = false;
    for (const timer *t = timers; t < timers + TIMERS; t++)
        more |= timer_due(t);
    return more;
}

static inline int wake_new(void)
{
    woken = false;
    return WOKEN_FD;
}

static inline ssize_t wake_set(int fd, bool now, size_t len)
{
    must(fd == WOKEN_FD);
    woken = now;
    return (ssize_t)len;
}

#define event_new(base, fd, what, call, user) timer_new(what, call, user)
#define event_add(e, every)                   timer_add(e, every)
#define event_active(e, what, calls)          ((timer *)(void *)(e))->active = true
#define event_free(e)                         ((timer *)(void *)(e))->there = false
#define eventfd(count, flags)                 wake_new()
#define read(fd, to, len)                     ((void)(to), wake_set(fd, false, len))
#define write(fd, from, len)                  ((void)(from), wake_set(fd, true, len))
#define close(fd)                             ((void)(fd))

#endif /* PRETEND_EVENTS_H_INCLUDED */
