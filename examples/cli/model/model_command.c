/* model_command.c - dxpu model: what a workload keeps when its GPU is lent
   SPDX-License-Identifier: MIT

   CONTENTS   1 Arguments   2 Pieces of JSON   3 Estimate   4 Sweep */
#include "command.h"
#include "log.h"
#include "model_command.h"
#include "print_json.h"

#include "paper.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ==== 1  Arguments ============================================================================ */

static struct {
    model_request r;
    uint64_t tags, mrs, mps, mtu, gpus, proxies;
    double rtt_us, native_us, network, waits, kernel_us, launch_us;
    const char *link;
} set;

#define REAL_ROW(name, value, help, target, min, max)                                              \
    {                                                                                              \
        name, value, help, OPTION_REAL, &set.target, min, max                                      \
    }
#define COUNT_ROW(name, value, help, target, min, max)                                             \
    {                                                                                              \
        name, value, help, OPTION_NUMBER, &set.target, min, max                                    \
    }
#define FLAG_ROW(name, target, help)                                                               \
    {                                                                                              \
        name, NULL, help, OPTION_FLAG, &set.r.target, 0, 0                                         \
    }

/* Without them the paper's system, and kernels of ResNet-50 with batches of 64. */
static const option_row rows[] = {
    REAL_ROW("rtt", "US", "round trip of a memory read through the proxies (6.8)", rtt_us, 1,
             1000000000),
    REAL_ROW("native-rtt", "US", "the same with the device in the host (1.2)", native_us, 1,
             1000000000),
    COUNT_ROW("tags", "N", "reads in flight of a device (140)", tags, 1, 65536),
    COUNT_ROW("mrs", "BYTES", "Max_Read_Request_Size (128)", mrs, 64, 4096),
    COUNT_ROW("mps", "BYTES", "Max_Payload_Size (128)", mps, 64, 4096),
    { "link", "GENxN", "PCIe generation and lanes (3x16)", OPTION_TEXT, &set.link, 1, 0 },
    REAL_ROW("network", "GBIT", "bandwidth of a proxy, Gbit/s (200)", network, 1, 1000000000),
    COUNT_ROW("mtu", "BYTES", "MTU of the network, IP header included (1500)", mtu, 1280, 65535),
    COUNT_ROW(
        "gpus", "N",
        "GPUs that share the proxies of a host (1); the cost is a line fitted to one table of "
        "the paper, shown with the cost from the links alone",
        gpus, 1, 1024),
    COUNT_ROW("proxies", "N", "proxies of a host (1)", proxies, 1, 1024),
    REAL_ROW("waits", "N", "round trips that a kernel waits for (1.5)", waits, 0, 100000),
    REAL_ROW("kernel", "US", "mean duration of kernels (102.3)", kernel_us, 1, 1000000000000),
    REAL_ROW("launch", "US", "the host's time from kernel to kernel (0: never the limit)",
             launch_us, 0, 1000000000000),
    { "trace", "FILE",
      "native run: 'nsys stats --report cuda_gpu_trace --format csv', or the profile that "
      "libdxpu-inject writes",
      OPTION_TEXT, &set.r.trace, 1, 0 },
    FLAG_ROW("paper", paper,
             "instead of the estimate each figure of the paper next to the model's, and the "
             "errors; accepts only --waits"),
    FLAG_ROW("simulate", simulate,
             "instead of the estimate TLPs through simulated links, proxies and GPUs, next to the "
             "equations"),
    FLAG_ROW("sweep", sweep, "instead of the estimate points to plot: series, x, y"),
    FLAG_ROW("json", json, "the result as one JSON object"),
};
enum { LAST_OF_REQUEST = 14 }; /* rows behind say what is printed */

static bool read_count(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
    uint64_t v;
    if (!options_number(text, most, &v) || v < least)
        return false;
    *out = (uint32_t)v;
    return true;
}

static bool read_link(const char *text, dxpu_model *m)
{
    char generation[8];
    const char *x = strchr(text, 'x');
    size_t len = x ? (size_t)(x - text) : strlen(text);
    if (len == 0 || len >= sizeof generation)
        return false;
    memcpy(generation, text, len);
    generation[len] = 0;
    if (!read_count(generation, 1, 5, &m->generation) ||
        (x && !read_count(x + 1, 1, 32, &m->lanes)))
        return false;
    return m->lanes == 12 || (m->lanes & (m->lanes - 1)) == 0;
}

