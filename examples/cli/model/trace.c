/* trace.c - see trace.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Traces of Nsight Systems   2 Profiles of libdxpu-inject   3 Files   4 Sums */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_BYTES = 96 };

#if defined(__GNUC__)
#define FORMAT __attribute__((format(printf, 2, 3)))
#else
#define FORMAT
#endif

/* Words of the file are in it: nothing that a terminal would obey. */
static void plain(char text[PERF_WORDS])
{
    for (char *c = text; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
}

static FORMAT void warn(perf_work *w, const char *format, ...)
{
    va_list arguments;
    if (w->warnings == PERF_WARNINGS_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(w->warning[w->warnings], PERF_WORDS, format, arguments);
    va_end(arguments);
    plain(w->warning[w->warnings++]);
}

/* What is wrong with the file, for the caller to return. */
static FORMAT const char *refuse(perf_work *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->problem, PERF_WORDS, format, arguments);
    va_end(arguments);
    plain(w->problem);
    return w->problem;
}

/* ==== 1  Traces of Nsight Systems ============================================================= */

/* `nsys stats --report cuda_gpu_trace --format csv`: perhaps words first, then this header. */
enum { START, DURATION, BYTES, DEVICE, CONTEXT, STREAM, NAME, COLUMNS };

typedef struct columns {
    int at[COLUMNS]; /* -1: none */
    double us[2];    /* of a unit of START, DURATION */
    double bytes;    /* of a unit of BYTES */
} columns;

typedef struct reader {
    perf_work *w;
    size_t cap;
    columns c;
    uint64_t line, head_line; /* this one; the header's, 0: not yet */
    uint64_t passed_line, strange_line, strange;
    char (*key)[KEY_BYTES]; /* of each stream */
} reader;

unsigned perf_split(char *line, char *field[PERF_FIELDS_MAX])
{
    unsigned n = 0;
    char *to = line;
    while (n < PERF_FIELDS_MAX) {
        bool quoted = *line == '"';
        field[n++] = to;
        line += quoted;
        for (; *line; line++) {
            if (quoted && line[0] == '"' && line[1] != '"') {
                quoted = false;
                continue;
            }
            if (!quoted && *line == ',')
                break;
            line += quoted && line[0] == '"';
            *to++ = *line;
        }
        if (!*line) {
            *to = 0;
            return n;
        }
        *to++ = 0;
        line++;
    }
    return n;
}

/* The factor of the unit in parentheses behind a column's name; 0 for another word. */
static double unit_of(const char *head, const char *name, const char *const units[],
                      const double factors[], unsigned count)
{
    size_t len = strlen(name);
    if (strncmp(head, name, len) != 0 || strncmp(head + len, " (", 2) != 0)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        size_t unit = strlen(units[i]);
        if (strncmp(head + len + 2, units[i], unit) == 0 && head[len + 2 + unit] == ')')
            return factors[i];
    }
    return 0;
}

static bool read_head(reader *r, char *field[], unsigned count)
{
    static const char *const times[] = { "ns", "us", "ms", "s", "nsec", "usec", "msec", "sec" };
    static const double time_us[] = { 1e-3, 1, 1e3, 1e6, 1e-3, 1, 1e3, 1e6 };
    static const char *const sizes[] = { "B", "KB", "MB", "GB", "KiB", "MiB", "GiB" };
    static const double size_bytes[] = { 1, 1e3, 1e6, 1e9, 1024, 1048576, 1073741824 };
    static const char *const plain[COLUMNS] = { NULL, NULL, NULL, "Device", "Ctx", "Strm", "Name" };
    columns *c = &r->c;
    for (unsigned i = 0; i < COLUMNS; i++)
        c->at[i] = -1;
    for (unsigned i = 0; i < count; i++) {
        double start = unit_of(field[i], "Start", times, time_us, 8);
        double duration = unit_of(field[i], "Duration", times, time_us, 8);
        double bytes = unit_of(field[i], "Bytes", sizes, size_bytes, 7);
        if (start > 0 || duration > 0) {
            c->at[start > 0 ? START : DURATION] = (int)i;
            c->us[start > 0 ? START : DURATION] = start > 0 ? start : duration;
        } else if (bytes > 0) {
            c->at[BYTES] = (int)i;
            c->bytes = bytes;
        }
        for (unsigned k = DEVICE; k < COLUMNS; k++)
            c->at[k] = strcmp(field[i], plain[k]) == 0 ? (int)i : c->at[k];
    }
    return c->at[START] >= 0 && c->at[DURATION] >= 0 && c->at[NAME] >= 0;
}

