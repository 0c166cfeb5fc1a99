/* virtio_net.h - a virtio network adapter in front of a tap interface or a descriptor
   SPDX-License-Identifier: MIT

   Virtual I/O Device 1.2, 5.1: checksums and segmentation left to the other end, merged receive
   buffers, two pairs of queues, filters by address and VLAN.  Its frames go through net_port.h.
   Buffers for what is received are known beforehand, so a frame reaches the driver without a round
   trip; frames that are sent are read in parallel and leave in the order of their queue. */
#ifndef VIRTIO_NET_H_INCLUDED
#define VIRTIO_NET_H_INCLUDED

#include "device.h"

enum { VIRTIO_NET_VENDOR = 0x1af4, VIRTIO_NET_DEVICE = 0x1041, VIRTIO_NET_CLASS = 0x020000 };

extern const device_kind virtio_net_kind;

#endif /* VIRTIO_NET_H_INCLUDED */