/* The name of the last of these rows that was given; NULL: none. */
static const char *given_of(unsigned from, unsigned to, const void *but)
{
    const char *name = NULL;
    for (unsigned i = from; i < to; i++) {
        if (rows[i].target != but && options_given(rows[i].target))
            name = rows[i].name;
    }
    return name;
}

/* What options may stand together.  0, or an exit status with everything said. */
static int check_request(const model_request *r)
{
    const char *other = given_of(0, LAST_OF_REQUEST, &set.waits);
    const char *numbers = given_of(11, 13, NULL); /* --kernel, --launch */
    if (r->paper + r->simulate + r->sweep > 1)
        return options_wrong("give only one of --paper, --simulate and --sweep");
    if (r->paper && other)
        return options_wrong(
            "--paper uses the systems and workloads of the paper: omit --%s, or omit "
            "--paper to estimate your own",
            other);
    if (r->simulate && r->m.proxies > 1)
        return options_wrong(
            "--simulate has one pair of proxies: omit --proxies, and give in --gpus "
            "the number that share one");
    if (r->m.rtt_us < r->m.rtt_native_us)
        return options_wrong("--rtt is below --native-rtt, %g us: proxies only add",
                             r->m.rtt_native_us);
    if (r->trace && numbers)
        return options_wrong("--trace provides it: omit --%s", numbers);
    return dxpu_model_check(&r->m) == DXPU_OK ? 0 : options_wrong("values out of range");
}

static bool is_size(uint64_t v)
{
    return (v & (v - 1)) == 0;
}

/* 0, or an exit status with everything said. */
static int take_request(model_request *r)
{
    dxpu_model *m = &r->m;
    dxpu_model_default(m);
    dxpu_model_work_default(&r->w.sum);
    r->w.sum.kernels = 1;
    r->w.sum.kernel_us = PAPER_KERNEL_US;
    if (!is_size(set.mrs) || !is_size(set.mps))
        return options_wrong("--mrs, --mps: must be a power of two, 64 to 4096");
    if (set.link && !read_link(set.link, m))
        return options_wrong(
            "--link: must be a generation, 1 to 5, and lanes, 1, 2, 4, 8, 12, 16 or "
            "32: 4x16");
#define TAKE(type, value, target)                                                                  \
    if (options_given(&set.value))                                                                 \
    (target) = (type)set.value
    TAKE(double, rtt_us, m->rtt_us);
    TAKE(double, native_us, m->rtt_native_us);
    TAKE(double, network, m->network_gbit_s);
    TAKE(double, waits, m->reads_per_kernel);
    TAKE(double, kernel_us, r->w.sum.kernel_us);
    TAKE(double, launch_us, r->w.sum.launch_us);
    TAKE(uint32_t, tags, m->tags);
    TAKE(uint32_t, mrs, m->mrs_bytes);
    TAKE(uint32_t, mps, m->mps_bytes);
    TAKE(uint32_t, mtu, m->mtu_bytes);
    TAKE(uint32_t, gpus, m->gpus);
    TAKE(uint32_t, proxies, m->proxies);
#undef TAKE
    return check_request(r);
}

/* ==== 2  Pieces of JSON ======================================================================= */

void model_set_real(json_t *o, const char *key, double value)
{
    json_object_set_new(o, key, json_real(value));
}

void model_set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

int model_print_json(json_t *o)
{
    print_json(o, JSON_REAL_PRECISION(6));
    return EXIT_ALL;
}

static json_t *system_json(const dxpu_model *m)
{
    json_t *o = json_object();
    model_set_real(o, "rtt_us", m->rtt_us);
    model_set_real(o, "native_rtt_us", m->rtt_native_us);
    json_object_set_new(o, "tags", json_integer(m->tags));
    json_object_set_new(o, "mrs_bytes", json_integer(m->mrs_bytes));
    json_object_set_new(o, "mps_bytes", json_integer(m->mps_bytes));
    json_object_set_new(o, "generation", json_integer(m->generation));
    json_object_set_new(o, "lanes", json_integer(m->lanes));
    model_set_real(o, "network_gbit_s", m->network_gbit_s);
    json_object_set_new(o, "mtu_bytes", json_integer(m->mtu_bytes));
    json_object_set_new(o, "gpus", json_integer(m->gpus));
    json_object_set_new(o, "proxies", json_integer(m->proxies));
    model_set_real(o, "waits", m->reads_per_kernel);
    return o;
}

