/* SPDX-License-Identifier: MIT
   Every hooked entry of the driver, once.  ENTRIES(E) expands

     E(base, suffix, version, per_thread, params, args, op, stream)

   base ## suffix   the exported name
   version          first driver version whose cuGetProcAddress(base) means this entry
   per_thread       1 for the forms whose default stream is the thread's own
   op               what the call does, a struct op made of its arguments (inject.h)
   stream           where it does it

   LOOKUPS(E) and LIFETIME(E) are the entries with wrappers of their own: E(base, suffix, version,
   params, args). */
#ifndef DXPU_INJECT_ENTRIES_H
#define DXPU_INJECT_ENTRIES_H

#define ON(default_stream) (stream ? stream : (default_stream))

/* Old form, form since 3.2, form with the default stream of the thread: synchronous, and not. */
#define SYNC(E, base, params1, op1, params, args, op)                                              \
    E(base, , 2000, 0, params1, args, op1, CU_STREAM_LEGACY)                                       \
    E(base, _v2, 3020, 0, params, args, op, CU_STREAM_LEGACY)                                      \
    E(base, _v2_ptds, 7000, 1, params, args, op, CU_STREAM_PER_THREAD)
#define ASYNC(E, base, params1, op1, params, args, op)                                             \
    E(base, , 2000, 0, params1, args, op1, ON(CU_STREAM_LEGACY))                                   \
    E(base, _v2, 3020, 0, params, args, op, ON(CU_STREAM_LEGACY))                                  \
    E(base, _v2_ptsz, 7000, 1, params, args, op, ON(CU_STREAM_PER_THREAD))
/* Entries that never changed. */
#define SYNC_ONE(E, base, version, params, args, op)                                               \
    E(base, , version, 0, params, args, op, CU_STREAM_LEGACY)                                      \
    E(base, _ptds, 7000, 1, params, args, op, CU_STREAM_PER_THREAD)
#define ASYNC_ONE(E, base, version, version_pt, params, args, op)                                  \
    E(base, , version, 0, params, args, op, ON(CU_STREAM_LEGACY))                                  \
    E(base, _ptsz, version_pt, 1, params, args, op, ON(CU_STREAM_PER_THREAD))

