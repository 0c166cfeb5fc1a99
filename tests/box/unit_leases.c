/* unit_leases.c - a manager's leases of slots whose state file the test answers for
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "leases.h"
#include "log.h"
#include "hot_plug.h"
#include "shards.h"

static uint64_t wanted_medium;
static unsigned noted; /* bits of slots */
static unsigned last_code, wiped_count, left_count;
static unsigned left_steps; /* calls after the first */
static int left_ends, wipe_ends;
static unsigned changed; /* bits of slots, as their manager hears of them */
static uint64_t here;    /* the medium of what is in a slot */
static bool is_promised; /* by a record of another slot */
static state_key wanted_key;

static void take_wish(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                      const state_key *key)
{
    (void)s;
    (void)e;
    (void)phase;
    wanted_key = *key;
    wanted_medium = medium;
}

static void take_note(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                      const state_key *key)
{
    noted |= 1u << e->slot;
    take_wish(s, e, phase, medium, key);
}

static bool look_up(state_file *s, unsigned number, uint64_t medium)
{
    (void)s;
    (void)number;
    assert_true(medium > 1);
    return is_promised;
}

static void end_nothing(slot *s, uint8_t reason)
{
    (void)s;
    (void)reason;
}

static void take_code(box *b, unsigned number, unsigned code)
{
    (void)b;
    (void)number;
    last_code = code;
}

static void note_plugged(slot *s, bool kept)
{
    (void)s;
    last_code = kept ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_STATE;
}

static void note_changed(manager_link *m, unsigned number)
{
    (void)m;
    changed |= 1u << number;
}

/* Not linked: replaces state_want(), state_note(), state_promises(), state_uses(), slots_end(),
   shards_answer(), manager_changed() and plug_written(). */
#define manager_changed note_changed
#define state_want      take_wish
#define state_note      take_note
#define state_promises  look_up
#define state_uses      look_up
#define slots_end       end_nothing
#define shards_answer   take_code
#define plug_written    note_plugged
#include "leases.c"
#undef state_want
#undef state_note
#undef state_promises
#undef state_uses
#undef slots_end
#undef shards_answer
#undef plug_written
#undef manager_changed

static int count_wipe(void *device, bool begin)
{
    (void)device;
    wiped_count += begin;
    return wipe_ends;
}

static int count_leave(void *device, bool begin)
{
    (void)device;
    left_count += begin;
    left_steps += !begin;
    return left_ends;
}

static uint64_t medium_here(void *device, bool *pristine)
{
    (void)device;
    *pristine = false;
    return here;
}

enum { MEDIUM = 7, OTHER = 9 };

static const device_kind disk = {
    .name = "disk", .wipe = count_wipe, .leave = count_leave, .medium = medium_here
};
static box b;
static shard loop;
static slot slots[3];
static dxpu_box_entry entries[3];
static uint8_t phase[3];
static uint64_t medium[3];
static state_key lease_key[3];

/* Slot 1 is free, slot 2 lent under epoch 2; they are controllers of one subsystem. */
static int setup(void **state)
{
    (void)state;
    memset(&b, 0, sizeof b);
    memset(&loop, 0, sizeof loop);
    memset(slots, 0, sizeof slots);
    memset(lease_key, 0, sizeof lease_key);
    wiped_count = left_count = left_steps = last_code = noted = changed = 0;
    left_ends = wipe_ends = DEVICE_WIPED;
    here = MEDIUM;
    is_promised = false;
    b.shards = &loop;
    b.shard_count = 1;
    b.count = 2;
    b.slots = slots;
    b.phase = phase;
    b.medium = medium;
    b.lease_key = lease_key;
    b.keys = keys_none();
    b.managed = true;
    loop.box = &b;
    assert_int_equal(dxpu_box_init(&b.table, entries, 2), DXPU_OK);
    b.entries = entries;
    for (unsigned i = 0; i < 2; i++) {
        slots[i].shard = &loop;
        slots[i].kind = &disk;
        slots[i].keeps = true;
        snprintf(slots[i].subsystem, sizeof slots[i].subsystem, "a");
        entries[i].valid = true;
        medium[i] = MEDIUM;
    }
    phase[0] = DXPU_CONTROL_SLOT_WIPED;
    phase[1] = DXPU_CONTROL_SLOT_HELD;
    entries[1].used = true;
    entries[1].epoch = entries[1].epoch_seen = 2;
    entries[1].host_node = 77;
    return 0;
}

/* A lease ends while another one of the subsystem begins, which is on disk, or is not to be. */
static void end_while_lending(bool lent)
{
    const dxpu_control_unbind out = { .slot = 2, .epoch = 2 };
    const dxpu_control_bind in = { .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3 };
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
    leases_written(&b, 2, true);
    leases_work(&loop);
    assert_int_equal(wiped_count + left_count, 0); /* that is not known yet */
    b.pool = (jobs_pool *)&loop;                   /* the write is in another thread */
    assert_false(leases_wiping(&loop));
    leases_written(&b, 1, lent);
    assert_true(leases_wiping(&loop));
    leases_work(&loop);
    assert_int_equal(slots[1].change.by, CHANGE_WIPED);
    leases_written(&b, 2, true);
    assert_int_equal(phase[1], DXPU_CONTROL_SLOT_WIPED);
}