/* ==== 3  Estimate ============================================================================= */

typedef struct loss {
    const char *what;
    double us;
} loss;

enum { LOSSES = 3, RTT_MAX_US = 1000 };

static void losses(const model_request *r, loss out[LOSSES])
{
    out[0].what = "kernels that wait for round trips";
    out[1].what = r->m.gpus > r->m.proxies ? "copies to the device, and GPUs that share proxies"
                                           : "copies to the device";
    out[2].what = "copies to the host";
    for (unsigned i = 0; i < LOSSES; i++)
        out[i].us = perf_extra_us(&r->m, &r->w, 1, 1u << i);
}

static const loss *greatest(const loss l[LOSSES])
{
    const loss *most = &l[0];
    for (unsigned i = 1; i < LOSSES; i++)
        most = l[i].us > most->us ? &l[i] : most;
    return most;
}

/* How far away the device may be. */
typedef struct threshold {
    double share, rtt_us;
    const char *found; /* "within" the range searched, "nowhere" in it, or "everywhere" */
} threshold;

enum { THRESHOLDS = 2 };

static void thresholds(const model_request *r, threshold out[THRESHOLDS])
{
    for (unsigned i = 0; i < THRESHOLDS; i++) {
        out[i].share = i ? 0.8 : 0.9;
        out[i].rtt_us = perf_rtt_for(&r->m, &r->w, out[i].share, RTT_MAX_US);
        out[i].found = !(out[i].rtt_us > 0)          ? "nowhere"
                       : out[i].rtt_us >= RTT_MAX_US ? "everywhere"
                                                     : "within";
    }
}

static void print_thresholds(const model_request *r)
{
    threshold t[THRESHOLDS];
    thresholds(r, t);
    for (unsigned i = 0; i < THRESHOLDS; i++) {
        printf("%.0f %% is kept ", 100 * t[i].share);
        if (t[i].found[0] == 'w')
            printf("up to a round trip of %.1f us\n", t[i].rtt_us);
        else
            printf("%s within the searched range of %g to %d us\n",
                   t[i].found[0] == 'n' ? "nowhere" : "everywhere", r->m.rtt_native_us, RTT_MAX_US);
    }
}

static void add_thresholds(json_t *o, const model_request *r)
{
    json_t *list = json_array(), *searched = json_array(), *item;
    threshold t[THRESHOLDS];
    thresholds(r, t);
    for (unsigned i = 0; i < THRESHOLDS; i++) {
        item = json_object();
        model_set_real(item, "performance", t[i].share);
        if (t[i].found[0] == 'w')
            model_set_real(item, "rtt_us", t[i].rtt_us);
        else
            json_object_set_new(item, "rtt_us", json_null());
        model_set_text(item, "found", t[i].found);
        json_array_append_new(list, item);
    }
    json_array_append_new(searched, json_real(r->m.rtt_native_us));
    json_array_append_new(searched, json_real(RTT_MAX_US));
    json_object_set_new(o, "thresholds", list);
    json_object_set_new(o, "rtt_us_searched", searched);
}

/* What other GPUs behind the same proxies cost, by the line fitted to the paper's table, and by
   the links alone, as the simulation has it. */
typedef struct sharing {
    double fitted, links; /* times as long as alone, for what a GPU copies */
    double performance;   /* with the links alone */
} sharing;

static sharing share_of(const model_request *r)
{
    const dxpu_model_work *s = &r->w.sum;
    sharing of;
    double native = perf_native_us(&r->m, &r->w, 1), extra;
    of.fitted = dxpu_model_crowding(&r->m, s->shared_to_device_gbs, s->shared_to_host_gbs);
    of.links = dxpu_model_sharing(&r->m, s->shared_to_device_gbs, s->shared_to_host_gbs);
    extra = perf_extra_us(&r->m, &r->w, 1, PERF_ALL_KINDS) - s->shared_us * (of.fitted - of.links);
    of.performance = native > 0 ? native / (native + extra) : 1;
    return of;
}

static void print_sharing(const model_request *r)
{
    sharing of = share_of(r);
    if (r->m.gpus > r->m.proxies)
        printf(
            "%u GPUs behind %u pair%s of proxies: what a GPU copies takes %.2f times as long, by "
            "a line\nfitted to Table 12 of the paper; the links alone, as simulated, make "
            "it %.2f times, and %.1f %%\n",
            r->m.gpus, r->m.proxies, r->m.proxies > 1 ? "s" : "", of.fitted, of.links,
            100 * of.performance);
}

