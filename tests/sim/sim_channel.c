/* Seeded simulation of a channel pair: nothing lost, doubled, altered or reordered against PCIe's
   table, nothing of an old incarnation, no standstill, each request answered once, and the books of
   both ends balanced at rest.  `sim_channel SEED` repeats one run; DXPU_TRACE=1 prints it,
   DXPU_PCAP=FILE captures it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dxpu.h"
#include "seeds.h"
#include "sim.h"

enum { SEEDS = 10000 }; /* DXPU_SEEDS in the environment overrides it */

static const char *program = "sim_channel";
static sim one;

static void run_seed(uint64_t seed)
{
    sim_options o;
    sim_trace trace;
    sim_from_seed(&o, seed);
    sim_start(&one, &o);
    one.trace = sim_trace_from_environment(&trace);
    while (sim_step(&one))
        ;
    sim_trace_end(&trace);
    if (one.why[0])
        print_error("seed %llu: %s\nrepeat: DXPU_TRACE=1 %s %llu\n", (unsigned long long)seed,
                    one.why, program, (unsigned long long)seed);
}

static void add(uint64_t *sum, const void *counts, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *sum; i++)
        sum[i] += ((const uint64_t *)counts)[i];
}

#define PRINT(name, value) print_message("  %-40s %12llu\n", name, (unsigned long long)(value))

static void test_d1_seeds(void **state)
{
    sim_net_count net = { 0 };
    sim_count count = { 0 };
    dxpu_counters counters = { 0 };
    uint64_t failed = 0, virtual_ns = 0;
    uint64_t seeds = seeds_wanted(SEEDS);
    (void)state;
    for (uint64_t seed = 1; seed <= seeds && failed < 10; seed++) {
        run_seed(seed);
        failed += one.why[0] != 0;
        virtual_ns += one.now_ns;
        add((uint64_t *)&net, &one.net, sizeof net);
        add((uint64_t *)&count, &one.count, sizeof count);
        for (int end = 0; end < 2; end++) {
            for (uint32_t i = 0; i < one.pair->end[end].conns; i++)
                add((uint64_t *)&counters, &one.pair->end[end].conn[i]->ch.count, sizeof counters);
        }
        sim_teardown(&one);
    }
    print_message("%llu seeds, %llu failed, %.0f s of virtual time\n", (unsigned long long)seeds,
                  (unsigned long long)failed, (double)virtual_ns / 1e9);
    PRINT("frames carried", net.carried);
    PRINT("... lost", net.lost);
    PRINT("... doubled", net.doubled);
    PRINT("... corrupted", net.corrupted);
    PRINT("... emitted behind another", count.segments);
    PRINT("TLPs delivered", count.tlps);
    PRINT("... past a posted one by IDO", count.by_id);
    PRINT("faults", count.faults);
    PRINT("incarnations", count.incarnations);
    PRINT("... ended by hold", count.deaths);
    PRINT("... ended by the peer's reset", count.resets);
    PRINT("... replaced by a newer one", count.replaced);
    PRINT("late opens accepted", count.late_opens);
    PRINT("frames for an incarnation that is over", count.old_frames);
    PRINT("requests answered by containment", count.contained);
    PRINT("frames refused by CRC or tag", counters.rx_crc);
    PRINT("... as replayed", counters.rx_replay);
    PRINT("retransmissions", counters.tx_retransmits);
    PRINT("timeouts", counters.tx_timeouts);
    assert_int_equal(failed, 0);
    if (seeds < 50)
        return;
    assert_true(net.lost > seeds && net.doubled > seeds && net.corrupted > seeds);
    assert_true(counters.rx_crc > seeds / 2 && counters.rx_replay > seeds / 2);
    assert_true(count.by_id > seeds / 2); /* D-34 was used */
    assert_true(count.faults > seeds / 2 && count.incarnations > seeds);
    assert_true(count.segments > 5 * seeds); /* of emit_many(), in half of the runs */
    assert_true(count.deaths && count.resets && count.replaced && count.old_frames);
}