static bool number(const char *text, double factor, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0)
        return false;
    *out = v * factor;
    return true;
}

static const char *text_of(const reader *r, char *field[], unsigned count, unsigned column)
{
    int at = r->c.at[column];
    return at >= 0 && (unsigned)at < count ? field[at] : "";
}

/* Which stream; those beyond the table share its last place. */
static uint16_t stream_of(reader *r, char *field[], unsigned count)
{
    char key[KEY_BYTES];
    unsigned i;
    snprintf(key, sizeof key, "%.40s|%.20s|%.20s", text_of(r, field, count, DEVICE),
             text_of(r, field, count, CONTEXT), text_of(r, field, count, STREAM));
    for (i = 0; i < r->w->streams; i++)
        if (strcmp(key, r->key[i]) == 0)
            return (uint16_t)i;
    if (i == PERF_STREAMS_MAX)
        return PERF_STREAMS_MAX - 1;
    memcpy(r->key[i], key, sizeof key);
    r->w->streams++;
    return (uint16_t)i;
}

/* Memset, and copies that stay on the device, are as kernels.  *strange: something else of CUDA's,
   which is taken for a kernel too. */
static unsigned kind_of(const char *name, bool *strange)
{
    static const struct {
        const char *begins;
        uint8_t kind;
    } of[] = { { "[CUDA memcpy HtoD", DXPU_MODEL_HTOD },
               { "[CUDA memcpy Host-to-Device", DXPU_MODEL_HTOD },
               { "[CUDA memcpy DtoH", DXPU_MODEL_DTOH },
               { "[CUDA memcpy Device-to-Host", DXPU_MODEL_DTOH },
               { "[CUDA memcpy DtoD", DXPU_MODEL_KERNEL },
               { "[CUDA memcpy Device-to-Device", DXPU_MODEL_KERNEL },
               { "[CUDA memset", DXPU_MODEL_KERNEL } };
    *strange = false;
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++)
        if (strncmp(name, of[i].begins, strlen(of[i].begins)) == 0)
            return of[i].kind;
    *strange = strncmp(name, "[CUDA ", 6) == 0;
    return DXPU_MODEL_KERNEL;
}

static bool keep(reader *r, const perf_op *op)
{
    perf_work *w = r->w;
    if (w->ops == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 4096;
        perf_op *grown = realloc(w->op, cap * sizeof *grown);
        if (!grown)
            return false;
        w->op = grown;
        r->cap = cap;
    }
    w->op[w->ops++] = *op;
    return true;
}

/* NULL, or why the trace cannot be used: without the size of a copy there is no estimate. */
static const char *read_row(reader *r, char *line)
{
    char *field[PERF_FIELDS_MAX];
    unsigned count = perf_split(line, field);
    const char *name, *bytes;
    bool strange;
    perf_op op;
    if (!r->head_line) {
        r->head_line = read_head(r, field, count) ? r->line : 0;
        return NULL;
    }
    memset(&op, 0, sizeof op);
    name = text_of(r, field, count, NAME);
    bytes = text_of(r, field, count, BYTES);
    if (!number(text_of(r, field, count, START), r->c.us[START], &op.start_us) ||
        !number(text_of(r, field, count, DURATION), r->c.us[DURATION], &op.duration_us) || !*name) {
        r->passed_line = r->w->lines_passed++ ? r->passed_line : r->line;
        return NULL;
    }
    op.kind = (uint8_t)kind_of(name, &strange);
    if (strange)
        r->strange_line = r->strange++ ? r->strange_line : r->line;
    if (op.kind != DXPU_MODEL_KERNEL && r->c.at[BYTES] < 0)
        return refuse(r->w,
                      "line %" PRIu64 " is a copy, and the header in line %" PRIu64
                      " has no column 'Bytes (B)', in KB, MB, GB, or KiB to GiB; take the "
                      "report as nsys prints it",
                      r->line, r->head_line);
    if (op.kind != DXPU_MODEL_KERNEL && !number(bytes, r->c.bytes, &op.bytes))
        return refuse(
            r->w,
            "line %" PRIu64
            ": '%.40s' is not a number of bytes for the copy '%.60s'; correct or remove the line",
            r->line, bytes, name);
    op.stream = stream_of(r, field, count);
    return keep(r, &op) ? NULL : refuse(r->w, "out of memory");
}

