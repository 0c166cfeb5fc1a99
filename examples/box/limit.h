/* limit.h - how fast a device may send: TLPs and bytes a second, each a token bucket
   SPDX-License-Identifier: MIT

   Buckets hold 10 ms' worth.  A TLP leaves while neither is empty and takes what it costs, so that
   the largest one fits through the smallest bucket.  What may not leave waits until there is 1 ms'
   worth: one wake-up and a few frames for that, not a wake-up and a frame for each TLP. */
#ifndef LIMIT_H_INCLUDED
#define LIMIT_H_INCLUDED

#include "dxpu.h"

typedef struct limit {
    uint64_t rate[2]; /* TLPs, bytes a second; 0: no limit */
    int64_t level[2]; /* in billionths of a TLP, of a byte; below 0 there is a debt to wait for */
    uint64_t at_ns;   /* of the levels */
    bool waits;       /* for 1 ms' worth */
} limit;

/* The most that is a rate: refilling stays within 63 bits. */
#define LIMIT_RATE_MAX ((uint64_t)100000000000)

void limit_init(limit *l, uint64_t tlps, uint64_t bytes, uint64_t now_ns);
bool limit_is_on(const limit *l);
/* When the next TLP may leave: now_ns, or later. */
uint64_t limit_next_ns(limit *l, uint64_t now_ns);
/* It left: its payload, or what it asks for, counts. */
void limit_take(limit *l, dxpu_bytes tlp);

#endif /* LIMIT_H_INCLUDED */
