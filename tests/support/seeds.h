/* seeds.h - how much a simulation does
   SPDX-License-Identifier: MIT

   `make check` runs the long ones twice: without sanitizers all of it, with them, which takes five
   times as long, a part. */
#ifndef SEEDS_H_INCLUDED
#define SEEDS_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS_PART = 10 };
#else
enum { SEEDS_PART = 1 };
#endif

/* DXPU_SEEDS, else `usual`, or with sanitizers a tenth of it. */
static inline uint64_t seeds_wanted(uint64_t usual)
{
    const char *wanted = getenv("DXPU_SEEDS");
    return wanted ? strtoull(wanted, NULL, 10) : usual / SEEDS_PART;
}

#endif /* SEEDS_H_INCLUDED */