static int by_start(const void *a, const void *b)
{
    double x = ((const perf_op *)a)->start_us, y = ((const perf_op *)b)->start_us;
    return (x > y) - (x < y);
}

static void add_up(perf_work *w)
{
    double kernel_us = 0, htod = 0, dtoh = 0, shorts = 0, end = 0, span;
    for (size_t i = 0; i < w->ops; i++) {
        const perf_op *op = &w->op[i];
        end = fmax(end, op->start_us + op->duration_us);
        w->sum.shared_us += op->kind == DXPU_MODEL_KERNEL ? 0 : op->duration_us;
        if (op->kind == DXPU_MODEL_HTOD) {
            w->sum.htod_copies++;
            htod += op->bytes;
        } else if (op->kind == DXPU_MODEL_DTOH) {
            w->sum.dtoh_copies++;
            dtoh += op->bytes;
        } else {
            w->sum.kernels++;
            kernel_us += op->duration_us;
            shorts += op->duration_us <= 10;
        }
    }
    if (w->sum.kernels > 0) {
        w->sum.kernel_us = kernel_us / w->sum.kernels;
        w->short_kernels = shorts / w->sum.kernels;
    }
    w->sum.htod_bytes = w->sum.htod_copies > 0 ? htod / w->sum.htod_copies : 0;
    w->sum.dtoh_bytes = w->sum.dtoh_copies > 0 ? dtoh / w->sum.dtoh_copies : 0;
    span = end - w->op[0].start_us;
    w->sum.shared_to_device_gbs = span > 0 ? htod / span / 1e3 : 0;
    w->sum.shared_to_host_gbs = span > 0 ? dtoh / span / 1e3 : 0;
}

static const char *read_rows(reader *r, FILE *file)
{
    const char *why = NULL;
    char *line = NULL;
    size_t cap = 0;
    r->key = calloc(PERF_STREAMS_MAX, sizeof *r->key);
    if (!r->key)
        return refuse(r->w, "out of memory");
    while (!why && getline(&line, &cap, file) >= 0) {
        r->line++;
        line[strcspn(line, "\r\n")] = 0;
        if (*line)
            why = read_row(r, line);
    }
    free(line);
    free(r->key);
    return why;
}

static const char *read_trace(FILE *file, perf_work *w)
{
    reader r;
    const char *why;
    memset(&r, 0, sizeof r);
    r.w = w;
    why = read_rows(&r, file);
    if (why)
        return why;
    if (!r.head_line)
        return refuse(w, "neither a profile of libdxpu-inject nor a trace; make one with "
                         "'nsys stats --report cuda_gpu_trace --format csv'");
    if (!w->ops)
        return refuse(w, "a trace without operations; was the program run with --trace=cuda?");
    if (w->lines_passed)
        warn(w,
             "rows without a valid start, duration and name: %" PRIu64 ", the first in "
             "line %" PRIu64 "; they are left out",
             w->lines_passed, r.passed_line);
    if (r.strange)
        warn(w,
             "rows that are neither kernels, memsets nor copies between host and device: %" PRIu64
             ", the first in line %" PRIu64 "; they are counted as kernels",
             r.strange, r.strange_line);
    qsort(w->op, w->ops, sizeof *w->op, by_start);
    add_up(w);
    return NULL;
}

/* ==== 2  Profiles of libdxpu-inject =========================================================== */

static double real_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    double d = json_is_number(v) ? json_number_value(v) : -1;
    return isfinite(d) ? d : -1;
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

