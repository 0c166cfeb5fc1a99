/* SPDX-License-Identifier: MIT
   How long copies, kernels and memsets take, on whatever libcuda.so.1 is there: one line each,

     NAME BYTES COUNT GPU_NS HOST_NS

   GPU_NS is the time of one by the GPU's own events while several are queued, HOST_NS what the
   caller waits for one alone.  measure.py runs it without and with libdxpu-inject.so.  Exit status
   77: there is no GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver_api.h"
#include "spin.h"

enum { NO_GPU = 77, BUFFER_BYTES = 16 << 20, WAIT_CYCLES = 2000000 };

#define DRIVER(N)                                                                                  \
    N(cuInit, (unsigned))                                                                          \
    N(cuDeviceGet, (CUdevice *, int))                                                              \
    N(cuDeviceGetName, (char *, int, CUdevice))                                                    \
    N(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    N(cuCtxSetCurrent, (CUcontext))                                                                \
    N(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    N(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    N(cuModuleLoadData, (CUmodule *, const void *))                                                \
    N(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    N(cuStreamCreate, (CUstream *, unsigned))                                                      \
    N(cuStreamSynchronize, (CUstream))                                                             \
    N(cuEventCreate, (CUevent *, unsigned))                                                        \
    N(cuEventRecord, (CUevent, CUstream))                                                          \
    N(cuEventSynchronize, (CUevent))                                                               \
    N(cuEventElapsedTime, (float *, CUevent, CUevent))                                             \
    N(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                         \
    N(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                               \
    N(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                             \
    N(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, CUstream, void **, void **))

static struct {
#define MEMBER(name, params) CUresult(*name) params;
    DRIVER(MEMBER)
} cu;

static CUdeviceptr gpu;
static void *host;
static CUfunction spin;
static CUstream stream;
static CUevent from, to;

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "measure: %s: error %u of the driver\n", what, result);
        exit(1);
    }
}

static void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *f;
    if (!driver) {
        fprintf(stderr, "measure: %s\n", dlerror());
        exit(NO_GPU);
    }
#define FIND(name, params)                                                                         \
    f = dlsym(driver, #name);                                                                      \
    if (!f) {                                                                                      \
        fprintf(stderr, "measure: the driver has no " #name "\n");                                 \
        exit(1);                                                                                   \
    }                                                                                              \
    memcpy(&cu.name, &f, sizeof f);
    DRIVER(FIND)
}

static void set_up(void)
{
    CUdevice device;
    CUcontext ctx;
    CUmodule module;
    char name[128] = "";
    if (cu.cuInit(0) != CUDA_SUCCESS || cu.cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
        fprintf(stderr, "measure: libcuda.so.1 finds no GPU\n");
        exit(NO_GPU);
    }
    cu.cuDeviceGetName(name, sizeof name, device);
    fprintf(stderr, "measure: %s\n", name);
    must(cu.cuDevicePrimaryCtxRetain(&ctx, device), "cuDevicePrimaryCtxRetain");
    must(cu.cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
    must(cu.cuMemAlloc_v2(&gpu, BUFFER_BYTES), "cuMemAlloc");
    must(cu.cuMemHostAlloc(&host, BUFFER_BYTES, 0), "cuMemHostAlloc");
    must(cu.cuModuleLoadData(&module, inject_spin_ptx), "cuModuleLoadData");
    must(cu.cuModuleGetFunction(&spin, module, INJECT_SPIN), "cuModuleGetFunction");
    must(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(cu.cuEventCreate(&from, 0), "cuEventCreate");
    must(cu.cuEventCreate(&to, 0), "cuEventCreate");
}

enum what { HTOD, DTOH, SET, KERNEL };

static void issue(enum what what, uint64_t amount)
{
    void *params[] = { &amount };
    switch (what) {
    case HTOD:
        must(cu.cuMemcpyHtoDAsync_v2(gpu, host, amount, stream), "cuMemcpyHtoDAsync");
        break;
    case DTOH:
        must(cu.cuMemcpyDtoHAsync_v2(host, gpu, amount, stream), "cuMemcpyDtoHAsync");
        break;
    case SET:
        must(cu.cuMemsetD8Async(gpu, 0, amount, stream), "cuMemsetD8Async");
        break;
    default:
        must(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "cuLaunchKernel");
    }
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void measure(const char *name, enum what what, uint64_t amount, int count)
{
    float ms;
    issue(what, amount);
    must(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    issue(KERNEL, WAIT_CYCLES); /* until all are queued */
    issue(what, amount);
    must(cu.cuEventRecord(from, stream), "cuEventRecord");
    for (int i = 0; i < count; i++) {
        issue(what, amount);
    }
    must(cu.cuEventRecord(to, stream), "cuEventRecord");
    must(cu.cuEventSynchronize(to), "cuEventSynchronize");
    must(cu.cuEventElapsedTime(&ms, from, to), "cuEventElapsedTime");
    double start_ns = now_ns();
    for (int i = 0; i < count; i++) {
        issue(what, amount);
        must(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    printf("%s %llu %d %.0f %.0f\n", name, what == HTOD ? (unsigned long long)amount : 0, count,
           (double)ms * 1e6 / count, (now_ns() - start_ns) / count);
}

int main(void)
{
    static const struct {
        const char *name;
        enum what what;
        uint64_t amount;
        int count;
    } rows[] = {
        { "htod_4k", HTOD, 4096, 100 },         { "htod_64k", HTOD, 65536, 100 },
        { "htod_1m", HTOD, 1 << 20, 50 },       { "htod_16m", HTOD, BUFFER_BYTES, 10 },
        { "dtoh_4k", DTOH, 4096, 100 },         { "dtoh_1m", DTOH, 1 << 20, 50 },
        { "memset_4k", SET, 4096, 100 },        { "kernel_5000", KERNEL, 5000, 100 },
        { "kernel_20000", KERNEL, 20000, 100 }, { "kernel_200000", KERNEL, 200000, 50 },
    };
    open_driver();
    set_up();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        measure(rows[i].name, rows[i].what, rows[i].amount, rows[i].count);
    }
    return 0;
}
