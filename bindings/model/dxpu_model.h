/* dxpu_model.h - what a workload loses when its GPU is lent over a network, as a few equations
   SPDX-License-Identifier: MIT

   The performance model of DxPU (He et al., 2023; "3.4" below is a section of that paper), with
   what it leaves out: the links' own limits, the host's launch queue, several GPUs behind one
   proxy, copies that the host pushes.  Pure C99 and C++11 as dxpu.h is: no allocation, no library,
   no clock; results are double precision and use the four operations only.  spec/model.md says
   what is modelled, what is assumed, and how far the results are from the paper's measurements.

   In exactly one source file, after dxpu.h's own implementation or beside it:
       #define DXPU_MODEL_IMPLEMENTATION
       #include "bindings/model/dxpu_model.h"

   What a training step of 1,000 kernels of 102.3 us keeps, 6.8 us away:

       dxpu_model m;
       dxpu_model_work w;
       dxpu_model_default(&m);
       dxpu_model_work_default(&w);
       w.kernels = 1000;
       w.kernel_us = 102.3;
       printf("%.1f %%\n", 100 * dxpu_model_performance(&m, &w));

   Units are part of names: _us microseconds, _bytes, _gbs 1e9 bytes a second.  "Native" is the
   device in the host, "pooled" the device behind the proxies.

   CONTENTS: 1 The system  2 Throughput  3 Times  4 Workloads  5 Traces */
#ifndef DXPU_MODEL_H_INCLUDED
#define DXPU_MODEL_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  The system =========================================================================== */

/* Fill it with dxpu_model_default(), then set what differs.  The values in brackets are the
   paper's, but those marked assumed, or calibrated (from the one figure named). */
typedef struct dxpu_model {
    double rtt_native_us;      /* round trip of a memory read [1.2, Table 6], > 0 */
    double rtt_us;             /* the same when pooled [6.8, Table 6], >= rtt_native_us */
    uint32_t tags;             /* reads in flight, 1..65536 [140, 3.4.3] */
    uint32_t mrs_bytes;        /* Max_Read_Request_Size, 64..4096 [128, 3.4.3] */
    uint32_t mps_bytes;        /* Max_Payload_Size of writes, 64..4096 [128, assumed] */
    uint32_t completion_bytes; /* data of one completion, 64..4096 [64: the RCB, assumed] */
    uint32_t push_bytes;       /* one write of a processor, 16..4096 [64: a cache line, assumed] */
    uint32_t generation;       /* of PCIe, 1..5 [3, 3.1] */
    uint32_t lanes;            /* 1..32 [16, 3.1] */
    double dllp_share;         /* of a link, for acknowledgements and credits [0.08, assumed] */
    uint32_t proxy_bytes;      /* that a proxy adds to each TLP [8, calibrated: Table 7, to host] */
    double network_gbit_s;     /* of a proxy [200: two cables of 100, 3.5] */
    uint32_t mtu_bytes;        /* of the network, IP header included, 1280..65535 [1500, assumed] */
    uint32_t gpus;             /* that share the host's proxies, 1.. [1] */
    uint32_t proxies;          /* of the host, 1.. [1] */
    double reads_per_kernel;   /* round trips that nothing hides [1.5, calibrated: Figure 4 at 8 and
                                  19 us; 3.4.1 has 1] */
} dxpu_model;

DXPU_API void dxpu_model_default(dxpu_model *m);
/* DXPU_OK, or E_ARG for a value outside its range. */
DXPU_API int dxpu_model_check(const dxpu_model *m);
/* What the proxies add to the round trip (3.4.1, RTT_delta). */
DXPU_API double dxpu_model_rtt_delta_us(const dxpu_model *m);

/* ==== 2  Throughput =========================================================================== */

/* Equation 1 (3.4.1): what reads bring when tags, and nothing else, are the limit. */
DXPU_API double dxpu_model_equation1_gbs(double tags, double mrs_bytes, double rtt_us);
/* Solved for tags: how many keep a rate. */
DXPU_API double dxpu_model_equation1_tags(double gbs, double mrs_bytes, double rtt_us);
/* A PCIe link before any packet: 8 GT/s of 128b/130b, 7.877 Gbit/s a lane, in generation 3 (3.1 has
   about 7.87); 0 for none. */
