/* Seeded simulation of a channel pair: nothing lost, doubled, altered or reordered against PCIe's
   table, and both ledgers back at their start.  `sim_channel SEED` repeats one run. */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define DXPU_ASSERT(x) assert(x)
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "sim.h"

enum { SEEDS = 1000 }; /* DXPU_SEEDS in the environment: so many instead */

static const char *program = "sim_channel";
static sim one;

static void run_seed(uint64_t seed)
{
    sim_options o;
    sim_from_seed(&o, seed);
    sim_run(&one, &o);
    if (one.why[0])
        print_error("seed %llu: %s\nrepeat: %s %llu\n", (unsigned long long)seed, one.why, program,
                    (unsigned long long)seed);
}

static void test_d1_seeds(void **state)
{
    uint64_t failed = 0, dropped = 0, doubled = 0, corrupted = 0, carried = 0, refused = 0;
    uint64_t by_id = 0;
    const char *wanted = getenv("DXPU_SEEDS");
    uint64_t seeds = wanted ? strtoull(wanted, NULL, 10) : SEEDS;
    (void)state;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        run_seed(seed);
        failed += one.why[0] != 0;
        dropped += one.dropped;
        doubled += one.doubled;
        corrupted += one.corrupted;
        carried += one.carried;
        by_id += one.passed_by_id;
        refused += one.side[0].ch.count.rx_crc + one.side[1].ch.count.rx_crc;
        sim_teardown(&one);
    }
    print_message("%llu seeds: %llu frames carried, %llu lost, %llu doubled, %llu corrupted (%llu "
                  "refused by CRC), %llu TLPs passed by IDO\n",
                  (unsigned long long)seeds, (unsigned long long)carried,
                  (unsigned long long)dropped, (unsigned long long)doubled,
                  (unsigned long long)corrupted, (unsigned long long)refused,
                  (unsigned long long)by_id);
    assert_int_equal(failed, 0);
    assert_true(dropped > seeds && doubled > seeds && corrupted > seeds); /* the network was bad */
    assert_true(refused > 0);
    assert_true(by_id > seeds); /* D-34 was used */
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
        { SIM_DOUBLE, "out of order|more than was sent" },
        { SIM_ALTER, "altered" },
        { SIM_REORDER, "out of order|passed a" },
        { SIM_PASS, "passed a posted TLP" },
        { SIM_OWN, "passed a posted TLP" },
        { SIM_LEDGER, "credit ledgers differ" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            sim_options o;
            sim_from_seed(&o, seed);
            o.sabotage = rows[i].sabotage;
            o.tags = true;
            sim_run(&one, &o);
            if (!shows(one.why, rows[i].seen))
                print_error("control %d, seed %llu: '%s'\n", rows[i].sabotage,
                            (unsigned long long)seed, one.why);
            assert_true(shows(one.why, rows[i].seen));
            sim_teardown(&one);
        }
    }
}

/* Nothing gets through for longer than hold: both ends end, each by its own clock.  The control is
   the same darkness with a longer hold, which both survive. */
static void test_d48_blackout(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        for (int survives = 0; survives < 2; survives++) {
            sim_options o;
            sim_from_seed(&o, seed);
            o.tlps = 400; /* more than fits into the millisecond before it */
            o.dark_from_ns = 2000000;
            o.dark_ns = 1500000000;
            o.hold_ms = survives ? 10000 : 1000;
            sim_run(&one, &o);
            assert_int_equal(one.why[0] == 0, survives);
            for (int i = 0; i < 2 && !survives; i++) {
                dxpu_channel *ch = &one.side[i].ch;
                uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES], path;
                while (dxpu_channel_next_ns(ch) != DXPU_NEVER) {
                    one.now_ns = dxpui_max64(one.now_ns, dxpu_channel_next_ns(ch));
                    while (dxpu_channel_emit(ch, one.now_ns, out, sizeof out, &path) > 0)
                        ;
                }
                assert_int_equal(dxpu_channel_state(ch), DXPU_STATE_FAILED);
                assert_int_equal(dxpu_channel_error(ch), DXPU_E_DEAD);
            }
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
    if (argc > 1) {
        run_seed(strtoull(argv[1], NULL, 10));
        printf("%s\n", one.why[0] ? one.why : "all properties hold");
        return one.why[0] != 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
