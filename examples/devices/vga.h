/* vga.h - a display adapter compatible with QEMU's bochs-display
   SPDX-License-Identifier: MIT

   Linux's bochs driver and the Bochs VBE drivers of other systems run it.  BAR 0 is a framebuffer
   of 16 MB, BAR 2 a window with EDID and registers (QEMU's specification "standard-vga"); no legacy
   VGA, no interrupts.  What the registers show of the framebuffer is a picture, see device.h. */
#ifndef VGA_H_INCLUDED
#define VGA_H_INCLUDED

#include "device.h"

enum {
    VGA_VENDOR = 0x1234,
    VGA_DEVICE = 0x1111,
    VGA_CAP_PCIE = 0x80, /* where the PCI Express capability stands */
    VGA_FRAME_BYTES = 16 << 20,
    VGA_WINDOW_BYTES = 4096
};

extern const device_kind vga_kind;

#endif /* VGA_H_INCLUDED */
