/* Eight channels through one bottleneck: a link of a rate and a buffer that all share in one
   direction.  With congestion control they use it and share it fairly, whether their frames leave
   one by one or several side by side; without (`lossless`, which is for fabrics that never drop)
   they must collapse, or the first would prove nothing.
   `sim_bottleneck N [MODE]` runs row N; DXPU_PCAP=FILE captures it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dxpu.h"
#include "seeds.h"
#include "sim.h"

enum { FLOWS = 8 };

typedef struct scene {
    const char *name;
    uint64_t rtt_ns;
    uint64_t ps_per_byte;  /* of the bottleneck */
    uint64_t buffer_bytes; /* of its queue */
    uint64_t mark_bytes;   /* from which it marks; 0: drops only */
    uint64_t settle_ns, measure_ns;
    uint32_t window_frames;
} scene;

typedef enum mode {
    ONE,      /* congestion control, frames one by one */
    MANY,     /* ... several side by side, padded, as the programs send */
    LOSSLESS, /* no congestion control */
    MODES
} mode;

typedef struct outcome {
    double goodput;           /* payload taken, of what the bottleneck could carry as payload */
    double jain, least, most; /* shares; 1 is the fair one */
    double again;             /* retransmitted of all data frames */
    uint64_t marked, dropped;
} outcome;

static sim one;

/* Buffers of half to one and a half bandwidth-delay products; marks from half of the buffer.
   Shares even out over thousands of round trips: in the third scene a flow has up to 1.24 of its
   share in 1,200 of them (20 seeds), and 1.08 in 4,800 (five seeds). */
static const scene scenes[] = {
    { "7 us, 100 Gbit/s", 7000, 80, 65536, 0, 5000000, 40000000, 128 },
    { "7 us, 100 Gbit/s, ECN", 7000, 80, 131072, 98304, 5000000, 40000000, 128 },
    { "100 us, 10 Gbit/s", 100000, 800, 65536, 0, 40000000, 480000000, 256 },
    { "100 us, 10 Gbit/s, ECN", 100000, 800, 65536, 32768, 40000000, 120000000, 256 },
    { "10 ms, 200 Mbit/s", 10000000, 40000, 98304, 0, 2000000000, 12000000000, 256 },
    { "10 ms, 200 Mbit/s, ECN", 10000000, 40000, 98304, 49152, 2000000000, 12000000000, 256 },
};

static void options(const scene *sc, mode m, sim_options *o)
{
    sim_options_default(o);
    o->pairs = FLOWS;
    o->eager = true;
    o->bulk_bytes = 4096;
    o->tlps = UINT32_MAX;
    o->lossless = m == LOSSLESS;
    o->many = m == MANY;
    o->frame_limit[0] = o->frame_limit[1] = 1452;
    o->window[0] = o->window[1] = sc->window_frames;
    o->header_credits = sc->window_frames;
    o->data_credits = sc->window_frames * 256;
    for (unsigned i = 0; i < 2; i++)
        o->link[i][0].delay_ns = sc->rtt_ns / 2;
    o->link[SIM_HOST][0].jitter_ns = sc->rtt_ns / 5; /* no machine is in step for ever */
    o->link[SIM_HOST][0].fifo = true;
}

/* Until the virtual time; the queue is shared by all. */
static void run_until(uint64_t until_ns)
{
    while (one.now_ns < until_ns && sim_step(&one))
        ;
    assert_string_equal(one.why, "");
}

static uint64_t taken(unsigned flow)
{
    const sim_conn *c = one.pair[flow].end[SIM_BOX].live;
    assert_non_null(c);
    return c->bulk_taken_bytes;
}

static uint64_t counter(bool again)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < FLOWS; i++) {
        const dxpu_counters *c = &one.pair[i].end[SIM_HOST].live->ch.count;
        sum += again ? c->tx_retransmits : c->tx_frames;
    }
    return sum;
}

