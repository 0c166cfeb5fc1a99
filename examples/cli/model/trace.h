/* trace.h - a workload, from a trace of Nsight Systems, a profile of libdxpu-inject, or numbers
   SPDX-License-Identifier: MIT */
#ifndef PERF_TRACE_H
#define PERF_TRACE_H

#include "dxpu_model.h"

#include <stdio.h>

typedef struct perf_op {
    double start_us, duration_us, bytes;
    uint16_t stream;
    uint8_t kind; /* DXPU_MODEL_* */
} perf_op;

enum { PERF_STREAMS_MAX = 1024, PERF_WARNINGS_MAX = 8, PERF_WORDS = 240 };

typedef struct perf_work {
    perf_op *op; /* in order of start; NULL: `sum` is all there is */
    size_t ops;
    unsigned streams;
    dxpu_model_work sum;   /* counts and means; with ops for people to read */
    double short_kernels;  /* share of the kernels of 10 us or less */
    uint64_t lines_passed; /* rows of a trace that hold no operation */
    /* What the file does not say, or not of a native run. */
    unsigned warnings;
    char warning[PERF_WARNINGS_MAX][PERF_WORDS];
    char problem[PERF_WORDS];
} perf_work;

/* Reads a file of either kind.  NULL, or what is wrong with it, in `out`.  Then
   perf_work_free(). */
const char *perf_work_read(const char *path, perf_work *out);
/* The same from an open file that can be rewound, which stays the caller's. */
const char *perf_work_read_file(FILE *file, perf_work *out);
/* Cut a row into fields in place, at commas outside of quotes; how many there are. */
enum { PERF_FIELDS_MAX = 64 };
unsigned perf_split(char *line, char *field[PERF_FIELDS_MAX]);
void perf_work_free(perf_work *w);

/* Native time and what is added to it when pooled, in us.  `kinds` is a mask of 1 << DXPU_MODEL_*:
   operations of other kinds cost nothing more.  With scale 2, all operations are twice as long. */
enum { PERF_ALL_KINDS = (1 << DXPU_MODEL_KINDS) - 1 };
double perf_native_us(const dxpu_model *m, const perf_work *w, double scale);
double perf_extra_us(const dxpu_model *m, const perf_work *w, double scale, unsigned kinds);
double perf_performance(const dxpu_model *m, const perf_work *w, double scale);
/* As dxpu_model_rtt_for(), with its two ends. */
double perf_rtt_for(const dxpu_model *m, const perf_work *w, double performance, double max_us);

/* What could be done, and the performance then, as a share of today's native speed (with twice the
   batch: of the native speed with that); the best first. */
enum { PERF_CHANGES = 9 };
typedef struct perf_change {
    const char *what;
    double performance;
} perf_change;
void perf_changes(const dxpu_model *m, const perf_work *w, perf_change out[PERF_CHANGES]);

#endif
