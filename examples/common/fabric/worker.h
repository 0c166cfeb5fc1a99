/* worker.h - a loop in a thread and on a core of its own, and calls into it
   SPDX-License-Identifier: MIT

   What belongs to a loop is touched by its own thread alone, without locks.  Others have a function
   called there, between two turns of the loop, and wait for it. */
#ifndef WORKER_H_INCLUDED
#define WORKER_H_INCLUDED

#include <event2/event.h>
#include <stdbool.h>

typedef struct worker worker;

/* run(user) is to be the loop on this event base.  NULL after a message.  Before and after
   workers_run() whoever calls is its thread. */
worker *worker_new(struct event_base *base, int (*run)(void *user), void *user);
void worker_free(worker *w); /* NULL is allowed; not while its thread runs */
/* fn(arg) in the loop's thread; it has returned when this does.  From one thread, not the loop's
   own.  It does not wait for the network: a turn of the loop, and fn, are what it takes. */
void worker_call(worker *w, void (*fn)(void *arg), void *arg);

typedef struct workers {
    struct event_base *base; /* of this thread, whose loop runs meanwhile */
    worker **worker;
    unsigned count;
    bool together;           /* when one has ended, so must all */
    void (*stop)(void *arg); /* end those that still run, at once */
    void *arg;
} workers;

/* Until all have ended: each in a thread bound to one of the cores that this process may use, in
   their order, and from the first again behind the last; one alone in this thread, bound to none.
   0, or -1 after a message, or when a run() did not return 0. */
int workers_run(const workers *all);

#endif /* WORKER_H_INCLUDED */