typedef struct profile {
    dxpu_model_work sum;
    double launches, launch_ns, graphs; /* graphs: of the launches */
    double gaps, gap_ns;                /* from launch to launch, of the host */
    double blind;                       /* copies of unknown direction */
    bool old;                           /* by a libdxpu-inject that did not see order and pace */
} profile;

/* A number that may be absent: then `otherwise`; -1 for anything else. */
static double real_or(const json_t *object, const char *key, double otherwise)
{
    return json_object_get(object, key) ? real_of(object, key) : otherwise;
}

/* Asynchronous copies: those in the kernels' streams hold kernels up. */
static bool add_async(profile *p, const json_t *call, double htod, double dtoh, double htod_bytes,
                      double dtoh_bytes)
{
    double in = real_or(call, "ordered_htod", 0), out = real_or(call, "ordered_dtoh", 0);
    double in_bytes = real_or(call, "ordered_htod_bytes", 0);
    double out_bytes = real_or(call, "ordered_dtoh_bytes", 0);
    if (in < 0 || in > htod || out < 0 || out > dtoh || in_bytes < 0 || in_bytes > htod_bytes ||
        out_bytes < 0 || out_bytes > dtoh_bytes)
        return false;
    p->old |= htod + dtoh > 0 && !json_object_get(call, "ordered_htod");
    p->sum.ordered_htod_copies += in;
    p->sum.ordered_htod_bytes += in_bytes;
    p->sum.ordered_dtoh_copies += out;
    p->sum.ordered_dtoh_bytes += out_bytes;
    p->sum.hidden_copies += htod - in + dtoh - out;
    p->sum.hidden_bytes += htod_bytes - in_bytes;
    return true;
}

static bool add_copies(profile *p, const json_t *call, double htod, double dtoh, double htod_bytes,
                       double dtoh_bytes)
{
    if (has(json_string_value(json_object_get(call, "name")), "Async"))
        return add_async(p, call, htod, dtoh, htod_bytes, dtoh_bytes);
    p->sum.htod_copies += htod;
    p->sum.htod_bytes += htod_bytes;
    p->sum.dtoh_copies += dtoh;
    p->sum.dtoh_bytes += dtoh_bytes;
    return true;
}

/* What one entry of the driver's interface did.  False: a number is missing. */
static bool read_call(const json_t *call, profile *p)
{
    const char *name = json_string_value(json_object_get(call, "name"));
    double count = real_of(call, "count"), bytes = real_of(call, "bytes"), ns = real_of(call, "ns");
    double htod, dtoh, htod_bytes;
    if (!name || count < 0 || bytes < 0 || ns < 0)
        return false;
    htod = real_or(call, "htod", has(name, "HtoD") || has(name, "HtoA") ? count : 0);
    dtoh = real_or(call, "dtoh", has(name, "DtoH") || has(name, "AtoH") ? count : 0);
    htod_bytes = real_or(call, "htod_bytes", htod > 0 ? bytes : 0);
    if (htod < 0 || dtoh < 0 || htod_bytes < 0 || htod_bytes > bytes)
        return false;
    if (has(name, "Launch")) {
        p->launches += count;
        p->launch_ns += ns;
        p->graphs += has(name, "Graph") ? count : 0;
    } else if (has(name, "Memset")) {
        p->sum.hidden_copies += count;
    } else if (!json_object_get(call, "htod") && !(htod > 0) && !(dtoh > 0) && !has(name, "DtoD") &&
               !has(name, "AtoA")) {
        p->blind += count;
    }
    return add_copies(p, call, htod, dtoh, htod > 0 ? htod_bytes : 0,
                      dtoh > 0 ? bytes - htod_bytes : 0);
}

