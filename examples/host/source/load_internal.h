/* load_internal.h - phases of the load generator: of load.c and its test
   SPDX-License-Identifier: MIT */
#ifndef LOAD_INTERNAL_H_INCLUDED
#define LOAD_INTERNAL_H_INCLUDED

#include "load.h"

/* load.phase */
enum {
    LOAD_ENUMERATING,
    LOAD_FILLING,
    LOAD_RUNNING,
    LOAD_SETTLING,
    LOAD_READING_BACK,
    LOAD_FINISHED
};

/* The device answered everything: how much memory is touched.  False: load.device.why. */
bool load_size_memory(load *l);
void load_enter(load *l, unsigned phase, uint64_t now);

#endif /* LOAD_INTERNAL_H_INCLUDED */
