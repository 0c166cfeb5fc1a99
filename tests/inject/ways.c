/* SPDX-License-Identifier: MIT
   Finds every entry of the driver in the way that the argument names, calls it, and prints what
   the driver was called with: one line a call,

     NAME ROUND EXTRA RESULT {KIND:STREAM:BYTES:NAME:own|other}...

   Compiled with LINKED=1 it is linked to the driver, else it opens it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "calls.h"
#include "standin.h"

#define TYPE(base, suffix, version, per_thread, params, ...)                                       \
    typedef CUresult type_##base##suffix params;                                                   \
    type_##base##suffix base##suffix;
ENTRIES(TYPE)
typedef CUresult look_v1(const char *, void **, int, unsigned long long);
typedef CUresult look_v2(const char *, void **, int, unsigned long long, void *);
look_v1 cuGetProcAddress;
look_v2 cuGetProcAddress_v2;

typedef void (*function)(void);

static const struct row {
    const char *name, *base;
    int version, per_thread;
    function linked;
} rows[] = {
#if LINKED
#define LINK(name) (function) name
#else
#define LINK(name) NULL
#endif
#define ROW(base, suffix, version, per_thread, ...)                                                \
    { #base #suffix, #base, version, per_thread, LINK(base##suffix) },
    ENTRIES(ROW)
};

static void *driver;
static const char *way;

static function plain(void *p)
{
    function f;
    memcpy(&f, &p, sizeof f);
    return f;
}

/* cuGetProcAddress itself, as the runtime library comes by it: by dlsym, or from itself. */
static function asked(const struct row *row)
{
    void *p = NULL;
    unsigned long long flags = row->per_thread ? 2 : 0;
    /* from the entry's own version to the newest that still means it */
    if (strcmp(way, "proc_v1") == 0) {
        ((look_v1 *)plain(dlsym(driver, "cuGetProcAddress")))(row->base, &p, row->version, flags);
        return plain(p);
    }
    look_v2 *look = (look_v2 *)plain(dlsym(driver, "cuGetProcAddress_v2"));
    if (strcmp(way, "proc_of_proc") == 0) {
        look("cuGetProcAddress", &p, 13000, 0, NULL);
        look = (look_v2 *)plain(p);
        p = NULL;
    }
    int status = -1;
    look(row->base, &p, row->version, flags, &status);
    return status == 0 ? plain(p) : NULL;
}

static function found(const char *name)
{
    const struct row *row = rows;
    while (strcmp(row->name, name) != 0) {
        row++;
    }
    if (strcmp(way, "linked") == 0) {
        return row->linked;
    } else if (strcmp(way, "dlsym") == 0) {
        return plain(dlsym(driver, name));
    } else if (strcmp(way, "default") == 0) {
        return plain(dlsym(RTLD_DEFAULT, name));
    } else if (strcmp(way, "next") == 0) {
        return plain(dlsym(RTLD_NEXT, name));
    } else if (strcmp(way, "dlvsym") == 0) {
        return plain(dlvsym(driver, name, "STANDIN_1"));
    }
    return asked(row);
}

static void *other(const char *name)
{
    return dlsym(driver, name);
}

/* The stand-in itself, without a link. */
#define USE(name) ((__typeof__(name) *)plain(other(#name)))

static unsigned char host[4096];
static CUdeviceptr gpu_memory;

static int own(uint64_t p)
{
    return (p >= (uintptr_t)host && p < (uintptr_t)host + sizeof host) ||
           (p >= gpu_memory && p < gpu_memory + 4096);
}

static void show(const char *name, int round, const char *extra, CUresult result)
{
    const struct standin_record *r;
    size_t n = USE(standin_log)(&r);
    printf("%s %d %s %u", name, round, extra, result);
    for (size_t i = 0; i < n; i++) {
        int mine = r[i].kind == 'x' ? 0 : !r[i].dst || own(r[i].dst) || own(r[i].src);
        printf(" %c:%llu:%llu:%s:%s", r[i].kind,
               r[i].stream < 16 ? (unsigned long long)r[i].stream : 16,
               (unsigned long long)r[i].bytes, r[i].name, mine ? "own" : "other");
    }
    printf("\n");
    USE(standin_reset)();
}