static json_t *sharing_json(const model_request *r)
{
    sharing of = share_of(r);
    json_t *o = json_object();
    model_set_real(o, "fitted", of.fitted);
    model_set_real(o, "links", of.links);
    model_set_real(o, "performance_by_links", of.performance);
    return o;
}

static json_t *throughput_json(const dxpu_model *m)
{
    json_t *o = json_object();
    model_set_real(o, "read_native_gbs", dxpu_model_read_gbs(m, false));
    model_set_real(o, "read_gbs", dxpu_model_read_gbs(m, true));
    model_set_real(o, "write_native_gbs", dxpu_model_write_gbs(m, false));
    model_set_real(o, "write_gbs", dxpu_model_write_gbs(m, true));
    model_set_real(o, "push_native_gbs", dxpu_model_push_gbs(m, false));
    model_set_real(o, "push_gbs", dxpu_model_push_gbs(m, true));
    model_set_real(o, "all_read_gbs", dxpu_model_all_gbs(m, dxpu_model_read_gbs(m, true)));
    model_set_real(o, "tags_to_fill_the_link",
                   dxpu_model_equation1_tags(dxpu_model_link_gbs(m, true, m->completion_bytes, 12),
                                             m->mrs_bytes, m->rtt_us));
    return o;
}

static json_t *workload_json(const model_request *r)
{
    const dxpu_model_work *s = &r->w.sum;
    json_t *o = json_object();
    model_set_real(o, "kernels", s->kernels);
    model_set_real(o, "kernel_us", s->kernel_us);
    model_set_real(o, "launch_us", s->launch_us);
    model_set_real(o, "short_kernels", r->w.short_kernels);
    model_set_real(o, "htod_copies", s->htod_copies);
    model_set_real(o, "htod_bytes", s->htod_bytes);
    model_set_real(o, "dtoh_copies", s->dtoh_copies);
    model_set_real(o, "dtoh_bytes", s->dtoh_bytes);
    model_set_real(o, "ordered_htod_copies", s->ordered_htod_copies);
    model_set_real(o, "ordered_htod_bytes", s->ordered_htod_bytes);
    model_set_real(o, "ordered_dtoh_copies", s->ordered_dtoh_copies);
    model_set_real(o, "ordered_dtoh_bytes", s->ordered_dtoh_bytes);
    model_set_real(o, "hidden_copies", s->hidden_copies);
    json_object_set_new(o, "streams", json_integer(r->w.streams));
    json_object_set_new(o, "lines_passed", json_integer((json_int_t)r->w.lines_passed));
    return o;
}

static json_t *warnings_json(const perf_work *w)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < w->warnings; i++)
        json_array_append_new(list, json_string(w->warning[i]));
    return list;
}

static int estimate_json(const model_request *r, const perf_change changes[], const loss lost[])
{
    json_t *o = json_object(), *list = json_array(), *item;
    json_object_set_new(o, "system", system_json(&r->m));
    json_object_set_new(o, "throughput", throughput_json(&r->m));
    json_object_set_new(o, "workload", workload_json(r));
    json_object_set_new(o, "warnings", warnings_json(&r->w));
    model_set_real(o, "native_us", perf_native_us(&r->m, &r->w, 1));
    model_set_real(o, "performance", perf_performance(&r->m, &r->w, 1));
    add_thresholds(o, r);
    json_object_set_new(o, "sharing", sharing_json(r));
    for (unsigned i = 0; i < LOSSES; i++) {
        item = json_object();
        model_set_text(item, "to", lost[i].what);
        model_set_real(item, "us", lost[i].us);
        json_array_append_new(list, item);
    }
    json_object_set_new(o, "lost", list);
    list = json_array();
    for (unsigned i = 0; i < PERF_CHANGES; i++) {
        item = json_object();
        model_set_text(item, "change", changes[i].what);
        model_set_real(item, "performance", changes[i].performance);
        json_array_append_new(list, item);
    }
    json_object_set_new(o, "changes", list);
    return model_print_json(o);
}

