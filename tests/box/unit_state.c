/* unit_state.c - the file of leases: what is written when, over disks that the test lets answer
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "directory_sync.h"
#include "dxpu_control.h"
#include "program.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, LOOPS = 2 };

/* ==== Two loops, and the disk ================================================================= */

typedef struct loop {
    job *away, *over;
    unsigned begun;          /* writes */
    unsigned reported, kept; /* bits of slots */
} loop;

static loop loops[LOOPS];
static char dir[32], file[48];
static dxpu_box_entry entries[SLOTS];
static dxpu_box_table table;
static state_file *s;
static void (*on_told)(unsigned number);

static void submit(void *user, job *j)
{
    loop *l = user;
    assert_null(l->away);
    l->away = j;
    l->begun++;
}

static job *reap(void *user)
{
    loop *l = user;
    job *j = l->over;
    l->over = NULL;
    return j;
}

static void answer(loop *l)
{
    job *j = l->away;
    assert_non_null(j);
    l->away = NULL;
    j->run(j);
    l->over = j;
}

static void wait_for(void *user)
{
    loop *l = user;
    if (l->away)
        answer(l);
}

static void result(void *user, unsigned number, bool kept)
{
    loop *l = user;
    assert_int_equal((number - 1) % LOOPS, l - loops);
    assert_int_equal(l->reported >> number & 1, 0);
    l->reported |= 1u << number;
    l->kept |= (unsigned)kept << number;
    if (on_told)
        on_told(number);
}

static int open_file(void)
{
    int status = 0;
    memset(entries, 0, sizeof entries);
    memset(loops, 0, sizeof loops);
    on_told = NULL;
    assert_int_equal(dxpu_box_init(&table, entries, SLOTS), DXPU_OK);
    s = state_open(file, LOOPS, &table, NULL, NULL, NULL, &status);
    for (unsigned i = 0; s && i < LOOPS; i++) {
        jobs j = { &loops[i], submit, reap, NULL, wait_for };
        state_serve(s, i, &j, result, &loops[i]);
    }
    return status;
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/unit_state.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/state", dir);
    assert_int_equal(open_file(), 0);
    assert_int_equal(state_begin(s), 0);
    return 0;
}

static int teardown(void **state)
{
    char path[64];
    (void)state;
    state_close(s);
    s = NULL;
    (void)unlink(file);
    snprintf(path, sizeof path, "%s.lock", file);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    return 0;
}

static void be_full(bool full)
{
    char path[64];
    snprintf(path, sizeof path, "%s.new", file);
    assert_int_equal(full ? mkdir(path, 0700) : rmdir(path), 0);
}

/* A lease of this slot under this epoch. */
static void want(unsigned number, uint64_t epoch)
{
    static const state_key none;
    dxpu_box_entry e = { .slot = (uint16_t)number, .epoch_seen = epoch };
    state_want(s, &e, DXPU_CONTROL_SLOT_EMPTY, 0, &none);
}

static unsigned long long on_disk(unsigned number)
{
    unsigned long long found = 0, epoch;
    unsigned slot, node, host_slot;
    char text[200];
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) {
        assert_int_equal(sscanf(text, "%u %llu %u %u", &slot, &epoch, &node, &host_slot), 4);
        if (slot == number)
            found = epoch;
    }
    fclose(f);
    return found;
}

/* ==== Tests =================================================================================== */

/* Reported behind the disk's answer, in the loop's turn. */
static void test_s165_reported_when_it_is_on_disk(void **state)
{
    (void)state;
    want(1, 7);
    assert_true(state_writes(s, 0) && !state_writes(s, 1));
    state_work(s, 0);
    assert_int_equal(loops[0].reported, 0);
    assert_int_equal(on_disk(1), 0);
    answer(&loops[0]);
    assert_int_equal(on_disk(1), 7);
    assert_int_equal(loops[0].reported, 0);
    state_work(s, 0);
    assert_int_equal(loops[0].kept, 1 << 1);
    assert_false(state_writes(s, 0));
}

/* All requests while one write waits go with the next one. */
static void test_s165_several_are_one_write(void **state)
{
    (void)state;
    want(1, 7);
    want(3, 8); /* the first has not begun: with it */
    answer(&loops[0]);
    assert_int_equal(on_disk(3), 8);
    state_work(s, 0);
    assert_int_equal(loops[0].kept, 1 << 1 | 1 << 3);
    assert_int_equal(loops[0].begun, 1);
    loops[0].reported = 0;
    want(1, 9);
    answer(&loops[0]);
    want(3, 10); /* it is over: with the next */
    assert_int_equal(on_disk(3), 8);
    state_work(s, 0);
    assert_int_equal(loops[0].reported, 1 << 1);
    assert_int_equal(loops[0].begun, 3);
    answer(&loops[0]);
    state_work(s, 0);
    assert_int_equal(loops[0].reported, 1 << 1 | 1 << 3);
    assert_int_equal(on_disk(1), 9);
    assert_int_equal(on_disk(3), 10);
}

