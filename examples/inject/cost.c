/* SPDX-License-Identifier: MIT
   What a call costs more over the pool's network than without it: the performance model of the
   paper (its section 3.4), and the kinds of calls that it knows. */
#include "dxpu.h"
#include "inject.h"

#pragma GCC visibility push(hidden) /* the equations, too, are private */
#define DXPU_MODEL_IMPLEMENTATION
#include "dxpu_model.h"
#pragma GCC visibility pop

double inject_rtt_delta_ns(const struct settings *s)
{
    return s->rtt_ns - s->native_rtt_ns;
}

/* Of a copy to the GPU when each read takes rtt_ns. */
static double read_ns(const struct settings *s, double rtt_ns, double bytes)
{
    double tags_gbs = dxpu_model_equation1_gbs(s->tags, s->mrs_bytes, rtt_ns / 1e3);
    return 1e3 * dxpu_model_read_us(rtt_ns / 1e3, tags_gbs, s->native_gbps, bytes);
}

struct cost inject_cost(const struct settings *s, const struct op *op)
{
    struct cost cost = { .launches = op->launches };
    double delta_ns = inject_rtt_delta_ns(s), bytes = (double)op->htod_bytes;
    if (op->htod) {
        /* Until the tags are used up a copy ends one RTT_delta later.  Beyond, the reads wait for
           tags and the throughput decides. */
        double added_ns = read_ns(s, s->rtt_ns, bytes) - read_ns(s, s->native_rtt_ns, bytes);
        cost.bulk = added_ns > delta_ns;
        cost.htod_ns = cost.bulk ? added_ns : delta_ns;
    }
    if (op->dtoh) {
        cost.dtoh_ns = delta_ns / 2; /* posted writes: one way only */
    }
    cost.kernel_ns = delta_ns;
    return cost;
}

struct op op_htod(uint64_t bytes)
{
    return (struct op){ .htod = bytes > 0, .bytes = bytes, .htod_bytes = bytes };
}

struct op op_dtoh(uint64_t bytes)
{
    return (struct op){ .dtoh = bytes > 0, .bytes = bytes };
}

struct op op_inside(uint64_t bytes)
{
    return (struct op){ .bytes = bytes };
}

struct op op_set(uint64_t n, uint64_t width_bytes)
{
    return (struct op){ .launches = n > 0, .bytes = n * width_bytes };
}

struct op op_none(void)
{
    return (struct op){ 0 };
}

struct op op_kernel(void)
{
    return (struct op){ .kernel = true, .launches = 1 };
}

struct op op_graph(void)
{
    return (struct op){ .graph = true, .launches = inject_settings.graph_rtts };
}

struct op op_wait(void)
{
    return (struct op){ .waits = true };
}

static struct op op_between(bool from_device, bool to_device, uint64_t bytes)
{
    return from_device == to_device ? op_inside(bytes)
           : to_device              ? op_htod(bytes)
                                    : op_dtoh(bytes);
}

struct op op_unified(CUdeviceptr dst, CUdeviceptr src, uint64_t bytes)
{
    return op_between(inject_pointer_on_device(src), inject_pointer_on_device(dst), bytes);
}

static bool side_on_device(unsigned memory_type, CUdeviceptr p)
{
    return memory_type == CU_MEMORYTYPE_UNIFIED ? inject_pointer_on_device(p)
                                                : memory_type != CU_MEMORYTYPE_HOST;
}

#define SIDES(copy, depth)                                                                         \
    (copy) ? op_between(side_on_device((copy)->srcMemoryType, (copy)->srcDevice),                  \
                        side_on_device((copy)->dstMemoryType, (copy)->dstDevice),                  \
                        (uint64_t)(copy)->WidthInBytes *(copy)->Height *(depth))                   \
           : op_inside(0)

struct op op_2d(const CUDA_MEMCPY2D *copy)
{
    return SIDES(copy, 1);
}

struct op op_3d(const CUDA_MEMCPY3D *copy)
{
    return SIDES(copy, copy->Depth);
}

struct op op_2d_v1(const CUDA_MEMCPY2D_v1 *copy)
{
    return SIDES(copy, 1);
}

struct op op_3d_v1(const CUDA_MEMCPY3D_v1 *copy)
{
    return SIDES(copy, copy->Depth);
}

struct op op_batch(const CUdeviceptr *dst, const CUdeviceptr *src, const size_t *bytes,
                   size_t count)
{
    /* The copies of a batch are in no order: their round trips overlap, their bytes add up. */
    struct op sum = op_inside(0);
    for (size_t i = 0; dst && src && bytes && i < count; i++) {
        struct op one = op_unified(dst[i], src[i], bytes[i]);
        sum.htod |= one.htod;
        sum.dtoh |= one.dtoh;
        sum.bytes += one.bytes;
        sum.htod_bytes += one.htod_bytes;
    }
    return sum;
}
