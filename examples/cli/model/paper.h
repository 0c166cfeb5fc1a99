/* paper.h - the tables of the DxPU paper beside what the model says
   SPDX-License-Identifier: MIT */
#ifndef PERF_PAPER_H
#define PERF_PAPER_H

#include <stdbool.h>
#include <stddef.h>

/* Of each kernel of ResNet-50 in training: the time that traffic of other GPUs makes longer, and
   what one GPU moves then (Table 12, batch size 64); their mean kernel (4.3.2). */
#define PAPER_SHARED_US          20.9
#define PAPER_SHARED_TO_GPU_GBS  1.5
#define PAPER_SHARED_TO_HOST_GBS 0.8
#define PAPER_KERNEL_US          102.3

/* Where a figure of the paper comes from: its authors measured it, or got it out of their model,
   or computed it, or it is a point of a picture. */
enum { PAPER_MEASURED, PAPER_MODELLED, PAPER_COMPUTED, PAPER_DRAWN, PAPER_ORIGINS };
extern const char *const paper_origin[PAPER_ORIGINS];

typedef struct paper_cell {
    const char *table; /* "Table 7" */
    char what[60];
    const char *unit; /* "%", "GB/s", "us" */
    double paper, model;
    unsigned origin; /* PAPER_* */
    bool calibrated; /* a number of the model was chosen by it */
} paper_cell;

enum { PAPER_CELLS_MAX = 112 };

/* What the model has beside the paper: how many round trips a kernel waits for. */
typedef struct paper_settings {
    double reads_per_kernel; /* 0: the calibrated value */
    double launch_us;        /* of SSD320; 0: calibrated; less than 0: launches take no time */
} paper_settings;

/* All cells, in the order of the paper; returns how many. */
unsigned paper_cells(const paper_settings *s, paper_cell out[PAPER_CELLS_MAX]);

/* Every cell is of one group: what the model was calibrated by; of the rest, what was measured, and
   what was not. */
enum { PAPER_PREDICTED, PAPER_CALIBRATION, PAPER_UNMEASURED, PAPER_GROUPS };
unsigned paper_group(const paper_cell *c);

typedef struct paper_error {
    unsigned cells;
    double mean, worst, mean_signed; /* of |model / paper - 1|; the last without the bars */
    const paper_cell *worst_cell;    /* NULL: no cell */
} paper_error;

/* Over the cells of a group in one table, or in all (NULL). */
paper_error paper_error_of(const paper_cell *cells, unsigned count, const char *table,
                           unsigned group);
/* Tables in order, NULL past the last; what is given, assumed and missing for each. */
const char *paper_table(unsigned index);
const char *paper_note(unsigned index);

#endif