static void test_s249_a_bind_that_is_not_written_saves_no_data(void **state)
{
    (void)state;
    end_while_lending(false);
    assert_int_equal(last_code, DXPU_CONTROL_CODE_STATE);
    assert_true(wiped_count == 1 && left_count == 0);
    assert_int_equal(wanted_medium, MEDIUM);
    (void)setup(NULL);
    end_while_lending(true); /* control */
    assert_true(wiped_count == 0 && left_count == 1);
    assert_int_equal(wanted_medium, 0); /* no start takes it for wiped */
}

/* A lease waits for its medium; its end was not written, so that it goes on with that one. */
static void test_m25_a_lease_that_did_not_end_waits_on(void **state)
{
    const dxpu_control_unbind out = { .slot = 2, .epoch = 2 };
    (void)state;
    for (unsigned kept = 0; kept < 2; kept++) {
        (void)setup(NULL);
        entries[1].used = false;
        phase[1] = DXPU_CONTROL_SLOT_EMPTY;
        slots[1].broken = slots[1].elsewhere = true;
        slots[1].its_phase = DXPU_CONTROL_SLOT_HELD;
        slots[1].its_medium = OTHER;
        assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
        leases_written(&b, 2, kept);
        assert_int_equal(last_code, kept ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_STATE);
        if (kept) { /* control: it is over */
            assert_int_equal(slots[1].its_phase, DXPU_CONTROL_SLOT_EMPTY);
            continue;
        }
        slots[1].kind = &no_device_kind;
        leases_unplugged(&b, 2);
        assert_int_equal(phase[1], DXPU_CONTROL_SLOT_HELD);
        assert_int_equal(medium[1], OTHER);
        assert_true(slots[1].keeps);
    }
}

/* Else nothing would say that the other slot's medium has them. */
static void test_s249_no_other_medium_in_the_slot_of_a_lease_that_others_share(void **state)
{
    (void)state;
    slots[1].kind = &no_device_kind;
    for (uint8_t i = DXPU_CONTROL_SLOT_HELD; i <= DXPU_CONTROL_SLOT_UNWIPED; i++) {
        phase[1] = i;
        here = OTHER;
        assert_int_equal(leases_promised(&b, 2, &disk, NULL), i != DXPU_CONTROL_SLOT_WIPED);
        here = MEDIUM; /* control: its own */
        assert_false(leases_promised(&b, 2, &disk, NULL));
    }
    phase[1] = DXPU_CONTROL_SLOT_UNWIPED; /* control: all controllers are out, and a drive comes */
    slots[0].kind = &no_device_kind;
    here = OTHER;
    assert_false(leases_promised(&b, 2, &disk, NULL));
}

static void test_s249_no_start_takes_for_wiped_what_another_record_has(void **state)
{
    (void)state;
    leases_look(&b);
    assert_int_equal(phase[0], DXPU_CONTROL_SLOT_WIPED);
    is_promised = true;
    leases_look(&b);
    assert_int_equal(phase[0], DXPU_CONTROL_SLOT_EMPTY);
    assert_int_equal(phase[1], DXPU_CONTROL_SLOT_HELD);
}

/* Else a start with the right layout would believe that nothing has come there meanwhile. */
static void test_s163_a_damaged_layout_is_recorded_as_not_wiped(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        (void)setup(NULL);
        slots[0].unfit = slots[1].unfit = true;
        is_promised = i == 1;
        phase[0] = i == 2 ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_WIPED;
        leases_look(&b);
        assert_int_equal(phase[0], DXPU_CONTROL_SLOT_EMPTY);
        assert_int_equal(noted, 1 << 1); /* slot 2's lease stays in the file */
        assert_int_equal(slots[1].its_phase, DXPU_CONTROL_SLOT_HELD);
        assert_true(slots[0].elsewhere && slots[0].its_phase == DXPU_CONTROL_SLOT_EMPTY);
    }
    assert_false(leases_forget(&b, 1)); /* the file has it already */
    slots[0].kind = &no_device_kind;
    leases_unplugged(&b, 1);
    assert_true(phase[0] == DXPU_CONTROL_SLOT_EMPTY && slots[0].keeps);
}

static uint8_t reported(unsigned number)
{
    dxpu_control_device d;
    dxpu_control_slot shown = { .number = 0 };
    leases_device(&b, number, &d);
    slots_describe(&b, number, &shown); /* in an answer, too */
    assert_int_equal(shown.state, d.state);
    return d.state;
}

static const dxpu_control_bind lend_first = {
    .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3
};

