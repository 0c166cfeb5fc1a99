/* virtio_gpu.h - a virtio display adapter: one scanout, a cursor, 2D resources
   SPDX-License-Identifier: MIT

   Virtual I/O Device 1.2, 5.7, with EDID and without 3D, blobs and UUIDs.  The driver keeps its
   pictures in its own memory and says which rectangle changed: those rows, and no others, are read
   by DMA into the device's copy.  What the scanout shows of it is a picture, see device.h. */
#ifndef VIRTIO_GPU_H_INCLUDED
#define VIRTIO_GPU_H_INCLUDED

#include "device.h"

enum { VIRTIO_GPU_VENDOR = 0x1af4, VIRTIO_GPU_DEVICE = 0x1050, VIRTIO_GPU_CLASS = 0x038000 };

extern const device_kind virtio_gpu_kind;

#endif /* VIRTIO_GPU_H_INCLUDED */
