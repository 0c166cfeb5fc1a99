/* virtio_blk.h - a virtio block device, in a file, a block device or memory
   SPDX-License-Identifier: MIT

   Virtual I/O Device 1.2, 5.2: reads, writes, flush, discard, write zeroes, its serial number,
   several queues.  Its data go through the transport of virtio.h, in pieces, and its medium is that
   of block_store.h, accessed by jobs. */
#ifndef VIRTIO_BLK_H_INCLUDED
#define VIRTIO_BLK_H_INCLUDED

#include "device.h"

enum { VIRTIO_BLK_VENDOR = 0x1af4, VIRTIO_BLK_DEVICE = 0x1042, VIRTIO_BLK_QUEUES = 4 };

extern const device_kind virtio_blk_kind;

#endif /* VIRTIO_BLK_H_INCLUDED */
