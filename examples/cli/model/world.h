/* world.h - hosts, proxies, links and GPUs in virtual time, carrying real TLPs
   SPDX-License-Identifier: MIT

   What the equations of bindings/model say, happening: GPUs with dxpu_tags issue read requests,
   PCIe links with dxpu_credits carry them, a dxpu_channel for each GPU takes them through the
   network, a root complex answers.  Nothing is random; two runs of a scene are the same run. */
#ifndef PERF_WORLD_H
#define PERF_WORLD_H

#include "dxpu_model.h"

/* Who moves what. */
enum {
    PERF_READ,   /* each GPU reads host memory, as fast as its tags allow: copies to the device */
    PERF_WRITE,  /* each GPU writes host memory: copies to the host */
    PERF_PUSH,   /* the host writes the memory of the GPUs (paper, 5.1) */
    PERF_PEER,   /* GPU 0 writes the memory of GPU 1, in another box when pooled */
    PERF_KERNELS /* the host launches kernels on GPU 0 */
};

typedef struct perf_scene {
    dxpu_model m; /* gpus: 1..PERF_GPUS_MAX, proxies: 1 */
    unsigned traffic;
    bool pooled;
    uint32_t more_hops;          /* switches between them, beyond those in m.rtt_us */
    double hop_us;               /* of each, one way */
    uint32_t window_frames;      /* that a channel has under way, a power of two */
    uint32_t posted_bytes;       /* of writes that a proxy stores until they are taken */
    double conversion_share;     /* of what proxies add: in the proxies, not on the network */
    uint32_t round_trips;        /* to measure over, after as many as to settle in */
    double kernel_us, launch_us; /* of PERF_KERNELS: duration with the native round trips in it */
} perf_scene;

enum { PERF_GPUS_MAX = 16 };

/* Times of one read on an idle system, from its request. */
enum {
    PERF_AT_BOX,
    PERF_SENT, /* converted, on the network */
    PERF_CAME, /* off it */
    PERF_AT_HOST,
    PERF_AT_ROOT,
    PERF_AT_HOST_AGAIN,
    PERF_SENT_AGAIN,
    PERF_CAME_AGAIN,
    PERF_AT_BOX_AGAIN,
    PERF_AT_GPU
};
enum { PERF_STAMPS = PERF_AT_GPU + 1 };

typedef struct perf_result {
    double gbs;                   /* payload that arrived, all GPUs */
    double rtt_us;                /* of one read on the idle system; stamps: on its way */
    double stamp_us[PERF_STAMPS]; /* 0: not passed, native */
    double link_share;            /* of the time, the busiest PCIe link carried something */
    double period_us;             /* from kernel to kernel */
    uint64_t tlps, frames, frame_bytes, sent_again;
} perf_result;

void perf_scene_default(perf_scene *sc);
/* DXPU_OK; E_ARG for a scene out of range, or a round trip shorter than its links take; E_FULL
   without memory. */
int perf_run(const perf_scene *sc, perf_result *out);

#endif
