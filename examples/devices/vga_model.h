/* vga_model.h - the display adapter's object and registers; part of vga.c
   SPDX-License-Identifier: MIT */
#ifndef VGA_MODEL_H_INCLUDED
#define VGA_MODEL_H_INCLUDED

#include "vga.h"
#include "edid.h"
#include "pages.h"
#include "pci.h"

enum { BAR_FRAME = 0, BAR_WINDOW = 2 };

enum { /* display registers of 16 bits */
       REG_ID = 0,
       REG_WIDTH = 1,
       REG_HEIGHT = 2,
       REG_BITS = 3, /* a pixel */
       REG_ENABLE = 4,
       REG_LINE = 6, /* pixels from one line to the next */
       REG_LEFT = 8,
       REG_TOP = 9,
       REG_MEMORY = 10, /* in units of 64 KB */
       REGS = 11
};

#define VGA_ID           0xb0c5u /* the fifth version of the interface */
#define VGA_BYTES_BIG    0xbebebebeu
#define VGA_BYTES_LITTLE 0x1e1e1e1eu

#define VGA_COUNTERS(X)                                                                            \
    X(frame_reads)                                                                                 \
    X(frame_writes)                                                                                \
    X(frame_write_bytes)                                                                           \
    X(register_reads)                                                                              \
    X(register_writes)                                                                             \
    X(config)                                                                                      \
    X(messages)                                                                                    \
    X(completions_ignored)                                                                         \
    X(unsupported)                                                                                 \
    X(poisoned)                                                                                    \
    X(resets)                                                                                      \
    X(pictures)

typedef struct vga {
    pci_function f;
    pages frame;
    uint16_t reg[REGS];
    bool big_endian; /* pixels */
    uint8_t edid[EDID_BYTES];
#define VGA_FIELD(name) uint64_t name;
    struct {
        VGA_COUNTERS(VGA_FIELD)
    } count;
#undef VGA_FIELD
} vga;

#endif /* VGA_MODEL_H_INCLUDED */
