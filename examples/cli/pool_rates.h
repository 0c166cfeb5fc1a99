/* pool_rates.h - TLPs a second, from the counters among the manager's metrics
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_POOL_RATES_H
#define DXPU_CLI_POOL_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pool_sample {
    uint64_t key; /* node, slot, direction */
    uint64_t value, changed_ms;
    double rate; /* < 0: not known yet */
} pool_sample;

typedef struct pool_rates {
    pool_sample *sample; /* by key */
    size_t count, room;
} pool_rates;

/* What the metrics say now.  The manager asks proxies every few seconds, so a rate is that between
   the last two changes of its counter, and 0 when there is none for long. */
void pool_rates_read(pool_rates *r, const char *metrics, uint64_t now_ms);
/* Of a slot of a node; < 0: not known. */
double pool_rate(const pool_rates *r, uint64_t node, uint64_t slot, bool from_device);
void pool_rates_free(pool_rates *r);

#endif
