/* SPDX-License-Identifier: MIT
   The stand-in driver, see standin.h.  STANDIN_CLOCK=1: calls take their time by the program's
   clock, too; STANDIN_INNER=1: cuGetProcAddress hands out addresses that are not exported;
   STANDIN_NESTED=1: a copy calls another exported entry of the driver. */
#define _GNU_SOURCE
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "entries.h"

enum {
    INVALID_VALUE = 1,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    OBJECTS = 16384,
    RECORDS = 1 << 20,
    MEMORY_BYTES = 128 << 20,
    EDGE_BYTES = 4096,
};

struct CUctx_st {
    bool alive, primary;
    unsigned serial;
};
struct CUfunc_st {
    char name[32];
    CUcontext ctx;
    unsigned serial;
};
struct CUmod_st {
    int dummy;
};
struct CUstream_st {
    uint64_t tail_ns;
    CUgraph capture;
};
struct CUevent_st {
    uint64_t at_ns;
    CUcontext ctx;
    unsigned serial;
};
struct CUgraph_st {
    unsigned ops;
    bool broken;
};
struct CUgraphExec_st {
    unsigned ops;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st contexts[8], primary;
static struct CUfunc_st functions[OBJECTS];
static struct CUmod_st module;
static struct CUstream_st streams[OBJECTS]; /* 1 legacy, 2 per thread */
static struct CUevent_st events[OBJECTS];
static struct CUgraph_st graphs[OBJECTS];
static struct CUgraphExec_st execs[OBJECTS];
static unsigned n_functions, n_streams = 16, n_events, n_graphs, n_execs, n_serial, misuses;
static int captures;
static struct {
    uintptr_t from, to;
    CUcontext ctx;
    unsigned serial;
} memory[OBJECTS];
static unsigned n_memory;
static uintptr_t memory_free;
static struct {
    uintptr_t from, to;
} pinned[64]; /* what cuMemHostAlloc() gave */
static unsigned n_pinned;
static uint64_t now_ns;
static struct standin_record *records;
static size_t n_records;
static __thread CUcontext current;
static __thread int capture_mode;

size_t standin_log(const struct standin_record **first)
{
    *first = records;
    return n_records;
}

void standin_reset(void)
{
    n_records = 0;
}

uint64_t standin_now_ns(void)
{
    return now_ns;
}

unsigned standin_misuses(void)
{
    return misuses;
}

static unsigned stream_number(CUstream s)
{
    return (uintptr_t)s < 16 ? (unsigned)(uintptr_t)s : (unsigned)(s - streams);
}

static struct CUstream_st *stream_of(CUstream s)
{
    uintptr_t n = (uintptr_t)s;
    return n < 16 ? &streams[n ? n : 1] : s >= streams && s < streams + OBJECTS ? s : NULL;
}

/* What a driver refuses while a thread captures, and breaks the capture. */
static bool unsafe(void)
{
    if (captures && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        for (unsigned i = 0; i < n_graphs; i++) {
            graphs[i].broken = true;
        }
        return true;
    }
    return false;
}

static bool dead(CUcontext ctx, unsigned serial)
{
    bool is = !ctx->alive || ctx->serial != serial;
    misuses += is;
    return is;
}

static void check_memory(uintptr_t p)
{
    for (unsigned i = 0; i < n_memory; i++) {
        if (p >= memory[i].from && p < memory[i].to) {
            dead(memory[i].ctx, memory[i].serial);
        }
    }
}

static bool on_device(uintptr_t p)
{
    bool is = false;
    for (unsigned i = 0; i < n_memory; i++) {
        is |= p >= memory[i].from && p < memory[i].to;
    }
    return is;
}

/* By the program's clock, which goes 10 ns further each time; the look itself is one more. */
static void pass(uint64_t ns)
{
    for (uint64_t i = 1; i < ns / 10 && getenv("STANDIN_CLOCK"); i++) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
    }
}

