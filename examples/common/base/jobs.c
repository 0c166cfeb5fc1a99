/* jobs.c - see jobs.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Queues   2 Here   3 Threads   4 Lanes   5 Opening */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* PRIO_PROCESS of a thread */
#endif
#include "jobs.h"

#include <signal.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum { STACK_BYTES = 256 << 10 };

/* ==== 1  Queues =============================================================================== */

static void queue_clear(jobs_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_append(jobs_queue *q, job *j)
{
    j->next = NULL;
    *q->tail = j;
    q->tail = &j->next;
}

static job *queue_take(jobs_queue *q)
{
    job *j = q->head;
    if (!j)
        return NULL;
    q->head = j->next;
    if (!q->head)
        q->tail = &q->head;
    return j;
}

static bool queue_remove(jobs_queue *q, job *j)
{
    job **at = &q->head;
    while (*at && *at != j)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = j->next;
    if (!*at)
        q->tail = at;
    return true;
}

void jobs_woken(int wake)
{
    eventfd_t times;
    (void)eventfd_read(wake, &times);
}

/* ==== 2  Here ================================================================================= */

static void here_submit(void *user, job *j)
{
    if (!j->quick || !j->quick(j))
        j->run(j);
    queue_append(user, j);
}

static job *here_reap(void *user)
{
    return queue_take(user);
}

static bool here_cancel(void *user, job *j)
{
    (void)user;
    (void)j;
    return false;
}

static void here_settle(void *user)
{
    (void)user;
}

void jobs_here(jobs_queue *done, jobs *out)
{
    static const jobs here = { NULL, here_submit, here_reap, here_cancel, here_settle };
    queue_clear(done);
    *out = here;
    out->user = done;
}

/* ==== 3  Threads ============================================================================== */

struct jobs_lane {
    jobs_pool *pool;
    jobs_lane *next; /* in the pool's list of those that have work for a thread */
    bool listed;
    unsigned running;
    jobs_queue waiting, done;
    jobs_queue quick; /* the loop's own: what was over in submit() */
    int wake;
    atomic_uint *ended, *of_all; /* NULL: they are not counted */
};

/* The lock is of all that is in the pool and its lanes, but for `quick` and what is constant. */
struct jobs_pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* a lane was listed */
    pthread_cond_t over; /* a job ended, or a thread */
    jobs_lane *head, **tail;
    unsigned share, lanes;
    unsigned threads;
    unsigned idle, called;   /* threads that wait; those that are to wake up */
    unsigned running, first; /* jobs; of them those that are a lane's only one */
    bool ending;
};

/* May the lane have one more thread now?  Its first is always there: there is a thread for each
   lane, and those beyond the first are counted against the spares. */
static bool may_run(const jobs_lane *l)
{
    const jobs_pool *p = l->pool;
    return l->waiting.head &&
           (!l->running || (l->running < p->share && p->running - p->first < JOBS_SPARES));
}

static void list(jobs_lane *l)
{
    jobs_pool *p = l->pool;
    if (l->listed || !l->waiting.head)
        return;
    l->listed = true;
    l->next = NULL;
    *p->tail = l;
    p->tail = &l->next;
}

static void unlist(jobs_lane *l)
{
    jobs_pool *p = l->pool;
    jobs_lane **at = &p->head;
    while (*at && *at != l)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = l->next;
    if (!*at)
        p->tail = at;
    l->listed = false;
}

/* The next lane that may run a job, the longest listed first; it goes behind the others. */
static jobs_lane *next_lane(jobs_pool *p)
{
    for (jobs_lane *l = p->head; l; l = l->next) {
        if (may_run(l)) {
            unlist(l);
            return l;
        }
    }
    return NULL;
}

/* Run one job of the lane.  The lock is held, but not while the job runs. */
static void run_one(jobs_pool *p, jobs_lane *l)
{
    job *j = queue_take(&l->waiting);
    bool first;
    p->first += l->running == 0;
    p->running++;
    l->running++;
    list(l);
    pthread_mutex_unlock(&p->lock);
    j->run(j);
    pthread_mutex_lock(&p->lock);
    p->running--;
    l->running--;
    p->first -= l->running == 0;
    first = !l->done.head;
    queue_append(&l->done, j);
    if (l->ended)
        atomic_fetch_add_explicit(l->ended, 1, memory_order_release);
    if (l->of_all)
        atomic_fetch_add_explicit(l->of_all, 1, memory_order_release);
    if (first)
        (void)eventfd_write(l->wake, 1); /* cannot be full */
    pthread_cond_broadcast(&p->over);
}

