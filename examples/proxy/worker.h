/* worker.h - a loop in a thread and on a core of its own, and calls into it
   SPDX-License-Identifier: MIT

   What belongs to a loop is touched by its own thread alone, without locks.  Others have a function
   called there, between two turns of the loop, and wait for it. */
#ifndef WORKER_H_INCLUDED
#define WORKER_H_INCLUDED

#include <event2/event.h>

typedef struct worker worker;

/* Of a loop with this event base.  NULL after a message.  Until worker_start(), and after
   worker_join(), whoever calls is its thread. */
worker *worker_new(struct event_base *base);
void worker_free(worker *w); /* NULL is allowed; not while its thread runs */
/* run(user) is to be the loop, in a thread bound to one of the cores that this process may use:
   the first one for index 0, the next for 1, and the first again behind the last.  When it returns,
   1 is added to the eventfd `ended`.  0, or -1 after a message. */
int worker_start(worker *w, unsigned index, int (*run)(void *user), void *user, int ended);
/* fn(arg) in the loop's thread; it has returned when this does.  From one thread, not the loop's
   own.  It does not wait for the network: a turn of the loop, and fn, are what it takes. */
void worker_call(worker *w, void (*fn)(void *arg), void *arg);
/* Wait for the end of a thread; what its run() returned, 0 when it was not started. */
int worker_join(worker *w);

#endif /* WORKER_H_INCLUDED */
