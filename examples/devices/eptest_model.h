/* eptest_model.h - the endpoint test function's object; part of eptest.c
   SPDX-License-Identifier: MIT */
#ifndef EPTEST_MODEL_H_INCLUDED
#define EPTEST_MODEL_H_INCLUDED

#include "eptest.h"
#include "function.h"
#include "pages.h"

enum { CHUNK_BYTES = 64 << 10 }; /* of a transfer, on its way through the device */

#define EPTEST_COUNTERS(X)                                                                         \
    X(bar_reads)                                                                                   \
    X(bar_writes)                                                                                  \
    X(commands)                                                                                    \
    X(commands_failed)                                                                             \
    X(commands_unknown)                                                                            \
    X(interrupts_impossible)                                                                       \
    X(resets)

/* A read, write or copy under way.  The registers were looked at when it began. */
typedef struct transfer {
    uint32_t command; /* 0: none */
    uint32_t irq_type, irq_number;
    uint64_t source, destination;
    uint32_t left;         /* bytes not yet in a chunk */
    uint32_t filled, sent; /* bytes of the chunk there, and on their way to the host */
    uint32_t crc;
    fn_fetch fetch;
    bool fetching;
    uint8_t chunk[CHUNK_BYTES];
} transfer;

typedef struct eptest {
    fn fn;
    pages memory[PCI_BARS]; /* of the BARs; registers are what BAR0's begins with */
    uint64_t random;
    transfer job;
    uint32_t push; /* rule for the source of the last command that read */
#define EPTEST_FIELD(name) uint64_t name;
    struct {
        EPTEST_COUNTERS(EPTEST_FIELD)
    } count;
#undef EPTEST_FIELD
} eptest;

#endif /* EPTEST_MODEL_H_INCLUDED */
