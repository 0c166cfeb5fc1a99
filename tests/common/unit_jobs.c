/* unit_jobs.c - jobs outside the loop: lanes, shares, cancelling, waking
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "jobs.h"
#include <pthread.h>
#include <unistd.h>

enum { LANES = 3, MANY = 40 };

/* Jobs that run until the gate is opened, as at a disk that does not answer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool open_gate;
static unsigned inside;

typedef struct test_job {
    job job;
    bool stuck;
    unsigned ran, looked;
} test_job;

static void run_it(job *j)
{
    test_job *t = (test_job *)j;
    pthread_mutex_lock(&lock);
    t->ran++;
    inside += t->stuck;
    pthread_cond_broadcast(&changed);
    while (t->stuck && !open_gate)
        pthread_cond_wait(&changed, &lock);
    inside -= t->stuck;
    pthread_mutex_unlock(&lock);
}

static void until_inside(unsigned count)
{
    pthread_mutex_lock(&lock);
    while (inside < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&lock);
    open_gate = open;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool look(job *j)
{
    ((test_job *)j)->looked++;
    return true;
}

typedef struct rig {
    jobs_pool *pool;
    int wake[LANES];
    jobs_lane *lane[LANES];
    jobs jobs[LANES];
    test_job job[LANES][MANY];
} rig;

static rig *set_up(unsigned share)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    set_gate(false);
    r->pool = jobs_pool_new(share);
    for (unsigned i = 0; i < LANES; i++) {
        r->wake[i] = eventfd(0, EFD_NONBLOCK);
        r->lane[i] = jobs_lane_new(r->pool, r->wake[i], &r->jobs[i]);
        assert_non_null(r->lane[i]);
    }
    return r;
}

static void tear_down(rig *r)
{
    set_gate(true);
    for (unsigned i = 0; i < LANES; i++) {
        r->jobs[i].settle(r->jobs[i].user);
        while (r->jobs[i].reap(r->jobs[i].user))
            continue;
        jobs_lane_free(r->lane[i]);
        close(r->wake[i]);
    }
    jobs_pool_free(r->pool);
    free(r);
}

static test_job *give(rig *r, unsigned lane, unsigned i, bool stuck)
{
    test_job *t = &r->job[lane][i];
    t->job.run = run_it;
    t->stuck = stuck;
    r->jobs[lane].submit(r->jobs[lane].user, &t->job);
    return t;
}

/* The next that is over: the lane's loop is woken for it. */
static test_job *await(rig *r, unsigned lane)
{
    struct pollfd p = { r->wake[lane], POLLIN, 0 };
    job *j;
    while ((j = r->jobs[lane].reap(r->jobs[lane].user)) == NULL) {
        assert_true(poll(&p, 1, -1) == 1);
        jobs_woken(r->wake[lane]);
    }
    return (test_job *)j;
}

/* S-160: whatever one lane waits for, the others' jobs go on; that lane has its share at most. */
static void test_s160_a_stuck_lane_stops_no_other(void **state)
{
    rig *r = set_up(4);
    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        (void)give(r, 0, i, true);
    until_inside(4);
    for (unsigned i = 0; i < MANY; i++) {
        test_job *t = give(r, 1, i, false);
        assert_ptr_equal(await(r, 1), t);
    }
    pthread_mutex_lock(&lock);
    assert_int_equal(inside, 4); /* the control: it is stuck indeed */
    pthread_mutex_unlock(&lock);
    assert_null(r->jobs[0].reap(r->jobs[0].user));
    for (unsigned i = 0; i < MANY; i++)
        (void)give(r, 1, i, true); /* two of them are stuck */
    until_inside(8);
    (void)give(r, 2, 0, false);
    assert_ptr_equal(await(r, 2), &r->job[2][0]);
    tear_down(r);
}

/* However many lanes are stuck with all that they may have, each has one thread of its own. */
static void test_s160_the_spares_do_not_matter(void **state)
{
    rig *r = set_up(MANY);
    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        (void)give(r, 0, i, true);
    until_inside(1 + JOBS_SPARES);
    (void)give(r, 1, 0, true);
    until_inside(2 + JOBS_SPARES);
    (void)give(r, 1, 1, true); /* there is no spare for it */
    (void)give(r, 2, 0, false);
    assert_ptr_equal(await(r, 2), &r->job[2][0]);
    pthread_mutex_lock(&lock);
    assert_int_equal(inside, 2 + JOBS_SPARES);
    pthread_mutex_unlock(&lock);
    tear_down(r);
}

static void test_all_come_back_once(void **state)
{
    rig *r = set_up(4);
    (void)state;
    for (unsigned round = 1; round <= 50; round++) {
        for (unsigned i = 0; i < MANY; i++)
            (void)give(r, i % LANES, i, false);
        for (unsigned i = 0; i < MANY; i++)
            assert_int_equal(await(r, i % LANES)->ran, round);
    }
    for (unsigned i = 0; i < LANES; i++)
        assert_null(r->jobs[i].reap(r->jobs[i].user));
    tear_down(r);
}