/* A box keeps which lease it has, and reports that until it has none. */
static void test_m174_which_lease_it_is(void **state)
{
    dxpu_control_bind in = lend_first;
    const dxpu_control_unbind out = { .slot = 1, .epoch = 3 };
    dxpu_control_device d = { .number = 1 };
    (void)state;
    in.lease = 0xc3;
    in.tenant = 5;
    phase[1] = DXPU_CONTROL_SLOT_WIPED;
    entries[1].used = false;
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
    leases_device(&b, 1, &d);
    assert_int_equal(d.lease, 0); /* not on disk yet */
    leases_written(&b, 1, true);
    leases_device(&b, 1, &d);
    assert_true(d.epoch == 3 && d.lease == 0xc3 && d.tenant == 5);
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    leases_written(&b, 1, true);
    memset(&d, 0, sizeof d);
    leases_device(&b, 1, &d);
    assert_true(d.epoch == 0 && d.lease == 0 && d.tenant == 0);
}

/* It reports whose data it keeps until they are wiped; not where it has not seen the lease that
   ends. */
static void test_m176_whose_data_are_kept(void **state)
{
    dxpu_control_bind in = lend_first;
    dxpu_control_unbind out = { .slot = 1, .epoch = 3, .keep = 1 };
    dxpu_control_device d = { .number = 1 };
    (void)state;
    in.lease = 0xc3;
    in.tenant = 5;
    phase[0] = DXPU_CONTROL_SLOT_WIPED;
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
    leases_written(&b, 1, true);
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    assert_true(wanted_key.lease == 0xc3 && wanted_key.tenant == 5 && !wanted_key.known);
    leases_written(&b, 1, true);
    for (unsigned i = 0; i < 2; i++) {
        memset(&d, 0, sizeof d);
        leases_device(&b, 1, &d);
        assert_int_equal(d.state, DXPU_CONTROL_SLOT_KEPT);
        assert_true(d.epoch == 0 && d.epoch_seen == 3 && d.lease == 0xc3 && d.tenant == 5);
        assert_int_equal(leases_unbind(&b, &out), DXPU_CONTROL_CODE_NONE); /* asked again */
    }
    out.epoch = 4;
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    leases_written(&b, 1, true);
    memset(&d, 0, sizeof d);
    leases_device(&b, 1, &d);
    assert_true(d.state == DXPU_CONTROL_SLOT_KEPT && d.epoch_seen == 4 && !d.lease && !d.tenant);
    in.epoch = 5;
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
    leases_written(&b, 1, true);
    out = (dxpu_control_unbind){ .slot = 1, .epoch = 5 };
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    assert_true(!wanted_key.lease && !wanted_key.tenant);
    leases_written(&b, 1, true);
    memset(&d, 0, sizeof d);
    leases_device(&b, 1, &d);
    assert_true(d.state == DXPU_CONTROL_SLOT_WIPING && !d.lease && !d.tenant);
}

/* A lease of a slot that is not served: its data are not here, or their layout is damaged. */
static void serve_not(unsigned number, uint64_t its_medium, bool unfit)
{
    slot *s = &slots[number - 1];
    entries[number - 1].used = false;
    entries[number - 1].epoch_seen = 2;
    phase[number - 1] = DXPU_CONTROL_SLOT_EMPTY;
    s->broken = s->elsewhere = true;
    s->unfit = unfit;
    s->its_phase = DXPU_CONTROL_SLOT_HELD;
    s->its_medium = its_medium;
}

static void end_lease(unsigned number)
{
    const dxpu_control_unbind out = { .slot = (uint16_t)number, .epoch = 2 };
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    leases_written(&b, number, true);
    leases_work(&loop);
    leases_written(&b, number, true);
    assert_int_equal(phase[number - 1], DXPU_CONTROL_SLOT_WIPED);
}

static void test_s249_a_lease_of_another_medium_does_not_leave_data_here(void **state)
{
    (void)state;
    serve_not(1, OTHER, false);
    serve_not(2, OTHER, false);
    end_lease(2);
    assert_true(wiped_count == 1 && left_count == 0);
    (void)setup(NULL); /* control */
    serve_not(1, MEDIUM, true);
    serve_not(2, MEDIUM, true);
    end_lease(2);
    assert_true(wiped_count == 0 && left_count == 1);
}

static void test_s163_a_damaged_layout_is_not_served_before_an_erasure(void **state)
{
    const dxpu_control_bind in = { .slot = 2, .host_node = 78, .host_slot = 1, .epoch = 3 };
    (void)state;
    serve_not(1, MEDIUM, true);
    serve_not(2, MEDIUM, true);
    end_lease(2);
    assert_true(left_count == 1 && slots[1].unfit && slots[1].broken);
    assert_int_equal(leases_bind(&b, &in), DXPU_CONTROL_CODE_BUSY);
    end_lease(1);
    assert_true(wiped_count == 1 && !slots[1].unfit && !slots[1].broken && !slots[0].unfit);
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
}

