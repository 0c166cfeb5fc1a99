/* SPDX-License-Identifier: MIT
   One call of every hooked entry: C(name, args, extra), where extra says what the library is to
   add: h a copy to the GPU, d one from it, x a kernel, - nothing.  `stream` is NULL in one round
   and a stream in another. */
#ifndef DXPU_TEST_CALLS_H
#define DXPU_TEST_CALLS_H

#define C_SYNC(C, base, args32, args, extra)                                                       \
    C(base, args32, extra) C(base##_v2, args, extra) C(base##_v2_ptds, args, extra)
#define C_ASYNC(C, base, args32, args, extra)                                                      \
    C(base, args32, extra) C(base##_v2, args, extra) C(base##_v2_ptsz, args, extra)
#define C_TWO(C, name, suffix, args, extra) C(name, args, extra) C(name##suffix, args, extra)

#define CALLS_COPY(C)                                                                              \
    C_TWO(C, cuMemcpy, _ptds, (gpu, cpu, 64), "h")                                                 \
    C_TWO(C, cuMemcpyAsync, _ptsz, (cpu, gpu, 64, stream), "d")                                    \
    C_SYNC(C, cuMemcpyHtoD, (gpu32, host, 64), (gpu, host, 64), "h")                               \
    C_SYNC(C, cuMemcpyDtoH, (host, gpu32, 64), (host, gpu, 64), "d")                               \
    C_SYNC(C, cuMemcpyDtoD, (gpu32, gpu32, 64), (gpu, gpu, 64), "-")                               \
    C_SYNC(C, cuMemcpyHtoA, (array, 0, host, 64), (array, 0, host, 64), "h")                       \
    C_SYNC(C, cuMemcpyAtoH, (host, array, 0, 64), (host, array, 0, 64), "d")                       \
    C_ASYNC(C, cuMemcpyHtoDAsync, (gpu32, host, 64, stream), (gpu, host, 64, stream), "h")         \
    C_ASYNC(C, cuMemcpyDtoHAsync, (host, gpu32, 64, stream), (host, gpu, 64, stream), "d")         \
    C_ASYNC(C, cuMemcpyDtoDAsync, (gpu32, gpu32, 64, stream), (gpu, gpu, 64, stream), "-")         \
    C_ASYNC(C, cuMemcpyHtoAAsync, (array, 0, host, 64, stream), (array, 0, host, 64, stream), "h") \
    C_ASYNC(C, cuMemcpyAtoHAsync, (host, array, 0, 64, stream), (host, array, 0, 64, stream), "d") \
    C_SYNC(C, cuMemcpy2D, (&to_2d_v1), (&to_2d), "h")                                              \
    C_SYNC(C, cuMemcpy2DUnaligned, (&from_2d_v1), (&from_2d), "d")                                 \
    C_ASYNC(C, cuMemcpy2DAsync, (&to_2d_v1, stream), (&unified_2d, stream), "h")                   \
    C_SYNC(C, cuMemcpy3D, (&to_3d_v1), (&to_3d), "h")                                              \
    C_ASYNC(C, cuMemcpy3DAsync, (&from_3d_v1, stream), (&from_3d, stream), "d")                    \
    C_TWO(C, cuMemcpyBatchAsync, _ptsz, (dsts, srcs, sizes, 3, NULL, NULL, 0, NULL, stream), "hd") \
    C_TWO(C, cuMemcpyBatchAsync_v2, _ptsz, (dsts, srcs, sizes, 3, NULL, NULL, 0, stream), "hd")

#define CALLS_SET(C, digits)                                                                       \
    C_SYNC(C, cuMemsetD##digits, (gpu32, 1, 8), (gpu, 1, 8), "x")                                  \
    C_SYNC(C, cuMemsetD2D##digits, (gpu32, 8, 1, 2, 2), (gpu, 8, 1, 2, 2), "x")                    \
    C_TWO(C, cuMemsetD##digits##Async, _ptsz, (gpu, 1, 8, stream), "x")                            \
    C_TWO(C, cuMemsetD2D##digits##Async, _ptsz, (gpu, 8, 1, 2, 2, stream), "x")

#define CALLS_LAUNCH(C)                                                                            \
    C_TWO(C, cuLaunchKernel, _ptsz, (work, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "x")        \
    C_TWO(C, cuLaunchKernelEx, _ptsz, (config, work, params, NULL), "x")                           \
    C_TWO(C, cuLaunchCooperativeKernel, _ptsz, (work, 1, 1, 1, 1, 1, 1, 0, stream, params), "x")   \
    C(cuLaunchCooperativeKernelMultiDevice, (&several, 1, 0), "-")                                 \
    C(cuLaunch, (work), "x")                                                                       \
    C(cuLaunchGrid, (work, 1, 1), "x")                                                             \
    C(cuLaunchGridAsync, (work, 1, 1, stream), "x")                                                \
    C_TWO(C, cuGraphLaunch, _ptsz, (exec, stream), "x")

#define CALLS_WAIT(C)                                                                              \
    C(cuCtxSynchronize, (), "-")                                                                   \
    C(cuCtxSynchronize_v2, (ctx), "-")                                                             \
    C_TWO(C, cuStreamSynchronize, _ptsz, (stream), "-")                                            \
    C(cuEventSynchronize, (event), "-")

#define CALLS(C)                                                                                   \
    CALLS_COPY(C)                                                                                  \
    CALLS_SET(C, 8) CALLS_SET(C, 16) CALLS_SET(C, 32) CALLS_LAUNCH(C) CALLS_WAIT(C)

#endif
