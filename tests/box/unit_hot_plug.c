/* unit_hot_plug.c - a device comes into a slot and leaves it, whose jobs and state file the test
   answers for
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hot_plug.h"
#include "leases.h"
#include "log.h"
#include "shards.h"

enum { NO_CODE = 99 };

static unsigned last_code; /* of an answer */
static bool lane_is_idle;
static bool is_lease;    /* what is in the slot is to be forgotten, or recorded, in the file */
static bool is_promised; /* the data of what comes */
static bool cannot_make;
static bool ends_at_once; /* the job, before the loop asks for it */
static unsigned made, destroyed;
static job *pending, *over; /* the slot's job: to be run, to be taken back */

static void take_code(box *b, unsigned number, unsigned code)
{
    (void)b;
    (void)number;
    assert_int_equal(last_code, NO_CODE);
    last_code = code;
}

static bool ask_lane(jobs_lane *l)
{
    (void)l;
    return lane_is_idle;
}

static bool change_lease(box *b, unsigned number)
{
    (void)b;
    (void)number;
    return is_lease;
}

static bool ask_promise(const box *b, unsigned number, const device_kind *kind, void *device)
{
    (void)b;
    (void)number;
    assert_non_null(kind);
    assert_non_null(device);
    return is_promised;
}

static void do_nothing(box *b, unsigned number)
{
    (void)b;
    (void)number;
}

static void end_nothing(slot *s, uint8_t reason)
{
    (void)s;
    (void)reason;
}

static int no_timer(struct event *e)
{
    (void)e;
    return 0;
}

/* Not linked: replaces jobs_lane_idle(), leases_forget(), leases_plugged(), leases_promised(),
   leases_unplugged(), slots_end(), shards_answer() and event_del(). */
#define jobs_lane_idle   ask_lane
#define leases_forget    change_lease
#define leases_plugged   change_lease
#define leases_promised  ask_promise
#define leases_unplugged do_nothing
#define slots_end        end_nothing
#define shards_answer    take_code
#define event_del        no_timer
#include "hot_plug.c"
#undef jobs_lane_idle
#undef leases_forget
#undef leases_plugged
#undef leases_promised
#undef leases_unplugged
#undef slots_end
#undef shards_answer
#undef event_del

static void submit_it(void *user, job *j)
{
    (void)user;
    assert_true(!pending && !over);
    pending = j;
}

static void run_it(void *user)
{
    job *j = pending;
    (void)user;
    pending = NULL;
    if (j)
        j->run(j);
    over = j ? j : over;
}

static job *reap_it(void *user)
{
    job *j;
    if (ends_at_once)
        run_it(user);
    j = over;
    over = NULL;
    return j;
}

static void *make_disk(const device_settings *s, const device_port *port)
{
    static char disk;
    (void)s;
    (void)port;
    made++;
    return cannot_make ? NULL : &disk;
}

static void destroy_disk(void *device)
{
    assert_non_null(device);
    destroyed++;
}

static const device_kind disk_kind = { .name = "disk",
                                       .create = make_disk,
                                       .destroy = destroy_disk };
static box b;
static shard loop;
static slot s;
static dxpu_box_entry entry;
static uint8_t phase;

/* A slot without a device. */
static int setup(void **state)
{
    static char lane; /* only its address is used */
    (void)state;
    memset(&b, 0, sizeof b);
    memset(&loop, 0, sizeof loop);
    memset(&s, 0, sizeof s);
    last_code = NO_CODE;
    lane_is_idle = true;
    is_lease = is_promised = cannot_make = ends_at_once = false;
    made = destroyed = 0;
    pending = over = NULL;
    phase = DXPU_CONTROL_SLOT_EMPTY;
    b.shards = &loop;
    b.shard_count = b.count = 1;
    b.slots = &s;
    b.phase = &phase;
    loop.box = &b;
    assert_int_equal(dxpu_box_init(&b.table, &entry, 1), DXPU_OK);
    b.entries = &entry;
    s.shard = &loop;
    s.kind = &no_device_kind;
    s.absent = s.missing = true;
    s.jobs = (jobs){ NULL, submit_it, reap_it, NULL, run_it };
    s.lane = (jobs_lane *)(void *)&lane;
    return 0;
}

static unsigned order(uint8_t how)
{
    const dxpu_control_plug m = { .slot = 1, .how = how };
    slot_plan plan = { .kind = &disk_kind, .set = { .serial = "1" } };
    return plug_begin(&b, &m, how == DXPU_CONTROL_REMOVE ? NULL : &plan);
}

/* The slot has a device then, and nothing is under way. */
static void insert(void)
{
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    plug_work(&loop);
    run_it(NULL);
    plug_work(&loop);
    if (s.arrival)
        plug_written(&s, true);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_NONE);
    assert_ptr_equal(s.kind, &disk_kind);
    assert_true(entry.valid && !s.absent && !s.arrival && !loop.plugs);
    last_code = NO_CODE;
}

static void is_empty(unsigned code)
{
    assert_int_equal(last_code, code);
    assert_ptr_equal(s.kind, &no_device_kind);
    assert_true(!entry.valid && s.absent && !s.arrival && !loop.plugs);
    assert_int_equal(made, destroyed);
}