DXPU_API double dxpu_model_lanes_gbs(uint32_t generation, uint32_t lanes);
enum {
    DXPU_MODEL_UDP_BYTES = 28,     /* with IPv4 */
    DXPU_MODEL_ETHERNET_BYTES = 38 /* header, checksum, preamble, gap */
};
/* Payload between the proxies, when each TLP carries payload_bytes behind header_bytes: its records
   (spec/wire.md, 4), full frames, UDP, IPv4, Ethernet with preamble and gap. */
DXPU_API double dxpu_model_network_gbs(const dxpu_model *m, double payload_bytes,
                                       double header_bytes);
/* Payload on the PCIe link; pooled: what that and the network both carry. */
DXPU_API double dxpu_model_link_gbs(const dxpu_model *m, bool pooled, double payload_bytes,
                                    double header_bytes);
/* Of one GPU: host to device by reads of the device (non-posted: the smaller of equation 1 and the
   link, 3.4.1); device to host by its writes (posted: the link alone, 3.4.1); host to device by
   writes of the host, which takes reads out of the way (5.1). */
DXPU_API double dxpu_model_read_gbs(const dxpu_model *m, bool pooled);
DXPU_API double dxpu_model_write_gbs(const dxpu_model *m, bool pooled);
DXPU_API double dxpu_model_push_gbs(const dxpu_model *m, bool pooled);
/* All m->gpus together, each wanting one_gbs: a line, until the host's own links are full. */
DXPU_API double dxpu_model_all_gbs(const dxpu_model *m, double one_gbs);
/* How much longer the traffic of a GPU takes because others share the proxies.  The rates are what
   one GPU alone moves to itself and to the host; 1 for one GPU.
   sharing   what the host's slot and the network make of it, as in the simulation: nothing until
             one of them is full
   crowding  a line fitted to Table 12 (4.3.2), and never less than that: 1 + (n - 1) times the
             share of the network that one GPU uses.  Nothing in a link makes it so; it holds all
             that GPUs of one host wait for one another there. */
DXPU_API double dxpu_model_sharing(const dxpu_model *m, double to_device_gbs, double to_host_gbs);
DXPU_API double dxpu_model_crowding(const dxpu_model *m, double to_device_gbs, double to_host_gbs);

/* ==== 3  Times ================================================================================ */

/* `bytes` by reads, from the first request to the last byte (3.4.1): a round trip, then the
   data at the link's rate; or all at equation 1's, tags_gbs, where that takes longer. */
DXPU_API double dxpu_model_read_us(double rtt_us, double tags_gbs, double link_gbs, double bytes);
/* One copy.  Writes: half a round trip, then the data. */
DXPU_API double dxpu_model_htod_us(const dxpu_model *m, bool pooled, double bytes);
DXPU_API double dxpu_model_dtoh_us(const dxpu_model *m, bool pooled, double bytes);
DXPU_API double dxpu_model_push_us(const dxpu_model *m, bool pooled, double bytes);
/* What a kernel (or a memset, 3.4.2) takes longer when pooled. */
DXPU_API double dxpu_model_kernel_delta_us(const dxpu_model *m);
/* From one kernel to the next: the host hands one over every launch_us, the GPU needs busy_us for
   each.  With a queue between them the slower one decides, without one their times add up (5.1,
   latency hiding). */
DXPU_API double dxpu_model_period_us(double busy_us, double launch_us, bool queued);

/* ==== 4  Workloads ============================================================================ */

