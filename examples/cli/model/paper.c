/* paper.c - see paper.h
   SPDX-License-Identifier: MIT

   Four figures of the paper set four numbers of the model; everything else is predicted:
     reads_per_kernel  Figure 4, at 8 and 19 us
     proxy_bytes       Table 7, GPU to host
     SSD_LAUNCH_US     Table 11, SSD320, batch size 64
     PAPER_SHARED_US   Table 12, 8 GPUs, batch size 64 */
#include "paper.h"

#include "dxpu_model.h"

#include <stdio.h>
#include <string.h>

#define SSD_LAUNCH_US 13.8          /* the host's time from kernel to kernel */
#define XLA_FACTOR    (131 / 102.3) /* 4.3.2: what fusion makes of the mean duration */
#define COPY_US       35.1          /* 4.3.2: mean duration of memory operations, xla off */
#define COPY_XLA_US   11.3          /* ... on */
#define COPY_XLA_MORE (16.7 / 14.9) /* 4.3.2: their share, on over off */

typedef struct notebook {
    dxpu_model m;
    const paper_settings *set;
    paper_cell *out;
    unsigned count;
    const char *table;
} notebook;

const char *const paper_origin[PAPER_ORIGINS] = { "measured", "paper's model", "computed",
                                                  "figure" };

/* What kind says of a cell: its origin, and perhaps CALIBRATED. */
enum { CALIBRATED = 8 };

static void cell(notebook *n, unsigned kind, const char *unit, double paper, double model,
                 const char *what)
{
    paper_cell *c = &n->out[n->count];
    if (n->count == PAPER_CELLS_MAX)
        return;
    n->count++;
    c->table = n->table;
    c->unit = unit;
    c->paper = paper;
    c->model = model;
    c->origin = kind & (CALIBRATED - 1);
    c->calibrated = kind & CALIBRATED;
    snprintf(c->what, sizeof c->what, "%s", what);
}

/* Per cent of the native speed that kernels of this duration keep. */
static double kernels(const notebook *n, double kernel_us, double launch_us)
{
    dxpu_model_work w;
    dxpu_model_work_default(&w);
    w.kernels = 1;
    w.kernel_us = kernel_us;
    w.launch_us = launch_us;
    return 100 * dxpu_model_performance(&n->m, &w);
}

/* ---- 3.4 and 3.5 ---- */

static void equation_1(notebook *n)
{
    static const struct {
        double rtt_us, paper;
        unsigned kind;
        const char *what;
    } rows[] = { { 6.8, 2.64, PAPER_COMPUTED, "6.8 us, by the paper's equation" },
                 { 4.9, 3.66, PAPER_COMPUTED, "4.9 us, by the paper's equation" },
                 { 6.8, 2.7, PAPER_MEASURED, "6.8 us, bandwidthTest" },
                 { 4.9, 3.9, PAPER_MEASURED, "4.9 us, bandwidthTest" } };
    n->table = "Equation 1";
    for (unsigned i = 0; i < 4; i++) {
        dxpu_model m = n->m;
        m.rtt_us = rows[i].rtt_us;
        cell(n, rows[i].kind, "GB/s", rows[i].paper, dxpu_model_read_gbs(&m, true), rows[i].what);
    }
}

static void figure_4(notebook *n)
{
    static const struct {
        double rtt_us, paper;
        unsigned kind;
        const char *table, *what;
    } rows[] = { { 8, 90, PAPER_DRAWN | CALIBRATED, "Figure 4", "8 us" },
                 { 19, 80, PAPER_DRAWN | CALIBRATED, "Figure 4", "19 us" },
                 { 4.9, 92.56, PAPER_MODELLED, "Table 4", "4.9 us, the paper's model" },
                 { 6.8, 91.40, PAPER_MODELLED, "Table 4", "6.8 us, the paper's model" },
                 { 4.9, 91.50, PAPER_MEASURED, "Table 4", "4.9 us, the implementation" },
                 { 6.8, 89.56, PAPER_MEASURED, "Table 4", "6.8 us, the implementation" } };
    dxpu_model_work w;
    dxpu_model_work_default(&w);
    w.kernels = 1;
    w.kernel_us = PAPER_KERNEL_US;
    for (unsigned i = 0; i < 6; i++) {
        notebook at = *n;
        at.m.rtt_us = rows[i].rtt_us;
        n->table = rows[i].table;
        cell(n, rows[i].kind, "%", rows[i].paper, kernels(&at, PAPER_KERNEL_US, 0), rows[i].what);
        if (i == 1) {
            cell(n, PAPER_DRAWN | CALIBRATED, "us", 8, dxpu_model_rtt_for(&n->m, &w, 0.9, 100),
                 "round trip that keeps 90 %");
            cell(n, PAPER_DRAWN | CALIBRATED, "us", 19, dxpu_model_rtt_for(&n->m, &w, 0.8, 100),
                 "round trip that keeps 80 %");
        }
    }
}

