/* input.h - what targets share: an input that is read byte by byte, and claims
   SPDX-License-Identifier: MIT */
#ifndef INPUT_H_INCLUDED
#define INPUT_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline void must(bool holds)
{
    if (!holds)
        abort();
}

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

/* 0 past the end. */
static inline uint8_t next(input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->at++;
}

#endif /* INPUT_H_INCLUDED */