/* One loop's write takes what the other wants, and the other's has nothing left to do. */
static void test_s165_of_all_loops(void **state)
{
    (void)state;
    want(1, 7);
    want(2, 8);
    answer(&loops[1]);
    assert_int_equal(on_disk(1), 7);
    state_work(s, 1);
    assert_int_equal(loops[1].kept, 1 << 2);
    assert_int_equal(loops[0].reported, 0); /* its own loop reports it */
    assert_int_equal(unlink(file), 0);
    answer(&loops[0]);
    state_work(s, 0);
    assert_int_equal(loops[0].kept, 1 << 1);
    assert_int_equal(access(file, F_OK), -1); /* it was not written again */
}

/* A write that fails refuses what its loop wanted; another loop's is tried again by its own. */
static void test_s165_a_full_disk(void **state)
{
    (void)state;
    want(1, 7);
    want(2, 8);
    be_full(true);
    answer(&loops[1]);
    state_work(s, 1);
    assert_int_equal(loops[1].reported, 1 << 2);
    assert_int_equal(loops[1].kept, 0);
    be_full(false);
    answer(&loops[0]);
    state_work(s, 0);
    assert_int_equal(loops[0].kept, 1 << 1);
    assert_int_equal(on_disk(1), 7);
    assert_int_equal(on_disk(2), 0); /* what was refused does not come back with another's write */
    loops[1].reported = 0;
    want(2, 9);
    answer(&loops[1]);
    state_work(s, 1);
    assert_int_equal(loops[1].kept, 1 << 2);
    assert_int_equal(on_disk(2), 9);
}

/* The new file is there, and a crash may undo it: the lease is refused, so its line must not be
   found by a later start. */
static void test_s165_a_directory_that_cannot_be_synced(void **state)
{
    (void)state;
    want(1, 7);
    answer(&loops[0]);
    state_work(s, 0);
    for (unsigned failing = 1; failing <= 2; failing++) { /* the second: putting it back, too */
        loops[0].reported = loops[0].kept = 0;
        directory_syncs_fail = failing;
        want(1, 8);
        answer(&loops[0]);
        state_work(s, 0);
        assert_int_equal(directory_syncs_fail, 0);
        assert_int_equal(loops[0].reported, 1 << 1);
        assert_int_equal(loops[0].kept, 0);
        assert_int_equal(on_disk(1), 7);
    }
    loops[0].reported = 0;
    want(1, 9);
    answer(&loops[0]);
    state_work(s, 0);
    assert_int_equal(loops[0].kept, 1 << 1);
    assert_int_equal(on_disk(1), 9);
}

static void again(unsigned number)
{
    on_told = NULL;
    loops[0].reported = 0;
    want(number, 20);
}

/* The callback may request the next change of the same slot. */
static void test_s165_wanted_when_reported(void **state)
{
    (void)state;
    want(1, 7);
    on_told = again;
    answer(&loops[0]);
    state_work(s, 0);
    assert_int_equal(loops[0].reported, 0);
    assert_true(state_writes(s, 0));
    answer(&loops[0]);
    state_work(s, 0);
    assert_int_equal(loops[0].reported, 1 << 1);
    assert_int_equal(on_disk(1), 20);
}

/* Also what no write has begun for. */
static void test_s165_the_end_writes_all(void **state)
{
    (void)state;
    want(1, 7);
    answer(&loops[0]);
    want(3, 8);
    want(2, 9);
    state_close(s);
    s = NULL;
    assert_int_equal(loops[0].reported | loops[1].reported, 0);
    assert_int_equal(open_file(), 0);
    assert_int_equal(entries[0].epoch_seen, 7);
    assert_int_equal(entries[2].epoch_seen, 8);
    assert_int_equal(entries[1].epoch_seen, 9);
}

static void test_m25_data_of_other_slots(void **state)
{
    static const state_key none;
    (void)state;
    for (uint8_t i = DXPU_CONTROL_SLOT_EMPTY; i <= DXPU_CONTROL_SLOT_UNWIPED; i++) {
        bool uses = i == DXPU_CONTROL_SLOT_HELD || i == DXPU_CONTROL_SLOT_KEPT;
        bool none_has = i == DXPU_CONTROL_SLOT_EMPTY || i == DXPU_CONTROL_SLOT_WIPED;
        state_note(s, &entries[0], i, 7, &none);
        assert_int_equal(state_uses(s, 2, 7), uses);
        assert_int_equal(state_promises(s, 2, 7), !none_has);
        assert_false(state_uses(s, 1, 7) || state_promises(s, 1, 7)); /* its own */
        assert_false(state_uses(s, 2, 8) || state_promises(s, 2, 8));
    }
    state_note(s, &entries[0], DXPU_CONTROL_SLOT_WIPED, 7, &none);
    state_want(s, &entries[0], DXPU_CONTROL_SLOT_HELD, 7, &none); /* not on disk yet */
    assert_true(state_uses(s, 2, 7) && state_promises(s, 2, 7));
}

