/* stats.h - latency histogram, and counters written as text or JSON
   SPDX-License-Identifier: MIT */
#ifndef STATS_H_INCLUDED
#define STATS_H_INCLUDED

#include "dxpu.h"
#include "json.h"

#include <stdio.h>

/* Values in buckets of 1/32 of their size (3 %), any range, no allocation. */
enum { HISTOGRAM_BUCKETS = 60 * 32 };
typedef struct histogram {
    uint64_t count, max;
    uint64_t bucket[HISTOGRAM_BUCKETS];
} histogram;

void histogram_add(histogram *h, uint64_t value);
/* The value that `percent` of all do not exceed; 0 when there are none. */
uint64_t histogram_percentile(const histogram *h, double percent);

/* One object of names and values: lines for people, or one JSON object. */
typedef struct report {
    FILE *out;
    bool json;
    bool tape;
    unsigned depth;
    json_writer object;
} report;

void report_begin(report *r, FILE *out, bool json);
void report_end(report *r);
/* Numbers and objects as lines that another process's report can take: of the object `name`, its
   contents.  Other lines are left out. */
void report_begin_tape(report *r, FILE *out);
void report_play(report *r, const char *tape, size_t bytes, const char *name);
void report_open(report *r, const char *name); /* an object within */
void report_close(report *r);
void report_number(report *r, const char *name, uint64_t value);
void report_real(report *r, const char *name, double value);
void report_text(report *r, const char *name, const char *value);
/* count, p50, p90, p99, p99_9, max in microseconds */
void report_histogram(report *r, const char *name, const histogram *h);
/* All counters of a channel; text leaves out those that are 0. */
void report_counters(report *r, const char *name, const dxpu_counters *c);
/* Add the counters of one incarnation to a total. */
void counters_add(dxpu_counters *total, const dxpu_counters *c);

#endif /* STATS_H_INCLUDED */
