/* unit_attachment.c - what a keeper remembers of an attachment, and what a keeper that was taken
   over makes of it
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "attachment.h"
#include "control.h"

#include <string.h>

static fabric net;
static crossing worker, keeper;
static uint8_t key[CROSSING_KEY_BYTES];
static dxpu_udp_address box;
static uint8_t remembered[CROSSING_PAYLOAD_MAX];
static size_t remembered_bytes;

/* What the keeper is to remember, from an attachment that a worker makes. */
static void make_memory(void)
{
    attachment first;
    crossing_record r;
    assert_int_equal(attachment_init(&first, 2, 1, &net, &worker, key), 0);
    assert_int_equal(attachment_begin(&first, &box, 1, 3, NULL, 7, 0), 0);
    assert_true(crossing_get(&keeper, &r) && r.kind == CROSSING_BEGIN && r.slot == 2);
    remembered_bytes = r.bytes;
    memcpy(remembered, keeper.payload, r.bytes);
    attachment_free(&first);
}

static int setup(void **state)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { 0 };
    crossing_fds fds, copy;
    (void)state;
    set.keys = keys_none();
    assert_int_equal(fabric_open(&net, &set, 8, &cb), 0);
    assert_int_equal(crossing_create(&fds), 0);
    copy.memory = dup(fds.memory);
    for (unsigned i = 0; i < 2; i++) {
        copy.keeper[i] = dup(fds.keeper[i]);
        copy.worker[i] = dup(fds.worker[i]);
    }
    assert_int_equal(crossing_open(&keeper, &fds, true), 0);
    assert_int_equal(crossing_open(&worker, &copy, false), 0);
    memset(key, 7, sizeof key);
    assert_null(dxpu_udp_parse("127.0.0.1:9", &box));
    make_memory();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    crossing_close(&keeper);
    crossing_close(&worker);
    return fabric_close(&net);
}

/* What the next worker says to these bytes for this slot. */
static int recall(unsigned number, const uint8_t *bytes, size_t len)
{
    attachment next;
    int rc;
    assert_int_equal(attachment_init(&next, number, 1, &net, &worker, key), 0);
    rc = attachment_recall(&next, bytes, len, 0);
    assert_int_equal(next.attached, !rc);
    assert_int_equal(next.channel != NULL, !rc);
    attachment_free(&next);
    return rc;
}

static void test_s184_what_a_worker_made_is_attached_again(void **state)
{
    (void)state;
    assert_int_equal(recall(2, remembered, remembered_bytes), 0);
}

/* Another box, epoch, key, slot of it: each byte counts. */
static void test_s184_what_no_worker_made_is_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < remembered_bytes; i++) {
        uint8_t forged[sizeof remembered];
        memcpy(forged, remembered, remembered_bytes);
        forged[i] ^= 1;
        assert_int_equal(recall(2, forged, remembered_bytes), ATTACHMENT_FORGED);
    }
    for (size_t n = 0; n < remembered_bytes; n++)
        assert_int_equal(recall(2, remembered, n), ATTACHMENT_FORGED);
    assert_int_equal(recall(2, remembered, remembered_bytes + 1), ATTACHMENT_FORGED);
}

/* Nor another slot's, nor another guest's. */
static void test_s184_what_is_anothers_is_not(void **state)
{
    (void)state;
    assert_int_equal(recall(1, remembered, remembered_bytes), ATTACHMENT_FORGED);
    key[0] ^= 1;
    assert_int_equal(recall(2, remembered, remembered_bytes), ATTACHMENT_FORGED);
    key[0] ^= 1;
    assert_int_equal(recall(2, remembered, remembered_bytes), 0); /* the control */
}

/* A channel was lost, and the box's key is known no more: it is not dialed, which says nothing of
   the box, however often. */
static void test_m160_without_its_key_it_is_not_dialed(void **state)
{
    (void)state;
    attachment a;
    keys_settings none = { NULL, NULL, NULL, false, false };
    keys *plain = net.keys, *other;
    bool wrong;
    uint64_t now = 1;
    assert_non_null(other = keys_open(&none, &wrong));
    assert_int_equal(attachment_init(&a, 2, 0, &net, &worker, key), 0);
    assert_int_equal(attachment_reached(&a), DXPU_CONTROL_REACH_UNKNOWN);
    assert_int_equal(attachment_begin(&a, &box, 1, 3, NULL, 7, now), 0);
    assert_int_equal(attachment_reached(&a), DXPU_CONTROL_REACH_TRYING);
    a.last_error = DXPU_E_NO_ANSWER; /* of the channel that is over */
    a.attempts = 2;
    assert_int_equal(attachment_reached(&a), DXPU_CONTROL_REACH_SILENT);
    a.attempts = 0;
    a.node = 1;
    net.keys = other;
    for (unsigned i = 0; i < 4; i++) {
        a.dial_ns = now;
        attachment_tick(&a, now);
        assert_null(a.channel);
        assert_true(a.attempts == i + 1u);
        assert_int_equal(attachment_reached(&a), DXPU_CONTROL_REACH_TRYING);
    }
    net.keys = plain;
    attachment_free(&a);
    keys_close(other);
}

/* A device would wait for ever for what its host has no memory to keep. */
static void test_without_memory_for_a_tlp_the_channel_ends(void **state)
{
    static const uint8_t completion[12];
    crossing_record r = { .bytes = sizeof completion, .kind = CROSSING_TLP, .slot = 2 };
    attachment a;
    (void)state;
    assert_int_equal(attachment_init(&a, 2, 1, &net, &worker, key), 0);
    assert_int_equal(attachment_begin(&a, &box, 1, 3, NULL, 7, 0), 0);
    a.up = true;
    r.life = a.life;
    r.arg = DXPU_COMPLETION;
    attachment_hear(&a, &r, completion); /* the control */
    assert_int_equal(queue_used(&a.down, DXPU_COMPLETION), 1);
    assert_int_not_equal(dxpu_channel_status(&a.channel->ch).state, DXPU_STATE_FAILED);
    a.down.cls[DXPU_COMPLETION].capacity = 1; /* as if there were no more memory */
    attachment_hear(&a, &r, completion);
    assert_int_equal(dxpu_channel_status(&a.channel->ch).state, DXPU_STATE_FAILED);
    assert_int_equal(dxpu_channel_status(&a.channel->ch).reason, DXPU_REASON_BUSY);
    a.up = false;
    attachment_free(&a);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s184_what_a_worker_made_is_attached_again),
        CASE(test_s184_what_no_worker_made_is_not),
        CASE(test_s184_what_is_anothers_is_not),
        CASE(test_without_memory_for_a_tlp_the_channel_ends),
        CASE(test_m160_without_its_key_it_is_not_dialed),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
