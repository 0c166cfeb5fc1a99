/* model_simulate.c - dxpu model --simulate: TLPs through simulated links, beside the equations
   SPDX-License-Identifier: MIT */
#include "command.h"
#include "model_command.h"

#include "paper.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

/* TABLE_12 + n: n GPUs, each with the tags for what one alone moved there. */
enum { AS_IS, TAGS_256, MRS_512, NEXT_GENERATION, FIVE_TAGS, TABLE_12 };

typedef struct row {
    const char *what, *unit;
    unsigned traffic, change;
    bool pooled;
    double simulated, equation;
} row;

static const row all_rows[] = {
    { "copies to the device, native", "GB/s", PERF_READ, AS_IS, false, 0, 0 },
    { "copies to the device, pooled", "GB/s", PERF_READ, AS_IS, true, 0, 0 },
    { "... with 256 tags", "GB/s", PERF_READ, TAGS_256, true, 0, 0 },
    { "... with reads of 512 bytes", "GB/s", PERF_READ, MRS_512, true, 0, 0 },
    { "... with the next generation of PCIe", "GB/s", PERF_READ, NEXT_GENERATION, true, 0, 0 },
    { "copies to the host, native", "GB/s", PERF_WRITE, AS_IS, false, 0, 0 },
    { "copies to the host, pooled", "GB/s", PERF_WRITE, AS_IS, true, 0, 0 },
    { "writes of the host, native", "GB/s", PERF_PUSH, AS_IS, false, 0, 0 },
    { "writes of the host, pooled", "GB/s", PERF_PUSH, AS_IS, true, 0, 0 },
    { "GPU to GPU, one bridge or box", "GB/s", PERF_PEER, AS_IS, false, 0, 0 },
    { "GPU to GPU, across boxes", "GB/s", PERF_PEER, AS_IS, true, 0, 0 },
    { "kernel to kernel, native", "us", PERF_KERNELS, AS_IS, false, 0, 0 },
    { "kernel to kernel, pooled", "us", PERF_KERNELS, AS_IS, true, 0, 0 },
    { "link in use, 5 tags of 4 KB, native", "%", PERF_READ, FIVE_TAGS, false, 0, 0 },
    { "link in use, 5 tags of 4 KB, pooled", "%", PERF_READ, FIVE_TAGS, true, 0, 0 },
    { "2 GPUs that want 1.5 GB/s each", "GB/s", PERF_READ, TABLE_12 + 2, true, 0, 0 },
    { "4 GPUs that want 1.5 GB/s each", "GB/s", PERF_READ, TABLE_12 + 4, true, 0, 0 },
    { "8 GPUs that want 1.5 GB/s each", "GB/s", PERF_READ, TABLE_12 + 8, true, 0, 0 },
};
enum { ROWS = sizeof all_rows / sizeof all_rows[0] };

/* Enough that a GPU reads what one alone read in Table 12, where its link brings as much. */
static uint32_t wanted_tags(const dxpu_model *m)
{
    double tags = dxpu_model_equation1_tags(PAPER_SHARED_TO_GPU_GBS, m->mrs_bytes, m->rtt_us);
    return tags < 1 ? 1 : tags < m->tags ? (uint32_t)(tags + 0.5) : m->tags;
}

static void change(dxpu_model *m, unsigned what)
{
    if (what == TAGS_256 || what == FIVE_TAGS)
        m->tags = what == FIVE_TAGS ? 5 : 256;
    if (what == MRS_512 || what == FIVE_TAGS)
        m->mrs_bytes = what == FIVE_TAGS ? 4096 : 512;
    if (what == NEXT_GENERATION)
        m->generation += m->generation < 5;
    if (what > TABLE_12) {
        m->gpus = what - TABLE_12;
        m->tags = wanted_tags(m);
    }
}