/* Order one operation, note it, and wait for it unless its name says Async. */
static CUresult operation(const char *name, char kind, CUstream stream, uint64_t bytes,
                          uintptr_t dst, uintptr_t src, double ns, bool wait)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = stream_of(stream);
    CUresult result = s ? CUDA_SUCCESS : INVALID_HANDLE;
    now_ns += STANDIN_CALL_NS;
    pass(STANDIN_CALL_NS);
    check_memory(dst);
    check_memory(src);
    if (s && !s->capture && wait && unsafe()) {
        result = CAPTURE_UNSUPPORTED;
    } else if (s) {
        struct standin_record r = { name, kind, stream_number(stream), bytes, dst, src, 0, 0 };
        if (s->capture) {
            s->capture->ops++;
            r.kind = 'c';
        } else {
            r.start_ns = now_ns > s->tail_ns ? now_ns : s->tail_ns;
            r.end_ns = r.start_ns + (uint64_t)ns;
            s->tail_ns = r.end_ns;
            now_ns = wait ? r.end_ns : now_ns;
        }
        if (!records) { /* not from the heap: its 64 MB would be searched for leaks each time */
            void *at = mmap(NULL, RECORDS * sizeof *records, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            records = at == MAP_FAILED ? NULL : at;
        }
        if (records && n_records < RECORDS) {
            records[n_records++] = r;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- copies and memsets, by the shapes of entries.h; `name` and `stream_` come from SHAPE */

#define NS_HTOD(n) (STANDIN_HTOD_NS + (double)(n) / 12)
#define NS_DTOH(n) (STANDIN_DTOH_NS + (double)(n) / 12.5)

/* By words where it can: memmove() of the address sanitizer goes byte by byte. */
static void move(uintptr_t dst, uintptr_t src, uint64_t bytes)
{
    typedef uint64_t word __attribute__((may_alias));
    uint64_t apart = dst > src ? dst - src : bytes, i = 0;
    if ((dst | src) % sizeof(word) == 0 && apart >= bytes)
        for (; i + sizeof(word) <= bytes; i += sizeof(word))
            *(word *)(dst + i) = *(const word *)(src + i);
    memmove((void *)(dst + i), (const void *)(src + i), bytes - i);
}

static bool is_pinned(uintptr_t p)
{
    bool is = false;
    for (unsigned i = 0; i < n_pinned; i++)
        is |= p >= pinned[i].from && p < pinned[i].to;
    return is;
}

/* Of pinned memory, in which the library measures by large copies whose bytes are never read,
   both ends: where a copy begins and ends is seen, and its pages need not be there. */
static void move_some(uintptr_t dst, uintptr_t src, uint64_t bytes)
{
    if (bytes <= 2 * EDGE_BYTES || !(is_pinned(dst) || is_pinned(src))) {
        move(dst, src, bytes);
    } else {
        move(dst, src, EDGE_BYTES);
        move(dst + bytes - EDGE_BYTES, src + bytes - EDGE_BYTES, EDGE_BYTES);
    }
}

static CUresult copy(const char *name, char kind, CUstream stream, uintptr_t dst, uintptr_t src,
                     uint64_t bytes)
{
    if (!dst || !src) {
        return INVALID_VALUE;
    }
    bool async = strstr(name, "Async"), captured = stream_of(stream) && stream_of(stream)->capture;
    CUresult result = operation(name, kind, stream, bytes, dst, src,
                                kind == 'h'   ? NS_HTOD(bytes)
                                : kind == 'd' ? NS_DTOH(bytes)
                                              : STANDIN_KERNEL_NS,
                                !async);
    if (result == CUDA_SUCCESS && !captured) {
        move_some(dst, src, bytes);
    }
    return result;
}

static char kind_of(uintptr_t dst, uintptr_t src)
{
    return on_device(dst) == on_device(src) ? 'i' : on_device(dst) ? 'h' : 'd';
}

static CUresult copy_sides(const char *name, CUstream stream, unsigned dst_type, uintptr_t dst_host,
                           uintptr_t dst_device, unsigned src_type, uintptr_t src_host,
                           uintptr_t src_device, uint64_t bytes)
{
    uintptr_t dst = dst_type == CU_MEMORYTYPE_HOST ? dst_host : dst_device;
    uintptr_t src = src_type == CU_MEMORYTYPE_HOST ? src_host : src_device;
    return copy(name, kind_of(dst, src), stream, dst, src, bytes);
}

static CUresult batch(const char *name, CUstream stream, const CUdeviceptr *dst,
                      const CUdeviceptr *src, const size_t *bytes, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = copy(name, kind_of(dst[i], src[i]), stream, dst[i], src[i], bytes[i]);
    }
    return result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes);
static CUresult inside(const char *name, CUstream stream, uintptr_t dst, uintptr_t src,
                       uint64_t bytes)
{
    if (getenv("STANDIN_NESTED")) { /* through the dynamic linker, as a caller outside would */
        static char nothing[4];
        cuMemcpyHtoD_v2(dst, nothing, sizeof nothing);
    }
    return copy(name, 'i', stream, dst, src, bytes);
}

#define ADDRESS(p)          ((uintptr_t)(p))
#define op_htod(n)          copy(name, 'h', stream_, ADDRESS(dst), ADDRESS(src), n)
#define op_dtoh(n)          copy(name, 'd', stream_, ADDRESS(dst), ADDRESS(src), n)
#define op_inside(n)        inside(name, stream_, ADDRESS(dst), ADDRESS(src), n)
#define op_unified(d, s, n) copy(name, kind_of(d, s), stream_, d, s, n)
#define SIDES(c, depth)                                                                            \
    !(c) ? INVALID_VALUE                                                                           \
         : copy_sides(name, stream_, c->dstMemoryType, ADDRESS(c->dstHost), c->dstDevice,          \
                      c->srcMemoryType, ADDRESS(c->srcHost), c->srcDevice,                         \
                      (uint64_t)c->WidthInBytes * c->Height * (depth))
#define op_2d(c)                 SIDES(c, 1)
#define op_2d_v1(c)              SIDES(c, 1)
#define op_3d(c)                 SIDES(c, c->Depth)
#define op_3d_v1(c)              SIDES(c, c->Depth)
#define op_batch(d, s, n, count) batch(name, stream_, d, s, n, count)
#define op_set(n, width)                                                                           \
    ((void)value,                                                                                  \
     !dst ? INVALID_VALUE                                                                          \
          : operation(name, 's', stream_, (n) * (width), dst, 0, STANDIN_KERNEL_NS, false))

/* ---- launches: the duration of the kernel "work" is its parameter, in ns */

static CUresult launch(const char *name, CUfunction f, void **params, CUstream stream)
{
    if (!f || dead(f->ctx, f->serial)) {
        return INVALID_HANDLE;
    }
    bool spin = strcmp(f->name, "dxpu_inject_spin") == 0;
    uint64_t n = params ? *(uint64_t *)params[0] : 0;
    uint64_t ns = STANDIN_KERNEL_NS + (spin ? (uint64_t)((double)n / 1.41) : n);
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    bool blocks = blocking && *blocking == '1';
    CUresult result = operation(name, spin ? 'x' : 'k', stream, 0, 0, 0, (double)ns, blocks);
    pass(blocks ? ns : 0);
    return result;
}

/* Entries that leave the parameter out launch kernels of no length. */
#define LAUNCH_SHAPES(E)                                                                           \
    ASYNC_ONE(E, cuLaunchKernel, 4000, 7000,                                                       \
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
               unsigned bz, unsigned shared, CUstream stream, void **params, void **extra),        \
              (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra),                          \
              (launch(name, f, params, stream_)))                                                  \
    LAUNCH_EX_SHAPE(E, , 0, CU_STREAM_LEGACY)                                                      \
    LAUNCH_EX_SHAPE(E, _ptsz, 1, CU_STREAM_PER_THREAD)                                             \
    ASYNC_ONE(E, cuLaunchCooperativeKernel, 9000, 9000,                                            \
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
               unsigned bz, unsigned shared, CUstream stream, void **params),                      \
              (f, gx, gy, gz, bx, by, bz, shared, stream, params),                                 \
              (launch(name, f, params, stream_)))                                                  \
    E(cuLaunchCooperativeKernelMultiDevice, , 9000, 0,                                             \
      (CUDA_LAUNCH_PARAMS * list, unsigned n, unsigned flags), (list, n, flags),                   \
      (launch(name, list->function, list->kernelParams, list->hStream)), CU_STREAM_LEGACY)         \
    E(cuLaunch, , 2000, 0, (CUfunction f), (f), launch(name, f, NULL, stream_), CU_STREAM_LEGACY)  \
    E(cuLaunchGrid, , 2000, 0, (CUfunction f, int x, int y), (f, x, y),                            \
      (launch(name, f, NULL, stream_)), CU_STREAM_LEGACY)                                          \
    E(cuLaunchGridAsync, , 2000, 0, (CUfunction f, int x, int y, CUstream stream),                 \
      (f, x, y, stream), (launch(name, f, NULL, stream_)), ON(CU_STREAM_LEGACY))                   \
    ASYNC_ONE(E, cuGraphLaunch, 10000, 10000, (CUgraphExec exec, CUstream stream), (exec, stream), \
              !exec ? INVALID_HANDLE                                                               \
                    : operation(name, 'g', stream_, exec->ops, 0, 0, STANDIN_KERNEL_NS, false))
