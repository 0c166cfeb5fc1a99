/* fixed_random.h - libsodium's random numbers from a seed: the same input does the same
   SPDX-License-Identifier: MIT */
#ifndef FIXED_RANDOM_H_INCLUDED
#define FIXED_RANDOM_H_INCLUDED

#include <sodium.h>

static uint32_t chance; /* the seed */

static const char *fixed_name(void)
{
    return "fixed";
}

static uint32_t fixed_word(void)
{
    return chance = chance * 1664525u + 1013904223u;
}

static void fixed_bytes(void *const out, const size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = (uint8_t)(fixed_word() >> 24);
}

static randombytes_implementation fixed = { fixed_name, fixed_word, NULL, NULL, fixed_bytes, NULL };

#endif /* FIXED_RANDOM_H_INCLUDED */