static void calls(int round, CUcontext ctx, CUstream stream, CUfunction work, CUgraphExec exec,
                  CUevent event)
{
    static uint64_t ns = 5000;
    void *params[] = { &ns };
    CUdeviceptr gpu = gpu_memory, cpu = (uintptr_t)host;
    CUdeviceptr_v1 gpu32 = (CUdeviceptr_v1)gpu;
    CUarray array = (CUarray)(uintptr_t)gpu;
    CUlaunchConfig launch = { .hStream = stream }, *config = &launch;
    CUDA_LAUNCH_PARAMS several = { .function = work, .hStream = stream, .kernelParams = params };
    CUdeviceptr dsts[] = { gpu, cpu, gpu }, srcs[] = { cpu, gpu, gpu };
    size_t sizes[] = { 16, 16, 16 };
#define COPY_TO                                                                                    \
    { .srcMemoryType = CU_MEMORYTYPE_HOST,                                                         \
      .srcHost = host,                                                                             \
      .dstMemoryType = CU_MEMORYTYPE_DEVICE,                                                       \
      .dstDevice = gpu32,                                                                          \
      .WidthInBytes = 8,                                                                           \
      .Height = 2 }
#define COPY_FROM                                                                                  \
    {                                                                                              \
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = gpu32,                                 \
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .WidthInBytes = 8, .Height = 2       \
    }
    CUDA_MEMCPY2D_v1 to_2d_v1 = COPY_TO, from_2d_v1 = COPY_FROM;
    CUDA_MEMCPY2D to_2d = COPY_TO, from_2d = COPY_FROM, unified_2d = COPY_TO;
    CUDA_MEMCPY3D_v1 to_3d_v1 = COPY_TO, from_3d_v1 = COPY_FROM;
    CUDA_MEMCPY3D to_3d = COPY_TO, from_3d = COPY_FROM;
    to_3d_v1.Depth = from_3d_v1.Depth = 3;
    to_3d.Depth = from_3d.Depth = 3;
    unified_2d.srcMemoryType = unified_2d.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    unified_2d.srcDevice = cpu;
#define CALL(name, args, extra)                                                                    \
    {                                                                                              \
        function f = found(#name);                                                                 \
        if (!f) {                                                                                  \
            printf("%s %d %s missing\n", #name, round, extra);                                     \
        } else {                                                                                   \
            CUresult result = ((type_##name *)f)args;                                              \
            show(#name, round, extra, result);                                                     \
        }                                                                                          \
    }
    CALLS(CALL)
}

int main(int argc, char **argv)
{
    way = argc > 1 ? argv[1] : "";
    driver = dlopen("libcuda.so.1",
                    RTLD_NOW |
                        (strcmp(way, "default") && strcmp(way, "next") ? RTLD_LOCAL : RTLD_GLOBAL));
    CUcontext ctx;
    CUmodule module;
    CUfunction work;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    if (!driver || USE(cuInit)(0) || USE(cuCtxCreate_v2)(&ctx, 0, 0) ||
        USE(cuMemAlloc_v2)(&gpu_memory, 4096) || USE(cuModuleLoadData)(&module, "work") ||
        USE(cuModuleGetFunction)(&work, module, "work") || USE(cuStreamCreate)(&stream, 0) ||
        USE(cuStreamBeginCapture_v2)(stream, 0) || USE(cuStreamEndCapture)(stream, &graph) ||
        USE(cuGraphInstantiateWithFlags)(&exec, graph, 0) || USE(cuEventCreate)(&event, 0) ||
        USE(cuEventRecord)(event, stream)) {
        printf("the stand-in is not there\n");
        return 1;
    }
    /* what the library does once in a context */
    type_cuMemcpyHtoD_v2 *first = (type_cuMemcpyHtoD_v2 *)found("cuMemcpyHtoD_v2");
    if (first) {
        first(gpu_memory, host, 4);
    }
    USE(standin_reset)();
    calls(0, ctx, NULL, work, exec, event);
    calls(1, ctx, stream, work, exec, event);
    return 0;
}