#define LAUNCH_EX_SHAPE(E, suffix, per_thread, default_stream)                                     \
    E(cuLaunchKernelEx, suffix, 11060, per_thread,                                                 \
      (const CUlaunchConfig *config, CUfunction f, void **params, void **extra),                   \
      (config, f, params, extra), (config ? launch(name, f, params, stream_) : INVALID_VALUE),     \
      config && config->hStream ? config->hStream : (default_stream))

/* ---- waits */

static CUresult wait_until(const char *name, CUstream stream, uint64_t ns)
{
    struct standin_record r = { name, 'w', stream_number(stream), 0, 0, 0, 0, 0 };
    pthread_mutex_lock(&lock);
    r.start_ns = now_ns;
    r.end_ns = now_ns = ns > now_ns ? ns : now_ns;
    if (records && n_records < RECORDS) {
        records[n_records++] = r;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult wait_all(const char *name)
{
    uint64_t ns = 0;
    for (unsigned i = 0; i < n_streams; i++) {
        ns = streams[i].tail_ns > ns ? streams[i].tail_ns : ns;
    }
    return wait_until(name, CU_STREAM_LEGACY, ns);
}

#define WAIT_SHAPES(E)                                                                             \
    E(cuCtxSynchronize, , 2000, 0, (void), (), wait_all(name), CU_STREAM_LEGACY)                   \
    E(cuCtxSynchronize, _v2, 13000, 0, (CUcontext ctx), (ctx),                                     \
      ctx && ctx->alive ? wait_all(name) : INVALID_VALUE, CU_STREAM_LEGACY)                        \
    ASYNC_ONE(E, cuStreamSynchronize, 2000, 7000, (CUstream stream), (stream),                     \
              stream_of(stream) ? wait_until(name, stream_, stream_of(stream_)->tail_ns)           \
                                : INVALID_HANDLE)                                                  \
    E(cuEventSynchronize, , 2000, 0, (CUevent event), (event),                                     \
      dead(event->ctx, event->serial) ? INVALID_HANDLE                                             \
                                      : wait_until(name, CU_STREAM_LEGACY, event->at_ns),          \
      CU_STREAM_LEGACY)

/* ---- contexts */

CUresult cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int number)
{
    *device = number;
    return number ? INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "stand-in %d", device);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
    int i = 0;
    while (contexts[i].alive) {
        i++; /* a handle is used again at once */
    }
    contexts[i].alive = true;
    contexts[i].serial = ++n_serial;
    *ctx = current = &contexts[i];
    return flags || device ? INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult context_end(CUcontext ctx)
{
    if (!ctx || !ctx->alive) {
        return INVALID_VALUE;
    }
    ctx->alive = false;
    current = current == ctx ? NULL : current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    current = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    *ctx = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return current ? CUDA_SUCCESS : INVALID_VALUE;
}

static unsigned primary_users;

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    if (!primary.alive) {
        primary.alive = true;
        primary.serial = ++n_serial;
    }
    primary_users++;
    *ctx = &primary;
    return device ? INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = primary.alive;
    return device ? INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult primary_end(CUdevice device, bool all)
{
    if (device || !primary_users) {
        return INVALID_VALUE;
    }
    primary_users = all ? 0 : primary_users - 1;
    primary.alive = primary_users > 0;
    return CUDA_SUCCESS;
}

/* ---- memory, modules, streams, events, graphs */

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr p)
{
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE || !on_device(p)) {
        return INVALID_VALUE; /* memory that the driver does not know */
    }
    *(unsigned *)data = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    pthread_mutex_lock(&lock);
    CUresult result = unsafe() ? CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    if (!memory_free) { /* low, so that the entries with 32-bit addresses reach it */
        void *at = mmap((void *)0x10000000, MEMORY_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memory_free = (uintptr_t)at;
    }
    if (result == CUDA_SUCCESS) {
        *p = memory_free;
        memory[n_memory].from = memory_free;
        memory_free += (bytes + 255) & ~(size_t)255;
        memory[n_memory].to = memory_free;
        memory[n_memory].ctx = current;
        memory[n_memory++].serial = current->serial;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    *p = unsafe() || flags
             ? NULL
             : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_lock(&lock);
    if (*p && n_pinned < sizeof pinned / sizeof *pinned) {
        pinned[n_pinned].from = (uintptr_t)*p;
        pinned[n_pinned++].to = (uintptr_t)*p + bytes;
    }
    pthread_mutex_unlock(&lock);
    return *p ? CUDA_SUCCESS : CAPTURE_UNSUPPORTED;
}

CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
    *m = &module;
    return unsafe() ? CAPTURE_UNSUPPORTED : image ? CUDA_SUCCESS : INVALID_VALUE;
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    pthread_mutex_lock(&lock);
    struct CUfunc_st *made = &functions[n_functions++];
    snprintf(made->name, sizeof made->name, "%s", name);
    made->ctx = current;
    made->serial = current->serial;
    *f = made;
    pthread_mutex_unlock(&lock);
    return m == &module ? CUDA_SUCCESS : INVALID_VALUE;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    pthread_mutex_lock(&lock);
    *stream = &streams[n_streams++];
    pthread_mutex_unlock(&lock);
    return flags > CU_STREAM_NON_BLOCKING ? INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return stream_of(stream) ? CUDA_SUCCESS : INVALID_HANDLE;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    struct CUstream_st *s = stream_of(stream);
    *status = s && s->capture ? 1 : CU_STREAM_CAPTURE_STATUS_NONE;
    return s ? CUDA_SUCCESS : INVALID_HANDLE;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    stream->capture = &graphs[n_graphs++];
    captures++;
    return mode ? INVALID_VALUE : CUDA_SUCCESS; /* the strictest only, 0 */
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    *graph = stream->capture;
    stream->capture = NULL;
    captures--;
    return (*graph)->broken ? CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int old = capture_mode;
    capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    *exec = &execs[n_execs++];
    (*exec)->ops = graph->ops;
    return flags ? INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    pthread_mutex_lock(&lock);
    *event = &events[n_events++];
    (*event)->ctx = current;
    (*event)->serial = current->serial;
    pthread_mutex_unlock(&lock);
    return flags ? INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct CUstream_st *s = stream_of(stream);
    if (!s || dead(event->ctx, event->serial)) {
        return INVALID_HANDLE;
    }
    pthread_mutex_lock(&lock);
    if (s->capture) {
        s->capture->ops++;
    }
    event->at_ns = s->tail_ns > now_ns ? s->tail_ns : now_ns;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    return unsafe()                           ? CAPTURE_UNSUPPORTED
           : dead(event->ctx, event->serial)  ? INVALID_HANDLE
           : event->at_ns <= standin_now_ns() ? CUDA_SUCCESS
                                              : NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    *ms = (float)((double)(to->at_ns - from->at_ns) / 1e6);
    return CUDA_SUCCESS;
}

