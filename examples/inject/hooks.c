/* SPDX-License-Identifier: MIT
   The wrappers of libdxpu-inject. */
#define _GNU_SOURCE
#include <pthread.h>

#include "hooks.h"

INJECT_TLS unsigned inject_depth;

struct call {
    enum entry entry;
    struct op op;
    uint64_t start_ns;
    CUstream stream;
    enum stream_use use;
    void *timer;
};

static void delay(const struct cost *cost)
{
    uint64_t from_ns = inject_now_ns();
    double wait_ns = cost->htod_ns + cost->dtoh_ns + cost->launches * cost->kernel_ns;
    while ((double)(inject_now_ns() - from_ns) < wait_ns) {
    }
}

static void add(const struct call *call)
{
    struct cost cost = inject_cost(&inject_settings, &call->op);
    if (inject_settings.method == METHOD_DELAY) {
        delay(&cost);
        inject_count_extra(true, 0, 0, 0);
    } else if (call->use == STREAM_RUNS) {
        inject_extra(&cost, call->stream);
    } else {
        inject_count_extra(false, 0, 0, 0);
    }
}

/* Before the call, as the paper has it: what is added runs ahead of it in its stream.  A call that
   is captured into a graph runs with the graph. */
static void begin(struct call *call)
{
    const struct settings *s = &inject_settings;
    const struct op *op = &call->op;
    uint64_t from_ns = s->profile ? inject_now_ns() : 0;
    inject_profile_at_exit();
    call->use = op->waits ? STREAM_UNKNOWN : inject_stream_use(call->stream);
    if (call->use == STREAM_CAPTURED) {
        return;
    }
    if (s->inject && (op->htod || op->dtoh || op->launches)) {
        add(call);
    }
    if (s->profile && s->events && op->kernel && call->use == STREAM_RUNS) {
        call->timer = inject_time_start(call->stream);
        if (!call->timer) {
            inject_count_untimed();
        }
    }
    if (s->profile) {
        call->start_ns = inject_now_ns();
        inject_count_own(call->start_ns - from_ns);
    }
}

static CUresult end(struct call *call, CUresult result)
{
    bool profile = inject_settings.profile && call->use != STREAM_CAPTURED;
    uint64_t end_ns = profile ? inject_now_ns() : 0;
    if (call->use == STREAM_CAPTURED) {
        inject_count_captured();
    } else if (profile) {
        inject_count_call(call->entry, &call->op, call->stream, result, call->start_ns, end_ns);
    }
    if (call->timer) {
        inject_time_stop(call->timer, call->stream, result == CUDA_SUCCESS,
                         end_ns - call->start_ns);
    }
    if (profile) {
        inject_count_own(inject_now_ns() - end_ns);
    }
    inject_depth--;
    return result;
}

/* While nothing is to be done a wrapper is a jump: what it needs otherwise stands apart. */
#define WRAPPER(base, suffix, version, per_thread, params, args, op_, stream_)                     \
    static __attribute__((noinline)) CUresult on_##base##suffix params                             \
    {                                                                                              \
        CUresult(*real) params = (CUresult(*) params)inject_real(ENTRY_##base##suffix);            \
        if (!real) {                                                                               \
            return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;                                      \
        }                                                                                          \
        if (!inject_active || inject_depth) {                                                      \
            return real args;                                                                      \
        }                                                                                          \
        inject_depth++;                                                                            \
        struct call call = { .entry = ENTRY_##base##suffix, .op = op_, .stream = stream_ };        \
        begin(&call);                                                                              \
        return end(&call, real args);                                                              \
    }                                                                                              \
    CUresult hook_##base##suffix params                                                            \
    {                                                                                              \
        CUresult(*real) params = (CUresult(*) params)inject_found(ENTRY_##base##suffix);           \
        return real && !inject_active ? real args : on_##base##suffix args;                        \
    }                                                                                              \
    EXPORTED(base, suffix, params)

ENTRIES(WRAPPER)

/* ---- the end of a context */

static CUresult context_end(enum entry e, CUcontext ctx)
{
    CUresult (*real)(CUcontext) = (CUresult(*)(CUcontext))inject_real(e);
    if (!real) {
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    }
    if (!inject_active || inject_depth) {
        return real(ctx);
    }
    inject_depth++;
    inject_time_harvest(); /* its events end with it */
    CUresult result = real(ctx);
    if (result == CUDA_SUCCESS) {
        inject_context_gone(ctx);
    }
    inject_depth--;
    return result;
}

static CUresult primary_end(enum entry e, CUdevice device)
{
    CUresult (*real)(CUdevice) = (CUresult(*)(CUdevice))inject_real(e);
    if (!real) {
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    }
    if (!inject_active || inject_depth) {
        return real(device);
    }
    inject_depth++;
    inject_time_harvest();
    CUresult result = real(device);
    if (result == CUDA_SUCCESS) {
        inject_primary_gone(device);
    }
    inject_depth--;
    return result;
}

#define ENDS(base, suffix, version, params, args)                                                  \
    CUresult hook_##base##suffix params                                                            \
    {                                                                                              \
        return ENDS_##base(ENTRY_##base##suffix, args);                                            \
    }                                                                                              \
    EXPORTED(base, suffix, params)
#define ENDS_cuCtxDestroy(e, ctx)                 context_end(e, ctx)
#define ENDS_cuDevicePrimaryCtxRelease(e, device) primary_end(e, device)
#define ENDS_cuDevicePrimaryCtxReset(e, device)   primary_end(e, device)

LIFETIME(ENDS)

/* ---- start, fork */

static void forked(void)
{
    /* The driver does not work in the child before it is started again there: leave what was made
       in the parent alone. */
    inject_device_forget();
    inject_profile_forked();
    inject_depth = 0;
}

static void start(void)
{
    inject_settings_read();
    if (inject_active) {
        pthread_atfork(inject_device_lock, inject_device_unlock, forked);
    }
}

__attribute__((constructor(101))) void inject_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}
