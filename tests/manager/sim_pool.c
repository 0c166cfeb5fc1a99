/* sim_pool.c - a pool of GPUs against the same GPUs fixed in servers of 8: what share of requests
   is accepted, how many GPUs are in use, how many are free and of no use
   SPDX-License-Identifier: MIT

   DXPU_SLOTS: GPUs, a multiple of 8 (512).  Prints a table with the memory and time that the policy
   needs; at 10,000 GPUs and more for one load only.

   Assumed.  The paper's Figure 1 says that requests differ in their numbers of GPUs and CPUs; its
   text has no values, so `kinds` below is ours: sizes as clouds sell them, small ones most often.
   A server has 8 GPUs and 96 vCPUs; the pool has as many servers without GPUs, and boxes of 8.
   Requests arrive at random (Poisson) and stay for an exponential time; one that cannot be served
   goes away.  Both sides see the same requests and use best fit.

   Judged by the GPUs that were asked for and given.  The number of requests alone would flatter
   servers that are too full of fragments for large requests: they have room for more small ones. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime() */
#endif
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "policy.h"
#include <string.h>

enum { GPUS = 8, VCPUS = 96, LOADS = 7 };

typedef struct kind {
    uint8_t gpus, vcpus, percent;
} kind;

static const kind kinds[] = {
    { 1, 8, 30 }, { 1, 12, 15 }, { 1, 32, 5 }, { 2, 16, 12 }, { 2, 24, 8 },
    { 2, 64, 3 }, { 4, 32, 10 }, { 4, 48, 6 }, { 8, 64, 6 },  { 8, 96, 5 },
};
static const kind whole_servers[] = { { GPUS, VCPUS, 100 } };

typedef enum side { SERVERS, POOL, POOL_GROUPS, SIDES } side;
static const char *const side_names[SIDES] = { "servers of 8", "pool", "pool, NVLink" };

typedef struct request {
    double arrives, leaves;
    kind k;
} request;

/* Servers by what they have free, so that best fit needs no look at each. */
typedef struct server {
    uint32_t next, prev;
    uint8_t gpus, vcpus;
} server;

typedef struct leaving {
    double at;
    uint64_t lease; /* of the pool */
    uint32_t server;
    kind k;
} leaving;

typedef struct result {
    double accepted, given, whole; /* of the requests, of their GPUs, of requests for 8 */
    double used, stranded;         /* of the GPUs there are, on average */
    double room;                   /* pool_room() */
    size_t pool_bytes;
    double p50_ns, p99_ns;
} result;

typedef struct world {
    side side;
    uint32_t servers;
    server *server;
    uint32_t head[GPUS + 1][VCPUS + 1];
    leaving *heap;
    uint32_t leavings;
    pool *pool;
    uint32_t tenant, used;
    double *took_ns;
    uint32_t calls;
} world;

static uint32_t slots = 512;
static uint64_t state_word;

static double draw(void) /* in (0, 1] */
{
    state_word ^= state_word << 13;
    state_word ^= state_word >> 7;
    state_word ^= state_word << 17;
    return ((double)(state_word >> 11) + 1) / 9007199254740992.0;
}

static void *need(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    assert_non_null(memory);
    return memory;
}

/* -- Servers -- */

static void server_link(world *w, uint32_t at, bool in)
{
    server *s = &w->server[at];
    uint32_t *head = &w->head[s->gpus][s->vcpus];
    if (in) {
        s->prev = POOL_NONE;
        s->next = *head;
        if (*head != POOL_NONE)
            w->server[*head].prev = at;
        *head = at;
        return;
    }
    if (s->next != POOL_NONE)
        w->server[s->next].prev = s->prev;
    *(s->prev == POOL_NONE ? head : &w->server[s->prev].next) = s->next;
}

static uint32_t server_for(const world *w, unsigned gpus, unsigned vcpus)
{
    for (unsigned g = gpus; g <= GPUS; g++)
        for (unsigned v = vcpus; v <= VCPUS; v++)
            if (w->head[g][v] != POOL_NONE)
                return w->head[g][v];
    return POOL_NONE;
}

static void server_change(world *w, uint32_t at, int gpus, int vcpus)
{
    server_link(w, at, false);
    w->server[at].gpus = (uint8_t)(w->server[at].gpus + gpus);
    w->server[at].vcpus = (uint8_t)(w->server[at].vcpus + vcpus);
    server_link(w, at, true);
}

/* -- Who leaves next: a heap -- */

static void heap_push(world *w, const leaving *l)
{
    uint32_t i = w->leavings++;
    for (; i && w->heap[(i - 1) / 2].at > l->at; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = *l;
}

static leaving heap_pop(world *w)
{
    leaving first = w->heap[0], last = w->heap[--w->leavings];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < w->leavings && w->heap[child + 1].at < w->heap[child].at)
            child++;
        if (child >= w->leavings || w->heap[child].at >= last.at)
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return first;
}

