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
enum { SEEDS_PART = 20 };
#else
enum { SEEDS_PART = 1 };
#endif

/* DXPU_SEEDS, else `usual`, or with sanitizers a part of it. */
static inline uint64_t seeds_wanted(uint64_t usual)
{
    const char *wanted = getenv("DXPU_SEEDS");
    return wanted ? strtoull(wanted, NULL, 10) : usual / SEEDS_PART;
}

/* From one case to the next of a loop whose rounds all run the same instructions: 1, but
   tests/proof/ct.py, where each is fifty times slower, asks for fewer of them (DXPU_STEP). */
static inline size_t seeds_step(void)
{
    const char *step = getenv("DXPU_STEP");
    size_t n = step ? strtoul(step, NULL, 10) : 1;
    return n ? n : 1;
}

#endif /* SEEDS_H_INCLUDED */
