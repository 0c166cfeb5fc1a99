/* What the benchmarks (bench_*.c) share: a clock, arguments, results as JSON lines for bench.py.
   Included after dxpu.h.

   Each program runs ROUNDS rounds; in a round every figure and its baseline are measured once, one
   right after the other, so that what disturbs the machine disturbs both. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct bench_args {
    unsigned rounds;
    unsigned long count; /* operations of one measurement */
} bench_args;

static inline bench_args bench_parse(int argc, char **argv)
{
    bench_args a = { 0, 0 };
    if (argc > 2) {
        a.rounds = (unsigned)strtoul(argv[1], NULL, 10);
        a.count = strtoul(argv[2], NULL, 10);
    }
    if (!a.rounds || !a.count) {
        fprintf(stderr, "usage: %s ROUNDS COUNT\n", argv[0]);
        exit(2);
    }
    return a;
}

/* Time that the processor spent on us: others on the machine do not count. */
static inline double bench_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline uint64_t bench_random(uint64_t *s) /* splitmix64 */
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* One measurement of a row: its figure, and the baseline beside it (0: the row has none). */
static inline void bench_result(const char *row, double value, double baseline)
{
    printf("{\"row\": \"%s\", \"value\": %.4f, \"baseline\": %.4f}\n", row, value, baseline);
}

/* A benchmark that did not do its work has no figure. */
static inline void bench_must(bool held, const char *what)
{
    if (held)
        return;
    fprintf(stderr, "benchmark broken: %s\n", what);
    exit(1);
}

#endif
