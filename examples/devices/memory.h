/* memory.h - a slot full of memory: a PCIe endpoint with one 64-bit prefetchable BAR
   SPDX-License-Identifier: MIT

   Answers configuration requests on a type 0 header with a PCI Express capability, memory reads
   with completions split by Read Completion Boundary and Max_Payload_Size, takes memory writes with
   byte enables, does the three atomic operations and deferrable writes.  What it does not have is
   answered with Unsupported Request. */
#ifndef MEMORY_H_INCLUDED
#define MEMORY_H_INCLUDED

#include "device.h"

enum {
    MEMORY_VENDOR = 0x1af4, /* the range 10f0..10ff of this vendor is open to experiments */
    MEMORY_DEVICE = 0x10f0,
    MEMORY_CAP_PCIE = 0x40 /* where the PCI Express capability stands */
};

extern const device_kind memory_kind;

#endif /* MEMORY_H_INCLUDED */
