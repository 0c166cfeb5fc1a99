/* How long the loss of a single frame delays what it carried and all behind it: every frame of a
   flight of 1 to 20 is lost once, and the delivery of the whole flight compared with that of a
   flight that loses none.  In round trips.  At 7 us the timers' floor (the ack delay of 25 us)
   is itself several round trips. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dxpu.h"
#include "sim.h"

enum {
    FLIGHT_MAX = 20,
    WARM = 20,
    /* Printed but not judged above this round trip: the first RTO, before any sample, is 4 ms. */
    KNOWN_NS = 3000000
};

static sim one;

/* When the last write of a flight of `frames` was delivered, from when it was submitted; frame
   `lost` of it never arrives the first time (none for -1).  Twenty writes go before, one at a time,
   so that round trip and window are known. */
static uint64_t flight_ns(uint64_t rtt_ns, unsigned frames, int lost, uint64_t *timeouts)
{
    sim_options o;
    uint64_t start_ns = 0;
    sim_options_default(&o);
    o.eager = true;
    o.bulk_bytes = 1280; /* one in a frame */
    o.tlps = WARM;
    for (unsigned i = 0; i < 2; i++)
        o.link[i][0].delay_ns = rtt_ns / 2;
    o.bulk_every_ns = 3 * rtt_ns + 100000;
    o.until_ns = DXPU_NEVER;
    sim_start(&one, &o);
    for (;;) {
        assert_true(sim_step(&one));
        sim_conn *host = one.pair->end[SIM_HOST].live, *box = one.pair->end[SIM_BOX].live;
        if (!start_ns && box && box->bulk_expected == WARM && one.pair->under_way == 0 &&
            sim_quiet(&one, host) && sim_quiet(&one, box)) {
            start_ns = one.now_ns;
            one.o.bulk_every_ns = 0;
            host->bulk_due_ns = 0;
            host->to_submit = frames;
            one.pair->link[SIM_BOX][0].lose_data = lost < 0 ? 0 : (uint64_t)1 << lost;
            sim_arm_app(&one, host, 0);
        }
        if (start_ns && box->bulk_expected == WARM + frames)
            break;
    }
    assert_string_equal(one.why, "");
    const dxpu_counters *c = &one.pair->end[SIM_HOST].live->ch.count;

    *timeouts += c->tx_timeouts;
    uint64_t took_ns = one.now_ns - start_ns;
    sim_teardown(&one);
    return took_ns;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
    return (*x > *y) - (*x < *y);
}

/* D-14, D-17: never worse than a tail-loss probe, and never a timeout. */
static void test_d17_single_loss(void **state)
{
    static const uint64_t rtts[] = { 7000, 20000, 100000, 1000000, 10000000 };
    static uint64_t extra[FLIGHT_MAX * (FLIGHT_MAX + 1) / 2];
    (void)state;
    print_message("  %-12s %10s %10s %10s   %s\n", "RTT", "median", "p90", "worst",
                  "extra round trips after one loss");
    for (size_t i = 0; i < sizeof rtts / sizeof rtts[0]; i++) {
        uint64_t timeouts = 0;
        size_t count = 0;
        for (unsigned frames = 1; frames <= FLIGHT_MAX; frames++) {
            uint64_t good_ns = flight_ns(rtts[i], frames, -1, &timeouts);
            for (unsigned lost = 0; lost < frames; lost++)
                extra[count++] = flight_ns(rtts[i], frames, (int)lost, &timeouts) - good_ns;
        }
        qsort(extra, count, sizeof extra[0], by_size);
        print_message("  %9.3f ms %10.2f %10.2f %10.2f   (%zu flights, %llu timeouts)\n",
                      (double)rtts[i] / 1e6, (double)extra[count / 2] / (double)rtts[i],
                      (double)extra[count * 9 / 10] / (double)rtts[i],
                      (double)extra[count - 1] / (double)rtts[i], count,
                      (unsigned long long)timeouts);
        if (rtts[i] > KNOWN_NS)
            continue;
        assert_int_equal(timeouts, 0);
        /* a probe after the round trip, its variance or the ack delay, and the ack delay again */
        assert_true(extra[count - 1] <= 3 * rtts[i] + 4 * 25000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d17_single_loss),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
