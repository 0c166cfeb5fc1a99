/* unit_access.c - accesses of a guest, whatever completions a device sends for them
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "access.h"
#include "dxpu_libevent.h"

enum { HOLD_NS = 1000000, TOKEN = 1000 };

static access_table t;
static unsigned answered, written, altered;
static uint64_t last_token;
static uint8_t last[ACCESS_BYTES];

int dxpu_vfu_reply_read(dxpu_vfu *s, uint64_t token, const void *data, size_t bytes)
{
    (void)s;
    answered++;
    last_token = token;
    assert_in_range(bytes, 1, ACCESS_BYTES);
    memcpy(last, data, bytes);
    return DXPU_OK;
}

int dxpu_vfu_reply_write(dxpu_vfu *s, uint64_t token)
{
    (void)s;
    written++;
    last_token = token;
    return DXPU_OK;
}

uint32_t dxpu_vfu_memory_changes(const dxpu_vfu *s)
{
    (void)s;
    return 0;
}

bool dxpu_vfu_memory_at(const dxpu_vfu *s, uint32_t index, dxpu_vfu_memory *out)
{
    (void)s;
    (void)index;
    (void)out;
    return false;
}

static void on_answer(void *user, guest_access *a)
{
    (void)user;
    altered++;
    a->data[0] = 0xaa;
}

static unsigned unread_at, unread_bytes, unread_times;

static void on_unread(void *user, guest_access *a, uint32_t at, uint32_t bytes)
{
    (void)user;
    unread_times++;
    unread_at = at;
    unread_bytes = bytes;
    a->data[at] = 0x77;
}

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    access_init(&t, HOLD_NS);
    t.answers = on_answer;
    answered = written = altered = unread_times = 0;
    return 0;
}

static dxpu_vfu_access of(uint64_t token, uint32_t bytes)
{
    dxpu_vfu_access v;
    memset(&v, 0, sizeof v);
    v.token = token;
    v.bytes = bytes;
    return v;
}

static guest_access *begin(uint64_t token, uint32_t bytes, unsigned tlps)
{
    const dxpu_vfu_access v = of(token, bytes);
    guest_access *a = access_new(&t, &v);
    assert_non_null(a);
    a->tlps = tlps;
    access_sent(&t, a);
    return a;
}

static void complete(uint64_t part, unsigned status, const uint8_t *data, size_t bytes,
                     unsigned byte_count, unsigned lower, bool end)
{
    dxpu_tlp cpl;
    memset(&cpl, 0, sizeof cpl);
    cpl.status = (uint8_t)status;
    cpl.payload.ptr = data;
    cpl.payload.len = bytes;
    cpl.byte_count = (uint16_t)byte_count;
    cpl.lower_addr = (uint8_t)lower;
    access_completed(&t, &cpl, part, end);
}

static void test_v17_each_access_is_answered_once(void **state)
{
    static const uint8_t data[4] = { 1, 2, 3, 4 };
    guest_access *a = begin(TOKEN, 4, 1);
    uint64_t part = access_part(&t, a, 0, 4, 0);
    (void)state;
    complete(part, DXPU_CPL_SC, data, 4, 4, 0, true);
    assert_int_equal(answered, 1);
    assert_int_equal(last[0], 0xaa);
    assert_memory_equal(last + 1, data + 1, 3);
    complete(part, DXPU_CPL_SC, data, 4, 4, 0, true); /* twice */
    assert_int_equal(answered, 1);
    t.next = (unsigned)(a - t.entry); /* the place has another access by now */
    assert_ptr_equal(begin(TOKEN + 1, 4, 1), a);
    complete(part, DXPU_CPL_SC, data, 4, 4, 0, true);
    assert_int_equal(answered, 1);
    access_expire(&t, dxpu_udp_now_ns() + HOLD_NS + 2 * (uint64_t)ACCESS_MARGIN_NS);
    assert_int_equal(answered, 2);
    assert_int_equal(last_token, TOKEN + 1);
    assert_int_equal(t.timeouts, 1);
}

static void test_v17_as_many_as_there_are_places(void **state)
{
    const dxpu_vfu_access v = of(1, 4), large = of(1, ACCESS_BYTES + 1);
    (void)state;
    assert_null(access_new(&t, &large));
    for (unsigned i = 0; i < ACCESSES; i++)
        (void)begin(TOKEN + i, 4, 1);
    assert_null(access_new(&t, &v));
    access_forget(&t);
    assert_non_null(access_new(&t, &v));
    assert_int_equal(answered, 0);
}

/* What the owner keeps does not go into an answer that the device gave no part of. */
static void test_v45_missing_data_is_all_ones(void **state)
{
    static const uint8_t ones[4] = { 0xff, 0xff, 0xff, 0xff }, data[4] = { 1, 2, 3, 4 };
    static const uint8_t status[] = { DXPU_CPL_UR, DXPU_CPL_CA, DXPU_CPL_CRS };
    guest_access *a;
    (void)state;
    for (unsigned i = 0; i < sizeof status; i++) {
        a = begin(TOKEN, 4, 1);
        complete(access_part(&t, a, 0, 4, 0), status[i], data, 4, 4, 0, true);
        assert_memory_equal(last, ones, 4);
    }
    a = begin(TOKEN, 4, 1);
    access_completed(&t, NULL, access_part(&t, a, 0, 4, 0), true);
    assert_memory_equal(last, ones, 4);
    (void)begin(TOKEN, 4, 1);
    access_expire(&t, dxpu_udp_now_ns() + HOLD_NS + 2 * (uint64_t)ACCESS_MARGIN_NS);
    assert_memory_equal(last, ones, 4);
    assert_int_equal(altered, 0);
    (void)begin(TOKEN, 4, 0); /* no device is asked for it: the owner's alone */
    assert_int_equal(altered, 1);
    assert_int_equal(answered, 6);
}