static void table_7(notebook *n)
{
    const dxpu_model *m = &n->m;
    n->table = "Table 7";
    cell(n, PAPER_MEASURED, "GB/s", 11.2, dxpu_model_read_gbs(m, false), "host to GPU, native");
    cell(n, PAPER_MEASURED, "GB/s", 2.7, dxpu_model_read_gbs(m, true), "host to GPU, DxPU");
    cell(n, PAPER_MEASURED, "%", 24.1, 100 * dxpu_model_read_gbs(m, true) / 11.2,
         "host to GPU, of the measured native");
    cell(n, PAPER_MEASURED, "GB/s", 12.5, dxpu_model_write_gbs(m, false), "GPU to host, native");
    cell(n, PAPER_MEASURED | CALIBRATED, "GB/s", 11.6, dxpu_model_write_gbs(m, true),
         "GPU to host, DxPU");
    cell(n, PAPER_MEASURED | CALIBRATED, "%", 92.8, 100 * dxpu_model_write_gbs(m, true) / 12.5,
         "GPU to host, of the measured native");
    n->table = "Section 5.1";
    cell(n, PAPER_MEASURED, "GB/s", 9.44, dxpu_model_push_gbs(m, true), "host writes, DxPU");
    n->table = "Figure 7";
    cell(n, PAPER_MEASURED, "%", 74,
         100 * dxpu_model_write_gbs(m, true) / dxpu_model_write_gbs(m, false),
         "GPU to GPU, across proxies, of one bridge");
}

/* ---- Table 9 ---- */

enum { XLA = 1, INFERENCE = 2, IMAGENET = 4, CPU = 8, KINDS = 16 };

/* The parts of a step, from the shares of the time that the paper gives: one kernel, and copies of
   `copy_us` that take `waited` and `hidden` of the native time. */
static double shares(const notebook *n, double kernel_us, double waited, double hidden,
                     double copy_us)
{
    dxpu_model_work w;
    double step_us = kernel_us / (1 - waited - hidden), copies = waited * step_us / copy_us;
    dxpu_model_work_default(&w);
    w.kernels = 1;
    w.kernel_us = kernel_us;
    w.hidden_copies = hidden * step_us / copy_us;
    w.htod_copies = w.dtoh_copies = copies / 2; /* weights go one way, gradients the other */
    w.htod_bytes = (copy_us - n->m.rtt_native_us) * 1e3 * dxpu_model_read_gbs(&n->m, false);
    w.dtoh_bytes = (copy_us - n->m.rtt_native_us / 2) * 1e3 * dxpu_model_write_gbs(&n->m, false);
    return 100 * dxpu_model_performance(&n->m, &w);
}

static double resnet(const notebook *n, unsigned batch, unsigned kind)
{
    static const double kernel_us[] = { 56.0, 102.3, 193.0 }, inference[] = { 1.482, 1.555, 1.551 };
    /* Table 10: synthetic training, inference; ImageNet training, inference */
    static const double gpu[] = { 0.002, 0.002, 0.028, 0.090 };
    static const double cpu[] = { 0.075, 0.156, 0.099, 0.223 };
    unsigned column = (kind & INFERENCE ? 1 : 0) + (kind & IMAGENET ? 2 : 0);
    double us = kernel_us[batch], waited = 0, hidden = gpu[column], more = 1;
    us *= kind & INFERENCE ? inference[batch] : 1;
    us *= kind & XLA ? XLA_FACTOR : 1;
    if (kind & XLA)
        more = COPY_XLA_MORE;
    if (kind & CPU) { /* its parameters are waited for, what comes on top is input */
        waited = cpu[column & 1] * more;
        hidden = (cpu[column] - cpu[column & 1]) * more;
    } else if ((kind & XLA) && (kind & INFERENCE)) {
        hidden += 0.079 - 0.002; /* 4.3.2 */
    }
    return shares(n, us, waited, hidden, kind & XLA ? COPY_XLA_US : COPY_US);
}