/* What makes a profile less than a native run. */
static bool judge(perf_work *w, const json_t *root, const profile *p, double timed)
{
    double captured = real_or(root, "captured", 0), untimed = real_or(root, "kernels_untimed", 0);
    double without = p->launches - p->graphs - timed;
    const json_t *injected = json_object_get(root, "injected");
    if (captured < 0 || untimed < 0 || p->gaps < 0 || p->gap_ns < 0)
        return false;
    if (injected)
        warn(
            w,
            "recorded while delays were injected (DXPU_INJECT_RTT_US=%g): its times are not native "
            "ones; take it again without",
            real_of(injected, "rtt_us"));
    if (captured > 0 || p->graphs > 0)
        warn(w,
             "%.0f calls went into graphs, and graphs were launched %.0f times: each launch counts "
             "as one kernel, what runs inside is left out",
             captured, p->graphs);
    without = fmax(without, untimed);
    if (without > 0.01 * p->launches)
        warn(w,
             "%.0f of %.0f kernels were not timed: they are assumed to last as long as the others "
             "do on average",
             without, p->launches - p->graphs);
    if (p->blind > 0)
        warn(w, "%.0f copies without a direction in their name are left out", p->blind);
    if (p->old)
        warn(w, "profile of an older libdxpu-inject: asynchronous copies are assumed to overlap "
                "kernels, and the host's pace to be the driver's time per launch; profile again");
    return true;
}

/* Counts and durations of the kernels that were timed.  False: a number is missing. */
static bool read_bars(json_t *bars, double *timed, double *total_us, double *shorts)
{
    const json_t *item;
    size_t i;
    json_array_foreach(bars, i, item)
    {
        double us = real_of(item, "le_ns") / 1e3 / 1.044, count = real_of(item, "count");
        if (us < 0 || count < 0) /* bounds are 9 % apart: the middle */
            return false;
        *timed += count;
        *total_us += count * us;
        *shorts += us <= 10 ? count : 0;
    }
    return true;
}

static void mean(double *total, double count)
{
    *total = count > 0 ? *total / count : 0;
}

/* Totals into means; what other GPUs' traffic would slow. */
static void profile_sums(perf_work *w)
{
    dxpu_model_work *s = &w->sum;
    dxpu_model native;
    double total_us, htod = s->htod_bytes + s->ordered_htod_bytes + s->hidden_bytes;
    double dtoh = s->dtoh_bytes + s->ordered_dtoh_bytes;
    mean(&s->htod_bytes, s->htod_copies);
    mean(&s->dtoh_bytes, s->dtoh_copies);
    mean(&s->ordered_htod_bytes, s->ordered_htod_copies);
    mean(&s->ordered_dtoh_bytes, s->ordered_dtoh_copies);
    dxpu_model_default(&native);
    total_us = dxpu_model_work_us(&native, s, false);
    s->shared_us = total_us - s->kernels * dxpu_model_period_us(s->kernel_us, s->launch_us, true);
    s->shared_to_device_gbs = total_us > 0 ? htod / total_us / 1e3 : 0;
    s->shared_to_host_gbs = total_us > 0 ? dtoh / total_us / 1e3 : 0;
}

static const char *read_profile(json_t *root, perf_work *w)
{
    static const char broken[] = "a profile with a number missing, or below 0";
    json_t *calls = json_object_get(root, "calls"), *item;
    json_t *bars = json_object_get(root, "kernel_ns_histogram");
    double timed = 0, total_us = 0, shorts = 0;
    profile p;
    size_t i;
    memset(&p, 0, sizeof p);
    dxpu_model_work_default(&p.sum);
    p.gaps = real_or(root, "launch_gaps", 0);
    p.gap_ns = real_or(root, "launch_gap_ns", 0);
    p.old = !json_object_get(root, "launch_gaps");
    if (real_of(root, "version") < 1 || real_of(root, "version") > 1)
        return refuse(w, "a profile of an unknown version");
    if (!json_is_array(calls) || !json_is_array(bars))
        return refuse(w, "JSON, but no profile of libdxpu-inject: it has no calls");
    json_array_foreach(calls, i, item)
    {
        if (!read_call(item, &p))
            return refuse(w, broken);
    }
    if (!read_bars(bars, &timed, &total_us, &shorts) || !judge(w, root, &p, timed))
        return refuse(w, broken);
    if (!(timed > 0))
        return refuse(w, "a profile without durations of kernels: take it with "
                         "DXPU_INJECT_EVENTS=1, of a program that launches kernels");
    w->sum = p.sum;
    w->sum.kernels = p.launches > timed ? p.launches : timed;
    w->sum.kernel_us = total_us / timed;
    w->sum.launch_us = p.gaps > 0       ? p.gap_ns / p.gaps / 1e3
                       : p.launches > 0 ? p.launch_ns / p.launches / 1e3
                                        : 0;
    w->short_kernels = shorts / timed;
    profile_sums(w);
    return NULL;
}