static void *body(void *user)
{
    jobs_pool *p = user;
    jobs_lane *l;
    (void)setpriority(PRIO_PROCESS, 0, JOBS_NICE); /* of this thread; without it, it is as quick */
    pthread_mutex_lock(&p->lock);
    while (!p->ending) {
        l = next_lane(p);
        if (l) {
            run_one(p, l);
            continue;
        }
        p->idle++;
        while (!p->called && !p->ending)
            pthread_cond_wait(&p->work, &p->lock);
        p->called -= p->called != 0;
    }
    p->threads--;
    pthread_cond_broadcast(&p->over);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are the first thread's.  The lock is held. */
static void start_thread(jobs_pool *p)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attr))
        return;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    p->threads += !pthread_create(&thread, &attr, body, p);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
}

/* ==== 4  Lanes ================================================================================ */

static void lane_submit(void *user, job *j)
{
    jobs_lane *l = user;
    jobs_pool *p = l->pool;
    if (j->quick && j->quick(j)) {
        queue_append(&l->quick, j);
        return;
    }
    pthread_mutex_lock(&p->lock);
    queue_append(&l->waiting, j);
    list(l);
    if (may_run(l) && p->idle) {
        p->idle--;
        p->called++;
        pthread_cond_signal(&p->work);
    } else if (may_run(l) && p->threads < p->lanes + JOBS_SPARES) {
        start_thread(p);
    }
    if (!p->threads) /* the system has none for us: better slow than never */
        run_one(p, next_lane(p));
    pthread_mutex_unlock(&p->lock);
}

static job *lane_reap(void *user)
{
    jobs_lane *l = user;
    job *j = queue_take(&l->quick);
    if (j)
        return j;
    pthread_mutex_lock(&l->pool->lock);
    j = queue_take(&l->done);
    pthread_mutex_unlock(&l->pool->lock);
    return j;
}

static bool lane_cancel(void *user, job *j)
{
    jobs_lane *l = user;
    bool was_there;
    pthread_mutex_lock(&l->pool->lock);
    was_there = queue_remove(&l->waiting, j);
    if (l->listed && !l->waiting.head)
        unlist(l);
    pthread_mutex_unlock(&l->pool->lock);
    return was_there;
}

static void lane_settle(void *user)
{
    jobs_lane *l = user;
    pthread_mutex_lock(&l->pool->lock);
    while (l->running || l->waiting.head)
        pthread_cond_wait(&l->pool->over, &l->pool->lock);
    pthread_mutex_unlock(&l->pool->lock);
}

bool jobs_lane_idle(jobs_lane *l)
{
    bool any;
    pthread_mutex_lock(&l->pool->lock);
    any = l->running || l->waiting.head || l->done.head;
    pthread_mutex_unlock(&l->pool->lock);
    return !any && !l->quick.head;
}

/* ==== 5  Opening ============================================================================== */

jobs_pool *jobs_pool_new(unsigned share)
{
    jobs_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    (void)pthread_mutex_init(&p->lock, NULL); /* ordinary ones: cannot fail */
    (void)pthread_cond_init(&p->work, NULL);
    (void)pthread_cond_init(&p->over, NULL);
    p->tail = &p->head;
    p->share = share;
    return p;
}

void jobs_pool_free(jobs_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    pthread_cond_broadcast(&p->work);
    while (p->threads)
        pthread_cond_wait(&p->over, &p->lock);
    pthread_mutex_unlock(&p->lock);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_cond_destroy(&p->over);
    free(p);
}

jobs_lane *jobs_lane_new(jobs_pool *p, int wake, jobs *out)
{
    static const jobs lane = { NULL, lane_submit, lane_reap, lane_cancel, lane_settle };
    jobs_lane *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->pool = p;
    l->wake = wake;
    queue_clear(&l->waiting);
    queue_clear(&l->done);
    queue_clear(&l->quick);
    pthread_mutex_lock(&p->lock);
    p->lanes++;
    pthread_mutex_unlock(&p->lock);
    *out = lane;
    out->user = l;
    return l;
}

void jobs_lane_count(jobs_lane *l, atomic_uint *ended, atomic_uint *of_all)
{
    l->ended = ended;
    l->of_all = of_all;
}

void jobs_lane_free(jobs_lane *l)
{
    if (!l)
        return;
    lane_settle(l);
    pthread_mutex_lock(&l->pool->lock);
    l->pool->lanes--;
    pthread_mutex_unlock(&l->pool->lock);
    free(l);
}
