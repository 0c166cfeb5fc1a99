/* SPDX-License-Identifier: MIT
   What is added on the GPU: copies between buffers of this library's own and a kernel that does
   nothing for a while, in the stream of the program's call.  How large a copy, and how many
   cycles, take a given time is measured once in each context. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "inject.h"
#include "spin.h"

enum {
    CONTEXTS = 16,
    TIMERS = 2048, /* kernels under way in each context; a stream queues about 1,000 */
    BUFFER_BYTES = 8 << 20,
    LEAST_BYTES = 4, /* of a copy */
    SAMPLES = 32,
    WAIT_CYCLES = 2000000, /* about 1 ms: SAMPLES operations are queued by then */
};

#define DRIVER(N)                                                                                  \
    N(cuCtxGetCurrent, (CUcontext *))                                                              \
    N(cuCtxGetDevice, (CUdevice *))                                                                \
    N(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                                   \
    N(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                           \
    N(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    N(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    N(cuModuleLoadData, (CUmodule *, const void *))                                                \
    N(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    N(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, CUstream, void **, void **))                                      \
    N(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                         \
    N(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                               \
    N(cuStreamCreate, (CUstream *, unsigned))                                                      \
    N(cuStreamDestroy_v2, (CUstream))                                                              \
    N(cuStreamIsCapturing, (CUstream, int *))                                                      \
    N(cuThreadExchangeStreamCaptureMode, (int *))                                                  \
    N(cuEventCreate, (CUevent *, unsigned))                                                        \
    N(cuEventRecord, (CUevent, CUstream))                                                          \
    N(cuEventQuery, (CUevent))                                                                     \
    N(cuEventSynchronize, (CUevent))                                                               \
    N(cuEventElapsedTime, (float *, CUevent, CUevent))

static struct {
#define MEMBER(name, params) CUresult(*name) params;
    DRIVER(MEMBER)
} driver;

struct timer {
    CUevent from, to;
    double idle_ns; /* between `from` and the kernel */
    bool busy, pending;
};

struct state {
    CUcontext ctx;
    CUdevice device;
    bool tried, ready; /* for extra work */
    CUdeviceptr buffer;
    void *pinned;
    CUfunction spin;
    CUstream stream;
    CUevent from, to;
    size_t htod_bytes, dtoh_bytes;  /* copies of RTT_delta, and of half of it */
    double htod_base_ns, htod_rate; /* n bytes take base + n / rate */
    uint64_t spin_cycles;
    unsigned next;
    struct timer timers[TIMERS];
};

/* Recursive: should the driver fork while it works for us, the handlers of fork() take it again. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct state states[CONTEXTS];

void inject_device_lock(void)
{
    pthread_mutex_lock(&lock);
}

void inject_device_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* In the child of a fork, which has another thread number and thus cannot unlock. */
void inject_device_forget(void)
{
    static const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    lock = fresh;
    memset(states, 0, sizeof states);
}

static bool driver_whole = true;

static void find_driver(void)
{
#define FIND(name, params)                                                                         \
    driver.name = (CUresult(*) params)inject_driver(#name);                                        \
    driver_whole = driver_whole && driver.name;
    DRIVER(FIND)
    if (!driver_whole) {
        inject_say("this driver is too old: nothing is added to calls, no kernel is timed");
    }
}

static bool driver_there(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_driver);
    return driver_whole;
}

/* What may not be called while some thread captures into a graph, may be in this mode, and then
   has no part in the capture. */
static int relaxed(void)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : -1;
}

static void unrelaxed(int mode)
{
    if (mode >= 0) {
        driver.cuThreadExchangeStreamCaptureMode(&mode);
    }
}

enum stream_use inject_stream_use(CUstream stream)
{
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!driver_there() || driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) {
        return STREAM_UNKNOWN;
    }
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? STREAM_RUNS : STREAM_CAPTURED;
}

bool inject_pointer_on_device(CUdeviceptr p)
{
    unsigned type = 0;
    return driver_there() &&
           driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p) ==
               CUDA_SUCCESS &&
           type != CU_MEMORYTYPE_HOST;
}

/* ---- how long things take */

enum what { SPIN, HTOD, DTOH };

static bool issue(struct state *s, enum what what, uint64_t amount, CUstream stream)
{
    void *params[] = { &amount };
    switch (what) {
    case SPIN:
        return driver.cuLaunchKernel(s->spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) ==
               CUDA_SUCCESS;
    case HTOD:
        return driver.cuMemcpyHtoDAsync_v2(s->buffer, s->pinned, amount, stream) == CUDA_SUCCESS;
    default:
        return driver.cuMemcpyDtoHAsync_v2(s->pinned, s->buffer, amount, stream) == CUDA_SUCCESS;
    }
}

/* Time of one of several in a row, ns; the GPU waits until all are queued, so that the time is its
   own and not the caller's.  Not a number when something fails. */
static double time_of(struct state *s, enum what what, uint64_t amount)
{
    float ms;
    bool ok = issue(s, SPIN, WAIT_CYCLES, s->stream) && issue(s, what, amount, s->stream) &&
              driver.cuEventRecord(s->from, s->stream) == CUDA_SUCCESS;
    for (int i = 0; ok && i < SAMPLES; i++) {
        ok = issue(s, what, amount, s->stream);
    }
    ok = ok && driver.cuEventRecord(s->to, s->stream) == CUDA_SUCCESS &&
         driver.cuEventSynchronize(s->to) == CUDA_SUCCESS &&
         driver.cuEventElapsedTime(&ms, s->from, s->to) == CUDA_SUCCESS;
    return ok ? (double)ms * 1e6 / SAMPLES : NAN;
}

/* The size of a copy that takes as long as wanted; 0 when something fails. */
static size_t copy_of(struct state *s, enum what what, double want_ns)
{
    double low = LEAST_BYTES, high = BUFFER_BYTES, least_ns = time_of(s, what, LEAST_BYTES);
    if (least_ns > want_ns) {
        inject_say("the shortest copy %s takes %.2f us, more than the %.2f us to add",
                   what == HTOD ? "to the GPU" : "from the GPU", least_ns / 1e3, want_ns / 1e3);
        return LEAST_BYTES;
    }
    if (isnan(least_ns)) {
        return 0;
    }
    while (high > low * 1.005 && high - low > 1) {
        double middle = floor(sqrt(low * high));
        if (time_of(s, what, (uint64_t)middle) > want_ns) {
            high = middle;
        } else if (middle > low) {
            low = middle;
        } else {
            break;
        }
    }
    return (size_t)low;
}

static bool calibrate(struct state *s)
{
    double delta_ns = inject_rtt_delta_ns(&inject_settings);
    time_of(s, SPIN, WAIT_CYCLES); /* brings the clocks up */
    double short_ns = time_of(s, SPIN, 20000), long_ns = time_of(s, SPIN, 100000);
    double cycle_ns = (long_ns - short_ns) / 80000, kernel_ns = short_ns - 20000 * cycle_ns;
    double half_ns = time_of(s, HTOD, BUFFER_BYTES / 2), all_ns = time_of(s, HTOD, BUFFER_BYTES);
    if (!(cycle_ns > 0) || !(all_ns > half_ns)) {
        return false;
    }
    s->htod_rate = BUFFER_BYTES / 2 / (all_ns - half_ns);
    s->htod_base_ns = fmax(all_ns - BUFFER_BYTES / s->htod_rate, 0);
    s->spin_cycles = (uint64_t)fmax((delta_ns - kernel_ns) / cycle_ns, 0);
    if (kernel_ns > delta_ns) {
        inject_say("the shortest kernel takes %.2f us, more than the %.2f us to add",
                   kernel_ns / 1e3, delta_ns / 1e3);
    }
    s->htod_bytes = copy_of(s, HTOD, delta_ns);
    s->dtoh_bytes = copy_of(s, DTOH, delta_ns / 2);
    return s->htod_bytes && s->dtoh_bytes;
}

static bool make_ready(struct state *s)
{
    CUmodule module;
    return driver.cuMemAlloc_v2(&s->buffer, BUFFER_BYTES) == CUDA_SUCCESS &&
           driver.cuMemHostAlloc(&s->pinned, BUFFER_BYTES, 0) == CUDA_SUCCESS &&
           driver.cuModuleLoadData(&module, inject_spin_ptx) == CUDA_SUCCESS &&
           driver.cuModuleGetFunction(&s->spin, module, INJECT_SPIN) == CUDA_SUCCESS &&
           driver.cuEventCreate(&s->from, 0) == CUDA_SUCCESS &&
           driver.cuEventCreate(&s->to, 0) == CUDA_SUCCESS &&
           driver.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           calibrate(s) && driver.cuStreamDestroy_v2(s->stream) == CUDA_SUCCESS;
}

/* The state of the current context; locked. */
static struct state *state_here(void)
{
    CUcontext ctx = NULL;
    if (driver.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx) {
        return NULL;
    }
    struct state *free_one = NULL;
    for (int i = 0; i < CONTEXTS; i++) {
        if (states[i].ctx == ctx) {
            return &states[i];
        }
        free_one = states[i].ctx || free_one ? free_one : &states[i];
    }
    if (free_one) {
        memset(free_one, 0, sizeof *free_one);
        free_one->ctx = ctx;
        driver.cuCtxGetDevice(&free_one->device);
    }
    return free_one;
}

static void forget(bool (*gone)(const struct state *s, const void *what), const void *what)
{
    inject_device_lock();
    for (int i = 0; i < CONTEXTS; i++) {
        if (states[i].ctx && gone(&states[i], what)) {
            memset(&states[i], 0, sizeof states[i]);
        }
    }
    inject_device_unlock();
}

static bool has_context(const struct state *s, const void *ctx)
{
    return (const void *)s->ctx == ctx;
}

static bool has_device(const struct state *s, const void *device)
{
    return s->device == *(const CUdevice *)device;
}

void inject_context_gone(CUcontext ctx)
{
    forget(has_context, ctx);
}

void inject_primary_gone(CUdevice device)
{
    unsigned flags;
    int active = 0;
    if (driver_there() &&
        (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active)) {
        forget(has_device, &device); /* its other contexts start again, harmlessly */
    }
}

/* ---- extra work */

static struct state *ready_here(void)
{
    inject_device_lock();
    struct state *s = state_here();
    if (s && !s->tried) {
        int mode = relaxed();
        s->tried = true;
        s->ready = make_ready(s);
        if (!s->ready) {
            inject_say("no memory, or no kernel of its own, on this GPU: nothing is added there");
        }
        unrelaxed(mode);
    }
    inject_device_unlock();
    return s && s->ready ? s : NULL;
}

/* Copies that keep the link busy for ns. */
static bool bulk(struct state *s, double ns, CUstream stream, unsigned *copies, uint64_t *bytes)
{
    bool ok = true;
    while (ok && ns > s->htod_base_ns) {
        double most = fmin((ns - s->htod_base_ns) * s->htod_rate, BUFFER_BYTES);
        uint64_t n = most > LEAST_BYTES ? (uint64_t)most : LEAST_BYTES;
        ok = issue(s, HTOD, n, stream);
        ns -= s->htod_base_ns + (double)n / s->htod_rate;
        ++*copies;
        *bytes += n;
    }
    return ok;
}

void inject_extra(const struct cost *cost, CUstream stream)
{
    struct state *s = ready_here();
    unsigned copies = 0, kernels = 0;
    uint64_t bytes = 0;
    bool ok = s != NULL;
    if (ok && cost->bulk) {
        ok = bulk(s, cost->htod_ns, stream, &copies, &bytes);
    } else if (ok && cost->htod_ns > 0) {
        ok = issue(s, HTOD, s->htod_bytes, stream);
        copies++;
        bytes += s->htod_bytes;
    }
    if (ok && cost->dtoh_ns > 0) {
        ok = issue(s, DTOH, s->dtoh_bytes, stream);
        copies++;
        bytes += s->dtoh_bytes;
    }
    for (unsigned i = 0; ok && cost->kernel_ns > 0 && i < cost->launches; i++) {
        ok = issue(s, SPIN, s->spin_cycles, stream);
        kernels++;
    }
    inject_count_extra(ok, copies, bytes, kernels);
}

/* ---- durations of kernels */

/* Locked, relaxed.  Returns whether the timer is free. */
static bool harvest(struct timer *t)
{
    float ms;
    if (t->pending && driver.cuEventQuery(t->to) == CUDA_SUCCESS) {
        t->pending = false;
        if (driver.cuEventElapsedTime(&ms, t->from, t->to) == CUDA_SUCCESS) {
            inject_count_kernel((double)ms * 1e6 - t->idle_ns);
        }
    }
    return !t->pending && !t->busy;
}

void *inject_time_start(CUstream stream)
{
    int mode = relaxed();
    inject_device_lock();
    struct state *s = state_here();
    struct timer *t = s ? &s->timers[s->next % TIMERS] : NULL;
    if (t && !harvest(t)) {
        t = NULL;
    }
    if (t && !t->from &&
        (driver.cuEventCreate(&t->from, 0) != CUDA_SUCCESS ||
         driver.cuEventCreate(&t->to, 0) != CUDA_SUCCESS)) {
        t->from = NULL;
        t = NULL;
    }
    if (t) {
        t->busy = true;
        s->next++;
    }
    inject_device_unlock();
    if (t && driver.cuEventRecord(t->from, stream) != CUDA_SUCCESS) {
        t->busy = false;
        t = NULL;
    }
    unrelaxed(mode);
    return t;
}

void inject_time_stop(void *timer, CUstream stream, bool ran, uint64_t launch_ns)
{
    struct timer *t = timer;
    int mode = relaxed();
    /* Done already: nothing was ahead of the kernel.  The time of a launch that blocks is
       mostly the kernel's own. */
    bool idle = !inject_settings.blocking && driver.cuEventQuery(t->from) == CUDA_SUCCESS;
    t->idle_ns = idle ? (double)launch_ns : 0;
    bool recorded = ran && driver.cuEventRecord(t->to, stream) == CUDA_SUCCESS;
    inject_device_lock();
    t->pending = recorded;
    t->busy = false;
    inject_device_unlock();
    unrelaxed(mode);
}

void inject_time_harvest(void)
{
    if (!inject_settings.profile || !inject_settings.events || !driver_there()) {
        return;
    }
    int mode = relaxed();
    inject_device_lock();
    for (int i = 0; i < CONTEXTS; i++) {
        for (int k = 0; states[i].ctx && k < TIMERS; k++) {
            harvest(&states[i].timers[k]);
        }
    }
    inject_device_unlock();
    unrelaxed(mode);
}