/* A step of a workload as a profile of the native system shows it. */
typedef struct dxpu_model_work {
    double kernels;                 /* and memsets */
    double kernel_us;               /* mean duration */
    double launch_us;               /* the host's time for each launch [0: never the limit] */
    bool queued;                    /* launches are asynchronous [true] */
    double htod_copies, htod_bytes; /* how many, bytes of each; waited for */
    double dtoh_copies, dtoh_bytes;
    /* In the kernels' stream: kernels wait for them, the host does not. */
    double ordered_htod_copies, ordered_htod_bytes, ordered_dtoh_copies, ordered_dtoh_bytes;
    double hidden_copies; /* ahead of their use: a round trip each, however long ... */
    double hidden_bytes;  /* ... as long as all their data to the device fit into the step */
    double shared_us;     /* native time spent on traffic that other GPUs' slows (crowding) */
    double shared_to_device_gbs, shared_to_host_gbs; /* what one GPU alone moves then */
} dxpu_model_work;

DXPU_API void dxpu_model_work_default(dxpu_model_work *w);
/* Time of the step. */
DXPU_API double dxpu_model_work_us(const dxpu_model *m, const dxpu_model_work *w, bool pooled);
/* Native time / pooled time: the "performance" of 3.4 and all of section 4.  1 without work. */
DXPU_API double dxpu_model_performance(const dxpu_model *m, const dxpu_model_work *w);
/* The longest round trip that keeps this share (Figure 4 read backwards), to a nanosecond, from
   rtt_native_us to max_us: max_us when all do, 0 when none does. */
DXPU_API double dxpu_model_rtt_for(const dxpu_model *m, const dxpu_model_work *w,
                                   double performance, double max_us);
/* The same of anything that loses by a longer round trip. */
typedef double dxpu_model_keeps(const dxpu_model *m, const void *what);
DXPU_API double dxpu_model_rtt_where(const dxpu_model *m, dxpu_model_keeps *keeps, const void *what,
                                     double performance, double max_us);

/* ==== 5  Traces ===============================================================================
   The operations of one stream of a native run, in order, each with its start and duration: gaps
   between them show where the GPU waited for the host, and take up what pooling adds. */

enum { DXPU_MODEL_KERNEL, DXPU_MODEL_HTOD, DXPU_MODEL_DTOH, DXPU_MODEL_KINDS };

typedef struct dxpu_model_replay {
    double end_us;  /* of the last operation, native */
    double late_us; /* by which it ends later when pooled */
    bool waited;    /* the host waited for it before it went on */
    bool begun;
} dxpu_model_replay;

DXPU_API void dxpu_model_replay_init(dxpu_model_replay *r);
/* The next operation.  Copies to the host are taken as waited for: what follows cannot have been
   queued before. */
DXPU_API void dxpu_model_replay_add(const dxpu_model *m, dxpu_model_replay *r, unsigned kind,
                                    double start_us, double duration_us, double bytes);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_MODEL_H_INCLUDED */

#if defined(DXPU_MODEL_IMPLEMENTATION) && !defined(DXPU_MODEL_IMPLEMENTED)
#define DXPU_MODEL_IMPLEMENTED

