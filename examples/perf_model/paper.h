/* paper.h - the tables of the DxPU paper beside what the model says
   SPDX-License-Identifier: MIT */
#ifndef PERF_PAPER_H
#define PERF_PAPER_H

#include <stddef.h>

/* Of each kernel of ResNet-50 in training: the time that traffic of other GPUs makes longer, and
   what one GPU moves then, both directions (Table 12, batch size 64). */
#define PAPER_SHARED_US  20.9
#define PAPER_SHARED_GBS 2.3

enum { PAPER_PREDICTED, PAPER_CALIBRATED };

typedef struct paper_cell {
    const char *table; /* "Table 7" */
    char what[60];
    const char *unit; /* "%", "GB/s", "us" */
    double paper, model;
    unsigned kind; /* PAPER_* */
} paper_cell;

enum { PAPER_CELLS_MAX = 112 };

/* What the model has beside the paper: how many round trips a kernel waits for. */
typedef struct paper_settings {
    double reads_per_kernel; /* 0: the calibrated value */
    double launch_us;        /* of SSD320; 0: calibrated; less than 0: launches take no time */
} paper_settings;

/* All cells, in the order of the paper; returns how many. */
unsigned paper_cells(const paper_settings *s, paper_cell out[PAPER_CELLS_MAX]);

typedef struct paper_error {
    unsigned predicted, calibrated;
    double mean, worst; /* |model / paper - 1|, predicted cells only */
    double mean_signed;
    const paper_cell *worst_cell; /* NULL: none predicted */
} paper_error;

/* Over the cells of one table, or of all (NULL). */
paper_error paper_error_of(const paper_cell *cells, unsigned count, const char *table);
/* Tables in order, NULL past the last; what is given, assumed and missing for each. */
const char *paper_table(unsigned index);
const char *paper_note(unsigned index);

#endif