static void print_system(const dxpu_model *m)
{
    double read = dxpu_model_read_gbs(m, true), link;
    bool network;
    link = dxpu_model_link_gbs(m, true, m->completion_bytes, 12);
    printf(
        "PCIe %u x%u, %u tags, reads of %u B, writes of %u B; a read takes %g us, native %g us\n",
        m->generation, m->lanes, m->tags, m->mrs_bytes, m->mps_bytes, m->rtt_us, m->rtt_native_us);
    printf("\n                       pooled   native\n");
    printf("copies to the device  %7.2f  %7.2f GB/s", read, dxpu_model_read_gbs(m, false));
    network = !(link < dxpu_model_network_gbs(m, m->completion_bytes, 12));
    if (read < link)
        printf("   tags are the limit; %.0f would fill the %s",
               ceil(dxpu_model_equation1_tags(link, m->mrs_bytes, m->rtt_us)),
               network ? "network" : "link");
    else if (network)
        printf("   the network is the limit");
    printf("\ncopies to the host    %7.2f  %7.2f GB/s\n", dxpu_model_write_gbs(m, true),
           dxpu_model_write_gbs(m, false));
    printf("writes of the host    %7.2f  %7.2f GB/s\n", dxpu_model_push_gbs(m, true),
           dxpu_model_push_gbs(m, false));
    if (m->gpus > 1)
        printf("all %u GPUs reading   %7.2f           GB/s\n", m->gpus,
               dxpu_model_all_gbs(m, read));
}

static void print_workload(const model_request *r)
{
    const dxpu_model_work *s = &r->w.sum;
    putchar('\n');
    if (!r->trace) {
        printf("kernels of %g us%s", s->kernel_us,
               fabs(s->kernel_us - PAPER_KERNEL_US) < 1e-9
                   ? " (ResNet-50, batch size 64, of the paper)"
                   : "");
        if (s->launch_us > 0)
            printf(", launched every %g us", s->launch_us);
        printf("%s\n", r->m.gpus > r->m.proxies
                           ? ", copies as ResNet-50 of the paper has them"
                           : "; what they copy is not counted, a trace (--trace) has it");
        return;
    }
    printf("%.0f kernels of %.1f us on average, %.0f %% of them of 10 us or less\n", s->kernels,
           s->kernel_us, 100 * r->w.short_kernels);
    printf("%.0f copies to the device of %.0f bytes, %.0f to the host of %.0f bytes\n",
           s->htod_copies, s->htod_bytes, s->dtoh_copies, s->dtoh_bytes);
    if (r->w.op)
        printf("%u streams\n", r->w.streams);
    else
        printf("%.0f more to the device of %.0f bytes, %.0f to the host of %.0f bytes, in the "
               "kernels' streams\n%.0f other asynchronous copies and memsets; the host launches "
               "every %.1f us\n",
               s->ordered_htod_copies, s->ordered_htod_bytes, s->ordered_dtoh_copies,
               s->ordered_dtoh_bytes, s->hidden_copies, s->launch_us);
}

static void print_changes(const perf_change changes[PERF_CHANGES], double now)
{
    unsigned told = 0;
    printf("\nwhat would bring how much, each alone\n");
    for (unsigned i = 0; i < PERF_CHANGES; i++) {
        double gain = 100 * (changes[i].performance - now);
        if (gain < 0.05)
            continue;
        printf("%+6.1f points: %.1f %%  %s\n", gain, 100 * changes[i].performance, changes[i].what);
        told++;
    }
    if (told < PERF_CHANGES)
        printf("The other %d of the changes in dxpu(1) would bring less than 0.05 points.\n",
               (int)PERF_CHANGES - (int)told);
}

static int estimate(const model_request *r)
{
    double native = perf_native_us(&r->m, &r->w, 1), now = perf_performance(&r->m, &r->w, 1);
    perf_change changes[PERF_CHANGES];
    loss lost[LOSSES];
    const loss *most;
    losses(r, lost);
    most = greatest(lost);
    perf_changes(&r->m, &r->w, changes);
    if (r->json)
        return estimate_json(r, changes, lost);
    print_system(&r->m);
    print_workload(r);
    printf("\nperformance %.1f %% of native\n", 100 * now);
    print_sharing(r);
    print_thresholds(r);
    if (most->us > 0)
        printf("most is lost to %s: %.1f us more on %.1f us\n", most->what, most->us, native);
    print_changes(changes, now);
    return EXIT_ALL;
}

/* ==== 4  Sweep ================================================================================ */

