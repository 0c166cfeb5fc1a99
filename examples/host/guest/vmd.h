/* vmd.h - configuration space of the PCI function that a guest sees: like an Intel VMD, MSI bypass
   SPDX-License-Identifier: MIT

   The guest's vmd driver takes BAR0 as the configuration space (ECAM) of a PCIe hierarchy of its
   own, BAR2 and BAR4 as that hierarchy's memory windows.  In the bypass form the interrupts of the
   devices behind it are ordinary messages. */
#ifndef VMD_H_INCLUDED
#define VMD_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>

enum {
    VMD_VECTORS = 32,           /* of its own MSI-X, unused in bypass mode */
    VMD_BAR4_RESERVED = 0x2000, /* MSI-X table and pending bits; windows of children begin above */
    VMD_CONFIG_BYTES = 256
};

typedef struct vmd {
    uint64_t bar_bytes[6]; /* 0, 2 and 4 are used */
    uint8_t cfg[VMD_CONFIG_BYTES];
} vmd;

/* buses: of the hierarchy, 1 MB of BAR0 each; BAR sizes are powers of two, BAR2 at most 2 GB. */
void vmd_init(vmd *v, unsigned buses, uint64_t bar2_bytes, uint64_t bar4_bytes);
/* Registers as after power-up. */
void vmd_reset(vmd *v);
/* offset + bytes lie within VMD_CONFIG_BYTES. */
void vmd_read(const vmd *v, unsigned offset, uint8_t *data, unsigned bytes);
void vmd_write(vmd *v, unsigned offset, const uint8_t *data, unsigned bytes);
/* Where the guest has put BAR 2 or 4, as devices behind it see it. */
uint64_t vmd_bar(const vmd *v, unsigned bar);

#endif /* VMD_H_INCLUDED */
