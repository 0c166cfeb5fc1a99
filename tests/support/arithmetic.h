/* arithmetic.h - the larger of two times, and sequence numbers that wrap
   SPDX-License-Identifier: MIT */
#ifndef ARITHMETIC_H_INCLUDED
#define ARITHMETIC_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* a is ahead of b: by less than half of their range. */
static inline bool ahead32(uint32_t a, uint32_t b)
{
    uint32_t by = a - b;
    return by != 0 && by < 0x80000000u;
}

#endif /* ARITHMETIC_H_INCLUDED */