static void point(json_t *list, const char *series, double x, double y)
{
    json_t *o;
    if (!list) {
        printf("%s,%g,%.4f\n", series, x, y);
        return;
    }
    o = json_object();
    model_set_text(o, "series", series);
    model_set_real(o, "x", x);
    model_set_real(o, "y", y);
    json_array_append_new(list, o);
}

enum { STEPS = 240, SWEPT_US = 25 };

/* Round trips from the native one to 25 us, or to twice the one given. */
static double swept_us(const model_request *r, unsigned step)
{
    double from = r->m.rtt_native_us;
    return from + (fmax(SWEPT_US, 2 * r->m.rtt_us) - from) * step / STEPS;
}

static bool among(double value, const double *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (fabs(list[i] - value) < 1e-9)
            return true;
    return false;
}

/* The paper's round trips and sizes, and the ones given. */
static void sweep_reads(const model_request *r, json_t *list)
{
    const double rtt_us[] = { r->m.rtt_native_us, 4.9, 6.8, 19, r->m.rtt_us };
    const double mrs[] = { 128, 256, 512, 4096, r->m.mrs_bytes };
    char name[48];
    for (unsigned i = 0; i < 5; i++) {
        dxpu_model m = r->m;
        if (among(rtt_us[i], rtt_us, i) || rtt_us[i] < m.rtt_native_us)
            continue;
        m.rtt_us = rtt_us[i];
        snprintf(name, sizeof name, "tags: %g us", rtt_us[i]);
        for (m.tags = 8; m.tags <= 768; m.tags += 8)
            point(list, name, m.tags, dxpu_model_read_gbs(&m, true));
    }
    for (unsigned i = 0; i < 5; i++) {
        dxpu_model m = r->m;
        if (among(mrs[i], mrs, i))
            continue;
        m.mrs_bytes = (uint32_t)mrs[i];
        snprintf(name, sizeof name, "round trip: %g B", mrs[i]);
        for (unsigned k = 0; k <= STEPS; k++) {
            m.rtt_us = swept_us(r, k);
            point(list, name, m.rtt_us, dxpu_model_read_gbs(&m, true));
        }
    }
}

static int sweep(const model_request *r)
{
    json_t *o = json_object(), *list = r->json ? json_array() : NULL;
    dxpu_model m = r->m;
    for (unsigned k = 0; k <= STEPS; k++) {
        m.rtt_us = swept_us(r, k);
        point(list, "performance", m.rtt_us, 100 * perf_performance(&m, &r->w, 1));
    }
    sweep_reads(r, list);
    if (r->json) {
        json_object_set_new(o, "points", list);
        return model_print_json(o);
    }
    json_decref(o);
    return EXIT_ALL;
}

/* Kernels given as a number copy what those of ResNet-50 do: shorter ones in proportion, longer
   ones no more, as its two batch sizes do (Table 12). */
static void as_resnet(dxpu_model_work *s)
{
    s->shared_us = PAPER_SHARED_US * fmin(1, s->kernel_us / PAPER_KERNEL_US);
    s->shared_to_device_gbs = PAPER_SHARED_TO_GPU_GBS;
    s->shared_to_host_gbs = PAPER_SHARED_TO_HOST_GBS;
}

static int run(const option_call *c)
{
    model_request *r = &set.r;
    int status;
    (void)c;
    status = take_request(r);
    if (status)
        return status;
    if (r->trace) {
        const char *why = perf_work_read(r->trace, &r->w);
        if (why)
            return options_wrong("%s: %s", r->trace, why);
    } else {
        as_resnet(&r->w.sum);
    }
    for (unsigned i = 0; i < r->w.warnings; i++)
        log_warning("WARNING: %s: %s", r->trace, r->w.warning[i]);
    status = r->paper      ? model_paper(r)
             : r->simulate ? model_simulate(r)
             : r->sweep    ? sweep(r)
                           : estimate(r);
    if (r->trace)
        perf_work_free(&r->w);
    return status;
}

static const option_verb verb = {
    "model",
    "[--paper | --simulate | --sweep]",
    "estimate what a lent GPU loses",
    "Estimates the relative performance of a workload when its GPU is lent over a network. The "
    "system is by default that of the paper, the workload kernels of 102.3 us (ResNet-50, batch "
    "size 64).",
    "Exit status: 0 done, 2 wrong usage or a file that cannot be read.\n",
    0,
    0,
    { OPTION_ROWS(rows), { NULL, 0 } },
    run
};

const option_verbs model_verbs = { "Relative performance of a workload when its GPU is lent", &verb,
                                   1 };