static void table_9(notebook *n)
{
    /* synthetic training xla off, on, inference off, on; the same of ImageNet */
    static const double paper[4][8] = { { 85.2, 93.3, 95.4, 94.6, 83.8, 92.4, 94.1, 93.2 },
                                        { 92.7, 97.5, 98.6, 98.1, 89.4, 96.8, 97.2, 97.1 },
                                        { 95.5, 97.9, 99.5, 99.6, 94.3, 97.3, 97.7, 97.6 },
                                        { 90.9, 88.1, 83.4, 74.0, 90.5, 88.0, 84.1, 73.5 } };
    static const char *const rows[] = { "32", "64", "128", "128, CPU" };
    n->table = "Table 9";
    for (unsigned row = 0; row < 4; row++) {
        for (unsigned kind = 0; kind < 8; kind++) {
            char what[60];
            snprintf(what, sizeof what, "%s, %s %s%s", rows[row],
                     kind & IMAGENET ? "ImageNet" : "synthetic",
                     kind & INFERENCE ? "inference" : "training", kind & XLA ? ", xla" : "");
            cell(n, PAPER_MEASURED, "%", paper[row][kind],
                 resnet(n, row < 3 ? row : 2, kind | (row == 3 ? (unsigned)CPU : 0)), what);
        }
    }
}

/* ---- Tables 11 to 14 ---- */

static void table_11(notebook *n)
{
    static const double kernel_us[] = { 10.7, 8.2, 7.9, 8.1 };
    static const double paper[] = { 81.53, 84.62, 84.47, 83.64 };
    double launch_us = n->set->launch_us;
    launch_us = launch_us < 0 ? 0 : launch_us > 0 ? launch_us : SSD_LAUNCH_US;
    n->table = "Table 11";
    for (unsigned i = 0; i < 4; i++) {
        char what[60];
        snprintf(what, sizeof what, "SSD320, batch size %u", 8u << i);
        cell(n, PAPER_MEASURED | (i == 3 ? CALIBRATED : 0), "%", paper[i],
             kernels(n, kernel_us[i], launch_us), what);
    }
}

static void table_12_row(notebook *n, unsigned big, unsigned i)
{
    static const double toward[2][4] = { { 1.5, 2.6, 4.9, 8.4 }, { 1.4, 2.6, 5.0, 8.3 } };
    static const double from[2][4] = { { 0.8, 1.3, 2.3, 3.6 }, { 0.7, 1.3, 2.3, 3.6 } };
    static const double paper[2][4] = { { 92.7, 90.3, 87.5, 82.4 }, { 96.5, 94.7, 92.4, 90.7 } };
    static const double kernel_us[] = { 102.3, 193.0 };
    double slower;
    dxpu_model m = n->m;
    dxpu_model_work w;
    char what[60];
    m.gpus = 1u << i;
    slower = dxpu_model_crowding(&m, toward[big][0], from[big][0]);
    if (i) { /* the row of one GPU is what the others are computed from */
        snprintf(what, sizeof what, "batch %u, %u GPUs, from the host", big ? 128u : 64u, m.gpus);
        cell(n, PAPER_MEASURED, "GB/s", toward[big][i], toward[big][0] * m.gpus / slower, what);
        snprintf(what, sizeof what, "batch %u, %u GPUs, to the host", big ? 128u : 64u, m.gpus);
        cell(n, PAPER_MEASURED, "GB/s", from[big][i], from[big][0] * m.gpus / slower, what);
    }
    dxpu_model_work_default(&w);
    w.kernels = 1;
    w.kernel_us = kernel_us[big];
    w.shared_us = PAPER_SHARED_US;
    w.shared_to_device_gbs = toward[big][0];
    w.shared_to_host_gbs = from[big][0];
    snprintf(what, sizeof what, "batch %u, %u GPUs, performance", big ? 128u : 64u, m.gpus);
    cell(n, PAPER_MEASURED | (!big && i == 3 ? CALIBRATED : 0), "%", paper[big][i],
         100 * dxpu_model_performance(&m, &w), what);
}

