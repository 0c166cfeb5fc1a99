/* bars.c - see bars.h
   SPDX-License-Identifier: MIT */
#include "bars.h"

#include <string.h>

void bars_decode(const uint32_t sized[BARS_COUNT], bars_bar out[BARS_COUNT])
{
    memset(out, 0, BARS_COUNT * sizeof *out);
    for (unsigned i = 0; i < BARS_COUNT; i++) {
        bars_bar *b = &out[i];
        uint32_t low = sized[i] & ~(uint32_t)0xf;
        if (sized[i] & BARS_IO) /* there is no window for it */
            continue;
        b->wide = (sized[i] & BARS_TYPE) == BARS_WIDE && i + 1 < BARS_COUNT;
        b->mask = b->wide ? (uint64_t)sized[i + 1] << 32 | low : 0xffffffff00000000u | low;
        b->bytes = b->wide || low ? ~b->mask + 1 : 0;
        b->prefetchable = b->wide && (sized[i] & BARS_PREFETCHABLE);
        i += b->wide;
    }
}