#define COPIES(E)                                                                                  \
    SYNC_ONE(E, cuMemcpy, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),                  \
             (dst, src, bytes), op_unified(dst, src, bytes))                                       \
    ASYNC_ONE(E, cuMemcpyAsync, 4000, 7000,                                                        \
              (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),                   \
              (dst, src, bytes, stream), op_unified(dst, src, bytes))                              \
    SYNC(E, cuMemcpyHtoD, (CUdeviceptr_v1 dst, const void *src, unsigned bytes), op_htod(bytes),   \
         (CUdeviceptr dst, const void *src, size_t bytes), (dst, src, bytes), op_htod(bytes))      \
    SYNC(E, cuMemcpyDtoH, (void *dst, CUdeviceptr_v1 src, unsigned bytes), op_dtoh(bytes),         \
         (void *dst, CUdeviceptr src, size_t bytes), (dst, src, bytes), op_dtoh(bytes))            \
    SYNC(E, cuMemcpyDtoD, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned bytes),                \
         op_inside(bytes), (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),    \
         op_inside(bytes))                                                                         \
    SYNC(E, cuMemcpyHtoA, (CUarray dst, unsigned at, const void *src, unsigned bytes),             \
         op_htod(bytes), (CUarray dst, size_t at, const void *src, size_t bytes),                  \
         (dst, at, src, bytes), op_htod(bytes))                                                    \
    SYNC(E, cuMemcpyAtoH, (void *dst, CUarray src, unsigned at, unsigned bytes), op_dtoh(bytes),   \
         (void *dst, CUarray src, size_t at, size_t bytes), (dst, src, at, bytes), op_dtoh(bytes)) \
    ASYNC(E, cuMemcpyHtoDAsync,                                                                    \
          (CUdeviceptr_v1 dst, const void *src, unsigned bytes, CUstream stream), op_htod(bytes),  \
          (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),                       \
          (dst, src, bytes, stream), op_htod(bytes))                                               \
    ASYNC(E, cuMemcpyDtoHAsync, (void *dst, CUdeviceptr_v1 src, unsigned bytes, CUstream stream),  \
          op_dtoh(bytes), (void *dst, CUdeviceptr src, size_t bytes, CUstream stream),             \
          (dst, src, bytes, stream), op_dtoh(bytes))                                               \
    ASYNC(E, cuMemcpyDtoDAsync,                                                                    \
          (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned bytes, CUstream stream),               \
          op_inside(bytes), (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),     \
          (dst, src, bytes, stream), op_inside(bytes))                                             \
    ASYNC(E, cuMemcpyHtoAAsync,                                                                    \
          (CUarray dst, unsigned at, const void *src, unsigned bytes, CUstream stream),            \
          op_htod(bytes),                                                                          \
          (CUarray dst, size_t at, const void *src, size_t bytes, CUstream stream),                \
          (dst, at, src, bytes, stream), op_htod(bytes))                                           \
    ASYNC(E, cuMemcpyAtoHAsync,                                                                    \
          (void *dst, CUarray src, unsigned at, unsigned bytes, CUstream stream), op_dtoh(bytes),  \
          (void *dst, CUarray src, size_t at, size_t bytes, CUstream stream),                      \
          (dst, src, at, bytes, stream), op_dtoh(bytes))                                           \
    SYNC(E, cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy), op_2d_v1(copy),                            \
         (const CUDA_MEMCPY2D *copy), (copy), op_2d(copy))                                         \
    SYNC(E, cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy), op_2d_v1(copy),                   \
         (const CUDA_MEMCPY2D *copy), (copy), op_2d(copy))                                         \
    ASYNC(E, cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), op_2d_v1(copy),     \
          (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream), op_2d(copy))               \
    SYNC(E, cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy), op_3d_v1(copy),                            \
         (const CUDA_MEMCPY3D *copy), (copy), op_3d(copy))                                         \
    ASYNC(E, cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), op_3d_v1(copy),     \
          (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream), op_3d(copy))               \
    ASYNC_ONE(E, cuMemcpyBatchAsync, 12080, 12080,                                                 \
              (CUdeviceptr * dst, CUdeviceptr * src, size_t * bytes, size_t count,                 \
               CUmemcpyAttributes * attrs, size_t * attr_at, size_t n_attrs, size_t * fail_at,     \
               CUstream stream),                                                                   \
              (dst, src, bytes, count, attrs, attr_at, n_attrs, fail_at, stream),                  \
              op_batch(dst, src, bytes, count))                                                    \
    BATCH_V2(E, _v2, 0, CU_STREAM_LEGACY)                                                          \
    BATCH_V2(E, _v2_ptsz, 1, CU_STREAM_PER_THREAD)
#define BATCH_V2(E, suffix, per_thread, default_stream)                                            \
    E(cuMemcpyBatchAsync, suffix, 13000, per_thread,                                               \
      (CUdeviceptr * dst, CUdeviceptr * src, size_t * bytes, size_t count,                         \
       CUmemcpyAttributes * attrs, size_t * attr_at, size_t n_attrs, CUstream stream),             \
      (dst, src, bytes, count, attrs, attr_at, n_attrs, stream), op_batch(dst, src, bytes, count), \
      ON(default_stream))

/* Type and width of a memset's value. */
#define MEMSET(E, digits, Value, width)                                                            \
    SYNC(E, cuMemsetD##digits, (CUdeviceptr_v1 dst, Value value, unsigned n), op_set(n, width),    \
         (CUdeviceptr dst, Value value, size_t n), (dst, value, n), op_set(n, width))              \
    SYNC(E, cuMemsetD2D##digits,                                                                   \
         (CUdeviceptr_v1 dst, unsigned pitch, Value value, unsigned x, unsigned y),                \
         op_set((uint64_t)x *y, width),                                                            \
         (CUdeviceptr dst, size_t pitch, Value value, size_t x, size_t y),                         \
         (dst, pitch, value, x, y), op_set(x *y, width))                                           \
    ASYNC_ONE(E, cuMemsetD##digits##Async, 3020, 7000,                                             \
              (CUdeviceptr dst, Value value, size_t n, CUstream stream), (dst, value, n, stream),  \
              op_set(n, width))                                                                    \
    ASYNC_ONE(E, cuMemsetD2D##digits##Async, 3020, 7000,                                           \
              (CUdeviceptr dst, size_t pitch, Value value, size_t x, size_t y, CUstream stream),   \
              (dst, pitch, value, x, y, stream), op_set(x *y, width))
