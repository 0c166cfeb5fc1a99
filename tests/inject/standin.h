/* SPDX-License-Identifier: MIT
   A stand-in for libcuda.so.1: a GPU on a virtual clock, which moves data, orders and times what
   as called, and logs everything. */
#ifndef DXPU_TEST_STANDIN_H
#define DXPU_TEST_STANDIN_H

#include "driver_api.h"

#include <stdbool.h>

enum { /* how long things take on it, ns */
       STANDIN_CALL_NS = 1000,
       STANDIN_HTOD_NS = 1500, /* and 12 bytes per ns */
       STANDIN_DTOH_NS = 1300, /* and 12.5 bytes per ns */
       STANDIN_KERNEL_NS = 1200,
};

struct standin_record {
    const char *name;
    char kind; /* h to the GPU, d from it, i inside, s set, k kernel, x the library's, g graph,
                  c captured, w a wait, n nothing */
    uint64_t stream, bytes, dst, src, start_ns, end_ns;
};

size_t standin_log(const struct standin_record **first);
void standin_reset(void);
uint64_t standin_now_ns(void);
unsigned standin_misuses(void); /* of what ended with its context */

/* The rest of the API, as the test programs use it. */
typedef struct CUgraph_st *CUgraph;
CUresult cuInit(unsigned flags);
CUresult cuDeviceGet(CUdevice *device, int number);
CUresult cuDeviceGetName(char *name, int size, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuCtxGetCurrent(CUcontext *ctx);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr p);
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes);
CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);

#endif
