/* enumerate.h - what an operating system does with a new function, one request at a time
   SPDX-License-Identifier: MIT

   Identify it, size and place its first BAR, set Max_Payload_Size, enable memory and mastering. */
#ifndef ENUMERATE_H_INCLUDED
#define ENUMERATE_H_INCLUDED

#include "dxpu.h"

typedef struct enumerate {
    unsigned step;
    uint64_t address;   /* where the BAR is to be placed */
    uint32_t mps_wish;  /* 128..4096 */
    uint32_t id;        /* device and vendor */
    uint32_t low, high; /* BAR dwords as read after sizing */
    uint64_t bar_bytes; /* found */
    uint32_t mps_bytes; /* set */
    uint8_t capability; /* offset of the one looked at */
    unsigned hops;
    uint64_t unready_ns; /* since when the same request is not answered; 0: it was */
    const char *why;     /* set when it failed */
} enumerate;

enum { ENUMERATE_BDF = DXPU_BDF(1, 0, 0) };

void enumerate_start(enumerate *e, uint64_t address, uint32_t mps_wish);
/* The next configuration request, without its tag.  payload is the caller's 4 bytes.
   False when all is done, or failed: e->why. */
bool enumerate_request(enumerate *e, dxpu_tlp *out, uint8_t payload[4]);
/* True when the device is placed and enabled. */
bool enumerate_done(const enumerate *e);
/* The completion of a request, NULL when none came.  It is made again for 60 s. */
void enumerate_answer(enumerate *e, const dxpu_tlp *cpl, uint64_t now_ns);

#endif /* ENUMERATE_H_INCLUDED */
