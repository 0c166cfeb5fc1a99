/* SPDX-License-Identifier: MIT
   Short programs over the driver API, linked to the stand-in.  Each prints what it saw; a run with
   the library preloaded is compared with one without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "entries.h"
#include "standin.h"

#define PROTOTYPE(base, suffix, version, per_thread, params, ...) CUresult base##suffix params;
#define PROTOTYPE_PLAIN(base, suffix, version, params, args)      CUresult base##suffix params;
ENTRIES(PROTOTYPE)
LIFETIME(PROTOTYPE_PLAIN)

static unsigned char host[1 << 20], back[1 << 20];
static CUcontext ctx;
static CUdeviceptr gpu;
static CUfunction work;

static void check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        printf("error %u\n", result);
        exit(1);
    }
}

static void set_up(void)
{
    CUmodule module;
    check(cuInit(0));
    check(cuCtxCreate_v2(&ctx, 0, 0));
    check(cuMemAlloc_v2(&gpu, sizeof host));
    check(cuModuleLoadData(&module, "work"));
    check(cuModuleGetFunction(&work, module, "work"));
}

static CUresult run_work(uint64_t ns, CUstream stream)
{
    void *params[] = { &ns };
    return cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Only the program's own operations, in order; the library waits, too, once in a context. */
static void show_own(void)
{
    const struct standin_record *r;
    size_t n = standin_log(&r);
    for (size_t i = 0; i < n; i++) {
        uintptr_t at = r[i].kind == 'h' ? r[i].src : r[i].dst;
        bool in_host = at >= (uintptr_t)host && at < (uintptr_t)host + sizeof host;
        bool in_back = at >= (uintptr_t)back && at < (uintptr_t)back + sizeof back;
        if (r[i].kind != 'x' && r[i].kind != 'w' &&
            (!at || in_host || in_back || r[i].kind == 's')) {
            printf("%c %llu %llu %s\n", r[i].kind, (unsigned long long)r[i].stream,
                   (unsigned long long)r[i].bytes, r[i].name);
        }
    }
}

static void scene_order(void)
{
    CUstream a, b;
    check(cuStreamCreate(&a, 0));
    check(cuStreamCreate(&b, 1));
    for (unsigned i = 0; i < sizeof host; i++) {
        host[i] = (unsigned char)(i * 7 + i / 251);
    }
    check(cuMemcpyHtoDAsync_v2(gpu, host, sizeof host / 2, a));
    check(cuMemcpyHtoDAsync_v2(gpu + sizeof host / 2, host + sizeof host / 2, sizeof host / 2, b));
    check(run_work(3000, a));
    check(cuMemsetD8Async(gpu, 0, 0, b));
    check(run_work(4000, b));
    check(cuMemcpyDtoHAsync_v2(back, gpu, 100, b));
    check(cuCtxSynchronize());
    check(cuMemcpyDtoH_v2(back, gpu, sizeof back));
    show_own();
    printf("data %s\n", memcmp(host, back, sizeof host) ? "lost" : "whole");
}