/* True when one of the alternatives, separated by '|', occurs in `why`. */
static bool shows(const char *why, const char *alternatives)
{
    char part[64];
    for (const char *p = alternatives; *p; p += strspn(p, "|")) {
        size_t n = strcspn(p, "|");
        memcpy(part, p, n);
        part[n] = 0;
        if (strstr(why, part))
            return true;
        p += n;
    }
    return false;
}

/* Each property has a control that breaks it, and is seen to be broken. */
static void test_controls(void **state)
{
    static const struct {
        int sabotage;
        const char *seen;
    } rows[] = {
        { SIM_DROP, "out of order|passed a" }, /* the gap may show first as a TLP that passed it */
        { SIM_DOUBLE, "out of order|more than was sent|passed a" },
        { SIM_ALTER, "altered" },
        { SIM_REORDER, "out of order|passed a" },
        { SIM_PASS, "passed a posted TLP" },
        { SIM_OWN, "passed a posted TLP" },
        { SIM_LEDGER, "credit ledgers differ" },
        { SIM_OLD, "altered" },
        { SIM_STALL, "hardly sent" },
        { SIM_GIVE_UP, "though frames came" },
        { SIM_FORGET, "left requests unanswered" },
        { SIM_AGAIN, "answered twice" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned acted = 0;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            sim_options o;
            bool two = rows[i].sabotage >= SIM_OLD; /* incarnations */
            if (two)
                sim_options_default(&o);
            else
                sim_from_seed(&o, seed);
            o.seed = seed;
            o.sabotage = rows[i].sabotage;
            o.tags = true;
            o.tlps = two ? 400 : 100;
            o.faults = two && o.sabotage <= SIM_AGAIN;
            memset(o.fault, 0, sizeof o.fault);
            o.fault[0].kind = SIM_FAULT_RESET;
            o.fault[0].at_ns = 100000;
            if (o.sabotage == SIM_FORGET || o.sabotage == SIM_AGAIN) { /* requests are out then */
                o.faults = 2;
                o.fault[1].kind = SIM_FAULT_STOP;
                o.fault[1].end = SIM_BOX;
                o.fault[1].at_ns = 20000;
                o.fault[1].for_ns = 100000;
            }
            sim_run(&one, &o);
            acted += one.sabotaged;
            if (!one.sabotaged) { /* it had no chance: two TLPs never waited at once, say */
                assert_string_equal(one.why, "");
                sim_teardown(&one);
                continue;
            }
            if (!shows(one.why, rows[i].seen))
                print_error("control %d, seed %llu: '%s'\n", rows[i].sabotage,
                            (unsigned long long)seed, one.why);
            assert_true(shows(one.why, rows[i].seen));
            sim_teardown(&one);
        }
        assert_true(acted >= 15);
    }
}

/* Nothing gets through for longer than hold: the incarnation ends at both ends, each by its own
   clock, and the next one works.  The control is the same darkness with a longer hold, which the
   first one survives. */
static void test_d48_blackout(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        for (int survives = 0; survives < 2; survives++) {
            sim_options o;
            sim_from_seed(&o, seed);
            o.tlps = 400; /* more than fits into the time before it */
            o.faults = 1;
            o.fault[0].kind = SIM_FAULT_DARK;
            o.fault[0].at_ns = 1000000;
            o.fault[0].for_ns = 1500000000;
            o.hold_ms = survives ? 10000 : 1000;
            sim_run(&one, &o);
            if (one.why[0])
                print_error("seed %llu: '%s'\n", (unsigned long long)seed, one.why);
            assert_string_equal(one.why, "");
            assert_true(survives ? one.count.incarnations == 1 : one.count.incarnations > 1);
            assert_true(survives ? one.count.deaths == 0 : one.count.deaths > 0);
            sim_teardown(&one);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d1_seeds),
        cmocka_unit_test(test_controls),
        cmocka_unit_test(test_d48_blackout),
    };
    program = argv[0];
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    if (argc > 1) {
        run_seed(strtoull(argv[1], NULL, 10));
        printf("%s\n", one.why[0] ? one.why : "all properties hold");
        sim_teardown(&one);
        return one.why[0] != 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