static double equation(const dxpu_model *m, const dxpu_model_work *work, const row *of)
{
    double delta = of->pooled ? dxpu_model_kernel_delta_us(m) : 0;
    double read = dxpu_model_read_gbs(m, of->pooled);
    dxpu_model wide = *m;
    wide.network_gbit_s = 1e6; /* the PCIe link alone */
    if (of->traffic == PERF_KERNELS)
        return dxpu_model_period_us(work->kernel_us + delta, work->launch_us, true);
    if (of->traffic == PERF_PUSH)
        return dxpu_model_push_gbs(m, of->pooled);
    if (of->traffic != PERF_READ)
        return dxpu_model_write_gbs(m, of->pooled);
    if (of->change == FIVE_TAGS)
        return 100 * read / dxpu_model_link_gbs(&wide, of->pooled, m->completion_bytes, 12);
    return of->pooled ? dxpu_model_all_gbs(m, read) : m->gpus * read;
}

/* Natively each GPU has a slot of its own, and so have all together what each has. */
static int simulate_one(const model_request *r, row *of, perf_result *res)
{
    perf_scene sc;
    int rc;
    perf_scene_default(&sc);
    sc.m = r->m;
    sc.m.proxies = 1;
    sc.traffic = of->traffic;
    sc.pooled = of->pooled;
    change(&sc.m, of->change);
    if (sc.traffic == PERF_PEER)
        sc.m.gpus = 2;
    else if (sc.traffic == PERF_KERNELS || of->change == FIVE_TAGS || !sc.pooled)
        sc.m.gpus = 1;
    if (sc.traffic == PERF_KERNELS) {
        sc.kernel_us = r->w.sum.kernel_us;
        sc.launch_us = r->w.sum.launch_us;
        sc.round_trips = 100;
    }
    rc = perf_run(&sc, res);
    of->equation = equation(&sc.m, &r->w.sum, of);
    of->simulated = sc.traffic == PERF_KERNELS ? res->period_us
                    : of->change == FIVE_TAGS  ? 100 * res->link_share
                                               : res->gbs;
    return rc;
}

static const char *const stops[PERF_STAMPS] = { "at the box",  "sent",      "arrived",
                                                "at the host", "in memory", "its data at the host",
                                                "sent",        "arrived",   "at the box",
                                                "at the GPU" };

/* The parts of Table 6. */
static void print_read(const double at[PERF_STAMPS])
{
    double network = at[PERF_CAME] - at[PERF_SENT] + at[PERF_CAME_AGAIN] - at[PERF_SENT_AGAIN];
    double proxies = at[PERF_AT_HOST] - at[PERF_AT_BOX] + at[PERF_AT_BOX_AGAIN] -
                     at[PERF_AT_HOST_AGAIN] - network;
    printf("\none read, us: ");
    for (unsigned i = 0; i < PERF_STAMPS; i++)
        printf("%s%s %.2f", i ? ", " : "", stops[i], at[i]);
    printf("\n%.2f us of it as in a host, %.2f on the network, %.2f in proxies\n",
           at[PERF_AT_GPU] - network - proxies, network, proxies);
}

/* What the line fitted to Table 12, by which the estimate goes, has in place of such a row, and
   what was measured. */
static double fitted_gbs(const dxpu_model *m, unsigned gpus)
{
    dxpu_model n = *m;
    n.gpus = gpus;
    n.proxies = 1;
    return gpus * PAPER_SHARED_TO_GPU_GBS /
           dxpu_model_crowding(&n, PAPER_SHARED_TO_GPU_GBS, PAPER_SHARED_TO_HOST_GBS);
}

static double measured_gbs(unsigned gpus)
{
    return gpus == 2 ? 2.6 : gpus == 4 ? 4.9 : 8.4;
}

