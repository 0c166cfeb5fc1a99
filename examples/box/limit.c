/* limit.c - see limit.h
   SPDX-License-Identifier: MIT */
#include "limit.h"

enum { TLPS, BYTES, KINDS };
enum { BURST_NS = 10000000, PART_NS = 1000000, BILLION = 1000000000 };

static int64_t full(const limit *l, unsigned k)
{
    return (int64_t)(l->rate[k] * BURST_NS);
}

void limit_init(limit *l, uint64_t tlps, uint64_t bytes, uint64_t now_ns)
{
    l->rate[TLPS] = tlps < LIMIT_RATE_MAX ? tlps : LIMIT_RATE_MAX;
    l->rate[BYTES] = bytes < LIMIT_RATE_MAX ? bytes : LIMIT_RATE_MAX;
    for (unsigned k = 0; k < KINDS; k++)
        l->level[k] = full(l, k);
    l->at_ns = now_ns;
    l->waits = false;
}

bool limit_is_on(const limit *l)
{
    return l->rate[TLPS] || l->rate[BYTES];
}

uint64_t limit_next_ns(limit *l, uint64_t now)
{
    uint64_t next = now;
    for (unsigned k = 0; k < KINDS; k++) {
        uint64_t rate = l->rate[k], passed = now - l->at_ns, at;
        int64_t part = (int64_t)(rate * PART_NS);
        if (!rate)
            continue;
        while (passed > 0 && l->level[k] < full(l, k)) { /* a debt may take many bursts */
            uint64_t step = passed < BURST_NS ? passed : BURST_NS;
            l->level[k] += (int64_t)(step * rate);
            passed -= step;
        }
        if (l->level[k] > full(l, k))
            l->level[k] = full(l, k);
        at = now;
        if (l->level[k] <= 0 || (l->waits && l->level[k] < part))
            at += (uint64_t)(part - l->level[k]) / rate + 1;
        next = at > next ? at : next;
    }
    l->at_ns = now;
    l->waits = next > now;
    return next;
}

void limit_take(limit *l, dxpu_bytes tlp)
{
    dxpu_tlp t;
    if (!limit_is_on(l) || dxpu_tlp_decode_header(tlp, &t) != DXPU_OK)
        return;
    l->level[TLPS] -= BILLION;
    l->level[BYTES] -= (int64_t)t.length_dw * 4 * BILLION;
}