static void scene_errors(void)
{
    CUstream bad = (CUstream)(uintptr_t)0xdead00;
    CUdeviceptr at[] = { gpu }, from[] = { (uintptr_t)host };
    size_t size[] = { 8 };
    printf("%u ", cuMemcpyHtoD_v2(0, host, 8));
    printf("%u ", cuMemcpyHtoD_v2(gpu, NULL, 8));
    printf("%u ", cuMemcpyDtoHAsync_v2(NULL, gpu, 8, NULL));
    printf("%u ", cuMemcpyHtoDAsync_v2(gpu, host, 8, bad));
    printf("%u ", cuMemcpy2D_v2(NULL));
    printf("%u ", cuMemcpy3DAsync_v2(NULL, NULL));
    printf("%u ", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    printf("%u ", cuLaunchKernelEx(NULL, work, NULL, NULL));
    printf("%u ", run_work(5, bad));
    printf("%u ", cuGraphLaunch(NULL, NULL));
    printf("%u ", cuMemsetD8_v2(0, 1, 8));
    printf("%u ", cuMemcpyBatchAsync_v2(at, from, size, 0, NULL, NULL, 0, NULL));
    printf("%u ", cuCtxDestroy_v2(NULL));
    printf("%u ", cuDevicePrimaryCtxRelease_v2(0));
    printf("%u\n", cuMemcpyHtoD_v2(gpu, host, 8));
}

/* The first calls in a context, and others, while a stream is captured. */
static void scene_capture(void)
{
    CUstream captured, other;
    CUgraph graph;
    CUgraphExec exec;
    const struct standin_record *r;
    check(cuStreamCreate(&captured, 0));
    check(cuStreamCreate(&other, 1));
    check(cuStreamBeginCapture_v2(captured, 0));
    check(run_work(1000, other));
    check(run_work(1000, captured));
    check(cuMemcpyHtoDAsync_v2(gpu, host, 64, captured));
    check(cuMemsetD8Async(gpu, 1, 64, captured));
    check(run_work(1000, other));
    printf("end %u\n", cuStreamEndCapture(captured, &graph));
    check(cuGraphInstantiateWithFlags(&exec, graph, 0));
    standin_reset();
    check(cuGraphLaunch(exec, other));
    size_t n = standin_log(&r);
    printf("nodes %llu extra %zu\n", (unsigned long long)r[n - 1].bytes, n - 1);
}

/* Control: what the library must not do breaks a capture. */
static void scene_capture_broken(void)
{
    CUstream captured;
    CUgraph graph;
    CUdeviceptr more;
    check(cuStreamCreate(&captured, 0));
    check(cuStreamBeginCapture_v2(captured, 0));
    printf("alloc %u ", cuMemAlloc_v2(&more, 8));
    printf("end %u\n", cuStreamEndCapture(captured, &graph));
}

/* A context that ends, and one that gets its handle. */
static void scene_contexts(void)
{
    CUcontext primary, old = ctx;
    for (int i = 0; i < 3; i++) {
        check(cuMemcpyHtoD_v2(gpu, host, 64));
        check(run_work(1000, NULL));
        check(i == 1 ? cuCtxDestroy(ctx) : cuCtxDestroy_v2(ctx));
        set_up();
    }
    for (int i = 0; i < 4; i++) {
        check(cuDevicePrimaryCtxRetain(&primary, 0));
        check(cuCtxSetCurrent(primary));
        check(cuMemAlloc_v2(&gpu, 64));
        check(cuMemcpyHtoD_v2(gpu, host, 64));
        check(i == 0   ? cuDevicePrimaryCtxRelease(0)
              : i == 1 ? cuDevicePrimaryCtxRelease_v2(0)
              : i == 2 ? cuDevicePrimaryCtxReset(0)
                       : cuDevicePrimaryCtxReset_v2(0));
    }
    printf("handle %s misuses %u\n", old == ctx ? "same" : "new", standin_misuses());
}

/* Control: a function outlives its context. */
static void scene_misuse(void)
{
    CUfunction kept = work;
    check(cuCtxDestroy_v2(ctx));
    set_up();
    work = kept;
    CUresult result = run_work(1000, NULL);
    printf("launch %u misuses %u\n", result, standin_misuses());
}

static void *thread_main(void *stream)
{
    check(cuCtxSetCurrent(ctx));
    for (int i = 0; i < 500; i++) {
        check(cuMemcpyHtoDAsync_v2(gpu, host, 64, stream));
        check(run_work(5000, stream));
    }
    return NULL;
}

static void scene_threads(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        CUstream stream;
        check(cuStreamCreate(&stream, 1));
        pthread_create(&threads[i], NULL, thread_main, stream);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    check(cuCtxSynchronize());
    printf("done\n");
}

static atomic_bool copying;

static void *copy_on(void *stream)
{
    check(cuCtxSetCurrent(ctx));
    for (int i = 0; i < 100000; i++) {
        check(cuMemcpyHtoDAsync_v2(gpu, host, 64, stream));
        copying = true;
    }
    return NULL;
}

/* The program ends while another thread copies behind a kernel. */
static void scene_ending(void)
{
    pthread_t thread;
    CUstream stream;
    check(cuStreamCreate(&stream, 1));
    check(run_work(1000, stream));
    pthread_create(&thread, NULL, copy_on, stream);
    while (!copying) {
    }
}

static void scene_fork(void)
{
    for (int i = 0; i < 3; i++) {
        check(cuMemcpyHtoD_v2(gpu, host, 64));
    }
    for (int child = 0; child < 2; child++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            if (child == 0) {
                set_up();
                check(cuMemcpyDtoH_v2(back, gpu, 32));
            }
            exit(0); /* the second one does nothing */
        }
        int status = -1;
        waitpid(pid, &status, 0);
        printf("child %d %d\n", child, status);
    }
    check(cuMemcpyHtoD_v2(gpu, host, 64));
}

