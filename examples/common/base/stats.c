/* stats.c - see stats.h
   SPDX-License-Identifier: MIT */
#include "stats.h"
#include "text.h"

/* Bucket of a value: 32 linear ones below 32, then 32 for each doubling. */
static unsigned bucket_of(uint64_t v)
{
    unsigned shift = 0;
    while (v >> shift >= 64)
        shift++;
    return (unsigned)(v >> shift) + shift * 32;
}

/* Largest value of a bucket. */
static uint64_t bucket_top(unsigned index)
{
    unsigned shift = index < 64 ? 0 : index / 32 - 1;
    uint64_t base = (uint64_t)(index - shift * 32) << shift;
    return base + (((uint64_t)1 << shift) - 1);
}

void histogram_add(histogram *h, uint64_t value)
{
    unsigned i = bucket_of(value);
    h->bucket[i < HISTOGRAM_BUCKETS ? i : HISTOGRAM_BUCKETS - 1]++;
    h->count++;
    if (value > h->max)
        h->max = value;
}

uint64_t histogram_percentile(const histogram *h, double percent)
{
    double want = (double)h->count * percent / 100.0;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen && (double)seen >= want) {
            uint64_t top = bucket_top(i);
            return top < h->max ? top : h->max;
        }
    }
    return h->max;
}

static void name_of(const report *r, const char *name)
{
    fprintf(r->out, "%*s%-*s ", (int)(2 * r->depth), "", 26 - (int)(2 * r->depth), name);
}

void report_begin(report *r, FILE *out, bool json)
{
    r->out = out;
    r->json = json;
    r->tape = false;
    r->depth = 0;
    json_to_file(&r->object, out);
    if (json)
        json_put_open(&r->object, NULL, '{');
}

void report_begin_tape(report *r, FILE *out)
{
    report_begin(r, out, false);
    r->tape = true;
}

void report_end(report *r)
{
    if (r->json) {
        json_put_close(&r->object, '}');
        fputc('\n', r->out);
    }
    fflush(r->out);
}

void report_open(report *r, const char *name)
{
    if (r->tape)
        fprintf(r->out, "{ %s\n", name);
    else if (r->json)
        json_put_open(&r->object, name, '{');
    else
        fprintf(r->out, "%*s%s\n", (int)(2 * r->depth), "", name);
    r->depth++;
}

void report_close(report *r)
{
    if (r->tape)
        fputs("}\n", r->out);
    else if (r->json)
        json_put_close(&r->object, '}');
    r->depth--;
}

void report_number(report *r, const char *name, uint64_t value)
{
    if (r->tape) {
        fprintf(r->out, "%s %llu\n", name, (unsigned long long)value);
        return;
    }
    if (r->json) {
        json_put_number(&r->object, name, value);
        return;
    }
    name_of(r, name);
    fprintf(r->out, "%llu\n", (unsigned long long)value);
}

void report_real(report *r, const char *name, double value)
{
    if (r->json) {
        json_put_real(&r->object, name, value);
        return;
    }
    name_of(r, name);
    fprintf(r->out, "%.3f\n", value);
}

void report_text(report *r, const char *name, const char *value)
{
    char line[256];
    if (r->json) {
        json_put_text(&r->object, name, value);
        return;
    }
    snprintf(line, sizeof line, "%s", value);
    text_clean(line);
    name_of(r, name);
    fprintf(r->out, "%s\n", line);
}

/* One line of a tape; *depth of the object sought, 0 outside it. */
static void play_line(report *r, const char *line, const char *name, unsigned *depth)
{
    char word[40];
    unsigned long long value;
    if (sscanf(line, "{ %39[a-z0-9_]", word) == 1) {
        if (*depth)
            report_open(r, word);
        *depth += *depth || !strcmp(word, name);
    } else if (line[0] == '}' && *depth) {
        if (--*depth)
            report_close(r);
    } else if (*depth && sscanf(line, "%39[a-z0-9_] %20llu", word, &value) == 2) {
        report_number(r, word, value);
    }
}

void report_play(report *r, const char *tape, size_t bytes, const char *name)
{
    unsigned depth = 0;
    while (bytes) {
        const char *end = memchr(tape, '\n', bytes);
        size_t len = end ? (size_t)(end - tape) : bytes;
        char line[80];
        if (len < sizeof line) {
            memcpy(line, tape, len);
            line[len] = '\0';
            play_line(r, line, name, &depth);
        }
        len += end != NULL;
        tape += len;
        bytes -= len;
    }
    while (depth > 1) { /* it was cut off */
        report_close(r);
        depth--;
    }
}

void report_histogram(report *r, const char *name, const histogram *h)
{
    report_open(r, name);
    report_number(r, "count", h->count);
    report_real(r, "p50", (double)histogram_percentile(h, 50) / 1000.0);
    report_real(r, "p90", (double)histogram_percentile(h, 90) / 1000.0);
    report_real(r, "p99", (double)histogram_percentile(h, 99) / 1000.0);
    report_real(r, "p99_9", (double)histogram_percentile(h, 99.9) / 1000.0);
    report_real(r, "max", (double)h->max / 1000.0);
    report_close(r);
}

void report_counters(report *r, const char *name, const dxpu_counters *c)
{
    const char *counter;
    report_open(r, name);
    for (unsigned i = 0; (counter = dxpu_counter_name(i)) != NULL; i++) {
        uint64_t value = dxpu_counter_value(c, i);
        if (value || r->json)
            report_number(r, counter, value);
    }
    report_close(r);
}

void counters_add(dxpu_counters *total, const dxpu_counters *c)
{
    uint64_t a, b;
    for (unsigned i = 0; dxpu_counter_name(i); i++) {
        uint8_t *at = (uint8_t *)total + i * sizeof a;
        b = dxpu_counter_value(c, i);
        memcpy(&a, at, sizeof a);
        a += b;
        memcpy(at, &a, sizeof a);
    }
}