/* S-160: the loop goes on until the job is over, and one that is under way is not begun again. */
static void test_s160_a_device_is_made_by_one_job(void **state)
{
    (void)state;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    for (unsigned i = 0; i < 3; i++)
        plug_work(&loop);
    assert_true(pending && !made);
    assert_int_equal(order(DXPU_CONTROL_REMOVE), DXPU_CONTROL_CODE_BUSY);
    run_it(NULL);
    assert_int_equal(last_code, NO_CODE);
    plug_work(&loop);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_NONE);
    assert_true(made == 1 && s.kind == &disk_kind && s.device && !s.arrival);
}

/* A thread may have made it when the loop looks for the first time. */
static void test_s160_the_job_may_end_at_once(void **state)
{
    (void)state;
    ends_at_once = true;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_NONE);
    assert_true(made == 1 && s.kind == &disk_kind && s.device && !s.arrival);
}

static void test_what_cannot_be_made_leaves_the_slot_empty(void **state)
{
    (void)state;
    cannot_make = true;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    run_it(NULL);
    plug_work(&loop);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_DEVICE);
    assert_true(s.kind == &no_device_kind && !s.arrival && !destroyed);
}

static void test_s249_what_is_promised_does_not_come(void **state)
{
    (void)state;
    is_promised = true;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    run_it(NULL);
    plug_work(&loop);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_BUSY);
    assert_true(s.kind == &no_device_kind && !s.arrival && destroyed == 1);
}

/* S-248: it leaves only when no access of it is under way. */
static void test_s248_a_device_leaves_after_its_jobs(void **state)
{
    (void)state;
    insert();
    lane_is_idle = false;
    assert_int_equal(order(DXPU_CONTROL_REMOVE), REQUESTS_LATER);
    plug_work(&loop);
    assert_true(s.kind == &disk_kind && s.absent && !destroyed);
    assert_int_equal(last_code, NO_CODE);
    lane_is_idle = true;
    plug_work(&loop);
    is_empty(DXPU_CONTROL_CODE_NONE);
}

static void test_another_device_comes_when_the_first_has_left(void **state)
{
    (void)state;
    insert();
    lane_is_idle = false;
    assert_int_equal(order(DXPU_CONTROL_REPLACE), REQUESTS_LATER);
    plug_work(&loop);
    assert_true(!pending && made == 1);
    lane_is_idle = true;
    plug_work(&loop);
    assert_true(pending && destroyed == 1);
    run_it(NULL);
    plug_work(&loop);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_NONE);
    assert_true(made == 2 && destroyed == 1 && s.kind == &disk_kind && !s.arrival);
}

/* M-25: that it was wiped is forgotten before it leaves; else it stays. */
static void test_m25_a_device_leaves_once_that_is_written(void **state)
{
    (void)state;
    for (unsigned kept = 0; kept < 2; kept++) {
        (void)setup(NULL);
        b.managed = is_lease = true;
        insert();
        assert_int_equal(order(DXPU_CONTROL_REMOVE), REQUESTS_LATER);
        plug_work(&loop);
        assert_true(s.kind == &disk_kind && !s.absent && entry.valid);
        plug_written(&s, kept);
        plug_work(&loop);
        if (kept) {
            is_empty(DXPU_CONTROL_CODE_NONE);
            continue;
        }
        assert_int_equal(last_code, DXPU_CONTROL_CODE_STATE);
        assert_true(s.kind == &disk_kind && !s.absent && !s.arrival && !destroyed);
    }
}

/* M-25: and one whose record cannot be written does not stay. */
static void test_m25_a_device_comes_once_that_is_written(void **state)
{
    (void)state;
    b.managed = is_lease = true;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    run_it(NULL);
    for (unsigned i = 0; i < 3; i++)
        plug_work(&loop);
    assert_int_equal(last_code, NO_CODE);
    assert_true(s.absent && s.arrival && made == 1);
    plug_written(&s, false);
    assert_int_equal(last_code, NO_CODE);
    plug_work(&loop);
    is_empty(DXPU_CONTROL_CODE_STATE);
}

static void test_the_end_of_the_box_destroys_what_was_made(void **state)
{
    (void)state;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    plug_close(&s);
    assert_true(made == 1 && destroyed == 1 && !s.arrival && !over);
    (void)setup(NULL);
    cannot_make = true;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    plug_close(&s);
    assert_true(made == 1 && !destroyed && !s.arrival);
    (void)setup(NULL); /* control: one that is in the slot is the slot's */
    b.managed = is_lease = true;
    assert_int_equal(order(DXPU_CONTROL_INSERT), REQUESTS_LATER);
    run_it(NULL);
    plug_work(&loop);
    plug_close(&s);
    assert_true(made == 1 && !destroyed && !s.arrival);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_s160_a_device_is_made_by_one_job, setup),
        cmocka_unit_test_setup(test_s160_the_job_may_end_at_once, setup),
        cmocka_unit_test_setup(test_what_cannot_be_made_leaves_the_slot_empty, setup),
        cmocka_unit_test_setup(test_s249_what_is_promised_does_not_come, setup),
        cmocka_unit_test_setup(test_s248_a_device_leaves_after_its_jobs, setup),
        cmocka_unit_test_setup(test_another_device_comes_when_the_first_has_left, setup),
        cmocka_unit_test_setup(test_m25_a_device_leaves_once_that_is_written, setup),
        cmocka_unit_test_setup(test_m25_a_device_comes_once_that_is_written, setup),
        cmocka_unit_test_setup(test_the_end_of_the_box_destroys_what_was_made, setup),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