static void print_beside_the_paper(const dxpu_model *m, const row rows[ROWS])
{
    double peer[2] = { 0, 0 };
    for (unsigned i = 0; i < ROWS; i++)
        if (rows[i].traffic == PERF_PEER)
            peer[rows[i].pooled] = rows[i].simulated;
    printf("\nGPUs that share proxies: links alone slow nothing until one is full.  The estimate "
           "goes by a\nline fitted to Table 12 of the paper, which has %.2f, %.2f and %.2f GB/s; "
           "measured were %g, %g and %g.\n",
           fitted_gbs(m, 2), fitted_gbs(m, 4), fitted_gbs(m, 8), measured_gbs(2), measured_gbs(4),
           measured_gbs(8));
    printf(
        "GPU to GPU across boxes brings %.0f %% of one bridge; the paper measured 74 (Figure 7), "
        "by way\nof a root complex that is not simulated.\n",
        100 * peer[1] / peer[0]);
}

static int simulated_json(const dxpu_model *m, const row rows[ROWS],
                          const double at_us[PERF_STAMPS])
{
    json_t *o = json_object(), *list = json_array(), *item;
    for (unsigned i = 0; i < ROWS; i++) {
        item = json_object();
        model_set_text(item, "what", rows[i].what);
        model_set_text(item, "unit", rows[i].unit);
        if (rows[i].simulated < 0)
            json_object_set_new(item, "simulated", json_null());
        else
            model_set_real(item, "simulated", rows[i].simulated);
        model_set_real(item, "equation", rows[i].equation);
        if (rows[i].change > TABLE_12) {
            model_set_real(item, "fitted", fitted_gbs(m, rows[i].change - TABLE_12));
            model_set_real(item, "paper", measured_gbs(rows[i].change - TABLE_12));
        }
        json_array_append_new(list, item);
    }
    json_object_set_new(o, "simulated", list);
    list = json_array();
    for (unsigned i = 0; i < PERF_STAMPS; i++) {
        item = json_object();
        model_set_text(item, "at", stops[i]);
        model_set_real(item, "us", at_us[i]);
        json_array_append_new(list, item);
    }
    json_object_set_new(o, "read", list);
    return model_print_json(o);
}

static int refused(const model_request *r)
{
    if (r->m.gpus > PERF_GPUS_MAX)
        return options_wrong("--simulate accepts at most %d GPUs", PERF_GPUS_MAX);
    if (r->m.tags > DXPU_TAGS_768)
        return options_wrong("--simulate accepts at most %d tags", DXPU_TAGS_768);
    return options_wrong("a read takes longer than %g us, or natively %g us, on these links alone: "
                         "give --rtt and --native-rtt more, or the links",
                         r->m.rtt_us, r->m.rtt_native_us);
}

int model_simulate(const model_request *r)
{
    row rows[ROWS];
    double at_us[PERF_STAMPS];
    perf_scene sc;
    if (r->w.sum.kernel_us < r->m.reads_per_kernel * r->m.rtt_native_us)
        return options_wrong("kernels of %g us cannot wait for %g round trips of %g us each: give "
                             "--kernel more, or --waits less",
                             r->w.sum.kernel_us, r->m.reads_per_kernel, r->m.rtt_native_us);
    memcpy(rows, all_rows, sizeof rows);
    for (unsigned i = 0; i < ROWS; i++) {
        perf_result res;
        bool done = simulate_one(r, &rows[i], &res) == DXPU_OK;
        if (!done && rows[i].change != FIVE_TAGS)
            return refused(r);
        if (!done)
            rows[i].simulated = -1;
        if (i == 1)
            memcpy(at_us, res.stamp_us, sizeof at_us);
    }
    if (r->json)
        return simulated_json(&r->m, rows, at_us);
    printf("                                      simulated   equation\n");
    for (unsigned i = 0; i < ROWS; i++) {
        if (rows[i].simulated < 0)
            printf("%-36s  not here: 4 KB take longer than the round trip\n", rows[i].what);
        else
            printf("%-36s  %9.2f  %9.2f %s\n", rows[i].what, rows[i].simulated, rows[i].equation,
                   rows[i].unit);
    }
    print_read(at_us);
    print_beside_the_paper(&r->m, rows);
    perf_scene_default(&sc);
    printf("\nChannels have windows of %u frames and %u KB of posted data; what fewer bring: "
           "spec/model.md.\n",
           sc.window_frames, sc.posted_bytes / 1024);
    return EXIT_ALL;
}