#define MEMSETS(E)                                                                                 \
    MEMSET(E, 8, unsigned char, 1) MEMSET(E, 16, unsigned short, 2) MEMSET(E, 32, unsigned, 4)

#define LAUNCH_EX(E, suffix, per_thread, default_stream)                                           \
    E(cuLaunchKernelEx, suffix, 11060, per_thread,                                                 \
      (const CUlaunchConfig *config, CUfunction f, void **params, void **extra),                   \
      (config, f, params, extra), op_kernel(),                                                     \
      config && config->hStream ? config->hStream : (default_stream))
#define LAUNCHES(E)                                                                                \
    ASYNC_ONE(E, cuLaunchKernel, 4000, 7000,                                                       \
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
               unsigned bz, unsigned shared, CUstream stream, void **params, void **extra),        \
              (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra), op_kernel())             \
    LAUNCH_EX(E, , 0, CU_STREAM_LEGACY)                                                            \
    LAUNCH_EX(E, _ptsz, 1, CU_STREAM_PER_THREAD)                                                   \
    ASYNC_ONE(E, cuLaunchCooperativeKernel, 9000, 9000,                                            \
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
               unsigned bz, unsigned shared, CUstream stream, void **params),                      \
              (f, gx, gy, gz, bx, by, bz, shared, stream, params), op_kernel())                    \
    E(cuLaunchCooperativeKernelMultiDevice, , 9000, 0,                                             \
      (CUDA_LAUNCH_PARAMS * list, unsigned n, unsigned flags), (list, n, flags), op_none(),        \
      CU_STREAM_LEGACY)                                                                            \
    E(cuLaunch, , 2000, 0, (CUfunction f), (f), op_kernel(), CU_STREAM_LEGACY)                     \
    E(cuLaunchGrid, , 2000, 0, (CUfunction f, int x, int y), (f, x, y), op_kernel(),               \
      CU_STREAM_LEGACY)                                                                            \
    E(cuLaunchGridAsync, , 2000, 0, (CUfunction f, int x, int y, CUstream stream),                 \
      (f, x, y, stream), op_kernel(), ON(CU_STREAM_LEGACY))                                        \
    ASYNC_ONE(E, cuGraphLaunch, 10000, 10000, (CUgraphExec exec, CUstream stream), (exec, stream), \
              op_graph())

/* Waits for the GPU. */
#define WAITS(E)                                                                                   \
    E(cuCtxSynchronize, , 2000, 0, (void), (), op_wait(), CU_STREAM_LEGACY)                        \
    E(cuCtxSynchronize, _v2, 13000, 0, (CUcontext ctx), (ctx), op_wait(), CU_STREAM_LEGACY)        \
    ASYNC_ONE(E, cuStreamSynchronize, 2000, 7000, (CUstream stream), (stream), op_wait())          \
    E(cuEventSynchronize, , 2000, 0, (CUevent event), (event), op_wait(), CU_STREAM_LEGACY)

#define ENTRIES(E) COPIES(E) MEMSETS(E) LAUNCHES(E) WAITS(E)

#define LOOKUPS(E)                                                                                 \
    E(cuGetProcAddress, , 11030,                                                                   \
      (const char *symbol, void **found, int version, unsigned long long flags),                   \
      (symbol, found, version, flags))                                                             \
    E(cuGetProcAddress, _v2, 12000,                                                                \
      (const char *symbol, void **found, int version, unsigned long long flags, void *status),     \
      (symbol, found, version, flags, status))

/* What ends a context, and with it what the library made in it. */
#define LIFETIME(E)                                                                                \
    E(cuCtxDestroy, , 2000, (CUcontext ctx), (ctx))                                                \
    E(cuCtxDestroy, _v2, 4000, (CUcontext ctx), (ctx))                                             \
    E(cuDevicePrimaryCtxRelease, , 7000, (CUdevice device), (device))                              \
    E(cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice device), (device))                          \
    E(cuDevicePrimaryCtxReset, , 7000, (CUdevice device), (device))                                \
    E(cuDevicePrimaryCtxReset, _v2, 11000, (CUdevice device), (device))

#endif