/* -- A world -- */

static void open_pool(world *w)
{
    pool_limits limits = { slots, w->servers, w->servers, 1, slots, 1 };
    size_t bytes = pool_bytes(&limits);
    pool_slot_info info[GPUS];
    uint32_t number;
    w->pool = pool_init(need(1, bytes), bytes, &limits);
    assert_non_null(w->pool);
    for (unsigned i = 0; i < GPUS; i++) {
        info[i].model = 0;
        info[i].group = 0;
    }
    for (uint32_t i = 0; i < w->servers; i++) {
        assert_int_equal(pool_add_box(w->pool, info, GPUS, &number), POOL_OK);
        assert_int_equal(pool_add_host(w->pool, 64, &number), POOL_OK);
    }
    assert_int_equal(pool_add_tenant(w->pool, slots, &w->tenant), POOL_OK);
}

static void open_world(world *w, side s, uint32_t requests)
{
    memset(w, 0, sizeof *w);
    memset(w->head, 0xff, sizeof w->head);
    w->side = s;
    w->servers = slots / GPUS;
    w->server = need(w->servers, sizeof *w->server);
    w->heap = need(slots, sizeof *w->heap);
    w->took_ns = need(requests, sizeof *w->took_ns);
    if (s != SERVERS)
        open_pool(w);
    for (uint32_t i = 0; i < w->servers; i++) {
        w->server[i].gpus = s == SERVERS ? GPUS : 0;
        w->server[i].vcpus = VCPUS;
        server_link(w, i, true);
    }
}

static void close_world(world *w)
{
    free(w->server);
    free(w->heap);
    free(w->took_ns);
    free(w->pool);
}

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool arrive(world *w, const request *q)
{
    bool fixed = w->side == SERVERS;
    leaving l = { q->leaves, 0, server_for(w, fixed ? q->k.gpus : 0, q->k.vcpus), q->k };
    if (l.server == POOL_NONE)
        return false;
    if (!fixed) {
        pool_choice c;
        pool_request r = { .tenant = w->tenant, .host = l.server, .count = q->k.gpus };
        if (w->side == POOL_GROUPS && q->k.gpus >= 4)
            r.need = POOL_SAME_GROUP;
        uint64_t start = clock_ns();
        bool ok = pool_choose(w->pool, &r, &c) == POOL_OK &&
                  pool_grant(w->pool, &r, &c, &l.lease) == POOL_OK;
        w->took_ns[w->calls++] = (double)(clock_ns() - start);
        if (!ok)
            return false;
    }
    server_change(w, l.server, fixed ? -q->k.gpus : 0, -q->k.vcpus);
    w->used += q->k.gpus;
    heap_push(w, &l);
    return true;
}

static void leave(world *w)
{
    leaving l = heap_pop(w);
    server_change(w, l.server, w->side == SERVERS ? l.k.gpus : 0, l.k.vcpus);
    w->used -= l.k.gpus;
    if (w->side == SERVERS)
        return;
    uint32_t given[POOL_COUNT_MAX];
    unsigned n = pool_lease_slots(w->pool, l.lease, given);
    assert_int_equal(n, l.k.gpus);
    assert_int_equal(pool_release(w->pool, l.lease, POOL_WHY_RELEASE), POOL_OK);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(pool_wiped(w->pool, given[i], true), POOL_OK);
}

/* GPUs that are free while the smallest request, 1 GPU with 8 vCPUs, could not have one. */
static uint32_t stranded(const world *w)
{
    uint32_t sum = 0;
    if (w->side != SERVERS)
        return server_for(w, 0, 8) == POOL_NONE ? slots - w->used : 0;
    for (uint32_t i = 0; i < w->servers; i++)
        sum += w->server[i].vcpus < 8 ? w->server[i].gpus : 0;
    return sum;
}

