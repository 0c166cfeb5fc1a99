/* kinds.h - all device models, for the programs that offer them
   SPDX-License-Identifier: MIT */
#ifndef KINDS_H_INCLUDED
#define KINDS_H_INCLUDED

#include "eptest.h"
#include "memory.h"
#include "nvme.h"
#include "vga.h"
#include "virtio_blk.h"
#include "virtio_gpu.h"
#include "virtio_net.h"

/* X(name in C, name for users) of each, in the order of their numbers. */
#define DEVICE_KINDS(X, BETWEEN)                                                                   \
    X(memory, "memory")                                                                            \
    BETWEEN X(nvme, "nvme") BETWEEN X(vga, "vga") BETWEEN X(eptest, "eptest") BETWEEN X(           \
        virtio_blk, "virtio-blk") BETWEEN                                                          \
    X(virtio_gpu, "virtio-gpu") BETWEEN                                                            \
    X(virtio_net, "virtio-net")
#define DEVICE_KIND_NAME(kind, name) name
#define DEVICE_KIND(kind, name)      &kind##_kind
#define DEVICE_KIND_COMMA            ,
/* The initializer of an array of const device_kind *. */
#define DEVICE_KIND_LIST                                                                           \
    {                                                                                              \
        DEVICE_KINDS(DEVICE_KIND, DEVICE_KIND_COMMA)                                               \
    }

#endif /* KINDS_H_INCLUDED */
