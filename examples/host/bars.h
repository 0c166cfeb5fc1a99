/* bars.h - base address registers as they read after ones were written to them
   SPDX-License-Identifier: MIT

   Base Spec 7.5.1.2.1.  A 64-bit register consists of two: in the last one there is no other half,
   so that it can hold addresses below 4 GB alone, and is taken as a 32-bit one.  A register without
   a bit that can be written has no memory behind it. */
#ifndef BARS_H_INCLUDED
#define BARS_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>

enum { BARS_COUNT = 6 };
enum { /* bits of a register */
       BARS_IO = 0x1,
       BARS_TYPE = 0x6,
       BARS_WIDE = 0x4,
       BARS_PREFETCHABLE = 0x8
};

typedef struct bars_bar {
    uint64_t mask, bytes; /* bytes 0: none, I/O space, or the upper half of the one before */
    bool wide;            /* 64 bits, in two registers */
    bool prefetchable;    /* wide alone: where such a window is */
} bars_bar;

void bars_decode(const uint32_t sized[BARS_COUNT], bars_bar out[BARS_COUNT]);

#endif /* BARS_H_INCLUDED */