/* ==== 3  Files ================================================================================ */

const char *perf_work_read(const char *path, perf_work *out)
{
    FILE *file = fopen(path, "r");
    const char *why;
    memset(out, 0, sizeof *out);
    if (!file)
        return refuse(out, "cannot be opened: %s", strerror(errno));
    why = perf_work_read_file(file, out);
    fclose(file);
    return why;
}

const char *perf_work_read_file(FILE *file, perf_work *out)
{
    const char *why;
    int first;
    memset(out, 0, sizeof *out);
    dxpu_model_work_default(&out->sum);
    do
        first = getc(file);
    while (first == ' ' || first == '\t' || first == '\r' || first == '\n');
    if (first == '{') {
        json_error_t error;
        json_t *root;
        rewind(file);
        root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
        why = root ? read_profile(root, out)
                   : refuse(out, "invalid JSON: line %d: %.160s", error.line, error.text);
        json_decref(root);
    } else {
        rewind(file);
        why = read_trace(file, out);
    }
    if (ferror(file))
        why = refuse(out, "cannot be read: is it a file?");
    if (why)
        perf_work_free(out);
    return why;
}

void perf_work_free(perf_work *w)
{
    free(w->op);
    w->op = NULL;
    w->ops = 0;
}

/* ==== 4  Sums ================================================================================= */

static dxpu_model_work scaled(const perf_work *w, double scale)
{
    dxpu_model_work s = w->sum;
    s.kernel_us *= scale;
    s.htod_bytes *= scale;
    s.dtoh_bytes *= scale;
    s.ordered_htod_bytes *= scale;
    s.ordered_dtoh_bytes *= scale;
    s.hidden_bytes *= scale;
    s.shared_us *= scale;
    return s;
}

double perf_native_us(const dxpu_model *m, const perf_work *w, double scale)
{
    dxpu_model_work s = scaled(w, scale);
    double end = 0;
    if (!w->op)
        return dxpu_model_work_us(m, &s, false);
    for (size_t i = 0; i < w->ops; i++) {
        double at = w->op[i].start_us + w->op[i].duration_us;
        end = at > end ? at : end;
    }
    return scale * (end - w->op[0].start_us);
}

static double replay_us(const dxpu_model *m, const perf_work *w, double scale, unsigned kinds)
{
    static dxpu_model_replay r[PERF_STREAMS_MAX];
    dxpu_model free_of_cost = *m;
    double end = 0, native = scale * w->op[0].start_us + perf_native_us(m, w, scale);
    free_of_cost.rtt_us = m->rtt_native_us;
    free_of_cost.proxy_bytes = 0;
    free_of_cost.network_gbit_s = 1e6;
    for (unsigned i = 0; i < w->streams; i++)
        dxpu_model_replay_init(&r[i]);
    for (size_t i = 0; i < w->ops; i++) {
        const perf_op *op = &w->op[i];
        const dxpu_model *with = kinds >> op->kind & 1 ? m : &free_of_cost;
        dxpu_model_replay_add(with, &r[op->stream], op->kind, scale * op->start_us,
                              scale * op->duration_us, scale * op->bytes);
    }
    for (unsigned i = 0; i < w->streams; i++)
        end = fmax(end, r[i].end_us + r[i].late_us);
    return fmax(end - native, 0);
}

double perf_extra_us(const dxpu_model *m, const perf_work *w, double scale, unsigned kinds)
{
    dxpu_model_work s = scaled(w, scale);
    dxpu_model one = *m;
    if (!(kinds >> DXPU_MODEL_HTOD & 1))
        s.htod_copies = s.ordered_htod_copies = s.shared_us = 0;
    if (w->op) {
        double crowd = dxpu_model_crowding(m, s.shared_to_device_gbs, s.shared_to_host_gbs) - 1;
        return replay_us(m, w, scale, kinds) + s.shared_us * crowd;
    }
    if (!(kinds >> DXPU_MODEL_DTOH & 1))
        s.dtoh_copies = s.ordered_dtoh_copies = 0;
    if (!(kinds >> DXPU_MODEL_KERNEL & 1)) {
        one.reads_per_kernel = 0; /* kernels and launches stay: they may hide copies */
        s.hidden_copies = s.hidden_bytes = 0;
    }
    return dxpu_model_work_us(&one, &s, true) - dxpu_model_work_us(m, &s, false);
}

