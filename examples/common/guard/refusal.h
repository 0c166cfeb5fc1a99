/* refusal.h - the answer to a request that cannot be served
   SPDX-License-Identifier: MIT */
#ifndef REFUSAL_H_INCLUDED
#define REFUSAL_H_INCLUDED

#include "dxpu.h"

enum { REFUSAL_BYTES = 12 };

/* A completion with `status` (DXPU_CPL_UR, _CA) from function 00:00.0 for a non-posted request,
   also for one that breaks a rule: its requester waits all the same.  Only the header is looked at.
   Empty when that cannot be read, or is not a request's. */
dxpu_bytes refusal_encode(dxpu_bytes request, uint8_t status, uint8_t out[REFUSAL_BYTES]);
/* One with Unsupported Request for a request that a table of tags had. */
dxpu_bytes refusal_of_tracked(const dxpu_request *r, uint8_t out[REFUSAL_BYTES]);

#endif /* REFUSAL_H_INCLUDED */