/* Nor is a medium good again that was left as it is. */
static void test_s164_a_medium_that_fails_is_broken_until_an_erasure(void **state)
{
    (void)state;
    phase[0] = DXPU_CONTROL_SLOT_HELD;
    entries[0].epoch_seen = 2;
    slots[1].broken = true;
    end_lease(2);
    assert_true(left_count == 1 && slots[1].broken);
    end_lease(1);
    assert_true(wiped_count == 1 && !slots[1].broken);
}

/* The last lease ends meanwhile: its wipe does not make another one of that. */
static void test_s249_a_slot_that_is_leaving_continues_to_leave(void **state)
{
    const dxpu_control_unbind out = { .slot = 1, .epoch = 2 };
    const dxpu_control_unbind later = { .slot = 1, .epoch = 3 };
    const dxpu_control_unbind last = { .slot = 2, .epoch = 2 };
    (void)state;
    phase[0] = DXPU_CONTROL_SLOT_HELD;
    entries[0].epoch_seen = 2;
    left_ends = DEVICE_WIPING;
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    leases_written(&b, 1, true);
    leases_work(&loop);
    assert_true(left_count == 1 && left_steps == 0);
    assert_int_equal(leases_unbind(&b, &later), REQUESTS_LATER);
    assert_int_equal(leases_unbind(&b, &last), REQUESTS_LATER);
    leases_written(&b, 2, true);
    leases_work(&loop);
    assert_int_equal(wiped_count, 1);
    leases_written(&b, 1, true);
    leases_written(&b, 2, true);
    leases_work(&loop);
    assert_true(left_count == 1 && left_steps == 1);
}

/* What only the file says: of slots in other loops, and of those that the box has no more. */
static void test_s249_data_of_a_slot_out_of_sight_are_neither_erased_nor_lent(void **state)
{
    static const device_kind alone = { .name = "alone", .wipe = count_wipe };
    const dxpu_control_bind in = { .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3 };
    const dxpu_control_unbind out = { .slot = 2, .epoch = 2 };
    dxpu_control_device d;
    (void)state;
    medium[0] = OTHER;
    is_promised = true;
    end_lease(2);
    assert_true(wiped_count == 0 && left_count == 1);
    leases_device(&b, 2, &d);
    assert_int_equal(d.state, DXPU_CONTROL_SLOT_EMPTY);
    slots[0].subsystem[0] = '\0';
    assert_int_equal(leases_bind(&b, &in), DXPU_CONTROL_CODE_BUSY);
    (void)setup(NULL);
    slots[1].kind = &alone;
    is_promised = true;
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    leases_written(&b, 2, true);
    leases_work(&loop);
    leases_written(&b, 2, true);
    assert_int_equal(phase[1], DXPU_CONTROL_SLOT_UNWIPED);
    assert_int_equal(wiped_count, 0);
    (void)setup(NULL); /* control */
    medium[0] = OTHER;
    slots[0].subsystem[0] = '\0';
    end_lease(2);
    assert_int_equal(wiped_count, 1);
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
}

/* A device whose record cannot be written is taken out again: what was to be wiped still is. */
static void test_m25_a_device_that_does_not_stay_changes_no_record(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool kept = i % 2, wiped = i / 2;
        (void)setup(NULL);
        entries[1].used = false;
        phase[1] = wiped ? DXPU_CONTROL_SLOT_WIPED : DXPU_CONTROL_SLOT_UNWIPED;
        here = wiped ? OTHER : MEDIUM;
        assert_true(leases_plugged(&b, 2));
        leases_written(&b, 2, kept);
        assert_int_equal(last_code, kept ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_STATE);
        slots[1].kind = &no_device_kind;
        leases_unplugged(&b, 2);
        assert_int_equal(phase[1], wiped ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_UNWIPED);
        assert_int_equal(medium[1], kept && wiped ? OTHER : MEDIUM);
    }
    (void)setup(NULL); /* nor does one that stays */
    assert_true(leases_forget(&b, 1));
    leases_written(&b, 1, false);
    assert_true(phase[0] == DXPU_CONTROL_SLOT_WIPED && medium[0] == MEDIUM);
}