static void graphics(notebook *n)
{
    static const double kernel_us[] = { 65.6, 122.8, 221.6 }, paper[] = { 87.0, 91.0, 95.0 };
    static const char *const what[] = { "ideas, 1920x1080", "ideas, 3840x2160",
                                        "ideas, 7680x4320" };
    n->table = "Table 13";
    cell(n, PAPER_MEASURED, "%", 97.4, kernels(n, 1e6 / 2177.67, 0), "Valley");
    cell(n, PAPER_MEASURED, "%", 88.7, kernels(n, 1e6 / 2108.11, 0), "Heaven");
    n->table = "Table 14";
    for (unsigned i = 0; i < 3; i++)
        cell(n, PAPER_MEASURED, "%", paper[i], kernels(n, kernel_us[i], 0), what[i]);
}

unsigned paper_cells(const paper_settings *s, paper_cell out[PAPER_CELLS_MAX])
{
    notebook n;
    memset(&n, 0, sizeof n);
    n.set = s;
    n.out = out;
    dxpu_model_default(&n.m);
    if (s->reads_per_kernel > 0)
        n.m.reads_per_kernel = s->reads_per_kernel;
    equation_1(&n);
    figure_4(&n);
    table_7(&n);
    table_9(&n);
    table_11(&n);
    n.table = "Table 12";
    for (unsigned i = 0; i < 8; i++)
        table_12_row(&n, i / 4, i % 4);
    graphics(&n);
    return n.count;
}

/* ---- errors and notes ---- */

unsigned paper_group(const paper_cell *c)
{
    return c->calibrated                 ? PAPER_CALIBRATION
           : c->origin == PAPER_MEASURED ? PAPER_PREDICTED
                                         : PAPER_UNMEASURED;
}

paper_error paper_error_of(const paper_cell *cells, unsigned count, const char *table,
                           unsigned group)
{
    paper_error e;
    memset(&e, 0, sizeof e);
    for (unsigned i = 0; i < count; i++) {
        double off = cells[i].model / cells[i].paper - 1, size = off < 0 ? -off : off;
        if ((table && strcmp(table, cells[i].table) != 0) || paper_group(&cells[i]) != group)
            continue;
        e.cells++;
        e.mean += size;
        e.mean_signed += off;
        if (size >= e.worst) {
            e.worst = size;
            e.worst_cell = &cells[i];
        }
    }
    if (e.cells) {
        e.mean /= e.cells;
        e.mean_signed /= e.cells;
    }
    return e;
}

static const char *const notes[][2] = {
    { "Equation 1", "given: tags, MRS, round trips" },
    { "Figure 4", "given: two points, of the paper's model; the curve is a picture. "
                  "assumed: kernels of 102.3 us, as with batch size 64 in 4.3.2" },
    { "Table 4", "given: round trips. assumed: kernels of 102.3 us" },
    { "Table 7", "given: lanes, generation, tags, MRS. assumed: completions of 64 bytes, writes of "
                 "128, 8 % of a link for its own packets" },
    { "Section 5.1", "assumed: writes of 64 bytes, a cache line" },
    { "Figure 7", "given: 74 % in the text; the bars are a picture, their values missing. assumed: "
                  "the copies are writes" },
    { "Table 9",
      "given: mean kernel durations without xla, that of training with xla at batch size "
      "64, shares of memory operations, their mean durations with a CPU as parameter "
      "device. assumed: xla lengthens all kernels by the same factor; copies of a GPU "
      "as parameter device last as long as those of a CPU; half of the parameters' "
      "time goes each way; input is copied ahead; Table 10's damaged rows are read so "
      "that a CPU has the larger share" },
    { "Table 11", "given: mean kernel durations of SSD320. missing: durations for NCF, whose own "
                  "cells are damaged (the text says above 96 %)" },
    { "Table 12",
      "given: what one GPU moves, mean kernel durations. fitted: one number, to the last "
      "performance of batch size 64; its form, a line in the number of GPUs, is not "
      "derived from anything: a shared link alone slows nothing below 10 GB/s "
      "(--simulate). assumed: the shared time of a kernel is the same with both batch "
      "sizes" },
    { "Table 13",
      "given: frames a second. assumed: one GPU workload a frame; how many there are is "
      "missing" },
    { "Table 14", "given: mean workload durations; damaged cells are read as 65.6, 122.8, 221.6 us "
                  "and 87.0, 91.0, 95.0 %. missing: jellyfish and effect2d" },
};

const char *paper_table(unsigned index)
{
    return index < sizeof notes / sizeof notes[0] ? notes[index][0] : NULL;
}

const char *paper_note(unsigned index)
{
    return index < sizeof notes / sizeof notes[0] ? notes[index][1] : NULL;
}