static bool send_nothing(void *user, dxpu_tlp *tlp, uint64_t part)
{
    (void)user;
    (void)tlp;
    (void)part;
    return false;
}

/* Of each part without data its owner says what it reads; of a write there is nothing to say. */
static void test_v51_parts_without_data(void **state)
{
    static const uint8_t data[8] = { 1, 2, 3, 4 };
    dxpu_vfu_access v = of(TOKEN, 8);
    guest_access *a = begin(TOKEN, 8, 2);
    uint64_t first = access_part(&t, a, 0, 4, 0), second = access_part(&t, a, 4, 4, 0);
    (void)state;
    t.unread = on_unread;
    complete(first, DXPU_CPL_SC, data, 4, 4, 0, true);
    assert_int_equal(unread_times, 0);
    access_completed(&t, NULL, second, true);
    assert_true(unread_times == 1 && unread_at == 4 && unread_bytes == 4);
    assert_memory_equal(last, "\1\2\3\4\x77\xff\xff\xff", 8);
    a = begin(TOKEN, 8, 1);
    complete(access_part(&t, a, 1, 2, 0), DXPU_CPL_UR, NULL, 0, 4, 0, true);
    assert_true(unread_times == 2 && unread_at == 1 && unread_bytes == 2);
    a = access_new(&t, &v);
    t.send = send_nothing;
    access_transfer(&t, 0xffc, 8, NULL, a); /* two requests */
    assert_true(unread_times == 4 && unread_at == 4 && unread_bytes == 4);
    access_transfer(&t, 0xffc, 8, data, NULL);
    a = access_new_write(&t, &v);
    a->tlps = 1;
    access_sent(&t, a);
    access_completed(&t, NULL, access_part(&t, a, 0, 4, 0), true);
    assert_true(unread_times == 4 && written == 1);
}

static void test_v17_completions_in_parts(void **state)
{
    uint8_t data[ACCESS_BYTES];
    guest_access *a = begin(TOKEN, ACCESS_BYTES, 1);
    uint64_t part = access_part(&t, a, 0, ACCESS_BYTES, 0);
    (void)state;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    complete(part, DXPU_CPL_SC, data, 40, ACCESS_BYTES, 0, false);
    assert_int_equal(answered, 0);
    complete(part, DXPU_CPL_SC, data + 40, 24, 24, 40, true);
    data[0] = 0xaa;
    assert_memory_equal(last, data, sizeof data);
}

/* Any size and position: nothing but the part's bytes changes. */
static void test_v17_completions_that_lie(void **state)
{
    static uint8_t data[4096];
    (void)state;
    t.answers = NULL;
    for (unsigned count = 0; count < 4096; count += 3) {
        for (unsigned skip = 0; skip < 4; skip++) {
            guest_access *a = begin(TOKEN, ACCESS_BYTES, 1);
            uint64_t part = access_part(&t, a, 8, 4, skip);
            complete(part, DXPU_CPL_SC, data, count, count * 7 % 4097, count, true);
            for (unsigned i = 0; i < ACCESS_BYTES; i++)
                assert_true(last[i] == 0xff || (i >= 8 && i < 12));
        }
    }
}

static void test_writes_are_combined_within_a_line(void **state)
{
    static const uint8_t data[REQUEST_BYTES] = { 0 };
    write_line l;
    (void)state;
    memset(&l, 0, sizeof l);
    assert_int_equal(line_append(&l, 0x100, data, 4), LINE_OTHER);
    assert_int_equal(line_begin(&l, 0x13c, data, 8), LINE_OTHER); /* over the end */
    assert_int_equal(line_begin(&l, 0x100, data, 4), LINE_TAKEN);
    assert_int_equal(line_append(&l, 0x108, data, 4), LINE_OTHER); /* a gap */
    assert_int_equal(line_append(&l, 0x104, data, 61), LINE_OTHER);
    assert_int_equal(line_append(&l, 0x104, data, 60), LINE_FULL);
    assert_int_equal(line_append(&l, 0x140, data, 4), LINE_OTHER); /* of the next one */
    assert_int_equal(l.bytes, REQUEST_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_v17_each_access_is_answered_once, setup),
        cmocka_unit_test_setup(test_v17_as_many_as_there_are_places, setup),
        cmocka_unit_test_setup(test_v45_missing_data_is_all_ones, setup),
        cmocka_unit_test_setup(test_v51_parts_without_data, setup),
        cmocka_unit_test_setup(test_v17_completions_in_parts, setup),
        cmocka_unit_test_setup(test_v17_completions_that_lie, setup),
        cmocka_unit_test_setup(test_writes_are_combined_within_a_line, setup),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