/* ---- every entry twice: exported, and what cuGetProcAddress may hand out in its place */

#define SHAPE(base, suffix, version, per_thread, params, args, op, on)                             \
    static CUresult inner_##base##suffix params                                                    \
    {                                                                                              \
        const char *name = #base #suffix;                                                          \
        CUstream stream_ = (on);                                                                   \
        (void)stream_;                                                                             \
        return op;                                                                                 \
    }                                                                                              \
    CUresult base##suffix params;                                                                  \
    CUresult base##suffix params                                                                   \
    {                                                                                              \
        return inner_##base##suffix args;                                                          \
    }
COPIES(SHAPE)
MEMSETS(SHAPE)
LAUNCH_SHAPES(SHAPE)
WAIT_SHAPES(SHAPE)

#define ENDS_cuCtxDestroy(x)              context_end(x)
#define ENDS_cuDevicePrimaryCtxRelease(x) primary_end(x, false)
#define ENDS_cuDevicePrimaryCtxReset(x)   primary_end(x, true)
#define END(base, suffix, version, params, args)                                                   \
    CUresult base##suffix params;                                                                  \
    CUresult base##suffix params                                                                   \
    {                                                                                              \
        return ENDS_##base args;                                                                   \
    }
LIFETIME(END)

CUresult cuGetProcAddress(const char *, void **, int, unsigned long long);
CUresult cuGetProcAddress_v2(const char *, void **, int, unsigned long long, void *);