static outcome measure(const scene *sc, mode m)
{
    sim_options o;
    sim_queue queue;
    sim_trace trace;
    uint64_t before[FLOWS], sum = 0, frames, again;
    double squares = 0, capacity;
    outcome r;
    memset(&queue, 0, sizeof queue);
    memset(&r, 0, sizeof r);
    queue.ps_per_byte = sc->ps_per_byte;
    queue.buffer_bytes = sc->buffer_bytes;
    queue.mark_bytes = sc->mark_bytes;
    options(sc, m, &o);
    o.link[SIM_BOX][0].queue = &queue;
    sim_start(&one, &o);
    one.trace = sim_trace_from_environment(&trace);
    run_until(sc->settle_ns);
    for (unsigned i = 0; i < FLOWS; i++)
        before[i] = taken(i);
    frames = counter(false);
    again = counter(true);
    run_until(sc->settle_ns + sc->measure_ns);
    /* of each frame of the limit, 1,452 bytes less header, trailer and records are payload */
    capacity = (double)sc->measure_ns * 1000 / (double)sc->ps_per_byte * 1350 / 1452;
    r.least = 1e9;
    for (unsigned i = 0; i < FLOWS; i++) {
        uint64_t share = taken(i) - before[i];
        sum += share;
        squares += (double)share * (double)share;
        r.least = (double)share < r.least ? (double)share : r.least;
        r.most = (double)share > r.most ? (double)share : r.most;
    }
    r.goodput = (double)sum / capacity;
    r.jain = (double)sum * (double)sum / (FLOWS * squares);
    r.least *= FLOWS / (double)sum;
    r.most *= FLOWS / (double)sum;
    r.again = (double)(counter(true) - again) / (double)(counter(false) - frames);
    r.marked = queue.marked;
    r.dropped = queue.dropped;
    sim_trace_end(&trace);
    sim_teardown(&one);
    return r;
}

static void print_outcome(const scene *sc, mode m, const outcome *r)
{
    static const char *const names[] = { "controlled", "many", "lossless" };
    print_message("  %-24s %-10s %6.1f %% %7.3f  %4.2f..%4.2f %7.2f %% %9llu %9llu\n", sc->name,
                  names[m], 100 * r->goodput, r->jain, r->least, r->most, 100 * r->again,
                  (unsigned long long)r->dropped, (unsigned long long)r->marked);
}

static void print_head(void)
{
    print_message("  %-24s %-10s %8s %7s %11s %9s %9s %9s\n", "8 flows, one bottleneck", "mode",
                  "goodput", "Jain", "shares", "again", "dropped", "marked");
}

/* One scene in one mode is enough for those who want few seeds, as with sanitizers: a short one. */
enum { SHORT_SCENE = 3 };

static bool few_seeds(void)
{
    return seeds_wanted(1000) < 1000;
}

/* P-20 ff.: the rate is used and shared. */
static void test_bottleneck_is_shared(void **state)
{
    (void)state;
    print_head();
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        if (few_seeds() && i != SHORT_SCENE)
            continue;
        for (mode m = ONE; m <= (few_seeds() ? ONE : MANY); m++) {
            outcome r = measure(&scenes[i], m);
            print_outcome(&scenes[i], m, &r);
            assert_true(r.goodput >= 0.8);
            assert_true(r.least >= 0.8 && r.most <= 1.2);
        }
    }
}

/* The control: with congestion control off the same scenes collapse, which is to say that more than
   half of the frames are sent again, or less than half of the rate is of use. */
static void test_lossless_collapses(void **state)
{
    (void)state;
    print_head();
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        if (few_seeds() ? i != SHORT_SCENE : i % 2)
            continue;
        outcome r = measure(&scenes[i], LOSSLESS);
        print_outcome(&scenes[i], LOSSLESS, &r);
        assert_true(r.goodput < 0.5 || r.again > 0.5);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bottleneck_is_shared),
        cmocka_unit_test(test_lossless_collapses),
    };
    if (argc > 1) {
        const scene *sc = &scenes[strtoul(argv[1], NULL, 10) % (sizeof scenes / sizeof scenes[0])];
        mode m = argc > 2 ? (mode)(strtoul(argv[2], NULL, 10) % MODES) : ONE;
        outcome r = measure(sc, m);
        print_head();
        print_outcome(sc, m, &r);
        return 0;
    }
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
