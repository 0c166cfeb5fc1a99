/* vectors.h - finds and enables the MSI-X of a function that was enumerated, one request at a time
   SPDX-License-Identifier: MIT */
#ifndef VECTORS_H_INCLUDED
#define VECTORS_H_INCLUDED

#include "dxpu.h"

typedef struct vectors {
    unsigned step;
    uint64_t bar0, other; /* where BAR 0 is, and where another one with the table is placed */
    uint8_t at;           /* offset of the capability looked at */
    unsigned hops;
    uint32_t table;   /* as the capability has it */
    unsigned count;   /* 0: the function has none that can be used */
    uint64_t address; /* of the table */
    bool wide;        /* its BAR has 64 bits */
    const char *why;  /* a request failed, so that there are none; NULL: none did */
    uint64_t unready_ns;
} vectors;

/* other: a multiple of what any BAR may have; below 2^32 one is placed at 2^31. */
void vectors_start(vectors *v, uint64_t bar0, uint64_t other);
/* The next configuration request to `target`, without its tag.  payload is the caller's 4 bytes.
   False: all is done, and count and address say what was found. */
bool vectors_request(const vectors *v, uint16_t target, dxpu_tlp *out, uint8_t payload[4]);
/* The completion of a request; NULL: none came, and it is asked again, as long as enumerate.h
   does. */
void vectors_answer(vectors *v, const dxpu_tlp *cpl, uint64_t now_ns);

#endif /* VECTORS_H_INCLUDED */
