/* unit_shots.c - a screenshot's rows are copied over several turns of the loop
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "requests.h"
#include "shots.h"

enum { SLOT = 3 };

/* ==== The display, and its client ============================================================= */

static unsigned columns, lines;  /* of the display */
static unsigned copied, longest; /* rows: all, and of one call */
static unsigned answers, answer_code;
static size_t answer_bytes;
static shard here;

unsigned slots_picture(const box *b, unsigned number, uint8_t *rgb, unsigned row, unsigned rows,
                       unsigned *w, unsigned *h)
{
    (void)b;
    assert_int_equal(number, SLOT);
    assert_true(row + rows <= lines);
    if (rgb)
        memset(rgb, (int)(row & 0xff), (size_t)rows * columns * 3);
    copied += rows;
    longest = rows > longest ? rows : longest;
    *w = columns;
    *h = lines;
    return DXPU_CONTROL_CODE_NONE;
}

shard *slots_shard(const box *b, unsigned number)
{
    (void)b;
    (void)number;
    return &here;
}

void worker_call(worker *w, void (*fn)(void *arg), void *arg)
{
    (void)w;
    fn(arg);
}

void requests_picture(requests *r, uint16_t number, unsigned code, uint8_t *png, size_t bytes)
{
    (void)r;
    assert_int_equal(number, SLOT);
    answers++;
    answer_code = code;
    answer_bytes = bytes;
    free(png);
}

/* ==== Tests =================================================================================== */

static void test_s161_rows_in_turns(void **state)
{
    static const unsigned sizes[][2] = { { 2000, 500 }, { 64, 48 }, { 1, 4000 }, { 100000, 3 } };
    (void)state;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        static box b;
        memset(&b, 0, sizeof b);
        b.base = event_base_new();
        shots *s = shots_open(&b);
        assert_non_null(s);
        columns = sizes[i][0];
        lines = sizes[i][1];
        copied = longest = answers = 0;
        assert_int_equal(shots_begin(s, SLOT), DXPU_CONTROL_CODE_NONE);
        assert_int_equal(shots_begin(s, SLOT), DXPU_CONTROL_CODE_BUSY);
        assert_int_equal(copied, 0);
        for (unsigned turns = 0; !answers; turns++) { /* others' events are between two */
            unsigned before = copied;
            assert_true(turns < 1000);
            (void)event_base_loop(b.base, EVLOOP_ONCE);
            assert_true((size_t)(copied - before) * columns <= SHOTS_PIXELS_PER_TURN + columns);
        }
        assert_int_equal(copied, lines);
        assert_int_equal(answers, 1);
        assert_int_equal(answer_code, DXPU_CONTROL_CODE_NONE);
        assert_true(answer_bytes > 0);
        assert_true(i || longest < lines); /* the first takes several */
        shots_close(s);
        event_base_free(b.base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s161_rows_in_turns),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