/* Else nothing would say whose data that one has, which another slot may show. */
static void test_m67_another_medium_leaves_the_record_of_one_that_is_unwiped(void **state)
{
    const dxpu_control_unbind out = { .slot = 1, .epoch = 3 };
    (void)state;
    for (unsigned plugged = 0; plugged < 2; plugged++) {
        (void)setup(NULL);
        phase[0] = DXPU_CONTROL_SLOT_UNWIPED;
        medium[0] = OTHER;
        if (plugged)
            assert_false(leases_plugged(&b, 1));
        else
            leases_look(&b);
        assert_int_equal(noted & 1 << 1, 0);
        assert_int_equal(reported(1), DXPU_CONTROL_SLOT_EMPTY);
        assert_true(slots[0].broken);
        assert_int_equal(leases_bind(&b, &lend_first), DXPU_CONTROL_CODE_BUSY);
        slots[0].kind = &no_device_kind;
        leases_unplugged(&b, 1);
        assert_true(phase[0] == DXPU_CONTROL_SLOT_UNWIPED && medium[0] == OTHER && slots[0].keeps);
        slots[0].kind = &disk; /* until an operator has decided */
        assert_false(leases_plugged(&b, 1));
        entries[1].used = false;
        phase[1] = DXPU_CONTROL_SLOT_EMPTY;
        assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
        leases_written(&b, 1, true);
        leases_work(&loop);
        leases_written(&b, 1, true);
        assert_true(wiped_count == 1 && !slots[0].broken && wanted_medium == MEDIUM);
        assert_int_equal(reported(1), DXPU_CONTROL_SLOT_WIPED);
    }
}

/* The disk that could not be wiped there is erased in the slot where it is now. */
static void test_m67_what_was_unwiped_elsewhere_is_erased_here(void **state)
{
    (void)state;
    for (unsigned same = 0; same < 2; same++) {
        (void)setup(NULL);
        slots[0].subsystem[0] = slots[1].subsystem[0] = '\0';
        serve_not(1, MEDIUM, false);
        slots[0].its_phase = DXPU_CONTROL_SLOT_UNWIPED;
        medium[0] = OTHER;
        medium[1] = same ? MEDIUM : OTHER + 1; /* the control: a third disk */
        end_lease(2);
        assert_true(wiped_count == 1 && slots[0].broken);
        assert_int_equal(slots[0].its_phase,
                         same ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_UNWIPED);
        assert_int_equal(reported(1), DXPU_CONTROL_SLOT_EMPTY);
        assert_int_equal(reported(2), DXPU_CONTROL_SLOT_WIPED);
        end_lease(1); /* a repair */
        assert_true(wiped_count == 2 && !slots[0].broken);
    }
}

/* That of a lease that is over is not in the way of this. */
static void test_m25_what_could_not_be_wiped_is_so_without_its_device(void **state)
{
    (void)state;
    serve_not(2, OTHER, false);
    slots[1].its_phase = DXPU_CONTROL_SLOT_EMPTY;
    phase[1] = DXPU_CONTROL_SLOT_UNWIPED;
    slots[1].kind = &no_device_kind;
    leases_unplugged(&b, 2);
    assert_true(phase[1] == DXPU_CONTROL_SLOT_UNWIPED && medium[1] == MEDIUM && slots[1].keeps);
}

/* Nor are they another one's to write over while none is lent who shares them with their tenant. */
static void test_s249_what_is_kept_is_not_lent_to_others(void **state)
{
    const dxpu_control_bind in = { .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3 };
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        (void)setup(NULL);
        slots[0].leaves = true;
        entries[1].used = i == 1; /* control */
        phase[1] = i == 1 ? DXPU_CONTROL_SLOT_HELD : DXPU_CONTROL_SLOT_KEPT;
        if (i == 2) /* control: a tenant of these comes back */
            phase[0] = DXPU_CONTROL_SLOT_KEPT;
        assert_int_equal(leases_bind(&b, &in), i ? REQUESTS_LATER : DXPU_CONTROL_CODE_BUSY);
    }
}

/* The file was lost, or is an old copy: it does not know of the lease of slot 1. */
static void test_s249_a_lease_continues_beside_what_is_kept(void **state)
{
    const dxpu_control_bind in = { .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3 };
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        (void)setup(NULL);
        entries[1].used = false;
        phase[1] = DXPU_CONTROL_SLOT_KEPT;
        phase[0] = i == 0 ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_WIPING;
        slots[0].wipe_waits = i == 1;
        assert_int_equal(leases_bind(&b, &in),
                         i < 2 ? REQUESTS_LATER : DXPU_CONTROL_CODE_BUSY); /* the control */
    }
}

static const dxpu_control_unbind end_second = { .slot = 2, .epoch = 2 };

/* Slot 2 is, by a file that may be an old copy, to be wiped; slot 1 is `mine`. */
static void start_beside_a_wipe(uint8_t mine, uint8_t other)
{
    (void)setup(NULL);
    entries[1].used = false;
    phase[0] = mine;
    phase[1] = other;
    leases_begin(&b);
}