/* What has not begun never will; what has goes on. */
static void test_cancel(void **state)
{
    rig *r = set_up(2);
    test_job *t[4];
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        t[i] = give(r, 0, i, true);
    until_inside(2);
    assert_false(r->jobs[0].cancel(r->jobs[0].user, &t[0]->job));
    assert_true(r->jobs[0].cancel(r->jobs[0].user, &t[2]->job));
    assert_false(r->jobs[0].cancel(r->jobs[0].user, &t[2]->job));
    set_gate(true);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_not_equal(await(r, 0), t[2]);
    assert_int_equal(t[2]->ran, 0);
    assert_int_equal(t[3]->ran, 1);
    assert_false(r->jobs[0].cancel(r->jobs[0].user, &t[3]->job));
    tear_down(r);
}

/* What needs no waiting is over in submit(), in whichever executor. */
static void test_quick_ones(void **state)
{
    rig *r = set_up(1);
    jobs_queue done;
    jobs here;
    test_job *t = &r->job[0][0], *slow = &r->job[0][1];
    (void)state;
    jobs_here(&done, &here);
    t->job.quick = look;
    (void)give(r, 0, 0, false);
    assert_ptr_equal(r->jobs[0].reap(r->jobs[0].user), t);
    here.submit(here.user, &t->job);
    slow->job.run = run_it;
    here.submit(here.user, &slow->job);
    assert_false(here.cancel(here.user, &slow->job));
    here.settle(here.user);
    assert_ptr_equal(here.reap(here.user), &t->job);
    assert_ptr_equal(here.reap(here.user), &slow->job);
    assert_null(here.reap(here.user));
    assert_int_equal(t->looked, 2);
    assert_int_equal(t->ran, 0);
    assert_int_equal(slow->ran, 1);
    tear_down(r);
}

/* Whether the last one waits, runs, or is over: until it is taken back, the lane is not idle. */
static void test_a_lane_is_idle_when_all_are_back(void **state)
{
    rig *r = set_up(1);
    test_job *runs, *waits, *cancelled;
    (void)state;
    assert_true(jobs_lane_idle(r->lane[0]));
    runs = give(r, 0, 0, true);
    assert_false(jobs_lane_idle(r->lane[0])); /* it may not have begun */
    until_inside(1);
    assert_false(jobs_lane_idle(r->lane[0]));
    assert_true(jobs_lane_idle(r->lane[1]));
    waits = give(r, 0, 1, false);
    cancelled = give(r, 0, 2, false);
    assert_true(r->jobs[0].cancel(r->jobs[0].user, &cancelled->job));
    set_gate(true);
    r->jobs[0].settle(r->jobs[0].user);
    assert_false(jobs_lane_idle(r->lane[0]));
    assert_ptr_equal(r->jobs[0].reap(r->jobs[0].user), runs);
    assert_false(jobs_lane_idle(r->lane[0]));
    assert_ptr_equal(r->jobs[0].reap(r->jobs[0].user), waits);
    assert_true(jobs_lane_idle(r->lane[0])); /* the cancelled one was back before */
    tear_down(r);
}

static void test_a_quick_one_is_to_be_taken_back(void **state)
{
    rig *r = set_up(1);
    test_job *t = &r->job[0][0];
    (void)state;
    t->job.quick = look;
    (void)give(r, 0, 0, false);
    assert_false(jobs_lane_idle(r->lane[0]));
    assert_ptr_equal(r->jobs[0].reap(r->jobs[0].user), t);
    assert_true(jobs_lane_idle(r->lane[0]));
    tear_down(r);
}

/* It is there to be taken back when it is counted. */
static void test_what_threads_end_is_counted(void **state)
{
    rig *r = set_up(1);
    atomic_uint ended = 0, of_all = 0;
    (void)state;
    jobs_lane_count(r->lane[0], &ended, &of_all);
    jobs_lane_count(r->lane[1], &of_all, NULL);
    (void)give(r, 1, 0, false); /* another lane's */
    (void)await(r, 1);
    r->job[0][0].job.quick = look;
    (void)give(r, 0, 0, false);
    assert_int_equal(ended, 0);
    assert_non_null(r->jobs[0].reap(r->jobs[0].user));
    for (unsigned i = 1; i < 4; i++) {
        test_job *t = give(r, 0, i, false);
        while (of_all < i + 1) /* counted last */
            continue;
        assert_int_equal(ended, i);
        assert_ptr_equal(r->jobs[0].reap(r->jobs[0].user), t);
    }
    assert_int_equal(ended, 3);
    tear_down(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s160_a_stuck_lane_stops_no_other),
        cmocka_unit_test(test_s160_the_spares_do_not_matter),
        cmocka_unit_test(test_all_come_back_once),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_quick_ones),
        cmocka_unit_test(test_a_lane_is_idle_when_all_are_back),
        cmocka_unit_test(test_a_quick_one_is_to_be_taken_back),
        cmocka_unit_test(test_what_threads_end_is_counted),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
