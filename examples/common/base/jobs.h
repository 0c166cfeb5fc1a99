/* jobs.h - work that may wait for a disk or take long, done outside the loop that asks for it
   SPDX-License-Identifier: MIT

   A loop gives a job away and goes on.  When the job is over, the loop is woken through a
   descriptor and takes it back.  A job touches only its own memory while it runs, so nothing of
   the loop needs a lock.

   Who runs a job is the executor's choice.  A `jobs_pool` has threads that many lanes share: one
   lane for each device.  A lane that has nothing running always gets a thread, whatever the others
   wait for; beyond its first, it gets at most its share, of the threads that are left.  An
   executor of jobs_here() runs each job in submit(): for tests, and for a program without threads.

   An executor belongs to one loop: its functions are called there alone. */
#ifndef JOBS_H_INCLUDED
#define JOBS_H_INCLUDED

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ==== 1  Jobs ================================================================================= */

typedef struct job job;
struct job {
    job *next;           /* the executor's, until it is taken back */
    void *owner;         /* of who submits it; unused by executors */
    void (*run)(job *j); /* may block; called once, in any thread */
    /* True when all of it could be done at once, without waiting for anything: tried in submit(),
       in the loop.  NULL: it may always wait. */
    bool (*quick)(job *j);
};

/* What a device is given. */
typedef struct jobs {
    void *user;
    void (*submit)(void *user, job *j);
    /* One that is over, in the order of their ends; NULL: none now. */
    job *(*reap)(void *user);
    /* True: it has not begun, never will, and is the caller's again. */
    bool (*cancel)(void *user, job *j);
    /* Wait until none runs or waits to run: all can be taken back. */
    void (*settle)(void *user);
} jobs;

/* ==== 2  Here ================================================================================= */

typedef struct jobs_queue {
    job *head, **tail;
} jobs_queue;

/* *out runs jobs in submit(), waking no thread; *done, which holds them until they are taken back,
   outlives it. */
void jobs_here(jobs_queue *done, jobs *out);

/* ==== 3  Threads ============================================================================== */

enum {
    JOBS_SHARE = 4,   /* threads that a lane has at once, by default */
    JOBS_SPARES = 12, /* of all lanes, beside one for each */
    JOBS_NICE = 5     /* loops go first where cores are few */
};

typedef struct jobs_pool jobs_pool;
typedef struct jobs_lane jobs_lane;

/* share: 1.. threads of a lane at once.  They are started when there is work.  NULL: out of
   memory. */
jobs_pool *jobs_pool_new(unsigned share);
/* All lanes are freed.  NULL is allowed. */
void jobs_pool_free(jobs_pool *p);
/* wake: an eventfd that is written when jobs are over, and that outlives the lane.  NULL: out of
   memory. */
jobs_lane *jobs_lane_new(jobs_pool *p, int wake, jobs *out);
/* Count here, too, jobs that a thread has ended, and afterwards in *of_all, which NULL may be: a
   loop that looks for work without blocking then sees it, and whose it is, without a system call.
   Before the first job; both outlive the lane. */
void jobs_lane_count(jobs_lane *l, atomic_uint *ended, atomic_uint *of_all);
/* All its jobs were taken back.  NULL is allowed. */
void jobs_lane_free(jobs_lane *l);
/* True: all its jobs were taken back. */
bool jobs_lane_idle(jobs_lane *l);
/* For the eventfd's reader, before jobs are taken back: further ones that end wake it again. */
void jobs_woken(int wake);

#endif /* JOBS_H_INCLUDED */