/* Else the wipe, which is ordered next, would find no user of the data. */
static void test_s249_a_lease_continues_beside_what_was_to_be_wiped(void **state)
{
    static const uint8_t others[] = { DXPU_CONTROL_SLOT_WIPING, DXPU_CONTROL_SLOT_UNWIPED };
    static const uint8_t mine[] = { DXPU_CONTROL_SLOT_EMPTY, DXPU_CONTROL_SLOT_WIPING };
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        start_beside_a_wipe(mine[i / 2], others[i % 2]);
        assert_int_equal(leases_bind(&b, &lend_first), REQUESTS_LATER);
        leases_written(&b, 1, true);
        if (leases_unbind(&b, &end_second) == REQUESTS_LATER)
            leases_written(&b, 2, true);
        leases_work(&loop);
        assert_true(wiped_count == 0 && left_count == 1);
    }
    for (unsigned i = 0; i < 2; i++) { /* the control: a new one */
        start_beside_a_wipe(DXPU_CONTROL_SLOT_WIPED, others[i]);
        assert_int_equal(leases_bind(&b, &lend_first), DXPU_CONTROL_CODE_BUSY);
    }
}

/* It would go on with a part of its data. */
static void test_s249_no_lease_continues_with_what_is_being_erased(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        start_beside_a_wipe(waits ? DXPU_CONTROL_SLOT_WIPING : DXPU_CONTROL_SLOT_EMPTY,
                            DXPU_CONTROL_SLOT_UNWIPED);
        wipe_ends = DEVICE_WIPING;
        assert_int_equal(leases_unbind(&b, &end_second), REQUESTS_LATER);
        leases_written(&b, 2, true);
        leases_work(&loop);
        assert_int_equal(wiped_count, 1);
        assert_int_equal(leases_bind(&b, &lend_first), DXPU_CONTROL_CODE_BUSY);
        wipe_ends = DEVICE_UNWIPED;
        leases_work(&loop);
        leases_written(&b, 2, true);
        assert_int_equal(leases_bind(&b, &lend_first), DXPU_CONTROL_CODE_BUSY);
    }
}

/* Else the manager would lend it repeatedly, and each bind would be refused. */
static void test_s249_what_cannot_be_lent_is_not_reported_as_wiped(void **state)
{
    const dxpu_control_bind in = { .slot = 2, .host_node = 78, .host_slot = 1, .epoch = 3 };
    (void)state;
    for (unsigned shared = 0; shared < 2; shared++) {
        (void)setup(NULL);
        slots[0].kind = &no_device_kind; /* its lease goes on */
        phase[0] = DXPU_CONTROL_SLOT_HELD;
        if (!shared)
            slots[1].subsystem[0] = '\0';
        end_lease(2);
        assert_int_equal(left_count, 1);
        assert_int_equal(reported(2), shared ? DXPU_CONTROL_SLOT_WIPED : DXPU_CONTROL_SLOT_EMPTY);
        assert_int_equal(leases_bind(&b, &in), shared ? REQUESTS_LATER : DXPU_CONTROL_CODE_BUSY);
    }
}

static void test_s249_a_manager_hears_of_each_slot_that_is_wiped_no_longer(void **state)
{
    const dxpu_control_unbind out = { .slot = 2, .epoch = 2 };
    (void)state;
    wipe_ends = DEVICE_UNWIPED;
    assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
    leases_written(&b, 2, true);
    leases_work(&loop);
    assert_int_equal(reported(1), DXPU_CONTROL_SLOT_WIPED);
    changed = 0;
    leases_written(&b, 2, true);
    assert_int_equal(reported(1), DXPU_CONTROL_SLOT_EMPTY);
    assert_int_equal(changed, 1 << 1 | 1 << 2);
    (void)setup(NULL); /* a lease ends that has its data elsewhere, so that they are not erased */
    slots[0].leaves = true;
    medium[1] = OTHER;
    serve_not(2, MEDIUM, false);
    assert_int_equal(reported(1), DXPU_CONTROL_SLOT_WIPED);
    end_lease(2);
    assert_int_equal(wiped_count, 1);
    assert_int_equal(reported(1), DXPU_CONTROL_SLOT_EMPTY);
    assert_int_equal(changed, 1 << 1 | 1 << 2);
}

static const dxpu_control_unbind keep_first = { .slot = 1, .epoch = 3, .keep = true };

/* Slot 1, whose data the box does not know, becomes `as`, and what is asked again does not
   change it. */
static void keep(uint8_t as)
{
    for (unsigned again = 0; again < 2; again++) {
        if (leases_unbind(&b, &keep_first) == REQUESTS_LATER)
            leases_written(&b, 1, true);
        assert_int_equal(phase[0], as);
    }
}

/* The box does not know whose data a slot has: they go with those of another one. */
static void test_m64_what_another_slot_erases_is_not_kept(void **state)
{
    (void)state;
    for (unsigned out = 0; out < 2; out++) {
        (void)setup(NULL);
        slots[0].kind = out ? &no_device_kind : &disk;
        phase[0] = DXPU_CONTROL_SLOT_EMPTY;
        wipe_ends = DEVICE_WIPING;
        assert_int_equal(leases_unbind(&b, &end_second), REQUESTS_LATER);
        leases_written(&b, 2, true);
        leases_work(&loop);
        assert_int_equal(leases_unbind(&b, &keep_first), DXPU_CONTROL_CODE_BUSY);
        wipe_ends = DEVICE_UNWIPED;
        leases_work(&loop);
        leases_written(&b, 2, true);
        assert_int_equal(phase[1], DXPU_CONTROL_SLOT_UNWIPED);
        assert_int_equal(leases_unbind(&b, &keep_first), DXPU_CONTROL_CODE_BUSY);
        wipe_ends = DEVICE_WIPED;
        end_lease(2);
        keep(out ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_WIPED);
    }
}