static double room(const world *w)
{
    double sum = 0, squares = 0;
    if (w->side != SERVERS)
        return pool_room(w->pool, 0, false);
    for (uint32_t i = 0; i < w->servers; i++) {
        sum += w->server[i].gpus;
        squares += (double)w->server[i].gpus * w->server[i].gpus;
    }
    return sum > 0 ? squares / sum : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(side s, const request *requests, uint32_t count, result *out)
{
    world w;
    uint32_t accepted = 0, samples = 0, counted = 0, whole = 0, wholes = 0, asked = 0, given = 0;
    memset(out, 0, sizeof *out);
    open_world(&w, s, count);
    for (uint32_t i = 0; i < count; i++) {
        while (w.leavings && w.heap[0].at <= requests[i].arrives)
            leave(&w);
        bool ok = arrive(&w, &requests[i]);
        if (i < count / 4) /* the pool fills first */
            continue;
        accepted += ok;
        counted++;
        asked += requests[i].k.gpus;
        given += ok ? requests[i].k.gpus : 0;
        wholes += requests[i].k.gpus == GPUS;
        whole += ok && requests[i].k.gpus == GPUS;
        if (i % (w.servers / 8 + 1))
            continue;
        samples++;
        out->used += (double)w.used / slots;
        out->stranded += (double)stranded(&w) / slots;
        out->room += room(&w);
    }
    out->accepted = (double)accepted / counted;
    out->given = (double)given / asked;
    out->whole = (double)whole / wholes;
    out->used /= samples;
    out->stranded /= samples;
    out->room /= samples;
    if (w.calls) {
        qsort(w.took_ns, w.calls, sizeof *w.took_ns, by_size);
        out->p50_ns = w.took_ns[w.calls / 2];
        out->p99_ns = w.took_ns[(uint64_t)w.calls * 99 / 100];
        out->pool_bytes = pool_bytes(&w.pool->limits);
    }
    close_world(&w);
}

/* `load`: GPUs asked for at a time, as a share of those there are. */
static request *make(const kind *from, unsigned count_kinds, double load, uint32_t count)
{
    request *q = need(count, sizeof *q);
    double now = 0, mean = 0;
    for (unsigned i = 0; i < count_kinds; i++)
        mean += from[i].gpus * from[i].percent / 100.0;
    state_word = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < count; i++) {
        double which = draw() * 100;
        unsigned k = 0;
        while (k + 1 < count_kinds && which > from[k].percent)
            which -= from[k++].percent;
        now -= log(draw()) * mean / (load * slots);
        q[i].arrives = now;
        q[i].leaves = now - log(draw());
        q[i].k = from[k];
    }
    return q;
}

static void test_pool_against_servers(void **state)
{
    (void)state;
    static const double loads[LOADS] = { 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3 };
    bool large = slots >= 10000;
    uint32_t count = large ? 8 * slots : 40 * slots;
    printf("%u GPUs, %u requests a row; shares in %%\n", slots, count);
    printf("%-5s %-13s %8s %8s %6s %7s %9s %5s\n", "load", "side", "requests", "GPUs", "of 8",
           "in use", "stranded", "room");
    for (unsigned i = 0; i < LOADS; i++) {
        result r[SIDES];
        if (large && loads[i] < 1.0 - 1e-9)
            continue;
        if (large && loads[i] > 1.0 + 1e-9)
            break;
        request *q = make(kinds, sizeof kinds / sizeof kinds[0], loads[i], count);
        for (unsigned s = 0; s < SIDES; s++) {
            run((side)s, q, count, &r[s]);
            printf("%-5.2f %-13s %8.2f %8.2f %6.1f %7.1f %9.2f %5.2f\n", loads[i], side_names[s],
                   100 * r[s].accepted, 100 * r[s].given, 100 * r[s].whole, 100 * r[s].used,
                   100 * r[s].stranded, r[s].room);
        }
        free(q);
        printf("      policy: %.1f MB, choice and grant p50 %.2f us, p99 %.2f us\n",
               (double)r[POOL].pool_bytes / 1e6, r[POOL].p50_ns / 1e3, r[POOL].p99_ns / 1e3);
        for (unsigned s = POOL; s < SIDES; s++) {
            assert_true(r[s].given >= r[SERVERS].given);
            assert_true(r[s].used >= r[SERVERS].used);
            assert_true(r[s].stranded <= r[SERVERS].stranded);
        }
    }
}

/* Where everybody wants a whole server, a pool is not better, and the figures say so. */
static void test_control_whole_servers(void **state)
{
    (void)state;
    result r[SIDES];
    uint32_t count = 20 * slots;
    if (slots >= 10000)
        skip();
    request *q = make(whole_servers, 1, 1.0, count);
    for (unsigned s = 0; s < SIDES; s++)
        run((side)s, q, count, &r[s]);
    free(q);
    assert_true(r[SERVERS].accepted > 0.5 && r[SERVERS].accepted < 1);
    assert_true(r[POOL].accepted <= r[SERVERS].accepted);
    assert_true(r[POOL].accepted >= r[SERVERS].accepted);
    assert_true(r[POOL_GROUPS].accepted >= r[SERVERS].accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_against_servers),
        cmocka_unit_test(test_control_whole_servers),
    };
    const char *text = getenv("DXPU_SLOTS");
    if (text)
        slots = (uint32_t)strtoul(text, NULL, 0) / GPUS * GPUS;
    if (slots < 64) {
        fprintf(stderr, "DXPU_SLOTS must be at least 64\n");
        return 2;
    }
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
