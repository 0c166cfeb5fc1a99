/* Paths that die under load and come back: for how long nothing is delivered, and whether the
   preferred path is used again.  With each second seed frames leave several at a time.
   DXPU_SEEDS: deaths of each kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "seeds.h"
#include "dxpu.h"
#include "sim.h"

enum { DEATHS = 100, MS = 1000000 };

static sim one;

typedef struct scene {
    const char *name;
    uint8_t paths;
    bool spread;
    uint8_t fault; /* SIM_FAULT_* */
    uint32_t loss; /* per mille, everywhere */
    uint64_t rtt_ns;
    uint64_t most_ns; /* the longest permitted gap */
} scene;

typedef struct gaps {
    uint64_t ns[4096];
    uint64_t
        back_ns[4096]; /* from the end of the fault to the use of the path, where it was left */
    unsigned count, backs;
} gaps;

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
    return (*x > *y) - (*x < *y);
}

/* Writes come from a paced source, 1 KB every 50 us: the load does not depend on the path. */
static void options(const scene *sc, uint64_t seed, sim_options *o)
{
    sim_rng r = { seed };
    sim_options_default(o);
    o->seed = seed;
    o->eager = true;
    o->paths = sc->paths;
    o->spread = sc->spread;
    o->many = seed & 1;
    o->bulk_bytes = 1024;
    o->bulk_every_ns = 50000;
    o->tlps = UINT32_MAX;
    for (unsigned i = 0; i < 2 * SIM_PATHS; i++) {
        o->link[i & 1][i / 2].delay_ns = sc->rtt_ns / 2 + sim_below(&r, 2000);
        o->link[i & 1][i / 2].loss = sc->loss;
    }
    o->faults = 1;
    o->fault[0].kind = sc->fault;
    o->fault[0].end = (uint8_t)sim_below(&r, 2);
    o->fault[0].path = sc->spread ? (uint8_t)sim_below(&r, sc->paths) : 0;
    if (sc->fault == SIM_FAULT_MTU) { /* short of the limit, towards the box, frames filled up */
        o->fault[0].value = 1300;
        o->fault[0].end = SIM_BOX;
        o->bulk_bytes = 4096;
    }
    o->fault[0].at_ns = 10 * MS + sim_below(&r, 2 * MS);
    o->fault[0].for_ns = 40 * MS;
}

/* One death: the longest time without a delivery from just before it to its end; the return. */
static void one_death(const scene *sc, uint64_t seed, gaps *g)
{
    sim_options o;
    uint64_t last_ns = 0, longest_ns = 0, taken = 0, ends_ns;
    options(sc, seed, &o);
    sim_start(&one, &o);
    ends_ns = one.now_ns + o.fault[0].at_ns + o.fault[0].for_ns;
    while (sim_step(&one)) {
        const sim_conn *box = one.pair->end[SIM_BOX].live, *host = one.pair->end[SIM_HOST].live;
        if (last_ns > ends_ns + 20 * MS && (host->active == 0 || one.now_ns > ends_ns + 1000 * MS))
            break;
        if (!box || box->bulk_taken_bytes == taken)
            continue;
        taken = box->bulk_taken_bytes;
        if (last_ns > o.fault[0].at_ns && last_ns < ends_ns)
            longest_ns = max64(longest_ns, one.now_ns - last_ns);
        last_ns = one.now_ns;
    }
    if (one.why[0])
        print_error("seed %llu: %s\n", (unsigned long long)seed, one.why);
    assert_string_equal(one.why, "");
    assert_int_equal(one.count.incarnations, 1);
    g->ns[g->count++] = longest_ns;
    const sim_conn *host = one.pair->end[SIM_HOST].live;
    if (host->left_ns && host->returned_ns > ends_ns)
        g->back_ns[g->backs++] = host->returned_ns - ends_ns;
    assert_int_equal(host->active, 0); /* the preferred one, whatever happened */
    sim_teardown(&one);
}

static double ms(uint64_t ns)
{
    return (double)ns / MS;
}

static void test_p10_failover(void **state)
{
    static const scene rows[] = {
        { "2 paths, one used", 2, false, SIM_FAULT_PATH, 0, 20000, 2 * MS },
        { "2 paths, spread", 2, true, SIM_FAULT_PATH, 0, 20000, 2 * MS },
        { "3 paths, spread", 3, true, SIM_FAULT_PATH, 0, 20000, 2 * MS },
        { "2 paths, dead one way", 2, false, SIM_FAULT_ONE_WAY, 0, 20000, 2 * MS },
        { "2 paths, short frames only", 2, false, SIM_FAULT_MTU, 0, 20000, 3 * MS },
        { "2 paths, 1 % loss", 2, false, SIM_FAULT_PATH, 10, 20000, 10 * MS },
        { "2 paths, RTT 1 ms", 2, false, SIM_FAULT_PATH, 0, 1000000, 6 * MS },
    };
    static gaps g;
    uint64_t wanted = seeds_wanted(DEATHS);
    unsigned deaths = wanted > DEATHS ? DEATHS : wanted < 2 ? 2 : (unsigned)wanted;
    (void)state;
    print_message("  %-28s %8s %8s %8s %12s\n", "gap in ms", "p50", "p90", "max", "back after");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&g, 0, sizeof g);
        for (unsigned n = 0; n < (i < 2 ? deaths : deaths / 4 + 1); n++)
            one_death(&rows[i], n + 1, &g);
        qsort(g.ns, g.count, sizeof g.ns[0], by_size);
        qsort(g.back_ns, g.backs, sizeof g.back_ns[0], by_size);
        print_message("  %-28s %8.3f %8.3f %8.3f %9.1f ms, %u deaths, %u returns\n", rows[i].name,
                      ms(g.ns[g.count / 2]), ms(g.ns[g.count * 9 / 10]), ms(g.ns[g.count - 1]),
                      g.backs ? ms(g.back_ns[g.backs - 1]) : 0, g.count, g.backs);
        assert_true(g.ns[g.count - 1] <= rows[i].most_ns);
        if (rows[i].fault == SIM_FAULT_PATH && !rows[i].spread && !rows[i].loss)
            assert_int_equal(g.backs, g.count); /* P-13 */
    }
}

/* The control: with one path there is nowhere to go, and the gap is the fault. */
static void test_one_path_waits(void **state)
{
    static gaps g;
    static const scene row = { "1 path", 1, false, SIM_FAULT_PATH, 0, 20000, 0 };
    (void)state;
    memset(&g, 0, sizeof g);
    one_death(&row, 1, &g);
    print_message("  1 path: %.3f ms\n", ms(g.ns[0]));
    assert_true(g.ns[0] > 39 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p10_failover),
        cmocka_unit_test(test_one_path_waits),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