/* A third one of theirs, which a start finds unwiped, erases nothing and is not in the way. */
static void test_m64_keep_waits_for_none_that_does_not_erase(void **state)
{
    (void)state;
    for (unsigned erases = 0; erases < 2; erases++) {
        (void)setup(NULL);
        b.count = 3;
        slots[2] = slots[1];
        slots[2].erases = erases; /* the control */
        medium[2] = MEDIUM;
        phase[0] = DXPU_CONTROL_SLOT_EMPTY;
        phase[2] = DXPU_CONTROL_SLOT_UNWIPED;
        slots[0].erased = true;
        if (erases)
            assert_int_equal(leases_unbind(&b, &keep_first), DXPU_CONTROL_CODE_BUSY);
        end_lease(2);
        keep(DXPU_CONTROL_SLOT_WIPED);
    }
}

/* Nor are those erased that it is to keep, whatever an old copy of the file says of the other
   slot. */
static void test_m64_what_another_slot_does_not_erase_is_kept(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        (void)setup(NULL);
        entries[1].used = false;
        phase[0] = DXPU_CONTROL_SLOT_EMPTY;
        phase[1] = waits ? DXPU_CONTROL_SLOT_WIPING : DXPU_CONTROL_SLOT_UNWIPED;
        slots[1].wipe_waits = waits;
        keep(DXPU_CONTROL_SLOT_KEPT);
        if (leases_unbind(&b, &end_second) == REQUESTS_LATER)
            leases_written(&b, 2, true);
        leases_work(&loop);
        assert_true(wiped_count == 0 && left_count == 1);
    }
    (void)setup(NULL); /* a slot out of sight has the data, and this one leaves them */
    phase[0] = DXPU_CONTROL_SLOT_EMPTY;
    is_promised = true;
    left_ends = DEVICE_WIPING;
    assert_int_equal(leases_unbind(&b, &end_second), REQUESTS_LATER);
    leases_written(&b, 2, true);
    leases_work(&loop);
    assert_int_equal(left_count, 1);
    keep(DXPU_CONTROL_SLOT_KEPT);
}

/* Nor does that hold of a later lease's. */
static void test_m64_what_is_lent_since_is_kept(void **state)
{
    const dxpu_control_bind in = { .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3 };
    const dxpu_control_unbind keep = { .slot = 1, .epoch = 3, .keep = true };
    (void)state;
    phase[0] = DXPU_CONTROL_SLOT_EMPTY;
    end_lease(2);
    assert_true(slots[0].erased);
    assert_int_equal(leases_bind(&b, &in), REQUESTS_LATER);
    leases_written(&b, 1, true);
    assert_int_equal(leases_unbind(&b, &keep), REQUESTS_LATER);
    leases_written(&b, 1, true);
    assert_int_equal(phase[0], DXPU_CONTROL_SLOT_KEPT);
}

/* Nor of another disk. */
static void test_m64_what_has_come_since_is_kept(void **state)
{
    (void)state;
    phase[0] = DXPU_CONTROL_SLOT_EMPTY;
    end_lease(2);
    assert_true(slots[0].erased);
    slots[0].kind = &no_device_kind;
    leases_unplugged(&b, 1);
    slots[0].kind = &disk;
    slots[0].subsystem[0] = '\0';
    here = OTHER;
    assert_true(leases_plugged(&b, 1));
    leases_written(&b, 1, true);
    keep(DXPU_CONTROL_SLOT_KEPT);
}

static uint64_t shown_here(const void *device)
{
    (void)device;
    return here;
}

static uint64_t no_medium(void *device, bool *pristine)
{
    (void)device;
    *pristine = true;
    return 0;
}

static const device_kind reader = {
    .name = "reader", .wipe = count_wipe, .medium = no_medium, .shown = shown_here
};

/* A disk that is only read has nothing of its hosts', and may have what others left there. */
static void test_m25_data_of_another_slot_are_not_read(void **state)
{
    const dxpu_control_bind in = { .slot = 1, .host_node = 78, .host_slot = 1, .epoch = 3 };
    (void)state;
    for (unsigned promised = 0; promised < 2; promised++) {
        (void)setup(NULL);
        is_promised = promised;
        slots[0].kind = &reader;
        slots[0].subsystem[0] = '\0';
        phase[0] = DXPU_CONTROL_SLOT_EMPTY;
        leases_look(&b);
        assert_int_equal(reported(1), promised ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_WIPED);
        assert_int_equal(leases_bind(&b, &in), promised ? DXPU_CONTROL_CODE_BUSY : REQUESTS_LATER);
        assert_int_equal(leases_promised(&b, 1, &reader, NULL), promised);
        medium[1] = NOTHING_LASTS; /* nor by a lease that goes on */
        slots[1].kind = &reader;
        leases_look(&b);
        assert_int_equal(slots[1].elsewhere, promised);
        assert_int_equal(phase[1], promised ? DXPU_CONTROL_SLOT_EMPTY : DXPU_CONTROL_SLOT_HELD);
    }
}