static const struct {
    const char *base;
    int version;
    bool per_thread;
    void (*exported)(void), (*inner)(void);
} given[] = {
#define GIVEN(base, suffix, version, per_thread, ...)                                              \
    { #base, version, per_thread, (void (*)(void))base##suffix,                                    \
      (void (*)(void))inner_##base##suffix },
#define GIVEN_PLAIN(base, suffix, version, ...)                                                    \
    { #base, version, false, (void (*)(void))base##suffix, (void (*)(void))base##suffix },
    COPIES(GIVEN) MEMSETS(GIVEN) LAUNCH_SHAPES(GIVEN) WAIT_SHAPES(GIVEN) LOOKUPS(GIVEN_PLAIN)
        LIFETIME(GIVEN_PLAIN)
};

CUresult cuGetProcAddress(const char *symbol, void **found, int version, unsigned long long flags)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, got = false;
    int best = -1;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        int rank = given[i].version + (given[i].per_thread ? 100000 : 0);
        if (strcmp(given[i].base, symbol) == 0 && given[i].version <= version &&
            (per_thread || !given[i].per_thread) && rank > best) {
            best = rank;
            got = true;
            memcpy(found, getenv("STANDIN_INNER") ? &given[i].inner : &given[i].exported,
                   sizeof *found);
        }
    }
    return got ? CUDA_SUCCESS : 500;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version,
                             unsigned long long flags, void *status)
{
    CUresult result = cuGetProcAddress(symbol, found, version, flags);
    if (status) {
        *(int *)status = result != CUDA_SUCCESS;
    }
    return result;
}
