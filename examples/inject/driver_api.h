/* SPDX-License-Identifier: MIT
   The part of the public CUDA driver API that libdxpu-inject touches, so that it builds without
   CUDA.  The names are the API's own; tests/inject/cli_inject.py compares them with cuda.h where
   there is one. */
#ifndef DXPU_INJECT_DRIVER_API_H
#define DXPU_INJECT_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned CUresult; /* an enum there, which ABIs pass as this */
typedef int CUdevice;
typedef unsigned CUdeviceptr_v1; /* before CUDA 3.2 */
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;

enum { /* CUresult */
       CUDA_SUCCESS = 0,
       CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
};
enum { /* CUmemorytype */
       CU_MEMORYTYPE_HOST = 1,
       CU_MEMORYTYPE_DEVICE = 2,
       CU_MEMORYTYPE_ARRAY = 3,
       CU_MEMORYTYPE_UNIFIED = 4,
};
enum {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
};
#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

/* Size is unsigned before CUDA 3.2 and size_t since. */
#define DXPU_COPY_SIDES(Size, Pointer)                                                             \
    Size srcXInBytes, srcY;                                                                        \
    unsigned srcMemoryType;                                                                        \
    const void *srcHost;                                                                           \
    Pointer srcDevice;                                                                             \
    CUarray srcArray;                                                                              \
    Size srcPitch;                                                                                 \
    Size dstXInBytes, dstY;                                                                        \
    unsigned dstMemoryType;                                                                        \
    void *dstHost;                                                                                 \
    Pointer dstDevice;                                                                             \
    CUarray dstArray;                                                                              \
    Size dstPitch;                                                                                 \
    Size WidthInBytes, Height;
#define DXPU_COPY_SIDES_3D(Size, Pointer)                                                          \
    Size srcXInBytes, srcY, srcZ, srcLOD;                                                          \
    unsigned srcMemoryType;                                                                        \
    const void *srcHost;                                                                           \
    Pointer srcDevice;                                                                             \
    CUarray srcArray;                                                                              \
    void *reserved0;                                                                               \
    Size srcPitch, srcHeight;                                                                      \
    Size dstXInBytes, dstY, dstZ, dstLOD;                                                          \
    unsigned dstMemoryType;                                                                        \
    void *dstHost;                                                                                 \
    Pointer dstDevice;                                                                             \
    CUarray dstArray;                                                                              \
    void *reserved1;                                                                               \
    Size dstPitch, dstHeight;                                                                      \
    Size WidthInBytes, Height, Depth;

typedef struct CUDA_MEMCPY2D_v1 {
    DXPU_COPY_SIDES(unsigned, CUdeviceptr_v1)
} CUDA_MEMCPY2D_v1;
typedef struct CUDA_MEMCPY2D {
    DXPU_COPY_SIDES(size_t, CUdeviceptr)
} CUDA_MEMCPY2D;
typedef struct CUDA_MEMCPY3D_v1 {
    DXPU_COPY_SIDES_3D(unsigned, CUdeviceptr_v1)
} CUDA_MEMCPY3D_v1;
typedef struct CUDA_MEMCPY3D {
    DXPU_COPY_SIDES_3D(size_t, CUdeviceptr)
} CUDA_MEMCPY3D;

typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
typedef struct CUDA_LAUNCH_PARAMS {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

#endif