/* Another slot may have a tenant's data there by the time that the box has this one again. */
static void test_m25_a_slot_that_is_not_there_is_not_wiped(void **state)
{
#define MEDIUM " 0000000000000007\n"
    uint8_t phase[SLOTS] = { 0 };
    uint64_t medium[SLOTS] = { 0 };
    state_key key[SLOTS];
    char text[400] = "";
    int status = 0;
    FILE *f;
    (void)state;
    state_close(s);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs("1 5 0 0 wiped" MEDIUM "8 5 0 0 wiped" MEDIUM "9 6 0 0 kept" MEDIUM, f);
    fclose(f);
    s = state_open(file, LOOPS, &table, phase, medium, key, &status);
    assert_non_null(s);
    assert_int_equal(state_begin(s), 0);
    f = fopen(file, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_string_equal(text, "1 5 0 0 wiped" MEDIUM "2 0 0 0\n3 0 0 0\n4 0 0 0\n8 5 0 0\n"
                              "9 6 0 0 kept" MEDIUM);
#undef MEDIUM
}

static int read_text(const char *text, uint8_t *phase, state_key *key)
{
    uint64_t medium[SLOTS] = { 0 };
    int status = 0;
    FILE *f;
    state_close(s);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    s = state_open(file, LOOPS, &table, phase, medium, key, &status);
    return status;
}

/* Which lease a slot has comes back at the next start, with a key and without; without either there
   is neither. */
static void test_m174_lease(void **state)
{
#define KEY   " key=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
#define LEASE " lease=00000000000000c3:ffeeddccbbaa9988"
    static const char text[] = "1 5 1 1 held" LEASE "\n2 6 1 2 held" KEY LEASE "\n"
                               "3 7 1 3 held" KEY "\n4 8 1 4 kept" LEASE "\n";
    static const char *const bad[] = { " lease=",
                                       " lease=c3:1",
                                       LEASE "0",
                                       LEASE " ",
                                       " lease=0000000000000000:ffeeddccbbaa9988",
                                       LEASE KEY,
                                       LEASE LEASE,
                                       " later",
                                       " later=",
                                       " later=1  ",
                                       " =1",
                                       " later=1" KEY,
                                       " later=1" LEASE };
    uint8_t phase[SLOTS] = { 0 };
    state_key key[SLOTS];
    char back[600] = "", line[200];
    FILE *f;
    (void)state;
    assert_int_equal(read_text(text, phase, key), 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_int_equal(key[i].lease, i != 2 ? 0xc3 : 0);
        assert_int_equal(key[i].tenant, i != 2 ? 0xffeeddccbbaa9988u : 0);
        assert_int_equal(key[i].known, i == 1 || i == 2);
    }
    assert_int_equal(state_begin(s), 0);
    f = fopen(file, "r");
    assert_non_null(f);
    assert_true(fread(back, 1, sizeof back - 1, f) > 0);
    fclose(f);
    assert_string_equal(back, text);
    assert_int_equal(read_text("1 5 1 1 held" LEASE " later=1 still_later=a:b\n", phase, key), 0);
    assert_int_equal(key[0].lease, 0xc3); /* a later version's words are read over */
    memset(key, 0xff, sizeof key);
    assert_int_equal(read_text("1 5 1 1 held\n", phase, key), 0);
    assert_true(!key[0].known && !key[0].lease && !key[0].tenant);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, "1 5 1 1 held%s\n", bad[i]);
        assert_int_equal(read_text(line, phase, key), PROGRAM_DAMAGED);
    }
#undef KEY
#undef LEASE
}

/* A second box would forget the first one's leases. */
static void test_one_box_has_a_file(void **state)
{
    state_file *first = s;
    (void)state;
    assert_int_equal(open_file(), PROGRAM_SYSTEM);
    assert_null(s);
    s = first;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s165_reported_when_it_is_on_disk),
        CASE(test_s165_several_are_one_write),
        CASE(test_s165_of_all_loops),
        CASE(test_s165_a_full_disk),
        CASE(test_s165_a_directory_that_cannot_be_synced),
        CASE(test_s165_wanted_when_reported),
        CASE(test_s165_the_end_writes_all),
        CASE(test_m25_data_of_other_slots),
        CASE(test_m25_a_slot_that_is_not_there_is_not_wiped),
        CASE(test_m174_lease),
        CASE(test_one_box_has_a_file),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
