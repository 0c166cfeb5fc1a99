/* nvme.h - an NVMe 1.4 controller with one namespace, in a file or in memory
   SPDX-License-Identifier: MIT

   A PCIe endpoint that the stock drivers run.  Configuration space, DMA and MSI-X are those of
   function.h.  Parts:
     nvme_model.h      the object, shared by the parts
     nvme_access.c     accesses of them, which are jobs
     nvme_layout.c     what a host made of them, in a file
     nvme_queue.c      queues, completion entries, commands' life
     nvme_cmb.c        controller memory buffer
     nvme_transfer.c   data to and from the host, by PRP or SGL
     nvme_namespace.c  namespaces: identify, create, attach, format
     nvme_log.c        error log, asynchronous events, features
     nvme_admin.c      admin commands
     nvme_io.c         I/O commands
     nvme_subsystem.c  what controllers of a subsystem share
     nvme_reserve.c    reservations of its namespaces
     nvme_wipe.c       erasing all blocks
     nvme.c            registers, reset, the device_kind */
#ifndef NVME_H_INCLUDED
#define NVME_H_INCLUDED

#include "device.h"

/* The range 10f0..10ff of this vendor is open to experiments, and no driver has a quirk for it:
   the quirks of Linux's nvme driver go by the ids of products that need them. */
enum { NVME_VENDOR = 0x1af4, NVME_DEVICE = 0x10f1 };

extern const device_kind nvme_kind;

#endif /* NVME_H_INCLUDED */