/* Nor does the end of a lease leave its data to be read. */
static void test_m25_data_on_a_disk_that_is_only_read_now_are_not_wiped(void **state)
{
    const dxpu_control_unbind out = { .slot = 2, .epoch = 2 };
    (void)state;
    for (unsigned own = 0; own < 2; own++) {
        (void)setup(NULL);
        slots[0].kind = &no_device_kind;
        slots[1].kind = &reader;
        slots[1].subsystem[0] = '\0';
        medium[1] = own ? MEDIUM : NOTHING_LASTS;
        leases_look(&b);
        assert_int_equal(phase[1], DXPU_CONTROL_SLOT_HELD); /* its tenant may read them */
        assert_false(slots[1].elsewhere);
        assert_int_equal(leases_unbind(&b, &out), REQUESTS_LATER);
        leases_written(&b, 2, true);
        leases_work(&loop);
        leases_written(&b, 2, true);
        assert_int_equal(phase[1], own ? DXPU_CONTROL_SLOT_UNWIPED : DXPU_CONTROL_SLOT_WIPED);
        assert_int_equal(medium[1], own ? MEDIUM : NOTHING_LASTS); /* what the record says */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_s249_a_bind_that_is_not_written_saves_no_data, setup),
        cmocka_unit_test_setup(test_m25_a_lease_that_did_not_end_waits_on, setup),
        cmocka_unit_test_setup(test_s249_no_other_medium_in_the_slot_of_a_lease_that_others_share,
                               setup),
        cmocka_unit_test_setup(test_s249_no_start_takes_for_wiped_what_another_record_has, setup),
        cmocka_unit_test_setup(test_s163_a_damaged_layout_is_recorded_as_not_wiped, setup),
        cmocka_unit_test_setup(test_s249_a_lease_of_another_medium_does_not_leave_data_here, setup),
        cmocka_unit_test_setup(test_m174_which_lease_it_is, setup),
        cmocka_unit_test_setup(test_m176_whose_data_are_kept, setup),
        cmocka_unit_test_setup(test_s163_a_damaged_layout_is_not_served_before_an_erasure, setup),
        cmocka_unit_test_setup(test_s164_a_medium_that_fails_is_broken_until_an_erasure, setup),
        cmocka_unit_test_setup(test_s249_a_slot_that_is_leaving_continues_to_leave, setup),
        cmocka_unit_test_setup(test_s249_data_of_a_slot_out_of_sight_are_neither_erased_nor_lent,
                               setup),
        cmocka_unit_test_setup(test_s249_what_is_kept_is_not_lent_to_others, setup),
        cmocka_unit_test_setup(test_s249_a_lease_continues_beside_what_is_kept, setup),
        cmocka_unit_test_setup(test_s249_a_lease_continues_beside_what_was_to_be_wiped, setup),
        cmocka_unit_test_setup(test_s249_no_lease_continues_with_what_is_being_erased, setup),
        cmocka_unit_test_setup(test_s249_what_cannot_be_lent_is_not_reported_as_wiped, setup),
        cmocka_unit_test_setup(test_s249_a_manager_hears_of_each_slot_that_is_wiped_no_longer,
                               setup),
        cmocka_unit_test_setup(test_m64_what_another_slot_erases_is_not_kept, setup),
        cmocka_unit_test_setup(test_m64_keep_waits_for_none_that_does_not_erase, setup),
        cmocka_unit_test_setup(test_m64_what_another_slot_does_not_erase_is_kept, setup),
        cmocka_unit_test_setup(test_m64_what_is_lent_since_is_kept, setup),
        cmocka_unit_test_setup(test_m64_what_has_come_since_is_kept, setup),
        cmocka_unit_test_setup(test_m25_data_of_another_slot_are_not_read, setup),
        cmocka_unit_test_setup(test_m25_data_on_a_disk_that_is_only_read_now_are_not_wiped, setup),
        cmocka_unit_test_setup(test_m25_a_device_that_does_not_stay_changes_no_record, setup),
        cmocka_unit_test_setup(test_m67_another_medium_leaves_the_record_of_one_that_is_unwiped,
                               setup),
        cmocka_unit_test_setup(test_m67_what_was_unwiped_elsewhere_is_erased_here, setup),
        cmocka_unit_test_setup(test_m25_what_could_not_be_wiped_is_so_without_its_device, setup),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
