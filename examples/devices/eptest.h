/* eptest.h - the PCI endpoint test function, which Linux's pci_endpoint_test drives
   SPDX-License-Identifier: MIT

   BAR0 holds the registers of the test function, as the kernel's pci-epf-test lays them out, and
   MSI-X; BAR1 to BAR3 are memory, BAR4 is memory of any size, 64-bit and prefetchable, of which
   only what is written takes room.  Commands raise interrupts, and read, write or copy memory of
   the host with CRC-32 checksums. */
#ifndef EPTEST_H_INCLUDED
#define EPTEST_H_INCLUDED

#include "device.h"

enum {
    EPTEST_VENDOR = 0x104c, /* the driver's table: registers in BAR0, no quirk of the kernel */
    EPTEST_DEVICE = 0xb500,
    EPTEST_MSI_LOG2 = 5, /* 32 vectors */
    EPTEST_MSIX = 32,

    EPTEST_BAR0_BYTES = 0x2000,
    EPTEST_TABLE = 0x1000, /* MSI-X, in BAR0 */
    EPTEST_PBA = 0x1800,
    EPTEST_BAR1_BYTES = 0x1000,
    EPTEST_BAR2_BYTES = 0x2000,
    EPTEST_BAR3_BYTES = 0x4000,
    EPTEST_BAR4_BYTES = 0x10000 /* unless set otherwise */
};

enum { /* registers */
       EPTEST_MAGIC = 0x00,
       EPTEST_COMMAND = 0x04,
       EPTEST_STATUS = 0x08,
       EPTEST_SOURCE = 0x0c,      /* 64 bits */
       EPTEST_DESTINATION = 0x14, /* 64 bits */
       EPTEST_SIZE = 0x1c,
       EPTEST_CHECKSUM = 0x20,
       EPTEST_IRQ_TYPE = 0x24,
       EPTEST_IRQ_NUMBER = 0x28, /* 1.. */
       EPTEST_FLAGS = 0x2c,
       EPTEST_CAPS = 0x30
};

enum { /* EPTEST_COMMAND */
       EPTEST_RAISE_INTX = 0x01,
       EPTEST_RAISE_MSI = 0x02,
       EPTEST_RAISE_MSIX = 0x04,
       EPTEST_READ = 0x08, /* from host memory */
       EPTEST_WRITE = 0x10,
       EPTEST_COPY = 0x20
};

enum { /* EPTEST_STATUS */
       EPTEST_READ_SUCCESS = 0x001,
       EPTEST_READ_FAIL = 0x002,
       EPTEST_WRITE_SUCCESS = 0x004,
       EPTEST_WRITE_FAIL = 0x008,
       EPTEST_COPY_SUCCESS = 0x010,
       EPTEST_COPY_FAIL = 0x020,
       EPTEST_IRQ_RAISED = 0x040,
       EPTEST_SOURCE_INVALID = 0x080,
       EPTEST_DESTINATION_INVALID = 0x100
};

enum { EPTEST_IRQ_INTX, EPTEST_IRQ_MSI, EPTEST_IRQ_MSIX }; /* EPTEST_IRQ_TYPE */

/* EPTEST_CAPS: any alignment; MSI; MSI-X; no INTx */
enum { EPTEST_CAPS_VALUE = 0x7 };

extern const device_kind eptest_kind;

#endif /* EPTEST_H_INCLUDED */