static double share(double native_us, double pooled_us)
{
    return pooled_us > 0 ? native_us / pooled_us : 1;
}

double perf_performance(const dxpu_model *m, const perf_work *w, double scale)
{
    double native = perf_native_us(m, w, scale);
    return share(native, native + perf_extra_us(m, w, scale, PERF_ALL_KINDS));
}

static double keeps(const dxpu_model *m, const void *work)
{
    return perf_performance(m, (const perf_work *)work, 1);
}

double perf_rtt_for(const dxpu_model *m, const perf_work *w, double performance, double max_us)
{
    return dxpu_model_rtt_where(m, keeps, w, performance, max_us);
}

static int best_first(const void *a, const void *b)
{
    double x = ((const perf_change *)a)->performance, y = ((const perf_change *)b)->performance;
    return (x < y) - (x > y);
}

/* Time on a changed system.  A link that is faster is so in the host as well: what copies of the
   trace took there comes off it. */
static double changed_us(const dxpu_model *was, const dxpu_model *is, const perf_work *w)
{
    const dxpu_model_work *s = &w->sum;
    double us = perf_native_us(is, w, 1) + perf_extra_us(is, w, 1, PERF_ALL_KINDS), faster;
    if (!w->op)
        return us;
    faster = dxpu_model_htod_us(was, false, s->htod_bytes);
    faster -= dxpu_model_htod_us(is, false, s->htod_bytes);
    us -= s->htod_copies * faster;
    faster = dxpu_model_dtoh_us(was, false, s->dtoh_bytes);
    faster -= dxpu_model_dtoh_us(is, false, s->dtoh_bytes);
    return us - s->dtoh_copies * faster;
}

/* Copies to the device at the rate of writes: as if there were tags for it. */
static dxpu_model pushing(const dxpu_model *m)
{
    dxpu_model p = *m;
    double tags = dxpu_model_equation1_tags(dxpu_model_push_gbs(m, true), m->mrs_bytes, m->rtt_us);
    p.tags = tags > m->tags ? (tags < 65536 ? (uint32_t)tags : 65536) : m->tags;
    return p;
}

void perf_changes(const dxpu_model *m, const perf_work *w, perf_change out[PERF_CHANGES])
{
    static const char *const what[PERF_CHANGES] = {
        "fuse kernels: half as many, each twice as long",
        "launch graphs of 16 kernels, if a graph waits as one kernel does",
        "double the batch: all operations twice as long",
        "let the host write what the device now reads",
        "one more pair of proxies",
        "shorten what the proxies add by half",
        "256 tags",
        "read requests of 512 bytes",
        "twice the link and network (PCIe generation, cables)",
    };
    for (unsigned i = 0; i < PERF_CHANGES; i++) {
        dxpu_model n = *m;
        if (i == 0)
            n.reads_per_kernel /= 2;
        else if (i == 1)
            n.reads_per_kernel /= 16;
        else if (i == 3)
            n = pushing(m);
        else if (i == 4)
            n.proxies++;
        else if (i == 5)
            n.rtt_us = m->rtt_native_us + dxpu_model_rtt_delta_us(m) / 2;
        else if (i == 6)
            n.tags = m->tags > 256 ? m->tags : 256;
        else if (i == 7)
            n.mrs_bytes = m->mrs_bytes > 512 ? m->mrs_bytes : 512;
        else if (i == 8)
            n.network_gbit_s *= 2;
        if (i == 8 && m->generation < 5)
            n.generation++;
        out[i].what = what[i];
        out[i].performance = i == 2 ? perf_performance(m, w, 2)
                                    : share(perf_native_us(m, w, 1), changed_us(m, &n, w));
    }
    qsort(out, PERF_CHANGES, sizeof *out, best_first);
}