static void scene_nested(void)
{
    for (int i = 0; i < 5; i++) {
        check(cuMemcpyDtoD_v2(gpu, gpu + 64, 64));
    }
    printf("done\n");
}

static void scene_kernels(void)
{
    static const uint64_t ns[] = { 300000, 800, 800, 10000 };
    for (int i = 0; i < 4; i++) {
        check(run_work(ns[i], NULL));
    }
    check(cuMemcpyHtoD_v2(gpu, host, 4096));
    check(cuMemcpyDtoH_v2(host, gpu, 100));
    printf("%u\n", cuMemcpyDtoH_v2(NULL, gpu, 100));
    check(cuCtxSynchronize());
}

/* How long `count` of a thing take on the virtual GPU. */
static void scene_time(void)
{
    static const char *const things[] = { "htod",   "htod_64k", "htod_1m", "dtoh",
                                          "kernel", "memset",   "graph" };
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    check(cuStreamCreate(&stream, 0));
    check(cuStreamBeginCapture_v2(stream, 0));
    check(cuStreamEndCapture(stream, &graph));
    check(cuGraphInstantiateWithFlags(&exec, graph, 0));
    check(run_work(1000, stream)); /* what is done once in a context */
    for (unsigned k = 0; k < sizeof things / sizeof *things; k++) {
        check(cuCtxSynchronize());
        check(run_work(100000000, stream)); /* all is queued behind it */
        standin_reset();
        for (int i = 0; i < 100; i++) {
            check(k == 0   ? cuMemcpyHtoDAsync_v2(gpu, host, 4096, stream)
                  : k == 1 ? cuMemcpyHtoDAsync_v2(gpu, host, 65536, stream)
                  : k == 2 ? cuMemcpyHtoDAsync_v2(gpu, host, 1 << 20, stream)
                  : k == 3 ? cuMemcpyDtoHAsync_v2(back, gpu, 4096, stream)
                  : k == 4 ? run_work(10000, stream)
                  : k == 5 ? cuMemsetD8Async(gpu, 0, 4096, stream)
                           : cuGraphLaunch(exec, stream));
        }
        const struct standin_record *r;
        size_t n = standin_log(&r);
        printf("%s %.1f\n", things[k], (double)(r[n - 1].end_ns - r[0].start_ns) / 100);
    }
}

/* The clock that a delay looks at, 10 ns further each time; the C library's is behind it. */
static uint64_t fake_ns;
int clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    fake_ns += 10;
    t->tv_sec = (time_t)(fake_ns / 1000000000);
    t->tv_nsec = (long)(fake_ns % 1000000000);
    return 0;
}

static void scene_delay(void)
{
    static const char *const things[] = { "htod", "htod_1m", "dtoh", "kernel", "inside" };
    for (unsigned k = 0; k < 5; k++) {
        uint64_t from_ns = fake_ns;
        check(k == 0   ? cuMemcpyHtoD_v2(gpu, host, 4096)
              : k == 1 ? cuMemcpyHtoDAsync_v2(gpu, host, 1 << 20, NULL)
              : k == 2 ? cuMemcpyDtoH_v2(back, gpu, 4096)
              : k == 3 ? run_work(1000, NULL)
                       : cuMemcpyDtoD_v2(gpu, gpu, 64));
        printf("%s %llu\n", things[k], (unsigned long long)(fake_ns - from_ns));
    }
    show_own();
}

