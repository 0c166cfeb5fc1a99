/* SPDX-License-Identifier: MIT
   libdxpu-inject: what its parts share.

   settings.c  the environment        lookup.c   dlsym, dlvsym, cuGetProcAddress, real addresses
   cost.c      what a call is to cost hooks.c    the wrappers
   device.c    extra copies, kernels  profile.c  counts and times, the file at exit */
#ifndef DXPU_INJECT_H
#define DXPU_INJECT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver_api.h"
#include "entries.h"

#define INJECT_EXPORT __attribute__((visibility("default")))
/* A preloaded library has its part of the static block. */
#define INJECT_TLS __thread __attribute__((tls_model("initial-exec")))

#pragma GCC visibility push(hidden) /* but for what INJECT_EXPORT names */

enum entry {
#define INDEX(base, suffix, ...) ENTRY_##base##suffix,
    ENTRIES(INDEX) LOOKUPS(INDEX) LIFETIME(INDEX)
#undef INDEX
        ENTRY_COUNT
};

/* What a call does, as far as the link between host and GPU matters. */
struct op {
    bool htod, dtoh;     /* reads host memory; writes it */
    bool kernel;         /* timed by the profile */
    bool graph;          /* launches a graph, whose kernels are not */
    bool waits;          /* for what was queued before, and for nothing else */
    unsigned launches;   /* kernels, or what runs like one: each ends with a read of host memory */
    uint64_t bytes;      /* all that it moves, for the profile */
    uint64_t htod_bytes; /* of these, read from host memory */
};

/* ---- settings.c */

enum method { METHOD_DEVICE, METHOD_DELAY };
struct settings {
    double rtt_ns, native_rtt_ns; /* RTT_DxPU and RTT_ori of a PCIe read */
    double tags, mrs_bytes;       /* reads in flight, bytes of each */
    double native_gbps;           /* RdTP_ori in GB/s (bytes per ns) */
    enum method method;
    unsigned graph_rtts; /* RTT_delta per launch of a graph */
    bool inject, events;
    bool blocking;       /* launches return when their kernels have ended, CUDA_LAUNCH_BLOCKING */
    const char *profile; /* or NULL */
};
extern struct settings inject_settings;
extern bool inject_active; /* injects or profiles; while false all wrappers pass through */

/* Read the environment, once; ends the process with status 2 on a bad value. */
void inject_settings_read(void);

/* ---- cost.c: times to add, ns */

struct cost {
    double htod_ns, dtoh_ns, kernel_ns; /* kernel_ns: each of `launches` */
    unsigned launches;
    bool bulk; /* htod_ns comes from throughput, not from RTT_delta */
};
double inject_rtt_delta_ns(const struct settings *s);
struct cost inject_cost(const struct settings *s, const struct op *op);

struct op op_htod(uint64_t bytes);
struct op op_dtoh(uint64_t bytes);
struct op op_inside(uint64_t bytes); /* stays in the GPU, or goes from one to another */
struct op op_set(uint64_t n, uint64_t width_bytes);
struct op op_none(void); /* counted, no more: streams of several contexts */
struct op op_kernel(void);
struct op op_graph(void);
struct op op_wait(void);
struct op op_unified(CUdeviceptr dst, CUdeviceptr src, uint64_t bytes);
struct op op_2d(const CUDA_MEMCPY2D *copy);
struct op op_3d(const CUDA_MEMCPY3D *copy);
struct op op_2d_v1(const CUDA_MEMCPY2D_v1 *copy);
struct op op_3d_v1(const CUDA_MEMCPY3D_v1 *copy);
struct op op_batch(const CUdeviceptr *dst, const CUdeviceptr *src, const size_t *bytes,
                   size_t count);

/* ---- lookup.c */

typedef void (*function)(void); /* any function */
extern _Atomic(function) inject_reals[ENTRY_COUNT];
/* In the driver, once inject_real() has looked for it. */
static inline function inject_found(enum entry e)
{
    return atomic_load_explicit(&inject_reals[e], memory_order_acquire);
}
function inject_real(enum entry e);       /* in the driver; NULL when it has none */
function inject_driver(const char *name); /* another function of the driver, or NULL */
const char *inject_name(enum entry e);

/* ---- device.c: all of it acts in the context that is current */

enum stream_use { STREAM_RUNS, STREAM_CAPTURED, STREAM_UNKNOWN };
enum stream_use inject_stream_use(CUstream stream); /* nothing may be added unless it runs */
void inject_extra(const struct cost *cost, CUstream stream);
void *inject_time_start(CUstream stream); /* NULL: this kernel is not timed */
/* launch_ns: of the launch in the driver, for which an idle GPU waits after the first event. */
void inject_time_stop(void *timer, CUstream stream, bool ran, uint64_t launch_ns);
void inject_time_harvest(void); /* what has ended, into the profile */
void inject_context_gone(CUcontext ctx);
void inject_primary_gone(CUdevice device);
bool inject_pointer_on_device(CUdeviceptr p);
void inject_device_lock(void), inject_device_unlock(void), inject_device_forget(void);

/* ---- hooks.c */

/* Nonzero while a wrapper, or this library's own use of the driver, is under way in the thread:
   calls that the driver makes to itself then pass through, uncounted. */
extern INJECT_TLS unsigned inject_depth;

/* ---- profile.c */

/* A call of the program's that the driver worked on from start_ns to end_ns. */
void inject_count_call(enum entry e, const struct op *op, CUstream stream, CUresult result,
                       uint64_t start_ns, uint64_t end_ns);
void inject_count_own(uint64_t ns); /* time of this library's, in this thread */
void inject_count_kernel(double ns);
void inject_count_untimed(void);
void inject_count_captured(void);
void inject_count_extra(bool done, unsigned copies, uint64_t bytes, unsigned kernels);
uint64_t inject_now_ns(void);
void inject_profile_at_exit(void); /* once: have the file written at exit */
void inject_profile_forked(void);  /* in the child */
void inject_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#pragma GCC visibility pop

#endif
