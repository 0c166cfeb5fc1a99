/* memory_model.h - the memory device's object; part of memory.c
   SPDX-License-Identifier: MIT */
#ifndef MEMORY_MODEL_H_INCLUDED
#define MEMORY_MODEL_H_INCLUDED

#include "memory.h"
#include "pages.h"
#include "pci.h"

#define MEMORY_COUNTERS(X)                                                                         \
    X(reads)                                                                                       \
    X(writes)                                                                                      \
    X(atomics)                                                                                     \
    X(config)                                                                                      \
    X(messages)                                                                                    \
    X(completions_ignored)                                                                         \
    X(unsupported)                                                                                 \
    X(writes_dropped)                                                                              \
    X(poisoned)                                                                                    \
    X(resets)                                                                                      \
    X(events)

typedef struct memory {
    pci_function f;
    pages store;
#define MEMORY_FIELD(name) uint64_t name;
    struct {
        MEMORY_COUNTERS(MEMORY_FIELD)
    } count;
#undef MEMORY_FIELD
} memory;

#endif /* MEMORY_MODEL_H_INCLUDED */