/* Copies in a stream of kernels, before its first kernel and behind it, and in another stream. */
static void scene_streams(void)
{
    CUstream kernels, copies;
    check(cuStreamCreate(&kernels, 1));
    check(cuStreamCreate(&copies, 1));
    for (unsigned i = 0; i < 3; i++) {
        check(cuMemcpyHtoDAsync_v2(gpu, host, 1000, kernels));
        check(cuMemcpyHtoDAsync_v2(gpu, host, 500, copies));
        check(cuMemcpyDtoHAsync_v2(back, gpu, 30, i == 1 ? kernels : copies));
        check(run_work(5000, kernels));
        check(cuMemsetD8Async(gpu, 0, 64, copies)); /* no kernel */
    }
    check(cuMemcpyHtoDAsync_v2(gpu, host, 7, CU_STREAM_PER_THREAD));
    check(cuLaunchKernel_ptsz(work, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    check(cuMemcpyHtoDAsync_v2(gpu, host, 11, CU_STREAM_PER_THREAD));
    check(cuCtxSynchronize());
}

/* Kernels of 2 us, each in an idle stream. */
static void scene_idle(void)
{
    for (int i = 0; i < 4; i++) {
        check(run_work(800, NULL));
        check(cuCtxSynchronize());
    }
}

static void launch_after(uint64_t ns)
{
    fake_ns += ns;
    check(run_work(1000, NULL));
}

static void *one_launch(void *nothing)
{
    check(cuCtxSetCurrent(ctx));
    launch_after(0);
    return nothing;
}

/* Four gaps of 5, 7, 20 and 3 us; a pause, a wait for a copy, a kernel, a stream or an event, and
   another thread do not count. */
static void scene_pace(void)
{
    pthread_t thread;
    CUevent event;
    launch_after(0);
    launch_after(5000);
    launch_after(1000000);
    launch_after(7000);
    check(cuMemcpyDtoHAsync_v2(back, gpu, 64, NULL));
    pthread_create(&thread, NULL, one_launch, NULL);
    pthread_join(thread, NULL);
    launch_after(4000);
    launch_after(20000);
    check(cuMemcpyHtoD_v2(gpu, host, 64));
    launch_after(4000);
    check(cuMemcpyHtoDAsync_v2(gpu, host, 64, NULL));
    launch_after(3000);
    check(cuEventCreate(&event, 0));
    check(cuEventRecord(event, NULL));
    for (int wait = 0; wait < 5; wait++) {
        check(wait == 0   ? cuCtxSynchronize()
              : wait == 1 ? cuCtxSynchronize_v2(ctx)
              : wait == 2 ? cuStreamSynchronize(NULL)
              : wait == 3 ? cuStreamSynchronize_ptsz(NULL)
                          : cuEventSynchronize(event));
        launch_after(28000);
    }
}

/* Whether dlsym gives the driver's own function. */
static void scene_own(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *f = dlsym(driver, "cuMemcpyHtoD_v2");
    Dl_info info = { 0 };
    dladdr(f, &info);
    printf("%s\n", info.dli_fname && strstr(info.dli_fname, "libcuda.so.1") ? "driver" : "hook");
}

/* What one call costs the host, ns; for a look, not for a test. */
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } scenes[] = {
        { "order", scene_order },       { "errors", scene_errors },
        { "capture", scene_capture },   { "capture_broken", scene_capture_broken },
        { "contexts", scene_contexts }, { "misuse", scene_misuse },
        { "threads", scene_threads },   { "ending", scene_ending },
        { "fork", scene_fork },         { "nested", scene_nested },
        { "kernels", scene_kernels },   { "time", scene_time },
        { "delay", scene_delay },       { "own", scene_own },
        { "streams", scene_streams },   { "pace", scene_pace },
        { "idle", scene_idle },
    };
    for (size_t i = 0; argc > 1 && i < sizeof scenes / sizeof *scenes; i++) {
        if (strcmp(argv[1], scenes[i].name) == 0) {
            set_up();
            scenes[i].play();
            return 0;
        }
    }
    printf("no such scene\n");
    return 1;
}
