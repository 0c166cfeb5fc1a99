/* The load generator and what it asks a new device first, without a network.
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "enumerate.h"
#include "load_internal.h"

/* ==== The link ================================================================================ */

static uint64_t users[16]; /* of the requests submitted */
static dxpu_tlp sent[16];
static unsigned submitted;

int link_submit(host_link *l, dxpu_bytes tlp, uint64_t now_ns, uint64_t user)
{
    (void)l;
    (void)now_ns;
    assert_true(submitted < 16);
    assert_int_equal(dxpu_tlp_decode(tlp, &sent[submitted]), DXPU_OK);
    users[submitted++] = user;
    return DXPU_OK;
}

bool link_acked(const host_link *l, uint64_t now_ns)
{
    (void)l;
    (void)now_ns;
    return true;
}

/* ==== Tests =================================================================================== */

static dxpu_tlp answer_of(uint8_t status)
{
    dxpu_tlp cpl;
    memset(&cpl, 0, sizeof cpl);
    cpl.type = DXPU_TLP_CPL;
    cpl.status = status;
    return cpl;
}

/* Asked until the why is there; the seconds that took. */
static unsigned asked_for(enumerate *e, const dxpu_tlp *cpl)
{
    unsigned s = 0;
    enumerate_start(e, 0, 512);
    for (; !e->why && s < 1000; s++)
        enumerate_answer(e, cpl, 1 + s * 1000000000ull);
    return s;
}

static void test_device_that_is_never_ready(void **state)
{
    static const uint8_t id[4] = { 1, 2, 3, 4 };
    dxpu_tlp crs = answer_of(DXPU_CPL_CRS), good = answer_of(DXPU_CPL_SC), request;
    uint8_t payload[4];
    enumerate e;
    (void)state;
    assert_int_equal(asked_for(&e, &crs), 61);
    assert_non_null(strstr(e.why, "CRS"));
    assert_false(enumerate_request(&e, &request, payload));
    assert_int_equal(asked_for(&e, NULL), 61);
    assert_non_null(strstr(e.why, "not answered"));
    enumerate_start(&e, 0, 512); /* control: one that is ready after 59 s */
    enumerate_answer(&e, &crs, 1);
    enumerate_answer(&e, &crs, 59000000000u);
    good.payload.ptr = id;
    good.payload.len = 4;
    enumerate_answer(&e, &good, 59500000000u);
    enumerate_answer(&e, &crs, 90000000000u);
    assert_null(e.why);
    assert_true(enumerate_request(&e, &request, payload));
}

/* A load whose device is known: reads of one chunk, one at a time. */
static load *reading(host_link *link, dxpu_tag_entry *entries)
{
    static load_settings set;
    static load l;
    memset(&l, 0, sizeof l);
    memset(link, 0, sizeof *link);
    set.kind = LOAD_READ;
    set.size = 64;
    set.depth = 1;
    set.count = 100;
    set.span = 64;
    set.mps = 512;
    submitted = 0;
    assert_int_equal(dxpu_tags_init(&link->tags, entries, 8, 0, DXPU_TAGS_32, 1000), DXPU_OK);
    l.link = link;
    l.set = &set;
    load_source(&l).start(&l, 0);
    l.device.bar_bytes = 64;
    l.device.mps_bytes = 512;
    assert_true(load_size_memory(&l));
    load_enter(&l, LOAD_RUNNING, 0);
    return &l;
}

static void test_part_of_a_read_that_expired(void **state)
{
    static const uint8_t old[32] = { 0x5a };
    static dxpu_tag_entry entries[8];
    static host_link link;
    load *l = reading(&link, entries);
    source s = load_source(l);
    dxpu_tlp part = answer_of(DXPU_CPL_SC);
    (void)state;
    part.payload.ptr = old;
    part.payload.len = sizeof old;
    s.work(l, 1);
    assert_int_equal(submitted, 1);
    s.completion(l, NULL, users[0], true, 2);
    s.work(l, 3);
    assert_int_equal(submitted, 2);
    s.completion(l, &part, users[0], false, 4); /* it was stored before the request expired */
    assert_int_equal(l->mismatched, 0);
    assert_int_equal(l->reads[0].got_bytes, 0);
    assert_int_equal(l->in_flight, 1);
    assert_int_equal(l->unanswered, 1);
    s.completion(l, &part, users[1], false, 5); /* control: this one is looked at */
    assert_int_equal(l->mismatched, 1);
    assert_int_equal(l->reads[0].got_bytes, 32);
    load_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_device_that_is_never_ready),
                                        cmocka_unit_test(test_part_of_a_read_that_expired) };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