#ifdef __cplusplus
extern "C" {
#endif

static inline double dxpui_model_min(double a, double b)
{
    return a < b ? a : b;
}

static inline double dxpui_model_max(double a, double b)
{
    return a > b ? a : b;
}

/* ==== 1'  The system ========================================================================== */

DXPU_API void dxpu_model_default(dxpu_model *m)
{
    m->rtt_native_us = 1.2;
    m->rtt_us = 6.8;
    m->tags = 140;
    m->mrs_bytes = 128;
    m->mps_bytes = 128;
    m->completion_bytes = 64;
    m->push_bytes = 64;
    m->generation = 3;
    m->lanes = 16;
    m->dllp_share = 0.08;
    m->proxy_bytes = 8;
    m->network_gbit_s = 200;
    m->mtu_bytes = 1500;
    m->gpus = 1;
    m->proxies = 1;
    m->reads_per_kernel = 1.5;
}

static inline bool dxpui_model_size(uint32_t bytes, uint32_t least)
{
    return bytes >= least && bytes <= 4096;
}

DXPU_API int dxpu_model_check(const dxpu_model *m)
{
    bool times = m->rtt_native_us > 0 && m->rtt_us >= m->rtt_native_us && m->rtt_us <= 1e9;
    bool sizes = dxpui_model_size(m->mrs_bytes, 64) && dxpui_model_size(m->mps_bytes, 64) &&
                 dxpui_model_size(m->completion_bytes, 64) && dxpui_model_size(m->push_bytes, 16);
    bool links = dxpu_model_lanes_gbs(m->generation, m->lanes) > 0 && m->dllp_share >= 0 &&
                 m->dllp_share < 1 && m->proxy_bytes <= 4096 && m->network_gbit_s > 0 &&
                 m->mtu_bytes >= 1280 && m->mtu_bytes <= 65535;
    bool counts = m->tags >= 1 && m->tags <= 65536 && m->gpus >= 1 && m->gpus <= 65536 &&
                  m->proxies >= 1 && m->proxies <= 65536 && m->reads_per_kernel >= 0;
    return times && sizes && links && counts ? DXPU_OK : DXPU_E_ARG;
}

DXPU_API double dxpu_model_rtt_delta_us(const dxpu_model *m)
{
    return m->rtt_us - m->rtt_native_us;
}

/* ==== 2'  Throughput ========================================================================== */

/* Start and end symbols, sequence number and LCRC; headers of three and of four dwords. */
#define DXPUI_MODEL_FRAMING_BYTES    8.0
#define DXPUI_MODEL_COMPLETION_BYTES 12.0
#define DXPUI_MODEL_WRITE_BYTES      16.0

/* Of a TLP in a frame: the TLP record's own header, its CRC, the payload record's header.  The end
   of a frame cuts most TLPs in two, which takes one payload record more. */
#define DXPUI_MODEL_RECORD_BYTES 16.0
#define DXPUI_MODEL_SPLIT_BYTES  4.0

DXPU_API double dxpu_model_equation1_gbs(double tags, double mrs_bytes, double rtt_us)
{
    return tags * mrs_bytes / rtt_us / 1e3;
}

DXPU_API double dxpu_model_equation1_tags(double gbs, double mrs_bytes, double rtt_us)
{
    return gbs * 1e3 * rtt_us / mrs_bytes;
}

DXPU_API double dxpu_model_lanes_gbs(uint32_t generation, uint32_t lanes)
{
    static const double lane_gbit_s[] = {
        0, 2.5 * 8 / 10, 5.0 * 8 / 10, 8.0 * 128 / 130, 16.0 * 128 / 130, 32.0 * 128 / 130
    };
    return generation <= 5 && lanes <= 32 ? lane_gbit_s[generation] * lanes / 8 : 0;
}

DXPU_API double dxpu_model_network_gbs(const dxpu_model *m, double payload_bytes,
                                       double header_bytes)
{
    double body = m->mtu_bytes - DXPU_MODEL_UDP_BYTES - DXPU_FRAME_FULL_BYTES -
                  DXPU_FRAME_CRC_BYTES - DXPUI_MODEL_SPLIT_BYTES;
    double records = payload_bytes + header_bytes + DXPUI_MODEL_RECORD_BYTES;
    return m->network_gbit_s / 8 * body / (m->mtu_bytes + DXPU_MODEL_ETHERNET_BYTES) *
           payload_bytes / records;
}

DXPU_API double dxpu_model_link_gbs(const dxpu_model *m, bool pooled, double payload_bytes,
                                    double header_bytes)
{
    double raw = dxpu_model_lanes_gbs(m->generation, m->lanes) * (1 - m->dllp_share);
    double tlp = payload_bytes + header_bytes + DXPUI_MODEL_FRAMING_BYTES;
    if (!pooled)
        return raw * payload_bytes / tlp;
    return dxpui_model_min(raw * payload_bytes / (tlp + m->proxy_bytes),
                           dxpu_model_network_gbs(m, payload_bytes, header_bytes));
}

DXPU_API double dxpu_model_read_gbs(const dxpu_model *m, bool pooled)
{
    double rtt = pooled ? m->rtt_us : m->rtt_native_us;
    double unit = dxpui_model_min(m->completion_bytes, m->mrs_bytes);
    return dxpui_model_min(dxpu_model_equation1_gbs(m->tags, m->mrs_bytes, rtt),
                           dxpu_model_link_gbs(m, pooled, unit, DXPUI_MODEL_COMPLETION_BYTES));
}

DXPU_API double dxpu_model_write_gbs(const dxpu_model *m, bool pooled)
{
    return dxpu_model_link_gbs(m, pooled, m->mps_bytes, DXPUI_MODEL_WRITE_BYTES);
}

DXPU_API double dxpu_model_push_gbs(const dxpu_model *m, bool pooled)
{
    return dxpu_model_link_gbs(m, pooled, m->push_bytes, DXPUI_MODEL_WRITE_BYTES);
}

DXPU_API double dxpu_model_all_gbs(const dxpu_model *m, double one_gbs)
{
    double most = dxpu_model_link_gbs(m, true, m->completion_bytes, DXPUI_MODEL_COMPLETION_BYTES);
    return dxpui_model_min(one_gbs * m->gpus, most * m->proxies);
}

DXPU_API double dxpu_model_sharing(const dxpu_model *m, double to_device_gbs, double to_host_gbs)
{
    double gpus = (double)m->gpus / m->proxies, write = dxpu_model_write_gbs(m, true);
    double read = dxpu_model_link_gbs(m, true, m->completion_bytes, DXPUI_MODEL_COMPLETION_BYTES);
    double down = gpus * dxpui_model_min(to_device_gbs, dxpu_model_read_gbs(m, true)) / read;
    double up = gpus * dxpui_model_min(to_host_gbs, write) / write;
    return gpus > 1 ? dxpui_model_max(1, dxpui_model_max(down, up)) : 1;
}

DXPU_API double dxpu_model_crowding(const dxpu_model *m, double to_device_gbs, double to_host_gbs)
{
    double others = (double)m->gpus / m->proxies - 1, one;
    one = dxpui_model_min(to_device_gbs, dxpu_model_read_gbs(m, true)) +
          dxpui_model_min(to_host_gbs, dxpu_model_write_gbs(m, true));
    return dxpui_model_max(1 + dxpui_model_max(others, 0) * one / (m->network_gbit_s / 8),
                           dxpu_model_sharing(m, to_device_gbs, to_host_gbs));
}

/* ==== 3'  Times =============================================================================== */

DXPU_API double dxpu_model_read_us(double rtt_us, double tags_gbs, double link_gbs, double bytes)
{
    return dxpui_model_max(rtt_us + bytes / (link_gbs * 1e3), bytes / (tags_gbs * 1e3));
}

DXPU_API double dxpu_model_htod_us(const dxpu_model *m, bool pooled, double bytes)
{
    double rtt = pooled ? m->rtt_us : m->rtt_native_us;
    double unit = dxpui_model_min(m->completion_bytes, m->mrs_bytes);
    double link = dxpu_model_link_gbs(m, pooled, unit, DXPUI_MODEL_COMPLETION_BYTES);
    double tags = dxpu_model_equation1_gbs(m->tags, m->mrs_bytes, rtt);
    return dxpu_model_read_us(rtt, tags, link, bytes);
}

DXPU_API double dxpu_model_dtoh_us(const dxpu_model *m, bool pooled, double bytes)
{
    double rtt = pooled ? m->rtt_us : m->rtt_native_us;
    return rtt / 2 + bytes / (dxpu_model_write_gbs(m, pooled) * 1e3);
}

DXPU_API double dxpu_model_push_us(const dxpu_model *m, bool pooled, double bytes)
{
    double rtt = pooled ? m->rtt_us : m->rtt_native_us;
    return rtt / 2 + bytes / (dxpu_model_push_gbs(m, pooled) * 1e3);
}

DXPU_API double dxpu_model_kernel_delta_us(const dxpu_model *m)
{
    return m->reads_per_kernel * dxpu_model_rtt_delta_us(m);
}

DXPU_API double dxpu_model_period_us(double busy_us, double launch_us, bool queued)
{
    return queued ? dxpui_model_max(busy_us, launch_us) : busy_us + launch_us;
}

/* ==== 4'  Workloads =========================================================================== */

DXPU_API void dxpu_model_work_default(dxpu_model_work *w)
{
    memset(w, 0, sizeof *w); /* all bits 0 is 0.0 wherever IEEE 754 is */
    w->queued = true;
}

DXPU_API double dxpu_model_work_us(const dxpu_model *m, const dxpu_model_work *w, bool pooled)
{
    double delta = pooled ? dxpu_model_kernel_delta_us(m) : 0;
    double busy = w->kernels * (w->kernel_us + delta), us;
    busy += w->ordered_htod_copies * dxpu_model_htod_us(m, pooled, w->ordered_htod_bytes);
    busy += w->ordered_dtoh_copies * dxpu_model_dtoh_us(m, pooled, w->ordered_dtoh_bytes);
    us = dxpu_model_period_us(busy, w->kernels * w->launch_us, w->queued);
    us += pooled ? w->hidden_copies * dxpu_model_rtt_delta_us(m) : 0;
    us += w->htod_copies * dxpu_model_htod_us(m, pooled, w->htod_bytes);
    us += w->dtoh_copies * dxpu_model_dtoh_us(m, pooled, w->dtoh_bytes);
    if (pooled)
        us += w->shared_us *
              (dxpu_model_crowding(m, w->shared_to_device_gbs, w->shared_to_host_gbs) - 1);
    return dxpui_model_max(us, w->hidden_bytes / (dxpu_model_read_gbs(m, pooled) * 1e3));
}

DXPU_API double dxpu_model_performance(const dxpu_model *m, const dxpu_model_work *w)
{
    double pooled = dxpu_model_work_us(m, w, true);
    return pooled > 0 ? dxpu_model_work_us(m, w, false) / pooled : 1;
}

DXPU_API double dxpu_model_rtt_where(const dxpu_model *m, dxpu_model_keeps *keeps, const void *what,
                                     double performance, double max_us)
{
    dxpu_model at = *m;
    double low = m->rtt_native_us, high = max_us;
    at.rtt_us = low;
    if (keeps(&at, what) < performance)
        return 0;
    at.rtt_us = high;
    if (high <= low || keeps(&at, what) >= performance)
        return high;
    while (high - low > 1e-3) {
        at.rtt_us = (low + high) / 2;
        if (keeps(&at, what) >= performance)
            low = at.rtt_us;
        else
            high = at.rtt_us;
    }
    return low;
}

static inline double dxpui_model_keeps(const dxpu_model *m, const void *work)
{
    return dxpu_model_performance(m, (const dxpu_model_work *)work);
}

DXPU_API double dxpu_model_rtt_for(const dxpu_model *m, const dxpu_model_work *w,
                                   double performance, double max_us)
{
    return dxpu_model_rtt_where(m, dxpui_model_keeps, w, performance, max_us);
}

/* ==== 5'  Traces ============================================================================== */

DXPU_API void dxpu_model_replay_init(dxpu_model_replay *r)
{
    memset(r, 0, sizeof *r);
}

DXPU_API void dxpu_model_replay_add(const dxpu_model *m, dxpu_model_replay *r, unsigned kind,
                                    double start_us, double duration_us, double bytes)
{
    double delta = dxpu_model_kernel_delta_us(m), gap = r->begun ? start_us - r->end_us : 0;
    if (kind == DXPU_MODEL_HTOD)
        delta = dxpu_model_htod_us(m, true, bytes) - dxpu_model_htod_us(m, false, bytes);
    else if (kind == DXPU_MODEL_DTOH)
        delta = dxpu_model_dtoh_us(m, true, bytes) - dxpu_model_dtoh_us(m, false, bytes);
    if (gap > 0 && !r->waited) /* the GPU was idle: being late costs nothing yet */
        r->late_us = dxpui_model_max(r->late_us - gap, 0);
    r->late_us += delta;
    r->end_us = dxpui_model_max(r->end_us, start_us + duration_us);
    r->waited = kind == DXPU_MODEL_DTOH;
    r->begun = true;
}

#ifdef __cplusplus
}
#endif
#endif /* DXPU_MODEL_IMPLEMENTATION */
